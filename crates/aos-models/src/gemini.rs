//! Google's `generateContent`.
//!
//! Start at [`body`] for the way out and [`event`] for the way back; a whole answer and a piece of a stream have the
//! same form. What always holds: bytes that change from one inference to the next stand behind those that do not.
//! Calls and results are bound by order and name, since ids are not part of every version of this format.
//! Format: ai.google.dev/api/generate-content.

use std::borrow::Cow;

use aos_abi::inference::Stop;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Answer, Finish, Reported};
use crate::tools::{Shape, Tools, gemini_schema};
use crate::turns::{self, Piece, Role, Turn};
use crate::wire::{Count, Text, Unread, lenient};
use crate::wishes::{Calling, Form, Request};

/// What stands for the signature of the thought behind a call, which Gemini 3 and what comes after it want for each call in
/// the history; `None` for those before it. The history does not keep signatures; this is the value that the documentation
/// names for calls without one (ai.google.dev/gemini-api/docs/thought-signatures). What an alias such as
/// `gemini-flash-latest` stands for is not known here, so it counts as new.
pub(crate) fn signature(model: &str) -> Option<&'static str> {
    let before = ["gemini-1", "gemini-2", "gemma", "learnlm"];
    let model = model.trim_start_matches("models/");
    (!before.iter().any(|name| model.starts_with(name))).then_some("skip_thought_signature_validator")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    // Behind the contents: it follows what the budget still affords.
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequences: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_schema: Option<Value>,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Part<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<Blob<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: &'a str,
    args: Cow<'a, RawValue>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    name: &'a str,
    response: Cow<'a, RawValue>,
}

/// The request's body.
pub(crate) fn body(request: &Request<'_>, tools: &Tools) -> Vec<u8> {
    let Request { model, prompt, wishes } = *request;
    let declared = request.declared(Shape::Gemini, tools);
    let form = wishes.and_then(|wishes| wishes.form.as_ref());
    let signature = signature(model);
    let instruction = Part { text: Some(Cow::Borrowed(&prompt.system)), ..Part::default() };
    let body = Body {
        tools: declared.as_deref(),
        tool_config: wishes.and_then(|wishes| wishes.calling.as_ref()).map(tool_config),
        system_instruction: (!prompt.system.is_empty()).then(|| Content { role: None, parts: vec![instruction] }),
        contents: request.turns().into_iter().map(|turn| content(turn, signature)).collect(),
        generation_config: GenerationConfig {
            max_output_tokens: prompt.max_output,
            temperature: wishes.and_then(|wishes| wishes.temperature),
            top_p: wishes.and_then(|wishes| wishes.top_p),
            stop_sequences: wishes.map(|wishes| wishes.stop.as_slice()).filter(|stop| !stop.is_empty()),
            response_mime_type: form.map(|_| "application/json"),
            response_schema: form.and_then(|form| match form {
                Form::Json => None,
                Form::Schema { schema, .. } => Some(gemini_schema(schema)),
            }),
        },
    };
    serde_json::to_vec(&body).expect("strings and numbers can be written as JSON")
}

fn tool_config(calling: &Calling) -> Value {
    let (mode, only) = match calling {
        Calling::Auto => ("AUTO", None),
        Calling::Nothing => ("NONE", None),
        Calling::Any => ("ANY", None),
        Calling::Only(name) => ("ANY", Some(name)),
    };
    match only {
        None => json!({"functionCallingConfig": {"mode": mode}}),
        Some(name) => json!({"functionCallingConfig": {"mode": mode, "allowedFunctionNames": [name]}}),
    }
}

fn content<'a>(turn: Turn<'a>, mut signature: Option<&'static str>) -> Content<'a> {
    let role = match turn.role {
        Role::User => "user",
        Role::Assistant => "model",
    };
    let part = |piece| match piece {
        Piece::Text(text) => Part { text: Some(text), ..Part::default() },
        Piece::Status(text) => Part { text: Some(Cow::Borrowed(text)), ..Part::default() },
        Piece::Image { media_type, base64 } => {
            Part { inline_data: Some(Blob { mime_type: media_type, data: base64 }), ..Part::default() }
        }
        Piece::Call(call) => Part {
            function_call: Some(FunctionCall { name: &call.name, args: turns::object(&call.arguments) }),
            // Of calls side by side only the first carries one.
            thought_signature: signature.take(),
            ..Part::default()
        },
        Piece::Result { name, content, .. } => {
            Part { function_response: Some(FunctionResponse { name, response: response(content) }), ..Part::default() }
        }
    };
    Content { role: Some(role), parts: turn.pieces.into_iter().map(part).collect() }
}

/// A result as the object that this format wants.
fn response(content: &str) -> Cow<'_, RawValue> {
    let trimmed = content.trim();
    if trimmed.starts_with('{')
        && let Ok(raw) = serde_json::from_str::<&RawValue>(trimmed)
    {
        return Cow::Borrowed(raw);
    }
    let wrapped = serde_json::json!({ "output": content }).to_string();
    Cow::Owned(RawValue::from_string(wrapped).expect("written as JSON just above"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default)]
    prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(default, deserialize_with = "lenient")]
    usage_metadata: Option<UsageFields>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default)]
    content: Option<ContentIn<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_message: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct ContentIn<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<PartIn<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartIn<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(default)]
    thought: bool,
    #[serde(borrow, default)]
    function_call: Option<FunctionCallIn<'a>>,
}

#[derive(Deserialize)]
struct FunctionCallIn<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow, default)]
    block_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageFields {
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    candidates_token_count: Count,
    #[serde(default)]
    thoughts_token_count: Count,
    #[serde(default)]
    cached_content_token_count: Count,
}

/// Takes one event of a stream, or a whole answer.
pub(crate) fn event(data: &str, answer: &mut Answer<'_>) -> Result<(), Unread> {
    if data.trim_start().starts_with('[') {
        // The same stream without `alt=sse`, as some proxies pass it on.
        for chunk in serde_json::from_str::<Vec<&RawValue>>(data)? {
            take(chunk.get(), answer)?;
        }
        return Ok(());
    }
    take(data, answer)
}

/// Takes one chunk. A list of chunks is none: how deep lists lie in lists is the server's choice, and the stack has an end.
fn take(chunk: &str, answer: &mut Answer<'_>) -> Result<(), Unread> {
    let chunk: Chunk<'_> = serde_json::from_str(chunk)?;
    if let Some(error) = chunk.error {
        return Err(Unread::Error(error.get().to_owned()));
    }
    if let Some(usage) = &chunk.usage_metadata {
        let (said, thought) = (usage.candidates_token_count.0, usage.thoughts_token_count.0);
        answer.reported = Reported {
            input: usage.prompt_token_count.0,
            output: said.or(thought.map(|_| 0)).map(|said| said.saturating_add(thought.unwrap_or(0))),
            cached: usage.cached_content_token_count.0,
            cache_write: None,
            reasoning: thought,
        };
    }
    if let Some(reason) = chunk.prompt_feedback.and_then(|feedback| feedback.block_reason) {
        answer.understood = true;
        answer.finish = Some(Finish::Refused(format!("the prompt was blocked ({})", reason.0)));
    }
    let Some(candidate) = chunk.candidates.into_iter().flatten().next() else { return Ok(()) };
    answer.understood = true;
    for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
        if let Some(call) = part.function_call {
            answer.open_call(None, call.id.as_ref().map_or("", |id| &id.0), &call.name.0);
            answer.push_arguments(None, call.args.map_or("{}", RawValue::get));
        } else if let Some(text) = part.text.filter(|_| !part.thought) {
            answer.push_text(&text.0);
        }
    }
    match candidate.finish_reason {
        Some(reason) => finish(&reason.0, candidate.finish_message.as_ref().map_or("", |words| &words.0), answer),
        None => Ok(()),
    }
}

fn finish(reason: &str, words: &str, answer: &mut Answer<'_>) -> Result<(), Unread> {
    answer.finish = match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => return Ok(()),
        "MAX_TOKENS" => Some(Finish::Stop(Stop::Length)),
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE" | "IMAGE_SAFETY" => {
            Some(Finish::Refused(format!("the answer was blocked ({reason}) {words}")))
        }
        // The model wrote a call that the provider could not read, and the answer is empty: another try may do better.
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MISSING_THOUGHT_SIGNATURE"
            if !answer.usable() =>
        {
            let error = serde_json::json!({"code": 503, "message": format!("{reason} {words}")});
            return Err(Unread::Error(error.to_string()));
        }
        _ => Some(Finish::Stop(Stop::End)),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_signed_but_for_models_that_know_no_signatures() {
        for model in ["gemini-3-pro", "models/gemini-3.1-flash", "gemini-flash-latest", "gemini-4", "tunedModels/mine"]
        {
            assert!(signature(model).is_some(), "{model}");
        }
        for model in ["gemini-2.5-pro", "models/gemini-1.5-flash", "gemma-3-27b-it"] {
            assert!(signature(model).is_none(), "{model}");
        }
    }
}
