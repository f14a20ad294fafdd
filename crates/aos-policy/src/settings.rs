//! Settings: what the policy file says beside its rules, typed for those who enforce it.
//!
//! Times are milliseconds, sizes bytes, money [`Usd`]. Deliberately absent: enforcement. The kernel keeps budgets and
//! limits, the sandbox its ceilings, the model pool tiers, the edges secrets.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::Usd;
use aos_abi::entry::Verdict;

/// The ceiling for every process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Deepest tree of processes below one that a person started.
    pub spawn_depth: usize,
    /// Most live children of one process.
    pub spawn_children: usize,
    /// For each command in the sandbox.
    pub sandbox: SandboxLimits,
}

/// What one command may use. The defaults are the example of the policy's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Memory of the whole tree of processes, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads at once.
    pub pids: u64,
    /// Open files of one process.
    pub files: u64,
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// Time from start to end, in milliseconds.
    pub wall_ms: u64,
    /// What it may write to the workspace, in bytes.
    pub disk_bytes: u64,
    /// What is kept of each output stream, in bytes.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { spawn_depth: 4, spawn_children: 16, sandbox: SandboxLimits::default() }
    }
}

impl Default for SandboxLimits {
    fn default() -> SandboxLimits {
        SandboxLimits {
            memory_bytes: 512 << 20,
            pids: 64,
            files: 256,
            cpu_ms: 60_000,
            wall_ms: 120_000,
            disk_bytes: 1 << 30,
            output_bytes: 1 << 20,
        }
    }
}

/// How commands run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// Whether a command line may use the shell's language; else it is plain words and the first names a program.
    pub shell: bool,
    /// The only programs that can be executed inside: names, absolute paths, and [`OWN_PROGRAMS`].
    pub programs: Vec<String>,
    /// Which network it has.
    pub net: ExecNet,
}

/// What stands in `programs` for all that lies in the workspace or is made by the command itself.
pub const OWN_PROGRAMS: &str = "./**";

impl Exec {
    /// Whether a shell reads this line: where the role may use its language, and where somebody has let pass what is more than
    /// plain words.
    #[must_use]
    pub fn needs_shell(&self, line: &str) -> bool {
        self.shell || !crate::packages::is_words(line)
    }

    /// Whether what lies in the workspace, and what a command makes, can be executed.
    #[must_use]
    pub fn runs_own(&self) -> bool {
        self.programs.iter().any(|program| program == OWN_PROGRAMS)
    }
}

/// The network of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecNet {
    /// None at all.
    Closed,
    /// What the role's `net` rules allow, through the proxy.
    Rules,
}

/// A folder of the host inside the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, or `~/…` in the person's home.
    pub host: String,
    /// The name of the folder in the workspace at which it appears, to be read and not to be changed.
    pub at: String,
    /// The rule, such as `role assistant: mounts[0]`.
    pub rule: String,
    /// Where `host` stands in the file: the line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

/// Which model tiers a role may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    tiers: Option<BTreeMap<String, Verdict>>,
}

impl Models {
    pub(crate) fn of(tiers: BTreeMap<String, Verdict>) -> Models {
        Models { tiers: Some(tiers) }
    }

    /// What is said to a model of this tier. A role without `models` leaves the choice to the configuration; in one
    /// with it, a tier that is not named is denied.
    #[must_use]
    pub fn verdict(&self, tier: &str) -> Verdict {
        match &self.tiers {
            None => Verdict::Allow,
            Some(tiers) => tiers.get(tier).copied().unwrap_or(Verdict::Deny),
        }
    }
}

/// What each process of a role may spend; `None`: only its parent and the configuration limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoleBudget {
    /// Money, and in how many seconds it renews.
    pub usd: Option<(Usd, u64)>,
    /// Tokens, and in how many seconds they renew.
    pub tokens: Option<(u64, u64)>,
    /// System calls, and in how many seconds they renew.
    pub calls: Option<(u64, u64)>,
    /// Life, in milliseconds.
    pub wall_ms: Option<u64>,
}

/// A secret that the edge puts into requests; no agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name in the daemon's keeping.
    pub name: String,
    /// The only host it goes to.
    pub host: String,
    /// The only port it goes to.
    pub port: u16,
    /// The header that carries it, in lower case.
    pub header: String,
}

/// How questions to people are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposals {
    /// How long one waits, in milliseconds.
    pub ttl_ms: u64,
    /// Most questions of one process, in so many seconds; beyond, a call that would ask is denied.
    pub max_asks: Option<(u64, u64)>,
}

impl Default for Proposals {
    fn default() -> Proposals {
        let ttl_ms = aos_abi::limits::PROPOSAL_TTL_S * 1000;
        Proposals { ttl_ms, max_asks: None }
    }
}

/// What counts as personal data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersonalData {
    /// Built-in detectors.
    pub detect: BTreeSet<String>,
    /// Regular expressions by name. They can only make a verdict stricter.
    pub custom: BTreeMap<String, String>,
}
