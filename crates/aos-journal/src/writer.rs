//! The one writer: a thread that makes everything queued durable with one commit, then answers everyone.
//!
//! Start at [`Writer::run`]. What always holds: nobody is answered `Ok` before the commit returned; a command that does
//! not fit (a gap in the numbering, a stale checkpoint) is refused alone and leaves no trace; a commit that fails
//! poisons the journal, because what the disk holds is then unknown until it is opened again, and so does another file
//! under its name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aos_abi::Lsn;
use rusqlite::Connection;

use crate::checkpoint::{self, Checkpoint};
use crate::head::{Head, HeadFile};
use crate::named::{self, Named};
use crate::prune::{self, PrunePlan};
use crate::row::Row;
use crate::trail::Index;
use crate::{Error, barrier, chain, schema};

/// Most entries of one commit; bounds how long the first of them waits, to some tens of milliseconds.
const GROUP_ENTRIES_MAX: usize = 8192;
/// Bytes of bodies and states after which a commit takes no more.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// How long the queue is empty before the log is folded again, where a reader was in the way.
const FOLD_AGAIN: Duration = Duration::from_secs(1);

/// Called once, on the writer's thread: it must not block, and must not wait for the journal.
pub(crate) type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Something to make durable, and who waits for it.
pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) done: Done,
}

pub(crate) enum Work {
    Append(Vec<Row>),
    Checkpoint(Checkpoint),
    Prune {
        plan: PrunePlan,
        mark: Row,
    },
    /// The last checkpoint is kept as the barrier of this version.
    Barrier(String),
}

impl Work {
    fn entries(&self) -> usize {
        match self {
            Work::Append(rows) => rows.len(),
            Work::Checkpoint(checkpoint) => checkpoint.pages.len() + checkpoint.removed.len() + 1,
            Work::Prune { .. } | Work::Barrier(_) => GROUP_ENTRIES_MAX,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Work::Append(rows) => rows.iter().map(|row| row.body.len()).sum(),
            Work::Checkpoint(checkpoint) => {
                checkpoint.globals.len() + checkpoint.pages.iter().map(|(_, state)| state.len()).sum::<usize>()
            }
            Work::Prune { .. } | Work::Barrier(_) => GROUP_BYTES_MAX,
        }
    }
}

/// What the writer lets others see.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) commits: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) last: AtomicU64,
    pub(crate) poison: OnceLock<Error>,
}

pub(crate) struct Writer {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
    pub(crate) named: Named,
    pub(crate) head_file: HeadFile,
    pub(crate) last: Head,
    pub(crate) checkpoint: Lsn,
    pub(crate) index: Index,
    /// The log may still hold what was taken out.
    pub(crate) remains: bool,
    pub(crate) shared: Arc<Shared>,
}

/// Why a command did not become part of its group.
enum Stop {
    /// It does not fit; the group goes on without it.
    Refused(Error),
    /// The database failed; the whole group fails.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(source: rusqlite::Error) -> Self {
        Stop::Failed(source)
    }
}

impl Writer {
    /// Works until every sender is gone, then folds the log into the file.
    pub(crate) fn run(mut self, queue: &Receiver<Command>) {
        while let Some(first) = self.next(queue) {
            let (mut entries, mut bytes) = (first.work.entries(), first.work.bytes());
            let mut group = vec![first];
            while entries < GROUP_ENTRIES_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(next) = queue.try_recv() else { break };
                entries += next.work.entries();
                bytes += next.work.bytes();
                group.push(next);
            }
            self.commit(group);
        }
        // Nothing depends on these: everything is durable in the log, and the head is never ahead of it.
        let _ = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.head_file.sync();
    }

    /// The next command; none once every sender is gone.
    fn next(&mut self, queue: &Receiver<Command>) -> Option<Command> {
        while self.remains {
            match queue.recv_timeout(FOLD_AGAIN) {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.fold(),
            }
        }
        queue.recv().ok()
    }

    /// Folds the log into the file and empties it: what was taken out stands in both until then. Waits for no reader.
    fn fold(&mut self) {
        let folded = self.db.busy_timeout(Duration::ZERO).and_then(|()| {
            self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
        });
        self.remains = !folded.unwrap_or(false);
        // Only a connection that was misused refuses it.
        let _ = self.db.busy_timeout(schema::BUSY);
    }

    /// Writes no more where the file has lost its name, and keeps what was written.
    fn look(&self) {
        if let (None, Err(Error::Replaced { path, .. })) = (self.shared.poison.get(), self.named.check()) {
            let kept = named::keep(&self.db, &path);
            let _ = self.shared.poison.set(Error::Replaced { path, kept });
        }
    }

    /// One transaction, one sync, one answer for each command.
    fn commit(&mut self, group: Vec<Command>) {
        self.look();
        if let Some(error) = self.shared.poison.get() {
            for command in group {
                (command.done)(Err(error.clone()));
            }
            return;
        }
        let before = (self.last, self.checkpoint, self.index);
        let mut answers = Vec::with_capacity(group.len());
        // No more often: each time that a reader is in the way costs a sync of the file.
        let fold = group.iter().any(|command| !matches!(command.work, Work::Append(_)));
        let failed = match self.transact(group, &mut answers) {
            Ok(()) => {
                self.committed(before.0.lsn);
                if fold && self.remains {
                    self.fold();
                }
                None
            }
            Err(source) => {
                // Where the rollback fails too, closing the connection does it.
                let _ = self.db.execute_batch("ROLLBACK");
                (self.last, self.checkpoint, self.index) = before;
                let error = Error::sqlite("write the journal", &self.path, source);
                // Only this thread sets it, and only once.
                let _ = self.shared.poison.set(error.clone());
                Some(error)
            }
        };
        for (done, refused) in answers {
            done(match (refused, &failed) {
                (Some(refused), _) => Err(refused),
                (None, Some(error)) => Err(error.clone()),
                (None, None) => Ok(()),
            });
        }
    }

    /// Fills `answers` with every command of the group, also where it fails.
    fn transact(&mut self, group: Vec<Command>, answers: &mut Vec<(Done, Option<Error>)>) -> rusqlite::Result<()> {
        let before = self.last.lsn;
        let mut outcome = self.say("BEGIN IMMEDIATE");
        for Command { work, done } in group {
            let refused = match outcome.is_ok().then(|| self.write(work)) {
                None | Some(Ok(())) => None,
                Some(Err(Stop::Refused(error))) => Some(error),
                Some(Err(Stop::Failed(source))) => {
                    outcome = Err(source);
                    None
                }
            };
            answers.push((done, refused));
        }
        outcome?;
        self.index.extend(&self.db, before, self.last.lsn)?;
        self.say("COMMIT")
    }

    /// Runs a statement without parameters that is used at every commit.
    fn say(&self, statement: &str) -> rusqlite::Result<()> {
        self.db.prepare_cached(statement)?.execute(()).map(|_| ())
    }

    fn committed(&mut self, before: Lsn) {
        // Whoever only reads waits for what is written before, and writes nothing: no sync, and the head is as it was.
        if self.last.lsn == before {
            return;
        }
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.shared.entries.fetch_add(self.last.lsn.0 - before.0, Ordering::Relaxed);
        self.shared.last.store(self.last.lsn.0, Ordering::Release);
        if let Err(source) = self.head_file.write(self.last) {
            // This commit is durable and is answered so. Later ones could be lost unnoticed, so there are none.
            let _ = self.shared.poison.set(Error::io("write the head file beside", &self.path, source));
        }
    }

    fn write(&mut self, work: Work) -> Result<(), Stop> {
        match work {
            Work::Append(rows) => {
                let mut expected = self.last.lsn;
                for row in &rows {
                    expected = expected.next();
                    if row.lsn != expected {
                        return Err(Stop::Refused(Error::OutOfOrder { expected, found: row.lsn }));
                    }
                }
                rows.iter().try_for_each(|row| self.insert(row))?;
            }
            Work::Checkpoint(checkpoint) => {
                let (least, most, found) = (self.checkpoint, self.last.lsn, checkpoint.lsn);
                if found < least || found > most {
                    return Err(Stop::Refused(Error::StaleCheckpoint { least, most, found }));
                }
                checkpoint::write(&self.db, &checkpoint)?;
                self.checkpoint = found;
                self.remains |= !checkpoint.removed.is_empty();
            }
            Work::Prune { plan, mark } => {
                let expected = self.last.lsn.next();
                if mark.lsn != expected {
                    return Err(Stop::Refused(Error::OutOfOrder { expected, found: mark.lsn }));
                }
                self.index.sort(&self.db)?;
                prune::seal(&self.db, &plan)?;
                // It may hold what goes; whoever decides keeps another one.
                barrier::forget(&self.db)?;
                self.remains = true;
                self.insert(&mark)?;
            }
            Work::Barrier(version) => {
                barrier::keep(&self.db, &version)?;
                // What was pruned may have stood in the one before.
                self.remains = true;
            }
        }
        Ok(())
    }

    fn insert(&mut self, row: &Row) -> rusqlite::Result<()> {
        let hash = chain::link(&self.last.hash, row.lsn, row.pid, &row.digest);
        self.db
            .prepare_cached(
                "INSERT INTO entry(lsn, at, pid, cause, kind, hash, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute((row.lsn.0, row.at.0, row.pid.0, row.cause.map(|lsn| lsn.0), row.kind, hash, &row.body))?;
        self.last = Head { lsn: row.lsn, hash, pid: self.last.pid.max(row.pid) };
        Ok(())
    }
}
