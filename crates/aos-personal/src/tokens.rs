//! Tokens: what stands in the place of personal data, such as `[EMAIL_1]`, and which value each stands for.
//!
//! What always holds: the same value has the same token; a token that some text held before anything was replaced is
//! never given out, so that filling in again restores every text to the byte.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::detector::{Class, Detector, Unknown};

/// Longest token that is looked for, in bytes.
const TOKEN_BYTES_MAX: usize = 80;

/// Values with their tokens. Call [`Tokens::avoid`] with every text before the first [`Tokens::replace`].
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    by_value: HashMap<(Class, String), String>,
    by_token: BTreeMap<String, String>,
    last: BTreeMap<Class, u64>,
    taken: BTreeSet<String>,
    classes: BTreeSet<Class>,
}

impl Tokens {
    /// Notes what stands in a text and looks like a token.
    pub fn avoid(&mut self, text: &str) {
        self.taken.extend(written(text).map(|(_, token)| token.to_owned()));
    }

    /// The text with its personal data replaced; `None` where it holds none. `context` stands before the text.
    ///
    /// # Errors
    /// Where nobody can know what it holds.
    pub fn replace(&mut self, detector: &Detector, context: &str, text: &str) -> Result<Option<String>, Unknown> {
        let found = detector.find_after(context, text)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut replaced = String::with_capacity(text.len());
        let mut done = 0;
        for piece in found {
            replaced.push_str(&text[done..piece.start]);
            replaced.push_str(&self.token(piece.class, &text[piece.start..piece.end]));
            done = piece.end;
        }
        replaced.push_str(&text[done..]);
        Ok(Some(replaced))
    }

    fn token(&mut self, class: Class, value: &str) -> String {
        self.classes.insert(class.clone());
        let key = (class, value.to_owned());
        if let Some(token) = self.by_value.get(&key) {
            return token.clone();
        }
        let name: String = key
            .0
            .as_str()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        let last = self.last.entry(key.0.clone()).or_default();
        let token = loop {
            *last += 1;
            let token = format!("[{}_{last}]", &name[..name.len().min(48)]);
            if !self.taken.contains(&token) && !self.by_token.contains_key(&token) {
                break token;
            }
        };
        self.by_token.insert(token.clone(), value.to_owned());
        self.by_value.insert(key, token.clone());
        token
    }

    /// The text with every token in it that was given out filled in, by `write`; `None` where it holds none. A token for
    /// which `write` gives nothing stays.
    #[must_use]
    pub fn fill(&self, text: &str, write: impl Fn(&str) -> Option<String>) -> Option<String> {
        let mut filled = String::new();
        let mut done = 0;
        for (at, token) in written(text) {
            if let Some(value) = self.by_token.get(token).and_then(|value| write(value)) {
                filled.push_str(&text[done..at]);
                filled.push_str(&value);
                done = at + token.len();
            }
        }
        (done > 0).then(|| filled + &text[done..])
    }

    /// The kinds of data that were replaced.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter()
    }

    /// Every token in a text that was given out, with its value.
    pub fn in_text(&self, text: &str) -> impl Iterator<Item = (&str, &str)> {
        written(text).filter_map(|(_, token)| {
            self.by_token.get_key_value(token).map(|(token, value)| (token.as_str(), value.as_str()))
        })
    }
}

/// What in a text looks like a token: `[`, capitals, digits and `_`, a number at the end, `]`.
fn written(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('[').filter_map(|(at, _)| {
        let inside = &text.as_bytes()[at + 1..];
        let length = inside
            .iter()
            .take(TOKEN_BYTES_MAX)
            .take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b'_')
            .count();
        let named = inside.get(length) == Some(&b']') && length > 2;
        let token = named.then(|| &text[at..at + length + 2])?;
        let number = token.trim_end_matches(']').rsplit_once('_')?.1;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some((at, token))
    })
}
