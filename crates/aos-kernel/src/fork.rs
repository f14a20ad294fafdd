//! Forks: a process that has lived through the same as another one.
//!
//! Start at [`Kernel::past`]: what of a living process a fork would have. What always holds: a fork has nothing that has one
//! owner, and it is the person's, not its origin's; what its origin carried it carries.

use aos_abi::entry::WindowItem;
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec};
use aos_abi::{CallError, Code, Lsn, Pid, Usd};
use aos_context::ItemKind;
use aos_policy::Grants;

use crate::budget::Dimension;
use crate::process::{CallState, Notice, Phase, Process};
use crate::table::PageStore;
use crate::{Kernel, no_process};

impl<P: PageStore> Kernel<P> {
    /// The window of a living process with all that has come since, read or not, in the order in which its next turn would
    /// have it; `None` for one that has ended, whose window is only in the journal.
    pub fn past(&mut self, pid: Pid) -> Option<Vec<WindowItem>> {
        self.table.get(pid).filter(|process| !process.exited()).map(Process::past)
    }

    /// Whether a living process has nothing to do: it waits for something to come.
    pub fn rests(&mut self, pid: Pid) -> bool {
        self.table
            .get(pid)
            .is_some_and(|process| matches!(process.phase, Phase::Idle) && process.news().next().is_none())
    }

    /// What a fork of this process would be: with its rights and its limits.
    ///
    /// # Errors
    /// `ESRCH` where there is none.
    pub fn fork_of(&mut self, from: Pid) -> Result<SpawnSpec, CallError> {
        let process = self.table.get(from).ok_or_else(|| no_process(from))?;
        if process.mode == Mode::Program {
            return Err(CallError::new(
                Code::Inval,
                format!("process {from} is a program's key and has no past to fork"),
            ));
        }
        if process.chain.iter().any(Grants::are_of_a_dry_run) {
            return Err(CallError::new(Code::Inval, format!("process {from} is a dry run and works on a copy"))
                .hint("begin anew: aos run --dry-run, or without it"));
        }
        let started_at = process.started_at;
        let wall_s = process.budget.ends_at.map(|end| end.millis_since(started_at).div_ceil(1000));
        let pid = Pid(self.globals.last_pid + 1);
        let mut spec = SpawnSpec {
            policy_role: Some(process.policy_role.clone()).filter(|role| !role.is_empty()),
            priority: process.priority,
            group: process.group.clone(),
            // The nearest grants lie within all above them, so they alone say what it may do.
            grants: process.chain.first().map(Grants::texts),
            // The person forks it, so it is the person's: outside the tree of the first one, with that one's grants.
            ..SpawnSpec::resident(pid, process.role.clone(), process.course.asked.clone())
        };
        // What held for its origin, of which it has used nothing yet.
        let mut limit = |dimension| self.limiting(from, dimension)?.limit;
        let (tokens, calls) = (limit(Dimension::Tokens), limit(Dimension::Calls));
        spec.budget = BudgetSpec { usd: limit(Dimension::Usd).map(Usd), tokens, calls, wall_s };
        Ok(spec)
    }

    /// A process made from another one's past: its window, and nothing that has one owner.
    pub(crate) fn forked(&mut self, pid: Pid, from: Pid, spec: &SpawnSpec, window: &[WindowItem], rests: bool) {
        let mut process = self.embryo(pid, spec);
        process.origin = Some(from);
        if let Some(first) = self.table.get(from) {
            process.title.clone_from(&first.title);
            process.vouched = first.vouched;
            process.words.clone_from(&first.words);
            process.named.clone_from(&first.named);
            process.questions.clone_from(&first.questions);
        }
        *self.globals.origins.entry(from).or_default() += 1;
        for item in window {
            process.window.push(item.lsn, item.tokens, item.kind);
        }
        let goes_on = !window.is_empty() && !rests;
        self.enter(process);
        self.labels_of_copy(pid, Some(from), None);
        // What has come is in its past, read or not.
        let labels = self.table.get(from).map(Process::labels_to_come).unwrap_or_default();
        self.learns(pid, labels);
        if goes_on {
            self.want_turn(pid);
        }
    }
}

impl Process {
    fn past(&self) -> Vec<WindowItem> {
        let mut past: Vec<WindowItem> = self
            .window
            .items()
            .map(|item| WindowItem { lsn: item.lsn, tokens: item.tokens, kind: item.kind })
            .collect();
        // The results of a step enter its window together, once all are there.
        let known: Vec<Lsn> = past.iter().map(|item| item.lsn).collect();
        past.extend(self.step.iter().filter_map(|call| match call.state {
            CallState::Done(lsn, tokens) if !known.contains(&lsn) => {
                Some(WindowItem { lsn, tokens, kind: ItemKind::Result })
            }
            CallState::Done(..) | CallState::Queued | CallState::Waiting | CallState::Running(_) => None,
        }));
        let mut news: Vec<&Notice> = self.news().collect();
        news.sort_by_key(|notice| notice.lsn);
        past.extend(news.into_iter().map(|notice| WindowItem {
            lsn: notice.lsn,
            tokens: notice.tokens,
            kind: ItemKind::User,
        }));
        past
    }
}
