//! The normal form of a text: the digits of every script are digits, every space is a space, every dash a dash, and what has
//! no width is not there. Each byte of it knows where in the text it came from.

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

/// The zeros of all scripts, each followed by its nine digits (Unicode 16, general category Nd).
const ZEROS: [u32; 73] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20,
    0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0,
    0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0,
    0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50,
    0x11d50, 0x11da0, 0x11f50, 0x16a60, 0x16ac0, 0x16b50, 0x1ccf0, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

/// What has no width, from the first to the last of each run (Unicode, Default_Ignorable_Code_Point).
const HIDDEN: [(char, char); 17] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Dashes (general category Pd), and the sign for minus.
const DASHES: [char; 27] = [
    '\u{58a}',
    '\u{5be}',
    '\u{1400}',
    '\u{1806}',
    '\u{2010}',
    '\u{2011}',
    '\u{2012}',
    '\u{2013}',
    '\u{2014}',
    '\u{2015}',
    '\u{2212}',
    '\u{2e17}',
    '\u{2e1a}',
    '\u{2e3a}',
    '\u{2e3b}',
    '\u{2e40}',
    '\u{2e5d}',
    '\u{301c}',
    '\u{3030}',
    '\u{30a0}',
    '\u{fe31}',
    '\u{fe32}',
    '\u{fe58}',
    '\u{fe63}',
    '\u{ff0d}',
    '\u{10d6e}',
    '\u{10ead}',
];

/// The character that this one is a way to write; `None` where it shows nothing.
fn plain(c: char) -> Option<char> {
    match c {
        '\0'..='\u{7f}' => Some(c),
        _ if shows_nothing(c) => None,
        // General category Zs.
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Some(' '),
        _ if is_dash(c) => Some('-'),
        '\u{3002}' | '\u{ff61}' => Some('.'),
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0),
        _ if c.is_numeric() => Some(digit(c).unwrap_or(c)),
        _ => Some(c),
    }
}

/// The digit of its script that a character is.
fn digit(c: char) -> Option<char> {
    let after = ZEROS.partition_point(|zero| *zero <= c as u32);
    let zero = ZEROS.get(after.checked_sub(1)?)?;
    char::from_digit(c as u32 - zero, 10)
}

/// Whether a character has no width, wherever it stands.
fn shows_nothing(c: char) -> bool {
    let after = HIDDEN.partition_point(|(first, _)| *first <= c);
    after.checked_sub(1).is_some_and(|at| c <= HIDDEN[at].1)
}

/// Whether a character beyond ASCII is a dash.
fn is_dash(c: char) -> bool {
    DASHES.binary_search(&c).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Detector;

    fn found(text: &str) -> Vec<String> {
        let found = Detector::all().find(text).unwrap();
        found.iter().map(|piece| format!("{} {}", piece.class, &text[piece.start..piece.end])).collect()
    }

    /// An address that was pasted, or made to pass, with tags or joiners in it was not found; nor was a number in the digits
    /// of most scripts.
    #[test]
    fn what_shows_nothing_hides_nothing() {
        let hidden = (0x80..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| shows_nothing(*c));
        let mut all = 0;
        for c in hidden {
            all += 1;
            let (mail, card) = (format!("ja{c}ne@exam{c}ple.com"), format!("4111{c} 1111 11{c}11 1111"));
            assert_eq!(found(&mail), [format!("email {mail}")], "{:x}", u32::from(c));
            assert_eq!(found(&card), [format!("card {card}")], "{:x}", u32::from(c));
        }
        assert_eq!(all, 4174, "as many as the property has");
    }

    #[test]
    fn digits_and_dashes_of_every_script_are_such() {
        assert!(ZEROS.is_sorted() && HIDDEN.is_sorted() && DASHES.is_sorted(), "they are searched");
        for zero in ZEROS {
            let write = |c: char| c.to_digit(10).and_then(|digit| char::from_u32(zero + digit)).unwrap_or(c);
            let card: String = "4111 1111 1111 1111".chars().map(write).collect();
            assert_eq!(found(&card), [format!("card {card}")], "{zero:x}");
            let all = (0..10).filter_map(|nth| char::from_u32(zero + nth));
            assert!(all.clone().all(char::is_numeric) && all.count() == 10, "{zero:x}");
        }
        for dash in (0x80..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|c| is_dash(*c)) {
            let phone = format!("call 202{dash}555{dash}0143");
            assert_eq!(found(&phone), [format!("phone {}", &phone[5..])], "{:x}", u32::from(dash));
        }
        assert_eq!(found("½²③ 4111"), [""; 0], "numbers that are no digits stay what they are");
    }
}
