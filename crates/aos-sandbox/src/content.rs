//! What is in files, copied as what it takes on the disk: holes stay holes, names of one file stay names of one file.
//!
//! Start at [`Copies::file`]. What always holds: no link is followed, nothing that is there is written over, and a hole
//! is neither read nor written where both file systems know of holes. Deliberately absent: owners, times and attributes.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;

/// The files of one tree that have been copied and have further names.
#[derive(Debug, Default)]
pub struct Copies(HashMap<Same, PathBuf>);

/// Which file something is, and as of when: what was deleted meanwhile may have left its number to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Same {
    inode: (u64, u64),
    changed: (i64, i64),
}

impl Same {
    /// Of a file that has further names.
    pub fn of(meta: &Metadata) -> Option<Same> {
        let same = Same { inode: (meta.dev(), meta.ino()), changed: (meta.ctime(), meta.ctime_nsec()) };
        (meta.is_file() && meta.nlink() > 1).then_some(same)
    }
}

impl Copies {
    /// Copies a file's content and permission bits to a path where nothing is. Another name of a file that was copied
    /// becomes another name of its copy, as far as the file system has such.
    ///
    /// # Errors
    /// What the operating system says; `InvalidInput` where it is no regular file.
    pub fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.opened(&File::from(rustix::fs::openat(CWD, from, flags, Mode::empty())?), to)
    }

    /// The same of a file that was opened to be read, wherever it is.
    ///
    /// # Errors
    /// As of [`Copies::file`].
    pub fn opened(&mut self, mut source: &File, to: &Path) -> io::Result<()> {
        let meta = source.metadata()?;
        if !meta.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let same = Same::of(&meta);
        if same.and_then(|same| self.0.get(&same)).is_some_and(|copy| std::fs::hard_link(copy, to).is_ok()) {
            return Ok(());
        }
        let target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
        for piece in data(source, meta.len())? {
            seek(source, SeekFrom::Start(piece.start))?;
            seek(&target, SeekFrom::Start(piece.start))?;
            io::copy(&mut source.by_ref().take(piece.end - piece.start), &mut &target)?;
        }
        target.set_len(meta.len())?;
        target.set_permissions(meta.permissions())?;
        self.0.extend(same.map(|same| (same, to.to_owned())));
        Ok(())
    }
}

/// Where in the first `length` bytes of a file something was written, in order; all of them where its file system knows of
/// no holes. Moves the file's position.
///
/// # Errors
/// Those of `lseek(2)`.
pub fn data(file: &File, length: u64) -> io::Result<Vec<Range<u64>>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < length {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < length => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno.into()),
        };
        at = match seek(file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end.min(length),
            // It has become shorter meanwhile, or nobody knows.
            _ => length,
        };
        pieces.push(start..at);
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_names_stay_what_they_are() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        let source = File::create(at("source")).unwrap();
        source.set_len(64 << 20).unwrap();
        for place in [0, 20 << 20, (64 << 20) - 5] {
            source.write_all_at(b"words", place).unwrap();
        }
        std::fs::hard_link(at("source"), at("name")).unwrap();
        std::fs::write(at("whole"), [7; 100_000]).unwrap();
        std::fs::write(at("empty"), "").unwrap();
        let mut copies = Copies::default();
        for name in ["source", "name", "whole", "empty"] {
            copies.file(&at(name), &at(&format!("{name}-copy"))).unwrap();
            let (was, is) = (std::fs::read(at(name)).unwrap(), std::fs::read(at(&format!("{name}-copy"))).unwrap());
            assert!(was == is, "{name}");
        }
        let meta = |name: &str| std::fs::metadata(at(name)).unwrap();
        assert!(meta("source-copy").blocks() * 512 < 4 << 20, "{}", meta("source-copy").blocks());
        assert_eq!((meta("source-copy").ino(), meta("name-copy").nlink()), (meta("name-copy").ino(), 2));
        assert!(copies.file(&at("whole"), &at("empty")).is_err(), "it is there already");
        std::os::unix::fs::symlink("whole", at("link")).unwrap();
        assert!(copies.file(&at("link"), &at("through")).is_err());
    }

    #[test]
    fn what_became_shorter_meanwhile_is_copied_as_far_as_it_goes() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("file");
        std::fs::write(&path, [1; 5000]).unwrap();
        assert_eq!(data(&File::open(&path).unwrap(), 9000).unwrap().first().unwrap().start, 0);
        assert_eq!(data(&File::open(&path).unwrap(), 0).unwrap(), []);
    }
}
