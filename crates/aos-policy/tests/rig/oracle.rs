//! A reference evaluator: the meaning of a policy told as simply as possible, with none of the crate's matching code.
//!
//! A policy is a [`Model`]; it is written out as YAML for the crate and judged here rule by rule, for every call that there
//! is. What a call reaches below a folder is told by enumeration: a rule covers a tree when it matches every sample below it,
//! and touches it when it matches some sample. Whether people gave a call it is told ([`Model::judge_given`]): of a request that
//! marks every word of it, and of what is sent by how each part was said (`rig::request`). Not in its universes: attachments.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::Verdict;
use aos_abi::{Pid, Syscall};
use aos_policy::{Labels, Obligations};

/// A rule of a section.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// What it is about; `CHANNEL/RECEIVER`, `HOST/PATH`, and of commands whether the shell's language is allowed.
    pub(crate) pattern: String,
    /// Operations, methods, the programs of commands, or the name of a call.
    pub(crate) ops: Vec<&'static str>,
    pub(crate) verdict: Verdict,
    pub(crate) redact: bool,
    /// In minutes, as the next.
    pub(crate) undo: Option<u64>,
    pub(crate) window: Option<u64>,
    /// In a minute.
    pub(crate) rate: Option<u64>,
    pub(crate) label: Option<&'static str>,
}

impl Rule {
    pub(crate) fn new(pattern: String, ops: Vec<&'static str>, verdict: Verdict) -> Rule {
        Rule { pattern, ops, verdict, redact: false, undo: None, window: None, rate: None, label: None }
    }
}

/// A rule about what carries a label.
#[derive(Clone, Debug)]
pub(crate) struct LabelRule {
    pub(crate) when: &'static str,
    /// `calls`, or `to` where it is one word in small letters.
    pub(crate) about: Vec<&'static str>,
    /// `None`: personal data is replaced.
    pub(crate) verdict: Option<Verdict>,
}

/// A policy of one role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// By section.
    pub(crate) rules: BTreeMap<&'static str, Vec<Rule>>,
    pub(crate) labels: Vec<LabelRule>,
    /// Grants, nearest first: `(call, pattern)`.
    pub(crate) chain: Vec<Vec<(&'static str, String)>>,
}

/// What has to be done with a call, without the names of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Duties {
    undo_ms: Option<u64>,
    hold_ms: Option<u64>,
    redact: bool,
    local_only: bool,
    rates: BTreeSet<(u64, u64)>,
    labels: Labels,
}

impl Duties {
    pub(crate) fn of(said: &Obligations) -> Duties {
        let Obligations { undo_ms, hold_ms, redact, local_only, labels, .. } = *said;
        let rates = said.rates.iter().map(|rate| (rate.count, rate.per_s)).collect();
        Duties { undo_ms, hold_ms, redact, local_only, rates, labels }
    }

    fn add(&mut self, rule: &Rule, kept: bool) {
        let ms = |minutes: Option<u64>| minutes.map(|minutes| minutes * 60_000);
        self.undo_ms = self.undo_ms.max(ms(rule.undo).filter(|_| kept));
        self.hold_ms = self.hold_ms.max(ms(rule.window));
        self.redact |= rule.redact;
        self.rates.extend(rule.rate.map(|count| (count, 60)));
        self.label(rule);
    }

    fn label(&mut self, rule: &Rule) {
        self.labels = self.labels.and(rule.label.and_then(Labels::named).unwrap_or(Labels::NONE));
    }
}

/// Where content of a label rule flows to.
fn sink(to: &str) -> &'static [&'static str] {
    match to {
        "net" => &["NET_FETCH", "NET_SEND"],
        "channel" => &["CHANNEL_SEND"],
        "tool" => &["TOOL_CALL"],
        "webhook" => &["SYS_WEBHOOK_REPLY"],
        "message" => &["SEND_MSG"],
        "any" => &["NET_FETCH", "NET_SEND", "CHANNEL_SEND", "TOOL_CALL", "SYS_WEBHOOK_REPLY", "SEND_MSG"],
        _ => &[],
    }
}

/// The call after which this one ends what was begun: who may begin may end.
fn begins(name: &str) -> Option<&'static str> {
    match name {
        "FS_UNWATCH" => Some("FS_WATCH"),
        "SYS_UNSCHEDULE" => Some("SYS_SCHEDULE"),
        "SYS_WEBHOOK_REPLY" => Some("SYS_REGISTER_WEBHOOK"),
        "THREAD_DETACH" => Some("THREAD_ATTACH"),
        _ => None,
    }
}

impl Model {
    /// The same rules about labels where everything else is allowed to everybody: there they alone ask.
    pub(crate) fn open(&self) -> Model {
        let all =
            |pattern: &str, ops: &[&'static str]| vec![Rule::new(pattern.to_owned(), ops.to_vec(), Verdict::Allow)];
        let rules = [
            ("fs", all("**", &["read", "write", "delete"])),
            ("net", all("**/**", &["GET", "POST", "PUT"])),
            ("exec", all("true", &["cat"])),
        ];
        Model { rules: rules.into(), labels: self.labels.clone(), chain: Vec::new() }
    }

    pub(crate) fn yaml(&self) -> String {
        let mut text = "version: 1\ndefault_role: r\nroles:\n  r:\n    budget: {calls: 9/min}\n".to_owned();
        for (section, rules) in self.rules.iter().filter(|(_, rules)| !rules.is_empty()) {
            text += &format!("    {section}:{}", if *section == "exec" { " " } else { "\n" });
            for rule in rules {
                let (mark, end) = if *section == "exec" { ("", "\n") } else { ("      - ", "\n") };
                text += &format!("{mark}{{{}{}}}{end}", about(section, rule), terms(rule));
            }
        }
        text += if self.labels.is_empty() { "labels: []\n" } else { "labels:\n" };
        for LabelRule { when, about, verdict } in &self.labels {
            let about = match about.as_slice() {
                [to] if !sink(to).is_empty() => format!("to: {to}"),
                calls => format!("calls: [{}]", calls.join(", ")),
            };
            let said = match verdict {
                Some(verdict) => format!("verdict: {}", verdict.as_str()),
                None => "do: redact".to_owned(),
            };
            text += &format!("  - {{when: {when}, {about}, {said}}}\n");
        }
        text
    }

    /// The verdict, and what has to be done, for whoever carries these labels.
    pub(crate) fn judge(&self, call: &Syscall, labels: &[&str]) -> (Verdict, Duties) {
        self.judge_given(call, labels, false)
    }

    /// The same where people gave all that steers the call, or nothing of it: then no rule about untrusted content asks.
    pub(crate) fn judge_given(&self, call: &Syscall, labels: &[&str], given: bool) -> (Verdict, Duties) {
        let mut said = (Verdict::Allow, Duties::default());
        if is_closed(call) {
            return (Verdict::Deny, said.1);
        }
        // More of what it was shown already.
        if matches!(call, Syscall::FsRead(args) if args.path == RESULT) {
            return said;
        }
        let demands = demands(call);
        for demand in &demands {
            said.0 = said.0.min(self.by_role(demand, &mut said.1));
            for grants in &self.chain {
                let granted = grants.iter().any(|(name, pattern)| {
                    let ends = begins(demand.name) == Some(*name);
                    let all = || demand.values.iter().all(|value| matches(demand.of, pattern, value));
                    ends || (*name == demand.name && (pattern.is_empty() || all()))
                });
                if !granted {
                    said.0 = Verdict::Deny;
                }
            }
        }
        let name = call.name().as_str();
        for LabelRule { when, about, verdict } in self.labels.iter().filter(|_| !demands.is_empty()) {
            let carried = labels.iter().any(|label| label == when || label.starts_with(&format!("{when}.")));
            let lifted = given
                && when.starts_with("untrusted")
                && matches!(verdict, Some(asks @ (Verdict::Ask | Verdict::Hold)) if *asks < said.0);
            if carried && !lifted && about.iter().any(|about| *about == name || sink(about).contains(&name)) {
                said.0 = said.0.min(verdict.unwrap_or(Verdict::Allow));
                said.1.redact |= verdict.is_none();
            }
        }
        if name.starts_with("NET_") {
            said.1.labels = said.1.labels.and(Labels::WEB);
        }
        said
    }

    fn by_role(&self, demand: &Demand, duties: &mut Duties) -> Verdict {
        let of = |section: &str| self.rules.get(section).into_iter().flatten();
        let own = of(demand.section).filter(|rule| demand.section == "exec" || demand.op_is_in(rule));
        let named = of("calls").filter(|rule| rule.ops.contains(&demand.name)).cloned();
        // What is said of beginning something is said of ending it, whatever it was; what is denied has not begun.
        let begun = of("calls").filter(|rule| begins(demand.name).is_some_and(|begin| rule.ops.contains(&begin)));
        let begun = begun.filter(|rule| rule.verdict > Verdict::Deny);
        let named = named.chain(begun.map(|rule| Rule { pattern: String::new(), ..rule.clone() }));
        let (mut granted, mut verdict, mut here) = (false, Verdict::Allow, Duties::default());
        // An address of this machine or its network is reached where a rule that grants it is about that very address.
        let mut closed = demand.of == Of::Hosts && demand.values.iter().any(|value| is_private(value));
        for rule in own.cloned().chain(named) {
            let one = |value: &String| match demand.section {
                "exec" => rule.pattern == "true" || is_plain(value, &rule.ops),
                _ => rule.pattern.is_empty() || matches(demand.of, &rule.pattern, value),
            };
            let all = demand.values.iter().all(one);
            let shown = !(demand.name == "FS_MOVE" && demand.op == "read");
            if all || (demand.below.iter().any(one) && rule.verdict < Verdict::Allow) {
                granted |= all && rule.verdict > Verdict::Deny;
                closed &= !(all && rule.verdict > Verdict::Deny && is_private(&rule.pattern));
                verdict = verdict.min(rule.verdict);
                // Moving shows nothing of what is moved.
                here.add(&Rule { label: rule.label.filter(|_| shown), ..rule }, demand.kept);
            } else if demand.below.iter().any(one) && shown {
                here.label(&rule);
            }
        }
        let mut watched = of("fs").filter(|rule| rule.ops.contains(&"read"));
        let ended = demand.name == "FS_UNWATCH" && watched.any(|rule| rule.verdict > Verdict::Deny);
        if !(granted || ended || verdict == Verdict::Deny) {
            return Verdict::Deny;
        }
        let before = std::mem::take(duties);
        *duties = Duties {
            undo_ms: before.undo_ms.max(here.undo_ms),
            hold_ms: before.hold_ms.max(here.hold_ms),
            redact: before.redact | here.redact,
            local_only: false,
            rates: before.rates.union(&here.rates).copied().collect(),
            labels: before.labels.and(here.labels),
        };
        if closed { Verdict::Deny } else { verdict }
    }
}

/// Where the daemon of the reference listens.
pub(crate) const LISTENS: &str = "127.0.0.1:7717";
/// A handle by which a process reads on in a result of its own.
pub(crate) const RESULT: &str = "result:41";

/// What the floor closes, whatever a file says: paths that leave the workspace, the daemon's own files and address, services
/// that hand out a cloud's credentials, and addresses that could be read in two ways.
fn is_closed(call: &Syscall) -> bool {
    let leaves = |path: &str| path.starts_with('/') || path.split('/').any(|word| word == "..");
    let file = |path: &str| leaves(path) || path.split('/').any(|word| word.to_lowercase() == ".aos");
    let some = |path: &Option<String>, closed: &dyn Fn(&str) -> bool| path.as_deref().is_some_and(closed);
    let url = |url: &str| {
        let rest = url.split_once("://").expect("a URL").1;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let daemon = ["127.0.0.1:7717", "localhost:7717", "[::1]:7717"].contains(&host);
        let credentials = ["169.254.169.254", "metadata.google.internal"].contains(&host);
        daemon || credentials || host.contains('@') || path.split('/').any(|word| word == "..")
    };
    match call {
        Syscall::FsRead(args) => file(&args.path),
        Syscall::FsList(args) => some(&args.path, &file),
        Syscall::FsSearch(args) => some(&args.path, &file),
        Syscall::FsWatch(args) => some(&args.path, &file),
        Syscall::FsWrite(args) => file(&args.path),
        Syscall::FsEdit(args) => file(&args.path),
        Syscall::FsDelete(args) => file(&args.path),
        Syscall::FsMove(args) => file(&args.from) || file(&args.to),
        Syscall::MemRead(args) => some(&args.namespace, &leaves),
        Syscall::MemWrite(args) => some(&args.namespace, &leaves),
        Syscall::MemForget(args) => some(&args.namespace, &leaves),
        Syscall::SysRegisterWebhook(args) => leaves(&args.path),
        Syscall::NetFetch(args) => url(&args.url),
        Syscall::NetSend(args) => url(&args.url),
        _ => false,
    }
}

/// Whether a host, or what a rule is about, is an address of this machine or its network.
fn is_private(host: &str) -> bool {
    ["127.", "10."].iter().any(|range| host.starts_with(range))
}

/// What a rule is about, as the language has it.
fn about(section: &str, rule: &Rule) -> String {
    let Rule { pattern, ops, .. } = rule;
    let halves = || pattern.split_once('/').expect("a pattern of two halves");
    match section {
        "fs" => format!("path: '{pattern}', ops: [{}]", ops.join(", ")),
        "memory" => format!("namespace: '{pattern}', ops: [{}]", ops.join(", ")),
        "net" => {
            let (host, path) = halves();
            let allow: Vec<String> = ops.iter().map(|method| format!("'{method} /{path}'")).collect();
            let private = if is_private(host) { ", private: true" } else { "" };
            format!("to: '{host}', allow: [{}]{private}", allow.join(", "))
        }
        "ipc" => format!("peer: '{pattern}', ops: [{}]", ops.join(", ")),
        "tools" => format!("tool: '{pattern}'"),
        "channels" => format!("channel: '{}', to: ['{}']", halves().0, halves().1),
        "exec" => format!("shell: {pattern}, programs: [{}]", ops.join(", ")),
        _ => format!("call: '{}'", format!("{} {pattern}", ops[0]).trim()),
    }
}

fn terms(rule: &Rule) -> String {
    let mut text = format!(", verdict: {}, redact: {}", rule.verdict.as_str(), rule.redact);
    let mut more = |key: &str, value: Option<String>| {
        text += &value.map(|value| format!(", {key}: {value}")).unwrap_or_default();
    };
    more("undo", rule.undo.map(|minutes| format!("{minutes}m")));
    more("window", rule.window.map(|minutes| format!("{minutes}m")));
    more("rate", rule.rate.map(|count| format!("{count}/min")));
    more("label", rule.label.map(str::to_owned));
    text
}

/// What patterns are about.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Paths,
    Hosts,
    Words,
    Channels,
}

/// One thing that a call needs.
struct Demand {
    section: &'static str,
    name: &'static str,
    op: &'static str,
    of: Of,
    /// Whether an undo window is kept of it.
    kept: bool,
    /// Every one must be granted.
    values: Vec<String>,
    /// What stricter rules are held against.
    below: Vec<String>,
}

impl Demand {
    fn op_is_in(&self, rule: &Rule) -> bool {
        self.op.is_empty() || rule.ops.contains(&self.op)
    }
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
    let name = call.name().as_str();
    let demand = |section, op, of, values: Vec<String>, below| {
        let kept = matches!(op, "write" | "delete") && section == "fs" || section == "exec";
        Demand { section, name, op, of, kept, values, below }
    };
    let file = |op, path: &str| demand("fs", op, Of::Paths, vec![path.to_owned()], vec![]);
    let along = |op, path: &str| demand("fs", op, Of::Paths, vec![path.to_owned()], tree(path));
    let below = |path: &Option<String>| {
        let path = path.clone().unwrap_or_default();
        demand("fs", "read", Of::Paths, tree(&path), tree(&path))
    };
    let space = |op, space: &Option<String>| {
        demand("memory", op, Of::Paths, vec![space.clone().unwrap_or("self".into())], vec![])
    };
    let word = |section, value: &str| demand(section, "", Of::Words, vec![value.to_owned()], vec![]);
    let peer = |op, name: &Option<String>, pid: Option<Pid>| {
        let who = name.clone().or(pid.map(|pid| pid.to_string())).unwrap_or_default();
        demand("ipc", op, Of::Words, vec![who], vec![])
    };
    let net = |op, url: &str| {
        let value = url.split_once("://").expect("a URL").1.to_owned();
        demand("net", op, Of::Hosts, vec![value], vec![])
    };
    // What has no section is granted by `calls` alone.
    let bare = || demand("none", "", Of::Words, vec![], vec![]);
    match call {
        Syscall::SysExit(_)
        | Syscall::Sleep(_)
        | Syscall::SysWriteStdout(_)
        | Syscall::SysReadStdin(_)
        | Syscall::RecvMsg(_)
        | Syscall::Wait(_) => vec![],
        Syscall::SpawnAgent(_)
        | Syscall::FsUnwatch(_)
        | Syscall::ThreadDetach(_)
        | Syscall::SysSchedule(_)
        | Syscall::SysUnschedule(_)
        | Syscall::SysWebhookReply(_)
        | Syscall::ToolSearch(_)
        | Syscall::AskUser(_)
        | Syscall::Propose(_) => vec![bare()],
        Syscall::ExecCmd(args) => vec![demand("exec", "", Of::Words, vec![args.cmd.clone()], vec![])],
        Syscall::FsRead(args) => vec![file("read", &args.path)],
        Syscall::FsList(args) if args.depth.is_none() => vec![file("read", args.path.as_deref().unwrap_or_default())],
        Syscall::FsList(args) => vec![below(&args.path)],
        Syscall::FsSearch(args) => vec![below(&args.path)],
        Syscall::FsWatch(args) => vec![below(&args.path)],
        Syscall::FsWrite(args) => vec![file("write", &args.path)],
        Syscall::FsEdit(args) => vec![file("write", &args.path), file("read", &args.path)],
        Syscall::FsDelete(args) => vec![along("delete", &args.path)],
        Syscall::FsMove(args) => vec![along("delete", &args.from), along("read", &args.from), along("write", &args.to)],
        Syscall::MemRead(args) => vec![space("read", &args.namespace)],
        Syscall::MemWrite(args) => vec![space("write", &args.namespace)],
        Syscall::MemForget(args) => vec![space("forget", &args.namespace)],
        Syscall::NetFetch(args) => vec![net("GET", &args.url)],
        Syscall::NetSend(args) => vec![net(if args.method == "PUT" { "PUT" } else { "POST" }, &args.url)],
        Syscall::SendMsg(args) => vec![peer("send", &args.to, args.to_pid)],
        // Of processes without names that are below nobody.
        Syscall::Kill(args) => vec![peer("signal", &None, args.pid)],
        Syscall::ToolCall(args) => vec![word("tools", &args.name)],
        Syscall::ThreadAttach(args) => vec![word("none", &args.entity)],
        Syscall::ChannelSend(args) => {
            vec![demand("channels", "", Of::Channels, vec![format!("{}/{}", args.channel, args.to)], vec![])]
        }
        Syscall::SysRegisterWebhook(args) => {
            vec![demand("none", "", Of::Paths, vec![args.path.clone()], vec![])]
        }
    }
}

/// Whether a command line is words alone, of which the first names a program.
fn is_plain(line: &str, programs: &[&str]) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    let own = programs.contains(&"./**") && first.starts_with("./");
    !line.contains([';', '|', '$', '&', '>']) && (own || programs.contains(&first))
}

fn matches(of: Of, pattern: &str, value: &str) -> bool {
    // Cut before each dot, which stays with what follows.
    let dotted = |text: &str| text.replace('.', "\n.").split('\n').map(str::to_owned).collect::<Vec<_>>();
    match of {
        Of::Paths => walk(&split(pattern), &split(value)),
        // Whoever says every name means it.
        Of::Words => pattern == "*" || walk(&dotted(pattern), &dotted(value)),
        Of::Channels => {
            let (channel, to) = pattern.split_once('/').expect("a channel and a receiver");
            let (by, receiver) = value.split_once('/').expect("a channel and a receiver");
            walk(&[channel.to_owned()], &[by.to_owned()]) && walk(&[to.to_owned()], &[receiver.to_owned()])
        }
        Of::Hosts => {
            let (host, path) = pattern.split_once('/').expect("a net pattern has a path");
            let (name, rest) = value.split_once('/').unwrap_or((value, ""));
            let labels = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
            walk(&labels(host), &labels(name)) && walk(&split(path), &split(rest))
        }
    }
}

fn split(text: &str) -> Vec<String> {
    text.split('/').filter(|word| !matches!(*word, "" | ".")).map(str::to_owned).collect()
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
        (Some((b'*', rest)), _) => {
            // In a receiver it stands for nothing that could begin a second one.
            segment(rest, word) || (word.first().is_some_and(|byte| *byte != b'@') && segment(pattern, &word[1..]))
        }
        (Some((p, rest)), Some((w, more))) => p == w && segment(rest, more),
        (Some(_), None) | (None, Some(_)) => false,
    }
}
