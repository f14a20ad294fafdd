//! What was denied and a person lifts, end to end: what is listed, what a yes lets happen, how far it reaches.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::path::PathBuf;

use aos_models::scripted::{Call, Rule};
use serde_json::{Value, json};

use rig::{Rig, Setup, Terminal, any, call, calls, say, until, write};

const POLICY: &str = r#"version: 1
default_role: assistant
roles:
  assistant:
    calls: [ASK_USER]   # and little else
    fs:
      - {path: "**", ops: [read]}
      - {path: "asks/**", ops: [write], verdict: ask}
"#;

/// With commands, which read everything and write little.
const COMMANDS: &str = r#"version: 1
default_role: assistant
roles:
  assistant:
    calls: [ASK_USER]   # and little else
    exec: {shell: true, programs: [sh, coreutils], net: none}
    fs:
      - {path: "**", ops: [read]}
      - {path: "out/**", ops: [write]}
      - {path: "asks/**", ops: [write], verdict: ask}
      - {path: "closed/**", ops: [write], verdict: deny}
"#;

const TOLD: &str = "{{last_result.error.code}}";

/// A daemon, a folder to work on, and a process that was denied a write and has said so.
fn denied(rules: Vec<Rule>) -> (Rig, PathBuf, u64) {
    denied_under(POLICY, rules)
}

fn denied_under(policy: &str, rules: Vec<Rule>) -> (Rig, PathBuf, u64) {
    let rig = Rig::with(rules, Setup { policy: Some(policy.to_owned()), ..Setup::default() });
    rig.up();
    let folder = rig.folder("mine");
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "write"]);
    at_rest(&rig, pid);
    (rig, folder, pid)
}

/// Has it make its calls once more, and waits for what is denied then.
fn once_more(rig: &Rig, pid: u64, id: &str) {
    at_rest(rig, pid);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    let listed = || rig.json(&["proposals"]).as_array()?.iter().any(|one| one["id"] == id).then_some(());
    until("what is denied", listed);
}

/// Waits until a process waits for something to come.
fn at_rest(rig: &Rig, pid: u64) {
    until("the process to rest", || (rig.process(pid)["waiting_for"] == "stdin").then_some(()));
}

fn only(rig: &Rig) -> Value {
    // It is listed once its files were looked at.
    let list = until("a line", || Some(rig.json(&["proposals"])).filter(|list| *list != json!([])));
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    list[0].clone()
}

fn state(rig: &Rig, id: &str) -> Value {
    let all = rig.json(&["proposals", "--all"]);
    all.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap()["state"].clone()
}

#[test]
fn a_denial_is_one_line_and_a_yes_lets_the_call_be_made_once() {
    let script = vec![write("notes", "1"), say(TOLD)];
    let (rig, folder, pid) = denied(vec![any("write", script)]);
    let one = only(&rig);
    assert_eq!((&one["state"], &one["verdict"], &one["pid"]), (&json!("denied"), &json!("deny"), &json!(pid)));
    assert_eq!((&one["rule"], &one["grants"]), (&json!("role assistant: no rule"), &json!(["FS_WRITE notes"])));
    assert!(one["preview"].as_str().unwrap().contains("+1") && one["files"][0]["is"] == "nothing", "{one}");
    let listed = rig.aos(&["proposals"]).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("denied, and done without; aos approve ID"), "{listed}");
    assert!(lines[2].contains("FS_WRITE notes") && lines[2].contains("denied"), "{listed}");
    let whole = rig.aos(&["proposals", "p1"]).out;
    assert!(whole.contains("  | +1") && whole.contains("  wants: FS_WRITE notes\n"), "{whole}");
    assert!(rig.aos(&["logs", &pid.to_string()]).out.contains("`aos approve p1` would let it be done"));
    // Whoever says yes to all that waits means questions.
    let all = rig.aos(&["approve", "--process", &pid.to_string()]);
    assert!(all.code == 1 && all.err.contains("nothing waits of process"), "{all:?}");
    // The line holds less than the call: nobody says yes to it unseen.
    let unseen = rig.aos(&["approve", "p1"]);
    assert!(unseen.code == 1 && unseen.err.contains("p1 was denied, and nobody is here"), "{unseen:?}");
    assert!(unseen.err.contains("aos approve p1 --yes") && state(&rig, "p1") == "denied", "{unseen:?}");
    let other = rig.aos(&["approve", "p1", "--shown", "0"]);
    assert!(other.code != 0 && state(&rig, "p1") == "denied", "{other:?}");
    let yes = rig.aos(&["approve", "p1", "--yes"]);
    assert!(yes.err.contains("  | +1\n") && yes.err.contains("  wants: FS_WRITE notes\n"), "{yes:?}");
    assert!(yes.code == 0 && yes.err.contains("its process was told that it may make it, once"), "{yes:?}");
    until("the call", || folder.join("notes").exists().then_some(()));
    once_more(&rig, pid, "p3");
    assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "1");
    assert_eq!((state(&rig, "p1"), state(&rig, "p3")), (json!("executed"), json!("denied")));
    let asked = rig.requests();
    let told = asked.iter().map(rig::words).find(|words| words.contains("a person lifted a denial")).unwrap();
    assert!(told.contains(r#"FS_WRITE {"path":"notes","content":"1"}"#), "{told}");
    let again = rig.aos(&["approve", "p1"]);
    assert!(again.code == 1 && again.err.contains("p1 is executed already"), "{again:?}");
    let http = rig.http("GET", "/v1/proposals", None);
    assert_eq!(http.json()[0]["state"], "denied");
    assert_eq!(rig.aos(&["kill", &pid.to_string(), "--signal", "KILL"]).code, 0);
    until("the end", || (state(&rig, "p3") == "expired").then_some(()));
    let late = rig.aos(&["approve", "p3"]);
    assert!(late.code == 1 && late.err.contains("p3 is expired already: its process has ended"), "{late:?}");
}

#[test]
fn a_yes_to_a_denied_write_is_to_the_file_as_it_was_shown() {
    let script = vec![write("notes", "new\n"), say(TOLD)];
    let (rig, folder, pid) = denied(vec![any("write", script)]);
    only(&rig);
    fs::write(folder.join("notes"), "a person's\n").unwrap();
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    until("the refusal", || {
        let told = rig.entries(pid, "result");
        told.iter().any(|result| result.to_string().contains("`notes` has changed since")).then_some(())
    });
    assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "a person's\n");
    assert_eq!(state(&rig, "p1"), "expired");
}

#[test]
fn a_power_cut_between_the_yes_and_the_call_loses_neither_and_doubles_neither() {
    let script = vec![write("notes", "1"), say(TOLD)];
    let (rig, folder, pid) = denied(vec![any("write", script)]);
    let cut = || {
        rig.kill_daemon();
        rig.up();
    };
    cut();
    assert_eq!(only(&rig)["state"], "denied");
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    cut();
    assert_eq!(only(&rig)["state"], "approved", "a yes that is not used yet is listed");
    assert_eq!(rig.aos(&["resume", &pid.to_string()]).code, 0);
    until("the call", || folder.join("notes").exists().then_some(()));
    once_more(&rig, pid, "p3");
    cut();
    assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "1");
    assert_eq!((state(&rig, "p1"), state(&rig, "p3")), (json!("executed"), json!("denied")));
    let replayed = rig.json(&["replay", &pid.to_string()]);
    assert_eq!(replayed["difference"], Value::Null, "{replayed}");
}

#[test]
fn a_no_dismisses_a_denial_and_takes_back_a_yes_that_is_not_used() {
    let write = |path: &str| Call::new("FS_WRITE", json!({ "path": path, "content": "1" }));
    let both = calls(vec![write("a"), write("b")]);
    let (rig, folder, pid) = denied(vec![any("write", vec![both, say(TOLD)])]);
    until("both", || (rig.json(&["proposals"]).as_array()?.len() == 2).then_some(()));
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    for id in ["p1", "p2"] {
        let no = rig.aos(&["reject", id, "--why", "no"]);
        assert!(no.code == 0 && no.err.contains(&format!("{id} is rejected")), "{no:?}");
    }
    assert_eq!(rig.aos(&["resume", &pid.to_string()]).code, 0);
    until("both again", || (rig.entries(pid, "result").len() == 4).then_some(()));
    at_rest(&rig, pid);
    assert_eq!(rig.json(&["proposals"]), json!([]), "what was dismissed is not shown again");
    assert!(!folder.join("a").exists() && !folder.join("b").exists());
}

#[test]
fn a_yes_to_a_denial_reaches_as_far_as_it_says() {
    let script = vec![write("notes", "1"), call("FS_DELETE", json!({ "path": "notes" })), say(TOLD)];
    let (rig, folder, pid) = denied(vec![any("write", script)]);
    until("both", || (rig.json(&["proposals"]).as_array()?.len() == 2).then_some(()));
    assert_eq!(rig.aos(&["approve", "p1", "--for", "process", "--yes"]).code, 0);
    until("the write", || folder.join("notes").exists().then_some(()));
    assert_eq!(rig.process(pid)["standing"][0]["covers"], "FS_WRITE notes");
    at_rest(&rig, pid);
    let shown = rig.aos(&["approve", "p2", "--for", "role"]);
    let change =
        "-    calls: [ASK_USER]   # and little else\n+    calls: [\"FS_DELETE notes\", ASK_USER]   # and little else\n";
    assert!(shown.code == 0 && shown.out.contains(change) && shown.out.contains("FS_DELETE notes"), "{shown:?}");
    assert!(folder.join("notes").exists() && shown.err.contains("nothing was changed"), "{shown:?}");
    let made = rig.aos(&["approve", "p2", "--for", "role", "--yes"]);
    assert_eq!(made.code, 0, "{made:?}");
    until("the delete", || (!folder.join("notes").exists()).then_some(()));
    assert_eq!((state(&rig, "p1"), state(&rig, "p2")), (json!("expired"), json!("expired")));
    let told = rig.requests().iter().map(rig::words).any(|words| words.contains("denies this call no more"));
    assert!(told, "its process was told");
}

#[test]
fn a_yes_to_a_denial_at_the_terminal_is_to_all_of_it() {
    let mail = json!({ "url": "https://api.example.com/x", "method": "POST", "body": "all that I know" });
    let (rig, _, pid) = denied(vec![any("write", vec![call("NET_SEND", mail), say(TOLD)])]);
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    assert!(!rig.aos(&["proposals"]).out.contains("all that I know"));
    let answered = |typed: &str| {
        let terminal = Terminal::new();
        let running = terminal.start(rig.command(&["approve", "p1"]));
        terminal.see("approve p1?");
        let shown = terminal.shown();
        assert!(shown.contains("all that I know"), "{shown}");
        terminal.keys(typed);
        running.end().code
    };
    assert_eq!((answered("\n"), state(&rig, "p1")), (1, json!("denied")));
    assert_eq!((answered("y\n"), only(&rig)["state"].clone()), (0, json!("approved")));
}

/// `aos run` told of `aos approve p1` and in the next line that p1 was over, since its process had ended.
#[test]
fn what_a_run_was_denied_is_given_to_its_role_when_it_has_ended() {
    let rules =
        vec![any("write", vec![write("notes", "1"), say(TOLD)]), any("again", vec![write("notes", "2"), say("done")])];
    let rig = Rig::with(rules, Setup { policy: Some(POLICY.to_owned()), ..Setup::default() });
    let folder = rig.folder("mine");
    let run = |task: &str| rig.aos(&["run", "-w", folder.to_str().unwrap(), task]);
    let ran = run("write");
    assert!(ran.err.contains("`aos approve p1 --for role` is for good, also when this one has ended"), "{ran:?}");
    assert!(!ran.err.contains("p1 expired"), "nothing came of it: {ran:?}");
    until("its end", || (state(&rig, "p1") == "expired").then_some(()));
    let shown = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(shown.code == 0 && shown.out.contains("+    calls: [\"FS_WRITE notes\", ASK_USER]"), "{shown:?}");
    let made = rig.aos(&["approve", "p1", "--for", "role", "--yes"]);
    assert!(made.code == 0 && made.err.contains("its agent has ended, and the next one"), "{made:?}");
    assert_eq!(run("again").code, 0);
    assert_eq!(fs::read_to_string(folder.join("notes")).unwrap(), "2");
    // For good is once; and a yes to the call itself has nobody to make it.
    let once = rig.aos(&["approve", "p1", "--yes"]);
    assert!(once.code == 1 && once.err.contains("its process has ended"), "{once:?}");
    assert!(once.err.contains("aos approve p1 --for role"), "{once:?}");
}

/// What its own grants kept from it the next one is given by name.
#[test]
fn what_the_grants_of_a_run_lacked_is_named_for_the_next() {
    let rules = vec![any("write", vec![write("asks/a", "1"), say(TOLD)])];
    let rig = Rig::with(rules, Setup { policy: Some(POLICY.to_owned()), ..Setup::default() });
    let ran = rig.aos(&["run", "--grant", "FS_READ **", "write"]);
    assert!(ran.err.contains("the next one may with --grant \"FS_WRITE asks/a\""), "{ran:?}");
    let role = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(role.code != 0 && role.err.contains("its role does not deny it"), "{role:?}");
}

/// A yes over HTTP went to a denial of which nobody had read more than the line.
#[test]
fn a_yes_over_http_names_what_it_is_to() {
    let (rig, folder, _) = denied(vec![any("write", vec![write("notes", "1"), say(TOLD)])]);
    let shown = only(&rig)["shown"].clone();
    let yes = |body: Value| rig.http("POST", "/v1/proposals/p1/approve", Some(&body));
    for bare in [json!({}), json!({ "for": "process" }), json!({ "shown": "0" })] {
        let refused = yes(bare);
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (409, &json!("EREJECTED")), "{refused:?}");
        let hint = refused.json()["error"]["hint"].to_string();
        assert!(hint.contains("GET /v1/proposals") && hint.contains("`shown` in the request"), "{hint}");
    }
    assert_eq!(state(&rig, "p1"), "denied");
    let taken = yes(json!({ "shown": shown }));
    assert_eq!((taken.status, &taken.json()["state"]), (200, &json!("approved")), "{taken:?}");
    until("the call", || folder.join("notes").exists().then_some(()));
}

#[test]
fn several_denials_are_lifted_by_name_each_as_it_was_shown() {
    let write = |path: &str| Call::new("FS_WRITE", json!({ "path": path, "content": path }));
    let (rig, folder, _) = denied(vec![any("write", vec![calls(vec![write("a"), write("b")]), say(TOLD)])]);
    until("both", || (rig.json(&["proposals"]).as_array()?.len() == 2).then_some(()));
    let yes = rig.aos(&["approve", "p1", "p2", "--yes"]);
    assert!(yes.code == 0 && yes.err.contains("  | +a\n") && yes.err.contains("  | +b\n"), "{yes:?}");
    until("both files", || (folder.join("a").exists() && folder.join("b").exists()).then_some(()));
}

/// One yes for the role ended all that was listed, though its change let one of them pass.
#[test]
fn a_yes_for_the_role_leaves_the_other_denials_listed() {
    let write = |path: &str| Call::new("FS_WRITE", json!({ "path": path, "content": path }));
    let (rig, folder, _) = denied(vec![any("write", vec![calls(vec![write("a"), write("b")]), say(TOLD)])]);
    until("both", || (rig.json(&["proposals"]).as_array()?.len() == 2).then_some(()));
    let made = rig.aos(&["approve", "p1", "--for", "role", "--yes"]);
    assert!(made.code == 0 && made.err.contains("p1 is over"), "{made:?}");
    assert_eq!((state(&rig, "p1"), state(&rig, "p2")), (json!("expired"), json!("denied")));
    let yes = rig.aos(&["approve", "p2", "--yes"]);
    assert!(yes.code == 0 && yes.err.contains("  | +b\n"), "{yes:?}");
    until("its call", || folder.join("b").exists().then_some(()));
}

#[test]
fn a_denial_is_lifted_in_top() {
    let (rig, folder, _) = denied(vec![any("write", vec![write("notes", "1"), say(TOLD)])]);
    only(&rig);
    let terminal = Terminal::new();
    let mut command = rig.command(&["top"]);
    command.env("TERM", "xterm-256color").stdout(terminal.side.try_clone().unwrap());
    let running = terminal.start(command);
    terminal.see("p1");
    // The list has less than the call, which is shown whole before it is answered.
    terminal.keys("da");
    terminal.see("wants:");
    assert_eq!(state(&rig, "p1"), "denied");
    terminal.keys("a");
    until("the call", || folder.join("notes").exists().then_some(()));
    until("its end", || (state(&rig, "p1") == "executed").then_some(()));
    // The first closes the list, the second leaves.
    terminal.keys("qq");
    assert_eq!(running.end().code, 0);
}

/// A process that has run this command.
fn ran(cmd: &str) -> (Rig, PathBuf, u64) {
    let run = call("EXEC_CMD", json!({ "cmd": cmd }));
    denied_under(COMMANDS, vec![any("write", vec![run, say(TOLD)])])
}

/// What its last command came to, for the agent.
fn last_result(rig: &Rig, pid: u64) -> Value {
    rig.entries(pid, "result").pop().unwrap()
}

#[test]
fn a_command_whose_changes_were_denied_may_make_them_once() {
    let (rig, folder, pid) = ran("echo 1 > notes; echo 2 > out/x; rm old; echo said");
    fs::create_dir(folder.join("out")).unwrap();
    fs::write(folder.join("old"), "old").unwrap();
    let told = last_result(&rig, pid)["error"].clone();
    assert!(told["code"] == "EPERM" && told["message"].as_str().unwrap().contains("`notes`"), "{told}");
    let _ = rig.aos(&["reject", "p1"]);
    // The folder and what goes were not there the first time.
    once_more(&rig, pid, "p2");
    let one = only(&rig);
    assert_eq!((&one["state"], &one["call"]["name"]), (&json!("denied"), &json!("EXEC_CMD")));
    assert_eq!(one["grants"], json!(["FS_WRITE notes", "FS_DELETE old"]), "{one}");
    assert_eq!(one["rule"], "role assistant: no rule");
    let listed = rig.aos(&["proposals"]).out;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("FS_WRITE notes, FS_DELETE old") && listed.contains("EXEC_CMD"), "{listed}");
    let whole = rig.aos(&["proposals", "p2"]).out;
    for line in ["  | $ echo 1 > notes;", "  in it: FS_WRITE notes, whatever it writes\n", "  in it: FS_DELETE old\n"] {
        assert!(whole.contains(line), "{line}: {whole}");
    }
    assert!(folder.join("old").exists() && !folder.join("notes").exists() && !folder.join("out/x").exists());
    rig.kill_daemon();
    rig.up();
    assert_eq!(rig.aos(&["approve", "p2", "--yes"]).code, 0);
    // One change is put in place after the other.
    until("its end", || (state(&rig, "p2") == "executed").then_some(()));
    until("the change", || (folder.join("notes").exists() && !folder.join("old").exists()).then_some(()));
    until("all of it", || (fs::read_to_string(folder.join("out/x")).ok()? == "2\n").then_some(()));
    let told = rig
        .requests()
        .iter()
        .map(rig::words)
        .any(|words| words.contains("in which nothing stands against FS_WRITE notes"));
    assert!(told, "its process was told");
    // For once: it is denied again, of which there is a new line.
    fs::remove_file(folder.join("notes")).unwrap();
    let before = rig.entries(pid, "result").len();
    at_rest(&rig, pid);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    until("one more run", || (rig.entries(pid, "result").len() > before).then_some(()));
    at_rest(&rig, pid);
    assert!(!folder.join("notes").exists(), "{}", last_result(&rig, pid));
    rig.kill_daemon();
    rig.up();
    let replayed = rig.json(&["replay", &pid.to_string()]);
    assert_eq!(replayed["difference"], Value::Null, "{replayed}");
}

#[test]
fn what_a_command_changes_is_let_through_for_the_process_and_for_the_role() {
    let (rig, folder, pid) = ran("echo 1 > notes");
    only(&rig);
    assert_eq!(rig.aos(&["approve", "p1", "--for", "process", "--yes"]).code, 0);
    until("the change", || folder.join("notes").exists().then_some(()));
    assert_eq!(rig.process(pid)["standing"][0]["covers"], "FS_WRITE notes");
    at_rest(&rig, pid);
    fs::remove_file(folder.join("notes")).unwrap();
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    until("the change again", || folder.join("notes").exists().then_some(()));
    at_rest(&rig, pid);
    fs::remove_file(folder.join("notes")).unwrap();
    assert_eq!(rig.aos(&["reject", "p1"]).code, 0);
    // Executed changes have ids too.
    let denial = || {
        let list = rig.json(&["proposals"]);
        list.as_array()?.iter().find(|one| one["state"] == "denied").map(|one| one["id"].as_str().unwrap().to_owned())
    };
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    let id = until("a line", denial);
    assert!(!folder.join("notes").exists(), "the yes was taken back");
    let shown = rig.aos(&["approve", &id, "--for", "role"]);
    assert!(shown.code == 0 && shown.out.contains("+    calls: [\"FS_WRITE notes\", ASK_USER]"), "{shown:?}");
    assert_eq!(rig.aos(&["approve", &id, "--for", "role", "--yes"]).code, 0);
    until("the change by the role", || folder.join("notes").exists().then_some(()));
}

#[test]
fn what_no_yes_would_let_a_command_keep_is_closed() {
    let many: String = (0..17).map(|nth| format!("echo 1 > n{nth}; ")).collect();
    for (cmd, rule) in [
        ("mkdir closed; echo 1 > closed/a; echo 1 > notes", "role assistant: fs[3] closed/**"),
        ("mkdir asks; echo 1 > asks/a; echo 1 > notes", "role assistant: fs[2] asks/** asks"),
        ("mkdir .aos; echo 1 > .aos/a", "floor: "),
        (&many, "role assistant: no rule"),
    ] {
        let (rig, folder, pid) = ran(cmd);
        assert_eq!(last_result(&rig, pid)["error"]["code"], "EPERM", "{cmd}");
        let one = only(&rig);
        let said = one["rule"].as_str().unwrap();
        assert!(said.contains(rule) && one["closed"].is_string() && one["grants"].is_null(), "{one}");
        assert!(one["inner"].as_array().unwrap().len() <= 4 && !folder.join("notes").exists(), "{one}");
        let yes = rig.aos(&["approve", "p1", "--yes"]);
        assert!(yes.code != 0 && yes.err.contains("no yes to p1 lets its call be made"), "{yes:?}");
        let role = rig.aos(&["approve", "p1", "--for", "role"]);
        assert!(role.code != 0 && role.err.contains("no yes lets it pass"), "{role:?}");
    }
}

/// A role without programs is given those that a command took, and no more.
#[test]
fn a_command_is_given_to_a_role_without_programs() {
    let run = |cmd: &str| call("EXEC_CMD", json!({ "cmd": cmd }));
    let (rig, folder, pid) = denied(vec![any("write", vec![run("touch made"), say(TOLD)])]);
    let one = only(&rig);
    let takes = r#"it takes more than a grant: in the role: exec: {shell: false, programs: ["touch"]}"#;
    assert_eq!((&one["closed"], &one["rule"]), (&json!(takes), &json!("role assistant: no rule")));
    let listed = rig.aos(&["proposals"]).out;
    assert!(listed.starts_with("denied, and no yes lifts it") && listed.contains("EXEC_CMD touch made"), "{listed}");
    let logs = rig.aos(&["logs", &pid.to_string()]).out;
    assert!(logs.contains(&format!("listed as p1; {takes}")), "{logs}");
    assert!(logs.contains("`aos approve p1 --for role` shows that"), "{logs}");
    let yes = rig.aos(&["approve", "p1", "--yes"]);
    assert!(yes.code == 4 && yes.err.contains("`aos approve p1 --for role` shows"), "{yes:?}");
    let whole = rig.aos(&["proposals", "p1"]).out;
    assert!(whole.contains(&format!("  closed: {takes}\n")), "{whole}");
    let shown = rig.aos(&["approve", "p1", "--for", "role"]);
    assert!(shown.code == 0 && shown.out.contains(r#"+    exec: {shell: false, programs: ["touch"]}"#), "{shown:?}");
    assert_eq!(fs::read_to_string(rig.file("policy.yaml")).unwrap(), POLICY, "nothing was written");
    assert_eq!(rig.aos(&["approve", "p1", "--for", "role", "--yes"]).code, 0);
    let policy = fs::read_to_string(rig.file("policy.yaml")).unwrap();
    assert_eq!(policy, POLICY.replace("    calls", "    exec: {shell: false, programs: [\"touch\"]}\n    calls"));
    // It is told, and makes its call again: the command runs, and what it writes is the next denial.
    at_rest(&rig, pid);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "once more"]).code, 0);
    let next = until("the next denial", || {
        rig.json(&["proposals"]).as_array()?.iter().find(|one| one["closed"].is_null()).cloned()
    });
    assert_eq!((&next["call"]["name"], &next["grants"]), (&json!("EXEC_CMD"), &json!(["FS_WRITE made"])), "{next}");
    assert!(!folder.join("made").exists());
}

#[test]
fn a_name_that_a_command_makes_up_moves_nothing_on_the_screen() {
    let (rig, _, pid) = ran(r"touch $(printf 'a\033[2J\nid p9 is safe\342\200\256')");
    assert_eq!(last_result(&rig, pid)["error"]["code"], "EPERM");
    only(&rig);
    for arguments in [&["proposals"][..], &["proposals", "p1"], &["logs", &pid.to_string()]] {
        let shown = rig.aos(arguments).out;
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("id p9")), "{shown}");
    }
}

#[test]
fn a_yes_to_a_command_is_to_the_files_that_it_names() {
    let (rig, folder, pid) = ran("sh s.sh");
    fs::write(folder.join("s.sh"), "echo 1 > notes").unwrap();
    once_more_denied(&rig, pid);
    assert_eq!(only(&rig)["files"][0]["path"], "s.sh");
    fs::write(folder.join("s.sh"), "echo 2 > notes").unwrap();
    assert_eq!(rig.aos(&["approve", "p1", "--yes"]).code, 0);
    until("the refusal", || {
        let told = rig.entries(pid, "result");
        told.iter().any(|result| result.to_string().contains("`s.sh` has changed since")).then_some(())
    });
    assert!(!folder.join("notes").exists());
    assert_eq!(state(&rig, "p1"), "expired");
}

/// Has it make its calls once more, of which one is denied then.
fn once_more_denied(rig: &Rig, pid: u64) {
    once_more(rig, pid, "p1");
}
