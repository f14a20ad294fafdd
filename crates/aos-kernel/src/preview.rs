//! A proposed call as a person is shown it: a command line, a request, the change to a file, or its arguments.
//!
//! What always holds: nothing is left out, and no value looks like another argument; whoever shows it in a list shows its
//! beginning.

use serde_json::Value;

/// What would happen. `diff`: the change to a file, with nothing left out; empty where there is none such.
#[must_use]
pub fn preview(name: &str, args: &Value, diff: &str) -> String {
    let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
    match name {
        "EXEC_CMD" => {
            let mut lines = vec![format!("$ {}", text("cmd"))];
            lines.extend(fields(args, "env").map(|(key, value)| format!("with {key}={value}")));
            lines.extend(args.get("timeout_s").map(|seconds| format!("for at most {seconds} s")));
            if !text("stdin").is_empty() {
                lines.push(format!("standard input:\n{}", text("stdin")));
            }
            lines.join("\n")
        }
        "NET_FETCH" | "NET_SEND" => {
            let method = if name == "NET_FETCH" { "GET" } else { text("method") };
            let mut lines = vec![format!("{method} {}", text("url"))];
            lines.extend(fields(args, "headers").map(|(key, value)| format!("{key}: {value}")));
            if !text("body").is_empty() {
                lines.push(format!("\n{}", text("body")));
            }
            lines.join("\n")
        }
        "PROPOSE" if args.get("tier").is_some() => {
            format!("models of the tier `{}`, for as long as this process lives", text("tier"))
        }
        "FS_WRITE" | "FS_EDIT" | "FS_DELETE" if !diff.is_empty() => format!("{name} {}\n{diff}", text("path")),
        "FS_WRITE" | "FS_EDIT" | "FS_DELETE" => arguments(format!("{name} {}", text("path")), args, Some("path")),
        _ => arguments(name.to_owned(), args, None),
    }
}

/// The arguments, each on a line of its own; further lines of a value stand further in than their names.
fn arguments(head: String, args: &Value, without: Option<&str>) -> String {
    let given = args.as_object().into_iter().flatten().filter(|(key, _)| Some(key.as_str()) != without);
    let lines = given.map(|(key, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', "\n    "));
        format!("  {key}: {text}")
    });
    std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
}

fn fields<'a>(args: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, String)> {
    let map = args.get(key).and_then(Value::as_object);
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    map.into_iter().flatten().map(move |(key, value)| (key.as_str(), plain(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_shown_as_what_it_does() {
        let exec = json!({ "cmd": "sh go.sh", "env": { "A": "1" }, "stdin": "in" });
        assert_eq!(preview("EXEC_CMD", &exec, ""), "$ sh go.sh\nwith A=1\nstandard input:\nin");
        let long = json!({ "cmd": "make", "timeout_s": 3600 });
        assert_eq!(preview("EXEC_CMD", &long, ""), "$ make\nfor at most 3600 s");
        let send = json!({ "url": "https://a.b/c", "method": "POST", "headers": { "x": "y" }, "body": "{}" });
        assert_eq!(preview("NET_SEND", &send, ""), "POST https://a.b/c\nx: y\n\n{}");
        assert_eq!(preview("NET_FETCH", &json!({ "url": "https://a.b/c" }), ""), "GET https://a.b/c");
        let write = json!({ "path": "a", "content": "x\n" });
        assert_eq!(preview("FS_WRITE", &write, "-y\n+x\n"), "FS_WRITE a\n-y\n+x\n");
        let whole = json!({ "path": "a", "content": "x\n  path: b\n" });
        assert_eq!(preview("FS_WRITE", &whole, ""), "FS_WRITE a\n  content: x\n      path: b\n    ");
        let edit = json!({ "path": "a", "edits": [{ "old": "x\n" }] });
        assert_eq!(preview("FS_EDIT", &edit, ""), "FS_EDIT a\n  edits: [{\"old\":\"x\\n\"}]");
        assert_eq!(preview("FS_DELETE", &json!({ "path": "a" }), ""), "FS_DELETE a");
        assert_eq!(preview("FS_LIST", &json!({ "path": "a" }), ""), "FS_LIST\n  path: a");
        let long = preview("EXEC_CMD", &json!({ "cmd": "é".repeat(4000) }), "");
        assert_eq!(long.chars().count(), 4002, "all of it");
    }
}
