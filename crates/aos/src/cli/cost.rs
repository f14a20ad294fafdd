//! `aos cost`.

use aos_abi::Usd;
use aos_abi::api::{CostGroup, CostView};

use super::table::{Column, Table};
use super::{Context, Exit, Failure, Style, clean_line, count, cut, money, of};
use crate::client::Address;

/// Show what was spent
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Group by day (in UTC), model, process, agent (its name or role) or entity (whom it works for)
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    by: By,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum By {
    #[default]
    Day,
    Model,
    Pid,
    Agent,
    Entity,
}

impl By {
    fn as_str(self) -> &'static str {
        match self {
            By::Day => "day",
            By::Model => "model",
            By::Pid => "pid",
            By::Agent => "agent",
            By::Entity => "entity",
        }
    }
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let address = Address::of("/v1/cost").with("by", self.by.as_str());
        let cost: CostView = cx.client()?.get_long(&address).await?;
        if cx.json {
            cx.document(&cost)?;
        } else {
            cx.print(&shown(&cost, self.by, cx.width, cx.out))?;
        }
        Ok(Exit::Success)
    }
}

/// Most columns of a group's name.
const NAME_WIDTH_MAX: usize = 60;

/// What a group cost, in words.
fn cost_of(group: &CostGroup) -> String {
    // Where the price of some is known and comes to nothing, that is said.
    match group.cost_unknown {
        unknown if unknown > 0 && unknown < group.inferences => format!("{} + unknown", money(group.cost_usd)),
        unknown => super::cost_of(group.cost_usd, unknown > 0),
    }
}

fn shown(cost: &CostView, by: By, width: Option<usize>, style: Style) -> String {
    let head = match by {
        By::Day => "DAY",
        By::Model => "MODEL",
        By::Pid => "PID",
        By::Agent => "AGENT",
        By::Entity => "ENTITY",
    };
    let mut table = Table::new(&[
        Column::text(head),
        Column::number("INFERENCES"),
        Column::number("IN"),
        Column::number("OUT"),
        Column::number("COST"),
    ]);
    let mut row = |name: String, group: &CostGroup| {
        let [input, output] = [group.input_tokens, group.output_tokens].map(count);
        table.row([name, count(group.inferences), input, output, cost_of(group)]);
    };
    let mut groups: Vec<_> = cost.groups.iter().collect();
    if let By::Pid = by {
        // As numbers: 2 before 10.
        groups.sort_by_key(|(name, _)| name.parse::<u64>().unwrap_or(u64::MAX));
    }
    for (name, group) in groups {
        // A role may be long.
        row(cut(&clean_line(name), NAME_WIDTH_MAX).into_owned(), group);
    }
    row("total".into(), &cost.total);
    let mut text = table.shown(width, style);
    if cost.total.cost_unknown > 0 {
        text.push_str(&format!(
            "The cost of {} is unknown, for want of a `price` of the model in aos.toml.\n",
            of(cost.total.cost_unknown, "inference")
        ));
    }
    if let Some(limit) = cost.today.usd_per_day.filter(|_| cost.today.nearly_spent) {
        let left = money(limit.minus(cost.today.spent_usd));
        let until = cost.today.renews_at;
        text.push_str(&format!("Today's budget is nearly spent: {left} left of {}, until {until}.\n", money(limit)));
    }
    if cost.total.estimated_usd != Usd::ZERO {
        text.push_str(&format!(
            "{} of it is estimated, where no provider said what was used: then it is the most that it can have been, or near that.\n",
            money(cost.total.estimated_usd)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_which_little_is_left_is_told_below_the_table() {
        let mut cost = CostView::default();
        cost.today.usd_per_day = Some(Usd(5_000_000_000));
        cost.today.spent_usd = Usd(4_600_000_000);
        let told = |cost: &CostView| shown(cost, By::Day, None, Style::plain());
        assert!(!told(&cost).contains("nearly"), "{}", told(&cost));
        cost.today.nearly_spent = true;
        let line = "\nToday's budget is nearly spent: $0.4000 left of $5.00, until 1970-01-01T00:00:00.000Z.\n";
        assert!(told(&cost).ends_with(line), "{}", told(&cost));
    }
}
