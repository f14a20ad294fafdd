//! `aos backup`.

use std::path::{Path, PathBuf};

use super::progress::Progress;
use super::{Context, Exit, Failure, now, size};
use crate::archive;
use crate::mounts::Mounts;

/// Write a consistent copy of everything in the home, also while agents run
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos backup monday.aos\n  aos down && aos restore monday.aos --force\n\n\
The copy holds the journal, memory, workspaces, policy.yaml and aos.toml, and a list with the\n\
checksum of each file. It is a tar file that no other user can read. Agents run as you: it is not\n\
written into a folder that one works on or is shown. Its SHA-256 is printed; keep that elsewhere.")]
pub struct Args {
    /// Where; nothing may be there yet
    file: PathBuf,
}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let file = absolute(&self.file)?;
        let failed = |error: archive::Error| {
            Failure::new(format!("cannot back up to {file}")).why(error.to_string()).hint(error.hint())
        };
        for unknown in archive::look(&cx.home, &Mounts::new(&cx.home, &cx.env), Path::new(&file)).map_err(failed)? {
            cx.note(&format!("{unknown}; see that no agent is shown {file}"));
        }
        let mut progress = Progress::new(cx);
        // Here and not in the daemon: it needs none, so that a home whose daemon does not start can be saved, too.
        let written = archive::write(&cx.home, Path::new(&file), now(), &mut |what, bytes| progress.tell(what, bytes));
        drop(progress);
        let archive::Whole { manifest, sha256 } = written.map_err(failed)?;
        let bytes = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        if cx.json {
            cx.document(&serde_json::json!({
                "file": file, "bytes": bytes, "sha256": sha256, "files": manifest.files(), "entries": manifest.entries,
                "last_lsn": manifest.last_lsn, "left_out": manifest.left_out,
            }))?;
            return Ok(Exit::Success);
        }
        cx.note(&format!("wrote {file}: {} entries, {} files, {}", manifest.entries, manifest.files(), size(bytes)));
        for left in &manifest.left_out {
            cx.note(&format!("left out {}: {}", shown(&left.path), left.why));
        }
        cx.note("keep this elsewhere, to prove it later with aos restore --expect:");
        // As sha256sum writes it, which can then compare it, too.
        cx.line(&format!("{sha256}  {file}"))?;
        Ok(Exit::Success)
    }
}

/// A path as one can look at it: of one that is very long both ends.
pub(super) fn shown(path: &str) -> String {
    const END: usize = 100;
    let chars = path.chars().count();
    if chars <= 3 * END {
        return path.to_owned();
    }
    let (first, last): (String, String) = (path.chars().take(END).collect(), path.chars().skip(chars - END).collect());
    format!("{first}…{last}")
}

/// A path as the daemon needs it, which does not know this folder.
pub(super) fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::new("no working folder").why(error.to_string()))?;
    absolute.into_os_string().into_string().map_err(|path| {
        Failure::usage(format!("the path {} is not UTF-8", path.display())).hint("give it a plain name")
    })
}
