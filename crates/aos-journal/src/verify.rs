//! Verification: the whole chain, computed anew from the stored bytes.
//!
//! Start at [`Reader::verify`]. It reads window by window while the daemon goes on writing, needs memory for the
//! processes that were pruned and nothing else, and reports every break rather than stopping at the first: after one it
//! goes on from the hash that is stored, and where a page of the file cannot be read it goes round it, place by place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use aos_abi::{Body, Lsn, Pid};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::{self, GENESIS, Hash};
use crate::checkpoint::{self, PageReader};
use crate::head::{Found, Head};
use crate::open::Files;
use crate::row::{COLUMNS, Stored};
use crate::{Error, Place, Reader};

/// Positions of the chain that are read at one moment.
const WINDOW: u64 = 4096;
/// Most faults that are listed; what has more is lost as a whole.
const FAULTS_MAX: usize = 100;

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries that are there.
    pub entries: u64,
    /// Entries that were pruned and left their digest.
    pub sealed: u64,
    /// Marks of prunes.
    pub marks: u64,
    /// Saved states of processes.
    pub pages: u64,
    /// The last entry.
    pub last: Lsn,
    /// Its hash as computed: compare it with one kept elsewhere.
    pub hash: Hash,
    /// Every entry up to here is as it was written. A sealed one has no hash of its own, so the run it stands in is proven by
    /// the next entry that has one.
    pub sound_upto: Lsn,
    /// What is not as it was written; at most a hundred are listed.
    pub faults: Vec<Fault>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub at: Place,
    /// What.
    pub detail: String,
}

impl Report {
    /// Whether everything is as it was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    /// The report, or its first fault as an error.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the first fault.
    pub fn sound(self) -> Result<Report, Error> {
        let Some(fault) = self.faults.first() else { return Ok(self) };
        Err(Error::Corrupt { at: fault.at, detail: fault.detail.clone(), sound_upto: Some(self.sound_upto) })
    }

    fn fault(&mut self, at: Place, detail: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { at, detail: detail.into() });
        }
    }
}

/// One position of the chain, without the body, so that a window is small however long its bodies are.
enum Step {
    Entry {
        pid: Pid,
        digest: Hash,
        hash: Hash,
        mark: Option<Mark>,
    },
    Sealed {
        pid: Pid,
        digest: Hash,
    },
    /// The entry at this place is not found by its process.
    NoTrail,
    /// What is at these places, up to this one, lies on a page of the file that cannot be read.
    Unreadable {
        upto: Lsn,
    },
}

/// What a `pruned` entry says; `None` where it does not read as one.
type Mark = Option<(Vec<Pid>, u64)>;

impl Step {
    fn of(entry: Stored) -> Step {
        let (pid, digest, hash) = (entry.pid, entry.digest(), entry.hash);
        let mark = (entry.kind == "pruned").then(|| match entry.parse().map(|entry| entry.body) {
            Ok(Body::Pruned { pids, entries }) => Some((pids, entries)),
            _ => None,
        });
        Step::Entry { pid, digest, hash, mark }
    }

    /// Of a row that begins with its process and its digest.
    fn sealed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Step> {
        Ok(Step::Sealed { pid: Pid(row.get(0)?), digest: row.get(1)? })
    }
}

/// The chain as far as it was walked.
struct Walk {
    report: Report,
    at: Lsn,
    /// An entry was not as it was written, or not there.
    broken: bool,
    /// Something else than an entry could not be read, and was told of.
    unread: bool,
    /// `None` after a break over which no stored hash leads.
    hash: Option<Hash>,
    /// Sealed entries that no mark has named yet.
    unmarked: BTreeMap<Pid, u64>,
    /// What the chain must be at some entries, and who says so.
    expected: Vec<(Head, &'static str)>,
}

impl Reader {
    /// Computes the chain anew and compares. `progress` gets the position reached and the last one.
    ///
    /// # Errors
    /// Only where the file cannot be read; what is wrong in it stands in the report.
    pub fn verify(&self, progress: impl FnMut(Lsn, Lsn)) -> Result<Report, Error> {
        self.verify_against(None, progress)
    }

    /// The same; and the chain must have this hash at that entry, as a person kept it elsewhere.
    ///
    /// # Errors
    /// As [`Reader::verify`].
    pub fn verify_against(
        &self,
        kept: Option<(Lsn, Hash)>,
        mut progress: impl FnMut(Lsn, Lsn),
    ) -> Result<Report, Error> {
        let mut walk = self.walk_from(Head { lsn: Lsn::ZERO, hash: GENESIS, pid: Pid::SYSTEM })?;
        walk.expected.extend(kept.map(|(lsn, hash)| (Head { lsn, hash, pid: Pid::SYSTEM }, "you kept")));
        self.check_database(&mut walk.report)?;
        self.check_pages(&mut walk.report)?;
        let _ = self.walk(&mut walk, |at, end| {
            progress(at, end);
            ControlFlow::Continue(())
        })?;
        Ok(walk.finish())
    }

    /// Computes the chain alone, after an entry whose hash is known or from the first one, until `each`, which is asked
    /// after every few thousand entries, breaks. `last` and `hash` of the report say how far it came; `entries`, `sealed`
    /// and `marks` count from where it began.
    ///
    /// # Errors
    /// As [`Reader::verify`].
    pub fn verify_chain(
        &self,
        after: Option<(Lsn, Hash)>,
        mut each: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Report, Error> {
        let (lsn, hash) = after.unwrap_or((Lsn::ZERO, GENESIS));
        let mut walk = self.walk_from(Head { lsn, hash, pid: Pid::SYSTEM })?;
        Ok(match self.walk(&mut walk, |_, _| each())? {
            ControlFlow::Continue(()) => walk.finish(),
            ControlFlow::Break(()) => walk.so_far(),
        })
    }

    /// Whether this entry is there with this hash, as it is stored; of a pruned one that is not known any more.
    ///
    /// # Errors
    /// As for every read.
    pub fn holds(&self, lsn: Lsn, hash: &Hash) -> Result<bool, Error> {
        self.with(|db| {
            db.prepare_cached("SELECT 1 FROM entry WHERE lsn = ?1 AND hash = ?2")
                .and_then(|mut statement| statement.exists((lsn.0, hash)))
                .map_err(self.fail())
        })
    }

    /// A walk that has come to `start`.
    fn walk_from(&self, start: Head) -> Result<Walk, Error> {
        let expected = match Head::read(&Files::of(self.path()).head)? {
            Found::Head(head) => vec![(head, "the head file names")],
            Found::Nothing | Found::Unreadable => Vec::new(),
        };
        let (at, hash) = (start.lsn, Some(start.hash));
        let report = Report { sound_upto: at, ..Report::default() };
        Ok(Walk { report, at, broken: false, unread: false, hash, unmarked: BTreeMap::new(), expected })
    }

    /// Goes on to the end, or until `each` breaks.
    fn walk(
        &self,
        walk: &mut Walk,
        mut each: impl FnMut(Lsn, Lsn) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        loop {
            let window = (walk.at.next(), Lsn(walk.at.0 + WINDOW));
            let (steps, end) = match self.with(|db| read_window(db, window).map_err(self.fail())) {
                Err(Error::Corrupt { detail, .. }) => self.read_round(walk, window, &detail)?,
                read => read?,
            };
            if end <= walk.at {
                return Ok(ControlFlow::Continue(()));
            }
            for (lsn, step) in steps {
                walk.step(lsn, step);
            }
            // A window whose end is missing: the next window must not begin inside the gap it already reports.
            let upto = window.1.min(end);
            if walk.at < upto {
                walk.missing(upto);
            }
            if each(walk.at, end).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// The same as [`read_window`] where a page cannot be read: place by place, so that only what lies on that page is
    /// lost. The trails are left out; they are made from the entries.
    fn read_round(&self, walk: &mut Walk, (from, to): Window, why: &str) -> Result<(Vec<(Lsn, Step)>, Lsn), Error> {
        if !std::mem::replace(&mut walk.unread, true) {
            walk.report.fault(Place::File, why);
        }
        let read = |lsn: Lsn| self.with(|db| read_place(db, lsn).map_err(self.fail()));
        let end = match self.with(|db| read_end(db).map_err(self.fail())) {
            // Its last page is one of those. What was written is known from elsewhere, or the walk ends here.
            Err(Error::Corrupt { .. }) => walk.expected.iter().map(|(head, _)| head.lsn).max().unwrap_or(Lsn::ZERO),
            end => end?,
        };
        let mut steps: Vec<(Lsn, Step)> = Vec::new();
        for lsn in (from.0..=to.min(end).0).map(Lsn) {
            match read(lsn) {
                Ok(step) => steps.extend(step.map(|step| (lsn, step))),
                Err(Error::Corrupt { .. }) => match steps.last_mut() {
                    Some((_, Step::Unreadable { upto })) if upto.next() == lsn => *upto = lsn,
                    _ => steps.push((lsn, Step::Unreadable { upto: lsn })),
                },
                Err(other) => return Err(other),
            }
        }
        Ok((steps, end))
    }

    /// SQLite's own check: pages, order, and that the indexes say what the tables say.
    fn check_database(&self, report: &mut Report) -> Result<(), Error> {
        let lines = self.with(|db| {
            db.prepare("PRAGMA integrity_check(10)")
                .and_then(|mut statement| {
                    statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
                })
                .map_err(self.fail())
        });
        match lines {
            Ok(lines) => lines.into_iter().filter(|line| line != "ok").for_each(|line| report.fault(Place::File, line)),
            Err(Error::Corrupt { at, detail, .. }) => report.fault(at, detail),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn check_pages(&self, report: &mut Report) -> Result<(), Error> {
        let note = |report: &mut Report, error: Error| match error {
            Error::Corrupt { at, detail, .. } => {
                report.fault(at, detail);
                Ok(())
            }
            other => Err(other),
        };
        if let Err(error) = self.globals() {
            note(report, error)?;
        }
        let mut pages = 0;
        for page in PageReader::open(self.path())?.all() {
            pages += 1;
            if let Err(error) = page {
                note(report, error)?;
            }
        }
        report.pages = pages;
        let ends = self.with(|db| {
            let last = db.query_row("SELECT coalesce(max(lsn), 0) FROM entry", [], |row| row.get(0).map(Lsn));
            Ok((checkpoint::position(db).map_err(self.fail())?, last.map_err(self.fail())?))
        });
        match ends {
            Ok((position, last)) if position > last => {
                report.fault(
                    Place::Globals,
                    format!("the checkpoint is as of entry {position}, the last entry is {last}"),
                );
            }
            Ok(_) => {}
            Err(error) => note(report, error)?,
        }
        Ok(())
    }
}

/// The first and the last position of a window.
type Window = (Lsn, Lsn);

/// Both kinds of positions of a window, in order, and the last position that there is; all from one moment.
fn read_window(db: &Connection, (from, to): Window) -> rusqlite::Result<(Vec<(Lsn, Step)>, Lsn)> {
    let moment = db.unchecked_transaction()?;
    let mut steps = Vec::new();
    let mut entries =
        moment.prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn >= ?1 AND lsn <= ?2 ORDER BY lsn"))?;
    for entry in entries.query_map((from.0, to.0), Stored::read)? {
        let entry = entry?;
        steps.push((entry.lsn, Step::of(entry)));
    }
    let mut sealed = moment.prepare_cached("SELECT pid, digest, lsn FROM sealed WHERE lsn >= ?1 AND lsn <= ?2")?;
    for seal in sealed.query_map((from.0, to.0), |row| Ok((Lsn(row.get(2)?), Step::sealed(row)?)))? {
        steps.push(seal?);
    }
    let mut lost = moment.prepare_cached(
        "SELECT lsn FROM entry WHERE lsn >= ?1 AND lsn <= ?2
           AND NOT EXISTS (SELECT 1 FROM trail WHERE trail.pid = entry.pid AND trail.lsn = entry.lsn)
           AND NOT EXISTS (SELECT 1 FROM fresh WHERE fresh.lsn = entry.lsn AND fresh.pid = entry.pid)",
    )?;
    for lsn in lost.query_map((from.0, to.0), |row| row.get(0).map(Lsn))? {
        steps.push((lsn?, Step::NoTrail));
    }
    // Stable: where a position is in both tables the entry comes first and the seal is the fault.
    steps.sort_by_key(|(lsn, _)| *lsn);
    Ok((steps, read_end(&moment)?))
}

/// What is at one place, without its neighbours.
fn read_place(db: &Connection, lsn: Lsn) -> rusqlite::Result<Option<Step>> {
    let entry = db
        .prepare_cached(&format!("SELECT {COLUMNS} FROM entry WHERE lsn = ?1"))?
        .query_row([lsn.0], Stored::read)
        .optional()?;
    if let Some(entry) = entry {
        return Ok(Some(Step::of(entry)));
    }
    db.prepare_cached("SELECT pid, digest FROM sealed WHERE lsn = ?1")?.query_row([lsn.0], Step::sealed).optional()
}

/// The last position that there is.
fn read_end(db: &Connection) -> rusqlite::Result<Lsn> {
    db.prepare_cached(
        "SELECT max(coalesce((SELECT max(lsn) FROM entry), 0), coalesce((SELECT max(lsn) FROM sealed), 0))",
    )?
    .query_row([], |row| row.get(0).map(Lsn))
}

impl Walk {
    fn step(&mut self, lsn: Lsn, step: Step) {
        if let Step::NoTrail = step {
            self.report.fault(Place::Entry(lsn), "it is missing from its process's trail");
            return;
        }
        if lsn <= self.at {
            self.broken(Place::Sealed(lsn), "the place is taken twice, by an entry and by a seal");
            return;
        }
        if lsn != self.at.next() {
            self.missing(Lsn(lsn.0 - 1));
        }
        if let Step::Unreadable { upto } = step {
            self.gap(upto, "lies on a page of the file that cannot be read");
            return;
        }
        self.at = lsn;
        // A sealed one is proven where somebody knows what the chain must be there.
        let mut proven = matches!(step, Step::Entry { .. });
        match step {
            Step::Entry { pid, digest, hash, mark } => {
                self.report.entries += 1;
                if self.hash.is_some_and(|before| chain::link(&before, lsn, pid, &digest) != hash) {
                    self.broken(Place::Entry(lsn), self.does_not_follow(lsn));
                }
                self.hash = Some(hash);
                if let Some(mark) = mark {
                    self.mark(lsn, mark);
                }
            }
            Step::NoTrail | Step::Unreadable { .. } => {}
            Step::Sealed { pid, digest } => {
                self.report.sealed += 1;
                *self.unmarked.entry(pid).or_default() += 1;
                self.hash = self.hash.map(|before| chain::link(&before, lsn, pid, &digest));
            }
        }
        if let Some(hash) = self.hash {
            proven |= self.expected.iter().any(|(head, _)| (head.lsn, head.hash) == (lsn, hash));
            let others = self.expected.iter().filter(|(head, _)| head.lsn == lsn && head.hash != hash);
            for who in others.map(|(_, who)| *who).collect::<Vec<_>>() {
                self.broken(Place::Entry(lsn), format!("{who} another hash for it"));
            }
        }
        if !self.broken && proven {
            self.report.sound_upto = lsn;
        }
    }

    /// What is said of an entry whose hash is another than that of the chain.
    fn does_not_follow(&self, lsn: Lsn) -> String {
        let (proven, before) = (self.report.sound_upto, Lsn(lsn.0 - 1));
        let before = if self.broken || proven == before {
            "the entry before".into()
        } else if proven.next() == before {
            format!("the sealed entry {before}")
        } else {
            format!("the sealed entries {} to {before}", proven.next())
        };
        format!("its hash does not follow from its bytes and {before}")
    }

    /// A fault of the chain itself: nothing from there on is known to be what was written.
    fn broken(&mut self, at: Place, detail: impl Into<String>) {
        self.broken = true;
        self.report.fault(at, detail);
    }

    fn mark(&mut self, lsn: Lsn, mark: Mark) {
        self.report.marks += 1;
        let Some((pids, entries)) = mark else {
            self.report.fault(Place::Entry(lsn), "it is marked as a prune and does not read as one");
            return;
        };
        let sealed: u64 = pids.iter().filter_map(|pid| self.unmarked.remove(pid)).sum();
        if sealed > entries {
            let detail = format!("it says {entries} entries were pruned, but {sealed} are sealed");
            self.report.fault(Place::Entry(lsn), detail);
        }
    }

    fn missing(&mut self, upto: Lsn) {
        self.gap(upto, "is missing");
    }

    /// Nothing is known of what follows, up to there.
    fn gap(&mut self, upto: Lsn, what: &str) {
        let from = self.at.next();
        let all = if from == upto { String::new() } else { format!(", and so does all up to {upto}") };
        self.broken(Place::Entry(from), format!("it {what}{all}"));
        (self.at, self.hash) = (upto, None);
    }

    fn finish(mut self) -> Report {
        for (pid, count) in std::mem::take(&mut self.unmarked) {
            self.report.fault(Place::File, format!("{count} entries of process {pid} are sealed without a mark"));
        }
        // The head is read first, and entries only grow: what it names must be there.
        if let Some((head, _)) = self.expected.iter().find(|(head, _)| head.lsn > self.at) {
            let detail = format!("the journal ends at {}, but entry {} had been written", self.at, head.lsn);
            self.broken(Place::Entry(self.at.next()), detail);
        }
        self.so_far()
    }

    fn so_far(mut self) -> Report {
        self.report.last = self.at;
        self.report.hash = self.hash.unwrap_or(GENESIS);
        self.report
    }
}
