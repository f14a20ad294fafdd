//! Wait cycles: agents that wait for each other for ever are found and told.
//!
//! The model is the communication ("OR") deadlock of Chandy, Misra and Haas (1983): a process that waits can go on if
//! any of those it waits for does something, so it waits for ever exactly when nobody reachable over "can wake" is at
//! work. Persons, time, webhooks and watches count as somebody at work.

use std::collections::BTreeSet;

use aos_abi::{CallError, Code, Pid};

use crate::Kernel;
use crate::process::{Phase, Process, Wait};
use crate::table::PageStore;

/// Processes looked at before giving up: beyond, the check would cost more than it is worth at every wait.
const REACH_MAX: usize = 512;

impl<P: PageStore> Kernel<P> {
    /// Looks for a cycle that has just been closed by `pid`, and tells the one nearest to the root.
    pub(crate) fn find_deadlock(&mut self, pid: Pid) {
        let mut seen = BTreeSet::from([pid]);
        let mut next = vec![pid];
        while let Some(at) = next.pop() {
            let Some(wakers) = self.wakers(at) else { return };
            for waker in wakers {
                if seen.len() >= REACH_MAX {
                    return;
                }
                if seen.insert(waker) {
                    next.push(waker);
                }
            }
        }
        let told = seen
            .iter()
            .copied()
            .find(|pid| self.table.get(*pid).is_some_and(|process| matches!(process.phase, Phase::Waiting { .. })));
        let Some(told) = told else { return };
        let cycle: Vec<String> = seen.iter().map(|pid| self.waits_in_words(*pid)).collect();
        let error = CallError::new(Code::DeadLk, format!("this wait would never end: {}", cycle.join("; ")))
            .hint("send one of them what it waits for, or wait with `timeout_s`");
        self.resolve(told, Err(error));
    }

    fn waits_in_words(&mut self, pid: Pid) -> String {
        let what = match self.table.get(pid).map(|process| &process.phase) {
            Some(Phase::Waiting { wait: Wait::Child(Some(child)), .. }) => format!("the end of {child}"),
            Some(Phase::Waiting { wait: Wait::Child(None), .. }) => "the end of a child".into(),
            Some(Phase::Waiting { wait: Wait::Stdin, .. }) => "standard input".into(),
            _ => "a message".into(),
        };
        format!("{pid} waits for {what}")
    }

    /// Who could wake this process; `None` where it is at work, or somebody outside could.
    fn wakers(&mut self, pid: Pid) -> Option<Vec<Pid>> {
        let process = self.table.get(pid)?;
        let outside = !process.timers.is_empty() || !process.webhooks.is_empty() || !process.watches.is_empty();
        if outside
            || process.stopped.is_some()
            || process.terminating.is_some()
            || process.has_news() && process.phase == Phase::Idle
        {
            return None;
        }
        let ended: BTreeSet<Pid> = process.zombies.iter().map(|zombie| zombie.pid).collect();
        let children: Vec<Pid> = process.children.iter().copied().filter(|child| !ended.contains(child)).collect();
        let of_a_person = process.parent == Pid::INIT;
        match &process.phase {
            Phase::Waiting { until: Some(_), .. } => None,
            Phase::Waiting { wait: Wait::Child(Some(child)), .. } => Some(vec![*child]),
            Phase::Waiting { wait: Wait::Child(None), .. } => Some(children),
            // A person may well be about to speak to what a person started.
            Phase::Idle | Phase::Waiting { wait: Wait::Message | Wait::Stdin, .. } if of_a_person => None,
            Phase::Idle | Phase::Waiting { wait: Wait::Message | Wait::Stdin, .. } => {
                let parent = process.parent;
                let siblings =
                    self.table.get(parent).map(|parent: &Process| parent.children.clone()).unwrap_or_default();
                let live = |table: &mut crate::table::Table<P>, pid: Pid| {
                    table.get(pid).is_some_and(|process| !process.exited())
                };
                let family = siblings.into_iter().chain(children).filter(|other| *other != pid);
                let mut wakers: Vec<Pid> = family.filter(|other| live(&mut self.table, *other)).collect();
                wakers.push(parent);
                Some(wakers)
            }
            Phase::Waiting { wait: Wait::Sleep | Wait::Person | Wait::Approval(_), .. }
            | Phase::Ready
            | Phase::Inferring(_)
            | Phase::Calling
            | Phase::Backoff(_)
            | Phase::Broke(_)
            | Phase::Exited => None,
        }
    }
}
