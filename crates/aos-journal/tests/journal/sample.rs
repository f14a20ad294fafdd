//! Entries and homes for the tests.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use aos_abi::inference::Usage;
use aos_abi::{Body, Entry, Lsn, Pid, Timestamp, Usd};
use aos_journal::{Batch, Journal, OpenOptions, Opened, Store};

/// A home that goes with the test.
pub(crate) struct Home {
    pub(crate) folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.file("journal.db")
    }

    pub(crate) fn open(&self) -> (Journal, Opened) {
        Journal::open(&self.db(), OpenOptions::default()).unwrap()
    }
}

pub(crate) fn entry(lsn: u64, pid: u64, body: Body) -> Arc<Entry> {
    Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(1_795_305_600_000 + lsn as i64), pid: Pid(pid), cause: None, body })
}

pub(crate) fn input(lsn: u64, pid: u64, text: &str) -> Arc<Entry> {
    entry(lsn, pid, Body::Input { text: text.into(), eof: false, from_pid: Pid::INIT, untrusted: false })
}

pub(crate) fn charged(lsn: u64, pid: u64, model: &str, nanos: Option<u64>) -> Arc<Entry> {
    let usage = Usage { input_tokens: 10, output_tokens: 2, cached_input_tokens: 1, ..Usage::default() };
    entry(lsn, pid, Body::Charged { model: model.into(), usage, cost_usd: nanos.map(Usd), why: None })
}

/// Entries `from..=to`, belonging in turn to processes 2, 3 and 4.
pub(crate) fn batch(from: u64, to: u64) -> Batch {
    (from..=to).map(|lsn| input(lsn, 2 + lsn % 3, &format!("line {lsn} of ünïcode"))).collect()
}

pub(crate) fn all(store: &dyn Store, after: u64) -> Vec<Entry> {
    let mut seen = Vec::new();
    let visited = store.for_each_after(Lsn(after), &mut |entry| {
        seen.push(entry);
        ControlFlow::Continue(())
    });
    visited.unwrap();
    seen
}
