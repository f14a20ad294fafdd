//! What came of a command that started.
//!
//! Start at [`Outcome`]. Always true: when an outcome exists the command's whole process tree is dead.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a command ended, what it said and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it wrote to standard output, up to the limit.
    pub stdout: Captured,
    /// What it wrote to standard error, up to the limit.
    pub stderr: Captured,
    /// What differs in the workspace, sorted by path; with a layer, all that it would change.
    pub changed: Vec<Change>,
    /// Whether the workspace was too large to look at all of it, so that `changed` may lack something.
    pub changed_truncated: bool,
    /// What it made in a layer that is not kept or not kept so, sorted by path. Without a layer all is in the workspace.
    pub left_out: Vec<LeftOut>,
    /// What the tree used.
    pub usage: Usage,
}

impl Outcome {
    /// The code the command exited with, if it did so by itself.
    pub fn exit_code(&self) -> Option<i32> {
        match self.end {
            End::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// The signal that ended the command, if one did that was not ours.
    pub fn signal(&self) -> Option<i32> {
        match self.end {
            End::Signaled(signal) => Some(signal),
            _ => None,
        }
    }

    /// Whether the wall clock limit ended it.
    pub fn timed_out(&self) -> bool {
        self.end == End::TimedOut
    }

    /// Whether it ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.end == End::Exited(0)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It died of this signal: its own, or the kernel's for processor time (`SIGXCPU`) or file size (`SIGXFSZ`).
    Signaled(i32),
    /// It ran past its wall clock limit and was killed.
    TimedOut,
    /// Its tree's resident memory was above the limit and it was killed.
    OutOfMemory,
    /// The workspace had grown by more than the limit and it was killed.
    OutOfDisk,
    /// The caller cancelled it.
    Cancelled,
}

/// One output stream, bounded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes of it; they may end within a character.
    pub bytes: Vec<u8>,
    /// How many bytes were read and dropped after those.
    pub dropped: u64,
}

impl Captured {
    /// Whether something was dropped.
    pub fn truncated(&self) -> bool {
        self.dropped > 0
    }

    /// The bytes as text, what is not UTF-8 replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("text", &self.text()).field("dropped", &self.dropped).finish()
    }
}

/// One difference in the workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Where, relative to the workspace.
    pub path: PathBuf,
    /// What.
    pub kind: ChangeKind,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It was not there before.
    Created,
    /// Its content, mode or owner is another.
    Modified,
    /// It is gone.
    Deleted,
}

/// What a command made that does not reach the workspace, or not as it was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Where, relative to the workspace.
    pub path: PathBuf,
    /// What.
    pub kind: LeftOutKind,
}

/// What of it is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOutKind {
    /// A pipe with a name.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// The file is kept without its set-id bits.
    SetId,
}

/// What a process tree used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From the command's start to its tree's end.
    pub wall: Duration,
    /// Processor time in user and kernel mode of all processes that were waited for.
    pub cpu: Duration,
    /// The largest resident memory of a single process, in bytes.
    pub memory_max: u64,
}
