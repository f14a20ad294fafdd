//! The witness: keeps an account of its own of what entries and effects say, and objects when they contradict it.
//!
//! Start at [`live_through`]. It knows nothing of the kernel's state, only what left the kernel, so that a fault in the
//! one does not hide in the other. After a crash it is built again from the entries that survived.

mod calls;
mod delivery;
mod money;
mod programs;
mod turns;

use std::sync::Arc;

use aos_abi::entry::Configured;
use aos_abi::{Body, EffectId, Entry, Pid, Timestamp};
use aos_kernel::effect::Effect;
use aos_kernel::table::PageStore;
use aos_kernel::{Applied, Kernel};

use crate::report::{Broken, broken};

pub(crate) use delivery::Delivery;
pub(crate) use money::Money;
pub(crate) use programs::Programs;
pub(crate) use turns::Turns;

/// Everything seen so far.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    pub(crate) config: Option<Arc<Configured>>,
    last_pid: Pid0,
    pub(crate) calls: calls::Calls,
    pub(crate) turns: Turns,
    pub(crate) delivery: Delivery,
    pub(crate) money: Money,
    pub(crate) programs: Programs,
    /// The last input was a tick.
    pub(crate) ticked: bool,
    /// The last input was a start of the machine.
    pub(crate) booting: bool,
    /// To whom a person spoke with the last input.
    pub(crate) spoken_to: Option<Pid>,
}

/// A pid that starts at none.
#[derive(Debug, Default)]
struct Pid0(u64);

/// Applies an input and has the witness look at all that came of it.
pub(crate) fn live_through<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &mut Witness,
    at: Timestamp,
    pid: Pid,
    body: Body,
) -> Result<Applied, Broken> {
    if let Body::Pruned { pids, .. } = &body {
        witness.money.before_prune(kernel, pids);
    }
    witness.ticked = matches!(body, Body::Tick);
    witness.booting = matches!(body, Body::Booted { .. });
    witness.spoken_to = matches!(body, Body::Input { from_pid: Pid::INIT, untrusted: false, .. }).then_some(pid);
    witness.turns.begun.clear();
    let before = kernel.lsn();
    let applied = kernel.apply(at, pid, body);
    let mut expected = before;
    for entry in &applied.entries {
        expected = expected.next();
        if entry.lsn != expected {
            return Err(broken("entries follow one another", format!("{} after {before}", entry.lsn)));
        }
    }
    witness.turns.again = applied.effects.iter().filter_map(asked).collect();
    for entry in &applied.entries {
        witness.entry(entry)?;
    }
    witness.turns.over()?;
    for effect in &applied.effects {
        witness.effect(effect)?;
    }
    Ok(applied)
}

/// What an effect asks a model for.
fn asked(effect: &Effect) -> Option<EffectId> {
    if let Effect::Infer(infer) = effect { Some(infer.id) } else { None }
}

impl Witness {
    fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        if let Some(config) = entry.body.configured() {
            self.config = Some(Arc::new(config.clone()));
        }
        if matches!(entry.body, Body::Spawned(_) | Body::Forked { .. }) {
            if entry.pid.0 <= self.last_pid.0 {
                return Err(broken("pids are never used again", format!("{} after {}", entry.pid, self.last_pid.0)));
            }
            self.last_pid = Pid0(entry.pid.0);
        }
        self.turns.entry(entry, self.config.as_deref())?;
        self.calls.entry(entry)?;
        self.delivery.entry(entry)?;
        self.programs.entry(entry)?;
        self.money.entry(entry)
    }

    fn effect(&mut self, effect: &Effect) -> Result<(), Broken> {
        match effect {
            Effect::Infer(infer) => {
                self.turns.infer(infer)?;
                self.delivery.infer(infer)
            }
            Effect::Call { pid, call_id, id, .. } => self.calls.performed(*pid, call_id, *id),
            Effect::Serve(serve) => self.programs.serve(serve),
            Effect::Refuse { request, .. } => self.programs.refuse(*request),
            Effect::Cancel(_)
            | Effect::Policy(_)
            | Effect::Watch { .. }
            | Effect::Unwatch { .. }
            | Effect::WebhookReply { .. }
            | Effect::Examine { .. } => Ok(()),
        }
    }
}
