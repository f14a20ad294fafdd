//! The kernel as of the journal's end: the last checkpoint, then every input after it.
//!
//! Start at [`restore`]. What always holds: what is decided again is compared with the facts that the journal holds; a
//! checkpoint of another format is made again from the journal, which is the truth, where that still has every entry.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use aos_abi::{Entry, Lsn};
use aos_journal::{Checkpoint, Journal};
use aos_kernel::Kernel;
use aos_kernel::table::{NoPages, PageStore};

use super::Error;
use super::heart::LiveKernel;
use super::pages::Pages;

/// The kernel, and the checkpoint that it began with.
pub(super) fn restore(journal: &Journal) -> Result<(LiveKernel, Lsn), Error> {
    let pages = || journal.page_reader().map(Pages);
    let (mut kernel, checkpoint) = match journal.load_globals()? {
        None => (Kernel::new(pages()?), Lsn::ZERO),
        Some((lsn, globals)) => match Kernel::restore(&globals, pages()?) {
            Ok(kernel) => (kernel, lsn),
            Err(error) => {
                tracing::warn!(upto = %lsn, "{error}: it is made again from the journal, which may take a while");
                let (lsn, globals) = rebuild(journal, &error.to_string())?;
                let kernel = Kernel::restore(&globals, pages()?)
                    .map_err(|error| Error::Part { what: "the checkpoint", why: error.to_string() })?;
                (kernel, lsn)
            }
        },
    };
    replay(journal, &mut kernel, checkpoint, "")?;
    Ok((kernel, checkpoint))
}

/// Makes the checkpoint again, from the first entry on.
fn rebuild(journal: &Journal, why: &str) -> Result<(Lsn, Vec<u8>), Error> {
    let mut kernel = Kernel::new(NoPages);
    replay(journal, &mut kernel, Lsn::ZERO, why)?;
    let made = kernel.checkpoint();
    let saved = Checkpoint { lsn: made.lsn, globals: made.globals, pages: made.pages, removed: made.removed };
    let again = (saved.lsn, saved.globals.clone());
    journal.checkpoint_wait(saved)?;
    Ok(again)
}

/// Applies every input after an entry. Effects were performed before the stop, or `Booted` recovers them. `why` says
/// why there is no later entry to begin with, for where one is missing.
fn replay<P: PageStore>(journal: &Journal, kernel: &mut Kernel<P>, after: Lsn, why: &str) -> Result<(), Error> {
    let mut expected: VecDeque<Arc<Entry>> = VecDeque::new();
    let (mut last, mut failed) = (after, None);
    journal.reader().for_each_after(after, |recorded| {
        // Every decision follows from all that came before it.
        if recorded.lsn != last.next() {
            failed = Some(Error::Checkpoint { why: why.to_owned(), from: last.next() });
            return ControlFlow::Break(());
        }
        last = recorded.lsn;
        if recorded.cause.is_none() {
            expected = kernel.apply(recorded.at, recorded.pid, recorded.body.clone()).entries.into();
        }
        if expected.pop_front().as_deref() == Some(&recorded) {
            return ControlFlow::Continue(());
        }
        failed = Some(Error::Diverged { lsn: recorded.lsn, from_first: !why.is_empty() });
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
        let (mut kernel, checkpoint) = restore(&journal).unwrap();
        assert_eq!((kernel.lsn(), checkpoint), (journal.last(), journal.last()));
        let listed = kernel.list([Pid(2), Pid(3)], true);
        let states: Vec<_> = listed.iter().map(|view| (view.name.as_str(), view.state.as_str())).collect();
        assert_eq!(states, [("kept", "stopped"), ("kept", "exited")]);
        // From now on it is an ordinary one.
        assert!(Kernel::restore(&journal.load_globals().unwrap().unwrap().1, NoPages).is_ok());
        assert_eq!(restore(&journal).unwrap().0.list([Pid(2)], true), listed[..1]);
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
        let error = restore(&journal).err().unwrap();
        assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
        assert!(error.to_string().contains("of format 99"), "{error}");
        assert!(error.hint().contains("start the version of aos that wrote it"), "{}", error.hint());
        assert_eq!(journal.load_globals().unwrap(), before, "nothing was changed");
    }
}
