//! A file that is damaged anywhere: what is whole is said, and can be gone on from.

use std::fs;

use aos_abi::{Lsn, Pid};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions, Reader};

use crate::prune::{checkpoint, prune};
use crate::sample::{Home, all, batch, input};

const PAGE: usize = 4096;
const ENTRIES: u64 = 400;

/// A home whose journal is folded into its file, and the bytes of that.
fn home() -> (Home, Vec<u8>) {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, ENTRIES / 2)).unwrap();
    let pages = (2..5).map(|pid| (Pid(pid), vec![u8::try_from(pid).unwrap(); 900])).collect();
    let checkpoint = Checkpoint { lsn: Lsn(ENTRIES / 2), globals: vec![7; 3000], pages, removed: vec![] };
    journal.checkpoint_wait(checkpoint).unwrap();
    journal.append_wait(batch(ENTRIES / 2 + 1, ENTRIES)).unwrap();
    journal.close().unwrap();
    let bytes = fs::read(home.db()).unwrap();
    (home, bytes)
}

fn accepting() -> OpenOptions {
    OpenOptions { accept_loss: true, ..OpenOptions::default() }
}

#[test]
fn a_page_damaged_anywhere_is_told_with_what_is_whole_and_can_be_gone_on_from() {
    let (home, sound) = home();
    let before = all(&home.open().0, 0);
    let (mut lossless, mut lossy) = (0, 0);
    for page in 1..sound.len() / PAGE {
        let mut bytes = sound.clone();
        bytes[page * PAGE..][..64].fill(0xa5);
        fs::write(home.db(), &bytes).unwrap();
        for name in ["journal.db-wal", "journal.db-shm"] {
            fs::remove_file(home.file(name)).unwrap_or_default();
        }
        let report = Reader::open(&home.db()).unwrap().verify(|_, _| {}).unwrap();
        assert!(!report.is_sound(), "page {page}: nobody noticed");
        let upto = report.sound_upto;
        let told =
            Error::Corrupt { at: report.faults[0].at, detail: String::new(), sound_upto: None }.located(&home.db());
        if let Error::Corrupt { at: aos_journal::Place::File, sound_upto, .. } = &told {
            assert_eq!(*sound_upto, Some(upto), "page {page}");
        }
        if upto == Lsn::ZERO {
            let refused = Journal::open(&home.db(), accepting()).map(|(_, opened)| opened);
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "page {page}: {refused:?}");
            assert_eq!(fs::read(home.db()).unwrap(), bytes, "page {page}: the evidence was changed");
            continue;
        }
        let (journal, opened) = Journal::open(&home.db(), accepting()).unwrap();
        // Of the last input that is there, what was decided may be lost: it is left out with it.
        let upto = if upto == Lsn(ENTRIES) { upto } else { Lsn(upto.0 - 1) };
        assert_eq!(opened.last, upto, "page {page}");
        let kept = all(&journal, 0);
        assert_eq!(kept, before[..usize::try_from(upto.0).unwrap()], "page {page}");
        let next = upto.0 + 1;
        journal.append_wait(batch(next, next)).unwrap();
        assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound(), "page {page}: {report:?}");
        assert_eq!(
            journal.reader().entries_of(Pid(2), Lsn::ZERO, 1000).unwrap().len() as u64,
            (1..=next).filter(|lsn| lsn % 3 == 0).count() as u64
        );
        drop(journal);
        if let Some(damaged) = opened.damaged {
            assert_eq!(fs::read(&damaged).unwrap(), bytes, "page {page}: the damaged file is kept as it was");
            fs::remove_file(damaged).unwrap();
        }
        if upto == Lsn(ENTRIES) {
            lossless += 1
        } else {
            lossy += 1
        }
        // The head file names more than the next page's journal holds, as it did at first.
        fs::write(home.db(), &sound).unwrap();
        for name in ["journal.db-wal", "journal.db-shm", "journal.head"] {
            fs::remove_file(home.file(name)).unwrap_or_default();
        }
        drop(home.open());
    }
    assert!(lossless > 3 && lossy > 10, "{lossless} pages of no entry, {lossy} of entries");
}

/// A daemon started on half of what an input had led to, and could not replay it.
#[test]
fn an_input_goes_with_all_that_was_decided_from_it() {
    let home = Home::new();
    let (journal, _) = home.open();
    let decided = |lsn: u64| {
        let mut entry = (*input(lsn, 2, &"decided ".repeat(90))).clone();
        // Inputs are every tenth; what follows was decided from them.
        entry.cause = Some(Lsn(lsn / 10 * 10)).filter(|cause| *cause != Lsn(lsn) && cause.0 > 0);
        std::sync::Arc::new(entry)
    };
    journal.append_wait((1..=99).map(decided).collect::<Vec<_>>()).unwrap();
    journal.close().unwrap();
    let mut bytes = fs::read(home.db()).unwrap();
    let page = (0..bytes.len() - 9).rev().find(|at| bytes[*at..].starts_with(b"decided ")).unwrap() / PAGE;
    bytes[page * PAGE..][..64].fill(0xa5);
    fs::write(home.db(), &bytes).unwrap();
    let upto = Reader::open(&home.db()).unwrap().verify(|_, _| {}).unwrap().sound_upto;
    assert!(upto.0 > 20 && upto.0 < 99, "{upto}");
    assert_eq!(Journal::open(&home.db(), accepting()).unwrap().1.last, Lsn(upto.0 / 10 * 10 - 1));
}

#[test]
fn what_was_pruned_cannot_be_rebuilt_without_a_state_that_is_whole() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, ENTRIES)).unwrap();
    checkpoint(&journal, ENTRIES);
    let plan = journal.reader().prune_plan(vec![Pid(3)]).unwrap();
    prune(&journal, plan, ENTRIES + 1).unwrap();
    journal.close().unwrap();
    let sound = fs::read(home.db()).unwrap();
    let refused = (1..sound.len() / PAGE).filter(|page| {
        let mut bytes = sound.clone();
        bytes[page * PAGE..][..64].fill(0xa5);
        fs::write(home.db(), &bytes).unwrap();
        for name in ["journal.db-wal", "journal.db-shm", "journal.head"] {
            fs::remove_file(home.file(name)).unwrap_or_default();
        }
        let report = Reader::open(&home.db()).unwrap().verify(|_, _| {}).unwrap();
        let opened = Journal::open(&home.db(), accepting()).map(|(_, opened)| opened);
        // Entries of before the first pruned one need no state.
        let refused = report.sound_upto >= Lsn(3) && opened.is_err();
        if refused {
            assert_eq!(fs::read(home.db()).unwrap(), bytes, "page {page}: the evidence was changed");
        }
        refused
    });
    assert!(refused.count() > 3);
}
