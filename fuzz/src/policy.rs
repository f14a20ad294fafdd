//! The policy file as somebody may write it, and the patterns in it.

use aos_abi::entry::Verdict;
use aos_abi::{Name, Pid, Syscall};
use aos_policy::diff::diff;
use aos_policy::pattern::{Domain, Pattern};
use aos_policy::{Given, Labels, Policy, Subject};

/// The text of `policy.yaml`.
pub fn policy_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(faults) => {
            // A line ends at each of them (YAML 1.2.2, 5.4); where both stand together one is counted in vain. What is
            // missing at the end of a text is missed on the line after the last.
            let lines = text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 2;
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(!fault.message.is_empty());
                assert!((1..=lines).contains(&fault.line) && fault.column > 0, "{fault:?} of {lines} lines");
            }
            return;
        }
    };
    let again = Policy::parse(&text).expect("the same text gives the same answer");
    assert_eq!(again.generation(), policy.generation());
    assert_eq!(diff(&policy, &again), [], "a policy does not differ from itself");
    for role in policy.roles() {
        let _ = policy.describe(role);
        let (labels, given) = (Labels::NONE, Given::default());
        let subject = Subject { pid: Pid(7), role, chain: &[], labels, given, reaches: None };
        let shown = policy.calls(&subject);
        assert_eq!(policy.calls(&subject), shown);
        for name in Name::ALL {
            let call = Syscall::parse(name.as_str(), name.spec().example).expect("it is an example");
            let said = policy.explain(&subject, &call);
            let ruled = policy.authorize(&subject, call);
            assert_eq!(ruled.verdict, said.verdict, "{role}: {name:?}");
            assert_eq!(ruled.permit.is_some(), ruled.verdict == Verdict::Allow, "{role}: {name:?}");
        }
    }
}

/// Patterns and a value. The first byte chooses the domain; then lines: a pattern, another, and a value.
pub fn policy_pattern(data: &[u8]) {
    let Some((domain, rest)) = data.split_first() else { return };
    let domain = [Domain::Path, Domain::Host, Domain::Word, Domain::Address][usize::from(domain % 4)];
    let text = String::from_utf8_lossy(rest);
    let mut lines = text.split('\n');
    let (Some(one), Some(other)) = (lines.next(), lines.next()) else { return };
    let read = |text: &str| match Pattern::parse(domain, text) {
        Ok(pattern) => {
            assert_eq!(Pattern::parse(domain, &pattern.to_string()).as_ref(), Ok(&pattern), "{text:?} reads back");
            Some(pattern)
        }
        Err(fault) => {
            assert!(!fault.why.is_empty() && !fault.hint.is_empty());
            None
        }
    };
    let (Some(one), Some(other)) = (read(one), read(other)) else { return };
    assert_eq!(one.included_in(&[&one]), Ok(()), "{one} is in itself");
    assert_eq!(one.included_in(&[&Pattern::everything(domain)]), Ok(()), "{one} is in everything");
    assert_eq!(one.overlap(&other).is_some(), other.overlap(&one).is_some(), "{one} meets {other}");
    let within = one.included_in(&[&other]).is_ok();
    if within {
        assert!(one.overlap(&other).is_some(), "{one} is in {other} and does not meet it");
    }
    if let Some(value) = lines.next() {
        let (is, as_other) = (one.matches_text(value), other.matches_text(value));
        assert!(!is || !within || as_other, "{value:?} is in {one}, which is in {other}");
        assert!(!(is && as_other) || one.overlap(&other).is_some(), "{value:?} is in {one} and {other}");
    }
}
