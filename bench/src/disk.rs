//! The floor that the disk sets: one small write with one sync, and how times are summed up.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;

/// Bytes of one write: a page of the journal's log.
const BLOCK: [u8; 4096] = [7; 4096];
/// Blocks of the file that is written over again and again.
const BLOCKS: u64 = 256;

/// Two files beside the journal, each written and synced a block at a time.
pub(crate) struct Floor {
    grown: File,
    reused: File,
    next: u64,
    /// Times of a write that makes the file longer, with its sync.
    pub(crate) appends: Vec<Duration>,
    /// Times of a write into space that the file had before, with its sync: what a log that is used again can reach.
    pub(crate) overwrites: Vec<Duration>,
}

impl Floor {
    pub(crate) fn open(folder: &Path) -> Result<Floor, Failure> {
        let (grown, mut reused) = (File::create(folder.join("grown"))?, File::create(folder.join("reused"))?);
        for _ in 0..BLOCKS {
            reused.write_all(&BLOCK)?;
        }
        reused.sync_all()?;
        Ok(Floor { grown, reused, next: 0, appends: Vec::new(), overwrites: Vec::new() })
    }

    /// One write of each kind.
    pub(crate) fn sample(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        self.reused.write_all_at(&BLOCK, self.next % BLOCKS * BLOCK.len() as u64)?;
        self.reused.sync_data()?;
        self.next += 1;
        let between = Instant::now();
        self.grown.write_all(&BLOCK)?;
        self.grown.sync_data()?;
        self.overwrites.push(between - began);
        self.appends.push(between.elapsed());
        Ok(())
    }
}

/// Median and 99th percentile in microseconds.
pub(crate) fn summary(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    json!({ "p50_us": at(50), "p99_us": at(99), "n": times.len() })
}
