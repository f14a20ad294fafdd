//! A task as its line says it, and the lines that are played.
//!
//! Start at [`load`]. What always holds: a task's addresses all lead to the server of this test, each page under an
//! address of its own, and nothing here says what a task holds when it cannot be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// What a person asks for, what is there before, and what is right.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) steps: u32,
    pub(crate) task: String,
    #[serde(default)]
    pub(crate) setup: Setup,
    pub(crate) expect: Expect,
    /// From `compositions/`: it was made by the generator, so it may be shown.
    #[serde(skip)]
    pub(crate) may_be_shown: bool,
}

/// What is there before the task is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Setup {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) memory: Vec<Memory>,
    pub(crate) pages: BTreeMap<String, String>,
    pub(crate) agents: Vec<Agent>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    pub(crate) key: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    pub(crate) pid: u64,
    pub(crate) name: String,
}

/// A call by its name and the arguments it has at least.
pub(crate) type Wanted = (String, Map<String, Value>);

/// All that is given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) calls: Vec<Wanted>,
    pub(crate) calls_any: Vec<Vec<Wanted>>,
    pub(crate) any_order: bool,
    pub(crate) files: BTreeMap<String, Value>,
    pub(crate) gone: Vec<String>,
    pub(crate) says: Vec<String>,
    pub(crate) says_any: Vec<String>,
    pub(crate) refuses: bool,
}

/// The folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every `every`th task of each file, its pages served at `server`, such as `127.0.0.1:40123`.
pub(crate) fn load(every: usize, server: &str) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (folder, may_be_shown) in [("models/nano/compositions", true), ("evals/nano", false)] {
        let folder = repository().join(folder);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            for (nth, line) in text.lines().enumerate().step_by(every) {
                let Ok(task) = read(line, server) else { panic!("{}:{} is no task", file.display(), nth + 1) };
                tasks.push(Task { may_be_shown, ..task });
            }
        }
    }
    tasks
}

fn read(line: &str, server: &str) -> Result<Task, serde_json::Error> {
    let raw: Value = serde_json::from_str(line)?;
    let pages = raw["setup"]["pages"].as_object().cloned().unwrap_or_default();
    let mut hosts: Vec<&str> = pages.keys().filter_map(|address| host(address)).collect();
    hosts.sort();
    hosts.dedup();
    serde_json::from_value(moved(raw, &hosts, server))
}

/// The host of an address, with its port.
fn host(address: &str) -> Option<&str> {
    address.strip_prefix("http://")?.split(['/', '?', '#']).next()
}

/// The same with each address of these hosts at the server, wherever it stands.
fn moved(value: Value, hosts: &[&str], server: &str) -> Value {
    let text = |text: String| hosts.iter().fold(text, |text, host| moved_in(&text, host, server));
    match value {
        Value::String(one) => Value::String(text(one)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| moved(item, hosts, server)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (text(key), moved(value, hosts, server))).collect())
        }
        other => other,
    }
}

/// `http://HOST/page` becomes `http://SERVER/HOST/page`.
fn moved_in(text: &str, host: &str, server: &str) -> String {
    let old = format!("http://{host}");
    let (mut moved, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&old) {
        let (before, after) = (&rest[..at], &rest[at + old.len()..]);
        moved.push_str(before);
        let mut next = after.chars();
        let longer = match next.next() {
            Some('.' | ':') => next.next().is_some_and(|letter| letter.is_ascii_alphanumeric()),
            Some(letter) => letter.is_ascii_alphanumeric() || letter == '-',
            None => false,
        };
        moved += &if longer { old.clone() } else { format!("http://{server}/{host}") };
        rest = after;
    }
    moved + rest
}

#[test]
fn pages_are_at_the_server_and_other_addresses_stay() {
    let line = r#"{"id":"x","kind":"fetch","steps":1,"task":"Get http://a.example/x, not http://a.example.org or http://b.example.",
        "setup":{"pages":{"http://a.example/x":"see http://a.example."}},
        "expect":{"calls":[["NET_FETCH",{"url":"http://a.example/x"}]]}}"#;
    let task = read(line, "127.0.0.1:9").unwrap();
    assert_eq!(task.task, "Get http://127.0.0.1:9/a.example/x, not http://a.example.org or http://b.example.");
    assert_eq!(task.setup.pages["http://127.0.0.1:9/a.example/x"], "see http://127.0.0.1:9/a.example.");
    assert_eq!(task.expect.calls[0].1["url"], "http://127.0.0.1:9/a.example/x");
}
