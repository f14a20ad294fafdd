//! Why a request failed, and what the agent is told.

use std::net::IpAddr;

use aos_abi::{CallError, Code};
use aos_policy::address::{Class, DAEMON_CLOSED, DAEMON_HINT, METADATA_CLOSED};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Write the address plainly.
    #[error("`{url}`: the address is refused: {why}")]
    Address { url: String, why: String },
    /// Name a public host, or have the exception configured.
    #[error("{}", forbidden(host, *port, *class, *ip))]
    Forbidden { host: String, port: u16, class: Class, ip: Option<IpAddr> },
    /// Nothing opens it.
    #[error("`{host}:{port}` is the daemon's own address, which no rule opens")]
    Daemon { host: String, port: u16 },
    /// Mend the header.
    #[error("header `{name}` {why}")]
    Header { name: String, why: &'static str },
    /// Use one of the four methods.
    #[error("`{method}` is no method of NET_SEND")]
    Method { method: String },
    /// Fetch the last address by itself, if that is wanted.
    #[error("more than {most} redirects, the last to `{url}`")]
    Redirects { most: usize, url: String },
    /// Fetch the plain address by itself, if that is wanted.
    #[error("`{url}`: a redirect from https to http is not followed")]
    Downgrade { url: String },
    /// The policy refused a redirect.
    #[error("redirected to `{url}`: {}", .because.message)]
    Redirected { url: String, because: Box<CallError> },
    /// Check the name.
    #[error("`{host}` cannot be resolved: {why}")]
    Unresolved { host: String, why: String },
    /// Try later, or ask for less.
    #[error("no complete answer from `{host}` within {} s", seconds)]
    TimedOut { host: String, seconds: f64, sent: bool },
    /// The other side or the way there failed.
    #[error("request to `{host}` failed: {why}")]
    Failed { host: String, why: String, sent: bool },
    /// A secret for that place cannot be put in.
    #[error("{}", .0.message)]
    Secret(Box<CallError>),
    /// TLS cannot be set up on this machine.
    #[error("no secure connection can be made: {0}")]
    Tls(String),
}

impl Error {
    /// What the floor says, where it is an address that is refused: what a name leads to, only the driver sees.
    pub(super) fn floor(&self) -> Option<&'static str> {
        match self {
            Error::Daemon { .. } => Some(DAEMON_CLOSED),
            Error::Forbidden { class: Class::Metadata, .. } => Some(METADATA_CLOSED),
            Error::Forbidden { .. } => Some("private addresses are reached only where a rule says so"),
            _ => None,
        }
    }

    /// A URL as it may be shown.
    pub(super) fn shown(url: &str) -> String {
        let mut shown: String = url.chars().take(200).flat_map(char::escape_debug).collect();
        if url.chars().nth(200).is_some() {
            shown.push('…');
        }
        shown
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let (code, hint) = match &error {
            Error::Address { .. } => (Code::Inval, Some("such as https://example.com/path?query".to_owned())),
            Error::Forbidden { class: Class::Metadata, .. } => (Code::Perm, None),
            Error::Forbidden { host, port, ip, .. } => {
                let place = format!("{host}:{port}");
                let rule = format!("a net rule to `{place}` with `private: true` would allow it");
                // A name that only leads there.
                let named = ip.is_some() && host.chars().any(|char| char.is_ascii_alphabetic()) && !host.contains(':');
                let more =
                    format!("; for NET_FETCH and NET_SEND `private = [\"{place}\"]` below [net] of aos.toml, too");
                (Code::Perm, Some(if named { rule + &more } else { rule }))
            }
            Error::Daemon { .. } => (Code::Perm, Some(DAEMON_HINT.to_owned())),
            Error::Header { .. } => (Code::Inval, Some("leave it out; the driver sets what the protocol needs".into())),
            Error::Method { .. } => (Code::Inval, Some("POST, PUT, PATCH or DELETE; NET_FETCH gets".into())),
            Error::Redirects { .. } | Error::Downgrade { .. } => {
                (Code::Io, Some("fetch that address by itself if it is what you want".into()))
            }
            Error::Redirected { because, .. } => (because.code, because.hint.clone()),
            Error::Secret(because) => (because.code, because.hint.clone()),
            Error::Unresolved { .. } | Error::Tls(_) => (Code::Io, None),
            Error::TimedOut { sent, .. } => (Code::TimedOut, unknown(*sent)),
            Error::Failed { sent, .. } => (Code::Io, unknown(*sent)),
        };
        let told = CallError::new(code, error.to_string());
        match hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    }
}

/// What to say where a request that changes something was on its way when it failed.
fn unknown(sent: bool) -> Option<String> {
    sent.then(|| "it may have been carried out all the same; find out before sending it again".to_owned())
}

fn forbidden(host: &str, port: u16, class: Class, ip: Option<IpAddr>) -> String {
    let what = match class {
        Class::Metadata => "a cloud's metadata service, which is never reached",
        Class::Private | Class::Public => "this machine, a private network or another special address",
    };
    match ip {
        Some(ip) => format!("`{host}:{port}` resolves to {ip}, which is {what}"),
        None => format!("`{host}:{port}` is {what}"),
    }
}
