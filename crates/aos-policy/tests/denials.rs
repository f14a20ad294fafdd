//! Denials that a person may lift: what a call wants, what a yes stands in for, and the line of a policy that grants it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_abi::entry::Verdict;
use aos_abi::{Name, Syscall};
use aos_policy::loosen::grant;
use aos_policy::{Approval, Grants, Labels, Policy, Standing, Subject};
use proptest::prelude::*;
use rig::universe::{calls, labels, models};
use rig::{call, file, grants, subject};

const TEXT: &str = "version: 1
default_role: r
roles:
  r:
    calls: [SPAWN_AGENT]   # few
    fs:
      - {path: \"docs/**\", ops: [read]}
      - {path: \"docs/later/**\", ops: [read], verdict: ask}
      - {path: \"closed/**\", ops: [read, write], verdict: deny}
    exec: {shell: false, programs: [ls]}
labels:
  - {when: untrusted, calls: [FS_WRITE, EXEC_CMD], verdict: ask}
  - {when: secret, calls: [FS_WRITE], verdict: deny}
";

/// What the yes to this very call comes to.
fn once(policy: &Policy, subject: &Subject<'_>, call: &Syscall) -> Verdict {
    let args = call.args();
    let generation = Some(policy.generation());
    let yes = Approval { id: "p7", name: call.name(), args: &args, generation, lifts: true };
    policy.authorize_approved(subject, call.clone(), &yes).verdict
}

#[test]
fn what_is_wanted_is_said_where_a_yes_can_stand_in_for_it() {
    let policy = file(TEXT);
    let given = [grants(&["FS_READ docs/**"])];
    let nothing: [Grants; 2] = [grants(&["FS_WRITE"]), Grants::default()];
    // `KILL` without a pattern is no grant of anything.
    let everybodys = [grants(&["SYS_EXIT", "KILL", "SLEEP"])];
    let wants = |text: &str, labels: Labels, chain: &[Grants]| {
        let (call, subject) = (call(text), Subject { labels, ..subject(chain) });
        let wanting = policy.wanting(&subject, &call);
        let said = once(&policy, &subject, &call);
        assert_eq!(said > Verdict::Deny, wanting.is_some() || policy.explain(&subject, &call).verdict > Verdict::Deny);
        wanting.map(|wanting| (wanting.grants.join(", "), wanting.of_role))
    };
    let (none, by_role) = (Labels::NONE, |grant: &str| Some((grant.to_owned(), true)));
    assert_eq!(wants(r#"FS_WRITE {"path":"a","content":""}"#, none, &[]), by_role("FS_WRITE a"));
    assert_eq!(wants(r#"FS_WRITE {"path":"a","content":""}"#, Labels::WEB, &[]), by_role("FS_WRITE a"));
    assert_eq!(wants(r#"FS_MOVE {"from":"a","to":"docs/b"}"#, none, &[]), by_role("FS_MOVE a, FS_MOVE docs/b"));
    // Nothing could read that line, and no other program is there.
    for command in [r#"EXEC_CMD {"cmd":"ls | wc"}"#, r#"EXEC_CMD {"cmd":"wc"}"#] {
        assert_eq!(wants(command, none, &[]), None);
    }
    let with_shell = file(&TEXT.replace("[ls]", "[sh, ls]"));
    let piped = call(r#"EXEC_CMD {"cmd":"ls | wc"}"#);
    assert_eq!(with_shell.wanting(&subject(&[]), &piped).unwrap().grants, ["EXEC_CMD"]);
    assert_eq!(with_shell.wanting(&subject(&[]), &call(r#"EXEC_CMD {"cmd":"wc"}"#)), None);
    assert_eq!(wants(r#"NET_FETCH {"url":"https://a.example/x"}"#, none, &[]), by_role("NET_FETCH a.example/x"));
    let read = r#"FS_READ {"path":"docs/a"}"#;
    assert_eq!(wants(read, none, &[grants(&["FS_READ b"])]), Some(("FS_READ docs/a".to_owned(), false)));
    // Allowed, or asked about: nothing is wanted.
    assert_eq!(wants(read, none, &given), None);
    for (text, labels, chain) in [
        (r#"FS_WRITE {"path":"closed/a","content":""}"#, none, &[][..]),
        (r#"FS_SEARCH {"pattern":"x"}"#, none, &[]),
        (r#"FS_WRITE {"path":"../a","content":""}"#, none, &[]),
        (r#"FS_WRITE {"path":".aos/a","content":""}"#, none, &[]),
        (r#"FS_WRITE {"path":"a","content":""}"#, Labels::SECRET, &[]),
        (r#"NET_FETCH {"url":"http://127.0.0.1/"}"#, none, &[]),
        (r#"NET_FETCH {"url":"http://169.254.169.254/"}"#, none, &[]),
        (read, none, &nothing[..]),
        (read, none, &everybodys[..]),
        (r#"FS_WRITE {"path":"a","content":""}"#, none, &nothing[..]),
    ] {
        assert_eq!(wants(text, labels, chain), None, "{text}");
    }
    assert_eq!(
        file("version: 1\ndefault_role: r\nroles:\n  r: {}\n")
            .wanting(&subject(&[]), &call(r#"EXEC_CMD {"cmd":"ls"}"#)),
        None
    );
    assert_eq!(Policy::deny_all().wanting(&subject(&[]), &call(read)), None);
}

#[test]
fn a_yes_to_a_child_is_no_yes_to_what_is_attached_to_it() {
    let policy = file("version: 1\ndefault_role: r\nroles:\n  r: {}\n");
    let bare = call(r#"SPAWN_AGENT {"role":"r","quarantine":true}"#);
    let with = call(r#"SPAWN_AGENT {"role":"r","quarantine":true,"attachments":["a.txt"]}"#);
    assert_eq!(policy.wanting(&subject(&[]), &bare).unwrap().grants, ["SPAWN_AGENT"]);
    assert_eq!((policy.wanting(&subject(&[]), &with), once(&policy, &subject(&[]), &with)), (None, Verdict::Deny));
}

#[test]
fn a_yes_that_stands_lifts_what_the_role_has_not_and_no_grant() {
    let policy = file(TEXT);
    let say = |text: &str, labels: Labels, chain: &[Grants]| {
        let wanted = call(text);
        let stands = [Standing::of("p7", &wanted).lifting()];
        let said = policy.explain_with(&Subject { labels, ..subject(chain) }, &stands, &wanted);
        format!("{} · {}", said.verdict.as_str(), said.rule)
    };
    let write = r#"FS_WRITE {"path":"a","content":""}"#;
    assert_eq!(say(write, Labels::NONE, &[]), "allow · standing approval p7: role r: no rule");
    assert_eq!(say(write, Labels::WEB, &[]), "ask · label: labels[0] untrusted");
    assert_eq!(say(write, Labels::SECRET, &[]), "deny · label: labels[1] secret");
    assert!(say(write, Labels::NONE, &[grants(&["FS_READ"])]).starts_with("deny · grant"));
    assert_eq!(say(write, Labels::NONE, &[grants(&["FS_WRITE"])]), "allow · standing approval p7: role r: no rule");
    // A part of it is asked about, which nobody was shown.
    let policy = file(&TEXT.replace("      - {path: \"closed/**\", ops: [read, write], verdict: deny}\n", ""));
    let search = call(r#"FS_SEARCH {"pattern":"x"}"#);
    let stands = [Standing::of("p7", &search).lifting()];
    assert_eq!(policy.explain_with(&subject(&[]), &stands, &search).verdict, Verdict::Deny);
    assert_eq!(policy.explain_lifted(&subject(&[]), &search).verdict, Verdict::Ask);
}

#[test]
fn a_yes_to_one_run_of_a_command_lets_the_very_calls_in_it_pass() {
    let policy = file(&TEXT.replace(
        "labels:\n",
        "labels:\n  - {when: personal, to: any, do: redact}\n  - {when: untrusted, calls: [NET_FETCH], verdict: ask}\n",
    ));
    let given = [grants(&["FS_READ docs/**"])];
    let say = |shown: &str, made: &str, labels: Labels, chain: &[Grants]| {
        let subject = Subject { labels, ..subject(chain) };
        let run = [Standing::for_one_run("p7", &call(shown))];
        let wants = policy.wanting_inside(&subject, &[], &call(shown)).is_some();
        (wants, policy.explain_with(&subject, &run, &call(made)).verdict == Verdict::Allow)
    };
    let (fetch, write) = (r#"NET_FETCH {"url":"https://a.example/x?q=1"}"#, r#"FS_WRITE {"path":"a*","content":""}"#);
    for chain in [&[][..], &given] {
        assert_eq!(say(fetch, fetch, Labels::NONE, chain), (true, true));
        assert_eq!(say(write, write, Labels::NONE, chain), (true, true));
    }
    for other in [
        r#"NET_FETCH {"url":"https://a.example/x?q=2"}"#,
        r#"NET_SEND {"url":"https://a.example/x?q=1","method":"POST"}"#,
    ] {
        assert_eq!(say(fetch, other, Labels::NONE, &[]), (true, false), "{other}");
    }
    assert_eq!(say(write, r#"FS_WRITE {"path":"ab","content":""}"#, Labels::NONE, &[]), (true, false));
    // Labels, the floor, rules that deny or ask, what must be looked through, and who was given nothing.
    assert_eq!(say(fetch, fetch, Labels::WEB, &[]), (false, false));
    assert!(!say(fetch, fetch, Labels::PERSONAL, &[]).0);
    assert_eq!(say(fetch, fetch, Labels::NONE, &[Grants::default()]), (false, false));
    for closed in [r#"NET_FETCH {"url":"http://127.0.0.1/"}"#, r#"FS_WRITE {"path":"closed/a","content":""}"#] {
        assert_eq!(say(closed, closed, Labels::NONE, &[]), (false, false), "{closed}");
    }
    assert!(!say(r#"FS_READ {"path":"docs/later/a"}"#, fetch, Labels::NONE, &[grants(&["NET_FETCH"])]).0);
    // What a rule of the role asks about or holds, nobody can be asked while the command runs: the yes answers it, where no rule
    // about labels asks too.
    let asks = file(&TEXT.replace(
        "labels:\n",
        "    net:\n      - {to: \"b.example\", allow: [\"GET /**\"], verdict: ask}\n      - {to: \"b.example\", allow: [\"POST \
         /**\"], verdict: hold}\nlabels:\n  - {when: untrusted, calls: [NET_FETCH], verdict: ask}\n",
    ));
    for asked in
        [r#"NET_FETCH {"url":"https://b.example/x"}"#, r#"NET_SEND {"url":"https://b.example/x","method":"POST"}"#]
    {
        let wants = asks.wanting_inside(&subject(&[]), &[], &call(asked));
        assert_eq!(wants.map(|wants| wants.len()), Some(1), "{asked}");
        assert!(asks.wanting_unasked(&subject(&[]), &call(asked)).is_some());
    }
    let labelled = Subject { labels: Labels::WEB, ..subject(&[]) };
    assert_eq!(asks.wanting_inside(&labelled, &[], &call(r#"NET_FETCH {"url":"https://b.example/x"}"#)), None);
    // What stands by now is not wanted.
    let stands = [Standing::of("p7", &call(fetch)).lifting()];
    assert_eq!(policy.wanting_inside(&subject(&[]), &stands, &call(fetch)), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A yes comes to what the same policy says where each layer has, beside what it has, exactly what is wanted.
    #[test]
    fn a_yes_stands_in_for_the_wanting_grants_and_for_nothing_else(
        model in models(),
        made in prop::collection::vec(calls(), 8),
    ) {
        let policy = file(&model.yaml());
        let chain: Vec<Grants> = model.chain.iter().map(|grants| {
            let texts: Vec<String> = grants.iter().map(|(name, pattern)| format!("{name} {pattern}")).collect();
            Grants::parse(&texts).unwrap()
        }).collect();
        for call in &made {
            let plain = subject(&chain);
            let (before, wanting) = (policy.explain(&plain, call), policy.wanting(&plain, call));
            let lifted = once(&policy, &plain, call);
            prop_assert_eq!(lifted > Verdict::Deny, before.verdict > Verdict::Deny || wanting.is_some());
            let labelled = Subject { labels: Labels::UNTRUSTED.and(Labels::SECRET), ..plain };
            let by_labels = policy.explain_lifted(&labelled, call);
            prop_assert!(by_labels.verdict <= policy.explain_lifted(&plain, call).verdict, "labels take away alone");
            let stands = [Standing::of("p1", call).lifting()];
            let standing = policy.explain_with(&plain, &stands, call);
            prop_assert!(standing.verdict == Verdict::Deny || lifted > Verdict::Deny, "{:?}\n{}", call, model.yaml());
            let Some(wanting) = wanting else { continue };
            prop_assert!(!wanting.grants.is_empty() && before.verdict == Verdict::Deny);
            prop_assert!(before.rule.contains("no rule") || before.rule.starts_with("grant:"), "{}", before.rule);
            if before.rule.starts_with("grant:") {
                prop_assert_eq!(standing.verdict, Verdict::Deny, "no grant is lifted for longer: {:?}", call);
            }
            for one in &wanting.grants {
                prop_assert!(one.parse::<aos_policy::Grant>().is_ok(), "{} is no grant", one);
            }
        }
    }

    /// What is listed of a command passes in one run of it, whatever the window carries; and a rule about labels, the floor or
    /// one that denies keeps it off the list.
    #[test]
    fn what_is_wanted_in_a_command_passes_in_its_run_and_is_none_that_labels_ask_about(
        model in models(),
        made in prop::collection::vec(calls(), 8),
        carried in labels(),
    ) {
        let policy = file(&model.yaml());
        let chain: Vec<Grants> = model.chain.iter().map(|grants| {
            let texts: Vec<String> = grants.iter().map(|(name, pattern)| format!("{name} {pattern}")).collect();
            Grants::parse(&texts).unwrap()
        }).collect();
        let labels = carried.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
        let who = Subject { labels, ..subject(&chain) };
        for call in made.iter().filter(|call| call.name() == Name::NetFetch || call.name() == Name::NetSend) {
            let said = policy.explain(&who, call);
            let open = file(&model.open().yaml());
            let by_labels = open.explain(&Subject { labels, ..subject(&[]) }, call).verdict;
            let without = open.explain(&subject(&[]), call).verdict;
            let run = [Standing::for_one_run("p1", call)];
            let then = policy.explain_with(&who, &run, call);
            let kept = then.obligations.redact || !then.obligations.rates.is_empty();
            match policy.wanting_inside(&who, &[], call) {
                Some(grants) => {
                    prop_assert!(said.verdict < Verdict::Allow && then.verdict == Verdict::Allow && !kept, "{:?}", call);
                    prop_assert!(!grants.is_empty() && !said.rule.starts_with("floor"), "{}", said.rule);
                    prop_assert_eq!(by_labels, without, "labels say nothing of it: {:?}\n{}", call, model.yaml());
                    prop_assert!(!chain.iter().any(|grants| grants.as_slice().is_empty()), "it was given nothing");
                }
                None => prop_assert!(said.verdict == Verdict::Allow || then.verdict < Verdict::Allow || kept, "{:?}", call),
            }
        }
    }
}

#[test]
fn a_grant_is_put_first_into_the_calls_of_a_role_and_all_else_stays() {
    let write = call(r#"FS_WRITE {"path":"a","content":""}"#);
    let put = |text: &str, role: &str, grants: &[&str], call: &Syscall| {
        let grants: Vec<String> = grants.iter().map(|grant| (*grant).to_owned()).collect();
        grant(text, role, &grants, std::slice::from_ref(call)).map(|done| (done.line, done.text))
    };
    assert_eq!(
        put(TEXT, "r", &["FS_WRITE a"], &write),
        Ok((5, TEXT.replace("calls: [SPAWN_AGENT]", "calls: [\"FS_WRITE a\", SPAWN_AGENT]")))
    );
    let empty = TEXT.replace("[SPAWN_AGENT]", "[]");
    let full = TEXT.replace("[SPAWN_AGENT]", "[\"FS_WRITE a\"]");
    assert_eq!(put(&empty, "r", &["FS_WRITE a"], &write), Ok((5, full)));
    let block = TEXT.replace("calls: [SPAWN_AGENT]   # few", "calls:\n      - SPAWN_AGENT");
    let more = block.replace("      - SPAWN_AGENT", "      - \"FS_WRITE a\"\n      - SPAWN_AGENT");
    assert_eq!(put(&block, "r", &["FS_WRITE a"], &write), Ok((6, more)));
    let without = TEXT.replace("    calls: [SPAWN_AGENT]   # few\n", "");
    let with = without.replace("    fs:\n", "    calls: [\"FS_WRITE a\"]\n    fs:\n");
    assert_eq!(put(&without, "r", &["FS_WRITE a"], &write), Ok((5, with)));
    // Nothing is written that would not help, or that cannot be written; the line is said instead.
    let shell = call(r#"EXEC_CMD {"cmd":"ls | wc"}"#);
    let flow = "version: 1\ndefault_role: r\nroles: {r: {fs: [{path: docs, ops: [read]}]}}\n";
    let closed = call(r#"FS_WRITE {"path":"closed/a","content":""}"#);
    let refused = put(TEXT, "r", &["EXEC_CMD"], &shell).unwrap_err();
    assert!(refused.hint.ends_with("for more, `shell: true` in the role's `exec`"), "{refused:?}");
    let refused =
        put("version: 1\ndefault_role: r\nroles:\n  r: {calls: []}\n", "r", &["EXEC_CMD"], &shell).unwrap_err();
    assert!(refused.hint.ends_with("in the role: exec: {shell: true, programs: [sh, \"ls\"]}"), "{refused:?}");
    for (text, role, wants, call) in [
        (TEXT, "r", "FS_WRITE closed/a", &closed),
        (TEXT, "s", "FS_WRITE a", &write),
        (TEXT, "r", "FS_WRITE b", &write),
        (flow, "r", "FS_WRITE a", &write),
    ] {
        let refused = put(text, role, &[wants], call).unwrap_err();
        assert!(refused.hint.contains(&format!("\"{wants}\" in its `calls`")), "{refused:?}");
    }
}

#[test]
fn a_role_gets_no_grant_of_everything_for_a_name_that_ends_with_whitespace() {
    // `FS_WRITE  ` is `FS_WRITE` to whoever reads it.
    for text in [
        r#"FS_WRITE {"path":" ","content":""}"#,
        r#"FS_WRITE {"path":"\u3000","content":""}"#,
        r#"FS_WRITE {"path":"a ","content":""}"#,
        r#"MEM_WRITE {"namespace":" ","key":"k","value":"v"}"#,
        r#"SEND_MSG {"to":"\u3000","content":"x"}"#,
    ] {
        let call = call(text);
        let wanting = file(TEXT).wanting(&subject(&[]), &call).unwrap();
        assert!(grant(TEXT, "r", &wanting.grants, std::slice::from_ref(&call)).is_err(), "{:?}", wanting.grants);
        assert!(grant(TEXT, "r", &[format!("{}  ", call.name())], std::slice::from_ref(&call)).is_err(), "{text}");
    }
}

#[test]
fn a_role_gets_no_grant_that_is_wider_than_the_call_that_wanted_it() {
    let policy = file(TEXT);
    for text in [
        r#"FS_WRITE {"path":"a*","content":""}"#,
        r#"FS_WRITE {"path":"x/[1]/b","content":""}"#,
        r#"FS_LIST {"path":"x*y"}"#,
        r#"SEND_MSG {"to":"**","content":"x"}"#,
        r#"NET_FETCH {"url":"https://a.example/x*/**"}"#,
        r#"CHANNEL_SEND {"channel":"mail","to":"a*","content":"x"}"#,
    ] {
        let call = call(text);
        let wanting = policy.wanting(&subject(&[]), &call).unwrap();
        let refused = grant(TEXT, "r", &wanting.grants, std::slice::from_ref(&call)).unwrap_err();
        assert!(refused.why.contains("more than this call") && refused.hint.contains('*'), "{refused:?}");
    }
    // What a folder holds is what the call shows.
    let list = call(r#"FS_SEARCH {"path":"x","pattern":"y"}"#);
    let wanting = policy.wanting(&subject(&[]), &list).unwrap();
    assert_eq!(wanting.grants, ["FS_SEARCH x/**"]);
    assert!(grant(TEXT, "r", &wanting.grants, std::slice::from_ref(&list)).is_ok());
}

#[test]
fn whom_a_signal_reaches_is_put_into_a_role_by_hand() {
    let kill = call(r#"KILL {"pid":7}"#);
    let refused = grant(TEXT, "r", &["KILL db".to_owned()], std::slice::from_ref(&kill)).unwrap_err();
    assert!(refused.hint.ends_with("the role `r` wants \"KILL db\" in its `calls`"), "{refused:?}");
    // By its word nothing would be known of another call; that of an unnamed one does not pass either.
    assert!(grant(TEXT, "r", &["KILL 7".to_owned()], std::slice::from_ref(&kill)).is_err());
}
