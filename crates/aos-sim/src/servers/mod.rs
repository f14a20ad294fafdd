//! Limits and fallbacks in virtual time: agents that never rest, programs that ask, and servers that go down, are busy, have
//! a used up quota or a bad key, and come back.
//!
//! Start at [`run`]. The kernel is real, with its journal, and starts again at times; the servers (`side`) look at every
//! request that arrives: their limits, the times they named, their breakers, the order of the chain, and what they are paid.
//! Deliberately absent: budgets, policies and second models, which other worlds have.

mod side;

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_abi::entry::{Asked, CircuitState, Configured, InferenceOutcome, Key, ServedOutcome};
use aos_abi::inference::{Encoding, Failure, FailureKind, Format, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelLimits, ModelSpec, Price};
use aos_abi::process::{Mode, SpawnSpec};
use aos_abi::{Body, EffectId, Entry, Pid, Signal, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::effect::Effect;
use aos_kernel::table::NoPages;

use crate::chance::Chance;
use crate::report::{Broken, broken};
use side::{Asker, Side, Wrong};

const WALL: &str = "a used up quota is told with its end";
const STARVES: &str = "nobody starves";

/// 2026-11-22T00:00:00Z.
const BEGINNING: Timestamp = Timestamp(1_795_305_600_000);
/// Whoever asks for quiet for longer than this has a quota that is used up, in milliseconds.
const WALL_MS: u64 = 60_000;
/// How long servers misbehave, and how long all of them answer in the end, in milliseconds.
const BAD_MS: u64 = 600_000;
const GOOD_MS: u64 = 600_000;
/// The most tokens that a server counts in a prompt.
const INPUT_MAX: u64 = 400;
/// The models, with their servers, tiers and prices in dollars for a million tokens.
const MODELS: [(&str, &str, &str, u64); 4] = [
    ("ann", "https://one.example", "standard", 3),
    ("bea", "https://one.example", "strong", 7),
    ("cy", "https://two.example", "small", 2),
    ("dot", "https://three.example", "nano", 1),
];
const POLICY: &str = "version: 1\ndefault_role: assistant\nroles:\n  assistant:\n    calls: [ASK_USER]\n";

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests that arrived at servers.
    pub requests: u64,
    /// Those with which a limit was reached.
    pub full: u64,
    /// Breakers that opened.
    pub opened: u64,
    /// Requests that tried a server again.
    pub probes: u64,
    /// Requests that went to a model that stands in.
    pub stood_in: u64,
    /// Quotas that were used up.
    pub walls: u64,
    /// Starts of the daemon.
    pub crashes: u64,
}

/// How a model's server is minded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    Down,
    Key,
    Busy,
    Quota,
}

#[derive(Debug)]
struct Job {
    asker: Asker,
    model: String,
    wrong: Option<Wrong>,
    max_output: u32,
}

struct World {
    chance: Chance,
    now: Timestamp,
    kernel: Kernel<NoPages>,
    journal: Vec<Arc<Entry>>,
    side: Side,
    /// Requests under way, by when they end.
    jobs: BTreeMap<(Timestamp, EffectId), Job>,
    /// Of each model and of each server, until when.
    moods: BTreeMap<String, (Mood, Timestamp)>,
    agents: Vec<Pid>,
    programs: Vec<Pid>,
    /// Whom to tell of which quota with the next prompt.
    untold: BTreeMap<Pid, String>,
    /// When each agent was last answered.
    answered: BTreeMap<Pid, Timestamp>,
    serial: u64,
    served: Served,
    /// All servers answer.
    calm: bool,
}

/// The run of this seed.
///
/// # Errors
/// In words: what did not hold, and the last entries.
pub fn run(seed: u64) -> Result<Served, String> {
    let mut world = World::new(seed);
    let ended = world.lives();
    ended.map_err(|broken| {
        let last = world.journal.iter().rev().take(40).rev().map(|entry| serde_json::to_string(&**entry));
        let last: Vec<String> = last.map(|line| line.unwrap_or_default().chars().take(300).collect()).collect();
        format!("{}\nseed {seed}: {} does not hold: {}", last.join("\n"), broken.check, broken.message)
    })?;
    let Side { opened, probes, stood_in, full, .. } = world.side;
    Ok(Served { opened, probes, stood_in, full, ..world.served })
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = Chance::new(seed);
        let mut models = BTreeMap::new();
        for (name, endpoint, tier, dollars) in MODELS {
            let limits = ModelLimits {
                concurrency: chance.between(1, 3) as u32,
                rpm: chance.percent(50).then(|| chance.between(3, 12) as u32),
                tpm: chance.percent(30).then(|| chance.between(20_000, 90_000)),
            };
            let usd = Usd(dollars * 1_000_000_000);
            models.insert(
                name.to_owned(),
                ModelSpec {
                    context_window: 200_000,
                    max_output: 1000,
                    price: Some(Price { input: usd, output: usd, ..Price::default() }),
                    limits,
                    encoding: Encoding::Native,
                    tier: Some(tier.to_owned()),
                    endpoint: Some(endpoint.to_owned()),
                    ..ModelSpec::default()
                },
            );
        }
        let mut fallback = Vec::new();
        for _ in 0..chance.between(0, 4) {
            let name = MODELS[chance.between(0, 3) as usize].0.to_owned();
            if !fallback.contains(&name) {
                fallback.push(name);
            }
        }
        let config = Configured {
            models: models.clone(),
            default_model: "ann".into(),
            fallback: fallback.clone(),
            policy: POLICY.into(),
            ..Configured::default()
        };
        let mut world = World {
            chance,
            now: BEGINNING,
            kernel: Kernel::new(NoPages),
            journal: Vec::new(),
            side: Side::new(models, fallback),
            jobs: BTreeMap::new(),
            moods: BTreeMap::new(),
            agents: Vec::new(),
            programs: Vec::new(),
            untold: BTreeMap::new(),
            answered: BTreeMap::new(),
            serial: 0,
            served: Served::default(),
            calm: false,
        };
        let boot = Body::Booted { version: "sim".into(), configured: None, faulted: Vec::new(), last_pid: None };
        for body in [boot, Body::Configured(Box::new(config))] {
            _ = world.apply(Pid::SYSTEM, body);
        }
        world
    }

    fn lives(&mut self) -> Result<(), Broken> {
        for model in ["ann", "ann", "cy", "auto", "standard"] {
            let pid = self.kernel.next_pid();
            self.side.wants((pid, None), model, self.now);
            self.agents.push(pid);
            let spec = SpawnSpec { task: Some("never rest".into()), ..SpawnSpec::resident(pid, "r", model) };
            self.apply(pid, Body::Spawned(Box::new(spec)))?;
        }
        for _ in 0..2 {
            let pid = self.kernel.next_pid();
            self.programs.push(pid);
            let spec = SpawnSpec { mode: Mode::Program, ..SpawnSpec::resident(pid, "", "ann") };
            self.apply(pid, Body::Spawned(Box::new(spec)))?;
            let key = Key { sha256: format!("{:064x}", pid.0), owner: None, rpm: None, tiers: Vec::new() };
            self.apply(pid, Body::Keyed(Box::new(key)))?;
        }
        let until = BEGINNING.plus_millis(BAD_MS);
        while self.now < until {
            self.step()?;
        }
        self.calm = true;
        let until = self.now.plus_millis(GOOD_MS);
        while self.now < until {
            self.step()?;
        }
        for pid in self.agents.clone() {
            let last = self.answered.get(&pid).copied().unwrap_or_default();
            if self.now.millis_since(last) > GOOD_MS / 2 {
                return Err(broken(STARVES, format!("{pid} was last answered at {last}, it is {}", self.now)));
            }
        }
        // What a crash cut off of a program's is paid at its worst, which no server knows.
        let programs = self.programs.iter().filter(|_| self.served.crashes == 0);
        for pid in self.agents.iter().chain(programs).copied().collect::<Vec<_>>() {
            let spent = self.kernel.process(pid).map_or(0, |process| process.budget.usd.spent);
            self.side.paid(pid, spent)?;
        }
        Ok(())
    }

    /// What happens next.
    fn step(&mut self) -> Result<(), Broken> {
        let next_job = self.jobs.keys().next().copied();
        let deadline = self.kernel.next_deadline();
        let soon = self.now.plus_millis(self.chance.between(1, 4000));
        let at = [next_job.map(|(at, _)| at), deadline].into_iter().flatten().min().unwrap_or(soon).min(soon);
        self.now = self.now.max(at);
        if self.kernel.next_deadline().is_some_and(|at| at <= self.now) {
            self.apply(Pid::SYSTEM, Body::Tick)?;
        }
        if let Some(key) = next_job.filter(|(at, _)| *at <= self.now) {
            self.comes_back(key)?;
        }
        for pid in self.agents.clone() {
            // A person lets those go on that have given up.
            let stopped = self.kernel.process(pid).is_some_and(|process| process.stopped.is_some());
            if stopped && self.chance.percent(20) {
                self.side.goes_on((pid, None), self.now);
                self.apply(pid, Body::Signal { signal: Signal::Cont, from_pid: Pid::INIT, tree: false })?;
            }
        }
        if self.chance.percent(10) {
            self.program_asks()?;
        }
        if !self.calm && self.chance.percent(1) {
            self.crash()?;
        }
        Ok(())
    }

    fn program_asks(&mut self) -> Result<(), Broken> {
        let pid = self.programs[self.chance.between(0, 1) as usize];
        self.serial += 1;
        let request = self.serial;
        let model = ["ann", "cy", "auto", "small"][self.chance.between(0, 3) as usize];
        let asked = Asked {
            request,
            model: model.to_owned(),
            format: Format::Chat,
            input_tokens: 500,
            max_output: Some(500),
            needs: Default::default(),
            more: 0,
        };
        let body = Body::Asked(Box::new(asked));
        if self.kernel.check_at(self.now, pid, &body).is_ok() {
            self.side.wants((pid, Some(request)), model, self.now);
            self.apply(pid, body)?;
        }
        Ok(())
    }

    /// How a model is minded now.
    fn mood(&mut self, model: &str) -> Mood {
        if self.calm {
            return Mood::Answers;
        }
        let server = MODELS.iter().find(|(name, ..)| *name == model).map_or("", |(_, server, ..)| server);
        let of_server = self.mood_of(server, &[(Mood::Answers, 60), (Mood::Down, 40)]);
        let of_model = self.mood_of(model, &[(Mood::Answers, 70), (Mood::Key, 8), (Mood::Busy, 14), (Mood::Quota, 8)]);
        if of_server == Mood::Answers { of_model } else { of_server }
    }

    fn mood_of(&mut self, what: &str, moods: &[(Mood, u32)]) -> Mood {
        match self.moods.get(what) {
            Some((mood, until)) if *until > self.now => *mood,
            _ => {
                let weights: Vec<u32> = moods.iter().map(|(_, weight)| *weight).collect();
                let mood = moods[self.chance.weighted(&weights)].0;
                let until = self.now.plus_millis(self.chance.between(5_000, 120_000));
                self.moods.insert(what.to_owned(), (mood, until));
                mood
            }
        }
    }

    /// A request reaches its server.
    fn sent(&mut self, id: EffectId, asker: Asker, model: &str, max_output: u32, tokens: u64) -> Result<(), Broken> {
        if !self.side.is_under_way(id) {
            self.side.asked((self.now, id), asker, model, tokens)?;
            self.served.requests += 1;
        }
        let wrong = match self.mood(model) {
            Mood::Answers => None,
            Mood::Down => Some(Wrong::Down),
            Mood::Key => Some(Wrong::Key),
            Mood::Busy => Some(Wrong::Later(self.chance.between(1, WALL_MS - 1))),
            Mood::Quota => Some(Wrong::Later(self.chance.between(WALL_MS, 5 * WALL_MS))),
        };
        let at = self.now.plus_millis(if wrong.is_some() {
            self.chance.between(5, 400)
        } else {
            self.chance.between(200, 9000)
        });
        self.jobs.insert((at, id), Job { asker, model: model.to_owned(), wrong, max_output });
        Ok(())
    }

    fn comes_back(&mut self, key: (Timestamp, EffectId)) -> Result<(), Broken> {
        let Some(Job { asker, model, wrong, max_output }) = self.jobs.remove(&key) else { return Ok(()) };
        let ((pid, request), id, latency_ms) = (asker, key.1, 1);
        let output_tokens = self.chance.between(1, u64::from(max_output));
        let usage = Usage { input_tokens: self.chance.between(1, INPUT_MAX), output_tokens, ..Usage::default() };
        let failure = wrong.map(|wrong| {
            self.side.fails(id, self.now, wrong);
            let (kind, retry_after_ms) = match wrong {
                Wrong::Down => (FailureKind::Transient, None),
                Wrong::Key => (FailureKind::Permanent, None),
                Wrong::Later(wait) => (FailureKind::Transient, Some(wait)),
            };
            Failure { kind, message: "it failed".into(), hint: None, retry_after_ms, usage: None, unreachable: false }
        });
        if failure.is_none() {
            self.side.answers(id, self.now, self.side.price(&model).of(&usage));
            self.answered.insert(pid, self.now);
        }
        let personal = None;
        let body = match (request, failure) {
            (Some(_), Some(failure)) => {
                Body::Served { effect: id, latency_ms, personal, outcome: ServedOutcome::Failed { failure } }
            }
            (Some(_), None) => Body::Served {
                effect: id,
                latency_ms,
                personal,
                outcome: ServedOutcome::Answered { usage, whole: true },
            },
            (None, Some(failure)) => Body::InferenceCompleted {
                effect: id,
                latency_ms,
                personal,
                outcome: InferenceOutcome::Failed { failure },
            },
            (None, None) => {
                self.serial += 1;
                let arguments = format!(r#"{{"text":"line {}"}}"#, self.serial);
                let call = NativeCall { id: String::new(), name: "SYS_WRITE_STDOUT".into(), arguments };
                let text = String::new();
                let reply = Reply { text, calls: vec![call], stop: Stop::Calls, usage, model: model.clone() };
                Body::InferenceCompleted {
                    effect: id,
                    latency_ms,
                    personal,
                    outcome: InferenceOutcome::Answered(reply),
                }
            }
        };
        let wall = match wrong {
            Some(Wrong::Later(wait)) if wait >= WALL_MS => Some(self.now.plus_millis(wait)),
            _ => None,
        };
        let before = self.journal.len();
        if let Some(until) = wall {
            self.served.walls += 1;
            if request.is_none() {
                self.untold.insert(pid, format!("the quota of `{model}` is used up until {until}"));
            }
        }
        self.apply(pid, body)?;
        let told = self.journal[before..].iter().any(|entry| {
            matches!(&entry.body, Body::Circuit { of, state: CircuitState::Quota, until, .. } if *of == model && *until == wall)
        });
        if told != wall.is_some() {
            return Err(broken(WALL, format!("{model} until {wall:?}, said: {told}")));
        }
        Ok(())
    }

    fn apply(&mut self, pid: Pid, body: Body) -> Result<(), Broken> {
        let applied = self.kernel.apply(self.now, pid, body);
        let tokens: BTreeMap<EffectId, u64> = applied
            .entries
            .iter()
            .filter_map(|entry| match &entry.body {
                Body::InferenceStarted { effect, input_tokens, max_output, .. } => {
                    Some((*effect, input_tokens + u64::from(*max_output)))
                }
                _ => None,
            })
            .collect();
        self.journal.extend(applied.entries);
        for effect in applied.effects {
            match effect {
                Effect::Infer(infer) => {
                    if let Some(quota) = self.untold.remove(&infer.pid)
                        && !infer.status.contains(&quota)
                    {
                        return Err(broken(WALL, format!("{} is told {}, not: {quota}", infer.pid, infer.status)));
                    }
                    let tokens = tokens.get(&infer.id).copied().unwrap_or_default();
                    self.sent(infer.id, (infer.pid, None), &infer.model, infer.max_output, tokens)?;
                }
                Effect::Serve(serve) => {
                    let tokens = tokens.get(&serve.id).copied().unwrap_or_default();
                    self.sent(serve.id, (serve.pid, Some(serve.request)), &serve.model, serve.max_output, tokens)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The daemon is killed and starts again: nobody hears what was under way, programs have hung up, and agents ask anew.
    fn crash(&mut self) -> Result<(), Broken> {
        self.served.crashes += 1;
        let mut kernel = Kernel::new(NoPages);
        let mut made = Vec::new();
        for entry in self.journal.iter().filter(|entry| entry.cause.is_none()) {
            made.extend(kernel.apply(entry.at, entry.pid, entry.body.clone()).entries);
        }
        if made != self.journal {
            return Err(broken("replay makes the same facts", "another journal"));
        }
        self.kernel = kernel;
        let cut_off = std::mem::take(&mut self.jobs);
        cut_off.keys().for_each(|(_, id)| self.side.forgets(*id, self.now));
        let before = self.journal.len();
        self.apply(
            Pid::SYSTEM,
            Body::Booted { version: "sim".into(), configured: None, faulted: Vec::new(), last_pid: None },
        )?;
        for job in cut_off.into_values().filter(|job| job.asker.1.is_none()) {
            self.is_paid_unheard(&job, before)?;
        }
        Ok(())
    }

    /// What nobody heard the end of is paid once, by no less than its server may want for it.
    fn is_paid_unheard(&mut self, job: &Job, since: usize) -> Result<(), Broken> {
        let pid = job.asker.0;
        let paid =
            self.journal[since..].iter().filter(|entry| entry.pid == pid).filter_map(|entry| match &entry.body {
                Body::Charged { cost_usd, why: Some(_), .. } => *cost_usd,
                _ => None,
            });
        let paid: Vec<Usd> = paid.collect();
        let output_tokens = u64::from(job.max_output);
        let most = Usage { input_tokens: INPUT_MAX, output_tokens, ..Usage::default() };
        let most = self.side.price(&job.model).of(&most);
        match paid[..] {
            [paid] if paid >= most => {
                self.side.bills(job.asker, paid);
                Ok(())
            }
            _ => Err(broken("what nobody heard is paid", format!("{pid} paid {paid:?} for what may cost {most}"))),
        }
    }
}
