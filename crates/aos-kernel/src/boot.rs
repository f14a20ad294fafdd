//! Recovery: what was under way when the daemon stopped.
//!
//! Effects that may be repeated are issued again with the same id; the others come back as `EINTR`, outcome unknown,
//! and are not run again. Nothing is lost and nothing is done twice.

use std::collections::BTreeSet;

use aos_abi::entry::{Configured, Cut, InferenceOutcome, Purpose, Unrecovered, Verdict};
use aos_abi::inference::Usage;
use aos_abi::{Body, CallError, Code, EffectId, Pid, Syscall, Timestamp, Usd};

use serde::{Deserialize, Serialize};

use crate::budget::Need;
use crate::effect::Effect;
use crate::labels::reads;
use crate::process::{CallState, StepCall};
use crate::table::PageStore;
use crate::{InFlight, Kernel, failure, outcome};

/// Why an inference that was under way is charged at the most that it can have cost.
pub(crate) const STOPPED: &str = "the daemon stopped while it was under way: what it came to is not known";

/// A [`Usage`] as it stands in a page, where no field can be left out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Heard {
    input: u64,
    output: u64,
    cached: u64,
    cache_write: u64,
    reasoning: u64,
    estimated: bool,
}

impl From<Usage> for Heard {
    fn from(usage: Usage) -> Heard {
        let Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached,
            cache_write_tokens: cache_write,
            reasoning_tokens: reasoning,
            estimated,
            // Of what was given up, and of that the answer, if ever it is made, has its own.
            reported: _,
        } = usage;
        Heard { input, output, cached, cache_write, reasoning, estimated }
    }
}

impl From<Heard> for Usage {
    fn from(heard: Heard) -> Usage {
        Usage {
            input_tokens: heard.input,
            output_tokens: heard.output,
            cached_input_tokens: heard.cached,
            cache_write_tokens: heard.cache_write,
            reasoning_tokens: heard.reasoning,
            estimated: heard.estimated,
            reported: None,
        }
    }
}

impl<P: PageStore> Kernel<P> {
    pub(crate) fn boot(&mut self, before: Timestamp, configured: Option<&Configured>, faulted: &[Unrecovered]) {
        // Those that a start has failed over again, when they were set aside already.
        let mut bare = BTreeSet::new();
        for (nth, Unrecovered { pid, why }) in faulted.iter().enumerate() {
            if faulted[..nth].iter().any(|before| before.pid == *pid) {
                bare.insert(*pid);
            }
            self.works_on(*pid);
            self.unrecovered.insert(*pid);
            self.set_aside_for(*pid, why);
        }
        self.keep_windows_open(before);
        // As it was set aside, by what held then.
        self.cut_off(&bare);
        let billed = self.billed();
        // From here on by what holds now: nothing is started before the last line, so nothing starts by what does not.
        if let Some(configured) = configured {
            self.adopt(configured);
        }
        self.end_races();
        // Before the calls: one that goes on may begin a watch of its own.
        for pid in self.globals.watchers.clone() {
            self.works_on(pid);
            self.begin_watches(pid);
        }
        self.examine_again();
        for (id, in_flight) in self.globals.in_flight.clone() {
            self.works_on(in_flight.pid());
            if self.is_set_aside(in_flight.pid()) {
                if bare.contains(&in_flight.pid()) {
                    self.let_go(id);
                } else {
                    self.never_comes(id);
                }
                continue;
            }
            let gone = self.table.get(in_flight.pid()).is_none_or(|process| process.exited());
            match in_flight {
                // Its process was killed: nobody wants the answer.
                InFlight::Infer { .. } if gone => self.never_came(id, STOPPED),
                // Its server may have answered it all, and be paid for it; what it is asked next, it is paid for again.
                InFlight::Infer { pid, .. } if billed.contains(&id) => {
                    self.never_came(id, STOPPED);
                    self.want_turn_again(pid);
                }
                InFlight::Infer { pid, model, purpose, upto, max_output, price, .. } => {
                    // What was set aside is for the price and the answer of then.
                    let paid =
                        self.model(&model).is_some_and(|spec| spec.price == price && max_output <= spec.max_output);
                    let may = purpose == Purpose::Digest || (paid && self.may_be_shown(pid, &model));
                    match may.then(|| self.redraft(id, pid, &model, purpose, upto, max_output)).flatten() {
                        Some(infer) => {
                            self.hears_anew(id);
                            self.perform(Effect::Infer(Box::new(infer)));
                        }
                        // Its model is configured no more, or otherwise, or may not be asked any more: the turn begins
                        // anew, with what may, or says why there is none.
                        None => {
                            self.never_came(id, STOPPED);
                            self.want_turn_again(pid);
                        }
                    }
                }
                InFlight::Call { .. } if gone => {
                    self.globals.in_flight.remove(&id);
                }
                InFlight::Call { pid, by, call, .. } => self.recover_call(id, pid, by, call),
                InFlight::Serve { .. } => unreachable!("all of them were cut off above, or are of who is set aside"),
            }
        }
        self.pay_for_the_ended();
        self.unrecovered.clear();
    }

    /// Whether a process may use a model, and the model see what the process holds, by what holds now. Asks nobody.
    fn may_be_shown(&mut self, pid: Pid, model: &str) -> bool {
        let local = self.model(model).is_some_and(|spec| spec.local);
        self.may_use(pid, model) && (local || self.may_go_elsewhere(pid))
    }

    /// The inferences under way for which a provider may want money or tokens: all but those of models of this machine
    /// without a price, which ended with the daemon and cost nobody anything, and digests, for which no model is asked.
    fn billed(&self) -> BTreeSet<EffectId> {
        let asked = self.globals.in_flight.iter().filter(|(_, in_flight)| match in_flight {
            InFlight::Infer { model, purpose, price, .. } => {
                let costs = price.is_some_and(|price| price.worst(1_000_000, 1_000_000) > Usd::ZERO);
                let free = !costs && self.model(model).is_some_and(|spec| spec.local);
                *purpose != Purpose::Digest && !free
            }
            InFlight::Call { .. } | InFlight::Serve { .. } => false,
        });
        asked.map(|(id, _)| *id).collect()
    }

    /// The daemon ends in good order: what was heard of the answers that it has cut off is kept for the next start.
    pub(crate) fn was_cut(&mut self, cut: &[Cut]) {
        for Cut { effect, usage } in cut {
            if let Some(InFlight::Infer { heard, .. } | InFlight::Serve { heard, .. }) =
                self.globals.in_flight.get_mut(effect)
            {
                *heard = Some(Heard::from(*usage));
            }
        }
    }

    /// An inference is made again: what was heard of it before says nothing of it any more.
    fn hears_anew(&mut self, id: EffectId) {
        if let Some(InFlight::Infer { heard, .. }) = self.globals.in_flight.get_mut(&id) {
            *heard = None;
        }
    }

    /// The inferences under way, those of programs too.
    #[must_use]
    pub fn asking(&self) -> BTreeSet<EffectId> {
        let asked = self.globals.in_flight.iter().filter(|(_, in_flight)| in_flight.asker().is_some());
        asked.map(|(id, _)| *id).collect()
    }

    /// An inference whose outcome nobody will bring: what was heard of it is paid as for one that is given up. Where that is
    /// not known, what it cost will never be, so it is the most that it can have.
    pub(crate) fn never_came(&mut self, id: EffectId, why: &str) {
        let Some(in_flight) = self.globals.in_flight.remove(&id) else { return };
        let InFlight::Infer {
            pid, ref model, purpose, reserved_usd, reserved_tokens, price, max_output, heard, ..
        } = in_flight
        else {
            self.globals.in_flight.insert(id, in_flight);
            return;
        };
        let model = model.clone();
        self.globals.scheduler.finished(&model);
        self.gives_up_trying(&model, id);
        let reserved = Need { usd: reserved_usd, tokens: reserved_tokens };
        match purpose {
            _ if heard.is_some() => {
                let failure = outcome::cut_off(heard.map(Usage::from));
                self.pay(&in_flight, &InferenceOutcome::Failed { failure });
            }
            Purpose::Digest => self.unreserve(pid, reserved),
            Purpose::Turn | Purpose::Summary | Purpose::Request => {
                self.charge_all(pid, &model, price.is_some(), (reserved, max_output), why);
            }
        }
    }

    fn recover_call(&mut self, id: EffectId, pid: Pid, by: Pid, index: usize) {
        let Some(process) = self.table.get(pid) else { return };
        let Some(call) = process.step.get(index).filter(|call| call.state == CallState::Running(id)).cloned() else {
            self.globals.in_flight.remove(&id);
            return;
        };
        let workspace = self.table.get(by).map(|process| process.workspace.clone());
        if let Some(workspace) = workspace
            && let Ok(parsed) = Syscall::parse(&call.name, &call.args)
            && parsed.idempotent()
            && let Some(ruling) = self.rule(by, parsed)
            && ruling.verdict == Verdict::Allow
            && let Some(permit) = ruling.permit
        {
            // By the rules of now, and still by those it began under.
            let (more, vouched_now) = self.labels_brought(by, &permit, reads(permit.call()));
            if let Some(InFlight::Call { labels, vouched, .. }) = self.globals.in_flight.get_mut(&id) {
                (*labels, *vouched) = (labels.and(more), *vouched && vouched_now);
            }
            // Where it serves a call of another process, nothing tells which, nor whether that was approved.
            let authority = self.authority(by, (by == pid).then_some(index), permit.call());
            // Only a yes that stands lets one that was approved be made again: over the files that were shown, as before.
            let (bound, approved) = (self.bound(pid, index), call.approved.is_some());
            let call_id = call.call_id;
            // What was proposed is no call that is made again.
            let proposed = None;
            self.perform(Effect::Call { id, pid, call_id, permit, workspace, authority, bound, approved, proposed });
            return;
        }
        self.cut_short(id, (pid, by, index), &call, "the kernel stopped while this ran");
    }

    /// A call under way comes to nothing that anybody knows.
    pub(crate) fn cut_short(&mut self, id: EffectId, (pid, by, index): (Pid, Pid, usize), call: &StepCall, why: &str) {
        self.globals.in_flight.remove(&id);
        self.labels_lost(by, call.made());
        let error = CallError::new(Code::Intr, format!("{why}; its outcome is unknown and it was not run again"))
            .hint("look at what there is before you repeat it");
        let (call_id, name) = (call.call_id.clone(), call.name.clone());
        let lsn = self.fact(pid, Body::Result { call_id, name, effect: None, outcome: failure(error) });
        let tokens = self.as_notice(lsn).tokens;
        self.with(pid, |process| process.step[index].state = CallState::Done(lsn, tokens));
        self.run_step(pid);
    }
}
