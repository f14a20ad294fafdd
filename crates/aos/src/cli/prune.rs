//! `aos prune`.

use aos_abi::api::{PruneRequest, PruneView};

use super::{Context, Exit, Failure, now, of, when};
use crate::client::Address;

/// Take processes that have ended out of the journal; a sealed mark in the chain says so
///
/// Their workspaces go with them, and what only they remember. Without --before all go that have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos prune --before 30d --dry-run\n  aos prune --before 2026-01-01")]
pub struct Args {
    /// Only those that ended before then: 30d ago, 2026-01-01, 2026-01-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let before = self.before.map(|text| when::moment(&text, now())).transpose().map_err(when::wrong)?;
        let request = PruneRequest { before, dry_run: self.dry_run };
        let pruned: PruneView = cx.client()?.post_long(&Address::of("/v1/admin/prune"), &request).await?;
        if cx.json {
            cx.document(&pruned)?;
        } else {
            let verb = if pruned.dry_run { "would take" } else { "took" };
            cx.line(&format!(
                "{verb} {} with {} out of the journal, with their workspaces and what only they remember",
                of(pruned.pids.len() as u64, "process"),
                of(pruned.entries, "entry")
            ))?;
        }
        Ok(Exit::Success)
    }
}
