//! What a run came to.

use std::fmt;

/// A run in which every checker was content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// By which it is reproduced.
    pub seed: u64,
    /// Entries in the journal at its end.
    pub entries: u64,
    /// Hash over all of them, in order: the journal's own chain.
    pub hash: String,
    /// Crashes it lived through.
    pub crashes: u32,
    /// Inferences that were started.
    pub inferences: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Processes there have been.
    pub processes: u64,
    /// Boundaries at which the machine may stop: after each decision, write, sync and effect.
    pub boundaries: u64,
    /// Writes and syncs of the journal that failed.
    pub faults: u64,
    /// Inputs over which the kernel failed.
    pub failures: u64,
    /// What was refused because a queue was full.
    pub full: u64,
    /// Inputs after which somebody waited for a limit of a model beside a free slot.
    pub limited: u64,
    /// Starts by age, past somebody more urgent.
    pub aged: u64,
    /// Second models that were asked beside a silent one.
    pub hedged: u64,
    /// Requests of programs that went out before their own entries were durable.
    pub early: u64,
    /// Requests of programs that a crash cut off.
    pub cut_off: u64,
    /// Inferences of agents that a crash cut off.
    pub unheard: u64,
    /// Words of people that were taken.
    pub words: u64,
    /// Words of people that came too late, twice, or to nothing, and were not taken.
    pub refused: u64,
    /// Calls that were made under a word or a window that had ended.
    pub made: u64,
    /// Calls that were not made since a file had changed after it was shown.
    pub drifted: u64,
    /// Calls that had been denied, and were made after somebody had lifted that for once.
    pub lifted: u64,
    /// Commands that ran once more with what had been denied to them.
    pub again: u64,
    /// Changes of files that were taken back, or made again.
    pub undone: u64,
}

/// Something that must always hold, and did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The checker.
    pub check: &'static str,
    /// What it saw.
    pub message: String,
}

/// Why a run does not go straight on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A checker objects: the run is over.
    Broken(Broken),
    /// The machine stops here, and starts again.
    Crash,
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Halt {
        Halt::Broken(broken)
    }
}

/// A run that a checker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// By which it is reproduced.
    pub seed: u64,
    /// The step of the run.
    pub step: u64,
    /// What did not hold.
    pub broken: Broken,
    /// The last entries, newest last.
    pub last: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.last {
            writeln!(f, "  {line}")?;
        }
        let Failure { seed, step, broken, .. } = self;
        write!(f, "seed {seed}, step {step}: {} does not hold: {}", broken.check, broken.message)
    }
}

/// Says that something does not hold.
pub(crate) fn broken(check: &'static str, message: impl Into<String>) -> Broken {
    Broken { check, message: message.into() }
}
