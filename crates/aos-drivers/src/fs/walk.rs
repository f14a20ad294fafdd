//! Walks: what is below a folder, in order, within bounds, following nothing.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, RawDir};
use rustix::io::Errno;

use super::draft::Draft;
use super::error::Error;
use super::path::Beneath;
use super::workspace::{beneath, look};

/// Most entries that one walk looks at.
const ENTRIES_MAX: usize = 100_000;
/// Most folders deep. One descriptor is open per level.
pub(crate) const DEPTH_MAX: u32 = 64;

/// Something found on a walk.
pub(crate) struct Found<'w> {
    /// The folder that it is in.
    pub(crate) folder: &'w OwnedFd,
    /// Its name there.
    pub(crate) name: &'w str,
    /// Its path from the workspace.
    pub(crate) path: &'w str,
    /// Its path from where the walk began.
    pub(crate) below: &'w str,
    /// What it is, links not followed.
    pub(crate) kind: FileType,
}

/// What a walk left out.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// It stopped at a bound.
    pub(crate) truncated: bool,
    /// Folders that could not be read, as paths from the workspace.
    pub(crate) unreadable: Vec<String>,
}

/// What a walk does with each thing found.
pub(crate) type Visit<'v> = &'v mut dyn FnMut(&Found<'_>) -> Result<ControlFlow<()>, Error>;

/// A folder that stands at the top of what is walked, in the place of what may be there; `None` where it cannot be read.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) name: String,
    pub(crate) folder: Option<OwnedFd>,
}

/// Visits what is below `folder` (whose path is `at`), at most `depth` levels: names in byte order, a folder before
/// what is in it, so that a cut listing is the beginning of the whole one. Drafts are left out, and what is a daemon's own.
pub(crate) fn walk(
    folder: &OwnedFd,
    at: &Beneath,
    depth: u32,
    doors: &[Door],
    visit: Visit<'_>,
) -> Result<Walked, Error> {
    let mut walk = Walk { doors, visit, left: ENTRIES_MAX, walked: Walked::default() };
    let stopped = walk.level(folder, at, "", depth.min(DEPTH_MAX))?;
    walk.walked.truncated |= stopped.is_break();
    Ok(walk.walked)
}

struct Walk<'v> {
    doors: &'v [Door],
    visit: Visit<'v>,
    left: usize,
    walked: Walked,
}

impl Walk<'_> {
    fn level(&mut self, folder: &OwnedFd, at: &Beneath, below: &str, depth: u32) -> Result<ControlFlow<()>, Error> {
        let doors = if below.is_empty() { self.doors } else { &[] };
        let (mut entries, whole) = match entries(folder, self.left) {
            Ok(entries) => entries,
            // Removed since it was opened, as its name could be before: the rest is there.
            Err(Errno::NOENT) if !below.is_empty() => return Ok(ControlFlow::Continue(())),
            Err(errno) => return Err(Error::system(at.as_str())(errno)),
        };
        self.left = self.left.saturating_sub(entries.len());
        self.walked.truncated |= !whole;
        if !doors.is_empty() {
            entries.retain(|(name, _)| doors.iter().all(|door| door.name != *name));
            entries.extend(doors.iter().map(|door| (door.name.clone(), FileType::Directory)));
            entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        for (entry, kind) in entries {
            let door = doors.iter().find(|door| door.name == entry);
            let below = if below.is_empty() { entry.clone() } else { format!("{below}/{entry}") };
            let path = at.join(&below);
            // A door is its own folder and not what has its name in this one.
            let (folder, name) = match door {
                None => (folder, entry.as_str()),
                Some(Door { folder: Some(folder), .. }) => (folder, "."),
                Some(Door { folder: None, .. }) => {
                    self.walked.unreadable.push(path);
                    continue;
                }
            };
            let kind = match kind {
                FileType::Unknown => match look(folder, name, &path)? {
                    Some(stat) => FileType::from_raw_mode(stat.st_mode),
                    None => continue,
                },
                kind => kind,
            };
            let found = Found { folder, name, path: &path, below: &below, kind };
            if (self.visit)(&found)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if kind == FileType::Directory && depth > 1 {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match beneath(folder, name, flags) {
                    Ok(next) => {
                        if self.level(&next, at, &below, depth - 1)?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    // Gone, or swapped for something else, since the folder was read.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(_) => self.walked.unreadable.push(path),
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Whether what has this name is not shown by any call.
pub(crate) fn is_unseen(name: &str) -> bool {
    Draft::is_name(name) || aos_policy::is_home(name)
}

/// The names in a folder, sorted, at most `most`, and whether that was all. A name that is no UTF-8 is shown with
/// replacement characters; it cannot be opened by any call.
pub(crate) fn entries(folder: &OwnedFd, most: usize) -> Result<(Vec<(String, FileType)>, bool), Errno> {
    let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
    let mut raw = RawDir::new(folder, &mut buffer);
    let (mut found, mut whole) = (Vec::new(), true);
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." || is_unseen(&name) {
            continue;
        }
        if found.len() == most {
            whole = false;
            break;
        }
        found.push((name.into_owned(), entry.file_type()));
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok((found, whole))
}
