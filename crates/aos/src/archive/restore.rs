//! Restoring: an archive in the place of what a home holds.
//!
//! Start at [`restore`]. Everything is unpacked and compared beside what is there; then what is there is moved aside and
//! the new moved in, all by renaming. A power cut in between leaves a home whose journal counts as missing, in which
//! no daemon starts and `aos restore` can be begun again; what was moved aside is kept.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aos_abi::Timestamp;
use aos_journal::{Exchange, check_archive};

use super::{Error, LeftOut, Manifest, Progress, Whole, folder_of};
use crate::home::{Home, Kept, Kind};

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
}

/// Puts what an archive holds in the place of what a home holds, which is kept in `replaced-TIME`. `expected` is the hash
/// that the archive must have, in hex.
///
/// # Errors
/// [`aos_journal::Error::Locked`] while a daemon runs; those of [`super::check`]; [`Error::Other`]; with these nothing was changed. With
/// [`Error::Io`] later on, the home has no journal, and the restore is to be begun again.
pub fn restore(
    archive: &Path,
    home: &Home,
    at: Timestamp,
    expected: Option<&str>,
    progress: Progress<'_>,
) -> Result<Restored, Error> {
    home.create()?;
    let exchange = Exchange::begin(&home.journal_file())?;
    let staging = Staging::new(home.root().join(".restoring"))?;
    let (Whole { manifest, sha256 }, left_out) = super::read::read(archive, Some(&staging.0), progress)?;
    if expected.is_some_and(|expected| !expected.eq_ignore_ascii_case(&sha256)) {
        return Err(Error::Other { path: archive.to_owned(), found: sha256 });
    }
    progress("checking the journal", 0);
    let journal = staging.0.join("journal.db");
    let report = check_archive(&journal)?;

    let aside = Aside::of(home, at);
    for kept in home.kept() {
        let folder = aside.folder_for(&kept)?;
        match kept.kind {
            Kind::Journal => exchange.set_aside(&folder, &report)?,
            // An empty folder is nothing to keep.
            Kind::Databases | Kind::Files | Kind::Changes if fs::remove_dir(&kept.place).is_ok() => {}
            Kind::Databases | Kind::Files | Kind::Changes => move_if_there(&kept.place, &folder.join(kept.name))?,
        }
    }
    for kept in home.kept().iter().filter(|kept| kept.kind != Kind::Journal) {
        let new = staging.0.join(kept.name);
        if fs::symlink_metadata(&new).is_ok_and(|found| found.is_file()) {
            // The two files at the top are secrets wherever they come from.
            fs::set_permissions(&new, Permissions::from_mode(0o600)).map_err(Error::io("change", &new))?;
        }
        move_if_there(&new, &kept.place)?;
        sync(folder_of(&kept.place))?;
    }
    exchange.put(&journal)?;
    home.create()?;
    Ok(Restored { manifest, sha256, replaced: aside.kept(), left_out })
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

    fn folder_for(&self, kept: &Kept) -> Result<PathBuf, Error> {
        let folder = folder_of(&kept.place).join(&self.name);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(Error::io("make the folder", &folder))?;
        Ok(folder)
    }

    /// Those that hold something; the others are removed.
    fn kept(&self) -> Vec<PathBuf> {
        let folders = self.folders.iter().map(|folder| folder.join(&self.name));
        folders.filter(|folder| folder.exists() && fs::remove_dir(folder).is_err()).collect()
    }
}

/// A private folder for what is not in place yet; gone with this value.
struct Staging(PathBuf);

impl Staging {
    fn new(path: PathBuf) -> Result<Staging, Error> {
        // Also what is read-only, as a folder of a person's that an agent removed may be: one that is in the way would be so
        // for every restore to come.
        aos_sandbox::delete(&path).map_err(Error::io("remove", &path))?;
        DirBuilder::new().mode(0o700).create(&path).map_err(Error::io("make the folder", &path))?;
        Ok(Staging(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next restore.
        let _ = aos_sandbox::delete(&self.0);
    }
}

fn move_if_there(from: &Path, to: &Path) -> Result<(), Error> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(from).is_err() => Ok(()),
        moved => moved.map_err(Error::io("move", from)),
    }
}

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))
}
