//! Faults of the kernel: a process over which it fails is set aside, and the system goes on without it.
//!
//! Start at [`Kernel::attempt`]. A fault of ours in one process's state must not end what others do. An attempt that fails
//! leaves a kernel that nobody may use any more; whoever runs it makes it again from the journal, which has nothing of what
//! failed, and asks the new one what to do instead ([`Kernel::instead`]). What always holds: what is journaled was applied
//! without failing, so that a replay meets no fault that is not new; a process that is set aside is due for nothing and
//! starts nothing until a person lets it go on, which tries again, or kills it; each fault sets one more process aside, so
//! that they come to an end.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use aos_abi::entry::{Faulted, ServedOutcome, Unrecovered};
use aos_abi::{Body, CallError, Code, EffectId, Name, Pid, Timestamp};

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::process::{CallState, Phase, Process, StepCall};
use crate::purse::Purse;
use crate::table::{PageStore, StoreFailed};
use crate::{Applied, InFlight, Kernel, outcome};

/// How the reason begins for which a process is stopped that was set aside.
const SET_ASIDE: &str = "faulted: ";
/// How often a start may fail over one process before it is given up.
const TIMES_MAX: usize = 2;
/// Characters of what the fault said that are kept.
const WHY_MAX: usize = 500;

/// The kernel failed over an input: it is not to be used any more.
#[derive(Debug)]
pub struct Fault {
    /// What it worked on. [`Pid::SYSTEM`]: on nobody in particular.
    pub over: Pid,
    /// What the fault said.
    pub why: String,
    /// The input's process.
    pub pid: Pid,
    /// The input.
    pub body: Body,
}

/// What starts have let go of without another look: nobody brings how it ended, and it is not paid yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LetGo {
    effects: BTreeMap<EffectId, InFlight>,
    /// What was set aside ahead, by program.
    pub(crate) purses: BTreeMap<Pid, Purse>,
}

/// What is to be applied in place of an input over which the kernel failed, in order.
#[derive(Debug)]
pub struct Instead {
    /// Sets a process aside.
    pub first: Option<(Pid, Body)>,
    /// The input again, where it may do without that process.
    pub then: Option<(Pid, Body)>,
}

/// What a panic said.
#[must_use]
pub fn words(said: &(dyn Any + Send)) -> String {
    if let Some(StoreFailed { pid, why }) = said.downcast_ref() {
        return format!("page of process {pid}: {why}");
    }
    let words = said.downcast_ref::<String>().map(String::as_str).or(said.downcast_ref::<&str>().copied());
    words.unwrap_or("no reason was given").to_owned()
}

impl Fault {
    /// What whoever asked for the input is told.
    #[must_use]
    pub fn error(&self) -> CallError {
        if self.over <= Pid::INIT {
            let message = format!("the kernel failed over this request: {}", self.why);
            return CallError::new(Code::Io, message)
                .hint("nothing of it was done; the words above are worth a report");
        }
        let message = format!("the kernel failed over process {}, which is set aside: {}", self.over, self.why);
        CallError::new(Code::Io, message).hint(format!(
            "nothing of this was done; `aos resume {0}` lets it try again, `aos kill {0}` ends it",
            self.over
        ))
    }

    /// The effect whose outcome is lost where the input is left out.
    fn lost(&self) -> Option<EffectId> {
        match &self.body {
            Body::InferenceCompleted { effect, .. }
            | Body::Served { effect, .. }
            | Body::Result { effect: Some(effect), .. } => Some(*effect),
            _ => None,
        }
    }
}

impl<P: PageStore> Kernel<P> {
    /// [`Kernel::apply`], where a fault of the kernel's own comes back as one.
    ///
    /// # Errors
    /// With a [`Fault`], after which this kernel is of no more use.
    ///
    /// # Panics
    /// Where a page cannot be read: no kernel could go on.
    pub fn attempt(&mut self, at: Timestamp, pid: Pid, body: Body) -> Result<Applied, Box<Fault>> {
        self.at_work = pid;
        let said = match catch_unwind(AssertUnwindSafe(|| self.apply(at, pid, body))) {
            Ok(applied) => return Ok(applied),
            Err(said) if said.is::<StoreFailed>() => resume_unwind(said),
            Err(said) => said,
        };
        let why = words(&*said).chars().take(WHY_MAX).collect();
        // The first thing that applying does is to make its entry.
        let input = self.applied.entries.first().expect("an input under way has its entry");
        Err(Box::new(Fault { over: self.at_work, why, pid: input.pid, body: input.body.clone() }))
    }

    /// What is to be applied instead, by a kernel that was made again and stands just before the input.
    ///
    /// # Errors
    /// With the fault, where there is nobody that can be set aside for it: the daemon cannot go on.
    pub fn instead(&mut self, fault: Box<Fault>) -> Result<Instead, Box<Fault>> {
        let mut can = |pid: Pid| {
            self.table.get(pid).is_some_and(|process| !process.exited() && !process.is_faulted()).then_some(pid)
        };
        if let Body::Booted { version, configured, mut faulted, last_pid } = fault.body {
            let again = |faulted| (fault.pid, Body::Booted { version, configured, faulted, last_pid });
            // A second time over the same one: what it had under way is let go without another look at it.
            let named = |over: &Pid| faulted.iter().filter(|of| of.pid == *over).count();
            let is_one = self.table.get(fault.over).is_some();
            let over = Some(fault.over).filter(|over| is_one && named(over) < TIMES_MAX);
            let Some(over) = over else {
                let (pid, body) = again(faulted);
                return Err(Box::new(Fault { pid, body, ..*fault }));
            };
            faulted.push(Unrecovered { pid: over, why: fault.why });
            return Ok(Instead { first: None, then: Some(again(faulted)) });
        }
        // It may have failed over another one that the input leads to, which then does without.
        let (over, is_left_out) = match can(fault.over) {
            Some(over) => (Some(over), over == fault.pid),
            None => (can(fault.pid), true),
        };
        // Nobody asked for these, and they come again: whoever goes on without them goes round for ever.
        if is_left_out && matches!(fault.body, Body::Tick | Body::Rested { .. } | Body::Faulted(_)) {
            return Err(fault);
        }
        let lost = fault.lost().filter(|_| is_left_out);
        let of = over.unwrap_or(fault.pid);
        let first =
            (over.is_some() || lost.is_some()).then(|| (of, Body::Faulted(Faulted { why: fault.why.clone(), lost })));
        Ok(Instead { first, then: (!is_left_out).then_some((fault.pid, fault.body)) })
    }

    /// Notes who is worked on, for the case that it fails.
    pub(crate) fn works_on(&mut self, pid: Pid) {
        self.at_work = pid;
        #[cfg(feature = "faults")]
        count_down(&mut self.fails_after);
    }

    /// Has the kernel fail, after it has turned to a process or changed one so many times more. For tests.
    #[cfg(feature = "faults")]
    pub fn fail_after(&mut self, times: u32) {
        self.fails_after = Some(times);
    }

    /// Sets a process aside, and does without an outcome that it waited for. Nothing else goes on by it: that is for the input
    /// after it, which may fail over another one.
    pub(crate) fn faulted(&mut self, pid: Pid, what: &Faulted) {
        self.set_aside_for(pid, &what.why);
        // What its command reached may be what was left out.
        if self.table.get(pid).is_some_and(|process| process.step.iter().any(StepCall::is_running)) {
            self.labels_lost(pid, Name::ExecCmd.as_str());
        }
        if let Some(effect) = what.lost {
            self.never_comes(effect);
        }
    }

    /// Whether a process was set aside and is so still.
    pub(crate) fn is_set_aside(&mut self, pid: Pid) -> bool {
        // One that has ended cannot be stopped, and may have something under way.
        self.unrecovered.contains(&pid) || self.table.get(pid).is_some_and(Process::is_faulted)
    }

    /// Nothing comes of an effect any more, and nobody looks at whose it was: its slot is free, and it is paid once a person
    /// lets that one go on, or it ends.
    pub(crate) fn let_go(&mut self, id: EffectId) {
        let Some(in_flight) = self.globals.in_flight.remove(&id) else { return };
        if let Some(model) = in_flight.model() {
            self.globals.scheduler.finished(model);
        }
        self.globals.let_go.effects.insert(id, in_flight);
    }

    /// Pays what was let go of at the most that it can have come to, and ends the waiting for it.
    pub(crate) fn pay_let_go(&mut self, pid: Pid) {
        if let Some(purse) = self.globals.let_go.purses.remove(&pid) {
            self.lose(pid, &purse);
        }
        let of = self.globals.let_go.effects.iter().filter(|(_, in_flight)| in_flight.pid() == pid);
        for id in of.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(in_flight) = self.globals.let_go.effects.remove(&id) else { continue };
            if let Some(model) = in_flight.model() {
                self.globals.scheduler.takes_up(model);
            }
            self.globals.in_flight.insert(id, in_flight);
            self.never_comes(id);
        }
    }

    /// The same of those that have ended, which no person lets go on: each start tries it again.
    pub(crate) fn pay_for_the_ended(&mut self) {
        let let_go = &self.globals.let_go;
        let of: BTreeSet<Pid> =
            let_go.effects.values().map(InFlight::pid).chain(let_go.purses.keys().copied()).collect();
        for pid in of {
            if !self.is_set_aside(pid) {
                self.works_on(pid);
                self.pay_let_go(pid);
            }
        }
    }

    /// Stops a process until a person lets it go on.
    pub(crate) fn set_aside_for(&mut self, pid: Pid, why: &str) {
        if self.table.get(pid).is_none_or(Process::exited) {
            return;
        }
        self.unqueue(pid);
        self.with(pid, |process| process.stopped = Some(format!("{SET_ASIDE}{why}")));
    }

    /// An outcome that cannot be applied: what it cost is paid at the most that it can have, and its call is over.
    pub(crate) fn never_comes(&mut self, id: EffectId) {
        match self.globals.in_flight.get(&id).cloned() {
            Some(InFlight::Infer { pid, .. }) => {
                self.ends_race(id);
                self.never_came(id, "the kernel failed over its outcome: what it came to is not known");
                self.with(pid, |process| {
                    if process.phase == Phase::Inferring(id) {
                        process.phase = Phase::Ready;
                    }
                });
            }
            Some(InFlight::Call { pid, by, call, .. }) => {
                let of = self.table.get(pid).and_then(|process| process.step.get(call));
                match of.filter(|call| call.state == CallState::Running(id)).cloned() {
                    Some(made) => self.cut_short(id, (pid, by, call), &made, "the kernel failed over its result"),
                    None => _ = self.globals.in_flight.remove(&id),
                }
            }
            Some(InFlight::Serve { ask, reserved_tokens, max_output, .. }) => {
                let error = CallError::new(Code::Io, "the kernel failed over what the model answered");
                self.perform(Effect::Refuse { request: ask.request, error });
                let usage = outcome::at_most(reserved_tokens, max_output);
                self.request_over(id, None, &ServedOutcome::Answered { usage, whole: false }, None);
            }
            None => {}
        }
    }
}

/// Fails where a test wanted it by now.
#[cfg(feature = "faults")]
pub(crate) fn count_down(left: &mut Option<u32>) {
    if let Some(left) = left {
        *left = left.checked_sub(1).expect("a fault that a test wanted");
    }
}

impl Process {
    /// Whether it was set aside because the kernel failed over it.
    #[must_use]
    pub fn is_faulted(&self) -> bool {
        self.stopped.as_ref().is_some_and(|why| why.starts_with(SET_ASIDE))
    }
}
