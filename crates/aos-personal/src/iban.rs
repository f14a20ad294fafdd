//! Bank accounts: the country's own length and the check digits (ISO 13616, ISO 7064 mod 97-10).

use crate::normal::{word_after, word_before};

/// Countries with the length of their numbers: the SWIFT registry of IBAN formats, release 97.
const COUNTRIES: &[(&[u8; 2], usize)] = &[
    (b"AD", 24),
    (b"AE", 23),
    (b"AL", 28),
    (b"AT", 20),
    (b"AZ", 28),
    (b"BA", 20),
    (b"BE", 16),
    (b"BG", 22),
    (b"BH", 22),
    (b"BI", 27),
    (b"BR", 29),
    (b"BY", 28),
    (b"CH", 21),
    (b"CR", 22),
    (b"CY", 28),
    (b"CZ", 24),
    (b"DE", 22),
    (b"DJ", 27),
    (b"DK", 18),
    (b"DO", 28),
    (b"EE", 20),
    (b"EG", 29),
    (b"ES", 24),
    (b"FI", 18),
    (b"FK", 18),
    (b"FO", 18),
    (b"FR", 27),
    (b"GB", 22),
    (b"GE", 22),
    (b"GI", 23),
    (b"GL", 18),
    (b"GR", 27),
    (b"GT", 28),
    (b"HN", 28),
    (b"HR", 21),
    (b"HU", 28),
    (b"IE", 22),
    (b"IL", 23),
    (b"IQ", 23),
    (b"IS", 26),
    (b"IT", 27),
    (b"JO", 30),
    (b"KW", 30),
    (b"KZ", 20),
    (b"LB", 28),
    (b"LC", 32),
    (b"LI", 21),
    (b"LT", 20),
    (b"LU", 20),
    (b"LV", 21),
    (b"LY", 25),
    (b"MC", 27),
    (b"MD", 24),
    (b"ME", 22),
    (b"MK", 19),
    (b"MN", 20),
    (b"MR", 27),
    (b"MT", 31),
    (b"MU", 30),
    (b"NI", 28),
    (b"NL", 18),
    (b"NO", 15),
    (b"OM", 23),
    (b"PK", 24),
    (b"PL", 28),
    (b"PS", 29),
    (b"PT", 25),
    (b"QA", 29),
    (b"RO", 24),
    (b"RS", 22),
    (b"RU", 33),
    (b"SA", 24),
    (b"SC", 31),
    (b"SD", 18),
    (b"SE", 24),
    (b"SI", 19),
    (b"SK", 24),
    (b"SM", 27),
    (b"SO", 23),
    (b"ST", 25),
    (b"SV", 28),
    (b"TL", 23),
    (b"TN", 24),
    (b"TR", 26),
    (b"UA", 29),
    (b"VA", 22),
    (b"VG", 24),
    (b"XK", 20),
    (b"YE", 30),
];

/// The end of the number that begins at this letter, if one does.
pub(crate) fn at(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let [a, b, c, d] = *bytes.get(start..start + 4)? else { return None };
    if !(a.is_ascii_alphabetic() && b.is_ascii_alphabetic() && c.is_ascii_digit() && d.is_ascii_digit()) {
        return None;
    }
    if word_before(text, start) {
        return None;
    }
    let country = [a.to_ascii_uppercase(), b.to_ascii_uppercase()];
    let (_, length) = COUNTRIES.iter().find(|(known, _)| **known == country)?;
    let mut signs = Vec::with_capacity(*length);
    let mut place = start;
    while signs.len() < *length {
        match bytes.get(place)? {
            sign if sign.is_ascii_alphanumeric() => signs.push(sign.to_ascii_uppercase()),
            b' ' | b'-' if bytes.get(place + 1).is_some_and(u8::is_ascii_alphanumeric) => {}
            _ => return None,
        }
        place += 1;
    }
    (!word_after(text, place) && remainder(&signs) == 1).then_some(place)
}

/// The number as one of base 10, its first four signs last and letters as 10 to 35, modulo 97.
fn remainder(signs: &[u8]) -> u32 {
    let (head, rest) = signs.split_at(4);
    rest.iter().chain(head).fold(0, |number, sign| match sign {
        b'0'..=b'9' => (number * 10 + u32::from(sign - b'0')) % 97,
        letter => (number * 100 + u32::from(letter - b'A') + 10) % 97,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of the registry for each country that joined it late.
    #[test]
    fn samples_of_the_registry_are_found() {
        let samples = [
            "BI42 1000 0100 0100 0033 2045 181",
            "DJ21 0001 0000 0001 5400 0100 186",
            "FK88 SC12 3456 7890 12",
            "HN88 CABF 0000 0000 0002 5000 5469",
            "MN12 1234 1234 5678 9123",
            "NI45 BAPR 0000 0013 0000 0355 8124",
            "OM81 0180 0000 0129 9123 456",
            "RU03 0445 2522 5408 1781 0538 0913 1041 9",
            "SO21 1000 0010 0100 0100 141",
            "YE15 CBYE 0001 0188 6123 4567 8912 34",
        ];
        for sample in samples {
            assert_eq!(at(sample, 0), Some(sample.len()), "{sample}");
        }
    }
}
