//! Hedging: a second model beside a silent one, where a person waits.

use aos_abi::Body;
use insta::assert_snapshot;

use crate::labels::LABELS;
use crate::rig::{journal, replay, replay_under};

/// Two models at two servers, and a second one is allowed after two seconds.
const POOL: &str = r#"
    model slow tier=small price=1 at=http://slow
    model quick tier=standard price=2 at=http://quick limit=1
    only slow,quick
    hedge 2000
"#;

/// What a script comes to in that pool.
fn told(script: &str) -> String {
    let told = replay(&format!("{POOL}{script}"));
    told.split_once("> hedge 2000\n").unwrap().1.to_owned()
}

#[test]
fn the_first_answer_counts_and_the_other_is_given_up_and_paid() {
    let told = told(
        r#"
        spawn resident model=auto usd=1
        input 2 hello
        silent 2
        budgets
        silent 2
        2@quick: I am here.
        2@slow fails cancelled
        budgets
        input 2 and now?
        silent 2
        2@slow: I was only slow.
        2@quick: Too late, and paid as it says.
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident model=auto usd=1
    > input 2 hello
    2 runs on slow: `small` is the lowest tier that may serve
      → infer 2 turn [input hello]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello]
    > budgets
    2 of $1: spent $0, reserved $0.054228, carved $0
    > silent 2
    refused: ENOENT effect 11.0 is not waited for, or not for the first time
    > 2@quick: I am here.
      → cancel
    > 2@slow fails cancelled
    > budgets
    2 of $1: spent $0.020276, reserved $0, carved $0
    > input 2 and now?
      → infer 2 turn [input hello, turn, input and now?]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello, turn, input and now?]
    > 2@slow: I was only slow.
      → cancel
    > 2@quick: Too late, and paid as it says.
    > budgets
    2 of $1: spent $0.023576, reserved $0, carved $0
    ");
}

/// A model of this machine that is silent is no reason to show another one what must not leave it.
#[test]
fn what_the_policy_keeps_here_is_asked_of_no_second_model_elsewhere() {
    for (here, hedged) in [("here slow", false), ("here slow\nhere quick", true)] {
        let told = replay_under(
            LABELS,
            &format!(
                r#"{POOL}{here}
                spawn resident model=auto
                input 2 hello
                2: => NET_FETCH {{"url":"https://vault.example.com/"}}
                done 2 NET_FETCH
                2: ok
                input 2 and now?
                silent 2
                "#
            ),
        );
        assert!(told.contains("2 labelled untrusted.web, secret"), "{told}");
        assert_eq!(told.contains("2 asks quick too"), hedged, "{told}");
    }
}

/// What the person said had entered the window when the turn was put off, and the turn was taken for any other.
#[test]
fn a_person_who_waits_for_the_money_is_still_waited_for() {
    let told = told(
        r#"
        spawn resident model=auto usd=0.001
        input 2 hello
        budget 2 usd=1
        silent 2
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=auto usd=0.001
    > input 2 hello
    2 runs on slow: `small` is the lowest tier that may serve
    2 stopped: the budget is spent: $0.001 left, up to $0.018076 needed; `aos budget 2 --usd MORE` gives it more
    > budget 2 usd=1
      → infer 2 turn [input hello]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello]
    "#);
}

#[test]
fn one_that_fails_leaves_the_turn_to_the_other() {
    let told = told(
        r#"
        spawn resident model=auto
        input 2 hello
        silent 2
        2@slow fails transient
        2@quick fails transient
        ps 2
        after 1
        2@slow: At last.
        input 2 again
        silent 2
        2@quick fails permanent
        2@slow: I am here.
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident model=auto
    > input 2 hello
    2 runs on slow: `small` is the lowest tier that may serve
      → infer 2 turn [input hello]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello]
    > 2@slow fails transient
    > 2@quick fails transient
    > ps 2
    2 is blocked for model
    > after 1
      → infer 2 turn [input hello]
    > 2@slow: At last.
    > input 2 again
      → infer 2 turn [input hello, turn, input again]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello, turn, input again]
    > 2@quick fails permanent
    > 2@slow: I am here.
    ");
}

#[test]
fn nobody_is_asked_beside_one_for_which_no_person_waits_or_where_it_costs_another_a_turn() {
    let told = told(
        r#"
        spawn resident model=auto go
        silent 2
        2: => SLEEP {"seconds":60}
        input 2 hello
        spawn resident model=quick one
        spawn resident model=quick two
        silent 2
        3: done
        4: done
        silent 2
        2: done
        budget 2 usd=0.03
        input 2 more
        silent 2
        2: done
        hedge never
        input 2 and more
        silent 2
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=auto go
    2 runs on slow: `small` is the lowest tier that may serve
      → infer 2 turn [task]
    > silent 2
    refused: ENOENT effect 7.0 is not waited for, or not for the first time
    > 2: => SLEEP {"seconds":60}
    > input 2 hello
    2 SLEEP = {"slept_s":0.0,"interrupted":"a person's input"}
      → infer 2 turn [task, turn, sleep, input hello]
    > spawn resident model=quick one
      → infer 3 turn [task]
    > spawn resident model=quick two
    > silent 2
    > 3: done
      → infer 4 turn [task]
    > 4: done
    > silent 2
    refused: ENOENT effect 14.0 is not waited for, or not for the first time
    > 2: done
    > budget 2 usd=0.03
    > input 2 more
      → infer 2 turn [task, turn, sleep, input hello, turn, input more]
    > silent 2
    > 2: done
    > hedge never
    > input 2 and more
      → infer 2 turn [task, turn, sleep, input hello, turn, input more, turn, input and more]
    > silent 2
    refused: ENOENT effect 35.0 is not waited for, or not for the first time
    "#);
}

#[test]
fn a_killed_process_gives_both_up_and_a_restart_goes_on_with_one() {
    let told = told(
        r#"
        spawn resident model=auto usd=1
        input 2 hello
        silent 2
        signal 2 KILL
        2@quick fails cancelled
        2@slow fails cancelled
        budgets
        spawn resident model=auto usd=1
        input 3 hello
        silent 3
        boot
        budgets
        3@slow: I am here.
        budgets
        spawn resident model=auto usd=1
        input 4 hello
        silent 4
        4@slow fails transient
        boot
        4@quick: Here too.
        budgets
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident model=auto usd=1
    > input 2 hello
    2 runs on slow: `small` is the lowest tier that may serve
      → infer 2 turn [input hello]
    > silent 2
    2 asks quick too: the next tier up, `standard`
      → infer 2 turn [input hello]
    > signal 2 KILL
    2 exited 137: killed
      → cancel
      → cancel
    > 2@quick fails cancelled
    2 charged 17076 + 1000 tokens, $0.036152: it was given up before a word of its answer came: what its server made of it is not known
    > 2@slow fails cancelled
    2 charged 17076 + 1000 tokens, $0.018076: it was given up before a word of its answer came: what its server made of it is not known
    > budgets
    2 of $1: spent $0.054228, reserved $0, carved $0, closed
    > spawn resident model=auto usd=1
    > input 3 hello
    3 runs on slow: `small` is the lowest tier that may serve
      → infer 3 turn [input hello]
    > silent 3
    3 asks quick too: the next tier up, `standard`
      → infer 3 turn [input hello]
    > boot
      → infer 3 turn [input hello]
    > budgets
    2 of $1: spent $0.054228, reserved $0, carved $0, closed
    3 of $1: spent $0.054228, reserved $0.018076, carved $0
    > 3@slow: I am here.
    > budgets
    2 of $1: spent $0.054228, reserved $0, carved $0, closed
    3 of $1: spent $0.055328, reserved $0, carved $0
    > spawn resident model=auto usd=1
    > input 4 hello
    4 runs on slow: `small` is the lowest tier that may serve
      → infer 4 turn [input hello]
    > silent 4
    4 asks quick too: the next tier up, `standard`
      → infer 4 turn [input hello]
    > 4@slow fails transient
    > boot
    4 goes from slow to quick: the next tier up, `standard`; `slow` has just failed
      → infer 4 turn [input hello]
    > 4@quick: Here too.
    > budgets
    2 of $1: spent $0.054228, reserved $0, carved $0, closed
    3 of $1: spent $0.055328, reserved $0, carved $0
    4 of $1: spent $0.038352, reserved $0, carved $0
    ");
}

/// What was charged at its most was charged without a word why, where it was not the one that its process waited for.
#[test]
fn whoever_is_charged_at_the_most_is_told_why() {
    let script = r#"
        spawn resident model=auto usd=1
        input 2 hello
        silent 2
        boot
        2@slow: I am here.
        input 2 and now?
        silent 2
        2@slow: I was only slow.
        2@quick fails cancelled
    "#;
    let charged = journal(&format!("{POOL}{script}"));
    let charged = charged.iter().filter_map(|entry| match &entry.body {
        Body::Charged { model, usage, why, .. } => {
            Some((model.as_str(), usage.estimated, why.as_deref().unwrap_or("-")))
        }
        _ => None,
    });
    let stopped = "the daemon stopped while it was under way: what it came to is not known";
    let given_up = "it was given up before a word of its answer came: what its server made of it is not known";
    let wanted = [
        ("quick", true, stopped),
        ("slow", true, stopped),
        ("slow", false, "-"),
        ("slow", false, "-"),
        ("quick", true, given_up),
    ];
    assert_eq!(charged.collect::<Vec<_>>(), wanted);
}
