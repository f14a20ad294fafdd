//! From text to a model's tokens and back.
//!
//! Start at [`Vocabulary::of`]. What always holds: no text ever becomes a control token, whatever it says; the bytes of
//! the tokens of a text are the text. Deliberately absent: chat templates, which put control tokens between texts; see
//! `form`.

use std::collections::HashMap;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use crate::fault::Fault;
use crate::weights::Weights;

/// What the types of tokens in a GGUF file mean (`llama_token_type` of llama.cpp).
const NORMAL: i64 = 1;
const USER_DEFINED: i64 = 4;
const BYTE: i64 = 6;
/// Most bytes of a token as it is written. The longest in use are rows of some hundred spaces, and everything that is made of a
/// vocabulary takes time by the square of this, or a step of the stack for each byte.
const TOKEN_BYTES_MAX: usize = 1024;
/// Most bytes that the merges of a vocabulary take; the 61,000 of Llama 2 take 10 MiB.
const MERGES_BYTES_MAX: usize = 256 << 20;
/// Bytes that a merge takes beside its text.
const MERGE_BYTES: usize = 160;
/// What stands for a space in SentencePiece's tokens.
const SPACE: char = '\u{2581}';

/// How Llama 3 and Qwen 2 split text before they merge (their tokenizer.json; the same in llama.cpp and candle).
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The tokens of a model.
pub(crate) struct Vocabulary {
    /// What each token stands for in text; nothing for control tokens.
    bytes: Vec<Vec<u8>>,
    /// Most bytes of a text that one token stands for.
    longest: usize,
    control: HashMap<String, u32>,
    encoder: Encoder,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: u32,
}

enum Encoder {
    /// aos-nano's own, which needs to know what else a prompt holds; see `nano`. Its words are known here, and nothing is
    /// written with them.
    Nano,
    /// `true`: SentencePiece, in which a space is written `▁`.
    Merges(Box<Tokenizer>, bool),
}

impl Vocabulary {
    /// The vocabulary that a file brings.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] where it is of a kind that is not known here, or contradicts itself.
    pub(crate) fn of(weights: &Weights) -> Result<Vocabulary, Fault> {
        let kind = weights.text("tokenizer.ggml.model")?.to_owned();
        let missing = |what: &str| weights.unsupported(format!("it does not say {what}"));
        let tokens = weights.texts("tokenizer.ggml.tokens").ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
        if let Some(nth) = tokens.iter().position(|token| token.len() > TOKEN_BYTES_MAX) {
            let len = tokens[nth].len();
            return Err(weights.unsupported(format!("its token {nth} has {len} bytes, more than {TOKEN_BYTES_MAX}")));
        }
        let types = match weights.wholes("tokenizer.ggml.token_type") {
            Some(types) if types.len() == tokens.len() => types,
            Some(_) => return Err(weights.unsupported("it has not as many token types as tokens".to_owned())),
            None => vec![NORMAL; tokens.len()],
        };
        let id = |key: &str| weights.id(key).filter(|id| (*id as usize) < tokens.len());
        let eos = id("tokenizer.ggml.eos_token_id").ok_or_else(|| missing("tokenizer.ggml.eos_token_id"))?;
        let bos = id("tokenizer.ggml.bos_token_id");
        // Of aos-nano's tokens only the words are text: how calls and sentences begin is its own affair.
        let of_text = |nth: usize| match kind.as_str() {
            "aos-nano" => types[nth] == USER_DEFINED,
            _ => matches!(types[nth], NORMAL | USER_DEFINED | BYTE),
        };
        let is_text = |nth: usize| of_text(nth) && nth != eos as usize;
        let text = |nth: usize, token: &String| -> Result<Vec<u8>, Fault> {
            match (is_text(nth), types[nth], kind.as_str()) {
                (false, ..) => Ok(Vec::new()),
                (true, BYTE, _) => byte(token)
                    .map(|byte| vec![byte])
                    .ok_or_else(|| weights.unsupported(format!("its token {nth} is a byte and is written {token:?}"))),
                (true, _, "llama") => Ok(token.replace(SPACE, " ").into_bytes()),
                // A token that no merge could give is only ever written as it stands.
                (true, _, "gpt2") => Ok(unwritten(token).unwrap_or_else(|| token.clone().into_bytes())),
                (true, ..) => Ok(token.clone().into_bytes()),
            }
        };
        let bytes: Vec<Vec<u8>> =
            tokens.iter().enumerate().map(|(nth, token)| text(nth, token)).collect::<Result<_, _>>()?;
        let longest = match kind.as_str() {
            // A space of three bytes is read as what it stands for.
            "llama" => tokens.iter().map(String::len).max(),
            _ => bytes.iter().map(Vec::len).max(),
        };
        let longest = longest.unwrap_or_default().max(1);
        let control = tokens
            .iter()
            .enumerate()
            .filter(|(nth, _)| !is_text(*nth))
            .map(|(nth, token)| (token.clone(), nth as u32))
            .collect();
        let encoder = match kind.as_str() {
            "aos-nano" => Encoder::Nano,
            "llama" => Encoder::Merges(Box::new(sentencepiece(weights, &tokens)?), true),
            "gpt2" => Encoder::Merges(Box::new(byte_level(weights, &tokens)?), false),
            other => return Err(weights.unsupported(format!("its tokenizer is `{other}`"))),
        };
        Ok(Vocabulary { bytes, longest, control, encoder, bos, eos })
    }

    /// Tokens in all.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What a token stands for in text; nothing for a control token.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Each token that stands for a text, with it.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (u32, &str)> {
        let texts = self.bytes.iter().enumerate().map(|(id, bytes)| (id as u32, bytes.as_slice()));
        texts
            .filter(|(_, bytes)| !bytes.is_empty())
            .filter_map(|(id, bytes)| Some((id, std::str::from_utf8(bytes).ok()?)))
    }

    /// The control token of this name.
    pub(crate) fn control(&self, name: &str) -> Option<u32> {
        self.control.get(name).copied()
    }

    /// The least tokens that a text of so many bytes has, whatever it says. Characters that no token holds count too, though
    /// they are lost.
    pub(crate) fn least(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.longest)
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        match &self.encoder {
            Encoder::Nano => Vec::new(),
            Encoder::Merges(tokenizer, spaces) => {
                let ids = merged(tokenizer, text, *spaces);
                if ids.iter().all(|id| !self.bytes(*id).is_empty()) {
                    return ids;
                }
                // A merge gave the text of a control token, which no text may be: it is written character by character.
                let (mut letter, mut known) = ([0; 4], HashMap::new());
                let mut ids = Vec::new();
                for one in text.chars() {
                    let of =
                        known.entry(one).or_insert_with(|| merged(tokenizer, one.encode_utf8(&mut letter), *spaces));
                    ids.extend(of.iter().filter(|id| !self.bytes(**id).is_empty()));
                }
                ids
            }
        }
    }
}

fn merged(tokenizer: &Tokenizer, text: &str, spaces: bool) -> Vec<u32> {
    let written = if spaces { text.replace(' ', &SPACE.to_string()) } else { text.to_owned() };
    // It fails on nothing that a `String` can hold; an empty list would lose the text without a word.
    let encoded = tokenizer.encode_fast(written, false).expect("the tokenizer takes any text");
    encoded.get_ids().to_vec()
}

/// The byte of a token such as `<0x0A>`.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes of a token of byte-level BPE, in which each byte is written as a visible character (GPT-2's encoder.py).
fn unwritten(token: &str) -> Option<Vec<u8>> {
    let visible = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let of = |character: char| {
        let code = character as u32;
        match code {
            code if visible(code) => u8::try_from(code).ok(),
            0x100.. => {
                let nth = (code - 0x100) as usize;
                (0..=255u32).filter(|byte| !visible(*byte)).nth(nth).and_then(|byte| u8::try_from(byte).ok())
            }
            _ => None,
        }
    };
    token.chars().map(of).collect()
}

fn byte_level(weights: &Weights, tokens: &[String]) -> Result<Tokenizer, Fault> {
    let pairs = weights
        .texts("tokenizer.ggml.merges")
        .and_then(|merges| {
            let pair = |merge: &String| merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
            merges.iter().map(pair).collect::<Option<Vec<_>>>()
        })
        .ok_or_else(|| weights.unsupported("it has no list of merges".to_owned()))?;
    let kind = weights.text("tokenizer.ggml.pre").unwrap_or("gpt-2").to_owned();
    let split = |pattern: &str| -> Result<PreTokenizerWrapper, Fault> {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        let split = split.map_err(|error| weights.unsupported(format!("its text cannot be split: {error}")))?;
        Ok(Sequence::new(vec![split.into(), ByteLevel::new(false, false, false).into()]).into())
    };
    let (before, whole): (PreTokenizerWrapper, bool) = match kind.as_str() {
        "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" => (split(LLAMA3)?, true),
        "qwen2" => (split(QWEN2)?, false),
        "smollm" => {
            let digits = Digits::new(true);
            (Sequence::new(vec![digits.into(), ByteLevel::new(false, true, true).into()]).into(), false)
        }
        "gpt-2" | "default" => (ByteLevel::new(false, true, true).into(), false),
        other => return Err(weights.unsupported(format!("its text is split as `{other}` says"))),
    };
    let vocabulary: Vec<(String, u32)> =
        tokens.iter().enumerate().map(|(nth, token)| (token.clone(), nth as u32)).collect();
    let merges =
        BPE::builder().vocab_and_merges(vocabulary.into_iter().collect::<tokenizers::models::bpe::Vocab>(), pairs);
    let model = merges.ignore_merges(whole).build();
    let mut tokenizer =
        Tokenizer::new(model.map_err(|error| weights.unsupported(format!("its merges are no merges: {error}")))?);
    tokenizer.with_pre_tokenizer(Some(before));
    Ok(tokenizer)
}

/// SentencePiece's BPE merges what gives the token of the best score; as a list of merges that is every way to cut a
/// token in two, in the order of scores.
fn sentencepiece(weights: &Weights, tokens: &[String]) -> Result<Tokenizer, Fault> {
    let scores = weights
        .numbers("tokenizer.ggml.scores")
        .filter(|scores| scores.len() == tokens.len())
        .ok_or_else(|| weights.unsupported("it has no score for each token".to_owned()))?;
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(nth, token)| (token.as_str(), nth)).collect();
    let mut cuts = Vec::new();
    let mut bytes = 0;
    for (nth, token) in tokens.iter().enumerate() {
        let (places, before) = (token.char_indices().skip(1), cuts.len());
        cuts.extend(
            places
                .map(|(at, _)| token.split_at(at))
                .filter(|(left, right)| ids.contains_key(left) && ids.contains_key(right))
                .map(|pair| (nth, pair)),
        );
        bytes += (cuts.len() - before) * (token.len() + MERGE_BYTES);
        if bytes > MERGES_BYTES_MAX {
            return Err(weights.unsupported("its tokens can be merged in too many ways".to_owned()));
        }
    }
    cuts.sort_by(|(a, _), (b, _)| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let pairs = cuts.into_iter().map(|(_, (left, right))| (left.to_owned(), right.to_owned())).collect();
    let vocabulary = tokens.iter().enumerate().map(|(nth, token)| (token.clone(), nth as u32));
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.collect::<tokenizers::models::bpe::Vocab>(), pairs)
        .byte_fallback(true)
        .fuse_unk(true);
    if let Some(unknown) = weights.id("tokenizer.ggml.unknown_token_id").and_then(|id| tokens.get(id as usize)) {
        builder = builder.unk_token(unknown.clone());
    }
    let model = builder.build();
    Ok(Tokenizer::new(model.map_err(|error| weights.unsupported(format!("its tokens are no tokens: {error}")))?))
}
