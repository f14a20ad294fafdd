//! How long a decision takes with few and many rules: `cargo bench -p aos-policy`.
//!
//! Prints the median and the 99th percentile of single decisions in nanoseconds. The aim is under 2 µs at 1,000 rules. The
//! last calls of each size are those of a process that has read untrusted content: a rule about that asks, unless everything
//! that steers the call stands in what people wrote or in what a clean source named, which has to be looked for.

use std::hint::black_box;
use std::time::Instant;

use aos_abi::entry::Verdict;
use aos_abi::{Pid, Syscall};
use aos_policy::{Given, Grants, Labels, Named, Policy, Subject};
use serde_json::json;

/// Decisions that are timed of each kind.
const TIMES: usize = 20_000;
/// The most that a process keeps of what people wrote to it and of what clean sources named, in bytes each.
const KEPT_BYTES: usize = 4096;

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
    text += "      - {to: 'send.com', allow: ['POST /**']}\n      - {to: 'bare.com', allow: ['GET /**']}\n";
    text += "labels: [{when: untrusted, calls: [EXEC_CMD, NET_FETCH, NET_SEND], verdict: ask}]\n";
    Policy::parse(&text).expect("the file is well formed")
}

/// As many requests of people as a process keeps, and the last of them.
fn much_asked(last: &str) -> Vec<String> {
    let request = |at: usize| format!("Read reports/{at}.md, then `notes-{at}.txt`, and say what is new in them.");
    let mut kept: Vec<String> = (0..KEPT_BYTES / request(10).len()).map(request).collect();
    kept.push(last.to_owned());
    kept
}

/// As many names from files as a process keeps.
fn much_named() -> Vec<Named> {
    let read = Syscall::parse("FS_READ", r#"{"path":"links.md"}"#).expect("the arguments fit");
    let mut links: Vec<String> = (0..KEPT_BYTES / 32).map(|at| format!("https://site{at}.example/page")).collect();
    links.push("https://send.com/hook".to_owned());
    Named::of(&read, &json!({ "content": links.join("\n") })).into_iter().collect()
}

fn main() {
    let call = |name: &str, args: &str| Syscall::parse(name, args).expect("the arguments fit");
    let by_host = || call("NET_FETCH", r#"{"url":"https://api.host2.com/v1/a?q=1"}"#);
    let bare_host = || call("NET_FETCH", r#"{"url":"https://bare.com/"}"#);
    let send = || call("NET_SEND", r#"{"url":"https://send.com/hook","method":"POST","body":"all is done"}"#);
    let chain = [Grants::parse(&["FS_READ **", "NET_FETCH **", "NET_SEND **"]).expect("they parse")];
    let asked = ["Fetch https://api.host2.com/v1/a?q=1 and tell me what it says.".to_owned()];
    let (much, named) = (much_asked(&asked[0]), much_named());
    let other = much_asked("Tell me what it says.");
    let told = much_asked("Post `all is done` to the address in links.md.");
    let nothing = (Labels::NONE, Given::default(), Verdict::Allow);
    let untrusted = |texts, named, verdict| (Labels::WEB, Given { texts, named, ..Given::default() }, verdict);
    println!("{:>7}  {:<34} {:>10} {:>10}", "rules", "call", "median ns", "p99 ns");
    for rules in [10, 1_000, 10_000] {
        let started = Instant::now();
        let policy = policy(rules);
        let loaded = started.elapsed();
        for (what, call, (labels, given, verdict)) in [
            ("FS_READ, a folder of its own", call("FS_READ", r#"{"path":"p2/a/b.txt"}"#), nothing),
            ("FS_READ, a shared folder", call("FS_READ", r#"{"path":"shared/p3/a/b.txt"}"#), nothing),
            (
                "FS_READ, no rule",
                call("FS_READ", r#"{"path":"nowhere/a"}"#),
                (Labels::NONE, Given::default(), Verdict::Deny),
            ),
            ("NET_FETCH, by host", by_host(), nothing),
            ("NET_FETCH, by path", call("NET_FETCH", r#"{"url":"https://one.com/r2/a"}"#), nothing),
            ("untrusted: asked for", by_host(), untrusted(&asked, &[], Verdict::Allow)),
            ("untrusted: asked for among 4 KiB", by_host(), untrusted(&much, &named, Verdict::Allow)),
            ("untrusted: not asked for in 4 KiB", by_host(), untrusted(&other, &named, Verdict::Ask)),
            ("untrusted: the same, a bare host", bare_host(), untrusted(&other, &named, Verdict::Ask)),
            ("untrusted: sent to where a file says", send(), untrusted(&told, &named, Verdict::Allow)),
        ] {
            let subject = Subject { pid: Pid(7), role: "", chain: &chain, labels, given, reaches: None };
            assert_eq!(policy.explain(&subject, &call).verdict, verdict, "{what}");
            let mut times: Vec<u128> = (0..TIMES)
                .map(|_| {
                    let started = Instant::now();
                    black_box(policy.explain(black_box(&subject), black_box(&call)).verdict);
                    started.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            println!("{rules:>7}  {what:<34} {:>10} {:>10}", times[times.len() / 2], times[times.len() * 99 / 100]);
        }
        println!("{rules:>7}  read and compiled in {} ms", loaded.as_millis());
    }
}
