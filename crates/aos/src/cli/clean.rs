//! Text of agents made safe for a terminal.
//!
//! Start at [`clean`]. What always holds: nothing that comes out moves the cursor, changes colours, sets a title, reverses
//! the order of letters or stands unseen between them; what was there is shown in its place, so that it is not typed back
//! without it. `--json` gives the exact text, escaped. Deliberately absent: letters that look like
//! others, and those of scripts that are written from right to left, which a terminal may put in their own order.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The text with control characters other than line ends and tabs, and with what is not seen, replaced by pictures of them.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|one| is_control(one) && one != '\n' && one != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut before, mut rest) = (None, text.chars().peekable());
    while let Some(one) = rest.next() {
        let shown = match one {
            '\n' | '\t' => one,
            // A line end of other systems.
            '\r' if rest.peek() == Some(&'\n') => continue,
            one if is_control(one) && !is_seen(before, one, rest.peek().copied()) => picture(one),
            one => one,
        };
        out.push(shown);
        before = Some(shown);
    }
    Cow::Owned(out)
}

/// The same on one line: line ends and tabs become spaces.
#[must_use]
pub fn clean_line(text: &str) -> String {
    clean(text).split(['\n', '\t']).map(str::trim_end).collect::<Vec<_>>().join(" ")
}

/// JSON with what [`clean`] would take for a control character written as `\u…`: the same JSON, and no order to a terminal.
#[must_use]
pub fn clean_json(json: &str) -> Cow<'_, str> {
    // Line ends stand between values, and all others that JSON knows are escaped already.
    let hidden = |one: char| is_control(one) && !one.is_ascii_control();
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    for one in json.chars() {
        match hidden(one) {
            true => one.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
            false => out.push(one),
        }
    }
    Cow::Owned(out)
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

/// Characters that reorder or hide what stands around them (Unicode TR 36, "Trojan Source"), or that a terminal shows as
/// nothing at all: what Unicode calls `Default_Ignorable_Code_Point`, line separators and marks of annotations.
fn is_invisible(one: char) -> bool {
    matches!(one,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether an invisible character can be seen by what it does to the one before it: it joins the parts of one emoji, or
/// letters of scripts that are written joined, or has a sign shown as emoji or as text.
fn is_seen(before: Option<char>, one: char, after: Option<char>) -> bool {
    let Some(before) = before else { return false };
    match one {
        '\u{200d}' if before == '\u{fe0f}' || is_pictorial(before) => after.is_some_and(is_pictorial),
        '\u{200c}' | '\u{200d}' => is_joined(before),
        // A digit in a box.
        '\u{fe0f}' if matches!(before, '0'..='9' | '#' | '*') => after == Some('\u{20e3}'),
        '\u{fe0e}' | '\u{fe0f}' => is_pictorial(before),
        _ => false,
    }
}

/// Signs that are emoji, or in the blocks of such.
fn is_pictorial(one: char) -> bool {
    matches!(one,
        '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}')
        && !is_invisible(one)
}

/// Letters of the blocks whose scripts are spelled with joiners: Arabic to Malayalam and Sinhala, Tibetan and Myanmar,
/// Khmer and Mongolian, and the forms of Arabic (Unicode 16, sections 9.2, 12 and 23.2).
fn is_joined(one: char) -> bool {
    matches!(one,
        '\u{600}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{fb50}'..='\u{fdff}'
        | '\u{fe70}'..='\u{fefc}')
        && !is_invisible(one)
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
    fn json_gives_no_orders_to_a_terminal_and_stays_the_same() {
        let value = serde_json::json!({ "a": "x\u{9b}31m \u{202e}y \u{e0041} é\n" });
        let shown = clean_json(&value.to_string()).into_owned();
        assert_eq!(shown, r#"{"a":"x\u009b31m \u202ey \udb40\udc41 é\n"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert!(matches!(clean_json("{}"), Cow::Borrowed(_)));
    }

    #[test]
    fn no_sequence_reaches_the_terminal() {
        assert_eq!(clean("a\x1b]0;title\x07\x1b[2J\u{9b}31mb\x7f\x08"), "a␛]0;title␇␛[2J\u{fffd}31mb␡␈");
        assert_eq!(clean("safe\rEVIL\r\nnext\ttab ä 👩‍💻"), "safe␍EVIL\nnext\ttab ä 👩‍💻");
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{feff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(clean_line("one\n two\tthree\x00"), "one  two three␀");
        assert!(matches!(clean("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn nothing_stands_unseen_between_letters() {
        let many = "\u{ad}\u{34f}\u{61c}\u{115f}\u{180b}\u{200b}\u{200c}\u{200d}\u{2060}\u{206a}\u{3164}\u{fe00}\u{fe0f}\u{ffa0}";
        for unseen in many.chars().chain(['\u{fff9}', '\u{1d173}', '\u{e0041}', '\u{e0101}']) {
            assert_eq!(clean(&format!("cu{unseen}rl")), "cu\u{fffd}rl", "{unseen:?}");
        }
        for one in ["cu👩\u{200d}rl", "1\u{fe0f}2", "❤\u{fe0f}\u{fe0f}", "می\u{200c}\u{200c}خ", "\u{200d}a"] {
            assert_eq!(clean(one).matches('\u{fffd}').count(), 1, "{one:?}");
        }
        for seen in ["👩‍💻 ❤️‍🔥 🏳️‍🌈 👍🏽 ☎︎ 1️⃣ ©️", "می‌خواهم", "क्‍ष"]
        {
            assert_eq!(clean(seen), seen);
        }
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
            proptest::prop_assert!(!cleaned.chars().any(|one| one.is_control() && one != '\n' && one != '\t'));
            proptest::prop_assert_eq!(clean(&cleaned), cleaned.as_str());
            let line = clean_line(&text);
            proptest::prop_assert!(cut(&line, width).width() <= width);
        }
    }
}
