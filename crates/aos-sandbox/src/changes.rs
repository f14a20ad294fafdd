//! What a command changed, told by looking at its workspace before and after.
//!
//! Start at [`Snapshot::take`]. Only metadata is read: a change that keeps size, inode, mode, owner and both times is
//! not seen, and the kernel sets the change time itself, so a program cannot hide a write. Always true: at most
//! [`ENTRIES_MAX`] entries are looked at, symbolic links are not followed, and a folder that vanishes is no error.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::below::ENTRIES_MAX;
use crate::outcome::{Change, ChangeKind};

/// What is known of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The entries of a workspace at one moment.
pub(crate) struct Snapshot {
    entries: BTreeMap<PathBuf, Mark>,
    truncated: bool,
}

impl Snapshot {
    /// Looks at everything below `root`.
    pub(crate) fn take(root: &Path) -> Self {
        let mut snapshot = Snapshot { entries: BTreeMap::new(), truncated: false };
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            // Unreadable or just removed: what is in it cannot be told, which the caller learns.
            let Ok(entries) = std::fs::read_dir(root.join(&folder)) else {
                snapshot.truncated = true;
                continue;
            };
            let mut entries: Vec<(OsString, std::fs::Metadata)> =
                entries.flatten().filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            for (name, meta) in entries {
                if snapshot.entries.len() == ENTRIES_MAX {
                    snapshot.truncated = true;
                    return snapshot;
                }
                let path = folder.join(name);
                if meta.is_dir() {
                    folders.push(path.clone());
                }
                snapshot.entries.insert(path, Mark::of(&meta));
            }
        }
        snapshot
    }

    /// What differs in `after`, and whether either of the two is incomplete.
    pub(crate) fn compare(&self, after: &Snapshot) -> (Vec<Change>, bool) {
        let mut changes = Vec::new();
        for (path, mark) in &after.entries {
            let kind = match self.entries.get(path) {
                None => ChangeKind::Created,
                Some(before) if before != mark => ChangeKind::Modified,
                Some(_) => continue,
            };
            changes.push(Change { path: path.clone(), kind });
        }
        for path in self.entries.keys().filter(|path| !after.entries.contains_key(*path)) {
            changes.push(Change { path: path.clone(), kind: ChangeKind::Deleted });
        }
        changes.sort();
        (changes, self.truncated || after.truncated)
    }
}

impl Mark {
    fn of(meta: &std::fs::Metadata) -> Self {
        // A folder's own size and times only repeat what its entries say.
        let folder = meta.is_dir();
        Mark {
            inode: meta.ino(),
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            size: if folder { 0 } else { meta.size() },
            modified: if folder { (0, 0) } else { (meta.mtime(), meta.mtime_nsec()) },
            changed: if folder { (0, 0) } else { (meta.ctime(), meta.ctime_nsec()) },
        }
    }
}
