//! How long detection takes: `cargo bench -p aos-personal`. Prints microseconds per KiB, the median of many runs.

use std::hint::black_box;
use std::time::Instant;

use aos_personal::{Detector, Tokens};

/// Runs over each text.
const RUNS: usize = 200;

/// The texts of the corpus, one after the other.
fn corpus() -> String {
    let lines = include_str!("../corpus.jsonl").lines();
    let texts = lines.map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("the corpus is JSON lines");
        line["text"].as_str().expect("each has a text").to_owned()
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn main() {
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let prose = "The quick brown fox jumps over the lazy dog, and nobody is called or written to. ".repeat(400);
    let log =
        "2026-11-22T06:30:41.123Z INFO [worker-12] GET /item/4839201745 200 5321 0.182s trace=7f3b2c1d\n".repeat(340);
    let code = "    let index = usize::from(table[at + 1] & 0x7f) * 16 + 3; // see RFC 5322\n".repeat(430);
    let texts = [("corpus", corpus()), ("prose", prose), ("log lines", log), ("code", code)];
    let adverse = [
        ("digits", "1".repeat(1 << 15)),
        ("pairs", "1 ".repeat(1 << 14)),
        ("at signs", "a@".repeat(1 << 14)),
        ("brackets", "a(at)".repeat(1 << 13)),
    ];
    let detector = Detector::all();
    println!("{:<12} {:>8} {:>14} {:>14}", "text", "KiB", "find us/KiB", "replace us/KiB");
    for (name, text) in texts.into_iter().chain(adverse) {
        let kib = text.len() as f64 / 1024.0;
        let time = |work: &dyn Fn()| {
            let mut times: Vec<f64> = (0..if quick { 1 } else { RUNS })
                .map(|_| {
                    let started = Instant::now();
                    work();
                    started.elapsed().as_secs_f64() * 1e6 / kib
                })
                .collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let find = time(&|| drop(black_box(detector.find(black_box(&text)).expect("it fits"))));
        let replace = time(&|| drop(black_box(Tokens::default().replace(&detector, "", black_box(&text)))));
        println!("{name:<12} {kib:>8.1} {find:>14.2} {replace:>14.2}");
    }
}
