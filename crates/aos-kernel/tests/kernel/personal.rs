//! Personal data: what was shown is a label, what leaves has tokens, and what must stay goes to a model that is here.

use insta::assert_snapshot;

use crate::rig::replay_under;

fn policy(rule: &str) -> String {
    format!(
        r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [ASK_USER, PROPOSE]
    fs: [{{path: "**", ops: [read, write, delete]}}]
    exec: {{shell: true, programs: [sh], net: none}}
    net: [{{to: "example.com:443", allow: ["POST /**"]}}]
labels:
{rule}
personal_data: {{detect: [email]}}
"#
    )
}

/// The lines of a script's output that hold a word.
fn lines<'t>(told: &'t str, word: &str) -> Vec<&'t str> {
    told.lines().filter(|line| !line.starts_with('>') && line.contains(word)).map(str::trim).collect()
}

#[test]
fn what_leaves_has_tokens_and_what_stays_has_the_values() {
    let redact = policy("  - {when: personal, to: model.remote, do: redact}");
    let told = replay_under(
        &redact,
        r#"
        spawn resident go
        shown a@example.com [EMAIL_1]
        2: => FS_WRITE {"path":"a","content":"to a@example.com"} => NET_SEND {"url":"https://example.com/a@example.com","method":"POST","body":"a@example.com"}
        done 2 FS_WRITE
        boot
        done 2 NET_SEND
        2: => EXEC_CMD {"cmd":"echo a@example.com"}
        "#,
    );
    assert_eq!(lines(&told, "labelled"), ["2 labelled personal"], "{told}");
    assert!(lines(&told, "call 2 FS_WRITE")[0].contains("to a@example.com"), "{told}");
    let sent = lines(&told, "call 2 NET_SEND")[0];
    assert!(sent.contains("https://example.com/[EMAIL_1]") && !sent.contains("a@example.com"), "{told}");
    assert!(lines(&told, "call 2 EXEC_CMD")[0].contains("echo a@example.com"), "it has no network: {told}");
}

/// What a child is shown of the network is asked for by its parent: the address leaves this machine.
#[test]
fn an_address_that_a_child_is_shown_has_tokens() {
    let redact = policy("  - {when: personal, to: model.remote, do: redact}")
        .replace("PROPOSE]", "PROPOSE, SPAWN_AGENT]")
        .replace("POST /**", "GET /**");
    let spawn = r#"{"role":"r","task":"of a@example.com","quarantine":true,"attachments":["https://example.com/a@example.com","a@example.com.txt"]}"#;
    let told = replay_under(
        &redact,
        &format!(
            r#"
            spawn resident go
            shown a@example.com [EMAIL_1]
            2: => SPAWN_AGENT {spawn}
            shown a@example.com [EMAIL_1]
            2: => PROPOSE {{"action":{{"name":"SPAWN_AGENT","args":{spawn}}},"why":"?"}}
            approve p1
            boot
            "#
        ),
    );
    let fetched = lines(&told, "NET_FETCH {");
    assert!(fetched.len() >= 2 && fetched.iter().all(|call| call.contains("https://example.com/[EMAIL_1]")), "{told}");
    assert!(lines(&told, "FS_READ {").iter().all(|call| call.contains("a@example.com.txt")), "{told}");
}

#[test]
fn a_call_whose_rule_says_redact_is_not_made_with_personal_data() {
    let redact = policy("  - {when: personal, to: net, do: redact}");
    let told = replay_under(
        &redact,
        r#"
        spawn resident go
        shown zz [ZZ_1]
        2: => NET_SEND {"url":"https://example.com/","method":"POST","body":"to b@example.com"} => NET_SEND {"url":"https://example.com/","method":"POST","body":"nobody"}
        "#,
    );
    let sent = lines(&told, "call 2 NET_SEND");
    assert_eq!(sent.len(), 1, "{told}");
    assert!(sent[0].contains("nobody"), "{told}");
}

/// To a server, to whoever asked by a webhook, to a file, to memory: a call that must hold no personal data.
#[test]
fn a_call_that_cannot_be_looked_at_is_not_made() {
    let rule = "  - {when: personal, calls: [NET_SEND, SYS_WEBHOOK_REPLY, FS_WRITE, SEND_MSG], do: redact}";
    let policy = policy(rule)
        .replace("[email]}", "[email], custom: {mark: \"Q\"}}")
        .replace("PROPOSE]", "PROPOSE, \"SYS_REGISTER_WEBHOOK **\"]\n    ipc: [{peer: \"*\", ops: [send]}]");
    let calls = |text: &str| {
        format!(
            r#"2: => NET_SEND {{"url":"https://example.com/","method":"POST","body":"{text}"}} => SYS_WEBHOOK_REPLY {{"request_id":"r3","status":200,"body":"{text}"}} => FS_WRITE {{"path":"a","content":"{text}"}} => SEND_MSG {{"to_pid":3,"content":"{text}"}}"#
        )
    };
    let told = |text: &str| {
        let script = format!(
            "spawn resident go\nspawn resident other\n2: => SYS_REGISTER_WEBHOOK {{\"path\":\"x\",\"reply_within_s\":60}}\nhook x\nshown zz [ZZ_1]\n{}\ndone 2 NET_SEND\ndone 2 FS_WRITE",
            calls(text)
        );
        replay_under(&policy, &script)
    };
    let (fine, flood) = (told("nobody"), told(&"Q".repeat(1001)));
    let names = ["NET_SEND", "SYS_WEBHOOK_REPLY", "FS_WRITE", "SEND_MSG"];
    for name in names {
        let denied = |told: &str| lines(told, &format!("2 {name} = EPERM")).len();
        assert_eq!((denied(&fine), denied(&flood)), (0, 1), "{name}: {fine}\n{flood}");
    }
    assert_eq!(flood.matches("it may hold personal data (a pattern").count(), names.len(), "{flood}");
}

#[test]
fn what_must_stay_goes_on_with_a_model_that_is_here_or_not_at_all() {
    for rule in ["local_only", "deny"] {
        let policy = policy(&format!("  - {{when: personal, to: model.remote, do: {rule}}}"));
        let script = "spawn resident go\nshown zz [ZZ_1]\n2 fails withheld\nps 2\nboot";
        let told = replay_under(&policy, script);
        assert_eq!(lines(&told, "infer 2").len(), 1, "{rule}: {told}");
        assert_eq!(told.contains("proposal p1 pending"), rule == "local_only", "{rule}: {told}");
        assert_eq!(told.contains("which is elsewhere"), rule == "deny", "{rule}: {told}");
        let told = replay_under(&policy, &format!("here wide\n{script}"));
        let again = lines(&told, "infer 2").len();
        assert_eq!(again >= 2, rule == "local_only", "{rule}: {told}");
    }
}

/// `local_only` without such a model is a question, once: yes goes on with tokens, all else ends as before.
#[test]
fn a_person_decides_where_no_model_is_here() {
    let local = policy("  - {when: personal, to: model.remote, do: local_only}");
    let script = |mode: &str, then: &str| {
        let told = format!("spawn {mode} go\nshown zz [ZZ_1]\n2 fails withheld\n{then}");
        replay_under(&local, &told)
    };
    let told = script("resident", "boot\napprove p1\nboot\n2: => FS_LIST {}\ndone 2 FS_LIST");
    assert!(told.contains("proposal p1 executed") && lines(&told, "pending").len() == 1, "{told}");
    assert!(lines(&told, "infer 2").last().is_some_and(|last| last.contains("fs_list")), "{told}");
    let ends = ["reject p1 no", "after 86401"];
    for end in ends {
        let told = script("oneshot", end);
        assert!(lines(&told, "infer 2").len() == 1 && told.contains("2 exited 1"), "{told}");
        assert!(told.contains("which is elsewhere") && told.contains("local = true"), "{told}");
        let told = script("resident", &format!("{end}\nps 2\nsignal 2 CONT"));
        assert!(lines(&told, "infer 2").len() == 1 && told.contains("2 stopped"), "{told}");
    }
    // No call was asked about, so nothing can stand; the question waits as before.
    let told = script("resident", "standing p1\napprove p1");
    assert_eq!(lines(&told, "cannot stand").len(), 1, "{told}");
    assert!(told.contains("proposal p1 executed") && lines(&told, "infer 2").len() == 2, "{told}");
    // Another policy ends the question, and what holds then decides: it asks anew, or sends tokens.
    let told = script("oneshot", "policy detect: [email] => detect: [email, phone]\napprove p2");
    assert!(told.contains("p1 expired") && told.contains("proposal p2 executed"), "{told}");
    assert!(lines(&told, "infer 2").len() == 2 && !told.contains("exited"), "{told}");
    let told = script("oneshot", "policy local_only => redact");
    assert!(told.contains("p1 expired") && lines(&told, "infer 2").len() == 2 && !told.contains("exited"), "{told}");
    // So it does after a yes: what was given under the old one is over.
    let told = script(
        "resident",
        "approve p1\n2: => FS_LIST {}\npolicy detect: [email] => detect: [email, phone]\ndone 2 FS_LIST\nboot\napprove p2",
    );
    let (before, after) = told.split_once("> done 2 FS_LIST").unwrap();
    assert_eq!((lines(before, "infer 2").len(), lines(after, "p2 pending").len()), (2, 1), "{told}");
    let (asked, answered) = after.split_once("> approve p2").unwrap();
    assert_eq!((lines(asked, "infer 2").len(), lines(answered, "infer 2").len()), (0, 1), "{told}");
    // There are no tokens for a secret.
    let both = policy(
        "  - {when: personal, to: model.remote, do: local_only}\n  - {when: untrusted, to: model.remote, do: local_only}",
    );
    let told = replay_under(
        &both,
        "spawn oneshot go\nshown zz [ZZ_1]\n2: => NET_SEND {\"url\":\"https://example.com/\",\"method\":\"POST\"}\ndone 2 NET_SEND",
    );
    assert!(told.contains("2 exited 1") && !told.contains("pending"), "{told}");
}

/// What comes before the question, in the middle of it and after stands in the window as the journal tells it (the rig
/// compares them after each line), and no message is lost to a call that reads.
#[test]
fn what_comes_around_the_question_is_shown_once_and_in_order() {
    let local = policy("  - {when: personal, to: model.remote, do: local_only}")
        .replace("[ASK_USER, PROPOSE]", "[ASK_USER, PROPOSE, RECV_MSG]\n    ipc: [{peer: \"*\", ops: [send]}]");
    let told = replay_under(
        &local,
        r#"
        spawn resident go
        spawn resident other
        shown zz [ZZ_1]
        2: => FS_LIST {}
        3: => SEND_MSG {"to_pid":2,"content":"one"}
        input 2 hurry
        done 2 FS_LIST
        3: => SEND_MSG {"to_pid":2,"content":"two"}
        boot
        approve p1
        3: => SEND_MSG {"to_pid":2,"content":"three"}
        2: => RECV_MSG {"timeout_s":0}
        2: ok
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > spawn resident other
      → infer 3 turn [task]
    > shown zz [ZZ_1]
    > 2: => FS_LIST {}
    2 labelled personal
      → call 2 FS_LIST {}
    > 3: => SEND_MSG {"to_pid":2,"content":"one"}
    2 message from 3: one
    3 SEND_MSG = {"message_id":"m16"}
      → infer 3 turn [task, turn, send_msg]
    > input 2 hurry
    > done 2 FS_LIST
    2 proposal p1 pending
    > 3: => SEND_MSG {"to_pid":2,"content":"two"}
    2 message from 3: two
    3 SEND_MSG = {"message_id":"m27"}
      → infer 3 turn [task, turn, send_msg, turn, send_msg]
    > boot
      → infer 3 turn [task, turn, send_msg, turn, send_msg]
    > approve p1
    2 proposal p1 executed
    2 PROPOSE = {"shown":"tokens in the place of personal data"}
      → infer 2 turn [task, turn, fs_list, input hurry, propose]
    > 3: => SEND_MSG {"to_pid":2,"content":"three"}
    2 message from 3: three
    3 SEND_MSG = {"message_id":"m41"}
      → infer 3 turn [task, turn, send_msg, turn, send_msg, turn, send_msg]
    > 2: => RECV_MSG {"timeout_s":0}
    2 RECV_MSG = {"messages":[{"from_pid":3,"content":"one","at":"2026-11-22T00:00:00.000Z"},{"from_pid":3,
      → infer 2 turn [task, turn, fs_list, input hurry, propose, turn, recv_msg]
    > 2: ok
    "#);
}
