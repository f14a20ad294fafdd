//! What a start puts away because the journal knows nothing of it: under a name that nothing takes for its own, where a person
//! can look at it, and deleted at a later start when nobody has for long.
//!
//! Start at [`put`] and [`sweep`]. What always holds: its time counts from a mark beside it, which is written when it is said
//! in the log that it is there; what has no mark is never deleted, and nothing is in the start that wrote its mark.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aos_abi::Timestamp;

use crate::home::Home;

/// How such names begin.
const PREFIX: &str = ".left-";
/// How the name of its mark ends, in which stands since when it is there, in seconds since 1970.
const SINCE: &str = ".since";

/// How long it stays, in days, and in seconds: long enough for whoever restored a home to notice what is missing.
pub(super) const DAYS: u64 = 30;
const STAYS: u64 = DAYS * 24 * 3600;
/// The beginning of 2025. A clock that says less was not set yet, and a mark of it is none.
const SET: u64 = 1_735_689_600;

/// Gives what was found a name of its own in a folder, such as `.left-7-1`; `None` where no name is free.
pub(super) fn put(found: &Path, folder: &Path, what: impl Display, now: SystemTime) -> io::Result<Option<PathBuf>> {
    let mut places = (1u32..).map(|nth| folder.join(format!("{PREFIX}{what}-{nth}")));
    // A mark whose folder somebody took is no other's.
    let is_free = |away: &PathBuf| [away, &mark_of(away)].iter().all(|path| path.symlink_metadata().is_err());
    let Some(away) = places.find(is_free) else { return Ok(None) };
    // Where this fails, the first look at it does it.
    let _ = mark(&away, seconds(now));
    std::fs::rename(found, &away)?;
    Ok(Some(away))
}

/// Deletes what was put away longer ago than [`DAYS`] and of which this says that nobody needs it.
pub(super) fn sweep(folder: &Path, now: SystemTime, may: impl Fn(&Path) -> bool) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if let Some(of) = name.strip_suffix(SINCE) {
            let gone = folder.join(of).symlink_metadata();
            if gone.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                let _ = std::fs::remove_file(&path);
            }
            continue;
        }
        if !may(&path) || !is_over(&path, seconds(now)) {
            continue;
        }
        match aos_sandbox::delete(&path) {
            Ok(()) => {
                tracing::info!(folder = %path.display(), days = DAYS, "what was put away was deleted");
                // Where this fails, the next start does it.
                let _ = std::fs::remove_file(mark_of(&path));
            }
            Err(error) => tracing::warn!(folder = %path.display(), %error, "what was put away could not be deleted"),
        }
    }
}

/// Whether its time is over. Where no mark says since when it counts, as of what an older version put away, or one of a time
/// that is to come, it begins now.
fn is_over(path: &Path, now: u64) -> bool {
    let since = std::fs::read_to_string(mark_of(path)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(since) = since.filter(|since| (SET..=now).contains(since)) {
        return now - since > STAYS;
    }
    let until = Timestamp(0).plus_millis((now + STAYS).saturating_mul(1000));
    match mark(path, now) {
        Ok(()) => tracing::warn!(
            folder = %path.display(), %until,
            "what an earlier start put away is deleted after that date unless it is moved elsewhere"
        ),
        Err(error) => {
            tracing::warn!(folder = %path.display(), %error, "what was put away could not be marked, and stays")
        }
    }
    false
}

/// Where since when something is there stands, beside it.
fn mark_of(away: &Path) -> PathBuf {
    let mut name = away.as_os_str().to_owned();
    name.push(SINCE);
    name.into()
}

fn mark(away: &Path, now: u64) -> Result<(), crate::home::Error> {
    Home::write_private(&mark_of(away), &format!("{now}\n"))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since: Duration| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_days(days: u64) -> SystemTime {
        SystemTime::now() + Duration::from_secs(days * 24 * 3600)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut left: Vec<_> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }

    /// Nothing ever deleted it.
    #[test]
    fn what_was_put_away_goes_when_nobody_has_asked_for_it_for_long() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["7", "8", "other"] {
            std::fs::create_dir_all(folder.path().join(name).join("deep")).unwrap();
        }
        let put = |name: &str| put(&folder.path().join(name), folder.path(), name, in_days(0)).unwrap().unwrap();
        let (one, needed) = (put("7"), put("8"));
        assert_eq!(one, folder.path().join(".left-7-1"));
        std::fs::create_dir(folder.path().join("7")).unwrap();
        assert_eq!(put("7"), folder.path().join(".left-7-2"), "a second one has its own");
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), "theirs").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("9")).unwrap();
        put("9");

        let swept = |now| sweep(folder.path(), now, |path| path != needed);
        swept(in_days(DAYS - 1));
        assert!(one.exists(), "a person may still look at it");
        swept(in_days(DAYS + 1));
        let left = [".left-8-1", ".left-8-1.since", "other"];
        assert_eq!(names(folder.path()), left, "what is needed, and what was never put away");
        assert!(outside.path().join("file").exists(), "of a link only the link goes");
    }

    /// What an older version had put away went at the first start of this one, and nobody had been told of it.
    #[test]
    fn what_has_no_mark_stays_for_as_long_from_when_it_is_seen_first() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join(".left-9-1");
        std::fs::create_dir(&old).unwrap();
        let swept = |now| sweep(folder.path(), now, |_| true);
        let first = DAYS + 1;
        swept(in_days(first));
        assert_eq!(names(folder.path()), [".left-9-1", ".left-9-1.since"]);
        swept(in_days(first + DAYS - 1));
        assert!(old.exists());
        swept(in_days(first + DAYS + 1));
        assert_eq!(names(folder.path()), Vec::<String>::new(), "its mark goes with it");
    }

    #[test]
    fn a_mark_that_no_right_clock_wrote_begins_anew() {
        for wrong in [seconds(in_days(100)).to_string(), "17".to_owned(), String::new(), "soon".to_owned()] {
            let folder = tempfile::tempdir().unwrap();
            let old = folder.path().join(".left-9-1");
            std::fs::create_dir(&old).unwrap();
            std::fs::write(mark_of(&old), &wrong).unwrap();
            let swept = |now| sweep(folder.path(), now, |_| true);
            swept(in_days(0));
            swept(in_days(DAYS - 1));
            assert!(old.exists(), "{wrong:?}");
            swept(in_days(DAYS + 1));
            assert!(!old.exists(), "{wrong:?}");
        }
    }

    #[test]
    fn a_mark_whose_folder_somebody_took_is_no_other_s() {
        let folder = tempfile::tempdir().unwrap();
        for nth in [1, 2] {
            std::fs::create_dir(folder.path().join("7")).unwrap();
            let away = put(&folder.path().join("7"), folder.path(), 7, in_days(0)).unwrap().unwrap();
            assert_eq!(away, folder.path().join(format!(".left-7-{nth}")));
            std::fs::remove_dir(&away).unwrap();
        }
        sweep(folder.path(), in_days(0), |_| true);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
