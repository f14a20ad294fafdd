//! The budget tree at work: settling, carving and closing.
//!
//! A process draws on itself where it has a limit, else on the account it was spawned from, alive or not: an exited
//! process's account stays open until nobody draws on it, so adoption by another parent never widens a budget.

use aos_abi::process::BudgetView;
use aos_abi::{CallError, Code, Pid, Usd};

use crate::Kernel;
use crate::budget::{Account, Dimension, Grant};
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    /// The accounts that an amount in this dimension goes through: itself and each it draws on, up to and including
    /// the nearest with a limit of its own.
    pub(crate) fn drawn_on(&mut self, pid: Pid, dimension: Dimension) -> Vec<Pid> {
        let mut path = Vec::new();
        let mut at = pid;
        while let Some(process) = self.table.get(at) {
            path.push(at);
            if process.budget.account(dimension).limit.is_some() {
                break;
            }
            at = process.budget.from;
        }
        path
    }

    /// What a process may still use; `None`: nothing limits it.
    pub(crate) fn left(&mut self, pid: Pid, dimension: Dimension) -> Option<u64> {
        self.limiting(pid, dimension)?.left()
    }

    /// The last account that a process draws on: where anything limits it, that does.
    pub(crate) fn limiting(&mut self, pid: Pid, dimension: Dimension) -> Option<Account> {
        let last = *self.drawn_on(pid, dimension).last()?;
        Some(*self.table.get(last)?.budget.account(dimension))
    }

    pub(crate) fn each_account(&mut self, pid: Pid, dimension: Dimension, change: impl Fn(&mut Account)) {
        for at in self.drawn_on(pid, dimension) {
            if let Some(process) = self.table.get_mut(at) {
                change(process.budget.account_mut(dimension));
            }
        }
    }

    /// Turns what was set aside into what was used.
    pub(crate) fn settle(&mut self, pid: Pid, dimension: Dimension, reserved: u64, used: u64) {
        self.each_account(pid, dimension, |account| {
            account.reserved = account.reserved.saturating_sub(reserved);
            account.spent = account.spent.saturating_add(used);
        });
    }

    /// Carves a child's share out of its parent's, or says what is short.
    pub(crate) fn carve(&mut self, parent: Pid, grant: &Grant) -> Result<(), CallError> {
        for dimension in Dimension::ALL {
            if let (Some(amount), Some(left)) = (grant.get(dimension), self.left(parent, dimension))
                && amount > left
            {
                return Err(CallError::new(
                    Code::DQuot,
                    format!("{} asked for the child, {} left", dimension.show(amount), dimension.show(left)),
                )
                .hint("give it less, or leave the budget out so that it shares yours"));
            }
        }
        for dimension in Dimension::ALL {
            let fits = std::cell::Cell::new(true);
            let amount = grant.get(dimension).unwrap_or(0);
            self.each_account(parent, dimension, |account| {
                fits.set(fits.get() && account.used().checked_add(amount).is_some());
            });
            if !fits.get() {
                return Err(CallError::new(Code::Inval, format!("no account can hold {}", dimension.show(amount)))
                    .hint("leave the budget out where the child is to have no limit of its own"));
            }
        }
        for dimension in Dimension::ALL {
            if let Some(amount) = grant.get(dimension) {
                self.each_account(parent, dimension, |account| account.carved += amount);
            }
        }
        Ok(())
    }

    /// Closes the account of an ended process nobody draws on any more and which has nothing under way: what is left goes
    /// back to where it came from.
    pub(crate) fn close_account(&mut self, pid: Pid) {
        let mut at = pid;
        while let Some(process) = self.table.get_mut(at) {
            // What is under way is still to be paid from it.
            let under_way = Dimension::ALL.iter().any(|dimension| process.budget.account(*dimension).reserved > 0);
            if !process.exited() || process.budget.drawers > 0 || process.budget.closed || under_way {
                return;
            }
            process.budget.closed = true;
            self.freed = true;
            let Some(process) = self.table.get(at) else { return };
            let (budget, from) = (process.budget, process.budget.from);
            for dimension in Dimension::ALL {
                let account = *budget.account(dimension);
                if let Some(limit) = account.limit {
                    // What its own children could not use is back in `carved` already; `spent` holds all that was used.
                    self.each_account(from, dimension, |up| {
                        up.carved = up.carved.saturating_sub(limit);
                        up.spent = up.spent.saturating_add(account.spent);
                    });
                }
            }
            if let Some(from) = self.table.get_mut(from) {
                from.budget.drawers = from.budget.drawers.saturating_sub(1);
            }
            at = from;
        }
    }

    /// The budget as people see it.
    pub(crate) fn budget_view(&mut self, pid: Pid) -> BudgetView {
        // What is set aside ahead is its own to spend.
        let left =
            Dimension::ALL.map(|dimension| self.left(pid, dimension).map(|left| left + self.ahead(pid, dimension)));
        let Some(budget) = self.table.get(pid).map(|process| process.budget) else {
            return BudgetView::default();
        };
        BudgetView {
            usd: budget.usd.limit.map(Usd),
            usd_left: left[0].map(Usd),
            usd_given: Usd(budget.usd.carved),
            tokens: budget.tokens.limit,
            tokens_left: left[1],
            calls: budget.calls.limit,
            calls_left: left[2],
            ends_at: budget.ends_at,
        }
    }
}

impl<P: PageStore> Kernel<P> {
    /// Gives a process a limit of its own, or another one: its share of what it draws on.
    pub(crate) fn set_limit(&mut self, pid: Pid, dimension: Dimension, limit: u64) {
        let Some(process) = self.table.get(pid) else { return };
        let (from, account) = (process.budget.from, *process.budget.account(dimension));
        // Without a limit all it used was counted on the way up; with one, its limit alone is.
        let counted = match account.limit {
            Some(old) => Account { carved: old, ..Account::default() },
            None => account,
        };
        self.each_account(from, dimension, |up| {
            up.spent = up.spent.saturating_sub(counted.spent);
            up.reserved = up.reserved.saturating_sub(counted.reserved);
            up.carved = up.carved.saturating_sub(counted.carved).saturating_add(limit);
        });
        self.with(pid, |process| process.budget.account_mut(dimension).limit = Some(limit));
        self.freed = true;
    }
}
