//! The chain: whatever is changed in the file shows.

use std::fs;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use aos_abi::{Entry, Lsn, Pid};
use aos_journal::{Charge, ChargesBy, Checkpoint, Error, Place, Reader};
use proptest::prelude::*;

use crate::prune::prune;
use crate::sample::{Home, all, batch, charged};

const ENTRIES: u64 = 120;

/// The bytes of a closed journal with entries, charges, pages and seals.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, ENTRIES - 21)).unwrap();
    journal.append_wait((ENTRIES - 20..ENTRIES).map(|lsn| charged(lsn, 2, "small", Some(lsn))).collect()).unwrap();
    let pages = (2..9).map(|pid| (Pid(pid), vec![pid as u8; 900])).collect();
    journal
        .checkpoint_wait(Checkpoint { lsn: Lsn(ENTRIES - 21), globals: b"globals".to_vec(), pages, removed: vec![] })
        .unwrap();
    let plan = journal.reader().prune_plan(vec![Pid(4)]).unwrap();
    journal.prune(plan, Lsn(ENTRIES), aos_abi::Timestamp(1_795_305_700_000), |outcome| outcome.unwrap());
    journal.close().unwrap();
    fs::read(home.db()).unwrap()
});

/// Everything a caller can read.
type Everything = (Vec<Entry>, Vec<Vec<Entry>>, Vec<Charge>, Vec<(Pid, Vec<u8>)>, Option<(Lsn, Vec<u8>)>);

fn read(home: &Home) -> Result<Everything, Error> {
    let reader = Reader::open(&home.db())?;
    reader.verify(|_, _| {})?.sound()?;
    let by_process = (2..6).map(|pid| reader.entries_of(Pid(pid), Lsn::ZERO, 999)).collect::<Result<_, _>>()?;
    let pages = (2..10).filter_map(|pid| Some((Pid(pid), reader.page(Pid(pid)).ok()??))).collect();
    Ok((reader.entries(Lsn(1), 999)?, by_process, reader.charges(ChargesBy::Pid, None)?, pages, reader.globals()?))
}

fn home_of(bytes: &[u8]) -> Home {
    let home = Home::new();
    fs::write(home.db(), bytes).unwrap();
    home
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A bit anywhere in the file: either it shows, or it changes nothing that can be read.
    #[test]
    fn no_flipped_bit_changes_what_is_read_unnoticed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = SOUND.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        if let Ok(seen) = read(&home_of(&bytes)) {
            prop_assert_eq!(seen, read(&home_of(&SOUND)).unwrap(), "byte {} is believed", at);
        }
    }

    /// A bit in the body of an entry: the entry is named.
    #[test]
    fn any_flipped_byte_of_a_body_is_found(lsn in 1..ENTRIES - 21, at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        prop_assume!(2 + lsn % 3 != 4, "those are pruned");
        let body = serde_json::to_vec(&batch(lsn, lsn)[0].body).unwrap();
        let mut bytes = SOUND.clone();
        // Pages that SQLite split keep old copies in their free space, so all copies are changed.
        let places: Vec<_> =
            (0..bytes.len() - body.len()).filter(|place| bytes[*place..].starts_with(&body)).collect();
        for place in places {
            bytes[place + at.index(body.len())] ^= 1_u8 << bit;
        }
        let report = Reader::open(&home_of(&bytes).db()).unwrap().verify(|_, _| {}).unwrap();
        let places: Vec<_> = report.faults.iter().map(|fault| fault.at).collect();
        prop_assert_eq!(places, [Place::Entry(Lsn(lsn))]);
    }
}

#[test]
fn the_sound_file_is_sound() {
    let seen = read(&home_of(&SOUND)).unwrap();
    assert_eq!((seen.2[0].charges, seen.3.len()), (20, 7));
    // A third of the entries before the charges are of process 4, which is pruned.
    assert_eq!(seen.0.len() as u64, ENTRIES - 33);
}

/// Edits that keep the database consistent, as somebody with an SQL shell would make them.
#[test]
fn edits_with_sql_are_found_and_placed() {
    let first = |sql: &str| {
        let home = home_of(&SOUND);
        let db = rusqlite::Connection::open(home.db()).unwrap();
        db.execute_batch(sql).unwrap();
        drop(db);
        let report = Reader::open(&home.db()).unwrap().verify(|_, _| {}).unwrap();
        report.faults.first().map(|fault| fault.at).unwrap_or_else(|| panic!("not found: {sql}"))
    };
    let entry = |lsn| Place::Entry(Lsn(lsn));
    for column in ["at = at + 1", "pid = 3", "cause = 1", "kind = 'tick'", "hash = zeroblob(32)", "body = x'7b7d'"] {
        assert_eq!(first(&format!("UPDATE entry SET {column} WHERE lsn = 60")), entry(60), "{column}");
    }
    assert_eq!(first("DELETE FROM entry WHERE lsn = 60"), entry(60));
    assert_eq!(first("DELETE FROM entry WHERE lsn BETWEEN 60 AND 63"), entry(60));
    assert_eq!(
        first(
            "UPDATE entry SET lsn = 999 WHERE lsn = 60; UPDATE entry SET lsn = 60 WHERE lsn = 61; UPDATE entry SET lsn = 61 WHERE lsn = 999"
        ),
        entry(60)
    );
    assert_eq!(first("UPDATE entry SET lsn = 5000 WHERE lsn = 120"), entry(120));
    assert_eq!(
        first("INSERT INTO entry SELECT 121, at, pid, cause, kind, hash, body FROM entry WHERE lsn = 60"),
        entry(121)
    );
    // Sealing by hand what nobody pruned: the chain over it holds, the mark does not cover it.
    let digest = "UPDATE sealed SET digest = zeroblob(32) WHERE lsn = 2";
    assert_eq!(first(digest), entry(3));
    assert_eq!(
        first("INSERT INTO sealed SELECT 60, pid, digest FROM sealed WHERE lsn = 2; DELETE FROM entry WHERE lsn = 60"),
        entry(61)
    );
    assert_eq!(first("DELETE FROM sealed WHERE lsn = 2"), entry(2));
    assert_eq!(first("UPDATE sealed SET pid = 3 WHERE lsn = 2"), entry(3));
    assert_eq!(first("INSERT INTO sealed SELECT 60, pid, digest FROM sealed WHERE lsn = 2"), Place::Sealed(Lsn(60)));
    assert_eq!(first("DELETE FROM trail WHERE lsn = 60; DELETE FROM fresh WHERE lsn = 60"), entry(60));
    assert_eq!(first("UPDATE page SET state = zeroblob(900) WHERE pid = 3"), Place::Page(Pid(3)));
}

/// The walk said that all up to an altered seal was as it was written.
#[test]
fn a_seal_proves_nothing_by_itself() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 9)).unwrap();
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(9), globals: vec![], pages: vec![], removed: vec![] }).unwrap();
    let db = rusqlite::Connection::open(home.db()).unwrap();
    let kept =
        |lsn: u64| (Lsn(lsn), db.query_row("SELECT hash FROM entry WHERE lsn = ?1", [lsn], |row| row.get(0)).unwrap());
    let (four, five) = (kept(4), kept(5));
    // Of each three entries two are sealed: 1 and 2, 4 and 5, 7 and 8.
    let plan = journal.reader().prune_plan(vec![Pid(3), Pid(4)]).unwrap();
    prune(&journal, plan, 10).unwrap();
    let verify = |kept| journal.reader().verify_against(kept, |_, _| {}).unwrap();
    assert_eq!((verify(None).faults, verify(Some(four)).faults), (vec![], vec![]));
    let told = |kept| {
        let report = verify(kept);
        (report.faults[0].to_owned(), report.sound_upto.0)
    };
    let fault = |of: u64, what: &str| {
        let detail = format!("its hash does not follow from its bytes and {what}");
        aos_journal::Fault { at: Place::Entry(Lsn(of)), detail }
    };
    let alter = |lsn: u64| db.execute("UPDATE sealed SET digest = zeroblob(32) WHERE lsn = ?1", [lsn]).unwrap();
    alter(5);
    assert_eq!(told(None), (fault(6, "the sealed entries 4 to 5"), 3));
    assert_eq!(told(Some(four)), (fault(6, "the sealed entry 5"), 4), "what a person kept proves up to there");
    assert_eq!(told(Some(five)).0.detail, "you kept another hash for it");
    alter(1);
    assert_eq!(told(None), (fault(3, "the sealed entries 1 to 2"), 0));
}

#[test]
fn replay_stops_at_the_first_entry_that_is_not_what_was_written() {
    let home = home_of(&SOUND);
    let db = rusqlite::Connection::open(home.db()).unwrap();
    db.execute("UPDATE entry SET at = at + 1 WHERE lsn = 70", []).unwrap();
    let reader = Reader::open(&home.db()).unwrap();
    let replay = |after| {
        let mut last = Lsn::ZERO;
        let outcome = reader.for_each_after(Lsn(after), |entry| {
            last = entry.lsn;
            std::ops::ControlFlow::Continue(())
        });
        (last.0, outcome)
    };
    let (last, outcome) = replay(0);
    assert!(matches!(outcome, Err(Error::Corrupt { at: Place::Entry(Lsn(70)), .. })), "{outcome:?}");
    assert_eq!(last, 69);
    assert!(replay(70).1.is_ok(), "what comes after it is sound");
    db.execute("DELETE FROM entry WHERE lsn = 82", []).unwrap();
    let (last, outcome) = replay(70);
    assert!(matches!(outcome, Err(Error::Corrupt { at: Place::Entry(Lsn(82)), .. })), "{outcome:?}");
    assert_eq!(last, 81);
}

/// Walked to any place and on from there, the chain ends as the whole does, and a fault is named on its side alone.
#[test]
fn a_walk_goes_on_where_another_stopped() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 9000)).unwrap();
    let reader = journal.reader();
    let whole = reader.verify_chain(None, || ControlFlow::Continue(())).unwrap();
    let part = reader.verify_chain(None, || ControlFlow::Break(())).unwrap();
    assert!(part.is_sound() && part.last < whole.last && part.last > Lsn::ZERO, "{part:?}");
    assert!(reader.holds(part.last, &part.hash).unwrap() && !reader.holds(part.last, &whole.hash).unwrap());
    let rest = reader.verify_chain(Some((part.last, part.hash)), || ControlFlow::Continue(())).unwrap();
    assert_eq!((rest.last, rest.hash, rest.entries), (whole.last, whole.hash, whole.entries - part.entries));
    assert!(rest.is_sound());
    let other = reader.verify_chain(Some((part.last, whole.hash)), || ControlFlow::Continue(())).unwrap();
    assert_eq!(other.faults[0].at, Place::Entry(part.last.next()));
    journal.close().unwrap();
    let db = rusqlite::Connection::open(home.db()).unwrap();
    db.execute("UPDATE entry SET at = at + 1 WHERE lsn = 7", []).unwrap();
    let reader = Reader::open(&home.db()).unwrap();
    let first = reader.verify_chain(None, || ControlFlow::Continue(())).unwrap();
    assert_eq!(first.faults[0].at, Place::Entry(Lsn(7)));
    assert!(reader.verify_chain(Some((part.last, part.hash)), || ControlFlow::Continue(())).unwrap().is_sound());
}

#[test]
fn a_journal_can_be_verified_while_it_grows() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 9000)).unwrap();
    let mut next = 9001;
    let mut seen = Vec::new();
    let report = journal.reader().verify(|at, last| {
        // Grows at every step, but not for ever.
        if next < 9100 {
            journal.append_wait(batch(next, next + 9)).unwrap();
            next += 10;
        }
        seen.push((at, last));
    });
    let report = report.unwrap();
    assert_eq!((&report.faults, report.entries), (&vec![], report.last.0));
    assert!(report.last.0 > 9000 && seen.len() >= 3, "{seen:?}");
    assert_eq!(
        (report.last, report.hash),
        journal.reader().last().map(|(lsn, hash)| (lsn.min(report.last), hash)).unwrap()
    );
    assert_eq!(all(&journal, 0).len() as u64, next - 1);
}
