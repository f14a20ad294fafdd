//! System calls that are not to be there, and ways to more rights.

use super::How::{Py, Sh};
use super::{Attempt, MEMORY, READS, RUNS, SECCOMP, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt(
        "opening by handle",
        SECCOMP,
        Py("calls(('name_to_handle_at', -100, b'/', 0, 0, 0), ('open_by_handle_at', -1, 0, 0))"),
        READS,
    ),
    attempt("ptrace", SECCOMP, Py("calls(('ptrace', 16, 1, 0, 0), ('ptrace', 0, 0, 0, 0))"), RUNS),
    attempt(
        "process_vm_readv and writev",
        SECCOMP,
        Py(
            "b = ctypes.create_string_buffer(64)\ncalls(('process_vm_readv', 1, b, 1, b, 1, 0), ('process_vm_writev', 1, b, 1, b, 1, 0))",
        ),
        MEMORY,
    ),
    attempt(
        "mount",
        SECCOMP,
        Py(
            "calls(('mount', b'x', b'/tmp', b'tmpfs', 0, 0), ('mount', b'/', b'/tmp', 0, 4096, 0), ('mount', 0, b'/usr', 0, 32, 0))",
        ),
        "mkdir /tmp/m && echo ok",
    ),
    attempt(
        "the new mount calls",
        SECCOMP,
        Py(
            "calls(('open_tree', -100, b'/', 1), ('move_mount', -100, b'/tmp', -100, b'/workspace', 0), ('fsopen', b'tmpfs', 0), ('mount_setattr', -100, b'/', 0, 0, 0))",
        ),
        READS,
    ),
    attempt(
        "umount",
        SECCOMP,
        Py("calls(('umount2', b'/workspace', 2), ('umount2', b'/proc', 2), ('umount2', b'/usr', 2))"),
        READS,
    ),
    attempt("chroot and pivot_root", SECCOMP, Py("calls(('chroot', b'/tmp'), ('pivot_root', b'/tmp', b'/tmp'))"), RUNS),
    attempt(
        "unshare",
        SECCOMP,
        Py("calls(('unshare', 0x10000000), ('unshare', 0x00020000), ('unshare', 0x40000000))"),
        RUNS,
    ),
    attempt(
        "a clone with namespaces",
        SECCOMP,
        Py("calls(('clone', 0x10000011, 0, 0, 0, 0), ('clone', 0x20000011, 0, 0, 0, 0), ('clone3', 0, 0))"),
        RUNS,
    ),
    attempt("setns", SECCOMP, Py("f = os.open('/proc/self/ns/net', 0)\ncalls(('setns', f, 0))"), RUNS),
    attempt(
        "kernel keys",
        SECCOMP,
        Py(
            "calls(('keyctl', 0, -3, 1), ('add_key', b'user', b'k', b'v', 1, -3), ('request_key', b'user', b'k', 0, -3))",
        ),
        RUNS,
    ),
    attempt(
        "bpf",
        SECCOMP,
        Py(
            "calls(('bpf', 0, ctypes.create_string_buffer(128), 128), ('bpf', 5, ctypes.create_string_buffer(128), 128))",
        ),
        RUNS,
    ),
    attempt(
        "perf events",
        SECCOMP,
        Py("calls(('perf_event_open', ctypes.create_string_buffer(128), 0, -1, -1, 0))"),
        RUNS,
    ),
    attempt("userfaultfd", SECCOMP, Py("calls(('userfaultfd', 0), ('userfaultfd', 1))"), MEMORY),
    attempt(
        "io_uring",
        SECCOMP,
        Py(
            "calls(('io_uring_setup', 1, ctypes.create_string_buffer(256)), ('io_uring_enter', 0, 0, 0, 0, 0), ('io_uring_register', 0, 0, 0, 0))",
        ),
        READS,
    ),
    attempt(
        "descriptors of others (pidfd_getfd, kcmp)",
        SECCOMP,
        Py("calls(('pidfd_getfd', 0, 0, 0), ('kcmp', 1, 1, 0, 0, 0))"),
        RUNS,
    ),
    attempt(
        "kernel modules",
        SECCOMP,
        Py("calls(('init_module', b'', 0, b''), ('finit_module', 0, b'', 0), ('delete_module', b'x', 0))"),
        RUNS,
    ),
    attempt(
        "kexec and reboot",
        SECCOMP,
        Py(
            "calls(('kexec_load', 0, 0, 0, 0), ('kexec_file_load', 0, 0, 0, 0, 0), ('reboot', 0xfee1dead, 672274793, 0, 0))",
        ),
        RUNS,
    ),
    attempt(
        "the clock",
        SECCOMP,
        Py(
            "t = ctypes.create_string_buffer(16)\ncalls(('clock_settime', 0, t), ('settimeofday', t, 0))\ntries(lambda: time.clock_settime(0, 0))",
        ),
        "date > /dev/null && echo ok",
    ),
    attempt(
        "host and domain names",
        SECCOMP,
        Py("calls(('sethostname', b'x', 1), ('setdomainname', b'x', 1))"),
        "uname -n > /dev/null && echo ok",
    ),
    attempt(
        "swap, accounting, quotas",
        SECCOMP,
        Py(
            "calls(('swapon', b'/workspace/x', 0), ('swapoff', b'/x'), ('acct', b'/workspace/x'), ('quotactl', 0, 0, 0, 0))",
        ),
        READS,
    ),
    attempt(
        "ports and segment tables",
        SECCOMP,
        Py("calls(('iopl', 3), ('ioperm', 0, 1, 1), ('modify_ldt', 1, ctypes.create_string_buffer(16), 16))"),
        MEMORY,
    ),
    attempt(
        "the kernel's log",
        SECCOMP,
        Py("calls(('syslog', 3, ctypes.create_string_buffer(64), 64), ('syslog', 10, 0, 0))"),
        RUNS,
    ),
    attempt(
        "watching the whole file system (fanotify)",
        SECCOMP,
        Py("calls(('fanotify_init', 0, 0), ('fanotify_init', 0x200, 0))"),
        READS,
    ),
    attempt(
        "becoming root",
        "no new privileges, no capabilities",
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
        // Where nothing of its own runs the shell says 126.
        "chmod 755 mine2 && { ./mine2 -u > /dev/null || test $? = 126; } && echo ok",
    ),
];
