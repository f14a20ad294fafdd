//! Durable appends a second: the journal against the disk's floor and against a bare segment file with group commit.
//!
//! `cargo bench -p aos-journal [-- FOLDER [large]]`; `large` leaves out the first table. Everything runs in one process
//! on one disk, in turn and several times, and the medians are compared, because the disk's mood changes within minutes;
//! ratios hold, absolute figures do not. Under `cargo test` everything runs once and small.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aos_abi::{Body, Entry, Lsn, Pid, Timestamp};
use aos_journal::{Checkpoint, Journal, OpenOptions};

const PROCESSES: u64 = 1000;

/// How much is done.
#[derive(Clone, Copy)]
struct Scale {
    round: Duration,
    rounds: usize,
    /// Entries of the journal that is opened and read.
    opened: u64,
}

impl Scale {
    fn of_arguments() -> Scale {
        // Cargo says so to a benchmark that is run as one.
        if std::env::args().any(|argument| argument == "--bench") {
            Scale { round: Duration::from_millis(1500), rounds: 5, opened: 1_000_000 }
        } else {
            Scale { round: Duration::from_millis(20), rounds: 1, opened: 20_000 }
        }
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (large, folder): (Vec<_>, Vec<_>) = arguments.into_iter().partition(|argument| argument == "large");
    let folder = folder.into_iter().next();
    let folder = tempfile::tempdir_in(folder.unwrap_or_else(|| ".".into())).expect("a folder to write in");
    let scale = Scale::of_arguments();
    if large.is_empty() {
        appends(folder.path(), scale);
    }
    reads(folder.path(), scale);
}

fn appends(folder: &Path, scale: Scale) {
    let Scale { round: length, rounds, .. } = scale;
    println!("entries of about 256 bytes, durable appends per second, medians of {rounds} rounds");
    println!(
        "{:>8} {:>14} {:>14} {:>14} {:>10} {:>10}",
        "writers", "write+sync", "segment", "journal", "of segment", "per commit"
    );
    for writers in [1, 64, 1000] {
        let (mut floors, mut segments, mut journals, mut grouped) = (vec![], vec![], vec![], vec![]);
        for round in 0..rounds {
            floors.push(floor(&folder.join(format!("floor-{writers}-{round}")), length));
            segments.push(segment(&folder.join(format!("segment-{writers}-{round}")), writers, length));
            let (rate, group) = journal(&folder.join(format!("journal-{writers}-{round}.db")), writers, length);
            journals.push(rate);
            grouped.push(group);
        }
        let (floor, segment, journal) = (median(floors), median(segments), median(journals));
        println!(
            "{writers:>8} {floor:>14.0} {segment:>14.0} {journal:>14.0} {:>9.0}% {:>10.1}",
            100.0 * journal / segment,
            median(grouped)
        );
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Everyone writes for a process of their own, as agents do.
fn entry(lsn: u64, pid: u64) -> Arc<Entry> {
    let text =
        "what an agent was told, some hundred and fifty bytes of it, as is usual for a short message, ".repeat(2);
    let body = Body::Input { text, eof: false, from_pid: Pid::INIT, untrusted: false };
    Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(1_795_305_600_000), pid: Pid(pid), cause: None, body })
}

/// One thread, one append, one sync: what the disk allows without sharing.
fn floor(path: &Path, length: Duration) -> f64 {
    let mut file = File::create(path).expect("a file");
    let line = vec![b'x'; 288];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < length {
        file.write_all(&line).expect("room");
        file.sync_data().expect("a disk");
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// `writers` threads that each append one entry and wait for it, again and again; appends a second.
fn drive(writers: usize, length: Duration, append: impl Fn(u64, SyncSender<()>) + Sync) -> f64 {
    let start = Instant::now();
    let count: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let append = &append;
                std::thread::Builder::new()
                    .stack_size(128 << 10)
                    .spawn_scoped(scope, move || {
                        let (done, wait) = sync_channel(1);
                        let mut count = 0;
                        while start.elapsed() < length {
                            append(writer as u64 + 2, done.clone());
                            wait.recv().expect("every append is answered");
                            count += 1;
                        }
                        count
                    })
                    .expect("a thread")
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

fn journal(path: &Path, writers: usize, length: Duration) -> (f64, f64) {
    let (journal, opened) = Journal::open(path, OpenOptions::default()).expect("a journal");
    let last = Mutex::new(opened.last.0);
    let rate = drive(writers, length, |pid, done| {
        // Stamping and queueing in one order, as the kernel loop does it.
        let mut last = last.lock().expect("no panic");
        *last += 1;
        journal.append(vec![entry(*last, pid)], move |outcome| {
            outcome.expect("durable");
            done.send(()).expect("it waits");
        });
    });
    let stats = journal.stats();
    (rate, stats.entries as f64 / stats.commits as f64)
}

/// Bytes to write, and who waits for them.
type Waiting = (Vec<u8>, SyncSender<()>);

/// The least that can be done: JSON, a length, one write and one sync for all that wait.
fn segment(path: &Path, writers: usize, length: Duration) -> f64 {
    let mut file = File::options().create(true).append(true).open(path).expect("a file");
    let (queue, waiting) = sync_channel::<Waiting>(1024);
    let writer = std::thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Ok(first) = waiting.recv() {
            buffer.clear();
            let mut group = Vec::new();
            for (bytes, done) in std::iter::once(first).chain(waiting.try_iter().take(8191)) {
                buffer.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                buffer.extend_from_slice(&bytes);
                group.push(done);
            }
            file.write_all(&buffer).expect("room");
            file.sync_data().expect("a disk");
            for done in group {
                done.send(()).expect("it waits");
            }
        }
    });
    let last = Mutex::new(0);
    let rate = drive(writers, length, |pid, done| {
        let mut last = last.lock().expect("no panic");
        *last += 1;
        let bytes = serde_json::to_vec(&*entry(*last, pid)).expect("JSON");
        queue.send((bytes, done)).expect("it runs");
    });
    drop(queue);
    writer.join().expect("no panic");
    rate
}

/// Opening and reading a long journal of a thousand processes.
fn reads(folder: &Path, scale: Scale) {
    let count = scale.opened;
    let path = folder.join("large.db");
    let (journal, _) = Journal::open(&path, OpenOptions::default()).expect("a journal");
    let start = Instant::now();
    for from in (1..=count).step_by(4000) {
        journal.append((from..from + 4000).map(|lsn| entry(lsn, 2 + lsn % PROCESSES)).collect(), |done| {
            done.expect("durable")
        });
    }
    let pages = (2..10_002).map(|pid| (Pid(pid), vec![7; 1000])).collect();
    let checkpoint = Checkpoint { lsn: Lsn(count - 10_000), globals: vec![1; 4000], pages, removed: vec![] };
    journal.checkpoint_wait(checkpoint).expect("durable");
    let seconds = start.elapsed().as_secs_f64();
    println!("{count} entries in batches of 4,000: {:.0} per second", count as f64 / seconds);
    // As a kill leaves it: the log as long as it was, nothing folded in.
    let killed = folder.join("killed.db");
    for (from, to) in [("large.db", "killed.db"), ("large.db-wal", "killed.db-wal"), ("large.head", "killed.head")] {
        std::fs::copy(folder.join(from), folder.join(to)).expect("a copy");
        File::open(folder.join(to)).and_then(|copy| copy.sync_all()).expect("a disk");
    }
    journal.close().expect("closed");
    let log = std::fs::metadata(folder.join("killed.db-wal")).expect("a file").len();
    println!("log at the kill: {:.1} MB", log as f64 / 1e6);
    let size = std::fs::metadata(&path).expect("a file").len();
    println!("bytes per entry on disk: {:.0}", size as f64 / count as f64);

    let timed = |what: &str, count: u64, work: &mut dyn FnMut()| {
        let (start, busy) = (Instant::now(), on_cpu());
        work();
        let (wall, busy) = (start.elapsed().as_secs_f64(), on_cpu() - busy);
        println!(
            "{what}: {:.1} ms, {:.1} us each; {:.1} ms on the processor",
            wall * 1e3,
            wall * 1e6 / count as f64,
            busy * 1e3
        );
    };
    timed("open after a kill", 1, &mut || {
        drop(black_box(Journal::open(&killed, OpenOptions::default()).expect("open")))
    });
    timed("open and close", 1, &mut || drop(black_box(Journal::open(&path, OpenOptions::default()).expect("open"))));
    let (journal, _) = Journal::open(&path, OpenOptions::default()).expect("a journal");
    let reader = journal.reader();
    let pages = journal.page_reader().expect("a reader");
    timed("the entries of one process", count / PROCESSES, &mut || {
        let entries = reader.entries_of(Pid(50), Lsn::ZERO, 20_000).expect("entries");
        assert_eq!(entries.len() as u64, count / PROCESSES);
    });
    timed("10,000 pages one by one", 10_000, &mut || {
        for pid in 2..10_002 {
            black_box(pages.load(Pid(pid)).expect("a page").expect("it is there"));
        }
    });
    timed("replay of the last 10,000", 10_000, &mut || {
        let after = Lsn(count - 10_000);
        reader
            .for_each_after(after, |entry| {
                black_box(entry);
                ControlFlow::Continue(())
            })
            .expect("sound");
    });
    timed("verify everything", count, &mut || {
        assert!(reader.verify(|_, _| {}).expect("readable").is_sound());
    });
    drop(journal);
    // Each process's trail is now long, and a thousand writers extend a thousand of them.
    let before = written();
    let (rates, grouped): (Vec<_>, Vec<_>) = (0..scale.rounds).map(|_| self::journal(&path, 1000, scale.round)).unzip();
    let (bytes, entries) =
        (written() - before, Journal::open(&path, OpenOptions::default()).expect("open").1.last.0 - count);
    println!(
        "1,000 writers on top of it: {:.0} per second, {:.0} per commit, {:.0} bytes written per entry",
        median(rates),
        median(grouped),
        bytes as f64 / entries as f64
    );
}

/// Seconds this thread has run: what a time is on a machine with nothing else to do, but for the disk.
fn on_cpu() -> f64 {
    let counters = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = counters.split(' ').next().expect("a counter");
    nanos.parse::<f64>().expect("a number") / 1e9
}

/// Bytes this process has handed to write calls.
fn written() -> u64 {
    let counters = std::fs::read_to_string("/proc/self/io").expect("Linux");
    let line = counters.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("a counter");
    line.parse().expect("a number")
}
