//! The places between two steps on the disk, at which the tests of this crate cut a commit off. Outside of them nothing.

/// Here a power cut would fall between two steps.
#[inline]
pub(crate) fn pass() {
    #[cfg(test)]
    cut::pass();
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
