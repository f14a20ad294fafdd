//! How each part of the kernel behaves, a story each. The right-hand side is what happened, in order.

use insta::assert_snapshot;

use crate::rig::replay;

#[test]
fn spawn_turn_and_the_result_in_the_next_window() {
    let told = replay(
        r#"
        spawn resident hello
        2: => FS_READ {"path":"a.txt"}
        done 2 FS_READ {"content":"x"}
        2: all done
        input 2 again
        2: yes
        idle
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident hello
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a.txt"}
      → call 2 FS_READ {"path":"a.txt"}
    > done 2 FS_READ {"content":"x"}
      → infer 2 turn [task, turn, fs_read]
    > 2: all done
    > input 2 again
      → infer 2 turn [task, turn, fs_read, turn, input again]
    > 2: yes
    > idle
    nothing is due
    "#);
}

#[test]
fn a_one_shot_process_ends_with_its_answer() {
    let told = replay(
        r#"
        spawn oneshot hello
        2: 42
        ps 2
        input 2 too late
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot hello
      → infer 2 turn [task]
    > 2: 42
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: answered = "42"
    > ps 2
    2 is exited: answered
    > input 2 too late
    refused: ESRCH process 2 has ended
    "#);
}

#[test]
fn reads_run_side_by_side_and_enter_the_window_in_order() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_READ {"path":"a"} => FS_LIST => FS_WRITE {"path":"b","content":""} => FS_READ {"path":"c"}
        done 2 FS_LIST
        done 2 FS_READ
        done 2 FS_WRITE
        done 2 FS_READ
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a"} => FS_LIST => FS_WRITE {"path":"b","content":""} => FS_READ {"path":"c"}
      → call 2 FS_READ {"path":"a"}
      → call 2 FS_LIST {}
    > done 2 FS_LIST
    > done 2 FS_READ
      → call 2 FS_WRITE {"path":"b","content":""}
    > done 2 FS_WRITE
      → call 2 FS_READ {"path":"c"}
    > done 2 FS_READ
      → infer 2 turn [task, turn, fs_read, fs_list, fs_write, fs_read]
    "#);
}

#[test]
fn malformed_and_unknown_calls_are_answered_and_take_no_other_with_them() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_READ {"path": => FS_REED {} => FS_READ {"file":"a"} => SYS_WRITE_STDOUT {"text":"still here"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path": => FS_REED {} => FS_READ {"file":"a"} => SYS_WRITE_STDOUT {"text":"still here"}
    2 FS_READ = EINVAL at `/path`: EOF while parsing a value at line 1 column 8
    2 FS_REED = ENOSYS no system call `FS_REED`
    2 FS_READ = EINVAL at `/file`: unknown field `file`, expected one of `path`, `offset`, `limit`
    2 SYS_WRITE_STDOUT = {}
      → infer 2 turn [task, turn, fs_read, fs_reed, fs_read, sys_write_stdout]
    "#);
}

#[test]
fn a_denied_call_returns_with_the_deciding_rule() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_READ {"path":"secret/key"} => NET_FETCH {"url":"https://example.com/"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"secret/key"} => NET_FETCH {"url":"https://example.com/"}
    2 deny by role assistant: fs[3] secret/**
    2 p1 is closed: no yes lifts role assistant: fs[3] secret/**
    2 FS_READ = EPERM the policy denies FS_READ: role assistant: fs[3] secret/**
    2 deny by role assistant: no rule
    2 p2 would take NET_FETCH example.com/
    2 NET_FETCH = EPERM the policy denies NET_FETCH: role assistant: no rule
      → infer 2 turn [task, turn, fs_read, net_fetch]
    "#);
}

#[test]
fn a_parent_waits_for_its_child_and_reaps_it() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"count"} => WAIT {}
        ps 2
        3: 7 words
        2: => WAIT {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"count"} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > ps 2
    2 is blocked for child
    > 3: 7 words
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: answered = "7 words"
    2 WAIT = {"pid":3,"exit_code":0,"result":"7 words"}
      → infer 2 turn [task, turn, spawn_agent, wait]
    > 2: => WAIT {}
    2 WAIT = ECHILD no child to wait for
      → infer 2 turn [task, turn, spawn_agent, wait, turn, wait]
    "#);
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"count"} => WAIT {"pid":3,"timeout_s":5}
        after 5
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"count"} => WAIT {"pid":3,"timeout_s":5}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > after 5
    2 WAIT = ETIMEDOUT no child ended within 5 s
      → infer 2 turn [task, turn, spawn_agent, wait]
    "#);
}

#[test]
fn a_pipe_carries_text_and_then_its_end() {
    let told = replay(
        r#"
        spawn resident read
        2: => SYS_READ_STDIN {}
        spawn oneshot pipe=2 write
        3: => SYS_WRITE_STDOUT {"text":"one"} => SYS_WRITE_STDOUT {"text":"two"}
        2: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
        3: bye
        2: => SYS_READ_STDIN {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident read
      → infer 2 turn [task]
    > 2: => SYS_READ_STDIN {}
    > spawn oneshot pipe=2 write
      → infer 3 turn [task]
    > 3: => SYS_WRITE_STDOUT {"text":"one"} => SYS_WRITE_STDOUT {"text":"two"}
    2 input from 3: one
    2 SYS_READ_STDIN = {"text":"one"}
    3 SYS_WRITE_STDOUT = {}
    2 input from 3: two
    3 SYS_WRITE_STDOUT = {}
      → infer 3 turn [task, turn, sys_write_stdout, sys_write_stdout]
      → infer 2 turn [task, turn, sys_read_stdin]
    > 2: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
    2 SYS_READ_STDIN = {"text":"two"}
    > 3: bye
    3 charged 1000 + 100 tokens, $0.0011
    2 input from 3: bye
    2 SYS_READ_STDIN = {"text":"bye"}
    3 exited 0: answered = "bye"
    2 input from 3: (eof)
      → infer 2 turn [task, turn, sys_read_stdin, turn, sys_read_stdin, sys_read_stdin, eof]
    > 2: => SYS_READ_STDIN {}
    2 SYS_READ_STDIN = {"eof":true}
      → infer 2 turn [task, turn, sys_read_stdin, turn, sys_read_stdin, sys_read_stdin, eof, turn, sys_read_stdin]
    "#);
}

/// It read "no more will come" ahead of what came.
#[test]
fn whoever_sends_more_after_the_end_takes_the_end_back() {
    let told = replay(
        r#"
        spawn resident read
        2: => SYS_READ_STDIN {}
        eof 2
        input 2 and yet
        2: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
        input 2 more
        eof 2
        2: => SYS_READ_STDIN {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident read
      → infer 2 turn [task]
    > 2: => SYS_READ_STDIN {}
    > eof 2
    2 SYS_READ_STDIN = {"eof":true}
      → infer 2 turn [task, turn, sys_read_stdin]
    > input 2 and yet
    > 2: => SYS_READ_STDIN {} => SYS_READ_STDIN {}
    2 SYS_READ_STDIN = {"text":"and yet"}
    > input 2 more
    2 SYS_READ_STDIN = {"text":"more"}
      → infer 2 turn [task, turn, sys_read_stdin, turn, sys_read_stdin, sys_read_stdin]
    > eof 2
    > 2: => SYS_READ_STDIN {}
    2 SYS_READ_STDIN = {"eof":true}
      → infer 2 turn [task, turn, sys_read_stdin, turn, sys_read_stdin, sys_read_stdin, turn, sys_read_stdin, eof]
    "#);
}

/// They were taken, and never came due.
#[test]
fn what_would_never_be_due_is_refused_with_the_longest_that_is_taken() {
    let told = replay(
        r#"
        spawn resident wait
        2: => SYS_SCHEDULE {"seconds":99999999999999,"prompt":"never"} => SYS_SCHEDULE {"seconds":3153600001,"prompt":"never"} => SLEEP {"seconds":1e300} => SYS_SCHEDULE {"seconds":3153600000,"prompt":"late"} => SLEEP {"seconds":3153600000}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident wait
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":99999999999999,"prompt":"never"} => SYS_SCHEDULE {"seconds":3153600001,"prompt":"never"} => SLEEP {"seconds":1e300} => SYS_SCHEDULE {"seconds":3153600000,"prompt":"late"} => SLEEP {"seconds":3153600000}
    2 SYS_SCHEDULE = EINVAL at `/seconds`: the longest period is 3153600000 s, a hundred years
    2 SYS_SCHEDULE = EINVAL at `/seconds`: the longest period is 3153600000 s, a hundred years
    2 SLEEP = EINVAL at `/seconds`: the longest is 3153600000 s, a hundred years
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2126-10-29T00:00:00.000Z"}
    "#);
}

#[test]
fn messages_reach_whoever_waits_and_whoever_is_idle() {
    let told = replay(
        r#"
        spawn resident name=ann listen
        spawn resident name=bob talk
        2: => RECV_MSG {}
        3: => SEND_MSG {"to":"ann","content":"one"} => SEND_MSG {"to_pid":2,"content":"two"} => SEND_MSG {"to":"cat","content":"x"}
        2: thanks
        3: => SEND_MSG {"to":"ann","content":"three"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann listen
      → infer 2 turn [task]
    > spawn resident name=bob talk
      → infer 3 turn [task]
    > 2: => RECV_MSG {}
    > 3: => SEND_MSG {"to":"ann","content":"one"} => SEND_MSG {"to_pid":2,"content":"two"} => SEND_MSG {"to":"cat","content":"x"}
    2 message from 3: one
    2 RECV_MSG = {"messages":[{"from_pid":3,"content":"one","at":"2026-11-22T00:00:00.000Z"}]}
    3 SEND_MSG = {"message_id":"m15"}
    2 message from 3: two
    3 SEND_MSG = {"message_id":"m20"}
    3 SEND_MSG = ESRCH no live process is named `cat`
      → infer 3 turn [task, turn, send_msg, send_msg, send_msg]
      → infer 2 turn [task, turn, recv_msg]
    > 2: thanks
      → infer 2 turn [task, turn, recv_msg, turn, message two]
    > 3: => SEND_MSG {"to":"ann","content":"three"}
    2 message from 3: three
    3 SEND_MSG = {"message_id":"m34"}
      → infer 3 turn [task, turn, send_msg, send_msg, send_msg, turn, send_msg]
    "#);
}

#[test]
fn a_failure_in_passing_is_tried_again_and_then_given_up() {
    let told = replay(
        r#"
        spawn resident go
        2 fails transient
        idle
        after 2
        2 fails transient 7000
        idle
        after 7
        2 fails transient
        after 60
        2 fails transient
        after 60
        2 fails transient
        after 60
        2 fails transient
        ps 2
        signal 2 CONT
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident go
      → infer 2 turn [task]
    > 2 fails transient
    > idle
    due at 2026-11-22T00:00:01.000Z
    > after 2
      → infer 2 turn [task]
    > 2 fails transient 7000
    > idle
    due at 2026-11-22T00:00:09.000Z
    > after 7
      → infer 2 turn [task]
    > 2 fails transient
    > after 60
      → infer 2 turn [task]
    > 2 fails transient
    2 circuit m Open until 2026-11-22T00:01:24.000Z it failed
    > after 60
      → infer 2 turn [task]
    > 2 fails transient
    > after 60
    2 circuit m HalfOpen
      → infer 2 turn [task]
    > 2 fails transient
    2 circuit m Open until 2026-11-22T00:03:39.000Z it failed
    2 stopped: model `m` failed 6 times in a row: it failed; do this; then `aos resume 2`
    > ps 2
    2 is stopped: model `m` failed 6 times in a row: it failed; do this; then `aos resume 2`
    > signal 2 CONT
      → infer 2 turn [task]
    ");
}

#[test]
fn a_server_that_asks_for_no_wait_is_not_asked_at_once() {
    let told = replay(
        r#"
        spawn resident go
        2 fails transient 0
        idle
        after 1
        2 fails transient 120
        idle
        after 2
        2 fails transient 120
        idle
        after 4
        2 fails transient 120
        idle
        after 8
        2 fails transient 0
        idle
        "#,
    );
    let due: Vec<&str> = told.lines().filter(|line| line.starts_with("due")).collect();
    assert_snapshot!(due.join("\n"), @"
    due at 2026-11-22T00:00:01.000Z
    due at 2026-11-22T00:00:03.000Z
    due at 2026-11-22T00:00:07.000Z
    due at 2026-11-22T00:00:15.000Z
    due at 2026-11-22T00:00:31.000Z
    ");
}

#[test]
fn a_prompt_that_is_too_long_is_compacted() {
    let told = replay(
        r#"
        spawn resident model=small go
        2: LONG
        input 2 one
        2: LONG
        input 2 two
        2: LONG
        input 2 three
        2: LONG
        input 2 four
        2 fails toolong
        2: what was done
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=small go
      → infer 2 turn [task]
    > 2: LONG
    > input 2 one
      → infer 2 turn [task, turn, input one]
    > 2: LONG
    > input 2 two
      → infer 2 summary [task, turn, input one]
    > 2: LONG
    2 compacted
      → infer 2 turn [task, summary, turn, input two]
    > input 2 three
    > 2: LONG
      → infer 2 summary [task, summary, turn, input two]
    > input 2 four
    > 2 fails toolong
      → infer 2 digest [task, summary, turn, input two]
    > 2: what was done
    2 compacted
      → infer 2 turn [task, summary, turn, input three, input four]
    "#);
}

/// Nothing is forgotten because a server is down for a minute.
#[test]
fn a_summary_that_fails_is_tried_again_and_then_a_digest() {
    let told = replay(
        r#"
        spawn resident model=small go
        2: LONG
        input 2 one
        2: LONG
        input 2 two
        2 fails transient
        after 60
        2 fails transient 7000
        after 60
        2 fails transient
        after 60
        2 fails transient
        after 60
        2 fails transient
        after 60
        2 fails transient
        after 60
        2: what was done
        2: LONG
        input 2 three
        2 fails refused
        2: what was done
        2: LONG
        input 2 four
        2 fails permanent
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident model=small go
      → infer 2 turn [task]
    > 2: LONG
    > input 2 one
      → infer 2 turn [task, turn, input one]
    > 2: LONG
    > input 2 two
      → infer 2 summary [task, turn, input one]
    > 2 fails transient
    > after 60
      → infer 2 summary [task, turn, input one]
    > 2 fails transient 7000
    > after 60
      → infer 2 summary [task, turn, input one]
    > 2 fails transient
    > after 60
      → infer 2 summary [task, turn, input one]
    > 2 fails transient
    2 circuit small Open until 2026-11-22T00:03:15.000Z it failed
    > after 60
      → infer 2 summary [task, turn, input one]
    > 2 fails transient
    > after 60
    2 circuit small HalfOpen
      → infer 2 summary [task, turn, input one]
    > 2 fails transient
    2 circuit small Open until 2026-11-22T00:05:30.000Z it failed
      → infer 2 digest [task, turn, input one]
    > after 60
    > 2: what was done
    2 compacted
    2 circuit small HalfOpen
      → infer 2 turn [task, summary, turn, input two]
    > 2: LONG
    2 circuit small Closed
    > input 2 three
      → infer 2 summary [task, summary, turn, input two]
    > 2 fails refused
      → infer 2 digest [task, summary, turn, input two]
    > 2: what was done
    2 compacted
      → infer 2 turn [task, summary, turn, input three]
    > 2: LONG
    > input 2 four
      → infer 2 summary [task, summary, turn, input three]
    > 2 fails permanent
    2 stopped: model `small`: it failed; do this; then `aos resume 2`
    ");
}

/// One that had nothing to do was told to go on, and paid for it.
#[test]
fn a_fork_lives_on_from_the_same_past() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
        fork 2
        3: => SYS_WRITE_STDOUT {"text":"I am the other"}
        2: ok
        fork 2
        input 4 who
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
      → infer 2 turn [task, turn, sys_schedule]
    > fork 2
      → infer 3 turn [task, turn, sys_schedule]
    > 3: => SYS_WRITE_STDOUT {"text":"I am the other"}
    3 SYS_WRITE_STDOUT = {}
      → infer 3 turn [task, turn, sys_schedule, turn, sys_write_stdout]
    > 2: ok
    > fork 2
    > input 4 who
      → infer 4 turn [task, turn, sys_schedule, turn, input who]
    "#);
}

#[test]
fn at_boot_what_may_be_repeated_is_and_the_rest_is_told() {
    let told = replay(
        r#"
        spawn resident one
        spawn resident two
        spawn resident three
        2: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","content":""}
        3: => EXEC_CMD {"cmd":"make"} => FS_READ {"path":"c"}
        boot
        done 2 FS_READ
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident one
      → infer 2 turn [task]
    > spawn resident two
      → infer 3 turn [task]
    > spawn resident three
      → infer 4 turn [task]
    > 2: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","content":""}
      → call 2 FS_READ {"path":"a"}
    > 3: => EXEC_CMD {"cmd":"make"} => FS_READ {"path":"c"}
      → call 3 EXEC_CMD {"cmd":"make"}
    > boot
    3 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
      → call 2 FS_READ {"path":"a"}
      → call 3 FS_READ {"path":"c"}
      → infer 4 turn [task]
    > done 2 FS_READ
      → call 2 FS_WRITE {"path":"b","content":""}
    > boot
      → call 3 FS_READ {"path":"c"}
      → call 2 FS_WRITE {"path":"b","content":""}
      → infer 4 turn [task]
    "#);
}
