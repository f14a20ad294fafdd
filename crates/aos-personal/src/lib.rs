//! Personal data: where it stands in a text, and tokens in its place that can be filled in again.
//!
//! Start at [`Detector::find`] for the first and at [`Tokens`] for the second. The order to read in: `normal` (what
//! spellings are the same), `email`, `iban`, `number` (cards, social security numbers, phones), `words` (what stands
//! before a number), `detector`, `tokens`.
//!
//! What always holds: spans begin and end where characters do, are sorted and disjoint; the time is linear in the text,
//! whatever it holds; the same text gives the same spans; what could not be looked at is an error that nobody can take for an
//! empty text; what was replaced and filled in again is the text it was.
//! Deliberately absent: I/O, a list of names or of streets, and learning: everything here is a checksum, a published
//! format or a word beside a number, and `corpus.jsonl` says how well that does.

mod detector;
mod email;
mod iban;
mod normal;
mod number;
mod phone;
mod tokens;
mod words;

pub use detector::{BadPattern, Class, Detector, Found, Unknown};
pub use tokens::Tokens;
