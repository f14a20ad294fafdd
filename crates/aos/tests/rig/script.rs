//! Scripts in few words, and what a recorded request shows of them.
//!
//! Start at [`any`] for a rule and [`words`] for a request.

use aos_models::scripted::{Answer, Call, Rule, When};
use serde_json::Value;

/// An answer that is text.
pub(crate) fn say(text: &str) -> Answer {
    Answer::text(text)
}

/// An answer that is one call.
pub(crate) fn call(name: &str, args: Value) -> Answer {
    calls(vec![Call::new(name, args)])
}

/// An answer of several calls.
pub(crate) fn calls(calls: Vec<Call>) -> Answer {
    Answer { calls, ..Answer::default() }
}

/// Writing a file.
pub(crate) fn write(path: &str, content: &str) -> Answer {
    call("FS_WRITE", serde_json::json!({ "path": path, "content": content }))
}

/// What to answer where some message holds `text`, by step.
pub(crate) fn any(text: &str, answers: Vec<Answer>) -> Rule {
    Rule { when: When { any: Some(text.to_owned()), ..When::default() }, answers, ..Rule::default() }
}

/// What to answer where the last turn holds `text`, by step.
pub(crate) fn last(text: &str, answers: Vec<Answer>) -> Rule {
    Rule { when: When { last: Some(text.to_owned()), ..When::default() }, answers, ..Rule::default() }
}

/// What to answer to the process whose role holds `text`, by step.
pub(crate) fn role(text: &str, answers: Vec<Answer>) -> Rule {
    Rule { when: When { system: Some(text.to_owned()), ..When::default() }, answers, ..Rule::default() }
}

/// What to answer where the last turn matches; groups are `{{1}}` and so on.
pub(crate) fn regex(pattern: &str, answers: Vec<Answer>) -> Rule {
    Rule { when: When { regex: Some(pattern.to_owned()), ..When::default() }, answers, ..Rule::default() }
}

/// The answer to what a person sent: `echo: TEXT`.
pub(crate) fn echo() -> Rule {
    regex(r"\[input, [^\]]*\]\n([^\n]*)", vec![say("echo: {{1}}")])
}

/// All text of a request's messages, the system prompt included, in order.
pub(crate) fn words(request: &Value) -> String {
    fn gather(value: &Value, into: &mut String) {
        match value {
            Value::String(text) => {
                into.push_str(text);
                into.push('\n');
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
            Value::Object(fields) => {
                for key in ["content", "text"] {
                    if let Some(value) = fields.get(key) {
                        gather(value, into);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut text = String::new();
    gather(&request["messages"], &mut text);
    text
}

/// The results that a request shows, in order: the id of the call and what it came to.
pub(crate) fn results(request: &Value) -> Vec<(String, Value)> {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let content = message["content"].as_str().unwrap_or_default();
            let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
            (id, serde_json::from_str(content).unwrap_or_else(|_| Value::String(content.to_owned())))
        })
        .collect()
}

/// The ids of the calls that a request shows, in order.
pub(crate) fn call_ids(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array());
    calls.flatten().map(|call| call["id"].as_str().unwrap_or_default().to_owned()).collect()
}
