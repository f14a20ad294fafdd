//! `aos top`: the processes live, full screen.
//!
//! Start at [`Args::perform`]. `state` is what is known, `update` how it changes, `render` how it looks, `proposal` how one
//! that is looked at does, `denials` how what was denied does, `past` reads what a process did before, `undo` how what can be taken back does, `page` what these have in
//! common; all others are pure, and `screen` is the one place with a terminal. What always holds: the table is read once and then
//! kept by the stream of events; at most ten frames a second, and none without a change; the terminal is restored however
//! it ends.

mod denials;
mod page;
mod past;
mod proposal;
mod render;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod undo;
mod update;

use std::io::IsTerminal as _;

use aos_abi::process::{ProcessView, StatusView};

use crate::cli::{Context, Exit, Failure};
use crate::client::Address;

/// Watch the processes live, full screen
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: arrows move, s sorts, / filters, k kills, p pauses and resumes, Enter shows the proposal of a\nprocess, where a approves, A all of its tree that ask the very same, and r rejects; d lists what\nwas denied, where Enter shows one whole: a lets it happen once, p for the process, g shows the\ngrants for the role and y writes them, r dismisses it; u shows what can be taken back, and what\nthat would do; ? helps, q quits. With --json the picture of this moment is printed as one document."
)]
pub struct Args {}

impl Args {
    /// Runs until the person leaves.
    ///
    /// # Errors
    /// Where the daemon or the terminal cannot be had.
    pub async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        if cx.json {
            let status: StatusView = client.get(&Address::of("/v1/status")).await?;
            let processes: Vec<ProcessView> = client.get(&Address::of("/v1/processes")).await?;
            cx.document(&serde_json::json!({ "status": status, "processes": processes }))?;
            return Ok(Exit::Success);
        }
        if !std::io::stdout().is_terminal() || !cx.in_terminal {
            return Err(Failure::usage("aos top needs a terminal").hint("aos ps, or aos top --json"));
        }
        screen::show(client, &cx.home.policy_file()).await
    }
}
