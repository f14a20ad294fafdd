//! A walk through a folder that others may change meanwhile, for whoever copies what is in it.
//!
//! Start at [`Walk::of`]. What always holds: what is met is beneath the folder at the moment it is opened, whoever puts
//! links in the place of what meanwhile, and what is read of it is what was met; a folder comes before what is in it;
//! neither the stack nor open descriptors grow with the depth. How deep it goes is bounded by paths, which may not be longer
//! than the kernel takes: whoever makes the copy names what is in it by paths too.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::step::{inside, names};

/// Longest path, in bytes: `PATH_MAX` of Linux less its closing zero.
const PATH_BYTES_MAX: usize = 4095;

/// A folder and all that is below it, in the order of names.
#[derive(Debug)]
pub struct Walk {
    top: OwnedFd,
    /// Bytes of the path of `top`.
    top_bytes: usize,
    /// Where the last of `ahead` is.
    at: PathBuf,
    /// Names that are still to be met, the next one last; of the folders in which the walk is, the innermost last.
    ahead: Vec<Vec<OsString>>,
    began: bool,
}

/// Something that was met, held.
#[derive(Debug)]
pub struct Met {
    /// What it is: a file, a folder, a link or something else.
    pub meta: Metadata,
    held: OwnedFd,
}

impl Walk {
    /// Begins at a folder by its real path, or at a file, which is all that is met then.
    ///
    /// # Errors
    /// What the operating system says; `ELOOP` where there is a link on the way.
    pub fn of(top: &Path) -> io::Result<Walk> {
        let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, top, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), plain)?;
        let top_bytes = top.as_os_str().len();
        Ok(Walk { top: opened, top_bytes, at: PathBuf::new(), ahead: Vec::new(), began: false })
    }

    /// What has a path below the folder, and the names in it where it is a folder.
    fn meet(&self, path: &Path) -> io::Result<(Met, Vec<OsString>)> {
        if self.top_bytes + 1 + path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let held = match path.as_os_str().is_empty() {
            true => self.top.try_clone()?,
            false => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat2(&self.top, path, flags, Mode::empty(), inside())?
            }
        };
        let held = File::from(held);
        let meta = held.metadata()?;
        let held = OwnedFd::from(held);
        let mut inside = if meta.is_dir() { names(&held, Path::new("."))? } else { Vec::new() };
        inside.sort_unstable_by(|one, other| other.cmp(one));
        Ok((Met { meta, held }, inside))
    }

    /// The path of what is to be met next.
    fn next_path(&mut self) -> Option<PathBuf> {
        if !self.began {
            self.began = true;
            return Some(PathBuf::new());
        }
        loop {
            match self.ahead.last_mut()?.pop() {
                Some(name) => return Some(self.at.join(name)),
                None => {
                    self.ahead.pop();
                    self.at.pop();
                }
            }
        }
    }
}

/// Each with its path from the folder on, whose own is empty. What vanishes meanwhile is not met; of a folder that cannot be
/// opened or read, nothing.
impl Iterator for Walk {
    type Item = (PathBuf, io::Result<Met>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let path = self.next_path()?;
            match self.meet(&path) {
                Ok((met, inside)) => {
                    if met.meta.is_dir() {
                        self.at.clone_from(&path);
                        self.ahead.push(inside);
                    }
                    return Some((path, Ok(met)));
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Some((path, Err(error))),
            }
        }
    }
}

/// Whether it, or a folder on the way to it, is not what was listed any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

impl Met {
    /// The file, to be read.
    ///
    /// # Errors
    /// What the operating system says; `InvalidInput` where it is no regular file.
    pub fn file(&self) -> io::Result<File> {
        if !self.meta.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        File::open(format!("/proc/self/fd/{}", self.held.as_raw_fd()))
    }

    /// Where the link leads.
    ///
    /// # Errors
    /// What the operating system says; also where it is no link.
    pub fn link(&self) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.held, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn met(walk: impl Iterator<Item = (PathBuf, io::Result<Met>)>) -> Vec<String> {
        let shown = |(path, met): (PathBuf, io::Result<Met>)| match met {
            Ok(met) if met.meta.is_dir() => format!("{}/", path.display()),
            Ok(met) if met.meta.is_symlink() => format!("{} -> {}", path.display(), met.link().unwrap().display()),
            Ok(met) => format!("{} = {}", path.display(), io::read_to_string(met.file().unwrap()).unwrap()),
            Err(error) => format!("{}: {error}", path.display()),
        };
        walk.map(shown).collect()
    }

    #[test]
    fn nothing_outside_is_met_whatever_is_put_in_the_place_of_what_was_listed() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        let at = |path: &str| room.join(path);
        for path in ["dir/a", "dir/b/c", "dir/d", "outside/c"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        for path in ["dir/a/file", "dir/b/c/file", "dir/b/file", "dir/e", "outside/c/file", "outside/file"] {
            std::fs::write(at(path), path).unwrap();
        }
        symlink("../outside", at("dir/link")).unwrap();
        let whole = ["/", "a/", "a/file = dir/a/file", "b/", "b/c/", "b/c/file = dir/b/c/file", "b/file = dir/b/file"];
        let whole = [&whole[..], &["d/", "e = dir/e", "link -> ../outside"]].concat();
        assert_eq!(met(Walk::of(&at("dir")).unwrap()), whole);
        assert_eq!(met(Walk::of(&at("dir/e")).unwrap()), [" = dir/e"]);
        assert!(Walk::of(&at("dir/link")).is_err());

        let mut walk = Walk::of(&at("dir")).unwrap();
        let mut seen = met(walk.by_ref().take(5));
        // It has been listed what is in each of these; one is a folder in which it is.
        std::fs::rename(at("dir/b"), at("dir/z")).unwrap();
        symlink(at("outside"), at("dir/b")).unwrap();
        std::fs::remove_dir(at("dir/d")).unwrap();
        symlink("../outside", at("dir/d")).unwrap();
        std::fs::remove_file(at("dir/e")).unwrap();
        symlink("../outside/file", at("dir/e")).unwrap();
        seen.extend(met(walk));
        let there = ["d -> ../outside", "e -> ../outside/file", "link -> ../outside"];
        assert_eq!(seen, [&whole[..5], &there].concat());
    }

    #[test]
    fn what_was_met_is_what_is_read() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        std::fs::create_dir(room.join("dir")).unwrap();
        std::fs::write(room.join("dir/file"), "inside").unwrap();
        std::fs::write(room.join("secret"), "outside").unwrap();
        let (_, file) = Walk::of(&room.join("dir")).unwrap().nth(1).unwrap();
        std::fs::remove_file(room.join("dir/file")).unwrap();
        symlink("../secret", room.join("dir/file")).unwrap();
        assert_eq!(io::read_to_string(file.unwrap().file().unwrap()).unwrap(), "inside");
    }

    #[test]
    fn what_lies_deeper_than_paths_reach_is_said_once() {
        let room = tempfile::tempdir().unwrap();
        let room = room.path().canonicalize().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&room, flags, Mode::empty()).unwrap();
        for _ in 0..2_500 {
            rustix::fs::mkdirat(&folder, "a", Mode::from_raw_mode(0o700)).unwrap();
            folder = rustix::fs::openat(&folder, "a", flags, Mode::empty()).unwrap();
        }
        let met: Vec<_> = Walk::of(&room).unwrap().collect();
        let failed: Vec<_> = met.iter().filter_map(|(_, met)| met.as_ref().err()).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(Errno::from_io_error(failed[0]), Some(Errno::NAMETOOLONG));
        crate::below::delete(&room.join("a")).unwrap();
    }
}
