//! Reading: by position, by process, by what was spent.

use std::ops::ControlFlow;

use aos_abi::{Lsn, Pid, Timestamp, Usd};
use aos_journal::{Charge, ChargesBy, Checkpoint, Error, Reader};

use crate::sample::{Home, batch, charged, entry};

fn lsns(entries: &[aos_abi::Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.lsn.0).collect()
}

#[test]
fn entries_are_found_by_position_and_by_process() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 20)).unwrap();
    let reader = journal.reader();
    assert_eq!(lsns(&reader.entries(Lsn(4), 3).unwrap()), [4, 5, 6]);
    assert_eq!(lsns(&reader.entries(Lsn(19), 9).unwrap()), [19, 20]);
    assert_eq!(lsns(&reader.entries(Lsn(21), 9).unwrap()), [0_u64; 0]);
    assert_eq!(lsns(&reader.entries_of(Pid(2), Lsn(3), 3).unwrap()), [6, 9, 12]);
    assert_eq!(lsns(&reader.entries_of(Pid(77), Lsn(0), 3).unwrap()), [0_u64; 0]);
    assert_eq!(lsns(&reader.get(&[Lsn(7), Lsn(99), Lsn(2)]).unwrap()), [7, 2]);
    assert_eq!(reader.last().unwrap().0, Lsn(20));
    assert_eq!(reader.get(&[Lsn(7)]).unwrap()[0], *batch(7, 7)[0]);
}

#[test]
fn entries_of_a_kind_are_read_from_the_end_backwards() {
    let home = Home::new();
    let (journal, _) = home.open();
    let is_wanted = |lsn: u64| lsn.is_multiple_of(7) || lsn > 2700;
    let mixed = batch(1, 3000).into_iter().map(|one| match is_wanted(one.lsn.0) {
        true => charged(one.lsn.0, one.pid.0, "small", None),
        false => one,
    });
    journal.append_wait(mixed.collect()).unwrap();
    let reader = journal.reader();
    let (mut found, mut before, mut reads) = (Vec::new(), Some(Lsn(2991)), 0);
    while let Some(at) = before {
        let (entries, next) = reader.back(at, &["charged", "verdict"]).unwrap();
        found.extend(lsns(&entries));
        (before, reads) = (next, reads + 1);
    }
    assert_eq!(found, (1..2991).rev().filter(|lsn| is_wanted(*lsn)).collect::<Vec<_>>());
    // A chunk at a time, and once to see that there is no more.
    assert_eq!(reads, 4);
    assert_eq!(reader.back(Lsn(2991), &["verdict"]).unwrap().0, []);
    assert_eq!(reader.pruned_from(Lsn(1)).unwrap(), 0);
}

/// Large commits leave positions unsorted, small ones sort them, and neither shows to a reader.
#[test]
fn a_process_is_read_the_same_however_its_entries_came() {
    let home = Home::new();
    let (mut journal, _) = home.open();
    let mut last = 0;
    let rows = |table: &str| -> u64 {
        let db = rusqlite::Connection::open(home.db()).unwrap();
        db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    // One by one, large, larger than what may wait, small again; then over a restart with some that wait.
    for (count, fresh) in [(1, 0), (5, 0), (300, 300), (500, 800), (16_000, 0), (100, 100), (1, 0), (64, 64)] {
        journal.append_wait(batch(last + 1, last + count)).unwrap();
        last += count;
        assert_eq!((rows("fresh"), rows("trail")), (fresh, last - fresh), "after {count} entries");
        for pid in 2..5 {
            let expected: Vec<_> = (1..=last).filter(|lsn| 2 + lsn % 3 == pid).collect();
            let read = |after: usize, limit: usize| {
                lsns(&journal.reader().entries_of(Pid(pid), Lsn(after as u64), limit as u64).unwrap())
            };
            assert_eq!(read(0, usize::MAX), expected);
            let later: Vec<_> = expected.iter().copied().filter(|lsn| *lsn > last / 2).take(70).collect();
            assert_eq!(read(last as usize / 2, 70), later);
        }
        drop(journal);
        journal = home.open().0;
    }
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
}

#[test]
fn charges_are_read_through_their_index() {
    let home = Home::new();
    drop(home.open());
    let db = rusqlite::Connection::open(home.db()).unwrap();
    let plan = |sql: &str| -> String {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap().map(Result::unwrap);
        steps.collect::<Vec<_>>().join("; ")
    };
    let of_charges =
        plan("SELECT body FROM entry WHERE kind = 'charged' AND (at, lsn) > (1, 2) ORDER BY at, lsn LIMIT 3");
    assert!(of_charges.contains("entry_charged") && !of_charges.contains("TEMP B-TREE"), "{of_charges}");
}

#[test]
fn reads_go_on_while_a_read_is_under_way() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 3000)).unwrap();
    let reader = journal.reader();
    let mut seen = 0;
    let visit = |entry: aos_abi::Entry| {
        seen += 1;
        if entry.lsn.0.is_multiple_of(1000) {
            assert_eq!(reader.entries(Lsn(1), 1).unwrap().len(), 1);
            let last = journal.last().0;
            journal.append_wait(batch(last + 1, last + 1)).unwrap();
        }
        ControlFlow::Continue(())
    };
    reader.for_each_after(Lsn::ZERO, visit).unwrap();
    assert_eq!(seen, 3003, "what arrives meanwhile is seen too");
}

#[test]
fn pages_are_read_in_order_beyond_a_chunk() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 1)).unwrap();
    assert_eq!(journal.page_reader().unwrap().all().count(), 0);
    let pages: Vec<_> = (2..702).map(|pid| (Pid(pid), pid.to_string().into_bytes())).collect();
    let checkpoint =
        Checkpoint { lsn: Lsn(1), globals: vec![], pages: pages.iter().rev().cloned().collect(), removed: vec![] };
    journal.checkpoint_wait(checkpoint).unwrap();
    let reader = journal.page_reader().unwrap();
    let read = std::thread::spawn(move || reader.all().collect::<Result<Vec<_>, _>>().unwrap()).join().unwrap();
    assert_eq!(read, pages);
}

#[test]
fn spending_is_summed_by_day_model_and_process() {
    let home = Home::new();
    let (journal, _) = home.open();
    let day = 24 * 3_600_000;
    let mut batch = vec![
        charged(1, 10, "small", Some(5)),
        charged(2, 9, "large", Some(70)),
        entry(3, 9, aos_abi::Body::Tick),
        charged(4, 9, "small", None),
        charged(5, 10, "large", Some(100)),
    ];
    let mut late = (*batch[4]).clone();
    late.at = Timestamp(late.at.0 + day);
    batch[4] = late.into();
    journal.append_wait(batch).unwrap();
    let reader = journal.reader();
    let sum = |key: &str, charges: u64, nanos: u64, unpriced: u64| Charge {
        key: key.into(),
        charges,
        input_tokens: 10 * charges,
        output_tokens: 2 * charges,
        cached_input_tokens: charges,
        cost_usd: Usd(nanos),
        unpriced,
        estimated_usd: Usd::ZERO,
    };
    let by = |by| reader.charges(by, None).unwrap();
    assert_eq!(by(ChargesBy::Day), [sum("2026-11-22", 3, 75, 1), sum("2026-11-23", 1, 100, 0)]);
    assert_eq!(by(ChargesBy::Model), [sum("large", 2, 170, 0), sum("small", 2, 5, 1)]);
    assert_eq!(by(ChargesBy::Pid), [sum("9", 2, 70, 1), sum("10", 2, 105, 0)]);
    let since = Some(Timestamp(1_795_305_600_000 + day));
    assert_eq!(reader.charges(ChargesBy::Model, since).unwrap(), [sum("large", 1, 100, 0)]);
}

#[test]
fn many_charges_are_summed_across_chunks() {
    let home = Home::new();
    let (journal, _) = home.open();
    // All at one moment, so that the cursor has to tell them apart by position.
    let entries = (1..=2500).map(|lsn| {
        let mut entry = (*charged(lsn, 2, "small", Some(1))).clone();
        entry.at = Timestamp(1_795_305_600_000);
        entry.into()
    });
    journal.append_wait(entries.collect()).unwrap();
    assert_eq!(journal.reader().charges(ChargesBy::Pid, None).unwrap()[0].charges, 2500);
}

#[test]
fn an_absent_journal_is_not_made_by_reading() {
    let home = Home::new();
    assert!(matches!(Reader::open(&home.db()), Err(Error::Missing { .. })));
    assert!(!home.db().exists());
}
