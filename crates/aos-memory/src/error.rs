//! Why the memory store could not do what was asked.

use std::path::PathBuf;

use aos_abi::{CallError, Code};

/// Why the memory store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Mend the request.
    #[error("{0}")]
    Invalid(String),
    /// Look ids up.
    #[error("`{0}` is no memory id, ids look like `m12`")]
    Id(String),
    /// Search for what there is.
    #[error("nothing is remembered as {what}")]
    NotFound {
        /// The key or id that was given.
        what: String,
    },
    /// Restore a backup; the file is left as it is.
    #[error("{} is damaged or no memory store: {why}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Use the newer program.
    #[error("{} was written by a newer version (schema {found}, this program knows {known})", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Look for fewer or longer words, or with tags.
    #[error("the search took too long and was given up")]
    Slow,
    /// Make room and try again.
    #[error("no space is left for the memory store")]
    Full,
    /// Whatever else the database says.
    #[error("memory store: {0}")]
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Error::Full,
            // By the time limit of a search; nothing else interrupts.
            Some(rusqlite::ErrorCode::OperationInterrupted) => Error::Slow,
            _ => Error::Database(error),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let (code, hint) = match &error {
            Error::Invalid(_) => (Code::Inval, None),
            Error::Id(_) => (Code::Inval, Some("MEM_READ shows ids to agents, `aos memory list` to people")),
            Error::NotFound { .. } => (Code::NoEnt, Some("MEM_READ shows what is remembered, with ids and keys")),
            Error::Slow => (Code::TimedOut, Some("look for one or two words that are rare there")),
            Error::Full => (Code::NoSpc, None),
            Error::Corrupt { .. } | Error::Newer { .. } | Error::Database(_) => (Code::Io, None),
        };
        let told = CallError::new(code, error.to_string());
        match hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    }
}
