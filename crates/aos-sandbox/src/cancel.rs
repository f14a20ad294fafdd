//! The handle with which another thread ends a run.
//!
//! Always true: cancelling is safe at any time, before, during and after the run, and more than once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Ends the run it was given to; its clones are the same handle.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// Readable once cancelled, and for ever after: nobody reads it.
    event: Arc<OwnedFd>,
}

impl Cancel {
    /// A handle that nothing has been cancelled through yet.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Cancel { event: Arc::new(event) })
    }

    /// Ends the run: its tree is killed and [`run`](crate::run) returns soon after.
    pub fn cancel(&self) {
        // The counter can only be full after 2^64 - 2 calls, and then it is readable already.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }

    /// Whether somebody has cancelled.
    pub fn is_cancelled(&self) -> bool {
        let mut slots = [PollFd::new(&*self.event, PollFlags::IN)];
        matches!(poll(&mut slots, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// Readable once cancelled.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
