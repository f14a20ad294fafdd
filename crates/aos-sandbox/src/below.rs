//! What is below a folder, whatever a command has made of it: looked at, measured and deleted.
//!
//! Start at [`Below::of`] and [`delete`]. What always holds: no link is followed and nothing outside is reached, also while
//! a command moves things about; neither the stack nor open descriptors grow with the depth; a look ends at stated
//! limits and says so; a deletion has none, and needs no path longer than two names.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::step::inside;

/// The most folders inside one another that are looked at, and that a layer may have. The deepest trees that tools are
/// known to make have under a hundred; whoever goes through this crate's by recursion, one stack frame of some 2 KiB a level,
/// stays within a quarter of a thread's 2 MiB.
pub const LEVELS_MAX: usize = 256;

/// How many entries are looked at; 2 µs each.
pub(crate) const ENTRIES_MAX: usize = 200_000;

/// How many bytes the paths of folders may have together that are still to be looked at. A hundred thousand of them with
/// long names fit; what only wants to fill memory does not.
const PATHS_BYTES_MAX: usize = 64 << 20;

/// A folder's owner's leave to look into it, and to change it too.
pub(crate) const LOOK: u32 = 0o500;
pub(crate) const ALL: u32 = 0o700;

/// What is below a folder, as far as it was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// Bytes of all files and links as they are read.
    pub(crate) bytes: u64,
    /// Bytes that everything takes on the disk; what has several names is counted once.
    pub(crate) on_disk: u64,
    /// The same, but what has several names counted for each: what copies of everything take, one by one.
    pub(crate) copied: u64,
    /// Files, folders and all else.
    pub(crate) entries: usize,
    /// When the last of them changed, its content, name or permissions: in seconds and nanoseconds since 1970.
    pub(crate) changed: (i64, i64),
    /// Why that is not all, if it is not.
    pub(crate) unseen: Option<Unseen>,
}

/// Why not all of a folder was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// Folders are more than [`LEVELS_MAX`] deep, or their paths longer than the kernel takes.
    Deep,
    /// There are more than were to be looked at.
    Many,
    /// One cannot be read.
    Locked,
}

impl Below {
    /// Looks at everything below `top`, at most `most` entries. What a command has locked for its own user can be looked into
    /// by that user again with `unlock`, which only layers want; what vanishes meanwhile is not there.
    pub(crate) fn of(top: &Path, most: usize, unlock: bool) -> Below {
        let mut below = Below::default();
        let mut seen = HashSet::new();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(top) = rustix::fs::open(top, flags, Mode::empty()) else {
            return Below { unseen: Some(Unseen::Locked), ..below };
        };
        if unlock {
            give(&top, LOOK);
        }
        let mut ahead = vec![(PathBuf::from("."), 1)];
        let mut paths = 0;
        while let Some((path, level)) = ahead.pop() {
            paths -= if level == 1 { 0 } else { path.as_os_str().len() };
            let visit = |name: &CStr, stat: &Stat| {
                below.entries += 1;
                if below.entries > most {
                    return Err(Unseen::Many);
                }
                below.changed = below.changed.max((stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)));
                let blocks = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                below.copied += blocks;
                if stat.st_nlink < 2 || is_folder(stat) || seen.insert(stat.st_ino) {
                    below.on_disk += blocks;
                }
                if !is_folder(stat) {
                    below.bytes += u64::try_from(stat.st_size).unwrap_or(0);
                    return Ok(());
                }
                let path = path.join(OsStr::from_bytes(name.to_bytes()));
                paths += path.as_os_str().len();
                if level == LEVELS_MAX {
                    return Err(Unseen::Deep);
                }
                if paths > PATHS_BYTES_MAX {
                    return Err(Unseen::Many);
                }
                ahead.push((path, level + 1));
                Ok(())
            };
            if let Err(unseen) = folder(&top, &path, unlock).and_then(|folder| each(&folder, visit)) {
                below.unseen = Some(unseen);
                return below;
            }
        }
        below
    }
}

/// Whether this user could delete a folder with all that is in it, once it is in a place of theirs. What somebody else owns can
/// be moved with what it lies in, and stays for good where they have closed it.
pub(crate) fn can_be_deleted(top: &Path) -> bool {
    let me = rustix::process::geteuid();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = rustix::fs::open(top, flags, Mode::empty()) else { return false };
    let mut ahead = vec![(PathBuf::from("."), 1)];
    while let Some((path, level)) = ahead.pop().filter(|_| !me.is_root()) {
        let Ok(folder) = folder(&top, &path, false) else { return false };
        let Some(stat) = folder.as_ref().and_then(|folder| rustix::fs::fstat(folder).ok()) else { continue };
        let leave = Access::WRITE_OK | Access::EXEC_OK;
        let lets = |folder: &OwnedFd| rustix::fs::accessat(folder, ".", leave, AtFlags::EACCESS).is_ok();
        let theirs = stat.st_uid != me.as_raw();
        let closed = theirs && !folder.as_ref().is_some_and(lets);
        let sticky = theirs && stat.st_mode & 0o1000 != 0;
        let visit = |name: &CStr, stat: &Stat| {
            if closed || (sticky && stat.st_uid != me.as_raw()) || level > LEVELS_MAX {
                return Err(Unseen::Locked);
            }
            if is_folder(stat) {
                ahead.push((path.join(OsStr::from_bytes(name.to_bytes())), level + 1));
            }
            Ok(())
        };
        if each(&folder, visit).is_err() {
            return false;
        }
    }
    true
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// Opens a folder below `top`; `None` where it is gone by now.
fn folder(top: &OwnedFd, path: &Path, unlock: bool) -> Result<Option<OwnedFd>, Unseen> {
    match named(top, path).and_then(|named| {
        if unlock {
            give(&named, LOOK);
        }
        readable(&named)
    }) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(Errno::NAMETOOLONG) => Err(Unseen::Deep),
        Err(_) => Err(Unseen::Locked),
    }
}

/// Shows every entry of a folder.
fn each(folder: &Option<OwnedFd>, mut visit: impl FnMut(&CStr, &Stat) -> Result<(), Unseen>) -> Result<(), Unseen> {
    let Some(folder) = folder else { return Ok(()) };
    for entry in Dir::read_from(folder).map_err(|_| Unseen::Locked)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => return Err(Unseen::Locked),
        };
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => visit(name, &stat)?,
            Err(Errno::NOENT) => {}
            Err(_) => return Err(Unseen::Locked),
        }
    }
    Ok(())
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Opens a folder beneath another, through no link, also one whose owner has no leave to read, enter or change it, who gets
/// that.
fn open(top: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let named = named(top, path)?;
    give(&named, ALL);
    readable(&named)
}

fn named(top: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(top, path, flags, Mode::empty(), inside())
}

fn readable(named: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(named, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Gives a folder's owner leave. What somebody else owns stays as it is; whether one gets in shows when one tries.
fn give(named: &OwnedFd, leave: u32) {
    let Ok(stat) = rustix::fs::fstat(named) else { return };
    let mode = with(stat.st_mode, leave);
    if mode != stat.st_mode & 0o7777 {
        let path = format!("/proc/self/fd/{}", named.as_raw_fd());
        let _ = rustix::fs::chmod(path, Mode::from_raw_mode(mode));
    }
}

/// Gives a folder's owner leave, and returns what is known of it then.
pub(crate) fn unlock(folder: &Path, leave: u32) -> io::Result<std::fs::Metadata> {
    let meta = std::fs::symlink_metadata(folder)?;
    let mode = with(meta.mode(), leave);
    if mode == meta.mode() & 0o7777 {
        return Ok(meta);
    }
    std::fs::set_permissions(folder, PermissionsExt::from_mode(mode))?;
    std::fs::symlink_metadata(folder)
}

/// Permissions with such leave for the owner; root needs none.
pub(crate) fn with(mode: u32, leave: u32) -> u32 {
    let root = rustix::process::geteuid().is_root();
    mode & 0o7777 | if root { 0 } else { leave }
}

/// Deletes a file or a folder with all that is in it, however deep, also what a command or overlayfs has locked; nothing is
/// fine too.
///
/// A folder that is not empty is emptied by moving the folders in it up to the top one: so none is ever more than one level
/// down, and an interruption leaves only less of it.
///
/// # Errors
/// What the operating system says.
pub fn delete(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.is_dir() => return std::fs::remove_file(path),
        Ok(_) => {}
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let named = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    give(&named, ALL);
    let top = readable(&named)?;
    let mut moved = 0;
    // A folder that changes while it is read may show some names only when it is read again.
    while without_dots(&top, |name| {
        if !unlinked(&top, name)? {
            let folder = open(&top, name)?;
            raise(&folder, &top, &mut moved)?;
            // What is deleted while it is open costs a file system far more.
            drop(folder);
            rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    })? {}
    std::fs::remove_dir(path)
}

/// Does something with each name in a folder; whether there was any.
fn without_dots(folder: &OwnedFd, mut with: impl FnMut(&CStr) -> Result<(), Errno>) -> Result<bool, Errno> {
    let mut any = false;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            any = true;
            with(entry.file_name())?;
        }
    }
    Ok(any)
}

/// Deletes a name, unless it is a folder's that is not empty.
fn unlinked(folder: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(true),
        stat => stat?,
    };
    let flags = if is_folder(&stat) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) if is_folder(&stat) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Empties a folder: what is in it is deleted, folders that are not empty go to `top`.
fn raise(folder: &OwnedFd, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    while without_dots(folder, |name| {
        if unlinked(folder, name)? {
            return Ok(());
        }
        // Whoever moves a folder writes to it.
        drop(open(folder, name)?);
        loop {
            *moved += 1;
            match rustix::fs::renameat(folder, name, top, format!("{moved}")) {
                // A name that is taken.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                done => return done,
            }
        }
    })? {}
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A chain of folders with a file at its end, made as a command makes it; of some nobody has leave.
    pub(crate) fn chain(top: &Path, levels: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(top, flags, Mode::empty()).unwrap();
        for level in 0..levels {
            rustix::fs::mkdirat(&folder, "a", Mode::from_raw_mode(0o700)).unwrap();
            let next = rustix::fs::openat(&folder, "a", flags, Mode::empty()).unwrap();
            if level % 50 == 0 {
                rustix::fs::mkdirat(&folder, "locked", Mode::from_raw_mode(0o700)).unwrap();
                rustix::fs::mkdirat(&folder, "locked/in", Mode::from_raw_mode(0o700)).unwrap();
                rustix::fs::chmodat(&folder, "locked", Mode::empty(), AtFlags::empty()).unwrap();
                rustix::fs::fchmod(&folder, Mode::from_raw_mode(0o300)).unwrap();
            }
            folder = next;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&folder, "1", flags, Mode::from_raw_mode(0o600)).unwrap());
        rustix::fs::fchmod(&folder, Mode::empty()).unwrap();
    }

    /// Each level was one more frame on the stack and one more name in a path.
    #[test]
    fn a_tree_of_any_depth_is_deleted() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("deep");
        std::fs::create_dir(&dir).unwrap();
        // Names that it would give itself are taken.
        std::fs::write(dir.join("1"), "").unwrap();
        std::fs::create_dir_all(dir.join("2/in")).unwrap();
        chain(&dir, 2_500);
        delete(&dir).unwrap();
        assert_eq!(room.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_is_outside_is_not_deleted() {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(room.path().join("outside/in")).unwrap();
        std::fs::create_dir_all(room.path().join("dir/folder")).unwrap();
        for link in ["dir/link", "dir/folder/link", "top"] {
            std::os::unix::fs::symlink(room.path().join("outside"), room.path().join(link)).unwrap();
        }
        delete(&room.path().join("dir")).unwrap();
        delete(&room.path().join("top")).unwrap();
        delete(&room.path().join("nothing")).unwrap();
        assert!(room.path().join("outside/in").is_dir());
        assert_eq!(room.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn what_was_not_seen_is_said() {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("one"), [1; 5000]).unwrap();
        std::fs::hard_link(room.path().join("one"), room.path().join("two")).unwrap();
        std::fs::create_dir(room.path().join("locked")).unwrap();
        std::fs::write(room.path().join("locked/in"), [1; 3000]).unwrap();
        std::fs::set_permissions(room.path().join("locked"), PermissionsExt::from_mode(0o300)).unwrap();
        if !rustix::process::geteuid().is_root() {
            assert_eq!(Below::of(room.path(), 10, false).unseen, Some(Unseen::Locked));
        }
        let below = Below::of(room.path(), 4, true);
        assert_eq!((below.bytes, below.entries, below.unseen), (13_000, 4, None));
        assert!((8_000..40_000).contains(&below.on_disk), "{below:?}");
        assert_eq!(Below::of(room.path(), 3, true).unseen, Some(Unseen::Many));
        std::fs::create_dir(room.path().join("deep")).unwrap();
        chain(&room.path().join("deep"), LEVELS_MAX + 1);
        assert_eq!(Below::of(room.path(), ENTRIES_MAX, true).unseen, Some(Unseen::Deep));
    }
}
