//! Ways out by sockets of every kind.

use super::How::Py;
use super::{Attempt, NAMESPACES, NET, SHOWN, SOCKETS, VEIL, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt(
        "the host's loopback",
        NET,
        Py(
            "tries(lambda: socket.create_connection(('127.0.0.1', PORT), 3), lambda: socket.create_connection(('::1', PORT), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "an address outside by TCP",
        NET,
        Py(
            "unreachable(lambda: socket.create_connection(('192.0.2.1', 80), 3), lambda: socket.create_connection(('1.1.1.1', 443), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "an address outside by UDP",
        NET,
        Py(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nunreachable(lambda: s.sendto(b'x', ('192.0.2.1', 53)), lambda: s.sendto(b'x', ('8.8.8.8', 53)))",
        ),
        SOCKETS,
    ),
    attempt(
        "an address outside by IPv6",
        NET,
        Py(
            "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) if socket.has_ipv6 else None\nunreachable(lambda: socket.create_connection(('2001:db8::1', 80), 3), lambda: s.sendto(b'x', ('2606:4700::1111', 53))) if s else None",
        ),
        SOCKETS,
    ),
    attempt(
        "names (DNS)",
        NET,
        Py(
            "def asks(to):\n  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.connect(to)\n  s.send(b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7example\\3com\\0\\0\\1\\0\\1')\n  return s.recv(512)\ntries(lambda: asks(('127.0.0.1', NAMES)), lambda: socket.getaddrinfo('example.com', 80))\nunreachable(lambda: asks(('8.8.8.8', 53)), lambda: socket.create_connection(('8.8.8.8', 53), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "metadata services",
        NET,
        Py(
            "unreachable(lambda: socket.create_connection(('169.254.169.254', 80), 3), lambda: socket.create_connection(('100.100.100.200', 80), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "raw sockets and ICMP",
        "no capabilities, seccomp allow-list",
        Py(
            "def pings(to):\n  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(3)\n  s.sendto(struct.pack('BBHHH', 8, 0, 0, 0, 1), (to, 0))\n  return s.recv(512)\ntries(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58), lambda: pings('192.0.2.1'), lambda: pings('127.0.0.1'))",
        ),
        SOCKETS,
    ),
    attempt(
        "packet sockets",
        "no capabilities, seccomp allow-list",
        Py("tries(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))"),
        SOCKETS,
    ),
    attempt(
        "making an interface (netlink, ioctl)",
        "no capabilities",
        Py(
            "import fcntl, struct\ns = socket.socket()\ntries(lambda: fcntl.ioctl(s, 0x8916, struct.pack('16sH14s', b'lo', 2, b'')), lambda: fcntl.ioctl(s, 0x8914, struct.pack('16sH14s', b'lo', 0, b'')), lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9).send(b'\\x10' + b'\\0' * 15))",
        ),
        SOCKETS,
    ),
    attempt(
        "virtual machine sockets",
        "seccomp allow-list, network namespace",
        Py(
            "def f():\n  s = socket.socket(40, socket.SOCK_STREAM); s.settimeout(2); s.connect((2, 1024))\ntries(f, lambda: socket.socket(40, socket.SOCK_STREAM), lambda: socket.socket(40, socket.SOCK_DGRAM))",
        ),
        SOCKETS,
    ),
    attempt(
        "an abstract socket of the host",
        NET,
        Py("def f():\n  s = socket.socket(socket.AF_UNIX); s.connect('\\0' + ABSTRACT)\ntries(f)"),
        SOCKETS,
    ),
    attempt(
        "a socket of the host by its path",
        NAMESPACES,
        Py("def f():\n  s = socket.socket(socket.AF_UNIX); s.connect(SOCK)\ntries(f)"),
        SOCKETS,
    ),
    attempt(
        "a socket in a folder that is shown",
        VEIL,
        Py(
            "def f(kind):\n  s = socket.socket(socket.AF_UNIX, kind); s.connect('/shelf/socket')\ntries(lambda: f(socket.SOCK_STREAM), lambda: f(socket.SOCK_DGRAM), lambda: os.link('/shelf/socket', 's'))",
        ),
        SHOWN,
    ),
    attempt(
        "a pipe in a folder that is shown",
        VEIL,
        Py(
            "def f():\n  r = os.read(os.open('/shelf/pipe', os.O_RDONLY | os.O_NONBLOCK), 9)\n  if not r: raise OSError()\n  return r\ntries(f, lambda: os.open('/shelf/pipe', os.O_WRONLY | os.O_NONBLOCK))",
        ),
        SHOWN,
    ),
];
