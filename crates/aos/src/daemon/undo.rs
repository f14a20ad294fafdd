//! Changes to files that can be taken back: where what they replaced is kept, for how long, and how it comes back.
//!
//! Start at [`Undo::open`]; a changing call asks for its [`Undo::turn`] and a layer, and hands over what came of it to
//! [`Watch::took`]. Each change has a folder named by its effect, with the sandbox's record of it: in `undo/` while it is
//! made, taken back or not yet known to the journal, in `undo/kept/` once it is at rest, so that a start looks only at what
//! the last stop interrupted. What always holds: a change is journaled for as long as it stands, also where the daemon
//! stopped between the two; what is kept is bounded, the oldest of whoever keeps the most goes first and says so. Whose turn
//! it is stands in `turns`.

mod told;
mod turns;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aos_abi::entry::Changed;
use aos_abi::{Body, CallError, CallId, Code, EffectId, Lsn, Name, Pid, Syscall, Timestamp, limits};
use aos_journal::Reader;
use aos_policy::Permit;
use aos_sandbox::{Committed, Stage, recover};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::heart::Completion;
use super::left;
use crate::home::{AT_REST, changes_in};
use told::changed;
use turns::Turns;
pub(crate) use turns::Wants;
pub(crate) use view::{Link, Links};

/// Characters of a command line that are journaled with its changes; the call's own entry has all of it.
const COMMAND_SHOWN: usize = 500;
/// Where the workspaces are named that are copies of a dry run, below `undo/`: each by a file of its name that holds its path.
const COPIES: &str = "copies";

/// What can be taken back.
pub(crate) struct Undo {
    dir: PathBuf,
    /// What is known to be kept; all of it once `counted` is set.
    kept: Mutex<BTreeMap<EffectId, Kept>>,
    counted: OnceLock<()>,
    /// Held while a folder goes to its rest or comes back from it.
    moving: Mutex<()>,
    /// Changes that stopped half-way, with their workspaces: nothing else changes there until they are at rest.
    halted: Mutex<BTreeMap<EffectId, PathBuf>>,
    /// Where it is looked up whether a change is journaled, and where that goes which is to be.
    journal: OnceLock<(Reader, mpsc::UnboundedSender<Completion>)>,
    turns: Mutex<Turns>,
    /// The folders that commands are shown as mounts, and those that are changed under labels.
    shown: Mutex<Turns>,
    /// The folders for which persons wait: calls that wait too do so until these have had their turn.
    persons: watch::Sender<Vec<PathBuf>>,
}

/// Looks after a change that somebody begins and does not bring to rest, also where that panics.
#[must_use]
pub(crate) struct Watch {
    undo: Arc<Undo>,
    effect: EffectId,
    workspace: PathBuf,
    over: bool,
}

impl Watch {
    /// As of [`Undo::took`], where there is a change. Blocking.
    pub(crate) fn took(mut self, committed: Option<Committed>) -> Option<(Pid, Body)> {
        self.over = committed.is_some();
        self.undo.took(committed?)
    }

    /// As of [`Undo::turned`]. Blocking.
    fn turned(mut self, note: &Note) -> Result<Committed, aos_sandbox::Error> {
        let turned = self.undo.turned(self.effect, note);
        self.over = turned.is_ok();
        turned
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.over {
            self.undo.look_after(self.effect, &self.workspace);
        }
    }
}

/// One change that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    pid: Pid,
    bytes: u64,
    until: Timestamp,
    /// It is kept until then, whatever else is.
    held: bool,
}

impl Kept {
    fn of(committed: &Committed, note: &Note) -> Kept {
        // What cannot be looked through may be as much as may be kept.
        let bytes = committed.kept_bytes().unwrap_or(limits::UNDO_PROCESS_BYTES_MAX);
        Kept { pid: note.pid, bytes, until: note.until, held: note.held }
    }
}

/// What is written down with a change, so that it can be journaled after a crash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) pid: Pid,
    effect: EffectId,
    call_id: CallId,
    name: Name,
    args: Value,
    rule: String,
    undo_ms: u64,
    pub(crate) until: Timestamp,
    undoes: Option<String>,
    restores: Option<String>,
    /// Untrusted content may have led to it, and no person had seen it: it can be taken back until its window ends.
    #[serde(default)]
    held: bool,
}

impl Note {
    /// What is known of a call before it runs.
    pub(crate) fn of(effect: EffectId, call_id: &str, permit: &Permit) -> Note {
        let undo_ms = permit.obligations().undo_ms.unwrap_or(limits::UNDO_WINDOW_S * 1000);
        Note {
            pid: permit.pid(),
            effect,
            call_id: call_id.to_owned(),
            name: permit.call().name(),
            args: brief(permit.call()),
            rule: permit.rule().to_owned(),
            undo_ms,
            until: super::heart::now().plus_millis(undo_ms),
            undoes: None,
            restores: None,
            held: false,
        }
    }

    /// The same of a call to which untrusted content may have led.
    pub(crate) fn held(self, held: bool) -> Note {
        Note { held, ..self }
    }

    /// What is known of taking that back, or of making it again.
    pub(crate) fn turned(&self, undoes: &str, restores: Option<String>) -> Note {
        Note {
            rule: "a person: undo".to_owned(),
            until: super::heart::now().plus_millis(self.undo_ms),
            undoes: Some(undoes.to_owned()),
            restores,
            ..self.clone()
        }
    }

    /// As it is written down.
    pub(crate) fn written(&self) -> Value {
        serde_json::to_value(self).expect("a note is plain data")
    }

    fn read(committed: &Committed) -> Option<Note> {
        serde_json::from_value(committed.note().clone()).ok()
    }
}

/// The arguments without contents: what says which call it was.
fn brief(call: &Syscall) -> Value {
    match call {
        Syscall::FsMove(args) => json!({ "from": args.from, "to": args.to }),
        Syscall::ExecCmd(args) => json!({ "cmd": args.cmd.chars().take(COMMAND_SHOWN).collect::<String>() }),
        call => json!({ "path": call.args().get("path").cloned().unwrap_or_default() }),
    }
}

impl Undo {
    /// Brings to rest what the stop of the last daemon interrupted, and gives the changes that the journal, which ends with
    /// `last`, may not know of yet. What is at rest is not looked at: [`Undo::count`] does that later.
    pub(crate) fn open(dir: PathBuf, last: Lsn) -> io::Result<(Undo, Vec<(Pid, Changed)>)> {
        std::fs::create_dir_all(dir.join(AT_REST))?;
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        put_away(&dir, last)?;
        for copy in std::fs::read_dir(dir.join(COPIES)).into_iter().flatten().flatten() {
            if std::fs::read(copy.path()).is_ok_and(|path| !Path::new(OsStr::from_bytes(&path)).exists()) {
                let _ = std::fs::remove_file(copy.path());
            }
        }
        let undo = Undo {
            dir,
            kept: Mutex::default(),
            counted: OnceLock::new(),
            moving: Mutex::default(),
            halted: Mutex::default(),
            journal: OnceLock::new(),
            turns: Mutex::default(),
            shown: Mutex::default(),
            persons: watch::Sender::default(),
        };
        let mut owed = Vec::new();
        for (effect, path) in changes_in(&undo.dir)? {
            match recover(&path) {
                Ok(None) => {}
                Ok(Some(committed)) => owed.extend(undo.found(effect, committed)),
                Err(error) => {
                    tracing::warn!(%effect, error = error.whole(), "a change is not brought to an end");
                    // Where its record cannot be read, nobody knows whose files it is about.
                    if let Ok(Some(committed)) = Committed::load(&path) {
                        undo.look_after(effect, &committed.workspace());
                    }
                }
            }
        }
        Ok((undo, owed))
    }

    /// Takes in a change that an earlier daemon left; what the journal may not know of it. Its time runs from now: nobody was
    /// told of it before, and what it replaced may be what somebody saved since.
    fn found(&self, effect: EffectId, mut committed: Committed) -> Option<(Pid, Changed)> {
        let mut note = Note::read(&committed)?;
        note.until = super::heart::now().plus_millis(note.undo_ms);
        if let Err(error) = committed.note_anew(note.written()) {
            tracing::warn!(%effect, error = error.whole(), "how long a change is kept could not be written down");
        }
        let kept = Kept::of(&committed, &note);
        self.keep(effect, kept);
        let changed = changed(&committed, &note);
        if committed.dir().join(format!("told-{}", committed.turn())).exists() {
            // So version 0.1.0 marked what the journal knows of.
            self.told(&changed);
            return None;
        }
        Some((note.pid, changed))
    }

    /// Looks once at all that is kept, then makes room; whoever needs it meanwhile waits. Blocking, and as long as the
    /// number of changes.
    pub(crate) fn count(&self) {
        self.counted.get_or_init(|| {
            let kept = changes_in(&self.dir.join(AT_REST)).unwrap_or_else(|error| {
                tracing::warn!(%error, "what is kept for undoing cannot be listed");
                Vec::new()
            });
            for (effect, path) in kept {
                let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
                let loaded = Committed::load(&path);
                if matches!(loaded, Ok(None))
                    && let Err(error) = recover(&path)
                {
                    // The record goes first, and a stop came before the rest.
                    tracing::warn!(%effect, error = error.whole(), "what is left of a change could not be deleted");
                }
                let loaded = loaded.ok().flatten();
                let Some((note, committed)) = loaded.and_then(|found| Some((Note::read(&found)?, found))) else {
                    continue;
                };
                let found = Kept::of(&committed, &note);
                // What a call has brought up to date since stands.
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).entry(effect).or_insert(found);
            }
            self.drop_too_much();
        });
    }

    /// Where the folder of a change is, or would be.
    fn folder(&self, effect: EffectId) -> PathBuf {
        let kept = self.dir.join(AT_REST).join(effect.to_string());
        if kept.exists() { kept } else { self.dir.join(effect.to_string()) }
    }

    /// Has what comes to rest after the start journaled.
    pub(crate) fn tells(&self, reader: Reader, completions: mpsc::UnboundedSender<Completion>) {
        let _ = self.journal.set((reader, completions));
    }

    /// Watches over a change until it rests.
    pub(crate) fn watch(self: &Arc<Self>, effect: EffectId, workspace: &Path) -> Watch {
        Watch { undo: Arc::clone(self), effect, workspace: workspace.to_owned(), over: false }
    }

    /// Remembers a change of this workspace if it stopped half-way, or if nobody can tell. Blocking.
    fn look_after(&self, effect: EffectId, workspace: &Path) {
        match Committed::load(&self.dir.join(effect.to_string())) {
            Ok(None) => return,
            Ok(Some(committed)) if committed.stage().rests() => return,
            Ok(Some(_)) | Err(_) => {}
        }
        tracing::warn!(%effect, workspace = %workspace.display(), "a change stopped half-way");
        self.halted.lock().unwrap_or_else(PoisonError::into_inner).insert(effect, workspace.to_owned());
    }

    /// Brings a change to rest that stopped half-way. Blocking.
    fn resume(&self, effect: EffectId) -> Result<(), CallError> {
        let recovered = {
            let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
            recover(&self.dir.join(effect.to_string()))
        };
        let recovered = recovered.map_err(|error| {
            let stands = format!("an earlier change stopped half-way and cannot be brought to an end: {}", error.whole());
            CallError::new(Code::Io, stands).hint(match error {
                aos_sandbox::Error::Conflict { .. } => {
                    "this takes a person, who gives what is there now other names, and brings back folders that are gone: \
                     either way to end it would take that; it is tried again with each call that changes these files, and \
                     at the next start"
                }
                _ => {
                    "until it is, nothing else changes these files; it is tried again with each call that would, and at \
                     the next start"
                }
            })
        })?;
        self.halted.lock().unwrap_or_else(PoisonError::into_inner).remove(&effect);
        if let Some(committed) = recovered
            && let Some((pid, changed)) = self.found(effect, committed)
            && let Some((reader, completions)) = self.journal.get()
        {
            match Note::is_in(reader, pid, &changed) {
                Ok(true) => self.told(&changed),
                // Where that cannot be read, the loop is about to end for the same reason.
                Ok(false) | Err(_) => drop(completions.send((pid, Body::Changed(Box::new(changed))))),
            }
        }
        Ok(())
    }

    /// A folder for the layer of a call. `None` for a call that is repeated after a crash and has changed something
    /// already, or of which something is left that cannot be deleted. Blocking.
    pub(crate) fn layer(&self, effect: EffectId) -> Option<PathBuf> {
        let dir = self.folder(effect);
        // Without a record nothing was begun, and the start that should have deleted it could not.
        if dir.exists() && matches!(Committed::load(&dir), Ok(None)) {
            let _ = recover(&dir);
        }
        (!dir.exists()).then_some(dir)
    }

    /// The answer to a call that is asked for again after a crash, and had changed the files by then. Made once more, it
    /// would replace what somebody wrote since, and keep nothing of that. What is there must be this call's own: the
    /// numbers of effects are those of the journal, and a home may have another one by now.
    pub(crate) fn made_before(
        &self,
        effect: EffectId,
        pid: Pid,
        call_id: &str,
        call: &Syscall,
    ) -> Result<Value, CallError> {
        let own = self.load(effect).is_some_and(|(committed, note)| {
            let known = (note.pid, &*note.call_id, note.name, note.args);
            committed.stage().rests() && known == (pid, call_id, call.name(), brief(call))
        });
        match call {
            Syscall::FsWrite(write) if own => Ok(json!({ "bytes": write.content.len() })),
            _ => Err(CallError::new(Code::Intr, "it was begun before; its outcome is unknown")),
        }
    }

    /// Remembers that a workspace is the copy of a dry run, which nobody wants anything of but the difference: what is
    /// changed there cannot be taken back.
    pub(crate) fn copied(&self, workspace: &Path) -> io::Result<()> {
        std::fs::create_dir_all(self.dir.join(COPIES))?;
        std::fs::write(self.copy_of(workspace), workspace.as_os_str().as_bytes())
    }

    /// It is none, or none any more.
    pub(crate) fn copied_no_more(&self, workspace: &Path) {
        let _ = std::fs::remove_file(self.copy_of(workspace));
    }

    fn is_copy(&self, workspace: &Path) -> bool {
        std::fs::read(self.copy_of(workspace)).is_ok_and(|path| path == workspace.as_os_str().as_bytes())
    }

    fn copy_of(&self, workspace: &Path) -> PathBuf {
        self.dir.join(COPIES).join(workspace.file_name().unwrap_or_default())
    }

    /// Keeps a change that was made, and says what to journal. `None` where nothing changed. Blocking.
    pub(crate) fn took(&self, committed: Committed) -> Option<(Pid, Body)> {
        let note = Note::read(&committed)?;
        let mut changed = changed(&committed, &note);
        let nothing = changed.changes.is_empty();
        let (kept, most) = (committed.kept_bytes(), limits::UNDO_PROCESS_BYTES_MAX);
        let lost = match kept {
            _ if self.is_copy(&committed.workspace()) => Some(Changed::OF_A_COPY.to_owned()),
            _ if nothing => Some("nothing was replaced".to_owned()),
            Some(bytes) if bytes > most && !note.held => {
                Some(format!("what it replaced has {bytes} bytes, the most that is kept is {most}"))
            }
            // What cannot be looked through counts as all that one process may keep, and is kept: else whoever makes it so
            // deep would make its deletion irrevocable.
            Some(_) | None => None,
        };
        if lost.is_some() {
            (changed.undo_ms, changed.lost) = (None, lost);
            if let Err(error) = committed.forget() {
                tracing::warn!(effect = %note.effect, %error, "what a change replaced could not be deleted");
            }
        } else {
            let kept = Kept { pid: note.pid, bytes: kept.unwrap_or(most), until: note.until, held: note.held };
            self.keep(note.effect, kept);
            self.make_room();
        }
        (!nothing).then(|| (note.pid, Body::Changed(Box::new(changed))))
    }

    /// Lays a change that the journal knows of to rest, unless somebody has begun to turn it round since. Blocking.
    pub(crate) fn told(&self, changed: &Changed) {
        let name = changed.effect.to_string();
        let dir = self.dir.join(&name);
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Some(committed)) = Committed::load(&dir) else { return };
        if committed.stage().rests()
            && committed.turn() == changed.turn
            && let Err(error) = std::fs::rename(&dir, self.dir.join(AT_REST).join(name))
        {
            // Then it is looked for in the journal at the next start.
            tracing::debug!(effect = %changed.effect, %error, "not laid to rest");
        }
    }

    /// Takes a change back, or makes it again, and counts what is kept of it now; `note` is written down with that. Blocking.
    ///
    /// # Errors
    /// As of [`Committed::undo`]; where its folder is gone, that it cannot be opened.
    fn turned(&self, effect: EffectId, note: &Note) -> Result<Committed, aos_sandbox::Error> {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, dir) = (self.dir.join(AT_REST).join(effect.to_string()), self.dir.join(effect.to_string()));
        let failed = |source: io::Error| aos_sandbox::Error::Path { path: dir.clone(), source };
        if kept.exists() {
            // From here on a start has to look at it, whatever becomes of the rest.
            std::fs::rename(&kept, &dir).and_then(|()| std::fs::File::open(&self.dir)?.sync_all()).map_err(failed)?;
        }
        let committed = Committed::load(&dir)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let written = note.written();
        let turned =
            if committed.stage() == Stage::Committed { committed.undo(written) } else { committed.redo(written) }?;
        // Once the journal knows of it, its folder is another.
        let kept = Kept::of(&turned, note);
        self.keep(effect, kept);
        Ok(turned)
    }

    /// The change of an effect, if it is kept still.
    pub(crate) fn load(&self, effect: EffectId) -> Option<(Committed, Note)> {
        let committed = Committed::load(&self.folder(effect)).ok().flatten()?;
        let note = Note::read(&committed)?;
        Some((committed, note))
    }

    /// Forgets what was kept of these processes, which are gone. Blocking.
    pub(crate) fn forget_all_of(&self, pids: &[Pid]) {
        self.count();
        self.drop_those(|kept| kept.iter().filter(|(_, kept)| pids.contains(&kept.pid)).map(|(id, _)| *id).collect());
    }

    /// Counts a change among what is kept, as it is now.
    fn keep(&self, effect: EffectId, kept: Kept) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(effect, kept);
    }

    /// Whether one more change can be kept until its window ends, to which untrusted content may have led: else it could be the one
    /// that nobody can take back, or drive out those before it.
    ///
    /// # Errors
    /// `EPERM`: so much is kept of such changes that a person has to see the next.
    pub(crate) fn can_hold(&self, pid: Pid) -> Result<(), CallError> {
        let now = super::heart::now();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let held = || kept.values().filter(|kept| kept.held && kept.until >= now);
        let bytes = |of: &dyn Fn(&Kept) -> bool| held().filter(|kept| of(kept)).map(|kept| kept.bytes).sum::<u64>();
        let full = bytes(&|kept| kept.pid == pid) >= limits::UNDO_PROCESS_BYTES_MAX
            || bytes(&|_| true) >= limits::UNDO_BYTES_MAX
            || held().count() >= limits::UNDO_CHANGES_MAX;
        let Some(until) = held().map(|kept| kept.until).min().filter(|_| full) else { return Ok(()) };
        let message = "so much was replaced after untrusted content was read that what this replaces might not be kept";
        let hint = format!("a person has to see it: make the call with PROPOSE; room comes from {until} on");
        Err(CallError::new(Code::Perm, message).hint(hint))
    }

    /// Makes room, unless that is still to be done for all that is kept.
    fn make_room(&self) {
        if self.counted.get().is_some() {
            self.drop_too_much();
        }
    }

    /// Deletes what is past its time and, oldest first, what is too much.
    fn drop_too_much(&self) {
        let now = super::heart::now();
        self.drop_those(|kept| {
            let over = |kept: &Kept| kept.until < now;
            let mut gone: Vec<EffectId> = kept.iter().filter(|(_, kept)| over(kept)).map(|(id, _)| *id).collect();
            let may_go = kept.iter().filter(|(_, kept)| !over(kept) && !kept.held);
            gone.extend(too_much(may_go.map(|(id, kept)| (*id, *kept))));
            gone
        });
    }

    fn drop_those(&self, which: impl FnOnce(&BTreeMap<EffectId, Kept>) -> Vec<EffectId>) {
        let gone = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = which(&kept);
            kept.retain(|id, _| !gone.contains(id));
            gone
        };
        for effect in gone {
            let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = Committed::load(&self.folder(effect));
            if let Ok(Some(committed)) = loaded
                && committed.stage().rests()
                && let Err(error) = committed.forget()
            {
                tracing::warn!(%effect, %error, "what a change replaced could not be deleted");
            }
        }
    }
}

/// What has to go so that the rest fits: of each process its oldest, and for what all have together the oldest of whoever
/// keeps the most. So a process makes room at its own cost, and at another's only where that one keeps more.
fn too_much(kept: impl Iterator<Item = (EffectId, Kept)>) -> Vec<EffectId> {
    let mut of: BTreeMap<Pid, (u64, VecDeque<(EffectId, u64)>)> = BTreeMap::new();
    for (id, kept) in kept {
        let (bytes, changes) = of.entry(kept.pid).or_default();
        *bytes = bytes.saturating_add(kept.bytes);
        changes.push_back((id, kept.bytes));
    }
    let mut gone = Vec::new();
    loop {
        let bytes = of.values().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let count: usize = of.values().map(|(_, changes)| changes.len()).sum();
        let oldest = |changes: &VecDeque<(EffectId, u64)>| std::cmp::Reverse(changes.front().map(|(id, _)| *id));
        let greedy = of.values_mut().find(|(bytes, _)| *bytes > limits::UNDO_PROCESS_BYTES_MAX);
        let who = match greedy {
            Some(greedy) => Some(greedy),
            None if bytes > limits::UNDO_BYTES_MAX => of.values_mut().max_by_key(|(own, all)| (*own, oldest(all))),
            None if count > limits::UNDO_CHANGES_MAX => of.values_mut().max_by_key(|(_, all)| (all.len(), oldest(all))),
            None => None,
        };
        let Some((own, changes)) = who else { return gone };
        let Some((id, bytes)) = changes.pop_front() else { return gone };
        *own = own.saturating_sub(bytes);
        gone.push(id);
    }
}

/// Puts away changes that the journal does not know the calls of, as a restored home has them, or one of which the end of the
/// journal is lost: their numbers are given again, and nobody asks for them any more.
fn put_away(dir: &Path, last: Lsn) -> io::Result<()> {
    let now = std::time::SystemTime::now();
    for (effect, path) in changes_in(dir)?.into_iter().chain(changes_in(&dir.join(AT_REST))?) {
        if effect.cause <= last {
            continue;
        }
        let Some(away) = left::put(&path, dir, effect, now)? else { continue };
        let days = left::DAYS;
        tracing::warn!(folder = %away.display(), days, "a change of files that the journal does not know was put away");
    }
    left::sweep(dir, now, holds_nobodys);
    Ok(())
}

/// Whether a change that was put away is at rest. One that stopped half-way may hold the only copy of what somebody had.
fn holds_nobodys(away: &Path) -> bool {
    match Committed::load(away) {
        Ok(Some(committed)) => committed.stage().rests(),
        Ok(None) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::Lsn;
    use aos_journal::{Journal, OpenOptions};
    use aos_sandbox::Layer;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Writes a file as a call does, up to where its entry goes to the journal.
    fn changed_by(undo: &Undo, nth: u64, workspace: &Path) -> Changed {
        let effect = EffectId { cause: Lsn(nth), nth: 0 };
        let note = Note {
            pid: Pid(2),
            effect,
            call_id: "c1".into(),
            name: Name::FsWrite,
            args: json!({ "path": format!("f{nth}") }),
            rule: "r".into(),
            undo_ms: 3_600_000,
            until: super::super::heart::now().plus_millis(3_600_000),
            undoes: None,
            restores: None,
            held: false,
        };
        let layer = Layer::create(undo.layer(effect).unwrap()).unwrap();
        layer.write(workspace, Path::new(&format!("f{nth}")), b"new", None).unwrap();
        match undo.took(layer.commit(workspace, None, note.written()).unwrap()) {
            Some((Pid(2), Body::Changed(changed))) => *changed,
            other => panic!("{other:?}"),
        }
    }

    /// A process that wrote much deleted what others could take back.
    #[test]
    fn who_keeps_much_makes_room_at_its_own_cost() {
        let mib = |mib: u64| mib << 20;
        let kept = |list: &[(u64, u64, u64)]| -> Vec<EffectId> {
            let of = |(nth, pid, bytes): &(u64, u64, u64)| {
                (
                    EffectId { cause: Lsn(*nth), nth: 0 },
                    Kept { pid: Pid(*pid), bytes: *bytes, until: Timestamp(0), held: false },
                )
            };
            too_much(list.iter().map(of))
        };
        let ids = |ids: &[u64]| ids.iter().map(|nth| EffectId { cause: Lsn(*nth), nth: 0 }).collect::<Vec<_>>();
        assert_eq!(kept(&[(1, 1, mib(255)), (2, 2, 5), (3, 1, mib(1))]), ids(&[]));
        assert_eq!(kept(&[(1, 1, mib(200)), (2, 2, 5), (3, 1, mib(57))]), ids(&[1]));
        // The oldest is somebody's who keeps little.
        let mut many: Vec<_> = (2..=6).map(|nth| (nth, nth, mib(250))).collect();
        many.insert(0, (1, 1, mib(10)));
        assert_eq!(kept(&many), ids(&[2]));
        let mut many: Vec<_> = (2..=10_001).map(|nth| (nth, 2, 1)).collect();
        many.insert(0, (1, 1, 1));
        assert_eq!(kept(&many), ids(&[2]));
    }

    /// Whoever steered an agent had it delete a folder that was too large to be kept, or drive out what was.
    #[test]
    fn what_untrusted_content_may_have_led_to_is_kept_until_its_window_ends() {
        for held in [false, true] {
            let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
            undo.count();
            let note = Note { held, ..undo.load(changed_by(&undo, 1, workspace.path()).effect).unwrap().1 };
            let remove = |nth: u64, name: &str| {
                let effect = EffectId { cause: Lsn(nth), nth: 0 };
                let layer = Layer::create(undo.layer(effect).unwrap()).unwrap();
                let note = Note { effect, ..note.clone() };
                match undo.took(layer.remove(workspace.path(), Path::new(name), note.written()).unwrap()) {
                    Some((_, Body::Changed(changed))) => (changed.lost.is_none(), undo.load(effect).is_some()),
                    other => panic!("{other:?}"),
                }
            };
            std::fs::write(workspace.path().join("small"), "mine").unwrap();
            assert_eq!(remove(2, "small"), (true, true));
            assert_eq!(undo.can_hold(Pid(2)), Ok(()));
            let large = std::fs::File::create(workspace.path().join("large")).unwrap();
            large.set_len(limits::UNDO_PROCESS_BYTES_MAX + 1).unwrap();
            assert_eq!(remove(3, "large"), (held, held), "held: {held}");
            // What cannot be looked through counts as all that may be kept, and drives out what came before.
            std::fs::create_dir_all(workspace.path().join("deep").join(vec!["a"; 300].join("/"))).unwrap();
            assert_eq!(remove(4, "deep"), (true, true));
            let first = EffectId { cause: Lsn(2), nth: 0 };
            assert_eq!(undo.load(first).is_some(), held, "held: {held}");
            // And then a person has to see the next.
            let refused = undo.can_hold(Pid(2)).err().map(|error| error.code);
            assert_eq!(refused, held.then_some(Code::Perm));
        }
    }

    fn known(undo: &Undo) -> usize {
        undo.kept.lock().unwrap().len()
    }

    /// Ten thousand changes of the past were read at each start, before anybody was served.
    #[test]
    fn a_start_reads_only_what_the_stop_interrupted() {
        let home = tempfile::tempdir().unwrap();
        let workspace = tempfile::tempdir().unwrap();
        let open = || Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let (undo, _) = open();
        let made: Vec<Changed> = (1..=20).map(|nth| changed_by(&undo, nth, workspace.path())).collect();
        made.iter().take(19).for_each(|changed| undo.told(changed));

        let (undo, owed) = open();
        assert_eq!((known(&undo), owed.len()), (1, 1));
        assert_eq!(owed[0].1, made[19]);
        // All of it can be taken back before it was counted.
        assert!(undo.load(made[0].effect).is_some());
        undo.count();
        assert_eq!(known(&undo), 20);

        undo.told(&made[19]);
        let (undo, owed) = open();
        assert_eq!((known(&undo), owed.len()), (0, 0));
        undo.forget_all_of(&[Pid(2)]);
        assert_eq!(changes_in(&home.path().join("undo/kept")).unwrap(), []);
    }

    /// Other calls went on over a change that was half there, and the next start took theirs back with it.
    #[tokio::test]
    async fn a_change_that_stopped_half_way_is_brought_to_rest_before_the_next() {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("w");
        std::fs::create_dir(&workspace).unwrap();
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let (completions, mut outcomes) = mpsc::unbounded_channel();
        let open = || {
            let undo = Arc::new(Undo::open(home.path().join("undo"), Lsn(99)).unwrap().0);
            undo.tells(journal.reader(), completions.clone());
            undo
        };
        let undo = open();
        let made = changed_by(&undo, 1, &workspace);
        undo.told(&made);
        // As it was when somebody took the folder away in the middle of an undo.
        let dir = home.path().join("undo").join(made.effect.to_string());
        std::fs::rename(home.path().join("undo/kept").join(made.effect.to_string()), &dir).unwrap();
        let record = dir.join("committed.json");
        let (_, note) = undo.load(made.effect).unwrap();
        let state = json!({ "stage": "Undoing", "turn": 1, "note": note.turned("p1", None).written() });
        let began = format!("{}\n{state}", std::fs::read_to_string(&record).unwrap());
        std::fs::write(&record, began).unwrap();
        std::fs::rename(&workspace, home.path().join("away")).unwrap();

        let token = CancellationToken::new();
        let turn = async |undo: &Arc<Undo>, path: &str| {
            let path = home.path().join(path);
            undo.turn(Wants { workspace: &path, mounted: &[], labelled: false }, &token).await.map(drop)
        };
        drop(undo.watch(made.effect, &workspace));
        for undo in [undo, open()] {
            let refused = turn(&undo, "w").await.unwrap_err();
            assert_eq!(refused.code, Code::Io);
            assert!(refused.message.contains("stopped half-way"), "{refused:?}");
            assert_eq!(turn(&undo, "other").await, Ok(()));
            undo.drop_those(|_| vec![made.effect]);
            assert!(record.exists(), "what is needed to end it");
        }
        let undo = open();
        assert!(turn(&undo, "w/below").await.is_err() && outcomes.try_recv().is_err());
        std::fs::rename(home.path().join("away"), &workspace).unwrap();
        assert_eq!(turn(&undo, "w").await, Ok(()));
        assert!(!workspace.join("f1").exists());
        match outcomes.try_recv() {
            Ok((Pid(2), Body::Changed(changed))) => {
                assert_eq!((changed.turn, changed.undoes.as_deref()), (1, Some("p1")))
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(turn(&undo, "w").await, Ok(()));
        assert!(outcomes.try_recv().is_err(), "once");
    }

    /// Whoever panics says nothing more, and who cannot read a record does not know that it rests.
    #[tokio::test]
    async fn a_workspace_waits_for_a_change_whose_call_panicked_and_for_one_that_cannot_be_read() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let undo = Arc::new(Undo::open(home.path().join("undo"), Lsn(99)).unwrap().0);
        let token = CancellationToken::new();
        let wants = Wants { workspace: workspace.path(), mounted: &[], labelled: false };
        let (first, second) = (changed_by(&undo, 1, workspace.path()), changed_by(&undo, 2, workspace.path()));
        let record = |made: &Changed| home.path().join("undo").join(made.effect.to_string()).join("committed.json");
        let whole = std::fs::read_to_string(record(&first)).unwrap();
        let watch = undo.watch(first.effect, workspace.path());
        let began = format!("{whole}\n{}", json!({ "stage": "Undoing", "turn": 1, "note": null }));
        let call = std::panic::AssertUnwindSafe(|| {
            let _watch = watch;
            std::fs::write(record(&first), began).unwrap();
            panic!("in the middle of it");
        });
        assert!(std::panic::catch_unwind(call).is_err());
        assert_eq!(undo.halted.lock().unwrap().keys().collect::<Vec<_>>(), [&first.effect]);
        assert!(undo.turn(wants, &token).await.is_ok(), "and by whoever comes next it is ended");
        std::fs::write(record(&second), "no record").unwrap();
        drop(undo.watch(second.effect, workspace.path()));
        assert_eq!(undo.turn(wants, &token).await.map(drop).unwrap_err().code, Code::Io);
    }

    /// Folders deep inside one another made the deletion of what is beside them irrevocable.
    #[test]
    fn what_cannot_be_looked_through_is_kept_all_the_same() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let first = changed_by(&undo, 1, workspace.path());
        undo.told(&first);
        let note = undo.load(first.effect).unwrap().1;
        std::fs::create_dir_all(workspace.path().join("proj").join(vec!["a"; 300].join("/"))).unwrap();
        std::fs::write(workspace.path().join("proj/thesis"), "mine").unwrap();
        let effect = EffectId { cause: Lsn(2), nth: 0 };
        let layer = Layer::create(undo.layer(effect).unwrap()).unwrap();
        let removed = layer.remove(workspace.path(), Path::new("proj"), Note { effect, ..note }.written()).unwrap();
        undo.count();
        match undo.took(removed) {
            Some((_, Body::Changed(changed))) => assert_eq!((changed.undo_ms, changed.lost), (Some(3_600_000), None)),
            other => panic!("{other:?}"),
        }
        // It counts as all that its process may keep.
        assert!(undo.load(first.effect).is_none());
        undo.load(effect).unwrap().0.undo(Value::Null).unwrap();
        assert_eq!(std::fs::read_to_string(workspace.path().join("proj/thesis")).unwrap(), "mine");
    }

    /// A stop in the middle of forgetting left it for good, and uncounted.
    #[test]
    fn what_is_left_of_a_change_that_was_being_forgotten_goes() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        for nth in [1, 2] {
            undo.told(&changed_by(&undo, nth, workspace.path()));
        }
        let kept = home.path().join("undo/kept");
        std::fs::remove_file(kept.join("1.0/committed.json")).unwrap();
        // What cannot be read is looked at by a person.
        std::fs::create_dir_all(kept.join("3.0/old")).unwrap();
        std::fs::write(kept.join("3.0/committed.json"), "damaged").unwrap();
        let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        undo.count();
        assert_eq!((known(&undo), kept.join("1.0").exists(), kept.join("3.0").exists()), (1, false, true));
    }

    /// A restored home has changes with numbers that its journal gives again: the call that got such a number was told that
    /// it had written, and nothing was; and what was copied in the middle of a commit was finished days later.
    #[test]
    fn changes_that_the_journal_does_not_know_are_put_away() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = home.path().join("undo");
        let (undo, _) = Undo::open(dir.clone(), Lsn(99)).unwrap();
        let made: Vec<Changed> = [7, 8, 9].map(|nth| changed_by(&undo, nth, workspace.path())).into();
        made[..2].iter().for_each(|changed| undo.told(changed));
        // The last was under way.
        let record = dir.join("9.0/committed.json");
        let note = undo.load(made[2].effect).unwrap().1.written();
        let state = json!({ "stage": "Undoing", "turn": 1, "note": note });
        std::fs::write(&record, format!("{}\n{state}", std::fs::read_to_string(&record).unwrap())).unwrap();

        let (undo, owed) = Undo::open(dir.clone(), Lsn(7)).unwrap();
        assert_eq!(owed, []);
        assert!(workspace.path().join("f9").exists(), "nobody asked for it any more");
        let kept: Vec<bool> = made.iter().map(|changed| undo.load(changed.effect).is_some()).collect();
        assert_eq!(kept, [true, false, false]);
        assert_eq!(undo.layer(made[1].effect), Some(dir.join("8.0")));
        assert!(dir.join(".left-8.0-1/committed.json").exists() && dir.join(".left-9.0-1/committed.json").exists());
        // Of these the one that stopped half-way may hold what nobody else has.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs((left::DAYS + 1) * 24 * 3600);
        left::sweep(&dir, later, holds_nobodys);
        assert!(!dir.join(".left-8.0-1").exists() && dir.join(".left-9.0-1/committed.json").exists());
        undo.count();
        assert_eq!(known(&undo), 1);
    }

    #[test]
    fn a_write_that_was_made_before_a_crash_is_told_of_and_nothing_else_is() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let effect = changed_by(&undo, 1, workspace.path()).effect;
        let call = |name: &str, path: &str| {
            let content = if name == "FS_WRITE" { json!("für") } else { Value::Null };
            let mut args = json!({ "path": path, "content": content });
            args.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            Syscall::parse(name, &args.to_string()).unwrap()
        };
        let asked = |pid: u64, call_id: &str, name: &str, path: &str| {
            undo.made_before(effect, Pid(pid), call_id, &call(name, path)).map_err(|error| error.code)
        };
        assert_eq!(asked(2, "c1", "FS_WRITE", "f1"), Ok(json!({ "bytes": 4 })));
        for (pid, call_id, name, path) in [
            (2, "c1", "FS_DELETE", "f1"),
            (2, "c1", "FS_WRITE", "f2"),
            (2, "c2", "FS_WRITE", "f1"),
            (3, "c1", "FS_WRITE", "f1"),
        ] {
            assert_eq!(asked(pid, call_id, name, path), Err(Code::Intr), "{pid} {call_id} {name} {path}");
        }
        // A layer that no start could delete.
        let left = EffectId { cause: Lsn(2), nth: 0 };
        let layer = undo.layer(left).unwrap();
        std::fs::create_dir_all(layer.join("upper")).unwrap();
        assert!(undo.made_before(left, Pid(2), "c1", &call("FS_WRITE", "f1")).is_err());
        assert_eq!(undo.layer(left), Some(layer.clone()));
        assert!(!layer.exists());
    }

    /// It was deleted at once, with what it had replaced, though the one who asked was told of fifteen minutes more.
    #[test]
    fn what_a_start_brings_to_rest_is_kept_for_a_whole_window() {
        let (home, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = || Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let (undo, _) = open();
        let effect = changed_by(&undo, 1, workspace.path()).effect;
        let note = undo.load(effect).unwrap().1;
        let record = home.path().join("undo/1.0/committed.json");
        let began = Note { until: Timestamp(0), ..note.turned("p1", None) };
        let state = json!({ "stage": "Undoing", "turn": 1, "note": began.written() });
        std::fs::write(&record, format!("{}\n{state}", std::fs::read_to_string(&record).unwrap())).unwrap();
        let (undo, owed) = open();
        assert_eq!((owed.len(), owed[0].1.turn, workspace.path().join("f1").exists()), (1, 1, false));
        undo.told(&owed[0].1);
        let (undo, _) = open();
        undo.count();
        let (turned, note) = undo.load(effect).unwrap();
        assert!(note.until > super::super::heart::now());
        turned.redo(Value::Null).unwrap();
    }

    /// What was taken back was measured where it no longer lay, counted as all that a process may keep, and the next change
    /// of anybody deleted what else that process could take back.
    #[tokio::test]
    async fn what_the_journal_hears_of_at_once_is_counted_as_what_it_is() {
        let home = tempfile::tempdir().unwrap();
        let workspace = tempfile::tempdir().unwrap();
        let (undo, _) = Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let undo = Arc::new(undo);
        let made: Vec<Changed> = (1..=3).map(|nth| changed_by(&undo, nth, workspace.path())).collect();
        made.iter().for_each(|changed| undo.told(changed));
        undo.count();

        let link = Link { effect: made[2].effect, turn: 0, undoes: None };
        let proposal = json!({
            "id": "p3", "pid": 2, "call": { "name": "FS_WRITE", "args": {} }, "verdict": "allow", "rule": "r", "why": null,
            "risk": null, "preview": "", "state": "executed", "expires_at": "2026-11-26T00:00:00Z",
        });
        let proposal = serde_json::from_value(proposal).unwrap();
        let told = Arc::clone(&undo);
        let tell = |_, body| async move {
            let Body::Changed(changed) = body else { panic!("{body:?}") };
            told.told(&changed);
            Ok(Some("p4".to_owned()))
        };
        undo.undo(proposal, &[("p3".to_owned(), link)].into(), Default::default(), None, tell).await.unwrap();
        assert!(!workspace.path().join("f3").exists());

        let bytes = |nth: usize| undo.kept.lock().unwrap()[&made[nth].effect].bytes;
        assert!((1..100_000).contains(&bytes(2)), "{}", bytes(2));
        undo.make_room();
        assert!(undo.load(made[0].effect).is_some());
    }

    #[test]
    fn what_is_turned_round_is_looked_at_again_until_the_journal_knows() {
        let home = tempfile::tempdir().unwrap();
        let workspace = tempfile::tempdir().unwrap();
        let open = || Undo::open(home.path().join("undo"), Lsn(99)).unwrap();
        let (undo, _) = open();
        let made = changed_by(&undo, 1, workspace.path());
        undo.told(&made);
        let (_, note) = undo.load(made.effect).unwrap();
        let turned = undo.turned(made.effect, &note.turned("p1", None)).unwrap();
        assert!(!workspace.path().join("f1").exists());
        // The word of the first turn may come late.
        undo.told(&made);
        let (undo, owed) = open();
        assert_eq!(owed.iter().map(|(_, changed)| changed.turn).collect::<Vec<_>>(), [1]);
        assert_eq!(turned.turn(), 1);
        undo.told(&owed[0].1);
        assert_eq!(open().1, []);

        // As an older version left it.
        let old = home.path().join("undo").join(made.effect.to_string());
        std::fs::rename(home.path().join("undo/kept").join(made.effect.to_string()), &old).unwrap();
        std::fs::write(old.join("told-1"), "").unwrap();
        assert_eq!(open().1, []);
        assert!(!old.exists());
    }
}
