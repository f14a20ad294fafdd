//! A commit: the changes of a layer, moved into the workspace with everything they replace kept, and taken back again.
//!
//! Start at [`Committed`]. What is to be done is written down first (`record`), then done step by step. Always true: a
//! commit or an undo that was cut off at any point is finished by [`recover`], or taken back where finishing would take what
//! somebody saved since, and comes to all of it or nothing; one that
//! fails takes back what it had done, and where that fails too, what it replaced stays where [`recover`] finds it; what
//! `durable` says of the order in which all of it reaches the disk; an undo begins only when nothing is in its way; what was
//! there is kept, not copied, and no link that a command left in the workspace is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::below::{ALL, Below, delete, unlock};
use crate::disk::{are_apart, lacks_room};
use crate::durable::Durable;
use crate::error::Error;
use crate::failpoint::{Done, done, fail, pass};
use crate::image::Image;
use crate::layer::{Layer, at, since_1970};
use crate::outcome::{Change, ChangeKind};
use crate::record::{Record, State};
use crate::step::{Name, Step, Stopped, Turn, beneath, inside, names, open_root};
use crate::transfer::{Way, is_passing, nonce};

/// How far a commit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Being done; after a crash it is finished.
    Committing,
    /// Done.
    Committed,
    /// Being taken back; after a crash that is finished.
    Undoing,
    /// Taken back. What it had put in place is kept, so that it can be done again.
    Undone,
}

impl Stage {
    /// Whether nothing is under way.
    #[must_use]
    pub fn rests(self) -> bool {
        matches!(self, Stage::Committed | Stage::Undone)
    }
}

/// One change of a commit, with what was there before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Altered {
    /// Where, relative to the workspace.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What was there.
    pub before: Option<Image>,
    /// What is there now.
    pub after: Option<Image>,
}

/// A layer whose changes are in the workspace, with what they replaced; or that were taken back again.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    layer: Layer,
    record: Record,
}

impl Committed {
    /// Writes down what is to be done and does it. Where a step fails, what was done is taken back and the layer is gone.
    pub(crate) fn perform(
        layer: Layer,
        workspace: &Path,
        steps: Vec<(PathBuf, Step)>,
        note: serde_json::Value,
    ) -> Result<Self, Error> {
        let workspace = workspace.canonicalize().map_err(at(workspace))?;
        let mut steps: Vec<(Name, Step)> = steps.into_iter().map(|(path, step)| (Name::of(&path), step)).collect();
        steps.sort_by(|a, b| a.0.cmp(&b.0));
        let nonce = Some(nonce().map_err(at(layer.dir()))?);
        let state = State { stage: Stage::Committing, turn: 0, nonce, rested: None, without: Vec::new(), note };
        let record = Record { workspace: Name::of(&workspace), steps, state, bytes: 0, rest: None };
        let mut committed = Committed { layer, record };
        if let Err(full) = committed.look_for_room() {
            committed.layer.discard()?;
            return Err(full);
        }
        committed.sync_layer()?;
        // Where it is written and may not last, it is a commit that was begun all the same.
        let begun = committed.record.begin(committed.layer.dir()).map_err(at(committed.layer.dir()));
        pass();
        match begun.and_then(|()| committed.go()) {
            Ok(()) => Ok(committed),
            Err(error) => match committed.take_back() {
                Ok(()) => Err(error),
                Err(source) => Err(Error::Unfinished { source: Box::new(source) }),
            },
        }
    }

    /// Takes back a commit of which a step failed, and deletes the layer.
    fn take_back(mut self) -> Result<(), Error> {
        // Where that cannot be written down, it is a commit that was cut off until the layer is gone.
        let _ = self.state(State { stage: Stage::Undoing, ..self.record.state.clone() });
        self.backward()?;
        self.sync_moved()?;
        self.forget()
    }

    /// The commit that is recorded in a layer's folder, if there is one.
    ///
    /// # Errors
    /// [`Error::Path`] when the record cannot be read.
    pub fn load(dir: &Path) -> Result<Option<Self>, Error> {
        let record = Record::read(dir).map_err(at(dir))?;
        Ok(record.map(|record| Committed { layer: Layer::at(dir), record }))
    }

    /// Writes down how far it has come.
    fn state(&mut self, state: State) -> Result<(), Error> {
        self.record.change(self.layer.dir(), state).map_err(at(self.layer.dir()))
    }

    /// Where the layer and the workspace are on different file systems, both must have room for what comes to them.
    fn look_for_room(&self) -> Result<(), Error> {
        let (workspace, dir) = (self.workspace(), self.layer.dir());
        if !are_apart(&workspace, dir) {
            return Ok(());
        }
        let (mut coming, mut kept) = (0_u64, 0_u64);
        for (name, step) in &self.record.steps {
            let path = name.path();
            if let Step::Put { .. } = step {
                coming = coming.saturating_add(copied(&self.layer.upper().join(path)));
            }
            if let Step::Put { before: Some(_), .. } | Step::Folder { before: Some(_), .. } | Step::Remove { .. } = step
            {
                kept = kept.saturating_add(copied(&workspace.join(path)));
            }
        }
        for (place, bytes) in [(&*workspace, coming), (dir, kept)] {
            if lacks_room(place, bytes) {
                return Err(Error::Full { place: place.to_owned(), bytes });
            }
        }
        Ok(())
    }

    /// Makes last what is going to be moved: after a power cut the record must not speak of more than there is.
    fn sync_layer(&self) -> Result<(), Error> {
        let (mut durable, upper, dir) = (Durable::default(), self.layer.upper(), self.layer.dir());
        for (name, step) in &self.record.steps {
            match step {
                Step::Put { .. } => {
                    durable.add(&upper, name.path());
                    durable.names(&upper, name.path());
                }
                Step::Folder { .. } | Step::Mode { .. } | Step::Remove { .. } | Step::Move { .. } => {}
            }
        }
        durable.add(dir, Path::new(""));
        durable.add(dir.parent().unwrap_or(Path::new("/")), Path::new(""));
        durable.sync(&[dir]).map_err(at(dir))
    }

    /// Makes last what was moved, on both sides.
    fn sync_moved(&self) -> Result<(), Error> {
        let (mut durable, upper, workspace) = (Durable::default(), self.layer.upper(), self.workspace());
        let above = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        for (name, step) in &self.record.steps {
            let path = name.path();
            durable.names(&upper, path);
            durable.add(&workspace, &above(path));
            match step {
                Step::Folder { .. } | Step::Mode { .. } => durable.add(&workspace, path),
                Step::Move { from, .. } => durable.add(&workspace, &above(from.path())),
                Step::Put { .. } | Step::Remove { .. } => {}
            }
        }
        durable.add(&self.layer.old(), Path::new(""));
        durable.sync(&[self.layer.dir(), &workspace]).map_err(at(&workspace))
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.record.state.stage
    }

    /// How often it was taken back and done again: even where it stands, odd where it is taken back.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.record.state.turn
    }

    /// The workspace that it changed.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.record.workspace.path().to_owned()
    }

    /// The layer's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.layer.dir()
    }

    /// What the caller had written down with it.
    #[must_use]
    pub fn note(&self) -> &serde_json::Value {
        &self.record.state.note
    }

    /// Writes down something else with it; how far it has come stays the same.
    ///
    /// # Errors
    /// [`Error::Path`] when that cannot be written.
    pub fn note_anew(&mut self, note: serde_json::Value) -> Result<(), Error> {
        self.state(State { note, ..self.record.state.clone() })
    }

    /// What the commit changed.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        self.altered().into_iter().map(|Altered { path, kind, .. }| Change { path, kind }).collect()
    }

    /// The same with what was there before and after.
    #[must_use]
    pub fn altered(&self) -> Vec<Altered> {
        let mut all = Vec::new();
        for (name, step) in &self.record.steps {
            let path = name.path().to_owned();
            let mut tell = |path: PathBuf, before: Option<Image>, after: Option<Image>| {
                let kind = match (&before, &after) {
                    (None, _) => ChangeKind::Created,
                    (_, None) => ChangeKind::Deleted,
                    _ => ChangeKind::Modified,
                };
                all.push(Altered { path, kind, before, after });
            };
            match step {
                Step::Put { after, before } => tell(path, before.clone(), Some(after.clone())),
                Step::Folder { mode, before, .. } => tell(path, before.clone(), Some(Image::folder(*mode))),
                Step::Mode { .. } if step.is_leave() => {}
                Step::Mode { from, to } => tell(path, Some(Image::folder(*from)), Some(Image::folder(*to))),
                Step::Remove { before } => tell(path, Some(before.clone()), None),
                Step::Move { from, image } => {
                    tell(from.path().to_owned(), Some(image.clone()), None);
                    tell(path, None, Some(image.clone()));
                }
            }
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Where the kept content of a path is: what it was before, while the commit stands; what it would be again, once it
    /// is taken back. A path that is there only if something is kept.
    #[must_use]
    pub fn kept(&self, path: &Path) -> PathBuf {
        match self.record.state.stage {
            Stage::Committing | Stage::Committed => self.layer.old_of(path),
            Stage::Undoing | Stage::Undone => self.layer.upper().join(path),
        }
    }

    /// What could not be brought back because it is not kept any more, though it is to be. A backup leaves out what it cannot
    /// read.
    #[must_use]
    pub fn missing(&self) -> Vec<PathBuf> {
        let gone = self.not_kept(self.stage()).into_iter().filter(|nth| !self.record.state.without.contains(nth));
        gone.map(|nth| self.record.steps[nth].0.path().to_owned()).collect()
    }

    /// The places of the steps of which something is to be kept at a stage, and is not there.
    fn not_kept(&self, stage: Stage) -> Vec<usize> {
        let is_gone = |place: PathBuf| {
            std::fs::symlink_metadata(place).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let not_kept = self.record.steps.iter().enumerate().filter(|(_, (name, step))| match (stage, step) {
            (
                Stage::Committed,
                Step::Put { before: Some(_), .. } | Step::Folder { before: Some(_), .. } | Step::Remove { .. },
            ) => is_gone(self.layer.old_of(name.path())),
            (Stage::Undone, Step::Put { .. }) => is_gone(self.layer.upper().join(name.path())),
            _ => false,
        });
        not_kept.map(|(nth, _)| nth).collect()
    }

    /// Bytes of what is kept, with what is written down of it; `None` where that cannot be told.
    #[must_use]
    pub fn kept_bytes(&self) -> Option<u64> {
        Some(self.layer.kept_bytes()?.saturating_add(self.record.bytes))
    }

    /// Reads a file of the workspace as the commit would find it, through no link; at most `most` bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn read_now(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let root = open_root(&self.workspace()).map_err(|error| io::Error::other(error.to_string()))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&root, path, flags, Mode::empty(), inside())?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), most), &mut bytes)?;
        Ok(bytes)
    }

    /// Where a link of the workspace leads, found the same way.
    ///
    /// # Errors
    /// What the operating system says; also where it is no link.
    pub fn link_now(&self, path: &Path) -> io::Result<PathBuf> {
        let root = open_root(&self.workspace()).map_err(|error| io::Error::other(error.to_string()))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::openat2(&root, path, flags, Mode::empty(), inside())?;
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// What would be lost, or would not come back, if it were taken back now or done again: the paths that somebody changed
    /// since.
    ///
    /// # Errors
    /// [`Error::Path`] when the workspace cannot be opened.
    pub fn in_the_way(&self) -> Result<Vec<PathBuf>, Error> {
        let root = open_root(&self.workspace())?;
        let stands = self.record.state.stage == Stage::Committed;
        let rested = self.record.state.rested;
        let fails = self.record.steps.iter().filter(|(name, step)| !step.may(&root, name, stands, rested));
        let mut paths: Vec<PathBuf> = fails.map(|(name, _)| name.path().to_owned()).collect();
        if stands {
            paths.extend(self.strangers(&root));
            paths.sort();
            paths.dedup();
        }
        Ok(paths)
    }

    /// What somebody put into the folders that took the place of something else: with it they cannot give it back.
    fn strangers(&self, root: &OwnedFd) -> Vec<PathBuf> {
        let own: BTreeMap<&Path, (&Name, &Step)> =
            self.record.steps.iter().map(|(name, step)| (name.path(), (name, step))).collect();
        let is_own = |path: &Path| own.get(path).is_some_and(|(name, step)| step.may(root, name, true, None));
        let (mut found, mut top) = (Vec::new(), None);
        for (name, step) in &self.record.steps {
            let Step::Folder { before, .. } = step else { continue };
            let path = name.path();
            if before.is_some() {
                top = Some(path);
            }
            if top.is_some_and(|top| path.starts_with(top)) {
                let names = names(root, path).unwrap_or_default();
                let strange = names.iter().filter(|name| !is_passing(name)).map(|name| path.join(name));
                found.extend(strange.filter(|path| !is_own(path)));
            }
        }
        found
    }

    /// Brings back what the commit replaced. Folders that something was put into since stay. What it had put in place is
    /// kept, so that [`Committed::redo`] can do it again.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something that the commit put there has changed since; then nothing is undone.
    /// [`Error::Unfinished`] where it failed and what it had done stays done; any other leaves everything as it was.
    pub fn undo(self, note: serde_json::Value) -> Result<Self, Error> {
        self.turn_around(Stage::Committed, Stage::Undoing, note)
    }

    /// Does again what was undone.
    ///
    /// # Errors
    /// As of [`Committed::undo`].
    pub fn redo(self, note: serde_json::Value) -> Result<Self, Error> {
        self.turn_around(Stage::Undone, Stage::Committing, note)
    }

    fn turn_around(mut self, from: Stage, to: Stage, note: serde_json::Value) -> Result<Self, Error> {
        if self.stage() != from {
            return Err(Error::Spec { reason: "that has been done already".into() });
        }
        let paths = self.in_the_way()?;
        if !paths.is_empty() {
            return Err(Error::Conflict { paths });
        }
        let before = self.record.state.clone();
        // What the last turn used may have been seen.
        let nonce = Some(nonce().map_err(at(self.layer.dir()))?);
        let begun =
            State { stage: to, turn: before.turn + 1, nonce: nonce.clone(), rested: None, without: Vec::new(), note };
        if let Err(error) = self.state(begun) {
            let stands =
                Committed::load(self.dir()).is_ok_and(|found| found.is_some_and(|found| found.stage() == from));
            return Err(if stands { error } else { Error::Unfinished { source: Box::new(error) } });
        }
        let Err(error) = self.go() else { return Ok(self) };
        // The way it came, under the names that things have on it.
        let back = if to == Stage::Undoing { Stage::Committing } else { Stage::Undoing };
        match self.state(State { stage: back, nonce, ..before }).and_then(|()| self.go()) {
            Ok(()) => Err(error),
            Err(source) => Err(Error::Unfinished { source: Box::new(source) }),
        }
    }

    /// Finishes what is under way, or goes back where somebody has changed since what that would take, or where it fails. Where
    /// both ways would, it is left as it is.
    fn settle(&mut self) -> Result<(), Error> {
        if self.stage().rests() {
            return Ok(());
        }
        self.end_exchanges()?;
        let taken = self.taken(self.stage())?;
        if !taken.is_empty() {
            match self.other_way() {
                Some(other) if self.taken(other.stage)?.is_empty() => self.state(other)?,
                _ => return Err(Error::Conflict { paths: taken }),
            }
        }
        let Err(error) = self.go() else { return Ok(()) };
        // Where something may not be moved, it may never be.
        match self.other_way() {
            Some(other) if self.taken(other.stage)?.is_empty() => self.state(other).and_then(|()| self.go()),
            _ => Err(error),
        }
    }

    /// So that whatever has a name by now is looked at under that name.
    fn end_exchanges(&self) -> Result<(), Error> {
        let (root, way) = (open_root(&self.workspace())?, self.way());
        for (name, step) in &self.record.steps {
            let path = name.path();
            let Ok(parent) = beneath(&root, path.parent().unwrap_or(Path::new(""))) else { continue };
            match step.end_exchange(&way, &parent, path) {
                // It is somebody else's, and has its name again.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => self.told(name, Err(errno.into()))?,
            }
        }
        Ok(())
    }

    /// What is somebody else's by now and would be taken from the workspace by coming to the end of a stage.
    fn taken(&self, stage: Stage) -> Result<Vec<PathBuf>, Error> {
        let turn = match stage {
            Stage::Committing => Turn::Forward,
            Stage::Undoing => Turn::Back,
            Stage::Committed | Stage::Undone => return Ok(Vec::new()),
        };
        let (root, way) = (open_root(&self.workspace())?, self.way());
        // What these are to be in is not there yet.
        let made = |step: &Step| matches!(step, Step::Folder { .. });
        let made: BTreeSet<&Path> =
            self.record.steps.iter().filter(|(_, step)| made(step)).map(|(name, _)| name.path()).collect();
        let waits = |path: &Path| {
            let above = path.parent().unwrap_or(Path::new(""));
            turn == Turn::Forward && made.contains(above) && names(&root, above).is_err()
        };
        let worked = |name: &Path, step: &Step| turn == Turn::Forward && step.takes_work(&way, &root, name);
        let takes =
            |name: &Path, step: &Step| (step.takes(turn, &way, &root, name) && !waits(name)) || worked(name, step);
        let takes = self.record.steps.iter().filter(|(name, step)| takes(name.path(), step));
        let mut paths: Vec<PathBuf> = takes.map(|(name, _)| name.path().to_owned()).collect();
        if turn == Turn::Back {
            paths.extend(self.strangers(&root));
        }
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// The other way from where it is; `None` where it has been turned round already, and in the form of version 0.1.0.
    fn other_way(&self) -> Option<State> {
        let state = self.record.state.clone();
        let stage = if state.stage == Stage::Undoing { Stage::Committing } else { Stage::Undoing };
        let nonce = Some(state.nonce.clone()?);
        match self.record.rest.clone() {
            None => Some(State { stage, ..state }),
            Some(rest) => (state.turn > rest.turn).then_some(State { stage, nonce, ..rest }),
        }
    }

    fn way(&self) -> Way<'_> {
        Way { layer: &self.layer, nonce: self.record.state.nonce.as_deref() }
    }

    /// Goes on to the end of what is under way, and writes down that it is done.
    fn go(&mut self) -> Result<(), Error> {
        let stage = match self.stage() {
            Stage::Committing => {
                self.forward()?;
                Stage::Committed
            }
            Stage::Undoing => {
                self.backward()?;
                Stage::Undone
            }
            Stage::Committed | Stage::Undone => return Ok(()),
        };
        self.sync_moved()?;
        pass();
        let rested = since_1970(SystemTime::now());
        let without = self.not_kept(stage);
        self.state(State { stage, rested, without, ..self.record.state.clone() })
    }

    /// Does every step that is not done.
    fn forward(&self) -> Result<(), Error> {
        let (root, way) = (open_root(&self.workspace())?, self.way());
        for (name, step) in &self.record.steps {
            if let Step::Folder { .. } | Step::Mode { .. } = step {
                // What is in it goes out of it; from here on the record has its permissions. It may be gone.
                let _ = unlock(&self.layer.upper().join(name.path()), ALL);
            }
            self.step(name, || step.apply(&way, &root, name.path()))?;
        }
        // What is in a folder before itself: with its own permissions nobody may get there.
        for (name, step) in self.record.steps.iter().rev() {
            self.told(name, step.lock(&way, &root, name.path()))?;
        }
        Ok(())
    }

    /// Takes back every step that is done. Backwards, so that what is in a folder goes before it.
    fn backward(&self) -> Result<(), Error> {
        let (root, way) = (open_root(&self.workspace())?, self.way());
        for (name, step) in &self.record.steps {
            self.told(name, step.unlock(&way, &root, name.path()))?;
        }
        for (name, step) in self.record.steps.iter().rev() {
            self.step(name, || step.revert(&way, &root, name.path()))?;
        }
        Ok(())
    }

    fn step(&self, name: &Name, take: impl FnOnce() -> Result<(), Stopped>) -> Result<(), Error> {
        pass();
        self.told(name, fail().map_err(Stopped::from).and_then(|()| take()))?;
        done(Done::Stepped(name.path()));
        Ok(())
    }

    fn told(&self, name: &Name, done: Result<(), Stopped>) -> Result<(), Error> {
        done.map_err(|stopped| match stopped {
            Stopped::Taken => Error::Conflict { paths: vec![name.path().to_owned()] },
            Stopped::System(errno) => at(&self.workspace().join(name.path()))(errno.into()),
        })
    }

    /// Deletes what is kept: from now on nothing can be taken back.
    ///
    /// # Errors
    /// [`Error::Path`] when something cannot be deleted.
    pub fn forget(self) -> Result<(), Error> {
        self.layer.delete()
    }
}

/// Bytes on the disk that a copy of what is at a path takes.
fn copied(path: &Path) -> u64 {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Below::of(path, usize::MAX, false).on_disk,
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    }
}

/// Brings a layer's folder to rest, after a crash or after [`Error::Unfinished`]: what was begun is finished and
/// given back, what was not begun is deleted.
///
/// Somebody may have worked in the workspace meanwhile. Where finishing would take what they saved, what was begun is taken
/// back instead.
///
/// # Errors
/// [`Error::Conflict`] where that would take something too; [`Error::Path`] when it cannot be done now. It can be tried again.
pub fn recover(dir: &Path) -> Result<Option<Committed>, Error> {
    let Some(mut committed) = Committed::load(dir)? else {
        delete(dir).map_err(at(dir))?;
        return Ok(None);
    };
    committed.settle()?;
    if committed.stage() == Stage::Undone && committed.turn() == 0 {
        // It failed and was being cleaned away.
        committed.forget()?;
        return Ok(None);
    }
    Ok(Some(committed))
}

#[cfg(test)]
mod tests;
