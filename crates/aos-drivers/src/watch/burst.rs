//! Bursts: changes gathered until they have settled.

use std::collections::BTreeSet;
use std::time::Duration;

use aos_abi::limits;
use tokio::time::Instant;

/// When a burst is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// So long after the last change,
    pub quiet: Duration,
    /// but at most so long after the first.
    pub most: Duration,
}

impl Default for Settle {
    /// Longer than an editor's save or a compiler's pauses, shorter than a person's patience.
    fn default() -> Settle {
        Settle { quiet: Duration::from_millis(200), most: Duration::from_secs(5) }
    }
}

/// A settled burst.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// What changed, as paths from the workspace; at most [`limits::LISTING_MAX`].
    pub paths: BTreeSet<String>,
    /// More changed than is named: the kernel's queue ran over, or a bound was reached. Look at the whole folder.
    pub incomplete: bool,
}

/// A burst that goes on.
#[derive(Debug, Default)]
pub(super) struct Burst {
    changed: Changed,
    times: Option<(Instant, Instant)>,
}

impl Burst {
    /// Something changed just now.
    pub(super) fn add(&mut self, path: &str) {
        if self.changed.paths.len() < limits::LISTING_MAX || self.changed.paths.contains(path) {
            self.changed.paths.insert(path.to_owned());
        } else {
            self.changed.incomplete = true;
        }
        self.touch();
    }

    /// Something changed just now, and it is not known what.
    pub(super) fn lose(&mut self) {
        self.changed.incomplete = true;
        self.touch();
    }

    fn touch(&mut self) {
        let now = Instant::now();
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
    }

    /// When it is over, if it has begun.
    pub(super) fn due(&self, settle: Settle) -> Option<Instant> {
        self.times.map(|(first, last)| (last + settle.quiet).min(first + settle.most))
    }

    /// What has been gathered; a new burst begins.
    pub(super) fn take(&mut self) -> Changed {
        self.times = None;
        std::mem::take(&mut self.changed)
    }
}
