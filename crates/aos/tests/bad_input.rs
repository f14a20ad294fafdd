//! Bad input, end to end: whatever a person, a disk or an agent gets wrong is told in words with a way out.
//!
//! Start at the first test. What always holds: a damaged or missing journal is never taken for an empty one, and every
//! refusal leaves what was there as it was.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use aos_models::scripted::{Answer, Call};
use serde_json::{Value, json};

use rig::{POLICY, Rig, Running, Setup, any, assert_told, call, calls, echo, results, say, write};

fn setup(change: impl FnOnce(&mut Setup)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup);
    setup
}

#[test]
fn a_key_that_is_not_known_is_named_with_its_line_and_the_nearest() {
    let rig = Rig::with(vec![], setup(|setup| setup.more = "default_modle = \"small\"\n".into()));
    let ran = rig.aos(&["run", "alpha"]);
    assert_ne!(ran.code, 0);
    assert_told(&ran, ran.code, &["line 3", "default_modle", "did you mean `default_model`?"]);
    let here = rig.aos(&["up", "--foreground"]);
    assert_told(&here, 1, &["line 3", "default_modle", "did you mean `default_model`?"]);
    assert!(rig.daemons().is_empty());
}

#[test]
fn a_secret_in_the_file_is_refused_and_not_repeated() {
    let rig = Rig::with(vec![], setup(|setup| setup.model.push_str("api_key = \"sk-very-secret\"\n")));
    let ran = rig.aos(&["up"]);
    assert_ne!(ran.code, 0);
    assert_told(&ran, ran.code, &["api_key_env"]);
    assert!(!ran.err.contains("sk-very-secret") && !rig.log().contains("sk-very-secret"), "{ran:?}");
}

#[test]
fn a_model_that_does_not_answer_is_told_while_it_is_tried_again() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("http://127.0.0.1:{port}/v1");
    let rig = Rig::with(vec![], setup(|setup| setup.base_url = Some(nowhere)));
    let ran = rig.aos(&["run", "--timeout", "4s", "alpha"]);
    assert_eq!(ran.code, 124, "{ran:?}");
    assert!(ran.err.contains("the model failed") && ran.err.contains(&port.to_string()), "{ran:?}");
    let process = &rig.get("/v1/processes?all=true")[0];
    let tries = rig.entries(process["pid"].as_u64().unwrap(), "inference_started").len();
    assert!((1..=4).contains(&tries), "it waits longer after each failure: {tries} tries");
}

#[test]
fn a_second_daemon_in_the_same_home_is_refused_and_the_first_goes_on() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    rig.up();
    let first = rig.json(&["status"])["os_pid"].clone();
    let second = rig.aos(&["up", "--foreground"]);
    assert_told(&second, 1, &["in use", &first.to_string(), "aos down"]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "its socket is still there: {ran:?}");
    assert_eq!(rig.json(&["status"])["os_pid"], first);
}

#[test]
fn what_a_dead_daemon_left_behind_is_no_obstacle() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    rig.up();
    rig.kill_daemon();
    assert!(rig.file("run/aos.sock").exists(), "a socket that nobody listens on");
    assert_told(&rig.aos(&["--no-start", "ps"]), 3, &["aos up"]);
    // A lock file with the number of a process that lives and is none of ours.
    fs::write(rig.file("journal.lock"), "1\n").unwrap();
    fs::write(rig.file("run/start.lock"), "1\n").unwrap();
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    rig.stop();
    fs::write(rig.file("run/aos.sock"), "a plain file").unwrap();
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 2);
}

/// `aos down` said that none was running, and everything else to stop it with `aos down`.
#[test]
fn a_daemon_whose_socket_is_gone_is_stopped() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    rig.up();
    fs::remove_file(rig.file("run/aos.sock")).unwrap();
    assert_told(&rig.aos(&["ps"]), 3, &["in use", "aos down"]);
    let down = rig.aos(&["down"]);
    assert!(down.code == 0 && down.err.contains("the daemon has stopped"), "{down:?}");
    rig::until("the daemon to be gone", || rig.daemons().is_empty().then_some(()));
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
}

/// A file that is locked, by this test, is no daemon's to end.
#[test]
fn down_ends_no_other_who_has_the_journal() {
    let rig = with_a_past();
    let lock = fs::File::options().write(true).open(rig.file("journal.lock")).unwrap();
    lock.lock().unwrap();
    fs::write(rig.file("journal.lock"), format!("{}\n", std::process::id())).unwrap();
    let down = rig.aos(&["down"]);
    assert_told(&down, 1, &[&format!("process {}", std::process::id()), "wait until it has ended"]);
    fs::write(rig.file("journal.lock"), "1\n").unwrap();
    assert_told(&rig.aos(&["down"]), 1, &["not seen here", "container"]);
}

#[test]
fn a_folder_in_the_place_of_the_socket_is_named() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    rig.up();
    rig.stop();
    let _ = fs::remove_file(rig.file("run/aos.sock"));
    fs::create_dir(rig.file("run/aos.sock")).unwrap();
    let up = rig.aos(&["up"]);
    assert_told(&up, up.code, &["aos.sock", "move it away"]);
    assert!(up.code != 0 && !up.err.contains("another `listen`"), "{up:?}");
}

#[test]
fn down_and_up_follow_each_other_at_once() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    for round in 1..=8 {
        assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
        let down = rig.aos(&["down"]);
        assert_eq!(down.code, 0, "round {round}: {down:?}");
        rig.up();
        assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), round);
        assert_eq!(rig.daemons().len(), 1);
    }
}

#[test]
fn when_down_returns_the_journal_is_free() {
    let rig = Rig::new(vec![echo()]);
    rig.spawn(&["--role", "You answer."]);
    for round in 0..5 {
        let copy = format!("copy-{round}.aos");
        assert_eq!(rig.aos(&["backup", &copy]).code, 0);
        // As `aos backup --help` shows it: aos down && aos restore FILE --force.
        assert_eq!(rig.aos(&["down"]).code, 0);
        let restored = rig.aos(&["restore", &copy, "--force"]);
        assert_eq!(restored.code, 0, "round {round}: {restored:?}");
        rig.up();
    }
}

#[test]
fn a_task_of_ten_megabytes_is_refused_and_nothing_is_lost() {
    let rig = Rig::new(vec![echo(), any("alpha", vec![say("done")])]);
    let pid = rig.spawn(&["--role", "You answer."]);
    let big = "x".repeat(10 << 20);
    // What the daemon measures of itself comes some time after it is ready.
    let told = || rig.journal().into_iter().filter(|entry| entry["type"] != "measured").count();
    let before = told();
    for arguments in [&["run", "-"][..], &["spawn", "-"], &["send", &pid.to_string(), "-"]] {
        let ran = rig.aos_fed(arguments, big.as_bytes());
        assert_ne!(ran.code, 0, "{arguments:?}");
        assert_told(&ran, ran.code, &["bytes", "try: "]);
        assert!(ran.err.len() < 2000, "it is not repeated");
    }
    // Past the command's own look at its size, over HTTP.
    let asked = json!({ "task": "y".repeat((1 << 20) + 1), "mode": "one_shot" });
    let refused = rig.http("POST", "/v1/processes", Some(&asked));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("EINVAL")), "{}", refused.text());
    assert_eq!(rig.http("POST", "/v1/processes", Some(&json!({ "task": big }))).status, 400);
    assert_eq!(told(), before, "what is refused leaves no trace");
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(rig.process(pid)["waiting_for"], "stdin");
}

#[test]
fn control_characters_reach_no_terminal_and_no_name() {
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            calls(vec![
                Call::new("SPAWN_AGENT", json!({ "role": "x", "name": "a\u{1b}[31mb" })),
                Call::new("SPAWN_AGENT", json!({ "role": "x", "name": "../../etc" })),
                Call::new("SPAWN_AGENT", json!({ "role": "x", "name": "12" })),
            ]),
            say("done"),
        ],
    )]);
    let named = rig.aos(&["spawn", "--name", "a\u{1b}[31mb", "--role", "x"]);
    assert_told(&named, 2, &["no name for a process", "letters"]);
    assert!(!named.err.contains('\u{1b}'), "{named:?}");
    let pid = rig.spawn(&["--role", "r\u{1b}[2Jole", "alpha\u{1b}[31m\u{7}\u{9b}2J"]);
    rig.until_idle(pid);
    for command in [&["ps"][..], &["tree"], &["inspect", &pid.to_string()], &["logs", &pid.to_string()]] {
        let ran = rig.aos(command);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(!ran.out.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{command:?}: {ran:?}");
    }
    let shown = results(rig.requests().last().unwrap());
    assert!(shown.iter().all(|(_, result)| result["error"]["code"] == "EINVAL"), "{shown:?}");
}

#[test]
fn a_pid_that_does_not_exist_is_esrch_with_a_hint() {
    let rig = Rig::new(vec![]);
    rig.up();
    for arguments in [
        &["inspect", "999"][..],
        &["send", "999", "hi"],
        &["kill", "999"],
        &["wait", "999"],
        &["pause", "999"],
        &["resume", "999"],
        &["fork", "999"],
        &["replay", "999"],
        &["logs", "999"],
        &["attach", "999"],
    ] {
        let ran = rig.aos(arguments);
        assert!(ran.err.contains("try: "), "{arguments:?}: {ran:?}");
        assert_told(&ran, 1, &["999"]);
        let json: Vec<&str> = [&["--json"][..], arguments].concat();
        let ran = rig.aos(&json);
        let body: Value = serde_json::from_str(ran.out.lines().last().unwrap_or_default()).unwrap_or_default();
        assert_eq!(body["error"]["code"], "ESRCH", "{arguments:?}: {ran:?}");
    }
}

/// The types fit, and the values break a rule that no schema says.
#[test]
fn a_value_that_cannot_be_is_answered_with_a_right_call() {
    let wrong = [
        ("FS_SEARCH", json!({ "pattern": "(" }), "at `/pattern`"),
        ("FS_LIST", json!({ "glob": "[" }), "at `/glob`"),
        ("FS_MOVE", json!({ "from": "a", "to": "a/b" }), "into itself"),
        ("SLEEP", json!({ "seconds": -1 }), "at `/seconds`"),
        ("SYS_SCHEDULE", json!({ "seconds": 0, "prompt": "x" }), "at `/seconds`"),
        ("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/a b" }), "at `/path`"),
        ("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/a", "reply_within_s": 100_000 }), "at `/reply_within_s`"),
        ("SYS_WEBHOOK_REPLY", json!({ "request_id": "r1", "status": 99, "body": "x" }), "at `/status`"),
        ("MEM_WRITE", json!({ "key": "", "value": "x" }), "key"),
        ("PROPOSE", json!({ "action": { "name": "SYS_EXIT", "args": {} }, "why": "x" }), "at `/action/name`"),
    ];
    let made = wrong.iter().map(|(name, args, _)| Call::new(*name, args.clone())).collect();
    let write = call("FS_WRITE", json!({ "path": "a/c", "content": "x" }));
    let rules = vec![any("alpha", vec![write, calls(made), say("done")])];
    let policy = rig::POLICY.replace("PROPOSE,", "PROPOSE, SYS_WEBHOOK_REPLY,");
    let rig = Rig::with(rules, setup(|setup| setup.policy = Some(policy)));
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let shown = results(rig.requests().last().unwrap());
    let shown = &shown[shown.len() - wrong.len()..];
    for ((name, _, words), (_, result)) in wrong.iter().zip(shown) {
        let error = &result["error"];
        assert_eq!(error["code"], "EINVAL", "{name}: {result}");
        assert!(error["message"].as_str().unwrap().contains(words), "{name}: {result}");
        let example = format!("a correct call: {name} {{");
        assert!(error["hint"].as_str().unwrap_or_default().starts_with(&example), "{name}: {result}");
    }
}

#[test]
fn a_schedule_that_never_fires_is_einval() {
    let schedule = |args: Value| Call::new("SYS_SCHEDULE", args);
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            calls(vec![
                schedule(json!({ "cron": "0 0 30 2 *", "prompt": "x" })),
                schedule(json!({ "cron": "99 * * * *", "prompt": "x" })),
                schedule(json!({ "cron": "* * * * *", "timezone": "Mars/Olympus", "prompt": "x" })),
                schedule(json!({ "seconds": 0, "prompt": "x" })),
                schedule(json!({ "prompt": "x" })),
                schedule(json!({ "seconds": 5, "cron": "* * * * *", "prompt": "x" })),
                Call::new("SLEEP", json!({ "seconds": -1 })),
                schedule(json!({ "cron": "0 9 29 2 *", "prompt": "leap day" })),
            ]),
            say("done"),
        ],
    )]);
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let shown = results(rig.requests().last().unwrap());
    for (_, result) in &shown[..7] {
        assert_eq!(result["error"]["code"], "EINVAL", "{result}");
        assert!(!result["error"]["message"].as_str().unwrap().is_empty());
        assert!(result["error"]["hint"].as_str().unwrap().contains("{\""), "an example: {result}");
    }
    assert_eq!(shown[7].1["status"], "SUCCESS", "{shown:?}");
    assert_eq!(rig.process(pid)["timers"].as_array().unwrap().len(), 1);
}

#[test]
fn without_a_policy_nothing_runs_and_nothing_is_spent() {
    let rig = Rig::with(vec![any("", vec![say("ok")])], setup(|setup| setup.policy = None));
    for arguments in [&["run", "alpha"][..], &["spawn", "alpha"], &["spawn", "--model", "small", "alpha"]] {
        assert_told(&rig.aos(arguments), 4, &["there is no policy", "aos init"]);
    }
    assert!(rig.request_count() == 0 && rig.log().contains("everything is denied"), "{}", rig.log());
}

#[test]
fn in_an_empty_role_everything_is_denied_but_to_speak_and_to_end() {
    let empty = "version: 1\ndefault_role: empty\nroles: {empty: {calls: []}}\n";
    let rig = Rig::with(
        vec![any(
            "alpha",
            vec![
                calls(vec![
                    Call::new("FS_WRITE", json!({ "path": "a", "content": "1" })),
                    Call::new("FS_READ", json!({ "path": "a" })),
                    Call::new("SPAWN_AGENT", json!({ "role": "x" })),
                    Call::new("SEND_MSG", json!({ "to_pid": 2, "content": "x" })),
                    Call::new("SYS_SCHEDULE", json!({ "seconds": 60, "prompt": "x" })),
                    Call::new("MEM_READ", json!({ "query": "x" })),
                    Call::new("NET_FETCH", json!({ "url": "http://127.0.0.1:1/" })),
                    Call::new("SYS_WRITE_STDOUT", json!({ "text": "I can speak" })),
                    Call::new("SLEEP", json!({ "seconds": 0 })),
                ]),
                call("SYS_EXIT", json!({ "code": 4, "result": "and end" })),
            ],
        )],
        setup(|setup| setup.policy = Some(empty.to_owned())),
    );
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (4, "and end\n"), "{ran:?}");
    let shown = results(&rig.requests()[1]);
    for (_, result) in &shown[..7] {
        assert_eq!(result["error"]["code"], "EPERM", "{shown:?}");
    }
    assert!(shown[7..].iter().all(|(_, result)| result["status"] == "SUCCESS"), "{shown:?}");
}

#[test]
fn a_broken_policy_keeps_the_daemon_down_and_names_the_line() {
    for (text, word) in [
        ("version: 1\ndefault_role: assistant\nrolls: {}\n", "rolls"),
        ("version: 1\nversion: 1\n", "version"),
        ("{{{", ""),
        (&POLICY.replace("SYS_SCHEDULE", "SYS_SHEDULE"), "SYS_SHEDULE"),
    ] {
        let rig = Rig::with(vec![], setup(|setup| setup.policy = Some(text.to_owned())));
        let ran = rig.aos(&["run", "alpha"]);
        assert_ne!(ran.code, 0, "{text}");
        assert_told(&ran, ran.code, &["policy.yaml", word, "try: "]);
        assert!(rig.daemons().is_empty() && rig.request_count() == 0);
    }
}

#[test]
fn a_policy_that_changed_while_the_daemon_was_off_holds_from_the_start() {
    let rig = Rig::new(vec![
        any("go on", vec![write("b.txt", "2"), say("{{last_result.error.code}}")]),
        any("alpha", vec![write("a.txt", "1"), say("ready")]),
    ]);
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let tighter = POLICY.replace("{path: \"**\", ops: [read, write, delete]}", "{path: \"**\", ops: [read]}");
    assert_ne!(tighter, POLICY);
    for (round, end) in [Rig::stop, Rig::kill_daemon].into_iter().enumerate() {
        end(&rig);
        fs::write(rig.file("policy.yaml"), &tighter).unwrap();
        rig.up();
        assert_eq!(rig.aos(&["send", &pid.to_string(), "go on"]).code, 0);
        rig::until("the denial", || {
            let said = rig.entries(pid, "inference_completed");
            (said.iter().filter(|entry| entry["text"] == "EPERM").count() == round + 1).then_some(())
        });
        rig.until_idle(pid);
        assert!(!rig.file(&format!("workspaces/{pid}/b.txt")).exists());
    }
    rig.stop();
    fs::write(rig.file("policy.yaml"), POLICY).unwrap();
    rig.up();
    assert_eq!(rig.aos(&["send", &pid.to_string(), "go on"]).code, 0);
    rig::until("the file", || rig.file(&format!("workspaces/{pid}/b.txt")).exists().then_some(()));
}

/// What a kill interrupted went on by the policy of before: the call behind was made, and the prompt went out again.
#[test]
fn what_was_interrupted_goes_on_by_the_policy_that_changed_while_the_daemon_was_off() {
    let slow = calls(vec![
        Call::new("EXEC_CMD", json!({ "cmd": "sleep 60" })),
        Call::new("FS_WRITE", json!({ "path": "b.txt", "content": "2" })),
    ]);
    let silent = Answer { delay_ms: 600_000, ..say("never") };
    let exec = format!("{POLICY}    exec: {{shell: true, programs: [sh, coreutils], net: none}}\n");
    let script = vec![any("alpha", vec![slow, say("done")]), any("beta", vec![silent])];
    let rig = Rig::with(script, setup(|setup| setup.policy = Some(exec)));
    if !rig.isolates() {
        return rig::skipped("there are no walls for a command here");
    }
    let (running, asking) = (rig.spawn(&["alpha"]), rig.spawn(&["beta"]));
    rig::until("the command to run", || {
        let calls = rig.entries(running, "verdict");
        (!calls.is_empty() && rig.request_count() == 2).then_some(())
    });
    rig.kill_daemon();
    // Without one nothing is granted.
    fs::remove_file(rig.file("policy.yaml")).unwrap();
    rig.up();
    let state = |pid| rig.process(pid)["state"].as_str().unwrap_or_default().to_owned();
    rig::until("both to stop", || [running, asking].iter().all(|pid| state(*pid) == "stopped").then_some(()));
    assert!(!rig.file(&format!("workspaces/{running}/b.txt")).exists());
    let verdicts = rig.entries(running, "verdict");
    let said: Vec<&str> = verdicts.iter().filter_map(|entry| entry["verdict"].as_str()).collect();
    assert_eq!(said, ["allow", "deny"]);
    assert_ne!(verdicts[0]["generation"], verdicts[1]["generation"]);
    assert_eq!(rig.request_count(), 2, "no prompt went out again");
}

/// A home with a past that is down: its journal is moved into one file first.
fn with_a_past() -> Rig {
    let rig =
        Rig::new(vec![any("needle-in-the-past", vec![write("a", "1"), say("done")]), any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "needle-in-the-past"]).code, 0);
    for _ in 0..6 {
        assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    }
    rig.stop();
    rig
}

/// The files of the journal that hold entries.
fn journal_files(rig: &Rig) -> Vec<std::path::PathBuf> {
    let names = ["journal.db", "journal.db-wal"];
    names.iter().map(|name| rig.file(name)).filter(|path| path.metadata().is_ok_and(|found| found.len() > 0)).collect()
}

/// Flips a bit of each occurrence of `text` in the journal; how many there were.
fn damage(rig: &Rig, text: &str) -> usize {
    let mut found = 0;
    for path in journal_files(rig) {
        let mut bytes = fs::read(&path).unwrap();
        let places: Vec<usize> = (0..bytes.len().saturating_sub(text.len()))
            .filter(|at| bytes[*at..].starts_with(text.as_bytes()))
            .collect();
        found += places.len();
        for at in places {
            bytes[at] ^= 0x02;
        }
        fs::write(&path, bytes).unwrap();
    }
    found
}

#[track_caller]
fn assert_refused_and_untouched(rig: &Rig, words: &[&str]) {
    let before: Vec<Vec<u8>> = journal_files(rig).iter().map(|path| fs::read(path).unwrap()).collect();
    for arguments in [&["up"][..], &["run", "alpha"], &["ps", "-a"]] {
        let ran = rig.aos(arguments);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_told(&ran, ran.code, words);
        assert!(ran.err.contains("try: "), "{ran:?}");
    }
    let after: Vec<Vec<u8>> = journal_files(rig).iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after, "a start that failed has changed the journal");
    assert!(rig.daemons().is_empty());
}

#[test]
fn an_altered_byte_in_the_past_is_found_by_the_audit() {
    let rig = with_a_past();
    assert!(damage(&rig, "needle-in-the-past") > 0);
    let up = rig.aos(&["up"]);
    if up.code != 0 {
        // Found at once: the log's own sum, or the chain of the last entries.
        return assert_told(&up, up.code, &["journal", "entr", "try: "]);
    }
    let audit = rig.aos(&["audit", "verify"]);
    assert_eq!(audit.code, 1, "{audit:?}");
    assert!(audit.out.contains("ALTERED: "), "{audit:?}");
    let json = rig.aos(&["--json", "audit", "verify"]);
    let view: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &view["intact"]), (1, &json!(false)));
}

/// A start checks the end alone, and is ready; soon after it the rest is found to be altered, and told wherever one looks.
/// What the daemon before had proven was skipped for a day, and `aos doctor` said that there was no fault.
#[test]
fn an_altered_byte_in_the_past_is_told_without_being_asked_about() {
    let many = (0..40).map(|n| write(&format!("{n}"), "1")).chain([say("done")]).collect();
    let rig = Rig::new(vec![any("needle-in-the-past", vec![say("done")]), any("alpha", many)]);
    assert_eq!(rig.aos(&["run", "needle-in-the-past"]).code, 0);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    rig::until("the first look at the whole", || rig.file("run/proven").exists().then_some(()));
    rig.stop();
    assert!(rig.file("journal.db-wal").metadata().map_or(0, |meta| meta.len()) == 0, "it is in one file");
    let sealed = fs::read_to_string(rig.file("run/proven")).unwrap();
    assert_eq!(sealed.split_whitespace().count(), 7, "where the walk ended, and how the file lies there: {sealed}");
    let told = rig.aos(&["doctor"]).out;
    assert!(told.contains("were proven unaltered") && !told.contains("written since"), "{told}");
    assert!(damage(&rig, "needle-in-the-past") > 0);
    let told = rig.aos(&["doctor"]).out;
    assert!(told.contains("its file was written since") && told.contains("aos audit verify"), "{told}");
    rig.up();
    let altered = rig::until("the look at the whole", || rig.json(&["status"])["altered"].as_str().map(str::to_owned));
    assert!(altered.starts_with("entry "), "{altered}");
    assert!(rig.log().contains(&format!("ALTERED: {altered}")), "{}", rig.log());
    assert!(rig.aos(&["status"]).out.contains("ALTERED: "));
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("ALTERED: "), "{doctor:?}");
}

/// Changes the last byte of what the kernel has saved; `what` says of which process, or of all.
fn damage_saved(rig: &Rig, what: &str) {
    let db = rusqlite::Connection::open(rig.file("journal.db")).unwrap();
    let changed = match what {
        "all" => {
            "UPDATE checkpoint SET globals = CAST(substr(globals, 1, length(globals) - 1) || x'7f' AS BLOB)".into()
        }
        pid => format!(
            "UPDATE page SET state = CAST(substr(state, 1, length(state) - 1) || x'7f' AS BLOB) WHERE pid = {pid}"
        ),
    };
    assert_eq!(db.execute(&changed, []).unwrap(), 1);
}

/// Whatever reached for such a process ended the daemon, lists failed as a whole, and one with a due timer let no daemon start.
#[test]
fn a_damaged_saved_state_is_made_again_from_the_entries() {
    let rig = with_a_past();
    rig.up();
    let before = rig.json(&["ps", "-a"]).as_array().unwrap().clone();
    rig.stop();
    for what in ["2", "all"] {
        damage_saved(&rig, what);
        let verify = rig.aos(&["audit", "verify", "--no-start"]);
        assert!(verify.code == 1 && verify.out.contains("ALTERED: "), "{verify:?}");
        let doctor = rig.aos(&["doctor"]).out;
        assert_eq!(
            doctor.contains("the daemon makes it again"),
            what == "all",
            "no single process is looked at: {doctor}"
        );
        rig.up();
        let now = rig.json(&["ps", "-a"]);
        assert_eq!(now.as_array().unwrap()[..before.len()], before[..]);
        assert!(rig.log().contains("it is made again from the entries"), "{}", rig.log());
        assert_eq!(rig.aos(&["inspect", "2"]).code, 0);
        assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
        rig.stop();
        assert_eq!(rig.aos(&["audit", "verify", "--no-start"]).code, 0, "it was written anew");
    }
}

#[test]
fn a_missing_journal_is_not_an_empty_one() {
    let rig = with_a_past();
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = fs::rename(rig.file(name), rig.file(&format!("{name}.away")));
    }
    assert_refused_and_untouched(&rig, &["journal.db", "missing", "put the file back"]);
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("put the file back"), "{doctor:?}");
    assert!(!rig.file("journal.db").exists(), "no empty one was made");
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let _ = fs::rename(rig.file(&format!("{name}.away")), rig.file(name));
    }
    rig.up();
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 7, "put back, all is there");
}

/// The daemon began with an empty one, and nothing was remembered by anybody, without a word.
#[test]
fn a_missing_memory_is_not_an_empty_one() {
    let rig = with_a_past();
    let (memory, away) = (rig.file("memory"), rig.file("memory.away"));
    fs::rename(&memory, &away).unwrap();
    assert_refused_and_untouched(&rig, &["memory.db", "missing", "put it back", "aos restore", "mkdir ", "touch "]);
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("memory.db is missing"), "{doctor:?}");
    assert!(!memory.exists(), "nothing is in the way of what is put back");
    fs::rename(&away, &memory).unwrap();
    rig.up();
    rig.down();
    for entry in fs::read_dir(&memory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_refused_and_untouched(&rig, &["memory.db", "missing"]);
    // Who has no other says so, in the way that the hint names.
    fs::write(memory.join("memory.db"), "").unwrap();
    rig.up();
    assert_eq!(rig.aos(&["memory", "list"]).code, 0);
}

/// Agents found their folders empty, and nothing could be undone, without a word.
#[test]
fn missing_workspaces_and_undo_are_told() {
    let rig = with_a_past();
    for name in ["workspaces", "undo"] {
        fs::rename(rig.file(name), rig.file(&format!("{name}.away"))).unwrap();
        let folder = rig.file(name).display().to_string();
        let doctor = rig.aos(&["doctor"]);
        assert!(doctor.code == 1 && doctor.out.contains(&format!("{folder} is missing")), "{doctor:?}");
        let up = rig.aos(&["up"]);
        let told = format!("{folder} was missing and is empty now");
        assert!(up.code == 0 && up.err.contains(&told) && up.err.contains("aos restore"), "{up:?}");
        assert!(rig.log().contains(&told), "{}", rig.log());
        rig.down();
        let again = rig.aos(&["up"]);
        assert!(again.code == 0 && !again.err.contains("was missing"), "said once: {again:?}");
        rig.down();
    }
}

/// It went on in a file without a name, said nothing, and all since then was gone when it stopped.
#[test]
fn a_journal_whose_name_another_file_takes_ends_the_daemon_and_is_kept() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    rig.stop();
    fs::copy(rig.file("journal.db"), rig.file("older.db")).unwrap();
    rig.up();
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    fs::rename(rig.file("older.db"), rig.file("journal.db")).unwrap();
    let verify = rig.aos(&["audit", "verify"]);
    // Where nobody asks it is found within seconds, and the daemon may have ended by now.
    assert!(verify.code == 1 && !verify.out.contains("intact"), "{verify:?}");
    assert_ne!(rig.aos(&["--no-start", "run", "alpha"]).code, 0);
    rig::until("the daemon's end", || rig.daemons().is_empty().then_some(()));
    let log = rig.log();
    assert!(log.contains("another file is at") && log.contains("journal.db.kept"), "{log}");
    let refused = rig.aos(&["up"]);
    assert!(refused.code != 0 && refused.err.contains("try: "), "{refused:?}");
    fs::rename(rig.file("journal.db.kept"), rig.file("journal.db")).unwrap();
    rig.up();
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 2, "all that was acknowledged is there");
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true);
}

/// It started one, which wrote what was to be proven, and whose agents went on.
#[test]
fn proving_the_journal_starts_no_daemon() {
    let rig = with_a_past();
    let first = rig.json(&["audit", "verify"]);
    assert!(rig.daemons().is_empty());
    assert_eq!((&first["intact"], &first), (&json!(true), &rig.json(&["audit", "verify"])), "nothing was added");
    rig.up();
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true, "one that runs is asked");
    let nothing = Rig::new(vec![]);
    nothing.stop();
    let empty = nothing.folder("empty");
    let told = nothing.aos(&["--home", empty.to_str().unwrap(), "audit", "verify"]);
    assert_told(&told, 1, &["there is nothing to prove", "aos run"]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "and no home is made");
}

#[test]
fn a_journal_cut_short_is_refused_with_what_is_safe() {
    let rig = with_a_past();
    for path in journal_files(&rig) {
        let length = fs::metadata(&path).unwrap().len();
        fs::File::options().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
    }
    let ran = rig.aos(&["up"]);
    assert_ne!(ran.code, 0, "an end that is gone must be seen: {ran:?}");
    assert_told(&ran, ran.code, &["journal", "try: ", "restore"]);
    let again = rig.aos(&["run", "alpha"]);
    assert_ne!(again.code, 0, "{again:?}");
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("journal"), "{doctor:?}");
}

/// A daemon that goes on from what is whole.
fn accepting(rig: &Rig) -> Running {
    let mut daemon = rig.start(&["up", "--foreground", "--accept-loss"]);
    while rig.aos(&["--no-start", "status"]).code != 0 {
        if daemon.has_ended() {
            panic!("{:?}", daemon.end());
        }
    }
    daemon
}

/// The start said that the file is corrupt and to look with `aos audit verify`, which said the same and named itself.
#[test]
fn a_damaged_page_is_told_with_what_is_whole_and_the_way_on_from_there() {
    let rig = with_a_past();
    assert!(rig.file("journal.db-wal").metadata().map_or(0, |meta| meta.len()) == 0, "it is in one file");
    let sound = fs::read(rig.file("journal.db")).unwrap();
    let whole = rig.json(&["--no-start", "audit", "verify"])["last_lsn"].as_u64().unwrap();
    let pids = |rig: &Rig| -> Vec<u64> {
        rig.json(&["ps", "-a"]).as_array().unwrap().iter().map(|process| process["pid"].as_u64().unwrap()).collect()
    };
    let last_pid = pids(&rig).into_iter().max().unwrap();
    rig.down();
    // The page that holds what the last process was asked: much is before it, and little behind.
    let last = (0..sound.len() - 5).rev().find(|at| sound[*at..].starts_with(b"alpha")).unwrap();
    let mut bytes = sound;
    bytes[last / 4096 * 4096..][..8].fill(0xff);
    fs::write(rig.file("journal.db"), &bytes).unwrap();

    let audit = rig.aos(&["--no-start", "audit", "verify"]);
    assert!(audit.code == 1 && audit.out.contains("ALTERED: ") && audit.out.contains("try: "), "{audit:?}");
    assert!(!audit.out.contains("aos audit verify"), "it names itself: {audit:?}");
    let json: Value = serde_json::from_str(&rig.aos(&["--json", "--no-start", "audit", "verify"]).out).unwrap();
    let upto = json["sound_upto"].as_u64().unwrap();
    assert!(upto > whole / 2 && upto < whole, "{json} of {whole}");
    let told = format!("entries up to {upto} are sound");
    for words in [&["up"][..], &["run", "alpha"]] {
        let ran = rig.aos(words);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_told(&ran, ran.code, &["journal", &told, "--accept-loss", "restore"]);
    }
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains(&told), "{doctor:?}");
    assert_eq!(fs::read(rig.file("journal.db")).unwrap(), bytes, "nothing was changed");

    let daemon = accepting(&rig);
    let there = rig.json(&["ps", "-a"]).as_array().unwrap().len();
    assert!((2..7).contains(&there), "what came before is there, and no more: {there}");
    assert!(pids(&rig).into_iter().max().unwrap() < last_pid, "some are lost");
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0, "and it goes on");
    // What the lost ones left, their memory say, would be another's.
    assert_eq!(pids(&rig).into_iter().max(), Some(last_pid + 1), "a pid is never given twice");
    assert_eq!(rig.aos(&["audit", "verify"]).code, 0);
    rig.down();
    assert!(daemon.end().err.contains("journal.db.damaged"));
    assert_eq!(fs::read(rig.file("journal.db.damaged")).unwrap(), bytes, "the damaged file is kept");
    rig.up();
}

#[test]
fn a_journal_of_nothing_or_of_something_else_is_refused() {
    for content in [&b""[..], b"this is no database at all, but a letter to a friend that is long enough to be read"] {
        let rig = with_a_past();
        for name in ["journal.db-wal", "journal.db-shm"] {
            let _ = fs::remove_file(rig.file(name));
        }
        fs::write(rig.file("journal.db"), content).unwrap();
        let ran = rig.aos(&["up"]);
        assert_ne!(ran.code, 0, "{} bytes: {ran:?}", content.len());
        assert_told(&ran, ran.code, &["journal", "try: "]);
    }
}

#[test]
fn the_way_out_that_an_error_names_is_a_way() {
    // Every `aos …` in a hint of the journal's errors must be a command line that exists.
    let rig = with_a_past();
    let files = journal_files(&rig);
    let last = files.last().unwrap();
    let length = fs::metadata(last).unwrap().len();
    fs::File::options().write(true).open(last).unwrap().set_len(length * 3 / 4).unwrap();
    let ran = rig.aos(&["up"]);
    for hint in ran.err.split('`').filter(|part| part.starts_with("aos ")) {
        let words: Vec<&str> = hint.split_whitespace().skip(1).collect();
        let words: Vec<&str> = words.iter().map(|word| if *word == "FILE" { "no-such-copy" } else { word }).collect();
        if words.contains(&"--accept-loss") {
            let daemon = accepting(&rig);
            rig.down();
            assert_eq!(daemon.end().code, 0);
            continue;
        }
        let tried = rig.aos(&words);
        assert_ne!(tried.code, 2, "`{hint}` is no command: {tried:?}");
        assert!(!tried.err.contains(&format!("`{hint}`")), "it names itself: {tried:?}");
    }
}

#[test]
fn a_home_of_somebody_else_is_refused_in_words() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be somebody else");
        return;
    }
    let rig = with_a_past();
    for bits in [0o700, 0o755] {
        // The folder that holds the home lets others look into the home where its own bits do.
        fs::set_permissions(rig.home().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(rig.home(), fs::Permissions::from_mode(bits)).unwrap();
        let mut command = rig.command_for_anybody(&["up"]);
        command.uid(65534).gid(65534);
        let ran = Running::new(command).end();
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_told(&ran, ran.code, &["try: "]);
        let mut command = rig.command_for_anybody(&["up", "--foreground"]);
        command.uid(65534).gid(65534);
        let ran = Running::new(command).end();
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_told(&ran, ran.code, &["try: "]);
        assert!(rig.daemons().is_empty());
    }
    rig.up();
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 7, "nothing was changed");
}

#[test]
fn a_home_whose_path_is_too_long_for_a_socket_is_told() {
    let rig = Rig::new(vec![]);
    let long = format!("/tmp/{}", "a".repeat(120));
    let ran = rig.aos(&["--home", &long, "ps"]);
    assert_ne!(ran.code, 0);
    assert_told(&ran, ran.code, &["too long", "--home"]);
    assert!(!std::path::Path::new(&long).exists());
}

#[test]
fn a_full_inbox_and_a_full_input_say_try_again() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    let mut taken = 0;
    for number in 0..300 {
        let text = json!({ "text": format!("n{number}") });
        let answer = rig.http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&text));
        match answer.status {
            200 => taken += 1,
            429 => {
                assert!(!answer.header("retry-after").is_empty(), "{answer:?}");
                assert_eq!(answer.json()["error"]["code"], "EAGAIN");
                break;
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(taken, 256);
    assert_eq!(rig.entries(pid, "input").len(), 256, "what was refused is not there, what was taken is");
}

#[test]
fn what_is_said_to_be_tried_can_be_tried() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    let ran = rig.aos_fed(&["send", &pid, "-"], b"\xff");
    assert_told(&ran, 2, &["not UTF-8", &format!("aos inspect {pid}")]);
    assert!(!ran.err.contains("-f FILE"), "send has none: {ran:?}");
    for command in ["show", "forget"] {
        let ran = rig.aos(&["memory", command, "m1"]);
        assert_told(&ran, 1, &["aos memory list"]);
        assert!(!ran.err.contains("MEM_READ"), "{ran:?}");
    }
    let ran = rig.aos(&["policy", "test", "/dev/null"]);
    assert!(ran.code != 0 && ran.err.contains("verdict: allow") && !ran.err.contains("version: 1"), "{ran:?}");
    let ran = rig.aos(&["--home", "/dev/null", "ps"]);
    assert!(ran.code != 0 && ran.err.contains("/dev/null is no folder"), "{ran:?}");
    assert!(!ran.err.contains("chmod") && !ran.err.contains("daemon.log"), "{ran:?}");
    let ran = rig.aos(&["--home", "/dev/null", "doctor"]);
    assert!(ran.code == 1 && ran.out.contains("/dev/null is no folder") && !ran.out.contains("chmod"), "{ran:?}");
    assert_told(&rig.aos(&["wait", "--timeout", "0.1s", &pid]), 124, &["why: it has not ended within 0.1 s"]);
    assert_told(&rig.aos(&["inspect", "99"]), 1, &["no process 99", "  why: "]);
    rig.stop();
    assert_told(&rig.aos(&["--no-start", "ps"]), 3, &["no daemon runs", "  why: "]);
}

#[test]
fn a_home_that_cannot_be_written_is_said_to_be_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be somebody else");
        return;
    }
    let rig = Rig::new(vec![]);
    rig.up();
    rig.stop();
    fs::set_permissions(rig.home().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = rig.home();
    for change in [["chown", "-R", "65534:65534"], ["chmod", "-R", "a-w"]] {
        assert!(std::process::Command::new(change[0]).args(&change[1..]).arg(&home).status().unwrap().success());
    }
    let as_its_user = |arguments: &[&str]| {
        let mut command = rig.command_for_anybody(arguments);
        command.uid(65534).gid(65534);
        Running::new(command).end()
    };
    let ran = as_its_user(&["ps"]);
    assert_told(&ran, 3, &["the home cannot be written, and nothing was changed", "--home DIR"]);
    assert!(!ran.err.contains("daemon.log"), "nothing of it is there: {ran:?}");
    let ran = as_its_user(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("FAULT home") && ran.out.contains("cannot be written"), "{ran:?}");
    assert!(rig.daemons().is_empty());
}

/// Whoever reached a webhook filled the disk with bodies, and the agent was woken for each.
#[test]
fn webhooks_bring_so_much_in_an_hour_and_then_their_senders_are_told_to_wait() {
    let register = call("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/orders", "reply_within_s": 0 }));
    let rig = Rig::new(vec![any("begin", vec![register, say("ready")])]);
    let pid = rig.spawn(&["begin"]);
    rig.until_idle(pid);
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    // Each byte is six in the journal.
    let body = "\0".repeat(1 << 20);
    let mut taken = 0;
    let refused = loop {
        let answer = rig.tcp("POST", "/hooks/hooks/orders", &[], Some(&body));
        if answer.status != 202 {
            break answer;
        }
        taken += 1;
    };
    assert_eq!((taken, refused.status), (43, 503), "{refused:?}");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 3000, "{refused:?}");
    assert!(refused.text().contains("the agent takes no more requests for now"), "{refused:?}");
}
