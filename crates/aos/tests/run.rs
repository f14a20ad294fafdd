//! `aos run`, end to end: what it prints, how it exits, what reaches the model and the disk.
//!
//! Start at the first test. What always holds: the model is a scripted server over real HTTP, whose recorded requests
//! say what an agent was really shown.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use aos_models::scripted::{Answer, Call, Fault, Rule, When};
use serde_json::{Value, json};

use rig::{
    Rig, Running, Setup, Terminal, any, assert_told, call, call_ids, calls, last, read, results, role, say, until,
    words, write,
};

#[test]
fn only_the_result_is_on_standard_output() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("The answer is 42.")])]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "The answer is 42.\n"), "{ran:?}");
    assert!(ran.err.contains("FS_WRITE a.txt"), "what it does is told on standard error: {ran:?}");
    let quiet = rig.aos(&["-q", "run", "alpha again"]);
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "The answer is 42.\n", ""));
}

#[test]
fn the_exit_code_is_the_agents_own() {
    let exit = |code: u8| call("SYS_EXIT", json!({ "code": code, "result": "half of it" }));
    let rig = Rig::new(vec![any("seven", vec![exit(7)]), any("zero", vec![exit(0)])]);
    let ran = rig.aos(&["run", "seven"]);
    assert_eq!((ran.code, ran.out.as_str()), (7, "half of it\n"), "{ran:?}");
    assert_eq!(rig.aos(&["run", "zero"]).code, 0);
    let json = rig.aos(&["run", "--json", "seven"]);
    assert_eq!(json.code, 7, "{json:?}");
}

#[test]
fn json_lines_are_the_events_and_the_last_is_exited() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("done")])]);
    let ran = rig.aos(&["run", "--json", "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    for expected in
        ["spawned", "inference_started", "inference_completed", "charged", "syscall", "verdict", "result", "exited"]
    {
        assert!(types.contains(&expected), "{types:?}");
    }
    assert_eq!(types.iter().position(|kind| *kind == "exited"), Some(types.len() - 1), "{types:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["exit_code"], &last["result"]), (&json!(0), &json!("done")));
    let lsns: Vec<u64> = lines.iter().map(|line| line["lsn"].as_u64().unwrap()).collect();
    assert!(lsns.windows(2).all(|pair| pair[0] < pair[1]), "{lsns:?}");
    assert!(lines.iter().all(|line| line["pid"] == lines[0]["pid"] && line["at"].is_string()));
}

#[test]
fn every_result_reaches_the_next_request_bound_to_its_call() {
    let two = calls(vec![
        Call::new("FS_WRITE", json!({ "path": "a", "content": "abc" })),
        Call::new("FS_READ", json!({ "path": "missing" })),
    ]);
    let rig = Rig::new(vec![any("alpha", vec![two, call("FS_READ", json!({ "path": "a" })), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let requests = rig.requests();
    assert_eq!(requests.len(), 3);
    let shown = results(&requests[1]);
    assert_eq!(shown.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), call_ids(&requests[1]));
    assert_eq!(shown[0].1, json!({ "status": "SUCCESS", "result": { "bytes": 3 } }));
    assert_eq!(shown[1].1["error"]["code"], "ENOENT", "{shown:?}");
    let shown = results(&requests[2]);
    assert_eq!(shown[2].1["result"]["content"], "abc", "{shown:?}");
}

#[test]
fn a_file_is_on_disk_in_the_process_own_workspace() {
    let rig = Rig::new(vec![any("alpha", vec![write("deep/er/a.txt", "one"), say("done")])]);
    let ran = rig.aos(&["run", "--json", "alpha"]);
    let first: Value = serde_json::from_str(ran.out.lines().next().unwrap()).unwrap();
    assert_eq!(read(rig.file(&format!("workspaces/{}/deep/er/a.txt", first["pid"]))), "one");
}

#[test]
fn a_folder_given_is_worked_on_in_place_and_nothing_outside_it() {
    let outside = calls(vec![
        Call::new("FS_WRITE", json!({ "path": "../outside.txt", "content": "no" })),
        Call::new("FS_WRITE", json!({ "path": "/tmp/aos-e2e-outside.txt", "content": "no" })),
        Call::new("FS_READ", json!({ "path": "link/secret" })),
        Call::new("FS_WRITE", json!({ "path": "inside.txt", "content": "yes" })),
    ]);
    let rig = Rig::new(vec![any("alpha", vec![outside, say("done")])]);
    let (folder, secret) = (rig.folder("project"), rig.folder("elsewhere"));
    std::fs::write(secret.join("secret"), "top secret").unwrap();
    std::os::unix::fs::symlink(&secret, folder.join("link")).unwrap();
    assert_eq!(rig.aos(&["run", "-w", "project", "alpha"]).code, 0);
    assert_eq!(read(folder.join("inside.txt")), "yes");
    assert!(!folder.join("../outside.txt").exists() && !std::path::Path::new("/tmp/aos-e2e-outside.txt").exists());
    let shown = results(&rig.requests()[1]);
    assert!(shown[..3].iter().all(|(_, result)| result["status"] == "ERROR"), "{shown:?}");
    assert!(!words(&rig.requests()[1]).contains("top secret"));
}

#[test]
fn files_are_copied_in_and_the_originals_stay() {
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            call("FS_READ", json!({ "path": "notes.txt" })),
            write("notes.txt", "changed"),
            say("{{last_result.bytes}}"),
        ],
    )]);
    let folder = rig.folder("mine");
    std::fs::write(folder.join("notes.txt"), "as it was").unwrap();
    let ran = rig.aos(&["run", "-f", "mine/notes.txt", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "7\n"), "{ran:?}");
    assert_eq!(results(&rig.requests()[1])[0].1["result"]["content"], "as it was");
    assert_eq!(read(folder.join("notes.txt")), "as it was");
    // In a folder of the person's there is no workspace of its own that it would see them in.
    let ran = rig.aos(&["run", "-w", "mine", "-f", "mine/notes.txt", "alpha"]);
    assert!(ran.code == 2 && ran.err.contains("`notes.txt` would go into a workspace of its own"), "{ran:?}");
}

/// An agent may have left the link; what is read through it goes to a model.
#[test]
fn a_link_out_of_its_folder_is_no_file_to_send_along() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let (folder, plain) = (rig.folder("mine"), rig.folder("elsewhere"));
    std::fs::write(plain.join("key"), "a key").unwrap();
    std::fs::write(folder.join("2024.md"), "a report").unwrap();
    std::os::unix::fs::symlink(plain.join("key"), folder.join("report.md")).unwrap();
    std::os::unix::fs::symlink("2024.md", folder.join("latest.md")).unwrap();
    let ran = rig.aos(&["run", "-f", "mine/report.md", "alpha"]);
    assert!(ran.code == 2 && ran.err.contains("it is a link out of its folder, to "), "{ran:?}");
    for own in ["mine/latest.md", "elsewhere/key", "/dev/stdin"] {
        let ran = rig.aos(&["run", "-f", own, "alpha"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{own}: {ran:?}");
    }
}

/// And one that the server refuses, or that is too large for it, is not asked about for ever: the agent goes on without it.
#[test]
fn an_image_is_shown_to_a_model_that_sees() {
    let refused = |image: &str, status, said: &str| {
        let body = json!({ "error": { "message": said } }).to_string();
        let when = When { body: Some(image.to_owned()), ..When::default() };
        Rule { when, fault: Some(Fault::Status { status, body, headers: BTreeMap::new() }), ..Rule::default() }
    };
    let bad = refused("iVBORw0KGgr///8=", 400, "Could not process image");
    let large = refused("iVBORw0KGgr9/f0=", 413, "Request exceeds the maximum size");
    let look = |path: &str| vec![call("FS_READ", json!({ "path": path })), say("seen")];
    let mut setup = Setup::default();
    setup.model.push_str("images = true\n");
    let rig = Rig::with(
        vec![bad, large, any("alpha", look("good.png")), any("beta", look("bad.png")), any("gamma", look("large.png"))],
        setup,
    );
    let folder = rig.folder("mine");
    std::fs::write(folder.join("good.png"), b"\x89PNG\r\n\x1a\n\xfe\xfe\xfe").unwrap();
    std::fs::write(folder.join("bad.png"), b"\x89PNG\r\n\x1a\n\xff\xff\xff").unwrap();
    std::fs::write(folder.join("large.png"), b"\x89PNG\r\n\x1a\n\xfd\xfd\xfd").unwrap();
    let ran = rig.aos(&["run", "-f", "mine/good.png", "alpha: what is in it?"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "seen\n"), "{ran:?}");
    let shown = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgr+/v4=" } });
    let requests = rig.requests();
    let last = requests[1]["messages"].as_array().unwrap().last().unwrap();
    assert!(last["content"].as_array().unwrap().contains(&shown), "{last}");

    for (task, path, asked) in [("beta", "mine/bad.png", 5), ("gamma", "mine/large.png", 8)] {
        let ran = rig.aos(&["run", "-f", path, &format!("{task}: what is in it?")]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "seen\n"), "{ran:?}");
        let requests = rig.requests();
        assert_eq!(requests.len(), asked);
        assert!(words(&requests[asked - 1]).contains("[an image that your model's server may have refused]"));
    }
}

#[test]
fn a_budget_too_small_ends_with_5_before_anything_is_asked() {
    let rig = Rig::new(vec![any("alpha", vec![say("never")])]);
    let ran = rig.aos(&["run", "--budget", "0.000001", "alpha"]);
    assert_told(&ran, 5, &["budget"]);
    assert_eq!((ran.out.as_str(), rig.request_count()), ("", 0));
}

#[test]
fn a_budget_of_zero_is_wrong_usage_everywhere() {
    let rig = Rig::new(vec![any("alpha", vec![say("never")])]);
    assert_told(&rig.aos(&["run", "--budget", "0", "alpha"]), 2, &["budget", "above 0", "try: "]);
    rig.up();
    for budget in [json!({ "usd": 0 }), json!({ "tokens": 0 }), json!({ "calls": 0 }), json!({ "wall_s": 0 })] {
        let asked = json!({ "task": "alpha", "mode": "one_shot", "budget": budget });
        let refused = rig.http("POST", "/v1/processes", Some(&asked));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("EINVAL")), "{refused:?}");
    }
    assert_eq!((rig.get("/v1/processes?all=true"), rig.request_count()), (json!([]), 0), "nothing was started");
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    for limit in ["--usd", "--tokens", "--calls", "--time"] {
        assert_told(&rig.aos(&["budget", &pid, limit, "0"]), 2, &[limit, "above 0"]);
    }
}

#[test]
fn a_spent_budget_stops_a_task_that_would_go_on_for_ever() {
    // Many rounds over the limit are refused one by one: cost is reserved before each call.
    let rig = Rig::with(
        vec![any("alpha", vec![call("FS_LIST", json!({}))])],
        Setup {
            model: "context_window = 32768\nmax_output = 100\nprice = { input = 1.0, output = 1.0 }\n".to_owned(),
            ..Setup::default()
        },
    );
    let ran = rig.aos(&["run", "--budget", "0.2", "alpha"]);
    assert_told(&ran, 5, &["budget"]);
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].as_u64().unwrap();
    let process = rig.process(pid);
    let spent = process["usage"]["cost_usd"].as_f64().unwrap();
    assert!(spent > 0.0 && spent <= 0.2, "{process}");
    assert_eq!(process["usage"]["inferences"].as_u64().unwrap(), rig.request_count());
}

#[test]
fn a_deadline_ends_with_124_whether_it_thinks_or_sleeps() {
    let hang = Rule { fault: Some(Fault::Hang), ..any("thinks", vec![]) };
    let rig = Rig::new(vec![hang, any("sleeps", vec![call("SLEEP", json!({ "seconds": 3600 }))])]);
    for task in ["it thinks", "it sleeps"] {
        let ran = rig.aos(&["run", "--timeout", "1s", task]);
        assert_told(&ran, 124, &["124"]);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_permanent_error_is_told_at_once_and_asked_once() {
    let denied = Fault::Status {
        status: 401,
        body: json!({ "error": { "message": "Incorrect API key provided", "type": "invalid_request_error" } })
            .to_string(),
        headers: Default::default(),
    };
    let rig = Rig::new(vec![Rule { fault: Some(denied), ..any("alpha", vec![]) }]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_told(&ran, 1, &["why: ", "try: ", "key"]);
    assert_eq!((ran.out.as_str(), rig.request_count()), ("", 1));
}

#[test]
fn an_error_that_passes_is_retried_and_nobody_notices() {
    let busy = Fault::Status { status: 503, body: "{}".to_owned(), headers: Default::default() };
    let rig = Rig::new(vec![
        Rule { times: Some(1), fault: Some(busy), ..any("alpha", vec![]) },
        any("alpha", vec![say("ok")]),
    ]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str(), rig.request_count()), (0, "ok\n", 2), "{ran:?}");
}

#[test]
fn wrong_usage_is_2_and_says_what_would_be_right() {
    let rig = Rig::new(vec![]);
    for arguments in [
        &["frobnicate"][..],
        &["run", "--nonsense", "a"],
        &["run"],
        &["run", "-w", "no-such-folder", "a"],
        &["run", "-f", "no-such-file", "a"],
        &["run", "--budget", "lots", "a"],
        &["run", "--timeout", "-1", "a"],
        &["inspect", "not-a-pid"],
        &["kill", "-s", "HUP", "2"],
    ] {
        let ran = rig.aos(arguments);
        assert_told(&ran, 2, &[]);
        assert_eq!(ran.out, "", "{arguments:?}");
        // What the operating system says of a file speaks for itself.
        let told = ran.err.contains("try: ") || ran.err.contains("No such file");
        assert!(told, "{arguments:?} has no way out: {ran:?}");
    }
    assert_eq!(rig.request_count(), 0);
}

#[test]
fn a_grant_of_no_call_names_the_nearest() {
    let rig = Rig::new(vec![]);
    let ran = rig.aos(&["run", "--grant", "FS_REED docs/**", "a"]);
    assert_told(&ran, 2, &["FS_REED", "try: ", "FS_READ"]);
}

#[test]
fn without_a_daemon_no_start_is_3_and_starts_none() {
    let rig = Rig::new(vec![]);
    for arguments in [&["--no-start", "run", "a"][..], &["--no-start", "ps"], &["status"]] {
        assert_told(&rig.aos(arguments), 3, &["try: aos up"]);
    }
    let json = rig.aos(&["--json", "--no-start", "ps"]);
    let body: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &body["error"]["code"]), (3, &json!("unavailable")), "{json:?}");
    assert!(rig.daemons().is_empty() && !rig.file("journal.db").exists());
}

#[test]
fn a_denial_reaches_the_agent_as_eperm_with_the_narrowest_grant() {
    let fetch = call("NET_FETCH", json!({ "url": "https://example.com/a" }));
    let rig = Rig::new(vec![any("alpha", vec![fetch, say("refused: {{last_result.error.code}}")])]);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "refused: EPERM\n"), "{ran:?}");
    let error = &results(&rig.requests()[1])[0].1["error"];
    let hint = error["hint"].as_str().unwrap_or_default();
    assert!(error["code"] == "EPERM" && hint.contains("example.com"), "{error}");
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].as_u64().unwrap();
    assert_eq!(rig.entries(pid, "verdict")[0]["verdict"], "deny");
}

#[test]
fn grants_narrow_what_the_role_allows() {
    let both = calls(vec![
        Call::new("FS_WRITE", json!({ "path": "work/a", "content": "1" })),
        Call::new("FS_WRITE", json!({ "path": "work-evil/a", "content": "1" })),
        Call::new("FS_READ", json!({ "path": "work/a" })),
    ]);
    let rig = Rig::new(vec![any("alpha", vec![both, say("done")])]);
    assert_eq!(rig.aos(&["run", "--grant", "FS_WRITE work/**", "alpha"]).code, 0);
    let shown = results(&rig.requests()[1]);
    assert_eq!(shown[0].1["status"], "SUCCESS", "{shown:?}");
    assert_eq!(shown[1].1["error"]["code"], "EPERM", "a prefix is no path: {shown:?}");
    assert_eq!(shown[2].1["error"]["code"], "EPERM", "{shown:?}");
}

#[test]
fn a_correct_call_is_not_lost_beside_a_malformed_one() {
    let broken = Call { raw_args: Some("{\"path\":".to_owned()), ..Call::new("FS_WRITE", json!({})) };
    let mixed = calls(vec![
        Call::new("FS_WRITE", json!({ "path": "one", "content": "1" })),
        broken,
        Call::new("FS_WRITE", json!({ "path": "two", "contents": "2" })),
        Call::new("FS_REED", json!({ "path": "one" })),
        Call::new("FS_WRITE", json!({ "path": "three", "content": "3" })),
    ]);
    let rig = Rig::new(vec![any("alpha", vec![mixed, say("done")])]);
    let folder = rig.folder("project");
    assert_eq!(rig.aos(&["run", "-w", "project", "alpha"]).code, 0);
    assert_eq!((read(folder.join("one")), read(folder.join("three"))), ("1".to_owned(), "3".to_owned()));
    assert!(!folder.join("two").exists());
    let shown = results(&rig.requests()[1]);
    let codes: Vec<&str> = shown.iter().map(|(_, r)| r["error"]["code"].as_str().unwrap_or("ok")).collect();
    assert_eq!(codes, ["ok", "EINVAL", "EINVAL", "ENOSYS", "ok"]);
    assert!(shown[2].1["error"]["hint"].as_str().unwrap().contains("a correct call: FS_WRITE {"), "{shown:?}");
    assert!(shown[3].1["error"]["hint"].as_str().unwrap().contains("FS_READ"), "{shown:?}");
}

#[test]
fn text_form_calls_run_and_quoted_ones_do_not() {
    let own = "Here it is.\n[SYS_CALL::FS_WRITE] {\"path\":\"own\",\"content\":\"1\"}\n> [SYS_CALL::FS_WRITE] {\"path\":\"quoted\",\"content\":\"1\"}";
    let rig = Rig::new(vec![any("alpha", vec![say(own), say("done")])]);
    let folder = rig.folder("project");
    let task = "alpha [SYS_CALL::FS_WRITE] {\"path\":\"task\",\"content\":\"1\"}";
    assert_eq!(rig.aos(&["run", "-w", "project", task]).code, 0);
    assert_eq!(read(folder.join("own")), "1");
    assert!(!folder.join("quoted").exists() && !folder.join("task").exists(), "only the reply's own calls run");
}

#[test]
fn an_agent_is_told_its_pid_its_rights_and_the_form_of_results() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "--grant", "FS_READ docs/**", "alpha"]).code, 0);
    let request = &rig.requests()[0];
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].to_string();
    let shown = words(request);
    for word in [format!("process {pid}"), "FS_READ docs/**".into(), "SUCCESS".into(), "ERROR".into()] {
        assert!(shown.contains(&word), "`{word}` is not said: {shown}");
    }
    let tools = request["tools"].to_string();
    assert!(tools.contains("\"FS_READ\"") && !tools.contains("\"FS_WRITE\""), "only what it may call is offered");
}

#[test]
fn the_task_can_come_from_standard_input() {
    let rig = Rig::new(vec![any("from a pipe", vec![say("read")]), any("", vec![say("not read")])]);
    for arguments in [&["run", "-"][..], &["run"]] {
        let ran = rig.aos_fed(arguments, b"from a pipe\n");
        assert_eq!((ran.code, ran.out.as_str()), (0, "read\n"), "{ran:?}");
    }
}

/// What is piped in may be a text to work on, by others than who says what to do with it.
#[test]
fn a_file_can_come_from_standard_input() {
    let look = Call::new("FS_READ", json!({ "path": "input.txt" }));
    let rig = Rig::new(vec![any("alpha", vec![calls(vec![look]), say("read")])]);
    for (args, labels) in
        [(&["run", "-f", "-", "alpha"][..], ""), (&["run", "--untrusted", "-f-", "alpha"], "untrusted.file")]
    {
        let ran = rig.aos_fed(args, b"from a pipe\n");
        assert_eq!((ran.code, ran.out.as_str()), (0, "read\n"), "{ran:?}");
        assert!(words(rig.requests().last().unwrap()).contains("from a pipe"));
        let told: Vec<Value> = rig.journal().into_iter().filter(|entry| entry["type"] == "labelled").collect();
        assert_eq!(told.is_empty(), labels.is_empty(), "{told:?}");
        assert!(told.iter().all(|entry| entry.to_string().contains(labels)), "{told:?}");
    }
    for args in [&["run", "-f", "-", "-"][..], &["run", "-f", "-"], &["run", "--untrusted", "alpha"]] {
        let ran = rig.aos_fed(args, b"from a pipe\n");
        assert!(ran.code == 2 && (ran.err.contains("try: aos run -f -") || ran.err.contains("--file")), "{ran:?}");
    }
}

#[test]
fn an_agents_text_cannot_steer_the_terminal() {
    let hostile = "a\u{1b}[2J\u{1b}]0;title\u{7}b";
    let rig = Rig::new(vec![any(
        "alpha",
        vec![
            Answer {
                text: hostile.to_owned(),
                calls: vec![Call::new("FS_LIST", json!({ "path": hostile }))],
                ..Answer::default()
            },
            say(hostile),
        ],
    )]);
    let ran = rig.aos(&["run", "alpha"]);
    let logs = rig.aos(&["logs", &rig.get("/v1/processes?all=true")[0]["pid"].to_string()]);
    for text in [&ran.out, &ran.err, &logs.out, &logs.err] {
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    }
    assert_eq!((ran.code, logs.code), (0, 0));
}

#[test]
fn a_second_signal_of_the_person_ends_a_run() {
    let hang = Rule {
        when: When { any: Some("alpha".into()), ..When::default() },
        fault: Some(Fault::Hang),
        ..Rule::default()
    };
    let rig = Rig::new(vec![hang]);
    rig.up();
    let mut child = rig.command(&["run", "alpha"]).spawn().unwrap();
    // Its first word comes when it listens to signals.
    let mut told = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut told).unwrap();
    let running = Running::of(child);
    until("the model to be asked", || (rig.request_count() > 0).then_some(()));
    let os_pid = rustix::process::Pid::from_raw(running.child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(os_pid, rustix::process::Signal::INT).unwrap();
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].as_u64().unwrap();
    until("TERM to arrive", || (!rig.entries(pid, "signal").is_empty()).then_some(()));
    rustix::process::kill_process(os_pid, rustix::process::Signal::INT).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, 137, "{ran:?}");
    assert_eq!(rig.until_state(pid, "exited")["exit_code"], 137);
}

/// A daemon that is asked to start a process, and whose person presses Ctrl-C before it has answered.
#[test]
fn an_interrupt_while_a_run_begins_reaches_the_process() {
    let rig = Rig::new(vec![]);
    std::fs::create_dir(rig.file("run")).unwrap();
    let daemon = UnixListener::bind(rig.file("run/aos.sock")).unwrap();
    let child = rig.command(&["run", "alpha"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    let os_pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let _running = Running::of(child);
    // Its listeners are in a thread, so that a client that has died fails this test and does not hang it.
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in daemon.incoming().flatten() {
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line.starts_with("POST /v1/processes ") {
                rustix::process::kill_process(os_pid, rustix::process::Signal::INT).unwrap();
                let body = r#"{"pid":7,"lsn":5}"#;
                let head = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\nconnection: close", body.len());
                write!(stream, "{head}\r\n\r\n{body}").unwrap();
            }
            sender.send(line).unwrap();
        }
    });
    until("the process to be told", || {
        let request = requests.recv_timeout(rig::DEADLINE).ok()?;
        request.starts_with("POST /v1/processes/7/signal ").then_some(())
    });
}

#[test]
fn a_task_longer_than_its_window_goes_on_and_keeps_calls_with_their_results() {
    const FILES: usize = 30;
    let read = |nth: usize| vec![call("FS_READ", json!({ "path": format!("f{nth}") }))];
    // A server that is down for a moment makes nobody forget: the summary is asked for again.
    let down = Fault::Status { status: 503, body: String::new(), headers: Default::default() };
    let summary = role("You summarise", vec![say("Files were read, one after the other.")]);
    let mut rules = vec![Rule { times: Some(3), fault: Some(down), ..summary.clone() }, summary];
    // What comes next follows from the last turn alone, so that a summary of the rest changes nothing.
    rules.extend((0..FILES - 1).map(|nth| last(&format!("this is file {nth}."), read(nth + 1))));
    rules.push(last(&format!("this is file {}.", FILES - 1), vec![say("read them all")]));
    rules.push(any("alpha", read(0)));
    let rig = Rig::with(
        rules,
        Setup {
            model: "context_window = 16384\nmax_output = 512\nprice = { input = 1.0, output = 1.0 }\n".to_owned(),
            ..Setup::default()
        },
    );
    let folder = rig.folder("project");
    for nth in 0..FILES {
        let filler = format!("line of file {nth}\n").repeat(200);
        std::fs::write(folder.join(format!("f{nth}")), format!("this is file {nth}.\n{filler}")).unwrap();
    }
    let ran = rig.aos(&["run", "-w", "project", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "read them all\n"), "{ran:?}");
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].as_u64().unwrap();
    let compacted = rig.entries(pid, "compacted");
    assert!(!compacted.is_empty(), "the window was never full, so nothing was tested");
    assert!(compacted.iter().all(|entry| entry["summary"] == "Files were read, one after the other."), "{compacted:?}");
    let requests = rig.requests();
    assert!(requests.len() <= FILES + 4 + rig.entries(pid, "compacted").len(), "{} requests", requests.len());
    for request in &requests {
        let answered: Vec<String> = results(request).into_iter().map(|(id, _)| id).collect();
        assert_eq!(call_ids(request), answered, "providers refuse a call without its result");
        assert!(request.to_string().len() < 16384 * 6, "a request beyond the window: {}", request.to_string().len());
    }
}

/// What was spent, whichever way it is grouped, is the same; what has no price is said to be unknown and is not nothing.
#[test]
fn what_was_spent_is_shown_by_day_model_agent_and_entity() {
    let setup = Setup { more: "default_model = \"small\"\n".into(), ..Setup::default() };
    let rig = Rig::with(vec![any("", vec![say("ok")])], setup);
    let path = rig.file("aos.toml");
    let text = read(&path);
    let base = text.lines().find(|line| line.starts_with("base_url = ")).unwrap();
    let free = format!("[models.free]\nprovider = \"openai\"\nmodel = \"m\"\n{base}\n");
    std::fs::write(&path, format!("{text}{free}")).unwrap();
    for role in ["clerk", "clerk", "editor"] {
        let pid = rig.spawn(&["--role", role, "do it"]);
        rig.until_idle(pid);
    }
    assert_eq!(rig.aos(&["run", "-m", "free", "do it"]).code, 0);
    let made = rig.json(&["models", "key", "site", "--owner", "Ada"]);
    let secret = made["key"].as_str().unwrap();
    let body = json!({ "model": "small", "messages": [{ "role": "user", "content": "do it" }] }).to_string();
    let answer =
        rig.tcp("POST", "/v1/chat/completions", &[("Authorization", &format!("Bearer {secret}"))], Some(&body));
    assert_eq!(answer.status, 200, "{answer:?}");
    until("its charge", || {
        (rig.journal().iter().filter(|entry| entry["type"] == "charged").count() == 5).then_some(())
    });

    let cost = |by: &str| rig.json(&["cost", "--by", by]);
    let groups = |by: &str| -> Vec<(String, u64)> {
        let cost = cost(by);
        assert_eq!(cost["total"], rig.json(&["cost"])["total"], "{by}: {cost}");
        let groups = cost["groups"].as_object().unwrap();
        groups.iter().map(|(name, group)| (name.clone(), group["inferences"].as_u64().unwrap())).collect()
    };
    let is = |name: &str, count: u64| (name.to_owned(), count);
    assert_eq!(groups("model"), [is("free", 1), is("small", 4)]);
    assert_eq!(groups("entity"), [is("Ada", 1), is("owner", 4)]);
    let agents = groups("agent");
    assert!([is("clerk", 2), is("editor", 1), is("site", 1)].iter().all(|one| agents.contains(one)), "{agents:?}");
    assert_eq!((groups("day").len(), groups("pid").len(), agents.len()), (1, 5, 4), "{agents:?}");
    let free = cost("model")["groups"]["free"].clone();
    assert_eq!((&free["cost_unknown"], &free["cost_usd"]), (&json!(1), &json!(0.0)), "{free}");
    let shown = rig.aos(&["cost", "--by", "model"]);
    assert!(shown.out.contains("unknown") && shown.out.contains("The cost of 1 inference is unknown"), "{shown:?}");
}

/// Two tiers, of which the lower one's server is not there: the router says so, the other one serves and is charged.
#[test]
fn where_a_model_is_down_another_one_serves_and_the_router_says_why() {
    let rig = Rig::new(vec![any("alpha", vec![say("ok")])]);
    let path = rig.file("aos.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("[daemon]\n", "[daemon]\ndefault_model = \"auto\"\n");
    let down =
        "[models.down]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\ntier = \"nano\"\n";
    std::fs::write(&path, format!("{text}tier = \"strong\"\n{down}")).unwrap();

    let said = rig.aos(&["models", "route", "alpha", "--json"]);
    let said: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    let order: Vec<&str> = said["order"].as_array().unwrap().iter().map(|of| of["model"].as_str().unwrap()).collect();
    assert_eq!((said["asked"].as_str(), order), (Some("auto"), vec!["down", "small"]), "{said}");
    assert!(said["order"][0]["worst_usd"].is_null() && said["order"][1]["worst_usd"].is_number(), "{said}");

    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "ok\n"), "{ran:?}");
    let logs = rig.aos(&["logs", "2"]);
    assert!(logs.out.contains("from down to the model small: the next tier up"), "{logs:?}");
    let cost = rig.aos(&["cost", "--by", "model", "--json"]);
    let cost: Value = serde_json::from_str(&cost.out).unwrap_or_else(|_| panic!("{cost:?}"));
    assert_eq!(cost["groups"]["small"]["inferences"], 1, "{cost}");
    assert!(cost["groups"]["down"].is_null(), "{cost}");
}

#[test]
fn who_is_attached_at_a_terminal_goes_on_where_the_daemon_died() {
    let rig = Rig::new(vec![any("tea", vec![call("ASK_USER", json!({ "question": "Which?" })), say("so be it")])]);
    let terminal = Terminal::new();
    let mut command = rig.command(&["run", "tea"]);
    command.env("TERM", "xterm-256color");
    let running = terminal.start(command);
    terminal.see("Which?");
    rig.kill_daemon();
    // Nobody else starts it.
    terminal.see("the daemon is back");
    terminal.keys("green\n");
    let ran = running.end();
    assert_eq!((ran.code, ran.out.as_str()), (0, "so be it\n"), "{ran:?} {}", terminal.shown());
}

#[test]
fn who_comes_later_sees_what_is_asked() {
    let ask = json!({ "question": "Tea or coffee?", "options": ["tea", "coffee"] });
    let rig = Rig::new(vec![any("drink", vec![call("ASK_USER", ask), say("so be it")])]);
    let pid = rig.spawn(&["drink"]);
    let asked = until("the question", || rig.process(pid).get("question").cloned());
    assert_eq!(asked, json!({ "text": "Tea or coffee?", "options": ["tea", "coffee"] }));
    let pid_text = pid.to_string();
    for arguments in [&["inspect", &pid_text][..], &["proposals"]] {
        let ran = rig.aos(arguments);
        for told in ["Tea or coffee? (tea / coffee)", &format!("aos send {pid} TEXT")] {
            assert!(ran.out.contains(told), "{ran:?}");
        }
    }
    let terminal = Terminal::new();
    let running = terminal.start(rig.command(&["attach", &pid_text]));
    terminal.see("Tea or coffee? (tea / coffee)");
    terminal.keys("tea\n");
    rig.until_idle(pid);
    terminal.keys("\u{4}");
    assert_eq!(running.end().code, 0, "{}", terminal.shown());
    assert_eq!(rig.entries(pid, "input").len(), 1);
    assert!(rig.process(pid).get("question").is_none());
    assert!(rig.aos(&["proposals"]).err.contains("nothing waits"));
    let logged = rig.aos(&["logs", &pid_text]).out;
    let today = rig.entries(pid, "spawned")[0]["at"].as_str().unwrap()[..10].to_owned();
    assert!(logged.starts_with(&format!("{today} ")), "a day is said: {logged}");
}

#[test]
fn a_budget_that_is_spent_says_what_helps_one_that_has_ended() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let ran = rig.aos(&["run", "--budget", "0.000001", "alpha"]);
    assert_told(&ran, 5, &["run it again with a larger --budget"]);
    assert!(!ran.err.contains("aos budget"), "{ran:?}");
}

#[test]
fn a_grant_beyond_the_role_is_said_to_have_no_effect() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    for (grant, is_said) in [("NET_FETCH x.com/**", true), ("FS_READ **", false)] {
        let ran = rig.aos(&["spawn", "--grant", grant, "alpha"]);
        assert_eq!((ran.code, ran.err.contains("goes beyond its role")), (0, is_said), "{grant}: {ran:?}");
    }
}
