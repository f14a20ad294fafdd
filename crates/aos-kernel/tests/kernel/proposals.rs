//! Crashes around a person's word: whatever survives, the call is made at most once, and what was not decided is still open.
//!
//! Start at [`survive`]. Each script is cut after each of its inputs, which is where a journal can end, and goes on from
//! there: once as if nothing else had happened, and once with the very same words said again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_abi::entry::{Configured, Examined, InferenceOutcome, Outcome, ProposalState};
use aos_abi::inference::{Encoding, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelLimits, ModelSpec};
use aos_abi::process::SpawnSpec;
use aos_abi::{Body, Code, EffectId, Entry, Pid, Signal, Timestamp};
use aos_kernel::Kernel;
use aos_kernel::effect::Effect;
use aos_kernel::table::NoPages;

use crate::rig::{POLICY, plain};

const AGENT: Pid = Pid(2);

/// A world of one agent, a person and a driver that counts.
struct World {
    kernel: Kernel<NoPages>,
    /// What is durable.
    journal: Vec<Arc<Entry>>,
    now: Timestamp,
    /// Calls that reached the driver and cannot be taken back, by their arguments. One that comes again under the id of its
    /// effect is the same to the driver, which has its layer.
    done: BTreeMap<String, BTreeSet<EffectId>>,
    config: Configured,
    /// The last call at the driver.
    running: Option<Body>,
    /// The approvals whose files each call at the driver is bound to.
    bound: Vec<Option<String>>,
}

impl World {
    fn new() -> World {
        let model = ModelSpec {
            context_window: 20_000,
            max_output: 1000,
            price: None,
            limits: ModelLimits { concurrency: 8, rpm: None, tpm: None },
            local: false,
            encoding: Encoding::Native,
            tier: None,
            ..ModelSpec::default()
        };
        let config = Configured {
            models: BTreeMap::from([("m".to_owned(), model)]),
            default_model: "m".into(),
            policy: POLICY.into(),
            usd_per_day: None,
            hedge_after_ms: None,
            hooks_url: String::new(),
            ..Configured::default()
        };
        let mut world = World {
            kernel: Kernel::new(NoPages),
            journal: Vec::new(),
            now: Timestamp(1_795_305_600_000),
            done: BTreeMap::new(),
            config: config.clone(),
            running: None,
            bound: Vec::new(),
        };
        world.offer(
            Pid::SYSTEM,
            Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None },
        );
        world.offer(Pid::SYSTEM, Body::Configured(Box::new(config)));
        world.offer(AGENT, Body::Spawned(Box::new(SpawnSpec { task: Some("t".into()), ..plain(AGENT) })));
        world
    }

    /// An input that the kernel takes is durable before anything follows from it.
    fn offer(&mut self, pid: Pid, body: Body) -> bool {
        if self.kernel.check(pid, &body).is_err() {
            return false;
        }
        let applied = self.kernel.apply(self.now, pid, body);
        self.journal.extend(applied.entries);
        for effect in applied.effects {
            match effect {
                Effect::Call { id, call_id, permit, bound, .. } => {
                    self.bound.push(bound.map(|bound| bound.id));
                    let name = permit.call().name().as_str().to_owned();
                    let outcome = Outcome::Success { result: serde_json::json!({}) };
                    self.running = Some(Body::Result { call_id, name, effect: Some(id), outcome });
                    self.done.entry(permit.call().args().to_string()).or_default().insert(id);
                }
                Effect::Examine { pid, id, .. } => {
                    let examined = Examined { id, files: Vec::new(), diff: String::new(), unbound: None };
                    self.offer(pid, Body::Examined(Box::new(examined)));
                }
                _ => {}
            }
        }
        true
    }

    /// The daemon is killed and starts again. `acted`: what the last input asked for had left before.
    fn crash(&mut self, acted: bool, before: &BTreeMap<String, BTreeSet<EffectId>>) {
        if !acted {
            self.done.clone_from(before);
        }
        let mut kernel = Kernel::new(NoPages);
        let mut again: Vec<Arc<Entry>> = Vec::new();
        for entry in self.journal.iter().filter(|entry| entry.cause.is_none()) {
            again.extend(kernel.apply(entry.at, entry.pid, entry.body.clone()).entries);
        }
        assert_eq!(again, self.journal, "replay equals live");
        self.kernel = kernel;
        self.offer(
            Pid::SYSTEM,
            Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None },
        );
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Reply(calls) => {
                let asked = self.journal.iter().rev().find_map(|entry| match &entry.body {
                    Body::InferenceStarted { effect, .. } => Some(*effect),
                    _ => None,
                });
                let effect = asked.expect("it asks something");
                let calls = calls
                    .iter()
                    .map(|(name, arguments)| NativeCall {
                        id: String::new(),
                        name: (*name).into(),
                        arguments: (*arguments).into(),
                    })
                    .collect();
                let usage = Usage { input_tokens: 10, output_tokens: 10, ..Usage::default() };
                let reply = Reply { text: String::new(), calls, stop: Stop::Calls, usage, model: "m".into() };
                let outcome = InferenceOutcome::Answered(reply);
                self.offer(AGENT, Body::InferenceCompleted { effect, latency_ms: 1, personal: None, outcome });
            }
            Act::Answer(id, state) => {
                let why = Some("because".to_owned());
                self.offer(AGENT, Body::Proposal { id: (*id).into(), state: *state, proposal: None, why });
            }
            Act::Done => {
                if let Some(result) = self.running.take() {
                    self.offer(AGENT, result);
                }
            }
            Act::Policy(more) => {
                self.config.policy = format!("{POLICY}{more}");
                self.offer(Pid::SYSTEM, Body::Configured(Box::new(self.config.clone())));
            }
            Act::Signal(signal) => {
                self.offer(AGENT, Body::Signal { signal: *signal, from_pid: Pid::INIT, tree: false });
            }
            Act::Unnoticed(seconds) => self.now = self.now.plus_millis(seconds * 1000),
            Act::After(seconds) => {
                self.now = self.now.plus_millis(seconds * 1000);
                self.offer(Pid::SYSTEM, Body::Tick);
            }
        }
    }

    fn states(&self, id: &str) -> Vec<ProposalState> {
        let of = |entry: &Arc<Entry>| match &entry.body {
            Body::Proposal { id: of, state, .. } if of == id => Some(*state),
            _ => None,
        };
        self.journal.iter().filter_map(of).collect()
    }

    /// What the agent was told of its proposed call.
    fn told(&self) -> Vec<Option<Code>> {
        let of = |entry: &Arc<Entry>| match &entry.body {
            Body::Result { outcome: Outcome::Success { .. }, .. } => Some(None),
            Body::Result { outcome: Outcome::Error { error }, .. } => Some(Some(error.code)),
            _ => None,
        };
        self.journal.iter().filter_map(of).collect()
    }
}

enum Act {
    Reply(&'static [(&'static str, &'static str)]),
    Answer(&'static str, ProposalState),
    Signal(Signal),
    /// The driver is done.
    Done,
    /// Another policy holds.
    Policy(&'static str),
    After(u64),
    /// Time passes, and nobody has noticed yet.
    Unnoticed(u64),
}

const ASK: Act = Act::Reply(&[("FS_WRITE", r#"{"path":"asks/a","content":""}"#)]);
const DENIED: Act = Act::Reply(&[("NET_FETCH", r#"{"url":"https://a.example/"}"#)]);
const HOLD: Act = Act::Reply(&[("FS_WRITE", r#"{"path":"holds/a","content":""}"#)]);
const PROPOSE: Act = Act::Reply(&[("PROPOSE", r#"{"action":{"name":"EXEC_CMD","args":{"cmd":"x"}},"why":"w"}"#)]);

/// Runs a script with a crash after each of its inputs, before and after what it asked for had left, and the last word
/// said again; returns how often its proposed call was made in each world.
fn survive(script: &[Act], id: &str) -> Vec<(u32, Vec<ProposalState>, Vec<Option<Code>>)> {
    let mut ends = Vec::new();
    for crash_after in 0..script.len() {
        for acted in [true, false] {
            let mut world = World::new();
            for (at, act) in script.iter().enumerate() {
                let before = world.done.clone();
                world.act(act);
                if at == crash_after {
                    world.crash(acted, &before);
                    // Nobody knows whether it was heard.
                    if let Act::Answer(..) = act {
                        world.act(act);
                    }
                }
            }
            assert!(world.done.values().all(|effects| effects.len() <= 1), "{:?}", world.done);
            let made = world.done.values().map(|effects| u32::try_from(effects.len()).unwrap()).sum();
            ends.push((made, world.states(id), world.told()));
        }
    }
    ends
}

use ProposalState::{Approved, Executed, Expired, Pending, Rejected};

#[test]
fn an_approved_call_is_made_once_wherever_the_daemon_dies() {
    for script in [&[ASK, Act::Answer("p1", Approved)][..], &[PROPOSE, Act::Answer("p1", Approved)]] {
        for (made, states, told) in survive(script, "p1") {
            assert_eq!(states, [Pending, Approved, Executed]);
            // It had not left yet when the daemon died: whether it had is not known, and it is not run again.
            assert!(made == 1 || told == [Some(Code::Intr)], "{made} {told:?}");
        }
    }
}

#[test]
fn a_refused_call_is_never_made() {
    let script = [ASK, Act::Answer("p1", Rejected), ASK];
    for (made, states, told) in survive(&script, "p1") {
        assert_eq!((made, &states[..]), (0, &[Pending, Rejected][..]));
        assert!(told.iter().all(|code| *code == Some(Code::Rejected)), "{told:?}");
    }
    // Nor is it asked for again.
    for (.., told) in survive(&script, "p2") {
        assert_eq!(told.len(), 2);
    }
    assert!(survive(&script, "p2").iter().all(|(_, states, _)| states.is_empty()));
}

#[test]
fn a_question_that_nobody_answers_ends_once() {
    for (made, states, told) in survive(&[ASK, Act::After(24 * 3600), Act::Answer("p1", Approved)], "p1") {
        assert_eq!((made, &states[..], &told[..]), (0, &[Pending, Expired][..], &[Some(Code::Rejected)][..]));
    }
}

#[test]
fn a_held_call_is_made_once_when_its_window_ends_and_never_after_a_veto() {
    for (made, states, told) in survive(&[HOLD, Act::After(15 * 60), Act::After(1)], "p1") {
        assert_eq!(states, [Pending, Executed]);
        assert!(made == 1 || told == [Some(Code::Intr)], "{made} {told:?}");
    }
    let vetoed = [HOLD, Act::After(60), Act::Answer("p1", ProposalState::Vetoed), Act::After(15 * 60)];
    for (made, states, _) in survive(&vetoed, "p1") {
        assert_eq!((made, &states[..]), (0, &[Pending, ProposalState::Vetoed][..]));
    }
}

#[test]
fn a_denial_that_was_lifted_lets_one_call_through_wherever_the_daemon_dies() {
    let lifted = [DENIED, Act::Answer("p1", Approved), DENIED, Act::Done, DENIED, Act::Answer("p1", Approved)];
    for (made, states, told) in survive(&lifted, "p1") {
        assert_eq!(states, [ProposalState::Denied, Approved, Executed]);
        assert!(made == 1 || told[1] == Some(Code::Intr), "{made} {told:?}");
        assert_eq!((told[0], told[2], told.len()), (Some(Code::Perm), Some(Code::Perm), 3), "{told:?}");
    }
    let dismissed = [DENIED, Act::Answer("p1", Rejected), DENIED];
    for (made, states, told) in survive(&dismissed, "p1") {
        assert_eq!((made, &states[..]), (0, &[ProposalState::Denied, Rejected][..]));
        assert_eq!(told, [Some(Code::Perm); 2]);
    }
    assert!(survive(&dismissed, "p2").iter().all(|(_, states, _)| states.is_empty()), "nor shown again");
    let late = [DENIED, Act::Answer("p1", Approved), Act::Unnoticed(24 * 3600 + 1), DENIED, Act::After(1)];
    for (made, states, _) in survive(&late, "p1") {
        assert_eq!((made, &states[..]), (0, &[ProposalState::Denied, Approved, Expired][..]));
    }
    let forgotten = [DENIED, Act::After(24 * 3600), Act::Answer("p1", Approved), DENIED];
    for (made, states, _) in survive(&forgotten, "p1") {
        assert_eq!((made, &states[..]), (0, &[ProposalState::Denied, Expired][..]));
    }
}

#[test]
fn an_approval_of_a_stopped_process_is_used_once() {
    let script = [
        ASK,
        Act::Signal(Signal::Stop),
        Act::Answer("p1", Approved),
        Act::Answer("p1", Approved),
        Act::Signal(Signal::Cont),
        Act::Signal(Signal::Cont),
    ];
    for (made, states, told) in survive(&script, "p1") {
        assert_eq!(states, [Pending, Approved, Executed]);
        assert!(made == 1 || told == [Some(Code::Intr)], "{made} {told:?}");
    }
}

#[test]
fn an_approval_is_over_where_its_call_was_not_begun_before_term_or_the_end() {
    for yes in [Approved, STANDING] {
        for (end, told_then) in [(Signal::Term, &[Some(Code::Intr)][..]), (Signal::Kill, &[])] {
            let script = [ASK, Act::Signal(Signal::Stop), Act::Answer("p1", yes), Act::Signal(end)];
            for (made, states, told) in survive(&script, "p1") {
                assert_eq!((made, &states[..], &told[..]), (0, &[Pending, yes, Expired][..], told_then), "{end:?}");
            }
        }
    }
}

const AGAIN: Act = Act::Reply(&[("FS_WRITE", r#"{"path":"asks/a","content":"again"}"#)]);
const OTHER: Act = Act::Reply(&[("FS_WRITE", r#"{"path":"asks/b","content":""}"#)]);
const STANDING: ProposalState = ProposalState::Standing;

#[test]
fn an_approval_for_the_process_stands_wherever_the_daemon_dies_and_covers_nothing_else() {
    let script = [ASK, Act::Answer("p1", STANDING), Act::Done, AGAIN, Act::Done, OTHER];
    for (made, states, told) in survive(&script, "p1") {
        assert_eq!(states, [Pending, STANDING, Executed]);
        // Two calls on the same file, the second without a question; the other file is not written.
        assert!(made == 2 && told == [None, None], "{made} {told:?}");
    }
    // The other file is asked about, as the second question there ever was.
    for (.., told) in survive(&script, "p2") {
        assert_eq!(told.len(), 2, "{told:?}");
    }
    assert!(survive(&script, "p2").iter().all(|(_, states, _)| states[..] == [Pending]));
}

#[test]
fn an_approval_for_the_process_ends_with_a_no_with_the_policy_and_with_the_process() {
    for (end, last) in [
        (Act::Answer("p1", Rejected), Rejected),
        (Act::Answer("p1", ProposalState::Vetoed), ProposalState::Vetoed),
        (Act::Policy("# changed\n"), Expired),
    ] {
        let script = [ASK, Act::Answer("p1", STANDING), Act::Done, end, AGAIN];
        for (_, states, _) in survive(&script, "p1") {
            assert!(states[..3] == [Pending, STANDING, Executed] && states.last() == Some(&last), "{states:?}");
        }
        let again = survive(&script, "p2");
        assert!(again.iter().all(|(_, states, _)| states[..] == [Pending]), "it is asked about again: {again:?}");
    }
    // Killed while it stands: nothing of it is left for anybody.
    let mut world = World::new();
    for act in [ASK, Act::Answer("p1", STANDING), Act::Done] {
        world.act(&act);
    }
    assert_eq!(world.kernel.detail(AGENT).unwrap().standing[0].covers, "FS_WRITE asks/a");
    let said = |world: &mut World, path: &str| {
        let args = format!(r#"{{"path":"{path}","content":""}}"#);
        let said = world.kernel.explain(AGENT, "FS_WRITE", &args).unwrap();
        format!("{} {}", said.verdict.as_str(), said.rule)
    };
    let rule = "role assistant: fs[1] asks/**";
    assert_eq!(said(&mut world, "asks/a"), format!("allow standing approval p1: {rule}"));
    assert_eq!(said(&mut world, "asks/b"), format!("ask {rule}"));
    let fork = world.kernel.fork_of(AGENT).unwrap();
    assert!(world.offer(Pid(3), Body::Spawned(Box::new(fork))));
    assert!(world.kernel.detail(Pid(3)).unwrap().standing.is_empty(), "one like it has none of it");
    world.act(&Act::Signal(Signal::Kill));
    assert_eq!(world.kernel.proposal("p1"), None);
    assert!(world.kernel.standing_approvals().is_empty());
}

#[test]
fn a_yes_that_does_not_hold_any_more_is_over_and_stands_no_more() {
    let signal = Act::Signal;
    let day = 24 * 3600 + 1;
    for yes in [Approved, STANDING] {
        let late = [ASK, Act::Unnoticed(day), Act::Answer("p1", yes), ASK];
        let (stop, cont) = (signal(Signal::Stop), signal(Signal::Cont));
        let stopped = [ASK, stop, Act::Answer("p1", yes), Act::After(day), cont, ASK];
        for script in [&late[..], &stopped] {
            // With a crash in between the time is noticed first, and the question is over before it is answered.
            let mut world = World::new();
            script.iter().for_each(|act| world.act(act));
            assert_eq!((world.done.len(), &world.states("p1")[..]), (0, &[Pending, yes, Expired][..]));
            assert_eq!(world.told(), [Some(Code::Rejected)]);
            assert_eq!(world.states("p2"), [Pending], "it is asked about again");
            assert!(survive(script, "p1").iter().all(|(made, ..)| *made == 0));
        }
    }
}

#[test]
fn a_no_also_ends_a_yes_that_stands_and_was_not_used_yet() {
    let (stop, cont) = (Act::Signal(Signal::Stop), Act::Signal(Signal::Cont));
    let script = [ASK, stop, Act::Answer("p1", STANDING), Act::Answer("p1", Rejected), cont];
    for (made, states, told) in survive(&script, "p1") {
        assert_eq!((made, &states[..]), (0, &[Pending, STANDING, Rejected][..]));
        assert_eq!(told, [Some(Code::Rejected)]);
    }
}

#[test]
fn a_call_that_is_made_again_after_a_crash_is_bound_to_the_files_that_were_shown() {
    let mut world = World::new();
    world.act(&ASK);
    let before = world.done.clone();
    world.act(&Act::Answer("p1", STANDING));
    world.crash(false, &before);
    assert_eq!(world.bound, [Some("p1".to_owned()), Some("p1".to_owned())]);
}

#[test]
fn what_would_be_asked_all_the_same_cannot_be_approved_for_the_process() {
    let mut world = World::new();
    world.act(&PROPOSE);
    let yes = Body::Proposal { id: "p1".into(), state: STANDING, proposal: None, why: None };
    let error = world.kernel.check(AGENT, &yes).unwrap_err();
    assert!(error.code == Code::Perm && error.message.contains("cannot stand"), "{error}");
    world.act(&Act::Answer("p1", Approved));
    assert_eq!(world.states("p1"), [Pending, Approved, Executed]);
}

#[test]
fn a_question_of_an_older_policy_is_over_and_says_why() {
    for script in [
        &[ASK, Act::Policy("# changed\n"), Act::Answer("p1", Approved)][..],
        &[HOLD, Act::Policy("# changed\n"), Act::After(3600)],
    ] {
        for (made, states, told) in survive(script, "p1") {
            assert_eq!((made, &states[..], &told[..]), (0, &[Pending, Expired][..], &[Some(Code::Rejected)][..]));
        }
        let mut world = World::new();
        script.iter().for_each(|act| world.act(act));
        let why = world.journal.iter().find_map(|entry| match &entry.body {
            Body::Proposal { state: Expired, why, .. } => why.clone(),
            _ => None,
        });
        assert_eq!(why.as_deref(), Some("the policy has changed since this was asked"));
    }
    // One that changes nothing but a model's name asks nobody anew.
    let mut world = World::new();
    world.act(&ASK);
    world.act(&Act::Policy(""));
    assert_eq!(world.states("p1"), [Pending]);
}
