//! Behaviours that systems of this kind have had and that ours must not have.

mod rig;

use aos_abi::Name;
use aos_abi::entry::Verdict;
use aos_policy::{Labels, Policy};
use rig::{call, file, grants, line, role, say, subject};

#[test]
fn an_empty_list_of_permissions_means_none() {
    let policy = file(Policy::default_text());
    let none = [grants(&[])];
    for name in Name::ALL {
        let example = call(&format!("{name} {}", name.spec().example));
        // Of a signal: to what is below it.
        let said = policy.explain(&aos_policy::Subject { reaches: Some(&[]), ..subject(&none) }, &example);
        let always = [
            Name::SysExit,
            Name::Sleep,
            Name::SysWriteStdout,
            Name::SysReadStdin,
            Name::RecvMsg,
            Name::Wait,
            Name::Kill,
        ];
        let expected = if always.contains(name) { Verdict::Allow } else { Verdict::Deny };
        assert_eq!(said.verdict, expected, "{name}: {}", said.rule);
        assert_eq!(policy.calls(&subject(&none)).contains(*name), expected == Verdict::Allow, "{name}");
    }
    // And no list is not an empty list: the role's rights hold.
    assert_eq!(say(&policy, r#"FS_READ {"path":"a"}"#).verdict, Verdict::Allow);
}

#[test]
fn a_child_with_more_rights_than_its_parent_is_refused() {
    let policy = file(Policy::default_text());
    let parent = [grants(&["FS_READ docs/**", "SPAWN_AGENT"])];
    let parent = subject(&parent);
    let exceeds = policy.check_child(&parent, grants(&["FS_READ **"]).as_slice()).unwrap_err();
    assert_eq!(
        exceeds.to_string(),
        "the grant `FS_READ **` exceeds its parent: `FS_READ x` would be allowed to the child and is not to the parent's own grants"
    );
    assert_eq!(exceeds.hint, "stay within FS_READ docs/**");
    for wider in
        ["FS_READ", "FS_READ *", "FS_READ doc*/**", "FS_WRITE docs/a", "NET_FETCH example.com", "EXEC_CMD", "FS_*"]
    {
        assert!(policy.check_child(&parent, grants(&[wider]).as_slice()).is_err(), "{wider}");
    }
    for within in ["FS_READ docs/**", "FS_READ docs", "FS_READ docs/*/a*.md", "SPAWN_AGENT", "SYS_EXIT"] {
        assert!(policy.check_child(&parent, grants(&[within]).as_slice()).is_ok(), "{within}");
    }
    // Should a wider grant stand in the chain all the same, each call is still judged by every ancestor.
    let chain = [grants(&["FS_READ **"]), grants(&["FS_READ docs/**", "SPAWN_AGENT"])];
    let said = policy.explain(&subject(&chain), &call(r#"FS_READ {"path":"secret"}"#));
    assert_eq!((said.verdict, said.hint.as_deref()), (Verdict::Deny, Some("FS_READ secret")));
}

#[test]
fn a_child_may_always_exit() {
    let none = [grants(&[]), grants(&[])];
    let labels = Labels::UNTRUSTED.and(Labels::SECRET).and(Labels::PERSONAL);
    for policy in [Policy::deny_all(), role("{}"), file(Policy::default_text())] {
        for text in
            ["SYS_EXIT", r#"SLEEP {"seconds":1}"#, r#"SYS_WRITE_STDOUT {"text":"bye"}"#, "SYS_READ_STDIN", "RECV_MSG"]
        {
            let subject = aos_policy::Subject { role: "no such role", labels, ..subject(&none) };
            let ruling = policy.authorize(&subject, call(text));
            assert_eq!(ruling.verdict, Verdict::Allow, "{text}: {}", ruling.rule);
            assert!(ruling.permit.is_some());
        }
    }
    let text =
        "version: 1\ndefault_role: r\nroles: {r: {}}\nlabels:\n  - {when: secret, calls: [SYS_EXIT], verdict: deny}\n";
    let faults = Policy::parse(text).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "line 5, column 28: SYS_EXIT is always allowed, since a process may always end and speak"
    );
}

#[test]
fn a_prefix_without_a_separator_does_not_match() {
    let policy = role(
        "{fs: [{path: work/**, ops: [read]}], net: [{to: '*.example.com', allow: ['GET /a/**']}], memory: [{namespace: team/**, ops: [read]}]}",
    );
    for denied in [
        r#"FS_READ {"path":"work-evil/a"}"#,
        r#"FS_READ {"path":"workbench"}"#,
        r#"FS_READ {"path":"work/../etc/passwd"}"#,
        r#"FS_READ {"path":"/work/a"}"#,
        r#"FS_READ {"path":"./../work/a"}"#,
        r#"NET_FETCH {"url":"https://evilexample.com/a/b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com.evil.org/a/b"}"#,
        r#"NET_FETCH {"url":"https://a.b.example.com/a/b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com/ab"}"#,
        r#"NET_FETCH {"url":"https://a.example.com/a/../b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com/a/%2e%2e/b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com/a%2f..%2fb"}"#,
        r#"NET_FETCH {"url":"http://a.example.com/a/b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com:8443/a/b"}"#,
        r#"NET_FETCH {"url":"https://a.example.com@evil.org/a/b"}"#,
        r#"NET_FETCH {"url":"https://evil.org\\.example.com/a/b"}"#,
        r#"MEM_READ {"query":"q","namespace":"team2/x"}"#,
        r#"MEM_READ {"query":"q","namespace":"team/../self"}"#,
    ] {
        assert_eq!(say(&policy, denied).verdict, Verdict::Deny, "{denied}");
    }
    for allowed in [
        r#"FS_READ {"path":"work/a"}"#,
        r#"FS_READ {"path":"./work//a/"}"#,
        r#"FS_READ {"path":"work"}"#,
        r#"NET_FETCH {"url":"HTTPS://A.Example.COM/a/b?q=../x#f"}"#,
        r#"NET_FETCH {"url":"https://a.example.com./a"}"#,
        r#"MEM_READ {"query":"q","namespace":"team/x"}"#,
    ] {
        assert_eq!(say(&policy, allowed).verdict, Verdict::Allow, "{allowed}: {}", line(&policy, allowed));
    }
}

#[test]
fn allowing_when_the_file_is_missing_or_broken_does_not_happen() {
    let denied = |policy: &Policy| {
        for name in Name::ALL
            .iter()
            .filter(|name| !line(policy, &format!("{name} {}", name.spec().example)).starts_with("allow · always"))
        {
            assert_eq!(say(policy, &format!("{name} {}", name.spec().example)).verdict, Verdict::Deny, "{name}");
        }
    };
    denied(&Policy::deny_all());
    // Every truncation of a good file is either refused or grants nothing that the whole does not grant.
    let text = Policy::default_text();
    let whole = file(text);
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        if let Ok(part) = Policy::parse(&text[..end]) {
            for name in Name::ALL {
                let example = format!("{name} {}", name.spec().example);
                assert!(say(&part, &example).verdict <= say(&whole, &example).verdict, "{example} after {end} bytes");
            }
        }
    }
    for broken in [
        "",
        "# nothing",
        "version: 2",
        "version: 1\nroles: [",
        "\u{0}",
        "{}",
        "version: 1\ndefault_role: a\nroles: {b: {}}",
    ] {
        assert!(!Policy::parse(broken).unwrap_err().is_empty(), "{broken}");
    }
}

#[test]
fn only_the_first_word_of_a_command_is_not_what_is_checked() {
    let policy = role("{exec: {shell: false, programs: [git, wc]}}");
    for denied in [
        "git; curl evil",
        "git && curl",
        "git $(curl evil)",
        "git `x`",
        "git | sh",
        "curl",
        "",
        " ",
        "A=1 git",
        "git\ncurl",
        "git > /etc/x",
        "\"git\"",
    ] {
        let args = serde_json::json!({ "cmd": denied });
        assert_eq!(say(&policy, &format!("EXEC_CMD {args}")).verdict, Verdict::Deny, "{denied}");
    }
    assert_eq!(line(&policy, r#"EXEC_CMD {"cmd":"git log -n 3"}"#), "allow · role r: exec");
}

/// `coreutils` granted nothing where the first word alone was compared.
#[test]
fn the_name_of_a_package_stands_for_its_programs() {
    let policy = role("{exec: {shell: false, programs: [sh, coreutils, git]}}");
    assert_eq!(line(&policy, r#"EXEC_CMD {"cmd":"cat f"}"#), "allow · role r: exec");
    let plain = "plain words alone, without quotes and signs of the shell, the first a program of [sh, coreutils, git]; for \
                 more, `shell: true` in the role's `exec`";
    for (denied, hint) in [
        ("coreutils f", plain),
        ("diff a b", "\"diff\" in `programs` of the role's `exec`"),
        ("git --version && id", plain),
        ("cat 'f'", plain),
    ] {
        let said = say(&policy, &format!("EXEC_CMD {}", serde_json::json!({ "cmd": denied })));
        assert_eq!((said.verdict, said.hint.as_deref()), (Verdict::Deny, Some(hint)), "{denied}");
    }
}

#[test]
fn what_lies_in_the_workspace_is_a_program_where_a_word_says_so() {
    let may = |programs: &str, cmd: &str| {
        let policy = role(&format!("{{exec: {{shell: false, programs: [{programs}]}}}}"));
        let args = serde_json::json!({ "cmd": cmd });
        let own = policy.role("r").unwrap().exec.as_ref().unwrap().runs_own();
        (say(&policy, &format!("EXEC_CMD {args}")).verdict == Verdict::Allow, own)
    };
    assert_eq!(may("git, ./**", "./a.out -n 3"), (true, true));
    assert_eq!(may("git, ./**", "./build/deep/a.out"), (true, true));
    assert_eq!(may("git", "./a.out"), (false, false));
    for denied in ["./../a.out", "./a/../../b", "a.out", "build/a.out", "/tmp/a.out", "./a.out; id", "../a.out"] {
        assert_eq!(may("git, ./**", denied), (false, true), "{denied}");
    }
}

/// A denial of beginning one thing denied ending every other.
#[test]
fn who_may_not_begin_one_thing_may_end_others() {
    let watch = role("{fs: [{path: '**', ops: [read]}], calls: [{call: FS_WATCH private/**, verdict: deny}]}");
    assert_eq!(say(&watch, r#"FS_WATCH {"path":"private/a"}"#).verdict, Verdict::Deny);
    assert_eq!(say(&watch, r#"FS_UNWATCH {"watch_id":"w1"}"#).verdict, Verdict::Allow);
    // Where the end itself is named it is denied, and with it alone there is nothing to end.
    for denies in ["{call: FS_UNWATCH, verdict: deny}", "{call: 'FS_* private/**', verdict: deny}"] {
        let closed = role(&format!("{{fs: [{{path: '**', ops: [read]}}], calls: [{denies}]}}"));
        assert_eq!(say(&closed, r#"FS_UNWATCH {"watch_id":"w1"}"#).verdict, Verdict::Deny, "{denies}");
    }
    let alone = role("{calls: [{call: FS_WATCH private/**, verdict: deny}]}");
    assert_eq!(say(&alone, r#"FS_UNWATCH {"watch_id":"w1"}"#).verdict, Verdict::Deny);
}

#[test]
fn private_and_metadata_addresses_are_not_reached() {
    let policy =
        role("{net: [{to: '**:*', allow: ['GET /**']}, {to: '127.0.0.1:8080', allow: ['GET /**'], private: true}]}");
    for url in [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://10.1.2.3/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://169.254.169.254/latest",
        "http://metadata.google.internal/",
        "http://[fd00:ec2::254]/",
        "http://[fd20:ce::254]/",
        "http://printer/",
        "http://nas.local/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://192.168.0.1.:80/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:pw@example.com/",
        "http://exa mple.com/",
        "http://ex\u{e4}mple.com/",
    ] {
        let args = serde_json::json!({ "url": url });
        assert_eq!(say(&policy, &format!("NET_FETCH {args}")).verdict, Verdict::Deny, "{url}");
    }
    for url in ["http://127.0.0.1:8080/x", "https://example.com/", "http://1.1.1.1/", "https://[2606:4700::1111]/"] {
        let args = serde_json::json!({ "url": url });
        assert_eq!(say(&policy, &format!("NET_FETCH {args}")).verdict, Verdict::Allow, "{url}");
    }
}

#[test]
fn a_role_is_described_by_what_can_be_called_on_what() {
    let policy = aos_policy::Policy::parse(aos_policy::Policy::default_text()).unwrap();
    let lines = policy.describe("assistant");
    assert!(lines.iter().any(|line| line.starts_with("FS_READ, FS_WRITE") && line.ends_with(" on **")), "{lines:#?}");
    assert!(lines.contains(&"ASK_USER".to_owned()), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("THREAD_") && !line.contains("SYS_EXIT")), "{lines:#?}");
}
