//! One step of a commit: a single change to the workspace, done, taken back, and looked at.
//!
//! Start at [`Step`]. What always holds: a step that an interruption cut off can be done or taken back again and comes to
//! the same; what it replaces goes aside and is not lost; nothing is reached through a link of the workspace.
//! Deliberately absent: the order of steps and what is written down of them (`commit`).

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::below::{ALL, with};
use crate::error::Error;
use crate::failpoint::pass;
use crate::image::{Image, Kind};
use crate::layer::{at, unmark};
use crate::transfer::{
    Way, end_exchange, inode, is_folder_in, is_near, is_one, rename, same, set_mode, there, there_in, within,
};

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

/// Why a step was not made or taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It would take something that is somebody else's.
    Taken,
    /// The operating system said no.
    System(Errno),
}

impl From<Errno> for Stopped {
    fn from(errno: Errno) -> Stopped {
        // Nothing is put where something else is.
        if errno == Errno::EXIST { Stopped::Taken } else { Stopped::System(errno) }
    }
}

/// Which way a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Forward,
    Back,
}

impl Step {
    /// Does the step, or what an interruption has left of it.
    pub(crate) fn apply(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Stopped> {
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        let parent = match (beneath(root, path.parent().unwrap_or(Path::new(""))), self) {
            // Gone with its folder, or placed before that went.
            (Err(Errno::NOENT | Errno::NOTDIR), Step::Mode { .. } | Step::Remove { .. }) => return Ok(()),
            (Err(Errno::NOENT | Errno::NOTDIR), Step::Put { .. }) if !way.keeps(&upper) => return Ok(()),
            (parent, _) => parent?,
        };
        self.end_exchange(way, &parent, path)?;
        if self.takes(Turn::Forward, way, root, path) {
            return Err(Stopped::Taken);
        }
        // Where an undo was cut off and turned round.
        way.call_out_back(&parent, name, &upper)?;
        way.call_in_back(&parent, name, &old)?;
        match self {
            Step::Put { after, before } => {
                if there(&upper) && way.keeps(&old) && way.rests(after, &parent, name, &old) {
                    // It could not be taken out of its place again.
                    return Ok(way.drop_held(&upper, &parent, name)?);
                }
                if there(&upper) {
                    if let Some(before) = before {
                        way.set_aside(&parent, name, &old, Some(before))?;
                    }
                    pass();
                    unmark(&upper);
                }
                put_if_there(way, &upper, &parent, name, before.as_ref().map(|before| (&*old, before)))?;
            }
            Step::Folder { mode, owner, before } => {
                if before.is_some() && is_folder_in(&parent, name) != Some(true) {
                    way.take_away(&parent, name, &old, before.as_ref())?;
                    pass();
                }
                let lent = self.lends().map(|_| path);
                way.make_folder(&parent, name, with(*mode, ALL), *owner, lent)?;
            }
            Step::Mode { from, to } => {
                change_mode(&parent, name, &[*from, with(*from, ALL), *to], with(*to, ALL))?;
            }
            Step::Remove { before } => way.take_away(&parent, name, &old, Some(before))?,
            Step::Move { from, image } => {
                relocate(root, from.path(), &parent, name)?;
                image.locks_again(&parent, name)?;
            }
        }
        Ok(())
    }

    /// Takes the step back, or what an interruption has left of it. A step that was not done is none.
    pub(crate) fn revert(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Stopped> {
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        let parent = beneath(root, path.parent().unwrap_or(Path::new("")));
        if let Ok(parent) = &parent {
            self.end_exchange(way, parent, path)?;
        }
        if self.takes(Turn::Back, way, root, path) {
            return Err(Stopped::Taken);
        }
        let parent = match parent {
            // Its folder was not made yet, or is gone already.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(_) if there(&upper) && !there(&old) => return Ok(()),
            parent => parent?,
        };
        // Where a commit was cut off and turned round.
        way.call_out_back(&parent, name, &old)?;
        way.call_in_back(&parent, name, &upper)?;
        match self {
            Step::Put { after, before } => {
                // What was not placed is in the layer still.
                if !way.keeps(&old) {
                    return Ok(way.take_away(&parent, name, &upper, None)?);
                }
                let file = before.as_ref().filter(|before| before.kind != Kind::Folder);
                if there(&upper) && file.is_some_and(|before| way.rests(before, &parent, name, &upper)) {
                    // It could not be put in its place.
                    return Ok(way.drop_held(&old, &parent, name)?);
                }
                if old.is_dir() && !old.is_symlink() {
                    // A folder cannot take a file's place in one step.
                    way.take_away(&parent, name, &upper, None)?;
                } else {
                    way.set_aside(&parent, name, &upper, None)?;
                }
                pass();
                way.put_in_place(&old, &parent, name, Some(&upper), Some(after))?;
                before.as_ref().map_or(Ok(()), |before| before.locks_again(&parent, name))?;
            }
            Step::Folder { before, .. } => {
                way.unmake_folder(&parent, name)?;
                match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                    // What came into the folder later stays, and so does the folder, unless something else is to be there.
                    Err(Errno::NOTEMPTY) if before.is_none() => return self.lock(way, root, path),
                    Err(errno) => return Err(errno.into()),
                }
                pass();
                way.forget_made(path)?;
                put_if_there(way, &old, &parent, name, None)?;
            }
            Step::Mode { from, to } => {
                change_mode(&parent, name, &[*to, with(*to, ALL), with(*from, ALL)], *from)?;
            }
            Step::Remove { before } => {
                put_if_there(way, &old, &parent, name, None)?;
                before.locks_again(&parent, name)?;
            }
            Step::Move { from, image } => {
                let from = from.path();
                let old_name = from.file_name().unwrap_or_default();
                let back = beneath(root, from.parent().unwrap_or(Path::new("")));
                if there_in(&parent, name) && !back.as_ref().is_ok_and(|back| there_in(back, old_name)) {
                    relocate(root, path, back.as_ref().map_err(|errno| *errno)?, old_name)?;
                }
                if let Ok(back) = back {
                    image.locks_again(&back, old_name)?;
                }
            }
        }
        Ok(())
    }

    /// Ends what a cut has left where two files had changed places and nobody had looked yet what came out. Either way of the
    /// step may have begun it.
    pub(crate) fn end_exchange(&self, way: &Way<'_>, parent: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let Step::Put { after, before: Some(before) } = self else { return Ok(()) };
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        way.change_back(parent, name, &upper)?;
        way.change_back(parent, name, &old)?;
        if before.kind == Kind::Folder || !there(&old) || !there(&upper) {
            return Ok(());
        }
        if is_one(&upper, &old) {
            // What came out is what is kept: only its second name had to go, whatever became of the file since.
            let twin = match (before.stands_at(&old), after.stands_at(&upper)) {
                (true, true) if after.is_inode(&upper) => Some(&old),
                (true, _) => Some(&upper),
                (false, true) => Some(&old),
                (false, false) => None,
            };
            if let Some(twin) = twin {
                return rustix::fs::unlinkat(CWD, twin, AtFlags::empty());
            }
        }
        let here = within(parent, name);
        // A copy may differ from what it is of in what no other file system, or nobody but an owner, can give it.
        let is_other = |held: &Path| is_near(parent, held) && !same(held, &here);
        if after.stands_at(&here) && !after.stands_at(&upper) && is_other(&upper) {
            return end_exchange(&upper, parent, name, inode(&here), &old, Some(before));
        }
        if before.stands_at(&here) && !before.stands_at(&old) && is_other(&old) {
            return end_exchange(&old, parent, name, inode(&here), &upper, Some(after));
        }
        Ok(())
    }

    /// Whether nothing changes by it, and it only lends leave to what is changed in a folder.
    pub(crate) fn is_leave(&self) -> bool {
        matches!(self, Step::Mode { from, to } if from == to)
    }

    /// The permissions that a folder has by this step, and those that it has while what is in it changes, if its owner could not
    /// do that with the first.
    fn lends(&self) -> Option<(u32, u32)> {
        let (Step::Folder { mode, .. } | Step::Mode { to: mode, .. }) = self else { return None };
        Some((*mode, with(*mode, ALL))).filter(|(mode, lent)| mode != lent)
    }

    /// Ends what a folder was lent: all that is in it is done.
    pub(crate) fn lock(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Stopped> {
        self.lends().map_or(Ok(()), |(mode, lent)| self.leave(way, root, path, (lent, mode)))
    }

    /// Lends it again, so that it can be taken back.
    pub(crate) fn unlock(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> Result<(), Stopped> {
        self.lends().map_or(Ok(()), |(mode, lent)| self.leave(way, root, path, (mode, lent)))
    }

    /// A folder that somebody made where the step would have made one was lent nothing, whatever permissions it has.
    fn leave(&self, way: &Way<'_>, root: &OwnedFd, path: &Path, (from, to): (u32, u32)) -> Result<(), Stopped> {
        let name = path.file_name().unwrap_or_default();
        match beneath(root, path.parent().unwrap_or(Path::new(""))) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Ok(parent) if matches!(self, Step::Folder { .. }) && !way.has_made(path, &parent, name) => Ok(()),
            parent => Ok(change_mode(&parent?, name, &[from], to)?),
        }
    }

    /// Whether going on with the step from wherever an interruption has left it, or taking it back from there, would take
    /// something from the workspace that is neither what was there before nor what the commit put there, or has no place
    /// to bring back what is kept. Then it is the other way that has to be gone, or none.
    pub(crate) fn takes(&self, turn: Turn, way: &Way<'_>, root: &OwnedFd, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (way.layer.upper().join(path), way.layer.old_of(path));
        let forward = turn == Turn::Forward;
        let Ok(parent) = beneath(root, path.parent().unwrap_or(Path::new(""))) else {
            return match self {
                Step::Put { .. } if forward => way.keeps(&upper),
                Step::Folder { .. } | Step::Move { .. } if forward => true,
                _ => !forward && way.keeps(&old),
            };
        };
        if let Step::Move { from, image } = self {
            let here = image.is_inode(&within(&parent, name));
            let back = beneath(root, from.path().parent().unwrap_or(Path::new("")));
            let from = back.map(|back| (within(&back, from.path().file_name().unwrap_or_default()), back));
            let (was, is_was) = match &from {
                Ok((from, _back)) => (there(from), image.is_inode(from)),
                Err(_) => (false, false),
            };
            return match (forward, there_in(&parent, name)) {
                (true, is) => is == was,
                (false, is) => !is_was && is && (was || !here || from.is_err()),
            };
        }
        if !there_in(&parent, name) {
            return false;
        }
        let here = within(&parent, name);
        let folder = here.is_dir() && !here.is_symlink();
        let half_out = way.is_half_out(&parent, name, &old);
        let kept = way.is_ahead(&old, &parent, name);
        match self {
            Step::Put { after, before } if forward => {
                if !way.is_ahead(&upper, &parent, name) {
                    // Placed; but where taking it back was cut off, what is half-way out belongs here.
                    way.is_half_out(&parent, name, &upper)
                } else if !kept {
                    half_out || !before.as_ref().is_some_and(|before| before.stands_at(&here))
                } else if way.is_at(&upper, &parent, name) || after.stands_at(&here) {
                    false
                } else {
                    // It may have been written to where it lies.
                    !way.is_at(&old, &parent, name) || before.as_ref().is_some_and(|before| !before.stands_at(&here))
                }
            }
            Step::Put { after, before } => {
                let ahead = way.is_ahead(&upper, &parent, name);
                let stands = || before.as_ref().is_some_and(|before| before.stands_at(&here));
                if !kept {
                    half_out || !(ahead || after.stands_at(&here))
                } else if way.is_at(&old, &parent, name) {
                    false
                } else if ahead {
                    let taken_back = way.is_at(&upper, &parent, name) && after.stands_at(&here);
                    !(taken_back || stands())
                } else {
                    !after.stands_at(&here)
                }
            }
            Step::Folder { before, .. } if forward => {
                let stands = || before.as_ref().is_some_and(|before| before.stands_at(&here));
                !folder && (half_out || kept || !stands())
            }
            Step::Folder { .. } => half_out || (kept && !folder),
            Step::Remove { before } if forward => !kept && !half_out && !before.stands_at(&here),
            Step::Remove { .. } => half_out || kept,
            Step::Mode { .. } | Step::Move { .. } => false,
        }
    }

    /// Whether going on with the step would take a folder away in which somebody has worked since it was planned, wherever an
    /// interruption has left it. As long as it takes to look through it.
    pub(crate) fn takes_work(&self, way: &Way<'_>, root: &OwnedFd, path: &Path) -> bool {
        let before = match self {
            Step::Remove { before } => before,
            // Else it was looked at, and what is here by now took its place.
            Step::Put { before: Some(before), .. } if there(&way.layer.upper().join(path)) => before,
            _ => return false,
        };
        let name = path.file_name().unwrap_or_default();
        let parent = beneath(root, path.parent().unwrap_or(Path::new("")));
        let (Kind::Folder, Ok(parent)) = (before.kind, parent) else { return false };
        let place = way.original(&parent, name, &way.layer.old_of(path));
        place.is_some_and(|place| !before.stands_whole_at(&place))
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
        let has_mode = |mode: u32| {
            let meta = host(at.path()).and_then(|(path, _parent)| std::fs::symlink_metadata(path).ok());
            meta.is_some_and(|meta| meta.is_dir() && is_mode(meta.mode(), mode))
        };
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
            // Somebody gave it others, and keeps them.
            Step::Mode { .. } if self.is_leave() => true,
            Step::Mode { from, to } => has_mode(if stands { *to } else { *from }),
            Step::Remove { .. } if stands => has_room(at),
            Step::Remove { before: image } => before(Some(image)),
            Step::Move { from, image } if stands => is(at, Some(image)) && has_room(from),
            Step::Move { from, image } => is(at, None) && is(from, Some(image)),
        }
    }
}

/// Puts what was kept in its place; where there is nothing of it, that was done already or never needed.
fn put_if_there(
    way: &Way<'_>,
    held: &Path,
    parent: &OwnedFd,
    name: &OsStr,
    kept: Option<(&Path, &Image)>,
) -> Result<(), Errno> {
    if !way.keeps(held) {
        return Ok(());
    }
    way.put_in_place(held, parent, name, kept.map(|(kept, _)| kept), kept.map(|(_, seen)| seen))
}

/// Whether a folder has these permissions. Of set-id bits the system may have dropped some.
fn is_mode(now: u32, mode: u32) -> bool {
    (now ^ mode) & 0o1777 == 0
}

/// Gives a folder other permissions, unless somebody has taken it away meanwhile, or given it others themselves.
fn change_mode(parent: &OwnedFd, name: &OsStr, from: &[u32], to: u32) -> Result<(), Errno> {
    let now = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => stat.st_mode,
        Ok(_) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    if !from.iter().any(|from| is_mode(now, *from)) {
        return Ok(());
    }
    match set_mode(parent, name, to) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        done => done,
    }
}

/// Moves within the workspace to where nothing is, unless that has been done.
fn relocate(root: &OwnedFd, from: &Path, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let parent = beneath(root, from.parent().unwrap_or(Path::new("")))?;
    let old_name = from.file_name().unwrap_or_default();
    match rename(&parent, old_name, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::NOENT) if there_in(to, name) => Ok(()),
        done => done,
    }
}

impl Image {
    /// Gives this folder the permissions that a cut kept from it while it was moved.
    fn locks_again(&self, parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let lent = self.kind == Kind::Folder && self.mode & 0o200 == 0 && self.is_inode(&within(parent, name));
        if lent { change_mode(parent, name, &[self.mode | 0o200], self.mode) } else { Ok(()) }
    }

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
pub(crate) fn beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
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
