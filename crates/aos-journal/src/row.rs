//! One entry as a row: how it is laid into the table and taken out again.

use std::path::Path;

use aos_abi::{Body, Entry, Lsn, Pid, Timestamp};

use crate::chain::{self, Hash};
use crate::{Error, Place};

/// An entry made ready in the caller's thread, so that the one writer has less to do.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) lsn: Lsn,
    pub(crate) at: Timestamp,
    pub(crate) pid: Pid,
    pub(crate) cause: Option<Lsn>,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) digest: Hash,
}

impl Row {
    pub(crate) fn of(entry: &Entry) -> Row {
        let body = serde_json::to_vec(&entry.body).expect("a body has string keys only and no failing serializer");
        let kind = entry.body.kind();
        let digest = chain::digest(entry.at, entry.cause, kind, &body);
        Row { lsn: entry.lsn, at: entry.at, pid: entry.pid, cause: entry.cause, kind, body, digest }
    }
}

/// The columns that [`Stored::read`] expects, in order.
pub(crate) const COLUMNS: &str = "entry.lsn, entry.at, entry.pid, entry.cause, entry.kind, entry.hash, entry.body";

/// An entry as it was read, not yet parsed and not yet believed.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) lsn: Lsn,
    pub(crate) pid: Pid,
    pub(crate) at: Timestamp,
    pub(crate) cause: Option<Lsn>,
    pub(crate) kind: String,
    pub(crate) hash: Hash,
    pub(crate) body: Vec<u8>,
}

impl Stored {
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Stored> {
        Ok(Stored {
            lsn: Lsn(row.get(0)?),
            at: Timestamp(row.get(1)?),
            pid: Pid(row.get(2)?),
            // To the digest 0 and nothing are the same, so they are the same here: no entry has that number.
            cause: row.get::<_, Option<u64>>(3)?.filter(|lsn| *lsn > 0).map(Lsn),
            kind: row.get(4)?,
            hash: row.get(5)?,
            body: row.get(6)?,
        })
    }

    pub(crate) fn digest(&self) -> Hash {
        chain::digest(self.at, self.cause, &self.kind, &self.body)
    }

    /// The hash that belongs here after `before`.
    pub(crate) fn link(&self, before: &Hash) -> Hash {
        chain::link(before, self.lsn, self.pid, &self.digest())
    }

    pub(crate) fn parse(self) -> Result<Entry, Error> {
        let body = serde_json::from_slice::<Body>(&self.body)
            .map_err(|source| corrupt(self.lsn, format!("its body does not parse: {source}")))?;
        Ok(Entry { lsn: self.lsn, at: self.at, pid: self.pid, cause: self.cause, body })
    }
}

/// An entry that is not what was written; those before it are sound.
pub(crate) fn corrupt(lsn: Lsn, detail: String) -> Error {
    Error::Corrupt { at: Place::Entry(lsn), detail, sound_upto: lsn.0.checked_sub(1).map(Lsn) }
}

/// A row whose columns have the wrong types is corruption too, not a fault of the query.
pub(crate) fn read_error(doing: &'static str, path: &Path, source: rusqlite::Error) -> Error {
    match source {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => {
            Error::Corrupt { at: Place::File, detail: source.to_string(), sound_upto: None }
        }
        source => Error::sqlite(doing, path, source),
    }
}
