//! Moving files and folders between a workspace and a layer, also where they are on different file systems.
//!
//! Start at [`Way`]. What always holds: a move that was cut off can be made again and comes to the same; a copy gets its name
//! only when it is whole; no link is followed; what is found under a name that such a move uses is this commit's own, since
//! nobody else can have told the name before. On one file system a move is one rename.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::below::{LEVELS_MAX, delete};
use crate::content::Copies;
use crate::durable::sync_folder;
use crate::failpoint::{Done, done};
use crate::layer::Layer;

/// How the names begin that things have on their way out of a workspace's folder, and into it. Listings, searches and
/// watches leave such names out.
const AWAY: &str = ".aos-draft-away-";
const INTO: &str = ".aos-draft-into-";

/// One turn of a commit, as far as moving things is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'c> {
    pub(crate) layer: &'c Layer,
    /// A secret of this turn, which is in its record; `None` where the record is of the time before there was one.
    pub(crate) nonce: Option<&'c str>,
}

/// A new secret of which names are made.
pub(crate) fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(crate::image::hex(&bytes))
}

impl Way<'_> {
    /// What something of that name is called on its way: no two on their way through one folder have the same, and only
    /// who knows the nonce can tell it. A command that is shown one while it is there learns nothing of the others.
    fn passing(&self, prefix: &str, name: &OsStr) -> String {
        match self.nonce {
            Some(nonce) => {
                format!("{prefix}{}", &crate::image::digest(&[nonce.as_bytes(), name.as_bytes()].concat())[..32])
            }
            // Where it was cut off then, what it moved is under this name and no other.
            None => format!("{prefix}{}", &crate::image::digest(name.as_bytes())[..16]),
        }
    }

    /// Where something is that is on its way from or to a place of the layer. Never beside what a command wrote, which may
    /// have any name: what belongs to the upper folder goes where the commit keeps what it replaced. That is all of one
    /// length, so this is nothing's name there.
    fn own(&self, place: &Path, mark: &str) -> PathBuf {
        match (place.strip_prefix(self.layer.upper()), self.nonce) {
            (Ok(path), Some(_)) => beside(&self.layer.old_of(path), &format!("upper.{mark}")),
            // It is a folder of the layer's own that it is in; or it was begun when there was no such rule.
            _ => beside(place, mark),
        }
    }

    /// Whether a move in was begun and not ended.
    pub(crate) fn is_leaving(&self, from: &Path) -> bool {
        there(&self.own(from, "leaving"))
    }

    /// Moves `name` out of a folder to the path `to`, unless that has been done or there is nothing.
    pub(crate) fn take_away(&self, folder: &OwnedFd, name: &OsStr, to: &Path) -> Result<(), Errno> {
        let away = self.passing(AWAY, name);
        if !there(to) {
            if !there_in(folder, name) && !there_in(folder, away.as_ref()) {
                return Ok(());
            }
            make_parent(to)?;
            if !there_in(folder, away.as_ref()) {
                match rustix::fs::renameat(folder, name, CWD, to) {
                    Ok(()) | Err(Errno::NOENT) => return Ok(()),
                    Err(Errno::XDEV) => {}
                    Err(errno) => return Err(errno),
                }
                // In one step out of sight; then as long as it takes.
                rustix::fs::renameat(folder, name, folder, &away)?;
            }
            crate::failpoint::pass();
            let part = self.own(to, "part");
            delete(&part).map_err(errno)?;
            if let Err(error) = copy(&within(folder, away.as_ref()), &part) {
                let _ = delete(&part);
                rustix::fs::renameat(folder, &away, folder, name)?;
                return Err(errno(error));
            }
            named(&part, to)?;
        }
        crate::failpoint::pass();
        let left = within(folder, away.as_ref());
        if there_in(folder, away.as_ref()) {
            done(Done::Deleting(&left));
            delete(&left).map_err(errno)
        } else {
            Ok(())
        }
    }

    /// Keeps what has a name in a folder at the path `to`, unless that has been done or there is nothing. A file or link stays
    /// where it is, so that nobody finds it missing before it is replaced; a folder, which nothing can replace, is moved.
    pub(crate) fn set_aside(&self, folder: &OwnedFd, name: &OsStr, to: &Path) -> Result<(), Errno> {
        let is_folder = |stat: rustix::fs::Stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let folder_there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(is_folder);
        if there(to) || folder_there != Ok(false) {
            return self.take_away(folder, name, to);
        }
        make_parent(to)?;
        match rustix::fs::linkat(folder, name, CWD, to, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // Another file system, one without hard links, or a file of somebody else's (`fs.protected_hardlinks`).
            Err(_) => {
                let part = self.own(to, "part");
                delete(&part).map_err(errno)?;
                copy(&within(folder, name), &part).map_err(errno)?;
                crate::failpoint::pass();
                named(&part, to)
            }
        }
    }

    /// Moves what is at `from` to `name` in a folder, unless there is nothing any more. A file replaces what has the name.
    pub(crate) fn put_in_place(&self, from: &Path, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let leaving = self.own(from, "leaving");
        if !there(&leaving) {
            match rustix::fs::renameat(CWD, from, folder, name) {
                Ok(()) => return Ok(()),
                Err(Errno::NOENT) if !there(from) => return Ok(()),
                Err(Errno::XDEV) => {}
                Err(errno) => return Err(errno),
            }
            // From here on it counts as placed, so that what has the name is never taken for what was there before.
            rustix::fs::renameat(CWD, from, CWD, &leaving)?;
        }
        crate::failpoint::pass();
        let passing = self.passing(INTO, name);
        let into = within(folder, passing.as_ref());
        delete(&into).map_err(errno)?;
        if let Err(error) = copy(&leaving, &into) {
            // Nobody else knows the name to delete it by.
            let _ = delete(&into);
            return Err(errno(error));
        }
        match rustix::fs::renameat(folder, &passing, folder, name) {
            Ok(()) => {
                done(Done::Copied(&within(folder, name)));
            }
            // The folder was placed before the cut.
            Err(Errno::NOTEMPTY | Errno::EXIST) => delete(&into).map_err(errno)?,
            Err(errno) => {
                let _ = delete(&into);
                return Err(errno);
            }
        }
        crate::failpoint::pass();
        // Also where a cut came before this.
        sync_folder(folder)?;
        done(Done::Synced(&within(folder, OsStr::new("."))));
        done(Done::Deleting(&leaving));
        delete(&leaving).map_err(errno)
    }
}

/// Gives a copy its name, and that lasts: what it was made from, on a file system of its own, is going to go.
fn named(part: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::renameat(CWD, part, CWD, to)?;
    done(Done::Copied(to));
    let folder = to.parent().unwrap_or(Path::new("/"));
    let opened = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    sync_folder(&opened)?;
    done(Done::Synced(folder));
    Ok(())
}

/// Whether anything has this path, a link included.
pub(crate) fn there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Whether anything has this name in a folder.
pub(crate) fn there_in(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Makes the folders above a path of the daemon's own.
pub(crate) fn make_parent(path: &Path) -> Result<(), Errno> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(errno)
}

/// An operating system's error by its number.
pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Copies a file, a link or a folder with all in it: bytes (no holes), names of one file, modes, times, attributes and, as far as one may, owners; set-id
/// bits only with the owner whose they are. Pipes, sockets and devices are left out; folders that are too many inside one
/// another are refused, and so is what has attributes that the other file system does not take.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    copy_level(from, to, 0, &mut Copies::default())
}

fn copy_level(from: &Path, to: &Path, level: usize, copies: &mut Copies) -> io::Result<()> {
    if level > LEVELS_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let meta = std::fs::symlink_metadata(from)?;
    let kind = meta.file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(std::fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        std::fs::create_dir(to)?;
        for entry in std::fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_level(&from.join(&name), &to.join(&name), level + 1, copies)?;
        }
    } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Ok(());
    } else {
        copies.file(from, to)?;
    }
    // Its mode may be one with which it cannot be opened any more.
    let opened = if kind.is_symlink() { None } else { Some(std::fs::File::open(to)?) };
    let (uid, gid) = (rustix::fs::Uid::from_raw(meta.uid()), rustix::fs::Gid::from_raw(meta.gid()));
    // Only root may give files away; anybody else keeps what it copied.
    let _ = rustix::fs::chownat(CWD, to, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
    let time = |seconds: i64, nanos: i64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = rustix::fs::Timestamps {
        last_access: time(meta.atime(), meta.atime_nsec()),
        last_modification: time(meta.mtime(), meta.mtime_nsec()),
    };
    if let Some(opened) = &opened {
        // Whoever gives it attributes writes to it.
        opened.set_permissions(PermissionsExt::from_mode(0o700))?;
        copy_attributes(from, to)?;
        let now = opened.metadata()?;
        let bits = if (now.uid(), now.gid()) == (meta.uid(), meta.gid()) { 0o7777 } else { 0o1777 };
        opened.set_permissions(PermissionsExt::from_mode(meta.mode() & bits))?;
    }
    rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    opened.map_or(Ok(()), |opened| opened.sync_all())
}

/// Gives a file or folder the extended attributes of another, its access list among them; not those of overlayfs, and not the
/// labels that a host gives files by itself.
fn copy_attributes(from: &Path, to: &Path) -> Result<(), Errno> {
    let mut names = vec![0u8; 64 << 10];
    let length = match rustix::fs::llistxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let label = name.starts_with(b"security.") && name != b"security.capability";
        if label || [&b"user.overlay."[..], b"trusted.overlay."].iter().any(|marks| name.starts_with(marks)) {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        let length = rustix::fs::lgetxattr(from, name, &mut value[..])?;
        rustix::fs::lsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

/// A name beside a path, for what is on its way and not whole.
fn beside(path: &Path, mark: &str) -> PathBuf {
    let mut name = path.as_os_str().as_bytes().to_vec();
    // Long names have no room for more: the mark goes to a name of its own in the same folder, made of the name's digest.
    let own = path.file_name().map_or(0, OsStr::len);
    if own + mark.len() + 1 > 255 {
        let digest = crate::image::digest(path.file_name().unwrap_or_default().as_bytes());
        return path.with_file_name(format!(".{digest}.{mark}"));
    }
    name.push(b'.');
    name.extend_from_slice(mark.as_bytes());
    PathBuf::from(OsStr::from_bytes(&name))
}

/// A path by which the standard library reaches a name in an open folder.
pub(crate) fn within(folder: &OwnedFd, name: &OsStr) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hole was written out, and a file as often as it had names.
    #[test]
    fn a_copy_takes_no_more_of_the_disk_than_what_it_is_of() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        std::fs::create_dir_all(at("from/deep")).unwrap();
        std::fs::File::create(at("from/hole")).unwrap().set_len(64 << 20).unwrap();
        std::fs::write(at("from/one"), "of several").unwrap();
        std::fs::set_permissions(at("from/one"), PermissionsExt::from_mode(0o4400)).unwrap();
        std::fs::hard_link(at("from/one"), at("from/deep/name")).unwrap();
        copy(&at("from"), &at("to")).unwrap();
        let meta = |path: &str| std::fs::metadata(at(path)).unwrap();
        assert_eq!((meta("to/hole").len(), meta("to/hole").blocks() < 2000), (64 << 20, true));
        assert_eq!((meta("to/one").ino(), meta("to/one").nlink()), (meta("to/deep/name").ino(), 2));
        assert_eq!((meta("to/one").mode() & 0o7777, meta("to/one").mtime()), (0o4400, meta("from/one").mtime()));
    }
}
