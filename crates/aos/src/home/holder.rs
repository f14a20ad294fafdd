//! The process that has the journal of a home to itself, found by what it holds: its socket may be gone.
//!
//! Start at [`Holder::of`]. What always holds: no process is taken for it because of a number that an earlier one left, or that
//! was given in another container: the one found has the lock open.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Home;

/// The process that holds the journal.
#[derive(Debug)]
pub struct Holder {
    /// Its process id in the operating system.
    pub os_pid: i32,
    /// Whether it is a daemon, and not a restore, say.
    pub is_daemon: bool,
    process: OwnedFd,
}

impl Holder {
    /// Who holds the journal of this home; `None` where nobody does, or it is no process that can be seen from here.
    #[must_use]
    pub fn of(home: &Home) -> Option<Holder> {
        let lock = home.journal_lock();
        if !home.holds_journal() {
            return None;
        }
        let os_pid: i32 = fs::read_to_string(&lock).ok()?.trim().parse().ok()?;
        // From here on it is this one that is spoken of, also where it ends and another gets its number.
        let process = pidfd_open(Pid::from_raw(os_pid)?, PidfdFlags::empty()).ok()?;
        let lock = fs::metadata(&lock).ok()?;
        let is_lock = |fd: fs::DirEntry| {
            fs::metadata(fd.path()).is_ok_and(|file| (file.dev(), file.ino()) == (lock.dev(), lock.ino()))
        };
        fs::read_dir(format!("/proc/{os_pid}/fd")).ok()?.flatten().any(is_lock).then_some(())?;
        let line = fs::read(format!("/proc/{os_pid}/cmdline")).unwrap_or_default();
        let is_daemon = line.split(|byte| *byte == 0).any(|word| word == b"up");
        Some(Holder { os_pid, is_daemon, process })
    }

    /// Asks it to end in good order.
    ///
    /// # Errors
    /// Where it is another user's.
    pub fn end(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.process, Signal::TERM) {
            // It has ended.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_holds_the_lock_is_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        home.create().unwrap();
        let ourselves = format!("{}\n", std::process::id());
        fs::write(home.journal_lock(), &ourselves).unwrap();
        assert!(Holder::of(&home).is_none(), "a number that was left");
        let lock = fs::File::options().write(true).open(home.journal_lock()).unwrap();
        lock.lock().unwrap();
        let holder = Holder::of(&home).unwrap();
        assert_eq!((holder.os_pid.to_string() + "\n", holder.is_daemon), (ourselves, false));
        // The number of one that lives and does not hold it, as of another container.
        fs::write(home.journal_lock(), "1\n").unwrap();
        assert!(Holder::of(&home).is_none());
    }
}
