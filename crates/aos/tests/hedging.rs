//! Hedging, end to end: a model that stays silent over real HTTP, a second one beside it, and a daemon that dies meanwhile.
//!
//! Start at the first test. Nothing here rests on how fast anything is: what is silent stays so for longer than a test may
//! take. That a first word is enough is tested beside the clock, in `daemon/inference.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::{Answer, Rule, When};
use rig::{Rig, Setup, until};
use serde_json::{Value, json};

/// The most that a model of the rig answers, in tokens.
const MAX_OUTPUT: u64 = 4096;

/// What the model says to `alpha`, so often.
fn says(model: &str, times: Option<u32>, answer: Answer) -> Rule {
    let when = When { any: Some("alpha".into()), model: Some(model.into()), ..When::default() };
    Rule { when, times, answers: vec![answer], ..Rule::default() }
}

fn silence() -> Answer {
    Answer { text: "too late".into(), delay_ms: 600_000, ..Answer::default() }
}

fn word(text: &str) -> Answer {
    Answer { text: text.into(), ..Answer::default() }
}

/// A home with the models `small` and `quick` at one scripted server, by the names `scripted` and `quick` there.
fn rig(rules: Vec<Rule>, router: &str) -> Rig {
    let rig = Rig::with(rules, Setup { more: "default_model = \"small\"\n".into(), ..Setup::default() });
    let config = rig::read(rig.file("aos.toml"));
    let (_, small) = config.split_once("[models.small]").unwrap();
    let quick = small.replace("model = \"scripted\"", "model = \"quick\"");
    std::fs::write(rig.file("aos.toml"), format!("{config}\n[models.quick]{quick}\n[router]\n{router}")).unwrap();
    rig
}

fn charged(rig: &Rig, pid: u64) -> Vec<Value> {
    rig.entries(pid, "charged")
}

#[test]
fn a_person_is_answered_by_the_second_and_the_first_is_paid() {
    let rules = vec![says("scripted", None, silence()), says("quick", None, word("I am here."))];
    let rig = rig(rules, "fallback = [\"quick\"]\nhedge_after_s = 0.2\n");
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "I am here.\n"), "{ran:?}");
    assert!(ran.err.contains("no word yet, so the model quick is asked too"), "{ran:?}");
    assert_eq!(rig.request_count(), 2);

    let pid = rig.journal().iter().find(|entry| entry["type"] == "hedged").unwrap()["pid"].as_u64().unwrap();
    let hedged = &rig.entries(pid, "hedged")[0];
    assert_eq!(hedged["model"], "quick", "{hedged}");
    let charged = until("what was given up is paid", || Some(charged(&rig, pid)).filter(|charged| charged.len() == 2));
    let of = |model: &str| charged.iter().find(|entry| entry["model"] == model).unwrap()["usage"].clone();
    assert_eq!((&of("small")["output_tokens"], &of("small")["estimated"]), (&json!(MAX_OUTPUT), &json!(true)));
    assert!(of("quick")["output_tokens"].as_u64().unwrap() < 100, "{charged:?}");
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}

/// The daemon dies while both are asked: the first is asked again, and what the second may have cost is paid.
#[test]
fn a_daemon_that_dies_with_two_under_way_goes_on_with_one() {
    let rules = vec![
        says("scripted", Some(1), silence()),
        says("scripted", None, word("I am here.")),
        says("quick", None, silence()),
    ];
    let rig = rig(rules, "fallback = [\"quick\"]\nhedge_after_s = 0.2\n");
    let pid = rig.spawn(&["--priority", "interactive", "alpha"]);
    until("both are asked", || (rig.request_count() == 2).then_some(()));
    until("it is durable", || (rig.entries(pid, "inference_started").len() == 2).then_some(()));
    rig.kill_daemon();
    rig.up();
    rig.until_idle(pid);
    assert_eq!(rig.request_count(), 3);
    let charged = charged(&rig, pid);
    // Both that were cut off are paid at their worst, and what is asked instead.
    let of = |nth: usize| (&charged[nth]["model"], &charged[nth]["usage"]["output_tokens"]);
    assert_eq!(charged.len(), 3, "{charged:?}");
    assert_eq!((of(0), of(1)), ((&json!("quick"), &json!(MAX_OUTPUT)), (&json!("small"), &json!(MAX_OUTPUT))));
    assert_eq!((&charged[2]["model"], &charged[2]["usage"]["estimated"]), (&json!("small"), &Value::Null));
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
}
