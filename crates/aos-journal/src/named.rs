//! Whether an open journal is still the file of its name.
//!
//! Start at [`Named::check`]. A file that is moved over the journal takes its name: what is written after that goes into a
//! file without one, and is gone when it is closed. So it is looked at before each commit, and whoever finds it writes no
//! more. What was written until then is copied beside, since nobody else can reach it ([`keep`]).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::open::exists;
use crate::{Error, backup};

/// A file that is open, and its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    path: PathBuf,
    /// Its device and its number there, which no other file has while it is open.
    file: (u64, u64),
}

impl Named {
    /// Of a file that was just opened by this name.
    pub(crate) fn of(path: &Path) -> Result<Named, Error> {
        let found = fs::metadata(path).map_err(|source| Error::io("look at", path, source))?;
        Ok(Named { path: path.to_owned(), file: (found.dev(), found.ino()) })
    }

    /// Takes about a microsecond.
    ///
    /// # Errors
    /// [`Error::Replaced`]. Where nothing can be told, the commit tells.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let replaced = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.file,
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        };
        if replaced { Err(Error::Replaced { path: self.path.clone(), kept: None }) } else { Ok(()) }
    }
}

/// Copies what a connection has beside the journal; the copy's name, or `None` where there is no room, say.
pub(crate) fn keep(db: &Connection, path: &Path) -> Option<PathBuf> {
    let named = |nth: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if nth == 1 { ".kept".to_owned() } else { format!(".kept.{nth}") });
        PathBuf::from(name)
    };
    let free = (1..).map(named).find_map(|name| match exists(&name) {
        Ok(true) => None,
        Ok(false) => Some(Some(name)),
        Err(_) => Some(None),
    })??;
    backup::whole(db, &free).is_ok().then_some(free)
}
