//! What the router costs and does, beside always asking the smallest or the best model: the table in docs/models.md.
//!
//! A hundred tasks of known difficulty, and models of known ability. A model that is able does a step with each reply and
//! then answers. One that is not writes calls that nobody understands, or, in every fifth task, answers something that is
//! wrong and looks right, which no router can see. Who has not answered after twelve replies has failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aos_abi::entry::{Configured, InferenceOutcome};
use aos_abi::inference::{Failure, FailureKind, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelSpec, Price, TIERS};
use aos_abi::process::{Mode, SpawnSpec};
use aos_abi::{Body, Pid, Signal, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::effect::{Effect, Infer};
use aos_kernel::table::NoPages;

use crate::rig::POLICY;

/// Of twenty tasks in a row: the tier that each needs.
const NEEDS: [usize; 20] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4];
/// US dollars per million tokens, in and out, of each tier.
const PRICES: [(f64, f64); 5] = [(0.05, 0.2), (0.1, 0.4), (0.5, 2.0), (2.0, 8.0), (5.0, 20.0)];
const REPLIES_MAX: u32 = 12;

/// What a hundred tasks came to.
#[derive(Debug, Default)]
struct Score {
    done: u32,
    replies: u32,
    cost: u64,
}

/// One task: what it needs, in how many steps, and whether who is not able answers all the same.
#[derive(Clone, Copy)]
struct Task {
    needs: usize,
    steps: u32,
    bluffs: bool,
}

fn task(nth: usize) -> Task {
    // Seven and twenty have no common part, so that difficulty, length and manner are mixed.
    Task { needs: NEEDS[nth * 7 % 20], steps: 2 + (nth as u32) % 4, bluffs: nth % 5 == 4 }
}

fn kernel() -> Kernel<NoPages> {
    let usd = |dollars: f64| Usd::from_dollars(dollars).unwrap();
    let models = TIERS.iter().zip(PRICES).map(|(tier, (input, output))| {
        let price = Price { input: usd(input), output: usd(output), ..Price::default() };
        let spec = ModelSpec {
            context_window: 32_000,
            max_output: 1000,
            price: Some(price),
            tier: Some((*tier).to_owned()),
            ..ModelSpec::default()
        };
        // Named apart from their tiers, so that a name is a name.
        (format!("the-{tier}"), spec)
    });
    let config = Configured {
        models: models.collect::<BTreeMap<_, _>>(),
        default_model: "auto".into(),
        policy: POLICY.into(),
        ..Configured::default()
    };
    let mut kernel = Kernel::new(NoPages);
    let _ = kernel.apply(
        Timestamp(0),
        Pid::SYSTEM,
        Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None },
    );
    let _ = kernel.apply(Timestamp(0), Pid::SYSTEM, Body::Configured(Box::new(config)));
    kernel
}

fn spawn(pid: Pid, model: &str) -> Body {
    let task = Some("a task".into());
    Body::Spawned(Box::new(SpawnSpec { task, mode: Mode::OneShot, ..SpawnSpec::resident(pid, "role", model) }))
}

/// What the model that is asked makes of it.
fn reply(infer: &Infer, task: Task, replies: u32, steps: &mut u32) -> Reply {
    let able = TIERS.iter().position(|tier| infer.model == format!("the-{tier}")).unwrap() >= task.needs;
    let call = |name: &str, arguments: String| vec![NativeCall { id: String::new(), name: name.into(), arguments }];
    let (text, calls) = match (able, task.bluffs) {
        (true, _) if *steps == task.steps => ("right".to_owned(), Vec::new()),
        (true, _) => {
            *steps += 1;
            (String::new(), call("SYS_WRITE_STDOUT", format!("{{\"text\":\"step {steps}\"}}")))
        }
        (false, true) => ("wrong".to_owned(), Vec::new()),
        (false, false) => (String::new(), call("DO_IT", format!("{{\"try\":{replies}}}"))),
    };
    let stop = if calls.is_empty() { Stop::End } else { Stop::Calls };
    let usage = Usage { input_tokens: 2000, output_tokens: 200, ..Usage::default() };
    Reply { text, calls, stop, usage, model: infer.model.clone() }
}

fn asked(effects: &[Effect]) -> Option<&Infer> {
    effects.iter().find_map(|effect| match effect {
        Effect::Infer(infer) => Some(&**infer),
        _ => None,
    })
}

/// Ends a process; what it had asked comes back, so that its slot is free.
fn give_up(kernel: &mut Kernel<NoPages>, now: i64, pid: Pid, effects: &[Effect]) {
    let _ = kernel.apply(Timestamp(now), pid, Body::Signal { signal: Signal::Kill, from_pid: Pid::INIT, tree: false });
    let Some(infer) = asked(effects) else { return };
    let failure = Failure {
        kind: FailureKind::Cancelled,
        message: "cancelled".into(),
        hint: None,
        retry_after_ms: None,
        // It was never sent.
        usage: Some(Usage::default()),
        unreachable: false,
    };
    let outcome = InferenceOutcome::Failed { failure };
    let body = Body::InferenceCompleted { effect: infer.id, latency_ms: 1, personal: None, outcome };
    let _ = kernel.apply(Timestamp(now), pid, body);
}

fn run(model: &str) -> Score {
    let mut kernel = kernel();
    let mut score = Score::default();
    let mut now = 0;
    for nth in 0..100 {
        let task = task(nth);
        let pid = kernel.next_pid();
        let mut applied = kernel.apply(Timestamp(now), pid, spawn(pid, model));
        let (mut replies, mut steps) = (0, 0);
        while let Some(infer) = asked(&applied.effects) {
            replies += 1;
            now += 1000;
            let effect = infer.id;
            let reply = reply(infer, task, replies, &mut steps);
            let outcome = InferenceOutcome::Answered(reply);
            let body = Body::InferenceCompleted { effect, latency_ms: 1000, personal: None, outcome };
            applied = kernel.apply(Timestamp(now), pid, body);
            if replies == REPLIES_MAX {
                give_up(&mut kernel, now, pid, &applied.effects);
                break;
            }
        }
        let view = kernel.view(pid).unwrap();
        score.done += u32::from(view.result == Some("right".into()));
        score.replies += replies;
        score.cost += view.usage.cost_usd.0;
    }
    score
}

#[test]
fn the_table_of_the_router_is_what_it_does() {
    let [nano, auto, frontier] = ["the-nano", "auto", "the-frontier"].map(run);
    let mut table = String::from("| | done of 100 | replies | cost |\n|---|---|---|---|\n");
    for (name, score) in [("always the smallest", &nano), ("the router", &auto), ("always the best", &frontier)] {
        let _ = writeln!(table, "| {name} | {} | {} | ${:.4} |", score.done, score.replies, score.cost as f64 / 1e9);
    }
    assert!(auto.done > nano.done && auto.cost < frontier.cost / 2, "{table}");
    let page = include_str!("../../../../docs/models.md");
    assert!(page.contains(&table), "docs/models.md should say:\n{table}");
}
