//! Why the daemon did not do what was asked.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use aos_abi::Code;
use aos_abi::api::ErrorView;

/// Why a request to the daemon came to nothing. The first four say that it cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens and none was to be started.
    #[error("no daemon runs in {}", .home.display())]
    NoDaemon {
        /// The home.
        home: PathBuf,
    },
    /// It was started and did not come up.
    #[error("the daemon did not start")]
    NotStarted {
        /// What it said, or how it ended.
        reason: String,
        /// What it gave as the way out.
        hint: Option<String>,
        /// Where the rest stands.
        log: PathBuf,
    },
    /// The socket is there and does not let us in.
    #[error("cannot connect to {}: {source}", .socket.display())]
    Closed {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It went away while a stream was read and did not come back.
    #[error("the daemon went away and was not back after {} s", .after.as_secs())]
    Gone {
        /// How long it was waited for.
        after: Duration,
    },
    /// It did not answer in time.
    #[error("no answer to {what} within {} s", .after.as_secs())]
    Late {
        /// The request.
        what: String,
        /// The deadline.
        after: Duration,
    },
    /// It went away before it answered.
    #[error("the daemon went away before it answered {what}")]
    Lost {
        /// The request.
        what: String,
    },
    /// The connection broke in the middle of the answer, or what came is no answer.
    #[error("the answer to {what} cannot be used: {why}")]
    Broken {
        /// The request.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// It said no.
    #[error("{}", .error.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        error: ErrorView,
    },
}

impl Error {
    /// Whether an answer to a proposal was refused since there is something else to see by now.
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(self, Error::Refused { error, .. } if error.code == Code::Rejected.as_str())
    }
}
