//! Reading: entries by position, by process, or all of them in order.
//!
//! Start at [`Reader::entries`], and at [`Reader::for_each_after`] for replay. What always holds: a read sees whole
//! commits only; no statement reads more than a chunk, so a slow reader does not hold up the cutting of the log; what
//! does not parse is an error and never skipped.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::{Entry, Lsn, Pid};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::{GENESIS, Hash};
use crate::checkpoint::SavedPage;
use crate::prune::{self, PrunePlan};
use crate::row::{COLUMNS, Stored, corrupt, read_error};
use crate::trail::OF_PROCESS;
use crate::{Error, checkpoint, schema};

/// Idle connections that are kept for the next read.
const IDLE_MAX: usize = 4;
/// Entries that one statement of a long read takes, and the bytes of bodies after which it takes no more.
const CHUNK: u64 = 1024;
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Reads from a journal. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Reader {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Reader {
    pub(crate) fn new(path: &Path) -> Reader {
        Reader { pool: Arc::new(Pool { path: path.to_owned(), idle: Mutex::new(Vec::new()) }) }
    }

    /// Reads a journal that is not this program's to write: a backup, one at rest, or one that a daemon writes meanwhile.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Foreign`], [`Error::TooNew`], [`Error::Corrupt`].
    pub fn open(path: &Path) -> Result<Reader, Error> {
        if !crate::open::exists(path)? {
            return Err(Error::Missing { path: path.to_owned(), expected: None });
        }
        let reader = Reader::new(path);
        reader.with(|_| Ok(()))?;
        Ok(reader)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.pool.path
    }

    /// Lends a connection. One that failed is not used again.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        // A thread that panicked while it held the lock can only have pushed or popped.
        let idle = || self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let db = match kept {
            Some(db) => db,
            None => schema::open_reader(&self.pool.path)?,
        };
        let outcome = read(&db)?;
        let mut idle = idle();
        if idle.len() < IDLE_MAX {
            idle.push(db);
        }
        Ok(outcome)
    }

    pub(crate) fn fail(&self) -> impl Fn(rusqlite::Error) -> Error + Copy + '_ {
        |source| read_error("read the journal", &self.pool.path, source)
    }

    fn select(&self, tail: &str, params: impl rusqlite::Params) -> Result<Vec<Stored>, Error> {
        self.with(|db| {
            db.prepare_cached(&format!("SELECT {COLUMNS} FROM entry {tail}"))
                .and_then(|mut statement| statement.query_map(params, Stored::read)?.collect())
                .map_err(self.fail())
        })
    }

    /// At most `limit` entries from `from` on, fewer where they are large; none at the end. Pruned entries are left out.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where one does not parse.
    pub fn entries(&self, from: Lsn, limit: u64) -> Result<Vec<Entry>, Error> {
        let tail = "entry WHERE lsn >= ?1 ORDER BY lsn LIMIT ?2";
        parse(self.first_of(tail, (from.0, clamp(limit)))?)
    }

    /// At most `limit` entries of one process after `after`, oldest first, fewer where they are large; none at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where one does not parse.
    pub fn entries_of(&self, pid: Pid, after: Lsn, limit: u64) -> Result<Vec<Entry>, Error> {
        let mut found = self.first_of(OF_PROCESS, (pid.0, after.0, clamp(limit)))?;
        // The sorted positions are the outer loop of a cross join, which is never turned round; in a damaged file they may be
        // in no order.
        found.sort_by_key(|entry| entry.lsn);
        parse(found)
    }

    /// The first entries of a selection in order: as many as are not too much at once, and one at least.
    fn first_of(&self, tail: &str, params: impl rusqlite::Params) -> Result<Vec<Stored>, Error> {
        self.with(|db| {
            let read = || {
                let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {tail}"))?;
                let mut rows = statement.query(params)?;
                taken(&mut rows)
            };
            read().map_err(self.fail())
        })
    }

    /// The entries at these positions, in this order. Those that are not there are left out.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where one does not parse.
    pub fn get(&self, lsns: &[Lsn]) -> Result<Vec<Entry>, Error> {
        let found = self.with(|db| {
            let mut statement =
                db.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn = ?1")).map_err(self.fail())?;
            let mut found = Vec::with_capacity(lsns.len());
            for lsn in lsns {
                found.extend(statement.query_row([lsn.0], Stored::read).optional().map_err(self.fail())?);
            }
            Ok(found)
        })?;
        parse(found)
    }

    /// The entries of these kinds among the last thousand or so before `before`, newest first, and the position to go on
    /// before; `None` at the journal's beginning. Bodies of other kinds are not read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where one does not parse.
    pub fn back(&self, before: Lsn, kinds: &[&str]) -> Result<(Vec<Entry>, Option<Lsn>), Error> {
        let (found, next) = self.with(|db| read_back(db, before, kinds).map_err(self.fail()))?;
        Ok((parse(found)?, next))
    }

    /// How many entries from a position on were pruned.
    ///
    /// # Errors
    /// As for every read.
    pub fn pruned_from(&self, from: Lsn) -> Result<u64, Error> {
        self.with(|db| {
            db.prepare_cached("SELECT count(*) FROM sealed WHERE lsn >= ?1")
                .and_then(|mut statement| statement.query_row([from.0], |row| row.get(0)))
                .map_err(self.fail())
        })
    }

    /// The last durable entry and its hash; position zero and 32 zeros where there is none.
    ///
    /// # Errors
    /// As for every read.
    pub fn last(&self) -> Result<(Lsn, Hash), Error> {
        let last = self.with(|db| {
            db.prepare_cached("SELECT lsn, hash FROM entry ORDER BY lsn DESC LIMIT 1")
                .and_then(|mut statement| statement.query_row([], |row| Ok((Lsn(row.get(0)?), row.get(1)?))).optional())
                .map_err(self.fail())
        })?;
        Ok(last.unwrap_or((Lsn::ZERO, GENESIS)))
    }

    /// Gives every entry after `after` to `visit`, in order, until it breaks or the end is reached. The chain is
    /// checked on the way, so what a replay sees is what was written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at the first entry that is missing or is not what was written.
    pub fn for_each_after(&self, after: Lsn, mut visit: impl FnMut(Entry) -> ControlFlow<()>) -> Result<(), Error> {
        let mut at = after;
        // Unknown where `after` itself was pruned: then its successor is taken as it is.
        let mut before = match after {
            Lsn::ZERO => Some(GENESIS),
            _ => self.select("WHERE lsn = ?1", [after.0])?.pop().map(|entry| entry.hash),
        };
        loop {
            let chunk = self.with(|db| read_chunk(db, at).map_err(self.fail()))?;
            if chunk.is_empty() {
                return Ok(());
            }
            for entry in chunk {
                if entry.lsn != at.next() {
                    self.check_sealed(at.next(), entry.lsn)?;
                    before = None;
                }
                if before.is_some_and(|before| entry.link(&before) != entry.hash) {
                    return Err(corrupt(entry.lsn, "its hash does not follow from the entry before".into()));
                }
                (at, before) = (entry.lsn, Some(entry.hash));
                if visit(entry.parse()?).is_break() {
                    return Ok(());
                }
            }
        }
    }

    /// Whether everything from `from` up to but without `to` was pruned rather than lost.
    fn check_sealed(&self, from: Lsn, to: Lsn) -> Result<(), Error> {
        let sealed: u64 = self.with(|db| {
            db.prepare_cached("SELECT count(*) FROM sealed WHERE lsn >= ?1 AND lsn < ?2")
                .and_then(|mut statement| statement.query_row((from.0, to.0), |row| row.get(0)))
                .map_err(self.fail())
        })?;
        if sealed == to.0 - from.0 {
            return Ok(());
        }
        Err(corrupt(from, format!("entries between {from} and {to} are missing and were not pruned")))
    }

    /// The kernel's saved state and the entry it is as of.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn globals(&self) -> Result<Option<(Lsn, Vec<u8>)>, Error> {
        self.with(|db| checkpoint::globals(db, self.path()))
    }

    /// The saved state of one process; [`crate::PageReader`] is for many.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn page(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
        self.with(|db| checkpoint::page(db, self.path(), "page", pid))
    }

    /// The entry that the saved state is as of; [`Lsn::ZERO`] where there is none.
    ///
    /// # Errors
    /// As for every read.
    pub fn checkpoint(&self) -> Result<Lsn, Error> {
        self.with(|db| checkpoint::position(db).map_err(self.fail()))
    }

    /// At most `most` saved processes after a pid, by rising pid.
    ///
    /// # Errors
    /// As for every read.
    pub fn pages_after(&self, after: Pid, most: usize) -> Result<Vec<SavedPage>, Error> {
        self.with(|db| checkpoint::pages_after(db, self.path(), after, most))
    }

    /// What pruning these exited processes would take out. Without a checkpoint that is nothing, and the system's own
    /// entries and those of [`Pid::INIT`] are never taken.
    ///
    /// # Errors
    /// As for every read.
    pub fn prune_plan(&self, pids: Vec<Pid>) -> Result<PrunePlan, Error> {
        self.with(|db| {
            let upto = checkpoint::position(db).map_err(self.fail())?;
            prune::plan(db, upto, pids).map_err(self.fail())
        })
    }
}

/// The next entries, at least one where there is one.
fn read_chunk(db: &Connection, after: Lsn) -> rusqlite::Result<Vec<Stored>> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn > ?1 ORDER BY lsn LIMIT ?2"))?;
    taken(&mut statement.query((after.0, CHUNK))?)
}

/// Rows until they have [`CHUNK_BYTES`].
fn taken(rows: &mut rusqlite::Rows<'_>) -> rusqlite::Result<Vec<Stored>> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while bytes < CHUNK_BYTES
        && let Some(row) = rows.next()?
    {
        let entry = Stored::read(row)?;
        bytes += entry.body.len();
        chunk.push(entry);
    }
    Ok(chunk)
}

/// A chunk from back to front, of which only these kinds are taken.
fn read_back(db: &Connection, before: Lsn, kinds: &[&str]) -> rusqlite::Result<(Vec<Stored>, Option<Lsn>)> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn < ?1 ORDER BY lsn DESC LIMIT ?2"))?;
    let mut rows = statement.query((before.0, CHUNK))?;
    let (mut chunk, mut bytes, mut next) = (Vec::new(), 0, None);
    while bytes < CHUNK_BYTES
        && let Some(row) = rows.next()?
    {
        next = Some(Lsn(row.get("lsn")?));
        if kinds.contains(&row.get_ref("kind")?.as_str()?) {
            let entry = Stored::read(row)?;
            bytes += entry.body.len();
            chunk.push(entry);
        }
    }
    Ok((chunk, next))
}

fn clamp(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn parse(entries: Vec<Stored>) -> Result<Vec<Entry>, Error> {
    entries.into_iter().map(Stored::parse).collect()
}
