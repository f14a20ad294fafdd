//! What is in a folder, told in a few bytes: by which a later look knows whether somebody has worked in it since.
//!
//! Start at [`Fingerprint::of`]. What always holds: no link is followed and nothing outside is reached, also while things
//! are moved about; folders may be inside one another without end, of which neither the stack nor open descriptors grow.
//! Names, kinds, sizes and the times of contents count; numbers of files and the times of names do not, since another name
//! of a file changes those. Deliberately absent: contents, which would have to be read.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// Bytes of names that are remembered at once: a hundred thousand folders side by side with long names fit.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// What of a digest counts.
const DIGEST_BYTES: usize = 16;

/// What is in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Bytes of all files and links as they are read.
    pub(crate) bytes: u64,
    /// When the last of them changed, its content, name or permissions: in seconds and nanoseconds since 1970.
    pub(crate) changed: (i64, i64),
    /// The sum of the digests of all, so that the order in which they are met does not count.
    sum: u128,
}

impl Fingerprint {
    /// Looks through all of a folder. What vanishes meanwhile is not there; a folder that nobody may enter has nothing in it
    /// that anybody could change.
    ///
    /// # Errors
    /// What the operating system says; `AGAIN` where folders are moved about meanwhile, `NOBUFS` where there are too many
    /// side by side.
    pub(crate) fn of(top: &Path) -> Result<Fingerprint, Errno> {
        let (mut found, mut bytes) = (Fingerprint::default(), 0);
        let mut here = open(CWD, top)?;
        let mut ahead = found.list(&here, &mut bytes)?;
        let mut above = Vec::new();
        loop {
            let Some(name) = ahead.pop() else {
                let Some((is, rest)) = above.pop() else { return Ok(found) };
                here = open(&here, "..")?;
                if number(&here)? != is {
                    return Err(Errno::AGAIN);
                }
                ahead = rest;
                continue;
            };
            bytes -= name.as_bytes().len();
            let below = match open(&here, &*name) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                below => below?,
            };
            let inner = found.list(&below, &mut bytes)?;
            if !inner.is_empty() {
                above.push((number(&here)?, std::mem::replace(&mut ahead, inner)));
                here = below;
            }
        }
    }

    /// As it is written down.
    pub(crate) fn written(&self) -> String {
        format!("{:032x}", self.sum)
    }

    /// Takes in what is in one folder; the names of the folders in it.
    fn list(&mut self, folder: &OwnedFd, bytes: &mut usize) -> Result<Vec<CString>, Errno> {
        let mut folders = Vec::new();
        let all = rustix::process::geteuid().is_root();
        for entry in Dir::read_from(folder)? {
            let entry = match entry {
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            self.add(name, &stat);
            if FileType::from_raw_mode(stat.st_mode).is_dir() && (all || stat.st_mode & 0o111 != 0) {
                *bytes += name.to_bytes().len();
                if *bytes > NAMES_BYTES_MAX {
                    return Err(Errno::NOBUFS);
                }
                folders.push(name.to_owned());
            }
        }
        Ok(folders)
    }

    fn add(&mut self, name: &CStr, stat: &Stat) {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let size = if kind.is_dir() { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
        let nanos = |nanos| i64::try_from(nanos).unwrap_or(0);
        let modified = (stat.st_mtime, nanos(stat.st_mtime_nsec));
        self.bytes += size;
        self.changed = self.changed.max((stat.st_ctime, nanos(stat.st_ctime_nsec)));
        let digest = Sha256::new()
            .chain_update(name.to_bytes_with_nul())
            .chain_update(kind.as_raw_mode().to_le_bytes())
            .chain_update(size.to_le_bytes())
            .chain_update(modified.0.to_le_bytes())
            .chain_update(modified.1.to_le_bytes())
            .finalize();
        let digest: [u8; DIGEST_BYTES] = digest[..DIGEST_BYTES].try_into().expect("a digest has more");
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(digest));
    }
}

fn open(folder: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

fn number(folder: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn whatever_somebody_does_in_a_folder_shows() {
        let room = tempfile::tempdir().unwrap();
        let top = room.path().join("top");
        let at = |path: &str| top.join(path);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::write(at("a/b/file"), "text").unwrap();
        std::fs::write(at("other"), "text").unwrap();
        let look = || Fingerprint::of(&top).unwrap().written();
        let deeds: [&dyn Fn(); 6] = [
            &|| std::fs::write(at("a/b/c/new"), "new").unwrap(),
            &|| std::fs::write(at("a/b/file"), "longer text").unwrap(),
            &|| std::fs::rename(at("a/b/file"), at("a/moved")).unwrap(),
            &|| std::fs::remove_file(at("a/moved")).unwrap(),
            &|| symlink("/etc", at("a/link")).unwrap(),
            &|| std::fs::File::open(at("other")).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(),
        ];
        for (nth, deed) in deeds.into_iter().enumerate() {
            let before = look();
            assert_eq!(before, look());
            deed();
            assert_ne!(before, look(), "{nth}");
        }
        // Another place, another name of a file: nobody worked in it.
        let before = look();
        std::fs::hard_link(at("other"), room.path().join("name")).unwrap();
        std::fs::rename(&top, room.path().join("away")).unwrap();
        assert_eq!(before, Fingerprint::of(&room.path().join("away")).unwrap().written());
    }

    #[test]
    fn no_depth_hides_anything() {
        let room = tempfile::tempdir().unwrap();
        let mut folder = open(CWD, room.path()).unwrap();
        for _ in 0..2_500 {
            rustix::fs::mkdirat(&folder, "a", Mode::from_raw_mode(0o700)).unwrap();
            folder = open(&folder, "a").unwrap();
        }
        let look = || Fingerprint::of(room.path()).unwrap();
        let before = look();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let saved = rustix::fs::openat(&folder, "saved", flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::io::write(&saved, b"words").unwrap();
        let after = look();
        assert_eq!((before.bytes, after.bytes), (0, 5));
        assert_ne!(after.written(), before.written());
        crate::below::delete(&room.path().join("a")).unwrap();
    }
}
