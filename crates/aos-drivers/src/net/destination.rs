//! Where a request may go.
//!
//! Start at [`reach`]. The reading of URLs and the table of special addresses are the policy's own, so that the driver
//! reaches what the policy saw; the library's reading must agree with it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use aos_policy::address::{Address, AddressFault, Class, class};
use reqwest::Url;

use super::error::Error;
use super::own::{Own, is_of_this_host, is_on_this_link};
use super::resolver::{Pinned, Resolve};

/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 8192;

/// A host and port, such as `127.0.0.1:8080`: one that may be reached although its addresses are private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl FromStr for HostPort {
    type Err = AddressFault;

    /// # Errors
    /// Where it is no name or plainly written address with a port.
    fn from_str(text: &str) -> Result<HostPort, AddressFault> {
        let fault = AddressFault { why: "it is not HOST:PORT" };
        let (host, port) = text.rsplit_once(':').ok_or(fault)?;
        let fault = AddressFault { why: "its port is no number from 1 to 65535" };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(fault)?;
        Ok(HostPort { host: Address::read_host(host)?.0, port })
    }
}

/// A request's checked way: the URL, and the only addresses that its host stands for.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) url: Url,
    pub(super) pinned: Pinned,
    /// For messages.
    pub(super) host: String,
}

impl Destination {
    /// Where to connect to.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let port = self.url.port_or_known_default().unwrap_or(0);
        self.pinned.addresses().map(|ip| SocketAddr::new(ip, port)).collect()
    }
}

/// Reads a URL, resolves its host and checks every address.
///
/// # Errors
/// Where the URL can be read in two ways, where any address of the host is the daemon's own or private and not excepted, or
/// where it has none.
pub(super) async fn reach(
    url: &str,
    excepted: &[HostPort],
    resolver: &dyn Resolve,
    own: Option<Own>,
) -> Result<Destination, Error> {
    let refused = |why: &str| Error::Address { url: Error::shown(url), why: why.to_owned() };
    if url.len() > URL_BYTES_MAX {
        return Err(refused("it is longer than 8192 bytes"));
    }
    let address = Address::parse(url).map_err(|fault| refused(fault.why))?;
    let parsed = Url::parse(url).map_err(|error| refused(&error.to_string()))?;
    let host = parsed.host_str().unwrap_or("");
    let literal = numeric(&address.host);
    // The same IPv6 address has several spellings; a name has one.
    let same_host = match literal {
        Some(ip) => numeric(host) == Some(ip),
        None => host.strip_suffix('.').unwrap_or(host) == address.host,
    };
    let agreed = same_host
        && parsed.port_or_known_default() == Some(address.port)
        && matches!(parsed.scheme(), "http" | "https")
        && parsed.username().is_empty()
        && parsed.password().is_none();
    if !agreed {
        return Err(refused("it can be read in two ways"));
    }
    let Address { host, port, class: named, .. } = address;
    let excepted = excepted.iter().any(|known| known.host == host && known.port == port);
    let check = |class: Class, ip: Option<IpAddr>| match class {
        Class::Public => Ok(()),
        Class::Private if excepted => Ok(()),
        Class::Private | Class::Metadata => Err(Error::Forbidden { host: host.clone(), port, class, ip }),
    };
    let check_own = |ip: IpAddr| match own.is_some_and(|own| own.is_at(ip, port)) {
        true => Err(Error::Daemon { host: host.clone(), port }),
        false => Ok(()),
    };
    literal.map_or(Ok(()), check_own)?;
    check(named, None)?;
    let addresses = match literal {
        Some(ip) => vec![ip],
        None => resolver.resolve(&host).await.map_err(|error| unresolved(&host, &error.to_string()))?,
    };
    if addresses.is_empty() {
        return Err(unresolved(&host, "it has no address"));
    }
    let within = |ip| is_of_this_host(ip) || is_on_this_link(ip);
    // One bad address spoils the name: a mixture is what an attack looks like.
    addresses.iter().try_for_each(|ip| check_own(*ip).and_then(|()| check(class_here(*ip, within), Some(*ip))))?;
    Ok(Destination { url: parsed, pinned: Pinned::new(&host, addresses), host: format!("{host}:{port}") })
}

/// The class of an address, as it is from here: what this host has, or its network, is within the firewall, however public
/// the address.
fn class_here(ip: IpAddr, is_within: impl Fn(IpAddr) -> bool) -> Class {
    match class(ip) {
        Class::Public if is_within(ip) => Class::Private,
        class => class,
    }
}

/// Whether the host of a URL is an address and no name.
pub(super) fn is_numeric(url: &str) -> bool {
    Address::parse(url).is_ok_and(|address| numeric(&address.host).is_some())
}

/// A host that is an address and no name.
fn numeric(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn unresolved(host: &str, why: &str) -> Error {
    Error::Unresolved { host: host.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_no_public_one() {
        for ip in ["93.184.216.34", "2606:2800:220:1::1"].map(|ip| ip.parse().unwrap()) {
            assert_eq!([true, false].map(|here| class_here(ip, |_| here)), [Class::Private, Class::Public], "{ip}");
        }
        let metadata = "169.254.169.254".parse().unwrap();
        assert_eq!(class_here(metadata, |_| true), Class::Metadata, "which nothing excepts");
    }
}
