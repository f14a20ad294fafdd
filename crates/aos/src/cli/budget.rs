//! `aos budget`.

use aos_abi::api::Accepted;
use aos_abi::process::{BudgetSpec, ProcessDetail};
use aos_abi::{Pid, Usd};

use super::run::{above_zero, positive, usd};
use super::table::{Column, Table};
use super::{Context, Exit, Failure, cost_of, count, money, view};

/// Show what processes may still spend, or set the limits of one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos budget\n  aos budget 7\n  aos budget 7 --usd 2.50 --tokens 500000\n\n\
GIVEN is what its children have of it; what they do not spend comes back when they end. LEFT is what is\nneither spent, nor \
given, nor set aside for an answer under way.")]
pub struct Args {
    /// Whose; every living process's if left out
    pid: Option<Pid>,
    /// US dollars, counted from its start
    #[arg(long, requires = "pid", value_parser = usd, allow_negative_numbers = true)]
    usd: Option<Usd>,
    /// Tokens in and out together, counted from its start
    #[arg(long, requires = "pid", value_parser = above_zero::<u64>, allow_negative_numbers = true)]
    tokens: Option<u64>,
    /// System calls, counted from its start
    #[arg(long, requires = "pid", value_parser = above_zero::<u64>, allow_negative_numbers = true)]
    calls: Option<u64>,
    /// End it this long after its start: 90s, 10m, 2h
    #[arg(long, requires = "pid", value_name = "TIME", value_parser = positive, allow_hyphen_values = true)]
    time: Option<std::time::Duration>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        let wall_s = self.time.map(|time| time.as_secs_f64().ceil() as u64);
        let spec = BudgetSpec { usd: self.usd, tokens: self.tokens, calls: self.calls, wall_s };
        if let Some(pid) = self.pid.filter(|_| spec != BudgetSpec::default()) {
            let accepted: Accepted = client.put(&view::process(pid).then("budget"), &spec).await?;
            if cx.json {
                cx.document(&accepted)?;
            }
            return Ok(Exit::Success);
        }
        let processes = match self.pid {
            None => view::processes(&client, false, None).await?,
            Some(pid) => vec![client.get::<ProcessDetail>(&view::process(pid)).await?.process],
        };
        if cx.json {
            let budgets: Vec<_> = processes
                .iter()
                .map(|process| serde_json::json!({ "pid": process.pid, "budget": process.budget, "usage": process.usage }))
                .collect();
            cx.document(&budgets)?;
            return Ok(Exit::Success);
        }
        let mut table = Table::new(&[
            Column::number("PID"),
            Column::number("SPENT"),
            Column::number("GIVEN"),
            Column::number("LEFT"),
            Column::number("OF"),
            Column::number("TOKENS LEFT"),
            Column::number("CALLS LEFT"),
            Column::text("ENDS AT").dispensable(),
            Column::text("NAME"),
        ]);
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        for process in &processes {
            let budget = &process.budget;
            table.row([
                process.pid.to_string(),
                cost_of(process.usage.cost_usd, process.usage.cost_unknown),
                or_none(Some(budget.usd_given).filter(|given| *given > Usd::ZERO).map(money)),
                or_none(budget.usd_left.map(money)),
                or_none(budget.usd.map(money)),
                or_none(budget.tokens_left.map(count)),
                or_none(budget.calls_left.map(count)),
                or_none(budget.ends_at.map(|at| at.to_string())),
                process.name.clone(),
            ]);
        }
        cx.print(&table.shown(cx.width, cx.out))?;
        Ok(Exit::Success)
    }
}
