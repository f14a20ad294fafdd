//! Money: the worst that an inference may cost is set aside before it, and settled after it.
//!
//! Start at [`Kernel::afford`]. What always holds: nothing is asked that cannot be paid, whatever happens meanwhile, so
//! an inference is charged at the price it was set aside at; whoever lacks only what others have set aside waits for
//! them to settle, and is refused only where what is spent and given away leaves too little for ever.

use aos_abi::inference::Usage;
use aos_abi::model::Price;
use aos_abi::process::Mode;
use aos_abi::{Body, CallError, Code, Pid, Timestamp, Usd};

use crate::budget::{Account, Dimension, Need};
use crate::outcome::Believed;
use crate::process::{Phase, Process};
use crate::table::PageStore;
use crate::{InFlight, Kernel, outcome};

/// What stands between a process and its next inference; the greatest of several holds.
#[derive(Debug)]
pub(crate) enum Outlook {
    /// Nothing.
    Now,
    /// What others have set aside: it waits for them.
    Soon,
    /// Time: then a budget renews.
    Later(Timestamp, CallError),
    /// A budget that only a person can raise.
    Never(CallError),
}

impl Outlook {
    fn rank(&self) -> (u8, Timestamp) {
        match self {
            Outlook::Now => (0, Timestamp(0)),
            Outlook::Soon => (1, Timestamp(0)),
            Outlook::Later(until, _) => (2, *until),
            Outlook::Never(_) => (3, Timestamp(0)),
        }
    }

    fn and(self, other: Outlook) -> Outlook {
        if other.rank() > self.rank() { other } else { self }
    }
}

/// A budget of nothing buys nothing, not even what happens to be free.
fn enough(left: u64, amount: u64) -> bool {
    left >= amount && left > 0
}

impl<P: PageStore> Kernel<P> {
    /// Whether a model may think what nobody hears.
    pub(crate) fn thinks(&self, model: &str) -> bool {
        self.config.models.get(model).is_some_and(|spec| spec.reasoning)
    }

    /// Sets the worst case aside, or leaves the process waiting for it, stopped or ended.
    pub(crate) fn afford(&mut self, pid: Pid, need: Need) -> bool {
        match self.outlook(pid, need) {
            Outlook::Now => {
                self.set_aside(pid, need);
                return true;
            }
            Outlook::Soon => self.with(pid, |process| process.phase = Phase::Broke { until: None, need }),
            Outlook::Later(until, error) => match self.table.get(pid).map(|process| process.mode) {
                Some(Mode::Resident) => {
                    self.fact(pid, Body::Stopped { reason: words(&error), until: Some(until) });
                    self.with(pid, |process| process.phase = Phase::Broke { until: Some(until), need })
                }
                Some(Mode::OneShot | Mode::Program) | None => {
                    self.exit(pid, 5, serde_json::Value::Null, &words(&error));
                    None
                }
            },
            Outlook::Never(error) => {
                match self.table.get(pid).map(|process| process.mode) {
                    Some(Mode::Resident) => self.stop_with(pid, &words(&error)),
                    Some(Mode::OneShot | Mode::Program) | None => {
                        self.exit(pid, 5, serde_json::Value::Null, &words(&error))
                    }
                }
                None
            }
        };
        false
    }

    /// Whether a process can pay that, now or when others have settled.
    pub(crate) fn can_pay(&mut self, pid: Pid, need: Need) -> bool {
        matches!(self.outlook(pid, need), Outlook::Now | Outlook::Soon)
    }

    /// Whether so much can be set aside now. What purses hold is called in where it is lacking.
    pub(crate) fn outlook(&mut self, pid: Pid, need: Need) -> Outlook {
        let said = self.outlook_as_it_is(pid, need);
        if matches!(said, Outlook::Now) || !self.put_back_all() { said } else { self.outlook_as_it_is(pid, need) }
    }

    /// The same with all purses as they are.
    pub(crate) fn outlook_as_it_is(&mut self, pid: Pid, need: Need) -> Outlook {
        let tree = [(Dimension::Usd, need.usd), (Dimension::Tokens, need.tokens)];
        tree.into_iter().fold(self.of_the_day(need.usd), |so_far, (dimension, amount)| {
            so_far.and(self.of_the_tree(pid, dimension, amount)).and(self.of_the_roles(pid, dimension, amount))
        })
    }

    fn of_the_day(&self, usd: u64) -> Outlook {
        let Some(limit) = self.config.usd_per_day else { return Outlook::Now };
        let day = self.globals.day;
        let ever = limit.0.saturating_sub(day.spent);
        if limit == Usd::ZERO || ever < usd {
            let (left, cost) = (Usd(ever), Usd(usd));
            let error = CallError::new(
                Code::DQuot,
                format!("the day's budget of {limit} is spent: {left} left, up to {cost} needed"),
            )
            .hint(format!("it renews at {}; `[budget] usd_per_day` in aos.toml changes it", day.renews_at()));
            return Outlook::Later(day.renews_at(), error);
        }
        if ever.saturating_sub(day.reserved) < usd { Outlook::Soon } else { Outlook::Now }
    }

    fn of_the_tree(&mut self, pid: Pid, dimension: Dimension, amount: u64) -> Outlook {
        let Some(holder) = self.drawn_on(pid, dimension).last().copied() else { return Outlook::Now };
        let Some(account) = self.table.get(holder).map(|process| *process.budget.account(dimension)) else {
            return Outlook::Now;
        };
        let Some(left) = account.left() else { return Outlook::Now };
        let settled = Account { reserved: 0, ..account };
        if enough(left, amount) {
            Outlook::Now
        } else if dimension != Dimension::Calls
            && (enough(settled.left().unwrap_or(0), amount) || self.more_returns_to(holder))
        {
            Outlook::Soon
        } else {
            let hint = self.more_of(pid, holder, dimension);
            Outlook::Never(spent(dimension, left, amount).hint(hint))
        }
    }

    /// How whoever lacks what its holder has spent gets more. What ends for that reason is not there to be given any; calls
    /// are refused, and nothing ends for them.
    fn more_of(&mut self, pid: Pid, holder: Pid, dimension: Dimension) -> String {
        if pid != holder && self.table.get(holder).is_some_and(Process::exited) {
            return format!("its budget was that of {holder}, which has ended: start it again with one of its own");
        }
        let ends = self.table.get(pid).filter(|process| process.mode == Mode::OneShot && pid == holder);
        match (ends.map(|process| process.parent), dimension) {
            (Some(Pid::INIT), Dimension::Usd) => "run it again with a larger --budget".to_owned(),
            (Some(_), Dimension::Usd | Dimension::Tokens) => "start it again with a larger budget".to_owned(),
            (None, _) | (_, Dimension::Calls) => {
                format!("`aos budget {holder} --{} MORE` gives it more", dimension.key())
            }
        }
    }

    /// Why a process waits for a budget.
    pub(crate) fn why_broke(&mut self, pid: Pid) -> Option<String> {
        let Phase::Broke { need, .. } = self.table.get(pid)?.phase else { return None };
        match self.outlook_as_it_is(pid, need) {
            Outlook::Later(_, error) | Outlook::Never(error) => Some(words(&error)),
            Outlook::Now | Outlook::Soon => {
                Some("others have set aside what it needs, until they have settled".to_owned())
            }
        }
    }

    /// Whether a share that was given to a process that has ended is still to come back: its last inference is under way.
    fn more_returns_to(&mut self, holder: Pid) -> bool {
        let asking: Vec<Pid> = self.globals.in_flight.values().filter_map(InFlight::asker).collect();
        asking.into_iter().any(|pid| {
            let mut at = pid;
            while let Some(process) = self.table.get(at).filter(|process| process.exited()) {
                at = process.budget.from;
                if at == holder {
                    return true;
                }
            }
            false
        })
    }

    /// A role's budget holds for a process and all below it, so that it is not multiplied by having children.
    fn of_the_roles(&mut self, pid: Pid, dimension: Dimension, amount: u64) -> Outlook {
        let mut outlook = Outlook::Now;
        for at in self.lineage(pid) {
            let Some((limit, _)) = self.role_limit(at, dimension) else { continue };
            let now = self.globals.at;
            let Some(process) = self.table.get(at) else { continue };
            let allowance = process.allowances[dimension as usize];
            let ever = limit.saturating_sub(allowance.window.used_at(now));
            let said = if enough(ever.saturating_sub(allowance.reserved), amount) {
                Outlook::Now
            } else if enough(ever, amount) {
                Outlook::Soon
            } else {
                let role = self.policy.role(&process.policy_role).map_or("", |role| role.name.as_str());
                let rule = format!("role {role}: budget.{} of {}", dimension.key(), dimension.show(limit));
                let needed = dimension.show(amount);
                if enough(limit, amount) {
                    let left = dimension.show(ever);
                    let said = format!("{rule} is spent: {left} left, up to {needed} needed");
                    let until = allowance.window.until;
                    let hint = format!("it renews at {until}; policy.yaml changes it");
                    Outlook::Later(until, CallError::new(Code::DQuot, said).hint(hint))
                } else {
                    let said = format!("the budget is too small: {rule}, up to {needed} needed");
                    let hint = "raise it in policy.yaml, or let the model answer less (`max_output`)";
                    Outlook::Never(CallError::new(Code::DQuot, said).hint(hint))
                }
            };
            outlook = outlook.and(said);
        }
        outlook
    }

    /// A process and those it was spawned from, nearest first, alive or not.
    pub(crate) fn lineage(&mut self, pid: Pid) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut at = pid;
        while let Some(process) = self.table.get(at) {
            found.push(at);
            at = process.budget.from;
        }
        found
    }

    /// What the role of a process grants in one dimension: how much, in how many seconds.
    pub(crate) fn role_limit(&mut self, pid: Pid, dimension: Dimension) -> Option<(u64, u64)> {
        let process = self.table.get(pid)?;
        let role = self.policy.role(&process.policy_role)?;
        match dimension {
            Dimension::Usd => role.budget.usd.map(|(usd, per_s)| (usd.0, per_s)),
            Dimension::Tokens => role.budget.tokens,
            Dimension::Calls => role.budget.calls,
        }
    }

    pub(crate) fn set_aside(&mut self, pid: Pid, need: Need) {
        for (dimension, amount) in [(Dimension::Usd, need.usd), (Dimension::Tokens, need.tokens)] {
            self.each_account(pid, dimension, |account| account.reserved += amount);
            for at in self.lineage(pid) {
                if self.role_limit(at, dimension).is_some()
                    && let Some(process) = self.table.get_mut(at)
                {
                    process.allowances[dimension as usize].reserved += amount;
                }
            }
        }
        self.globals.day.reserved += need.usd;
    }

    /// Turns what was set aside into what was used.
    pub(crate) fn settle_all(&mut self, pid: Pid, reserved: Need, used: Need) {
        let now = self.globals.at;
        let reserved = self.keep(pid, reserved, used);
        let amounts = [(Dimension::Usd, reserved.usd, used.usd), (Dimension::Tokens, reserved.tokens, used.tokens)];
        for (dimension, reserved, used) in amounts {
            self.settle(pid, dimension, reserved, used);
            for at in self.lineage(pid) {
                let per_s = self.role_limit(at, dimension).map(|(_, per_s)| per_s);
                let kept =
                    self.table.get(at).is_some_and(|process| process.allowances[dimension as usize].reserved > 0);
                if (kept || per_s.is_some())
                    && let Some(process) = self.table.get_mut(at)
                {
                    let allowance = &mut process.allowances[dimension as usize];
                    allowance.reserved = allowance.reserved.saturating_sub(reserved);
                    if let Some(per_s) = per_s {
                        allowance.window.add(now, per_s, used);
                    }
                }
            }
        }
        let day = &mut self.globals.day;
        day.reserved = day.reserved.saturating_sub(reserved.usd);
        day.spent = day.spent.saturating_add(used.usd);
        self.freed = true;
        self.close_account(pid);
    }

    /// Gives back what was set aside for an inference that will not come.
    pub(crate) fn unreserve(&mut self, pid: Pid, reserved: Need) {
        self.settle_all(pid, reserved, Need { usd: 0, tokens: 0 });
    }

    /// Pays an inference that is over; `why` as in [`Kernel::charged`], where it is not what its server says.
    pub(crate) fn charge(
        &mut self,
        pid: Pid,
        (model, price): (&str, Option<Price>),
        believed: Option<Believed>,
        reserved: Need,
        why: Option<&str>,
    ) {
        let used = believed.as_ref().map(|believed| believed.usage).unwrap_or_default();
        // At another model's price than it was set aside at it might be more; that was never agreed to.
        let cost_of = |price| believed.as_ref().map_or(Usd::ZERO, |believed| believed.cost(price));
        let cost = price.map(|price| cost_of(price).min(Usd(reserved.usd)));
        let nanos = cost.unwrap_or_default().0;
        let tokens = used.input_tokens.saturating_add(used.output_tokens);
        self.settle_all(pid, reserved, Need { usd: nanos, tokens });
        let Some(believed) = believed else { return };
        self.charged(pid, model, used, cost, why.or(believed.why().as_deref()));
        self.warn(pid, reserved, Need { usd: nanos, tokens });
    }

    /// Pays an inference of which nobody will say what it came to: all that was set aside for it, which is the most that it
    /// can have been, at the price of whatever part of it.
    pub(crate) fn charge_all(&mut self, pid: Pid, model: &str, priced: bool, all: (Need, u32), why: &str) {
        let (reserved, max_output) = all;
        self.settle_all(pid, reserved, reserved);
        let used = outcome::at_most(reserved.tokens, max_output);
        self.charged(pid, model, used, priced.then_some(Usd(reserved.usd)), Some(why));
        self.warn(pid, reserved, reserved);
    }

    /// Records what was spent; `why` it is the most that it may have been, where nobody knows what it was.
    pub(crate) fn charged(&mut self, pid: Pid, model: &str, used: Usage, cost: Option<Usd>, why: Option<&str>) {
        let why = why.map(str::to_owned);
        self.fact(pid, Body::Charged { model: model.to_owned(), usage: used, cost_usd: cost, why });
        self.globals.day.unpriced |= cost.is_none();
        self.with(pid, |process| {
            process.service = process.service.saturating_add(crate::scheduler::service_of(&used));
            let counters = &mut process.usage;
            counters.inferences += 1;
            counters.input_tokens += used.input_tokens;
            counters.output_tokens += used.output_tokens;
            counters.cached_input_tokens += used.cached_input_tokens;
            counters.cost = counters.cost.plus(cost.unwrap_or_default());
            counters.cost_unknown |= cost.is_none();
        });
    }

    /// Pays one call, from the budget tree and from what the roles allow.
    pub(crate) fn pay_call(&mut self, pid: Pid) -> Result<(), CallError> {
        let dimension = Dimension::Calls;
        if let Outlook::Later(_, error) | Outlook::Never(error) =
            self.of_the_tree(pid, dimension, 1).and(self.of_the_roles(pid, dimension, 1))
        {
            return Err(error);
        }
        let now = self.globals.at;
        self.settle(pid, dimension, 0, 1);
        for at in self.lineage(pid) {
            let Some((_, per_s)) = self.role_limit(at, dimension) else { continue };
            if let Some(process) = self.table.get_mut(at) {
                process.allowances[dimension as usize].window.add(now, per_s, 1);
            }
        }
        self.warn_in(pid, dimension, 1, 1);
        Ok(())
    }

    /// Lets whoever could not pay try again, where something has changed for it since.
    pub(crate) fn look_at_the_broke(&mut self) {
        if !std::mem::take(&mut self.freed) {
            return;
        }
        for pid in self.globals.broke.clone() {
            self.works_on(pid);
            let Some(Process { phase: Phase::Broke { until, need }, stopped: None, .. }) = self.table.get(pid) else {
                continue;
            };
            let (until, need) = (*until, *need);
            let same = match self.outlook(pid, need) {
                Outlook::Now | Outlook::Never(_) => false,
                Outlook::Soon => until.is_none(),
                Outlook::Later(renews, _) => until == Some(renews),
            };
            if !same {
                self.want_turn_again(pid);
            }
        }
    }
}

fn spent(dimension: Dimension, left: u64, amount: u64) -> CallError {
    let (left, amount) = (dimension.show(left), dimension.show(amount));
    CallError::new(Code::DQuot, format!("the budget is spent: {left} left, up to {amount} needed"))
}

fn words(error: &CallError) -> String {
    match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    }
}
