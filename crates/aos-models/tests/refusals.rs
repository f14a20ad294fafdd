//! What a refusal of a program's request teaches, and whose it is, over real HTTP.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aos_abi::inference::{FailureKind, Format};
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Fault, Rule, Script, Server, When};
use aos_models::{Asked, Options, Pool, Provider, Refusal, Relayed, Retries};
use bytes::Bytes;
use serde_json::{Value, json};

const EFFECT: EffectId = EffectId { cause: Lsn(41), nth: 0 };

async fn start(rules: Vec<Rule>) -> Server {
    Server::start(Script::new(rules)).await.unwrap()
}

fn pool(server: &Server, provider: Provider) -> Arc<Pool> {
    let options = Options { retries: Retries { base: Duration::ZERO, ..Retries::default() }, ..Options::default() };
    let models = BTreeMap::from([("m".to_owned(), server.model(provider))]);
    Arc::new(Pool::new(models, Arc::new(|_: &str| None), options))
}

/// Refuses with these words what holds this text, and serves everything else.
fn refusing(holds: &str, status: u16, words: &str) -> Vec<Rule> {
    let body = json!({"error": {"message": words, "type": "invalid_request_error"}}).to_string();
    let fault = Fault::Status { status, body, headers: BTreeMap::new() };
    let when = When { body: Some(holds.to_owned()), ..When::default() };
    vec![Rule { when, fault: Some(fault), ..Rule::default() }, Rule::always(vec![Answer::text("fine")])]
}

/// A request with these fields beside its model and its one message.
fn chat(more: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn relay(pool: &Arc<Pool>, format: Format, body: &Value) -> Result<Relayed, Refusal> {
    let asked = Asked::read(format, Bytes::from(body.to_string()))?;
    pool.relay("m", &asked, 1000, EFFECT, None).await
}

fn last(server: &Server) -> Value {
    serde_json::from_slice(&server.requests().last().unwrap().body).unwrap()
}

/// Servers repeat what they were sent in the words of a refusal, so those are not believed.
#[tokio::test]
async fn a_programs_own_fields_teach_nothing_of_the_server() {
    let schema = json!({"type": "function", "function": {"name": "max_tokens", "parameters": {}}});
    for (more, words) in [
        (json!({"max_tokens_x": 1}), "Unknown parameter: 'max_tokens_x'."),
        (json!({"odd": {"max_tokens": 1}}), "Unknown parameter: 'odd.max_tokens'. Use 'max_completion_tokens'."),
        (json!({"odd": 1, "tools": [schema]}), "unknown variant `max_tokens`, expected `max_completion_tokens`"),
        (json!({"odd": 1, "min_tokens": 9}), "min_tokens above max_tokens is not allowed"),
        (
            json!({"odd": 1, "stream": true, "stream_options": {"include_usage": true, "x": 1}}),
            "Unknown parameter: 'stream_options.x'.",
        ),
        (
            json!({"odd": 1, "stream": true, "stream_options": {"include_usage": true}}),
            "Unknown parameter: 'stream_options'.",
        ),
    ] {
        let server = start(refusing(if words.contains("tokens_x") { "tokens_x" } else { "\"odd\"" }, 400, words)).await;
        let pool = pool(&server, Provider::Openai);
        let refused = relay(&pool, Format::Chat, &chat(&more)).await.unwrap();
        assert_eq!(refused.status, 400, "{words}");
        let fair = relay(&pool, Format::Chat, &chat(&json!({"stream": true}))).await.unwrap();
        let sent = last(&server);
        assert_eq!((fair.status, &sent["max_tokens"]), (200, &json!(1000)), "{words}");
        assert_eq!(sent["stream_options"], json!({"include_usage": true}), "{words}");
    }
}

/// The words of whoever asks stand in the request however it is written.
#[tokio::test]
async fn a_refusal_that_comes_again_without_the_field_teaches_nothing() {
    let server = start(refusing("odd", 422, "Unrecognized: 'stream_options', 'max_tokens'")).await;
    let pool = pool(&server, Provider::Openai);
    let odd = json!({"model": "m", "max_tokens": 300, "messages": [{"role": "user", "content": "odd"}]});
    assert!(relay(&pool, Format::Messages, &odd).await.is_err());
    relay(&pool, Format::Chat, &chat(&json!({"stream": true}))).await.unwrap();
    let sent = last(&server);
    assert_eq!((&sent["max_tokens"], &sent["stream_options"]), (&json!(1000), &json!({"include_usage": true})));
}

/// What a server passes over has no effect: a limit under such a name would be none.
#[tokio::test]
async fn a_limit_does_not_come_right_under_a_name_that_the_server_may_not_know() {
    let server = start(refusing("\"max_tokens\"", 400, "min_tokens above max_tokens is not allowed")).await;
    let refused =
        relay(&pool(&server, Provider::Openai), Format::Chat, &chat(&json!({"min_tokens": 9}))).await.unwrap();
    assert_eq!((refused.status, server.count()), (400, 1));
}

#[tokio::test]
async fn a_refusal_of_what_was_added_is_remembered_once_the_rest_was_served() {
    let new =
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    for (holds, words, more, field) in [
        (
            "\"stream_options\"",
            "Extra inputs are not permitted: stream_options",
            json!({"stream": true}),
            "stream_options",
        ),
        ("\"max_tokens\"", new, json!({}), "max_tokens"),
        ("\"max_tokens\"", new, json!({"max_completion_tokens": 7}), "max_tokens"),
    ] {
        let server = start(refusing(holds, 400, words)).await;
        let pool = pool(&server, Provider::Openai);
        for requests in [2, 3] {
            assert_eq!(relay(&pool, Format::Chat, &chat(&more)).await.unwrap().status, 200, "{words}");
            assert_eq!((server.count(), &last(&server)[field]), (requests, &Value::Null), "{words}");
        }
    }
}

/// What is translated is the program's request all the same: it says nothing of the server, and no other model is asked.
#[tokio::test]
async fn what_a_server_finds_wrong_with_a_translated_request_is_a_refusal_of_that_request() {
    for (provider, format) in [
        (Provider::Anthropic, Format::Chat),
        (Provider::Gemini, Format::Chat),
        (Provider::Openai, Format::Responses),
        (Provider::Openai, Format::Messages),
    ] {
        for stream in [false, true] {
            for (status, kind) in [
                (400, FailureKind::Refused),
                (413, FailureKind::TooLarge),
                (422, FailureKind::Refused),
                (401, FailureKind::Permanent),
                (403, FailureKind::Permanent),
                (404, FailureKind::Permanent),
            ] {
                let body = match format {
                    Format::Responses => json!({"model": "m", "input": "hi", "stream": stream}),
                    _ => chat(&json!({"max_tokens": 300, "stream": stream})),
                };
                let server = start(refusing("", status, "temperature: range: 0..1")).await;
                let refused = relay(&pool(&server, provider), format, &body).await;
                let Err(Refusal::Failed(failure)) = refused else { panic!("{provider:?} {format:?}: {refused:?}") };
                assert_eq!((failure.kind, server.count()), (kind, 1), "{provider:?} {format:?} {status}");
                assert!(failure.message.contains("range: 0..1"), "{failure:?}");
            }
        }
    }
}

/// A server without credit serves nobody: that is not a program's to hear as its mistake.
#[tokio::test]
async fn what_is_the_owners_is_not_passed_on_as_a_programs_mistake() {
    let server = start(refusing("", 400, "Your credit balance is too low to access the Anthropic API.")).await;
    let refused = relay(&pool(&server, Provider::Anthropic), Format::Messages, &chat(&json!({"max_tokens": 9}))).await;
    let Err(Refusal::Failed(failure)) = refused else { panic!("{refused:?}") };
    assert_eq!(failure.kind, FailureKind::Permanent);
}
