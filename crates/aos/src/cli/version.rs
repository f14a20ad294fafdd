//! `aos version`.

use super::{Context, Exit, Failure};

/// Print the version of this program
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        if cx.json {
            cx.document(&serde_json::json!({ "version": version }))?;
        } else {
            cx.print(&format!("aos {version}\n"))?;
        }
        Ok(Exit::Success)
    }
}
