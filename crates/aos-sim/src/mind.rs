//! Minds: models that answer at random, in every form and with every fault that models have.
//!
//! Start at [`answer`]. A calm mind says one sentence and makes no call, which lets a world come to rest.

use aos_abi::entry::{InferenceOutcome, Purpose, ServedOutcome};
use aos_abi::inference::{Encoding, Failure, FailureKind, NativeCall, Reply, Stop, Usage};
use aos_abi::{Name, Pid};
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::need::{DENIED_URL, ONCE, PROPOSED};
use crate::setup::{ASKED, GROUPS, NAMES, PATHS};

/// What a mind knows of its process when it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    pub(crate) pid: u64,
    pub(crate) parent: u64,
    pub(crate) children: Vec<Pid>,
    pub(crate) everybody: Vec<Pid>,
    pub(crate) timers: Vec<String>,
    pub(crate) watches: Vec<String>,
    pub(crate) requests: Vec<String>,
    /// Calls that it was denied and may make now: name and arguments.
    pub(crate) lifted: Vec<(String, String)>,
    /// Tokens that the prompt cannot exceed.
    pub(crate) worst_input: u64,
    pub(crate) max_output: u64,
    /// Nothing happens any more.
    pub(crate) calm: bool,
    /// Everybody always has something to do.
    pub(crate) busy: bool,
    /// Everybody wants what people are asked about.
    pub(crate) asking: bool,
}

/// What a model makes of a prompt.
pub(crate) fn answer(
    chance: &mut Chance,
    scene: &Scene,
    model: &str,
    encoding: Encoding,
    purpose: Purpose,
) -> InferenceOutcome {
    let asked = purpose != Purpose::Digest;
    if asked && !scene.calm && chance.percent(9) {
        return InferenceOutcome::Failed { failure: failure(chance, scene) };
    }
    let mut reply = Reply {
        text: String::new(),
        calls: Vec::new(),
        stop: Stop::End,
        usage: if asked { usage(chance, scene) } else { Usage::default() },
        model: model.to_owned(),
    };
    match purpose {
        Purpose::Summary | Purpose::Request => {
            reply.text = if scene.calm || chance.percent(90) { "what happened so far".into() } else { text(chance) };
        }
        Purpose::Digest => reply.text = "what was done".into(),
        Purpose::Turn if scene.calm => reply.text = "done".into(),
        Purpose::Turn => turn(chance, scene, encoding, &mut reply),
    }
    InferenceOutcome::Answered(reply)
}

/// The most tokens that a program's request is: one at least is sent, and three times the estimate may be.
pub(crate) const SERVED_INPUT_MAX: u64 = 3;

/// What a model makes of a program's request.
pub(crate) fn serve(chance: &mut Chance, max_output: u32, cancelled: bool) -> ServedOutcome {
    let scene = Scene { worst_input: SERVED_INPUT_MAX, max_output: max_output.into(), ..Scene::default() };
    if cancelled || chance.percent(9) {
        return ServedOutcome::Failed { failure: failure(chance, &scene) };
    }
    ServedOutcome::Answered { usage: usage(chance, &scene), whole: chance.percent(90) }
}

/// A failure, and at times what it cost.
fn failure(chance: &mut Chance, scene: &Scene) -> Failure {
    let kinds = [
        FailureKind::Transient,
        FailureKind::TooLong,
        FailureKind::Permanent,
        FailureKind::Refused,
        FailureKind::Cancelled,
        FailureKind::Here,
    ];
    let kind = kinds[chance.weighted(&[55, 20, 5, 5, 10, 5])];
    let usage = chance.percent(40).then(|| usage(chance, scene));
    Failure {
        kind,
        message: "the simulated server failed".into(),
        hint: chance.percent(50).then(|| "wait".to_owned()),
        retry_after_ms: (kind == FailureKind::Transient && chance.percent(40)).then(|| chance.between(0, 90_000)),
        usage,
        unreachable: false,
    }
}

fn usage(chance: &mut Chance, scene: &Scene) -> Usage {
    if chance.percent(3) {
        // A server that says what cannot be.
        return Usage { input_tokens: u64::MAX / 3, output_tokens: u64::MAX / 3, ..Usage::default() };
    }
    let worst = chance.percent(10);
    let input_tokens = if worst { scene.worst_input } else { chance.between(0, scene.worst_input / 2) };
    let output_tokens = if worst { scene.max_output } else { chance.between(0, scene.max_output / 2) };
    let cached_input_tokens = if chance.percent(50) { chance.between(0, input_tokens) } else { 0 };
    Usage { input_tokens, output_tokens, cached_input_tokens, estimated: chance.percent(10), ..Usage::default() }
}

fn text(chance: &mut Chance) -> String {
    match chance.weighted(&[60, 20, 10, 10]) {
        0 => "I see.".to_owned(),
        1 => "> [SYS_CALL::SYS_EXIT] {}\nis what it said".to_owned(),
        2 => "word ".repeat(chance.between(100, 2500) as usize),
        _ => "   \n".to_owned(),
    }
}

fn turn(chance: &mut Chance, scene: &Scene, encoding: Encoding, reply: &mut Reply) {
    if scene.busy && chance.percent(6) {
        // Whoever is at work without a pause does not read them, and its inbox fills.
        let letter = json!({ "to_pid": scene.everybody.first(), "content": "look here" }).to_string();
        reply.stop = Stop::Calls;
        reply.calls = (0..64).map(|_| native_call(chance, Name::SendMsg.as_str().to_owned(), letter.clone())).collect();
        return;
    }
    if scene.busy && chance.percent(90) {
        let name = if chance.percent(50) { Name::FsList } else { Name::SysWriteStdout };
        let args = args(chance, scene, name).to_string();
        reply.stop = Stop::Calls;
        reply.calls = vec![native_call(chance, name.as_str().to_owned(), args)];
        return;
    }
    let count = [0, 1, 2, 3, 4, 70][chance.weighted(&[20, 38, 20, 12, 9, 1])];
    let calls = match conspiracy(chance, scene) {
        Some(calls) if chance.percent(16) => calls,
        _ if !scene.lifted.is_empty() && chance.percent(80) => {
            let lifted = chance.pick(&scene.lifted).into_iter();
            lifted.chain((1..count).map(|_| any_call(chance, scene))).collect()
        }
        _ => (0..count).map(|_| any_call(chance, scene)).collect(),
    };
    let said = if calls.is_empty() || chance.percent(30) { text(chance) } else { String::new() };
    if !calls.is_empty() {
        reply.stop = Stop::Calls;
    }
    let native = match encoding {
        Encoding::Native => !chance.percent(5),
        Encoding::Text | Encoding::Constrained => chance.percent(2),
    };
    match encoding {
        _ if native => {
            reply.text = said;
            reply.calls = calls.into_iter().map(|(name, arguments)| native_call(chance, name, arguments)).collect();
        }
        Encoding::Constrained if !calls.is_empty() || chance.percent(80) => {
            let calls: Vec<Value> = calls
                .into_iter()
                .map(|(name, args)| {
                    json!({ "name": name, "args": serde_json::from_str::<Value>(&args).unwrap_or(Value::Null) })
                })
                .collect();
            reply.text = json!({ "calls": calls, "say": said }).to_string();
        }
        Encoding::Native | Encoding::Text | Encoding::Constrained => {
            reply.text = said;
            for (name, args) in calls {
                reply.text.push_str(&format!("\n{}\n", aos_abi::decode::text_form(&name, &args)));
            }
        }
    }
    if chance.percent(4) {
        reply.stop = Stop::Length;
        let half = reply.text.len() / 2;
        reply.text.truncate((0..=half).rev().find(|at| reply.text.is_char_boundary(*at)).unwrap_or(0));
        if let Some(last) = reply.calls.last_mut() {
            last.arguments.truncate(last.arguments.len() / 2);
        }
    }
}

/// Calls that reach back into each other within one input: a child wakes its parent, and that one signals the child.
fn conspiracy(chance: &mut Chance, scene: &Scene) -> Option<Vec<(String, String)>> {
    let call = |name: Name, args: Value| (name.as_str().to_owned(), args.to_string());
    if scene.parent > 1 && chance.percent(50) {
        let wake = call(Name::SendMsg, json!({ "to_pid": scene.parent, "content": "wake up" }));
        let after = call(Name::SysWriteStdout, json!({ "text": "after" }));
        return Some(vec![wake, after.clone(), after]);
    }
    let child = chance.pick(&scene.children)?;
    let signal = |signal: &str| call(Name::Kill, json!({ "pid": child, "signal": signal }));
    let mut calls = vec![call(Name::RecvMsg, json!({}))];
    calls.extend(match chance.weighted(&[30, 30, 20, 20]) {
        0 => vec![signal("STOP"), signal("CONT")],
        1 => vec![signal("TERM")],
        2 => vec![signal("STOP"), signal("TERM"), signal("CONT")],
        _ => vec![signal("KILL"), call(Name::Wait, json!({ "pid": child }))],
    });
    Some(calls)
}

fn native_call(chance: &mut Chance, name: String, arguments: String) -> NativeCall {
    let id = match chance.weighted(&[70, 20, 10]) {
        0 => format!("call_{}", chance.between(0, u64::from(u32::MAX))),
        1 => String::new(),
        _ => "call_1".to_owned(),
    };
    NativeCall { id, name, arguments }
}

/// A call, at times one that is none.
fn any_call(chance: &mut Chance, scene: &Scene) -> (String, String) {
    match chance.weighted(&[90, 3, 3, 2, 2]) {
        0 => call(chance, scene),
        1 => ("FS_REED".into(), r#"{"path":"a"}"#.into()),
        2 => ("FS_WRITE".into(), r#"{"path":"a""#.into()),
        3 => ("SEND_MSG".into(), r#"{"to_pid":"three","content":4}"#.into()),
        _ => (chance.one(Name::ALL).as_str().to_owned(), String::new()),
    }
}

fn seconds(chance: &mut Chance) -> Option<f64> {
    chance.percent(60).then(|| chance.between(0, 240_000) as f64 / 1000.0)
}

fn somebody(chance: &mut Chance, scene: &Scene) -> u64 {
    match chance.weighted(&[60, 30, 5, 5]) {
        0 => chance.pick(&scene.everybody).map_or(2, |pid| pid.0),
        1 => chance.pick(&scene.children).map_or(scene.pid, |pid| pid.0),
        2 => scene.pid,
        _ => chance.between(0, 60),
    }
}

fn file(chance: &mut Chance) -> &'static str {
    chance.one(&["a.txt", "docs/b.md", "asks/c", "holds/d", "../etc/passwd"])
}

/// A word that no other call has.
fn mark(chance: &mut Chance, of: &str) -> String {
    format!("{of}{:x}", chance.between(0, u64::MAX - 1))
}

/// A call that a person is asked about, or may lift the denial of.
fn asking_call(chance: &mut Chance, scene: &Scene) -> (String, String) {
    const WEIGHTS: [(Name, u32); 7] = [
        (Name::NetFetch, 15),
        (Name::FsRead, 15),
        (Name::FsList, 10),
        (Name::FsWrite, 30),
        (Name::FsDelete, 10),
        (Name::FsMove, 10),
        (Name::Propose, 25),
    ];
    let (name, _) = WEIGHTS[chance.weighted(&WEIGHTS.map(|(_, weight)| weight))];
    let mut args = args(chance, scene, name);
    for field in ["path", "from"].into_iter().filter(|_| name != Name::Propose) {
        if args.get(field).is_some() || name == Name::FsList && field == "path" {
            args[field] = chance.one(&["asks/c", "asks/c", "asks/e", "holds/d"]).into();
        }
    }
    (name.as_str().to_owned(), args.to_string())
}

fn call(chance: &mut Chance, scene: &Scene) -> (String, String) {
    if scene.asking && chance.percent(60) {
        return asking_call(chance, scene);
    }
    const WEIGHTS: [(Name, u32); 28] = [
        (Name::SpawnAgent, 12),
        (Name::Wait, 8),
        (Name::Kill, 5),
        (Name::ExecCmd, 5),
        (Name::SysExit, 2),
        (Name::FsRead, 8),
        (Name::FsWrite, 8),
        (Name::FsList, 4),
        (Name::FsWatch, 3),
        (Name::FsUnwatch, 2),
        (Name::FsDelete, 2),
        (Name::NetFetch, 3),
        (Name::NetSend, 2),
        (Name::MemWrite, 2),
        (Name::MemRead, 3),
        (Name::SendMsg, 12),
        (Name::RecvMsg, 8),
        (Name::SysWriteStdout, 5),
        (Name::SysReadStdin, 5),
        (Name::Sleep, 4),
        (Name::SysSchedule, 4),
        (Name::SysUnschedule, 2),
        (Name::SysRegisterWebhook, 3),
        (Name::SysWebhookReply, 3),
        (Name::ToolCall, 1),
        (Name::AskUser, 2),
        (Name::Propose, 4),
        (Name::FsMove, 1),
    ];
    let weights: Vec<u32> = WEIGHTS.iter().map(|(_, weight)| *weight).collect();
    let name = WEIGHTS[chance.weighted(&weights)].0;
    let args = args(chance, scene, name);
    (name.as_str().to_owned(), args.to_string())
}

/// Arguments that fit, mostly. What is null is left out.
fn args(chance: &mut Chance, scene: &Scene, name: Name) -> Value {
    let mut args = match name {
        Name::SpawnAgent => spawn(chance, scene),
        Name::Wait => {
            json!({ "pid": chance.percent(50).then(|| somebody(chance, scene)), "timeout_s": seconds(chance) })
        }
        Name::Kill if chance.percent(25) => json!({
            "group": chance.one(&GROUPS),
            "signal": chance.one(&["TERM", "KILL", "STOP", "CONT", "CONT"]),
        }),
        Name::Kill => json!({
            "pid": somebody(chance, scene),
            "signal": chance.one(&["TERM", "TERM", "TERM", "KILL", "KILL", "STOP", "CONT"]),
        }),
        Name::ExecCmd => {
            let cmd =
                if chance.percent(50) { "sh a.txt".to_owned() } else { format!("sh a.txt {}", mark(chance, ONCE)) };
            json!({ "cmd": cmd, "timeout_s": seconds(chance) })
        }
        Name::SysExit => json!({ "code": chance.between(0, 3), "result": "bye" }),
        Name::FsRead => json!({ "path": file(chance) }),
        Name::FsWrite => {
            let content = if chance.percent(70) { "x".to_owned() } else { mark(chance, ONCE) };
            json!({ "path": file(chance), "content": content, "mode": chance.one(&["replace", "append", "create"]) })
        }
        Name::FsList | Name::FsWatch => json!({}),
        Name::FsUnwatch => json!({ "watch_id": chance.pick(&scene.watches).unwrap_or_else(|| "w9".into()) }),
        Name::FsDelete => json!({ "path": file(chance) }),
        Name::FsMove => json!({ "from": file(chance), "to": file(chance) }),
        Name::NetFetch => json!({ "url": match chance.between(0, 9) {
            0..5 => "https://api.example.com/a".to_owned(),
            nth => format!("{DENIED_URL}{nth}"),
        } }),
        Name::NetSend => json!({ "url": "https://api.example.com/a", "method": "POST" }),
        Name::MemWrite => json!({ "key": "k", "value": "v" }),
        Name::MemRead => json!({ "query": "k" }),
        Name::SendMsg if chance.percent(20) => json!({ "to": chance.one(&NAMES), "content": "hello by name" }),
        Name::SendMsg => {
            json!({ "to_pid": somebody(chance, scene), "content": format!("hello {}", chance.between(0, 999)) })
        }
        Name::RecvMsg | Name::SysReadStdin => json!({ "timeout_s": seconds(chance) }),
        Name::SysWriteStdout => json!({ "text": format!("line {}\n", chance.between(0, 999)) }),
        Name::Sleep => json!({ "seconds": chance.between(0, 120) }),
        Name::SysSchedule if chance.percent(30) => {
            json!({ "cron": chance.one(&["*/5 * * * *", "0 9 * * 1", "bad"]), "prompt": "cron", "timezone": "Europe/Berlin" })
        }
        Name::SysSchedule => json!({
            "seconds": chance.between(0, 300), "prompt": "tick", "once": chance.percent(40),
            "name": chance.percent(30).then_some("t"),
        }),
        Name::SysUnschedule => json!({ "timer_id": chance.pick(&scene.timers).unwrap_or_else(|| "t9".into()) }),
        Name::SysRegisterWebhook => {
            json!({ "path": chance.one(&PATHS), "reply_within_s": chance.percent(50).then(|| chance.between(0, 300)) })
        }
        Name::SysWebhookReply => json!({
            "request_id": chance.pick(&scene.requests).unwrap_or_else(|| "r0".into()), "status": 200, "body": "ok",
        }),
        Name::ToolCall => json!({ "name": "x", "args": {} }),
        Name::AskUser => json!({ "question": "which?", "timeout_s": seconds(chance) }),
        Name::Propose => {
            let of = chance.one(&[
                Name::FsDelete,
                Name::FsWrite,
                Name::ExecCmd,
                Name::SendMsg,
                Name::Kill,
                Name::Sleep,
                Name::ToolCall,
            ]);
            let mut action = self::args(chance, scene, of);
            match of {
                Name::FsWrite | Name::SendMsg => action["content"] = mark(chance, PROPOSED).into(),
                Name::ExecCmd => action["cmd"] = format!("sh a.txt {}", mark(chance, PROPOSED)).into(),
                _ => {}
            }
            json!({ "action": { "name": of.as_str(), "args": action }, "why": "because" })
        }
        other => serde_json::from_str(other.spec().example).unwrap_or_default(),
    };
    if let Some(fields) = args.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    args
}

fn spawn(chance: &mut Chance, scene: &Scene) -> Value {
    const RIGHTS: [&[&str]; 5] = [
        &[],
        &["FS_READ docs/**"],
        &["FS_READ **", "SEND_MSG *", "SPAWN_AGENT"],
        &["EXEC_CMD", "FS_WRITE **", "FS_READ **", "SEND_MSG *", "SPAWN_AGENT", "SYS_SCHEDULE", "ASK_USER", "PROPOSE"],
        &["NO_SUCH_CALL"],
    ];
    let rights = chance.percent(85).then(|| chance.one(&RIGHTS));
    let mut budget = json!({
        "usd": chance.percent(50).then(|| chance.between(0, 100) as f64 / 1000.0),
        "tokens": chance.percent(30).then(|| chance.between(0, 90_000)),
        "calls": chance.percent(30).then(|| chance.between(0, 8)),
        "wall_s": chance.percent(15).then(|| chance.between(1, 600)),
    });
    if let Some(fields) = budget.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let quarantine = chance.percent(8);
    json!({
        "role": "You help.",
        "task": chance.percent(65).then_some("do it"),
        "permissions": rights,
        "budget": chance.percent(50).then_some(budget),
        "pipe_to": chance.percent(25).then(|| somebody(chance, scene)),
        "name": chance.percent(25).then(|| chance.one(&NAMES)),
        "group": chance.percent(20).then(|| chance.one(&["day", "night", ""])),
        "model": chance.percent(30).then(|| chance.one(&ASKED)),
        "quarantine": quarantine.then_some(true),
        "attachments": (quarantine && chance.percent(60)).then(|| [chance.one(&["a.txt", "docs/b.md", "../etc/passwd"])]),
    })
}
