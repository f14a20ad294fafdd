//! Processes as people and programs see them: what is asked for, and the JSON shapes of the contract.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Pid, Timestamp, Usd};

/// The role of a process for which nobody has written one.
pub const DEFAULT_ROLE: &str = "You are a capable, careful agent. Do what you are asked, check that it worked, and say \
    plainly what you did and what you could not do.";
/// What stands for a process without a name, a task and a role of its own.
pub const UNNAMED: &str = "(no name)";
/// Most characters of what a process without a name is called.
const TITLE_CHARS: usize = 60;

/// What a new process is to be. Resolved: every default is filled in, so that replay needs no configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpawnSpec {
    /// Its parent; [`Pid::INIT`] for what a person starts.
    pub parent: Pid,
    /// Its name; unique among live processes where given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group it belongs to; a signal to the group reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Who it is and how it works, as text.
    pub role: String,
    /// What it should do first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Whether it ends with its first answer.
    pub mode: Mode,
    /// The configured model it runs on.
    pub model: String,
    /// Its class on the model slots.
    pub priority: Priority,
    /// The role of `policy.yaml` that it runs under; `None`: the file's `default_role`. A child has its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_role: Option<String>,
    /// What it may do, each `CALL` or `CALL PATTERN`; `None`: whatever the policy's role grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<String>>,
    /// Its limits.
    #[serde(default)]
    pub budget: BudgetSpec,
    /// Whose standard input gets its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipe_to: Option<Pid>,
    /// Where its files are.
    pub workspace: Workspace,
    /// It works on untrusted content and has no grants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantine: bool,
    /// The folder that its workspace is a copy of, absolute; of a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// Where the files lay that a person sent along: the path of each, or the process whose own it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brought: Vec<Workspace>,
    /// Others wrote the files that a person sent along.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// A person takes what lies in the folder it works on for theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}

impl SpawnSpec {
    /// A resident process that a person starts in a folder of its own, with nothing else said: no name, group, task,
    /// limits or grants of its own.
    pub fn resident(pid: Pid, role: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            parent: Pid::INIT,
            name: None,
            group: None,
            role: role.into(),
            task: None,
            mode: Mode::Resident,
            model: model.into(),
            priority: Priority::Normal,
            policy_role: None,
            grants: None,
            budget: BudgetSpec::default(),
            pipe_to: None,
            workspace: Workspace::Home(pid),
            quarantine: false,
            copy_of: None,
            brought: Vec::new(),
            untrusted: false,
            trusted: false,
        }
    }

    /// What lists call it where it has no name: the first words of its task, or else of its role, if somebody has written
    /// one.
    #[must_use]
    pub fn title(&self) -> String {
        let words = match (&self.task, self.role.as_str()) {
            (Some(task), _) => task,
            (None, DEFAULT_ROLE) => UNNAMED,
            (None, role) => role,
        };
        let one_line = words.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c });
        let mut rest = one_line.filter(|c| !c.is_control());
        let mut title: String = rest.by_ref().take(TITLE_CHARS).collect();
        if rest.next().is_some() {
            title.pop();
            title.push('…');
        }
        title
    }
}

/// Whether a process ends with its first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `aos run` and children with a task: a reply without a call is its result and it exits 0.
    OneShot,
    /// `aos spawn` and children without a task: a reply without a call goes to stdout and it waits for what comes.
    Resident,
    /// `aos models key`: a program outside that asks models with a key. It takes no turns of its own.
    Program,
}

/// Where the files of a process are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// `workspaces/PID/` in the home, of this process or of the ancestor it shares with.
    Home(Pid),
    /// A person's own folder, absolute.
    Folder(String),
}

/// The class of a process on the model slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// A person is waiting.
    Interactive,
    /// The usual.
    #[default]
    Normal,
    /// Whenever nothing else wants the slot.
    Batch,
}

/// Limits of a process and all below it; what is left out is bounded by the parent alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetSpec {
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// Tokens in and out together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// System calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Seconds from its start until it is ended with exit code 124.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<u64>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It wants a model slot.
    Ready,
    /// In an inference or a call.
    Running,
    /// Waiting for something named in `waiting_for`.
    Blocked,
    /// In `SLEEP`.
    Sleeping,
    /// Stopped by a signal or by an error that a person must mend.
    Stopped,
    /// Ended.
    Exited,
}

impl State {
    /// Every state.
    pub const ALL: [State; 6] =
        [State::Ready, State::Running, State::Blocked, State::Sleeping, State::Stopped, State::Exited];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Running => "running",
            State::Blocked => "blocked",
            State::Sleeping => "sleeping",
            State::Stopped => "stopped",
            State::Exited => "exited",
        }
    }
}

/// A process as `aos ps --json` and `/v1/processes` show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessView {
    /// Its id.
    pub pid: Pid,
    /// Its parent.
    pub parent: Pid,
    /// Its name; else the first words of its task, or of its role where it has none; `(no name)` without any.
    pub name: String,
    /// The group it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its state.
    pub state: State,
    /// What it waits for, where blocked: `stdin` (also idle, when a message, a timer and whatever else comes wakes it too),
    /// `message`, `child`, `person`, `approval`, `budget`, `model`, `requests` (a program), or `pipe`: room in the standard
    /// input that its words go to.
    pub waiting_for: Option<String>,
    /// What it asks, where it waits for a `person`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<QuestionView>,
    /// The model it runs on.
    pub model: String,
    /// Its class on the model slots.
    pub priority: Priority,
    /// Whether it ends with its first answer.
    pub mode: Mode,
    /// What it used.
    pub usage: UsageView,
    /// Its limits and what is left.
    pub budget: BudgetView,
    /// When it was spawned.
    pub started_at: Timestamp,
    /// When it ended.
    pub exited_at: Option<Timestamp>,
    /// Its exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// Its result, once it has ended.
    pub result: Option<serde_json::Value>,
    /// Why it ended or stopped.
    pub reason: Option<String>,
}

/// A question that waits for an answer, which `aos send` or `POST /v1/processes/{pid}/stdin` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionView {
    /// As the process put it.
    pub text: String,
    /// Answers that it suggests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// An approval that stands for a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandingView {
    /// The proposal it was given to; a no to this withdraws it.
    pub id: String,
    /// What it covers: a grant, or these very arguments.
    pub covers: String,
    /// The rule that would ask.
    pub rule: String,
}

/// Everything about a process, as `aos inspect` and `/v1/processes/{pid}` show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub process: ProcessView,
    /// Who it is.
    pub role: String,
    /// The role of the policy that it runs under; `null`: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_role: Option<String>,
    /// What it may do; `null`: what the policy's role grants.
    pub grants: Option<Vec<String>>,
    /// What its window carries, by the policy's names, such as `untrusted.web`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What a person has approved for as long as it lives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<StandingView>,
    /// Its live children and those not yet waited for.
    pub children: Vec<Pid>,
    /// Whose standard input gets its standard output.
    pub pipe_to: Option<Pid>,
    /// Where its files are.
    pub workspace: Workspace,
    /// Unread messages.
    pub inbox: usize,
    /// Its timers.
    pub timers: Vec<TimerView>,
    /// Its webhook paths.
    pub webhooks: Vec<String>,
    /// Its watches.
    pub watches: Vec<String>,
    /// Tokens of its window in use, and the window.
    pub window: WindowView,
}

/// Counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// Inferences completed.
    pub inferences: u64,
    /// System calls made.
    pub syscalls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// Of the tokens sent, those the provider had cached.
    pub cached_input_tokens: u64,
    /// What it cost, as far as prices are known.
    pub cost_usd: Usd,
    /// Some of its cost is unknown, since a model has no price in the configuration.
    #[serde(default)]
    pub cost_unknown: bool,
}

/// Limits of a process and what is left of them; `null` where only the parent limits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    /// US dollars granted.
    pub usd: Option<Usd>,
    /// US dollars neither spent, nor reserved, nor given to children.
    pub usd_left: Option<Usd>,
    /// US dollars given to children that have not ended.
    #[serde(default)]
    pub usd_given: Usd,
    /// Tokens granted.
    pub tokens: Option<u64>,
    /// Tokens left.
    pub tokens_left: Option<u64>,
    /// System calls granted.
    pub calls: Option<u64>,
    /// System calls left.
    pub calls_left: Option<u64>,
    /// When it is ended.
    pub ends_at: Option<Timestamp>,
}

/// A timer as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimerView {
    /// Its id.
    pub timer_id: String,
    /// Its name.
    pub name: Option<String>,
    /// When it fires next.
    pub next_at: Timestamp,
    /// `every 60 s` or the cron line.
    pub schedule: String,
    /// What the process is told.
    pub prompt: String,
}

/// A timer in a list of those of many processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldTimer {
    /// Whose it is.
    pub pid: Pid,
    /// What it is.
    #[serde(flatten)]
    pub timer: TimerView,
}

/// How full a window is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowView {
    /// Tokens of the next prompt, estimated.
    pub tokens: u64,
    /// Tokens a prompt may have: the model's window less the room for its answer.
    pub tokens_max: u64,
    /// Entries in the window.
    pub items: usize,
}

/// `aos status --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Of the program.
    pub version: String,
    /// The daemon's pid in the operating system.
    pub os_pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its home.
    pub home: String,
    /// Where HTTP is served; empty where `taken` says that it is not.
    pub listen: String,
    /// Why HTTP is served on the Unix socket alone: another user's program has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// How many processes are in each state.
    pub processes: BTreeMap<String, u64>,
    /// US dollars that everything together has cost on this day (UTC), as far as prices are known.
    #[serde(default)]
    pub spent_today_usd: Usd,
    /// The same day and its budget.
    #[serde(default)]
    pub today: DayView,
    /// Each model's slots.
    pub model_slots: BTreeMap<String, SlotView>,
    /// The last journal position that is durable.
    pub lsn: crate::Lsn,
    /// What differed at this start from the one before: `the program`, `policy.yaml`, `aos.toml`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The first place of the journal that is not as it was written, where the look at all of it that follows the start
    /// found one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub altered: Option<String>,
    /// The policy that holds.
    #[serde(default)]
    pub policy: PolicyView,
    /// What this host lacks of all that isolates a command, each with the way out: until it is there every command is
    /// refused. Empty where nothing is missing or no role may run commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// Seconds by which the journal's time, which never goes back, is ahead of this machine's clock; left out below a
    /// minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<u64>,
}

/// A day (UTC) and its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DayView {
    /// US dollars that everything together has cost, as far as prices are known.
    pub spent_usd: Usd,
    /// Some of it has no price.
    pub cost_unknown: bool,
    /// The most that it may come to: `usd_per_day` of aos.toml.
    pub usd_per_day: Option<Usd>,
    /// Little is left of that.
    pub nearly_spent: bool,
    /// When the next day begins.
    pub renews_at: Timestamp,
}

/// The policy that holds, and why the file as it is now is not it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// Its generation: the first 16 hex digits of the SHA-256 of its text; `deny-all` where there is no file.
    pub generation: String,
    /// The faults for which the changed file was refused, each with its line; empty where it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// How many open questions ended with the policy under which they were asked, where this one has just taken its place.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The slots of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotView {
    /// Inferences under way.
    pub used: u32,
    /// Most inferences at once.
    pub limit: u32,
    /// Processes that wait for a slot.
    pub waiting: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_task_or_else_by_a_role_that_somebody_wrote() {
        let of = |task: Option<&str>, role: &str| {
            SpawnSpec { task: task.map(str::to_owned), ..SpawnSpec::resident(Pid(2), role, "small") }.title()
        };
        assert_eq!(of(Some("count\nthe words"), "You count."), "count the words");
        assert_eq!((of(None, "You count."), of(None, DEFAULT_ROLE)), ("You count.".into(), UNNAMED.into()));
        let (fits, long) = ("é".repeat(TITLE_CHARS), "é".repeat(TITLE_CHARS + 1));
        assert_eq!((of(Some(&fits), ""), of(Some(&long), "")), (fits, format!("{}…", "é".repeat(TITLE_CHARS - 1))));
    }
}
