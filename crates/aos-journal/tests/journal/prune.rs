//! Pruning: what goes, what stays, and that the chain holds over it.

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use aos_abi::{Body, Lsn, Pid, Timestamp};
use aos_journal::{ChargesBy, Checkpoint, Error, Journal, PrunePlan};

use crate::sample::{Home, all, batch, charged, input};

const AT: Timestamp = Timestamp(1_795_305_700_000);

pub(crate) fn prune(journal: &Journal, plan: PrunePlan, lsn: u64) -> Result<(), Error> {
    let (sender, answer) = sync_channel(1);
    let mark = journal.prune(plan, Lsn(lsn), AT, move |outcome| sender.send(outcome).unwrap());
    assert_eq!((mark.lsn, mark.pid), (Lsn(lsn), Pid::SYSTEM));
    answer.recv().unwrap()
}

pub(crate) fn checkpoint(journal: &Journal, lsn: u64) {
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(lsn), ..Checkpoint::default() }).unwrap();
}

#[test]
fn takes_out_exited_processes_and_keeps_the_chain() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 30)).unwrap();
    journal.append_wait(vec![charged(31, 2, "small", Some(500)), charged(32, 3, "small", Some(7))]).unwrap();
    journal.append_wait(vec![input(33, 4, "after the checkpoint")]).unwrap();
    checkpoint(&journal, 32);
    let reader = journal.reader();
    let spent = reader.charges(ChargesBy::Day, None).unwrap();

    let plan = reader.prune_plan(vec![Pid(3), Pid(2), Pid(2), Pid(4), Pid::SYSTEM, Pid::INIT, Pid(99)]).unwrap();
    assert_eq!((plan.pids(), plan.entries()), (&[Pid(2), Pid(3)][..], 20));
    assert!(plan.bytes() > 20 * 40);
    prune(&journal, plan, 34).unwrap();

    let report = reader.verify(|_, _| {}).unwrap();
    assert_eq!((report.faults, report.entries, report.sealed, report.marks), (vec![], 14, 20, 1));
    let kept: Vec<_> = reader.entries_of(Pid(2), Lsn::ZERO, 99).unwrap().iter().map(|entry| entry.lsn.0).collect();
    assert_eq!(kept, [31], "its charge");
    let late = reader.entries_of(Pid(4), Lsn::ZERO, 99).unwrap();
    assert_eq!(late.len(), 11, "it has an entry that no checkpoint has in it, so it stays whole");
    assert_eq!(reader.charges(ChargesBy::Day, None).unwrap(), spent, "what was spent is not forgotten");
    assert_eq!(all(&journal, 32).len(), 2, "replay from the checkpoint meets no gap");
    assert_eq!(all(&journal, 0).len(), 14, "nor does a reading of everything stumble");
    let mark = reader.get(&[Lsn(34)]).unwrap().remove(0);
    assert_eq!(mark.body, Body::Pruned { pids: vec![Pid(2), Pid(3)], entries: 20 });

    drop(journal);
    let (journal, opened) = home.open();
    assert_eq!(opened.last, Lsn(34));
    journal.append_wait(batch(35, 40)).unwrap();
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
}

/// An export of an intact journal passed for altered.
#[test]
fn a_page_of_an_export_beside_a_prune_has_each_place_once() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait((1..=900).map(|lsn| input(lsn, 2 + lsn % 300, "text")).collect()).unwrap();
    checkpoint(&journal, 900);
    let reader = journal.reader();
    let pruning = std::thread::spawn(move || {
        for nth in 0..300 {
            prune(&journal, journal.reader().prune_plan(vec![Pid(2 + nth)]).unwrap(), 901 + nth).unwrap();
        }
    });
    while !pruning.is_finished() {
        let places: Vec<Lsn> = reader.export(Lsn::ZERO, 900).unwrap().iter().map(|line| line.lsn).collect();
        assert!(places.is_sorted_by(|one, next| one < next), "a place stands twice: {places:?}");
    }
    pruning.join().unwrap();
}

const SECRET: &str = "the password is swordfish";

/// Whether a text stands in any of the journal's files.
fn stands(home: &Home, text: &str) -> bool {
    let files = std::fs::read_dir(home.folder.path()).unwrap();
    files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// Waits for what the journal does by itself within seconds; a minute is for a machine that is busy.
fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A secret in process 2, enough of it that pages were split many times, some entries longer than a page.
fn with_a_secret(home: &Home) -> Journal {
    let (journal, _) = home.open();
    for from in (1..3000).step_by(30) {
        let text = |lsn: u64| {
            if lsn.is_multiple_of(3) { SECRET.repeat(1 + lsn as usize % 500) } else { "something else".into() }
        };
        journal.append_wait((from..from + 30).map(|lsn| input(lsn, 2 + lsn % 3, &text(lsn))).collect()).unwrap();
    }
    checkpoint(&journal, 3000);
    journal
}

#[test]
fn what_was_pruned_is_gone_from_the_disk() {
    let home = Home::new();
    let journal = with_a_secret(&home);
    prune(&journal, journal.reader().prune_plan(vec![Pid(2)]).unwrap(), 3001).unwrap();
    assert!(!stands(&home, "swordfish"), "it can still be read from a file, while the daemon runs");
    assert!(stands(&home, "something else"));
    journal.close().unwrap();
    assert!(!stands(&home, "swordfish"));
}

#[test]
fn what_a_reader_kept_in_the_log_goes_once_it_is_done() {
    let home = Home::new();
    let journal = with_a_secret(&home);
    let reader = rusqlite::Connection::open(home.db()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM entry;").unwrap();
    prune(&journal, journal.reader().prune_plan(vec![Pid(2)]).unwrap(), 3001).unwrap();
    assert!(stands(&home, "swordfish"), "the reader sees the journal as it was");
    reader.execute_batch("COMMIT").unwrap();
    // Nothing else happens.
    until("the log is folded", || !stands(&home, "swordfish"));
    journal.append_wait(batch(3002, 3002)).unwrap();
}

#[test]
fn a_saved_state_is_gone_from_the_disk_with_its_process() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 30)).unwrap();
    // States of all lengths, written again and again, as processes grow.
    for round in 1..8 {
        let state = |pid: u64| format!("{pid} {}", SECRET.repeat((pid * round * 37 % 900) as usize)).into_bytes();
        let pages = (2..120).map(|pid| (Pid(pid), state(pid))).collect();
        journal.checkpoint_wait(Checkpoint { lsn: Lsn(30), pages, ..Checkpoint::default() }).unwrap();
    }
    let kept = (2..60).map(|pid| (Pid(pid), b"grown small".to_vec())).collect();
    let removed = (60..120).map(Pid).collect();
    let last = Checkpoint { lsn: Lsn(30), globals: Vec::new(), pages: kept, removed };
    journal.checkpoint_wait(last).unwrap();
    assert!(!stands(&home, "swordfish"));
    assert!(stands(&home, "grown small"));
}

#[test]
fn what_a_killed_daemon_left_in_the_log_goes_at_the_next_start() {
    let (home, copy) = (Home::new(), Home::new());
    let journal = with_a_secret(&home);
    for file in std::fs::read_dir(home.folder.path()).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.folder.path().join(file.file_name())).unwrap();
    }
    drop(journal);
    let log = std::fs::metadata(copy.file("journal.db-wal")).unwrap();
    assert!(log.len() > 0);
    let (journal, _) = copy.open();
    until("the log is empty", || std::fs::metadata(copy.file("journal.db-wal")).unwrap().len() == 0);
    journal.append_wait(batch(3001, 3001)).unwrap();
}

#[test]
fn what_is_not_yet_sorted_into_trails_is_pruned_too() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 9)).unwrap();
    // One large commit: its positions wait.
    journal.append_wait(batch(10, 300)).unwrap();
    checkpoint(&journal, 300);
    let plan = journal.reader().prune_plan(vec![Pid(2), Pid(3)]).unwrap();
    assert_eq!(plan.entries(), 200);
    prune(&journal, plan, 301).unwrap();
    let reader = journal.reader();
    assert_eq!(reader.entries_of(Pid(2), Lsn::ZERO, 999).unwrap(), []);
    assert_eq!(reader.entries_of(Pid(4), Lsn::ZERO, 999).unwrap().len(), 100);
    let report = reader.verify(|_, _| {}).unwrap();
    assert_eq!((report.faults, report.entries, report.sealed), (vec![], 101, 200));
    let db = rusqlite::Connection::open(home.db()).unwrap();
    let left: u64 = db.query_row("SELECT count(*) FROM trail WHERE pid IN (2, 3)", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn nothing_goes_without_a_checkpoint() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 30)).unwrap();
    let plan = journal.reader().prune_plan(vec![Pid(2)]).unwrap();
    assert_eq!((plan.pids(), plan.entries()), (&[][..], 0));
}

#[test]
fn two_plans_for_the_same_process_do_no_harm() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 30)).unwrap();
    checkpoint(&journal, 30);
    let plan = journal.reader().prune_plan(vec![Pid(2)]).unwrap();
    prune(&journal, plan.clone(), 31).unwrap();
    prune(&journal, plan, 32).unwrap();
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
}

#[test]
fn a_mark_out_of_order_prunes_nothing() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 30)).unwrap();
    checkpoint(&journal, 30);
    let plan = journal.reader().prune_plan(vec![Pid(2)]).unwrap();
    assert!(matches!(prune(&journal, plan, 33), Err(Error::OutOfOrder { expected: Lsn(31), found: Lsn(33) })));
    assert_eq!(all(&journal, 0).len(), 30);
    journal.append_wait(batch(31, 31)).unwrap();
}
