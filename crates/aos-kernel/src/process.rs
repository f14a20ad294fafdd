//! A process: everything the kernel knows of one agent. Plain data, paged out as one small row when idle.
//!
//! Start at [`Process`]. Its history is not here: a window is a list of journal positions, the texts stay in the
//! journal. What always holds: a process has at most one inference in flight, or two where one hedges
//! the other; a call is in exactly one state; the type
//! is written by a format without field names (postcard), so changing it needs a new [`crate::table::PAGE_FORMAT`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::entry::Examined;
use aos_abi::model::Ability;
use aos_abi::process::{Mode, Priority, QuestionView, State, Workspace};
use aos_abi::syscall::AskUser;
use aos_abi::{CallId, Code, EffectId, Lsn, Pid, Syscall, Timestamp, Usd, limits};
use aos_context::Window;
use aos_policy::{Given, Grants, Labels, Named, Subject};
use serde::{Deserialize, Serialize};

use crate::budget::{Allowance, Budget, Count, Need};
use crate::course::Course;
use crate::purse::Purse;

/// One agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Never used twice in one home.
    pub pid: Pid,
    /// Who is told of its end; [`Pid::INIT`] for orphans.
    pub parent: Pid,
    /// Unique among live processes where given.
    pub name: Option<String>,
    /// The group it belongs to; the kernel's index has its living members.
    pub group: Option<String>,
    /// The first words of its task, for lists.
    pub title: String,
    /// Who it is, as text.
    pub role: String,
    /// Whether it ends with its first answer.
    pub mode: Mode,
    /// The configured model that serves it; what was asked for where none has been chosen yet.
    pub model: String,
    /// What was asked for, and where it is on its way through the models.
    pub course: Course,
    /// Its class on the model slots.
    pub priority: Priority,
    /// The grants it was spawned with, then those of its ancestors, nearest first. Empty: the policy's role alone.
    pub chain: Vec<Grants>,
    /// The role of the policy it runs under; empty: the default one.
    pub policy_role: String,
    /// It works on untrusted content and has no grants.
    pub quarantine: bool,
    /// Whether its role was written by somebody without an untrusted label.
    pub vouched: bool,
    /// What people gave it to do, newest last; bounded, see [`crate::Kernel`]'s `given`.
    pub words: Vec<String>,
    /// What it put before a person after it had read untrusted content; bounded likewise.
    pub questions: String,
    /// What clean sources named, newest last; bounded likewise.
    pub named: Vec<Named>,
    /// How far it may go with personal data that no model of this machine could take.
    pub leave: Leave,
    /// The generation of the policy under which `leave` and the tiers of `course` were answered: another one asks anew.
    pub answered_under: String,
    /// What its window carries.
    pub labels: Labels,
    /// What its next turn adds to that.
    pub incoming: Labels,
    /// What the files of its own workspace carry.
    pub files: Labels,
    /// Whether the first of `chain` is its own.
    pub own_grants: bool,
    /// Distance from [`Pid::INIT`].
    pub depth: u32,
    /// The first of its tree, which a person started; the same for all that descend from it, whoever has ended meanwhile.
    pub root: Pid,
    /// The process whose past it was forked from: its window holds that one's entries.
    pub origin: Option<Pid>,
    /// Where its files are.
    pub workspace: Workspace,
    /// Whose standard input gets its standard output.
    pub pipe_to: Option<Pid>,
    /// Live processes that are piped into this one.
    pub pipe_sources: u32,
    /// Live children and ended ones not yet waited for.
    pub children: BTreeSet<Pid>,
    /// Ended children not yet waited for, oldest first.
    pub zombies: VecDeque<Zombie>,
    /// Children put away since it was last told.
    pub put_away: Vec<Pid>,
    /// Limits and what was used of them.
    pub budget: Budget,
    /// Counters.
    pub usage: Counters,
    /// When it was spawned.
    pub started_at: Timestamp,
    /// What it is doing.
    pub phase: Phase,
    /// Set while it may start nothing new.
    pub stopped: Option<String>,
    /// Set by `TERM`.
    pub terminating: Option<Terminating>,
    /// A person waits for its next turn.
    pub hurried: bool,
    /// The calls of its last reply.
    pub step: Vec<StepCall>,
    /// Their results are in its window, and the turn that they lead to has not begun.
    pub stepped: bool,
    /// What its next prompt holds.
    pub window: Window,
    /// Unread messages, oldest first.
    pub inbox: VecDeque<Letter>,
    /// Unread standard input, oldest first.
    pub stdin: VecDeque<Chunk>,
    /// No more input will come.
    pub stdin_eof: bool,
    /// Processes whose words wait for room in its standard input, oldest first.
    pub writers: VecDeque<Pid>,
    /// Timers, webhooks and watches that fired and were not yet shown, oldest first.
    pub notices: VecDeque<Notice>,
    /// Its timers by id.
    pub timers: BTreeMap<String, Timer>,
    /// Its webhook paths.
    pub webhooks: BTreeMap<String, Route>,
    /// Webhook requests it has been given and not answered, with the end of their callers' patience.
    pub requests: BTreeMap<String, Timestamp>,
    /// Its watches: what to watch by id.
    pub watches: BTreeMap<String, WatchSpec>,
    /// Its open proposals by id.
    pub proposals: BTreeMap<String, OpenProposal>,
    /// Proposals to which a person has said yes for as long as it lives, by id.
    pub standing: BTreeMap<String, OpenProposal>,
    /// Calls that were denied and that a person may lift, or has lifted for once, by the number of their id.
    pub denials: BTreeMap<u64, Denial>,
    /// Calls a person has said no to, oldest first: asked again, they get the same answer.
    pub refusals: VecDeque<Refusal>,
    /// How often it has made the calls of each rule with a `rate`, by the rule's name.
    pub rates: BTreeMap<String, Count>,
    /// Questions that it and those below it have put to people.
    pub asked: Count,
    /// Denials of it and of those below it that people were shown.
    pub denied: Count,
    /// Bytes that drivers have brought to it and to those below it.
    pub brought: Count,
    /// What it and those below it have used of its role's budget: money, tokens, calls.
    pub allowances: [Allowance; 3],
    /// Numbers the ids it hands out (calls, timers, watches).
    pub next_id: u64,
    /// Of a program: the key it asks models with.
    pub key: Option<Box<HeldKey>>,
    /// Of a program: its requests that wait for a model, oldest first.
    pub asks: VecDeque<Ask>,
    /// Of a program: how many of its requests a model is answering.
    pub serving: u32,
    /// Of a program: what is set aside ahead of its requests.
    pub purse: Option<Box<Purse>>,
    /// What it has said of an answer that was cut off, until it has said the rest.
    pub begun: String,
    /// Failures of its current turn.
    pub attempts: Attempts,
    /// Tokens of service it has had, weighted: its place in the fair share.
    pub service: u64,
    /// The earliest moment at which something about it is due; kept in step with the kernel's index.
    pub due: Option<Timestamp>,
    /// How it ended.
    pub exit: Option<Exit>,
}

/// What a process is doing. `stopped` lies over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// In the queue for a model slot.
    Ready,
    /// Asking its model; where two models are asked, one of them.
    Inferring(EffectId),
    /// Carrying out the calls of its last reply.
    Calling,
    /// A call of its last reply waits; `step[call]` is that call.
    Waiting {
        /// Its place in the step.
        call: usize,
        /// For what.
        wait: Wait,
        /// Since when.
        since: Timestamp,
        /// Until when, if it gives up.
        until: Option<Timestamp>,
    },
    /// Its model failed and is tried again then.
    Backoff(Timestamp),
    /// It cannot pay its next inference.
    Broke {
        /// When what it lacks renews; `None`: as soon as others have settled what they have set aside.
        until: Option<Timestamp>,
        /// What it lacks.
        need: Need,
    },
    /// It has spoken, and its words wait for room in the standard input they are piped to.
    Writing(String),
    /// A resident process with nothing to do.
    Idle,
    /// Ended.
    Exited,
}

/// Whether a process may show a model elsewhere what it holds, with tokens in the place of personal data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leave {
    /// Nobody has been asked.
    #[default]
    Unasked,
    /// A person has been asked.
    Asked,
    /// A person has said yes.
    Given,
}

/// A call that a person has said no to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Names the call: its name and arguments.
    pub fingerprint: u128,
    /// Under which proposal.
    pub id: String,
    /// Why.
    pub why: String,
    /// Until when the answer holds.
    pub until: Timestamp,
}

/// A program's key, as [`aos_abi::entry::Key`] gave it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldKey {
    /// SHA-256 of the key in hex.
    pub sha256: String,
    /// Whose it is, in words.
    pub owner: Option<String>,
    /// Most requests a minute.
    pub rpm: Option<u32>,
    /// The tiers of models that it may ask; empty: all that its role may.
    pub tiers: Vec<String>,
}

/// A program's request that waits for a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// By which the edge knows it.
    pub request: u64,
    /// What it named: a model, a tier, or `auto`.
    pub wanted: String,
    /// The configured model that it waits for.
    pub model: String,
    /// Models that have failed to answer it.
    pub tried: Vec<String>,
    /// Its tokens, estimated.
    pub input_tokens: u64,
    /// The most tokens of the answer that it asks for.
    pub max_output: Option<u32>,
    /// What the model must be able to do.
    pub needs: BTreeSet<Ability>,
    /// No other model can stand in for the one that it names.
    pub only: bool,
}

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wait {
    /// The end of a child; any, if `None`.
    Child(Option<Pid>),
    /// A message.
    Message,
    /// Standard input.
    Stdin,
    /// Time alone.
    Sleep,
    /// A person's answer.
    Person,
    /// A person's word on a proposal.
    Approval(String),
}

/// A call of the last reply, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepCall {
    /// Binds the result.
    pub call_id: CallId,
    /// The name the model wrote.
    pub name: String,
    /// The arguments as JSON text.
    pub args: String,
    /// Set where the call did not decode for a reason that parsing alone does not show again.
    pub fault: Option<Fault>,
    /// How far it is.
    pub state: CallState,
    /// The proposal under which it may run now, as soon as the process goes on.
    pub approved: Option<(String, OpenProposal)>,
}

impl StepCall {
    /// Whether a driver carries it out.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state, CallState::Running(_))
    }

    /// The name of the call that is made: what was proposed, where proposing is what the model wrote.
    #[must_use]
    pub fn made(&self) -> &str {
        self.approved.as_ref().map_or(&self.name, |(_, open)| &open.name)
    }
}

/// Why a call did not decode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// The error's code.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallState {
    /// Not started.
    Queued,
    /// At a driver.
    Running(EffectId),
    /// Begun by the kernel. Between two inputs it waits, and the phase says for what.
    Waiting,
    /// Over: its result and the result's tokens.
    Done(Lsn, u32),
}

/// An unread message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Letter {
    /// Its entry and tokens.
    pub notice: Notice,
    /// Who sent it.
    pub from_pid: Pid,
    /// When.
    pub at: Timestamp,
    /// What it says.
    pub content: String,
    /// What goes with it.
    pub attachments: Vec<String>,
}

/// An unread piece of standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chunk {
    /// Its entry and tokens.
    pub notice: Notice,
    /// Who wrote it; [`Pid::INIT`] for a person, [`Pid::SYSTEM`] for others whose text a person passed on.
    pub from_pid: Pid,
    /// The text.
    pub text: String,
}

/// Something that fired and goes into the window at the next turn.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// Its entry.
    pub lsn: Lsn,
    /// Its tokens.
    pub tokens: u32,
    /// What it carries.
    pub labels: Labels,
}

/// An ended child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Zombie {
    /// Which.
    pub pid: Pid,
    /// Its exit entry and that one's tokens.
    pub notice: Notice,
    /// Its exit code.
    pub exit_code: i32,
    /// Its result as JSON text.
    pub result: String,
    /// The parent has been shown its end.
    pub shown: bool,
}

/// A timer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timer {
    /// Its name.
    pub name: Option<String>,
    /// What the process is told.
    pub prompt: String,
    /// When it fires next.
    pub next_at: Timestamp,
    /// By what rule.
    pub rule: TimerRule,
    /// It goes after its next firing.
    pub once: bool,
    /// Whoever the process had read may have chosen the prompt.
    pub untrusted: bool,
}

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerRule {
    /// Every so many milliseconds.
    Every(u64),
    /// By a five-field cron line and an IANA time zone.
    Cron(String, String),
}

/// A webhook path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    /// Requests must be signed with it.
    pub secret: Option<String>,
    /// How long a caller waits for an answer, in seconds; 0: not at all.
    pub reply_within_s: u64,
}

/// What a watch watches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchSpec {
    /// The file or folder, relative to the workspace.
    pub path: String,
    /// Only paths that match.
    pub glob: Option<String>,
}

/// A proposal that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenProposal {
    /// The place in the step of the call that waits for it; `None`: it is about a tier of models, for which nothing waits.
    pub call: Option<usize>,
    /// The call's name.
    pub name: String,
    /// The call's arguments as JSON text.
    pub args: String,
    /// `true`: it runs at the end of the window unless vetoed; `false`: it needs a yes.
    pub hold: bool,
    /// The rule that asks, or denies.
    pub rule: String,
    /// What a denied call wants: the narrowest grants. Empty of a question.
    pub grants: Vec<String>,
    /// What was denied to a command while it ran, which is the call then. That itself was not denied.
    pub inner: Vec<InnerCall>,
    /// What led to a denied call that the process has not made, in words.
    pub led: Option<String>,
    /// Why no yes lifts a denial, in words.
    pub closed: Option<String>,
    /// The process asked for it itself.
    pub why: Option<String>,
    /// What could go wrong.
    pub risk: Option<String>,
    /// Whom a question's call reached when it was put, in words, where that may be another by the time it is answered.
    pub receiver: Option<String>,
    /// When it is over.
    pub expires_at: Timestamp,
    /// The policy it was asked under.
    pub generation: String,
    /// The files that it concerns, once somebody has looked; for calls of which [`crate::proposals::binds`] holds.
    pub examined: Option<Examined>,
}

impl OpenProposal {
    /// Whether it is a call that was denied, or a command to which something was.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        !self.grants.is_empty() || self.closed.is_some()
    }

    /// Whether a yes to it stands in for what its call wants.
    #[must_use]
    pub fn lifts(&self) -> bool {
        !self.grants.is_empty() && self.inner.is_empty()
    }

    /// Bytes of the calls that it is about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.args.len() + self.inner.iter().map(|inner| inner.args.len()).sum::<usize>()
    }
}

/// A call that a command led to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InnerCall {
    /// Its name.
    pub name: String,
    /// Its arguments as JSON text.
    pub args: String,
}

impl InnerCall {
    /// The call; it was parsed before.
    #[must_use]
    pub fn call(&self) -> Option<Syscall> {
        Syscall::parse(&self.name, &self.args).ok()
    }
}

/// A call that was denied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Denial {
    /// As people see it.
    pub open: OpenProposal,
    /// A person has lifted it: the call may be made, once.
    pub lifted: bool,
}

impl Denial {
    /// Whether the files that it concerns are still being looked at, so that nobody can be shown it. For one that no yes lifts
    /// nobody looks.
    #[must_use]
    pub fn is_looked_at(&self) -> bool {
        self.open.examined.is_none()
            && self.open.closed.is_none()
            && self.open.name.parse().is_ok_and(crate::proposals::binds)
    }
}

/// `TERM` was received.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Terminating {
    /// When it is killed.
    pub kill_at: Timestamp,
    /// Its last turn has begun.
    pub last_turn: bool,
}

/// Failures of the current turn.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Attempts {
    /// Inferences that failed in passing.
    pub transient: u32,
    /// Prompts that were too long for the model.
    pub too_long: u32,
    /// Replies with nothing in them.
    pub empty: u32,
    /// Replies in a row that were cut off.
    pub cut_off: u32,
    /// Replies in a row that were of no use: empty, calls that nobody understands, the same ones again and again.
    pub useless: u32,
    /// No model could make its summary: a digest takes the place.
    pub digest: bool,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Inferences completed.
    pub inferences: u64,
    /// Calls made.
    pub syscalls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// Of the tokens sent, those that were cached.
    pub cached_input_tokens: u64,
    /// What it cost, as far as known.
    pub cost: Usd,
    /// Some cost is unknown.
    pub cost_unknown: bool,
}

/// How a process ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// Its entry.
    pub lsn: Lsn,
    /// When.
    pub at: Timestamp,
    /// Its code.
    pub code: i32,
    /// Its result as JSON text.
    pub result: String,
    /// Why, in words.
    pub reason: String,
}

impl Process {
    /// The state people see.
    #[must_use]
    pub fn state(&self) -> State {
        match (&self.phase, &self.stopped) {
            (Phase::Exited, _) => State::Exited,
            (_, Some(_)) => State::Stopped,
            (Phase::Idle, None) if self.serving > 0 => State::Running,
            (Phase::Idle, None) if !self.asks.is_empty() => State::Ready,
            (Phase::Ready, None) => State::Ready,
            (Phase::Inferring(_) | Phase::Calling, None) => State::Running,
            (Phase::Waiting { wait: Wait::Sleep, .. }, None) => State::Sleeping,
            (
                Phase::Waiting { .. } | Phase::Backoff(_) | Phase::Broke { .. } | Phase::Writing(_) | Phase::Idle,
                None,
            ) => State::Blocked,
        }
    }

    /// What it waits for, where blocked.
    #[must_use]
    pub fn waiting_for(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::Waiting { wait, .. } => Some(match wait {
                Wait::Child(_) => "child",
                Wait::Message => "message",
                Wait::Stdin => "stdin",
                Wait::Sleep => "time",
                Wait::Person => "person",
                Wait::Approval(_) => "approval",
            }),
            Phase::Backoff(_) => Some("model"),
            Phase::Broke { .. } => Some("budget"),
            Phase::Writing(_) => Some("pipe"),
            Phase::Idle if self.mode == Mode::Program => Some("requests"),
            Phase::Idle => Some("stdin"),
            Phase::Ready | Phase::Inferring(_) | Phase::Calling | Phase::Exited => None,
        }
    }

    /// What it asks, where it waits for a person.
    #[must_use]
    pub fn question(&self) -> Option<QuestionView> {
        let Phase::Waiting { call, wait: Wait::Person, .. } = self.phase else { return None };
        let call = self.step.get(call)?;
        match Syscall::parse(call.made(), &call.args).ok()? {
            Syscall::AskUser(AskUser { question, options, .. }) => {
                Some(QuestionView { text: question, options: options.unwrap_or_default() })
            }
            _ => None,
        }
    }

    /// Who it is to the policy.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        let given = Given {
            texts: &self.words,
            role: if self.vouched { &self.role } else { "" },
            named: &self.named,
            parent: Some(self.parent),
            // Whoever knows better says so.
            pids: None,
            files: Labels::UNTRUSTED,
        };
        // Whom a signal reaches is for the whole table to say.
        let reaches = None;
        Subject { pid: self.pid, role: &self.policy_role, chain: &self.chain, labels: self.labels, given, reaches }
    }

    /// Whether it is a program outside, with a key.
    #[must_use]
    pub fn is_program(&self) -> bool {
        self.mode == Mode::Program
    }

    /// Whether it has ended.
    #[must_use]
    pub fn exited(&self) -> bool {
        self.phase == Phase::Exited
    }

    /// A fresh id with this prefix, unique within the process.
    pub fn fresh_id(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        format!("{prefix}{}", self.next_id)
    }

    /// The earliest moment at which something about it is due.
    #[must_use]
    pub fn earliest_due(&self) -> Option<Timestamp> {
        if self.exited() || self.is_faulted() {
            return None;
        }
        let phase = match &self.phase {
            // A stopped process wakes by a signal alone; its waits are settled when it goes on.
            Phase::Waiting { until, .. } => *until,
            Phase::Backoff(at) | Phase::Broke { until: Some(at), .. } if self.stopped.is_none() => Some(*at),
            _ => None,
        };
        // A timer that finds no room fires once there is some.
        let timers = self.timers.values().map(|timer| timer.next_at).min().filter(|_| !self.is_full());
        let denied = self.denials.values().map(|denial| denial.open.expires_at);
        let proposals = self.proposals.values().map(|proposal| proposal.expires_at).chain(denied).min();
        let kill = self.terminating.map(|terminating| terminating.kill_at);
        [phase, timers, proposals, kill, self.budget.ends_at].into_iter().flatten().min()
    }

    /// Whether it has as many unread notices as it may. The last place is kept for `TERM`, which no queue can refuse.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.notices.len() + usize::from(self.terminating.is_none()) >= limits::NOTICES_MAX
    }

    /// What its window carries once all that has come is shown.
    #[must_use]
    pub fn labels_to_come(&self) -> Labels {
        self.news().fold(self.labels.and(self.incoming), |labels, notice| labels.and(notice.labels))
    }

    /// All that has come and was not shown yet, in no order.
    pub(crate) fn news(&self) -> impl Iterator<Item = &Notice> {
        let notices = self.notices.iter().chain(self.stdin.iter().map(|chunk| &chunk.notice));
        let letters = self.inbox.iter().map(|letter| &letter.notice);
        notices.chain(letters).chain(self.zombies.iter().filter(|zombie| !zombie.shown).map(|zombie| &zombie.notice))
    }

    /// Whether something waits to be shown that wakes an idle process.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.notices.is_empty()
            || !self.inbox.is_empty()
            || !self.stdin.is_empty()
            || self.zombies.iter().any(|zombie| !zombie.shown)
    }

    /// Whether a person has said something it has not been shown.
    #[must_use]
    pub fn has_person_input(&self) -> bool {
        self.stdin.iter().any(|chunk| chunk.from_pid == Pid::INIT)
    }
}
