//! The policy changes while the kernel lives: what holds from then on, and for what was asked before.

use insta::assert_snapshot;

use crate::rig::replay;

#[test]
fn another_policy_holds_from_the_next_decision_on_and_an_older_yes_does_not() {
    // Each `off` replays the whole journal and compares: a change in the middle is a fact like any other.
    let told = replay(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"secret/a","content":"1"} => FS_WRITE {"path":"asks/b","content":"2"}
        policy verdict: deny => verdict: ask
        off 1
        approve p2
        2: => FS_WRITE {"path":"secret/a","content":"1"}
        approve p3
        done 2 FS_WRITE
        policy ops: [read, write, delete]} => ops: [read]}
        2: => FS_WRITE {"path":"c","content":"3"}
        off 1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"secret/a","content":"1"} => FS_WRITE {"path":"asks/b","content":"2"}
    2 deny by role assistant: fs[3] secret/**
    2 p1 is closed: no yes lifts role assistant: fs[3] secret/**
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: fs[3] secret/**
    2 ask by role assistant: fs[1] asks/**
    2 proposal p2 pending
    > policy verdict: deny => verdict: ask
    2 proposal p2 expired
    2 FS_WRITE = EREJECTED the policy has changed since this was asked
    2 proposal p1 expired
    2 told of p1: Role, FS_WRITE {"path":"secret/a","content":"1"}
      → another policy
      → infer 2 turn [task, turn, fs_write, fs_write, p1 lifted]
    > off 1
      → infer 2 turn [task, turn, fs_write, fs_write, p1 lifted]
    > approve p2
    refused: ENOENT no open proposal `p2`
    > 2: => FS_WRITE {"path":"secret/a","content":"1"}
    2 ask by role assistant: fs[3] secret/**
    2 proposal p3 pending
    > approve p3
    2 proposal p3 executed
      → call 2 FS_WRITE {"path":"secret/a","content":"1"}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_write, fs_write, p1 lifted, turn, fs_write]
    > policy ops: [read, write, delete]} => ops: [read]}
      → another policy
    > 2: => FS_WRITE {"path":"c","content":"3"}
    2 deny by role assistant: no rule
    2 p4 would take FS_WRITE c
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → infer 2 turn [task, turn, fs_write, fs_write, p1 lifted, turn, fs_write, turn, fs_write]
    > off 1
      → infer 2 turn [task, turn, fs_write, fs_write, p1 lifted, turn, fs_write, turn, fs_write]
    "#);
}

#[test]
fn the_same_text_again_is_no_other_policy_and_a_text_with_a_fault_denies() {
    let told = replay(
        r#"
        spawn resident go
        policy verdict: deny => verdict: deny
        policy fs: => sf:
        2: => FS_READ {"path":"a"}
        off 1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > policy verdict: deny => verdict: deny
    > policy fs: => sf:
      → another policy
    > 2: => FS_READ {"path":"a"}
    2 deny by floor: there is no policy.yaml
    2 p1 is closed: no yes lifts the floor: `aos init` writes a policy.yaml; without one everything is denied
    2 FS_READ = EPERM the policy denies FS_READ: floor: there is no policy.yaml
    2 stopped: the policy has no role for this process any more, so it may use no model; change `models` of the role in policy.yaml; then `aos resume 2`
    > off 1
    "#);
}

/// What was behind a call that a stop interrupted was decided by the policy of before, and what was at a model went there
/// again.
#[test]
fn what_a_stop_interrupted_goes_on_by_what_was_changed_meanwhile() {
    let told = replay(
        r#"
        spawn resident go
        2: => EXEC_CMD {"cmd":"make"} => FS_WRITE {"path":"b","content":""}
        meanwhile policy ops: [read, write, delete]} => ops: [read]}
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"make"} => FS_WRITE {"path":"b","content":""}
      → call 2 EXEC_CMD {"cmd":"make"}
    > meanwhile policy ops: [read, write, delete]} => ops: [read]}
    > boot
    2 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
    2 deny by role assistant: no rule
    2 p1 would take FS_WRITE b
    2 FS_WRITE = EPERM the policy denies FS_WRITE: role assistant: no rule
      → another policy
      → infer 2 turn [task, turn, exec_cmd, fs_write]
    "#);
    let told = replay(
        r#"
        spawn resident go
        spawn resident model=b two
        meanwhile policy assistant: => assistant:\n    models: {tiers: [strong]}
        boot
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > spawn resident model=b two
      → infer 3 turn [task]
    > meanwhile policy assistant: => assistant:\n    models: {tiers: [strong]}
    > boot
    2 stopped: the policy was changed, and the role may not use `m` any more; change `models` of the role in policy.yaml; then `aos resume 2`
      → another policy
      → infer 3 turn [task]
    > boot
      → infer 3 turn [task]
    "#);
    let told = replay(
        r#"
        model m price=1
        spawn resident usd=0.05 go
        meanwhile model m price=1000
        boot
        "#,
    );
    assert_snapshot!(told, @"
    > model m price=1
    > spawn resident usd=0.05 go
      → infer 2 turn [task]
    > meanwhile model m price=1000
    > boot
    2 nearly spent: $0.031963 left of $0.05, and one inference may take $0.018037
    2 stopped: the budget is spent: $0.031963 left, up to $18.037 needed; `aos budget 2 --usd MORE` gives it more
    ");
}
