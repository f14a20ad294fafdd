//! Circuit breakers: what is known of servers that fail, so that others serve meanwhile.
//!
//! Start at [`Circuits::down`]. A breaker is kept for each server's address, since its models fail together, and for
//! each model, for what is wrong with it alone (a bad key, a name the server does not know). What programs ask is written
//! by others and may well be what a server fails over, so their failures have breakers of their own, but for those of a server
//! that nobody can reach. What always holds: all of
//! it follows from inferences that are in the journal, so a replay stands where the live system stood; a server that
//! may answer again is tried with one inference at a time. Deliberately absent: keeping anybody from the only model
//! there is, which is asked again as it always was, with growing pauses.

use std::collections::BTreeMap;

use aos_abi::{EffectId, Pid, Timestamp};
use serde::{Deserialize, Serialize};

/// Failures in a row that open a circuit.
pub const FAILURES: u32 = 3;
/// How long it stays open, in milliseconds; twice as long each time it opens again.
pub const OPEN_MS: u64 = 15_000;
/// The longest it stays open, in milliseconds.
pub const OPEN_MS_MAX: u64 = 300_000;

/// The breaker of a model for one program.
#[must_use]
pub fn of_program(model: &str, pid: Pid) -> String {
    format!("{model}{}", suffix(pid))
}

fn suffix(pid: Pid) -> String {
    format!(" for program {pid}")
}

/// The breakers that are not in their first state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Circuits {
    of: BTreeMap<String, Circuit>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Circuit {
    /// Failures in a row.
    failures: u32,
    /// How often it opened without closing.
    opened: u32,
    /// Nothing is sent until then; `None`: it is closed.
    until: Option<Timestamp>,
    /// The inference that tries it.
    probe: Option<EffectId>,
}

impl Circuit {
    /// Nothing is sent from now on; until when.
    fn open(&mut self, now: Timestamp) -> Timestamp {
        let open_ms = OPEN_MS.saturating_mul(1 << self.opened.min(16)).min(OPEN_MS_MAX);
        self.opened += 1;
        let until = now.plus_millis(open_ms);
        self.until = Some(until);
        until
    }
}

impl Circuits {
    /// Whether none has anything to say.
    #[must_use]
    pub fn quiet(&self) -> bool {
        self.of.is_empty()
    }

    /// Until when this one is not to be asked; while another inference tries it, the time of that one's start.
    #[must_use]
    pub fn down(&self, of: &str, now: Timestamp) -> Option<Timestamp> {
        let circuit = self.of.get(of)?;
        circuit.until.filter(|until| *until > now || circuit.probe.is_some())
    }

    /// An inference is sent there; `true` where it is the one that tries an open circuit.
    pub fn started(&mut self, of: &str, effect: EffectId, now: Timestamp) -> bool {
        let Some(circuit) = self.of.get_mut(of) else { return false };
        let tries = circuit.until.is_some_and(|until| until <= now) && circuit.probe.is_none();
        if tries {
            circuit.probe = Some(effect);
        }
        tries
    }

    /// It answered; `true` where that closes an open circuit.
    pub fn answered(&mut self, of: &str) -> bool {
        self.of.remove(of).is_some_and(|circuit| circuit.until.is_some())
    }

    /// It failed; when it opens, or opens again, until when.
    pub fn failed(&mut self, of: &str, effect: EffectId, now: Timestamp) -> Option<Timestamp> {
        let circuit = self.of.entry(of.to_owned()).or_default();
        circuit.failures += 1;
        let tried = circuit.probe == Some(effect);
        if tried {
            circuit.probe = None;
        }
        // Those that were under way when it opened say nothing new.
        if !(tried || circuit.until.is_none() && circuit.failures >= FAILURES) {
            return None;
        }
        Some(circuit.open(now))
    }

    /// Nobody could be reached there; when it opens, or opens again, until when. Whoever asked, that is no request's doing, so
    /// that it counts for all and needs no inference that tries.
    pub fn unreachable(&mut self, of: &str, now: Timestamp) -> Option<Timestamp> {
        let circuit = self.of.entry(of.to_owned()).or_default();
        circuit.failures += 1;
        let again = circuit.until.is_some_and(|until| until <= now) && circuit.probe.is_none();
        let first = circuit.until.is_none() && circuit.failures >= FAILURES;
        (again || first).then(|| circuit.open(now))
    }

    /// A program asks nothing more.
    pub fn forget(&mut self, pid: Pid) {
        let suffix = suffix(pid);
        self.of.retain(|of, _| !of.ends_with(&suffix));
    }

    /// An inference ended without saying anything of its server.
    pub fn dropped(&mut self, of: &str, effect: EffectId) {
        if let Some(circuit) = self.of.get_mut(of).filter(|circuit| circuit.probe == Some(effect)) {
            circuit.probe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::Lsn;

    use super::*;

    const HOST: &str = "https://models.example";

    fn effect(nth: u64) -> EffectId {
        EffectId { cause: Lsn(nth), nth: 0 }
    }

    #[test]
    fn three_failures_open_it_one_inference_tries_it_and_an_answer_closes_it() {
        let mut circuits = Circuits::default();
        assert_eq!(circuits.failed(HOST, effect(1), Timestamp(0)), None);
        assert_eq!(circuits.failed(HOST, effect(2), Timestamp(0)), None);
        assert_eq!(circuits.down(HOST, Timestamp(0)), None);
        assert_eq!(circuits.failed(HOST, effect(3), Timestamp(0)), Some(Timestamp(15_000)));
        assert_eq!(circuits.failed(HOST, effect(4), Timestamp(1)), None, "it was under way");
        assert_eq!(circuits.down(HOST, Timestamp(14_999)), Some(Timestamp(15_000)));
        assert!(!circuits.started(HOST, effect(5), Timestamp(14_999)));
        assert_eq!(circuits.down(HOST, Timestamp(15_000)), None);
        assert!(circuits.started(HOST, effect(6), Timestamp(15_000)));
        assert!(circuits.down(HOST, Timestamp(15_001)).is_some(), "one at a time");
        assert!(!circuits.started(HOST, effect(7), Timestamp(15_001)));
        assert_eq!(circuits.failed(HOST, effect(6), Timestamp(16_000)), Some(Timestamp(46_000)), "twice as long");
        assert!(circuits.started(HOST, effect(8), Timestamp(46_000)));
        circuits.dropped(HOST, effect(8));
        assert!(circuits.started(HOST, effect(9), Timestamp(46_001)));
        assert!(circuits.answered(HOST));
        assert!(circuits.quiet());
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_learned_together_and_again_without_a_try() {
        let mut circuits = Circuits::default();
        assert_eq!(circuits.unreachable(HOST, Timestamp(0)), None);
        assert_eq!(circuits.failed(HOST, effect(1), Timestamp(0)), None);
        assert_eq!(circuits.unreachable(HOST, Timestamp(0)), Some(Timestamp(15_000)));
        assert_eq!(circuits.unreachable(HOST, Timestamp(1)), None, "it was under way");
        assert_eq!(circuits.down(HOST, Timestamp(15_000)), None);
        assert_eq!(circuits.unreachable(HOST, Timestamp(15_000)), Some(Timestamp(45_000)), "twice as long");
        assert!(circuits.started(HOST, effect(2), Timestamp(45_000)));
        assert_eq!(circuits.unreachable(HOST, Timestamp(45_001)), None, "the one that tries will tell");
        assert!(circuits.answered(HOST) && circuits.quiet());
    }

    #[test]
    fn an_answer_between_failures_keeps_it_closed() {
        let mut circuits = Circuits::default();
        for nth in 0..20 {
            assert_eq!(circuits.failed(HOST, effect(nth), Timestamp(0)), None);
            assert!(!circuits.answered(HOST));
        }
    }

    #[test]
    fn it_never_stays_open_for_longer_than_five_minutes() {
        let mut circuits = Circuits::default();
        let mut now = Timestamp(0);
        for nth in 0..60 {
            circuits.started(HOST, effect(nth), now);
            if let Some(until) = circuits.failed(HOST, effect(nth), now) {
                assert!(until.millis_since(now) <= OPEN_MS_MAX);
                now = until;
            }
        }
        assert!(now > Timestamp(OPEN_MS_MAX as i64 * 40));
    }
}
