//! A request as far as rules look into it. Nothing is read before it is asked for, and tools are never read.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::Text;

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Openai,
    Anthropic,
    Gemini,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
    Result,
}

/// One message; its content is not read yet.
#[derive(Debug)]
pub(super) struct Message<'b> {
    pub(super) role: Role,
    content: Option<&'b RawValue>,
    /// OpenAI's calls stand beside the content.
    calls: Option<&'b RawValue>,
    call_id: Option<Cow<'b, str>>,
}

/// A request's outline.
#[derive(Debug)]
pub(super) struct Outline<'b> {
    pub(super) model: Cow<'b, str>,
    pub(super) stream: bool,
    /// It declares tools.
    pub(super) tools: bool,
    system: Option<&'b RawValue>,
    pub(super) messages: Vec<Message<'b>>,
}

/// A result in the last turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CallResult {
    pub(super) name: String,
    pub(super) content: Value,
}

/// A request, read as far as was needed.
pub(super) struct Conversation<'b> {
    wire: Wire,
    outline: Outline<'b>,
    last: OnceCell<String>,
    results: OnceCell<Vec<CallResult>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'b> {
    #[serde(borrow, default)]
    model: Option<Text<'b>>,
    #[serde(default)]
    stream: bool,
    #[serde(borrow, default)]
    tools: Option<&'b RawValue>,
    #[serde(borrow, default)]
    system: Option<&'b RawValue>,
    #[serde(borrow, default)]
    system_instruction: Option<&'b RawValue>,
    #[serde(borrow, default)]
    messages: Vec<BodyMessage<'b>>,
    #[serde(borrow, default)]
    contents: Vec<BodyMessage<'b>>,
}

#[derive(Deserialize)]
struct BodyMessage<'b> {
    #[serde(borrow, default)]
    role: Option<Text<'b>>,
    #[serde(borrow, default)]
    content: Option<&'b RawValue>,
    #[serde(borrow, default)]
    parts: Option<&'b RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'b RawValue>,
    #[serde(borrow, default)]
    tool_call_id: Option<Text<'b>>,
}

impl<'b> Conversation<'b> {
    /// Reads the outline of a request.
    pub(super) fn read(wire: Wire, body: &'b [u8]) -> Result<Conversation<'b>, serde_json::Error> {
        let body: Body<'b> = serde_json::from_slice(body)?;
        let messages = body.messages.into_iter().chain(body.contents).map(|message| Message {
            role: match message.role.as_ref().map_or("user", |role| &*role.0) {
                "system" | "developer" => Role::System,
                "assistant" | "model" => Role::Assistant,
                "tool" => Role::Result,
                _ => Role::User,
            },
            content: message.content.or(message.parts),
            calls: message.tool_calls,
            call_id: message.tool_call_id.map(|id| id.0),
        });
        let outline = Outline {
            model: body.model.map_or(Cow::Borrowed(""), |model| model.0),
            stream: body.stream,
            tools: body.tools.is_some_and(|tools| tools.get().len() > 2),
            system: body.system.or(body.system_instruction),
            messages: messages.collect(),
        };
        Ok(Conversation { wire, outline, last: OnceCell::new(), results: OnceCell::new() })
    }

    pub(super) fn outline(&self) -> &Outline<'b> {
        &self.outline
    }

    /// Answers so far.
    pub(super) fn nth(&self) -> usize {
        self.outline.messages.iter().filter(|message| message.role == Role::Assistant).count()
    }

    /// Answers with calls since the last answer without.
    pub(super) fn step(&self) -> usize {
        let answers = self.outline.messages.iter().rev().filter(|message| message.role == Role::Assistant);
        answers.take_while(|message| self.calls(message)).count()
    }

    /// Whether an answer made calls. The names searched for cannot stand in a JSON string, where quotes are escaped.
    fn calls(&self, message: &Message<'_>) -> bool {
        let content = message.content.map_or("", RawValue::get);
        let native = match self.wire {
            Wire::Openai => message.calls.is_some_and(|calls| calls.get().len() > 2),
            Wire::Anthropic => content.contains("\"tool_use\""),
            Wire::Gemini => content.contains("\"functionCall\""),
        };
        native || content.contains("[SYS_CALL::")
    }

    /// What follows the last answer.
    fn tail(&self) -> &[Message<'b>] {
        let messages = &self.outline.messages;
        let from = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |at| at + 1);
        &messages[from..]
    }

    /// The text of the last turn.
    pub(super) fn last(&self) -> &str {
        self.last.get_or_init(|| {
            let texts: Vec<String> =
                self.tail().iter().filter(|m| m.role != Role::System).map(|message| text(message.content)).collect();
            texts.join("\n")
        })
    }

    /// Whether any message but the system prompt holds `needle`.
    pub(super) fn any(&self, needle: &str) -> bool {
        let messages = self.outline.messages.iter().filter(|message| message.role != Role::System);
        messages.into_iter().any(|message| text(message.content).contains(needle))
    }

    /// Whether the system prompt holds `needle`.
    pub(super) fn system(&self, needle: &str) -> bool {
        let messages = self.outline.messages.iter().filter(|message| message.role == Role::System);
        self.outline
            .system
            .into_iter()
            .chain(messages.filter_map(|m| m.content))
            .any(|of| text(Some(of)).contains(needle))
    }

    /// The results in the last turn, in order.
    pub(super) fn results(&self) -> &[CallResult] {
        self.results.get_or_init(|| {
            let answer = self.outline.messages.iter().rev().find(|message| message.role == Role::Assistant);
            let mut results = Vec::new();
            for message in self.tail() {
                match (self.wire, message.role) {
                    (Wire::Openai, Role::Result) => {
                        let calls = value(answer.and_then(|answer| answer.calls));
                        let name = named(&calls, message.call_id.as_deref().unwrap_or(""));
                        results.push(CallResult { name, content: parsed(&text(message.content)) });
                    }
                    (Wire::Anthropic, Role::User) => {
                        let calls = value(answer.and_then(|answer| answer.content));
                        for block in blocks(message).iter().filter(|block| block["type"] == "tool_result") {
                            let name = named(&calls, block["tool_use_id"].as_str().unwrap_or(""));
                            let content = block["content"].as_str().map_or_else(|| block["content"].clone(), parsed);
                            results.push(CallResult { name, content });
                        }
                    }
                    (Wire::Gemini, Role::User) => {
                        for block in &blocks(message) {
                            if let Some(response) = block.get("functionResponse") {
                                let name = response["name"].as_str().unwrap_or("").to_owned();
                                results.push(CallResult { name, content: response["response"].clone() });
                            }
                        }
                    }
                    _ => {}
                }
            }
            if results.is_empty() { self.text_results() } else { results }
        })
    }

    /// Results of the text form: `[result call_id NAME]` with the JSON in the next line, as a context shows it, or
    /// `[RESULT call_id NAME] {json}`, as native ones are written for a model without tools.
    fn text_results(&self) -> Vec<CallResult> {
        let mut lines = self.last().lines();
        let mut results = Vec::new();
        while let Some(line) = lines.next() {
            let shown = line.strip_prefix("[result ").and_then(|rest| rest.strip_suffix(']'));
            let written = line.strip_prefix("[RESULT ").and_then(|rest| rest.split_once("] "));
            let Some((head, content)) = shown.and_then(|head| Some((head, lines.next()?))).or(written) else {
                continue;
            };
            let Some((_, name)) = head.split_once(' ') else { continue };
            results.push(CallResult { name: name.to_owned(), content: parsed(content) });
        }
        results
    }
}

fn blocks(message: &Message<'_>) -> Vec<Value> {
    match value(message.content) {
        Value::Array(blocks) => blocks,
        _ => Vec::new(),
    }
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The name of the call with this id, in OpenAI's or Anthropic's form.
fn named(calls: &Value, id: &str) -> String {
    let call = calls.as_array().into_iter().flatten().find(|call| call["id"] == id);
    let name = call.and_then(|call| call["function"]["name"].as_str().or(call["name"].as_str()));
    name.unwrap_or("").to_owned()
}

/// All text of a content, in whichever form it stands.
fn text(content: Option<&RawValue>) -> String {
    let Some(content) = content else { return String::new() };
    if content.get().starts_with('"') {
        return serde_json::from_str::<String>(content.get()).unwrap_or_default();
    }
    let mut out = String::new();
    gather(&value(Some(content)), &mut out);
    out
}

fn gather(value: &Value, out: &mut String) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| gather(value, out)),
        Value::Object(object) => {
            if let Some(parts) = object.get("parts") {
                gather(parts, out);
            }
            let text = object.get("text").or(object.get("content")).or(object.get("functionResponse"));
            match text {
                Some(Value::String(text)) => {
                    if !out.is_empty() {
                        out.push('\n');
                    }
                    out.push_str(text);
                }
                Some(other) => out.push_str(&other.to_string()),
                None => {}
            }
        }
        _ => {}
    }
}
