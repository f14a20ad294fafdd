//! The tokenizer of aos-nano: marks, whole words and single bytes, the longest match at each place, no merges.
//!
//! An argument has the same tokens in a request and in the call that copies it, whatever stands around it; that is what
//! makes it easy to copy. The rules are those of `models/nano/FORMAT.md`, part 2. What always holds: any bytes can be
//! written, since each byte is a token.

/// What a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: no text gives this token.
    None,
    Byte,
    /// It matches anywhere.
    Mark,
    /// It matches between edges.
    Word,
}

struct Entry {
    text: Vec<u8>,
    id: u32,
    word: bool,
}

/// The words of a vocabulary, by their first byte.
pub(crate) struct Words {
    /// For each first byte the marks and words that begin with it, longest first.
    by_first: Vec<Vec<Entry>>,
    /// The token of each byte.
    bytes: Vec<u32>,
}

impl Words {
    /// Over the texts of tokens, the place being the id. `None` where some byte has no token.
    pub(crate) fn new<'t>(texts: impl Iterator<Item = (&'t [u8], Kind)>) -> Option<Words> {
        let mut by_first: Vec<Vec<Entry>> = (0..256).map(|_| Vec::new()).collect();
        let mut bytes = vec![None; 256];
        for (id, (text, kind)) in texts.enumerate() {
            let Some(first) = text.first().map(|first| usize::from(*first)) else { continue };
            let id = id as u32;
            match kind {
                Kind::None => {}
                Kind::Byte => bytes[first] = Some(id),
                Kind::Mark | Kind::Word => {
                    by_first[first].push(Entry { text: text.to_vec(), id, word: kind == Kind::Word });
                }
            }
        }
        by_first.iter_mut().for_each(|of| of.sort_by_key(|entry| std::cmp::Reverse(entry.text.len())));
        Some(Words { by_first, bytes: bytes.into_iter().collect::<Option<_>>()? })
    }

    pub(crate) fn encode(&self, text: &[u8]) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len());
        let (mut at, mut edge) = (0, true);
        while let Some(first) = text.get(at) {
            let fits = |entry: &&Entry| {
                let after = text.get(at + entry.text.len());
                text[at..].starts_with(&entry.text) && (!entry.word || edge && !after.is_some_and(in_word))
            };
            match self.by_first[usize::from(*first)].iter().find(fits) {
                Some(entry) => {
                    ids.push(entry.id);
                    at += entry.text.len();
                    edge = true;
                }
                None => {
                    ids.push(self.bytes[usize::from(*first)]);
                    at += 1;
                    edge = !in_word(first);
                }
            }
        }
        ids
    }
}

/// Letters, digits, `_`, and every byte of a character outside ASCII.
fn in_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80
}
