//! Backups: everything of a home that cannot be made again, in one tar file, and back.
//!
//! Start at [`write`](fn@write) and [`restore`](fn@restore). What always holds: under the name that was asked for there is
//! a whole archive that was read back and found right, or nothing; an archive is readable by its owner alone; a home
//! is changed only after every byte of the archive was compared with its list; the list is in the archive, so that whoever
//! can write the one can write the other, and what proves both is the hash of the whole, kept elsewhere. The list, `MANIFEST.json`, is the last
//! file in it, so an archive that was cut has none. Deliberately absent: the token, keys (which stand in the environment),
//! logs, local weights, and folders of people that agents worked on.

mod content;
mod list;
mod place;
mod read;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use aos_abi::{Lsn, Timestamp};
use serde::{Deserialize, Serialize};

pub use place::look;
pub use read::check;
pub use restore::{Restored, restore};
pub use write::write;

/// The form of archives. Raised with every change that an older release would misread; all since the first are read. The
/// second has files with holes and further names of files.
const FORMAT: u32 = 2;
/// Most bytes of holes in one archive: they take nothing in it, but whoever writes, checks or restores it goes through all of
/// them, a minute or two. Tests meet it sooner.
const HOLES_BYTES_MAX: u64 = if cfg!(test) { 1 << 30 } else { 64 << 30 };
/// Longest path in an archive, in bytes. The kernel takes 4,095 of all, and SQLite 512 for a journal, so what is restored has
/// room below any home, and below the folder in it where it is for a while. What an agent makes may be longer.
const PATH_BYTES_MAX: usize = 3_500;
/// Longest list, in bytes of JSON: some millions of files. Tests meet it sooner.
const MANIFEST_BYTES_MAX: usize = if cfg!(test) { 256 << 10 } else { 1 << 30 };
/// The name of the list.
const MANIFEST: &str = "MANIFEST.json";

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of the archive.
    pub format: u32,
    /// The version of aos that wrote it.
    pub version: String,
    /// When.
    pub at: Timestamp,
    /// The last entry of the journal in it.
    pub last_lsn: Lsn,
    /// How many entries the journal holds.
    pub entries: u64,
    /// What could not be copied, and why: sockets and such, what could not be read, holes and paths without end,
    /// and what the list has no room for.
    pub left_out: Vec<LeftOut>,
    /// Everything in it, in order.
    pub held: Vec<Held>,
}

impl Manifest {
    /// How many files it holds.
    #[must_use]
    pub fn files(&self) -> usize {
        self.held.iter().filter(|held| held.sha256.is_some()).count()
    }
}

/// An archive that was found right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// What it holds.
    pub manifest: Manifest,
    /// The hash of all its bytes, in hex.
    pub sha256: String,
}

/// A file, a folder or a link in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its path, below the home; what is not UTF-8 in it is shown as `�`.
    pub path: String,
    /// Its rights, such as 0o600.
    pub mode: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The hash of its bytes in hex, where it is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where it leads, where it is a link; the first name of the file of which this is a further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// Something that is not in an archive, or was not restored from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its path, below the home.
    pub path: String,
    /// Why it is not in it.
    pub why: String,
}

/// How far the work is: what is done now, and bytes of it so far.
pub type Progress<'p> = &'p mut dyn FnMut(&str, u64);

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// Agents would see it there.
    #[error("{} would lie in {}, and {why}: it holds all that no agent may see", to.display(), folder.display())]
    Exposed {
        /// Where it was to be.
        to: PathBuf,
        /// What they see.
        folder: PathBuf,
        /// Who and how.
        why: String,
        /// A folder that they never see.
        instead: PathBuf,
    },
    /// The archive is another one than was asked for.
    #[error("{} has the SHA-256 {found}, which is another one", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Its hash.
        found: String,
    },
    /// The home has no journal, so nothing has happened in it.
    #[error("there is nothing to back up in {}", .0.display())]
    Empty(PathBuf),
    /// The file is no backup.
    #[error("{} is no backup of aos: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// The file was a backup and is not any more.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and how.
        why: String,
    },
    /// A later release wrote it.
    #[error("{} has form {found}, this release knows {FORMAT}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its form.
        found: u32,
    },
    /// The journal could not be copied or replaced.
    #[error("{0}")]
    Journal(#[from] aos_journal::Error),
    /// The home could not be made.
    #[error("{0}")]
    Home(#[from] crate::home::Error),
    /// A change of files that a stop interrupted cannot be brought to its end.
    #[error("a change of files was under way when the daemon stopped, and cannot be brought to an end: {}", source.whole())]
    UnderWay {
        /// What is kept of it.
        path: PathBuf,
        /// Why.
        source: aos_sandbox::Error,
    },
    /// A restore failed, and what had been set aside did not come back.
    #[error("{error}; and what was there could not be moved back: {back}")]
    Between {
        /// Why it failed.
        error: Box<Error>,
        /// And then.
        back: Box<Error>,
        /// Where what was there is now.
        folders: Vec<PathBuf>,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

impl Error {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Exists(_) => "choose another name, or remove it first".into(),
            Error::Exposed { instead, .. } => {
                format!("name a file in a folder that no agent works on or is shown, such as {}", instead.display())
            }
            Error::Other { .. } => "name the backup that this hash was printed for; nothing was changed".into(),
            Error::Empty(_) => "`aos run` begins a journal; `--home DIR` names another home".into(),
            Error::Foreign { .. } => "name a file that `aos backup` wrote".into(),
            Error::Damaged { .. } => "use another backup; nothing was changed".into(),
            Error::TooNew { .. } => "run the newer release of aos".into(),
            Error::Journal(error) => error.hint(),
            Error::Home(error) => error.hint(),
            Error::UnderWay { source: aos_sandbox::Error::Conflict { .. }, .. } => {
                "give what is there now other names, and bring back folders that are gone: either way to end it would take \
                 that; nothing was restored"
                    .into()
            }
            Error::UnderWay { path, .. } => format!(
                "what it replaced is in {} alone; `aos restore` into another home with --home DIR leaves this one as it is",
                path.display()
            ),
            Error::Between { folders, .. } => {
                let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
                format!(
                    "no daemon starts in this home until a restore has come to its end: begin it again with --force; what \
                     was there is in {}",
                    folders.join(" and ")
                )
            }
            Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => "make room on the disk".into(),
            Error::Io { doing: "read", source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "name a file that `aos backup` wrote".into()
            }
            Error::Io { doing: "move", path, source }
                if matches!(source.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices) =>
            {
                format!(
                    "{} is mounted where it is: unmount it for the restore, or restore into another home with --home DIR \
                     and copy from there; what was in this one is back in its place",
                    path.display()
                )
            }
            Error::Io { path, .. } => format!("check that {} can be written and read", folder_of(path).display()),
        }
    }

    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { doing, path, source }
    }
}

/// Whether a file of an archive may have further names there, or be a link: the journal and the two files beside it may not, so
/// that none of them is in a workspace too, whoever made the archive.
fn may_have_names(name: &Path) -> bool {
    name.components().count() > 1
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
