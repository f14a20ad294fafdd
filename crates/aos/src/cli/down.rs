//! `aos down`.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Context, Exit, Failure};
use crate::client::Address;

/// How long the daemon may take to finish what it must.
const DOWN_WITHIN: Duration = Duration::from_secs(30);

/// Stop the daemon in good order; agents go on when it starts again
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client_without_start();
        let was_up = client.is_up().await?;
        if was_up {
            client.post_quiet(&Address::of("/v1/admin/shutdown"), &serde_json::json!({})).await?;
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
