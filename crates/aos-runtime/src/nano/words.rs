//! The tokenizer of aos-nano: signs, whole words, numbers, and slots for every word that it does not know.
//!
//! A word that is not known becomes a slot of its class, the same one wherever it stands in a prompt: the network sees that
//! two names are one and never has to spell. The rules are those of `models/nano/FORMAT.md`, part 2. What always holds: each
//! token has its place in the text, so a span of tokens is a span of text; no text gives a control token.

use std::collections::{BTreeMap, HashMap};

use crate::vocabulary::Vocabulary;

/// Runs of blanks that are one token, the longest first.
const BLANKS: [&str; 4] = ["        ", "    ", "  ", " "];

/// What a word that is not known looks like. Each class has so many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Small,
    Capital,
    Capitals,
    Digits,
    Mixed,
    Foreign,
    Sign,
}

impl Class {
    const ALL: [(Class, &'static str, usize); 7] = [
        (Class::Small, "small", 128),
        (Class::Capital, "capital", 48),
        (Class::Capitals, "capitals", 32),
        (Class::Digits, "digits", 64),
        (Class::Mixed, "mixed", 64),
        (Class::Foreign, "foreign", 64),
        (Class::Sign, "sign", 16),
    ];

    fn of(word: &str) -> Class {
        let all = |is: fn(&u8) -> bool| word.as_bytes().iter().all(is);
        let small_after = word.bytes().skip(1).all(|byte| byte.is_ascii_lowercase());
        match word.as_bytes().first() {
            _ if !word.is_ascii() => Class::Foreign,
            _ if all(u8::is_ascii_digit) => Class::Digits,
            _ if !all(u8::is_ascii_alphabetic) => Class::Mixed,
            _ if all(u8::is_ascii_lowercase) => Class::Small,
            Some(first) if first.is_ascii_uppercase() && small_after => Class::Capital,
            _ if all(u8::is_ascii_uppercase) => Class::Capitals,
            _ => Class::Mixed,
        }
    }
}

/// A token and its place in the text, in bytes. What only says how the next word is written takes no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) id: u32,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// Which slots of a prompt stand for which words. Where slots run out, the first come again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    slots: [HashMap<String, u32>; Class::ALL.len()],
}

impl Table {
    fn slot(&self, class: Class, word: &str) -> u32 {
        let of = &self.slots[class as usize];
        of.get(word).copied().unwrap_or((of.len() % Class::ALL[class as usize].2) as u32)
    }
}

/// The words that a model knows.
pub(crate) struct Words {
    known: HashMap<String, u32>,
    numbers: BTreeMap<u32, String>,
    first_slots: [u32; Class::ALL.len()],
    blanks: [u32; BLANKS.len()],
    capital: u32,
    capitals: u32,
    glue: u32,
}

impl Words {
    /// Of a vocabulary, in which `known` are those that text may give. `None` where it lacks a token that this needs.
    pub(crate) fn new(vocabulary: &Vocabulary, known: HashMap<String, u32>) -> Option<Words> {
        let mut first_slots = [0; Class::ALL.len()];
        for (class, name, count) in Class::ALL {
            let slots: Option<Vec<u32>> =
                (0..count).map(|nth| vocabulary.control(&format!("<|{name}{nth}|>"))).collect();
            let slots = slots.filter(|slots| slots.is_sorted_by(|a, b| a + 1 == *b))?;
            first_slots[class as usize] = slots[0];
        }
        let mut blanks = [0; BLANKS.len()];
        for (id, text) in blanks.iter_mut().zip(BLANKS) {
            *id = *known.get(text)?;
        }
        Some(Words {
            first_slots,
            blanks,
            capital: vocabulary.control("<|capital|>")?,
            capitals: vocabulary.control("<|capitals|>")?,
            glue: vocabulary.control("<|glue|>")?,
            numbers: known.iter().filter(|(text, _)| is_number(text)).map(|(text, id)| (*id, text.clone())).collect(),
            known,
        })
    }

    /// The token of a known word, number or sign.
    pub(crate) fn known(&self, text: &str) -> Option<u32> {
        self.known.get(text).copied()
    }

    /// The number that a token stands for, where the model knows it.
    pub(crate) fn number(&self, id: u32) -> Option<&str> {
        self.numbers.get(&id).map(String::as_str)
    }

    /// The tokens of the numbers that the model knows.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.keys().copied()
    }

    /// The text of known words and signs, with a blank between two words; `None` where a token is neither.
    pub(crate) fn spelled(&self, ids: &[u32]) -> Option<String> {
        let mut text = String::new();
        for id in ids {
            let (known, _) = self.known.iter().find(|(_, of)| *of == id)?;
            if text.ends_with(in_word) && known.starts_with(in_word) {
                text.push(' ');
            }
            text += known;
        }
        Some(text)
    }

    /// The tokens of white space, with which no span begins.
    pub(crate) fn blank(&self) -> impl Iterator<Item = u32> {
        self.blanks.into_iter().chain(["\n", "\t", "\r"].into_iter().filter_map(|text| self.known(text)))
    }

    /// Whether a token stands for some word of digits that is not known.
    pub(crate) fn is_digits(&self, id: u32) -> bool {
        let (first, count) = (self.first_slots[Class::Digits as usize], Class::ALL[Class::Digits as usize].2);
        (first..first + count as u32).contains(&id)
    }

    /// Whether a token only says how the next word is written.
    pub(crate) fn is_half(&self, id: u32) -> bool {
        [self.capital, self.capitals, self.glue].contains(&id)
    }

    /// The tokens of a text that is shown; words that are not known get slots.
    pub(crate) fn shown(&self, text: &str, table: &mut Table) -> Vec<Token> {
        self.each(text, &mut |class, word| {
            let slot = table.slot(class, word);
            table.slots[class as usize].entry(word.to_owned()).or_insert(slot);
            slot
        })
    }

    /// The tokens of a text that may stand in what was shown; nothing gets a slot for it.
    pub(crate) fn sought(&self, text: &str, table: &Table) -> Vec<Token> {
        self.each(text, &mut |class, word| table.slot(class, word))
    }

    fn each(&self, text: &str, slot: &mut dyn FnMut(Class, &str) -> u32) -> Vec<Token> {
        let mut reading = Reading { words: self, text, slot, found: Vec::new() };
        reading.all();
        reading.found
    }
}

/// A text on its way into tokens.
struct Reading<'r> {
    words: &'r Words,
    text: &'r str,
    /// The slot of a word that is not known.
    slot: &'r mut dyn FnMut(Class, &str) -> u32,
    found: Vec<Token>,
}

impl Reading<'_> {
    fn put(&mut self, id: u32, begin: usize, end: usize) {
        self.found.push(Token { id, begin, end });
    }

    fn slot(&mut self, class: Class, begin: usize, end: usize) {
        let id = self.words.first_slots[class as usize] + (self.slot)(class, &self.text[begin..end]);
        self.put(id, begin, end);
    }

    fn all(&mut self) {
        let (text, mut at, mut behind_word) = (self.text, 0, false);
        while let Some(first) = text[at..].chars().next() {
            let rest = &text[at..];
            if in_word(first) {
                let end = at + rest.find(|char| !in_word(char)).unwrap_or(rest.len());
                if behind_word && self.found.last().is_some_and(|last| last.end == at) {
                    self.put(self.words.glue, at, at);
                }
                self.word(at, end);
                (at, behind_word) = (end, true);
            } else if first == ' ' {
                if behind_word && rest[1..].chars().next().is_some_and(in_word) {
                    // One blank between two words is taken for granted.
                    at += 1;
                    continue;
                }
                let run = at + rest.find(|char| char != ' ').unwrap_or(rest.len());
                for (id, blank) in self.words.blanks.into_iter().zip(BLANKS) {
                    while run - at >= blank.len() {
                        self.put(id, at, at + blank.len());
                        at += blank.len();
                    }
                }
                behind_word = false;
            } else {
                let end = at + first.len_utf8();
                match self.words.known(&text[at..end]) {
                    Some(id) => self.put(id, at, end),
                    None => self.slot(Class::Sign, at, end),
                }
                (at, behind_word) = (end, false);
            }
        }
    }

    /// A run of letters and digits: letters before digits, or digits before letters, are two words.
    fn word(&mut self, begin: usize, end: usize) {
        let Some(len) = two_parts(&self.text[begin..end]) else { return self.part(begin, end) };
        let middle = begin + len;
        self.part(begin, middle);
        self.put(self.words.glue, middle, middle);
        self.part(middle, end);
    }

    fn part(&mut self, begin: usize, end: usize) {
        let word = &self.text[begin..end];
        if let Some(id) = self.words.known(word) {
            return self.put(id, begin, end);
        }
        let class = Class::of(word);
        let written = match class {
            Class::Capital => Some(self.words.capital),
            Class::Capitals => Some(self.words.capitals),
            _ => None,
        };
        match (written, self.words.known(&word.to_ascii_lowercase())) {
            (Some(written), Some(id)) => {
                self.put(written, begin, begin);
                self.put(id, begin, end);
            }
            _ => self.slot(class, begin, end),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Letters and digits, and whatever is written in other scripts; `_` is a sign.
pub(crate) fn in_word(char: char) -> bool {
    match char as u32 {
        0..0x80 => char.is_ascii_alphanumeric(),
        0xd7 | 0xf7 | 0x2000..0x2c00 | 0x3000..0x3005 | 0xfe00..0xfe10 => false,
        code => (0xc0..0x1f000).contains(&code),
    }
}

/// Where letters before digits, or digits before letters, part.
fn two_parts(word: &str) -> Option<usize> {
    let digit = word.as_bytes().first()?.is_ascii_digit();
    let len = word.bytes().position(|byte| byte.is_ascii_digit() != digit)?;
    let rest = &word[word.is_char_boundary(len).then_some(len)?..];
    let fits = |byte: u8| if digit { byte.is_ascii_alphabetic() } else { byte.is_ascii_digit() };
    (word.is_ascii() && rest.bytes().all(fits)).then_some(len)
}
