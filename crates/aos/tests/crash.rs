//! Crashes, end to end: the daemon is killed again and again while agents work, and nothing is lost or done twice.
//!
//! Start at [`agents_work_on_through_twenty_power_cuts`]. The moments are random; the seed is printed, and
//! `AOS_E2E_SEED` repeats them as far as a machine's timing lets anything be repeated. What always holds: what these
//! tests compare with is the journal, the disk and what the model was shown, never the daemon's own word alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aos_abi::{Body, Entry, Pid, Timestamp};
use aos_journal::{Journal, OpenOptions};
use aos_models::scripted::{Answer, Rule};
use serde_json::{Value, json};

use rig::{Rig, any, call, calls, echo, role, say, until, words, write};

/// How often the daemon is killed.
const KILLS: u64 = 20;
/// Agents that work through the task.
const WORKERS: usize = 4;
/// Calls of each.
const STEPS: usize = 24;

/// SplitMix64 (Steele, Lea and Flood, 2014): enough for moments, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn seeded() -> Chance {
        let given = std::env::var("AOS_E2E_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = given.unwrap_or(clock);
        println!("AOS_E2E_SEED={seed}");
        Chance(seed)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// Step `step` of worker `worker`.
fn step(worker: usize, step: usize) -> Answer {
    let answer = match step {
        3 => call(
            "SPAWN_AGENT",
            json!({ "role": format!("<child{worker}>"), "task": "make the file", "permissions": ["FS_WRITE **"] }),
        ),
        7 => call("WAIT", json!({})),
        _ if step.is_multiple_of(4) => write(&format!("step-{step}.txt"), &format!("worker {worker} step {step}")),
        _ if step % 4 == 1 => {
            call("FS_WRITE", json!({ "path": "counter.txt", "content": format!("{step}\n"), "mode": "append" }))
        }
        _ if step % 4 == 2 => call("SEND_MSG", json!({ "to": "sink", "content": format!("<w{worker} m{step}>") })),
        _ => call("MEM_WRITE", json!({ "key": format!("w{worker} k{step}"), "value": format!("value {step}") })),
    };
    Answer { delay_ms: 25, ..answer }
}

fn script() -> Vec<Rule> {
    let mut rules = vec![role("<sink>", vec![say("noted")]), role("<echo>", vec![say("heard")])];
    for worker in 0..WORKERS {
        let child = format!("<child{worker}>");
        rules.push(role(
            &child,
            vec![
                Answer { delay_ms: 60, ..write(&format!("child-{worker}.txt"), "made") },
                say(&format!("child of {worker} is done")),
            ],
        ));
        let mut answers: Vec<Answer> = (0..STEPS).map(|nth| step(worker, nth)).collect();
        answers.push(say(&format!("worker {worker} is done")));
        rules.push(any(&format!("<worker{worker}>"), answers));
    }
    rules
}

/// What somebody was told is in the journal for ever.
type Acknowledged = Vec<(u64, String)>;

/// Sends numbered input for as long as it is asked to, and remembers what was acknowledged.
fn keep_sending(rig: &Rig, pid: u64, stop: &AtomicBool) -> Acknowledged {
    let mut acknowledged = Vec::new();
    for number in 0..150 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let text = format!("<input {number}>");
        // A daemon that is away or full refuses; that is no acknowledgement.
        if let Ok(answer) = rig.try_http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&json!({ "text": text })))
            && answer.status == 200
        {
            acknowledged.push((answer.json()["lsn"].as_u64().unwrap(), text));
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    acknowledged
}

#[test]
fn agents_work_on_through_twenty_power_cuts() {
    let mut chance = Chance::seeded();
    let rig = Rig::new(script());
    rig.up();
    let sink = rig.spawn(&["--role", "<sink>", "--name", "sink"]);
    let echo = rig.spawn(&["--role", "<echo>"]);
    let workers: Vec<u64> = (0..WORKERS)
        .map(|worker| {
            let asked = json!({ "task": format!("work as <worker{worker}>"), "mode": "one_shot" });
            rig.http("POST", "/v1/processes", Some(&asked)).json()["pid"].as_u64().unwrap()
        })
        .collect();
    let stop = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let sender = scope.spawn(|| keep_sending(&rig, echo, &stop));
        for kill in 0..KILLS {
            std::thread::sleep(Duration::from_millis(chance.below(120)));
            rig.kill_daemon();
            let up = rig.aos(&["up"]);
            if up.code != 0 {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(up.code, 0, "after kill {kill}: {up:?}\n{}", rig.log());
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    for (worker, pid) in workers.iter().enumerate() {
        let process = rig.until_state(*pid, "exited");
        assert_eq!(process["exit_code"], 0, "{process}");
        assert_eq!(process["result"], format!("worker {worker} is done"), "{process}");
    }
    for pid in [sink, echo] {
        until("everything to be read", || {
            let process = rig.process(pid);
            (process["inbox"] == 0 && process["waiting_for"] == "stdin").then_some(())
        });
    }
    let journal = rig.journal();
    whole(&rig, &journal);
    every_acknowledged_input_is_there_and_none_twice(&rig, &journal, echo, &acknowledged);
    every_message_came_once(&rig, &journal, sink);
    for (worker, pid) in workers.iter().enumerate() {
        files_are_as_the_results_say(&rig, &journal, worker, *pid);
        let replay = rig.aos(&["replay", &pid.to_string()]);
        assert_eq!(replay.code, 0, "{replay:?}");
    }
    println!(
        "{} entries, {} acknowledged inputs, {} calls of unknown outcome",
        journal.len(),
        acknowledged.len(),
        journal.iter().filter(|entry| entry["error"]["code"] == "EINTR").count()
    );
}

/// The journal has no gap, every start is in it, and each effect came back once.
fn whole(rig: &Rig, journal: &[Value]) {
    let verified = rig.json(&["audit", "verify"]);
    assert_eq!(verified["intact"], true, "{verified}");
    assert!(journal.iter().enumerate().all(|(at, entry)| entry["lsn"] == at + 1), "the numbers have a gap");
    let boots = journal.iter().filter(|entry| entry["type"] == "booted").count() as u64;
    assert!(boots >= KILLS, "{boots} starts");
    let mut outcomes = BTreeMap::<&str, u32>::new();
    for entry in journal.iter().filter(|entry| entry["type"] == "inference_completed" || entry["type"] == "result") {
        if let Some(effect) = entry["effect"].as_str() {
            *outcomes.entry(effect).or_default() += 1;
        }
    }
    let twice: Vec<_> = outcomes.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "effects that came back twice: {twice:?}");
}

fn every_acknowledged_input_is_there_and_none_twice(rig: &Rig, journal: &[Value], pid: u64, told: &Acknowledged) {
    assert!(!told.is_empty(), "nothing was acknowledged, so nothing was tested");
    for (lsn, text) in told {
        let entry = &journal[usize::try_from(*lsn).unwrap() - 1];
        assert_eq!((&entry["type"], &entry["pid"], &entry["text"]), (&json!("input"), &json!(pid), &json!(text)));
    }
    let inputs: Vec<&str> = journal
        .iter()
        .filter(|entry| entry["type"] == "input" && entry["pid"] == pid)
        .filter_map(|entry| entry["text"].as_str())
        .collect();
    assert_eq!(inputs.iter().collect::<BTreeSet<_>>().len(), inputs.len(), "{inputs:?}");
    let shown = words(rig.requests_with("<echo>").last().unwrap());
    for text in inputs {
        assert_eq!(shown.matches(text).count(), 1, "{text} was shown to the agent so often");
    }
}

fn every_message_came_once(rig: &Rig, journal: &[Value], sink: u64) {
    let came: Vec<&str> = journal
        .iter()
        .filter(|entry| entry["type"] == "message" && entry["pid"] == sink)
        .filter_map(|entry| entry["content"].as_str())
        .collect();
    let shown = words(rig.requests_with("<sink>").last().unwrap());
    for worker in 0..WORKERS {
        let sent: Vec<String> = (0..STEPS).filter(|step| step % 4 == 2).map(|m| format!("<w{worker} m{m}>")).collect();
        let mine = format!("<w{worker} ");
        let got: Vec<&str> = came.iter().copied().filter(|content| content.starts_with(&mine)).collect();
        assert_eq!(got, sent, "each once, in order");
        for content in sent {
            assert_eq!(shown.matches(&content).count(), 1, "{content} was shown to the receiver so often");
        }
    }
}

fn files_are_as_the_results_say(rig: &Rig, journal: &[Value], worker: usize, pid: u64) {
    let folder = rig.file(&format!("workspaces/{pid}"));
    let of = |kind: &str| journal.iter().filter(move |e| e["pid"] == pid && e["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("syscall").len(), STEPS, "each step once");
    assert_eq!(of("result").len(), STEPS, "each call has one result");
    for step in (0..STEPS).filter(|step| step.is_multiple_of(4)) {
        let content = rig::read(folder.join(format!("step-{step}.txt")));
        assert_eq!(content, format!("worker {worker} step {step}"));
    }
    assert_eq!(rig::read(folder.join(format!("child-{worker}.txt"))), "made");
    let role = format!("<child{worker}>");
    let children = journal.iter().filter(|e| e["type"] == "spawned" && e["role"] == role).count();
    assert_eq!(children, 1, "one child was asked for");
    // An append is not idempotent: done once where it says so, at most once where its outcome is unknown.
    let counter = rig::read(folder.join("counter.txt"));
    let lines: Vec<usize> = counter.lines().map(|line| line.parse().unwrap()).collect();
    for (syscall, result) in of("syscall").iter().zip(of("result")) {
        assert_eq!(syscall["call_id"], result["call_id"]);
        if syscall["args"]["mode"] == "append" {
            let step: usize = syscall["args"]["content"].as_str().unwrap().trim().parse().unwrap();
            let times = lines.iter().filter(|line| **line == step).count();
            match (result["status"].as_str(), result["error"]["code"].as_str()) {
                (Some("SUCCESS"), _) => assert_eq!(times, 1, "step {step} of worker {worker}: {counter:?}"),
                (_, Some("EINTR")) => assert!(times <= 1, "step {step} of worker {worker} ran again: {counter:?}"),
                _ => panic!("{result}"),
            }
        } else {
            assert_eq!(result["status"], "SUCCESS", "{syscall} {result}");
        }
    }
}

#[test]
fn a_call_that_may_not_be_repeated_comes_back_as_eintr() {
    // Appending this much takes long enough to be hit while it runs.
    let much = "x".repeat(3 << 20);
    let append = |text: &str| json!({ "path": "big.txt", "content": text, "mode": "append" });
    let rig = Rig::new(vec![any(
        "alpha",
        vec![call("FS_WRITE", append(&format!("{much}\n"))), say("{{last_result.status}}{{last_result.error.code}}")],
    )]);
    let mut interrupted = 0;
    for attempt in 0..20 {
        rig.up();
        let asked = json!({ "task": "alpha", "mode": "one_shot" });
        let pid = rig.http("POST", "/v1/processes", Some(&asked)).json()["pid"].as_u64().unwrap();
        let file = rig.file(&format!("workspaces/{pid}/big.txt"));
        let end = std::time::Instant::now() + rig::DEADLINE;
        while !file.exists() {
            assert!(std::time::Instant::now() < end, "nothing is written\n{}", rig.log());
            std::thread::yield_now();
        }
        rig.kill_daemon();
        rig.up();
        let process = rig.until_state(pid, "exited");
        let results = rig.entries(pid, "result");
        let size = std::fs::metadata(&file).unwrap().len();
        assert_eq!((results.len(), &process["exit_code"]), (1, &json!(0)), "attempt {attempt}: {process}");
        if results[0]["error"]["code"] == "EINTR" {
            interrupted += 1;
            assert!(size <= much.len() as u64 + 1, "it ran again: {size} bytes");
            assert!(process["result"].as_str().unwrap().ends_with("EINTR"), "the agent was told: {process}");
            let hint = results[0]["error"]["hint"].as_str().unwrap_or_default().to_owned();
            assert!(hint.contains("before you repeat it"), "{hint}");
            if interrupted >= 3 {
                break;
            }
        } else {
            assert_eq!(size, much.len() as u64 + 1, "done once: {}", results[0]["status"]);
        }
    }
    assert!(interrupted > 0, "no call was ever hit while it ran");
}

#[test]
fn what_was_acknowledged_to_a_command_survives_a_kill_right_after() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    let mut told = Vec::new();
    for round in 0..6 {
        let text = format!("round {round}");
        let accepted = rig.json(&["send", &pid.to_string(), &text]);
        let spawned = rig.json(&["spawn", "--role", &text]);
        rig.kill_daemon();
        told.push((accepted["lsn"].clone(), "input", text.clone()));
        told.push((spawned["lsn"].clone(), "spawned", text));
    }
    rig.up();
    let journal = rig.journal();
    for (lsn, kind, text) in told {
        let entry = journal.iter().find(|entry| entry["lsn"] == lsn).unwrap();
        assert_eq!(entry["type"], kind);
        assert!(entry.to_string().contains(&text), "{entry}");
    }
    let answers = until("every answer", || {
        let said = rig.entries(pid, "inference_completed");
        let all: String = said.iter().filter_map(|entry| entry["text"].as_str()).collect();
        (rig.process(pid)["waiting_for"] == "stdin" && all.contains("round")).then_some(all)
    });
    let shown = words(rig.requests_with("round 5").last().unwrap());
    for round in 0..6 {
        assert_eq!(shown.matches(&format!("]\nround {round}\n")).count(), 1, "{answers} {shown}");
    }
}

#[test]
fn several_starts_at_once_make_one_daemon() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    for _ in 0..3 {
        let running: Vec<_> = (0..5).map(|_| rig.start(&["run", "alpha"])).collect();
        for one in running {
            let ran = one.end();
            assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}");
        }
        assert_eq!(rig.daemons().len(), 1);
        rig.kill_daemon();
    }
}

#[test]
fn calls_of_one_reply_go_on_after_a_crash_where_they_stopped() {
    let sleep = json!({ "seconds": 1 });
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            calls(vec![
                aos_models::scripted::Call::new("FS_WRITE", json!({ "path": "log", "content": "1", "mode": "append" })),
                aos_models::scripted::Call::new("SLEEP", sleep),
                aos_models::scripted::Call::new("FS_WRITE", json!({ "path": "log", "content": "2", "mode": "append" })),
            ]),
            say("done"),
        ],
    )]);
    rig.up();
    let asked = json!({ "task": "alpha", "mode": "one_shot" });
    let pid = rig.http("POST", "/v1/processes", Some(&asked)).json()["pid"].as_u64().unwrap();
    rig.until_state(pid, "sleeping");
    rig.kill_daemon();
    rig.up();
    let process = rig.until_state(pid, "exited");
    assert_eq!((&process["result"], &process["usage"]["inferences"]), (&json!("done"), &json!(2)), "{process}");
    assert_eq!(rig::read(rig.file(&format!("workspaces/{pid}/log"))), "12");
}

#[test]
fn a_clock_that_was_ahead_once_stops_no_time() {
    let rig = Rig::new(vec![any("alpha", vec![call("SLEEP", json!({ "seconds": 1 })), say("awake")])]);
    rig.up();
    rig.stop();
    // As a start leaves it that comes before the right time does.
    let (journal, _) = Journal::open(&rig.file("journal.db"), OpenOptions::default()).unwrap();
    let hour = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let at = Timestamp(i64::try_from(hour.as_millis()).unwrap());
    let tick = Entry { lsn: journal.last().next(), at, pid: Pid::SYSTEM, cause: None, body: Body::Tick };
    journal.append_wait(vec![Arc::new(tick)]).unwrap();
    journal.close().unwrap();

    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "awake\n"), "{ran:?}");
    let status = rig.aos(&["status"]);
    assert!(status.out.contains("behind the journal's time"), "{status:?}");
    let found = rig.aos(&["doctor"]);
    assert!(found.out.contains("note  daemon   runs, and this machine's clock is "), "{found:?}");
    assert!(rig.log().contains("clock is behind the journal's time"), "{}", rig.log());
}

/// A provider may have answered to the end what a power cut took away: that is paid, and so is what is asked instead.
#[test]
fn what_was_asked_when_the_power_went_is_paid_at_its_worst_and_asked_again() {
    let silence = Answer { text: "too late".into(), delay_ms: 600_000, ..Answer::default() };
    let first = Rule { times: Some(1), ..any("", vec![silence]) };
    let rig = Rig::new(vec![first, any("", vec![say("done")])]);
    let pid = rig.spawn(&["think"]);
    until("it asks", || (rig.request_count() == 1).then_some(()));
    rig.kill_daemon();
    assert_eq!(rig.aos(&["up"]).code, 0);
    rig.until_idle(pid);
    assert_eq!(rig.request_count(), 2);
    let charged = rig.entries(pid, "charged");
    let [lost, heard] = charged.as_slice() else { panic!("{charged:?}") };
    assert_eq!((&lost["usage"]["output_tokens"], &lost["usage"]["estimated"]), (&json!(4096), &json!(true)));
    assert!(lost["why"].as_str().unwrap().contains("the daemon stopped while it was under way"), "{lost}");
    assert_eq!((heard["why"].as_str(), &heard["usage"]["estimated"]), (None, &Value::Null), "{heard}");
    let cost = rig.json(&["cost"]);
    assert_eq!(cost["total"]["estimated_usd"], lost["cost_usd"], "{cost}");
    assert!(lost["cost_usd"].as_f64().unwrap() > 0.0, "{lost}");
    let told = rig.aos(&["cost"]).out;
    assert!(told.contains("of it is estimated"), "{told}");
    let told = rig.aos(&["logs", &pid.to_string()]).out;
    assert!(told.contains("as an estimate, the most it can be: the daemon stopped"), "{told}");
}

/// A stop in good order charged the longest answer, whatever had come of it; the end of its process never did.
#[test]
fn what_had_come_of_an_answer_when_the_daemon_was_stopped_is_what_is_paid() {
    let text = "drop ".repeat(2_000);
    let drip = Answer { text, chunk_bytes: 5, write_bytes: 2_000, write_delay_ms: 600_000, ..Answer::default() };
    let first = Rule { times: Some(1), ..any("", vec![drip]) };
    let rig = Rig::new(vec![first, any("", vec![say("done")])]);
    rig.up();
    let mut events = rig.events("/v1/events?progress=true", None);
    let pid = rig.spawn(&["think"]);
    assert!(events.any(|sent| sent.event == "progress"));
    rig.stop();
    rig.up();
    let kept = rig.journal().into_iter().rfind(|entry| entry["type"] == "rested").unwrap();
    let asked = rig.entries(pid, "inference_started");
    assert_eq!(kept["cut"][0]["effect"], asked[0]["effect"], "{kept}");
    rig.until_idle(pid);
    let charged = rig.entries(pid, "charged");
    let [cut, whole] = charged.as_slice() else { panic!("{charged:?}") };
    assert_eq!((&cut["usage"]["estimated"], cut["why"].as_str()), (&json!(true), None), "{cut}");
    assert!((1..500).contains(&cut["usage"]["output_tokens"].as_u64().unwrap()), "{cut}");
    assert!(cut["usage"]["input_tokens"].as_u64().unwrap() > 0 && whole["usage"]["estimated"].is_null(), "{charged:?}");
}
