//! The last steps before a process becomes the command.
//!
//! Start at [`Launch::fork`]. Always true in the new process: signals are at their defaults, the session is its own,
//! descriptors above standard error are closed, limits can only be lowered, and no execution gains privileges.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::job::{Failure, FailureKind, Job, Step};
use crate::spec::Limits;

/// A command that is ready to be forked off.
pub(crate) struct Launch<'a> {
    /// The command.
    pub(crate) job: &'a Job,
    /// What it reads.
    pub(crate) stdin: &'a OwnedFd,
    /// The folder it starts in.
    pub(crate) workdir: &'a OsString,
    /// The most processes and threads, counted as the kernel counts them.
    pub(crate) pids: u64,
}

impl Launch<'_> {
    /// Forks; in the child sets everything up, calls `harden` last and executes. Returns the child, and the end of a
    /// pipe that yields a [`Failure`] if it did not get to execute and end of file if it did.
    pub(crate) fn fork(self, harden: impl FnOnce() -> Result<(), Failure>) -> Result<(Pid, OwnedFd), Failure> {
        let (failure, failure_theirs) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("open a pipe for the command's errors")?;
        // SAFETY: the calling process has one thread, so the child may do whatever its parent may.
        match unsafe { libc::fork() } {
            -1 => Err(Failure::step("fork the command", io::Error::last_os_error())),
            0 => {
                let Err(cause) = self.become_command(harden);
                let report = serde_json::to_vec(&cause).unwrap_or_default();
                let _ = rustix::io::write(&failure_theirs, &report);
                // SAFETY: ends the process without running anything of its parent's.
                unsafe { libc::_exit(127) }
            }
            raw => match Pid::from_raw(raw) {
                Some(pid) => Ok((pid, failure)),
                None => unreachable!("fork returned a pid that is neither 0 nor -1"),
            },
        }
    }

    fn become_command(self, harden: impl FnOnce() -> Result<(), Failure>) -> Result<std::convert::Infallible, Failure> {
        // The program's parent is the supervisor; without it nobody would enforce the deadline.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("tie the command to its helper")?;
        reset_signals();
        rustix::process::setsid().step("start a session")?;
        rustix::process::chdir(self.workdir.as_os_str())
            .map_err(|errno| Failure::new(FailureKind::Path(self.workdir.clone()), errno))?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let argv = c_strings(self.job.argv.iter().map(|arg| arg.as_bytes().to_vec()))?;
        let env =
            c_strings(self.job.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()))?;
        let candidates = self.candidates()?;
        limit(&self.job.limits, self.pids)?;
        rustix::stdio::dup2_stdin(self.stdin.as_fd()).step("connect standard input")?;
        rustix::thread::set_no_new_privs(true).step("give up new privileges")?;
        close_others_on_exec().step("close inherited descriptors")?;
        harden()?;
        let errno = execute(&candidates, &argv, &env);
        Err(Failure::new(FailureKind::Program(self.job.argv[0].to_string_lossy().into_owned()), errno))
    }

    /// Where the program may be, in the order to try.
    fn candidates(&self) -> Result<Vec<CString>, Failure> {
        let program = self.job.argv[0].as_bytes();
        if program.contains(&b'/') {
            return c_strings([program.to_vec()].into_iter());
        }
        let path = self.job.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_bytes());
        let folders = path.unwrap_or_default().split(|byte| *byte == b':').filter(|folder| !folder.is_empty());
        c_strings(folders.map(|folder| [folder, b"/", program].concat()))
    }
}

/// Reads what [`Launch::fork`]'s pipe says; waits until the child has executed or failed.
pub(crate) fn failure_of(pipe: OwnedFd) -> Option<Failure> {
    let mut text = Vec::new();
    let _ = io::Read::read_to_end(&mut std::fs::File::from(pipe), &mut text);
    serde_json::from_slice(&text).ok()
}

fn c_strings(texts: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, Failure> {
    let no_nul = |_| Failure::step("pass a text with a NUL byte", io::Error::from_raw_os_error(libc::EINVAL));
    texts.map(|text| CString::new(text).map_err(no_nul)).collect()
}

/// Tries each candidate; returns why none could be executed, and of several reasons the most telling.
fn execute(candidates: &[CString], argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    let mut reason = io::Error::from_raw_os_error(libc::ENOENT);
    for candidate in candidates {
        // SAFETY: all three are NUL-terminated, both arrays end in a null pointer, and everything outlives the call.
        unsafe { libc::execve(candidate.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) {
            reason = error;
        }
    }
    reason
}

/// Which signals helpers ignore.
pub(crate) const IGNORED: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE];

/// Sets every signal to its default action: what the daemon was started with would be inherited.
pub(crate) fn default_signals() {
    (1..=64).for_each(default_signal);
}

fn default_signal(signal: i32) {
    // SAFETY: the kernel reads a zeroed sigaction, which says SIG_DFL with an empty mask and is 32 bytes or less on every
    // architecture, and installs no code; signals that cannot be set merely return an error. The C library's own
    // function would refuse the two signals that it keeps for itself.
    unsafe {
        let default = [0u64; 4];
        libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8usize);
    }
}

/// Takes back what helpers ignore and block; execution takes back what they handle.
fn reset_signals() {
    IGNORED.into_iter().for_each(default_signal);
    // SAFETY: `set` is written before it is read.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Has execution close every descriptor of this process above standard error, also those that somebody forgot to mark.
///
/// # Errors
/// Where the system cannot, which is one before Linux 5.11.
pub fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: only marks descriptors; none is closed before the new program starts.
    match unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lowers this process's limits for good.
fn limit(limits: &Limits, pids: u64) -> Result<(), Failure> {
    let cpu = limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0);
    let cpu = cpu.max(1);
    // The hard limit of processor time is a second later, so that a program may catch SIGXCPU and say so.
    let table = [
        (Resource::Cpu, cpu, cpu + 1),
        (Resource::Data, limits.memory, limits.memory),
        (Resource::Fsize, limits.disk, limits.disk),
        (Resource::Nofile, limits.files, limits.files),
        (Resource::Nproc, pids, pids),
        (Resource::Core, 0, 0),
        (Resource::Memlock, 64 << 10, 64 << 10),
        (Resource::Msgqueue, 0, 0),
    ];
    for (resource, soft, hard) in table {
        let maximum = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(hard);
        let limit = Rlimit { current: Some(soft.min(maximum)), maximum: Some(maximum) };
        setrlimit(resource, limit).step("set the command's limits")?;
    }
    Ok(())
}
