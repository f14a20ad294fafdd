//! `aos kill`.

use aos_abi::api::{GroupSignalled, SignalRequest};
use aos_abi::{Pid, Signal};

use super::run::named;
use super::{Context, Exit, Failure, view};
use crate::client::Address;

/// End processes: TERM gives one last turn and 5 s, then KILL
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos kill 7\n  aos kill -s KILL --tree 7 8\n  aos kill --group nightly")]
pub struct Args {
    /// TERM, KILL, STOP or CONT
    #[arg(short, long, default_value = "TERM")]
    signal: Signal,
    #[command(flatten)]
    whom: Whom,
}

/// Whom a signal goes to.
#[derive(Debug, clap::Args)]
pub(super) struct Whom {
    /// Which
    #[arg(required = true, conflicts_with = "group")]
    pid: Vec<Pid>,
    /// In place of pids, every living process of this group
    #[arg(long, value_name = "NAME", value_parser = named)]
    group: Option<String>,
    /// All their descendants too
    #[arg(long)]
    tree: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        send(cx, &self.whom, self.signal).await
    }
}

/// Sends a signal to each; where one fails the others get it all the same, and the first failure is told.
pub(super) async fn send(cx: &Context, whom: &Whom, signal: Signal) -> Result<Exit, Failure> {
    let client = cx.client()?;
    if let Some(group) = &whom.group {
        let address = Address::of("/v1/groups").then(group).then("signal");
        let signalled: GroupSignalled = client.post(&address, &SignalRequest { signal, tree: whom.tree }).await?;
        if cx.json {
            cx.document(&signalled)?;
        }
        return Ok(Exit::Success);
    }
    let mut first = None;
    for pid in &whom.pid {
        match view::signal(&client, *pid, signal, whom.tree).await {
            Ok(accepted) if cx.json => cx.document(&accepted)?,
            Ok(_) => {}
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    first.map_or(Ok(Exit::Success), Err)
}
