//! Who else may read and write a home.
//!
//! Start at [`Home::check_private`], which only looks, and [`Home::make_private`]. What always holds: nothing is changed
//! that is another user's, or that holds something.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Dir, Mode, OFlags, accessat, open};

use super::{Error, Home};

impl Home {
    /// Makes those folders 0700 that are empty and one's own, then looks as [`Home::check_private`].
    ///
    /// # Errors
    /// [`Error::Io`], and as [`Home::check_private`].
    pub fn make_private(&self) -> Result<(), Error> {
        for path in self.folders() {
            close_empty(&path).map_err(|source| Error::Io { doing: "make private", path, source })?;
        }
        self.check_private()
    }

    /// Refuses a home that others may write: a folder of it, or a file that is not closed off by its folder. Policy and
    /// configuration may be writable by everybody nowhere: folders are opened, and files have other names, more easily
    /// than anybody looks at them again. What is missing is no fault.
    ///
    /// # Errors
    /// [`Error::NoFolder`], [`Error::Foreign`], [`Error::Strange`] and [`Error::Shared`] with the first of them.
    pub fn check_private(&self) -> Result<(), Error> {
        let us = us();
        let roots = self.roots();
        // Before anything is said of its permissions: those of a device are the machine's.
        if let Some(path) = roots.iter().find(|root| fs::metadata(root).is_ok_and(|found| !found.is_dir())) {
            return Err(Error::NoFolder { path: path.clone() });
        }
        let open = |path: &Path| look(path).is_none_or(|(mode, _)| mode & 0o011 != 0);
        let files = [self.token_file(), self.config_file(), self.policy_file(), self.journal_file()];
        let reachable = files.into_iter().filter(|file| file.parent().is_none_or(open));
        for path in self.folders().into_iter().chain(reachable) {
            let Some((mode, uid)) = look(&path) else { continue };
            let foreign = uid != us && uid != 0;
            if foreign && roots.contains(&path) {
                return Err(Error::Foreign { path, uid, user: user(uid) });
            }
            if foreign {
                return Err(Error::Strange { path, uid, user: user(uid) });
            }
            if mode & 0o022 != 0 {
                return Err(Error::Shared { path, mode, uid });
            }
        }
        for path in [self.config_file(), self.policy_file()] {
            if let Some((mode, uid)) = look(&path).filter(|(mode, _)| mode & 0o002 != 0) {
                return Err(Error::Shared { path, mode, uid });
            }
        }
        Ok(())
    }

    /// Removes a token that others could have read, so that another one is made: who has it does all that its owner may.
    /// For a daemon that starts; one that runs has read it already.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard_exposed_token(&self) -> Result<(), Error> {
        let path = self.token_file();
        let open = |path: &Path, bits: u32| look(path).is_some_and(|(mode, _)| mode & bits != 0);
        let reachable = path.ancestors().skip(1).take(2).all(|folder| open(folder, 0o011));
        if !reachable || !open(&path, 0o044) {
            return Ok(());
        }
        tracing::warn!("others could read {}: it is made anew, so give it to your programs again", path.display());
        fs::remove_file(&path).map_err(|source| Error::Io { doing: "remove", path, source })
    }

    /// Whether everything that is there of the home can be written. Nothing is.
    ///
    /// # Errors
    /// [`Error::Unwritable`] with the first folder that cannot.
    pub fn check_writable(&self) -> Result<(), Error> {
        for path in self.folders().into_iter().filter(|path| path.is_dir()) {
            accessat(CWD, &path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
                .map_err(|error| Error::Unwritable { path: path.clone(), source: error.into() })?;
        }
        Ok(())
    }

    /// The folders above the home in which every user could put another one in its place, each with its mode. That is no
    /// fault where nobody else has an account, such as in a container; and what another user puts there is refused.
    #[must_use]
    pub fn exchangeable(&self) -> Vec<(PathBuf, u32)> {
        let roots = self.roots();
        let real = roots.iter().filter_map(|root| root.canonicalize().ok());
        let places: BTreeSet<PathBuf> = roots.iter().cloned().chain(real).collect();
        let above: BTreeSet<&Path> = places.iter().flat_map(|root| root.ancestors().skip(1)).collect();
        // In a sticky folder nobody renames what is not theirs.
        let found = above.into_iter().filter_map(|path| Some((path.to_owned(), look(path)?.0)));
        found.filter(|(_, mode)| mode & 0o1002 == 0o002).collect()
    }

    /// What of the home others could read: each path with its mode. Nothing is changed. What is in
    /// the folders is guarded by them.
    #[must_use]
    pub fn exposed(&self) -> Vec<(PathBuf, u32)> {
        let journal = ["", "-wal", "-shm"].map(|part| self.data.join(format!("journal.db{part}")));
        let secrets = [self.token_file(), self.config_file(), self.policy_file(), self.data.join("journal.head")];
        let values = fs::read_dir(self.secrets()).into_iter().flatten().flatten().map(|entry| entry.path());
        self.folders()
            .into_iter()
            .chain(secrets)
            .chain(values)
            .chain(journal)
            .filter_map(|path| {
                let mode = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
                (mode & 0o077 != 0).then_some((path, mode))
            })
            .collect()
    }
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The permissions of what is there, and whose it is.
fn look(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok()?;
    Some((found.permissions().mode() & 0o7777, found.uid()))
}

/// The name of a user, or `#` and the number where `/etc/passwd` has none.
fn user(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("#{uid}"))
}

/// Makes a folder 0700 that is empty and one's own; others are left as they are, for whoever looks at them.
fn close_empty(path: &Path) -> io::Result<()> {
    let Ok(folder) = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
        return Ok(());
    };
    let folder = File::from(folder);
    let found = folder.metadata()?;
    let before = found.permissions();
    if found.uid() != us() || before.mode() & 0o7777 == 0o700 || !is_empty(&folder)? {
        return Ok(());
    }
    folder.set_permissions(fs::Permissions::from_mode(0o700))?;
    // What another user put there just before must not count as ours.
    if is_empty(&folder)? { Ok(()) } else { folder.set_permissions(before) }
}

fn is_empty(folder: &File) -> io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_home_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("h")).unwrap();
        home.create().unwrap();
        home.check_private().unwrap();
        fs::write(home.policy_file(), "").unwrap();
        fs::write(home.config_file(), "").unwrap();
        for file in [home.policy_file(), home.config_file()] {
            set(home.root(), 0o700);
            set(&file, 0o666);
            let refused = home.check_private().unwrap_err();
            assert!(matches!(&refused, Error::Shared { path, .. } if *path == file), "everybody's: {refused}");
            assert!(refused.hint().contains(&format!("chmod go-w {}", file.display())), "{}", refused.hint());
            set(&file, 0o664);
            home.check_private().expect("nobody of its group gets through its folder");
            set(home.root(), 0o755);
            let refused = home.check_private().unwrap_err();
            assert!(matches!(&refused, Error::Shared { path, .. } if *path == file), "{refused}");
            set(&file, 0o644);
        }
        home.check_private().unwrap();
        set(&home.workspaces(), 0o770);
        let refused = home.check_private().unwrap_err();
        assert!(matches!(&refused, Error::Shared { path, .. } if *path == home.workspaces()), "{refused}");
    }

    #[test]
    fn a_home_that_another_user_made_is_refused_before_anything_is_put_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("h");
        let home = Home::at(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("aos.toml"), "").unwrap();
        set(&root, 0o777);
        let refused = home.create().unwrap_err();
        assert!(matches!(&refused, Error::Shared { path, .. } if *path == root), "{refused}");
        assert_eq!((fs::read_dir(&root).unwrap().count(), mode(&root)), (1, 0o777));
    }

    #[test]
    fn whose_home_it_is_is_told_and_nobody_is_told_to_take_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        if std::os::unix::fs::chown(dir.path(), Some(4242), None).is_err() {
            eprintln!("SKIPPED: only root can give a folder away");
            return;
        }
        for permissions in [0o700, 0o775] {
            set(dir.path(), permissions);
            let refused = home.create().unwrap_err();
            assert!(matches!(refused, Error::Foreign { uid: 4242, .. }), "{refused}");
            assert!(refused.to_string().contains("#4242"), "{refused}");
            let hint = refused.hint();
            assert!(hint.contains("sudo -u '#4242' aos") && !hint.contains("chown"), "{hint}");
            assert_eq!((fs::read_dir(dir.path()).unwrap().count(), mode(dir.path())), (0, permissions));
        }
    }

    /// It was said to be written by others, with a mode by which only its owner writes it.
    #[test]
    fn a_file_of_another_user_is_told_as_that() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("h")).unwrap();
        home.create().unwrap();
        let file = home.policy_file();
        fs::write(&file, "").unwrap();
        set(home.root(), 0o755);
        set(&file, 0o600);
        if std::os::unix::fs::chown(&file, Some(4242), None).is_err() {
            eprintln!("SKIPPED: only root can give a file away");
            return;
        }
        let refused = home.check_private().unwrap_err();
        assert!(matches!(&refused, Error::Strange { path, uid: 4242, .. } if *path == file), "{refused}");
        assert!(
            refused.to_string().ends_with("belongs to another user, #4242 (uid 4242), who can change it"),
            "{refused}"
        );
        assert!(refused.hint().contains("chown $USER"), "{}", refused.hint());
    }

    #[test]
    fn a_user_has_the_name_that_the_system_knows() {
        assert_eq!((user(0), user(4_000_000_000)), ("root".to_owned(), "#4000000000".to_owned()));
    }

    #[test]
    fn folders_above_in_which_a_home_can_be_exchanged_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().canonicalize().unwrap().join("everybody's");
        let home = Home::at(&above.join("mine").join("h")).unwrap();
        home.create().unwrap();
        assert_eq!(home.exchangeable(), []);
        set(&above, 0o777);
        assert_eq!(home.exchangeable(), [(above.clone(), 0o777)]);
        home.create().expect("where nobody else has an account it is no fault");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(home.root(), &link).unwrap();
        assert_eq!(Home::at(&link).unwrap().exchangeable(), [(above.clone(), 0o777)], "by what it leads to");
        set(&above, 0o1777);
        assert_eq!(home.exchangeable(), []);
    }

    #[test]
    fn an_empty_folder_of_ones_own_is_made_private_and_then_looked_at() {
        for permissions in [0o755, 0o775, 0o777, 0o2775] {
            let dir = tempfile::tempdir().unwrap();
            let home = Home::at(dir.path()).unwrap();
            set(dir.path(), permissions);
            home.make_private().unwrap();
            assert_eq!(mode(dir.path()) & 0o777, 0o700, "from {permissions:o}");
            set(dir.path(), permissions);
            home.create().unwrap();
            assert_eq!(mode(dir.path()) & 0o777, 0o700, "from {permissions:o}");
        }
    }

    #[test]
    fn a_folder_that_holds_something_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        set(dir.path(), 0o755);
        home.create().unwrap();
        assert_eq!(mode(dir.path()), 0o755);
    }
}
