//! Torn ends: the log cut or changed at any place leaves whole batches, and the loss is named.

use std::fs;

use aos_abi::{Lsn, Pid};
use aos_journal::{Error, Journal, OpenOptions, Torn};
use proptest::prelude::*;

use crate::sample::{Home, all, batch};

/// Ends of the batches that every home of these tests holds.
const ENDS: [u64; 9] = [1, 2, 9, 10, 40, 41, 90, 91, 120];

/// A home as a kill leaves it: all in the log, nothing folded into the file.
fn killed() -> (Home, u64) {
    let (source, home) = (Home::new(), Home::new());
    let (journal, _) = source.open();
    let mut from = 1;
    for end in ENDS {
        journal.append_wait(batch(from, end)).unwrap();
        from = end + 1;
    }
    for name in ["journal.db", "journal.db-wal", "journal.head"] {
        fs::copy(source.file(name), home.file(name)).unwrap();
    }
    let log = fs::metadata(home.file("journal.db-wal")).unwrap().len();
    (home, log)
}

/// Opens a damaged home: either nothing is lost, or the loss is named, ends with a batch, and can be accepted.
fn check(home: &Home, lossless: bool) {
    let opened = Journal::open(&home.db(), OpenOptions::default()).map(|(_, opened)| opened);
    if lossless {
        assert_eq!(opened.unwrap().last, Lsn(120));
        return;
    }
    let Err(Error::TornTail { last_good, expected }) = opened else { panic!("the loss was not noticed: {opened:?}") };
    assert_eq!(expected, Lsn(120));
    assert!(last_good == Lsn::ZERO || ENDS.contains(&last_good.0), "{last_good} is in the middle of a batch");

    let options = OpenOptions { accept_loss: true, ..OpenOptions::default() };
    let (journal, opened) = Journal::open(&home.db(), options).unwrap();
    assert_eq!(opened.torn, Some(Torn { last_good, expected }));
    assert_eq!(opened.last_pid, Pid(4), "also where all that is left is of others");
    let next = last_good.0 + 1;
    journal.append_wait(batch(next, next)).unwrap();
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
    assert_eq!(all(&journal, 0).len() as u64, next);
    drop(journal);
    assert_eq!(home.open().1.torn, None, "accepted once, it is over");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_cut_anywhere_ends_with_a_whole_batch(at in any::<prop::sample::Index>()) {
        let (home, log) = killed();
        let cut = at.index(usize::try_from(log).unwrap()) as u64;
        fs::OpenOptions::new().write(true).open(home.file("journal.db-wal")).unwrap().set_len(cut).unwrap();
        check(&home, false);
    }

    #[test]
    fn a_log_changed_anywhere_ends_with_a_whole_batch(at in any::<prop::sample::Index>()) {
        let (home, log) = killed();
        let at = at.index(usize::try_from(log).unwrap());
        let mut bytes = fs::read(home.file("journal.db-wal")).unwrap();
        bytes[at] ^= 0x10;
        fs::write(home.file("journal.db-wal"), bytes).unwrap();
        check(&home, false);
    }
}

#[test]
fn a_whole_log_loses_nothing() {
    check(&killed().0, true);
}

#[test]
fn garbage_after_the_log_loses_nothing() {
    let (home, _) = killed();
    let mut bytes = fs::read(home.file("journal.db-wal")).unwrap();
    bytes.extend(b"not a frame".repeat(1000));
    fs::write(home.file("journal.db-wal"), bytes).unwrap();
    check(&home, true);
}

#[test]
fn a_log_that_is_gone_is_missed() {
    let (home, _) = killed();
    fs::remove_file(home.file("journal.db-wal")).unwrap();
    check(&home, false);
}
