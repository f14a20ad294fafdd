//! Where content came from: which labels a process carries, and what the policy makes of it.
//!
//! Every boot in a script replays all of it and asserts that the same labels come out.

use insta::assert_snapshot;

use crate::rig::replay_under;

pub(crate) const LABELS: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, SYS_SCHEDULE, ASK_USER, PROPOSE, "SYS_REGISTER_WEBHOOK **"]
    fs:
      - {path: "**", ops: [read, write, delete]}
      - {path: "inbox/**", ops: [read], label: untrusted.file}
    exec: {shell: true, programs: [sh], net: none}
    net:
      - {to: "example.com:443", allow: ["GET /**"]}
      - {to: "vault.example.com:443", allow: ["GET /**"], label: secret}
    memory: [{namespace: "**", ops: [read, write]}]
    ipc: [{peer: "*", ops: [send]}]
labels:
  - {when: untrusted, calls: [EXEC_CMD, SPAWN_AGENT], verdict: ask}
  - {when: secret, to: any, verdict: deny}
"#;

/// What is read again at a start carries what the rules of now say of it.
#[test]
fn what_is_read_again_after_a_stop_is_labelled_by_the_policy_of_now() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => FS_READ {"path":"outbox/a"}
        meanwhile policy inbox/** => outbox/**
        boot
        done 2 FS_READ
        2: => EXEC_CMD {"cmd":"c"}
        "#,
    );
    let told = told.split_once("> boot").unwrap().1;
    assert_snapshot!(told, @r#"

      → another policy
      → call 2 FS_READ {"path":"outbox/a"}
    > done 2 FS_READ
    2 labelled untrusted.file
      → infer 2 turn [task, turn, fs_read]
    > 2: => EXEC_CMD {"cmd":"c"}
    2 ask by label: labels[0] untrusted
    2 proposal p1 pending
    "#);
}

/// What such a rule says is on whoever writes there; what lies there is labelled by the rule that lets it be read.
#[test]
fn a_label_without_reading_is_on_whoever_writes() {
    let policy = LABELS.replace("inbox/**\", ops: [read]", "inbox/**\", ops: [write]");
    assert_ne!(policy, LABELS);
    let told = |script: &str| replay_under(&policy, script);
    let wrote = told("spawn resident go\n2: => FS_WRITE {\"path\":\"inbox/a\",\"content\":\"x\"}\ndone 2 FS_WRITE\n");
    assert!(wrote.contains("2 labelled untrusted.file"), "{wrote}");
    let read = told("spawn resident go\n2: => FS_READ {\"path\":\"inbox/a\"}\ndone 2 FS_READ\n");
    assert!(!read.contains("labelled"), "{read}");
}

/// It was labelled as if the other side had spoken, and then a person was asked about `ls`.
#[test]
fn a_request_that_received_nothing_labels_nobody() {
    let script = |end: &str| {
        let script = format!(
            "spawn resident go\n2: => NET_FETCH {{\"url\":\"https://vault.example.com/\"}}\n{end}\n\
             2: => EXEC_CMD {{\"cmd\":\"ls\"}}\n"
        );
        replay_under(LABELS, &script)
    };
    let unheard = script(r#"lost 2 NET_FETCH {"received":false}"#);
    assert!(!unheard.contains("labelled") && unheard.contains("→ call 2 EXEC_CMD"), "{unheard}");
    // The words of an error may be the server's, and what says so of another call is no driver of the network.
    let heard = script("lost 2 NET_FETCH");
    assert!(heard.contains("labelled untrusted.web, secret"), "{heard}");
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => FS_READ {"path":"inbox/a"}
        lost 2 FS_READ {"received":false}
        "#,
    );
    assert!(told.contains("labelled untrusted.file"), "{told}");
}

/// The call beside it was written before anybody had seen the answer. A person's words carry nothing.
#[test]
fn what_came_from_the_network_leads_to_no_command_unasked() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => NET_FETCH {"url":"https://example.com/"} => EXEC_CMD {"cmd":"b"}
        done 2 NET_FETCH
        done 2 EXEC_CMD
        input 2 thanks
        explain 2 EXEC_CMD {"cmd":"c"}
        explain 2 FS_WRITE {"path":"a","content":""}
        boot
        2: => EXEC_CMD {"cmd":"c"}
        approve p1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => NET_FETCH {"url":"https://example.com/"} => EXEC_CMD {"cmd":"b"}
      → call 2 NET_FETCH {"url":"https://example.com/"}
    > done 2 NET_FETCH
      → call 2 EXEC_CMD {"cmd":"b"}
    > done 2 EXEC_CMD
    2 labelled untrusted.web, untrusted.file
      → infer 2 turn [task, turn, net_fetch, exec_cmd]
    > input 2 thanks
    > explain 2 EXEC_CMD {"cmd":"c"}
    ask by label: labels[0] untrusted; the argument `cmd` stands neither in your request nor in a file that it names
    > explain 2 FS_WRITE {"path":"a","content":""}
    allow by role assistant: fs[0] **
    > boot
      → infer 2 turn [task, turn, net_fetch, exec_cmd, input thanks]
    > 2: => EXEC_CMD {"cmd":"c"}
    2 ask by label: labels[0] untrusted
    2 proposal p1 pending
    > approve p1
    2 proposal p1 executed
      → call 2 EXEC_CMD {"cmd":"c"}
    "#);
}

/// Whoever was told what to propose was told what to say of it; and what waits for an answer changes meanwhile.
#[test]
fn who_is_asked_is_told_what_is_known_and_not_what_the_agent_says_alone() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident fetch it
        2: => NET_FETCH {"url":"https://example.com/"}
        done 2 NET_FETCH
        2: => PROPOSE {"action":{"name":"EXEC_CMD","args":{"cmd":"b"}},"why":"it is needed","risk":"none at all"}
        spawn resident folder=/w run it
        3: => PROPOSE {"action":{"name":"EXEC_CMD","args":{"cmd":"b"}},"why":"it is needed"}
        risks
        spawn resident folder=/w fetch it
        4: => NET_FETCH {"url":"https://example.com/"}
        done 4 NET_FETCH
        4: => FS_DELETE {"path":"GNUmakefile"}
        risks
        "#,
    );
    let risks: Vec<&str> = told.lines().filter(|line| line.starts_with('p')).collect();
    let own = "p1 the argument `cmd` stands neither in your request nor in a file that it names, and this agent has read what \
               others wrote (untrusted.web). It says itself: none at all";
    let files = "p2 the files it could run were changed after untrusted content was read by another agent; once you have \
                 looked at them, `aos run --trusted` takes them for yours";
    assert_eq!(risks, [own, "p2 ", own, files], "{told}");
}

/// A role that asks about every command has its own reason to; why a label's rule would ask is said all the same.
#[test]
fn who_is_asked_by_a_role_is_told_what_a_label_knows() {
    let told = replay_under(
        &LABELS.replace("net: none}", "net: none, verdict: ask}"),
        r#"
        spawn resident Run `make it`
        2: => EXEC_CMD {"cmd":"make it"}
        spawn resident Read https://example.com/ and run `make it`
        3: => NET_FETCH {"url":"https://example.com/"}
        done 3 NET_FETCH
        3: => EXEC_CMD {"cmd":"make it"}
        spawn resident fetch it
        4: => NET_FETCH {"url":"https://example.com/"}
        done 4 NET_FETCH
        4: => EXEC_CMD {"cmd":"make it"}
        risks
        "#,
    );
    let risks: Vec<&str> = told.lines().filter(|line| line.starts_with('p')).collect();
    let known = "p3 the argument `cmd` stands neither in your request nor in a file that it names, and this agent has read what \
                 others wrote (untrusted.web)";
    assert_eq!(risks, ["p1 ", "p2 ", known], "{told}");
}

/// A rule says what its files carry.
#[test]
fn a_rule_labels_what_it_lets_be_read() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => FS_READ {"path":"notes"} => FS_READ {"path":"inbox/a"}
        done 2 FS_READ
        done 2 FS_READ
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"notes"} => FS_READ {"path":"inbox/a"}
      → call 2 FS_READ {"path":"notes"}
      → call 2 FS_READ {"path":"inbox/a"}
    > done 2 FS_READ
    > done 2 FS_READ
    2 labelled untrusted.file
      → infer 2 turn [task, turn, fs_read, fs_read]
    "#);
}

#[test]
fn a_secret_goes_to_no_model_elsewhere() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => NET_FETCH {"url":"https://vault.example.com/"}
        done 2 NET_FETCH
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => NET_FETCH {"url":"https://vault.example.com/"}
      → call 2 NET_FETCH {"url":"https://vault.example.com/"}
    > done 2 NET_FETCH
    2 labelled untrusted.web, secret
    2 stopped: the policy keeps what this process holds (untrusted.web, secret) from model `m`, which is elsewhere, by label: labels[1] secret; run it on a model of this machine (`local = true`); then `aos resume 2`
    "#);
}

/// Messages, pipes, children and forks carry what the one who speaks has seen.
#[test]
fn what_is_said_carries_what_was_seen() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident name=web go
        2: => NET_FETCH {"url":"https://example.com/"}
        done 2 NET_FETCH
        spawn resident name=ann go
        3: => RECV_MSG {}
        2: => SEND_MSG {"to":"ann","content":"x"}
        spawn resident name=bob go
        4: => SEND_MSG {"to":"bob","content":"to itself"} => SYS_READ_STDIN {}
        spawn resident name=cat pipe=4 go
        5: => NET_FETCH {"url":"https://example.com/"}
        done 5 NET_FETCH
        5: words
        fork 2
        2: => SPAWN_AGENT {"role":"r","task":"t"}
        approve p1
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident name=web go
      → infer 2 turn [task]
    > 2: => NET_FETCH {"url":"https://example.com/"}
      → call 2 NET_FETCH {"url":"https://example.com/"}
    > done 2 NET_FETCH
    2 labelled untrusted.web
      → infer 2 turn [task, turn, net_fetch]
    > spawn resident name=ann go
      → infer 3 turn [task]
    > 3: => RECV_MSG {}
    > 2: => SEND_MSG {"to":"ann","content":"x"}
    3 message from 2: x
    3 RECV_MSG = {"messages":[{"from_pid":2,"content":"x","at":"2026-11-22T00:00:00.000Z"}]}
    2 SEND_MSG = {"message_id":"m22"}
    3 labelled untrusted.web, untrusted.message
      → infer 2 turn [task, turn, net_fetch, turn, send_msg]
      → infer 3 turn [task, turn, recv_msg]
    > spawn resident name=bob go
      → infer 4 turn [task]
    > 4: => SEND_MSG {"to":"bob","content":"to itself"} => SYS_READ_STDIN {}
    4 message from 4: to itself
    4 SEND_MSG = {"message_id":"m34"}
    > spawn resident name=cat pipe=4 go
      → infer 5 turn [task]
    > 5: => NET_FETCH {"url":"https://example.com/"}
      → call 5 NET_FETCH {"url":"https://example.com/"}
    > done 5 NET_FETCH
    5 labelled untrusted.web
      → infer 5 turn [task, turn, net_fetch]
    > 5: words
    4 input from 5: words
    4 SYS_READ_STDIN = {"text":"words"}
    4 labelled untrusted.web
      → infer 4 turn [task, turn, send_msg, sys_read_stdin]
    > fork 2
    6 labelled untrusted.web
      → infer 6 turn [task, turn, net_fetch, turn, send_msg]
    > 2: => SPAWN_AGENT {"role":"r","task":"t"}
    2 ask by label: labels[0] untrusted
    2 proposal p1 pending
    > approve p1
    2 proposal p1 executed
    7 spawned by 2
    7 labelled untrusted.web
    2 SPAWN_AGENT = {"pid":7}
      → infer 7 turn [task]
      → infer 2 turn [task, turn, net_fetch, turn, send_msg, turn, spawn_agent]
    > boot
      → infer 7 turn [task]
      → infer 3 turn [task, turn, recv_msg]
      → infer 4 turn [task, turn, send_msg, sys_read_stdin, message to itself]
      → infer 6 turn [task, turn, net_fetch, turn, send_msg]
      → infer 2 turn [task, turn, net_fetch, turn, send_msg, turn, spawn_agent]
    "#);
}

/// A fork is shown all that has come, also what the first one has not read yet, or never will.
#[test]
fn a_fork_carries_what_was_still_to_be_read() {
    for (comes, label) in [
        ("3: => SEND_MSG {\"to_pid\":2,\"content\":\"x\"}", "untrusted.web, untrusted.message"),
        (
            "spawn resident pipe=2 go\n4: => NET_FETCH {\"url\":\"https://example.com/\"}\ndone 4 NET_FETCH\n4: x",
            "untrusted.web",
        ),
        ("hook x", "untrusted.webhook"),
    ] {
        for ends in ["", "signal 2 KILL"] {
            let told = replay_under(
                LABELS,
                &format!(
                    "spawn resident go\n2: => SYS_REGISTER_WEBHOOK {{\"path\":\"x\"}}\n2: ok\nsignal 2 STOP\n\
                     spawn resident go\n3: => NET_FETCH {{\"url\":\"https://example.com/\"}}\ndone 3 NET_FETCH\n\
                     {comes}\n{ends}\nfork 2\nboot"
                ),
            );
            let fork = if comes.contains("pipe") { 5 } else { 4 };
            assert!(told.contains(&format!("{fork} labelled {label}\n")), "{told}");
            assert!(!told.contains("2 labelled"), "{told}");
        }
    }
}

/// Through files and memory that several share; what is one's own stays so.
#[test]
fn what_is_kept_carries_what_was_seen() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident folder=/shared go
        2: => NET_FETCH {"url":"https://example.com/"} => FS_WRITE {"path":"early","content":"written before it was seen"}
        done 2 NET_FETCH
        done 2 FS_WRITE
        spawn resident folder=/shared go
        3: => FS_READ {"path":"early"}
        done 3 FS_READ
        2: => FS_WRITE {"path":"late","content":"x"} => MEM_WRITE {"key":"k","value":"v"} => MEM_WRITE {"namespace":"team","key":"k","value":"v"}
        done 2 FS_WRITE
        done 2 MEM_WRITE
        done 2 MEM_WRITE
        3: => FS_READ {"path":"late"}
        done 3 FS_READ
        spawn resident go
        4: => FS_READ {"path":"late"} => MEM_READ {"query":"k"}
        done 4 FS_READ
        done 4 MEM_READ
        4: => MEM_READ {"namespace":"team","query":"k"}
        done 4 MEM_READ
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/shared go
      → infer 2 turn [task]
    > 2: => NET_FETCH {"url":"https://example.com/"} => FS_WRITE {"path":"early","content":"written before it was seen"}
      → call 2 NET_FETCH {"url":"https://example.com/"}
    > done 2 NET_FETCH
      → call 2 FS_WRITE {"path":"early","content":"written before it was seen"}
    > done 2 FS_WRITE
    2 labelled untrusted.web
      → infer 2 turn [task, turn, net_fetch, fs_write]
    > spawn resident folder=/shared go
      → infer 3 turn [task]
    > 3: => FS_READ {"path":"early"}
      → call 3 FS_READ {"path":"early"}
    > done 3 FS_READ
      → infer 3 turn [task, turn, fs_read]
    > 2: => FS_WRITE {"path":"late","content":"x"} => MEM_WRITE {"key":"k","value":"v"} => MEM_WRITE {"namespace":"team","key":"k","value":"v"}
      → call 2 FS_WRITE {"path":"late","content":"x"}
    > done 2 FS_WRITE
      → call 2 MEM_WRITE {"key":"k","value":"v"}
    > done 2 MEM_WRITE
      → call 2 MEM_WRITE {"key":"k","value":"v","namespace":"team"}
    > done 2 MEM_WRITE
      → infer 2 turn [task, turn, net_fetch, fs_write, turn, fs_write, mem_write, mem_write]
    > 3: => FS_READ {"path":"late"}
      → call 3 FS_READ {"path":"late"}
    > done 3 FS_READ
    3 labelled untrusted.web
      → infer 3 turn [task, turn, fs_read, turn, fs_read]
    > spawn resident go
      → infer 4 turn [task]
    > 4: => FS_READ {"path":"late"} => MEM_READ {"query":"k"}
      → call 4 FS_READ {"path":"late"}
      → call 4 MEM_READ {"query":"k"}
    > done 4 FS_READ
    > done 4 MEM_READ
      → infer 4 turn [task, turn, fs_read, mem_read]
    > 4: => MEM_READ {"namespace":"team","query":"k"}
      → call 4 MEM_READ {"query":"k","namespace":"team"}
    > done 4 MEM_READ
    4 labelled untrusted.web
      → infer 4 turn [task, turn, fs_read, mem_read, turn, mem_read]
    > boot
      → infer 2 turn [task, turn, net_fetch, fs_write, turn, fs_write, mem_write, mem_write]
      → infer 3 turn [task, turn, fs_read, turn, fs_read]
      → infer 4 turn [task, turn, fs_read, mem_read, turn, mem_read]
    "#);
}

/// Its parent is asked for nothing: a quarantined child has no grants, and a number holds no instruction.
#[test]
fn a_quarantined_child_returns_numbers_clean_and_words_labelled() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => WAIT {}
        hook x
        3: => SYS_EXIT {"result":[7,true]}
        2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => WAIT {}
        4: => SYS_EXIT {"result":{"run":"rm -rf"}}
        2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => SPAWN_AGENT {"role":"r","task":"t"}
        boot
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => WAIT {}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
    > hook x
    no route
    > 3: => SYS_EXIT {"result":[7,true]}
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: SYS_EXIT = [7,true]
    2 WAIT = {"pid":3,"exit_code":0,"result":[7,true]}
      → infer 2 turn [task, turn, spawn_agent, wait]
    > 2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => WAIT {}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
      → infer 4 turn [task]
    > 4: => SYS_EXIT {"result":{"run":"rm -rf"}}
    4 charged 1000 + 100 tokens, $0.0011
    4 exited 0: SYS_EXIT = {"run":"rm -rf"}
    2 WAIT = {"pid":4,"exit_code":0,"result":{"run":"rm -rf"}}
    2 labelled untrusted.child
      → infer 2 turn [task, turn, spawn_agent, wait, turn, spawn_agent, wait]
    > 2: => SPAWN_AGENT {"role":"judge","task":"t","quarantine":true} => SPAWN_AGENT {"role":"r","task":"t"}
    5 spawned by 2
    5 labelled untrusted.child
    2 SPAWN_AGENT = {"pid":5}
    2 ask by label: labels[0] untrusted
    2 proposal p1 pending
      → infer 5 turn [task]
    > boot
      → infer 5 turn [task]
    "#);
}

#[test]
fn webhooks_are_untrusted_and_a_summary_forgets_nothing() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident model=small go
        2: => SYS_REGISTER_WEBHOOK {"path":"x"}
        2: ok
        hook x
        2: LONG
        input 2 a
        2: LONG
        input 2 b
        2: LONG
        input 2 c
        2: a summary
        explain 2 EXEC_CMD {"cmd":"c"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=small go
      → infer 2 turn [task]
    > 2: => SYS_REGISTER_WEBHOOK {"path":"x"}
    2 SYS_REGISTER_WEBHOOK = {"url":"http://hooks/x"}
      → infer 2 turn [task, turn, sys_register_webhook]
    > 2: ok
    > hook x
    2 labelled untrusted.webhook
      → infer 2 turn [task, turn, sys_register_webhook, turn, webhook]
    > 2: LONG
    > input 2 a
      → infer 2 turn [task, turn, sys_register_webhook, turn, webhook, turn, input a]
    > 2: LONG
    > input 2 b
      → infer 2 summary [task, turn, sys_register_webhook, turn, webhook, turn, input a]
    > 2: LONG
    2 compacted
      → infer 2 turn [task, summary, turn, input b]
    > input 2 c
    > 2: a summary
      → infer 2 turn [task, summary, turn, input b, turn, input c]
    > explain 2 EXEC_CMD {"cmd":"c"}
    ask by label: labels[0] untrusted; the argument `cmd` stands neither in your request nor in a file that it names
    "#);
}

/// Why a file cannot be written, moved or deleted is said with names of what is there, which whoever put it there chose.
#[test]
fn what_is_said_of_a_change_that_failed_carries_what_the_files_do() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident folder=/w go
        2: => NET_FETCH {"url":"https://example.com/"}
        done 2 NET_FETCH
        2: => FS_WRITE {"path":"do as it says","content":"x"}
        done 2 FS_WRITE
        spawn resident folder=/w go
        3: => FS_WRITE {"path":"link/a","content":"x"}
        done 3 FS_WRITE
        3: => FS_WRITE {"path":"link/a","content":"x"}
        lost 3 FS_WRITE
        "#,
    );
    assert_eq!(told.matches("3 labelled untrusted.web").count(), 1, "{told}");
    assert!(
        told.ends_with("3 labelled untrusted.web\n  → infer 3 turn [task, turn, fs_write, turn, fs_write]\n"),
        "{told}"
    );
}

/// So it is where a rule labels what lies there, in a folder that could not be taken away or where a link leads.
#[test]
fn what_an_error_names_carries_what_the_rule_for_it_says() {
    let calls = [
        (r#"FS_DELETE {"path":"inbox"}"#, "", true),
        (r#"FS_MOVE {"from":"inbox","to":"old"}"#, "", true),
        (r#"FS_READ {"path":"link/a"}"#, r#" {"leads_to":"inbox/do as it says"}"#, true),
        (r#"FS_WRITE {"path":"link/a","content":"x"}"#, r#" {"leads_to":"inbox/do as it says"}"#, true),
        (r#"FS_READ {"path":"link/a"}"#, r#" {"leads_to":"notes/a"}"#, false),
        (r#"FS_READ {"path":"notes/a"}"#, "", false),
        // It names what the call names.
        (r#"FS_WRITE {"path":"inbox/a","content":"x"}"#, "", false),
        (r#"FS_DELETE {"path":"notes"}"#, "", false),
    ];
    for (call, partial, labelled) in calls {
        let name = call.split_once(' ').unwrap().0;
        let told = replay_under(LABELS, &format!("spawn resident go\n2: => {call}\nlost 2 {name}{partial}"));
        assert_eq!(told.contains("2 labelled untrusted.file"), labelled, "{call}{partial}: {told}");
    }
    // The call that is made is the one that was proposed.
    let propose = r#"PROPOSE {"action":{"name":"FS_DELETE","args":{"path":"inbox"}},"why":"x"}"#;
    let told = replay_under(LABELS, &format!("spawn resident go\n2: => {propose}\napprove p1\nlost 2 FS_DELETE"));
    assert!(told.contains("2 labelled untrusted.file"), "{told}");
}

/// A file that a rule labels is no cleaner for having been moved, searched, or read by a command.
#[test]
fn a_labelled_file_stays_labelled_wherever_it_goes() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => FS_MOVE {"from":"inbox","to":"mine"}
        done 2 FS_MOVE
        2: => FS_READ {"path":"mine/a"}
        done 2 FS_READ
        spawn resident go
        3: => EXEC_CMD {"cmd":"cat inbox/a"}
        done 3 EXEC_CMD
        spawn resident go
        4: => FS_SEARCH {"pattern":"x"}
        done 4 FS_SEARCH
        spawn resident go
        5: => FS_SEARCH {"pattern":"x","path":"notes"}
        done 5 FS_SEARCH
        spawn resident go
        6: => FS_EDIT {"path":"inbox/a","edits":[{"old":"x","new":"y"}]}
        done 6 FS_EDIT
        spawn resident go
        7: => FS_LIST {"path":"inbox"}
        done 7 FS_LIST
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_MOVE {"from":"inbox","to":"mine"}
      → call 2 FS_MOVE {"from":"inbox","to":"mine"}
    > done 2 FS_MOVE
      → infer 2 turn [task, turn, fs_move]
    > 2: => FS_READ {"path":"mine/a"}
      → call 2 FS_READ {"path":"mine/a"}
    > done 2 FS_READ
    2 labelled untrusted.file
      → infer 2 turn [task, turn, fs_move, turn, fs_read]
    > spawn resident go
      → infer 3 turn [task]
    > 3: => EXEC_CMD {"cmd":"cat inbox/a"}
      → call 3 EXEC_CMD {"cmd":"cat inbox/a"}
    > done 3 EXEC_CMD
    3 labelled untrusted.file
      → infer 3 turn [task, turn, exec_cmd]
    > spawn resident go
      → infer 4 turn [task]
    > 4: => FS_SEARCH {"pattern":"x"}
      → call 4 FS_SEARCH {"pattern":"x"}
    > done 4 FS_SEARCH
    4 labelled untrusted.file
      → infer 4 turn [task, turn, fs_search]
    > spawn resident go
      → infer 5 turn [task]
    > 5: => FS_SEARCH {"pattern":"x","path":"notes"}
      → call 5 FS_SEARCH {"pattern":"x","path":"notes"}
    > done 5 FS_SEARCH
      → infer 5 turn [task, turn, fs_search]
    > spawn resident go
      → infer 6 turn [task]
    > 6: => FS_EDIT {"path":"inbox/a","edits":[{"old":"x","new":"y"}]}
      → call 6 FS_EDIT {"path":"inbox/a","edits":[{"old":"x","new":"y"}]}
    > done 6 FS_EDIT
    6 labelled untrusted.file
      → infer 6 turn [task, turn, fs_edit]
    > spawn resident go
      → infer 7 turn [task]
    > 7: => FS_LIST {"path":"inbox"}
      → call 7 FS_LIST {"path":"inbox"}
    > done 7 FS_LIST
    7 labelled untrusted.file
      → infer 7 turn [task, turn, fs_list]
    "#);
}

/// A command in a workspace where none of the labelled files is was taken to have read them.
#[test]
fn a_rule_for_files_labels_a_command_where_its_driver_found_such_a_file() {
    let told = replay_under(
        LABELS,
        r#"
        spawn resident go
        2: => EXEC_CMD {"cmd":"echo"}
        done 2 EXEC_CMD {"labels_found":""}
        2: => EXEC_CMD {"cmd":"echo"} => FS_READ {"path":"notes"}
        done 2 EXEC_CMD {"labels_found":"personal"}
        done 2 FS_READ
        2: => FS_READ {"path":"notes"}
        done 2 FS_READ
        2: => EXEC_CMD {"cmd":"echo"}
        done 2 EXEC_CMD {"labels_found":"untrusted.file, secret"}
        2: => EXEC_CMD {"cmd":"echo"}
        "#,
    );
    let labelled: Vec<&str> = told.lines().filter(|line| line.contains(" labelled ")).collect();
    assert_eq!(labelled, ["2 labelled untrusted.file"], "{told}");
    // Not before the one that found it, and asked about after it.
    let (before, after) = told.split_once("2 labelled").unwrap();
    assert!(!before.contains(" ask ") && before.matches("→ call 2 EXEC_CMD").count() == 3, "{told}");
    assert!(after.contains("ask by label: labels[0] untrusted"), "{told}");
}

/// What a command has copied is in place a moment before its result is here.
#[test]
fn what_is_read_beside_a_command_that_may_copy_is_labelled() {
    let read = |by_then: &str| {
        let told = replay_under(
            LABELS,
            &format!(
                r#"
                spawn resident folder=/w go
                spawn resident folder=/w go
                2: => EXEC_CMD {{"cmd":"cp inbox/a notes"}}
                {by_then}
                3: => FS_READ {{"path":"notes"}}
                done 3 FS_READ
                "#
            ),
        );
        told.contains("3 labelled untrusted.file")
    };
    assert!(read(""), "it is under way");
    assert!(read("done 2 EXEC_CMD"), "nothing is said of what it found");
    assert!(!read(r#"done 2 EXEC_CMD {"labels_found":""}"#));
}
