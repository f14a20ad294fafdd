//! What every rule may say beside what it is about: a verdict and obligations.

use std::sync::Arc;

use aos_abi::Name;
use aos_abi::entry::Verdict;
use aos_abi::syscall::Risk;

use crate::label::Labels;
use crate::read::{Fields, Reader};
use crate::role::Draft;
use crate::terms::{Obligations, Rate, Terms};
use crate::yaml::Node;

/// The keys that any rule may have.
pub(crate) const KEYS: [&str; 5] = ["verdict", "undo", "window", "rate", "redact"];

/// The keys of a rule: its own and those of every rule.
pub(crate) fn with_keys(own: &[&'static str]) -> Vec<&'static str> {
    own.iter().copied().chain(KEYS).collect()
}

pub(crate) fn verdict(reader: &mut Reader, node: &Node) -> Option<Verdict> {
    reader.word(node, "verdict", &["deny", "ask", "hold", "allow"]).map(|word| match word {
        "allow" => Verdict::Allow,
        "hold" => Verdict::Hold,
        "ask" => Verdict::Ask,
        _ => Verdict::Deny,
    })
}

/// Reads the terms of a rule about these calls.
pub(crate) fn draft(reader: &mut Reader, fields: &Fields<'_>, name: String, calls: &[Name]) -> Draft {
    let name: Arc<str> = name.into();
    let mut obligations = Obligations::default();
    // A verdict that cannot be read refuses the file; until then it is the strictest.
    let verdict = match fields.get("verdict") {
        None => Verdict::Allow,
        Some(node) => verdict(reader, node).unwrap_or(Verdict::Deny),
    };
    if let Some(node) = fields.get("undo") {
        obligations.undo_ms = reader.span(node, "`undo`");
        check_undo(reader, node, calls);
        check_kept(reader, node, verdict, obligations.undo_ms);
    }
    if let Some(node) = fields.get("window") {
        obligations.hold_ms = reader.span(node, "`window`");
        if verdict != Verdict::Hold {
            reader.fault(
                node,
                "`window` is the time in which a held call can be vetoed",
                "add `verdict: hold`, or leave it out",
            );
        }
    }
    if let Some(node) = fields.get("rate")
        && let Some((count, per_s)) = reader.rate(node, "`rate`")
    {
        if count == 0 {
            reader.fault(
                node,
                "a `rate` of 0 lets no call through, and says that one may be made later",
                "write `verdict: deny` instead",
            );
        }
        obligations.rates.insert(Rate { rule: name.clone(), count, per_s });
    }
    obligations.redact = fields.get("redact").and_then(|node| reader.flag(node, "`redact`")).unwrap_or(false);
    if let Some(node) = fields.get("label") {
        obligations.labels = label(reader, node).unwrap_or(Labels::NONE);
    }
    Draft { name, terms: Terms { verdict, obligations }, private: false }
}

/// An undo window on a call that cannot be undone would be a promise nobody can keep.
fn check_undo(reader: &mut Reader, node: &Node, calls: &[Name]) {
    let fixed = calls.iter().find(|name| name.spec().risk == Risk::Irreversible);
    if let Some(name) = fixed {
        reader.fault(
            node,
            format!("{name} cannot be undone once it has left"),
            "use `verdict: hold`, which waits for a veto",
        );
    } else if !calls.is_empty() && !calls.iter().any(|name| name.spec().risk == Risk::Undoable) {
        reader.fault(node, "there is nothing to undo: the rule's calls change nothing", "leave `undo` out");
    } else if let Some(name) = calls.first().filter(|_| !calls.iter().any(|name| name.is_kept())) {
        let message = format!("nothing is kept of what {name} changes, so no undo brings it back");
        reader.fault(node, message, "leave `undo` out: it is for files, and commands that change them");
    }
}

/// A time that would keep nothing, or for ever, and one for what is never done.
fn check_kept(reader: &mut Reader, node: &Node, verdict: Verdict, undo_ms: Option<u64>) {
    /// What is replaced takes room as long as it is kept.
    const LONGEST_MS: u64 = 366 * 86_400_000;
    if verdict == Verdict::Deny {
        reader.fault(node, "what is denied leaves nothing to undo", "leave `undo` out");
    } else if undo_ms == Some(0) {
        reader.fault(
            node,
            "an `undo` of no time keeps nothing",
            "write a time such as `15m`, which it is without `undo`",
        );
    } else if undo_ms > Some(LONGEST_MS) {
        reader.fault(node, "nothing is kept for longer than a year", "write at most `366d`");
    }
}

pub(crate) fn label(reader: &mut Reader, node: &Node) -> Option<Labels> {
    let names: Vec<&str> = Labels::names().collect();
    reader.word(node, "label", &names).and_then(Labels::named)
}

/// Reads a list of words out of a fixed set, without repetition.
pub(crate) fn words<'n>(reader: &mut Reader, node: &'n Node, what: &str, known: &[&str]) -> Vec<&'n str> {
    let mut found = Vec::new();
    let items = reader.list(node, what);
    if items.is_empty() {
        reader.fault(node, format!("{what} is empty"), format!("name some of {}", known.join(", ")));
    }
    for item in items {
        if let Some(word) = reader.word(item, what, known) {
            if found.contains(&word) {
                reader.fault(item, format!("`{word}` stands here twice"), "keep one");
            }
            found.push(word);
        }
    }
    found
}
