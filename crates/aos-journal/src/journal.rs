//! The journal's handle: what the daemon holds.
//!
//! Start at [`Journal::append`]. Every write goes through one queue to one thread ([`crate::writer`] has the rules);
//! every read goes over connections of its own and waits for no write.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use aos_abi::{Entry, Lsn, Timestamp};

use crate::lock::Lock;
use crate::named::Named;
use crate::prune::PrunePlan;
use crate::row::Row;
use crate::writer::{Command, Done, Shared, Work};
use crate::{Checkpoint, Error, PageReader, Reader, Report};

/// Entries that become durable together, stamped with consecutive numbers by the caller.
pub type Batch = Vec<Arc<Entry>>;

/// How much was written since opening. `entries / commits` is what group commit gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions, each with one sync of the log.
    pub commits: u64,
    /// Entries.
    pub entries: u64,
}

/// An open journal. Dropping it, or [`Journal::close`], writes what is queued and releases the home.
#[derive(Debug)]
pub struct Journal {
    sender: Option<SyncSender<Command>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    reader: Reader,
    named: Named,
    /// Goes last: no other daemon may open the home before the writer is done.
    _lock: Lock,
}

impl Journal {
    pub(crate) fn new(
        sender: SyncSender<Command>,
        thread: JoinHandle<()>,
        shared: Arc<Shared>,
        reader: Reader,
        named: Named,
        lock: Lock,
    ) -> Journal {
        Journal { sender: Some(sender), thread: Some(thread), shared, reader, named, _lock: lock }
    }

    /// Makes a batch durable, then calls `done`; all of it or none.
    ///
    /// `done` runs on the writer's thread, in the order of appends, and must not block. Where the queue is full this
    /// waits for room (a commit's time). If the journal is already closed, `done` gets [`Error::Closed`] at once.
    ///
    /// `done` gets [`Error::OutOfOrder`] where the numbers do not follow the last entry; then nothing was written.
    /// With any other error the outcome is unknown until the journal is opened again, and all later appends fail alike.
    pub fn append(&self, batch: Batch, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let rows = batch.iter().map(|entry| Row::of(entry)).collect();
        self.send(Work::Append(rows), Box::new(done));
    }

    /// Saves the kernel's state, in order with the appends before and after it, in one transaction.
    ///
    /// `done` gets [`Error::StaleCheckpoint`] where it is older than the last one or ahead of the entries.
    pub fn checkpoint(&self, checkpoint: Checkpoint, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.send(Work::Checkpoint(checkpoint), Box::new(done));
    }

    /// Takes the plan's entries out and appends the mark that says so, which is returned: entry `lsn`, the next one.
    /// The writer is busy with it for some microseconds an entry.
    pub fn prune(
        &self,
        plan: PrunePlan,
        lsn: Lsn,
        at: Timestamp,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Arc<Entry> {
        let mark = plan.mark(lsn, at);
        self.send(Work::Prune { mark: Row::of(&mark), plan }, Box::new(done));
        mark
    }

    /// Keeps the last checkpoint as the barrier: what is decided after it can be decided again by this version of aos. The
    /// writer is busy with it for some microseconds a process.
    pub fn barrier(&self, version: &str, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.send(Work::Barrier(version.to_owned()), Box::new(done));
    }

    /// [`Journal::barrier`], waiting. Not for async code.
    ///
    /// # Errors
    /// As `done` gets them there.
    pub fn barrier_wait(&self, version: &str) -> Result<(), Error> {
        self.wait(|done| self.barrier(version, done))
    }

    fn send(&self, work: Work, done: Done) {
        let command = Command { work, done };
        let refused = match &self.sender {
            Some(sender) => sender.send(command).err().map(|refused| refused.0),
            None => Some(command),
        };
        if let Some(command) = refused {
            (command.done)(Err(Error::Closed));
        }
    }

    /// [`Journal::append`], waiting. Not for async code.
    ///
    /// # Errors
    /// As `done` gets them there.
    pub fn append_wait(&self, batch: Batch) -> Result<(), Error> {
        self.wait(|done| self.append(batch, done))
    }

    /// [`Journal::checkpoint`], waiting. Not for async code.
    ///
    /// # Errors
    /// As `done` gets them there.
    pub fn checkpoint_wait(&self, checkpoint: Checkpoint) -> Result<(), Error> {
        self.wait(|done| self.checkpoint(checkpoint, done))
    }

    fn wait(&self, start: impl FnOnce(Done)) -> Result<(), Error> {
        let (sender, answer) = sync_channel(1);
        start(Box::new(move |outcome| {
            // The receiver waits below and is gone only with this thread.
            let _ = sender.send(outcome);
        }));
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// The last durable entry.
    #[must_use]
    pub fn last(&self) -> Lsn {
        Lsn(self.shared.last.load(Ordering::Acquire))
    }

    /// What was written since opening.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            commits: self.shared.commits.load(Ordering::Relaxed),
            entries: self.shared.entries.load(Ordering::Relaxed),
        }
    }

    /// Why nothing more can be appended, if so.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.poison.get().cloned()
    }

    /// Whether the file that is written is still the one of its name; takes about a microsecond. Where it is not, the next
    /// append fails, an empty one too, and says what was kept.
    ///
    /// # Errors
    /// [`Error::Replaced`].
    pub fn in_place(&self) -> Result<(), Error> {
        self.named.check()
    }

    /// A way to read; cheap to clone, usable from any thread, and it may outlive the journal.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// A way to read pages, with a connection of its own.
    ///
    /// # Errors
    /// As for every read.
    pub fn page_reader(&self) -> Result<PageReader, Error> {
        PageReader::open(self.reader.path())
    }

    /// The kernel's saved state and the entry it is as of.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where its bytes are not those that were written.
    pub fn load_globals(&self) -> Result<Option<(Lsn, Vec<u8>)>, Error> {
        self.reader.globals()
    }

    /// A consistent, compact copy at `to` while everything goes on; verified before it gets its name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::Corrupt`].
    pub fn backup(&self, to: &Path) -> Result<Report, Error> {
        self.reader.backup(to)
    }

    /// Writes what is queued and releases the home.
    ///
    /// # Errors
    /// Why the writer had stopped, if it had.
    pub fn close(mut self) -> Result<(), Error> {
        self.stop();
        self.failure().map_or(Ok(()), Err)
    }

    fn stop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer came from a callback; its own state is on disk or rolled back.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}
