//! What goes wrong in other systems' storage (design notes, "Storage"), each shown not to go wrong here.

use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};

use aos_abi::{Lsn, Pid};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions, Reader};

use crate::child;
use crate::sample::{Home, batch, input};

/// A thousand appends that wait while one commit is under way share the next, so a queue costs one sync, however long.
#[test]
fn throughput_does_not_fall_as_writers_are_added() {
    let home = Home::new();
    let (journal, _) = home.open();
    let (open_gate, gate) = sync_channel::<()>(0);
    let (arrive, arrived) = sync_channel::<()>(0);
    let done = Arc::new(Barrier::new(2));
    // The first commit's callback holds the writer until everyone stands in the queue.
    journal.append(batch(1, 1), move |outcome| {
        outcome.unwrap();
        arrive.send(()).unwrap();
        gate.recv().unwrap();
    });
    arrived.recv().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    for lsn in 2..=1001 {
        let (answered, done) = (Arc::clone(&answered), Arc::clone(&done));
        journal.append(batch(lsn, lsn), move |outcome| {
            outcome.unwrap();
            if answered.fetch_add(1, Ordering::Relaxed) == 999 {
                done.wait();
            }
        });
    }
    open_gate.send(()).unwrap();
    done.wait();
    let stats = journal.stats();
    assert_eq!(stats.entries, 1001);
    assert_eq!(stats.commits, 2, "one for the first, one for all that waited");
}

#[test]
fn no_blob_is_rewritten_at_every_save() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 10)).unwrap();
    let pages: Vec<_> = (2..3002).map(|pid| (Pid(pid), vec![pid as u8; 1000])).collect();
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(1), globals: vec![1; 50], pages, removed: vec![] }).unwrap();
    journal.close().unwrap();

    let (journal, _) = home.open();
    let log = || fs::metadata(home.file("journal.db-wal")).map_or(0, |log| log.len());
    let before = log();
    let pages = vec![(Pid(1500), vec![7; 1000])];
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(2), globals: vec![2; 50], pages, removed: vec![] }).unwrap();
    let written = log() - before;
    assert!(written > 0 && written < 10 * 4096, "{written} bytes for one changed page of 3,000,000");
}

#[test]
#[ignore = "a child process of the test below"]
fn child_works_on_a_large_journal() {
    let Some(folder) = child::folder() else { return };
    let (journal, opened) = Journal::open(&folder.join("journal.db"), OpenOptions::default()).unwrap();
    let mut seen = 0;
    let visit = |_| {
        seen += 1;
        ControlFlow::Continue(())
    };
    journal.reader().for_each_after(Lsn::ZERO, visit).unwrap();
    assert_eq!(seen, opened.last.0);
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
    journal.append_wait(batch(opened.last.0 + 1, opened.last.0 + 9)).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\npeak {}", peak.trim().trim_end_matches(" kB"));
}

/// Opening, replaying, verifying and appending to 80 MB of entries, some of them megabytes long, in less memory.
#[test]
fn the_audit_log_is_not_held_in_memory() {
    let home = Home::new();
    let (journal, _) = home.open();
    let (small, large) = ("s".repeat(20_000), "l".repeat(1 << 20));
    for from in (1..=2500).step_by(500) {
        journal.append_wait((from..from + 500).map(|lsn| input(lsn, 2, &small)).collect()).unwrap();
    }
    for lsn in 2501..2531 {
        journal.append_wait(vec![input(lsn, 3, &large)]).unwrap();
    }
    journal.close().unwrap();
    let bytes = fs::metadata(home.db()).unwrap().len();
    assert!(bytes > 80_000_000, "{bytes}");

    let output = child::command("pitfalls::child_works_on_a_large_journal", home.folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let peak = said.lines().find_map(|line| line.strip_prefix("peak ")).unwrap_or_else(|| panic!("{said}"));
    let peak: u64 = peak.parse().unwrap();
    assert!(peak < 40_000, "{peak} kB at the peak");
}

#[test]
fn a_corrupt_file_is_not_taken_for_an_empty_one() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 500)).unwrap();
    journal.close().unwrap();
    let sound = fs::read(home.db()).unwrap();
    let with_zeros = |from: usize, to: usize| {
        let mut bytes = sound.clone();
        bytes[from..to].fill(0);
        bytes
    };
    let damaged = [
        ("emptied", vec![]),
        ("cut in the header", sound[..50].to_vec()),
        ("cut to its first page", sound[..4096].to_vec()),
        ("cut in half", sound[..sound.len() / 2].to_vec()),
        ("without its last page", sound[..sound.len() - 4096].to_vec()),
        ("all zeros", with_zeros(0, sound.len())),
        ("header of zeros", with_zeros(0, 100)),
        ("something else", b"this is a letter to a friend".repeat(1000)),
    ];
    // Also where the head file went with whatever damaged the journal.
    for head in [true, false] {
        for (what, bytes) in &damaged {
            fs::write(home.db(), bytes).unwrap();
            if !head {
                fs::remove_file(home.file("journal.head")).unwrap_or_default();
            }
            let opened = Journal::open(&home.db(), OpenOptions::default()).map(|(_, opened)| opened);
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "{what}, head {head}: {opened:?}");
            assert_eq!(fs::read(home.db()).unwrap(), *bytes, "{what}: the evidence was changed");
            assert!(
                matches!(
                    Reader::open(&home.db()).and_then(|reader| reader.verify(|_, _| {})?.sound()),
                    Err(Error::Corrupt { .. })
                ),
                "{what}"
            );
        }
    }
    fs::write(home.db(), &sound).unwrap();
    assert_eq!(home.open().1.last, Lsn(500));
}
