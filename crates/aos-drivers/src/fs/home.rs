//! A daemon's own files where they stand in a workspace: they stay where they are, whatever folder is asked for.
//!
//! Rules see the path that a call names; what goes along with a folder is looked for here. A home is known by its name
//! (`aos_policy::is_home`), as the policy's floor knows it.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, RawDir};
use rustix::io::Errno;

use super::error::Error;
use super::workspace::{FOLDER, Workspace, beneath};

/// How many bytes the paths of folders may have together that are still to be looked through: as many folders as any
/// tree of a person has, and no more memory than a daemon can spare.
const PATHS_BYTES_MAX: usize = 64 << 20;

/// How far what is below a folder reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Bytes of the longest path.
    pub(crate) bytes: usize,
    /// Folders inside one another, the folder itself among them.
    pub(crate) levels: usize,
}

impl Workspace<'_> {
    /// Refuses what holds a daemon's own files at whatever depth, or cannot be looked through. What is no folder holds none;
    /// nothing neither. Says how far it reaches.
    pub(crate) fn holds_no_home(&self, path: &Path) -> Result<Reach, Error> {
        let shown = Error::shown(&path.to_string_lossy());
        let mut reach = Reach::default();
        let Some(top) = folder(&self.root, path).map_err(Error::system(&shown))? else { return Ok(reach) };
        let (mut ahead, mut bytes) = (vec![(PathBuf::new(), 1)], 0);
        while let Some((next, level)) = ahead.pop() {
            reach.levels = reach.levels.max(level);
            bytes -= next.as_os_str().len();
            let place = if next.as_os_str().is_empty() { Path::new(".") } else { &next };
            let Some(opened) = folder(&top, place).map_err(Error::system(&shown))? else { continue };
            let mut buffer = [MaybeUninit::uninit(); 8 << 10];
            let mut raw = RawDir::new(&opened, &mut buffer);
            while let Some(entry) = raw.next() {
                let entry = entry.map_err(Error::system(&shown))?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let below = next.join(name);
                reach.bytes = reach.bytes.max(below.as_os_str().len());
                if name.to_str().is_some_and(aos_policy::is_home) {
                    let home = Error::shown(&path.join(below).to_string_lossy());
                    return Err(Error::Home { path: shown, home });
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    bytes += below.as_os_str().len();
                    if bytes > PATHS_BYTES_MAX {
                        let why = "holds too many folders to be looked through for the daemon's own files";
                        return Err(Error::Name { path: shown, why });
                    }
                    ahead.push((below, level + 1));
                }
            }
        }
        Ok(reach)
    }
}

/// A folder beneath another; `None` where there is none, or something else has the name.
fn folder(above: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Errno> {
    match beneath(above, path, FOLDER | OFlags::NOFOLLOW) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
