//! The floor that the disk sets: one small append with one sync, and how times are summed up.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;

/// Bytes of one append: a page of the journal's log.
const BLOCK: [u8; 4096] = [7; 4096];

/// A file that is appended to and synced, beside the journal.
pub(crate) struct Floor(File);

impl Floor {
    pub(crate) fn open(folder: &Path) -> Result<Floor, Failure> {
        Ok(Floor(File::create(folder.join("floor"))?))
    }

    /// One append with its sync.
    pub(crate) fn sync(&mut self) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.0.write_all(&BLOCK)?;
        self.0.sync_data()?;
        Ok(began.elapsed())
    }
}

/// Median and 99th percentile in microseconds.
pub(crate) fn summary(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    json!({ "p50_us": at(50), "p99_us": at(99), "n": times.len() })
}
