//! A person's answers, end to end: what a yes holds for, and what makes it hold no more.
//!
//! What always holds: commands run in the real sandbox; where the host cannot, those tests say "SKIPPED" and why.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use aos_models::scripted::{Answer, Call, Rule};
use serde_json::{Value, json};

use rig::{Rig, Running, Setup, Terminal, any, call, say, until, write};

const POLICY: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    fs:
      - {path: "**", ops: [read, write, delete]}
      - {path: "asks/**", ops: [write, delete], verdict: ask}
      - {path: "holds/**", ops: [write], verdict: hold, window: 2s}
    exec: {shell: true, programs: [sh, coreutils], net: none, verdict: ask}
"#;

const TOLD: &str = "{{last_result.error.code}}: {{last_result.error.message}}";

fn rig(rules: Vec<Rule>) -> Rig {
    let rig = Rig::with(rules, Setup { policy: Some(POLICY.to_owned()), ..Setup::default() });
    rig.up();
    rig
}

fn open(rig: &Rig) -> Value {
    until("the proposal", || rig.json(&["proposals"]).as_array().unwrap().first().cloned())
}

fn state(rig: &Rig, id: &str) -> Value {
    let all = rig.json(&["proposals", "--all"]);
    all.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap()["state"].clone()
}

fn work(rig: &Rig, folder: &Path, task: &str) -> Running {
    rig.start(&["run", "-w", folder.to_str().unwrap(), task])
}

#[test]
fn a_yes_to_a_script_is_a_yes_to_its_bytes() {
    let rig = rig(vec![any("run it", vec![call("EXEC_CMD", json!({ "cmd": "sh go.sh > out" })), say(TOLD)])]);
    let folder = rig.folder("mine");
    fs::write(folder.join("go.sh"), "echo good\n").unwrap();
    let running = work(&rig, &folder, "run it");
    let asked = open(&rig);
    assert_eq!(asked["preview"], "$ sh go.sh > out");
    assert_eq!((&asked["files"][0]["path"], &asked["files"][0]["is"]), (&json!("go.sh"), &json!("file")));
    let listed = rig.aos(&["proposals"]);
    assert!(listed.out.contains("only while unchanged: go.sh\n"), "{listed:?}");
    fs::write(folder.join("go.sh"), "echo evil\n").unwrap();
    let id = asked["id"].as_str().unwrap().to_owned();
    // Who said yes is told as well.
    let told = rig.aos(&["approve", &id]);
    assert!(told.code == 1 && told.err.contains("`go.sh` has changed since"), "{told:?}");
    let ran = running.end();
    assert!(ran.out.contains("EREJECTED") && ran.out.contains("`go.sh` has changed since"), "{ran:?}");
    assert!(!folder.join("out").exists());
    assert_eq!(state(&rig, &id), "expired");
    let told = rig.aos(&["logs", "2"]).out;
    assert!(told.contains(&format!("proposal {id} goes ahead")) && !told.contains("carried out"), "{told}");
    let journal = rig.journal();
    let seen = journal.iter().find(|entry| entry["type"] == "examined").unwrap();
    assert_eq!(seen["files"], asked["files"], "what was shown is journaled");
}

#[test]
fn a_yes_to_a_write_shows_the_change_and_holds_while_the_file_is_the_same() {
    let script = vec![write("asks/a", "new\n"), write("asks/a", "newer\n"), say(TOLD)];
    let rig = rig(vec![any("write", script)]);
    let folder = rig.folder("mine");
    fs::create_dir(folder.join("asks")).unwrap();
    fs::write(folder.join("asks/a"), "old\n").unwrap();
    let running = work(&rig, &folder, "write");
    let first = open(&rig);
    assert!(first["preview"].as_str().unwrap().contains("-old\n+new\n"), "{first}");
    assert_eq!(rig.aos(&["approve", "p1"]).code, 0);
    let second =
        until("the next", || rig.json(&["proposals"]).as_array()?.iter().find(|one| one["id"] != "p1").cloned());
    let id = second["id"].as_str().unwrap();
    assert_eq!(fs::read_to_string(folder.join("asks/a")).unwrap(), "new\n");
    assert!(second["preview"].as_str().unwrap().contains("-new\n+newer\n"), "{second}");
    fs::write(folder.join("asks/a"), "a person's\n").unwrap();
    let told = rig.aos(&["approve", id]);
    assert!(told.code == 1 && told.err.contains("`asks/a` has changed since"), "{told:?}");
    let ran = running.end();
    assert!(ran.out.contains("`asks/a` has changed since"), "{ran:?}");
    assert_eq!(fs::read_to_string(folder.join("asks/a")).unwrap(), "a person's\n");
    assert_eq!((state(&rig, "p1"), state(&rig, id)), (json!("executed"), json!("expired")));
    let again = rig.aos(&["approve", "p1"]);
    assert!(again.code == 1 && again.err.contains("p1 is executed already"), "a yes is used once: {again:?}");
    // Over HTTP that is no place that is not there.
    for (path, status, words) in [
        ("p1/approve", 409, "p1 is executed already"),
        ("p1/reject", 409, "p1 is executed already"),
        (&*format!("{id}/reject"), 409, "is expired already"),
        ("p99/approve", 404, "no open proposal `p99`"),
        ("p99/reject", 404, "no open proposal `p99`"),
    ] {
        let answer = rig.http("POST", &format!("/v1/proposals/{path}"), Some(&json!({})));
        assert!(answer.status == status && answer.text().contains(words), "{path}: {answer:?}");
    }
}

#[test]
fn a_yes_to_a_write_is_to_nothing_unseen() {
    let long = "a dull line of no interest\n".repeat(12_000) + "echo the end\n";
    let script = vec![write("asks/latin", "#!/bin/sh\necho shown\n"), write("asks/long", &long), say(TOLD)];
    let rig = rig(vec![any("write", script)]);
    let folder = rig.folder("mine");
    fs::create_dir(folder.join("asks")).unwrap();
    fs::write(folder.join("asks/latin"), b"caf\xe9\n").unwrap();
    let running = work(&rig, &folder, "write");
    for (path, shown) in [("asks/latin", ["#!/bin/sh\n", "echo shown\n"]), ("asks/long", ["dull", "the end"])] {
        let asks = |one: &&Value| one["call"]["args"]["path"] == path;
        let asked = until("the question", || rig.json(&["proposals"]).as_array()?.iter().find(asks).cloned());
        let id = asked["id"].as_str().unwrap();
        let told = rig.aos(&["proposals", id]).out;
        let begins: String = told.chars().take(400).collect();
        assert!(told.contains(&format!("| FS_WRITE {path}\n")), "{begins}");
        assert!(shown.iter().all(|part| told.contains(part)), "{begins}");
        assert_eq!(rig.aos(&["approve", id]).code, 0);
    }
    assert!(running.end().code == 0 && fs::read_to_string(folder.join("asks/long")).unwrap() == long);
}

#[test]
fn a_held_call_runs_at_the_end_of_its_window_only_if_nothing_changed() {
    let rig = rig(vec![any("hold", vec![write("holds/a", "new"), say(TOLD)])]);
    let folder = rig.folder("mine");
    fs::create_dir(folder.join("holds")).unwrap();
    let running = work(&rig, &folder, "hold");
    open(&rig);
    fs::write(folder.join("holds/a"), "a person's").unwrap();
    let ran = running.end();
    assert!(ran.out.contains("`holds/a` has changed since"), "{ran:?}");
    assert_eq!(fs::read_to_string(folder.join("holds/a")).unwrap(), "a person's");
}

#[test]
fn what_was_shown_binds_also_over_a_power_cut_between_the_yes_and_the_run() {
    let rig = rig(vec![any("write", vec![write("asks/a", "new"), say(TOLD)])]);
    let folder = rig.folder("mine");
    fs::create_dir(folder.join("asks")).unwrap();
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "write"]);
    let id = open(&rig)["id"].as_str().unwrap().to_owned();
    // A stopped process starts nothing, approved or not, so the yes is there and the run is not.
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    assert_eq!(rig.aos(&["approve", &id]).code, 0);
    rig.kill_daemon();
    fs::write(folder.join("asks/a"), "a person's").unwrap();
    rig.up();
    assert_eq!(rig.aos(&["resume", &pid.to_string()]).code, 0);
    until("the refusal", || {
        rig.entries(pid, "result")
            .iter()
            .any(|entry| entry.to_string().contains("`asks/a` has changed since"))
            .then_some(())
    });
    assert_eq!(fs::read_to_string(folder.join("asks/a")).unwrap(), "a person's");
}

/// The ids of the proposals of some processes, in their order.
fn ids(rig: &Rig, pids: &[u64]) -> Vec<String> {
    let of =
        |pid: &u64| until("a proposal", || Some(rig.entries(*pid, "proposal").first()?["id"].as_str()?.to_owned()));
    pids.iter().map(of).collect()
}

/// What is in the file that a process adds a line to, and how often it was told of a result.
fn did(rig: &Rig, pid: u64, path: &str) -> (String, usize) {
    let text = fs::read_to_string(rig.file(&format!("workspaces/{pid}/{path}"))).unwrap_or_default();
    (text, rig.entries(pid, "result").len())
}

#[test]
fn a_power_cut_in_every_state_of_a_proposal_does_nothing_twice_and_forgets_no_answer() {
    let add = |path: &str| call("FS_WRITE", json!({ "path": path, "content": "line\n", "mode": "append" }));
    let script = |word: &'static str, path: &str| any(word, vec![add(path), say(TOLD)]);
    let rules = vec![script("asking", "asks/a"), script("waiting", "long/a"), script("holding", "holds/a")];
    let policy =
        POLICY.replace("    exec:", "      - {path: \"long/**\", ops: [write], verdict: hold, window: 10h}\n    exec:");
    let rig = Rig::with(rules, Setup { policy: Some(policy), ..Setup::default() });
    rig.up();
    let cut = || {
        rig.kill_daemon();
        rig.up();
    };
    let tasks = ["asking", "asking", "asking", "waiting", "holding"];
    let pids = tasks.map(|task| rig.spawn(&[task]));
    let [yes, no, late, vetoed, held] = pids;
    let all = ids(&rig, &pids);
    let states = || all.iter().map(|id| state(&rig, id)).collect::<Vec<_>>();
    cut();
    assert_eq!(states()[..4], ["pending", "pending", "pending", "pending"]);
    assert_eq!(rig.aos(&["pause", &late.to_string()]).code, 0);
    for (answer, id) in [("approve", &all[0]), ("reject", &all[1]), ("approve", &all[2]), ("reject", &all[3])] {
        let said = rig.aos(&[answer, id]);
        assert_eq!(said.code, 0, "{said:?}");
    }
    // Between a yes and its end, wherever that is.
    cut();
    assert_eq!((&states()[1..4]), ["rejected", "approved", "vetoed"]);
    assert_eq!(did(&rig, late, "asks/a"), (String::new(), 0), "a paused process does nothing");
    assert_eq!(rig.aos(&["resume", &late.to_string()]).code, 0);
    until("all of it", || {
        let states = states();
        [0, 2, 4].into_iter().all(|nth| states[nth] == "executed").then_some(())
    });
    until("the results", || pids.iter().all(|pid| !rig.entries(*pid, "result").is_empty()).then_some(()));
    cut();
    assert_eq!(states(), ["executed", "rejected", "executed", "vetoed", "executed"]);
    for (pid, path, text) in [(no, "asks/a", ""), (late, "asks/a", "line\n"), (vetoed, "long/a", "")] {
        assert_eq!(did(&rig, pid, path), (text.to_owned(), 1), "{pid}");
    }
    // What was under way when the power went is not begun again: then the process is told that nobody knows.
    for (pid, path) in [(yes, "asks/a"), (held, "holds/a")] {
        let (text, told) = did(&rig, pid, path);
        let result = &rig.entries(pid, "result")[0];
        let unknown = result["error"]["code"] == "EINTR" && text.is_empty();
        assert!(told == 1 && (text == "line\n" || unknown), "{pid}: {text:?} {told} {result}");
    }
    for id in &all {
        let again = rig.aos(&["approve", id]);
        assert!(again.code == 1 && again.err.contains("already"), "{again:?}");
    }
}

#[test]
fn a_proposal_whose_time_ends_while_the_daemon_is_gone_is_denied() {
    let policy = format!("{POLICY}proposals: {{ttl: 1s}}\n");
    let script = vec![write("asks/a", "new"), say(TOLD)];
    let rig = Rig::with(vec![any("write", script)], Setup { policy: Some(policy), ..Setup::default() });
    rig.up();
    let pid = rig.spawn(&["write"]);
    let id = ids(&rig, &[pid]).remove(0);
    for _ in 0..2 {
        rig.kill_daemon();
        rig.up();
        until("its end", || (state(&rig, &id) == "expired").then_some(()));
        assert_eq!(did(&rig, pid, "asks/a").0, "");
    }
    until("the result", || (rig.entries(pid, "result").len() == 1).then_some(()));
    assert!(rig.entries(pid, "result")[0].to_string().contains("nobody answered in time"));
}

#[test]
fn a_yes_under_another_policy_is_refused_with_the_reason() {
    let rig = rig(vec![any("write", vec![write("asks/a", "new"), say(TOLD)])]);
    let pid = rig.spawn(&["write"]);
    let id = open(&rig)["id"].as_str().unwrap().to_owned();
    rig.stop();
    fs::write(rig.file("policy.yaml"), format!("{POLICY}\n# another\n")).unwrap();
    rig.up();
    let late = rig.aos(&["approve", &id]);
    assert!(
        late.code == 1 && late.err.contains("expired already: the policy has changed since this was asked"),
        "{late:?}"
    );
    until("the refusal", || {
        let told = rig.entries(pid, "result");
        told.iter().any(|entry| entry.to_string().contains("the policy has changed since this was asked")).then_some(())
    });
    assert!(!rig.file(&format!("workspaces/{pid}/asks/a")).exists());
}

#[test]
fn a_person_at_the_terminal_answers_there() {
    let rig = rig(vec![
        any("first", vec![write("asks/a", "new\n"), say("done")]),
        any("second", vec![write("asks/b", "new\n"), say(TOLD)]),
    ]);
    for (task, typed, told) in
        [("first", "\ny\n", "done"), ("second", "n, not on a Friday\n", "EREJECTED: not on a Friday")]
    {
        let terminal = Terminal::new();
        let running = terminal.start(rig.command(&["run", task]));
        terminal.see("y, or n and why >");
        terminal.keys(typed);
        let ran = running.end();
        assert_eq!((ran.out.trim(), ran.code), (told, 0), "{}", rig.log());
        let shown = terminal.all();
        assert!(shown.contains("+new"), "the change is shown: {shown}");
        assert!(shown.contains("? y, or n and why >"), "{shown}");
    }
    assert!(rig.file("workspaces/2/asks/a").exists() && !rig.file("workspaces/3/asks/b").exists());
}

#[test]
fn where_nobody_is_attached_it_waits_and_says_how_to_answer() {
    let rig = rig(vec![any("write", vec![write("asks/a", "new"), say("done")])]);
    let running = rig.start(&["run", "write"]);
    let id = open(&rig)["id"].as_str().unwrap().to_owned();
    assert_eq!(rig.json(&["proposals"]).as_array().unwrap().len(), 1, "neither granted nor refused");
    assert_eq!(rig.http("POST", &format!("/v1/proposals/{id}/approve"), Some(&json!({}))).status, 200);
    let ran = running.end();
    for once in [format!("answer it from another terminal: aos approve {id}"), "+new".to_owned()] {
        assert_eq!(ran.err.matches(&once).count(), 1, "{once}: {}", ran.err);
    }
    assert_eq!(ran.out.trim(), "done");
}

#[test]
fn an_export_proves_itself_to_somebody_else_also_over_what_was_pruned() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/audit/verify.py");
    let check = |lines: &str, known: &[&str]| {
        let mut command = std::process::Command::new("python3");
        command.arg(script).args(known).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut stdin = running.stdin.take().unwrap();
        // It stops reading at the first fault.
        let _ = stdin.write_all(lines.as_bytes());
        drop(stdin);
        let ended = running.wait_with_output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).trim().to_owned())
    };
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let rig = rig(vec![any("héllo \"type\":", vec![write("a", "1"), say("done ,\"type\": é")])]);
    assert_eq!(rig.aos(&["run", "héllo \"type\":"]).code, 0);
    assert_eq!(rig.aos(&["run", "héllo \"type\":"]).code, 0);
    assert_eq!(rig.aos(&["prune"]).code, 0);
    assert_eq!(rig.aos(&["run", "héllo \"type\":"]).code, 0);
    rig.stop();
    rig.up();
    let proven = rig.json(&["audit", "verify"]);
    let head = format!("{}:{}", proven["last_lsn"], proven["head"].as_str().unwrap());
    let export = rig.aos(&["audit", "export"]).out;
    assert!(export.contains("\"type\":\"sealed\""), "{export}");
    // The daemon may have written more in between.
    let upto = proven["last_lsn"].as_u64().unwrap() as usize;
    let lines: Vec<&str> = export.lines().take(upto).collect();
    assert_eq!(check(&lines.join("\n"), &[]), (true, format!("intact: {head}")));
    let second: Value = serde_json::from_str(lines[1]).unwrap();
    let known = format!("2:{}", second["hash"].as_str().unwrap());
    assert_eq!(check(&lines[2..].join("\n"), &[&known]), (true, format!("intact: {head}")));
    let told = check(&lines.join("\n").replacen("done", "DONE", 1), &[]);
    assert!(!told.0 && told.1.contains("is not what was written"), "{told:?}");
    let told = check(&[&lines[..4], &lines[5..]].concat().join("\n"), &[]);
    assert_eq!(told, (false, "ALTERED: entry 5 is missing".to_owned()));
    for known in [&[][..], &[&*known]] {
        let told = check("", known);
        assert!(!told.0 && told.1.contains("nothing came"), "{told:?}");
    }
    // Cut off before its mark: whole by its hashes, and nothing says why so little is left of it.
    let marked = lines.iter().position(|line| line.contains("\"type\":\"pruned\"")).unwrap();
    let told = check(&lines[..marked].join("\n"), &[]);
    assert!(!told.0 && told.1.contains("nothing says that they were pruned"), "{told:?}");
    assert_eq!(rig.aos(&["audit", "export", "--since", "2000-01-01"]).out.lines().next(), Some(lines[0]));
    assert_eq!(rig.aos(&["audit", "export", "--since", "2999-01-01"]).out, "");
}

#[test]
fn what_changed_since_the_last_start_is_said_and_journaled() {
    let rig = rig(vec![]);
    let measured = |count: usize| {
        until("the look at the program", || {
            let found: Vec<Value> = rig.journal().into_iter().filter(|entry| entry["type"] == "measured").collect();
            (found.len() == count).then_some(found)
        })
    };
    // A home that has nothing to compare with is told of the program when it has been read.
    let [unread, first] = &measured(2)[..] else { unreachable!() };
    assert_eq!(
        (&unread["program"], &unread["policy"], &unread["config"]),
        (&json!(""), &first["policy"], &first["config"])
    );
    assert_eq!((first["program"].as_str().unwrap().len(), &first["changed"]), (64, &json!([])));
    rig.stop();
    fs::write(rig.file("policy.yaml"), format!("{POLICY}\n# another\n")).unwrap();
    // It was told by whoever asked for it alone: the command that started the daemon did its task without a word.
    let started = rig.aos(&["--json", "ps"]);
    assert!(serde_json::from_str::<Value>(&started.out).is_ok(), "{started:?}");
    assert!(started.err.contains("warning: since the last start these changed: policy.yaml"), "{started:?}");
    assert!(!rig.aos(&["ps"]).err.contains("warning"), "to whoever has started it, and to nobody else");
    let second = measured(3).remove(2);
    assert_eq!((&second["changed"], &second["program"]), (&json!(["policy.yaml"]), &first["program"]));
    assert!(rig.log().contains("policy.yaml is not what it was when the daemon last started"), "{}", rig.log());
    assert!(rig.aos(&["status"]).out.contains("changed    since the start before: policy.yaml"));
    assert!(rig.aos(&["doctor"]).out.contains("these changed: policy.yaml"));
    rig.stop();
    // As after an upgrade: said, and not refused.
    let mut program = fs::read(env!("CARGO_BIN_EXE_aos")).unwrap();
    program.push(0);
    let upgraded = rig.folder("upgraded").join("aos");
    fs::write(&upgraded, &program).unwrap();
    fs::set_permissions(&upgraded, fs::Permissions::from_mode(0o755)).unwrap();
    let started = Running::new(rig.command_of(&upgraded, &["up"])).end();
    assert_eq!(started.code, 0, "{started:?}");
    let third = measured(4).remove(3);
    assert_eq!(
        (&third["changed"], &third["program"]),
        (&json!(["the program"]), &json!(aos_sandbox::digest(&program)))
    );
    assert!(started.err.contains("these changed: the program"), "{started:?}");
    assert!(!rig.aos(&["status"]).out.contains("policy.yaml"));
    rig.stop();
    // Secrets by their names and never by what is in them; and what lies open is said as well.
    let secret = rig.file("secrets").join("GITHUB");
    fs::create_dir_all(rig.file("secrets")).unwrap();
    fs::write(&secret, "hunter2").unwrap();
    fs::set_permissions(rig.file("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let started = Running::new(rig.command_of(&upgraded, &["ps"])).end();
    assert!(started.err.contains("these changed: secrets/GITHUB"), "{started:?}");
    assert!(started.err.contains("others can read") && started.err.contains("/run (mode 755)"), "{started:?}");
    let fourth = measured(5).remove(4);
    assert_eq!(fourth["files"]["secrets/GITHUB"].as_str().map(str::len), Some(64), "{fourth}");
    assert!(!rig.log().contains("hunter2"));
    let told = Running::new(rig.command_of(&upgraded, &["doctor"])).end();
    assert!(told.out.contains("these changed: secrets/GITHUB"), "{told:?}");
    rig.stop();
    let quiet = Running::new(rig.command_of(&upgraded, &["ps"])).end();
    assert!(!quiet.err.contains("these changed"), "{quiet:?}");
    rig.stop();
    fs::set_permissions(rig.home(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = rig.aos(&["up"]);
    assert!(refused.code != 0 && refused.err.contains("can be written by others"), "{refused:?}");
}

#[test]
fn one_answer_is_enough_for_all_that_waits_below_a_process() {
    let rig = rig(vec![any("write", vec![write("asks/a", "new"), say("done")])]);
    let pids = [rig.spawn(&["write"]), rig.spawn(&["write"])];
    until("both", || (rig.json(&["proposals"]).as_array().unwrap().len() == 2).then_some(()));
    let none = rig.aos(&["reject", "--process", "999"]);
    assert!(none.code == 1 && none.err.contains("nothing waits of process 999"), "{none:?}");
    let all = rig.aos(&["approve", "--process", "1"]);
    assert!(all.code == 0 && all.err.contains("p1 is approved") && all.err.contains("p2 is approved"), "{all:?}");
    for pid in pids {
        until("the file", || rig.file(&format!("workspaces/{pid}/asks/a")).exists().then_some(()));
    }
}

/// A yes is to what was shown whole, and what was typed before that is none.
#[test]
fn a_yes_at_the_terminal_is_to_what_was_shown() {
    let env = json!({ "MAKEFLAGS": "--eval=all:;touch late" });
    let command = Call::new("EXEC_CMD", json!({ "cmd": format!("true{};echo over", " ".repeat(200)), "env": env }));
    let asks = Call::new("ASK_USER", json!({ "question": "Your name, and y on the next line?" }));
    let rules = vec![any("", vec![rig::calls(vec![asks]), rig::calls(vec![command]), say("done")])];
    let policy = Some(POLICY.replace("    fs:", "    calls: [ASK_USER]\n    fs:"));
    let rig = Rig::with(rules, Setup { policy, ..Setup::default() });
    rig.up();
    let terminal = Terminal::new();
    let running = terminal.start(rig.command(&["run", "go"]));
    terminal.see("on the next line?");
    terminal.keys("ann\ny\n");
    terminal.see("approve p1?");
    let shown = terminal.shown();
    assert!(shown.contains("MAKEFLAGS") && shown.contains(";echo over"), "{shown}");
    assert_eq!(state(&rig, "p1"), "pending", "{shown}");
    terminal.keys("n, not so\n");
    assert_eq!(running.end().code, 0);
    assert_eq!(state(&rig, "p1"), "rejected", "{}", terminal.all());
}

#[test]
fn a_person_sees_what_one_answer_is_for_and_what_comes_after_waits_on() {
    let asks = |name: &str| any(name, vec![write(&format!("asks/{name}"), name), say("done")]);
    let rig = rig(vec![asks("first"), asks("second"), asks("third")]);
    let spawned = |name: &str, count: usize| {
        let pid = rig.spawn(&[name]);
        until("it asks", || (rig.json(&["proposals"]).as_array().unwrap().len() == count).then_some(()));
        rig.file(&format!("workspaces/{pid}/asks/{name}"))
    };
    let answered = |typed: &str, then: Option<&str>| {
        let terminal = Terminal::new();
        let running = terminal.start(rig.command(&["approve", "--process", "1"]));
        terminal.see("approve p1, p2?");
        let late = then.map(|name| spawned(name, 3));
        terminal.keys(typed);
        let done = running.end().code == 0;
        (done, terminal.all(), late)
    };
    let first = spawned("first", 1);
    // Somebody looked, and then there is another one.
    let second = spawned("second", 2);
    let (done, shown, _) = answered("\n", None);
    assert!(!done && shown.contains("+second"), "{shown}");
    assert_eq!(rig.json(&["proposals"]).as_array().unwrap().len(), 2, "nothing was answered");
    let (done, shown, third) = answered("y\n", Some("third"));
    assert!(done && shown.contains("p1 is approved") && shown.contains("p2 is approved"), "{shown}");
    until("the files", || (first.exists() && second.exists()).then_some(()));
    assert_eq!(open(&rig)["id"], "p3");
    assert!(!third.unwrap().exists());
}

#[test]
fn the_same_question_of_a_tree_is_read_once_and_answered_by_name() {
    let child = || {
        let args = json!({ "role": "You write.", "task": "write", "permissions": ["FS_WRITE asks/**"] });
        Call::new("SPAWN_AGENT", args)
    };
    let rules = vec![
        any("begin", vec![rig::calls(vec![child(), child()]), say("done")]),
        any("write", vec![write("asks/a", "new"), say("done")]),
    ];
    let policy = Some(POLICY.replace("    fs:", "    calls: [SPAWN_AGENT]\n    fs:"));
    let rig = Rig::with(rules, Setup { policy, ..Setup::default() });
    rig.spawn(&["begin"]);
    let both = || rig.json(&["proposals"]).as_array().filter(|asked| asked.len() == 2).cloned();
    let asked = until("both", both);
    assert_eq!(asked[0]["shown"], asked[1]["shown"], "the same words");
    // Somebody else's is no part of it, whatever it asks.
    rig.spawn(&["write"]);
    until("three", || (rig.json(&["proposals"]).as_array()?.len() == 3).then_some(()));
    let told = rig.aos(&["proposals"]).out;
    assert!(told.contains("  the same 2 times; a yes to all: aos approve p1 p2\n"), "{told}");
    assert_eq!(told.matches("| +new\n").count(), 2, "{told}");
    let yes = rig.aos(&["approve", "p1", "p2"]);
    assert!(yes.err.contains("p1 is approved") && yes.err.contains("p2"), "{yes:?}");
    // They share a workspace, so the yes to the one may not hold after the other's write: each is for its own call.
    let over = |id: &str| [json!("executed"), json!("expired")].contains(&state(&rig, id));
    until("both to be over", || ["p1", "p2"].into_iter().all(over).then_some(()));
    assert!(["p1", "p2"].iter().any(|id| state(&rig, id) == "executed"));
    assert_eq!(open(&rig)["id"], "p3");
}

#[test]
fn who_proposes_says_what_could_go_wrong_and_is_told_the_id() {
    let propose = |path: &str| {
        let action = json!({ "name": "FS_WRITE", "args": { "path": path, "content": "1" } });
        call("PROPOSE", json!({ "action": action, "why": "it is asked for", "risk": "it may be the wrong one" }))
    };
    let policy = Some(POLICY.replace("    fs:", "    calls: [PROPOSE]\n    fs:"));
    let rules = vec![any("go", vec![propose("a"), propose("b"), say("done")])];
    let rig = Rig::with(rules, Setup { policy, ..Setup::default() });
    let pid = rig.spawn(&["go"]);
    // What it says of the risk stands wherever people look.
    let asked = open(&rig);
    assert_eq!((&asked["id"], &asked["risk"]), (&json!("p1"), &json!("it says itself: it may be the wrong one")));
    assert!(rig.aos(&["proposals"]).out.contains("  risk: it says itself: it may be the wrong one\n"));
    assert_eq!(rig.http("GET", "/v1/proposals", None).json()[0]["risk"], asked["risk"]);
    assert_eq!(rig.aos(&["approve", "p1"]).code, 0);
    let second =
        until("the next", || rig.json(&["proposals"]).as_array()?.iter().find(|one| one["id"] != "p1").cloned());
    let second = second["id"].as_str().unwrap();
    assert_eq!(rig.aos(&["reject", second, "--why", "one is enough"]).code, 0);
    rig.until_idle(pid);
    let results = rig.entries(pid, "result");
    assert_eq!(results[0]["result"], json!({ "bytes": 1, "proposal_id": "p1" }));
    assert_eq!(results[1]["error"]["message"], format!("{second}: one is enough"));
    // Why something is over is found again by whoever looks later.
    let whole = rig.aos(&["proposals", second]);
    assert!(whole.out.contains("rejected") && whole.out.contains("  ended: one is enough\n"), "{whole:?}");
    let left = rig.spawn(&["go"]);
    let last = until("another question", || rig.json(&["proposals"])[0]["id"].as_str().map(str::to_owned));
    assert_eq!(rig.aos(&["kill", &left.to_string()]).code, 0);
    rig.until_state(left, "exited");
    let late = rig.aos(&["approve", &last]);
    assert!(late.code == 1 && late.err.contains("its process has ended"), "{late:?}");
}

/// Two files written by one reply.
fn both(one: [&str; 2], other: [&str; 2]) -> Answer {
    let write = |[path, content]: [&str; 2]| Call::new("FS_WRITE", json!({ "path": path, "content": content }));
    rig::calls(vec![write(one), write(other)])
}

#[test]
fn a_yes_for_the_process_stands_until_it_is_withdrawn_and_a_yes_for_the_role_is_one_word_of_the_file() {
    let commented = POLICY.replace(
        "asks/**\", ops: [write, delete], verdict: ask}",
        "asks/**\", ops: [write, delete], verdict: ask} # lawyers",
    );
    let rules = vec![
        rig::last("first", vec![both(["asks/a", "1"], ["asks/a", "2"])]),
        rig::last("second", vec![both(["asks/a", "3"], ["asks/b", "4"])]),
        any("", vec![say("ready")]),
    ];
    let rig = Rig::with(rules, Setup { policy: Some(commented.clone()), ..Setup::default() });
    let pid = rig.spawn(&["begin"]).to_string();
    let number: u64 = pid.parse().unwrap();
    rig.until_idle(number);
    rig.aos(&["send", &pid, "first"]);
    assert_eq!(open(&rig)["id"], "p1");
    // Over HTTP, by the same route; what it cannot mean is refused.
    let path = "/v1/proposals/p1/approve";
    assert_eq!(rig.http("POST", path, Some(&json!({ "for": "ever" }))).status, 400);
    let approved = rig.http("POST", path, Some(&json!({ "for": "process" })));
    assert_eq!((approved.status, approved.json()["state"].clone()), (200, json!("standing")), "{approved:?}");
    rig.until_idle(number);
    let written = fs::read_to_string(rig.file(&format!("workspaces/{pid}/asks/a"))).unwrap();
    assert_eq!(written, "2", "the second time without a question");
    let verdicts = rig.entries(number, "verdict");
    assert_eq!(verdicts[1]["rule"], "standing approval p1: role assistant: fs[1] asks/**");
    // Each decision says what it took, and deciding again compares what was decided and not how fast.
    assert!(verdicts.iter().all(|entry| entry["took_us"].is_u64()), "{verdicts:?}");
    assert_eq!(rig.aos(&["replay", &pid]).code, 0);
    let inspected = rig.aos(&["inspect", &pid]);
    assert!(
        inspected.out.contains("p1 FS_WRITE asks/a, while it lives; `aos reject p1` withdraws it"),
        "{inspected:?}"
    );
    // It is there after a power cut, and gone with a no.
    rig.kill_daemon();
    rig.up();
    assert_eq!(rig.process(number)["standing"][0]["covers"], "FS_WRITE asks/a");
    assert_eq!(rig.aos(&["reject", "p1"]).code, 0);
    assert!(rig.process(number)["standing"].is_null());
    let again = rig.aos(&["reject", "p1"]);
    assert_eq!(again.code, 1, "{again:?}");
    rig.aos(&["send", &pid, "second"]);
    let asked = open(&rig);
    let id = asked["id"].as_str().unwrap().to_owned();
    // For the role: shown first, and then written, with everything else as it was.
    let shown = rig.aos(&["approve", &id, "--for", "role"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    for words in [
        "verdict: ask} # lawyers\n+",
        "verdict: allow} # lawyers\n",
        "+ assistant: FS_WRITE asks/x was ask",
        "--yes` writes it, and 1 open question ends",
    ] {
        assert!(format!("{}{}", shown.out, shown.err).contains(words), "{words}: {shown:?}");
    }
    assert_eq!(fs::read_to_string(rig.file("policy.yaml")).unwrap(), commented);
    assert_eq!(rig.aos(&["approve", &id, "--for", "process", "--yes"]).code, 2);
    let done = rig.aos(&["approve", &id, "--for", "role", "--yes"]);
    assert_eq!(done.code, 0, "{done:?}\n{}", rig.log());
    assert_eq!(
        fs::read_to_string(rig.file("policy.yaml")).unwrap(),
        commented.replacen("verdict: ask} #", "verdict: allow} #", 1)
    );
    assert_eq!(state(&rig, &id), "expired");
    let late = rig.aos(&["approve", &id]);
    assert!(
        late.code == 1 && late.err.contains("is expired already: the policy has changed since this was asked"),
        "{late:?}"
    );
    rig.until_idle(number);
    // The agent was told to make it again; the next one needs no question.
    let told = rig.entries(number, "result");
    assert!(
        told.iter().any(|entry| entry["error"]["hint"] == "make the call again: the new policy decides on it"),
        "{told:?}"
    );
    assert_eq!(fs::read_to_string(rig.file(&format!("workspaces/{pid}/asks/b"))).unwrap(), "4");
    // The next start finds what this one knew.
    rig.stop();
    rig.up();
    assert!(rig.json(&["status"])["changed"].is_null(), "{}", rig.json(&["status"]));
}
