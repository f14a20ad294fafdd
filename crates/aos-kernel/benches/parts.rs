//! The pure parts on the way of a turn: `cargo bench -p aos-kernel --bench parts`.
//!
//! An entry into JSON and back, a reply into calls, a call's arguments into a system call, a window into messages.
//! (A policy's decision is measured in `aos-policy`, appends in `aos-journal`.)

use std::hint::black_box;
use std::sync::Arc;

use aos_abi::decode::{call_ids, decode};
use aos_abi::entry::{InferenceOutcome, Outcome};
use aos_abi::inference::{Encoding, NativeCall, Reply, Stop, Usage};
use aos_abi::{Body, EffectId, Entry, Lsn, Pid, Syscall, Timestamp};
use aos_context::{Fit, Rendered};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const ARGS: &str =
    r#"{"path":"notes/today.md","content":"Some lines of text, as an agent writes them.\nAnd another."}"#;

fn call(nth: u64) -> NativeCall {
    NativeCall { id: format!("call_{nth}"), name: "FS_WRITE".to_owned(), arguments: ARGS.to_owned() }
}

/// A window of so many turns: an answer with a call, and its result.
fn window(turns: u64) -> Vec<Arc<Entry>> {
    let entry = |lsn: u64, body| {
        Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(1_795_305_600_000), pid: Pid(7), cause: None, body })
    };
    let text = "Write down what happened today.".to_owned();
    let mut entries = vec![entry(1, Body::Input { text, eof: false, from_pid: Pid::INIT, untrusted: false })];
    for turn in 0..turns {
        let lsn = 2 + turn * 2;
        let reply = Reply {
            text: "I write it down.".to_owned(),
            calls: vec![call(turn)],
            stop: Stop::Calls,
            usage: Usage::default(),
            model: "m".to_owned(),
        };
        let effect = EffectId { cause: Lsn(lsn - 1), nth: 0 };
        let outcome = InferenceOutcome::Answered(reply);
        entries.push(entry(lsn, Body::InferenceCompleted { effect, latency_ms: 1, personal: None, outcome }));
        let outcome = Outcome::from(Ok(serde_json::json!({ "bytes": 61 })));
        let (call_id, name) = (format!("call_{turn}"), "FS_WRITE".to_owned());
        entries.push(entry(lsn + 1, Body::Result { call_id, name, effect: None, outcome }));
    }
    entries
}

fn entries(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("entry");
    group.throughput(Throughput::Elements(1));
    let entry = window(1).remove(1);
    let json = serde_json::to_string(&*entry).expect("an entry is JSON");
    group.bench_function("to JSON", |bench| bench.iter(|| serde_json::to_vec(black_box(&*entry))));
    group.bench_function("from JSON", |bench| bench.iter(|| serde_json::from_str::<Entry>(black_box(&json))));
    group.finish();
}

fn replies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    let native = [call(1)];
    group.bench_function("one native call", |bench| {
        bench.iter(|| decode(black_box("So be it."), &native, Encoding::Native, false, &mut call_ids(Lsn(7))))
    });
    let text = format!("So be it.\n[SYS_CALL::FS_WRITE] {ARGS}\n");
    group.bench_function("one call in text form", |bench| {
        bench.iter(|| decode(black_box(&text), &[], Encoding::Text, false, &mut call_ids(Lsn(7))))
    });
    group.bench_function("arguments", |bench| bench.iter(|| Syscall::parse(black_box("FS_WRITE"), black_box(ARGS))));
    group.finish();
}

fn windows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("render");
    for turns in [1, 20, 200] {
        let entries = window(turns);
        group.throughput(Throughput::Elements(entries.len() as u64));
        group.bench_function(format!("{turns} turns"), |bench| {
            bench.iter(|| aos_context::render(black_box(&entries), Encoding::Native))
        });
        // What a turn adds, once all before it was rendered.
        let before = Rendered::default().render(&entries[..entries.len() - 2], Encoding::Native, Fit::unbounded());
        let mut rendered = Some(before);
        group.bench_function(format!("{turns} turns, the last one new"), |bench| {
            bench.iter(|| {
                let before = rendered.take().expect("it is put back");
                rendered = Some(before.render(black_box(&entries), Encoding::Native, Fit::unbounded()));
            })
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = entries, replies, windows
}
criterion_main!(benches);
