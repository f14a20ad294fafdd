//! Budgets: a tree, like cgroups. A spawn carves its child's share out of its parent's.
//!
//! Start at [`Budget`]. In each dimension a process has a limit of its own or draws on the nearest ancestor that has
//! one. What always holds: `spent + reserved + carved <= limit`, so nothing is ever spent that was not granted; the
//! worst case is reserved before an inference and settled after it.

use aos_abi::process::BudgetSpec;
use aos_abi::{Timestamp, Usd};
use serde::{Deserialize, Serialize};

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Nano-dollars.
    Usd,
    /// Tokens in and out together.
    Tokens,
    /// System calls.
    Calls,
}

impl Dimension {
    /// Every dimension.
    pub const ALL: [Dimension; 3] = [Dimension::Usd, Dimension::Tokens, Dimension::Calls];

    /// Its name in the policy and on the command line.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Dimension::Usd => "usd",
            Dimension::Tokens => "tokens",
            Dimension::Calls => "calls",
        }
    }

    /// An amount of it in words.
    #[must_use]
    pub fn show(self, amount: u64) -> String {
        match self {
            Dimension::Usd => Usd(amount).to_string(),
            Dimension::Tokens => format!("{amount} tokens"),
            Dimension::Calls => format!("{amount} calls"),
        }
    }
}

/// One dimension of a budget, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Granted; `None`: the nearest ancestor's holds.
    pub limit: Option<u64>,
    /// Used, by this process and those that draw on it.
    pub spent: u64,
    /// Set aside for what is under way.
    pub reserved: u64,
    /// Given to children with a limit of their own.
    pub carved: u64,
    /// That little is left.
    pub warned: Warned,
}

impl Account {
    /// What is left of its own limit; `None` where it has none.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_sub(self.used()))
    }

    /// What is not there any more for anything else.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.spent.saturating_add(self.reserved).saturating_add(self.carved)
    }
}

/// That little is left of a budget was told: for which limit, until when it renews, and how little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warned {
    /// Of how much. A budget of nothing is never told of, so that 0 stands for not told.
    pub limit: u64,
    /// Until when; the epoch where it does not renew.
    pub until: Timestamp,
    /// What was left.
    pub left: u64,
}

impl Warned {
    /// Whether it was told of a budget with this limit that renews then.
    #[must_use]
    pub fn is_of(&self, limit: u64, until: Option<Timestamp>) -> bool {
        limit > 0 && self.limit == limit && self.until == until.unwrap_or_default()
    }
}

/// The budget of one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// US dollars, in nano-dollars.
    pub usd: Account,
    /// Tokens.
    pub tokens: Account,
    /// System calls.
    pub calls: Account,
    /// When the process is ended.
    pub ends_at: Option<Timestamp>,
    /// Whose account it draws on where it has no limit: its parent at spawn, alive or not.
    pub from: aos_abi::Pid,
    /// Processes that still draw on this one; the account is closed when it has ended and none is left.
    pub drawers: u32,
    /// Closed: what was left went back.
    pub closed: bool,
}

/// Limits in the units of the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Nano-dollars.
    pub usd: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Calls.
    pub calls: Option<u64>,
}

impl From<&BudgetSpec> for Grant {
    fn from(spec: &BudgetSpec) -> Self {
        Grant { usd: spec.usd.map(|usd| usd.0), tokens: spec.tokens, calls: spec.calls }
    }
}

impl Grant {
    /// The limit in one dimension.
    #[must_use]
    pub fn get(&self, dimension: Dimension) -> Option<u64> {
        match dimension {
            Dimension::Usd => self.usd,
            Dimension::Tokens => self.tokens,
            Dimension::Calls => self.calls,
        }
    }
}

impl Budget {
    /// The account of one dimension.
    #[must_use]
    pub fn account(&self, dimension: Dimension) -> &Account {
        match dimension {
            Dimension::Usd => &self.usd,
            Dimension::Tokens => &self.tokens,
            Dimension::Calls => &self.calls,
        }
    }

    /// The account of one dimension, to change.
    pub fn account_mut(&mut self, dimension: Dimension) -> &mut Account {
        match dimension {
            Dimension::Usd => &mut self.usd,
            Dimension::Tokens => &mut self.tokens,
            Dimension::Calls => &mut self.calls,
        }
    }
}

/// What an inference may cost at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// Nano-dollars.
    pub usd: u64,
    /// Tokens in and out together.
    pub tokens: u64,
}

impl Need {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Need) -> Need {
        Need { usd: self.usd.saturating_add(other.usd), tokens: self.tokens.saturating_add(other.tokens) }
    }

    /// Without the other; nothing where that is more.
    #[must_use]
    pub fn less(self, other: Need) -> Need {
        Need { usd: self.usd.saturating_sub(other.usd), tokens: self.tokens.saturating_sub(other.tokens) }
    }

    /// So often.
    #[must_use]
    pub fn times(self, times: u64) -> Need {
        Need { usd: self.usd.saturating_mul(times), tokens: self.tokens.saturating_mul(times) }
    }

    /// Whether the other is no more than this.
    #[must_use]
    pub fn covers(self, other: Need) -> bool {
        self.usd >= other.usd && self.tokens >= other.tokens
    }
}

/// A count that begins anew when its time is over. The time begins with the first that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// When the count began.
    pub since: Timestamp,
    /// When it ends; it is over from there on.
    pub until: Timestamp,
    /// The count.
    pub used: u64,
}

impl Count {
    /// What has been used by now.
    #[must_use]
    pub fn used_at(&self, now: Timestamp) -> u64 {
        if now < self.until { self.used } else { 0 }
    }

    /// Counts `amount` more; where the count begins anew, it does so for so many seconds.
    pub fn add(&mut self, now: Timestamp, per_s: u64, amount: u64) {
        if now >= self.until {
            *self = Count { since: now, until: now.plus_millis(per_s.saturating_mul(1000)), used: 0 };
        }
        self.used = self.used.saturating_add(amount);
    }
}

/// What is used of a budget that renews.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Used.
    pub window: Count,
    /// Set aside for what is under way.
    pub reserved: u64,
    /// That little is left.
    pub warned: Warned,
}

/// The day's budget of the whole system: US dollars from midnight to midnight UTC.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Day {
    /// Days since the epoch.
    pub number: i64,
    /// Nano-dollars used this day.
    pub spent: u64,
    /// Nano-dollars set aside, whatever the day.
    pub reserved: u64,
    /// Some of what was used this day has no price.
    pub unpriced: bool,
    /// That little is left of what the day may cost.
    pub warned: Warned,
}

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

impl Day {
    /// Begins a new day where one has begun.
    pub fn turn(&mut self, now: Timestamp) {
        let number = now.0.div_euclid(DAY_MS);
        if number > self.number {
            self.number = number;
            self.spent = 0;
            self.unpriced = false;
        }
    }

    /// When this day ends.
    #[must_use]
    pub fn renews_at(&self) -> Timestamp {
        Timestamp((self.number + 1) * DAY_MS)
    }
}
