//! Processes, end to end: what one shell starts another one sees, talks to, stops and ends.
//!
//! Start at the first test. What always holds: every command is the real program, each in a process of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use aos_models::scripted::{Answer, Call, Fault, Rule};
use serde_json::json;

use rig::{Rig, Running, any, assert_told, call, calls, echo, last, regex, results, role, say, until, words, write};

/// What `process` shows under this key.
fn field(process: &serde_json::Value, key: &str) -> String {
    process[key].as_str().unwrap_or_default().to_owned()
}

#[test]
fn ps_and_kill_of_another_shell_see_what_was_spawned() {
    let rig = Rig::new(vec![echo(), any("", vec![say("ready")])]);
    let pid = rig.spawn(&["--name", "watcher", "watch the inbox"]);
    let process = rig.until_idle(pid);
    assert_eq!((field(&process, "state").as_str(), field(&process, "name").as_str()), ("blocked", "watcher"));
    let table = rig.aos(&["ps"]);
    assert!(table.out.contains("watcher") && table.out.contains(&pid.to_string()), "{table:?}");
    let listed = rig.json(&["ps"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["pid"]), (1, &json!(pid)));
    let status = rig.json(&["status"]);
    assert_eq!((&status["processes"]["blocked"], &status["processes"]["exited"]), (&json!(1), &json!(0)), "{status}");
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    assert_eq!(rig.until_state(pid, "exited")["exit_code"], 137);
    assert_eq!(rig.json(&["ps"]), json!([]));
}

#[test]
fn what_a_killed_process_was_asking_is_paid_at_the_most_that_it_may_have_been() {
    let silence = Answer { text: "too late".into(), delay_ms: 600_000, ..Answer::default() };
    let rig = Rig::new(vec![any("", vec![silence])]);
    let pid = rig.spawn(&["think"]);
    until("it asks", || (rig.request_count() == 1).then_some(()));
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    let charged = until("what was given up is paid", || rig.entries(pid, "charged").pop());
    assert_eq!((&charged["usage"]["output_tokens"], &charged["usage"]["estimated"]), (&json!(4096), &json!(true)));
    assert!(charged["usage"]["input_tokens"].as_u64().unwrap() > 0, "{charged}");
}

#[test]
fn an_idle_process_costs_no_inference() {
    let rig = Rig::new(vec![echo(), any("", vec![say("ready")])]);
    let pid = rig.spawn(&["wait for me"]);
    rig.until_idle(pid);
    // While others work through many turns it is not asked once.
    for _ in 0..5 {
        assert_eq!(rig.aos(&["run", "something else"]).code, 0);
    }
    assert_eq!(rig.process(pid)["usage"]["inferences"], 1);
    assert_eq!(rig.request_count(), 6);
}

#[test]
fn input_is_shown_once_and_answered_once() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    for text in ["first", "second", "third"] {
        assert_eq!(rig.aos(&["send", &pid.to_string(), text]).code, 0);
        until("its answer", || words_said(&rig, pid).contains(&format!("echo: {text}")).then_some(()));
    }
    rig.until_idle(pid);
    assert_eq!(words_said(&rig, pid), ["echo: first", "echo: second", "echo: third"]);
    let shown = words(rig.requests().last().unwrap());
    for text in ["first", "second", "third"] {
        assert_eq!(shown.matches(&format!("]\n{text}\n")).count(), 1, "{shown}");
    }
    let logs = rig.aos(&["logs", &pid.to_string()]);
    assert!(logs.out.contains("input: second") && logs.out.contains("echo: second"), "{logs:?}");
}

/// What a process has said, in order.
fn words_said(rig: &Rig, pid: u64) -> Vec<String> {
    rig.entries(pid, "inference_completed").iter().map(|entry| field(entry, "text")).collect()
}

#[test]
fn attached_one_talks_to_it_line_by_line() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    let mut command = rig.command(&["attach", &pid.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stdin = child.stdin.take().unwrap();
    let attached = Running::of(child);
    for text in ["ping", "pong"] {
        writeln!(stdin, "{text}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("echo: {text}"));
    }
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    assert_eq!(attached.end().code, 137, "it ends with the process and its code");
}

#[test]
fn wait_prints_the_result_and_exits_with_the_code() {
    let rig = Rig::new(vec![
        last("finish", vec![call("SYS_EXIT", json!({ "code": 9, "result": { "sum": 5 } }))]),
        any("", vec![say("ready")]),
    ]);
    let pid = rig.spawn(&["work"]).to_string();
    assert_told(&rig.aos(&["wait", "--timeout", "1s", &pid]), 124, &["still runs"]);
    let waiting = rig.start(&["wait", &pid]);
    assert_eq!(rig.aos(&["send", &pid, "finish"]).code, 0);
    let ran = waiting.end();
    let result: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, result), (9, json!({ "sum": 5 })), "{ran:?}");
    let again = rig.aos(&["wait", &pid]);
    assert_eq!((again.code, again.out), (9, ran.out), "an end can be asked for again");
}

#[test]
fn term_gives_one_last_turn_and_kill_gives_none() {
    let rig = Rig::new(vec![
        last("this is your last turn", vec![write("last-words.txt", "bye"), say("handed over")]),
        any("", vec![say("ready")]),
    ]);
    let (polite, rude) = (rig.spawn(&["one"]), rig.spawn(&["two"]));
    rig.until_idle(polite);
    rig.until_idle(rude);
    assert_eq!(rig.aos(&["kill", &polite.to_string()]).code, 0);
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &rude.to_string()]).code, 0);
    assert_eq!(rig.until_state(rude, "exited")["exit_code"], 137);
    assert_eq!(rig.until_state(polite, "exited")["exit_code"], 143);
    assert_eq!(rig::read(rig.file(&format!("workspaces/{polite}/last-words.txt"))), "bye");
    assert!(!rig.file(&format!("workspaces/{rude}/last-words.txt")).exists());
    assert_eq!(rig.json(&["ps"]), json!([]), "the ended are not listed");
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 2);
    assert_told(&rig.aos(&["kill", &rude.to_string()]), 1, &["has ended"]);
}

#[test]
fn term_is_followed_by_kill_where_the_model_hangs() {
    let rig = Rig::new(vec![Rule { fault: Some(Fault::Hang), ..any("alpha", vec![]) }]);
    let pid = rig.spawn(&["alpha"]);
    until("the model to be asked", || (rig.request_count() > 0).then_some(()));
    assert_eq!(rig.aos(&["kill", &pid.to_string()]).code, 0);
    let process = rig.until_state(pid, "exited");
    assert!([137, 143].contains(&process["exit_code"].as_i64().unwrap()), "{process}");
}

#[test]
fn a_killed_process_is_not_brought_back_by_an_answer_or_a_restart() {
    let late = aos_models::scripted::Answer { delay_ms: 700, ..write("late.txt", "too late") };
    let rig = Rig::new(vec![any("alpha", vec![late])]);
    let pid = rig.spawn(&["alpha"]);
    until("the model to be asked", || (rig.request_count() > 0).then_some(()));
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    // A run that takes longer than the late answer.
    rig.kill_daemon();
    rig.up();
    assert_eq!(rig.process(pid)["state"], "exited");
    for _ in 0..50 {
        assert_eq!(rig.json(&["ps"]), json!([]));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!rig.file(&format!("workspaces/{pid}/late.txt")).exists());
    let next = rig.spawn(&["--role", "next"]);
    assert!(next > pid, "a pid is never used twice in one home");
}

#[test]
fn a_paused_process_does_nothing_until_it_is_resumed() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    assert_eq!(rig.aos(&["pause", &pid]).code, 0);
    assert_eq!(rig.aos(&["send", &pid, "hello"]).code, 0);
    assert_eq!(rig.json(&["inspect", &pid])["state"], "stopped");
    rig.down();
    rig.up();
    assert_eq!(rig.json(&["inspect", &pid])["state"], "stopped", "stopped means stopped, also after a restart");
    assert_eq!(rig.request_count(), 0);
    assert_eq!(rig.aos(&["resume", &pid]).code, 0);
    let pid = pid.parse().unwrap();
    until("its answer", || (words_said(&rig, pid) == ["echo: hello"]).then_some(()));
    rig.until_idle(pid);
    assert_eq!(rig.request_count(), 1);
}

#[test]
fn a_child_pipes_to_its_parent_and_is_waited_for() {
    let rig = Rig::new(vec![
        role("<child>", vec![say("payload of the child")]),
        any(
            "alpha",
            vec![
                call("SPAWN_AGENT", json!({ "role": "<child>", "task": "make it", "pipe_to": 2 })),
                call("SYS_READ_STDIN", json!({})),
                call("WAIT", json!({})),
                say("child said {{last_result.result}} with {{last_result.exit_code}}"),
            ],
        ),
    ]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "child said payload of the child with 0\n"), "{ran:?}");
    let requests = rig.requests_with("alpha");
    let shown = results(requests.last().unwrap());
    assert_eq!(shown[0].1["result"]["pid"], 3, "{shown:?}");
    assert_eq!(shown[1].1["result"]["text"], "payload of the child", "{shown:?}");
    assert_eq!(shown[2].1["result"], json!({ "pid": 3, "exit_code": 0, "result": "payload of the child" }));
}

#[test]
fn a_tree_shows_who_started_whom() {
    let rig = Rig::new(vec![
        role("<child>", vec![say("ready")]),
        any("alpha", vec![call("SPAWN_AGENT", json!({ "role": "<child>", "name": "helper" })), say("ready")]),
    ]);
    let pid = rig.spawn(&["--name", "boss", "alpha"]);
    rig.until_idle(pid);
    let tree = rig.json(&["tree"]);
    assert_eq!((&tree[0]["name"], &tree[0]["children"][0]["name"]), (&json!("boss"), &json!("helper")), "{tree}");
    let shown = rig.aos(&["tree"]);
    assert!(shown.out.contains("└─ 3 helper"), "{shown:?}");
    assert_eq!(rig.aos(&["kill", "-s", "KILL", "--tree", &pid.to_string()]).code, 0);
    rig.until_state(3, "exited");
    assert_eq!(rig.json(&["ps"]), json!([]));
}

#[test]
fn a_child_gets_no_more_than_its_parent_and_without_grants_nothing() {
    let spawn = |permissions: serde_json::Value| {
        let mut args = json!({ "role": "<child>", "task": "try", "permissions": permissions });
        if permissions.is_null() {
            args.as_object_mut().unwrap().remove("permissions");
        }
        Call::new("SPAWN_AGENT", args)
    };
    let rig = Rig::new(vec![
        role(
            "<child>",
            vec![
                calls(vec![
                    Call::new("FS_WRITE", json!({ "path": "child.txt", "content": "1" })),
                    Call::new("SPAWN_AGENT", json!({ "role": "grandchild", "task": "x" })),
                ]),
                call("SYS_EXIT", json!({ "code": 3, "result": "{{result.0.error.code}} {{result.1.error.code}}" })),
            ],
        ),
        any(
            "alpha",
            vec![
                calls(vec![
                    spawn(json!(["FS_WRITE **"])),
                    spawn(json!(["FS_READ **"])),
                    spawn(json!(null)),
                    spawn(json!([])),
                ]),
                calls(vec![Call::new("WAIT", json!({})), Call::new("WAIT", json!({}))]),
                say("{{result.0.result}}, {{result.1.exit_code}}"),
            ],
        ),
    ]);
    let ran = rig.aos(&["run", "--grant", "SPAWN_AGENT", "--grant", "FS_READ docs/**", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "EPERM EPERM, 3\n"), "a child may always exit: {ran:?}");
    let shown = results(&rig.requests_with("alpha")[1]);
    for refused in &shown[..2] {
        assert_eq!(refused.1["error"]["code"], "EPERM", "{shown:?}");
        assert!(refused.1["error"]["message"].as_str().unwrap().contains("would be allowed to the child"), "{shown:?}");
    }
    assert!(shown[2..].iter().all(|(_, result)| result["status"] == "SUCCESS"), "{shown:?}");
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 3, "the refused ones were never born");
}

#[test]
fn messages_between_agents_come_once_and_in_order() {
    let send = |text: &str| Call::new("SEND_MSG", json!({ "to": "bob", "content": text }));
    let rig = Rig::new(vec![
        role("<bob>", vec![say("noted")]),
        any(
            "alpha",
            vec![
                calls(vec![send("<one>"), send("<two>"), send("<three>")]),
                calls(vec![Call::new("SEND_MSG", json!({ "to": "nobody", "content": "x" })), send("<four>")]),
                say("{{result.0.error.code}} then {{result.1.message_id}}"),
            ],
        ),
    ]);
    let bob = rig.spawn(&["--role", "<bob>", "--name", "bob"]);
    let ran = rig.aos(&["run", "alpha"]);
    assert!(ran.code == 0 && ran.out.starts_with("ESRCH then m"), "{ran:?}");
    until("everything to be read", || {
        let process = rig.process(bob);
        (process["inbox"] == 0 && process["waiting_for"] == "stdin").then_some(())
    });
    let contents: Vec<String> = rig.entries(bob, "message").iter().map(|entry| field(entry, "content")).collect();
    assert_eq!(contents, ["<one>", "<two>", "<three>", "<four>"]);
    let shown = words(rig.requests_with("<bob>").last().unwrap());
    let places: Vec<usize> = contents.iter().map(|content| shown.find(content.as_str()).unwrap()).collect();
    assert!(
        places.is_sorted() && contents.iter().all(|content| shown.matches(content.as_str()).count() == 1),
        "{shown}"
    );
    assert!(shown.contains("<untrusted source=\"message"), "another agent's words are fenced: {shown}");
}

#[test]
fn agents_that_wait_for_each_other_are_told() {
    let rig = Rig::new(vec![
        role("<child>", vec![call("RECV_MSG", json!({})), say("never")]),
        any(
            "alpha",
            vec![
                call("SPAWN_AGENT", json!({ "role": "<child>", "task": "wait for me" })),
                call("WAIT", json!({})),
                say("{{last_result.error.code}}"),
            ],
        ),
    ]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "EDEADLK\n"), "{ran:?}");
}

#[test]
fn inspect_and_logs_show_everything_and_logs_follow_to_the_end() {
    let rig = Rig::new(vec![
        last(
            "schedule",
            vec![
                call("SYS_SCHEDULE", json!({ "seconds": 3600, "prompt": "look again", "name": "hourly" })),
                say("set"),
            ],
        ),
        any("", vec![say("ready")]),
    ]);
    let pid = rig.spawn(&["--name", "clock", "--grant", "SYS_SCHEDULE", "--budget", "1.5", "work"]);
    rig.until_idle(pid);
    let number = pid.to_string();
    let following = rig.start(&["logs", "-f", "--events", "--json", &number]);
    assert_eq!(rig.aos(&["send", &number, "schedule"]).code, 0);
    until("the timer", || (rig.process(pid)["timers"][0]["name"] == "hourly").then_some(()));
    rig.until_idle(pid);
    let detail = rig.json(&["inspect", &number]);
    assert_eq!(detail["grants"], json!(["SYS_SCHEDULE"]));
    assert!(detail["budget"]["usd"] == 1.5 && detail["budget"]["usd_left"].as_f64().unwrap() < 1.5, "{detail}");
    let shown = rig.aos(&["inspect", &number]);
    assert!(shown.out.contains("hourly") || shown.out.contains("look again"), "{shown:?}");
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &number]).code, 0);
    let followed = following.end();
    let lines: Vec<serde_json::Value> = followed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((followed.code, &lines.last().unwrap()["type"]), (0, &json!("exited")));
    let journal: Vec<serde_json::Value> = rig.journal().into_iter().filter(|entry| entry["pid"] == pid).collect();
    assert_eq!(lines, journal, "what it follows is the journal, without a gap and without a duplicate");
}

#[test]
fn a_fork_has_lived_through_the_same_and_goes_its_own_way() {
    let rig = Rig::new(vec![echo(), any("", vec![say("ready")])]);
    let pid = rig.spawn(&["--role", "You answer.", "begin"]);
    rig.until_idle(pid);
    for text in ["before", "after"] {
        assert_eq!(rig.aos(&["send", &pid.to_string(), text]).code, 0);
        until("its answer", || words_said(&rig, pid).contains(&format!("echo: {text}")).then_some(()));
        rig.until_idle(pid);
    }
    // A workspace is made when something first wants it.
    std::fs::create_dir_all(rig.file(&format!("workspaces/{pid}"))).unwrap();
    std::fs::write(rig.file(&format!("workspaces/{pid}/shared.txt")), "copied").unwrap();
    let at = rig.entries(pid, "inference_completed")[1]["lsn"].to_string();
    let forked = rig.aos(&["fork", &pid.to_string(), "--at", &at, "--name", "twin"]);
    assert_eq!(forked.code, 0, "{forked:?}");
    assert!(forked.err.contains(&format!("as they are now, not as of event {at}")), "{forked:?}");
    let twin: u64 = forked.out.trim().parse().unwrap();
    assert_eq!(rig::read(rig.file(&format!("workspaces/{twin}/shared.txt"))), "copied");
    rig.until_idle(twin);
    assert_eq!(rig.aos(&["send", &twin.to_string(), "elsewhere"]).code, 0);
    until("its answer", || words_said(&rig, twin).contains(&"echo: elsewhere".to_owned()).then_some(()));
    let shown = words(rig.requests_with("elsewhere").last().unwrap());
    assert!(shown.contains("]\nbefore\n") && !shown.contains("]\nafter\n"), "{shown}");
    assert!(shown.contains(&format!("forked from process {pid}")), "{shown}");
    rig.until_idle(pid);
    assert_eq!(words_said(&rig, pid).len(), 3, "the first one noticed nothing");
}

/// What was summarised stood in a fork's window a second time, as words of its own, and what its children came to was not
/// there.
#[test]
fn a_fork_has_the_window_of_its_origin() {
    let made = call("SPAWN_AGENT", json!({ "role": "helper", "task": "to help" }));
    let rig =
        Rig::new(vec![last("alpha", vec![made]), last("to help", vec![say("helped")]), any("", vec![say("well")])]);
    let pid = rig.spawn(&["alpha"]);
    let window = |pid: u64| {
        rig.until_idle(pid);
        rig.json(&["inspect", &pid.to_string()])["window"].clone()
    };
    until("the end of its child", || rig.requests_with("helped").pop());
    let (first, at) = (window(pid), rig.journal().last().unwrap()["lsn"].to_string());
    let fork = |of: u64, more: &[&str]| -> u64 {
        let forked = rig.aos(&[&["fork", &of.to_string()], more].concat());
        assert_eq!(forked.code, 0, "{forked:?}");
        forked.out.trim().parse().unwrap()
    };
    let forked = fork(pid, &[]);
    let now = window(forked);
    assert_eq!(now["items"], first["items"], "{first} {now}");
    let asked = rig.entries(forked, "inference_started");
    assert!(asked.is_empty(), "its origin had nothing to do, and so has it: {asked:?}");
    assert_eq!(window(fork(pid, &["--at", &at])), now, "what the journal says is what the process has");
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    assert_eq!(window(fork(pid, &["--at", &at])), now, "also when it has ended");
}

/// What was spent of how much was all that was shown, where half of it was a child's.
#[test]
fn what_is_given_to_children_and_what_is_left_is_shown() {
    let made = call("SPAWN_AGENT", json!({ "role": "helper", "budget": { "usd": 0.5 } }));
    let rig = Rig::new(vec![last("alpha", vec![made]), any("", vec![say("well")])]);
    let pid = rig.spawn(&["--budget", "1", "alpha"]);
    let budget = || rig.json(&["inspect", &pid.to_string()])["budget"].clone();
    until("its child", || (budget()["usd_given"] == 0.5).then_some(()));
    rig.until_idle(pid);
    let left = budget()["usd_left"].as_f64().unwrap();
    assert!(left > 0.4 && left < 0.5, "{left}");
    let shown = rig.aos(&["budget"]).out;
    let row = shown.lines().find(|line| line.trim_start().starts_with(&format!("{pid} "))).unwrap();
    assert!(row.contains("$0.50") && row.contains("$0.49") && row.contains("$1.00"), "{shown}");
    assert!(shown.contains("GIVEN") && shown.contains("LEFT"), "{shown}");
}

/// All its limits were gone.
#[test]
fn a_fork_has_the_limits_of_its_origin_unused() {
    let rig = Rig::new(vec![any("", vec![say("well")])]);
    let pid = rig.spawn(&["--budget", "0.5", "--timeout", "1h", "alpha"]);
    rig.until_idle(pid);
    let forked = rig.aos(&["fork", &pid.to_string()]);
    assert_eq!(forked.code, 0, "{forked:?}");
    let budget = rig.json(&["inspect", forked.out.trim()])["budget"].clone();
    assert_eq!((&budget["usd"], &budget["usd_left"]), (&json!(0.5), &json!(0.5)), "{budget}");
    assert!(budget["ends_at"].is_string(), "{budget}");
}

/// The next process had the files in its folder, and nothing was known of what they carry.
#[test]
fn a_fork_that_is_not_made_leaves_no_files_to_the_next_process() {
    let rig = Rig::new(vec![any("", vec![say("ready")])]);
    let pid = rig.spawn(&["--role", "You answer.", "--name", "first", "begin"]);
    rig.until_idle(pid);
    std::fs::create_dir_all(rig.file(&format!("workspaces/{pid}"))).unwrap();
    std::fs::write(rig.file(&format!("workspaces/{pid}/Makefile")), "evil").unwrap();
    let forked = rig.aos(&["fork", &pid.to_string(), "--name", "first"]);
    assert!(forked.code == 1 && forked.err.contains("has the name `first`"), "{forked:?}");
    let next = pid + 1;
    assert!(!rig.file(&format!("workspaces/{next}")).exists());
    // A stop before the fork was journaled.
    rig.down();
    std::fs::create_dir_all(rig.file(&format!("workspaces/{next}"))).unwrap();
    std::fs::write(rig.file(&format!("workspaces/{next}/Makefile")), "evil").unwrap();
    std::fs::create_dir_all(rig.file("workspaces/.staged-abc/half")).unwrap();
    rig.up();
    assert!(!rig.file("workspaces/.staged-abc").exists(), "a copy that was not finished");
    assert_eq!(rig.spawn(&["--role", "You answer.", "begin"]), next);
    rig.until_idle(next);
    assert!(!rig.file(&format!("workspaces/{next}/Makefile")).exists());
    assert_eq!(rig::read(rig.file(&format!("workspaces/.left-{next}-1/Makefile"))), "evil");
    assert_eq!(rig::read(rig.file(&format!("workspaces/{pid}/Makefile"))), "evil");
}

#[test]
fn a_replay_makes_the_same_decisions() {
    let rig = Rig::new(vec![
        any(
            "alpha",
            vec![
                write("a", "1"),
                call("FS_READ", json!({ "path": "missing" })),
                call("SPAWN_AGENT", json!({ "role": "helper", "task": "help" })),
                call("WAIT", json!({})),
                say("done"),
            ],
        ),
        any("help", vec![say("helped")]),
    ]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let asked = rig.request_count();
    for _ in 0..2 {
        for pid in [2, 3] {
            let replay = rig.aos(&["replay", &pid.to_string()]);
            assert!(replay.code == 0 && replay.out.contains("the same"), "{replay:?}");
        }
        rig.down();
        rig.up();
    }
    let view = rig.json(&["replay", "2"]);
    assert!(view["difference"].is_null() && view["facts"].as_u64().unwrap() > 10, "{view}");
    assert_eq!(rig.request_count(), asked, "a replay asks no model");
}

#[test]
fn a_question_reaches_the_person_and_the_answer_the_agent() {
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            call("ASK_USER", json!({ "question": "which one?", "options": ["red", "blue"] })),
            say("you chose {{last_result.answer}}"),
        ],
    )]);
    rig.up();
    let running = rig.start(&["run", "alpha"]);
    let pid = until("the question", || {
        let listed = rig.get("/v1/processes");
        (listed[0]["waiting_for"] == "person").then(|| listed[0]["pid"].to_string())
    });
    assert_eq!(rig.aos(&["send", &pid, "blue"]).code, 0);
    let ran = running.end();
    assert_eq!((ran.code, ran.out.as_str()), (0, "you chose blue\n"), "{ran:?}");
    assert!(ran.err.contains("which one?"), "{ran:?}");
}

#[test]
fn a_timer_fires_by_itself_and_starts_no_second_loop() {
    let rig = Rig::new(vec![
        regex(r"\[timer t\d+", vec![say("ticked")]),
        any("begin", vec![call("SYS_SCHEDULE", json!({ "seconds": 1, "prompt": "again" })), say("set")]),
    ]);
    let pid = rig.spawn(&["begin"]);
    until("three firings", || (rig.entries(pid, "timer").len() >= 3).then_some(()));
    assert_eq!(rig.aos(&["pause", &pid.to_string()]).code, 0);
    let (fired, asked) = (rig.entries(pid, "timer").len(), rig.entries(pid, "inference_started").len());
    assert!(asked <= fired + 2, "two turns to set it, then one for each firing: {asked} turns, {fired} firings");
}

#[test]
fn what_came_for_a_turn_whose_inference_failed_is_not_lost() {
    let busy = || Fault::Status { status: 503, body: "{}".to_owned(), headers: Default::default() };
    let reset = Rule { times: Some(1), fault: Some(Fault::Reset), ..last("<hello>", vec![]) };
    let cut = Rule { times: Some(1), fault: Some(Fault::Cut { after_bytes: 40 }), ..last("<hello>", vec![say("cut")]) };
    let rig = Rig::new(vec![
        Rule { times: Some(1), fault: Some(busy()), ..last("<hello>", vec![]) },
        reset,
        cut,
        last("<hello>", vec![say("heard it")]),
    ]);
    let pid = rig.spawn(&["--role", "You listen."]);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "<hello>"]).code, 0);
    until("the answer", || words_said(&rig, pid).contains(&"heard it".to_owned()).then_some(()));
    rig.until_idle(pid);
    assert_eq!(words(rig.requests().last().unwrap()).matches("<hello>").count(), 1);
    assert!(!words_said(&rig, pid).contains(&"cut".to_owned()), "half an answer is none");
}

#[test]
fn a_second_message_while_it_thinks_starts_no_second_run() {
    // On a machine that is too busy to say three things while it thinks, it thinks longer.
    let thinks = |delay_ms| {
        let slow = aos_models::scripted::Answer { delay_ms, ..say("thought about it") };
        let rig = Rig::new(vec![any("", vec![slow])]);
        let pid = rig.spawn(&["begin"]);
        until("the model to be asked", || (rig.request_count() == 1).then_some(()));
        for text in ["one", "two", "three"] {
            assert_eq!(rig.aos(&["send", &pid.to_string(), text]).code, 0);
        }
        let still = (rig.request_count(), &rig.process(pid)["state"]) == (1, &json!("running"));
        still.then_some((rig, pid))
    };
    let (rig, pid) = [400, 4_000, 20_000].into_iter().find_map(thinks).expect("one request while it thinks");
    until("the second turn", || (words_said(&rig, pid).len() == 2).then_some(()));
    rig.until_idle(pid);
    assert_eq!(rig.request_count(), 2, "what came meanwhile is one turn");
    let shown = words(rig.requests().last().unwrap());
    assert!(["one", "two", "three"].iter().all(|text| shown.contains(&format!("]\n{text}\n"))), "{shown}");
}

#[test]
fn an_ended_parent_leaves_its_children_to_the_person_and_no_timers_behind() {
    let rig = Rig::new(vec![
        role("<child>", vec![say("ready")]),
        any(
            "alpha",
            vec![
                calls(vec![
                    Call::new("SPAWN_AGENT", json!({ "role": "<child>", "name": "orphan" })),
                    Call::new("SYS_SCHEDULE", json!({ "seconds": 1, "prompt": "again" })),
                    Call::new("SYS_REGISTER_WEBHOOK", json!({ "path": "hooks/a" })),
                ]),
                say("gone"),
            ],
        ),
    ]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "gone\n"), "{ran:?}");
    let orphan = rig.json(&["ps"])[0].clone();
    assert_eq!((&orphan["name"], &orphan["parent"]), (&json!("orphan"), &json!(1)), "{orphan}");
    let ended = rig.process(2);
    assert_eq!((&ended["timers"], &ended["webhooks"]), (&json!([]), &json!([])));
    assert_eq!(rig.tcp("POST", "/hooks/hooks/a", &[], Some("x")).status, 404);
    assert!(rig.entries(2, "timer").is_empty());
}

#[test]
fn attached_through_a_pipe_one_gets_the_answers_and_leaves() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    let nothing = rig.aos(&["attach", &pid]);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, ""), "/dev/null holds nothing to wait for: {nothing:?}");
    let ran = rig.aos_fed(&["attach", &pid], b"ping\n");
    assert_eq!((ran.code, ran.out.as_str()), (0, "echo: ping\n"), "{ran:?}");
    assert!(ran.err.contains("goes on"), "{ran:?}");
    let json = rig.aos_fed(&["attach", "--json", &pid], b"pong\n");
    assert_eq!(json.code, 0, "{json:?}");
    let said = json.out.lines().any(|line| line.contains("inference_completed") && line.contains("echo: pong"));
    assert!(said, "{json:?}");
    rig.until_idle(pid.parse().unwrap());
}

#[test]
fn the_end_of_a_pipe_reaches_a_process_with_one_task_and_its_end_comes_back() {
    let read = || call("SYS_READ_STDIN", json!({}));
    let done = call("SYS_EXIT", json!({ "code": 3, "result": "the end is {{last_result.eof}}" }));
    let rig = Rig::new(vec![any("alpha", vec![read(), read(), done])]);
    rig.up();
    let asked = json!({ "task": "alpha", "mode": "one_shot" });
    let pid = rig.http("POST", "/v1/processes", Some(&asked)).json()["pid"].to_string();
    let ran = rig.aos_fed(&["attach", &pid], b"a word\n");
    assert_eq!((ran.code, ran.out.as_str()), (3, "the end is true\n"), "{ran:?}");
    let ended = rig.aos(&["attach", &pid]);
    assert_eq!((ended.code, ended.out.as_str()), (3, "the end is true\n"), "an end can be seen again: {ended:?}");
    assert!(!ended.err.contains("has ended"), "{ended:?}");
}
