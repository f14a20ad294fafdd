//! The kernel: process table, scheduler, inboxes, timers, budgets, proposals and dispatch.
//!
//! Start at [`Kernel::apply`]: one input in, entries to make durable and effects to perform out. The same inputs in
//! the same order give the same entries and effects, on any machine, for ever; restart, audit, `fork` and the
//! simulation all stand on that. So there is no I/O, no clock, no randomness and no async here: time is the input's
//! stamp, ids come from journal positions, collections iterate in a fixed order.
//!
//! Reading order: [`process`] and [`table`] for the state, `turn` for the loop of an agent, `step` for its calls, `calls`
//! for those that the kernel carries out itself, `lifecycle` for birth and death, [`scheduler`] for who runs next.

pub mod budget;
pub mod circuit;
pub mod course;
pub mod effect;
pub mod fault;
pub mod past;
pub mod preview;
pub mod process;
pub mod purse;
pub mod route;
pub mod scheduler;
pub mod table;

mod accounts;
mod boot;
mod breakers;
mod calls;
mod check;
mod deadlock;
mod denials;
mod fork;
mod given;
mod groups;
mod hedge;
mod input;
mod inside;
mod labels;
mod lifecycle;
mod money;
mod outcome;
mod personal;
mod programs;
mod proposals;
mod rates;
mod standing;
mod step;
mod time;
mod turn;
mod view;
mod warning;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use aos_abi::entry::{Configured, Measured, Outcome, Purpose};
use aos_abi::model::{ModelSpec, Price};
use aos_abi::process::State;
use aos_abi::{Body, CallError, Code, EffectId, Entry, Lsn, Pid, Timestamp};
use aos_context::Calibration;
use aos_policy::address::Listens;
use aos_policy::{Labels, Policy};
use serde::{Deserialize, Serialize};

use crate::boot::Heard;
use crate::budget::Day;
use crate::circuit::Circuits;
use crate::course::Measures;
use crate::denials::Denied;
use crate::effect::Effect;
use crate::fault::LetGo;
use crate::hedge::Race;
use crate::labels::Reads;
use crate::process::{Ask, Notice, Phase, Process};
use crate::scheduler::Scheduler;
use crate::table::{PAGE_FORMAT, PageStore, Table};

pub use labels::FOUND;
pub use proposals::told_of;
pub use time::next_after;

/// What one input came to.
#[derive(Debug, Default)]
#[must_use]
pub struct Applied {
    /// The input's own entry and then the facts decided from it, to be made durable together.
    pub entries: Vec<Arc<Entry>>,
    /// What to do, in order; see [`Effect::waits_for_disk`].
    pub effects: Vec<Effect>,
}

/// The state of the whole system.
#[derive(Debug)]
pub struct Kernel<P> {
    table: Table<P>,
    globals: Globals,
    config: Arc<Configured>,
    measured: Measured,
    policy: Policy,
    /// What each role of the policy grants, in words: part of every prompt, so made once per policy.
    role_grants: BTreeMap<String, Arc<Vec<String>>>,
    /// What the input under way has come to so far.
    applied: Applied,
    nth: u32,
    /// Processes whose steps go on before the input under way is over, in the order in which they were woken.
    to_run: VecDeque<Pid>,
    /// Money was settled, returned or granted: whoever cannot pay is looked at again.
    freed: bool,
    /// Who is worked on.
    at_work: Pid,
    /// Those that the start under way leaves out.
    unrecovered: BTreeSet<Pid>,
    /// Until it fails, where a test wants that.
    #[cfg(feature = "faults")]
    fails_after: Option<u32>,
}

/// Everything that is not of one process. Written whole at each checkpoint, so it stays small.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Globals {
    lsn: Lsn,
    at: Timestamp,
    last_pid: u64,
    /// The configuration as JSON: its types are made for the wire, not for pages.
    config: String,
    counts: [u64; State::ALL.len()],
    names: BTreeMap<String, Pid>,
    /// The living members of each group; a group without any is not kept.
    groups: BTreeMap<String, BTreeSet<Pid>>,
    /// Programs by the SHA-256 of their keys.
    keys: BTreeMap<String, Pid>,
    routes: BTreeMap<String, Pid>,
    due: BTreeSet<(Timestamp, Pid)>,
    in_flight: BTreeMap<EffectId, InFlight>,
    watchers: BTreeSet<Pid>,
    proposals: BTreeMap<String, Pid>,
    /// Whose approvals stand, by the proposal they were given to.
    standing: BTreeMap<String, Pid>,
    /// Denials that a person may lift, or has lifted for once, by the number of their id.
    denials: BTreeMap<u64, Denied>,
    last_proposal: u64,
    /// Programs for which something is set aside ahead.
    purses: BTreeSet<Pid>,
    scheduler: Scheduler,
    /// Processes that cannot pay their next inference.
    broke: BTreeSet<Pid>,
    day: Day,
    calibration: BTreeMap<String, Calibration>,
    /// What is known of servers that fail.
    circuits: Circuits,
    /// What is measured of models and tiers.
    measures: Measures,
    /// What the daemon was made of when it last started, as JSON, like the configuration.
    measured: String,
    /// What shared memory carries.
    memory: Labels,
    /// What the files of a person's folders carry, by folder.
    folders: BTreeMap<String, Labels>,
    /// Processes that living forks came from, with how many.
    origins: BTreeMap<Pid, u32>,
    /// How many live below the first of each tree, itself left out; its own pid stands for the tree also when it has ended.
    trees: BTreeMap<Pid, u32>,
    /// What is under way no more and not paid yet.
    let_go: LetGo,
}

/// An effect whose outcome is still to come.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum InFlight {
    Infer {
        pid: Pid,
        model: String,
        purpose: Purpose,
        upto: Lsn,
        estimate: u64,
        reserved_usd: u64,
        reserved_tokens: u64,
        /// The price it was set aside at, which is the price it is charged at.
        price: Option<Price>,
        max_output: u32,
        race: Race,
        /// What was heard of its answer where the daemon cut it off at its end.
        heard: Option<Heard>,
    },
    Call {
        /// Who gets its result.
        pid: Pid,
        /// Whose rights allow it.
        by: Pid,
        call: usize,
        /// What its result carries by the rules that allowed it.
        labels: Labels,
        reads: Reads,
        /// Whether nobody but people can have led to it.
        vouched: bool,
    },
    /// A program's request.
    Serve {
        pid: Pid,
        ask: Ask,
        max_output: u32,
        reserved_usd: u64,
        reserved_tokens: u64,
        price: Option<Price>,
        /// As of an inference.
        heard: Option<Heard>,
    },
}

impl InFlight {
    fn pid(&self) -> Pid {
        match self {
            InFlight::Infer { pid, .. } | InFlight::Call { pid, .. } | InFlight::Serve { pid, .. } => *pid,
        }
    }

    /// The model whose slot it has.
    fn model(&self) -> Option<&str> {
        match self {
            InFlight::Infer { model, .. } => Some(model),
            InFlight::Serve { ask, .. } => Some(&ask.model),
            InFlight::Call { .. } => None,
        }
    }

    /// Who asks a model.
    fn asker(&self) -> Option<Pid> {
        match self {
            InFlight::Infer { pid, .. } | InFlight::Serve { pid, .. } => Some(*pid),
            InFlight::Call { .. } => None,
        }
    }
}

/// A consistent picture of the kernel after one entry.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The last entry it has lived through.
    pub lsn: Lsn,
    /// Everything that is not of one process.
    pub globals: Vec<u8>,
    /// Pages that changed since the last checkpoint.
    pub pages: Vec<(Pid, Vec<u8>)>,
    /// Processes taken out since.
    pub removed: Vec<Pid>,
}

/// Why a kernel could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Replay from the journal instead.
    #[error("the checkpoint is not readable: {0}")]
    Unreadable(String),
    /// The program that wrote it can still read it.
    #[error("the checkpoint is of format {0}, and this program reads format {PAGE_FORMAT}")]
    Format(u32),
}

impl<P: PageStore> Kernel<P> {
    /// A kernel that has lived through nothing.
    pub fn new(pages: P) -> Self {
        Kernel {
            table: Table::new(pages),
            globals: Globals { last_pid: Pid::INIT.0, ..Globals::default() },
            config: Arc::default(),
            measured: Measured::default(),
            policy: Policy::deny_all(),
            role_grants: BTreeMap::new(),
            applied: Applied::default(),
            nth: 0,
            to_run: VecDeque::new(),
            freed: false,
            at_work: Pid::SYSTEM,
            unrecovered: BTreeSet::new(),
            #[cfg(feature = "faults")]
            fails_after: None,
        }
    }

    /// A kernel as of a checkpoint; entries after it are still to be applied.
    ///
    /// # Errors
    /// Where the checkpoint is none of ours.
    pub fn restore(globals: &[u8], pages: P) -> Result<Self, RestoreError> {
        let (format, globals): (u32, &[u8]) =
            postcard::take_from_bytes(globals).map_err(|error| RestoreError::Unreadable(error.to_string()))?;
        if format != PAGE_FORMAT {
            return Err(RestoreError::Format(format));
        }
        let globals: Globals =
            postcard::from_bytes(globals).map_err(|error| RestoreError::Unreadable(error.to_string()))?;
        let mut kernel = Kernel::new(pages);
        if !globals.config.is_empty() {
            let config =
                serde_json::from_str(&globals.config).map_err(|error| RestoreError::Unreadable(error.to_string()))?;
            kernel.take_config(config);
        }
        if !globals.measured.is_empty() {
            kernel.measured =
                serde_json::from_str(&globals.measured).map_err(|error| RestoreError::Unreadable(error.to_string()))?;
        }
        kernel.globals = globals;
        Ok(kernel)
    }

    /// Lives through one input: stamps it, decides, and says what to make durable and what to do.
    ///
    /// `at` is never taken to be earlier than the entry before.
    pub fn apply(&mut self, at: Timestamp, pid: Pid, body: Body) -> Applied {
        let before = self.globals.at;
        self.globals.at = before.max(at);
        self.nth = 0;
        let lsn = self.globals.lsn.next();
        self.globals.lsn = lsn;
        self.table.set_now(lsn);
        self.globals.day.turn(self.globals.at);
        let entry = Arc::new(Entry { lsn, at: self.globals.at, pid, cause: None, body });
        self.applied.entries.push(Arc::clone(&entry));
        self.decide(&entry, before);
        if !matches!(entry.body, Body::Faulted(_)) {
            self.run_steps();
            self.schedule();
        }
        std::mem::take(&mut self.applied)
    }

    /// `before`: when the entry before was made.
    fn decide(&mut self, entry: &Entry, before: Timestamp) {
        let pid = entry.pid;
        match &entry.body {
            Body::Booted { configured, faulted, last_pid, .. } => {
                // First of all: what a start goes on with may be a call that starts a child.
                self.globals.last_pid = self.globals.last_pid.max(last_pid.unwrap_or(Pid::SYSTEM).0);
                self.boot(before, configured.as_deref(), faulted);
            }
            Body::Faulted(what) => self.faulted(pid, what),
            Body::Configured(config) => self.configure(config),
            Body::Measured(measured) => {
                self.globals.measured = serde_json::to_string(measured).expect("what was measured is plain data");
                self.measured.clone_from(measured);
            }
            Body::Tick => self.tick(),
            Body::Spawned(spec) => self.born(pid, spec, true),
            Body::Input { text, eof, from_pid, untrusted } => {
                self.input(pid, entry.lsn, if *untrusted { Pid::SYSTEM } else { *from_pid }, text, *eof);
            }
            Body::Signal { signal, from_pid, tree } => self.signal_tree(pid, *signal, *from_pid, *tree),
            Body::GroupSignal { group, signal, tree } => self.signal_group(group, *signal, *tree),
            Body::Unscheduled { timer_id } => _ = self.with(pid, |process| process.timers.remove(timer_id)),
            Body::Webhook(request) => self.webhook(pid, request),
            Body::Watch { watch_id, .. } => {
                let labels = self.labels_of_watch(pid, watch_id);
                self.notice(pid, entry.lsn, labels);
            }
            Body::InferenceCompleted { effect, latency_ms, outcome, personal } => {
                self.inference_completed(*effect, entry.lsn, *latency_ms, outcome, personal.as_deref());
            }
            Body::Silent { effect } => self.silent(*effect),
            Body::Result { effect: Some(effect), outcome, .. } => {
                self.saw(pid, outcome);
                self.unless_it_held(*effect, outcome);
                self.driver_result(*effect, entry.lsn, outcome);
            }
            Body::Keyed(key) => self.keyed(pid, key),
            Body::Asked(asked) => self.asked(pid, asked),
            Body::Served { effect, latency_ms, outcome, personal } => {
                self.request_over(*effect, Some(*latency_ms), outcome, personal.as_deref());
            }
            Body::Withdrawn { request } => self.withdrawn(pid, *request),
            Body::Rested { cut } => {
                self.was_cut(cut);
                self.put_back_all();
            }
            Body::Examined(examined) => self.examined(pid, examined),
            Body::Changed(changed) => self.files_changed(pid, changed),
            // What else its requests brought back comes with the call's result.
            Body::Requested(requested) => {
                self.labels_reached(pid, requested);
                self.denied_inside(pid, requested);
            }
            Body::Proposal { id, state, why, .. } => self.proposal_answered(pid, id, *state, why.as_deref()),
            Body::Forked { from_pid, spec, window, rests, .. } => self.forked(pid, *from_pid, spec, window, *rests),
            Body::Budgeted { budget } => self.budgeted(pid, budget),
            Body::Pruned { pids, .. } => self.pruned(pids),
            // Facts are decided here; one that arrives as an input changes nothing.
            Body::Message { .. }
            | Body::Timer { .. }
            | Body::InferenceStarted { .. }
            | Body::Routed { .. }
            | Body::Hedged { .. }
            | Body::Circuit { .. }
            | Body::Syscall { .. }
            | Body::Verdict { .. }
            | Body::Result { effect: None, .. }
            | Body::Lifted { .. }
            | Body::Charged { .. }
            | Body::NearlySpent(_)
            | Body::Ahead { .. }
            | Body::Refused { .. }
            | Body::Compacted { .. }
            | Body::Exited { .. }
            | Body::Reaped { .. }
            | Body::Labelled { .. }
            | Body::Stopped { .. } => {}
        }
    }

    /// The same state once more, from which a test goes on in another way. Between two inputs nothing else is in it.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn twin(&self) -> Kernel<P>
    where
        P: Clone,
    {
        Kernel {
            table: self.table.clone(),
            globals: self.globals.clone(),
            config: Arc::clone(&self.config),
            policy: self.policy.clone(),
            role_grants: self.role_grants.clone(),
            applied: Applied::default(),
            to_run: self.to_run.clone(),
            unrecovered: self.unrecovered.clone(),
            measured: self.measured.clone(),
            ..*self
        }
    }

    /// The last entry it has lived through.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.globals.lsn
    }

    /// When that was.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.globals.at
    }

    /// The pid the next process will have.
    #[must_use]
    pub fn next_pid(&self) -> Pid {
        Pid(self.globals.last_pid + 1)
    }

    /// When something is next due by time alone: then a [`Body::Tick`] is wanted.
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        let now = self.globals.at;
        let config = Arc::clone(&self.config);
        let slots = self.globals.scheduler.waited_for().into_iter().filter_map(|model| {
            let spec = config.models.get(&model)?;
            self.globals.scheduler.due(&model, &spec.limits, now)
        });
        let slots = slots.min();
        let due = self.globals.due.first().map(|(at, _)| *at);
        [slots, due].into_iter().flatten().min()
    }

    /// A picture of now, for the store. Pages that did not change since the last one are left out.
    #[must_use]
    pub fn checkpoint(&mut self) -> Checkpoint {
        let (pages, removed) = self.table.take_changes();
        Checkpoint {
            lsn: self.globals.lsn,
            globals: postcard::to_stdvec(&(PAGE_FORMAT, &self.globals)).expect("globals are plain data"),
            pages,
            removed,
        }
    }

    /// Puts processes out of memory that have been idle since `before` and whose pages are durable.
    pub fn evict(&mut self, before: Lsn) {
        self.table
            .evict(before, |process| !matches!(process.phase, Phase::Idle | Phase::Exited | Phase::Waiting { .. }));
    }

    /// Processes held in memory.
    #[must_use]
    pub fn resident(&self) -> usize {
        self.table.resident_len()
    }

    /// What the daemon was made of when it was last looked at.
    #[must_use]
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The configuration that holds.
    #[must_use]
    pub fn config(&self) -> &Arc<Configured> {
        &self.config
    }

    /// The policy that holds.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    fn configure(&mut self, config: &Configured) {
        let mounted = self.mounted_to_watchers();
        self.adopt(config);
        self.watch_what_is_mounted(mounted);
    }

    /// The same where no watch has begun yet.
    fn adopt(&mut self, config: &Configured) {
        self.globals.config = serde_json::to_string(config).expect("the configuration is plain data");
        let before = self.policy.generation().to_owned();
        let fetching = self.fetching();
        self.take_config(config.clone());
        self.labels_stay(fetching);
        if self.policy.generation() != before {
            self.perform(Effect::Policy(self.policy.clone()));
            self.questions_are_over();
        }
        // Purses are filled anew by what holds now.
        self.put_back_all();
        // A slot may have become free, a model may have come back; who waited is looked at by `schedule`, and so is
        // whoever waits for a day with more money.
        self.freed = true;
    }

    fn take_config(&mut self, config: Configured) {
        // The edge has checked it; what does not parse here denies everything.
        let policy = Policy::parse(&config.policy).unwrap_or_else(|_| Policy::deny_all());
        self.policy = policy.away_from(config.listens.map(Listens));
        self.role_grants.clear();
        self.config = Arc::new(config);
    }

    fn model(&self, name: &str) -> Option<ModelSpec> {
        self.config.models.get(name).cloned()
    }

    /// Appends a fact.
    fn fact(&mut self, pid: Pid, body: Body) -> Lsn {
        let lsn = self.globals.lsn.next();
        self.globals.lsn = lsn;
        let cause = self.applied.entries.first().map(|input| input.lsn);
        self.applied.entries.push(Arc::new(Entry { lsn, at: self.globals.at, pid, cause, body }));
        lsn
    }

    /// Numbers an effect.
    fn effect_id(&mut self) -> EffectId {
        let cause = self.applied.entries.first().map_or(self.globals.lsn, |input| input.lsn);
        let id = EffectId { cause, nth: self.nth };
        self.nth += 1;
        id
    }

    fn perform(&mut self, effect: Effect) {
        self.applied.effects.push(effect);
    }

    /// An entry of the input under way, as something to show: with its tokens, estimated.
    fn as_notice(&self, lsn: Lsn) -> Notice {
        let first = self.applied.entries.first().map_or(0, |entry| entry.lsn.0);
        let index = usize::try_from(lsn.0.saturating_sub(first)).unwrap_or(usize::MAX);
        let bytes = self.applied.entries.get(index).map_or(0, |entry| aos_context::item_bytes(entry));
        let tokens = u32::try_from(aos_context::estimate(bytes)).unwrap_or(u32::MAX);
        Notice { lsn, tokens, labels: Labels::NONE }
    }

    /// Changes a process and keeps every index over it in step. `None` where there is no such process.
    fn with<R>(&mut self, pid: Pid, change: impl FnOnce(&mut Process) -> R) -> Option<R> {
        let process = self.table.get_mut(pid)?;
        let broke = |process: &Process| matches!(process.phase, Phase::Broke { .. });
        let (state, due, was_broke) = (process.state(), process.due, broke(process));
        let result = change(process);
        // Half of it is done: the indexes are not in step.
        #[cfg(feature = "faults")]
        fault::count_down(&mut self.fails_after);
        let (state_now, due_now, is_broke) = (process.state(), process.earliest_due(), broke(process));
        process.due = due_now;
        if state != state_now {
            self.globals.counts[state as usize] -= 1;
            self.globals.counts[state_now as usize] += 1;
        }
        match (was_broke, is_broke) {
            (false, true) => _ = self.globals.broke.insert(pid),
            (true, false) => _ = self.globals.broke.remove(&pid),
            _ => {}
        }
        if due != due_now {
            if let Some(due) = due {
                self.globals.due.remove(&(due, pid));
            }
            if let Some(due) = due_now {
                self.globals.due.insert((due, pid));
            }
        }
        Some(result)
    }

    /// Puts a new process into the table and every index.
    fn enter(&mut self, process: Process) {
        let pid = process.pid;
        self.globals.last_pid = self.globals.last_pid.max(pid.0);
        self.globals.counts[process.state() as usize] += 1;
        if let Some(name) = &process.name {
            self.globals.names.insert(name.clone(), pid);
        }
        if let Some(group) = &process.group {
            self.globals.groups.entry(group.clone()).or_default().insert(pid);
        }
        if process.root != pid {
            *self.globals.trees.entry(process.root).or_default() += 1;
        }
        self.table.insert(process);
        self.with(pid, |_| ());
    }
}

/// A failed outcome.
fn failure(error: CallError) -> Outcome {
    Outcome::Error { error }
}

/// No such process, to one that named it: the command line is not there for agents.
fn no_peer(pid: Pid) -> CallError {
    CallError::new(Code::Srch, format!("no process {pid}")).hint("a pid comes from SPAWN_AGENT, WAIT or a message")
}

/// No such process.
#[must_use]
pub fn no_process(pid: Pid) -> CallError {
    let message = match pid {
        Pid::SYSTEM => "no process 0: that number stands for the daemon itself".to_owned(),
        Pid::INIT => "no process 1: that number stands for you, the parent of all that you start".to_owned(),
        pid => format!("no process {pid}"),
    };
    CallError::new(Code::Srch, message).hint(match pid {
        Pid::SYSTEM | Pid::INIT => "`aos ps` lists the processes; `aos down` stops the daemon",
        _ => "`aos ps -a` lists every process",
    })
}
