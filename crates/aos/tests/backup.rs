//! Backup, restore and prune, end to end: what a person keeps, gets back and throws away.
//!
//! Start at the first test. What always holds: agents work while the copy is made.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::os::unix::fs::PermissionsExt as _;

use rig::{Rig, Setup, any, assert_told, call, echo, read, role, say, until, write};
use serde_json::{Value, json};

#[test]
fn a_backup_taken_while_agents_run_is_whole() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..40 {
                let text = json!({ "text": format!("n{number}") });
                rig.http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&text));
            }
        });
        let ran = rig.aos(&["backup", "copy.aos"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    });
    until("every answer", || {
        let process = rig.process(pid);
        (process["waiting_for"] == "stdin" && process["usage"]["inferences"].as_u64() > Some(0)).then_some(())
    });
    let before = rig.journal();
    assert_told(&rig.aos(&["backup", "copy.aos"]), 1, &["is there already", "try: "]);
    rig.stop();
    let restored = rig.aos(&["restore", "copy.aos", "--force"]);
    assert_eq!(restored.code, 0, "{restored:?}");
    rig.up();
    let after = rig.journal();
    let shared = after.iter().zip(&before).take_while(|(after, before)| after == before).count();
    assert!(shared >= 3, "the copy begins as the journal did: {shared}");
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true);
}

/// Files, memory, configuration and policy: what an agent worked with and where.
#[test]
fn everything_that_cannot_be_made_again_comes_back() {
    let remember = call("MEM_WRITE", json!({ "namespace": "self/notes", "key": "tea", "value": "green, at nine" }));
    let rig = Rig::new(vec![echo(), any("alpha", vec![write("deep/a.txt", "as it was"), remember, say("ready")])]);
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let own = rig.file(&format!("workspaces/{pid}/deep/a.txt"));
    let (config, policy) = (read(rig.file("aos.toml")), read(rig.file("policy.yaml")));
    let written = rig.json(&["backup", "copy.aos"]);
    assert!(written["files"].as_u64() >= Some(5) && written["left_out"] == json!([]), "{written}");
    let archive = rig.home().parent().unwrap().join("copy.aos");
    assert_eq!(std::fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);

    let refused = rig.aos(&["restore", "copy.aos", "--force"]);
    assert_told(&refused, 1, &["the daemon runs", "aos down"]);
    rig.stop();
    assert_told(&rig.aos(&["restore", "copy.aos"]), 1, &["is there already", "--force"]);
    for round in ["one", "two"] {
        std::fs::write(&own, round).unwrap();
        std::fs::write(rig.file("aos.toml"), "broken").unwrap();
        std::fs::remove_file(rig.file("policy.yaml")).unwrap();
        std::fs::remove_dir_all(rig.file("memory")).unwrap();
        let ran = rig.aos(&["restore", "copy.aos", "--force"]);
        assert_eq!(ran.code, 0, "a second restore works as the first: {ran:?}");
        let kept = ran.err.split_whitespace().find(|word| word.contains("/replaced-")).unwrap().trim_end_matches(';');
        assert_eq!(read(format!("{kept}/workspaces/{pid}/deep/a.txt")), round, "and says where the other state is");
        assert_eq!(
            [read(&own), read(rig.file("aos.toml")), read(rig.file("policy.yaml"))],
            ["as it was".into(), config.clone(), policy.clone()]
        );
    }
    rig.up();
    assert_eq!(rig.process(pid)["waiting_for"], "stdin", "it lives on");
    let found = rig.aos(&["memory", "search", "green"]);
    assert!(found.out.contains("green, at nine"), "{found:?}");
    assert_eq!(rig.aos(&["send", &pid.to_string(), "still there?"]).code, 0);
    until("its answer", || rig.aos(&["logs", &pid.to_string()]).out.contains("echo: still there?").then_some(()));
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true);
}

#[test]
fn a_home_whose_daemon_does_not_start_can_be_saved_and_restored_elsewhere() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    rig.kill_daemon();
    std::fs::write(rig.file("policy.yaml"), "nonsense: [").unwrap();
    let ran = rig.aos(&["backup", "copy.aos"]);
    assert!(ran.code == 0 && rig.daemons().is_empty(), "{ran:?}");
    let other = rig.folder("other");
    let other = other.to_str().unwrap();
    let restored = rig.aos(&["--home", other, "restore", "copy.aos"]);
    assert!(restored.code == 0 && !restored.err.contains("replaced"), "{restored:?}");
    assert_eq!(read(format!("{other}/workspaces/2/a.txt")), "one");
    for (name, words) in [("missing.aos", "missing.aos"), ("h/aos.toml", "no backup of aos")] {
        assert_told(&rig.aos(&["--home", other, "restore", name, "--force"]), 1, &[words, "try: "]);
    }
}

/// It left an empty home there, which the next command took for one of its own.
#[test]
fn a_restore_that_fails_leaves_no_home_where_none_was() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(rig.aos(&["backup", "copy.aos"]).code, 0);
    let whole = std::fs::read(rig.home().parent().unwrap().join("copy.aos")).unwrap();
    std::fs::write(rig.home().parent().unwrap().join("cut.aos"), &whole[..whole.len() / 2]).unwrap();
    let other = rig.home().parent().unwrap().join("other");
    for name in ["missing.aos", "cut.aos", "h/aos.toml"] {
        assert_told(&rig.aos(&["--home", "other", "restore", name]), 1, &[name, "try: "]);
        assert!(!other.exists(), "{name}");
    }
    std::fs::create_dir(&other).unwrap();
    assert_told(&rig.aos(&["--home", "other", "restore", "cut.aos"]), 1, &["cut.aos"]);
    assert!(other.exists(), "what was there stays");
    assert_eq!(rig.aos(&["--home", "other", "restore", "copy.aos"]).code, 0);
}

#[test]
fn over_http_a_backup_is_the_same_file() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let file = rig.home().parent().unwrap().join("copy.aos");
    let asked = json!({ "file": file });
    assert_eq!(rig.http("POST", "/v1/admin/backup", Some(&asked)).status, 204);
    let again = rig.http("POST", "/v1/admin/backup", Some(&asked));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("EEXIST")));
    rig.stop();
    assert_eq!(rig.aos(&["restore", "copy.aos", "--force"]).code, 0);
}

#[test]
fn what_ended_a_moment_ago_is_pruned_and_what_a_child_works_in_stays() {
    let child = json!({ "name": "child", "role": "<child>" });
    let remember = call("MEM_WRITE", json!({ "key": "tea", "value": "green" }));
    let rig = Rig::new(vec![
        role("<child>", vec![say("ready")]),
        any("alpha", vec![write("shared.txt", "ours"), call("SPAWN_AGENT", child), say("I am done.")]),
        any("gamma", vec![write("own.txt", "mine"), remember, say("done")]),
    ]);
    for task in ["alpha", "gamma"] {
        assert_eq!(rig.aos(&["run", task]).code, 0);
    }
    let (parent, other) = (rig.file("workspaces/2/shared.txt"), rig.file("workspaces/4"));
    assert!(other.is_dir());
    let remembered = |rig: &Rig| rig.json(&["memory", "list"])["memories"].as_array().unwrap().len();
    let would = rig.json(&["prune", "--dry-run"]);
    assert_eq!(would["pids"], json!([4]), "one whose child lives stays with it: {would}");
    assert!(would["entries"].as_u64() > Some(5) && other.is_dir() && remembered(&rig) == 1, "{would}");
    assert_eq!(rig.json(&["prune"])["pids"], json!([4]));
    // Costs stay, and of the rest what the chain needs.
    let is_text = |entry: &Value| entry["type"] != "charged" && entry["type"] != "sealed";
    let texts = |pid: u64| rig.journal().iter().filter(|entry| entry["pid"] == pid && is_text(entry)).count();
    assert!(texts(4) == 0 && texts(2) > 0, "whoever prunes is rid of it");
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 2);
    assert!(!other.exists());
    assert_eq!(remembered(&rig), 0, "what it remembered for itself went with it");
    assert_eq!(read(&parent), "ours");
    assert_eq!(rig.aos(&["kill", "-s", "KILL", "3"]).code, 0);
    rig.until_state(3, "exited");
    assert_eq!(rig.json(&["prune"])["pids"], json!([2, 3]));
    assert!(!rig.file("workspaces/2").exists() && texts(2) + texts(3) == 0);
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true);
}

#[test]
fn what_could_be_undone_can_be_undone_after_a_restore() {
    let setup = Setup {
        policy: Some(rig::POLICY.replace("ops: [read, write, delete]}", "ops: [read, write, delete], undo: 15m}")),
        ..Setup::default()
    };
    let rig = Rig::with(vec![any("alpha", vec![write("a.txt", "one"), write("a.txt", "two"), say("ready")])], setup);
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let file = rig.file(&format!("workspaces/{pid}/a.txt"));
    assert_eq!(rig.aos(&["backup", "copy.aos"]).code, 0);
    rig.stop();
    std::fs::remove_dir_all(rig.file("undo")).unwrap();
    std::fs::write(&file, "three").unwrap();
    assert_eq!(rig.aos(&["restore", "copy.aos", "--force"]).code, 0);
    assert_eq!(read(&file), "two");
    let changes = rig.json(&["proposals", "--all"]);
    let executed = changes.as_array().unwrap().iter().filter(|change| change["state"] == "executed");
    let last = executed.max_by_key(|change| change["id"].as_str().unwrap()[1..].parse::<u64>().unwrap()).unwrap();
    let ran = rig.aos(&["undo", last["id"].as_str().unwrap()]);
    assert_eq!((ran.code, read(&file).as_str()), (0, "one"), "{ran:?} {changes}");
}

/// It took the change back in the workspace of the home that the backup is of, and left its own as it was.
#[test]
fn what_another_home_changed_is_undone_there_alone() {
    let setup = Setup {
        policy: Some(rig::POLICY.replace("ops: [read, write, delete]}", "ops: [read, write, delete], undo: 15m}")),
        ..Setup::default()
    };
    let rig = Rig::with(vec![any("alpha", vec![write("a.txt", "one"), say("ready")])], setup);
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    let changes = rig.json(&["proposals", "--all"]);
    let id = changes[0]["id"].as_str().unwrap();
    let file = rig.file(&format!("workspaces/{pid}/a.txt"));
    assert_eq!(rig.aos(&["backup", "copy.aos"]).code, 0);
    rig.stop();
    let other = rig.folder("other");
    let other = other.to_str().unwrap();
    assert_eq!(rig.aos(&["--home", other, "restore", "copy.aos"]).code, 0);
    assert_told(&rig.aos(&["--home", other, "undo", id]), 1, &["another home", "undo it there"]);
    assert_eq!((read(&file), read(format!("{other}/workspaces/{pid}/a.txt"))), ("one".into(), "one".into()));
    assert_eq!(rig.aos(&["--home", other, "down"]).code, 0);
    assert_eq!(rig.aos(&["undo", id]).code, 0);
    assert!(!file.exists());
}

/// Whoever sees an archive sees the whole home, and whoever can write one has it restored.
#[test]
fn a_backup_lies_in_no_folder_that_agents_see() {
    let policy = rig::POLICY.replace("    fs:", "    mounts: [{host: ~/shown, at: shown, ops: [read]}]\n    fs:");
    let setup = Setup { policy: Some(policy), ..Setup::default() };
    let rig = Rig::with(vec![echo(), any("alpha", vec![say("done")])], setup);
    let (folder, shown) = (rig.folder("work"), rig.folder("shown"));
    std::fs::create_dir(folder.join("deep")).unwrap();
    std::os::unix::fs::symlink(&folder, rig.home().parent().unwrap().join("link")).unwrap();
    let resident = rig.spawn(&["-w", folder.to_str().unwrap(), "--role", "You answer."]);
    let works = format!("process {resident} works on it");
    let over = rig.folder("over");
    assert_eq!(rig.aos(&["run", "-w", over.to_str().unwrap(), "alpha"]).code, 0);
    let refused = || {
        for (to, why) in [
            ("work/x.aos", works.as_str()),
            ("work/deep/x.aos", &works),
            ("link/x.aos", &works),
            ("shown/x.aos", "mounts[0] of policy.yaml"),
            ("h/workspaces/x.aos", "the workspaces of agents"),
        ] {
            assert_told(&rig.aos(&["backup", to]), 1, &[why, "try: name a file in a folder that no agent works on"]);
        }
        let empty = |folder: &std::path::Path| std::fs::read_dir(folder).unwrap().count() == 0;
        assert!(empty(&folder.join("deep")) && empty(&shown), "nothing is left there, not for a moment either");
    };
    refused();
    let asked = json!({ "file": folder.join("x.aos") });
    let answer = rig.http("POST", "/v1/admin/backup", Some(&asked));
    assert!(answer.status == 400 && answer.json()["error"]["message"].as_str().unwrap().contains(&works), "{answer:?}");
    for free in ["over/x.aos", "x.aos", "h/x.aos"] {
        assert_eq!(rig.aos(&["backup", free]).code, 0, "nobody works there: {free}");
    }
    rig.kill_daemon();
    refused();
    std::fs::write(rig.file("policy.yaml"), "nonsense: [").unwrap();
    refused();
    let told = rig.aos(&["backup", "y.aos"]);
    assert!(told.code == 0 && told.err.contains("which folders roles mount is not known"), "{told:?}");
}

#[test]
fn what_is_restored_is_the_archive_that_was_written() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let file = rig.home().parent().unwrap().join("copy.aos");
    let ran = rig.aos(&["backup", "copy.aos"]);
    let (hash, of) = ran.out.trim().split_once("  ").unwrap();
    assert_eq!((ran.code, of), (0, file.to_str().unwrap()), "{ran:?}");
    let found = aos_sandbox::digest(&std::fs::read(&file).unwrap());
    assert_eq!(hash, found, "as sha256sum has it");
    assert_eq!(rig.json(&["backup", "other.aos"])["sha256"].as_str().map(str::len), Some(64));
    rig.stop();
    let before = read(rig.file("aos.toml"));
    std::fs::write(rig.file("aos.toml"), "mine").unwrap();
    let other = rig.aos(&["restore", "other.aos", "--force", "--expect", hash]);
    assert_told(&other, 1, &["which is another one", "nothing was changed"]);
    assert_eq!(read(rig.file("aos.toml")), "mine");
    assert_eq!(rig.aos(&["restore", "copy.aos", "--force", "--expect", "12"]).code, 2);
    let restored = rig.aos(&["restore", "copy.aos", "--force", "--expect", &hash.to_uppercase()]);
    assert_eq!((restored.code, read(rig.file("aos.toml"))), (0, before), "{restored:?}");
}

/// What is mounted cannot be moved aside, and that showed when the journal had been: no daemon started in that home.
#[test]
fn a_home_of_which_something_is_mounted_stays_as_it_was() {
    let rig = Rig::new(vec![any("alpha", vec![write("a.txt", "one"), say("done")])]);
    if !rig.isolates() {
        return rig::skipped("nobody may mount anything here");
    }
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(rig.aos(&["backup", "copy.aos"]).code, 0);
    rig.stop();
    std::fs::write(rig.file("workspaces/2/a.txt"), "later").unwrap();
    let script = r#"mount --bind "$1" "$1" && shift && exec "$@""#;
    let (apps, aos) = (rig.file("apps"), env!("CARGO_BIN_EXE_aos"));
    let unshare = ["-rm", "sh", "-c", script, "sh", apps.to_str().unwrap(), aos, "restore", "copy.aos", "--force"];
    let ran = rig.command_of(std::path::Path::new("/usr/bin/unshare"), &unshare).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && said.contains("apps is mounted") && said.contains("back in its place"), "{said}");
    assert_eq!(read(rig.file("workspaces/2/a.txt")), "later");
    let names = std::fs::read_dir(rig.home()).unwrap().flatten().map(|entry| entry.file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("replaced") || name.contains("restoring")), "{names:?}");
    rig.up();
    assert_eq!(rig.json(&["audit", "verify"])["intact"], true);
    rig.stop();
    assert_eq!(rig.aos(&["restore", "copy.aos", "--force"]).code, 0, "without the mount it is restored");
    assert_eq!(read(rig.file("workspaces/2/a.txt")), "one");
}
