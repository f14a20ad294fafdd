//! Rates: how often a process may make the calls of a rule, and how often it may ask people.
//!
//! Counts begin with the first that is counted and begin anew when their time is over, so a rule `60/min` lets at most 60
//! through in the minute that the first of them begins. Questions are counted where a person started the tree, so that
//! nobody asks more by having children. What is refused is not counted.

use aos_abi::entry::Verdict;
use aos_abi::{CallError, Code, Name, Pid, Timestamp};
use aos_policy::{Obligations, Rate};

use crate::Kernel;
use crate::budget::Count;
use crate::table::PageStore;

/// A count that is full.
#[derive(Debug)]
pub(crate) struct Over {
    /// Which, as the policy names it.
    pub(crate) rule: String,
    /// The way out.
    pub(crate) hint: String,
    retry_after_ms: u64,
}

impl Over {
    fn new(rule: String, until: Timestamp, now: Timestamp) -> Over {
        Over { rule, hint: format!("it begins anew at {until}"), retry_after_ms: until.millis_since(now) }
    }

    /// As the result of the call that was one too many.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> CallError {
        let mut error = CallError::new(Code::Again, format!("the policy lets {what} no oftener: {}", self.rule));
        error.hint = Some(self.hint.clone());
        error.retry_after_ms = Some(self.retry_after_ms);
        error
    }
}

/// As people write a rate.
fn per(count: u64, per_s: u64) -> String {
    match per_s {
        1 => format!("{count}/s"),
        60 => format!("{count}/min"),
        3600 => format!("{count}/h"),
        86_400 => format!("{count}/day"),
        _ => format!("{count} in {per_s} s"),
    }
}

impl<P: PageStore> Kernel<P> {
    /// The first bound that a call would exceed to which this was said: a rate of its rules, or how often people may be
    /// asked, by a proposal or by `ASK_USER`.
    pub(crate) fn over(&mut self, pid: Pid, call: Name, said: Verdict, obligations: &Obligations) -> Option<Over> {
        if said == Verdict::Deny {
            return None;
        }
        let asks = said == Verdict::Ask || call == Name::AskUser;
        self.over_rate(pid, obligations).or_else(|| if asks { self.over_asks(pid) } else { None })
    }

    /// The first rate that one more call under these obligations would exceed.
    fn over_rate(&mut self, pid: Pid, obligations: &Obligations) -> Option<Over> {
        let now = self.globals.at;
        let process = self.table.get(pid)?;
        obligations.rates.iter().find_map(|Rate { rule, count, per_s }| {
            let window = process.rates.get(&**rule).copied().unwrap_or_default();
            let full = window.used_at(now) >= *count;
            let until = if now < window.until { window.until } else { now.plus_millis(per_s * 1000) };
            full.then(|| Over::new(format!("{rule}, rate {}", per(*count, *per_s)), until, now))
        })
    }

    /// Counts a call under these obligations.
    pub(crate) fn count_rates(&mut self, pid: Pid, obligations: &Obligations) {
        if obligations.rates.is_empty() {
            return;
        }
        let now = self.globals.at;
        self.with(pid, |process| {
            process.rates.retain(|_, window| now < window.until);
            for Rate { rule, per_s, .. } in &obligations.rates {
                process.rates.entry(rule.to_string()).or_default().add(now, *per_s, 1);
            }
        });
    }

    /// Whether the tree of this process has asked people as often as it may.
    pub(crate) fn over_asks(&mut self, pid: Pid) -> Option<Over> {
        let (count, per_s) = self.policy.proposals().max_asks?;
        let now = self.globals.at;
        let window: Count = self.lineage(pid).last().and_then(|root| self.table.get(*root))?.asked;
        let until = if now < window.until { window.until } else { now.plus_millis(per_s * 1000) };
        let full = window.used_at(now) >= count;
        full.then(|| Over::new(format!("proposals.max_asks {}", per(count, per_s)), until, now))
    }

    /// Counts a question.
    pub(crate) fn count_ask(&mut self, pid: Pid) {
        let Some((_, per_s)) = self.policy.proposals().max_asks else { return };
        let now = self.globals.at;
        if let Some(root) = self.lineage(pid).last().copied() {
            self.with(root, |process| process.asked.add(now, per_s, 1));
        }
    }
}
