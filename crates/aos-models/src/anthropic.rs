//! Anthropic's Messages.
//!
//! Start at [`body`] for the way out and [`event`] for the way back; a whole answer and the events of a stream have the
//! same reader. What always holds: there are two cache breakpoints, one behind the tools and the system prompt, which
//! never change, and one behind the history, which only grows; the status, which always changes, stands behind both.
//! Format: docs.anthropic.com/en/api/messages and /en/api/messages-streaming.

use std::borrow::Cow;

use aos_abi::inference::Stop;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Answer, Finish};
use crate::tools::{Shape, Tools};
use crate::turns::{self, Piece, Role};
use crate::wire::{Count, Text, Unread, lenient};
use crate::wishes::{Calling, Request};

/// The version of the format, sent with each request.
pub(crate) const VERSION: &str = "2023-06-01";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequences: Option<&'a [String]>,
    // Behind the messages: it follows what the budget still affords.
    max_tokens: u32,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    of: BlockOf<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Ephemeral>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct Ephemeral {}

enum BlockOf<'a> {
    Text(Cow<'a, str>),
    Image { media_type: &'a str, base64: &'a str },
    ToolUse { id: Cow<'a, str>, name: &'a str, input: Cow<'a, RawValue> },
    ToolResult { tool_use_id: Cow<'a, str>, content: &'a str },
}

impl<'a> From<BlockOf<'a>> for Block<'a> {
    fn from(of: BlockOf<'a>) -> Self {
        Block { of, cache_control: None }
    }
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

// By hand: a derived internally tagged enum copies raw JSON into a map first, which is both slower and not stable.
impl Serialize for BlockOf<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        match self {
            BlockOf::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            BlockOf::Image { media_type, base64 } => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("source", &Source { r#type: "base64", media_type, data: base64 })?;
            }
            BlockOf::ToolUse { id, name, input } => {
                map.serialize_entry("type", "tool_use")?;
                map.serialize_entry("id", id)?;
                map.serialize_entry("name", name)?;
                map.serialize_entry("input", input)?;
            }
            BlockOf::ToolResult { tool_use_id, content } => {
                map.serialize_entry("type", "tool_result")?;
                map.serialize_entry("tool_use_id", tool_use_id)?;
                map.serialize_entry("content", content)?;
            }
        }
        map.end()
    }
}

/// The request's body.
pub(crate) fn body(request: &Request<'_>, tools: &Tools) -> Vec<u8> {
    let Request { model, prompt, wishes } = *request;
    let declared = request.declared(Shape::Anthropic, tools);
    let mut system = Vec::new();
    if !prompt.system.trim().is_empty() {
        let of = BlockOf::Text(Cow::Borrowed(&prompt.system));
        system.push(Block { of, cache_control: Some(Ephemeral {}) });
    }
    let mut messages: Vec<Message<'_>> = Vec::with_capacity(prompt.messages.len() + 1);
    let mut status: Option<&str> = None;
    for turn in request.turns() {
        let mut content: Vec<Block<'_>> = Vec::with_capacity(turn.pieces.len() + 1);
        let mut results = 0;
        for piece in turn.pieces {
            match piece {
                Piece::Text(text) => content.push(BlockOf::Text(text).into()),
                Piece::Image { media_type, base64 } => content.push(BlockOf::Image { media_type, base64 }.into()),
                Piece::Call(call) => {
                    let (id, input) = (tool_id(&call.id), turns::object(&call.arguments));
                    content.push(BlockOf::ToolUse { id, name: &call.name, input }.into());
                }
                Piece::Result { call_id, content: result, .. } => {
                    // Results must stand before anything else that the user says.
                    let of = BlockOf::ToolResult { tool_use_id: tool_id(call_id), content: result };
                    content.insert(results, of.into());
                    results += 1;
                }
                Piece::Status(text) => status = Some(text),
            }
        }
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        messages.push(Message { role, content });
    }
    if let Some(last) = messages.last_mut() {
        match last.content.last_mut() {
            Some(block) => block.cache_control = Some(Ephemeral {}),
            // The last turn is nothing but the status; the history ends one turn before.
            None => mark_last_but_one(&mut messages),
        }
    }
    if let (Some(text), Some(last)) = (status, messages.last_mut()) {
        last.content.push(BlockOf::Text(Cow::Borrowed(text)).into());
    }
    let body = Body {
        model,
        stream: true,
        tools: declared.as_deref(),
        system,
        tool_choice: wishes.and_then(|wishes| wishes.calling.as_ref()).map(tool_choice),
        messages,
        temperature: wishes.and_then(|wishes| wishes.temperature),
        top_p: wishes.and_then(|wishes| wishes.top_p),
        stop_sequences: wishes.map(|wishes| wishes.stop.as_slice()).filter(|stop| !stop.is_empty()),
        max_tokens: prompt.max_output.max(1),
    };
    serde_json::to_vec(&body).expect("strings and numbers can be written as JSON")
}

fn tool_choice(calling: &Calling) -> Value {
    match calling {
        Calling::Auto => json!({"type": "auto"}),
        Calling::Nothing => json!({"type": "none"}),
        Calling::Any => json!({"type": "any"}),
        Calling::Only(name) => json!({"type": "tool", "name": name}),
    }
}

fn mark_last_but_one(messages: &mut [Message<'_>]) {
    let before = messages.len().checked_sub(2).and_then(|at| messages.get_mut(at));
    if let Some(block) = before.and_then(|message| message.content.last_mut()) {
        block.cache_control = Some(Ephemeral {});
    }
}

/// An id in the characters that Anthropic allows, `[a-zA-Z0-9_-]`: ids of other providers and of the kernel may hold more.
fn tool_id(id: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(allowed) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(if id.is_empty() { "_".to_owned() } else { id.replace(|c| !allowed(c), "_") })
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    message: Option<Start<'a>>,
    #[serde(borrow, default)]
    content_block: Option<BlockIn<'a>>,
    #[serde(borrow, default)]
    delta: Option<DeltaIn<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<UsageFields>,
    /// In an answer that is not streamed.
    #[serde(borrow, default)]
    content: Option<Vec<BlockIn<'a>>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<UsageFields>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct BlockIn<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct DeltaIn<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct UsageFields {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
}

/// Takes one event of a stream, or a whole answer.
pub(crate) fn event(data: &str, answer: &mut Answer<'_>) -> Result<(), Unread> {
    let event: Event<'_> = serde_json::from_str(data)?;
    match &*event.r#type.0 {
        "error" => return Err(Unread::Error(data.to_owned())),
        "message_start" => {
            answer.understood = true;
            if let Some(start) = event.message {
                usage(start.usage.as_ref(), answer);
                // What is said here of the output only begins to count; an answer that is cut off must not pass for one token.
                answer.reported.output = None;
                stop(start.stop_reason.as_ref(), answer);
            }
        }
        "content_block_start" => {
            if let Some(block) = event.content_block {
                open(&block, event.index, answer);
            }
        }
        "content_block_delta" => {
            if let Some(delta) = event.delta {
                answer.push_text(delta.text.as_ref().map_or("", |text| &text.0));
                answer.thinks(delta.thinking.as_ref().map_or(0, |text| text.0.len()));
                answer.push_arguments(event.index, delta.partial_json.as_ref().map_or("", |json| &json.0));
            }
        }
        "message_delta" => {
            usage(event.usage.as_ref(), answer);
            stop(event.delta.and_then(|delta| delta.stop_reason).as_ref(), answer);
        }
        "message_stop" => answer.ended = true,
        "message" => {
            answer.understood = true;
            for (index, block) in (0..).zip(event.content.unwrap_or_default()) {
                open(&block, Some(index), answer);
                if let Some(input) = block.input.filter(|_| block.r#type.0 == "tool_use") {
                    answer.push_arguments(Some(index), input.get());
                }
            }
            usage(event.usage.as_ref(), answer);
            stop(event.stop_reason.as_ref(), answer);
            answer.ended = true;
        }
        // `ping`, `content_block_stop`, and, as the documentation asks, whatever comes to be added.
        _ => {}
    }
    Ok(())
}

/// In a stream a call begins with the input `{}`, which stands for nothing: its pieces follow.
fn open(block: &BlockIn<'_>, index: Option<u64>, answer: &mut Answer<'_>) {
    let of = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.0.to_string()).unwrap_or_default();
    match &*block.r#type.0 {
        "text" => answer.push_text(&of(&block.text)),
        "tool_use" => answer.open_call(index, &of(&block.id), &of(&block.name)),
        // Thinking stays with the provider.
        _ => {}
    }
}

/// Anthropic counts what was read from and written to its cache apart from the rest of the input. Later events repeat
/// some fields with newer numbers.
fn usage(fields: Option<&UsageFields>, answer: &mut Answer<'_>) {
    let Some(fields) = fields else { return };
    let cached = fields.cache_read_input_tokens.0;
    if let Some(input) = fields.input_tokens.0 {
        let all =
            input.saturating_add(cached.unwrap_or(0)).saturating_add(fields.cache_creation_input_tokens.0.unwrap_or(0));
        // A later event may leave the cached ones out, and some proxies know nothing yet at the start.
        answer.reported.input = answer.reported.input.max(Some(all));
        answer.reported.cached = cached.or(answer.reported.cached);
        answer.reported.cache_write = fields.cache_creation_input_tokens.0.or(answer.reported.cache_write);
    }
    answer.reported.output = fields.output_tokens.0.or(answer.reported.output);
}

fn stop(reason: Option<&Text<'_>>, answer: &mut Answer<'_>) {
    let Some(reason) = reason else { return };
    answer.finish = Some(match &*reason.0 {
        "max_tokens" | "model_context_window_exceeded" => Finish::Stop(Stop::Length),
        "tool_use" => Finish::Stop(Stop::Calls),
        "refusal" => Finish::Refused("the model declines to answer".to_owned()),
        _ => Finish::Stop(Stop::End),
    });
}
