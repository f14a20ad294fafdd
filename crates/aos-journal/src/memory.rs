//! A journal in memory that can be made to fail: for tests and the simulation, on one thread, without a disk.
//!
//! Start at [`MemoryStore::write`] and [`MemoryStore::crash`]. It keeps what a disk would keep: what was synced survives
//! a crash, what was only written may or may not, and reads see only what was synced. Entries are kept as the bytes the
//! real journal keeps, so whatever does not read back fails here too. A batch is never torn into a part, as in the real
//! store, whose transactions are atomic (`tests/journal/torn.rs` cuts it at every place).

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use aos_abi::{Entry, Lsn, Pid};

use crate::chain::{self, GENESIS, Hash};
use crate::row::{Row, Stored, corrupt};
use crate::{Batch, Checkpoint, Error, Store};

/// What became of writes that were never synced when the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// They are gone.
    Lost,
    /// The disk had them all the same, though nobody was told so.
    Kept,
    /// The disk had the first so many writes, and nothing of those after them.
    Part(usize),
}

/// What goes wrong next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The disk is full: nothing of the write is there.
    Write,
    /// The sync fails: whether the write is there shows after the crash.
    Sync,
}

/// A write that was not yet synced.
#[derive(Clone, Debug)]
enum Pending {
    Batch(Vec<Stored>),
    Checkpoint(Checkpoint),
}

/// The journal in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    /// Durable; the entry at `lsn` is at `lsn - 1`.
    entries: Vec<Stored>,
    globals: Option<(Lsn, Vec<u8>)>,
    pages: BTreeMap<Pid, Vec<u8>>,
    pending: Vec<Pending>,
    poison: Option<Error>,
    fault: Option<Fault>,
    syncs: u64,
}

impl MemoryStore {
    /// An empty journal.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Writes a batch without making it durable; [`MemoryStore::sync`] does that for all that was written.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] refuses this batch alone; [`Error::Full`] where it was told to fail.
    pub fn write(&mut self, batch: &[std::sync::Arc<Entry>]) -> Result<(), Error> {
        self.ready()?;
        let (mut last, mut hash) = self.tip();
        let mut rows = Vec::with_capacity(batch.len());
        for entry in batch {
            let row = Row::of(entry);
            if row.lsn != last.next() {
                return Err(Error::OutOfOrder { expected: last.next(), found: row.lsn });
            }
            hash = chain::link(&hash, row.lsn, row.pid, &row.digest);
            last = row.lsn;
            let Row { lsn, at, pid, cause, kind, body, .. } = row;
            rows.push(Stored { lsn, pid, at, cause, kind: kind.to_owned(), hash, body });
        }
        self.pending.push(Pending::Batch(rows));
        Ok(())
    }

    /// Writes a checkpoint without making it durable.
    ///
    /// # Errors
    /// [`Error::StaleCheckpoint`] refuses it alone; [`Error::Full`] where the store was told to fail.
    pub fn write_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.ready()?;
        let durable = self.globals.as_ref().map_or(Lsn::ZERO, |(lsn, _)| *lsn);
        let least = self.pending.iter().rev().find_map(|pending| match pending {
            Pending::Checkpoint(earlier) => Some(earlier.lsn),
            Pending::Batch(_) => None,
        });
        let (least, most, found) = (least.unwrap_or(durable), self.tip().0, checkpoint.lsn);
        if found < least || found > most {
            return Err(Error::StaleCheckpoint { least, most, found });
        }
        self.pending.push(Pending::Checkpoint(checkpoint));
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// [`Error::Io`] where it was told to fail; then nothing more is taken until [`MemoryStore::crash`].
    pub fn sync(&mut self) -> Result<(), Error> {
        self.poison.clone().map_or(Ok(()), Err)?;
        if self.fault == Some(Fault::Sync) {
            let error = Error::io("sync", Path::new("memory"), io::Error::other("the simulated disk failed"));
            self.poison = Some(error.clone());
            return Err(error);
        }
        self.syncs += 1;
        self.settle();
        Ok(())
    }

    /// The next write fails as on a full disk, and poisons the store.
    pub fn fail_write(&mut self) {
        self.fault = Some(Fault::Write);
    }

    /// The next sync fails, and poisons the store.
    pub fn fail_sync(&mut self) {
        self.fault = Some(Fault::Sync);
    }

    /// The machine stops and the store is opened again: what was not synced is decided, faults are over.
    pub fn crash(&mut self, unsynced: Crash) {
        match unsynced {
            Crash::Lost => self.pending.clear(),
            Crash::Kept => {}
            Crash::Part(writes) => self.pending.truncate(writes),
        }
        self.settle();
        (self.poison, self.fault) = (None, None);
    }

    /// Flips the lowest bit of one byte of a stored body, as a bad disk would. `false` where there is no such byte.
    pub fn flip(&mut self, lsn: Lsn, byte: usize) -> bool {
        let entry = lsn.0.checked_sub(1).and_then(|at| self.entries.get_mut(usize::try_from(at).ok()?));
        let Some(byte) = entry.and_then(|entry| entry.body.get_mut(byte)) else { return false };
        *byte ^= 1;
        true
    }

    /// How many writes wait for a sync.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// How often a sync succeeded.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    fn ready(&mut self) -> Result<(), Error> {
        self.poison.clone().map_or(Ok(()), Err)?;
        if self.fault == Some(Fault::Write) {
            self.pending.clear();
            self.poison = Some(Error::Full);
            return Err(Error::Full);
        }
        Ok(())
    }

    fn settle(&mut self) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Batch(entries) => self.entries.extend(entries),
                Pending::Checkpoint(Checkpoint { lsn, globals, pages, removed }) => {
                    self.pages.extend(pages);
                    self.pages.retain(|pid, _| !removed.contains(pid));
                    self.globals = Some((lsn, globals));
                }
            }
        }
    }

    /// The last entry, written or durable.
    fn tip(&self) -> (Lsn, Hash) {
        let pending = self.pending.iter().rev().find_map(|pending| match pending {
            Pending::Batch(entries) => entries.last(),
            Pending::Checkpoint(_) => None,
        });
        pending.or(self.entries.last()).map_or((Lsn::ZERO, GENESIS), |entry| (entry.lsn, entry.hash))
    }
}

impl Store for MemoryStore {
    fn append(&mut self, batch: Batch) -> Result<(), Error> {
        self.write(&batch)?;
        self.sync()
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.write_checkpoint(checkpoint)?;
        self.sync()
    }

    fn last(&self) -> Result<(Lsn, Hash), Error> {
        Ok(self.entries.last().map_or((Lsn::ZERO, GENESIS), |entry| (entry.lsn, entry.hash)))
    }

    fn globals(&self) -> Result<Option<(Lsn, Vec<u8>)>, Error> {
        Ok(self.globals.clone())
    }

    fn page(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.pages.get(&pid).cloned())
    }

    fn for_each_after(&self, after: Lsn, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Error> {
        let from = usize::try_from(after.0).unwrap_or(usize::MAX).min(self.entries.len());
        let mut before = from.checked_sub(1).map_or(GENESIS, |at| self.entries[at].hash);
        for entry in &self.entries[from..] {
            if entry.link(&before) != entry.hash {
                return Err(corrupt(entry.lsn, "its hash does not follow from the entry before".into()));
            }
            before = entry.hash;
            if visit(entry.clone().parse()?).is_break() {
                break;
            }
        }
        Ok(())
    }
}
