//! Sought: the value of an argument as it is looked for in what people wrote and in what clean sources named.
//!
//! Start at [`Sought::of`]. What always holds: nothing is normalised but what the type of the argument says; where
//! [`Sought::could_stand_in`] is false of a text, no passage of it gives the value. What does not depend on where it is
//! looked for is worked out once, since a process keeps hundreds of places.

use std::borrow::Cow;

use serde_json::Value;

use crate::given::Field;
use crate::passage::Passage;
use crate::url::Url;

/// Longest part of a value that texts are searched for before they are cut, in bytes. Beyond, the standard library prepares each
/// search at the cost of the search.
const HINT_BYTES_MAX: usize = 32;

/// A URL whose path and query are shorter stands in most texts as far as they tell, so its host is looked for as well.
const TAIL_BYTES_MIN: usize = 4;

/// A value that is looked for.
#[derive(Debug)]
pub(crate) struct Sought<'a> {
    field: Field,
    value: &'a Value,
    /// What it says, where it is a URL.
    url: Option<Url<'a>>,
    /// What a text must hold to give it, by which most texts are turned down without being cut. Empty where
    /// nothing is sure.
    hint: Cow<'a, str>,
}

impl<'a> Sought<'a> {
    pub(crate) fn of(field: Field, value: &'a Value) -> Sought<'a> {
        let url = value.as_str().filter(|_| field == Field::Url).and_then(Url::read);
        Sought { field, value, hint: short(hint(field, value, url.as_ref())), url }
    }

    pub(crate) fn field(&self) -> Field {
        self.field
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// Whether it could stand in a passage of this text; false only where it does in none.
    pub(crate) fn could_stand_in(&self, text: &str) -> bool {
        let bare = self.url.as_ref().filter(|url| url.tail().len() < TAIL_BYTES_MIN);
        text.contains(&*self.hint) && bare.is_none_or(|url| url.host_stands_in(text))
    }

    /// Whether this passage gives it.
    pub(crate) fn stands_in(&self, passage: &Passage<'_>) -> bool {
        match (self.field, self.value) {
            (Field::Inert, _) => true,
            (Field::Word, Value::String(word)) => is_word(passage, word),
            (Field::Path, Value::String(path)) => {
                let wanted = plain_path(path);
                !wanted.is_empty()
                    && (is_word(passage, wanted) || passage.words().any(|word| plain_path(word) == wanted))
            }
            (Field::Hook, Value::String(path)) => is_hook(passage, plain_path(path)),
            (Field::OpenHook, Value::String(path)) => is_hook(passage, plain_path(path)) && !passage.has_any(&SIGNED),
            (Field::Url, Value::String(_)) => {
                self.url.as_ref().is_some_and(|url| passage.words().any(|word| url.is_written(word)))
            }
            (Field::Recipient, Value::String(to)) => {
                is_word(passage, to) || to.contains('@') && passage.words().any(|word| recipient(word) == recipient(to))
            }
            (Field::Deadline, Value::Number(seconds)) => {
                seconds.as_f64().is_some_and(|seconds| passage.has_word(&seconds.to_string()))
            }
            (Field::Method, Value::String(method)) => passage.words().any(|word| word.eq_ignore_ascii_case(method)),
            (Field::BareMethod, Value::String(method)) => {
                let marked = passage.marked().iter().any(|mark| mark.eq_ignore_ascii_case(method));
                marked || passage.words().any(|word| word == method) || passage.stands_before_address(method)
            }
            (Field::Pid, Value::Number(pid)) => passage.has_word(&pid.to_string()),
            (Field::Target, Value::Number(pid)) => passage.has_word_after(&pid.to_string(), &PROCESSES),
            (Field::Text | Field::Body, Value::String(text)) => passage.has_text(text),
            (Field::Any, value) => is_any_given(passage, value),
            (
                Field::Word
                | Field::Path
                | Field::Hook
                | Field::OpenHook
                | Field::Url
                | Field::Recipient
                | Field::Method
                | Field::BareMethod
                | Field::Pid
                | Field::Target
                | Field::Text
                | Field::Body
                | Field::Headers
                | Field::Deadline,
                _,
            ) => false,
        }
    }

    /// Whether one of these names, which stood in a clean source, is it.
    pub(crate) fn is_among(&self, names: &[String]) -> bool {
        let Some(value) = self.value.as_str() else { return false };
        let mut names = names.iter();
        match self.field {
            Field::Word => names.any(|name| name == value),
            Field::Path => {
                let wanted = plain_path(value);
                !wanted.is_empty() && names.any(|name| plain_path(name) == wanted)
            }
            Field::Url => {
                let url = self.url.as_ref();
                url.is_some_and(|url| names.any(|name| url.is_written(name) && name.contains("://")))
            }
            Field::Recipient => names.any(|name| name.contains('@') && recipient(name) == recipient(value)),
            Field::Inert
            | Field::Hook
            | Field::OpenHook
            | Field::Method
            | Field::BareMethod
            | Field::Pid
            | Field::Target
            | Field::Text
            | Field::Body
            | Field::Headers
            | Field::Deadline
            | Field::Any => false,
        }
    }
}

fn hint<'a>(field: Field, value: &'a Value, url: Option<&Url<'a>>) -> Cow<'a, str> {
    match (field, value) {
        (Field::Word, Value::String(word)) => word.into(),
        (Field::Path | Field::Hook | Field::OpenHook, Value::String(path)) => plain_path(path).into(),
        // Of a URL and an address, what is never written otherwise.
        (Field::Url, Value::String(_)) => url.map_or("", Url::tail).into(),
        (Field::Recipient, Value::String(to)) => to.rsplit_once('@').map_or(to.as_str(), |(who, _)| who).into(),
        (Field::Pid | Field::Target, Value::Number(pid)) => pid.to_string().into(),
        (Field::Text | Field::Body, Value::String(words)) => words.strip_suffix('\n').unwrap_or(words).into(),
        _ => Cow::default(),
    }
}

/// Of a long hint its end, in which addresses of one place differ most: what holds the whole holds a part.
fn short(hint: Cow<'_, str>) -> Cow<'_, str> {
    let Some(least) = hint.len().checked_sub(HINT_BYTES_MAX) else { return hint };
    let begin = (least..).find(|at| hint.is_char_boundary(*at)).unwrap_or(least);
    match hint {
        Cow::Borrowed(hint) => hint[begin..].into(),
        Cow::Owned(hint) => hint[begin..].to_owned().into(),
    }
}

/// Words of a sentence about a webhook that not everybody may call.
const SIGNED: [&str; 6] = ["secret", "secrets", "signed", "signature", "signatures", "hmac"];

/// Words of a sentence about processes, before it names one.
const PROCESSES: [&str; 14] = [
    "process",
    "processes",
    "pid",
    "pids",
    "agent",
    "agents",
    "helper",
    "helpers",
    "child",
    "children",
    "kill",
    "stop",
    "pause",
    "terminate",
];

/// Words that a sentence about a webhook has.
const HOOKS: [&str; 4] = ["webhook", "webhooks", "hook", "hooks"];

fn is_hook(passage: &Passage<'_>, wanted: &str) -> bool {
    let whole = is_word(passage, wanted) && (passage.has_any(&HOOKS) || passage.marked().contains(&wanted));
    !wanted.is_empty() && (whole || passage.words().any(|word| word.strip_prefix("/hooks/") == Some(wanted)))
}

/// A path without what says nothing.
pub(crate) fn plain_path(path: &str) -> &str {
    path.trim_start_matches("./").trim_end_matches('/')
}

/// A name has two characters at least: a single letter stands in any sentence.
fn is_word(passage: &Passage<'_>, word: &str) -> bool {
    word.chars().nth(1).is_some() && passage.has_word(word)
}

fn is_any_given(passage: &Passage<'_>, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => passage.has_word(&number.to_string()),
        Value::String(text) => text.is_empty() || is_word(passage, text) || passage.has_text(text),
        Value::Array(items) => items.iter().all(|item| is_any_given(passage, item)),
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| is_word(passage, key) && is_any_given(passage, value))
        }
    }
}

/// The part after the `@` in small letters.
fn recipient(text: &str) -> Cow<'_, str> {
    match text.rsplit_once('@') {
        Some((who, host)) if host.bytes().any(|b| b.is_ascii_uppercase()) => {
            format!("{who}@{}", host.to_ascii_lowercase()).into()
        }
        _ => text.into(),
    }
}
