//! The `labels` of the language: what may not flow where.

use aos_abi::Name;
use aos_abi::entry::Verdict;
use aos_abi::syscall::CallSet;

use crate::file::rule;
use crate::label::Labels;
use crate::policy::{LabelRule, Tables};
use crate::read::{Fields, Reader};
use crate::target::{Kind, kind};
use crate::terms::{Obligations, Terms};
use crate::yaml::{Node, Value};

/// Where content can flow to. `any` is all of them. Standard output and a result stay in the system and keep their labels.
const SINKS: [&str; 7] = ["model.remote", "net", "channel", "tool", "webhook", "message", "any"];

/// What a rule may say, in the order in which it is told.
const KEYS: [&str; 5] = ["when", "calls", "to", "verdict", "do"];

fn sink(name: &str) -> &'static [Name] {
    match name {
        "net" => &[Name::NetFetch, Name::NetSend],
        "channel" => &[Name::ChannelSend],
        "tool" => &[Name::ToolCall],
        "webhook" => &[Name::SysWebhookReply],
        "message" => &[Name::SendMsg],
        "any" => {
            &[Name::NetFetch, Name::NetSend, Name::ChannelSend, Name::ToolCall, Name::SysWebhookReply, Name::SendMsg]
        }
        _ => &[],
    }
}

pub(crate) fn labels(reader: &mut Reader, node: &Node, tables: &mut Tables) {
    for (at, item) in reader.list(node, "`labels`").iter().enumerate() {
        label(reader, item, at, tables);
    }
}

fn label(reader: &mut Reader, node: &Node, at: usize, tables: &mut Tables) {
    let Some(fields) = reader.fields(node, "a label rule", &KEYS) else { return };
    let when = reader.need(&fields, "when").and_then(|node| when(reader, node).map(|label| (node, label)));
    let terms = terms(reader, &fields);
    let mut calls = CallSet::EMPTY;
    let mut to_models = false;
    match (fields.get("calls"), fields.get("to")) {
        (Some(list), None) => {
            for item in reader.some(list, "`calls`", "name calls such as `EXEC_CMD`, or leave the rule out") {
                if let Some(name) = call(reader, item) {
                    calls.insert(name);
                }
            }
        }
        (None, Some(to)) => {
            if let Some(name) = reader.word(to, "place for content to flow to", &SINKS) {
                sink(name).iter().for_each(|name| calls.insert(*name));
                to_models = matches!(name, "model.remote" | "any");
            }
        }
        _ => reader.fault(node, "a label rule names either `calls` or `to`", "keep one of them"),
    }
    let (Some((place, when)), Some(terms)) = (when, terms) else { return };
    if let Some((message, hint)) = says_more_than_it_does(when, &terms, to_models, calls) {
        reader.fault(fields.get("do").or(fields.get("verdict")).unwrap_or(node), message, hint);
    }
    let text = reader.text(place, "`when`").unwrap_or_default();
    let name = format!("label: labels[{at}] {text}").into();
    let rule = LabelRule { name, words: in_words(&fields).into(), when, calls, terms };
    if to_models {
        tables.flows.push(rule.clone());
    }
    if rule.calls != CallSet::EMPTY {
        tables.labels.push(rule);
    }
}

/// The label that a rule is about.
fn when(reader: &mut Reader, node: &Node) -> Option<Labels> {
    if let Value::List(_) = node.value {
        let hint = "write a rule for each of them; `untrusted` is about all that begin so";
        reader.fault(node, "`when` is one label, here is a list", hint);
        return None;
    }
    rule::label(reader, node)
}

/// A rule as its file has it, with the first calls of a long list.
fn in_words(fields: &Fields<'_>) -> String {
    /// Most calls that are named.
    const CALLS_MAX: usize = 6;
    let text = |node: &Node| match &node.value {
        Value::Scalar(text, _) => text.clone(),
        Value::List(_) | Value::Map(_) => String::new(),
    };
    let said = KEYS.iter().filter_map(|key| fields.get(key).map(|node| (key, node)));
    let said = said.map(|(key, node)| match &node.value {
        Value::List(items) => {
            let mut calls: Vec<String> = items.iter().take(CALLS_MAX).map(text).collect();
            match items.len().saturating_sub(CALLS_MAX) {
                0 => {}
                more => calls.push(format!("{more} more")),
            }
            format!("{key}: [{}]", calls.join(", "))
        }
        Value::Scalar(..) | Value::Map(_) => format!("{key}: {}", text(node)),
    });
    said.collect::<Vec<_>>().join(", ")
}

/// What a rule would promise that nobody keeps, and what to write instead.
fn says_more_than_it_does(
    when: Labels,
    terms: &Terms,
    to_models: bool,
    calls: CallSet,
) -> Option<(&'static str, &'static str)> {
    let obligations = &terms.obligations;
    if obligations.local_only && calls != CallSet::EMPTY {
        return Some((
            "only a model can be chosen for being on this machine",
            "write `to: model.remote`, or `do: deny`",
        ));
    }
    if obligations.redact && !when.within(Labels::PERSONAL) {
        return Some(("only personal data is found in a text and replaced", "write `do: deny`, or `do: local_only`"));
    }
    let waits = matches!(terms.verdict, Verdict::Ask | Verdict::Hold);
    (waits && to_models && calls == CallSet::EMPTY)
        .then_some(("no prompt waits for a person", "write `do: redact`, `do: local_only` or `do: deny`"))
}

fn call(reader: &mut Reader, node: &Node) -> Option<Name> {
    let text = reader.text(node, "a call")?;
    match text.parse::<Name>() {
        Ok(name) if kind(name) == Kind::Always => {
            reader.fault(
                node,
                format!("{name} is always allowed, since a process may always end and speak"),
                "leave it out",
            );
            None
        }
        Ok(name) => Some(name),
        Err(error) => {
            reader.fault(node, error.message, error.hint.unwrap_or_default());
            None
        }
    }
}

/// A verdict, or what is done with the content: `redact`, `local_only`, `deny`.
fn terms(reader: &mut Reader, fields: &Fields<'_>) -> Option<Terms> {
    let mut obligations = Obligations::default();
    let verdict = match (fields.get("verdict"), fields.get("do")) {
        (Some(node), None) => match rule::verdict(reader, node)? {
            Verdict::Allow => {
                let hint = "leave the rule out: where no rule about labels denies or asks, the role's rules decide";
                reader.fault(node, "a label rule that allows does nothing", hint);
                return None;
            }
            verdict => verdict,
        },
        (None, Some(node)) => match reader.word(node, "thing to do", &["redact", "local_only", "deny"])? {
            "redact" => {
                obligations.redact = true;
                Verdict::Allow
            }
            "local_only" => {
                obligations.local_only = true;
                Verdict::Allow
            }
            _ => Verdict::Deny,
        },
        _ => {
            reader.fault(
                fields.node,
                "a label rule says either `verdict` or `do`",
                "add `verdict: ask`, or `do: redact`",
            );
            return None;
        }
    };
    Some(Terms { verdict, obligations })
}
