//! A server that may answer again is tried by one request, whoever waits for it.

use insta::assert_snapshot;

use crate::rig::replay;

/// The server of `big` was left alone for long enough, and its two slots are taken by answers that it began before.
const MAY_ANSWER: &str = r#"
    model tiny tier=nano at=http://here
    model big tier=frontier at=https://far
    only tiny,big
    fallback tiny
    times 5 spawn resident model=big go
    2 fails transient
    3 fails transient
    4 fails transient
    2: one
    3: two
    4: three
    model big limit=2
    after 15
"#;

/// What a script comes to after that.
fn then(script: &str) -> String {
    let told = replay(&format!("{MAY_ANSWER}{script}"));
    told.split_once("> after 15\n").unwrap().1.to_owned()
}

#[test]
fn of_agents_that_wait_for_a_server_one_tries_it_and_the_others_are_served_elsewhere() {
    // Whoever stood in the queue when the first of them tried the server went there as well.
    let told = then(
        r#"
        input 3 more
        input 4 more
        5 fails transient
        6 fails transient
        3: it answers again
        input 2 more
        "#,
    );
    assert_snapshot!(told, @"
    > input 3 more
    3 goes from tiny to big: it was asked for by name
    > input 4 more
    4 goes from tiny to big: it was asked for by name
    > 5 fails transient
    5 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed
    3 circuit https://far HalfOpen
      → infer 3 turn [task, turn, input more]
      → infer 5 turn [task]
    > 6 fails transient
    6 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed and is being tried again
    4 goes from big to tiny: it is next in `fallback` of aos.toml; `big` is being tried again
      → infer 4 turn [task, turn, input more]
      → infer 6 turn [task]
    > 3: it answers again
    3 circuit https://far Closed
    > input 2 more
    2 goes from tiny to big: it was asked for by name
      → infer 2 turn [task, turn, input more]
    ");
}

#[test]
fn a_program_that_waits_for_a_server_that_is_being_tried_is_served_by_another() {
    // It did not look again at who was up once it had its turn.
    let told = then(
        r#"
        spawn program model=big
        key 7
        input 3 more
        ask 7 1 big
        5 fails transient
        6 fails transient
        "#,
    );
    assert_snapshot!(told, @"
    > spawn program model=big
    > key 7
    > input 3 more
    3 goes from tiny to big: it was asked for by name
    > ask 7 1 big
    > 5 fails transient
    5 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed
    3 circuit https://far HalfOpen
      → infer 3 turn [task, turn, input more]
      → infer 5 turn [task]
    > 6 fails transient
    6 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed and is being tried again
    7 runs on tiny: it is next in `fallback` of aos.toml; `big` is being tried again
    7 sets aside $0, 16000 tokens
      → infer 6 turn [task]
      → serve 7 1 by tiny, at most 1000
    ");
}

#[test]
fn who_waits_for_a_server_that_goes_down_is_served_by_another() {
    let told = replay(
        r#"
        model tiny tier=nano at=http://here
        model big tier=frontier at=https://far limit=1
        only tiny,big
        fallback tiny
        times 4 spawn resident model=big go
        spawn program model=big
        key 6
        ask 6 1 big
        2 fails transient
        3 fails transient
        4 fails transient
        "#,
    );
    assert_snapshot!(told, @"
    > model tiny tier=nano at=http://here
    > model big tier=frontier at=https://far limit=1
    > only tiny,big
    > fallback tiny
    > times 4 spawn resident model=big go
      → infer 2 turn [task]
    > spawn program model=big
    > key 6
    > ask 6 1 big
    > 2 fails transient
    2 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed
      → infer 3 turn [task]
      → infer 2 turn [task]
    > 3 fails transient
    3 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed
      → infer 4 turn [task]
      → infer 3 turn [task]
    > 4 fails transient
    4 circuit https://far Open until 2026-11-22T00:00:15.000Z it failed
    5 goes from big to tiny: it is next in `fallback` of aos.toml; `big` is down, tried again at 2026-11-22T00:00:15.000Z
    4 goes from big to tiny: it is next in `fallback` of aos.toml; `big` has just failed and is down, tried again at 2026-11-22T00:00:15.000Z
    6 runs on tiny: it is next in `fallback` of aos.toml; `big` is down, tried again at 2026-11-22T00:00:15.000Z
    6 sets aside $0, 16000 tokens
      → infer 5 turn [task]
      → infer 4 turn [task]
      → serve 6 1 by tiny, at most 1000
    ");
}
