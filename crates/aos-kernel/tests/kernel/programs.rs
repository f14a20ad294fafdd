//! Programs outside that ask models with a key.

use insta::assert_snapshot;

use crate::rig::replay;

#[test]
fn a_request_is_served_paid_and_counted() {
    let told = replay(
        r#"
        spawn program usd=0.05 name=editor
        ask 2 1 m
        key 2
        ps 2
        ask 2 2 m 50
        ask 2 3 small
        ps 2
        serve 2
        serve 3
        serve 3
        budgets
        idle
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=0.05 name=editor
    > ask 2 1 m
    refused: EPERM program 2 has no key
    > key 2
    > ps 2
    2 is blocked for requests
    > ask 2 2 m 50
      → serve 2 2 by m, at most 50
    > ask 2 3 small
      → serve 2 3 by small, at most 1000
    > ps 2
    2 is running for requests
    > serve 2
    > serve 3
    > serve 3
    it is not served
    > budgets
    2 of $0.05: spent $0.00105, reserved $0, carved $0
    > idle
    nothing is due
    ");
}

#[test]
fn what_a_key_may_not_ask_is_refused_by_name() {
    let told = replay(
        r#"
        spawn program
        key 2 tiers=strong,nano
        ask 2 1 m
        ask 2 2 b
        ask 2 3 gone
        ask 2 4 nano
        ask 2 5 auto
        input 2 hello
        key 2 tiers=small
        ask 2 6 auto
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program
    > key 2 tiers=strong,nano
    > ask 2 1 m
      → refuse 1: EPERM the key may not use the model `m`
    > ask 2 2 b
      → serve 2 2 by b, at most 1000
    > ask 2 3 gone
      → refuse 3: ENOENT there is no model `gone`
    > ask 2 4 nano
      → serve 2 4 by wide, at most 1000
    > ask 2 5 auto
      → serve 2 5 by wide, at most 1000
    > input 2 hello
    refused: EINVAL process 2 is a program's key and reads nothing
    > key 2 tiers=small
    > ask 2 6 auto
      → serve 2 6 by m, at most 1000
    ");
}

#[test]
fn many_requests_wait_for_slots_and_agents_have_their_share() {
    let told = replay(
        r#"
        slots 2
        spawn program
        key 2
        ask 2 1 m
        ask 2 2 m
        ask 2 3 m
        ask 2 4 m
        spawn resident go
        ps 2
        hangup 2 3
        hangup 2 3
        serve 1
        3: done
        serve 4
        serve 2
        ps 2
        "#,
    );
    assert_snapshot!(told, @"
    > slots 2
    > spawn program
    > key 2
    > ask 2 1 m
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
      → serve 2 2 by m, at most 1000
    > ask 2 3 m
    > ask 2 4 m
    > spawn resident go
    > ps 2
    2 is running for requests
    > hangup 2 3
    > hangup 2 3
    refused: ENOENT request 3 does not wait
    > serve 1
      → infer 3 turn [task]
    > 3: done
      → serve 2 4 by m, at most 1000
    > serve 4
    > serve 2
    > ps 2
    2 is blocked for requests
    ");
}

#[test]
fn a_spent_budget_and_a_full_minute_refuse() {
    let told = replay(
        r#"
        spawn program usd=0.009
        key 2 rpm=3
        ask 2 1 m
        ask 2 2 m
        ask 2 3 m
        ask 2 4 m
        serve 1
        serve 2
        after 60
        ask 2 5 m
        serve 5
        ask 2 6 m
        serve 6
        ask 2 7 m
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=0.009
    > key 2 rpm=3
    > ask 2 1 m
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
      → serve 2 2 by m, at most 1000
    > ask 2 3 m
      → refuse 3: EAGAIN what is left of the budget is set aside for requests under way
    > ask 2 4 m
      → refuse 4: EAGAIN the key may ask 3 times a minute
    > serve 1
    > serve 2
    > after 60
    > ask 2 5 m
      → serve 2 5 by m, at most 1000
    > serve 5
    > ask 2 6 m
      → serve 2 6 by m, at most 1000
    > serve 6
    > ask 2 7 m
      → serve 2 7 by m, at most 1000
    ");
}

#[test]
fn a_failed_model_is_told_and_its_server_left_in_peace() {
    let told = replay(
        r#"
        spawn program
        key 2
        ask 2 1 m
        serve 1 fails transient 5000
        ask 2 2 m
        after 5
        serve 2 fails permanent
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program
    > key 2
    > ask 2 1 m
      → serve 2 1 by m, at most 1000
    > serve 1 fails transient 5000
      → refuse 1: EAGAIN model `m`: it failed
    > ask 2 2 m
    > after 5
      → serve 2 2 by m, at most 1000
    > serve 2 fails permanent
      → refuse 2: EIO model `m`: it failed
    > budgets
    2 of no limit: spent $0, reserved $0, carved $0
    ");
}

#[test]
fn a_revoked_key_asks_nothing_more_and_what_runs_is_still_paid() {
    let told = replay(
        r#"
        slots 1
        spawn program name=editor
        key 2
        ask 2 1 m
        ask 2 2 m
        signal 2 TERM
        ask 2 3 m
        serve 1
        budgets
        spawn program name=editor
        key 3
        ask 3 4 m
        signal 3 STOP
        ask 3 5 m
        signal 3 CONT
        ask 3 6 m
        "#,
    );
    assert_snapshot!(told, @"
    > slots 1
    > spawn program name=editor
    > key 2
    > ask 2 1 m
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
    > signal 2 TERM
    2 exited 143: revoked by TERM
      → refuse 2: ESRCH the key was revoked
      → cancel
    > ask 2 3 m
    refused: ESRCH the key was revoked
    > serve 1
    2 charged 1000 + 100 tokens, $0.0011
    > budgets
    2 of no limit: spent $0.0011, reserved $0, carved $0, closed
    > spawn program name=editor
    > key 3
    > ask 3 4 m
      → serve 3 4 by m, at most 1000
    > signal 3 STOP
    > ask 3 5 m
    refused: EPERM the key is paused: stopped by a signal
    > signal 3 CONT
    > ask 3 6 m
    ");
}

/// Whoever asked was cut off with the daemon. What the model's server had counted by then is not known.
#[test]
fn after_a_restart_what_was_under_way_is_paid_at_its_worst() {
    let told = replay(
        r#"
        slots 1
        spawn program usd=1
        key 2
        ask 2 1 m
        ask 2 2 m
        boot
        ps 2
        budgets
        ask 2 3 m
        serve 3
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > slots 1
    > spawn program usd=1
    > key 2
    > ask 2 1 m
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
    > boot
    > ps 2
    2 is blocked for requests
    > budgets
    2 of $1: spent $0.002, reserved $0, carved $0
    > ask 2 3 m
      → serve 2 3 by m, at most 1000
    > serve 3
    > budgets
    2 of $1: spent $0.0031, reserved $0, carved $0
    ");
}
