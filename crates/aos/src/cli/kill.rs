//! `aos kill`.

use aos_abi::{Pid, Signal};

use super::{Context, Exit, Failure, view};

/// End processes: TERM gives one last turn and 5 s, then KILL
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos kill 7\n  aos kill -s KILL --tree 7 8")]
pub struct Args {
    /// Which
    #[arg(required = true)]
    pid: Vec<Pid>,
    /// TERM, KILL, STOP or CONT
    #[arg(short, long, default_value = "TERM")]
    signal: Signal,
    /// All their descendants too
    #[arg(long)]
    tree: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        send(cx, &self.pid, self.signal, self.tree).await
    }
}

/// Sends a signal to each; where one fails the others get it all the same, and the first failure is told.
pub(super) async fn send(cx: &Context, pids: &[Pid], signal: Signal, tree: bool) -> Result<Exit, Failure> {
    let client = cx.client()?;
    let mut first = None;
    for pid in pids {
        match view::signal(&client, *pid, signal, tree).await {
            Ok(accepted) if cx.json => cx.document(&accepted)?,
            Ok(_) => {}
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    first.map_or(Ok(Exit::Success), Err)
}
