//! The watched folders, as inotify knows them.
//!
//! Start at [`Tree::plant`]. A folder is watched before it is read, so what appears in between is told twice rather than
//! not at all. Folders are handed to inotify by descriptor (through `/proc/self/fd`), never by a path that somebody
//! could have swapped.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::burst::Burst;
use crate::fs::{Beneath, DEPTH_MAX, Error, Pattern, Place, Workspace, beneath, is_unseen, walk};

/// Most folders of one watch. The kernel counts them against the user (`fs.inotify.max_user_watches`).
const FOLDERS_MAX: usize = 8192;
/// Events taken in before the timers are looked at again.
const EVENTS_PER_TURN: usize = 4096;

/// What to watch.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) place: Place,
    /// The folder.
    pub(super) folder: Beneath,
    /// Only this name in it, where a file is watched.
    pub(super) file: Option<String>,
    pub(super) glob: Option<Pattern>,
}

/// The watched folders of one watch.
#[derive(Debug)]
pub(super) struct Tree {
    inotify: OwnedFd,
    target: Target,
    /// Folders by inotify's number, as paths from the watched folder.
    folders: HashMap<i32, String>,
    /// The watched folder itself is there.
    rooted: bool,
}

impl Tree {
    /// Watches a folder with all below it, or one file by its folder.
    pub(super) fn plant(target: Target) -> Result<Tree, Error> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(Error::system("inotify"))?;
        let mut tree = Tree { inotify, target, folders: HashMap::new(), rooted: false };
        tree.root(&mut |_| {})?;
        Ok(tree)
    }

    /// A descriptor that can be read from when something has happened.
    pub(super) fn news(&self) -> std::io::Result<OwnedFd> {
        self.inotify.try_clone()
    }

    /// Whether the watched folder is gone for now.
    pub(super) fn is_uprooted(&self) -> bool {
        !self.rooted
    }

    /// Looks whether a folder that was gone is there again; then what is in it has changed.
    pub(super) fn replant(&mut self, burst: &mut Burst) {
        let mut found = Vec::new();
        let read = self.root(&mut |below| found.push(below.to_owned()));
        if self.rooted {
            burst.add(self.target.folder.for_kernel());
            found.iter().for_each(|below| self.tell(below, burst));
            if read.is_err() {
                burst.lose();
            }
        }
    }

    fn root(&mut self, found: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.folders.clear();
        self.rooted = false;
        let folder = Workspace::open(&self.target.place)?.folder(&self.target.folder)?;
        self.watch(&folder, "").map_err(Error::system(self.target.folder.as_str()))?;
        self.rooted = true;
        if self.target.file.is_none() { self.below(&folder, "", found) } else { Ok(()) }
    }

    /// Watches one folder.
    fn watch(&mut self, folder: &OwnedFd, below: &str) -> Result<(), Errno> {
        if self.folders.len() == FOLDERS_MAX {
            return Err(Errno::NOSPC);
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let number = inotify::add_watch(&self.inotify, format!("/proc/self/fd/{}", folder.as_raw_fd()), flags)?;
        self.folders.insert(number, below.to_owned());
        Ok(())
    }

    /// Watches all folders below one, and names what is there.
    fn below(&mut self, folder: &OwnedFd, below: &str, found: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let at = Beneath::parse(below)?;
        let walked = walk(folder, &at, DEPTH_MAX, &[], &mut |entry| {
            found(entry.path);
            if entry.kind == FileType::Directory {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match beneath(entry.folder, entry.name, flags) {
                    Ok(inner) => self.watch(&inner, entry.path).map_err(Error::system(entry.path))?,
                    // Gone or swapped since the folder was read, or closed to us: nothing to watch.
                    Err(_) => return Ok(ControlFlow::Continue(())),
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if walked.truncated { Err(Error::system(below)(Errno::NOSPC)) } else { Ok(()) }
    }

    /// Takes in what has happened; true when nothing more is waiting.
    pub(super) fn drain(&mut self, burst: &mut Burst) -> Result<bool, Errno> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut events = Vec::new();
        let mut drained = false;
        {
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            // To the end of what was read: the rest of a buffer would be lost.
            while events.len() < EVENTS_PER_TURN || !reader.is_buffer_empty() {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                        events.push((event.wd(), event.events(), name));
                    }
                    Err(Errno::AGAIN) => {
                        drained = true;
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        for (number, what, name) in events {
            self.happened(number, what, name.as_deref(), burst);
        }
        Ok(drained)
    }

    fn happened(&mut self, number: i32, what: ReadFlags, name: Option<&str>, burst: &mut Burst) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Folders may have come that nobody told of: look for them.
            burst.lose();
            let _ = self.root(&mut |_| {});
            return;
        }
        let Some(folder) = self.folders.get(&number).cloned() else { return };
        if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED) {
            // Of a folder below, its parent tells.
            if folder.is_empty() {
                self.uproot(burst);
            } else if what.contains(ReadFlags::IGNORED) {
                self.folders.remove(&number);
            }
            return;
        }
        let Some(name) = name.filter(|name| !is_unseen(name)) else { return };
        let below = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        self.tell(&below, burst);
        if !what.contains(ReadFlags::ISDIR) || self.target.file.is_some() {
            return;
        }
        if what.contains(ReadFlags::MOVED_FROM) {
            self.forget(&below);
        }
        if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.grow(&below, burst);
        }
    }

    /// Adds what the pattern lets through.
    fn tell(&self, below: &str, burst: &mut Burst) {
        let wanted = match &self.target.file {
            Some(file) => file == below,
            None => self.target.glob.as_ref().is_none_or(|glob| glob.matches(below)),
        };
        if wanted {
            burst.add(&self.target.folder.join(below));
        }
    }

    /// A folder has come: it is watched, and what is in it already has come too.
    fn grow(&mut self, below: &str, burst: &mut Burst) {
        let mut found = Vec::new();
        let grown = (|| {
            let path = Beneath::parse(&self.target.folder.join(below))?;
            let folder = Workspace::open(&self.target.place)?.folder(&path)?;
            self.watch(&folder, below).map_err(Error::system(below))?;
            self.below(&folder, below, &mut |path| found.push(path.to_owned()))
        })();
        found.iter().for_each(|path| self.tell(path, burst));
        match grown {
            // Gone again, or swapped for a link: there is nothing to watch.
            Ok(()) | Err(Error::Link { .. } | Error::Outside { .. }) => {}
            Err(Error::System { errno: Errno::NOENT | Errno::NOTDIR, .. }) => {}
            Err(_) => burst.lose(),
        }
    }

    /// A folder has gone elsewhere: what is in it is told no longer.
    fn forget(&mut self, below: &str) {
        let gone = |path: &str| path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let numbers: Vec<i32> = self.folders.iter().filter(|(_, path)| gone(path)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.folders.remove(&number);
            // The kernel may have dropped it by itself.
            let _ = inotify::remove_watch(&self.inotify, number);
        }
    }

    fn uproot(&mut self, burst: &mut Burst) {
        if self.rooted {
            self.rooted = false;
            burst.add(self.target.folder.for_kernel());
            for (number, _) in std::mem::take(&mut self.folders) {
                let _ = inotify::remove_watch(&self.inotify, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was deaf from then on: nobody looked for the folder any more.
    #[test]
    fn a_folder_that_goes_while_too_much_happens_is_looked_for_again() {
        let room = tempfile::tempdir().unwrap();
        let place = Place::new(room.path().to_owned());
        std::fs::create_dir(room.path().join("target")).unwrap();
        let folder = Beneath::parse("target").unwrap();
        let mut tree = Tree::plant(Target { place, folder, file: None, glob: None }).unwrap();
        std::fs::remove_dir(room.path().join("target")).unwrap();
        let mut burst = Burst::default();
        tree.happened(-1, ReadFlags::QUEUE_OVERFLOW, None, &mut burst);
        assert!(tree.is_uprooted());
        std::fs::create_dir(room.path().join("target")).unwrap();
        tree.replant(&mut burst);
        assert!(!tree.is_uprooted() && tree.folders.len() == 1);
    }
}
