//! Waiting for one child among many, with a way to be told to stop.
//!
//! Start at [`Watch::wait`]. Always true: every child that ends is reaped, so a long command that leaves orphans behind
//! cannot fill the process table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::outcome::End;

/// Why waiting ended.
pub(crate) enum Woke {
    /// The child ended.
    Ended(WaitStatus),
    /// The stop descriptor became readable or was closed at its other end.
    Stopped,
    /// The deadline passed.
    Deadline,
    /// The inspection said that it is enough.
    Inspected,
}

/// Wakes for dying children of a single-threaded process.
pub(crate) struct Watch {
    /// A signalfd for `SIGCHLD`, which is blocked while this exists.
    children: OwnedFd,
}

impl Watch {
    /// Blocks `SIGCHLD` and listens for it. Call before the first fork, or a child may end unnoticed.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: `set` is written by sigemptyset before it is read, and all pointers are to it; the calling process
        // has one thread, so its mask is the process's mask. A descriptor that signalfd returns is ours alone.
        unsafe {
            let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Watch { children: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// Readable when a child has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.children.as_fd()
    }

    /// Takes the news that children have ended; how many does not matter, since whoever asks reaps them all.
    pub(crate) fn drain(&self) {
        // One signalfd_siginfo.
        let mut record = [0u8; 128];
        while rustix::io::read(&self.children, &mut record).is_ok_and(|length| length > 0) {}
    }

    /// Waits until `child` ends, `stop` wakes, `deadline` passes, or `inspect`, called every so often, returns true
    /// or an error.
    pub(crate) fn wait(
        &self,
        child: Pid,
        stop: BorrowedFd<'_>,
        deadline: Option<Instant>,
        mut inspect: Option<(Duration, &mut dyn FnMut() -> io::Result<bool>)>,
    ) -> io::Result<Woke> {
        loop {
            if let Some(status) = reap(child) {
                return Ok(Woke::Ended(status));
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                return Ok(Woke::Deadline);
            }
            let left = deadline.map(|at| at - now);
            let pause = inspect.as_ref().map(|(every, _)| *every);
            let timeout = left.into_iter().chain(pause).min().and_then(|left| Timespec::try_from(left).ok());
            let mut slots = [
                PollFd::new(&self.children, PollFlags::IN),
                PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN | PollFlags::RDHUP),
            ];
            match poll(&mut slots, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let stopped = !slots[1].revents().is_empty();
            self.drain();
            if stopped {
                return Ok(reap(child).map_or(Woke::Stopped, Woke::Ended));
            }
            if let Some((_, inspect)) = &mut inspect
                && inspect()?
            {
                return Ok(Woke::Inspected);
            }
        }
    }
}

/// Reaps whoever has ended and returns `child`'s status if it is among them.
fn reap(child: Pid) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((pid, of))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == child {
            status = Some(of);
        }
    }
    status
}

/// How a process ended, from its wait status.
pub(crate) fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signaled(signal),
        (None, None) => unreachable!("only the end of a process is waited for"),
    }
}
