//! Each wire format against what its documentation shows: requests as they go out, answers as they come in.
//! The answers are written by hand after the public references; the sources are named in `src/{openai,anthropic,gemini}.rs`.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_abi::inference::{Encoding, Failure, FailureKind, Message, NativeCall, Part, Prompt, Reply, Stop};
use aos_abi::syscall::{CallSet, Name};
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Fault, Rule, Script, Server};
use aos_models::{Options, Pool, Provider, Retries};

const PROVIDERS: [Provider; 3] = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
const EFFECT: EffectId = EffectId { cause: Lsn(41), nth: 2 };

fn options() -> Options {
    Options { retries: Retries { retries_max: 0, ..Retries::default() }, ..Options::default() }
}

fn pool(server: &Server, provider: Provider, model: &str) -> Pool {
    let mut config = server.model(provider);
    config.model = model.to_owned();
    Pool::new(BTreeMap::from([("m".to_owned(), config)]), Arc::new(|_| None), options())
}

fn text(text: &str) -> Message {
    Message::User(vec![Part::Text(text.to_owned())])
}

fn call(id: &str, name: &str, arguments: &str) -> NativeCall {
    NativeCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn result(call_id: &str, name: &str, content: &str) -> Message {
    Message::Result { call_id: call_id.to_owned(), name: name.to_owned(), content: content.to_owned() }
}

/// A history with everything in it.
fn prompt() -> Prompt {
    let image = Part::Image { media_type: "image/png".to_owned(), base64: "iVBORw0=".to_owned() };
    let calls = vec![call("41.0", "SLEEP", r#"{"seconds":1}"#), call("c2", "SLEEP", r#"{"seconds":"#)];
    Prompt {
        system: "You are \"process\" 7.".to_owned(),
        messages: vec![
            Message::User(vec![Part::Text("look".to_owned()), image]),
            Message::Assistant { text: "I sleep.".to_owned(), calls },
            result("41.0", "SLEEP", r#"{"status":"SUCCESS"}"#),
            result("c2", "SLEEP", "not an object"),
            text("go on"),
        ],
        status: "It is noon.".to_owned(),
        tools: [Name::Sleep, Name::FsUnwatch].into_iter().collect(),
        encoding: Encoding::Native,
        max_output: 500,
    }
}

async fn request(provider: Provider, model: &str, prompt: &Prompt) -> String {
    let server = Server::start(Script::instant("ok")).await.unwrap();
    pool(&server, provider, model).infer("m", prompt, EFFECT, |_| ()).await.unwrap();
    let request = &server.requests()[0];
    let body = String::from_utf8(request.body.to_vec()).unwrap();
    // One member of each list per line, so that a change is seen where it is.
    format!("{}\n{}", request.path, body.replace("},{", "},\n{").replace(",\"messages\":", ",\n\"messages\":"))
}

#[tokio::test]
async fn requests_go_out_in_openais_form() {
    insta::assert_snapshot!(request(Provider::Openai, "gpt", &prompt()).await);
}

#[tokio::test]
async fn requests_go_out_in_anthropics_form() {
    insta::assert_snapshot!(request(Provider::Anthropic, "claude", &prompt()).await);
}

#[tokio::test]
async fn requests_go_out_in_geminis_form() {
    insta::assert_snapshot!(request(Provider::Gemini, "gemini-3-pro", &prompt()).await);
}

#[tokio::test]
async fn the_text_form_goes_out_without_tools() {
    for provider in PROVIDERS {
        let prompt = Prompt { encoding: Encoding::Text, ..prompt() };
        let sent = request(provider, "x", &prompt).await;
        assert!(!sent.contains("\"tools\"") && !sent.contains("tool_use") && !sent.contains("functionCall"), "{sent}");
        assert!(sent.contains(r#"[SYS_CALL::SLEEP] {\"seconds\":1}"#), "{sent}");
        assert!(sent.contains(r#"[RESULT 41.0 SLEEP] {\"status\":\"SUCCESS\"}"#), "{sent}");
    }
}

#[tokio::test]
async fn the_constrained_form_asks_for_a_schema() {
    let prompt = Prompt { encoding: Encoding::Constrained, ..prompt() };
    let sent = request(Provider::Openai, "x", &prompt).await;
    assert!(
        sent.contains(r#""response_format":{"type":"json_schema""#) && sent.contains(r#"{"const":"SLEEP"}"#),
        "{sent}"
    );
}

/// What a provider's prompt cache sees: the bytes up to the end of the history must be the bytes sent before.
#[tokio::test]
async fn a_growing_conversation_keeps_its_prefix_to_the_byte() {
    const BREAKPOINT: &str = r#","cache_control":{"type":"ephemeral"}"#;
    for (provider, encoding) in PROVIDERS.into_iter().flat_map(|of| [(of, Encoding::Native), (of, Encoding::Text)]) {
        let server = Server::start(Script::instant("ok")).await.unwrap();
        let pool = pool(&server, provider, "x");
        let mut prompt = Prompt { messages: vec![], tools: CallSet::all(), encoding, ..prompt() };
        for turn in 0..6_u32 {
            prompt.messages.push(match turn {
                0 | 1 | 5 => text(&format!("[[{turn}]]")),
                2 => Message::Assistant {
                    text: "thinking".to_owned(),
                    calls: vec![call("a", "WAIT", "{\"pid\":1}"), call("b", "WAIT", r#"{"pid":"[[2]]"}"#)],
                },
                _ => result(if turn == 3 { "a" } else { "b" }, "WAIT", &format!("[[{turn}]]")),
            });
            prompt.status = format!("{turn} o'clock, {} left", 1000 - turn * 7);
            prompt.max_output = 500 - turn;
            pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
        }
        let bodies: Vec<String> =
            server.requests().iter().map(|request| String::from_utf8(request.body.to_vec()).unwrap()).collect();
        for (turn, pair) in bodies.windows(2).enumerate() {
            // Anthropic's second breakpoint moves along; it marks a place and is no part of what is cached.
            let cut = |body: &str| {
                let (head, tail) = body.split_once("\"messages\"").unwrap_or((body, ""));
                format!("{head}\"messages\"{}", tail.replace(BREAKPOINT, ""))
            };
            let (old, new) = (cut(&pair[0]), cut(&pair[1]));
            let shared = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
            let marker = format!("[[{turn}]]");
            let end = old.rfind(&marker).map(|at| at + marker.len());
            assert!(
                end.is_some_and(|end| shared >= end),
                "{provider:?} {encoding:?} after turn {turn}: {}",
                &old[shared..]
            );
        }
    }
}

async fn answer(provider: Provider, body: &str) -> Result<Reply, Failure> {
    let fault = Fault::Body { content_type: "text/event-stream".to_owned(), body: body.to_owned() };
    let rule = Rule { fault: Some(fault), ..Rule::always(vec![Answer::default()]) };
    let server = Server::start(Script::new(vec![rule])).await.unwrap();
    pool(&server, provider, "x").infer("m", &prompt(), EFFECT, |_| ()).await
}

fn shown(reply: &Reply) -> String {
    let calls: Vec<String> =
        reply.calls.iter().map(|call| format!("{}:{}{}", call.id, call.name, call.arguments)).collect();
    let usage = &reply.usage;
    let tokens = format!("{}/{}/{}", usage.input_tokens, usage.output_tokens, usage.cached_input_tokens);
    format!("{:?} {:?} {} {tokens}{}", reply.text, reply.stop, calls.join(" "), if usage.estimated { "~" } else { "" })
}

#[tokio::test]
async fn openai_parallel_calls_are_assembled_by_index() {
    let reply = answer(Provider::Openai, r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"FS_READ","arguments":""}}]},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"SLEEP","arguments":""}}]},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"seconds\":1}"}},{"index":0,"function":{"arguments":"\"a\"}"}}]},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":900,"completion_tokens":33,"total_tokens":933,"prompt_tokens_details":{"cached_tokens":512,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}

data: [DONE]

"#).await.unwrap();
    insta::assert_snapshot!(shown(&reply), @r#""" Calls call_a:FS_READ{"path":"a"} call_b:SLEEP{"seconds":1} 900/33/512"#);
}

#[tokio::test]
async fn openai_like_servers_are_read_too() {
    // Whole calls, all with index 0, and reasoning beside the content.
    let reply = answer(Provider::Openai, r#": OPENROUTER PROCESSING

data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_1","index":0,"type":"function","function":{"name":"SLEEP","arguments":"{\"seconds\":1}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_2","index":0,"type":"function","function":{"name":"SLEEP","arguments":"{\"seconds\":2}"}}]},"finish_reason":"stop"}]}

data: [DONE]

"#).await.unwrap();
    insta::assert_snapshot!(shown(&reply).split("} ").take(2).collect::<Vec<_>>().join("} "), @r#""" Calls call_1:SLEEP{"seconds":1} call_2:SLEEP{"seconds":2"#);
    assert!(reply.usage.estimated);
    // No index and no id; arguments as an object; content in parts; a body that is not streamed.
    let reply = answer(Provider::Openai, r#"{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tool_calls":[{"function":{"name":"SLEEP","arguments":{"seconds":1}}},{"function":{"name":"SLEEP","arguments":{"seconds":2}}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":700.0,"completion_tokens":9}}"#).await.unwrap();
    insta::assert_snapshot!(shown(&reply), @r#""ab" Calls :SLEEP{"seconds":1} :SLEEP{"seconds":2} 700/9/0"#);
    let refused = answer(
        Provider::Openai,
        r#"data: {"choices":[{"index":0,"delta":{"refusal":"I can"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"refusal":"not."},"finish_reason":"stop"}]}

data: [DONE]

"#,
    )
    .await
    .unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused);
    assert!(refused.message.contains("I cannot."), "{refused:?}");
}

#[tokio::test]
async fn anthropic_events_are_read() {
    let reply = answer(Provider::Anthropic, r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":200,"cache_creation_input_tokens":300,"cache_read_input_tokens":400,"output_tokens":2}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"not shown"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Okay, "}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"grüße\n"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"SLEEP","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"seconds\": "}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":200,"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#).await.unwrap();
    insta::assert_snapshot!(shown(&reply), @r#""Okay, grüße\n" Calls toolu_1:SLEEP{"seconds": 1} 900/89/400"#);
}

#[tokio::test]
async fn gemini_chunks_are_read() {
    let reply = answer(Provider::Gemini, "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"hm\",\"thought\": true}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 800}}\r\n\r\ndata: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello\"}],\"role\": \"model\"},\"index\": 0}]}\r\n\r\ndata: {\"candidates\": [{\"content\": {\"parts\": [{\"functionCall\": {\"name\": \"SLEEP\",\"args\": {\"seconds\": 1}},\"thoughtSignature\": \"abc\"},{\"functionCall\": {\"id\": \"f2\",\"name\": \"FS_UNWATCH\"}}],\"role\": \"model\"},\"finishReason\": \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 800,\"candidatesTokenCount\": 10,\"thoughtsTokenCount\": 30,\"cachedContentTokenCount\": 600,\"totalTokenCount\": 840}}\r\n\r\n").await.unwrap();
    insta::assert_snapshot!(shown(&reply), @r#""Hello" Calls :SLEEP{"seconds": 1} f2:FS_UNWATCH{} 800/40/600"#);

    let blocked = answer(Provider::Gemini, r#"data: {"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":800,"totalTokenCount":800}}

"#).await.unwrap_err();
    assert_eq!(blocked.kind, FailureKind::Refused);
    assert!(blocked.message.contains("PROHIBITED_CONTENT"), "{blocked:?}");
    let malformed = answer(Provider::Gemini, r#"data: {"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: print("}]}

"#).await.unwrap_err();
    assert_eq!(malformed.kind, FailureKind::Transient, "{malformed:?}");
    let array = answer(
        Provider::Gemini,
        r#"[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},
{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"MAX_TOKENS"}]}]"#,
    )
    .await
    .unwrap();
    assert_eq!((array.text.as_str(), array.stop), ("ab", Stop::Length));
}
