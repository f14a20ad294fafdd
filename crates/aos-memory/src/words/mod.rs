//! The store that finds by words: SQLite with two full-text indexes and no service beside it.
//!
//! Start at [`WordStore::open`]; `schema` says what the tables hold, `search` how a score comes about.

mod forget;
mod rows;
mod schema;
mod search;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aos_abi::Timestamp;
use rusqlite::Connection;

use crate::store::MemoryStore;
use crate::{Error, Forget, Hit, Note, Record, Search, Stats};

/// Most idle reading connections that are kept.
const READERS_MAX: usize = 4;

/// A memory store in one file (`memory.db`, with its write-ahead log beside it).
///
/// One connection writes, under a lock; readers have their own and wait for nobody.
#[derive(Debug)]
pub struct WordStore {
    path: PathBuf,
    // Before the writer, so that the last connection to close is one that can fold the log into the file.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
}

impl WordStore {
    /// Opens the store, making it where there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the file is something else: it is never taken for an empty store;
    /// [`Error::Newer`] where a later version wrote it.
    pub fn open(path: &Path) -> Result<WordStore, Error> {
        let writer = schema::open(path)?;
        Ok(WordStore { path: path.to_owned(), writer: Mutex::new(writer), readers: Mutex::new(Vec::new()) })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A panic inside a transaction rolled it back when the transaction was dropped.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, what: impl FnOnce(&mut Connection) -> Result<T, Error>) -> Result<T, Error> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => schema::open_reader(&self.path)?,
        };
        let result = what(&mut reader);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_MAX {
            readers.push(reader);
        }
        result
    }
}

impl MemoryStore for WordStore {
    fn write(&self, note: &Note, now: Timestamp) -> Result<String, Error> {
        write::write(&mut self.writer(), note, now)
    }

    fn search(&self, search: &Search, now: Timestamp) -> Result<Vec<Hit>, Error> {
        self.read(|reader| search::search(reader, search, now))
    }

    fn forget(&self, forget: &Forget) -> Result<u64, Error> {
        forget::forget(&mut self.writer(), forget)
    }

    fn list(
        &self,
        namespace: Option<&str>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Record>, Error> {
        self.read(|reader| rows::list(reader, namespace, before, limit, now))
    }

    fn show(&self, id: &str, now: Timestamp) -> Result<Vec<Record>, Error> {
        self.read(|reader| rows::show(reader, id, now))
    }

    fn export(
        &self,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Record>, Error> {
        self.read(|reader| rows::export(reader, namespace, after, limit, now))
    }

    fn stats(&self) -> Result<Stats, Error> {
        self.read(|reader| rows::stats(reader))
    }

    fn expire(&self, now: Timestamp) -> Result<u64, Error> {
        forget::expire(&mut self.writer(), now, i64::MAX)
    }

    fn clear(&self, ended: &dyn Fn(&str) -> bool) -> Result<u64, Error> {
        let mut count = 0;
        for name in self.read(|reader| rows::namespaces(reader))?.iter().filter(|name| ended(name)) {
            // Each by itself, so that a call that writes waits for one alone.
            count += forget::clear(&mut self.writer(), name)?;
        }
        Ok(count)
    }
}
