//! The tokenizer of aos-nano: signs, whole words, numbers, and slots for every word that it does not know.
//!
//! A word that is not known becomes a slot of its class, the same one wherever it stands in a prompt: the network sees that
//! two names are one and never has to spell. The rules are those of `models/nano/FORMAT.md`, part 2. What always holds: each
//! token has its place in the text, so a span of tokens is a span of text; no text gives a control token; a slot stands for
//! one word of a prompt, but the last of its class, which stands for all that have none of their own where slots run out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::vocabulary::Vocabulary;

/// Runs of blanks that are one token, the longest first.
const BLANKS: [&str; 4] = ["        ", "    ", "  ", " "];

/// Letters that a word has, at least and at most, to be taken for a slip of another, and how many words of a text may be.
const SLIP_LETTERS: usize = 4;
const SLIP_LETTERS_MAX: usize = 20;
const SLIP_WORDS: usize = 384;

/// What stands beside a word that is quoted or a part of a name.
const BINDING: &str = "_-/@\\\"'`“”‘’«»„";

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

    fn count(self) -> usize {
        Class::ALL[self as usize].2
    }

    /// The slot of what has none of its own.
    fn last(self) -> u32 {
        self.count() as u32 - 1
    }

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

/// Which token a piece of a text has, before slots are given.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Id(u32),
    Slot(Class),
}

/// A slip of the fingers: how long the word is that was meant, and whether a word was that, given where the two part.
type Way<'w> = (usize, &'w dyn Fn(&[u8], usize) -> bool);

/// How much a word needs a slot of its own: a person's before any other, then by the place of the last text that has it.
type Rank = (bool, usize);

/// Which slots of a prompt stand for which words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    slots: [HashMap<String, u32>; Class::ALL.len()],
    ranks: HashMap<String, Rank>,
    /// How many texts were shown.
    texts: usize,
    /// What a person mistyped, and the known word that it is read as.
    slips: HashMap<String, String>,
    /// All words that a person said, in small letters.
    said: HashSet<String>,
}

impl Table {
    /// The slot of a word that is shown.
    fn give(&mut self, class: Class, word: &str, by_person: bool) -> u32 {
        let rank = self.ranks.entry(word.to_owned()).or_default();
        *rank = (*rank).max((by_person, self.texts));
        let of = &mut self.slots[class as usize];
        let next = of.len() as u32;
        (*of.entry(word.to_owned()).or_insert(next)).min(class.last())
    }

    /// The slot of a word that may have been shown; what was not looks like all that has no slot of its own.
    fn find(&self, class: Class, word: &str) -> u32 {
        self.slots[class as usize].get(word).map_or(class.last(), |slot| (*slot).min(class.last()))
    }

    /// Where slots ran out, the table with which the same is to be shown again: the last slot of such a class stands for all
    /// the words that need one least, each other for one word. `None` where there were enough.
    pub(crate) fn shared(&self) -> Option<Table> {
        let ran_out = |class: Class| self.slots[class as usize].len() > class.count();
        if !Class::ALL.iter().any(|(class, ..)| ran_out(*class)) {
            return None;
        }
        let mut slots = self.slots.clone();
        for (class, ..) in Class::ALL.into_iter().filter(|(class, ..)| ran_out(*class)) {
            let of = &mut slots[class as usize];
            let mut words: Vec<(u32, String)> = of.drain().map(|(word, slot)| (slot, word)).collect();
            words.sort_by_key(|(shown, word)| (Reverse(self.ranks[word]), *shown));
            let others = words.split_off(class.last() as usize);
            words.sort_unstable();
            of.extend((0..).zip(words).map(|(slot, (_, word))| (word, slot)));
            of.extend(others.into_iter().map(|(_, word)| (word, class.last())));
        }
        Some(Table { slots, ..Table::default() })
    }
}

/// The words that a model knows.
pub(crate) struct Words {
    /// All tokens of the model.
    count: u32,
    known: HashMap<String, u32>,
    /// Those that something mistyped may be meant for, by their first letter, which is never mistyped, and their length.
    plain: HashMap<(u8, usize), Vec<String>>,
    numbers: BTreeMap<u32, String>,
    first_slots: [u32; Class::ALL.len()],
    blanks: [u32; BLANKS.len()],
    capital: u32,
    capitals: u32,
    glue: u32,
    /// How many tokens texts were turned into.
    #[cfg(test)]
    pub(crate) read: std::sync::atomic::AtomicUsize,
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
        let mut plain: HashMap<_, Vec<String>> = HashMap::new();
        for word in known.keys() {
            if word.len() >= SLIP_LETTERS && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                plain.entry((word.as_bytes()[0], word.len())).or_default().push(word.clone());
            }
        }
        Some(Words {
            count: u32::try_from(vocabulary.len()).ok()?,
            first_slots,
            plain,
            blanks,
            capital: vocabulary.control("<|capital|>")?,
            capitals: vocabulary.control("<|capitals|>")?,
            glue: vocabulary.control("<|glue|>")?,
            numbers: known.iter().filter(|(text, _)| is_number(text)).map(|(text, id)| (*id, text.clone())).collect(),
            known,
            #[cfg(test)]
            read: std::sync::atomic::AtomicUsize::new(0),
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

    /// All tokens, the slots of each class turned on by a part of their number.
    pub(crate) fn renumbered(&self, part: u32, parts: u32) -> Vec<u32> {
        let slots = |class: Class| (self.first_slots[class as usize], Class::ALL[class as usize].2 as u32);
        let mut ids: Vec<u32> = (0..self.count).collect();
        for (class, ..) in Class::ALL {
            let (first, count) = slots(class);
            for nth in 0..count {
                ids[(first + nth) as usize] = first + (nth + part * count / parts) % count;
            }
        }
        ids
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

    /// Notes which words of what a person says are slips. None is one that is quoted or a part of a name, and none is where
    /// the word that is meant was said too: who writes both means two words.
    pub(crate) fn correct(&self, text: &str, table: &mut Table) {
        let mut at = 0;
        let each = text.split(|char: char| !char.is_ascii_alphabetic()).map(|word| {
            let begin = at;
            at = begin + word.len();
            at += text[at..].chars().next().map_or(0, char::len_utf8);
            (begin, word)
        });
        let words: Vec<(usize, &str)> = each.filter(|(_, word)| !word.is_empty()).take(SLIP_WORDS).collect();
        table.said.extend(words.iter().map(|(_, word)| word.to_ascii_lowercase()));
        for (nth, (begin, word)) in words.into_iter().enumerate() {
            let alone = stands_alone(&text[..begin], &text[begin + word.len()..]);
            // A capital at the begin is the sentence's, any other a name's.
            let word = if nth == 0 { word.to_ascii_lowercase() } else { word.to_owned() };
            let small = word.bytes().all(|byte| byte.is_ascii_lowercase());
            if !small || !alone || self.known.contains_key(&word) || table.slips.contains_key(&word) {
                continue;
            }
            let Some(meant) = self.slip(&word) else { continue };
            if !table.said.contains(&meant) && !table.slips.values().any(|of| *of == meant) {
                table.slips.insert(word, meant);
            }
        }
    }

    /// The words that a slip may be of.
    #[cfg(test)]
    pub(crate) fn plain(&self) -> impl Iterator<Item = &str> {
        self.plain.values().flatten().map(String::as_str)
    }

    /// The known word that a slip of the fingers made this of: two letters that changed places, one too many, one left out or
    /// one that is wrong, never the first. `None` where there is none, or where the likeliest slip may be of several words.
    pub(crate) fn slip(&self, word: &str) -> Option<String> {
        let end = word.len();
        if !(SLIP_LETTERS..=SLIP_LETTERS_MAX).contains(&end) {
            return None;
        }
        let of = |len: usize| self.plain.get(&(word.as_bytes()[0], len)).map_or(&[][..], Vec::as_slice);
        let (replaced, letters) = (end > SLIP_LETTERS, word.as_bytes());
        let ways: [Way<'_>; 4] = [
            (end, &|meant, at| {
                let behind = (at + 2).min(end);
                letters[behind..] == meant[behind..] && letters[at..behind].iter().rev().eq(&meant[at..behind])
            }),
            (end - 1, &|meant, at| letters[at + 1..] == meant[at..]),
            (end + 1, &|meant, at| letters[at..] == meant[at + 1..]),
            (end, &|meant, at| replaced && letters[at + 1..] == meant[at + 1..]),
        ];
        ways.into_iter()
            .map(|(len, is_way)| {
                let made_of = |meant: &&String| {
                    let meant = meant.as_bytes();
                    // Where the two part: all that differs stands there.
                    let at = letters.iter().zip(meant).take_while(|(a, b)| a == b).count();
                    is_way(meant, at)
                };
                of(len).iter().filter(made_of).collect::<Vec<_>>()
            })
            .find(|meant| !meant.is_empty())
            .filter(|meant| meant.len() == 1)
            .map(|meant| meant[0].clone())
    }

    /// The tokens of a text that is shown, at most so many, and whether it has more. What is not shown gets no slot.
    pub(crate) fn shown(&self, text: &str, most: usize, by_person: bool, table: &mut Table) -> (Vec<Token>, bool) {
        let mut found = self.each(text, &table.slips, most);
        let too_long = found.len() > most;
        found.truncate(most);
        table.texts += 1;
        let tokens =
            found.into_iter().map(|piece| self.token(piece, |class, at| table.give(class, &text[at], by_person)));
        (tokens.collect(), too_long)
    }

    /// How many tokens a text without slips has; where they are more than `most`, some that are more too.
    pub(crate) fn count(&self, text: &str, most: usize) -> usize {
        self.each(text, &HashMap::new(), most).len()
    }

    /// The tokens of a text that may stand in what was shown; nothing gets a slot for it. Where they are more than `most`,
    /// some that are more too.
    pub(crate) fn sought(&self, text: &str, most: usize, table: &Table) -> Vec<Token> {
        let found = self.each(text, &table.slips, most).into_iter();
        found.map(|piece| self.token(piece, |class, at| table.find(class, &text[at]))).collect()
    }

    fn token(&self, (kind, at): (Kind, Range<usize>), slot: impl FnOnce(Class, Range<usize>) -> u32) -> Token {
        let (begin, end) = (at.start, at.end);
        let id = match kind {
            Kind::Id(id) => id,
            Kind::Slot(class) => self.first_slots[class as usize] + slot(class, at),
        };
        Token { id, begin, end }
    }

    /// Whether a token may stand for several words.
    pub(crate) fn is_shared(&self, id: u32) -> bool {
        Class::ALL.iter().any(|(class, ..)| id == self.first_slots[*class as usize] + class.last())
    }

    /// The tokens of a text, or its first, more than `most`.
    fn each(&self, text: &str, slips: &HashMap<String, String>, most: usize) -> Vec<(Kind, Range<usize>)> {
        let mut reading = Reading { words: self, text, slips, found: Vec::new() };
        reading.all(most);
        #[cfg(test)]
        self.read.fetch_add(reading.found.len(), std::sync::atomic::Ordering::Relaxed);
        reading.found
    }
}

/// A text on its way into tokens.
struct Reading<'r> {
    words: &'r Words,
    text: &'r str,
    slips: &'r HashMap<String, String>,
    found: Vec<(Kind, Range<usize>)>,
}

impl Reading<'_> {
    fn put(&mut self, id: u32, begin: usize, end: usize) {
        self.found.push((Kind::Id(id), begin..end));
    }

    /// The token of a known word, or of the one that was mistyped here.
    fn known(&self, word: &str) -> Option<u32> {
        self.words.known(self.slips.get(word).map_or(word, String::as_str))
    }

    fn slot(&mut self, class: Class, begin: usize, end: usize) {
        self.found.push((Kind::Slot(class), begin..end));
    }

    fn all(&mut self, most: usize) {
        let (text, mut at, mut behind_word) = (self.text, 0, false);
        while let Some(first) = text[at..].chars().next()
            && self.found.len() <= most
        {
            let rest = &text[at..];
            if in_word(first) {
                let end = at + rest.find(|char| !in_word(char)).unwrap_or(rest.len());
                if behind_word && self.found.last().is_some_and(|(_, last)| last.end == at) {
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
        if let Some(id) = self.known(word) {
            return self.put(id, begin, end);
        }
        let class = Class::of(word);
        let written = match class {
            Class::Capital => Some(self.words.capital),
            Class::Capitals => Some(self.words.capitals),
            _ => None,
        };
        match (written, self.known(&word.to_ascii_lowercase())) {
            (Some(written), Some(id)) => {
                self.put(written, begin, begin);
                self.put(id, begin, end);
            }
            _ => self.slot(class, begin, end),
        }
    }
}

/// Whether a word between these texts is neither quoted nor a part of a name.
fn stands_alone(before: &str, after: &str) -> bool {
    let (mut after, before) = (after.chars(), before.chars().next_back());
    let next = after.next();
    let binds = |char: char| in_word(char) || BINDING.contains(char);
    let goes_on = next == Some('.') && after.next().is_some_and(in_word);
    !(before.is_some_and(&binds) || next.is_some_and(binds) || goes_on)
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
