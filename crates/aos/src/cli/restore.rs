//! `aos restore`.

use std::path::PathBuf;

use super::{Context, Exit, Failure};

/// Put a copy made by `aos backup` in the place of the journal; the daemon must be down
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The copy
    file: PathBuf,
    /// Replace the journal that is there; it is kept beside, as journal.db.replaced
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        if cx.client_without_start().is_up().await? {
            return Err(Failure::new("the daemon runs, and has the journal to itself").hint("aos down, then again"));
        }
        let journal = cx.home.journal_file();
        if journal.exists() && !self.force {
            return Err(Failure::new(format!("{} is there already", journal.display()))
                .why("it would be replaced by the copy")
                .hint("add --force; it is then kept beside, as journal.db.replaced"));
        }
        cx.home.create()?;
        let report = aos_journal::restore(&self.file, &journal).map_err(|error| {
            Failure::new(format!("cannot restore {}", self.file.display())).why(error.to_string()).hint(error.hint())
        })?;
        if cx.json {
            cx.document(&serde_json::json!({ "last_lsn": report.last, "entries": report.entries }))?;
        } else {
            cx.note(&format!("restored {} entries, the last is {}", report.entries, report.last));
        }
        Ok(Exit::Success)
    }
}
