//! What a command may put on the disk, looked at while it runs and once when it has ended.
//!
//! Start at [`DiskWatch::exceeded`]. Three things are looked at: what is below the folder that it writes to, by its blocks
//! and, more generously, by its sizes; what it has deleted and keeps open, which no folder shows; and what room the disk has
//! left, whoever took it. [`lacks_room`] is for what is copied afterwards. What always holds: what
//! cannot be counted (too many entries, too deep, locked) is too much; the time between two looks is no more than what the
//! rest of the limit takes to be written, so that a command gets past it by what a disk takes in [`PAUSE_MIN`] and one look.
//!
//! Not seen: what the daemon may not look at (`/proc/PID/fd` of another user's, without `CAP_SYS_PTRACE`), files that are mapped but not open, and descriptors on their way through a socket. The disk's own room, of which
//! half or [`SPARED_BYTES`] stays, bounds those.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, StatVfs};

use crate::below::{Below, ENTRIES_MAX, Unseen};
use crate::tree::descendants;

/// The least time between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// Bytes a second that are written at the most: what one process puts into the page cache.
const SPEED: u64 = 2 << 30;

/// What stays free of a disk in bytes, or half of what was free if that is less.
pub const SPARED_BYTES: u64 = 1 << 30;

/// The same in files.
const SPARED_FILES: u64 = 100_000;

/// So many times its limit a command's files may have in bytes, each of their names counted. Holes take nothing on the disk,
/// but whoever reads, hashes or copies the files afterwards goes through all of them.
const SIZES: u64 = 4;

/// The kind of file system that is memory (`TMPFS_MAGIC` in `statfs(2)`): the limit of memory counts that.
const MEMORY: i64 = 0x0102_1994;

/// Looks now and then whether a command has outgrown its limit.
pub(crate) struct DiskWatch<'a> {
    root: &'a Path,
    /// Whether the folder is a layer: nobody else's, and all of it to be seen.
    layer: bool,
    /// Whether what is below it is going to be copied to another file system, name by name.
    copied: bool,
    bytes: u64,
    /// Bytes that all files may have as they are read.
    sizes: u64,
    entries: usize,
    spared: Option<(u64, u64)>,
    next: Instant,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No more than may be.
    Enough,
    /// More, or what cannot be counted.
    TooMuch,
    /// Folders without end.
    Deep,
}

impl<'a> DiskWatch<'a> {
    /// A watch over `root`, which may take `limit` bytes more than it does; it is a layer over the folder `over`, or none. A
    /// folder that is no layer and has more than can be counted already is held to what can be.
    pub(crate) fn new(root: &'a Path, over: Option<&Path>, limit: u64) -> Self {
        let layer = over.is_some();
        let copied = over.is_some_and(|over| are_apart(root, over));
        let before = Below::of(root, ENTRIES_MAX, layer);
        let entries = if before.unseen.is_some() { usize::MAX } else { before.entries.saturating_add(ENTRIES_MAX) };
        let spared = room(root).map(|(bytes, files)| (SPARED_BYTES.min(bytes / 2), SPARED_FILES.min(files / 2)));
        let bytes = if copied { before.copied } else { before.on_disk }.saturating_add(limit);
        let sizes = before.bytes.saturating_add(limit.saturating_mul(SIZES));
        DiskWatch { root, layer, copied, bytes, sizes, entries, spared, next: Instant::now() + PAUSE_MIN }
    }

    /// How long it is until the next look.
    pub(crate) fn pause(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Whether it is time for a look and the look found too much. `helper` is the process above all of the command's.
    pub(crate) fn exceeded(&mut self, helper: Option<&OwnedFd>) -> bool {
        let began = Instant::now();
        if began < self.next {
            return false;
        }
        let below = self.below();
        let taken = self.taken(&below).saturating_add(helper.and_then(number_of).map_or(0, deleted_but_open));
        let found = self.judge(&below, taken);
        // What is through is on the disk; what goes on would take more.
        let full = self.spared.zip(room(self.root));
        let full = full.is_some_and(|((bytes, files), (left, names))| left < bytes || names < files);
        let left = Duration::from_millis(self.bytes.saturating_sub(taken) / (SPEED / 1000));
        // A twentieth of the time, but for a command that could be through with its limit by then.
        let pause = (began.elapsed() * 20).min(left);
        self.next = Instant::now() + pause.max(PAUSE_MIN);
        full || found != Found::Enough
    }

    /// What is there once nobody writes any more.
    pub(crate) fn at_last(&self) -> Found {
        let below = self.below();
        self.judge(&below, self.taken(&below))
    }

    fn taken(&self, below: &Below) -> u64 {
        if self.copied { below.copied } else { below.on_disk }
    }

    fn below(&self) -> Below {
        let most = if self.entries == usize::MAX { ENTRIES_MAX } else { self.entries };
        Below::of(self.root, most, self.layer)
    }

    fn judge(&self, below: &Below, taken: u64) -> Found {
        let unseen = below.unseen.filter(|_| self.entries != usize::MAX);
        match unseen {
            Some(Unseen::Deep) if self.layer => Found::Deep,
            Some(_) => Found::TooMuch,
            None if taken > self.bytes || below.bytes > self.sizes => Found::TooMuch,
            None => Found::Enough,
        }
    }
}

/// Whether two folders are on different file systems, so that what goes from one to the other is copied.
pub(crate) fn are_apart(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    device(one) != device(other)
}

/// Whether a disk has no room for so many bytes more, besides what is to stay free of it.
pub(crate) fn lacks_room(place: &Path, bytes: u64) -> bool {
    room(place).is_some_and(|(free, _)| bytes > free - SPARED_BYTES.min(free / 2))
}

/// Bytes and files that there is room for. Some file systems count no files.
fn room(root: &Path) -> Option<(u64, u64)> {
    let StatVfs { f_bavail, f_frsize, f_files, f_favail, .. } = rustix::fs::statvfs(root).ok()?;
    Some((f_bavail.saturating_mul(f_frsize), if f_files == 0 { u64::MAX } else { f_favail }))
}

/// Bytes on disks of files that have no name any more and are open in a process below this one.
fn deleted_but_open(tree: i32) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for process in descendants(tree).unwrap_or_default() {
        // Each thread may have descriptors of its own.
        for thread in names(&PathBuf::from(format!("/proc/{}/task", process.pid))) {
            for descriptor in names(&thread.join("fd")) {
                let Ok(stat) = rustix::fs::statat(CWD, &descriptor, AtFlags::empty()) else { continue };
                let lost = stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode).is_file();
                if lost
                    && seen.insert((stat.st_dev, stat.st_ino))
                    && rustix::fs::statfs(&descriptor).is_ok_and(|of| of.f_type != MEMORY)
                {
                    bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                }
            }
        }
    }
    bytes
}

fn names(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The number of a process that a descriptor stands for (`pidfd_open(2)`); none once it has ended.
fn number_of(process: &OwnedFd) -> Option<i32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was beyond the first 200,000 did not count.
    #[test]
    fn more_files_than_are_counted_are_too_much() {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("before"), "").unwrap();
        let mut disk = DiskWatch::new(room.path(), Some(room.path()), 1 << 20);
        assert_eq!(disk.entries, ENTRIES_MAX + 1);
        disk.entries = 3;
        std::fs::write(room.path().join("2"), "").unwrap();
        std::fs::write(room.path().join("3"), "").unwrap();
        assert_eq!(disk.at_last(), Found::Enough);
        std::fs::write(room.path().join("4"), "").unwrap();
        assert_eq!(disk.at_last(), Found::TooMuch);
        disk.next = Instant::now();
        assert!(disk.exceeded(None));
        // A person's own folder may have any number of them.
        disk.entries = usize::MAX;
        assert_eq!(disk.at_last(), Found::Enough);
    }

    #[test]
    fn a_disk_is_not_filled_whoever_does_it() {
        let room = tempfile::tempdir().unwrap();
        let mut disk = DiskWatch::new(room.path(), Some(room.path()), 1 << 20);
        disk.next = Instant::now();
        assert!(!disk.exceeded(None), "half of what is free, or less, has to stay");
        disk.spared = Some((u64::MAX, 0));
        disk.next = Instant::now();
        assert!(disk.exceeded(None));
        disk.spared = Some((0, u64::MAX));
        disk.next = Instant::now();
        assert_eq!(disk.exceeded(None), self::room(room.path()).is_some_and(|(_, files)| files < u64::MAX));
        assert_eq!(disk.at_last(), Found::Enough, "what ended is not judged by what others do");
    }

    #[test]
    fn the_next_look_comes_before_the_rest_of_the_limit_can_be_written() {
        let room = tempfile::tempdir().unwrap();
        let mut disk = DiskWatch::new(room.path(), Some(room.path()), 1 << 20);
        disk.next = Instant::now();
        assert!(!disk.exceeded(None));
        assert!(disk.pause() <= PAUSE_MIN);
    }

    /// Holes cost a command nothing, and so did further names; whatever copied them wrote all of it.
    #[test]
    fn holes_and_further_names_count() {
        let room = tempfile::tempdir().unwrap();
        let disk = DiskWatch::new(room.path(), Some(room.path()), 1 << 20);
        let hole = std::fs::File::create(room.path().join("hole")).unwrap();
        hole.set_len(4 << 20).unwrap();
        assert_eq!(disk.at_last(), Found::Enough);
        hole.set_len((4 << 20) + 1).unwrap();
        assert_eq!(disk.at_last(), Found::TooMuch);
        std::fs::write(room.path().join("hole"), vec![1; 600_000]).unwrap();
        std::fs::hard_link(room.path().join("hole"), room.path().join("name")).unwrap();
        assert_eq!(disk.at_last(), Found::Enough, "a rename takes both as they are");
        let copied = DiskWatch { copied: true, ..disk };
        assert_eq!(copied.at_last(), Found::TooMuch);
        assert!(!are_apart(room.path(), &room.path().join("..")) && are_apart(room.path(), Path::new("/proc")));
        assert!(lacks_room(room.path(), u64::MAX) && !lacks_room(room.path(), 0));
    }
}
