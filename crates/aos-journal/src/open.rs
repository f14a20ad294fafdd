//! Opening: what is checked before the first append, and what each finding means.
//!
//! Start at [`Journal::open`]. Nothing here reads more than the end of the journal, so a million entries open as fast
//! as ten. In this order: the lock, the head file against the journal's existence, the file's marks, the chain of the
//! last entries, the head file against the last entry. The whole chain is for [`crate::Reader::verify`].

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

use aos_abi::{Lsn, Pid, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::{GENESIS, Hash};
use crate::head::{Found, Head, HeadFile};
use crate::journal::Journal;
use crate::lock::Lock;
use crate::named::Named;
use crate::row::{COLUMNS, Stored, corrupt, read_error};
use crate::trail::{self, Index};
use crate::writer::{Shared, Writer};
use crate::{Error, Reader, checkpoint, private, salvage, schema};

/// Entries at the end whose chain is checked at every start, and the bytes after which it is enough.
const TAIL_ENTRIES: u64 = 32;
const TAIL_BYTES: usize = 1 << 20;

/// How a journal is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Go on where acknowledged entries at the end are gone ([`Error::TornTail`]), and where the file is damaged, from
    /// the last input that is whole; a person said so.
    pub accept_loss: bool,
    /// Most batches that wait for the writer; who appends beyond waits for room.
    pub queue: usize,
    /// Most database pages (4 KiB each): beyond, appends fail as on a full disk. `None` leaves it to the disk.
    pub pages_max: Option<u32>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { accept_loss: false, queue: 1024, pages_max: None }
    }
}

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The home had no journal, and has one now.
    pub created: bool,
    /// The last entry; [`Lsn::ZERO`] where there is none.
    pub last: Lsn,
    /// Its hash.
    pub hash: Hash,
    /// Its time. The next entry must not be earlier.
    pub last_at: Option<Timestamp>,
    /// The last checkpoint; [`Lsn::ZERO`] where there is none.
    pub checkpoint: Lsn,
    /// Acknowledged entries are gone, and `accept_loss` was given.
    pub torn: Option<Torn>,
    /// The highest pid that the home is known to have had an entry of, one that is lost included; pruned entries aside.
    pub last_pid: Pid,
    /// The file was damaged and `accept_loss` was given: what was whole of it is the journal now, and this is the damaged
    /// one.
    pub damaged: Option<PathBuf>,
    /// The head file did not read and was written anew: a loss at the end could not have been seen this time.
    pub head_unreadable: bool,
}

/// Acknowledged entries that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The last entry that is there.
    pub last_good: Lsn,
    /// The last entry that had been written.
    pub expected: Lsn,
}

/// The files of a journal at `path`, such as `journal.db`: `journal.lock`, `journal.head`, and SQLite's own.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) db: PathBuf,
    pub(crate) lock: PathBuf,
    pub(crate) head: PathBuf,
    /// Where a new file is made whole before it is renamed.
    pub(crate) new: PathBuf,
    pub(crate) wal: PathBuf,
    pub(crate) shm: PathBuf,
}

impl Files {
    pub(crate) fn of(path: &Path) -> Files {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        Files {
            db: path.to_owned(),
            lock: path.with_extension("lock"),
            head: path.with_extension("head"),
            new: beside(".new"),
            wal: beside("-wal"),
            shm: beside("-shm"),
        }
    }

    /// Renames a finished new file into place, durably.
    pub(crate) fn put_in_place(&self, new: &Path) -> Result<(), Error> {
        let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
        sync(new).map_err(|source| Error::io("sync", new, source))?;
        fs::rename(new, &self.db).map_err(|source| Error::io("rename", new, source))?;
        let folder = self.db.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync(folder).map_err(|source| Error::io("sync", folder, source))
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, source)),
        _ => Ok(()),
    }
}

pub(crate) fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(|source| Error::io("look at", path, source))
}

impl Journal {
    /// Opens the journal at `path` (such as `AOS_HOME/journal.db`), or makes it where the home never had one.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Missing`], [`Error::Corrupt`], [`Error::TornTail`], [`Error::Foreign`],
    /// [`Error::TooNew`], [`Error::ReadOnly`], [`Error::Full`]; in every case the journal is as it was.
    pub fn open(path: &Path, options: OpenOptions) -> Result<(Journal, Opened), Error> {
        let files = Files::of(path);
        let lock = Lock::take(&files.lock)?;
        let found = Head::read(&files.head)?;
        let created = !exists(path)?;
        if created {
            create(&files, found)?;
        }
        let salvaged = if options.accept_loss && !created { salvage::salvage(&files)? } else { None };
        for file in [&files.db, &files.wal, &files.shm, &files.head, &files.lock] {
            private::mend(file);
        }
        // A daemon that was killed may have left in its log what it had taken out.
        let remains = fs::metadata(&files.wal).is_ok_and(|wal| wal.len() > 0);
        let db = schema::open_writer(path)?;
        if let Some(pages) = options.pages_max {
            db.query_row(&format!("PRAGMA max_page_count={pages}"), [], |_| Ok(()))
                .map_err(|source| Error::sqlite("limit the journal", path, source))?;
        }
        let named = Named::of(path)?;
        let (mut last, last_at) = read_tail(&db, path)?;
        let torn = compare(&db, path, found, last)?;
        if let Some(Torn { last_good, expected }) = torn.filter(|_| !options.accept_loss) {
            return Err(Error::TornTail { last_good, expected });
        }
        let checkpoint = checkpoint::position(&db).map_err(|source| read_error("read the checkpoint", path, source))?;
        let index = Index::read(&db).map_err(|source| read_error("read the trails", path, source))?;
        let there = trail::last_pid(&db).map_err(|source| read_error("read the trails", path, source))?;
        let lost = salvaged.as_ref().map_or(Pid::SYSTEM, |(_, pid)| *pid);
        last.pid = there.max(found.pid()).max(lost);
        let head_file = HeadFile::open(&files.head, last, found)?;

        let shared =
            Arc::new(Shared { last: AtomicU64::new(last.lsn.0), poison: OnceLock::new(), ..Shared::default() });
        let shares = Arc::clone(&shared);
        let writer = Writer {
            db,
            path: path.to_owned(),
            named: named.clone(),
            head_file,
            last,
            checkpoint,
            index,
            remains,
            shared: shares,
        };
        let (sender, queue) = sync_channel(options.queue.max(1));
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(&queue))
            .map_err(|source| Error::io("start the writer of", path, source))?;
        let opened = Opened {
            created,
            last: last.lsn,
            hash: last.hash,
            last_at,
            checkpoint,
            torn,
            last_pid: last.pid,
            damaged: salvaged.map(|(aside, _)| aside),
            head_unreadable: found == Found::Unreadable,
        };
        Ok((Journal::new(sender, thread, shared, Reader::new(path), named, lock), opened))
    }
}

/// What a daemon would find at its start, without opening the journal for writing; also while one writes it. The last
/// entry, or `None` where the home never had a journal.
///
/// # Errors
/// As [`Journal::open`], and [`Error::Corrupt`] where the saved state is not what was written.
pub fn look(path: &Path) -> Result<Option<Lsn>, Error> {
    let files = Files::of(path);
    // Before the journal, which only grows: a daemon may be writing both.
    let found = Head::read(&files.head)?;
    if !exists(path)? {
        return never_was(&files, found).map(|()| None);
    }
    let db = schema::open_reader(path)?;
    let (last, _) = read_tail(&db, path)?;
    if let Some(Torn { last_good, expected }) = compare(&db, path, found, last)? {
        return Err(Error::TornTail { last_good, expected });
    }
    checkpoint::globals(&db, path)?;
    Ok(Some(last.lsn))
}

/// Makes a new journal, but only where there has never been one.
fn create(files: &Files, found: Found) -> Result<(), Error> {
    never_was(files, found)?;
    remove(&files.new)?;
    schema::create(&files.new)?;
    files.put_in_place(&files.new)
}

/// Whether there has never been a journal, where none is.
fn never_was(files: &Files, found: Found) -> Result<(), Error> {
    let missing = |expected| Err(Error::Missing { path: files.db.clone(), expected });
    match found {
        Found::Head(head) => missing(Some(head.lsn)),
        Found::Unreadable => missing(None),
        // A log without its file: the file was taken away.
        Found::Nothing if exists(&files.wal)? => missing(None),
        Found::Nothing => Ok(()),
    }
}

/// The last entry, after the chain over the last few was found whole.
fn read_tail(db: &Connection, path: &Path) -> Result<(Head, Option<Timestamp>), Error> {
    let fail = |source| read_error("read the end of the journal", path, source);
    let mut statement =
        db.prepare(&format!("SELECT {COLUMNS} FROM entry ORDER BY lsn DESC LIMIT {TAIL_ENTRIES}")).map_err(fail)?;
    let mut rows = statement.query([]).map_err(fail)?;
    let mut tail: Vec<Stored> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(fail)? {
        let entry = Stored::read(row).map_err(fail)?;
        bytes += entry.body.len();
        tail.push(entry);
        // Two at least, or there is no link to check.
        if bytes > TAIL_BYTES && tail.len() > 1 {
            break;
        }
    }
    for pair in tail.windows(2) {
        let [later, earlier] = pair else { continue };
        // Between them may lie pruned entries; those are for the full verification.
        if later.lsn == earlier.lsn.next() && later.link(&earlier.hash) != later.hash {
            return Err(corrupt(later.lsn, "its hash does not follow from the entry before".into()));
        }
    }
    let first = tail.last().filter(|entry| entry.lsn == Lsn(1));
    if let Some(first) = first.filter(|first| first.link(&GENESIS) != first.hash) {
        return Err(corrupt(first.lsn, "its hash does not begin the chain".into()));
    }
    Ok(tail.first().map_or((Head { lsn: Lsn::ZERO, hash: GENESIS, pid: Pid::SYSTEM }, None), |last| {
        (Head { lsn: last.lsn, hash: last.hash, pid: last.pid }, Some(last.at))
    }))
}

/// The head file against what is there.
fn compare(db: &Connection, path: &Path, found: Found, last: Head) -> Result<Option<Torn>, Error> {
    let Found::Head(head) = found else { return Ok(None) };
    if head.lsn > last.lsn {
        return Ok(Some(Torn { last_good: last.lsn, expected: head.lsn }));
    }
    if head.lsn == Lsn::ZERO {
        return Ok(None);
    }
    let hash = |table: &str, column: &str| {
        db.query_row(&format!("SELECT {column} FROM {table} WHERE lsn = ?1"), [head.lsn.0], |row| row.get::<_, Hash>(0))
            .optional()
            .map_err(|source| read_error("compare the head file", path, source))
    };
    match hash("entry", "hash")? {
        Some(hash) if hash == head.hash => Ok(None),
        Some(_) => {
            Err(corrupt(head.lsn, "it is not the entry that the head file names: the file was exchanged".into()))
        }
        None if hash("sealed", "digest")?.is_some() => Ok(None),
        None => Err(corrupt(head.lsn, "it is missing".into())),
    }
}
