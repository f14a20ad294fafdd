//! A quota that is used up, end to end: another model serves, and the agent and the person are told until when.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::{Answer, Fault, Rule, When};
use serde_json::json;

use rig::{Rig, assert_told, call, read, say, words};

const SPARE: &str = "[models.spare]\nprovider = \"openai\"\nbase_url = \"http://@/v1\"\nmodel = \"spare\"\n\
                     context_window = 400000\nprice = { input = 2.0, output = 2.0 }\nlocal = true\n";

/// A home whose model refuses with this, and one beside it that gives these answers.
fn rig(status: u16, body: &serde_json::Value, after_s: u64, spare: Option<Vec<Answer>>) -> Rig {
    let headers = [("retry-after".to_owned(), after_s.to_string())].into();
    let fault = Fault::Status { status, body: body.to_string(), headers };
    let of = |model: &str| When { model: Some(model.to_owned()), ..When::default() };
    let mut rules = vec![Rule { when: of("scripted"), fault: Some(fault), ..Rule::default() }];
    rules.extend(spare.clone().map(|answers| Rule { when: of("spare"), answers, ..Rule::default() }));
    let rig = Rig::new(rules);
    if spare.is_some() {
        let more = SPARE.replace('@', &rig.server_address());
        let text = read(rig.file("aos.toml")).replace("[daemon]\n", "[daemon]\ndefault_model = \"small\"\n");
        let text = format!("{text}{more}[router]\nfallback = [\"spare\"]\n");
        std::fs::write(rig.file("aos.toml"), text).unwrap();
    }
    rig
}

#[test]
fn a_wall_is_told_into_the_prompt_and_the_log_with_the_time_at_which_it_ends() {
    let used_up = json!({ "error": { "message": "You exceeded your current quota", "code": "insufficient_quota" } });
    for (status, body) in [(429, used_up), (402, json!({ "error": { "message": "Payment required" } }))] {
        let answers = vec![call("SYS_WRITE_STDOUT", json!({ "text": "one" })), say("done")];
        let rig = rig(status, &body, 3600, Some(answers));
        let ran = rig.aos(&["run", "-m", "small", "alpha"]);
        assert_eq!(ran.code, 0, "{status}: {ran:?}");
        let until = "the quota of small is used up until 20";
        let logs = rig.aos(&["logs", "2"]).out;
        assert!(logs.contains(until) && logs.contains(&format!("answered {status}")), "{logs}");
        assert!(ran.err.contains(until) && ran.err.contains("from small to the model spare"), "{ran:?}");
        // The wall is asked once, and who serves instead is shown it.
        let requests = rig.requests();
        let asked: Vec<&str> = requests.iter().map(|request| request["model"].as_str().unwrap()).collect();
        assert_eq!(asked, ["scripted", "spare", "spare"], "{status}");
        let shown = words(&requests[1]);
        let end = shown.split("the quota of `small` is used up until ").nth(1).unwrap_or_else(|| panic!("{shown}"));
        let end = end.split_whitespace().next().unwrap();
        assert!(logs.contains(end), "the agent and the person are told the same time: {end} {logs}");
        let cost = rig.json(&["cost", "--by", "model"]);
        assert!(cost["groups"]["small"].is_null() && cost["groups"]["spare"]["inferences"] == 2, "{cost}");
    }
}

#[test]
fn a_wall_that_nobody_stands_in_for_ends_the_task_with_the_way_out() {
    let used_up = json!({ "error": { "code": "insufficient_quota", "message": "You exceeded your current quota" } });
    let rig = rig(429, &used_up, 3600, None);
    let ran = rig.aos(&["run", "alpha"]);
    assert_told(&ran, 1, &["there is no credit left until 20", "choose another model"]);
    assert_eq!(rig.request_count(), 1, "what no time soon mends is not asked again");
}
