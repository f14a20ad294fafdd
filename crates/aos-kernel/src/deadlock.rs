//! Wait cycles: agents that wait for each other for ever are found and told.
//!
//! The model is the communication ("OR") deadlock of Chandy, Misra and Haas (1983): a process that waits can go on if
//! any of those it waits for does something, so it waits for ever exactly when nobody reachable over "can wake" is at
//! work. Persons, time, webhooks and watches count as somebody at work. A wait that is wrongly called endless is worse
//! than one that goes on, so whoever may send to one that listens counts, and what would take too long to look at
//! counts as at work.

use std::collections::BTreeSet;

use aos_abi::entry::Verdict;
use aos_abi::process::State;
use aos_abi::syscall::SendMsg;
use aos_abi::{CallError, Code, Name, Pid, Syscall};

use crate::Kernel;
use crate::process::{Phase, Process, Wait};
use crate::table::PageStore;

/// Processes looked at before giving up: beyond, the check would cost more than it is worth at every wait.
const REACH_MAX: usize = 512;

impl<P: PageStore> Kernel<P> {
    /// Looks for a cycle that has just been closed by `pid`, and tells the first of it.
    pub(crate) fn find_deadlock(&mut self, pid: Pid) {
        let mut seen = BTreeSet::from([pid]);
        let mut next = vec![pid];
        loop {
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
            // Only now, since it looks at everybody.
            let Some(senders) = self.senders_to(&seen) else { return };
            next.extend(senders.into_iter().filter(|sender| seen.insert(*sender)));
            if next.is_empty() {
                break;
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
            Some(Phase::Writing(_)) => "room in a pipe".into(),
            _ => "a message".into(),
        };
        format!("{pid} waits for {what}")
    }

    /// Whoever else may send a message to one of these that listens, from anywhere in the system; `None` where that is too
    /// much to look at.
    fn senders_to(&mut self, seen: &BTreeSet<Pid>) -> Option<Vec<Pid>> {
        let mut listeners = Vec::new();
        for pid in seen {
            if let Some(process) = self.table.get(*pid)
                && matches!(process.phase, Phase::Idle | Phase::Waiting { wait: Wait::Message, .. })
            {
                listeners.push((*pid, process.name.clone()));
            }
        }
        if listeners.is_empty() {
            return Some(Vec::new());
        }
        let living: Vec<Pid> =
            self.table.resident().filter(|process| !process.exited()).map(|process| process.pid).collect();
        let counts = State::ALL.iter().filter(|state| **state != State::Exited);
        let all: u64 = counts.map(|state| self.globals.counts[*state as usize]).sum();
        if living.len() as u64 != all || living.len() > REACH_MAX {
            return None;
        }
        let others = living.into_iter().filter(|pid| !seen.contains(pid));
        Some(others.filter(|pid| self.may_send(*pid, &listeners)).collect())
    }

    /// Whether the policy lets a process send a message to any of these.
    fn may_send(&mut self, pid: Pid, listeners: &[(Pid, Option<String>)]) -> bool {
        if !self.calls_of(pid).contains(Name::SendMsg) {
            return false;
        }
        let Some(process) = self.table.get(pid) else { return false };
        let allowed = |to_pid, to| {
            let message = SendMsg { to_pid, to, content: String::new(), attachments: None };
            self.policy.explain(&process.subject(), &Syscall::SendMsg(message)).verdict > Verdict::Deny
        };
        listeners.iter().any(|(to, name)| allowed(Some(*to), None) || name.is_some() && allowed(None, name.clone()))
    }

    /// Who could wake this process, beside those who may send it messages; `None` where it is at work, or somebody outside
    /// could.
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
            Phase::Writing(_) => process.pipe_to.map(|reader| vec![reader]),
            // A person may well be about to speak to what a person started.
            Phase::Idle | Phase::Waiting { wait: Wait::Message | Wait::Stdin, .. } if of_a_person => None,
            Phase::Idle | Phase::Waiting { wait: Wait::Message | Wait::Stdin, .. } => {
                let listens = !matches!(process.phase, Phase::Waiting { wait: Wait::Message, .. });
                let (parent, sources) = (process.parent, if listens { process.pipe_sources } else { 0 });
                let siblings =
                    self.table.get(parent).map(|parent: &Process| parent.children.clone()).unwrap_or_default();
                let mut wakers: Vec<Pid> = siblings.into_iter().chain(children).filter(|other| *other != pid).collect();
                wakers.retain(|other| self.table.get(*other).is_some_and(|process| !process.exited()));
                wakers.push(parent);
                if sources > 0 {
                    let piped = |process: &&Process| process.pipe_to == Some(pid) && !process.exited();
                    let writers: Vec<Pid> = self.table.resident().filter(piped).map(|process| process.pid).collect();
                    if writers.len() < sources as usize {
                        return None;
                    }
                    wakers.extend(writers);
                }
                Some(wakers)
            }
            Phase::Waiting { wait: Wait::Sleep | Wait::Person | Wait::Approval(_), .. }
            | Phase::Ready
            | Phase::Inferring(_)
            | Phase::Calling
            | Phase::Backoff(_)
            | Phase::Broke { .. }
            | Phase::Exited => None,
        }
    }
}
