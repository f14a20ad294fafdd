//! The proof of the journal beside the daemon: its whole chain of hashes, computed anew where nobody waits for it.
//!
//! Start at [`Proof::run`]. A start checks the journal's end and is ready; this walks the rest soon after, at the lowest
//! priority, in windows with pauses between them, and ends. What always holds: within a day of a walk from the first entry a
//! start goes on where the last one stopped, if the file is as that daemon left it ([`Seal`]), after that it begins anew;
//! where something is found nothing is remembered, so that each start finds it again. It only tells: whether to go on is
//! for a person.
//!
//! Deliberately absent there: the database's own check and the saved states of processes. [`audit`] has them.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use aos_abi::Lsn;
use aos_abi::api::{AuditRequest, AuditView};
use aos_journal::chain::{hex, unhex};
use aos_journal::{Error, Hash, Reader};
use tokio_util::sync::CancellationToken;

use crate::home::Home;

/// So long after the start, which is over by then; a daemon that is up for one command does not begin at all.
const AFTER: Duration = Duration::from_secs(1);
/// How long a walk from the first entry counts, in seconds.
const DAY_S: u64 = 24 * 60 * 60;
/// A pause is so many times as long as the window before it, but no longer than the second.
const PAUSE_TIMES: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a stop is looked for in a pause.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is known of it.
pub(crate) struct Proof {
    reader: Reader,
    /// Where it is remembered what was walked.
    kept: PathBuf,
    seal: Seal,
    altered: OnceLock<String>,
}

/// How the file of a journal lay there when its daemon had stopped: a mark is worth nothing for a file that was written
/// since. A daemon that was killed seals nothing, so that the next walk begins at the first entry.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    journal: PathBuf,
    kept: PathBuf,
    /// What is remembered holds for the file as it is: it was untouched at the start, or was walked since.
    holds: Arc<AtomicBool>,
}

impl Seal {
    /// Looks at a journal that nobody has opened yet.
    pub(crate) fn of(home: &Home) -> Seal {
        let (journal, kept) = (home.journal_file(), home.proven_file());
        let sealed = sealed(&kept);
        let holds = sealed.is_some() && sealed == stamp(&journal);
        Seal { journal, kept, holds: Arc::new(AtomicBool::new(holds)) }
    }

    /// Seals it, once everybody has closed it.
    pub(crate) fn put(&self) {
        let line = std::fs::read_to_string(&self.kept).ok();
        let walked = line.as_deref().and_then(Walked::read).filter(|_| self.holds.load(Ordering::Relaxed));
        if let (Some(walked), Some(stamp)) = (walked, stamp(&self.journal)) {
            let line = format!("{} {stamp}\n", walked.line());
            if let Err(error) = Home::write_private(&self.kept, &line) {
                tracing::debug!(%error, "what was proven of the journal is not sealed");
            }
        }
    }
}

/// The stamp at the end of what is remembered.
fn sealed(kept: &Path) -> Option<String> {
    let text = std::fs::read_to_string(kept).ok()?;
    text.trim_end().splitn(4, ' ').nth(3).map(str::to_owned)
}

/// How a journal lies there; `None` where some of it is still beside it, since nobody has closed it in good order.
fn stamp(journal: &Path) -> Option<String> {
    let beside = journal.with_extension("db-wal");
    if std::fs::metadata(beside).is_ok_and(|beside| beside.len() > 0) {
        return None;
    }
    let found = std::fs::metadata(journal).ok()?;
    let (ino, len) = (found.ino(), found.len());
    let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
    Some(format!("{ino} {len} {}.{} {}.{}", times.0, times.1, times.2, times.3))
}

/// What a person is told of the proof of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    /// Up to which entry.
    pub(crate) upto: Lsn,
    /// How long ago the walk from the first one began, in seconds.
    pub(crate) age_s: u64,
    /// Whether the file is as its daemon left it. Nobody can say while one runs.
    pub(crate) untouched: bool,
}

/// How far the chain of a home's journal was walked; `None`: it was not, or something was found.
pub(crate) fn proven(home: &Home) -> Option<Proven> {
    let walked = Walked::read(&std::fs::read_to_string(home.proven_file()).ok()?)?;
    let untouched = Seal::of(home).holds.load(Ordering::Relaxed);
    Some(Proven { upto: walked.lsn, age_s: now_s().saturating_sub(walked.began_s), untouched })
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Up to where the chain was walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walked {
    /// When the walk from the first entry began, in seconds since 1970.
    began_s: u64,
    lsn: Lsn,
    hash: Hash,
}

impl Walked {
    /// Nothing where it does not read as it was written.
    fn read(text: &str) -> Option<Walked> {
        let mut words = text.split_whitespace();
        let mut next = || words.next();
        Some(Walked { began_s: next()?.parse().ok()?, lsn: Lsn(next()?.parse().ok()?), hash: unhex(next()?)? })
    }

    fn line(&self) -> String {
        format!("{} {} {}", self.began_s, self.lsn, hex(&self.hash))
    }
}

/// Proves all of a journal; also for whoever reads one that no daemon has open.
pub(crate) fn audit(reader: &Reader, request: &AuditRequest) -> Result<AuditView, Error> {
    let kept = request.expect.as_ref().and_then(|kept| Some((kept.lsn, unhex(&kept.hash)?)));
    let report = reader.verify_against(kept, |_, _| ())?;
    let fault = report.faults.first().map(|fault| format!("{}: {}", fault.at, fault.detail));
    Ok(AuditView {
        intact: report.is_sound(),
        entries: report.entries,
        last_lsn: report.last,
        head: hex(&report.hash),
        sound_upto: fault.is_some().then_some(report.sound_upto),
        fault,
        hint: report.sound().err().map(|error| error.hint_of_audit()),
    })
}

impl Proof {
    /// Of this home's journal.
    pub(crate) fn new(reader: Reader, home: &Home, seal: &Seal) -> Arc<Proof> {
        Arc::new(Proof { reader, kept: home.proven_file(), seal: seal.clone(), altered: OnceLock::new() })
    }

    /// The first place that is not as it was written, where one was found since the start.
    pub(crate) fn altered(&self) -> Option<String> {
        self.altered.get().cloned()
    }

    /// Waits until the start is over and walks, on a thread of its own, until the end or until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AFTER) => {}
        }
        let (done, ended) = tokio::sync::oneshot::channel::<()>();
        let walk = move || {
            // Of this thread alone, which nobody else uses; without it the pauses have to do.
            let _ = rustix::process::setpriority_process(None, 19);
            self.walk(now_s(), &stop);
            drop(done);
        };
        match std::thread::Builder::new().name("proof".into()).spawn(walk) {
            Ok(_) => drop(ended.await),
            Err(error) => tracing::warn!(%error, "the journal is not proven beside this daemon"),
        }
    }

    fn walk(&self, now_s: u64, stop: &CancellationToken) {
        let fresh = |walked: &Walked| walked.began_s <= now_s && now_s - walked.began_s < DAY_S;
        // Another chain may stand there: that of a backup, or one that went on after a loss.
        let untouched = self.seal.holds.load(Ordering::Relaxed);
        let known = self.remembered().filter(|_| untouched).filter(fresh).filter(|walked| {
            self.reader.holds(walked.lsn, &walked.hash).unwrap_or_else(|error| {
                tracing::debug!(%error, "what was proven of the journal cannot be compared");
                false
            })
        });
        let mut since = Instant::now();
        let walked = self.reader.verify_chain(known.map(|walked| (walked.lsn, walked.hash)), || {
            pause((since.elapsed() * PAUSE_TIMES).min(PAUSE_MAX), stop);
            since = Instant::now();
            if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let report = match walked {
            Ok(report) => report,
            Err(error) => return tracing::warn!(%error, "the journal could not be proven beside this daemon"),
        };
        let kept = match report.faults.first() {
            None => {
                let began_s = known.map_or(now_s, |walked| walked.began_s);
                let walked = Walked { began_s, lsn: report.last, hash: report.hash };
                let written = Home::write_private(&self.kept, &format!("{}\n", walked.line()));
                self.seal.holds.store(written.is_ok(), Ordering::Relaxed);
                written.map_err(|error| error.to_string())
            }
            Some(fault) => {
                let fault = format!("{}: {}", fault.at, fault.detail);
                tracing::error!("the journal was ALTERED: {fault}; `aos audit verify` proves all of it");
                let _ = self.altered.set(fault);
                match std::fs::remove_file(&self.kept) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
                    _ => Ok(()),
                }
            }
        };
        if let Err(error) = kept {
            tracing::debug!(%error, "what was proven of the journal is not remembered");
        }
    }

    /// What an earlier start has walked.
    fn remembered(&self) -> Option<Walked> {
        Walked::read(&std::fs::read_to_string(&self.kept).ok()?)
    }
}

/// Sleeps, but not past a stop.
fn pause(time: Duration, stop: &CancellationToken) {
    let until = Instant::now() + time;
    while !stop.is_cancelled() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::{Body, Entry, Pid, Timestamp};
    use aos_journal::{Journal, OpenOptions};

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    /// A home with entries up to `upto`.
    fn write(home: &Home, from: u64, upto: u64) {
        std::fs::create_dir_all(home.run()).unwrap();
        let (journal, _) = Journal::open(&home.journal_file(), OpenOptions::default()).unwrap();
        let entry = |lsn| {
            let body =
                Body::Input { text: format!("needle-{lsn:03}"), eof: false, from_pid: Pid::INIT, untrusted: false };
            Arc::new(Entry { lsn: Lsn(lsn), at: Timestamp(0), pid: Pid(2), cause: None, body })
        };
        journal.append_wait((from..=upto).map(entry).collect()).unwrap();
        journal.close().unwrap();
    }

    /// Alters one entry.
    fn alter(home: &Home, lsn: u64) {
        let needle = format!("needle-{lsn:03}");
        let mut bytes = std::fs::read(home.journal_file()).unwrap();
        let places: Vec<usize> =
            (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle.as_bytes())).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|at| bytes[at] ^= 2);
        std::fs::write(home.journal_file(), bytes).unwrap();
    }

    /// A daemon's life: it looks at the file, walks, stops, and seals it.
    fn walked(home: &Home, now_s: u64) -> (Option<String>, Option<Walked>) {
        let seal = Seal::of(home);
        let proof = Proof::new(Reader::open(&home.journal_file()).unwrap(), home, &seal);
        proof.walk(now_s, &CancellationToken::new());
        let told = (proof.altered(), proof.remembered());
        drop(proof);
        seal.put();
        told
    }

    /// The same of a daemon that appends entries.
    fn lived(home: &Home, now_s: u64, from: u64, upto: u64) -> (Option<String>, Option<Walked>) {
        let seal = Seal::of(home);
        write(home, from, upto);
        let proof = Proof::new(Reader::open(&home.journal_file()).unwrap(), home, &seal);
        proof.walk(now_s, &CancellationToken::new());
        let told = (proof.altered(), proof.remembered());
        drop(proof);
        seal.put();
        told
    }

    #[test]
    fn a_day_long_only_what_came_since_is_walked_and_then_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        let (altered, first) = lived(&home, NOW_S, 1, 50);
        assert_eq!((altered, first.map(|walked| (walked.began_s, walked.lsn))), (None, Some((NOW_S, Lsn(50)))));
        let (altered, second) = lived(&home, NOW_S + 60, 51, 100);
        assert_eq!(altered, None);
        assert_eq!(second.map(|walked| (walked.began_s, walked.lsn)), Some((NOW_S, Lsn(100))), "from where it was");
        let (_, third) = walked(&home, NOW_S + DAY_S);
        assert_eq!(third.map(|walked| walked.began_s), Some(NOW_S + DAY_S), "all of it after a day");
        assert_eq!(proven(&home).map(|proven| (proven.upto, proven.untouched)), Some((Lsn(100), true)));
    }

    /// The mark let each start of a day skip what was altered, and `aos doctor` said that there was no fault.
    #[test]
    fn what_is_altered_while_nobody_runs_is_found_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        assert_eq!(lived(&home, NOW_S, 1, 50).0, None);
        alter(&home, 10);
        assert_eq!(proven(&home).map(|proven| proven.untouched), Some(false), "a person is told so before");
        // A daemon that is up for one command walks nothing, and blesses nothing.
        let short = Seal::of(&home);
        write(&home, 51, 60);
        short.put();
        let (altered, kept) = walked(&home, NOW_S + 60);
        assert!(altered.is_some_and(|fault| fault.starts_with("entry 10: ")), "and not a day later");
        assert_eq!(kept, None, "the next start finds it again");
        assert!(walked(&home, NOW_S + 61).0.is_some());
    }

    #[test]
    fn a_daemon_that_was_killed_seals_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        assert_eq!(lived(&home, NOW_S, 1, 50).0, None);
        write(&home, 51, 60);
        let (_, again) = walked(&home, NOW_S + 60);
        assert_eq!(again.map(|walked| walked.began_s), Some(NOW_S + 60), "from the first entry on");
        // Where some of it lies beside the file still, nobody has closed it.
        std::fs::write(home.root().join("journal.db-wal"), "x").unwrap();
        assert_eq!(stamp(&home.journal_file()), None);
    }

    #[test]
    fn what_is_remembered_of_another_chain_or_of_the_future_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        write(&home, 1, 50);
        alter(&home, 10);
        let (_, hash) = Reader::open(&home.journal_file()).unwrap().last().unwrap();
        for (began_s, lsn, hash) in
            [(NOW_S, 50, [1; 32]), (NOW_S, 70, hash), (NOW_S + 9, 50, hash), (NOW_S - DAY_S, 50, hash)]
        {
            let sealed = format!("{began_s} {lsn} {} {}\n", hex(&hash), stamp(&home.journal_file()).unwrap());
            std::fs::write(home.proven_file(), sealed).unwrap();
            assert!(walked(&home, NOW_S).0.is_some(), "{began_s} {lsn}");
        }
    }

    #[test]
    fn a_stop_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        write(&home, 1, 50);
        let proof = Proof::new(Reader::open(&home.journal_file()).unwrap(), &home, &Seal::of(&home));
        let stop = CancellationToken::new();
        stop.cancel();
        proof.walk(NOW_S, &stop);
        assert_eq!(proof.altered(), None);
    }
}
