//! Money: shares, days and prices, and where it is scarce who waits for whom to settle, and who is refused.

use insta::assert_snapshot;
use proptest::prelude::*;

use crate::rig::{POLICY, ledger, replay, replay_under};

/// It was refused, and the process ended with 5, though all it lacked came back a moment later.
#[test]
fn what_others_have_set_aside_is_waited_for() {
    let told = replay(
        r#"
        day 0.03
        spawn oneshot one
        spawn oneshot two
        ps 3
        2: done
        3: done too
        "#,
    );
    assert_snapshot!(told, @r#"
    > day 0.03
    > spawn oneshot one
      → infer 2 turn [task]
    > spawn oneshot two
    > ps 3
    3 is blocked for budget: others have set aside what it needs, until they have settled
    > 2: done
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: answered = "done"
      → infer 3 turn [task]
    > 3: done too
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: answered = "done too"
    "#);
}

#[test]
fn a_resident_does_not_wait_until_midnight_for_what_is_settled_now() {
    let told = replay(
        r#"
        day 0.03
        spawn oneshot one
        spawn resident two
        idle
        2 fails permanent
        ps 3
        "#,
    );
    assert_snapshot!(told, @r#"
    > day 0.03
    > spawn oneshot one
      → infer 2 turn [task]
    > spawn resident two
    > idle
    nothing is due
    > 2 fails permanent
    2 exited 1: model `m`: it failed; do this
      → infer 3 turn [task]
    > ps 3
    3 is running
    "#);
}

/// The same in a budget that two share; what the first spent stays spent.
#[test]
fn those_who_share_a_budget_wait_for_each_other() {
    let told = replay(
        r#"
        spawn resident usd=0.03 go
        spawn resident parent=2 below
        ps 3
        2: ok
        3: ok
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=0.03 go
      → infer 2 turn [task]
    > spawn resident parent=2 below
    > ps 3
    3 is blocked for budget: others have set aside what it needs, until they have settled
    > 2: ok
      → infer 3 turn [task]
    > 3: ok
    > budgets
    2 of $0.03: spent $0.0022, reserved $0, carved $0
    3 of no limit: spent $0.0011, reserved $0, carved $0
    "#);
}

/// What a killed process was asking is paid: as far as its answer came, nothing where it was not asked yet, and the most
/// that it may have been where nothing is known.
#[test]
fn what_is_given_up_is_paid() {
    let told = replay(
        r#"
        spawn resident usd=0.1 go
        spawn resident parent=2 usd=0.02 heard
        spawn resident parent=2 usd=0.02 never asked
        spawn resident parent=2 usd=0.02 silent
        signal 3 KILL
        signal 4 KILL
        signal 5 KILL
        usage 0 40
        3 fails cancelled
        usage 0 0
        4 fails cancelled
        5 fails cancelled
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.1 go
      → infer 2 turn [task]
    > spawn resident parent=2 usd=0.02 heard
      → infer 3 turn [task]
    > spawn resident parent=2 usd=0.02 never asked
      → infer 4 turn [task]
    > spawn resident parent=2 usd=0.02 silent
      → infer 5 turn [task]
    > signal 3 KILL
    3 exited 137: killed
      → cancel
    > signal 4 KILL
    4 exited 137: killed
      → cancel
    > signal 5 KILL
    5 exited 137: killed
      → cancel
    > usage 0 40
    > 3 fails cancelled
    3 charged 5680 + 40 tokens, $0.00572
    > usage 0 0
    > 4 fails cancelled
    > 5 fails cancelled
    5 charged 17040 + 1000 tokens, $0.01804: it was given up before a word of its answer came: what its server made of it is not known
    > budgets
    2 of $0.1: spent $0.02376, reserved $0.018037, carved $0
    3 of $0.02: spent $0.00572, reserved $0, carved $0, closed
    4 of $0.02: spent $0, reserved $0, carved $0, closed
    5 of $0.02: spent $0.01804, reserved $0, carved $0, closed
    ");
}

/// The same where it is learned after a restart: nobody knows what the last daemon heard of it.
#[test]
fn what_was_given_up_before_a_restart_is_paid() {
    let told = replay(
        r#"
        spawn resident usd=0.1 go
        spawn resident parent=2 usd=0.02 silent
        signal 3 KILL
        boot
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.1 go
      → infer 2 turn [task]
    > spawn resident parent=2 usd=0.02 silent
      → infer 3 turn [task]
    > signal 3 KILL
    3 exited 137: killed
      → cancel
    > boot
    3 charged 17040 + 1000 tokens, $0.01804: the daemon stopped while it was under way: what it came to is not known
      → infer 2 turn [task, end of 3]
    > budgets
    2 of $0.1: spent $0.036077, reserved $0.018184, carved $0
    3 of $0.02: spent $0.01804, reserved $0, carved $0, closed
    ");
}

/// What was under way when the daemon stopped may have been made to its end: it is paid, and what asks again is paid anew, so
/// that no kill lets a provider bill more than was granted. A model of this machine without a price bills nobody.
#[test]
fn what_was_under_way_when_the_daemon_stopped_is_paid_at_its_worst() {
    let told = replay(
        r#"
        model home
        here home
        spawn resident usd=0.1 go
        spawn resident tokens=50000 model=home go
        spawn oneshot usd=0.03 go
        boot
        budgets
        boot
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > model home
    > here home
    > spawn resident usd=0.1 go
      → infer 2 turn [task]
    > spawn resident tokens=50000 model=home go
      → infer 3 turn [task]
    > spawn oneshot usd=0.03 go
      → infer 4 turn [task]
    > boot
    4 charged 17049 + 1000 tokens, $0.018049: the daemon stopped while it was under way: what it came to is not known
    4 nearly spent: $0.011951 left of $0.03, and one inference may take $0.018049
    4 exited 5: the budget is spent: $0.011951 left, up to $0.018049 needed; run it again with a larger --budget
      → infer 3 turn [task]
      → infer 2 turn [task]
    > budgets
    2 of $0.1: spent $0.018037, reserved $0.018037, carved $0
    3 of no limit: spent $0, reserved $0, carved $0
    4 of $0.03: spent $0.018049, reserved $0, carved $0, closed
    > boot
      → infer 3 turn [task]
      → infer 2 turn [task]
    > budgets
    2 of $0.1: spent $0.036074, reserved $0.018037, carved $0
    3 of no limit: spent $0, reserved $0, carved $0
    4 of $0.03: spent $0.018049, reserved $0, carved $0, closed
    ");
}

/// A model that thinks has thought as long as it may, for all that is known, where its answer was cut off.
#[test]
fn what_is_thought_before_an_answer_is_cut_off_is_paid() {
    let told = replay(
        r#"
        model deep price=1 can=reasoning
        model plain price=1
        spawn resident usd=0.1 model=deep x
        spawn resident usd=0.1 model=plain x
        usage 2000 30
        2 cut: a word
        usage 2000 30
        3 cut: a word
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > model deep price=1 can=reasoning
    > model plain price=1
    > spawn resident usd=0.1 model=deep x
      → infer 2 turn [task]
    > spawn resident usd=0.1 model=plain x
      → infer 3 turn [task]
    > usage 2000 30
    > 2 cut: a word
      → infer 2 turn [task, turn]
    > usage 2000 30
    > 3 cut: a word
      → infer 3 turn [task, turn]
    > budgets
    2 of $0.1: spent $0.003, reserved $0.01825, carved $0
    3 of $0.1: spent $0.00203, reserved $0.01825, carved $0
    ");
}

/// A share comes back when the last inference of the process that had it is settled.
#[test]
fn a_share_that_is_about_to_come_back_is_waited_for() {
    let told = replay(
        r#"
        spawn resident usd=0.04 go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[],"budget":{"usd":0.03}} => SLEEP {"seconds":5}
        signal 3 KILL
        after 6
        ps 2
        3: late
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=0.04 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[],"budget":{"usd":0.03}} => SLEEP {"seconds":5}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > signal 3 KILL
    3 exited 137: killed
      → cancel
    > after 6
    2 SLEEP = {"slept_s":5.0}
    > ps 2
    2 is blocked for budget: others have set aside what it needs, until they have settled
    > 3: late
    3 charged 1000 + 100 tokens, $0.0011
      → infer 2 turn [task, turn, spawn_agent, sleep]
    > budgets
    2 of $0.04: spent $0.0022, reserved $0.018877, carved $0
    3 of $0.03: spent $0.0011, reserved $0, carved $0, closed
    "#);
}

/// What lives on keeps its share, so nothing is waited for.
#[test]
fn a_share_that_was_given_away_is_gone() {
    let told = replay(
        r#"
        spawn oneshot usd=0.04 go
        2: => SPAWN_AGENT {"role":"r","permissions":[],"budget":{"usd":0.03}}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot usd=0.04 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","permissions":[],"budget":{"usd":0.03}}
    2 charged 1000 + 100 tokens, $0.0011
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    2 exited 5: the budget is spent: $0.0089 left, up to $0.018586 needed; run it again with a larger --budget
    "#);
}

/// It took effect at the next midnight.
#[test]
fn more_money_for_the_day_wakes_whoever_waits_for_it() {
    let told = replay(
        r#"
        day 0.01
        spawn resident go
        ps 2
        day 0.005
        ps 2
        day 1
        ps 2
        2: ok
        day 0
        input 2 more
        off 10
        day 2
        ps 2
        "#,
    );
    assert_snapshot!(told, @"
    > day 0.01
    > spawn resident go
    2 waits until 2026-11-23T00:00:00.000Z: the day's budget of $0.01 is spent: $0.01 left, up to $0.018037 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > ps 2
    2 is blocked for budget: the day's budget of $0.01 is spent: $0.01 left, up to $0.018037 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > day 0.005
    > ps 2
    2 is blocked for budget: the day's budget of $0.005 is spent: $0.005 left, up to $0.018037 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > day 1
      → infer 2 turn [task]
    > ps 2
    2 is running
    > 2: ok
    > day 0
    > input 2 more
    2 waits until 2026-11-23T00:00:00.000Z: the day's budget of $0 is spent: $0 left, up to $0.018295 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > off 10
    > day 2
      → infer 2 turn [task, turn, input more]
    > ps 2
    2 is running
    ");
}

/// The budget of the parent was raised, and the child that draws on it stayed stopped.
#[test]
fn more_money_for_a_parent_wakes_its_children() {
    let told = replay(
        r#"
        spawn resident usd=0.0185 go
        2: => SPAWN_AGENT {"role":"r","permissions":[]} => SEND_MSG {"to_pid":3,"content":"go"}
        ps 2
        ps 3
        budget 2 usd=1
        ps 2
        ps 3
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=0.0185 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","permissions":[]} => SEND_MSG {"to_pid":3,"content":"go"}
    2 nearly spent: $0.0174 left of $0.0185, and one inference may take $0.018037
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    3 message from 2: go
    2 SEND_MSG = {"message_id":"m14"}
    2 stopped: the budget is spent: $0.011258 left, up to $0.018862 needed; `aos budget 2 --usd MORE` gives it more
      → infer 3 turn [message go], told: nearly spent: $0.0174 left of $0.0185
    > ps 2
    2 is stopped: the budget is spent: $0.011258 left, up to $0.018862 needed; `aos budget 2 --usd MORE` gives it more
    > ps 3
    3 is running
    > budget 2 usd=1
      → infer 2 turn [task, turn, spawn_agent, send_msg]
    > ps 2
    2 is running
    > ps 3
    3 is running
    "#);
}

/// An inference is charged at the price it was set aside at; the new one holds from the next on.
#[test]
fn a_price_that_rises_meanwhile_overdraws_nothing() {
    let told = replay(
        r#"
        spawn resident usd=0.02 go
        price 100000
        2: ok
        budgets
        input 2 more
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.02 go
      → infer 2 turn [task]
    > price 100000
    > 2: ok
    2 nearly spent: $0.0189 left of $0.02, and one inference may take $0.018037
    > budgets
    2 of $0.02: spent $0.0011, reserved $0, carved $0
    > input 2 more
    2 stopped: the budget is spent: $0.0189 left, up to $1829.5 needed; `aos budget 2 --usd MORE` gives it more
    ");
}

#[test]
fn a_model_that_goes_meanwhile_is_paid_all_the_same() {
    let told = replay(
        r#"
        spawn resident usd=0.02 go
        drop m
        2: ok
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.02 go
      → infer 2 turn [task]
    > drop m
    > 2: ok
    2 nearly spent: $0.0189 left of $0.02, and one inference may take $0.018037
    > budgets
    2 of $0.02: spent $0.0011, reserved $0, carved $0
    ");
}

#[test]
fn a_process_killed_in_its_inference_still_pays() {
    let told = replay(
        r#"
        spawn resident usd=1 go
        budgets
        signal 2 KILL
        budgets
        2: never seen
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=1 go
      → infer 2 turn [task]
    > budgets
    2 of $1: spent $0, reserved $0.018037, carved $0
    > signal 2 KILL
    2 exited 137: killed
      → cancel
    > budgets
    2 of $1: spent $0, reserved $0.018037, carved $0, ended
    > 2: never seen
    2 charged 1000 + 100 tokens, $0.0011
    > budgets
    2 of $1: spent $0.0011, reserved $0, carved $0, closed
    ");
}

#[test]
fn a_share_is_carved_settled_and_closed() {
    let told = replay(
        r#"
        spawn resident usd=1 go
        2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.4}} => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.9}}
        budgets
        3: done
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=1 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.4}} => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.9}}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    2 SPAWN_AGENT = EDQUOT $0.9 asked for the child, $0.5989 left
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent, spawn_agent]
    > budgets
    2 of $1: spent $0.0011, reserved $0.019015, carved $0.4
    3 of $0.4: spent $0, reserved $0.006067, carved $0
    > 3: done
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: answered = "done"
    > budgets
    2 of $1: spent $0.0022, reserved $0.019015, carved $0
    3 of $0.4: spent $0.0011, reserved $0, carved $0, closed
    "#);
}

#[test]
fn an_orphan_draws_on_the_account_it_was_born_with() {
    let told = replay(
        r#"
        spawn resident usd=1 go
        2: => SPAWN_AGENT {"role":"r"}
        2: => SYS_EXIT {}
        budgets
        input 3 hello
        3: hi
        budgets
        signal 3 KILL
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=1 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 2 turn [task, turn, spawn_agent]
    > 2: => SYS_EXIT {}
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: SYS_EXIT
    > budgets
    2 of $1: spent $0.0022, reserved $0, carved $0, ended
    3 of no limit: spent $0, reserved $0, carved $0
    > input 3 hello
      → infer 3 turn [input hello]
    > 3: hi
    > budgets
    2 of $1: spent $0.0033, reserved $0, carved $0, ended
    3 of no limit: spent $0.0011, reserved $0, carved $0
    > signal 3 KILL
    3 exited 137: killed
    > budgets
    2 of $1: spent $0.0033, reserved $0, carved $0, closed
    3 of no limit: spent $0.0011, reserved $0, carved $0, closed
    "#);
}

#[test]
fn a_day_that_is_spent_renews_at_midnight() {
    let told = replay(
        r#"
        day 0.02
        spawn resident go
        2: hi
        input 2 more
        2: hi
        input 2 more
        ps 2
        idle
        after 86400
        ps 2
        "#,
    );
    assert_snapshot!(told, @"
    > day 0.02
    > spawn resident go
      → infer 2 turn [task]
    > 2: hi
    2 nearly spent: $0.0189 left of the day's $0.02, and one inference may take $0.018037, until 2026-11-23T00:00:00.000Z
    > input 2 more
      → infer 2 turn [task, turn, input more], told: nearly spent: $0.0189 left of the day's $0.02, until 2026-11-23T00:00:00.000Z
    > 2: hi
    > input 2 more
    2 waits until 2026-11-23T00:00:00.000Z: the day's budget of $0.02 is spent: $0.0178 left, up to $0.018553 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > ps 2
    2 is blocked for budget: the day's budget of $0.02 is spent: $0.0178 left, up to $0.018553 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > idle
    due at 2026-11-23T00:00:00.000Z
    > after 86400
      → infer 2 turn [task, turn, input more, turn, input more]
    > ps 2
    2 is running
    ");
}

/// A stop in good order charged at its most what had been heard in part, which a kill of the process does not.
#[test]
fn what_a_stop_in_good_order_had_heard_of_is_paid_as_what_is_given_up() {
    let told = replay(
        r#"
        spawn resident usd=0.1 heard
        usage 0 40
        rest 2
        boot
        budgets
        2: so it is
        spawn resident usd=0.1 never sent
        usage 0 0
        rest 3
        boot
        budgets
        boot
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.1 heard
      → infer 2 turn [task]
    > usage 0 40
    > rest 2
    > boot
      → infer 2 turn [task]
    > budgets
    2 of $0.1: spent $0.00572, reserved $0.01804, carved $0
    > 2: so it is
    > spawn resident usd=0.1 never sent
      → infer 3 turn [task]
    > usage 0 0
    > rest 3
    > boot
      → infer 3 turn [task]
    > budgets
    2 of $0.1: spent $0.00682, reserved $0, carved $0
    3 of $0.1: spent $0, reserved $0.018046, carved $0
    > boot
      → infer 3 turn [task]
    > budgets
    2 of $0.1: spent $0.00682, reserved $0, carved $0
    3 of $0.1: spent $0.018046, reserved $0.018046, carved $0
    ");
}

/// A program's request likewise, with the worst of what is thought unheard.
#[test]
fn what_a_stop_had_heard_of_a_programs_request_is_paid() {
    let told = replay(
        r#"
        spawn program usd=0.1
        key 2
        ask 2 1 m
        usage 0 40
        rest 2
        boot
        budgets
        ask 2 2 m
        boot
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program usd=0.1
    > key 2
    > ask 2 1 m
    2 sets aside $0.008, 8000 tokens
      → serve 2 1 by m, at most 1000
    > usage 0 40
    > rest 2
    > boot
    > budgets
    2 of $0.1: spent $0.00104, reserved $0, carved $0
    > ask 2 2 m
    2 sets aside $0.008, 8000 tokens
      → serve 2 2 by m, at most 1000
    > boot
    > budgets
    2 of $0.1: spent $0.00904, reserved $0, carved $0
    ");
}

/// A wall came without a word before it: the agent was told with what it could not do any more.
#[test]
fn a_budget_that_is_nearly_spent_is_told_once_to_people_and_to_the_agent_while_it_is_so() {
    let told = replay(
        r#"
        price 10
        spawn resident usd=20 go
        2: => SPAWN_AGENT {"role":"r","permissions":[],"budget":{"usd":17.98}}
        2: => SEND_MSG {"to":"3","content":"do it"}
        2: => SEND_MSG {"to":"3","content":"do it now"}
        2: hi
        signal 3 KILL
        input 2 more
        2: hi
        budget 2 usd=0.27
        2: hi
        input 2 more
        "#,
    );
    assert_snapshot!(told, @r#"
    > price 10
    > spawn resident usd=20 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","permissions":[],"budget":{"usd":17.98}}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 2 turn [task, turn, spawn_agent]
    > 2: => SEND_MSG {"to":"3","content":"do it"}
    2 nearly spent: $1.998 left of $20
    2 SEND_MSG = ESRCH no live process is named `3`
      → infer 2 turn [task, turn, spawn_agent, turn, send_msg], told: nearly spent: $1.998 left of $20
    > 2: => SEND_MSG {"to":"3","content":"do it now"}
    2 SEND_MSG = ESRCH no live process is named `3`
      → infer 2 turn [task, turn, spawn_agent, turn, send_msg, turn, send_msg], told: nearly spent: $1.987 left of $20
    > 2: hi
    > signal 3 KILL
    3 exited 137: killed
      → infer 2 turn [task, turn, spawn_agent, turn, send_msg, turn, send_msg, turn, end of 3]
    > input 2 more
    > 2: hi
      → infer 2 turn [task, turn, spawn_agent, turn, send_msg, turn, send_msg, turn, end of 3, turn, input more]
    > budget 2 usd=0.27
    > 2: hi
    2 nearly spent: $0.204 left of $0.27, and one inference may take $0.20353
    > input 2 more
    2 stopped: the budget is spent: $0.204 left, up to $0.20611 needed; `aos budget 2 --usd MORE` gives it more
    "#);
}

/// Of the day everybody is told who has to pay, and with the next day it begins anew.
#[test]
fn a_day_that_is_nearly_spent_is_told_with_its_end_and_anew_on_the_next() {
    let told = replay(
        r#"
        day 0.04
        spawn resident one
        spawn resident two
        spawn resident model=free three
        usage 17000 1000
        2: hi
        usage 0 1
        3: hi
        4: hi
        input 3 more
        input 4 more
        after 86400
        input 2 more
        usage 17000 1000
        2: hi
        "#,
    );
    assert_snapshot!(told, @"
    > day 0.04
    > spawn resident one
      → infer 2 turn [task]
    > spawn resident two
      → infer 3 turn [task]
    > spawn resident model=free three
      → infer 4 turn [task]
    > usage 17000 1000
    > 2: hi
    2 nearly spent: $0.022 left of the day's $0.04, and one inference may take $0.018037, until 2026-11-23T00:00:00.000Z
    > usage 0 1
    > 3: hi
    > 4: hi
    > input 3 more
      → infer 3 turn [task, turn, input more], told: nearly spent: $0.021999 left of the day's $0.04, until 2026-11-23T00:00:00.000Z
    > input 4 more
      → infer 4 turn [task, turn, input more]
    > after 86400
    > input 2 more
      → infer 2 turn [task, turn, input more]
    > usage 17000 1000
    > 2: hi
    2 nearly spent: $0.022 left of the day's $0.04, and one inference may take $0.018295, until 2026-11-24T00:00:00.000Z
    ");
}

/// However cheap what was asked was: after this one no other can be paid.
#[test]
fn a_budget_that_bears_one_more_at_its_worst_is_nearly_spent() {
    let told = replay(
        r#"
        spawn resident usd=0.02 tokens=100000 go
        2: hi
        input 2 more
        2: hi
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident usd=0.02 tokens=100000 go
      → infer 2 turn [task]
    > 2: hi
    2 nearly spent: $0.0189 left of $0.02, and one inference may take $0.018037
    > input 2 more
      → infer 2 turn [task, turn, input more], told: nearly spent: $0.0189 left of $0.02
    > 2: hi
    ");
}

/// A child that draws on its parent is told of what is its parent's, and of what the role of those above grants.
#[test]
fn who_draws_on_another_is_told_of_what_is_the_other_ones() {
    let policy = POLICY.replace("    exec:", "    budget: {calls: 10/day}\n    exec:");
    let told = replay_under(
        &policy,
        r#"
        spawn resident calls=4 go
        spawn resident parent=2 below
        3: => FS_READ {"path":"a"} => FS_READ {"path":"b"} => FS_READ {"path":"c"}
        done 3 FS_READ {}
        done 3 FS_READ {}
        done 3 FS_READ {}
        budget 2 calls=20
        2: => FS_READ {"path":"d"} => FS_READ {"path":"e"} => FS_READ {"path":"f"} => FS_READ {"path":"g"} => FS_READ {"path":"h"} => FS_READ {"path":"i"}
        done 2 FS_READ {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident calls=4 go
      → infer 2 turn [task]
    > spawn resident parent=2 below
      → infer 3 turn [task]
    > 3: => FS_READ {"path":"a"} => FS_READ {"path":"b"} => FS_READ {"path":"c"}
    2 nearly spent: 1 call left of 4 calls
      → call 3 FS_READ {"path":"a"}
      → call 3 FS_READ {"path":"b"}
      → call 3 FS_READ {"path":"c"}
    > done 3 FS_READ {}
    > done 3 FS_READ {}
    > done 3 FS_READ {}
      → infer 3 turn [task, turn, fs_read, fs_read, fs_read], told: nearly spent: 1 call left of 4 calls
    > budget 2 calls=20
    > 2: => FS_READ {"path":"d"} => FS_READ {"path":"e"} => FS_READ {"path":"f"} => FS_READ {"path":"g"} => FS_READ {"path":"h"} => FS_READ {"path":"i"}
    2 nearly spent: 1 call left of the role's 10 calls, until 2026-11-23T00:00:00.000Z
      → call 2 FS_READ {"path":"d"}
      → call 2 FS_READ {"path":"e"}
      → call 2 FS_READ {"path":"f"}
      → call 2 FS_READ {"path":"g"}
      → call 2 FS_READ {"path":"h"}
      → call 2 FS_READ {"path":"i"}
    > done 2 FS_READ {}
    "#);
}

/// What a server says beyond what can have been is believed up to what was set aside, and said so; it was thrown away, and
/// less charged than for a server that said just what was set aside.
#[test]
fn a_server_that_says_too_much_is_paid_all_that_was_set_aside() {
    let told = replay(
        r#"
        spawn oneshot usd=0.1 go
        usage 900000 90000
        2: done
        spawn program usd=1
        key 3
        ask 3 1 m 100
        usage 20 101
        serve 1
        ask 3 2 m 100
        usage 20 100
        serve 2
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot usd=0.1 go
      → infer 2 turn [task]
    > usage 900000 90000
    > 2: done
    2 charged 17049 + 1000 tokens, $0.018049: its server reported 900000 tokens sent, where at most 17049 can have been, and 90000 tokens answered, where at most 1000 can have been
    2 exited 0: answered = "done"
    > spawn program usd=1
    > key 3
    > ask 3 1 m 100
    3 sets aside $0.0124, 12400 tokens
      → serve 3 1 by m, at most 100
    > usage 20 101
    > serve 1
    > ask 3 2 m 100
      → serve 3 2 by m, at most 100, paid ahead
    > usage 20 100
    > serve 2
    > budgets
    2 of $0.1: spent $0.018049, reserved $0, carved $0, closed
    3 of $1: spent $0.00024, reserved $0.01216, carved $0
    "#);
}

/// A process with a budget ran on a model without a known price with no word of it.
#[test]
fn a_budget_in_dollars_says_for_which_models_it_does_not_hold() {
    let told = replay(
        r#"
        model bare tier=small
        model paid tier=small price=2
        only bare,paid
        unpriced bare own
        unpriced paid own
        unpriced auto own
        unpriced bare
        day 1
        unpriced bare
        unpriced auto
        "#,
    );
    assert_snapshot!(told, @"
    > model bare tier=small
    > model paid tier=small price=2
    > only bare,paid
    > unpriced bare own
    holds not for: bare
    > unpriced paid own
    holds not for: 
    > unpriced auto own
    holds not for: bare
    > unpriced bare
    holds not for: 
    > day 1
    > unpriced bare
    holds not for: bare
    > unpriced auto
    holds not for: 
    ");
}

/// One thing that happens to a tree of processes.
fn step() -> impl Strategy<Value = String> {
    let pid = || 2u32..9;
    // Within what was set aside, beyond it, and what no model can have used.
    let tokens =
        || prop_oneof![4 => 0u64..3_000, 3 => 3_000u64..60_000, 1 => Just(9_000_000_000u64), 1 => Just(u64::MAX)];
    let cents = || 1u32..30;
    let child = "\"role\":\"r\",\"permissions\":[]";
    prop_oneof![
        3 => (cents(), any::<bool>()).prop_map(|(cents, auto)| {
            format!("spawn resident usd=0.{cents:02}{} go", if auto { " model=auto" } else { "" })
        }),
        6 => (pid(), tokens(), tokens()).prop_map(|(pid, input, output)| format!("usage {input} {output}\n{pid}: said")),
        4 => (pid(), cents(), tokens()).prop_map(move |(pid, cents, tokens)| {
            format!("usage {tokens} {tokens}\n{pid}: => SPAWN_AGENT {{{child},\"task\":\"t\",\"budget\":{{\"usd\":0.{cents:02}}}}}")
        }),
        2 => pid().prop_map(move |pid| format!("{pid}: => SPAWN_AGENT {{{child},\"task\":\"t\"}}")),
        4 => pid().prop_map(|pid| format!("input {pid} more")),
        2 => (pid(), prop_oneof!["transient", "permanent", "toolong"]).prop_map(|(pid, kind)| format!("{pid} fails {kind}")),
        1 => pid().prop_map(|pid| format!("signal {pid} KILL")),
        1 => (1u32..200).prop_map(|price| format!("price {price}")),
        1 => (1u32..100).prop_map(|seconds| format!("after {seconds}")),
        1 => Just("boot".to_owned()),
    ]
}

/// Two models: one that stands in where the other fails, and is asked beside it where that is silent.
const TWO: &str = "model m tier=small\nmodel spare tier=standard price=5\nonly m,spare\nfallback spare,m\nhedge 1000\n";

/// The same with fallback, hedging, and programs that ask by themselves.
fn step_of_two() -> impl Strategy<Value = String> {
    let pid = || 2u32..9;
    let request = || 1u32..12;
    let tokens = || prop_oneof![4 => 0u64..3_000, 2 => 3_000u64..60_000, 1 => Just(u64::MAX)];
    let model = || prop_oneof![Just("m"), Just("spare")];
    let fault = || prop_oneof![3 => Just("transient"), 1 => Just("permanent"), 1 => Just("cancelled")];
    let usage = move |line: String| tokens().prop_map(move |tokens| format!("usage {tokens} {tokens}\n{line}"));
    prop_oneof![
        12 => step(),
        6 => pid().prop_map(|pid| format!("input {pid} hello\nsilent {pid}")),
        6 => (pid(), model()).prop_map(|(pid, of)| format!("{pid}@{of}: said")).prop_flat_map(usage),
        4 => (pid(), model(), fault()).prop_map(|(pid, of, how)| format!("{pid}@{of} fails {how}")),
        3 => (1u32..30, 2u32..5).prop_map(|(cents, pid)| format!("spawn program model=auto usd=0.{cents:02}\nkey {pid}")),
        6 => (pid(), request(), prop_oneof![Just("auto"), Just("m"), Just("spare")], 1u32..3000)
            .prop_map(|(pid, request, of, most)| format!("ask {pid} {request} {of} {most}")),
        6 => request().prop_map(|request| format!("serve {request}")).prop_flat_map(usage),
        3 => (request(), fault()).prop_map(|(request, how)| format!("serve {request} fails {how}")),
        1 => (pid(), request()).prop_map(|(pid, request)| format!("hangup {pid} {request}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever a tree of processes does, whatever its models say that they used and whatever prices become meanwhile:
    /// nobody's tree spends more than was granted to it, not by a nano-dollar.
    #[test]
    fn no_tree_spends_more_than_it_was_granted(steps in proptest::collection::vec(step(), 5..60)) {
        let (told, spent) = ledger(&format!("spawn resident usd=0.20 go\n{}", steps.join("\n")));
        for (pid, (granted, spent)) in spent {
            prop_assert!(spent <= granted, "{} was granted {} and spent {}\n{}", pid, granted, spent, told);
        }
    }

    /// Neither does one whose models stand in for each other, are asked two at a time, or answer other programs.
    #[test]
    fn no_tree_spends_more_where_models_stand_in_and_programs_ask(
        steps in proptest::collection::vec(step_of_two(), 5..60),
    ) {
        let start = "spawn program model=auto usd=0.10\nkey 2\nspawn resident model=auto usd=0.20 go";
        let (told, spent) = ledger(&format!("{TWO}{start}\n{}", steps.join("\n")));
        for (pid, (granted, spent)) in spent {
            prop_assert!(spent <= granted, "{} was granted {} and spent {}\n{}", pid, granted, spent, told);
        }
    }
}

/// The property above is empty unless its steps lead there and are charged.
#[test]
fn the_steps_of_the_property_reach_what_it_speaks_of() {
    let story = "spawn program model=auto usd=0.10\nkey 2\nspawn resident model=auto usd=0.20 go\n3: said\ninput 3 hello\n\
                 silent 3\nusage 900 90\n3@spare: said\n3@m fails cancelled\nusage 900 90\nask 2 1 auto 50\nserve 1 fails transient\nserve 1";
    let (told, spent) = ledger(&format!("{TWO}{story}"));
    for part in ["3 asks spare too", "2 goes from m to spare"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(spent.values().all(|(granted, spent)| 0 < *spent && spent <= granted), "{spent:?} {told}");
}
