//! A proposed call as a person is shown it: a command line, a request, the change to a file, or its arguments.
//!
//! What always holds: nothing is left out; whoever shows it in a list shows its beginning.

use serde_json::Value;

/// What would happen. `diff`: what is known of the change to files, empty for nothing.
#[must_use]
pub fn preview(name: &str, args: &Value, diff: &str) -> String {
    let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
    match name {
        "EXEC_CMD" => {
            let mut lines = vec![format!("$ {}", text("cmd"))];
            lines.extend(fields(args, "env").map(|(key, value)| format!("with {key}={value}")));
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
        _ => {
            let Some(given) = args.as_object() else { return name.to_owned() };
            let lines = given.iter().map(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("  {key}: {text}")
            });
            std::iter::once(name.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
        }
    }
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
        let send = json!({ "url": "https://a.b/c", "method": "POST", "headers": { "x": "y" }, "body": "{}" });
        assert_eq!(preview("NET_SEND", &send, ""), "POST https://a.b/c\nx: y\n\n{}");
        assert_eq!(preview("NET_FETCH", &json!({ "url": "https://a.b/c" }), ""), "GET https://a.b/c");
        let write = json!({ "path": "a", "content": "x\n" });
        assert_eq!(preview("FS_WRITE", &write, "-y\n+x\n"), "FS_WRITE a\n-y\n+x\n");
        assert_eq!(preview("FS_LIST", &json!({ "path": "a" }), ""), "FS_LIST\n  path: a");
        let long = preview("EXEC_CMD", &json!({ "cmd": "é".repeat(4000) }), "");
        assert_eq!(long.chars().count(), 4002, "all of it");
    }
}
