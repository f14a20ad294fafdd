//! Locks by path: two writers of one file in this daemon take turns, so that no edit is lost.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::path::Beneath;

/// Number of locks. Two paths may share one, which costs them a wait and nothing else.
const LOCKS: usize = 64;

/// A fixed set of locks; a path always gets the same one.
#[derive(Debug)]
pub(super) struct Locks {
    hasher: RandomState,
    locks: [Mutex<()>; LOCKS],
}

impl Locks {
    pub(super) fn new() -> Locks {
        Locks { hasher: RandomState::new(), locks: [const { Mutex::new(()) }; LOCKS] }
    }

    /// Waits for the path's lock. Hold one at a time only.
    pub(super) fn hold(&self, workspace: &Path, path: &Beneath) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one((workspace, path.as_str()));
        let lock = &self.locks[usize::try_from(hash % LOCKS as u64).expect("less than LOCKS")];
        // The lock guards no data, so a panic of its holder left nothing half-done in memory.
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
