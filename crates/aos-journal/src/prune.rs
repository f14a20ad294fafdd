//! Pruning: taking old, exited processes out of the journal without breaking its chain.
//!
//! Start at [`crate::Reader::prune_plan`], then [`crate::Journal::prune`]. In one transaction each entry of the plan is
//! replaced by its digest (`sealed`, 32 bytes), and a `pruned` entry is appended that names the processes and the count.
//! Verification walks over the digests, so a changed, missing or smuggled seal shows as much as a changed entry.
//!
//! What goes is overwritten in the file and, where no reader is in the way, folded out of its log before the prune is
//! answered; else as soon as the reader is done (`Writer::fold`).
//!
//! What stays: the `charged` entries, so that what was spent is not forgotten, and every process with an entry after the
//! last checkpoint, so that replay at boot never meets a gap and no process goes in halves. The space is used again by later entries; the file itself
//! shrinks when a backup of it is restored.

use std::sync::Arc;

use aos_abi::{Body, Entry, Lsn, Pid, Timestamp};
use rusqlite::Connection;

use crate::row::{COLUMNS, Stored};

/// What a prune will take out. Made by [`crate::Reader::prune_plan`], so that it is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunePlan {
    pub(crate) pids: Vec<Pid>,
    pub(crate) upto: Lsn,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl PrunePlan {
    /// The processes, by rising pid, without repetition; only those that have something to take out, and nothing after the
    /// last checkpoint.
    #[must_use]
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }

    /// How many entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The bytes of their bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entry that says so in the journal.
    #[must_use]
    pub fn mark(&self, lsn: Lsn, at: Timestamp) -> Arc<Entry> {
        let body = Body::Pruned { pids: self.pids.clone(), entries: self.entries };
        Arc::new(Entry { lsn, at, pid: Pid::SYSTEM, cause: None, body })
    }
}

/// Makes a plan from what is there now.
pub(crate) fn plan(db: &Connection, upto: Lsn, mut pids: Vec<Pid>) -> rusqlite::Result<PrunePlan> {
    pids.sort_unstable();
    pids.dedup();
    let mut plan = PrunePlan { pids: Vec::new(), upto, entries: 0, bytes: 0 };
    let mut count = db.prepare(
        "SELECT count(*), coalesce(sum(length(body)), 0) FROM entry WHERE kind <> 'charged' AND lsn IN (
           SELECT lsn FROM trail WHERE pid = ?1 AND lsn <= ?2
           UNION ALL SELECT lsn FROM fresh WHERE pid = ?1 AND lsn <= ?2)",
    )?;
    let mut late = db.prepare(
        "SELECT EXISTS(SELECT 1 FROM trail WHERE pid = ?1 AND lsn > ?2)
             OR EXISTS(SELECT 1 FROM fresh WHERE pid = ?1 AND lsn > ?2)",
    )?;
    // The system's own entries hold the chain's marks, and the person's side never exits.
    for pid in pids.into_iter().filter(|pid| *pid != Pid::SYSTEM && *pid != Pid::INIT) {
        let (entries, bytes): (u64, u64) = count.query_row((pid.0, upto.0), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let too_late: bool = late.query_row((pid.0, upto.0), |row| row.get(0))?;
        if entries > 0 && !too_late {
            plan.pids.push(pid);
            plan.entries += entries;
            plan.bytes += bytes;
        }
    }
    Ok(plan)
}

/// Replaces the plan's entries by their digests, in the open transaction. All positions must be in `trail`.
pub(crate) fn seal(db: &Connection, plan: &PrunePlan) -> rusqlite::Result<()> {
    plan.pids.iter().try_for_each(|pid| seal_process(db, *pid, plan.upto))
}

fn seal_process(db: &Connection, pid: Pid, upto: Lsn) -> rusqlite::Result<()> {
    let mut select = db.prepare(&format!(
        "SELECT {COLUMNS} FROM trail CROSS JOIN entry ON entry.lsn = trail.lsn
         WHERE trail.pid = ?1 AND trail.lsn <= ?2 AND kind <> 'charged'"
    ))?;
    let mut insert = db.prepare("INSERT INTO sealed(lsn, pid, digest) VALUES (?1, ?2, ?3)")?;
    let mut rows = select.query((pid.0, upto.0))?;
    while let Some(row) = rows.next()? {
        let entry = Stored::read(row)?;
        insert.execute((entry.lsn.0, pid.0, entry.digest()))?;
    }
    db.execute(
        "DELETE FROM entry WHERE kind <> 'charged' AND lsn IN (SELECT lsn FROM trail WHERE pid = ?1 AND lsn <= ?2)",
        (pid.0, upto.0),
    )?;
    db.execute(
        "DELETE FROM trail WHERE pid = ?1 AND lsn <= ?2 AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.lsn = trail.lsn)",
        (pid.0, upto.0),
    )?;
    Ok(())
}
