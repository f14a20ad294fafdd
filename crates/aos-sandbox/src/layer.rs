//! Workspaces that are written to only on paper: what commands change goes to a layer, which is then kept or dropped.
//!
//! Start at [`Layer::create`]; give it to [`Spec::layer`](crate::Spec), or put single changes into it, and afterwards
//! [`Layer::commit`] or [`Layer::discard`] it. A commit keeps what it replaces, so that
//! [`Committed::undo`](crate::Committed::undo) can bring it back.
//!
//! The layer is the upper folder of an overlayfs mount inside the sandbox. Committing moves files, and copies them only
//! where the layer is on another file system than the workspace. Always true: what is no file, folder or link (pipes,
//! sockets, devices) is not committed, and no file keeps a set-id bit.
//!
//! Unless the daemon is root, a folder that a command has locked for its own user can be looked into by that user again: the
//! daemon is the same user. What may not be written to stays so, in the layer until its changes are moved.
//!
//! One thing at a time: while a layer is in use by a run, a commit or an undo, the caller keeps others away from it and
//! the workspace's other writers too; overlayfs says nothing about folders that change beneath it.
//!
//! A folder with the set-group-id bit hands its group on. Where the daemon is root the kernel does that; elsewhere a command
//! has no other group than the daemon's first one, so what it makes gets its group here, as far as the daemon may give it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::below::{ALL, Below, LEVELS_MAX, LOOK, can_be_deleted, delete, unlock, with};
use crate::commit::Committed;
use crate::error::Error;
use crate::image::{Image, Kind, digest};
use crate::outcome::{Change, ChangeKind, LeftOut, LeftOutKind};
use crate::record::RECORD;
use crate::step::{Name, Step};

/// Attributes that overlayfs leaves on what it wrote (`userxattr` in the kernel's `overlayfs.rst`).
const MARKS: &str = "user.overlay.";

/// Bytes that may be written down of a commit: what a command may make, 200,000 files, with paths of 200 bytes. The record is
/// in memory more than once while the commit is made.
pub(crate) const RECORD_BYTES_MAX: usize = 128 << 20;
/// What a step takes besides its path: two images with their digests.
const STEP_BYTES: usize = 400;

/// Permission bits by which a program runs as its file's owner.
const SET_ID: u32 = 0o6000;

/// The one by which a folder hands its group on to what is made in it.
const HANDS_ON: u32 = 0o2000;

/// Changes to a workspace that are not in it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    dir: PathBuf,
    /// What of the workspace is not seen through it.
    pub(crate) hidden: BTreeSet<PathBuf>,
}

/// What a new file is to have of the one that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Like {
    /// Permission bits.
    pub mode: u32,
    /// User and group; given where one may.
    pub owner: (u32, u32),
}

impl Layer {
    /// An empty layer in a folder of its own, or the one that is there already.
    ///
    /// # Errors
    /// [`Error::Path`] when the folder cannot be made.
    pub fn create(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let layer = Layer::at(&dir.into());
        for folder in [layer.upper(), layer.old()] {
            std::fs::create_dir_all(&folder).map_err(at(&folder))?;
        }
        Ok(Layer::at(&layer.dir.canonicalize().map_err(at(&layer.dir))?))
    }

    pub(crate) fn at(dir: &Path) -> Self {
        Layer { dir: dir.to_owned(), hidden: BTreeSet::new() }
    }

    /// The layer's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Puts a file into the layer, durably; committing puts it into the workspace, with the folders above it that are
    /// missing. The caller has made sure that those that are there are folders.
    ///
    /// # Errors
    /// [`Error::Path`] when it cannot be written.
    pub fn write(&self, workspace: &Path, path: &Path, content: &[u8], like: Option<Like>) -> Result<(), Error> {
        self.folders_above(workspace, path)?;
        let target = self.upper().join(path);
        let write = || -> io::Result<()> {
            let mode = like.map_or(0o666, |like| like.mode & 0o777);
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&target)?;
            if let Some(like) = like {
                // Only root may give a file away; anybody else keeps it, as with every editor.
                let _ = std::os::unix::fs::fchown(&file, Some(like.owner.0), Some(like.owner.1));
                file.set_permissions(PermissionsExt::from_mode(mode))?;
            }
            file.write_all(content)?;
            file.sync_all()
        };
        write().map_err(at(&target))
    }

    /// Makes the folders above a path: those of the workspace with the same permissions, so that they do not count as
    /// changed.
    pub(crate) fn folders_above(&self, workspace: &Path, path: &Path) -> Result<(), Error> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        above.reverse();
        for folder in above {
            let made = self.upper().join(folder);
            match std::fs::create_dir(&made) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(at(&made)(error)),
            }
            let Ok(meta) = std::fs::symlink_metadata(workspace.join(folder)) else { continue };
            // A command sees the layer's folder in the place of the workspace's.
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&made, Some(meta.uid()), Some(meta.gid())).map_err(at(&made))?;
            }
            std::fs::set_permissions(&made, meta.permissions()).map_err(at(&made))?;
        }
        Ok(())
    }

    /// What differs between the layer and the workspace below it, sorted by path.
    ///
    /// # Errors
    /// [`Error::Path`] when one of the two cannot be read.
    pub fn changes(&self, workspace: &Path) -> Result<Vec<Change>, Error> {
        Ok(self.brought(workspace)?.0)
    }

    /// The same, and what of the layer no commit keeps. Only the first look after a command finds set-id bits: each takes them
    /// off.
    pub(crate) fn brought(&self, workspace: &Path) -> Result<(Vec<Change>, Vec<LeftOut>), Error> {
        let Plan { steps, mut left_out, .. } = self.plan(workspace, Depth::Names)?;
        let told = steps.iter().filter(|(_, step)| !step.is_leave());
        let mut changes: Vec<Change> = told.map(|(path, step)| change(path, step)).collect();
        changes.sort();
        left_out.sort();
        Ok((changes, left_out))
    }

    /// Whether what the layer has at a path of [`Layer::changes`] is a folder.
    pub fn has_folder(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(self.upper().join(path)).is_ok_and(|meta| meta.is_dir())
    }

    /// Moves the changes into the workspace and keeps what they replace. `note` is written down with it. With `since`,
    /// only if nothing that is to be replaced or deleted was changed after that, of a folder nothing in it.
    ///
    /// # Errors
    /// [`Error::Conflict`] where one was: nothing is done, and the layer is as it was. [`Error::Path`] when something
    /// cannot be moved: then everything is as it was, and the layer is gone.
    pub fn commit(
        self,
        workspace: &Path,
        since: Option<SystemTime>,
        note: serde_json::Value,
    ) -> Result<Committed, Error> {
        let Plan { steps, replaced, .. } = self.plan(workspace, Depth::Content)?;
        let since = since.and_then(since_1970);
        let later = |time: &(i64, i64)| since.is_some_and(|since| *time > since);
        let paths: Vec<PathBuf> = replaced.into_iter().filter(|(_, time)| later(time)).map(|(path, _)| path).collect();
        if !paths.is_empty() {
            return Err(Error::Conflict { paths });
        }
        // Nothing in it counts any more.
        delete(&self.work()).map_err(at(&self.work()))?;
        Committed::perform(self, workspace, steps, note)
    }

    /// Takes a file, a link or a folder with all in it out of the workspace, and keeps it.
    ///
    /// # Errors
    /// [`Error::Path`] when it is not there or cannot be moved.
    pub fn remove(self, workspace: &Path, path: &Path, note: serde_json::Value) -> Result<Committed, Error> {
        let before = seen(&workspace.join(path), image(&workspace.join(path))?)?;
        Committed::perform(self, workspace, vec![(path.to_owned(), Step::Remove { before })], note)
    }

    /// Moves a file, a link or a folder within the workspace to where nothing is, making the folders above.
    ///
    /// # Errors
    /// [`Error::Path`] when it is not there, something is at its new place, or it cannot be moved.
    pub fn relocate(
        self,
        workspace: &Path,
        from: &Path,
        to: &Path,
        note: serde_json::Value,
    ) -> Result<Committed, Error> {
        let image = image(&workspace.join(from))?;
        self.folders_above(workspace, to)?;
        let mut steps = self.plan(workspace, Depth::Names)?.steps;
        steps.push((to.to_owned(), Step::Move { from: Name::of(from), image }));
        Committed::perform(self, workspace, steps, note)
    }

    /// Deletes the layer with all that is in it, unless a commit of it was begun: then it has what that replaced, and is
    /// brought to rest by [`recover`](crate::recover).
    ///
    /// # Errors
    /// [`Error::Path`] when something in it cannot be deleted, [`Error::Spec`] where a commit was begun.
    pub fn discard(self) -> Result<(), Error> {
        if self.dir.join(RECORD).exists() {
            return Err(Error::Spec { reason: "a commit of the layer was begun".into() });
        }
        self.delete()
    }

    pub(crate) fn delete(self) -> Result<(), Error> {
        // First of all: what is half deleted can be neither done nor taken back.
        match std::fs::remove_file(self.dir.join(RECORD)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&self.dir)(error)),
            _ => delete(&self.dir).map_err(at(&self.dir)),
        }
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// What overlayfs itself needs while a command runs.
    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Where what commits replace is kept, and what is on its way is meanwhile. No command sees it.
    pub(crate) fn old(&self) -> PathBuf {
        self.dir.join("old")
    }

    /// Where what had this path is kept: under one name, since a link that was kept must not lie on the way to
    /// anything else.
    pub(crate) fn old_of(&self, path: &Path) -> PathBuf {
        self.old().join(digest(path.as_os_str().as_bytes()))
    }

    /// Bytes of what is kept; `None` where that cannot be told. What was the workspace's stays as it was there, also where its
    /// owner has no leave to write to it.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        let bytes = |below: Below| below.unseen.is_none().then_some(below.bytes);
        let upper = bytes(Below::of(&self.upper(), usize::MAX, true))?;
        Some(upper.saturating_add(bytes(Below::of(&self.old(), usize::MAX, false))?))
    }

    /// Makes the layer usable for a run over `workspace`.
    pub(crate) fn prepare(&self, workspace: &Path) -> Result<(), Error> {
        let meta = std::fs::metadata(workspace).map_err(at(workspace))?;
        if self.dir.starts_with(workspace) || workspace.starts_with(&self.dir) {
            return Err(Error::Spec { reason: "the layer and the workspace contain each other".into() });
        }
        std::fs::create_dir_all(self.work()).map_err(at(&self.work()))?;
        // Inside they have to belong to the command's user; only root's are not its own already.
        if rustix::process::geteuid().is_root() {
            for folder in [self.dir.clone(), self.upper(), self.work()] {
                std::os::unix::fs::chown(&folder, Some(meta.uid()), Some(meta.gid())).map_err(at(&folder))?;
            }
        }
        // What is seen as the workspace is the upper folder, so it has to have the workspace's mode.
        std::fs::set_permissions(self.upper(), meta.permissions()).map_err(at(&self.upper()))?;
        self.hide(workspace)
    }

    /// The steps that make the workspace what the layer says, folders before what is in them.
    fn plan(&self, workspace: &Path, depth: Depth) -> Result<Plan<'_>, Error> {
        let (upper, lower, hidden) = (self.upper(), workspace.to_owned(), &self.hidden);
        let (steps, replaced, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut plan = Plan { upper, lower, hidden, depth, steps, bytes: 0, replaced, left_out };
        let group = std::fs::metadata(workspace).ok().as_ref().and_then(handed_on);
        match plan.folder(Path::new(""), true, group) {
            Ok(()) => Ok(plan),
            Err(Error::Path { source, .. }) if source.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                Err(Error::Deep { levels: LEVELS_MAX })
            }
            Err(error) => Err(error),
        }
    }
}

/// A time in seconds and nanoseconds since then; `None` before.
pub(crate) fn since_1970(time: SystemTime) -> Option<(i64, i64)> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some((i64::try_from(since.as_secs()).ok()?, since.subsec_nanos().into()))
}

fn image(path: &Path) -> Result<Image, Error> {
    Image::of(path).ok_or_else(|| at(path)(io::ErrorKind::NotFound.into()))
}

/// What is going to be taken away must be known: of a folder that cannot be looked through nobody could tell afterwards what
/// somebody had saved in it. And it must be such that it can be deleted when nobody can take it back any more.
fn seen(path: &Path, image: Image) -> Result<Image, Error> {
    if image.is_seen() && (image.kind != Kind::Folder || can_be_deleted(path)) {
        Ok(image)
    } else {
        Err(at(path)(rustix::io::Errno::ACCESS.into()))
    }
}

fn change(path: &Path, step: &Step) -> Change {
    let kind = match step {
        Step::Put { before: None, .. } | Step::Folder { before: None, .. } | Step::Move { .. } => ChangeKind::Created,
        Step::Put { .. } | Step::Folder { .. } | Step::Mode { .. } => ChangeKind::Modified,
        Step::Remove { .. } => ChangeKind::Deleted,
    };
    Change { path: path.to_owned(), kind }
}

/// How much of each file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// That it is there.
    Names,
    /// What is in it.
    Content,
}

/// Compares the upper folder with the workspace.
struct Plan<'l> {
    upper: PathBuf,
    lower: PathBuf,
    hidden: &'l BTreeSet<PathBuf>,
    depth: Depth,
    steps: Vec<(PathBuf, Step)>,
    /// About what writing them down takes.
    bytes: usize,
    /// What of the workspace would be replaced or deleted, and when it changed last, as [`Image::look`] says it.
    replaced: Vec<(PathBuf, (i64, i64))>,
    left_out: Vec<LeftOut>,
}

impl Plan<'_> {
    /// Goes through one folder of the layer; `beneath` says whether the workspace has a folder there too, and `group` is what it
    /// hands on.
    fn folder(&mut self, folder: &Path, beneath: bool, group: Option<u32>) -> Result<(), Error> {
        if folder.iter().count() > LEVELS_MAX {
            return Err(Error::Deep { levels: LEVELS_MAX });
        }
        let host = self.upper.join(folder);
        // A folder made in the place of one that was hidden replaces nothing that the command could see.
        let hidden = self.hidden.contains(folder);
        let opaque = beneath && !hidden && !folder.as_os_str().is_empty() && is_opaque(&host);
        let mut names: Vec<OsString> = Vec::new();
        for entry in std::fs::read_dir(&host).map_err(at(&host))? {
            names.push(entry.map_err(at(&host))?.file_name());
        }
        names.sort();
        for name in &names {
            self.entry(&folder.join(name), beneath, group)?;
        }
        if opaque {
            // Nothing of the workspace's folder is seen that is not in the layer's.
            let lower = self.lower.join(folder);
            for entry in std::fs::read_dir(&lower).map_err(at(&lower))? {
                let name = entry.map_err(at(&lower))?.file_name();
                if names.binary_search(&name).is_err() {
                    self.remove(folder.join(name))?;
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: PathBuf) -> Result<(), Error> {
        match self.before(&path)? {
            Some(before) => self.push(path, Step::Remove { before }),
            None => Ok(()),
        }
    }

    fn push(&mut self, path: PathBuf, step: Step) -> Result<(), Error> {
        self.bytes += path.as_os_str().len() + STEP_BYTES;
        if self.bytes > RECORD_BYTES_MAX {
            return Err(Error::Many { bytes: RECORD_BYTES_MAX });
        }
        self.steps.push((path, step));
        Ok(())
    }

    /// What of the workspace is at a path that is going to be replaced.
    fn before(&mut self, path: &Path) -> Result<Option<Image>, Error> {
        let host = self.lower.join(path);
        let Some((image, changed)) = self.look(&host) else { return Ok(None) };
        self.replaced.push((path.to_owned(), changed));
        seen(&host, image).map(Some)
    }

    fn look(&self, host: &Path) -> Option<(Image, (i64, i64))> {
        match self.depth {
            Depth::Names => std::fs::symlink_metadata(host).ok().map(|_| (Image::plain(Kind::Other, 0), (0, 0))),
            Depth::Content => Image::look(host),
        }
    }

    fn entry(&mut self, path: &Path, beneath: bool, group: Option<u32>) -> Result<(), Error> {
        let host = self.upper.join(path);
        let meta = std::fs::symlink_metadata(&host).map_err(at(&host))?;
        let kind = meta.file_type();
        let lower = match beneath.then(|| there(&self.lower.join(path))) {
            None => None,
            // It is placed only where nothing is.
            Some(Err(_)) if kind.is_file() || kind.is_symlink() => None,
            Some(lower) => lower?,
        };
        if kind.is_char_device() && meta.rdev() == 0 {
            if lower.is_some() && !self.hidden.contains(path) {
                self.remove(path.to_owned())?;
            }
            return Ok(());
        }
        if let Some(kind) = never_kept(kind) {
            self.left_out.push(LeftOut { path: path.to_owned(), kind });
            return Ok(());
        }
        if !meta.is_dir() {
            // What was written to where it lay keeps its group.
            let group = group.filter(|_| lower.as_ref().is_none_or(|lower| lower.gid() != meta.gid()));
            return self.file(path, &host, &meta, lower.is_some(), group);
        }
        let meta = unlock(&host, LOOK).map_err(at(&host))?;
        let merged = lower.as_ref().filter(|old| old.is_dir()).map(|old| old.mode() & 0o7777);
        let steps = self.steps.len();
        self.made(path, &meta, merged, lower.is_some())?;
        let group = match lower.filter(|_| merged.is_some()) {
            Some(lower) => handed_on(&lower),
            None => group.filter(|_| meta.mode() & HANDS_ON != 0),
        };
        self.folder(path, merged.is_some(), group)?;
        match merged {
            Some(mode)
                if self.steps.len() > steps
                    && !matches!(&self.steps[steps], (own, Step::Mode { .. }) if own == path) =>
            {
                self.lend(path, mode)
            }
            _ => Ok(()),
        }
    }

    // What follows has frames of its own: of the above there are as many as folders inside one another.

    fn file(
        &mut self,
        path: &Path,
        host: &Path,
        meta: &Metadata,
        replaces: bool,
        group: Option<u32>,
    ) -> Result<(), Error> {
        if let Some(group) = group.filter(|group| *group != meta.gid()) {
            // Who is not in the group may not give it.
            let _ = std::os::unix::fs::lchown(host, None, Some(group));
        }
        if meta.mode() & SET_ID != 0 && !meta.is_symlink() {
            let plain = PermissionsExt::from_mode(meta.mode() & 0o7777 & !SET_ID);
            std::fs::set_permissions(host, plain).map_err(at(host))?;
            self.left_out.push(LeftOut { path: path.to_owned(), kind: LeftOutKind::SetId });
        }
        let (after, _) = self.look(host).ok_or_else(|| at(host)(io::ErrorKind::NotFound.into()))?;
        let before = if replaces { self.before(path)? } else { None };
        self.push(path.to_owned(), Step::Put { after, before })
    }

    /// What becomes of a folder itself; `merged` are the permissions of the workspace's.
    fn made(&mut self, path: &Path, meta: &Metadata, merged: Option<u32>, replaces: bool) -> Result<(), Error> {
        let (mode, owner) = (meta.mode() & 0o7777, (meta.uid(), meta.gid()));
        match merged {
            // The daemon had to look into it.
            Some(from) if mode == from || mode == with(from, LOOK) => Ok(()),
            Some(from) => self.push(path.to_owned(), Step::Mode { from, to: mode }),
            None => {
                let before = if replaces { self.before(path)? } else { None };
                self.push(path.to_owned(), Step::Folder { mode, owner, before })
            }
        }
    }

    /// A folder that its owner may not write to is lent the leave while what is in it changes.
    fn lend(&mut self, path: &Path, mode: u32) -> Result<(), Error> {
        if with(mode, ALL) == mode { Ok(()) } else { self.push(path.to_owned(), Step::Mode { from: mode, to: mode }) }
    }
}

/// What a thing is that no commit keeps; `None` for files, folders and links.
fn never_kept(kind: FileType) -> Option<LeftOutKind> {
    if kind.is_fifo() {
        Some(LeftOutKind::Pipe)
    } else if kind.is_socket() {
        Some(LeftOutKind::Socket)
    } else if kind.is_char_device() || kind.is_block_device() {
        Some(LeftOutKind::Device)
    } else {
        None
    }
}

/// What is at a path; where nobody can say, nothing is to take its place.
fn there(path: &Path) -> Result<Option<Metadata>, Error> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// The group that a folder of the workspace hands on and that a command could not give.
fn handed_on(folder: &Metadata) -> Option<u32> {
    (folder.mode() & HANDS_ON != 0 && !rustix::process::geteuid().is_root()).then(|| folder.gid())
}

/// Whether a folder of the layer hides the workspace's.
fn is_opaque(host: &Path) -> bool {
    let mut value = [0u8; 8];
    rustix::fs::lgetxattr(host, format!("{MARKS}opaque"), &mut value[..]).is_ok_and(|length| value[..length] == *b"y")
}

/// Takes overlayfs's own attributes off a file; a file system without attributes has none to take.
pub(crate) fn unmark(path: &Path) {
    let mut names = vec![0u8; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(MARKS.as_bytes())) {
        let _ = rustix::fs::lremovexattr(path, name);
    }
}

pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Path { path: path.to_owned(), source }
}
