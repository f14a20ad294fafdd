//! Tunnels: connections of which nothing but host and port can be seen, such as TLS through a proxy.
//!
//! Start at [`opens`]. What always holds: a tunnel is opened only where every request that could be made through it would
//! be allowed, whatever its method and path; a rule about some methods or paths alone cannot be kept inside it.

use aos_abi::Name;
use aos_abi::entry::Verdict;

use crate::address::DAEMON_CLOSED;
use crate::decide::Subject;
use crate::label::Labels;
use crate::policy::{LabelRule, Tables};
use crate::scope::{NetScope, Scope, host_words};
use crate::target::{Action, METHODS};
use crate::terms::Obligations;

/// Whether everything to a host and port is allowed, by which rules, and what must happen with it.
///
/// # Errors
/// Why not, in words for whoever asked for it.
pub(crate) fn opens(
    tables: &Tables,
    subject: &Subject<'_>,
    host: &str,
    port: u16,
) -> Result<(String, Obligations), String> {
    let role = tables.role(subject.role).ok_or_else(|| format!("no role `{}` in the policy", subject.role))?;
    if tables.listens.is_some_and(|listens| listens.is_named(host, port)) {
        return Err(format!("floor: {DAEMON_CLOSED}"));
    }
    let words = host_words(host);
    let concerns = |net: &NetScope, method: u8| {
        net.methods & method != 0 && net.port.is_none_or(|own| own == port) && net.host.matches(&words)
    };
    let mut obligations = Obligations { labels: Labels::WEB, ..Obligations::default() };
    let mut granting: Vec<&str> = Vec::new();
    let whole = |net: &NetScope| net.path.segments().is_empty() && net.path.has_rest();
    for (method, bit) in METHODS {
        let name = if method == "GET" { Name::NetFetch } else { Name::NetSend };
        let action = Action::of(name);
        let mut granted = false;
        for rule in role.table(action).rules() {
            let (paths, grants) = match &rule.scope {
                Scope::Any => (true, true),
                Scope::Net(net) if concerns(net, bit) => (whole(net), true),
                Scope::Net(_) | Scope::Commands { .. } | Scope::Words(_) | Scope::Channel { .. } => continue,
            };
            if rule.terms.verdict != Verdict::Allow {
                return Err(format!("{} says {} to some of it", rule.name, rule.terms.verdict.as_str()));
            }
            if !paths {
                return Err(format!("{} names paths, which cannot be seen inside TLS", rule.name));
            }
            obligations.join(&rule.terms.obligations);
            if grants && rule.grants {
                granted = true;
                granting.push(&rule.name);
            }
        }
        if !granted {
            return Err(format!("no rule of role {} allows {method} /** there, and TLS hides the method", role.name));
        }
        let covers = |scope: &Scope| match scope {
            Scope::Any => true,
            Scope::Net(net) => concerns(net, bit) && whole(net),
            Scope::Commands { .. } | Scope::Words(_) | Scope::Channel { .. } => false,
        };
        for grants in subject.chain {
            let scopes = grants.as_slice().iter().flat_map(|grant| &grant.scopes);
            if !scopes.into_iter().any(|(of, scope)| *of == action && covers(scope)) {
                return Err(format!("no grant of this process or an ancestor covers {method} /** there"));
            }
        }
        // What may be sent there is anybody's guess, so a rule about any of it counts.
        let concerned = |rule: &&LabelRule| subject.labels.any_of(rule.when) && rule.calls.contains(name);
        for rule in tables.labels.iter().filter(concerned) {
            if rule.terms.verdict != Verdict::Allow {
                return Err(format!("{} says {} to {name}", rule.name, rule.terms.verdict.as_str()));
            }
            obligations.join(&rule.terms.obligations);
        }
    }
    granting.sort_unstable();
    granting.dedup();
    Ok((granting.join(", "), obligations))
}

/// Whether a role has a rule that grants anything to a host and port, which the floor does not close.
pub(crate) fn speaks_of(tables: &Tables, role: &str, host: &str, port: u16) -> bool {
    if tables.listens.is_some_and(|listens| listens.is_named(host, port)) {
        return false;
    }
    let Some(role) = tables.role(role) else { return false };
    let words = host_words(host);
    let concerns = |scope: &Scope| match scope {
        Scope::Any => true,
        Scope::Net(net) => net.port.is_none_or(|own| own == port) && net.host.matches(&words),
        Scope::Commands { .. } | Scope::Words(_) | Scope::Channel { .. } => false,
    };
    let tables = [Name::NetFetch, Name::NetSend].map(|name| role.table(Action::of(name)));
    tables.into_iter().flat_map(|table| table.granting()).any(|rule| concerns(&rule.scope))
}

/// What a role's rules grant anything to: hosts as they are written, patterns too, and the port where one is named.
pub(crate) fn places(tables: &Tables, role: &str) -> Vec<(String, Option<u16>)> {
    let Some(role) = tables.role(role) else { return Vec::new() };
    let tables = [Name::NetFetch, Name::NetSend].map(|name| role.table(Action::of(name)));
    let rules = tables.into_iter().flat_map(|table| table.granting());
    let mut places: Vec<(String, Option<u16>)> = rules
        .filter_map(|rule| match &rule.scope {
            Scope::Net(net) => Some((net.host.to_string(), net.port)),
            Scope::Any | Scope::Commands { .. } | Scope::Words(_) | Scope::Channel { .. } => None,
        })
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The hosts that a role's rules name as private, each as `HOST:PORT`.
pub(crate) fn private_hosts(tables: &Tables, role: &str) -> Vec<String> {
    let Some(role) = tables.role(role) else { return Vec::new() };
    let tables = [Name::NetFetch, Name::NetSend].map(|name| role.table(Action::of(name)));
    let rules = tables.into_iter().flat_map(|table| table.rules()).filter(|rule| rule.private && rule.grants);
    let mut hosts: Vec<String> = rules
        .filter_map(|rule| match &rule.scope {
            Scope::Net(net) => net.port.map(|port| format!("{}:{port}", net.host)),
            Scope::Any | Scope::Commands { .. } | Scope::Words(_) | Scope::Channel { .. } => None,
        })
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}
