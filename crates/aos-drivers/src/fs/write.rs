//! `FS_WRITE`: replace, append or create.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use aos_abi::limits;
use aos_abi::syscall::{FsWrite, WriteMode};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::draft::Draft;
use super::error::Error;
use super::keep::{Keeper, replace};
use super::path::Beneath;
use super::workspace::{INSIDE, Missing, Workspace, look, regular};

/// Writes a file, making the folders above it. Replacing and creating are atomic and durable; appending is one write
/// at the end, durable, and says how much got there if the disk fills up.
pub(super) fn write(
    workspace: &Workspace<'_>,
    args: &FsWrite,
    path: &Beneath,
    keeper: &mut Keeper<'_>,
) -> Result<Value, Error> {
    if keeper.keeps() && keep(workspace, args, path, keeper)? {
        return Ok(json!({ "bytes": args.content.len() }));
    }
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

/// The same through a layer. Adding to a file is making a longer one, so a file that is too large for that is left to
/// the other way, which cannot be undone: then nothing is done and the answer is `false`.
fn keep(workspace: &Workspace<'_>, args: &FsWrite, path: &Beneath, keeper: &mut Keeper<'_>) -> Result<bool, Error> {
    let there = match workspace.parent(path, Missing::Fail) {
        Ok((folder, name)) => look(&folder, name, path.as_str())?,
        // Its folders are to be made.
        Err(Error::System { errno: Errno::NOENT, .. }) => None,
        Err(error) => return Err(error),
    };
    let mode = args.mode.unwrap_or_default();
    let content = args.content.as_bytes();
    match (mode, &there) {
        (WriteMode::Create, Some(_)) => Err(Error::system(path.as_str())(Errno::EXIST)),
        (WriteMode::Append, Some(stat)) => {
            regular(stat, path.as_str())?;
            single(stat, path.as_str())?;
            if stat.st_size.unsigned_abs() > limits::UNDO_APPEND_BYTES_MAX {
                return Ok(false);
            }
            let (file, _) = workspace.file(path)?;
            let mut whole = Vec::new();
            file.take(limits::UNDO_APPEND_BYTES_MAX + 1).read_to_end(&mut whole).map_err(Error::io(path.as_str()))?;
            whole.extend_from_slice(content);
            keeper.put(path, &whole, there.as_ref()).map(|()| true)
        }
        (WriteMode::Create | WriteMode::Replace | WriteMode::Append, there) => {
            keeper.put(path, content, there.as_ref()).map(|()| true)
        }
    }
}

/// Refuses a file that has further names.
fn single(stat: &Stat, path: &str) -> Result<(), Error> {
    if stat.st_nlink > 1 {
        // The count is 32 bits wide on some targets.
        #[allow(clippy::useless_conversion)]
        return Err(Error::HardLinked { path: path.to_owned(), names: stat.st_nlink.into() });
    }
    Ok(())
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
    single(&stat, path)?;
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
