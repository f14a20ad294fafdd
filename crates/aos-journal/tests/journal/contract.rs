//! What every store keeps: the same cases over the journal on disk and the one in memory.

use std::ops::ControlFlow;

use aos_abi::{Lsn, Pid};
use aos_journal::chain::GENESIS;
use aos_journal::{Checkpoint, Crash, Error, MemoryStore, Store};

use crate::sample::{Home, all, batch, input};

fn on_both(case: impl Fn(&mut dyn Store)) {
    case(&mut MemoryStore::new());
    let home = Home::new();
    case(&mut home.open().0);
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    on_both(|store| {
        assert_eq!(store.last().unwrap(), (Lsn::ZERO, GENESIS));
        store.append(batch(1, 3)).unwrap();
        store.append(vec![]).unwrap();
        store.append(batch(4, 2000)).unwrap();
        let expected: Vec<_> = batch(1, 2000).iter().map(|entry| (**entry).clone()).collect();
        assert_eq!(all(store, 0), expected);
        assert_eq!(all(store, 1998), expected[1998..]);
        assert_eq!(all(store, 2000), []);
        assert_eq!(store.last().unwrap().0, Lsn(2000));
    });
}

#[test]
fn a_visitor_that_has_seen_enough_sees_no_more() {
    on_both(|store| {
        store.append(batch(1, 9)).unwrap();
        let mut seen = 0;
        let visited = store.for_each_after(Lsn(2), &mut |entry| {
            seen += 1;
            if entry.lsn == Lsn(5) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited.unwrap();
        assert_eq!(seen, 3);
    });
}

#[test]
fn a_batch_that_does_not_follow_is_refused_alone() {
    on_both(|store| {
        store.append(batch(1, 3)).unwrap();
        let before = store.last().unwrap();
        for wrong in [batch(3, 4), batch(5, 6), vec![input(4, 2, "a"), input(6, 2, "b")]] {
            let refused = store.append(wrong);
            assert!(matches!(refused, Err(Error::OutOfOrder { .. })), "{refused:?}");
            assert_eq!(store.last().unwrap(), before, "nothing of a refused batch may stay");
        }
        store.append(batch(4, 5)).unwrap();
        assert_eq!(all(store, 3).len(), 2);
    });
}

#[test]
fn both_stores_make_the_same_chain() {
    let home = Home::new();
    let mut disk = home.open().0;
    let mut memory = MemoryStore::new();
    for store in [&mut disk as &mut dyn Store, &mut memory] {
        store.append(batch(1, 7)).unwrap();
        store.append(batch(8, 50)).unwrap();
    }
    assert_eq!(Store::last(&disk).unwrap(), memory.last().unwrap());
}

#[test]
fn a_checkpoint_changes_what_it_names_and_nothing_else() {
    on_both(|store| {
        let (two, three, four) = (Pid(2), Pid(3), Pid(4));
        assert_eq!(store.globals().unwrap(), None);
        store.append(batch(1, 9)).unwrap();
        let first = Checkpoint {
            lsn: Lsn(5),
            globals: b"five".into(),
            pages: vec![(two, b"a".into()), (three, b"b".into())],
            removed: vec![],
        };
        store.checkpoint(first).unwrap();
        let second = Checkpoint {
            lsn: Lsn(9),
            globals: b"nine".into(),
            pages: vec![(four, vec![]), (three, b"c".into())],
            removed: vec![two, Pid(77)],
        };
        store.checkpoint(second).unwrap();
        assert_eq!(store.globals().unwrap(), Some((Lsn(9), b"nine".to_vec())));
        assert_eq!(store.page(two).unwrap(), None);
        assert_eq!(store.page(three).unwrap(), Some(b"c".to_vec()));
        assert_eq!(store.page(four).unwrap(), Some(vec![]));

        for (lsn, why) in [(8, "older than the last"), (10, "ahead of the entries")] {
            let refused = store.checkpoint(Checkpoint { lsn: Lsn(lsn), ..Checkpoint::default() });
            assert!(matches!(refused, Err(Error::StaleCheckpoint { .. })), "{why}: {refused:?}");
        }
        assert_eq!(store.globals().unwrap(), Some((Lsn(9), b"nine".to_vec())), "a refused checkpoint leaves no trace");
        store.append(batch(10, 11)).unwrap();
    });
}

#[test]
fn a_failed_sync_poisons_and_the_crash_decides() {
    for (unsynced, last) in [(Crash::Lost, 3), (Crash::Kept, 5)] {
        let mut store = MemoryStore::new();
        store.append(batch(1, 3)).unwrap();
        store.fail_sync();
        assert!(store.append(batch(4, 5)).is_err());
        assert_eq!(all(&store, 0).len(), 3, "what was not synced is not read");
        assert!(store.append(batch(6, 7)).is_err(), "nothing is taken after a failed sync");
        store.crash(unsynced);
        assert_eq!(store.last().unwrap().0, Lsn(last));
        store.append(batch(last + 1, last + 1)).unwrap();
    }
}

#[test]
fn a_full_memory_keeps_nothing_of_the_write() {
    let mut store = MemoryStore::new();
    store.append(batch(1, 3)).unwrap();
    store.fail_write();
    assert!(matches!(store.append(batch(4, 5)), Err(Error::Full)));
    store.crash(Crash::Kept);
    assert_eq!(store.last().unwrap().0, Lsn(3));
    assert!(store.flip(Lsn(2), 20));
    assert!(store.for_each_after(Lsn::ZERO, &mut |_| ControlFlow::Continue(())).is_err());
}

#[test]
fn many_writes_can_share_a_sync() {
    let mut store = MemoryStore::new();
    for lsn in 1..=10 {
        store.write(&batch(lsn, lsn)).unwrap();
    }
    store.write_checkpoint(Checkpoint { lsn: Lsn(10), ..Checkpoint::default() }).unwrap();
    assert_eq!((all(&store, 0).len(), store.syncs()), (0, 0));
    store.sync().unwrap();
    assert_eq!((all(&store, 0).len(), store.syncs()), (10, 1));
}
