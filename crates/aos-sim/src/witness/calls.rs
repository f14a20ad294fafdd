//! Calls: each gets exactly one result, and none happens without a word that allows it.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::{Outcome, ProposalState, Verdict};
use aos_abi::{Body, CallId, EffectId, Entry, Pid};

use crate::report::{Broken, broken};

const ONE_RESULT: &str = "every call gets exactly one result";
const ONCE: &str = "what the kernel does for a call it does once";
const ALLOWED: &str = "no call happens unallowed";

/// The calls under way, by process.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: BTreeMap<Pid, BTreeMap<CallId, Open>>,
    proposals: BTreeMap<String, (Pid, CallId)>,
    ended: BTreeSet<Pid>,
    /// How many were made.
    pub(crate) made: u64,
}

#[derive(Debug)]
struct Open {
    name: String,
    /// What it was made for has happened: its message is sent, its child is born.
    acted: bool,
    allowed: bool,
    effect: Option<EffectId>,
}

impl Calls {
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        let pid = entry.pid;
        match &entry.body {
            Body::Syscall { call_id, name, .. } => {
                self.made += 1;
                let open = self.open.entry(pid).or_default();
                let call = Open { name: name.clone(), acted: false, allowed: false, effect: None };
                if open.insert(call_id.clone(), call).is_some() {
                    return Err(broken(ONE_RESULT, format!("{call_id} of {pid} is made while it is open")));
                }
            }
            Body::Verdict { call_id, verdict, .. } => match self.find(pid, call_id) {
                Some(call) => call.allowed = *verdict == Verdict::Allow,
                None => return Err(broken(ALLOWED, format!("a verdict on {call_id} of {pid}, which is not open"))),
            },
            Body::Proposal { id, state, proposal, .. } => {
                if let Some(proposal) = proposal {
                    // What an allowed call led to was denied, and not the call.
                    let led = proposal.led.is_some() || !proposal.inner.is_empty();
                    if let Some(call) = self.find(pid, &proposal.call_id).filter(|_| !led) {
                        // A call that proposes another waits for a word on that one.
                        call.allowed = false;
                    }
                    self.proposals.insert(id.clone(), (pid, proposal.call_id.clone()));
                }
                if *state == ProposalState::Executed
                    && let Some((pid, call_id)) = self.proposals.get(id).cloned()
                    && let Some(call) = self.find(pid, &call_id)
                {
                    call.allowed = true;
                }
            }
            Body::Result { call_id, name, effect, outcome } => {
                let Some(call) = self.open.get_mut(&pid).and_then(|open| open.remove(call_id)) else {
                    return Err(broken(
                        ONE_RESULT,
                        format!("a result for {call_id} ({name}) of {pid}, which is not open"),
                    ));
                };
                if let Outcome::Error { error } = outcome
                    && let Some(owner) = error.message.split("` belongs to process ").nth(1)
                    && owner.parse().is_ok_and(|owner| self.ended.contains(&Pid(owner)))
                {
                    return Err(broken("an exited process owns nothing", error.message.clone()));
                }
                let success = matches!(outcome, Outcome::Success { .. });
                if success && !call.allowed {
                    return Err(broken(ALLOWED, format!("{call_id} ({name}) of {pid} succeeded")));
                }
                if effect.is_some() && *effect != call.effect {
                    return Err(broken(
                        ONE_RESULT,
                        format!("{call_id} of {pid} ran as {:?}, came as {effect:?}", call.effect),
                    ));
                }
            }
            Body::InferenceStarted { effect, .. } => {
                if let Some(call_id) = self.open.get(&pid).and_then(|open| open.keys().next()) {
                    return Err(broken(ONE_RESULT, format!("{effect} of {pid} starts while {call_id} is open")));
                }
            }
            Body::Message { from_pid, .. } => self.acts(*from_pid, "SEND_MSG")?,
            Body::Spawned(spec) if entry.cause.is_some() => self.acts(spec.parent, "SPAWN_AGENT")?,
            Body::Exited { .. } => {
                self.open.remove(&pid);
                if !self.ended.insert(pid) {
                    return Err(broken("whoever has ended has ended", format!("{pid} ends again")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Something happened that only a call of this process can have done, and that call has not done it before.
    fn acts(&mut self, pid: Pid, name: &str) -> Result<(), Broken> {
        let calls = self.open.entry(pid).or_default().values_mut();
        let call = calls.into_iter().find(|call| [name, "PROPOSE"].contains(&call.name.as_str()) && !call.acted);
        match call {
            Some(call) if call.allowed => {
                call.acted = true;
                Ok(())
            }
            Some(_) => Err(broken(ALLOWED, format!("a {name} of {pid}"))),
            None => Err(broken(ONCE, format!("a {name} of {pid} without such a call under way"))),
        }
    }

    /// An effect left for a driver.
    pub(crate) fn performed(&mut self, pid: Pid, call_id: &CallId, id: EffectId) -> Result<(), Broken> {
        match self.find(pid, call_id) {
            Some(call) if call.allowed => {
                if call.effect.is_some_and(|earlier| earlier != id) {
                    return Err(broken(ONE_RESULT, format!("{call_id} of {pid} runs as {:?} and {id}", call.effect)));
                }
                call.effect = Some(id);
                Ok(())
            }
            Some(_) => Err(broken(ALLOWED, format!("{call_id} of {pid} left as {id}"))),
            // Its process was killed by the same input.
            None => Ok(()),
        }
    }

    fn find(&mut self, pid: Pid, call_id: &CallId) -> Option<&mut Open> {
        self.open.get_mut(&pid)?.get_mut(call_id)
    }
}
