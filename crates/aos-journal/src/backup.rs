//! Backup and restore: whole copies, verified before they get their name.
//!
//! Start at [`Reader::backup`], [`check_archive`] and [`restore`]. What always holds: under the name that was asked for
//! there is a verified journal or nothing; what a restore replaces is kept beside it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::head::{Found, Head, HeadFile};
use crate::lock::Lock;
use crate::open::{Files, exists, remove};
use crate::{Error, Reader, Report};

impl Reader {
    /// A consistent, compact copy at `to`, also while the daemon writes. One file, which [`restore`] takes.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::ReadOnly`]; [`Error::Corrupt`] where what was copied is not sound,
    /// and then there is no copy.
    pub fn backup(&self, to: &Path) -> Result<Report, Error> {
        if exists(to)? {
            return Err(Error::Exists { path: to.to_owned() });
        }
        let files = Files::of(to);
        remove(&files.new)?;
        let copied = self.copy(&files.new).and_then(|()| check_archive(&files.new)).and_then(|report| {
            files.put_in_place()?;
            Ok(report)
        });
        if copied.is_err() {
            // The first error is the one to report.
            let _ = remove(&files.new);
        }
        copied
    }

    fn copy(&self, to: &Path) -> Result<(), Error> {
        let name = to.to_str().ok_or_else(|| {
            Error::io("name", to, std::io::Error::new(std::io::ErrorKind::InvalidFilename, "it is not UTF-8"))
        })?;
        self.with(|db| {
            db.execute("VACUUM INTO ?1", [name]).map_err(|source| Error::sqlite("copy the journal", to, source))?;
            Ok(())
        })
    }
}

/// Whether a file is a sound journal, from its first entry to its last.
///
/// # Errors
/// [`Error::Missing`], [`Error::Foreign`], [`Error::TooNew`], and [`Error::Corrupt`] with the first fault.
pub fn check_archive(file: &Path) -> Result<Report, Error> {
    Reader::open(file)?.verify(|_, _| {})?.sound()
}

/// Puts a verified archive in the place of the journal at `path`. What was there is kept as `journal.db.replaced`.
///
/// # Errors
/// [`Error::Locked`] while a daemon runs; [`Error::Exists`] where an earlier restore's `.replaced` is still there;
/// those of [`check_archive`]. In each of these cases nothing was changed.
pub fn restore(archive: &Path, path: &Path) -> Result<Report, Error> {
    let files = Files::of(path);
    let _lock = Lock::take(&files.lock)?;
    let kept = Files::of(&with_suffix(path, ".replaced"));
    for file in [&kept.db, &kept.wal] {
        if exists(file)? {
            return Err(Error::Exists { path: file.clone() });
        }
    }
    remove(&files.new)?;
    fs::copy(archive, &files.new).map_err(|source| Error::io("copy", archive, source))?;
    let report = check_archive(&files.new)?;
    // The log first: left behind it would be taken for the new file's.
    for (from, to) in [(&files.wal, &kept.wal), (&files.db, &kept.db)] {
        if exists(from)? {
            fs::rename(from, to).map_err(|source| Error::io("rename", from, source))?;
        }
    }
    remove(&files.shm)?;
    files.put_in_place()?;
    HeadFile::open(&files.head, Head { lsn: report.last, hash: report.hash }, Found::Nothing)?;
    Ok(report)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
