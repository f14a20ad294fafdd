//! Money: what was charged, by process and by day, against what the accounts say.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::{BudgetOf, NearlySpent};
use aos_abi::{Body, Entry, Pid};
use aos_kernel::Kernel;
use aos_kernel::budget::{Budget, Dimension, Need};
use aos_kernel::table::PageStore;

use crate::report::{Broken, broken};

const DAY_MS: i64 = 86_400_000;

/// The larger of two limits; `None` is none.
fn most(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.max(other?))
}

/// What was spent.
#[derive(Debug, Default)]
pub(crate) struct Money {
    /// By each process itself: nano-dollars and tokens.
    own: BTreeMap<Pid, [u64; 2]>,
    /// Accounts of processes that were taken out.
    pub(crate) gone: BTreeMap<Pid, Budget>,
    day: i64,
    spent_today: u64,
    /// The most that this day may come to; `None`: what is charged today may have been set aside without a limit.
    granted_today: Option<u64>,
    /// The most that anybody has granted since midnight; `None`: there was a time without a limit.
    since_midnight: Option<u64>,
    limit: Option<u64>,
    /// Budgets that were told of as nearly spent, each with its limit and when it renews, since somebody last changed one.
    told: BTreeSet<String>,
}

impl Money {
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        let day = entry.at.0.div_euclid(DAY_MS);
        if day != self.day {
            // What is under way at midnight was reserved under the old day's limit and is charged to the new one.
            (self.day, self.spent_today) = (day, 0);
            self.granted_today = most(self.limit, self.since_midnight);
            self.since_midnight = self.limit;
        }
        if let Some(config) = entry.body.configured() {
            self.limit = config.usd_per_day.map(|usd| usd.0);
            self.granted_today = most(self.limit, self.granted_today);
            self.since_midnight = most(self.limit, self.since_midnight);
            if entry.lsn.0 <= 2 {
                (self.granted_today, self.since_midnight) = (self.limit, self.limit);
            }
        }
        if entry.body.configured().is_some() || matches!(entry.body, Body::Budgeted { .. }) {
            // A limit may have gone and come back.
            self.told.clear();
        }
        if let Body::NearlySpent(budget) = &entry.body {
            let whose = if budget.budget == BudgetOf::Day { Pid::SYSTEM } else { entry.pid };
            let NearlySpent { budget: of, limit, until, .. } = budget;
            if !self.told.insert(format!("{of:?} of {whose}: {limit}, until {until:?}")) {
                return Err(broken("a budget is told of once as nearly spent", format!("{whose}: {budget}")));
            }
        }
        if let Body::Charged { usage, cost_usd, .. } = &entry.body {
            let own = self.own.entry(entry.pid).or_default();
            own[0] += cost_usd.unwrap_or_default().0;
            own[1] += usage.input_tokens + usage.output_tokens;
            self.spent_today += cost_usd.unwrap_or_default().0;
            if self.granted_today.is_some_and(|granted| granted < self.spent_today) {
                return Err(broken(
                    "the day's budget holds",
                    format!("{} spent of {:?}", self.spent_today, self.granted_today),
                ));
            }
        }
        Ok(())
    }

    /// Processes are about to be taken out: what they spent is still part of what their parents did.
    pub(crate) fn before_prune<P: PageStore>(&mut self, kernel: &mut Kernel<P>, pids: &[Pid]) {
        for pid in pids {
            if let Some(process) = kernel.process(*pid) {
                self.gone.insert(*pid, process.budget);
            }
        }
    }

    /// Whether every account of these processes adds up.
    pub(crate) fn accounts(&self, budgets: &BTreeMap<Pid, (Budget, bool, Need)>) -> Result<(), Broken> {
        let gone = self.gone.iter().map(|(pid, budget)| (*pid, *budget));
        let all: Vec<(Pid, Budget)> = budgets.iter().map(|(pid, (budget, ..))| (*pid, *budget)).chain(gone).collect();
        for (pid, (budget, asking, ahead)) in budgets {
            for dimension in Dimension::ALL {
                let account = budget.account(dimension);
                let fault =
                    |check, what: String| Err(broken(check, format!("{dimension:?} of {pid}: {what}; {account:?}")));
                let used = account.spent + account.reserved + account.carved;
                if !budget.closed && account.limit.is_some_and(|limit| used > limit) {
                    return fault("nothing is spent that was not granted", format!("{used} used"));
                }
                let below: Vec<&Budget> = all.iter().filter(|(_, of)| of.from == *pid).map(|(_, of)| of).collect();
                let shares = |of: &&&Budget| of.account(dimension).limit.is_none();
                let carved: u64 = below
                    .iter()
                    .map(|of| match of.account(dimension).limit {
                        Some(_) if of.closed => 0,
                        Some(limit) => limit,
                        None => of.account(dimension).carved,
                    })
                    .sum();
                if account.carved != carved {
                    return fault("carved is what children hold", format!("{carved} held below"));
                }
                let reserved: u64 = below.iter().filter(shares).map(|of| of.account(dimension).reserved).sum();
                let ahead = match dimension {
                    Dimension::Usd => ahead.usd,
                    Dimension::Tokens => ahead.tokens,
                    Dimension::Calls => 0,
                };
                let reserved = reserved + ahead;
                if account.reserved < reserved || (!asking && account.reserved != reserved) {
                    return fault("reserved is what is under way", format!("{reserved} reserved below"));
                }
                let own = match dimension {
                    Dimension::Usd => self.own.get(pid).map_or(0, |own| own[0]),
                    Dimension::Tokens => self.own.get(pid).map_or(0, |own| own[1]),
                    Dimension::Calls => continue,
                };
                let passed = |of: &&&Budget| of.closed || of.account(dimension).limit.is_none();
                let spent: u64 = below.iter().filter(passed).map(|of| of.account(dimension).spent).sum();
                if account.spent != own + spent {
                    return fault("spent is what was charged", format!("{own} charged itself, {spent} below"));
                }
            }
        }
        Ok(())
    }
}
