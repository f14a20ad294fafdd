//! The heart: the one loop that owns the kernel.
//!
//! Start at [`Heart::run`]. Everything that reaches the kernel passes here: it is checked, applied, made durable, and
//! only then acknowledged and acted upon. While one batch syncs the next is applied, so throughput rises with load.
//! What always holds: entries reach the journal in the order they were decided; nothing that changes the outside
//! leaves, and nobody is told "done", before the entries that say so are on disk, or those that have paid for it ahead.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use aos_abi::api::Accepted;
use aos_abi::entry::{Configured, Cut, InferenceOutcome, ServedOutcome, Took};
use aos_abi::inference::{Failure, FailureKind, Usage};
use aos_abi::process::State;
use aos_abi::{Body, CallError, Code, EffectId, Entry, Lsn, Pid, Timestamp};
use aos_journal::Journal;
use aos_kernel::effect::Effect;
use aos_kernel::fault::{Fault, Instead};
use aos_kernel::table::StoreFailed;
use aos_kernel::{Applied, Kernel};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::edges::Edges;
use super::pages::Pages;
use super::{Error, barrier, restore};

/// Inputs taken into one batch at most: a batch is one commit, and the next gathers meanwhile.
const BATCH_MAX: usize = 512;
/// Requests that may wait for the loop; beyond, callers wait.
const REQUESTS_MAX: usize = 1024;
/// Entries after which a checkpoint is due: it bounds how much a start after a crash replays.
const CHECKPOINT_ENTRIES: u64 = 2000;
/// Quiet after which a checkpoint is taken, if there is anything new.
const CHECKPOINT_QUIET: Duration = Duration::from_secs(2);
/// Processes that may stay in memory whatever they do.
const RESIDENT_MAX: usize = 4096;
/// How long, when the daemon ends, it is waited for what was heard of answers under way.
const CUT_WITHIN: Duration = Duration::from_secs(1);
/// How often they are given up meanwhile.
const CUT_AGAIN: Duration = Duration::from_millis(20);
/// Longest sleep to a deadline: a machine that was suspended has another wall clock than its timers think.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The kernel of a running daemon.
pub(crate) type LiveKernel = Kernel<Pages>;

/// An outcome from an edge: which process, and what happened.
pub(crate) type Completion = (Pid, Body);

/// Builds an input with the kernel at hand: it knows the next pid and whether the input may be.
type Build = Box<dyn FnOnce(&mut LiveKernel) -> Result<(Pid, Body), CallError> + Send>;
/// Reads the kernel, and returns what to do once everything it saw is durable.
type Look = Box<dyn FnOnce(&mut LiveKernel) -> Box<dyn FnOnce() + Send> + Send>;

/// What is asked of the loop.
enum Request {
    /// Something changes.
    Change(Build, oneshot::Sender<Result<Accepted, CallError>>),
    /// Somebody looks.
    Look(Look),
    /// The journal takes ended processes out.
    Prune(aos_journal::PrunePlan, oneshot::Sender<Result<(), CallError>>),
    /// A checkpoint is wanted now.
    Save(oneshot::Sender<Result<(), CallError>>),
    /// A checkpoint is durable: what it holds may leave memory.
    Saved(Lsn),
}

/// How the rest of the daemon speaks to the loop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    requests: mpsc::Sender<Request>,
    /// What made the journal fail.
    broken: Arc<OnceLock<CallError>>,
    clock: Arc<Clock>,
}

impl Handle {
    /// Makes an input of what `build` returns, unless the kernel refuses it. Durable when it resolves.
    pub(crate) async fn change(
        &self,
        build: impl FnOnce(&mut LiveKernel) -> Result<(Pid, Body), CallError> + Send + 'static,
    ) -> Result<Accepted, CallError> {
        let (sender, answer) = oneshot::channel();
        self.requests.send(Request::Change(Box::new(build), sender)).await.map_err(|_| self.stopping())?;
        answer.await.map_err(|_| self.stopping())?
    }

    /// Reads the kernel. What is returned is durable.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut LiveKernel) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (sender, answer) = oneshot::channel();
        let look: Look = Box::new(move |kernel| {
            let seen = read(kernel);
            Box::new(move || {
                // Whoever asked may have gone.
                let _ = sender.send(seen);
            })
        });
        self.requests.send(Request::Look(look)).await.map_err(|_| self.stopping())?;
        answer.await.map_err(|_| self.stopping())
    }

    /// Takes a checkpoint; durable when it resolves.
    pub(crate) async fn save(&self) -> Result<(), CallError> {
        let (sender, answer) = oneshot::channel();
        self.requests.send(Request::Save(sender)).await.map_err(|_| self.stopping())?;
        answer.await.map_err(|_| self.stopping())?
    }

    /// Takes ended processes out of the journal and the kernel.
    pub(crate) async fn prune(&self, plan: aos_journal::PrunePlan) -> Result<(), CallError> {
        let (sender, answer) = oneshot::channel();
        self.requests.send(Request::Prune(plan, sender)).await.map_err(|_| self.stopping())?;
        answer.await.map_err(|_| self.stopping())?
    }

    /// Seconds that the kernel's time is ahead of the wall clock, where it is more than a minute.
    pub(crate) fn ahead_s(&self) -> Option<u64> {
        self.clock.ahead_s()
    }

    /// Why nobody answers: what made the journal fail, a fault of the kernel, or a stop as somebody wanted it.
    fn stopping(&self) -> CallError {
        let wanted = || CallError::new(Code::Again, "the daemon is stopping").hint("`aos up` starts it again");
        let otherwise = || if self.requests.is_closed() { wanted() } else { failed_over_it() };
        self.broken.get().cloned().unwrap_or_else(otherwise)
    }

    /// Remembers what made the journal fail, before anybody is sent away.
    fn broke(&self, error: &aos_journal::Error) {
        // The first one counts: the others follow from it.
        let _ = self.broken.set(journal_failed(error));
    }
}

/// The loop and what it owns.
pub(crate) struct Heart {
    kernel: LiveKernel,
    journal: Arc<Journal>,
    edges: Arc<Edges>,
    handle: Handle,
    requests: mpsc::Receiver<Request>,
    completions: mpsc::UnboundedReceiver<Completion>,
    /// Said when the journal fails: nothing can be acknowledged any more.
    failed: mpsc::UnboundedSender<aos_journal::Error>,
    /// The last checkpoint handed to the journal.
    checkpoint: Lsn,
    /// The last one that is durable. While it is older, no page may leave memory: the store has an older one.
    saved: Lsn,
    /// The one before that: what nobody has reached for since then may leave.
    saved_before: Lsn,
    /// Entries were pruned: decisions can be made again from what is now.
    pruned: bool,
}

/// What one round of the loop has gathered.
#[derive(Default)]
struct Round {
    entries: Vec<Arc<Entry>>,
    /// Effects that wait for the disk.
    effects: Vec<Effect>,
    /// To be done once all of it is durable.
    replies: Vec<Box<dyn FnOnce() + Send>>,
}

impl Heart {
    /// The loop over a kernel that is up to date with its journal, and the handle to it.
    pub(crate) fn new(
        kernel: LiveKernel,
        journal: Arc<Journal>,
        edges: Arc<Edges>,
        completions: mpsc::UnboundedReceiver<Completion>,
        failed: mpsc::UnboundedSender<aos_journal::Error>,
        checkpoint: Lsn,
    ) -> (Heart, Handle) {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let clock = Arc::new(Clock::new(kernel.at()));
        let handle = Handle { requests: sender, broken: Arc::default(), clock };
        let heart = Heart {
            kernel,
            journal,
            edges,
            handle: handle.clone(),
            requests,
            completions,
            failed,
            checkpoint,
            saved: checkpoint,
            saved_before: checkpoint,
            pruned: false,
        };
        (heart, handle)
    }

    /// Runs until told to stop, then saves a checkpoint, so that the next start has nothing to replay.
    /// `last_pid`: the highest that the home has had, also where its journal does not say so any more.
    pub(crate) async fn run(mut self, configured: Configured, last_pid: Pid, shutdown: CancellationToken) {
        // What was under way is recovered before anything else happens. Any other entry, a tick included, could start calls
        // of its own, which would then pass for interrupted ones.
        let mut round = Round::default();
        let configured = (**self.kernel.config() != configured).then(|| Box::new(configured));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let last_pid = Some(last_pid).filter(|last| *last >= self.kernel.next_pid());
        self.apply_own(&mut round, Body::Booted { version, configured, faulted: Vec::new(), last_pid });
        self.commit(round);
        let mut completions = Vec::new();
        let mut requests = Vec::new();
        loop {
            let wake = self.sleep();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                _ = self.completions.recv_many(&mut completions, BATCH_MAX) => {}
                _ = self.requests.recv_many(&mut requests, BATCH_MAX) => {}
                () = tokio::time::sleep(wake.unwrap_or(SLEEP_MAX)), if wake.is_some() => {}
            }
            // Whatever else has come meanwhile rides along with the same commit.
            while completions.len() < BATCH_MAX
                && let Ok(more) = self.completions.try_recv()
            {
                completions.push(more);
            }
            while requests.len() < BATCH_MAX
                && let Ok(more) = self.requests.try_recv()
            {
                requests.push(more);
            }
            let mut round = Round::default();
            for (pid, body) in completions.drain(..) {
                // An outcome nobody waits for any more (its process was killed) is dropped.
                if self.guarded(&mut round, |kernel| kernel.check(pid, &body).is_ok()) == Some(true) {
                    // Nobody asked for it.
                    let _ = self.apply(&mut round, pid, body);
                }
            }
            for request in requests.drain(..) {
                self.serve(&mut round, request);
            }
            if self.kernel.next_deadline().is_some_and(|at| at <= self.now()) {
                self.apply_own(&mut round, Body::Tick);
            }
            self.commit(round);
            if std::mem::take(&mut self.pruned) {
                self.renew_barrier();
            }
            self.save_if_due(false);
            self.make_room();
        }
        self.cut_off().await;
        self.save_if_due(true);
    }

    /// Gives up what models are answering, and has the kernel keep what was heard of it: so much is paid at the next start,
    /// as for a process that is killed. Who has not said by then what was heard is left out, and paid at the most.
    async fn cut_off(&mut self) {
        let mut asking = self.kernel.asking();
        let mut cut = Vec::new();
        let until = Instant::now() + CUT_WITHIN;
        while !asking.is_empty() && Instant::now() < until {
            // One whose entry has just become durable begins only now.
            asking.iter().for_each(|id| self.edges.perform(Effect::Cancel(*id)));
            let Ok(came) = tokio::time::timeout(CUT_AGAIN, self.completions.recv()).await else { continue };
            // What else comes is made again or told as interrupted at the next start, as before.
            let Some((effect, usage)) = came.and_then(|(_, body)| heard(&body)) else { continue };
            if asking.remove(&effect) {
                cut.extend(usage.map(|usage| Cut { effect, usage }));
            }
        }
        if !cut.is_empty() {
            let mut round = Round::default();
            self.apply_own(&mut round, Body::Rested { cut });
            self.commit(round);
        }
    }

    /// How long there is nothing to do unless something comes. `None`: for ever.
    fn sleep(&mut self) -> Option<Duration> {
        let now = self.now();
        let deadline = self.kernel.next_deadline().map(|at| Duration::from_millis(at.millis_since(now)));
        let unsaved = self.kernel.lsn() > self.checkpoint || self.kernel.holds_purses();
        let save = unsaved.then_some(CHECKPOINT_QUIET);
        [deadline, save].into_iter().flatten().min().map(|wait| wait.min(SLEEP_MAX))
    }

    /// Applies an input. Where the kernel fails over it, who it failed over is set aside, and the input is applied without, or
    /// left out.
    ///
    /// # Errors
    /// What whoever asked for it is told where it was left out.
    fn apply(&mut self, round: &mut Round, pid: Pid, body: Body) -> Result<Lsn, CallError> {
        let mut next = Some((pid, body));
        let mut left_out = None;
        while let Some((pid, body)) = next.take() {
            // The kernel reads no clock; what its decisions took is measured round it and journaled with them.
            let began = Instant::now();
            match self.kernel.attempt(self.now(), pid, body) {
                Ok(applied) => return Ok(self.take(round, applied, began.elapsed())),
                Err(fault) => {
                    let error = fault.error();
                    next = self.without(round, fault);
                    if next.is_none() {
                        left_out = Some(error);
                    }
                }
            }
        }
        Err(left_out.expect("an input that is not applied has a fault"))
    }

    /// Applies an input of the daemon's own, which is never left out.
    fn apply_own(&mut self, round: &mut Round, body: Body) {
        let applied = self.apply(round, Pid::SYSTEM, body);
        debug_assert!(applied.is_ok(), "{applied:?}");
    }

    /// Takes up what an input came to.
    fn take(&mut self, round: &mut Round, mut applied: Applied, took: Duration) -> Lsn {
        let took = Took(u64::try_from(took.as_micros()).ok());
        for entry in applied.entries.iter_mut().filter(|entry| matches!(entry.body, Body::Verdict { .. })) {
            if let Body::Verdict { took_us, .. } = &mut Arc::make_mut(entry).body {
                *took_us = took;
            }
        }
        let lsn = applied.entries.first().map_or(Lsn::ZERO, |entry| entry.lsn);
        self.edges.remember(&applied.entries);
        round.entries.extend(applied.entries);
        let durable = self.journal.last();
        for effect in applied.effects {
            if effect.waits_for_disk(durable) {
                round.effects.push(effect);
            } else {
                self.edges.perform(effect);
            }
        }
        lsn
    }

    /// After a fault: the kernel is made again from the journal, and who it failed over is set aside. Returns the input, where
    /// it is to be applied without that one.
    ///
    /// # Panics
    /// Where nobody can be set aside for it, or that fails too: the daemon ends, and what is in the journal stays.
    fn without(&mut self, round: &mut Round, fault: Box<Fault>) -> Option<(Pid, Body)> {
        tracing::error!("the kernel failed over process {} at `{}`: {}", fault.over, fault.body.kind(), fault.why);
        self.commit(std::mem::take(round));
        self.make_again();
        let Instead { first, then } = self.kernel.instead(fault).unwrap_or_else(|fault| panic!("{}", fault.why));
        if let Some((pid, body)) = first {
            let began = Instant::now();
            let applied = self.kernel.attempt(self.now(), pid, body);
            let applied = applied.unwrap_or_else(|fault| panic!("process {pid} cannot be set aside: {}", fault.why));
            self.take(round, applied, began.elapsed());
            if then.is_none() {
                // Whoever waited for what is free now.
                self.apply_own(round, Body::Tick);
            }
        }
        then
    }

    /// Reads the kernel. `None` where it failed over that: it is made again then, since nobody knows what a glance has left.
    fn guarded<T>(&mut self, round: &mut Round, read: impl FnOnce(&mut LiveKernel) -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| read(&mut self.kernel))) {
            Ok(seen) => Some(seen),
            Err(said) if said.is::<StoreFailed>() => resume_unwind(said),
            Err(_) => {
                tracing::error!("the kernel failed over a request, which is refused");
                self.commit(std::mem::take(round));
                self.make_again();
                None
            }
        }
    }

    /// Makes the kernel again as the journal has it: with all that was applied, and nothing of what failed.
    fn make_again(&mut self) {
        // What was handed to it is written first.
        let made = self.journal.append_wait(Vec::new()).map_err(Error::from);
        match made.and_then(|()| restore::again(&self.journal, &self.failed)) {
            Ok((kernel, checkpoint)) => {
                self.kernel = kernel;
                (self.checkpoint, self.saved, self.saved_before) = (checkpoint, checkpoint, checkpoint);
            }
            Err(error) => panic!("the kernel cannot be made again: {error}"),
        }
    }

    fn serve(&mut self, round: &mut Round, request: Request) {
        match request {
            Request::Change(build, answer) => {
                let now = self.now();
                let checked = self.guarded(round, |kernel| {
                    let (pid, body) = build(kernel)?;
                    kernel.check_at(now, pid, &body).map(|()| (pid, body))
                });
                let (outcome, failed) = match checked {
                    None => (Err(failed_over_it()), true),
                    Some(Err(error)) => (Err(error), false),
                    Some(Ok((pid, body))) => {
                        let applied = self.apply(round, pid, body);
                        let failed = applied.is_err();
                        // Whoever gives it something to read is told that it does not read now.
                        let stopped = self.kernel.process(pid).is_some_and(|process| process.state() == State::Stopped);
                        (applied.map(|lsn| Accepted { pid, lsn, stopped }), failed)
                    }
                };
                if failed {
                    // It may have built something for a process that is not born.
                    self.edges.unborn(self.kernel.next_pid());
                }
                round.replies.push(Box::new(move || {
                    let _ = answer.send(outcome);
                }));
            }
            // Whoever looks is told by the end of its channel where there is nothing to be seen.
            Request::Look(look) => {
                let seen = self.guarded(round, look);
                round.replies.extend(seen);
            }
            Request::Prune(plan, answer) => self.prune(round, plan, answer),
            Request::Save(answer) => {
                // What is in a checkpoint must be in the journal before it.
                self.commit(std::mem::take(round));
                self.save(Some(answer));
            }
            Request::Saved(lsn) => {
                self.saved_before = std::mem::replace(&mut self.saved, lsn);
                if self.quiet() {
                    self.edges.rest();
                }
            }
        }
    }

    /// Puts idle processes out of memory, where there are many and the store has them as they are.
    fn make_room(&mut self) {
        if self.saved == self.checkpoint && self.kernel.resident() > RESIDENT_MAX {
            self.kernel.evict(self.saved_before);
        }
    }

    /// The mark that seals a prune is written by the journal together with the deletion, so the round before it is
    /// committed first and the kernel's own entry for it must be that very mark.
    fn prune(
        &mut self,
        round: &mut Round,
        plan: aos_journal::PrunePlan,
        answer: oneshot::Sender<Result<(), CallError>>,
    ) {
        // Who was asked for the plan was asked a while ago.
        let prunable = self.guarded(round, |kernel| kernel.prunable(plan.pids(), None).len());
        if prunable.is_none_or(|prunable| prunable < plan.pids().len()) {
            let error = CallError::new(Code::Again, "what is to be pruned has come into use meanwhile, by a fork");
            let _ = answer.send(Err(error.hint("nothing was pruned: do it again")));
            return;
        }
        self.commit(std::mem::take(round));
        let at = self.now();
        let body = plan.mark(self.kernel.lsn().next(), at).body.clone();
        let mut applied = match self.kernel.attempt(at, Pid::SYSTEM, body) {
            Ok(applied) => applied,
            Err(fault) => {
                tracing::error!("the kernel failed over a prune: {}", fault.why);
                self.make_again();
                let _ = answer.send(Err(failed_over_it()));
                return;
            }
        };
        let mark = applied.entries.remove(0);
        let broken = self.when_broken();
        self.journal.prune(plan, mark.lsn, mark.at, move |outcome| {
            let _ = answer.send(outcome.clone().map_err(|error| journal_failed(&error)));
            if let Err(error) = outcome {
                // The kernel has taken them out, and the journal takes nothing more.
                broken(error);
            }
        });
        round.entries = applied.entries;
        round.effects = applied.effects;
        self.pruned = true;
    }

    /// Keeps the state as it is, in place of an older one that holds what was pruned.
    fn renew_barrier(&mut self) {
        self.save(None);
        let broken = self.when_broken();
        self.journal.barrier(barrier::VERSION, move |outcome| outcome.unwrap_or_else(broken));
    }

    /// What is done where the journal does not take something: whoever is sent away is told why, and the daemon ends.
    fn when_broken(&self) -> impl FnOnce(aos_journal::Error) + Send + use<> {
        let (failed, handle) = (self.failed.clone(), self.handle.clone());
        move |error| {
            handle.broke(&error);
            // Nobody hears it where the daemon ends already.
            let _ = failed.send(error);
        }
    }

    /// Hands a round to the journal. What waits for the disk is done by the journal's own thread right after the sync.
    fn commit(&mut self, round: Round) {
        let Round { entries, effects, replies } = round;
        if entries.is_empty() && replies.is_empty() {
            return;
        }
        // Whoever only looks waits for what it saw to be durable, which it mostly is.
        if entries.is_empty() && effects.is_empty() && self.journal.last() >= self.kernel.lsn() {
            replies.into_iter().for_each(|reply| reply());
            return;
        }
        let edges = Arc::clone(&self.edges);
        let broken = self.when_broken();
        let committed = entries.clone();
        self.journal.append(entries, move |outcome| match outcome {
            Ok(()) => {
                for effect in effects {
                    edges.perform(effect);
                }
                for reply in replies {
                    reply();
                }
                edges.announce(committed);
            }
            // Dropping the replies tells every caller that nothing was acknowledged.
            Err(error) => broken(error),
        });
    }

    fn save_if_due(&mut self, last: bool) {
        let quiet = self.requests.is_empty() && self.quiet();
        if (quiet || last) && self.kernel.holds_purses() {
            let mut round = Round::default();
            self.apply_own(&mut round, Body::Rested { cut: Vec::new() });
            self.commit(round);
        }
        let since = self.kernel.lsn().0 - self.checkpoint.0;
        let due = since >= CHECKPOINT_ENTRIES || (since > 0 && quiet);
        if since > 0 && (due || last) {
            self.save(None);
        }
    }

    fn save(&mut self, answer: Option<oneshot::Sender<Result<(), CallError>>>) {
        let checkpoint = self.kernel.checkpoint();
        self.checkpoint = checkpoint.lsn;
        let lsn = checkpoint.lsn;
        let (broken, handle) = (self.when_broken(), self.handle.clone());
        let saved = restore::kept(checkpoint);
        self.journal.checkpoint(saved, move |outcome| {
            if let Some(answer) = answer {
                let _ = answer.send(outcome.clone().map_err(|error| journal_failed(&error)));
            }
            match outcome {
                Ok(()) => {
                    // A full queue only means that memory is given back at the next checkpoint.
                    let _ = handle.requests.try_send(Request::Saved(lsn));
                }
                Err(error) => broken(error),
            }
        });
    }

    /// What time it is for the kernel.
    fn now(&self) -> Timestamp {
        self.handle.clock.now()
    }

    /// Nothing has happened for a while: the last entry is old.
    fn quiet(&self) -> bool {
        self.now().millis_since(self.kernel.at()) >= CHECKPOINT_QUIET.as_millis() as u64
    }
}

/// Of an answer that comes when the daemon ends: whose it is, and what was used; `None`: that nobody knows.
fn heard(body: &Body) -> Option<(EffectId, Option<Usage>)> {
    // A server that refused or failed without a word of what was used costs nothing.
    let failed = |failure: &Failure| match failure.kind {
        FailureKind::Cancelled => failure.usage,
        _ => Some(failure.usage.unwrap_or_default()),
    };
    match body {
        Body::InferenceCompleted { effect, outcome: InferenceOutcome::Answered(reply), .. } => {
            Some((*effect, Some(reply.usage)))
        }
        Body::InferenceCompleted { effect, outcome: InferenceOutcome::Failed { failure }, .. } => {
            Some((*effect, failed(failure)))
        }
        Body::Served { effect, outcome: ServedOutcome::Answered { usage, .. }, .. } => Some((*effect, Some(*usage))),
        Body::Served { effect, outcome: ServedOutcome::Failed { failure }, .. } => Some((*effect, failed(failure))),
        _ => None,
    }
}

fn failed_over_it() -> CallError {
    CallError::new(Code::Io, "the kernel failed over this request, and nothing was changed")
        .hint("the daemon's log says more, which is worth a report")
}

fn journal_failed(error: &aos_journal::Error) -> CallError {
    let code = if matches!(error, aos_journal::Error::Full) { Code::NoSpc } else { Code::Io };
    CallError::new(code, error.to_string()).hint(error.hint())
}

/// The wall clock, in the journal's unit.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
