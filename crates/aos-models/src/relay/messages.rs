//! Anthropic's messages, as programs ask and are answered in them.
//!
//! [`understood`] reads, [`whole`] and [`Stream`] write. Format: docs.anthropic.com/en/api/messages.

use aos_abi::inference::{Failure, FailureKind, Message, NativeCall, Part, Reply, Stop, Usage};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Understood;
use super::chat::{call_id, called, prompt};
use super::peek::Misfit;
use super::told::Writer;
use crate::pool::Delta;
use crate::wishes::{Calling, Tool, Wishes};

#[derive(Deserialize)]
struct Request {
    messages: Vec<Said>,
    #[serde(default)]
    system: Option<Content>,
    #[serde(default)]
    tools: Option<Vec<Declared>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    top_p: Option<f64>,
    #[serde(default)]
    stop_sequences: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Value>),
}

#[derive(Deserialize)]
struct Declared {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
}

/// The conversation of a request.
pub(super) fn understood(body: &[u8], max_output: u32) -> Result<Understood, Misfit> {
    let request: Request = serde_json::from_slice(body)?;
    let mut messages = Vec::with_capacity(request.messages.len());
    for said in request.messages {
        match said.role.as_str() {
            "user" => user(said.content, &mut messages)?,
            "assistant" => messages.push(assistant(said.content)),
            other => {
                return Err(Misfit::new(format!("a message has the role `{}`", crate::failure::quote(other, "")))
                    .hint("roles are user and assistant; what the system says stands in `system`"));
            }
        }
    }
    let tools = request.tools.into_iter().flatten().map(|declared| {
        // Tools that Anthropic itself runs have no schema, and no other provider has them.
        let parameters = declared.input_schema.ok_or_else(|| {
            Misfit::new(format!("the tool `{}` has no input_schema", crate::failure::quote(&declared.name, "")))
                .hint("tools that a provider runs itself exist at that provider alone")
        })?;
        Ok(Tool { name: declared.name, description: declared.description, parameters })
    });
    let wishes = Wishes {
        tools: tools.collect::<Result<_, Misfit>>()?,
        calling: request.tool_choice.as_ref().map(calling).transpose()?,
        temperature: request.temperature,
        top_p: request.top_p,
        stop: request.stop_sequences.unwrap_or_default(),
        form: None,
        effort: None,
    };
    let system = request.system.map(|content| text(&content)).unwrap_or_default();
    Ok(Understood { prompt: prompt(system, messages, max_output), wishes })
}

fn text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Blocks(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// Results become messages of their own, as a prompt has them.
fn user(content: Content, messages: &mut Vec<Message>) -> Result<(), Misfit> {
    let blocks = match content {
        Content::Text(text) => {
            messages.push(Message::User(vec![Part::Text(text)]));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let mut parts = Vec::new();
    for block in &blocks {
        let of = |key: &str| block[key].as_str().unwrap_or("").to_owned();
        match block["type"].as_str().unwrap_or("") {
            "text" => parts.push(Part::Text(of("text"))),
            "image" => {
                let source = &block["source"];
                match (source["media_type"].as_str(), source["data"].as_str()) {
                    (Some(media_type), Some(data)) => {
                        parts.push(Part::Image { media_type: media_type.to_owned(), base64: data.to_owned() });
                    }
                    _ => {
                        return Err(Misfit::new(
                            "an image is given by its address, which this model's provider does not fetch",
                        )
                        .hint("send it in base64"));
                    }
                }
            }
            "tool_result" => {
                let call_id = of("tool_use_id");
                let content = match &block["content"] {
                    Value::String(text) => text.clone(),
                    Value::Array(blocks) => {
                        blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
                    }
                    _ => String::new(),
                };
                let name = called(messages, &call_id).unwrap_or_default();
                messages.push(Message::Result { call_id, name, content });
            }
            other => {
                return Err(Misfit::new(format!(
                    "a block of a message is of the kind `{}`, which this model's provider does not take",
                    crate::failure::quote(other, "")
                )));
            }
        }
    }
    if !parts.is_empty() {
        messages.push(Message::User(parts));
    }
    Ok(())
}

/// Thinking belongs to the provider that thought it, and is left out.
fn assistant(content: Content) -> Message {
    let calls = match &content {
        Content::Text(_) => Vec::new(),
        Content::Blocks(blocks) => blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| NativeCall {
                id: block["id"].as_str().unwrap_or("").to_owned(),
                name: block["name"].as_str().unwrap_or("").to_owned(),
                arguments: block["input"].to_string(),
            })
            .collect(),
    };
    Message::Assistant { text: text(&content), calls }
}

fn calling(choice: &Value) -> Result<Calling, Misfit> {
    match (choice["type"].as_str(), choice["name"].as_str()) {
        (Some("auto"), _) => Ok(Calling::Auto),
        (Some("none"), _) => Ok(Calling::Nothing),
        (Some("any"), _) => Ok(Calling::Any),
        (Some("tool"), Some(name)) => Ok(Calling::Only(name.to_owned())),
        _ => Err(Misfit::new("`tool_choice` is none of auto, any, none or a tool")),
    }
}

fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(usage.cached_input_tokens),
        "cache_read_input_tokens": usage.cached_input_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
    })
}

fn message(model: &str, id: &str) -> Value {
    json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null})
}

/// An answer that is not streamed.
pub(super) fn whole(reply: &Reply, model: &str, id: &str) -> Value {
    let mut content = Vec::with_capacity(reply.calls.len() + 1);
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for (nth, call) in reply.calls.iter().enumerate() {
        let input = crate::turns::object(&call.arguments);
        content
            .push(json!({"type": "tool_use", "id": call_id(&call.id, id, nth), "name": call.name, "input": &*input}));
    }
    let mut whole = message(model, id);
    whole["content"] = content.into();
    whole["stop_reason"] = stop_reason(reply.stop).into();
    whole["usage"] = usage(&reply.usage);
    whole
}

/// An answer as it comes.
pub(super) struct Stream {
    model: String,
    id: String,
    input_tokens: u64,
    /// Blocks begun so far; the last one is open.
    blocks: usize,
    /// The block of each call.
    calls: Vec<usize>,
    in_text: bool,
}

impl Stream {
    pub(super) fn new(model: &str, id: &str, input_tokens: u64) -> Stream {
        let (model, id) = (model.to_owned(), id.to_owned());
        Stream { model, id, input_tokens, blocks: 0, calls: Vec::new(), in_text: false }
    }

    fn open(&mut self, block: Value, out: &mut String) {
        self.close(out);
        written("content_block_start", json!({"index": self.blocks, "content_block": block}), out);
        self.blocks += 1;
    }

    fn close(&self, out: &mut String) {
        if let Some(last) = self.blocks.checked_sub(1) {
            written("content_block_stop", json!({"index": last}), out);
        }
    }
}

fn written(kind: &str, mut event: Value, out: &mut String) {
    event["type"] = kind.into();
    out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
}

impl Writer for Stream {
    fn begin(&mut self, out: &mut String) {
        let mut begun = message(&self.model, &self.id);
        // How much went in is known at the end only; until then what it is at most.
        begun["usage"] = json!({"input_tokens": self.input_tokens, "output_tokens": 0});
        written("message_start", json!({"message": begun}), out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut String) {
        match delta {
            Delta::Text(text) => {
                if !std::mem::replace(&mut self.in_text, true) {
                    self.open(json!({"type": "text", "text": ""}), out);
                }
                let delta = json!({"type": "text_delta", "text": text});
                written("content_block_delta", json!({"index": self.blocks - 1, "delta": delta}), out);
            }
            Delta::Call { id, name } => {
                let id = call_id(id, &self.id, self.calls.len());
                self.in_text = false;
                self.open(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), out);
                self.calls.push(self.blocks - 1);
            }
            Delta::Arguments { call, text } => {
                let index = self.calls.get(*call).copied().unwrap_or(self.blocks.saturating_sub(1));
                let delta = json!({"type": "input_json_delta", "partial_json": text});
                written("content_block_delta", json!({"index": index, "delta": delta}), out);
            }
        }
    }

    fn end(&mut self, reply: &Reply, out: &mut String) {
        self.close(out);
        let delta = json!({"stop_reason": stop_reason(reply.stop), "stop_sequence": null});
        written("message_delta", json!({"delta": delta, "usage": usage(&reply.usage)}), out);
        written("message_stop", json!({}), out);
    }

    fn broken(&mut self, failure: &Failure, out: &mut String) {
        out.push_str(&event(failure));
    }
}

fn event(failure: &Failure) -> String {
    let kind = if failure.kind == FailureKind::Transient { "overloaded_error" } else { "api_error" };
    let mut out = String::new();
    written("error", json!({"error": {"type": kind, "message": failure.message}}), &mut out);
    out
}

/// The event that says that a stream broke off.
pub(super) fn error_event(failure: &Failure) -> Bytes {
    Bytes::from(event(failure))
}
