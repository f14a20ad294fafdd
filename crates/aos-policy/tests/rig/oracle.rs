//! A reference evaluator: the meaning of a policy told as simply as possible, with none of the crate's matching code.
//!
//! A policy is a [`Model`]; it is written out as YAML for the crate and judged here rule by rule. What a call reaches
//! below a folder is told by enumeration: a rule covers a tree when it matches every sample below it, and touches it
//! when it matches some sample.

use aos_abi::Syscall;
use aos_abi::entry::Verdict;
use proptest::prelude::*;

/// A rule about files, memory, requests or signals.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) pattern: String,
    pub(crate) ops: Vec<&'static str>,
    pub(crate) verdict: Verdict,
    pub(crate) redact: bool,
}

/// A policy of one role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) fs: Vec<Rule>,
    pub(crate) memory: Vec<Rule>,
    pub(crate) net: Vec<Rule>,
    /// Of processes without names that are below nobody.
    pub(crate) ipc: Vec<Rule>,
    /// Verdicts on `MEM_READ`, `NET_FETCH`, `FS_DELETE` and `KILL` while the window is untrusted.
    pub(crate) untrusted: Vec<Verdict>,
    /// Grants, nearest first: `(call, pattern)`.
    pub(crate) chain: Vec<Vec<(&'static str, String)>>,
}

pub(crate) const LABELED: [&str; 4] = ["MEM_READ", "NET_FETCH", "FS_DELETE", "KILL"];

impl Model {
    pub(crate) fn yaml(&self) -> String {
        let mut text = "version: 1\ndefault_role: r\nroles:\n  r:\n    calls: [ASK_USER]\n".to_owned();
        let section = |name: &str, key: &str, rules: &[Rule]| {
            let mut text = format!("    {name}:\n");
            if rules.is_empty() {
                text = format!("    {name}: []\n");
            }
            for rule in rules {
                text += &format!(
                    "      - {{{key}: '{}', ops: [{}], verdict: {}, redact: {}}}\n",
                    rule.pattern,
                    rule.ops.join(", "),
                    rule.verdict.as_str(),
                    rule.redact
                );
            }
            text
        };
        text += &section("fs", "path", &self.fs);
        text += &section("memory", "namespace", &self.memory);
        text += &section("ipc", "peer", &self.ipc);
        text += if self.net.is_empty() { "    net: []\n" } else { "    net:\n" };
        for rule in &self.net {
            let (host, path) = rule.pattern.split_once('/').expect("a net pattern has a path");
            text += &format!(
                "      - {{to: '{host}', allow: ['GET /{path}'], verdict: {}, redact: {}}}\n",
                rule.verdict.as_str(),
                rule.redact
            );
        }
        text += if self.untrusted.is_empty() { "labels: []\n" } else { "labels:\n" };
        for verdict in &self.untrusted {
            let calls = LABELED.join(", ");
            text += &format!("  - {{when: untrusted, calls: [{calls}], verdict: {}}}\n", verdict.as_str());
        }
        text
    }

    /// The verdict, and whether personal data is replaced.
    pub(crate) fn judge(&self, call: &Syscall, untrusted: bool) -> (Verdict, bool) {
        let mut said = (Verdict::Allow, false);
        for demand in demands(call) {
            let (verdict, redact) = self.by_role(&demand);
            said = (said.0.min(verdict), said.1 | redact);
            for grants in &self.chain {
                let granted = grants.iter().any(|(name, pattern)| {
                    *name == demand.name && demand.values.iter().all(|value| matches(demand.hosts, pattern, value))
                });
                if !granted {
                    said.0 = Verdict::Deny;
                }
            }
        }
        if untrusted && LABELED.contains(&call.name().as_str()) {
            said.0 = self.untrusted.iter().copied().fold(said.0, Verdict::min);
        }
        said
    }

    fn by_role(&self, demand: &Demand) -> (Verdict, bool) {
        let rules = match demand.section {
            "fs" => &self.fs,
            "memory" => &self.memory,
            "ipc" => &self.ipc,
            _ => &self.net,
        };
        let (mut granted, mut verdict, mut redact) = (false, Verdict::Allow, false);
        for rule in rules {
            let grants = rule.ops.contains(&demand.op);
            let all = demand.values.iter().all(|value| matches(demand.hosts, &rule.pattern, value));
            let some = demand.below.iter().any(|value| matches(demand.hosts, &rule.pattern, value));
            if !grants || !(all || (some && rule.verdict < Verdict::Allow)) {
                continue;
            }
            granted |= all && rule.verdict > Verdict::Deny;
            verdict = verdict.min(rule.verdict);
            redact |= rule.redact;
        }
        if granted { (verdict, redact) } else { (Verdict::Deny, redact && verdict == Verdict::Deny) }
    }
}

/// One thing that a call needs.
struct Demand {
    section: &'static str,
    name: &'static str,
    op: &'static str,
    hosts: bool,
    /// Every one must be granted.
    values: Vec<String>,
    /// What stricter rules are held against.
    below: Vec<String>,
}

/// Samples of what lies below a path: two levels of words that occur in patterns, and of one that does not.
fn tree(path: &str) -> Vec<String> {
    let join = |path: &str, word: &str| if path.is_empty() { word.to_owned() } else { format!("{path}/{word}") };
    let words = ["a", "b", "ab", "zz", "aab", "ba"];
    let mut all = vec![path.to_owned()];
    for first in words {
        let one = join(path, first);
        all.extend(words.iter().flat_map(|second| words.map(|third| join(&join(&one, second), third))));
        all.extend(words.map(|second| join(&one, second)));
        all.push(one);
    }
    all
}

fn demands(call: &Syscall) -> Vec<Demand> {
    let demand = |section, op, values: Vec<String>, below| Demand {
        section,
        name: call.name().as_str(),
        op,
        hosts: section == "net",
        values,
        below,
    };
    match call {
        Syscall::FsRead(args) => vec![demand("fs", "read", vec![args.path.clone()], vec![])],
        Syscall::FsSearch(args) => {
            let path = args.path.clone().unwrap_or_default();
            vec![demand("fs", "read", tree(&path), tree(&path))]
        }
        Syscall::FsWrite(args) => vec![demand("fs", "write", vec![args.path.clone()], vec![])],
        Syscall::FsEdit(args) => vec![
            demand("fs", "write", vec![args.path.clone()], vec![]),
            demand("fs", "read", vec![args.path.clone()], vec![]),
        ],
        Syscall::FsDelete(args) => vec![demand("fs", "delete", vec![args.path.clone()], tree(&args.path))],
        Syscall::FsMove(args) => vec![
            demand("fs", "delete", vec![args.from.clone()], tree(&args.from)),
            demand("fs", "read", vec![args.from.clone()], tree(&args.from)),
            demand("fs", "write", vec![args.to.clone()], tree(&args.to)),
        ],
        Syscall::MemRead(args) => {
            vec![demand("memory", "read", vec![args.namespace.clone().unwrap_or("self".into())], vec![])]
        }
        Syscall::MemWrite(args) => {
            vec![demand("memory", "write", vec![args.namespace.clone().unwrap_or("self".into())], vec![])]
        }
        Syscall::NetFetch(args) => {
            vec![demand("net", "get", vec![args.url["https://".len()..].to_owned()], vec![])]
        }
        Syscall::Kill(args) => {
            let pid = args.pid.expect("a call of this file names a pid");
            vec![demand("ipc", "signal", vec![pid.to_string()], vec![])]
        }
        other => panic!("the oracle knows no {other:?}"),
    }
}

fn matches(hosts: bool, pattern: &str, value: &str) -> bool {
    if !hosts {
        return walk(&split(pattern), &split(value));
    }
    let (host, path) = pattern.split_once('/').expect("a net pattern has a path");
    let (name, rest) = value.split_once('/').unwrap_or((value, ""));
    let labels = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    walk(&labels(host), &labels(name)) && walk(&split(path), &split(rest))
}

fn split(text: &str) -> Vec<String> {
    text.split('/').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn walk(pattern: &[String], words: &[String]) -> bool {
    match (pattern.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((p, _)), _) if p == "**" => true,
        (Some((p, rest)), Some((w, more))) => segment(p.as_bytes(), w.as_bytes()) && walk(rest, more),
        _ => false,
    }
}

fn segment(pattern: &[u8], word: &[u8]) -> bool {
    match (pattern.split_first(), word.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => segment(rest, word) || (!word.is_empty() && segment(pattern, &word[1..])),
        (Some((p, rest)), Some((w, more))) => p == w && segment(rest, more),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![
        Verdict::Deny,
        Verdict::Ask,
        Verdict::Hold,
        Verdict::Allow,
        Verdict::Allow,
        Verdict::Allow,
    ])
}

pub(crate) fn path_patterns() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "ab", "*", "a*", "*b"]);
    (prop::collection::vec(segment, 0..=2), prop::bool::weighted(0.6)).prop_map(|(mut segments, rest)| {
        if rest || segments.is_empty() {
            segments.push("**");
        }
        segments.join("/")
    })
}

pub(crate) fn net_patterns() -> impl Strategy<Value = String> {
    let host = prop::sample::select(vec!["a.com", "b.com", "*.a.com", "x.a.com", "**"]);
    (host, path_patterns()).prop_map(|(host, path)| format!("{host}/{path}"))
}

fn pid_patterns() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["1", "2", "12", "1*", "*2", "*", "**"]).prop_map(str::to_owned)
}

fn rules(patterns: impl Strategy<Value = String>, ops: &'static [&'static str]) -> impl Strategy<Value = Vec<Rule>> {
    let rule = (patterns, prop::sample::subsequence(ops, 1..=ops.len()), verdicts(), any::<bool>())
        .prop_map(|(pattern, ops, verdict, redact)| Rule { pattern, ops, verdict, redact });
    prop::collection::vec(rule, 0..5)
}

pub(crate) fn models() -> impl Strategy<Value = Model> {
    let files = ["FS_READ", "FS_SEARCH", "FS_WRITE", "FS_EDIT", "FS_DELETE", "FS_MOVE", "MEM_READ", "MEM_WRITE"];
    let grant = prop_oneof![
        8 => (prop::sample::select(files.to_vec()), path_patterns()).boxed(),
        1 => net_patterns().prop_map(|pattern| ("NET_FETCH", pattern)).boxed(),
        1 => pid_patterns().prop_map(|pattern| ("KILL", pattern)).boxed(),
    ];
    let chain = prop::collection::vec(prop::collection::vec(grant, 0..12), 0..3);
    (
        rules(path_patterns(), &["read", "write", "delete"]),
        rules(path_patterns(), &["read", "write"]),
        rules(net_patterns(), &["get"]),
        rules(pid_patterns(), &["signal"]),
        prop::collection::vec(verdicts(), 0..2),
        chain,
    )
        .prop_map(|(fs, memory, net, ipc, untrusted, chain)| Model { fs, memory, net, ipc, untrusted, chain })
}

/// Calls that the oracle knows.
pub(crate) fn calls() -> impl Strategy<Value = Syscall> {
    let word = prop::sample::select(vec!["a", "b", "ab", "c", "cb", "ac"]);
    let path = prop::collection::vec(word, 1..=3).prop_map(|words| words.join("/"));
    let host = prop::sample::select(vec!["a.com", "b.com", "x.a.com", "y.x.a.com", "c.com"]);
    let pid = prop::sample::select(vec![1, 2, 3, 12, 21, 112]);
    (0usize..10, path.clone(), path, host, pid).prop_map(|(kind, path, other, host, pid)| {
        let (name, args) = match kind {
            0 => ("FS_READ", serde_json::json!({ "path": path })),
            1 => ("FS_SEARCH", serde_json::json!({ "pattern": "x", "path": path })),
            2 => ("FS_WRITE", serde_json::json!({ "path": path, "content": "" })),
            3 => ("FS_EDIT", serde_json::json!({ "path": path, "edits": [] })),
            4 => ("FS_DELETE", serde_json::json!({ "path": path })),
            5 => ("FS_MOVE", serde_json::json!({ "from": path, "to": other })),
            6 => ("MEM_READ", serde_json::json!({ "query": "q", "namespace": path })),
            7 => ("MEM_WRITE", serde_json::json!({ "key": "k", "value": "v", "namespace": path })),
            8 => ("KILL", serde_json::json!({ "pid": pid, "signal": "STOP" })),
            _ => ("NET_FETCH", serde_json::json!({ "url": format!("https://{host}/{path}") })),
        };
        Syscall::parse(name, &args.to_string()).expect("the arguments fit")
    })
}
