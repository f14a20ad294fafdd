//! What a request leads to that nothing grants reaches people, who can let it through: where a redirect leads, and what a
//! command asks for.

use std::fs;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use super::rig::{Rig, any, call, calls, say, until};
use super::web::Web;
use super::{ask, folder, policy, rig};

const PAGES: &[(&str, &str, &str)] = &[
    ("GET /open/away", "302 Found\r\nlocation: /other?q=1", ""),
    ("GET /open/private", "302 Found\r\nlocation: http://127.0.0.2:9/x", ""),
    ("GET /open/far", "302 Found\r\nlocation: http://elsewhere.invalid/x?q=1", ""),
    ("GET /other", "200 OK", "what was closed"),
    ("POST /in", "200 OK", "taken"),
];

/// All of the server by the role, of which a process is given a part.
fn rules(port: u16) -> String {
    format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET /**\", \"POST /**\"], private: true}}")
}

/// A process that may fetch below `/open/` and run commands, once it has done what it wants.
fn given(rig: &Rig, port: u16) -> u64 {
    let folder = folder(rig);
    let fetch = format!("NET_FETCH 127.0.0.1:{port}/open/**");
    let grants = ["EXEC_CMD", "FS_READ", "FS_WRITE", &fetch].map(|grant| ["--grant", grant]).concat();
    let pid = rig.spawn(&[&["-w", folder.to_str().unwrap()], &grants[..], &["alpha"]].concat());
    at_rest(rig, pid);
    pid
}

fn at_rest(rig: &Rig, pid: u64) {
    until("the process to rest", || (rig.process(pid)["waiting_for"] == "stdin").then_some(()));
}

/// What was denied and a person may lift.
fn denied(rig: &Rig) -> Vec<Value> {
    listed(rig).into_iter().filter(|one| one["closed"].is_null()).collect()
}

/// And what no yes lifts.
fn closed(rig: &Rig) -> Vec<Value> {
    listed(rig).into_iter().filter(|one| one["closed"].is_string()).collect()
}

fn listed(rig: &Rig) -> Vec<Value> {
    let list = rig.json(&["proposals"]);
    list.as_array().unwrap().iter().filter(|one| one["state"] == "denied").cloned().collect()
}

fn only(rig: &Rig) -> Value {
    let list = until("a line", || Some(denied(rig)).filter(|list| !list.is_empty()));
    assert_eq!(list.len(), 1, "{list:?}");
    list[0].clone()
}

fn last_result(rig: &Rig, pid: u64) -> Value {
    rig.entries(pid, "result").pop().unwrap()
}

/// A command has made this request and was refused.
fn asked_in_vain(wanted: &str, net: &str) -> (Rig, u64) {
    let command = ask(&[wanted.to_owned()], "");
    let rig = rig(vec![any("alpha", vec![calls(vec![command]), say("told")])], policy(net));
    rig.up();
    let folder = folder(&rig);
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "alpha"]);
    at_rest(&rig, pid);
    (rig, pid)
}

/// Why its request was refused.
fn said(result: &Value) -> String {
    result["result"]["requests"][0]["why"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn where_a_redirect_leads_may_be_fetched_once() {
    let web = Web::serve(PAGES);
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", web.port);
    let fetch = |path: &str| Call::new("NET_FETCH", json!({ "url": at(path) }));
    let by_itself = calls(vec![fetch("/other?q=1"), fetch("/other?q=2")]);
    let steps = vec![calls(vec![fetch("/open/away")]), by_itself, say("denied")];
    let rig = rig(vec![any("alpha", steps)], policy(&rules(web.port)));
    rig.up();
    let pid = given(&rig, web.port);
    assert!(rig.entries(pid, "result").iter().all(|result| result["error"]["code"] == "EPERM"));
    // What it then asks for by itself is the same to people.
    let one = only(&rig);
    assert_eq!(one["call"], json!({ "name": "NET_FETCH", "args": { "url": at("/other?q=1") } }));
    assert_eq!(one["grants"], json!([format!("NET_FETCH 127.0.0.1:{}/other", web.port)]));
    assert_eq!(one["led"], format!("a redirect of NET_FETCH {}", at("/open/away")));
    let whole = rig.aos(&["proposals", "p1"]).out;
    assert!(whole.contains(&format!("  led there by: a redirect of NET_FETCH {}\n", at("/open/away"))), "{whole}");
    // A grant is wanting, so it is for this call alone.
    let standing = rig.aos(&["approve", "p1", "--for", "process", "--yes"]);
    assert!(standing.code != 0 && standing.err.contains("cannot stand"), "{standing:?}");
    let role = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(role.code != 0 && role.err.contains("its role does not deny it"), "{role:?}");
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    until("the fetch", || (web.paths().last()? == "GET /other?q=1").then_some(()));
    at_rest(&rig, pid);
    assert_eq!(web.paths(), ["GET /open/away", "GET /open/away", "GET /other?q=1"], "no other query");
    assert_eq!(only(&rig)["call"]["args"]["url"], at("/other?q=2"), "nor anything again for the redirect");
}

#[test]
fn where_a_redirect_leads_is_let_through_for_the_process_and_kept_from_private_places() {
    let web = Web::serve(PAGES);
    let fetch = |path: &str| Call::new("NET_FETCH", json!({ "url": format!("http://127.0.0.1:{}{path}", web.port) }));
    let both = calls(vec![fetch("/open/far"), fetch("/open/private")]);
    let rig = rig(vec![any("alpha", vec![both, say("denied")])], policy(&rules(web.port)));
    rig.up();
    let pid = rig.spawn(&["alpha"]);
    at_rest(&rig, pid);
    let one = only(&rig);
    assert_eq!(one["call"]["args"]["url"], "http://elsewhere.invalid/x?q=1", "nor can the private place be lifted");
    let private = closed(&rig);
    assert!(private.len() == 1 && private[0]["closed"].as_str().unwrap().contains("private: true"), "{private:?}");
    let id = one["id"].as_str().unwrap();
    assert_eq!(rig.aos(&["approve", id, "--for", "process", "--yes"]).code, 0);
    let told = until("it is followed", || {
        let results = rig.entries(pid, "result");
        results.iter().find(|one| one.to_string().contains("cannot be resolved")).cloned()
    });
    assert_eq!(told["error"]["code"], "EIO", "it is let through, and leads nowhere: {told}");
    let rule = rig
        .entries(pid, "requested")
        .iter()
        .any(|one| one.to_string().contains(&format!("standing approval {id}: role")));
    assert!(rule, "{:?}", rig.entries(pid, "requested"));
    at_rest(&rig, pid);
    assert!(denied(&rig).is_empty(), "{:?}", denied(&rig));
}

#[test]
fn what_a_command_asked_for_in_vain_passes_in_one_more_run_of_it() {
    let web = Web::serve(PAGES);
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", web.port);
    let wanted = ["GET /other?q=1", "POST /in", "GET /other?q=1"].map(|what| {
        let (method, path) = what.split_once(' ').unwrap();
        format!("{method} {}", at(path))
    });
    let private = "GET http://127.0.0.2:9/x".to_owned();
    let wanted = [&wanted[..], &[private]].concat();
    let rig = rig(vec![any("alpha", vec![calls(vec![ask(&wanted, "")]), say("told")])], policy(&rules(web.port)));
    rig.up();
    let pid = given(&rig, web.port);
    let one = only(&rig);
    assert_eq!(one["call"]["name"], "EXEC_CMD", "{one}");
    let grants =
        [format!("NET_FETCH 127.0.0.1:{}/other", web.port), format!("NET_SEND POST 127.0.0.1:{}/in", web.port)];
    assert_eq!(one["grants"], json!(grants), "{one}");
    let fetch = json!({ "name": "NET_FETCH", "args": { "url": at("/other?q=1") } });
    let send = json!({ "name": "NET_SEND", "args": { "url": at("/in"), "method": "POST" } });
    assert_eq!(one["inner"], json!([fetch, send]), "each once, and nothing private");
    let whole = rig.aos(&["proposals", "p1"]).out;
    assert!(whole.contains(&format!("  in it: NET_SEND POST {}, whatever it sends\n", at("/in"))), "{whole}");
    assert!(web.paths().is_empty());
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    until("the second run", || (rig.entries(pid, "result").len() == 2).then_some(()));
    let all = ["GET /other?q=1", "POST /in", "GET /other?q=1"];
    assert_eq!(web.paths(), all, "{}", last_result(&rig, pid));
    at_rest(&rig, pid);
    assert!(denied(&rig).is_empty());
    let all = rig.json(&["proposals", "--all"]);
    let spent = all.as_array().unwrap().iter().find(|one| one["id"] == "p1").unwrap();
    assert_eq!(spent["state"], "executed", "{spent}");
}

#[test]
fn what_a_command_asks_of_a_place_that_no_rule_names_is_seen_and_refused_inside() {
    let web = Web::serve(PAGES);
    let (rig, pid) = asked_in_vain("GET https://elsewhere.invalid/x?q=1", &rules(web.port));
    let first = last_result(&rig, pid);
    assert!(said(&first).contains("no rule (NET_FETCH elsewhere.invalid/x)"), "{first}");
    let one = only(&rig);
    assert_eq!(one["inner"][0]["args"]["url"], "https://elsewhere.invalid/x?q=1", "{one}");
    let shown = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(shown.code == 0 && shown.out.contains("+    calls: [\"NET_FETCH elsewhere.invalid/x\"]"), "{shown:?}");
    assert_eq!(rig.aos(&["approve", "p1", "--for", "process", "--yes"]).code, 0);
    until("the second run", || (rig.entries(pid, "result").len() == 2).then_some(()));
    let second = last_result(&rig, pid);
    assert!(said(&second).contains("cannot be resolved"), "{second}");
    fs::write(rig.file("policy.yaml"), policy(&rules(web.port)) + "# another\n").unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    at_rest(&rig, pid);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    until("the third run", || (rig.entries(pid, "result").len() == 3).then_some(()));
    let third = last_result(&rig, pid);
    assert!(said(&third).contains("no rule"), "another policy ends the yes: {third}");
}

#[test]
fn what_no_yes_opens_to_a_command_is_closed_and_the_rest_within_bounds() {
    let net = "      - {to: \"closed.invalid:80\", allow: [\"GET /**\"], verdict: deny}\n      \
               - {to: \"asks.invalid:80\", allow: [\"GET /**\"], verdict: ask}";
    // What a command can read it can send.
    let policy = policy(net)
        .replace("    exec:", "         - {path: \"keys/**\", ops: [read], label: personal}\n    exec:")
        .replace("    fs: [{", "    fs:\n         - {")
        .replace("undo: 15m}]", "undo: 15m}")
        .replace("labels:", "labels:\n  - {when: personal, calls: [NET_SEND], verdict: deny}");
    let mut wanted: Vec<String> = [
        "GET http://closed.invalid/?q=1",
        "GET http://asks.invalid/",
        "POST http://a.invalid/",
        "GET http://10.0.0.1/",
    ]
    .map(str::to_owned)
    .to_vec();
    wanted.extend((0..20).map(|nth| format!("GET http://n{nth}.invalid/")));
    let rig = rig(vec![any("alpha", vec![calls(vec![ask(&wanted, "")]), say("told")])], policy);
    rig.up();
    let folder = folder(&rig);
    std::fs::create_dir(folder.join("keys")).unwrap();
    std::fs::write(folder.join("keys/a"), "key").unwrap();
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "alpha"]);
    at_rest(&rig, pid);
    let one = only(&rig);
    let named = (0..15).map(|nth| format!("NET_FETCH n{nth}.invalid:80/"));
    let grants: Vec<String> = std::iter::once("NET_FETCH asks.invalid:80/".to_owned()).chain(named).collect();
    assert_eq!(one["grants"], json!(grants), "{}", last_result(&rig, pid));
    let listed = rig.aos(&["proposals"]).out;
    assert!(listed.contains("n1.invalid:80/ and 13 more"), "{listed}");
    // Of the others people see the first few, of their addresses what a rule is about.
    let closed = closed(&rig);
    let urls = |at: usize| closed[0]["inner"][at]["args"]["url"].as_str().unwrap_or_default().to_owned();
    let wanted = ["http://closed.invalid/", "http://a.invalid/", "http://10.0.0.1/"];
    assert_eq!((closed.len(), [urls(0), urls(1), urls(2)]), (1, wanted.map(str::to_owned)), "{closed:?}");
    assert!(listed.contains("denied, and no yes lifts it; aos proposals ID says why"), "{listed}");
    let id = closed[0]["id"].as_str().unwrap();
    let whole = rig.aos(&["proposals", id]).out;
    for said in ["  in it: NET_FETCH http://closed.invalid/\n", "no yes lifts role assistant: net[0] closed.invalid:80"]
    {
        assert!(whole.contains(said), "{whole}");
    }
    let yes = rig.aos(&["approve", id, "--yes"]);
    assert!(yes.code != 0 && yes.err.contains(&format!("no yes to {id} lets its call be made")), "{yes:?}");
    assert_eq!(rig.http("POST", &format!("/v1/proposals/{id}/approve"), Some(&json!({}))).status, 403);
    assert_eq!(rig.aos(&["reject", id]).code, 0);
}

/// Nobody can be asked while a command runs, and no agent can make the call of a program by itself.
#[test]
fn what_a_rule_asks_about_in_a_command_is_let_through_once_or_by_the_rule_itself() {
    let net = "      - {to: \"asks.invalid:80\", allow: [\"GET /**\"], verdict: ask}";
    let (rig, pid) = asked_in_vain("GET http://asks.invalid/x?q=1", net);
    let first = last_result(&rig, pid);
    assert!(said(&first).contains("make it with NET_FETCH"), "{first}");
    let one = only(&rig);
    assert_eq!(one["grants"], json!(["NET_FETCH asks.invalid:80/x"]), "{one}");
    assert_eq!(one["rule"], "role assistant: net[0] asks.invalid:80 asks", "{one}");
    let shown = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(shown.code == 0 && shown.out.contains("verdict: allow}"), "{shown:?}");
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    until("the second run", || (rig.entries(pid, "result").len() == 2).then_some(()));
    let second = last_result(&rig, pid);
    assert!(said(&second).contains("cannot be resolved"), "it is let through, and leads nowhere: {second}");
    at_rest(&rig, pid);
    assert!(denied(&rig).is_empty());
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    until("the third run", || (rig.entries(pid, "result").len() == 3).then_some(()));
    assert!(said(&last_result(&rig, pid)).contains("make it with NET_FETCH"), "it was for one run");
    at_rest(&rig, pid);
    let again = only(&rig)["id"].as_str().unwrap().to_owned();
    assert_eq!(rig.aos(&["approve", &again, "--for", "role", "--yes"]).code, 0);
    until("the fourth run", || (rig.entries(pid, "result").len() == 4).then_some(()));
    assert!(said(&last_result(&rig, pid)).contains("cannot be resolved"), "the rule allows it by now");
}

#[test]
fn where_a_redirect_leads_for_a_quarantined_child_is_closed() {
    let web = Web::serve(PAGES);
    let attached = format!("http://127.0.0.1:{}/open/far", web.port);
    let child = json!({ "role": "r", "task": "beta", "quarantine": true, "attachments": [attached] });

    let steps = vec![call("SPAWN_AGENT", child), call("WAIT", json!({})), say("done")];
    let policy = policy(&rules(web.port)).replace("    fs:", "    calls: [SPAWN_AGENT]\n    fs:");
    let rig = rig(vec![any("alpha", steps), any("beta", vec![say("read")])], policy);
    rig.up();
    let pid = rig.spawn(&["alpha"]);
    at_rest(&rig, pid);
    assert_eq!(web.paths(), ["GET /open/far"], "{:?}", rig.entries(pid, "result"));
    assert!(rig.journal().iter().any(|entry| entry.to_string().contains("elsewhere.invalid")), "it was denied");
    assert!(denied(&rig).is_empty(), "{:?}", denied(&rig));
    let all = rig.json(&["proposals", "--all"]);
    let for_child = |one: &&Value| one["pid"] == pid && one["led"] == "a redirect of what SPAWN_AGENT attaches";
    let for_child = all.as_array().unwrap().iter().find(for_child).map(|one| one["closed"].is_string());
    assert_eq!(for_child, Some(true), "{all}");
}
