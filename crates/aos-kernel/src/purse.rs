//! Purses: money and tokens set aside ahead of a program's requests, so that none of them waits for the disk.
//!
//! Start at [`Kernel::cover`]; the reasons are in docs/decisions/0017. A request that is paid from a purse may go out as
//! soon as the entry that filled the purse is durable; its own entries follow. What always holds: what has gone out and is
//! not yet on disk never costs more than what durable purses hold, since whatever a request leaves over goes back into the
//! purse; after a crash all that a purse held counts as spent; a purse is filled only where the budgets would bear it many
//! times, and is called in when anybody lacks what it holds. Deliberately absent: agents, whose turns wait for the disk.

use std::collections::BTreeSet;

use aos_abi::{Body, Lsn, Pid, Timestamp, Usd};
use serde::{Deserialize, Serialize};

use crate::Kernel;
use crate::budget::{Dimension, Need};
use crate::money::Outlook;
use crate::table::PageStore;

/// Requests that a purse is filled for at first, and at most. Half of the most is what goes out while the disk writes the
/// next filling.
const FIRST: u64 = 4;
const MOST: u64 = 512;
/// A filling is for twice as many requests where the one before was used up within this, so that a crash costs about what
/// is asked in that time.
const LASTS_MS: u64 = 1000;
/// A filling is at most this part of what every budget has left.
const SHARE: u64 = 8;
/// Why what a purse held is charged.
const LOST: &str =
    "the daemon stopped: what was set aside ahead may have gone out with requests of which nothing is left";

/// What is set aside ahead for one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Purse {
    /// The entry that says so.
    pub since: Lsn,
    /// What is left in it.
    pub left: Need,
    /// The next filling, which may be on its way to the disk, and its entry.
    pub next: Option<(Lsn, Need)>,
    /// How many requests the last filling was for.
    pub requests: u64,
    /// When that was.
    pub filled_at: Timestamp,
    /// The model that was last paid from it.
    pub model: String,
}

impl Purse {
    /// All that is in it.
    #[must_use]
    pub fn total(&self) -> Need {
        self.next.map_or(self.left, |(_, next)| self.left.plus(next))
    }

    /// Takes so much out; the entry that must be durable before it may be spent.
    fn take(&mut self, need: Need) -> Option<Lsn> {
        if !self.left.covers(need) {
            let (since, next) = self.next.filter(|(_, next)| self.left.plus(*next).covers(need))?;
            (self.since, self.left, self.next) = (since, self.left.plus(next), None);
        }
        self.left = self.left.less(need);
        Some(self.since)
    }
}

impl<P: PageStore> Kernel<P> {
    /// Takes the worst that a request may cost out of its program's purse, which is filled first where it holds too little.
    /// The entry that must be durable before the request goes out; `None`: the budgets bear no purse.
    pub(crate) fn cover(&mut self, pid: Pid, model: &str, need: Need) -> Option<Lsn> {
        let purse = self.table.get(pid)?.purse.as_ref();
        let pace = purse.map(|purse| (purse.requests, purse.filled_at));
        let since = match self.take(pid, model, need) {
            Some(since) => since,
            None => {
                self.put_back(pid);
                self.fill(pid, need, pace);
                self.take(pid, model, need)?
            }
        };
        let low = self
            .table
            .get(pid)
            .and_then(|process| process.purse.as_ref())
            .filter(|purse| purse.next.is_none() && !purse.left.covers(need.times(purse.requests / 2)));
        let pace = low.map(|purse| (purse.requests, purse.filled_at));
        if pace.is_some() {
            self.fill(pid, need, pace);
        }
        Some(since)
    }

    fn take(&mut self, pid: Pid, model: &str, need: Need) -> Option<Lsn> {
        let purse = self.table.get_mut(pid)?.purse.as_mut()?;
        let since = purse.take(need)?;
        if purse.model != model {
            model.clone_into(&mut purse.model);
        }
        Some(since)
    }

    /// Sets aside for so many requests like this one as the last filling and the budgets say.
    fn fill(&mut self, pid: Pid, need: Need, pace: Option<(u64, Timestamp)>) {
        let now = self.globals.at;
        let mut requests = match pace {
            Some((requests, at)) if now.millis_since(at) < LASTS_MS => (requests * 2).min(MOST),
            Some(_) | None => FIRST,
        };
        while requests > 1 && !matches!(self.outlook_as_it_is(pid, need.times(requests * SHARE)), Outlook::Now) {
            requests /= 2;
        }
        if requests < 2 {
            return;
        }
        let amount = need.times(requests);
        self.set_aside(pid, amount);
        let since = self.fact(pid, Body::Ahead { usd: Usd(amount.usd), tokens: amount.tokens });
        self.globals.purses.insert(pid);
        let Some(process) = self.table.get_mut(pid) else { return };
        match &mut process.purse {
            Some(purse) => {
                (purse.next, purse.requests, purse.filled_at) = (Some((since, amount)), requests, now);
            }
            None => {
                let model = String::new();
                let purse = Purse { since, left: amount, next: None, requests, filled_at: now, model };
                process.purse = Some(Box::new(purse));
            }
        }
    }

    /// What a request has left over stays in its program's purse, where it has one; what of `reserved` is to be settled.
    pub(crate) fn keep(&mut self, pid: Pid, reserved: Need, used: Need) -> Need {
        let Some(purse) = self.table.get_mut(pid).and_then(|process| process.purse.as_mut()) else { return reserved };
        purse.left = purse.left.plus(reserved.less(used));
        used
    }

    /// Takes a purse away.
    fn take_purse(&mut self, pid: Pid) -> Option<Box<Purse>> {
        self.globals.purses.remove(&pid);
        self.table.get_mut(pid)?.purse.take()
    }

    /// Gives back what is in a purse.
    pub(crate) fn put_back(&mut self, pid: Pid) {
        if self.globals.purses.contains(&pid)
            && let Some(purse) = self.take_purse(pid)
        {
            self.unreserve(pid, purse.total());
        }
    }

    /// Gives back what is in every purse; whether there was any.
    pub(crate) fn put_back_all(&mut self) -> bool {
        let held = self.globals.purses.clone();
        for pid in &held {
            self.works_on(*pid);
            self.put_back(*pid);
        }
        !held.is_empty()
    }

    /// Whether anything is set aside ahead.
    #[must_use]
    pub fn holds_purses(&self) -> bool {
        !self.globals.purses.is_empty()
    }

    /// After a crash: what was in a purse may have gone out with requests of which nothing is left, so that all of it is
    /// spent.
    pub(crate) fn lose_purses(&mut self, bare: &BTreeSet<Pid>) {
        for pid in self.globals.purses.clone() {
            self.works_on(pid);
            let Some(purse) = self.take_purse(pid) else { continue };
            if bare.contains(&pid) {
                self.globals.let_go.purses.insert(pid, *purse);
            } else {
                self.lose(pid, &purse);
            }
        }
    }

    /// What a purse held counts as spent.
    pub(crate) fn lose(&mut self, pid: Pid, purse: &Purse) {
        let lost = purse.total();
        let priced = lost.usd > 0 || self.model(&purse.model).is_some_and(|spec| spec.price.is_some());
        self.charge_all(pid, &purse.model, priced, (lost, 0), LOST);
    }

    /// What is set aside ahead for a process in one dimension.
    pub(crate) fn ahead(&mut self, pid: Pid, dimension: Dimension) -> u64 {
        let purse = self.table.get(pid).and_then(|process| process.purse.as_ref());
        let total = purse.map_or(Need { usd: 0, tokens: 0 }, |purse| purse.total());
        match dimension {
            Dimension::Usd => total.usd,
            Dimension::Tokens => total.tokens,
            Dimension::Calls => 0,
        }
    }
}
