//! Addresses on the network: a strict reading of URLs, and which hosts are never or only by name reached.
//!
//! Start at [`Address::parse`]. Whatever two readers of a URL could understand differently (credentials, backslashes,
//! control characters, encoded separators, `..`, numbers written oddly) is refused rather than repaired, so that
//! the driver reaches what the policy saw. Drivers ask [`class`] about every address a name resolves to, and connect
//! to exactly that address. Deliberately absent: name resolution (no I/O here).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What the floor says of a metadata service.
pub const METADATA_CLOSED: &str = "metadata services are closed to agents";
/// What it says of where the daemon listens.
pub const DAEMON_CLOSED: &str = "the daemon's own address is closed to agents";
/// The way out of that.
pub const DAEMON_HINT: &str = "write to other agents with SEND_MSG; people ask the daemon, with the `aos` command";

/// A parsed address of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Lower case; a numeric IPv6 address stands in brackets.
    pub host: String,
    /// As written, else 443 for `https` and 80 for `http`.
    pub port: u16,
    /// The decoded segments of the path, without the query.
    pub path: Vec<String>,
    /// What kind of host it is, as far as its name tells.
    pub class: Class,
}

/// What kind of host an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Anywhere on the internet.
    Public,
    /// This machine or a private network: only where a rule names it with `private: true`.
    Private,
    /// A cloud's metadata service, which hands out credentials: never.
    Metadata,
}

/// Where the daemon itself listens: whatever asks there would ask the daemon. The port is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listens(pub SocketAddr);

impl Listens {
    /// Whether whoever connects there may reach the daemon, as far as the address tells. One that listens on a loopback
    /// address has its port on all of them: which of them a program means is not worth telling apart. Where it listens on
    /// all addresses, only the machine knows which these are beside the loopback ones.
    #[must_use]
    pub fn is_at(self, ip: IpAddr, port: u16) -> bool {
        let (listens, ip) = (self.0.ip().to_canonical(), ip.to_canonical());
        // Linux takes a connection to "no address" for one to this machine.
        let this_machine = ip.is_loopback() || ip.is_unspecified();
        port == self.0.port() && (ip == listens || this_machine && self.is_on_loopback())
    }

    /// The same of a host as [`Address`] writes it. Of names, only those that mean this machine wherever they are looked up
    /// (RFC 6761).
    pub(crate) fn is_named(self, host: &str, port: u16) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(ip) => self.is_at(ip, port),
            Err(_) => {
                let local = host == "localhost" || host.ends_with(".localhost");
                local && port == self.0.port() && self.is_on_loopback()
            }
        }
    }

    fn is_on_loopback(self) -> bool {
        let listens = self.0.ip().to_canonical();
        listens.is_loopback() || listens.is_unspecified()
    }
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address is refused: {why}")]
pub struct AddressFault {
    /// What is wrong.
    pub why: &'static str,
}

/// Metadata services that do not answer at a link-local address: Alibaba, Azure's wire server, Oracle, AWS ECS and EKS.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// AWS over IPv6 (IMDS and EKS) and Google Cloud.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
const METADATA_NAMES: [&str; 5] =
    ["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];
/// Endings that never name a public host (RFC 6761, RFC 6762, RFC 8375, and what home routers hand out).
const PRIVATE_ENDINGS: [&str; 8] =
    [".localhost", ".local", ".internal", ".home.arpa", ".lan", ".localdomain", ".intranet", ".corp"];

/// The class of a numeric address; for drivers, after a name was resolved.
#[must_use]
pub fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(v4) => class_v4(v4),
        IpAddr::V6(v6) => class_v6(v6),
    }
}

fn class_v4(v4: Ipv4Addr) -> Class {
    if METADATA_V4.contains(&v4) {
        return Class::Metadata;
    }
    let [a, b, c, _] = v4.octets();
    // The IANA registry of special-purpose addresses (RFC 6890), and multicast.
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    if special { Class::Private } else { Class::Public }
}

fn class_v6(v6: Ipv6Addr) -> Class {
    if METADATA_V6.contains(&v6) {
        return Class::Metadata;
    }
    let s = v6.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    // Forms that carry an IPv4 address are as that address is: mapped, compatible, NAT64 and 6to4.
    match s {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return Class::Private,
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return class_v4(embedded(high, low)).max(if s[0] == 0 { Class::Private } else { Class::Public });
        }
        [0x2002, high, low, ..] => return class_v4(embedded(high, low)),
        _ => {}
    }
    // Global unicast is 2000::/3; within it, documentation and Teredo are special.
    let special = s[0] & 0xe000 != 0x2000 || (s[0] == 0x2001 && (s[1] == 0xdb8 || s[1] == 0));
    if special { Class::Private } else { Class::Public }
}

impl Address {
    /// Reads an `http` or `https` URL.
    ///
    /// # Errors
    /// Where it is neither, or where it could be understood in two ways.
    pub fn parse(url: &str) -> Result<Address, AddressFault> {
        let fault = |why| Err(AddressFault { why });
        if url.bytes().any(|b| !(0x21..=0x7e).contains(&b) || b == b'\\') {
            return fault("it holds spaces, control characters, backslashes or letters beyond ASCII; encode them");
        }
        let Some((scheme, rest)) = url.split_once("://") else { return fault("it has no `http://` or `https://`") };
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "https" => 443,
            "http" => 80,
            _ => return fault("only http and https are spoken"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if authority.contains('@') {
            return fault("it holds credentials; the policy's `secrets` put them in at the edge");
        }
        let (host, port) = Self::host_and_port(authority)?;
        let port = port.unwrap_or(default_port);
        let (host, class) = Self::read_host(host)?;
        let path = &tail[..tail.find(['?', '#']).unwrap_or(tail.len())];
        Ok(Address { host, port, path: read_path(path)?, class })
    }

    fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), AddressFault> {
        let bad = AddressFault { why: "its port is no number from 1 to 65535" };
        let colon = match authority.rfind(']') {
            Some(bracket) => authority[bracket..].find(':').map(|at| at + bracket),
            None => authority.find(':'),
        };
        let Some(colon) = colon else { return Ok((authority, None)) };
        let digits = &authority[colon + 1..];
        if digits.is_empty() || digits.len() > 5 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad);
        }
        match digits.parse::<u16>() {
            Ok(port) if port > 0 => Ok((&authority[..colon], Some(port))),
            _ => Err(bad),
        }
    }

    /// The canonical form of a host and its class.
    ///
    /// # Errors
    /// Where it is no name and no plainly written numeric address.
    pub fn read_host(text: &str) -> Result<(String, Class), AddressFault> {
        let fault = |why| Err(AddressFault { why });
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return match inner.parse::<Ipv6Addr>() {
                Ok(v6) => Ok((format!("[{v6}]"), class_v6(v6))),
                Err(_) => fault("its host is no IPv6 address"),
            };
        }
        let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let labels: Vec<&str> = host.split('.').collect();
        let plain = |label: &&str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if host.len() > 253 || !labels.iter().all(plain) {
            return fault("its host is no name");
        }
        // Browsers and resolvers read `127.1`, `0x7f000001` and `017700000001` as numbers.
        let last = labels.last().copied().unwrap_or_default();
        if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
            return match host.parse::<Ipv4Addr>() {
                Ok(v4) => Ok((v4.to_string(), class_v4(v4))),
                Err(_) => fault("its numeric host is not written as four decimal numbers"),
            };
        }
        let class = if METADATA_NAMES.contains(&host.as_str()) {
            Class::Metadata
        } else if labels.len() == 1 || PRIVATE_ENDINGS.iter().any(|ending| host.ends_with(ending)) {
            Class::Private
        } else {
            Class::Public
        };
        Ok((host, class))
    }
}

/// The decoded segments of a path that begins with `/` or is empty; a trailing `/` makes no difference.
fn read_path(path: &str) -> Result<Vec<String>, AddressFault> {
    let fault = |why| Err(AddressFault { why });
    let trimmed = path.strip_prefix('/').unwrap_or(path);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    if trimmed.is_empty() {
        return if path.len() > 1 { fault("its path has empty segments") } else { Ok(Vec::new()) };
    }
    let mut segments = Vec::new();
    for raw in trimmed.split('/') {
        let Some(word) = decode(raw) else { return fault("its path is wrongly encoded") };
        match word.as_str() {
            "" => return fault("its path has empty segments"),
            "." | ".." => return fault("its path has `.` or `..`"),
            // A server that decodes twice, or that takes `;` for a parameter, would see another path.
            text if text.contains(['/', '\\', '%', ';']) || text.chars().any(char::is_control) => {
                return fault("its path hides separators or control characters");
            }
            _ => segments.push(word),
        }
    }
    Ok(segments)
}

fn decode(raw: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}
