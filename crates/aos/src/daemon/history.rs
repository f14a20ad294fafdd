//! The windows of recent use, so that a prompt is put together without reading the journal.
//!
//! Start at [`History::get`]. Kept by process: a window is asked for whole, so one that lost an entry is worth little,
//! and when room is wanted the process that asked longest ago gives up all of its own. What always holds: a bounded
//! number of bytes; what is not here is read from the journal, so being evicted costs time and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::entry::ItemKind;
use aos_abi::{Body, Entry, Lsn, Pid};
use aos_context::Rendered;
use aos_journal::Reader;
use aos_models::Written;
use aos_personal::Detector;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of entries kept while there is work: a thousand windows of some 30,000 tokens. With less than what is in use,
/// each turn reads its whole window from the journal, which takes longer than all the rest of the turn.
const BYTES_MAX: usize = 128 << 20;
/// Bytes that are kept when nothing happens.
const BYTES_AT_REST: usize = 8 << 20;
/// Windows that are read from the journal side by side: as many as it keeps connections for, since opening one takes
/// longer than reading a window.
const READS_MAX: usize = 4;

/// The cache and what it is over.
pub(crate) struct History {
    reader: Reader,
    recent: Mutex<Recent>,
    reads: Semaphore,
}

#[derive(Default)]
struct Recent {
    windows: HashMap<Pid, Kept>,
    /// Processes by their last use, longest ago first.
    order: BTreeMap<u64, Pid>,
    uses: u64,
    bytes: usize,
}

/// What is kept of one process's window.
#[derive(Default)]
struct Kept {
    entries: BTreeMap<Lsn, (Arc<Entry>, usize)>,
    /// The window as it was sent last, and its bytes; nothing while an inference has it.
    sent: Option<(Sent, usize)>,
    /// In what nothing was found, and its bytes; nothing while an inference has it.
    clean: Option<(Clean, usize)>,
    /// All of it.
    bytes: usize,
    /// Its place in the order.
    used: u64,
}

/// A window as a model was sent it last.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) rendered: Rendered,
    /// What was written of its messages.
    pub(crate) written: Written,
}

impl Sent {
    fn bytes(&self) -> usize {
        self.rendered.bytes() + self.written.bytes()
    }
}

/// In what of a window a detector has found nothing.
#[derive(Default)]
pub(crate) struct Clean {
    by: Arc<Detector>,
    /// The system prompt.
    system: String,
    entries: BTreeSet<Lsn>,
}

impl Clean {
    /// Nothing is known yet of what this detector finds.
    fn by(detector: &Arc<Detector>) -> Clean {
        Clean { by: Arc::clone(detector), ..Clean::default() }
    }

    fn is_by(&self, detector: &Arc<Detector>) -> bool {
        Arc::ptr_eq(&self.by, detector)
    }

    /// Whether this is known to hold nothing.
    pub(crate) fn has_system(&self, system: &str) -> bool {
        self.system == system
    }

    /// Whether this is known to hold nothing.
    pub(crate) fn has(&self, entry: Lsn) -> bool {
        self.entries.contains(&entry)
    }

    /// Nothing was found in a window of these entries with this system prompt.
    pub(crate) fn note(&mut self, system: &str, window: &[Arc<Entry>]) {
        // Entries that have left the window do not come back: there is no more than twice what is of use.
        if self.entries.len() > 2 * window.len() {
            self.entries.clear();
        }
        self.entries.extend(window.iter().map(|entry| entry.lsn));
        if !self.has_system(system) {
            system.clone_into(&mut self.system);
        }
    }

    fn bytes(&self) -> usize {
        self.system.len() + self.entries.len() * size_of::<Lsn>()
    }
}

impl History {
    /// A history over a journal.
    pub(crate) fn new(reader: Reader) -> History {
        History { reader, recent: Mutex::default(), reads: Semaphore::new(READS_MAX) }
    }

    /// Keeps those entries that a prompt of their process may show.
    pub(crate) fn remember(&self, entries: &[Arc<Entry>]) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            recent.keep(entry.pid, entry);
        }
        recent.shrink(BYTES_MAX);
    }

    /// Gives back most of the memory: nothing happens.
    pub(crate) fn rest(&self) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).shrink(BYTES_AT_REST);
    }

    /// Leave to call [`History::get`] for what is not at hand.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.reads.acquire().await.ok()
    }

    /// How the window of `pid` was sent last, taken out.
    pub(crate) fn sent(&self, pid: Pid) -> Sent {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).take_sent(pid).unwrap_or_default()
    }

    /// Keeps it for the next turn, unless the process has ended meanwhile.
    pub(crate) fn keep_sent(&self, pid: Pid, sent: Sent) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.put_sent(pid, sent);
        recent.shrink(BYTES_MAX);
    }

    /// In what of the window of `pid` it is known that this detector finds nothing, taken out.
    pub(crate) fn clean(&self, pid: Pid, detector: &Arc<Detector>) -> Clean {
        let clean = self.recent.lock().unwrap_or_else(PoisonError::into_inner).take_clean(pid);
        clean.filter(|clean| clean.is_by(detector)).unwrap_or_else(|| Clean::by(detector))
    }

    /// Keeps it for the next turn, unless the process has ended meanwhile.
    pub(crate) fn keep_clean(&self, pid: Pid, clean: Clean) {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).put_clean(pid, clean);
    }

    /// The entries at these positions, in the order asked for, as `pid` sees them. Reads the journal for what is not
    /// at hand: not for an async context without a blocking pool, unless [`History::at_hand`] gave `None`.
    pub(crate) fn get(&self, pid: Pid, lsns: &[Lsn]) -> Result<Vec<Arc<Entry>>, aos_journal::Error> {
        let mut found: HashMap<Lsn, Arc<Entry>> = {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = recent.use_of(pid);
            let one =
                |lsn: &Lsn| kept.and_then(|kept| kept.entries.get(lsn)).map(|(entry, _)| (*lsn, Arc::clone(entry)));
            lsns.iter().filter_map(one).collect()
        };
        let missing: Vec<Lsn> = lsns.iter().copied().filter(|lsn| !found.contains_key(lsn)).collect();
        if !missing.is_empty() {
            let read: Vec<Arc<Entry>> = self.reader.get(&missing)?.into_iter().map(Arc::new).collect();
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in read {
                // Under the one that asked: a fork's window holds another one's entries, a parent's its children's ends.
                recent.put(pid, &entry);
                found.insert(entry.lsn, entry);
            }
            recent.shrink(BYTES_MAX);
        }
        Ok(lsns.iter().filter_map(|lsn| found.remove(lsn)).collect())
    }

    /// The same without reading the journal; `None` where something is not at hand.
    pub(crate) fn at_hand(&self, pid: Pid, lsns: &[Lsn]) -> Option<Vec<Arc<Entry>>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = recent.use_of(pid) else { return lsns.is_empty().then(Vec::new) };
        lsns.iter().map(|lsn| kept.entries.get(lsn).map(|(entry, _)| Arc::clone(entry))).collect()
    }
}

/// Bytes that an entry takes, about: not what a prompt shows of it, which is far less of a large result.
fn bytes_of(entry: &Entry) -> usize {
    aos_context::json_bytes(&entry.body) + std::mem::size_of::<Entry>()
}

impl Recent {
    /// Follows what an entry does to the window of its process.
    fn keep(&mut self, pid: Pid, entry: &Arc<Entry>) {
        match &entry.body {
            Body::Exited { .. } => self.forget(pid),
            Body::Compacted { upto, .. } => {
                self.forget_upto(pid, *upto);
                self.put(pid, entry);
            }
            _ if aos_context::item(entry).is_some() => self.put(pid, entry),
            _ => {}
        }
    }

    fn put(&mut self, pid: Pid, entry: &Arc<Entry>) {
        let bytes = bytes_of(entry);
        let kept = self.touch(pid);
        let before = kept.entries.insert(entry.lsn, (Arc::clone(entry), bytes)).map_or(0, |(_, before)| before);
        kept.bytes = kept.bytes + bytes - before;
        self.bytes = self.bytes + bytes - before;
    }

    fn take_sent(&mut self, pid: Pid) -> Option<Sent> {
        let kept = self.windows.get_mut(&pid)?;
        let (sent, bytes) = kept.sent.take()?;
        kept.bytes -= bytes;
        self.bytes -= bytes;
        Some(sent)
    }

    fn put_sent(&mut self, pid: Pid, sent: Sent) {
        self.take_sent(pid);
        if let Some(kept) = self.windows.get_mut(&pid) {
            let bytes = sent.bytes();
            kept.sent = Some((sent, bytes));
            kept.bytes += bytes;
            self.bytes += bytes;
        }
    }

    fn take_clean(&mut self, pid: Pid) -> Option<Clean> {
        let kept = self.windows.get_mut(&pid)?;
        let (clean, bytes) = kept.clean.take()?;
        kept.bytes -= bytes;
        self.bytes -= bytes;
        Some(clean)
    }

    fn put_clean(&mut self, pid: Pid, clean: Clean) {
        self.take_clean(pid);
        if let Some(kept) = self.windows.get_mut(&pid) {
            let bytes = clean.bytes();
            kept.clean = Some((clean, bytes));
            kept.bytes += bytes;
            self.bytes += bytes;
        }
    }

    /// What is kept of a process, if anything, and that it is used now.
    fn use_of(&mut self, pid: Pid) -> Option<&Kept> {
        self.windows.contains_key(&pid).then(|| &*self.touch(pid))
    }

    /// What is kept of a process, which is the last one used now.
    fn touch(&mut self, pid: Pid) -> &mut Kept {
        self.uses += 1;
        let kept = self.windows.entry(pid).or_default();
        self.order.remove(&kept.used);
        kept.used = self.uses;
        self.order.insert(self.uses, pid);
        kept
    }

    fn forget(&mut self, pid: Pid) {
        if let Some(kept) = self.windows.remove(&pid) {
            self.order.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }

    /// What a summary stands for is not shown again, but for the task before it.
    fn forget_upto(&mut self, pid: Pid, upto: Lsn) {
        let Some(kept) = self.windows.get_mut(&pid) else { return };
        let is_task = |entry: &Entry| aos_context::item(entry) == Some(ItemKind::Task);
        let before = kept.bytes;
        let bytes = &mut kept.bytes;
        kept.entries.retain(|lsn, (entry, size)| {
            let stays = *lsn > upto || is_task(entry);
            *bytes -= if stays { 0 } else { *size };
            stays
        });
        self.bytes -= before - kept.bytes;
    }

    fn shrink(&mut self, most: usize) {
        while self.bytes > most
            && let Some((_, pid)) = self.order.pop_first()
        {
            self.forget(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::Timestamp;
    use aos_abi::inference::Encoding;
    use aos_context::Fit;

    use super::*;

    fn entry(lsn: u64, pid: u64, body: Body) -> Arc<Entry> {
        Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(0), pid: Pid(pid), cause: None, body })
    }

    fn input(lsn: u64, pid: u64) -> Arc<Entry> {
        entry(lsn, pid, Body::Input { text: "x".repeat(1000), eof: false, from_pid: Pid::INIT, untrusted: false })
    }

    fn kept(recent: &Recent, pid: u64) -> Vec<u64> {
        recent.windows.get(&Pid(pid)).map(|kept| kept.entries.keys().map(|lsn| lsn.0).collect()).unwrap_or_default()
    }

    /// The sums that eviction goes by are those of what is there.
    fn adds_up(recent: &Recent) {
        let sum = |kept: &Kept| {
            let sent = kept.sent.as_ref().map_or(0, |(_, bytes)| *bytes);
            let clean = kept.clean.as_ref().map_or(0, |(_, bytes)| *bytes);
            sent + clean + kept.entries.values().map(|(_, bytes)| bytes).sum::<usize>()
        };
        assert!(recent.windows.values().all(|kept| sum(kept) == kept.bytes));
        assert_eq!(recent.windows.values().map(|kept| kept.bytes).sum::<usize>(), recent.bytes);
        assert_eq!(recent.order.len(), recent.windows.len());
    }

    #[test]
    fn who_asked_longest_ago_gives_up_its_window_whole() {
        let mut recent = Recent::default();
        for (lsn, pid) in [(1, 7), (2, 8), (3, 7), (4, 8), (5, 9)] {
            recent.keep(Pid(pid), &input(lsn, pid));
        }
        recent.touch(Pid(7));
        let two = recent.bytes - 1;
        recent.shrink(two);
        assert_eq!([kept(&recent, 7), kept(&recent, 8), kept(&recent, 9)], [vec![1, 3], vec![], vec![5]]);
        adds_up(&recent);
        recent.shrink(0);
        assert_eq!(recent.bytes, 0);
        adds_up(&recent);
    }

    /// It counted as the little that a prompt shows of it, so that hundreds of megabytes were kept for an agent at rest.
    #[test]
    fn what_is_large_counts_whole() {
        let mut recent = Recent::default();
        let result = serde_json::json!({ "base64": "A".repeat(4 << 20), "mime": "image/png" });
        let outcome = aos_abi::entry::Outcome::Success { result };
        for lsn in 1..=40 {
            let (call_id, name) = (format!("c{lsn}"), "FS_READ".into());
            recent.keep(Pid(7), &entry(lsn, 7, Body::Result { call_id, name, effect: None, outcome: outcome.clone() }));
        }
        assert!(recent.bytes > 40 * (4 << 20), "{}", recent.bytes);
        adds_up(&recent);
        recent.shrink(BYTES_MAX);
        assert_eq!(recent.bytes, 0, "a window is given up whole");
    }

    #[test]
    fn a_summary_takes_the_place_of_what_it_stands_for() {
        let mut recent = Recent::default();
        (2..6).for_each(|lsn| recent.keep(Pid(7), &input(lsn, 7)));
        let summary = Body::Compacted { upto: Lsn(4), summary: "so far".into(), tokens: (100, 10) };
        recent.keep(Pid(7), &entry(6, 7, summary));
        assert_eq!(kept(&recent, 7), [5, 6]);
        adds_up(&recent);
    }

    #[test]
    fn a_rendered_window_counts_and_goes_with_its_process() {
        let mut recent = Recent::default();
        let sent = || {
            let rendered = Rendered::default().render(&[input(2, 7)], Encoding::Native, Fit::unbounded());
            Sent { rendered, written: Written::default() }
        };
        recent.put_sent(Pid(7), sent());
        assert!(recent.windows.is_empty(), "an ended process is not brought back");
        recent.keep(Pid(7), &input(2, 7));
        let entries = recent.bytes;
        for _ in 0..2 {
            recent.put_sent(Pid(7), sent());
            assert!(recent.bytes > entries + 1000);
            adds_up(&recent);
        }
        assert_eq!(recent.take_sent(Pid(7)).unwrap().rendered.messages.len(), 1);
        assert!(recent.take_sent(Pid(7)).is_none());
        assert_eq!(recent.bytes, entries);
    }

    #[test]
    fn what_is_known_to_be_clean_is_known_of_that_text_and_that_detector() {
        let window = [input(2, 7), input(3, 7)];
        let mut clean = Clean::default();
        assert!(!clean.has_system("you help") && !clean.has(Lsn(2)));
        clean.note("you help", &window[..1]);
        assert!(clean.has_system("you help") && !clean.has_system("you help a@example.com"));
        assert!(clean.has(Lsn(2)) && !clean.has(Lsn(3)));
        for lsn in 3..100 {
            clean.note("you help", &[input(lsn, 7)]);
            assert!(clean.has(Lsn(lsn)) && clean.entries.len() <= 3);
        }

        let mut recent = Recent::default();
        window.iter().for_each(|entry| recent.keep(Pid(7), entry));
        recent.put_clean(Pid(7), clean);
        adds_up(&recent);
        assert!(recent.take_clean(Pid(7)).is_some_and(|clean| clean.has_system("you help")));
        adds_up(&recent);
        let (one, other) = (Arc::new(Detector::all()), Arc::new(Detector::all()));
        assert!(Clean::by(&one).is_by(&one) && !Clean::by(&one).is_by(&other));
    }

    #[test]
    fn an_end_and_what_is_no_part_of_a_window_leave_nothing() {
        let mut recent = Recent::default();
        recent.keep(Pid(7), &entry(1, 7, Body::Tick));
        assert!(recent.windows.is_empty());
        recent.keep(Pid(7), &input(2, 7));
        recent.keep(Pid(7), &input(2, 7));
        adds_up(&recent);
        recent.keep(
            Pid(7),
            &entry(3, 7, Body::Exited { exit_code: 0, result: None, reason: "answered".into(), awaited: Vec::new() }),
        );
        assert!(recent.windows.is_empty());
        adds_up(&recent);
    }
}
