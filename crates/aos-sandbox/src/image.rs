//! What a file, link or folder was at one moment: by which a later one of the same name is told from it.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::fingerprint::Fingerprint;

/// Files larger than this are told apart by their times alone; reading them would take seconds.
const HASHED_BYTES_MAX: u64 = 64 << 20;

/// What something was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// File, folder or link.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes; of a folder those of all files in it.
    pub size: u64,
    /// SHA-256 of a file's content or a link's target, in hex; `None` for folders and for files above 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Of a file that has only been moved since, none of these has changed.
    inode: u64,
    modified: (i64, i64),
    /// What is in a folder, as [`Fingerprint`] tells it; `None` where it could not be looked through, and in records of
    /// version 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    within: Option<String>,
}

/// What can be committed and kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder with all in it.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Other,
}

impl Image {
    /// What is at a path; `None` where nothing is.
    pub(crate) fn of(path: &Path) -> Option<Image> {
        Some(Image::look(path)?.0)
    }

    /// The same, and when it changed last, of a folder with all in it: in seconds and nanoseconds since 1970.
    pub(crate) fn look(path: &Path) -> Option<(Image, (i64, i64))> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        let kind = kind(&meta);
        let sha256 = match kind {
            Kind::File if meta.len() <= HASHED_BYTES_MAX => {
                std::fs::File::open(path).and_then(|file| digest_of(file.take(HASHED_BYTES_MAX))).ok()
            }
            Kind::Link => std::fs::read_link(path).ok().map(|target| digest(target.as_os_str().as_bytes())),
            Kind::File | Kind::Folder | Kind::Other => None,
        };
        let (mut size, mut within) = (meta.len(), None);
        let mut changed = (meta.ctime(), meta.ctime_nsec());
        if kind == Kind::Folder {
            let below = Fingerprint::of(path).ok();
            within = below.as_ref().map(Fingerprint::written);
            let below = below.unwrap_or_default();
            (size, changed) = (below.bytes, changed.max(below.changed));
        }
        let (inode, modified) = (meta.ino(), (meta.mtime(), meta.mtime_nsec()));
        Some((Image { kind, mode: meta.mode() & 0o7777, size, sha256, inode, modified, within }, changed))
    }

    /// Something of which only kind and permissions are held to.
    pub(crate) fn plain(kind: Kind, mode: u32) -> Image {
        Image { kind, mode, size: 0, sha256: None, inode: 0, modified: (0, 0), within: None }
    }

    /// Whether what is at a path is this very file, link or folder, whatever became of what is in it.
    pub(crate) fn is_inode(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|meta| meta.ino() == self.inode && kind(&meta) == self.kind)
    }

    /// Whether it is known what is in it, so that nothing that somebody saves there is taken for it.
    pub(crate) fn is_seen(&self) -> bool {
        self.kind != Kind::Folder || self.within.is_some()
    }

    /// Whether what is at a path is this still, a folder with all that is in it. Its own permissions are no part of that.
    pub(crate) fn stands_whole_at(&self, path: &Path) -> bool {
        if self.kind != Kind::Folder || self.within.is_none() {
            return self.stands_at(path);
        }
        // Moving it changes none of these.
        let Some(now) = Image::of(path) else { return false };
        (now.kind, now.modified, now.within) == (self.kind, self.modified, self.within.clone())
    }

    /// Whether what is at a path is this still. Of a folder only that it is one: what is in it is looked at by itself.
    pub(crate) fn stands_at(&self, path: &Path) -> bool {
        let Ok(meta) = std::fs::symlink_metadata(path) else { return false };
        if kind(&meta) != self.kind {
            return false;
        }
        if self.kind == Kind::Folder {
            return true;
        }
        let same_size = meta.len() == self.size && meta.mode() & 0o7777 == self.mode;
        // A copy on another file system has the time of what it is of, and where the content is not known, only that.
        let is_one = meta.ino() == self.inode || (self.sha256.is_none() && self.kind == Kind::File);
        let untouched = is_one && (meta.mtime(), meta.mtime_nsec()) == self.modified;
        same_size
            && (untouched || (self.sha256.is_some() && Image::of(path).is_some_and(|now| now.sha256 == self.sha256)))
    }
}

/// SHA-256 in hex.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn kind(meta: &Metadata) -> Kind {
    let kind = meta.file_type();
    if kind.is_dir() {
        Kind::Folder
    } else if kind.is_symlink() {
        Kind::Link
    } else if kind.is_file() {
        Kind::File
    } else {
        Kind::Other
    }
}

/// The same of all that can be read, in pieces.
///
/// # Errors
/// Those of reading.
pub fn digest_of(mut source: impl Read) -> io::Result<String> {
    let (mut hasher, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match source.read(&mut piece)? {
            0 => return Ok(hex(&hasher.finalize())),
            length => hasher.update(&piece[..length]),
        }
    }
}

/// Two small hexadecimal digits for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
