//! A small encoder whose weights come from a fixed row of numbers, as the folder of files in which such models are published.

use std::path::Path;

use serde_json::{Value, json};

/// The tokens; the first four are control tokens.
const TOKENS: [&str; 12] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "read", "##s", "a", "cafe", ",", "!"];
const WIDTH: usize = 32;
const INNER: usize = 64;
/// Most tokens of a text.
pub(crate) const WINDOW: usize = 16;

/// The files of an encoder.
pub(crate) struct Folder {
    pub(crate) config: Value,
    pub(crate) tokenizer: Value,
    pub(crate) weights: Vec<u8>,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let config = json!({ "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": INNER, "max_position_embeddings": WINDOW, "type_vocab_size": 2,
            "vocab_size": TOKENS.len(), "layer_norm_eps": 1e-12 });
        Folder { config, tokenizer: tokenizer(), weights: safetensors(&tensors()) }
    }

    pub(crate) fn write(&self, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        std::fs::write(to.join("config.json"), self.config.to_string()).unwrap();
        std::fs::write(to.join("tokenizer.json"), self.tokenizer.to_string()).unwrap();
        std::fs::write(to.join("model.safetensors"), &self.weights).unwrap();
    }
}

/// As that of MiniLM: it would cut texts, here after four tokens, and fill them up, here to twelve.
fn tokenizer() -> Value {
    let added = |id: usize| {
        json!({ "id": id, "special": true, "content": TOKENS[id], "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false })
    };
    let special = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let around = json!([special("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]")]);
    let ids: Value = TOKENS.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": { "Fixed": 12 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]" },
        "added_tokens": [added(0), added(1), added(2), added(3)],
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "TemplateProcessing", "single": around, "pair": around, "special_tokens": {
            "[CLS]": { "id": "[CLS]", "ids": [2], "tokens": ["[CLS]"] },
            "[SEP]": { "id": "[SEP]", "ids": [3], "tokens": ["[SEP]"] } } },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": ids },
    })
}

/// The tensors in the order in which their numbers are drawn.
pub(crate) fn tensors() -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut state = 1u64;
    // Knuth's linear congruential generator: the upper 24 bits as a number from -0.5 to 0.5.
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut tensors = Vec::new();
    let mut add = |name: String, shape: Vec<usize>| {
        let around = if name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
        let numbers = (0..shape.iter().product()).map(|_| around + draw()).collect();
        tensors.push((name, shape, numbers));
    };
    for (name, rows) in [("word", TOKENS.len()), ("position", WINDOW), ("token_type", 2)] {
        add(format!("embeddings.{name}_embeddings.weight"), vec![rows, WIDTH]);
    }
    add("embeddings.LayerNorm.weight".to_owned(), vec![WIDTH]);
    add("embeddings.LayerNorm.bias".to_owned(), vec![WIDTH]);
    let parts = [
        ("attention.self.query", vec![WIDTH, WIDTH]),
        ("attention.self.key", vec![WIDTH, WIDTH]),
        ("attention.self.value", vec![WIDTH, WIDTH]),
        ("attention.output.dense", vec![WIDTH, WIDTH]),
        ("attention.output.LayerNorm", vec![WIDTH]),
        ("intermediate.dense", vec![INNER, WIDTH]),
        ("output.dense", vec![WIDTH, INNER]),
        ("output.LayerNorm", vec![WIDTH]),
    ];
    for (layer, (part, shape)) in (0..2).flat_map(|layer| parts.iter().map(move |part| (layer, part))) {
        add(format!("encoder.layer.{layer}.{part}.weight"), shape.clone());
        add(format!("encoder.layer.{layer}.{part}.bias"), vec![shape[0]]);
    }
    tensors
}

/// A file: the length of its header, the header, and the numbers one tensor behind another.
pub(crate) fn safetensors(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, numbers) in tensors {
        let begin = data.len();
        data.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] }));
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}
