//! A role of the language: each section becomes rules in the role's tables.
//!
//! Start at [`role`]. What always holds: a section's rule names the section and its place, so that an explanation
//! points at the file; a rule that reads cannot be got round by moving or editing.

use aos_abi::Name;
use aos_abi::entry::Verdict;

use crate::address::{Address, Class};
use crate::file::rule::{self, draft, with_keys, words};
use crate::file::settings::{self, is_empty, texts};
use crate::grant::Grant;
use crate::packages;
use crate::pattern::{Domain, Pattern};
use crate::read::{Fields, Reader};
use crate::role::{Draft, Role};
use crate::scope::{NetScope, Scope};
use crate::settings::{Exec, ExecNet, Mount, OWN_PROGRAMS};
use crate::target::{self, Action, Kind, SEND_METHODS, kind};
use crate::terms::Terms;
use crate::yaml::{Node, Value};

const SECTIONS: [&str; 12] =
    ["calls", "fs", "mounts", "exec", "net", "models", "budget", "memory", "ipc", "tools", "channels", "secrets"];

const READS: [Name; 4] = [Name::FsRead, Name::FsList, Name::FsSearch, Name::FsWatch];

pub(crate) fn role(reader: &mut Reader, name: &str, node: &Node) -> Option<Role> {
    let mut role = Role::new(name);
    if is_empty(node) {
        // A role that grants nothing is a way to say so.
        return Some(role);
    }
    let fields = reader.fields(node, "a role", &SECTIONS)?;
    calls(reader, &fields, &mut role);
    // Before `fs`: of rules that say the same, the first is named, and that is the one that says whose files these are.
    each(reader, &fields, "mounts", &mut role, mount);
    each(reader, &fields, "fs", &mut role, fs);
    each(reader, &fields, "net", &mut role, net);
    each(reader, &fields, "memory", &mut role, memory);
    each(reader, &fields, "ipc", &mut role, ipc);
    each(reader, &fields, "tools", &mut role, tool);
    each(reader, &fields, "channels", &mut role, channel);
    if let Some(node) = fields.get("exec") {
        exec(reader, node, &mut role);
    }
    if let Some(node) = fields.get("models") {
        role.models = settings::models(reader, node);
    }
    if let Some(node) = fields.get("budget") {
        role.budget = settings::budget(reader, node);
    }
    if let Some(node) = fields.get("secrets") {
        role.secrets =
            reader.list(node, "`secrets`").iter().filter_map(|item| settings::secret(reader, item)).collect();
    }
    Some(role)
}

type Section = fn(&mut Reader, &Node, String, &mut Role);

fn each(reader: &mut Reader, fields: &Fields<'_>, section: &str, role: &mut Role, read: Section) {
    let Some(node) = fields.get(section) else { return };
    for (at, item) in reader.list(node, &format!("`{section}`")).iter().enumerate() {
        let name = format!("role {}: {section}[{at}]", role.name);
        read(reader, item, name, role);
    }
}

/// The section that says what calls of this name may act on, where there is one.
fn section_of(name: Name) -> Option<&'static str> {
    match kind(name) {
        Kind::File => Some("fs"),
        Kind::Memory => Some("memory"),
        Kind::Net => Some("net"),
        Kind::Channel => Some("channels"),
        Kind::Always | Kind::Bare | Kind::Word | Kind::Process | Kind::Webhook => match name {
            Name::ExecCmd => Some("exec"),
            Name::ToolCall => Some("tools"),
            Name::SendMsg => Some("ipc"),
            _ => None,
        },
    }
}

/// `calls`: each a grant, or `{call: GRANT, verdict: …}`. A bare name whose section stands beside it means that section.
fn calls(reader: &mut Reader, fields: &Fields<'_>, role: &mut Role) {
    let Some(node) = fields.get("calls") else { return };
    for (at, item) in reader.list(node, "`calls`").iter().enumerate() {
        let place = format!("role {}: calls[{at}]", role.name);
        let terms = match &item.value {
            Value::Map(_) => reader.fields(item, "a call", &with_keys(&["call"])),
            Value::Scalar(..) | Value::List(_) => None,
        };
        let text_node = match &terms {
            Some(terms) => reader.need(terms, "call"),
            None => Some(item),
        };
        let Some(text_node) = text_node else { continue };
        let Some(text) = reader.text(text_node, "a call") else { continue };
        let grant = match text.parse::<Grant>() {
            Ok(grant) => grant,
            Err(fault) => {
                reader.fault(text_node, fault.to_string(), fault.hint);
                continue;
            }
        };
        let names: Vec<Name> = grant.scopes.iter().map(|(action, _)| action.name()).collect();
        if grant.scopes.is_empty() {
            if terms.is_some() {
                let why = format!("`{text}` alone is always allowed: it reaches what is below the process");
                reader.fault(text_node, why, format!("name whom else it may reach, such as `{text} web-*`"));
            }
            continue;
        }
        let bare = grant.scopes.iter().any(|(_, scope)| matches!(scope, Scope::Any)) && !text.trim().contains(' ');
        if let Some(section) = names.first().and_then(|name| section_of(*name)).filter(|_| bare) {
            if fields.get(section).is_none() {
                let hint = format!("add a section `{section}`, or a pattern such as `{text} **`");
                reader.fault(text_node, format!("`{text}` says not on what, and there is no `{section}`"), hint);
            } else if terms.is_some() {
                reader.fault(
                    text_node,
                    format!("the rules of `{section}` say how `{text}` is decided"),
                    "say it there",
                );
            }
            continue;
        }
        let draft = match &terms {
            Some(terms) => draft(reader, terms, format!("{place} {text}"), &names),
            None => Draft { name: format!("{place} {text}").into(), terms: Terms::unbounded(), private: false },
        };
        let head = text.split_whitespace().next().unwrap_or_default();
        let says = |name: &str| head == name || head.strip_suffix('*').is_some_and(|family| name.starts_with(family));
        for (action, scope) in grant.scopes {
            // Whoever may not begin one thing may end others.
            if draft.terms.verdict == Verdict::Deny && !says(action.name().as_str()) {
                continue;
            }
            role.add(action, scope, &draft);
        }
    }
}

fn pattern(reader: &mut Reader, node: &Node, domain: Domain, what: &str) -> Option<Pattern> {
    let text = reader.text(node, what)?;
    match Pattern::parse(domain, text) {
        Ok(pattern) => Some(pattern),
        Err(fault) => {
            reader.fault(node, fault.to_string(), fault.hint);
            None
        }
    }
}

/// `{path: "docs/**", ops: [read, write, delete], …}`.
fn fs(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a rule of `fs`", &with_keys(&["path", "ops", "label"])) else { return };
    let path = reader.need(&fields, "path").and_then(|node| pattern(reader, node, Domain::Path, "`path`"));
    let ops = reader.need(&fields, "ops").map(|node| words(reader, node, "operation", &["read", "write", "delete"]));
    let (Some(path), Some(ops)) = (path, ops) else { return };
    let actions = ops.iter().flat_map(|op| fs_actions(op));
    let names: Vec<Name> = actions.filter(|action| !action.is_reading()).map(Action::name).collect();
    // Moving is judged as a deletion here and a writing there, both of which can be undone.
    let draft = draft(reader, &fields, format!("{name} {path}"), &names);
    fs_rules(role, &path, &ops, &draft);
}

fn fs_actions(op: &str) -> Vec<Action> {
    match op {
        "read" => READS.into_iter().map(Action::of).chain([Action::EDIT_READ, Action::MOVE_READ]).collect(),
        "write" => vec![Action::of(Name::FsWrite), Action::of(Name::FsEdit), Action::MOVE_TO],
        _ => vec![Action::of(Name::FsDelete), Action::of(Name::FsMove)],
    }
}

fn fs_rules(role: &mut Role, path: &Pattern, ops: &[&str], draft: &Draft) {
    for action in ops.iter().flat_map(|op| fs_actions(op)) {
        role.add(action, Scope::Words(path.clone()), draft);
    }
}

/// `{host: ~/handbook, at: handbook, ops: [read]}`: all below `at` can be read, and nothing of it changed.
fn mount(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a mount", &["host", "at", "ops"]) else { return };
    let host = reader.need(&fields, "host").and_then(|node| reader.text(node, "`host`").map(|text| (node, text)));
    let at = reader.need(&fields, "at").and_then(|node| mounted_at(reader, node, role));
    let ops = reader.need(&fields, "ops").map(|node| {
        let ops = words(reader, node, "operation", &["read", "write", "delete"]);
        if ops != ["read"] {
            reader.fault(
                node,
                "a mount can be read and nothing else",
                "write `ops: [read]`; to have a folder changed, run on it with `aos run -w DIR`",
            );
        }
    });
    let (Some((place, host)), Some((at, below)), Some(())) = (host, at, ops) else { return };
    let absolute = host.starts_with('/') || host.starts_with("~/");
    let parts = || host.split('/').skip(1).filter(|word| !word.is_empty());
    if !absolute || parts().any(|word| matches!(word, "." | "..") || target::is_home(word)) || parts().next().is_none()
    {
        reader.fault(
            place,
            format!("`{host}` cannot be mounted"),
            "write an absolute folder or `~/…`, without `..`, outside of the daemon's home",
        );
        return;
    }
    let draft = Draft { name: format!("{name} {below}").into(), terms: Terms::unbounded(), private: false };
    fs_rules(role, &below, &["read"], &draft);
    let closed = Draft { terms: Terms { verdict: Verdict::Deny, ..Terms::unbounded() }, ..draft };
    fs_rules(role, &below, &["write", "delete"], &closed);
    let (line, column) = (place.place.line, place.place.column);
    role.mounts.push(Mount { host: host.to_owned(), at: at.to_owned(), rule: name, line, column });
}

/// One name, so that a mount stands in no folder that an agent could move or replace.
fn mounted_at<'n>(reader: &mut Reader, node: &'n Node, role: &Role) -> Option<(&'n str, Pattern)> {
    let pattern = pattern(reader, node, Domain::Path, "`at`")?;
    let text = reader.text(node, "`at`")?;
    if text == "." || target::is_home(text) || text.contains(['*', '/']) {
        reader.fault(node, "`at` is one folder at the top of the workspace", "write one name, such as `handbook`");
        return None;
    }
    if role.mounts.iter().any(|mount| mount.at == text) {
        reader.fault(node, format!("`{text}` is mounted twice"), "give each mount a name of its own");
        return None;
    }
    Pattern::parse(Domain::Path, &format!("{pattern}/**")).ok().map(|below| (text, below))
}

/// `{to: "api.github.com:443", allow: ["GET /repos/**"], private: true, …}`.
fn net(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let known = with_keys(&["to", "allow", "label", "private"]);
    let Some(fields) = reader.fields(node, "a rule of `net`", &known) else { return };
    let to = reader.need(&fields, "to").and_then(|node| {
        let text = reader.text(node, "`to`")?;
        match NetScope::authority(text, 443) {
            Ok(authority) => Some((node, text, authority)),
            Err((why, hint)) => {
                reader.fault(node, why, hint);
                None
            }
        }
    });
    let private = fields.get("private").and_then(|node| reader.flag(node, "`private`")).unwrap_or(false);
    let requests: Vec<(u8, Pattern)> = match reader.need(&fields, "allow") {
        None => return,
        Some(node) => {
            let items = reader.some(node, "`allow`", "name requests such as `GET /**`, or leave the rule out");
            items.iter().filter_map(|item| request(reader, item)).collect()
        }
    };
    let Some((place, text, (host, port))) = to else { return };
    check_host(reader, place, &host, private);
    let names: Vec<Name> = requests.iter().map(|(method, _)| net_call(*method)).collect();
    let mut draft = draft(reader, &fields, format!("{name} {text}"), &names);
    draft.private = private;
    for (methods, path) in requests {
        let scope = NetScope { methods, host: host.clone(), port, path };
        role.add(Action::of(net_call(methods)), Scope::Net(scope), &draft);
    }
}

fn net_call(method: u8) -> Name {
    if method & SEND_METHODS == 0 { Name::NetFetch } else { Name::NetSend }
}

/// A rule that the floor makes void would promise what never happens.
fn check_host(reader: &mut Reader, node: &Node, host: &Pattern, private: bool) {
    let text = host.to_string();
    let domain = text.strip_prefix("*.").unwrap_or(&text);
    match Address::read_host(domain).map(|(_, class)| class) {
        Ok(Class::Metadata) => {
            reader.fault(node, "metadata services are closed to agents", "remove the rule; nothing opens them");
        }
        Ok(Class::Private) if !private => {
            reader.fault(node, format!("`{text}` is a private address"), "add `private: true` if that is meant");
        }
        Ok(Class::Public) if private && !text.starts_with("*.") => {
            // A public name may resolve to a private address on purpose; that is what `private` then allows.
        }
        Err(_) if private => {
            reader.fault(node, "a private address must be named", "name the host, such as `127.0.0.1:8080`");
        }
        Ok(Class::Public | Class::Private) | Err(_) => {}
    }
}

/// `GET /repos/**`.
fn request(reader: &mut Reader, node: &Node) -> Option<(u8, Pattern)> {
    let text = reader.text(node, "a request")?;
    let example = "write it such as `GET /repos/**`";
    let Some((method, path)) = text.split_once(" /") else {
        reader.fault(node, format!("`{text}` is no method and path"), example);
        return None;
    };
    let Some(method) = target::method(method) else {
        let names: Vec<&str> = target::METHODS.iter().map(|(name, _)| *name).collect();
        reader.fault(node, format!("`{method}` is no method"), format!("there are {}", names.join(", ")));
        return None;
    };
    match NetScope::path(path) {
        Ok(path) => Some((method, path)),
        Err((why, hint)) => {
            reader.fault(node, why, hint);
            None
        }
    }
}

/// `{namespace: "self/**", ops: [read, write, forget]}`.
fn memory(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a rule of `memory`", &with_keys(&["namespace", "ops", "label"])) else {
        return;
    };
    let space = reader.need(&fields, "namespace").and_then(|node| pattern(reader, node, Domain::Path, "`namespace`"));
    let ops = reader.need(&fields, "ops").map(|node| words(reader, node, "operation", &["read", "write", "forget"]));
    let (Some(space), Some(ops)) = (space, ops) else { return };
    let names: Vec<Name> = ops
        .iter()
        .map(|op| match *op {
            "read" => Name::MemRead,
            "write" => Name::MemWrite,
            _ => Name::MemForget,
        })
        .collect();
    let draft = draft(reader, &fields, format!("{name} {space}"), &names);
    for name in names {
        role.add(Action::of(name), Scope::Words(space.clone()), &draft);
    }
}

/// `{peer: "*", ops: [send, signal], rate: 60/min}`.
fn ipc(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a rule of `ipc`", &with_keys(&["peer", "ops"])) else { return };
    let ops = reader.need(&fields, "ops").map(|node| words(reader, node, "operation", &["send", "signal"]));
    let calls = ops.unwrap_or_default().into_iter().map(|op| if op == "send" { Name::SendMsg } else { Name::Kill });
    let calls: Vec<Name> = calls.collect();
    let Some(peer) = reader.need(&fields, "peer") else { return };
    let mut scopes = Vec::new();
    for call in &calls {
        let Some((text, scope)) = named(reader, peer, *call) else { return };
        scopes.push((text, Action::of(*call), scope));
    }
    let Some((text, ..)) = scopes.first() else { return };
    let draft = draft(reader, &fields, format!("{name} {text}"), &calls);
    for (_, action, scope) in scopes {
        role.add(action, scope, &draft);
    }
}

/// `{tool: "github.*", verdict: ask}`.
fn tool(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a rule of `tools`", &with_keys(&["tool", "label"])) else { return };
    let Some((text, scope)) = reader.need(&fields, "tool").and_then(|node| named(reader, node, Name::ToolCall)) else {
        return;
    };
    let draft = draft(reader, &fields, format!("{name} {text}"), &[Name::ToolCall]);
    role.add(Action::of(Name::ToolCall), scope, &draft);
}

fn named<'n>(reader: &mut Reader, node: &'n Node, call: Name) -> Option<(&'n str, Scope)> {
    let text = reader.text(node, "a name")?;
    match Scope::grant(call, Some(text)) {
        Ok(scope) => Some((text, scope)),
        Err((why, hint)) => {
            reader.fault(node, why, hint);
            None
        }
    }
}

/// `{channel: email, to: ["*@example.com"], verdict: hold}`.
fn channel(reader: &mut Reader, node: &Node, name: String, role: &mut Role) {
    let Some(fields) = reader.fields(node, "a rule of `channels`", &with_keys(&["channel", "to"])) else { return };
    let channel = reader.need(&fields, "channel").and_then(|node| pattern(reader, node, Domain::Word, "`channel`"));
    let to: Vec<Pattern> = match reader.need(&fields, "to") {
        None => return,
        Some(node) => {
            let items = reader.some(node, "`to`", "name receivers such as `*@example.com`, or leave the rule out");
            items.iter().filter_map(|item| pattern(reader, item, Domain::Address, "a receiver")).collect()
        }
    };
    let Some(channel) = channel else { return };
    let draft = draft(reader, &fields, format!("{name} {channel}"), &[Name::ChannelSend]);
    for to in to {
        role.add(Action::of(Name::ChannelSend), Scope::Channel { channel: channel.clone(), to }, &draft);
    }
}

/// `[sh, git, /opt/x/bin/y, "./**"]`: names, absolute paths, and what lies in the workspace, which is granted whole.
fn programs(reader: &mut Reader, node: &Node) -> Vec<String> {
    let found = texts(reader, node, "`programs`");
    let Value::List(items) = &node.value else { return found };
    for item in items {
        let Value::Scalar(text, _) = &item.value else { continue };
        if text.starts_with('.') && text.contains('/') && text != OWN_PROGRAMS {
            let hint = format!("`{OWN_PROGRAMS}` is all that lies in the workspace; name others by an absolute path");
            reader.fault(item, format!("`{text}` is no program"), hint);
        }
    }
    found
}

/// `{shell: true, programs: [sh, git], net: none, …}`.
fn exec(reader: &mut Reader, node: &Node, role: &mut Role) {
    let Some(fields) = reader.fields(node, "`exec`", &with_keys(&["shell", "programs", "net"])) else { return };
    let shell = reader.need(&fields, "shell").and_then(|node| reader.flag(node, "`shell`"));
    let programs = reader.need(&fields, "programs").map(|node| programs(reader, node));
    let net = match fields.get("net").map(|node| reader.word(node, "network for commands", &["none", "rules"])) {
        Some(Some("rules")) => ExecNet::Rules,
        _ => ExecNet::Closed,
    };
    let draft = rule::draft(reader, &fields, format!("role {}: exec", role.name), &[Name::ExecCmd]);
    let (Some(shell), Some(programs)) = (shell, programs) else { return };
    let first = || programs.iter().flat_map(|name| packages::programs(name)).map(str::to_owned);
    let plain = (!shell).then(|| first().collect());
    role.add(Action::of(Name::ExecCmd), Scope::Commands { plain }, &draft);
    role.exec = Some(Exec { shell, programs, net });
}
