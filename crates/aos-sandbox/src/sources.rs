//! Trees of the host from which a root is built: the workspace, its layer, and what is granted beside them.
//!
//! Start at [`Sources::open`] and [`Sources::open_translated`]: they are opened by whoever may reach them, and attached by
//! the one whom the new root belongs to (`root`). What always holds: what is mounted is what was held and looked at, not
//! what has its path by then, and no link leads to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::identity::Translator;
use crate::job::{Failure, FailureKind, Job, Step, Walls};
use crate::spec::{Access, Inode};

/// A tree of the host, held but not yet placed.
pub(crate) struct Source {
    /// It.
    pub(crate) tree: OwnedFd,
    /// Where it will be.
    pub(crate) at: PathBuf,
    /// Whether it is a folder; else a file.
    pub(crate) folder: bool,
    /// Whether the command may change it.
    pub(crate) writable: bool,
}

/// The host's trees that a root is built from.
pub(crate) struct Sources {
    /// Where the command works.
    pub(crate) workspace: OwnedFd,
    /// What takes its changes.
    pub(crate) layer: Option<OwnedFd>,
    /// What it is granted of the host.
    pub(crate) mounts: Vec<Source>,
}

impl Sources {
    /// In the helper: opens what takes the daemon's own rights, when those are more than the command will have.
    pub(crate) fn open_translated(job: &Job, walls: &Walls, translator: &mut Translator) -> Result<Self, Failure> {
        Self::with(Path::new(&job.workspace), walls, |path, is| translator.tree(path, found(path, is)?))
    }

    /// In the first process: opens the same as an ordinary user, who can give away nothing but what is its own.
    pub(crate) fn open(job: &Job, walls: &Walls) -> Result<Self, Failure> {
        Self::with(Path::new(&job.workspace), walls, |path, is| copied(path, &found(path, is)?))
    }

    /// In the first process: what the helper has opened, in the order of [`Sources::fds`].
    pub(crate) fn received(trees: Vec<OwnedFd>, walls: &Walls) -> Result<Self, Failure> {
        let mut trees = trees.into_iter();
        Self::with(Path::new(""), walls, |_, _| trees.next().ok_or(Errno::PROTO).step("receive the trees"))
    }

    /// All of them.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let mounts = self.mounts.iter().map(|mount| &mount.tree);
        std::iter::once(&self.workspace).chain(&self.layer).chain(mounts).map(AsFd::as_fd)
    }

    fn with(
        workspace: &Path,
        walls: &Walls,
        mut open: impl FnMut(&Path, Option<Inode>) -> Result<OwnedFd, Failure>,
    ) -> Result<Self, Failure> {
        let workspace = open(workspace, None)?;
        let layer = walls.layer.as_ref().map(|layer| open(Path::new(layer), None)).transpose()?;
        let mut mounts = Vec::new();
        for (host, at, access, is) in &walls.mounts {
            let tree = open(Path::new(host), Some(*is))?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&tree).step("look at a mount")?.st_mode);
            if !kind.is_dir() && !kind.is_file() {
                let step = format!("mount {}, which is neither a folder nor a file", Path::new(host).display());
                return Err(Failure::step(step, Errno::INVAL));
            }
            mounts.push(Source { tree, at: at.into(), folder: kind.is_dir(), writable: *access == Access::Write });
        }
        Ok(Sources { workspace, layer, mounts })
    }
}

/// Holds on to what has a path, through no link of any kind.
pub(crate) fn held(path: &Path) -> Result<OwnedFd, Errno> {
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), plain)
}

/// The same, and that it is what was meant: whoever can write above it may have put something else there since. What is
/// mounted then is what is held here, whatever has the path.
fn found(path: &Path, is: Option<Inode>) -> Result<OwnedFd, Failure> {
    let unusable = |error: io::Error| Failure::new(FailureKind::Path(path.into()), error);
    let held = held(path).map_err(|errno| unusable(errno.into()))?;
    let now = Inode::of(&held).map_err(unusable)?;
    match is {
        Some(is) if is != now => {
            Err(Failure::step(format!("mount {}, which was replaced", path.display()), Errno::STALE))
        }
        _ => Ok(held),
    }
}

/// A detached copy of the mount at `path` with all below it; a part of it cannot be had, because a user namespace may
/// not uncover what a mount hides.
pub(crate) fn tree(path: &Path) -> Result<OwnedFd, Failure> {
    let unusable = |errno: Errno| Failure::new(FailureKind::Path(path.into()), errno);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    copied(path, &rustix::fs::open(path, flags, Mode::empty()).map_err(unusable)?)
}

/// The same of what is held; `path` is what it is called.
fn copied(path: &Path, held: &OwnedFd) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(held, "", flags).map_err(|errno| Failure::new(FailureKind::Path(path.into()), errno))
}
