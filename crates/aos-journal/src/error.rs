//! Why the journal could not do what was asked, and the way out.
//!
//! Start at [`Error`]. Errors can be cloned, because one failed commit answers every append that waited for it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aos_abi::{Lsn, Pid};

use crate::salvage;

/// Why the journal could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon has this home.
    #[error("the journal is in use{}", os_pid.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    Locked {
        /// The other daemon's process id in the operating system, where it could be read.
        os_pid: Option<u32>,
    },
    /// The home has had a journal and it is gone.
    #[error("the journal {} is missing", path.display())]
    Missing {
        /// Where it was.
        path: PathBuf,
        /// The last entry it had, where that is known.
        expected: Option<Lsn>,
    },
    /// The file is a sound database of something else.
    #[error("{} is no journal: {detail}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        detail: String,
    },
    /// A newer release wrote it.
    #[error("the journal has format {found}, this release knows {known}")]
    TooNew {
        /// Its format.
        found: u32,
        /// The newest that this release reads.
        known: u32,
    },
    /// Bytes are not what was written.
    #[error("the journal is corrupt at {at}: {detail}")]
    Corrupt {
        /// Where.
        at: Place,
        /// What was found.
        detail: String,
        /// Entries up to here are known to be sound; `None` where nothing is known.
        sound_upto: Option<Lsn>,
    },
    /// Entries at the end that had been acknowledged are gone; all up to `last_good` is whole.
    #[error("the journal ends at entry {last_good}, but entry {expected} had been written")]
    TornTail {
        /// The last entry that is there.
        last_good: Lsn,
        /// The last entry that had been written.
        expected: Lsn,
    },
    /// No room on the disk. Nothing that was not written has been acknowledged.
    #[error("no room on the disk for the journal")]
    Full,
    /// The home cannot be written.
    #[error("{} cannot be written", path.display())]
    ReadOnly {
        /// The file or folder.
        path: PathBuf,
    },
    /// Another file has the name of the open journal, or none has it any more. What was acknowledged until then is in `kept`.
    #[error("another file is at {} than the journal that is written, or none", path.display())]
    Replaced {
        /// Its name.
        path: PathBuf,
        /// A copy of all that was written, where one could be made.
        kept: Option<PathBuf>,
    },
    /// The caller's numbering has a gap or goes back. Nothing was written; the journal goes on.
    #[error("entry {found} does not follow: {expected} is next")]
    OutOfOrder {
        /// The number that fits.
        expected: Lsn,
        /// The number that came.
        found: Lsn,
    },
    /// A checkpoint that is older than the last one, or ahead of the entries. Nothing was written; the journal goes on.
    #[error(
        "a checkpoint at entry {found} does not lie between the last checkpoint ({least}) and the last entry ({most})"
    )]
    StaleCheckpoint {
        /// The last checkpoint.
        least: Lsn,
        /// The last entry.
        most: Lsn,
        /// The checkpoint that came.
        found: Lsn,
    },
    /// The target of a backup or a restore exists already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The journal was closed, or its writer is gone.
    #[error("the journal is closed")]
    Closed,
    /// The operating system refused.
    #[error("could not {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: Arc<io::Error>,
    },
    /// The database refused, for a reason none of the above names.
    #[error("could not {doing}: {source}")]
    Sqlite {
        /// What was tried.
        doing: &'static str,
        /// Its answer.
        source: Arc<rusqlite::Error>,
    },
}

/// Where a corruption is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The database file as such: its header or its pages.
    File,
    /// One entry.
    Entry(Lsn),
    /// The sealed place of a pruned entry.
    Sealed(Lsn),
    /// The saved state of one process.
    Page(Pid),
    /// The saved state of the kernel.
    Globals,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => f.write_str("the file itself"),
            Place::Entry(lsn) => write!(f, "entry {lsn}"),
            Place::Sealed(lsn) => write!(f, "the seal of pruned entry {lsn}"),
            Place::Page(pid) => write!(f, "the saved state of process {pid}"),
            Place::Globals => f.write_str("the saved state of the kernel"),
        }
    }
}

impl Error {
    /// The way out, for a person.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Error::Locked { .. } => "stop the other daemon with `aos down`, or use another home with `--home`".into(),
            Error::Missing { expected, .. } => {
                let upto = expected.map(|lsn| format!(" (its last entry was {lsn})")).unwrap_or_default();
                format!(
                    "put the file back{upto}, or `aos restore FILE` from a backup; to begin anew, \
                     move journal.head out of the home"
                )
            }
            Error::Foreign { .. } => "move the file out of the home, or name another home with `--home`".into(),
            Error::TooNew { .. } => "run the newer release of aos".into(),
            Error::Corrupt { at, sound_upto, .. } => corrupt_hint(*at, *sound_upto, "; `aos audit verify` says what is damaged"),
            Error::TornTail { last_good, .. } => format!(
                "everything up to entry {last_good} is whole; restore a newer backup, or go on from there \
                 with `aos up --foreground --accept-loss`"
            ),
            Error::Full => "make room on the disk and start again: everything acknowledged is there".into(),
            Error::ReadOnly { .. } => {
                "give this user write permission on the home, or mount its file system writable; to read it as it is, copy \
                 the home to where there is room (`cp -a`) and name that with `--home`"
                    .into()
            }
            Error::Replaced { path, kept: Some(kept) } => format!(
                "all that was written is in {kept}; to go on from there: mv {kept} {path}, then `aos up`",
                kept = kept.display(),
                path = path.display()
            ),
            Error::Replaced { path, kept: None } => format!(
                "put the file back that was at {}, then `aos up`; the daemon stops, since what it writes would be lost",
                path.display()
            ),
            Error::OutOfOrder { .. } | Error::StaleCheckpoint { .. } => {
                "this is a fault in aos itself: please report it".into()
            }
            Error::Exists { .. } => "name a file that does not exist yet, or move this one away".into(),
            Error::Closed => "start the daemon again; its log says why it stopped".into(),
            Error::Io { .. } => "look at the disk and at the permissions of the home".into(),
            Error::Sqlite { .. } => "run `aos audit verify`; if it finds nothing, start again".into(),
        }
    }

    /// The same for whoever reads what `aos audit verify` found, which it does not send there again.
    #[must_use]
    pub fn hint_of_audit(&self) -> String {
        match self {
            Error::Corrupt { at, sound_upto, .. } => corrupt_hint(*at, *sound_upto, ""),
            Error::Sqlite { .. } => "look at the disk, and at the permissions of the home".into(),
            other => other.hint(),
        }
    }

    /// The same, and where nothing is known yet of what is whole of a damaged file, with that looked up; takes as long
    /// as to verify it.
    #[must_use]
    pub fn located(self, journal: &Path) -> Error {
        match self {
            Error::Corrupt { at: at @ Place::File, detail, sound_upto: None } => {
                Error::Corrupt { at, detail, sound_upto: salvage::sound_upto(journal) }
            }
            other => other,
        }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Error::ReadOnly { path: path.to_owned() }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Io { doing, path: path.to_owned(), source: Arc::new(source) },
        }
    }

    /// Sorts a database error by what a caller can do about it.
    pub(crate) fn sqlite(doing: &'static str, path: &Path, source: rusqlite::Error) -> Error {
        use rusqlite::ErrorCode as C;
        match source.sqlite_error_code() {
            Some(C::DiskFull) => Error::Full,
            Some(C::ReadOnly | C::PermissionDenied) => Error::ReadOnly { path: path.to_owned() },
            Some(C::DatabaseCorrupt | C::NotADatabase) => {
                Error::Corrupt { at: Place::File, detail: source.to_string(), sound_upto: None }
            }
            Some(C::CannotOpen) if cannot_be_written(path) => Error::ReadOnly { path: path.to_owned() },
            // A page that ends before its end: the file was cut.
            Some(C::SystemIoFailure) if extended(&source) == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
                Error::Corrupt { at: Place::File, detail: source.to_string(), sound_upto: None }
            }
            _ => Error::Sqlite { doing, source: Arc::new(source) },
        }
    }
}

/// Whether it is there, and neither it nor a log beside it may be written.
fn cannot_be_written(path: &Path) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let refused = file.is_err_and(|error| matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem));
    let folder = path.parent().and_then(|folder| folder.metadata().ok());
    refused || (path.exists() && folder.is_some_and(|folder| folder.permissions().readonly()))
}

fn extended(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

fn corrupt_hint(at: Place, sound_upto: Option<Lsn>, more: &str) -> String {
    let whole = sound_upto.filter(|lsn| *lsn > Lsn::ZERO);
    let sound = whole.map(|lsn| format!("entries up to {lsn} are sound; ")).unwrap_or_default();
    match (at, whole) {
        (Place::Page(_) | Place::Globals, _) => {
            format!(
                "{sound}the entries are not touched by this, and the daemon makes it again from them; where some were \
                 pruned it cannot: `aos restore FILE` from a backup then"
            )
        }
        (Place::File | Place::Entry(_) | Place::Sealed(_), Some(_)) => format!(
            "{sound}`aos restore FILE` from a backup, or go on without what came after with \
             `aos up --foreground --accept-loss`, which keeps the damaged file beside{more}"
        ),
        (Place::File | Place::Entry(_) | Place::Sealed(_), None) => {
            "nothing of it can be read: keep a copy of the file, and `aos restore FILE` from a backup".into()
        }
    }
}
