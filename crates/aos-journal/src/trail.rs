//! Trails: where each process's entries are, so that one process is read without a scan.
//!
//! Start at [`Index::extend`]. An ordinary index over (pid, lsn) would touch one page for every process in a commit:
//! with a thousand busy processes and a million entries that cut throughput to a third. So the positions wait in
//! `fresh`, in order of arrival, while commits are large, and are sorted into `trail` many at a time. Commits that are
//! small, as they are on a quiet machine, go into `trail` at once.
//!
//! What always holds after a commit: every entry's position is in exactly one of the two tables, and those in `fresh`
//! are later than all in `trail`. Both are derived: verification checks them against the entries.

use aos_abi::{Lsn, Pid};
use rusqlite::Connection;

/// A commit with as many entries is large.
const LARGE: u64 = 64;
/// Most positions that wait; a reader looks through all of them, which takes about a millisecond.
const FRESH_MAX: u64 = 16_384;

/// Positions of process ?1 after ?2, in order, at most ?3, and their entries in `entry`.
pub(crate) const OF_PROCESS: &str = "
  (SELECT lsn AS position FROM trail WHERE pid = ?1 AND lsn > ?2
   UNION ALL SELECT lsn FROM fresh WHERE pid = ?1 AND lsn > ?2 ORDER BY 1 LIMIT ?3)
  CROSS JOIN entry ON entry.lsn = position WHERE entry.pid = ?1";

/// The writer's view: how many positions wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    fresh: u64,
}

impl Index {
    pub(crate) fn read(db: &Connection) -> rusqlite::Result<Index> {
        db.query_row("SELECT count(*) FROM fresh", [], |row| Ok(Index { fresh: row.get(0)? }))
    }

    /// Takes in the entries after `before` that the open transaction has written.
    pub(crate) fn extend(&mut self, db: &Connection, before: Lsn, last: Lsn) -> rusqlite::Result<()> {
        let count = last.0 - before.0;
        if count == 0 {
            return Ok(());
        }
        if count >= LARGE && self.fresh + count <= FRESH_MAX {
            db.prepare_cached("INSERT INTO fresh(lsn, pid) SELECT lsn, pid FROM entry WHERE lsn > ?1")?
                .execute([before.0])?;
            self.fresh += count;
            return Ok(());
        }
        self.sort(db)?;
        // In order of process, so that each page is touched once.
        db.prepare_cached("INSERT INTO trail(pid, lsn) SELECT pid, lsn FROM entry WHERE lsn > ?1 ORDER BY pid, lsn")?
            .execute([before.0])?;
        Ok(())
    }

    /// Sorts what waits into the trails.
    pub(crate) fn sort(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if self.fresh > 0 {
            db.execute("INSERT INTO trail(pid, lsn) SELECT pid, lsn FROM fresh ORDER BY pid, lsn", [])?;
            db.execute("DELETE FROM fresh", [])?;
            self.fresh = 0;
        }
        Ok(())
    }
}

/// The highest pid that any entry is of, without a scan of all; pruned entries are in no trail.
pub(crate) fn last_pid(db: &Connection) -> rusqlite::Result<Pid> {
    let last = "SELECT max((SELECT ifnull(max(pid), 0) FROM trail), (SELECT ifnull(max(pid), 0) FROM fresh))";
    db.query_row(last, [], |row| row.get(0).map(Pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn a_process_is_read_without_a_scan_and_without_sorting() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::TABLES).unwrap();
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN SELECT body FROM {OF_PROCESS}")).unwrap();
        let steps = statement.query_map((1, 2, 3), |row| row.get::<_, String>(3)).unwrap();
        let plan = steps.map(Result::unwrap).collect::<Vec<_>>().join("; ");
        for step in [
            "SEARCH trail USING PRIMARY KEY (pid=? AND lsn>?)",
            "SEARCH fresh USING INTEGER PRIMARY KEY (rowid>?)",
            "SEARCH entry USING INTEGER PRIMARY KEY (rowid=?)",
        ] {
            assert!(plan.contains(step), "{step} is not in {plan}");
        }
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
