//! Isolates one command: it sees a workspace and the system's programs, reaches nothing else, uses no more than it was
//! given, and when it ends nothing of it is left running.
//!
//! Start at [`run`] with a [`Spec`]; [`probe`] says what the host can do. How a command comes to run:
//!
//! ```text
//! daemon ──asks──▶ helper ──clones──▶ first process ──forks──▶ the command
//! run.rs           helper.rs          walls.rs, root.rs        exec.rs
//! pipes, deadline  watches, kills     new root, reaps          limits, Landlock, seccomp, exec
//!                     ▲ forked ahead by the nurse, whom nursery.rs starts
//! ```
//!
//! A program that embeds this crate hands over to the helper before it does anything else:
//!
//! ```no_run
//! use aos_sandbox::{Cancel, HELPER_SUBCOMMAND, Isolation, Spec, helper_main, run};
//!
//! if std::env::args_os().nth(1).is_some_and(|first| first == HELPER_SUBCOMMAND) {
//!     helper_main()
//! }
//! let outcome = run(&Spec::new(["make", "test"], "/home/me/project", Isolation::Full), &Cancel::new()?)?;
//! println!("{:?}: {}", outcome.end, outcome.stdout.text());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Always true:
//! - Helpers come from a fresh program with an empty environment and one thread, each serves one command, and none has
//!   seen another's; no memory of the daemon gets inside.
//! - What the host cannot do is an error that names it ([`Error::Missing`]). Nothing falls back to fewer walls.
//! - When [`run`] returns the whole process tree is dead, whatever it did to get away.
//! - Output in memory is bounded by the limits.
//!
//! Deliberately absent: knowledge of policy, of agents and of async runtimes. [`run`] blocks; callers give it a thread.
#![allow(unsafe_code, reason = "namespaces, mounts, fork and exec are system calls that no safe wrapper covers whole")]

mod below;
mod cancel;
mod capture;
mod changes;
mod commit;
mod companions;
mod content;
mod disk;
mod durable;
mod error;
mod exec;
mod failpoint;
mod fingerprint;
mod foreign;
mod helper;
mod hidden;
mod identity;
mod image;
mod job;
mod landlock;
mod layer;
mod network;
mod nursery;
mod outcome;
mod privileges;
mod probe;
mod record;
mod resident;
mod root;
mod run;
mod seccomp;
mod sources;
mod spec;
mod step;
mod supervise;
mod transfer;
mod tree;
mod walk;
mod walls;

pub use below::{LEVELS_MAX, delete};
pub use cancel::Cancel;
pub use commit::{Altered, Committed, Stage, recover};
pub use content::{Copies, Same, data};
pub use disk::SPARED_BYTES;
pub use error::{Error, Feature};
pub use exec::close_others_on_exec;
pub use foreign::{Foreign, TOO_LARGE, foreign};
pub use helper::helper_main;
pub use image::{Image, Kind, digest, digest_of, hex};
pub use layer::{Layer, Like};
pub use outcome::{Captured, Change, ChangeKind, End, LeftOut, LeftOutKind, Outcome, Usage};
pub use probe::{Finding, HostReport, probe, probe_folder};
pub use resident::release_code;
pub use run::{Isolator, ThisHost, run};
pub use spec::{
    Access, Doors, Helper, Inode, Isolation, Limits, Mount, Network, Programs, ProxyServer, Spec, UnsandboxedConsent,
};
pub use walk::{Met, Walk};

/// Where the workspace is inside a full sandbox.
pub const WORKSPACE: &str = "/workspace";

/// Where commands look for programs by name, unless their environment says otherwise.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where the proxy of [`Network::Proxy`] listens inside the command's own network.
pub const PROXY_ADDRESS: &str = "127.0.0.1:3128";

/// Where names are asked for inside.
pub const NAMES_ADDRESS: &str = "127.0.0.1:53";

/// Addresses that stand in for names inside (a network and the length of its prefix): all of them are the command's own,
/// since the range is set apart for tests of networks and leads nowhere (RFC 2544).
pub const STANDING_IN: (std::net::Ipv4Addr, u8) = (std::net::Ipv4Addr::new(198, 18, 0, 0), 15);

/// The most ports of [`ProxyServer::ports`].
pub const PORTS_MAX: usize = 32;

/// The argument with which a program that embeds this crate starts itself again as the helper: `main` calls
/// [`helper_main`] when it is the first argument, before threads, logging or configuration.
pub const HELPER_SUBCOMMAND: &str = "__sandbox-init";

/// The oldest Landlock that full isolation accepts: older ones let a program truncate files it may not write.
pub const LANDLOCK_ABI_MIN: i32 = 3;
