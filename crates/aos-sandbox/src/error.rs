//! Why a command did not run, told apart by what a caller can do about it.
//!
//! Always true: an error means that the command either did not start or that its outcome is unknown
//! ([`Error::Helper`]); a command that ran and failed is an [`Outcome`](crate::Outcome).

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that has no meaning; asking again will not help.
    #[error("the command cannot be described to the kernel: {reason}")]
    Spec {
        /// What is wrong with it.
        reason: String,
    },
    /// The program is not there, not granted, or cannot be executed. Worth telling the one who asked for it.
    #[error("cannot execute {program}")]
    Program {
        /// The program as it was asked for.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The workspace or a mount cannot be used.
    #[error("cannot use {path}")]
    Path {
        /// Which one.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something changed that an undo would have to bring back; a person has to decide.
    #[error("changed since: {}", shown(paths))]
    Conflict {
        /// Each such path, relative to the workspace.
        paths: Vec<PathBuf>,
    },
    /// Folders inside one another without end, which nobody could look through; nothing is kept.
    #[error(
        "there are more than {levels} folders inside one another, or a path longer than the system takes; \
             nothing of it was kept"
    )]
    Deep {
        /// How many there may be.
        levels: usize,
    },
    /// More was changed than is written down of a commit; nothing is kept.
    #[error("what was changed takes more than {bytes} bytes to write down; nothing of it was kept")]
    Many {
        /// How much may be.
        bytes: usize,
    },
    /// A disk has no room for what was to be copied to it; everything is as it was.
    #[error(
        "{bytes} bytes were to be copied to the disk of {place}, of which the last GiB, or half of what is free, stays \
             free; nothing was changed"
    )]
    Full {
        /// A folder on it.
        place: PathBuf,
        /// How much.
        bytes: u64,
    },
    /// A change stopped half-way, and what it had done could not be taken back. What it replaced is kept, and
    /// [`recover`](crate::recover) tries again.
    #[error(
        "the change stopped half-way and could not be taken back; that is tried again before anything else changes there, \
             and at the next start"
    )]
    Unfinished {
        /// Why it could not.
        source: Box<Error>,
    },
    /// The host lacks something that full isolation needs; `feature.remedy()` says how to get it.
    #[error("this host has no {feature}, without which nothing runs isolated: {}", feature.remedy())]
    Missing {
        /// What it lacks.
        feature: Feature,
        /// What the kernel said.
        source: io::Error,
    },
    /// A step of building the sandbox failed; nothing of the command ran.
    #[error("cannot {step}")]
    Setup {
        /// The step, as a verb phrase.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The helper could not be started or ended without a report. Whether the command ran is unknown.
    #[error("the sandbox helper {reason}")]
    Helper {
        /// What happened to it.
        reason: String,
        /// The cause, where the kernel named one.
        source: Option<io::Error>,
    },
}

impl Error {
    /// What is at the bottom of it, without paths of the host.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Error::Unfinished { source } => source.cause(),
            Error::Path { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// The error with all its causes.
    #[must_use]
    pub fn whole(&self) -> String {
        let causes = std::iter::successors(Some(self as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }
}

/// The first of many paths, escaped.
fn shown(paths: &[PathBuf]) -> String {
    let first: Vec<String> =
        paths.iter().take(5).map(|path| path.to_string_lossy().escape_debug().collect::<String>()).collect();
    let more = paths.len().saturating_sub(5);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// A feature of the host that isolation is built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feature {
    /// Namespaces that an ordinary user can make.
    UserNamespaces,
    /// Landlock with at least [`LANDLOCK_ABI_MIN`](crate::LANDLOCK_ABI_MIN).
    Landlock,
    /// System call filters.
    Seccomp,
    /// A private `/proc` inside a user namespace.
    Proc,
    /// A workspace mount with translated owners, which a daemon that runs as root needs.
    IdmappedMounts,
    /// overlayfs inside a user namespace, for workspaces that can be rolled back.
    Overlay,
    /// A control group of our own; used where it is there, missed nowhere.
    Cgroup,
}

impl Feature {
    /// How a person gets it.
    pub fn remedy(self) -> &'static str {
        match self {
            Feature::UserNamespaces => {
                "set user.max_user_namespaces above 0 (and, where they exist, kernel.unprivileged_userns_clone=1 and \
                 kernel.apparmor_restrict_unprivileged_userns=0); inside a container allow unshare and clone in its \
                 seccomp profile"
            }
            Feature::Landlock => {
                "use Linux 6.2 or newer with CONFIG_SECURITY_LANDLOCK=y and landlock in the lsm= boot parameter; inside \
                 a container allow the landlock_* system calls"
            }
            Feature::Seccomp => "use a kernel with CONFIG_SECCOMP_FILTER=y",
            Feature::Proc => {
                "inside a container start it without masked paths in /proc (--security-opt systempaths=unconfined)"
            }
            Feature::IdmappedMounts => {
                "run the daemon as an ordinary user, or keep workspaces on ext4, xfs, btrfs or tmpfs with Linux 6.3 or \
                 newer"
            }
            Feature::Overlay => "use Linux 5.11 or newer with overlayfs, and a state folder on a real file system",
            Feature::Cgroup => {
                "delegate a cgroup v2 subtree with the controllers memory and pids to the daemon (systemd: Delegate=yes; \
                 elsewhere write `+memory +pids` into cgroup.subtree_control of the group above); limits are kept \
                 without it"
            }
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::UserNamespaces => "user namespaces",
            Feature::Landlock => "Landlock (ABI 3 or newer)",
            Feature::Seccomp => "seccomp filters",
            Feature::Proc => "private /proc",
            Feature::IdmappedMounts => "id-mapped mounts",
            Feature::Overlay => "overlayfs in user namespaces",
            Feature::Cgroup => "delegated control group",
        })
    }
}
