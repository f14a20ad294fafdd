//! Models inside the program, end to end: files with random weights, agents and programs on them, through the real daemon.
//!
//! Start at the first test. What always holds: nothing is fetched, and nothing depends on what the weights say, since
//! the numbers of another vector unit may choose other words. What is right about their words is tested in `aos-runtime`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

#[path = "../../aos-runtime/src/tests/gguf.rs"]
#[allow(dead_code, reason = "a part of it is for the runtime's own tests")]
mod gguf;
mod rig;

use aos_abi::Lsn;
use aos_abi::decode::{call_ids, decode};
use aos_abi::inference::Encoding;
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
    let rig = home(&[("nano", Gguf::nano(1).bytes()), ("other", Gguf::nano(2).bytes())]);
    rig.up();
    assert_eq!(threads(&rig), 0, "nothing is there before it is asked for");
    let tasks =
        ["Read notes.txt", "Write the word blue to colour.txt", "Remember that Ada likes tea", "List the files"];
    let pids: Vec<u64> = ["nano", "other"]
        .into_iter()
        .flat_map(|model| tasks.map(|task| rig.spawn(&["-m", model, "--grant", "FS_READ", task])))
        .collect();
    let enough = |pid: u64| {
        let process = rig.process(pid);
        let asked = process["usage"]["inferences"].as_u64().unwrap();
        asked >= 3 || asked >= 1 && !matches!(process["state"].as_str(), Some("ready" | "running"))
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
    assert_eq!(findings["faults"], 4, "the three, and the server of the scripted one is no matter here: {findings:#}");

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
    let refused = ask(json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]));
    assert!(refused.status == 400 && refused.text().contains("leave `tools` out"), "{refused:?}");
}
