//! What the kernel needs of a journal, so that the simulation can put a faulty one in its place.
//!
//! [`crate::Journal`] and [`crate::MemoryStore`] both keep it; `tests/journal/contract.rs` runs the same cases over both.

use std::ops::ControlFlow;

use aos_abi::{Entry, Lsn, Pid};

use crate::chain::Hash;
use crate::{Batch, Checkpoint, Error, Journal};

/// A durable, ordered, hash-chained list of entries, and the kernel's last saved state.
pub trait Store {
    /// Makes a batch durable, all of it or none; it is when this returns `Ok`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] refuses this batch alone. After any other error nothing more is taken.
    fn append(&mut self, batch: Batch) -> Result<(), Error>;

    /// Saves the kernel's state, wholly or not at all.
    ///
    /// # Errors
    /// [`Error::StaleCheckpoint`] refuses this checkpoint alone. After any other error nothing more is taken.
    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Error>;

    /// The last durable entry and its hash.
    ///
    /// # Errors
    /// As for every read.
    fn last(&self) -> Result<(Lsn, Hash), Error>;

    /// The saved state of the kernel and the entry it is as of.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    fn globals(&self) -> Result<Option<(Lsn, Vec<u8>)>, Error>;

    /// The saved state of a process.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    fn page(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error>;

    /// Gives every entry after `after` to `visit`, in order, until it breaks.
    ///
    /// # Errors
    /// [`Error::Corrupt`] at the first entry that is not what was written.
    fn for_each_after(&self, after: Lsn, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Error>;
}

impl Store for Journal {
    fn append(&mut self, batch: Batch) -> Result<(), Error> {
        self.append_wait(batch)
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.checkpoint_wait(checkpoint)
    }

    fn last(&self) -> Result<(Lsn, Hash), Error> {
        self.reader().last()
    }

    fn globals(&self) -> Result<Option<(Lsn, Vec<u8>)>, Error> {
        self.load_globals()
    }

    fn page(&self, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
        self.reader().page(pid)
    }

    fn for_each_after(&self, after: Lsn, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Error> {
        self.reader().for_each_after(after, visit)
    }
}
