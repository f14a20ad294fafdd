//! OpenAI's responses, as programs ask and are answered in them.
//!
//! [`understood`] reads, [`whole`] and [`Stream`] write. What always holds: every event carries the next number, and the
//! last one the whole answer. Deliberately absent: answers kept here, so a request that goes on from an earlier one by its
//! id is refused. Format: platform.openai.com/docs/api-reference/responses.

use aos_abi::inference::{Failure, Message, NativeCall, Part, Reply, Stop, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::chat::{Content, DeclaredFunction, call_id, called, calling, form, parts, prompt, text};
use super::peek::Misfit;
use super::told::Writer;
use super::{Understood, created};
use crate::pool::Delta;
use crate::wishes::Wishes;

#[derive(Deserialize)]
struct Request {
    input: Input,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    text: Option<Value>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    top_p: Option<f64>,
    #[serde(default)]
    reasoning: Option<Reasoning>,
}

#[derive(Deserialize)]
struct Reasoning {
    #[serde(default)]
    effort: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(default)]
    output: Option<Content>,
}

/// The conversation of a request.
pub(super) fn understood(body: &[u8], max_output: u32) -> Result<Understood, Misfit> {
    let request: Request = serde_json::from_slice(body)?;
    if request.previous_response_id.is_some() {
        return Err(Misfit::new("answers are not kept here, so there is no previous response")
            .hint("send the whole conversation in `input`"));
    }
    let mut system: Vec<String> = request.instructions.into_iter().collect();
    let mut messages = Vec::new();
    match request.input {
        Input::Text(text) => messages.push(Message::User(vec![Part::Text(text)])),
        Input::Items(items) => {
            for item in items {
                take(item, &mut system, &mut messages)?;
            }
        }
    }
    let mut tools = Vec::new();
    for declared in request.tools.into_iter().flatten() {
        let kind = declared["type"].as_str().unwrap_or("").to_owned();
        if kind != "function" {
            return Err(Misfit::new(format!("the tool `{}` is no function", crate::failure::quote(&kind, "")))
                .hint("tools that a provider runs itself exist at that provider alone"));
        }
        tools.push(serde_json::from_value::<DeclaredFunction>(declared)?.tool());
    }
    let format = request.text.as_ref().and_then(|text| text.get("format"));
    let wishes = Wishes {
        tools,
        calling: request.tool_choice.as_ref().map(calling).transpose()?,
        temperature: request.temperature,
        top_p: request.top_p,
        stop: Vec::new(),
        form: format.and_then(|format| form(format, Some(format))),
        effort: request.reasoning.and_then(|reasoning| reasoning.effort),
    };
    Ok(Understood { prompt: prompt(system.join("\n\n"), messages, max_output), wishes })
}

fn take(item: Item, system: &mut Vec<String>, messages: &mut Vec<Message>) -> Result<(), Misfit> {
    match (item.r#type.as_deref().unwrap_or("message"), item.role.as_deref()) {
        ("message", Some("system" | "developer")) => system.push(text(item.content)?),
        ("message", Some("user")) => messages.push(Message::User(parts(item.content)?)),
        ("message", Some("assistant")) => {
            messages.push(Message::Assistant { text: text(item.content)?, calls: Vec::new() });
        }
        ("function_call", _) => {
            let call = NativeCall {
                id: item.call_id.unwrap_or_default(),
                name: item.name.unwrap_or_default(),
                arguments: item.arguments.unwrap_or_default(),
            };
            // Text and calls of one answer are items of their own here, and one message in a prompt.
            match messages.last_mut() {
                Some(Message::Assistant { calls, .. }) => calls.push(call),
                _ => messages.push(Message::Assistant { text: String::new(), calls: vec![call] }),
            }
        }
        ("function_call_output", _) => {
            let call_id = item.call_id.unwrap_or_default();
            let name = called(messages, &call_id).unwrap_or_default();
            messages.push(Message::Result { call_id, name, content: text(item.output)? });
        }
        // Thinking belongs to the provider that thought it.
        ("reasoning", _) => {}
        (kind, _) => {
            return Err(Misfit::new(format!(
                "an item of `input` is of the kind `{}`, which this model's provider does not take",
                crate::failure::quote(kind, "")
            )));
        }
    }
    Ok(())
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

fn response(model: &str, id: &str, created: u64, status: &str) -> Value {
    json!({
        "id": format!("resp_{id}"), "object": "response", "created_at": created, "status": status, "model": model,
        "output": [], "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
        "previous_response_id": null, "usage": null,
    })
}

fn said(id: &str, status: &str, content: Value) -> Value {
    json!({"type": "message", "id": format!("msg_{id}"), "role": "assistant", "status": status, "content": content})
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn call_item(id: &str, nth: usize, call_id: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}_{nth}"), "call_id": call_id, "name": name,
        "arguments": arguments, "status": status})
}

/// An answer that is not streamed.
pub(super) fn whole(reply: &Reply, model: &str, id: &str) -> Value {
    let mut output = Vec::with_capacity(reply.calls.len() + 1);
    if !reply.text.is_empty() || reply.calls.is_empty() {
        output.push(said(id, "completed", json!([output_text(&reply.text)])));
    }
    for (nth, call) in reply.calls.iter().enumerate() {
        let call_id = call_id(&call.id, id, nth);
        output.push(call_item(id, nth, &call_id, &call.name, &call.arguments, "completed"));
    }
    done(model, id, created(), reply, output)
}

fn done(model: &str, id: &str, created: u64, reply: &Reply, output: Vec<Value>) -> Value {
    let cut = reply.stop == Stop::Length;
    let mut whole = response(model, id, created, if cut { "incomplete" } else { "completed" });
    if cut {
        whole["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    whole["output"] = output.into();
    whole["usage"] = usage(&reply.usage);
    whole
}

/// Something of an answer as it comes.
struct Piece {
    what: What,
    /// More of it may come.
    open: bool,
}

enum What {
    Text(String),
    Call { nth: usize, call_id: String, name: String, arguments: String },
}

impl Piece {
    /// As it stands in the answer to `id`.
    fn done(&self, id: &str) -> Value {
        match &self.what {
            What::Text(text) => said(id, "completed", json!([output_text(text)])),
            What::Call { nth, call_id, name, arguments } => call_item(id, *nth, call_id, name, arguments, "completed"),
        }
    }
}

/// An answer as it comes. Calls are open until its end, since a provider may mix the arguments of several.
pub(super) struct Stream {
    model: String,
    id: String,
    created: u64,
    number: u64,
    pieces: Vec<Piece>,
    /// Where each call stands among the pieces.
    calls: Vec<usize>,
}

impl Stream {
    pub(super) fn new(model: &str, id: &str) -> Stream {
        let (model, id) = (model.to_owned(), id.to_owned());
        Stream { model, id, created: created(), number: 0, pieces: Vec::new(), calls: Vec::new() }
    }

    fn event(&mut self, kind: &str, mut event: Value, out: &mut String) {
        event["type"] = kind.into();
        event["sequence_number"] = self.number.into();
        self.number += 1;
        out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }

    fn begin_text(&mut self, out: &mut String) {
        let at = self.pieces.len();
        let item = said(&self.id, "in_progress", json!([]));
        self.event("response.output_item.added", json!({"output_index": at, "item": item}), out);
        let part = json!({"item_id": self.item_id(), "output_index": at, "content_index": 0, "part": output_text("")});
        self.event("response.content_part.added", part, out);
        self.pieces.push(Piece { what: What::Text(String::new()), open: true });
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.id)
    }

    /// Ends the piece that stands there.
    fn close(&mut self, at: usize, out: &mut String) {
        let item = self.pieces[at].done(&self.id);
        if !std::mem::replace(&mut self.pieces[at].open, false) {
            return;
        }
        match &self.pieces[at].what {
            What::Text(text) => {
                let place = json!({"item_id": self.item_id(), "output_index": at, "content_index": 0});
                let with = |key: &str, value: Value| {
                    let mut event = place.clone();
                    event[key] = value;
                    event
                };
                let mut text_done = with("text", text.as_str().into());
                text_done["logprobs"] = json!([]);
                let part_done = with("part", output_text(text));
                self.event("response.output_text.done", text_done, out);
                self.event("response.content_part.done", part_done, out);
            }
            What::Call { nth, name, arguments, .. } => {
                let id = format!("fc_{}_{nth}", self.id);
                let event = json!({"item_id": id, "output_index": at, "name": name, "arguments": arguments});
                self.event("response.function_call_arguments.done", event, out);
            }
        }
        self.event("response.output_item.done", json!({"output_index": at, "item": item}), out);
    }

    /// Where the text stands that goes on, which is the last piece.
    fn text(&mut self, text: &str) -> Option<usize> {
        let at = self.pieces.len().checked_sub(1)?;
        let What::Text(so_far) = &mut self.pieces[at].what else { return None };
        so_far.push_str(text);
        Some(at)
    }
}

impl Writer for Stream {
    fn begin(&mut self, out: &mut String) {
        let begun = response(&self.model, &self.id, self.created, "in_progress");
        self.event("response.created", json!({"response": begun}), out);
        self.event("response.in_progress", json!({"response": begun}), out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut String) {
        match delta {
            Delta::Text(text) => {
                if !self.pieces.last().is_some_and(|piece| matches!(piece.what, What::Text(_))) {
                    self.begin_text(out);
                }
                let at = self.text(text);
                let event = json!({"item_id": self.item_id(), "output_index": at, "content_index": 0,
                    "delta": text, "logprobs": []});
                self.event("response.output_text.delta", event, out);
            }
            Delta::Call { id, name } => {
                let at = self.pieces.len();
                if matches!(self.pieces.last(), Some(Piece { what: What::Text(_), .. })) {
                    self.close(at - 1, out);
                }
                let nth = self.calls.len();
                let call_id = call_id(id, &self.id, nth);
                let item = call_item(&self.id, nth, &call_id, name, "", "in_progress");
                self.event("response.output_item.added", json!({"output_index": at, "item": item}), out);
                let what = What::Call { nth, call_id, name: name.clone(), arguments: String::new() };
                self.pieces.push(Piece { what, open: true });
                self.calls.push(at);
            }
            Delta::Arguments { call, text } => {
                let Some(at) = self.calls.get(*call).copied() else { return };
                let What::Call { nth, arguments, .. } = &mut self.pieces[at].what else { return };
                arguments.push_str(text);
                let event = json!({"item_id": format!("fc_{}_{nth}", self.id), "output_index": at, "delta": text});
                self.event("response.function_call_arguments.delta", event, out);
            }
        }
    }

    fn end(&mut self, reply: &Reply, out: &mut String) {
        (0..self.pieces.len()).for_each(|at| self.close(at, out));
        let mut output: Vec<Value> = self.pieces.iter().map(|piece| piece.done(&self.id)).collect();
        if output.is_empty() {
            output.push(said(&self.id, "completed", json!([output_text("")])));
        }
        let whole = done(&self.model, &self.id, self.created, reply, output);
        let kind = if reply.stop == Stop::Length { "response.incomplete" } else { "response.completed" };
        self.event(kind, json!({"response": whole}), out);
    }

    fn broken(&mut self, failure: &Failure, out: &mut String) {
        let mut failed = response(&self.model, &self.id, self.created, "failed");
        failed["error"] = json!({"code": "server_error", "message": failure.message});
        let closed = self.pieces.iter().filter(|piece| !piece.open).map(|piece| piece.done(&self.id));
        failed["output"] = closed.collect();
        self.event("response.failed", json!({"response": failed}), out);
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::inference::NativeCall;

    use super::*;

    /// All went to the call that had begun last.
    #[test]
    fn arguments_of_several_calls_that_come_mixed_go_to_their_own() {
        let call = |name: &str, arguments: &str| NativeCall {
            id: name.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let reply = Reply {
            text: "Now.".to_owned(),
            calls: vec![call("a", "[0,1]"), call("b", "[2,3]")],
            stop: Stop::End,
            usage: Usage::default(),
            model: String::new(),
        };
        let begun = |name: &str| Delta::Call { id: name.to_owned(), name: name.to_owned() };
        let more = |call, text: &str| Delta::Arguments { call, text: text.to_owned() };
        let (mut stream, mut out) = (Stream::new("m", "1"), String::new());
        stream.begin(&mut out);
        for delta in [
            Delta::Text("Now.".to_owned()),
            begun("a"),
            begun("b"),
            more(0, "[0,"),
            more(1, "[2,"),
            more(0, "1]"),
            more(1, "3]"),
        ] {
            stream.delta(&delta, &mut out);
        }
        stream.end(&reply, &mut out);
        let events = out.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.map(|data| serde_json::from_str(data).unwrap()).collect();
        let told = |at: u64| {
            let deltas = events.iter().filter(|event| {
                event["type"] == "response.function_call_arguments.delta" && event["output_index"] == at
            });
            deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>()
        };
        assert_eq!((told(1).as_str(), told(2).as_str()), ("[0,1]", "[2,3]"));
        let whole = &events.last().unwrap()["response"]["output"];
        assert_eq!((&whole[1]["arguments"], &whole[2]["arguments"]), (&json!("[0,1]"), &json!("[2,3]")));
        assert_eq!(events.iter().filter(|event| event["type"] == "response.output_item.done").count(), 3);
    }
}
