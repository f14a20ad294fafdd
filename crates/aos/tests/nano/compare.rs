//! Whether a text or an argument is the one that is wanted.
//!
//! Start at [`fits_arguments`]. What always holds: `{"has":[…]}` stands for any text with all of these in it, and what is
//! wanted as a default is also there where it was left out.

use serde_json::{Map, Value, json};

/// Without line breaks and spaces at the end.
pub(crate) fn without_end(text: &str) -> &str {
    text.trim_end()
}

/// Whether a file's content is the one that is wanted.
pub(crate) fn fits_text(content: &str, wanted: &Value) -> bool {
    match wanted.as_str() {
        Some(wanted) => without_end(content) == without_end(wanted),
        None => has(content, wanted),
    }
}

fn has(text: &str, wanted: &Value) -> bool {
    wanted["has"]
        .as_array()
        .is_some_and(|parts| parts.iter().all(|part| part.as_str().is_some_and(|p| text.contains(p))))
}

/// Whether a call's arguments are at least those that are wanted.
pub(crate) fn fits_arguments(name: &str, made: &Value, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, wanted)| match made.get(key) {
        None | Some(Value::Null) => default(name, key).is_some_and(|default| fits(name, key, &default, wanted)),
        Some(made) => fits(name, key, made, wanted),
    })
}

/// What an argument is where it is left out.
fn default(name: &str, key: &str) -> Option<Value> {
    Some(match (name, key) {
        ("SYS_SCHEDULE", "once") | ("SPAWN_AGENT", "quarantine") => json!(false),
        ("SYS_SCHEDULE", "timezone") => json!("UTC"),
        ("FS_WRITE", "mode") => json!("replace"),
        ("FS_LIST" | "FS_SEARCH", "path") => json!(""),
        ("FS_LIST", "depth") => json!(1),
        ("FS_READ", "offset") | ("SYS_EXIT", "code") => json!(0),
        ("KILL", "signal") => json!("TERM"),
        ("MEM_READ", "limit") => json!(6),
        ("MEM_READ" | "MEM_WRITE" | "MEM_FORGET", "namespace") => json!("self"),
        ("SPAWN_AGENT", "workspace") => json!("shared"),
        _ => return None,
    })
}

fn fits(name: &str, key: &str, made: &Value, wanted: &Value) -> bool {
    let (Some(text), true) = (made.as_str(), wanted.is_string() || wanted.is_object()) else {
        return is_same(made, wanted);
    };
    let Some(wanted) = wanted.as_str() else { return has(text, wanted) };
    match (name, key) {
        (_, "path" | "from" | "to") if name.starts_with("FS_") => path(text) == path(wanted),
        ("FS_WRITE", "content") | ("EXEC_CMD", "cmd") => without_end(text) == without_end(wanted),
        _ => text == wanted,
    }
}

/// A path without `./` in front and `/` at the end; the workspace itself is empty.
fn path(text: &str) -> &str {
    let text = text.trim_end_matches('/');
    let text = if text == "." { "" } else { text };
    text.strip_prefix("./").unwrap_or(text)
}

/// 600 is 600.0.
fn is_same(made: &Value, wanted: &Value) -> bool {
    match (made.as_f64(), wanted.as_f64()) {
        (Some(made), Some(wanted)) => (made - wanted).abs() < 1e-9,
        _ => made == wanted,
    }
}
