//! The world: the loop of the daemon's heart, driven by chance instead of channels and a clock.
//!
//! Start at [`Simulation::run`]. What always holds, as in the real loop: entries are written in the order they were
//! decided; what changes the outside leaves after the sync of the entries that say so; the rest may leave at once.
//! Every decision, write, sync and effect ends at a [`Simulation::boundary`], where the machine may stop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use aos_abi::{Body, Code, Entry, Lsn, Pid, Timestamp, limits};
use aos_journal::{Crash, MemoryStore, Store};
use aos_kernel::effect::Effect;
use aos_kernel::fault::{Fault, Instead};
use aos_kernel::table::{NoPages, Page, PageStore};
use aos_kernel::{Applied, Kernel};

use crate::chance::Chance;
use crate::check::{self, Memory};
use crate::outside::Outside;
use crate::report::{Broken, Failure as RunFailure, Halt, Report, broken};
use crate::setup::Kind;
use crate::witness::{Witness, live_through};
use crate::{drain, person, recovery, setup};

/// 2026-11-22T00:00:00Z.
const BEGINNING: Timestamp = Timestamp(1_795_305_600_000);
/// Every so many acts of people all windows are read back from the journal.
const PASTS_READ_EVERY: u64 = 16;
/// Entries shown where a run fails.
const SHOWN: usize = 40;
/// Steps of a run where nobody says otherwise.
const STEPS: u64 = 70;

/// When the machine stops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stops {
    /// At random, with a journal that fails at times.
    Random,
    /// Once, with this fate of what was not synced.
    Once(Crash),
}

/// Pages out of the journal, as they are durable.
#[derive(Clone, Debug)]
pub(crate) struct Pages(pub(crate) Rc<RefCell<MemoryStore>>);

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Page>, String> {
        let page = self.0.borrow().page(pid).map_err(|error| error.to_string())?;
        Ok(page.map(Page::Stored))
    }
}

/// One run of a world.
#[derive(Debug)]
pub struct Simulation {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) kind: Kind,
    pub(crate) chance: Chance,
    pub(crate) now: Timestamp,
    pub(crate) store: Rc<RefCell<MemoryStore>>,
    pub(crate) kernel: Kernel<Pages>,
    /// Lives through the journal beside it, each entry as it was written.
    pub(crate) twin: Kernel<NoPages>,
    pub(crate) witness: Witness,
    pub(crate) memory: Memory,
    pub(crate) outside: Outside,
    /// Every entry applied, durable or not.
    pub(crate) history: Vec<Arc<Entry>>,
    /// Applied and not yet written.
    pub(crate) round: Vec<Arc<Entry>>,
    /// Effects that wait for the write and sync of their entries.
    pub(crate) waiting: VecDeque<Effect>,
    /// A checkpoint was written and not yet synced.
    pub(crate) checkpointing: bool,
    pub(crate) crashes: u32,
    pub(crate) stops: Stops,
    /// Chooses crashes and faults: apart from [`Simulation::chance`], so that a run is the same up to its crash.
    pub(crate) dice: Chance,
    pub(crate) boundaries: u64,
    /// The boundary at which it stops next.
    pub(crate) next_stop: u64,
    /// What callers were told is done.
    pub(crate) acknowledged: Lsn,
    /// The journal was told to fail.
    faulty: bool,
    faults: u64,
    /// The kernel failed.
    pub(crate) failures: u64,
    full: u64,
    /// Words of people that the kernel would not take.
    refused: u64,
    pub(crate) serial: u64,
}

impl Simulation {
    /// The run of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        let store = Rc::new(RefCell::new(MemoryStore::new()));
        let mut dice = Chance::new(!seed);
        let next_stop = recovery::next_stop(&mut dice);
        Simulation {
            seed,
            steps: STEPS,
            kind: match seed % 16 {
                5 => Kind::Busy,
                3 | 11 => Kind::Asking,
                _ => Kind::Mixed,
            },
            chance: Chance::new(seed),
            now: BEGINNING,
            kernel: Kernel::new(Pages(Rc::clone(&store))),
            twin: Kernel::new(NoPages),
            store,
            witness: Witness::default(),
            memory: Memory::default(),
            outside: Outside::default(),
            history: Vec::new(),
            round: Vec::new(),
            waiting: VecDeque::new(),
            checkpointing: false,
            crashes: 0,
            stops: Stops::Random,
            dice,
            boundaries: 0,
            next_stop,
            acknowledged: Lsn::ZERO,
            faulty: false,
            faults: 0,
            failures: 0,
            full: 0,
            refused: 0,
            serial: 0,
        }
    }

    /// The same, where the machine stops once, at this boundary (counted from 1; [`Report::boundaries`] says how many
    /// there are), and not at random.
    #[must_use]
    pub fn stops_at(self, boundary: u64, unsynced: Crash) -> Simulation {
        Simulation { stops: Stops::Once(unsynced), next_stop: boundary, ..self }
    }

    /// The same with another number of steps.
    #[must_use]
    pub fn steps(self, steps: u64) -> Simulation {
        Simulation { steps, ..self }
    }

    /// Runs a world once for each of its boundaries and each fate of what was not synced, stopping the machine there.
    /// Says how many runs that was.
    ///
    /// # Errors
    /// As for [`Simulation::run`], for the first run that fails.
    pub fn stopped_everywhere(seed: u64, steps: u64) -> Result<u64, Box<RunFailure>> {
        let world = || Simulation::new(seed).steps(steps);
        // No boundary has the number 0.
        let boundaries = world().stops_at(0, Crash::Lost).run()?.boundaries;
        for boundary in 1..=boundaries {
            for fate in [Crash::Lost, Crash::Kept] {
                world().stops_at(boundary, fate).run().map_err(|mut failure| {
                    failure.broken.message.push_str(&format!(" (stopped at boundary {boundary}, {fate:?})"));
                    failure
                })?;
            }
        }
        Ok(2 * boundaries)
    }

    /// Runs to the end, then lets the world come to rest.
    ///
    /// # Errors
    /// What did not hold, with the seed and the last entries.
    pub fn run(mut self) -> Result<Report, Box<RunFailure>> {
        let mut step = 0;
        let mut begun = false;
        let outcome = loop {
            let mut ended = if !begun {
                begun = true;
                self.begin()
            } else if step < self.steps {
                step += 1;
                self.step()
            } else {
                match drain::to_rest(&mut self) {
                    Ok(()) => break Ok(()),
                    ended => ended,
                }
            };
            while let Err(Halt::Crash) = ended {
                ended = recovery::crash(&mut self);
            }
            if let Err(Halt::Broken(broken)) = ended {
                break Err(broken);
            }
        };
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
            boundaries: self.boundaries,
            faults: self.faults,
            failures: self.failures,
            full: self.full,
            limited: self.memory.limited,
            aged: self.memory.aged,
            hedged: self.witness.turns.hedged,
            early: self.outside.bill.early,
            cut_off: self.outside.bill.cut_off,
            unheard: self.outside.bill.unheard,
            words: self.outside.desk.words,
            made: self.outside.desk.made,
            drifted: self.outside.desk.drifted,
            lifted: self.outside.desk.lifted,
            again: self.outside.desk.again,
            undone: self.outside.files.turned,
            refused: self.refused,
        }
    }

    /// Here the machine may stop.
    fn boundary(&mut self) -> Result<(), Halt> {
        self.boundaries += 1;
        if self.boundaries == self.next_stop { Err(Halt::Crash) } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), Halt> {
        self.boot()?;
        for _ in 0..if self.kind == Kind::Busy { 9 } else { self.chance.between(1, 4) } {
            let (pid, body) = person::spawns(&mut self.chance, &mut self.kernel, self.kind);
            self.offer(pid, body)?;
        }
        self.commit()?;
        self.sync()
    }

    /// The daemon starts and says how everything is configured, where that is new: the first time, and where somebody has
    /// changed it while it was off.
    pub(crate) fn boot(&mut self) -> Result<(), Halt> {
        let first = self.kernel.config().models.is_empty();
        let configured =
            (first || self.chance.percent(20)).then(|| Box::new(setup::configured(&mut self.chance, self.kind)));
        self.apply(Pid::SYSTEM, Body::Booted { version: "sim".into(), configured, faulted: Vec::new(), last_pid: None })
    }

    fn step(&mut self) -> Result<(), Halt> {
        // Who never rests is not left alone for days.
        let weights = match self.kind {
            Kind::Mixed => [55, 18, 13, 3, 3, 3, 2, 2, 1],
            Kind::Busy => [90, 4, 1, 1, 1, 2, 1, 0, 0],
            Kind::Asking => [50, 14, 6, 1, 2, 2, 1, 0, 24],
        };
        match self.chance.weighted(&weights) {
            0 => self.outcomes()?,
            1 => self.someone_acts()?,
            2 => self.time_passes(30_000)?,
            3 => self.files_change()?,
            4 => self.save()?,
            5 => self.page_out(),
            6 => recovery::replay_is_live(self)?,
            7 => self.time_passes(3 * 86_400_000)?,
            _ => self.mischief()?,
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
    pub(crate) fn offer(&mut self, pid: Pid, body: Body) -> Result<bool, Halt> {
        if let Err(error) = self.kernel.check_at(self.now, pid, &body) {
            self.full += u64::from(error.code == Code::Again && !matches!(body, Body::Proposal { .. }));
            self.refused += u64::from(matches!(body, Body::Proposal { .. }));
            return Ok(false);
        }
        self.apply(pid, body)?;
        Ok(true)
    }

    pub(crate) fn apply(&mut self, pid: Pid, body: Body) -> Result<(), Halt> {
        let Some(body) = self.unless_it_fails(pid, body)? else { return Ok(()) };
        let input = body.clone();
        self.said(pid, &input)?;
        let applied = live_through(&mut self.kernel, &mut self.witness, self.now, pid, body)?;
        recovery::replays(&mut self.twin, &mut self.kernel, &applied.entries)?;
        self.known(&input, &applied)?;
        self.history.extend(applied.entries.iter().cloned());
        self.round.extend(applied.entries);
        // A fault alone lets nobody go on.
        if !matches!(input, Body::Faulted(_)) {
            check::state(&mut self.kernel, &self.witness, &mut self.memory)?;
        }
        let durable = self.durable()?;
        let mut early = Vec::new();
        for effect in applied.effects {
            if effect.waits_for_disk(durable) { self.waiting.push_back(effect) } else { early.push(effect) }
        }
        self.boundary()?;
        for effect in early {
            self.perform(effect)?;
        }
        check::watches(&mut self.kernel, &self.outside)?;
        // What it failed over is in the books with what comes next.
        if !matches!(input, Body::Faulted(_)) {
            self.outside.bill.is_in_the_books(&mut self.kernel)?;
        }
        // An input may be a round of its own, so that the journal may end after each.
        if self.chance.percent(30) { self.commit() } else { Ok(()) }
    }

    /// Has the kernel fail over an input at times. It is made again as the daemon makes it, and does what it then says instead.
    fn unless_it_fails(&mut self, pid: Pid, body: Body) -> Result<Option<Body>, Halt> {
        // Whoever brought an answer to a program has billed it, and would look for it in the books before it is there; and over
        // a fault nobody may fail.
        let after_one = match &body {
            Body::Booted { faulted, .. } => !faulted.is_empty(),
            body => matches!(body, Body::Served { .. } | Body::Faulted(_)),
        };
        let never = self.outside.calm || after_one;
        if never || !matches!(self.stops, Stops::Random) || !self.dice.percent(1) {
            return Ok(Some(body));
        }
        // A kernel that is ahead of the journal, by what fails, must not meet a stop.
        self.sync()?;
        let times = self.dice.between(0, 8);
        self.kernel.fail_after(u32::try_from(times).unwrap_or(u32::MAX));
        // On a copy: nothing of it may be seen where it does not fail.
        let Err(fault) = self.kernel.attempt(self.now, pid, body.clone()) else {
            self.kernel = recovery::restore(self)?;
            return Ok(Some(body));
        };
        self.failures += 1;
        self.kernel = recovery::restore(self)?;
        let fatal = |fault: Box<Fault>| broken("a fault of one is not the end", format!("{fault:?}"));
        let Instead { first, then } = self.kernel.instead(fault).map_err(fatal)?;
        if let Some((pid, body)) = first {
            self.apply(pid, body)?;
            if then.is_none() {
                self.apply(Pid::SYSTEM, Body::Tick)?;
            }
        }
        Ok(then.map(|(_, body)| body))
    }

    /// The outside keeps an account of what it tells the kernel, before that can make anything of it.
    fn said(&mut self, pid: Pid, input: &Body) -> Result<(), Broken> {
        let at = (self.now, self.kernel.lsn().next());
        if let Some(config) = input.configured() {
            self.outside.desk.policy(&config.policy);
        }
        match input {
            Body::Proposal { id, state, .. } => self.outside.desk.hears(pid, id, *state, at)?,
            Body::Examined(examined) => self.outside.desk.looks(pid, &examined.id, &examined.files, at)?,
            _ => {}
        }
        Ok(())
    }

    /// And looks at what it made of it.
    fn known(&mut self, input: &Body, applied: &Applied) -> Result<(), Broken> {
        if let Body::Changed(changed) = input {
            self.outside.files.told(changed, &applied.entries)?;
        }
        for entry in &applied.entries {
            self.outside.desk.entry(entry)?;
        }
        for effect in &applied.effects {
            if let Effect::Call { id, pid, call_id, permit, .. } = effect {
                self.outside.desk.decides(self.now, (*id, call_id, *pid), permit.call())?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, effect: Effect) -> Result<(), Halt> {
        let durable = self.durable()?;
        self.outside.perform(&mut self.chance, self.now, durable, effect)?;
        self.boundary()
    }

    pub(crate) fn durable(&self) -> Result<Lsn, Broken> {
        let last = self.store.borrow().last();
        last.map(|(lsn, _)| lsn).map_err(|error| broken("the journal reads", error.to_string()))
    }

    /// Hands what was decided to the journal, which syncs it some time.
    pub(crate) fn commit(&mut self) -> Result<(), Halt> {
        if self.round.is_empty() {
            return Ok(());
        }
        self.disk_fails_at_times();
        let round = std::mem::take(&mut self.round);
        let written = self.store.borrow_mut().write(&round);
        written.map_err(|error| self.failed(&error))?;
        self.boundary()
    }

    /// What was written is durable; what waited for that leaves.
    pub(crate) fn sync(&mut self) -> Result<(), Halt> {
        self.commit()?;
        let synced = self.store.borrow_mut().sync();
        synced.map_err(|error| self.failed(&error))?;
        self.checkpointing = false;
        self.acknowledged = self.durable()?;
        self.boundary()?;
        while let Some(effect) = self.waiting.pop_front() {
            self.perform(effect)?;
        }
        Ok(())
    }

    fn disk_fails_at_times(&mut self) {
        if matches!(self.stops, Stops::Random) && !self.faulty && !self.outside.calm && self.dice.percent(1) {
            self.faulty = true;
            let mut store = self.store.borrow_mut();
            if self.dice.percent(50) { store.fail_write() } else { store.fail_sync() }
        }
    }

    /// The journal did not take something: the daemon stops.
    fn failed(&mut self, error: &aos_journal::Error) -> Halt {
        if !std::mem::take(&mut self.faulty) {
            return broken("the journal takes what the kernel decides", error.to_string()).into();
        }
        self.faults += 1;
        let more = self.store.borrow_mut().write(&[]);
        match more.and_then(|()| self.store.borrow_mut().sync()) {
            Ok(()) => broken("a journal that failed takes nothing more", error.to_string()).into(),
            Err(_) => Halt::Crash,
        }
    }

    /// Some of what is due comes back.
    fn outcomes(&mut self) -> Result<(), Halt> {
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

    fn someone_acts(&mut self) -> Result<(), Halt> {
        for _ in 0..self.chance.between(1, 3) {
            self.serial += 1;
            if self.chance.percent(2) {
                self.flood()?;
            }
            if self.chance.percent(8) {
                self.programs_ask()?;
            }
            if self.serial.is_multiple_of(PASTS_READ_EVERY) {
                check::pasts(&mut self.kernel, &self.history)?;
            }
            if let Some((pid, body)) = person::act(&mut self.chance, &mut self.kernel, self.serial, self.kind) {
                self.offer(pid, body)?;
            }
        }
        Ok(())
    }

    /// Programs get keys, ask, and give up.
    fn programs_ask(&mut self) -> Result<(), Halt> {
        if self.kernel.keys().is_empty() || self.chance.percent(10) {
            let (pid, body) = person::program(&mut self.chance, &mut self.kernel);
            if self.offer(pid, body)? {
                self.serial += 1;
                let key = person::key(&mut self.chance, self.serial);
                self.offer(pid, Body::Keyed(Box::new(key)))?;
            }
        }
        if self.chance.percent(10) {
            self.offer(Pid::SYSTEM, Body::Rested { cut: Vec::new() })?;
        }
        let keys = self.kernel.keys();
        for _ in 0..self.chance.between(1, 4) {
            let Some((_, pid)) = self.chance.pick(&keys) else { break };
            self.serial += 1;
            let asked = person::asked(&mut self.chance, self.serial);
            self.offer(pid, Body::Asked(Box::new(asked)))?;
        }
        let waiting: Vec<(u64, Pid)> = self.witness.programs.waiting.iter().map(|(nr, pid)| (*nr, *pid)).collect();
        if self.chance.percent(20)
            && let Some((request, pid)) = self.chance.pick(&waiting)
        {
            self.offer(pid, Body::Withdrawn { request })?;
        }
        Ok(())
    }

    /// Somebody who is stopped gets more than a queue holds.
    fn flood(&mut self) -> Result<(), Halt> {
        let pid = Pid(self.chance.between(2, self.kernel.next_pid().0.max(3) - 1));
        let stop = Body::Signal { signal: aos_abi::Signal::Stop, from_pid: Pid::INIT, tree: false };
        if !self.offer(pid, stop)? {
            return Ok(());
        }
        let webhook = self.kernel.process(pid).and_then(|process| process.webhooks.keys().next().cloned());
        for nth in 0..limits::STDIN_MAX.max(limits::NOTICES_MAX) + 10 {
            let body = match &webhook {
                Some(path) => Body::Webhook(person::request(format!("f{}.{nth}", self.serial), path, None)),
                None => Body::Input {
                    text: format!("flood {} {nth}", self.serial),
                    eof: false,
                    from_pid: Pid::INIT,
                    untrusted: false,
                },
            };
            if !self.offer(pid, body)? {
                break;
            }
        }
        if self.chance.percent(30) {
            // It is told of its end whatever waits already.
            self.offer(pid, Body::Signal { signal: aos_abi::Signal::Term, from_pid: Pid::INIT, tree: false })?;
        }
        Ok(())
    }

    fn files_change(&mut self) -> Result<(), Halt> {
        let watches: Vec<(Pid, String)> = self.outside.watches.iter().cloned().collect();
        if let Some((pid, watch_id)) = self.chance.pick(&watches) {
            let paths = ["a.txt".to_owned()].into();
            self.offer(pid, Body::Watch { watch_id, paths })?;
        }
        Ok(())
    }

    /// Time passes, with the ticks that the kernel wants meanwhile.
    pub(crate) fn time_passes(&mut self, most_ms: u64) -> Result<(), Halt> {
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
    pub(crate) fn go_to(&mut self, at: Timestamp) -> Result<(), Halt> {
        self.now = self.now.max(at);
        if self.kernel.next_deadline().is_some_and(|at| at <= self.now) {
            self.apply(Pid::SYSTEM, Body::Tick)?;
        }
        Ok(())
    }

    /// Takes a checkpoint; it is durable with the next sync.
    pub(crate) fn save(&mut self) -> Result<(), Halt> {
        self.commit()?;
        let checkpoint = self.kernel.checkpoint();
        let saved = aos_journal::Checkpoint {
            lsn: checkpoint.lsn,
            globals: checkpoint.globals,
            pages: checkpoint.pages,
            removed: checkpoint.removed,
        };
        let written = self.store.borrow_mut().write_checkpoint(saved);
        written.map_err(|error| self.failed(&error))?;
        self.checkpointing = true;
        self.boundary()
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
