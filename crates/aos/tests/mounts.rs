//! Folders of the host in the workspace, end to end: read by calls and by commands, changed by neither, and never a way out.
//!
//! What always holds: commands run in the real sandbox; the folder is beside the home, as a person's own would be.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::path::PathBuf;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use rig::{Rig, Setup, any, assert_told, calls, results, say, until};

const POLICY: &str = "version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT]
    fs: [{path: \"**\", ops: [read, write, delete]}]
    mounts:
      - {host: ~/Documents/handbook, at: handbook, ops: [read]}
    exec: {shell: true, programs: [sh, coreutils], net: none}
";

/// A person's handbook, beside something that is none of an agent's business.
fn handbook(rig: &Rig) -> PathBuf {
    let documents = rig.folder("Documents");
    fs::create_dir(documents.join("handbook")).unwrap();
    fs::write(documents.join("handbook/a.txt"), "chapter one\n").unwrap();
    fs::write(documents.join("private.txt"), "none of your business\n").unwrap();
    std::os::unix::fs::symlink("../private.txt", documents.join("handbook/near")).unwrap();
    std::os::unix::fs::symlink(documents.join("private.txt"), documents.join("handbook/far")).unwrap();
    documents
}

/// Has an agent make these calls at once, and says what it was told of each.
fn made(rig: &Rig, more: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["run"];
    arguments.extend(more);
    arguments.push("alpha");
    let ran = rig.aos(&arguments);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    results(rig.requests().last().unwrap()).into_iter().map(|(_, result)| result).collect()
}

fn setup(policy: &str) -> Setup {
    Setup { policy: Some(policy.to_owned()), ..Setup::default() }
}

fn script(wanted: &[(&str, Value)]) -> Vec<aos_models::scripted::Rule> {
    let wanted = wanted.iter().map(|(name, args)| Call::new(*name, args.clone())).collect();
    vec![any("alpha", vec![calls(wanted), say("done")])]
}

#[test]
fn a_folder_of_the_host_is_read_by_calls_and_commands_and_changed_by_neither() {
    let command = "cat handbook/a.txt; echo mine > own.txt; ls; \
        echo x > handbook/new; echo x > handbook/a.txt; rm handbook/a.txt; rmdir handbook; mv handbook away; \
        mkdir handbook/folder; ln -s /etc handbook/etc; chmod 777 handbook/a.txt; true";
    let rig = Rig::with(
        script(&[
            ("FS_READ", json!({"path": "handbook/a.txt"})),
            ("EXEC_CMD", json!({ "cmd": command })),
            ("FS_LIST", json!({})),
            ("FS_SEARCH", json!({"pattern": "chapter"})),
            ("FS_WRITE", json!({"path": "handbook/a.txt", "content": "mine"})),
            ("FS_DELETE", json!({"path": "handbook"})),
            ("FS_MOVE", json!({"from": "handbook/a.txt", "to": "a.txt"})),
        ]),
        setup(POLICY),
    );
    let documents = handbook(&rig);
    let workspace = rig.folder("work");
    let told = made(&rig, &["-w", workspace.to_str().unwrap()]);
    assert_eq!(told[0]["result"]["content"], "chapter one\n", "{told:?}");
    let ran = &told[1]["result"];
    assert_eq!(ran["stdout"], "chapter one\nhandbook\nown.txt\n", "{ran}");
    assert_eq!(ran["changed"], json!(["own.txt"]), "the place of a mount is no change: {ran}");
    assert_eq!(ran["stderr"].as_str().unwrap().lines().count(), 8, "each was refused: {ran}");
    assert!(ran["not_mounted"].is_null(), "{ran}");
    let listed: Vec<&str> =
        told[2]["result"]["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(listed, ["handbook", "own.txt"]);
    assert_eq!(told[3]["result"]["matches"][0]["path"], "handbook/a.txt", "{told:?}");
    for denied in &told[4..] {
        assert_eq!(denied["error"]["code"], "EPERM", "{denied}");
        assert!(denied["error"]["message"].as_str().unwrap().contains("mounts[0] handbook/**"), "{denied}");
    }
    assert_eq!(fs::read_to_string(documents.join("handbook/a.txt")).unwrap(), "chapter one\n");
    assert_eq!(fs::read_dir(documents.join("handbook")).unwrap().count(), 3);
    assert_eq!(fs::read_dir(&workspace).unwrap().count(), 1, "and nothing of it is left in the person's folder");
}

#[test]
fn no_way_leads_out_of_it() {
    let rig = Rig::with(
        script(&[
            ("FS_READ", json!({"path": "handbook/../private.txt"})),
            ("FS_READ", json!({"path": "handbook/../../private.txt"})),
            ("FS_READ", json!({"path": "handbook/near"})),
            ("FS_READ", json!({"path": "handbook/far"})),
            ("FS_SEARCH", json!({"pattern": "business"})),
            (
                "EXEC_CMD",
                json!({"cmd": "cat handbook/../private.txt handbook/../../private.txt handbook/near handbook/far"}),
            ),
            ("EXEC_CMD", json!({"cmd": "cd handbook && cat ../private.txt; cd -P .. && pwd"})),
        ]),
        setup(POLICY),
    );
    handbook(&rig);
    let told = made(&rig, &[]);
    for denied in &told[..4] {
        assert_eq!(denied["error"]["code"], "EPERM", "{denied}");
    }
    assert_eq!(told[4]["result"]["matches"], json!([]));
    assert_eq!(told[5]["result"]["stdout"], "", "{told:?}");
    assert_eq!(told[5]["result"]["exit_code"], 1);
    assert_eq!(told[6]["result"]["stdout"], "/workspace\n");
    assert!(!rig.requests().iter().any(|request| request.to_string().contains("none of your")), "it was never seen");
}

#[test]
fn a_folder_that_is_not_there_is_said_and_the_rest_works() {
    let rig = Rig::with(
        script(&[
            ("EXEC_CMD", json!({"cmd": "echo on"})),
            ("FS_READ", json!({"path": "handbook/a.txt"})),
            ("FS_WRITE", json!({"path": "own.txt", "content": "mine"})),
        ]),
        setup(POLICY),
    );
    let checked = rig.aos(&["policy", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    for ran in [&checked, &rig.aos(&["doctor"])] {
        for word in ["line 8", "Documents/handbook", "it is not there", "change role assistant: mounts[0]"] {
            assert!(format!("{}{}", ran.out, ran.err).contains(word), "{word}: {ran:?}");
        }
    }
    let told = made(&rig, &[]);
    assert_eq!(told[0]["result"]["stdout"], "on\n");
    let why = "the folder that the policy mounts at `handbook` cannot be opened: it is not there";
    assert_eq!(told[0]["result"]["not_mounted"], json!({ "handbook": why }));
    assert_eq!((told[1]["error"]["code"].as_str(), told[1]["error"]["message"].as_str()), (Some("ENOENT"), Some(why)));
    assert_eq!(told[2]["status"], "SUCCESS", "{told:?}");
}

#[test]
fn the_daemons_own_files_are_mounted_by_no_name() {
    let rig = Rig::with(script(&[]), setup(POLICY));
    std::os::unix::fs::symlink(rig.home(), rig.home().with_file_name("by-link")).unwrap();
    for host in ["~/h", "~/h/run", "~/h/workspaces", rig.home().parent().unwrap().to_str().unwrap()] {
        fs::write(rig.file("policy.yaml"), POLICY.replace("~/Documents/handbook", host)).unwrap();
        let words = ["line 8, column 16", "the daemon's own files"];
        assert_told(&rig.aos(&["policy", "check"]), 1, &words);
        assert_told(&rig.aos(&["up"]), 3, &words);
        let doctor = rig.aos(&["doctor"]);
        assert!(words.iter().all(|word| doctor.out.contains(word)), "{doctor:?}");
    }
    // A link to it is another name, which no driver follows.
    fs::write(rig.file("policy.yaml"), POLICY.replace("~/Documents/handbook", "~/by-link")).unwrap();
    let checked = rig.aos(&["policy", "check"]);
    assert!(checked.code == 0 && checked.err.contains("its path goes through a symbolic link"), "{checked:?}");
}

#[test]
fn a_child_sees_no_more_of_it_than_its_grants_say_and_a_command_ends_when_it_is_withdrawn() {
    let wait = "until [ -e handbook/go ]; do sleep 0.05; done; cat handbook/go";
    let rules = vec![
        rig::role(
            "reader",
            vec![calls(vec![Call::new("EXEC_CMD", json!({"cmd": "ls"}))]), say("{{last_result.result}}")],
        ),
        any(
            "alpha",
            vec![
                rig::call("SPAWN_AGENT", json!({"role": "reader", "task": "look", "permissions": ["EXEC_CMD"]})),
                say("spawned"),
            ],
        ),
        any("beta", vec![calls(vec![Call::new("EXEC_CMD", json!({ "cmd": wait }))]), say("{{last_result}}")]),
    ];
    let rig = Rig::with(rules, setup(POLICY));
    let documents = handbook(&rig);
    rig.spawn(&["alpha"]);
    let listing = until("the child's command", || {
        rig.journal().into_iter().find(|entry| entry["type"] == "result" && entry["name"] == "EXEC_CMD")
    });
    assert_eq!(listing["result"]["stdout"], "", "without a grant to read it there is nothing: {listing}");

    let pid = rig.spawn(&["beta"]);
    until("the command", || {
        let verdicts = rig.entries(pid, "verdict");
        (!verdicts.is_empty()).then_some(())
    });
    fs::write(rig.file("policy.yaml"), POLICY.replace("at: handbook", "at: other")).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    let result = until("its end", || rig.entries(pid, "result").pop());
    assert_eq!(result["error"]["code"], "EINTR", "{result}");
    fs::write(documents.join("handbook/go"), "too late").unwrap();
    assert!(rig.log().contains("a command is ended, since the policy forbids it by now"), "{}", rig.log());
}
