//! Runs seeds: `sim [--seeds A..B] [--steps N] [--threads N] [--everywhere yes]`. Prints each that fails with its last
//! entries. With `--everywhere yes` each world is run once for each place where the machine may stop, and stops there.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use aos_sim::Simulation;

fn main() -> ExitCode {
    let mut seeds = 0..1000;
    let mut steps = None;
    let mut threads = 2;
    let mut everywhere = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let understood = match flag.as_str() {
            "--seeds" => range(&value).map(|range| seeds = range),
            "--steps" => value.parse().ok().map(|number: u64| steps = Some(number)),
            "--threads" => value.parse().ok().map(|number: u64| threads = number.max(1)),
            "--everywhere" => ["yes", "no"].contains(&&*value).then(|| everywhere = value == "yes"),
            _ => None,
        };
        if understood.is_none() {
            eprintln!("error: `{flag} {value}` is not understood\n  try: sim --seeds 0..1000 --steps 160 --threads 2");
            return ExitCode::from(2);
        }
    }
    let next = AtomicU64::new(seeds.start);
    let (failed, runs, entries) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = if everywhere {
                        Simulation::stopped_everywhere(seed, steps.unwrap_or(20)).map(|runs| (runs, 0))
                    } else {
                        let simulation = Simulation::new(seed);
                        let simulation = if let Some(steps) = steps { simulation.steps(steps) } else { simulation };
                        simulation.run().map(|report| (1, report.entries))
                    };
                    match outcome {
                        Ok((ran, applied)) => {
                            runs.fetch_add(ran, Ordering::Relaxed);
                            entries.fetch_add(applied, Ordering::Relaxed);
                        }
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("{failure}\n");
                        }
                    }
                }
            });
        }
    });
    let (failed, runs, entries) = (failed.into_inner(), runs.into_inner(), entries.into_inner());
    let seeds = seeds.end.saturating_sub(seeds.start);
    println!("{seeds} seeds, {runs} runs that held, {entries} entries, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `A..B`, or one seed.
fn range(text: &str) -> Option<std::ops::Range<u64>> {
    match text.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => text.parse().ok().map(|seed: u64| seed..seed + 1),
    }
}
