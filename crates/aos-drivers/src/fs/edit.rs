//! `FS_EDIT`: exact replacements in a text file, all of them or none.

use std::io::Read;
use std::time::Duration;

use aos_abi::limits;
use aos_abi::syscall::{Edit, FsEdit};
use serde_json::{Value, json};

use super::error::Error;
use super::keep::{Keeper, replace};
use super::path::Beneath;
use super::workspace::{Missing, Workspace, file_in, look};

/// Largest file that is edited, in bytes: what one call's arguments could write anew.
const EDITED_BYTES_MAX: u64 = limits::ARGS_BYTES_MAX as u64;
/// Longest diff that is returned, in bytes.
const DIFF_BYTES_MAX: usize = limits::FS_READ_BYTES_MAX;
/// Time after which the diff may become coarser, but still true.
const DIFF_EXACT: Duration = Duration::from_millis(500);

/// Applies the edits in order, each to what the ones before it made, and puts the file back whole. The caller holds the
/// path's lock; a change by somebody else (a command, a person) between reading and writing is noticed and refused.
pub(super) fn edit(
    workspace: &Workspace<'_>,
    args: &FsEdit,
    path: &Beneath,
    keeper: &mut Keeper<'_>,
) -> Result<Value, Error> {
    let (folder, name) = workspace.parent(path, Missing::Fail)?;
    // Through the workspace, not through the folder: its errors say where a link leads.
    let (file, before) = workspace.file(path)?;
    let size = u64::try_from(before.st_size).unwrap_or(0);
    let too_large = |size| Error::TooLarge { path: path.as_str().to_owned(), size, max: EDITED_BYTES_MAX };
    if size > EDITED_BYTES_MAX {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    file.take(EDITED_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::io(path.as_str()))?;
    let old = String::from_utf8(bytes)
        .map_err(|error| Error::NotText { path: path.as_str().to_owned(), at: error.utf8_error().valid_up_to() })?;
    let new = apply(&old, &args.edits, path.as_str())?;
    if new.len() as u64 > EDITED_BYTES_MAX {
        return Err(too_large(new.len() as u64));
    }
    let changed = || Error::Changed { path: path.as_str().to_owned() };
    let now = look(&folder, name, path.as_str())?.ok_or_else(changed)?;
    let seen = |stat: &rustix::fs::Stat| {
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
    };
    if seen(&now) != seen(&before) || file_in(&folder, name, path.as_str()).is_err() {
        return Err(changed());
    }
    if keeper.keeps() {
        keeper.put(path, new.as_bytes(), Some(&before))?;
    } else {
        replace(&folder, name, new.as_bytes(), Some(&before), path.as_str())?;
    }
    let (diff, truncated) = diff(&old, &new, path.as_str());
    let mut result = json!({ "diff": diff });
    if truncated {
        result["truncated"] = true.into();
    }
    Ok(result)
}

pub(super) fn apply(text: &str, edits: &[Edit], path: &str) -> Result<String, Error> {
    if edits.is_empty() {
        return Err(Error::NoEdits);
    }
    let mut text = text.to_owned();
    for (nth, edit) in edits.iter().enumerate() {
        if edit.old.is_empty() {
            return Err(Error::EmptyOld { nth });
        }
        let (first, count) = occurrences(&text, &edit.old);
        match first {
            Some(at) if count == 1 => text.replace_range(at..at + edit.old.len(), &edit.new),
            _ => return Err(Error::Occurs { path: path.to_owned(), nth, count }),
        }
        if text.len() as u64 > EDITED_BYTES_MAX {
            // Before the next edit doubles it once more.
            return Err(Error::TooLarge { path: path.to_owned(), size: text.len() as u64, max: EDITED_BYTES_MAX });
        }
    }
    Ok(text)
}

/// Where a text first occurs and how often, counting occurrences that overlap: `aa` is in `aaa` twice, and which one
/// was meant is as unclear as with two apart. Counts to 100 at most.
fn occurrences(text: &str, sought: &str) -> (Option<usize>, usize) {
    let (mut first, mut count, mut from) = (None, 0, 0);
    let step = sought.chars().next().map_or(1, char::len_utf8);
    while let Some(at) = text[from..].find(sought) {
        first.get_or_insert(from + at);
        count += 1;
        if count == 100 {
            break;
        }
        from += at + step;
    }
    (first, count)
}

/// A unified diff, and whether it was cut.
pub(super) fn diff(old: &str, new: &str, path: &str) -> (String, bool) {
    let mut diff = similar::TextDiff::configure()
        .timeout(DIFF_EXACT)
        .diff_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let truncated = diff.len() > DIFF_BYTES_MAX;
    if truncated {
        diff.truncate(diff.floor_char_boundary(DIFF_BYTES_MAX));
    }
    (diff, truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_occurrences_count() {
        assert_eq!(occurrences("aaa", "aa"), (Some(0), 2));
        assert_eq!(occurrences("ééx", "éx"), (Some(2), 1));
        assert_eq!(occurrences("abc", "d"), (None, 0));
        assert_eq!(occurrences(&"a".repeat(1000), "a"), (Some(0), 100));
    }
}
