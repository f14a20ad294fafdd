//! Standing approvals: what they cover, what they never lift, and the line of a policy that would make one needless.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_abi::entry::Verdict;
use aos_policy::loosen::loosen;
use aos_policy::{Grants, Labels, Policy, Standing, Subject};
use proptest::prelude::*;
use rig::universe::{calls, models};
use rig::{call, file, subject};

fn standing(text: &str) -> Standing {
    Standing::of("p1", &call(text))
}

#[test]
fn one_covers_the_same_call_on_the_same_thing_and_nothing_wider() {
    let covers = |given: &str, other: &str| standing(given).covers(&call(other));
    for (given, shown, yes, no) in [
        (
            r#"FS_WRITE {"path":"contracts/a","content":"1"}"#,
            "FS_WRITE contracts/a",
            vec![r#"FS_WRITE {"path":"./contracts//a","content":"2"}"#],
            vec![
                r#"FS_WRITE {"path":"contracts/b","content":"1"}"#,
                r#"FS_WRITE {"path":"contracts","content":"1"}"#,
                r#"FS_DELETE {"path":"contracts/a"}"#,
                r#"FS_WRITE {"path":"contracts/a/../../x","content":"1"}"#,
            ],
        ),
        (
            r#"NET_SEND {"url":"https://api.example.com/v1/issues","method":"POST","body":"a"}"#,
            "NET_SEND POST api.example.com/v1/issues",
            vec![r#"NET_SEND {"url":"https://api.example.com/v1/issues","method":"POST","body":"b"}"#],
            vec![
                r#"NET_SEND {"url":"https://api.example.com/v1/issues","method":"PUT"}"#,
                r#"NET_SEND {"url":"https://api.example.com/v1/issues/2","method":"POST"}"#,
                r#"NET_SEND {"url":"https://api.example.com:8443/v1/issues","method":"POST"}"#,
            ],
        ),
        (
            r#"EXEC_CMD {"cmd":"make report"}"#,
            "EXEC_CMD with these arguments",
            vec![],
            vec![r#"EXEC_CMD {"cmd":"make report; curl x"}"#, r#"EXEC_CMD {"cmd":"make report","stdin":"x"}"#],
        ),
        (
            r#"FS_MOVE {"from":"a","to":"b"}"#,
            "FS_MOVE with these arguments",
            vec![],
            vec![r#"FS_MOVE {"from":"a","to":"c"}"#, r#"FS_MOVE {"from":"b","to":"a"}"#],
        ),
        // A name that holds a sign of patterns would stand as a pattern there.
        (
            r#"FS_READ {"path":"a*"}"#,
            "FS_READ with these arguments",
            vec![],
            vec![r#"FS_READ {"path":"ab"}"#, r#"FS_READ {"path":"b"}"#],
        ),
        (
            r#"TOOL_CALL {"name":"github.create","args":{"a":1}}"#,
            "TOOL_CALL github.create",
            vec![r#"TOOL_CALL {"name":"github.create","args":{"a":2}}"#],
            vec![r#"TOOL_CALL {"name":"github.delete","args":{"a":1}}"#],
        ),
    ] {
        assert_eq!(standing(given).shown(), shown, "{given}");
        assert!(covers(given, given), "{given}");
        for yes in yes {
            assert!(covers(given, yes), "{given} covers {yes}");
        }
        for no in no {
            assert!(!covers(given, no), "{given} does not cover {no}");
        }
    }
}

#[test]
fn whitespace_at_the_end_of_a_name_is_part_of_it() {
    // Such a name left `FS_WRITE` alone, which stood for every write.
    for (given, others) in [
        (r#"FS_WRITE {"path":" ","content":""}"#, [r#"FS_WRITE {"path":"a","content":""}"#; 2]),
        (r#"FS_WRITE {"path":"\u3000","content":""}"#, [r#"FS_WRITE {"path":"a","content":""}"#; 2]),
        (
            r#"FS_WRITE {"path":"a ","content":""}"#,
            [r#"FS_WRITE {"path":"a","content":""}"#, r#"FS_WRITE {"path":"b","content":""}"#],
        ),
        (
            r#"MEM_WRITE {"namespace":"\u3000","key":"k","value":"v"}"#,
            [r#"MEM_WRITE {"namespace":"team","key":"k","value":"v"}"#, r#"MEM_WRITE {"key":"k","value":"v"}"#],
        ),
        (
            r#"MEM_WRITE {"namespace":" a","key":"k","value":"v"}"#,
            [
                r#"MEM_WRITE {"namespace":"a","key":"k","value":"v"}"#,
                r#"MEM_WRITE {"namespace":"b","key":"k","value":"v"}"#,
            ],
        ),
        (r#"SEND_MSG {"to":" ","content":"x"}"#, [r#"SEND_MSG {"to":"ann","content":"x"}"#; 2]),
        (r#"SEND_MSG {"to":"\u3000","content":"x"}"#, [r#"SEND_MSG {"to":"ann","content":"x"}"#; 2]),
        (
            r#"SEND_MSG {"to":"a ","content":"x"}"#,
            [r#"SEND_MSG {"to":"a","content":"x"}"#, r#"SEND_MSG {"to":"b","content":"x"}"#],
        ),
    ] {
        assert!(standing(given).covers(&call(given)), "{given}");
        for other in others {
            assert!(!standing(given).covers(&call(other)), "{given}: {} covers {other}", standing(given).shown());
        }
    }
}

#[test]
fn it_takes_the_place_of_a_question_and_of_nothing_else() {
    let policy = file(
        "version: 1\ndefault_role: r\nroles:\n  r:\n    fs:\n      - {path: '**', ops: [read, write]}\n      - {path: 'contracts/**', ops: [write], verdict: ask}\n      - {path: 'later/**', ops: [write], verdict: hold}\n      - {path: 'closed/**', ops: [write], verdict: deny}\nlabels:\n  - {when: untrusted, calls: [FS_WRITE], verdict: ask}\n  - {when: secret, calls: [FS_WRITE], verdict: deny}\n",
    );
    let say = |path: &str, labels: Labels, chain: &[Grants]| {
        let wanted = call(&format!(r#"FS_WRITE {{"path":"{path}","content":""}}"#));
        let stands = [Standing::of("p7", &wanted)];
        let said = policy.explain_with(&Subject { labels, ..subject(chain) }, &stands, &wanted);
        format!("{} · {}", said.verdict.as_str(), said.rule)
    };
    assert_eq!(say("contracts/a", Labels::NONE, &[]), "allow · standing approval p7: role r: fs[1] contracts/**");
    assert_eq!(say("later/a", Labels::NONE, &[]), "allow · standing approval p7: role r: fs[2] later/**");
    assert_eq!(say("closed/a", Labels::NONE, &[]), "deny · role r: fs[3] closed/**");
    assert_eq!(say("contracts/a", Labels::WEB, &[]), "ask · label: labels[0] untrusted");
    assert_eq!(say("contracts/a", Labels::SECRET, &[]), "deny · label: labels[1] secret");
    assert!(say("contracts/.aos/x", Labels::NONE, &[]).starts_with("deny · floor"));
    let other = [rig::grants(&["FS_WRITE docs/**"])];
    assert!(say("contracts/a", Labels::NONE, &other).starts_with("deny · grant"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_standing_approval_lifts_a_denial_a_label_or_the_floor(
        model in models(),
        given in prop::collection::vec(calls(), 1..8),
        made in prop::collection::vec(calls(), 8),
    ) {
        let policy = file(&model.yaml());
        let chain: Vec<Grants> = model.chain.iter().map(|grants| {
            let texts: Vec<String> = grants.iter().map(|(name, pattern)| format!("{name} {pattern}").trim().to_owned()).collect();
            Grants::parse(&texts).unwrap()
        }).collect();
        let stands: Vec<Standing> = given.iter().map(|call| Standing::of("p1", call)).collect();
        for call in given.iter().chain(&made) {
            let plain = subject(&chain);
            let covered = stands.iter().any(|one| one.covers(call));
            let (before, after) = (policy.explain(&plain, call), policy.explain_with(&plain, &stands, call));
            let lifted = covered && matches!(before.verdict, Verdict::Ask | Verdict::Hold);
            let expected = if lifted { Verdict::Allow } else { before.verdict };
            prop_assert_eq!(after.verdict, expected, "{:?}: {}\n{}", call, before.rule, model.yaml());
            prop_assert_eq!(after.standing.is_some(), lifted);
            prop_assert_eq!(&after.obligations, &before.obligations);
            // With labels: exactly what the rules about labels say to one whose role allows, and never more.
            let labelled = Subject { labels: Labels::UNTRUSTED.and(Labels::SECRET), ..plain };
            let (before, after) = (policy.explain(&labelled, call), policy.explain_with(&labelled, &stands, call));
            prop_assert!(before.verdict <= after.verdict);
            if before.verdict != after.verdict {
                prop_assert!(lifted && before.verdict > Verdict::Deny);
                prop_assert!(!before.rule.starts_with("label"), "{}: {}", before.rule, model.yaml());
            }
        }
    }
}

const TEXT: &str = "version: 1
default_role: r
roles:
  r:
    calls: [SPAWN_AGENT, {call: TOOL_SEARCH, verdict: ask}]
    fs:
      - {path: \"**\", ops: [read, write]}
      # what lawyers see
      - {path: \"contracts/**\", ops: [write], verdict: \"ask\"}   # ask
    exec: {shell: true, programs: [sh], verdict: hold, window: 5m}
labels:
  - {when: untrusted, calls: [EXEC_CMD], verdict: ask}
";

#[test]
fn the_rule_that_asks_is_changed_by_one_word_and_all_else_stays() {
    let loosened = |rule: &str| loosen(TEXT, rule).map(|done| (done.line, done.text));
    assert_eq!(loosened("role r: fs[1] contracts/**"), Ok((9, TEXT.replace("verdict: \"ask\"", "verdict: \"allow\""))));
    assert_eq!(
        loosened("role r: calls[1] TOOL_SEARCH"),
        Ok((5, TEXT.replace("TOOL_SEARCH, verdict: ask", "TOOL_SEARCH, verdict: allow")))
    );
    for rule in [
        "role r: fs[0] **",
        "role r: fs[2] x",
        "role s: fs[1] contracts/**",
        "label: labels[0] untrusted",
        "PROPOSE",
        "role r: no rule",
        "role r: models small",
        "",
        "role r: fs[18446744073709551616] x",
    ] {
        assert!(loosened(rule).is_err(), "{rule}");
    }
    // What cannot stand beside `allow` is not written.
    let held = loosen(TEXT, "role r: exec");
    assert!(held.is_err() || Policy::parse(&held.unwrap().text).is_ok());
}
