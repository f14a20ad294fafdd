//! What a call asks for beyond the request it was allowed for is journaled too, each with what decided it.

use std::fs;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use super::rig::{Rig, any, calls, say, until};
use super::web::Web;
use super::withdrawn::{WITHIN, slow};
use super::{ask, folder, policy, rig, run_in};

/// What was journaled of a call's requests: of each entry the policy's generation, and the requests.
fn journaled(rig: &Rig, call: &Value) -> Vec<(String, Vec<Value>)> {
    let journal = rig.journal();
    let result = |entry: &Value| entry["type"] == "result" && entry["call_id"] == call["call_id"];
    let (before, after) = journal.split_at(journal.iter().position(result).unwrap());
    assert!(after.iter().all(|entry| entry["type"] != "requested"), "all of them stand before the result");
    let of = |entry: &&Value| entry["type"] == "requested" && entry["call_id"] == call["call_id"];
    let one = |entry: &Value| {
        assert!(entry["took_us"].is_u64() && entry["more"].is_null(), "{entry}");
        (entry["generation"].as_str().unwrap().to_owned(), entry["requests"].as_array().unwrap().clone())
    };
    before.iter().filter(of).map(one).collect()
}

/// `GET` or what it is, where to, and the rule that allowed it or a word of why not.
fn is(method: &str, to: &str, rule: Result<&str, &str>) -> impl Fn(&Value) -> bool {
    let (method, to, rule) = (method.to_owned(), to.to_owned(), rule.map(str::to_owned).map_err(str::to_owned));
    move |request| {
        let decided = match &rule {
            Ok(rule) => request["verdict"] == "allow" && request["rule"] == *rule && request["why"].is_null(),
            Err(why) => {
                let said = request["why"].as_str().is_some_and(|said| said.contains(why));
                request["verdict"] == "deny" && request["rule"].is_null() && said
            }
        };
        decided && request["method"] == method && request["to"] == to
    }
}

#[test]
fn each_request_of_a_command_is_journaled_with_its_rule() {
    let web = Web::serve(&[("GET /open/a", "200 OK", "a"), ("GET /late/a", "200 OK", "a")]);
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", web.port);
    let (waiting, asked, go) = slow();
    let rule = |port: u16, path: &str| {
        format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET {path}\"], private: true}}\n")
    };
    let rules = format!("{}{}", rule(web.port, "/open/**"), rule(waiting, "/me"));
    let long = format!("{}{}", at("/open/"), "x".repeat(3000));
    let late = format!("GET {}", at("/late/a"));
    let mut wanted = vec![format!("GET {}", at("/open/a?q=1")); 70];
    wanted.extend([format!("GET {long}"), late.clone(), format!("GET http://127.0.0.1:{waiting}/me"), late]);
    let rig = rig(vec![any("alpha", vec![calls(vec![ask(&wanted, "")]), say("done")])], policy(&rules));
    let folder = folder(&rig);
    rig.up();
    let running = rig.start(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    asked.recv_timeout(WITHIN).unwrap();
    // While the command runs: what it asked for is not kept back until its end.
    let count = || -> usize {
        rig.entries(2, "requested").iter().map(|entry| entry["requests"].as_array().unwrap().len()).sum()
    };
    until("its requests are journaled", || (count() == 73).then_some(()));
    fs::write(rig.file("policy.yaml"), policy(&format!("{}{rules}", rule(web.port, "/late/**")))).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    go.send(()).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());

    let verdict = &rig.entries(2, "verdict")[0];
    let entries = journaled(&rig, verdict);
    let (began, after): (Vec<_>, Vec<_>) = entries.iter().partition(|(by, _)| *by == verdict["generation"]);
    let requests: Vec<Value> = began.iter().flat_map(|(_, requests)| requests.clone()).collect();
    let open = format!("role assistant: net[0] 127.0.0.1:{}", web.port);
    assert_eq!(requests.len(), 73);
    assert!(requests[..70].iter().all(is("GET", &at("/open/a"), Ok(&open))), "{:?}", requests[0]);
    let cut: String = long.chars().take(1000).chain(['…']).collect();
    assert!(is("GET", &cut, Ok(&open))(&requests[70]), "{}", requests[70]);
    let logged: String = long.chars().take(200).chain(['…', ' ']).collect();
    assert!(rig.log().contains(&format!(" to={logged}")), "{}", rig.log());
    assert!(is("GET", &at("/late/a"), Err("no rule"))(&requests[71]), "{}", requests[71]);
    // What the command was begun under has to allow it too, so it does not get what came later.
    assert_eq!(after.iter().filter(|(_, requests)| !requests.is_empty()).count(), 1, "{after:?}");
    assert!(is("GET", &at("/late/a"), Err("no rule"))(&after[0].1[0]), "{after:?}");
    let result = &rig.entries(2, "result")[0]["result"];
    assert_eq!(result["requests"].as_array().unwrap().len(), 50);
    assert_eq!(result["requests_truncated"], true);
}

#[test]
fn where_redirects_lead_is_journaled_with_its_rule() {
    let web = Web::serve(&[
        ("GET /open/first", "302 Found\r\nlocation: /open/second?q=1", ""),
        ("GET /open/second", "302 Found\r\nlocation: /closed", ""),
        ("GET /closed", "200 OK", "top secret"),
    ]);
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", web.port);
    let rules = format!(
        "      - {{to: \"127.0.0.1:{0}\", allow: [\"GET /open/first\"], private: true}}\n      \
         - {{to: \"127.0.0.1:{0}\", allow: [\"GET /open/second\"], private: true}}\n",
        web.port
    );
    let fetch = Call::new("NET_FETCH", json!({ "url": at("/open/first") }));
    let rig = rig(vec![any("alpha", vec![calls(vec![fetch]), say("done")])], policy(&rules));
    run_in(&rig, &folder(&rig), "alpha");
    let verdict = &rig.entries(2, "verdict")[0];
    let entries = journaled(&rig, verdict);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].0, verdict["generation"]);
    let second = format!("role assistant: net[1] 127.0.0.1:{}", web.port);
    assert!(is("GET", &at("/open/second"), Ok(&second))(&entries[0].1[0]), "{entries:?}");
    assert!(is("GET", &at("/closed"), Err("no rule"))(&entries[0].1[1]), "{entries:?}");
    assert_eq!(web.paths(), ["GET /open/first", "GET /open/second?q=1"]);
}
