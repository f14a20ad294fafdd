//! The process tree below a supervisor: finding it, measuring it, ending it.
//!
//! Start at [`kill_descendants`]. It relies on the caller being the subreaper (or the first process) of the tree:
//! whoever loses its parent becomes the caller's child, so nothing gets out of the tree by forking twice or by starting
//! a session.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group};

/// How often the threads of a process are looked through for one that lives.
const THREADS_TRIED: usize = 8;

/// A process as `/proc/PID/stat` describes it (`proc_pid_stat(5)`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) zombie: bool,
    pub(crate) threads: u64,
    /// Resident memory in pages.
    pub(crate) resident: u64,
    /// The thread that shows the process's memory, by whose number `/proc` has it.
    pub(crate) shown_by: i32,
}

impl Process {
    /// Reads one line of `stat`. The name may contain anything, spaces and parentheses too, so counting starts after
    /// its last one.
    fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.rsplit_once(')')?;
        let pid = head.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        Some(Process {
            pid,
            zombie: *fields.first()? == "Z",
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            resident: fields.get(21)?.parse().ok()?,
            shown_by: pid,
        })
    }

    /// The process with its memory looked up at another thread, where the first one has ended before the others: from
    /// then on `/proc` shows none at its number.
    fn with_memory(self) -> Self {
        if !self.zombie || self.threads < 2 {
            return self;
        }
        // Threads may follow each other faster than they are found.
        for _ in 0..THREADS_TRIED {
            let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
            for thread in threads {
                if let Ok(Some((found, _))) = look(&thread.path())
                    && !found.zombie
                    && found.resident > 0
                {
                    return Process { resident: found.resident, shown_by: found.pid, ..self };
                }
            }
        }
        self
    }
}

/// Every process that `/proc` shows, with its owner; an error where this process cannot look, which must not be taken
/// for "there are none".
pub(crate) fn processes() -> io::Result<Vec<(Process, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| name.parse::<i32>().is_err()) {
            continue;
        }
        match look(&entry.path()) {
            Ok(process) => found.extend(process.map(|(process, owner)| (process.with_memory(), owner))),
            // It has ended meanwhile, or it is somebody else's and hidden.
            Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(found)
}

fn look(folder: &Path) -> Result<Option<(Process, u32)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder.join("stat"), flags, Mode::empty())?;
    let owner = rustix::fs::fstat(&file)?.st_uid;
    // One read: the line is at most some 500 bytes, and the kernel makes it whole.
    let mut line = [0; 1024];
    let length = rustix::io::read(&file, &mut line)?;
    // Names are bytes; what is not UTF-8 in them must not hide the process.
    Ok(Process::parse(&String::from_utf8_lossy(&line[..length])).map(|process| (process, owner)))
}

/// The process's fair share of memory in bytes, pages that others map counted in part (`proc_pid_smaps(5)`).
pub(crate) fn proportional(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// One process for each memory: a child of `vfork` has its parent's until it executes a program.
pub(crate) fn distinct_memory<'p>(processes: impl Iterator<Item = &'p Process>) -> Vec<&'p Process> {
    let mut distinct: Vec<&Process> = Vec::new();
    for process in processes {
        if !distinct.iter().any(|other| have_one_memory(other.shown_by, process.shown_by)) {
            distinct.push(process);
        }
    }
    distinct
}

/// Whether two processes have one memory (`kcmp(2)`); not where the system does not say.
fn have_one_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: takes and returns numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0usize, 0usize) == 0 }
}

/// Bytes that the process takes beside its resident pages, its page tables and what is in the swap
/// (`proc_pid_status(5)`).
pub(crate) fn beside_pages(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let values = text.lines().filter_map(|line| line.strip_prefix("VmPTE:").or(line.strip_prefix("VmSwap:")));
    values.filter_map(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok()).sum::<u64>() * 1024
}

/// How many threads run as `owner`, which is what the kernel holds against `RLIMIT_NPROC`.
pub(crate) fn threads_of(owner: u32) -> io::Result<u64> {
    Ok(processes()?.iter().filter(|(_, of)| *of == owner).map(|(process, _)| process.threads).sum())
}

/// All processes below `root`, zombies too.
pub(crate) fn descendants(root: i32) -> io::Result<Vec<Process>> {
    let mut rest: Vec<Process> = processes()?.into_iter().map(|(process, _)| process).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let (children, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|process| process.parent == parent);
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
        rest = others;
    }
    Ok(found)
}

/// Kills every descendant of the calling process and reaps them all.
///
/// Killing a process group is atomic against fork, so one round ends an ordinary fork bomb; one that starts a session
/// per fork is ended by rounds, because each round kills faster than it forks.
pub(crate) fn kill_descendants() {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let my_group = rustix::process::getpgrp().as_raw_nonzero().get();
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                // Some live, or are still dying.
                Ok(None) => break,
                // No children left: whoever was below them would have become our child.
                Err(_) => return,
            }
        }
        let mut waiting = true;
        // Where it cannot look now it looks again.
        for process in descendants(me).unwrap_or_default().iter().filter(|process| !process.zombie) {
            waiting = false;
            if process.group != my_group
                && let Some(group) = Pid::from_raw(process.group)
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if waiting {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields_after_it() {
        let line = "42 (a) Z 1 1) S 7 9 9 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 3 0 55 1000000 250 18446744073709551615";
        let process = Process::parse(line).expect("well-formed");
        assert_eq!(
            process,
            Process { pid: 42, parent: 7, group: 9, zombie: false, threads: 3, resident: 250, shown_by: 42 }
        );
    }

    #[test]
    fn page_tables_are_told_apart_from_pages() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let tables = beside_pages(me);
        assert!((4 << 10..16 << 20).contains(&tables), "{tables}");
    }

    extern "C" fn pause(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: waits for a signal, and touches no memory.
            unsafe { libc::pause() };
        }
    }

    /// A child of `vfork` that has not executed its program yet counted its parent's memory once more.
    #[test]
    fn what_two_processes_share_whole_is_counted_once() {
        let mut stack = vec![0u8; 64 << 10];
        let top = stack.as_mut_ptr_range().end.cast();
        // SAFETY: the child has a stack of its own, which outlives it, and touches no other memory.
        let sharer = unsafe { libc::clone(pause, top, libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut()) };
        assert!(sharer > 0);
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep runs");
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let pids = [me, sharer, i32::try_from(other.id()).expect("a pid")];
        let found = processes().expect("/proc is there");
        let three = found.iter().map(|(process, _)| process).filter(|process| pids.contains(&process.pid));
        let distinct = distinct_memory(three.clone()).len();
        assert_eq!(three.count(), 3);
        // SAFETY: ends the child from above and takes its end.
        unsafe {
            libc::kill(sharer, libc::SIGKILL);
            libc::waitpid(sharer, std::ptr::null_mut(), 0);
        }
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert_eq!(distinct, 2);
    }

    #[test]
    fn this_process_is_found_below_its_parent() {
        let parent = rustix::process::getppid().expect("a test has a parent").as_raw_nonzero().get();
        let me = rustix::process::getpid().as_raw_nonzero().get();
        assert!(descendants(parent).unwrap().iter().any(|process| process.pid == me));
    }
}
