//! What flags and variables of the command line change, end to end: each is given, and something comes out otherwise.
//!
//! Deliberately absent: flags whose command has a test file of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use rig::{Rig, any, assert_told, call, echo, say};
use serde_json::{Value, json};

#[test]
fn a_budget_that_a_person_sets_is_the_one_that_holds() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    let set = ["budget", &pid, "--usd", "5", "--tokens", "100000", "--calls", "10", "--time", "2h"];
    assert_eq!(rig.aos(&set).code, 0);
    let budget = rig.json(&["budget", &pid])[0]["budget"].clone();
    assert_eq!(
        (&budget["usd"], &budget["tokens"], &budget["calls"]),
        (&json!(5.0), &json!(100_000), &json!(10)),
        "{budget}"
    );
    assert!(budget["ends_at"].is_string(), "{budget}");
    let shown = rig.aos(&["budget", &pid]).out;
    assert!(shown.contains("100,000") || shown.contains("100000") || shown.contains("100k"), "{shown}");
}

#[test]
fn only_what_happened_since_is_shown_and_only_what_ended_before_is_pruned() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let ended = rig.entries(2, "exited")[0]["at"].as_str().unwrap().to_owned();
    let lines = |more: &[&str]| {
        let ran = rig.aos(&[&["logs", "2", "--events"], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.lines().count()
    };
    let (all, since) = (lines(&[]), lines(&["--since", &ended]));
    assert!(0 < since && since < all, "{since} of {all}");
    assert_eq!(lines(&["--since", "10m"]), all);
    let pruned = |more: &[&str]| rig.json(&[&["prune", "--dry-run"], more].concat())["pids"].clone();
    assert_eq!((pruned(&["--before", "2020-01-01"]), pruned(&[])), (json!([]), json!([2])));
    rig.json(&["prune", "--before", "2020-01-01"]);
    assert_eq!(pruned(&[]), json!([2]), "it is there still");
}

#[test]
fn what_an_agent_remembers_is_shown_exported_and_forgotten() {
    let remember = |value: &str| call("MEM_WRITE", json!({ "key": "tea", "value": value }));
    let rig = Rig::new(vec![any("alpha", vec![remember("black"), remember("green, at nine"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let listed = rig.json(&["memory", "list"])["memories"].clone();
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let shown = rig.aos(&["memory", "show", &id]);
    assert!(shown.out.contains("green, at nine") && shown.out.contains("black"), "and what it was before: {shown:?}");
    let exported = rig.aos(&["memory", "export"]).out;
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert!(exported.contains("green, at nine") && first["id"].is_string(), "{exported}");
    let forgot = rig.aos(&["memory", "forget", &id]);
    assert_eq!((forgot.code, rig.json(&["memory", "list"])["memories"].clone()), (0, json!([])), "{forgot:?}");
    assert_told(&rig.aos(&["memory", "show", &id]), 1, &[&id]);
}

#[test]
fn the_model_may_stand_in_the_environment() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let ran = |model: &str| {
        let output = rig.command(&["run", "alpha"]).env("AOS_MODEL", model).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ran("small").0, 0);
    let (code, told) = ran("nowhere");
    assert!(code != 0 && told.contains("nowhere"), "{code} {told}");
}

#[test]
fn commands_that_are_not_there_yet_say_so() {
    let rig = Rig::new(vec![]);
    for command in ["threads", "tools", "apps", "channels", "mcp", "dashboard"] {
        assert_told(&rig.aos(&[command, "list", "--all"]), 1, &[&format!("`aos {command}` is not there yet"), "why: "]);
    }
    assert!(rig.daemons().is_empty(), "for nothing");
}
