//! Checkers over the kernel's state, run after every input.
//!
//! Start at [`state`]. Each names what must hold and computes it again from the processes themselves, so that no index
//! is trusted; `witness` holds the checkers over what leaves the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_abi::entry::ProposalState;
use aos_abi::process::{Priority, SpawnSpec, State};
use aos_abi::{Body, Code, Entry, Pid, Timestamp, limits};
use aos_kernel::Kernel;
use aos_kernel::budget::{Budget, Dimension, Need};
use aos_kernel::past::mismatch;
use aos_kernel::process::{CallState, Phase, Process, Wait};
use aos_kernel::table::PageStore;

use crate::outside::Outside;
use crate::report::{Broken, broken};
use crate::setup::{GROUPS, NAMES, PATHS};
use crate::witness::Witness;

/// How long a process waits before it counts as aged, in milliseconds: the scheduler's own number.
const AGED_MS: u64 = 20_000;

/// Every so many starts an aged process goes first: the scheduler's own number.
const AGED_EVERY: u64 = 4;

/// What is remembered from check to check.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    waiting: BTreeMap<(Pid, String), Waiter>,
    /// Inputs after which somebody waited for a limit beside a free slot.
    pub(crate) limited: u64,
    /// Starts by age, past somebody more urgent.
    pub(crate) aged: u64,
}

/// A process that waits for a slot.
#[derive(Clone, Debug)]
struct Waiter {
    model: String,
    /// Since when, as far as was seen.
    since: Timestamp,
    /// It waited before the machine started: nobody saw since when.
    before_boot: bool,
    class: Priority,
    service: u64,
    /// Nothing limits what it or those it draws on may spend. Who cannot pay loses its place, also within one input.
    pays: bool,
    /// Once it has aged: starts of its model until then, and how many more there may be.
    aged: Option<(u64, u64)>,
}

impl Memory {
    /// The machine stopped and starts again: who waits is another matter.
    pub(crate) fn restart(&mut self) {
        self.waiting.clear();
    }
}

/// Everything that must hold between two inputs.
pub(crate) fn state<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &Witness,
    memory: &mut Memory,
) -> Result<(), Broken> {
    let now = kernel.at();
    let mut counts = [0u64; State::ALL.len()];
    let mut due: Option<Timestamp> = None;
    let mut waiting: BTreeMap<(Pid, String), Waiter> = BTreeMap::new();
    let mut budgets = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut groups: BTreeMap<String, Vec<Pid>> = BTreeMap::new();
    let mut trees: BTreeMap<Pid, u32> = BTreeMap::new();
    for pid in (2..kernel.next_pid().0).map(Pid) {
        let Some(process) = kernel.process(pid) else { continue };
        counts[process.state() as usize] += 1;
        one(process, witness)?;
        if process.root != pid && !process.exited() {
            *trees.entry(process.root).or_default() += 1;
        }
        due = [due, process.earliest_due()].into_iter().flatten().min();
        let mut models: BTreeSet<String> = process.asks.iter().map(|ask| ask.model.clone()).collect();
        if process.phase == Phase::Ready {
            models.insert(process.model.clone());
        }
        for model in models.into_iter().filter(|_| process.stopped.is_none()) {
            let spoken_to = process.hurried || process.has_person_input() || witness.spoken_to == Some(pid);
            let urgent = spoken_to || process.terminating.is_some();
            let waiter = Waiter {
                model: model.clone(),
                since: now,
                before_boot: witness.booting,
                class: if urgent { Priority::Interactive } else { process.priority },
                service: process.service,
                pays: true,
                aged: None,
            };
            waiting.insert((pid, model), waiter);
        }
        let asking = witness.turns.in_flight.values().any(|(of, ..)| *of == pid);
        let ahead = process.purse.as_ref().map_or(Need { usd: 0, tokens: 0 }, |purse| purse.total());
        budgets.insert(pid, (process.budget, asking, ahead));
        if let Some(name) = process.name.clone().filter(|_| !process.exited()) {
            names.insert(name, pid);
        }
        if let Some(group) = process.group.clone().filter(|_| !process.exited()) {
            groups.entry(group).or_default().push(pid);
        }
    }
    if witness.ticked && due.is_some_and(|due| due < now) {
        return Err(broken("what is due happens", format!("{due:?} was due before a tick at {now}")));
    }
    for (state, count) in kernel.counts() {
        let real = State::ALL.iter().find(|of| of.as_str() == state).map_or(0, |of| counts[*of as usize]);
        if real != count {
            return Err(broken("counts by state equal a recount", format!("{count} {state}, there are {real}")));
        }
    }
    if *kernel.trees() != trees {
        return Err(broken("trees equal a recount", format!("{:?}, there are {trees:?}", kernel.trees())));
    }
    witness.money.accounts(&budgets)?;
    owners(kernel, &names)?;
    for group in GROUPS {
        let (members, real) = (kernel.reached(group, false), groups.remove(group).unwrap_or_default());
        if members != real {
            return Err(broken("a group is its living members", format!("{group}: {members:?}, there are {real:?}")));
        }
    }
    standing(kernel)?;
    denied(kernel)?;
    slots(kernel, witness, &waiting, due, memory)?;
    queue(kernel, witness, waiting, memory)
}

/// What was approved for a process stands for a living one and under the policy that it was approved under.
fn standing<P: PageStore>(kernel: &mut Kernel<P>) -> Result<(), Broken> {
    let holds = kernel.policy().generation().to_owned();
    for (id, pid) in kernel.standing_approvals() {
        let process = kernel.process(pid).filter(|process| !process.exited());
        if process.and_then(|process| process.standing.get(&id)).is_none_or(|open| open.generation != holds) {
            return Err(broken("an approval stands with its process and its policy", format!("{id} of {pid}")));
        }
    }
    Ok(())
}

/// What people may lift is listed, bounded, and of the policy that holds.
fn denied<P: PageStore>(kernel: &mut Kernel<P>) -> Result<(), Broken> {
    let holds = kernel.policy().generation().to_owned();
    let pids: Vec<Pid> = (2..kernel.next_pid().0).map(Pid).collect();
    let has = |pid: &Pid| kernel.process(*pid).is_some_and(|process| !process.denials.is_empty());
    let pids: Vec<Pid> = pids.into_iter().filter(has).collect();
    if pids.is_empty() {
        return Ok(());
    }
    let views = kernel.proposals();
    for pid in pids {
        let Some(process) = kernel.process(pid) else { continue };
        let open = process.denials.values().filter(|denial| !denial.lifted).count();
        let stale = process.denials.values().any(|denial| denial.open.generation != holds);
        let listed = |number: &u64| views.iter().any(|view| view.pid == pid && view.id == format!("p{number}"));
        if open > 16 || stale || !process.denials.keys().all(listed) {
            return Err(broken("denials are few, listed and of this policy", format!("{pid}: {:?}", process.denials)));
        }
    }
    let open = views.iter().filter(|view| view.state == ProposalState::Denied).count();
    if open > 256 {
        Err(broken("denials are few, listed and of this policy", format!("{open} in all")))
    } else {
        Ok(())
    }
}

/// What the journal says of the window of each living process, and of what has come since, is what the process has.
pub(crate) fn pasts<P: PageStore>(kernel: &mut Kernel<P>, history: &[Arc<Entry>]) -> Result<(), Broken> {
    (2..kernel.next_pid().0).try_for_each(|pid| past(kernel, history, Pid(pid)))
}

fn past<P: PageStore>(kernel: &mut Kernel<P>, history: &[Arc<Entry>], pid: Pid) -> Result<(), Broken> {
    let Some(real) = kernel.past(pid) else { return Ok(()) };
    mismatch(history, pid, real)
        .map_or(Ok(()), |what| Err(broken("a window can be read back from the journal", format!("of {pid}: {what}"))))
}

/// What is watched outside is what processes watch.
pub(crate) fn watches<P: PageStore>(kernel: &mut Kernel<P>, outside: &Outside) -> Result<(), Broken> {
    let mut watches = BTreeSet::new();
    for pid in (2..kernel.next_pid().0).map(Pid) {
        let Some(process) = kernel.process(pid) else { continue };
        watches.extend(process.watches.keys().map(|id| (pid, id.clone())));
    }
    if watches == outside.watches {
        return Ok(());
    }
    Err(broken("what is watched is what processes watch", format!("{watches:?}, {:?}", outside.watches)))
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
            || !process.standing.is_empty()
            || !process.denials.is_empty()
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
    // Words that a call took as its result are in no queue any more, and hasten all the same.
    let goes_on = matches!(process.phase, Phase::Ready | Phase::Calling | Phase::Waiting { .. });
    if witness.spoken_to == Some(pid) && goes_on && process.stopped.is_none() && !process.hurried {
        return Err(broken("a person's words hasten", format!("{pid}: {:?}", process.phase)));
    }
    let running = process.step.iter().filter(|call| matches!(call.state, CallState::Running(_))).count();
    let waits = process.step.iter().filter(|call| call.state == CallState::Waiting).count();
    let fits = match &process.phase {
        Phase::Waiting { call, .. } => {
            running == 0 && waits == 1 && process.step.get(*call).is_some_and(|call| call.state == CallState::Waiting)
        }
        Phase::Calling => waits == 0 && (running > 0 || process.stopped.is_some()),
        Phase::Inferring(_) => process.step.is_empty(),
        Phase::Ready | Phase::Backoff(_) | Phase::Broke { .. } | Phase::Writing(_) | Phase::Idle => {
            running == 0 && waits == 0
        }
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
    let awaited = |id: &String| matches!(&process.phase, Phase::Waiting { wait: Wait::Approval(of), .. } if of == id);
    if let Some((id, _)) = process.proposals.iter().find(|(id, open)| open.call.is_some() && !awaited(id)) {
        return Err(broken("who was asked for is waited for", format!("{pid}: {:?}, not for {id}", process.phase)));
    }
    if let Phase::Waiting { wait, .. } = &process.phase
        && process.stopped.is_none()
    {
        let answered = match wait {
            Wait::Message => !process.inbox.is_empty(),
            Wait::Stdin => !process.stdin.is_empty() || process.stdin_eof,
            Wait::Child(None) => !process.zombies.is_empty(),
            Wait::Child(Some(child)) => process.zombies.iter().any(|zombie| zombie.pid == *child),
            Wait::Sleep | Wait::Person | Wait::Approval(_) => false,
        };
        if answered {
            return Err(broken("a wait ends with what it waits for", format!("{pid} waits for {wait:?}")));
        }
    }
    let queues = [
        (process.inbox.len(), limits::INBOX_MAX),
        (process.stdin.len(), limits::STDIN_MAX),
        (process.notices.len(), limits::NOTICES_MAX),
    ];
    if queues.iter().any(|(holds, most)| holds > most) {
        return Err(broken("queues are bounded", format!("{pid}: {queues:?}")));
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
    let plain = SpawnSpec::resident(Pid::INIT, "", "");
    for name in NAMES {
        let spec = SpawnSpec { name: Some(name.to_owned()), ..plain.clone() };
        let body = Body::Spawned(Box::new(spec));
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
    waiting: &BTreeMap<(Pid, String), Waiter>,
    due: Option<Timestamp>,
    memory: &mut Memory,
) -> Result<(), Broken> {
    let now = kernel.at();
    let deadline = kernel.next_deadline();
    if due.is_some() && deadline.is_none_or(|at| Some(at) > due) {
        return Err(broken("the due index equals a recomputation", format!("{deadline:?}, really {due:?}")));
    }
    let mut limited = false;
    for (model, slot) in kernel.slots() {
        let ready = waiting.values().filter(|waiter| waiter.model == model).count();
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
        if !witness.turns.held(&model, &limits, now) {
            return Err(broken("a free slot and a waiting process never coexist", format!("{model}: {slot:?}")));
        }
        limited = true;
        if deadline.is_none() {
            return Err(broken("who waits for a limit has a deadline", format!("{model}: {slot:?}")));
        }
    }
    memory.limited += u64::from(limited);
    if let Some(at) = deadline
        && due.is_none_or(|due| at < due)
        && !limited
    {
        return Err(broken("an idle system wants no tick", format!("{at} wanted, {due:?} due")));
    }
    Ok(())
}

/// The queue is served in order: the more urgent first, then the least served, and by age every fourth time.
fn queue<P: PageStore>(
    kernel: &mut Kernel<P>,
    witness: &Witness,
    waiting: BTreeMap<(Pid, String), Waiter>,
    memory: &mut Memory,
) -> Result<(), Broken> {
    let now = kernel.at();
    let limited = |budget: &Budget| Dimension::ALL.iter().any(|of| budget.account(*of).limit.is_some());
    let free = kernel.config().usd_per_day.is_none();
    let mut waiting = waiting;
    for ((pid, _), waiter) in &mut waiting {
        let mut at = *pid;
        waiter.pays = free;
        while let Some(process) = kernel.process(at).filter(|_| waiter.pays) {
            (waiter.pays, at) = (!limited(&process.budget), process.budget.from);
        }
    }
    // Whoever has left meanwhile was passed by nobody. A program may have been served something else by the same input.
    let service =
        |of: &(Pid, String), then: &Waiter| waiting.get(of).map_or(u64::MAX, |at| at.service.max(then.service));
    for (pid, model) in &witness.turns.begun {
        if kernel.process(*pid).is_some_and(|process| process.stopped.is_some()) {
            return Err(broken("who is stopped starts nothing", format!("{pid} asks {model}")));
        }
        let Some(started) = memory.waiting.get(&(*pid, model.clone())) else { continue };
        // It may have become urgent by the same input that started it.
        let terminating = kernel.process(*pid).is_some_and(|process| process.terminating.is_some());
        let urgent = terminating || witness.spoken_to == Some(*pid);
        let class = if urgent { Priority::Interactive } else { started.class };
        let mut passed = memory.waiting.iter().filter(|(other, waiter)| {
            waiter.model == *model
                && waiter.pays
                && waiting.contains_key(other)
                && (waiter.class < class || (waiter.class == class && service(other, waiter) < started.service))
        });
        let Some((other, waiter)) = passed.next() else { continue };
        if started.before_boot || now.millis_since(started.since) >= AGED_MS {
            memory.aged += 1;
            continue;
        }
        let what = format!("{pid} ({started:?}) started before {} ({waiter:?})", other.0);
        return Err(broken("the most urgent goes first, then the least served", what));
    }
    let earlier = std::mem::take(&mut memory.waiting);
    for (of, mut waiter) in waiting.clone() {
        // A program that has begun one request waits anew for the next.
        if let Some(known) = earlier.get(&of).filter(|_| !witness.turns.begun.contains(&of)) {
            (waiter.since, waiter.before_boot, waiter.aged) = (known.since, known.before_boot, known.aged);
            waiter.class = waiter.class.min(known.class);
        }
        if waiter.pays && now.millis_since(waiter.since) >= AGED_MS {
            let starts = witness.turns.starts.get(&waiter.model).copied().unwrap_or_default();
            let since = |other: &(Pid, String)| earlier.get(other).map_or(now, |known| known.since);
            let ahead = waiting.iter().filter(|(other, at)| at.model == waiter.model && since(other) <= waiter.since);
            let (from, bound) = *waiter.aged.get_or_insert((starts, AGED_EVERY * ahead.count() as u64));
            if starts - from > bound {
                let what = format!("{of:?} aged {} starts ago, {bound} would do: {waiter:?}", starts - from);
                return Err(broken("nobody starves", what));
            }
        }
        memory.waiting.insert(of, waiter);
    }
    Ok(())
}
