//! The barrier: one state that is kept whole while others replace the last one.

use aos_abi::{Body, Lsn, Pid};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions, Place};

use crate::sample::entry;

fn saved(lsn: u64, state: &[u8]) -> Checkpoint {
    Checkpoint { lsn: Lsn(lsn), globals: state.to_vec(), pages: vec![(Pid(2), state.to_vec())], removed: Vec::new() }
}

#[test]
fn a_barrier_stays_as_it_was_until_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("journal.db");
    let (journal, _) = Journal::open(&path, OpenOptions::default()).unwrap();
    let reader = journal.reader();
    assert_eq!(reader.barrier().unwrap(), None);
    for lsn in 1..=3 {
        journal.append_wait(vec![entry(lsn, 2, Body::Tick)]).unwrap();
    }
    journal.checkpoint_wait(saved(1, b"first")).unwrap();
    journal.barrier_wait("1.0.0").unwrap();
    journal.checkpoint_wait(saved(2, b"second")).unwrap();
    drop(journal);

    let (journal, _) = Journal::open(&path, OpenOptions::default()).unwrap();
    let barrier = journal.reader().barrier().unwrap().unwrap();
    assert_eq!((barrier.lsn, &*barrier.version, &*barrier.globals), (Lsn(1), "1.0.0", &b"first"[..]));
    assert_eq!(reader.barrier_pages().unwrap().load(Pid(2)).unwrap().unwrap(), b"first");
    assert_eq!(reader.page(Pid(2)).unwrap().unwrap(), b"second");
    journal.checkpoint_wait(Checkpoint { removed: vec![Pid(2)], pages: Vec::new(), ..saved(3, b"third") }).unwrap();
    journal.barrier_wait("1.1.0").unwrap();
    let barrier = journal.reader().barrier().unwrap().unwrap();
    assert_eq!((barrier.lsn, &*barrier.version), (Lsn(3), "1.1.0"));
    assert_eq!(reader.barrier_pages().unwrap().load(Pid(2)).unwrap(), None, "what has gone is in none");
}

#[test]
fn a_changed_byte_of_a_barrier_is_an_error_and_no_wrong_state() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("journal.db");
    let (journal, _) = Journal::open(&path, OpenOptions::default()).unwrap();
    journal.append_wait(vec![entry(1, 2, Body::Tick)]).unwrap();
    journal.checkpoint_wait(saved(1, b"state")).unwrap();
    journal.barrier_wait("1.0.0").unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(db.execute("UPDATE barrier SET globals = x'00'", []).unwrap(), 1);
    assert_eq!(db.execute("UPDATE barrier_page SET state = x'00'", []).unwrap(), 1);
    let error = journal.reader().barrier().unwrap_err();
    assert!(matches!(error, Error::Corrupt { at: Place::Globals, .. }), "{error}");
    let error = journal.reader().barrier_pages().unwrap().load(Pid(2)).unwrap_err();
    assert!(matches!(error, Error::Corrupt { at: Place::Page(Pid(2)), .. }), "{error}");
}
