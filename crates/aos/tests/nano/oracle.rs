//! What would be right, done by a scripted model: whether the tasks, their setting up and the judging fit together.
//!
//! Start at [`rules`]. What always holds: it makes the calls that a task names, writes and deletes the files that it
//! expects, and says what it wants to hear.

use std::collections::BTreeMap;

use aos_models::scripted::{Answer, Rule};
use serde_json::{Map, Value, json};

use super::judge::{Call, End, Played};
use super::rig::{any, call, say};
use super::task::Task;

/// How each task is played. A task whose text stands in another one comes after it.
pub(crate) fn rules(tasks: &[Task]) -> Vec<Rule> {
    let mut tasks: Vec<&Task> = tasks.iter().collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.task.len()));
    let answers = |task: &Task| {
        let calls = right_calls(task).into_iter().map(|(name, args)| call(&name, Value::Object(args)));
        calls.chain([say(&right_words(task))]).collect::<Vec<Answer>>()
    };
    tasks.into_iter().map(|task| any(&task.task, answers(task))).collect()
}

/// What a matcher fits.
fn plain(wanted: &Value) -> Value {
    let Some(parts) = wanted.get("has").and_then(Value::as_array) else { return wanted.clone() };
    json!(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
}

fn right_calls(task: &Task) -> Vec<(String, Map<String, Value>)> {
    let expect = &task.expect;
    let mut calls = Vec::new();
    for (name, args) in expect.calls.iter().chain(expect.calls_any.first().into_iter().flatten()) {
        let needed: &[(&str, Value)] = match name.as_str() {
            "SPAWN_AGENT" => &[("role", json!("helper")), ("permissions", json!([]))],
            "MEM_WRITE" => &[("key", json!("note"))],
            "SYS_SCHEDULE" => &[("prompt", json!("now"))],
            _ => &[],
        };
        let mut all: Map<String, Value> =
            needed.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        all.extend(args.iter().map(|(key, value)| (key.clone(), plain(value))));
        calls.push((name.clone(), all));
    }
    // What a command makes is its own work.
    let by_command = calls.iter().any(|(name, _)| name == "EXEC_CMD");
    let file = |name: &str, args: Value| (name.to_owned(), args.as_object().cloned().unwrap_or_default());
    let written = expect.files.iter().filter(|(path, content)| {
        let before = task.setup.files.get(*path);
        before.map_or(!by_command, |before| content.as_str().is_none_or(|content| content != before))
    });
    let written = written.map(|(path, content)| file("FS_WRITE", json!({ "path": path, "content": plain(content) })));
    let deleted = expect.gone.iter().filter(|_| !by_command).map(|path| file("FS_DELETE", json!({ "path": path })));
    let at = calls.iter().position(|(name, _)| name == "SYS_EXIT").unwrap_or(calls.len());
    calls.splice(at..at, written.chain(deleted));
    calls
}

fn right_words(task: &Task) -> String {
    let expect = &task.expect;
    let words = expect.says.iter().chain(expect.says_any.first()).map(String::as_str);
    let words = words.chain(expect.refuses.then_some("I cannot do that."));
    let words: Vec<&str> = words.collect();
    if words.is_empty() { "Done.".to_owned() } else { words.join("\n") }
}

/// What would be right, without a kernel.
pub(crate) fn right(task: &Task) -> Played {
    let calls = right_calls(task).into_iter();
    let calls: Vec<Call> =
        calls.map(|(name, args)| Call { name, args: Value::Object(args), end: End::Done(json!({})) }).collect();
    let mut files: BTreeMap<String, String> = task.setup.files.clone();
    for (name, args) in &task.expect.calls {
        super::judge::change(&mut files, name, args);
    }
    for (path, content) in &task.expect.files {
        files.insert(path.clone(), plain(content).as_str().unwrap_or_default().to_owned());
    }
    files.retain(|path, _| !task.expect.gone.contains(path));
    Played { calls, said: right_words(task), files, ..Played::default() }
}
