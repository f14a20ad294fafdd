//! What the system shows of itself: `/proc`, `/sys`, settings, devices, terminals, and descriptors left open.

use super::How::{Py, Sh};
use super::{Attempt, LANDLOCK, MEMORY, NAMESPACES, PIDS, READ_ONLY, READS, RUNS, SECCOMP, TERMINAL, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt(
        "/proc/1/root",
        "pid namespace, Landlock",
        Sh("cat \"/proc/1/root$1\"; ls /proc/1/root/ && echo ESCAPED"),
        "ls /proc/self/ > /dev/null && echo ok",
    ),
    attempt("/proc/self/root", NAMESPACES, Sh("cat \"/proc/self/root$1\""), READS),
    attempt("/proc/self/cwd and ..", NAMESPACES, Sh("cat \"/proc/self/cwd/../../../../../..$1\""), READS),
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
        "/proc/self/mem",
        "read-only /proc",
        Py(
            "def f(of):\n  try: os.open(of, os.O_RDWR)\n  except OSError as e:\n    if e.errno == errno.EROFS: raise\n    print('ESCAPED', of, e)\nchild = os.fork()\nif child == 0: time.sleep(60); os._exit(0)\ntries(*[lambda of=of: f(f'/proc/{of}/mem') for of in ('self', os.getpid(), 'thread-self', child)])\nos.kill(child, 9)",
        ),
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
        "where the host has what is shown, in the list of mounts",
        "overlays and copies of what is shown",
        Sh(
            "d=${1%/*}; for f in mountinfo mounts mountstats; do while read -r l; do case $l in *\"${d##*/}\"*) echo \"ESCAPED $l\";; esac; done < /proc/self/$f; done",
        ),
        "test \"$(cat /etc/certificates)\" = trust && grep -q ' /etc/certificates ' /proc/self/mountinfo && echo ok",
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
            "tries(lambda: os.mkdir('/sys/fs/cgroup/x'))\ncalls(('mount', b'cgroup', b'/tmp', b'cgroup', 0, b'memory'), ('mount', b'cgroup2', b'/tmp', b'cgroup2', 0, None))",
        ),
        "mkdir /tmp/d && echo ok",
    ),
    attempt(
        "memory and disks as devices",
        "six devices and no more",
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
    attempt(
        "terminals of the host",
        "a place for terminals of the sandbox's own",
        Py(
            "at = ['/dev/console', '/dev/tty0', '/dev/tty1', '/dev/ttyS0', '/dev/vcs', PTS] + [f'/dev/pts/{n}' for n in range(64)]\ntries(*[lambda p=p: os.open(p, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK) for p in at])",
        ),
        TERMINAL,
    ),
    attempt(
        "typing into a terminal of its own, other protocols on it",
        SECCOMP,
        Py(
            "m, s = os.openpty()\nfor f in (m, s): calls(('ioctl', f, 0x5412, b'x'), ('ioctl', f, 0x541c, b'\\x0b'), ('ioctl', f, 0x5423, struct.pack('i', 0)))\nos.setsid() if os.getpid() != os.getsid(0) else None\nos.close(os.open(os.ttyname(s), os.O_RDWR))\nfor f in (m, s): calls(('ioctl', f, 0x5412, b'x'))",
        ),
        TERMINAL,
    ),
    attempt(
        "the daemon's socket, token and journal",
        NAMESPACES,
        Py(
            "def asks(path):\n  s = socket.socket(socket.AF_UNIX); s.connect(path)\n  return path\nhere = [DAEMON, '..' + DAEMON, '/proc/self/root' + DAEMON, '/proc/self/cwd/../..' + DAEMON, f'/proc/1/root{DAEMON}', '../' + '/'.join(DAEMON.split('/')[-2:])]\nfor h in here: tries(lambda: asks(h + '/run/aos.sock'), lambda: open(h + '/run/token').read(), lambda: open(h + '/journal.db').read(), lambda: os.listdir(h), lambda: os.symlink(h, 'home') or os.listdir('home'))\nos.path.islink('home') and os.remove('home')",
        ),
        READS,
    ),
];
