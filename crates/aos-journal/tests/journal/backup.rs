//! Backup and restore: a whole, verified copy, or none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_abi::{Lsn, Pid};
use aos_journal::{Checkpoint, Error, Exchange, Journal, OpenOptions, Reader, Report, check_archive, copy_database};

use crate::child;
use crate::sample::{Home, all, batch};

/// A copy in the place of the journal; what was there goes into a folder beside it.
fn restore(archive: &Path, path: &Path) -> Result<Report, Error> {
    let exchange = Exchange::begin(path)?;
    let report = check_archive(archive)?;
    let (aside, new) = (path.with_extension("replaced"), path.with_extension("incoming"));
    fs::create_dir_all(&aside).unwrap();
    fs::copy(archive, &new).unwrap();
    exchange.set_aside(&aside, &report)?;
    exchange.put(&new)?;
    Ok(report)
}

#[test]
fn a_copy_made_while_entries_arrive_is_whole() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 500)).unwrap();
    let pages = vec![(Pid(2), b"two".to_vec())];
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(400), globals: b"g".into(), pages, removed: vec![] }).unwrap();
    let stop = AtomicBool::new(false);
    let copy = home.file("copy.db");
    let (report, last) = std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let mut last = 500;
            // At least some while the copy is made, however fast it is.
            while !stop.load(Ordering::Relaxed) || last < 520 {
                journal.append_wait(batch(last + 1, last + 3)).unwrap();
                last += 3;
            }
            last
        });
        let report = journal.backup(&copy);
        stop.store(true, Ordering::Relaxed);
        (report.unwrap(), appender.join().unwrap())
    });
    assert!(report.last >= Lsn(500) && report.last <= Lsn(last), "{report:?}");
    assert_eq!(check_archive(&copy).unwrap(), report);
    let (ours, theirs) = (journal.reader(), Reader::open(&copy).unwrap());
    assert_eq!(theirs.entries(Lsn(1), u64::MAX).unwrap(), ours.entries(Lsn(1), report.last.0).unwrap());
    assert_eq!(theirs.page(Pid(2)).unwrap(), Some(b"two".to_vec()));
    assert_eq!(theirs.globals().unwrap(), Some((Lsn(400), b"g".to_vec())));
    assert!(!home.file("copy.db.new").exists());
    assert!(matches!(journal.backup(&copy), Err(Error::Exists { .. })), "nothing is overwritten");
}

#[test]
fn a_journal_that_is_not_sound_is_not_copied() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 500)).unwrap();
    rusqlite::Connection::open(home.db()).unwrap().execute("UPDATE entry SET pid = 9 WHERE lsn = 7", []).unwrap();
    let refused = journal.backup(&home.file("copy.db"));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert!(!home.file("copy.db").exists() && !home.file("copy.db.new").exists());
}

#[test]
fn a_restored_home_goes_on_from_the_copy() {
    let (home, other) = (Home::new(), Home::new());
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 50)).unwrap();
    journal.backup(&home.file("copy.db")).unwrap();
    journal.append_wait(batch(51, 60)).unwrap();
    assert!(matches!(restore(&home.file("copy.db"), &home.db()), Err(Error::Locked { .. })), "a daemon is running");
    journal.close().unwrap();

    for target in [&home, &other] {
        let report = restore(&home.file("copy.db"), &target.db()).unwrap();
        assert_eq!(report.last, Lsn(50));
        let (journal, opened) = target.open();
        assert_eq!((opened.last, opened.created, opened.torn), (Lsn(50), false, None));
        journal.append_wait(batch(51, 52)).unwrap();
        assert_eq!(all(&journal, 0).len(), 52);
    }
    let replaced = Reader::open(&home.file("journal.replaced/journal.db")).unwrap();
    assert_eq!(replaced.last().unwrap().0, Lsn(60), "what was there is kept");
}

#[test]
fn a_restored_home_is_not_mixed_with_the_old_log() {
    let (source, home) = (Home::new(), Home::new());
    let (journal, _) = source.open();
    journal.append_wait(batch(1, 50)).unwrap();
    journal.backup(&home.file("copy.db")).unwrap();
    journal.append_wait(batch(51, 60)).unwrap();
    // As after a kill: the log still holds everything.
    for name in ["journal.db", "journal.db-wal", "journal.head"] {
        fs::copy(source.file(name), home.file(name)).unwrap();
    }
    restore(&home.file("copy.db"), &home.db()).unwrap();
    assert_eq!(home.open().1.last, Lsn(50));
    assert_eq!(Reader::open(&home.file("journal.replaced/journal.db")).unwrap().last().unwrap().0, Lsn(60));
}

#[test]
fn what_is_no_sound_journal_is_not_put_in_place() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 50)).unwrap();
    journal.backup(&home.file("copy.db")).unwrap();
    journal.close().unwrap();
    fs::copy(home.file("copy.db"), home.file("changed.db")).unwrap();
    let changed = rusqlite::Connection::open(home.file("changed.db")).unwrap();
    changed
        .execute("UPDATE entry SET body = CAST(replace(body, 'line 33', 'line 34') AS BLOB) WHERE lsn = 33", [])
        .unwrap();
    drop(changed);
    fs::write(home.file("letter.db"), "Dear friend, ".repeat(500)).unwrap();
    let before = fs::read(home.db()).unwrap();
    for name in ["changed.db", "letter.db", "absent.db"] {
        let refused = restore(&home.file(name), &home.db());
        assert!(refused.is_err(), "{name}");
        assert_eq!(fs::read(home.db()).unwrap(), before, "{name}");
    }
    assert!(matches!(check_archive(&home.file("changed.db")), Err(Error::Corrupt { .. })));
    assert!(matches!(check_archive(&home.file("absent.db")), Err(Error::Missing { .. })));
    assert_eq!(home.open().1.last, Lsn(50));
}

#[test]
fn half_an_exchange_is_a_missing_journal_and_can_be_begun_again() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 50)).unwrap();
    journal.backup(&home.file("copy.db")).unwrap();
    journal.close().unwrap();
    let report = check_archive(&home.file("copy.db")).unwrap();
    for (target, aside) in [(home.db(), home.file("one")), (home.file("fresh/journal.db"), home.file("two"))] {
        fs::create_dir_all(&aside).unwrap();
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        // As where the power fails after the first step.
        Exchange::begin(&target).unwrap().set_aside(&aside, &report).unwrap();
        let refused = Journal::open(&target, OpenOptions::default());
        assert!(matches!(refused, Err(Error::Missing { expected: Some(Lsn(50)), .. })), "{refused:?}");
        assert_eq!(restore(&home.file("copy.db"), &target).unwrap().last, Lsn(50));
        assert_eq!(Journal::open(&target, OpenOptions::default()).unwrap().1.last, Lsn(50));
    }
}

#[test]
fn copies_are_private_and_any_database_can_be_copied_while_it_is_written() {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, 5)).unwrap();
    let other = rusqlite::Connection::open(home.file("other.db")).unwrap();
    other
        .execute_batch(
            "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (7); BEGIN; INSERT INTO t VALUES (8);",
        )
        .unwrap();
    copy_database(&home.file("other.db"), &home.file("copy.db")).unwrap();
    let copy = rusqlite::Connection::open(home.file("copy.db")).unwrap();
    let held: i64 = copy.query_row("SELECT sum(a) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(held, 7, "what was committed and nothing else");
    journal.backup(&home.file("journal-copy.db")).unwrap();
    for name in ["copy.db", "journal-copy.db"] {
        assert_eq!(fs::metadata(home.file(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    fs::write(home.file("letter.db"), "Dear friend, ".repeat(500)).unwrap();
    assert!(copy_database(&home.file("letter.db"), &home.file("never.db")).is_err());
}

/// `unable to open database file`: the log that a database needs beside it cannot be made there.
#[test]
fn what_lies_where_nothing_can_be_written_is_copied_elsewhere() {
    let (home, elsewhere) = (Home::new(), Home::new());
    // No name of a file that is taken for something else.
    let folder = home.file("a home? 100%#1");
    fs::create_dir(&folder).unwrap();
    let (journal, _) = Journal::open(&folder.join("journal.db"), OpenOptions::default()).unwrap();
    journal.append_wait(batch(1, 50)).unwrap();
    journal.close().unwrap();
    let other = rusqlite::Connection::open(folder.join("other.db")).unwrap();
    other.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (7);").unwrap();
    drop(other);
    for log in ["journal.db-wal", "other.db-wal"] {
        assert!(!folder.join(log).exists(), "{log} is folded");
    }
    let run = |told: &str| {
        let program = elsewhere.file("this-test");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(home.folder.path(), 0o755);
        mode(elsewhere.folder.path(), 0o777);
        for file in fs::read_dir(&folder).unwrap() {
            mode(&file.unwrap().path(), 0o444);
        }
        mode(&folder, 0o555);
        let mut command = child::command_of(&program, "backup::child_copies_what_it_may_not_write", &folder);
        command.current_dir(elsewhere.folder.path());
        if fs::write(folder.join("probe"), "").is_ok() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        mode(&folder, 0o755);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(told), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    };
    run("copied: 50 entries");
    assert_eq!(check_archive(&elsewhere.file("journal.db")).unwrap().last, Lsn(50));
    // With a log that is not folded, what is in it would be left out.
    let other = rusqlite::Connection::open(folder.join("journal.db")).unwrap();
    other.execute("UPDATE entry SET at = at + 1 WHERE lsn = 50", []).unwrap();
    fs::copy(folder.join("journal.db-wal"), home.file("log")).unwrap();
    drop(other);
    fs::copy(home.file("log"), folder.join("journal.db-wal")).unwrap();
    run("refused: read-only");
}

#[test]
#[ignore = "run by the test above, as another user"]
fn child_copies_what_it_may_not_write() {
    let Some(folder) = child::folder() else { return };
    for copy in ["journal.db", "other.db"] {
        let _ = fs::remove_file(copy);
    }
    let copied = Reader::open(&folder.join("journal.db")).and_then(|reader| reader.backup(Path::new("journal.db")));
    match copied.and_then(|report| copy_database(&folder.join("other.db"), Path::new("other.db")).map(|()| report)) {
        Ok(report) => println!("copied: {} entries", report.entries),
        Err(Error::ReadOnly { .. }) => println!("refused: read-only"),
        Err(error) => println!("refused: {error:?}"),
    }
}
