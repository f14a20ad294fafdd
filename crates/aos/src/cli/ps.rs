//! `aos ps`.

use aos_abi::Timestamp;
use aos_abi::process::ProcessView;

use super::run::named;
use super::table::{Column, Table};
use super::{Context, Exit, Failure, Style, cost_of, count, duration, now, view};

/// List the processes that live
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The exited ones too
    #[arg(short, long)]
    all: bool,
    /// Only those of this group
    #[arg(long, value_name = "NAME", value_parser = named)]
    group: Option<String>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let processes = view::processes(&cx.client()?, self.all, self.group.as_deref()).await?;
        if cx.json {
            cx.document(&processes)?;
        } else if processes.is_empty() {
            cx.note(match (&self.group, self.all) {
                (Some(_), true) => "there was no process of that group",
                (Some(_), false) => "no process of that group lives; aos ps -a shows those that ended",
                (None, true) => "there was no process yet",
                (None, false) => "no process lives; aos ps -a shows those that ended",
            });
        } else {
            cx.print(&shown(&processes, now(), cx.width, cx.out))?;
        }
        Ok(Exit::Success)
    }
}

/// The table in lines.
pub(super) fn shown(processes: &[ProcessView], now: Timestamp, width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(&[
        Column::number("PID"),
        Column::text("STATE"),
        Column::text("MODEL").dispensable(),
        Column::number("CALLS").dispensable(),
        Column::number("TOKENS").dispensable(),
        Column::number("COST").dispensable(),
        Column::number("AGE"),
        Column::text("NAME"),
    ]);
    for process in processes {
        let usage = &process.usage;
        table.row([
            process.pid.to_string(),
            view::state(process),
            process.model.clone(),
            usage.syscalls.to_string(),
            count(usage.input_tokens + usage.output_tokens),
            cost_of(usage.cost_usd, usage.cost_unknown),
            duration(process.exited_at.unwrap_or(now).millis_since(process.started_at) / 1_000),
            process.name.clone(),
        ]);
    }
    table.shown(width, style)
}
