//! What models want for what programs and agents asked: kept outside, as a provider keeps it, whatever the daemon forgets in a crash.
//!
//! Start at [`Bill::is_in_the_books`]. It knows neither journal nor accounts, only what went out and what came back. What was
//! under way when the machine stopped is billed at the most that it may come to, since its answer may have been made.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::{InferenceOutcome, Purpose, ServedOutcome};
use aos_abi::inference::{FailureKind, Usage};
use aos_abi::{EffectId, Lsn, Pid};
use aos_kernel::Kernel;
use aos_kernel::effect::{Infer, Serve};
use aos_kernel::table::PageStore;

use crate::mind;
use crate::report::{Broken, broken};

/// Tokens that are billed, by process.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// What is under way, and the most that it may come to.
    open: BTreeMap<EffectId, (Pid, u64)>,
    owed: BTreeMap<Pid, u64>,
    /// Requests that went out before their own entries were durable.
    pub(crate) early: u64,
    /// Requests of programs that the machine stopped under.
    pub(crate) cut_off: u64,
    /// Inferences of agents that it stopped under.
    pub(crate) unheard: u64,
    /// Which of those under way are agents'.
    agents: BTreeSet<EffectId>,
}

impl Bill {
    pub(crate) fn asked(&mut self, serve: &Serve, durable: Lsn) {
        self.early += u64::from(serve.id.cause > durable);
        self.open.insert(serve.id, (serve.pid, mind::SERVED_INPUT_MAX + u64::from(serve.max_output)));
    }

    /// An agent's inference goes out. For a digest no model is asked.
    pub(crate) fn infers(&mut self, infer: &Infer) {
        if infer.purpose != Purpose::Digest {
            // Its prompt has more tokens than these; they are the least that any provider bills for one.
            self.open.insert(infer.id, (infer.pid, mind::SERVED_INPUT_MAX + u64::from(infer.max_output)));
            self.agents.insert(infer.id);
        }
    }

    pub(crate) fn inferred(&mut self, effect: EffectId, outcome: &InferenceOutcome) {
        match outcome {
            InferenceOutcome::Answered(reply) => self.over(effect, Some(reply.usage)),
            InferenceOutcome::Failed { failure } if failure.kind == FailureKind::Cancelled => {
                self.given_up(effect, failure.usage);
            }
            InferenceOutcome::Failed { failure } => self.over(effect, failure.usage),
        }
    }

    pub(crate) fn answered(&mut self, effect: EffectId, outcome: &ServedOutcome) {
        match outcome {
            ServedOutcome::Answered { usage, .. } => self.over(effect, Some(*usage)),
            ServedOutcome::Failed { failure } if failure.kind == FailureKind::Cancelled => {
                self.given_up(effect, failure.usage);
            }
            ServedOutcome::Failed { failure } => self.over(effect, failure.usage),
        }
    }

    /// Where nobody heard what it came to, the server did all that it was asked for.
    fn given_up(&mut self, effect: EffectId, heard: Option<Usage>) {
        match heard {
            Some(_) => self.over(effect, heard),
            None => {
                let Some((pid, most)) = self.open.remove(&effect) else { return };
                *self.owed.entry(pid).or_default() += most;
            }
        }
    }

    fn over(&mut self, effect: EffectId, usage: Option<Usage>) {
        let Some((pid, most)) = self.open.remove(&effect) else { return };
        // What a server says beyond what is possible, it does not get.
        let used = usage.map_or(0, |usage| {
            usage.input_tokens.min(mind::SERVED_INPUT_MAX) + usage.output_tokens.min(most - mind::SERVED_INPUT_MAX)
        });
        *self.owed.entry(pid).or_default() += used;
    }

    pub(crate) fn crash(&mut self) {
        let agents = std::mem::take(&mut self.agents);
        for (id, (pid, most)) in std::mem::take(&mut self.open) {
            *if agents.contains(&id) { &mut self.unheard } else { &mut self.cut_off } += 1;
            *self.owed.entry(pid).or_default() += most;
        }
    }

    /// Whether the books say at least as much as the bill, so that nobody spends beyond a budget that the books keep.
    pub(crate) fn is_in_the_books<P: PageStore>(&self, kernel: &mut Kernel<P>) -> Result<(), Broken> {
        for (pid, owed) in &self.owed {
            let Some(process) = kernel.process(*pid) else { continue };
            // Its own, whatever those below it have spent.
            let spent = process.usage.input_tokens + process.usage.output_tokens;
            if spent < *owed {
                let what = format!("{pid} owes {owed} tokens, its books say {spent}");
                return Err(broken("what was asked is in the books", what));
            }
        }
        Ok(())
    }
}
