//! Programs outside that ask models with a key.

use insta::assert_snapshot;

use crate::rig::{POLICY, replay, replay_under};

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
    2 sets aside $0.0061, 6100 tokens
      → serve 2 2 by m, at most 50
    > ask 2 3 small
      → refuse 3: EPERM the key has a budget in dollars, and `small` has no price that it could be counted in
    > ps 2
    2 is running for requests
    > serve 2
    > serve 3
    it is not served
    > serve 3
    it is not served
    > budgets
    2 of $0.05: spent $0.00105, reserved $0.00505, carved $0
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
    2 sets aside $0.016, 16000 tokens
      → serve 2 2 by b, at most 1000
    > ask 2 3 gone
      → refuse 3: ENOENT there is no model `gone`
    > ask 2 4 nano
    2 runs on wide: the tier `nano` was asked for
      → serve 2 4 by wide, at most 1000, paid ahead
    > ask 2 5 auto
    2 runs on wide: `nano` is the lowest tier that may serve
    2 sets aside $0, 32000 tokens
      → serve 2 5 by wide, at most 1000, paid ahead
    > input 2 hello
    refused: EINVAL process 2 is a program's key and reads nothing
    > key 2 tiers=small
    > ask 2 6 auto
    2 runs on m: `small` is the lowest tier that may serve
      → serve 2 6 by m, at most 1000, paid ahead
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
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
      → serve 2 2 by m, at most 1000, paid ahead
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
    2 sets aside $0.032, 32000 tokens
      → serve 2 4 by m, at most 1000, paid ahead
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
    2 nearly spent: $0.0046 left of $0.009, and one inference may take $0.004
    > ask 2 7 m
      → serve 2 7 by m, at most 1000
    ");
}

/// A key whose budget was spent, or that named no model there is, filled the disk with its refusals.
/// By the time that it has a slot there is enough.
#[test]
fn what_would_wait_and_be_served_is_not_refused_however_much_was() {
    let told = replay(
        r#"
        slots 1
        spawn program usd=0.0065 name=editor
        key 2
        times 11 ask 2 1 gone
        ask 2 2 m
        ask 2 3 m
        ask 2 4 m
        serve 2
        serve 3
        "#,
    );
    let told = told.split_once("> ask 2 2 m").unwrap().1;
    assert_snapshot!(told, @"
      → serve 2 2 by m, at most 1000
    > ask 2 3 m
    > ask 2 4 m
    > serve 2
      → serve 2 3 by m, at most 1000
    > serve 3
    2 nearly spent: $0.0043 left of $0.0065, and one inference may take $0.004
      → serve 2 4 by m, at most 1000
    ");
}

/// Nobody heard how it ended: a server that hangs is not up again because the daemon was.
#[test]
fn a_request_that_a_stop_cuts_off_says_nothing_of_its_model() {
    let told = replay(
        r#"
        only m
        spawn program usd=1 name=editor
        key 2
        ask 2 1 m
        serve 1 fails transient
        ask 2 2 m
        serve 2 fails transient
        ask 2 3 m
        serve 3 fails transient
        after 16
        ask 2 4 m
        boot
        ask 2 5 m
        serve 5
        "#,
    );
    assert_snapshot!(told, @"
    > only m
    > spawn program usd=1 name=editor
    > key 2
    > ask 2 1 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > serve 1 fails transient
      → refuse 1: EIO model `m`: it failed
    > ask 2 2 m
      → serve 2 2 by m, at most 1000, paid ahead
    > serve 2 fails transient
      → refuse 2: EIO model `m`: it failed
    > ask 2 3 m
      → serve 2 3 by m, at most 1000, paid ahead
    > serve 3 fails transient
    2 circuit m for program 2 Open until 2026-11-22T00:00:15.000Z it failed
      → refuse 3: EIO model `m`: it failed
    > after 16
    > ask 2 4 m
    2 circuit m for program 2 HalfOpen
      → serve 2 4 by m, at most 1000, paid ahead
    > boot
    > ask 2 5 m
    2 sets aside $0.016, 16000 tokens
    2 circuit m for program 2 HalfOpen
      → serve 2 5 by m, at most 1000
    > serve 5
    2 circuit m for program 2 Closed
    ");
}

#[test]
fn refusals_beyond_so_many_a_minute_leave_no_entry_and_what_can_be_served_is() {
    let told = replay(
        r#"
        spawn program usd=0.0065 tokens=1000000 name=editor
        key 2
        times 12 ask 2 1 gone
        ask 2 2 m
        ask 2 3 m
        serve 2
        ask 2 4 m 9000
        ask 2 5 auto
        after 59
        ask 2 6 m
        after 1
        ask 2 7 m
        boot
        times 10 ask 2 8 m
        ask 2 9 gone
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=0.0065 tokens=1000000 name=editor
    > key 2
    > times 12 ask 2 1 gone
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
      → refuse 1: ENOENT there is no model `gone`
    refused: ENOENT there is no model `gone`
    refused: ENOENT there is no model `gone`
    > ask 2 2 m
      → serve 2 2 by m, at most 1000
    > ask 2 3 m
    refused: EAGAIN what is left of the budget is set aside for requests under way
    > serve 2
    > ask 2 4 m 9000
      → serve 2 4 by m, at most 1000
    > ask 2 5 auto
    2 runs on wide: `nano` is the lowest tier that may serve
    2 sets aside $0, 16000 tokens
      → serve 2 5 by wide, at most 1000
    > after 59
    > ask 2 6 m
      → refuse 6: EAGAIN what is left of the budget is set aside for requests under way
    > after 1
    > ask 2 7 m
      → refuse 7: EAGAIN what is left of the budget is set aside for requests under way
    > boot
    2 nearly spent: $0.0014 left of $0.0065, and one inference may take $0.004
    > times 10 ask 2 8 m
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
      → refuse 8: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
    refused: EDQUOT the budget is spent: $0.0014 left, up to $0.004 needed
    > ask 2 9 gone
    refused: ENOENT there is no model `gone`
    ");
}

#[test]
fn a_full_minute_is_journaled_so_many_times_and_begins_anew_on_time() {
    let told = replay(
        r#"
        spawn program
        key 2 rpm=1
        ask 2 1 m
        after 30
        times 12 ask 2 2 m
        after 29
        ask 2 3 m
        after 1
        ask 2 4 m
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program
    > key 2 rpm=1
    > ask 2 1 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > after 30
    > times 12 ask 2 2 m
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
      → refuse 2: EAGAIN the key may ask 1 times a minute
    refused: EAGAIN the key may ask 1 times a minute
    refused: EAGAIN the key may ask 1 times a minute
    > after 29
    > ask 2 3 m
    refused: EAGAIN the key may ask 1 times a minute
    > after 1
    > ask 2 4 m
      → serve 2 4 by m, at most 1000, paid ahead
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
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > serve 1 fails transient 5000
      → refuse 1: EAGAIN model `m`: it failed
    > ask 2 2 m
    > after 5
      → serve 2 2 by m, at most 1000, paid ahead
    > serve 2 fails permanent
      → refuse 2: EIO model `m`: it failed
    > budgets
    2 of no limit: spent $0, reserved $0.016, carved $0
    ");
}

#[test]
fn a_refused_request_is_asked_of_no_other_model_and_closes_none() {
    let told = replay(
        r#"
        model tiny tier=nano price=0.1
        model next tier=small price=1
        only tiny,next
        spawn program model=auto
        key 2
        ask 2 1 auto
        serve 1 fails refused
        ask 2 2 auto
        serve 2 fails refused
        ask 2 3 auto
        serve 3 fails refused
        ask 2 4 auto
        "#,
    );
    let told = told.split_once("> serve 1 fails refused\n").unwrap().1;
    assert_snapshot!(told, @"
      → refuse 1: EINVAL model `tiny`: it failed
    > ask 2 2 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
      → serve 2 2 by tiny, at most 1000, paid ahead
    > serve 2 fails refused
      → refuse 2: EINVAL model `tiny`: it failed
    > ask 2 3 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
      → serve 2 3 by tiny, at most 1000, paid ahead
    > serve 3 fails refused
      → refuse 3: EINVAL model `tiny`: it failed
    > ask 2 4 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
      → serve 2 4 by tiny, at most 1000, paid ahead
    ");
}

/// Three requests that no server answers as they were asked closed its address to everybody: the owner's agents went to a
/// dearer tier.
#[test]
fn a_server_that_cannot_be_reached_is_down_for_all_after_three_requests_of_anybody() {
    let told = replay(
        r#"
        model tiny tier=nano price=0.1
        model next tier=small price=1
        only tiny,next
        spawn program model=auto
        key 2
        spawn program model=auto
        key 3
        ask 2 1 tiny
        serve 1 fails unreachable
        ask 3 2 tiny
        serve 2 fails unreachable
        ask 2 3 tiny
        serve 3 fails unreachable
        ask 3 4 auto
        spawn resident model=auto go
        after 15
        ask 3 5 tiny
        serve 5 fails unreachable
        ask 2 6 auto
        ask 2 7 tiny
        serve 7
        ask 2 8 auto
        "#,
    );
    let told = told.split_once("> ask 2 3 tiny\n").unwrap().1;
    assert_snapshot!(told, @"
      → serve 2 3 by tiny, at most 1000, paid ahead
    > serve 3 fails unreachable
    2 circuit tiny Open until 2026-11-22T00:00:15.000Z it failed
      → refuse 3: EIO model `tiny`: it failed
    > ask 3 4 auto
    3 runs on next: the next tier up, `small`; `tiny` is down, tried again at 2026-11-22T00:00:15.000Z
    3 sets aside $0.032, 32000 tokens
      → serve 3 4 by next, at most 1000
    > spawn resident model=auto go
    4 runs on next: the next tier up, `small`; `tiny` is down, tried again at 2026-11-22T00:00:15.000Z
      → infer 4 turn [task]
    > after 15
    > ask 3 5 tiny
      → serve 3 5 by tiny, at most 1000, paid ahead
    > serve 5 fails unreachable
    3 circuit tiny Open until 2026-11-22T00:00:45.000Z it failed
      → refuse 5: EIO model `tiny`: it failed
    > ask 2 6 auto
    2 runs on next: the next tier up, `small`; `tiny` is down, tried again at 2026-11-22T00:00:45.000Z
    2 sets aside $0.016, 16000 tokens
      → serve 2 6 by next, at most 1000
    > ask 2 7 tiny
      → serve 2 7 by tiny, at most 1000, paid ahead
    > serve 7
    2 circuit tiny Closed
    > ask 2 8 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
    2 sets aside $0.0032, 32000 tokens
      → serve 2 8 by tiny, at most 1000, paid ahead
    ");
}

#[test]
fn what_fails_a_program_closes_its_model_to_nobody_else() {
    let told = replay(
        r#"
        model tiny tier=nano price=0.1
        model next tier=small price=1
        only tiny,next
        spawn program model=auto
        key 2
        spawn program model=auto
        key 3
        ask 2 1 tiny
        serve 1 fails permanent
        ask 2 2 tiny
        serve 2 fails transient
        ask 2 3 tiny
        serve 3 fails transient
        ask 2 4 auto
        ask 3 5 auto
        spawn resident model=auto go
        after 15
        ask 2 6 auto
        ask 2 7 auto
        serve 6
        ask 2 8 auto
        "#,
    );
    let told = told.split_once("> ask 2 3 tiny\n").unwrap().1;
    assert_snapshot!(told, @"
      → serve 2 3 by tiny, at most 1000, paid ahead
    > serve 3 fails transient
    2 circuit tiny for program 2 Open until 2026-11-22T00:00:15.000Z it failed
      → refuse 3: EIO model `tiny`: it failed
    > ask 2 4 auto
    2 runs on next: the next tier up, `small`; `tiny` failed the last requests of this key, tried again at 2026-11-22T00:00:15.000Z
    2 sets aside $0.032, 32000 tokens
      → serve 2 4 by next, at most 1000
    > ask 3 5 auto
    3 runs on tiny: `nano` is the lowest tier that may serve
    3 sets aside $0.0016, 16000 tokens
      → serve 3 5 by tiny, at most 1000
    > spawn resident model=auto go
    4 runs on tiny: `nano` is the lowest tier that may serve
      → infer 4 turn [task]
    > after 15
    > ask 2 6 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
    2 circuit tiny for program 2 HalfOpen
      → serve 2 6 by tiny, at most 1000, paid ahead
    > ask 2 7 auto
    2 runs on next: the next tier up, `small`; `tiny` failed the last requests of this key, and is being tried again
      → serve 2 7 by next, at most 1000, paid ahead
    > serve 6
    2 circuit tiny for program 2 Closed
    > ask 2 8 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
      → serve 2 8 by tiny, at most 1000, paid ahead
    ");
}

/// What a server began for a program that has hung up is on the bill, whoever hears it.
#[test]
fn a_request_that_nobody_heard_the_end_of_is_paid() {
    let spent = |end: &str| {
        let told = replay(&format!("\n spawn program\n key 2\n ask 2 1 m\n serve 1 {end}\n rest\n budgets\n"));
        told.lines().rev().find(|line| line.starts_with("2 of")).unwrap().to_owned()
    };
    let (none, all) = (spent("fails transient"), spent("fails cancelled"));
    assert!(none.contains("spent $0,") && all.contains("spent $0.004,"), "{none}\n{all}");
    assert!(spent("broken").contains("spent $0.0011,"), "what came");
}

/// What it thought until then was free, unless the configuration said of the model that it thinks.
#[test]
fn who_asks_for_thoughts_and_hangs_up_pays_for_the_longest_answer() {
    let told = replay("\n spawn program\n key 2\n ask 2 1 m 1000 reasoning\n serve 1 broken\n rest\n budgets\n");
    assert!(told.contains("2 of no limit: spent $0.002,"), "{told}");
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
    2 sets aside $0.016, 16000 tokens
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
    3 sets aside $0.016, 16000 tokens
      → serve 3 4 by m, at most 1000
    > signal 3 STOP
    > ask 3 5 m
    refused: EPERM the key is paused: stopped by a signal
    > signal 3 CONT
    > ask 3 6 m
    ");
}

/// Two requests wait for a slot when the policy changes: the model of one is forbidden by then, so it is refused when its
/// turn comes, nothing is set aside for it, and the model is not asked. The other one's model is still allowed.
#[test]
fn a_request_that_waits_is_refused_where_the_policy_forbids_its_model_meanwhile() {
    let policy = POLICY.replace("    exec:", "    models: {tiers: [small, nano]}\n    exec:");
    let told = replay_under(
        &policy,
        r#"
        slots 1
        model other limit=1 tier=nano
        spawn program
        key 2
        ask 2 1 m
        ask 2 2 other
        ask 2 3 m
        ask 2 4 other
        policy tiers: [small, nano] => tiers: [nano]
        serve 1
        serve 2
        serve 4
        ask 2 5 m
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > slots 1
    > model other limit=1 tier=nano
    > spawn program
    > key 2
    > ask 2 1 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > ask 2 2 other
      → serve 2 2 by other, at most 1000, paid ahead
    > ask 2 3 m
    > ask 2 4 other
    > policy tiers: [small, nano] => tiers: [nano]
      → another policy
    > serve 1
      → refuse 3: EPERM the policy was changed and forbids `m` by now
    > serve 2
    2 sets aside $0, 16000 tokens
      → serve 2 4 by other, at most 1000
    > serve 4
    > ask 2 5 m
      → refuse 5: EPERM the key may not use the model `m`
    > budgets
    2 of no limit: spent $0.0011, reserved $0, carved $0
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
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
    > boot
    > ps 2
    2 is blocked for requests
    > budgets
    2 of $1: spent $0.016, reserved $0, carved $0
    > ask 2 3 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 3 by m, at most 1000
    > serve 3
    > budgets
    2 of $1: spent $0.0171, reserved $0.0149, carved $0
    ");
}

/// The first request waits for the disk, those after it find their money set aside already.
#[test]
fn requests_are_paid_ahead_and_a_rest_gives_back_what_is_left() {
    let told = replay(
        r#"
        spawn program usd=1
        key 2
        ask 2 1 m
        ask 2 2 m
        ask 2 3 m
        serve 1
        serve 2
        serve 3
        ask 2 4 m
        budgets
        rest
        budgets
        serve 4
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=1
    > key 2
    > ask 2 1 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > ask 2 2 m
      → serve 2 2 by m, at most 1000, paid ahead
    > ask 2 3 m
    2 sets aside $0.032, 32000 tokens
      → serve 2 3 by m, at most 1000, paid ahead
    > serve 1
    > serve 2
    > serve 3
    > ask 2 4 m
      → serve 2 4 by m, at most 1000, paid ahead
    > budgets
    2 of $1: spent $0.0033, reserved $0.0447, carved $0
    > rest
    > budgets
    2 of $1: spent $0.0033, reserved $0.004, carved $0
    > serve 4
    > budgets
    2 of $1: spent $0.0044, reserved $0, carved $0
    ");
}

/// What is set aside ahead stands in nobody's way: not in that of a lower budget, nor of an agent, nor of a larger request.
#[test]
fn what_is_set_aside_ahead_is_called_in_when_it_is_wanted() {
    let told = replay(
        r#"
        day 0.1
        spawn program usd=1
        key 2
        ask 2 1 m
        serve 1
        budgets
        budget 2 usd=0.002
        budgets
        ask 2 2 m
        serve 2
        ask 2 3 m
        signal 2 KILL
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > day 0.1
    > spawn program usd=1
    > key 2
    > ask 2 1 m
    2 sets aside $0.008, 8000 tokens
      → serve 2 1 by m, at most 1000
    > serve 1
    > budgets
    2 of $1: spent $0.0011, reserved $0.0069, carved $0
    > budget 2 usd=0.002
    > budgets
    2 of $0.002: spent $0.0011, reserved $0, carved $0
    > ask 2 2 m
      → refuse 2: EDQUOT the budget is spent: $0.0009 left, up to $0.004 needed
    > serve 2
    it is not served
    > ask 2 3 m
      → refuse 3: EDQUOT the budget is spent: $0.0009 left, up to $0.004 needed
    > signal 2 KILL
    2 exited 137: killed
    > budgets
    2 of $0.002: spent $0.0011, reserved $0, carved $0, closed
    ");
}

/// With the last second's requests not on disk, all that was set aside for them counts as spent.
#[test]
fn after_a_restart_what_was_set_aside_ahead_is_spent() {
    let told = replay(
        r#"
        spawn program usd=1
        key 2
        ask 2 1 m
        serve 1
        budgets
        boot
        budgets
        ask 2 2 m
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=1
    > key 2
    > ask 2 1 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 1 by m, at most 1000
    > serve 1
    > budgets
    2 of $1: spent $0.0011, reserved $0.0149, carved $0
    > boot
    > budgets
    2 of $1: spent $0.016, reserved $0, carved $0
    > ask 2 2 m
    2 sets aside $0.016, 16000 tokens
      → serve 2 2 by m, at most 1000
    ");
}

#[test]
fn a_request_goes_only_to_models_that_can_do_what_it_needs() {
    let told = replay(
        r#"
        model tiny tier=nano price=0.1
        model thinks tier=small price=1 can=reasoning
        model shaped tier=strong price=3 can=json_schema,reasoning at=http://far
        only tiny,thinks,shaped
        spawn program model=auto
        key 2
        ask 2 1 auto
        ask 2 2 auto reasoning
        ask 2 3 auto json_schema reasoning tools
        ask 2 4 nano json_schema
        ask 2 5 tiny json_schema
        ask 2 6 auto images
        fallback tiny,shaped
        ask 2 7 thinks reasoning
        serve 7 fails transient
        serve 7 fails transient
        "#,
    );
    let told = told.split_once("> key 2\n").unwrap().1;
    assert_snapshot!(told, @"
    > ask 2 1 auto
    2 runs on tiny: `nano` is the lowest tier that may serve
    2 sets aside $0.0016, 16000 tokens
      → serve 2 1 by tiny, at most 1000
    > ask 2 2 auto reasoning
    2 runs on thinks: `small` is the lowest tier that may serve
    2 sets aside $0.032, 32000 tokens
      → serve 2 2 by thinks, at most 1000
    > ask 2 3 auto json_schema reasoning tools
    2 runs on shaped: `strong` is the lowest tier that may serve
    2 sets aside $0.192, 64000 tokens
      → serve 2 3 by shaped, at most 1000, paid ahead
    > ask 2 4 nano json_schema
    2 runs on shaped: the nearest to the tier `nano`, which was asked for
      → serve 2 4 by shaped, at most 1000, paid ahead
    > ask 2 5 tiny json_schema
      → serve 2 5 by tiny, at most 1000, paid ahead
    > ask 2 6 auto images
      → refuse 6: EINVAL no model may serve the request (`shaped`: it is not said to have `images` (`images = true`); `thinks`: it is not said to have `images` (`images = true`); `tiny`: it is not said to have `images` (`images = true`))
    > fallback tiny,shaped
    > ask 2 7 thinks reasoning
    2 sets aside $0.016, 16000 tokens
      → serve 2 7 by thinks, at most 1000
    > serve 7 fails transient
    2 goes from thinks to shaped: it is next in `fallback` of aos.toml; `thinks` has just failed
    2 sets aside $0.096, 32000 tokens
      → serve 2 7 by shaped, at most 1000, paid ahead
    > serve 7 fails transient
      → refuse 7: EIO model `shaped`: it failed
    ");
}

/// It was told that no model may serve its key, and to use those that it may.
#[test]
fn a_request_that_no_window_holds_is_refused_with_how_much_there_is() {
    let told = replay(
        r#"
        model tiny tier=nano price=0.1 window=1500
        model small tier=small price=1 window=1900
        only tiny,small
        spawn program model=auto
        key 2
        ask 2 1 auto
        ask 2 2 tiny
        "#,
    );
    let refused = "→ refuse 1: EINVAL no model may serve the request (`small`: 1000 tokens are sent in any case, and its window has room for 900;";
    assert!(told.contains(refused), "{told}");
    assert!(told.contains("→ serve 2 2 by tiny"), "whoever names it is asked: {told}");
}
