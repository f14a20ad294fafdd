//! Restoring: an archive in the place of what a home holds.
//!
//! Start at [`restore`]. Everything is unpacked and compared beside what is there; then what is there is moved aside and
//! the new moved in, all by renaming; where that is refused, everything is moved back. A power cut in between leaves a home
//! whose journal counts as missing, in which no daemon starts and `aos restore` can be begun again; what was moved aside is
//! kept.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aos_abi::Timestamp;
use aos_journal::{Exchange, Report, check_archive};
use aos_sandbox::{Committed, recover};

use super::{Error, LeftOut, Manifest, Progress, Whole, folder_of};
use crate::home::{AT_REST, Home, Kept, Kind, changes_in};

/// What a restore did.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What is there now.
    pub manifest: Manifest,
    /// The hash of all the bytes of the archive, in hex.
    pub sha256: String,
    /// Where what was there is kept: one folder, or two where configuration and data have their own; none for a home
    /// that was empty.
    pub replaced: Vec<PathBuf>,
    /// What is in the archive and is not there now, since its path is too long here.
    pub left_out: Vec<LeftOut>,
    /// Folders of people in which a change that a stop had interrupted was brought to its end.
    pub finished: Vec<PathBuf>,
}

/// Puts what an archive holds in the place of what a home holds, which is kept in `replaced-TIME`. `expected` is the hash
/// that the archive must have, in hex.
///
/// # Errors
/// [`aos_journal::Error::Locked`] while a daemon runs; those of [`super::check`]; [`Error::Other`]; with these nothing was
/// changed. What is refused later on is taken back; where that is refused, too, [`Error::Between`]: the home has no journal,
/// and the restore is to be begun again.
pub fn restore(
    archive: &Path,
    home: &Home,
    at: Timestamp,
    expected: Option<&str>,
    progress: Progress<'_>,
) -> Result<Restored, Error> {
    let made = Made::of(home);
    let restored = restore_in(archive, home, at, expected, progress);
    if restored.is_err() {
        made.take_back();
    }
    restored
}

/// The folders of a home that were not there before: where nothing comes of a restore, they are not there after it either.
struct Made(Vec<PathBuf>);

impl Made {
    fn of(home: &Home) -> Made {
        let tops = home.kept().into_iter().map(|kept| folder_of(&kept.place).to_owned());
        let mut missing: Vec<PathBuf> =
            tops.chain([home.root().to_owned()]).filter(|folder| fs::symlink_metadata(folder).is_err()).collect();
        missing.sort();
        missing.dedup();
        Made(missing)
    }

    fn take_back(self) {
        for folder in self.0 {
            // What cannot be removed is an empty home, as `aos init` would find it.
            let _ = aos_sandbox::delete(&folder);
        }
    }
}

fn restore_in(
    archive: &Path,
    home: &Home,
    at: Timestamp,
    expected: Option<&str>,
    progress: Progress<'_>,
) -> Result<Restored, Error> {
    home.create()?;
    let exchange = Exchange::begin(&home.journal_file())?;
    let staging = Staging::new(home)?;
    let (Whole { manifest, sha256 }, left_out) = super::read::read(archive, Some(&staging), progress)?;
    if expected.is_some_and(|expected| !expected.eq_ignore_ascii_case(&sha256)) {
        return Err(Error::Other { path: archive.to_owned(), found: sha256 });
    }
    progress("checking the journal", 0);
    let report = check_archive(&staging.place(Path::new("journal.db")))?;
    without_changes_under_way(&staging.place(Path::new("undo")))?;
    let finished = bring_to_rest(home)?;

    let aside = Aside::of(home, at);
    let mut moved = Vec::new();
    if let Err(error) = put_in_place(home, &exchange, &staging, &aside, &report, &mut moved) {
        let back = take_back(home, &exchange, &aside, &moved);
        let folders = aside.kept();
        return Err(match back {
            Ok(()) => error,
            Err(back) => Error::Between { error: Box::new(error), back: Box::new(back), folders },
        });
    }
    home.create()?;
    Ok(Restored { manifest, sha256, replaced: aside.kept(), left_out, finished })
}

/// Brings changes to an end that a stop interrupted, as the next start would have, where they are in folders of people: what
/// they replace is in this home alone. Which folders these are. What cannot be told of is set aside with the rest.
fn bring_to_rest(home: &Home) -> Result<Vec<PathBuf>, Error> {
    let (undo, mut folders) = (home.undo(), Vec::new());
    for (_, path) in changes_in(&undo).map_err(Error::io("read", &undo))? {
        let Ok(Some(begun)) = Committed::load(&path) else { continue };
        let folder = begun.workspace();
        if begun.stage().rests() || folder.starts_with(home.workspaces()) || !folder.is_dir() {
            continue;
        }
        recover(&path).map_err(|source| Error::UnderWay { path, source })?;
        folders.push(folder);
    }
    folders.sort();
    folders.dedup();
    Ok(folders)
}

/// Takes what was under way out of an archive, as those of before may hold it: it is in the middle of a change of folders that
/// went on without it.
fn without_changes_under_way(undo: &Path) -> Result<(), Error> {
    let found = match fs::read_dir(undo) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(Error::io("read", undo))?,
    };
    for entry in found {
        let path = entry.map_err(Error::io("read", undo))?.path();
        if path.file_name().is_some_and(|name| name != AT_REST) {
            aos_sandbox::delete(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Something that was moved: from where, and to where.
type Move = (PathBuf, PathBuf);

/// Sets aside what is there and moves in what is new; what was moved is in `moved`, in order, also after an error.
fn put_in_place(
    home: &Home,
    exchange: &Exchange,
    staging: &Staging,
    aside: &Aside,
    report: &Report,
    moved: &mut Vec<Move>,
) -> Result<(), Error> {
    for kept in home.kept() {
        let folder = aside.folder_for(&kept.place)?;
        match kept.kind {
            Kind::Journal => exchange.set_aside(&folder, report)?,
            // An empty folder is nothing to keep.
            Kind::Databases | Kind::Files | Kind::Changes if fs::remove_dir(&kept.place).is_ok() => {}
            Kind::Databases | Kind::Files | Kind::Changes => {
                moved.extend(move_if_there(&kept.place, &folder.join(kept.name))?);
            }
        }
    }
    for kept in home.kept().iter().filter(|kept| kept.kind != Kind::Journal) {
        let new = staging.place(Path::new(kept.name));
        if fs::symlink_metadata(&new).is_ok_and(|found| found.is_file()) {
            // The two files at the top are secrets wherever they come from.
            fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(Error::io("change", &new))?;
        }
        moved.extend(move_if_there(&new, &kept.place)?);
        sync(folder_of(&kept.place))?;
    }
    Ok(exchange.put(&staging.place(Path::new("journal.db")))?)
}

/// Moves everything back, the journal last: until then no daemon starts.
fn take_back(home: &Home, exchange: &Exchange, aside: &Aside, moved: &[Move]) -> Result<(), Error> {
    for (from, to) in moved.iter().rev() {
        fs::rename(to, from).map_err(Error::io("move", to))?;
        sync(folder_of(from))?;
    }
    exchange.take_back(&aside.folder_for(&home.journal_file())?)?;
    sync(folder_of(&home.journal_file()))?;
    // Folders that were empty; a start makes them, too.
    let _ = home.create();
    Ok(())
}

/// Where what is there goes: beside itself, since only that is sure to be on the same file system.
struct Aside {
    name: String,
    folders: Vec<PathBuf>,
}

impl Aside {
    fn of(home: &Home, at: Timestamp) -> Aside {
        let stamp: String = at.to_string().chars().filter(|one| one.is_ascii_alphanumeric()).collect();
        let mut folders: Vec<PathBuf> = home.kept().iter().map(|kept| folder_of(&kept.place).to_owned()).collect();
        folders.sort();
        folders.dedup();
        let taken = |name: &str| folders.iter().any(|folder| fs::symlink_metadata(folder.join(name)).is_ok());
        let mut name = format!("replaced-{stamp}");
        let mut nth = 1;
        while taken(&name) {
            nth += 1;
            name = format!("replaced-{stamp}-{nth}");
        }
        Aside { name, folders }
    }

    /// Made beside a place of the home.
    fn folder_for(&self, place: &Path) -> Result<PathBuf, Error> {
        let folder = folder_of(place).join(&self.name);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(Error::io("make the folder", &folder))?;
        Ok(folder)
    }

    /// Those that hold something; the others are removed.
    fn kept(&self) -> Vec<PathBuf> {
        let folders = self.folders.iter().map(|folder| folder.join(&self.name));
        folders.filter(|folder| folder.exists() && fs::remove_dir(folder).is_err()).collect()
    }
}

/// Private folders for what is not in place yet, each beside its place and so on the same file system; gone with this value.
pub(super) struct Staging {
    /// By the name of what is kept.
    folders: Vec<(&'static str, PathBuf)>,
}

impl Staging {
    fn new(home: &Home) -> Result<Staging, Error> {
        let beside = |kept: &Kept| (kept.name, folder_of(&kept.place).join(".restoring"));
        let staging = Staging { folders: home.kept().iter().map(beside).collect() };
        for path in staging.folders() {
            // Also what is read-only, as a folder of a person's that an agent removed may be: one that is in the way would
            // be so for every restore to come.
            aos_sandbox::delete(path).map_err(Error::io("remove", path))?;
            DirBuilder::new().mode(0o700).create(path).map_err(Error::io("make the folder", path))?;
        }
        Ok(staging)
    }

    /// Where something of an archive is for the time being.
    pub(super) fn place(&self, name: &Path) -> PathBuf {
        let found = self.folders.iter().find(|(kept, _)| name.starts_with(kept));
        found.expect("every name in an archive was looked at before").1.join(name)
    }

    /// Each folder once.
    pub(super) fn folders(&self) -> BTreeSet<&Path> {
        self.folders.iter().map(|(_, folder)| folder.as_path()).collect()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        for folder in self.folders() {
            // What cannot be removed now is removed by the next restore.
            let _ = aos_sandbox::delete(folder);
        }
    }
}

fn move_if_there(from: &Path, to: &Path) -> Result<Option<Move>, Error> {
    match fs::rename(from, to) {
        Ok(()) => Ok(Some((from.to_owned(), to.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(from).is_err() => Ok(None),
        Err(error) => Err(Error::io("move", from)(error)),
    }
}

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))
}
