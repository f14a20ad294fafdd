//! Signals and deadlines: what ends a process, and what stops it until it goes on.

use insta::assert_snapshot;

use crate::rig::replay;

#[test]
fn term_gives_one_last_turn() {
    let told = replay(
        r#"
        spawn resident go
        2: => SLEEP {"seconds":600} => FS_READ {"path":"a"}
        signal 2 TERM
        2: => SYS_WRITE_STDOUT {"text":"half done"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SLEEP {"seconds":600} => FS_READ {"path":"a"}
    > signal 2 TERM
    2 FS_READ = EINTR not run: TERM came first
    2 SLEEP = EINTR TERM ended the wait
      → infer 2 turn [task, turn, sleep, fs_read, term]
    > 2: => SYS_WRITE_STDOUT {"text":"half done"}
    2 charged 1000 + 100 tokens, $0.0011
    2 SYS_WRITE_STDOUT = {}
    2 exited 143: ended by TERM after its last turn
    "#);
}

/// A command ran on until the process was killed, and its last turn never came.
#[test]
fn term_ends_commands_that_run_but_no_other_call() {
    let told = replay(
        r#"
        spawn resident go
        2: => EXEC_CMD {"cmd":"sleep 900"} => FS_READ {"path":"a"}
        signal 2 TERM
        lost 2 EXEC_CMD
        2: my last words
        spawn resident go
        3: => FS_READ {"path":"a"} => EXEC_CMD {"cmd":"sleep 900"}
        signal 3 TERM
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"sleep 900"} => FS_READ {"path":"a"}
      → call 2 EXEC_CMD {"cmd":"sleep 900"}
    > signal 2 TERM
    2 FS_READ = EINTR not run: TERM came first
      → cancel
    > lost 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd, fs_read, term]
    > 2: my last words
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 143: ended by TERM after its last turn = "my last words"
    > spawn resident go
      → infer 3 turn [task]
    > 3: => FS_READ {"path":"a"} => EXEC_CMD {"cmd":"sleep 900"}
      → call 3 FS_READ {"path":"a"}
    > signal 3 TERM
    3 EXEC_CMD = EINTR not run: TERM came first
    "#);
}

#[test]
fn term_kills_after_five_seconds() {
    let told = replay(
        r#"
        spawn resident go
        signal 2 TERM
        after 4.9
        ps 2
        after 0.1
        2: too late
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > signal 2 TERM
    > after 4.9
    > ps 2
    2 is running
    > after 0.1
    2 exited 137: killed: did not end within 5 s of TERM
      → cancel
    > 2: too late
    2 charged 1000 + 100 tokens, $0.0011
    "#);
}

#[test]
fn stop_finishes_what_runs_and_cont_goes_on() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","content":""}
        signal 2 STOP
        done 2 FS_READ
        input 2 hello
        ps 2
        signal 2 CONT
        done 2 FS_WRITE
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","content":""}
      → call 2 FS_READ {"path":"a"}
    > signal 2 STOP
    > done 2 FS_READ
    > input 2 hello
    > ps 2
    2 is stopped: stopped by a signal
    > signal 2 CONT
      → call 2 FS_WRITE {"path":"b","content":""}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_read, fs_write, input hello]
    "#);
}

#[test]
fn the_wall_clock_ends_a_process_and_all_below() {
    let told = replay(
        r#"
        spawn resident wall=30 go
        2: => SPAWN_AGENT {"role":"r"} => SPAWN_AGENT {"role":"r","task":"t"}
        after 30
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident wall=30 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r"} => SPAWN_AGENT {"role":"r","task":"t"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 4 turn [task]
      → infer 2 turn [task, turn, spawn_agent, spawn_agent]
    > after 30
    2 exited 124: ran past its time
    3 exited 124: ran past its time
    4 exited 124: ran past its time
      → cancel
      → cancel
    "#);
}
