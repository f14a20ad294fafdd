//! What is in a command's own network: a loopback, and with rules the doors that lead out of it.
//!
//! Start at [`offer_doors`]. Always true: there is no other interface, so nothing that is sent inside arrives anywhere
//! but at a socket made here. Addresses that stand in for names are local to the network as a whole range (a route of
//! type `local`), so that one listener is there for all of them; what it accepted knows which one was meant.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::helper::send_fds;
use crate::job::{DOORS, Failure, Step, Walls};
use crate::{NAMES_ADDRESS, PORTS_MAX, PROXY_ADDRESS, STANDING_IN};

/// The most doors: the proxy, the two for names, and one for each port.
pub(crate) const DOORS_MAX: usize = PORTS_MAX + 3;

/// Makes the doors and gives them to the daemon, which thereby has a way into the sandbox, and the sandbox one out.
pub(crate) fn offer_doors(control: BorrowedFd<'_>, walls: &Walls) -> Result<(), Failure> {
    let (ports, addresses) = &walls.through;
    let proxy = TcpListener::bind(PROXY_ADDRESS).step("listen for the proxy")?;
    let by_packet = UdpSocket::bind(NAMES_ADDRESS).step("listen for names")?;
    let by_connection = TcpListener::bind(NAMES_ADDRESS).step("listen for names")?;
    let mut through = Vec::new();
    for port in ports {
        // One socket for both families, where the host has both.
        let any = TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port));
        through.push(any.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))).step("listen for others")?);
    }
    if !ports.is_empty() {
        let (network, prefix) = STANDING_IN;
        make_local(network.into(), prefix).step("make addresses local")?;
    }
    for address in addresses.iter().filter(|address| stands_alone(address)) {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        match make_local(*address, prefix) {
            // A host without IPv6 reaches such an address by the proxy alone.
            Err(Errno::AFNOSUPPORT | Errno::OPNOTSUPP) if address.is_ipv6() => {}
            made => made.step("make addresses local")?,
        }
    }
    let mut fds = vec![proxy.as_fd(), by_packet.as_fd(), by_connection.as_fd()];
    fds.extend(through.iter().map(AsFd::as_fd));
    send_fds(control, DOORS, &fds).step("offer the doors")
}

/// Whether an address is one host's, and not here already.
fn stands_alone(address: &IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || broadcast)
}

/// A request of `NETLINK_ROUTE` to add a route (`rtnetlink(7)`).
#[repr(C)]
struct NewRoute {
    header: libc::nlmsghdr,
    route: Route,
}

/// `struct rtmsg`.
#[repr(C)]
struct Route {
    family: u8,
    destination_bits: u8,
    source_bits: u8,
    tos: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
}

/// Makes all addresses of a network this host's own, as `ip route add local NETWORK dev lo` does.
fn make_local(network: IpAddr, prefix: u8) -> Result<(), Errno> {
    let destination = match network {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut attributes = attribute(libc::RTA_DST, &destination);
    attributes.extend(attribute(libc::RTA_OIF, &loopback_index()?.to_ne_bytes()));
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_ACK;
    let length = size_of::<NewRoute>() + attributes.len();
    let request = NewRoute {
        header: libc::nlmsghdr {
            nlmsg_len: u32::try_from(length).map_err(|_| Errno::TOOBIG)?,
            nlmsg_type: libc::RTM_NEWROUTE,
            nlmsg_flags: flags.cast_unsigned() as u16,
            nlmsg_seq: 1,
            nlmsg_pid: 0,
        },
        route: Route {
            family: if network.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8,
            destination_bits: prefix,
            source_bits: 0,
            tos: 0,
            table: libc::RT_TABLE_LOCAL,
            protocol: libc::RTPROT_BOOT,
            scope: if network.is_ipv4() { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_UNIVERSE },
            kind: libc::RTN_LOCAL,
            flags: 0,
        },
    };
    // SAFETY: both structures are plain numbers without a gap between or after them.
    let head = unsafe { std::slice::from_raw_parts((&raw const request).cast::<u8>(), size_of::<NewRoute>()) };
    let packet = [head, &attributes].concat();
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL)?;
    let mut answer = [0u8; 256];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // An acknowledgement is an error of number 0, which follows the header.
    let number = answer[..length].get(size_of::<libc::nlmsghdr>()..).and_then(|rest| rest.first_chunk::<4>());
    match number.map(|number| i32::from_ne_bytes(*number)) {
        Some(0) => Ok(()),
        Some(number) if number == -libc::EEXIST => Ok(()),
        Some(number) => Err(Errno::from_raw_os_error(-number)),
        None => Err(Errno::PROTO),
    }
}

/// An attribute, padded to whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn loopback_index() -> Result<u32, Errno> {
    // SAFETY: the name is NUL-terminated.
    match unsafe { libc::if_nametoindex(c"lo".as_ptr()) } {
        0 => Err(Errno::NODEV),
        index => Ok(index),
    }
}

/// Sets the loopback interface up, as `ip link set lo up` does (`netdevice(7)`).
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is valid; the name stays NUL-terminated because only two bytes of it are written; both
    // requests read and write one ifreq.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) != 0 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
