//! What a call led to and was denied: which of it people see, what a yes lets happen, and what no yes does.

use insta::assert_snapshot;

use crate::rig::replay_under;

/// Commands that reach and write little.
const NARROW: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, ASK_USER]
    fs:
      - {path: "**", ops: [read]}
      - {path: "out/**", ops: [write]}
      - {path: "asks/**", ops: [write], verdict: ask}
      - {path: "closed/**", ops: [read, write, delete], verdict: deny}
    exec: {shell: true, programs: [sh], net: rules}
    net:
      - {to: "api.example.com:443", allow: ["GET /open/**"]}
      - {to: "closed.example.com:443", allow: ["GET /**"], verdict: deny}
      - {to: "asks.example.com:443", allow: ["GET /**", "POST /**"], verdict: ask}
      - {to: "holds.example.com:443", allow: ["POST /**"], verdict: hold}
labels:
  - {when: untrusted, calls: [EXEC_CMD, NET_SEND], verdict: ask}
"#;

/// One run of a command.
const MAKE: &str = r#"2: => EXEC_CMD {"cmd":"make"}"#;
const A: &str = r#"FS_WRITE {"path":"a","content":""}"#;

/// The same, with files that others wrote: who reads them, and what may run, is asked about.
fn with_mail() -> String {
    NARROW.replace("ops: [read]}\n", "ops: [read]}\n      - {path: \"mail/**\", ops: [read], label: untrusted.file}\n")
}

/// The last lines of what a script comes to under [`NARROW`], from the first that has this on.
fn from(script: &str, line: &str) -> String {
    from_under(NARROW, script, line)
}

fn from_under(policy: &str, script: &str, line: &str) -> String {
    let told = replay_under(policy, script);
    let at = told.find(line).unwrap_or_else(|| panic!("no `{line}` in {told}"));
    told[at..].to_owned()
}

/// Why a yes does not let a command do what could be asked about.
const TOGETHER: &str = "a command does not wait for what is asked about, and of what it changes all is kept or nothing: its agent \
                        can make that call itself";

/// What is kept of a command that was denied these, under a policy.
fn kept(policy: &str, denied: &str) -> String {
    let told = replay_under(policy, &format!("spawn resident go\n{MAKE}\ndenies 2 EXEC_CMD {denied}"));
    let after = told.split_once("> denies").unwrap_or_else(|| panic!("{told}")).1;
    after.lines().skip(1).map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_a_command_was_denied_passes_once_in_the_very_command() {
    // Each `off` replays the whole journal and compares.
    let told = from(
        &format!(
            r#"
            spawn resident go
            {MAKE}
            denies 2 EXEC_CMD {A} | FS_DELETE {{"path":"b"}} | NET_FETCH {{"url":"https://api.example.com/x?q=1"}} | {A}
            lost 2 EXEC_CMD
            off 1
            2: I may not
            approve p1
            off 1
            2: => EXEC_CMD {{"cmd":"make all"}}
            tries 2 {A}
            done 2 EXEC_CMD
            {MAKE}
            tries 2 {A}
            tries 2 FS_WRITE {{"path":"c","content":""}}
            tries 2 FS_DELETE {{"path":"b"}}
            tries 2 FS_DELETE {{"path":"a"}}
            tries 2 NET_FETCH {{"url":"https://api.example.com/x?q=1"}}
            tries 2 NET_FETCH {{"url":"https://api.example.com/x?q=2"}}
            tries 2 NET_SEND {{"url":"https://api.example.com/x?q=1","method":"POST"}}
            done 2 EXEC_CMD
            off 1
            approve p1
            {MAKE}
            tries 2 {A}
            "#
        ),
        "> denies",
    );
    assert_snapshot!(told, @r#"
    > denies 2 EXEC_CMD FS_WRITE {"path":"a","content":""} | FS_DELETE {"path":"b"} | NET_FETCH {"url":"https://api.example.com/x?q=1"} | FS_WRITE {"path":"a","content":""}
    2 p1 would take EXEC_CMD with FS_WRITE a, FS_DELETE b, NET_FETCH api.example.com/x
    > lost 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd]
    > off 1
      → infer 2 turn [task, turn, exec_cmd]
    > 2: I may not
    > approve p1
    2 told of p1: Once, EXEC_CMD {"cmd":"make"}, in which nothing stands against FS_WRITE a, FS_DELETE b, NET_FETCH api.example.com/x
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > off 1
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > 2: => EXEC_CMD {"cmd":"make all"}
      → call 2 EXEC_CMD {"cmd":"make all"}
    > tries 2 FS_WRITE {"path":"a","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd]
    > 2: => EXEC_CMD {"cmd":"make"}
    2 proposal p1 executed
      → call 2 EXEC_CMD {"cmd":"make"}, with p1, p1, p1
    > tries 2 FS_WRITE {"path":"a","content":""}
    standing approval p1: role assistant: no rule
    > tries 2 FS_WRITE {"path":"c","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    > tries 2 FS_DELETE {"path":"b"}
    standing approval p1: role assistant: no rule
    > tries 2 FS_DELETE {"path":"a"}
    no: the policy does not allow FS_DELETE: role assistant: no rule
    > tries 2 NET_FETCH {"url":"https://api.example.com/x?q=1"}
    standing approval p1: role assistant: no rule
    > tries 2 NET_FETCH {"url":"https://api.example.com/x?q=2"}
    no: the policy does not allow NET_FETCH: role assistant: no rule
    > tries 2 NET_SEND {"url":"https://api.example.com/x?q=1","method":"POST"}
    no: the policy does not allow NET_SEND: role assistant: no rule
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd, turn, exec_cmd]
    > off 1
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd, turn, exec_cmd]
    > approve p1
    refused: ENOENT no open proposal `p1`
    > 2: => EXEC_CMD {"cmd":"make"}
      → call 2 EXEC_CMD {"cmd":"make"}
    > tries 2 FS_WRITE {"path":"a","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    "#);
}

#[test]
fn the_changes_of_a_command_are_let_through_together_or_not_at_all() {
    assert_eq!(kept(NARROW, A), "2 p1 would take EXEC_CMD with FS_WRITE a\n");
    for (other, why) in [
        (r#"FS_WRITE {"path":"closed/a","content":""}"#, "; no yes lifts role assistant: fs[3] closed/**"),
        (r#"FS_WRITE {"path":"asks/a","content":""}"#, ""),
        (r#"FS_WRITE {"path":".aos/a","content":""}"#, "; no yes lifts the floor: work on other files"),
        // It may be written by now.
        (r#"FS_WRITE {"path":"out/a","content":""}"#, ""),
    ] {
        let closed = format!("is closed: {TOGETHER}{why}\n");
        assert_eq!(kept(NARROW, &format!("{A} | {other}")), format!("2 p1 {closed}"), "{other}");
        let fetch = r#"NET_FETCH {"url":"https://api.example.com/x"}"#;
        let told = kept(NARROW, &format!("{A} | {other} | {fetch}"));
        let open = "2 p1 would take EXEC_CMD with NET_FETCH api.example.com/x\n";
        assert_eq!(told, format!("{open}2 p2 {closed}"), "{other}");
    }
}

#[test]
fn what_no_yes_lets_a_command_do_is_closed() {
    for (denied, why) in [
        (r#"NET_FETCH {"url":"http://127.0.0.1/x"}"#, "it takes more than a grant: a rule of the role's `net`"),
        (r#"NET_FETCH {"url":"http://169.254.169.254/x"}"#, "no yes lifts the floor: there is no grant for this"),
        (
            r#"NET_FETCH {"url":"https://closed.example.com/x"}"#,
            "no yes lifts role assistant: net[1] closed.example.com",
        ),
    ] {
        let told = kept(NARROW, denied);
        assert!(told.starts_with(&format!("2 p1 is closed: {why}")), "{denied}: {told}");
    }
    for denied in [
        // By now it may.
        r#"NET_FETCH {"url":"https://api.example.com/open/x"}"#,
        // Whatever a driver says: these are no parts of a command.
        r#"FS_READ {"path":"keys"}"#,
        r#"EXEC_CMD {"cmd":"sh"}"#,
        r#"SPAWN_AGENT {"role":"r","task":"t"}"#,
    ] {
        assert_eq!(kept(NARROW, denied), "", "{denied}");
    }
    let send = r#"NET_SEND {"url":"https://api.example.com/in","method":"POST"}"#;
    assert_eq!(kept(NARROW, send), "2 p1 would take EXEC_CMD with NET_SEND POST api.example.com/in\n");
    // A rule about labels would ask about it again, which nobody can be while a command runs; and one that denies.
    let asks = NARROW.replace("ops: [read]}\n", "ops: [read], label: untrusted.file}\n");
    let redacted = NARROW.replace("labels:\n", "labels:\n  - {when: secret, calls: [NET_SEND], verdict: deny}\n");
    let redacted = redacted.replace("ops: [read]}\n", "ops: [read], label: secret}\n");
    for policy in [asks, redacted] {
        let told = replay_under(
            &policy,
            &format!(
                "spawn resident go\n2: => FS_READ {{\"path\":\"x\"}}\ndone 2 FS_READ {{}}\n{MAKE}\napprove p1\ndenies 2 EXEC_CMD {send}"
            ),
        );
        assert!(told.contains("call 2 EXEC_CMD") && !told.contains("would take"), "{told}");
        assert!(told.contains(TOGETHER) || told.contains("is closed: no yes lifts label: labels[0] secret"), "{told}");
    }
}

#[test]
fn a_child_that_was_given_nothing_has_nothing_lifted_inside_either() {
    let policy = NARROW.replace("labels:\n  - {when: untrusted, calls: [EXEC_CMD, NET_SEND], verdict: ask}\n", "");
    for (grants, kept) in [("SYS_EXIT", false), ("EXEC_CMD,FS_READ", true)] {
        let script = format!("spawn resident grants={grants} go\n{MAKE}");
        let told = replay_under(&policy, &script);
        assert_eq!(told.contains("→ call 2 EXEC_CMD"), kept, "{told}");
        if kept {
            let told = replay_under(&policy, &format!("{script}\ndenies 2 EXEC_CMD {A}\nstanding p1\napprove p1"));
            let refused = "cannot stand: the same call would be decided by grant: none of this process";
            assert!(told.contains("p1 would take EXEC_CMD with FS_WRITE a") && told.contains(refused), "{told}");
            assert!(told.contains("told of p1: Once"), "{told}");
        }
    }
    let quarantined = r#"
        spawn resident go
        2: => SPAWN_AGENT {"role":"r","task":"t","quarantine":true,"attachments":["https://api.example.com/open/x"]}
        denies 3 NET_FETCH NET_FETCH {"url":"https://other.example.com/"}
    "#;
    let told = replay_under(NARROW, quarantined);
    assert!(told.contains("call 3 NET_FETCH") && !told.contains("would take"), "{told}");
    assert!(told.contains("p1 is closed, led there by a redirect"), "{told}");
}

#[test]
fn a_yes_for_the_process_lets_through_what_it_names_in_every_command() {
    let told = from(
        &format!(
            r#"
            spawn resident go
            {MAKE}
            denies 2 EXEC_CMD {A} | NET_SEND {{"url":"https://api.example.com/in","method":"POST"}}
            lost 2 EXEC_CMD
            2: I may not
            standing p1
            off 1
            2: => EXEC_CMD {{"cmd":"other"}}
            tries 2 {A}
            tries 2 FS_WRITE {{"path":"b","content":""}}
            tries 2 NET_SEND {{"url":"https://api.example.com/in?q=1","method":"POST"}}
            denies 2 EXEC_CMD FS_WRITE {{"path":"b","content":""}}
            done 2 EXEC_CMD
            2: => SPAWN_AGENT {{"role":"r","task":"t","permissions":["EXEC_CMD","FS_READ"]}}
            3: => EXEC_CMD {{"cmd":"make"}}
            tries 3 {A}
            done 3 EXEC_CMD
            reject p1
            {MAKE}
            tries 2 {A}
            "#
        ),
        "> standing",
    );
    assert_snapshot!(told, @r#"
    > standing p1
    2 told of p1: Process, FS_WRITE a, NET_SEND POST api.example.com/in
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > off 1
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > 2: => EXEC_CMD {"cmd":"other"}
      → call 2 EXEC_CMD {"cmd":"other"}, with p1, p1
    > tries 2 FS_WRITE {"path":"a","content":""}
    standing approval p1: role assistant: no rule
    > tries 2 FS_WRITE {"path":"b","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    > tries 2 NET_SEND {"url":"https://api.example.com/in?q=1","method":"POST"}
    standing approval p1: role assistant: no rule
    > denies 2 EXEC_CMD FS_WRITE {"path":"b","content":""}
    2 p2 would take EXEC_CMD with FS_WRITE b
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["EXEC_CMD","FS_READ"]}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd, turn, spawn_agent]
    > 3: => EXEC_CMD {"cmd":"make"}
      → call 3 EXEC_CMD {"cmd":"make"}
    > tries 3 FS_WRITE {"path":"a","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    > done 3 EXEC_CMD
      → infer 3 turn [task, turn, exec_cmd]
    > reject p1
    > 2: => EXEC_CMD {"cmd":"make"}
      → call 2 EXEC_CMD {"cmd":"make"}
    > tries 2 FS_WRITE {"path":"a","content":""}
    no: the policy does not allow FS_WRITE: role assistant: no rule
    "#);
}

#[test]
fn where_a_redirect_leads_is_kept_as_the_fetch_that_it_is() {
    let told = from(
        r#"
        spawn resident go
        2: => NET_FETCH {"url":"https://api.example.com/open/a"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://other.example.com/b?q=1"} | FS_WRITE {"path":"a","content":""}
        lost 2 NET_FETCH
        off 1
        approve p1
        2: => NET_FETCH {"url":"https://api.example.com/open/a"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://other.example.com/b?q=1"}
        lost 2 NET_FETCH
        2: => NET_FETCH {"url":"https://other.example.com/b?q=1"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://third.example.com/"}
        done 2 NET_FETCH {}
        standing p2
        2: => NET_FETCH {"url":"https://api.example.com/open/a"}
        tries 2 NET_FETCH {"url":"https://third.example.com/?q=1"}
        tries 2 NET_FETCH {"url":"https://other.example.com/b?q=1"}
        denies 2 NET_FETCH NET_FETCH {"url":"http://127.0.0.1/"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://closed.example.com/"}
        "#,
        "> denies",
    );
    assert_snapshot!(told, @r#"
    > denies 2 NET_FETCH NET_FETCH {"url":"https://other.example.com/b?q=1"} | FS_WRITE {"path":"a","content":""}
    2 p1 would take NET_FETCH other.example.com/b, led there by a redirect of NET_FETCH https://api.example.com/open/a
    > lost 2 NET_FETCH
    2 labelled untrusted.web
      → infer 2 turn [task, turn, net_fetch]
    > off 1
      → infer 2 turn [task, turn, net_fetch]
    > approve p1
    2 told of p1: Once, NET_FETCH {"url":"https://other.example.com/b?q=1"}
    > 2: => NET_FETCH {"url":"https://api.example.com/open/a"}
      → call 2 NET_FETCH {"url":"https://api.example.com/open/a"}
    > denies 2 NET_FETCH NET_FETCH {"url":"https://other.example.com/b?q=1"}
    > lost 2 NET_FETCH
      → infer 2 turn [task, turn, net_fetch, turn, net_fetch, p1 lifted]
    > 2: => NET_FETCH {"url":"https://other.example.com/b?q=1"}
    2 proposal p1 executed
      → call 2 NET_FETCH {"url":"https://other.example.com/b?q=1"}
    > denies 2 NET_FETCH NET_FETCH {"url":"https://third.example.com/"}
    2 p2 would take NET_FETCH third.example.com/, led there by a redirect of NET_FETCH https://other.example.com/b?q=1
    > done 2 NET_FETCH {}
      → infer 2 turn [task, turn, net_fetch, turn, net_fetch, p1 lifted, turn, net_fetch]
    > standing p2
    2 told of p2: Process, NET_FETCH third.example.com/
    > 2: => NET_FETCH {"url":"https://api.example.com/open/a"}
      → call 2 NET_FETCH {"url":"https://api.example.com/open/a"}, with p2
    > tries 2 NET_FETCH {"url":"https://third.example.com/?q=1"}
    standing approval p2: role assistant: no rule
    > tries 2 NET_FETCH {"url":"https://other.example.com/b?q=1"}
    no: the policy does not allow NET_FETCH: role assistant: no rule
    > denies 2 NET_FETCH NET_FETCH {"url":"http://127.0.0.1/"}
    2 p3 is closed, led there by a redirect of NET_FETCH https://api.example.com/open/a: it takes more than a grant: a rule of the role's `net`: {to: "127.0.0.1:80", allow: ["GET /"], private: true}
    > denies 2 NET_FETCH NET_FETCH {"url":"https://closed.example.com/"}
    2 p4 is closed, led there by a redirect of NET_FETCH https://api.example.com/open/a: no yes lifts role assistant: net[1] closed.example.com:443
    "#);
}

#[test]
fn a_yes_to_a_command_answers_what_is_asked_about_it_and_ends_with_what_became_known() {
    let told = from_under(
        &with_mail(),
        &format!(
            r#"
            spawn resident go
            2: => FS_READ {{"path":"mail/a"}}
            done 2 FS_READ {{}}
            {MAKE}
            approve p1
            denies 2 EXEC_CMD {A}
            lost 2 EXEC_CMD
            rules
            risks
            approve p2
            {MAKE}
            done 2 EXEC_CMD
            {MAKE}
            "#
        ),
        "> denies",
    );
    assert_snapshot!(told, @r#"
    > denies 2 EXEC_CMD FS_WRITE {"path":"a","content":""}
    2 p2 would take EXEC_CMD with FS_WRITE a
    > lost 2 EXEC_CMD
      → infer 2 turn [task, turn, fs_read, turn, exec_cmd]
    > rules
    p2 role assistant: no rule; then label: labels[0] untrusted asks
    > risks
    p2 the argument `cmd` stands neither in your request nor in a file that it names, and this agent has read what others wrote (untrusted.file)
    > approve p2
    2 told of p2: Once, EXEC_CMD {"cmd":"make"}, in which nothing stands against FS_WRITE a
    > 2: => EXEC_CMD {"cmd":"make"}
    2 proposal p2 executed
      → call 2 EXEC_CMD {"cmd":"make"}, with p2
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, fs_read, turn, exec_cmd, turn, exec_cmd, p2 lifted]
    > 2: => EXEC_CMD {"cmd":"make"}
    2 ask by label: labels[0] untrusted
    2 proposal p3 pending
    "#);
    // What it read after the yes may have led it to the command.
    let told = from(
        &format!(
            r#"
            spawn resident go
            {MAKE}
            denies 2 EXEC_CMD {A}
            lost 2 EXEC_CMD
            approve p1
            2: => NET_FETCH {{"url":"https://api.example.com/open/a"}}
            done 2 NET_FETCH {{}}
            {MAKE}
            "#
        ),
        "> done",
    );
    assert_snapshot!(told, @r#"
    > done 2 NET_FETCH {}
    2 labelled untrusted.web
      → infer 2 turn [task, turn, exec_cmd, turn, net_fetch, p1 lifted]
    > 2: => EXEC_CMD {"cmd":"make"}
    2 proposal p1 expired
    2 ask by label: labels[0] untrusted
    2 proposal p2 pending
    "#);
}

/// What a rule of the role asks about, nobody can be asked while a command runs.
#[test]
fn what_a_rule_asks_about_in_a_command_passes_once_in_the_very_command() {
    const GET: &str = r#"NET_FETCH {"url":"https://asks.example.com/a?q=1"}"#;
    const POST: &str = r#"NET_SEND {"url":"https://holds.example.com/in","method":"POST"}"#;
    let told = from(
        &format!(
            r#"
            spawn resident go
            {MAKE}
            tries 2 {GET}
            denies 2 EXEC_CMD {GET} | {POST}
            lost 2 EXEC_CMD
            off 1
            rules
            2: I may not
            approve p1
            off 1
            {MAKE}
            tries 2 {GET}
            tries 2 {POST}
            tries 2 NET_FETCH {{"url":"https://asks.example.com/a?q=2"}}
            tries 2 NET_SEND {{"url":"https://asks.example.com/a?q=1","method":"POST"}}
            denies 2 EXEC_CMD {GET}
            lost 2 EXEC_CMD
            2: I may not
            standing p2
            2: => EXEC_CMD {{"cmd":"other"}}
            tries 2 NET_FETCH {{"url":"https://asks.example.com/a?q=2"}}
            tries 2 {POST}
            "#
        ),
        "> tries",
    );
    assert_snapshot!(told, @r#"
    > tries 2 NET_FETCH {"url":"https://asks.example.com/a?q=1"}
    no: the policy does not allow NET_FETCH: role assistant: net[2] asks.example.com:443
    > denies 2 EXEC_CMD NET_FETCH {"url":"https://asks.example.com/a?q=1"} | NET_SEND {"url":"https://holds.example.com/in","method":"POST"}
    2 p1 would take EXEC_CMD with NET_FETCH asks.example.com/a, NET_SEND POST holds.example.com/in
    > lost 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd]
    > off 1
      → infer 2 turn [task, turn, exec_cmd]
    > rules
    p1 role assistant: net[2] asks.example.com:443 asks; also role assistant: net[3] holds.example.com:443 holds
    > 2: I may not
    > approve p1
    2 told of p1: Once, EXEC_CMD {"cmd":"make"}, in which nothing stands against NET_FETCH asks.example.com/a, NET_SEND POST holds.example.com/in
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > off 1
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted]
    > 2: => EXEC_CMD {"cmd":"make"}
    2 proposal p1 executed
      → call 2 EXEC_CMD {"cmd":"make"}, with p1, p1
    > tries 2 NET_FETCH {"url":"https://asks.example.com/a?q=1"}
    standing approval p1: role assistant: net[2] asks.example.com:443
    > tries 2 NET_SEND {"url":"https://holds.example.com/in","method":"POST"}
    standing approval p1: role assistant: net[3] holds.example.com:443
    > tries 2 NET_FETCH {"url":"https://asks.example.com/a?q=2"}
    no: the policy does not allow NET_FETCH: role assistant: net[2] asks.example.com:443
    > tries 2 NET_SEND {"url":"https://asks.example.com/a?q=1","method":"POST"}
    no: the policy does not allow NET_SEND: role assistant: net[2] asks.example.com:443
    > denies 2 EXEC_CMD NET_FETCH {"url":"https://asks.example.com/a?q=1"}
    2 p2 would take EXEC_CMD with NET_FETCH asks.example.com/a
    > lost 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd]
    > 2: I may not
    > standing p2
    2 told of p2: Process, NET_FETCH asks.example.com/a
      → infer 2 turn [task, turn, exec_cmd, turn, p1 lifted, turn, exec_cmd, turn, p2 lifted]
    > 2: => EXEC_CMD {"cmd":"other"}
      → call 2 EXEC_CMD {"cmd":"other"}, with p2
    > tries 2 NET_FETCH {"url":"https://asks.example.com/a?q=2"}
    standing approval p2: role assistant: net[2] asks.example.com:443
    > tries 2 NET_SEND {"url":"https://holds.example.com/in","method":"POST"}
    no: the policy does not allow NET_SEND: role assistant: net[3] holds.example.com:443
    "#);
}

/// Beside a rule that asks, one about labels asks about what is sent, of which nobody can be shown anything; and what rules
/// ask about is not let through for files, whose words nobody is shown either.
#[test]
fn what_more_than_a_rule_of_the_role_asks_about_is_not_kept_of_a_command() {
    let send = r#"NET_SEND {"url":"https://asks.example.com/in","method":"POST"}"#;
    assert_eq!(kept(NARROW, send), "2 p1 would take EXEC_CMD with NET_SEND POST asks.example.com/in\n");
    let labelled = NARROW.replace("ops: [read]}\n", "ops: [read], label: untrusted.file}\n");
    let rated = NARROW.replace("\"POST /**\"], verdict: ask}", "\"POST /**\"], verdict: ask, rate: 9/min}");
    for policy in [labelled, rated] {
        assert_ne!(policy, NARROW);
        let script = format!(
            "spawn resident go\n2: => FS_READ {{\"path\":\"x\"}}\ndone 2 FS_READ {{}}\n{MAKE}\napprove p1\ndenies 2 EXEC_CMD {send}"
        );
        let told = replay_under(&policy, &script);
        assert!(told.contains("call 2 EXEC_CMD") && !told.contains("would take"), "{told}");
        assert!(told.contains(TOGETHER), "{told}");
    }
    let grants = "spawn resident grants=EXEC_CMD,FS_READ go";
    let told = replay_under(NARROW, &format!("{grants}\n{MAKE}\ndenies 2 EXEC_CMD {send}\nrules"));
    assert!(
        told.contains("POST asks.example.com/in\n") && told.contains("; then role assistant: net[2] asks"),
        "{told}"
    );
}

#[test]
fn a_redirect_that_a_rule_asks_about_is_kept_until_its_process_asks_by_itself() {
    let told = from(
        r#"
        spawn resident go
        2: => NET_FETCH {"url":"https://api.example.com/open/a"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://asks.example.com/b"} | NET_FETCH {"url":"https://asks.example.com/c"}
        lost 2 NET_FETCH
        off 1
        rules
        approve p1
        policy "out/**" => "in/**"
        "#,
        "> denies",
    );
    assert_snapshot!(told, @r#"
    > denies 2 NET_FETCH NET_FETCH {"url":"https://asks.example.com/b"} | NET_FETCH {"url":"https://asks.example.com/c"}
    2 p1 would take NET_FETCH asks.example.com/b, led there by a redirect of NET_FETCH https://api.example.com/open/a
    2 p2 would take NET_FETCH asks.example.com/c, led there by a redirect of NET_FETCH https://api.example.com/open/a
    > lost 2 NET_FETCH
    2 labelled untrusted.web
      → infer 2 turn [task, turn, net_fetch]
    > off 1
      → infer 2 turn [task, turn, net_fetch]
    > rules
    p1 role assistant: net[2] asks.example.com:443 asks
    p2 role assistant: net[2] asks.example.com:443 asks
    > approve p1
    2 told of p1: Once, NET_FETCH {"url":"https://asks.example.com/b"}
    > policy "out/**" => "in/**"
    2 proposal p1 expired
      → another policy
    "#);
    let told = from(
        r#"
        spawn resident go
        2: => NET_FETCH {"url":"https://api.example.com/open/a"}
        denies 2 NET_FETCH NET_FETCH {"url":"https://asks.example.com/b"} | NET_FETCH {"url":"https://asks.example.com/c"}
        lost 2 NET_FETCH
        approve p1
        2: => NET_FETCH {"url":"https://asks.example.com/b"}
        lost 2 NET_FETCH
        2: => NET_FETCH {"url":"https://asks.example.com/b"} => NET_FETCH {"url":"https://asks.example.com/c"}
        approve p3
        lost 2 NET_FETCH
        "#,
        "> approve",
    );
    assert_snapshot!(told, @r#"
    > approve p1
    2 told of p1: Once, NET_FETCH {"url":"https://asks.example.com/b"}
    > 2: => NET_FETCH {"url":"https://asks.example.com/b"}
    2 proposal p1 executed
      → call 2 NET_FETCH {"url":"https://asks.example.com/b"}
    > lost 2 NET_FETCH
      → infer 2 turn [task, turn, net_fetch, turn, net_fetch, p1 lifted]
    > 2: => NET_FETCH {"url":"https://asks.example.com/b"} => NET_FETCH {"url":"https://asks.example.com/c"}
    2 ask by role assistant: net[2] asks.example.com:443
    2 proposal p3 pending
    > approve p3
    2 proposal p3 executed
      → call 2 NET_FETCH {"url":"https://asks.example.com/b"}
    > lost 2 NET_FETCH
    2 ask by role assistant: net[2] asks.example.com:443
    2 proposal p2 expired
    2 proposal p4 pending
    "#);
}

#[test]
fn another_policy_tells_of_a_command_only_where_all_passes_in_it() {
    let denied =
        format!("spawn resident go\n{MAKE}\ndenies 2 EXEC_CMD {A}\nlost 2 EXEC_CMD\n2: ok\napprove p1\n2: ok\n");
    let one = from(&format!("{denied}policy path: \"out/**\" => path: \"in/**\"\n"), "> policy");
    assert_snapshot!(one, @r#"
    > policy path: "out/**" => path: "in/**"
    2 proposal p1 expired
      → another policy
    "#);
    let all = from(&format!("{denied}policy path: \"out/**\" => path: \"a\"\n"), "> policy");
    assert!(all.contains("told of p1: Role, EXEC_CMD"), "{all}");
}

#[test]
fn commands_that_are_denied_in_a_loop_flood_nobody() {
    let mut script = String::from("spawn resident go\n");
    for turn in 0..80 {
        let n = format!(r#"FS_WRITE {{"path":"n{turn}","content":""}}"#);
        // Another command that wants the same is the same to people.
        script.push_str(&format!(
            "2: => EXEC_CMD {{\"cmd\":\"make {turn}\"}} => EXEC_CMD {{\"cmd\":\"again {turn}\"}}\ndenies 2 EXEC_CMD {n}\nlost 2 EXEC_CMD\ndenies 2 EXEC_CMD {n}\nlost 2 EXEC_CMD\n"
        ));
    }
    let told = replay_under(NARROW, &script);
    assert_eq!(told.matches("would take").count(), 60, "sixty in an hour");
    assert_eq!(told.matches("expired").count(), 60 - 16, "sixteen at a time");
    // More than are told are not asked for.
    let many: Vec<String> =
        (0..20).map(|nth| format!("NET_FETCH {{\"url\":\"https://a.example.com/{nth}\"}}")).collect();
    assert_eq!(kept(NARROW, &many.join(" | ")).matches("NET_FETCH").count(), 16);
}

#[test]
fn what_is_told_of_a_call_that_is_over_changes_nothing() {
    let denied = format!("denies 2 EXEC_CMD {A}");
    let told = replay_under(
        NARROW,
        &format!("spawn resident go\n{MAKE}\n{denied}\nreject p1 no\n{denied}\nsignal 2 KILL\n{denied}"),
    );
    assert_eq!(told.matches("would take").count(), 1, "what was dismissed is not shown again: {told}");
}

#[test]
fn a_yes_to_a_read_shows_no_command_a_file() {
    let policy = NARROW.replace("{path: \"**\", ops: [read]}", "{path: \"docs/**\", ops: [read]}");
    let told = replay_under(
        &policy,
        &format!(
            r#"
            spawn resident go
            2: => FS_READ {{"path":"key"}} => {A} => FS_WRITE {{"path":"asks/a","content":""}}
            standing p1
            standing p2
            standing p3
            done 2 FS_WRITE
            {MAKE}
            tries 2 FS_READ {{"path":"key"}}
            tries 2 {A}
            tries 2 FS_WRITE {{"path":"asks/a","content":""}}
            "#
        ),
    );
    let tried: Vec<&str> =
        told.lines().filter(|line| line.starts_with("no: ") || line.starts_with("standing ")).collect();
    assert_eq!(
        tried,
        [
            "no: the policy does not allow FS_READ: role assistant: no rule",
            "standing approval p2: role assistant: no rule",
            // Who said yes to a question was not shown a command.
            "no: the policy does not allow FS_WRITE: role assistant: fs[2] asks/**",
        ],
        "{told}"
    );
}

/// What was denied to a command stays listed where the next policy denies all of it as the last one did, and the command may run.
#[test]
fn another_policy_keeps_what_it_denies_to_a_command_in_the_very_same_way() {
    let begun = format!(
        "spawn resident go\n{MAKE}\ndenies 2 EXEC_CMD {A} | NET_FETCH {{\"url\":\"https://api.example.com/b\"}} | FS_DELETE {{\"path\":\"closed/a\"}}"
    );
    let after = |change: &str| from(&format!("{begun}\npolicy {change}\noff 1"), "> policy");
    assert_snapshot!(after("version: 1 => version: 1\\n"), @r#"
    > policy version: 1 => version: 1\n
      → another policy
    > off 1
    2 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
      → infer 2 turn [task, turn, exec_cmd]
    "#);
    assert_snapshot!(after("GET /open/** => GET /**"), @r#"
    > policy GET /open/** => GET /**
    2 proposal p1 expired
    2 told of p1: Role, EXEC_CMD {"cmd":"make"}, in which nothing stands against NET_FETCH api.example.com/b
      → another policy
    > off 1
    2 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
      → infer 2 turn [task, turn, exec_cmd, p1 lifted]
    "#);
    assert_snapshot!(after("exec: {shell: true, programs: [sh], net: rules} => exec: {shell: true, programs: [sh], net: rules, verdict: deny}"), @r#"
    > policy exec: {shell: true, programs: [sh], net: rules} => exec: {shell: true, programs: [sh], net: rules, verdict: deny}
    2 proposal p1 expired
    2 proposal p2 expired
      → another policy
    > off 1
    2 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
      → infer 2 turn [task, turn, exec_cmd]
    "#);
}
