//! `aos attach`.

use aos_abi::Pid;

use super::run::Session;
use super::{Context, Exit, Failure};

/// Connect this terminal to a process: its output here, your lines to its input
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos attach 7\n  echo \"what is new?\" | aos attach 7\n\n\
Ctrl-C or Ctrl-D detaches; the process goes on. Where it ends, the exit code is its own.\n\
In a pipe, each line is sent; at the end of the input it detaches once the process has answered,\n\
or, where the process has one task, tells it so and shows it to its end.")]
pub struct Args {
    /// Which
    pid: Pid,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        Session::of_attach(cx, client, self.pid).await?.until_the_end().await
    }
}
