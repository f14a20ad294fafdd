//! Folders of the host that processes work on: how they are named, and copied.
//!
//! What always holds: links are copied as links and never followed. Deliberately absent: what a process changes in them,
//! which is `undo`'s affair.

use std::path::{Path, PathBuf};

use aos_abi::Pid;
use aos_gateway::ApiError;

/// Links followed at most, as the system does.
const LINKS_MAX: usize = 40;

/// The symbolic links that a path leads through, each by its real path, and the real path to which they lead.
pub(crate) fn followed(path: &Path) -> (Vec<PathBuf>, PathBuf) {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut found, mut at, mut rest) = (Vec::new(), PathBuf::new(), parts(&path));
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        // What begins at the root begins anew.
        let next = at.join(part);
        match std::fs::read_link(&next) {
            Ok(leads) if found.len() < LINKS_MAX => {
                rest.extend(parts(&leads));
                found.push(next);
            }
            _ => at = next,
        }
    }
    (found, at)
}

/// Copies a workspace for a fork: files and folders; links are copied as links. Holes and names of one file stay what they
/// are, so a copy takes no more of the disk than what it is of. However deep it is, one folder is open at a time.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut copies = aos_sandbox::Copies::default();
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        std::fs::create_dir_all(&to)?;
        let listing = match std::fs::read_dir(&from) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for found in listing {
            let found = found?;
            let (source, target) = (found.path(), to.join(found.file_name()));
            let kind = found.file_type()?;
            if kind.is_dir() {
                open.push((source, target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(&source)?, &target)?;
            } else if kind.is_file() {
                // What is sent along to a dry run takes the place of what the folder has, also of a link.
                match std::fs::remove_file(&target) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                    _ => copies.file(&source, &target)?,
                }
            }
        }
    }
    Ok(())
}

/// Puts away what stands where the workspaces of processes will be that are not born yet, as a stop in the middle of a
/// fork or a dry run leaves it, or a journal whose end is lost: nothing would be known of what those files carry. Copies
/// that such a stop left half made go.
pub(crate) fn put_away(workspaces: &Path, next: Pid) -> std::io::Result<()> {
    for found in std::fs::read_dir(workspaces)? {
        let folder = found?.path();
        let name = folder.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(STAGED)) {
            let _ = std::fs::remove_dir_all(&folder);
            continue;
        }
        let pid: Option<u64> = name.and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid >= next.0) else { continue };
        let mut places = (1u32..).map(|nth| workspaces.join(format!(".left-{pid}-{nth}")));
        let Some(away) = places.find(|away| away.symlink_metadata().is_err()) else { continue };
        std::fs::rename(&folder, &away)?;
        tracing::warn!(folder = %away.display(), "a workspace of a process that the journal does not know was put away");
    }
    Ok(())
}

/// How the name of a copy begins that is not a workspace yet.
pub(super) const STAGED: &str = ".staged-";

/// Most entries and bytes of a folder that is copied for a dry run or a fork.
const COPIED_ENTRIES_MAX: usize = 100_000;
const COPIED_BYTES_MAX: u64 = 4 << 30;

/// Copies a folder to a new one, on which `what` works. File systems that can share blocks do.
pub(crate) fn copy_apart(folder: &Path, into: &Path, what: &str) -> Result<tempfile::TempDir, ApiError> {
    let (mut entries, mut bytes) = (0, 0);
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for found in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let Ok(meta) = found.metadata() else { continue };
            entries += 1;
            bytes += if meta.is_file() { meta.len() } else { 0 };
            if meta.is_dir() {
                folders.push(found.path());
            }
        }
        if entries > COPIED_ENTRIES_MAX || bytes > COPIED_BYTES_MAX {
            let message = format!(
                "the folder is too large to be copied for {what}: {COPIED_ENTRIES_MAX} entries and {} GiB are the most",
                COPIED_BYTES_MAX >> 30
            );
            return Err(
                ApiError::usage(message).hint("have less in it; what agents change can be taken back with `aos undo`")
            );
        }
    }
    let failed = |error: std::io::Error| ApiError::internal(format!("the folder could not be copied: {error}"));
    let dir = tempfile::Builder::new().prefix(STAGED).tempdir_in(into).map_err(failed)?;
    copy_folder(folder, dir.path()).map_err(failed)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// A hole was written out, and a file as often as it had names.
    #[test]
    fn a_copy_takes_no_more_of_the_disk_than_what_it_is_of() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        std::fs::create_dir_all(at("from/deep")).unwrap();
        std::fs::File::create(at("from/hole")).unwrap().set_len(64 << 20).unwrap();
        std::fs::write(at("from/one"), "of several").unwrap();
        std::fs::hard_link(at("from/one"), at("from/deep/name")).unwrap();
        copy_folder(&at("from"), &at("to")).unwrap();
        let meta = |path: &str| std::fs::metadata(at(path)).unwrap();
        assert_eq!((meta("to/hole").len(), meta("to/hole").blocks() < 2000), (64 << 20, true));
        assert_eq!((meta("to/one").ino(), meta("to/one").nlink()), (meta("to/deep/name").ino(), 2));
        assert_eq!(std::fs::read(at("to/one")).unwrap(), b"of several");
    }

    /// A descriptor stayed open at each level, and the stack grew with them.
    #[test]
    fn a_deep_folder_is_copied() {
        let room = tempfile::tempdir().unwrap();
        let deep = |top: &str| (0..1500).fold(room.path().join(top), |path, _| path.join("d"));
        std::fs::create_dir_all(deep("from")).unwrap();
        std::fs::write(deep("from").join("f"), "x").unwrap();
        copy_folder(&room.path().join("from"), &room.path().join("to")).unwrap();
        assert_eq!(std::fs::read(deep("to").join("f")).unwrap(), b"x");
    }

    #[test]
    fn what_is_copied_takes_the_place_of_a_file_or_a_link() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        for folder in ["from", "to"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for path in ["from/file", "from/link", "to/file", "outside"] {
            std::fs::write(at(path), path).unwrap();
        }
        std::os::unix::fs::symlink(at("outside"), at("to/link")).unwrap();
        copy_folder(&at("from"), &at("to")).unwrap();
        let read = |path: &str| std::fs::read_to_string(at(path)).unwrap();
        assert_eq!([read("to/file"), read("to/link"), read("outside")], ["from/file", "from/link", "outside"]);
    }
}
