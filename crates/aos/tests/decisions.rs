//! `aos policy diff` over what was decided: the journal's decisions, made again under another policy.
//!
//! What always holds: everything goes through the binary, and nothing needs the daemon while the two are compared.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;

use serde_json::{Value, json};

use rig::{POLICY, Rig, Setup, any, call, say, until, write};

/// The decisions of `aos policy diff OLD`, where OLD is the rig's policy and what holds in the home is `new`.
fn decisions(rig: &Rig, new: &str) -> Value {
    fs::write(rig.file("old.yaml"), POLICY).unwrap();
    fs::write(rig.file("new.yaml"), new).unwrap();
    rig.json(&["policy", "diff", path(rig, "old.yaml").as_str(), path(rig, "new.yaml").as_str()])["decisions"].clone()
}

fn path(rig: &Rig, name: &str) -> String {
    rig.file(name).to_str().unwrap().to_owned()
}

fn counts(found: &Value) -> [u64; 5] {
    ["decided", "looser", "stricter", "undecided", "pruned"].map(|count| found[count].as_u64().unwrap())
}

#[test]
fn what_was_decided_is_decided_again_by_the_role_the_grants_and_the_rules_of_then() {
    let rig = Rig::new(vec![
        any(
            "alpha",
            vec![write("notes.txt", "1"), write("docs/a.txt", "1"), write("contracts/a", "1"), say("written")],
        ),
        any("beta", vec![write("notes.txt", "1"), say("refused")]),
        any("gamma", vec![call("NET_FETCH", json!({ "url": "https://example.com/" })), say("refused")]),
    ]);
    let narrow = POLICY
        .replace("{path: \"**\", ops: [read, write, delete]}", "{path: \"docs/**\", ops: [read, write]}")
        .replace("verdict: ask", "verdict: deny");
    assert_ne!(narrow, POLICY);
    assert_eq!(decisions(&rig, &narrow), Value::Null, "nothing was decided yet");

    // One writes as it may, one asks and is answered, one has too few grants, and what one wants nobody grants.
    let alpha = rig.spawn(&["alpha"]);
    let asked = until("the proposal", || rig.json(&["proposals"])[0]["id"].as_str().map(str::to_owned));
    assert_eq!(rig.aos(&["approve", &asked]).code, 0);
    rig.until_idle(alpha);
    let beta = rig.spawn(&["--grant", "FS_READ **", "beta"]);
    rig.until_idle(beta);
    let gamma = rig.spawn(&["gamma"]);
    rig.until_idle(gamma);

    // Nothing differs, nothing turns; a person's yes is no decision of the policy.
    let same = decisions(&rig, POLICY);
    assert_eq!((counts(&same), &same["examples"]), ([5, 0, 0, 0, 0], &json!([])));

    // The narrow one forbids `notes.txt` and `contracts/a`; what beta may not is not the policy's doing in either.
    let found = decisions(&rig, &narrow);
    assert_eq!(counts(&found), [5, 0, 2, 0, 0], "{found}");
    let shown: Vec<[&str; 3]> = found["examples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| [&one["args"]["path"], &one["old"], &one["new"]].map(|value| value.as_str().unwrap()))
        .collect();
    assert_eq!(shown, [["contracts/a", "ask", "deny"], ["notes.txt", "allow", "deny"]], "the newest first");
    let oldest = &found["examples"][1];
    assert_eq!((&oldest["pid"], &oldest["call"]), (&json!(alpha), &json!("FS_WRITE")));
    assert_eq!(oldest["recorded_rule"], oldest["old_rule"]);
    let recorded = rig.entries(alpha, "verdict");
    assert_eq!((&recorded[0]["lsn"], &recorded[0]["rule"]), (&oldest["lsn"], &oldest["recorded_rule"]));

    // More is given, and less: of people's words the signs. The daemon is not needed for it.
    rig.kill_daemon();
    let wide = POLICY
        .replace("      - {path: \"contracts/**\", ops: [write, delete], verdict: ask}\n", "")
        .replace("{path: \"**\", ops: [read, write, delete]}", "{path: \"contracts/**\", ops: [write]}");
    let found = decisions(&rig, &wide);
    assert_eq!(counts(&found), [5, 1, 2, 0, 0], "{found}");
    let told = rig.aos(&["policy", "diff", &path(&rig, "old.yaml"), &path(&rig, "new.yaml")]);
    assert_eq!(told.code, 0, "{told:?}");
    for line in [
        "of the last 5 recorded decisions 3 would be others: 1 looser, 2 stricter\n",
        &format!("+ process {alpha}, FS_WRITE contracts/a: was ask (role assistant: fs[1] contracts/**), is allow ("),
        &format!("- process {alpha}, FS_WRITE notes.txt: was allow (role assistant: fs[0] **), is deny ("),
    ] {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    assert!(rig.daemons().is_empty(), "nothing was started");

    // What was pruned is said.
    rig.up();
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &alpha.to_string()]).code, 0);
    rig.until_state(alpha, "exited");
    let pruned = rig.json(&["prune"]);
    assert_eq!(pruned["pids"], json!([alpha]));
    let found = decisions(&rig, &narrow);
    assert_eq!(counts(&found), [2, 0, 0, 0, pruned["entries"].as_u64().unwrap()], "{found}");
    let told = rig.aos(&["policy", "diff", &path(&rig, "old.yaml"), &path(&rig, "new.yaml")]);
    assert!(told.err.contains("entries of that time were pruned, and their decisions with them"), "{told:?}");
}

/// A command of a process that carried nothing is decided again as one that carried nothing.
#[test]
fn commands_are_decided_again_by_what_they_carried_then() {
    let labels = "labels:\n  - {when: untrusted, calls: [EXEC_CMD], verdict: ask}\n";
    let policy = |verdict: &str| {
        format!(
            "version: 1\ndefault_role: assistant\nroles:\n  assistant:\n    \
             exec: {{shell: true, programs: [sh, coreutils], net: none, verdict: {verdict}}}\n{labels}"
        )
    };
    let steps = vec![call("EXEC_CMD", json!({ "cmd": "true" })), say("done")];
    let rig = Rig::with(vec![any("alpha", steps)], Setup { policy: Some(policy("allow")), ..Setup::default() });
    let alpha = rig.spawn(&["alpha"]);
    rig.until_idle(alpha);
    for (name, verdict) in [("old.yaml", "allow"), ("new.yaml", "deny")] {
        fs::write(rig.file(name), policy(verdict)).unwrap();
    }
    let found = rig.json(&["policy", "diff", path(&rig, "old.yaml").as_str(), path(&rig, "new.yaml").as_str()]);
    assert_eq!(counts(&found["decisions"]), [1, 0, 1, 0, 0], "{found}");
    assert_eq!(found["decisions"]["examples"][0]["old"], "allow", "{found}");
}

#[test]
fn a_signal_of_then_reached_whom_it_reached_by_the_name_that_it_had() {
    let signals = vec![
        call("SPAWN_AGENT", json!({ "role": "a helper" })),
        call("KILL", json!({ "pid": 4, "signal": "KILL" })),
        call("KILL", json!({ "pid": 2, "signal": "KILL" })),
        say("{{last_result.error.code}}"),
    ];
    let rig = Rig::new(vec![any("go round", signals), any("", vec![say("ready")])]);
    let web = rig.spawn(&["--name", "web-1", "wait"]);
    rig.until_idle(web);
    assert_eq!(rig.aos(&["run", "go round"]).out, "EPERM\n");
    assert_eq!(rig.process(4)["exit_code"], 137, "its own helper");
    let with =
        |peer: &str| POLICY.replace("    ipc:\n", &format!("    ipc:\n      - {{peer: \"{peer}\", ops: [signal]}}\n"));
    let found = decisions(&rig, &with("web-*"));
    assert_eq!(counts(&found), [3, 1, 0, 0, 0], "{found}");
    assert_eq!(found["examples"][0]["args"]["pid"], web);
    assert_eq!(counts(&decisions(&rig, &with("db"))), [3, 0, 0, 0, 0]);
}

/// Of both it was said that they differ and that no call shows it.
#[test]
fn programs_and_rules_of_labels_that_come_and_go_are_told() {
    let text = |programs: &str, more: &str| {
        let roles = format!("roles: {{a: {{exec: {{shell: true, programs: [{programs}]}}}}}}");
        format!("version: 1\ndefault_role: a\n{roles}\n{more}\n")
    };
    let rig = Rig::with(vec![], Setup { policy: Some(text("sh", "")), ..Setup::default() });
    let (old, new) = (path(&rig, "old.yaml"), path(&rig, "new.yaml"));
    fs::write(&old, text("sh", "labels: [{when: secret, to: net, do: deny}]")).unwrap();
    fs::write(&new, text("sh, git", "limits: {spawn: {depth: 1, children: 1}}")).unwrap();
    let parts = ["labels: gone is {when: secret, to: net, do: deny}", "role a: exec: programs new: git"];
    let told = rig.aos(&["policy", "diff", &old, &new]);
    let lines: Vec<&str> = told.out.lines().filter_map(|line| line.strip_prefix("~ ")).collect();
    assert_eq!(lines, ["limits: differs, and no call shows it", parts[0], parts[1]], "{told:?}");
    assert_eq!(rig.json(&["policy", "diff", &old, &new])["beside"], json!(["limits", parts[0], parts[1]]));
}
