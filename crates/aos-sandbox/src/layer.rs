//! Workspaces that are written to only on paper: what commands change goes to a layer, which is then kept or dropped.
//!
//! Start at [`Layer::create`]; give it to [`Spec::layer`](crate::Spec), and afterwards [`Layer::commit`] or
//! [`Layer::discard`] it. A commit keeps what it replaces, so that [`Committed::undo`] can bring it back.
//!
//! The layer is the upper folder of an overlayfs mount inside the sandbox. Committing moves files, it copies none; so
//! the layer has to be on the workspace's file system. Always true: a commit that was cut off can be run again, an
//! undo begins only when nothing is in its way, and neither follows a link that a command left in the workspace.
//!
//! Unless the daemon is root, a folder that a command has locked for its own user is opened for that user again: the
//! daemon is the same user and could not move what is in it.
//!
//! One thing at a time: while a layer is in use by a run, a commit or an undo, the caller keeps others away from it and
//! the workspace's other writers too; overlayfs says nothing about folders that change beneath it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::outcome::{Change, ChangeKind};

/// Attributes that overlayfs leaves on what it wrote (`userxattr` in the kernel's `overlayfs.rst`).
const MARKS: &str = "user.overlay.";

/// Changes to a workspace that are not in it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    dir: PathBuf,
}

impl Layer {
    /// An empty layer in a folder of its own, or the one that is there already.
    ///
    /// # Errors
    /// [`Error::Path`] when the folder cannot be made.
    pub fn create(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let layer = Layer { dir: dir.into() };
        for folder in [layer.upper(), layer.work(), layer.old()] {
            std::fs::create_dir_all(&folder).map_err(at(&folder))?;
        }
        Ok(Layer { dir: layer.dir.canonicalize().map_err(at(&layer.dir))? })
    }

    /// The layer's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What differs between the layer and the workspace below it, sorted by path.
    ///
    /// # Errors
    /// [`Error::Path`] when one of the two cannot be read.
    pub fn changes(&self, workspace: &Path) -> Result<Vec<Change>, Error> {
        let mut changes: Vec<Change> = self.plan(workspace)?.iter().map(|(path, step)| step.change(path)).collect();
        changes.sort();
        Ok(changes)
    }

    /// Moves the changes into the workspace and keeps what they replace. After a crash it can be called again.
    ///
    /// # Errors
    /// [`Error::Path`] when something cannot be moved; what has been moved by then stays so.
    pub fn commit(self, workspace: &Path) -> Result<Committed, Error> {
        let mut committed = Committed::load(&self.dir)?.unwrap_or_else(|| Committed::none(&self.dir));
        for (path, step) in self.plan(workspace)? {
            // What an interrupted commit planned knows the workspace as it was before.
            committed.steps.entry(Name::of(&path)).or_insert(step);
        }
        committed.save()?;
        let root = open_root(workspace)?;
        for (name, step) in &committed.steps {
            let path = name.path();
            step.apply(&self, &root, &path).map_err(|errno| at(&workspace.join(&path))(errno.into()))?;
        }
        Ok(committed)
    }

    /// Deletes the layer with all that is in it.
    ///
    /// # Errors
    /// [`Error::Path`] when something in it cannot be deleted.
    pub fn discard(self) -> Result<(), Error> {
        delete(&self.dir).map_err(at(&self.dir))
    }

    fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    fn old(&self) -> PathBuf {
        self.dir.join("old")
    }

    /// Makes the layer usable for a run over `workspace`.
    pub(crate) fn prepare(&self, workspace: &Path) -> Result<(), Error> {
        let meta = std::fs::metadata(workspace).map_err(at(workspace))?;
        let own = std::fs::metadata(&self.dir).map_err(at(&self.dir))?;
        if own.dev() != meta.dev() {
            return Err(Error::Spec { reason: "the layer is on another file system than the workspace".into() });
        }
        if self.dir.starts_with(workspace) || workspace.starts_with(&self.dir) {
            return Err(Error::Spec { reason: "the layer and the workspace contain each other".into() });
        }
        // Inside they have to belong to the command's user; only root's are not its own already.
        if rustix::process::geteuid().is_root() {
            for folder in [self.dir.clone(), self.upper(), self.work()] {
                std::os::unix::fs::chown(&folder, Some(meta.uid()), Some(meta.gid())).map_err(at(&folder))?;
            }
        }
        // What is seen as the workspace is the upper folder, so it has to have the workspace's mode.
        std::fs::set_permissions(self.upper(), meta.permissions()).map_err(at(&self.upper()))
    }

    /// The steps that make the workspace what the layer says, folders before what is in them.
    fn plan(&self, workspace: &Path) -> Result<Vec<(PathBuf, Step)>, Error> {
        let mut plan = Plan { upper: self.upper(), lower: workspace.to_owned(), steps: Vec::new() };
        plan.folder(Path::new(""), true)?;
        Ok(plan.steps)
    }
}

/// Compares the upper folder with the workspace.
struct Plan {
    upper: PathBuf,
    lower: PathBuf,
    steps: Vec<(PathBuf, Step)>,
}

impl Plan {
    /// Goes through one folder of the layer; `beneath` says whether the workspace has a folder there too.
    fn folder(&mut self, folder: &Path, beneath: bool) -> Result<(), Error> {
        let host = self.upper.join(folder);
        let opaque = beneath && !folder.as_os_str().is_empty() && is_opaque(&host);
        let mut names: Vec<OsString> = Vec::new();
        for entry in std::fs::read_dir(&host).map_err(at(&host))? {
            names.push(entry.map_err(at(&host))?.file_name());
        }
        names.sort();
        for name in &names {
            self.entry(&folder.join(name), beneath)?;
        }
        if opaque {
            // Nothing of the workspace's folder is seen that is not in the layer's.
            let lower = self.lower.join(folder);
            for entry in std::fs::read_dir(&lower).map_err(at(&lower))? {
                let name = entry.map_err(at(&lower))?.file_name();
                if names.binary_search(&name).is_err() {
                    self.steps.push((folder.join(name), Step::Remove));
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, beneath: bool) -> Result<(), Error> {
        let host = self.upper.join(path);
        let meta = std::fs::symlink_metadata(&host).map_err(at(&host))?;
        let lower = if beneath { std::fs::symlink_metadata(self.lower.join(path)).ok() } else { None };
        if meta.file_type().is_char_device() && meta.rdev() == 0 {
            if lower.is_some() {
                self.steps.push((path.to_owned(), Step::Remove));
            }
            return Ok(());
        }
        if !meta.is_dir() {
            self.steps.push((path.to_owned(), Step::Put { mark: Mark::of(&meta), replaces: lower.is_some() }));
            return Ok(());
        }
        let meta = unlock(&host).map_err(at(&host))?;
        let (mode, owner) = (meta.mode() & 0o7777, (meta.uid(), meta.gid()));
        let merged = lower.as_ref().is_some_and(Metadata::is_dir);
        match &lower {
            Some(old) if merged && old.mode() & 0o7777 == mode => {}
            Some(old) if merged => {
                self.steps.push((path.to_owned(), Step::Mode { from: old.mode() & 0o7777, to: mode }));
            }
            other => self.steps.push((path.to_owned(), Step::Folder { mode, owner, replaces: other.is_some() })),
        }
        self.folder(path, merged)
    }
}

/// Whether a folder of the layer hides the workspace's.
fn is_opaque(host: &Path) -> bool {
    let mut value = [0u8; 8];
    rustix::fs::lgetxattr(host, format!("{MARKS}opaque"), &mut value[..]).is_ok_and(|length| value[..length] == *b"y")
}

/// One step of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    /// Put a file of the layer in place.
    Put {
        /// What it looks like, so that an undo sees whether it is still the same.
        mark: Mark,
        /// Whether something is in its place.
        replaces: bool,
    },
    /// Make a folder.
    Folder {
        /// Its permissions.
        mode: u32,
        /// Its user and group.
        owner: (u32, u32),
        /// Whether something that is no folder is in its place.
        replaces: bool,
    },
    /// Change a folder's permissions.
    Mode {
        /// What they were.
        from: u32,
        /// What they become.
        to: u32,
    },
    /// Take a file or a folder with all that is in it away.
    Remove,
}

/// What tells a file from a later one of the same name; moving it changes none of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(meta: &Metadata) -> Self {
        Mark { inode: meta.ino(), size: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

impl Step {
    fn change(&self, path: &Path) -> Change {
        let kind = match self {
            Step::Put { replaces: false, .. } | Step::Folder { replaces: false, .. } => ChangeKind::Created,
            Step::Put { .. } | Step::Folder { .. } | Step::Mode { .. } => ChangeKind::Modified,
            Step::Remove => ChangeKind::Deleted,
        };
        Change { path: path.to_owned(), kind }
    }

    /// Does the step, or what an interruption has left of it.
    fn apply(self, layer: &Layer, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let parent = beneath(root, path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (layer.upper().join(path), layer.old().join(path));
        match self {
            Step::Put { replaces, .. } => {
                if std::fs::symlink_metadata(&upper).is_err() {
                    return Ok(());
                }
                if replaces {
                    keep(&parent, name, &old)?;
                }
                unmark(&upper);
                rustix::fs::renameat(CWD, &upper, &parent, name)
            }
            Step::Folder { mode, owner, replaces } => {
                if replaces {
                    keep(&parent, name, &old)?;
                }
                match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                let made = open_folder(&parent, name)?;
                if rustix::process::geteuid().is_root() {
                    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.0), rustix::fs::Gid::from_raw(owner.1));
                    rustix::fs::fchown(&made, Some(uid), Some(gid))?;
                }
                rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))
            }
            Step::Mode { to, .. } => rustix::fs::fchmod(open_folder(&parent, name)?, Mode::from_raw_mode(to)),
            Step::Remove => keep(&parent, name, &old),
        }
    }

    /// Reverses the step.
    fn revert(self, layer: &Layer, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let parent = beneath(root, path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        let (upper, old) = (layer.upper().join(path), layer.old().join(path));
        match self {
            Step::Put { replaces, .. } => {
                make_parent(&upper)?;
                rustix::fs::renameat(&parent, name, CWD, &upper)?;
                if replaces { rustix::fs::renameat(CWD, &old, &parent, name) } else { Ok(()) }
            }
            Step::Folder { replaces, .. } => match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) if replaces => rustix::fs::renameat(CWD, &old, &parent, name),
                // What came into the folder later stays, and so does the folder.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
                Err(errno) => Err(errno),
            },
            Step::Mode { from, .. } => rustix::fs::fchmod(open_folder(&parent, name)?, Mode::from_raw_mode(from)),
            Step::Remove => rustix::fs::renameat(CWD, &old, &parent, name),
        }
    }

    /// Whether the workspace still is as this step left it.
    fn stands(self, root: &OwnedFd, path: &Path) -> bool {
        let Ok(parent) = beneath(root, path.parent().unwrap_or(Path::new(""))) else { return false };
        let stat = rustix::fs::statat(&parent, path.file_name().unwrap_or_default(), AtFlags::SYMLINK_NOFOLLOW);
        match (self, stat) {
            (Step::Put { mark, .. }, Ok(stat)) => {
                mark.inode == stat.st_ino
                    && mark.size == stat.st_size.unsigned_abs()
                    && mark.modified == (stat.st_mtime, stat.st_mtime_nsec as i64)
            }
            (Step::Folder { .. } | Step::Mode { .. }, Ok(stat)) => {
                rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()
            }
            (Step::Remove, Err(Errno::NOENT)) => true,
            _ => false,
        }
    }
}

/// A layer whose changes are in the workspace, with what they replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    layer: Layer,
    /// In the order of the paths, so folders before what is in them.
    steps: BTreeMap<Name, Step>,
}

impl Committed {
    fn none(dir: &Path) -> Self {
        Committed { layer: Layer { dir: dir.to_owned() }, steps: BTreeMap::new() }
    }

    /// The commit that is recorded in a layer's folder, if there is one.
    ///
    /// # Errors
    /// [`Error::Path`] when the record cannot be read.
    pub fn load(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(RECORD);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        };
        let steps: Vec<(Name, Step)> = serde_json::from_slice(&text).map_err(|error| at(&path)(error.into()))?;
        Ok(Some(Committed { steps: steps.into_iter().collect(), ..Committed::none(dir) }))
    }

    /// Writes the record; a crash leaves the old one or the new one.
    fn save(&self) -> Result<(), Error> {
        let (path, draft) = (self.layer.dir.join(RECORD), self.layer.dir.join("draft"));
        let steps: Vec<_> = self.steps.iter().collect();
        let write = || -> io::Result<()> {
            let file = std::fs::File::create(&draft)?;
            serde_json::to_writer(io::BufWriter::new(&file), &steps)?;
            file.sync_all()?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(at(&path))
    }

    /// What the commit changed.
    pub fn changes(&self) -> Vec<Change> {
        self.steps.iter().map(|(name, step)| step.change(&name.path())).collect()
    }

    /// Brings back what the commit replaced. Folders that something was put into since stay.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something that the commit put there has changed since; then nothing is undone.
    pub fn undo(self, workspace: &Path) -> Result<(), Error> {
        let root = open_root(workspace)?;
        if let Some((name, _)) = self.steps.iter().find(|(name, step)| !step.stands(&root, &name.path())) {
            return Err(Error::Conflict { path: name.path() });
        }
        // Backwards, so that what is in a folder goes before the folder.
        for (name, step) in self.steps.iter().rev() {
            let path = name.path();
            step.revert(&self.layer, &root, &path).map_err(|errno| at(&workspace.join(&path))(errno.into()))?;
        }
        self.layer.discard()
    }

    /// Deletes what the commit replaced: from now on it cannot be undone.
    ///
    /// # Errors
    /// [`Error::Path`] when something cannot be deleted.
    pub fn forget(self) -> Result<(), Error> {
        self.layer.discard()
    }
}

/// The file in a layer's folder that says what is being committed.
const RECORD: &str = "committed.json";

/// A path as bytes, so that any survives being recorded. Ordered by part, so that a folder comes before what is in it
/// and `a/b` before `a-b`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Name(Vec<Vec<u8>>);

impl Name {
    fn of(path: &Path) -> Self {
        Name(path.iter().map(|part| part.as_bytes().to_vec()).collect())
    }

    fn path(&self) -> PathBuf {
        self.0.iter().map(|part| OsString::from_vec(part.clone())).collect()
    }
}

/// Deletes a folder with all that is in it, also what a command or overlayfs has locked.
fn delete(folder: &Path) -> io::Result<()> {
    unlock(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { delete(&entry.path())? } else { std::fs::remove_file(entry.path())? }
    }
    std::fs::remove_dir(folder)
}

/// Lets a folder's owner into it and returns what is known of it then. Root needs no letting in.
fn unlock(folder: &Path) -> io::Result<Metadata> {
    let meta = std::fs::symlink_metadata(folder)?;
    if meta.mode() & 0o700 == 0o700 || rustix::process::geteuid().is_root() {
        return Ok(meta);
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(meta.mode() & 0o7777 | 0o700);
    std::fs::set_permissions(folder, mode)?;
    std::fs::symlink_metadata(folder)
}

/// Moves what is at a place to where it is kept, unless that has been done.
fn keep(parent: &OwnedFd, name: &OsStr, old: &Path) -> Result<(), Errno> {
    if std::fs::symlink_metadata(old).is_ok() {
        return Ok(());
    }
    make_parent(old)?;
    rustix::fs::renameat(parent, name, CWD, old)
}

fn make_parent(path: &Path) -> Result<(), Errno> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Takes overlayfs's own attributes off a file; a file system without attributes has none to take.
fn unmark(path: &Path) {
    let mut names = vec![0u8; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(MARKS.as_bytes())) {
        let _ = rustix::fs::lremovexattr(path, name);
    }
}

fn open_root(workspace: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(workspace, flags, Mode::empty()).map_err(|errno| at(workspace)(errno.into()))
}

/// Opens a folder below the workspace. Links in it are a command's work and lead nowhere.
fn beneath(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Path { path: path.to_owned(), source }
}
