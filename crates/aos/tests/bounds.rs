//! Commands under the rules for files, end to end: what a process may not read its commands do not see, and what it may
//! not change unasked they do not change.
//!
//! What always holds: commands run in the real sandbox; where the host cannot, those tests say "SKIPPED" and why.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::path::{Path, PathBuf};

use aos_models::scripted::Rule;
use serde_json::{Value, json};

use rig::{Rig, Running, Setup, any, call, say};

const POLICY: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT]
    fs:
      - {path: "notes/**", ops: [read, write, delete]}
      - {path: "contracts/**", ops: [read]}
      - {path: "contracts/**", ops: [write, delete], verdict: ask}
    exec: {shell: true, programs: [sh, coreutils], net: none}
  whole:
    fs: [{path: "**", ops: [read, write, delete]}]
    exec: {shell: true, programs: [sh, coreutils, python3], net: none}
"#;

/// A daemon and a folder to work in; nothing where commands cannot run.
fn rig(rules: Vec<Rule>) -> Option<(Rig, PathBuf)> {
    rig_of("assistant", rules)
}

/// The same where processes have this role.
fn rig_of(role: &str, rules: Vec<Rule>) -> Option<(Rig, PathBuf)> {
    let policy = POLICY.replace("default_role: assistant", &format!("default_role: {role}"));
    let rig = Rig::with(rules, Setup { policy: Some(policy), ..Setup::default() });
    let folder = rig.folder("mine");
    for (path, text) in [("notes/a", "a"), ("contracts/a", "signed"), ("private/k", "the secret")] {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), text).unwrap();
    }
    rig.isolates().then_some((rig, folder))
}

fn command(cmd: &str) -> Rule {
    any("alpha", vec![call("EXEC_CMD", json!({ "cmd": cmd })), say("done")])
}

/// What came of the only command.
fn ran(rig: &Rig, folder: &Path) -> Value {
    let ran = rig.aos(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    rig.journal().into_iter().find(|entry| entry["type"] == "result" && entry["name"] == "EXEC_CMD").unwrap()
}

fn texts(folder: &Path) -> [String; 3] {
    ["notes/a", "contracts/a", "private/k"].map(|path| fs::read_to_string(folder.join(path)).unwrap())
}

#[test]
fn a_command_sees_what_its_process_may_read_and_no_more() {
    let look = "cat private/k; ls; cat notes/a contracts/a; echo b > notes/b; mkdir -p notes/n; echo c > notes/n/c";
    let Some((rig, folder)) = rig(vec![command(look)]) else { return };
    let result = ran(&rig, &folder).to_string();
    assert!(result.contains(r"contracts\nnotes\nasigned"), "{result}");
    assert!(!result.contains("the secret") && result.contains("private/k: No such file"), "{result}");
    assert_eq!(fs::read_to_string(folder.join("notes/b")).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(folder.join("notes/n/c")).unwrap(), "c\n");
    assert_eq!(texts(&folder), ["a", "signed", "the secret"]);
}

/// Nothing that a command had made could be executed, whatever the policy said.
#[test]
fn a_command_runs_what_it_made_where_the_policy_says_so_and_is_told_the_word_where_not() {
    let script = "printf '#!/bin/sh\\necho ran\\n' > notes/s.sh && chmod +x notes/s.sh && ./notes/s.sh";
    let program = "printf '#include <stdio.h>\\nint main() { puts(\"ran\"); }\\n' > notes/h.c && \
        gcc notes/h.c -o notes/h && ./notes/h";
    let mut commands = vec![script];
    match Path::new("/usr/bin/gcc").exists() {
        true => commands.push(program),
        false => eprintln!("SKIPPED: there is no gcc"),
    }
    for cmd in commands {
        for (programs, code, printed) in
            [("[sh, coreutils, gcc, './**']", 0, "ran\n"), ("[sh, coreutils, gcc]", 126, "")]
        {
            let policy = POLICY.replace("[sh, coreutils]", programs);
            let rig = Rig::with(vec![command(cmd)], Setup { policy: Some(policy), ..Setup::default() });
            let folder = rig.folder("mine");
            fs::create_dir_all(folder.join("notes")).unwrap();
            if !rig.isolates() {
                return;
            }
            let result = ran(&rig, &folder);
            let said = &result["result"];
            assert_eq!((said["exit_code"].as_i64(), said["stdout"].as_str()), (Some(code), Some(printed)), "{result}");
            let hint = said["hint"].as_str().unwrap_or("");
            assert_eq!(hint.contains("`./**` to `programs`"), code == 126, "{result}");
        }
    }
}

#[test]
fn a_command_changes_nothing_where_one_change_would_be_asked_about_or_denied() {
    for (cmd, path) in [
        ("echo evil > contracts/a; echo b > notes/b; echo out", "contracts/a"),
        ("rm contracts/a; echo out", "contracts/a"),
        ("mv notes/a contracts/b; echo out", "contracts/b"),
        ("mkdir private; echo mine > private/k; echo out", "private/k"),
        ("echo x > new; echo out", "new"),
    ] {
        let Some((rig, folder)) = rig(vec![command(cmd)]) else { return };
        let result = ran(&rig, &folder).to_string();
        assert!(result.contains("EPERM") && result.contains(&format!("since it changed `{path}`")), "{cmd}: {result}");
        assert!(result.contains(r"out\n"), "what it printed comes back: {result}");
        assert_eq!(texts(&folder), ["a", "signed", "the secret"], "{cmd}");
        assert!(!folder.join("notes/b").exists() && !folder.join("new").exists(), "{cmd}: all or nothing");
        let listed = rig.json(&["proposals", "--all"]);
        // What was denied is, and here a person may lift what wants a grant alone.
        let wants = |one: &Value| {
            one["verdict"] == "deny" && (one["rule"] == "role assistant: no rule") == one["closed"].is_null()
        };
        assert!(listed.as_array().unwrap().iter().all(wants), "{cmd}: nothing was done that could be undone: {listed}");
    }
}

#[test]
fn a_childs_grants_bind_its_commands_too() {
    let spawn = json!({"role": "reader", "task": "beta", "permissions": ["FS_READ notes/**", "EXEC_CMD"]});
    let look = "cat contracts/a; rm notes/a";
    let Some((rig, folder)) = rig(vec![
        any("alpha", vec![call("SPAWN_AGENT", spawn), call("WAIT", json!({})), say("done")]),
        any("beta", vec![call("EXEC_CMD", json!({ "cmd": look })), say("done")]),
    ]) else {
        return;
    };
    let result = ran(&rig, &folder).to_string();
    assert!(result.contains("contracts/a: No such file") && result.contains("FS_DELETE"), "{result}");
    assert_eq!(texts(&folder), ["a", "signed", "the secret"]);
}

#[test]
fn who_may_read_and_write_all_of_it_notices_nothing() {
    let cmd = "cat private/k; echo evil > contracts/a; rm -r notes; echo x > new";
    let Some((rig, folder)) = rig_of("whole", vec![command(cmd)]) else { return };
    let result = ran(&rig, &folder).to_string();
    assert!(result.contains("the secret"), "{result}");
    assert_eq!(fs::read_to_string(folder.join("contracts/a")).unwrap(), "evil\n");
    assert!(!folder.join("notes").exists() && folder.join("new").exists());
}

/// Reads, lists and connects to whatever each line of `paths` names, from the root and by the ways up.
const REACH: &str = r#"
import os, socket
for path in open("paths").read().split("\n"):
    for way in (path, "../.." + path, "/proc/1/root" + path, "/proc/self/root" + path, "/proc/1/cwd/../.." + path):
        for attempt in (os.stat, os.listdir, open, lambda at: socket.socket(socket.AF_UNIX).connect(at)):
            try:
                attempt(way)
                print("REACHED", way)
            except OSError:
                pass
print("tried", path)
"#;

#[test]
fn the_daemons_socket_token_journal_and_policy_are_not_there_for_a_command() {
    let Some((rig, folder)) = rig_of("whole", vec![command("python3 reach.py")]) else { return };
    // Starts the daemon.
    rig.json(&["ps"]);
    let mut paths = vec![rig.home()];
    let mut nth = 0;
    while let Some(path) = paths.get(nth).cloned() {
        nth += 1;
        // What lies beside the home is the person's.
        let within = fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path());
        paths.extend(within.filter(|path| !path.starts_with(&folder)));
    }
    let named: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    for name in ["/run/token", "/run/aos.sock", "/policy.yaml", "/journal"] {
        assert!(named.iter().any(|path| path.contains(name)), "{name} is among them: {named:?}");
    }
    fs::write(folder.join("paths"), named.join("\n")).unwrap();
    fs::write(folder.join("reach.py"), REACH).unwrap();
    let result = ran(&rig, &folder).to_string();
    assert!(result.contains("tried /") && !result.contains("REACHED"), "{result}");
}

/// As such a user, the agent was told "Value too large for defined data type" and that all went well.
#[test]
fn what_is_another_groups_is_told_to_agent_and_person() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be a user in two groups");
        return;
    }
    let Some((rig, folder)) = rig_of("whole", vec![command("echo b >> notes/a; echo b > private/k; cat notes/a")])
    else {
        return;
    };
    let root = folder.parent().unwrap();
    fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let as_such_a_user = |arguments: &[&str]| {
        let run = rig.command_for_anybody(arguments);
        let such = ["--reuid", "65534", "--regid", "65534", "--groups", "5", "--inh-caps=-all", "--"];
        let mut command = rig.command_of(Path::new("setpriv"), &such);
        command.arg(run.get_program()).args(arguments).current_dir(&folder);
        Running::new(command).end()
    };
    let owned = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(root).status().unwrap();
    assert!(owned.success());
    std::os::unix::fs::chown(folder.join("notes/a"), None, Some(5)).unwrap();
    let ran = as_such_a_user(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    assert_eq!(texts(&folder), ["a", "signed", "b\n"]);
    let told = rig.requests_with("`notes/a` belongs to another group (tty) than the daemon's");
    assert!(!told.is_empty(), "{:?}", rig.requests().last());
    assert_eq!(rig.requests_with("sg tty -c 'aos up'").len(), told.len());
    let doctor = as_such_a_user(&["doctor"]);
    assert!(doctor.out.contains("`notes/a` belongs to another group (tty)"), "{doctor:?}");
    assert!(doctor.out.contains("try: give it the daemon's group (chgrp)"), "{doctor:?}");
    let _ = as_such_a_user(&["down"]);
}

/// By its name it was not found, and by its path rustup said that it had no toolchain.
#[test]
fn a_command_gets_the_toolchain_that_rustup_stands_in_for() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    // Not in `/tmp`, of which a command has its own.
    let person = tempfile::tempdir_in("/var/tmp").unwrap();
    let (cargo, toolchain) =
        (person.path().join(".cargo/bin"), person.path().join(".rustup/toolchains/stable-machine"));
    for folder in [&cargo, &toolchain.join("bin"), &toolchain.join("lib/rustlib")] {
        fs::create_dir_all(folder).unwrap();
    }
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::set_permissions(person.path(), fs::Permissions::from_mode(0o755)).unwrap();
    write(cargo.join("rustup"), "#!/bin/sh\necho rustup\n");
    symlink("rustup", cargo.join("aos-cargo")).unwrap();
    write(toolchain.join("bin/aos-cargo"), "#!/bin/sh\ncat \"${0%/bin/*}/lib/part\"\n");
    write(toolchain.join("lib/part"), "its own library\n");
    write(person.path().join(".rustup/settings.toml"), "default_toolchain = \"stable-machine\"\n");
    let policy = POLICY.replacen("programs: [sh, coreutils]", "programs: [sh, coreutils, aos-cargo]", 1);
    let rules = vec![command("aos-cargo build")];
    let rig = Rig::with(rules, Setup { policy: Some(policy), ..Setup::default() });
    let started = Running::new({
        let mut up = rig.command(&["up"]);
        up.env("HOME", person.path());
        up
    });
    assert_eq!(started.end().code, 0, "{}", rig.log());
    let folder = rig.folder("mine");
    if !rig.isolates() {
        return;
    }
    let result = ran(&rig, &folder);
    assert_eq!(result["result"]["stdout"], "its own library\n", "{result}");
}
