//! What models want for what programs asked: kept outside, as a provider keeps it, whatever the daemon forgets in a crash.
//!
//! Start at [`Bill::is_in_the_books`]. It knows neither journal nor accounts, only what went out and what came back. What was
//! under way when the machine stopped is billed at the most that it may come to, since its answer may have been made.

use std::collections::BTreeMap;

use aos_abi::entry::ServedOutcome;
use aos_abi::inference::FailureKind;
use aos_abi::{EffectId, Lsn, Pid};
use aos_kernel::Kernel;
use aos_kernel::effect::Serve;
use aos_kernel::table::PageStore;

use crate::mind;
use crate::report::{Broken, broken};

/// Tokens that are billed, by program.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// What is under way, and the most that it may come to.
    open: BTreeMap<EffectId, (Pid, u64)>,
    owed: BTreeMap<Pid, u64>,
    /// Requests that went out before their own entries were durable.
    pub(crate) early: u64,
    /// Requests that the machine stopped under.
    pub(crate) cut_off: u64,
}

impl Bill {
    pub(crate) fn asked(&mut self, serve: &Serve, durable: Lsn) {
        self.early += u64::from(serve.id.cause > durable);
        self.open.insert(serve.id, (serve.pid, mind::SERVED_INPUT_MAX + u64::from(serve.max_output)));
    }

    pub(crate) fn answered(&mut self, effect: EffectId, outcome: &ServedOutcome) {
        let Some((pid, most)) = self.open.remove(&effect) else { return };
        let usage = match outcome {
            ServedOutcome::Answered { usage, .. } => Some(*usage),
            // Nobody heard what it came to: the server did all that it was asked for.
            ServedOutcome::Failed { failure } if failure.kind == FailureKind::Cancelled && failure.usage.is_none() => {
                *self.owed.entry(pid).or_default() += most;
                return;
            }
            ServedOutcome::Failed { failure } => failure.usage,
        };
        // What a server says beyond what is possible, it does not get.
        let used = usage.map_or(0, |usage| {
            usage.input_tokens.min(mind::SERVED_INPUT_MAX) + usage.output_tokens.min(most - mind::SERVED_INPUT_MAX)
        });
        *self.owed.entry(pid).or_default() += used;
    }

    pub(crate) fn crash(&mut self) {
        for (pid, most) in std::mem::take(&mut self.open).into_values() {
            self.cut_off += 1;
            *self.owed.entry(pid).or_default() += most;
        }
    }

    /// Whether the books say at least as much as the bill, so that nobody spends beyond a budget that the books keep.
    pub(crate) fn is_in_the_books<P: PageStore>(&self, kernel: &mut Kernel<P>) -> Result<(), Broken> {
        for (pid, owed) in &self.owed {
            let Some(process) = kernel.process(*pid) else { continue };
            let spent = process.budget.tokens.spent;
            if spent < *owed {
                let what = format!("program {pid} owes {owed} tokens, its books say {spent}");
                return Err(broken("what was asked is in the books", what));
            }
        }
        Ok(())
    }
}
