//! Text of agents made safe for a terminal.
//!
//! Start at [`clean`]. What always holds: nothing that comes out moves the cursor, changes colours, sets a title or
//! reverses the order of letters; what was there is shown in its place. `--json` gives the exact text, escaped.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The text with control characters other than line ends and tabs replaced by pictures of them.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|one| is_control(one) && one != '\n' && one != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(one) = rest.next() {
        match one {
            '\n' | '\t' => out.push(one),
            // A line end of other systems.
            '\r' if rest.peek() == Some(&'\n') => {}
            one if is_control(one) => out.push(picture(one)),
            one => out.push(one),
        }
    }
    Cow::Owned(out)
}

/// The same on one line: line ends and tabs become spaces.
#[must_use]
pub fn clean_line(text: &str) -> String {
    clean(text).split(['\n', '\t']).map(str::trim_end).collect::<Vec<_>>().join(" ")
}

/// The start of a one-line text, at most `width` columns wide, with `…` where it was cut.
#[must_use]
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let mut used = 0;
    let mut out = String::new();
    for one in text.chars() {
        used += one.width().unwrap_or(0);
        if used >= width {
            break;
        }
        out.push(one);
    }
    if width > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

fn is_control(one: char) -> bool {
    one.is_control() || is_invisible(one)
}

/// Characters that reorder or hide what stands around them (Unicode TR 36, "Trojan Source").
fn is_invisible(one: char) -> bool {
    matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
        // Joins the parts of one emoji and of letters in several scripts, and changes nothing around it.
        && one != '\u{200d}' && one != '\u{200c}'
}

fn picture(one: char) -> char {
    match u32::from(one) {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sequence_reaches_the_terminal() {
        assert_eq!(clean("a\x1b]0;title\x07\x1b[2J\u{9b}31mb\x7f\x08"), "a␛]0;title␇␛[2J\u{fffd}31mb␡␈");
        assert_eq!(clean("safe\rEVIL\r\nnext\ttab ä 👩‍💻"), "safe␍EVIL\nnext\ttab ä 👩‍💻");
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{feff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(clean_line("one\n two\tthree\x00"), "one  two three␀");
        assert!(matches!(clean("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn wide_letters_count_twice_when_text_is_cut() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 0), "");
    }

    proptest::proptest! {
        #[test]
        fn what_comes_out_is_clean_and_as_wide_as_asked(text in "\\PC*|.*", width in 0usize..40) {
            let cleaned = clean(&text).into_owned();
            proptest::prop_assert!(!cleaned.chars().any(|one| is_control(one) && one != '\n' && one != '\t'));
            let line = clean_line(&text);
            proptest::prop_assert!(cut(&line, width).width() <= width);
        }
    }
}
