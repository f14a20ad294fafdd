//! What the readers of all three wire formats share.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// A string, borrowed from the event where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A number of tokens. What is no whole number from zero up reads as `None`: usage is not worth an answer's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &serde_json::value::RawValue = Deserialize::deserialize(deserializer)?;
        let whole = raw.get().parse::<u64>().ok();
        // Some servers write whole numbers as `12.0`. `as` saturates, and what is huge is not believed anyway.
        let float = || raw.get().parse::<f64>().ok().filter(|tokens| *tokens >= 0.0).map(|tokens| tokens as u64);
        Ok(Count(whole.or_else(float)))
    }
}

/// Why an event was not taken.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is not JSON of this format.
    Broken(serde_json::Error),
    /// It is an error object; its JSON text.
    Error(String),
}

impl From<serde_json::Error> for Unread {
    fn from(error: serde_json::Error) -> Self {
        Unread::Broken(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_or_ignored_but_never_fail() {
        let count = |text: &str| serde_json::from_str::<Count>(text).unwrap().0;
        assert_eq!(count("12"), Some(12));
        assert_eq!(count("12.0"), Some(12));
        assert_eq!(count("1e30"), Some(u64::MAX));
        for text in ["-1", "null", "\"many\"", "{}", "[1]"] {
            assert_eq!(count(text), None, "{text}");
        }
    }
}
