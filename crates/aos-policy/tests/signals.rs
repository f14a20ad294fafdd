//! Signals: what is below a process is always reached, and any other as it is granted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_abi::entry::Verdict;
use aos_abi::syscall::Kill;
use aos_abi::{Name, Pid, Syscall};
use aos_policy::diff::diff;
use aos_policy::{Given, Grants, Labels, Policy, Standing, Subject};
use rig::{call, file, grants, role, subject};

const KILL: &str = r#"KILL {"pid":17}"#;

/// What is said to a signal that reaches these, in one line, with its hint.
fn said(policy: &Policy, chain: &[Grants], reaches: &[&str]) -> String {
    let reaches: Vec<String> = reaches.iter().map(|name| (*name).to_owned()).collect();
    let said = policy.explain(&Subject { reaches: Some(&reaches), ..subject(chain) }, &call(KILL));
    let hint = said.hint.map(|hint| format!(" · {hint}")).unwrap_or_default();
    format!("{} · {}{hint}", said.verdict.as_str(), said.rule)
}

#[test]
fn what_is_below_is_signalled_without_a_grant_and_nothing_else_is() {
    let policy = role("{calls: [ASK_USER]}");
    assert_eq!(said(&policy, &[grants(&[])], &[]), "allow · always: KILL");
    assert_eq!(said(&policy, &[], &["web-1"]), "deny · role r: no rule · KILL web-1");
    assert_eq!(said(&policy, &[], &["17"]), "deny · role r: no rule · KILL 17", "one without a name is its number");
    // Where nobody has looked whom it reaches, it counts as another one, and of a group nobody knows.
    assert_eq!(rig::line(&policy, KILL), "deny · role r: no rule");
    let group = rig::line(&role("{calls: [KILL **]}"), r#"KILL {"group":"web"}"#);
    assert_eq!(group, "deny · floor: nobody knows here who is in the group");
    // No call is read like this; one that is made in another way is closed all the same.
    for (pid, group) in [(Some(17), Some("web")), (None, None)] {
        let Syscall::Kill(kill) = call(KILL) else { unreachable!("it is one") };
        let both = Syscall::Kill(Kill { pid: pid.map(Pid), group: group.map(str::to_owned), ..kill });
        let said = policy.explain(&Subject { reaches: Some(&[]), ..subject(&[]) }, &both);
        assert_eq!(
            (said.verdict, said.rule.as_str()),
            (Verdict::Deny, "floor: a signal goes to one process or to one group")
        );
    }
}

#[test]
fn another_process_is_signalled_as_a_rule_says() {
    let policy = role(
        "{calls: [KILL web-*, {call: KILL db, verdict: ask}], ipc: [{peer: 'job.*', ops: [send, signal], verdict: hold}]}",
    );
    assert_eq!(said(&policy, &[], &["web-1"]), "allow · role r: calls[0] KILL web-*");
    assert_eq!(said(&policy, &[], &["db"]), "ask · role r: calls[1] KILL db");
    assert_eq!(said(&policy, &[], &["job.night"]), "hold · role r: ipc[0] job.*");
    assert_eq!(rig::line(&policy, r#"SEND_MSG {"to":"job.night","content":""}"#), "hold · role r: ipc[0] job.*");
    assert_eq!(
        said(&policy, &[], &["web-1", "db"]),
        "ask · role r: calls[1] KILL db",
        "the least of all that it reaches"
    );
    assert_eq!(said(&policy, &[], &["web.1"]), "deny · role r: no rule · KILL web.1", "`*` crosses no dot");
    assert_eq!(
        said(&policy, &[grants(&["KILL web-1"])], &["web-2"]),
        "deny · grant: none of this process, which has [KILL web-1] · KILL web-2"
    );
    let told = policy.describe("r");
    assert!(told.contains(&"KILL on web-*".to_owned()), "{told:?}");
    assert!(told.contains(&"KILL on db; a person is asked".to_owned()), "{told:?}");
}

/// It was `always`, so that whoever listed it among a child's permissions meant nothing by it, and must not come to
/// mean everybody.
#[test]
fn the_call_alone_grants_nobody_elses_process() {
    let policy = role("{calls: [KILL]}");
    assert_eq!(said(&policy, &[grants(&["KILL"])], &["web-1"]), "deny · role r: no rule · KILL web-1");
    let everybody = role("{calls: ['KILL *']}");
    assert_eq!(said(&everybody, &[], &["a.b/c"]), "allow · role r: calls[0] KILL *");
    assert!(said(&everybody, &[grants(&["KILL"])], &["web-1"]).starts_with("deny"));
    assert!(policy.check_child(&subject(&[]), grants(&["KILL"]).as_slice()).is_ok());
    let exceeds =
        everybody.check_child(&subject(&[grants(&["KILL web-*"])]), grants(&["KILL *"]).as_slice()).unwrap_err();
    assert_eq!((exceeds.example.as_str(), exceeds.hint.as_str()), ("KILL x", "stay within KILL web-*"));
    assert!(everybody.calls(&subject(&[grants(&[])])).contains(Name::Kill), "everybody is told of it");
    for rule in ["{call: KILL, verdict: deny}", "{call: KILL, verdict: ask}"] {
        let faults =
            Policy::parse(&format!("version: 1\ndefault_role: r\nroles:\n  r: {{calls: [{rule}]}}\n")).unwrap_err();
        assert!(faults[0].to_string().contains("is always allowed"), "{}", faults[0]);
    }
}

#[test]
fn whoever_has_read_untrusted_content_is_asked_about_unless_a_person_named_the_process() {
    let text = Policy::default_text()
        .replace("# - {peer: \"web-*\", ops: [signal], verdict: ask}", "- {peer: \"web-*\", ops: [signal]}");
    let policy = file(&text);
    let reaches = ["web-1".to_owned()];
    let read = Subject { labels: Labels::WEB, reaches: Some(&reaches), ..subject(&[]) };
    assert_eq!(policy.explain(&read, &call(KILL)).verdict, Verdict::Ask);
    let below = Subject { reaches: Some(&[]), ..read };
    assert_eq!(policy.explain(&below, &call(KILL)).verdict, Verdict::Allow, "what it started itself it may end");
    let texts = ["end process 17".to_owned()];
    let given = Subject { given: Given { texts: &texts, ..Given::default() }, ..read };
    assert_eq!(policy.explain(&given, &call(KILL)).verdict, Verdict::Allow);
    // A parent is kin to speak to, not to end.
    let parent = Subject { given: Given { parent: Some(aos_abi::Pid(17)), ..Given::default() }, ..read };
    assert_eq!(policy.explain(&parent, &call(KILL)).verdict, Verdict::Ask);
}

#[test]
fn an_approval_that_stands_covers_this_process_and_signal_alone() {
    let stands = Standing::of("p1", &call(r#"KILL {"pid":17,"signal":"STOP"}"#));
    assert_eq!(stands.shown(), "KILL with these arguments");
    assert!(stands.covers(&call(r#"KILL {"pid":17,"signal":"STOP"}"#)));
    for other in [r#"KILL {"pid":17}"#, r#"KILL {"pid":18,"signal":"STOP"}"#, r#"KILL {"group":"17","signal":"STOP"}"#]
    {
        assert!(!stands.covers(&call(other)), "{other}");
    }
    let policy = role("{ipc: [{peer: '*', ops: [signal], verdict: ask}]}");
    let reaches = ["web-1".to_owned()];
    let subject = Subject { reaches: Some(&reaches), ..subject(&[]) };
    let call: Syscall = call(r#"KILL {"pid":17,"signal":"STOP"}"#);
    assert_eq!(policy.explain_with(&subject, &[stands], &call).verdict, Verdict::Allow);
}

#[test]
fn a_difference_shows_whom_else_it_reaches() {
    let changes = diff(&role("{calls: [KILL web-1]}"), &role("{calls: [KILL web-*]}"));
    let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["+ r: KILL web-x was deny (role r: no rule), is allow (role r: calls[0] KILL web-*)"]);
}

#[test]
fn an_expectation_names_whom_a_signal_reaches() {
    let policy = role("{calls: [{call: KILL web-*, verdict: ask}]}");
    let text = "- {call: KILL, args: {pid: 7}, verdict: ask, reaches: [web-1]}\n\
        - {call: KILL, args: {pid: 7}, verdict: deny}\n\
        - {call: KILL, args: {pid: 7}, verdict: allow, reaches: []}\n";
    let outcomes = aos_policy::expect::check(&policy, text).unwrap();
    assert!(outcomes.len() == 3 && outcomes.iter().all(aos_policy::expect::Outcome::passed), "{outcomes:?}");
}
