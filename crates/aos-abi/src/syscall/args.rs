//! The arguments of each system call. Field comments are what agents read in schemas and manual pages.
//!
//! What always holds: unknown fields are refused, so that a misspelt argument is never silently ignored.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Syscall;
use crate::{Pid, Signal};

macro_rules! args {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* })*
    };
}

args! {
    /// Arguments of `SPAWN_AGENT`.
    SpawnAgent {
        /// Who the child is and how it should work, as text.
        role: String,
        /// The model it runs on; yours if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What it may do, each "CALL" or "CALL PATTERN", such as "FS_READ docs/**". Never more than you may. Left out: only exit, sleep and stdout.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permissions: Option<Vec<String>>,
        /// Its share of your budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetArgs>,
        /// The pid whose standard input gets its standard output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pipe_to: Option<Pid>,
        /// What it should do now. With a task it ends when it answers; without, it waits for messages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        /// A short name others can send messages to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its group, for KILL; yours if left out, none if empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// Give it untrusted content and no permissions at all. Of its result only numbers, booleans and words in quotes in its task are trusted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quarantine: Option<bool>,
        /// Files and web addresses that a quarantined child is shown, and you are not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attachments: Option<Vec<String>>,
        /// "shared" (default): your workspace. "own": a fresh, empty one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<WorkspaceArg>,
    }
    /// Arguments of `WAIT`.
    Wait {
        /// The child to wait for; any child if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<Pid>,
        /// Give up after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
    }
    /// Arguments of `KILL`.
    Kill {
        /// The process to signal: yourself, a descendant, or one granted to you.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<Pid>,
        /// Instead: all of this group that you may signal, but for yourself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// TERM (default), KILL, STOP or CONT.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<Signal>,
    }
    /// Arguments of `EXEC_CMD`.
    ExecCmd {
        /// The command line, run by sh -c in your workspace.
        cmd: String,
        /// What it reads on standard input.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdin: Option<String>,
        /// Its deadline in seconds (30).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
        /// Environment variables to add.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<BTreeMap<String, String>>,
    }
    /// Arguments of `SYS_EXIT`.
    SysExit {
        /// The exit code; 0 means success.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<u8>,
        /// The result handed to whoever waits for you.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<serde_json::Value>,
    }
    /// Arguments of `FS_READ`.
    FsRead {
        /// The file, relative to the workspace, or the handle of a cut result.
        path: String,
        /// The first byte to read (0).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        /// The most bytes to read (262144; an image of up to 3 MiB comes whole).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    }
    /// Arguments of `FS_WRITE`.
    FsWrite {
        /// The file, relative to the workspace. Missing folders are made.
        path: String,
        /// Its new content.
        content: String,
        /// replace (default), append, or create (fails where it exists).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<WriteMode>,
    }
    /// Arguments of `FS_EDIT`.
    FsEdit {
        /// The file, relative to the workspace.
        path: String,
        /// What to replace, in order; nothing is written unless every one fits.
        edits: Vec<Edit>,
    }
    /// One replacement in a file.
    Edit {
        /// The text as it stands; it must occur exactly once.
        old: String,
        /// The text to put there.
        new: String,
    }
    /// Arguments of `FS_LIST`.
    FsList {
        /// The folder, relative to the workspace; the workspace itself if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Only paths that match, such as "**/*.txt".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob: Option<String>,
        /// How many levels down (1; all, where the glob has a `/`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
    }
    /// Arguments of `FS_SEARCH`.
    FsSearch {
        /// The regular expression to look for, line by line.
        pattern: String,
        /// The file or folder to search; the workspace if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Only files that match, such as "*.rs".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob: Option<String>,
    }
    /// Arguments of `FS_WATCH`.
    FsWatch {
        /// The file or folder to watch, with all below it; the workspace if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Only paths that match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob: Option<String>,
    }
    /// Arguments of `FS_UNWATCH`.
    FsUnwatch {
        /// The id that FS_WATCH gave.
        watch_id: String,
    }
    /// Arguments of `FS_DELETE`.
    FsDelete {
        /// The file or folder, relative to the workspace.
        path: String,
    }
    /// Arguments of `FS_MOVE`.
    FsMove {
        /// Where it is, relative to the workspace.
        from: String,
        /// Where it goes; nothing may be there yet.
        to: String,
    }
    /// Arguments of `NET_FETCH`.
    NetFetch {
        /// An http or https address.
        url: String,
        /// Request headers to add.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<BTreeMap<String, String>>,
    }
    /// Arguments of `NET_SEND`.
    NetSend {
        /// An http or https address.
        url: String,
        /// POST, PUT, PATCH or DELETE.
        method: String,
        /// Request headers to add.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<BTreeMap<String, String>>,
        /// The body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    }
    /// Arguments of `MEM_WRITE`.
    MemWrite {
        /// What it is about, a few words.
        key: String,
        /// What to remember. The same key again makes a new version.
        value: String,
        /// Words to find it by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tags: Option<Vec<String>>,
        /// Forget it by itself after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_s: Option<u64>,
        /// Whose memory; your own if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    }
    /// Arguments of `MEM_READ`.
    MemRead {
        /// What to look for, in words.
        query: String,
        /// The most hits (6).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
        /// Whose memory; your own if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// Only what has all of these tags.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tags: Option<Vec<String>>,
        /// Only what was written at or after this RFC 3339 time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<String>,
    }
    /// Arguments of `MEM_FORGET`: one of the two.
    MemForget {
        /// The id of one memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The key; every version of it is forgotten.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Whose memory; your own if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    }
    /// Arguments of `THREAD_ATTACH` and `THREAD_DETACH`.
    Thread {
        /// Whose thread, such as "client:acme".
        entity: String,
    }
    /// Arguments of `SEND_MSG`: content, and one of to_pid and to.
    SendMsg {
        /// The receiving process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_pid: Option<Pid>,
        /// The receiving process by name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// What to say.
        content: String,
        /// Workspace paths or handles that go with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attachments: Option<Vec<String>>,
    }
    /// Arguments of `RECV_MSG`.
    RecvMsg {
        /// Give up after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
    }
    /// Arguments of `SYS_WRITE_STDOUT`.
    SysWriteStdout {
        /// What to print.
        text: String,
    }
    /// Arguments of `SYS_READ_STDIN`.
    SysReadStdin {
        /// Give up after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
    }
    /// Arguments of `SLEEP`.
    Sleep {
        /// How long, in seconds.
        seconds: f64,
    }
    /// Arguments of `SYS_SCHEDULE`: prompt, and one of seconds and cron.
    SysSchedule {
        /// Fire every this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
        /// Fire by this five-field cron line, such as "0 9 * * 1-5".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cron: Option<String>,
        /// The IANA time zone of the cron line (UTC), such as "Europe/Berlin".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timezone: Option<String>,
        /// What you will be told when it fires.
        prompt: String,
        /// A short name. The same name again replaces the timer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Fire once only (false).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        once: Option<bool>,
    }
    /// Arguments of `SYS_UNSCHEDULE`.
    SysUnschedule {
        /// The id that SYS_SCHEDULE gave.
        timer_id: String,
    }
    /// Arguments of `SYS_REGISTER_WEBHOOK`.
    SysRegisterWebhook {
        /// The path below /hooks/, such as "orders".
        path: String,
        /// Requests must then carry the HMAC-SHA256 of timestamp.body in X-Aos-Signature, and X-Aos-Timestamp.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<String>,
        /// How long a caller waits for SYS_WEBHOOK_REPLY (30). 0: callers get 202 at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_within_s: Option<u64>,
    }
    /// Arguments of `SYS_WEBHOOK_REPLY`.
    SysWebhookReply {
        /// The id of the request you were given.
        request_id: String,
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
        /// Response headers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<BTreeMap<String, String>>,
    }
    /// Arguments of `TOOL_SEARCH`.
    ToolSearch {
        /// What the tool should do, in words.
        query: String,
        /// The most tools (8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u32>,
    }
    /// Arguments of `TOOL_CALL`.
    ToolCall {
        /// The tool's name.
        name: String,
        /// Its arguments.
        args: serde_json::Value,
    }
    /// Arguments of `CHANNEL_SEND`.
    ChannelSend {
        /// The channel, such as "telegram".
        channel: String,
        /// The receiver on that channel.
        to: String,
        /// What to say.
        content: String,
        /// The message this answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
    }
    /// Arguments of `ASK_USER`.
    AskUser {
        /// The question.
        question: String,
        /// Answers to choose from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Vec<String>>,
        /// Give up after this many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
    }
    /// Arguments of `PROPOSE`.
    Propose {
        /// The call that would be made.
        action: ProposedCall,
        /// Why it should be.
        why: String,
        /// What could go wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        risk: Option<String>,
    }
    /// A call as data.
    ProposedCall {
        /// Its name, such as "FS_DELETE".
        name: String,
        /// Its arguments.
        args: serde_json::Value,
    }
    /// A share of a budget.
    BudgetArgs {
        /// US dollars.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usd: Option<crate::Usd>,
        /// Tokens in and out together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<u64>,
        /// System calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calls: Option<u64>,
        /// Seconds from now until it must have ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wall_s: Option<u64>,
    }
}

impl FsList {
    /// How many levels it shows; `None`: all that there are, which a glob with a `/` is matched against.
    #[must_use]
    pub fn levels(&self) -> Option<u32> {
        let deep = self.glob.as_deref().is_some_and(|glob| glob.strip_prefix("./").unwrap_or(glob).contains('/'));
        match self.depth {
            Some(depth) => Some(depth.max(1)),
            None => (!deep).then_some(1),
        }
    }
}

impl SpawnAgent {
    /// The calls that bring what the child is shown, as its parent would make them.
    #[must_use]
    pub fn attached(&self) -> Vec<Syscall> {
        let one = |name: &String| {
            if name.contains("://") {
                Syscall::NetFetch(NetFetch { url: name.clone(), headers: None })
            } else {
                Syscall::FsRead(FsRead { path: name.clone(), offset: None, limit: None })
            }
        };
        self.attachments.iter().flatten().map(one).collect()
    }
}

/// How a write meets what is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// Whatever was there is replaced as a whole.
    #[default]
    Replace,
    /// Added at the end.
    Append,
    /// Fails where it exists.
    Create,
}

/// Whose files a child works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceArg {
    /// Its parent's.
    #[default]
    Shared,
    /// A fresh, empty one.
    Own,
}
