//! Recent entries by position, so that a prompt is put together without reading the journal.
//!
//! Start at [`History::get`]. What always holds: a bounded number of bytes, oldest out first; what is not here is read
//! from the journal, so being evicted costs time and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::{Entry, Lsn};
use aos_journal::Reader;

/// Bytes of entries kept: some hundred windows in use.
const BYTES_MAX: usize = 8 << 20;

/// The cache and what it is over.
pub(crate) struct History {
    reader: Reader,
    recent: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    entries: HashMap<Lsn, Arc<Entry>>,
    order: VecDeque<(Lsn, usize)>,
    bytes: usize,
}

impl History {
    /// A history over a journal.
    pub(crate) fn new(reader: Reader) -> History {
        History { reader, recent: Mutex::default() }
    }

    /// Keeps those entries that a prompt may show.
    pub(crate) fn remember(&self, entries: &[Arc<Entry>]) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.iter().filter(|entry| aos_context::item(entry).is_some()) {
            let bytes = aos_context::item_bytes(entry) + std::mem::size_of::<Entry>();
            recent.bytes += bytes;
            recent.order.push_back((entry.lsn, bytes));
            recent.entries.insert(entry.lsn, Arc::clone(entry));
        }
        while recent.bytes > BYTES_MAX
            && let Some((lsn, bytes)) = recent.order.pop_front()
        {
            recent.bytes -= bytes;
            recent.entries.remove(&lsn);
        }
    }

    /// The entries at these positions, in the order asked for. Reads the journal for what is not at hand: not for an
    /// async context without a blocking pool, unless [`History::at_hand`] gave `None`.
    pub(crate) fn get(&self, lsns: &[Lsn]) -> Result<Vec<Arc<Entry>>, aos_journal::Error> {
        let mut found: HashMap<Lsn, Arc<Entry>> = {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            lsns.iter().filter_map(|lsn| recent.entries.get(lsn).map(|entry| (*lsn, Arc::clone(entry)))).collect()
        };
        let missing: Vec<Lsn> = lsns.iter().copied().filter(|lsn| !found.contains_key(lsn)).collect();
        if !missing.is_empty() {
            let read: Vec<Arc<Entry>> = self.reader.get(&missing)?.into_iter().map(Arc::new).collect();
            self.remember(&read);
            found.extend(read.into_iter().map(|entry| (entry.lsn, entry)));
        }
        Ok(lsns.iter().filter_map(|lsn| found.remove(lsn)).collect())
    }

    /// The same without reading the journal; `None` where something is not at hand.
    pub(crate) fn at_hand(&self, lsns: &[Lsn]) -> Option<Vec<Arc<Entry>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        lsns.iter().map(|lsn| recent.entries.get(lsn).map(Arc::clone)).collect()
    }
}
