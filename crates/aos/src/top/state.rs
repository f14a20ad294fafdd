//! What `aos top` knows.
//!
//! Start at [`State`]. What always holds: it is bounded, whatever the daemon sends: [`EVENTS_MAX`] lines for a process and
//! [`EXITED_MAX`] processes that have ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::process::{DayView, ProcessView, SlotView, State as ProcessState};
use aos_abi::{Lsn, Pid, Timestamp};

use crate::cli::Change;

/// Latest events kept of one process.
pub(super) const EVENTS_MAX: usize = 50;
/// Ended processes that are still shown.
pub(super) const EXITED_MAX: usize = 200;
/// The span over which tokens a second are counted, in milliseconds.
pub(super) const RATE_MS: u64 = 10_000;

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Pid,
    State,
    Model,
    Calls,
    Tokens,
    Cost,
    Left,
    Age,
    Name,
}

impl Sort {
    pub(super) const ALL: [Sort; 9] =
        [Sort::Pid, Sort::State, Sort::Model, Sort::Calls, Sort::Tokens, Sort::Cost, Sort::Left, Sort::Age, Sort::Name];

    pub(super) fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    pub(super) fn head(self) -> &'static str {
        match self {
            Sort::Pid => "PID",
            Sort::State => "STATE",
            Sort::Model => "MODEL",
            Sort::Calls => "CALLS",
            Sort::Tokens => "TOKENS",
            Sort::Cost => "COST",
            Sort::Left => "LEFT",
            Sort::Age => "AGE",
            Sort::Name => "NAME",
        }
    }
}

/// What stands over the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The keys.
    Help,
    /// Whether to end a process.
    Kill(Pid),
    /// A filter is typed.
    Filter,
    /// A proposal, whole, from this line on: what is answered has been shown.
    Proposal { id: String, from: usize },
    /// What was denied; which of it is chosen.
    Denials { at: usize },
    /// One of that, whole, from this line on.
    Denial { id: String, from: usize },
    /// What a yes to one for its role would change, from this line on.
    Change { shown: Grant, from: usize },
    /// What can be taken back; which of it is chosen.
    Undo { at: usize },
    /// What taking one back would do, from this line on.
    Undoing { shown: Preview, from: usize },
    /// A reason for a rejection, or for dismissing a denial, is typed.
    Reject { id: String, why: String },
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) pid: Pid,
    pub(super) call: String,
    /// The rule that asks, or denies.
    pub(super) rule: String,
    /// Everything that one should know before one answers, a line each: what it does, why, and what it is bound to.
    pub(super) shown: Vec<String>,
    /// What the daemon names that by: a yes is to nothing else.
    pub(super) shown_as: String,
}

/// A call that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) what: Waiting,
    /// The narrowest grants that would let it pass.
    pub(super) wants: String,
    pub(super) until: Timestamp,
    /// A person has lifted it, and the call was not made since.
    pub(super) lifted: bool,
    /// Its role alone has no rule for it: a yes can be for the process, or for the role.
    pub(super) of_role: bool,
    /// Something is known of what could go wrong.
    pub(super) risky: bool,
    /// No yes lifts it.
    pub(super) closed: bool,
}

impl Denial {
    /// The word for where it stands, that of `aos proposals`.
    pub(super) fn state(&self) -> &'static str {
        if self.lifted { "approved" } else { "denied" }
    }
}

/// What a yes for the role changes in policy.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) change: Change,
    pub(super) lines: Vec<String>,
}

/// A change that can be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Undoable {
    pub(super) id: String,
    pub(super) pid: Pid,
    pub(super) call: String,
    pub(super) until: Timestamp,
}

/// What taking a change back would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preview {
    pub(super) id: String,
    /// Its place in the list.
    pub(super) at: usize,
    pub(super) lines: Vec<String>,
    /// Nothing stands against it.
    pub(super) may: bool,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) processes: BTreeMap<Pid, ProcessView>,
    pub(super) events: BTreeMap<Pid, VecDeque<String>>,
    /// Of whom `events` has what came before this view was opened, too.
    pub(super) told: BTreeSet<Pid>,
    pub(super) slots: BTreeMap<String, SlotView>,
    pub(super) waiting: Vec<Waiting>,
    /// What was denied: what a person may lift, or has lifted for a call that was not made yet, and then what no yes lifts.
    pub(super) denied: Vec<Denial>,
    /// What can be taken back, the newest first; `None`: it was not read since somebody last wanted to see it.
    pub(super) undoable: Option<Vec<Undoable>>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    pub(super) selected: Option<Pid>,
    pub(super) over: Option<Over>,
    pub(super) said: Option<String>,
    pub(super) lost: bool,
    pub(super) now: Timestamp,
    pub(super) lsn: Lsn,
    /// How many have ended, also those that are not shown; and up to where that and `today` are counted.
    pub(super) exited: u64,
    pub(super) counted: Lsn,
    /// What everything together has cost on this day, and may cost.
    pub(super) today: DayView,
    pub(super) version: String,
    pub(super) spent: VecDeque<(Timestamp, u64)>,
    /// Columns and rows of the terminal.
    pub(super) size: (u16, u16),
    /// A proposal came of which only the call is known; they should be read.
    pub(super) unread: bool,
    /// Something changed since the last frame.
    pub(super) changed: bool,
    /// Events may have said less than the table does; it should be read again.
    pub(super) stale: bool,
    view: Vec<Pid>,
    /// What the last frame showed whole of a proposal or denial, see [`Waiting::shown_as`]; and of which it was.
    seen: (String, Vec<String>),
}

impl State {
    /// The processes in the order and with the filter of the person.
    pub(super) fn view(&self) -> &[Pid] {
        &self.view
    }

    /// Brings the order up to date, the selection into it, and what is seen. Before each frame, not after each event.
    pub(super) fn settle(&mut self) {
        let filter = self.filter.to_lowercase();
        let fits = |process: &ProcessView| {
            filter.is_empty()
                || process.name.to_lowercase().contains(&filter)
                || process.model.to_lowercase().contains(&filter)
                || process.state.as_str().contains(&filter)
                || process.pid.to_string() == filter
        };
        let mut rows: Vec<&ProcessView> = self.processes.values().filter(|process| fits(process)).collect();
        let tokens = |process: &ProcessView| process.usage.input_tokens + process.usage.output_tokens;
        match self.sort {
            Sort::Pid => {}
            Sort::State => rows.sort_by_key(|process| (activity(process.state), process.pid)),
            Sort::Model => rows.sort_by(|a, b| a.model.cmp(&b.model)),
            Sort::Calls => rows.sort_by_key(|process| std::cmp::Reverse(process.usage.syscalls)),
            Sort::Tokens => rows.sort_by_key(|process| std::cmp::Reverse(tokens(process))),
            Sort::Cost => rows.sort_by_key(|process| std::cmp::Reverse(process.usage.cost_usd)),
            Sort::Left => rows.sort_by_key(|process| process.budget.usd_left.map_or(u64::MAX, |left| left.0)),
            Sort::Age => rows.sort_by_key(|process| process.started_at),
            Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        if self.reversed {
            rows.reverse();
        }
        self.seen = self.over_whole().map(|one| (one.shown_as.clone(), self.alike(one))).unwrap_or_default();
        let before = self.selected.and_then(|pid| self.view.iter().position(|other| *other == pid)).unwrap_or(0);
        self.view = rows.into_iter().map(|process| process.pid).collect();
        if !self.selected.is_some_and(|pid| self.view.contains(&pid)) {
            self.selected = self.view.get(before.min(self.view.len().saturating_sub(1))).copied();
        }
    }

    /// The selected process.
    pub(super) fn selected(&self) -> Option<&ProcessView> {
        self.processes.get(&self.selected?)
    }

    /// A proposal that waits.
    pub(super) fn waiting(&self, id: &str) -> Option<&Waiting> {
        self.waiting.iter().find(|waiting| waiting.id == id)
    }

    /// A denial that is not over.
    pub(super) fn denial(&self, id: &str) -> Option<&Denial> {
        self.denied.iter().find(|denial| denial.what.id == id)
    }

    /// What stands whole over the table, to be answered.
    pub(super) fn over_whole(&self) -> Option<&Waiting> {
        match self.over.as_ref()? {
            Over::Proposal { id, .. } => self.waiting(id),
            Over::Denial { id, .. } => self.denial(id).map(|denial| &denial.what),
            _ => None,
        }
    }

    /// Whether the last frame showed it whole as it is known now: nothing is said yes to that came after that.
    pub(super) fn has_seen(&self, one: &Waiting) -> bool {
        !one.shown.is_empty() && self.seen.0 == one.shown_as
    }

    /// Those of its tree that ask the same in the same words, by the same rule, by id: it itself, and whatever else one look
    /// shows as well. Each has an answer of its own.
    pub(super) fn alike(&self, one: &Waiting) -> Vec<String> {
        let same = |other: &&Waiting| {
            !other.shown_as.is_empty()
                && (&other.shown_as, &other.rule) == (&one.shown_as, &one.rule)
                && self.root(other.pid) == self.root(one.pid)
        };
        self.waiting.iter().filter(same).map(|other| other.id.clone()).collect()
    }

    /// The same, as the last frame showed them.
    pub(super) fn seen_alike(&self) -> &[String] {
        &self.seen.1
    }

    /// The first of a tree, below the person. A parent is older than its children, so this ends.
    fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.processes.get(pid).map(|process| process.parent).filter(|parent| parent < pid);
        std::iter::successors(Some(pid), parent).filter(|pid| *pid != Pid::INIT).last().unwrap_or(pid)
    }

    /// How many denials nobody has answered.
    pub(super) fn denied(&self) -> usize {
        self.denied.iter().filter(|denial| !denial.lifted).count()
    }

    /// How many processes are in a state.
    pub(super) fn count(&self, state: ProcessState) -> u64 {
        match state {
            ProcessState::Exited => self.exited,
            living => self.processes.values().filter(|process| process.state == living).count() as u64,
        }
    }

    /// How many wait for an answer of a person.
    pub(super) fn questions(&self) -> usize {
        self.processes.values().filter(|process| process.question.is_some()).count()
    }

    /// Tokens in and out in a second, over the last ten.
    pub(super) fn rate(&self) -> u64 {
        let recent = self.spent.iter().filter(|(at, _)| self.now.millis_since(*at) < RATE_MS);
        recent.map(|(_, tokens)| tokens).sum::<u64>() * 1_000 / RATE_MS
    }
}

/// The busiest first.
fn activity(state: ProcessState) -> u8 {
    match state {
        ProcessState::Running => 0,
        ProcessState::Ready => 1,
        ProcessState::Stopped => 2,
        ProcessState::Blocked => 3,
        ProcessState::Sleeping => 4,
        ProcessState::Exited => 5,
    }
}
