//! Signals, groups and timers, end to end: whom a person reaches by a group, whom an agent reaches by a grant, and what of a
//! timer people see and cancel.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use rig::{POLICY, Rig, Setup, any, assert_told, call, calls, echo, say, until};

/// The usual policy with these rules for messages and signals beside its own.
fn with_rules(rules: &str) -> Setup {
    let policy = POLICY.replace("    ipc:\n", &format!("    ipc:\n{rules}"));
    assert_ne!(policy, POLICY);
    Setup { policy: Some(policy), ..Setup::default() }
}

fn pids(table: &Value) -> Vec<u64> {
    table.as_array().unwrap().iter().map(|process| process["pid"].as_u64().unwrap()).collect()
}

fn state(rig: &Rig, pid: u64) -> String {
    rig.process(pid)["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_group_is_listed_paused_and_ended_as_one_and_children_belong_to_it() {
    let child = call("SPAWN_AGENT", json!({ "role": "a helper" }));
    let rig = Rig::new(vec![any("have a helper", vec![child, say("ready")]), any("", vec![say("ready")])]);
    let parent = rig.spawn(&["--group", "night", "--name", "one", "have a helper"]);
    // Before the others, so that pids have one order.
    let child = until("the helper", || rig.process(parent)["children"][0].as_u64());
    let other = rig.spawn(&["--group", "night", "wait"]);
    let apart = rig.spawn(&["wait"]);
    for pid in [parent, other, apart] {
        rig.until_idle(pid);
    }
    assert_eq!(pids(&rig.json(&["ps", "--group", "night"])), [parent, child, other]);
    assert_eq!(rig.json(&["ps", "--group", "day"]), json!([]));
    let table = rig.aos(&["ps", "--group", "night"]);
    assert!(table.out.contains("one") && table.out.lines().count() == 4, "{table:?}");
    assert_eq!(rig.json(&["inspect", &child.to_string()])["group"], "night");
    assert!(rig.aos(&["inspect", &parent.to_string()]).out.contains("group      night"));
    assert_eq!(rig.process(apart)["group"], Value::Null);
    assert_eq!(rig.json(&["pause", "--group", "night"])["pids"], json!([parent, child, other]));
    // It holds through a crash.
    rig.kill_daemon();
    rig.up();
    assert_eq!([parent, child, other, apart].map(|pid| state(&rig, pid)), ["stopped", "stopped", "stopped", "blocked"]);
    let going = rig.http("POST", "/v1/groups/night/signal", Some(&json!({ "signal": "CONT" })));
    assert_eq!((going.status, &going.json()["pids"]), (200, &json!([parent, child, other])));
    assert_eq!(state(&rig, parent), "blocked");
    assert_eq!(rig.aos(&["kill", "--group", "night", "-s", "KILL"]).code, 0);
    assert_eq!([parent, child, other, apart].map(|pid| state(&rig, pid)), ["exited", "exited", "exited", "blocked"]);
    assert_eq!(pids(&rig.json(&["ps", "-a", "--group", "night"])), [parent, child, other]);
    assert!(rig.aos(&["ps", "--group", "night"]).err.contains("no process of that group lives"));
    let again = rig.aos(&["kill", "--group", "night"]);
    assert_told(&again, 1, &["no process of a group `night` lives", "try: "]);
    assert_eq!(rig.aos(&["kill", "--group", "night", &apart.to_string()]).code, 2, "one or the other");
    assert_eq!(rig.aos(&["kill"]).code, 2);
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}

#[test]
fn an_agent_signals_another_tree_only_as_it_is_granted_and_people_see_which_grant_it_takes() {
    let rig = Rig::with(
        vec![
            any(
                "stop two",
                vec![
                    calls(vec![
                        Call::new("KILL", json!({ "pid": 2, "signal": "KILL" })),
                        Call::new("KILL", json!({ "pid": 3, "signal": "KILL" })),
                    ]),
                    say("{{last_result.error.code}} {{last_result.error.hint}}"),
                ],
            ),
            any("", vec![say("ready")]),
        ],
        with_rules("      - {peer: \"web-*\", ops: [signal]}\n"),
    );
    let web = rig.spawn(&["--name", "web-1", "wait"]);
    let db = rig.spawn(&["--name", "db", "wait"]);
    assert_eq!((web, db), (2, 3));
    rig.until_idle(web);
    let ran = rig.aos(&["run", "stop two"]);
    // An agent learns no name of a process that it may not signal; people see the grant.
    assert!(ran.code == 0 && ran.out.starts_with("EPERM a person sees in `aos proposals`"), "{ran:?}");
    assert!(!ran.out.contains("db"), "{ran:?}");
    let past = rig.json(&["proposals", "--all"]);
    assert!(past.as_array().unwrap().iter().any(|one| one["grants"] == json!(["KILL db"])), "{past}");
    assert_eq!((state(&rig, web), state(&rig, db)), ("exited".to_owned(), "blocked".to_owned()));
    // A grant of its own only takes away.
    let web = rig.spawn(&["--name", "web-2", "wait"]).to_string();
    let granted = rig.spawn(&["--grant", "KILL web-9", "wait"]).to_string();
    let said = |pid: &str, name: &str| {
        let explained = rig.json(&["policy", "explain", pid, &format!(r#"KILL {{"pid":{name}}}"#)]);
        format!("{} {}", explained["verdict"].as_str().unwrap(), explained["hint"].as_str().unwrap_or_default())
    };
    assert_eq!(said(&granted, &web), "deny KILL web-2");
    assert_eq!(said(&db.to_string(), &web), "allow ");
    assert_eq!(said(&web, &granted), format!("deny KILL {granted}"), "one without a name is its pid");
}

#[test]
fn a_rule_that_asks_puts_a_signal_before_a_person_with_the_name_of_whom_it_reaches() {
    let rig = Rig::with(
        vec![
            any("stop it", vec![call("KILL", json!({ "pid": 2, "signal": "KILL" })), say("done")]),
            any("", vec![say("ready")]),
        ],
        with_rules("      - {peer: db, ops: [signal], verdict: ask}\n"),
    );
    let db = rig.spawn(&["--name", "db", "wait"]);
    rig.until_idle(db);
    let running = rig.start(&["run", "stop it"]);
    let asked = until("the question", || rig.json(&["proposals"]).as_array().unwrap().first().cloned());
    assert_eq!(asked["rule"], "role assistant: ipc[0] db");
    assert_eq!(asked["unbound"], "process 2 is `db`, started by process 1");
    assert_eq!(state(&rig, db), "blocked");
    assert_eq!(rig.aos(&["approve", "p1"]).code, 0);
    assert_eq!(running.end().code, 0);
    assert_eq!(rig.until_state(db, "exited")["exit_code"], 137);
}

#[test]
fn people_see_every_timer_and_cancel_one_which_stays_so() {
    let schedule = |seconds: u64, name: &str| {
        Call::new("SYS_SCHEDULE", json!({ "seconds": seconds, "prompt": format!("look {name}"), "name": name }))
    };
    let rig = Rig::new(vec![
        echo(),
        any(
            "cancel what is not",
            vec![
                calls(vec![schedule(7200, "mail"), Call::new("SYS_UNSCHEDULE", json!({ "timer_id": "t7" }))]),
                say("{{last_result.error.code}} {{last_result.error.hint}}"),
            ],
        ),
        any("two timers", vec![calls(vec![schedule(3600, "news"), schedule(5400, "weather")]), say("set")]),
    ]);
    let one = rig.spawn(&["two timers"]);
    rig.until_idle(one);
    let two = rig.spawn(&["cancel what is not"]);
    rig.until_idle(two);
    let said = rig.aos(&["logs", &two.to_string()]).out;
    assert!(said.contains("ENOENT there are: t1 `mail`, next at 2"), "{said}");
    let all = rig.json(&["timers"]);
    let row = |timer: &Value| (timer["pid"].as_u64().unwrap(), timer["timer_id"].clone(), timer["name"].clone());
    let rows: Vec<_> = all.as_array().unwrap().iter().map(row).collect();
    let [news, weather, mail] = [(one, "t1", "news"), (one, "t2", "weather"), (two, "t1", "mail")]
        .map(|(pid, id, name)| (pid, json!(id), json!(name)));
    assert_eq!(rows, [news, weather.clone(), mail]);
    assert_eq!((&all[0]["schedule"], &all[0]["prompt"]), (&json!("every 3600 s"), &json!("look news")));
    let (pid, table) = (one.to_string(), rig.aos(&["timers", &one.to_string()]));
    assert!(table.out.contains("every 5400 s") && table.out.contains("look weather"), "{table:?}");
    assert!(table.out.lines().count() == 3 && table.out.contains("(in 1h"), "{table:?}");
    assert_eq!(rig.aos(&["timers", &pid, "--cancel", "t1"]).code, 0);
    let again = rig.aos(&["timers", &pid, "--cancel", "t1"]);
    assert_told(&again, 1, &["no timer `t1`", "try: there are: t2 `weather`"]);
    assert_eq!(rig.aos(&["timers", "--cancel", "t1"]).code, 2, "whose?");
    assert_eq!(rig.http("DELETE", "/v1/processes/99/timers?id=t1", None).status, 404);
    rig.kill_daemon();
    rig.up();
    let left: Vec<_> = rig.json(&["timers", &pid]).as_array().unwrap().iter().map(row).collect();
    assert_eq!(left, [weather]);
    assert_eq!(rig.entries(one, "unscheduled").len(), 1);
    assert!(rig.aos(&["logs", &pid]).out.contains("timer t1 cancelled by a person"));
    assert_eq!(rig.json(&["replay", &pid])["difference"], Value::Null);
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid, &two.to_string()]).code, 0);
    assert!(rig.aos(&["timers"]).err.contains("no timer is set"));
}

#[test]
fn completion_knows_timers_and_groups() {
    let rig = Rig::new(vec![]);
    for shell in ["bash", "zsh", "fish"] {
        let script = rig.aos(&["completion", shell]).out;
        for word in ["timers", "cancel", "group"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
