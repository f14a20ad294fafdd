//! Whose program listens on an address of this machine: who takes a usual port first is told what was meant for another.
//!
//! Start at [`stranger`]. What always holds: only addresses that a connection to the asked one can lead to count. Of what
//! listens in another network namespace nothing is known. The tables are those of proc_net_tcp(5).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a socket that listens, in those tables.
const LISTEN: &str = "0A";

/// Another user's program that listens where a connection to `at` leads, as that user's id; `None` where it is one's own
/// or root's, or nobody listens.
pub(crate) fn stranger(at: SocketAddr) -> Option<u32> {
    let us = rustix::process::geteuid().as_raw();
    users(at).into_iter().find(|user| *user != us && *user != 0)
}

/// Whether nobody is seen to listen there.
pub(crate) fn is_free(at: SocketAddr) -> bool {
    users(at).is_empty()
}

/// Whether a user is one that people log in as. The others are of the system: those below 1000, and those that systemd
/// draws for services without a user of their own (its UIDS-GIDS.md).
pub(crate) fn is_a_person(user: u32) -> bool {
    user >= 1000 && !(61_184..=65_519).contains(&user)
}

fn users(at: SocketAddr) -> Vec<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables
        .iter()
        .flat_map(|table| listed(table))
        .filter(|(listens, _)| leads_to(at, *listens))
        .map(|(_, user)| user)
        .collect()
}

fn leads_to(asked: SocketAddr, listens: SocketAddr) -> bool {
    let (asked_ip, ip) = (asked.ip().to_canonical(), listens.ip().to_canonical());
    asked.port() == listens.port() && (ip == asked_ip || ip.is_unspecified() || asked_ip.is_unspecified())
}

/// The listeners of a table, each with its user.
fn listed(table: &str) -> Vec<(SocketAddr, u32)> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, state) = (words.nth(1)?, words.nth(1)?);
        let user = words.nth(3)?.parse().ok()?;
        (state == LISTEN).then_some((socket(address)?, user))
    };
    table.lines().filter_map(row).collect()
}

/// `0100007F:1E25`: each 32 bits of the address as this machine reads them, then the port.
fn socket(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn the_tables_of_the_system_are_read() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1E25 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 17 1 0 100 0 0 10 0\n\
            \x20  1: 0100007F:1E25 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1002        0 18 1 0 20 4 30 10 -1\n";
        assert_eq!(listed(four), [("127.0.0.1:7717".parse().unwrap(), 1001)], "a connection is no listener");
        let six = "   0: 00000000000000000000000001000000:1E25 00000000000000000000000000000000:0000 0A \
            00000000:00000000 00:00000000 00000000  1003        0 19 1 0 100 0 0 10 0\n   1: broken\n";
        assert_eq!(listed(six), [("[::1]:7717".parse().unwrap(), 1003)]);
    }

    #[test]
    fn only_what_a_connection_leads_to_counts() {
        let leads = |asked: &str, listens: &str| leads_to(asked.parse().unwrap(), listens.parse().unwrap());
        for listens in ["127.0.0.1:7", "0.0.0.0:7", "[::]:7", "[::ffff:127.0.0.1]:7"] {
            assert!(leads("127.0.0.1:7", listens), "{listens}");
        }
        for listens in ["127.0.0.1:8", "[::1]:7", "127.0.0.2:7"] {
            assert!(!leads("127.0.0.1:7", listens), "{listens}");
        }
    }

    #[test]
    fn whose_listener_it_is_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!((stranger(at), is_free(at)), (None, false), "our own");
        // Only root can give a socket away.
        if std::os::unix::fs::fchown(&listener, Some(4242), None).is_ok() {
            assert_eq!(stranger(at), Some(4242));
        } else {
            eprintln!("SKIPPED: only root can make another user's listener");
        }
        drop(listener);
        assert!(is_free(at));
    }

    #[test]
    fn accounts_of_the_system_are_no_persons() {
        assert_eq!([0, 999, 1000, 61_184, 65_519, 65_534].map(is_a_person), [false, false, true, false, false, true]);
    }
}
