//! What of its workspace a command sees, and what becomes of its changes: the same rules as for calls on files.
//!
//! Start at [`hidden`], asked before a command, and [`judge`], asked after it. What always holds: a command is shown no
//! file that its process may not read unasked; of its changes all are kept or none, and they are kept only where each of
//! them is a call that its process may make unasked. Whoever asks keeps others from changing the workspace meanwhile.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use aos_abi::syscall::{FsDelete, FsList, FsRead, FsWrite};
use aos_abi::{CallError, Code, Syscall, limits};
use aos_sandbox::{Change, ChangeKind, Layer};

use crate::fs::{Draft, Place, Workspace};

/// The most entries of a workspace that are looked at to tell which may be seen.
const ENTRIES_MAX: usize = 100_000;

/// How deep folders are looked through of which only parts may be read.
const DEPTH_MAX: usize = 128;

/// What the process of a command may do without asking anybody.
pub trait Bounds: Send + Sync + Debug {
    /// Whether it may read all that is in a folder; `.` is the workspace.
    fn reads_all(&self, folder: &str) -> bool;

    /// Whether it may make this call.
    ///
    /// # Errors
    /// `EPERM` with the rule that decides.
    fn allows(&self, call: &Syscall) -> Result<(), CallError>;

    /// Its changes that it may not make, as the calls that would have made them. `all`: these are all, and nothing else stands
    /// against keeping what the command changed; otherwise there are more than [`limits::DENIED_INSIDE_MAX`], and these are
    /// the first.
    fn denies(&self, _calls: &[Syscall], _all: bool) {}

    /// Its changes are about to be made: what has to be known before anybody sees them is told now.
    fn keeps(&self) {}
}

/// Paths of the workspace that may not be read, the topmost of each: all that is below them is hidden too. Blocks.
pub(super) fn hidden(bounds: &dyn Bounds, workspace: &Path) -> Result<Vec<PathBuf>, CallError> {
    let mut walk = Walk { bounds, workspace, hidden: Vec::new(), left: ENTRIES_MAX };
    match bounds.reads_all(".") {
        true => walk.homes(),
        false => walk.folder(Path::new(""), 0).map(drop)?,
    }
    Ok(walk.hidden)
}

struct Walk<'b> {
    bounds: &'b dyn Bounds,
    workspace: &'b Path,
    hidden: Vec<PathBuf>,
    left: usize,
}

impl Walk<'_> {
    /// Hides what is a daemon's own in a workspace of which all else may be read: what stands at its top. To look through
    /// all of it for such a name would cost more than most commands.
    fn homes(&mut self) {
        let entries = std::fs::read_dir(self.workspace).into_iter().flatten().flatten();
        let names = entries.map(|entry| PathBuf::from(entry.file_name()));
        self.hidden.extend(names.filter(|name| self.bounds.allows(&read(&name.to_string_lossy())).is_err()));
    }

    /// Looks through a folder of which not all may be read, and says whether anything in it may be.
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<bool, CallError> {
        let mut seen = false;
        let first = self.hidden.len();
        let entries = std::fs::read_dir(self.workspace.join(folder));
        let entries = match entries.and_then(|entries| entries.take(self.left + 1).collect::<io::Result<Vec<_>>>()) {
            Ok(entries) => entries,
            // What the daemon cannot read itself is hidden whole.
            Err(_) if !folder.as_os_str().is_empty() => return Ok(false),
            Err(error) => {
                let why = "of this workspace only parts may be read, and which they are cannot be told";
                return Err(CallError::new(Code::Perm, format!("{why}: {error}")));
            }
        };
        for entry in entries {
            self.left = self.left.checked_sub(1).filter(|_| depth < DEPTH_MAX).ok_or_else(too_large)?;
            let path = folder.join(entry.file_name());
            let text = path.to_string_lossy();
            let visible = match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.bounds.reads_all(&text) || self.folder(&path, depth + 1)?,
                Ok(_) => self.bounds.allows(&read(&text)).is_ok(),
                Err(_) => false,
            };
            match visible {
                true => seen = true,
                false => self.hidden.push(path),
            }
        }
        if !seen && !folder.as_os_str().is_empty() {
            let list = FsList { path: Some(folder.to_string_lossy().into_owned()), glob: None, depth: None };
            seen = self.bounds.allows(&Syscall::FsList(list)).is_ok();
            if !seen {
                // The folder itself is.
                self.hidden.truncate(first);
            }
        }
        Ok(seen)
    }
}

fn too_large() -> CallError {
    CallError::new(
        Code::Perm,
        format!(
            "of this workspace only parts may be read, and it has more than {ENTRIES_MAX} entries or is deeper than \
             {DEPTH_MAX} folders, so what a command may see cannot be told"
        ),
    )
    .hint("FS_READ on `**` would show commands all of it; or run them in a smaller workspace")
}

fn read(path: &str) -> Syscall {
    Syscall::FsRead(FsRead { path: path.to_owned(), offset: None, limit: None })
}

/// Whether all changes of a layer, sorted by path, may be made. Those that may not are told, where a person who let these
/// through would let all through.
///
/// # Errors
/// `EPERM` with the first that may not, and the rule.
pub(super) fn judge(bounds: &dyn Bounds, workspace: &Path, layer: &Layer, changes: &[Change]) -> Result<(), CallError> {
    let place = Place::new(workspace);
    let opened = Workspace::open(&place)?;
    let folders: Vec<bool> = changes.iter().map(|change| layer.has_folder(&change.path)).collect();
    let for_more = hold_more(changes, &folders);
    let (mut first, mut denied) = (None, Vec::new());
    for (nth, change) in changes.iter().enumerate() {
        let made = folders[nth];
        if change.kind == ChangeKind::Created && Draft::is_in(&change.path.to_string_lossy()) {
            return Err(first.unwrap_or_else(|| unseen(&change.path)));
        }
        let before = denied.len();
        // A folder that was made for what is in it is judged by that.
        let for_what_is_in_it = change.kind == ChangeKind::Created && made && for_more[nth];
        let calls = if for_what_is_in_it { Vec::new() } else { calls(workspace, change, made) };
        for call in calls {
            if let Err(error) = bounds.allows(&call) {
                first.get_or_insert_with(|| refused(&change.path, error));
                denied.push(call);
            }
        }
        // What is not in its place any more goes with all in it, also what was hidden there.
        let goes = change.kind != ChangeKind::Created && !made;
        if goes
            && denied.len() == before
            && let Err(error) = opened.holds_no_home(&change.path)
        {
            return Err(first.unwrap_or_else(|| refused(&change.path, error.into())));
        }
        if denied.len() > limits::DENIED_INSIDE_MAX {
            break;
        }
    }
    let Some(first) = first else { return Ok(()) };
    bounds.denies(&denied, denied.len() <= limits::DENIED_INSIDE_MAX);
    Err(first)
}

/// The calls that would have made a change.
fn calls(workspace: &Path, change: &Change, made: bool) -> Vec<Syscall> {
    let path = change.path.to_string_lossy().into_owned();
    let write = |path| Syscall::FsWrite(FsWrite { path, content: String::new(), mode: None });
    let delete = |path| Syscall::FsDelete(FsDelete { path });
    match change.kind {
        ChangeKind::Created => vec![write(path)],
        // What was in a folder goes with it.
        ChangeKind::Modified if !made && is_folder(&workspace.join(&change.path)) => {
            vec![delete(path.clone()), write(path)]
        }
        ChangeKind::Modified => vec![write(path)],
        ChangeKind::Deleted => vec![delete(path)],
    }
}

/// Which of these changes, sorted by path, are folders with something else than folders below them. Each is looked at once,
/// however deep it lies.
fn hold_more(changes: &[Change], folders: &[bool]) -> Vec<bool> {
    let mut hold = vec![false; changes.len()];
    // The folders around, each in the one before.
    let mut around: Vec<usize> = Vec::new();
    for (nth, change) in changes.iter().enumerate() {
        while around.last().is_some_and(|last| !change.path.starts_with(&changes[*last].path)) {
            around.pop();
        }
        if folders[nth] {
            around.push(nth);
            continue;
        }
        // Around one that is known to hold more, all are.
        for folder in around.iter().rev() {
            if std::mem::replace(&mut hold[*folder], true) {
                break;
            }
        }
    }
    hold
}

fn is_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// What no listing would show is not made, also where every file may be written.
fn unseen(path: &Path) -> CallError {
    let path = escaped(path);
    let message = format!("the command ran, but nothing that it changed was kept, since it made `{path}`");
    CallError::new(Code::Perm, message)
        .hint("that name is one that files have only while they are written, and that no listing shows: use another")
}

fn escaped(path: &Path) -> String {
    path.to_string_lossy().chars().flat_map(char::escape_debug).collect()
}

fn refused(path: &Path, error: CallError) -> CallError {
    let path = escaped(path);
    let message =
        format!("the command ran, but nothing that it changed was kept, since it changed `{path}`: {}", error.message);
    let grant = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    CallError::new(Code::Perm, message).hint(format!(
        "leave that file alone, or change it with FS_WRITE or FS_DELETE, for which a person may be asked{grant}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_more_where_anything_below_it_is_none() {
        let of = |paths: &[&str]| {
            let changes: Vec<Change> = paths
                .iter()
                .map(|path| Change { path: path.trim_end_matches('/').into(), kind: ChangeKind::Created })
                .collect();
            let folders: Vec<bool> = paths.iter().map(|path| path.ends_with('/')).collect();
            hold_more(&changes, &folders)
        };
        assert_eq!(
            of(&["a/", "a/b/", "a/b/c", "a/d/", "e/", "e/f/", "g"]),
            [true, true, false, false, false, false, false]
        );
        assert_eq!(of(&["a/", "a/b/", "a/c/", "a/c/x", "a/c/y", "ab/"]), [true, false, true, false, false, false]);
        assert_eq!(of(&[]), [] as [bool; 0]);
    }
}
