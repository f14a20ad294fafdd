//! `aos backup`.

use std::path::{Path, PathBuf};

use aos_abi::api::BackupRequest;

use super::{Context, Exit, Failure};
use crate::client::Address;

/// Write a consistent copy of the journal, also while agents run
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos backup monday.aos\n  aos down && aos restore monday.aos --force")]
pub struct Args {
    /// Where; nothing may be there yet
    file: PathBuf,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let file = absolute(&self.file)?;
        if Path::new(&file).exists() {
            return Err(
                Failure::new(format!("{file} is there already")).hint("choose another name, or remove it first")
            );
        }
        cx.client()?.post_quiet(&Address::of("/v1/admin/backup"), &BackupRequest { file: file.clone() }).await?;
        if cx.json {
            let bytes = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
            cx.document(&serde_json::json!({ "file": file, "bytes": bytes }))?;
        } else {
            cx.note(&format!("wrote {file}"));
        }
        Ok(Exit::Success)
    }
}

/// A path as the daemon needs it, which does not know this folder.
pub(super) fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::new("no working folder").why(error.to_string()))?;
    absolute.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("the path {} is not UTF-8", path.display())).hint("give it a plain name")
    })
}
