//! One step of a commit: a single change to the workspace, done, taken back, and looked at.
//!
//! Start at [`Step`]. What always holds: a step that an interruption cut off can be done or taken back again and comes to
//! the same; what it replaces goes aside and is not lost; nothing is reached through a link of the workspace.
//! Deliberately absent: the order of steps and what is written down of them (`commit`).

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::failpoint::pass;
use crate::image::{Image, Kind};
use crate::layer::{at, unmark};
use crate::transfer::{Way, there, there_in, within};

/// One step of a commit. Its place in the workspace is beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Put a file of the layer in place.
    Put {
        /// What it is.
        after: Image,
        /// What it replaces.
        before: Option<Image>,
    },
    /// Make a folder.
    Folder {
        /// Its permissions.
        mode: u32,
        /// Its user and group.
        owner: (u32, u32),
        /// What it replaces, which is no folder.
        before: Option<Image>,
    },
    /// Change a folder's permissions.
    Mode {
        /// What they were.
        from: u32,
        /// What they become.
        to: u32,
    },
    /// Take a file or a folder with all that is in it away.
    Remove {
        /// What it was.
        before: Image,
    },
    /// Give something of the workspace this place.
    Move {
        /// Where it was.
        from: Name,
        /// What it is.
        image: Image,
    },
}

impl Step {
    /// Does the step, or what an interruption has left of it.
    pub(crate) fn apply(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let parent = beneath(root, path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        match self {
            Step::Put { .. } => {
                if there(&upper) {
                    // Also what somebody put there since it was planned.
                    way.set_aside(&parent, name, &old)?;
                    pass();
                    unmark(&upper);
                }
                put_if_there(way, &upper, &parent, name)
            }
            Step::Folder { mode, owner, before } => {
                if before.is_some() {
                    way.take_away(&parent, name, &old)?;
                    pass();
                }
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(*mode)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let made = open_folder(&parent, name)?;
                if rustix::process::geteuid().is_root() {
                    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.0), rustix::fs::Gid::from_raw(owner.1));
                    rustix::fs::fchown(&made, Some(uid), Some(gid))?;
                }
                rustix::fs::fchmod(&made, Mode::from_raw_mode(*mode))
            }
            Step::Mode { to, .. } => rustix::fs::fchmod(open_folder(&parent, name)?, Mode::from_raw_mode(*to)),
            Step::Remove { .. } => way.take_away(&parent, name, &old),
            Step::Move { from, .. } => relocate(root, from.path(), &parent, name),
        }
    }

    /// Takes the step back, or what an interruption has left of it. A step that was not done is none.
    pub(crate) fn revert(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        let parent = match beneath(root, path.parent().unwrap_or(Path::new(""))) {
            // Its folder was not made yet, or is gone already. What was kept of it would have no place to come back to.
            Err(Errno::NOENT | Errno::NOTDIR) if !there(&old) && !way.is_leaving(&old) => return Ok(()),
            Err(_) if there(&upper) && !there(&old) => return Ok(()),
            parent => parent?,
        };
        match self {
            Step::Put { .. } => {
                // What was not placed is in the layer still.
                if !there(&old) && !way.is_leaving(&old) {
                    return way.take_away(&parent, name, &upper);
                }
                if old.is_dir() && !old.is_symlink() {
                    // A folder cannot take a file's place in one step.
                    way.take_away(&parent, name, &upper)?;
                } else {
                    way.set_aside(&parent, name, &upper)?;
                }
                pass();
                way.put_in_place(&old, &parent, name)
            }
            Step::Folder { before, .. } => {
                match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                    // What came into the folder later stays, and so does the folder, unless something else is to be there.
                    Err(Errno::NOTEMPTY) if before.is_none() => return Ok(()),
                    Err(errno) => return Err(errno),
                }
                pass();
                put_if_there(way, &old, &parent, name)
            }
            Step::Mode { from, .. } => rustix::fs::fchmod(open_folder(&parent, name)?, Mode::from_raw_mode(*from)),
            Step::Remove { .. } => put_if_there(way, &old, &parent, name),
            Step::Move { from, .. } => {
                let from = from.path();
                let back = beneath(root, from.parent().unwrap_or(Path::new("")))?;
                let old_name = from.file_name().unwrap_or_default();
                if there_in(&back, old_name) { Ok(()) } else { relocate(root, path, &back, old_name) }
            }
        }
    }

    /// Whether the workspace still is as this step left it (`stands`), or as it was before when taking it back came to rest
    /// at that time.
    pub(crate) fn may(&self, root: &OwnedFd, at: &Name, stands: bool, rested: Option<(i64, i64)>) -> bool {
        let host = |path: &Path| {
            let parent = beneath(root, path.parent().unwrap_or(Path::new(""))).ok()?;
            Some((within(&parent, path.file_name().unwrap_or_default()), parent))
        };
        let is = |name: &Name, image: Option<&Image>| match (host(name.path()), image) {
            (Some((path, _parent)), Some(image)) => image.stands_at(&path),
            (Some((path, _parent)), None) => !there(&path),
            (None, image) => image.is_none(),
        };
        let is_folder = || is(at, Some(&Image::folder(0)));
        // And where the folder above is gone, nothing can come back.
        let has_room = |name: &Name| host(name.path()).is_some_and(|(path, _parent)| !there(&path));
        // A folder goes with all that is in it.
        let before = |image: Option<&Image>| {
            let changed = || host(at.path()).and_then(|(path, _parent)| Some(Image::look(&path)?.1));
            let holds = image.is_some_and(|image| image.kind == Kind::Folder);
            is(at, image) && (!holds || rested.is_none_or(|rested| changed().is_some_and(|changed| changed <= rested)))
        };
        match self {
            Step::Put { after, .. } if stands => is(at, Some(after)),
            Step::Put { before: image, .. } => before(image.as_ref()),
            Step::Folder { .. } if stands => is_folder(),
            // A folder that stayed because something is in it is there already.
            Step::Folder { before, .. } => is(at, before.as_ref()) || (before.is_none() && is_folder()),
            Step::Mode { .. } => is_folder(),
            Step::Remove { .. } if stands => has_room(at),
            Step::Remove { before: image } => before(Some(image)),
            Step::Move { from, image } if stands => is(at, Some(image)) && has_room(from),
            Step::Move { from, image } => is(at, None) && is(from, Some(image)),
        }
    }
}

/// Puts what was kept in its place; where there is nothing of it, that was done already or never needed.
fn put_if_there(way: &Way<'_>, kept: &Path, parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    if there(kept) || way.is_leaving(kept) { way.put_in_place(kept, parent, name) } else { Ok(()) }
}

/// Moves within the workspace to where nothing is, unless that has been done.
fn relocate(root: &OwnedFd, from: &Path, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let parent = beneath(root, from.parent().unwrap_or(Path::new("")))?;
    let old_name = from.file_name().unwrap_or_default();
    match rustix::fs::renameat_with(&parent, old_name, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::NOENT) if there_in(to, name) => Ok(()),
        done => done,
    }
}

impl Image {
    /// A folder with these permissions; nothing else of it is held to.
    pub(crate) fn folder(mode: u32) -> Image {
        Image::plain(Kind::Folder, mode)
    }
}

/// A path that any record can hold. Ordered by part, as paths are, so that a folder comes before what is in it and `a/b`
/// before `a-b`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(PathBuf);

impl Name {
    pub(crate) fn of(path: &Path) -> Self {
        Name(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// As text, in which `%` and bytes that are none are written as `%` and two digits.
impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.as_os_str().len());
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02x}")));
        }
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            /// So version 0.1.0 wrote it: the bytes of each part.
            Parts(Vec<Vec<u8>>),
        }
        let text = match Written::deserialize(from)? {
            Written::Text(text) => text,
            Written::Parts(parts) => return Ok(Name(parts.into_iter().map(OsString::from_vec).collect())),
        };
        let mut pieces = text.split('%');
        let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            let byte = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| serde::de::Error::custom("`%` without two digits"))?);
            bytes.extend_from_slice(&piece.as_bytes()[2..]);
        }
        Ok(Name(OsString::from_vec(bytes).into()))
    }
}

/// How paths below a workspace are followed: no link is, and nothing leads out.
pub(crate) fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Opens a workspace by its real path: a link that has taken its place, or that of a folder above, since leads nowhere.
pub(crate) fn open_root(workspace: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(CWD, workspace, flags, Mode::empty(), plain);
    opened.map_err(|errno| at(workspace)(errno.into()))
}

/// Opens a folder below the workspace. Links in it are a command's work and lead nowhere.
fn beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), inside())
}

/// The names in a folder below the workspace.
pub(crate) fn names(root: &OwnedFd, path: &Path) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat2(root, path, flags, Mode::empty(), inside())?;
    let names = Dir::read_from(folder)?.map(|entry| Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec())));
    names.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}
