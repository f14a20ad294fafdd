//! Faults of the kernel's own: who it failed over is set aside, and the others go on.

use std::sync::Arc;

use aos_abi::entry::{Asked, Configured, Faulted, InferenceOutcome, Key};
use aos_abi::inference::{Format, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelSpec, Price};
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec};
use aos_abi::{Body, EffectId, Entry, Pid, Signal, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::effect::Effect;
use aos_kernel::fault::Instead;
use aos_kernel::table::NoPages;

use crate::rig::POLICY;

/// A kernel that is made again from its entries whenever it fails.
struct World {
    kernel: Kernel<NoPages>,
    now: Timestamp,
    entries: Vec<Arc<Entry>>,
    asked: Vec<(Pid, EffectId)>,
    /// When it fails again, each time that it was made again.
    planned: Vec<u32>,
}

/// What a process has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Turn,
    Call,
    Request,
}

impl World {
    fn new() -> World {
        let mut world = World {
            kernel: Kernel::new(NoPages),
            now: Timestamp(1),
            entries: Vec::new(),
            asked: Vec::new(),
            planned: Vec::new(),
        };
        let model = ModelSpec { context_window: 20_000, max_output: 1000, ..ModelSpec::default() };
        assert!(world.under(POLICY, model));
        world
    }

    fn under(&mut self, policy: &str, model: ModelSpec) -> bool {
        let config = Configured {
            models: [("m".to_owned(), model)].into(),
            default_model: "m".into(),
            policy: policy.into(),
            ..Configured::default()
        };
        self.offer(Pid::SYSTEM, Body::Configured(Box::new(config)))
    }

    fn offer(&mut self, pid: Pid, body: Body) -> bool {
        let mut next = Some((pid, body));
        while let Some((pid, body)) = next.take() {
            match self.kernel.attempt(self.now, pid, body) {
                Ok(applied) => {
                    self.asked.extend(applied.effects.iter().filter_map(|effect| match effect {
                        Effect::Infer(infer) => Some((infer.pid, infer.id)),
                        _ => None,
                    }));
                    self.entries.extend(applied.entries);
                    return true;
                }
                Err(fault) => {
                    self.make_again();
                    let Instead { first, then } = self.kernel.instead(fault).unwrap();
                    if let Some((pid, body)) = first {
                        assert!(self.offer(pid, body));
                        if then.is_none() {
                            assert!(self.offer(Pid::SYSTEM, Body::Tick));
                        }
                    }
                    next = then;
                }
            }
        }
        false
    }

    fn make_again(&mut self) {
        self.kernel = Kernel::new(NoPages);
        let mut made = Vec::new();
        for input in self.entries.iter().filter(|entry| entry.cause.is_none()) {
            made.extend(self.kernel.apply(input.at, input.pid, input.body.clone()).entries);
        }
        assert_eq!(made, self.entries);
        if let Some(times) = self.planned.pop() {
            self.kernel.fail_after(times);
        }
    }

    fn spawn(&mut self) -> Pid {
        let pid = self.kernel.next_pid();
        let spec = SpawnSpec { task: Some("work".into()), ..SpawnSpec::resident(pid, "You work.", "m") };
        assert!(self.offer(pid, Body::Spawned(Box::new(spec))));
        pid
    }

    /// A process that has something under way, and money set aside for what asks a model.
    fn with_something(&mut self, under_way: Way) -> Pid {
        let pid = self.kernel.next_pid();
        let budget = BudgetSpec { usd: Some(Usd(10_000_000_000)), ..BudgetSpec::default() };
        let program = under_way == Way::Request;
        let mode = if program { Mode::Program } else { Mode::Resident };
        let task = (!program).then(|| "work".to_owned());
        let spec = SpawnSpec { budget, mode, task, ..SpawnSpec::resident(pid, "You work.", "m") };
        assert!(self.offer(pid, Body::Spawned(Box::new(spec))));
        match under_way {
            Way::Turn => {}
            Way::Call => {
                let (_, effect) = self.asked.remove(0);
                let arguments = r#"{"path":"notes","content":""}"#.to_owned();
                let call = NativeCall { id: "k1".into(), name: "FS_WRITE".into(), arguments };
                assert!(self.reply(pid, effect, "", vec![call]));
            }
            Way::Request => {
                let key = Key { sha256: format!("{:064x}", 1), owner: None, rpm: None, tiers: Vec::new() };
                assert!(self.offer(pid, Body::Keyed(Box::new(key))));
                let asked = Asked {
                    request: 1,
                    model: "m".into(),
                    format: Format::Chat,
                    input_tokens: 100,
                    max_output: None,
                    needs: Default::default(),
                    more: 0,
                };
                assert!(self.offer(pid, Body::Asked(Box::new(asked))));
            }
        }
        pid
    }

    fn boot(&mut self) -> bool {
        self.offer(
            Pid::SYSTEM,
            Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None },
        )
    }

    fn answer(&mut self, pid: Pid, text: &str) -> bool {
        let at = self.asked.iter().rposition(|(of, _)| *of == pid).unwrap();
        let (_, effect) = self.asked.remove(at);
        self.reply(pid, effect, text, Vec::new())
    }

    fn reply(&mut self, pid: Pid, effect: EffectId, text: &str, calls: Vec<NativeCall>) -> bool {
        let reply = Reply {
            text: text.into(),
            stop: if calls.is_empty() { Stop::End } else { Stop::Calls },
            calls,
            usage: Usage { input_tokens: 5, output_tokens: 5, ..Usage::default() },
            model: "m".into(),
        };
        let outcome = InferenceOutcome::Answered(reply);
        self.offer(pid, Body::InferenceCompleted { effect, latency_ms: 1, personal: None, outcome })
    }

    fn state(&mut self, pid: Pid) -> String {
        self.kernel.view(pid).unwrap().state.as_str().to_owned()
    }

    fn input(&mut self, pid: Pid, text: &str) -> bool {
        self.offer(pid, Body::Input { text: text.into(), eof: false, from_pid: Pid::INIT, untrusted: false })
    }

    fn signal(&mut self, pid: Pid, signal: Signal) -> bool {
        self.offer(pid, Body::Signal { signal, from_pid: Pid::INIT, tree: false })
    }

    fn faults(&self) -> Vec<(Pid, Option<EffectId>)> {
        let lost = |entry: &Arc<Entry>| match &entry.body {
            Body::Faulted(Faulted { lost, .. }) => Some((entry.pid, *lost)),
            _ => None,
        };
        self.entries.iter().filter_map(lost).collect()
    }
}

/// A fault ended the daemon, and with it everybody's work.
#[test]
fn who_the_kernel_fails_over_is_set_aside_and_the_others_go_on() {
    let mut world = World::new();
    let (one, other) = (world.spawn(), world.spawn());
    assert!(world.answer(one, "done") && world.answer(other, "done"));
    world.kernel.fail_after(0);
    assert!(!world.input(one, "more"), "it was left out");
    assert_eq!(world.faults(), [(one, None)]);
    assert_eq!(world.state(one), "stopped");
    let reason = world.kernel.view(one).unwrap().reason.unwrap();
    assert_eq!(reason, "faulted: a fault that a test wanted");
    assert!(world.input(other, "more") && world.answer(other, "done again"));
    // A person lets it try again.
    assert!(world.signal(one, Signal::Cont) && world.input(one, "more") && world.answer(one, "done"));
    assert_eq!(world.state(one), "blocked");
}

/// The answer is lost; its slot is not, and it is paid.
#[test]
fn an_outcome_that_cannot_be_applied_gives_its_slot_back_and_is_paid() {
    let mut world = World::new();
    let pid = world.spawn();
    let (_, effect) = world.asked[0];
    world.kernel.fail_after(0);
    assert!(!world.answer(pid, "done"));
    assert_eq!(world.faults(), [(pid, Some(effect))]);
    assert_eq!(world.kernel.in_flight(), 0);
    assert_eq!(world.kernel.slots()["m"].used, 0);
    let charged =
        world.entries.iter().any(|entry| matches!(&entry.body, Body::Charged { usage, .. } if usage.estimated));
    assert!(charged);
    // It asks again once it may go on.
    assert!(world.signal(pid, Signal::Cont) && world.answer(pid, "done"));
    assert_eq!(world.state(pid), "blocked");
}

/// A timer over which the kernel fails would end every start.
#[test]
fn a_due_process_that_cannot_be_handled_is_due_no_more() {
    let mut world = World::new();
    let pid = world.kernel.next_pid();
    let budget = aos_abi::process::BudgetSpec { wall_s: Some(10), ..Default::default() };
    let spec = SpawnSpec { budget, ..SpawnSpec::resident(pid, "You wait.", "m") };
    assert!(world.offer(pid, Body::Spawned(Box::new(spec))));
    let other = world.spawn();
    world.now = world.now.plus_millis(11_000);
    assert!(world.kernel.next_deadline().is_some_and(|at| at <= world.now));
    world.kernel.fail_after(0);
    assert!(world.offer(Pid::SYSTEM, Body::Tick), "it is applied without");
    assert_eq!(world.faults(), [(pid, None)]);
    assert!(world.kernel.next_deadline().is_none_or(|at| at > world.now));
    assert!(world.answer(other, "done"));
    assert!(world.signal(pid, Signal::Kill));
    assert_eq!(world.state(pid), "exited");
}

/// The next process had the number of one whose entries were lost, and with it that one's memory.
#[test]
fn no_pid_of_a_lost_end_is_given_again() {
    let mut world = World::new();
    let before = world.spawn();
    let last_pid = Some(Pid(before.0 + 7));
    let booted = |last_pid| Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid };
    assert!(world.offer(Pid::SYSTEM, booted(last_pid)));
    assert_eq!(world.spawn(), Pid(before.0 + 8));
    // One that says less takes nothing back.
    assert!(world.offer(Pid::SYSTEM, booted(last_pid)));
    assert_eq!(world.spawn(), Pid(before.0 + 9));
}

/// What was under way is recovered in one entry, also where one of them cannot be.
#[test]
fn a_start_recovers_all_but_the_one_that_it_fails_over() {
    let mut world = World::new();
    let (one, other) = (world.spawn(), world.spawn());
    world.asked.clear();
    world.make_again();
    world.kernel.fail_after(0);
    let booted = Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None };
    assert!(world.offer(Pid::SYSTEM, booted));
    let Body::Booted { faulted, .. } = &world.entries.iter().rfind(|entry| entry.cause.is_none()).unwrap().body else {
        panic!("the start is the last input");
    };
    assert_eq!(faulted.iter().map(|of| of.pid).collect::<Vec<_>>(), [one]);
    assert_eq!((world.state(one), world.state(other)), ("stopped".into(), "running".into()));
    assert!(world.answer(other, "done"));
    assert!(world.signal(one, Signal::Cont) && world.answer(one, "done"));
}

/// What a start could not recover it met again in the next attempt, and the daemon never came up.
#[test]
fn a_start_that_fails_again_goes_on_all_the_same() {
    // That it is set aside at all does not fail, nor that it is named the second time.
    for second in 2..14 {
        for third in 5..16 {
            let mut world = World::new();
            let (one, other) = (world.spawn(), world.spawn());
            world.make_again();
            world.planned = vec![third, second];
            world.kernel.fail_after(0);
            let booted = Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None };
            assert!(world.offer(Pid::SYSTEM, booted), "{second} {third}");
            assert_eq!(world.state(one), "stopped");
            world.planned.clear();
            world.make_again();
            // Whoever was not set aside goes on, and so do new ones.
            let running = u32::from(world.state(other) == "running");
            assert_eq!(world.kernel.slots()["m"].used, running);
            let third = world.spawn();
            assert!(world.answer(third, "done"));
            assert!(world.signal(one, Signal::Cont) && world.signal(one, Signal::Kill));
        }
    }
}

/// What was set aside for it stayed so for ever, of the day's budget too, and a process that went on waited for an answer
/// that nobody would bring.
#[test]
fn what_a_start_let_go_of_is_paid_once_its_process_goes_on_or_ends() {
    for under_way in [Way::Turn, Way::Call, Way::Request] {
        let mut let_go = 0;
        let ends = [Signal::Cont, Signal::Kill, Signal::Term];
        for (second, end) in (2..14).flat_map(|second| ends.map(|end| (second, end))) {
            let mut world = World::new();
            let price = Some(Price { input: Usd(1_000_000_000), output: Usd(1_000_000_000), ..Price::default() });
            let model = ModelSpec { context_window: 20_000, max_output: 1000, price, ..ModelSpec::default() };
            assert!(world.under(POLICY, model));
            let one = world.with_something(under_way);
            world.make_again();
            world.planned = vec![second];
            world.kernel.fail_after(0);
            assert!(world.boot());
            world.planned.clear();
            world.make_again();
            let Body::Booted { faulted, .. } = &world.entries.iter().rfind(|entry| entry.cause.is_none()).unwrap().body
            else {
                panic!("the start is the last input");
            };
            if faulted.iter().filter(|of| of.pid == one).count() < 2 {
                continue;
            }
            let_go += 1;
            assert!(world.signal(one, end), "{under_way:?} {second} {end:?}");
            let budget = world.kernel.process(one).unwrap().budget;
            let asks = end == Signal::Cont && under_way != Way::Request;
            assert!(budget.usd.spent > 0 || under_way == Way::Call, "{under_way:?} {second} {end:?}");
            assert_eq!(world.kernel.in_flight(), usize::from(asks), "{under_way:?} {second} {end:?}");
            if asks {
                assert!(world.answer(one, "done"));
                assert_eq!(world.state(one), "blocked");
            }
            let account = world.kernel.process(one).unwrap().budget;
            assert_eq!((account.usd.reserved, account.tokens.reserved), (0, 0), "{under_way:?} {second} {end:?}");
            assert_eq!(world.kernel.slots()["m"].used, 0);
            let ended = if end == Signal::Cont { vec![] } else { vec![one] };
            assert_eq!(world.kernel.prunable(&[one], None), ended, "its account is closed");
            world.make_again();
        }
        assert!(let_go > 0, "{under_way:?} was never let go of");
    }
}

/// It went on, which failed again; then nothing but KILL ended it, and no time did.
#[test]
fn term_ends_a_process_that_is_set_aside() {
    let mut world = World::new();
    let pid = world.spawn();
    world.kernel.fail_after(0);
    assert!(!world.answer(pid, "done"));
    assert!(world.signal(pid, Signal::Term));
    assert_eq!(world.state(pid), "exited");
    assert_eq!(world.kernel.view(pid).unwrap().reason.unwrap(), "ended by TERM while it was set aside");
    // Also one that was told to end already.
    let other = world.spawn();
    assert!(world.signal(other, Signal::Term));
    world.kernel.fail_after(0);
    assert!(!world.answer(other, "done"));
    world.now = world.now.plus_millis(60_000);
    assert!(world.offer(Pid::SYSTEM, Body::Tick));
    assert_eq!(world.state(other), "stopped", "it waits for a person");
    assert!(world.signal(other, Signal::Term));
    assert_eq!(world.state(other), "exited");
    assert_eq!((world.kernel.in_flight(), world.kernel.next_deadline()), (0, None));
}

/// A person's word about several at once could not be refused: the daemon ended.
#[test]
fn a_signal_to_a_group_that_fails_over_one_reaches_the_others() {
    let mut world = World::new();
    let [one, other] = [(); 2].map(|()| {
        let pid = world.kernel.next_pid();
        let spec = SpawnSpec { group: Some("g".into()), ..SpawnSpec::resident(pid, "You wait.", "m") };
        assert!(world.offer(pid, Body::Spawned(Box::new(spec))));
        pid
    });
    world.kernel.fail_after(0);
    let stop = || Body::GroupSignal { group: "g".into(), signal: Signal::Stop, tree: false };
    assert!(world.offer(Pid::SYSTEM, stop()));
    assert_eq!(world.faults(), [(one, None)]);
    assert_eq!((world.state(one), world.state(other)), ("stopped".into(), "stopped".into()));
}

/// Nobody can be set aside for it: the daemon ends, rather than that it goes round for ever.
#[test]
fn a_fault_over_nobody_is_given_back() {
    let mut world = World::new();
    let pid = world.spawn();
    world.kernel.fail_after(0);
    let fault =
        world.kernel.attempt(world.now, pid, Body::Signal { signal: Signal::Stop, from_pid: Pid::INIT, tree: false });
    let mut fault = fault.unwrap_err();
    (fault.over, fault.pid, fault.body) = (Pid::SYSTEM, Pid::SYSTEM, Body::Tick);
    world.make_again();
    assert!(world.kernel.instead(fault).is_err());
}

/// Where the kernel failed over a denial, nobody was known to be set aside, and no other policy could be taken into use.
#[test]
fn another_policy_is_taken_into_use_though_the_kernel_fails_over_a_denial() {
    // What it denies in another way is over, and what it denies in the same way is not.
    let without = POLICY.replace("SPAWN_AGENT, ", "");
    let closed = without.replace("    fs:\n", "    fs:\n      - {path: notes, ops: [write], verdict: deny}\n");
    assert_ne!(without, closed);
    let mut failed = 0;
    for (times, (policy, left)) in (0..24).flat_map(|times| [(times, (&without, 1)), (times, (&closed, 0))]) {
        let mut world = World::new();
        let pid = world.kernel.next_pid();
        let grants = Some(vec!["FS_READ".to_owned()]);
        let spec = SpawnSpec { task: Some("work".into()), grants, ..SpawnSpec::resident(pid, "You work.", "m") };
        assert!(world.offer(pid, Body::Spawned(Box::new(spec))));
        let (_, effect) = world.asked.remove(0);
        let arguments = r#"{"path":"notes","content":""}"#.to_owned();
        assert!(world.reply(pid, effect, "", vec![NativeCall { id: "k1".into(), name: "FS_WRITE".into(), arguments }]));
        assert_eq!(world.kernel.proposals().len(), 1);
        let model = ModelSpec { context_window: 20_000, max_output: 1000, ..ModelSpec::default() };
        world.kernel.fail_after(times);
        assert!(world.under(policy, model), "after {times}");
        let generation = world.kernel.policy().generation().to_owned();
        assert_eq!(world.kernel.proposals().len(), left, "after {times}");
        let process = world.kernel.process(pid).unwrap();
        assert!(process.denials.values().all(|denial| denial.open.generation == generation), "after {times}");
        failed += world.faults().len();
    }
    assert!(failed > 0, "none failed");
}
