//! Checkpoints: the kernel's saved state, one row ("page") for each process and one for the rest ("globals").
//!
//! Start at [`Checkpoint`] to write and at [`PageReader`] to read. What always holds: what is read is the state as of
//! the last whole checkpoint; a checkpoint writes only the pages it is given, never one that did not change; each state
//! carries a digest over its bytes, its process and its position, so a changed byte is an error and not a wrong state.

use std::path::{Path, PathBuf};

use aos_abi::{Lsn, Pid};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::{self, Hash};
use crate::row::read_error;
use crate::{Error, Place, schema};

/// Pages that one statement of [`PageReader::all`] reads, so that no long read keeps the log from being cut back.
const CHUNK: usize = 256;

/// A process and its saved state; `None` where its bytes are not those that were written.
pub type SavedPage = (Pid, Option<Vec<u8>>);

/// The state of the kernel after it applied entry `lsn`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last entry that the state has in it.
    pub lsn: Lsn,
    /// What belongs to no process. Says itself which format it has.
    pub globals: Vec<u8>,
    /// The processes that changed since the last checkpoint.
    pub pages: Vec<(Pid, Vec<u8>)>,
    /// The processes whose page goes.
    pub removed: Vec<Pid>,
}

/// Writes a checkpoint into the open transaction.
pub(crate) fn write(db: &Connection, checkpoint: &Checkpoint) -> rusqlite::Result<()> {
    let lsn = checkpoint.lsn;
    let mut put = db.prepare_cached("INSERT OR REPLACE INTO page(pid, lsn, digest, state) VALUES (?1, ?2, ?3, ?4)")?;
    for (pid, state) in &checkpoint.pages {
        put.execute((pid.0, lsn.0, chain::state_digest(lsn, *pid, state), state))?;
    }
    let mut remove = db.prepare_cached("DELETE FROM page WHERE pid = ?1")?;
    for pid in &checkpoint.removed {
        remove.execute([pid.0])?;
    }
    let digest = chain::state_digest(lsn, Pid::SYSTEM, &checkpoint.globals);
    db.prepare_cached("INSERT OR REPLACE INTO checkpoint(only, lsn, digest, globals) VALUES (1, ?1, ?2, ?3)")?
        .execute((lsn.0, digest, &checkpoint.globals))?;
    Ok(())
}

/// The position of the last checkpoint; [`Lsn::ZERO`] where there is none.
pub(crate) fn position(db: &Connection) -> rusqlite::Result<Lsn> {
    let lsn = db.prepare_cached("SELECT lsn FROM checkpoint")?.query_row([], |row| row.get(0)).optional()?;
    Ok(Lsn(lsn.unwrap_or(0)))
}

pub(crate) fn globals(db: &Connection, path: &Path) -> Result<Option<(Lsn, Vec<u8>)>, Error> {
    let read = |row: &rusqlite::Row<'_>| Ok((Lsn(row.get(0)?), row.get::<_, Hash>(1)?, row.get::<_, Vec<u8>>(2)?));
    let found = db
        .prepare_cached("SELECT lsn, digest, globals FROM checkpoint")
        .and_then(|mut statement| statement.query_row([], read).optional())
        .map_err(|source| read_error("read the checkpoint", path, source))?;
    let Some((lsn, digest, globals)) = found else { return Ok(None) };
    check(Place::Globals, lsn, Pid::SYSTEM, &digest, &globals)?;
    Ok(Some((lsn, globals)))
}

/// The state of a process in the table of pages or in that of the barrier's.
pub(crate) fn page(db: &Connection, path: &Path, table: &str, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
    let found = db
        .prepare_cached(&format!("SELECT pid, lsn, digest, state FROM {table} WHERE pid = ?1"))
        .and_then(|mut statement| statement.query_row([pid.0], read_page).optional())
        .map_err(|source| read_error("read a page", path, source))?;
    found.map(checked).transpose().map(|page| page.map(|(_, state)| state))
}

/// At most `most` pages after a pid, by rising pid, as they stand in the store.
fn stored_after(db: &Connection, path: &Path, after: Pid, most: usize) -> Result<Vec<Page>, Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    db.prepare_cached("SELECT pid, lsn, digest, state FROM page WHERE pid > ?1 ORDER BY pid LIMIT ?2")
        .and_then(|mut statement| statement.query_map((after.0, most), read_page)?.collect())
        .map_err(|source| read_error("read the pages", path, source))
}

/// The same without their digests; `None` where the bytes are not those that were written.
pub(crate) fn pages_after(db: &Connection, path: &Path, after: Pid, most: usize) -> Result<Vec<SavedPage>, Error> {
    let pages = stored_after(db, path, after, most)?.into_iter();
    Ok(pages.map(|page| (page.pid, checked(page).ok().map(|(_, state)| state))).collect())
}

pub(crate) fn check(at: Place, lsn: Lsn, pid: Pid, digest: &Hash, state: &[u8]) -> Result<(), Error> {
    if chain::state_digest(lsn, pid, state) == *digest {
        return Ok(());
    }
    Err(Error::Corrupt { at, detail: "its bytes are not those that were written".into(), sound_upto: None })
}

/// Reads pages over a connection of its own; can be sent to another thread. About four microseconds a page.
#[derive(Debug)]
pub struct PageReader {
    db: Connection,
    path: PathBuf,
}

impl PageReader {
    pub(crate) fn open(path: &Path) -> Result<PageReader, Error> {
        Ok(PageReader { db: schema::open_reader(path)?, path: path.to_owned() })
    }

    /// The state of a process as of the checkpoint that last wrote it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn load(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
        page(&self.db, &self.path, "page", pid)
    }

    /// All pages by rising pid. Pages that a checkpoint adds, changes or removes meanwhile may be seen as before or after.
    pub fn all(&self) -> impl Iterator<Item = Result<(Pid, Vec<u8>), Error>> + '_ {
        let mut after = Some(Pid::SYSTEM);
        std::iter::from_fn(move || {
            let chunk = stored_after(&self.db, &self.path, after?, CHUNK);
            after = chunk.as_ref().ok().and_then(|pages| pages.last()).map(|page| page.pid);
            match chunk {
                Ok(pages) if pages.is_empty() => None,
                Ok(pages) => Some(pages.into_iter().map(checked).collect::<Vec<_>>()),
                Err(error) => Some(vec![Err(error)]),
            }
        })
        .flatten()
    }
}

struct Page {
    pid: Pid,
    lsn: Lsn,
    digest: Hash,
    state: Vec<u8>,
}

fn read_page(row: &rusqlite::Row<'_>) -> rusqlite::Result<Page> {
    Ok(Page { pid: Pid(row.get(0)?), lsn: Lsn(row.get(1)?), digest: row.get(2)?, state: row.get(3)? })
}

fn checked(page: Page) -> Result<(Pid, Vec<u8>), Error> {
    check(Place::Page(page.pid), page.lsn, page.pid, &page.digest, &page.state)?;
    Ok((page.pid, page.state))
}
