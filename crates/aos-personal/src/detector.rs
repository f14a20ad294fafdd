//! The detector: every kind of personal data that is asked for, in one pass over a text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::normal::{Normal, looked};
use crate::number::{Run, runs};
use crate::{email, iban, number, phone, words};

/// A text with every edge between two characters that a pattern can name.
const EDGES: &str = "ab 1_-b\na";
/// Most memory that a custom pattern may compile to, in bytes: what a hundred words with Unicode classes take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Pieces that any text may hold, and bytes for each beyond that. The shortest piece of a built-in kind takes six bytes, so
/// only a custom pattern is ever found more often; it says nothing about a text, and covering it would make it longer.
const FOUND_ALWAYS: usize = 1000;
const BYTES_PER_FOUND: usize = 4;

/// A kind of personal data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// An address for mail.
    Email,
    /// A bank account with its country and check digits.
    Iban,
    /// The number of a payment card.
    Card,
    /// A social security number of the United States.
    Ssn,
    /// A phone number.
    Phone,
    /// What a pattern of the policy finds, by the pattern's name.
    Custom(Arc<str>),
}

impl Class {
    /// The built-in kinds by their names in the policy.
    pub const BUILT_IN: [(&'static str, Class); 5] = [
        ("email", Class::Email),
        ("phone", Class::Phone),
        ("card", Class::Card),
        ("iban", Class::Iban),
        ("ssn", Class::Ssn),
    ];

    /// Its name in the policy.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Class::Email => "email",
            Class::Iban => "iban",
            Class::Card => "card",
            Class::Ssn => "ssn",
            Class::Phone => "phone",
            Class::Custom(name) => name,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A piece of personal data: bytes `start..end` of the text it was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its first byte.
    pub start: usize,
    /// The first byte after it.
    pub end: usize,
    /// What it is.
    pub class: Class,
}

/// A custom pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadPattern {
    /// Why, in words.
    pub why: String,
}

/// Why a text could not be looked at. Nobody knows what is in it then, and it is treated as if anything were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// More than a thousand pieces were found, and more than one in four bytes. A narrower pattern is the way out.
    #[error("a pattern of `personal_data: custom` is found nearly everywhere in it")]
    Everywhere,
    /// A fault of this program.
    #[error("the detector broke")]
    Broke,
}

/// Finds what it was made for. Two are equal where they find the same.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    kinds: BTreeSet<Class>,
    custom: Vec<(Class, Regex)>,
}

impl PartialEq for Detector {
    fn eq(&self, other: &Detector) -> bool {
        let patterns = |detector: &Detector| -> BTreeMap<Class, String> {
            detector.custom.iter().map(|(class, regex)| (class.clone(), regex.as_str().to_owned())).collect()
        };
        self.kinds == other.kinds && patterns(self) == patterns(other)
    }
}

impl Detector {
    /// One that finds the built-in kinds of these names; others are left out.
    #[must_use]
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Detector {
        let known = |name: &str| Class::BUILT_IN.into_iter().find(|(known, _)| *known == name).map(|(_, class)| class);
        Detector { kinds: names.into_iter().filter_map(known).collect(), custom: Vec::new() }
    }

    /// One that finds every built-in kind.
    #[must_use]
    pub fn all() -> Detector {
        Detector { kinds: Class::BUILT_IN.into_iter().map(|(_, class)| class).collect(), custom: Vec::new() }
    }

    /// Finds what matches a pattern, too.
    ///
    /// # Errors
    /// Where the pattern does not parse, takes too much memory, or matches nothing in between two letters.
    pub fn add(&mut self, name: &str, pattern: &str) -> Result<(), BadPattern> {
        let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build();
        let regex = built.map_err(|error| BadPattern { why: last_line(&error.to_string()) })?;
        if regex.is_match("") {
            return Err(BadPattern { why: "it matches the empty text, so it is found everywhere".to_owned() });
        }
        if regex.find_iter(EDGES).any(|found| found.is_empty()) {
            let why =
                "it matches the edge of a word without a letter of it, so it is found everywhere and finds nothing";
            return Err(BadPattern { why: why.to_owned() });
        }
        self.custom.push((Class::Custom(name.into()), regex));
        Ok(())
    }

    /// Whether it finds nothing whatever the text.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.kinds.is_empty() && self.custom.is_empty()
    }

    /// What there is in a text, in order.
    ///
    /// # Errors
    /// Where it cannot be known.
    pub fn find(&self, text: &str) -> Result<Vec<Found>, Unknown> {
        self.find_after("", text)
    }

    /// What there is in a text that stands after `context`, such as the name of the field that holds it.
    ///
    /// # Errors
    /// Where it cannot be known.
    pub fn find_after(&self, context: &str, text: &str) -> Result<Vec<Found>, Unknown> {
        if self.is_off() {
            return Ok(Vec::new());
        }
        unbroken(|| self.look(context, text))
    }

    fn look(&self, context: &str, text: &str) -> Result<Vec<Found>, Unknown> {
        let normal = Normal::of(text);
        let mut scan = Scan { detector: self, context, text: normal.text(), found: Vec::new() };
        scan.built_in();
        let most = FOUND_ALWAYS.max(normal.text().len() / BYTES_PER_FOUND);
        for (class, regex) in &self.custom {
            let room = (most + 1).saturating_sub(scan.found.len());
            let matches = regex.find_iter(normal.text()).filter(|found| !found.is_empty()).take(room);
            scan.found.extend(matches.map(|found| (found.start(), found.end(), class.clone())));
        }
        if scan.found.len() > most {
            return Err(Unknown::Everywhere);
        }
        let mut found = merged(scan.found);
        for piece in &mut found {
            (piece.start, piece.end) = normal.span(piece.start, piece.end);
        }
        Ok(found)
    }

    fn wants(&self, class: &Class) -> bool {
        self.kinds.contains(class)
    }
}

/// What looking comes to, also where it panics: it owns whatever it changes.
fn unbroken(look: impl FnOnce() -> Result<Vec<Found>, Unknown>) -> Result<Vec<Found>, Unknown> {
    std::panic::catch_unwind(AssertUnwindSafe(look)).unwrap_or(Err(Unknown::Broke))
}

/// Spans that overlap as one, which has the class of the kind that is surest.
fn merged(mut spans: Vec<(usize, usize, Class)>) -> Vec<Found> {
    spans.sort_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
    let mut merged: Vec<Found> = Vec::with_capacity(spans.len());
    for (start, end, class) in spans {
        match merged.last_mut() {
            Some(last) if start < last.end => {
                last.end = last.end.max(end);
                last.class = last.class.clone().min(class);
            }
            _ => merged.push(Found { start, end, class }),
        }
    }
    merged
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text);
    line.trim().trim_start_matches("error: ").to_owned()
}

/// One pass over the normal form of a text.
struct Scan<'d, 't> {
    detector: &'d Detector,
    context: &'t str,
    text: &'t str,
    found: Vec<(usize, usize, Class)>,
}

impl Scan<'_, '_> {
    fn built_in(&mut self) {
        let bytes = self.text.as_bytes();
        let (mails, accounts) = (self.detector.wants(&Class::Email), self.detector.wants(&Class::Iban));
        let numbers = [Class::Card, Class::Ssn, Class::Phone].iter().any(|class| self.detector.wants(class));
        let mut run = Run::default();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            looked(1);
            match byte {
                b'@' if mails => {
                    if let Some((start, end)) = email::around(self.text, at) {
                        self.found.push((start, end, Class::Email));
                    }
                    at += 1;
                }
                b'(' | b'[' | b'{' if mails => {
                    if let Some((start, end)) = email::spelled(self.text, at) {
                        self.found.push((start, end, Class::Email));
                    }
                    at += 1;
                }
                b'0'..=b'9' => {
                    let end = if numbers {
                        let end = runs(self.text, at, &mut run);
                        self.numbers(&run);
                        end
                    } else {
                        at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
                    };
                    // An account may begin within what separates the run from what follows, never within it.
                    at = end;
                }
                b'A'..=b'Z' | b'a'..=b'z' if accounts => match iban::at(self.text, at) {
                    Some(end) => {
                        self.found.push((at, end, Class::Iban));
                        at = end;
                    }
                    None => at += 1,
                },
                _ => at += 1,
            }
        }
    }

    /// Cards, social security numbers and phones in one run.
    fn numbers(&mut self, run: &Run) {
        let groups = run.groups.as_slice();
        let usable = groups.len() - usize::from(run.tainted.1);
        let usable = &groups[..usable];
        let mut at = usize::from(run.tainted.0);
        while at < usable.len() {
            let count = self.number(usable, at).unwrap_or(1);
            at += count;
        }
    }

    /// What begins with the group at `at`: how many groups it takes.
    fn number(&mut self, groups: &[number::Group], at: usize) -> Option<usize> {
        let start = groups[at].start;
        let said = words::before(self.context, self.text, start);
        let end = |count: usize| groups[at + count - 1].end;
        if self.detector.wants(&Class::Card)
            && let Some(count) = number::card(self.text, groups, at, said)
        {
            self.found.push((start, end(count), Class::Card));
            return Some(count);
        }
        if self.detector.wants(&Class::Ssn)
            && let Some(count) = number::social(self.text, groups, at, said)
        {
            self.found.push((start, end(count), Class::Ssn));
            return Some(count);
        }
        if self.detector.wants(&Class::Phone)
            && let Some((start, count)) = phone::phone(self.text, groups, at, said)
        {
            self.found.push((start, end(count), Class::Phone));
            return Some(count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tokens;
    use crate::normal::work;

    fn shown(text: &str) -> Vec<String> {
        let found = Detector::all().find(text).unwrap();
        found.iter().map(|piece| format!("{}: {}", piece.class, &text[piece.start..piece.end])).collect()
    }

    #[test]
    fn the_work_is_linear_in_whatever_is_written() {
        let pieces = [
            "1",
            "@",
            "a@",
            "@a.",
            "1 ",
            "1-",
            "0 ",
            "00 11 ",
            "+1",
            "(1) ",
            "4111 ",
            "DE89",
            "DE89 ",
            "a.",
            ".@.",
            "1.1.1.1 ",
            "tel ",
            "tel 1 ",
            "123-45-6789-",
            "\u{ff11}",
            "1\u{200b}",
            "x@y.z@",
            "://a:",
            "555-0100 ",
            "aaaaaaaaaa@bbbbbbbbbb",
            "[EMAIL_1",
            "(at)",
            "a(at)b[dot]",
            "(at)a-",
            "card 4 1 1 ",
            "1234567890123456789 ",
        ];
        for piece in pieces {
            let measure = |times: usize| {
                let text = piece.repeat(times);
                work::taken();
                let found = Detector::all().find(&text).unwrap();
                (work::taken(), text.len() as u64, found)
            };
            let ((small, _, _), (large, bytes, _)) = (measure(1_000), measure(10_000));
            assert!(large <= small * 11, "{piece:?}: {small} steps became {large}");
            assert!(large <= bytes * 700, "{piece:?}: {large} steps for {bytes} bytes");
        }
        work::taken();
        assert!(Detector::all().find(&"7".repeat(1 << 20)).unwrap().is_empty());
        assert!(work::taken() < 3 << 20);
    }

    #[test]
    fn a_checksum_or_a_word_tells_a_number_from_ten_digits() {
        for (text, expected) in [
            ("4111 1111 1111 1111", "card: 4111 1111 1111 1111"),
            ("DE89 3704 0044 0532 0130 00", "iban: DE89 3704 0044 0532 0130 00"),
            ("tel 2025550143", "phone: 2025550143"),
            ("ssn 123456789", "ssn: 123456789"),
        ] {
            assert_eq!(shown(text), [expected]);
        }
        let nothing = [
            "4111 1111 1111 1112",
            "DE89 3704 0044 0532 0130 01",
            "2025550143",
            "123456789",
            "1732270041",
            "192.0.2.17",
            "2026-11-22",
            "550e8400-e29b-41d4-a716-446655440000",
            "d41d8cd98f00b204e9800998ecf8427e",
            "v1.20.3-4567",
            "000-12-3456",
            "order 2025550143",
        ];
        for text in nothing {
            assert_eq!(shown(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_field_name_is_context() {
        let detector = Detector::all();
        assert_eq!(detector.find_after("phone", "2025550143").unwrap().len(), 1);
        assert_eq!(detector.find_after("order_id", "2025550143").unwrap().len(), 0);
    }

    #[test]
    fn custom_patterns_find_and_bad_ones_say_why() {
        let mut detector = Detector::of(["email"]);
        detector.add("employee_id", "E-[0-9]{6}").unwrap();
        let found = detector.find("E-100234 and E-\u{ff11}00235 wrote to a@example.com, tel 2025550143").unwrap();
        let classes: Vec<&str> = found.iter().map(|piece| piece.class.as_str()).collect();
        assert_eq!(classes, ["employee_id", "employee_id", "email"]);
        assert_eq!(
            detector.clone().add("x", "a{1000}{1000}").unwrap_err().to_string(),
            "Compiled regex exceeds size limit of 1048576 bytes."
        );
        assert!(detector.clone().add("x", "(").unwrap_err().to_string().contains("unclosed group"));
        assert!(detector.clone().add("x", "a*").unwrap_err().to_string().contains("empty text"));
        for nothing in [r"\b", r"\b{start}", r"\b{end}", r"^\b", r"\b$", r"(?:\b|E-[0-9]{6})", r"x*\b", r"(?m)\b$"] {
            let bad = detector.clone().add("x", nothing).map_err(|bad| bad.to_string());
            assert!(bad.as_ref().is_err_and(|why| why.contains("edge of a word")), "{nothing}: {bad:?}");
        }
        assert_eq!(detector.add("word", r"\bE-[0-9]{6}\b"), Ok(()));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let mut detector = Detector::of(["email"]);
        detector.add("mark", "Q").unwrap();
        let found = |text: String| detector.find(&text).map(|found| found.len());
        assert_eq!(found("Q".repeat(FOUND_ALWAYS)), Ok(FOUND_ALWAYS));
        assert_eq!(found("Q".repeat(FOUND_ALWAYS + 1)), Err(Unknown::Everywhere));
        assert_eq!(found("Q   ".repeat(5000)), Ok(5000));
        assert_eq!(found(format!("{}a@example.com", "Q  ".repeat(5000))), Err(Unknown::Everywhere));
        assert_eq!(found("a@b.cd ".repeat(5000)), Ok(5000));
        assert_eq!(Tokens::default().replace(&detector, "", &"Q".repeat(5000)), Err(Unknown::Everywhere));
        assert_eq!(unbroken(|| panic!("it broke")), Err(Unknown::Broke));
    }

    /// Pieces that make numbers and addresses, whole and broken, in any order.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "jane@example.com",
            "4111 1111 1111 1111",
            "+1 202-555-0143",
            "DE89370400440532013000",
            "123-45-6789",
            "@",
            ".",
            "-",
            " ",
            "é",
            "😀",
            "\u{200b}",
            "\u{ff11}",
            "[EMAIL_1]",
            "[CARD_2]",
            "[",
            "]",
            "tel ",
            "1",
            "0",
            "00",
            "GB82",
            "\n",
            "電話",
            "(",
            ")",
            "\u{a0}",
            "a",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn spans_are_sorted_disjoint_and_between_characters(text in prop_oneof![texts(), any::<String>()]) {
            let mut last = 0;
            for piece in Detector::all().find(&text).unwrap() {
                prop_assert!(last <= piece.start && piece.start < piece.end && piece.end <= text.len());
                prop_assert!(text.is_char_boundary(piece.start) && text.is_char_boundary(piece.end));
                last = piece.end;
            }
        }

        #[test]
        fn what_is_replaced_and_filled_in_again_is_what_it_was(texts in prop::collection::vec(texts(), 1..4)) {
            let (detector, mut tokens) = (Detector::all(), Tokens::default());
            texts.iter().for_each(|text| tokens.avoid(text));
            let replaced: Vec<String> =
                texts.iter().map(|text| tokens.replace(&detector, "", text).unwrap().unwrap_or_else(|| text.clone())).collect();
            for (text, replaced) in texts.iter().zip(&replaced) {
                let again = tokens.fill(replaced, |value| Some(value.to_owned())).unwrap_or_else(|| replaced.clone());
                prop_assert_eq!(&again, text);
            }
        }

        #[test]
        fn what_stands_around_changes_nothing(text in texts(), before in "[a-z ]{0,30}", after in "[a-z ]{0,30}") {
            let alone = Detector::all().find(&text).unwrap();
            let around = Detector::all().find(&format!("{before}\n\n;;; {text} ;;;\n\n{after}")).unwrap();
            prop_assume!(crate::words::before("", &format!("{before}\n\n;;; "), before.len() + 6) == Default::default());
            let shift = before.len() + 6;
            let moved: Vec<Found> = around
                .into_iter()
                .map(|piece| Found { start: piece.start - shift, end: piece.end - shift, class: piece.class })
                .collect();
            prop_assert_eq!(moved, alone);
        }
    }
}
