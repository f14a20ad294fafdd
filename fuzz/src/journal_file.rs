//! The files of a journal as a broken disk, a crash or a stranger may leave them.
//!
//! Start at [`opened`]. What is damaged is a sample of which every byte is the same in each run: `journal.db` with
//! the entries up to [`FOLDED`], `journal.db-wal` with those up to [`LAST`], and `journal.head`, which names the last.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use aos_abi::{Body, Entry, Lsn, Pid, Timestamp};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions, Opened};

/// Entries of the sample that are in `journal.db` itself.
pub const FOLDED: u64 = 6;
/// Entries of the sample.
pub const LAST: u64 = 9;
/// Bytes of a page of SQLite, as the journal has them.
const PAGE: usize = 4096;

/// Files of a journal as [`opened`] reads them.
pub fn journal_file(data: &[u8]) {
    opened(data);
}

/// What opening damaged files came to, and how many entries could be read where all is sound; `None` for no byte.
///
/// The first byte says what the others are: a whole `journal.db` (0), `journal.head` (1) or `journal.db-wal` (2) beside
/// the sample's other files, or (3) changes to the sample, five bytes each: the file (0 the database, 1 the log, 2 the
/// head, each of them to be cut instead with 0x80 added), three bytes of place, and the new byte. With 4 added there is
/// no head file, with 8 a loss is accepted, with 16 there is no log, with 32 no database.
pub fn opened(data: &[u8]) -> Option<Result<(Opened, Option<u64>), Error>> {
    let (flags, rest) = data.split_first()?;
    let mut files = sample().clone();
    match flags & 3 {
        0 => files.db = rest.to_vec(),
        1 => files.head = rest.to_vec(),
        2 => files.wal = rest.to_vec(),
        _ => rest.chunks_exact(5).for_each(|change| files.change(change)),
    }
    let has = |bit: u8| flags & bit == 0;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("journal.db");
    let head = path.with_extension("head");
    let put = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).expect("a temporary folder can be written to");
    if has(4) {
        put(&head, &files.head);
    }
    if has(16) {
        put(&folder.path().join("journal.db-wal"), &files.wal);
    }
    if has(32) {
        put(&path, &files.db);
    }

    let accept_loss = !has(8);
    match Journal::open(&path, OpenOptions { accept_loss, ..OpenOptions::default() }) {
        Ok((journal, opened)) => {
            assert!(!opened.created || !(has(4) || has(16)), "a home that had a journal was started as if it were new");
            assert!(opened.torn.is_none() || accept_loss, "a loss was accepted that nobody accepted");
            if has(4) && !opened.head_unreadable && opened.torn.is_none() {
                let claimed = claimed(&files.head).expect("a head that was read has a number");
                assert!(opened.last >= claimed, "{} is the last, but {claimed} had been written", opened.last);
            }
            let entries = read(&journal, opened.last);
            // Why the writer stopped, if it did, is no fault of the reader's.
            let _ = journal.close();
            Some(Ok((opened, entries)))
        }
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            assert_eq!(path.exists(), has(32), "{error}");
            assert_eq!(std::fs::read(&head).ok(), has(4).then_some(files.head), "the head file was changed: {error}");
            Some(Err(error))
        }
    }
}

/// Reads everything, which may fail in words. Where the verification finds the whole sound, it can be read to its end.
fn read(journal: &Journal, last: Lsn) -> Option<u64> {
    let reader = journal.reader();
    let mut entries = 0;
    let visited = reader.for_each_after(Lsn::ZERO, |_| {
        entries += 1;
        ControlFlow::Continue(())
    });
    let report = reader.verify(|_, _| {}).and_then(aos_journal::Report::sound).ok();
    if let Some(report) = &report {
        visited.expect("what is sound can be read");
        assert_eq!((report.entries, report.last), (entries, last));
    }
    // The kernel's saved state and the trails are read by other ways.
    let _ = journal.load_globals();
    if let Ok(pages) = journal.page_reader() {
        pages.all().for_each(drop);
    }
    let _ = reader.entries_of(Pid(2), Lsn::ZERO, 100);
    report.map(|report| report.entries)
}

/// The last entry that had been written, as a head file says it.
fn claimed(head: &[u8]) -> Option<Lsn> {
    let line = std::str::from_utf8(head).ok()?;
    line.split(' ').nth(2)?.parse().ok().map(Lsn)
}

/// The files of a journal.
#[derive(Clone, Debug)]
struct Files {
    db: Vec<u8>,
    wal: Vec<u8>,
    head: Vec<u8>,
}

impl Files {
    fn change(&mut self, change: &[u8]) {
        let [file, place @ .., byte] = change else { return };
        let bytes = [&mut self.db, &mut self.wal, &mut self.head];
        let at = place.iter().fold(0, |at, byte| at << 8 | usize::from(*byte));
        for (number, bytes) in bytes.into_iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            let at = at % bytes.len();
            if usize::from(file & 0x7f) % 3 != number {
                continue;
            }
            if file & 0x80 == 0 {
                bytes[at] = *byte;
            } else {
                bytes.truncate(at);
            }
        }
    }
}

/// The sample, made once.
fn sample() -> &'static Files {
    static SAMPLE: OnceLock<Files> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("journal.db");
        let read = |path: &Path| std::fs::read(path).expect("what was written is there");
        // Closing folds the log into the database.
        write(&path, 1, FOLDED);
        let folded = read(&path);
        write(&path, FOLDED + 1, LAST);
        let whole = read(&path);
        Files { wal: log(&folded, &whole), db: folded, head: read(&path.with_extension("head")) }
    })
}

fn write(path: &Path, from: u64, to: u64) {
    let (journal, _) = Journal::open(path, OpenOptions::default()).expect("the sample can be opened");
    let input = |lsn| Body::Input { text: format!("line {lsn}"), eof: false, from_pid: Pid::INIT, untrusted: false };
    let at = |lsn| Timestamp(1_795_305_600_000 + i64::try_from(lsn).expect("a small number"));
    let batch = (from..=to).map(|lsn| {
        Arc::new(Entry { lsn: Lsn(lsn), at: at(lsn), pid: Pid(2 + lsn % 2), cause: None, body: input(lsn) })
    });
    journal.append_wait(batch.collect()).expect("the sample can be written");
    let checkpoint =
        Checkpoint { lsn: Lsn(to), globals: vec![7; 100], pages: vec![(Pid(2), vec![9; 50])], removed: Vec::new() };
    journal.checkpoint_wait(checkpoint).expect("the sample can be saved");
    journal.close().expect("the sample can be closed");
}

/// A write-ahead log that makes `after` of `before`, in the format of <https://www.sqlite.org/fileformat2.html#walformat>.
/// SQLite's own would hold random numbers, and what the fuzzer finds would not be there the next time.
fn log(before: &[u8], after: &[u8]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).expect("a small journal").to_be_bytes();
    let changed: Vec<usize> = (0..after.len() / PAGE)
        .filter(|page| before.get(page * PAGE..(page + 1) * PAGE) != Some(&after[page * PAGE..(page + 1) * PAGE]))
        .collect();
    let salts = [0, 0, 0, 1, 0, 0, 0, 2];
    // Big-endian checksums; format 3,007,000; the first log.
    let mut log = [[0x37, 0x7f, 0x06, 0x83], word(3_007_000), word(PAGE), word(0)].concat();
    log.extend(salts);
    let mut sum = checksum([0, 0], &log);
    log.extend(sum.iter().flat_map(|half| half.to_be_bytes()));
    for (nth, page) in changed.iter().enumerate() {
        // The last frame is the commit, and says how many pages there are then.
        let size = if nth + 1 == changed.len() { after.len() / PAGE } else { 0 };
        let head = [word(page + 1), word(size)].concat();
        let bytes = &after[page * PAGE..(page + 1) * PAGE];
        sum = checksum(checksum(sum, &head), bytes);
        log.extend(head);
        log.extend(salts);
        log.extend(sum.iter().flat_map(|half| half.to_be_bytes()));
        log.extend(bytes);
    }
    log
}

fn checksum(mut sum: [u32; 2], bytes: &[u8]) -> [u32; 2] {
    for pair in bytes.chunks_exact(8) {
        let word = |at: usize| u32::from_be_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        sum[0] = sum[0].wrapping_add(word(0)).wrapping_add(sum[1]);
        sum[1] = sum[1].wrapping_add(word(4)).wrapping_add(sum[0]);
    }
    sum
}
