//! Checkers over the kernel's state, run after every input.
//!
//! Start at [`state`]. Each names what must hold and computes it again from the processes themselves, so that no index
//! is trusted; `witness` holds the checkers over what leaves the kernel.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::process::{SpawnSpec, State};
use aos_abi::{Body, Code, Pid, Timestamp};
use aos_kernel::Kernel;
use aos_kernel::process::{CallState, Phase, Process, Wait};
use aos_kernel::table::PageStore;

use crate::outside::Outside;
use crate::report::{Broken, broken};
use crate::setup::{NAMES, PATHS};
use crate::witness::Witness;

/// How long a process waits before it counts as aged, in milliseconds: the scheduler's own number.
const AGED_MS: u64 = 20_000;

/// What is remembered from check to check.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Since when each process waits for a slot, and how many starts its model had when it had aged.
    waiting: BTreeMap<Pid, (Timestamp, Option<u64>)>,
}

/// Everything that must hold between two inputs.
pub(crate) fn state<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &Witness,
    outside: &Outside,
    memory: &mut Memory,
) -> Result<(), Broken> {
    let pids: Vec<Pid> = (2..kernel.next_pid().0).map(Pid).collect();
    let mut counts = [0u64; State::ALL.len()];
    let mut due: Option<Timestamp> = None;
    let mut waiting: BTreeMap<String, Vec<Pid>> = BTreeMap::new();
    let mut watches = BTreeSet::new();
    let mut budgets = BTreeMap::new();
    let mut names = BTreeMap::new();
    for pid in &pids {
        let Some(process) = kernel.process(*pid) else { continue };
        counts[process.state() as usize] += 1;
        one(process, witness)?;
        due = [due, process.earliest_due()].into_iter().flatten().min();
        if process.phase == Phase::Ready && process.stopped.is_none() {
            waiting.entry(process.model.clone()).or_default().push(*pid);
        }
        watches.extend(process.watches.keys().map(|id| (*pid, id.clone())));
        let asking = witness.turns.in_flight.values().any(|(of, ..)| of == pid);
        budgets.insert(*pid, (process.budget, asking));
        if let Some(name) = process.name.clone().filter(|_| !process.exited()) {
            names.insert(name, *pid);
        }
    }
    for (state, count) in kernel.counts() {
        let real = State::ALL.iter().find(|of| of.as_str() == state).map_or(0, |of| counts[*of as usize]);
        if real != count {
            return Err(broken("counts by state equal a recount", format!("{count} {state}, there are {real}")));
        }
    }
    if watches != outside.watches {
        return Err(broken("what is watched is what processes watch", format!("{watches:?}, {:?}", outside.watches)));
    }
    witness.money.accounts(&budgets)?;
    owners(kernel, &names)?;
    slots(kernel, witness, &waiting, due)?;
    starving(kernel, witness, &waiting, memory)
}

/// What holds of each process by itself.
fn one(process: &Process, witness: &Witness) -> Result<(), Broken> {
    let pid = process.pid;
    if process.due != process.earliest_due() {
        let what = format!("{pid}: {:?}, really {:?}", process.due, process.earliest_due());
        return Err(broken("due is up to date", what));
    }
    if process.exited() {
        let owns = !process.timers.is_empty()
            || !process.webhooks.is_empty()
            || !process.watches.is_empty()
            || !process.requests.is_empty()
            || !process.proposals.is_empty()
            || !process.inbox.is_empty()
            || !process.stdin.is_empty()
            || !process.notices.is_empty()
            || !process.zombies.is_empty()
            || !process.children.is_empty()
            || !process.step.is_empty()
            || !process.window.is_empty()
            || process.due.is_some();
        if owns {
            return Err(broken("an exited process owns nothing", format!("{process:?}")));
        }
        return Ok(());
    }
    let running = process.step.iter().filter(|call| matches!(call.state, CallState::Running(_))).count();
    let waits = process.step.iter().filter(|call| call.state == CallState::Waiting).count();
    let fits = match &process.phase {
        Phase::Waiting { call, .. } => {
            running == 0 && waits == 1 && process.step.get(*call).is_some_and(|call| call.state == CallState::Waiting)
        }
        Phase::Calling => waits == 0 && (running > 0 || process.stopped.is_some()),
        Phase::Inferring(_) => process.step.is_empty(),
        Phase::Ready | Phase::Backoff(_) | Phase::Broke(_) | Phase::Idle => running == 0 && waits == 0,
        Phase::Exited => true,
    };
    if !fits {
        return Err(broken("phase and calls agree", format!("{pid}: {:?}, {:?}", process.phase, process.step)));
    }
    if let Phase::Waiting { wait: Wait::Approval(id), .. } = &process.phase
        && !process.proposals.contains_key(id)
    {
        return Err(broken("whoever waits for a word has asked for it", format!("{pid} waits for {id}")));
    }
    if process.phase == Phase::Idle && process.stopped.is_none() {
        let owed = witness.delivery.owed(pid);
        if process.has_news() || !owed.is_empty() {
            return Err(broken("whatever is recorded is shown", format!("{pid} is idle with {owed:?} to come")));
        }
    }
    if let Phase::Inferring(effect) = process.phase
        && witness.turns.in_flight.get(&effect).is_none_or(|(of, ..)| *of != pid)
    {
        return Err(broken("who asks has an inference under way", format!("{pid}: {effect}")));
    }
    Ok(())
}

/// Names and routes belong to the living.
fn owners<P: PageStore>(kernel: &mut Kernel<P>, names: &BTreeMap<String, Pid>) -> Result<(), Broken> {
    for path in PATHS {
        if let Some((pid, _)) = kernel.route(path)
            && kernel.process(pid).is_none_or(|process| process.exited() || !process.webhooks.contains_key(path))
        {
            return Err(broken("an exited process owns nothing", format!("{pid} has the route {path}")));
        }
    }
    let spec = |name: &str| SpawnSpec {
        parent: Pid::INIT,
        name: Some(name.to_owned()),
        role: String::new(),
        task: None,
        mode: aos_abi::process::Mode::Resident,
        model: String::new(),
        priority: Default::default(),
        grants: None,
        budget: Default::default(),
        pipe_to: None,
        workspace: aos_abi::process::Workspace::Home(Pid::INIT),
        quarantine: false,
    };
    for name in NAMES {
        let body = Body::Spawned(Box::new(spec(name)));
        let taken = kernel.check(kernel.next_pid(), &body).is_err_and(|error| error.code == Code::Exist);
        if taken != names.contains_key(name) {
            return Err(broken("a name belongs to whoever lives under it", format!("{name}: {names:?}")));
        }
    }
    Ok(())
}

/// Slots are used, and queues hold who is ready.
fn slots<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &Witness,
    waiting: &BTreeMap<String, Vec<Pid>>,
    due: Option<Timestamp>,
) -> Result<(), Broken> {
    let now = kernel.at();
    let deadline = kernel.next_deadline();
    if due.is_some() && deadline.is_none_or(|at| Some(at) > due) {
        return Err(broken("the due index equals a recomputation", format!("{deadline:?}, really {due:?}")));
    }
    let mut limited = false;
    for (model, slot) in kernel.slots() {
        let ready = waiting.get(&model).map_or(0, Vec::len);
        if slot.waiting as usize != ready {
            let what = format!("{model}: {} queued, {ready} ready", slot.waiting);
            return Err(broken("who is ready is queued, once", what));
        }
        let used = witness.turns.in_flight.values().filter(|(_, of, _)| *of == model).count();
        if slot.used as usize != used {
            return Err(broken("slots in use are inferences under way", format!("{model}: {slot:?}, {used}")));
        }
        if ready == 0 || slot.used >= slot.limit {
            continue;
        }
        let limits = kernel.config().models.get(&model).map(|spec| spec.limits).unwrap_or_default();
        let quiet = witness.turns.quiet.get(&model).is_some_and(|until| *until > now);
        if !quiet && limits.rpm.is_none() && limits.tpm.is_none() {
            return Err(broken("a free slot and a waiting process never coexist", format!("{model}: {slot:?}")));
        }
        limited = true;
        if deadline.is_none() {
            return Err(broken("who waits for a limit has a deadline", format!("{model}: {slot:?}")));
        }
    }
    if let Some(at) = deadline
        && due.is_none_or(|due| at < due)
        && !limited
    {
        return Err(broken("an idle system wants no tick", format!("{at} wanted, {due:?} due")));
    }
    Ok(())
}

/// Once aged, a process is served by every fourth start of its model at the latest, behind those that aged before it.
fn starving<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &Witness,
    waiting: &BTreeMap<String, Vec<Pid>>,
    memory: &mut Memory,
) -> Result<(), Broken> {
    let now = kernel.at();
    let everybody: BTreeSet<Pid> = waiting.values().flatten().copied().collect();
    memory.waiting.retain(|pid, _| everybody.contains(pid));
    for (model, pids) in waiting {
        let starts = witness.turns.starts.get(model).copied().unwrap_or_default();
        for pid in pids {
            let (since, aged) = memory.waiting.entry(*pid).or_insert((now, None));
            if now.millis_since(*since) < AGED_MS {
                continue;
            }
            // An input may start several at once, so what is counted from is a little late: the bound is wide.
            let from = *aged.get_or_insert(starts);
            let bound = 4 * (u64::from(u32::try_from(pids.len()).unwrap_or(u32::MAX)) + 40);
            if starts - from > bound {
                let what = format!("{pid} has waited since {since} through {} starts of {model}", starts - from);
                return Err(broken("nobody starves", what));
            }
        }
    }
    Ok(())
}
