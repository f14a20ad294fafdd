//! Crashes, and what comes back: the last durable checkpoint and the entries after it.
//!
//! Start at [`crash`]. What it checks: replay makes the same facts out of the same inputs; a kernel from a checkpoint,
//! one from the first entry and the one that was alive are the same in every process, view and index.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use aos_abi::{Entry, Lsn, Pid};
use aos_journal::{Crash, Store};
use aos_kernel::Kernel;
use aos_kernel::table::{NoPages, PageStore};

use crate::chance::Chance;
use crate::report::{Broken, Halt, broken};
use crate::witness::{Witness, live_through};
use crate::world::{Pages, Simulation, Stops};

const SAME_FACTS: &str = "replay makes the same facts";
const SAME_STATE: &str = "replay equals live";

/// The machine stops and starts again.
pub(crate) fn crash(sim: &mut Simulation) -> Result<(), Halt> {
    sim.crashes += 1;
    let unsynced = sim.store.borrow().unsynced() as u64;
    let fate = match sim.stops {
        Stops::Once(fate) => fate,
        Stops::Random => match sim.dice.weighted(&[40, 30, 30]) {
            0 => Crash::Lost,
            1 => Crash::Kept,
            _ => Crash::Part(sim.dice.between(0, unsynced) as usize),
        },
    };
    sim.next_stop = match sim.stops {
        Stops::Once(_) => u64::MAX,
        // A world that comes to rest is disturbed once more at most.
        Stops::Random if sim.outside.calm => u64::MAX,
        Stops::Random => sim.boundaries + next_stop(&mut sim.dice),
    };
    sim.store.borrow_mut().crash(fate);
    let durable = sim.durable()?;
    if durable < sim.acknowledged {
        let what = format!("{} was acknowledged, {durable} is the last", sim.acknowledged);
        return Err(broken("what was acknowledged is there", what).into());
    }
    let lost = sim.history.len() as u64 - durable.0;
    sim.history.truncate(usize::try_from(durable.0).unwrap_or(usize::MAX));
    sim.round.clear();
    sim.waiting.clear();
    sim.checkpointing = false;
    let config = sim.history.iter().rev().find_map(|entry| entry.body.configured());
    sim.outside.crash(durable, config.map_or("", |config| &config.policy));

    let (mut scratch, witness) = from_the_beginning(&sim.history)?;
    let mut restored = restore(sim)?;
    same(&mut restored, &mut scratch, "from a checkpoint")?;
    if lost == 0 {
        same(&mut sim.kernel, &mut scratch, "alive")?;
    }
    let picture = scratch.checkpoint();
    sim.twin = scratch;
    sim.kernel = restored;
    sim.witness = witness;
    sim.memory.restart();
    // Writing a checkpoint is optional, comparing what it would hold is not; so it is written.
    let mine = sim.kernel.checkpoint();
    if mine.globals != picture.globals {
        return Err(broken(SAME_STATE, "the globals of a restored kernel differ from those of a full replay").into());
    }
    let saved =
        aos_journal::Checkpoint { lsn: mine.lsn, globals: mine.globals, pages: mine.pages, removed: mine.removed };
    let written = sim.store.borrow_mut().checkpoint(saved);
    written.map_err(|error| broken("the journal takes checkpoints", error.to_string()))?;

    let down = if sim.chance.percent(70) { 2000 } else { 3 * 86_400_000 };
    sim.now = sim.now.plus_millis(sim.chance.between(0, down));
    sim.boot()?;
    sim.commit()?;
    sim.sync()?;
    // Changes that were wholly made, and whose entry the stop prevented.
    for (pid, body) in sim.outside.files.owed() {
        sim.offer(pid, body)?;
    }
    sim.commit()?;
    sim.sync()
}

/// After how many boundaries the machine stops: mostly soon, at times late enough for a queue to fill.
pub(crate) fn next_stop(dice: &mut Chance) -> u64 {
    if dice.percent(75) { dice.between(1, 150) } else { dice.between(200, 1500) }
}

/// What an input came to is what its entry, read back, comes to; and so is the process that it was for.
pub(crate) fn replays<P: PageStore>(
    twin: &mut Kernel<NoPages>,
    live: &mut Kernel<P>,
    made: &[Arc<Entry>],
) -> Result<(), Broken> {
    let Some(input) = made.first() else { return Ok(()) };
    let written = serde_json::to_string(&**input).map_err(|error| broken(SAME_FACTS, error.to_string()))?;
    let read: Entry =
        serde_json::from_str(&written).map_err(|error| broken(SAME_FACTS, format!("{error}: {written}")))?;
    let again = twin.apply(read.at, read.pid, read.body).entries;
    if again != made {
        return Err(broken(SAME_FACTS, format!("made {made:?}, replayed {again:?}")));
    }
    let (mine, other) = (format!("{:?}", live.process(input.pid)), format!("{:?}", twin.process(input.pid)));
    if mine != other {
        return Err(broken(SAME_STATE, format!("process {} after {}:\n{mine}\n{other}", input.pid, input.lsn)));
    }
    Ok(())
}

/// A rebuilt kernel is the live one.
pub(crate) fn replay_is_live(sim: &mut Simulation) -> Result<(), Halt> {
    let (mut scratch, _) = from_the_beginning(&sim.history)?;
    same(&mut sim.kernel, &mut scratch, "alive")?;
    sim.save()?;
    sim.sync()?;
    let saved = sim.store.borrow().globals().map_err(|error| broken("the journal reads", error.to_string()))?;
    if saved.map(|(_, globals)| globals) != Some(scratch.checkpoint().globals) {
        return Err(broken(SAME_STATE, "the globals of the live kernel differ from those of a full replay").into());
    }
    Ok(())
}

/// The kernel as the journal has it.
pub(crate) fn restore(sim: &Simulation) -> Result<Kernel<Pages>, Broken> {
    let store = sim.store.borrow();
    let unreadable = |error: aos_journal::Error| broken("the journal reads", error.to_string());
    let pages = Pages(Rc::clone(&sim.store));
    let (after, mut kernel) = match store.globals().map_err(unreadable)? {
        Some((lsn, globals)) => {
            let kernel = Kernel::restore(&globals, pages).map_err(|error| broken(SAME_STATE, error.to_string()))?;
            (lsn, kernel)
        }
        None => (Lsn::ZERO, Kernel::new(pages)),
    };
    let mut entries = Vec::new();
    store
        .for_each_after(after, &mut |entry| {
            entries.push(Arc::new(entry));
            ControlFlow::Continue(())
        })
        .map_err(unreadable)?;
    drop(store);
    let kept = &sim.history[usize::try_from(after.0).unwrap_or(usize::MAX)..];
    if let Some((got, given)) = kept.iter().zip(&entries).find(|(got, given)| got != given) {
        return Err(broken("the journal gives back what it got", format!("{got:?} as {given:?}")));
    }
    replay(&mut kernel, &entries, |kernel, entry| Ok(kernel.apply(entry.at, entry.pid, entry.body.clone())))?;
    Ok(kernel)
}

/// A kernel and a witness that have lived through all of it.
fn from_the_beginning(history: &[Arc<Entry>]) -> Result<(Kernel<NoPages>, Witness), Broken> {
    let mut kernel = Kernel::new(NoPages);
    let mut witness = Witness::default();
    replay(&mut kernel, history, |kernel, entry| {
        live_through(kernel, &mut witness, entry.at, entry.pid, entry.body.clone())
    })?;
    Ok((kernel, witness))
}

/// Applies the inputs and compares the facts.
fn replay<P: PageStore>(
    kernel: &mut Kernel<P>,
    entries: &[Arc<Entry>],
    mut apply: impl FnMut(&mut Kernel<P>, &Entry) -> Result<aos_kernel::Applied, Broken>,
) -> Result<(), Broken> {
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        if entry.cause.is_some() {
            return Err(broken(SAME_FACTS, format!("{} is no fact of the input before it", entry.lsn)));
        }
        let applied = apply(kernel, entry)?;
        for made in &applied.entries {
            match entries.get(at) {
                Some(recorded) if recorded == made => at += 1,
                other => return Err(broken(SAME_FACTS, format!("made {made:?}, recorded {other:?}"))),
            }
        }
    }
    Ok(())
}

/// Whether two kernels are the same in all that can be seen.
fn same<A: PageStore, B: PageStore>(a: &mut Kernel<A>, b: &mut Kernel<B>, which: &str) -> Result<(), Broken> {
    let fault = |what: String| Err(broken(SAME_STATE, format!("{which}: {what}")));
    if (a.lsn(), a.at(), a.next_pid()) != (b.lsn(), b.at(), b.next_pid()) {
        return fault(format!("{} and {}", a.lsn(), b.lsn()));
    }
    for pid in (2..a.next_pid().0).map(Pid) {
        let (mine, other) = (format!("{:?}", a.process(pid)), format!("{:?}", b.process(pid)));
        if mine != other {
            return fault(format!("process {pid}:\n{mine}\n{other}"));
        }
        if a.view(pid) != b.view(pid) || a.detail(pid).ok() != b.detail(pid).ok() {
            return fault(format!("views of {pid}"));
        }
    }
    if a.counts() != b.counts() || a.slots() != b.slots() || a.next_deadline() != b.next_deadline() {
        return fault("counts, slots or deadline".into());
    }
    let (mine, other) = (a.proposals(), b.proposals());
    if mine != other {
        return fault(format!("{mine:?} and {other:?}"));
    }
    Ok(())
}
