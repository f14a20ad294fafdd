//! Turns: whose it is to change the files of a folder.
//!
//! Start at [`Undo::turn`]. What always holds: of the calls that change files of one folder one runs at a time, whichever
//! folder above or below it they work on; a person goes before those that wait; nobody changes anything where an earlier
//! change stopped half-way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use aos_abi::{CallError, Code, EffectId, limits};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::Undo;

/// The locks of folders, for as long as somebody wants them.
pub(super) type Turns = BTreeMap<PathBuf, Weak<RwLock<()>>>;

/// Whose turn it is to change files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants<'a> {
    /// Where it changes them.
    pub(crate) workspace: &'a Path,
    /// What a command is shown beside it.
    pub(crate) mounted: &'a [PathBuf],
    /// Whether what it leaves there carries labels: what a command under way reads and sends was decided without them.
    pub(crate) labelled: bool,
}

/// Nobody else changes the files of a workspace while it is held, nor, under labels, those that are mounted.
#[must_use]
#[expect(dead_code, reason = "held until it is dropped")]
pub(crate) struct Turn {
    changes: Vec<OwnedRwLockWriteGuard<()>>,
    reads: Vec<OwnedRwLockReadGuard<()>>,
}

/// Whether two folders have files in common.
fn common(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Takes locks one after the other.
async fn held(locks: &[(Arc<RwLock<()>>, bool)]) -> Turn {
    let (mut changes, mut reads) = (Vec::new(), Vec::new());
    for (lock, alone) in locks {
        match alone {
            true => changes.push(Arc::clone(lock).write_owned().await),
            false => reads.push(Arc::clone(lock).read_owned().await),
        }
    }
    Turn { changes, reads }
}

/// A turn, or why there is none in time.
async fn in_time(turn: impl Future<Output = Turn>, within: Duration, hint: &str) -> Result<Turn, CallError> {
    tokio::time::timeout(within, turn).await.map_err(|_| {
        let waited = format!("another call has been changing this workspace for {} s", within.as_secs());
        CallError::new(Code::Again, waited).hint(hint)
    })
}

/// A person who waits for a folder, until this is dropped.
struct Waits<'u> {
    persons: &'u watch::Sender<Vec<PathBuf>>,
    folder: &'u Path,
}

impl<'u> Waits<'u> {
    fn begin(persons: &'u watch::Sender<Vec<PathBuf>>, folder: &'u Path) -> Waits<'u> {
        persons.send_modify(|waiting| waiting.push(folder.to_owned()));
        Waits { persons, folder }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.persons.send_modify(|waiting| {
            let own = waiting.iter().position(|folder| folder == self.folder);
            own.map(|own| waiting.swap_remove(own));
        });
    }
}

/// Waits until something holds of the folders for which persons wait. Cancel safe.
async fn until(persons: &mut watch::Receiver<Vec<PathBuf>>, holds: impl FnMut(&Vec<PathBuf>) -> bool) {
    // It fails where nobody is left who could tell, and then nobody waits either.
    let _ = persons.wait_for(holds).await;
}

/// The locks of these folders, and of all that have files in common with what is wanted of them; `is` says which, and
/// whether it is wanted alone. By their paths, so that no two wait for each other.
fn wanted(turns: &Mutex<Turns>, own: &[&Path], is: impl Fn(&Path) -> Option<bool>) -> Vec<(Arc<RwLock<()>>, bool)> {
    let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| turn.strong_count() > 0);
    let mut new = Vec::new();
    for folder in own.iter().filter(|folder| !turns.contains_key(**folder)).collect::<Vec<_>>() {
        let turn = Arc::default();
        turns.insert(folder.to_path_buf(), Arc::downgrade(&turn));
        new.push(turn);
    }
    let wanted = turns.iter().filter_map(|(folder, turn)| Some((is(folder)?, turn.upgrade()?)));
    wanted.map(|(alone, turn)| (turn, alone)).collect()
}

impl Undo {
    /// Waits until no other changing call is under way in the workspace, in a folder of it, or in one that it lies in: what
    /// a command runs is what it was decided on. For what is mounted, only what carries labels waits: once it has changed
    /// something, commands that see it are decided with them. Paths are real, and taken as they are: what a
    /// link in the place of one leads to is another folder.
    ///
    /// # Errors
    /// `EAGAIN` where that takes too long, `EINTR` where the call is given up, `EIO` where an earlier change stopped half-way
    /// and cannot be brought to rest.
    pub(crate) async fn turn(self: &Arc<Self>, wants: Wants<'_>, token: &CancellationToken) -> Result<Turn, CallError> {
        let locks = self.locks(wants);
        let mut persons = self.persons.subscribe();
        let here = |folder: &PathBuf| common(folder, wants.workspace);
        let turn = async {
            loop {
                until(&mut persons, |waiting| !waiting.iter().any(here)).await;
                tokio::select! {
                    biased;
                    // What it has of its turn goes back.
                    () = until(&mut persons, |waiting| waiting.iter().any(here)) => {}
                    turn = held(&locks) => return turn,
                }
            }
        };
        let within = Duration::from_secs(limits::WORKSPACE_WAIT_S);
        let turn = tokio::select! {
            biased;
            () = token.cancelled() => Err(CallError::new(Code::Intr, "cancelled")),
            turn = in_time(turn, within, "try again, or give the agents workspaces of their own") => turn,
        }?;
        self.rested(wants.workspace).await?;
        Ok(turn)
    }

    /// The same for a person, whom no label concerns, and who goes before all calls that wait.
    ///
    /// # Errors
    /// As of [`Undo::turn`].
    pub(crate) async fn persons_turn(self: &Arc<Self>, workspace: &Path, within: Duration) -> Result<Turn, CallError> {
        let locks = self.locks(Wants { workspace, mounted: &[], labelled: false });
        let waits = Waits::begin(&self.persons, workspace);
        let hint = "try again when it has ended; `aos ps` shows what runs, `aos kill PID` ends it";
        let turn = in_time(held(&locks), within, hint).await?;
        drop(waits);
        self.rested(workspace).await?;
        Ok(turn)
    }

    /// The locks of a turn, and whether each is held alone.
    fn locks(&self, wants: Wants<'_>) -> Vec<(Arc<RwLock<()>>, bool)> {
        let Wants { workspace, mounted, labelled } = wants;
        let here = |folder: &Path| common(folder, workspace);
        let changed = labelled.then_some(workspace);
        let own: Vec<&Path> = mounted.iter().map(PathBuf::as_path).chain(changed).collect();
        // First, since whoever has its turn waits for nothing more.
        let mut all = wanted(&self.shown, &own, |folder| match labelled && here(folder) {
            true => Some(true),
            false => mounted.iter().any(|mount| common(folder, mount)).then_some(false),
        });
        all.extend(wanted(&self.turns, &[workspace], |folder| here(folder).then_some(true)));
        all
    }

    /// Brings to rest what stopped half-way in a folder, by whoever has its turn.
    async fn rested(self: &Arc<Self>, workspace: &Path) -> Result<(), CallError> {
        let halted: Vec<EffectId> = {
            let halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
            halted.iter().filter(|(_, folder)| common(folder, workspace)).map(|(effect, _)| *effect).collect()
        };
        if !halted.is_empty() {
            let undo = Arc::clone(self);
            let resumed = tokio::task::spawn_blocking(move || halted.into_iter().try_for_each(|one| undo.resume(one)));
            resumed.await.map_err(|error| CallError::new(Code::Io, error.to_string()))??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::Lsn;

    use super::*;

    #[tokio::test]
    async fn calls_that_change_common_files_take_turns_and_others_do_not() {
        let home = tempfile::tempdir().unwrap();
        let undo = Arc::new(Undo::open(home.path().join("undo"), Lsn(99)).unwrap().0);
        let token = CancellationToken::new();
        let turn = async |path: &str| {
            let (path, mounted) = path.split_once('+').unwrap_or((path, ""));
            let mounted: Vec<PathBuf> = mounted.split('+').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
            let (path, labelled) = path.strip_suffix('!').map_or((path, false), |path| (path, true));
            let wants = Wants { workspace: Path::new(path), mounted: &mounted, labelled };
            let turn = undo.turn(wants, &token);
            tokio::time::timeout(Duration::from_millis(50), turn).await.ok().map(Result::unwrap)
        };
        for held in ["/nowhere/w", "/nowhere/w/a/b"] {
            let first = turn(held).await.unwrap();
            for (other, waits) in [
                ("/nowhere/w", true),
                ("/nowhere/w/a", true),
                ("/nowhere/w/a/b/c", true),
                ("/nowhere", true),
                ("/nowhere/w2", false),
            ] {
                assert_eq!(turn(other).await.is_none(), waits, "{other} beside {held}");
            }
            drop(first);
            assert!(turn("/nowhere").await.is_some());
        }
        // What is mounted is read by many, and not changed meanwhile under labels.
        let first = turn("/nowhere/one+/nowhere/docs/a").await.unwrap();
        for (other, waits) in [
            ("/nowhere/two+/nowhere/docs/a", false),
            ("/nowhere/docs/a", false),
            ("/nowhere/docs/a!", true),
            ("/nowhere/docs!", true),
            ("/nowhere/docs/a/b!", true),
            ("/nowhere/docs/b!", false),
            ("/nowhere/two!+/nowhere/one", false),
        ] {
            assert_eq!(turn(other).await.is_none(), waits, "{other}");
        }
        drop(first);
        let first = turn("/nowhere/docs/a!+/nowhere/docs").await.unwrap();
        assert!(turn("/nowhere/two+/nowhere/docs").await.is_none());
        drop(first);
        assert!(turn("/nowhere/docs/a+/nowhere/docs").await.is_some());
    }

    /// Every child of an agent that waited had its turn before the person's undo, until its window was over.
    #[tokio::test]
    async fn a_persons_turn_goes_before_those_of_calls_that_wait() {
        let home = tempfile::tempdir().unwrap();
        let undo = Arc::new(Undo::open(home.path().join("undo"), Lsn(99)).unwrap().0);
        let token = CancellationToken::new();
        let call = async |path: &'static str| {
            let wants = Wants { workspace: Path::new(path), mounted: &[], labelled: false };
            undo.turn(wants, &token).await.unwrap()
        };
        let person = async |path| undo.persons_turn(Path::new(path), Duration::from_secs(5)).await.unwrap();
        let order = Mutex::new(String::new());
        let noted = async |who, turn| {
            order.lock().unwrap().push(who);
            tokio::task::yield_now().await;
            drop(turn);
        };
        let first = call("/nowhere/w/a").await;
        tokio::join!(
            biased;
            async { noted('a', call("/nowhere/w/a").await).await },
            async { noted('w', call("/nowhere/w").await).await },
            // Nobody has that: whoever waits for more gives back what it holds of it.
            async { noted('q', person("/nowhere/w/c").await).await },
            async { noted('p', person("/nowhere/w/a/deep").await).await },
            async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                order.lock().unwrap().push('|');
                drop(first);
            },
        );
        let order = order.into_inner().unwrap();
        assert!(order.starts_with("q|p") && order.len() == 5, "{order}");

        // Who gives up waits no more.
        let first = call("/nowhere/w").await;
        let late = undo.persons_turn(Path::new("/nowhere/w"), Duration::from_millis(1)).await.map(drop).unwrap_err();
        assert_eq!(late.code, Code::Again);
        drop(first);
        drop(call("/nowhere/w").await);
    }
}
