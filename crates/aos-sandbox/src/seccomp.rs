//! The third no: the system calls a command may make at all.
//!
//! Start at [`filter`]. It is a list of what is allowed. Everything else, and whatever a future kernel adds, returns
//! `ENOSYS`, which programs take as "this kernel is older" and work around; a signal would look like a crash.
//!
//! Not on the list, on purpose: namespaces and mounts, tracing and other processes' memory, keyrings, BPF, io_uring,
//! userfaultfd, performance counters, modules, clocks that can be set, handles that go round paths, and memory that
//! belongs to no process (memory files, System V shared memory, messages and semaphores, Landlock's rules and filters
//! behind a descriptor, pages pushed into the swap): no limit would count it, and a file in memory could be executed
//! although nothing that the command writes may be. `/dev/shm` serves instead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::error::Feature;
use crate::job::{Failure, FailureKind};

macro_rules! numbers {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Allowed whatever their arguments, on every architecture.
const ALLOWED: &[libc::c_long] = numbers! {
    SYS_accept SYS_accept4 SYS_bind SYS_connect SYS_getpeername SYS_getsockname SYS_getsockopt SYS_listen SYS_recvfrom
    SYS_recvmmsg SYS_recvmsg SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setsockopt SYS_shutdown
    SYS_brk SYS_madvise SYS_mincore SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mremap SYS_mseal
    SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
    SYS_capget SYS_capset SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getresgid SYS_getresuid SYS_getuid
    SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setuid
    SYS_chdir SYS_close SYS_close_range SYS_copy_file_range SYS_dup SYS_dup3 SYS_faccessat SYS_faccessat2 SYS_fadvise64
    SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync
    SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate
    SYS_getcwd SYS_getdents64 SYS_getxattr SYS_lgetxattr SYS_linkat SYS_listxattr SYS_llistxattr SYS_lremovexattr
    SYS_lseek SYS_lsetxattr SYS_mkdirat SYS_mknodat SYS_newfstatat SYS_openat SYS_openat2 SYS_pipe2 SYS_pread64
    SYS_preadv SYS_preadv2 SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv
    SYS_removexattr SYS_renameat SYS_renameat2 SYS_sendfile SYS_setxattr SYS_splice SYS_statfs SYS_statx SYS_symlinkat
    SYS_sync SYS_sync_file_range SYS_syncfs SYS_tee SYS_truncate SYS_umask SYS_unlinkat SYS_utimensat
    SYS_write SYS_writev SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_ppoll SYS_pselect6 SYS_signalfd4
    SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_getpgid SYS_getpid SYS_getppid SYS_getsid
    SYS_gettid SYS_setpgid SYS_setsid SYS_set_tid_address SYS_kill SYS_tgkill SYS_tkill SYS_pidfd_open
    SYS_pidfd_send_signal SYS_getpriority SYS_getrlimit SYS_setrlimit SYS_getrusage
    SYS_ioprio_get SYS_getcpu SYS_getitimer SYS_setitimer
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam
    SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_yield
    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_restart_syscall
    SYS_futex SYS_futex_waitv SYS_get_robust_list SYS_set_robust_list SYS_rseq
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_gettimeofday SYS_nanosleep SYS_timer_create
    SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_times
    SYS_getrandom SYS_sysinfo SYS_uname SYS_seccomp SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend
    SYS_mq_unlink SYS_get_mempolicy
};

/// What x86-64 has kept from before the `*at` calls.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] = numbers! {
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_ctl_old
    SYS_epoll_wait SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_inotify_init
    SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename
    SYS_rmdir SYS_select SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[];

/// Flags of `clone` that make namespaces (`clone(2)`).
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// `prctl` operations that concern only the process itself and widen nothing.
const PRCTL: &[i32] = &[
    libc::PR_SET_PDEATHSIG,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_DUMPABLE,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_SECCOMP,
    libc::PR_SET_SECCOMP,
    libc::PR_CAPBSET_READ,
    libc::PR_GET_SECUREBITS,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_CHILD_SUBREAPER,
    libc::PR_GET_CHILD_SUBREAPER,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_TID_ADDRESS,
    libc::PR_SET_THP_DISABLE,
    libc::PR_GET_THP_DISABLE,
    libc::PR_CAP_AMBIENT,
    libc::PR_GET_SPECULATION_CTRL,
    libc::PR_SET_VMA,
];

/// Calls that set the limits and the processor of the process that their first argument names. The first process of the
/// sandbox watches over the others, is of the same user, and is number 1 there, always and in all of its threads.
const ON_PROCESSES: &[libc::c_long] = numbers! {
    SYS_prlimit64 SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler
};

/// The same for priorities, whose first argument says what the second one names: a process, or a group. All processes
/// of a user (the third kind) would include the first one.
const ON_PRIORITIES: [(libc::c_long, [u64; 2]); 2] = [
    (libc::SYS_setpriority, [libc::PRIO_PROCESS as u64, libc::PRIO_PGRP as u64]),
    // IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP (`ioprio_set(2)`).
    (libc::SYS_ioprio_set, [1, 2]),
];

/// Address families: local, the empty network's two, and netlink, restricted further to routes.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Terminal requests that type into somebody else's terminal, and one that has the kernel load code of protocols that no
/// terminal of today speaks (`ioctl_tty(2)`), in any width of the argument.
const NOT_ON_TERMINALS: [u64; 3] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD];

/// Instructions of a filter, by their codes of `linux/bpf_common.h`.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_IF_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the number of a call is in `seccomp_data` (`seccomp(2)`).
const NUMBER_AT: u32 = 0;
/// Stands for a distance that is not known yet; no program is that long.
const TO_REST: u32 = u32::MAX;

/// The compiled filter.
pub(crate) fn filter() -> Result<BpfProgram, Failure> {
    compile()
        .map_err(|_| Failure::new(FailureKind::Missing(Feature::Seccomp), io::Error::from_raw_os_error(libc::EINVAL)))
}

fn compile() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = by_arguments()?;
    let free = ALLOWED.iter().chain(ALLOWED_OLD).filter(|number| !rules.contains_key(*number));
    let free: BTreeSet<u32> = free.filter_map(|number| u32::try_from(*number).ok()).collect();
    let rest = linear(rules)?;
    let mut program = search(&ranges(&free), &rest);
    program.extend(rest);
    Ok(program)
}

/// What is allowed with some arguments only.
fn by_arguments() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let on = |index: u8, op: Op, value: u64| SeccompCondition::new(index, Len::Dword, op, value);
    let one_of =
        |index: u8, values: &mut dyn Iterator<Item = u64>| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
            values.map(|value| SeccompRule::new(vec![on(index, Op::Eq, value)?])).collect()
        };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // clone3 hides its flags behind a pointer; without it the C library falls back to clone, whose flags can be read.
    let no_namespaces = SeccompCondition::new(0, Len::Qword, Op::MaskedEq(NAMESPACES), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_namespaces])?]);
    let harmless = NOT_ON_TERMINALS.iter().map(|request| on(1, Op::Ne, *request)).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(harmless)?]);
    let not_to_swap = on(2, Op::Ne, libc::MADV_PAGEOUT as u64)?;
    rules.insert(libc::SYS_madvise, vec![SeccompRule::new(vec![not_to_swap])?]);
    // A filter whose descriptor is held outlives the thread that it was made for.
    let no_listener = on(1, Op::MaskedEq(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER), 0)?;
    rules.insert(libc::SYS_seccomp, vec![SeccompRule::new(vec![no_listener])?]);
    rules.insert(libc::SYS_prctl, one_of(0, &mut PRCTL.iter().map(|option| *option as u64))?);
    let mut sockets = one_of(0, &mut FAMILIES.iter().map(|family| *family as u64))?;
    // NETLINK_ROUTE is protocol 0; the C library asks it which addresses there are.
    sockets.push(SeccompRule::new(vec![on(0, Op::Eq, libc::AF_NETLINK as u64)?, on(2, Op::Eq, 0)?])?);
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, one_of(0, &mut std::iter::once(libc::AF_UNIX as u64))?);
    // The ordinary personality, asking for it, 32-bit naming, and addresses that are not randomized.
    rules.insert(libc::SYS_personality, one_of(0, &mut [0, 0xffff_ffff, 0x8, 0x4_0000].into_iter())?);
    for number in ON_PROCESSES {
        rules.insert(*number, vec![SeccompRule::new(vec![on(0, Op::Ne, 1)?])?]);
    }
    for (number, kinds) in ON_PRIORITIES {
        let of = |kind: u64| SeccompRule::new(vec![on(0, Op::Eq, kind)?, on(1, Op::Ne, 1)?]);
        rules.insert(number, kinds.into_iter().map(of).collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// A filter that tries each rule in turn.
fn linear(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let deny = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, deny, SeccompAction::Allow, arch)?.try_into()
}

/// The first and the last of each run of numbers without a gap.
fn ranges(numbers: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

/// What stands before `rest`: it allows the numbers in the ranges and leaves everything else to `rest`.
///
/// A list of three hundred comparisons takes the kernel a millisecond to install, since it runs a filter for every call
/// there is to learn which ones are always allowed; a search is ten comparisons deep.
fn search(ranges: &[(u32, u32)], rest: &[sock_filter]) -> BpfProgram {
    // `rest` begins by loading the architecture and comparing it, and kills where it is another.
    let mut program = vec![rest[0].clone(), sock_filter { jt: 1, jf: 0, ..rest[1].clone() }];
    let mut body = vec![statement(LOAD, NUMBER_AT)];
    branch(ranges, &mut body);
    program.push(statement(JUMP, body.len() as u32));
    let end = body.len();
    for (at, instruction) in body.iter_mut().enumerate() {
        if instruction.code == JUMP && instruction.k == TO_REST {
            instruction.k = (end - at - 1) as u32;
        }
    }
    program.extend(body);
    program
}

/// The search among ranges in rising order; what is in none of them goes to the rest.
fn branch(ranges: &[(u32, u32)], into: &mut BpfProgram) {
    match ranges {
        [] => into.push(statement(JUMP, TO_REST)),
        [(first, last)] => into.extend([
            sock_filter { code: JUMP_IF_LEAST, jt: 0, jf: 2, k: *first },
            sock_filter { code: JUMP_IF_GREATER, jt: 1, jf: 0, k: *last },
            statement(RETURN, libc::SECCOMP_RET_ALLOW),
            statement(JUMP, TO_REST),
        ]),
        ranges => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let mut lower = BpfProgram::new();
            branch(low, &mut lower);
            into.push(sock_filter { code: JUMP_IF_LEAST, jt: 0, jf: 1, k: high[0].0 });
            into.push(statement(JUMP, lower.len() as u32));
            into.extend(lower);
            branch(high, into);
        }
    }
}

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Puts the filter on this process, for good. Needs `no_new_privs`.
pub(crate) fn apply(filter: &BpfProgram) -> Result<(), Failure> {
    seccompiler::apply_filter(filter).map_err(|error| {
        let source = match error {
            seccompiler::Error::Prctl(source) | seccompiler::Error::Seccomp(source) => source,
            _ => io::Error::from_raw_os_error(libc::EINVAL),
        };
        Failure::new(FailureKind::Missing(Feature::Seccomp), source)
    })
}

/// Whether the kernel takes filters.
pub(crate) fn available() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one number.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0u32, &raw const action) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_fits_the_kernel() {
        // BPF_MAXINSNS of linux/bpf_common.h.
        assert!(filter().expect("it compiles").len() <= 4096);
    }

    /// What a filter says to a call: the program, its architecture, its number and its arguments (`bpf(4)` as far as
    /// filters of calls use it), and how many instructions that took.
    fn said(program: &[sock_filter], arch: u32, number: u32, args: [u64; 6]) -> (u32, usize) {
        let words = args.iter().flat_map(|arg| [*arg as u32, (*arg >> 32) as u32]);
        let data: Vec<u32> = [number, arch, 0, 0].into_iter().chain(words).collect();
        let (mut at, mut accumulator, mut steps) = (0, 0u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            (at, steps) = (at + 1, steps + 1);
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                0x20 => accumulator = data[k as usize / 4],
                0x05 => at += k as usize,
                0x15 => at += jump(accumulator == k),
                0x25 => at += jump(accumulator > k),
                0x35 => at += jump(accumulator >= k),
                0x45 => at += jump(accumulator & k != 0),
                0x54 => accumulator &= k,
                0x06 => return (k, steps),
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// The search was put before the list for its speed alone.
    #[test]
    fn the_search_says_what_the_list_says() {
        let program = filter().unwrap();
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            ALLOWED.iter().chain(ALLOWED_OLD).map(|number| (*number, Vec::new())).collect();
        let decided: BTreeSet<i64> = by_arguments().unwrap().into_keys().collect();
        rules.extend(by_arguments().unwrap());
        let list = linear(rules).unwrap();
        let arch = list[1].k;
        let numbers = (0..1024).chain([0x4000_0000, 0x4000_0001, 0x4000_0039, 0x7fff_ffff, 0x8000_0000, u32::MAX]);
        let values = [0, 1, 2, 3, 8, 10, 15, 16, 17, 22, 38, 47, 0x4_0000, 0x5412, 0x541c, 0x1_0000_5412, 0xffff_ffff]
            .into_iter()
            .chain((0..64).map(|bit| 1 << bit));
        let values: Vec<u64> = values.collect();
        let mut deepest = 0;
        for number in numbers {
            let few = if decided.contains(&i64::from(number)) { values.len() } else { 2 };
            for value in &values[..few] {
                for args in [[*value, 0, 0, 0, 0, 0], [0, *value, 0, 0, 0, 0], [16, 3, *value, 0, 0, 0]] {
                    let (now, steps) = said(&program, arch, number, args);
                    assert_eq!(now, said(&list, arch, number, args).0, "call {number} {args:x?}");
                    deepest = deepest.max(if now == libc::SECCOMP_RET_ALLOW && args[0] == 0 { steps } else { 0 });
                }
            }
            for other in [arch ^ 1, 0x4000_0003, 0] {
                assert_eq!(said(&program, other, number, [0; 6]).0, libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
        assert!(program.len() * 2 < list.len(), "{} of {}", program.len(), list.len());
        assert!(deepest < 200, "{deepest} instructions");
    }

    #[test]
    fn dangerous_calls_are_not_on_the_list() {
        let dangerous = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_clone3,
            libc::SYS_ptrace,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_open_by_handle_at,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_semget,
            libc::SYS_landlock_create_ruleset,
        ];
        assert!(dangerous.iter().all(|number| !ALLOWED.contains(number) && !ALLOWED_OLD.contains(number)));
    }
}
