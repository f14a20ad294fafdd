//! The first minutes of a person with the program: no model, no knowledge, mistakes, end to end.
//!
//! Start at the first test. What always holds: the home has no model, so aos-nano answers, the one inside the program, and
//! everything that is advised on the screen is done here as it is said.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rig::{Rig, Running, Setup, any, assert_told, call, read, say};
use serde_json::json;

/// A home as the program itself makes it, without a model.
fn fresh() -> Rig {
    let rig = Rig::new(vec![]);
    std::fs::remove_dir_all(rig.home()).unwrap();
    rig
}

#[test]
fn the_first_command_of_the_readme_does_what_it_says() {
    let rig = fresh();
    let readme = read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let task = readme.lines().find_map(|line| line.strip_prefix("cargo run --release -- run -w . '")).unwrap();
    let (task, folder) = (task.strip_suffix('\'').unwrap(), rig.folder("mine"));
    let place = folder.to_str().unwrap();
    let done = rig.aos(&["run", "-w", place, task]);
    assert!(done.code == 0 && done.out == "Wrote hello.txt.\n", "{done:?}");
    assert!(done.err.contains("on model nano") && done.err.contains("`aos init` looks for a larger one"), "{done:?}");
    assert_eq!(read(folder.join("hello.txt")), "hello, world\n");
    let denied = rig.aos(&["run", "-w", place, "--grant", "FS_LIST", task]);
    assert!(denied.code == 0 && denied.out.starts_with("I may not use FS_WRITE here"), "{denied:?}");
}

#[test]
fn the_model_inside_can_be_tried() {
    let told = fresh().aos(&["models", "test", "nano"]);
    assert!(told.code == 0 && told.out.contains("tokens a second"), "{told:?}");
}

#[test]
fn help_is_a_command_too() {
    let rig = fresh();
    let (all, flag) = (rig.aos(&["help"]), rig.aos(&["--help"]));
    assert_eq!((all.code, &all.out), (0, &flag.out), "{all:?}");
    let (one, flag) = (rig.aos(&["help", "run"]), rig.aos(&["run", "--help"]));
    assert_eq!((one.code, &one.out), (0, &flag.out), "{one:?}");
    assert_eq!(rig.aos(&["help", "policy", "explain"]).code, 0);
    assert_told(&rig.aos(&["help", "rnu"]), 2, &["rnu", "try: "]);
    assert!(!rig.home().exists(), "help makes no home");
}

#[test]
fn a_file_that_is_not_there_is_told_with_a_way_out() {
    let rig = fresh();
    assert_told(&rig.aos(&["run", "-f", "missing.txt", "read it"]), 2, &["missing.txt", "try: "]);
}

#[test]
fn a_question_to_the_policy_may_leave_out_what_does_not_matter() {
    let rig = fresh();
    let pid = rig.spawn(&["Look around"]);
    let said = rig.aos(&["policy", "explain", &pid.to_string(), "FS_WRITE {\"path\":\"a\"}"]);
    assert!(said.code == 0 && said.out.starts_with("allow, by "), "{said:?}");
    assert!(said.err.contains("left out: content"), "{said:?}");
    for call in [json!({ "name": "FS_WRITE", "args": { "path": "a" } }), json!({ "name": "FS_WRITE" })] {
        let asked = json!({ "pid": pid, "call": call });
        let answer = rig.http("POST", "/v1/policy/explain", Some(&asked));
        assert_eq!((answer.status, &answer.json()["verdict"]), (200, &json!("allow")), "{answer:?}");
        assert!(answer.json()["taken"].as_array().unwrap().contains(&json!("content")), "{answer:?}");
    }
}

#[test]
fn a_hash_kept_elsewhere_proves_the_past() {
    let rig = fresh();
    assert_eq!(rig.aos(&["run", "say hello"]).code, 0);
    let told = rig.aos(&["audit", "verify"]);
    let kept = told.out.trim().rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!(rig.aos(&["run", "say more"]).code, 0);
    let held = rig.aos(&["audit", "verify", "--expect", &kept]);
    assert!(held.code == 0 && held.out.starts_with("intact"), "{held:?}");
    let (lsn, hash) = kept.split_once(':').unwrap();
    let other = format!("{lsn}:{}", hash.chars().rev().collect::<String>());
    let altered = rig.aos(&["audit", "verify", "--expect", &other]);
    assert!(altered.code == 1 && altered.out.contains("ALTERED") && altered.out.contains(lsn), "{altered:?}");
    let beyond = rig.aos(&["audit", "verify", "--expect", &format!("100000:{hash}")]);
    assert!(beyond.code == 1 && beyond.out.contains("100000"), "{beyond:?}");
    assert_told(&rig.aos(&["audit", "verify", "--expect", "12"]), 2, &["--expect", "64 hex digits"]);
}

#[test]
fn init_in_a_home_without_a_model_adds_the_one_that_is_found() {
    let rig = fresh();
    assert_eq!(rig.aos(&["run", "say hello"]).code, 0);
    let mine = format!("# my own words\n{}\n# and these", read(rig.file("aos.toml")));
    std::fs::write(rig.file("aos.toml"), &mine).unwrap();
    let nothing = rig.aos(&["init"]);
    // A model server that runs on this machine would be found, which is no fault.
    if nothing.err.contains("no model was found") {
        assert_eq!(rig.json(&["init"])["default_model"], serde_json::Value::Null);
        assert_eq!(read(rig.file("aos.toml")), mine);
    }
    let mut command = rig.command(&["init"]);
    // No proxy listens there, so the provider cannot be asked: the key leaves no test.
    command.env("ANTHROPIC_API_KEY", "sk-test").env("HTTPS_PROXY", "http://127.0.0.1:1");
    let ran = Running::new(command).end();
    assert!(ran.code == 0 && ran.err.contains("added [models.anthropic]") && ran.err.contains("aos down"), "{ran:?}");
    assert!(ran.err.contains("api.anthropic.com did not list its models"), "{ran:?}");
    let text = read(rig.file("aos.toml"));
    let mut lines = text.lines();
    assert!(mine.lines().all(|line| lines.any(|other| other == line)), "{text}");
    assert!(text.contains("ANTHROPIC_API_KEY") && !text.contains("sk-test"));
    rig.stop();
    assert!(rig.aos(&["models"]).out.contains("anthropic"));
    let again = rig.aos(&["init"]);
    assert!(again.code == 0 && again.err.contains("nothing was changed"), "{again:?}");
}

/// The key of a gateway was sent to the provider itself, whose models were configured with it.
#[test]
fn a_key_that_the_environment_sends_elsewhere_is_not_sent_to_its_provider() {
    let rig = fresh();
    // Whatever goes out goes to this one.
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let init = |base: &str| {
        let mut command = rig.command(&["init"]);
        command.env("HTTPS_PROXY", format!("http://{}", proxy.local_addr().unwrap()));
        command.env("ANTHROPIC_API_KEY", "sk-test").env("ANTHROPIC_BASE_URL", base);
        Running::new(command).end()
    };
    let ran = init("https://gateway.test/claude");
    assert!(ran.code == 0 && ran.err.contains("ANTHROPIC_BASE_URL sends the key in ANTHROPIC_API_KEY"), "{ran:?}");
    assert!(ran.err.contains("\nbase_url = \"https://gateway.test/claude\"\n"), "{ran:?}");
    assert!(proxy.accept().is_err(), "it was sent to the provider");
    assert!(!read(rig.file("aos.toml")).contains("[models.anthropic"));
    // Where the variable says what is so anyway, the provider is asked.
    let ran = init("https://api.anthropic.com/");
    assert!(ran.code == 0 && ran.err.contains("added [models.anthropic]"), "{ran:?}");
    assert!(proxy.accept().is_ok());
}

#[test]
fn a_port_that_is_taken_keeps_no_daemon_down() {
    let rig = fresh();
    assert_eq!(rig.aos(&["init"]).code, 0);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    std::fs::write(rig.file("aos.toml"), format!("[daemon]\nlisten = \"{taken}\"\n")).unwrap();
    rig.up();
    let listen = rig.listen();
    assert_ne!(listen, taken);
    assert_eq!(read(rig.file("run/listen")).trim(), listen, "programs find it there");
    assert!(rig.log().contains(&taken) && rig.log().contains(&listen), "{}", rig.log());
    assert_eq!(rig.tcp("GET", "/healthz", &[], None).status, 200);
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.out.contains(&format!("listening on {listen}, while aos.toml says {taken}")), "{doctor:?}");
    drop(other);
    rig.stop();
    assert!(!rig.file("run/listen").exists());
    rig.up();
    assert_eq!(rig.listen(), taken, "and the port is used again once it is free");
}

/// The lock of a shell was held by the daemon that a command in it had started, for as long as that ran.
#[test]
fn the_daemon_holds_nothing_that_the_shell_before_it_had_opened() {
    let rig = fresh();
    let lock = rig.folder("mine").join("lock");
    let script = format!("exec 9>{}; {} up", lock.display(), env!("CARGO_BIN_EXE_aos"));
    let up = rig.command_of(Path::new("sh"), &["-c", &script]).output().unwrap();
    assert!(up.status.success() && lock.exists(), "{up:?}");
    let daemons = rig.daemons();
    assert!(!daemons.is_empty());
    for process in daemons {
        let held = std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap().flatten();
        assert!(!held.filter_map(|one| std::fs::read_link(one.path()).ok()).any(|to| to == lock));
    }
}

#[test]
fn a_port_that_another_user_has_is_not_replaced_unsaid() {
    let rig = fresh();
    assert_eq!(rig.aos(&["init"]).code, 0);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    if std::os::unix::fs::fchown(&other, Some(4242), None).is_err() {
        eprintln!("SKIPPED: only root can make another user's listener");
        return;
    }
    let taken = other.local_addr().unwrap().to_string();
    std::fs::write(rig.file("aos.toml"), format!("[daemon]\nlisten = \"{taken}\"\n")).unwrap();
    // As a daemon that was killed leaves it.
    std::fs::write(rig.file("run/listen"), &taken).unwrap();
    let up = rig.aos(&["up"]);
    let said = format!("on its Unix socket alone: a program of the user 4242 has {taken}");
    assert!(up.code == 0 && up.out.contains(&said) && up.out.contains("set another `listen`"), "{up:?}");
    assert!(!rig.file("run/listen").exists());
    let doctor = rig.aos(&["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains(&said), "{doctor:?}");
    drop(other);
    rig.stop();
    rig.up();
    assert_eq!(rig.listen(), taken, "and the port is used again once it is free");
}

#[test]
fn an_empty_folder_that_others_may_write_becomes_a_home_also_below_one() {
    let rig = fresh();
    let set = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let home = rig.home();
    let above = home.parent().unwrap();
    std::fs::create_dir(&home).unwrap();
    set(&home);
    set(above);
    let made = rig.aos(&["ps"]);
    assert_eq!(made.code, 0, "{made:?}");
    let doctor = rig.aos(&["doctor"]).out;
    assert!(doctor.contains("is private") && doctor.contains(&format!("chmod +t {}", above.display())), "{doctor}");
}

#[test]
fn every_mistake_is_told_with_a_way_out() {
    let rig = fresh();
    let pid = rig.spawn(&["--name", "helper", "Look around"]).to_string();
    let mistakes: [(&[&str], i32, &str); 14] = [
        (&["inspect", "helper"], 2, "a pid is a number"),
        (&["kill", "1x"], 2, "aos ps"),
        (&["send", "-1", "hi"], 2, "-1"),
        (&["send", "99", "hi"], 1, "no process 99"),
        (&["spawn", "--name", "helper", "again"], 1, "another name"),
        (&["spawn", "--pipe-to", "helper", "x"], 2, "a pid is a number"),
        (&["logs", &pid, "--since", "yesterday"], 2, "10m or 2h"),
        (&["prune", "--before", "whenever"], 2, "10m or 2h"),
        (&["fork", &pid, "--at", "999999"], 1, "there is no entry 999999 yet"),
        (&["replay", &pid, "--at", "999999"], 1, "there is no entry 999999 yet"),
        (&["run", "-m", "nope", "hi"], 1, "configured are: nano"),
        (&["models", "test", "nope"], 1, "configured are: nano"),
        (&["memory", "show", "m99"], 1, "m99"),
        (&["audit", "nope"], 2, "aos audit --help"),
    ];
    for (words, code, told) in mistakes {
        let ran = rig.aos(words);
        assert_told(&ran, code, &[told, "  try: "]);
        assert_eq!(ran.out, "", "{words:?}");
        let mut json = vec!["--json"];
        json.extend(words);
        let ran = rig.aos(&json);
        let body: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{words:?}: {ran:?}"));
        assert!(ran.code == code && body["error"]["hint"].is_string(), "{words:?}: {body}");
    }
}

#[test]
fn every_command_speaks_json() {
    let rig = fresh();
    let pid = rig.spawn(&["Look around"]).to_string();
    rig.until_idle(pid.parse().unwrap());
    let commands: [&[&str]; 24] = [
        &["status"],
        &["ps", "-a"],
        &["tree"],
        &["inspect", &pid],
        &["top"],
        &["proposals"],
        &["policy", "check"],
        &["policy", "explain", &pid, "FS_READ"],
        &["audit", "verify"],
        &["models"],
        &["models", "test"],
        &["budget"],
        &["cost"],
        &["memory", "list"],
        &["memory", "search", "tea"],
        &["doctor"],
        &["man"],
        &["man", "FS_READ"],
        &["completion", "bash"],
        &["version"],
        &["init"],
        &["prune", "--dry-run"],
        &["replay", &pid],
        &["backup", "copy.aos"],
    ];
    for command in commands {
        rig.json(command);
    }
    for command in [&["logs", &pid, "--events"][..], &["logs", &pid], &["audit", "export"], &["attach", &pid]] {
        let ran = rig.aos(&[&["--json"], command].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        for line in ran.out.lines() {
            serde_json::from_str::<serde_json::Value>(line)
                .unwrap_or_else(|error| panic!("{command:?}: {error}: {line}"));
        }
    }
}

/// What came of a command under the policy that `aos init` writes; nothing where commands cannot run.
fn ran(cmd: &str, folder: &str) -> Option<serde_json::Value> {
    let policy = Some(aos_policy::Policy::default_text().to_owned());
    let rules = vec![any("alpha", vec![call("EXEC_CMD", json!({ "cmd": cmd })), say("done")])];
    let rig = Rig::with(rules, Setup { policy, ..Setup::default() });
    let folder = rig.folder(folder);
    std::fs::write(folder.join("s.sh"), "#!/bin/sh\necho started\n").unwrap();
    std::fs::set_permissions(folder.join("s.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    if !rig.isolates() {
        return None;
    }
    let ran = rig.aos(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    let result = rig.journal().into_iter().find(|entry| entry["type"] == "result" && entry["name"] == "EXEC_CMD");
    Some(result.unwrap()["result"].clone())
}

#[test]
fn programs_that_are_not_here_are_named_and_no_fault() {
    let policy = "version: 1\ndefault_role: a\nroles:\n  a:\n    exec: {shell: true, programs: [sh, coreutils, not-here], net: none}\n";
    let rig = Rig::with(vec![], Setup { policy: Some(policy.to_owned()), ..Setup::default() });
    let checked = rig.aos(&["policy", "check"]);
    assert!(checked.code == 0 && checked.err.contains("note: ") && checked.err.contains(": not-here\n"), "{checked:?}");
    assert!(rig.json(&["policy", "check"])["notes"][0].as_str().unwrap().ends_with(": not-here"));
    let doctor = rig.aos(&["doctor"]);
    let line = doctor.out.lines().find(|line| line.contains("not-here")).unwrap_or_default();
    assert!(line.contains("note") && !line.contains("coreutils"), "{doctor:?}");
}

/// `aos doctor` alone said it, and docs/policy.md that `aos policy check` does.
#[test]
fn a_label_that_is_on_no_file_is_noted_where_the_file_is_checked() {
    let policy = |ops: &str| {
        format!(
            "version: 1\ndefault_role: a\nroles:\n  a:\n    fs: [{{path: mail/**, ops: [{ops}], label: untrusted.file}}]\n"
        )
    };
    let rig = Rig::with(vec![], Setup { policy: Some(policy("write")), ..Setup::default() });
    let told = "and on no file, since they do not name `read`: a: fs[0] mail/**";
    let checked = rig.aos(&["policy", "check"]);
    assert!(checked.code == 0 && checked.err.contains("note: ") && checked.err.contains(told), "{checked:?}");
    let notes = rig.json(&["policy", "check"])["notes"].clone();
    assert!(notes[0].as_str().is_some_and(|note| note.ends_with(told)), "{notes}");
    let folder = rig.folder("mine");
    std::fs::write(folder.join("read.yaml"), policy("read, write")).unwrap();
    let read = rig.json(&["policy", "check", folder.join("read.yaml").to_str().unwrap()]);
    assert_eq!(read["notes"], json!([]), "{read}");
}

#[test]
fn what_a_shell_is_used_for_in_the_first_hour_is_there() {
    // What this host lacks itself is not missed inside.
    let each =
        "for p in awk xargs which egrep patch file jq rg gunzip xz unzip make; do test -e $1/$p && echo $p; done";
    let here = std::process::Command::new("sh").args(["-c", each, "sh", "/usr/bin"]).output().unwrap();
    let here = String::from_utf8(here.stdout).unwrap();
    let cmd = format!("{}; printf 'a b\n' | awk '{{print $2}}' | xargs echo of", each.replace("$1", "/usr/bin"));
    let Some(result) = ran(&cmd, "mine") else { return };
    assert_eq!(result["stdout"], format!("{here}of b\n"), "{result}");
}

#[test]
fn a_script_that_may_not_be_started_says_how_it_is() {
    let Some(result) = ran("./s.sh", "mine") else { return };
    assert_eq!(result["exit_code"], 126, "{result}");
    assert!(result["hint"].as_str().is_some_and(|hint| hint.contains("sh s.sh")), "{result}");
    let result = ran("sh s.sh", "mine").unwrap();
    assert_eq!((&result["stdout"], &result["hint"]), (&json!("started\n"), &json!(null)), "{result}");
}
