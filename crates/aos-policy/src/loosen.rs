//! Loosening: the change to a policy's text by which a rule that asks, or waits for a veto, allows from then on.
//!
//! Start at [`loosen`]. What always holds: one word of the text changes, so comments and layout stay; the result is a
//! policy without a fault; no other rule means anything else. Deliberately absent: adding a rule. The least verdict
//! wins, so no rule that is added could lift one that asks.

use aos_abi::entry::Verdict;

use crate::file;
use crate::yaml::{self, Node, Value};

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
    let under = |node: &'_ Node, key: &str| -> Option<Node> {
        let Value::Map(entries) = &node.value else { return None };
        entries.iter().find(|(known, _)| known.name == key).map(|(_, node)| node.clone())
    };
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
    let (line, column) = (verdict.place.line, verdict.place.column);
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let offset = text[start..].char_indices().nth(column - 1 + usize::from(*quoted)).map(|(at, _)| start + at);
    let at = offset.filter(|at| text[*at..].starts_with(word.as_str())).ok_or_else(elsewhere)?;
    let changed = format!("{}{}{}", &text[..at], Verdict::Allow.as_str(), &text[at + word.len()..]);
    match file::compile(&changed) {
        Ok(_) => Ok(Loosened { text: changed, line }),
        Err(faults) => {
            let why = faults.first().map(ToString::to_string).unwrap_or_default();
            Err(refuse(&format!("the rule cannot simply allow: {why}"), "change policy.yaml by hand"))
        }
    }
}
