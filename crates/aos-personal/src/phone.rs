//! Phone numbers: international ones by their country code and length, national ones by the forms people write them in,
//! and any run of digits where the words before it say so.
//!
//! Start at [`phone`]. What always holds: ten digits alone are no phone number.

use crate::normal::word_before;
use crate::number::{Group, WINDOW, digits, gap};

/// Country codes of two digits (ITU-T E.164); 1 and 7 have one, all others three.
const TWO: &[u8] = &[
    20, 27, 30, 31, 32, 33, 34, 36, 39, 40, 41, 43, 44, 45, 46, 47, 48, 49, 51, 52, 53, 54, 55, 56, 57, 58, 60, 61, 62,
    63, 64, 65, 66, 81, 82, 84, 86, 90, 91, 92, 93, 94, 95, 98,
];
/// The digits after a country code, where the plan of the country bounds them: least and most.
const LENGTHS: &[(u32, usize, usize)] = &[
    (1, 10, 10),
    (7, 10, 10),
    (20, 8, 10),
    (27, 9, 9),
    (30, 10, 10),
    (31, 9, 9),
    (32, 8, 9),
    (33, 9, 9),
    (34, 9, 9),
    (36, 8, 9),
    (39, 6, 11),
    (40, 9, 9),
    (41, 9, 9),
    (43, 6, 13),
    (44, 9, 10),
    (45, 8, 8),
    (46, 7, 9),
    (47, 8, 8),
    (48, 9, 9),
    (49, 6, 11),
    (52, 10, 10),
    (55, 10, 11),
    (61, 9, 9),
    (64, 8, 10),
    (65, 8, 8),
    (81, 9, 10),
    (82, 8, 10),
    (86, 10, 11),
    (90, 10, 10),
    (91, 10, 10),
    (351, 9, 9),
    (353, 7, 9),
    (358, 6, 10),
    (852, 8, 8),
    (966, 8, 9),
    (971, 8, 9),
    (972, 8, 9),
];
/// Digits of any number (E.164): with a country code, and after one whose plan is not listed.
const E164_MAX: usize = 15;
const NATIONAL: (usize, usize) = (7, 12);
/// Digits of a number that words announce.
const ANNOUNCED: (usize, usize) = (7, 15);

/// Where the phone number that begins with the group at `at` starts, and how many groups it has.
pub(crate) fn phone(text: &str, groups: &[Group], at: usize, said: crate::words::Said) -> Option<(usize, usize)> {
    let first = groups[at];
    let bytes = text.as_bytes();
    let led = |by: u8| first.start.checked_sub(1).filter(|before| bytes[*before] == by);
    let free = |place: usize| !word_before(text, place);
    if let Some(plus) = led(b'+')
        && free(plus)
    {
        return international(text, groups, at, 0).map(|count| (plus, count));
    }
    let start = led(b'(').filter(|place| free(*place)).unwrap_or(first.start);
    let behind_another = gap(text, groups, at).is_some_and(|gap| matches!(gap, "-" | "." | "/" | " "));
    if text[first.start..first.end].starts_with("00") && first.len() > 2 && !behind_another {
        let count = international(text, groups, at, 2).filter(|count| *count > 1 || said.phone)?;
        return Some((start, count));
    }
    let formed = if said.other {
        None
    } else {
        let national = || national(text, groups, at).or_else(|| russian(text, groups, at));
        let formed = american(text, groups, at, said.phone).or_else(national);
        formed.filter(|count| said.phone || !is_part(text, groups[at + count - 1].end))
    };
    let count = formed.or_else(|| said.phone.then(|| announced(text, groups, at)).flatten())?;
    Some((start, count))
}

/// `+` or `00`, a country code, and as many digits as its plan has. `skip` digits stand before the code.
fn international(text: &str, groups: &[Group], at: usize, skip: usize) -> Option<usize> {
    let window = &groups[at..(at + WINDOW).min(groups.len())];
    let number: Vec<u8> = digits(text, window).into_iter().skip(skip).take(E164_MAX + 1).collect();
    let head = |count: usize| number.iter().take(count).fold(0u32, |head, digit| head * 10 + u32::from(*digit));
    let (code, code_len) = match head(1) {
        0 => return None,
        one @ (1 | 7) => (one, 1),
        _ if TWO.contains(&u8::try_from(head(2)).unwrap_or(0)) => (head(2), 2),
        _ => (head(3), 3),
    };
    let known = LENGTHS.iter().find(|(known, ..)| *known == code);
    let (least, most) = known.map_or(NATIONAL, |(_, least, most)| (*least, *most));
    let (mut total, mut fits) = (0, None);
    for (nth, group) in window.iter().enumerate() {
        // ` / ` stands between the number of a town and the rest, or between two numbers.
        let parts = |gap: &str| gap.contains('/') && gap.len() > 1 && fits.is_some();
        if nth > 0 && gap(text, groups, at + nth).is_none_or(parts) {
            break;
        }
        total += group.len();
        // The trunk zero that people write into it: `+44 (0) 20 …`.
        let trunk = nth > 0 && group.len() == 1 && text[group.start..group.end] == *"0";
        total -= usize::from(trunk);
        let after = total.saturating_sub(skip + code_len);
        if after > most {
            break;
        }
        if after >= least {
            fits = Some(nth + 1);
        }
    }
    let count = fits?;
    let plain = code != 1 || is_american(number.get(1..11)?);
    plain.then_some(count)
}

/// An area code and an exchange of the North American plan, and the line.
fn is_american(number: &[u8]) -> bool {
    let area = number.iter().take(3).fold(0u32, |area, digit| area * 10 + u32::from(*digit));
    number.len() == 10
        && (200..=999).contains(&area)
        && !matches!(area, 200 | 300 | 400)
        && area % 100 != 11
        && number[3] >= 2
}

/// `(202) 555-0143`, `202-555-0143`, `202.555.0143`, `1-202-555-0143`; with spaces alone only where announced.
fn american(text: &str, groups: &[Group], at: usize, announced: bool) -> Option<usize> {
    let long = groups[at].len() == 1 && text.as_bytes()[groups[at].start] == b'1';
    let from = at + usize::from(long);
    let window = groups.get(from..from + 3)?;
    if window.iter().map(|group| group.len()).ne([3, 3, 4]) {
        return None;
    }
    let (first, second) = (gap(text, groups, from + 1)?, gap(text, groups, from + 2)?);
    let formed =
        matches!((first, second), (") " | ")" | ")-", "-" | " " | ".") | ("-", "-") | (".", ".") | (" " | "/", "-"));
    let spaced = announced && (first, second) == (" ", " ");
    // A piece of a longer number of any kind.
    let tight = |nth: usize| gap(text, groups, nth).is_some_and(|gap| matches!(gap, "-" | "." | "/"));
    if !(formed || spaced) || tight(from + 3) || (!long && tight(at)) || (long && tight(at)) {
        return None;
    }
    is_american(&digits(text, window)).then_some(3 + usize::from(long))
}

/// A national number with its trunk zero: `020 7946 0958`, `(0117) 496 0456`, `01 99 00 12 34`, `040/66969123`.
fn national(text: &str, groups: &[Group], at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let first = groups[at];
    if bytes[first.start] != b'0' || first.len() > 5 || first.len() < 2 || bytes[first.start + 1] == b'0' {
        return None;
    }
    let tight = |nth: usize| gap(text, groups, nth).is_some_and(|gap| matches!(gap, "-" | "." | "/" | " "));
    // What stands directly behind another number is one of a row.
    if at > 0 && tight(at) {
        return None;
    }
    if first.len() == 2 && groups.get(at + 1).is_some_and(|group| group.len() == 2) {
        return pairs(text, groups, at);
    }
    let (mut total, mut count) = (first.len(), 1);
    while let Some(group) = groups.get(at + count) {
        let gap = gap(text, groups, at + count)?;
        let fits = total + group.len() <= 11 && group.len() > 1 && matches!(gap, " " | "-" | "/" | ") " | ")" | ")-");
        if !fits || count >= 4 {
            break;
        }
        total += group.len();
        count += 1;
    }
    // `01-02-2026` is a day, and what goes on is no whole number.
    let whole = !tight(at + count) || gap(text, groups, at + count) == Some(" ");
    let second = groups.get(at + 1)?.len();
    let in_brackets = gap(text, groups, at + 1).is_some_and(|gap| gap.starts_with(')'));
    (count > 1 && (9..=11).contains(&total) && (second >= 3 || in_brackets) && whole).then_some(count)
}

/// `8 (495) 555-01-23`, as at home in the countries of +7.
fn russian(text: &str, groups: &[Group], at: usize) -> Option<usize> {
    let window = groups.get(at..at + 5)?;
    let formed = window.iter().map(|group| group.len()).eq([1, 3, 3, 2, 2])
        && text.as_bytes()[window[0].start] == b'8'
        && gap(text, groups, at + 1).is_some_and(|gap| gap.ends_with('('))
        && gap(text, groups, at + 2).is_some_and(|gap| gap.starts_with(')'));
    formed.then_some(5)
}

/// Whether a letter follows as in `202-555-0143-B`, which is how parts are named.
fn is_part(text: &str, end: usize) -> bool {
    let after = &text.as_bytes()[end..];
    matches!(after, [b'-', letter, ..] if letter.is_ascii_uppercase())
}

/// Five pairs and no more, as in France: the zero, then digits of which not every pair is the next.
fn pairs(text: &str, groups: &[Group], at: usize) -> Option<usize> {
    let window = groups.get(at..at + 5)?;
    let inner = gap(text, groups, at + 1)?;
    let even = window.iter().all(|group| group.len() == 2)
        && (at + 1..at + 5).all(|nth| gap(text, groups, nth) == Some(inner))
        && matches!(inner, " " | "." | "-");
    let goes_on = |nth: usize| gap(text, groups, nth) == Some(inner);
    let number = digits(text, window);
    let counting = number.chunks(2).zip(number.chunks(2).skip(1)).all(|(one, next)| {
        one.iter().fold(0, |sum, digit| sum * 10 + digit) + 1 == next.iter().fold(0, |sum, digit| sum * 10 + digit)
    });
    (even && !counting && (at == 0 || !goes_on(at)) && !goes_on(at + 5)).then_some(5)
}

/// What words announce: seven digits at least, however grouped, unless it is a date or an address of a machine.
fn announced(text: &str, groups: &[Group], at: usize) -> Option<usize> {
    let (least, most) = ANNOUNCED;
    let (mut total, mut count) = (groups[at].len(), 1);
    while total < 10
        && let Some(group) = groups.get(at + count)
        && total + group.len() <= 12
        && count < WINDOW
    {
        total += group.len();
        count += 1;
    }
    let lengths: Vec<usize> = groups[at..at + count].iter().map(|group| group.len()).collect();
    let dotted = count == 4 && (at + 1..at + 4).all(|nth| gap(text, groups, nth) == Some("."));
    let date = matches!(*lengths.as_slice(), [4, 2, 2] | [2, 2, 4] | [4, 2, 2, ..] | [2, 2, 4, ..]);
    ((least..=most).contains(&total) && !dotted && !date).then_some(count)
}
