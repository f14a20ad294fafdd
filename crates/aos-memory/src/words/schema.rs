//! The tables, and how the file is opened.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::Error;

/// `AOSm`, so that no other program's database is taken for ours.
const APPLICATION_ID: i64 = 0x414f_536d;
/// The version of the tables below.
const VERSION: i64 = 1;
/// How long a statement waits for another process that holds the file (a backup, a curious person).
const BUSY: Duration = Duration::from_secs(5);

/// `memory` holds every version; `words` and `grams` index the newest of each key alone, by the same row id.
/// `words` takes text that `segment` has cut; `grams` takes it whole and finds what stands inside words. Both carry the
/// namespace as a token, so that a search reads nobody else's entries. They keep a copy of their text: only so does FTS5 take a deleted
/// entry out of its index at once (`secure-delete`) instead of marking it. `done` holds what effects have been carried out.
const TABLES: &str = "
CREATE TABLE namespace (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE memory (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace INTEGER NOT NULL REFERENCES namespace,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    value TEXT NOT NULL,
    tags TEXT NOT NULL,
    labels TEXT NOT NULL,
    at INTEGER NOT NULL,
    expires_at INTEGER,
    pid INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    UNIQUE (namespace, key, version)
);
CREATE INDEX newest ON memory (namespace, id) WHERE newest;
CREATE INDEX expiry ON memory (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE done (
    cause INTEGER NOT NULL, nth INTEGER NOT NULL, request TEXT NOT NULL, answer INTEGER NOT NULL,
    PRIMARY KEY (cause, nth)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
    ns, key, tags, value, prefix='2 3', tokenize=\"unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'\"
);
CREATE VIRTUAL TABLE grams USING fts5 (ns, text, tokenize='trigram remove_diacritics 1');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO grams (grams, rank) VALUES ('secure-delete', 1);
";

/// Opens the file for writing, making the tables where it is new.
pub(super) fn open(path: &Path) -> Result<Connection, Error> {
    let named = |error| named(path, error);
    keep_private(path);
    let mut connection = Connection::open(path).map_err(named)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Forgotten text is overwritten, not only unlinked.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;",
        )
        .map_err(named)?;
    let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (application, version) = (pragma("application_id").map_err(named)?, pragma("user_version").map_err(named)?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(named)?;
    match (application, version, tables) {
        (APPLICATION_ID, VERSION, _) => {}
        (APPLICATION_ID, found, _) => return Err(Error::Newer { path: path.to_owned(), found, known: VERSION }),
        (0, 0, 0) => {
            let transaction = connection.transaction()?;
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.commit()?;
        }
        _ => return Err(Error::Corrupt { path: path.to_owned(), why: "it belongs to another program".into() }),
    }
    Ok(connection)
}

/// Makes the file 0600 before it holds anything, and mends those that earlier releases made; SQLite gives its log the
/// same mode. What fails here fails again, in words, when the file is opened.
fn keep_private(path: &Path) {
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    for file in [path.to_owned(), beside("-wal"), beside("-shm")] {
        let mode =
            fs::symlink_metadata(&file).ok().filter(fs::Metadata::is_file).map(|found| found.permissions().mode());
        if let Some(mode) = mode.filter(|mode| mode & 0o077 != 0) {
            let _ = fs::set_permissions(&file, fs::Permissions::from_mode(mode & 0o700));
        }
    }
}

/// Opens the file for reading alone.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn named(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::Corrupt { path: path.to_owned(), why: error.to_string() }
        }
        _ => error.into(),
    }
}
