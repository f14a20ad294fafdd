//! The world: the loop of the daemon's heart, driven by chance instead of channels and a clock.
//!
//! Start at [`Simulation::run`]. What always holds, as in the real loop: entries are written in the order they were
//! decided; what changes the outside leaves after the sync of the entries that say so; the rest may leave at once.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use aos_abi::entry::{InferenceOutcome, Outcome};
use aos_abi::inference::{Failure, FailureKind};
use aos_abi::{Body, CallError, Code, Entry, Lsn, Pid, Timestamp};
use aos_journal::{MemoryStore, Store};
use aos_kernel::Kernel;
use aos_kernel::effect::Effect;
use aos_kernel::table::PageStore;
use serde_json::json;

use crate::chance::Chance;
use crate::check::{self, Memory};
use crate::mind::{self, Scene};
use crate::outside::{Job, Outside};
use crate::report::{Broken, Failure as RunFailure, Report, broken};
use crate::witness::{Witness, live_through};
use crate::{drain, person, recovery, setup};

/// 2026-11-22T00:00:00Z.
const BEGINNING: Timestamp = Timestamp(1_795_305_600_000);
/// Entries shown where a run fails.
const SHOWN: usize = 40;
/// Steps of a run where nobody says otherwise.
const STEPS: u64 = 70;

/// Pages out of the journal, as they are durable.
#[derive(Clone, Debug)]
pub(crate) struct Pages(pub(crate) Rc<RefCell<MemoryStore>>);

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Vec<u8>>, String> {
        self.0.borrow().page(pid).map_err(|error| error.to_string())
    }
}

/// One run of a world.
#[derive(Debug)]
pub struct Simulation {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) chance: Chance,
    pub(crate) now: Timestamp,
    pub(crate) store: Rc<RefCell<MemoryStore>>,
    pub(crate) kernel: Kernel<Pages>,
    pub(crate) witness: Witness,
    pub(crate) memory: Memory,
    pub(crate) outside: Outside,
    /// Every entry applied, durable or not.
    pub(crate) history: Vec<Arc<Entry>>,
    /// Applied and not yet written.
    pub(crate) round: Vec<Arc<Entry>>,
    /// Effects that wait for the write and sync of their entries.
    pub(crate) waiting: Vec<Effect>,
    /// A checkpoint was written and not yet synced.
    pub(crate) checkpointing: bool,
    pub(crate) crashes: u32,
    serial: u64,
}

impl Simulation {
    /// The run of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        let store = Rc::new(RefCell::new(MemoryStore::new()));
        Simulation {
            seed,
            steps: STEPS,
            chance: Chance::new(seed),
            now: BEGINNING,
            kernel: Kernel::new(Pages(Rc::clone(&store))),
            store,
            witness: Witness::default(),
            memory: Memory::default(),
            outside: Outside::default(),
            history: Vec::new(),
            round: Vec::new(),
            waiting: Vec::new(),
            checkpointing: false,
            crashes: 0,
            serial: 0,
        }
    }

    /// The same with another number of steps.
    #[must_use]
    pub fn steps(self, steps: u64) -> Simulation {
        Simulation { steps, ..self }
    }

    /// Runs to the end, then lets the world come to rest.
    ///
    /// # Errors
    /// What did not hold, with the seed and the last entries.
    pub fn run(mut self) -> Result<Report, Box<RunFailure>> {
        let mut step = 0;
        let outcome = self.begin().and_then(|()| {
            while step < self.steps {
                step += 1;
                self.step()?;
            }
            drain::to_rest(&mut self)
        });
        match outcome {
            Ok(()) => Ok(self.report()),
            Err(broken) => Err(Box::new(RunFailure {
                seed: self.seed,
                step,
                broken,
                last: self.history.iter().rev().take(SHOWN).rev().map(|entry| line(entry)).collect(),
            })),
        }
    }

    fn report(&self) -> Report {
        let (lsn, hash) = self.store.borrow().last().unwrap_or((Lsn::ZERO, aos_journal::chain::GENESIS));
        Report {
            seed: self.seed,
            entries: lsn.0,
            hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            crashes: self.crashes,
            inferences: self.witness.turns.started,
            calls: self.witness.calls.made,
            processes: self.kernel.next_pid().0 - 2,
        }
    }

    fn begin(&mut self) -> Result<(), Broken> {
        self.apply(Pid::SYSTEM, Body::Booted { version: "sim".into() })?;
        let config = setup::configured(&mut self.chance);
        self.apply(Pid::SYSTEM, Body::Configured(Box::new(config)))?;
        for _ in 0..self.chance.between(1, 4) {
            let (pid, body) = person::spawns(&mut self.chance, &mut self.kernel);
            self.offer(pid, body)?;
        }
        self.commit()?;
        self.sync()
    }

    fn step(&mut self) -> Result<(), Broken> {
        match self.chance.weighted(&[55, 18, 13, 3, 3, 3, 3, 2]) {
            0 => self.outcomes()?,
            1 => self.someone_acts()?,
            2 => self.time_passes(30_000)?,
            3 => self.files_change()?,
            4 => self.save()?,
            5 => self.page_out(),
            6 if self.chance.percent(60) => recovery::crash(self)?,
            6 => recovery::replay_is_live(self)?,
            _ => self.time_passes(3 * 86_400_000)?,
        }
        if self.chance.percent(80) {
            self.commit()?;
            if self.chance.percent(85) {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Offers an input to the kernel as the daemon does: what it refuses leaves no trace.
    pub(crate) fn offer(&mut self, pid: Pid, body: Body) -> Result<bool, Broken> {
        if self.kernel.check(pid, &body).is_err() {
            return Ok(false);
        }
        self.apply(pid, body)?;
        Ok(true)
    }

    pub(crate) fn apply(&mut self, pid: Pid, body: Body) -> Result<(), Broken> {
        let applied = live_through(&mut self.kernel, &mut self.witness, self.now, pid, body);
        let applied = applied?;
        self.history.extend(applied.entries.iter().cloned());
        self.round.extend(applied.entries);
        for effect in applied.effects {
            if effect.waits_for_disk() {
                self.waiting.push(effect);
            } else {
                self.outside.perform(&mut self.chance, self.now, effect)?;
            }
        }
        check::state(&mut self.kernel, &self.witness, &self.outside, &mut self.memory)
    }

    /// Hands what was decided to the journal, which syncs it some time.
    pub(crate) fn commit(&mut self) -> Result<(), Broken> {
        if self.round.is_empty() {
            return Ok(());
        }
        let round = std::mem::take(&mut self.round);
        let written = self.store.borrow_mut().write(&round);
        written.map_err(|error| broken("the journal takes what the kernel decides", error.to_string()))
    }

    /// What was written is durable; what waited for that leaves.
    pub(crate) fn sync(&mut self) -> Result<(), Broken> {
        if !self.round.is_empty() {
            self.commit()?;
        }
        let synced = self.store.borrow_mut().sync();
        synced.map_err(|error| broken("the journal syncs", error.to_string()))?;
        self.checkpointing = false;
        for effect in std::mem::take(&mut self.waiting) {
            self.outside.perform(&mut self.chance, self.now, effect)?;
        }
        Ok(())
    }

    /// Some of what is due comes back.
    fn outcomes(&mut self) -> Result<(), Broken> {
        if let Some(next) = self.outside.next_due()
            && next > self.now
            && self.chance.percent(70)
        {
            self.go_to(next)?;
        }
        for _ in 0..self.chance.between(1, 4) {
            let Some(job) = self.outside.take_due(&mut self.chance, self.now) else { break };
            self.deliver(job)?;
        }
        Ok(())
    }

    /// An outcome reaches the kernel.
    pub(crate) fn deliver(&mut self, job: Job) -> Result<(), Broken> {
        let (pid, body) = match job {
            Job::Infer(infer) => {
                let cancelled = self.outside.is_cancelled(infer.id) && self.chance.percent(60);
                let outcome = if cancelled {
                    InferenceOutcome::Failed {
                        failure: Failure {
                            kind: FailureKind::Cancelled,
                            message: "cancelled".into(),
                            hint: None,
                            retry_after_ms: None,
                            usage: None,
                        },
                    }
                } else {
                    let scene = self.scene(infer.pid, u64::from(infer.max_output));
                    mind::answer(&mut self.chance, &scene, &infer.model, infer.encoding, infer.purpose)
                };
                let latency_ms = self.chance.between(1, 9000);
                (infer.pid, Body::InferenceCompleted { effect: infer.id, latency_ms, outcome })
            }
            Job::Call { id, pid, call_id, name } => {
                let outcome = if self.outside.calm { Outcome::Success { result: json!({}) } } else { self.driven() };
                (pid, Body::Result { call_id, name: name.as_str().to_owned(), effect: Some(id), outcome })
            }
        };
        self.offer(pid, body).map(|_| ())
    }

    fn driven(&mut self) -> Outcome {
        match self.chance.weighted(&[75, 10, 10, 5]) {
            0 => Outcome::Success { result: json!({ "content": "some text", "size": 9, "truncated": false }) },
            1 => Outcome::Success { result: json!({ "content": "x".repeat(self.chance.between(0, 9000) as usize) }) },
            2 => Outcome::Error { error: CallError::new(Code::NoEnt, "no such file") },
            _ => Outcome::Error { error: CallError::new(Code::Io, "the simulated driver failed") },
        }
    }

    fn scene(&mut self, pid: Pid, max_output: u64) -> Scene {
        let everybody = (2..self.kernel.next_pid().0).map(Pid).collect();
        let calm = self.outside.calm;
        let Some(process) = self.kernel.process(pid) else { return Scene::default() };
        Scene {
            pid: pid.0,
            parent: process.parent.0,
            children: process.children.iter().copied().collect(),
            everybody,
            timers: process.timers.keys().cloned().collect(),
            watches: process.watches.keys().cloned().collect(),
            requests: process.requests.keys().cloned().collect(),
            worst_input: (process.window.tokens() + 128) * 3,
            max_output,
            calm,
        }
    }

    fn someone_acts(&mut self) -> Result<(), Broken> {
        for _ in 0..self.chance.between(1, 3) {
            self.serial += 1;
            if let Some((pid, body)) = person::act(&mut self.chance, &mut self.kernel, self.serial) {
                self.offer(pid, body)?;
            }
        }
        Ok(())
    }

    fn files_change(&mut self) -> Result<(), Broken> {
        let watches: Vec<(Pid, String)> = self.outside.watches.iter().cloned().collect();
        if let Some((pid, watch_id)) = self.chance.pick(&watches) {
            let paths = ["a.txt".to_owned()].into();
            self.offer(pid, Body::Watch { watch_id, paths })?;
        }
        Ok(())
    }

    /// Time passes, with the ticks that the kernel wants meanwhile.
    fn time_passes(&mut self, most_ms: u64) -> Result<(), Broken> {
        let until = self.now.plus_millis(self.chance.between(0, most_ms));
        // A machine that sleeps ticks once when it wakes.
        let most = if self.chance.percent(70) { 6 } else { 0 };
        for _ in 0..most {
            match self.kernel.next_deadline() {
                Some(at) if at <= until => self.go_to(at)?,
                _ => break,
            }
        }
        self.go_to(until)
    }

    /// Sets the clock, and ticks if something is due by then.
    pub(crate) fn go_to(&mut self, at: Timestamp) -> Result<(), Broken> {
        self.now = self.now.max(at);
        if self.kernel.next_deadline().is_some_and(|at| at <= self.now) {
            self.apply(Pid::SYSTEM, Body::Tick)?;
        }
        Ok(())
    }

    /// Takes a checkpoint; it is durable with the next sync.
    pub(crate) fn save(&mut self) -> Result<(), Broken> {
        self.commit()?;
        let checkpoint = self.kernel.checkpoint();
        let saved = aos_journal::Checkpoint {
            lsn: checkpoint.lsn,
            globals: checkpoint.globals,
            pages: checkpoint.pages,
            removed: checkpoint.removed,
        };
        let written = self.store.borrow_mut().write_checkpoint(saved);
        written.map_err(|error| broken("the journal takes checkpoints", error.to_string()))?;
        self.checkpointing = true;
        Ok(())
    }

    /// Idle processes leave memory. Only while no checkpoint is on its way: pages must be durable.
    fn page_out(&mut self) {
        if !self.checkpointing {
            self.kernel.evict(self.kernel.lsn().next());
        }
    }
}

fn line(entry: &Entry) -> String {
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    if let Some((at, _)) = line.char_indices().nth(400) {
        line.truncate(at);
        line.push('…');
    }
    line
}
