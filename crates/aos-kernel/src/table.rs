//! The process table: live processes in memory, idle ones paged out.
//!
//! Start at [`Table`]. A process that has not been touched for a while and is already in the store costs no memory;
//! it is read back when something reaches for it. What always holds: paging changes nothing that anybody can see, so
//! it needs no entry in the journal; a process whose page is older than its state is never put out.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::{Lsn, Pid};

use crate::process::Process;

/// Version of the format of pages and checkpoints; a checkpoint of another one is refused.
pub const PAGE_FORMAT: u32 = 27;

/// Where pages of processes are read from. Writing is the journal's: see [`crate::Kernel::checkpoint`].
pub trait PageStore {
    /// The page of a process as the last durable checkpoint holds it.
    ///
    /// # Errors
    /// In words, where the store fails; the kernel cannot go on then.
    fn load(&mut self, pid: Pid) -> Result<Option<Page>, String>;
}

/// A page of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// As it stands in the store.
    Stored(Vec<u8>),
    /// What stands in the store is damaged, and this was made again from the journal: it has to be written.
    Mended(Vec<u8>),
}

/// What the kernel ends with where its store fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailed {
    /// The process whose page was wanted.
    pub pid: Pid,
    /// Why there is none, in words.
    pub why: String,
}

/// A store without pages: everything stays in memory.
#[derive(Clone, Debug, Default)]
pub struct NoPages;

impl PageStore for NoPages {
    fn load(&mut self, _pid: Pid) -> Result<Option<Page>, String> {
        Ok(None)
    }
}

/// A process in memory.
#[derive(Clone, Debug)]
struct Slot {
    process: Box<Process>,
    /// It differs from its page.
    dirty: bool,
    /// The entry that last reached for it.
    touched: Lsn,
}

/// The process table.
#[derive(Clone, Debug)]
pub struct Table<P> {
    pages: P,
    slots: BTreeMap<Pid, Slot>,
    dirty: BTreeSet<Pid>,
    /// Processes taken out and not yet told to the store.
    removed: BTreeSet<Pid>,
    /// Processes taken out, with when: the store may hold their pages until the next checkpoint is durable.
    gone: BTreeMap<Pid, Lsn>,
    /// Processes that are in memory for a glance only; `None` while nobody glances.
    visitors: Option<Vec<Pid>>,
    now: Lsn,
}

impl<P: PageStore> Table<P> {
    /// A table over a page store.
    pub fn new(pages: P) -> Self {
        Table {
            pages,
            slots: BTreeMap::new(),
            dirty: BTreeSet::new(),
            removed: BTreeSet::new(),
            gone: BTreeMap::new(),
            visitors: None,
            now: Lsn::ZERO,
        }
    }

    /// Says which entry is being applied, for the age of pages.
    pub fn set_now(&mut self, lsn: Lsn) {
        self.now = lsn;
    }

    /// Puts a new process in.
    pub fn insert(&mut self, process: Process) {
        let pid = process.pid;
        self.dirty.insert(pid);
        self.slots.insert(pid, Slot { process: Box::new(process), dirty: true, touched: self.now });
    }

    /// Takes a process out for ever.
    pub fn remove(&mut self, pid: Pid) {
        self.slots.remove(&pid);
        self.dirty.remove(&pid);
        self.removed.insert(pid);
        self.gone.insert(pid, self.now);
    }

    fn fault_in(&mut self, pid: Pid) -> bool {
        if self.slots.contains_key(&pid) {
            return true;
        }
        if pid <= Pid::INIT || self.gone.contains_key(&pid) {
            return false;
        }
        // Not a fault of the kernel: whoever has the store says what is wrong with it.
        let unreadable = |why| std::panic::resume_unwind(Box::new(StoreFailed { pid, why }));
        let (page, mended) = match self.pages.load(pid).unwrap_or_else(unreadable) {
            None => return false,
            Some(Page::Stored(page)) => (page, false),
            Some(Page::Mended(page)) => (page, true),
        };
        let process = decode(&page).unwrap_or_else(|why| panic!("page of process {pid}: {why}"));
        self.take_in(process);
        if mended && let Some(slot) = self.slots.get_mut(&pid) {
            slot.dirty = true;
            self.dirty.insert(pid);
        }
        true
    }

    /// Puts a process into memory as its page has it.
    fn take_in(&mut self, process: Process) {
        let pid = process.pid;
        if let Some(visitors) = &mut self.visitors {
            visitors.push(pid);
        }
        self.slots.insert(pid, Slot { process: Box::new(process), dirty: false, touched: self.now });
    }

    /// Begins a glance: until [`Table::leave`], what is reached for is not younger for it. `read` has pages that somebody
    /// read already, which spares reading them one by one; what is newer in memory, or gone, is not replaced by them.
    pub(crate) fn glance(&mut self, read: Vec<Process>) {
        self.visitors = Some(Vec::new());
        for process in read {
            if !self.slots.contains_key(&process.pid) && !self.gone.contains_key(&process.pid) {
                self.take_in(process);
            }
        }
    }

    /// Ends a glance: whatever was read back for it leaves memory.
    pub(crate) fn leave(&mut self) {
        for pid in self.visitors.take().into_iter().flatten() {
            if self.slots.get(&pid).is_some_and(|slot| !slot.dirty) {
                self.slots.remove(&pid);
            }
        }
    }

    /// A process, to read.
    pub fn get(&mut self, pid: Pid) -> Option<&Process> {
        if !self.fault_in(pid) {
            return None;
        }
        let (now, glances) = (self.now, self.visitors.is_some());
        self.slots.get_mut(&pid).map(|slot| {
            if !glances {
                slot.touched = now;
            }
            &*slot.process
        })
    }

    /// A process, to change.
    pub fn get_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        if !self.fault_in(pid) {
            return None;
        }
        let now = self.now;
        let dirty = &mut self.dirty;
        self.slots.get_mut(&pid).map(|slot| {
            slot.touched = now;
            if !slot.dirty {
                slot.dirty = true;
                dirty.insert(pid);
            }
            &mut *slot.process
        })
    }

    /// The processes in memory, in order of pid.
    pub fn resident(&self) -> impl Iterator<Item = &Process> {
        self.slots.values().map(|slot| &*slot.process)
    }

    /// The pids of at most `most` processes in memory, those after `after`, in order.
    pub(crate) fn resident_after(&self, after: Pid, most: usize) -> impl Iterator<Item = Pid> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.slots.range((Excluded(after), Unbounded)).map(|(pid, _)| *pid).take(most)
    }

    /// How many processes are in memory.
    pub fn resident_len(&self) -> usize {
        self.slots.len()
    }

    /// Everything that differs from the store: changed pages and processes taken out. They count as written from here.
    pub fn take_changes(&mut self) -> (Vec<(Pid, Vec<u8>)>, Vec<Pid>) {
        let pages = std::mem::take(&mut self.dirty)
            .into_iter()
            .filter_map(|pid| {
                let slot = self.slots.get_mut(&pid)?;
                slot.dirty = false;
                Some((pid, encode(&slot.process)))
            })
            .collect();
        (pages, std::mem::take(&mut self.removed).into_iter().collect())
    }

    /// Puts out clean processes not reached for since `before`, for which `keep` does not hold. What
    /// was clean then is durable.
    pub fn evict(&mut self, before: Lsn, keep: impl Fn(&Process) -> bool) {
        let removed = &self.removed;
        self.gone.retain(|pid, at| *at >= before || removed.contains(pid));
        self.slots.retain(|_, slot| slot.dirty || slot.touched >= before || keep(&slot.process));
    }
}

fn encode(process: &Process) -> Vec<u8> {
    postcard::to_stdvec(process).expect("a process is plain data")
}

/// Reads a page back.
///
/// # Errors
/// In words, where it is none of ours.
pub fn decode(page: &[u8]) -> Result<Process, String> {
    postcard::from_bytes(page).map_err(|error| error.to_string())
}
