//! Why an inference failed, told from a status, headers and an error body: each provider's wording, one set of kinds.
//!
//! Start at [`classify`]. What always holds: what is quoted is short, on one line and without the key; only what time
//! may mend is [`FailureKind::Transient`]; a failure that a person can mend carries a hint that says how.
//! Deliberately absent: waiting, which is `retry`'s.

use std::time::Duration;

use aos_abi::inference::{Failure, FailureKind};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::answer::head;
use crate::{openai, retry};

/// Most bytes of a provider's own words in a message.
const QUOTE_BYTES_MAX: usize = 300;

/// Whom a failure is about; what messages and hints name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// The configured name.
    pub(crate) name: &'a str,
    /// The provider's name for the model.
    pub(crate) model: &'a str,
    /// Host and port.
    pub(crate) host: &'a str,
    /// The variable the key came from.
    pub(crate) key_env: Option<&'a str>,
    /// The key itself, to be taken out of whatever is quoted. Never shown.
    pub(crate) key: Secret<'a>,
    /// The request is another program's, not an agent's.
    pub(crate) program: bool,
}

/// A key that no `Debug` shows.
#[derive(Clone, Copy)]
pub(crate) struct Secret<'a>(pub(crate) &'a str);

impl std::fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[key]")
    }
}

/// A failure that time may mend.
pub(crate) fn transient(message: impl Into<String>) -> Failure {
    let (kind, message) = (FailureKind::Transient, message.into());
    Failure { kind, message, hint: None, retry_after_ms: None, usage: None, unreachable: false }
}

/// A failure that only a person can mend, and how.
pub(crate) fn permanent(message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Permanent, hint: Some(hint.into()), ..transient(message) }
}

/// What an error body says, whatever its form.
#[derive(Debug, Default)]
struct Said {
    message: String,
    /// Types, codes and statuses, as one string.
    kind: String,
    /// A status inside the body, for errors that come in the middle of an answer.
    status: Option<u16>,
    /// Gemini's `RetryInfo`.
    retry_after: Option<Duration>,
}

/// The failure that an answer with this status stands for.
pub(crate) fn classify(status: u16, headers: &HeaderMap, body: &[u8], about: &About<'_>) -> Failure {
    let said = read(body);
    let now = retry::now_millis();
    let wait = retry::wait_asked(headers, now).or(said.retry_after);
    judge(status, &said, wait, headers, about)
}

/// The failure that an error event in the middle of an answer stands for.
pub(crate) fn classify_event(error: &Value, about: &About<'_>) -> Failure {
    let said = said(error);
    let status = said.status.unwrap_or_else(|| status_of(&said.kind));
    judge(status, &said, said.retry_after, &HeaderMap::new(), about)
}

fn judge(status: u16, said: &Said, wait: Option<Duration>, headers: &HeaderMap, about: &About<'_>) -> Failure {
    let words = format!("{} {}", said.message, said.kind).to_lowercase();
    let any = |patterns: &[&str]| patterns.iter().any(|pattern| words.contains(pattern));
    let told =
        if said.message.trim().is_empty() { String::new() } else { format!(": {}", quote(&said.message, about.key.0)) };
    let answered = format!("{} answered {status}{told}", about.host);
    let retry_after_ms =
        wait.map(|wait| u64::try_from(wait.min(retry::WAIT_ASKED_MAX).as_millis()).unwrap_or(u64::MAX));

    // OpenAI's word for any field; of one in a message it says that the prompt is too long, of an id not.
    let long_text = words.contains("string_above_max_length") && words.contains(".content");
    if status != 401 && (long_text || any(TOO_LONG)) {
        let hint = format!("set context_window of [models.{}] to what the server really has", about.name);
        return Failure { kind: FailureKind::TooLong, hint: Some(hint), ..transient(answered) };
    }
    if status == 413 {
        let hint = format!("set a smaller context_window for [models.{}], or let the server take more", about.name);
        return Failure { kind: FailureKind::TooLarge, hint: Some(hint), ..transient(answered) };
    }
    // It comes with statuses of all kinds, 500 among them, and no time mends it. A program's tools are its own affair.
    if !about.program && status >= 400 && lacks_tools(&words) {
        let hint =
            format!("set tools = \"text\" in [models.{}] of aos.toml: calls are then written as text", about.name);
        return permanent(answered, hint);
    }
    // An agent's request is written here, so what is wrong with it a person must mend; a program's is its own affair.
    let programs = about.program && matches!(status, 400 | 422) && !owners(said);
    if status == 402 || any(NO_CREDIT) && !programs {
        let until = wait.map(|wait| format!(" until {}", retry::moment(wait))).unwrap_or_default();
        let hint = format!("there is no credit left{until}; add some at the provider, or choose another model");
        return Failure { retry_after_ms, ..permanent(answered, hint) };
    }
    if matches!(status, 400 | 403 | 422) && any(FILTERED) {
        let hint = "other content may pass; asking the same again will not".to_owned();
        return Failure { kind: FailureKind::Refused, hint: Some(hint), ..transient(answered) };
    }
    if programs {
        let hint = "change the request, or name a model of another provider".to_owned();
        return Failure { kind: FailureKind::Refused, hint: Some(hint), ..transient(answered) };
    }
    match status {
        408 | 409 | 425 | 429 | 499 | 500..=599 => Failure { retry_after_ms, ..transient(answered) },
        300..=399 => {
            let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            permanent(
                answered,
                format!("set base_url of [models.{}] to where it points: {}", about.name, quote(to, about.key.0)),
            )
        }
        _ => permanent(answered, hint(status, &words, about)),
    }
}

/// Whether a refusal of a request is about what is the owner's all the same. Only its codes and its first words say so: what
/// follows may be the program's own words.
fn owners(said: &Said) -> bool {
    let (message, kind) = (said.message.trim_start().to_lowercase(), said.kind.to_lowercase());
    OWNERS.iter().any(|begins| message.starts_with(begins))
        || NO_CREDIT.iter().chain(OWNERS_CODES).any(|code| kind.contains(code))
}

fn hint(status: u16, words: &str, about: &About<'_>) -> String {
    let name = about.name;
    match (status, about.key_env) {
        _ if words.contains("api key not valid") || words.contains("api_key_invalid") => {
            format!("check the key in {}", about.key_env.unwrap_or("the variable that api_key_env names"))
        }
        (401 | 403, Some(variable)) => format!("check the key in {variable}, and that it may use {}", about.model),
        (401 | 403, None) => format!("no key was sent; name its variable with api_key_env in [models.{name}]"),
        (404 | 405, _) if words.contains("model") => {
            format!("the server has no model {}; `aos models test {name}` lists what it has", about.model)
        }
        (404 | 405, _) => {
            format!("check base_url of [models.{name}]; for servers like OpenAI's it usually ends in /v1")
        }
        _ if openai::ORDER_REFUSED.iter().any(|said| words.contains(said)) => {
            format!("set tools = \"text\" in [models.{name}]")
        }
        _ => format!("the request does not suit this server; try `aos models test {name}`"),
    }
}

/// How servers say that a prompt does not fit, in lower case. OpenAI and vLLM; llama-server; Anthropic (two); Gemini;
/// Ollama; LM Studio; Groq; Mistral.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "exceed_context_size",
    "exceeds the available context size",
    "prompt is too long",
    "exceed context limit",
    "input token count",
    "exceeds the maximum number of tokens",
    "exceeded max context length",
    "initial prompt is greater than the context length",
    "reduce the length of the messages",
    "too large for model with",
    "exceeds the context window",
];

/// Whether a server says, in lower case here, that it or the model makes no tool calls.
pub(crate) fn lacks_tools(words: &str) -> bool {
    NO_TOOLS.iter().any(|said| words.contains(said))
}

/// How servers say that tools are not theirs, in lower case. Ollama; vLLM (two); llama-server (three); OpenRouter;
/// DeepInfra; Groq; DeepSeek; Gemini, for Gemma.
const NO_TOOLS: &[&str] = &[
    "does not support tools",
    "tool choice requires",
    "requires --tool-call-parser",
    "tools param requires --jinja",
    "unsupported param: tools",
    "unable to generate parser for this template",
    "no endpoints found that support tool use",
    "tool calling is not supported",
    "tool calling` is not supported",
    "does not support function calling",
    "function calling is not enabled for",
];

/// How servers say that no credit is left. OpenAI (two); Anthropic; OpenRouter and DeepSeek; Gemini's prepaid plans.
const NO_CREDIT: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
    "billing_error",
    "prepayment credits are depleted",
];

/// How a refusal with 400 begins that is about credit, a limit or a key. Anthropic (two); Gemini.
const OWNERS: &[&str] =
    &["your credit balance is too low", "you have reached your specified api usage limits", "api key"];

/// Its codes. Gemini (a key; a country or a bill).
const OWNERS_CODES: &[&str] = &["api_key_invalid", "failed_precondition"];

/// How servers say that they will not process a prompt. Azure; OpenAI (two); Anthropic; Gemini.
const FILTERED: &[&str] = &[
    "content_filter",
    "content management policy",
    "content_policy_violation",
    "blocked by content filtering policy",
    "flagged as potentially violating",
    "prohibited_content",
];

/// The status for which an error's type stands: Anthropic's types and Google's status names. Unknown: 500, since the
/// server broke off after it had accepted the request.
fn status_of(kind: &str) -> u16 {
    const KNOWN: &[(&str, u16)] = &[
        ("invalid_request", 400),
        ("INVALID_ARGUMENT", 400),
        ("FAILED_PRECONDITION", 400),
        ("authentication_error", 401),
        ("UNAUTHENTICATED", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("PERMISSION_DENIED", 403),
        ("not_found", 404),
        ("NOT_FOUND", 404),
        ("request_too_large", 413),
        ("rate_limit", 429),
        ("RESOURCE_EXHAUSTED", 429),
        ("overloaded", 529),
        ("UNAVAILABLE", 503),
    ];
    KNOWN.iter().find(|(name, _)| kind.contains(name)).map_or(500, |(_, status)| *status)
}

fn read(body: &[u8]) -> Said {
    match serde_json::from_slice::<Value>(body) {
        // Gemini wraps errors of a stream in an array.
        Ok(Value::Array(values)) => values.first().map(said).unwrap_or_default(),
        Ok(value) => said(&value),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let html = text.trim_start().starts_with('<');
            let message = if html { "a web page instead of an error".to_owned() } else { text.into_owned() };
            Said { message, ..Said::default() }
        }
    }
}

fn said(value: &Value) -> Said {
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let message = [error.get("message"), error.get("detail"), value.get("message"), value.get("detail")]
        .into_iter()
        .flatten()
        .map(text)
        .find(|message| !message.is_empty())
        .unwrap_or_else(|| text(error));
    let of = |key: &str| error.get(key).map(text).unwrap_or_default();
    let inner = error.get("innererror").and_then(|inner| inner.get("code")).map(text).unwrap_or_default();
    // Google says why in `details`: `{"@type": "…ErrorInfo", "reason": "API_KEY_INVALID"}`.
    let details = error.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let reasons: String = details.iter().filter_map(|detail| detail["reason"].as_str()).collect::<Vec<_>>().join(" ");
    let retry_after = details
        .iter()
        .find_map(|detail| detail["retryDelay"].as_str())
        .and_then(|delay| delay.strip_suffix('s')?.parse::<f64>().ok())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    Said {
        message,
        kind: format!("{} {} {} {inner} {reasons}", of("type"), of("code"), of("status")),
        status: status.filter(|status| (400..600).contains(status)),
        retry_after,
    }
}

/// A provider's words as they may be shown: at most 300 bytes, no control characters, no key.
pub(crate) fn quote(text: &str, key: &str) -> String {
    // The key goes first, so that no cut leaves a part of it that is no longer recognised.
    let text = if key.is_empty() { text.to_owned() } else { text.replace(key, "[key]") };
    let mut clean = String::with_capacity(text.len().min(QUOTE_BYTES_MAX));
    for word in text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty()) {
        if clean.len() > QUOTE_BYTES_MAX {
            break;
        }
        if !clean.is_empty() {
            clean.push(' ');
        }
        clean.push_str(word);
    }
    if clean.len() > QUOTE_BYTES_MAX {
        // Room for the ellipsis, which is three bytes.
        clean.truncate(head(&clean, QUOTE_BYTES_MAX - 3).len());
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'_> = About {
        name: "small",
        model: "gpt-x",
        host: "api.example",
        key_env: Some("THE_KEY"),
        key: Secret("sk-secret-1"),
        program: false,
    };

    fn kind(status: u16, body: &str) -> FailureKind {
        classify(status, &HeaderMap::new(), body.as_bytes(), &ABOUT).kind
    }

    /// Before, llama-server's came with 500, which was asked again and again, and OpenRouter's with a hint about the address.
    #[test]
    fn a_server_without_tools_is_told_with_the_way_out() {
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"registry.ollama.ai/library/gemma3:4b does not support tools","type":"api_error"}}"#,
            ),
            (
                400,
                r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","code":400}"#,
            ),
            (500, r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#),
            (500, r#"{"error":{"code":500,"message":"Unsupported param: tools","type":"server_error"}}"#),
            (404, r#"{"error":{"message":"No endpoints found that support tool use. Try another model","code":404}}"#),
            (405, r#"{"error":{"message":"Tool calling is not supported for model: a/b","type":"APIError"}}"#),
            (
                400,
                r#"{"error":{"message":"deepseek-reasoner does not support Function Calling","type":"invalid_request_error"}}"#,
            ),
        ] {
            let failure = classify(status, &HeaderMap::new(), body.as_bytes(), &ABOUT);
            assert_eq!(failure.kind, FailureKind::Permanent, "{body}");
            assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains("tools = \"text\"")), "{failure:?}");
            let program = classify(status, &HeaderMap::new(), body.as_bytes(), &About { program: true, ..ABOUT });
            assert!(!format!("{program:?}").contains("aos.toml"), "a program's tools are its own: {program:?}");
        }
    }

    /// Bodies as the providers' documentation and users' reports show them.
    #[test]
    fn each_providers_wording_has_its_kind() {
        use FailureKind::{Permanent, Refused, TooLarge, TooLong, Transient};
        let table = [
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000","type":"BadRequestError","code":400}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size","type":"exceed_context_size_error"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 1 + 2 > 3"}}"#,
                TooLong,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                TooLarge,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":{"message":"Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1100000 instead.","type":"invalid_request_error","param":"messages[1].content","code":"string_above_max_length"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":{"message":"Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 46 instead.","type":"invalid_request_error","param":"messages[2].tool_calls[0].id","code":"string_above_max_length"}}"#,
                Permanent,
            ),
            (500, r#"{"error":"prompt too long; exceeded max context length by 12 tokens"}"#, TooLong),
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Permanent,
            ),
            (404, r#"{"error":{"message":"The model `gpt-9` does not exist","code":"model_not_found"}}"#, Permanent),
            (403, "<html>no</html>", Permanent),
            (
                400,
                r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                Permanent,
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Permanent,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
                Permanent,
            ),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Permanent),
            (
                400,
                r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
                Refused,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
                Refused,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#,
                Transient,
            ),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Transient),
            (503, "upstream connect error", Transient),
            (502, "<!doctype html><p>Bad gateway", Transient),
            (408, "", Transient),
            (409, "", Transient),
            (425, "", Transient),
            (302, "", Permanent),
            (422, r#"{"detail":[{"loc":["body"],"msg":"extra fields not permitted"}]}"#, Permanent),
        ];
        for (status, body, expected) in table {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_programs_request_is_the_programs_and_the_rest_the_owners() {
        use FailureKind::{Permanent, Refused, TooLarge, Transient};
        let kind = |status, error: &str| {
            let body = format!(r#"{{"error":{error}}}"#);
            classify(status, &HeaderMap::new(), body.as_bytes(), &About { program: true, ..ABOUT }).kind
        };
        for (status, error, expected) in [
            (400, r#"{"message":"temperature: range: 0..1","type":"invalid_request_error"}"#, Refused),
            (422, r#"{"message":"stop: too many"}"#, Refused),
            (413, "{}", TooLarge),
            (400, r#"{"message":"Invalid schema for function 'insufficient_quota'","code":"invalid_schema"}"#, Refused),
            (400, r#"{"message":"Invalid value: 'API key not valid'"}"#, Refused),
            (400, r#"{"message":"Your credit balance is too low to access the Anthropic API."}"#, Permanent),
            (400, r#"{"message":"You have reached your specified API usage limits."}"#, Permanent),
            (400, r#"{"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}"#, Permanent),
            (400, r#"{"message":"Your country is not served","status":"FAILED_PRECONDITION"}"#, Permanent),
            (429, r#"{"message":"x","code":"insufficient_quota"}"#, Permanent),
            (401, "{}", Permanent),
            (403, "{}", Permanent),
            (404, "{}", Permanent),
            (500, "{}", Transient),
        ] {
            assert_eq!(kind(status, error), expected, "{status} {error}");
        }
    }

    #[test]
    fn an_error_event_takes_its_status_from_its_type() {
        let event = |text: &str| classify_event(&serde_json::from_str(text).unwrap(), &ABOUT).kind;
        assert_eq!(
            event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            FailureKind::Transient
        );
        assert_eq!(event(r#"{"error":{"code":429,"message":"slow down"}}"#), FailureKind::Transient);
        assert_eq!(event(r#"{"error":{"type":"authentication_error","message":"no"}}"#), FailureKind::Permanent);
        assert_eq!(event(r#"{"error":"something broke"}"#), FailureKind::Transient);
    }

    #[test]
    fn a_permanent_failure_says_what_to_do() {
        let hint = |status, body: &str| classify(status, &HeaderMap::new(), body.as_bytes(), &ABOUT).hint.unwrap();
        insta::assert_snapshot!(hint(401, "{}"), @"check the key in THE_KEY, and that it may use gpt-x");
        insta::assert_snapshot!(hint(404, r#"{"error":"model 'gpt-x' not found"}"#), @"the server has no model gpt-x; `aos models test small` lists what it has");
        insta::assert_snapshot!(hint(404, "404 page not found"), @"check base_url of [models.small]; for servers like OpenAI's it usually ends in /v1");
        insta::assert_snapshot!(hint(400, r#"{"error":"gemma does not support tools"}"#), @r#"set tools = "text" in [models.small] of aos.toml: calls are then written as text"#);
        insta::assert_snapshot!(hint(400, r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","code":"3230"}"#), @r#"set tools = "text" in [models.small]"#);
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT".parse().unwrap());
        let failure = classify(402, &headers, b"", &ABOUT);
        assert!(failure.hint.unwrap().contains("until 2099-10-21T07:28"), "the end time is told");
    }

    #[test]
    fn what_is_quoted_is_short_clean_and_without_the_key() {
        let said = format!("bad key sk-secret-1\u{1b}[31m\n\tred {}", "é".repeat(400));
        let quoted = quote(&said, "sk-secret-1");
        assert!(quoted.starts_with("bad key [key] [31m red é"), "{quoted}");
        assert!(quoted.len() <= QUOTE_BYTES_MAX && quoted.ends_with('…'));
        assert!(!quoted.chars().any(char::is_control));
        assert!(!format!("{ABOUT:?}").contains("sk-secret"));
    }
}
