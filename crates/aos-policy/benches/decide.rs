//! How long a decision takes with few and many rules: `cargo bench -p aos-policy`.
//!
//! Prints the median and the 99th percentile of single decisions in nanoseconds. The aim is under 2 µs at 1,000 rules.

use std::hint::black_box;
use std::time::Instant;

use aos_abi::{Pid, Syscall};
use aos_policy::{Given, Grants, Labels, Policy, Subject};

/// A third each of file rules (their folders differ, or all stand in one folder), hosts, and paths of one host.
fn policy(rules: usize) -> Policy {
    let mut text = "version: 1\ndefault_role: r\nroles:\n  r:\n    fs:\n".to_owned();
    for at in 0..rules.div_ceil(3) {
        let folder = if at % 2 == 0 { format!("p{at}") } else { format!("shared/p{at}") };
        text += &format!("      - {{path: '{folder}/**', ops: [read, write], undo: 15m}}\n");
    }
    text += "    net:\n";
    for at in 0..rules.div_ceil(3) {
        text += &format!("      - {{to: 'api.host{at}.com', allow: ['GET /v1/**']}}\n");
        text += &format!("      - {{to: 'one.com', allow: ['GET /r{at}/*']}}\n");
    }
    text += "labels: [{when: untrusted, calls: [EXEC_CMD], verdict: ask}]\n";
    Policy::parse(&text).expect("the file is well formed")
}

fn main() {
    let call = |name: &str, args: &str| Syscall::parse(name, args).expect("the arguments fit");
    let chain = [Grants::parse(&["FS_READ **", "NET_FETCH **"]).expect("they parse")];
    println!("{:>7}  {:<28} {:>10} {:>10}", "rules", "call", "median ns", "p99 ns");
    for rules in [10, 1_000, 10_000] {
        let started = Instant::now();
        let policy = policy(rules);
        let loaded = started.elapsed();
        for (what, call) in [
            ("FS_READ, a folder of its own", call("FS_READ", r#"{"path":"p2/a/b.txt"}"#)),
            ("FS_READ, a shared folder", call("FS_READ", r#"{"path":"shared/p3/a/b.txt"}"#)),
            ("FS_READ, no rule", call("FS_READ", r#"{"path":"nowhere/a"}"#)),
            ("NET_FETCH, by host", call("NET_FETCH", r#"{"url":"https://api.host2.com/v1/a?q=1"}"#)),
            ("NET_FETCH, by path", call("NET_FETCH", r#"{"url":"https://one.com/r2/a"}"#)),
        ] {
            let subject =
                Subject { pid: Pid(7), role: "", chain: &chain, labels: Labels::NONE, given: Given::default() };
            let mut times: Vec<u128> = (0..20_000)
                .map(|_| {
                    let started = Instant::now();
                    black_box(policy.explain(black_box(&subject), black_box(&call)).verdict);
                    started.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            println!("{rules:>7}  {what:<28} {:>10} {:>10}", times[times.len() / 2], times[times.len() * 99 / 100]);
        }
        println!("{rules:>7}  read and compiled in {} ms", loaded.as_millis());
    }
}
