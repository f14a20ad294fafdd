//! The room on the disk that agents leave to the daemon: its journal must go on when theirs may not.
//!
//! Start at [`Spare::check`]. A disk that is full ends the daemon, with every agent of the home; what agents do, files and
//! results alike, ends before. Deliberately absent: what models answer, which is as small as what they are told then.

use std::path::{Path, PathBuf};

use aos_abi::{CallError, Code};

/// On a small disk a twentieth of it stays, and otherwise as much as commands leave.
const SPARED_OF: u64 = 20;

/// The disk that the journal is on.
#[derive(Debug)]
pub(crate) struct Spare {
    home: PathBuf,
}

impl Spare {
    /// Of the disk that holds this home.
    pub(crate) fn new(home: &Path) -> Spare {
        Spare { home: home.to_owned() }
    }

    /// Whether an agent may do what needs room. One look costs about a microsecond.
    ///
    /// # Errors
    /// `ENOSPC` where what is left is the daemon's. Where that cannot be known it may.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        let Ok(disk) = rustix::fs::statvfs(&self.home) else { return Ok(()) };
        enough(disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize))
    }
}

/// Whether so many free bytes of so many are more than what stays.
fn enough(free: u64, all: u64) -> Result<(), CallError> {
    let spared = aos_sandbox::SPARED_BYTES.min(all / SPARED_OF);
    if free > spared {
        return Ok(());
    }
    let message = format!("the disk is nearly full: {} MiB are left, which AOS needs for its journal", free >> 20);
    Err(CallError::new(Code::NoSpc, message)
        .hint("stop and tell the person: room is made outside, or by `aos prune` of what has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_daemons() {
        let (gib, tib) = (1 << 30, 1 << 40);
        for (free, all, may) in [(gib + 1, tib, true), (gib, tib, false), (0, tib, false), (40 << 20, 512 << 20, true)]
        {
            assert_eq!(enough(free, all).is_ok(), may, "{free} of {all}");
        }
        let said = enough(gib / 2, tib).unwrap_err();
        assert!(said.code == Code::NoSpc && said.message.contains("512 MiB are left"), "{said:?}");
        assert!(Spare::new(Path::new("/nowhere/at/all")).check().is_ok());
    }
}
