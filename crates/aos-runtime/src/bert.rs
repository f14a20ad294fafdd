//! The BERT encoder over candle's products: what it makes of the tokens of a text is averaged into one vector.
//!
//! Start at [`Bert::read`]. A model is a folder as it is published: `config.json`, `model.safetensors`, `tokenizer.json`. What
//! always holds: texts are computed one behind another and never filled up to one length, so what a text gets does not
//! depend on which others are read with it; no number that stands in a file is used before it was checked. Deliberately
//! absent: other ways to one vector than the mean, since a wrong one gives vectors that are wrong and look right.
//! Source: Devlin et al., "BERT" (2019), and for the mean Reimers and Gurevych, "Sentence-BERT" (2019).

use std::path::{Path, PathBuf};

use candle_core::safetensors::BufferedSafetensors;
use candle_core::{DType, Device, Tensor};
use serde_json::Value;

use crate::fault::Fault;
use crate::llama::{add, flat, matrix};
use crate::weights::first_line;

/// Most numbers that one text takes at once in any of its matrices: 256 MiB.
const NUMBERS_MAX: usize = 1 << 26;

/// A model in memory.
#[derive(Debug)]
pub(crate) struct Bert {
    heads: usize,
    vocabulary: usize,
    window: usize,
    words: Tensor,
    /// For each position, with what stands for the first of two texts.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    q: Linear,
    k: Linear,
    v: Linear,
    seen: Linear,
    seen_norm: Norm,
    up: Linear,
    down: Linear,
    norm: Norm,
}

#[derive(Debug)]
struct Linear {
    weights: Tensor,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct Norm {
    scale: Vec<f32>,
    shift: Vec<f32>,
    epsilon: f32,
}

/// Whether there is the folder of an encoder.
pub(crate) fn is_encoder(path: &Path) -> bool {
    path.join("config.json").is_file()
}

/// The files of a folder.
struct Folder<'p> {
    path: &'p Path,
    config: Value,
}

impl<'p> Folder<'p> {
    fn open(path: &'p Path) -> Result<Folder<'p>, Fault> {
        let folder = Folder { path, config: json(path.join("config.json"))? };
        for (key, value) in [("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")] {
            // What is newer than a model stands not in its file.
            let said = folder.config.get(key).map_or(Some(value), Value::as_str);
            if said != Some(value) {
                return Err(folder.unsupported(format!("its {key} is not `{value}`")));
            }
        }
        let pooling = path.join("1_Pooling/config.json");
        if pooling.exists() {
            let modes = json(pooling)?;
            let mut on = modes
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(key, value)| key.starts_with("pooling_mode_") && value.as_bool() == Some(true));
            if !on.all(|(key, _)| key == "pooling_mode_mean_tokens") {
                return Err(folder.unsupported("its vectors are not the mean of all tokens".to_owned()));
            }
        }
        Ok(folder)
    }

    fn unsupported(&self, why: String) -> Fault {
        Fault::NoEncoder { path: self.path.to_owned(), why }
    }

    /// A whole number, from 1 to `most`.
    fn count(&self, key: &str, most: u64) -> Result<usize, Fault> {
        let number = self.config.get(key).and_then(Value::as_u64).filter(|number| (1..=most).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.unsupported(format!("its config.json does not say {key} as a number up to {most}")))
    }
}

fn json(path: PathBuf) -> Result<Value, Fault> {
    let bytes = bytes(&path)?;
    serde_json::from_slice(&bytes).map_err(|error| Fault::Damaged { path, why: error.to_string() })
}

/// A whole file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Fault::Absent(path.to_owned()),
        _ => Fault::Unreadable { path: path.to_owned(), why: error.to_string() },
    })
}

/// The tensors of `model.safetensors`.
struct Tensors<'f> {
    folder: &'f Folder<'f>,
    path: PathBuf,
    file: BufferedSafetensors,
    /// What stands before every name, in files that hold more than the encoder.
    before: &'static str,
}

impl<'f> Tensors<'f> {
    fn open(folder: &'f Folder<'f>) -> Result<Tensors<'f>, Fault> {
        let path = folder.path.join("model.safetensors");
        let read = BufferedSafetensors::new(bytes(&path)?);
        let file = read.map_err(|error| Fault::Damaged { path: path.clone(), why: first_line(&error) })?;
        let before = if file.get("bert.embeddings.word_embeddings.weight").is_ok() { "bert." } else { "" };
        Ok(Tensors { folder, path, file, before })
    }

    /// A tensor of the shape that the model's dimensions ask for.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, Fault> {
        let name = format!("{}{name}", self.before);
        let Ok(view) = self.file.get(&name) else {
            return Err(self.folder.unsupported(format!("it has no tensor {name}")));
        };
        if view.shape() != shape {
            let has = view.shape();
            return Err(self
                .folder
                .unsupported(format!("its tensor {name} has the shape {has:?}, {shape:?} is needed")));
        }
        let read = self.file.load(&name, &Device::Cpu).and_then(|tensor| tensor.to_dtype(DType::F32));
        read.map_err(|error| Fault::Damaged { path: self.path.clone(), why: first_line(&error) })
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Fault> {
        flat(self.tensor(name, &[len])?).map_err(|error| Fault::Broke(first_line(&error)))
    }

    fn linear(&self, name: &str, to: usize, from: usize) -> Result<Linear, Fault> {
        let weights = self.tensor(&format!("{name}.weight"), &[to, from])?;
        Ok(Linear { weights, bias: self.vector(&format!("{name}.bias"), to)? })
    }

    fn norm(&self, name: &str, width: usize, epsilon: f32) -> Result<Norm, Fault> {
        let scale = self.vector(&format!("{name}.LayerNorm.weight"), width)?;
        Ok(Norm { scale, shift: self.vector(&format!("{name}.LayerNorm.bias"), width)?, epsilon })
    }
}

impl Bert {
    /// Opens and checks a folder and reads its tensors.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn open(path: &Path) -> Result<Bert, Fault> {
        let folder = Folder::open(path)?;
        let width = folder.count("hidden_size", 1 << 14)?;
        let depth = folder.count("num_hidden_layers", 256)?;
        let heads = folder.count("num_attention_heads", 1 << 10)?;
        let inner = folder.count("intermediate_size", 1 << 16)?;
        let window = folder.count("max_position_embeddings", 1 << 16)?;
        let vocabulary = folder.count("vocab_size", 1 << 24)?;
        let kinds = folder.count("type_vocab_size", 1 << 10)?;
        let epsilon = folder.config["layer_norm_eps"].as_f64().unwrap_or(1e-12) as f32;
        if !width.is_multiple_of(heads) {
            return Err(folder.unsupported(format!("{width} numbers are no {heads} heads")));
        }
        let tensors = Tensors::open(&folder)?;
        let words = tensors.tensor("embeddings.word_embeddings.weight", &[vocabulary, width])?;
        let broke = |error: candle_core::Error| Fault::Broke(first_line(&error));
        let mut positions =
            flat(tensors.tensor("embeddings.position_embeddings.weight", &[window, width])?).map_err(broke)?;
        let kinds = flat(tensors.tensor("embeddings.token_type_embeddings.weight", &[kinds, width])?).map_err(broke)?;
        positions.chunks_exact_mut(width).for_each(|position| add(position, &kinds[..width]));
        let norm = tensors.norm("embeddings", width, epsilon)?;
        let mut layers = Vec::with_capacity(depth);
        for nth in 0..depth {
            let name = |part: &str| format!("encoder.layer.{nth}.{part}");
            layers.push(Layer {
                q: tensors.linear(&name("attention.self.query"), width, width)?,
                k: tensors.linear(&name("attention.self.key"), width, width)?,
                v: tensors.linear(&name("attention.self.value"), width, width)?,
                seen: tensors.linear(&name("attention.output.dense"), width, width)?,
                seen_norm: tensors.norm(&name("attention.output"), width, epsilon)?,
                up: tensors.linear(&name("intermediate.dense"), inner, width)?,
                down: tensors.linear(&name("output.dense"), width, inner)?,
                norm: tensors.norm(&name("output"), width, epsilon)?,
            });
        }
        // What each token has to do with each other is kept for each head; memory that is refused would end the daemon.
        let fits = (NUMBERS_MAX / heads).isqrt().min(NUMBERS_MAX / inner.max(width));
        Ok(Bert { heads, vocabulary, window: window.min(fits), words, positions, norm, layers })
    }

    /// Most tokens of a text.
    pub(crate) fn window(&self) -> usize {
        self.window
    }

    /// How many tokens it knows.
    pub(crate) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// One vector of length 1 for each text. Each has at least one token and at most [`Bert::window`], all below
    /// [`Bert::vocabulary`].
    ///
    /// # Errors
    /// [`Fault::Broke`], where the library fails.
    pub(crate) fn read(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Fault> {
        self.pass(texts).map_err(|error| Fault::Broke(first_line(&error)))
    }

    fn pass(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, candle_core::Error> {
        let ids: Vec<u32> = texts.concat();
        let (count, width) = (ids.len(), self.norm.scale.len());
        let mut x = flat(self.words.index_select(&Tensor::from_vec(ids, count, &Device::Cpu)?, 0)?)?;
        let mut rows = x.as_mut_slice();
        for text in texts {
            let (of, rest) = rows.split_at_mut(text.len() * width);
            add(of, &self.positions[..of.len()]);
            rows = rest;
        }
        self.norm.apply(&mut x);
        for layer in &self.layers {
            let seen = self.attention(layer, &x, texts)?;
            add(&mut x, &layer.seen.of(seen, count)?);
            layer.seen_norm.apply(&mut x);
            let inner = flat(matrix(layer.up.of(x.clone(), count)?, count)?.gelu_erf()?)?;
            add(&mut x, &layer.down.of(inner, count)?);
            layer.norm.apply(&mut x);
        }
        let mut rows = x.chunks_exact(width);
        Ok(texts.iter().map(|text| mean(rows.by_ref().take(text.len()), width)).collect())
    }

    fn attention(&self, layer: &Layer, x: &[f32], texts: &[&[u32]]) -> Result<Vec<f32>, candle_core::Error> {
        let (count, width) = (x.len() / self.norm.scale.len(), self.norm.scale.len());
        let head = width / self.heads;
        let of = |linear: &Linear| matrix(linear.of(x.to_vec(), count)?, count);
        let (q, k, v) = (of(&layer.q)?, of(&layer.k)?, of(&layer.v)?);
        let mut seen = Vec::with_capacity(x.len());
        let mut at = 0;
        for len in texts.iter().map(|text| text.len()) {
            let heads =
                |of: &Tensor| of.narrow(0, at, len)?.reshape((len, self.heads, head))?.transpose(0, 1)?.contiguous();
            let mut weights = flat(heads(&q)?.matmul(&heads(&k)?.t()?)?)?;
            weights.chunks_exact_mut(len).for_each(|row| soften(row, (head as f32).sqrt().recip()));
            let weights = Tensor::from_vec(weights, (self.heads, len, len), &Device::Cpu)?;
            seen.extend(flat(weights.matmul(&heads(&v)?)?.transpose(0, 1)?)?);
            at += len;
        }
        Ok(seen)
    }
}

impl Linear {
    fn of(&self, x: Vec<f32>, rows: usize) -> Result<Vec<f32>, candle_core::Error> {
        let mut product = flat(matrix(x, rows)?.matmul(&self.weights.t()?)?)?;
        product.chunks_exact_mut(self.bias.len()).for_each(|row| add(row, &self.bias));
        Ok(product)
    }
}

impl Norm {
    /// Each row with mean 0 and variance 1, then scaled and shifted.
    fn apply(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.scale.len()) {
            let count = row.len() as f32;
            let mean = row.iter().sum::<f32>() / count;
            let variance = row.iter().map(|number| (number - mean).powi(2)).sum::<f32>() / count;
            let by = (variance + self.epsilon).sqrt().recip();
            for ((number, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
                *number = (*number - mean) * by * scale + shift;
            }
        }
    }
}

/// The softmax of a row times `scale`.
fn soften(row: &mut [f32], scale: f32) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|number| *number = ((*number - most) * scale).exp());
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|number| *number /= sum);
}

/// The mean of rows, as a vector of length 1.
fn mean<'r>(rows: impl Iterator<Item = &'r [f32]>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    rows.for_each(|row| add(&mut sum, row));
    // Divided by the count first or not, the direction is the same.
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    sum.iter_mut().for_each(|number| *number /= length);
    sum
}
