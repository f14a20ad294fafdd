//! Identifiers. Each is a newtype, so that a pid is never taken for a journal position.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process id. Counted up from [`Pid::INIT`] and never used twice in one home, so it needs no generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Pid(pub u64);

impl Pid {
    /// The system itself: entries that belong to no process.
    pub const SYSTEM: Pid = Pid(0);
    /// The person's side: parent of what people start, adopter of orphans. It runs no model and is in no list.
    pub const INIT: Pid = Pid(1);
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Pid)
    }
}

/// Log sequence number: the position of an entry in the journal. Rises by one per entry in a home, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first entry.
    pub const ZERO: Lsn = Lsn(0);

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one effect for ever: the entry that caused it and its place among that entry's effects.
/// The same on every replay, so an edge can recognise an effect it has already performed. Written `41.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId {
    /// The input entry that caused it.
    pub cause: Lsn,
    /// Its place among the effects of that entry, from 0.
    pub nth: u32,
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cause.0, self.nth)
    }
}

/// Not an effect id; the form is `LSN.N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEffectId(pub String);

impl fmt::Display for BadEffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no effect id, the form is LSN.N", self.0)
    }
}

impl std::error::Error for BadEffectId {}

impl FromStr for EffectId {
    type Err = BadEffectId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadEffectId(text.to_owned());
        let (cause, nth) = text.split_once('.').ok_or_else(bad)?;
        Ok(EffectId { cause: Lsn(cause.parse().map_err(|_| bad())?), nth: nth.parse().map_err(|_| bad())? })
    }
}

impl Serialize for EffectId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.cause, self.nth).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for EffectId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <(Lsn, u32)>::deserialize(deserializer).map(|(cause, nth)| EffectId { cause, nth });
        }
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The id by which a model binds a call to its result. Given by the provider, or made by the kernel where it gives none.
pub type CallId = String;
