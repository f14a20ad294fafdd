//! The script language and what it prints.
//!
//! A script is a list of commands, one a line:
//!
//! | command | does |
//! |---|---|
//! | `spawn MODE [key=value…] [TASK]` | a person starts a `resident` or `oneshot` process; keys are `name`, `group`, `model`, `folder` (to work on), `copy` (of a folder, to work on), `role` (of the policy), `usd`, `tokens`, `calls`, `wall`, `parent`, `pipe`, `grants` (by commas) |
//! | `PID: TEXT` | its model answers that; with ` => NAME {json}` parts it makes these calls |
//! | `PID cut: TEXT` | the same, cut off at its length limit |
//! | `PID fails KIND [MS]` | its model fails; `MS`: when to try again |
//! | `shown VALUE TOKEN` | what is answered next was asked with that token in the place of that value |
//! | `done PID NAME [JSON]` · `lost PID NAME` | the driver's result of its first running call of that name · an `EIO` |
//! | `reaches PID NAME` | that call is let reach something of the network |
//! | `input PID TEXT` · `eof PID` · `signal PID NAME [tree]` · `budget PID key=value…` | a person does that |
//! | `group NAME SIGNAL [tree]` · `unschedule PID TIMER` | a person signals a group · cancels a timer |
//! | `key PID [rpm=N] [tiers=…]` · `ask PID N MODEL [MOST]` · `hangup PID N` | a program (`spawn program`) gets a key · asks, under a number · gives up |
//! | `serve N` · `serve N fails KIND [MS]` | the program's request of that number is answered, or fails (`unreachable`: nothing could be sent) |
//! | `approve ID` · `reject ID WHY` · `hook PATH` · `watch PID ID` · `fork PID` · `prune PID` | likewise |
//! | `nowhere` | no address leads to the daemon from here on |
//! | `here MODEL` | that model is on this machine from here on |
//! | `day USD` · `drop MODEL` · `slots N` · `price USD` | another configuration; the price is for a million tokens of every model |
//! | `model NAME key=value…` · `only NAME,…` · `fallback NAME,…` | a model is configured so (keys: `tier`, `price`, `window`, `output`, `at`, `limit`) · no others are · the router's fallback |
//! | `usage IN OUT` | what is answered next says that it used so many tokens |
//! | `route PID` | prints which models may serve it, in order, and why |
//! | `after SECONDS` | time passes, with the ticks that the kernel wants |
//! | `off SECONDS` | time passes while the daemon is off, then it boots |
//! | `rest [PID]` | nothing happens, or the daemon ends in good order and has heard of the process's answer what `usage` says |
//! | `boot` | the daemon stops and starts again |
//! | `times N LINE` | does a line so many times |
//! | `ps PID` · `explain PID CALL {json}` · `budgets` · `idle` · `risks` | prints the state of a process · what the policy says to a call · every account · whether anything is due · what a person is told of each open question |
//!
//! Every boot replays the whole journal into a fresh kernel and asserts that it makes the same entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use aos_abi::api::RouteRequest;
use aos_abi::entry::{
    Asked, Configured, Cut, Examined, InferenceOutcome, Inner, Key, NetRequest, Outcome, Personal, ProposalState,
    Requested, ServedOutcome, Took, Verdict, WebhookRequest,
};
use aos_abi::inference::{Encoding, Failure, FailureKind, Format, NativeCall, Reply, Stop, Usage};
use aos_abi::model::{Ability, ModelLimits, ModelSpec, Price};
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec, Workspace};
use aos_abi::{Body, CallError, CallId, Code, EffectId, Entry, Lsn, Pid, Syscall, Timestamp, Usd};
use aos_kernel::Kernel;
use aos_kernel::effect::{Authority, Effect, Serve};
use aos_kernel::past::mismatch;
use aos_kernel::process::Phase;
use aos_kernel::table::NoPages;
use serde_json::Value;

/// 2026-11-22T00:00:00Z.
const BEGINNING: Timestamp = Timestamp(1_795_305_600_000);

/// Grants much, asks for `asks/**`, holds `holds/**`.
pub(crate) const POLICY: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, SYS_SCHEDULE, ASK_USER, PROPOSE, "SYS_REGISTER_WEBHOOK **"]
    fs:
      - {path: "**", ops: [read, write, delete]}
      - {path: "asks/**", ops: [write, delete], verdict: ask}
      - {path: "holds/**", ops: [write, delete], verdict: hold}
      - {path: "secret/**", ops: [read, write, delete], verdict: deny}
    exec: {shell: true, programs: [sh], net: none}
    tools: [{tool: "*"}]
    ipc:
      - {peer: "*", ops: [send]}
"#;

fn parsed(text: &str) -> Syscall {
    let (name, args) = text.split_once(' ').unwrap();
    Syscall::parse(name, args).unwrap()
}

/// Runs a script and returns what it came to.
pub(crate) fn replay(script: &str) -> String {
    replay_under(POLICY, script)
}

/// The same under another policy.
pub(crate) fn replay_under(policy: &str, script: &str) -> String {
    Rig::run(policy, script).out
}

/// The journal that a script comes to.
pub(crate) fn journal(script: &str) -> Vec<Arc<Entry>> {
    Rig::run(POLICY, script).entries
}

/// What each process with a budget of its own was granted, and what it and all that descends from it were charged, in
/// nano-dollars; read from the journal that a script comes to, whatever the accounts say.
pub(crate) fn ledger(script: &str) -> (String, BTreeMap<Pid, (u64, u64)>) {
    let rig = Rig::run(POLICY, script);
    let mut above: BTreeMap<Pid, Pid> = BTreeMap::new();
    let mut found: BTreeMap<Pid, (u64, u64)> = BTreeMap::new();
    for entry in &rig.entries {
        match &entry.body {
            Body::Spawned(spec) => {
                above.insert(entry.pid, spec.parent);
                if let Some(usd) = spec.budget.usd {
                    found.insert(entry.pid, (usd.0, 0));
                }
            }
            Body::Charged { cost_usd, .. } => {
                let mut at = Some(entry.pid);
                while let Some(pid) = at {
                    if let Some((_, spent)) = found.get_mut(&pid) {
                        *spent += cost_usd.unwrap_or_default().0;
                    }
                    at = above.get(&pid).copied();
                }
            }
            _ => {}
        }
    }
    (rig.out, found)
}

/// A resident process that a person starts on model `m`, without a task or limits, in its own folder.
pub(crate) fn plain(pid: Pid) -> SpawnSpec {
    SpawnSpec::resident(pid, "role", "m")
}

/// Where a file lay: a path, or the process whose own it was.
fn brought(from: &str) -> Workspace {
    from.parse().map_or_else(|_| Workspace::Folder(from.to_owned()), |pid| Workspace::Home(Pid(pid)))
}

struct Rig {
    kernel: Kernel<NoPages>,
    now: Timestamp,
    entries: Vec<Arc<Entry>>,
    /// Calls at drivers.
    calls: Vec<(Pid, CallId, String, EffectId)>,
    /// Of the last call of each process at a driver.
    authorities: BTreeMap<Pid, Authority>,
    config: Configured,
    /// Programs' requests at models, by number.
    serving: BTreeMap<u64, (Pid, EffectId)>,
    /// Of the next answer.
    personal: Option<Box<Personal>>,
    out: String,
    serial: u32,
    /// What the next answer says that it used.
    usage: Option<Usage>,
    /// How long each inference takes, for the router's measures.
    latency_ms: u64,
    /// Nothing is heard of what is configured.
    is_off: bool,
}

impl Rig {
    fn new(policy: &str) -> Rig {
        let price = Price { input: Usd(1_000_000_000), output: Usd(1_000_000_000), ..Price::default() };
        let spec = |price| ModelSpec {
            context_window: 20_000,
            max_output: 1000,
            price,
            limits: ModelLimits { concurrency: 8, rpm: None, tpm: None },
            local: false,
            encoding: Encoding::Native,
            tier: Some("small".to_owned()),
            ..ModelSpec::default()
        };
        let small = ModelSpec { context_window: 5000, encoding: Encoding::Text, ..spec(None) };
        let config = Configured {
            models: BTreeMap::from([
                ("m".to_owned(), spec(Some(price))),
                ("b".to_owned(), ModelSpec { tier: Some("strong".to_owned()), ..spec(Some(price)) }),
                ("free".to_owned(), ModelSpec { tier: None, ..spec(None) }),
                (
                    "wide".to_owned(),
                    ModelSpec { context_window: 1_000_000, tier: Some("nano".to_owned()), ..spec(None) },
                ),
                ("small".to_owned(), small),
            ]),
            default_model: "m".into(),
            policy: policy.into(),
            usd_per_day: None,
            hedge_after_ms: None,
            hooks_url: "http://hooks/".into(),
            ..Configured::default()
        };
        let mut rig = Rig {
            kernel: Kernel::new(NoPages),
            now: BEGINNING,
            entries: Vec::new(),
            calls: Vec::new(),
            authorities: BTreeMap::new(),
            config: config.clone(),
            serving: BTreeMap::new(),
            personal: None,
            out: String::new(),
            serial: 0,
            usage: None,
            latency_ms: 1,
            is_off: false,
        };
        rig.apply(
            Pid::SYSTEM,
            Body::Booted { version: "test".into(), configured: None, faulted: Vec::new(), last_pid: None },
        );
        rig.apply(Pid::SYSTEM, Body::Configured(Box::new(config)));
        rig.out.clear();
        rig
    }

    /// A whole script, after each line of which the windows can be read back from the journal while it is short.
    fn run(policy: &str, script: &str) -> Rig {
        let mut rig = Rig::new(policy);
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = writeln!(rig.out, "> {line}");
            rig.command(line);
            let looked_at = rig.entries.len() < 1000;
            for pid in (2..rig.kernel.next_pid().0).map(Pid).filter(|_| looked_at) {
                let real = rig.kernel.past(pid);
                let mismatch = real.and_then(|real| mismatch(&rig.entries, pid, real));
                assert_eq!(mismatch, None, "the window of {pid}: {}", rig.out);
            }
        }
        rig
    }

    fn command(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        if word.ends_with(':') || matches!(first, "cut:" | "fails") {
            return self.answer(line);
        }
        let pid = first.parse().map_or(Pid(0), Pid);
        match word {
            "spawn" => self.spawn(rest),
            "shown" => {
                let classes = BTreeSet::from(["email".to_owned()]);
                let tokens = BTreeMap::from([(first.to_owned(), tail.to_owned())]);
                self.personal = Some(Box::new(Personal { classes, tokens, rule: None }));
            }
            "here" => {
                self.config.models.get_mut(first).unwrap().local = true;
                self.apply(Pid::SYSTEM, Body::Configured(Box::new(self.config.clone())));
            }
            "done" | "lost" => self.result(word == "done", pid, tail),
            "reaches" => {
                let running = self.calls.iter().find(|call| call.0 == pid && call.2 == tail).unwrap();
                let request = NetRequest {
                    method: "GET".into(),
                    to: "https://example.com/".into(),
                    verdict: Verdict::Allow,
                    rule: None,
                    why: None,
                };
                let requested = Requested {
                    call_id: running.1.clone(),
                    generation: String::new(),
                    labels: Vec::new(),
                    took_us: Took::default(),
                    requests: vec![request],
                    more: 0,
                    denied: Vec::new(),
                    closed: Vec::new(),
                };
                self.offer(pid, Body::Requested(Box::new(requested)));
            }
            // `denies PID CALL INNER | INNER …`: what a call at a driver led to was denied.
            "denies" => {
                let (name, inner) = tail.split_once(' ').unwrap();
                let running = self.calls.iter().find(|call| call.0 == pid && call.2 == name).unwrap();
                let requested = Requested {
                    call_id: running.1.clone(),
                    generation: String::new(),
                    labels: Vec::new(),
                    took_us: Took::default(),
                    requests: Vec::new(),
                    more: 0,
                    denied: inner.split(" | ").map(|inner| Inner::of(&parsed(inner))).collect(),
                    closed: Vec::new(),
                };
                self.offer(pid, Body::Requested(Box::new(requested)));
            }
            // `tries PID INNER`: whether the last call at a driver may lead to that.
            "tries" => {
                let (authority, call) = (&self.authorities[&pid], parsed(tail));
                let said = authority.allows(&call).map(|allowed| allowed.rule);
                let said = said.unwrap_or_else(|error| format!("no: {}", error.message));
                let _ = writeln!(self.out, "{said}");
            }
            "input" => {
                self.offer(pid, Body::Input { text: tail.into(), eof: false, from_pid: Pid::INIT, untrusted: false })
            }
            "passed" => {
                self.offer(pid, Body::Input { text: tail.into(), eof: false, from_pid: Pid::INIT, untrusted: true })
            }
            "eof" => {
                self.offer(pid, Body::Input { text: String::new(), eof: true, from_pid: Pid::INIT, untrusted: false })
            }
            "signal" => {
                let (name, tree) = tail.split_once(' ').map_or((tail, false), |(name, tree)| (name, tree == "tree"));
                self.offer(pid, Body::Signal { signal: name.parse().unwrap(), from_pid: Pid::INIT, tree });
            }
            // `group GROUP SIGNAL [tree]`, by a person.
            "group" => {
                let (name, tree) = tail.split_once(' ').map_or((tail, false), |(name, tree)| (name, tree == "tree"));
                let (group, signal) = (first.to_owned(), name.parse().unwrap());
                self.offer(Pid::SYSTEM, Body::GroupSignal { group, signal, tree });
            }
            "unschedule" => self.offer(pid, Body::Unscheduled { timer_id: tail.to_owned() }),
            "budget" => {
                let keys = keys(tail).0;
                self.offer(pid, Body::Budgeted { budget: budget(&keys) });
            }
            "key" => {
                let keys = keys(tail).0;
                self.serial += 1;
                let key = Key {
                    sha256: format!("{:064x}", self.serial),
                    owner: None,
                    rpm: keys.get("rpm").and_then(|text| text.parse().ok()),
                    tiers: keys
                        .get("tiers")
                        .map(|list| list.split(',').map(str::to_owned).collect())
                        .unwrap_or_default(),
                };
                self.offer(pid, Body::Keyed(Box::new(key)));
            }
            "ask" => {
                let mut words = tail.split(' ');
                let asked = Asked {
                    request: words.next().unwrap().parse().unwrap(),
                    model: words.next().unwrap().to_owned(),
                    format: Format::Chat,
                    input_tokens: 1000,
                    max_output: words.next().and_then(|text| text.parse().ok()),
                    needs: Ability::ALL.into_iter().filter(|ability| tail.contains(ability.name())).collect(),
                    more: 0,
                };
                self.offer(pid, Body::Asked(Box::new(asked)));
            }
            "hangup" => self.offer(pid, Body::Withdrawn { request: tail.parse().unwrap() }),
            "serve" => self.served(rest),
            "approve" => self.proposal(first, ProposalState::Approved, None),
            "standing" => self.proposal(first, ProposalState::Standing, None),
            "expire" => self.proposal(first, ProposalState::Expired, None),
            "reject" => self.proposal(first, ProposalState::Rejected, Some(tail)),
            "hook" => self.hook(first),
            "nowhere" => self.configure(|config| config.hooks_url.clear()),
            "watch" => self.offer(pid, Body::Watch { watch_id: tail.into(), paths: ["a.txt".to_owned()].into() }),
            "fork" => self.fork(pid),
            "prune" => self.offer(Pid::SYSTEM, Body::Pruned { pids: vec![pid], entries: 0 }),
            "day" => self.configure(|config| config.usd_per_day = first.parse().ok().and_then(Usd::from_dollars)),
            "price" => self.configure(|config| {
                let usd = first.parse().ok().and_then(Usd::from_dollars).unwrap();
                let price = Price { input: usd, output: usd, ..Price::default() };
                config.models.values_mut().for_each(|model| model.price = Some(price));
            }),
            "times" => (0..first.parse().unwrap()).for_each(|_| self.command(tail)),
            // `PART => PART`: the policy's text with one part replaced by another.
            "policy" => {
                let (old, new) = rest.split_once(" => ").unwrap();
                self.configure(|config| {
                    assert!(config.policy.contains(old), "the policy has no `{old}`");
                    config.policy = config.policy.replace(old, &new.replace("\\n", "\n"));
                });
            }
            "drop" => self.configure(|config| config.models.retain(|name, _| name != first)),
            "slots" => self.configure(|config| {
                config.models.values_mut().for_each(|model| model.limits.concurrency = first.parse().unwrap());
            }),
            "model" => self.configure(|config| {
                let keys = keys(tail).0;
                let spec = config.models.entry(first.to_owned()).or_insert_with(|| ModelSpec {
                    context_window: 20_000,
                    max_output: 1000,
                    ..ModelSpec::default()
                });
                let number = |key: &str| keys.get(key).map(|text| text.parse().unwrap());
                spec.tier = keys.get("tier").cloned().or(spec.tier.take());
                spec.endpoint = keys.get("at").cloned().or(spec.endpoint.take());
                spec.context_window = number("window").unwrap_or(spec.context_window);
                spec.max_output = number("output").unwrap_or(spec.max_output);
                if let Some(can) = keys.get("can") {
                    spec.images = can.contains("images");
                    spec.reasoning = can.contains("reasoning");
                    spec.json_schema = can.contains("json_schema");
                }
                spec.limits.concurrency = number("limit").unwrap_or(spec.limits.concurrency);
                if let Some(price) = keys.get("price").map(|text| text.parse().unwrap()) {
                    let usd = Usd::from_dollars(price).unwrap();
                    spec.price = Some(Price { input: usd, output: usd, ..Price::default() });
                }
            }),
            "only" => {
                self.configure(|config| config.models.retain(|name, _| first.split(',').any(|kept| kept == name)));
            }
            "hedge" => self.configure(|config| config.hedge_after_ms = first.parse().ok()),
            "silent" => {
                let effect = self.asked_last(pid).map(|(effect, _)| effect);
                let effect = effect.unwrap_or(EffectId { cause: Lsn(0), nth: 0 });
                self.offer(pid, Body::Silent { effect });
            }
            "fallback" => self.configure(|config| config.fallback = first.split(',').map(str::to_owned).collect()),
            "usage" => {
                let (input_tokens, output_tokens) = (first.parse().unwrap(), tail.parse().unwrap());
                self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
            }
            "unpriced" => {
                let asked = RouteRequest { model: Some(first.to_owned()), ..RouteRequest::default() };
                let said = self.kernel.unpriced(&asked, tail == "own");
                let _ = writeln!(self.out, "holds not for: {}", said.join(", "));
            }
            "latency" => self.latency_ms = first.parse().unwrap(),
            "route" => {
                let said = self.kernel.route_of(pid);
                for (nth, choice) in said.order.iter().enumerate() {
                    let _ = writeln!(self.out, "{}. {}: {}", nth + 1, choice.model, choice.why);
                }
                for choice in said.barred {
                    let _ = writeln!(self.out, "-  {}: {}", choice.model, choice.why);
                }
            }
            "after" => self.after(first.parse().unwrap()),
            "off" => {
                self.now = self.now.plus_seconds(first.parse().unwrap());
                self.boot();
            }
            "boot" => self.boot(),
            // Changed while it is off: the next boot finds it so.
            "meanwhile" => {
                self.is_off = true;
                self.command(rest);
                self.is_off = false;
            }
            "ps" => self.ps(pid),
            "risks" => {
                for open in self.kernel.proposals() {
                    let _ = writeln!(self.out, "{} {}", open.id, open.risk.unwrap_or_default());
                }
            }
            // Whether a yes counts that names nothing, and one that names what is shown.
            "counts" => {
                for open in self.kernel.proposals() {
                    let mut said = |shown| self.kernel.check_shown(&open.id, shown).map_err(|error| error.message);
                    let (bare, named) = (said(None), said(Some(open.shown.as_str())));
                    let _ = writeln!(self.out, "{} {}; named: {}", open.id, yes(bare), yes(named));
                }
            }
            "rules" => {
                for open in self.kernel.proposals() {
                    let unbound = open.unbound.map(|unbound| format!("; {unbound}")).unwrap_or_default();
                    let _ = writeln!(self.out, "{} {}{unbound}", open.id, open.rule);
                }
            }
            "explain" => self.explain(pid, tail),
            "budgets" => self.budgets(),
            "rest" => {
                let usage = self.usage.take();
                let heard = usage.zip(self.asked_last(pid)).map(|(usage, (effect, _))| Cut {
                    effect,
                    usage: Usage { estimated: usage != Usage::default(), ..usage },
                });
                self.apply(Pid::SYSTEM, Body::Rested { cut: heard.into_iter().collect() });
            }
            "idle" => {
                let due = self.kernel.next_deadline();
                let _ = writeln!(self.out, "{}", due.map_or("nothing is due".into(), |at| format!("due at {at}")));
            }
            other => panic!("no command `{other}`"),
        }
    }

    fn spawn(&mut self, rest: &str) {
        let (mode, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (keys, task) = keys(rest);
        let number = |key: &str| keys.get(key).and_then(|text| text.parse().ok()).map(Pid);
        let pid = self.kernel.next_pid();
        let spec = SpawnSpec {
            parent: number("parent").unwrap_or(Pid::INIT),
            name: keys.get("name").cloned(),
            group: keys.get("group").cloned(),
            task: (!task.is_empty()).then_some(task),
            mode: match mode {
                "oneshot" => Mode::OneShot,
                "program" => Mode::Program,
                _ => Mode::Resident,
            },
            model: keys.get("model").cloned().unwrap_or_else(|| "m".into()),
            policy_role: keys.get("role").cloned(),
            grants: keys.get("grants").map(|list| list.split(',').map(|grant| grant.replace('+', " ")).collect()),
            budget: budget(&keys),
            pipe_to: number("pipe"),
            workspace: keys.get("folder").cloned().map_or(Workspace::Home(pid), Workspace::Folder),
            copy_of: keys.get("copy").cloned(),
            brought: keys.get("brought").map(|from| vec![brought(from)]).unwrap_or_default(),
            untrusted: keys.contains_key("untrusted"),
            trusted: keys.contains_key("trusted"),
            ..plain(pid)
        };
        self.offer(pid, Body::Spawned(Box::new(spec)));
    }

    fn asked_last(&self, pid: Pid) -> Option<(EffectId, String)> {
        self.asked(pid, |_| true)
    }

    fn asked_of(&self, pid: Pid, of: &str) -> Option<(EffectId, String)> {
        self.asked(pid, |model| model == of)
    }

    fn asked(&self, pid: Pid, which: impl Fn(&str) -> bool) -> Option<(EffectId, String)> {
        self.entries.iter().rev().find_map(|entry| match &entry.body {
            Body::InferenceStarted { effect, model, .. } if entry.pid == pid && which(model) => {
                Some((*effect, model.clone()))
            }
            _ => None,
        })
    }

    /// A model answers or fails.
    fn answer(&mut self, line: &str) {
        let (head, said) = line.split_once(": ").unwrap_or((line, ""));
        let mut words = head.trim_end_matches(':').split(' ');
        // `2@small` is what process 2 asks of that model.
        let (number, of) = words.next().unwrap().split_once('@').map_or_else(
            || (head.trim_end_matches(':').split(' ').next().unwrap(), None),
            |(number, model)| (number, Some(model)),
        );
        let pid = Pid(number.parse().unwrap());
        let started = match of {
            None => self.asked_last(pid),
            Some(model) => self.asked_of(pid, model),
        };
        let Some((effect, model)) = started else { return self.out.push_str("it asks nothing\n") };
        let known = Usage { input_tokens: 1000, output_tokens: 100, ..Usage::default() };
        let told = self.usage.take();
        let usage = told.unwrap_or(known);
        let outcome = match words.next() {
            Some("fails") => {
                let kind = match words.next().unwrap() {
                    "transient" => FailureKind::Transient,
                    "permanent" => FailureKind::Permanent,
                    "refused" => FailureKind::Refused,
                    "toolong" => FailureKind::TooLong,
                    "cancelled" => FailureKind::Cancelled,
                    "withheld" => FailureKind::Withheld,
                    "here" => FailureKind::Here,
                    other => panic!("no kind `{other}`"),
                };
                let retry_after_ms = words.next().map(|text| text.parse().unwrap());
                let (message, hint) = ("it failed".into(), Some("do this".into()));
                // As much of an answer as came is counted by whoever gave it up.
                let usage = told.map(|told| Usage { estimated: told.output_tokens > 0, ..told });
                InferenceOutcome::Failed {
                    failure: Failure { kind, message, hint, retry_after_ms, usage, unreachable: false },
                }
            }
            cut => {
                let said = format!(" {said}");
                let mut parts = said.split(" => ");
                let text = parts.next().unwrap_or_default().trim().to_owned();
                let text = text.replace("LONG", &"word ".repeat(1500));
                let calls: Vec<NativeCall> = parts.map(|part| self.call(part)).collect();
                let stop = match cut {
                    Some(_) => Stop::Length,
                    None if calls.is_empty() => Stop::End,
                    None => Stop::Calls,
                };
                // Who is cut off says nothing of what was used: it is told by whoever read it.
                let usage = Usage { estimated: told.is_some() && stop == Stop::Length, ..usage };
                InferenceOutcome::Answered(Reply { text, calls, stop, usage, model })
            }
        };
        let personal = self.personal.take();
        self.offer(pid, Body::InferenceCompleted { effect, latency_ms: self.latency_ms, personal, outcome });
    }

    /// A program's request is over.
    fn served(&mut self, rest: &str) {
        let mut words = rest.split(' ');
        let Some((pid, effect)) = self.serving.remove(&words.next().unwrap().parse().unwrap()) else {
            return self.out.push_str("it is not served\n");
        };
        let usage = self.usage.unwrap_or(Usage { input_tokens: 1000, output_tokens: 100, ..Usage::default() });
        let outcome = match (words.next(), words.next()) {
            (Some("fails"), Some(kind)) => {
                let unreachable = kind == "unreachable";
                let kind = match kind {
                    "transient" | "unreachable" => FailureKind::Transient,
                    "cancelled" => FailureKind::Cancelled,
                    "refused" => FailureKind::Refused,
                    _ => FailureKind::Permanent,
                };
                let retry_after_ms = words.next().map(|text| text.parse().unwrap());
                let (message, hint) = ("it failed".into(), Some("do this".into()));
                let failure = Failure { kind, message, hint, retry_after_ms, usage: None, unreachable };
                ServedOutcome::Failed { failure }
            }
            (Some("broken"), _) => ServedOutcome::Answered { usage: Usage { estimated: true, ..usage }, whole: false },
            _ => ServedOutcome::Answered { usage, whole: true },
        };
        self.offer(pid, Body::Served { effect, latency_ms: 1, personal: None, outcome });
    }

    fn call(&mut self, part: &str) -> NativeCall {
        let (name, arguments) = part.trim().split_once(' ').unwrap_or((part.trim(), "{}"));
        self.serial += 1;
        let (name, id) = name.split_once('#').map_or((name, format!("k{}", self.serial)), |(n, id)| (n, id.to_owned()));
        NativeCall { id, name: name.into(), arguments: arguments.into() }
    }

    fn result(&mut self, done: bool, pid: Pid, tail: &str) {
        let (name, json) = tail.split_once(' ').unwrap_or((tail, "{}"));
        let place = self.calls.iter().position(|call| call.0 == pid && call.2 == name);
        let Some(place) = place else { return self.out.push_str("no such call runs\n") };
        let (_, call_id, name, effect) = self.calls.remove(place);
        let outcome = if done {
            Outcome::Success { result: serde_json::from_str(json).unwrap() }
        } else {
            // What stands behind a call that is lost is its partial result.
            let partial = tail.contains(' ').then(|| serde_json::from_str(json).unwrap());
            Outcome::Error { error: CallError { partial, ..CallError::new(Code::Io, "it broke") } }
        };
        self.offer(pid, Body::Result { call_id, name, effect: Some(effect), outcome });
    }

    fn proposal(&mut self, id: &str, state: ProposalState, why: Option<&str>) {
        let pid = self.kernel.proposal_owner(id).unwrap_or(Pid::SYSTEM);
        self.offer(pid, Body::Proposal { id: id.into(), state, proposal: None, why: why.map(str::to_owned) });
    }

    fn hook(&mut self, path: &str) {
        let Some((pid, route)) = self.kernel.route(path) else {
            self.out.push_str("no route\n");
            return;
        };
        self.serial += 1;
        let reply_by = (route.reply_within_s > 0).then(|| self.now.plus_millis(route.reply_within_s * 1000));
        let request = WebhookRequest {
            id: format!("r{}", self.serial),
            method: "POST".into(),
            path: path.into(),
            headers: BTreeMap::new(),
            body: "{}".into(),
            encoding: None,
            reply_by,
        };
        self.offer(pid, Body::Webhook(request));
    }

    fn fork(&mut self, from: Pid) {
        let spec = self.kernel.fork_of(from).unwrap();
        let window = self.kernel.past(from).unwrap_or_default();
        let rests = self.kernel.rests(from);
        let body = Body::Forked { from_pid: from, from_lsn: self.kernel.lsn(), spec: Box::new(spec), window, rests };
        self.offer(self.kernel.next_pid(), body);
    }

    fn configure(&mut self, change: impl FnOnce(&mut Configured)) {
        change(&mut self.config);
        if !self.is_off {
            let config = self.config.clone();
            self.offer(Pid::SYSTEM, Body::Configured(Box::new(config)));
        }
    }

    fn after(&mut self, seconds: f64) {
        let until = self.now.plus_seconds(seconds);
        while let Some(at) = self.kernel.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.apply(Pid::SYSTEM, Body::Tick);
        }
        self.now = until;
    }

    fn boot(&mut self) {
        let mut kernel = Kernel::new(NoPages);
        let mut made: Vec<Arc<Entry>> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.cause.is_none()) {
            made.extend(kernel.apply(entry.at, entry.pid, entry.body.clone()).entries);
        }
        assert_eq!(made, self.entries, "a replay makes the same entries");
        self.kernel = kernel;
        self.calls.clear();
        let configured = (**self.kernel.config() != self.config).then(|| Box::new(self.config.clone()));
        self.apply(
            Pid::SYSTEM,
            Body::Booted { version: "test".into(), configured, faulted: Vec::new(), last_pid: None },
        );
        if self.kernel.next_deadline().is_some_and(|at| at <= self.now) {
            self.apply(Pid::SYSTEM, Body::Tick);
        }
    }

    fn offer(&mut self, pid: Pid, body: Body) {
        match self.kernel.check_at(self.now, pid, &body) {
            Ok(()) => self.apply(pid, body),
            Err(error) => {
                let _ = writeln!(self.out, "refused: {}", words(&error));
            }
        }
    }

    fn apply(&mut self, pid: Pid, body: Body) {
        let applied = self.kernel.apply(self.now, pid, body);
        self.entries.extend(applied.entries.iter().cloned());
        for entry in applied.entries.iter().skip(1) {
            // What was charged is in `budgets`; here only where nobody lives to see it.
            let charged = matches!(entry.body, Body::Charged { .. });
            if charged && self.kernel.process(entry.pid).is_some_and(|process| process.phase != Phase::Exited) {
                continue;
            }
            if let Some(line) = fact(entry) {
                let _ = writeln!(self.out, "{} {line}", entry.pid);
            }
        }
        for effect in applied.effects {
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: Effect) {
        let line = match effect {
            Effect::Infer(infer) => {
                let items: Vec<String> = infer.items.iter().map(|lsn| self.label(*lsn)).collect();
                let told = infer.status.split("; ").find(|part| part.starts_with("nearly spent"));
                let told = told.map(|told| format!(", told: {told}")).unwrap_or_default();
                format!("infer {} {:?} [{}]", infer.pid, infer.purpose, items.join(", ")).to_lowercase() + &told
            }
            Effect::Call { id, pid, call_id, permit, authority, .. } => {
                let name = permit.call().name().as_str().to_owned();
                let lets: Vec<String> = authority.standing.iter().map(|one| one.id.clone()).collect();
                let lets = if lets.is_empty() { String::new() } else { format!(", with {}", lets.join(", ")) };
                self.authorities.insert(pid, authority);
                let line = format!("call {pid} {name} {}{lets}", permit.call().args());
                self.calls.push((pid, call_id, name, id));
                line
            }
            Effect::Serve(serve) => {
                self.serving.insert(serve.request, (serve.pid, serve.id));
                // Paid by an earlier entry, it waits for the disk no more.
                let ahead = if serve.paid_by < serve.id.cause { ", paid ahead" } else { "" };
                let Serve { pid, request, model, max_output, .. } = *serve;
                format!("serve {pid} {request} by {model}, at most {max_output}{ahead}")
            }
            Effect::Refuse { request, error } => format!("refuse {request}: {}", words(&error)),
            Effect::Cancel(_) => "cancel".to_owned(),
            Effect::Policy(_) => "another policy".to_owned(),
            Effect::Examine { pid, id, .. } => {
                // Seen at once, and there is nothing to see.
                let examined = Examined { id, files: Vec::new(), diff: String::new(), unbound: None };
                self.apply(pid, Body::Examined(Box::new(examined)));
                return;
            }
            Effect::Watch { pid, watch_id, .. } => format!("watch {pid} {watch_id}"),
            Effect::Unwatch { pid, watch_id } => format!("unwatch {pid} {watch_id}"),
            Effect::WebhookReply { request_id, status, .. } => format!("reply {request_id} {status}"),
        };
        let _ = writeln!(self.out, "  → {line}");
    }

    /// An entry in a window, in a word or two.
    fn label(&self, lsn: Lsn) -> String {
        let Some(entry) = self.entries.get(usize::try_from(lsn.0).unwrap() - 1) else { return "?".into() };
        match &entry.body {
            Body::Spawned(_) => "task".into(),
            Body::Input { text, .. } if text.is_empty() => "eof".into(),
            Body::Input { text, .. } => format!("input {text}"),
            Body::Message { content, .. } => format!("message {content}"),
            Body::Timer { prompt, .. } => format!("timer {prompt}"),
            Body::InferenceCompleted { .. } => "turn".into(),
            Body::Result { name, .. } => name.to_lowercase(),
            Body::Exited { .. } => format!("end of {}", entry.pid),
            Body::Reaped { children } => format!("{} put away", children.len()),
            Body::Lifted { id, .. } => format!("{id} lifted"),
            Body::Compacted { .. } => "summary".into(),
            Body::Signal { signal, .. } => format!("{signal}"),
            other => other.kind().into(),
        }
    }

    fn ps(&mut self, pid: Pid) {
        let view = self.kernel.view(pid).unwrap();
        let more = [view.waiting_for.map(|what| format!(" for {what}")), view.reason.map(|why| format!(": {why}"))];
        let more: String = more.into_iter().flatten().collect();
        let _ = writeln!(self.out, "{pid} is {}{more}", view.state.as_str());
    }

    fn explain(&mut self, pid: Pid, call: &str) {
        let (name, args) = call.split_once(' ').unwrap_or((call, "{}"));
        let said = self.kernel.explain(pid, name, args).unwrap();
        let hint = said.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        let lacking = said.lacking.map(|lacking| format!("; {lacking}")).unwrap_or_default();
        let given = said.given.map(|lifted| format!("; given, which lifts {lifted}")).unwrap_or_default();
        let ended = if said.ended { "; it has ended" } else { "" };
        let _ = writeln!(self.out, "{} by {}{hint}{lacking}{given}{ended}", said.verdict.as_str(), said.rule);
    }

    fn budgets(&mut self) {
        for pid in (2..self.kernel.next_pid().0).map(Pid) {
            let Some(process) = self.kernel.process(pid) else { continue };
            let (budget, exited) = (process.budget, matches!(process.phase, Phase::Exited));
            let usd = budget.usd;
            let limit = usd.limit.map_or("no limit".into(), |limit| Usd(limit).to_string());
            let state = if budget.closed {
                ", closed"
            } else if exited {
                ", ended"
            } else {
                ""
            };
            let _ = writeln!(
                self.out,
                "{pid} of {limit}: spent {}, reserved {}, carved {}{state}",
                Usd(usd.spent),
                Usd(usd.reserved),
                Usd(usd.carved)
            );
        }
    }
}

/// `key=value` words, and what follows them.
fn keys(text: &str) -> (BTreeMap<String, String>, String) {
    let mut keys = BTreeMap::new();
    let mut rest = text.trim();
    while let Some((key, value)) = rest.split(' ').next().and_then(|word| word.split_once('=')) {
        keys.insert(key.to_owned(), value.to_owned());
        rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
    }
    (keys, rest.to_owned())
}

fn budget(keys: &BTreeMap<String, String>) -> BudgetSpec {
    let number = |key: &str| keys.get(key).and_then(|text| text.parse().ok());
    BudgetSpec {
        usd: keys.get("usd").and_then(|text| text.parse().ok()).and_then(Usd::from_dollars),
        tokens: number("tokens"),
        calls: number("calls"),
        wall_s: number("wall"),
    }
}

fn words(error: &CallError) -> String {
    format!("{} {}", error.code, error.message)
}

/// A fact, in a line; `None` where its effect says it already.
fn fact(entry: &Entry) -> Option<String> {
    Some(match &entry.body {
        Body::Spawned(spec) => format!("spawned by {}", spec.parent),
        Body::Input { text, eof, from_pid, untrusted } => {
            let of = if *untrusted { " of others" } else { "" };
            format!("input{of} from {from_pid}: {text}{}", if *eof { "(eof)" } else { "" })
        }
        Body::Message { from_pid, content, .. } => format!("message from {from_pid}: {content}"),
        Body::Signal { signal, from_pid, .. } => format!("{signal} from {from_pid}"),
        Body::Timer { timer_id, prompt, missed, untrusted, .. } => {
            let by = if *untrusted { ", in words that others may have chosen" } else { "" };
            format!("timer {timer_id}: {prompt} ({missed} missed{by})")
        }
        Body::Verdict { given: Some(lifted), .. } => format!("given, which lifts {lifted}"),
        Body::Verdict { verdict, .. } if verdict.as_str() == "allow" => return None,
        Body::Verdict { verdict, rule, .. } => format!("{} by {rule}", verdict.as_str()),
        Body::Routed { model, was: None, why } => format!("runs on {model}: {why}"),
        Body::Routed { model, was: Some(was), why } => format!("goes from {was} to {model}: {why}"),
        Body::Hedged { model, why, .. } => format!("asks {model} too: {why}"),
        Body::Circuit { of, state, until, why } => {
            let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!("circuit {of} {state:?}{until} {why}").trim_end().to_owned()
        }
        Body::Syscall { .. } | Body::InferenceStarted { .. } => return None,
        Body::Result { name, outcome: Outcome::Success { result }, .. } => format!("{name} = {}", short(result)),
        Body::Result { name, outcome: Outcome::Error { error }, .. } => format!("{name} = {}", words(error)),
        Body::Proposal { id, state: ProposalState::Denied, proposal: Some(proposal), .. } => {
            let led = proposal.led.as_ref().map(|led| format!(", led there by {led}")).unwrap_or_default();
            let inner = if proposal.inner.is_empty() { "" } else { "EXEC_CMD with " };
            match &proposal.closed {
                None => format!("{id} would take {inner}{}{led}", proposal.grants.join(", ")),
                Some(why) => format!("{id} is closed{led}: {why}"),
            }
        }
        Body::Proposal { id, state, .. } => format!("proposal {id} {state:?}").to_lowercase(),
        Body::Lifted { id, reach, call, .. } => format!("told of {id}: {reach:?}, {call}"),
        Body::Ahead { usd, tokens } => format!("sets aside {usd}, {tokens} tokens"),
        Body::Charged { usage, cost_usd, why, .. } => {
            let cost = cost_usd.map_or("unknown".into(), |cost| cost.to_string());
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("charged {} + {} tokens, {cost}{why}", usage.input_tokens, usage.output_tokens)
        }
        Body::NearlySpent(budget) => format!("nearly spent: {budget}"),
        Body::Compacted { .. } => "compacted".into(),
        Body::Exited { exit_code, result, reason, awaited } => {
            let with = if awaited.is_empty() { String::new() } else { format!(" with {}", awaited.join(", ")) };
            let result = result.as_ref().map_or(String::new(), |result| format!(" = {}", short(result)));
            format!("exited {exit_code}: {reason}{with}{result}")
        }
        Body::Refused { .. } => return None,
        Body::Stopped { reason, until: None } => format!("stopped: {reason}"),
        Body::Stopped { reason, until: Some(until) } => format!("waits until {until}: {reason}"),
        Body::Reaped { children } => format!("put away {}", children.len()),
        Body::Labelled { labels } => format!("labelled {}", labels.join(", ")),
        other => other.kind().into(),
    })
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(90).collect()
}

fn yes(said: Result<(), String>) -> String {
    said.map_or_else(|why| why, |()| "yes".to_owned())
}
