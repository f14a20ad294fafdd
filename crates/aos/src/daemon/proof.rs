//! The proof of the journal beside the daemon: its whole chain of hashes, computed anew where nobody waits for it.
//!
//! Start at [`Proof::run`]. A start checks the journal's end and is ready; this walks the rest soon after, at the lowest
//! priority, in windows with pauses between them, and ends. What always holds: within a day of a walk from the first entry a
//! start goes on where the last one stopped, after that it begins anew; where something is found nothing is remembered, so
//! that each start finds it again. It only tells: whether to go on is for a person.
//!
//! Deliberately absent there: the database's own check and the saved states of processes. [`audit`] has them.

use std::ops::ControlFlow;
use std::path::PathBuf;
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
    altered: OnceLock<String>,
}

/// Up to where the chain was walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walked {
    /// When the walk from the first entry began, in seconds since 1970.
    began_s: u64,
    lsn: Lsn,
    hash: Hash,
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
        hint: report.sound().err().map(|error| error.hint()),
    })
}

impl Proof {
    /// Of this home's journal.
    pub(crate) fn new(reader: Reader, home: &Home) -> Arc<Proof> {
        Arc::new(Proof { reader, kept: home.run().join("proven"), altered: OnceLock::new() })
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
            let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            self.walk(now_s, &stop);
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
        let known = self.remembered().filter(fresh).filter(|walked| {
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
                let line = format!("{began_s} {} {}\n", report.last, hex(&report.hash));
                Home::write_private(&self.kept, &line).map_err(|error| error.to_string())
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

    /// What an earlier start has walked; nothing where that does not read as it was written.
    fn remembered(&self) -> Option<Walked> {
        let text = std::fs::read_to_string(&self.kept).ok()?;
        let mut words = text.split_whitespace();
        let mut next = || words.next();
        Some(Walked { began_s: next()?.parse().ok()?, lsn: Lsn(next()?.parse().ok()?), hash: unhex(next()?)? })
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
            let body = Body::Input { text: format!("needle-{lsn:03}"), eof: false, from_pid: Pid::INIT };
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

    fn walked(home: &Home, now_s: u64) -> (Option<String>, Option<Walked>) {
        let proof = Proof::new(Reader::open(&home.journal_file()).unwrap(), home);
        proof.walk(now_s, &CancellationToken::new());
        (proof.altered(), proof.remembered())
    }

    #[test]
    fn a_day_long_only_what_came_since_is_walked_and_then_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        write(&home, 1, 50);
        let (altered, first) = walked(&home, NOW_S);
        assert_eq!((altered, first.map(|walked| (walked.began_s, walked.lsn))), (None, Some((NOW_S, Lsn(50)))));
        write(&home, 51, 100);
        alter(&home, 10);
        let (altered, second) = walked(&home, NOW_S + 60);
        assert_eq!((altered, second.map(|walked| (walked.began_s, walked.lsn))), (None, Some((NOW_S, Lsn(100)))));
        let (altered, third) = walked(&home, NOW_S + DAY_S);
        assert!(altered.is_some_and(|fault| fault.starts_with("entry 10: ")), "all of it after a day");
        assert_eq!(third, None, "the next start finds it again");
        assert!(walked(&home, NOW_S + DAY_S + 1).0.is_some());
    }

    #[test]
    fn what_came_since_is_walked_from_what_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        write(&home, 1, 50);
        assert_eq!(walked(&home, NOW_S).0, None);
        write(&home, 51, 100);
        alter(&home, 60);
        assert!(walked(&home, NOW_S + 1).0.is_some_and(|fault| fault.starts_with("entry 60: ")));
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
            std::fs::write(home.run().join("proven"), format!("{began_s} {lsn} {}\n", hex(&hash))).unwrap();
            assert!(walked(&home, NOW_S).0.is_some(), "{began_s} {lsn}");
        }
    }

    #[test]
    fn a_stop_is_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        write(&home, 1, 50);
        let proof = Proof::new(Reader::open(&home.journal_file()).unwrap(), &home);
        let stop = CancellationToken::new();
        stop.cancel();
        proof.walk(NOW_S, &stop);
        assert_eq!(proof.altered(), None);
    }
}
