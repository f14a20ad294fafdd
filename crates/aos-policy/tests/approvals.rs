//! Permits and approvals: what a person said yes to, and nothing else.

mod rig;

use aos_abi::Name;
use aos_abi::entry::Verdict;
use aos_policy::{Approval, Policy, Subject};
use rig::{call, grants, role, subject};

const WRITE: &str = r#"FS_WRITE {"path":"contracts/a","content":"x"}"#;

fn asking() -> Policy {
    role("{fs: [{path: '**', ops: [read, write]}, {path: contracts/**, ops: [write], verdict: ask}]}")
}

#[test]
fn only_allow_gives_a_permit() {
    let policy = asking();
    let ruling = policy.authorize(&subject(&[]), call(WRITE));
    assert_eq!(ruling.verdict, Verdict::Ask);
    assert!(ruling.permit.is_none());
    assert_eq!(ruling.refused, Some(call(WRITE)), "the call comes back, to be proposed");
    let ruling = policy.authorize(&subject(&[]), call(r#"FS_WRITE {"path":"b","content":"x"}"#));
    let permit = ruling.permit.expect("it is allowed");
    assert_eq!(
        (permit.pid(), permit.rule(), permit.call().name()),
        (aos_abi::Pid(7), "role r: fs[0] **", Name::FsWrite)
    );
    assert_eq!(permit.into_call(), call(r#"FS_WRITE {"path":"b","content":"x"}"#));
}

#[test]
fn an_approval_is_of_these_arguments_under_this_policy() {
    let policy = asking();
    let args = call(WRITE).args();
    let generation = policy.generation().to_owned();
    let yes = Approval { id: "p3", name: Name::FsWrite, args: &args, generation: Some(&generation), lifts: false };
    let ruling = policy.authorize_approved(&subject(&[]), call(WRITE), &yes);
    assert_eq!(ruling.rule, "approval p3: role r: fs[1] contracts/**");
    assert!(ruling.permit.is_some());

    let refused = |policy: &Policy, subject: &Subject<'_>, text: &str| {
        let ruling = policy.authorize_approved(subject, call(text), &yes);
        assert!(ruling.permit.is_none(), "{text}");
        assert_eq!(ruling.verdict, Verdict::Deny);
        ruling.rule
    };
    let other = r#"FS_WRITE {"path":"contracts/a","content":"y"}"#;
    assert_eq!(refused(&policy, &subject(&[]), other), "approval: it was given for other arguments");
    let stricter = role("{fs: [{path: '**', ops: [read]}]}");
    assert_eq!(refused(&stricter, &subject(&[]), WRITE), "approval: the policy has changed since it was given");
    // What is denied by now stays denied, whatever was approved.
    let kept = Approval { generation: None, ..yes };
    let ruling = stricter.authorize_approved(&subject(&[]), call(WRITE), &kept);
    assert_eq!(
        (ruling.verdict, ruling.rule.as_str(), ruling.permit.is_none()),
        (Verdict::Deny, "role r: no rule", true)
    );
    let narrowed = [grants(&["FS_READ **"])];
    assert!(refused(&policy, &subject(&narrowed), WRITE).starts_with("grant: none of this process"));
}
