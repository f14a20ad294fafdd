//! `FS_DELETE` and `FS_MOVE`: taking a name away, and giving it another place.

use std::os::fd::OwnedFd;
use std::path::Path;

use aos_abi::syscall::{FsDelete, FsMove};
use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::error::Error;
use super::keep::Keeper;
use super::path::{Beneath, PATH_BYTES_MAX};
use super::walk::DEPTH_MAX;
use super::workspace::{INSIDE, Missing, Workspace, look, open_at};

/// Deletes a file, a link (never what it leads to) or a folder with all in it. Never crosses into another mount.
pub(super) fn delete(workspace: &Workspace<'_>, args: &FsDelete, keeper: &mut Keeper<'_>) -> Result<Value, Error> {
    let path = Beneath::parse(&args.path)?;
    let (folder, name) = workspace.parent(&path, Missing::Fail)?;
    workspace.holds_no_home(Path::new(path.as_str()))?;
    if keeper.keeps() {
        look(&folder, name, path.as_str())?.ok_or_else(|| Error::system(path.as_str())(Errno::NOENT))?;
        keeper.remove(&path)?;
        return Ok(json!({}));
    }
    remove(&folder, name, path.as_str(), DEPTH_MAX)?;
    rustix::fs::fsync(&folder).map_err(Error::system(path.as_str()))?;
    Ok(json!({}))
}

fn remove(folder: &OwnedFd, name: &str, path: &str, depth: u32) -> Result<(), Error> {
    let system = Error::system(path);
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        // Linux says `EISDIR`, POSIX and some file systems `EPERM`.
        Err(errno @ (Errno::ISDIR | Errno::PERM)) => {
            let stat = look(folder, name, path)?.ok_or_else(|| system(Errno::NOENT))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(system(errno));
            }
        }
        Err(errno) => return Err(system(errno)),
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::Name { path: path.to_owned(), why: "is nested too deeply to be deleted in one call" });
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inner = open_at(folder, name, flags, INSIDE | ResolveFlags::NO_XDEV).map_err(&system)?;
    empty(&inner, path, depth)?;
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR).map_err(system)
}

/// Removes what is in a folder, until nothing is. Reading and removing alternate, since removing while reading may
/// skip entries.
fn empty(folder: &OwnedFd, path: &str, depth: u32) -> Result<(), Error> {
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 32 << 10];
    loop {
        rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0)).map_err(Error::system(path))?;
        let mut raw = rustix::fs::RawDir::new(folder, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = raw.next() {
            let entry = entry.map_err(Error::system(path))?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
            if names.len() == 1024 {
                break;
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let shown = format!("{path}/{}", name.to_string_lossy());
            match name.to_str() {
                Ok(name) => match remove(folder, name, &shown, depth) {
                    Err(Error::System { errno: Errno::NOENT, .. }) => {}
                    done => done?,
                },
                // A name that is no UTF-8: a file goes, a folder is told.
                Err(_) => {
                    rustix::fs::unlinkat(folder, &name, AtFlags::empty()).map_err(Error::system(&shown))?;
                }
            }
        }
    }
}

/// Moves a file, a link or a folder to where nothing is yet, making the folders above.
pub(super) fn relocate(workspace: &Workspace<'_>, args: &FsMove, keeper: &mut Keeper<'_>) -> Result<Value, Error> {
    let (from, to) = (Beneath::parse(&args.from)?, Beneath::parse(&args.to)?.of_new()?);
    if is_below(&to, &from) {
        return Err(Error::IntoItself { path: from.as_str().to_owned() });
    }
    let (from_folder, from_name) = workspace.parent(&from, Missing::Fail)?;
    if look(&from_folder, from_name, from.as_str())?.is_none() {
        // Before folders are made for nothing.
        return Err(Error::system(from.as_str())(Errno::NOENT));
    }
    let reach = workspace.holds_no_home(Path::new(from.as_str()))?;
    let above = Path::new(to.as_str()).iter().count() - 1;
    // Deeper than a layer may be, it could be neither measured nor copied, so its deletion would be for good.
    if to.as_str().len() + 1 + reach.bytes > PATH_BYTES_MAX || above + reach.levels > aos_sandbox::LEVELS_MAX {
        let why = "lies so deep that what is moved could not be reached there";
        return Err(Error::Name { path: to.as_str().to_owned(), why });
    }
    if keeper.keeps() {
        match workspace.parent(&to, Missing::Fail) {
            Ok((to_folder, to_name)) if look(&to_folder, to_name, to.as_str())?.is_some() => {
                return Err(Error::system(to.as_str())(Errno::EXIST));
            }
            // Missing folders are made.
            Ok(_) | Err(Error::System { errno: Errno::NOENT, .. }) => {}
            Err(error) => return Err(error),
        }
        keeper.relocate(&from, &to)?;
        return Ok(json!({}));
    }
    let (to_folder, to_name) = workspace.parent(&to, Missing::Make)?;
    match rustix::fs::renameat_with(&from_folder, from_name, &to_folder, to_name, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(errno @ (Errno::NOENT | Errno::XDEV)) => return Err(Error::system(from.as_str())(errno)),
        Err(errno) => return Err(Error::system(to.as_str())(errno)),
    }
    rustix::fs::fsync(&to_folder).map_err(Error::system(to.as_str()))?;
    rustix::fs::fsync(&from_folder).map_err(Error::system(from.as_str()))?;
    Ok(json!({}))
}

/// Whether `path` is `folder` or below it; `work-evil` is not below `work`.
fn is_below(path: &Beneath, folder: &Beneath) -> bool {
    path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
}
