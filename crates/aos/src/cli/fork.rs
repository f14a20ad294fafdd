//! `aos fork`.

use aos_abi::api::{Accepted, ForkRequest};
use aos_abi::{Lsn, Pid};

use super::run::named;
use super::{Context, Exit, Failure, view};

/// Start a second process from the past of a first one; prints its pid
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos fork 7\n  aos logs 7 --events\n  aos fork 7 --at 214 --name again\n\n\
It has the words of the first one up to EVENT, its rights and its limits, unused. Its files are a\ncopy of those of the \
first one as they are now, also with --at: what was written after EVENT is\nin them, and the agent is told so. Timers, watches, \
webhooks and the first one's own memory stay\nwith the first one.")]
pub struct Args {
    /// From which
    pid: Pid,
    /// The last event it has lived through, by the number that `aos logs --events` shows; the newest if left out
    #[arg(long, value_name = "EVENT", value_parser = event)]
    at: Option<Lsn>,
    /// The new process's name
    #[arg(long, value_parser = named)]
    name: Option<String>,
}

/// Reads the number of an event.
pub(super) fn event(text: &str) -> Result<Lsn, String> {
    text.parse().map(Lsn).map_err(|_| "an event's number stands first in `aos logs PID --events`".to_owned())
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let request = ForkRequest { at: self.at, name: self.name };
        let accepted: Accepted = cx.client()?.post(&view::process(self.pid).then("fork"), &request).await?;
        if cx.json {
            cx.document(&accepted)?;
        } else {
            cx.print(&format!("{}\n", accepted.pid))?;
            if let Some(at) = self.at {
                cx.note(&format!(
                    "its files are a copy of those of process {} as they are now, not as of event {at}",
                    self.pid
                ));
            }
        }
        Ok(Exit::Success)
    }
}
