//! Salvage: what is whole from the first entry on, taken out of a damaged file into a new one.
//!
//! Start at [`salvage`]. What always holds: a person asked for it; the damaged file is kept under another name; what is
//! taken over is a prefix of the chain, computed anew, of whole inputs with all that was decided from them. Saved states go along only
//! where they are whole and not of a later entry. Where entries of that prefix were pruned and no such state is left,
//! nothing could be rebuilt from the rest, and all stays as it is.

use std::fs;
use std::path::{Path, PathBuf};

use aos_abi::{Lsn, Pid};
use rusqlite::{Connection, OptionalExtension};

use crate::chain::Hash;
use crate::open::{Files, exists, remove};
use crate::row::{COLUMNS, Stored, read_error};
use crate::{Error, Place, Reader, Report, schema, trail};

/// The last entry up to which a journal is whole, where anything can be read of it.
pub(crate) fn sound_upto(path: &Path) -> Option<Lsn> {
    let walked =
        Reader::open(path).and_then(|reader| reader.verify_chain(None, || std::ops::ControlFlow::Continue(())));
    walked.ok().map(|report| report.sound_upto)
}

/// Takes what is whole of a damaged journal over into a new file under its name; the damaged one's new name and the highest
/// pid that it still shows ([`Pid::SYSTEM`] where its trails are what is damaged), or `None` where nothing but its end or a saved state is missing, which opening deals with.
///
/// # Errors
/// [`Error::Corrupt`] where too little is left to go on from; nothing was changed then.
pub(crate) fn salvage(files: &Files) -> Result<Option<(PathBuf, Pid)>, Error> {
    let reader = Reader::open(&files.db)?;
    let report = reader.verify(|_, _| {})?;
    let Some(damage) = damage(&report) else { return Ok(None) };
    let lost = || Error::Corrupt { at: damage.at, detail: damage.detail.clone(), sound_upto: None };
    let upto = match report.sound_upto {
        all if all == report.last => all,
        upto => before_the_last_input(&reader, upto)?,
    };
    if upto == Lsn::ZERO {
        return Err(lost());
    }
    remove(&files.new)?;
    schema::create(&files.new)?;
    let mut new = schema::open_writer(&files.new)?;
    let fail = |source| Error::sqlite("write what is whole of the journal", &files.new, source);
    let taken = new.transaction().map_err(fail)?;
    let pruned = copy_entries(&reader, &taken, &files.new, upto)?;
    // A page that cannot be read takes the whole of its kind with it: a state is whole or it is none.
    let saved = [SAVED, BARRIER].map(|kind| copy_states(&reader, &taken, &files.new, kind, upto));
    if pruned && !saved.into_iter().collect::<Result<Vec<_>, _>>()?.contains(&true) {
        return Err(lost());
    }
    taken.commit().map_err(fail)?;
    new.close().map_err(|(_, source)| fail(source))?;
    // The head file names it too, where that is whole.
    let last_pid = reader.with(|db| Ok(trail::last_pid(db).unwrap_or(Pid::SYSTEM)))?;
    drop(reader);
    exchange(files).map(|aside| Some((aside, last_pid)))
}

/// What is wrong with the file or its entries, rather than missing at its end or in a saved state.
fn damage(report: &Report) -> Option<&crate::Fault> {
    report.faults.iter().find(|fault| match fault.at {
        Place::File | Place::Sealed(_) => true,
        Place::Entry(lsn) => lsn <= report.last,
        Place::Page(_) | Place::Globals => false,
    })
}

/// The entry before the last input up to there. Of that input nobody knows whether all that was decided from it is whole,
/// and a replay decides all of it again.
fn before_the_last_input(reader: &Reader, upto: Lsn) -> Result<Lsn, Error> {
    reader.with(|db| {
        let read = |source| read_error("read the journal", reader.path(), source);
        let mut cause = db.prepare("SELECT cause FROM entry WHERE lsn = ?1").map_err(read)?;
        for lsn in (1..=upto.0).rev() {
            let found = cause.query_row([lsn], |row| row.get::<_, Option<u64>>(0)).optional().map_err(read)?;
            if found.is_some_and(|cause| cause.is_none_or(|cause| cause == 0)) {
                return Ok(Lsn(lsn - 1));
            }
        }
        Ok(Lsn::ZERO)
    })
}

/// Copies entries and seals up to `upto`, one by one, since their neighbours may not be readable; whether there were
/// seals.
fn copy_entries(reader: &Reader, to: &Connection, path: &Path, upto: Lsn) -> Result<bool, Error> {
    let write = |source| Error::sqlite("write what is whole of the journal", path, source);
    let mut entry = to
        .prepare("INSERT INTO entry(lsn, at, pid, cause, kind, hash, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
        .map_err(write)?;
    let mut seal = to.prepare("INSERT INTO sealed(lsn, pid, digest) VALUES (?1, ?2, ?3)").map_err(write)?;
    let mut pruned = false;
    reader.with(|db| {
        let read = |source| read_error("read the journal", reader.path(), source);
        let mut stored = db.prepare(&format!("SELECT {COLUMNS} FROM entry WHERE lsn = ?1")).map_err(read)?;
        let mut sealed = db.prepare("SELECT pid, digest FROM sealed WHERE lsn = ?1").map_err(read)?;
        for lsn in 1..=upto.0 {
            if let Some(row) = stored.query_row([lsn], Stored::read).optional().map_err(read)? {
                let cause = row.cause.map(|cause| cause.0);
                entry.execute((lsn, row.at.0, row.pid.0, cause, &row.kind, row.hash, &row.body)).map_err(write)?;
                continue;
            }
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, Hash>(1)?));
            let (pid, digest) = sealed.query_row([lsn], row).map_err(read)?;
            seal.execute((lsn, pid, digest)).map_err(write)?;
            pruned = true;
        }
        Ok(())
    })?;
    to.execute("INSERT INTO trail(pid, lsn) SELECT pid, lsn FROM entry ORDER BY pid, lsn", []).map_err(write)?;
    Ok(pruned)
}

/// A saved state: the table of what belongs to no process, its columns, and the table of its pages.
type Kind = (&'static str, &'static str, &'static str);
const SAVED: Kind = ("checkpoint", "only, lsn, digest, globals", "page");
const BARRIER: Kind = ("barrier", "only, lsn, version, digest, globals", "barrier_page");

/// Copies a saved state whole, where it can be read, is what was written and is of no entry after `upto`; whether it was.
fn copy_states(reader: &Reader, to: &Connection, path: &Path, kind: Kind, upto: Lsn) -> Result<bool, Error> {
    let (table, columns, pages) = kind;
    match reader.with(|db| whole_state(db, reader.path(), kind, upto)) {
        Ok(true) => {}
        Ok(false) | Err(Error::Corrupt { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    let write = |source| Error::sqlite("write what is whole of the journal", path, source);
    let copy = |table: &str, columns: &str| {
        reader.with(|db| {
            let read = |source| read_error("read a saved state", reader.path(), source);
            let places = (1..=columns.split(", ").count()).map(|nth| format!("?{nth}")).collect::<Vec<_>>().join(", ");
            let mut put = to.prepare(&format!("INSERT INTO {table}({columns}) VALUES ({places})")).map_err(write)?;
            let mut rows = db.prepare(&format!("SELECT {columns} FROM {table}")).map_err(read)?;
            let width = rows.column_count();
            let mut rows = rows.query([]).map_err(read)?;
            while let Some(row) = rows.next().map_err(read)? {
                let values: Vec<rusqlite::types::Value> =
                    (0..width).map(|nth| row.get(nth)).collect::<Result<_, _>>().map_err(read)?;
                put.execute(rusqlite::params_from_iter(values)).map_err(write)?;
            }
            Ok(())
        })
    };
    copy(table, columns)?;
    copy(pages, "pid, lsn, digest, state")?;
    Ok(true)
}

fn whole_state(db: &Connection, path: &Path, (table, _, pages): Kind, upto: Lsn) -> Result<bool, Error> {
    let read = |source| read_error("read a saved state", path, source);
    let found = db
        .query_row(&format!("SELECT lsn, digest, globals FROM {table}"), [], |row| {
            Ok((Lsn(row.get(0)?), row.get::<_, Hash>(1)?, row.get::<_, Vec<u8>>(2)?))
        })
        .optional()
        .map_err(read)?;
    let Some((lsn, digest, globals)) = found.filter(|(lsn, ..)| *lsn <= upto) else { return Ok(false) };
    crate::checkpoint::check(Place::Globals, lsn, Pid::SYSTEM, &digest, &globals)?;
    let pids = db
        .prepare(&format!("SELECT pid FROM {pages} ORDER BY pid"))
        .and_then(|mut pids| pids.query_map([], |row| row.get(0).map(Pid))?.collect::<Result<Vec<_>, _>>())
        .map_err(read)?;
    for pid in pids {
        crate::checkpoint::page(db, path, pages, pid)?;
    }
    Ok(true)
}

/// Names the damaged file anew and puts the new one in its place. In between the journal counts as missing, so a kill
/// there leaves both files, and no daemon that starts with half of them.
fn exchange(files: &Files) -> Result<PathBuf, Error> {
    let named = |nth: u32| {
        let mut name = files.db.as_os_str().to_owned();
        name.push(if nth == 1 { ".damaged".to_owned() } else { format!(".damaged.{nth}") });
        PathBuf::from(name)
    };
    let mut nth = 1;
    while exists(&named(nth))? {
        nth += 1;
    }
    let aside = named(nth);
    let rename = |from: &Path, to: &Path| fs::rename(from, to).map_err(|source| Error::io("rename", from, source));
    rename(&files.db, &aside)?;
    if exists(&files.wal)? {
        // Its log by the name that SQLite looks for beside it.
        rename(&files.wal, &Files::of(&aside).wal)?;
    }
    let new = Files::of(&files.new);
    for left in [&files.shm, &new.wal, &new.shm] {
        remove(left)?;
    }
    files.put_in_place(&files.new)?;
    Ok(aside)
}
