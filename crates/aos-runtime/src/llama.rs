//! The llama architecture over candle's quantised products.
//!
//! Start at [`Llama::read`]. The products of weights are candle's; keys, values and attention are ours, since candle's
//! own models keep one cache inside them and a process needs one of its own. What always holds: what a row gets does
//! not depend on which other rows are read with it, so that batches answer as single requests do; no number that stands
//! in a file is used before it was checked.

use std::path::Path;

use candle_core::quantized::QTensor;
use candle_core::{Device, Tensor};
use rayon::prelude::*;

use crate::attention::attend;
use crate::decoder::{Decoder, Piece};
use crate::fault::Fault;
use crate::kv::{Dims, Kv, Meter};
use crate::weights::{Weights, first_line};

/// Rows times positions from which attention is shared between cores.
const PARALLEL_FROM: usize = 4096;

/// A model in memory.
#[derive(Debug)]
pub struct Llama {
    heads: usize,
    kv_heads: usize,
    head: usize,
    window: usize,
    vocabulary: usize,
    epsilon: f32,
    /// By how much one position turns each pair of a head.
    turns: Vec<f32>,
    embedding: QTensor,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// `None`: the embedding is used for the output too.
    output: Option<QTensor>,
    meter: Meter,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Vec<f32>,
    q: QTensor,
    k: QTensor,
    v: QTensor,
    attention_output: QTensor,
    ffn_norm: Vec<f32>,
    gate: QTensor,
    up: QTensor,
    down: QTensor,
}

impl Llama {
    /// Opens and checks a file, and reads its tensors.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(file: &Path) -> Result<Llama, Fault> {
        Llama::load(&mut Weights::open(file, None)?)
    }

    /// Reads the tensors, each of which must have the shape that the dimensions ask for.
    pub(crate) fn load(weights: &mut Weights) -> Result<Llama, Fault> {
        let width = weights.count("llama.embedding_length", None)?;
        let depth = weights.count("llama.block_count", None)?;
        let inner = weights.count("llama.feed_forward_length", None)?;
        let heads = weights.count("llama.attention.head_count", None)?;
        let kv_heads = weights.count("llama.attention.head_count_kv", Some(heads))?;
        let head = weights.count("llama.attention.key_length", Some(width / heads))?;
        let window = weights.count("llama.context_length", None)?;
        let turned = weights.count("llama.rope.dimension_count", Some(head))?;
        let epsilon = weights.number("llama.attention.layer_norm_rms_epsilon", Some(1e-5))?;
        let base = weights.number("llama.rope.freq_base", Some(10_000.0))?;
        if depth > 1024 {
            return Err(weights.unsupported(format!("it has {depth} layers")));
        }
        if !heads.is_multiple_of(kv_heads) || !head.is_multiple_of(2) || turned != head {
            return Err(weights.unsupported(format!(
                "{heads} heads of {head} (turned: {turned}) do not go with {kv_heads} heads of keys"
            )));
        }
        if let Ok(scaling) = weights.text("llama.rope.scaling.type")
            && scaling != "none"
        {
            return Err(weights.unsupported(format!("it stretches its positions by `{scaling}`")));
        }
        let vocabulary = weights.texts("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
        if vocabulary == 0 {
            return Err(weights.unsupported("it has no list of tokens".to_owned()));
        }
        let mut turns: Vec<f32> = (0..head / 2).map(|pair| base.powf(-((2 * pair) as f32) / head as f32)).collect();
        // Llama 3.1 and later bring the stretching of their positions as a tensor.
        if weights.has("rope_freqs.weight") {
            let factors = weights.vector("rope_freqs.weight", head / 2)?;
            turns.iter_mut().zip(factors).for_each(|(turn, factor)| *turn /= factor);
        }
        let (queries, keys) = (heads * head, kv_heads * head);
        let embedding = weights.tensor("token_embd.weight", &[vocabulary, width])?;
        let output = match weights.has("output.weight") {
            true => Some(weights.tensor("output.weight", &[vocabulary, width])?),
            false => None,
        };
        let mut layers = Vec::with_capacity(depth);
        for nth in 0..depth {
            let mut matrix = |name: &str, rows: usize, columns: usize| {
                weights.tensor(&format!("blk.{nth}.{name}.weight"), &[rows, columns])
            };
            let (q, k) = (matrix("attn_q", queries, width)?, matrix("attn_k", keys, width)?);
            let (v, attention_output) = (matrix("attn_v", keys, width)?, matrix("attn_output", width, queries)?);
            let (gate, up) = (matrix("ffn_gate", inner, width)?, matrix("ffn_up", inner, width)?);
            let down = matrix("ffn_down", width, inner)?;
            let attention_norm = weights.vector(&format!("blk.{nth}.attn_norm.weight"), width)?;
            let ffn_norm = weights.vector(&format!("blk.{nth}.ffn_norm.weight"), width)?;
            layers.push(Layer { attention_norm, q, k, v, attention_output, ffn_norm, gate, up, down });
        }
        let norm = weights.vector("output_norm.weight", width)?;
        let meter = Meter::default();
        Ok(Llama { heads, kv_heads, head, window, vocabulary, epsilon, turns, embedding, layers, norm, output, meter })
    }

    fn dims(&self) -> Dims {
        Dims { layers: self.layers.len(), width: self.kv_heads * self.head }
    }

    fn pass(&self, pieces: &mut [Piece<'_, Kv>]) -> Result<Vec<Option<Vec<f32>>>, candle_core::Error> {
        let ids: Vec<u32> = pieces.iter().flat_map(|piece| piece.ids).copied().collect();
        // For each row which piece it is of, and its position.
        let mut rows: Vec<(usize, usize)> = Vec::with_capacity(ids.len());
        for (nth, piece) in pieces.iter_mut().enumerate() {
            rows.extend((piece.state.len()..piece.state.len() + piece.ids.len()).map(|position| (nth, position)));
            piece.state.extend(piece.ids.len());
        }
        let turned = self.turned(&rows);
        let count = ids.len();
        let mut x = flat(self.embedding.embedding(&Tensor::from_vec(ids, count, &Device::Cpu)?)?)?;
        for (nth, layer) in self.layers.iter().enumerate() {
            let seen = self.attention(nth, layer, &x, &rows, &turned, pieces)?;
            add(&mut x, &times(&layer.attention_output, &matrix(seen, count)?)?);
            let normed = matrix(self.normed(&x, &layer.ffn_norm), count)?;
            let mut gate = times(&layer.gate, &normed)?;
            let up = times(&layer.up, &normed)?;
            gate.iter_mut().zip(up).for_each(|(gate, up)| *gate *= up / (1.0 + (-*gate).exp()));
            add(&mut x, &times(&layer.down, &matrix(gate, count)?)?);
        }
        self.logits(&x, pieces)
    }

    fn attention(
        &self,
        nth: usize,
        layer: &Layer,
        x: &[f32],
        rows: &[(usize, usize)],
        turned: &[(f32, f32)],
        pieces: &mut [Piece<'_, Kv>],
    ) -> Result<Vec<f32>, candle_core::Error> {
        let normed = matrix(self.normed(x, &layer.attention_norm), rows.len())?;
        let mut queries = times(&layer.q, &normed)?;
        let mut keys = times(&layer.k, &normed)?;
        let values = times(&layer.v, &normed)?;
        let (wide, narrow) = (self.heads * self.head, self.kv_heads * self.head);
        let pairs = self.head / 2;
        for row in 0..rows.len() {
            let turned = &turned[row * pairs..(row + 1) * pairs];
            turn(&mut queries[row * wide..(row + 1) * wide], turned);
            turn(&mut keys[row * narrow..(row + 1) * narrow], turned);
        }
        for (row, (piece, position)) in rows.iter().enumerate() {
            let of = row * narrow..(row + 1) * narrow;
            pieces[*piece].state.put(nth, *position, &keys[of.clone()], &values[of]);
        }
        let mut seen = vec![0.0; rows.len() * wide];
        let states: Vec<&Kv> = pieces.iter().map(|piece| &*piece.state).collect();
        let one = |row: usize, seen: &mut [f32]| {
            let (piece, position) = rows[row];
            let heads = (self.heads, self.kv_heads);
            attend(&queries[row * wide..(row + 1) * wide], states[piece].pages(nth), position + 1, heads, seen);
        };
        let work: usize = rows.iter().map(|(_, position)| position + 1).sum();
        if work < PARALLEL_FROM {
            seen.chunks_exact_mut(wide).enumerate().for_each(|(row, seen)| one(row, seen));
        } else {
            seen.par_chunks_exact_mut(wide).enumerate().for_each(|(row, seen)| one(row, seen));
        }
        Ok(seen)
    }

    /// The logits after the last row of each piece that wants them.
    fn logits(&self, x: &[f32], pieces: &[Piece<'_, Kv>]) -> Result<Vec<Option<Vec<f32>>>, candle_core::Error> {
        let width = self.norm.len();
        let mut last = 0;
        let mut wanted = Vec::new();
        for piece in pieces {
            last += piece.ids.len();
            if piece.wanted {
                wanted.extend(self.normed(&x[(last - 1) * width..last * width], &self.norm));
            }
        }
        let count = wanted.len() / width;
        let mut logits = match count {
            0 => Vec::new(),
            _ => times(self.output.as_ref().unwrap_or(&self.embedding), &matrix(wanted, count)?)?,
        };
        let mut rest = logits.drain(..);
        Ok(pieces.iter().map(|piece| piece.wanted.then(|| rest.by_ref().take(self.vocabulary).collect())).collect())
    }

    /// Cosine and sine of each pair of each row.
    fn turned(&self, rows: &[(usize, usize)]) -> Vec<(f32, f32)> {
        let of = |(_, position): &(usize, usize)| {
            let position = *position as f32;
            self.turns.iter().map(move |turn| {
                let (sine, cosine) = (position * turn).sin_cos();
                (cosine, sine)
            })
        };
        rows.iter().flat_map(of).collect()
    }

    /// Each row divided by its root mean square, times the weights.
    fn normed(&self, x: &[f32], weights: &[f32]) -> Vec<f32> {
        let mut normed = Vec::with_capacity(x.len());
        for row in x.chunks_exact(weights.len()) {
            let mean = row.iter().map(|number| number * number).sum::<f32>() / row.len() as f32;
            let scale = (mean + self.epsilon).sqrt().recip();
            normed.extend(row.iter().zip(weights).map(|(number, weight)| number * scale * weight));
        }
        normed
    }
}

impl Decoder for Llama {
    type State = Kv;

    fn window(&self) -> usize {
        self.window
    }

    fn fresh(&self) -> Kv {
        Kv::new(self.dims(), &self.meter)
    }

    fn len(state: &Kv) -> usize {
        state.len()
    }

    fn truncate(state: &mut Kv, len: usize) {
        state.truncate(len);
    }

    fn bytes_of(&self, tokens: usize) -> usize {
        self.dims().bytes(tokens)
    }

    fn bytes_held(&self) -> usize {
        self.meter.bytes()
    }

    fn read(&self, pieces: &mut [Piece<'_, Kv>]) -> Result<Vec<Option<Vec<f32>>>, Fault> {
        self.pass(pieces).map_err(|error| Fault::Broke(first_line(&error)))
    }

    fn save(&self, state: &Kv) -> Vec<u8> {
        state.save()
    }

    fn restore(&self, bytes: &[u8]) -> Result<Kv, Fault> {
        Kv::restore(bytes, self.dims(), &self.meter)
    }
}

/// Turns neighbouring pairs of every head, as llama.cpp does for this architecture.
fn turn(heads: &mut [f32], turned: &[(f32, f32)]) {
    for head in heads.chunks_exact_mut(turned.len() * 2) {
        for (pair, (cosine, sine)) in head.chunks_exact_mut(2).zip(turned) {
            let (a, b) = (pair[0], pair[1]);
            pair[0] = a * cosine - b * sine;
            pair[1] = a * sine + b * cosine;
        }
    }
}

pub(crate) fn matrix(numbers: Vec<f32>, rows: usize) -> Result<Tensor, candle_core::Error> {
    let columns = numbers.len() / rows;
    Tensor::from_vec(numbers, (rows, columns), &Device::Cpu)
}

fn times(weights: &QTensor, x: &Tensor) -> Result<Vec<f32>, candle_core::Error> {
    flat(x.apply_op1_no_bwd(weights)?)
}

pub(crate) fn flat(tensor: Tensor) -> Result<Vec<f32>, candle_core::Error> {
    tensor.flatten_all()?.to_vec1()
}

pub(crate) fn add(to: &mut [f32], more: &[f32]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to += more);
}
