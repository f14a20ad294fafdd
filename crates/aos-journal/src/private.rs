//! Files that only their owner reads: a journal holds all that agents said and were told.
//!
//! Start at [`options`]. SQLite gives the files beside a database the database's own mode, so it is enough that the
//! database is private from its first moment.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::Error;

/// To write a file that is made 0600 where it is missing.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}

/// An empty file, 0600, for a database to be made in; it must not exist.
pub(crate) fn fresh(path: &Path) -> Result<(), Error> {
    options().create_new(true).open(path).map(drop).map_err(|source| Error::io("create", path, source))
}

/// Takes the rights of others away from a file that an earlier release made. Where that fails the file belongs to
/// somebody else, which is for `aos doctor` to say and no reason to refuse the journal.
pub(crate) fn mend(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & 0o077 != 0 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700));
    }
}
