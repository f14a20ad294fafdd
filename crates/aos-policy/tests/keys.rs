//! Every key of the complete file of the documentation: without it, something is decided otherwise.
//!
//! Start at [`KEYS`]: a key, the change that takes it away or gives it another value, and a question whose answer differs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_policy::{Labels, Policy, Subject};

use rig::{call, grants, line, subject};

const COMPLETE: &str = include_str!("complete.yaml");

/// The key, what stands in the file, what stands there without it, and what is asked.
type Key = (&'static str, &'static str, &'static str, Asked);

/// A question about a policy.
enum Asked {
    /// What is said to this call.
    Call(&'static str),
    /// The same, with something in the window.
    Labelled(Labels, &'static str),
    /// A setting, in words.
    Setting(fn(&Policy) -> String),
    /// Whether the file is taken at all.
    Taken,
}

use Asked::{Call, Labelled, Setting, Taken};

fn role(policy: &Policy) -> &aos_policy::Role {
    policy.role("").unwrap()
}

fn sandbox(policy: &Policy) -> String {
    format!("{:?}", policy.limits().sandbox)
}

fn spawn(policy: &Policy) -> String {
    format!("{} {}", policy.limits().spawn_depth, policy.limits().spawn_children)
}

fn budget(policy: &Policy) -> String {
    format!("{:?}", role(policy).budget)
}

fn exec(policy: &Policy) -> String {
    format!("{:?}", role(policy).exec)
}

fn mounts(policy: &Policy) -> String {
    format!("{:?}", policy.mounts(&subject(&[grants(&["FS_READ **"])])))
}

fn secrets(policy: &Policy) -> String {
    format!("{:?}", role(policy).secrets)
}

fn strong(policy: &Policy) -> String {
    ["nano", "small", "standard", "strong"].map(|tier| role(policy).models.verdict(tier).as_str()).join(" ")
}

fn personal(policy: &Policy) -> String {
    let flow = policy.model_flow(Labels::PERSONAL);
    let found = policy.detector().find("ann@example.com, badge E-123456");
    format!("{flow:?} {}", found.unwrap().len())
}

fn proposals(policy: &Policy) -> String {
    format!("{:?}", policy.proposals())
}

fn undo(policy: &Policy) -> String {
    let undo = |text: &str| policy.explain(&subject(&[]), &call(text)).obligations.undo_ms;
    format!("{:?} {:?}", undo(r#"FS_WRITE {"path":"a","content":""}"#), undo(r#"EXEC_CMD {"cmd":"ls"}"#))
}

fn fetched(policy: &Policy) -> String {
    policy.explain(&subject(&[]), &call(r#"NET_FETCH {"url":"https://a.example.com/"}"#)).obligations.labels.to_string()
}

fn sent(policy: &Policy) -> String {
    format!("{:?}", policy.explain(&subject(&[]), &call(r#"SEND_MSG {"to":"w","content":"x"}"#)).obligations.rates)
}

const POST: &str = r#"NET_SEND {"url":"https://api.github.com/repos/acme/x/issues","method":"POST"}"#;
const RUN: &str = r#"EXEC_CMD {"cmd":"ls; ls"}"#;

const KEYS: &[Key] = &[
    ("version", "version: 1\n", "", Taken),
    ("default_role", "default_role: assistant", "default_role: other", Taken),
    ("limits.spawn.depth", "depth: 4", "depth: 2", Setting(spawn)),
    ("limits.spawn.children", "children: 16", "children: 3", Setting(spawn)),
    ("limits.sandbox.memory", "memory: 512MiB", "memory: 1MiB", Setting(sandbox)),
    ("limits.sandbox.pids", "pids: 64", "pids: 3", Setting(sandbox)),
    ("limits.sandbox.files", "files: 256", "files: 9", Setting(sandbox)),
    ("limits.sandbox.cpu", "cpu: 60s", "cpu: 1s", Setting(sandbox)),
    ("limits.sandbox.wall", "wall: 120s", "wall: 1s", Setting(sandbox)),
    ("limits.sandbox.disk", "disk: 1GiB", "disk: 1MiB", Setting(sandbox)),
    ("limits.sandbox.output", "output: 1MiB", "output: 1KiB", Setting(sandbox)),
    ("roles", "  assistant:\n", "  other:\n", Taken),
    ("calls", "SYS_SCHEDULE, ", "", Call(r#"SYS_SCHEDULE {"prompt":"x","seconds":60}"#)),
    ("fs", "      - {path: \"**\", ops: [read, write, delete], undo: 15m}\n", "", Call(r#"FS_READ {"path":"a"}"#)),
    ("fs.ops", "[read, write, delete]", "[read, write]", Call(r#"FS_DELETE {"path":"a"}"#)),
    ("fs.undo", "delete], undo: 15m}", "delete]}", Setting(undo)),
    (
        "fs.verdict",
        "[write, delete], verdict: ask",
        "[write, delete]",
        Call(r#"FS_WRITE {"path":"contracts/a","content":""}"#),
    ),
    ("mounts", "host: ~/Documents/handbook", "host: ~/Documents/other", Setting(mounts)),
    ("mounts.at", "at: handbook", "at: book", Call(r#"FS_WRITE {"path":"handbook/a","content":""}"#)),
    ("mounts.ops", "at: handbook, ops: [read]", "at: handbook, ops: [write]", Taken),
    ("exec.shell", "shell: true", "shell: false", Call(RUN)),
    ("exec.programs", "git, ", "", Setting(exec)),
    ("exec.net", "net: none", "net: rules", Setting(exec)),
    ("exec.undo", "      undo: 15m\n", "", Setting(undo)),
    ("net.to", "*.example.com:443", "b.example.com:443", Call(r#"NET_FETCH {"url":"https://a.example.com/"}"#)),
    (
        "net.allow",
        "GET /repos/acme/**",
        "GET /repos/acme",
        Call(r#"NET_FETCH {"url":"https://api.github.com/repos/acme/x"}"#),
    ),
    ("net.label", "[\"GET /**\"], label: untrusted.web", "[\"GET /**\"], label: secret", Setting(fetched)),
    ("net.verdict", "], verdict: hold}\n      - {to: \"127", "]}\n      - {to: \"127", Call(POST)),
    ("net.private", ", private: true", "", Taken),
    ("models.tiers", "tiers: [nano, small, standard]", "tiers: [nano, small]", Setting(strong)),
    ("models.strong", ", strong: ask", "", Setting(strong)),
    ("budget.usd", "usd: 1.00/day, ", "", Setting(budget)),
    ("budget.tokens", "tokens: 500k/day, ", "", Setting(budget)),
    ("budget.calls", "calls: 2000/day, ", "", Setting(budget)),
    ("budget.wall", ", wall: 8h", "", Setting(budget)),
    ("memory.namespace", "team/**", "other/**", Call(r#"MEM_READ {"query":"q","namespace":"team/x"}"#)),
    ("memory.ops", "[read, write, forget]", "[read, write]", Call(r#"MEM_FORGET {"id":"m1"}"#)),
    ("ipc.peer", "peer: \"*\"", "peer: writer", Call(r#"SEND_MSG {"to":"reader","content":"x"}"#)),
    ("ipc.rate", ", rate: 60/min", "", Setting(sent)),
    ("tools.tool", "clock.now", "clock.set", Call(r#"TOOL_CALL {"name":"clock.now","args":{}}"#)),
    ("tools.verdict", "\"github.*\", verdict: ask", "\"github.*\"", Call(r#"TOOL_CALL {"name":"github.x","args":{}}"#)),
    (
        "channels.channel",
        "channel: telegram",
        "channel: signal",
        Call(r#"CHANNEL_SEND {"channel":"telegram","to":"@me","content":"x"}"#),
    ),
    ("channels.to", "\"@me\"", "\"@you\"", Call(r#"CHANNEL_SEND {"channel":"telegram","to":"@me","content":"x"}"#)),
    (
        "channels.verdict",
        ", verdict: hold}]",
        "}]",
        Call(r#"CHANNEL_SEND {"channel":"email","to":"a@example.com","content":"x"}"#),
    ),
    ("secrets.name", "name: GITHUB_TOKEN", "name: OTHER_TOKEN", Setting(secrets)),
    ("secrets.to", "to: \"api.github.com:443\", header", "to: \"other.example:443\", header", Setting(secrets)),
    ("secrets.header", "header: authorization", "header: x-token", Setting(secrets)),
    ("labels.when", "when: untrusted, calls", "when: secret, calls", Labelled(Labels::WEB, RUN)),
    ("labels.calls", "CHANNEL_SEND, EXEC_CMD", "CHANNEL_SEND", Labelled(Labels::WEB, RUN)),
    (
        "labels.verdict",
        "SYS_REGISTER_WEBHOOK], verdict: ask",
        "SYS_REGISTER_WEBHOOK], verdict: deny",
        Labelled(Labels::WEB, RUN),
    ),
    ("labels.do", "do: redact", "do: local_only", Setting(personal)),
    (
        "labels.to",
        "  - {when: secret,    to: any, verdict: deny}\n",
        "",
        Labelled(Labels::SECRET, r#"NET_FETCH {"url":"https://a.example.com/"}"#),
    ),
    ("personal_data.detect", "detect: [email, ", "detect: [", Setting(personal)),
    ("personal_data.custom", ", custom: {employee_id: \"E-[0-9]{6}\"}", "", Setting(personal)),
    ("proposals.ttl", "ttl: 24h", "ttl: 1h", Setting(proposals)),
    ("proposals.approvers", "approvers: [owner]", "approvers: [nobody]", Taken),
    ("proposals.max_asks", ", max_asks: 6/h", "", Setting(proposals)),
];

fn answer(policy: &Policy, asked: &Asked) -> String {
    match asked {
        Call(text) => line(policy, text),
        Labelled(labels, text) => {
            let said = policy.explain(&Subject { labels: *labels, ..subject(&[]) }, &call(text));
            format!("{} {}", said.verdict.as_str(), said.rule)
        }
        Setting(say) => say(policy),
        Taken => "taken".to_owned(),
    }
}

#[test]
fn without_any_of_its_keys_something_is_decided_otherwise() {
    let complete = Policy::parse(COMPLETE).unwrap();
    let mut same = Vec::new();
    for (key, with, without, asked) in KEYS {
        assert_eq!(COMPLETE.matches(with).count().min(1), 1, "{key}: the file has no {with:?}");
        let text = COMPLETE.replacen(with, without, 1);
        let before = answer(&complete, asked);
        match (Policy::parse(&text), asked) {
            (Err(faults), Taken) => assert!(faults[0].line > 0 && faults[0].hint.is_some(), "{key}: {faults:?}"),
            (Ok(_), Taken) => same.push(format!("{key}: taken all the same")),
            (Ok(policy), asked) if answer(&policy, asked) != before => {}
            (Ok(_), _) => same.push(format!("{key}: {before} either way")),
            (Err(faults), _) => same.push(format!("{key}: the file without it is refused: {faults:?}")),
        }
    }
    assert!(same.is_empty(), "{}", same.join("\n"));
}

#[test]
fn no_key_of_the_file_is_left_out_here() {
    // Every word before a colon, outside of comments and texts in quotes.
    let mut missing = Vec::new();
    for text in COMPLETE.lines().map(|line| line.split(" #").next().unwrap()) {
        let plain: String = text.split('"').step_by(2).collect::<Vec<_>>().join("");
        for word in
            plain.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).filter(|word| word.ends_with(':'))
        {
            let key = word.trim_end_matches(':');
            let spoken = |key: &str| {
                KEYS.iter().any(|(known, with, without, _)| {
                    known.split('.').any(|part| part == key)
                        || with.contains(&format!("{key}:")) && !without.contains(&format!("{key}:"))
                })
            };
            // `sandbox` and `spawn` are in the names of what is below them; `assistant` and `employee_id` are the writer's.
            if !spoken(key) && !["assistant", "employee_id", "path", "host"].contains(&key) {
                missing.push(key.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
