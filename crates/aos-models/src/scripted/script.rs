//! A script: rules in order, each with what it matches and what it answers. Written as TOML or JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a scripted server answers.
///
/// ```
/// let script: aos_models::scripted::Script = toml::from_str(r#"
///     [[rule]]
///     when = { last = "write a poem" }
///     [[rule.answer]]
///     calls = [{ name = "FS_WRITE", args = { path = "poem.txt", content = "Roses." } }]
///     [[rule.answer]]
///     text = "I wrote {{last_result.bytes}} bytes."
/// "#).unwrap();
/// assert_eq!(script.rules[0].answers.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The models it says it has; `scripted` if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// What it answers at other paths than those for answers and vectors, such as `/api/show`; before everything else.
    #[serde(default, rename = "page", skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Page>,
    /// Answers every request with this text at once, without reading it. For benchmarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instant: Option<String>,
    /// The first that matches answers; where none does, the request fails with 400.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

/// One document at a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Its path, without a query.
    pub path: String,
    /// Only for requests whose body holds this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The status; 200 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The document.
    pub document: Value,
}

impl Page {
    /// The document that every request for a path gets.
    #[must_use]
    pub fn new(path: impl Into<String>, document: Value) -> Page {
        Page { path: path.into(), document, ..Page::default() }
    }
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it matches; empty: everything.
    #[serde(default)]
    pub when: When,
    /// It matches at most this often, counted from the server's start; for faults that pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// What it answers, by step: the first answer to a new task, the next after the first's calls, and so on; the last
    /// one again after that. A step is an answer with calls since the last answer without.
    #[serde(default, rename = "answer", skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// How it misbehaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What a rule matches. Everything given must hold. The last turn is whatever follows the model's last answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Text in the last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Text in any message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any: Option<String>,
    /// Text in the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A regular expression on the last turn; its groups can be used in the answer as `{{1}}` or `{{name}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The call whose result came last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The step, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// How many answers the conversation holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<usize>,
    /// Bytes of the body, as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// One answer. `{{last_result.pid}}` is the field `pid` of the last result, `{{result.0.pid}}` of the first one of the last
/// turn, `{{last}}` the last turn; a string that is nothing but a template takes the value's type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Its text.
    #[serde(default)]
    pub text: String,
    /// Its calls: tool calls where the request declares tools, else in the text form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Time before the answer begins.
    #[serde(default)]
    pub delay_ms: u64,
    /// Bytes of text and arguments per event; 0: all in one.
    #[serde(default)]
    pub chunk_bytes: usize,
    /// Bytes per write, wherever that cuts; 0: all in one.
    #[serde(default)]
    pub write_bytes: usize,
    /// Time between two writes.
    #[serde(default)]
    pub write_delay_ms: u64,
    /// The usage it reports.
    #[serde(default)]
    pub usage: UsageAs,
    /// Why it says that it stopped.
    #[serde(default)]
    pub stop: StopAs,
    /// One JSON document even where a stream was asked for.
    #[serde(default)]
    pub plain: bool,
}

/// One call of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its id; made from the request if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its arguments.
    #[serde(default = "Call::no_args")]
    pub args: Value,
    /// Its arguments as this text, whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_args: Option<String>,
}

impl Answer {
    /// An answer that is this text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Answer {
        Answer { text: text.into(), ..Answer::default() }
    }
}

impl Rule {
    /// A rule that matches everything and gives these answers, one after another.
    #[must_use]
    pub fn always(answers: Vec<Answer>) -> Rule {
        Rule { answers, ..Rule::default() }
    }
}

impl Script {
    /// A script of these rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Script {
        Script { rules, ..Script::default() }
    }

    /// A script that answers every request with `text`, without reading it.
    #[must_use]
    pub fn instant(text: impl Into<String>) -> Script {
        Script { instant: Some(text.into()), ..Script::default() }
    }
}

impl Default for Call {
    fn default() -> Self {
        Call { id: None, name: String::new(), args: Call::no_args(), raw_args: None }
    }
}

impl Call {
    /// A call with these arguments.
    #[must_use]
    pub fn new(name: impl Into<String>, args: Value) -> Call {
        Call { name: name.into(), args, ..Call::default() }
    }

    fn no_args() -> Value {
        Value::Object(serde_json::Map::new())
    }
}

/// The usage an answer reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageAs {
    /// A quarter of the bytes, as a real one would.
    #[default]
    Plausible,
    /// None at all.
    Missing,
    /// These numbers, true or not.
    #[serde(untagged)]
    Said {
        /// Tokens sent.
        input: i64,
        /// Tokens answered.
        output: i64,
        /// Of those sent, cached ones.
        #[serde(default)]
        cached: i64,
    },
}

/// Why an answer says that it stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAs {
    /// As it did: done, or calls.
    #[default]
    Natural,
    /// It ran into its limit.
    Length,
    /// A filter or the model refused.
    Refused,
    /// It does not say.
    Missing,
}

/// How a server misbehaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Another status than 200.
    Status {
        /// The status.
        status: u16,
        /// The body.
        #[serde(default)]
        body: String,
        /// Headers, such as `retry-after`.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
    /// A body that is none of the formats, with status 200.
    Body {
        /// Its media type.
        content_type: String,
        /// The body.
        body: String,
    },
    /// So many bytes of text.
    Megabytes {
        /// How many, in millions.
        megabytes: usize,
    },
    /// The connection ends after so many bytes of the answer.
    Cut {
        /// How many.
        after_bytes: usize,
    },
    /// The answer ends after so many bytes as if it were whole.
    End {
        /// How many.
        after_bytes: usize,
    },
    /// Nothing more comes after so many bytes of the answer, and the connection stays.
    Stall {
        /// How many.
        after_bytes: usize,
    },
    /// No answer at all, and the connection stays.
    Hang,
    /// No answer at all, and the connection ends.
    Reset,
    /// This event in the middle of the stream, after so many bytes of it, and then no more.
    Event {
        /// How many bytes of the answer come first, rounded down to whole events.
        after_bytes: usize,
        /// The event's data.
        data: String,
    },
}
