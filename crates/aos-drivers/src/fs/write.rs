//! `FS_WRITE`: replace, append or create.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use aos_abi::syscall::{FsWrite, WriteMode};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::draft::Draft;
use super::error::Error;
use super::path::Beneath;
use super::workspace::{INSIDE, Missing, Workspace, look, regular};

/// Writes a file, making the folders above it. Replacing and creating are atomic and durable; appending is one write
/// at the end, durable, and says how much got there if the disk fills up.
pub(super) fn write(workspace: &Workspace, args: &FsWrite, path: &Beneath) -> Result<Value, Error> {
    let (folder, name) = workspace.parent(path, Missing::Make)?;
    let content = args.content.as_bytes();
    let there = look(&folder, name, path.as_str())?;
    match (args.mode.unwrap_or_default(), there) {
        (WriteMode::Create, Some(_)) => return Err(Error::system(path.as_str())(Errno::EXIST)),
        (WriteMode::Create, None) => {
            Draft::write(&folder, content, None, path.as_str())?.create(name, path.as_str())?;
        }
        (WriteMode::Replace, there) => {
            replace(&folder, name, content, there.as_ref(), path.as_str())?;
        }
        (WriteMode::Append, there) => {
            if let Some(stat) = &there {
                regular(stat, path.as_str())?;
            }
            append(&folder, name, content, path.as_str())?;
        }
    }
    Ok(json!({ "bytes": content.len() }))
}

/// Puts new content in the place of a regular file, or of nothing.
pub(super) fn replace(
    folder: &OwnedFd,
    name: &str,
    content: &[u8],
    there: Option<&Stat>,
    path: &str,
) -> Result<(), Error> {
    if let Some(stat) = there {
        regular(stat, path)?;
    }
    Draft::write(folder, content, there, path)?.replace(name, path)
}

fn append(folder: &OwnedFd, name: &str, content: &[u8], path: &str) -> Result<(), Error> {
    // `NONBLOCK` and the second look: what stood here a moment ago may have been swapped for a pipe or a link.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(folder, name, flags, Mode::from_raw_mode(0o666), INSIDE);
    let file = opened.map_err(|errno| match errno {
        Errno::LOOP => Error::Link { path: path.to_owned(), leads: None },
        errno => Error::system(path)(errno),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(Error::system(path))?;
    regular(&stat, path)?;
    if stat.st_nlink > 1 {
        // The count is 32 bits wide on some targets.
        #[allow(clippy::useless_conversion)]
        return Err(Error::HardLinked { path: path.to_owned(), names: stat.st_nlink.into() });
    }
    let mut file = File::from(file);
    let mut written = 0;
    while written < content.len() {
        match file.write(&content[written..]) {
            Ok(count) if count > 0 => written += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            stopped => {
                let source = stopped.err().unwrap_or_else(|| std::io::ErrorKind::WriteZero.into());
                return Err(Error::Short {
                    path: path.to_owned(),
                    written: written as u64,
                    bytes: content.len(),
                    source,
                });
            }
        }
    }
    file.sync_all().map_err(Error::io(path))?;
    if stat.st_size == 0 {
        // Perhaps just made: its name must last too.
        rustix::fs::fsync(folder).map_err(Error::system(path))?;
    }
    Ok(())
}
