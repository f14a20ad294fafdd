//! What is full: notices, standard input, ended children nobody waits for.

use aos_abi::entry::Outcome;
use aos_abi::{Body, limits};
use insta::assert_snapshot;

use crate::rig::{journal, replay, replay_under};

/// Each of them was two entries, before each of which the kernel went through all of them.
#[test]
fn a_reply_of_any_number_of_calls_comes_to_a_bounded_number_of_entries() {
    const MOST: usize = limits::CALLS_PER_REPLY_MAX;
    let written = " [SYS_CALL::SYS_WRITE_STDOUT] {\"text\":\"a\"}";
    let native = " => SYS_WRITE_STDOUT {\"text\":\"a\"}";
    for (reply, others) in [(written.repeat(300_000), 299_935), (native.repeat(30_000), 29_935)] {
        // The rig replays the whole at the end, and reads the window back from the journal after each line.
        let entries = journal(&format!("spawn resident model=wide go\n2:{reply}\nboot"));
        let calls = entries.iter().filter(|entry| matches!(entry.body, Body::Syscall { .. })).count();
        let results = entries.iter().filter_map(|entry| match &entry.body {
            Body::Result { outcome, .. } => Some(outcome),
            _ => None,
        });
        let failed: Vec<_> = results.clone().filter(|outcome| matches!(outcome, Outcome::Error { .. })).collect();
        assert_eq!((calls, results.count(), failed.len()), (MOST + 1, MOST + 1, 1));
        let said = format!("this one and {others} more after it were not run");
        assert!(matches!(failed[0], Outcome::Error { error } if error.message.contains(&said)), "{failed:?}");
        assert!(entries.len() < 4 * MOST, "{} entries", entries.len());
    }
}

/// Its firings were recorded and shown to nobody, once 256 notices waited.
#[test]
fn a_timer_that_finds_no_room_is_told_of_later() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":1,"prompt":"tick"} => SYS_SCHEDULE {"seconds":400,"prompt":"once","once":true}
        2: ok
        signal 2 STOP
        after 500
        signal 2 CONT
        after 1
        2: => SYS_UNSCHEDULE {"timer_id":"t1"}
        "#,
    );
    let fired = told.lines().filter(|line| line.starts_with("2 timer")).count();
    assert_eq!(fired, 255 + 2 + 1, "{told}");
    let shown = told.lines().rfind(|line| line.contains("infer 2 turn")).unwrap();
    assert_eq!(shown.matches("timer tick").count() + shown.matches("timer once").count(), 258, "{shown}");
    // Of 500 firings 255 were kept; the next one, as soon as there is room, tells of the rest.
    assert!(told.contains("timer t1: tick (244 missed)"), "{told}");
}

/// What was said went into a pipe however full it was.
#[test]
fn words_wait_for_room_in_a_pipe() {
    let told = replay(
        r#"
        spawn resident read
        2: ok
        signal 2 STOP
        spawn resident pipe=2 write
        times 256 input 2 x
        3: my words
        ps 3
        3: more
        input 3 hello
        signal 2 CONT
        ps 3
        "#,
    );
    let told = told.replace("> input 2 x\n", "").replace("input x, ", "");
    assert_snapshot!(told, @r#"
    > spawn resident read
      → infer 2 turn [task]
    > 2: ok
    > signal 2 STOP
    > spawn resident pipe=2 write
      → infer 3 turn [task]
    > times 256 input 2 x
    > 3: my words
    > ps 3
    3 is blocked for pipe
    > 3: more
    refused: ENOENT nothing waits for effect 8.0
    > input 3 hello
    > signal 2 CONT
    2 input from 3: my words
      → infer 2 turn [task, turn, input x]
      → infer 3 turn [task, turn, input hello]
    > ps 3
    3 is running
    "#);
}

/// A one-shot process ends once its last words are delivered, or its reader has gone.
#[test]
fn last_words_wait_too() {
    let told = replay(
        r#"
        spawn resident read
        2: ok
        signal 2 STOP
        spawn oneshot pipe=2 write
        spawn oneshot pipe=2 write
        spawn oneshot pipe=2 write
        times 256 input 2 x
        3: last words
        4: last words
        5: last words
        signal 3 TERM
        signal 4 STOP
        3: not now
        signal 2 KILL
        ps 4
        signal 4 CONT
        "#,
    );
    let told = told.replace("> input 2 x\n", "");
    assert_snapshot!(told, @r#"
    > spawn resident read
      → infer 2 turn [task]
    > 2: ok
    > signal 2 STOP
    > spawn oneshot pipe=2 write
      → infer 3 turn [task]
    > spawn oneshot pipe=2 write
      → infer 4 turn [task]
    > spawn oneshot pipe=2 write
      → infer 5 turn [task]
    > times 256 input 2 x
    > 3: last words
    > 4: last words
    > 5: last words
    > signal 3 TERM
      → infer 3 turn [task, turn, term]
    > signal 4 STOP
    > 3: not now
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 143: ended by TERM after its last turn = "not now"
    > signal 2 KILL
    2 exited 137: killed
    5 exited 0: answered = "last words"
    > ps 4
    4 is stopped for pipe: stopped by a signal
    > signal 4 CONT
    4 exited 0: answered = "last words"
    "#);
}

/// Any process could be written to by naming it in `pipe_to`.
#[test]
fn a_pipe_goes_only_where_messages_may() {
    let policy = crate::rig::POLICY.replace("peer: \"*\"", "peer: \"bob\"");
    let told = replay_under(
        &policy,
        r#"
        spawn resident name=ann one
        spawn resident name=bob two
        3: => SPAWN_AGENT {"role":"r","task":"t","pipe_to":2}
        2: => SPAWN_AGENT {"role":"r","pipe_to":3}
        3: => SPAWN_AGENT {"role":"r","pipe_to":3} => SPAWN_AGENT {"role":"r","pipe_to":5}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann one
      → infer 2 turn [task]
    > spawn resident name=bob two
      → infer 3 turn [task]
    > 3: => SPAWN_AGENT {"role":"r","task":"t","pipe_to":2}
    3 p1 is closed: a yes is no grant: SEND_MSG 2
    3 SPAWN_AGENT = EPERM the policy does not let you speak to process 2, so neither may your child: role assistant: no rule
      → infer 3 turn [task, turn, spawn_agent]
    > 2: => SPAWN_AGENT {"role":"r","pipe_to":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 2 turn [task, turn, spawn_agent]
    > 3: => SPAWN_AGENT {"role":"r","pipe_to":3} => SPAWN_AGENT {"role":"r","pipe_to":5}
    5 spawned by 3
    3 SPAWN_AGENT = {"pid":5}
    6 spawned by 3
    3 SPAWN_AGENT = {"pid":6}
      → infer 3 turn [task, turn, spawn_agent, turn, spawn_agent, spawn_agent]
    "#);
}

/// They were kept for ever.
#[test]
fn children_nobody_waits_for_are_put_away_and_their_parent_is_told() {
    let policy = crate::rig::POLICY.replace("default_role:", "limits: {spawn: {children: 256}}\ndefault_role:");
    let mut script = String::from("spawn resident model=wide go\n");
    for child in 3..263 {
        script += "2: => SPAWN_AGENT {\"role\":\"r\",\"task\":\"t\"}\n";
        script += &format!("{child}: done\n");
    }
    script += "2: => WAIT {\"pid\":3} => WAIT {}\nps 3";
    let told = replay_under(&policy, &script);
    let put_away: usize = told
        .lines()
        .filter_map(|line| line.strip_prefix("2 put away "))
        .map(|count| count.parse::<usize>().unwrap())
        .sum();
    assert_eq!(put_away, 260 - 256, "{told}");
    assert!(told.contains("1 put away"), "it is shown: {told}");
    assert!(told.contains("2 WAIT = ECHILD process 3 is no child of yours"), "{told}");
    assert!(told.contains("2 WAIT = {\"pid\":7,"), "{told}");
    assert!(told.contains("3 is exited: answered"), "{told}");
}

/// Whoever sends more is told so, and loses nothing of what was taken.
#[test]
fn a_full_inbox_takes_no_more() {
    const FULL: usize = aos_abi::limits::INBOX_MAX;
    let mut script = "spawn resident read\n2: ok\nsignal 2 STOP\nspawn resident write\n".to_owned();
    // A few more than there is room for: some answers become summaries instead.
    for nth in 0..FULL + 8 {
        script += &format!("3: => SEND_MSG {{\"to_pid\":2,\"content\":\"word {nth}.\"}}\n");
    }
    script += "signal 2 CONT\n2: ok\n3: => SEND_MSG {\"to_pid\":2,\"content\":\"there is room.\"}\n";
    let told = replay(&script);
    let taken: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("2 message from 3: ")).collect();
    assert_eq!((taken.len(), taken.last()), (FULL + 1, Some(&"there is room.")));
    assert!(told.contains("3 SEND_MSG = EAGAIN the inbox of process 2 is full: 256 unread"), "{told}");
    let shown = told.lines().find(|line| line.contains("infer 2 turn") && line.contains("word 0.")).unwrap();
    assert!(taken[..FULL].iter().all(|word| shown.contains(&format!("message {word}"))), "{shown}");
}

#[test]
fn a_timer_that_is_taken_back_fires_no_more() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"gone"} => SYS_SCHEDULE {"seconds":60,"prompt":"stays"}
        2: => SYS_UNSCHEDULE {"timer_id":"t1"} => SYS_UNSCHEDULE {"timer_id":"t1"}
        2: ok
        after 61
        "#,
    );
    let fired: Vec<&str> = told.lines().filter(|line| line.starts_with("2 timer")).collect();
    assert_eq!(fired, ["2 timer t2: stays (0 missed)"], "{told}");
    assert_eq!(told.matches("SYS_UNSCHEDULE = {}").count(), 1, "{told}");
    assert!(told.contains("ENOENT"), "there is none of that name any more: {told}");
}

#[test]
fn whoever_reads_its_input_waits_no_longer_than_it_says() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_READ_STDIN {"timeout_s":5}
        after 4
        after 2
        "#,
    );
    assert!(told.contains("ETIMEDOUT no input came within 5 s"), "{told}");
}
