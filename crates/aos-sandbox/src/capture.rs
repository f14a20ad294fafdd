//! The two ends of a command's standard streams: [`Feed`] writes what it reads, [`Sink`] reads what it writes.
//!
//! Always true: neither blocks, and a sink keeps no more than its limit however much the command says.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::outcome::Captured;

/// How much is read at once: what a pipe holds by default (`pipe(7)`).
const CHUNK: usize = 64 << 10;

/// How many chunks are read before the other streams get their turn, and at most after the last writer is dead.
const TURN: usize = 16;

/// Writes the command's standard input.
pub(crate) struct Feed<'a> {
    /// Closed as soon as all is written or nobody reads any more.
    pipe: Option<OwnedFd>,
    left: &'a [u8],
}

impl<'a> Feed<'a> {
    /// Writes `bytes` and then end of file.
    pub(crate) fn new(pipe: OwnedFd, bytes: &'a [u8]) -> Self {
        Feed { pipe: Some(pipe), left: bytes }
    }

    /// What to wait for before it is worth pumping.
    pub(crate) fn slot(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT))
    }

    /// Writes as much as the pipe takes.
    pub(crate) fn pump(&mut self) {
        while let Some(pipe) = &self.pipe {
            if self.left.is_empty() {
                self.pipe = None;
                return;
            }
            match rustix::io::write(pipe, self.left) {
                Ok(written) => self.left = &self.left[written..],
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The command closed its end; that is its right.
                Err(_) => self.pipe = None,
            }
        }
    }
}

/// Reads one of the command's output streams.
pub(crate) struct Sink {
    /// Gone at end of file.
    pipe: Option<OwnedFd>,
    kept: Captured,
    limit: usize,
    chunk: Vec<u8>,
}

impl Sink {
    /// Keeps the first `limit` bytes.
    pub(crate) fn new(pipe: OwnedFd, limit: usize) -> Self {
        Sink { pipe: Some(pipe), kept: Captured::default(), limit, chunk: vec![0; CHUNK] }
    }

    /// What to wait for before it is worth pumping.
    pub(crate) fn slot(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Reads what is there, keeps what fits and drops the rest, so that the command never waits for us.
    pub(crate) fn pump(&mut self) {
        for _ in 0..TURN {
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe, &mut self.chunk[..]) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    let room = self.limit - self.kept.bytes.len();
                    let (kept, dropped) = self.chunk[..length].split_at(room.min(length));
                    self.kept.bytes.extend_from_slice(kept);
                    self.kept.dropped += dropped.len() as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Reads what the dead writers left in the pipe and returns all that was kept.
    pub(crate) fn finish(mut self) -> Captured {
        self.pump();
        self.kept
    }
}
