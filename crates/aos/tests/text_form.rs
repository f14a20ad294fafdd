//! Models without tool calls, end to end: found to be such, asked in text, and told where they were asked otherwise.
//!
//! Start at the first test. What always holds: the model is a scripted server over real HTTP; it answers in text where
//! a request declares no tools.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::{Answer, Call, Fault, Page, Rule};
use serde_json::{Value, json};

use rig::{Rig, Running, Setup, any, assert_told, calls, read, say, words};

/// The requests as they stood on the wire, each with no tools declared.
#[track_caller]
fn without_tools(rig: &Rig) -> Vec<Value> {
    let requests = rig.requests();
    for request in &requests {
        for field in ["tools", "tool_choice", "functions", "response_format"] {
            assert!(request.get(field).is_none(), "{field}: {request}");
        }
        let messages = request["messages"].as_array().unwrap();
        assert!(messages.iter().all(|message| message["role"] != "tool" && message.get("tool_calls").is_none()));
    }
    requests
}

/// An agent that writes, is refused a file that is not there, reads, and says what it read.
fn steps() -> Vec<Answer> {
    vec![
        calls(vec![
            Call::new("FS_WRITE", json!({ "path": "notes/a.txt", "content": "seven\nlines \"here\"" })),
            Call::new("FS_READ", json!({ "path": "missing.txt" })),
        ]),
        calls(vec![Call::new("FS_READ", json!({ "path": "notes/a.txt" }))]),
        say("it says: {{last_result.content}}"),
    ]
}

#[test]
fn a_task_is_done_in_text_and_each_result_stands_in_the_very_next_request() {
    let model = format!("tools = \"text\"\n{}", Setup::default().model);
    let rig = Rig::with(vec![any("alpha", steps())], Setup { model, ..Setup::default() });
    let folder = rig.folder("project");
    let ran = rig.aos(&["run", "-w", "project", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "it says: seven\nlines \"here\"\n"), "{ran:?}");
    assert_eq!(read(folder.join("notes/a.txt")), "seven\nlines \"here\"");

    let requests = without_tools(&rig);
    assert_eq!(requests.len(), 3, "one answer for each step");
    let shown: Vec<String> = requests.iter().map(words).collect();
    assert!(shown[0].contains("[SYS_CALL::") && shown[0].contains("FS_WRITE"), "it is told the form: {}", shown[0]);
    // Each call of an answer has its result in the next request, and in no earlier one.
    let results = |at: usize| {
        let lines: Vec<&str> = shown[at].lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair[0].starts_with("[result c"));
        pairs.map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect::<Vec<_>>()
    };
    let (first, second) = (results(1), results(2));
    assert!(results(0).is_empty() && first.len() == 2 && second.len() == 3, "{first:?} {second:?}");
    assert!(first[0].0.ends_with(" FS_WRITE]") && first[0].1.contains("SUCCESS"), "{first:?}");
    assert!(first[1].0.ends_with(" FS_READ]") && first[1].1.contains("ENOENT"), "{first:?}");
    assert_eq!(first[..], second[..2], "what was shown stays as it was");
    assert!(second[2].0.ends_with(" FS_READ]") && second[2].1.contains("seven"), "{second:?}");
}

/// Before, llama-server's refusal was taken for a fault that passes, and asked again until the deadline.
#[test]
fn a_server_that_takes_no_tools_is_told_with_the_way_out_and_the_way_out_works() {
    for (status, words) in [
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
        (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        (500, "tools param requires --jinja flag"),
    ] {
        let body = json!({ "error": { "message": words, "type": "api_error" } }).to_string();
        let fault = Fault::Status { status, body, headers: Default::default() };
        let mut refused = any("alpha", vec![]);
        refused.when.body = Some("\"tools\":".to_owned());
        let rig = Rig::new(vec![Rule { fault: Some(fault), ..refused }, any("alpha", vec![say("done")])]);
        let ran = rig.aos(&["run", "alpha"]);
        assert_told(&ran, 1, &[&format!("{status}"), "try: ", "tools = \"text\" in [models.small] of aos.toml"]);
        assert_eq!(rig.request_count(), 1, "asked once: {words}");

        let text = read(rig.file("aos.toml")).replace("model = \"scripted\"", "model = \"scripted\"\ntools = \"text\"");
        std::fs::write(rig.file("aos.toml"), text).unwrap();
        rig.stop();
        let ran = rig.aos(&["run", "alpha"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}");
    }
}

/// Before, `aos init` asked nothing of this, and the first task failed.
#[test]
fn init_finds_a_model_without_tools_and_the_first_task_is_done() {
    let show = json!({
        "capabilities": ["completion", "vision"],
        "parameters": "num_ctx 24000",
        "model_info": { "gemma3.context_length": 131_072 },
    });
    let pages = vec![
        Page::new("/v1/models", json!({ "object": "list", "data": [{ "id": "gemma3:4b", "object": "model" }] })),
        Page::new("/api/show", show),
    ];
    let rig = Rig::with(vec![any("alpha", steps())], Setup { pages, ..Setup::default() });
    std::fs::remove_dir_all(rig.home()).unwrap();
    let mut command = rig.command(&["init"]);
    command.env("OLLAMA_HOST", rig.server_address());
    let ran = Running::new(command).end();
    assert!(ran.code == 0 && ran.err.contains("no tool calls"), "{ran:?}");
    let config: toml::Table = read(rig.file("aos.toml")).parse().unwrap();
    let model = &config["models"]["ollama"];
    assert_eq!((model["model"].as_str(), model["tools"].as_str()), (Some("gemma3:4b"), Some("text")));
    assert_eq!(model["context_window"].as_integer(), Some(24_000));

    let ran = rig.aos(&["run", "-m", "ollama", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "it says: seven\nlines \"here\"\n"), "{ran:?}");
    // The first requests are those of `aos init`.
    let asked = rig.requests_with("alpha");
    assert!(asked.len() == 3 && asked.iter().all(|request| request.get("tools").is_none()), "{asked:?}");
}
