//! Denials that a person may lift: which are kept, what a yes lets happen, and what no yes does.

use insta::assert_snapshot;

use crate::rig::{replay, replay_under};

/// Reads and talks, writes nothing but `notes`, and asks strangers' readers before they run anything.
const NARROW: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, ASK_USER, PROPOSE]
    fs:
      - {path: "**", ops: [read]}
      - {path: "mail/**", ops: [read], label: untrusted.file}
      - {path: "keys/**", ops: [read], label: secret}
      - {path: "closed/**", ops: [read, write, delete], verdict: deny}
    net:
      - {to: "api.example.com:443", allow: ["GET /**"]}
    ipc:
      - {peer: "*", ops: [send]}
      - {peer: "bob", ops: [send], verdict: deny}
labels:
  - {when: untrusted, calls: [FS_WRITE, SPAWN_AGENT], verdict: ask}
  - {when: secret, to: any, verdict: deny}
"#;

const WRITE: &str = r#"=> FS_WRITE {"path":"notes","content":"1"}"#;

/// The last lines of what a script comes to under [`NARROW`], from the first that has this on.
fn from(script: &str, line: &str) -> String {
    let told = replay_under(NARROW, script);
    let at = told.find(line).unwrap_or_else(|| panic!("no `{line}` in {told}"));
    told[at..].to_owned()
}

/// Nobody was asked about it, so nobody can have seen it as it was put.
#[test]
fn a_yes_to_a_denial_names_what_was_shown() {
    let told = from(&format!("spawn resident go\n2: {WRITE}\ncounts"), "> counts");
    assert_snapshot!(told, @r"
    > counts
    p1 p1 was denied, and a yes to it names what was shown; named: yes
    ");
}

#[test]
fn a_denied_call_may_be_made_once_by_whoever_a_person_lets_make_it() {
    // Each `off` replays the whole journal and compares.
    let told = replay_under(
        NARROW,
        &format!(
            r#"
            spawn resident go
            2: {WRITE}
            off 1
            2: I may not
            approve p1
            off 1
            2: {WRITE} {WRITE}
            done 2 FS_WRITE
            off 1
            approve p1
            "#
        ),
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"notes","content":"1"}
    2 deny by role assistant: no rule
    2 p1 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write]
    > off 1
      → infer 2 turn [task, turn, fs_write]
    > 2: I may not
    > approve p1
    2 told of p1: Once, FS_WRITE {"path":"notes","content":"1"}
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted]
    > off 1
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted]
    > 2: => FS_WRITE {"path":"notes","content":"1"} => FS_WRITE {"path":"notes","content":"1"}
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"notes","content":"1"}
    > done 2 FS_WRITE
    2 deny by role assistant: no rule
    2 p2 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted, turn, fs_write, fs_write]
    > off 1
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted, turn, fs_write, fs_write]
    > approve p1
    refused: ENOENT no open proposal `p1`
    "#);
}

#[test]
fn a_yes_is_for_these_bytes_alone_and_a_no_is_remembered() {
    let told = from(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"notes","content":"1"} => FS_WRITE {"path":"notes","content":"2"}
        approve p1
        2: => FS_WRITE {"path":"notes","content":"2"} => FS_DELETE {"path":"notes"}
        reject p2 no
        reject p3 no
        reject p1 no
        2: => FS_WRITE {"path":"notes","content":"1"} => FS_DELETE {"path":"notes"}
        2: done
        after 90000
        "#,
        "> 2: =>",
    );
    assert_snapshot!(told, @r#"
    > 2: => FS_WRITE {"path":"notes","content":"1"} => FS_WRITE {"path":"notes","content":"2"}
    2 deny by role assistant: no rule
    2 p1 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
    2 deny by role assistant: no rule
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, fs_write]
    > approve p1
    2 told of p1: Once, FS_WRITE {"path":"notes","content":"1"}
    > 2: => FS_WRITE {"path":"notes","content":"2"} => FS_DELETE {"path":"notes"}
    2 deny by role assistant: no rule
    2 p2 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
    2 deny by role assistant: no rule
    2 p3 would take FS_DELETE notes
    2 FS_DELETE = EPERM the policy denies FS_DELETE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, fs_write, turn, fs_write, fs_delete, p1 lifted]
    > reject p2 no
    > reject p3 no
    > reject p1 no
    > 2: => FS_WRITE {"path":"notes","content":"1"} => FS_DELETE {"path":"notes"}
    2 deny by role assistant: no rule
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
    2 deny by role assistant: no rule
    2 FS_DELETE = EPERM the policy denies FS_DELETE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, fs_write, turn, fs_write, fs_delete, p1 lifted, turn, fs_write, fs_delete]
    > 2: done
    > after 90000
    "#);
}

/// What the kernel refuses of a call that the policy allows is no news of another policy.
#[test]
fn who_was_refused_a_child_is_told_nothing_by_another_policy() {
    let spawn = r#"2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["NET_FETCH **"]}"#;
    let script = format!("spawn resident go\n{spawn}\nrules\npolicy closed/** => shut/**\noff 1");
    let told = replay_under(NARROW, &script);
    assert!(told.contains("p1 is closed: ") && told.contains("kernel: the grant `NET_FETCH **` exceeds"), "{told}");
    assert!(told.contains("proposal p1 expired") && !told.contains("told of p1"), "{told}");
}

#[test]
fn what_no_yes_lifts_is_closed_and_says_why() {
    for (call, why) in [
        // The floor, a rule that denies, and one about a part of it.
        (r#"FS_WRITE {"path":"../x","content":""}"#, "no yes lifts the floor: give a path relative to the workspace"),
        (r#"FS_WRITE {"path":"closed/a","content":""}"#, "no yes lifts role assistant: fs[3] closed/**"),
        (r#"FS_SEARCH {"pattern":"x","path":"closed"}"#, "no yes lifts role assistant: fs[3] closed/**"),
        (r#"NET_FETCH {"url":"http://169.254.169.254/"}"#, "no yes lifts the floor: there is no grant for this"),
        (
            r#"NET_FETCH {"url":"http://10.0.0.1/"}"#,
            "it takes more than a grant: a rule of the role's `net`: {to: \"10.0.0.1:80\"",
        ),
        // No programs are named.
        (
            r#"EXEC_CMD {"cmd":"ls"}"#,
            "it takes more than a grant: in the role: exec: {shell: false, programs: [\"ls\"]}",
        ),
    ] {
        let answers = "approve p1\nstanding p1\nreject p1";
        let told = replay_under(NARROW, &format!("spawn resident go\n2: => {call}\n{answers}\n2: => {call}"));
        assert!(told.contains("EPERM") && told.contains(&format!("p1 is closed: {why}")), "{told}");
        assert_eq!(told.matches("refused: EPERM no yes to p1 lets its call be made").count(), 2, "{told}");
        assert_eq!(told.matches("is closed").count(), 1, "what was dismissed is not shown again: {told}");
    }
    let secret = r#"
        here m
        spawn resident go
        2: => FS_READ {"path":"keys/a"}
        done 2 FS_READ {"content":"k"}
        2: => NET_SEND {"url":"https://api.example.com/","method":"POST"}
    "#;
    let told = replay_under(NARROW, secret);
    assert!(told.contains("p1 is closed: no yes lifts label: "), "{told}");
}

#[test]
fn who_was_given_nothing_gets_nothing_by_a_denial() {
    let told = replay_under(
        NARROW,
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t","quarantine":true} => SPAWN_AGENT {"role":"r","task":"t","permissions":[]}
        3: => FS_READ {"path":"a"}
        4: => FS_READ {"path":"a"}
        "#,
    );
    assert_eq!((told.matches("EPERM").count(), told.contains("would take")), (2, false), "{told}");
    assert_eq!(
        told.matches("is closed: its process was given nothing to do").count(),
        1,
        "the same of a tree once: {told}"
    );
}

#[test]
fn a_yes_to_a_childs_call_is_no_right_of_the_child() {
    // What its parent may not do either is lifted for one call and for nothing that stands.
    let told = from(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_READ a/**","SPAWN_AGENT"]}
        3: => FS_READ {"path":"b"}
        standing p1
        approve p1
        3: => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_READ b"]}
        3: => FS_READ {"path":"b"}
        done 3 FS_READ {"content":"x"}
        3: => FS_READ {"path":"b"}
        2: => FS_WRITE {"path":"notes","content":""}
        "#,
        "> 3: =>",
    );
    assert_snapshot!(told, @r#"
    > 3: => FS_READ {"path":"b"}
    3 deny by grant: none of this process, which has [FS_READ a/**, SPAWN_AGENT]
    3 p1 would take FS_READ b
    3 FS_READ = EPERM the policy denies FS_READ: grant: none of this process, which has [FS_READ a/**, SPAWN_AGENT]
      → infer 3 turn [task, turn, fs_read]
    > standing p1
    refused: EPERM an approval of p1 cannot stand: the same call would be decided by grant: none of this process, which has [FS_READ a/**, SPAWN_AGENT] again
    > approve p1
    3 told of p1: Once, FS_READ {"path":"b"}
    > 3: => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_READ b"]}
    3 p2 is closed: a child can never do what its parent cannot: give it less
    3 SPAWN_AGENT = EPERM the grant `FS_READ b` exceeds its parent: `FS_READ b` would be allowed to the child and is not to the parent's own grants
      → infer 3 turn [task, turn, fs_read, turn, spawn_agent, p1 lifted]
    > 3: => FS_READ {"path":"b"}
    3 proposal p1 executed
      → call 3 FS_READ {"path":"b"}
    > done 3 FS_READ {"content":"x"}
      → infer 3 turn [task, turn, fs_read, turn, spawn_agent, p1 lifted, turn, fs_read]
    > 3: => FS_READ {"path":"b"}
    3 deny by grant: none of this process, which has [FS_READ a/**, SPAWN_AGENT]
    3 p3 would take FS_READ b
    3 FS_READ = EPERM the policy denies FS_READ: grant: none of this process, which has [FS_READ a/**, SPAWN_AGENT]
      → infer 3 turn [task, turn, fs_read, turn, spawn_agent, p1 lifted, turn, fs_read, turn, fs_read]
    > 2: => FS_WRITE {"path":"notes","content":""}
    2 deny by role assistant: no rule
    2 p4 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, spawn_agent, turn, fs_write]
    "#);
}

#[test]
fn a_yes_for_the_process_stands_for_what_its_role_has_no_rule_for() {
    let told = from(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"notes","content":"1"}
        2: I may not
        standing p1
        2: => FS_WRITE {"path":"notes","content":"2"} => FS_WRITE {"path":"other","content":"2"}
        done 2 FS_WRITE
        2: => SPAWN_AGENT {"role":"r","task":"t"}
        3: => FS_WRITE {"path":"notes","content":"2"}
        2: => FS_READ {"path":"mail/a"}
        done 2 FS_READ {"content":"x"}
        2: => FS_WRITE {"path":"notes","content":"3"}
        reject p1
        "#,
        "> standing",
    );
    assert_snapshot!(told, @r#"
    > standing p1
    2 told of p1: Process, FS_WRITE notes
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted]
    > 2: => FS_WRITE {"path":"notes","content":"2"} => FS_WRITE {"path":"other","content":"2"}
      → call 2 FS_WRITE {"path":"notes","content":"2"}
    > done 2 FS_WRITE
    2 deny by role assistant: no rule
    2 p2 would take FS_WRITE other
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted, turn, fs_write, fs_write]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted, turn, fs_write, fs_write, turn, spawn_agent]
    > 3: => FS_WRITE {"path":"notes","content":"2"}
    3 deny by role assistant: no rule
    3 p3 is closed: its process was given nothing to do
    3 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 3 turn [task, turn, fs_write]
    > 2: => FS_READ {"path":"mail/a"}
      → call 2 FS_READ {"path":"mail/a"}
    > done 2 FS_READ {"content":"x"}
    2 labelled untrusted.file
      → infer 2 turn [task, turn, fs_write, turn, p1 lifted, turn, fs_write, fs_write, turn, spawn_agent, turn, fs_read]
    > 2: => FS_WRITE {"path":"notes","content":"3"}
    2 ask by label: labels[0] untrusted
    2 proposal p4 pending
    > reject p1
    "#);
}

#[test]
fn a_yes_holds_no_more_once_the_process_has_read_what_others_wrote() {
    let told = from(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"notes","content":"1"}
        approve p1
        2: => FS_READ {"path":"mail/a"}
        done 2 FS_READ {"content":"x"}
        2: => FS_WRITE {"path":"notes","content":"1"}
        risks
        approve p2
        2: => FS_WRITE {"path":"notes","content":"1"}
        "#,
        "> approve",
    );
    assert_snapshot!(told, @r#"
    > approve p1
    2 told of p1: Once, FS_WRITE {"path":"notes","content":"1"}
    > 2: => FS_READ {"path":"mail/a"}
      → call 2 FS_READ {"path":"mail/a"}
    > done 2 FS_READ {"content":"x"}
    2 labelled untrusted.file
      → infer 2 turn [task, turn, fs_write, turn, fs_read, p1 lifted]
    > 2: => FS_WRITE {"path":"notes","content":"1"}
    2 proposal p1 expired
    2 deny by role assistant: no rule
    2 p2 would take FS_WRITE notes
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, turn, fs_read, p1 lifted, turn, fs_write]
    > risks
    p2 the argument `path` stands neither in your request nor in a file that it names, and this agent has read what others wrote (untrusted.file)
    > approve p2
    2 told of p2: Once, FS_WRITE {"path":"notes","content":"1"}
    > 2: => FS_WRITE {"path":"notes","content":"1"}
    2 proposal p2 executed
      → call 2 FS_WRITE {"path":"notes","content":"1"}
    "#);
}

#[test]
fn a_search_that_is_lifted_carries_what_the_files_in_it_carry() {
    let whole = "      - {path: \"**\", ops: [read]}\n";
    let closed = "      - {path: \"closed/**\", ops: [read, write, delete], verdict: deny}\n";
    let search = "here m\nspawn resident go\n2: => FS_SEARCH {\"pattern\":\"x\"}";
    let told = replay_under(&NARROW.replace(whole, ""), search);
    assert!(told.contains("p1 is closed: no yes lifts role assistant: fs[2] closed/**"), "a part of it is: {told}");
    let policy = NARROW.replace(whole, "").replace(closed, "");
    let script =
        format!("{search}\nstanding p1\n2: => FS_SEARCH {{\"pattern\":\"x\"}}\ndone 2 FS_SEARCH {{\"matches\":[]}}");
    let told = replay_under(&policy, &script);
    assert_snapshot!(told, @r#"
    > here m
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_SEARCH {"pattern":"x"}
    2 deny by role assistant: no rule
    2 p1 would take FS_SEARCH **
    2 FS_SEARCH = EPERM the policy denies FS_SEARCH: role assistant: no rule
      → infer 2 turn [task, turn, fs_search]
    > standing p1
    2 told of p1: Process, FS_SEARCH with these arguments
    > 2: => FS_SEARCH {"pattern":"x"}
      → call 2 FS_SEARCH {"pattern":"x"}
    > done 2 FS_SEARCH {"matches":[]}
    2 labelled untrusted.file, secret
      → infer 2 turn [task, turn, fs_search, turn, fs_search, p1 lifted]
    "#);
}

#[test]
fn a_rule_about_somebody_closes_his_other_name_to_a_yes_as_well() {
    let policy = NARROW.replace("      - {peer: \"*\", ops: [send]}\n", "");
    let told = replay_under(
        &policy,
        r#"
        spawn resident name=bob hear
        spawn resident name=ann hear
        spawn resident go
        4: => SEND_MSG {"to_pid":2,"content":"x"} => SEND_MSG {"to_pid":3,"content":"x"}
        approve p1
        approve p2
        4: => SEND_MSG {"to_pid":3,"content":"x"} => SEND_MSG {"to_pid":3,"content":"x"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=bob hear
      → infer 2 turn [task]
    > spawn resident name=ann hear
      → infer 3 turn [task]
    > spawn resident go
      → infer 4 turn [task]
    > 4: => SEND_MSG {"to_pid":2,"content":"x"} => SEND_MSG {"to_pid":3,"content":"x"}
    4 deny by role assistant: no rule
    4 p1 is closed: no yes lifts role assistant: ipc[0] bob
    4 SEND_MSG = EPERM the policy denies SEND_MSG: role assistant: no rule
    4 deny by role assistant: no rule
    4 p2 would take SEND_MSG 3
    4 SEND_MSG = EPERM the policy denies SEND_MSG: role assistant: no rule
      → infer 4 turn [task, turn, send_msg, send_msg]
    > approve p1
    refused: EPERM no yes to p1 lets its call be made: no yes lifts role assistant: ipc[0] bob
    > approve p2
    4 told of p2: Once, SEND_MSG {"to_pid":3,"content":"x"}
    > 4: => SEND_MSG {"to_pid":3,"content":"x"} => SEND_MSG {"to_pid":3,"content":"x"}
    4 proposal p2 executed
    3 message from 4: x
    4 SEND_MSG = {"message_id":"m27"}
    4 deny by role assistant: no rule
    4 p3 would take SEND_MSG 3
    4 SEND_MSG = EPERM the policy denies SEND_MSG: role assistant: no rule
      → infer 4 turn [task, turn, send_msg, send_msg, turn, send_msg, send_msg, p2 lifted]
    "#);
}

#[test]
fn another_policy_ends_denials_and_tells_whom_it_lets_go_on() {
    let told = from(
        r#"
        spawn resident go
        spawn resident go
        2: => FS_WRITE {"path":"notes","content":"1"} => FS_DELETE {"path":"notes"}
        3: => FS_WRITE {"path":"b","content":"1"}
        2: I may not
        approve p2
        policy ops: [read]} => ops: [read, write]}
        approve p2
        off 1
        "#,
        "> policy",
    );
    assert_snapshot!(told, @r#"
    > policy ops: [read]} => ops: [read, write]}
    2 proposal p1 expired
    2 told of p1: Role, FS_WRITE {"path":"notes","content":"1"}
    2 proposal p2 expired
    3 proposal p3 expired
    3 told of p3: Role, FS_WRITE {"path":"b","content":"1"}
      → another policy
    > approve p2
    refused: ENOENT no open proposal `p2`
    > off 1
      → infer 3 turn [task, turn, fs_write, p3 lifted]
      → infer 2 turn [task, turn, fs_write, fs_delete, turn, p2 lifted, p1 lifted]
    "#);
}

/// One yes for the role emptied the list of all that was denied, though it was about one line of it.
#[test]
fn another_policy_keeps_what_it_denies_in_the_very_same_way() {
    let told = from(
        r#"
        spawn resident go
        spawn resident go
        2: => FS_WRITE {"path":"notes","content":"1"} => FS_DELETE {"path":"notes"} => FS_READ {"path":"closed/a"}
        3: => FS_DELETE {"path":"b"} => FS_DELETE {"path":"closed/a"}
        2: I may not
        approve p4
        policy calls: [SPAWN_AGENT, ASK => calls: [FS_WRITE notes, SPAWN_AGENT, ASK
        off 1
        approve p4
        approve p3
        approve p2
        off 1
        2: => FS_DELETE {"path":"notes"}
        policy path: "closed/**", ops: [read, write, delete] => path: "closed/**", ops: [delete]
        "#,
        "> policy",
    );
    assert_snapshot!(told, @r#"
    > policy calls: [SPAWN_AGENT, ASK => calls: [FS_WRITE notes, SPAWN_AGENT, ASK
    2 proposal p1 expired
    2 told of p1: Role, FS_WRITE {"path":"notes","content":"1"}
    3 proposal p4 expired
      → another policy
      → infer 2 turn [task, turn, fs_write, fs_delete, fs_read, turn, p1 lifted]
    > off 1
      → infer 3 turn [task, turn, fs_delete, fs_delete, p4 lifted]
      → infer 2 turn [task, turn, fs_write, fs_delete, fs_read, turn, p1 lifted]
    > approve p4
    refused: ENOENT no open proposal `p4`
    > approve p3
    refused: EPERM no yes to p3 lets its call be made: no yes lifts role assistant: fs[3] closed/**
    > approve p2
    2 told of p2: Once, FS_DELETE {"path":"notes"}
    > off 1
      → infer 3 turn [task, turn, fs_delete, fs_delete, p4 lifted]
      → infer 2 turn [task, turn, fs_write, fs_delete, fs_read, turn, p1 lifted, p2 lifted]
    > 2: => FS_DELETE {"path":"notes"}
    2 proposal p2 executed
      → call 2 FS_DELETE {"path":"notes"}
    > policy path: "closed/**", ops: [read, write, delete] => path: "closed/**", ops: [delete]
    2 proposal p3 expired
    2 told of p3: Role, FS_READ {"path":"closed/a"}
      → another policy
    "#);
}

#[test]
fn whoever_is_denied_in_a_loop_floods_nobody() {
    let mut script = String::from("spawn resident go\n");
    for turn in 0..80 {
        script.push_str(&format!("2: => FS_WRITE {{\"path\":\"n{turn}\",\"content\":\"\"}} {WRITE}\n"));
    }
    let told =
        replay_under(NARROW, &format!("{script}after 3600\n2: => FS_WRITE {{\"path\":\"late\",\"content\":\"\"}}"));
    let kept = told.matches("would take").count();
    assert_eq!(kept, 61, "sixty in an hour");
    assert_eq!(told.matches("would take FS_WRITE notes").count(), 4, "once while it is before people");
    assert_eq!(told.matches("expired").count(), 61 - 16, "sixteen at a time");
    assert!(told.contains("would take FS_WRITE late"), "and anew: {told}");
}

#[test]
fn the_end_of_a_process_ends_its_denials() {
    let told = from(
        &format!(
            "spawn resident go\n2: {WRITE} => FS_DELETE {{\"path\":\"notes\"}}\napprove p2\nsignal 2 KILL\napprove p1"
        ),
        "> signal",
    );
    assert_snapshot!(told, @"
    > signal 2 KILL
    2 proposal p1 expired
    2 proposal p2 expired
    2 exited 137: killed
      → cancel
    > approve p1
    refused: ENOENT no open proposal `p1`
    ");
}

#[test]
fn who_waits_is_woken_by_a_yes_and_who_is_stopped_is_not() {
    let told = from(
        &format!(
            "spawn resident go\n2: {WRITE} => SLEEP {{\"seconds\":600}}\nafter 1\napprove p1\n2: {WRITE}\ndone 2 FS_WRITE\n2: => FS_DELETE {{\"path\":\"notes\"}}\n2: ok\nsignal 2 STOP\napprove p2\nps 2\nsignal 2 CONT"
        ),
        "> approve",
    );
    assert_snapshot!(told, @r#"
    > approve p1
    2 told of p1: Once, FS_WRITE {"path":"notes","content":"1"}
    2 SLEEP = {"slept_s":1.0,"interrupted":"a person's answer"}
      → infer 2 turn [task, turn, fs_write, sleep, p1 lifted]
    > 2: => FS_WRITE {"path":"notes","content":"1"}
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"notes","content":"1"}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_write, sleep, p1 lifted, turn, fs_write]
    > 2: => FS_DELETE {"path":"notes"}
    2 deny by role assistant: no rule
    2 p2 would take FS_DELETE notes
    2 FS_DELETE = EPERM the policy denies FS_DELETE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, sleep, p1 lifted, turn, fs_write, turn, fs_delete]
    > 2: ok
    > signal 2 STOP
    > approve p2
    2 told of p2: Once, FS_DELETE {"path":"notes"}
    > ps 2
    2 is stopped for stdin: stopped by a signal
    > signal 2 CONT
      → infer 2 turn [task, turn, fs_write, sleep, p1 lifted, turn, fs_write, turn, fs_delete, turn, p2 lifted]
    "#);
}

#[test]
fn what_is_proposed_and_denied_is_kept_as_well() {
    let told = from(
        r#"
        spawn resident go
        2: => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"notes","content":"1"}},"why":"please"}
        approve p1
        2: => FS_WRITE {"path":"notes","content":"1"}
        "#,
        "> 2: => PROPOSE",
    );
    assert_snapshot!(told, @r#"
    > 2: => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"notes","content":"1"}},"why":"please"}
    2 p1 would take FS_WRITE notes
    2 PROPOSE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, propose]
    > approve p1
    2 told of p1: Once, FS_WRITE {"path":"notes","content":"1"}
    > 2: => FS_WRITE {"path":"notes","content":"1"}
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"notes","content":"1"}
    "#);
}

#[test]
fn a_call_that_is_granted_in_part_wants_the_rest_alone() {
    let told = replay(
        r#"
        spawn resident grants=FS_READ,FS_WRITE go
        2: => FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
        approve p1
        2: => FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident grants=FS_READ,FS_WRITE go
      → infer 2 turn [task]
    > 2: => FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
    2 deny by grant: none of this process, which has [FS_READ, FS_WRITE]
    2 p1 would take FS_EDIT a
    2 FS_EDIT = EPERM the policy denies FS_EDIT: grant: none of this process, which has [FS_READ, FS_WRITE]
      → infer 2 turn [task, turn, fs_edit]
    > approve p1
    2 told of p1: Once, FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
    > 2: => FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
    2 proposal p1 executed
      → call 2 FS_EDIT {"path":"a","edits":[{"old":"x","new":"y"}]}
    "#);
}

#[test]
fn a_missing_grant_hides_no_rule_that_asks_behind_it() {
    // People were shown that a grant is wanting, and their yes took the place of the rule's question as well.
    let policy = NARROW.replace(
        "      - {path: \"mail/**\"",
        "      - {path: \"asks/**\", ops: [write], verdict: ask}\n      - {path: \"waits/**\", ops: [write], verdict: hold}\n      - {path: \"mail/**\"",
    );
    let told = replay_under(
        &policy,
        r#"
        spawn resident grants=FS_READ go
        2: => FS_WRITE {"path":"asks/a","content":""} => FS_WRITE {"path":"waits/a","content":""} => FS_WRITE {"path":"notes","content":""}
        rules
        "#,
    );
    let rules = told.split("> rules\n").nth(1).unwrap_or_default();
    assert_snapshot!(rules, @"
    p1 grant: none of this process, which has [FS_READ]; then role assistant: fs[1] asks/** asks
    p2 grant: none of this process, which has [FS_READ]; then role assistant: fs[2] waits/** holds
    p3 role assistant: no rule
    ");
}

#[test]
fn whoever_is_denied_often_pushes_out_nobody_elses() {
    let mut script = String::from("spawn resident go\n2: => FS_WRITE {\"path\":\"only\",\"content\":\"\"}\n2: ok\n");
    for pid in 3..=18 {
        let calls: String =
            (0..16).map(|nth| format!(" => FS_WRITE {{\"path\":\"{pid}-{nth}\",\"content\":\"\"}}")).collect();
        script.push_str(&format!("spawn resident go\n{pid}:{calls}\n{pid}: ok\n"));
    }
    let told = replay_under(NARROW, &script);
    assert_eq!(told.matches("would take").count(), 1 + 16 * 16, "{told}");
    assert!(!told.contains("proposal p1 expired"), "the only one of its tree");
    assert!(told.contains("3 proposal p2 expired"), "{told}");
}
