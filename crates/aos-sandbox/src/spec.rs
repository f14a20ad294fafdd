//! What to run and within which walls: everything the caller decides before a command starts.
//!
//! Start at [`Spec`]. Always true: nothing the caller did not name reaches the command, neither an environment variable
//! nor a file nor the network; there is no default that widens. Deliberately absent: a way to run without isolation
//! that does not carry an [`UnsandboxedConsent`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::layer::Layer;
use crate::nursery::{FDS, Nursery};

/// One command and its walls.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program and its arguments; a program without `/` is looked up in `PATH` as the command will see it.
    pub argv: Vec<OsString>,
    /// What the command reads on standard input, followed by end of file.
    pub stdin: Vec<u8>,
    /// Added to the clean environment (`PATH`, `HOME`, `LANG`, `TMPDIR`, `USER`), which it may override.
    pub env: BTreeMap<OsString, OsString>,
    /// The host folder the command works in; with full isolation it appears as [`WORKSPACE`](crate::WORKSPACE).
    pub workspace: PathBuf,
    /// Further host files and folders the command may see; ignored by nobody: without isolation they are refused.
    pub mounts: Vec<Mount>,
    /// Where changes go instead of into the workspace; needs full isolation. [`Outcome::changed`](crate::Outcome) then
    /// names all that is in the layer.
    pub layer: Option<Layer>,
    /// Which programs of the host can be executed inside.
    pub programs: Programs,
    /// How much of everything the command may use.
    pub limits: Limits,
    /// What it may connect to.
    pub network: Network,
    /// Who serves the proxy of [`Network::Proxy`]; unused otherwise.
    pub proxy: Option<ProxyServer>,
    /// How strong the walls are.
    pub isolation: Isolation,
    /// The program that becomes the sandbox's first process.
    pub helper: Helper,
}

impl Spec {
    /// A command with default limits, no mounts, no network and the walls that `isolation` says.
    pub fn new<A: Into<OsString>>(
        argv: impl IntoIterator<Item = A>,
        workspace: impl Into<PathBuf>,
        isolation: Isolation,
    ) -> Self {
        Spec {
            argv: argv.into_iter().map(Into::into).collect(),
            stdin: Vec::new(),
            env: BTreeMap::new(),
            workspace: workspace.into(),
            mounts: Vec::new(),
            layer: None,
            programs: Programs::default(),
            limits: Limits::default(),
            network: Network::default(),
            proxy: None,
            isolation,
            helper: Helper::default(),
        }
    }
}

/// A host file or folder shown inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where it appears: an absolute path inside, without `..`, and not below `/proc` or `/dev`.
    pub at: PathBuf,
    /// Whether the command may change it. A small file that it may not is shown as it is when the run begins, as a copy.
    pub access: Access,
    /// What was found there by whoever decided that it may be mounted, through no symbolic link: the run fails where the
    /// path leads to anything else by then. `None`: links are followed once, when the run begins.
    pub is: Option<Inode>,
}

/// Which file or folder of this host something is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// Of what a descriptor is open on.
    ///
    /// # Errors
    /// What `fstat(2)` says.
    pub fn of(fd: impl AsFd) -> io::Result<Inode> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Inode { device: stat.st_dev, number: stat.st_ino })
    }
}

/// What a command may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Look at it. A socket or pipe in it leads to nobody: a folder is shown through an overlay.
    Read,
    /// Look at it and change it. It is the host's folder itself, so whoever listens at a socket in it can be talked to.
    Write,
}

/// Which programs of the host can be executed inside the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Programs {
    /// Everything in the host's `/usr`, `/bin` and `/sbin`, and what the command makes itself.
    #[default]
    System,
    /// These files only, each by its absolute host path, with the system's libraries.
    ///
    /// No other program file is even visible, and what the command writes cannot be executed. Programs under `/usr/lib`
    /// and `/usr/libexec` remain: they are parts of the granted ones (`git` keeps its commands there).
    Only(Vec<PathBuf>),
    /// The same, and what lies in the workspace, `/tmp` or `/dev/shm`, whoever put it there: a command that has an
    /// interpreter or a compiler can run anything anyhow, behind the same walls. What is mounted stays closed.
    AndOwn(Vec<PathBuf>),
}

impl Programs {
    /// The host's files that are granted; `None` where all are.
    pub fn granted(&self) -> Option<&[PathBuf]> {
        match self {
            Programs::System => None,
            Programs::Only(paths) | Programs::AndOwn(paths) => Some(paths),
        }
    }
}

/// The most a command may use. A limit is for the whole tree unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time from start to end; then the tree is killed.
    pub wall: Duration,
    /// Processor time of each process, rounded up to a second.
    pub cpu: Duration,
    /// Bytes of memory: of each process by the kernel's count of private data, and with full isolation of the tree's
    /// resident memory too, which is looked at ten times a second.
    pub memory: u64,
    /// Processes and threads at once. The kernel counts them per user, so without isolation the daemon's own count.
    pub pids: u64,
    /// Open file descriptors of each process.
    pub files: u64,
    /// Bytes by which the workspace may grow, which is looked at a few times a second, and of the largest file; with
    /// full isolation also of everything in `/tmp`, which is on memory and therefore not larger than `memory` either.
    pub disk: u64,
    /// Bytes kept of each of standard output and standard error; the rest is read and dropped.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Limits {
            wall: Duration::from_secs(120),
            cpu: Duration::from_secs(60),
            memory: 512 * MIB,
            pids: 64,
            files: 256,
            disk: 1024 * MIB,
            output: 1 << 20,
        }
    }
}

/// What a command may connect to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Network {
    /// A network of its own with nothing in it but a loopback.
    #[default]
    None,
    /// A network of its own, whose one way out are the [`Doors`] that [`Spec::proxy`] serves. The usual variables
    /// (`HTTPS_PROXY` and so on) name the proxy; programs that ignore them are let through where the server says.
    Proxy,
    /// The host's network, with all that listens on the host's loopback. No rule narrows it.
    Host,
}

/// What stands in a command's network and leads out of it: sockets that were made there, and are served from here.
#[derive(Debug)]
pub struct Doors {
    /// At [`PROXY_ADDRESS`](crate::PROXY_ADDRESS), for programs that know of a proxy.
    pub proxy: TcpListener,
    /// Where names are asked for, by packet and by connection.
    pub names: (UdpSocket, TcpListener),
    /// One for each of [`ProxyServer::ports`]. Whoever connects from inside to that port of an address in
    /// [`STANDING_IN`](crate::STANDING_IN), or of one in [`ProxyServer::addresses`], is accepted here; the socket's own
    /// address says whom they mean.
    pub through: Vec<TcpListener>,
}

/// Takes the doors that stand in a command's network, once per run, before the command starts.
///
/// It is called on the thread of [`run`](crate::run) and has to return soon: it hands them to whoever serves them. That
/// one drops them when the run has ended, because they keep the network alive.
#[derive(Clone)]
pub struct ProxyServer {
    take: Arc<dyn Fn(Doors) + Send + Sync>,
    /// The ports at which programs that know of no proxy are let through. The command itself cannot listen there.
    pub ports: Vec<u16>,
    /// Addresses that are meant as they are, beside those that stand in for names.
    pub addresses: Vec<IpAddr>,
}

impl ProxyServer {
    /// Calls `take` with the doors; at first they let only those through who know of the proxy.
    pub fn new(take: impl Fn(Doors) + Send + Sync + 'static) -> Self {
        ProxyServer { take: Arc::new(take), ports: Vec::new(), addresses: Vec::new() }
    }

    pub(crate) fn take(&self, doors: Doors) {
        (self.take)(doors);
    }
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyServer")
    }
}

/// How strong the walls are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces, a root of its own, Landlock, seccomp, no capabilities. If the host cannot do one of them the run is
    /// an error that names it.
    Full,
    /// No walls: a clean environment, limits and a tree that dies as one, nothing else.
    Unsandboxed(UnsandboxedConsent),
}

/// Proof that a person wrote into the configuration that commands may run without isolation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsandboxedConsent(());

impl UnsandboxedConsent {
    /// The sentence that the configuration has to contain, word for word.
    pub const WORDS: &str = "i accept that commands run without isolation";

    /// Consent, if `words` say so. A `true` or a `yes` is not enough, so that nobody consents in passing.
    pub fn from_words(words: &str) -> Option<Self> {
        (words.trim() == Self::WORDS).then_some(UnsandboxedConsent(()))
    }
}

/// The program that the sandbox is started from; it has to call [`helper_main`](crate::helper_main) before anything else.
///
/// It is a program of its own and not a fork of the daemon, because the daemon has threads, whose locks a fork would
/// freeze, and secrets in its memory, which the sandbox's first process would carry. It is started once, by the first
/// run, and ends with the last clone of this; what serves a run is a fork of it that was made before anything was known
/// of that run. So clone one rather than making another.
#[derive(Debug, Clone)]
pub struct Helper {
    program: PathBuf,
    args: Vec<OsString>,
    nursery: Arc<Nursery>,
}

impl Helper {
    /// An executable and its arguments; nothing is started yet.
    pub fn new(program: impl Into<PathBuf>, args: impl IntoIterator<Item = OsString>) -> Self {
        Helper { program: program.into(), args: args.into_iter().collect(), nursery: Arc::default() }
    }

    pub(crate) fn hand_over(&self, fds: [BorrowedFd<'_>; FDS]) -> Result<(), Error> {
        self.nursery.hand_over(&self.program, &self.args, fds)
    }

    pub(crate) fn dismiss(&self) {
        self.nursery.dismiss();
    }
}

impl Default for Helper {
    /// This very program again, as the hidden subcommand [`HELPER_SUBCOMMAND`](crate::HELPER_SUBCOMMAND).
    fn default() -> Self {
        Helper::new("/proc/self/exe", [crate::HELPER_SUBCOMMAND.into()])
    }
}
