//! `aos attach`.

use aos_abi::Pid;

use super::run::Session;
use super::{Context, Exit, Failure};

/// Connect this terminal to a process: its output here, your lines to its input
#[derive(Debug, clap::Args)]
#[command(after_help = "Ctrl-C or Ctrl-D detaches; the process goes on. Where it ends, the exit code is its own.")]
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
