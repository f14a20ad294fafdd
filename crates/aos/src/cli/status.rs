//! `aos status`.

use aos_abi::process::StatusView;

use super::clean::clean_line;
use super::{Context, Exit, Failure, duration};
use crate::client::Address;

/// Show whether the daemon runs, and what with; does not start it
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let status: StatusView = cx.client_without_start().get(&Address::of("/v1/status")).await?;
        if cx.json {
            cx.document(&status)?;
        } else {
            cx.print(&shown(&status))?;
        }
        Ok(Exit::Success)
    }
}

/// Where it listens, or why not and the way out.
fn listening(status: &StatusView) -> String {
    match &status.taken {
        None => format!("http://{}", status.listen),
        Some(why) => format!(
            "on its Unix socket alone: {}\n           end it, or set another `listen` in aos.toml; then `aos down`",
            clean_line(why)
        ),
    }
}

/// What it means that the journal's time is so many seconds ahead of the clock, in two lines.
pub(super) fn ahead(seconds: u64) -> String {
    format!(
        "this machine's clock is {} behind the journal's time: it was ahead once, or is wrong now\n\
         stamps and times of day are early by that much, which gets less by 6 minutes an hour",
        duration(seconds)
    )
}

/// The status in lines.
pub(super) fn shown(status: &StatusView) -> String {
    let mut text = format!(
        "aos {} is up for {}, pid {} of this machine\nhome       {}\nlistening  {}\njournal    {} entries\n",
        status.version,
        duration(status.uptime_s.max(0.0) as u64),
        status.os_pid,
        status.home,
        listening(status),
        status.lsn,
    );
    if let Some(fault) = &status.altered {
        let fault = clean_line(fault);
        text.push_str(&format!("           ALTERED: {fault}; `aos audit verify` proves all of it\n"));
    }
    if let Some(seconds) = status.ahead_s {
        text.push_str(&format!("time       {}\n", ahead(seconds).replace('\n', "\n           ")));
    }
    if !status.changed.is_empty() {
        text.push_str(&format!("changed    since the start before: {}\n", status.changed.join(", ")));
    }
    if !status.policy.generation.is_empty() {
        text.push_str(&format!("policy     generation {}\n", status.policy.generation));
    }
    if !status.policy.refused.is_empty() {
        text.push_str("           policy.yaml was changed and cannot be used; that generation holds on:\n");
        status.policy.refused.iter().for_each(|fault| text.push_str(&format!("           {}\n", clean_line(fault))));
    }
    for (place, lack) in status.lacks.iter().enumerate() {
        let label = if place == 0 { "commands" } else { "" };
        text.push_str(&format!("{label:<9}  are refused, since this host lacks {}\n", clean_line(lack)));
    }
    let states: Vec<String> = status
        .processes
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    text.push_str(&format!("processes  {}\n", if states.is_empty() { "none".into() } else { states.join(", ") }));
    for (place, (model, slots)) in status.model_slots.iter().enumerate() {
        let label = if place == 0 { "models" } else { "" };
        text.push_str(&format!(
            "{label:<9}  {model}: {} of {} in use, {} waiting\n",
            slots.used, slots.limit, slots.waiting
        ));
    }
    text
}
