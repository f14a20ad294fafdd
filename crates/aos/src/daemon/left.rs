//! What a start puts away because the journal knows nothing of it: under a name that nothing takes for its own, where a person
//! can look at it, and deleted at a later start when nobody has for long.

use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How such names begin.
const PREFIX: &str = ".left-";

/// How long it stays, in days, and as a time: long enough for whoever restored a home to notice what is missing.
pub(super) const DAYS: u64 = 30;
const STAYS: Duration = Duration::from_secs(DAYS * 24 * 3600);

/// Gives what was found a name of its own in a folder, such as `.left-7-1`; `None` where no name is free.
pub(super) fn put(found: &Path, folder: &Path, what: impl Display) -> io::Result<Option<PathBuf>> {
    let mut places = (1u32..).map(|nth| folder.join(format!("{PREFIX}{what}-{nth}")));
    let Some(away) = places.find(|away| away.symlink_metadata().is_err()) else { return Ok(None) };
    std::fs::rename(found, &away)?;
    Ok(Some(away))
}

/// Deletes what was put away longer ago, or changed since, than [`DAYS`] and of which this says that nobody needs it.
pub(super) fn sweep(folder: &Path, now: SystemTime, may: impl Fn(&Path) -> bool) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !named || !is_old(&path, now) || !may(&path) {
            continue;
        }
        match aos_sandbox::delete(&path) {
            Ok(()) => tracing::info!(folder = %path.display(), days = DAYS, "what was put away was deleted"),
            Err(error) => tracing::warn!(folder = %path.display(), %error, "what was put away could not be deleted"),
        }
    }
}

/// Whether it has its name since before that time. Nobody can set this one back, and a change of it begins anew.
fn is_old(path: &Path, now: SystemTime) -> bool {
    let since = path.symlink_metadata().ok().and_then(|meta| u64::try_from(meta.ctime()).ok());
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.is_some_and(|since| Duration::from_secs(since) + STAYS < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing ever deleted it.
    #[test]
    fn what_was_put_away_goes_when_nobody_has_asked_for_it_for_long() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["7", "8", "other"] {
            std::fs::create_dir_all(folder.path().join(name).join("deep")).unwrap();
        }
        let put = |name: &str| put(&folder.path().join(name), folder.path(), name).unwrap().unwrap();
        let (one, needed) = (put("7"), put("8"));
        assert_eq!(one, folder.path().join(".left-7-1"));
        std::fs::create_dir(folder.path().join("7")).unwrap();
        assert_eq!(put("7"), folder.path().join(".left-7-2"), "a second one has its own");
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), "theirs").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join(".left-9-1")).unwrap();

        let in_days = |days: u64| SystemTime::now() + Duration::from_secs(days * 24 * 3600);
        let swept = |now| sweep(folder.path(), now, |path| path != needed);
        swept(in_days(DAYS - 1));
        assert!(one.exists(), "a person may still look at it");
        swept(in_days(DAYS + 1));
        let mut left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".left-8-1", "other"], "what is needed, and what was never put away");
        assert!(outside.path().join("file").exists(), "of a link only the link goes");
    }
}
