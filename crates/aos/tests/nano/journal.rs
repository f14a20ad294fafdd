//! What the journal says that a process did.
//!
//! Start at [`played`]. What always holds: a call counts as done where the policy allowed it and its result says so,
//! and a model that fails is no model that is wrong.

use std::collections::BTreeSet;

use aos_abi::Lsn;
use aos_abi::decode::{call_ids, decode};
use aos_abi::inference::Encoding;
use serde_json::Value;

use super::judge::{Call, End};

/// What a process called and said, and what its helpers changed.
pub(crate) struct Told {
    pub(crate) calls: Vec<Call>,
    pub(crate) said: String,
    pub(crate) of_helpers: BTreeSet<String>,
}

/// The processes that a process made, and those that they made.
pub(crate) fn descendants(entries: &[Value], pid: u64) -> Vec<u64> {
    let mut found = vec![pid];
    for entry in entries.iter().filter(|entry| entry["type"] == "spawned") {
        if let (Some(parent), Some(child)) = (entry["parent"].as_u64(), entry["pid"].as_u64())
            && found.contains(&parent)
        {
            found.push(child);
        }
    }
    found.split_off(1)
}

/// What the entries say of a process.
pub(crate) fn played(entries: &[Value], pid: u64) -> Told {
    let own = |kind: &'static str| entries.iter().filter(move |entry| entry["pid"] == pid && entry["type"] == kind);
    let of = |kind: &'static str, id: &Value| own(kind).find(|entry| entry["call_id"] == *id);
    if let Some(failed) = own("inference_completed").find(|entry| !entry["failure"].is_null()) {
        panic!("the model failed: {}", failed["failure"]["message"]);
    }
    let call = |entry: &Value| {
        let id = &entry["call_id"];
        let end = match of("result", id) {
            Some(result) if result["status"] == "SUCCESS" => End::Done(result["result"].clone()),
            Some(_) => End::Failed,
            None if of("verdict", id).is_some_and(|verdict| verdict["verdict"] == "allow") => End::Pending,
            None => End::Failed,
        };
        Call { name: text(&entry["name"]), args: entry["args"].clone(), end }
    };
    let calls: Vec<Call> = own("syscall").map(call).collect();
    let reply = own("inference_completed").filter_map(|entry| entry["text"].as_str()).next_back().unwrap_or_default();
    let mut said = vec![decode(reply, &[], Encoding::Constrained, false, &mut call_ids(Lsn(1))).say];
    said.extend(calls.iter().filter_map(|call| match call.name.as_str() {
        "SYS_EXIT" => Some(text(&call.args["result"])),
        "SYS_WRITE_STDOUT" => Some(text(&call.args["text"])),
        _ => None,
    }));
    let helpers = descendants(entries, pid);
    let is_helpers = |entry: &&Value| entry["pid"].as_u64().is_some_and(|pid| helpers.contains(&pid));
    let changed = entries.iter().filter(|entry| entry["type"] == "changed").filter(is_helpers);
    let paths = changed.flat_map(|entry| entry["changes"].as_array().into_iter().flatten());
    let of_helpers = paths.map(|change| text(&change["path"])).collect();
    Told { calls, said: said.join("\n"), of_helpers }
}

/// A text as it is, nothing as nothing, anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
