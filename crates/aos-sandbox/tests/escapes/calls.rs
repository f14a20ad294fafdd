//! System calls by number, and ways to more rights.

use super::How::{Py, Sh};
use super::{Attempt, MEMORY, READS, RUNS, SECCOMP, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
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
];
