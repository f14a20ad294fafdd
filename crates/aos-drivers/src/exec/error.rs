//! Why a command did not run, or did not end well, and what the agent is told.

use std::io::ErrorKind;

use aos_abi::{CallError, Code, limits};
use aos_sandbox::Error as Sandbox;

/// The ways out where there was too much for the disk.
const OUT_OF_DISK: &str = "write less in one command; deleted files count while they are open, the sizes of all files together, \
     with their holes and once for each name, may be four times as much, and where the workspace is on another disk than \
     the home each name of a file counts in full";
const NO_LEAVE: &str = "nothing of it was kept; leave that file or folder as it is, only a person can give leave";
const FULL: &str = "write less in one command, or ask for room on that disk; nothing of it was kept";

/// Why a command did not run or was ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Give a time that can be waited for.
    #[error("timeout_s must be more than 0 and at most {}", limits::EXEC_TIMEOUT_S_MAX)]
    Timeout,
    /// Mend the variable.
    #[error("`{name}` cannot be the name or value of an environment variable")]
    Variable { name: String },
    /// Do less at once, or ask for more time.
    #[error("the command ran past {seconds} s and was killed with all it had started")]
    TimedOut { seconds: f64 },
    /// Do with less memory.
    #[error("the command used more than {bytes} bytes of memory and was killed")]
    OutOfMemory { bytes: u64 },
    /// Write less.
    #[error(
        "the command used more of the disk than it may ({bytes} bytes and 200,000 files) and was ended; nothing of it \
             was kept"
    )]
    OutOfDisk { bytes: u64 },
    /// It was stopped from outside.
    #[error("the command was stopped before it ended")]
    Cancelled,
    /// Run commands in the sandbox.
    #[error("without the sandbox a command sees all of its workspace, of which this process may not read everything")]
    Bare,
    /// Whatever the policy says.
    #[error("{}", .0.message)]
    Bounds(CallError),
    /// Whatever the sandbox says.
    #[error("{}", .0.whole())]
    Sandbox(#[from] Sandbox),
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let (code, hint) = match &error {
            Error::Timeout | Error::Variable { .. } => (Code::Inval, None),
            Error::TimedOut { .. } => {
                (Code::TimedOut, Some("a larger timeout_s, or less work in one command".to_owned()))
            }
            Error::OutOfMemory { .. } => (Code::DQuot, Some("work on the data in pieces".to_owned())),
            Error::OutOfDisk { .. } => (Code::NoSpc, Some(OUT_OF_DISK.to_owned())),
            Error::Cancelled => (Code::Intr, None),
            Error::Bare => (Code::Perm, Some("FS_READ on `**`, or commands in the sandbox".to_owned())),
            // Told as it was said.
            Error::Bounds(said) => return said.clone(),
            Error::Sandbox(error) => match error {
                Sandbox::Spec { .. } => (Code::Inval, None),
                Sandbox::Program { source, .. } if source.kind() == ErrorKind::NotFound => (Code::NoEnt, None),
                Sandbox::Program { .. } => (Code::Perm, Some("only granted programs can be run".to_owned())),
                Sandbox::Conflict { .. } => (
                    Code::Again,
                    Some(
                        "somebody changed these files while the command ran, so nothing of it was kept; run it again"
                            .to_owned(),
                    ),
                ),
                Sandbox::Deep { .. } => {
                    (Code::Inval, Some("use fewer folders inside one another, with shorter names".to_owned()))
                }
                Sandbox::Many { .. } => {
                    (Code::NoSpc, Some("change fewer files in one command, with shorter paths".to_owned()))
                }
                // Whether it ran is not known.
                Sandbox::Helper { .. } => {
                    (Code::Intr, Some("it may have run; look before running it again".to_owned()))
                }
                Sandbox::Unfinished { .. } => (Code::Io, Some("look at the files before running it again".to_owned())),
                Sandbox::Full { .. } => (Code::NoSpc, Some(FULL.to_owned())),
                Sandbox::Path { source, .. } if source.kind() == ErrorKind::StorageFull => {
                    (Code::NoSpc, Some(FULL.to_owned()))
                }
                Sandbox::Path { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                    (Code::Perm, Some(NO_LEAVE.to_owned()))
                }
                Sandbox::Missing { feature, .. } => (Code::Io, Some(feature.remedy().to_owned())),
                Sandbox::Path { .. } | Sandbox::Setup { .. } => (Code::Io, None),
            },
        };
        let told = CallError::new(code, error.to_string());
        match hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    }
}
