//! Small models with random weights, written as GGUF version 3: the same seed gives the same file.

use std::path::Path;

use serde_json::Value;

/// A value of the metadata.
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

/// A file to be written.
pub(crate) struct Gguf {
    pub(crate) meta: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<(String, Vec<usize>, Kind)>,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    Q8,
}

/// What the vectors of aos-nano say of its vocabulary.
pub(crate) fn vectors(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/nano/vectors/");
    std::fs::read_to_string(format!("{folder}{name}")).unwrap()
}

impl Gguf {
    /// A model in the form of aos-nano, with its own vocabulary and grammar.
    pub(crate) fn nano(seed: u64) -> Gguf {
        let of: Value = serde_json::from_str(&vectors("vocabulary.json")).unwrap();
        let texts = |key: &str| -> Vec<String> {
            of[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let tokens = texts("tokens");
        let types = of["types"].as_array().unwrap().iter().map(|kind| kind.as_i64().unwrap() as i32).collect();
        let calls = of["grammar"]["calls"].as_object().unwrap().keys().cloned().collect();
        // As wide as candle needs for the products of the vector unit at hand.
        let mut gguf = Gguf::llama(seed, tokens.len(), 1280, 256);
        gguf.meta.extend([
            ("tokenizer.ggml.model".to_owned(), Meta::Text("aos-nano".to_owned())),
            ("tokenizer.ggml.tokens".to_owned(), Meta::Texts(tokens)),
            ("tokenizer.ggml.token_type".to_owned(), Meta::I32s(types)),
            ("tokenizer.ggml.eos_token_id".to_owned(), Meta::U32(1)),
            ("aos.nano.format".to_owned(), Meta::U32(2)),
            ("aos.nano.calls".to_owned(), Meta::Texts(calls)),
            ("aos.nano.grammar".to_owned(), Meta::Text(of["grammar"].to_string())),
        ]);
        gguf
    }

    /// A model with byte-level BPE and the chat form of many models.
    pub(crate) fn chat(seed: u64) -> Gguf {
        // GPT-2 writes each byte as a visible character.
        let visible = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let hidden: Vec<u32> = (0..256).filter(|byte| !visible(*byte)).collect();
        let letter = |byte: u32| match hidden.iter().position(|one| *one == byte) {
            None => char::from_u32(byte).unwrap(),
            Some(nth) => char::from_u32(0x100 + nth as u32).unwrap(),
        };
        let mut tokens: Vec<String> = (0..256).map(|byte| letter(byte).to_string()).collect();
        let merges = ["t h", "th e", "Ġ the", "e r", "< |"];
        tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
        let mut types = vec![1; tokens.len()];
        for control in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] {
            tokens.push(control.to_owned());
            types.push(3);
        }
        let mut gguf = Gguf::llama(seed, tokens.len(), 8192, 64);
        gguf.meta.extend([
            ("tokenizer.ggml.model".to_owned(), Meta::Text("gpt2".to_owned())),
            ("tokenizer.ggml.pre".to_owned(), Meta::Text("smollm".to_owned())),
            ("tokenizer.ggml.eos_token_id".to_owned(), Meta::U32(tokens.len() as u32 - 1)),
            ("tokenizer.ggml.tokens".to_owned(), Meta::Texts(tokens)),
            ("tokenizer.ggml.token_type".to_owned(), Meta::I32s(types)),
            ("tokenizer.ggml.merges".to_owned(), Meta::Texts(merges.map(str::to_owned).to_vec())),
        ]);
        gguf
    }

    fn llama(seed: u64, vocabulary: usize, window: u32, width: usize) -> Gguf {
        let (layers, inner, heads, kv_heads) = (2, width * 3 / 2, 4, 2);
        let head = width / heads;
        let key = |key: &str, number: usize| (format!("llama.{key}"), Meta::U32(number as u32));
        let meta = vec![
            ("general.architecture".to_owned(), Meta::Text("llama".to_owned())),
            key("context_length", window as usize),
            key("embedding_length", width),
            key("block_count", layers),
            key("feed_forward_length", inner),
            key("attention.head_count", heads),
            key("attention.head_count_kv", kv_heads),
            ("llama.attention.layer_norm_rms_epsilon".to_owned(), Meta::F32(1e-5)),
            ("aos.test".to_owned(), Meta::Bool(true)),
        ];
        let mut tensors = vec![
            ("token_embd.weight".to_owned(), vec![vocabulary, width], Kind::Q8),
            ("output_norm.weight".to_owned(), vec![width], Kind::F32),
        ];
        for layer in 0..layers {
            let mut add = |name: &str, shape: Vec<usize>| {
                let kind = if shape.len() == 1 { Kind::F32 } else { Kind::Q8 };
                tensors.push((format!("blk.{layer}.{name}.weight"), shape, kind));
            };
            add("attn_norm", vec![width]);
            add("attn_q", vec![heads * head, width]);
            add("attn_k", vec![kv_heads * head, width]);
            add("attn_v", vec![kv_heads * head, width]);
            add("attn_output", vec![width, heads * head]);
            add("ffn_norm", vec![width]);
            add("ffn_gate", vec![inner, width]);
            add("ffn_up", vec![inner, width]);
            add("ffn_down", vec![width, inner]);
        }
        Gguf { meta, tensors, seed }
    }

    /// Replaces a value of the metadata.
    pub(crate) fn with(mut self, key: &str, value: Meta) -> Gguf {
        self.meta.retain(|(known, _)| known != key);
        self.meta.push((key.to_owned(), value));
        self
    }

    pub(crate) fn write(&self, to: &Path) {
        std::fs::write(to, self.bytes()).unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.meta.len() as u64).to_le_bytes());
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        for (key, value) in &self.meta {
            text(&mut bytes, key);
            match value {
                Meta::U32(number) => bytes.extend([4u32.to_le_bytes(), number.to_le_bytes()].concat()),
                Meta::F32(number) => bytes.extend([6u32.to_le_bytes(), number.to_le_bytes()].concat()),
                Meta::Bool(yes) => {
                    bytes.extend(7u32.to_le_bytes());
                    bytes.push(u8::from(*yes));
                }
                Meta::Text(value) => {
                    bytes.extend(8u32.to_le_bytes());
                    text(&mut bytes, value);
                }
                Meta::Texts(values) => {
                    bytes.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
                    bytes.extend((values.len() as u64).to_le_bytes());
                    values.iter().for_each(|value| text(&mut bytes, value));
                }
                Meta::I32s(values) => {
                    bytes.extend([9u32.to_le_bytes(), 5u32.to_le_bytes()].concat());
                    bytes.extend((values.len() as u64).to_le_bytes());
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                }
                Meta::F32s(values) => {
                    bytes.extend([9u32.to_le_bytes(), 6u32.to_le_bytes()].concat());
                    bytes.extend((values.len() as u64).to_le_bytes());
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                }
            }
        }
        let mut data: Vec<u8> = Vec::new();
        for (name, shape, kind) in &self.tensors {
            text(&mut bytes, name);
            bytes.extend((shape.len() as u32).to_le_bytes());
            bytes.extend(shape.iter().rev().flat_map(|dim| (*dim as u64).to_le_bytes()));
            bytes.extend(match kind {
                Kind::F32 => 0u32.to_le_bytes(),
                Kind::Q8 => 8u32.to_le_bytes(),
            });
            bytes.extend((data.len() as u64).to_le_bytes());
            let count: usize = shape.iter().product();
            match kind {
                Kind::F32 => (0..count).for_each(|_| data.extend((0.5 + random.f32()).to_le_bytes())),
                // A block: a scale as half-precision 2^-9, and 32 whole numbers.
                Kind::Q8 => (0..count / 32).for_each(|_| {
                    data.extend(0x1800u16.to_le_bytes());
                    data.extend((0..32).map(|_| random.u8(..)));
                }),
            }
            data.resize(data.len().next_multiple_of(32), 0);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(data);
        bytes
    }
}
