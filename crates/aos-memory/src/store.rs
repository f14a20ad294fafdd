//! What any memory store can do.

use aos_abi::Timestamp;

use crate::{Error, Forget, Hit, Note, Record, Search, Stats};

/// A memory store. Blocking: call it from a thread that may wait for a disk. Share one for the whole daemon.
pub trait MemoryStore: Send + Sync {
    /// Remembers something durably and says its id. The same key again is a new version of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a part is too long or empty.
    fn write(&self, note: &Note, now: Timestamp) -> Result<String, Error>;

    /// Finds the newest versions that fit, best first.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the query is too long, [`Error::Slow`] where looking for it takes seconds.
    fn search(&self, search: &Search, now: Timestamp) -> Result<Vec<Hit>, Error>;

    /// Forgets for good; how many versions.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the namespace holds no such memory.
    fn forget(&self, forget: &Forget) -> Result<u64, Error>;

    /// Newest versions, newest first; of one namespace or of all. `before` is the id of the last one already seen.
    ///
    /// # Errors
    /// [`Error::Id`] where `before` is no id.
    fn list(
        &self,
        namespace: Option<&str>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Record>, Error>;

    /// Every kept version of the key that an id belongs to, newest first, but for what has expired. For the person: it
    /// knows no namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is no such id.
    fn show(&self, id: &str, now: Timestamp) -> Result<Vec<Record>, Error>;

    /// The first `limit` kept versions after the one with the id `after`, oldest first, but for what has expired; that one
    /// may be forgotten by now. Fewer are the end.
    ///
    /// # Errors
    /// [`Error::Id`] where `after` is no id.
    fn export(
        &self,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Record>, Error>;

    /// How much is remembered.
    ///
    /// # Errors
    /// The store's.
    fn stats(&self) -> Result<Stats, Error>;

    /// Removes what has expired; how many versions.
    ///
    /// # Errors
    /// The store's.
    fn expire(&self, now: Timestamp) -> Result<u64, Error>;

    /// Forgets for good all of the namespaces of which `ended` says so; how many versions.
    ///
    /// # Errors
    /// The store's.
    fn clear(&self, ended: &dyn Fn(&str) -> bool) -> Result<u64, Error>;
}
