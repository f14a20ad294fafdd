//! Backup and restore of the journal: whole copies, verified before they get their name.
//!
//! Start at [`Reader::backup`], [`check_archive`] and [`Exchange`]. What always holds: under the name that was asked for
//! there is a verified journal or nothing; what an exchange replaces is kept; between its first and its last step the
//! journal counts as missing, so that no daemon starts in a home that is half of one state and half of another.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::head::{Found, Head, HeadFile};
use crate::lock::Lock;
use crate::open::{Files, exists, remove};
use crate::{Error, Reader, Report, private, schema};

impl Reader {
    /// A consistent, compact copy at `to`, 0600, also while the daemon writes.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::ReadOnly`]; [`Error::Corrupt`] where what was copied is not sound,
    /// and then there is no copy.
    pub fn backup(&self, to: &Path) -> Result<Report, Error> {
        self.with(|db| whole(db, to))
    }
}

/// The same of one connection.
pub(crate) fn whole(db: &Connection, to: &Path) -> Result<Report, Error> {
    if exists(to)? {
        return Err(Error::Exists { path: to.to_owned() });
    }
    let files = Files::of(to);
    remove(&files.new)?;
    let copied = copy(db, &files.new).and_then(|()| check_archive(&files.new)).and_then(|report| {
        files.put_in_place(&files.new)?;
        Ok(report)
    });
    if copied.is_err() {
        // The first error is the one to report.
        let _ = remove(&files.new);
    }
    copied
}

/// A consistent copy at `to`, 0600, of any SQLite database, also while others write to it. `to` must not exist.
///
/// # Errors
/// [`Error::Full`], [`Error::ReadOnly`]; [`Error::Corrupt`] where the copy is not sound.
pub fn copy_database(from: &Path, to: &Path) -> Result<(), Error> {
    let db = schema::open_read_only(from).map_err(|source| Error::sqlite("open the database", from, source))?;
    copy(&db, to)?;
    let check = |db: Connection| db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let said =
        schema::open_read_only(to).and_then(check).map_err(|source| Error::sqlite("check the copy", to, source))?;
    if said == "ok" {
        return Ok(());
    }
    Err(Error::Corrupt { at: crate::Place::File, detail: format!("{}: {said}", from.display()), sound_upto: None })
}

fn copy(db: &Connection, to: &Path) -> Result<(), Error> {
    let name = to.to_str().ok_or_else(|| {
        Error::io("name", to, std::io::Error::new(std::io::ErrorKind::InvalidFilename, "it is not UTF-8"))
    })?;
    // An empty file is filled and keeps its mode.
    private::fresh(to)?;
    db.execute("VACUUM INTO ?1", [name]).map_err(|source| Error::sqlite("copy the database", to, source))?;
    Ok(())
}

/// Whether a file is a sound journal, from its first entry to its last.
///
/// # Errors
/// [`Error::Missing`], [`Error::Foreign`], [`Error::TooNew`], and [`Error::Corrupt`] with the first fault.
pub fn check_archive(file: &Path) -> Result<Report, Error> {
    Reader::open(file)?.verify(|_, _| {})?.sound()
}

/// The journal of a home while another is put in its place. Holds the home: no daemon runs as long as this lives.
#[derive(Debug)]
pub struct Exchange {
    files: Files,
    /// What the head file held before anything was changed.
    head: Option<Vec<u8>>,
    _lock: Lock,
}

impl Exchange {
    /// Takes the home. Nothing is changed yet.
    ///
    /// # Errors
    /// [`Error::Locked`] while a daemon runs.
    pub fn begin(path: &Path) -> Result<Exchange, Error> {
        let files = Files::of(path);
        let lock = Lock::take(&files.lock)?;
        let head = match fs::read(&files.head) {
            Ok(bytes) => Some(bytes),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(Error::io("read", &files.head, source)),
        };
        Ok(Exchange { files, head, _lock: lock })
    }

    /// Moves the journal that is there, if any, into `folder`, which is on the same file system. From here on a journal
    /// is missing, namely the one that `new` is about, until [`Exchange::put`].
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::ReadOnly`].
    pub fn set_aside(&self, folder: &Path, new: &Report) -> Result<(), Error> {
        // The file first: its absence is what keeps daemons away. Its log is meaningless without it.
        for file in [&self.files.db, &self.files.wal] {
            if exists(file)? {
                let name = file.file_name().unwrap_or_default();
                fs::rename(file, folder.join(name)).map_err(|source| Error::io("rename", file, source))?;
            }
        }
        remove(&self.files.shm)?;
        if exists(&self.files.head)? {
            let name = self.files.head.file_name().unwrap_or_default();
            fs::copy(&self.files.head, folder.join(name))
                .map_err(|source| Error::io("copy", &self.files.head, source))?;
        }
        HeadFile::open(
            &self.files.head,
            Head { lsn: new.last, hash: new.hash, pid: aos_abi::Pid::SYSTEM },
            Found::Nothing,
        )?;
        Ok(())
    }

    /// Moves what [`Exchange::set_aside`] moved into `folder`, all or some of it, back to where it was.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::ReadOnly`]; the journal is missing still.
    pub fn take_back(&self, folder: &Path) -> Result<(), Error> {
        match &self.head {
            Some(head) => {
                fs::write(&self.files.head, head).map_err(|source| Error::io("write", &self.files.head, source))?;
            }
            None => remove(&self.files.head)?,
        }
        let aside = |file: &Path| folder.join(file.file_name().unwrap_or_default());
        // The file last: with it a daemon starts.
        for file in [&self.files.wal, &self.files.db] {
            let aside = aside(file);
            if exists(&aside)? {
                fs::rename(&aside, file).map_err(|source| Error::io("rename", &aside, source))?;
            }
        }
        remove(&aside(&self.files.head))
    }

    /// Puts a journal that [`check_archive`] found sound in place, durably.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::ReadOnly`].
    pub fn put(&self, new: &Path) -> Result<(), Error> {
        self.files.put_in_place(new)
    }
}
