//! One daemon for a home: an advisory lock that the operating system drops with its holder.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::{Error, private};

/// Held for as long as this value lives. The file stays; only the lock on it means something.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "dropping it releases the lock")] File);

impl Lock {
    /// Takes the lock or says who has it.
    pub(crate) fn take(path: &Path) -> Result<Lock, Error> {
        let mut file = private::options().read(true).open(path).map_err(|source| Error::io("open", path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The number is a courtesy; without it the error is still right.
                let os_pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(Error::Locked { os_pid });
            }
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", path, source)),
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(|source| Error::io("write", path, source))?;
        Ok(Lock(file))
    }
}
