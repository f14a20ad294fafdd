//! What policies and calls the reference evaluator is tried on.

use aos_abi::Syscall;
use aos_abi::entry::Verdict;
use proptest::prelude::*;
use serde_json::json;

use super::oracle::{LabelRule, Model, Rule};

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

fn net_patterns() -> impl Strategy<Value = String> {
    let host = prop::sample::select(vec!["a.com", "b.com", "*.a.com", "x.a.com", "**"]);
    (host, path_patterns()).prop_map(|(host, path)| format!("{host}/{path}"))
}

/// The same of the section of the network, whose rules may be about a private address.
fn net_rules() -> impl Strategy<Value = String> {
    let private = path_patterns().prop_map(|path| format!("127.0.0.1/{path}"));
    prop_oneof![5 => net_patterns().boxed(), 1 => private.boxed()]
}

/// Paths that the floor closes, that are written oddly, or that are no files at all.
fn odd_paths() -> impl Strategy<Value = String> {
    let odd = ["../a", "a/../b", "/a", ".aos/a", "a/.AOS", "./a//b", "a/./b", super::oracle::RESULT];
    prop::sample::select(odd.to_vec()).prop_map(str::to_owned)
}

/// Addresses that the floor closes, and private ones.
fn odd_urls() -> impl Strategy<Value = String> {
    let odd = [
        "http://169.254.169.254/a",
        "http://metadata.google.internal/a",
        "http://127.0.0.1:7717/a",
        "http://localhost:7717/a",
        "http://[::1]:7717/a",
        "https://u@a.com/a",
        "https://a.com/../a",
        "https://127.0.0.1/a",
        "https://127.0.0.1/b",
        "https://10.0.0.1/a",
    ];
    prop::sample::select(odd.to_vec()).prop_map(str::to_owned)
}

fn word_patterns() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "*", "a*", "g.*", "g.x", "g*", "7"]).prop_map(str::to_owned)
}

fn channel_patterns() -> impl Strategy<Value = String> {
    let channel = prop::sample::select(vec!["email", "chat", "*", "e*"]);
    let to = prop::sample::select(vec!["**", "*@x.com", "a@x.com", "a@*"]);
    (channel, to).prop_map(|(channel, to)| format!("{channel}/{to}"))
}

/// Which obligations the rules of a section can name, beside those of every rule.
#[derive(Clone, Copy)]
struct Can {
    undo: bool,
    label: bool,
}

const PLAIN: Can = Can { undo: false, label: false };
const LABELLED: Can = Can { undo: false, label: true };

fn rule(
    patterns: impl Strategy<Value = String>,
    ops: &'static [&'static str],
    can: Can,
) -> impl Strategy<Value = Rule> {
    let minutes = || prop::option::weighted(0.3, 1u64..4);
    let labels = prop::sample::select(vec!["untrusted.file", "untrusted.web", "personal", "secret"]);
    let obligations = (prop::bool::weighted(0.3), minutes(), minutes(), minutes(), prop::option::weighted(0.3, labels));
    (patterns, prop::sample::subsequence(ops, 1..=ops.len()), verdicts(), obligations).prop_map(
        move |(pattern, ops, verdict, (redact, undo, window, rate, label))| {
            // What only reads has nothing to be undone.
            let changes = ops.iter().any(|op| *op != "read");
            Rule {
                redact,
                undo: undo.filter(|_| can.undo && changes && verdict != Verdict::Deny),
                window: window.filter(|_| verdict == Verdict::Hold),
                rate,
                label: label.filter(|_| can.label),
                ..Rule::new(pattern, ops, verdict)
            }
        },
    )
}

fn rules(
    patterns: impl Strategy<Value = String>,
    ops: &'static [&'static str],
    can: Can,
) -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(rule(patterns, ops, can), 0..5)
}

/// Names of calls, each with patterns as it takes them.
fn named() -> impl Strategy<Value = (&'static str, String)> {
    let files = [
        "FS_READ",
        "FS_LIST",
        "FS_SEARCH",
        "FS_WATCH",
        "FS_WRITE",
        "FS_EDIT",
        "FS_DELETE",
        "FS_MOVE",
        "MEM_READ",
        "MEM_WRITE",
        "MEM_FORGET",
        "SYS_REGISTER_WEBHOOK",
    ];
    let bare = [
        "SPAWN_AGENT",
        "EXEC_CMD",
        "SYS_SCHEDULE",
        "SYS_UNSCHEDULE",
        "SYS_WEBHOOK_REPLY",
        "FS_UNWATCH",
        "TOOL_SEARCH",
        "THREAD_DETACH",
        "ASK_USER",
        "PROPOSE",
    ];
    let select = |names: &[&'static str]| prop::sample::select(names.to_vec());
    prop_oneof![
        8 => (select(&files), path_patterns()).boxed(),
        3 => select(&bare).prop_map(|name| (name, String::new())).boxed(),
        2 => (select(&["NET_FETCH", "NET_SEND"]), net_patterns()).boxed(),
        2 => (select(&["SEND_MSG", "TOOL_CALL", "THREAD_ATTACH", "KILL"]), word_patterns()).boxed(),
        1 => channel_patterns().prop_map(|pattern| ("CHANNEL_SEND", pattern)).boxed(),
    ]
}

/// Rules of `calls`. Those about commands have a section of their own.
fn call_rules() -> impl Strategy<Value = Vec<Rule>> {
    let with = (named(), rule(Just(String::new()), &["read"], PLAIN));
    let rule = with.prop_map(|((name, pattern), rule)| Rule { pattern, ops: vec![name], ..rule });
    prop::collection::vec(rule.prop_filter("it has a section", |rule| rule.ops != ["EXEC_CMD"]), 0..8)
}

fn label_rules() -> impl Strategy<Value = Vec<LabelRule>> {
    // Of these every one has something that steers it, which nobody gave.
    const CALLS: [&str; 11] = [
        "EXEC_CMD",
        "MEM_READ",
        "MEM_WRITE",
        "NET_FETCH",
        "NET_SEND",
        "FS_READ",
        "FS_DELETE",
        "FS_MOVE",
        "SEND_MSG",
        "TOOL_CALL",
        "KILL",
    ];
    let sinks = prop::sample::select(vec!["net", "channel", "tool", "message", "any"]);
    let about = prop_oneof![prop::sample::subsequence(CALLS.to_vec(), 1..4), sinks.prop_map(|sink| vec![sink]),];
    let when = prop::sample::select(vec!["untrusted", "untrusted.web", "untrusted.message", "personal", "secret"]);
    let rule = (when, about, verdicts(), any::<bool>()).prop_map(|(when, about, verdict, redact)| LabelRule {
        when,
        about,
        // One that allows does nothing, and is refused.
        verdict: Some(verdict.min(Verdict::Hold)).filter(|_| when != "personal" || !redact),
    });
    prop::collection::vec(rule, 0..4)
}

/// What a process may carry.
pub(crate) fn labels() -> impl Strategy<Value = Vec<&'static str>> {
    let all = vec!["untrusted.web", "untrusted.file", "untrusted.message", "personal", "secret"];
    prop::sample::subsequence(all, 0..=3)
}

pub(crate) fn models() -> impl Strategy<Value = Model> {
    let chain = prop::collection::vec(prop::collection::vec(named(), 0..16), 0..3);
    let shell = prop::sample::select(vec!["true".to_owned(), "false".to_owned()]);
    let exec = rule(shell, &["cat", "git", "./**"], Can { undo: true, label: false });
    let sections = (
        rules(path_patterns(), &["read", "write", "delete"], Can { undo: true, label: true }),
        rules(path_patterns(), &["read", "write", "forget"], LABELLED),
        rules(net_rules(), &["GET", "POST", "PUT"], LABELLED),
        rules(word_patterns(), &["send", "signal"], PLAIN),
        rules(word_patterns(), &["tool"], LABELLED),
        rules(channel_patterns(), &["to"], PLAIN),
        prop::option::of(exec),
        call_rules(),
    );
    (sections, label_rules(), chain).prop_map(
        |((fs, memory, net, ipc, tools, channels, exec, calls), labels, chain)| {
            let exec = exec.into_iter().collect();
            let rules = [
                ("fs", fs),
                ("memory", memory),
                ("net", net),
                ("ipc", ipc),
                ("tools", tools),
                ("channels", channels),
                ("exec", exec),
                ("calls", calls),
            ];
            Model { rules: rules.into(), labels, chain }
        },
    )
}

/// Every call there is, on targets that rules may be about.
pub(crate) fn calls() -> impl Strategy<Value = Syscall> {
    let word = prop::sample::select(vec!["a", "b", "ab", "c", "cb", "ac"]);
    let plain = prop::collection::vec(word, 1..=3).prop_map(|words| words.join("/"));
    let path = prop_oneof![8 => plain.boxed(), 1 => odd_paths().boxed()];
    let odd_url = prop::option::weighted(0.3, odd_urls());
    let host = prop::sample::select(vec!["a.com", "b.com", "x.a.com", "y.x.a.com", "c.com"]);
    let name = prop::sample::select(vec!["a", "ab", "b", "g", "g.x", "g.xy", "7"]);
    let receiver = prop::sample::select(vec!["a@x.com", "b@x.com", "a@y.com"]);
    let command = prop::sample::select(vec!["cat a", "git", "rm a", "./t a", "cat a; rm a"]);
    let rest = (host, name, receiver, command, any::<bool>(), odd_url);
    let names = aos_abi::Name::ALL.len();
    // Files come more often: their rules are the richest.
    let kind = prop_oneof![2 => 0..names, 1 => 0usize..8];
    (kind, path.clone(), path, rest).prop_map(|(kind, path, other, (host, name, receiver, command, flag, odd))| {
        // A path that is odd in a file's name is so in an address, too, and the reading of addresses is not told here.
        let plain =
            path.split('/').filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()) && !word.is_empty());
        let url = odd.unwrap_or_else(|| format!("https://{host}/{}", plain.collect::<Vec<_>>().join("/")));
        let (called, args) = match kind {
            0 => ("FS_READ", json!({ "path": path })),
            1 => ("FS_SEARCH", json!({ "pattern": "x", "path": path })),
            2 => ("FS_WRITE", json!({ "path": path, "content": "" })),
            3 => ("FS_EDIT", json!({ "path": path, "edits": [] })),
            4 => ("FS_DELETE", json!({ "path": path })),
            5 => ("FS_MOVE", json!({ "from": path, "to": other })),
            6 if flag => ("FS_LIST", json!({ "path": path })),
            6 => ("FS_LIST", json!({ "path": path, "depth": 3 })),
            7 => ("FS_WATCH", json!({ "path": path })),
            8 => ("MEM_READ", json!({ "query": "q", "namespace": path })),
            9 => ("MEM_WRITE", json!({ "key": "k", "value": "v", "namespace": path })),
            10 => ("MEM_FORGET", json!({ "key": "k", "namespace": path })),
            11 => ("NET_FETCH", json!({ "url": url })),
            12 => ("NET_SEND", json!({ "url": url, "method": if flag { "POST" } else { "PUT" }, "body": "x" })),
            13 if name == "7" => ("SEND_MSG", json!({ "to_pid": 7, "content": "x" })),
            13 => ("SEND_MSG", json!({ "to": name, "content": "x" })),
            14 => ("TOOL_CALL", json!({ "name": name, "args": { "x": "y" } })),
            15 => (
                "CHANNEL_SEND",
                json!({ "channel": if flag { "email" } else { "chat" }, "to": receiver, "content": "x" }),
            ),
            16 => ("EXEC_CMD", json!({ "cmd": command })),
            17 => ("THREAD_ATTACH", json!({ "entity": name })),
            18 => ("SYS_REGISTER_WEBHOOK", json!({ "path": path })),
            19 => ("KILL", json!({ "pid": if flag { 7 } else { 17 }, "signal": "STOP" })),
            // What has no target of its own is asked for as its manual page does.
            other => {
                let name = OTHERS[other % OTHERS.len()];
                (name.as_str(), serde_json::from_str(name.spec().example).expect("an example is JSON"))
            }
        };
        Syscall::parse(called, &args.to_string()).unwrap_or_else(|error| panic!("{called} {args}: {error}"))
    })
}

const OTHERS: [aos_abi::Name; 15] = {
    use aos_abi::Name;
    [
        Name::SpawnAgent,
        Name::FsUnwatch,
        Name::ThreadDetach,
        Name::SysSchedule,
        Name::SysUnschedule,
        Name::SysWebhookReply,
        Name::ToolSearch,
        Name::AskUser,
        Name::Propose,
        Name::SysExit,
        Name::Sleep,
        Name::SysWriteStdout,
        Name::SysReadStdin,
        Name::RecvMsg,
        Name::Wait,
    ]
};
