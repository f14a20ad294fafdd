//! The normal form of a text: full-width and other digits are digits, every space is a space, every dash a dash, and
//! what has no width is not there. Each byte of it knows where in the text it came from.

use std::borrow::Cow;

/// A text in its normal form.
#[derive(Debug)]
pub(crate) struct Normal<'t> {
    original: &'t str,
    text: Cow<'t, str>,
    /// For each byte of `text` where its character begins in the original; nothing where they are the same.
    from: Vec<usize>,
}

impl<'t> Normal<'t> {
    pub(crate) fn of(original: &'t str) -> Normal<'t> {
        if original.is_ascii() {
            return Normal { original, text: original.into(), from: Vec::new() };
        }
        let mut text = String::with_capacity(original.len());
        let mut from = Vec::with_capacity(original.len());
        for (at, c) in original.char_indices() {
            if let Some(c) = plain(c) {
                text.push(c);
                from.resize(text.len(), at);
            }
        }
        Normal { original, text: text.into(), from }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Where a span of the normal form, which is not empty, stands in the original.
    pub(crate) fn span(&self, start: usize, end: usize) -> (usize, usize) {
        if self.from.is_empty() {
            return (start, end);
        }
        let last = self.from[end - 1];
        let width = self.original[last..].chars().next().map_or(0, char::len_utf8);
        (self.from[start], last + width)
    }
}

/// The character that this one is a way to write; `None` where it shows nothing.
fn plain(c: char) -> Option<char> {
    let digit = |zero: u32| char::from_digit(c as u32 - zero, 10);
    match c {
        '\0'..='\u{7f}' => Some(c),
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => None,
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => None,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Some(' '),
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => Some('-'),
        '\u{3002}' | '\u{ff61}' => Some('.'),
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0),
        '\u{660}'..='\u{669}' => digit(0x660),
        '\u{6f0}'..='\u{6f9}' => digit(0x6f0),
        '\u{966}'..='\u{96f}' => digit(0x966),
        _ => Some(c),
    }
}

/// Whether a character goes on a word or number that it stands beside. Scripts that write no spaces do not.
pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric() || (c > '\u{7f}' && c < '\u{590}' && c.is_alphanumeric())
}

/// Whether a word goes on before this place.
pub(crate) fn word_before(text: &str, at: usize) -> bool {
    match at.checked_sub(1).map(|before| text.as_bytes()[before]) {
        None => false,
        Some(byte) if byte.is_ascii() => is_word(char::from(byte)),
        Some(_) => text[..at].chars().next_back().is_some_and(is_word),
    }
}

/// Whether a word goes on from this place.
pub(crate) fn word_after(text: &str, at: usize) -> bool {
    match text.as_bytes().get(at) {
        None => false,
        Some(byte) if byte.is_ascii() => is_word(char::from(*byte)),
        Some(_) => text[at..].chars().next().is_some_and(is_word),
    }
}

/// So many bytes were looked at.
#[inline]
pub(crate) fn looked(at: usize) {
    #[cfg(test)]
    work::steps(at);
    let _ = at;
}

/// Counts work, for the test that it is linear; nothing else.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<u64> = const { Cell::new(0) });

    pub(crate) fn steps(count: usize) {
        STEPS.with(|steps| steps.set(steps.get() + count as u64));
    }

    pub(crate) fn taken() -> u64 {
        STEPS.with(|steps| steps.replace(0))
    }
}
