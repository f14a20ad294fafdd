//! Journal entries: everything that reached the kernel and everything it decided, in one order.
//!
//! An entry is an **input** (it came from outside and caused what follows) or a **fact** (the kernel decided it from an
//! input; `cause` names that). Replay feeds the inputs to a fresh kernel and checks that the same facts come out.
//! The JSON form is the event of the contract: `{"lsn":41,"at":"…","pid":7,"type":"…",…}`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::inference::{Failure, Format, Reply, Usage};
use crate::model::{Ability, ModelSpec};
use crate::process::SpawnSpec;
use crate::{CallError, CallId, EffectId, Lsn, Name, Pid, Signal, Timestamp, Usd};

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its position.
    pub lsn: Lsn,
    /// When it happened: the kernel's only clock. Never earlier than the entry before it.
    pub at: Timestamp,
    /// The process it belongs to; [`Pid::SYSTEM`] for the system's own.
    pub pid: Pid,
    /// The input this fact was decided from; `None` for inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Lsn>,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What happened. Fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Body {
    /// Input: the daemon started and has the journal to itself.
    Booted {
        /// Of the program.
        version: String,
        /// The configuration that holds from here on, where it is another one than before: what the stop interrupted goes on
        /// under it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        configured: Option<Box<Configured>>,
        /// Processes over whose recovery the kernel failed, with what the fault said: they are set aside first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        faulted: Vec<Unrecovered>,
        /// The highest pid that the home has had, where its journal does not say so, since the entries that gave it are
        /// lost: none up to it is given again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_pid: Option<Pid>,
    },
    /// Input: the kernel failed over this process, which is set aside.
    Faulted(Faulted),
    /// Input: what the daemon is made of, looked at when it started.
    Measured(Measured),
    /// Input: the configuration that holds from here on.
    Configured(Box<Configured>),
    /// Input: time passed and something is due.
    Tick,
    /// A process was made: by a person (input) or by `SPAWN_AGENT` (fact).
    Spawned(Box<SpawnSpec>),
    /// Something for standard input: from a person (input) or from a piped process (fact).
    Input {
        /// The text; empty for the mere end of input.
        text: String,
        /// No more will come.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        eof: bool,
        /// [`Pid::INIT`] for a person.
        from_pid: Pid,
        /// A person passes on what others wrote: none of it is the person's words.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        untrusted: bool,
    },
    /// Fact: a message was put into the process's inbox.
    Message {
        /// Its id.
        message_id: String,
        /// Who sent it.
        from_pid: Pid,
        /// What it says.
        content: String,
        /// Workspace paths or handles that go with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    /// A signal: from a person (input) or from `KILL` (fact).
    Signal {
        /// Which.
        signal: Signal,
        /// Who sent it; [`Pid::INIT`] for a person.
        from_pid: Pid,
        /// To all its descendants too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tree: bool,
    },
    /// Input: a person signals every living member of a group; each member's own `signal` is a fact of it.
    GroupSignal {
        /// Which group.
        group: String,
        /// Which signal.
        signal: Signal,
        /// To all their descendants too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tree: bool,
    },
    /// Input: a person cancelled a timer of the process.
    Unscheduled {
        /// Which.
        timer_id: String,
    },
    /// Fact: a timer fired.
    Timer {
        /// Which.
        timer_id: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// What the process is told.
        prompt: String,
        /// Firings that were missed while the machine was off, beside this one. Those of a cron line are counted to
        /// [`crate::limits::MISSED_COUNTED_MAX`], and one more stands for any number beyond.
        #[serde(default, skip_serializing_if = "is_zero")]
        missed: u64,
        /// Its process set it after it had read what others wrote, who may have chosen the words.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        untrusted: bool,
    },
    /// Input: an HTTP request for one of the process's webhooks. Untrusted.
    Webhook(WebhookRequest),
    /// Input: watched files changed.
    Watch {
        /// Which watch.
        watch_id: String,
        /// The paths, relative to the workspace, sorted.
        paths: BTreeSet<String>,
    },
    /// Fact: a model was asked.
    InferenceStarted {
        /// The effect that asks.
        effect: EffectId,
        /// The configured name of the model.
        model: String,
        /// Why: a turn of the process, or a summary of its oldest turns.
        purpose: Purpose,
        /// Tokens of the prompt, estimated.
        input_tokens: u64,
        /// Most tokens of the answer.
        max_output: u32,
    },
    /// Fact: the router chose a model for the process; it serves it until it chooses another one.
    Routed {
        /// The configured name of the model.
        model: String,
        /// The one before; `None`: the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<String>,
        /// Why this one, and why not those that would have gone before it.
        why: String,
    },
    /// Input: an inference for which a person waits has had no word of an answer for as long as the configuration says.
    Silent {
        /// The effect that asks.
        effect: EffectId,
    },
    /// Fact: a second model is asked the same as a silent one; the first answer counts, and the other is given up.
    Hedged {
        /// The silent one.
        effect: EffectId,
        /// The second.
        by: EffectId,
        /// The configured name of the second one's model.
        model: String,
        /// Why this one.
        why: String,
    },
    /// Fact: what is known of a model's server changed.
    Circuit {
        /// An address such as `https://api.openai.com`, or a model's configured name where it alone is concerned.
        of: String,
        /// How it stands.
        state: CircuitState,
        /// Until when nothing is sent there while another model can serve.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Why, in the words of the last failure.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// Input: a model answered, or failed to.
    InferenceCompleted {
        /// The effect that asked.
        effect: EffectId,
        /// How long it took, in milliseconds.
        latency_ms: u64,
        /// The personal data in what the model was to be shown, where there was any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        personal: Option<Box<Personal>>,
        /// The answer.
        #[serde(flatten)]
        outcome: InferenceOutcome,
    },
    /// Input: a program was given a key, in place of the one it had.
    Keyed(Box<Key>),
    /// Input: a program asks a model.
    Asked(Box<Asked>),
    /// Input: a program has hung up before its request was served.
    Withdrawn {
        /// The request's number.
        request: u64,
    },
    /// Fact: so much was set aside ahead of a program's requests. What is paid from it need not wait for the disk, and all
    /// that is left of it counts as spent where the machine stops before it is given back.
    Ahead {
        /// Money.
        usd: Usd,
        /// Tokens.
        tokens: u64,
    },
    /// Input: nothing has happened for a while, or the daemon ends in good order: what is set aside ahead is given back.
    Rested {
        /// Where it ends: the inferences that it cut off, with what was heard of each. One of which nothing was heard that
        /// tells what it came to is left out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cut: Vec<Cut>,
    },
    /// Fact: a program's request was refused before any model was asked.
    Refused {
        /// The request's number.
        request: u64,
        /// Why.
        error: CallError,
    },
    /// Input: a program's request is over.
    Served {
        /// The effect that served it.
        effect: EffectId,
        /// How long it took, in milliseconds.
        latency_ms: u64,
        /// The personal data in what the model was to be shown, where there was any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        personal: Option<Box<Personal>>,
        /// What it came to.
        #[serde(flatten)]
        outcome: ServedOutcome,
    },
    /// Fact: the process made a call.
    Syscall {
        /// Binds the result to the call.
        call_id: CallId,
        /// The name the model wrote.
        name: String,
        /// The arguments; a string where they were no JSON.
        args: serde_json::Value,
    },
    /// Fact: what the policy said to a call.
    Verdict {
        /// Of which call.
        call_id: CallId,
        /// `allow`, `ask`, `hold` or `deny`.
        verdict: Verdict,
        /// The deciding rule, with its layer.
        rule: String,
        /// The rule about untrusted content that would have asked, had people not given all that steers the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<String>,
        /// The policy it was decided by.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        generation: String,
        /// What the process carried then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// How long the kernel took over the input that it was decided in, measured around it.
        #[serde(default, skip_serializing_if = "Took::is_unknown")]
        took_us: Took,
    },
    /// What a call came to: from a driver (input) or from the kernel (fact).
    Result {
        /// Of which call.
        call_id: CallId,
        /// The call's name.
        name: String,
        /// The effect that carried it out, where a driver did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<EffectId>,
        /// `SUCCESS` with the result, or `ERROR` with the error.
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// Input: requests that a call made beyond the one it was allowed for, each as it was decided: those of a command, and
    /// where redirects led.
    Requested(Box<Requested>),
    /// Input: files were changed by a call, or a person took such a change back; what they replaced is kept.
    Changed(Box<Changed>),
    /// Input: the files that a proposed call concerns, as they are while it is put before a person.
    Examined(Box<Examined>),
    /// A proposal, or a denial that a person may lift: made (fact), answered by a person (input) or ended by time or by its
    /// execution (fact).
    Proposal {
        /// Its id, such as `p3`.
        id: String,
        /// What became of it.
        state: ProposalState,
        /// The call it is about; where it is made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proposal: Option<Box<Proposal>>,
        /// The person's reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Fact: what a call was denied for was lifted, and its process is told that it may make it again.
    Lifted {
        /// The proposal, such as `p3`.
        id: String,
        /// How far.
        reach: Lifted,
        /// The call, or what is allowed from now on: the beginning, where it is long.
        call: String,
        /// Until when, where it is for once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Fact: money and tokens were spent.
    Charged {
        /// The configured name of the model that served.
        model: String,
        /// Tokens.
        usage: Usage,
        /// `None`: the model has no price in the configuration.
        cost_usd: Option<Usd>,
        /// Why it is the most that it may have been, where nobody knows what it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Fact: little is left of a budget. Told once, and anew when it has renewed or its limit was changed.
    NearlySpent(NearlySpent),
    /// Fact: the oldest part of the window gave way to a summary.
    Compacted {
        /// The last entry that the summary stands for.
        upto: Lsn,
        /// The summary.
        summary: String,
        /// Tokens of the window before and after.
        tokens: (u64, u64),
    },
    /// Input: this process was made from another one's past.
    Forked {
        /// The other one.
        from_pid: Pid,
        /// The last entry of it that this one has lived through.
        from_lsn: Lsn,
        /// What the new process is.
        spec: Box<SpawnSpec>,
        /// Its window, in order: the entries are the other one's.
        window: Vec<WindowItem>,
        /// The other one had nothing to do then, so this one waits for something to come as it did.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rests: bool,
    },
    /// Input: a person gave a process another budget, or more of it.
    Budgeted {
        /// The limits that hold from here on, counted from the start of the process.
        budget: crate::process::BudgetSpec,
    },
    /// Fact: the process ended.
    Exited {
        /// 0 is success; 5 a spent budget, 124 a deadline, 137 `KILL`, 143 `TERM`.
        exit_code: i32,
        /// Its result.
        result: Option<serde_json::Value>,
        /// Why it ended, in words.
        reason: String,
        /// Of one that was to end with its answer: the timers and webhooks that were still to come, and ended with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        awaited: Vec<String>,
    },
    /// Fact: children that ended and were never waited for were put away, oldest first; `WAIT` returns them no more.
    Reaped {
        /// Which.
        children: Vec<Pid>,
    },
    /// Fact: the window of the process holds content with these labels from here on; all it carries, not only what is new.
    Labelled {
        /// Their names in the policy, such as `untrusted.web`.
        labels: Vec<String>,
    },
    /// Fact: the process stopped and a person must act, `reason` says how; or it waits for a budget that renews.
    Stopped {
        /// Why, and the way out.
        reason: String,
        /// When it goes on by itself, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Input: exited processes were taken out of the journal. A sealed mark in the chain.
    Pruned {
        /// Which.
        pids: Vec<Pid>,
        /// How many entries.
        entries: u64,
    },
}

/// A process that is set aside because the kernel failed over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Faulted {
    /// What the fault said.
    pub why: String,
    /// The effect whose outcome was left out for it, where that was what the kernel failed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<EffectId>,
}

/// A process over whose recovery the kernel failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrecovered {
    /// Which.
    pub pid: Pid,
    /// What the fault said.
    pub why: String,
}

/// Requests that were decided while their call ran, in the order in which they were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    /// Of which call.
    pub call_id: CallId,
    /// The policy they were decided by.
    pub generation: String,
    /// What counted as carried: by the process, and for a command by what it could read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// How long deciding all of these took.
    #[serde(default, skip_serializing_if = "Took::is_unknown")]
    pub took_us: Took,
    /// What was asked for and what was said.
    pub requests: Vec<NetRequest>,
    /// How many more there were that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Of what was not let happen, the calls that would have done it and that a person may be able to lift: the first of a
    /// command's requests and of its changes to files, or where a redirect led.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Inner>,
    /// And those that nobody can lift: the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<Inner>,
}

/// What a call led to, as the call that would have done the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inner {
    /// Its name.
    pub name: Name,
    /// Its arguments, canonical, without what is not known: what a command would send, or write into a file.
    pub args: serde_json::Value,
}

impl Inner {
    /// As this call.
    #[must_use]
    pub fn of(call: &crate::Syscall) -> Inner {
        Inner { name: call.name(), args: call.args() }
    }

    /// The call.
    ///
    /// # Errors
    /// Where there is no such call.
    pub fn call(&self) -> Result<crate::Syscall, CallError> {
        crate::Syscall::parse(self.name.as_str(), &self.args.to_string())
    }
}

/// A request as it was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRequest {
    /// `GET` and so on; `CONNECT` for a connection whose requests cannot be seen.
    pub method: String,
    /// Scheme, host, port and path, without the query; of a connection host and port.
    pub to: String,
    /// `allow` or `deny`.
    pub verdict: Verdict,
    /// The rule that allowed it, with its layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why it was refused; where a rule did, with the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A change to the files of a workspace, wholly made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The effect of the call that made it; for taking back, of the call whose change was taken back.
    pub effect: EffectId,
    /// How often it was taken back and made again: 0 for the call itself, odd for taking back.
    pub turn: u32,
    /// Of which call.
    pub call_id: CallId,
    /// The call's name.
    pub name: Name,
    /// What says which call it was: its arguments without contents.
    pub args: serde_json::Value,
    /// The rule that allowed it; for taking back, whose word it was.
    pub rule: String,
    /// What changed, sorted by path.
    pub changes: Vec<FileChange>,
    /// How many more changed than are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// For how long it can be taken back, in milliseconds; `None`: it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_ms: Option<u64>,
    /// Why it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The id of what this takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// The id of what stands again by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<String>,
}

impl Changed {
    /// Why a change of a dry run cannot be taken back.
    pub const OF_A_COPY: &str = "it was made in the copy of a dry run";
}

/// A changed file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileChange {
    /// Where, relative to the workspace; what is no UTF-8 is replaced.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub kind: String,
    /// What was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileImage>,
    /// What is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileImage>,
}

/// What a file, folder or link was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileImage {
    /// `file`, `folder`, `link` or `other`.
    pub is: String,
    /// Permission bits in octal, such as `644`.
    pub mode: String,
    /// Bytes; of a folder that is gone those of all files in it.
    pub bytes: u64,
    /// SHA-256 of the content in hex; left out for folders and large files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// An entry as a part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowItem {
    /// The entry.
    pub lsn: Lsn,
    /// Its tokens, estimated.
    pub tokens: u32,
    /// What it is there.
    pub kind: ItemKind,
}

/// What an entry is to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// What the process is for; it stays when everything else is summarised.
    Task,
    /// What stands for older items.
    Summary,
    /// A reply of the model.
    Turn,
    /// The result of a call of the turn before it.
    Result,
    /// Anything else the process is told: input, messages, timers, webhooks, watches, signals, ended children.
    User,
}

/// How a circuit breaker stands (Nygard, "Release It!", 2007).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// It failed several times in a row: other models serve meanwhile.
    Open,
    /// One inference tries whether it answers again.
    HalfOpen,
    /// It answers again.
    Closed,
    /// Its quota is used up.
    Quota,
}

/// The configuration as the kernel needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// The models by their configured names.
    pub models: BTreeMap<String, ModelSpec>,
    /// The model of a process that names none: a model's name, or `auto` for the router.
    pub default_model: String,
    /// The models to try where one fails, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// After how many milliseconds of silence another model is asked too, where a person waits; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge_after_ms: Option<u64>,
    /// The policy file's text.
    pub policy: String,
    /// US dollars a day for everything together.
    pub usd_per_day: Option<Usd>,
    /// Where webhooks are reached, such as `http://127.0.0.1:7717/hooks/`.
    pub hooks_url: String,
    /// Where the daemon listens; nothing of an agent goes there. `None`: the entry is of a version that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<SocketAddr>,
}

/// Why a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A turn of the process.
    Turn,
    /// A summary of its oldest turns.
    Summary,
    /// A request of a program outside.
    Request,
    /// A digest of its oldest turns where no model could make the summary; no model is asked.
    Digest,
}

/// A program's key and what it may be used for. The key itself is nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// SHA-256 of the key in hex.
    pub sha256: String,
    /// Whose it is, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Most requests a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u32>,
    /// The tiers of models that it may ask; empty: all that its role may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<String>,
}

/// A program's request, as far as it decides who serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// By which the edge knows it; not used twice while the daemon runs.
    pub request: u64,
    /// The model it names.
    pub model: String,
    /// The format it came in.
    pub format: Format,
    /// Its tokens, estimated and rather too high.
    pub input_tokens: u64,
    /// The most tokens of the answer that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// What the model must be able to do.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<Ability>,
    /// How many of its program's before this one were refused without an entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

/// What a program's request came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServedOutcome {
    /// A model answered.
    Answered {
        /// What it used.
        usage: Usage,
        /// The answer is whole; `false` where the program hung up or the server broke off.
        whole: bool,
    },
    /// None did.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// The personal data in a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Personal {
    /// What kinds of it, by their names in the policy.
    pub classes: BTreeSet<String>,
    /// What the model wrote tokens for, where it was shown tokens instead: each value with its token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, String>,
    /// The rule of the policy by which tokens were sent in its place, or nothing was; `None`: it was sent as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What a model made of an inference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum InferenceOutcome {
    /// It answered.
    Answered(Reply),
    /// It did not.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// What the policy says to a call; the least of several holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It does not happen.
    Deny,
    /// A person is asked.
    Ask,
    /// It happens when a window ends without a veto.
    Hold,
    /// It happens.
    Allow,
}

impl Verdict {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Deny => "deny",
            Verdict::Ask => "ask",
            Verdict::Hold => "hold",
            Verdict::Allow => "allow",
        }
    }
}

/// What a call came to, in the form the agent gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "UPPERCASE")]
pub enum Outcome {
    /// It was done.
    Success {
        /// Its result.
        result: serde_json::Value,
    },
    /// It was not.
    Error {
        /// Why.
        error: CallError,
    },
}

impl From<Result<serde_json::Value, CallError>> for Outcome {
    fn from(result: Result<serde_json::Value, CallError>) -> Self {
        match result {
            Ok(result) => Outcome::Success { result },
            Err(error) => Outcome::Error { error },
        }
    }
}

/// An HTTP request to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookRequest {
    /// By which it is answered, such as `r9f2c`.
    pub id: String,
    /// `POST` and so on.
    pub method: String,
    /// Below `/hooks/`, with the query.
    pub path: String,
    /// Headers in lower case, without those that only concern the connection.
    pub headers: BTreeMap<String, String>,
    /// The body; base64 where it is not UTF-8, then `encoding` says so.
    pub body: String,
    /// `base64` where the body is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Its caller waits for an answer until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_by: Option<Timestamp>,
}

/// A duration in microseconds, measured at the edge and journaled with a fact. It is no part of what was decided: any two
/// are equal, so that deciding again compares the decision and not the machine's speed that day.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Took(pub Option<u64>);

impl Took {
    fn is_unknown(&self) -> bool {
        self.0.is_none()
    }
}

impl PartialEq for Took {
    fn eq(&self, _: &Took) -> bool {
        true
    }
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The call of the process that led to it.
    pub call_id: CallId,
    /// The name of the call that would be made.
    pub name: Name,
    /// Its arguments, canonical.
    pub args: serde_json::Value,
    /// `ask` or `hold`; `deny` of a call that was denied, and `allow` of a change that can be undone.
    pub verdict: Verdict,
    /// The rule that asks; `PROPOSE` where the process itself does.
    pub rule: String,
    /// What a denied call wants: the narrowest grants that would let it pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// What was denied to a command while it ran: the call is the command then, which may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<Inner>,
    /// What led to a denied call that its process has not made, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub led: Option<String>,
    /// Why no yes lifts a denial, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Why the process wants it.
    pub why: Option<String>,
    /// What could go wrong.
    pub risk: Option<String>,
    /// When it is over.
    pub expires_at: Timestamp,
}

/// The files that a proposed call concerns. An approval holds for these alone: the call runs only while they are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    /// The proposal.
    pub id: String,
    /// What is bound, in the order in which the call names it.
    pub files: Vec<BoundFile>,
    /// What the call would change, as a unified diff that leaves nothing out; empty where there is none such.
    pub diff: String,
    /// What the call concerns and what could not be bound, in words.
    pub unbound: Option<String>,
}

/// A file, folder or link as an approval binds it. Two are the same only if they are equal in every field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BoundFile {
    /// Where, relative to the workspace.
    pub path: String,
    /// `file`, `folder`, `link`, `other`, or `nothing` where there is none.
    pub is: String,
    /// Permission bits in octal, such as `644`.
    pub mode: String,
    /// Bytes of a file.
    pub bytes: u64,
    /// SHA-256 in hex: of a file's content; of a link's target; of the names, kinds, sizes and times of change of all
    /// that a folder holds; of inode and time of change of a file that is too large to be read.
    pub sha256: Option<String>,
}

/// An inference that was cut off by the end of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The effect that asked.
    pub effect: EffectId,
    /// What was heard of its answer by then.
    pub usage: Usage,
}

/// A budget of which little is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearlySpent {
    /// Whose it is.
    pub budget: BudgetOf,
    /// What was granted.
    pub limit: Amount,
    /// What is neither spent nor given to children.
    pub left: Amount,
    /// What one more inference may take, where that is why it is little: then it is more than a tenth of the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Amount>,
    /// When it renews, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Whose a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetOf {
    /// Everything together, for a day: `usd_per_day` of aos.toml. The entry stands with the process that was charged.
    Day,
    /// The process that the entry stands with, and those that draw on it.
    Process,
    /// The same, by its role in the policy.
    Role,
}

/// So much of what a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// Money.
    Usd(Usd),
    /// Tokens in and out together.
    Tokens(u64),
    /// System calls.
    Calls(u64),
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Amount::Usd(usd) => write!(f, "{usd}"),
            Amount::Tokens(1) => write!(f, "1 token"),
            Amount::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Amount::Calls(1) => write!(f, "1 call"),
            Amount::Calls(calls) => write!(f, "{calls} calls"),
        }
    }
}

impl std::fmt::Display for NearlySpent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NearlySpent { limit, left, .. } = self;
        match self.budget {
            BudgetOf::Day => write!(f, "{left} left of the day's {limit}"),
            BudgetOf::Process => write!(f, "{left} left of {limit}"),
            BudgetOf::Role => write!(f, "{left} left of the role's {limit}"),
        }?;
        self.needed.map_or(Ok(()), |needed| write!(f, ", and one inference may take {needed}"))?;
        self.until.map_or(Ok(()), |until| write!(f, ", until {until}"))
    }
}

/// What the daemon is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// SHA-256 of the program in hex; empty where it could not be read.
    pub program: String,
    /// SHA-256 of `policy.yaml` in hex; empty where there is none.
    pub policy: String,
    /// SHA-256 of `aos.toml` in hex; empty where there is none.
    pub config: String,
    /// What differs from the last time: `the program`, `policy.yaml`, `aos.toml`, and which of the files below.
    pub changed: Vec<String>,
    /// Secrets and local weights by their names, such as `secrets/GITHUB`: SHA-256 in hex of size, time and file number,
    /// never of what is in them. `None`: the entry is of a version that did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
}

/// Why a proposal or a denial is over that ends with its process.
pub const PROCESS_ENDED: &str = "its process has ended";

/// What became of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProposalState {
    /// It waits for a person.
    Pending,
    /// A person said yes.
    Approved,
    /// A person said yes, and to the same call of this process from now on.
    Standing,
    /// A person said no.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// It was carried out.
    Executed,
    /// It was carried out and taken back.
    Undone,
    /// A person stopped it in its window.
    Vetoed,
    /// It was denied, its process went on without it, and a person may lift that.
    Denied,
}

/// How far a denial was lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifted {
    /// For this very call, once.
    Once,
    /// For the same call of this process from now on.
    Process,
    /// By another policy, for whoever has the role.
    Role,
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Body {
    /// The configuration that holds from this entry on, where it says one.
    #[must_use]
    pub fn configured(&self) -> Option<&Configured> {
        match self {
            Body::Configured(configured) => Some(configured),
            Body::Booted { configured, .. } => configured.as_deref(),
            _ => None,
        }
    }

    /// The event type of the contract.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Body::Booted { .. } => "booted",
            Body::Configured(_) => "configured",
            Body::Measured(_) => "measured",
            Body::Faulted(_) => "faulted",
            Body::Tick => "tick",
            Body::Spawned(_) => "spawned",
            Body::Input { .. } => "input",
            Body::Message { .. } => "message",
            Body::Signal { .. } => "signal",
            Body::GroupSignal { .. } => "group_signal",
            Body::Unscheduled { .. } => "unscheduled",
            Body::Timer { .. } => "timer",
            Body::Webhook(_) => "webhook",
            Body::Watch { .. } => "watch",
            Body::InferenceStarted { .. } => "inference_started",
            Body::Routed { .. } => "routed",
            Body::Silent { .. } => "silent",
            Body::Hedged { .. } => "hedged",
            Body::Circuit { .. } => "circuit",
            Body::InferenceCompleted { .. } => "inference_completed",
            Body::Keyed(_) => "keyed",
            Body::Asked(_) => "asked",
            Body::Withdrawn { .. } => "withdrawn",
            Body::Ahead { .. } => "ahead",
            Body::Rested { .. } => "rested",
            Body::Refused { .. } => "refused",
            Body::Served { .. } => "served",
            Body::Syscall { .. } => "syscall",
            Body::Verdict { .. } => "verdict",
            Body::Result { .. } => "result",
            Body::Requested(_) => "requested",
            Body::Changed(_) => "changed",
            Body::Examined(_) => "examined",
            Body::Proposal { .. } => "proposal",
            Body::Lifted { .. } => "lifted",
            Body::Charged { .. } => "charged",
            Body::NearlySpent(_) => "nearly_spent",
            Body::Compacted { .. } => "compacted",
            Body::Forked { .. } => "forked",
            Body::Budgeted { .. } => "budgeted",
            Body::Exited { .. } => "exited",
            Body::Reaped { .. } => "reaped",
            Body::Labelled { .. } => "labelled",
            Body::Stopped { .. } => "stopped",
            Body::Pruned { .. } => "pruned",
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn an_entry_is_the_event_of_the_contract() {
        let entry = Entry {
            lsn: Lsn(41),
            at: Timestamp(1_795_305_600_000),
            pid: Pid(7),
            cause: Some(Lsn(40)),
            body: Body::Result {
                call_id: "c1".into(),
                name: "FS_READ".into(),
                effect: None,
                outcome: Outcome::Error { error: CallError::new(Code::NoEnt, "no file `a`") },
            },
        };
        let json = serde_json::to_string(&entry).unwrap();
        assert_eq!(
            json,
            r#"{"lsn":41,"at":"2026-11-22T00:00:00.000Z","pid":7,"cause":40,"type":"result","call_id":"c1","name":"FS_READ","status":"ERROR","error":{"code":"ENOENT","message":"no file `a`"}}"#
        );
        assert_eq!(serde_json::from_str::<Entry>(&json).unwrap(), entry);
    }

    #[test]
    fn a_completed_inference_reads_back() {
        let body = Body::InferenceCompleted {
            effect: EffectId { cause: Lsn(3), nth: 0 },
            latency_ms: 12,
            personal: None,
            outcome: InferenceOutcome::Answered(Reply {
                text: "hi".into(),
                calls: vec![],
                stop: crate::inference::Stop::End,
                usage: Usage::default(),
                model: "small".into(),
            }),
        };
        let json = serde_json::to_string(&body).unwrap();
        assert!(
            json.starts_with(r#"{"type":"inference_completed","effect":"3.0","latency_ms":12,"text":"hi""#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Body>(&json).unwrap(), body);
    }

    #[test]
    fn a_budget_of_which_little_is_left_is_told_with_when_it_renews() {
        let nearly = NearlySpent {
            budget: BudgetOf::Day,
            limit: Amount::Usd(Usd(5_000_000_000)),
            left: Amount::Usd(Usd(400_000_000)),
            needed: None,
            until: Some(Timestamp(1_795_305_600_000)),
        };
        let body = Body::NearlySpent(nearly);
        let json = serde_json::to_string(&body).unwrap();
        let wanted = r#"{"type":"nearly_spent","budget":"day","limit":{"usd":5.0},"left":{"usd":0.4},"until":"2026-11-22T00:00:00.000Z"}"#;
        assert_eq!(json, wanted);
        assert_eq!(serde_json::from_str::<Body>(&json).unwrap(), body);
        assert_eq!(nearly.to_string(), "$0.4 left of the day's $5, until 2026-11-22T00:00:00.000Z");
        let (budget, needed) = (BudgetOf::Role, Some(Amount::Tokens(1)));
        let nearly = NearlySpent { budget, limit: Amount::Tokens(9), left: Amount::Tokens(2), needed, until: None };
        assert_eq!(nearly.to_string(), "2 tokens left of the role's 9 tokens, and one inference may take 1 token");
    }

    #[test]
    fn personal_data_is_told_beside_the_answer_or_the_failure() {
        let personal = Personal {
            classes: BTreeSet::from(["email".to_owned()]),
            tokens: BTreeMap::from([("a@example.com".to_owned(), "[EMAIL_1]".to_owned())]),
            rule: Some("label: labels[0] personal".to_owned()),
        };
        let failure = Failure {
            kind: crate::inference::FailureKind::Withheld,
            message: "nothing was sent".into(),
            hint: None,
            retry_after_ms: None,
            usage: None,
            unreachable: false,
        };
        let body = Body::InferenceCompleted {
            effect: EffectId { cause: Lsn(3), nth: 0 },
            latency_ms: 12,
            personal: Some(Box::new(personal)),
            outcome: InferenceOutcome::Failed { failure },
        };
        let json = serde_json::to_string(&body).unwrap();
        assert_eq!(serde_json::from_str::<Body>(&json).unwrap(), body, "{json}");
    }
}
