//! What the tests of this crate share: policies and calls in one line each.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod oracle;
pub(crate) mod request;
pub(crate) mod universe;

use aos_abi::{Pid, Syscall};
use aos_policy::{Explanation, Given, Grants, Labels, Policy, Subject};

/// A policy with one role `r`, its body as flow YAML.
pub(crate) fn role(body: &str) -> Policy {
    file(&format!("version: 1\ndefault_role: r\nroles:\n  r: {body}\n"))
}

/// A policy, or the faults that refuse it.
pub(crate) fn file(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("{fault} ({:?})", fault.hint)).collect();
        panic!("{}\n{text}", lines.join("\n"))
    })
}

/// `NAME {json}` as a call.
pub(crate) fn call(text: &str) -> Syscall {
    let (name, args) = text.split_once(' ').unwrap_or((text, "{}"));
    Syscall::parse(name, args).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The grants of one process.
pub(crate) fn grants(texts: &[&str]) -> Grants {
    Grants::parse(texts).unwrap_or_else(|fault| panic!("{fault}: {}", fault.hint))
}

/// Process 7 of the default role.
pub(crate) fn subject(chain: &[Grants]) -> Subject<'_> {
    Subject { pid: Pid(7), role: "", chain, labels: Labels::NONE, given: Given::default(), reaches: None }
}

/// What the policy says to process 7 without grants of its own.
pub(crate) fn say(policy: &Policy, text: &str) -> Explanation {
    policy.explain(&subject(&[]), &call(text))
}

/// The same, in one line: `allow · rule`.
pub(crate) fn line(policy: &Policy, text: &str) -> String {
    let said = say(policy, text);
    format!("{} · {}", said.verdict.as_str(), said.rule)
}
