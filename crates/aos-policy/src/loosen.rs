//! Loosening: the change to a policy's text by which a rule that asks, or waits for a veto, allows from then on, or by which
//! a role gets a grant that a call was denied for.
//!
//! Start at [`loosen`] and [`grant`]. What always holds: one place of the text changes, so comments and layout stay; the
//! result is a policy without a fault; no other rule means anything else. No rule is added to lift one that asks: the least
//! verdict wins.

use aos_abi::entry::Verdict;
use aos_abi::{Name, Pid, Syscall};

use crate::decide::Subject;
use crate::file;
use crate::given::Given;
use crate::grant::Grant;
use crate::label::Labels;
use crate::policy::Policy;
use crate::yaml::{self, Node, Place, Value};

/// Why a rule cannot be loosened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NotLoosened {
    /// What stands against it.
    pub why: String,
    /// The way out.
    pub hint: String,
}

/// A changed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loosened {
    /// The whole file as it would be.
    pub text: String,
    /// The line that differs, from 1.
    pub line: usize,
}

/// What one way out of most refusals is.
const BY_HAND: &str = "change policy.yaml by hand";

fn under(node: &Node, key: &str) -> Option<Node> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|(known, _)| known.name == key).map(|(_, node)| node.clone())
}

/// Where a place of the text begins, in bytes.
fn offset(text: &str, place: Place) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
    text[start..].char_indices().map(|(at, _)| start + at).chain([text.len()]).nth(place.column - 1)
}

/// Whether a wanted grant is about more than the call that wants it: `*` stands in it for a name that no pattern can write. What
/// shows all that is below a folder wants that, with `**` at its end, which no name becomes.
fn names_more(text: &str) -> bool {
    let Ok(grant) = text.parse::<Grant>() else { return true };
    let below = text.strip_suffix("/**").or_else(|| text.strip_suffix(" **")).filter(|_| grant.is_on_files());
    grant.is_boundless() || below.unwrap_or(text).contains('*')
}

/// The text in which a role's `calls` begin with these grants, as a denial names them, so that the calls are denied no more.
///
/// # Errors
/// Where there is no such role, it is written so that nothing can be put in, or one of the calls would be denied all the same.
pub fn grant(text: &str, role: &str, grants: &[String], calls: &[Syscall]) -> Result<Loosened, NotLoosened> {
    let quoted: Vec<String> =
        grants.iter().map(|grant| format!("\"{}\"", grant.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    let line = quoted.join(", ");
    let wide = grants.iter().find(|grant| names_more(grant));
    let stands = if wide.is_some() {
        "; `*` stands there for what no pattern can write, and for more than this call"
    } else {
        ""
    };
    let by_hand = || format!("{BY_HAND}: the role `{role}` wants {line} in its `calls`{stands}");
    let refuse = |why: String| NotLoosened { why, hint: by_hand() };
    if let Some(wide) = wide {
        return Err(refuse(format!("`{wide}` is about more than this call")));
    }
    let subject =
        Subject { pid: Pid::SYSTEM, role, chain: &[], labels: Labels::NONE, given: Given::default(), reaches: None };
    // Of commands `exec` says alone what runs.
    if let Some(command) = calls.iter().find(|call| call.name() == Name::ExecCmd)
        && let Ok(old) = Policy::parse(text)
        && let said = old.explain(&subject, command)
        && said.verdict == Verdict::Deny
    {
        let hint = said.hint.map_or_else(by_hand, |hint| format!("{BY_HAND}: {hint}"));
        return Err(NotLoosened { why: "no grant in `calls` lets this command pass".to_owned(), hint });
    }
    // A rule is about the name of a process and the call about its number, so nothing here could say that the call passes then.
    if calls.iter().any(|call| call.name() == Name::Kill) {
        return Err(refuse("a signal is given to a role by hand alone".to_owned()));
    }
    let tree = yaml::read(text, "version: 1").map_err(|fault| refuse(fault.to_string()))?;
    let node = under(&tree, "roles").and_then(|roles| under(&roles, role));
    let node = node.ok_or_else(|| refuse(format!("the file has no role `{role}`")))?;
    let put = |place: Place, what: String| {
        let at = offset(text, place)?;
        Some(Loosened { text: format!("{}{what}{}", &text[..at], &text[at..]), line: place.line })
    };
    let is = |place: Place, sign: char| offset(text, place).is_some_and(|at| text[at..].starts_with(sign));
    let changed = match (under(&node, "calls"), &node.value) {
        (Some(calls), _) => match &calls.value {
            Value::List(items) if is(calls.place, '[') => {
                let next = Place { column: calls.place.column + 1, ..calls.place };
                put(next, if items.is_empty() { line.clone() } else { format!("{line}, ") })
            }
            Value::List(items) if is(calls.place, '-') && !items.is_empty() => {
                let indent = " ".repeat(calls.place.column - 1);
                put(calls.place, quoted.iter().map(|grant| format!("- {grant}\n{indent}")).collect())
            }
            _ => None,
        },
        (None, Value::Map(entries)) if !is(node.place, '{') => entries
            .first()
            .and_then(|(key, _)| put(key.place, format!("calls: [{line}]\n{}", " ".repeat(key.place.column - 1)))),
        _ => None,
    };
    let changed =
        changed.ok_or_else(|| refuse(format!("nothing can be put into the role `{role}` as it is written")))?;
    let new = Policy::parse(&changed.text)
        .map_err(|faults| refuse(faults.first().map(ToString::to_string).unwrap_or_default()))?;
    if calls.iter().any(|call| new.explain(&subject, call).verdict == Verdict::Deny) {
        return Err(refuse("a grant alone does not let the call pass".to_owned()));
    }
    Ok(changed)
}

/// The text in which the rule of this name (`role assistant: fs[1] contracts/**`, as a proposal has it) allows.
///
/// # Errors
/// Where it is no rule of a role, or not one that asks or waits.
pub fn loosen(text: &str, rule: &str) -> Result<Loosened, NotLoosened> {
    let refuse = |why: &str, hint: &str| NotLoosened { why: why.to_owned(), hint: hint.to_owned() };
    let once = "approve it once, or for the process";
    let elsewhere = || refuse(&format!("`{rule}` is no rule of a role that could allow it"), once);
    let (role, place) = rule.strip_prefix("role ").and_then(|rest| rest.split_once(": ")).ok_or_else(elsewhere)?;
    let (section, place) = match place.split_once('[') {
        Some((section, rest)) => (section, rest.split_once(']').and_then(|(at, _)| at.parse::<usize>().ok())),
        None => (place.split(' ').next().unwrap_or_default(), None),
    };
    let tree = yaml::read(text, "version: 1")
        .map_err(|fault| refuse(&fault.to_string(), "`aos policy check` shows every fault"))?;
    let found = under(&tree, "roles").and_then(|roles| under(&roles, role)).and_then(|role| under(&role, section));
    let found = found.and_then(|node| match (place, node.value.clone()) {
        (Some(at), Value::List(items)) => items.get(at).cloned(),
        (None, Value::Map(_)) => Some(node),
        _ => None,
    });
    let verdict = found.and_then(|node| under(&node, "verdict")).ok_or_else(elsewhere)?;
    let Value::Scalar(word, quoted) = &verdict.value else { return Err(elsewhere()) };
    if ![Verdict::Ask.as_str(), Verdict::Hold.as_str()].contains(&word.as_str()) {
        return Err(elsewhere());
    }
    let (line, column) = (verdict.place.line, verdict.place.column + usize::from(*quoted));
    let at = offset(text, Place { line, column });
    let at = at.filter(|at| text[*at..].starts_with(word.as_str())).ok_or_else(elsewhere)?;
    let changed = format!("{}{}{}", &text[..at], Verdict::Allow.as_str(), &text[at + word.len()..]);
    match file::compile(&changed) {
        Ok(_) => Ok(Loosened { text: changed, line }),
        Err(faults) => {
            let why = faults.first().map(ToString::to_string).unwrap_or_default();
            Err(refuse(&format!("the rule cannot simply allow: {why}"), BY_HAND))
        }
    }
}
