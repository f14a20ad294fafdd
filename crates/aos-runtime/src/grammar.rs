//! The grammar of a reply, written for `llguidance`: well formed, and naming no call that the process may not make.
//!
//! Start at [`of_calls`], made from the system calls' schemas and the process's own set of calls. What always holds:
//! whatever it lets through, `aos_abi::decode` takes without an error; every list and string has an end. Deliberately
//! absent: null for what may be left out, since it can be left out.

use std::fmt::Write as _;

use aos_abi::syscall::{CallSet, schema};
use serde_json::Value;

/// Most calls of one reply. A small model that makes more is repeating itself.
const CALLS_MAX: usize = 8;
/// Most items of a list, and entries of a map.
const ITEMS_MAX: usize = 16;
/// Longest string, in characters.
const STRING_CHARS_MAX: usize = 4000;
/// How deep a free value may nest; a parser takes 128.
const DEPTH_MAX: usize = 3;
/// Digits that fit every number of 64 bits, and every program that reads numbers as floating point.
const DIGITS_MAX: usize = 15;

/// The rules of values. No string holds a surrogate, which would be JSON and no text.
fn values() -> String {
    let character = r#"([^"\\\x00-\x1f\x7f]|\\(["\\bfnrt]|u00[01][0-9a-f]))"#;
    format!(
        "STRING: /\"{character}{{0,{STRING_CHARS_MAX}}}\"/\n\
         WORDS: /\"[^\"\\\\\\x00-\\x20\\x7f]{character}{{0,{STRING_CHARS_MAX}}}\"/\n\
         NUMBER: /(0|[1-9][0-9]{{0,8}})(\\.[0-9]{{1,3}})?/\n\
         BOOLEAN: /true|false/\n"
    )
}

/// Replies of the constrained encoding: `{"calls":[…],"say":"…"}`, with calls of the set alone. Where there is no call
/// there are words.
pub(crate) fn of_calls(set: CallSet) -> String {
    let mut grammar = Grammar { rules: values(), set };
    for depth in 0..=DEPTH_MAX {
        grammar.any(depth);
    }
    let mut start = "start: \"{\\\"calls\\\":[],\\\"say\\\":\" WORDS \"}\"\n".to_owned();
    if set != CallSet::EMPTY {
        start += &format!(
            "  | \"{{\\\"calls\\\":[\" call (\",\" call){{0,{}}} \"],\\\"say\\\":\" STRING \"}}\"\n",
            CALLS_MAX - 1
        );
        let calls: Vec<String> = set
            .iter()
            .map(|name| {
                let args = grammar.value(&schema(name));
                format!("{} {args} \"}}\"", literal(&format!("{{\"name\":\"{name}\",\"args\":")))
            })
            .collect();
        let _ = writeln!(grammar.rules, "call: {}", calls.join("\n  | "));
    }
    start + &grammar.rules
}

struct Grammar {
    rules: String,
    set: CallSet,
}

impl Grammar {
    /// The rule of any value that nests so deep.
    fn any(&mut self, depth: usize) {
        let _ = write!(self.rules, "any{depth}: STRING | NUMBER | BOOLEAN | \"null\"");
        if let Some(below) = depth.checked_sub(1) {
            let more = ITEMS_MAX - 1;
            let _ = write!(self.rules, " | \"[\" (any{below} (\",\" any{below}){{0,{more}}})? \"]\" | object{depth}");
            let entry = format!("STRING \":\" any{below}");
            let _ = write!(self.rules, "\nobject{depth}: \"{{\" ({entry} (\",\" {entry}){{0,{more}}})? \"}}\"");
        }
        self.rules.push('\n');
    }

    /// An expression for the values of a schema of ours. Recursion is bounded by our own types.
    fn value(&mut self, schema: &Value) -> String {
        if let Some(constant) = schema.get("const") {
            return literal(&constant.to_string());
        }
        if let Some(constants) = schema["enum"].as_array() {
            let all: Vec<String> =
                constants.iter().filter(|one| !one.is_null()).map(|one| literal(&one.to_string())).collect();
            return format!("({})", all.join(" | "));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(variants) = schema[key].as_array() {
                let all: Vec<String> =
                    variants.iter().filter(|one| one["type"] != "null").map(|one| self.value(one)).collect();
                return format!("({})", all.join(" | "));
            }
        }
        match kind(schema) {
            "string" => "STRING".to_owned(),
            "boolean" => "BOOLEAN".to_owned(),
            "number" => "NUMBER".to_owned(),
            "integer" => whole(schema),
            "array" => {
                let item = self.value(&schema["items"]);
                format!("\"[\" ({item} (\",\" {item}){{0,{}}})? \"]\"", ITEMS_MAX - 1)
            }
            "object" => self.object(schema),
            _ => format!("any{DEPTH_MAX}"),
        }
    }

    fn object(&mut self, schema: &Value) -> String {
        let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) else {
            return match schema.get("additionalProperties") {
                Some(of) if of.is_object() => {
                    let entry = format!("STRING \":\" {}", self.value(of));
                    format!("\"{{\" ({entry} (\",\" {entry}){{0,{}}})? \"}}\"", ITEMS_MAX - 1)
                }
                _ => "\"{}\"".to_owned(),
            };
        };
        // A call inside a call, such as what PROPOSE proposes, names a call of the set too.
        let is_call = properties.len() == 2 && properties.contains_key("name") && properties.contains_key("args");
        let needed =
            |field: &str| schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == field));
        let fields: Vec<(String, bool)> = properties
            .iter()
            .map(|(field, of)| {
                let value = match (is_call, field.as_str()) {
                    (true, "args") => format!("object{DEPTH_MAX}"),
                    (true, "name") if schema["required"].as_array().is_some_and(|all| all.len() == 2) => self.name(of),
                    _ => self.value(of),
                };
                (format!("{} {value}", literal(&format!("\"{field}\":"))), needed(field))
            })
            .collect();
        // Whichever field is the first stands without a comma; all behind it with one.
        let behind = |from: usize| -> String {
            let of = |(field, needed): &(String, bool)| {
                if *needed { format!(" \",\" {field}") } else { format!(" (\",\" {field})?") }
            };
            fields[from..].iter().map(of).collect()
        };
        let mut ways = Vec::new();
        for (nth, (field, needed)) in fields.iter().enumerate() {
            ways.push(format!("{field}{}", behind(nth + 1)));
            if *needed {
                break;
            }
        }
        let optional = if fields.iter().any(|(_, needed)| *needed) { "" } else { "?" };
        format!("\"{{\" ({}){optional} \"}}\"", ways.join(" | "))
    }

    /// The names of the set. A tool of `TOOL_CALL` is no system call, and its name is free.
    fn name(&self, of: &Value) -> String {
        if of["description"].as_str().is_some_and(|text| text.contains("tool")) {
            return "STRING".to_owned();
        }
        let names: Vec<String> = self.set.iter().map(|name| literal(&format!("\"{name}\""))).collect();
        format!("({})", names.join(" | "))
    }
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("any"),
        _ => "any",
    }
}

/// Whole numbers from zero up that fit their type.
fn whole(schema: &Value) -> String {
    match schema["format"].as_str() {
        Some("uint8") => "/25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]/".to_owned(),
        Some("uint16") => "/0|[1-9][0-9]{0,3}/".to_owned(),
        Some("uint32") => "/0|[1-9][0-9]{0,8}/".to_owned(),
        _ => format!("/0|[1-9][0-9]{{0,{}}}/", DIGITS_MAX - 1),
    }
}

/// A literal of the grammar. Its strings are written as JSON's.
fn literal(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}
