//! What a result says, as the plain text that aos-nano is shown (`models/nano/FORMAT.md`, part 4).

use serde_json::Value;

/// Whether the kernel or the call left something out.
pub(crate) fn is_cut(value: &Value) -> bool {
    value.get("truncated").and_then(Value::as_bool).unwrap_or(false)
}

/// What a result says, as plain text.
pub(crate) fn text_of(name: &str, value: &Value) -> String {
    match value {
        Value::Object(fields) => known(name, value).unwrap_or_else(|| {
            let own = fields.iter().filter(|(_, item)| !item.is_object() && !item.is_array());
            let lines: Vec<String> = own.map(|(field, item)| format!("{field} {}", scalar(item))).collect();
            lines.join("\n")
        }),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The results that have a form of their own; `None` where the fields are not those.
fn known(name: &str, value: &Value) -> Option<String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let lines = |key: &str, line: &dyn Fn(&Value) -> Option<String>| {
        let lines: Option<Vec<String>> = value.get(key)?.as_array()?.iter().map(line).collect();
        lines.map(|lines| lines.join("\n"))
    };
    match name {
        "FS_READ" => text(value, "content"),
        "EXEC_CMD" => {
            let mut said: Vec<String> = ["stdout", "stderr"]
                .iter()
                .filter_map(|stream| text(value, stream))
                .map(|printed| printed.trim_end().to_owned())
                .filter(|printed| !printed.is_empty())
                .collect();
            said.extend(exit_code(value));
            Some(said.join("\n"))
        }
        "NET_FETCH" | "NET_SEND" => {
            let status = value.get("status")?.as_u64()?;
            let body = text(value, "body")?;
            Some(if status >= 400 { format!("status {status}\n{body}") } else { body })
        }
        "FS_LIST" => lines("entries", &|entry| {
            let folder = entry.get("kind")? == "folder";
            Some(text(entry, "path")? + if folder { "/" } else { "" })
        }),
        "FS_SEARCH" => lines("matches", &|hit| {
            Some(format!("{}:{}: {}", text(hit, "path")?, hit.get("line")?, text(hit, "text")?))
        }),
        "MEM_READ" => lines("hits", &|hit| Some(format!("{}: {}", text(hit, "key")?, text(hit, "value")?))),
        "RECV_MSG" => lines("messages", &|message| text(message, "content")),
        "WAIT" => {
            let result = value.get("result")?;
            value.get("exit_code")?;
            let said = (!result.is_null()).then(|| scalar(result));
            let said: Vec<String> = said.into_iter().chain(exit_code(value)).collect();
            Some(said.join("\n"))
        }
        _ => None,
    }
}

fn exit_code(value: &Value) -> Option<String> {
    let code = value.get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0)?;
    Some(format!("exit code {code}"))
}
