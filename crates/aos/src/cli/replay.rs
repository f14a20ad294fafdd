//! `aos replay`.

use aos_abi::api::ReplayView;
use aos_abi::{Lsn, Pid};

use super::fork::event;
use super::{Context, Exit, Failure, view};

/// Make a process's decisions again, offline, and say where they differ from what was recorded
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose
    pid: Pid,
    /// Only up to this event
    #[arg(long, value_name = "EVENT", value_parser = event)]
    at: Option<Lsn>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let address = view::process(self.pid).then("replay").with_some("at", self.at);
        let replay: ReplayView = cx.client()?.get_long(&address).await?;
        let exit = if replay.difference.is_none() { Exit::Success } else { Exit::Failed };
        if cx.json {
            cx.document(&replay)?;
            return Ok(exit);
        }
        match &replay.difference {
            None => {
                let after = match replay.after {
                    Lsn::ZERO => String::new(),
                    after => format!(" after event {after}, with which this version began or a prune left it"),
                };
                cx.line(&format!(
                    "the same: {} decisions came out as recorded from {} inputs{after}",
                    replay.facts, replay.inputs
                ))?;
            }
            Some(difference) => {
                let text = |value: &Option<serde_json::Value>| {
                    value.as_ref().map_or_else(|| "nothing".to_owned(), serde_json::Value::to_string)
                };
                cx.line(&format!(
                    "different at event {}, after {} decisions that were the same\nrecorded  {}\nnow       {}",
                    difference.lsn,
                    replay.facts,
                    text(&difference.recorded),
                    text(&difference.now)
                ))?;
            }
        }
        Ok(exit)
    }
}
