//! Whom a signal reaches: what is below a process, what it is granted, and groups.

use crate::rig::{POLICY, replay, replay_under};

/// The usual policy with more rules for messages and signals.
fn ipc(rules: &str) -> String {
    POLICY.replace("    ipc:\n", &format!("    ipc:\n{rules}"))
}

#[test]
fn an_agent_signals_what_it_started_and_nobody_else_without_a_grant() {
    let told = replay(
        r#"
        spawn resident name=web-1 go
        spawn resident name=ann go
        spawn resident go
        3: => SPAWN_AGENT {"role":"r"} => KILL {"pid":5} => KILL {"pid":2} => KILL {"pid":4} => KILL {"pid":1} => KILL {"pid":9}
        explain 3 KILL {"pid":2}
        explain 3 KILL {"pid":4}
        explain 3 KILL {"pid":5}
        "#,
    );
    assert!(told.contains("5 TERM from 3\n3 KILL = {}"), "{told}");
    assert_eq!(told.matches("3 KILL = EPERM the policy denies KILL: role assistant: no rule").count(), 2, "{told}");
    assert_eq!(told.matches("3 KILL = ESRCH").count(), 2, "nobody is the system itself: {told}");
    assert!(told.contains("deny by role assistant: no rule; KILL web-1\n"), "{told}");
    assert!(told.contains("deny by role assistant: no rule; KILL 4\n"), "one without a name is its pid: {told}");
    assert!(told.contains("allow by always: KILL\n"), "{told}");
}

#[test]
fn a_rule_lets_it_reach_others_by_name_and_a_child_no_more_than_its_parent() {
    let policy = ipc("      - {peer: \"web-*\", ops: [signal]}\n");
    let told = replay_under(
        &policy,
        r#"
        spawn resident name=web-1 go
        spawn resident name=web-2 go
        spawn resident name=db go
        spawn resident go
        5: => KILL {"pid":2,"signal":"STOP"} => KILL {"pid":4} => SPAWN_AGENT {"role":"r","permissions":["KILL *"]} => SPAWN_AGENT {"role":"r","task":"t","permissions":["KILL web-2"]}
        6: => KILL {"pid":2} => KILL {"pid":3} => KILL {"pid":5}
        boot
        "#,
    );
    assert!(told.contains("2 STOP from 5\n5 KILL = {}"), "{told}");
    assert!(told.contains("5 KILL = EPERM the policy denies KILL: role assistant: no rule"), "{told}");
    assert!(told.contains("SPAWN_AGENT = EPERM the grant `KILL *` exceeds its parent: `KILL x`"), "{told}");
    // The child: what its own grant leaves out, what it holds, and not its parent.
    assert_eq!(told.matches("6 KILL = EPERM").count(), 2, "{told}");
    assert!(told.contains("3 TERM from 6\n6 KILL = {}"), "{told}");
}

#[test]
fn a_question_about_a_signal_names_the_process_and_a_no_leaves_it_alone() {
    let policy = ipc("      - {peer: db, ops: [signal], verdict: ask}\n");
    let script = r#"
        spawn resident name=db go
        spawn resident go
        3: => KILL {"pid":2,"signal":"KILL"}
        "#;
    let yes = replay_under(&policy, &format!("{script}approve p1\nboot\n"));
    assert!(yes.contains("3 ask by role assistant: ipc[0] db") && yes.contains("2 exited 137: killed"), "{yes}");
    let no = replay_under(&policy, &format!("{script}reject p1 no\nboot\n"));
    assert!(no.contains("3 KILL = EREJECTED") && !no.contains("2 exited"), "{no}");
    // It has ended meanwhile: nobody else has its pid.
    let late = replay_under(&policy, &format!("{script}signal 2 KILL\napprove p1\n"));
    assert!(late.contains("3 KILL = ESRCH process 2 has ended"), "{late}");
}

/// A program is let in with a key by a person; an agent that ended it would shut a person's program out.
#[test]
fn no_grant_reaches_a_program_or_lets_go_on_what_a_person_has_stopped() {
    let policy = ipc("      - {peer: \"**\", ops: [signal]}\n");
    let told = replay_under(
        &policy,
        r#"
        spawn program name=app
        spawn resident name=web go
        spawn resident go
        signal 3 STOP
        4: => KILL {"pid":2,"signal":"KILL"} => KILL {"pid":3,"signal":"CONT"} => KILL {"pid":3}
        "#,
    );
    assert!(told.contains("4 KILL = EPERM process 2 is a program that a person let in"), "{told}");
    assert_eq!(told.matches("4 KILL = EPERM process 3 is stopped until a person lets it go on").count(), 2, "{told}");
}

#[test]
fn a_group_is_inherited_and_a_persons_signal_reaches_every_living_member() {
    let told = replay(
        r#"
        spawn resident group=night go
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["SPAWN_AGENT"]} => SPAWN_AGENT {"role":"r","group":"day"} => SPAWN_AGENT {"role":"r","group":""}
        4: => SPAWN_AGENT {"role":"r"}
        group night STOP
        boot
        group night KILL
        group night KILL
        group day TERM
        ps 3
        ps 6
        "#,
    );
    let after = |marker: &str, upto: &str| {
        let rest = told.split_once(marker).unwrap().1;
        rest.split_once(upto).unwrap_or((rest, "")).0.to_owned()
    };
    let stopped = after("> group night STOP", "> boot");
    assert_eq!(stopped.matches("STOP from 1").count(), 3, "2, 4 and what 4 made: {told}");
    assert!(!["3 ", "5 ", "6 "].iter().any(|pid| stopped.contains(&format!("\n{pid}STOP"))), "{told}");
    assert_eq!(after("> group night KILL", "> group night KILL").matches("exited 137: killed").count(), 3, "{told}");
    assert!(told.contains("refused: ESRCH no process of a group `night` lives"), "{told}");
    assert!(told.contains("5 TERM from 1"), "{told}");
    assert!(told.contains("3 is running") && told.contains("6 is blocked for stdin"), "{told}");
}

#[test]
fn a_persons_signal_to_a_group_takes_in_what_is_below_it_where_that_is_said() {
    let told = replay(
        r#"
        spawn resident group=night go
        2: => SPAWN_AGENT {"role":"r","group":"day"}
        group night STOP
        group night CONT tree
        group night KILL tree
        "#,
    );
    assert!(!told.contains("3 STOP"), "{told}");
    assert!(told.contains("2 CONT from 1\n3 CONT from 1"), "{told}");
    assert!(told.contains("2 exited 137: killed") && told.contains("3 exited 137: killed"), "{told}");
}

#[test]
fn an_agent_reaches_of_a_group_what_is_below_it_and_what_it_may_signal_unasked() {
    let script = r#"
        spawn resident name=web-1 group=night go
        spawn resident name=db group=night go
        spawn resident group=night go
        4: => SPAWN_AGENT {"role":"r"} => SPAWN_AGENT {"role":"r","task":"t","group":"day"} => KILL {"group":"night","signal":"STOP"} => KILL {"group":"day","signal":"KILL"} => KILL {"group":"day"} => KILL {"group":"night","pid":2}
        "#;
    let told = replay(script);
    assert!(
        told.contains(
            r#"5 STOP from 4
4 KILL = {"signalled":[5],"left_out":[]}"#
        ),
        "what is not below it is not looked at: {told}"
    );
    assert!(told.contains(r#"4 KILL = {"signalled":[6],"left_out":[]}"#) && told.contains("6 exited 137"), "{told}");
    assert!(told.contains("4 KILL = ESRCH no process of a group `day` lives"), "{told}");
    assert!(told.contains("4 KILL = EINVAL exactly one of `pid` and `group` says who is signalled"), "{told}");
    let policy = ipc("      - {peer: \"web-*\", ops: [signal]}\n      - {peer: db, ops: [signal], verdict: ask}\n");
    let told = replay_under(&policy, script);
    assert!(told.contains("2 STOP from 4\n5 STOP from 4\n"), "{told}");
    assert!(
        told.contains(r#"4 KILL = {"signalled":[2,5],"left_out":[3]}"#),
        "never itself, and nobody is asked: {told}"
    );
}

#[test]
fn the_title_of_a_process_is_quoted_where_a_person_is_asked_about_it() {
    // It is the first line of a task, which whoever spawns it writes, and stood there as if the daemon had said it.
    let told = replay_under(
        &ipc("      - {peer: \"*\", ops: [signal], verdict: ask}\n"),
        r#"
        spawn resident nobody's "own"
        spawn resident go
        3: => KILL {"pid":2}
        rules
        "#,
    );
    assert!(told.contains(r#"; process 2 is "nobody's \"own\"", started by process 1"#), "{told}");
}

#[test]
fn an_agent_with_nobody_in_a_group_is_told_so() {
    let told = replay(
        r#"
        spawn resident group=night go
        spawn resident go
        3: => KILL {"group":"night"} => SPAWN_AGENT {"role":"r","group":"a b"}
        "#,
    );
    assert!(told.contains("3 KILL = EPERM nobody in the group `night` is below you or granted to you"), "{told}");
    assert!(told.contains("3 SPAWN_AGENT = EINVAL that is no name for a group"), "{told}");
}

#[test]
fn a_person_cancels_a_timer_and_an_agent_that_names_another_is_told_of_its_own() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"a","name":"hourly"} => SYS_SCHEDULE {"seconds":90,"prompt":"b"}
        unschedule 2 t3
        unschedule 2 t1
        unschedule 2 t1
        boot
        2: ok
        after 100
        2: => SYS_UNSCHEDULE {"timer_id":"hourly"}
        "#,
    );
    assert!(told.contains("refused: ENOENT no timer `t3`") && told.contains("refused: ENOENT no timer `t1`"), "{told}");
    assert!(told.contains("2 timer t2: b (0 missed)") && !told.contains("2 timer t1"), "{told}");
    assert!(told.contains("SYS_UNSCHEDULE = ENOENT no timer `hourly`"), "{told}");
}

/// It was "allow, by always: KILL", of whomever.
#[test]
fn what_is_said_of_a_signal_to_nobody_is_that_nobody_is_there() {
    let told = replay(
        r#"
        spawn resident go
        explain 2 KILL {"pid":1}
        explain 2 KILL {"pid":99}
        explain 2 KILL {"pid":2}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ")).collect();
    assert!(said[0].starts_with("deny by no process 1") && said[1].starts_with("deny by no process 99"), "{told}");
    assert!(said[2].starts_with("allow by always: KILL"), "{told}");
}
