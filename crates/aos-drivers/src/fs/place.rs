//! Where a process's files are: its workspace, and the folders of the host that it sees at the top of it.
//!
//! Start at [`Place`]. What always holds: a mount is opened by its real path, through no symbolic link at all, so that
//! whoever can write beside it cannot lead it elsewhere; below it the same rules hold as in the workspace. Nothing below a
//! mount is ever changed. Deliberately absent: which folders may be mounted; policy and daemon have decided.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use aos_sandbox::Inode;
use rustix::fs::{CWD, Mode, ResolveFlags};
use rustix::io::Errno;

use super::error::Error;
use super::workspace::{FOLDER, Workspace};

/// Where a process's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The workspace folder.
    pub root: PathBuf,
    /// What of the host is seen in it, in the place of what may be there.
    pub mounts: Vec<Mount>,
}

/// A folder of the host at the top of a workspace, to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its name there.
    pub at: String,
    /// Its real path on the host.
    pub host: PathBuf,
}

impl Place {
    /// A workspace without mounts.
    pub fn new(root: impl Into<PathBuf>) -> Place {
        Place { root: root.into(), mounts: Vec::new() }
    }

    /// Whether the workspace is the folder that was named: whoever opens it by its path has to ask before.
    ///
    /// # Errors
    /// Why not, as an agent is told.
    pub fn check(&self) -> Result<(), aos_abi::CallError> {
        Ok(Workspace::open(self).map(drop)?)
    }

    /// The mount that a path leads into, and the rest of the path from there.
    pub(crate) fn mount<'p>(&self, path: &'p str) -> Option<(&Mount, &'p str)> {
        let (first, rest) = path.split_once('/').unwrap_or((path, "."));
        self.mounts.iter().find(|mount| mount.at == first).map(|mount| (mount, rest))
    }
}

impl Mount {
    /// Opens the folder of the host.
    pub(crate) fn open(&self) -> Result<OwnedFd, Error> {
        let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, Path::new(&self.host), FOLDER, Mode::empty(), plain);
        opened.map_err(|errno| Error::Mount { at: self.at.clone(), errno })
    }

    /// Whether it can be read now, and what it is: whoever mounts it later has to find the same.
    ///
    /// # Errors
    /// Why not, as an agent is told.
    pub fn check(&self) -> Result<Inode, aos_abi::CallError> {
        let unknown = |error: std::io::Error| Error::Mount {
            at: self.at.clone(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        Ok(Inode::of(self.open()?).map_err(unknown)?)
    }
}
