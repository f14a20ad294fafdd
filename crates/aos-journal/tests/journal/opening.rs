//! Opening: what each kind of damage is called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use aos_abi::{Lsn, Pid, Timestamp};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions, Opened, Place, Reader};

use crate::child;
use crate::sample::{Home, all, batch};

fn home_with(entries: u64) -> Home {
    let home = Home::new();
    let (journal, _) = home.open();
    journal.append_wait(batch(1, entries)).unwrap();
    journal.close().unwrap();
    home
}

fn refused(home: &Home) -> Error {
    Journal::open(&home.db(), OpenOptions::default()).expect_err("it must not open")
}

#[test]
fn says_what_it_found() {
    let home = Home::new();
    let (journal, opened) = home.open();
    let nothing = Opened {
        created: true,
        last: Lsn::ZERO,
        hash: [0; 32],
        last_at: None,
        checkpoint: Lsn::ZERO,
        torn: None,
        last_pid: Pid::SYSTEM,
        damaged: None,
        head_unreadable: false,
    };
    assert_eq!(opened, nothing);
    journal.append_wait(batch(1, 9)).unwrap();
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(7), ..Checkpoint::default() }).unwrap();
    let hash = journal.reader().last().unwrap().1;
    drop(journal);
    let last_at = Some(Timestamp(1_795_305_600_009));
    let expected =
        Opened { created: false, last: Lsn(9), hash, last_at, checkpoint: Lsn(7), last_pid: Pid(4), ..nothing };
    assert_eq!(home.open().1, expected);
}

#[test]
fn a_second_daemon_is_told_who_has_the_home() {
    let home = home_with(3);
    let (journal, _) = home.open();
    let error = refused(&home);
    assert!(matches!(error, Error::Locked { os_pid: Some(pid) } if pid == std::process::id()), "{error:?}");
    drop(journal);
    home.open();
}

#[test]
fn a_journal_that_is_gone_is_missed() {
    let home = home_with(3);
    fs::remove_file(home.db()).unwrap();
    let error = refused(&home);
    assert!(matches!(error, Error::Missing { expected: Some(Lsn(3)), .. }), "{error:?}");
    assert!(!home.db().exists(), "no empty journal in its place");

    fs::write(home.file("journal.head"), "what").unwrap();
    assert!(matches!(refused(&home), Error::Missing { expected: None, .. }));
    fs::remove_file(home.file("journal.head")).unwrap();
    fs::write(home.file("journal.db-wal"), "log without its file").unwrap();
    assert!(matches!(refused(&home), Error::Missing { expected: None, .. }));
}

#[test]
fn a_journal_without_its_head_file_opens() {
    let home = home_with(3);
    fs::remove_file(home.file("journal.head")).unwrap();
    let (journal, opened) = home.open();
    assert_eq!((opened.last, opened.head_unreadable), (Lsn(3), false));
    drop(journal);
    fs::write(home.file("journal.head"), "aos-journal-head 1 torn").unwrap();
    let (journal, opened) = home.open();
    assert_eq!((opened.last, opened.head_unreadable), (Lsn(3), true));
    drop(journal);
    assert!(!home.open().1.head_unreadable, "it was written anew");
}

#[test]
fn an_interrupted_creation_is_done_again() {
    let home = Home::new();
    fs::write(home.file("journal.db.new"), "half a file").unwrap();
    assert!(home.open().1.created);
}

#[test]
fn an_exchanged_journal_is_noticed() {
    let (ours, theirs) = (home_with(3), Home::new());
    let (journal, _) = theirs.open();
    journal.append_wait((1..=5).map(|lsn| crate::sample::input(lsn, 9, "other")).collect()).unwrap();
    journal.close().unwrap();
    fs::copy(theirs.db(), ours.db()).unwrap();
    let error = refused(&ours);
    assert!(matches!(error, Error::Corrupt { at: Place::Entry(Lsn(3)), sound_upto: Some(Lsn(2)), .. }), "{error:?}");
}

#[test]
fn an_older_copy_is_a_torn_tail() {
    let home = home_with(3);
    fs::copy(home.db(), home.file("old")).unwrap();
    let (journal, _) = home.open();
    journal.append_wait(batch(4, 8)).unwrap();
    journal.close().unwrap();
    fs::copy(home.file("old"), home.db()).unwrap();
    let error = refused(&home);
    assert!(matches!(error, Error::TornTail { last_good: Lsn(3), expected: Lsn(8) }), "{error:?}");
    let found = Reader::open(&home.db()).unwrap().verify(|_, _| {}).unwrap();
    assert_eq!(found.faults.len(), 1, "verification compares with the head file too: {found:?}");
}

#[test]
fn a_file_of_something_else_is_left_alone() {
    let home = Home::new();
    let other = rusqlite::Connection::open(home.db()).unwrap();
    other.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    drop(other);
    let before = fs::read(home.db()).unwrap();
    assert!(matches!(refused(&home), Error::Foreign { .. }));
    assert!(matches!(Reader::open(&home.db()), Err(Error::Foreign { .. })));
    assert_eq!(fs::read(home.db()).unwrap(), before);
}

#[test]
fn a_newer_format_is_not_touched() {
    let home = home_with(3);
    rusqlite::Connection::open(home.db()).unwrap().pragma_update(None, "user_version", 2).unwrap();
    let error = refused(&home);
    assert!(matches!(error, Error::TooNew { found: 2, known: 1 }), "{error:?}");
}

#[test]
fn a_changed_entry_near_the_end_is_seen_at_the_start() {
    let home = home_with(100);
    let other = rusqlite::Connection::open(home.db()).unwrap();
    other.execute("UPDATE entry SET at = at + 1 WHERE lsn = 90", []).unwrap();
    drop(other);
    let error = refused(&home);
    assert!(matches!(error, Error::Corrupt { at: Place::Entry(Lsn(90)), sound_upto: Some(Lsn(89)), .. }), "{error:?}");
    assert!(error.hint().contains("entries up to 89 are sound"), "{}", error.hint());
}

#[test]
fn a_changed_checkpoint_is_an_error_and_no_wrong_state() {
    let home = home_with(9);
    let (journal, _) = home.open();
    let pages = vec![(Pid(2), b"two".to_vec()), (Pid(3), b"three".to_vec())];
    journal.checkpoint_wait(Checkpoint { lsn: Lsn(9), globals: b"all".into(), pages, removed: vec![] }).unwrap();
    let other = rusqlite::Connection::open(home.db()).unwrap();
    other.execute("UPDATE page SET state = x'746f6f' WHERE pid = 2", []).unwrap();
    let pages = journal.page_reader().unwrap();
    assert!(matches!(pages.load(Pid(2)), Err(Error::Corrupt { at: Place::Page(Pid(2)), .. })));
    assert_eq!(pages.load(Pid(3)).unwrap(), Some(b"three".to_vec()));
    assert_eq!(pages.all().filter(Result::is_err).count(), 1);
    other.execute("UPDATE checkpoint SET lsn = 8", []).unwrap();
    assert!(matches!(journal.load_globals(), Err(Error::Corrupt { at: Place::Globals, .. })));
    let faults = journal.reader().verify(|_, _| {}).unwrap().faults;
    assert_eq!(faults.iter().map(|fault| fault.at).collect::<Vec<_>>(), [Place::Globals, Place::Page(Pid(2))]);
}

#[test]
#[ignore = "a child process of the test below"]
fn child_opens_what_it_may_not_write() {
    let Some(folder) = child::folder() else { return };
    match Journal::open(&folder.join("journal.db"), OpenOptions::default()) {
        Err(Error::ReadOnly { path }) => println!("\nread-only: {}", path.display()),
        other => println!("\nunexpected: {:?}", other.map(|(_, opened)| opened)),
    }
}

/// As a user without rights, because root may write everywhere. With and without a lock file that could be written.
#[test]
fn a_home_that_cannot_be_written_is_named_so() {
    let home = home_with(3);
    let folder = home.folder.path();
    // The folder this was built in may be one's own, and the other user must be able to run it.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = elsewhere.path().join("this-test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for (file_mode, what) in [(0o444, "journal.lock"), (0o666, "journal.db")] {
        fs::set_permissions(home.file("journal.lock"), fs::Permissions::from_mode(file_mode)).unwrap();
        fs::set_permissions(home.db(), fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(home.file("journal.head"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
        let mut command = child::command_of(&program, "opening::child_opens_what_it_may_not_write", folder);
        command.current_dir(elsewhere.path());
        // SUDO-less test runs are already such a user.
        if fs::write(folder.join("probe"), "").is_ok() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("read-only:") && said.contains(what),
            "{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn every_error_has_a_way_out() {
    let path = std::path::PathBuf::from("journal.db");
    let errors = [
        Error::Locked { os_pid: Some(7) },
        Error::Missing { path: path.clone(), expected: Some(Lsn(4)) },
        Error::Foreign { path: path.clone(), detail: "a cake".into() },
        Error::TooNew { found: 2, known: 1 },
        Error::Corrupt { at: Place::Page(Pid(2)), detail: "a byte".into(), sound_upto: None },
        Error::TornTail { last_good: Lsn(3), expected: Lsn(8) },
        Error::Full,
        Error::ReadOnly { path: path.clone() },
        Error::OutOfOrder { expected: Lsn(1), found: Lsn(2) },
        Error::Exists { path },
        Error::Closed,
    ];
    for error in errors {
        let (message, hint) = (error.to_string(), error.hint());
        assert!(!hint.is_empty() && !hint.ends_with('.') && !message.ends_with('.'), "{message}: {hint}");
        assert!(!message.starts_with(char::is_uppercase), "{message}");
    }
}

/// The writer went on in a file without a name: all since then was gone when it was closed.
#[test]
fn a_journal_whose_name_another_file_takes_is_written_no_more_and_kept() {
    for replaced in [true, false] {
        let home = Home::new();
        let (journal, _) = home.open();
        journal.append_wait(batch(1, 20)).unwrap();
        assert!(journal.in_place().is_ok());
        let other = home.file("other.db");
        fs::write(&other, "another file").unwrap();
        if replaced {
            fs::rename(&other, home.db()).unwrap();
        } else {
            fs::remove_file(home.db()).unwrap();
        }
        let error = journal.in_place().unwrap_err();
        assert!(matches!(&error, Error::Replaced { kept: None, .. }), "{error:?}");
        let error = journal.append_wait(batch(21, 30)).unwrap_err();
        let Error::Replaced { kept: Some(kept), .. } = &error else { panic!("{error:?}") };
        assert!(error.hint().contains(&format!("mv {} {}", kept.display(), home.db().display())), "{}", error.hint());
        assert_eq!(journal.last(), Lsn(20), "nothing was acknowledged after it");
        assert!(matches!(journal.append_wait(vec![]), Err(Error::Replaced { .. })));
        let kept = kept.clone();
        drop(journal);
        refused(&home);
        fs::rename(&kept, home.db()).unwrap();
        let (journal, opened) = home.open();
        assert_eq!((opened.last, all(&journal, 0).len()), (Lsn(20), 20));
        journal.append_wait(batch(21, 30)).unwrap();
    }
}
