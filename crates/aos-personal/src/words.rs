//! The words before a number: they make a phone of nine digits that could be anything, or an order number of a phone.

use crate::normal::{is_word, looked};

/// How far before a number its words are looked for, in bytes.
const REACH: usize = 48;
/// How many words are looked at, the nearest first.
const WORDS_MAX: usize = 4;

/// Words that announce a phone number, in the languages of the corpus and its neighbours.
const PHONE: &[&str] = &[
    "phone",
    "phones",
    "tel",
    "telephone",
    "telefon",
    "telefone",
    "telefono",
    "teléfono",
    "téléphone",
    "tél",
    "mobile",
    "mobil",
    "mob",
    "cell",
    "cellphone",
    "cellular",
    "cellulare",
    "celular",
    "móvil",
    "movil",
    "portable",
    "handy",
    "handynummer",
    "fax",
    "telefax",
    "whatsapp",
    "sms",
    "call",
    "calling",
    "dial",
    "ring",
    "ringing",
    "ph",
    "gsm",
    "hotline",
    "rufnummer",
    "telefonnummer",
    "mobilnummer",
    "anrufen",
    "rufen",
    "appelez",
    "llámame",
    "ligue",
    "bel",
    "msisdn",
    "caller",
    "text",
    "тел",
    "телефон",
    "電話",
    "电话",
    "手机",
    "手机号码",
    "τηλέφωνο",
    "τηλ",
    "טלפון",
    "הטלפון",
    "الهاتف",
    "هاتف",
    "telefonnumre",
    "puhelin",
    "festnetz",
    "erreichbar",
    "téléphonez",
    "звоните",
];
/// Words that announce a number of another kind.
const OTHER: &[&str] = &[
    "id",
    "ids",
    "uuid",
    "order",
    "ticket",
    "invoice",
    "rechnung",
    "ref",
    "reference",
    "referenz",
    "version",
    "build",
    "part",
    "serial",
    "sku",
    "tracking",
    "trace",
    "span",
    "code",
    "case",
    "docket",
    "lot",
    "bin",
    "isbn",
    "issn",
    "imei",
    "ean",
    "upc",
    "account",
    "konto",
    "kundennummer",
    "timestamp",
    "ts",
    "epoch",
    "offset",
    "seq",
    "key",
    "meeting",
    "passcode",
    "pin",
    "port",
    "pid",
    "commit",
    "hash",
    "asset",
    "model",
    "models",
    "transaction",
    "session",
    "meter",
    "ratio",
    "licence",
    "license",
];
/// Words of tables and sums: no phone number and no social security number comes after them, but a card may.
const TABLE: &[&str] = &[
    "amount", "total", "price", "qty", "zip", "postcode", "page", "line", "row", "item", "time", "date", "size",
    "bytes", "sold",
];
/// Words that announce a social security number.
const SOCIAL: &[&str] = &["ssn", "ssns", "social", "ss", "socsec", "taxpayer", "itin", "tin", "w"];
/// Words that announce a payment card.
const CARD: &[&str] = &[
    "card",
    "cards",
    "visa",
    "mastercard",
    "amex",
    "pan",
    "credit",
    "debit",
    "karte",
    "kreditkarte",
    "carte",
    "tarjeta",
    "carta",
    "cartão",
    "kort",
    "kaart",
    "discover",
    "maestro",
    "cc",
    "ccnum",
    "cardnumber",
    "karta",
    "карта",
    "卡号",
];

/// What the words before a number say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) phone: bool,
    pub(crate) social: bool,
    pub(crate) card: bool,
    /// A number of another kind; the nearest word decides.
    pub(crate) other: bool,
    /// Some column or sum, which may be a card's number and no phone's.
    pub(crate) table: bool,
}

/// What is said before a place of a text; `context` stands before the text itself.
pub(crate) fn before(context: &str, text: &str, at: usize) -> Said {
    let near = &text[text.floor_char_boundary(at.saturating_sub(REACH))..at];
    looked(near.len());
    let mut said = Said::default();
    let far = if near.len() < REACH.min(at + 1) || at < REACH { context } else { "" };
    let far = &far[far.floor_char_boundary(far.len().saturating_sub(REACH))..];
    let words = split(near).chain(split(far)).take(WORDS_MAX);
    for word in words {
        // What stands before another number was said of that one.
        if word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        let word = word.to_lowercase();
        let word = word.as_str();
        let nothing = said == Said::default();
        if OTHER.contains(&word) {
            said.other = nothing;
            break;
        }
        if TABLE.contains(&word) {
            said.table = nothing;
            break;
        }
        said.phone |= PHONE.contains(&word);
        said.social |= SOCIAL.contains(&word);
        said.card |= CARD.contains(&word);
    }
    said
}

/// The words of a text, the last one first. Letters of every script are words here.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.rsplit(|c: char| c == '_' || !(is_word(c) || c.is_alphabetic())).filter(|word| !word.is_empty())
}
