//! Other programs that ask models with a key, end to end: over plain sockets, through the real daemon.
//!
//! Start at the first test. Each answer comes from the scripted model over real HTTP. What official clients make of it is
//! checked by `examples/clients/run`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use aos_models::scripted::{Answer, Fault, Rule, When};
use rig::{Http, POLICY, Rig, Setup, any, assert_told, say, until};
use serde_json::{Value, json};

/// The scripted model's answer to `alpha`, in small pieces.
fn alpha() -> Vec<aos_models::scripted::Rule> {
    vec![any("alpha", vec![Answer { text: "It is done.".into(), chunk_bytes: 3, ..Answer::default() }])]
}

fn key(rig: &Rig, arguments: &[&str]) -> (u64, String) {
    let made = rig.json(&[&["models", "key"], arguments].concat());
    (made["pid"].as_u64().unwrap(), made["key"].as_str().unwrap().to_owned())
}

fn ask_of(rig: &Rig, key: &str, path: &str, body: &Value) -> Http {
    let bearer = format!("Bearer {key}");
    rig.tcp("POST", path, &[("Authorization", &bearer)], Some(&body.to_string()))
}

fn ask(rig: &Rig, key: &str, model: &str, text: &str) -> Http {
    let messages = json!([{ "role": "user", "content": text }]);
    ask_of(rig, key, "/v1/chat/completions", &json!({ "model": model, "messages": messages }))
}

#[test]
fn a_program_is_answered_paid_for_and_accounted() {
    let rig = Rig::new(alpha());
    let (pid, secret) = key(&rig, &["editor", "--owner", "Ada", "--budget", "0.5"]);
    let answer = ask(&rig, &secret, "small", "alpha");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "It is done.");
    assert_eq!(answer.header("x-aos-model"), "small");

    let streamed = ask_of(
        &rig,
        &secret,
        "/v1/messages",
        &json!({ "model": "small", "stream": true, "max_tokens": 99,
            "messages": [{ "role": "user", "content": "alpha" }] }),
    );
    let text = streamed.text();
    assert!(text.contains("event: message_start") && text.contains("event: message_stop"), "{text}");
    let responses = ask_of(&rig, &secret, "/v1/responses", &json!({ "model": "auto", "input": "alpha" }));
    assert_eq!(responses.json()["output"][0]["content"][0]["text"], "It is done.", "{responses:?}");

    let process = until("what was used is settled", || {
        let process = rig.process(pid);
        (process["usage"]["inferences"] == 3).then_some(process)
    });
    assert_eq!((&process["name"], &process["mode"]), (&json!("editor"), &json!("program")));
    assert_eq!((&process["state"], &process["waiting_for"]), (&json!("blocked"), &json!("requests")));
    let cost = process["usage"]["cost_usd"].as_f64().unwrap();
    assert!(cost > 0.0 && (process["budget"]["usd_left"].as_f64().unwrap() - (0.5 - cost)).abs() < 1e-9, "{process}");
    assert_eq!(rig.entries(pid, "charged").len(), 3);
    assert_eq!(rig.entries(pid, "served").len(), 3);

    // What was said is nobody's business but the program's and the model's, and the key is the program's alone.
    let kept: String = rig.journal().iter().map(ToString::to_string).collect();
    assert!(!kept.contains("alpha") && !kept.contains("It is done") && !kept.contains(&secret), "{kept}");
    assert!(!rig.log().contains(&secret) && !rig.log().contains("alpha"), "{}", rig.log());
    let told = rig.aos(&["logs", &pid.to_string()]);
    assert!(told.out.contains("a key of Ada") && told.out.contains("answered in"), "{told:?}");
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}

/// A request for a stream, of which nothing is read yet.
fn stream_of(rig: &Rig, secret: &str) -> TcpStream {
    let body =
        json!({ "model": "small", "stream": true, "messages": [{ "role": "user", "content": "alpha" }] }).to_string();
    let mut stream = TcpStream::connect(rig.listen()).unwrap();
    stream.set_read_timeout(Some(rig::DEADLINE)).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        rig.listen(),
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The stream ended like that of a whole answer.
#[test]
fn a_key_that_is_taken_back_in_the_middle_of_an_answer_is_told_so() {
    // Longer than anybody waits.
    let long =
        Answer { text: "word ".repeat(500), chunk_bytes: 5, write_bytes: 64, write_delay_ms: 500, ..Answer::default() };
    let rig = Rig::new(vec![any("alpha", vec![long])]);
    let (pid, secret) = key(&rig, &["editor"]);
    let mut stream = stream_of(&rig, &secret);
    let mut told = vec![0; 4096];
    let first = stream.read(&mut told).unwrap();
    told.truncate(first);
    assert_eq!(rig.aos(&["kill", &pid.to_string()]).code, 0);
    let _ = stream.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 200") && !told.contains("[DONE]"), "{told}");
    // Behind half an event nothing can be said: the transfer ends without its last chunk.
    assert!(told.contains("the key has ended while this was answered") || !told.ends_with("\r\n0\r\n\r\n"), "{told}");
}

/// It held the slot until it had read everything, and agents waited.
#[test]
fn a_program_that_reads_slowly_holds_no_slot() {
    // More than sockets hold.
    let long = Answer { text: "0123456789abcdef".repeat(7 << 16), chunk_bytes: 64 << 10, ..Answer::default() };
    let model = Setup::default().model.replace("concurrency = 32", "concurrency = 1");
    let rig =
        Rig::with(vec![any("alpha", vec![long]), any("beta", vec![say("ok")])], Setup { model, ..Setup::default() });
    let (pid, secret) = key(&rig, &["editor"]);
    let mut stream = stream_of(&rig, &secret);
    let mut told = vec![0; 12];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(told, b"HTTP/1.1 200");
    let served = until("the model is done", || rig.entries(pid, "served").first().cloned());
    assert_eq!(served["whole"], true, "{served}");
    assert_eq!(ask(&rig, &secret, "small", "beta").status, 200);
    // What it had not read is there all the same.
    stream.read_to_end(&mut told).unwrap();
    assert!(told.len() > 7 << 20 && told.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "{} bytes", told.len());
}

#[test]
fn a_key_opens_what_it_is_for_and_nothing_else() {
    let more =
        "[models.big]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"http://127.0.0.1:9\"\ntier = \"strong\"\n";
    let setup = Setup { more: "default_model = \"small\"\n".into(), ..Setup::default() };
    let rig = Rig::with(alpha(), setup);
    let config = rig::read(rig.file("aos.toml")).replace("[models.small]", "[models.small]\ntier = \"small\"");
    std::fs::write(rig.file("aos.toml"), format!("{config}{more}")).unwrap();
    let (pid, secret) = key(&rig, &["editor", "--tier", "small", "--rpm", "4"]);
    let bearer = format!("Bearer {secret}");
    let authorization = [("Authorization", bearer.as_str())];
    assert_eq!(rig.tcp("GET", "/v1/processes", &authorization, None).status, 401);
    let models = rig.tcp("GET", "/v1/models", &authorization, None).json();
    let ids: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [&json!("small")]);

    let refused = |answer: Http, status: u16, words: &str| {
        let said = answer.json();
        let said = said["error"]["message"].as_str().unwrap();
        assert!(answer.status == status && said.contains(words), "{words}: {} {said}", answer.status);
    };
    refused(ask(&rig, "aos_sk_0123456789-abcdefghijklmnopqrstuvwxyz_ABCDE", "small", "alpha"), 401, "aos models key");
    refused(ask(&rig, &rig.token(), "small", "alpha"), 401, "aos models key");
    refused(ask(&rig, &secret, "big", "alpha"), 403, "the key may use small");
    refused(ask(&rig, &secret, "huge", "alpha"), 404, "the key may use small");
    refused(ask_of(&rig, &secret, "/v1/chat/completions", &json!([1])), 400, "a JSON object was expected");
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
    let busy = ask(&rig, &secret, "small", "alpha");
    assert!(!busy.header("retry-after").is_empty(), "{busy:?}");
    refused(busy, 429, "4 times a minute");

    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    refused(ask(&rig, &secret, "small", "alpha"), 403, "paused");
    assert_eq!(rig.aos(&["kill", &pid.to_string()]).code, 0);
    until("the key is taken back", || (ask(&rig, &secret, "small", "alpha").status == 401).then_some(()));
    assert_told(&rig.aos(&["send", &pid.to_string(), "hello"]), 1, &["ended"]);
}

/// A request that needs what the cheaper model is not said to have goes to the other one, or to none.
#[test]
fn what_a_request_needs_decides_who_is_asked() {
    let rig = Rig::with(alpha(), Setup { more: "default_model = \"auto\"\n".into(), ..Setup::default() });
    let config = rig::read(rig.file("aos.toml"));
    let (_, small) = config.split_once("[models.small]").unwrap();
    let able = format!("[models.able]\ntier = \"strong\"\njson_schema = true\nreasoning = true{small}");
    let config = config.replace("[models.small]", "[models.small]\ntier = \"small\"");
    std::fs::write(rig.file("aos.toml"), format!("{config}\n{able}")).unwrap();
    let (pid, secret) = key(&rig, &["editor"]);
    let chat = |model: &str, more: Value| {
        let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "alpha" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask_of(&rig, &secret, "/v1/chat/completions", &body)
    };
    let form = json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": {} } } });
    assert_eq!(chat("auto", json!({})).header("x-aos-model"), "small");
    assert_eq!(chat("auto", form.clone()).header("x-aos-model"), "able");
    assert_eq!(chat("small", form).header("x-aos-model"), "small", "it was named");
    let thinks = json!({ "model": "auto", "reasoning": { "effort": "high" }, "input": "alpha" });
    assert_eq!(ask_of(&rig, &secret, "/v1/responses", &thinks).header("x-aos-model"), "able");
    let image = json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }]);
    let refused = chat("auto", json!({ "messages": [{ "role": "user", "content": image }] }));
    let said = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(refused.status == 400 && said.contains("`images = true`") && said.contains("name a model"), "{said}");
    let routed = rig.entries(pid, "routed");
    assert_eq!(routed.len(), 3, "{routed:?}");
    assert!(routed[1]["why"].as_str().unwrap().contains("lowest tier that may serve"), "{routed:?}");
    let route = rig.json(&["models", "route", "--needs", "reasoning,json_schema"]);
    assert_eq!(route["order"][0]["model"], "able", "{route}");
    assert!(route["barred"][0]["why"].as_str().unwrap().contains("`reasoning`"), "{route}");
}

/// What has no worst that could be set aside reaches no model, and is said as the client of each format expects it.
#[test]
fn what_has_no_bound_is_refused_in_the_words_of_its_format() {
    let rig = Rig::new(alpha());
    let (_, secret) = key(&rig, &["editor", "--budget", "0.5"]);
    let said = json!([{ "role": "user", "content": "alpha" }]);
    let many = ask_of(&rig, &secret, "/v1/chat/completions", &json!({ "model": "small", "n": 128, "messages": said }));
    let error = many.json()["error"].clone();
    assert_eq!((many.status, &error["type"]), (400, &json!("invalid_request_error")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("leave `n` out"), "{error}");
    let pages = json!({ "type": "document", "source": { "type": "url", "url": "https://example.org/100-pages.pdf" } });
    let body = json!({ "model": "small", "max_tokens": 9, "messages": [{ "role": "user", "content": [pages] }] });
    let by_address = ask_of(&rig, &secret, "/v1/messages", &body);
    let said = by_address.json();
    assert_eq!((by_address.status, &said["error"]["type"]), (400, &json!("invalid_request_error")), "{said}");
    assert!(said["error"]["message"].as_str().unwrap().contains("by its address"), "{said}");
    assert_eq!(rig.request_count(), 0);
}

#[test]
fn a_spent_budget_is_said_before_anything_is_asked() {
    let rig = Rig::new(alpha());
    // One request may cost as much as its model may answer: 4096 tokens of a dollar a million.
    let (_, secret) = key(&rig, &["editor", "--budget", "0.005"]);
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
    let (_, poor) = key(&rig, &["poor", "--budget", "0.001"]);
    let answer = ask(&rig, &poor, "small", "alpha");
    assert_eq!(answer.status, 402, "{answer:?}");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("aos budget"), "{answer:?}");
    assert_eq!(rig.request_count(), 1);
}

/// Requests that nothing comes of filled the disk, as fast as a program could ask.
#[test]
fn what_is_refused_again_and_again_leaves_few_entries_and_is_counted() {
    let rig = Rig::new(alpha());
    let (pid, secret) = key(&rig, &["editor", "--budget", "0.5"]);
    let (poor_pid, poor) = key(&rig, &["poor", "--budget", "0.001"]);
    for _ in 0..20 {
        let (gone, spent) = (ask(&rig, &secret, "gone", "alpha"), ask(&rig, &poor, "small", "alpha"));
        assert_eq!((gone.status, spent.status), (404, 402), "{gone:?} {spent:?}");
        assert!(spent.json()["error"]["message"].as_str().unwrap().contains("aos budget"), "{spent:?}");
    }
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
    let counts = [pid, poor_pid].map(|pid| (rig.entries(pid, "asked").len(), rig.entries(pid, "refused").len()));
    assert_eq!(counts, [(11, 10), (10, 10)]);
    assert_eq!(rig.entries(pid, "asked")[10]["more"], 10, "they are counted");
    let told = rig.aos(&["logs", &pid.to_string()]);
    assert!(told.out.contains("10 before it were refused like others"), "{told:?}");
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}

/// The daemon dies while a model answers a program: the key still holds afterwards, and nobody was given anything.
#[test]
fn a_killed_daemon_forgets_no_key_and_no_debt() {
    let slow = Answer { text: "too late".into(), delay_ms: 60_000, ..Answer::default() };
    let mut rules = alpha();
    rules.push(any("beta", vec![slow]));
    let rig = Rig::new(rules);
    let (pid, secret) = key(&rig, &["editor", "--budget", "0.5"]);
    let waiting = std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let bearer = format!("Bearer {secret}");
            let body = json!({ "model": "small", "messages": [{ "role": "user", "content": "beta" }] }).to_string();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rig.tcp("POST", "/v1/chat/completions", &[("Authorization", &bearer)], Some(&body)).status
            }))
        });
        until("a model is asked", || (rig.request_count() == 1).then_some(()));
        assert_eq!(rig.process(pid)["state"], "running");
        rig.kill_daemon();
        asks.join().unwrap()
    });
    assert!(waiting.is_err() || waiting.is_ok_and(|status| status != 200));
    rig.up();
    let process = rig.process(pid);
    assert_eq!(process["state"], "blocked", "{process}");
    // At the worst: what may have been answered is paid.
    assert!(process["usage"]["cost_usd"].as_f64().unwrap() >= 4096.0 / 1e6, "{process}");
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}

#[test]
fn personal_data_of_a_program_stays_here() {
    let policy = format!(
        "{POLICY}\nlabels:\n  - {{when: personal, to: model.remote, do: redact}}\npersonal_data: {{detect: [email]}}\n"
    );
    let model = Setup::default().model.replace("local = true\n", "");
    let told = Answer { text: "I wrote to [EMAIL_1].".into(), chunk_bytes: 2, ..Answer::default() };
    let rig = Rig::with(vec![any("alpha", vec![told])], Setup { policy: Some(policy), model, ..Setup::default() });
    let (pid, secret) = key(&rig, &["editor"]);
    let answer = ask(&rig, &secret, "small", "alpha: write to ada@example.com");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "I wrote to ada@example.com.", "{answer:?}");
    let sent = rig.requests()[0].to_string();
    assert!(!sent.contains("ada@example.com") && sent.contains("[EMAIL_1]"), "{sent}");
    until("it is told", || rig.entries(pid, "served").first().cloned());
    let served = rig.entries(pid, "served")[0].to_string();
    assert!(served.contains("email") && !served.contains("ada@"), "{served}");
}

#[test]
fn what_of_a_program_cannot_be_looked_at_stays_here() {
    let labels = "labels:\n  - {when: personal, to: model.remote, do: redact}\n";
    let policy = format!("{POLICY}\n{labels}personal_data: {{detect: [email], custom: {{mark: \"Q\"}}}}\n");
    let model = Setup::default().model.replace("local = true\n", "");
    let setup = Setup { policy: Some(policy), model, ..Setup::default() };
    let rig = Rig::with(vec![any("alpha", vec![say("ok")])], setup);
    let (_, secret) = key(&rig, &["editor"]);
    let answer = ask(&rig, &secret, "small", &format!("alpha {}", "Q".repeat(5000)));
    assert!(answer.status >= 400, "{}", answer.status);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("nothing was sent"));
    assert!(rig.requests().is_empty());
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
}

/// LangChain's client sends lists of tokens unless told otherwise, and was refused even by a model of this machine.
#[test]
fn lists_of_tokens_pass_where_nothing_is_kept_back_and_are_refused_with_the_way_out_elsewhere() {
    let labels = "labels:\n  - {when: personal, to: model.remote, do: redact}\n";
    let policy = format!("{POLICY}\n{labels}personal_data: {{detect: [email]}}\n");
    for (local, status) in [(true, 200), (false, 400)] {
        let model = Setup::default().model;
        let model = if local { model } else { model.replace("local = true\n", "") };
        let rig = Rig::with(alpha(), Setup { policy: Some(policy.clone()), model, ..Setup::default() });
        let (_, secret) = key(&rig, &["indexer"]);
        let body = json!({ "model": "small", "input": [[101, 2023, 102], [7]] });
        let answer = ask_of(&rig, &secret, "/v1/embeddings", &body);
        assert_eq!(answer.status, status, "{answer:?}");
        let told = answer.text();
        assert_eq!(told.contains("check_embedding_ctx_length=False"), !local, "{told}");
    }
}

/// Vectors come as they were asked for, one for each text, and are paid for like answers.
#[test]
fn texts_become_vectors_by_the_model_that_is_named() {
    let rig = Rig::new(alpha());
    let (pid, secret) = key(&rig, &["indexer", "--budget", "0.5"]);
    let embed = |body: &Value| ask_of(&rig, &secret, "/v1/embeddings", body);
    let texts = json!(["alpha", "beta", "gamma"]);
    let floats = embed(&json!({ "model": "small", "input": texts, "dimensions": 3 }));
    assert_eq!(floats.status, 200, "{floats:?}");
    assert_eq!(floats.json()["data"].as_array().unwrap().len(), 3);
    assert_eq!(floats.json()["data"][2]["embedding"], json!([1.0, 0.5, 0.5]), "the dimensions that were asked for");
    let packed = embed(&json!({ "model": "small", "input": "alpha", "encoding_format": "base64" }));
    assert_eq!(packed.json()["data"][0]["embedding"], "AACAPwAAAD8=");
    let process = until("what was used is settled", || {
        let process = rig.process(pid);
        (process["usage"]["inferences"] == 2).then_some(process)
    });
    assert_eq!(process["usage"]["input_tokens"], 12, "as the server said: {process}");
    let routed = embed(&json!({ "model": "auto", "input": "alpha" }));
    assert_eq!((routed.status, routed.json()["error"]["code"].clone()), (400, json!("EINVAL")), "{routed:?}");
    let models = rig.tcp("GET", "/v1/models", &[("Authorization", &format!("Bearer {secret}"))], None).json();
    assert!(models["data"][0]["created"].as_u64().unwrap() > 1_700_000_000, "{models}");
    assert_eq!(models["data"][0]["owned_by"], "openai");
}

/// Before anything was answered the next model is asked, whole and streamed, and what really served is paid and named.
#[test]
fn a_program_is_answered_by_the_next_model_where_one_fails() {
    let of = |model: &str| When { any: Some("alpha".into()), model: Some(model.into()), ..When::default() };
    let busy = || Fault::Status { status: 503, body: "{}".to_owned(), headers: Default::default() };
    let rules = vec![
        Rule { when: of("scripted"), fault: Some(busy()), ..Rule::default() },
        Rule { when: of("other"), answers: alpha().remove(0).answers, ..Rule::default() },
    ];
    let rig = Rig::with(rules, Setup { more: "default_model = \"small\"\n".into(), ..Setup::default() });
    let config = rig::read(rig.file("aos.toml"));
    let (_, small) = config.split_once("[models.small]").unwrap();
    let other = small.replace("model = \"scripted\"", "model = \"other\"");
    let config = format!("{config}\n[models.other]{other}\n[router]\nfallback = [\"other\"]\n");
    std::fs::write(rig.file("aos.toml"), config).unwrap();
    let (pid, secret) = key(&rig, &["editor", "--budget", "0.5"]);
    for stream in [false, true] {
        let messages = json!([{ "role": "user", "content": "alpha" }]);
        let body = json!({ "model": "small", "stream": stream, "messages": messages });
        let answer = ask_of(&rig, &secret, "/v1/chat/completions", &body);
        assert_eq!((answer.status, answer.header("x-aos-model")), (200, "other"), "{answer:?}");
        let said = if stream { answer.text().contains("[DONE]") } else { answer.text().contains("It is done.") };
        assert!(said, "{answer:?}");
    }
    let served = until("both are settled", || Some(rig.entries(pid, "charged")).filter(|charged| charged.len() >= 2));
    assert!(served.iter().any(|entry| entry["model"] == "other"), "{served:?}");
    assert_eq!(rig.entries(pid, "routed").len(), 2);
}

/// A rule that fails each request that says this, with this status and body.
fn fails(said: &str, status: u16, body: &str) -> Rule {
    let fault = Fault::Status { status, body: body.into(), headers: [].into() };
    Rule { fault: Some(fault), ..any(said, vec![say("never")]) }
}

/// Three requests for something else than an answer closed the model's address: the owner's agents went to a dearer tier, and
/// the key had paid nothing.
#[test]
fn what_a_program_asks_for_closes_no_model_to_agents() {
    let mut rules = alpha();
    rules.push(fails("beta", 200, r#"{"request_id":"r-1"}"#));
    let rig = Rig::with(rules, Setup { more: "default_model = \"small\"\n".into(), ..Setup::default() });
    let config = rig::read(rig.file("aos.toml")).replace("[models.small]", "[models.small]\ntier = \"small\"");
    let more = "[models.big]\nprovider = \"openai\"\nmodel = \"x\"\nbase_url = \"http://127.0.0.1:9\"\ntier = \"strong\"\nprice = { input = 1.0, output = 1.0 }\n";
    std::fs::write(rig.file("aos.toml"), format!("{config}{more}")).unwrap();
    let (pid, secret) = key(&rig, &["editor", "--budget", "1"]);
    for _ in 0..4 {
        let answer = ask(&rig, &secret, "small", "beta");
        assert!(answer.status == 502 && answer.text().contains("no answer"), "{answer:?}");
    }
    assert_eq!(rig.request_count(), 4, "each is sent once");
    let route = rig.json(&["models", "route", "-m", "small"]);
    assert_eq!(route["order"][0]["model"], "small", "{route}");
    assert!(!route.to_string().contains("down"), "{route}");
    let circuits = rig.entries(pid, "circuit");
    assert!(circuits.iter().all(|circuit| circuit["of"] == format!("small for program {pid}")), "{circuits:?}");
    let spent = until("all four are settled", || {
        let process = rig.process(pid);
        (process["usage"]["inferences"] == 4).then(|| process["usage"]["cost_usd"].as_f64().unwrap())
    });
    assert!(spent > 4.0 * 0.004, "each at the longest answer: {spent}");
}

/// Three requests went out for each one that was counted.
#[test]
fn no_model_is_asked_oftener_than_its_minute_has_room_for() {
    let limits = |rpm: u32| Setup {
        model: Setup::default().model.replace("concurrency = 32", &format!("concurrency = 32, rpm = {rpm}")),
        ..Setup::default()
    };
    let rig = Rig::with(vec![fails("alpha", 500, "{}")], limits(3));
    let (pid, secret) = key(&rig, &["editor"]);
    for asked in [1, 2, 3] {
        let failed = ask(&rig, &secret, "small", "alpha");
        assert_eq!((failed.status, failed.header("retry-after")), (503, "1"), "{failed:?}");
        assert_eq!(failed.json()["error"]["type"], "server_error");
        assert_eq!(rig.request_count(), asked);
    }
    assert_eq!(rig.entries(pid, "served").len(), 3);
    let rig = Rig::with(vec![fails("alpha", 500, "{}")], limits(1));
    let agent = rig.json(&["spawn", "alpha"])["pid"].as_u64().unwrap();
    until("it failed", || rig.entries(agent, "inference_completed").first().cloned());
    // Its pause is over by then, and the minute is not.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(rig.request_count(), 1);
}

/// It was served for ever: nothing that it cost was counted.
#[test]
fn a_budget_in_dollars_is_none_for_a_model_without_a_price() {
    let model = "context_window = 400000\nlimits = { concurrency = 32 }\n".to_owned();
    let rig = Rig::with(alpha(), Setup { model, ..Setup::default() });
    let (pid, secret) = key(&rig, &["editor", "--budget", "1"]);
    for asked in ["small", "auto"] {
        let refused = ask(&rig, &secret, asked, "alpha");
        assert!((400..500).contains(&refused.status), "{asked}: {refused:?}");
    }
    assert!(ask(&rig, &secret, "small", "alpha").text().contains("no price"));
    assert_eq!(rig.request_count(), 0);
    assert_eq!(rig.aos(&["budget", &pid.to_string(), "--tokens", "100000"]).code, 0);
    assert_eq!(ask(&rig, &secret, "small", "alpha").status, 200);
}

/// Whoever has a wrong address waited half a minute for good words.
#[test]
fn an_address_that_answers_web_pages_is_said_at_once() {
    let rig = Rig::new(vec![fails("alpha", 200, "<!doctype html><title>Sign in</title>")]);
    let (_, secret) = key(&rig, &["editor"]);
    let refused = ask(&rig, &secret, "small", "alpha");
    assert!(refused.status == 502 && refused.text().contains("web page"), "{refused:?}");
    assert_eq!(rig.request_count(), 2);
    assert_told(&rig.aos(&["run", "alpha"]), 1, &["web page", "check base_url of [models.small]"]);
    assert_eq!(rig.request_count(), 4);
}
