//! The journal as lines of JSON that anybody can check without this program.
//!
//! Start at [`Reader::export`]. A line is an entry as it was stored, byte for byte from `"type"` on, with its place and
//! its hash before that; of a pruned entry what the chain needs of it. What always holds: the text after
//! `,"type":` with `{"type":` before it is what the digest covers; no more is in memory than one page.

use aos_abi::{Lsn, Timestamp};
use rusqlite::OptionalExtension;

use crate::reader::{CHUNK_BYTES, Reader};
use crate::row::{COLUMNS, Stored, corrupt};
use crate::{Error, chain};

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The entry.
    pub lsn: Lsn,
    /// `{"lsn":…,"at":"…","pid":…,"cause":…,"hash":"…","type":…}`; for a pruned one
    /// `{"lsn":…,"pid":…,"digest":"…","type":"sealed"}`.
    pub text: String,
}

impl Reader {
    /// At most `limit` lines after `after`, fewer where they are large; none only at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a body that is no body, and as for every read.
    pub fn export(&self, after: Lsn, limit: u64) -> Result<Vec<Line>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (entries, sealed) = self.with(|db| {
            let read = || {
                // A prune between the two reads would have an entry in both.
                let moment = db.unchecked_transaction()?;
                let mut statement = moment
                    .prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn > ?1 ORDER BY lsn LIMIT ?2"))?;
                let mut rows = statement.query((after.0, limit))?;
                let (mut entries, mut bytes) = (Vec::new(), 0);
                while bytes < CHUNK_BYTES
                    && let Some(row) = rows.next()?
                {
                    let entry = Stored::read(row)?;
                    bytes += entry.body.len();
                    entries.push(entry);
                }
                // What was pruned stands before the mark that says so, so an entry follows it.
                let upto = entries.last().map_or(after.0, |entry| entry.lsn.0);
                let mut statement = moment.prepare_cached(
                    "SELECT lsn, pid, digest FROM sealed WHERE lsn > ?1 AND lsn < ?2 ORDER BY lsn LIMIT ?3",
                )?;
                let sealed = statement.query_map((after.0, upto, limit), |row| {
                    Ok((Lsn(row.get(0)?), row.get::<_, u64>(1)?, row.get::<_, chain::Hash>(2)?))
                })?;
                Ok((entries, sealed.collect::<rusqlite::Result<Vec<_>>>()?))
            };
            read().map_err(self.fail())
        })?;
        let mut lines: Vec<Line> = entries.into_iter().map(line).collect::<Result<_, _>>()?;
        lines.extend(sealed.into_iter().map(|(lsn, pid, digest)| Line {
            lsn,
            text: format!(r#"{{"lsn":{lsn},"pid":{pid},"digest":"{}","type":"sealed"}}"#, chain::hex(&digest)),
        }));
        lines.sort_unstable_by_key(|line| line.lsn);
        lines.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(lines)
    }

    /// The last entry before a moment; zero where there is none.
    ///
    /// # Errors
    /// As for every read.
    pub fn before(&self, moment: Timestamp) -> Result<Lsn, Error> {
        let first = self.with(|db| {
            db.prepare_cached("SELECT lsn FROM entry WHERE at >= ?1 ORDER BY lsn LIMIT 1")
                .and_then(|mut statement| statement.query_row([moment.0], |row| row.get::<_, u64>(0)).optional())
                .map_err(self.fail())
        })?;
        match first {
            Some(first) => Ok(Lsn(first.saturating_sub(1))),
            None => self.last().map(|(last, _)| last),
        }
    }

    /// The last entry made before a moment, zero where none was; looked for from the end, for moments not long ago.
    ///
    /// # Errors
    /// As for every read.
    pub fn last_before(&self, moment: Timestamp) -> Result<Lsn, Error> {
        let last = self.with(|db| {
            db.prepare_cached("SELECT lsn FROM entry WHERE at < ?1 ORDER BY lsn DESC LIMIT 1")
                .and_then(|mut statement| statement.query_row([moment.0], |row| row.get::<_, u64>(0)).optional())
                .map_err(self.fail())
        })?;
        Ok(last.map_or(Lsn::ZERO, Lsn))
    }
}

fn line(entry: Stored) -> Result<Line, Error> {
    let lsn = entry.lsn;
    let broken = |what: &str| corrupt(lsn, format!("its body is no body: {what}"));
    let body = std::str::from_utf8(&entry.body).map_err(|error| broken(&error.to_string()))?;
    let body = body.strip_prefix('{').ok_or_else(|| broken("it begins with no brace"))?;
    let cause = entry.cause.map(|cause| format!(r#""cause":{cause},"#)).unwrap_or_default();
    let (at, pid, hash) = (entry.at, entry.pid, chain::hex(&entry.hash));
    Ok(Line { lsn, text: format!(r#"{{"lsn":{lsn},"at":"{at}","pid":{pid},{cause}"hash":"{hash}",{body}"#) })
}
