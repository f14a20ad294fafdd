//! Where decisions can be made again from: the state with which this version of aos began, or that a prune left.
//!
//! Start at [`renew`], which a start calls, and at [`origin`]. What always holds: what a version decided is decided again by
//! that version alone; a home that another one has written goes on from its state, and keeps that state whole.

use aos_abi::{Lsn, Pid};
use aos_journal::{Barrier, BarrierPages, Error, Journal, Reader};
use aos_kernel::Kernel;
use aos_kernel::table::{Page, PageStore};

use super::restore;

/// The version that decides.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A kernel from which decisions can be made again, and the last entry that it has in it.
pub(super) fn origin(reader: &Reader) -> Result<(Kernel<Pages>, Lsn), Error> {
    if let Some(barrier) = whole(reader)?
        && let Ok(kernel) = Kernel::restore(&barrier.globals, Pages(Some(reader.barrier_pages()?)))
    {
        return Ok((kernel, barrier.lsn));
    }
    // Of another format, or none: the entries are the truth from the first one on.
    Ok((Kernel::new(Pages(None)), Lsn::ZERO))
}

/// The entry after which decisions are made again.
pub(super) fn position(reader: &Reader) -> Result<Lsn, Error> {
    Ok(whole(reader)?.map_or(Lsn::ZERO, |barrier| barrier.lsn))
}

/// The barrier; `None` where there is none, or where its bytes are not those that were written: all that it says is in the
/// entries too.
fn whole(reader: &Reader) -> Result<Option<Barrier>, Error> {
    match reader.barrier() {
        Err(error @ Error::Corrupt { .. }) => {
            tracing::warn!("the barrier is left out: {error}");
            Ok(None)
        }
        barrier => barrier,
    }
}

/// Keeps the state as it is, where another version decided what led to it.
pub(super) fn renew<P: PageStore>(journal: &Journal, kernel: &mut Kernel<P>) -> Result<Option<Lsn>, Error> {
    if whole(&journal.reader())?.is_some_and(|barrier| barrier.version == VERSION) {
        return Ok(None);
    }
    let saved = restore::kept(kernel.checkpoint());
    let lsn = saved.lsn;
    journal.checkpoint_wait(saved)?;
    journal.barrier_wait(VERSION)?;
    Ok(Some(lsn))
}

/// The pages of the barrier; none where it all begins with the first entry.
#[derive(Debug)]
pub(super) struct Pages(Option<BarrierPages>);

impl PageStore for Pages {
    fn load(&mut self, pid: Pid) -> Result<Option<Page>, String> {
        let Some(pages) = &self.0 else { return Ok(None) };
        Ok(pages.load(pid).map_err(|error| error.to_string())?.map(Page::Stored))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aos_abi::process::SpawnSpec;
    use aos_abi::{Body, Entry, Signal, Timestamp};
    use aos_journal::{Checkpoint, OpenOptions};
    use aos_kernel::table::NoPages;

    use super::*;
    use crate::daemon::past::replay;

    fn open(home: &tempfile::TempDir) -> Journal {
        Journal::open(&home.path().join("journal.db"), OpenOptions::default()).unwrap().0
    }

    fn spawned(pid: Pid) -> (Pid, Body) {
        (pid, Body::Spawned(Box::new(SpawnSpec::resident(pid, "r", "m"))))
    }

    fn stop() -> Body {
        Body::Signal { signal: Signal::Stop, from_pid: Pid::INIT, tree: false }
    }

    fn decides<P: PageStore>(kernel: &mut Kernel<P>, journal: &Journal, (pid, body): (Pid, Body)) {
        journal.append_wait(kernel.apply(Timestamp(1), pid, body).entries).unwrap();
    }

    /// A home in which an earlier version decided something that this one does not.
    fn of_an_earlier_version(home: &tempfile::TempDir) -> (Journal, Kernel<NoPages>) {
        let journal = open(home);
        let mut kernel = Kernel::new(NoPages);
        decides(&mut kernel, &journal, spawned(Pid(2)));
        let mut applied = kernel.apply(Timestamp(1), Pid(2), stop()).entries;
        let other = Entry { pid: Pid(9), ..(*applied[0]).clone() };
        applied[0] = Arc::new(other);
        journal.append_wait(applied).unwrap();
        let made = kernel.checkpoint();
        let saved = Checkpoint { lsn: made.lsn, globals: made.globals, pages: made.pages, removed: made.removed };
        journal.checkpoint_wait(saved).unwrap();
        journal.barrier_wait("0.0.1").unwrap();
        (journal, kernel)
    }

    /// After an upgrade every replay told of differences, and there was no state to begin with.
    #[test]
    fn what_an_earlier_version_decided_is_not_decided_again() {
        let home = tempfile::tempdir().unwrap();
        let (journal, mut kernel) = of_an_earlier_version(&home);
        let began = kernel.lsn();
        assert_eq!(renew(&journal, &mut kernel).unwrap(), Some(began));
        assert_eq!(renew(&journal, &mut kernel).unwrap(), None, "once for each version");
        decides(&mut kernel, &journal, spawned(Pid(3)));
        decides(
            &mut kernel,
            &journal,
            (Pid(2), Body::Signal { signal: Signal::Cont, from_pid: Pid::INIT, tree: false }),
        );
        let view = replay(&journal.reader(), Pid(2), None).unwrap().unwrap();
        assert_eq!((view.after, view.inputs, view.difference), (began, 1, None));
        let why = replay(&journal.reader(), Pid(2), Some(began)).unwrap().unwrap_err();
        assert!(why.contains("were decided by an earlier version of aos"), "{why}");
        // It is kept as it was, whatever is saved later.
        let made = kernel.checkpoint();
        let saved = Checkpoint { lsn: made.lsn, globals: made.globals, pages: made.pages, removed: made.removed };
        journal.checkpoint_wait(saved).unwrap();
        assert_eq!(replay(&journal.reader(), Pid(2), None).unwrap().unwrap().difference, None);
    }

    /// What only repeats the entries would have kept the daemon from starting.
    #[test]
    fn a_damaged_barrier_is_left_out_and_made_again() {
        let home = tempfile::tempdir().unwrap();
        let journal = open(&home);
        let mut kernel = Kernel::new(NoPages);
        assert!(renew(&journal, &mut kernel).unwrap().is_some());
        decides(&mut kernel, &journal, spawned(Pid(2)));
        let db = rusqlite::Connection::open(home.path().join("journal.db")).unwrap();
        assert_eq!(db.execute("UPDATE barrier SET globals = x'00'", []).unwrap(), 1);
        let view = replay(&journal.reader(), Pid(2), None).unwrap().unwrap();
        assert_eq!((view.after, view.inputs, view.difference), (Lsn::ZERO, 1, None));
        assert_eq!(renew(&journal, &mut kernel).unwrap(), Some(kernel.lsn()));
        assert!(journal.reader().barrier().is_ok());
    }

    #[test]
    fn a_barrier_of_a_format_that_nobody_reads_leaves_the_entries() {
        let home = tempfile::tempdir().unwrap();
        let journal = open(&home);
        let mut kernel = Kernel::new(NoPages);
        decides(&mut kernel, &journal, spawned(Pid(2)));
        journal
            .checkpoint_wait(Checkpoint { lsn: kernel.lsn(), globals: vec![99, 1], ..Checkpoint::default() })
            .unwrap();
        journal.barrier_wait("0.0.1").unwrap();
        let view = replay(&journal.reader(), Pid(2), None).unwrap().unwrap();
        assert_eq!((view.after, view.inputs, view.difference), (Lsn::ZERO, 1, None));
    }
}
