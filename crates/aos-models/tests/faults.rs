//! The pool against a server that misbehaves in every way we know of, over real HTTP.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aos_abi::inference::{Encoding, Failure, FailureKind, Message, NativeCall, Part, Prompt, Reply, Stop};
use aos_abi::limits::REPLY_BYTES_MAX;
use aos_abi::syscall::CallSet;
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Call, Fault, Rule, Script, Server, StopAs, UsageAs, When};
use aos_models::{ModelConfig, Options, Pool, Provider, Retries, Timeouts, Written};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PROVIDERS: [Provider; 3] = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
const EFFECT: EffectId = EffectId { cause: Lsn(41), nth: 0 };
const KEY: &str = "sk-very-secret-0123456789";

fn prompt() -> Prompt {
    Prompt {
        system: "You are process 7.".to_owned(),
        messages: vec![Message::User(vec![Part::Text("begin".to_owned())])],
        status: String::new(),
        tools: CallSet::all(),
        encoding: Encoding::Native,
        max_output: 500,
    }
}

/// Retries as in earnest, but without the wait.
fn options(retries_max: u32) -> Options {
    Options { retries: Retries { retries_max, base: Duration::ZERO, ..Retries::default() }, ..Options::default() }
}

fn pool_of(config: ModelConfig, options: Options) -> Pool {
    let env = |name: &str| (name == "THE_KEY").then(|| KEY.to_owned());
    Pool::new(BTreeMap::from([("m".to_owned(), config)]), Arc::new(env), options)
}

async fn start(rules: Vec<Rule>) -> Server {
    Server::start(Script::new(rules)).await.unwrap()
}

/// One inference against these rules, and how many requests it took.
async fn infer(provider: Provider, rules: Vec<Rule>) -> (Result<Reply, Failure>, u64) {
    let server = start(rules).await;
    let pool = pool_of(server.model(provider), options(2));
    let result = pool.infer("m", &prompt(), EFFECT, |_| ()).await;
    (result, server.count())
}

fn status(status: u16, body: &str) -> Fault {
    Fault::Status { status, body: body.to_owned(), headers: BTreeMap::new() }
}

fn told_to_wait(code: u16, name: &str, value: &str) -> Fault {
    let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    Fault::Status { status: code, body: "{}".to_owned(), headers }
}

fn body(content_type: &str, body: &str) -> Fault {
    Fault::Body { content_type: content_type.to_owned(), body: body.to_owned() }
}

fn faulty(fault: Fault) -> Rule {
    Rule { fault: Some(fault), ..Rule::always(vec![long()]) }
}

fn once(fault: Fault) -> Rule {
    Rule { times: Some(1), ..faulty(fault) }
}

fn ok() -> Rule {
    Rule::always(vec![Answer::text("fine")])
}

/// An answer of many events.
fn long() -> Answer {
    Answer { chunk_bytes: 8, ..Answer::text("some text that is long enough to be cut in the middle") }
}

/// More than the first text in any of the formats, and less than all of it.
const MIDDLE: usize = 900;

#[tokio::test]
async fn an_endless_retry_on_a_permanent_error_does_not_happen() {
    let quota = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    for provider in PROVIDERS {
        for (code, said) in [(400, "{}"), (401, "{}"), (402, "{}"), (403, "{}"), (404, "{}"), (302, ""), (429, quota)] {
            let (result, requests) = infer(provider, vec![faulty(status(code, said))]).await;
            let failure = result.unwrap_err();
            assert_eq!((failure.kind, requests), (FailureKind::Permanent, 1), "{provider:?} {code}: {failure:?}");
            assert!(failure.hint.is_some(), "{provider:?} {code}: a person is told what to do");
        }
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_three_times_and_no_more() {
    let html = "<!doctype html><title>Sign in</title>";
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    let faults = [
        status(408, ""),
        status(409, ""),
        status(425, ""),
        status(429, "{}"),
        status(500, "oops"),
        status(503, html),
        status(529, "{}"),
        body("application/json", "{\"choices\": [{]"),
        body("text/plain", "the server is warming up"),
        body("text/event-stream", ""),
        body("text/event-stream", "data: not json\n\n"),
        body("text/event-stream", "data: [DONE]\n\n"),
        body("application/json", &deep),
        body("text/event-stream", &format!("data: {deep}\n\n")),
        Fault::Reset,
        Fault::Event {
            after_bytes: 0,
            data: r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#.into(),
        },
    ];
    for provider in PROVIDERS {
        for fault in &faults {
            let (result, requests) = infer(provider, vec![faulty(fault.clone())]).await;
            let failure = result.unwrap_err();
            assert_eq!((failure.kind, requests), (FailureKind::Transient, 3), "{provider:?} {fault:?}: {failure:?}");
            assert!(failure.message.len() < 600 && !failure.message.chars().any(char::is_control), "{failure:?}");
            let (result, requests) = infer(provider, vec![once(fault.clone()), ok()]).await;
            assert_eq!((result.unwrap().text.as_str(), requests), ("fine", 2), "{provider:?} {fault:?} passed");
        }
    }
}

/// An address that is somebody else's was asked three times over, six times, for half a minute.
#[tokio::test]
async fn a_web_page_is_asked_for_once_more_and_then_says_that_the_address_is_wrong() {
    let page = body("text/html", "<!doctype html><title>Sign in</title>");
    for provider in PROVIDERS {
        let (result, requests) = infer(provider, vec![faulty(page.clone())]).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.kind, requests), (FailureKind::Permanent, 2), "{provider:?}: {failure:?}");
        assert!(failure.hint.unwrap().contains("base_url") && failure.usage.is_none());
        let (result, requests) = infer(provider, vec![once(page.clone()), ok()]).await;
        assert_eq!((result.unwrap().text.as_str(), requests), ("fine", 2), "{provider:?}: in passing");
    }
}

/// It was asked three times for nothing each time, and six times over.
#[tokio::test]
async fn an_answer_that_is_something_else_is_paid_and_not_asked_for_again() {
    for provider in PROVIDERS {
        for said in ["{}", r#"{"request_id":"r-1"}"#, r#"{"choices":"later","type":7,"candidates":7}"#, "[]"] {
            let (result, requests) = infer(provider, vec![faulty(body("application/json", said))]).await;
            let failure = result.unwrap_err();
            assert_eq!((failure.kind, requests), (FailureKind::Permanent, 1), "{provider:?} {said}: {failure:?}");
            let usage = failure.usage.unwrap();
            assert!(usage.estimated && usage.output_tokens == 500 && usage.input_tokens > 0, "{usage:?}");
            assert!(failure.hint.unwrap().contains("base_url"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_wait_that_the_server_asks_for_is_honoured_or_handed_back() {
    for (name, value) in
        [("retry-after", "0"), ("retry-after-ms", "5"), ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]
    {
        let (result, requests) = infer(Provider::Openai, vec![once(told_to_wait(429, name, value)), ok()]).await;
        assert_eq!((result.unwrap().text.as_str(), requests), ("fine", 2), "{name}: {value}");
    }
    for (name, value) in [("retry-after", "3600"), ("retry-after-ms", "3600000")] {
        let (result, requests) = infer(Provider::Openai, vec![once(told_to_wait(429, name, value)), ok()]).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.kind, failure.retry_after_ms, requests), (FailureKind::Transient, Some(3_600_000), 1));
    }
    // An epoch in place of a span, a date, and what fits no clock: a model is never silent for longer than a day.
    for (name, value) in [
        ("retry-after", "1700000000"),
        ("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT"),
        ("retry-after-ms", "1e18"),
        ("x-ratelimit-reset-requests", "9999h"),
    ] {
        for code in [402, 429] {
            let mut fault = told_to_wait(code, name, value);
            let Fault::Status { headers, .. } = &mut fault else { panic!("{fault:?}") };
            headers.insert("x-ratelimit-remaining-requests".to_owned(), "0".to_owned());
            let failure = infer(Provider::Openai, vec![faulty(fault)]).await.0.unwrap_err();
            assert_eq!(failure.retry_after_ms, Some(86_400_000), "{code} {name}: {value}");
        }
    }
    let delay = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"1700000000s"}]}}"#;
    let failure = infer(Provider::Gemini, vec![faulty(status(429, delay))]).await.0.unwrap_err();
    assert_eq!(failure.retry_after_ms, Some(86_400_000));
    let (result, _) = infer(Provider::Openai, vec![faulty(told_to_wait(402, "retry-after", "3600"))]).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.kind, failure.retry_after_ms), (FailureKind::Permanent, Some(3_600_000)));
    assert!(failure.hint.unwrap().contains("until "), "a spent quota says when it renews");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_and_one_that_is_refused_have_their_own_kinds() {
    let too_long = r#"{"error":{"message":"maximum context length is 8192 tokens, reduce max_tokens","code":"context_length_exceeded"}}"#;
    let filtered = r#"{"error":{"message":"The prompt triggered our policy","code":"content_filter"}}"#;
    for provider in PROVIDERS {
        for (said, kind) in [(too_long, FailureKind::TooLong), (filtered, FailureKind::Refused)] {
            let (result, requests) = infer(provider, vec![faulty(status(400, said))]).await;
            assert_eq!((result.unwrap_err().kind, requests), (kind, 1), "{provider:?} {said}");
        }
        let refusal = Answer { stop: StopAs::Refused, ..long() };
        let (result, requests) = infer(provider, vec![Rule::always(vec![refusal])]).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.kind, requests), (FailureKind::Refused, 1), "{provider:?}: {failure:?}");
        assert!(failure.usage.is_some_and(|usage| usage.output_tokens > 0), "{provider:?}: it cost all the same");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_kept_and_not_bought_twice() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let faults = [
        Fault::Cut { after_bytes: MIDDLE },
        Fault::Event { after_bytes: MIDDLE, data: "not json".to_owned() },
        Fault::Event { after_bytes: MIDDLE, data: overloaded.to_owned() },
    ];
    for provider in PROVIDERS {
        for fault in &faults {
            let (result, requests) = infer(provider, vec![faulty(fault.clone())]).await;
            let reply = result.unwrap();
            assert_eq!((reply.stop, requests), (Stop::Length, 1), "{provider:?} {fault:?}");
            let whole = long().text;
            assert!(whole.starts_with(&reply.text) && !reply.text.is_empty() && reply.text.len() < whole.len());
        }
        let unmarked = Answer { stop: StopAs::Missing, ..long() };
        let (result, _) = infer(provider, vec![Rule::always(vec![unmarked])]).await;
        assert_eq!(result.unwrap().stop, Stop::Length, "{provider:?}: an end without the provider's mark is a cut");
        let limited = Answer { stop: StopAs::Length, ..long() };
        let (result, _) = infer(provider, vec![Rule::always(vec![limited])]).await;
        assert_eq!(result.unwrap().stop, Stop::Length, "{provider:?}");
    }
}

/// A provider bills what it was working on, whether or not it was heard; and one inference is all that was set aside.
#[tokio::test]
async fn an_answer_that_breaks_off_before_its_first_word_is_paid_and_not_asked_for_again() {
    for provider in PROVIDERS {
        for plain in [false, true] {
            let cut = Fault::Cut { after_bytes: 20 };
            let rule = Rule { fault: Some(cut), ..Rule::always(vec![Answer { plain, ..long() }]) };
            let (result, requests) = infer(provider, vec![rule]).await;
            let failure = result.unwrap_err();
            assert_eq!((failure.kind, requests), (FailureKind::Transient, 1), "{provider:?} {plain}: {failure:?}");
            let usage = failure.usage.unwrap();
            assert_eq!((usage.output_tokens, usage.estimated), (500, true), "{provider:?} {plain}");
            assert!(usage.input_tokens > 100, "{provider:?} {plain}: {usage:?}");
        }
    }
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"let me see"}}]}"#;
    let thinks = body("text/event-stream", &format!("data: {thought}\n\n"));
    let (result, requests) = infer(Provider::Openai, vec![faulty(thinks)]).await;
    assert_eq!((result.unwrap_err().usage.unwrap().output_tokens, requests), (500, 1));
}

/// What a server says was used before it failed is believed, and what fails before anything was used costs nothing.
#[tokio::test]
async fn a_server_that_fails_is_paid_what_it_says() {
    let begun = r#"{"type":"message_start","message":{"usage":{"input_tokens":900,"output_tokens":1}}}"#;
    let failed = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let stream = format!("event: message_start\ndata: {begun}\n\nevent: error\ndata: {failed}\n\n");
    let (result, requests) = infer(Provider::Anthropic, vec![faulty(body("text/event-stream", &stream))]).await;
    let usage = result.unwrap_err().usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, requests), (900, 0, 1));
    for provider in PROVIDERS {
        for fault in [status(503, "{}"), Fault::Reset, body("text/html", "<html>"), body("text/event-stream", "")] {
            let (result, _) = infer(provider, vec![faulty(fault.clone())]).await;
            assert_eq!(result.unwrap_err().usage, None, "{provider:?} {fault:?}");
        }
    }
}

/// What stands between may end a connection that is silent for too long, whatever the server behind it is doing.
#[tokio::test]
async fn a_server_that_breaks_off_after_a_long_silence_is_paid() {
    for last_words in ["", "408 Request Timeout", "504 Gateway Timeout", "524 A Timeout Occurred"] {
        let (result, tries) = silent_then(Duration::from_secs(60), last_words).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.kind, tries), (FailureKind::Transient, 1), "{last_words}: {failure:?}");
        assert_eq!(failure.usage.map(|usage| usage.output_tokens), Some(500), "{last_words}");
    }
    let (result, tries) = silent_then(Duration::from_secs(1), "504 Gateway Timeout").await;
    assert_eq!((result.unwrap_err().usage, tries), (None, 3), "nothing stands behind it");
}

/// Whether all of a request has come: a head, and JSON.
fn is_whole(request: &[u8]) -> bool {
    let head = request.windows(4).position(|end| end == b"\r\n\r\n");
    head.is_some_and(|at| serde_json::from_slice::<serde_json::Value>(&request[at + 4..]).is_ok())
}

/// An inference by a server that says nothing for so long, and then this status or nothing at all; how often it was asked.
async fn silent_then(silence: Duration, last_words: &'static str) -> (Result<Reply, Failure>, u64) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let tries = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&tries);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !is_whole(&request) && stream.read_buf(&mut request).await.unwrap() > 0 {}
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::pause();
            tokio::time::sleep(silence).await;
            tokio::time::resume();
            if !last_words.is_empty() {
                let answer = format!("HTTP/1.1 {last_words}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    let server = start(vec![ok()]).await;
    let pool = pool_of(ModelConfig { base_url: Some(base_url), ..server.model(Provider::Openai) }, options(2));
    let result = pool.infer("m", &prompt(), EFFECT, |_| ()).await;
    serving.abort();
    (result, tries.load(Ordering::Relaxed))
}

/// Anthropic counts one token at the beginning of an answer: that is not what it came to.
#[tokio::test]
async fn what_is_said_at_the_beginning_of_an_answer_that_breaks_off_is_not_its_price() {
    let events = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":900,"output_tokens":1}}}"#.to_owned(),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm ".repeat(100)}})
            .to_string(),
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Well"}}"#.to_owned(),
    ];
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let (result, _) = infer(Provider::Anthropic, vec![faulty(body("text/event-stream", &stream))]).await;
    let reply = result.unwrap();
    assert_eq!((reply.stop, reply.text.as_str()), (Stop::Length, "Well"));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.estimated), (900, 102, true));
}

/// Everything but the end mark and usage has come when the connection ends: that is a whole answer.
#[tokio::test]
async fn an_answer_that_loses_only_its_epilogue_is_whole() {
    let finished = r#"{"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#;
    let stream = format!("data: {finished}\n\n");
    let (result, requests) = infer(Provider::Openai, vec![faulty(body("text/event-stream", &stream))]).await;
    let reply = result.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop, requests), ("done", Stop::End, 1));
    assert!(reply.usage.estimated);
}

/// The clock is stopped once the first text has come; then it jumps to the next deadline when all is idle.
#[tokio::test]
async fn a_stall_in_the_middle_ends_the_answer() {
    let server = start(vec![faulty(Fault::Stall { after_bytes: MIDDLE })]).await;
    let pool = pool_of(server.model(Provider::Openai), options(0));
    let (mut paused, mut bytes) = (false, 0);
    let result = pool
        .infer("m", &prompt(), EFFECT, |delta| {
            if let aos_models::Delta::Text(text) = delta {
                bytes += text.len();
            }
            if !std::mem::replace(&mut paused, true) {
                tokio::time::pause();
            }
        })
        .await;
    let reply = result.unwrap();
    assert_eq!((reply.stop, reply.text.len()), (Stop::Length, bytes));
    assert!(reply.usage.estimated && reply.usage.output_tokens > 0, "what came has to be paid: {:?}", reply.usage);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    for fault in [Fault::Hang, Fault::Stall { after_bytes: 0 }] {
        let server = start(vec![faulty(fault)]).await;
        let pool = pool_of(server.model(Provider::Openai), options(2));
        let stop_clock = async {
            while server.count() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::pause();
        };
        let prompt = prompt();
        let (result, ()) = tokio::join!(pool.infer("m", &prompt, EFFECT, |_| ()), stop_clock);
        tokio::time::resume();
        let failure = result.unwrap_err();
        assert_eq!((failure.kind, server.count()), (FailureKind::Transient, 1));
        assert_eq!(failure.usage.unwrap().output_tokens, 500, "it may have been thinking all the while");
    }
}

#[tokio::test]
async fn a_dropped_inference_leaves_the_pool_usable() {
    let server = start(vec![once(Fault::Hang), ok()]).await;
    let pool = pool_of(server.model(Provider::Openai), options(0));
    let prompt = prompt();
    let asked = async {
        while server.count() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = pool.infer("m", &prompt, EFFECT, |_| ()) => panic!("it hangs"),
        () = asked => {}
    }
    assert_eq!(pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap().text, "fine");
}

#[tokio::test]
async fn megabytes_are_cut() {
    for provider in PROVIDERS {
        for plain in [false, provider == Provider::Openai] {
            let answer = Answer { plain, ..Answer::default() };
            let rule = Rule { fault: Some(Fault::Megabytes { megabytes: 9 }), ..Rule::always(vec![answer]) };
            let (result, requests) = infer(provider, vec![rule]).await;
            let reply = result.unwrap();
            assert_eq!(
                (reply.stop, reply.text.len(), requests),
                (Stop::Length, REPLY_BYTES_MAX, 1),
                "{provider:?} {plain}"
            );
        }
    }
    let rule = Rule {
        fault: Some(Fault::Megabytes { megabytes: 19 }),
        ..Rule::always(vec![Answer { plain: true, ..Answer::default() }])
    };
    let (result, _) = infer(Provider::Openai, vec![rule]).await;
    assert_eq!(result.unwrap_err().kind, FailureKind::Transient, "a document without end is not gathered");
}

#[tokio::test]
async fn usage_that_is_missing_or_too_low_is_estimated() {
    let lies = [
        UsageAs::Missing,
        UsageAs::Said { input: -5, output: -1, cached: -9 },
        UsageAs::Said { input: 0, output: 0, cached: 0 },
    ];
    for provider in PROVIDERS {
        for usage in &lies {
            let answer = Answer { usage: usage.clone(), ..long() };
            let (result, _) = infer(provider, vec![Rule::always(vec![answer])]).await;
            let used = result.unwrap().usage;
            assert!(used.estimated, "{provider:?} {usage:?}: {used:?}");
            assert!((100..100_000).contains(&used.input_tokens), "{provider:?} {usage:?}: {used:?}");
            assert!((1..100).contains(&used.output_tokens), "{provider:?} {usage:?}: {used:?}");
            assert_eq!(used.cached_input_tokens, 0);
        }
        // What is more than can have been is not made less of here: whoever set aside what it may cost charges all of that.
        let most = UsageAs::Said { input: i64::MAX, output: i64::MAX, cached: 0 };
        let (result, _) = infer(provider, vec![Rule::always(vec![Answer { usage: most, ..long() }])]).await;
        let used = result.unwrap().usage;
        assert!(used.input_tokens.min(used.output_tokens) >= i64::MAX as u64, "{provider:?}: {used:?}");
        let answer = Answer { usage: UsageAs::Said { input: 900, output: 12, cached: 700 }, ..long() };
        let (result, _) = infer(provider, vec![Rule::always(vec![answer])]).await;
        let used = result.unwrap().usage;
        assert_eq!((used.input_tokens, used.output_tokens, used.cached_input_tokens), (900, 12, 700), "{provider:?}");
        assert!(!used.estimated);
    }
}

#[tokio::test]
async fn odd_calls_are_passed_on_as_they_are() {
    let broken = Call { raw_args: Some(r#"{"path":"#.to_owned()), ..Call::new("FS_READ", json!({})) };
    let twin = |path: &str| Call { id: Some("same".to_owned()), ..Call::new("FS_READ", json!({"path": path})) };
    for provider in [Provider::Openai, Provider::Anthropic] {
        let answer = Answer { calls: vec![broken.clone(), twin("a"), twin("b")], ..Answer::default() };
        let server = start(vec![Rule::always(vec![answer, Answer::text("fine")])]).await;
        let pool = pool_of(server.model(provider), options(0));
        let mut prompt = prompt();
        let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
        let arguments: Vec<&str> = reply.calls.iter().map(|call| &*call.arguments).collect();
        assert_eq!(arguments, [r#"{"path":"#, r#"{"path":"a"}"#, r#"{"path":"b"}"#], "{provider:?}");
        assert_eq!((reply.calls[1].id.as_str(), reply.calls[2].id.as_str()), ("same", ""), "{provider:?}");
        prompt.messages.push(Message::Assistant { text: String::new(), calls: reply.calls });
        assert_eq!(pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap().text, "fine");
        let sent = String::from_utf8(server.requests()[1].body.to_vec()).unwrap();
        assert!(sent.contains("malformed_arguments"), "{provider:?}: the history is an object all the same: {sent}");
    }
}

/// No piece of it is late, so only the time for all of it ends it: what came is the answer, and nothing is asked again. The
/// clock goes on by what comes, however fast this machine is.
#[tokio::test(start_paused = true)]
async fn an_answer_that_trickles_is_cut_when_its_whole_time_is_over() {
    const BETWEEN: Duration = Duration::from_secs(10);
    let (over, waits) = std::sync::mpsc::channel::<()>();
    // While this runs the clock does not go on by itself.
    let still = tokio::task::spawn_blocking(move || waits.recv());
    for provider in PROVIDERS {
        let all = "drop ".repeat(20_000);
        // Many words of the answer are in each piece.
        let drip = Answer { chunk_bytes: 2, write_bytes: 4_000, write_delay_ms: 10_000, ..Answer::text(all.clone()) };
        let server = start(vec![Rule::always(vec![drip])]).await;
        let pool = pool_of(server.model(provider), options(2));
        let began = tokio::time::Instant::now();
        let (mut bytes, came) = (0, tokio::sync::Notify::new());
        let prompt = prompt();
        let answered = pool.infer("m", &prompt, EFFECT, |delta| {
            if let aos_models::Delta::Text(text) = delta {
                bytes += text.len();
            }
            came.notify_one();
        });
        let clock = async {
            loop {
                came.notified().await;
                tokio::time::advance(BETWEEN).await;
            }
        };
        let reply = tokio::select! {
            reply = answered => reply.unwrap(),
            () = clock => unreachable!("it goes on for ever"),
        };
        let total = Timeouts::default().total;
        assert!((total..total + 2 * BETWEEN).contains(&began.elapsed()), "{provider:?}: {:?}", began.elapsed());
        assert!(0 < bytes && bytes < all.len(), "{provider:?}: {bytes}");
        assert_eq!((reply.stop, reply.text.len(), server.count()), (Stop::Length, bytes, 1), "{provider:?}");
        assert!(reply.usage.estimated && reply.usage.output_tokens > 0, "{provider:?}: {:?}", reply.usage);
    }
    drop(over);
    still.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn an_empty_answer_is_a_reply_and_a_slow_drip_is_whole() {
    for provider in PROVIDERS {
        let (result, requests) = infer(provider, vec![Rule::always(vec![Answer::default()])]).await;
        let reply = result.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop, requests), ("", Stop::End, 1), "{provider:?}");
        let drip = Answer { write_bytes: 1, chunk_bytes: 2, ..Answer::text("grüße 😀 日本") };
        let (result, _) = infer(provider, vec![Rule::always(vec![drip])]).await;
        assert_eq!(result.unwrap().text, "grüße 😀 日本", "{provider:?}");
        let plain = Answer { plain: true, calls: vec![Call::new("SLEEP", json!({"seconds": 1}))], ..long() };
        let (result, _) = infer(provider, vec![Rule::always(vec![plain])]).await;
        let reply = result.unwrap();
        assert_eq!((reply.text, reply.stop), (long().text, Stop::Calls), "{provider:?}: a server that does not stream");
        assert_eq!(reply.calls[0].arguments, r#"{"seconds":1}"#, "{provider:?}");
    }
}

#[tokio::test]
async fn a_field_that_a_server_does_not_know_is_left_out_from_then_on() {
    let refuse = |field: &str| Rule {
        when: When { body: Some(format!("\"{field}\"")), ..When::default() },
        fault: Some(status(400, &format!(r#"{{"error":{{"message":"Unrecognized request argument: {field}"}}}}"#))),
        ..Rule::default()
    };
    let server = start(vec![refuse("stream_options"), refuse("max_tokens"), ok()]).await;
    let pool = pool_of(server.model(Provider::Openai), options(0));
    for requests in [3, 4] {
        assert_eq!(pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap().text, "fine");
        assert_eq!(server.count(), requests, "learned in the first inference, known in the second");
    }
    let last = String::from_utf8(server.requests()[3].body.to_vec()).unwrap();
    assert!(last.contains("\"max_completion_tokens\":500") && !last.contains("stream_options"), "{last}");
    // A server that refuses both names is not asked for ever.
    let server = start(vec![refuse("max_tokens"), refuse("max_completion_tokens"), ok()]).await;
    let pool = pool_of(server.model(Provider::Openai), options(2));
    let failure = pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert_eq!((failure.kind, server.count()), (FailureKind::Permanent, 2));
}

/// Mistral's API: a result, and behind it the status.
#[tokio::test]
async fn a_server_that_refuses_a_user_behind_a_result_is_sent_a_word_between_them_from_then_on() {
    let said = r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","code":"3230"}"#;
    let refuse = Rule {
        when: When { body: Some("\"content\":\"{}\"},{\"role\":\"user\"".to_owned()), ..When::default() },
        fault: Some(status(400, said)),
        ..Rule::default()
    };
    let call = NativeCall { id: "c00000288".to_owned(), name: "FS_LIST".to_owned(), arguments: "{}".to_owned() };
    let result = Message::Result { call_id: call.id.clone(), name: call.name.clone(), content: "{}".to_owned() };
    let mut prompt = Prompt { status: "now".to_owned(), ..prompt() };
    prompt.messages.extend([Message::Assistant { text: String::new(), calls: vec![call] }, result]);
    let server = start(vec![refuse, ok()]).await;
    let pool = pool_of(server.model(Provider::Openai), options(0));
    let mut written = Written::default();
    for requests in [2, 3] {
        assert_eq!(pool.go_on("m", &prompt, EFFECT, &mut written, |_| ()).await.unwrap().text, "fine");
        assert_eq!(server.count(), requests, "learned in the first inference, known in the second");
        let again = prompt.messages[1..].to_vec();
        prompt.messages.extend(again);
    }
    let last = String::from_utf8(server.requests()[2].body.to_vec()).unwrap();
    assert_eq!(last.matches(r#"{"role":"assistant","content":"Understood."},{"role":"user""#).count(), 1, "{last}");
}

#[tokio::test]
async fn the_key_goes_into_a_header_and_nowhere_else() {
    let echo = format!(r#"{{"error":{{"message":"bad key {KEY} for you"}}}}"#);
    let faults = [
        status(401, &echo),
        status(500, &echo),
        status(418, &format!("<html>{KEY}")),
        body("text/event-stream", &format!("data: {KEY}\n\n")),
        body("text/event-stream", &format!("data: {echo}\n\n")),
        told_to_wait(302, "location", &format!("http://evil.example/{KEY}")),
    ];
    for (provider, header) in
        [(Provider::Openai, "authorization"), (Provider::Anthropic, "x-api-key"), (Provider::Gemini, "x-goog-api-key")]
    {
        for fault in &faults {
            let server = start(vec![faulty(fault.clone())]).await;
            let config = ModelConfig { api_key_env: Some("THE_KEY".to_owned()), ..server.model(provider) };
            let pool = pool_of(config, options(0));
            let failure = pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
            assert!(!format!("{failure:?} {pool:?}").contains("very-secret"), "{provider:?} {fault:?}: {failure:?}");
            let request = &server.requests()[0];
            assert!(request.headers[header].to_str().unwrap().ends_with(KEY));
            assert!(!request.path.contains(KEY) && !String::from_utf8_lossy(&request.body).contains(KEY));
        }
    }
}

#[tokio::test]
async fn what_is_configured_wrongly_is_named() {
    let server = start(vec![ok()]).await;
    let base = server.model(Provider::Openai);
    let with_key = |name: &str| ModelConfig { api_key_env: Some(name.to_owned()), ..base.clone() };
    let at = |address: &str| ModelConfig { base_url: Some(address.to_owned()), ..base.clone() };
    let cases = [
        (with_key("NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (at("not an address"), "base_url"),
        (at("ftp://127.0.0.1/v1"), "base_url"),
        (at("http://me:secret-word@127.0.0.1/v1"), "base_url"),
        (ModelConfig::new(Provider::Local, "tiny"), "local runtime"),
    ];
    for (config, named) in cases {
        let pool = pool_of(config, options(2));
        let failure = pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Permanent, "{failure:?}");
        let words = format!("{failure:?}");
        assert!(words.contains(named) && !words.contains("secret-word"), "{words}");
    }
    let pool =
        Pool::new(BTreeMap::from([("m".to_owned(), with_key("K"))]), Arc::new(|_| Some("a\nb".to_owned())), options(0));
    let failure = pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert!(failure.message.contains('K') && failure.kind == FailureKind::Permanent, "{failure:?}");
    let failure = pool.infer("other", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert_eq!((failure.kind, failure.hint.as_deref()), (FailureKind::Permanent, Some("configured are: m")));
    assert_eq!(server.count(), 0, "nothing was asked of any server");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_transient_and_says_so() {
    // Bound and dropped again, so that nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = ModelConfig::new(Provider::Openai, "x");
    config.base_url = Some(format!("http://127.0.0.1:{port}/v1"));
    let failure = pool_of(config, options(2)).infer("m", &prompt(), EFFECT, |_| ()).await.unwrap_err();
    assert!(failure.kind == FailureKind::Transient && failure.unreachable, "{failure:?}");
    assert!(failure.message.starts_with(&format!("cannot connect to 127.0.0.1:{port}")), "{failure:?}");
    assert_eq!(failure.hint.as_deref(), Some("is the model server running?"));
}

#[tokio::test]
async fn connections_are_used_again() {
    for provider in PROVIDERS {
        for write_bytes in [0, 100] {
            let server = start(vec![Rule::always(vec![Answer { write_bytes, ..long() }])]).await;
            let pool = pool_of(server.model(provider), options(0));
            for _ in 0..20 {
                pool.infer("m", &prompt(), EFFECT, |_| ()).await.unwrap();
            }
            assert_eq!((server.count(), server.connections()), (20, 1), "{provider:?} {write_bytes}");
        }
    }
}

#[tokio::test]
async fn a_model_can_be_checked_and_its_server_listed() {
    for provider in PROVIDERS {
        let server = start(vec![ok()]).await;
        let pool = pool_of(server.model(provider), options(0));
        let checked = pool.check("m").await.unwrap();
        assert_eq!(checked.reply.text, "fine", "{provider:?}");
        assert_eq!(pool.list("m").await.unwrap(), ["scripted"], "{provider:?}");
        let body = String::from_utf8(server.requests()[0].body.to_vec()).unwrap();
        assert!(body.len() < 500, "a check is small: {body}");
    }
}
