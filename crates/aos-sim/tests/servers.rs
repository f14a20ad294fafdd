//! Limits, breakers and fallbacks in virtual time, seen from the servers' side.

use aos_sim::servers::{self, Served};

const SEEDS: u64 = 32;

#[test]
fn servers_that_fail_are_left_alone_and_those_that_serve_are_paid() {
    let runs: Vec<Served> = std::thread::scope(|scope| {
        let half = |odd: u64| (0..SEEDS / 2).map(move |nth| run(2 * nth + odd)).collect::<Vec<Served>>();
        let other = scope.spawn(move || half(1));
        let mut runs = half(0);
        runs.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        runs
    });
    let sum = |of: fn(&Served) -> u64| runs.iter().map(of).sum::<u64>();
    let (requests, full, crashes) = (sum(|run| run.requests), sum(|run| run.full), sum(|run| run.crashes));
    let (opened, probes) = (sum(|run| run.opened), sum(|run| run.probes));
    let (stood_in, walls) = (sum(|run| run.stood_in), sum(|run| run.walls));
    println!(
        "{requests} requests, {full} reached a limit, {stood_in} went to who stands in, {opened} breakers opened, \
         {probes} were tried, {walls} quotas used up, {crashes} crashes"
    );
    // What is rare must happen too: the floors are half of what was measured.
    let much = requests >= 9_000 && full >= 7_000 && crashes >= 90;
    assert!(much && stood_in >= 900 && opened >= 300 && probes >= 350 && walls >= 25);
}

fn run(seed: u64) -> Served {
    servers::run(seed).unwrap_or_else(|what| panic!("{what}"))
}
