//! Changes that can be undone: each goes to a layer first and is committed from there, which keeps what it replaces.
//!
//! Start at [`Keeper`]. What always holds: with a layer, a change is all there or not at all, also after a crash; without
//! one it is made at once, as durably, but cannot be taken back.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use aos_sandbox::{Committed, Layer, Like};
use rustix::fs::Stat;
use serde_json::Value;

use super::draft::Draft;
use super::error::Error;
use super::path::Beneath;
use super::workspace::regular;

/// Where one call's change is kept.
#[derive(Debug)]
pub struct Keeping {
    /// A folder for a layer of its own.
    pub layer: PathBuf,
    /// What is written down with it; the caller's own.
    pub note: Value,
}

/// Makes the change of one call, and keeps what it replaces where it is told to.
#[derive(Debug)]
pub(super) struct Keeper<'k> {
    root: &'k Path,
    keeping: Option<Keeping>,
    committed: Option<Committed>,
}

impl<'k> Keeper<'k> {
    pub(super) fn new(root: &'k Path, keeping: Option<Keeping>) -> Keeper<'k> {
        Keeper { root, keeping, committed: None }
    }

    /// Whether changes are kept.
    pub(super) fn keeps(&self) -> bool {
        self.keeping.is_some()
    }

    /// What was kept.
    pub(super) fn into_committed(self) -> Option<Committed> {
        self.committed
    }

    /// Puts a file in the place of a regular file, or of nothing, with the folders above it that are missing.
    pub(super) fn put(&mut self, path: &Beneath, content: &[u8], there: Option<&Stat>) -> Result<(), Error> {
        if let Some(stat) = there {
            regular(stat, path.as_str())?;
        }
        let like = there.map(|stat| Like { mode: stat.st_mode & 0o777, owner: (stat.st_uid, stat.st_gid) });
        let place = Path::new(path.as_str());
        self.with(path, |layer, root, note| {
            layer.write(root, place, content, like)?;
            layer.commit(root, None, note)
        })
    }

    /// Takes something away.
    pub(super) fn remove(&mut self, path: &Beneath) -> Result<(), Error> {
        self.with(path, |layer, root, note| layer.remove(root, Path::new(path.as_str()), note))
    }

    /// Moves something to where nothing is.
    pub(super) fn relocate(&mut self, from: &Beneath, to: &Beneath) -> Result<(), Error> {
        let (from_path, to_path) = (Path::new(from.as_str()), Path::new(to.as_str()));
        self.with(to, |layer, root, note| layer.relocate(root, from_path, to_path, note))
    }

    fn with(
        &mut self,
        path: &Beneath,
        work: impl FnOnce(Layer, &Path, Value) -> Result<Committed, aos_sandbox::Error>,
    ) -> Result<(), Error> {
        let Keeping { layer, note } = self.keeping.take().expect("asked for only where something is kept");
        let failed = |error: aos_sandbox::Error| match error {
            aos_sandbox::Error::Path { source, .. } => Error::io(path.as_str())(source),
            // In the instant in which the change was made.
            aos_sandbox::Error::Conflict { .. } => Error::Changed { path: path.as_str().to_owned() },
            aos_sandbox::Error::Full { .. } => Error::io(path.as_str())(rustix::io::Errno::NOSPC.into()),
            aos_sandbox::Error::Unfinished { source } => {
                Error::Halted { path: path.as_str().to_owned(), why: source.cause() }
            }
            other => Error::io(path.as_str())(std::io::Error::other(other.whole())),
        };
        let layer = Layer::create(layer).map_err(failed)?;
        match work(layer.clone(), self.root, note) {
            Ok(committed) => {
                self.committed = Some(committed);
                Ok(())
            }
            Err(error) => {
                // Nothing of it is in the workspace; where it cannot be deleted now, the next start does. What stopped half-way
                // stays.
                let _ = layer.discard();
                Err(failed(error))
            }
        }
    }
}

/// Puts new content in the place of a regular file, or of nothing, at once.
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
