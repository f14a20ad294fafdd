//! Why a file could not be fetched, as values: each with the way out.

use std::path::{Path, PathBuf};

/// Why a file could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The address is none that files are fetched from.
    #[error("`{0}` is no address of a file")]
    Address(String),
    /// It would come unprotected, and nobody has said what it should be.
    #[error("{0} would send the file unprotected")]
    Plain(String),
    /// The address leads on and on, or from a protected one to an unprotected one.
    #[error("{host} leads elsewhere: {why}")]
    Astray {
        /// Who led on.
        host: String,
        /// Where to.
        why: String,
    },
    /// There is no such file.
    #[error("{0} has no such file")]
    Absent(String),
    /// It is only for some.
    #[error("{0} gives the file only to those who are let in")]
    Closed(String),
    /// The server refuses for another reason.
    #[error("{host} answered with the status {status}")]
    Refused {
        /// Who.
        host: String,
        /// The status of HTTP.
        status: u16,
    },
    /// What came is no model.
    #[error("what {host} sends is no file of a model: {why}")]
    Other {
        /// Who.
        host: String,
        /// What it is instead.
        why: &'static str,
    },
    /// The connection broke again and again.
    #[error("the download from {host} broke off after {have} bytes: {why}")]
    Broken {
        /// Who.
        host: String,
        /// Bytes that are here.
        have: u64,
        /// The last word.
        why: String,
    },
    /// It is not the file that it should be.
    #[error("the file has the SHA-256 {got}, and should have {expected}")]
    Checksum {
        /// As it should be, in hex.
        expected: String,
        /// As it is.
        got: String,
    },
    /// The disk is too full.
    #[error("{} has {free} bytes free, {needed} are needed", folder.display())]
    Space {
        /// Where the file should go.
        folder: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes still to come, with some to spare.
        needed: u64,
    },
    /// Another program fetches the same file.
    #[error("{} is being fetched already", .0.display())]
    Busy(PathBuf),
    /// A person's own file, or another one, has the place.
    #[error("{} is there already, and is not what was asked for", .0.display())]
    Taken(PathBuf),
    /// The file system refuses.
    #[error("{}: {why}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's word.
        why: String,
    },
    /// No connection can be made at all.
    #[error("{0}")]
    Client(String),
}

impl Fault {
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Fault + use<> {
        let path = path.to_owned();
        move |error| Fault::Io { path: path.clone(), why: error.to_string() }
    }

    /// The way out.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Fault::Address(_) => "write it as https://HOST/PATH/NAME.gguf, or a name of `aos models pull`",
            Fault::Plain(_) => "use https, or say with --sha256 what the file must be",
            Fault::Astray { .. } | Fault::Other { .. } => {
                "use the address from which the file itself comes (on Hugging Face it has `/resolve/` in it)"
            }
            Fault::Absent(_) => "look whether the name and the branch in the address are right",
            Fault::Closed(_) => {
                "choose a copy of the model that needs no account, or fetch it with a browser into models/"
            }
            Fault::Refused { .. } => "try again later, or another address",
            Fault::Broken { .. } => "the same command goes on where it ended",
            Fault::Checksum { .. } => "what came was thrown away: fetch it again; if it stays, use another source",
            Fault::Space { .. } => "make room there; the same command goes on where it ended",
            Fault::Busy(_) => "wait for the other one, or end it",
            Fault::Taken(_) => "move it away; or use it as it is, with its name in aos.toml",
            Fault::Io { .. } => "check the permissions of the folder, and the disk",
            Fault::Client(_) => "check the proxy variables of the environment",
        }
    }
}
