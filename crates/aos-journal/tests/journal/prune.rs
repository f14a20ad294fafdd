//! Pruning: what goes, what stays, and that the chain holds over it.

use std::sync::mpsc::sync_channel;

use aos_abi::{Body, Lsn, Pid, Timestamp};
use aos_journal::{ChargesBy, Checkpoint, Error, Journal, PrunePlan};

use crate::sample::{Home, all, batch, charged, input};

const AT: Timestamp = Timestamp(1_795_305_700_000);

fn prune(journal: &Journal, plan: PrunePlan, lsn: u64) -> Result<(), Error> {
    let (sender, answer) = sync_channel(1);
    let mark = journal.prune(plan, Lsn(lsn), AT, move |outcome| sender.send(outcome).unwrap());
    assert_eq!((mark.lsn, mark.pid), (Lsn(lsn), Pid::SYSTEM));
    answer.recv().unwrap()
}

fn checkpoint(journal: &Journal, lsn: u64) {
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

#[test]
fn what_was_pruned_is_gone_from_the_disk() {
    let home = Home::new();
    let (journal, _) = home.open();
    let secret = "the password is swordfish";
    // Enough that pages were split many times, some entries longer than a page.
    for from in (1..3000).step_by(30) {
        let text = |lsn: u64| {
            if lsn.is_multiple_of(3) { secret.repeat(1 + lsn as usize % 500) } else { "something else".into() }
        };
        journal.append_wait((from..from + 30).map(|lsn| input(lsn, 2 + lsn % 3, &text(lsn))).collect()).unwrap();
    }
    checkpoint(&journal, 3000);
    prune(&journal, journal.reader().prune_plan(vec![Pid(2)]).unwrap(), 3001).unwrap();
    journal.close().unwrap();
    let bytes = std::fs::read(home.db()).unwrap();
    assert!(!bytes.windows(9).any(|window| window == b"swordfish"), "it can still be read from the file");
    assert!(bytes.windows(14).any(|window| window == b"something else"));
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
