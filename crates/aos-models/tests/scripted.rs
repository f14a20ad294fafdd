//! The pool against the scripted server: the ordinary path in every wire format.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aos_abi::inference::{Encoding, Message, NativeCall, Part, Prompt, Reply, Stop};
use aos_abi::syscall::CallSet;
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Call, Rule, Script, Server};
use aos_models::{Delta, Options, Pool, Provider};
use serde_json::json;

const PROVIDERS: [Provider; 3] = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
const EFFECT: EffectId = EffectId { cause: Lsn(41), nth: 0 };

fn prompt(task: &str) -> Prompt {
    Prompt {
        system: "You are process 7.".to_owned(),
        messages: vec![Message::User(vec![Part::Text(task.to_owned())])],
        status: "It is noon.".to_owned(),
        tools: CallSet::all(),
        encoding: Encoding::Native,
        max_output: 500,
    }
}

fn pool(server: &Server, provider: Provider) -> Pool {
    let models = BTreeMap::from([("m".to_owned(), server.model(provider))]);
    Pool::new(models, Arc::new(|_| None), Options::default())
}

/// What the kernel does between two inferences, with a result made up for each call.
fn advance(prompt: &mut Prompt, reply: Reply, result: impl Fn(&NativeCall) -> String) {
    let results: Vec<Message> = reply
        .calls
        .iter()
        .map(|call| Message::Result { call_id: call.id.clone(), name: call.name.clone(), content: result(call) })
        .collect();
    prompt.messages.push(Message::Assistant { text: reply.text, calls: reply.calls });
    prompt.messages.extend(results);
}

#[tokio::test]
async fn a_conversation_with_calls_works_in_every_format() {
    for provider in PROVIDERS {
        let text = "grüße 😀 日本";
        let calls =
            vec![Call::new("SPAWN_AGENT", json!({"role": "Ü"})), Call::new("FS_READ", json!({"path": "a.txt"}))];
        let first = Answer { text: text.to_owned(), calls, chunk_bytes: 3, write_bytes: 5, ..Answer::default() };
        let second = Answer { calls: vec![Call::new("WAIT", json!({"pid": "{{result.0.pid}}"}))], ..Answer::default() };
        let third = Answer::text("It was {{last_result.result}}.");
        let server = Server::start(Script::new(vec![Rule::always(vec![first, second, third])])).await.unwrap();
        let pool = pool(&server, provider);
        let mut prompt = prompt("begin");
        let deltas = Mutex::new(Vec::new());

        let reply = pool.infer("m", &prompt, EFFECT, |delta| deltas.lock().unwrap().push(delta)).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop, reply.model.as_str()), (text, Stop::Calls, "m"), "{provider:?}");
        assert!(!reply.usage.estimated && reply.usage.input_tokens > 100, "{provider:?}: {:?}", reply.usage);
        let calls: Vec<(&str, &str)> = reply.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("SPAWN_AGENT", r#"{"role":"Ü"}"#), ("FS_READ", r#"{"path":"a.txt"}"#)], "{provider:?}");
        let deltas = deltas.into_inner().unwrap();
        let texts: String =
            deltas.iter().filter_map(|d| if let Delta::Text(t) = d { Some(&**t) } else { None }).collect();
        assert_eq!(texts, text);
        assert_eq!(deltas.iter().filter(|delta| matches!(delta, Delta::Call { .. })).count(), 2);

        advance(&mut prompt, reply, |call| match call.name.as_str() {
            "SPAWN_AGENT" => r#"{"status":"SUCCESS","result":{"pid":9}}"#.to_owned(),
            _ => r#"{"status":"SUCCESS","result":{"content":"x"}}"#.to_owned(),
        });
        let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
        assert_eq!(reply.calls[0].arguments, r#"{"pid":9}"#, "{provider:?}: the template took the number");
        advance(&mut prompt, reply, |_| {
            r#"{"status":"SUCCESS","result":{"pid":9,"exit_code":0,"result":"42 words"}}"#.to_owned()
        });
        let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.stop), ("It was 42 words.", Stop::End), "{provider:?}");
        assert_eq!(server.count(), 3);
    }
}

#[tokio::test]
async fn the_text_form_needs_no_tools() {
    let step = |text: &str, call| Answer { text: text.to_owned(), calls: vec![call], ..Answer::default() };
    let answers = vec![
        step("I look.", Call::new("FS_LIST", serde_json::json!({ "path": "." }))),
        step("I write.", Call::new("FS_WRITE", serde_json::json!({ "path": "a", "content": "b" }))),
    ];
    let server = Server::start(Script::new(vec![Rule::always(answers)])).await.unwrap();
    let pool = pool(&server, Provider::Openai);
    let mut prompt = Prompt { encoding: Encoding::Text, ..prompt("anything") };
    let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
    assert_eq!(reply.text, "I look.\n[SYS_CALL::FS_LIST] {\"path\":\".\"}");
    prompt.messages.push(Message::Assistant { text: reply.text, calls: vec![] });
    let result = Message::Result { call_id: "1".into(), name: "FS_LIST".into(), content: "{}".into() };
    prompt.messages.push(result);
    let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
    assert!(reply.text.contains("[SYS_CALL::FS_WRITE]"), "{}", reply.text);
}

#[tokio::test]
async fn instant_answers_parse_in_every_format() {
    let server = Server::start(Script::instant("ok")).await.unwrap();
    for provider in PROVIDERS {
        let reply = pool(&server, provider).infer("m", &prompt("x"), EFFECT, |_| ()).await.unwrap();
        assert_eq!(
            (reply.text.as_str(), reply.stop, reply.usage.input_tokens),
            ("ok", Stop::End, 3000),
            "{provider:?}"
        );
    }
}

async fn ask(server: &Server, prompt: &Prompt) -> String {
    match pool(server, Provider::Openai).infer("m", prompt, EFFECT, |_| ()).await {
        Ok(reply) => reply.text,
        Err(failure) => failure.message,
    }
}

fn script(text: &str) -> Script {
    toml::from_str(text).unwrap()
}

#[tokio::test]
async fn rules_match_in_order_on_what_they_name() {
    let server = Server::start(script(
        r#"
        [[rule]]
        when = { last = "ping", system = "process 8" }
        answer = [{ text = "wrong system" }]
        [[rule]]
        when = { last = "ping" }
        times = 1
        answer = [{ text = "first pong" }]
        [[rule]]
        when = { regex = "add (?<a>\\d+) and (\\d+)" }
        answer = [{ text = "{{a}}+{{2}} of {{0}}, {{nothing}}" }]
        [[rule]]
        when = { any = "ping", nth = 1 }
        answer = [{ text = "it was a ping" }]
        [[rule]]
        when = { last = "ping", model = "scripted", step = 0 }
        answer = [{ text = "pong" }]
        "#,
    ))
    .await
    .unwrap();
    assert_eq!(ask(&server, &prompt("ping")).await, "first pong");
    assert_eq!(ask(&server, &prompt("ping")).await, "pong");
    assert_eq!(ask(&server, &prompt("please add 12 and 30")).await, "12+30 of add 12 and 30, {{nothing}}");
    let mut later = prompt("ping");
    later.messages.push(Message::Assistant { text: "pong".to_owned(), calls: vec![] });
    later.messages.push(Message::User(vec![Part::Text("what was it?".to_owned())]));
    assert_eq!(ask(&server, &later).await, "it was a ping");
    let unmatched = ask(&server, &prompt("else")).await;
    assert!(unmatched.contains("no rule of the script matches"), "{unmatched}");
}

/// A daemon and a server that were both started anew go on where they were, since the request says where that is.
#[tokio::test]
async fn a_script_goes_on_after_a_restart() {
    let step = |path: &str| Answer { calls: vec![Call::new("FS_READ", json!({"path": path}))], ..Answer::default() };
    let rules = || Script::new(vec![Rule::always(vec![step("a"), step("b"), Answer::text("end")])]);
    let mut prompt = prompt("begin");
    let mut seen = Vec::new();
    for _ in 0..2 {
        for _ in 0..3 {
            let server = Server::start(rules()).await.unwrap();
            let reply = pool(&server, Provider::Openai).infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
            seen.push(reply.calls.first().map_or_else(|| reply.text.clone(), |call| call.arguments.clone()));
            advance(&mut prompt, reply, |_| "{}".to_owned());
        }
        // A resident agent gets the next task, and the script begins again.
        prompt.messages.push(Message::User(vec![Part::Text("again".to_owned())]));
    }
    assert_eq!(seen, [r#"{"path":"a"}"#, r#"{"path":"b"}"#, "end"].repeat(2));
    let ids: std::collections::BTreeSet<&str> = prompt
        .messages
        .iter()
        .filter_map(|message| if let Message::Result { call_id, .. } = message { Some(&**call_id) } else { None })
        .collect();
    assert_eq!(ids.len(), 4, "no id comes twice");
}

#[tokio::test]
async fn the_call_before_can_choose_the_rule_in_every_format() {
    let text = r#"
        [[rule]]
        when = { after = "WAIT" }
        answer = [{ text = "waited for {{last_result.pid}}" }]
        [[rule]]
        answer = [{ calls = [{ name = "WAIT" }] }]
    "#;
    for provider in PROVIDERS {
        for encoding in [Encoding::Native, Encoding::Text] {
            let server = Server::start(script(text)).await.unwrap();
            let pool = pool(&server, provider);
            let mut prompt = Prompt { encoding, ..prompt("begin") };
            let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
            if encoding == Encoding::Text {
                assert_eq!(reply.text, "[SYS_CALL::WAIT] {}");
            }
            prompt.messages.push(Message::Assistant { text: reply.text, calls: reply.calls.clone() });
            let call_id = reply.calls.first().map_or_else(|| "1".to_owned(), |call| call.id.clone());
            let content = r#"{"status":"SUCCESS","result":{"pid":9}}"#.to_owned();
            prompt.messages.push(Message::Result { call_id, name: "WAIT".to_owned(), content });
            let reply = pool.infer("m", &prompt, EFFECT, |_| ()).await.unwrap();
            assert_eq!(reply.text, "waited for 9", "{provider:?} {encoding:?}");
        }
    }
}

#[tokio::test]
async fn a_bad_regular_expression_names_its_rule() {
    let error = Server::start(script("[[rule]]\n[[rule]]\nwhen = { regex = \"(\" }")).await.unwrap_err();
    assert_eq!(error.to_string(), "rule 1 of the script has a bad regular expression");
    assert!(toml::from_str::<Script>("[[rule]]\nwhen = { lst = \"x\" }").is_err(), "unknown keys are errors");
}
