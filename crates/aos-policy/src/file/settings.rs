//! The settings of the language: limits, proposals, personal data, and those of a role.

use std::collections::BTreeMap;

use aos_abi::Usd;
use aos_abi::entry::Verdict;
use aos_personal::Detector;

use crate::address::Address;
use crate::file::rule::{verdict, words};
use crate::read::Reader;
use crate::settings::{Limits, Models, PersonalData, Proposals, RoleBudget, SandboxLimits, Secret};
use crate::yaml::{Node, Value};

/// Who may answer proposals: the only one that a request can prove to be.
const OWNER: &str = "owner";
/// The tiers of models, cheapest first (`aos.toml`).
const TIERS: [&str; 5] = ["nano", "small", "standard", "strong", "frontier"];
/// The built-in detectors of personal data.
const DETECTORS: [&str; 5] = ["email", "phone", "card", "iban", "ssn"];

pub(crate) fn limits(reader: &mut Reader, node: &Node) -> Limits {
    let mut limits = Limits::default();
    let Some(fields) = reader.fields(node, "`limits`", &["spawn", "sandbox"]) else { return limits };
    if let Some(node) = fields.get("spawn")
        && let Some(spawn) = reader.fields(node, "`spawn`", &["depth", "children"])
    {
        let mut bound = |name: &str, most: usize, into: &mut usize| {
            let Some(node) = spawn.get(name) else { return };
            match reader.count(node, name, "4").and_then(|count| usize::try_from(count).ok()) {
                Some(count) if count <= most => *into = count,
                Some(_) => reader.fault(
                    node,
                    format!("`{name}` is beyond the system's own limit"),
                    format!("the most is {most}"),
                ),
                None => {}
            }
        };
        bound("depth", aos_abi::limits::SPAWN_DEPTH_MAX, &mut limits.spawn_depth);
        bound("children", aos_abi::limits::CHILDREN_MAX, &mut limits.spawn_children);
    }
    if let Some(node) = fields.get("sandbox") {
        limits.sandbox = sandbox(reader, node);
    }
    limits
}

fn sandbox(reader: &mut Reader, node: &Node) -> SandboxLimits {
    let mut limits = SandboxLimits::default();
    let known = ["memory", "pids", "files", "cpu", "wall", "disk", "output"];
    let Some(fields) = reader.fields(node, "`sandbox`", &known) else { return limits };
    let mut set = |name: &str, read: fn(&mut Reader, &Node, &str) -> Option<u64>, into: &mut u64| {
        let Some(node) = fields.get(name) else { return };
        match read(reader, node, name) {
            Some(0) => reader.fault(
                node,
                format!("`{name}` is zero, so nothing could run"),
                "leave `exec` out of the role instead",
            ),
            Some(value) => *into = value,
            None => {}
        }
    };
    set("memory", Reader::bytes, &mut limits.memory_bytes);
    set("pids", Reader::few, &mut limits.pids);
    set("files", Reader::few, &mut limits.files);
    set("cpu", Reader::span, &mut limits.cpu_ms);
    set("wall", Reader::span, &mut limits.wall_ms);
    set("disk", Reader::bytes, &mut limits.disk_bytes);
    set("output", Reader::bytes, &mut limits.output_bytes);
    limits
}

pub(crate) fn proposals(reader: &mut Reader, node: &Node) -> Proposals {
    let mut proposals = Proposals::default();
    let Some(fields) = reader.fields(node, "`proposals`", &["ttl", "approvers", "max_asks"]) else { return proposals };
    if let Some(ttl) = fields.get("ttl").and_then(|node| reader.span(node, "`ttl`")) {
        proposals.ttl_ms = ttl;
    }
    if let Some(node) = fields.get("approvers") {
        let items = reader.list(node, "`approvers`");
        for item in items {
            if reader.text(item, "an approver").is_some_and(|name| name != OWNER) {
                let hint =
                    "write `owner`: whoever holds the home's socket or its token, and nobody else is known by name";
                reader.fault(item, "that is nobody who could be asked", hint);
            }
        }
        if items.is_empty() {
            reader.fault(node, "nobody could approve anything", "name `owner`");
        }
    }
    proposals.max_asks = fields.get("max_asks").and_then(|node| reader.rate(node, "`max_asks`"));
    proposals
}

/// What counts as personal data, as written and as something that finds it.
pub(crate) fn personal_data(reader: &mut Reader, node: &Node) -> (PersonalData, Detector) {
    let mut data = PersonalData::default();
    let mut detector = Detector::default();
    let Some(fields) = reader.fields(node, "`personal_data`", &["detect", "custom"]) else { return (data, detector) };
    if let Some(node) = fields.get("detect") {
        data.detect = words(reader, node, "detector", &DETECTORS).into_iter().map(str::to_owned).collect();
        detector = Detector::of(data.detect.iter().map(String::as_str));
    }
    if let Some(node) = fields.get("custom") {
        for (key, node) in reader.named(node, "`custom`") {
            let Some(text) = reader.text(node, "a detector's expression") else { continue };
            if DETECTORS.contains(&key.name.as_str()) {
                reader.fault(node, format!("`{}` is a built-in detector", key.name), "take another name");
            } else if let Err(bad) = detector.add(&key.name, text) {
                let message = format!("the expression of `{}` cannot be used: {bad}", key.name);
                reader.fault(node, message, "see docs.rs/regex for what an expression is; look-around is none");
            } else {
                data.custom.insert(key.name.clone(), text.to_owned());
            }
        }
    }
    (data, detector)
}

/// `{tiers: [nano, small], strong: ask}`.
pub(crate) fn models(reader: &mut Reader, node: &Node) -> Models {
    let known: Vec<&str> = std::iter::once("tiers").chain(TIERS).collect();
    let mut tiers = BTreeMap::new();
    let Some(fields) = reader.fields(node, "`models`", &known) else { return Models::of(tiers) };
    if let Some(node) = fields.get("tiers") {
        tiers.extend(words(reader, node, "tier", &TIERS).into_iter().map(|tier| (tier.to_owned(), Verdict::Allow)));
    }
    for tier in TIERS {
        let Some(node) = fields.get(tier) else { continue };
        let said = verdict(reader, node).unwrap_or(Verdict::Deny);
        if tiers.insert(tier.to_owned(), said).is_some() {
            reader.fault(node, format!("`{tier}` is in `tiers` too"), "name it once");
        }
    }
    Models::of(tiers)
}

/// `{usd: 1.00/day, tokens: 500k/day, calls: 2000/day, wall: 8h}`.
pub(crate) fn budget(reader: &mut Reader, node: &Node) -> RoleBudget {
    let mut budget = RoleBudget::default();
    let Some(fields) = reader.fields(node, "`budget`", &["usd", "tokens", "calls", "wall"]) else { return budget };
    if let Some(node) = fields.get("usd")
        && let Some((amount, per_s)) = reader.per(node, "`usd`", "1.00/day")
    {
        let plain = amount.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        budget.usd = amount.parse().ok().filter(|_| plain).and_then(Usd::from_dollars).map(|usd| (usd, per_s));
        if budget.usd.is_none() {
            reader.fault(node, format!("`{amount}` is no amount of dollars"), "write it such as `1.00/day`");
        }
    }
    budget.tokens = fields.get("tokens").and_then(|node| reader.rate(node, "`tokens`"));
    budget.calls = fields.get("calls").and_then(|node| reader.rate(node, "`calls`"));
    budget.wall_ms = fields.get("wall").and_then(|node| reader.span(node, "`wall`"));
    budget
}

pub(crate) fn secret(reader: &mut Reader, node: &Node) -> Option<Secret> {
    let fields = reader.fields(node, "a secret", &["name", "to", "header"])?;
    let name = reader.need(&fields, "name").and_then(|node| reader.text(node, "`name`"));
    let to = reader.need(&fields, "to").and_then(|node| reader.text(node, "`to`").map(|text| (node, text)));
    let header = reader.need(&fields, "header").and_then(|node| reader.text(node, "`header`"));
    let (name, (place, to), header) = (name?, to?, header?.to_ascii_lowercase());
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        reader.fault(node, format!("`{name}` is no name of a secret"), "write it such as `GITHUB_TOKEN`");
    }
    // Signs that a header's name may have (RFC 9110, 5.6.2), less those that frame a message.
    let sign = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let framing = ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"];
    if header.is_empty() || !header.bytes().all(sign) || framing.contains(&header.as_str()) {
        reader.fault(node, format!("`{header}` is no header for a secret"), "write it such as `authorization`");
    }
    let (host, port) =
        to.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).unwrap_or((to, "443"));
    // A secret goes to one named host and never to a pattern.
    match (Address::read_host(host), port.parse()) {
        (Ok((host, _)), Ok(port)) => Some(Secret { name: name.to_owned(), host, port, header }),
        _ => {
            reader.fault(place, format!("`{to}` is no host and port"), "name one host, such as `api.example.com:443`");
            None
        }
    }
}

/// A list of texts, none of them twice.
pub(crate) fn texts(reader: &mut Reader, node: &Node, what: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for item in reader.list(node, what) {
        let Some(text) = reader.text(item, what) else { continue };
        if found.iter().any(|known| known == text) {
            reader.fault(item, format!("`{text}` stands here twice"), "keep one");
        }
        found.push(text.to_owned());
    }
    found
}

/// Whether a value is written at all.
pub(crate) fn is_empty(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(text, false) if text.is_empty())
}
