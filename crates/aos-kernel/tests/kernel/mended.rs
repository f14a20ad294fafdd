//! Faults that there were: each case failed before its fault was mended.

use insta::assert_snapshot;

use crate::rig::{POLICY, replay, replay_under};

/// A message wakes its receiver within the same input, which may signal the sender while its call is still under way.
#[test]
fn calls_are_not_made_twice_by_whoever_they_wake() {
    let told = replay(
        r#"
        spawn resident name=ann go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["SEND_MSG *"]} => RECV_MSG {} => KILL {"pid":3,"signal":"STOP"} => KILL {"pid":3,"signal":"CONT"} => KILL {"pid":3,"signal":"TERM"}
        3: => SEND_MSG {"to":"ann","content":"hi"} => SYS_WRITE_STDOUT {"text":"after"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=ann go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["SEND_MSG *"]} => RECV_MSG {} => KILL {"pid":3,"signal":"STOP"} => KILL {"pid":3,"signal":"CONT"} => KILL {"pid":3,"signal":"TERM"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > 3: => SEND_MSG {"to":"ann","content":"hi"} => SYS_WRITE_STDOUT {"text":"after"}
    2 message from 3: hi
    2 RECV_MSG = {"messages":[{"from_pid":3,"content":"hi","at":"2026-11-22T00:00:00.000Z"}]}
    3 SEND_MSG = {"message_id":"m18"}
    3 SYS_WRITE_STDOUT = {}
    3 STOP from 2
    2 KILL = {}
    3 CONT from 2
    2 KILL = {}
    3 TERM from 2
    2 KILL = {}
      → infer 3 turn [task, turn, send_msg, sys_write_stdout, term]
      → infer 2 turn [task, turn, spawn_agent, recv_msg, kill, kill, kill]
    "#);
}

/// Only yes and no are answers; anything else took the proposal away and left its process waiting for ever.
#[test]
fn a_person_cannot_leave_a_proposal_hanging() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":""}
        expire p1
        approve p1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > expire p1
    refused: EINVAL a proposal is answered with approved, standing, rejected or vetoed
    > approve p1
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"asks/a","content":""}
    "#);
}

/// An empty text was taken for the end of input by whoever read.
#[test]
fn nothing_sent_is_not_the_end_of_input() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_READ_STDIN {}
        input 2
        input 2 hello
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SYS_READ_STDIN {}
    > input 2
    refused: EINVAL `text` is empty
    > input 2 hello
    2 SYS_READ_STDIN = {"text":"hello"}
      → infer 2 turn [task, turn, sys_read_stdin]
    "#);
}

/// Approved, it went to a driver that does not exist.
#[test]
fn what_nobody_carries_out_cannot_be_proposed() {
    let told = replay(
        r#"
        spawn resident go
        2: => PROPOSE {"action":{"name":"TOOL_CALL","args":{"name":"x","args":{}}},"why":"?"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => PROPOSE {"action":{"name":"TOOL_CALL","args":{"name":"x","args":{}}},"why":"?"}
    2 PROPOSE = ENOSYS TOOL_CALL is not there yet
      → infer 2 turn [task, turn, propose]
    "#);
}

/// The grants of ancestors were not carried over.
#[test]
fn a_fork_has_no_more_rights_than_the_first() {
    let told = replay(
        r#"
        spawn resident grants=SPAWN_AGENT,FS_READ+docs/** go
        spawn resident parent=2 below
        fork 3
        4: => FS_READ {"path":"docs/a"} => FS_READ {"path":"a"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident grants=SPAWN_AGENT,FS_READ+docs/** go
      → infer 2 turn [task]
    > spawn resident parent=2 below
      → infer 3 turn [task]
    > fork 3
      → infer 4 turn [task]
    > 4: => FS_READ {"path":"docs/a"} => FS_READ {"path":"a"}
    4 deny by grant: none of this process, which has [SPAWN_AGENT, FS_READ docs/**]
    4 p1 would take FS_READ a
    4 FS_READ = EPERM the policy denies FS_READ: grant: none of this process, which has [SPAWN_AGENT, FS_READ docs/**]
      → call 4 FS_READ {"path":"docs/a"}
    "#);
}

/// A process stopped by a signal went on when it got a budget while the day's was spent.
#[test]
fn more_money_does_not_continue_what_was_stopped() {
    let told = replay(
        r#"
        day 0.01
        spawn resident go
        ps 2
        signal 2 STOP
        budget 2 usd=1
        ps 2
        "#,
    );
    assert_snapshot!(told, @"
    > day 0.01
    > spawn resident go
    2 waits until 2026-11-23T00:00:00.000Z: the day's budget of $0.01 is spent: $0.01 left, up to $0.018037 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > ps 2
    2 is blocked for budget: the day's budget of $0.01 is spent: $0.01 left, up to $0.018037 needed; it renews at 2026-11-23T00:00:00.000Z; `[budget] usd_per_day` in aos.toml changes it
    > signal 2 STOP
    > budget 2 usd=1
    > ps 2
    2 is stopped for budget: stopped by a signal
    ");
}

/// After the wait the process was ended although it never had its last turn.
#[test]
fn a_last_turn_that_fails_in_passing_is_not_the_last() {
    let told = replay(
        r#"
        spawn resident go
        2: ok
        signal 2 TERM
        2 fails transient
        after 2
        2: goodbye
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: ok
    > signal 2 TERM
      → infer 2 turn [task, turn, term]
    > 2 fails transient
    > after 2
      → infer 2 turn [task, turn, term]
    > 2: goodbye
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 143: ended by TERM after its last turn = "goodbye"
    "#);
}

/// A parent woken by the end of its child started another before its own end reached it.
#[test]
fn a_tree_is_killed_as_a_whole() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {} => SPAWN_AGENT {"role":"r","task":"t"}
        signal 2 KILL tree
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {} => SPAWN_AGENT {"role":"r","task":"t"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > signal 2 KILL tree
    2 exited 137: killed
    3 KILL from 1
    3 exited 137: killed
      → cancel
    "#);
}

/// Below the first, the newest entry was shown for the signal, whatever it was.
#[test]
fn term_to_a_tree_is_told_to_each() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t"} => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
        3: => SLEEP {"seconds":600}
        4: => SLEEP {"seconds":600}
        signal 2 TERM tree
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"} => SPAWN_AGENT {"role":"r","task":"t"} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 3 turn [task]
      → infer 4 turn [task]
    > 3: => SLEEP {"seconds":600}
    > 4: => SLEEP {"seconds":600}
    > signal 2 TERM tree
    2 WAIT = EINTR TERM ended the wait
    3 TERM from 1
    3 SLEEP = EINTR TERM ended the wait
    4 TERM from 1
    4 SLEEP = EINTR TERM ended the wait
      → infer 2 turn [task, turn, spawn_agent, spawn_agent, wait, term]
      → infer 3 turn [task, turn, sleep, term]
      → infer 4 turn [task, turn, sleep, term]
    "#);
}

/// It went on before its queued calls were returned.
#[test]
fn a_stopped_process_starts_nothing_when_it_is_terminated() {
    let told = replay(
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"a","content":""} => EXEC_CMD {"cmd":"make"}
        signal 2 STOP
        done 2 FS_WRITE
        signal 2 TERM
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"a","content":""} => EXEC_CMD {"cmd":"make"}
      → call 2 FS_WRITE {"path":"a","content":""}
    > signal 2 STOP
    > done 2 FS_WRITE
    > signal 2 TERM
    2 EXEC_CMD = EINTR not run: TERM came first
      → infer 2 turn [task, turn, fs_write, exec_cmd, term]
    "#);
}

/// A killed process gave its whole share back while its inference was still to be paid.
#[test]
fn a_share_is_not_spent_twice() {
    let told = replay(
        r#"
        spawn resident usd=1 go
        2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.4}}
        signal 3 KILL
        budgets
        3: too late
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=1 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","budget":{"usd":0.4}}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent]
    > signal 3 KILL
    3 exited 137: killed
      → cancel
    > budgets
    2 of $1: spent $0.0011, reserved $0.018565, carved $0.4
    3 of $0.4: spent $0, reserved $0.006067, carved $0, ended
    > 3: too late
    3 charged 1000 + 100 tokens, $0.0011
    > budgets
    2 of $1: spent $0.0022, reserved $0.018565, carved $0
    3 of $0.4: spent $0.0011, reserved $0, carved $0, closed
    "#);
}

/// It stayed in the accounts above for ever.
#[test]
fn a_first_limit_moves_what_was_used_so_far() {
    let told = replay(
        r#"
        spawn resident usd=1 go
        2: => SPAWN_AGENT {"role":"r","task":"t"}
        2: ok
        budgets
        budget 3 usd=0.5
        budgets
        3: done
        budgets
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=1 go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent]
    > 2: ok
    > budgets
    2 of $1: spent $0.0022, reserved $0.006067, carved $0
    3 of no limit: spent $0, reserved $0.006067, carved $0
    > budget 3 usd=0.5
    > budgets
    2 of $1: spent $0.0022, reserved $0, carved $0.5
    3 of $0.5: spent $0, reserved $0.006067, carved $0
    > 3: done
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: answered = "done"
      → infer 2 turn [task, turn, spawn_agent, turn, end of 3]
    > budgets
    2 of $1: spent $0.0033, reserved $0.018904, carved $0
    3 of $0.5: spent $0.0011, reserved $0, carved $0, closed
    "#);
}

/// It waited without a word, or stayed in its inference for ever after a restart.
#[test]
fn a_process_without_its_model_says_so() {
    let told = replay(
        r#"
        spawn resident model=b go
        spawn oneshot model=b go
        2: ok
        drop b
        input 2 hello
        boot
        ps 2
        ps 3
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident model=b go
      → infer 2 turn [task]
    > spawn oneshot model=b go
      → infer 3 turn [task]
    > 2: ok
    > drop b
    > input 2 hello
    2 stopped: no model `b` is configured; configured are: free, m, small, wide; then `aos resume 2`
    > boot
    3 charged 17049 + 1000 tokens, $0.018049: the daemon stopped while it was under way: what it came to is not known
    3 exited 1: no model `b` is configured; configured are: free, m, small, wide
    > ps 2
    2 is stopped: no model `b` is configured; configured are: free, m, small, wide; then `aos resume 2`
    > ps 3
    3 is exited: no model `b` is configured; configured are: free, m, small, wide
    ");
}

/// Whoever the end of a process woke waited beside a free slot for the next input.
#[test]
fn a_freed_slot_is_used_at_once() {
    let told = replay(
        r#"
        spawn resident model=free go
        2: => SPAWN_AGENT {"role":"r","task":"t","model":"m","budget":{"usd":0.001}} => WAIT {}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","model":"m","budget":{"usd":0.001}} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    3 exited 5: the budget is spent: $0.001 left, up to $0.006067 needed; start it again with a larger budget
    2 WAIT = {"pid":3,"exit_code":5,"result":null}
      → infer 2 turn [task, turn, spawn_agent, wait]
    "#);
}

/// The child drew on a closed account.
#[test]
fn nobody_is_born_below_the_dead() {
    let told = replay(
        r#"
        spawn oneshot go
        2: done
        spawn resident parent=2 below
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot go
      → infer 2 turn [task]
    > 2: done
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: answered = "done"
    > spawn resident parent=2 below
    refused: ESRCH no process 2
    "#);
}

/// Who waited for exactly the person's words got them, and then stood in the queue as if nobody were waiting for it.
#[test]
fn whoever_answers_a_person_is_in_a_hurry() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_READ_STDIN {}
        slots 1
        spawn resident go
        spawn resident go
        input 2 hello
        3: done
        "#,
    );
    let after = told.split("> 3: done\n").nth(1).unwrap_or_default();
    assert!(after.contains("→ infer 2"), "{told}");
}

/// A process was killed while its model's server asked for quiet; the next to ask did not know of it.
#[test]
fn a_servers_wish_for_quiet_outlives_whoever_asked() {
    let told = replay(
        r#"
        spawn resident model=b go
        signal 2 KILL
        2 fails transient 30000
        spawn resident model=b go
        after 29
        after 2
        "#,
    );
    let (before, after) = told.split_once("> after 29\n").unwrap_or_default();
    assert!(!before.contains("→ infer 3"), "{told}");
    let (quiet, over) = after.split_once("> after 2\n").unwrap_or_default();
    assert!(!quiet.contains("→ infer 3") && over.contains("→ infer 3"), "{told}");
}

/// A call that a person was asked about beside one that ran was forgotten once that one was back: the answer fell on
/// whatever stood in its place by then, and ended the daemon where nothing did.
#[test]
fn nobody_is_asked_about_a_call_while_another_runs() {
    let policy = POLICY.replace("ops: [write, delete], verdict", "ops: [read, write, delete], verdict");
    let reads = r#"2: => FS_READ {"path":"a"} => FS_READ {"path":"asks/b"} => FS_WRITE {"path":"c","content":"x"}"#;
    for answer in ["approve p1", "reject p1 no"] {
        let told = replay_under(
            &policy,
            &format!(
                "spawn resident go\n{reads}\nps 2\ndone 2 FS_READ\nps 2\n{answer}\ndone 2 FS_READ\ndone 2 FS_WRITE"
            ),
        );
        let (before, asked) = told.split_once("> done 2 FS_READ").unwrap();
        assert!(before.contains("2 is running") && !before.contains("p1"), "{told}");
        let (asked, answered) = asked.split_once(&format!("> {answer}")).unwrap();
        assert!(asked.contains("2 is blocked for approval") && !asked.contains("FS_WRITE"), "{told}");
        assert_eq!(answered.contains("→ call 2 FS_READ"), answer.starts_with("approve"), "{told}");
        assert!(answered.contains("→ call 2 FS_WRITE") && answered.contains("fs_read, fs_read, fs_write]"), "{told}");
    }
    let held = policy.replace("\"asks/**\"", "\"rare/**\"").replace("\"holds/**\"", "\"asks/**\"");
    let told = replay_under(
        &held,
        &format!("spawn resident go\n{reads}\ndone 2 FS_READ\nafter 900\ndone 2 FS_READ\ndone 2 FS_WRITE"),
    );
    assert!(told.contains("fs_read, fs_read, fs_write]"), "{told}");
}

/// A child that no model may serve ended as it was born, came back to life for what was attached to it, and ended again.
#[test]
fn what_is_attached_brings_nobody_back_to_life() {
    let policy = POLICY.replace("    exec: {", "    models: {small: ask}\n    exec: {");
    let told = replay_under(
        &policy,
        r#"
        only small
        model small tier=small
        spawn resident model=small go
        2: => SPAWN_AGENT {"role":"r","task":"t","model":"auto","quarantine":true,"attachments":["a.txt"]}
        done 3 FS_READ {"content":"x"}
        budgets
        "#,
    );
    assert!(!told.contains("call 3") && told.matches("3 exited").count() <= 1, "{told}");
}

/// TERM let go on for a turn what a person had stopped, and CONT did not.
#[test]
fn an_agent_ends_what_a_person_has_stopped_without_a_last_turn() {
    let told = replay(
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t"}
        signal 3 STOP
        2: => KILL {"pid":3} => KILL {"pid":3,"signal":"KILL"}
        "#,
    );
    assert!(told.contains("2 KILL = EPERM process 3 is stopped until a person lets it go on"), "{told}");
    assert!(told.contains("3 exited 137") && !told.contains("→ infer 3 turn [task, term"), "{told}");
}

/// Writers beyond a full queue waited for ever for a reader that had ended.
#[test]
fn everybody_who_waits_to_write_learns_that_the_reader_has_ended() {
    let mut script = "spawn resident read\n2: ok\nsignal 2 STOP\nslots 1000\n".to_owned();
    script += "times 300 spawn oneshot pipe=2 write\ntimes 256 input 2 x\n";
    for writer in 3..303 {
        script += &format!("{writer}: last words\n");
    }
    script += "signal 2 KILL\n";
    let told = replay(&script);
    assert_eq!(told.matches("exited 0: answered = \"last words\"").count(), 300);
}

/// It named the port that another program had taken, and whoever was told sent their requests there.
#[test]
fn no_address_is_given_where_none_leads_to_the_daemon() {
    let told = replay(
        r#"
        nowhere
        spawn resident go
        2: => SYS_REGISTER_WEBHOOK {"path":"orders"}
        "#,
    );
    assert!(told.contains("2 SYS_REGISTER_WEBHOOK = EAGAIN no address leads here"), "{told}");
}

/// Anybody's signature with nothing was right, and the webhook was said to take signed requests only.
#[test]
fn a_secret_that_is_empty_is_none() {
    let told = replay(
        r#"
        spawn resident go
        2: => SYS_REGISTER_WEBHOOK {"path":"orders","secret":""} => SYS_REGISTER_WEBHOOK {"path":"orders","secret":" \n"}
        2: => SYS_REGISTER_WEBHOOK {"path":"orders","secret":"k"}
        "#,
    );
    let refused = "2 SYS_REGISTER_WEBHOOK = EINVAL at `/secret`: a secret that is empty proves nothing";
    assert_eq!(told.matches(refused).count(), 2, "{told}");
    assert!(told.contains(r#"2 SYS_REGISTER_WEBHOOK = {"url":"#), "{told}");
}

/// It was said to be allowed, for a process that makes no call any more and a child that none like it may have.
#[test]
fn what_is_said_of_a_process_that_has_ended_is_said_to_be_so() {
    let told = replay(
        r#"
        spawn resident go
        explain 2 FS_READ {"path":"a"}
        signal 2 KILL
        explain 2 FS_READ {"path":"a"}
        explain 2 SPAWN_AGENT {"role":"r","task":"t","permissions":["NET_FETCH **"]}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ")).collect();
    assert!(said[0].starts_with("allow by") && !said[0].contains("ended"), "{told}");
    assert!(said[1].starts_with("allow by") && said[1].ends_with("; it has ended"), "{told}");
    assert!(said[2].starts_with("deny by") && said[2].ends_with("; it has ended"), "{told}");
}

/// What came in the middle of something was shown at once where the turn was put off, and nothing journaled said so: a
/// fork of what had ended lacked it.
#[test]
fn a_turn_that_is_put_off_shows_what_it_would_have_shown() {
    let told = replay(
        r#"
        spawn resident usd=0.0185 go
        2: => SEND_MSG {"to_pid":2,"content":"a note"}
        budget 2 usd=1
        2: ok
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=0.0185 go
      → infer 2 turn [task]
    > 2: => SEND_MSG {"to_pid":2,"content":"a note"}
    2 nearly spent: $0.0174 left of $0.0185, and one inference may take $0.018037
    2 message from 2: a note
    2 SEND_MSG = {"message_id":"m10"}
    2 stopped: the budget is spent: $0.0174 left, up to $0.018556 needed; `aos budget 2 --usd MORE` gives it more
    > budget 2 usd=1
      → infer 2 turn [task, turn, send_msg]
    > 2: ok
      → infer 2 turn [task, turn, send_msg, turn, message a note]
    "#);
}

/// It ended as if it had had its last turn, which nobody had paid yet.
#[test]
fn a_last_turn_that_a_person_pays_in_time_is_had() {
    let told = replay(
        r#"
        spawn resident usd=0.0185 go
        2: ok
        signal 2 TERM
        budget 2 usd=1
        2: bye
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident usd=0.0185 go
      → infer 2 turn [task]
    > 2: ok
    2 nearly spent: $0.0174 left of $0.0185, and one inference may take $0.018037
    > signal 2 TERM
    2 stopped: the budget is spent: $0.0174 left, up to $0.018331 needed; `aos budget 2 --usd MORE` gives it more
    > budget 2 usd=1
      → infer 2 turn [task, turn, term]
    > 2: bye
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 143: ended by TERM after its last turn = "bye"
    "#);
}

/// A reply is read in the widest of the encodings where the window is read back, and a summary up to one that says nothing
/// in that was lost (the rig compares the windows after each line).
#[test]
fn a_summary_up_to_a_reply_that_says_nothing_elsewhere_is_in_the_past() {
    let (half, long) = ("word ".repeat(1500), "x ".repeat(2500));
    let script = format!(
        "spawn resident model=small go\n2 cut: {{\"calls\":[],\"say\":\"{half}\ninput 2 {long}\n2: so far\n2: ok\ninput 2 more"
    );
    let told = replay(&script);
    assert!(told.contains("infer 2 summary [task, turn]\n> 2: ok\n2 compacted"), "{told}");
}

/// Where nothing is paid, a model that makes the same calls again and again did so for ever.
#[test]
fn a_process_whose_replies_are_of_no_use_is_not_asked_for_ever() {
    let rounds = |mode: &str, round: &str, count: usize, then: &str| {
        replay(&format!("spawn {mode} model=free go\n{}{then}", format!("{round}\n").repeat(count)))
    };
    let same = "2: => FS_READ {\"path\":\"a\"}\ndone 2 FS_READ";
    let told = rounds("oneshot", same, 52, "");
    assert_eq!(told.matches("infer 2").count(), 52, "two that make it a loop, and fifty of no use: {told}");
    assert!(told.contains("2 exited 1: 50 replies of `free` in a row were of no use"), "{told}");
    // A person may let it go on, and it has as many again.
    let told = rounds("resident", same, 52, "signal 2 CONT\n2: done\n");
    let (before, after) = told.split_once("> signal 2 CONT").unwrap();
    assert!(before.contains("2 stopped: 50 replies") && before.contains("`aos resume 2`"), "{told}");
    assert_eq!((after.matches("infer 2").count(), after.matches("stopped").count()), (1, 0), "{told}");
    // Nor one that nobody understands.
    let told = rounds("oneshot", "2: => NO_SUCH_CALL {}", 50, "");
    assert!(told.contains("2 exited 1: 50 replies"), "{told}");
    // What comes to something else each time goes on.
    let mut script = String::from("spawn oneshot model=free go\n");
    for nth in 0..100 {
        script += &format!("2: => FS_READ {{\"path\":\"a\"}}\ndone 2 FS_READ {{\"content\":\"{nth}\"}}\n");
    }
    let told = replay(&script);
    assert!(!told.contains("2 exited"), "{told}");
    // Two by turns are no news either.
    let (one, other) = (same, same.replace("\"a\"", "\"b\""));
    let told = rounds("oneshot", &format!("{one}\n{other}"), 40, "");
    assert!(told.contains("2 exited 1: 50 replies"), "{told}");
    // Whoever waits in between asks again for a reason.
    let told = rounds("resident", &format!("{same}\n2: => SLEEP {{\"seconds\":1}}\nafter 1"), 60, "");
    assert!(!told.contains("2 stopped"), "{told}");
}

/// It ran at the start of a daemon that had been off when its window ended, before anybody could say no.
#[test]
fn a_window_is_open_only_while_the_daemon_runs() {
    let held = r#"
        spawn resident go
        2: => FS_WRITE {"path":"holds/a","content":""}
        after 600
        off 86400
    "#;
    let told = replay(&format!("{held}reject p1 no"));
    assert!(told.contains("2 FS_WRITE = EREJECTED no") && !told.contains("call 2 FS_WRITE"), "{told}");
    let told = replay(&format!("{held}after 901"));
    let (off, after) = told.split_once("> after 901").unwrap();
    assert!(!off.contains("call 2 FS_WRITE") && after.contains("call 2 FS_WRITE"), "{told}");
}
