//! What a commit makes last, so that a power cut leaves all of it or nothing.
//!
//! Start at [`Durable`]. The order is the whole of it: what the layer holds is on the disk before the record says that it is
//! being moved, and what was moved is on the disk before the record says that it is done. A few files are synced one by one,
//! many by syncing their file system once. What always holds: where a layer and a workspace are on different file systems,
//! whose writes are in no order among each other, a copy lasts before what it was made from goes (`transfer`).
//!
//! What is relied on: a file system that is mounted once keeps the order of renames and links within it, as journaling
//! ones do (ext4, xfs, btrfs).

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failpoint::{Done, done};
use crate::step::inside;

/// So many files or folders are synced one by one; with more of them, all that their file systems have.
const ONE_BY_ONE_MAX: usize = 16;

/// What is to last, each by the folder that it is below and its path from there.
#[derive(Debug, Default)]
pub(crate) struct Durable(BTreeSet<(PathBuf, PathBuf)>);

impl Durable {
    /// What is in a file or folder, and its mode.
    pub(crate) fn add(&mut self, top: &Path, path: &Path) {
        self.0.insert((top.to_owned(), path.to_owned()));
    }

    /// The names on the way from `top` to a path.
    pub(crate) fn names(&mut self, top: &Path, path: &Path) {
        path.ancestors().skip(1).for_each(|above| self.add(top, above));
    }

    /// Makes it last; `roots` are on the file systems that it is on. What is not there any more needs nothing, and no link
    /// is followed.
    pub(crate) fn sync(&self, roots: &[&Path]) -> io::Result<()> {
        if self.0.len() > ONE_BY_ONE_MAX {
            return roots.iter().try_for_each(|root| sync_whole(root));
        }
        for (top, path) in &self.0 {
            match open(top, path) {
                Ok(Some(opened)) => opened.sync_all()?,
                Ok(None) => continue,
                // Its owner has locked itself out.
                Err(Errno::ACCESS) => sync_whole(top)?,
                Err(errno) => return Err(errno.into()),
            }
            done(Done::Synced(&top.join(path)));
        }
        Ok(())
    }
}

fn sync_whole(root: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(root)?)?;
    done(Done::Whole(root));
    Ok(())
}

/// Opens a file or folder; `None` where there is neither.
fn open(top: &Path, path: &Path) -> Result<Option<File>, Errno> {
    let root = rustix::fs::open(top, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat2(root, path, flags, Mode::empty(), inside()) {
        Ok(opened) => Ok(Some(File::from(opened))),
        // A link is in its folder, and so is what is gone.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes a folder's names last.
pub(crate) fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    // The descriptor may be one that only names the folder.
    let readable =
        rustix::fs::openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(readable)
}
