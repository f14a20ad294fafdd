//! `aos down`.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Context, Exit, Failure};
use crate::client::Address;
use crate::home::Holder;

/// How long the daemon may take to finish what it must.
const DOWN_WITHIN: Duration = Duration::from_secs(30);

/// Stop the daemon in good order; agents go on when it starts again
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client_without_start();
        let answers = client.is_up().await?;
        let was_up = answers || cx.home.holds_journal();
        if was_up {
            match answers {
                true => {
                    client.post_quiet(&Address::of("/v1/admin/shutdown"), &serde_json::json!({})).await?;
                }
                false => end_unseen(cx)?,
            }
            let until = Instant::now() + DOWN_WITHIN;
            while client.is_up().await? || cx.home.holds_journal() {
                if Instant::now() >= until {
                    return Err(Failure::new(format!("the daemon is still running after {} s", DOWN_WITHIN.as_secs()))
                        .hint(format!("read {}", cx.home.daemon_log().display())));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        if cx.json {
            cx.document(&serde_json::json!({ "stopped": was_up }))?;
        } else {
            cx.note(if was_up { "the daemon has stopped" } else { "no daemon was running" });
        }
        Ok(Exit::Success)
    }
}

/// Ends a daemon that nobody can connect to: its socket was removed, or it has none yet.
fn end_unseen(cx: &Context) -> Result<(), Failure> {
    let lock = cx.home.journal_lock();
    let Some(holder) = Holder::of(&cx.home) else {
        // Who held it may have ended meanwhile.
        return if cx.home.holds_journal() {
            let holds =
                format!("no daemon answers, and {} is locked by a process that is not seen here", lock.display());
            Err(Failure::new(holds)
                .hint("look for it where else this home is used: in a container, say, or on another machine"))
        } else {
            Ok(())
        };
    };
    let os_pid = holder.os_pid;
    if !holder.is_daemon {
        return Err(Failure::new(format!("no daemon runs, and process {os_pid} works on the home: a restore, say"))
            .hint(format!("wait until it has ended; `ps -p {os_pid}` shows it")));
    }
    cx.note(&format!("the daemon answers on no socket; process {os_pid} is told to end"));
    holder.end().map_err(|error| {
        Failure::new(format!("process {os_pid} cannot be told to end"))
            .why(error.to_string())
            .hint(format!("as its user: `kill {os_pid}`"))
    })
}
