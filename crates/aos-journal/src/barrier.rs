//! The barrier: the kernel's state as of one entry, kept whole, with which decisions can be made again from there on.
//!
//! Start at [`Reader::barrier`]. A release decides what came before its own time otherwise, perhaps, and what was pruned
//! is there no more; so whoever begins to decide anew keeps the state that it began with. What always holds: there is one
//! at most, it is a checkpoint that was whole, and what was pruned before it is not in it.

use std::path::PathBuf;

use aos_abi::{Lsn, Pid};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::Hash;
use crate::{Error, Place, Reader, checkpoint, schema};

/// What decisions are made again from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The last entry that the state has in it.
    pub lsn: Lsn,
    /// The version of aos that decides from there on.
    pub version: String,
    /// What belongs to no process, in the kernel's own format.
    pub globals: Vec<u8>,
}

/// Takes the barrier out, in the open transaction.
pub(crate) fn forget(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM barrier", [])?;
    db.execute("DELETE FROM barrier_page", []).map(drop)
}

/// Keeps the last checkpoint as the barrier, in the open transaction.
pub(crate) fn keep(db: &Connection, version: &str) -> rusqlite::Result<()> {
    forget(db)?;
    db.execute("INSERT INTO barrier_page SELECT pid, lsn, digest, state FROM page", [])?;
    db.execute(
        "INSERT INTO barrier(only, lsn, version, digest, globals)
         SELECT 1, lsn, ?1, digest, globals FROM checkpoint",
        [version],
    )?;
    Ok(())
}

impl Reader {
    /// The barrier, where there is one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn barrier(&self) -> Result<Option<Barrier>, Error> {
        let read = |row: &rusqlite::Row<'_>| {
            let barrier = Barrier { lsn: Lsn(row.get(0)?), version: row.get(1)?, globals: row.get(3)? };
            Ok((barrier, row.get::<_, Hash>(2)?))
        };
        let found = self.with(|db| {
            db.prepare_cached("SELECT lsn, version, digest, globals FROM barrier")
                .and_then(|mut statement| statement.query_row([], read).optional())
                .map_err(self.fail())
        })?;
        let Some((barrier, digest)) = found else { return Ok(None) };
        checkpoint::check(Place::Globals, barrier.lsn, Pid::SYSTEM, &digest, &barrier.globals)?;
        Ok(Some(barrier))
    }

    /// Reads the pages of the barrier.
    ///
    /// # Errors
    /// As for every read.
    pub fn barrier_pages(&self) -> Result<BarrierPages, Error> {
        Ok(BarrierPages { db: schema::open_reader(self.path())?, path: self.path().to_owned() })
    }
}

/// Reads the barrier's pages over a connection of its own.
#[derive(Debug)]
pub struct BarrierPages {
    db: Connection,
    path: PathBuf,
}

impl BarrierPages {
    /// The state of a process as of the barrier.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn load(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
        checkpoint::page(&self.db, &self.path, "barrier_page", pid)
    }
}
