//! Loosening: the change to a policy's text by which a rule that asks, or waits for a veto, allows from then on, or by which
//! a role gets a grant that a call was denied for, or a program for a command.
//!
//! Start at [`loosen`] and [`grant`]. What always holds: one place of the text changes, so comments and layout stay; the
//! result is a policy without a fault; no other rule means anything else. No rule is added to lift one that asks: the least
//! verdict wins.

use aos_abi::entry::Verdict;
use aos_abi::{Name, Pid, Syscall};

use crate::decide::{LackingExec, Subject, lacking_exec};
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

/// The text with something put in before this place.
fn put(text: &str, place: Place, what: &str) -> Option<Loosened> {
    let at = offset(text, place)?;
    Some(Loosened { text: format!("{}{what}{}", &text[..at], &text[at..]), line: place.line })
}

/// Whether what is written at this place begins with a sign.
fn is_written(text: &str, place: Place, sign: char) -> bool {
    offset(text, place).is_some_and(|at| text[at..].starts_with(sign))
}

/// The text in which a list begins with these items.
fn put_items(text: &str, list: &Node, items: &[String]) -> Option<Loosened> {
    let Value::List(known) = &list.value else { return None };
    if is_written(text, list.place, '[') {
        let (next, line) = (Place { column: list.place.column + 1, ..list.place }, items.join(", "));
        return put(text, next, &if known.is_empty() { line } else { format!("{line}, ") });
    }
    if known.is_empty() || !is_written(text, list.place, '-') {
        return None;
    }
    let indent = " ".repeat(list.place.column - 1);
    put(text, list.place, &items.iter().map(|item| format!("- {item}\n{indent}")).collect::<String>())
}

/// The text in which a role begins with this line.
fn put_line(text: &str, role: &Node, line: &str) -> Option<Loosened> {
    let Value::Map(entries) = &role.value else { return None };
    let (key, _) = entries.first().filter(|_| !is_written(text, role.place, '{'))?;
    put(text, key.place, &format!("{line}\n{}", " ".repeat(key.place.column - 1)))
}

/// The text in which a role's `calls` begin with these grants, as a denial names them, so that the calls are denied no more; of a
/// command, in which the programs of its `exec` begin with the one that it takes.
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
    let command = calls.iter().find_map(|call| if let Syscall::ExecCmd(exec) = call { Some(exec) } else { None });
    if let Some(wide) = wide.filter(|_| command.is_none()) {
        return Err(refuse(format!("`{wide}` is about more than this call")));
    }
    // A rule is about the name of a process and the call about its number, so nothing here could say that the call passes then.
    if calls.iter().any(|call| call.name() == Name::Kill) {
        return Err(refuse("a signal is given to a role by hand alone".to_owned()));
    }
    let tree = yaml::read(text, "version: 1").map_err(|fault| refuse(fault.to_string()))?;
    let node = under(&tree, "roles").and_then(|roles| under(&roles, role));
    let node = node.ok_or_else(|| refuse(format!("the file has no role `{role}`")))?;
    let subject =
        Subject { pid: Pid::SYSTEM, role, chain: &[], labels: Labels::NONE, given: Given::default(), reaches: None };
    let changed = match (command, under(&node, "calls")) {
        // Of commands `exec` says alone what runs.
        (Some(exec), _) => {
            let old = Policy::parse(text).ok();
            let lacks = old.as_ref().and_then(|old| lacking_exec(old.role(role)?, &exec.cmd));
            let programs = || under(&node, "exec").and_then(|exec| under(&exec, "programs"));
            let changed = match lacks {
                Some(LackingExec::Section(section)) => put_line(text, &node, &section),
                Some(LackingExec::Program(program)) => programs().and_then(|list| put_items(text, &list, &[program])),
                None => None,
            };
            let said =
                || old.map(|old| old.explain(&subject, &Syscall::ExecCmd(exec.clone())).hint).unwrap_or_default();
            changed.ok_or_else(|| NotLoosened {
                why: "no program that is put into the role lets this command pass".to_owned(),
                hint: said().map_or_else(by_hand, |hint| format!("{BY_HAND}: {hint}")),
            })?
        }
        (None, Some(calls)) => put_items(text, &calls, &quoted).ok_or_else(|| refuse(unwritten(role)))?,
        (None, None) => put_line(text, &node, &format!("calls: [{line}]")).ok_or_else(|| refuse(unwritten(role)))?,
    };
    let new = Policy::parse(&changed.text)
        .map_err(|faults| refuse(faults.first().map(ToString::to_string).unwrap_or_default()))?;
    if calls.iter().any(|call| new.explain(&subject, call).verdict == Verdict::Deny) {
        return Err(refuse("a grant alone does not let the call pass".to_owned()));
    }
    Ok(changed)
}

fn unwritten(role: &str) -> String {
    format!("nothing can be put into the role `{role}` as it is written")
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
