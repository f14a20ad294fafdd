//! System calls: the one door between an agent and the world.
//!
//! Start at [`Syscall`], the parsed call, and at [`Name::spec`], what is true of every call of that name. Both come
//! from the one table at the end of [`table`]; schemas, manual pages, provider tool lists and the policy's vocabulary
//! are generated from it and from the argument types in [`args`], whose doc comments are what agents read.

mod args;
mod set;
mod table;

pub use args::*;
pub use set::CallSet;
pub use table::{Name, Syscall};

use crate::{CallError, Code};

/// What is true of every call of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What it does to the world.
    pub risk: Risk,
    /// Who carries it out.
    pub handler: Handler,
    /// One line for the agent.
    pub summary: &'static str,
    /// The shape of the result.
    pub result: &'static str,
    /// One correct set of arguments.
    pub example: &'static str,
}

/// What a call does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It changes only the process itself.
    Own,
    /// It only reads; such calls of one reply may run side by side.
    Read,
    /// It changes something and can be taken back.
    Undoable,
    /// It cannot be taken back once it has left.
    Irreversible,
}

/// Who carries a call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handler {
    /// The kernel, in the same step.
    Kernel,
    /// The file driver.
    Files,
    /// The command driver.
    Exec,
    /// The network driver.
    Net,
    /// The memory store.
    Memory,
    /// Nobody yet: the call answers `ENOSYS` with this hint.
    Absent(&'static str),
}

impl Syscall {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// `ENOSYS` with the nearest names where there is no such call; `EINVAL` with the JSON pointer of the fault, what
    /// was expected there and one correct example where the arguments do not fit.
    pub fn parse(name: &str, args: &str) -> Result<Syscall, CallError> {
        let name = name.parse::<Name>()?;
        if args.len() > crate::limits::ARGS_BYTES_MAX {
            return Err(CallError::new(
                Code::Inval,
                format!("the arguments hold {} bytes, the most is {}", args.len(), crate::limits::ARGS_BYTES_MAX),
            ));
        }
        // Providers send an empty string for a call without arguments.
        let args = if args.trim().is_empty() { "{}" } else { args };
        let parsed = if args.trim_start().starts_with('{') {
            Syscall::parse_args(name, args)
        } else {
            // A list would be read field by field, so that a caller's slip passes for arguments.
            Err(ArgsFault { pointer: String::new(), expected: "expected a JSON object".to_owned() })
        };
        parsed.and_then(Syscall::whole).map_err(|mut fault| {
            // Of what is no word where one of a few belongs, serde says what it says of what is no JSON.
            if fault.expected.starts_with("expected value")
                && serde_json::from_str::<serde::de::IgnoredAny>(args).is_ok()
                && let Some(words) = words_at(&schema(name), &fault.pointer)
            {
                fault.expected = format!("expected {words}");
            }
            let example = format!("a correct call: {name} {}", name.spec().example);
            let hint = match nearest_field(&fault.expected) {
                Some(field) => format!("did you mean `{field}`? {example}"),
                None => example,
            };
            CallError::new(Code::Inval, at(&fault.pointer, &fault.expected)).hint(hint)
        })
    }

    /// The same, where it says whom it is for as its schema cannot: by exactly one of two arguments.
    fn whole(self) -> Result<Syscall, ArgsFault> {
        let fault = |expected: &str| ArgsFault { pointer: String::new(), expected: expected.to_owned() };
        match &self {
            Syscall::SendMsg(SendMsg { to, to_pid, .. }) if to.is_some() == to_pid.is_some() => {
                Err(fault("exactly one of `to` and `to_pid` says who gets it"))
            }
            Syscall::Kill(Kill { pid, group, .. }) if pid.is_some() == group.is_some() => {
                Err(fault("exactly one of `pid` and `group` says who is signalled"))
            }
            _ => Ok(self),
        }
    }

    /// Whether doing it twice with the same effect id is the same as doing it once. After a crash such calls are
    /// issued again; the others return `EINTR`, outcome unknown.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        match self {
            Syscall::FsWrite(write) => write.mode.unwrap_or_default() == WriteMode::Replace,
            // The store recognises the effect id, so a repeated write makes no second version.
            Syscall::MemWrite(_) | Syscall::MemForget(_) => true,
            call => call.name().spec().risk == Risk::Read,
        }
    }
}

/// Where and why arguments do not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgsFault {
    /// JSON pointer (RFC 6901) of the fault; empty for the whole object.
    pub pointer: String,
    /// What was expected there.
    pub expected: String,
}

impl ArgsFault {
    fn from_error(error: &serde_path_to_error::Error<serde_json::Error>) -> ArgsFault {
        use serde_path_to_error::Segment;
        let mut pointer = String::new();
        for segment in error.path() {
            match segment {
                Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
                Segment::Map { key } => pointer.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let error = error.inner();
        let said = error.to_string();
        // Of what is JSON and does not fit, the pointer says where.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let said = if error.is_data() { said.strip_suffix(&place).unwrap_or(&said) } else { &said };
        ArgsFault { pointer, expected: in_words_of_the_schema(said) }
    }
}

/// The words of which one belongs at a place, by the schema.
fn words_at(schema: &serde_json::Value, pointer: &str) -> Option<String> {
    fn collect(schema: &serde_json::Value, found: &mut Vec<String>) {
        let of = |key: &str| schema[key].as_array().into_iter().flatten();
        found.extend(of("enum").chain(schema.get("const")).filter(|word| word.is_string()).map(ToString::to_string));
        of("anyOf").chain(of("oneOf")).for_each(|one| collect(one, found));
    }
    let mut at = schema;
    for part in pointer.split('/').skip(1) {
        at = at["properties"].get(part).or_else(|| at.get("items"))?;
    }
    let mut found = Vec::new();
    collect(at, &mut found);
    (!found.is_empty()).then(|| found.join(" or "))
}

/// What serde says, with the types of Rust in the words that a schema has for them.
fn in_words_of_the_schema(said: &str) -> String {
    let Some((found, expected)) = said.rsplit_once(", expected ") else { return said.to_owned() };
    let found = match found {
        "invalid type: sequence" => "invalid type: a list",
        "invalid type: map" => "invalid type: an object",
        other => other,
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number, 0 or more",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        of if of.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// The argument that was probably meant, where one is unknown: what serde says of it names all that there are.
fn nearest_field(said: &str) -> Option<&str> {
    let mut quoted = said.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let wrong = quoted.next()?.to_ascii_lowercase();
    let likeness = quoted.map(|known| (strsim::jaro_winkler(&wrong, known), known));
    // Below this the likeness is an accident; the value is that of the usual spelling checkers.
    likeness.filter(|(likeness, _)| *likeness > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// What is wrong, and where; nothing stands for the whole.
#[must_use]
pub fn at(pointer: &str, wrong: &str) -> String {
    if pointer.is_empty() { wrong.to_owned() } else { format!("at `{pointer}`: {wrong}") }
}

/// The schema of a call's arguments, as providers and `/v1/syscalls` show it: JSON Schema 2020-12 without references.
#[must_use]
pub fn schema(name: Name) -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut value = name.raw_schema(settings.into_generator()).to_value();
    if let Some(object) = value.as_object_mut() {
        object.remove("title");
        object.remove("description");
        object.entry("properties").or_insert_with(|| serde_json::json!({}));
    }
    value
}

impl Name {
    /// Whether what it changes is kept, so that `aos undo` brings it back: files, also those that a command changes.
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(self, Name::FsWrite | Name::FsEdit | Name::FsDelete | Name::FsMove | Name::ExecCmd)
    }
}

/// The manual page of a call, as `aos man NAME` prints it.
#[must_use]
pub fn manual(name: Name) -> String {
    use std::fmt::Write as _;
    let spec = name.spec();
    let mut page = format!("{name}\n\n  {}\n\nARGUMENTS\n", spec.summary);
    let schema = schema(name);
    match schema["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
        false => page.push_str("  none\n"),
        true => fields(&schema, 2, &mut page),
    }
    let risk = match spec.risk {
        Risk::Own => "changes only the process itself",
        Risk::Read => "only reads",
        Risk::Undoable if name.is_kept() => "can be undone",
        Risk::Undoable => "can be taken back, by another call",
        Risk::Irreversible => "cannot be undone once it has left",
    };
    let _ = write!(page, "\nRESULT\n  {}\n\nEFFECT\n  {risk}\n\nEXAMPLE\n  {name} {}\n", spec.result, spec.example);
    if let Handler::Absent(hint) = spec.handler {
        let _ = write!(page, "\nNOT YET\n  {hint}\n");
    }
    page
}

/// The fields of an object, each with what it may be, and below it its own fields.
fn fields(object: &serde_json::Value, indent: usize, page: &mut String) {
    use std::fmt::Write as _;
    let required: Vec<&str> = object["required"].as_array().into_iter().flatten().filter_map(|r| r.as_str()).collect();
    for (field, of) in object["properties"].as_object().into_iter().flatten() {
        let optional = if required.contains(&field.as_str()) { "" } else { ", optional" };
        let text = of["description"].as_str().unwrap_or("").replace('\n', " ");
        let _ = writeln!(page, "{:indent$}{field} ({}{optional})", "", kind(of));
        let _ = writeln!(page, "{:indent$}    {text}", "");
        fields(of, indent + 4, page);
        fields(&of["items"], indent + 4, page);
    }
}

/// What a value may be, in a few words.
fn kind(of: &serde_json::Value) -> String {
    let one_of = [&of["anyOf"], &of["oneOf"]].into_iter().find_map(|any| any.as_array());
    if let Some(any) = one_of {
        let kinds: Vec<String> = any.iter().filter(|of| of["type"] != "null").map(kind).collect();
        return kinds.join(" or ");
    }
    if !of["const"].is_null() {
        return of["const"].to_string();
    }
    let types = of["type"].as_array().map_or(std::slice::from_ref(&of["type"]), Vec::as_slice);
    let types: Vec<&str> = types.iter().filter_map(|name| name.as_str()).filter(|name| *name != "null").collect();
    match types.as_slice() {
        [] => "anything".to_owned(),
        ["array"] => format!("list: {}", kind(&of["items"])),
        ["integer"] => "whole number".to_owned(),
        ["boolean"] => "true or false".to_owned(),
        ["string"] if of["enum"].is_array() => {
            let names: Vec<String> = of["enum"].as_array().into_iter().flatten().map(ToString::to_string).collect();
            names.join(" or ")
        }
        types => types.join(" or "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_carries_out_yet_is_known_by_name_and_says_what_to_do_instead() {
        let absent = Name::ALL.iter().filter_map(|name| match name.spec().handler {
            Handler::Absent(hint) => Some((name.as_str(), hint)),
            _ => None,
        });
        let absent: Vec<(&str, &str)> = absent.collect();
        let names: Vec<&str> = absent.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["THREAD_ATTACH", "THREAD_DETACH", "TOOL_SEARCH", "TOOL_CALL", "CHANNEL_SEND"]);
        for (name, hint) in absent {
            assert!(hint.contains("use "), "{name}: {hint}");
            assert!(manual(name.parse().unwrap()).contains(hint), "its manual page says so");
        }
    }

    #[test]
    fn every_example_is_correct() {
        for name in Name::ALL {
            let call = Syscall::parse(name.as_str(), name.spec().example).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(call.name(), *name);
            let args = serde_json::to_string(&call.args()).unwrap();
            assert_eq!(Syscall::parse(name.as_str(), &args).unwrap(), call, "{name} survives a round trip");
        }
    }

    #[test]
    fn every_schema_is_one_closed_object_without_references() {
        for name in Name::ALL {
            let schema = schema(*name);
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            assert!(!schema.to_string().contains("$ref"), "{name}: {schema}");
        }
    }

    #[test]
    fn a_fault_names_its_place_what_was_expected_and_an_example() {
        let error = Syscall::parse("FS_EDIT", r#"{"path":"a","edits":[{"old":"x","new":1}]}"#).unwrap_err();
        assert_eq!(error.code, Code::Inval);
        assert!(
            error.message.starts_with("at `/edits/0/new`: invalid type: integer `1`, expected a string"),
            "{error}"
        );
        assert!(error.hint.unwrap().contains(r#"FS_EDIT {"path""#));
        let error = Syscall::parse("FS_READ", r#"{"file":"a"}"#).unwrap_err();
        assert!(error.message.contains("unknown field `file`, expected"), "{error}");
        assert!(error.hint.unwrap().starts_with("a correct call: FS_READ"), "nothing is like it");
        let error = Syscall::parse("FS_READ", r#"{"pth":"a"}"#).unwrap_err();
        assert!(error.hint.unwrap().starts_with("did you mean `path`? a correct call: FS_READ"), "{}", error.message);
        // Whom it is for was a word of the policy's floor, which told both ways out of either fault.
        for (name, rest, who) in [
            ("SEND_MSG", r#","content":"x""#, ["to\":\"a", "to_pid\":2"]),
            ("KILL", r#","signal":"TERM""#, ["group\":\"a", "pid\":2"]),
        ] {
            let [a, b] = who.map(|who| format!("\"{who}{}", if who.ends_with('a') { "\"" } else { "" }));
            for args in [rest[1..].to_owned(), format!("{a},{b}{rest}")] {
                let error = Syscall::parse(name, &format!("{{{args}}}")).unwrap_err();
                assert!(error.code == Code::Inval && error.message.starts_with("exactly one of"), "{name}: {error}");
                assert!(error.hint.unwrap().contains("a correct call: "), "{name}");
            }
            assert!(Syscall::parse(name, &format!("{{{a}{rest}}}")).is_ok(), "{name} {a}");
        }
        let error = Syscall::parse("FS_READ", r#"["a"]"#).unwrap_err();
        assert!(error.message.contains("expected a JSON object"), "{error}");
        let error = Syscall::parse("FS_READ", r#"{"path":"#).unwrap_err();
        assert!(error.message.contains("EOF"), "{error}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error = Syscall::parse("FS_REED", "{}").unwrap_err();
        assert_eq!(error.code, Code::NoSys);
        assert!(error.hint.unwrap().contains("FS_READ"));
    }

    #[test]
    fn a_manual_page_shows_what_fields_may_be_and_theirs() {
        let page = manual(Name::SpawnAgent);
        for line in [
            "  role (string)\n",
            "  permissions (list: string, optional)\n",
            "  budget (object, optional)\n      Its share of your budget.\n      usd (number, optional)\n          US dollars.\n",
            "  workspace (\"shared\" or \"own\", optional)\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
        assert!(manual(Name::FsEdit).contains("  edits (list: object)\n"), "{}", manual(Name::FsEdit));
        assert!(manual(Name::FsEdit).contains("      old (string)\n"), "{}", manual(Name::FsEdit));
    }

    #[test]
    fn manual_page() {
        insta::assert_snapshot!(manual(Name::Sleep), @r#"
        SLEEP

          Sleep for some seconds. Costs no inference while it lasts; a message or input from a person ends it early.

        ARGUMENTS
          seconds (number)
              How long, in seconds.

        RESULT
          {"slept_s": number, "interrupted"?: why}

        EFFECT
          changes only the process itself

        EXAMPLE
          SLEEP {"seconds":60}
        "#);
    }
}
