//! The world: the kernel with its journal, an agent, its parent, people, a driver and one file; beside them the model.
//!
//! Start at [`World::act`]. What always holds after it: the kernel has done exactly what the model said, shows people what
//! the model has, and a kernel made from the journal is the one that is alive.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use aos_abi::entry::{BoundFile, Changed, Configured, Examined, InferenceOutcome, Outcome, ProposalState as Said};
use aos_abi::inference::{Encoding, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelLimits, ModelSpec};
use aos_abi::process::SpawnSpec;
use aos_abi::{Body, CallError, CallId, Code, EffectId, Entry, Lsn, Name, Pid, Signal, Syscall, Timestamp};
use aos_kernel::Kernel;
use aos_kernel::effect::Effect;
use aos_kernel::process::Phase;
use aos_kernel::table::NoPages;

use super::model::{Change, Doing, Is, Model, Out};
use super::stories::{Call, Kind, OFF_MS, POLICY};

const PARENT: Pid = Pid(2);
const AGENT: Pid = Pid(3);
/// 2026-11-22T00:00:00Z.
const BEGINNING: Timestamp = Timestamp(1_795_305_600_000);
/// How the agent's calls are numbered on the wire: the kernel gives them ids of its own.
const NO_ID: String = String::new();

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The agent's model wants this call; `None`: it says its last word.
    Reply(Option<Call>),
    /// The files of a question have been looked at.
    Look(u64),
    /// A person answers.
    Word(u64, Said),
    /// The driver's result comes.
    Done,
    /// A change is taken back, or made again.
    Turn(usize),
    /// The journal is told of that.
    Owed(usize),
    /// Somebody writes to the file.
    Edit,
    /// The policy is saved again, with a line of no meaning.
    Policy,
    Stop,
    Cont,
    Term,
    Kill,
    /// The parent makes a call that kills it.
    ParentKills,
    /// It is as late as what is due next, and somebody looks at the clock.
    Tick,
    /// It is later than that, and nobody has.
    Late,
    /// The daemon is killed, and starts again.
    Crash,
}

/// A kernel that has been set up, and its journal.
pub(super) struct Ground {
    kernel: Rc<Kernel<NoPages>>,
    journal: Vec<Arc<Entry>>,
    asking: EffectId,
    parent: EffectId,
}

/// See the module.
pub(super) struct World {
    kernel: Kernel<NoPages>,
    /// What is durable.
    journal: Vec<Arc<Entry>>,
    /// A kernel that was made from the journal alone, and from how many entries of it.
    rebuilt: (Rc<Kernel<NoPages>>, usize),
    pub(super) model: Model,
    /// The agent's inference under way.
    asking: Option<EffectId>,
    parent: Option<EffectId>,
    /// Questions whose files are being looked at.
    pub(super) looks: Vec<u64>,
    /// What a driver is about to say.
    result: Option<Body>,
    /// The calls of the changes that can be taken back.
    changes: Vec<(EffectId, CallId)>,
    /// Calls that were made, by their effects.
    done: BTreeMap<EffectId, Call>,
    /// How often each call may be made: once for each yes, and for each window without a no.
    let_be: BTreeMap<Call, i32>,
}

impl Ground {
    pub(super) fn new() -> Ground {
        let model = ModelSpec {
            context_window: 200_000,
            max_output: 1000,
            limits: ModelLimits { concurrency: 8, rpm: None, tpm: None },
            encoding: Encoding::Native,
            ..ModelSpec::default()
        };
        let config = Configured {
            models: BTreeMap::from([("m".to_owned(), model)]),
            default_model: "m".into(),
            policy: POLICY.into(),
            ..Configured::default()
        };
        let spec = |pid, parent| SpawnSpec { parent, task: Some("t".into()), ..SpawnSpec::resident(pid, "r", "m") };
        let mut kernel = Kernel::new(NoPages);
        let mut journal = Vec::new();
        let mut asked = BTreeMap::new();
        for (pid, body) in [
            (Pid::SYSTEM, booted()),
            (Pid::SYSTEM, Body::Configured(Box::new(config))),
            (PARENT, Body::Spawned(Box::new(spec(PARENT, Pid::INIT)))),
            (AGENT, Body::Spawned(Box::new(spec(AGENT, PARENT)))),
        ] {
            let applied = kernel.apply(BEGINNING, pid, body);
            journal.extend(applied.entries);
            for effect in applied.effects {
                if let Effect::Infer(infer) = effect {
                    asked.insert(infer.pid, infer.id);
                }
            }
        }
        Ground { kernel: Rc::new(kernel), journal, asking: asked[&AGENT], parent: asked[&PARENT] }
    }
}

fn booted() -> Body {
    Body::Booted { version: "sim".into(), configured: None, faulted: Vec::new(), last_pid: None }
}

/// The number of `p7`.
fn number(id: &str) -> Option<u64> {
    id.strip_prefix('p')?.parse().ok()
}

fn seen(file: u32) -> Vec<BoundFile> {
    let (path, is, mode, sha256) = ("f".to_owned(), "file".to_owned(), "644".to_owned(), Some(file.to_string()));
    vec![BoundFile { path, is, mode, bytes: 1, sha256 }]
}

impl World {
    pub(super) fn new(ground: &Ground) -> World {
        World {
            rebuilt: (Rc::clone(&ground.kernel), ground.journal.len()),
            kernel: ground.kernel.twin(),
            journal: ground.journal.clone(),
            model: Model::new(),
            asking: Some(ground.asking),
            parent: Some(ground.parent),
            looks: Vec::new(),
            result: None,
            changes: Vec::new(),
            done: BTreeMap::new(),
            let_be: BTreeMap::new(),
        }
    }

    /// The same once more, to go on from in another way.
    pub(super) fn twin(&self) -> World {
        World {
            rebuilt: self.rebuilt.clone(),
            kernel: self.kernel.twin(),
            journal: self.journal.clone(),
            model: self.model.clone(),
            looks: self.looks.clone(),
            result: self.result.clone(),
            changes: self.changes.clone(),
            done: self.done.clone(),
            let_be: self.let_be.clone(),
            ..*self
        }
    }

    /// Whoever looks at files is quick.
    pub(super) fn looks_at_all(&mut self) -> Result<(), String> {
        while let Some(id) = self.looks.first() {
            self.act(Act::Look(*id), false)?;
        }
        Ok(())
    }

    /// Whether a driver is about to say how a call went.
    pub(super) fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// How many calls were made so far.
    pub(super) fn made(&self) -> usize {
        self.done.len()
    }

    /// Does it, and compares. `cut`: the daemon is killed when the entries are durable, before a call that came of it has left,
    /// and starts again. Says whether a call came of it.
    pub(super) fn act(&mut self, act: Act, cut: bool) -> Result<bool, String> {
        let mut wants = Out::default();
        let durable = self.kernel.lsn();
        let Some((pid, body)) = self.input(act, &mut wants)? else { return Ok(false) };
        let (got, calls) = self.apply(pid, body)?;
        let wants = wants.sorted();
        if got != wants {
            return Err(format!("the kernel came to {got:?}\nand the model to {wants:?}"));
        }
        let any = !calls.is_empty();
        for effect in calls {
            let word = matches!(self.model.doing, Doing::Runs { under: Some(_), .. });
            if word && !effect.waits_for_disk(durable) {
                return Err("a call leaves before the journal has the word that it is made under".to_owned());
            }
            if !cut {
                self.leaves(effect)?;
            }
        }
        self.agrees()?;
        if cut {
            self.act(Act::Crash, false)?;
        }
        Ok(any)
    }

    /// What reaches the kernel, where it takes it; the model goes on by it.
    fn input(&mut self, act: Act, out: &mut Out) -> Result<Option<(Pid, Body)>, String> {
        let signal = |signal| Body::Signal { signal, from_pid: Pid::INIT, tree: false };
        let model = &mut self.model;
        let (input, counts) = match act {
            Act::Reply(call) => {
                model.reply(call, out);
                ((AGENT, reply(self.asking.take(), call.map(wired))), true)
            }
            Act::ParentKills => {
                model.end(out);
                let kill = ("KILL", format!(r#"{{"pid":{AGENT},"signal":"KILL"}}"#));
                ((PARENT, reply(self.parent.take(), Some(kill))), true)
            }
            Act::Look(id) => {
                self.looks.retain(|of| *of != id);
                let (files, diff, unbound) = (seen(model.file), String::new(), None);
                let counts = model.look(id);
                ((AGENT, Body::Examined(Box::new(Examined { id: format!("p{id}"), files, diff, unbound }))), counts)
            }
            Act::Word(id, state) => {
                let call = model.find(id).map(|question| question.call);
                let counts = model.word(id, state, out);
                if let Some(call) = call.filter(|_| counts) {
                    let yes = matches!(state, Said::Approved | Said::Standing);
                    let let_be = self.let_be.entry(call).or_default();
                    // What is held is let be when it is put, as long as nobody says no.
                    *let_be += i32::from(yes && call != Call::Held) - i32::from(!yes);
                }
                let (id, why) = (format!("p{id}"), Some("so".to_owned()));
                ((AGENT, Body::Proposal { id, state, proposal: None, why }), counts)
            }
            Act::Done => {
                let result = self.result.take().ok_or("there is no result")?;
                let counts = model.alive;
                if counts {
                    model.done(out);
                }
                ((AGENT, result), counts)
            }
            Act::Turn(at) => {
                model.turn(at);
                return Ok(None);
            }
            Act::Owed(at) => {
                let changed = changed(&self.changes[at], &model.changes[at]);
                model.owed(at, out);
                ((AGENT, Body::Changed(Box::new(changed))), true)
            }
            Act::Edit => {
                model.edit();
                return Ok(None);
            }
            Act::Policy => {
                model.policy(out);
                let mut config = (**self.kernel.config()).clone();
                config.policy = format!("{POLICY}# {}\n", model.policy);
                ((Pid::SYSTEM, Body::Configured(Box::new(config))), true)
            }
            Act::Stop => {
                model.stop();
                ((AGENT, signal(Signal::Stop)), true)
            }
            Act::Cont => {
                model.cont(out);
                ((AGENT, signal(Signal::Cont)), true)
            }
            Act::Term => {
                model.term(out);
                ((AGENT, signal(Signal::Term)), true)
            }
            Act::Kill => {
                model.end(out);
                ((AGENT, signal(Signal::Kill)), true)
            }
            Act::Late => {
                model.now = model.next().ok_or("nothing is due")? + 1;
                return Ok(None);
            }
            Act::Tick => {
                model.now = model.now.max(model.next().ok_or("nothing is due")?);
                model.tick(out);
                ((Pid::SYSTEM, Body::Tick), true)
            }
            Act::Crash => {
                model.now += OFF_MS;
                model.boot(out);
                self.restart()?;
                ((Pid::SYSTEM, booted()), true)
            }
        };
        let (pid, body) = input;
        let at = self.at();
        match (self.kernel.check_at(at, pid, &body), counts) {
            (Ok(()), true) => Ok(Some((pid, body))),
            (Err(_), false) => Ok(None),
            (taken, counts) => Err(format!("the kernel says {taken:?} to it, the model {counts}")),
        }
    }

    fn at(&self) -> Timestamp {
        BEGINNING.plus_millis(self.model.now)
    }

    /// An input is durable, and so is what it came to, which is told; with the calls that are to leave.
    fn apply(&mut self, pid: Pid, body: Body) -> Result<(Out, Vec<Effect>), String> {
        let applied = self.kernel.apply(self.at(), pid, body);
        self.model.last = self.model.now;
        let mut out = Out::default();
        for entry in applied.entries.iter().filter(|entry| entry.pid == AGENT) {
            match &entry.body {
                Body::Proposal { id, state, proposal, .. } => {
                    out.became.push((number(id).ok_or("no such id")?, *state));
                    let held = proposal.as_ref().is_some_and(|of| of.verdict == aos_abi::entry::Verdict::Hold);
                    *self.let_be.entry(Call::Held).or_default() += i32::from(held);
                }
                Body::Result { outcome: Outcome::Success { .. }, .. } => out.told.push(None),
                Body::Result { outcome: Outcome::Error { error }, .. } => out.told.push(Some(error.code)),
                Body::Lifted { id, .. } => out.lifted.push(number(id).ok_or("no such id")?),
                _ => {}
            }
        }
        self.journal.extend(applied.entries);
        let mut calls = Vec::new();
        for effect in applied.effects {
            match effect {
                Effect::Infer(infer) if infer.pid == AGENT => self.asking = Some(infer.id),
                Effect::Infer(infer) => self.parent = Some(infer.id),
                Effect::Examine { id, .. } => {
                    let id = number(&id).ok_or("no such id")?;
                    out.looks.push(id);
                    self.looks.push(id);
                }
                Effect::Call { ref permit, .. } => {
                    out.made.push(named(permit.call()).ok_or("nobody wanted that call")?);
                    calls.push(effect);
                }
                _ => {}
            }
        }
        Ok((out.sorted(), calls))
    }

    /// A call reaches its driver, which looks at the file first.
    fn leaves(&mut self, effect: Effect) -> Result<(), String> {
        let Effect::Call { id, call_id, permit, bound, .. } = effect else { return Ok(()) };
        let call = named(permit.call()).ok_or("nobody wanted that call")?;
        let again = self.done.contains_key(&id);
        let holds = again || bound.is_none_or(|bound| bound.files == seen(self.model.file));
        if self.model.leaves() != holds {
            return Err(format!("the driver makes {call:?}: {holds}, which the model does not"));
        }
        if again && !call.may_repeat() {
            return Err(format!("{call:?} is made twice as {id}"));
        }
        let outcome = if holds {
            if call == Call::Free && !again {
                self.changes.push((id, call_id.clone()));
            }
            self.done.insert(id, call);
            Outcome::Success { result: serde_json::json!({}) }
        } else {
            Outcome::Error { error: CallError::new(Code::Rejected, "the file has changed since") }
        };
        let name = permit.call().name().as_str().to_owned();
        self.result = Some(Body::Result { call_id, name, effect: Some(id), outcome });
        // Said once more without the model: nothing is made more often than somebody let it be made.
        let made = self.done.values().filter(|of| **of == call).count();
        let let_be = self.let_be.get(&call).copied().unwrap_or_default();
        let stands =
            self.journal.iter().any(|entry| matches!(entry.body, Body::Proposal { state: Said::Standing, .. }));
        if !stands && call != Call::Free && i32::try_from(made).is_ok_and(|made| made > let_be) {
            return Err(format!("{call:?} is made {made} times, and was let be {let_be} times"));
        }
        Ok(())
    }

    /// The daemon is gone, with all that was on its way; another one is made from the journal, and is the same.
    fn restart(&mut self) -> Result<(), String> {
        self.rebuild()?;
        let kernel = self.rebuilt.0.twin();
        let (mut mine, mut other) = (self.kernel.twin(), kernel.twin());
        let (was, is) = (mine.checkpoint(), other.checkpoint());
        if was.lsn != is.lsn || was.globals != is.globals || was.pages != is.pages {
            return Err(format!("after a restart it is {other:?}\nand was {mine:?}"));
        }
        self.kernel = kernel;
        self.looks.clear();
        self.result = None;
        Ok(())
    }

    /// Brings the kernel that is made from the journal alone to its end.
    pub(super) fn rebuild(&mut self) -> Result<(), String> {
        let new = &self.journal[self.rebuilt.1..];
        if new.is_empty() {
            return Ok(());
        }
        let mut kernel = self.rebuilt.0.twin();
        let mut made = Vec::new();
        for entry in new.iter().filter(|entry| entry.cause.is_none()) {
            made.extend(kernel.apply(entry.at, entry.pid, entry.body.clone()).entries);
        }
        if made != new {
            return Err(format!("the journal has {new:?}\nand what is made from it is {made:?}"));
        }
        self.rebuilt = (Rc::new(kernel), self.journal.len());
        Ok(())
    }

    /// The kernel shows people what the model has, and its agent does what the model's does.
    fn agrees(&mut self) -> Result<(), String> {
        let model = &self.model;
        let mut shown: Vec<(u64, Said, u64, Vec<BoundFile>)> = Vec::new();
        for view in self.kernel.proposals() {
            let id = number(&view.id).ok_or("no such id")?;
            shown.push((id, view.state, view.expires_at.millis_since(BEGINNING), view.files));
        }
        shown.sort_by_key(|(id, ..)| *id);
        let mut stands: Vec<u64> = self.kernel.standing_approvals().iter().filter_map(|(id, _)| number(id)).collect();
        stands.sort_unstable();
        let state = |is: Is, call: Call| match (is, call.kind()) {
            (Is::Open, Kind::Denied) => Some(Said::Denied),
            (Is::Open, _) => Some(Said::Pending),
            (Is::Yes, Kind::Denied) => Some(Said::Approved),
            (Is::Yes | Is::Stands, _) => None,
        };
        let open = model.questions.iter().filter(|question| !model.runs_under(question.id));
        let wanted: Vec<(u64, Said, u64, Vec<BoundFile>)> = open
            .filter_map(|of| Some((of.id, state(of.is, of.call)?, of.ends, of.shown.map(seen).unwrap_or_default())))
            .collect();
        if shown != wanted {
            return Err(format!("people are shown {shown:?}\nand should be {wanted:?}"));
        }
        let standing = model.questions.iter().filter(|question| question.is == Is::Stands);
        let standing: Vec<u64> = standing.map(|question| question.id).collect();
        if stands != standing {
            return Err(format!("{stands:?} stand, and should {standing:?}"));
        }
        let process = self.kernel.process(AGENT).ok_or("the agent is gone")?;
        let same = match (&process.phase, model.doing) {
            (Phase::Exited, _) => !model.alive,
            (Phase::Inferring(_), Doing::Thinks) | (Phase::Waiting { .. }, Doing::Asks(_)) => model.alive,
            (Phase::Ready | Phase::Calling | Phase::Idle, Doing::Rests | Doing::Begins(_) | Doing::Approved(_)) => {
                model.alive && model.stopped
            }
            (Phase::Calling, Doing::Runs { .. }) => model.alive,
            (Phase::Inferring(_), Doing::Rests) => model.alive && model.stopped,
            _ => false,
        };
        if !same || process.stopped.is_some() != (model.stopped && model.alive) {
            return Err(format!("it is {:?}, and should be {:?}", process.phase, model.doing));
        }
        Ok(())
    }

    /// All that the future can depend on. What the model has not: whether a result is to come, and what the kernel keeps
    /// beside what it shows.
    pub(super) fn key(&mut self) -> String {
        let kept = self.kernel.process(AGENT).map(|process| {
            let states: Vec<_> = process.step.iter().map(|call| call.approved.is_some()).collect();
            (std::mem::discriminant(&process.phase), states, process.refusals.len(), process.notices.len())
        });
        let result = self.result.is_some();
        format!("{:?} {kept:?} {:?} {result} {}", self.model.as_of_now(), self.looks, self.parent.is_some())
    }
}

/// What the journal is told of the last turn of a change.
fn changed((effect, call_id): &(EffectId, CallId), change: &Change) -> Changed {
    let known = |turn: u32| change.ids.get(turn as usize).copied().flatten().map(|id| format!("p{id}"));
    let (undoes, restores) = match change.turn {
        0 => (None, None),
        turn if turn.is_multiple_of(2) => (known(turn - 1), known(0)),
        _ => (known(0), None),
    };
    Changed {
        effect: *effect,
        turn: change.turn,
        call_id: call_id.clone(),
        name: Name::FsWrite,
        args: serde_json::json!({}),
        rule: "sim".into(),
        changes: Vec::new(),
        more: 0,
        undo_ms: Some(900_000),
        lost: None,
        undoes,
        restores,
    }
}

fn wired(call: Call) -> (&'static str, String) {
    let (name, args) = call.wire();
    match call {
        Call::Proposed => ("PROPOSE", format!(r#"{{"action":{{"name":"{name}","args":{args}}},"why":"w"}}"#)),
        _ => (name, args.to_owned()),
    }
}

/// Which of the calls that the agent makes this is.
fn named(call: &Syscall) -> Option<Call> {
    Call::ALL.into_iter().find(|of| {
        let (name, args) = of.wire();
        Syscall::parse(name, args).is_ok_and(|of| of == *call)
    })
}

fn reply(effect: Option<EffectId>, call: Option<(&'static str, String)>) -> Body {
    let stop = if call.is_some() { Stop::Calls } else { Stop::End };
    let text = if call.is_some() { String::new() } else { "done".to_owned() };
    let calls = call.into_iter().map(|(name, arguments)| NativeCall { id: NO_ID, name: name.to_owned(), arguments });
    let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
    let reply = Reply { text, calls: calls.collect(), stop, usage, model: "m".into() };
    Body::InferenceCompleted {
        effect: effect.unwrap_or(EffectId { cause: Lsn::ZERO, nth: 0 }),
        latency_ms: 1,
        personal: None,
        outcome: InferenceOutcome::Answered(reply),
    }
}
