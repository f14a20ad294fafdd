//! The workspace as an open folder, and the only ways down from it.
//!
//! Start at [`Workspace::open`]. What always holds: a descriptor that comes from here is beneath the workspace at the
//! moment it is opened, whoever renames or links what meanwhile, since the kernel checks it while it walks
//! (`openat2(2)`: `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::Error;
use super::path::Beneath;

/// Beneath the folder and through no link of any kind.
pub(crate) const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// `NONBLOCK`: opening a pipe must not wait for a writer; `NOCTTY`: a terminal must not become ours.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Times an open is tried again when the kernel says that a rename raced with it (`EAGAIN`, see `openat2(2)`).
const RACES_MAX: usize = 16;

/// What to do where a folder on the way is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make it.
    Make,
    /// Fail with `ENOENT`.
    Fail,
}

/// The workspace of one call, held open.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: OwnedFd,
}

impl Workspace {
    /// Opens the folder. Its own path comes from the daemon and is trusted, links included.
    pub(crate) fn open(folder: &Path) -> Result<Workspace, Error> {
        let root =
            rustix::fs::open(folder, FOLDER, Mode::empty()).map_err(Error::system(&folder.display().to_string()))?;
        Ok(Workspace { root })
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// A folder beneath, for reading and for `*at` calls.
    pub(crate) fn folder(&self, path: &Beneath) -> Result<OwnedFd, Error> {
        beneath(&self.root, path.for_kernel(), FOLDER).map_err(|errno| self.explain(path.as_str(), errno))
    }

    /// A regular file beneath, opened for reading, and what it is.
    pub(crate) fn file(&self, path: &Beneath) -> Result<(File, Stat), Error> {
        let file = beneath(&self.root, path.for_kernel(), FILE).map_err(|errno| self.explain(path.as_str(), errno))?;
        let stat = rustix::fs::fstat(&file).map_err(Error::system(path.as_str()))?;
        regular(&stat, path.as_str())?;
        Ok((File::from(file), stat))
    }

    /// The folder that holds `path`, and the last name of it.
    pub(crate) fn parent<'p>(&self, path: &'p Beneath, missing: Missing) -> Result<(OwnedFd, &'p str), Error> {
        let (above, name) = path.split()?;
        let kernel = if above.is_empty() { "." } else { above };
        match beneath(&self.root, kernel, FOLDER) {
            Ok(folder) => Ok((folder, name)),
            Err(Errno::NOENT) if missing == Missing::Make => Ok((self.make(above)?, name)),
            Err(errno) => Err(self.explain(above, errno)),
        }
    }

    /// Makes what is missing of a folder path, one name at a time on the folder above it, each made durable.
    fn make(&self, path: &str) -> Result<OwnedFd, Error> {
        let system = Error::system(path);
        let mut at = self.root.try_clone().map_err(Error::io(path))?;
        for name in path.split('/') {
            let next = match beneath(&at, name, FOLDER) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(system(errno)),
                    }
                    rustix::fs::fsync(&at).map_err(&system)?;
                    beneath(&at, name, FOLDER)
                }
                other => other,
            };
            at = next.map_err(|errno| self.explain(path, errno))?;
        }
        Ok(at)
    }

    /// Turns the refusals of `openat2` into what the agent can do about them.
    fn explain(&self, path: &str, errno: Errno) -> Error {
        match errno {
            Errno::LOOP => self.through_link(path),
            Errno::XDEV => Error::Outside { path: Error::shown(path), why: "it leads out" },
            // What `open` says of a socket, and of a device without a driver.
            Errno::NXIO | Errno::NODEV => Error::Kind { path: path.to_owned(), kind: "a socket or a device" },
            errno => Error::system(path)(errno),
        }
    }

    /// Where a path goes that has a link in it. Only looks (`O_PATH`), and never outside.
    fn through_link(&self, path: &str) -> Error {
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside) {
            Ok(found) => {
                let place = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                let leads = place(&found)
                    .ok()
                    .zip(place(&self.root).ok())
                    .and_then(|(found, root)| found.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_owned));
                Error::Link { path: path.to_owned(), leads: leads.filter(|leads| !leads.is_empty()) }
            }
            Err(Errno::XDEV) => {
                Error::Outside { path: Error::shown(path), why: "a symbolic link in it leads out of the workspace" }
            }
            Err(_) => Error::Link { path: path.to_owned(), leads: None },
        }
    }
}

/// Opens beneath a folder, trying again where a rename raced.
pub(crate) fn beneath(folder: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_at(folder, path, flags, INSIDE)
}

/// The same with other rules of resolution.
pub(crate) fn open_at(folder: impl AsFd, path: &str, flags: OFlags, rules: ResolveFlags) -> Result<OwnedFd, Errno> {
    let mut races = 0;
    loop {
        match rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) if races < RACES_MAX => races += 1,
            opened => return opened,
        }
    }
}

/// Opens one name in an open folder for reading; only where it is a regular file.
pub(crate) fn file_in(folder: impl AsFd, name: &str, path: &str) -> Result<(File, Stat), Error> {
    let file = beneath(folder, name, FILE).map_err(Error::system(path))?;
    let stat = rustix::fs::fstat(&file).map_err(Error::system(path))?;
    regular(&stat, path)?;
    Ok((File::from(file), stat))
}

/// What a name in an open folder is; the link itself where it is a link, `None` where there is nothing.
pub(crate) fn look(folder: impl AsFd, name: &str, path: &str) -> Result<Option<Stat>, Error> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::system(path)(errno)),
    }
}

/// Refuses whatever is no regular file.
pub(crate) fn regular(stat: &Stat, path: &str) -> Result<(), Error> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(Error::system(path)(Errno::ISDIR)),
        FileType::Symlink => return Err(Error::Link { path: path.to_owned(), leads: None }),
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    };
    Err(Error::Kind { path: path.to_owned(), kind })
}
