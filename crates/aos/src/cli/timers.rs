//! `aos timers`.

use aos_abi::api::Accepted;
use aos_abi::process::HeldTimer;
use aos_abi::{Pid, Timestamp};

use super::table::{Column, Table};
use super::{Context, Exit, Failure, Style, view};
use crate::client::Address;

/// List what wakes processes at its time, or cancel one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos timers\n  aos timers 7\n  aos timers 7 --cancel t1")]
pub struct Args {
    /// Only those of this process
    pid: Option<Pid>,
    /// Cancel this one; the agent is not told
    #[arg(long, value_name = "ID", requires = "pid")]
    cancel: Option<String>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        if let (Some(pid), Some(id)) = (self.pid, &self.cancel) {
            let accepted: Accepted = client.delete(&view::process(pid).then("timers").with("id", id)).await?;
            if cx.json {
                cx.document(&accepted)?;
            }
            return Ok(Exit::Success);
        }
        let address = Address::of("/v1/timers");
        let address = if let Some(pid) = self.pid { address.with("pid", pid) } else { address };
        let timers: Vec<HeldTimer> = client.get(&address).await?;
        if cx.json {
            cx.document(&timers)?;
        } else if timers.is_empty() {
            cx.note("no timer is set; agents set them with SYS_SCHEDULE");
        } else {
            cx.print(&shown(&timers, super::now(), cx.width, cx.out))?;
        }
        Ok(Exit::Success)
    }
}

/// The table in lines.
pub(super) fn shown(timers: &[HeldTimer], now: Timestamp, width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(&[
        Column::number("PID"),
        Column::text("TIMER"),
        Column::text("NAME").dispensable(),
        Column::text("RULE"),
        Column::text("NEXT"),
        Column::text("PROMPT"),
    ]);
    for HeldTimer { pid, timer } in timers {
        table.row([
            pid.to_string(),
            timer.timer_id.clone(),
            timer.name.clone().unwrap_or_default(),
            timer.schedule.clone(),
            next(timer.next_at, now),
            timer.prompt.clone(),
        ]);
    }
    table.shown(width, style)
}

/// When it fires: the moment, and how far off that is.
fn next(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.millis_since(now).div_ceil(1000);
    if at <= now { format!("{at} (due)") } else { format!("{at} (in {})", super::duration(seconds)) }
}
