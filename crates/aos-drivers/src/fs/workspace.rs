//! The workspace as an open folder, and the only ways down from it.
//!
//! Start at [`Workspace::open`]. What always holds: a descriptor that comes from here is beneath the workspace at the
//! moment it is opened, whoever renames or links what meanwhile, since the kernel checks it while it walks
//! (`openat2(2)`: `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

use super::error::Error;
use super::path::Beneath;
use super::place::Place;
use super::walk::{Door, Visit, Walked, walk};

/// Beneath the folder and through no link of any kind.
pub(crate) const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Beneath the folder, links of files followed.
const LINKED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
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
pub(crate) struct Workspace<'p> {
    pub(super) root: OwnedFd,
    place: &'p Place,
}

impl<'p> Workspace<'p> {
    /// Opens the folder. Its path comes from the daemon and holds no link, unless somebody who can write above it has put
    /// one there since: then it is not the folder that was named.
    pub(crate) fn open(place: &'p Place) -> Result<Workspace<'p>, Error> {
        let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let shown = place.root.display().to_string();
        let opened = rustix::fs::openat2(CWD, &place.root, FOLDER, Mode::empty(), plain);
        let root = opened.map_err(|errno| match errno {
            Errno::LOOP => Error::Replaced { path: shown },
            errno => Error::system(&shown)(errno),
        })?;
        Ok(Workspace { root, place })
    }

    /// Opens something beneath the workspace, or beneath the mount that the path leads into.
    pub(super) fn opened(&self, path: &Beneath, flags: OFlags, rules: ResolveFlags) -> Result<OwnedFd, Error> {
        match self.place.mount(path.as_str()) {
            None => open_at(&self.root, path.for_kernel(), flags, rules)
                .map_err(|errno| explain(&self.root, "", path.for_kernel(), errno)),
            Some((mount, rest)) => {
                let root = mount.open()?;
                open_at(&root, rest, flags, rules).map_err(|errno| explain(&root, &mount.at, rest, errno))
            }
        }
    }

    /// A folder beneath, for reading and for `*at` calls.
    pub(crate) fn folder(&self, path: &Beneath) -> Result<OwnedFd, Error> {
        self.opened(path, FOLDER, INSIDE)
    }

    /// A regular file beneath, opened for reading, and what it is.
    pub(crate) fn file(&self, path: &Beneath) -> Result<(File, Stat), Error> {
        let file = self.opened(path, FILE, INSIDE)?;
        let stat = rustix::fs::fstat(&file).map_err(Error::system(path.as_str()))?;
        regular(&stat, path.as_str())?;
        Ok((File::from(file), stat))
    }

    /// The path, through no link and without `..`, of what has this one for a command; `None` where nothing is there, or it
    /// is outside. Only looks.
    pub(super) fn real(&self, path: &str) -> Option<String> {
        open_at(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, LINKED)
            .ok()
            .and_then(|found| leads(&self.root, &found))
    }

    /// Visits what is below a folder as [`walk`] does, mounts at the top of the workspace included.
    pub(super) fn walk(&self, folder: &OwnedFd, at: &Beneath, depth: u32, visit: Visit<'_>) -> Result<Walked, Error> {
        let doors: Vec<Door> = match at.as_str() {
            "" => self.place.mounts.iter().map(|m| Door { name: m.at.clone(), folder: m.open().ok() }).collect(),
            _ => Vec::new(),
        };
        walk(folder, at, depth, &doors, visit)
    }

    /// The folder that holds `path`, and the last name of it, for a change.
    pub(crate) fn parent<'n>(&self, path: &'n Beneath, missing: Missing) -> Result<(OwnedFd, &'n str), Error> {
        if self.place.mount(path.as_str()).is_some() {
            return Err(Error::Mounted { path: path.as_str().to_owned() });
        }
        let (above, name) = path.split()?;
        let kernel = if above.is_empty() { "." } else { above };
        match beneath(&self.root, kernel, FOLDER) {
            Ok(folder) => Ok((folder, name)),
            Err(Errno::NOENT) if missing == Missing::Make => Ok((self.make(above)?, name)),
            Err(errno) => Err(explain(&self.root, "", kernel, errno)),
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
            at = next.map_err(|errno| explain(&self.root, "", path, errno))?;
        }
        Ok(at)
    }
}

/// Turns the refusals of `openat2` into what the agent can do about them. `at` is where `root` stands in the workspace.
fn explain(root: &OwnedFd, at: &str, path: &str, errno: Errno) -> Error {
    let shown = joined(at, path);
    match errno {
        Errno::LOOP => through_link(root, at, path),
        Errno::XDEV => Error::Outside { path: Error::shown(&shown), why: "it leads out" },
        // What `open` says of a socket, and of a device without a driver.
        Errno::NXIO | Errno::NODEV => Error::Kind { path: shown, kind: "a socket or a device" },
        errno => Error::system(&shown)(errno),
    }
}

/// Where a path goes that has a link in it. Only looks (`O_PATH`), and never outside.
fn through_link(root: &OwnedFd, at: &str, path: &str) -> Error {
    let shown = joined(at, path);
    match rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), LINKED) {
        Ok(found) => {
            let leads = leads(root, &found).filter(|leads| !leads.is_empty());
            Error::Link { path: shown, leads: leads.map(|leads| joined(at, &leads)) }
        }
        Err(Errno::XDEV) => {
            Error::Outside { path: Error::shown(&shown), why: "a symbolic link in it leads out of the workspace" }
        }
        Err(_) => Error::Link { path: shown, leads: None },
    }
}

/// The path of what was found below a folder, from there.
fn leads(root: &OwnedFd, found: &OwnedFd) -> Option<String> {
    let place = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
    let (found, root) = (place(found)?, place(root)?);
    found.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

fn joined(at: &str, path: &str) -> String {
    match (at, path) {
        ("", path) => path.to_owned(),
        (at, ".") => at.to_owned(),
        (at, path) => format!("{at}/{path}"),
    }
}

/// Opens beneath a folder, trying again where a rename raced.
pub(crate) fn beneath(folder: impl AsFd, path: impl Arg + Copy, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_at(folder, path, flags, INSIDE)
}

/// The same with other rules of resolution.
pub(crate) fn open_at(
    folder: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    rules: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut races = 0;
    loop {
        match rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), rules) {
            // `XDEV` also where what was found has been moved out since, in the exchange by which it is replaced: then another
            // look finds what is there now, and what does lead out is met again.
            Err(Errno::AGAIN | Errno::INTR | Errno::XDEV) if races < RACES_MAX => races += 1,
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
