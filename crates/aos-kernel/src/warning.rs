//! Warnings: that little is left of a budget is told while there is still something that can be done with it.
//!
//! Start at [`Kernel::warn`]. Little is a tenth of the limit, or less than one more inference like the last one takes: its
//! worst case must be covered once more after it. What always holds: a budget is told of once, and anew when it has renewed
//! or its limit is another one; nobody is woken for it, so that a warning costs nothing; an agent is told with its next
//! prompt, in the status line, for as long as it is so.

use aos_abi::entry::{Amount, BudgetOf, NearlySpent};
use aos_abi::{Body, Pid, Timestamp, Usd};

use crate::Kernel;
use crate::budget::{Dimension, Need, Warned};
use crate::table::PageStore;

/// One of the budgets that limit a process in one dimension.
struct Bound {
    of: BudgetOf,
    /// Whose account it is; the process itself for the day's.
    holder: Pid,
    limit: u64,
    /// What is neither spent nor given away; what is set aside may come back.
    left: u64,
    until: Option<Timestamp>,
    warned: Warned,
}

impl Bound {
    /// Whether it was told of as it is.
    fn is_told(&self) -> bool {
        self.warned.is_of(self.limit, self.until)
    }

    fn to_tell(&self, dimension: Dimension, needed: Option<u64>) -> NearlySpent {
        let amount = |amount| match dimension {
            Dimension::Usd => Amount::Usd(Usd(amount)),
            Dimension::Tokens => Amount::Tokens(amount),
            Dimension::Calls => Amount::Calls(amount),
        };
        NearlySpent {
            budget: self.of,
            limit: amount(self.limit),
            left: amount(self.left),
            needed: needed.map(amount),
            until: self.until,
        }
    }
}

impl<P: PageStore> Kernel<P> {
    /// Tells of each budget of which little is left now that an inference has used so much of what was set aside for it.
    pub(crate) fn warn(&mut self, pid: Pid, reserved: Need, used: Need) {
        self.warn_in(pid, Dimension::Usd, reserved.usd, used.usd);
        self.warn_in(pid, Dimension::Tokens, reserved.tokens, used.tokens);
    }

    /// The same in one dimension.
    pub(crate) fn warn_in(&mut self, pid: Pid, dimension: Dimension, reserved: u64, used: u64) {
        if used == 0 {
            return;
        }
        for bound in self.bounds(pid, dimension) {
            let tenth = bound.left <= bound.limit / 10;
            let last = bound.left < reserved.saturating_add(used);
            if bound.limit == 0 || !(tenth || last) || bound.is_told() {
                continue;
            }
            let needed = Some(reserved).filter(|_| !tenth && dimension != Dimension::Calls);
            self.fact(bound.holder, Body::NearlySpent(bound.to_tell(dimension, needed)));
            let warned = Warned { limit: bound.limit, until: bound.until.unwrap_or_default(), left: bound.left };
            let place = match bound.of {
                BudgetOf::Day => Some(&mut self.globals.day.warned),
                BudgetOf::Process => {
                    self.table.get_mut(bound.holder).map(|process| &mut process.budget.account_mut(dimension).warned)
                }
                BudgetOf::Role => {
                    let holder = self.table.get_mut(bound.holder);
                    holder.map(|process| &mut process.allowances[dimension as usize].warned)
                }
            };
            if let Some(place) = place {
                *place = warned;
            }
        }
    }

    /// What a process is told of what little is left to it: of one budget, the first. One whose model costs
    /// nothing is not limited by money.
    pub(crate) fn nearly_spent(&mut self, pid: Pid, priced: bool) -> Option<NearlySpent> {
        for dimension in Dimension::ALL.into_iter().filter(|dimension| priced || *dimension != Dimension::Usd) {
            let bounds = self.bounds(pid, dimension);
            // What children gave back may have made it more again.
            let little = bounds.into_iter().find(|bound| bound.is_told() && bound.left <= bound.warned.left);
            if let Some(bound) = little {
                return Some(bound.to_tell(dimension, None));
            }
        }
        None
    }

    /// The budgets that limit a process in one dimension.
    fn bounds(&mut self, pid: Pid, dimension: Dimension) -> Vec<Bound> {
        let day = self.globals.day;
        let of_day = self.config.usd_per_day.filter(|_| dimension == Dimension::Usd).map(|limit| Bound {
            of: BudgetOf::Day,
            holder: pid,
            limit: limit.0,
            left: limit.0.saturating_sub(day.spent),
            until: Some(day.renews_at()),
            warned: day.warned,
        });
        let holder = self.drawn_on(pid, dimension).last().copied();
        let of_tree = holder.and_then(|holder| {
            let budget = self.table.get(holder)?.budget;
            // Nobody draws any more on one that is closed.
            let account = Some(*budget.account(dimension)).filter(|_| !budget.closed)?;
            let limit = account.limit?;
            let left = limit.saturating_sub(account.spent).saturating_sub(account.carved);
            Some(Bound { of: BudgetOf::Process, holder, limit, left, until: None, warned: account.warned })
        });
        let mut bounds: Vec<Bound> = of_day.into_iter().chain(of_tree).collect();
        let now = self.globals.at;
        for holder in self.lineage(pid) {
            let Some((limit, _)) = self.role_limit(holder, dimension) else { continue };
            let Some(process) = self.table.get(holder) else { continue };
            let allowance = process.allowances[dimension as usize];
            let left = limit.saturating_sub(allowance.window.used_at(now));
            let until = Some(allowance.window.until);
            bounds.push(Bound { of: BudgetOf::Role, holder, limit, left, until, warned: allowance.warned });
        }
        bounds
    }
}
