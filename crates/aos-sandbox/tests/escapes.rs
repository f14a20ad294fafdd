//! Attempts to get out of the sandbox, each a real attack run inside, as root and as an ordinary user.
//!
//! Start at [`ATTEMPTS`]. Each prints `ESCAPED` where it gets what it is after; afterwards an ordinary action of the same
//! kind has to work, so that no wall is so thick that nothing can live behind it. The table in `docs/sandbox.md` is held
//! to this list. Where the host cannot isolate, everything here says "SKIPPED" and why.

mod rig;

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use std::time::Duration;

use aos_sandbox::{Isolation, Layer, Network, Outcome, Programs, ProxyServer, probe};
use rig::{Rig, go, helper};

/// One attack.
struct Attempt {
    name: &'static str,
    /// What stops it.
    wall: &'static str,
    how: How,
    /// Prints `ok` where the ordinary action works.
    beside: &'static str,
}

/// In which language, and within which walls.
enum How {
    /// A shell's.
    Sh(&'static str),
    /// Python's.
    Py(&'static str),
    /// A shell's, with few programs granted.
    Narrow(&'static str),
    /// Python's, with tight limits.
    Tight(&'static str),
}
use How::{Narrow, Py, Sh, Tight};

const fn attempt(name: &'static str, wall: &'static str, how: How, beside: &'static str) -> Attempt {
    Attempt { name, wall, how, beside }
}

/// What every Python attack begins with: system calls by number, and a word for success.
const PRELUDE: &str = "import ctypes, os, platform, socket, stat, sys, time
l = ctypes.CDLL(None, use_errno=True)
SECRET, PORT, SOCK, ABSTRACT, HOSTPID = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
def tries(*fs):
  for f in fs:
    try: r = f()
    except (OSError, ValueError, MemoryError, PermissionError): continue
    print('ESCAPED', r)
def calls(*cs):
  if platform.machine() != 'x86_64': return
  for c in cs:
    r = l.syscall(*c)
    if r != -1: print('ESCAPED', c, r)
";

const READS: &str = "echo x > mine && test \"$(cat mine)\" = x && echo ok";
const RUNS: &str = "sh -c 'echo ok'";
const SOCKETS: &str = "/usr/bin/python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('ok')\"";
const MEMORY: &str = "/usr/bin/python3 -c \"x = bytearray(1 << 20); print('ok')\"";
const GRANTED: &str = "cat /etc/os-release > /dev/null && echo ok";

const NAMESPACES: &str = "mount namespace, a root of its own";
const SECCOMP: &str = "seccomp allow-list";
const PIDS: &str = "pid namespace";
const NET: &str = "network namespace";
const LANDLOCK: &str = "Landlock";
const READ_ONLY: &str = "read-only mounts, Landlock";
const LIMITS: &str = "limits";
const GRANTS: &str = "granted programs only, noexec";

/// Every attack.
const ATTEMPTS: &[Attempt] = &[
    attempt("a file outside by its path", NAMESPACES, Sh("cat \"$1\""), READS),
    attempt("a file outside by ..", NAMESPACES, Sh("cat \"../../../../../..$1\""), READS),
    attempt("the host's passwords", NAMESPACES, Sh("cat /etc/shadow /etc/gshadow /etc/sudoers && echo ESCAPED"), READS),
    attempt(
        "homes and state",
        NAMESPACES,
        Sh("for d in /root /home /var /run /srv /mnt /opt /boot; do ls $d/. && echo ESCAPED; done"),
        READS,
    ),
    attempt(
        "a symbolic link to a file outside",
        NAMESPACES,
        Sh("ln -s \"$1\" l; cat l"),
        "echo x > t; ln -s t l2; test \"$(cat l2)\" = x && echo ok",
    ),
    attempt("a symbolic link to the root", NAMESPACES, Sh("ln -s / r; cat \"r$1\""), READS),
    attempt("a hard link to a file outside", NAMESPACES, Sh("ln \"$1\" h && cat h"), "echo x > t; ln t h2 && echo ok"),
    attempt(
        "a hard link to a system program",
        READ_ONLY,
        Sh("ln /usr/bin/env h && echo ESCAPED"),
        "echo x > t2; ln t2 h3 && echo ok",
    ),
    attempt(
        "/proc/1/root",
        "pid namespace, Landlock",
        Sh("cat \"/proc/1/root$1\"; ls /proc/1/root/ && echo ESCAPED"),
        "ls /proc/self/ > /dev/null && echo ok",
    ),
    attempt("/proc/self/root", NAMESPACES, Sh("cat \"/proc/self/root$1\""), READS),
    attempt("/proc/self/cwd and ..", NAMESPACES, Sh("cat \"/proc/self/cwd/../..$1\""), READS),
    attempt(
        "/proc/1/environ",
        LANDLOCK,
        Sh("cat /proc/1/environ && echo ESCAPED"),
        "cat /proc/self/environ > /dev/null && echo ok",
    ),
    attempt(
        "/proc/1/mem",
        LANDLOCK,
        Py("tries(lambda: open('/proc/1/mem', 'rb'), lambda: open('/proc/1/maps').read(1))"),
        MEMORY,
    ),
    attempt(
        "/proc/1/fd",
        LANDLOCK,
        Py("tries(lambda: os.listdir('/proc/1/fd'), lambda: os.open('/proc/1/fd/0', 0))"),
        "ls /proc/self/fd > /dev/null && echo ok",
    ),
    attempt(
        "processes of the host in /proc",
        PIDS,
        Py("tries(lambda: os.stat(f'/proc/{HOSTPID}'))"),
        "test -d /proc/$$ && echo ok",
    ),
    attempt(
        "descriptors left open",
        "close_range before exec",
        Py("for f in range(3, 256):\n  try: print('ESCAPED', f, os.fstat(f))\n  except OSError: pass"),
        "exec 3< /etc/os-release && echo ok",
    ),
    attempt(
        "writing to system programs",
        READ_ONLY,
        Sh("echo x > /usr/bin/x && echo ESCAPED; echo x >> /usr/bin/env && echo ESCAPED"),
        READS,
    ),
    attempt(
        "writing to settings",
        READ_ONLY,
        Sh("echo x >> /etc/passwd && echo ESCAPED; echo x > /etc/ld.so.preload && echo ESCAPED"),
        READS,
    ),
    attempt(
        "truncating what cannot be written",
        "Landlock from ABI 3, read-only mounts",
        Py("tries(lambda: os.truncate('/etc/passwd', 0), lambda: os.truncate('/usr/bin/env', 0))"),
        "echo xx > t3; truncate -s 1 t3 && echo ok",
    ),
    attempt(
        "core_pattern",
        "read-only /proc",
        Sh("echo '|/workspace/x' > /proc/sys/kernel/core_pattern && echo ESCAPED"),
        READS,
    ),
    attempt(
        "sysrq and modprobe",
        "read-only /proc",
        Sh("echo b > /proc/sysrq-trigger && echo ESCAPED; echo /x > /proc/sys/kernel/modprobe && echo ESCAPED"),
        READS,
    ),
    attempt("/sys", NAMESPACES, Sh("ls /sys/. && echo ESCAPED"), READS),
    attempt(
        "cgroup release agents",
        "mount namespace, seccomp allow-list",
        Py(
            "tries(lambda: os.mkdir('/sys/fs/cgroup/x'))\ncalls((165, b'cgroup', b'/tmp', b'cgroup', 0, b'memory'), (165, b'cgroup2', b'/tmp', b'cgroup2', 0, None))",
        ),
        "mkdir /tmp/d && echo ok",
    ),
    attempt(
        "memory and disks as devices",
        "five devices and no more",
        Py(
            "for d in ['mem', 'kmem', 'port', 'kmsg', 'sda', 'vda', 'nvme0n1', 'loop0', 'kvm', 'fuse', 'net/tun']: tries(lambda: os.open('/dev/' + d, 0))",
        ),
        "echo x > /dev/null && head -c 1 /dev/urandom > /dev/null && echo ok",
    ),
    attempt(
        "making a device",
        "no capabilities, nodev",
        Py(
            "tries(lambda: os.mknod('d', stat.S_IFBLK | 0o600, os.makedev(8, 0)), lambda: os.mknod('c', stat.S_IFCHR | 0o600, os.makedev(1, 1)))",
        ),
        "mkfifo p && echo ok",
    ),
    attempt(
        "typing into the terminal (TIOCSTI)",
        "no terminal, a session of its own",
        Py(
            "import fcntl\ntries(lambda: os.open('/dev/tty', os.O_RDWR), lambda: fcntl.ioctl(0, 0x5412, b'x'), lambda: fcntl.ioctl(2, 0x5412, b'x'))",
        ),
        RUNS,
    ),
    attempt("opening by handle", SECCOMP, Py("calls((303, -100, b'/', 0, 0, 0), (304, -1, 0, 0))"), READS),
    attempt("ptrace", SECCOMP, Py("calls((101, 16, 1, 0, 0), (101, 0, 0, 0, 0))"), RUNS),
    attempt(
        "process_vm_readv and writev",
        SECCOMP,
        Py("b = ctypes.create_string_buffer(64)\ncalls((310, 1, b, 1, b, 1, 0), (311, 1, b, 1, b, 1, 0))"),
        MEMORY,
    ),
    attempt(
        "mount",
        SECCOMP,
        Py(
            "calls((165, b'x', b'/tmp', b'tmpfs', 0, 0), (165, b'/', b'/tmp', 0, 4096, 0), (165, 0, b'/usr', 0, 32, 0))",
        ),
        "mkdir /tmp/m && echo ok",
    ),
    attempt(
        "the new mount calls",
        SECCOMP,
        Py(
            "calls((428, -100, b'/', 1), (429, -100, b'/tmp', -100, b'/workspace', 0), (430, b'tmpfs', 0), (442, -100, b'/', 0, 0, 0))",
        ),
        READS,
    ),
    attempt("umount", SECCOMP, Py("calls((166, b'/workspace', 2), (166, b'/proc', 2), (166, b'/usr', 2))"), READS),
    attempt("chroot and pivot_root", SECCOMP, Py("calls((161, b'/tmp'), (155, b'/tmp', b'/tmp'))"), RUNS),
    attempt("unshare", SECCOMP, Py("calls((272, 0x10000000), (272, 0x00020000), (272, 0x40000000))"), RUNS),
    attempt(
        "a clone with namespaces",
        SECCOMP,
        Py("calls((56, 0x10000011, 0, 0, 0, 0), (56, 0x20000011, 0, 0, 0, 0), (435, 0, 0))"),
        RUNS,
    ),
    attempt("setns", SECCOMP, Py("f = os.open('/proc/self/ns/net', 0)\ncalls((308, f, 0))"), RUNS),
    attempt(
        "kernel keys",
        SECCOMP,
        Py("calls((250, 0, -3, 1), (248, b'user', b'k', b'v', 1, -3), (249, b'user', b'k', 0, -3))"),
        RUNS,
    ),
    attempt(
        "bpf",
        SECCOMP,
        Py("calls((321, 0, ctypes.create_string_buffer(128), 128), (321, 5, ctypes.create_string_buffer(128), 128))"),
        RUNS,
    ),
    attempt("perf events", SECCOMP, Py("calls((298, ctypes.create_string_buffer(128), 0, -1, -1, 0))"), RUNS),
    attempt("userfaultfd", SECCOMP, Py("calls((323, 0), (323, 1))"), MEMORY),
    attempt(
        "io_uring",
        SECCOMP,
        Py("calls((425, 1, ctypes.create_string_buffer(256)), (426, 0, 0, 0, 0, 0), (427, 0, 0, 0, 0))"),
        READS,
    ),
    attempt(
        "descriptors of others (pidfd_getfd, kcmp)",
        SECCOMP,
        Py("calls((438, 0, 0, 0), (312, 1, 1, 0, 0, 0))"),
        RUNS,
    ),
    attempt("kernel modules", SECCOMP, Py("calls((175, b'', 0, b''), (313, 0, b'', 0), (176, b'x', 0))"), RUNS),
    attempt(
        "kexec and reboot",
        SECCOMP,
        Py("calls((246, 0, 0, 0, 0), (320, 0, 0, 0, 0, 0), (169, 0xfee1dead, 672274793, 0, 0))"),
        RUNS,
    ),
    attempt(
        "the clock",
        SECCOMP,
        Py(
            "t = ctypes.create_string_buffer(16)\ncalls((227, 0, t), (164, t, 0))\ntries(lambda: time.clock_settime(0, 0))",
        ),
        "date > /dev/null && echo ok",
    ),
    attempt(
        "host and domain names",
        SECCOMP,
        Py("calls((170, b'x', 1), (171, b'x', 1))"),
        "uname -n > /dev/null && echo ok",
    ),
    attempt(
        "swap, accounting, quotas",
        SECCOMP,
        Py("calls((167, b'/workspace/x', 0), (168, b'/x'), (163, b'/workspace/x'), (179, 0, 0, 0, 0))"),
        READS,
    ),
    attempt(
        "ports and segment tables",
        SECCOMP,
        Py("calls((172, 3), (173, 0, 1, 1), (154, 1, ctypes.create_string_buffer(16), 16))"),
        MEMORY,
    ),
    attempt(
        "the kernel's log",
        SECCOMP,
        Py("calls((103, 3, ctypes.create_string_buffer(64), 64), (103, 10, 0, 0))"),
        RUNS,
    ),
    attempt("watching the whole file system (fanotify)", SECCOMP, Py("calls((300, 0, 0), (300, 0x200, 0))"), READS),
    attempt(
        "becoming root",
        "no new privileges, one mapped user",
        Py(
            "if os.getuid() != 0: tries(lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0))\nprint('ESCAPED') if any(int(x.split()[1], 16) for x in open('/proc/self/status') if x.startswith('Cap')) else None",
        ),
        "id -u > /dev/null && echo ok",
    ),
    attempt(
        "a set-id program of one's own",
        "no new privileges, nosuid",
        Sh(
            "cp /usr/bin/id mine2 && chmod 6755 mine2 && ./mine2 -u | grep -qx 0 && echo ESCAPED; su -c true && echo ESCAPED; sudo -n true && echo ESCAPED",
        ),
        "chmod 755 mine2 && ./mine2 -u > /dev/null && echo ok",
    ),
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
            "tries(lambda: socket.create_connection(('192.0.2.1', 80), 3), lambda: socket.create_connection(('1.1.1.1', 443), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "an address outside by UDP",
        NET,
        Py(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntries(lambda: s.sendto(b'x', ('192.0.2.1', 53)), lambda: s.sendto(b'x', ('8.8.8.8', 53)))",
        ),
        SOCKETS,
    ),
    attempt(
        "an address outside by IPv6",
        NET,
        Py(
            "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) if socket.has_ipv6 else None\ntries(lambda: socket.create_connection(('2001:db8::1', 80), 3), lambda: s.sendto(b'x', ('2606:4700::1111', 53)) if s else 1 / 0) if s else None",
        ),
        SOCKETS,
    ),
    attempt("names (DNS)", NET, Py("tries(lambda: socket.getaddrinfo('example.com', 80))"), SOCKETS),
    attempt(
        "metadata services",
        NET,
        Py(
            "tries(lambda: socket.create_connection(('169.254.169.254', 80), 3), lambda: socket.create_connection(('100.100.100.200', 80), 3))",
        ),
        SOCKETS,
    ),
    attempt(
        "raw sockets and ICMP",
        "no capabilities, seccomp allow-list",
        Py(
            "tries(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))",
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
        Py("def f():\n  s = socket.socket(40, socket.SOCK_STREAM); s.settimeout(2); s.connect((2, 1024))\ntries(f)"),
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
        "signals to the host",
        PIDS,
        Py("tries(lambda: os.kill(HOSTPID, 0), lambda: os.kill(HOSTPID, 9), lambda: os.killpg(HOSTPID, 9))"),
        "sleep 100 & kill $! && echo ok",
    ),
    attempt(
        "killing the first process",
        "pid namespace, Landlock",
        Py("tries(lambda: os.kill(1, 9), lambda: os.kill(1, 19))"),
        RUNS,
    ),
    attempt(
        "a fork bomb",
        LIMITS,
        Tight(
            "n = 0\nwhile n < 400:\n  try:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n  except OSError: break\nprint('ESCAPED') if n > 64 else None\nsys.stdout.flush()\nos._exit(0)",
        ),
        RUNS,
    ),
    attempt(
        "a memory bomb",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while True: x.append(bytearray(16 << 20)); print('ESCAPED') if len(x) > 40 else None\nexcept MemoryError: pass",
        ),
        MEMORY,
    ),
    attempt(
        "a disk bomb",
        LIMITS,
        Tight(
            "n = 0\ntry:\n  f = open('/tmp/x', 'wb')\n  while n < 64: f.write(b'x' * (1 << 20)); f.flush(); n += 1\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a descriptor bomb",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while len(x) < 4000: x.append(os.open('/dev/null', 0))\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a flood of output",
        LIMITS,
        Tight("sys.stdout.write('x' * (8 << 20))\nsys.stdout.flush()\nprint('ESCAPED')"),
        RUNS,
    ),
    attempt(
        "an interpreter's own file calls",
        NAMESPACES,
        Sh(
            "/usr/bin/python3 -c 'import sys; print(open(sys.argv[1]).read())' \"$1\"; perl -e 'open F, shift; print <F>' \"$1\"; awk '{print}' \"$1\"",
        ),
        MEMORY,
    ),
    attempt(
        "a program that is not granted",
        GRANTS,
        Narrow("grep x /etc/os-release && echo ESCAPED; /usr/bin/grep x /etc/os-release && echo ESCAPED"),
        GRANTED,
    ),
    attempt(
        "env, sh -c and exec round the grants",
        GRANTS,
        Narrow(
            "env grep x /etc/os-release && echo ESCAPED; sh -c 'grep x /etc/os-release' && echo ESCAPED; exec grep x /etc/os-release",
        ),
        GRANTED,
    ),
    attempt(
        "a copy of a program",
        GRANTS,
        Narrow(
            "cp /usr/bin/cat c && chmod +x c && ./c /etc/os-release && echo ESCAPED; cp /usr/bin/cat /tmp/c && chmod +x /tmp/c && /tmp/c /etc/os-release && echo ESCAPED",
        ),
        GRANTED,
    ),
    attempt(
        "the loader as a launcher",
        GRANTS,
        Narrow(
            "cp /usr/bin/cat c; for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do test -e $l && $l ./c /etc/os-release && echo ESCAPED; done",
        ),
        GRANTED,
    ),
    attempt(
        "a script with its own interpreter",
        GRANTS,
        Narrow(
            "printf '#!/usr/bin/python3\\nprint(\"ESCAPED\")\\n' > s && chmod +x s && ./s; printf '#!/bin/sh\\necho ESCAPED\\n' > t && chmod +x t && ./t",
        ),
        GRANTED,
    ),
    attempt(
        "a planted library (LD_PRELOAD)",
        "it runs inside, behind the same walls",
        Sh(
            "cp /usr/lib/x86_64-linux-gnu/libc.so.6 evil.so 2>/dev/null; LD_PRELOAD=./evil.so cat \"$1\"; echo ./evil.so > /etc/ld.so.preload && echo ESCAPED",
        ),
        RUNS,
    ),
    attempt(
        "planted git hooks and settings",
        "they run inside, behind the same walls",
        Sh(
            "git init -q . && git config user.email a@b && git config user.name a && git config alias.x \"!cat '$1'\" && printf '#!/bin/sh\\ncat \"%s\"\\n' \"$1\" > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit; git x; git commit -q --allow-empty -m x",
        ),
        "git --version > /dev/null && echo ok",
    ),
    attempt(
        "a planted shell profile",
        "a home of its own in each run",
        Sh("echo 'echo ESCAPED' | tee .profile .bashrc /tmp/.profile > /dev/null"),
        RUNS,
    ),
];

/// What the attacks are after, on the host's side.
struct Host {
    folder: tempfile::TempDir,
    listener: std::net::TcpListener,
    _sockets: (UnixListener, UnixListener),
    abstract_name: String,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("secret"), "ESCAPED").expect("it can be written");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let abstract_name = format!("aos-escapes-{}-{nth}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
        let sockets = (
            UnixListener::bind(folder.path().join("socket")).expect("it can be bound"),
            UnixListener::bind_addr(&address).expect("it can be bound"),
        );
        Host { folder, listener, _sockets: sockets, abstract_name }
    }

    fn arguments(&self) -> [String; 5] {
        let path = |name: &str| self.folder.path().join(name).to_str().expect("plain").to_owned();
        let port = self.listener.local_addr().expect("it is bound").port();
        [path("secret"), port.to_string(), path("socket"), self.abstract_name.clone(), std::process::id().to_string()]
    }
}

fn rig() -> Option<Rig> {
    let rig = Rig::new(Isolation::Full);
    let report = probe(&helper(), rig.workspace.path()).expect("the helper starts");
    for finding in report.missing() {
        eprintln!("SKIPPED: no {}: {:?}", finding.feature, finding.state);
    }
    report.can_isolate().then_some(rig)
}

fn run(rig: &Rig, host: &Host, how: &How, layer: Option<Layer>) -> Outcome {
    let arguments = host.arguments();
    let python = |text: &str| format!("{PRELUDE}{text}");
    let argv: Vec<String> = match how {
        Sh(text) | Narrow(text) => ["sh", "-c", text, "sh"].map(str::to_owned).into(),
        Py(text) | Tight(text) => vec!["/usr/bin/python3".into(), "-c".into(), python(text)],
    };
    let argv: Vec<&str> = argv.iter().map(String::as_str).chain(arguments.iter().map(String::as_str)).collect();
    let mut spec = rig.spec(&argv);
    spec.layer = layer;
    if let Narrow(_) = how {
        let granted = ["/bin/sh", "/usr/bin/cat", "/usr/bin/cp", "/usr/bin/chmod", "/usr/bin/env", "/usr/bin/head"];
        spec.programs = Programs::Only(granted.map(Into::into).into());
    }
    if let Tight(_) = how {
        (spec.limits.pids, spec.limits.memory, spec.limits.files) = (64, 256 << 20, 256);
        (spec.limits.disk, spec.limits.output) = (8 << 20, 1 << 20);
        spec.limits.wall = Duration::from_secs(60);
    }
    go(&spec).unwrap_or_else(|error| panic!("{}: {error}", argv[2]))
}

#[test]
fn no_attempt_gets_out_and_ordinary_work_goes_on() {
    assert!(rig().is_none() || ATTEMPTS.len() >= 60, "{} attempts", ATTEMPTS.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    let host = Host::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(attempt) = ATTEMPTS.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let Some(rig) = rig() else { return };
                    let out = run(&rig, &host, &attempt.how, None);
                    let python = matches!(attempt.how, Py(_) | Tight(_));
                    // An attack that breaks by itself proves nothing.
                    if out.stdout.text().contains("ESCAPED") || (python && out.stderr.text().contains("Traceback")) {
                        let said = format!("{}{}", out.stdout.text(), out.stderr.text());
                        let cut: String = said.chars().take(600).collect();
                        failed.lock().expect("no panic").push(format!("{}: {cut}", attempt.name));
                    }
                    let narrow = matches!(attempt.how, Narrow(_));
                    let beside = if narrow { Narrow(attempt.beside) } else { Sh(attempt.beside) };
                    let out = run(&rig, &host, &beside, None);
                    if out.stdout.text() != "ok\n" {
                        failed.lock().expect("no panic").push(format!("beside {}: {out:?}", attempt.name));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{failed:#?}");
    let secret = std::fs::read_to_string(host.folder.path().join("secret")).expect("it is there");
    assert_eq!(secret, "ESCAPED");
}

/// Without walls the same attacks succeed, so what the test above looks for is what an escape says.
#[test]
fn without_walls_an_attempt_is_seen_to_escape() {
    let (rig, host) = (Rig::new(rig::unsandboxed()), Host::new());
    for name in
        ["a file outside by its path", "the host's loopback", "an abstract socket of the host", "signals to the host"]
    {
        let attempt = ATTEMPTS.iter().find(|attempt| attempt.name == name).expect("it is in the list");
        // Signal 0 only asks; the one that kills is left out here.
        let harmless = match attempt.how {
            Py(_) if name == "signals to the host" => Py("tries(lambda: os.kill(HOSTPID, 0))"),
            Py(text) => Py(text),
            Sh(text) => Sh(text),
            Narrow(text) => Narrow(text),
            Tight(text) => Tight(text),
        };
        let out = run(&rig, &host, &harmless, None);
        assert!(out.stdout.text().contains("ESCAPED"), "{name}: {out:?}");
    }
}

/// What a command leaves in its layer: only files, folders and links arrive, without set-id bits, under their own names.
#[test]
fn what_is_left_in_a_layer_cannot_hurt_whoever_looks_at_it() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::os::unix::fs::symlink(host.folder.path(), rig.path().join("out")).expect("it can be made");
    let layer = Layer::create(folder.path().join("layer")).expect("it can be made");
    let attack = "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; cp /usr/bin/id sid; chmod 6755 sid; \
        echo x > out/planted; echo x > \"$(printf 'new\\nline')\"; echo x > ..x; echo x > -rf; ln -s ../../etc/passwd climbs; echo ok > plain";
    let out = run(&rig, &host, &Sh(attack), Some(layer.clone()));
    let committed = layer.commit(&rig.path(), None, serde_json::Value::Null).expect("it commits");
    let names: Vec<_> = committed.changes().into_iter().map(|change| change.path).collect();
    for absent in ["fifo", "sock"] {
        assert!(!names.iter().any(|name| name.as_os_str() == absent) && !rig.path().join(absent).exists(), "{out:?}");
    }
    assert_eq!(rig.path().join("sid").metadata().expect("it was made").permissions().mode() & 0o7777, 0o755);
    assert!(!host.folder.path().join("planted").exists(), "through a link that was there before");
    for present in ["new\nline", "..x", "-rf", "plain", "climbs"] {
        assert!(rig.path().join(present).symlink_metadata().is_ok(), "{present:?}: {names:?} {out:?}");
    }
    assert!(names.iter().all(|name| !name.is_absolute() && !name.starts_with("..")), "{names:?}");
    committed.undo(serde_json::Value::Null).expect("nothing is in the way");
    assert_eq!(std::fs::read_dir(rig.path()).expect("it is there").count(), 1);
}

/// While a commit is made, the folder that it goes to is swapped for a link to the outside, as fast as can be.
#[test]
fn a_folder_swapped_for_a_link_during_commits_leads_nothing_out() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let layers = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(rig.path().join("dir")).expect("it can be made");
    std::os::unix::fs::symlink(host.folder.path(), rig.path().join("link")).expect("it can be made");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut went, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let work = std::fs::File::open(rig.path()).expect("it is there");
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                // A commit that replaces one of them has it out of the folder for a moment.
                match rustix::fs::renameat_with(&work, "dir", &work, "link", swap) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(other) => panic!("the swap fails: {other}"),
                }
            }
        });
        for round in 0..200 {
            let layer = Layer::create(layers.path().join(round.to_string())).expect("it can be made");
            let written = layer.write(&rig.path(), "dir/planted".as_ref(), b"x", None);
            match written.and_then(|()| layer.commit(&rig.path(), None, serde_json::Value::Null)) {
                Ok(_) => went += 1,
                Err(_) => refused += 1,
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(went > 0, "{went} went, {refused} refused");
    assert!(!host.folder.path().join("planted").exists(), "{went} went, {refused} refused");
    assert_eq!(host.folder.path().metadata().expect("it is there").uid(), rig.path().metadata().expect("too").uid());
}

/// With doors: nothing but the doors. Nobody inside can stand in their place, lead packets elsewhere, or widen what is
/// let through.
#[test]
fn round_the_doors_there_is_nothing() {
    let Some(rig) = rig() else { return };
    let host = Host::new();
    let attacks = r#"
def route(family, kind, table, scope, bits, address):
    body = struct.pack('BBBBBBBBI', family, bits, 0, 0, table, 3, scope, kind, 0)
    body += struct.pack('HH', 4 + len(address), 1) + address + struct.pack('HHI', 8, 4, 1)
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack('IHHII', 16 + len(body), 24, 0x405, 1, 0) + body)
    errno = struct.unpack('i', s.recv(256)[16:20])[0]
    if errno: raise OSError(-errno, 'refused')
tries(
    lambda: socket.create_connection(('127.0.0.1', PORT), 3),
    lambda: socket.create_connection(('192.0.2.1', 80), 3),
    lambda: socket.create_connection(('198.51.100.1', 443), 3),
    lambda: socket.create_connection(('2001:db8::1', 80), 3),
    lambda: socket.create_connection(('203.0.113.7', 81), 3),
    lambda: socket.create_connection(('8.8.8.8', 53), 3),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('169.254.169.254', 80)),
    lambda: socket.getaddrinfo('example.com', 80),
    lambda: socket.create_server(('127.0.0.1', 53)),
    lambda: socket.create_server(('198.18.0.1', 80)),
    lambda: socket.create_server(('203.0.113.7', 80), reuse_port=True),
    lambda: socket.create_server(('127.0.0.1', 3128), reuse_port=True),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(('127.0.0.1', 53)),
    lambda: socket.socket().setsockopt(0, 19, 1),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    lambda: route(2, 2, 255, 254, 32, socket.inet_aton('192.0.2.1')),
    lambda: route(2, 1, 254, 253, 0, socket.inet_aton('0.0.0.0')))
s = socket.create_connection(('127.0.0.1', 3128), 5); s.close()
s = socket.create_connection(('203.0.113.7', 80), 5); print(s.recv(99).decode())
s = socket.create_connection(('198.19.255.254', 80), 5); print(s.recv(99).decode())"#;
    let program = format!("{PRELUDE}import struct\n{attacks}");
    let arguments = host.arguments();
    let argv: Vec<&str> =
        ["/usr/bin/python3", "-c", &program].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut spec = rig.spec(&argv);
    spec.network = Network::Proxy;
    let mut server = ProxyServer::new(|doors| {
        // Whoever asks for names hears nothing, and no packet of theirs leaves.
        drop(doors.names);
        std::thread::spawn(move || doors.proxy.accept());
        for listener in doors.through {
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let meant = stream.local_addr().expect("it is connected").ip().to_canonical();
                    let _ = std::io::Write::write_all(&mut stream, format!("meant {meant}").as_bytes());
                }
            });
        }
    });
    (server.ports, server.addresses) = (vec![80], vec!["203.0.113.7".parse().expect("an address")]);
    spec.proxy = Some(server);
    let out = go(&spec).expect("python starts");
    assert_eq!(out.stdout.text(), "meant 203.0.113.7\nmeant 198.19.255.254\n", "{out:?}");
}

#[test]
fn the_document_lists_every_attempt() {
    let document = include_str!("../../../docs/sandbox.md");
    for attempt in ATTEMPTS {
        let row = format!("| {} | {} |", attempt.name, attempt.wall);
        assert!(document.contains(&row), "docs/sandbox.md lacks `{row}`");
    }
    let names: std::collections::BTreeSet<_> = ATTEMPTS.iter().map(|attempt| attempt.name).collect();
    assert_eq!(names.len(), ATTEMPTS.len(), "each has a name of its own");
}

/// The whole of this file once more as a user without any rights, when it runs as root.
#[test]
fn all_of_this_as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() || rig().is_none() {
        return;
    }
    let elsewhere = tempfile::tempdir().expect("there is room");
    std::fs::set_permissions(elsewhere.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (me, helper) = (elsewhere.path().join("this-test"), elsewhere.path().join("helper"));
    std::fs::copy(std::env::current_exe().expect("it runs"), &me).expect("there is room");
    std::fs::copy(env!("CARGO_BIN_EXE_aos-sandbox-helper"), &helper).expect("there is room");
    let status = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(me)
        .args(["--skip", "all_of_this_as_an_ordinary_user"])
        .env("TMPDIR", "/tmp")
        .env(rig::HELPER, &helper)
        .current_dir("/")
        .status()
        .expect("setpriv starts");
    assert!(status.success());
}
