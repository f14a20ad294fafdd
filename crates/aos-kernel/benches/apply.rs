//! How fast the kernel decides: `cargo bench -p aos-kernel --bench apply`.
//!
//! A turn is one input (an answer with a call) and the six entries that it comes to: the answer, its charge, the call,
//! the verdict, the result and the next inference. Windows grow until the kernel compacts them, as in life. The aim of
//! the whole system, 3,000 turns a second, leaves the kernel a fraction of 333 µs.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;

use aos_abi::entry::{Configured, InferenceOutcome, Purpose};
use aos_abi::inference::{Encoding, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{ModelLimits, ModelSpec};
use aos_abi::process::SpawnSpec;
use aos_abi::{Body, Pid, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::effect::{Effect, Infer};
use aos_kernel::table::NoPages;
use aos_policy::Policy;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Turns over which entries per second are counted.
const COUNTED_TURNS: u32 = 20_000;

/// A kernel with its agents, and the inferences they wait for.
struct World {
    kernel: Kernel<NoPages>,
    asked: VecDeque<Box<Infer>>,
    at: i64,
    entries: u64,
    inputs: u64,
}

fn configured() -> Configured {
    let model = ModelSpec {
        context_window: 16_384,
        max_output: 1024,
        price: None,
        limits: ModelLimits { concurrency: 100_000, rpm: None, tpm: None },
        local: true,
        encoding: Encoding::Native,
        tier: None,
        ..ModelSpec::default()
    };
    Configured {
        models: BTreeMap::from([("m".to_owned(), model)]),
        default_model: "m".to_owned(),
        policy: Policy::default_text().to_owned(),
        usd_per_day: Some(Usd(5_000_000_000)),
        hedge_after_ms: None,
        hooks_url: String::new(),
        ..Configured::default()
    }
}

impl World {
    /// `agents` residents; those with a task wait for their first answer.
    fn new(agents: u64, task: Option<&str>) -> World {
        let mut world = World {
            kernel: Kernel::new(NoPages),
            asked: VecDeque::new(),
            at: 1_795_305_600_000,
            entries: 0,
            inputs: 0,
        };
        world.apply(Pid::SYSTEM, Body::Configured(Box::new(configured())));
        world.apply(
            Pid::SYSTEM,
            Body::Booted { version: "bench".to_owned(), configured: None, faulted: Vec::new(), last_pid: None },
        );
        for _ in 0..agents {
            world.spawn(task);
        }
        world
    }

    fn spawn(&mut self, task: Option<&str>) {
        let pid = self.kernel.next_pid();
        let role = "You go on and on.";
        let spec = SpawnSpec { task: task.map(str::to_owned), ..SpawnSpec::resident(pid, role, "m") };
        self.apply(pid, Body::Spawned(Box::new(spec)));
    }

    fn apply(&mut self, pid: Pid, body: Body) {
        self.at += 1;
        let applied = self.kernel.apply(Timestamp(self.at), pid, body);
        self.entries += applied.entries.len() as u64;
        self.inputs += 1;
        for effect in applied.effects {
            if let Effect::Infer(infer) = effect {
                self.asked.push_back(infer);
            }
        }
    }

    /// Answers the inference that waits longest.
    fn turn(&mut self) {
        let infer = self.asked.pop_front().expect("every agent goes on");
        let turn = infer.purpose == Purpose::Turn;
        let call = NativeCall {
            id: format!("call_{}", self.inputs),
            name: "SYS_WRITE_STDOUT".to_owned(),
            // Who makes the same call again and again is stopped.
            arguments: format!(r#"{{"text":"going on, {}"}}"#, self.inputs),
        };
        let reply = Reply {
            text: if turn { String::new() } else { "It went on.".to_owned() },
            calls: if turn { vec![call] } else { Vec::new() },
            stop: if turn { Stop::Calls } else { Stop::End },
            usage: Usage { input_tokens: 3000, output_tokens: 10, estimated: true, ..Usage::default() },
            model: "m".to_owned(),
        };
        let outcome = InferenceOutcome::Answered(reply);
        self.apply(infer.pid, Body::InferenceCompleted { effect: infer.id, latency_ms: 1, personal: None, outcome });
    }
}

fn turns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("turn");
    group.throughput(Throughput::Elements(1));
    for agents in [1, 1000] {
        let mut world = World::new(agents, Some("Go on."));
        group.bench_function(format!("{agents} agents"), |bench| bench.iter(|| world.turn()));
        println!("{:.2} entries per input", world.entries as f64 / world.inputs as f64);
        let (began, before) = (std::time::Instant::now(), world.entries);
        (0..COUNTED_TURNS).for_each(|_| world.turn());
        let per_s = (world.entries - before) as f64 / began.elapsed().as_secs_f64();
        println!("{per_s:.0} entries applied per second");
    }
    group.finish();
}

/// Births.
fn spawns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("spawn");
    group.throughput(Throughput::Elements(1));
    let mut world = World::new(0, None);
    group.bench_function("a resident without a task", |bench| bench.iter(|| world.spawn(None)));
    group.finish();
}

/// What a checkpoint takes from the loop: the pages of every process that changed.
fn checkpoints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkpoint");
    for turns_each in [1, 50] {
        let mut world = World::new(1000, Some("Go on."));
        for _ in 0..1000 * turns_each {
            world.turn();
        }
        group.bench_function(format!("1000 changed processes, {turns_each} turns old"), |bench| {
            bench.iter_custom(|times| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..times {
                    for _ in 0..1000 {
                        world.turn();
                    }
                    let began = std::time::Instant::now();
                    black_box(world.kernel.checkpoint());
                    spent += began.elapsed();
                }
                spent
            });
        });
        let globals = world.kernel.checkpoint().globals.len();
        println!("{globals} bytes of globals after {} inputs", world.inputs);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = turns, spawns, checkpoints
}
criterion_main!(benches);
