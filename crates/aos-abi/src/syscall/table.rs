//! The table: every system call once, in the order agents and people see them.

use std::fmt;
use std::str::FromStr;

use super::{ArgsFault, Handler, Risk, Spec, args};
use crate::{CallError, Code};

macro_rules! syscalls {
    ($($wire:literal $variant:ident($args:ident) $risk:ident, $handler:expr, $summary:literal, $result:literal, $example:literal;)*) => {
        /// The name of a system call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Name { $(#[doc = $summary] $variant,)* }

        /// A system call with its arguments, valid because it exists.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Syscall { $(#[doc = $summary] $variant(args::$args),)* }

        impl Name {
            /// Every name, in table order.
            pub const ALL: &[Name] = &[$(Name::$variant),*];

            /// The name on the wire, such as `FS_READ`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Name::$variant => $wire,)* }
            }

            /// What is true of every call of this name.
            #[must_use]
            pub fn spec(self) -> Spec {
                match self {
                    $(Name::$variant => Spec {
                        risk: Risk::$risk, handler: $handler, summary: $summary, result: $result, example: $example,
                    },)*
                }
            }

            pub(super) fn raw_schema(self, generator: schemars::SchemaGenerator) -> schemars::Schema {
                match self { $(Name::$variant => generator.into_root_schema_for::<args::$args>(),)* }
            }
        }

        impl Syscall {
            /// Its name.
            #[must_use]
            pub fn name(&self) -> Name {
                match self { $(Syscall::$variant(_) => Name::$variant,)* }
            }

            /// Its arguments as JSON.
            #[must_use]
            pub fn args(&self) -> serde_json::Value {
                match self {
                    $(Syscall::$variant(args) => serde_json::to_value(args).expect("arguments are plain data with string keys"),)*
                }
            }

            pub(super) fn parse_args(name: Name, text: &str) -> Result<Syscall, ArgsFault> {
                let mut deserializer = serde_json::Deserializer::from_str(text);
                let parsed = match name {
                    $(Name::$variant => serde_path_to_error::deserialize(&mut deserializer).map(Syscall::$variant),)*
                };
                let call = parsed.map_err(|error| ArgsFault::from_error(&error))?;
                deserializer.end().map_err(|error| ArgsFault { pointer: String::new(), expected: error.to_string() })?;
                Ok(call)
            }
        }
    };
}

const THREADS: &str = "entity threads come with the memory milestone; use MEM_WRITE and MEM_READ meanwhile";
const TOOLS: &str = "no tool registry is connected yet; use the other system calls";
const CHANNELS: &str = "no channel is connected yet; use SYS_WRITE_STDOUT or SEND_MSG";

syscalls! {
    "SPAWN_AGENT" SpawnAgent(SpawnAgent) Undoable, Handler::Kernel,
        "Start a child agent. It can never do what you cannot; its budget is taken out of yours.",
        r#"{"pid": number}"#,
        r#"{"role":"You count words.","task":"Count the words in notes.txt","permissions":["FS_READ notes.txt"]}"#;
    "WAIT" Wait(Wait) Read, Handler::Kernel,
        "Wait until a child ends and take its result.",
        r#"{"pid": number, "exit_code": number, "result": any}"#, r#"{"pid":7,"timeout_s":60}"#;
    "KILL" Kill(Kill) Irreversible, Handler::Kernel,
        "Send a signal to yourself, a descendant, or a process granted to you.",
        r#"{}, or of a group {"signalled": [pids], "left_out": [pids]}"#, r#"{"pid":7,"signal":"TERM"}"#;
    "EXEC_CMD" ExecCmd(ExecCmd) Undoable, Handler::Exec,
        "Run a command line in the sandbox, in your workspace.",
        r#"{"stdout": text, "stderr": text, "exit_code": number, "changed": [paths]}"#, r#"{"cmd":"wc -w notes.txt"}"#;
    "SYS_EXIT" SysExit(SysExit) Own, Handler::Kernel,
        "End yourself with an exit code and a result. Always allowed.",
        "nothing: it does not return", r#"{"code":0,"result":"42 words"}"#;
    "FS_READ" FsRead(FsRead) Read, Handler::Files,
        "Read a file of the workspace, or more of a cut result through its handle. An image is shown to you.",
        r#"{"content": text, "size": bytes, "truncated": bool, "encoding"?: "base64", "media_type"?: text}"#, r#"{"path":"notes.txt"}"#;
    "FS_WRITE" FsWrite(FsWrite) Undoable, Handler::Files,
        "Write a file of the workspace, atomically.",
        r#"{"bytes": number}"#, r#"{"path":"out/summary.md","content":"Hello.\n"}"#;
    "FS_EDIT" FsEdit(FsEdit) Undoable, Handler::Files,
        "Replace exact pieces of a file; each must occur exactly once.",
        r#"{"diff": text}"#, r#"{"path":"notes.txt","edits":[{"old":"helo","new":"hello"}]}"#;
    "FS_LIST" FsList(FsList) Read, Handler::Files,
        "List a folder of the workspace.",
        r#"{"entries": [{"path", "kind", "size", "mtime"}], "truncated": bool}"#, r#"{"path":"docs","glob":"**/*.md","depth":3}"#;
    "FS_SEARCH" FsSearch(FsSearch) Read, Handler::Files,
        "Find lines in files by a regular expression.",
        r#"{"matches": [{"path", "line", "text"}], "truncated": bool}"#, r#"{"pattern":"TODO|FIXME","glob":"*.rs"}"#;
    "FS_WATCH" FsWatch(FsWatch) Read, Handler::Kernel,
        "Be woken when files change: one event per burst, once it has settled.",
        r#"{"watch_id": text}"#, r#"{"path":"inbox","glob":"*.txt"}"#;
    "FS_UNWATCH" FsUnwatch(FsUnwatch) Read, Handler::Kernel,
        "Stop watching.",
        "{}", r#"{"watch_id":"w1"}"#;
    "FS_DELETE" FsDelete(FsDelete) Undoable, Handler::Files,
        "Delete a file or folder of the workspace.",
        "{}", r#"{"path":"old.txt"}"#;
    "FS_MOVE" FsMove(FsMove) Undoable, Handler::Files,
        "Move or rename within the workspace; nothing is overwritten.",
        "{}", r#"{"from":"a.txt","to":"archive/a.txt"}"#;
    "NET_FETCH" NetFetch(NetFetch) Read, Handler::Net,
        "GET an address. What comes back is untrusted.",
        r#"{"status": number, "headers": {}, "body": text, "truncated": bool}"#, r#"{"url":"https://example.com/"}"#;
    "NET_SEND" NetSend(NetSend) Irreversible, Handler::Net,
        "Send a POST, PUT, PATCH or DELETE request. Needs a rule that names host, method and path.",
        r#"{"status": number, "headers": {}, "body": text, "truncated": bool}"#,
        r#"{"url":"https://example.com/api","method":"POST","body":"{}"}"#;
    "MEM_WRITE" MemWrite(MemWrite) Undoable, Handler::Memory,
        "Remember something across tasks and restarts.",
        r#"{"id": text}"#, r#"{"key":"favourite colour","value":"green","tags":["person"]}"#;
    "MEM_READ" MemRead(MemRead) Read, Handler::Memory,
        "Search what is remembered.",
        r#"{"hits": [{"id", "key", "value", "score", "at", "source"}]}"#, r#"{"query":"favourite colour"}"#;
    "MEM_FORGET" MemForget(MemForget) Undoable, Handler::Memory,
        "Forget one memory, or every version of a key.",
        r#"{"forgotten": number}"#, r#"{"key":"favourite colour"}"#;
    "THREAD_ATTACH" ThreadAttach(Thread) Undoable, Handler::Absent(THREADS),
        "Map an entity's context thread into your window.",
        r#"{"thread": text, "turns": number}"#, r#"{"entity":"client:acme"}"#;
    "THREAD_DETACH" ThreadDetach(Thread) Undoable, Handler::Absent(THREADS),
        "Take an entity's context thread out of your window.",
        "{}", r#"{"entity":"client:acme"}"#;
    "SEND_MSG" SendMsg(SendMsg) Irreversible, Handler::Kernel,
        "Send a message to another process: delivered once, in order, and it wakes the receiver.",
        r#"{"message_id": text}"#, r#"{"to_pid":7,"content":"The file is ready."}"#;
    "RECV_MSG" RecvMsg(RecvMsg) Read, Handler::Kernel,
        "Take the messages that have come, or wait for the first.",
        r#"{"messages": [{"from_pid", "content", "at"}]}"#, r#"{"timeout_s":60}"#;
    "SYS_WRITE_STDOUT" SysWriteStdout(SysWriteStdout) Irreversible, Handler::Kernel,
        "Print text: to the process you are piped to, else to whoever is attached and the log.",
        "{}", r#"{"text":"Half done.\n"}"#;
    "SYS_READ_STDIN" SysReadStdin(SysReadStdin) Read, Handler::Kernel,
        "Read what was sent to your standard input, or wait for it.",
        r#"{"text": text} or {"eof": true}"#, r#"{"timeout_s":60}"#;
    "SLEEP" Sleep(Sleep) Own, Handler::Kernel,
        "Sleep for some seconds. Costs no inference while it lasts; a message or input from a person ends it early.",
        r#"{"slept_s": number, "interrupted"?: why}"#, r#"{"seconds":60}"#;
    "SYS_SCHEDULE" SysSchedule(SysSchedule) Undoable, Handler::Kernel,
        "Be woken with a prompt, every some seconds or by a cron line. Survives restarts.",
        r#"{"timer_id": text, "next_at": time}"#, r#"{"cron":"0 9 * * 1-5","timezone":"Europe/Berlin","prompt":"Write the morning report."}"#;
    "SYS_UNSCHEDULE" SysUnschedule(SysUnschedule) Undoable, Handler::Kernel,
        "Cancel a timer.",
        "{}", r#"{"timer_id":"t1"}"#;
    "SYS_REGISTER_WEBHOOK" SysRegisterWebhook(SysRegisterWebhook) Undoable, Handler::Kernel,
        "Be woken by HTTP requests to a path of your own.",
        r#"{"url": text}"#, r#"{"path":"orders","reply_within_s":30}"#;
    "SYS_WEBHOOK_REPLY" SysWebhookReply(SysWebhookReply) Irreversible, Handler::Kernel,
        "Answer a webhook request you were given.",
        "{}", r#"{"request_id":"r1","status":200,"body":"ok"}"#;
    "TOOL_SEARCH" ToolSearch(ToolSearch) Read, Handler::Absent(TOOLS),
        "Find tools of connected servers, apps and skills.",
        r#"{"tools": [{"name", "description", "schema"}]}"#, r#"{"query":"create an issue"}"#;
    "TOOL_CALL" ToolCall(ToolCall) Irreversible, Handler::Absent(TOOLS),
        "Call a tool found by TOOL_SEARCH.",
        "the tool's", r#"{"name":"clock.now","args":{}}"#;
    "CHANNEL_SEND" ChannelSend(ChannelSend) Irreversible, Handler::Absent(CHANNELS),
        "Send a message to a person through a channel.",
        r#"{"delivery_id": text}"#, r#"{"channel":"telegram","to":"@me","content":"Done."}"#;
    "ASK_USER" AskUser(AskUser) Read, Handler::Kernel,
        "Ask the person and wait for the answer.",
        r#"{"answer": text}"#, r#"{"question":"Which of the two?","options":["a","b"]}"#;
    "PROPOSE" Propose(Propose) Undoable, Handler::Kernel,
        "Ask a person before doing something, even where you would be allowed to.",
        r#"{"proposal_id": text} and what the call itself brings, once somebody has said yes; an error begins with the id"#,
        r#"{"action":{"name":"FS_DELETE","args":{"path":"old.txt"}},"why":"It is empty."}"#;
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = CallError;

    /// # Errors
    /// `ENOSYS`, with the nearest names as a hint.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = Name::ALL.iter().find(|name| name.as_str() == text) {
            return Ok(*name);
        }
        let upper = text.to_ascii_uppercase();
        let mut near: Vec<(f64, &str)> =
            Name::ALL.iter().map(|name| (strsim::jaro_winkler(&upper, name.as_str()), name.as_str())).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        let nearest: Vec<&str> = near.into_iter().take(3).map(|(_, name)| name).collect();
        let shown: String = text.chars().take(64).collect();
        Err(CallError::new(Code::NoSys, format!("no system call `{shown}`"))
            .hint(format!("the nearest are {}", nearest.join(", "))))
    }
}
