//! Hosts with a port, as `[net]` names them: `example.com:443`, `*.example.org:443`, `127.0.0.1:8080`, `[::1]:8080`.
//!
//! Start at [`HostPort::covers`]. A leading `*.` stands for exactly one label, as everywhere in AOS; nothing else is a pattern.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A host, or all hosts one label below a name, with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// In lower case, IPv6 without brackets.
    Exactly(String),
    /// What follows `*.`.
    Below(String),
}

/// Why a text is no [`HostPort`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// There is no port from 1 to 65535 at its end.
    #[error("`{0}` does not end in a port")]
    Port(String),
    /// What stands before the port is no host name, address or `*.` with a name.
    #[error("`{0}` is no host name or address")]
    Host(String),
}

impl HostPort {
    /// Whether a connection to this host (as the URL names it, without brackets) and port is meant.
    #[must_use]
    pub fn covers(&self, host: &str, port: u16) -> bool {
        if port != self.port {
            return false;
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match &self.host {
            Host::Exactly(name) => *name == host,
            Host::Below(name) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == name),
        }
    }

    /// Whether it names one address in numbers or `localhost`.
    #[must_use]
    pub fn is_address(&self) -> bool {
        matches!(&self.host, Host::Exactly(name) if name == "localhost" || name.parse::<IpAddr>().is_ok())
    }

    /// The host as written, without the port; with `*.` where it is a pattern.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.host {
            Host::Exactly(name) => name.clone(),
            Host::Below(name) => format!("*.{name}"),
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for HostPort {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| BadHost::Port(text.to_owned()))?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = port.parse().unwrap_or(0);
        if port == 0 || !digits {
            return Err(BadHost::Port(text.to_owned()));
        }
        let bad = || BadHost::Host(text.to_owned());
        if let Some(inner) = host.strip_prefix('[') {
            let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<std::net::Ipv6Addr>().ok());
            return Ok(HostPort { host: Host::Exactly(address.ok_or_else(bad)?.to_string()), port });
        }
        let host = host.to_ascii_lowercase();
        let (name, below) = host.strip_prefix("*.").map_or((host.as_str(), false), |name| (name, true));
        if !is_host_name(name) || (below && name.parse::<IpAddr>().is_ok()) {
            return Err(bad());
        }
        let host = if below { Host::Below(name.to_owned()) } else { Host::Exactly(name.to_owned()) };
        Ok(HostPort { host, port })
    }
}

/// Whether this is a name that a host can have.
pub(super) fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Exactly(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Exactly(name) => write!(f, "{name}:{}", self.port),
            Host::Below(name) => write!(f, "*.{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        let rule: HostPort = "*.Example.org:443".parse().unwrap();
        assert!(rule.covers("api.example.org", 443));
        assert!(rule.covers("API.example.org.", 443));
        for (host, port) in [
            ("example.org", 443),
            ("a.b.example.org", 443),
            ("evil-example.org", 443),
            (".example.org", 443),
            ("api.example.org", 80),
        ] {
            assert!(!rule.covers(host, port), "{host}:{port}");
        }
    }

    #[test]
    fn what_is_no_host_with_a_port_is_refused() {
        for text in ["example.com", "example.com:", "example.com:0", "example.com:70000", "example.com:+80", ":443"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        for text in ["*:443", "a.*.org:443", "*.10.0.0.1:80", "http://a:80", "[1.2.3.4]:80", "a b:80", "::1:80"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        for text in ["example.com:443", "*.example.org:443", "127.0.0.1:8080", "[::1]:8080", "localhost:1"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }
}
