//! Many at once, end to end: a hundred agents, fifty webhooks, timers, and all of it across a restart.
//!
//! Start at the first test. What always holds: each request is counted where it arrives and where it is answered.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::collections::{BTreeMap, BTreeSet};

use aos_models::scripted::{Call, Rule};
use serde_json::{Value, json};

use rig::{Rig, any, call, calls, echo, last, read, regex, results, say, until, words, write};

/// Agents that live at once.
const AGENTS: usize = 100;
/// Webhook requests at once.
const HOOKS: usize = 50;

#[test]
fn a_hundred_agents_each_answer_their_own_input() {
    let rig = Rig::new(vec![echo()]);
    rig.up();
    let pids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..AGENTS / 4).map(|_| rig.spawn(&["--role", "You answer."])).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), AGENTS, "each has a pid of its own");
    assert_eq!(rig.json(&["ps"]).as_array().unwrap().len(), AGENTS);
    std::thread::scope(|scope| {
        for some in pids.chunks(AGENTS / 4) {
            let rig = &rig;
            scope.spawn(move || {
                for pid in some {
                    let text = json!({ "text": format!("for {pid}") });
                    assert_eq!(rig.http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&text)).status, 200);
                }
            });
        }
    });
    until("every answer", || {
        let listed = rig.get("/v1/processes");
        let done = |p: &Value| p["waiting_for"] == "stdin" && p["usage"]["inferences"] == 1;
        listed.as_array().unwrap().iter().all(done).then_some(())
    });
    let mut said = BTreeMap::<u64, Vec<String>>::new();
    for entry in rig.journal().iter().filter(|entry| entry["type"] == "inference_completed") {
        let text = entry["text"].as_str().unwrap().to_owned();
        said.entry(entry["pid"].as_u64().unwrap()).or_default().push(text);
    }
    let expected: BTreeMap<u64, Vec<String>> =
        pids.iter().map(|pid| (*pid, vec![format!("echo: for {pid}")])).collect();
    assert_eq!(said, expected);
    let status = rig.json(&["status"]);
    assert_eq!(status["processes"]["blocked"], AGENTS, "{status}");
    assert_eq!(status["model_slots"]["small"], json!({ "used": 0, "limit": 32, "waiting": 0 }));
    assert_eq!(rig.request_count(), AGENTS as u64);

    rig.kill_daemon();
    rig.up();
    assert_eq!(rig.json(&["ps"]).as_array().unwrap().len(), AGENTS, "all are there after a power cut");
    assert_eq!(rig.json(&["status"])["processes"]["blocked"], AGENTS);
    assert_eq!(rig.request_count(), AGENTS as u64, "and none was asked again");
}

/// Rules that answer every webhook request of the last turn, however many came together.
fn answer_all() -> Vec<Rule> {
    let one = r#"webhook request (r[0-9a-f]+)[\s\S]*?"body":"([^"]*)""#;
    (1..=HOOKS)
        .rev()
        .map(|count| {
            let pattern = vec![one; count].join(r"[\s\S]*?");
            let reply = |nth: usize| {
                let args = json!({
                    "request_id": format!("{{{{{}}}}}", 2 * nth + 1), "status": 200,
                    "body": format!("answer to {{{{{}}}}}", 2 * nth + 2), "headers": { "X-Mine": "yes" },
                });
                Call::new("SYS_WEBHOOK_REPLY", args)
            };
            regex(&pattern, vec![calls((0..count).map(reply).collect())])
        })
        .collect()
}

#[test]
fn fifty_webhooks_at_once_are_each_answered_once() {
    let mut rules = answer_all();
    rules.push(any(
        "begin",
        vec![call("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/orders" })), say("{{last_result.url}}")],
    ));
    let rig = Rig::new(rules);
    let pid = rig.spawn(&["begin"]);
    until("the webhook", || (rig.process(pid)["webhooks"] == json!(["hooks/orders"])).then_some(()));
    rig.until_idle(pid);
    let listen = rig.listen();
    let url = rig.entries(pid, "inference_completed").last().unwrap()["text"].as_str().unwrap().to_owned();
    assert_eq!(url, format!("http://{listen}/hooks/hooks/orders"), "the address it was given is where it is");
    let answers: Vec<(usize, rig::Http)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..HOOKS)
            .map(|number| {
                let rig = &rig;
                scope.spawn(move || {
                    let body = format!("order-{number}-end");
                    (number, rig.tcp("POST", "/hooks/hooks/orders", &[], Some(&body)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, answer) in &answers {
        let expected = format!("answer to order-{number}-end");
        assert_eq!((answer.status, answer.text()), (200, expected), "{answer:?}");
        assert_eq!(answer.header("x-mine"), "yes");
    }
    rig.until_idle(pid);
    let requests = rig.entries(pid, "webhook");
    assert_eq!(requests.len(), HOOKS);
    let replies: Vec<Value> =
        rig.entries(pid, "result").into_iter().filter(|entry| entry["name"] == "SYS_WEBHOOK_REPLY").collect();
    assert!(replies.iter().all(|entry| entry["status"] == "SUCCESS"), "{replies:?}");
    assert_eq!(replies.len(), HOOKS, "each was answered once");
    assert!(rig.entries(pid, "inference_started").len() <= HOOKS * 2 + 4, "what came together was shown together");
    assert_eq!(rig.tcp("POST", "/hooks/nobody", &[], Some("x")).status, 404);
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    rig.until_state(pid, "exited");
    assert_eq!(rig.tcp("POST", "/hooks/hooks/orders", &[], Some("x")).status, 404, "its path ended with it");
}

#[test]
fn a_webhook_path_has_one_owner_and_lives_on_after_a_restart() {
    let mut rules = answer_all();
    let register = call("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/orders" }));
    rules.push(any("first", vec![register.clone(), say("mine")]));
    rules.push(any("second", vec![register, say("{{last_result.error.code}}")]));
    let rig = Rig::new(rules);
    let first = rig.spawn(&["first"]);
    rig.until_idle(first);
    let second = rig.aos(&["run", "second"]);
    assert_eq!((second.code, second.out.as_str()), (0, "EEXIST\n"), "{second:?}");
    rig.down();
    rig.up();
    let answer = rig.tcp("POST", "/hooks/hooks/orders", &[], Some("late"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "answer to late"), "{answer:?}");
}

#[test]
fn timers_inboxes_and_proposals_survive_down_and_up() {
    let rig = Rig::new(vec![
        any(
            "set timers",
            vec![
                calls(vec![
                    Call::new("SYS_SCHEDULE", json!({ "seconds": 3600, "prompt": "hourly", "name": "hourly" })),
                    Call::new(
                        "SYS_SCHEDULE",
                        json!({ "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin", "prompt": "morning" }),
                    ),
                ]),
                say("set"),
            ],
        ),
        any("write the contract", vec![write("contracts/a.txt", "signed"), say("result: {{last_result.bytes}}")]),
        any("tell bob", vec![call("SEND_MSG", json!({ "to": "bob", "content": "<for bob>" })), say("told")]),
        last("<for bob>", vec![say("noted")]),
    ]);
    let (timed, lawyer) = (rig.spawn(&["set timers"]), rig.spawn(&["write the contract"]));
    let bob = rig.spawn(&["--role", "<bob>", "--name", "bob"]);
    assert_eq!(rig.aos(&["pause", &bob.to_string()]).code, 0);
    assert_eq!(rig.aos(&["run", "tell bob"]).code, 0);
    rig.until_idle(timed);
    let proposal = until("the proposal", || rig.json(&["proposals"]).as_array().unwrap().first().cloned());
    let timers = rig.process(timed)["timers"].clone();
    assert_eq!(timers.as_array().unwrap().len(), 2);
    assert_eq!(rig.process(bob)["inbox"], 1);
    let asked = rig.request_count();
    for round in 0..4 {
        if round % 2 == 0 {
            rig.down()
        } else {
            rig.kill_daemon()
        }
        rig.up();
        assert_eq!(rig.process(timed)["timers"], timers);
        assert_eq!((&rig.process(bob)["inbox"], &rig.process(bob)["state"]), (&json!(1), &json!("stopped")));
        assert_eq!(rig.json(&["proposals"]), json!([proposal]));
        assert_eq!(rig.process(lawyer)["waiting_for"], "approval");
    }
    assert_eq!(rig.request_count(), asked, "a restart alone asks no model");
    assert_eq!(rig.aos(&["approve", proposal["id"].as_str().unwrap()]).code, 0);
    until("the contract", || rig.file(&format!("workspaces/{lawyer}/contracts/a.txt")).exists().then_some(()));
    rig.until_idle(lawyer);
    assert_eq!(read(rig.file(&format!("workspaces/{lawyer}/contracts/a.txt"))), "signed");
    let shown = rig.requests_with("write the contract");
    assert_eq!(results(shown.last().unwrap())[0].1["result"]["bytes"], 6, "the agent got the call's own result");
    assert_eq!(rig.json(&["proposals"]), json!([]));
    assert_eq!(rig.json(&["proposals", "--all"])[0]["state"], "executed");
    assert_eq!(rig.aos(&["resume", &bob.to_string()]).code, 0);
    until("bob to read it", || (rig.process(bob)["usage"]["inferences"] == 1).then_some(()));
    assert_eq!(words(rig.requests_with("<bob>").last().unwrap()).matches("<for bob>").count(), 1);
}

#[test]
fn a_proposal_that_is_rejected_changes_nothing_and_says_why() {
    let rig = Rig::new(vec![any(
        "write the contract",
        vec![write("contracts/a.txt", "signed"), say("{{last_result.error.code}}: {{last_result.error.message}}")],
    )]);
    rig.up();
    let running = rig.start(&["run", "write the contract"]);
    let id = until("the proposal", || rig.json(&["proposals"])[0]["id"].as_str().map(str::to_owned));
    assert_eq!(rig.aos(&["reject", &id, "--why", "not before Monday"]).code, 0);
    let ran = running.end();
    assert!(ran.code == 0 && ran.out.contains("EREJECTED") && ran.out.contains("not before Monday"), "{ran:?}");
    assert!(!rig.file("workspaces/2/contracts/a.txt").exists());
    assert_eq!(rig.aos(&["approve", &id]).code, 1, "an answer is given once");
}

#[test]
fn firings_missed_while_the_daemon_was_off_come_once_at_the_start() {
    let rig = Rig::new(vec![
        regex(r"\[timer t\d+", vec![say("ticked")]),
        any("begin", vec![call("SYS_SCHEDULE", json!({ "seconds": 2, "prompt": "again" })), say("set")]),
    ]);
    let pid = rig.spawn(&["begin"]);
    until("one firing", || (!rig.entries(pid, "timer").is_empty()).then_some(()));
    rig.until_idle(pid);
    rig.down();
    let before = std::time::Instant::now();
    until("two periods", || (before.elapsed().as_secs() >= 5).then_some(()));
    rig.up();
    let missed = until("the firing after the start", || {
        rig.entries(pid, "timer").into_iter().find(|entry| entry["missed"].as_u64() >= Some(1))
    });
    assert!(missed["missed"].as_u64().unwrap() >= 1, "{missed}");
    let booted = rig.journal().into_iter().rfind(|entry| entry["type"] == "booted").unwrap();
    assert!(missed["lsn"].as_u64() > booted["lsn"].as_u64(), "what was under way is recovered before: {missed}");
    rig.until_idle(pid);
    let turns = rig.entries(pid, "inference_started").len() as u64;
    assert_eq!(rig.request_count(), turns, "a turn that the start itself begins is asked once");
}
