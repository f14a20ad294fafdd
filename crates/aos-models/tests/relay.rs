//! Programs' requests in each format, served by models of each provider, over real HTTP.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::inference::{FailureKind, Format, Reply};
use aos_abi::{EffectId, Lsn};
use aos_models::embed::{Embedder, Embedding, Vector, Wanted};
use aos_models::scripted::{Answer, Call, Fault, Rule, Script, Server, When};
use aos_models::{Asked, Ended, ModelConfig, Options, Pool, Provider, Refusal, Relayed, Retries, Veil};
use bytes::Bytes;
use serde_json::{Value, json};

const PROVIDERS: [Provider; 3] = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
const FORMATS: [Format; 3] = [Format::Chat, Format::Responses, Format::Messages];
const EFFECT: EffectId = EffectId { cause: Lsn(41), nth: 0 };

fn pool(server: &Server, provider: Provider) -> Arc<Pool> {
    let options = Options { retries: Retries { base: Duration::ZERO, ..Retries::default() }, ..Options::default() };
    let config = ModelConfig { api_key_env: Some("THE_KEY".to_owned()), ..server.model(provider) };
    let models = BTreeMap::from([("m".to_owned(), config)]);
    Arc::new(Pool::new(models, Arc::new(|_: &str| Some("sk-secret".to_owned())), options))
}

async fn start(rules: Vec<Rule>) -> Server {
    Server::start(Script::new(rules)).await.unwrap()
}

/// A request that says who the assistant is, has a call and its result behind it, and offers a tool.
fn request(format: Format, stream: bool) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    match format {
        Format::Chat => json!({"model": "m", "stream": stream, "max_tokens": 300, "temperature": 0.5, "stop": "END",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
                    "function": {"name": "weather", "arguments": "{\"city\":\"Paris\"}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "sun"}],
            "tools": [{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": schema}}],
            "tool_choice": "auto"}),
        Format::Responses => json!({"model": "m", "stream": stream, "max_output_tokens": 300, "temperature": 0.5,
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
                {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Paris\"}"},
                {"type": "function_call_output", "call_id": "c1", "output": "sun"}],
            "tools": [{"type": "function", "name": "weather", "description": "Tells it.", "parameters": schema}],
            "tool_choice": "auto"}),
        Format::Messages => json!({"model": "m", "stream": stream, "max_tokens": 300, "temperature": 0.5,
            "stop_sequences": ["END"], "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]}],
            "tools": [{"name": "weather", "description": "Tells it.", "input_schema": schema}],
            "tool_choice": {"type": "auto"}}),
        Format::Embeddings => json!({"model": "m", "input": ["Weather in Paris?", "Weather?"], "dimensions": 2}),
    }
}

async fn relay(pool: &Arc<Pool>, format: Format, body: &Value) -> Result<Relayed, Refusal> {
    let asked = Asked::read(format, Bytes::from(body.to_string()))?;
    pool.relay("m", &asked, 1000, EFFECT, None).await
}

async fn all(mut relayed: Relayed) -> (String, Ended) {
    let mut body = Vec::new();
    while let Some(piece) = relayed.next().await {
        body.extend_from_slice(&piece);
    }
    (String::from_utf8(body).unwrap(), relayed.ended())
}

/// Text and calls of an answer in a format, streamed or not.
fn told(format: Format, stream: bool, body: &str) -> (String, Vec<(String, String)>) {
    let events: Vec<Value> = if stream {
        let data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    } else {
        vec![serde_json::from_str(body).unwrap()]
    };
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (mut said, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for event in &events {
        match (format, stream) {
            (Format::Chat, _) => {
                let choice = &event["choices"][0];
                let part = if stream { &choice["delta"] } else { &choice["message"] };
                said += &text(&part["content"]);
                for call in part["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    match call["index"].as_u64().filter(|_| function["name"].is_null()) {
                        Some(index) => calls[index as usize].1 += &text(&function["arguments"]),
                        None => calls.push((text(&function["name"]), text(&function["arguments"]))),
                    }
                }
            }
            (Format::Responses, true) => {
                if event["type"] == "response.output_text.delta" {
                    said += &text(&event["delta"]);
                }
                if event["type"] == "response.completed" {
                    let (whole, also) = told(format, false, &event["response"].to_string());
                    assert_eq!(whole, said);
                    calls = also;
                }
            }
            (Format::Responses, false) => {
                for item in event["output"].as_array().unwrap() {
                    if item["type"] == "function_call" {
                        calls.push((text(&item["name"]), text(&item["arguments"])));
                    } else {
                        said += &text(&item["content"][0]["text"]);
                    }
                }
            }
            (Format::Messages, true) => {
                said += &text(&event["delta"]["text"]);
                if event["content_block"]["type"] == "tool_use" {
                    calls.push((text(&event["content_block"]["name"]), String::new()));
                }
                if let Some((_, arguments)) = calls.last_mut() {
                    *arguments += &text(&event["delta"]["partial_json"]);
                }
            }
            (Format::Messages, false) => {
                for block in event["content"].as_array().unwrap() {
                    if block["type"] == "tool_use" {
                        calls.push((text(&block["name"]), block["input"].to_string()));
                    } else {
                        said += &text(&block["text"]);
                    }
                }
            }
            (Format::Embeddings, _) => panic!("vectors say nothing: {event}"),
        }
    }
    (said, calls)
}

#[tokio::test]
async fn every_format_is_served_by_every_provider() {
    let answer = Answer {
        text: "It is \"sunny\" – really.".to_owned(),
        calls: vec![Call::new("weather", json!({"city": "Orléans"})), Call::new("weather", json!({"city": "Nice"}))],
        chunk_bytes: 3,
        ..Answer::default()
    };
    for provider in PROVIDERS {
        for (format, stream) in FORMATS.into_iter().flat_map(|format| [(format, false), (format, true)]) {
            let server = start(vec![Rule::always(vec![answer.clone()])]).await;
            let relayed = relay(&pool(&server, provider), format, &request(format, stream)).await.unwrap();
            assert_eq!(relayed.status, 200);
            assert_eq!(relayed.content_type == "text/event-stream", stream);
            let (body, ended) = all(relayed).await;
            let (said, calls) = told(format, stream, &body);
            assert_eq!(said, answer.text, "{provider:?} {format:?} {stream}\n{body}");
            let calls: Vec<(String, Value)> =
                calls.into_iter().map(|(name, args)| (name, serde_json::from_str(&args).unwrap())).collect();
            let expected = ["Orléans", "Nice"].map(|city| ("weather".to_owned(), json!({"city": city})));
            assert_eq!(calls, expected, "{provider:?} {format:?} {stream}\n{body}");
            assert!(ended.whole && !ended.usage.estimated && ended.usage.output_tokens > 0, "{ended:?}\n{body}");

            // What was understood of the request reached the model whole.
            let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
            let sent = sent.to_string();
            for part in ["Be brief.", "Weather?", "Paris", "sun", "Tells it.", "required", "0.5", "300"] {
                assert!(sent.contains(part), "{part} in {sent}");
            }
            assert!(format == Format::Responses || sent.contains("END"), "{sent}");
        }
    }
}

#[tokio::test]
async fn in_the_models_own_format_unknown_fields_pass_untouched() {
    for (provider, format) in [(Provider::Openai, Format::Chat), (Provider::Anthropic, Format::Messages)] {
        let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
        let mut body = request(format, false);
        body["seed_of_tomorrow"] = json!({"a": [1, 2.50, null]});
        let (answer, _) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
        let recorded = server.requests();
        let sent: Value = serde_json::from_slice(&recorded[0].body).unwrap();
        body["model"] = server.model(provider).model.into();
        assert_eq!(sent, body);
        assert_eq!(told(format, false, &answer).0, "ok");
        let key = if provider == Provider::Openai { "authorization" } else { "x-api-key" };
        assert!(recorded[0].headers[key].to_str().unwrap().ends_with("sk-secret"), "our key, not the program's");
    }
}

#[tokio::test]
async fn usage_is_metered_and_told_to_those_who_asked() {
    for wants in [false, true] {
        let server = start(vec![Rule::always(vec![Answer::text("many words in pieces")])]).await;
        let mut body = request(Format::Chat, true);
        if wants {
            body["stream_options"] = json!({"include_usage": true});
        }
        let (answer, ended) = all(relay(&pool(&server, Provider::Openai), Format::Chat, &body).await.unwrap()).await;
        assert!(!ended.usage.estimated && ended.whole, "{ended:?}");
        assert_eq!(answer.contains("prompt_tokens"), wants, "{answer}");
        assert_eq!(told(Format::Chat, true, &answer).0, "many words in pieces");
        assert!(answer.trim_end().ends_with("[DONE]"), "{answer}");
    }
}

#[tokio::test]
async fn a_program_never_gets_more_than_it_may() {
    for provider in PROVIDERS {
        for format in FORMATS {
            let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
            let mut body = request(format, false);
            let field = if format == Format::Responses { "max_output_tokens" } else { "max_tokens" };
            body[field] = json!(50_000);
            all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
            let sent = String::from_utf8(server.requests()[0].body.to_vec()).unwrap();
            assert!(sent.contains("1000") && !sent.contains("50000"), "{provider:?} {format:?} {sent}");
        }
    }
}

/// A request with more at its top.
fn with(format: Format, more: &Value) -> Value {
    let mut body = request(format, false);
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// All that is said is this one part.
fn part(part: Value) -> Value {
    json!({"messages": [{"role": "user", "content": [part]}]})
}

/// What has no worst that could be set aside is refused before anything is asked, and says the way out.
#[tokio::test]
async fn what_costs_more_than_is_set_aside_is_refused() {
    let (chat, messages, responses) = (Format::Chat, Format::Messages, Format::Responses);
    let by_url = json!({"type": "document", "source": {"type": "url", "url": "https://x.org/100-pages.pdf"}});
    let result = json!({"type": "tool_result", "tool_use_id": "c1", "content": [&by_url]});
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    let kept = json!({"type": "text", "text": "a", "cache_control": &hour});
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x"}, "cache_control": &hour});
    let table = [
        (chat, json!({"n": 2}), "`n`"),
        (chat, json!({"best_of": 3}), "`best_of`"),
        (chat, json!({"max_completion_tokens": 1, "max_tokens": 100_000}), "both limit"),
        (chat, json!({"max_tokens": null, "max_output_tokens": 1}), "`max_output_tokens`"),
        (chat, json!({"n_predict": 100_000}), "`n_predict`"),
        (messages, json!({"max_completion_tokens": 9}), "`max_completion_tokens`"),
        (responses, json!({"max_tokens": 9}), "`max_tokens`"),
        (chat, json!({"service_tier": "priority"}), "`priority`"),
        (messages, json!({"speed": "fast"}), "`fast`"),
        (chat, json!({"modalities": ["text", "audio"]}), "`audio`"),
        (chat, json!({"web_search_options": {}}), "a search"),
        (chat, json!({"models": ["a-dear-one"]}), "another model"),
        (messages, json!({"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}), "calls"),
        (chat, json!({"tools": [{"type": "web_search"}]}), "`web_search`"),
        (chat, json!({"tools": [{"google_search": {}}]}), "`google_search`"),
        (messages, json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "web_search"),
        (messages, json!({"tools": [{"type": "code_execution_20250825", "name": "c"}]}), "code_execution"),
        (messages, json!({"tools": [{"type": "bash_code_execution_1", "name": "c"}]}), "run by the provider"),
        (messages, json!({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}), "mcp_toolset"),
        (messages, part(by_url), "address"),
        (messages, part(result), "address"),
        (messages, part(json!({"type": "document", "source": {"type": "file", "file_id": "f"}})), "id of a file"),
        (messages, part(json!({"type": "container_upload", "file_id": "f"})), "id of a file"),
        (chat, part(json!({"type": "file", "file": {"file_id": "f"}})), "id of a file"),
        (chat, part(json!({"type": "file", "file": {"file_data": "https://x.org/a.pdf"}})), "address"),
        (chat, part(json!({"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}})), "address"),
        (chat, json!({"data_sources": [{"type": "azure_search"}]}), "other sources"),
        (chat, json!({"deferred": true}), "fetched later"),
        (chat, json!({"preset": "@preset/dear"}), "settings that"),
        (chat, json!({"web_search": {"enable": true}}), "a search"),
        (chat, json!({"search_settings": {"max": 9}}), "a search"),
        (chat, json!({"grounding": {"google": true}}), "a search"),
        (chat, json!({"cachedContent": "cachedContents/1"}), "another spelling"),
        (chat, json!({"extra_body": {"google": {"cached_content": "cachedContents/1"}}}), "`cached_content`"),
        (chat, json!({"extra_body": {"model": "a-dear-one"}}), "`model`"),
        (chat, json!({"num_return_sequences": 4}), "`num_return_sequences`"),
        (chat, json!({"candidate_count": 2}), "`candidate_count`"),
        (chat, json!({"use_beam_search": true, "beam_width": 9}), "more than one answer"),
        (chat, json!({"chat_template": "{% for i in range(9999) %}a{% endfor %}"}), "`chat_template`"),
        (messages, json!({"context_management": {"edits": [{"type": "compact_20260112"}]}}), "summaries"),
        (chat, part(json!({"type": "input_audio", "input_audio": {"data": "https://x.org/a.wav"}})), "address"),
        (chat, part(json!({"type": "video", "video": "https://x.org/a.mp4"})), "address"),
        (chat, part(json!({"type": "video", "video": ["data:image/png;base64,AA==", "gs://x/a.png"]})), "address"),
        (chat, part(json!({"type": "media", "media": {"file_uri": "https://x.org/a.mp4"}})), "address"),
        (chat, part(json!({"type": "x", "text": "a", "y": {"z": [["file:/etc/passwd"]]}})), "address"),
        (
            messages,
            part(json!({"type": "document", "source": {"type": "base64", "data": "https://x.org/a"}})),
            "address",
        ),
        (messages, json!({"cache_control": &hour}), "`1h`"),
        (messages, json!({"system": [&kept]}), "`1h`"),
        (messages, json!({"tools": [{"name": "f", "input_schema": {}, "cache_control": &hour}]}), "`1h`"),
        (chat, json!({"tools": [{"type": "function", "function": {"name": "f", "cache_control": &hour}}]}), "`1h`"),
        (messages, part(kept.clone()), "`1h`"),
        (messages, part(json!({"type": "tool_result", "tool_use_id": "c1", "content": [&kept]})), "`1h`"),
        (messages, part(image), "`1h`"),
        (messages, part(json!({"type": "text", "text": "a", "cache_control": {"ttl": 3600}})), "`3600`"),
        (chat, json!({"messages": [{"role": "user", "content": "a", "cache_control": &hour}]}), "`1h`"),
    ];
    for (format, more, word) in table {
        let body = with(format, &more);
        let provider = if format == messages { Provider::Anthropic } else { Provider::Openai };
        let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
        let refused = relay(&pool(&server, provider), format, &body).await;
        let Err(Refusal::Misfit(misfit)) = refused else { panic!("{word}: {refused:?} {body}") };
        assert!(misfit.message.contains(word) && misfit.hint.is_some(), "{word}: {misfit:?}");
        assert_eq!(server.count(), 0, "{word}");
    }
}

/// What official clients and agents send to OpenAI beside what is said.
fn ordinary_of_openai() -> Vec<Value> {
    let image = json!({"url": "https://x.org/a.png", "detail": "high"});
    let file = json!({"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="});
    let tools = json!([
        {"type": "function", "function": {"name": "f", "parameters": {}}},
        {"type": "custom", "custom": {"name": "c"}},
        {"name": "old", "parameters": {}}
    ]);
    vec![
        json!({"n": 1, "service_tier": "auto", "tool_choice": "auto", "parallel_tool_calls": true, "stream_options": null,
            "metadata": {"a": "b"}, "user": "u", "seed": 7, "store": false, "logprobs": false, "reasoning_effort": "low"}),
        json!({"n": null, "service_tier": "default", "modalities": ["text"], "response_format": {"type": "json_object"},
            "prompt_cache_key": "k", "max_completion_tokens": null, "prediction": null, "models": [], "tools": tools}),
        part(json!({"type": "image_url", "image_url": image})),
        part(json!({"type": "file", "file": file})),
        part(json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})),
        part(json!({"type": "video", "video": ["data:image/png;base64,AA=="], "fps": 2})),
        part(json!({"type": "text", "text": "https://x.org is where it stands", "unknown": {"to": "us"}})),
        json!({"num_return_sequences": 1, "use_beam_search": false, "min_tokens": 5, "web_search": null, "grounded": "https://x.org",
            "extra_body": {"google": {"thinking_config": {"include_thoughts": true}}},
            "messages": [{"role": "assistant", "reasoning_content": "https://x.org", "content": "a", "link": "https://x.org"}]}),
        json!({"messages": [{"role": "assistant", "content": null, "audio": null, "refusal": null}]}),
    ]
}

/// The same for Anthropic.
fn ordinary_of_anthropic() -> Vec<Value> {
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="});
    let plain = json!({"type": "text", "media_type": "text/plain", "data": "https://x.org"});
    let tools = json!([
        {"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "g", "input_schema": {"type": "object"}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
        {"type": "memory_20250818", "name": "memory"}
    ]);
    vec![
        json!({"service_tier": "standard_only", "metadata": {"user_id": "u"}, "container": null, "max_tokens": 0,
            "thinking": {"type": "enabled", "budget_tokens": 1024}, "cache_control": {"type": "ephemeral"}}),
        json!({"service_tier": "auto", "context_management": {"edits": []}, "tools": tools}),
        json!({"context_management": {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}]}}),
        part(
            json!({"type": "search_result", "source": "https://x.org", "title": "https://x.org", "content": [{"type": "text", "text": "a"}]}),
        ),
        part(json!({"type": "document", "source": pdf, "cache_control": {"type": "ephemeral", "ttl": "5m"}})),
        part(json!({"type": "tool_use", "id": "c", "name": "f", "input": {"cache_control": {"ttl": "1h"}}})),
        part(json!({"type": "document", "source": plain})),
        part(json!({"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}})),
        part(json!({"type": "tool_use", "id": "c", "name": "f", "input": {"file_id": "f", "type": "url"}})),
    ]
}

#[tokio::test]
async fn what_ordinary_clients_send_is_passed_on_untouched() {
    for (provider, format, table) in [
        (Provider::Openai, Format::Chat, ordinary_of_openai()),
        (Provider::Anthropic, Format::Messages, ordinary_of_anthropic()),
    ] {
        for more in table {
            let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
            let mut body = with(format, &more);
            let (answer, _) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
            assert_eq!(told(format, false, &answer).0, "ok", "{more}");
            let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
            body["model"] = server.model(provider).model.into();
            assert_eq!(sent, body);
        }
    }
}

/// An image by its address is a few bytes of the request, and up to some 50,000 tokens of the bill.
#[test]
fn an_image_by_its_address_is_set_aside_at_its_worst() {
    let image = json!({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}});
    let read = |more: &Value| Asked::read(Format::Chat, Bytes::from(with(Format::Chat, more).to_string()));
    let tokens = |more: &Value| read(more).unwrap().input_tokens();
    let text = tokens(&part(json!({"type": "text", "text": "https://x.org/a.png"})));
    assert!(text < 1000 && 3 * tokens(&part(image)) >= 50_000, "{text}");
}

fn status(status: u16, body: &str) -> Rule {
    let fault = Fault::Status { status, body: body.to_owned(), headers: BTreeMap::new() };
    Rule { when: When::default(), fault: Some(fault), ..Rule::default() }
}

#[tokio::test]
async fn a_wrong_request_is_told_in_the_servers_words_and_not_tried_again() {
    let words = r#"{"error":{"message":"`seed` must be a number","type":"invalid_request_error"}}"#;
    let server = start(vec![status(400, words)]).await;
    let relayed = relay(&pool(&server, Provider::Openai), Format::Chat, &request(Format::Chat, true)).await.unwrap();
    assert_eq!((relayed.status, server.count()), (400, 1));
    assert_eq!(all(relayed).await.0, words);
}

/// A gateway that says which key it was sent says so to the owner's log, not to a program.
#[tokio::test]
async fn the_owners_key_is_not_told_in_the_servers_words() {
    let told = r#"{"error":{"message":"Received API Key = sk-secret","headers":{"Bearer sk-secret":["sk\u002dsecret"]},"type":"a"},
        "type":"sk-secret","type":"b","n":1.5,"at":null}"#;
    for code in [400, 413, 422] {
        let server = start(vec![status(code, told)]).await;
        let body = request(Format::Chat, false);
        let relayed = relay(&pool(&server, Provider::Openai), Format::Chat, &body).await.unwrap();
        assert_eq!(relayed.status, code);
        let got = all(relayed).await.0;
        assert!(!got.contains("sk-secret") && !got.contains("u002d"), "{got}");
        let wanted = json!({"error": {"message": "Received API Key = [key]", "headers": {"Bearer [key]": ["[key]"]},
            "type": "a"}, "type": "b", "n": 1.5, "at": null});
        assert_eq!(serde_json::from_str::<Value>(&got).unwrap(), wanted);
    }
}

#[tokio::test]
async fn what_is_not_the_programs_fault_is_a_failure_before_anything_is_answered() {
    for provider in PROVIDERS {
        for format in FORMATS {
            for stream in [false, true] {
                for (code, kind, tries) in [
                    (401, FailureKind::Permanent, 1),
                    (503, FailureKind::Transient, 3),
                    (402, FailureKind::Permanent, 1),
                ] {
                    let server = start(vec![status(code, "{}")]).await;
                    let refused = relay(&pool(&server, provider), format, &request(format, stream)).await;
                    let Err(Refusal::Failed(failure)) = refused else { panic!("{code}: {refused:?}") };
                    assert_eq!((failure.kind, server.count()), (kind, tries), "{provider:?} {format:?} {code}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    for provider in PROVIDERS {
        let busy = Rule { times: Some(1), ..status(503, "{}") };
        let server = start(vec![busy, Rule::always(vec![Answer::text("ok")])]).await;
        let (answer, _) =
            all(relay(&pool(&server, provider), Format::Chat, &request(Format::Chat, false)).await.unwrap()).await;
        assert_eq!(told(Format::Chat, false, &answer).0, "ok");
    }
}

/// What breaks off may have been made, and is on the owner's bill.
#[tokio::test]
async fn an_answer_that_breaks_off_is_paid_and_not_asked_for_again() {
    // A request that is put into another format asks for as much as the program wants, one that is passed on for all it may.
    for (provider, format, most) in [
        (Provider::Openai, Format::Chat, 1000),
        (Provider::Anthropic, Format::Messages, 1000),
        (Provider::Gemini, Format::Chat, 300),
    ] {
        let cut = Some(Fault::Cut { after_bytes: 5 });
        let rule = Rule { fault: cut, ..Rule::always(vec![Answer { plain: true, ..Answer::text("a word") }]) };
        let server = start(vec![rule]).await;
        let refused = relay(&pool(&server, provider), format, &request(format, false)).await;
        let Err(Refusal::Failed(failure)) = refused else { panic!("{provider:?} {format:?}: {refused:?}") };
        let usage = failure.usage.unwrap();
        assert_eq!((usage.output_tokens, server.count()), (most, 1), "{provider:?} {format:?}");
        assert!(usage.estimated && usage.input_tokens > 10, "{provider:?} {format:?}: {usage:?}");
    }
}

/// Glued to half an event, the error was no JSON, and a program saw a fault of its own instead.
#[tokio::test]
async fn a_stream_that_breaks_off_anywhere_ends_with_an_error_of_its_own() {
    for (provider, format) in [(Provider::Openai, Format::Chat), (Provider::Anthropic, Format::Messages)] {
        let mut body = request(format, true);
        if format == Format::Chat {
            body["stream_options"] = json!({"include_usage": true});
        }
        for after_bytes in (100..300).step_by(9) {
            let cut = Some(Fault::Cut { after_bytes });
            let rule = Rule { fault: cut, ..Rule::always(vec![Answer::text("a word and another word")]) };
            let server = start(vec![rule]).await;
            let relayed = relay(&pool(&server, provider), format, &body).await;
            let (answer, ended) = all(relayed.unwrap()).await;
            let data: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            for data in &data {
                assert!(serde_json::from_str::<Value>(data).is_ok(), "{format:?} after {after_bytes}: {data}");
            }
            assert!(data.last().unwrap().contains("error") && !ended.whole, "{format:?} after {after_bytes}: {answer}");
        }
    }
}

/// Where the model's server ended its answer early and in good order, that passed for a whole one, with half an event at its
/// end.
#[tokio::test]
async fn a_stream_that_ends_before_its_answer_does_is_broken() {
    for (provider, format) in PROVIDERS.into_iter().flat_map(|provider| FORMATS.map(|format| (provider, format))) {
        let mut body = request(format, true);
        if format == Format::Chat {
            body["stream_options"] = json!({"include_usage": true});
        }
        let text = "a word and another ".repeat(9);
        let answer = || Answer { chunk_bytes: 3, write_bytes: 50, ..Answer::text(&text) };
        let server = start(vec![Rule::always(vec![answer()])]).await;
        let (whole, _) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
        for after_bytes in (900..1200).step_by(7) {
            let end = Some(Fault::End { after_bytes });
            let server = start(vec![Rule { fault: end, ..Rule::always(vec![answer()]) }]).await;
            let (answer, ended) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
            let at = format!("{format:?} of {provider:?} after {after_bytes}: {answer}");
            let data: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            assert!(data.iter().all(|data| serde_json::from_str::<Value>(data).is_ok()), "{at}");
            assert!(data.last().unwrap().contains("broke off before its end") && !ended.whole, "{at}");
            assert!(ended.usage.estimated && (1..300).contains(&ended.usage.output_tokens), "{at}");
            assert!(answer.contains("a w") && !whole.contains("broke off"), "{at}");
        }
    }
}

/// What is not streamed is refused, and paid as far as it was made: to a program it was an answer that ends at its limit.
#[tokio::test]
async fn an_answer_put_into_another_format_that_breaks_off_is_none() {
    for (provider, format, thinks) in [
        (Provider::Openai, Format::Messages, false),
        (Provider::Anthropic, Format::Chat, false),
        (Provider::Gemini, Format::Responses, false),
        (Provider::Gemini, Format::Responses, true),
    ] {
        let end = Some(Fault::End { after_bytes: 1000 });
        let text = Answer { chunk_bytes: 3, ..Answer::text("a word and another ".repeat(9)) };
        let server = start(vec![Rule { fault: end, ..Rule::always(vec![text]) }]).await;
        let mut body = request(format, false);
        if thinks {
            body["reasoning"] = json!({"effort": "low"});
        }
        let refused = relay(&pool(&server, provider), format, &body).await;
        let Err(Refusal::Failed(failure)) = refused else { panic!("{provider:?} {format:?}: {refused:?}") };
        assert!(failure.message.contains("broke off before its end"), "{failure:?}");
        let usage = failure.usage.unwrap();
        assert!(usage.estimated && usage.output_tokens > 0, "{provider:?}: {usage:?}");
        assert_eq!((usage.output_tokens == 300, server.count()), (thinks, 1), "{provider:?}: {usage:?}");
    }
}

/// A last event without its empty line is one all the same, and gets it.
#[tokio::test]
async fn a_whole_stream_without_its_last_line_is_whole() {
    for (provider, format) in [(Provider::Openai, Format::Chat), (Provider::Anthropic, Format::Messages)] {
        let mut body = request(format, true);
        if format == Format::Chat {
            body["stream_options"] = json!({"include_usage": true});
        }
        let rule = || Rule::always(vec![Answer::text("drop")]);
        let server = start(vec![rule()]).await;
        let (whole, _) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
        for (short, rest) in [(1, &whole[..]), (2, &whole), (6, whole.trim_end().rsplit_once("\n\n").unwrap().0)] {
            let fault = Some(Fault::End { after_bytes: whole.len() - short });
            let server = start(vec![Rule { fault, ..rule() }]).await;
            let (told, ended) = all(relay(&pool(&server, provider), format, &body).await.unwrap()).await;
            assert_eq!((told.trim_end(), ended.whole), (rest.trim_end(), true), "{format:?} without {short}");
            assert!(told.ends_with("\n\n"), "{format:?} without {short}: {told:?}");
        }
    }
}

#[tokio::test]
async fn betas_reach_anthropics_servers_and_nobody_else() {
    let body = |format| Bytes::from(request(format, false).to_string());
    for (provider, format, passed) in [
        (Provider::Anthropic, Format::Messages, true),
        (Provider::Anthropic, Format::Chat, false),
        (Provider::Openai, Format::Messages, false),
        (Provider::Openai, Format::Chat, false),
    ] {
        let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
        let asked =
            Asked::read(format, body(format)).unwrap().with_betas(Some("interleaved-thinking-2025-05-14, b")).unwrap();
        all(pool(&server, provider).relay("m", &asked, 1000, EFFECT, None).await.unwrap()).await;
        let sent = server.requests().pop().unwrap();
        let sent = sent.headers.get("anthropic-beta").map(|betas| betas.to_str().unwrap().to_owned());
        let expected = passed.then(|| "interleaved-thinking-2025-05-14, b".to_owned());
        assert_eq!(sent, expected, "{provider:?} {format:?}");
    }
    let refused = |betas: &str| {
        let asked = Asked::read(Format::Messages, body(Format::Messages)).unwrap();
        asked.with_betas(Some(betas)).unwrap_err().message
    };
    assert!(refused("a, context-1m-2025-08-07").contains("has a price of its own"));
    assert!(refused("a\r\nx-api-key: b").contains("no list of names"));
    assert!(refused(&"a,".repeat(600)).contains("at most 1024 bytes"));
}

/// Reads until the first word has come; then the clock is stopped, and jumps to the next deadline when all is idle.
async fn all_but_the_clock(mut relayed: Relayed) -> (String, Ended, Duration) {
    let (mut told, mut since) = (String::new(), None);
    while let Some(piece) = relayed.next().await {
        told.push_str(std::str::from_utf8(&piece).unwrap());
        if since.is_none() && told.contains("drop") {
            tokio::time::pause();
            since = Some(tokio::time::Instant::now());
        }
    }
    let waited = since.unwrap().elapsed();
    tokio::time::resume();
    (told, relayed.ended(), waited)
}

#[tokio::test]
async fn a_stream_that_stalls_is_cut_long_before_its_whole_time_is_over() {
    for (provider, format) in [(Provider::Openai, Format::Chat), (Provider::Anthropic, Format::Messages)] {
        let rule = Rule {
            fault: Some(Fault::Stall { after_bytes: 2000 }),
            ..Rule::always(vec![Answer { chunk_bytes: 5, ..Answer::text("drop ".repeat(500)) }])
        };
        let server = start(vec![rule]).await;
        let relayed = relay(&pool(&server, provider), format, &request(format, true)).await.unwrap();
        let (told, ended, waited) = all_but_the_clock(relayed).await;
        assert!(told.contains("stalled") && !ended.whole && ended.usage.estimated, "{format:?}: {told}");
        assert!((50..90).contains(&waited.as_secs()), "{format:?}: {waited:?}");
    }
}

#[tokio::test]
async fn a_stream_without_end_is_cut_where_an_answer_cannot_be_longer() {
    for (provider, format) in [(Provider::Openai, Format::Chat), (Provider::Anthropic, Format::Messages)] {
        let rule = Rule { fault: Some(Fault::Megabytes { megabytes: 30 }), ..Rule::always(vec![Answer::default()]) };
        let server = start(vec![rule]).await;
        let relayed = relay(&pool(&server, provider), format, &request(format, true)).await.unwrap();
        let (told, ended) = all(relayed).await;
        let end = told.lines().rfind(|line| line.starts_with("data:")).unwrap();
        assert!(end.contains("sent more than an answer can hold") && !ended.whole, "{format:?}: {end:.200}");
        assert!(told.len() < 20 << 20, "{format:?}: {} bytes", told.len());
    }
}

/// A server that has said why it stopped has nothing more to say, and is not waited for as if it had.
#[tokio::test]
async fn a_stream_that_loses_only_its_end_mark_is_whole() {
    let mut body = request(Format::Chat, true);
    body["stream_options"] = json!({"include_usage": true});
    let rule = || Rule::always(vec![Answer::text("drop")]);
    let server = start(vec![rule()]).await;
    let (told, _) = all(relay(&pool(&server, Provider::Openai), Format::Chat, &body).await.unwrap()).await;
    let after_bytes = told.len() - "data: [DONE]\n\n".len();
    let server = start(vec![Rule { fault: Some(Fault::Stall { after_bytes }), ..rule() }]).await;
    let relayed = relay(&pool(&server, Provider::Openai), Format::Chat, &body).await.unwrap();
    let (told, ended, waited) = all_but_the_clock(relayed).await;
    assert!(!told.contains("error") && ended.whole && !ended.usage.estimated, "{told}");
    assert!(waited.as_secs() < 10, "{waited:?}");
}

/// Whoever asked it to think and hung up paid for the words that it had heard.
#[tokio::test]
async fn what_is_thought_beside_what_was_heard_is_paid_where_thinking_was_asked_for() {
    for (provider, format, field) in [
        (Provider::Openai, Format::Chat, json!({"reasoning": {}})),
        (Provider::Anthropic, Format::Messages, json!({"thinking": {"type": "enabled", "budget_tokens": 200}})),
        (Provider::Gemini, Format::Chat, json!({"reasoning_effort": "minimal"})),
        (Provider::Openai, Format::Chat, json!({})),
    ] {
        let rule = Rule {
            fault: Some(Fault::Stall { after_bytes: 2000 }),
            ..Rule::always(vec![Answer { chunk_bytes: 5, ..Answer::text("drop ".repeat(500)) }])
        };
        let server = start(vec![rule]).await;
        let mut body = request(format, true);
        body.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
        let mut relayed = relay(&pool(&server, provider), format, &body).await.unwrap();
        let mut told = String::new();
        while !told.contains("drop") {
            told.push_str(std::str::from_utf8(&relayed.next().await.unwrap()).unwrap());
        }
        let output = relayed.ended().usage.output_tokens;
        match field.as_object().unwrap().is_empty() {
            true => assert!(output < 300, "{output}"),
            false => assert!(output >= 300, "{provider:?}: {output}"),
        }
    }
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    for provider in [Provider::Openai, Provider::Anthropic] {
        let format = if provider == Provider::Openai { Format::Chat } else { Format::Messages };
        let server = start(vec![status(200, "<html>hello</html>")]).await;
        let refused = relay(&pool(&server, provider), format, &request(format, false)).await;
        let Err(Refusal::Failed(failure)) = refused else { panic!("{refused:?}") };
        assert!(failure.message.contains("web page") && failure.kind == FailureKind::Permanent, "{failure:?}");
        assert_eq!(server.count(), 2);
    }
}

/// A request that a server takes for another one cost nothing, and was sent three times.
#[tokio::test]
async fn an_answer_that_is_something_else_is_paid_and_not_asked_for_again() {
    let server = start(vec![status(200, r#"{"request_id":"r-1"}"#)]).await;
    let refused = relay(&pool(&server, Provider::Openai), Format::Chat, &request(Format::Chat, false)).await;
    let Err(Refusal::Failed(failure)) = refused else { panic!("{refused:?}") };
    let usage = failure.usage.unwrap();
    assert!(failure.kind == FailureKind::Permanent && failure.message.contains("r-1"), "{failure:?}");
    assert!((server.count(), usage.output_tokens) == (1, 1000) && usage.input_tokens > 0, "{usage:?}");
    let server = start(vec![status(200, r#"{"error":{"message":"overloaded","code":503}}"#)]).await;
    let refused = relay(&pool(&server, Provider::Openai), Format::Chat, &request(Format::Chat, false)).await;
    let Err(Refusal::Failed(failure)) = refused else { panic!("{refused:?}") };
    assert!(failure.kind == FailureKind::Transient && failure.usage.is_none(), "{failure:?}");
    assert_eq!(server.count(), 3, "what says that it failed costs nothing");
}

/// Whoever hung up while the model thought paid for no word of it.
#[tokio::test]
async fn a_stream_of_which_no_word_was_heard_is_paid_at_its_worst() {
    for (provider, format, after_bytes) in
        [(Provider::Openai, Format::Chat, 10), (Provider::Anthropic, Format::Messages, 200)]
    {
        let fault = Some(Fault::Stall { after_bytes });
        let server = start(vec![Rule { fault, ..Rule::always(vec![Answer::text("never heard")]) }]).await;
        let relayed = relay(&pool(&server, provider), format, &request(format, true)).await.unwrap();
        let usage = relayed.ended().usage;
        assert!(usage.estimated && usage.output_tokens == 1000, "{format:?}: {usage:?}");
    }
}

/// What hides a city and shows it again.
struct Hidden;

impl Veil for Hidden {
    fn hide(&mut self, _: &str, text: &str) -> Option<String> {
        text.contains("Paris").then(|| text.replace("Paris", "[CITY]"))
    }

    fn lift(&mut self, reply: &mut Reply) {
        reply.text = reply.text.replace("[CITY]", "Paris");
        reply.calls.iter_mut().for_each(|call| call.arguments = call.arguments.replace("[CITY]", "Paris"));
    }
}

#[tokio::test]
async fn what_is_hidden_does_not_leave_and_comes_back() {
    let answer = Answer {
        text: "In [CITY].".to_owned(),
        calls: vec![Call::new("weather", json!({"city": "[CITY]"}))],
        chunk_bytes: 2,
        ..Answer::default()
    };
    for provider in PROVIDERS {
        for (format, stream) in FORMATS.into_iter().flat_map(|format| [(format, false), (format, true)]) {
            let server = start(vec![Rule::always(vec![answer.clone()])]).await;
            let asked = Asked::read(format, Bytes::from(request(format, stream).to_string())).unwrap();
            let relayed = pool(&server, provider).relay("m", &asked, 1000, EFFECT, Some(Box::new(Hidden))).await;
            let (body, ended) = all(relayed.unwrap()).await;
            let (said, calls) = told(format, stream, &body);
            assert_eq!((said.as_str(), calls[0].1.contains("Paris")), ("In Paris.", true), "{provider:?} {body}");
            assert!(ended.whole);
            let sent = String::from_utf8(server.requests()[0].body.to_vec()).unwrap();
            assert!(!sent.contains("Paris") && sent.contains("[CITY]"), "{sent}");
        }
    }
}

#[tokio::test]
async fn what_is_hidden_is_not_embedded() {
    let server = start(Vec::new()).await;
    let pool = pool(&server, Provider::Openai);
    let asked = |body: &Value| Asked::read(Format::Embeddings, Bytes::from(body.to_string())).unwrap();
    let texts = asked(&request(Format::Embeddings, false));
    let (body, ended) = all(pool.relay("m", &texts, 0, EFFECT, Some(Box::new(Hidden))).await.unwrap()).await;
    let vectors: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((vectors["data"].as_array().unwrap().len(), ended.whole), (2, true), "{body}");
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent["input"], json!(["Weather in [CITY]?", "Weather?"]));
    assert_eq!(sent["dimensions"], 2, "all else is as it came");

    let mut other = request(Format::Embeddings, false);
    other["user"] = json!("Ann of Paris");
    other["of Paris"] = json!({"Paris": ["in Paris", 75]});
    let _ = all(pool.relay("m", &asked(&other), 0, EFFECT, Some(Box::new(Hidden))).await.unwrap()).await;
    let sent: Value = serde_json::from_slice(&server.requests()[1].body).unwrap();
    assert_eq!((&sent["user"], &sent["of [CITY]"]), (&json!("Ann of [CITY]"), &json!({"[CITY]": ["in [CITY]", 75]})));

    let tokens = asked(&json!({"model": "m", "input": [[1, 2], [3]]}));
    let misfit = tokens.texts(&mut |_, _| ()).unwrap_err();
    assert!(misfit.message.contains("personal data"), "tokens cannot be looked at: {misfit:?}");
    let twice = Bytes::from_static(br#"{"model": "m", "input": [[1, 2]], "input": "a"}"#);
    assert!(Asked::read(Format::Embeddings, twice).unwrap().texts(&mut |_, _| ()).is_err(), "which one is embedded?");
}

/// The request with a city wherever a program can put one beside what is said.
fn of_a_city(format: Format) -> Value {
    let text = request(format, false).to_string();
    let text =
        text.replace("Tells it.", "Tells Paris.").replace("END", "Paris").replace("{\\\"city\\\"", "{\\\"Paris\\\"");
    let text = text.replace(r#"{"type":"string"}"#, r#"{"type":"string","enum":["Paris"],"default":"in Paris"}"#);
    let mut body: Value =
        serde_json::from_str(&text.replace(r#""properties":{"#, r#""properties":{"Paris":{},"#)).unwrap();
    if format == Format::Messages {
        body["messages"][1]["content"][0]["input"]["Paris"] = json!({"of": ["Paris"]});
    }
    body
}

#[tokio::test]
async fn what_is_hidden_does_not_leave_with_tools_either() {
    let call = Call::new("weather", json!({"[CITY]": "[CITY]"}));
    let answer = Answer { calls: vec![call], chunk_bytes: 2, ..Answer::default() };
    for provider in PROVIDERS {
        for format in FORMATS {
            let server = start(vec![Rule::always(vec![answer.clone()])]).await;
            let asked = Asked::read(format, Bytes::from(of_a_city(format).to_string())).unwrap();
            let relayed = pool(&server, provider).relay("m", &asked, 1000, EFFECT, Some(Box::new(Hidden))).await;
            let (body, _) = all(relayed.unwrap()).await;
            let sent = String::from_utf8(server.requests()[0].body.to_vec()).unwrap();
            assert!(!sent.contains("Paris"), "{provider:?} {format:?} {sent}");
            assert!(sent.contains("Tells [CITY].") && sent.contains(r#"["[CITY]"]"#), "{provider:?} {format:?} {sent}");
            let (_, calls) = told(format, false, &body);
            assert_eq!(calls[0].1, r#"{"Paris":"Paris"}"#, "{provider:?} {format:?} {body}");
        }
    }
}

#[tokio::test]
async fn what_is_hidden_does_not_leave_with_a_form_an_escape_or_an_id() {
    let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
    let mut body = request(Format::Chat, false);
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "at", "schema": {"enum": ["Paris"], "type": "string"}}});
    let call = &mut body["messages"][2]["tool_calls"][0];
    call["id"] = json!("Paris-1");
    call["function"]["arguments"] = json!(r#"{"city":"Par\u0069s"}"#);
    body["messages"][3]["tool_call_id"] = json!("Paris-1");
    let asked = |body: &Value| Asked::read(Format::Chat, Bytes::from(body.to_string())).unwrap();
    let veil = || Some(Box::new(Hidden) as Box<dyn Veil>);
    let openai = pool(&server, Provider::Openai);
    let _ = all(openai.relay("m", &asked(&body), 1000, EFFECT, veil()).await.unwrap()).await;
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    let text = sent.to_string();
    assert!(!text.contains("Paris") && !text.contains("u0069") && text.contains(r#"["[CITY]"]"#), "{text}");
    assert_eq!(text.matches("call_hidden_0").count(), 2, "a result is still that of its call: {text}");

    // A name is not replaced: the program would not know it again.
    let named = |at: &str| {
        let mut body = request(Format::Chat, false);
        *body.pointer_mut(at).unwrap() = json!("to_Paris");
        body
    };
    for at in ["/tools/0/function/name", "/messages/2/tool_calls/0/function/name"] {
        let refused = openai.relay("m", &asked(&named(at)), 1000, EFFECT, veil()).await;
        let Err(Refusal::Misfit(misfit)) = refused else { panic!("{at}: {refused:?}") };
        assert!(misfit.message.contains("the name of a tool"), "{misfit:?}");
    }
    assert_eq!(server.count(), 1);
}

#[test]
fn everything_that_may_be_sent_is_seen() {
    let seen = |format, body: &str| {
        let (asked, mut seen) = (Asked::read(format, Bytes::from(body.to_owned())).unwrap(), Vec::new());
        asked.texts(&mut |field, text| seen.push(format!("{field}={text}"))).unwrap();
        seen
    };
    let input = r#"{"model":"m","messages":[{"content":[{"type":"tool_use","input":{"card":4111111111111111,"ann@x.org":1}}]}]}"#;
    let all = seen(Format::Messages, input);
    assert!(["card=4111111111111111", "=ann@x.org"].iter().all(|one| all.iter().any(|seen| seen == one)), "{all:?}");
    let escaped = json!({"model": "m", "messages": [{"tool_calls": [{"function": {"arguments": r#"{"to":"ann\u0040x.org"}"#}}]}]});
    assert!(seen(Format::Chat, &escaped.to_string()).contains(&"to=ann@x.org".to_owned()));
    // Which of two a server takes, nobody knows.
    let twice = seen(Format::Chat, r#"{"model":"m","messages":[{"role":"user","content":"one","content":"two"}]}"#);
    assert!(twice.ends_with(&["=content".into(), "content=one".into(), "=content".into(), "content=two".into()]));
}

/// Makes of a text its length and 0.5, and keeps what it was asked.
#[derive(Debug, Default)]
struct Inside(Mutex<Vec<String>>);

impl Embedder for Inside {
    fn embed<'a>(&'a self, wanted: Wanted<'a>) -> Embedding<'a> {
        Box::pin(async move {
            self.0.lock().unwrap().extend(wanted.texts.iter().map(|text| (*text).to_owned()));
            let numbers = |text: &&str| Arc::from([text.len() as f32, 0.5]);
            let vector = |text| Vector { model: "here".into(), numbers: numbers(text), tokens: 3 };
            Ok(wanted.texts.iter().map(vector).collect())
        })
    }
}

#[tokio::test]
async fn vectors_made_inside_the_program_come_as_a_server_would_send_them() {
    let inside = Arc::new(Inside::default());
    let answers = ModelConfig::new(Provider::Local, "here");
    let vectors = ModelConfig { dimension: Some(2), ..answers.clone() };
    let models = BTreeMap::from([("m".to_owned(), vectors), ("answers".to_owned(), answers)]);
    let pool = Pool::new(models, Arc::new(|_: &str| None), Options::default());
    let pool = Arc::new(pool.with_embedder(Arc::clone(&inside) as Arc<dyn Embedder>));
    let asked = |body: Value| Asked::read(Format::Embeddings, Bytes::from(body.to_string())).unwrap();
    let served = async |body: Value, veil: Option<Box<dyn Veil>>| {
        let relayed = pool.relay("m", &asked(body), 0, EFFECT, veil).await.unwrap();
        assert_eq!((relayed.status, relayed.content_type), (200, "application/json"));
        let (body, ended) = all(relayed).await;
        (serde_json::from_str::<Value>(&body).unwrap(), ended)
    };
    let datum = |index: u32, embedding: Value| json!({"object": "embedding", "index": index, "embedding": embedding});
    let list = |data: Value, tokens: u32| {
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        json!({"object": "list", "data": data, "model": "m", "usage": usage})
    };
    let (answer, ended) = served(json!({"model": "m", "input": ["ab", "", "ab"]}), None).await;
    let two = datum(0, json!([2.0, 0.5]));
    assert_eq!(answer, list(json!([two, datum(1, json!([0.0, 0.5])), datum(2, json!([2.0, 0.5]))]), 9));
    assert!(ended.whole && ended.usage.input_tokens == 9, "{ended:?}");
    // 2.0 and 0.5 as little-endian 32 bit floats. What is known costs a program what it cost the first.
    let packed = json!({"model": "m", "input": "ab", "encoding_format": "base64", "dimensions": 2, "user": "u"});
    assert_eq!(served(packed, None).await.0, list(json!([datum(0, json!("AAAAQAAAAD8="))]), 3));
    let hidden = json!({"model": "m", "input": ["Weather in Paris?"]});
    served(hidden, Some(Box::new(Hidden))).await;
    assert_eq!(*inside.0.lock().unwrap(), ["ab", "", "Weather in [CITY]?"]);

    for (body, words) in [
        (json!({"model": "m", "input": [[1, 2], [3]]}), "`input` holds no text"),
        (json!({"model": "m", "input": [1, 2]}), "`input` holds no text"),
        (json!({"model": "m", "input": []}), "`input` holds no text"),
        (json!({"model": "m"}), "input"),
        (json!({"model": "m", "input": "ab", "encoding_format": "hex"}), "no encoding_format `hex`"),
        (json!({"model": "m", "input": "ab", "dimensions": 3}), "the vectors of m have 2 numbers"),
    ] {
        match pool.relay("m", &asked(body), 0, EFFECT, None).await {
            Err(Refusal::Misfit(misfit)) => assert!(misfit.message.contains(words), "{words}: {misfit:?}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    match pool.relay("answers", &asked(json!({"model": "answers", "input": "ab"})), 0, EFFECT, None).await {
        Err(Refusal::Misfit(misfit)) => assert_eq!(misfit.message, "answers makes answers and no vectors"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_understood_says_why() {
    let asked = |format, body: Value| Asked::read(format, Bytes::from(body.to_string()));
    assert!(asked(Format::Chat, json!({"messages": []})).unwrap_err().message.contains("model"));
    assert!(asked(Format::Chat, json!([])).is_err());
}

#[tokio::test]
async fn what_the_other_format_does_not_have_is_refused() {
    let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
    let pool = pool(&server, Provider::Gemini);
    let table = [
        (Format::Chat, json!({"model": "m", "n": 2, "messages": []}), "`n`"),
        (Format::Chat, json!({"model": "m", "messages": [{"role": "wizard", "content": ""}]}), "wizard"),
        (
            Format::Chat,
            json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]}),
            "address",
        ),
        (Format::Responses, json!({"model": "m", "input": "a", "previous_response_id": "r"}), "previous"),
        (Format::Responses, json!({"model": "m", "input": "a", "tools": [{"type": "web_search"}]}), "web_search"),
        (
            Format::Messages,
            json!({"model": "m", "messages": [], "tools": [{"name": "bash", "type": "bash_1"}]}),
            "bash",
        ),
        (Format::Chat, json!({"model": "m", "messages": [], "logprobs": true}), "`logprobs`"),
        (Format::Chat, json!({"model": "m", "messages": [], "logit_bias": {"5": 1}}), "`logit_bias`"),
        (Format::Responses, json!({"model": "m", "input": "a", "background": true}), "`background`"),
        (Format::Responses, json!({"model": "m", "input": "a", "conversation": "c"}), "`conversation`"),
        (Format::Responses, json!({"model": "m", "input": "a", "prompt": {"id": "p"}}), "`prompt`"),
    ];
    for (format, body, word) in table {
        let refused = relay(&pool, format, &body).await;
        let Err(Refusal::Misfit(misfit)) = refused else { panic!("{refused:?}") };
        assert!(misfit.message.contains(word), "{misfit:?}");
    }
    assert_eq!(server.count(), 0);
}

/// How long to think chose the model, and was not said to it.
#[tokio::test]
async fn a_translated_request_says_how_long_to_think_and_what_says_nothing_is_no_hindrance() {
    let server = start(vec![Rule::always(vec![Answer::text("ok")])]).await;
    let request = json!({"model": "m", "input": "a", "reasoning": {"effort": "high", "summary": "auto"}, "background": false,
        "top_logprobs": null, "include": ["reasoning.encrypted_content"], "truncation": "auto", "metadata": {}});
    let relayed = relay(&pool(&server, Provider::Openai), Format::Responses, &request).await.unwrap();
    let (answer, _) = all(relayed).await;
    assert_eq!(told(Format::Responses, false, &answer).0, "ok");
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent["reasoning_effort"], "high");
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "reasoning_effort": "low", "logprobs": false});
    for provider in [Provider::Anthropic, Provider::Gemini] {
        all(relay(&pool(&server, provider), Format::Chat, &chat).await.unwrap()).await;
    }
    assert!(!String::from_utf8_lossy(&server.requests()[2].body).contains("low"), "the others have no such word");
}
