//! What comes from outside: people, their answers to proposals, timers, webhooks and watches.

use insta::assert_snapshot;

use crate::rig::{POLICY, replay, replay_under};

#[test]
fn a_person_ends_a_sleep_and_answers_a_question() {
    let told = replay(
        r#"
        spawn resident go
        2: => SLEEP {"seconds":600}
        ps 2
        after 60
        input 2 wake up
        2: => ASK_USER {"question":"which?"}
        ps 2
        input 2 the left one
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SLEEP {"seconds":600}
    > ps 2
    2 is sleeping for time
    > after 60
    > input 2 wake up
    2 SLEEP = {"slept_s":60.0,"interrupted":"a person's input"}
      → infer 2 turn [task, turn, sleep, input wake up]
    > 2: => ASK_USER {"question":"which?"}
    > ps 2
    2 is blocked for person
    > input 2 the left one
    2 ASK_USER = {"answer":"the left one"}
      → infer 2 turn [task, turn, sleep, input wake up, turn, ask_user]
    "#);
}

#[test]
fn timers_fire_in_their_rhythm_and_missed_ones_once() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
        2: ok
        idle
        after 60
        2: ok
        off 200
        2: ok
        idle
        2: too early
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
      → infer 2 turn [task, turn, sys_schedule]
    > 2: ok
    > idle
    due at 2026-11-22T00:01:00.000Z
    > after 60
    2 timer t1: look (0 missed)
      → infer 2 turn [task, turn, sys_schedule, turn, timer look]
    > 2: ok
    > off 200
    2 timer t1: look (2 missed)
      → infer 2 turn [task, turn, sys_schedule, turn, timer look, turn, timer look]
    > 2: ok
    > idle
    due at 2026-11-22T00:05:00.000Z
    > 2: too early
    refused: ENOENT nothing waits for effect 19.0
    "#);
}

#[test]
fn a_webhook_has_one_owner_and_is_answered_once() {
    let told = replay(
        r#"
        spawn resident one
        spawn resident two
        2: => SYS_REGISTER_WEBHOOK {"path":"orders"}
        3: => SYS_REGISTER_WEBHOOK {"path":"orders"}
        2: ok
        3: ok
        hook orders
        2: => SYS_WEBHOOK_REPLY {"request_id":"r3","status":200,"body":"ok"} => SYS_WEBHOOK_REPLY {"request_id":"r3","status":200,"body":"ok"}
        hook orders
        signal 2 KILL
        hook orders
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident one
      → infer 2 turn [task]
    > spawn resident two
      → infer 3 turn [task]
    > 2: => SYS_REGISTER_WEBHOOK {"path":"orders"}
    2 SYS_REGISTER_WEBHOOK = {"url":"http://hooks/orders"}
      → infer 2 turn [task, turn, sys_register_webhook]
    > 3: => SYS_REGISTER_WEBHOOK {"path":"orders"}
    3 SYS_REGISTER_WEBHOOK = EEXIST `orders` belongs to process 2
      → infer 3 turn [task, turn, sys_register_webhook]
    > 2: ok
    > 3: ok
    > hook orders
    2 labelled untrusted.webhook
      → infer 2 turn [task, turn, sys_register_webhook, turn, webhook]
    > 2: => SYS_WEBHOOK_REPLY {"request_id":"r3","status":200,"body":"ok"} => SYS_WEBHOOK_REPLY {"request_id":"r3","status":200,"body":"ok"}
    2 SYS_WEBHOOK_REPLY = {}
    2 SYS_WEBHOOK_REPLY = ENOENT no open request `r3`
      → reply r3 200
      → infer 2 turn [task, turn, sys_register_webhook, turn, webhook, turn, sys_webhook_reply, sys_webhook_reply]
    > hook orders
    > signal 2 KILL
    2 exited 137: killed
      → cancel
      → reply r6 503
    > hook orders
    no route
    "#);
}

#[test]
fn a_watch_wakes_and_survives_a_restart() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_WATCH {"path":"docs"}
        2: ok
        watch 2 w1
        2: => FS_WATCH {"path":"in"} => FS_UNWATCH {"watch_id":"w1"}
        watch 2 w1
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WATCH {"path":"docs"}
    2 FS_WATCH = {"watch_id":"w1"}
      → watch 2 w1
      → infer 2 turn [task, turn, fs_watch]
    > 2: ok
    > watch 2 w1
      → infer 2 turn [task, turn, fs_watch, turn, watch]
    > 2: => FS_WATCH {"path":"in"} => FS_UNWATCH {"watch_id":"w1"}
    2 FS_WATCH = {"watch_id":"w2"}
    2 FS_UNWATCH = {}
      → watch 2 w2
      → unwatch 2 w1
      → infer 2 turn [task, turn, fs_watch, turn, watch, turn, fs_watch, fs_unwatch]
    > watch 2 w1
    refused: ENOENT process 2 has no watch `w1`
    > boot
      → watch 2 w2
      → infer 2 turn [task, turn, fs_watch, turn, watch, turn, fs_watch, fs_unwatch]
    "#);
}

#[test]
fn a_proposal_is_approved_rejected_held_or_expires() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":"1"} => FS_WRITE {"path":"asks/b","content":"2"} => FS_WRITE {"path":"holds/c","content":"3"} => FS_WRITE {"path":"asks/d","content":"4"}
        ps 2
        approve p1
        done 2 FS_WRITE
        reject p2 not now
        after 899
        after 1
        done 2 FS_WRITE
        after 86400
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":"1"} => FS_WRITE {"path":"asks/b","content":"2"} => FS_WRITE {"path":"holds/c","content":"3"} => FS_WRITE {"path":"asks/d","content":"4"}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > ps 2
    2 is blocked for approval
    > approve p1
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"asks/a","content":"1"}
    > done 2 FS_WRITE
    2 ask by role assistant: fs[1] asks/**
    2 proposal p2 pending
    > reject p2 not now
    2 FS_WRITE = EREJECTED not now
    2 hold by role assistant: fs[2] holds/**
    2 proposal p3 pending
    > after 899
    > after 1
    2 proposal p3 executed
      → call 2 FS_WRITE {"path":"holds/c","content":"3"}
    > done 2 FS_WRITE
    2 ask by role assistant: fs[1] asks/**
    2 proposal p4 pending
    > after 86400
    2 proposal p4 expired
    2 FS_WRITE = EREJECTED nobody answered in time
      → infer 2 turn [task, turn, fs_write, fs_write, fs_write, fs_write]
    "#);
}

/// A yes without `shown` went to whoever had the name by then.
#[test]
fn a_yes_that_names_nothing_is_to_the_question_as_it_was_put() {
    let told = replay_under(
        &POLICY.replace("ops: [send]}", "ops: [send], verdict: ask}"),
        r#"
        spawn resident name=bob hear
        spawn resident go
        3: => SEND_MSG {"to":"bob","content":"x"}
        counts
        signal 2 KILL
        counts
        spawn resident name=bob hear
        counts
        "#,
    );
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("p1")).collect();
    assert_snapshot!(lines.join("\n"), @r"
    p1 yes; named: yes
    p1 what is known of p1 has changed since it was put: the name `bob` is that of nobody by now; named: yes
    p1 what is known of p1 has changed since it was put: the name `bob` is that of process 4 by now; named: yes
    ");
}

/// It was told what its call brought, and not which proposal that was of.
#[test]
fn who_proposes_is_told_which_proposal_it_was() {
    let told = replay(
        r#"
        spawn resident go
        2: => PROPOSE {"action":{"name":"SEND_MSG","args":{"to_pid":2,"content":"x"}},"why":"a"} => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"a"}},"why":"b","risk":"it is gone then"} => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"a"}},"why":"again"} => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"b"}},"why":"c"}
        approve p1
        risks
        reject p2
        after 86400
        "#,
    );
    let lines: Vec<&str> =
        told.lines().filter(|line| line.starts_with("2 PROPOSE") || line.starts_with("p2")).collect();
    assert_snapshot!(lines.join("\n"), @r#"
    2 PROPOSE = {"message_id":"m12","proposal_id":"p1"}
    p2 it says itself: it is gone then
    2 PROPOSE = EREJECTED p2: no reason given
    2 PROPOSE = EREJECTED refused already, as p2: no reason given
    2 PROPOSE = EREJECTED p3: nobody answered in time
    "#);
}

#[test]
fn a_process_may_propose_what_it_could_do() {
    let told = replay(
        r#"
        spawn resident go
        2: => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"a"}},"why":"empty"} => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"secret/a"}},"why":"?"} => PROPOSE {"action":{"name":"SYS_EXIT","args":{}},"why":"?"}
        approve p1
        done 2 FS_DELETE
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"a"}},"why":"empty"} => PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"secret/a"}},"why":"?"} => PROPOSE {"action":{"name":"SYS_EXIT","args":{}},"why":"?"}
    2 proposal p1 pending
    > approve p1
    2 proposal p1 executed
      → call 2 FS_DELETE {"path":"a"}
    > done 2 FS_DELETE
    2 p2 is closed: no yes lifts role assistant: fs[3] secret/**
    2 PROPOSE = EPERM the policy denies FS_DELETE: role assistant: fs[3] secret/**
    2 PROPOSE = EINVAL at `/action/name`: SYS_EXIT cannot be proposed
      → infer 2 turn [task, turn, fs_delete, propose, propose]
    "#);
}
