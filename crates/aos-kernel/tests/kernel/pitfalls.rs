//! What goes wrong in systems of this kind, and here must not: named as in the list of pitfalls.

use insta::assert_snapshot;

use crate::rig::replay;

#[test]
fn a_second_tick_loop_per_timer_does_not_exist() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"a"} => SYS_SCHEDULE {"seconds":60,"prompt":"b"}
        2: ok
        after 60
        after 60
        2: ok
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":60,"prompt":"a"} => SYS_SCHEDULE {"seconds":60,"prompt":"b"}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
    2 SYS_SCHEDULE = {"timer_id":"t2","next_at":"2026-11-22T00:01:00.000Z"}
      → infer 2 turn [task, turn, sys_schedule, sys_schedule]
    > 2: ok
    > after 60
    2 timer t1: a (0 missed)
    2 timer t2: b (0 missed)
      → infer 2 turn [task, turn, sys_schedule, sys_schedule, turn, timer a, timer b]
    > after 60
    2 timer t1: a (0 missed)
    2 timer t2: b (0 missed)
    > 2: ok
      → infer 2 turn [task, turn, sys_schedule, sys_schedule, turn, timer a, timer b, turn, timer a, timer b]
    "#);
}

#[test]
fn an_idle_agent_does_not_call_the_model() {
    let told = replay(
        r#"
        spawn resident go
        2: hi
        after 1000000
        idle
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: hi
    > after 1000000
    > idle
    nothing is due
    "#);
}

#[test]
fn two_runs_of_one_agent_at_once_do_not_happen() {
    let told = replay(
        r#"
        spawn resident go
        input 2 one
        input 2 two
        2: => FS_READ {"path":"a"}
        input 2 three
        done 2 FS_READ
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > input 2 one
    > input 2 two
    > 2: => FS_READ {"path":"a"}
      → call 2 FS_READ {"path":"a"}
    > input 2 three
    > done 2 FS_READ
      → infer 2 turn [task, turn, fs_read, input one, input two, input three]
    "#);
}

#[test]
fn an_endless_retry_on_a_permanent_error_does_not_happen() {
    let told = replay(
        r#"
        spawn resident one
        spawn oneshot two
        2 fails permanent
        3 fails permanent
        after 1000000
        ps 2
        ps 3
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident one
      → infer 2 turn [task]
    > spawn oneshot two
      → infer 3 turn [task]
    > 2 fails permanent
    2 stopped: model `m`: it failed; do this; then `aos resume 2`
    > 3 fails permanent
    3 exited 1: model `m`: it failed; do this
    > after 1000000
    > ps 2
    2 is stopped: model `m`: it failed; do this; then `aos resume 2`
    > ps 3
    3 is exited: model `m`: it failed; do this
    "#);
}

#[test]
fn state_survives_a_restart() {
    let told = replay(
        r#"
        spawn resident name=ann go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"} => SYS_REGISTER_WEBHOOK {"path":"x"} => FS_WRITE {"path":"asks/a","content":""}
        spawn resident talk
        3: => SEND_MSG {"to":"ann","content":"hello"}
        boot
        approve p1
        done 2 FS_WRITE
        2: => RECV_MSG {}
        hook x
        after 60
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann go
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"} => SYS_REGISTER_WEBHOOK {"path":"x"} => FS_WRITE {"path":"asks/a","content":""}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
    2 SYS_REGISTER_WEBHOOK = {"url":"http://hooks/x"}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > spawn resident talk
      → infer 3 turn [task]
    > 3: => SEND_MSG {"to":"ann","content":"hello"}
    2 message from 3: hello
    3 SEND_MSG = {"message_id":"m23"}
      → infer 3 turn [task, turn, send_msg]
    > boot
      → infer 3 turn [task, turn, send_msg]
    > approve p1
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"asks/a","content":""}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, sys_schedule, sys_register_webhook, fs_write]
    > 2: => RECV_MSG {}
    2 RECV_MSG = {"messages":[{"from_pid":3,"content":"hello","at":"2026-11-22T00:00:00.000Z"}]}
      → infer 2 turn [task, turn, sys_schedule, sys_register_webhook, fs_write, turn, recv_msg]
    > hook x
    > after 60
    2 timer t1: look (0 missed)
    "#);
}

#[test]
fn a_killed_process_is_not_brought_back_by_a_race() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_READ {"path":"a"}
        signal 2 KILL
        done 2 FS_READ
        input 2 hello
        signal 2 CONT
        boot
        ps 2
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a"}
      → call 2 FS_READ {"path":"a"}
    > signal 2 KILL
    2 exited 137: killed
      → cancel
    > done 2 FS_READ
    refused: ENOENT nothing waits for effect 5.0
    > input 2 hello
    refused: ESRCH process 2 has ended
    > signal 2 CONT
    refused: ESRCH process 2 has ended
    > boot
    > ps 2
    2 is exited: killed
    "#);
}

#[test]
fn children_timers_and_routes_are_not_left_behind() {
    let told = replay(
        r#"
        spawn resident name=ann go
        2: => SPAWN_AGENT {"role":"r","task":"t"} => SYS_SCHEDULE {"seconds":60,"prompt":"a"} => SYS_REGISTER_WEBHOOK {"path":"x"} => FS_WATCH {"path":"docs"}
        signal 2 KILL tree
        hook x
        after 1000
        idle
        spawn resident name=ann again
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"} => SYS_SCHEDULE {"seconds":60,"prompt":"a"} => SYS_REGISTER_WEBHOOK {"path":"x"} => FS_WATCH {"path":"docs"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
    2 SYS_REGISTER_WEBHOOK = {"url":"http://hooks/x"}
    2 FS_WATCH = {"watch_id":"w2"}
      → watch 2 w2
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent, sys_schedule, sys_register_webhook, fs_watch]
    > signal 2 KILL tree
    2 exited 137: killed
    3 KILL from 1
    3 exited 137: killed
      → cancel
      → unwatch 2 w2
      → cancel
    > hook x
    no route
    > after 1000
    > idle
    nothing is due
    > spawn resident name=ann again
      → infer 4 turn [task]
    "#);
}

#[test]
fn a_message_whose_inference_failed_is_not_lost() {
    let told = replay(
        r#"
        spawn resident name=ann go
        2: ok
        spawn resident talk
        3: => SEND_MSG {"to":"ann","content":"hello"}
        2 fails transient
        after 2
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann go
      → infer 2 turn [task]
    > 2: ok
    > spawn resident talk
      → infer 3 turn [task]
    > 3: => SEND_MSG {"to":"ann","content":"hello"}
    2 message from 3: hello
    3 SEND_MSG = {"message_id":"m13"}
      → infer 2 turn [task, turn, message hello]
      → infer 3 turn [task, turn, send_msg]
    > 2 fails transient
    > after 2
      → infer 2 turn [task, turn, message hello]
    "#);
}

#[test]
fn a_timer_that_fires_during_a_call_is_shown() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
        2: => EXEC_CMD {"cmd":"make"}
        after 60
        done 2 EXEC_CMD
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SYS_SCHEDULE {"seconds":60,"prompt":"look"}
    2 SYS_SCHEDULE = {"timer_id":"t1","next_at":"2026-11-22T00:01:00.000Z"}
      → infer 2 turn [task, turn, sys_schedule]
    > 2: => EXEC_CMD {"cmd":"make"}
      → call 2 EXEC_CMD {"cmd":"make"}
    > after 60
    2 timer t1: look (0 missed)
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, sys_schedule, turn, exec_cmd, timer look]
    "#);
}

#[test]
fn agents_waiting_for_each_other_are_told() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
        3: => RECV_MSG {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > 3: => RECV_MSG {}
    2 WAIT = EDEADLK this wait would never end: 2 waits for the end of a child; 3 waits for a message
      → infer 2 turn [task, turn, spawn_agent, wait]
    "#);
}

#[test]
fn agents_left_waiting_by_the_end_of_another_are_told() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t"} => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {"pid":3}
        3: => RECV_MSG {}
        4: I leave
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"} => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {"pid":3}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 3 turn [task]
      → infer 4 turn [task]
    > 3: => RECV_MSG {}
    > 4: I leave
    4 charged 1000 + 100 tokens, $0.0011
    4 exited 0: answered = "I leave"
    2 WAIT = EDEADLK this wait would never end: 2 waits for the end of 3; 3 waits for a message
      → infer 2 turn [task, turn, spawn_agent, spawn_agent, wait]
    "#);
}

#[test]
fn a_child_with_more_rights_than_its_parent_is_refused() {
    let told = replay(
        r#"
        spawn resident grants=SPAWN_AGENT,FS_READ+docs/** go
        explain 2 SPAWN_AGENT {"role":"r","permissions":["FS_READ **"]}
        explain 2 SPAWN_AGENT {"role":"r","permissions":["FS_READ docs/a"]}
        2: => SPAWN_AGENT {"role":"r","permissions":["FS_READ **"]} => SPAWN_AGENT {"role":"r","permissions":["EXEC_CMD"]} => SPAWN_AGENT {"role":"r","permissions":["FS_READ docs/a"],"task":"t"}
        3: => FS_READ {"path":"docs/a"} => FS_READ {"path":"docs/b"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident grants=SPAWN_AGENT,FS_READ+docs/** go
      → infer 2 turn [task]
    > explain 2 SPAWN_AGENT {"role":"r","permissions":["FS_READ **"]}
    deny by the grant `FS_READ **` exceeds its parent: `FS_READ x` would be allowed to the child and is not to the parent's own grants; a child can never do what its parent cannot: give it less
    > explain 2 SPAWN_AGENT {"role":"r","permissions":["FS_READ docs/a"]}
    allow by role assistant: calls[0] SPAWN_AGENT
    > 2: => SPAWN_AGENT {"role":"r","permissions":["FS_READ **"]} => SPAWN_AGENT {"role":"r","permissions":["EXEC_CMD"]} => SPAWN_AGENT {"role":"r","permissions":["FS_READ docs/a"],"task":"t"}
    2 p1 is closed: a child can never do what its parent cannot: give it less
    2 SPAWN_AGENT = EPERM the grant `FS_READ **` exceeds its parent: `FS_READ x` would be allowed to the child and is not to the parent's own grants
    2 p2 is closed: a child can never do what its parent cannot: give it less
    2 SPAWN_AGENT = EPERM the grant `EXEC_CMD` exceeds its parent: `EXEC_CMD` would be allowed to the child and is not to the parent's own grants
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent, spawn_agent, spawn_agent]
    > 3: => FS_READ {"path":"docs/a"} => FS_READ {"path":"docs/b"}
    3 deny by grant: none of this process, which has [FS_READ docs/a]
    3 p3 would take FS_READ docs/b
    3 FS_READ = EPERM the policy denies FS_READ: grant: none of this process, which has [FS_READ docs/a]
      → call 3 FS_READ {"path":"docs/a"}
    "#);
}

#[test]
fn an_empty_list_of_permissions_does_not_mean_all() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[]} => SPAWN_AGENT {"role":"r","task":"t"}
        3: => FS_READ {"path":"a"}
        4: => EXEC_CMD {"cmd":"id"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[]} => SPAWN_AGENT {"role":"r","task":"t"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 3 turn [task]
      → infer 4 turn [task]
      → infer 2 turn [task, turn, spawn_agent, spawn_agent]
    > 3: => FS_READ {"path":"a"}
    3 deny by grant: none of this process, which has []
    3 p1 is closed: its process was given nothing to do
    3 FS_READ = EPERM the policy denies FS_READ: grant: none of this process, which has []
      → infer 3 turn [task, turn, fs_read]
    > 4: => EXEC_CMD {"cmd":"id"}
    4 deny by grant: none of this process, which has []
    4 p2 is closed: its process was given nothing to do
    4 EXEC_CMD = EPERM the policy denies EXEC_CMD: grant: none of this process, which has []
      → infer 4 turn [task, turn, exec_cmd]
    "#);
}

/// A child with nothing to spend was made, and stopped at once: "$0 left, up to $0 needed".
#[test]
fn a_child_is_not_made_that_could_not_even_answer() {
    let told = replay(
        r#"
        spawn resident calls=9 go
        2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0}}
        2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"tokens":0}}
        2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"wall_s":0}}
        "#,
    );
    for field in ["usd", "tokens", "wall_s"] {
        let refused = format!("2 SPAWN_AGENT = EINVAL `budget.{field}` is 0, so the child could not even answer");
        assert!(told.contains(&refused), "{told}");
    }
    assert!(!told.contains("3 spawned"), "{told}");
}

#[test]
fn a_child_may_always_exit() {
    let told = replay(
        r#"
        spawn resident calls=3 go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[],"budget":{"calls":0}}
        3: => SYS_EXIT {"code":3,"result":"bye"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident calls=3 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":[],"budget":{"calls":0}}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent]
    > 3: => SYS_EXIT {"code":3,"result":"bye"}
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 3: SYS_EXIT = "bye"
    "#);
}

#[test]
fn cost_is_not_counted_after_the_call_alone() {
    let told = replay(
        r#"
        spawn oneshot usd=0.001 go
        ps 2
        "#,
    );
    assert_snapshot!(told, @"
    > spawn oneshot usd=0.001 go
    2 exited 5: the budget is spent: $0.001 left, up to $0.018049 needed; run it again with a larger --budget
    > ps 2
    2 is exited: the budget is spent: $0.001 left, up to $0.018049 needed; run it again with a larger --budget
    ");
}

#[test]
fn trimming_does_not_part_a_call_from_its_result() {
    let told = replay(
        r#"
        spawn resident model=small go
        2: LONG => FS_READ {"path":"a"} => FS_READ {"path":"b"}
        done 2 FS_READ
        done 2 FS_READ
        2: LONG => FS_READ {"path":"c"}
        done 2 FS_READ
        2: LONG => FS_READ {"path":"d"}
        done 2 FS_READ
        2: a summary
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=small go
      → infer 2 turn [task]
    > 2: LONG => FS_READ {"path":"a"} => FS_READ {"path":"b"}
      → call 2 FS_READ {"path":"a"}
      → call 2 FS_READ {"path":"b"}
    > done 2 FS_READ
    > done 2 FS_READ
      → infer 2 turn [task, turn, fs_read, fs_read]
    > 2: LONG => FS_READ {"path":"c"}
      → call 2 FS_READ {"path":"c"}
    > done 2 FS_READ
      → infer 2 summary [task, turn, fs_read, fs_read]
    > 2: LONG => FS_READ {"path":"d"}
    2 compacted
      → infer 2 turn [task, summary, turn, fs_read]
    > done 2 FS_READ
    no such call runs
    > 2: a summary
    "#);
}

/// "The timer is set", and nobody was told that it had ended with its agent.
#[test]
fn what_a_one_shot_still_waits_for_is_named_when_it_ends() {
    let told = replay(
        r#"
        spawn oneshot nudge me
        2: => SYS_SCHEDULE {"seconds":60,"prompt":"nudge","once":true} => SYS_REGISTER_WEBHOOK {"path":"x"}
        2: set
        spawn oneshot nudge me
        3: => SYS_SCHEDULE {"seconds":60,"prompt":"nudge","once":true}
        after 61
        3: not yet
        3: done
        "#,
    );
    let ends: Vec<&str> = told.lines().filter(|line| line.contains("exited")).collect();
    assert_eq!(
        ends,
        ["2 exited 0: answered with timer t1, webhook x = \"set\"", "3 exited 0: answered = \"done\""],
        "{told}"
    );
}

/// The first pieces were thrown away, and what never came to its end counted as an answer.
#[test]
fn an_answer_in_pieces_is_handed_over_whole() {
    let told = replay(
        r#"
        spawn oneshot tell
        2 cut: One, t
        2 cut: wo, th
        2: ree.
        spawn resident tell
        spawn resident pipe=3 tell
        4 cut: five, s
        boot
        4: ix.
        input 4 more
        4 cut: seven
        4: => FS_LIST {}
        done 4 FS_LIST
        4: eight
        spawn oneshot tell
        5 cut: nine
        5 cut: ,
        5 cut: ten
        5 cut: .
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot tell
      → infer 2 turn [task]
    > 2 cut: One, t
      → infer 2 turn [task, turn]
    > 2 cut: wo, th
      → infer 2 turn [task, turn, turn]
    > 2: ree.
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: answered = "One, two, three."
    > spawn resident tell
      → infer 3 turn [task]
    > spawn resident pipe=3 tell
      → infer 4 turn [task]
    > 4 cut: five, s
      → infer 4 turn [task, turn]
    > boot
      → infer 3 turn [task]
      → infer 4 turn [task, turn]
    > 4: ix.
    3 input from 4: five, six.
    > input 4 more
      → infer 4 turn [task, turn, turn, input more]
    > 4 cut: seven
      → infer 4 turn [task, turn, turn, input more, turn]
    > 4: => FS_LIST {}
      → call 4 FS_LIST {}
    > done 4 FS_LIST
      → infer 4 turn [task, turn, turn, input more, turn, turn, fs_list]
    > 4: eight
    3 input from 4: eight
    > spawn oneshot tell
      → infer 5 turn [task]
    > 5 cut: nine
      → infer 5 turn [task, turn]
    > 5 cut: ,
      → infer 5 turn [task, turn, turn]
    > 5 cut: ten
      → infer 5 turn [task, turn, turn, turn]
    > 5 cut: .
    5 charged 1000 + 100 tokens, $0.0011
    5 exited 1: its answer was cut off 4 times in a row, and is not whole = "nine,ten."
    "#);
}

#[test]
fn a_reply_cut_off_runs_no_half_call_and_goes_on() {
    let told = replay(
        r#"
        spawn oneshot go
        2 cut: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","cont
        done 2 FS_READ
        2 cut: I was about to
        2: done
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot go
      → infer 2 turn [task]
    > 2 cut: => FS_READ {"path":"a"} => FS_WRITE {"path":"b","cont
      → call 2 FS_READ {"path":"a"}
    > done 2 FS_READ
    2 FS_WRITE = EINVAL the reply was cut off before this call was complete, so it was not run
      → infer 2 turn [task, turn, fs_read, fs_write]
    > 2 cut: I was about to
      → infer 2 turn [task, turn, fs_read, fs_write, turn]
    > 2: done
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: answered = "I was about todone"
    "#);
}
