//! Numbers: the digits of a text in their groups, and what a window of groups can be by its checksum or its form.
//!
//! Start at [`runs`]. A run is digits with at most three separators between each two groups; whatever is found lies
//! within one run, and at most [`WINDOW`] groups of it are looked at together, so the time is linear.

use crate::normal::{looked, word_after, word_before};
use crate::words::Said;

/// Most groups that one number is written in.
pub(crate) const WINDOW: usize = 8;
/// Most separators between two groups of one number, such as `) ` or ` (0)`.
const SEPARATORS_MAX: usize = 3;
/// Digits of the longest number: of a card (ISO/IEC 7812).
const DIGITS_MAX: usize = 19;

/// Digits that stand together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Group {
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }
}

/// A run of groups, in order.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) groups: Vec<Group>,
    /// The first group goes on a word, such as the `4` of `v4`; so does the last.
    pub(crate) tainted: (bool, bool),
}

/// Reads the run whose first digit is at `start` into `run`, and returns where it ends.
pub(crate) fn runs(text: &str, start: usize, run: &mut Run) -> usize {
    let bytes = text.as_bytes();
    run.groups.clear();
    let mut place = start;
    loop {
        let end = place + bytes[place..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        looked(end - place);
        run.groups.push(Group { start: place, end });
        let gap = bytes[end..].iter().take(SEPARATORS_MAX + 1).take_while(|byte| is_separator(**byte)).count();
        if gap == 0 || gap > SEPARATORS_MAX || !bytes.get(end + gap).is_some_and(u8::is_ascii_digit) {
            let signed = start > 0 && matches!(bytes[start - 1], b'-' | b'.') && word_before(text, start - 1);
            run.tainted = (word_before(text, start) || signed, word_after(text, end) || bytes.get(end) == Some(&b'@'));
            return end;
        }
        place = end + gap;
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'-' | b'.' | b'/' | b'(' | b')')
}

/// The separators before the group at `nth`, where there is one before it.
pub(crate) fn gap<'t>(text: &'t str, groups: &[Group], nth: usize) -> Option<&'t str> {
    let before = nth.checked_sub(1).and_then(|before| groups.get(before))?;
    groups.get(nth).map(|group| &text[before.end..group.start])
}

/// The digits of some groups.
pub(crate) fn digits(text: &str, groups: &[Group]) -> Vec<u8> {
    looked(groups.iter().map(|group| group.len()).sum());
    groups.iter().flat_map(|group| text.as_bytes()[group.start..group.end].iter().map(|byte| byte - b'0')).collect()
}

/// How many groups from `at` on are a card number. Where the words before it say so, in groups of any length.
pub(crate) fn card(text: &str, groups: &[Group], at: usize, said: Said) -> Option<usize> {
    formed_card(text, groups, at, said.other)
        .or_else(|| if said.card { announced_card(text, groups, at) } else { None })
}

fn announced_card(text: &str, groups: &[Group], at: usize) -> Option<usize> {
    let window = &groups[at..(at + WINDOW).min(groups.len())];
    let is_card = |count: &usize| {
        let number = digits(text, &window[..*count]);
        (13..=DIGITS_MAX).contains(&number.len()) && is_issued(&number) && luhn(&number)
    };
    let plain = |nth: usize| gap(text, groups, at + nth).is_some_and(|gap| matches!(gap, " " | "-" | "."));
    let longest = (1..window.len()).take_while(|nth| plain(*nth)).count() + 1;
    (1..=longest).rev().find(is_card)
}

fn formed_card(text: &str, groups: &[Group], at: usize, other: bool) -> Option<usize> {
    let lengths: Vec<usize> = groups[at..].iter().take(5).map(|group| group.len()).collect();
    let count = match *lengths.as_slice() {
        [12..=19, ..] if !other => 1,
        [4, 4, 4, 4, 3, ..] => 5,
        [4, 4, 4, 4, ..] | [4, 4, 4, 1, ..] => 4,
        [4, 6, 5, ..] | [4, 6, 4, ..] => 3,
        _ => return None,
    };
    // One and the same separator within, and none of the kind around.
    let inner = gap(text, groups, at + 1).filter(|_| count > 1);
    if let Some(inner) = inner {
        let even = (at + 1..at + count).all(|nth| gap(text, groups, nth) == Some(inner));
        let joins = |nth: usize, group: usize| {
            gap(text, groups, nth) == Some(inner) && groups.get(group).is_some_and(|group| group.len() == 4)
        };
        if !even || !matches!(inner, " " | "-" | ".") || (at > 0 && joins(at, at - 1)) || joins(at + count, at + count)
        {
            return None;
        }
    }
    let number = digits(text, &groups[at..at + count]);
    (number.len() <= DIGITS_MAX && is_issued(&number) && luhn(&number)).then_some(count)
}

/// Whether a network issues numbers that begin so and are so long: the published ranges of ISO/IEC 7812 issuers.
fn is_issued(number: &[u8]) -> bool {
    let head = |count: usize| number.iter().take(count).fold(0u32, |head, digit| head * 10 + u32::from(*digit));
    match number.len() {
        // Visa of old; Maestro.
        13 => head(1) == 4,
        14 => matches!(head(3), 300..=305 | 309) || matches!(head(2), 36 | 38 | 39),
        15 => matches!(head(2), 34 | 37),
        16 => {
            head(1) == 4
                || matches!(head(2), 51..=55 | 62 | 65)
                || matches!(head(3), 644..=649)
                || matches!(head(4), 2200..=2204 | 2221..=2720 | 3528..=3589 | 5018 | 5020 | 5038 | 5893 | 6011 | 6304 | 6759 | 6761..=6763)
        }
        17..=19 => {
            (head(1) == 4 && number.len() == 19)
                || matches!(head(2), 62 | 65)
                || matches!(head(4), 3528..=3589 | 5018 | 5020 | 5038 | 6011 | 6304 | 6759 | 6761..=6763)
        }
        12 => matches!(head(4), 5018 | 5020 | 5038 | 6304 | 6759 | 6761..=6763),
        _ => false,
    }
}

/// The check digit of ISO/IEC 7812-1, annex B.
fn luhn(number: &[u8]) -> bool {
    let sum: u32 = number
        .iter()
        .rev()
        .enumerate()
        .map(|(nth, digit)| match (nth % 2, u32::from(*digit)) {
            (1, digit) if digit > 4 => digit * 2 - 9,
            (1, digit) => digit * 2,
            (_, digit) => digit,
        })
        .sum();
    // A number of one digit alone is a filler.
    sum.is_multiple_of(10) && number.iter().any(|digit| digit != &number[0])
}

/// How many groups from `at` on are a social security number: 20 CFR 422.103 and the Social Security Administration's
/// list of areas that were never assigned.
pub(crate) fn social(text: &str, groups: &[Group], at: usize, said: Said) -> Option<usize> {
    let window = &groups[at..];
    let lengths: Vec<usize> = window.iter().take(3).map(|group| group.len()).collect();
    let count = match *lengths.as_slice() {
        [9, ..] if said.social => 1,
        [3, 2, 4] => 3,
        _ => return None,
    };
    if count == 3 {
        let inner = gap(text, groups, at + 1)?;
        let joined = |nth: usize| gap(text, groups, nth).is_some_and(|gap| gap == inner);
        let plain = inner == "-" && !said.other && !said.table || matches!(inner, "-" | " ") && said.social;
        if !plain || gap(text, groups, at + 2) != Some(inner) {
            return None;
        }
        // `1-123-45-6789` and `123-45-6789-0` are something else.
        if inner == "-" && (joined(at) || joined(at + 3)) {
            return None;
        }
    }
    let number = digits(text, &window[..count]);
    let part = |from: usize, to: usize| number[from..to].iter().fold(0u32, |part, digit| part * 10 + u32::from(*digit));
    let (area, group, serial) = (part(0, 3), part(3, 5), part(5, 9));
    (!matches!(area, 0 | 666 | 900..) && group != 0 && serial != 0).then_some(count)
}
