//! What goes into a store and what comes out.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::{EffectId, Lsn, Pid, Timestamp};
use serde::Serialize;

/// Where a memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The process that wrote it.
    pub pid: Pid,
    /// The journal entry that caused it.
    pub lsn: Lsn,
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whose memory, such as `self/7`.
    pub namespace: String,
    /// What it is about. White space at the ends does not count; everything else does.
    pub key: String,
    /// What to remember.
    pub value: String,
    /// Words to find it by.
    pub tags: BTreeSet<String>,
    /// Labels of the writer's window, such as `untrusted`, where whoever writes keeps them here: they come back with every
    /// hit. The daemon gives none, for the kernel knows those of each namespace from the journal (decision 0005).
    pub labels: BTreeSet<String>,
    /// Seconds after which it is gone.
    pub ttl_s: Option<u64>,
    /// Where it comes from.
    pub source: Source,
    /// The effect that writes it; the same one again changes nothing.
    pub effect: EffectId,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Whose memory.
    pub namespace: String,
    /// In words of any language; empty finds everything, newest first.
    pub query: String,
    /// Only what has all of these.
    pub tags: BTreeSet<String>,
    /// Only what was written then or later.
    pub since: Option<Timestamp>,
    /// Most hits.
    pub limit: usize,
}

/// What to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// One version and the ones before it, so that nothing older comes back in its place.
    Id(String),
    /// Every version of a key.
    Key(String),
}

/// A request to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Whose memory.
    pub namespace: String,
    /// What of it.
    pub what: What,
    /// The effect that forgets; the same one again answers what it answered.
    pub effect: EffectId,
}

/// One version of a memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Its id, never used twice in one store.
    pub id: String,
    /// Whose memory.
    pub namespace: String,
    /// What it is about.
    pub key: String,
    /// What is remembered.
    pub value: String,
    /// Words to find it by.
    pub tags: BTreeSet<String>,
    /// Labels of the window that it was written from.
    pub labels: BTreeSet<String>,
    /// Counts the versions of a key, from 1.
    pub version: u32,
    /// When it was written.
    pub at: Timestamp,
    /// When it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Where it comes from.
    pub source: Source,
}

/// A record that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// The record.
    #[serde(flatten)]
    pub record: Record,
    /// How much of the query it answers, 0 to 1.
    pub score: f64,
}

/// How much is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Keys that have a newest version, by namespace.
    pub namespaces: BTreeMap<String, u64>,
    /// Versions kept, the newest ones included.
    pub versions: u64,
    /// Bytes of the store's file.
    pub bytes: u64,
}
