//! The tables, the file's marks, and how a connection is set up.
//!
//! Start at [`TABLES`]. What always holds: a file is made whole under another name and then renamed, so a journal file
//! without its marks was never ours.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::open::Files;
use crate::{Error, Place, private};

/// `aosj` in ASCII, in SQLite's header, so that `file` and we know the file again.
pub(crate) const APPLICATION_ID: i32 = 0x616f_736a;
/// The format of tables and chain. Raised with every change that an older release would misread.
pub(crate) const FORMAT: u32 = 1;
/// How long a reader waits for a lock; only the moments of recovery and of a checkpoint of the log take one.
pub(crate) const BUSY: Duration = Duration::from_secs(10);

/// `hash` stands before `body`, so that reading hashes does not walk through long bodies. `trail` and
/// `fresh` say where each process's entries are (`trail.rs`). `entry_charged` holds only what `aos cost` reads.
pub(crate) const TABLES: &str = "
CREATE TABLE entry(
  lsn INTEGER PRIMARY KEY, at INTEGER NOT NULL, pid INTEGER NOT NULL, cause INTEGER,
  kind TEXT NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL) STRICT;
CREATE INDEX entry_charged ON entry(at) WHERE kind = 'charged';
CREATE TABLE trail(pid INTEGER NOT NULL, lsn INTEGER NOT NULL, PRIMARY KEY(pid, lsn)) STRICT, WITHOUT ROWID;
CREATE TABLE fresh(lsn INTEGER PRIMARY KEY, pid INTEGER NOT NULL) STRICT;
CREATE TABLE sealed(lsn INTEGER PRIMARY KEY, pid INTEGER NOT NULL, digest BLOB NOT NULL) STRICT;
CREATE TABLE page(pid INTEGER PRIMARY KEY, lsn INTEGER NOT NULL, digest BLOB NOT NULL, state BLOB NOT NULL) STRICT;
CREATE TABLE checkpoint(
  only INTEGER PRIMARY KEY CHECK (only = 1), lsn INTEGER NOT NULL, digest BLOB NOT NULL, globals BLOB NOT NULL) STRICT;
";

/// Tables that came later; an older release does without them, and does not keep them in step: it has no barrier.
const LATER: &str = "
CREATE TABLE IF NOT EXISTS barrier(
  only INTEGER PRIMARY KEY CHECK (only = 1), lsn INTEGER NOT NULL, version TEXT NOT NULL, digest BLOB NOT NULL,
  globals BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS barrier_page(
  pid INTEGER PRIMARY KEY, lsn INTEGER NOT NULL, digest BLOB NOT NULL, state BLOB NOT NULL) STRICT;
";

/// Makes a new, empty journal at `path`, which must not exist.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    let fail = |source| Error::sqlite("create the journal", path, source);
    private::fresh(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(fail)?;
    db.execute_batch(&format!(
        "PRAGMA synchronous=FULL; BEGIN; {TABLES} {LATER}
         PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}; COMMIT;"
    ))
    .map_err(fail)?;
    db.close().map_err(|(_, source)| fail(source))
}

/// The writer's connection: write-ahead log, every commit synced.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, Error> {
    let fail = |source| Error::sqlite("open the journal", path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(fail)?;
    db.busy_timeout(BUSY).map_err(fail)?;
    check_marks(&db, path)?;
    // 2,000 pages, 8 MiB: large enough that folding the log into the file is rare, small enough that recovery after a
    // kill reads it in milliseconds. After a burst the log is cut back to 16 MiB. What is deleted is overwritten: people
    // prune to be rid of it, and a page that was split keeps copies of what it held otherwise. It costs next to nothing,
    // because a checkpoint uses again what it frees.
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=2000;
         PRAGMA journal_size_limit=16777216; PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY;
         PRAGMA secure_delete=ON;",
    )
    .map_err(fail)?;
    // A read-only look first: a home that has them is opened without a write.
    let has: bool = db
        .query_row("SELECT count(*) = 2 FROM sqlite_schema WHERE name IN ('barrier', 'barrier_page')", [], |row| {
            row.get(0)
        })
        .map_err(fail)?;
    if !has {
        db.execute_batch(&format!("BEGIN; {LATER} COMMIT;")).map_err(fail)?;
    }
    Ok(db)
}

/// A connection that only reads.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let db = open_read_only(path).map_err(|source| Error::sqlite("open the journal for reading", path, source))?;
    check_marks(&db, path)?;
    Ok(db)
}

/// A connection to any database that only reads, also where its folder cannot be written: there a log that is folded would
/// have to be made first, and without one nobody writes.
pub(crate) fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let open = |name: &Path, more: OpenFlags| -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(name, flags | more)?;
        db.busy_timeout(BUSY)?;
        // The file is opened by the first who reads.
        db.pragma_query_value(None, "application_id", |_| Ok(()))?;
        Ok(db)
    };
    let refused = match open(path, OpenFlags::empty()) {
        Err(error) if matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) => error,
        opened => return opened,
    };
    // What is in a log that is not folded would be left out.
    if Files::of(path).wal.metadata().is_ok_and(|log| log.len() > 0) {
        return Err(refused);
    }
    open(Path::new(&immutable(path)), OpenFlags::SQLITE_OPEN_URI).map_err(|_| refused)
}

/// The file's name in the form in which SQLite is told that nobody writes it: <https://www.sqlite.org/uri.html>.
fn immutable(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let name: String = (path.as_os_str().as_bytes().iter())
        .map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("file:{name}?immutable=1")
}

/// Whether the file is a journal, and one that this release reads.
fn check_marks(db: &Connection, path: &Path) -> Result<(), Error> {
    let pragma = |name: &str| {
        db.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|source| Error::sqlite("read the journal's marks", path, source))
    };
    let application_id = pragma("application_id")?;
    if application_id != i64::from(APPLICATION_ID) {
        // SQLite takes what is shorter than a page for an empty database. We never leave one behind, so it was cut.
        return Err(if has_header(path) {
            Error::Foreign { path: path.to_owned(), detail: format!("application id {application_id:#x}") }
        } else {
            Error::Corrupt { at: Place::File, detail: "it has no database header".into(), sound_upto: None }
        });
    }
    let found = u32::try_from(pragma("user_version")?).unwrap_or(u32::MAX);
    match found {
        FORMAT => Ok(()),
        0 => Err(Error::Corrupt { at: Place::File, detail: "it has no format number".into(), sound_upto: None }),
        _ => Err(Error::TooNew { found, known: FORMAT }),
    }
}

/// Whether the file begins as an SQLite database of at least the smallest size.
fn has_header(path: &Path) -> bool {
    let mut magic = [0; 16];
    let read = File::open(path).and_then(|mut file| {
        file.read_exact(&mut magic)?;
        file.metadata()
    });
    read.is_ok_and(|file| file.len() >= 512 && magic == *b"SQLite format 3\0")
}
