//! The servers' side: what they allow, what they said, and whether whoever asks keeps to it.
//!
//! Start at [`Side::asked`]. It is written from `docs/models.md` and `docs/decisions/0013`, and knows of the kernel only the
//! requests that arrive: no queue, no breaker, no account of the kernel's. Where a request may have been decided on some
//! time before it came, it is excused by what was so at any time since.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::model::{ModelSpec, Price};
use aos_abi::{EffectId, Pid, Timestamp, Usd};

use crate::report::{Broken, broken};

const LIMITS: &str = "no request above a limit";
const QUIET: &str = "nobody asks before the time that a server named";
const OPEN: &str = "a server that fails is left alone while another one serves";
const ONE_PROBE: &str = "a server that may answer again is tried by one request";
const ORDER: &str = "who stands in is the next of the chain";
const CHARGED: &str = "whoever served is paid, once";

/// The span of limits per minute.
const MINUTE_MS: u64 = 60_000;
/// Failures in a row after which a server is left alone.
const FAILURES: u32 = 3;
/// For so long at first, in milliseconds, and at most.
const OPEN_MS: u64 = 15_000;
const OPEN_MS_MAX: u64 = 300_000;

/// Who asks: a process, or one request of a program.
pub(super) type Asker = (Pid, Option<u64>);

/// How a request went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The server did not answer.
    Down,
    /// The model cannot be asked so: a bad key.
    Key,
    /// It says when to come again.
    Later(u64),
}

/// What is left alone: a server's address, or a model of it.
#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    opened: u32,
    until: Option<Timestamp>,
    probe: Option<EffectId>,
    /// When it last was left alone or tried.
    last: Option<Timestamp>,
}

impl Breaker {
    fn blocked(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until > now || self.probe.is_some())
    }

    /// Until when something spoke against it.
    fn bad_until(&self, now: Timestamp) -> Option<Timestamp> {
        if self.blocked(now) { Some(now) } else { self.last.max(self.until.filter(|until| *until <= now)) }
    }
}

#[derive(Debug)]
struct Asking {
    asker: Asker,
    model: String,
    probes: Vec<String>,
}

#[derive(Debug, Default)]
struct Account {
    /// Models that failed for it since something answered.
    failed: BTreeSet<String>,
    /// Since when it may have decided.
    since: Timestamp,
    owes: Usd,
}

/// All servers.
#[derive(Debug)]
pub(super) struct Side {
    models: BTreeMap<String, ModelSpec>,
    fallback: Vec<String>,
    /// What each asker named: a model, or something that any may serve.
    named: BTreeMap<Asker, Option<String>>,
    accounts: BTreeMap<Asker, Account>,
    under_way: BTreeMap<EffectId, Asking>,
    minute: BTreeMap<String, VecDeque<(Timestamp, u64)>>,
    quiet: BTreeMap<String, Timestamp>,
    breakers: BTreeMap<String, Breaker>,
    /// Breakers that opened, requests that tried one, that went to one that stands in, and that were held to a limit.
    pub(super) opened: u64,
    pub(super) probes: u64,
    pub(super) stood_in: u64,
    pub(super) full: u64,
}

impl Side {
    pub(super) fn new(models: BTreeMap<String, ModelSpec>, fallback: Vec<String>) -> Side {
        Side {
            models,
            fallback,
            named: BTreeMap::new(),
            accounts: BTreeMap::new(),
            under_way: BTreeMap::new(),
            minute: BTreeMap::new(),
            quiet: BTreeMap::new(),
            breakers: BTreeMap::new(),
            opened: 0,
            probes: 0,
            stood_in: 0,
            full: 0,
        }
    }

    /// Somebody wants to be served by this model, or by any.
    pub(super) fn wants(&mut self, asker: Asker, model: &str, now: Timestamp) {
        self.named.insert(asker, self.models.contains_key(model).then(|| model.to_owned()));
        self.accounts.insert(asker, Account { since: now, ..Account::default() });
    }

    /// Whoever was stopped goes on: what it decided before is long ago.
    pub(super) fn goes_on(&mut self, asker: Asker, now: Timestamp) {
        let account = self.accounts.entry(asker).or_default();
        account.since = now;
        account.failed.clear();
    }

    /// What a model hangs on for everybody: itself, and its server.
    fn keys(&self, model: &str) -> Vec<String> {
        let endpoint = self.models.get(model).and_then(|spec| spec.endpoint.clone());
        std::iter::once(model.to_owned()).chain(endpoint).collect()
    }

    /// What it hangs on for one program alone, by whose own requests it is.
    fn own_key((pid, request): Asker, model: &str) -> Option<String> {
        request.map(|_| format!("{model} of {pid}"))
    }

    /// Whether anything has spoken against a model for this one since then.
    fn was_bad(&self, asker: Asker, model: &str, since: Timestamp, now: Timestamp) -> bool {
        let quiet = self.quiet.get(model).is_some_and(|until| *until >= since);
        let bad = |key: String| self.breakers.get(&key).and_then(|of| of.bad_until(now)).is_some_and(|at| at >= since);
        quiet || self.keys(model).into_iter().chain(Side::own_key(asker, model)).any(bad)
    }

    /// A request arrives.
    pub(super) fn asked(
        &mut self,
        (now, id): (Timestamp, EffectId),
        asker: Asker,
        model: &str,
        tokens: u64,
    ) -> Result<(), Broken> {
        let Some(spec) = self.models.get(model).cloned() else {
            return Err(broken(ORDER, format!("{asker:?} asks {model}, which is not there")));
        };
        let what = format!("{id} of {asker:?} to {model} at {now}");
        let at_once = self.under_way.values().filter(|of| of.model == model).count();
        let recent = self.minute.entry(model.to_owned()).or_default();
        recent.retain(|(at, _)| now.millis_since(*at) < MINUTE_MS);
        let sum: u64 = recent.iter().map(|(_, tokens)| tokens).sum();
        let (rpm, tpm) = (spec.limits.rpm.map_or(usize::MAX, |rpm| rpm as usize), spec.limits.tpm.unwrap_or(u64::MAX));
        if at_once >= spec.limits.concurrency as usize || recent.len() >= rpm || sum >= tpm {
            return Err(broken(LIMITS, format!("{what}: {at_once} under way, {recent:?} of {:?}", spec.limits)));
        }
        recent.push_back((now, tokens));
        self.full += u64::from(recent.len() == rpm || at_once + 1 == spec.limits.concurrency as usize);
        if let Some(until) = self.quiet.get(model).filter(|until| **until > now) {
            return Err(broken(QUIET, format!("{what}: not before {until}")));
        }
        let (since, failed) =
            self.accounts.get(&asker).map_or((now, BTreeSet::new()), |account| (account.since, account.failed.clone()));
        let chain = self.chain(asker);
        let other = chain
            .iter()
            .find(|other| *other != model && !failed.contains(*other) && !self.was_bad(asker, other, since, now));
        if let Some(other) = other.filter(|_| failed.contains(model)) {
            return Err(broken(ORDER, format!("{what} since {since}, where it has just failed, and {other} would do")));
        }
        let mut probes = Vec::new();
        let own = Side::own_key(asker, model);
        for key in self.keys(model).into_iter().chain(own.clone()) {
            let Some(breaker) = self.breakers.get_mut(&key).filter(|breaker| breaker.until.is_some()) else { continue };
            let open = breaker.until.is_some_and(|until| until > now);
            if let Some(other) = other.filter(|_| open || breaker.probe.is_some()) {
                let check = if open { OPEN } else { ONE_PROBE };
                return Err(broken(check, format!("{what} since {since}, and {other} would do: {key} {breaker:?}")));
            }
            // A program tries nothing for others: it could hold the trial for as long as it likes.
            let tries = own.is_none() || own.as_ref() == Some(&key);
            if tries && !open && breaker.probe.is_none() {
                breaker.probe = Some(id);
                self.probes += 1;
                probes.push(key);
            }
        }
        if let Some(Some(named)) = self.named.get(&asker) {
            let before = chain.iter().take_while(|other| *other != model);
            let mut passed = before.filter(|other| !failed.contains(*other) && !self.was_bad(asker, other, since, now));
            if let Some(passed) = passed.next() {
                return Err(broken(ORDER, format!("{what} since {since}, and {passed} comes before it")));
            }
            self.stood_in += u64::from(named != model);
        }
        self.under_way.insert(id, Asking { asker, model: model.to_owned(), probes });
        Ok(())
    }

    /// The models that may serve somebody, in the order of the chain where there is one.
    fn chain(&self, asker: Asker) -> Vec<String> {
        match self.named.get(&asker) {
            Some(Some(named)) => {
                let others = self.fallback.iter().filter(|other| *other != named);
                std::iter::once(named.clone()).chain(others.cloned()).collect()
            }
            _ => self.models.keys().cloned().collect(),
        }
    }

    /// It answers, and wants this.
    pub(super) fn answers(&mut self, id: EffectId, now: Timestamp, cost: Usd) {
        let Some(asking) = self.under_way.remove(&id) else { return };
        for key in self.keys(&asking.model).into_iter().chain(Side::own_key(asking.asker, &asking.model)) {
            if let Some(breaker) = self.breakers.get_mut(&key) {
                let last = if breaker.until.is_some() { Some(now) } else { breaker.last };
                *breaker = Breaker { last, ..Breaker::default() };
            }
        }
        let account = self.accounts.entry(asking.asker).or_default();
        account.owes = Usd(account.owes.0 + cost.0);
        (account.since, account.failed) = (now, BTreeSet::new());
    }

    /// It may have answered, and wants this.
    pub(super) fn bills(&mut self, asker: Asker, cost: Usd) {
        let account = self.accounts.entry(asker).or_default();
        account.owes = Usd(account.owes.0 + cost.0);
    }

    /// It does not answer.
    pub(super) fn fails(&mut self, id: EffectId, now: Timestamp, wrong: Wrong) {
        let Some(asking) = self.under_way.remove(&id) else { return };
        let keys = self.keys(&asking.model);
        // What fails a program may be its request's own doing.
        let own = Side::own_key(asking.asker, &asking.model);
        self.lets_go(&asking, now);
        let of = match wrong {
            Wrong::Later(wait) => {
                let quiet = self.quiet.entry(asking.model.clone()).or_default();
                *quiet = (*quiet).max(now.plus_millis(wait));
                None
            }
            Wrong::Key => own.as_ref().or(keys.first()),
            Wrong::Down => own.as_ref().or(keys.last()),
        };
        if let Some(key) = of {
            let tried = asking.probes.contains(key);
            let breaker = self.breakers.entry(key.clone()).or_default();
            breaker.failures += 1;
            // Those that were under way when it opened say nothing new.
            if tried || breaker.until.is_none() && breaker.failures >= FAILURES {
                let open_ms = (OPEN_MS << breaker.opened.min(16)).min(OPEN_MS_MAX);
                breaker.opened += 1;
                breaker.until = Some(now.plus_millis(open_ms));
                self.opened += 1;
            }
        }
        let account = self.accounts.entry(asking.asker).or_default();
        account.failed.insert(asking.model.clone());
        account.since = now;
        // What has failed is asked again once everything has.
        let chain = self.chain(asking.asker);
        let account = self.accounts.entry(asking.asker).or_default();
        if chain.iter().all(|model| account.failed.contains(model)) {
            account.failed.clear();
        }
    }

    /// Whoever asked has hung up: it says nothing of the server.
    pub(super) fn forgets(&mut self, id: EffectId, now: Timestamp) {
        let Some(asking) = self.under_way.remove(&id) else { return };
        self.lets_go(&asking, now);
    }

    fn lets_go(&mut self, asking: &Asking, now: Timestamp) {
        for key in &asking.probes {
            if let Some(breaker) = self.breakers.get_mut(key) {
                (breaker.probe, breaker.last) = (None, Some(now));
            }
        }
    }

    pub(super) fn is_under_way(&self, id: EffectId) -> bool {
        self.under_way.contains_key(&id)
    }

    pub(super) fn price(&self, model: &str) -> Price {
        self.models.get(model).and_then(|spec| spec.price).unwrap_or_default()
    }

    /// What each process owes by its answers is what it was charged.
    pub(super) fn paid(&self, pid: Pid, spent: u64) -> Result<(), Broken> {
        let owes: u64 = self.accounts.iter().filter(|((of, _), _)| *of == pid).map(|(_, of)| of.owes.0).sum();
        if owes == spent {
            return Ok(());
        }
        Err(broken(
            CHARGED,
            format!("{pid} owes {} by what it was answered, and was charged {}", Usd(owes), Usd(spent)),
        ))
    }
}
