//! One inference: what a model is sent, and what it answers, apart from any provider's format.

use serde::{Deserialize, Serialize};

use crate::CallId;

/// What a model is sent. Between two inferences of one process only the end of `messages` and `status` change, so
/// that providers' prompt caches hit.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// Who the process is and how it acts; the same bytes for the whole life of the process.
    pub system: String,
    /// Its history, oldest first. Every call in it is followed by its result.
    pub messages: Vec<Message>,
    /// What is true only now (time, budget left); shown after the last message, never kept.
    pub status: String,
    /// The calls it may make, in table order.
    pub tools: crate::syscall::CallSet,
    /// How calls are written.
    pub encoding: Encoding,
    /// Most tokens of the answer.
    pub max_output: u32,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// What the process was told: tasks, input, messages, timers, webhooks.
    User(Vec<Part>),
    /// What the model answered.
    Assistant {
        /// Its text.
        text: String,
        /// Its native tool calls; empty for the text form, where the calls stand in the text.
        calls: Vec<NativeCall>,
    },
    /// The result of one native call.
    Result {
        /// The call it answers.
        call_id: CallId,
        /// The call's name.
        name: String,
        /// The result as JSON text.
        content: String,
    },
}

/// A piece of a user message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        base64: String,
    },
}

/// How a model writes its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The provider's tool calls.
    #[default]
    Native,
    /// `[SYS_CALL::NAME] {json}` in the reply.
    Text,
    /// One JSON object that a grammar makes the only possible answer.
    Constrained,
}

/// A native tool call, as the model wrote it: nothing here is checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeCall {
    /// The provider's id; may be empty, then the kernel makes one.
    pub id: CallId,
    /// The name the model wrote.
    pub name: String,
    /// The arguments as the JSON text the model wrote.
    pub arguments: String,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Its native tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<NativeCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it used, as the provider reports it.
    pub usage: Usage,
    /// The configured name of the model that really served it.
    pub model: String,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// It was done.
    End,
    /// It called tools.
    Calls,
    /// It reached its output limit, or the answer was cut off on its way: what came is kept, and may be half a call.
    Length,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens answered, reasoning included.
    pub output_tokens: u64,
    /// Of the tokens sent, those the provider had cached.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Of the tokens sent, those that the provider wrote to its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Of the tokens answered, those of reasoning, where the provider counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// The provider reported nothing, or what cannot be, and these are estimates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// What the provider reported, where that cannot be and other numbers stand in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
}

/// Tokens as a provider reported them that cannot be what was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Reported {
    /// Of the tokens sent, where that is the number that cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Of the tokens answered, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

impl Usage {
    /// This and what another request of the same inference used; an estimate, since it is that of no single one.
    #[must_use]
    pub fn with(self, other: Option<Usage>) -> Usage {
        let Some(other) = other else { return self };
        Usage {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            estimated: true,
            reported: self.reported.or(other.reported),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A format in which other programs ask models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// OpenAI's embeddings: texts go in, vectors come out.
    Embeddings,
}

/// Why an inference failed, after the model edge has done what it could.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What may help.
    pub kind: FailureKind,
    /// What went wrong, in words for a person.
    pub message: String,
    /// The way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When trying again may help, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What the attempt cost all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The server could not be reached, so that nothing was sent: whatever was asked, it is not its doing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
}

/// What may help after a failed inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Time: unreachable, overloaded, rate limited, stalled, not an answer.
    Transient,
    /// A person: bad key, unknown model, no credit, wrong address. Asking again changes nothing.
    Permanent,
    /// Other content: the provider refused this prompt.
    Refused,
    /// A smaller prompt: it did not fit the model's window.
    TooLong,
    /// Nothing: the process was killed meanwhile.
    Cancelled,
    /// Another model: nothing was sent, since it holds what the policy keeps from this one.
    Withheld,
    /// Fewer bytes: the server takes no request of this size, whatever its tokens.
    TooLarge,
    /// Time: something on this machine failed, which says nothing of the server.
    Here,
}
