//! Who waits for whom: chains of any length, and waits that are not endless.

use insta::assert_snapshot;

use crate::rig::replay;

/// Each wakes the next within one input; that took a piece of the stack for every one of them.
#[test]
fn ten_thousand_that_wake_each_other_take_no_stack() {
    const COUNT: u64 = 10_000;
    let mut script = String::new();
    for pid in 2..COUNT + 2 {
        script += "spawn resident go\n";
        script += &format!(
            "{pid}: => RECV_MSG {{}} => SEND_MSG {{\"to_pid\":{},\"content\":\"x\"}} => SYS_EXIT {{}}\n",
            pid + 1
        );
    }
    script += &format!("spawn resident go\n{}: => SEND_MSG {{\"to_pid\":2,\"content\":\"x\"}}\n", COUNT + 2);
    let told =
        std::thread::Builder::new().stack_size(512 << 10).spawn(move || replay(&script)).unwrap().join().unwrap();
    assert_eq!(told.matches("exited 0: SYS_EXIT").count() as u64, COUNT);
}

/// Each ends with its last words, which frees the one before it.
#[test]
fn a_long_pipeline_ends_without_taking_stack() {
    const COUNT: u64 = 2_000;
    let mut script = String::from("spawn resident go\n2: ok\nsignal 2 STOP\ntimes 256 input 2 x\n");
    for pid in 3..COUNT + 3 {
        script += &format!("spawn oneshot pipe={} go\nsignal {pid} STOP\ntimes 256 input {pid} x\n", pid - 1);
        script += &format!("signal {pid} CONT\n{pid}: => SLEEP {{\"seconds\":0.5}}\n");
    }
    script += "signal 2 KILL\n";
    let told =
        std::thread::Builder::new().stack_size(512 << 10).spawn(move || replay(&script)).unwrap().join().unwrap();
    assert!(told.contains("2 exited 137"), "{}", told.len());
}

/// A stranger may send to whoever waits for a message; it was told that nobody would.
#[test]
fn a_stranger_who_may_send_is_no_deadlock() {
    let told = replay(
        r#"
        spawn resident name=far go
        2: ok
        spawn resident grants=SPAWN_AGENT,SEND_MSG near
        3: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
        4: => RECV_MSG {}
        input 2 help them
        2: => SEND_MSG {"to_pid":4,"content":"x"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=far go
      → infer 2 turn [task]
    > 2: ok
    > spawn resident grants=SPAWN_AGENT,SEND_MSG near
      → infer 3 turn [task]
    > 3: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
    4 spawned by 3
    3 SPAWN_AGENT = {"pid":4}
      → infer 4 turn [task]
    > 4: => RECV_MSG {}
    > input 2 help them
      → infer 2 turn [task, turn, input help them]
    > 2: => SEND_MSG {"to_pid":4,"content":"x"}
    4 message from 2: x
    4 RECV_MSG = {"messages":[{"from_pid":2,"content":"x","at":"2026-11-22T00:00:00.000Z"}]}
    2 SEND_MSG = {"message_id":"m28"}
      → infer 4 turn [task, turn, recv_msg]
      → infer 2 turn [task, turn, input help them, turn, send_msg]
    "#);
}

/// One who may not send is no help.
#[test]
fn a_stranger_who_may_not_send_is_none() {
    let told = replay(
        r#"
        spawn resident grants=SPAWN_AGENT far
        2: ok
        spawn resident grants=SPAWN_AGENT,SEND_MSG near
        3: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
        4: => RECV_MSG {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident grants=SPAWN_AGENT far
      → infer 2 turn [task]
    > 2: ok
    > spawn resident grants=SPAWN_AGENT,SEND_MSG near
      → infer 3 turn [task]
    > 3: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
    4 spawned by 3
    3 SPAWN_AGENT = {"pid":4}
      → infer 4 turn [task]
    > 4: => RECV_MSG {}
    3 WAIT = EDEADLK this wait would never end: 3 waits for the end of a child; 4 waits for a message
      → infer 3 turn [task, turn, spawn_agent, wait]
    "#);
}

/// The pipe's source was adopted by the root, so nobody saw that it could still speak.
#[test]
fn an_adopted_source_of_a_pipe_is_no_deadlock() {
    let told = replay(
        r#"
        spawn resident grants=SPAWN_AGENT go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[]} => WAIT {}
        spawn resident grants=SPAWN_AGENT pipe=3 talk
        4: ok
        3: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
        input 4 go
        4: words
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident grants=SPAWN_AGENT go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[]} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > spawn resident grants=SPAWN_AGENT pipe=3 talk
      → infer 4 turn [task]
    > 4: ok
    3 input from 4: ok
    > 3: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
    3 SYS_READ_STDIN = {"text":"ok"}
    > input 4 go
      → infer 4 turn [task, turn, input go]
    > 4: words
    3 input from 4: words
    3 SYS_READ_STDIN = {"text":"words"}
      → infer 3 turn [task, turn, sys_read_stdin, sys_read_stdin]
    "#);
}
