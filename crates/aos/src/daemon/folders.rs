//! Folders of the host that processes work on: how they are named, and copied.
//!
//! What always holds: links are copied as links and never followed, also those that a command puts in the place of a folder
//! while it is copied. Deliberately absent: what a process changes in them,
//! which is `undo`'s affair.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aos_abi::Pid;
use aos_drivers::fs::Place;
use aos_gateway::ApiError;
use aos_sandbox::{Copies, Met, Walk};

use super::left;

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
/// are, so a copy takes no more of the disk than what it is of. What the daemon may not read is there, but empty: a file may not
/// be read there either, and a folder not be written to. Nobody else may write to the copy meanwhile.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    copy(from, Walk::of(from)?, to)
}

fn is_refused<T>(met: &io::Result<T>) -> bool {
    met.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn copy(from: &Path, walk: impl Iterator<Item = (PathBuf, io::Result<Met>)>, to: &Path) -> io::Result<()> {
    let mut copies = Copies::default();
    for (path, met) in walk {
        let target = to.join(&path);
        if is_refused(&met) {
            make_way(&target)?;
            // Of what is in a folder that may be read and not entered, the names alone are known.
            match std::fs::symlink_metadata(from.join(&path)).is_ok_and(|meta| meta.is_dir()) {
                true => DirBuilder::new().mode(0o555).create(&target)?,
                false => unreadable(&target)?,
            }
            continue;
        }
        let met = met?;
        if met.meta.is_dir() {
            if !std::fs::symlink_metadata(&target).is_ok_and(|meta| meta.is_dir()) {
                make_way(&target)?;
                std::fs::create_dir(&target)?;
            }
        } else if met.meta.is_symlink() {
            std::os::unix::fs::symlink(met.link()?, &target)?;
        } else if met.meta.is_file() {
            make_way(&target)?;
            let file = met.file();
            if is_refused(&file) {
                unreadable(&target)?;
                continue;
            }
            copies.opened(&file?, &target)?;
        }
    }
    Ok(())
}

fn unreadable(target: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o000).open(target).map(drop)
}

/// What is sent along to a dry run takes the place of what the folder has, also of a link.
fn make_way(target: &Path) -> io::Result<()> {
    match std::fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Puts away what stands where the workspaces of processes will be that are not born yet, as a stop in the middle of a
/// fork or a dry run leaves it, or a journal whose end is lost: nothing would be known of what those files carry. Copies
/// that such a stop left half made go, and so does what was put away long ago.
pub(crate) fn put_away(workspaces: &Path, next: Pid) -> io::Result<()> {
    let now = SystemTime::now();
    for found in std::fs::read_dir(workspaces)? {
        let folder = found?.path();
        let name = folder.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(STAGED)) {
            let _ = std::fs::remove_dir_all(&folder);
            continue;
        }
        let pid: Option<u64> = name.and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid >= next.0) else { continue };
        let Some(away) = left::put(&folder, workspaces, pid, now)? else { continue };
        let days = left::DAYS;
        tracing::warn!(folder = %away.display(), days, "a workspace of a process that the journal does not know was put away");
    }
    // No process ever had it, so none works in it.
    left::sweep(workspaces, now, |_| true);
    Ok(())
}

/// How the name of a copy begins that is not a workspace yet.
pub(super) const STAGED: &str = ".staged-";

/// Most entries and bytes of a folder that is copied for a dry run or a fork.
const COPIED_ENTRIES_MAX: usize = 100_000;
const COPIED_BYTES_MAX: u64 = 4 << 30;

/// How long a copy waits for its turn: the daemon answers within 30 s.
pub(crate) const TURN_WITHIN: Duration = Duration::from_secs(20);

/// Copies a folder to a new one, on which `what` works. File systems that can share blocks do. Whoever asks keeps calls
/// that change the folder away meanwhile, or what one of them does may be half there.
pub(crate) fn copy_apart(folder: &Path, into: &Path, what: &str) -> Result<tempfile::TempDir, ApiError> {
    Place::new(folder).check()?;
    let failed = |error: io::Error| ApiError::internal(format!("the folder could not be copied: {error}"));
    let (mut entries, mut bytes) = (0, 0);
    // What cannot be looked at is said by the copy.
    for met in Walk::of(folder).map_err(failed)?.filter_map(|(_, met)| met.ok()) {
        entries += 1;
        bytes += if met.meta.is_file() { met.meta.len() } else { 0 };
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
    let dir = tempfile::Builder::new().prefix(STAGED).tempdir_in(into).map_err(failed)?;
    copy_folder(folder, dir.path()).map_err(failed)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

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

    /// One such file let no ordinary user's daemon make a copy.
    #[test]
    fn what_may_not_be_read_stops_no_copy() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        std::fs::create_dir_all(at("from/folder/in")).unwrap();
        for path in ["from/file", "from/other", "from/folder/file"] {
            std::fs::write(at(path), path).unwrap();
        }
        let mode = |path: &str, mode: u32| std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
        let nobody = rustix::process::Uid::from_raw(65534);
        let root = rustix::process::geteuid().is_root();
        if root {
            for path in ["", "from", "from/file", "from/other", "from/folder"] {
                std::os::unix::fs::lchown(at(path), Some(nobody.as_raw()), None).unwrap();
            }
        }
        mode("from/file", 0o000);
        mode("from/folder", 0o000);
        if root {
            // For this thread alone.
            rustix::thread::set_thread_res_uid(None, Some(nobody), None).unwrap();
        }
        let copied = copy_folder(&at("from"), &at("to"));
        if root {
            rustix::thread::set_thread_res_uid(None, Some(rustix::process::Uid::ROOT), None).unwrap();
        }
        mode("from/folder", 0o700);
        copied.unwrap();
        let meta = |path: &str| std::fs::metadata(at(path)).unwrap();
        assert_eq!((meta("to/file").len(), meta("to/file").mode() & 0o777), (0, 0o000));
        assert_eq!(std::fs::read(at("to/other")).unwrap(), b"from/other");
        assert_eq!((meta("to/folder").mode() & 0o777, std::fs::read_dir(at("to/folder")).unwrap().count()), (0o555, 0));
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

    /// What a link led to was copied, where it took the place of a folder that had been listed.
    #[test]
    fn a_copy_never_leaves_its_folder() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        for folder in ["from/b/deep", "from/z", "outside/deep"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for path in ["from/b/a", "from/b/deep/key", "from/b/key", "from/z/key", "outside/deep/key", "outside/key"] {
            std::fs::write(at(path), path).unwrap();
        }
        std::fs::create_dir(at("to")).unwrap();
        let swap = |path: &str| {
            std::fs::rename(at(path), at("away")).unwrap();
            std::fs::remove_dir_all(at("away")).unwrap();
            std::os::unix::fs::symlink(at("outside"), at(path)).unwrap();
        };
        let swapping = |(path, _): &(PathBuf, _)| {
            if path == Path::new("b/a") {
                ["from/b", "from/z"].into_iter().for_each(swap);
            }
        };
        copy(&at("from"), Walk::of(&at("from")).unwrap().inspect(swapping), &at("to")).unwrap();
        assert_eq!(std::fs::read_to_string(at("to/b/a")).unwrap(), "from/b/a");
        assert_eq!(at("to/b").read_dir().unwrap().count(), 1);
        assert_eq!(std::fs::read_link(at("to/z")).unwrap(), at("outside"));
    }

    /// A file that was sent along was written through it.
    #[test]
    fn a_folder_that_is_sent_along_takes_the_place_of_a_link() {
        let room = tempfile::tempdir().unwrap();
        let at = |path: &str| room.path().join(path);
        for folder in ["from/docs", "to", "outside"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("from/docs/file"), "sent along").unwrap();
        std::os::unix::fs::symlink(at("outside"), at("to/docs")).unwrap();
        copy_folder(&at("from"), &at("to")).unwrap();
        assert_eq!(std::fs::read_to_string(at("to/docs/file")).unwrap(), "sent along");
        assert_eq!(at("outside").read_dir().unwrap().count(), 0);
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
