//! Where the daemon itself listens: whatever asks there would ask the daemon, so nothing of an agent goes there.
//!
//! Start at [`Own::is_at`]. What always holds: it is asked about addresses, after names were looked up, so that no name
//! leads there; no rule and no exception for private addresses lifts it. Deliberately absent: addresses that only the
//! network outside leads back to this host. There the token stands alone, and it is in no agent's reach.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use aos_policy::address::Listens;

/// The address that HTTP is served on, as the listener says it (the port is never 0).
#[derive(Clone, Copy, Debug)]
pub struct Own(Listens);

impl Own {
    /// Of a daemon that listens here.
    #[must_use]
    pub fn new(listens: SocketAddr) -> Own {
        Own(Listens(listens))
    }

    /// Whether whoever connects there may reach the daemon: as the policy says, which knows no more than the address, and
    /// as this machine's own addresses do.
    pub(super) fn is_at(self, ip: IpAddr, port: u16) -> bool {
        let Listens(listens) = self.0;
        let on_all = port == listens.port() && listens.ip().to_canonical().is_unspecified();
        self.0.is_at(ip, port) || on_all && is_of_this_host(ip.to_canonical())
    }
}

/// Whether an address is one of this host's: only those can be bound, unless the system lets programs bind any
/// (`ip_nonlocal_bind`); then, whether what goes there comes from there. Nothing is sent.
pub(super) fn is_of_this_host(ip: IpAddr) -> bool {
    let binds = |ip: IpAddr| UdpSocket::bind((ip, 0));
    // Set apart for documents (RFC 5737, RFC 3849).
    let nobody =
        if ip.is_ipv4() { Ipv4Addr::new(192, 0, 2, 1).into() } else { Ipv6Addr::from_bits(0x2001_0db8 << 96).into() };
    let to_itself = |any: IpAddr| -> io::Result<bool> {
        let socket = binds(any)?;
        socket.connect((ip, 9))?;
        Ok(socket.local_addr()?.ip() == ip)
    };
    let any = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    binds(ip).is_ok() && (binds(nobody).is_err() || to_itself(any).unwrap_or(false))
}

/// Whether an address lies in a network that this host is in itself. In IPv6 every device of a household has a public
/// address, and only a firewall at its edge keeps others from it; in IPv4 whoever has a public one is meant to be reached.
pub(super) fn is_on_this_link(ip: IpAddr) -> bool {
    let IpAddr::V6(ip) = ip.to_canonical() else { return false };
    let table = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    is_in_a_network(ip, &table("if_inet6")) || is_routed_here(ip, &table("ipv6_route"))
}

/// `addresses`: as the kernel lists this host's, a line for each: in hexadecimal the address, the number of its interface
/// and the bits of its network, then its scope, flags and name (`proc_pid_net(5)`).
fn is_in_a_network(ip: Ipv6Addr, addresses: &str) -> bool {
    addresses.lines().any(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
        let bits = words.nth(1).and_then(|word| u32::from_str_radix(word, 16).ok());
        let (Some(address), Some(bits)) = (address, bits) else { return false };
        shares(ip, address, bits)
    })
}

/// `routes`: as the kernel lists them, a line for each: in hexadecimal where it leads and the bits of that, the same for
/// where from, then the next hop, of which a network of this host's has none, four numbers and the interface. An address
/// that was given by DHCPv6 is alone in its network; the route says which one that is.
fn is_routed_here(ip: Ipv6Addr, routes: &str) -> bool {
    routes.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [to, bits, _, _, hop, .., interface] = words.as_slice() else { return false };
        let bits = u32::from_str_radix(bits, 16);
        let (Ok(to), Ok(bits), Ok(0)) = (u128::from_str_radix(to, 16), bits, u128::from_str_radix(hop, 16)) else {
            return false;
        };
        // What is refused is routed to `lo`.
        *interface != "lo" && bits < 128 && shares(ip, to, bits)
    })
}

/// Whether an address is in the network of another. A site has 48 bits at the least (RFC 6177): a tunnel that takes
/// everything is no network.
fn shares(ip: Ipv6Addr, other: u128, bits: u32) -> bool {
    (48..=128).contains(&bits) && (other ^ ip.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_in_a_network_of_this_host_is_on_its_link() {
        let addresses = "20010db8000100020000000000000005 02 40 00 80     eth0\n\
                         00000000000000000000000000000001 01 80 10 80       lo\n\
                         26062800000000000000000000000001 04 03 00 80      tun\nnonsense\n";
        for (ip, is) in [
            ("2001:db8:1:2::5", true),
            ("2001:db8:1:2:ffff::1", true),
            ("2001:db8:1:3::5", false),
            ("::1", true),
            ("::2", false),
            ("2606:2800:220:1::1", false),
        ] {
            assert_eq!(is_in_a_network(ip.parse().unwrap(), addresses), is, "{ip}");
        }
        assert!(!is_on_this_link("192.0.2.1".parse().unwrap()));
        let none = "0".repeat(32);
        let route = |to: &str, bits: &str, hop: &str, of: &str| {
            format!("{to} {bits} {none} 00 {hop} 00000400 00000001 00000000 00000001 {of:>8}\n")
        };
        let net = "20010db8000100020000000000000000";
        let near = |routes: &str| is_routed_here("2001:db8:1:2::7".parse().unwrap(), routes);
        assert!(near(&(route(&none, "00", net, "eth0") + &route(net, "40", &none, "eth0"))));
        for other in [route(net, "40", net, "eth0"), route(net, "40", &none, "lo"), route(net, "20", &none, "eth0")] {
            assert!(!near(&other), "{other}");
        }
    }

    fn is_at(listens: &str, asked: &str) -> bool {
        let asked: SocketAddr = asked.parse().unwrap();
        Own::new(listens.parse().unwrap()).is_at(asked.ip(), asked.port())
    }

    #[test]
    fn the_daemon_is_known_by_every_address_that_leads_to_it() {
        let here = [
            "127.0.0.1:7",
            "127.9.9.9:7",
            "[::1]:7",
            "0.0.0.0:7",
            "[::]:7",
            "[::ffff:127.0.0.1]:7",
            "[::ffff:0.0.0.0]:7",
        ];
        for listens in ["127.0.0.1:7", "[::1]:7", "[::ffff:127.0.0.1]:7", "0.0.0.0:7", "[::]:7"] {
            for asked in here {
                assert!(is_at(listens, asked), "{asked} leads to {listens}");
                assert!(!is_at(listens, &asked.replace(":7", ":8")), "{asked}, at another port");
            }
            assert!(!is_at(listens, "192.0.2.1:7"), "another machine");
        }
        // One network card alone.
        for (asked, is) in
            [("192.0.2.1:7", true), ("[::ffff:192.0.2.1]:7", true), ("192.0.2.2:7", false), ("127.0.0.1:7", false)]
        {
            assert_eq!(is_at("192.0.2.1:7", asked), is, "{asked}");
        }
    }

    #[test]
    fn a_daemon_that_listens_on_all_is_known_by_the_addresses_of_its_host() {
        assert!(is_of_this_host("127.0.0.1".parse().unwrap()) && !is_of_this_host("192.0.2.1".parse().unwrap()));
        // Which address would be used towards another machine; nothing is sent.
        let outward = UdpSocket::bind("0.0.0.0:0").unwrap();
        if outward.connect("192.0.2.1:9").is_err() {
            eprintln!("SKIPPED: this host has no way out");
            return;
        }
        let ip = outward.local_addr().unwrap().ip();
        assert!(is_at("0.0.0.0:7", &format!("{ip}:7")) && !is_at("127.0.0.1:7", &format!("{ip}:7")), "{ip}");
    }
}
