//! Groups of processes, and whom a signal reaches.
//!
//! Start at [`Kernel::signal_group`] for a person's signal and at [`Kernel::reach`] for an agent's. What always holds: a
//! process is in at most one group, its parent's where nothing else was said, and leaves it when it ends; a group is nothing
//! but its living members, and to be in it gives no right; an agent's signal reaches what is below it, and others where the
//! policy lets it without asking anybody.

use aos_abi::entry::Verdict;
use aos_abi::syscall::Kill;
use aos_abi::{Body, CallError, Code, Name, Pid, Signal, Syscall};

use crate::Kernel;
use crate::process::Process;
use crate::table::PageStore;

/// What the policy has to know of a call beside its arguments.
#[derive(Debug)]
pub(crate) struct About {
    /// Its name.
    pub(crate) name: Name,
    /// See [`aos_policy::Subject::reaches`].
    pub(crate) reaches: Option<Vec<String>>,
}

impl About {
    /// Of one whose arguments say everything, or where nobody asks whom it reaches.
    pub(crate) fn of(name: Name) -> About {
        About { name, reaches: None }
    }
}

/// Whom a signal to a group reaches, in order of pids.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// These.
    pub(crate) signalled: Vec<Pid>,
    /// Members that it does not reach, where the process is granted any that are not below it.
    pub(crate) left_out: Vec<Pid>,
    /// Those of `signalled` that are not below the process, as the policy knows them.
    others: Vec<String>,
}

impl<P: PageStore> Kernel<P> {
    /// What the policy has to know of a call.
    pub(crate) fn about(&mut self, pid: Pid, call: &Syscall) -> About {
        let reaches = match call {
            Syscall::Kill(Kill { pid: Some(to), group: None, .. }) => {
                Some(self.stranger(pid, *to).into_iter().collect())
            }
            Syscall::Kill(Kill { pid: None, group: Some(group), signal }) => {
                Some(self.reach(pid, group, *signal).others)
            }
            _ => None,
        };
        About { name: call.name(), reaches }
    }

    /// What another process is to the policy: its name, or its pid where it has none. `None` where no grant is about it:
    /// it is below `pid` or `pid` itself, or nobody may signal it.
    fn stranger(&mut self, pid: Pid, to: Pid) -> Option<String> {
        let process = self.table.get(to).filter(|process| !process.exited() && !process.is_program())?;
        let word = process.name.clone().unwrap_or_else(|| to.to_string());
        (!self.descends_from(to, pid)).then_some(word)
    }

    pub(crate) fn descends_from(&mut self, pid: Pid, ancestor: Pid) -> bool {
        let mut at = pid;
        while at != ancestor {
            match self.table.get(at) {
                Some(process) if process.parent > Pid::INIT => at = process.parent,
                _ => return false,
            }
        }
        true
    }

    /// Whom an agent's signal to a group reaches; never itself. Others are looked at only where it is granted any.
    pub(crate) fn reach(&mut self, pid: Pid, group: &str, signal: Option<Signal>) -> Reach {
        // What a call without one means, here and where it is sent.
        let signal = Some(signal.unwrap_or(Signal::Term));
        let granted = self.judge(pid, About::of(Name::Kill), |policy, subject| policy.signals_others(subject));
        let mut reach = Reach::default();
        if granted != Some(true) {
            let below = self.below(pid);
            let is_member = |process: &Process| process.group.as_deref() == Some(group);
            reach.signalled = below.into_iter().filter(|to| self.table.get(*to).is_some_and(is_member)).collect();
            reach.signalled.sort_unstable();
            return reach;
        }
        for to in self.members(group).into_iter().filter(|to| *to != pid) {
            match self.stranger(pid, to) {
                None => reach.signalled.push(to),
                Some(word) if self.may_signal(pid, to, signal, &word) => {
                    reach.signalled.push(to);
                    reach.others.push(word);
                }
                Some(_) => reach.left_out.push(to),
            }
        }
        reach
    }

    /// Whether a process may signal another one without a question; by its pid, as any approval or rate would count it.
    fn may_signal(&mut self, pid: Pid, to: Pid, signal: Option<Signal>, word: &str) -> bool {
        let call = Syscall::Kill(Kill { pid: Some(to), group: None, signal });
        let about = About { name: Name::Kill, reaches: Some(vec![word.to_owned()]) };
        let said = self.judge(pid, about, |policy, subject| policy.explain(subject, &call));
        said.is_some_and(|said| said.verdict == Verdict::Allow)
    }

    /// Whom a signal reaches that a person is asked about, in words.
    pub(crate) fn reached_by_now(&mut self, pid: Pid, args: &Kill) -> Option<String> {
        if let Some(group) = &args.group {
            let reached = self.reach(pid, group, args.signal).signalled;
            let pids: Vec<String> = reached.iter().map(ToString::to_string).collect();
            return Some(format!("of the group `{group}` it reaches {} by now", listed(&pids)));
        }
        let process = self.table.get(args.pid?)?;
        let name = process.name.as_ref().map_or_else(|| format!("{:?}", process.title), |name| format!("`{name}`"));
        Some(format!("process {} is {name}, started by process {}", process.pid, process.parent))
    }

    /// The living members of a group.
    fn members(&self, group: &str) -> Vec<Pid> {
        self.globals.groups.get(group).map(|members| members.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether a group has a living member.
    pub(crate) fn check_members(&self, group: &str) -> Result<(), CallError> {
        if self.globals.groups.contains_key(group) {
            return Ok(());
        }
        let message = format!("no process of a group `{group}` lives");
        Err(CallError::new(Code::Srch, message).hint("`aos ps --json` shows the group of each"))
    }

    /// A process has ended.
    pub(crate) fn leaves(&mut self, pid: Pid, group: &str) {
        let is_empty = self.globals.groups.get_mut(group).is_some_and(|members| {
            members.remove(&pid);
            members.is_empty()
        });
        if is_empty {
            self.globals.groups.remove(group);
        }
    }

    /// Whom a person's signal to a group reaches: every member, with `tree` all below them too. In order of pids.
    pub fn reached(&mut self, group: &str, tree: bool) -> Vec<Pid> {
        let mut reached = self.members(group);
        if tree {
            let below: Vec<Pid> = reached.iter().flat_map(|member| self.below(*member)).collect();
            reached.extend(below);
            reached.sort_unstable();
            reached.dedup();
        }
        reached
    }

    /// A person's signal to a group.
    pub(crate) fn signal_group(&mut self, group: &str, signal: Signal, tree: bool) {
        // Taken before anything happens: nobody may leave, or be born into it, in between.
        let reached = self.reached(group, tree);
        if signal == Signal::Kill {
            reached.iter().for_each(|pid| self.freeze(*pid));
        }
        for pid in reached {
            self.works_on(pid);
            if self.table.get(pid).is_some_and(|process| !process.exited()) {
                let lsn = self.fact(pid, Body::Signal { signal, from_pid: Pid::INIT, tree: false });
                self.signal(pid, signal, lsn);
            }
        }
    }
}

fn listed(pids: &[String]) -> String {
    if pids.is_empty() { "nobody".to_owned() } else { format!("process {}", pids.join(", ")) }
}
