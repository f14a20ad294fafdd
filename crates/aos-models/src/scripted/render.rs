//! Answers in the three wire formats, as the events of a stream or as one document.

use serde_json::{Value, json};

use super::conversation::Wire;
use super::script::StopAs;
use crate::answer::head;

/// An answer with its templates filled in.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) model: String,
    pub(super) text: String,
    pub(super) calls: Vec<FilledCall>,
    pub(super) stop: StopAs,
    /// Tokens sent (cached ones included), answered, and of those sent the cached ones.
    pub(super) usage: Option<(i64, i64, i64)>,
    /// Bytes of text and arguments per event; 0: all in one.
    pub(super) chunk_bytes: usize,
}

#[derive(Debug)]
pub(super) struct FilledCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Filled {
    fn stop(&self, done: &'static str, calls: &'static str, length: &'static str, refused: &'static str) -> Value {
        match self.stop {
            StopAs::Natural => json!(if self.calls.is_empty() { done } else { calls }),
            StopAs::Length => json!(length),
            StopAs::Refused => json!(refused),
            StopAs::Missing => Value::Null,
        }
    }

    /// `text` in pieces, each ending between characters.
    fn pieces<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while self.chunk_bytes > 0 && rest.len() > self.chunk_bytes {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let piece = head(rest, self.chunk_bytes.max(first));
            pieces.push(piece);
            rest = &rest[piece.len()..];
        }
        if !rest.is_empty() {
            pieces.push(rest);
        }
        pieces
    }
}

/// The events of a stream, each with its closing blank line.
pub(super) fn events(wire: Wire, answer: &Filled) -> Vec<String> {
    match wire {
        Wire::Openai => openai_events(answer),
        Wire::Anthropic => anthropic_events(answer),
        Wire::Gemini => gemini_events(answer),
    }
}

/// The answer as one JSON document.
pub(super) fn document(wire: Wire, answer: &Filled) -> String {
    match wire {
        Wire::Openai => openai_document(answer),
        Wire::Anthropic => anthropic_document(answer),
        Wire::Gemini => gemini_chunk(answer, &answer.text, &answer.calls, true),
    }
    .to_string()
}

fn openai_calls(calls: &[FilledCall]) -> Vec<Value> {
    let call = |(index, call): (usize, &FilledCall)| {
        json!({"index": index, "id": call.id, "type": "function",
               "function": {"name": call.name, "arguments": call.arguments}})
    };
    calls.iter().enumerate().map(call).collect()
}

fn openai_usage((input, output, cached): (i64, i64, i64)) -> Value {
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output),
           "prompt_tokens_details": {"cached_tokens": cached}})
}

fn openai_events(answer: &Filled) -> Vec<String> {
    let chunk = |choices: Value| {
        json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": answer.model,
               "choices": choices})
    };
    let delta = |delta: Value, finish: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]));
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    for piece in answer.pieces(&answer.text) {
        events.push(delta(json!({"content": piece}), Value::Null));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let open = json!({"index": index, "id": call.id, "type": "function",
                          "function": {"name": call.name, "arguments": ""}});
        events.push(delta(json!({"tool_calls": [open]}), Value::Null));
        for piece in answer.pieces(&call.arguments) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            events.push(delta(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    events.push(delta(json!({}), answer.stop("stop", "tool_calls", "length", "content_filter")));
    if let Some(usage) = answer.usage {
        let mut last = chunk(json!([]));
        last["usage"] = openai_usage(usage);
        events.push(last);
    }
    let mut events: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if answer.stop != StopAs::Missing {
        events.push("data: [DONE]\n\n".to_owned());
    }
    events
}

fn openai_document(answer: &Filled) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.calls.is_empty() {
        message["tool_calls"] = Value::Array(openai_calls(&answer.calls));
    }
    let finish = answer.stop("stop", "tool_calls", "length", "content_filter");
    let mut document = json!({"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0,
        "model": answer.model, "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    if let Some(usage) = answer.usage {
        document["usage"] = openai_usage(usage);
    }
    document
}

/// Anthropic's input tokens are those that were not cached.
fn anthropic_usage((input, output, cached): (i64, i64, i64)) -> Value {
    json!({"input_tokens": input.saturating_sub(cached), "output_tokens": output,
           "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0})
}

fn anthropic_events(answer: &Filled) -> Vec<String> {
    let mut message = json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": answer.model,
        "content": [], "stop_reason": null, "stop_sequence": null});
    if let Some((input, _, cached)) = answer.usage {
        message["usage"] = anthropic_usage((input, 1, cached));
    }
    let mut events = vec![json!({"type": "message_start", "message": message}), json!({"type": "ping"})];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !answer.text.is_empty() {
        let deltas = answer.pieces(&answer.text).into_iter().map(|text| json!({"type": "text_delta", "text": text}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in &answer.calls {
        let deltas = answer.pieces(&call.arguments).into_iter();
        let deltas = deltas.map(|json| json!({"type": "input_json_delta", "partial_json": json}));
        block(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}), deltas.collect());
    }
    let stop = answer.stop("end_turn", "tool_use", "max_tokens", "refusal");
    let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}});
    if let Some((_, output, _)) = answer.usage {
        delta["usage"] = json!({"output_tokens": output});
    }
    events.push(delta);
    if answer.stop != StopAs::Missing {
        events.push(json!({"type": "message_stop"}));
    }
    let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect()
}

fn anthropic_document(answer: &Filled) -> Value {
    let mut content = Vec::new();
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for call in &answer.calls {
        content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": object(&call.arguments)}));
    }
    let stop = answer.stop("end_turn", "tool_use", "max_tokens", "refusal");
    let mut document = json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": answer.model,
        "content": content, "stop_reason": stop, "stop_sequence": null});
    if let Some(usage) = answer.usage {
        document["usage"] = anthropic_usage(usage);
    }
    document
}

fn gemini_events(answer: &Filled) -> Vec<String> {
    let pieces = answer.pieces(&answer.text);
    let mut chunks: Vec<Value> = pieces.iter().map(|piece| gemini_chunk(answer, piece, &[], false)).collect();
    chunks.push(gemini_chunk(answer, "", &answer.calls, true));
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

fn gemini_chunk(answer: &Filled, text: &str, calls: &[FilledCall], last: bool) -> Value {
    let mut parts = Vec::new();
    if !text.is_empty() || calls.is_empty() {
        parts.push(json!({"text": text}));
    }
    for call in calls {
        parts.push(json!({"functionCall": {"name": call.name, "args": object(&call.arguments)}}));
    }
    let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
    if last {
        candidate["finishReason"] = answer.stop("STOP", "STOP", "MAX_TOKENS", "SAFETY");
    }
    let mut chunk = json!({"candidates": [candidate], "modelVersion": answer.model});
    if let Some((input, output, cached)) = answer.usage {
        chunk["usageMetadata"] = json!({"promptTokenCount": input, "candidatesTokenCount": output,
            "totalTokenCount": input.saturating_add(output), "cachedContentTokenCount": cached});
    }
    chunk
}

/// Arguments where the format wants an object and not its text.
fn object(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| json!({}))
}
