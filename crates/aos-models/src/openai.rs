//! OpenAI's chat completions, and the many servers that speak them.
//!
//! Start at [`body`] for the way out and [`event`] for the way back; a whole answer and a piece of a stream have the
//! same reader. What always holds: bytes that change from one inference to the next stand behind those that do not,
//! so the request of a growing conversation begins with the last one. Format: platform.openai.com/docs/api-reference/chat.

use std::borrow::Cow;

use aos_abi::inference::{Encoding, Stop};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Answer, Finish, Reported};
use crate::gemini;
use crate::tools::{Shape, Tools};
use crate::turns::{self, Piece, Role, Turn};
use crate::wire::{Count, Text, Unread, lenient};
use crate::wishes::{self, Calling, Form, Request};
use crate::written::Written;

/// What a server turned out not to accept; learned from its refusal and kept per model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quirks(pub(crate) u8);

impl Quirks {
    /// It refuses `stream_options`.
    const NO_STREAM_OPTIONS: u8 = 1;
    /// It wants the other of `max_tokens` and `max_completion_tokens` than its address suggests.
    const OTHER_MAX_TOKENS: u8 = 2;
    /// It refuses a user's message right behind a result, as Mistral's API and the chat templates of its models do.
    pub(crate) const NO_USER_AFTER_TOOL: u8 = 4;

    fn has(self, quirk: u8) -> bool {
        self.0 & quirk != 0
    }

    /// Whether a stream may be asked to end with what it used.
    pub(crate) fn stream_options(self) -> bool {
        !self.has(Quirks::NO_STREAM_OPTIONS)
    }

    /// The field that says how long an answer may be, for a server at `address`. OpenAI itself wants the new name and
    /// refuses the old one for reasoning models; others often know only the old.
    pub(crate) fn limit_field(self, address: &str) -> &'static str {
        if address.contains("api.openai.com") != self.has(Quirks::OTHER_MAX_TOKENS) {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }
    }

    /// What a refusal of the order of our messages teaches; `None` where it teaches nothing new.
    pub(crate) fn learn_order(self, status: u16, body: &[u8]) -> Option<Quirks> {
        let words = String::from_utf8_lossy(body).to_lowercase();
        // llama-server answers 500 where a chat template refuses.
        let refused = matches!(status, 400 | 422 | 500) && ORDER_REFUSED.iter().any(|said| words.contains(said));
        (refused && !self.has(Quirks::NO_USER_AFTER_TOOL)).then_some(Quirks(self.0 | Quirks::NO_USER_AFTER_TOOL))
    }

    /// What a refusal teaches of the fields that are ours; `None` where it teaches nothing new.
    pub(crate) fn learn(self, status: u16, body: &[u8], ours: Ours) -> Option<Quirks> {
        if !matches!(status, 400 | 422) {
            return None;
        }
        let words = String::from_utf8_lossy(body).to_lowercase();
        // A prompt that is too long is also refused with words about `max_tokens`.
        if !NOT_ACCEPTED.iter().any(|said| words.contains(said)) {
            return None;
        }
        let learned = if ours.usage && names(&words, "stream_options") {
            Quirks::NO_STREAM_OPTIONS
        } else if ours.limit.is_some_and(|field| names(&words, field)) {
            Quirks::OTHER_MAX_TOKENS
        } else {
            return None;
        };
        (!self.has(learned)).then_some(Quirks(self.0 | learned))
    }
}

/// The fields of a request that may be written otherwise, as far as they are ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours {
    /// `stream_options`.
    pub(crate) usage: bool,
    /// The field that says how long an answer may be.
    pub(crate) limit: Option<&'static str>,
}

/// Whether a server names this very field, and none that only begins or ends so or lies in it.
pub(crate) fn names(words: &str, field: &str) -> bool {
    let goes_on = |next: char| next.is_alphanumeric() || matches!(next, '_' | '-');
    words.match_indices(field).any(|(at, _)| {
        let mut behind = words[at + field.len()..].chars();
        let inner = match behind.next() {
            Some('.') => behind.next().is_some_and(goes_on),
            next => next.is_some_and(goes_on),
        };
        !inner && !words[..at].chars().next_back().is_some_and(goes_on)
    })
}

/// How servers say that they do not accept a field, in lower case.
const NOT_ACCEPTED: &[&str] =
    &["unsupported", "not supported", "unrecognized", "unknown", "extra", "not permitted", "not allowed", "unexpected"];

/// How servers say that they refuse the order of messages, in lower case. Mistral's API (two); the chat templates of its
/// models, as vLLM and llama-server use them.
pub(crate) const ORDER_REFUSED: &[&str] =
    &["after role 'tool'", "invalid_request_message_order", "roles must alternate"];
/// What the model is shown as its own word between a result and what the user says.
const BRIDGE: &str = "Understood.";

/// In which way a server wants messages written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// With an answer of the model between a result and what the user says.
    bridged: bool,
    /// With this signature of the thought behind calls.
    signature: Option<&'static str>,
}

impl Way {
    pub(crate) fn of(model: &str, address: &str, quirks: Quirks) -> Way {
        let google = address.contains("generativelanguage.googleapis.com");
        let signature = gemini::signature(model).filter(|_| google);
        Way { bridged: quirks.has(Quirks::NO_USER_AFTER_TOOL), signature }
    }
}

/// What stands before the messages.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Content<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Extra>,
}

/// What Google's servers want beside a call (ai.google.dev/gemini-api/docs/openai).
#[derive(Serialize)]
struct Extra {
    google: Google,
}

#[derive(Serialize)]
struct Google {
    thought_signature: &'static str,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: Arguments<'a>,
}

/// An object as the string that this format wants.
#[derive(Clone)]
struct Arguments<'a>(Cow<'a, RawValue>);

impl Serialize for Arguments<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.get())
    }
}

/// Room for what is new in a request.
const NEW_BYTES: usize = 8 << 10;

/// The request's body for a server at `address`. What `written` has of it is not written again, and it has all that is
/// settled then; a program's conversation is written whole.
pub(crate) fn body(
    request: &Request<'_>,
    address: &str,
    tools: &Tools,
    quirks: Quirks,
    written: &mut Written,
) -> Vec<u8> {
    let Request { model, prompt, wishes } = *request;
    let declared = request.declared(Shape::Openai, tools);
    let format = match wishes.and_then(|wishes| wishes.form.as_ref()) {
        Some(form) => Some(wishes::raw(&response_format(form))),
        None if prompt.encoding == Encoding::Constrained => Some(tools.get(Shape::OpenaiConstrained, prompt.tools)),
        None => None,
    };
    let head = Head {
        model,
        stream: true,
        stream_options: quirks.stream_options().then_some(StreamOptions { include_usage: true }),
        tools: declared.as_deref(),
        response_format: format.as_deref(),
        tool_choice: wishes.and_then(|wishes| wishes.calling.as_ref()).map(tool_choice),
        temperature: wishes.and_then(|wishes| wishes.temperature),
        top_p: wishes.and_then(|wishes| wishes.top_p),
        stop: wishes.map(|wishes| wishes.stop.as_slice()).filter(|stop| !stop.is_empty()),
        reasoning_effort: wishes.and_then(|wishes| wishes.effort.as_deref()),
    };
    let fixed = declared.as_ref().or(format.as_ref()).map_or(0, |raw| raw.get().len()) + prompt.system.len();
    let mut body = Vec::with_capacity(fixed + written.bytes() + NEW_BYTES);
    write(&mut body, &head);
    // The head is an object that goes on.
    body.pop();
    body.extend_from_slice(b",\"messages\":[");
    if !prompt.system.is_empty() {
        write(&mut body, &Message::System { content: &prompt.system });
    }
    let way = Way::of(model, address, quirks);
    let (text, from) = written.so_far(prompt, way);
    let begin = body.len() + comma(&body).len();
    if from > 0 {
        body.extend_from_slice(comma(&body));
        body.extend_from_slice(text);
    }
    let settled = if wishes.is_some() { 0 } else { Written::settled(prompt) };
    say_all(&mut body, request.part(from..settled), way);
    written.put(prompt, way, settled, body.get(begin..).unwrap_or_default());
    say_all(&mut body, request.part(settled..prompt.messages.len()), way);
    let most = quirks.limit_field(address);
    // Behind the messages: it follows what the budget still affords.
    body.extend_from_slice(format!("],\"{most}\":{}}}", prompt.max_output).as_bytes());
    body
}

fn write(body: &mut Vec<u8>, part: &impl Serialize) {
    serde_json::to_writer(body, part).expect("strings and numbers can be written as JSON");
}

/// Turns as messages, each after a comma where something stands before it.
fn say_all(body: &mut Vec<u8>, turns: Vec<Turn<'_>>, way: Way) {
    let mut messages = Vec::new();
    for turn in turns {
        match turn.role {
            Role::User => user(turn, way, &mut messages),
            Role::Assistant => messages.push(assistant(turn, way)),
        }
        for message in messages.drain(..) {
            body.extend_from_slice(comma(body));
            write(body, &message);
        }
    }
}

/// What goes between this list and its next part.
fn comma(list: &[u8]) -> &'static [u8] {
    if list.ends_with(b"[") { b"" } else { b"," }
}

fn response_format(form: &Form) -> Value {
    match form {
        Form::Json => json!({"type": "json_object"}),
        Form::Schema { name, schema } => {
            json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema}})
        }
    }
}

fn tool_choice(calling: &Calling) -> Value {
    match calling {
        Calling::Auto => json!("auto"),
        Calling::Nothing => json!("none"),
        Calling::Any => json!("required"),
        Calling::Only(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

/// Results become messages of their own; what the user said around them becomes one message.
fn user<'a>(turn: Turn<'a>, way: Way, messages: &mut Vec<Message<'a>>) {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for piece in turn.pieces {
        match piece {
            Piece::Result { call_id, content, .. } => {
                say(&mut parts, way, messages);
                messages.push(Message::Tool { tool_call_id: call_id, content });
            }
            Piece::Text(text) => parts.push(Part::Text { text }),
            Piece::Status(text) => parts.push(Part::Text { text: Cow::Borrowed(text) }),
            Piece::Image { media_type, base64 } => {
                let url = format!("data:{media_type};base64,{base64}");
                parts.push(Part::ImageUrl { image_url: ImageUrl { url } });
            }
            Piece::Call(_) => unreachable!("a user makes no calls"),
        }
    }
    say(&mut parts, way, messages);
}

fn say<'a>(parts: &mut Vec<Part<'a>>, way: Way, messages: &mut Vec<Message<'a>>) {
    if !parts.is_empty() {
        if way.bridged && matches!(messages.last(), Some(Message::Tool { .. })) {
            let content = Content::Text(Cow::Borrowed(BRIDGE));
            messages.push(Message::Assistant { content, tool_calls: Vec::new() });
        }
        messages.push(Message::User { content: content(std::mem::take(parts)) });
    }
}

/// Plain text as a string, since many servers know no other form.
fn content(mut parts: Vec<Part<'_>>) -> Content<'_> {
    if parts.iter().any(|part| matches!(part, Part::ImageUrl { .. })) {
        return Content::Parts(parts);
    }
    if parts.len() == 1
        && let Some(Part::Text { text }) = parts.pop()
    {
        return Content::Text(text);
    }
    let texts: Vec<&str> = parts
        .iter()
        .map(|part| match part {
            Part::Text { text } => &**text,
            Part::ImageUrl { .. } => "",
        })
        .collect();
    Content::Text(Cow::Owned(texts.join("\n\n")))
}

fn assistant(turn: Turn<'_>, way: Way) -> Message<'_> {
    let mut signature = way.signature;
    let mut parts = Vec::new();
    let mut tool_calls = Vec::new();
    for piece in turn.pieces {
        match piece {
            Piece::Text(text) => parts.push(Part::Text { text }),
            Piece::Call(call) => {
                let arguments = Arguments(turns::object(&call.arguments));
                let function = Function { name: &call.name, arguments };
                // Of calls side by side only the first carries one.
                let extra_content =
                    signature.take().map(|thought_signature| Extra { google: Google { thought_signature } });
                tool_calls.push(ToolCall { id: &call.id, r#type: "function", function, extra_content });
            }
            Piece::Image { .. } | Piece::Result { .. } | Piece::Status(_) => {
                unreachable!("an answer holds text and calls")
            }
        }
    }
    Message::Assistant { content: content(parts), tool_calls }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<UsageFields>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Said<'a>>,
    /// In an answer that is not streamed.
    #[serde(borrow, default)]
    message: Option<Said<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    /// What it thinks, under the names that servers give it.
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    /// A string by the specification, an object from some servers.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct UsageFields {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens_details: Option<Details>,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default)]
    reasoning_tokens: Count,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Count,
}

#[derive(Deserialize)]
struct TextPart<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

/// Takes one event of a stream, or a whole answer.
pub(crate) fn event(data: &str, answer: &mut Answer<'_>) -> Result<(), Unread> {
    if data.trim() == "[DONE]" {
        answer.ended = true;
        return Ok(());
    }
    let chunk: Chunk<'_> = serde_json::from_str(data)?;
    if let Some(error) = chunk.error {
        return Err(Unread::Error(error.get().to_owned()));
    }
    let choices = chunk.choices.unwrap_or_default();
    answer.understood |= !choices.is_empty() || chunk.usage.is_some();
    if let Some(usage) = &chunk.usage {
        answer.reported = Reported {
            input: usage.prompt_tokens.0,
            output: usage.completion_tokens.0,
            cached: usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens.0),
            cache_write: None,
            reasoning: usage.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens.0),
        };
    }
    // One choice was asked for; a second one would be another answer.
    if let Some(choice) = choices.into_iter().next() {
        let whole = choice.message.is_some();
        if let Some(said) = choice.message.or(choice.delta) {
            take(said, answer)?;
        }
        if let Some(reason) = choice.finish_reason
            && !matches!(answer.finish, Some(Finish::Refused(_)))
        {
            answer.finish = finish(&reason.0).or(answer.finish.take());
        }
        answer.ended |= whole;
    }
    Ok(())
}

fn finish(reason: &str) -> Option<Finish> {
    match reason {
        "" => None,
        "length" | "max_tokens" => Some(Finish::Stop(Stop::Length)),
        "tool_calls" | "function_call" => Some(Finish::Stop(Stop::Calls)),
        "content_filter" => Some(Finish::Refused("its content filter stopped the answer".to_owned())),
        // `stop`, and what servers invent beside it, such as `eos`.
        _ => Some(Finish::Stop(Stop::End)),
    }
}

fn take(said: Said<'_>, answer: &mut Answer<'_>) -> Result<(), Unread> {
    if let Some(content) = said.content {
        match content.get().as_bytes().first() {
            Some(b'"') => answer.push_text(&serde_json::from_str::<Text<'_>>(content.get())?.0),
            Some(b'[') => {
                for part in serde_json::from_str::<Vec<TextPart<'_>>>(content.get())? {
                    answer.push_text(part.text.as_ref().map_or("", |text| &text.0));
                }
            }
            _ => {}
        }
    }
    // Some servers send it under both names.
    let thought = [said.reasoning_content, said.reasoning].into_iter().flatten().map(|text| text.get());
    answer.thinks(thought.filter(|text| text.starts_with('"')).map(|text| text.len() - 2).max().unwrap_or(0));
    if let Some(refusal) = said.refusal.filter(|refusal| !refusal.0.is_empty()) {
        // A refusal comes in pieces as well.
        match &mut answer.finish {
            Some(Finish::Refused(so_far)) if so_far.len() < 1000 => so_far.push_str(&refusal.0),
            Some(Finish::Refused(_)) => {}
            finish => *finish = Some(Finish::Refused(refusal.0.into_owned())),
        }
    }
    for piece in said.tool_calls.into_iter().flatten() {
        call(piece, answer)?;
    }
    Ok(())
}

/// A piece of a call. By the specification the first piece of each index has id and name and the rest only arguments.
/// Some servers send whole calls all with index 0, some leave the index out, some repeat the name in each piece.
fn call(piece: CallPiece<'_>, answer: &mut Answer<'_>) -> Result<(), Unread> {
    let id = piece.id.as_ref().map_or("", |id| &*id.0);
    let (name, arguments) = match piece.function {
        Some(function) => (function.name, function.arguments),
        None => (None, None),
    };
    let name = name.as_ref().map_or("", |name| &*name.0);
    let new = match answer.call(piece.index) {
        None => true,
        Some(open) if !id.is_empty() && !open.id.is_empty() => open.id != id,
        Some(_) => piece.index.is_none() && !name.is_empty(),
    };
    if new {
        answer.open_call(piece.index, id, name);
    }
    if let Some(arguments) = arguments {
        match arguments.get().as_bytes().first() {
            Some(b'"') => {
                answer.push_arguments(piece.index, &serde_json::from_str::<Text<'_>>(arguments.get())?.0);
            }
            Some(b'{') => answer.push_arguments(piece.index, arguments.get()),
            _ => {}
        }
    }
    Ok(())
}
