//! `aos restore`.

use std::path::PathBuf;

use super::progress::Progress;
use super::{Context, Exit, Failure, now};
use crate::archive;

/// Put back what `aos backup` wrote; the daemon must be down
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos down && aos restore monday.aos --force\n  aos --home /tmp/other restore monday.aos\n\n\
Every file is compared with the list in the copy before anything is changed. Whoever can write the\n\
copy can write its list, too: --expect takes the one for which `aos backup` printed that hash."
)]
pub struct Args {
    /// The copy
    file: PathBuf,
    /// Replace what is there; it is kept beside, in a folder replaced-TIME
    #[arg(long)]
    force: bool,
    /// The SHA-256 that `aos backup` printed: with another one nothing is changed
    #[arg(long, value_name = "HASH", value_parser = hash)]
    expect: Option<String>,
}

fn hash(text: &str) -> Result<String, String> {
    let hash = text.trim();
    let whole = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| hash.to_owned()).ok_or_else(|| "64 hex digits, as `aos backup` prints them".to_owned())
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        cx.home.make_private()?;
        if cx.client_without_start().is_up().await? {
            return Err(Failure::new("the daemon runs, and has the home to itself").hint("aos down, then again"));
        }
        let journal = cx.home.journal_file();
        if journal.exists() && !self.force {
            return Err(Failure::new(format!("{} is there already", journal.display()))
                .why("everything in this home would be replaced by the copy")
                .hint("add --force; what is there is then kept beside, in a folder replaced-TIME"));
        }
        let mut progress = Progress::new(cx);
        let expected = self.expect.as_deref();
        let restored =
            archive::restore(&self.file, &cx.home, now(), expected, &mut |what, bytes| progress.tell(what, bytes));
        drop(progress);
        let restored = restored.map_err(|error| {
            Failure::new(format!("cannot restore {}", self.file.display())).why(error.to_string()).hint(error.hint())
        })?;
        let manifest = &restored.manifest;
        if cx.json {
            cx.document(&serde_json::json!({
                "last_lsn": manifest.last_lsn, "entries": manifest.entries, "files": manifest.files(),
                "made_at": manifest.at, "sha256": restored.sha256, "replaced": restored.replaced,
                "left_out": restored.left_out, "finished": restored.finished,
            }))?;
            return Ok(Exit::Success);
        }
        cx.note(&format!(
            "restored {} entries and {} files, as of {}",
            manifest.entries,
            manifest.files(),
            manifest.at
        ));
        for left in &restored.left_out {
            cx.note(&format!("left out {}: {}", super::backup::shown(&left.path), left.why));
        }
        cx.note("folders of yours are as they were; what came into them since then counts as clean: look at it first");
        for folder in &restored.finished {
            let what = "a change that was under way when the daemon stopped was brought to its end, and is not undone from here";
            cx.note(&format!("but in {} {what}", folder.display()));
        }
        for folder in &restored.replaced {
            cx.note(&format!("what was there is in {}; remove it when you need it no more", folder.display()));
        }
        Ok(Exit::Success)
    }
}
