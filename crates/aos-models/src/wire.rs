//! What the readers of all three wire formats share.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
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

/// What is told beside an answer; what is of another form reads as `None`, since it is not worth the answer's life.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw: &serde_json::value::RawValue = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
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
    use crate::answer::{Answer, Reported};
    use crate::{anthropic, gemini, openai};

    /// An answer whose usage had another form counted as cut off, and was asked for again.
    #[test]
    fn what_is_told_beside_an_answer_never_fails() {
        #[derive(Deserialize)]
        struct Chunk {
            #[serde(default, deserialize_with = "lenient")]
            usage: Option<Used>,
        }
        #[derive(Deserialize)]
        struct Used {
            #[serde(default)]
            prompt_tokens: Count,
        }
        let used = |text: &str| serde_json::from_str::<Chunk>(text).unwrap().usage.map(|used| used.prompt_tokens.0);
        for text in ["{}", r#"{"usage":"x"}"#, r#"{"usage":null}"#, r#"{"usage":[1,"a"]}"#, r#"{"usage":1e400}"#] {
            assert_eq!(used(text), None, "{text}");
        }
        let deep = format!(r#"{{"usage":{}1{}}}"#, r#"{"a":"#.repeat(9000), "}".repeat(9000));
        assert_eq!(used(&deep), Some(None), "the stack has an end");
        assert_eq!(used(r#"{"usage":{"prompt_tokens":7}}"#), Some(Some(7)));
        assert_eq!(used(r#"{"usage":{"prompt_tokens":{}}}"#), Some(None));
    }

    #[test]
    fn usage_of_another_form_is_none_in_every_format() {
        type Read = fn(&str, &mut Answer<'_>) -> Result<(), Unread>;
        let formats: [(Read, &str); 3] = [
            (openai::event, r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}],"usage":"x"}"#),
            (anthropic::event, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":"x"}"#),
            (gemini::event, r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":7}"#),
        ];
        for (read, said) in formats {
            let mut nobody = |_| ();
            let mut answer = Answer::new(&mut nobody);
            read(said, &mut answer).unwrap();
            assert_eq!((answer.finish.is_some(), answer.reported), (true, Reported::default()), "{said}");
        }
    }

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
