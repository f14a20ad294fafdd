//! OpenAI's chat completions, as programs ask and are answered in them.
//!
//! [`understood`] reads, [`whole`] and [`Stream`] write. Format: platform.openai.com/docs/api-reference/chat.

use aos_abi::inference::{Encoding, Failure, Message, NativeCall, Part, Prompt, Reply, Stop, Usage};
use aos_abi::syscall::CallSet;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::peek::Misfit;
use super::told::Writer;
use super::{Understood, created};
use crate::pool::Delta;
use crate::wishes::{Calling, Form, Tool, Wishes};

#[derive(Deserialize)]
struct Request {
    messages: Vec<Said>,
    #[serde(default)]
    tools: Option<Vec<Declared>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    top_p: Option<f64>,
    #[serde(default)]
    stop: Option<OneOrMore>,
    #[serde(default)]
    reasoning_effort: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(super) fn all(self) -> Vec<String> {
        match self {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

#[derive(Deserialize)]
struct Said {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Value>),
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct Declared {
    function: DeclaredFunction,
}

#[derive(Deserialize)]
pub(super) struct DeclaredFunction {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

impl DeclaredFunction {
    pub(super) fn tool(self) -> Tool {
        let parameters = self.parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        Tool { name: self.name, description: self.description, parameters }
    }
}

/// The conversation of a request.
pub(super) fn understood(body: &[u8], max_output: u32) -> Result<Understood, Misfit> {
    let request: Request = serde_json::from_slice(body)?;
    let mut system = Vec::new();
    let mut messages: Vec<Message> = Vec::with_capacity(request.messages.len());
    for said in request.messages {
        match said.role.as_str() {
            "system" | "developer" => system.push(text(said.content)?),
            "user" => messages.push(Message::User(parts(said.content)?)),
            "assistant" => {
                let calls = said.tool_calls.into_iter().flatten().map(|call| NativeCall {
                    id: call.id,
                    name: call.function.name,
                    arguments: call.function.arguments,
                });
                messages.push(Message::Assistant { calls: calls.collect(), text: text(said.content)? });
            }
            "tool" => {
                let call_id = said.tool_call_id.unwrap_or_default();
                let name = said.name.or_else(|| called(&messages, &call_id)).unwrap_or_default();
                messages.push(Message::Result { call_id, name, content: text(said.content)? });
            }
            other => {
                return Err(Misfit::new(format!("a message has the role `{}`", crate::failure::quote(other, "")))
                    .hint("roles are system, developer, user, assistant and tool"));
            }
        }
    }
    let wishes = Wishes {
        tools: request.tools.into_iter().flatten().map(|declared| declared.function.tool()).collect(),
        calling: request.tool_choice.as_ref().map(calling).transpose()?,
        temperature: request.temperature,
        top_p: request.top_p,
        stop: request.stop.map(OneOrMore::all).unwrap_or_default(),
        form: request.response_format.as_ref().and_then(|format| form(format, format.get("json_schema"))),
        effort: request.reasoning_effort,
    };
    Ok(Understood { prompt: prompt(system.join("\n\n"), messages, max_output), wishes })
}

/// The prompt of another program: no system calls, and nothing of a process.
pub(super) fn prompt(system: String, messages: Vec<Message>, max_output: u32) -> Prompt {
    let (status, tools, encoding) = (String::new(), CallSet::EMPTY, Encoding::Native);
    Prompt { system, messages, status, tools, encoding, max_output }
}

/// The name of the call that a result answers, which some formats do not repeat.
pub(super) fn called(messages: &[Message], call_id: &str) -> Option<String> {
    messages.iter().rev().find_map(|message| match message {
        Message::Assistant { calls, .. } => calls.iter().find(|call| call.id == call_id).map(|call| call.name.clone()),
        Message::User(_) | Message::Result { .. } => None,
    })
}

/// Whether to call, as both of OpenAI's formats say it.
pub(super) fn calling(choice: &Value) -> Result<Calling, Misfit> {
    let named = choice.get("function").unwrap_or(choice).get("name").and_then(Value::as_str);
    match (choice.as_str(), named) {
        (Some("auto"), _) => Ok(Calling::Auto),
        (Some("none"), _) => Ok(Calling::Nothing),
        (Some("required"), _) => Ok(Calling::Any),
        (None, Some(name)) => Ok(Calling::Only(name.to_owned())),
        _ => Err(Misfit::new("`tool_choice` is none of auto, none, required or a function")),
    }
}

/// The answer's form; `schema` is where the two formats put name and schema.
pub(super) fn form(format: &Value, schema: Option<&Value>) -> Option<Form> {
    match (format["type"].as_str(), schema) {
        (Some("json_object"), _) => Some(Form::Json),
        (Some("json_schema"), Some(named)) => Some(Form::Schema {
            name: named["name"].as_str().unwrap_or("answer").to_owned(),
            schema: named["schema"].clone(),
        }),
        _ => None,
    }
}

pub(super) fn parts(content: Option<Content>) -> Result<Vec<Part>, Misfit> {
    let parts = match content {
        None => return Ok(Vec::new()),
        Some(Content::Text(text)) => return Ok(vec![Part::Text(text)]),
        Some(Content::Parts(parts)) => parts,
    };
    parts.iter().map(part).collect()
}

fn part(part: &Value) -> Result<Part, Misfit> {
    let kind = part["type"].as_str().unwrap_or("");
    match kind {
        "text" | "input_text" | "output_text" => Ok(Part::Text(part["text"].as_str().unwrap_or("").to_owned())),
        "refusal" => Ok(Part::Text(part["refusal"].as_str().unwrap_or("").to_owned())),
        "image_url" | "input_image" => {
            let url = part["image_url"]["url"].as_str().or(part["image_url"].as_str()).unwrap_or("");
            let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
            let (media_type, base64) = data.ok_or_else(|| {
                Misfit::new("an image is given by its address, which this model's provider does not fetch")
                    .hint("send it as data:image/png;base64,…")
            })?;
            Ok(Part::Image { media_type: media_type.to_owned(), base64: base64.to_owned() })
        }
        other => Err(Misfit::new(format!(
            "a part of a message is of the kind `{}`, which this model's provider does not take",
            crate::failure::quote(other, "")
        ))),
    }
}

pub(super) fn text(content: Option<Content>) -> Result<String, Misfit> {
    let texts = parts(content)?.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        Part::Image { .. } => None,
    });
    Ok(texts.collect::<Vec<_>>().join("\n"))
}

fn finish(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
    })
}

/// The id of a call: the provider's, or one of its place in the answer.
pub(super) fn call_id(id: &str, answer: &str, nth: usize) -> String {
    if id.is_empty() { format!("call_{answer}_{nth}") } else { id.to_owned() }
}

/// An answer that is not streamed.
pub(super) fn whole(reply: &Reply, model: &str, id: &str) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text, "refusal": null});
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().enumerate().map(|(nth, call)| {
            json!({"id": call_id(&call.id, id, nth), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments}})
        });
        message["tool_calls"] = calls.collect();
        if reply.text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    json!({
        "id": format!("chatcmpl-{id}"),
        "object": "chat.completion",
        "created": created(),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply.stop)}],
        "usage": usage(&reply.usage),
    })
}

/// An answer as it comes.
pub(super) struct Stream {
    model: String,
    id: String,
    created: u64,
    wants_usage: bool,
    calls: usize,
}

impl Stream {
    pub(super) fn new(model: &str, id: &str, wants_usage: bool) -> Stream {
        Stream { model: model.to_owned(), id: id.to_owned(), created: created(), wants_usage, calls: 0 }
    }

    fn chunk(&self, choices: Value, out: &mut String) {
        self.written(&mut json!({"choices": choices}), out);
    }

    fn written(&self, chunk: &mut Value, out: &mut String) {
        chunk["id"] = format!("chatcmpl-{}", self.id).into();
        chunk["object"] = "chat.completion.chunk".into();
        chunk["created"] = self.created.into();
        chunk["model"] = self.model.as_str().into();
        out.push_str(&format!("data: {chunk}\n\n"));
    }

    fn said(&self, delta: Value, out: &mut String) {
        self.chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]), out);
    }
}

impl Writer for Stream {
    fn begin(&mut self, out: &mut String) {
        self.said(json!({"role": "assistant", "content": ""}), out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut String) {
        match delta {
            Delta::Text(text) => self.said(json!({"content": text}), out),
            Delta::Call { id, name } => {
                let id = call_id(id, &self.id, self.calls);
                let function = json!({"name": name, "arguments": ""});
                let call = json!({"index": self.calls, "id": id, "type": "function", "function": function});
                self.said(json!({"tool_calls": [call]}), out);
                self.calls += 1;
            }
            Delta::Arguments { call, text } => {
                self.said(json!({"tool_calls": [{"index": call, "function": {"arguments": text}}]}), out);
            }
        }
    }

    fn end(&mut self, reply: &Reply, out: &mut String) {
        let over = json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish(reply.stop)}]);
        self.chunk(over, out);
        if self.wants_usage {
            self.written(&mut json!({"choices": [], "usage": usage(&reply.usage)}), out);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn broken(&mut self, failure: &Failure, out: &mut String) {
        out.push_str(&event(failure));
    }
}

fn event(failure: &Failure) -> String {
    let error = json!({"error": {"message": failure.message, "type": "upstream_error", "code": null, "param": null}});
    format!("data: {error}\n\n")
}

/// The event that says that a stream broke off.
pub(super) fn error_event(failure: &Failure) -> Bytes {
    Bytes::from(event(failure))
}
