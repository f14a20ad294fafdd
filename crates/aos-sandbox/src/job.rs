//! What the daemon tells its helper, and what the helper and the processes below it report back.
//!
//! Start at [`Task`] and [`Report`]. A task travels in a sealed memory file, a report is one packet. Always true: both
//! ends are the same build, so nothing here is versioned.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Feature};
use crate::outcome::{End, Usage};
use crate::spec::{Access, Inode, Limits, Network};

/// The packet by which a helper hands out its own process, and the one that carries the doors of its network.
pub(crate) const STARTED: &[u8] = b"started";
pub(crate) const DOORS: &[u8] = b"doors";

/// What a helper is for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Run a command.
    Run(Box<Job>),
    /// Try what the host can do, with workspaces in this folder.
    Probe(OsString),
}

/// One command, resolved: no default is left to fill in. Paths are `OsString`s because serde takes those with any bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The program and its arguments, never empty.
    pub(crate) argv: Vec<OsString>,
    /// The complete environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The absolute host path of the workspace.
    pub(crate) workspace: OsString,
    /// A folder of the command's own that goes away with it. The helper deletes it, since it outlives a daemon that dies.
    pub(crate) home: Option<OsString>,
    /// The limits.
    pub(crate) limits: Limits,
    /// The walls, or none.
    pub(crate) walls: Option<Walls>,
}

/// What a sandbox is built from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Walls {
    /// Mounts beside the system and the workspace: host path without a link in it, path inside, access, and what it was.
    pub(crate) mounts: Vec<(OsString, OsString, Access, Inode)>,
    /// The folder of the layer that takes the changes, or they go to the workspace itself.
    pub(crate) layer: Option<OsString>,
    /// The granted programs' absolute host paths, or the whole system.
    pub(crate) programs: Option<Vec<OsString>>,
    /// Whether what is in the workspace and on memory can be executed.
    pub(crate) own: bool,
    /// The network.
    pub(crate) network: Network,
    /// Where programs that know of no proxy are let through: ports, and addresses that are meant as they are.
    pub(crate) through: (Vec<u16>, Vec<IpAddr>),
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The command ran and its tree is dead.
    Ended(End, Usage),
    /// It did not start.
    Failed(Failure),
    /// What was tried, each with its error number or 0.
    Probed(Vec<(Feature, i32)>),
}

/// A failure that crosses processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What kind.
    pub(crate) kind: FailureKind,
    /// The kernel's number for it.
    pub(crate) errno: i32,
}

/// What failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FailureKind {
    /// The command's program could not be executed.
    Program(String),
    /// A path could not be used.
    Path(OsString),
    /// The host lacks something.
    Missing(Feature),
    /// A step, as a verb phrase.
    Setup(String),
}

impl Failure {
    /// A failed step.
    pub(crate) fn step(step: impl Into<String>, errno: impl Into<io::Error>) -> Self {
        Failure::new(FailureKind::Setup(step.into()), errno)
    }

    /// A failure of some kind.
    pub(crate) fn new(kind: FailureKind, cause: impl Into<io::Error>) -> Self {
        Failure { kind, errno: cause.into().raw_os_error().unwrap_or(libc::EIO) }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let source = io::Error::from_raw_os_error(failure.errno);
        match failure.kind {
            FailureKind::Program(program) => Error::Program { program, source },
            FailureKind::Path(path) => Error::Path { path: path.into(), source },
            FailureKind::Missing(feature) => Error::Missing { feature, source },
            FailureKind::Setup(step) => Error::Setup { step, source },
        }
    }
}

/// Names the step that a fallible call was part of.
pub(crate) trait Step<T> {
    /// Turns the error into a [`Failure`] of this step.
    fn step(self, step: &str) -> Result<T, Failure>;
    /// Turns the error into a [`Failure`] that says the host lacks `feature`.
    fn needs(self, feature: Feature) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|errno| Failure::step(step, errno))
    }

    fn needs(self, feature: Feature) -> Result<T, Failure> {
        self.map_err(|errno| Failure::new(FailureKind::Missing(feature), errno))
    }
}
