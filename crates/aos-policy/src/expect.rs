//! Expectations: what a policy must say, as a file beside it, checked by `aos policy test`.
//!
//! Start at [`check`]. The file is a list; each item names a call as an agent writes it and the verdict that is expected:
//! ```yaml
//! - {call: FS_READ, args: {path: notes.txt}, verdict: allow}
//! - {call: NET_FETCH, args: {url: "https://example.com/"}, verdict: deny, role: reader, labels: [untrusted.web]}
//! - {call: FS_READ, args: {path: secret}, verdict: deny, grants: ["FS_READ docs/**"]}
//! - {call: KILL, args: {pid: 7}, verdict: ask, reaches: [web-1]}
//! ```
//! `reaches` names the processes that a signal reaches and that are not below the one that sends it; left out, it is the one
//! whose pid the call names.
//! What always holds: an item that cannot be read is a fault, never a pass; so is a file without any.

use aos_abi::entry::Verdict;
use aos_abi::{Pid, Syscall};

use crate::decide::Subject;
use crate::fault::{Fault, nearest};
use crate::file::rule;
use crate::given::Given;
use crate::grant::Grants;
use crate::label::Labels;
use crate::policy::Policy;
use crate::read::{Fields, Reader};
use crate::yaml::{self, Node, Value};

/// One expectation and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where it stands.
    pub line: usize,
    /// The call.
    pub call: String,
    /// What was expected.
    pub expected: Verdict,
    /// What the policy says.
    pub said: Verdict,
    /// The deciding rule.
    pub rule: String,
}

impl Outcome {
    /// Whether the policy says what was expected.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.expected == self.said
    }
}

/// Checks every expectation of a file.
///
/// # Errors
/// Every item that cannot be read.
pub fn check(policy: &Policy, text: &str) -> Result<Vec<Outcome>, Vec<Fault>> {
    const FIRST: &str = "- {call: FS_READ, args: {path: a}, verdict: allow}";
    let node = yaml::read(text, FIRST).map_err(|fault| vec![fault])?;
    let mut reader = Reader::default();
    let items = reader.list(&node, "the file");
    // Else whoever emptied it would be told that all is well.
    if items.is_empty() && reader.faults.is_empty() {
        reader.fault(&node, "the file holds no expectation", format!("begin with `{FIRST}`"));
    }
    let outcomes: Vec<Outcome> = items.iter().filter_map(|item| expectation(&mut reader, policy, item)).collect();
    if reader.faults.is_empty() { Ok(outcomes) } else { Err(reader.faults) }
}

fn expectation(reader: &mut Reader, policy: &Policy, node: &Node) -> Option<Outcome> {
    let fields =
        reader.fields(node, "an expectation", &["call", "args", "verdict", "role", "labels", "grants", "reaches"])?;
    let expected = reader.need(&fields, "verdict").and_then(|node| rule::verdict(reader, node));
    let call = reader.need(&fields, "call").and_then(|node| call(reader, &fields, node));
    let role = fields.get("role").and_then(|node| role(reader, policy, node)).unwrap_or("");
    let labels = match fields.get("labels") {
        None => Labels::NONE,
        Some(list) => {
            let items = reader.list(list, "`labels`");
            items.iter().filter_map(|item| rule::label(reader, item)).fold(Labels::NONE, Labels::and)
        }
    };
    let chain: Vec<Grants> = fields.get("grants").and_then(|list| grants(reader, list)).into_iter().collect();
    let reaches = fields.get("reaches").map(|list| {
        let names = reader.list(list, "`reaches`").iter().filter_map(|item| reader.text(item, "a process"));
        names.map(str::to_owned).collect::<Vec<String>>()
    });
    let (expected, call) = (expected?, call?);
    let (given, reaches) = (Given::default(), reaches.as_deref());
    let said = policy.explain(&Subject { pid: Pid::INIT, role, chain: &chain, labels, given, reaches }, &call);
    let text = format!("{} {}", call.name(), call.args());
    Some(Outcome { line: node.place.line, call: text, expected, said: said.verdict, rule: said.rule })
}

fn call(reader: &mut Reader, fields: &Fields<'_>, node: &Node) -> Option<Syscall> {
    let name = reader.text(node, "a call")?;
    let args = fields.get("args").map_or_else(|| serde_json::json!({}), json);
    match Syscall::parse(name, &args.to_string()) {
        Ok(call) => Some(call),
        Err(error) => {
            let place = fields.get("args").unwrap_or(node);
            reader.fault(place, error.message, error.hint.unwrap_or_default());
            None
        }
    }
}

fn role<'n>(reader: &mut Reader, policy: &Policy, node: &'n Node) -> Option<&'n str> {
    let name = reader.text(node, "`role`")?;
    if policy.role(name).is_none() {
        reader.fault(node, format!("there is no role `{name}`"), nearest(name, &policy.roles().collect::<Vec<_>>()));
    }
    Some(name)
}

fn grants(reader: &mut Reader, list: &Node) -> Option<Grants> {
    let items = reader.list(list, "`grants`");
    let texts: Vec<&str> = items.iter().filter_map(|item| reader.text(item, "a grant")).collect();
    match Grants::parse(&texts) {
        Ok(grants) => Some(grants),
        Err(fault) => {
            reader.fault(list, fault.to_string(), fault.hint);
            None
        }
    }
}

/// Arguments as JSON: here alone a plain scalar has a type, since arguments are written as an agent writes them.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Scalar(text, true) => text.as_str().into(),
        Value::Scalar(text, false) => match serde_json::from_str::<serde_json::Value>(text) {
            Ok(value) if !value.is_string() => value,
            _ => text.as_str().into(),
        },
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, node)| (key.name.clone(), json(node))).collect::<serde_json::Map<_, _>>().into()
        }
    }
}
