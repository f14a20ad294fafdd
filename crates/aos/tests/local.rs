//! Models inside the program, end to end: files with random weights, agents and programs on them, through the real daemon.
//!
//! Start at the first test. What always holds: nothing is fetched, and nothing depends on what the weights say, since
//! the numbers of another vector unit may choose other words. What is right about their words is tested in `aos-runtime`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

#[path = "../../aos-runtime/src/tests/folder.rs"]
mod folder;
#[path = "../../aos-runtime/src/tests/gguf.rs"]
#[allow(dead_code, reason = "a part of it is for the runtime's own tests")]
mod gguf;
mod rig;

use std::io::{BufRead as _, BufReader, Write as _};

use aos_abi::Lsn;
use aos_abi::decode::{call_ids, decode};
use aos_abi::inference::Encoding;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
// `gguf` draws the weights from it.
use fastrand as _;
use gguf::{Gguf, Meta};
use rig::{Rig, Setup, assert_told, until};
use serde_json::{Value, json};

/// A home with these models inside the program, in `models/`; the first is the default one.
fn home(files: &[(&str, Vec<u8>)]) -> Rig {
    let mut more = format!("default_model = \"{}\"\n", files[0].0);
    for (name, _) in files {
        more += &format!(
            "[models.{name}]\nprovider = \"local\"\nmodel = \"{name}\"\ncontext_window = 16384\nmax_output = 400\n"
        );
    }
    let rig = Rig::with(vec![], Setup { more, ..Setup::default() });
    std::fs::create_dir(rig.file("models")).unwrap();
    for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        put(&rig, name, bytes);
    }
    rig
}

fn put(rig: &Rig, name: &str, bytes: &[u8]) {
    std::fs::write(rig.file(&format!("models/{name}.gguf")), bytes).unwrap();
}

/// How many of the daemon's threads compute for models, or would.
fn threads(rig: &Rig) -> usize {
    let daemon = rig.daemons()[0].as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("aos-model") || name.starts_with("rayon")).count()
}

#[test]
fn every_call_of_an_agent_on_random_weights_is_well_formed() {
    let rig = home(&[("nano", Gguf::nano(3).bytes()), ("other", Gguf::nano(4).bytes())]);
    rig.up();
    assert_eq!(threads(&rig), 0, "nothing is there before it is asked for");
    let tasks = ["Read notes.txt", "Write the word blue to colour.txt"];
    let pids: Vec<u64> =
        ["nano", "other"].into_iter().flat_map(|model| tasks.map(|task| rig.spawn(&["-m", model, task]))).collect();
    let enough = |pid: u64| {
        let process = rig.process(pid);
        let asked = process["usage"]["inferences"].as_u64().unwrap();
        asked >= 2 || asked >= 1 && !matches!(process["state"].as_str(), Some("ready" | "running"))
    };
    until("the agents to have answered", || pids.iter().all(|pid| enough(*pid)).then_some(()));
    assert!(threads(&rig) >= 2, "a thread for each model");
    for pid in &pids {
        rig.aos(&["kill", "-s", "KILL", &pid.to_string()]);
        rig.until_state(*pid, "exited");
    }
    let mut calls = 0;
    for pid in pids {
        let answered: Vec<Value> = rig.entries(pid, "inference_completed");
        let texts: Vec<&str> = answered.iter().filter_map(|entry| entry["text"].as_str()).collect();
        assert!(!texts.is_empty(), "{answered:#?}");
        for text in texts {
            let decoded = decode(text, &[], Encoding::Constrained, false, &mut call_ids(Lsn(1)));
            assert!(!decoded.calls.is_empty() || !decoded.say.is_empty(), "{text}");
            for call in &decoded.calls {
                assert!(call.call.is_ok(), "{:?}: {text}", call.call);
                calls += 1;
            }
        }
        let denied = |entry: &Value| entry["verdict"] == "deny";
        assert!(
            !rig.entries(pid, "verdict").iter().any(denied),
            "it knows what it may not do: {:#?}",
            rig.entries(pid, "verdict")
        );
    }
    assert!(calls > 0, "no agent made a call");
}

#[test]
fn a_file_that_cannot_be_used_is_told_and_the_rest_goes_on() {
    let whole = Gguf::nano(1).bytes();
    let cut = whole[..whole.len() / 2].to_vec();
    let foreign = Gguf::nano(1).with("general.architecture", Meta::Text("gemma3".to_owned())).bytes();
    let rig = home(&[("absent", vec![]), ("cut", cut), ("foreign", foreign), ("good", whole.clone())]);
    for (model, words) in [
        ("absent", ["there are no weights at", "aos models pull"]),
        ("cut", ["is no whole GGUF file", "fetch it again"]),
        ("foreign", ["its architecture is `gemma3`, not `llama`", "llama-server"]),
    ] {
        assert_told(&rig.aos(&["run", "-m", model, "say hello"]), 1, &words);
        assert_told(&rig.aos(&["run", "-m", model, "say hello"]), 1, &words);
    }
    let tested = rig.aos(&["--json", "models", "test"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    let findings: Value = serde_json::from_str(&tested.out).unwrap();
    assert_eq!(findings["faults"], 4, "the three, and the scripted model, which has no answer: {findings:#}");

    // The same daemon, once the file is there.
    put(&rig, "absent", &whole);
    let pid = rig.spawn(&["-m", "absent", "say hello"]);
    until("an answer", || (!rig.entries(pid, "charged").is_empty()).then_some(()));
}

#[test]
fn what_a_model_does_in_a_second_is_told() {
    let rig = home(&[("nano", Gguf::nano(1).bytes()), ("chat", Gguf::chat(1).bytes())]);
    for model in ["nano", "chat"] {
        let told = rig.aos(&["models", "test", model]);
        assert!(told.code == 0 && told.out.contains("tokens a second") && told.out.contains("cold start"), "{told:?}");
        let findings = rig.json(&["models", "test", model]);
        let figures = &findings["findings"][0]["figures"];
        assert_eq!(figures["model"], model);
        assert!(figures["prefill_tokens_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figures}");
    }
    // They run in the command itself: no daemon was needed.
    assert!(rig.daemons().is_empty());
}

#[test]
fn another_program_is_answered_by_a_model_inside() {
    let rig = home(&[("chat", Gguf::chat(1).bytes())]);
    let made = rig.json(&["models", "key", "editor"]);
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let ask = |tools: Value| {
        let body = json!({ "model": "chat", "max_tokens": 20, "tools": tools,
            "messages": [{ "role": "user", "content": "hello" }] });
        rig.tcp("POST", "/v1/chat/completions", &[("Authorization", &bearer)], Some(&body.to_string()))
    };
    let answer = ask(json!([]));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json()["usage"]["completion_tokens"].as_u64().is_some_and(|tokens| tokens <= 20), "{answer:?}");
    // Its bill does not say what was read before: that might be what another one has asked.
    let again = ask(json!([]));
    assert_eq!(again.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "{again:?}");
    let refused = ask(json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]));
    assert!(refused.status == 400 && refused.text().contains("leave `tools` out"), "{refused:?}");
}

/// A system message was ignored, and the answer was that of a model which had read it.
#[test]
fn another_program_is_told_what_aos_nano_does_not_read() {
    let rig = home(&[("nano", Gguf::nano(1).bytes())]);
    let made = rig.json(&["models", "key", "editor"]);
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let ask = |path: &str, body: Value| rig.tcp("POST", path, &[("Authorization", &bearer)], Some(&body.to_string()));
    let said = |role: &str, text: &str| json!({ "role": role, "content": text });
    let chat = |messages: Value| ask("/v1/chat/completions", json!({ "model": "nano", "messages": messages }));
    for role in ["system", "developer"] {
        let refused = chat(json!([said(role, "Translate into German."), said("user", "say hello")]));
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text().contains("aos-nano reads no system message (leave it out, or name"), "{refused:?}");
    }
    let asked = json!({ "model": "nano", "instructions": "Translate into German.", "input": "say hello" });
    assert_eq!(ask("/v1/responses", asked).status, 400);
    assert_eq!(chat(json!([said("user", "say hello")])).status, 200);
    // It is no fault of the model's, which is asked again.
    assert_eq!(rig.json(&["cost", "--by", "model"])["total"]["inferences"], 1);
}

/// A home with an encoder inside the program beside the scripted model.
fn with_encoder() -> Rig {
    let more = "[models.vectors]\nprovider = \"local\"\nmodel = \"tiny\"\ndimension = 32\n".to_owned();
    let rig = Rig::with(vec![], Setup { more, ..Setup::default() });
    folder::Folder::new().write(&rig.file("models/tiny"));
    rig
}

#[test]
fn texts_of_a_program_become_vectors_inside() {
    let rig = with_encoder();
    let key = |arguments: &[&str]| {
        let made = rig.json(&[&["models", "key"], arguments].concat());
        (made["pid"].as_u64().unwrap(), format!("Bearer {}", made["key"].as_str().unwrap()))
    };
    let embed = |bearer: &str, body: &Value| {
        rig.tcp("POST", "/v1/embeddings", &[("Authorization", bearer)], Some(&body.to_string()))
    };
    let (pid, bearer) = key(&["indexer"]);
    let texts = json!(["the cat reads", "a secret that stands nowhere"]);
    let floats = embed(&bearer, &json!({ "model": "vectors", "input": texts }));
    assert_eq!(floats.status, 200, "{floats:?}");
    let (floats, again) = (floats.json(), embed(&bearer, &json!({ "model": "vectors", "input": texts })).json());
    assert_eq!(floats, again);
    assert_eq!(floats["usage"]["prompt_tokens"], 6 + 7, "{floats}");
    let numbers: Vec<f64> =
        floats["data"][0]["embedding"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    // As another implementation makes them: see the runtime's own test.
    assert!(numbers.len() == 32 && (numbers[0] + 0.199_931).abs() < 2e-6, "{numbers:?}");
    let packed = embed(&bearer, &json!({ "model": "vectors", "input": "the cat reads", "encoding_format": "base64" }));
    let packed = STANDARD.decode(packed.json()["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let packed: Vec<f64> = packed.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number).into()).collect();
    assert!(packed.iter().zip(&numbers).all(|(a, b)| (a - b).abs() < 1e-7), "{packed:?}");

    let process = until("all three are settled", || {
        let process = rig.process(pid);
        (process["usage"]["inferences"] == 3).then_some(process)
    });
    assert_eq!(process["usage"]["input_tokens"], 13 + 13 + 6, "{process}");
    let told: String = ["asked", "served"].map(|kind| json!(rig.entries(pid, kind)).to_string()).concat();
    assert!(told.contains("vectors") && !told.contains("secret"), "{told}");

    for (body, status, words) in [
        (json!({ "model": "vectors", "input": [[1, 2]] }), 400, "not tokens"),
        (json!({ "model": "vectors", "input": "cat ".repeat(15) }), 400, "a text has 17 tokens, the model reads 16"),
        (json!({ "model": "vectors", "input": "cat", "dimensions": 8 }), 400, "32 numbers"),
    ] {
        let refused = embed(&bearer, &body);
        assert!(refused.status == status && refused.text().contains(words), "{refused:?}");
    }
    // Under the same limits as any request.
    let body = json!({ "model": "vectors", "input": "cat" });
    let (_, tiers) = key(&["tiers", "--tier", "nano"]);
    assert_eq!(embed(&tiers, &body).status, 403);
    let (_, poor) = key(&["poor", "--tokens", "5"]);
    assert_eq!(embed(&poor, &body).status, 402);
}

#[test]
fn a_model_that_makes_vectors_answers_nothing() {
    let rig = with_encoder();
    let told = rig.aos(&["models", "test", "vectors"]);
    assert!(told.code == 0 && told.out.contains("makes vectors of 32 numbers of"), "{told:?}");
    let figures = &rig.json(&["models", "test", "vectors"])["findings"][0]["figures"];
    assert_eq!((&figures["model"], &figures["dimension"]), (&json!("vectors"), &json!(32)), "{figures}");
    assert!(figures["sentences_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figures}");

    let route = rig.json(&["models", "route", "-m", "auto"]);
    let barred = route["barred"].as_array().unwrap().iter().find(|model| model["model"] == "vectors");
    assert_eq!(barred.unwrap()["why"], "it makes vectors of texts and no answers", "{route}");
    let run = rig.aos(&["run", "-m", "vectors", "say hello"]);
    assert!(run.code == 1 && run.err.contains("no answers"), "{run:?}");

    std::fs::remove_file(rig.file("models/tiny/tokenizer.json")).unwrap();
    let told = rig.aos(&["models", "test", "vectors"]);
    assert!(told.code == 1 && told.out.contains("there are no weights at"), "{told:?}");
}

/// What is there with the checksums of the list is not fetched again, so this is the whole way but for the network.
#[test]
fn a_model_of_several_files_goes_by_one_name() {
    let rig = with_encoder();
    let known = rig.json(&["models", "pull"]);
    let known = known.as_array().unwrap().iter().find(|model| model["name"] == "all-minilm-l6-v2").unwrap();
    assert_eq!((&known["dimension"], &known["here"]), (&json!(384), &json!(false)), "{known}");
    let place = rig.file("models/all-minilm-l6-v2");
    folder::Folder::new().write(&place);
    for file in known["files"].as_array().unwrap() {
        let name = file["url"].as_str().unwrap().rsplit('/').next().unwrap();
        let record = format!("{}  {name}\n", file["sha256"].as_str().unwrap());
        std::fs::write(place.join(format!("{name}.sha256")), record).unwrap();
    }
    let pulled = rig.json(&["models", "pull", "all-minilm-l6-v2"]);
    assert_eq!(
        (&pulled["runs"], &pulled["checked_by"], &pulled["path"]),
        (&json!(true), &json!("record"), &json!(place))
    );
    let pull = |more: &[&str]| rig.aos(&[&["models", "pull", "all-minilm-l6-v2"], more].concat());
    assert!(pull(&[]).err.contains("dimension = 384"), "{:?}", pull(&[]));
    assert_told(&pull(&["--sha256", &format!("{:064}", 0)]), 2, &["more than one file"]);
    // A person's own file is not overwritten, and what does not run is said.
    std::fs::write(place.join("tokenizer.json"), "{}").unwrap();
    assert_told(&pull(&[]), 1, &["is here, but does not run", "tokenizer.json is no whole JSON file"]);
    std::fs::remove_file(place.join("tokenizer.json.sha256")).unwrap();
    assert_told(&pull(&[]), 1, &["is there already"]);
}

/// Serves these files by name, and cuts the first connection in the middle; the address.
fn server(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let file = files.iter().find(|(name, _)| head[0].contains(&format!("/{name} ")));
            let Some((_, file)) = file else {
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
                continue;
            };
            let range =
                head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
            let from: usize = range.map_or(0, |range| range.trim_end_matches('-').parse().unwrap());
            let (status, len) = (if from == 0 { "200 OK" } else { "206 Partial Content" }, file.len());
            let more = format!("content-range: bytes {from}-{}/{len}\r\netag: \"x\"\r\n", len - 1);
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{more}\r\n", len - from);
            let to = if nth == 0 { len / 2 } else { len };
            // Whoever asked may have hung up.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&file[from..to]));
        }
    });
    address
}

#[test]
fn a_model_that_was_fetched_serves_an_agent() {
    let whole = Gguf::nano(1).bytes();
    let foreign = Gguf::nano(1).with("general.architecture", Meta::Text("gemma3".to_owned())).bytes();
    let address = server(vec![("tiny.gguf", whole.clone()), ("foreign.gguf", foreign)]);
    let rig = home(&[("tiny", vec![])]);
    let pulled = rig.json(&["models", "pull", &format!("{address}/tiny.gguf")]);
    assert_eq!((&pulled["bytes"], &pulled["checked_by"]), (&json!(whole.len()), &json!("nobody")), "{pulled}");
    assert_eq!((&pulled["runs"], &pulled["name"]), (&json!(true), &json!("tiny")), "{pulled}");
    assert_eq!(std::fs::read(rig.file("models/tiny.gguf")).unwrap(), whole);
    let again = rig.aos(&["models", "pull", &format!("{address}/tiny.gguf")]);
    assert!(
        again.code == 0 && again.err.contains("it was here already") && again.err.contains("[models."),
        "{again:?}"
    );
    let pid = rig.spawn(&["say hello"]);
    until("an answer", || (!rig.entries(pid, "charged").is_empty()).then_some(()));

    let pull = |what: &str| rig.aos(&["models", "pull", what]);
    assert_told(&pull(&format!("{address}/none.gguf")), 1, &["has no such file", "try: "]);
    assert_told(&pull(&format!("{address}/foreign.gguf")), 1, &["is here, but does not run", "`gemma3`"]);
    assert_told(&pull("smollm"), 2, &["no model is known as `smollm`", "smollm2-360m"]);
    let wrong = format!("{:064}", 0);
    assert_told(
        &rig.aos(&["models", "pull", &format!("{address}/tiny.gguf"), "--sha256", &wrong]),
        1,
        &["is there already"],
    );
    std::fs::remove_file(rig.file("models/tiny.gguf")).unwrap();
    let other = rig.aos(&["models", "pull", &format!("{address}/tiny.gguf"), "--sha256", &wrong]);
    assert_told(&other, 1, &["SHA-256", "thrown away"]);
    let known = rig.json(&["models", "pull"]);
    assert!(known.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "smollm2-1.7b")), "{known}");
}

/// Whoever minds that nobody here knows the file can stop it before anything is fetched.
#[test]
fn a_file_whose_checksum_nobody_knows_is_said_to_be_one_before_it_is_fetched() {
    let rig = with_encoder();
    assert_eq!(rig.aos(&["up"]).code, 0);
    let url = format!("http://{}/m.gguf", rig.listen());
    let pull = |more: &[&str]| rig.aos(&[&["models", "pull", &url], more].concat());
    let told = pull(&[]).err;
    let (said, failed) = (told.find("no checksum of this file is known here"), told.find("was not fetched"));
    assert!(said.is_some() && said < failed, "{told}");
    let told = pull(&["--sha256", &format!("{:064}", 7)]).err;
    assert!(!told.contains("no checksum") && told.contains("was not fetched"), "{told}");
    let listed = rig.aos(&["models", "pull"]).out;
    let of = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("smollm2-360m").contains("its server's") && of("smollm2-1.7b").contains("known"), "{listed}");
}
