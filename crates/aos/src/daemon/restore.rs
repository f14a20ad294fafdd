//! The kernel as of the journal's end: the last checkpoint, then every input after it.
//!
//! Start at [`restore`]. What always holds: what is decided again is compared with the facts that the journal holds; a
//! checkpoint of another format, or a damaged one, is made again from the entries, which are the truth, where they reach
//! back to the barrier or to the first one.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aos_abi::{Entry, Lsn, Pid};
use aos_journal::{Checkpoint, Journal, Place, Reader};
use aos_kernel::Kernel;
use aos_kernel::fault::words;
use aos_kernel::table::PageStore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::heart::LiveKernel;
use super::pages::Pages;
use super::{Error, Lost, barrier};

/// How a kernel that ends because a page of a process cannot be had says why.
pub(super) type Failures = (UnboundedSender<aos_journal::Error>, UnboundedReceiver<aos_journal::Error>);

/// The kernel, and the checkpoint that it began with.
pub(super) fn restore(journal: &Journal, failures: &mut Failures) -> Result<(LiveKernel, Lsn), Error> {
    let (failed, heard) = failures;
    match (catch_unwind(AssertUnwindSafe(|| again(journal, failed))), heard.try_recv()) {
        (Ok(restored), _) => restored,
        (Err(_), Ok(error)) => Err(error.into()),
        // What was journaled was applied then, without failing: by another version.
        (Err(fault), Err(_)) => Err(Error::Fails(words(&*fault))),
    }
}

/// The same. It panics where a page cannot be had, which `failed` is told then.
pub(super) fn again(
    journal: &Journal,
    failed: &UnboundedSender<aos_journal::Error>,
) -> Result<(LiveKernel, Lsn), Error> {
    let pages = || -> Result<Pages, Error> {
        Ok(Pages { pages: journal.page_reader()?, entries: journal.reader(), failed: failed.clone() })
    };
    let begun = match journal.load_globals() {
        Ok(None) => Ok((Kernel::new(pages()?), Lsn::ZERO)),
        Ok(Some((lsn, globals))) => Kernel::restore(&globals, pages()?)
            .map(|kernel| (kernel, lsn))
            .map_err(|error| Lost::Other(error.to_string())),
        Err(error @ aos_journal::Error::Corrupt { at: Place::Globals, .. }) => Err(Lost::Damaged(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let (mut kernel, checkpoint) = match begun {
        Ok(begun) => begun,
        Err(lost) => {
            tracing::warn!("{lost}: it is made again from the entries, which may take a while");
            let (lsn, globals) = rebuild(journal, &lost)?;
            let kernel = Kernel::restore(&globals, pages()?)
                .map_err(|error| Error::Part { what: "the checkpoint", why: error.to_string() })?;
            (kernel, lsn)
        }
    };
    replay(&journal.reader(), &mut kernel, checkpoint, None, None)?;
    Ok((kernel, checkpoint))
}

/// What a kernel is at an entry, as the journal keeps it.
pub(super) fn kept(made: aos_kernel::Checkpoint) -> Checkpoint {
    Checkpoint { lsn: made.lsn, globals: made.globals, pages: made.pages, removed: made.removed }
}

/// Makes the checkpoint again, from the barrier on.
fn rebuild(journal: &Journal, lost: &Lost) -> Result<(Lsn, Vec<u8>), Error> {
    let (mut kernel, after) = barrier::origin(&journal.reader())?;
    replay(&journal.reader(), &mut kernel, after, None, Some(lost))?;
    let saved = kept(kernel.checkpoint());
    let again = (saved.lsn, saved.globals.clone());
    journal.checkpoint_wait(saved)?;
    Ok(again)
}

/// Makes the page of a process again, as the last checkpoint has it: what is not in memory is still as it was then.
pub(super) fn page(entries: &Reader, pid: Pid) -> Result<Option<Vec<u8>>, Error> {
    let (mut kernel, after) = barrier::origin(entries)?;
    let lost = Lost::Damaged(format!("the saved state of process {pid} is damaged"));
    replay(entries, &mut kernel, after, Some(entries.checkpoint()?), Some(&lost))?;
    match kernel.checkpoint().pages.into_iter().find(|(of, _)| *of == pid) {
        Some((_, page)) => Ok(Some(page)),
        // It has not changed since the barrier.
        None => Ok(entries.barrier_pages()?.load(pid)?),
    }
}

/// Applies every input after an entry, and up to another one. Effects were performed before the stop, or `Booted` recovers
/// them. `lost` says why there is no later entry to begin with, for where one is missing.
fn replay<P: PageStore>(
    entries: &Reader,
    kernel: &mut Kernel<P>,
    after: Lsn,
    upto: Option<Lsn>,
    lost: Option<&Lost>,
) -> Result<(), Error> {
    let mut expected: VecDeque<Arc<Entry>> = VecDeque::new();
    let (mut last, mut failed) = (after, None);
    entries.for_each_after(after, |recorded| {
        if upto == Some(last) {
            return ControlFlow::Break(());
        }
        // Every decision follows from all that came before it.
        if recorded.lsn != last.next() {
            let lost = lost.cloned().unwrap_or_else(|| Lost::Damaged("the journal has a gap".into()));
            failed = Some(Error::Checkpoint { lost, from: last.next() });
            return ControlFlow::Break(());
        }
        last = recorded.lsn;
        if recorded.cause.is_none() {
            expected = kernel.apply(recorded.at, recorded.pid, recorded.body.clone()).entries.into();
        }
        if expected.pop_front().as_deref() == Some(&recorded) {
            return ControlFlow::Continue(());
        }
        failed = Some(Error::Diverged { lsn: recorded.lsn, from_first: lost.is_some() });
        ControlFlow::Break(())
    })?;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use aos_abi::process::SpawnSpec;
    use aos_abi::{Body, Pid, Signal, Timestamp};
    use aos_journal::OpenOptions;
    use aos_kernel::table::NoPages;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn spawned() -> Body {
        Body::Spawned(Box::new(SpawnSpec { name: Some("kept".into()), ..SpawnSpec::resident(Pid(2), "r", "m") }))
    }

    /// A journal with a living and an ended process, and a checkpoint as another version would have written it.
    fn of_another_version(home: &tempfile::TempDir) -> (Journal, Lsn) {
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let mut kernel = Kernel::new(NoPages);
        let kill = Body::Signal { signal: Signal::Kill, from_pid: Pid::INIT, tree: false };
        for (pid, body) in [(Pid(2), spawned()), (Pid(3), spawned()), (Pid(3), kill)] {
            journal.append_wait(kernel.apply(Timestamp(1), pid, body).entries).unwrap();
        }
        // The first number is the format: of the future, with pages that nobody can read yet.
        let pages = vec![(Pid(2), b"another page".to_vec()), (Pid(3), b"another page".to_vec())];
        let lsn = kernel.lsn();
        journal.checkpoint_wait(Checkpoint { lsn, globals: vec![99, 1, 2, 3], pages, removed: Vec::new() }).unwrap();
        // And something after it.
        let stop = Body::Signal { signal: Signal::Stop, from_pid: Pid::INIT, tree: false };
        journal.append_wait(kernel.apply(Timestamp(2), Pid(2), stop).entries).unwrap();
        (journal, lsn)
    }

    /// A home whose checkpoint an older program had written was refused, though its journal had everything.
    #[test]
    fn a_checkpoint_of_another_format_is_made_again_from_the_journal() {
        let home = tempfile::tempdir().unwrap();
        let (journal, _) = of_another_version(&home);
        let (mut kernel, checkpoint) = restore(&journal, &mut unbounded_channel()).unwrap();
        assert_eq!((kernel.lsn(), checkpoint), (journal.last(), journal.last()));
        let listed = kernel.list([Pid(2), Pid(3)], true, None);
        let states: Vec<_> = listed.iter().map(|view| (view.name.as_str(), view.state.as_str())).collect();
        assert_eq!(states, [("kept", "stopped"), ("kept", "exited")]);
        // From now on it is an ordinary one.
        assert!(Kernel::restore(&journal.load_globals().unwrap().unwrap().1, NoPages).is_ok());
        assert_eq!(restore(&journal, &mut unbounded_channel()).unwrap().0.list([Pid(2)], true, None), listed[..1]);
    }

    #[test]
    fn a_checkpoint_of_another_format_is_refused_where_entries_were_pruned() {
        let home = tempfile::tempdir().unwrap();
        let (journal, _) = of_another_version(&home);
        let plan = journal.reader().prune_plan(vec![Pid(3)]).unwrap();
        let (sender, answer) = sync_channel(1);
        journal.prune(plan, journal.last().next(), Timestamp(3), move |outcome| sender.send(outcome).unwrap());
        answer.recv().unwrap().unwrap();
        let before = journal.load_globals().unwrap();
        let error = restore(&journal, &mut unbounded_channel()).err().unwrap();
        assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
        assert!(error.to_string().contains("of format 99"), "{error}");
        assert!(error.hint().contains("start the version of aos that wrote it"), "{}", error.hint());
        assert_eq!(journal.load_globals().unwrap(), before, "nothing was changed");
    }

    /// A home with a process at rest and one that has ended, and their saved state.
    fn at_rest(home: &tempfile::TempDir) -> Journal {
        let (journal, _) = Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap();
        let mut kernel = Kernel::new(NoPages);
        let kill = Body::Signal { signal: Signal::Kill, from_pid: Pid::INIT, tree: false };
        for (pid, body) in [(Pid(2), spawned()), (Pid(3), spawned()), (Pid(3), kill)] {
            journal.append_wait(kernel.apply(Timestamp(1), pid, body).entries).unwrap();
        }
        let made = kernel.checkpoint();
        let saved = Checkpoint { lsn: made.lsn, globals: made.globals, pages: made.pages, removed: made.removed };
        journal.checkpoint_wait(saved).unwrap();
        journal
    }

    fn damage(home: &tempfile::TempDir, what: &str) {
        let db = rusqlite::Connection::open(home.path().join("journal.db")).unwrap();
        // The last byte, so that only the digest tells.
        let last = |column| format!("CAST(substr({column}, 1, length({column}) - 1) || x'7f' AS BLOB)");
        let changed = match what {
            "globals" => db.execute(&format!("UPDATE checkpoint SET globals = {}", last("globals")), []),
            pid => db.execute(&format!("UPDATE page SET state = {} WHERE pid = {pid}", last("state")), []),
        };
        assert_eq!(changed.unwrap(), 1);
    }

    /// A changed byte in the saved state of one process ended the daemon when something reached for it, and again at each
    /// start where that was a timer.
    #[test]
    fn a_damaged_page_is_made_again_from_the_entries_and_written() {
        let home = tempfile::tempdir().unwrap();
        let journal = at_rest(&home);
        let page = journal.reader().page(Pid(2)).unwrap().unwrap();
        damage(&home, "2");
        assert!(journal.reader().page(Pid(2)).is_err());
        let (mut kernel, _) = restore(&journal, &mut unbounded_channel()).unwrap();
        let listed = kernel.glance(Vec::new(), |kernel| kernel.list([Pid(2), Pid(3)], true, None));
        assert_eq!(listed.iter().map(|view| view.state.as_str()).collect::<Vec<_>>(), ["blocked", "exited"]);
        let mended = kernel.checkpoint();
        assert_eq!(mended.pages, [(Pid(2), page)]);
    }

    #[test]
    fn a_damaged_checkpoint_is_made_again_from_the_entries() {
        let home = tempfile::tempdir().unwrap();
        let journal = at_rest(&home);
        let before = journal.load_globals().unwrap();
        damage(&home, "globals");
        let (kernel, checkpoint) = restore(&journal, &mut unbounded_channel()).unwrap();
        assert_eq!((kernel.lsn(), checkpoint), (journal.last(), journal.last()));
        assert_eq!(journal.load_globals().unwrap(), before);
    }

    #[test]
    fn where_entries_were_pruned_a_damaged_page_ends_the_kernel_with_its_name() {
        let home = tempfile::tempdir().unwrap();
        let journal = at_rest(&home);
        let plan = journal.reader().prune_plan(vec![Pid(3)]).unwrap();
        let (sender, answer) = sync_channel(1);
        journal.prune(plan, journal.last().next(), Timestamp(3), move |outcome| sender.send(outcome).unwrap());
        answer.recv().unwrap().unwrap();
        damage(&home, "2");
        let mut failures = unbounded_channel();
        // The prune's mark is applied again, which reaches for nobody.
        let (mut kernel, _) = restore(&journal, &mut failures).unwrap();
        let reached = catch_unwind(AssertUnwindSafe(|| kernel.process(Pid(2)).is_some()));
        assert!(reached.is_err());
        let error = failures.1.try_recv().unwrap();
        assert!(matches!(error, aos_journal::Error::Corrupt { at: Place::Page(Pid(2)), .. }), "{error}");
        assert!(error.hint().contains("`aos restore FILE` from a backup"), "{}", error.hint());
    }
}
