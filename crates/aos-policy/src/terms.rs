//! Terms: a verdict with the obligations under which it holds, and how the terms of several rules combine.
//!
//! Start at [`Terms::least`]. It is commutative, associative and idempotent, so the order of rules never matters.

use std::collections::BTreeSet;
use std::sync::Arc;

use aos_abi::entry::Verdict;

use crate::label::Labels;

/// The longest window of `hold` that no rule names, in milliseconds: 15 minutes (policy.md).
pub const HOLD_MS: u64 = 15 * 60 * 1000;

/// What must happen with a call that is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// A snapshot is taken first, and it can be undone for this many milliseconds. The longest of several holds.
    pub undo_ms: Option<u64>,
    /// A held call waits this many milliseconds for a veto. The longest of several holds; [`HOLD_MS`] where none is named.
    pub hold_ms: Option<u64>,
    /// Personal data is replaced by tokens before it leaves.
    pub redact: bool,
    /// Only models on this machine may see it.
    pub local_only: bool,
    /// How often it may happen. All of them hold.
    pub rates: BTreeSet<Rate>,
    /// What its result carries.
    pub labels: Labels,
}

/// How often something may happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// The rule that says so; calls are counted per process and rule.
    pub rule: Arc<str>,
    /// So many times
    pub count: u64,
    /// in this many seconds.
    pub per_s: u64,
}

impl Obligations {
    /// Adds what another rule asks.
    pub fn join(&mut self, other: &Obligations) {
        self.undo_ms = self.undo_ms.max(other.undo_ms);
        self.hold_ms = self.hold_ms.max(other.hold_ms);
        self.redact |= other.redact;
        self.local_only |= other.local_only;
        if !other.rates.is_empty() {
            self.rates.extend(other.rates.iter().cloned());
        }
        self.labels = self.labels.and(other.labels);
    }
}

/// A verdict and its obligations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Terms {
    /// What is said.
    pub verdict: Verdict,
    /// Under which conditions.
    pub obligations: Obligations,
}

impl Terms {
    /// What does not change what it is combined with.
    pub fn unbounded() -> Terms {
        Terms { verdict: Verdict::Allow, obligations: Obligations::default() }
    }

    /// The terms of two rules together: the least verdict and the union of the obligations.
    pub fn least(mut self, other: &Terms) -> Terms {
        self.verdict = self.verdict.min(other.verdict);
        self.obligations.join(&other.obligations);
        self
    }
}
