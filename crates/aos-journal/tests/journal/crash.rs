//! Crashes: whatever was acknowledged is there afterwards, and nothing is there in half.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use aos_abi::{Lsn, Pid};
use aos_journal::{Checkpoint, Error, Journal, OpenOptions};

use crate::child;
use crate::sample::{Home, all, batch, entry, input};

const PAGES: u64 = 40;

/// Appends and checkpoints without end and prints what was acknowledged. Every page of a checkpoint says its position.
#[test]
#[ignore = "a child process of the test below"]
fn child_appends_until_it_is_killed() {
    let Some(folder) = child::folder() else { return };
    let (journal, opened) = Journal::open(&folder.join("journal.db"), OpenOptions::default()).unwrap();
    // No more than 32 batches under way: the callback gives the place back.
    let (take, give) = sync_channel::<()>(32);
    let give = Arc::new(std::sync::Mutex::new(give));
    let mut last = opened.last.0;
    for round in 0_u64.. {
        let (from, to) = (last + 1, last + 1 + round % 7);
        last = to;
        take.send(()).unwrap();
        let give_back = Arc::clone(&give);
        journal.append(batch(from, to), move |outcome| {
            outcome.unwrap();
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nack {to}").unwrap();
            out.flush().unwrap();
            give_back.lock().unwrap().recv().unwrap();
        });
        if round % 5 == 0 {
            let state = to.to_string().into_bytes();
            let pages = (2..2 + PAGES).map(|pid| (Pid(pid), state.clone())).collect();
            let checkpoint = Checkpoint { lsn: Lsn(to), globals: state, pages, removed: vec![] };
            journal.checkpoint(checkpoint, |outcome| outcome.unwrap());
        }
    }
}

#[test]
fn a_killed_daemon_loses_nothing_acknowledged() {
    let home = Home::new();
    let mut before = 0;
    for round in 0..12 {
        let mut child = child::command("crash::child_appends_until_it_is_killed", home.folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut acknowledged = before;
        let mut note = |line: String| match line.strip_prefix("ack ").map(str::parse::<u64>) {
            Some(Ok(lsn)) => acknowledged = lsn,
            _ => assert!(!line.contains("panicked"), "{line}"),
        };
        // Another moment in every round: after 1, 14, 27, … acknowledgements.
        lines.by_ref().filter(|line| line.starts_with("ack ")).take(1 + round * 13).for_each(&mut note);
        child.kill().unwrap();
        // What it still managed to say counts too; a last line without its end may be half a number.
        let mut rest: Vec<String> = lines.collect();
        rest.pop();
        rest.into_iter().for_each(&mut note);
        child.wait().unwrap();

        let (journal, opened) = home.open();
        assert!(acknowledged > before, "round {round}: the child did nothing");
        assert!(opened.last.0 >= acknowledged, "round {round}: {} acknowledged, {} there", acknowledged, opened.last);
        let report = journal.reader().verify(|_, _| {}).unwrap();
        assert_eq!((report.faults, report.entries), (vec![], opened.last.0), "round {round}");
        if let Some((lsn, state)) = journal.load_globals().unwrap() {
            assert_eq!(state, lsn.to_string().into_bytes());
            let pages: Vec<_> = journal.page_reader().unwrap().all().map(Result::unwrap).collect();
            assert_eq!(pages.len() as u64, PAGES);
            assert!(pages.iter().all(|(_, page)| *page == state), "round {round}: half a checkpoint");
        }
        before = opened.last.0;
    }
}

#[test]
fn a_full_disk_stops_the_journal_and_keeps_what_was_acknowledged() {
    let home = Home::new();
    let options = OpenOptions { pages_max: Some(60), ..OpenOptions::default() };
    let (journal, _) = Journal::open(&home.db(), options).unwrap();
    fill_until_full(&journal);
    let acknowledged = journal.last();
    drop(journal);

    let (mut journal, opened) = home.open();
    assert_eq!(opened.last, acknowledged);
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
    assert_eq!(all(&journal, 0).len() as u64, acknowledged.0);
    let next = acknowledged.0 + 1;
    aos_journal::Store::append(&mut journal, batch(next, next)).expect("there is room again");
}

/// Appends until the disk is full, and sees that it stays so.
fn fill_until_full(journal: &Journal) {
    let text = "x".repeat(3000);
    let refused = (journal.last().0 + 1..10_000).find_map(|lsn| journal.append_wait(vec![input(lsn, 2, &text)]).err());
    assert!(matches!(refused, Some(Error::Full)), "{refused:?}");
    let next = journal.last().0 + 1;
    let again = journal.append_wait(vec![entry(next, 0, aos_abi::Body::Tick)]);
    assert!(matches!(again, Err(Error::Full)), "after a failed commit nothing is taken: {again:?}");
    let saved = journal.checkpoint_wait(Checkpoint::default());
    assert!(matches!(saved, Err(Error::Full)), "{saved:?}");
    assert!(matches!(journal.failure(), Some(Error::Full)));
}

#[test]
#[ignore = "a child process of the test below"]
fn child_fills_a_small_disk() {
    let Some(folder) = child::folder() else { return };
    let (journal, _) = Journal::open(&folder.join("journal.db"), OpenOptions::default()).unwrap();
    fill_until_full(&journal);
    let acknowledged = journal.last();
    drop(journal);
    std::fs::remove_file(folder.join("ballast")).unwrap();
    let (journal, opened) = Journal::open(&folder.join("journal.db"), OpenOptions::default()).unwrap();
    assert_eq!(opened.last, acknowledged);
    assert!(journal.reader().verify(|_, _| {}).unwrap().is_sound());
    println!("\nfilled and mended at {acknowledged}");
}

/// A real file system that is really full: a small one in memory, mounted in a namespace of its own.
#[test]
fn a_really_full_disk_is_named_so() {
    let home = Home::new();
    let mut probe = std::process::Command::new("unshare");
    probe.args(["--user", "--map-root-user", "--mount", "true"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var("AOS_TEST_SANDBOX").as_deref() != Ok("required"),
            "this machine allows no mount namespace"
        );
        eprintln!("SKIPPED: this machine allows no mount namespace");
        return;
    }
    let child = child::command("crash::child_fills_a_small_disk", home.folder.path());
    let script = r#"mount -t tmpfs -o size=3m tmpfs "$AOS_JOURNAL_TEST_FOLDER" \
        && head -c 1000000 /dev/zero > "$AOS_JOURNAL_TEST_FOLDER/ballast" && exec "$@""#;
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("filled and mended at"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Everything queued before the handle goes is written.
#[test]
fn closing_writes_what_is_queued() {
    let home = Home::new();
    let (journal, _) = home.open();
    let answered = Arc::new(AtomicU64::new(0));
    for lsn in 1..=500 {
        let answered = Arc::clone(&answered);
        journal.append(batch(lsn, lsn), move |outcome| {
            outcome.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        });
    }
    journal.close().unwrap();
    assert_eq!(answered.load(Ordering::Relaxed), 500);
    assert_eq!(std::fs::metadata(home.file("journal.db-wal")).map_or(0, |log| log.len()), 0, "the log is folded in");
    assert_eq!(home.open().1.last, Lsn(500));
}
