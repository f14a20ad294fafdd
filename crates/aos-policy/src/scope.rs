//! Scopes: the set of targets that one rule or grant is about.
//!
//! Start at [`Scope::grant`] for how a grant's pattern is read and at [`Scope::hit`] for matching. What always holds:
//! a scope is a product of patterns, so inclusion and overlap are those of its parts.

use aos_abi::Name;

use crate::address::Address;
use crate::packages;
use crate::pattern::{Domain, Pattern};
use crate::target::{self, Kind, Reach, SEND_METHODS, Target};

/// A set of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every target of the action.
    Any,
    /// Command lines: any, or only plain words that begin with one of these programs.
    Commands { plain: Option<Box<[String]>> },
    /// Paths, namespaces or names.
    Words(Pattern),
    /// Requests.
    Net(NetScope),
    /// Receivers.
    Channel { channel: Pattern, to: Pattern },
}

/// A set of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetScope {
    /// Bits of [`target::METHODS`].
    pub(crate) methods: u8,
    pub(crate) host: Pattern,
    /// `None`: any.
    pub(crate) port: Option<u16>,
    pub(crate) path: Pattern,
}

/// How a scope meets a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// Not at all.
    Missed,
    /// It holds a part of what the call reaches: what it forbids counts, what it grants does not suffice.
    Partly,
    /// It holds the target.
    Fully,
}

/// Why a text is no scope: what is wrong, and the way out.
pub(crate) type ScopeFault = (String, String);

impl Scope {
    /// Reads the pattern of a grant for calls of this name; none means every target.
    pub(crate) fn grant(name: Name, text: Option<&str>) -> Result<Scope, ScopeFault> {
        let Some(text) = text else { return Ok(Scope::Any) };
        let pattern = |domain, text: &str| {
            Pattern::parse(domain, text).map_err(|fault| (fault.to_string(), fault.hint.to_owned()))
        };
        match target::kind(name) {
            Kind::Always => {
                Err((format!("{name} is always allowed"), format!("write `{name}` alone, or leave it out")))
            }
            Kind::Bare => Err((format!("{name} takes no pattern"), format!("write `{name}` alone"))),
            Kind::File | Kind::Memory | Kind::Webhook => {
                // `./docs/` and `docs` are the same folder to whoever writes a grant.
                let trimmed = text.strip_prefix("./").filter(|rest| !rest.is_empty()).unwrap_or(text);
                pattern(Domain::Path, trimmed).map(Scope::Words)
            }
            Kind::Word => match text {
                // Whoever grants `SEND_MSG *` means everybody.
                "*" | "**" => Ok(Scope::Any),
                _ => pattern(Domain::Word, text).map(Scope::Words),
            },
            Kind::Process => match text {
                // Written out, since the call alone is what needs no grant.
                "*" | "**" => Ok(Scope::Words(Pattern::everything(Domain::Word))),
                _ => pattern(Domain::Word, text).map(Scope::Words),
            },
            Kind::Channel => {
                let (channel, to) = text.split_once('/').unwrap_or((text, "**"));
                Ok(Scope::Channel { channel: pattern(Domain::Word, channel)?, to: pattern(Domain::Address, to)? })
            }
            Kind::Net => {
                let all = if name == Name::NetFetch { 1 } else { SEND_METHODS };
                NetScope::parse(text, all).map(Scope::Net)
            }
        }
    }

    /// How it meets a target.
    pub(crate) fn hit(&self, target: &Target<'_>) -> Hit {
        let whole = |yes: bool| if yes { Hit::Fully } else { Hit::Missed };
        match (self, target) {
            (Scope::Any, _) => Hit::Fully,
            (Scope::Commands { plain: None }, Target::Command(_)) => Hit::Fully,
            (Scope::Commands { plain: Some(programs) }, Target::Command(line)) => whole(is_plain(line, programs)),
            (Scope::Words(pattern), Target::Words { words, reach }) => match reach {
                Reach::Itself => whole(pattern.matches(words)),
                Reach::Along if pattern.matches(words) => Hit::Fully,
                Reach::Below if pattern.covers_tree(words) => Hit::Fully,
                Reach::Along | Reach::Below if pattern.touches_tree(words) => Hit::Partly,
                Reach::Along | Reach::Below => Hit::Missed,
            },
            (Scope::Net(scope), Target::Net { method, address }) => whole(scope.matches(*method, address)),
            (Scope::Channel { channel, to }, Target::Channel { channel: words, to: receiver }) => {
                whole(channel.matches(words) && to.matches(&[receiver]))
            }
            _ => Hit::Missed,
        }
    }

    /// Whether some target is in both, as far as their patterns tell.
    pub(crate) fn overlaps(&self, other: &Scope) -> bool {
        match (self, other) {
            (Scope::Words(a), Scope::Words(b)) => a.overlap(b).is_some(),
            (Scope::Net(a), Scope::Net(b)) => {
                a.methods & b.methods != 0
                    && (a.port.is_none() || b.port.is_none() || a.port == b.port)
                    && a.host.overlap(&b.host).is_some()
                    && a.path.overlap(&b.path).is_some()
            }
            (Scope::Channel { channel: c1, to: t1 }, Scope::Channel { channel: c2, to: t2 }) => {
                c1.overlap(c2).is_some() && t1.overlap(t2).is_some()
            }
            (Scope::Any | Scope::Commands { .. }, _) | (_, Scope::Any | Scope::Commands { .. }) => true,
            _ => false,
        }
    }

    /// Every target of calls of this name, as patterns; `None` where they have no target.
    pub(crate) fn everything(name: Name) -> Option<Scope> {
        match target::kind(name) {
            Kind::Always | Kind::Bare => None,
            Kind::File | Kind::Memory | Kind::Webhook => Some(Scope::Words(Pattern::everything(Domain::Path))),
            Kind::Word | Kind::Process => Some(Scope::Words(Pattern::everything(Domain::Word))),
            Kind::Channel => Some(Scope::Channel {
                channel: Pattern::everything(Domain::Word),
                to: Pattern::everything(Domain::Address),
            }),
            Kind::Net => Some(Scope::Net(NetScope {
                methods: if name == Name::NetFetch { 1 } else { SEND_METHODS },
                host: Pattern::everything(Domain::Host),
                port: None,
                path: Pattern::everything(Domain::Path),
            })),
        }
    }

    /// As a grant for calls of this name.
    pub(crate) fn show(&self, name: Name) -> String {
        match self {
            Scope::Any | Scope::Commands { .. } => name.to_string(),
            Scope::Words(pattern) => format!("{name} {pattern}"),
            Scope::Channel { channel, to } => format!("{name} {channel}/{to}"),
            Scope::Net(net) => {
                let port = match net.port {
                    Some(443) => String::new(),
                    Some(port) => format!(":{port}"),
                    None => ":*".to_owned(),
                };
                let method = match target::METHODS.iter().find(|(_, bit)| *bit == net.methods) {
                    Some((method, _)) if name == Name::NetSend => format!("{method} "),
                    _ => String::new(),
                };
                let path = if net.path.segments().is_empty() && !net.path.has_rest() {
                    String::new()
                } else {
                    net.path.to_string()
                };
                format!("{name} {method}{}{port}/{path}", net.host)
            }
        }
    }

    /// One target that is in both, as a scope of its own.
    pub(crate) fn meeting(&self, other: &Scope, filler: &str) -> Option<Scope> {
        let meet = |a: &Pattern, b: &Pattern| {
            let words = a.overlap(b)?;
            // Where both have a rest, a place below tells more than the place itself.
            let below = (a.has_rest() && b.has_rest() && a.domain() == Domain::Path).then(|| filler.to_owned());
            Some(Pattern::exactly(a.domain(), &words.into_iter().chain(below).collect::<Vec<_>>()))
        };
        match (self, other) {
            (Scope::Words(a), Scope::Words(b)) => meet(a, b).map(Scope::Words),
            (Scope::Net(a), Scope::Net(b)) => {
                let methods = a.methods & b.methods;
                let port = if a.port.is_none() { b.port } else { a.port };
                let apart = methods == 0 || (a.port.is_some() && b.port.is_some() && a.port != b.port);
                let (host, path) = (meet(&a.host, &b.host)?, meet(&a.path, &b.path)?);
                (!apart).then_some(Scope::Net(NetScope { methods, host, port, path }))
            }
            (Scope::Channel { channel: c1, to: t1 }, Scope::Channel { channel: c2, to: t2 }) => {
                Some(Scope::Channel { channel: meet(c1, c2)?, to: meet(t1, t2)? })
            }
            _ => None,
        }
    }

    /// Its patterns.
    pub(crate) fn patterns(&self) -> Vec<&Pattern> {
        match self {
            Scope::Any | Scope::Commands { .. } => Vec::new(),
            Scope::Words(pattern) => vec![pattern],
            Scope::Net(net) => vec![&net.host, &net.path],
            Scope::Channel { channel, to } => vec![channel, to],
        }
    }
}

impl NetScope {
    /// Reads `[METHOD ][https://]HOST[:PORT][/PATH]`. Without a port it is 443; `:*` is any.
    pub(crate) fn parse(text: &str, all: u8) -> Result<NetScope, ScopeFault> {
        let (methods, rest) = match text.split_once(' ') {
            None => (all, text),
            Some((word, rest)) => match target::method(word).filter(|bit| bit & all != 0) {
                Some(bit) => (bit, rest.trim()),
                None => return Err((format!("`{word}` is no method of this call"), methods_hint(all))),
            },
        };
        let (rest, port) = match (rest.strip_prefix("https://"), rest.strip_prefix("http://")) {
            (Some(rest), _) => (rest, 443),
            (_, Some(rest)) => (rest, 80),
            _ => (rest, 443),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, "")) => (authority, Some(".")),
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (host, port) = Self::authority(authority, port)?;
        Ok(NetScope { methods, host, port, path: Self::path(path.unwrap_or("**"))? })
    }

    /// Reads a path pattern without its leading `/`; a trailing `/` makes no difference.
    pub(crate) fn path(text: &str) -> Result<Pattern, ScopeFault> {
        let text = text.strip_suffix('/').unwrap_or(text);
        Pattern::parse(Domain::Path, if text.is_empty() { "." } else { text })
            .map_err(|fault| (fault.to_string(), fault.hint.to_owned()))
    }

    /// Reads `HOST[:PORT]`.
    pub(crate) fn authority(text: &str, default_port: u16) -> Result<(Pattern, Option<u16>), ScopeFault> {
        let bad_port = || (format!("`{text}` has no port from 1 to 65535"), "write `host:443`, or `host:*`".to_owned());
        let after_bracket = text.rfind(']').unwrap_or(0);
        let (host, port) = match text[after_bracket..].find(':') {
            None => (text, Some(default_port)),
            Some(at) => {
                let (host, port) = text.split_at(after_bracket + at);
                match &port[1..] {
                    "*" => (host, None),
                    digits => (host, Some(digits.parse().ok().filter(|port| *port > 0).ok_or_else(bad_port)?)),
                }
            }
        };
        let refused = |why: String| (why, "write a host such as `api.example.com` or `*.example.com`".to_owned());
        let canonical = match host.strip_prefix("*.") {
            Some(domain) => {
                let (domain, _) =
                    Address::read_host(domain).map_err(|fault| refused(format!("`{host}`: {}", fault.why)))?;
                format!("*.{domain}")
            }
            None if host.contains('*') => host.to_owned(),
            None => Address::read_host(host).map_err(|fault| refused(format!("`{host}`: {}", fault.why)))?.0,
        };
        let pattern =
            Pattern::parse(Domain::Host, &canonical).map_err(|fault| (fault.to_string(), fault.hint.to_owned()))?;
        Ok((pattern, port))
    }

    fn matches(&self, method: u8, address: &Address) -> bool {
        self.methods & method != 0
            && self.port.is_none_or(|port| port == address.port)
            && self.host.matches(&host_words(&address.host))
            && self.path.matches(&address.path)
    }
}

/// The labels of a host; a numeric IPv6 address is one.
pub(crate) fn host_words(host: &str) -> Vec<&str> {
    if host.starts_with('[') { vec![host] } else { Domain::Host.split(host) }
}

fn methods_hint(all: u8) -> String {
    let names: Vec<&str> = target::METHODS.iter().filter(|(_, bit)| bit & all != 0).map(|(name, _)| *name).collect();
    format!("write {} before the host, or nothing", names.join(", "))
}

/// Whether a command line is nothing but words, the first one a program that is named.
///
/// A first word with `=` would be an assignment. What lies in the workspace is named by a word that begins with `./`, where
/// that is granted.
fn is_plain(line: &str, programs: &[String]) -> bool {
    let first = packages::first_word(line);
    packages::is_words(line) && !first.is_empty() && programs.iter().any(|program| program == packages::named(first))
}
