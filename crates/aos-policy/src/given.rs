//! What was given: whether the arguments of a call stand literally in what people asked a process for.
//!
//! Start at [`Given::lacks`]. Each argument of each call has a type (the table in [`field`]); the types that choose who
//! acts, on what, with which words, must be given, the others (limits, deadlines) steer nothing. What always holds: an
//! argument of a call that is not in the table must be given; nothing is normalised but what its type says; a part of
//! something given is not given; arguments count together only where one passage gives all of them (docs/decisions/0007).
//! What a clean source names counts too: for a call that only reads anywhere, for others where the passage asks for that
//! source (docs/decisions/0012).

use std::collections::BTreeSet;
use std::fmt;

use aos_abi::limits::EXEC_TIMEOUT_S;
use aos_abi::syscall::Risk;
use aos_abi::{Name, Pid, Syscall};
use serde_json::Value;

use crate::label::Labels;
use crate::named::{Asking, Named};
use crate::passage::{Passage, passages};
use crate::sought::Sought;

/// What a process was given by those it serves, without any untrusted label. The default is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// What people wrote to it, each text whole.
    pub texts: &'a [String],
    /// The text that says who it is; empty where nobody vouches for it.
    pub role: &'a str,
    /// What clean sources named.
    pub named: &'a [Named],
    /// Processes that it made without an untrusted label.
    pub pids: Option<&'a BTreeSet<Pid>>,
    /// Who made it.
    pub parent: Option<Pid>,
    /// What the files of its workspace carry: a command runs them.
    pub files: Labels,
}

/// Why a call is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// This argument stands nowhere in what was asked.
    Argument(String),
    /// Each stands there, but no sentence holds all of them.
    Apart,
    /// A command runs files, and these were changed under untrusted content.
    Files,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lacking::Argument(field) => {
                write!(f, "the argument `{field}` stands neither in your request nor in a file that it names")
            }
            Lacking::Apart => f.write_str("its arguments stand in your request, but in no one sentence"),
            Lacking::Files => f.write_str("the files it could run were changed after untrusted content was read"),
        }
    }
}

/// What an argument is, and so how it can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// It steers nothing: a limit, a deadline, an id that the kernel made for this process.
    Inert,
    /// A name: to the byte.
    Word,
    /// A path of the workspace: to the byte, but for `./` before it.
    Path,
    /// A URL: whole with its query; scheme and host in any case, `https://` may be left out.
    Url,
    /// Somebody outside: what follows the `@` in any case.
    Recipient,
    /// `POST` and so on, in any case: its body, given beside it, says that it is meant.
    Method,
    /// The same of a request without a body: in capitals, marked, or right before an address, since such words are plain ones
    /// too ("put a summary of https://… into today.md").
    BareMethod,
    /// A process: named by number, or a child or the parent.
    Pid,
    /// One that a signal goes to: the same, where the sentence has said before that it is about processes.
    Target,
    /// Words that are sent, run or told: marked from beginning to end.
    Text,
    /// The same, but nothing at all may be sent too.
    Body,
    /// Headers: those that say what a body is steer nothing.
    Headers,
    /// The path of a webhook: where the sentence speaks of one, or marks it.
    Hook,
    /// The same of one that anybody may call: where the sentence speaks of no secret either.
    OpenHook,
    /// The seconds after which a command is cut off: below what it has anyway, a number of the sentence. What it did until
    /// then stays, so whoever chooses the end chooses what is done.
    Deadline,
    /// Any value: each name and number in it, and no booleans.
    Any,
}

/// The table. A field that is not named here is [`Field::Any`], so a new one must be given.
fn field(name: Name, field: &str) -> Field {
    match (name, field) {
        (Name::NetFetch | Name::NetSend, "url") => Field::Url,
        (Name::NetSend, "method") => Field::Method,
        (Name::NetFetch | Name::NetSend | Name::SysWebhookReply, "headers") => Field::Headers,
        (Name::NetSend | Name::SysWebhookReply, "body") => Field::Body,
        (Name::ExecCmd, "cmd") => Field::Text,
        (Name::ExecCmd, "stdin") => Field::Body,
        (Name::ExecCmd, "timeout_s") => Field::Deadline,
        (Name::SpawnAgent, "role" | "task") => Field::Text,
        (Name::SpawnAgent, "name" | "model") => Field::Word,
        (Name::SpawnAgent, "pipe_to") | (Name::SendMsg, "to_pid") => Field::Pid,
        (Name::Kill, "pid") => Field::Target,
        // What is attached is judged as the call that brings it.
        (Name::SpawnAgent, "budget" | "quarantine" | "workspace" | "attachments") => Field::Inert,
        (Name::SysRegisterWebhook, "path") => Field::Hook,
        (Name::SysRegisterWebhook, "secret") => Field::Word,
        (Name::ChannelSend, "channel" | "reply_to") => Field::Word,
        (Name::ChannelSend, "to") => Field::Recipient,
        (Name::ChannelSend | Name::SendMsg | Name::FsWrite, "content") => Field::Text,
        (Name::SendMsg, "to") => Field::Word,
        (Name::ToolCall, "name") | (Name::ThreadAttach | Name::ThreadDetach, "entity") => Field::Word,
        (
            Name::FsRead
            | Name::FsWrite
            | Name::FsEdit
            | Name::FsList
            | Name::FsSearch
            | Name::FsWatch
            | Name::FsDelete,
            "path",
        )
        | (Name::FsMove, "from" | "to") => Field::Path,
        (Name::FsList | Name::FsSearch | Name::FsWatch, "glob") => Field::Word,
        (Name::FsSearch, "pattern") => Field::Text,
        (Name::MemWrite, "key" | "value") | (Name::MemRead | Name::ToolSearch, "query") => Field::Text,
        (Name::MemForget, "key") => Field::Text,
        (Name::MemForget, "id") => Field::Word,
        (Name::MemWrite | Name::MemRead | Name::MemForget, "namespace") => Field::Word,
        (Name::SysSchedule, "prompt") | (Name::AskUser, "question") => Field::Text,
        (Name::SysSchedule, "cron") => Field::Text,
        (Name::SysSchedule, "timezone" | "name") => Field::Word,
        // Ids that only its owner can use.
        (Name::FsUnwatch, "watch_id") | (Name::SysUnschedule, "timer_id") | (Name::SysWebhookReply, "request_id") => {
            Field::Inert
        }
        (_, "timeout_s" | "limit" | "offset" | "depth" | "mode" | "ttl_s" | "once" | "reply_within_s" | "since") => {
            Field::Inert
        }
        _ => Field::Any,
    }
}

impl Given<'_> {
    /// Why this call could be somebody else's; `None`: everything that steers it was given.
    #[must_use]
    pub fn lacks(&self, call: &Syscall) -> Option<Lacking> {
        let args = call.args();
        let mut steering = self.wanting(call.name(), &args);
        if let Some(lacking) = self.looked_for(&mut steering) {
            return Some(lacking);
        }
        (call.name() == Name::ExecCmd && self.files.any_of(Labels::UNTRUSTED)).then_some(Lacking::Files)
    }

    /// The arguments that what people wrote has to give: not a process that it knows, nor, of a call that only reads, what a
    /// clean source named.
    fn wanting<'s>(&'s self, name: Name, args: &'s Value) -> Vec<Steering<'s>> {
        let only_reads = name.spec().risk == Risk::Read;
        let sought = steering(name, args).map(|(name, field, value)| (name, Sought::of(field, value)));
        let sought = sought.filter(|(_, sought)| !self.is_kin(sought));
        let sought = sought.filter(|(_, sought)| !(only_reads && self.sources(sought).next().is_some()));
        sought
            .map(|(name, sought)| Steering {
                name,
                // Of a call that only reads there is none left.
                sources: if only_reads { Vec::new() } else { self.sources(&sought).map(Named::asking).collect() },
                sought,
                found: false,
            })
            .collect()
    }

    /// Looks for each of these in what people wrote, and for a passage that holds all.
    fn looked_for(&self, steering: &mut [Steering<'_>]) -> Option<Lacking> {
        if steering.is_empty() {
            return None;
        }
        // What was said last comes first: it is most likely what is done.
        let role = Some(self.role).filter(|role| !role.is_empty());
        for text in role.into_iter().chain(self.texts.iter().rev().map(String::as_str)) {
            let (mut all, mut new) = (true, false);
            for argument in &*steering {
                let could = argument.could_stand_in(text);
                all &= could;
                new |= could && !argument.found;
            }
            // Most of what people wrote is about something else, and is never cut.
            if !(all || new) {
                continue;
            }
            for passage in passages(text) {
                let mut together = true;
                for argument in &mut *steering {
                    let stands = argument.stands_in(&passage);
                    argument.found |= stands;
                    together &= stands;
                }
                if together {
                    return None;
                }
            }
        }
        let missing = steering.iter().find(|argument| !argument.found);
        Some(missing.map_or(Lacking::Apart, |argument| Lacking::Argument(argument.name.to_owned())))
    }

    /// Whether these words were marked off in what was asked: one of the answers that were named.
    #[must_use]
    pub fn names(&self, word: &str) -> bool {
        let texts = self.texts.iter().map(String::as_str).chain([self.role]);
        texts.flat_map(passages).any(|passage| passage.named().iter().any(|mark| *mark == word || spells(mark, word)))
    }

    /// The clean sources that name this.
    fn sources<'s>(&'s self, sought: &'s Sought<'_>) -> impl Iterator<Item = &'s Named> {
        self.named.iter().filter(move |source| source.holds(sought))
    }

    /// Whether it is a process to speak to: the caller's child or parent.
    fn is_kin(&self, sought: &Sought<'_>) -> bool {
        let pid = sought.value().as_u64().map(Pid).filter(|_| sought.field() == Field::Pid);
        pid.is_some_and(|pid| self.parent == Some(pid) || self.pids.is_some_and(|pids| pids.contains(&pid)))
    }
}

/// An argument that something depends on.
struct Steering<'a> {
    name: &'a str,
    sought: Sought<'a>,
    /// The calls that clean sources named it by.
    sources: Vec<Asking>,
    /// Whether it stands anywhere.
    found: bool,
}

impl Steering<'_> {
    /// Whether it stands in this passage, or a clean source that it asks for named it.
    fn stands_in(&self, passage: &Passage<'_>) -> bool {
        self.sought.stands_in(passage) || self.sources.iter().any(|source| source.stands_in(passage))
    }

    /// Whether it could in one of this text; false only where it does in none.
    fn could_stand_in(&self, text: &str) -> bool {
        self.sought.could_stand_in(text) || self.sources.iter().any(|source| source.could_stand_in(text))
    }
}

/// The arguments of a call that something depends on.
pub(crate) fn steering(name: Name, args: &Value) -> impl Iterator<Item = (&str, Field, &Value)> {
    let fields = args.as_object().into_iter().flatten();
    let bare = args["body"].as_str().is_none_or(str::is_empty);
    let open = args["secret"].is_null();
    let typed = fields.map(move |(key, value)| match field(name, key) {
        Field::Method if bare => (key.as_str(), Field::BareMethod, value),
        Field::Hook if open => (key.as_str(), Field::OpenHook, value),
        field => (key.as_str(), field, value),
    });
    typed.filter(|(_, field, value)| !steers_nothing(*field, value))
}

/// Whether a JSON object has this as a name or a text; one like `"yes|no"` is one of several.
fn spells(mark: &str, word: &str) -> bool {
    fn within(value: &Value, word: &str) -> bool {
        match value {
            Value::String(text) => text.split('|').any(|one| one.trim() == word),
            Value::Array(items) => items.iter().any(|item| within(item, word)),
            Value::Object(fields) => fields.iter().any(|(name, value)| name == word || within(value, word)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    // Recursion is bounded by the depth to which `serde_json` parses.
    mark.starts_with('{') && serde_json::from_str(mark).is_ok_and(|value| within(&value, word))
}

/// Whether nothing depends on it: an inert argument, or one that says nothing.
fn steers_nothing(field: Field, value: &Value) -> bool {
    match (field, value) {
        (Field::Inert, _) | (_, Value::Null) => true,
        (Field::Body, Value::String(text)) => text.is_empty(),
        (Field::Deadline, Value::Number(seconds)) => seconds.as_f64().is_some_and(|s| s >= EXEC_TIMEOUT_S as f64),
        (_, Value::Array(items)) => items.is_empty(),
        (Field::Headers, Value::Object(headers)) => headers.iter().all(|(name, value)| is_plain_header(name, value)),
        (_, Value::Object(fields)) => fields.is_empty(),
        _ => false,
    }
}

/// Headers that only say what a body is. Their values are a closed list, since any other text could carry something out.
fn is_plain_header(name: &str, value: &Value) -> bool {
    const TYPES: [&str; 8] = [
        "*/*",
        "application/json",
        "application/x-www-form-urlencoded",
        "application/xml",
        "text/csv",
        "text/html",
        "text/markdown",
        "text/plain",
    ];
    let media = value.as_str().unwrap_or_default().trim_end_matches("; charset=utf-8");
    matches!(name.to_ascii_lowercase().as_str(), "content-type" | "accept") && TYPES.contains(&media)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(asked: &str, call: &str, args: &str) -> Option<String> {
        let texts = [asked.to_owned()];
        let call = Syscall::parse(call, args).unwrap_or_else(|error| panic!("{args}: {error}"));
        Given { texts: &texts, ..Given::default() }.lacks(&call).map(|why| match why {
            Lacking::Argument(field) => field,
            Lacking::Apart => "apart".to_owned(),
            Lacking::Files => "files".to_owned(),
        })
    }

    #[test]
    fn a_url_is_given_whole_or_not_at_all() {
        let fetch = |asked: &str, url: &str| lacks(asked, "NET_FETCH", &serde_json::json!({ "url": url }).to_string());
        let asked = "Read https://News.example/a/b?day=1, and example.org too.";
        for good in [
            "https://news.example/a/b?day=1",
            "HTTPS://news.example:443/a/b?day=1",
            "https://example.org",
            "https://example.org/",
        ] {
            assert_eq!(fetch(asked, good), None, "{good}");
        }
        for bad in [
            "https://news.example/a/b",
            "https://news.example/a/b?day=1&x=2",
            "https://news.example/a/B?day=1",
            "https://news.example/",
            "http://news.example/a/b?day=1",
            "https://news.example:8443/a/b?day=1",
            "https://news.example.evil.example/a/b?day=1",
            "https://example.org/x",
            "https://me@example.org/",
            "https://nеws.example/a/b?day=1",
        ] {
            assert_eq!(fetch(asked, bad), Some("url".into()), "{bad}");
        }
        assert_eq!(fetch("write to bob@example.org", "https://example.org/"), Some("url".into()));
    }

    /// `README.md` in a request opened https://README.md/, which anybody can own.
    #[test]
    fn the_name_of_a_file_is_no_address() {
        let fetch = |asked: &str, url: &str| lacks(asked, "NET_FETCH", &serde_json::json!({ "url": url }).to_string());
        for (asked, url) in [
            ("Sum up README.md for me.", "https://README.md/"),
            ("Sum up README.md for me.", "https://readme.md"),
            ("Run `build.sh`, then look at main.rs and old.zip.", "https://build.sh/"),
            ("Run `build.sh`, then look at main.rs and old.zip.", "https://main.rs/"),
            ("Run `build.sh`, then look at main.rs and old.zip.", "https://old.zip/"),
        ] {
            assert_eq!(fetch(asked, url), Some("url".into()), "{asked} {url}");
        }
        for (asked, url) in [
            ("Look at docs.rs/tokio for it.", "https://docs.rs/tokio"),
            ("Look at www.readme.md for it.", "https://www.readme.md/"),
            ("Look at https://docs.rs for it.", "https://docs.rs/"),
            ("Look at docs.rs:8443 for it.", "https://docs.rs:8443/"),
            ("Look at example.org for it.", "https://example.org/"),
        ] {
            assert_eq!(fetch(asked, url), None, "{asked} {url}");
        }
        let read = |asked: &str| lacks(asked, "FS_READ", r#"{"path":"README.md"}"#);
        assert_eq!(read("Sum up README.md for me."), None, "it is still the name of the file");
    }

    #[test]
    fn pieces_that_were_given_apart_make_nothing_given() {
        let asked =
            "Read https://a.example/feed. Then post `done` to https://b.example/hook.\n\nNever tell `done` to eve.";
        let send = |url: &str, method: &str, body: &str| {
            lacks(asked, "NET_SEND", &serde_json::json!({"url": url, "method": method, "body": body}).to_string())
        };
        assert_eq!(send("https://b.example/hook", "POST", "done"), None);
        assert_eq!(send("https://b.example/hook", "POST", "all the files"), Some("body".into()));
        assert_eq!(send("https://b.example/hook", "DELETE", "done"), Some("method".into()));
        assert_eq!(send("https://b.example/hook/feed", "POST", "done"), Some("url".into()));
        assert_eq!(send("https://a.example/feed", "POST", "done"), Some("apart".into()));
        let headers = |headers: Value| {
            let args = serde_json::json!({"url": "https://b.example/hook", "method": "POST", "body": "done", "headers": headers});
            lacks(asked, "NET_SEND", &args.to_string())
        };
        assert_eq!(headers(serde_json::json!({"Content-Type": "text/plain; charset=utf-8"})), None);
        assert_eq!(headers(serde_json::json!({"X-Note": "the secret"})), Some("headers".into()));
        assert_eq!(headers(serde_json::json!({"Accept": "the/secret"})), Some("headers".into()));
    }

    #[test]
    fn a_method_is_no_plain_word_where_nothing_is_sent() {
        let send = |asked: &str| lacks(asked, "NET_SEND", r#"{"url":"https://b.example/7","method":"DELETE"}"#);
        for asked in [
            "DELETE what is at https://b.example/7",
            "delete https://b.example/7 now",
            "Send `delete` to https://b.example/7",
        ] {
            assert_eq!(send(asked), None, "{asked}");
        }
        assert_eq!(send("Delete notes.md after reading https://b.example/7"), Some("method".into()));
    }

    #[test]
    fn a_command_is_given_to_the_byte() {
        let exec = |args: Value| lacks("Run `make test` in the end", "EXEC_CMD", &args.to_string());
        for cmd in ["make", "make test; curl evil", "make  test", "MAKE TEST", ""] {
            assert_eq!(exec(serde_json::json!({ "cmd": cmd })), Some("cmd".into()), "{cmd}");
        }
        assert_eq!(exec(serde_json::json!({"cmd": "make test", "stdin": "x y"})), Some("stdin".into()));
        assert_eq!(exec(serde_json::json!({"cmd": "make test", "env": {"LD_PRELOAD": "./x.so"}})), Some("env".into()));
    }

    /// What a command did before its deadline stays.
    #[test]
    fn who_cuts_a_given_command_off_is_given_too() {
        let exec = |asked: &str, seconds: f64| {
            lacks(asked, "EXEC_CMD", &serde_json::json!({"cmd": "make", "timeout_s": seconds}).to_string())
        };
        for (seconds, lacking) in [(0.4, true), (29.9, true), (30.0, false), (3600.0, false)] {
            let expected = lacking.then(|| "timeout_s".to_owned());
            assert_eq!(exec("Read mail/1.txt, then run `make`", seconds), expected, "{seconds}");
        }
        for (asked, seconds) in [("Run `make` for at most 5 seconds", 5.0), ("Run `make` for 0.5 s", 0.5)] {
            assert_eq!(exec(asked, seconds), None, "{asked}");
            assert_eq!(exec(asked, seconds + 0.25), Some("timeout_s".into()), "{asked}");
        }
    }

    #[test]
    fn who_a_message_goes_to_and_what_it_says_are_both_given() {
        let asked = "Tell Bob@Mail.example on telegram: see you at nine";
        let send = |to: &str, content: &str| {
            lacks(
                asked,
                "CHANNEL_SEND",
                &serde_json::json!({"channel": "telegram", "to": to, "content": content}).to_string(),
            )
        };
        assert_eq!(send("Bob@mail.example", "see you at nine"), None);
        assert_eq!(send("bob@mail.example", "see you at nine"), Some("to".into()), "boxes may differ in case");
        assert_eq!(send("Bob@mail.example", "see you"), Some("content".into()));
        let spawn = |args: &str| lacks("Spawn \"a judge\" with the task \"judge it\"", "SPAWN_AGENT", args);
        assert_eq!(spawn(r#"{"role":"a judge","task":"judge it","budget":{"calls":3}}"#), None);
        assert_eq!(
            spawn(r#"{"role":"a judge","task":"judge it","permissions":["NET_SEND **"]}"#),
            Some("permissions".into())
        );
        assert_eq!(spawn(r#"{"role":"a judge","task":"send it"}"#), Some("task".into()));
        for (asked, path) in [
            ("Listen on the webhook orders", None),
            ("Listen at /hooks/orders", None),
            ("Take what comes for `orders`", None),
            ("Read my orders", Some("path".into())),
        ] {
            assert_eq!(lacks(asked, "SYS_REGISTER_WEBHOOK", r#"{"path":"orders"}"#), path, "{asked}");
        }
        assert_eq!(
            lacks("Listen on the webhook orders", "SYS_REGISTER_WEBHOOK", r#"{"path":"orders/x"}"#),
            Some("path".into())
        );
        assert_eq!(
            lacks("Use transfer with 100", "TOOL_CALL", r#"{"name":"transfer","args":{"amount":1000}}"#),
            Some("args".into())
        );
    }

    #[test]
    fn a_number_is_a_process_only_in_a_sentence_about_processes() {
        for (asked, pid) in [
            ("Tell me the 35 most important mails", Some("pid".to_owned())),
            ("35 processes are too many", Some("pid".to_owned())),
            ("Kill process 35", None),
            ("stop 34 and 35, please", None),
        ] {
            assert_eq!(lacks(asked, "KILL", r#"{"pid":35}"#), pid, "{asked}");
        }
    }

    #[test]
    fn a_webhook_that_should_be_signed_is_not_given_to_everybody() {
        let asked = "Listen on the webhook orders with the secret `abc12345`";
        assert_eq!(lacks(asked, "SYS_REGISTER_WEBHOOK", r#"{"path":"orders"}"#), Some("path".into()));
        assert_eq!(lacks(asked, "SYS_REGISTER_WEBHOOK", r#"{"path":"orders","secret":"abc12345"}"#), None);
    }

    #[test]
    fn a_child_is_known_and_tainted_files_are_not_run() {
        let texts = ["Run `make`. Tell them \"ready\"".to_owned()];
        let pids = BTreeSet::from([Pid(7)]);
        let given = Given { texts: &texts, pids: Some(&pids), parent: Some(Pid(2)), ..Given::default() };
        let message = |pid: u64| {
            Syscall::parse("SEND_MSG", &format!(r#"{{"to_pid":{pid},"content":"ready"}}"#))
                .unwrap_or_else(|e| panic!("{e}"))
        };
        assert_eq!(given.lacks(&message(7)), None);
        assert_eq!(given.lacks(&message(2)), None);
        assert_eq!(given.lacks(&message(8)), Some(Lacking::Argument("to_pid".into())));
        let make = Syscall::parse("EXEC_CMD", r#"{"cmd":"make"}"#).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(given.lacks(&make), None);
        assert_eq!(Given { files: Labels::WEB, ..given }.lacks(&make), Some(Lacking::Files));
    }

    /// Where what a text must hold is missing, no passage gives anything: of each text, for everything that stands in the others.
    #[test]
    fn a_text_that_is_not_cut_would_have_given_nothing() {
        let texts = [
            "Tell Bob@Mail.example: `see you`. Read ./docs/plan.md/ and https://News.example/a/b?day=1, then HTTPS://a.example.",
            "post {\"a\": [1, 2]} to a.example:443/ or a.example?q; ask 17 and bob@mail.example (\"docs/plan.md\")",
            "Run: make test\n\n- see you\n- 17\n```\n{\"a\": [1, 2]}\n```",
            "",
            "é @x x@ ./ / :// https:///x «see you» 'a.example/x'",
        ];
        let fields = [
            Field::Word,
            Field::Path,
            Field::Hook,
            Field::OpenHook,
            Field::Url,
            Field::Recipient,
            Field::Method,
            Field::BareMethod,
            Field::Pid,
            Field::Target,
            Field::Text,
            Field::Body,
            Field::Headers,
            Field::Deadline,
            Field::Any,
        ];
        let cut: Vec<(&str, Vec<Passage<'_>>)> = texts.iter().map(|text| (*text, passages(text))).collect();
        let of = |passage: &Passage<'_>| -> Vec<String> {
            let words = passage.words().chain(passage.marked().iter().copied());
            words
                .flat_map(|word| [word.to_owned(), format!("./{word}/"), format!("{word}\n"), word.to_uppercase()])
                .collect()
        };
        let mut given = 0;
        for word in cut.iter().flat_map(|(_, passages)| passages).flat_map(of) {
            for value in [Value::from(word.as_str()), serde_json::json!(17)] {
                for (field, (text, passages)) in
                    fields.iter().flat_map(|field| cut.iter().map(move |cut| (*field, cut)))
                {
                    let sought = Sought::of(field, &value);
                    let is = passages.iter().any(|passage| sought.stands_in(passage));
                    assert!(!is || sought.could_stand_in(text), "{field:?} {value} {text}");
                    given += usize::from(is);
                }
            }
        }
        assert!(given > 1_000, "{given}");
    }

    /// Every argument of every call has been thought about, or must be given.
    #[test]
    fn nothing_is_given_to_a_process_that_was_told_nothing() {
        for name in Name::ALL {
            let call = Syscall::parse(name.as_str(), name.spec().example).unwrap_or_else(|error| panic!("{error}"));
            let args = call.args();
            let fields = args.as_object().into_iter().flatten();
            let steered = fields.filter(|(key, value)| !steers_nothing(field(*name, key), value)).count();
            assert_eq!(Given::default().lacks(&call).is_some(), steered > 0, "{name}");
        }
    }
}
