//! The places between two steps on the disk, at which the tests of this crate cut a commit off, and what it has done by
//! then, of which they check the order. Outside of them nothing.

use std::path::Path;

use crate::commit::Stage;

/// Here a power cut would fall between two steps.
#[inline]
pub(crate) fn pass() {
    #[cfg(test)]
    cut::pass();
    #[cfg(test)]
    meanwhile::pass();
}

/// Here a disk may fail.
#[inline]
#[cfg_attr(not(test), expect(clippy::unnecessary_wraps, reason = "it fails in tests alone"))]
pub(crate) fn fail() -> Result<(), rustix::io::Errno> {
    #[cfg(test)]
    broken::fail()?;
    Ok(())
}

/// Something that was done on the disk.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look at it"))]
pub(crate) enum Done<'p> {
    /// What has this path lasts now.
    Synced(&'p Path),
    /// All that the file system of this path has lasts now.
    Whole(&'p Path),
    /// The record that says so lasts now.
    Recorded(Stage),
    /// A step was made or taken back.
    Stepped(&'p Path),
    /// A copy has its name.
    Copied(&'p Path),
    /// What was copied is to be deleted.
    Deleting(&'p Path),
}

/// Says what was done.
#[inline]
#[cfg_attr(not(test), expect(unused_variables, reason = "only tests look at it"))]
pub(crate) fn done(what: Done<'_>) {
    #[cfg(test)]
    trace::done(what);
}

#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use super::Done;
    use crate::commit::Stage;

    /// The same, to be kept.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) enum Was {
        Synced(PathBuf),
        Whole(PathBuf),
        Recorded(Stage),
        Stepped(PathBuf),
        Copied(PathBuf),
        Deleting(PathBuf),
    }

    thread_local! {
        static SEEN: RefCell<Vec<Was>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn done(what: Done<'_>) {
        // A name in an open folder is known by where that folder is.
        let real = |path: &std::path::Path| {
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
        };
        let was = match what {
            Done::Synced(path) => Was::Synced(path.canonicalize().unwrap_or_else(|_| real(path))),
            Done::Whole(path) => Was::Whole(real(path)),
            Done::Recorded(stage) => Was::Recorded(stage),
            Done::Stepped(path) => Was::Stepped(path.to_owned()),
            Done::Copied(path) => Was::Copied(real(path)),
            Done::Deleting(path) => Was::Deleting(real(path)),
        };
        SEEN.with_borrow_mut(|seen| seen.push(was));
    }

    /// What was done since this was asked last.
    pub(crate) fn take() -> Vec<Was> {
        SEEN.take()
    }
}

#[cfg(test)]
pub(crate) mod cut {
    use std::cell::Cell;

    thread_local! {
        /// How many places are still passed; `None`: all of them.
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// What the cut is made of.
    pub(crate) struct Cut;

    pub(super) fn pass() {
        match LEFT.get() {
            // Without a word on standard error: there are hundreds of them.
            Some(0) => std::panic::resume_unwind(Box::new(Cut)),
            Some(left) => LEFT.set(Some(left - 1)),
            None => {}
        }
    }

    /// Runs `work` until the place number `at`; whether it was cut off there.
    pub(crate) fn at(at: u32, work: impl FnOnce()) -> bool {
        LEFT.set(Some(at));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        LEFT.set(None);
        match ended {
            Ok(()) => false,
            Err(cut) if cut.is::<Cut>() => true,
            Err(other) => std::panic::resume_unwind(other),
        }
    }
}

#[cfg(test)]
pub(crate) mod meanwhile {
    use std::cell::RefCell;

    type Deed = Box<dyn FnMut() -> bool>;

    thread_local! {
        /// How many places are still passed before somebody does something, until it could be done.
        static DEED: RefCell<Option<(u32, Deed)>> = const { RefCell::new(None) };
    }

    pub(super) fn pass() {
        DEED.with_borrow_mut(|waiting| {
            let Some((left, deed)) = waiting else { return };
            if *left > 0 {
                *left -= 1;
            } else if deed() {
                *waiting = None;
            }
        });
    }

    /// Does `work`, and something else at the place number `at` or at the first one after it where that can be done; whether
    /// it could.
    pub(crate) fn at<T>(at: u32, deed: impl FnMut() -> bool + 'static, work: impl FnOnce() -> T) -> (T, bool) {
        DEED.set(Some((at, Box::new(deed))));
        let done = work();
        (done, DEED.take().is_none())
    }
}

#[cfg(test)]
pub(crate) mod broken {
    use std::cell::Cell;
    use std::ops::Range;

    use rustix::io::Errno;

    thread_local! {
        /// How many places were passed, and of those the ones at which the disk fails.
        static PASSED: Cell<u32> = const { Cell::new(0) };
        static FAILS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn fail() -> Result<(), Errno> {
        let (passed, (from, to)) = (PASSED.get(), FAILS.get());
        PASSED.set(passed + 1);
        if (from..to).contains(&passed) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Does something while the disk fails at these places; whether it came to the first.
    pub(crate) fn at<T>(places: Range<u32>, work: impl FnOnce() -> T) -> (T, bool) {
        FAILS.set((places.start, places.end));
        PASSED.set(0);
        let done = work();
        FAILS.set((0, 0));
        (done, PASSED.get() > places.start)
    }
}
