//! A thousand worlds, and those that once showed a fault.

use std::sync::atomic::{AtomicU64, Ordering};

use aos_sim::Simulation;

/// Runs seeds on two threads, and fails with the first that fails.
fn run(seeds: &[u64]) {
    let next = AtomicU64::new(0);
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(seed) = usize::try_from(index).ok().and_then(|index| seeds.get(index)) else { return };
        if let Err(failure) = Simulation::new(*seed).run() {
            panic!("{failure}\nreproduce with: cargo run -p aos-sim --bin sim -- --seeds {seed}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
fn a_thousand_seeds_hold() {
    run(&(0..1000).collect::<Vec<u64>>());
}

/// `seeds.txt` holds seeds that once failed, one a line, each with what it showed.
#[test]
fn seeds_that_once_failed_hold() {
    let seeds: Vec<u64> = include_str!("../seeds.txt")
        .lines()
        .filter_map(|line| line.split('#').next())
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    assert!(!seeds.is_empty());
    run(&seeds);
}

#[test]
fn a_seed_reproduces_its_run_exactly() {
    for seed in [3, 77, 512] {
        let (first, second) = (Simulation::new(seed).run(), Simulation::new(seed).run());
        assert_eq!(first, second);
    }
}

/// The worlds are worth something only if much happens in them. The floors are three quarters of what was measured at
/// seventy steps (16 inferences, 19 calls, 8 processes, 1 crash): they notice a world gone quiet, not a small change.
#[test]
fn much_happens_in_a_world() {
    let reports: Vec<_> = (0..40).map(|seed| Simulation::new(seed).run().unwrap()).collect();
    let sum = |of: fn(&aos_sim::Report) -> u64| reports.iter().map(of).sum::<u64>() / 40;
    let (crashes, inferences) = (sum(|report| report.crashes.into()), sum(|report| report.inferences));
    let (calls, processes) = (sum(|report| report.calls), sum(|report| report.processes));
    let much = crashes >= 1 && inferences >= 12 && calls >= 14 && processes >= 6;
    assert!(much, "{crashes} crashes, {inferences} inferences, {calls} calls, {processes} processes in a run");
}
