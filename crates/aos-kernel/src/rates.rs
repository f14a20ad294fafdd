//! Rates: how often a process may make the calls of a rule, and how often it may ask people.
//!
//! Counts begin with the first that is counted and begin anew when their time is over, so a rule `60/min` lets at most 60
//! through in the minute that the first of them begins. Questions are counted where a person started the tree, so that
//! nobody asks more by having children; so is what drivers and webhooks bring, which fills the journal. What is refused is
//! not counted.

use aos_abi::entry::Verdict;
use aos_abi::syscall::Handler;
use aos_abi::{CallError, Code, Name, Pid, Timestamp, limits};
use aos_policy::{Obligations, Rate};
use serde::Serialize;

use crate::Kernel;
use crate::budget::Count;
use crate::table::PageStore;

const HOUR_S: u64 = 3600;

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
        let over = self.over_rate(pid, obligations).or_else(|| if asks { self.over_asks(pid) } else { None });
        over.or_else(|| {
            if call.spec().handler == Handler::Kernel {
                None
            } else {
                self.over_brought(pid, limits::BROUGHT_BYTES_PER_HOUR)
            }
        })
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

    /// Whether so much was brought to the tree of this process that no more is.
    fn over_brought(&mut self, pid: Pid, most: u64) -> Option<Over> {
        let now = self.globals.at;
        let window: Count = self.lineage(pid).last().and_then(|root| self.table.get(*root))?.brought;
        let full = window.used_at(now) >= most;
        full.then(|| Over::new(format!("what calls bring, {} MiB/h", most >> 20), window.until, now))
    }

    /// Whether a webhook's request may be brought to this process.
    ///
    /// # Errors
    /// `EAGAIN` where so much was brought to its tree that webhooks bring no more.
    pub(crate) fn check_brought(&mut self, pid: Pid) -> Result<(), CallError> {
        let most = limits::WEBHOOK_BYTES_PER_HOUR;
        let Some(Over { hint, retry_after_ms, .. }) = self.over_brought(pid, most) else { return Ok(()) };
        let full = format!("{} MiB were brought to process {pid} in this hour, and no webhook brings more", most >> 20);
        Err(CallError { retry_after_ms: Some(retry_after_ms), ..CallError::new(Code::Again, full).hint(hint) })
    }

    /// Counts what a driver or a webhook has brought.
    pub(crate) fn count_brought(&mut self, pid: Pid, brought: &impl Serialize) {
        let (now, bytes) = (self.globals.at, aos_context::json_bytes(brought) as u64);
        if let Some(root) = self.lineage(pid).last().copied() {
            self.with(root, |process| process.brought.add(now, HOUR_S, bytes));
        }
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

#[cfg(test)]
mod tests {
    use aos_abi::Body;
    use aos_abi::entry::{Outcome, WebhookRequest};
    use aos_abi::process::SpawnSpec;

    use super::*;
    use crate::table::NoPages;

    fn spawned(pid: Pid, parent: Pid) -> Body {
        Body::Spawned(Box::new(SpawnSpec { parent, ..SpawnSpec::resident(pid, "role", "m") }))
    }

    /// Sixty-four reads of one large file in every reply filled the disk with results, at no cost.
    #[test]
    fn what_drivers_bring_is_limited_for_a_tree() {
        let mut kernel = Kernel::new(NoPages);
        for (pid, parent) in [(2, 1), (3, 2), (4, 1)] {
            let applied = kernel.apply(Timestamp(0), Pid(pid), spawned(Pid(pid), Pid(parent)));
            assert_eq!(applied.entries.len(), 1);
        }
        let outcome = Outcome::Success { result: "x".repeat(1 << 20).into() };
        let before = limits::BROUGHT_BYTES_PER_HOUR - (2 << 20);
        kernel.with(Pid(2), |process| process.brought.add(Timestamp(0), HOUR_S, before));
        kernel.count_brought(Pid(2), &outcome);
        assert!(kernel.over_brought(Pid(2), limits::BROUGHT_BYTES_PER_HOUR).is_none());
        kernel.count_brought(Pid(3), &outcome);
        let mut over = |pid: u64, call: Name| {
            kernel.over(Pid(pid), call, Verdict::Allow, &Obligations::default()).map(|over| over.rule)
        };
        let full = Some("what calls bring, 512 MiB/h".to_owned());
        assert_eq!([over(2, Name::FsRead), over(3, Name::ExecCmd)], [full.clone(), full], "of both together");
        assert_eq!([over(3, Name::SendMsg), over(3, Name::SysExit), over(4, Name::FsRead)], [None, None, None]);
        kernel.globals.at = Timestamp(0).plus_millis(HOUR_S * 1000);
        assert!(kernel.over(Pid(2), Name::FsRead, Verdict::Allow, &Obligations::default()).is_none(), "and anew");
    }

    /// Whoever reached an unsigned webhook filled the disk with bodies, as fast as the agent read them.
    #[test]
    fn what_webhooks_bring_is_limited_for_a_tree_and_leaves_room_for_its_calls() {
        let mut kernel = Kernel::new(NoPages);
        for (pid, parent) in [(2, 1), (3, 2)] {
            let _ = kernel.apply(Timestamp(0), Pid(pid), spawned(Pid(pid), Pid(parent)));
        }
        // Each byte of it is six in the journal.
        let request = WebhookRequest {
            id: "r1".into(),
            method: "POST".into(),
            path: "orders".into(),
            headers: [].into(),
            body: "\0".repeat(1 << 20),
            encoding: None,
            reply_by: None,
        };
        let body = Body::Webhook(request);
        let before = limits::WEBHOOK_BYTES_PER_HOUR - (9 << 20);
        kernel.with(Pid(2), |process| process.brought.add(Timestamp(0), HOUR_S, before));
        for at in 0..2 {
            assert!(kernel.check_at(Timestamp(at), Pid(3), &body).is_ok());
            let _ = kernel.apply(Timestamp(at), Pid(3), body.clone());
        }
        let refused = kernel.check_at(Timestamp(43), Pid(3), &body).unwrap_err();
        assert!(refused.code == Code::Again && refused.retry_after_ms == Some(HOUR_S * 1000 - 43), "{refused:?}");
        assert!(refused.message.contains("256 MiB were brought"), "{refused:?}");
        assert!(kernel.check_at(Timestamp(50), Pid(2), &body).is_err(), "of the whole tree");
        assert!(kernel.over(Pid(3), Name::FsRead, Verdict::Allow, &Obligations::default()).is_none());
        // Nothing is journaled meanwhile, so only the clock knows.
        assert!(kernel.check_at(Timestamp(0).plus_millis(HOUR_S * 1000), Pid(3), &body).is_ok(), "and anew");
    }
}
