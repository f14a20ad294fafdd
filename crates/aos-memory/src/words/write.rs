//! Writing a version: the row, its place in the indexes, and the mark that the effect is done, in one transaction.

use std::collections::BTreeSet;

use aos_abi::{EffectId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{forget, rows};
use crate::segment;
use crate::{Error, Note};

/// Longest parts of a memory, in bytes. What is longer belongs into a file, and the memory says where.
const KEY_BYTES_MAX: usize = 512;
const VALUE_BYTES_MAX: usize = 64 << 10;
const NAMESPACE_BYTES_MAX: usize = 256;
const TAG_BYTES_MAX: usize = 64;
/// Most tags, and most labels.
const TAGS_MAX: usize = 32;
/// Versions of a key that are kept. Older ones are shown to nobody but a person who asks for them, and a state that is
/// written every minute would fill the disk with them; the journal has them too.
const VERSIONS_MAX: i64 = 16;
/// Expired versions that a write sweeps away beside its own work.
const SWEPT_MAX: i64 = 64;
/// Effects are remembered as done for so many journal entries; one that is issued again after a crash is far younger.
const DONE_ENTRIES: i64 = 1_000_000;

pub(super) fn write(connection: &mut Connection, note: &Note, now: Timestamp) -> Result<String, Error> {
    let key = note.key.trim();
    check(note, key)?;
    let request = serde_json::json!(["write", note.namespace, key, note.value]).to_string();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(id) = answered(&transaction, note.effect, &request)? {
        return Ok(rows::shown(id));
    }
    let namespace = namespace(&transaction, &note.namespace)?;
    let version = supersede(&transaction, namespace, key)?;
    let expires_at = note.ttl_s.map(|seconds| now.plus_millis(seconds.saturating_mul(1000)).0);
    transaction
        .prepare_cached(
            "INSERT INTO memory (namespace, key, version, newest, value, tags, labels, at, expires_at, pid, lsn)
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            namespace,
            key,
            version,
            note.value,
            json(&note.tags),
            json(&note.labels),
            now.0,
            expires_at,
            note.source.pid.0.cast_signed(),
            note.source.lsn.0.cast_signed(),
        ])?;
    let id = transaction.last_insert_rowid();
    index(&transaction, id, namespace, key, note)?;
    answer(&transaction, note.effect, &request, id)?;
    forget::sweep(&transaction, now, SWEPT_MAX)?;
    transaction.commit()?;
    Ok(rows::shown(id))
}

fn check(note: &Note, key: &str) -> Result<(), Error> {
    let bound = |what: &str, bytes: usize, most: usize| {
        if bytes > most {
            return Err(Error::Invalid(format!("the {what} has {bytes} bytes, the most is {most}")));
        }
        Ok(())
    };
    if key.is_empty() {
        return Err(Error::Invalid("the key is empty".into()));
    }
    if note.namespace.is_empty() {
        return Err(Error::Invalid("the namespace is empty".into()));
    }
    if note.ttl_s == Some(0) {
        return Err(Error::Invalid("ttl_s is 0, so it would be gone at once".into()));
    }
    bound("key", key.len(), KEY_BYTES_MAX)?;
    bound("value", note.value.len(), VALUE_BYTES_MAX)?;
    bound("namespace", note.namespace.len(), NAMESPACE_BYTES_MAX)?;
    for tags in [&note.tags, &note.labels] {
        if tags.len() > TAGS_MAX {
            return Err(Error::Invalid(format!("there are {} tags, the most is {TAGS_MAX}", tags.len())));
        }
        tags.iter().try_for_each(|tag| bound("tag", tag.len(), TAG_BYTES_MAX))?;
    }
    Ok(())
}

fn namespace(transaction: &Transaction<'_>, name: &str) -> Result<i64, Error> {
    match rows::namespace(transaction, name)? {
        Some(id) => Ok(id),
        None => {
            transaction.execute("INSERT INTO namespace (name) VALUES (?1)", [name])?;
            Ok(transaction.last_insert_rowid())
        }
    }
}

/// Takes the key's newest version out of the indexes, and says the number of the next. The oldest ones go.
fn supersede(transaction: &Transaction<'_>, namespace: i64, key: &str) -> Result<i64, Error> {
    let newest = transaction
        .prepare_cached(
            "SELECT id, version FROM memory WHERE namespace = ?1 AND key = ?2 ORDER BY version DESC LIMIT 1",
        )?
        .query_row(params![namespace, key], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    let Some((id, version)) = newest else { return Ok(1) };
    unindex(transaction, id)?;
    transaction.prepare_cached("UPDATE memory SET newest = 0 WHERE id = ?1")?.execute([id])?;
    transaction
        .prepare_cached("DELETE FROM memory WHERE namespace = ?1 AND key = ?2 AND version <= ?3")?
        .execute(params![namespace, key, version + 1 - VERSIONS_MAX])?;
    Ok(version + 1)
}

fn index(transaction: &Transaction<'_>, id: i64, namespace: i64, key: &str, note: &Note) -> Result<(), Error> {
    let token = namespace_token(namespace);
    let tags = note.tags.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    transaction
        .prepare_cached("INSERT INTO words (rowid, ns, key, tags, value) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![id, token, segment::indexed(key), segment::indexed(&tags), segment::indexed(&note.value)])?;
    // Lines between the parts, so that nothing is found across them.
    let whole = segment::fold(&[key, &tags, &note.value].join("\n"));
    transaction
        .prepare_cached("INSERT INTO grams (rowid, ns, text) VALUES (?1, ?2, ?3)")?
        .execute(params![id, token, whole])?;
    Ok(())
}

/// Takes a version out of the indexes, where it is in them.
pub(super) fn unindex(transaction: &Transaction<'_>, id: i64) -> Result<(), Error> {
    transaction.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([id])?;
    transaction.prepare_cached("DELETE FROM grams WHERE rowid = ?1")?.execute([id])?;
    Ok(())
}

/// How a namespace is written in the indexes. None is a part of another.
pub(super) fn namespace_token(namespace: i64) -> String {
    format!("ns{namespace}x")
}

/// What this very request was answered, if the effect has been carried out before. An effect id with another request
/// comes from another journal (a restored one): that is a new effect.
pub(super) fn answered(transaction: &Transaction<'_>, effect: EffectId, request: &str) -> Result<Option<i64>, Error> {
    let mut statement =
        transaction.prepare_cached("SELECT answer FROM done WHERE cause = ?1 AND nth = ?2 AND request = ?3")?;
    Ok(statement
        .query_row(params![effect.cause.0.cast_signed(), effect.nth, digest(request)], |row| row.get(0))
        .optional()?)
}

/// Marks the effect as carried out.
pub(super) fn answer(transaction: &Transaction<'_>, effect: EffectId, request: &str, answer: i64) -> Result<(), Error> {
    let cause = effect.cause.0.cast_signed();
    transaction
        .prepare_cached("INSERT OR REPLACE INTO done (cause, nth, request, answer) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![cause, effect.nth, digest(request), answer])?;
    transaction.prepare_cached("DELETE FROM done WHERE cause < ?1")?.execute([cause.saturating_sub(DONE_ENTRIES)])?;
    Ok(())
}

/// A short stand-in for a request (FNV-1a, 64 bits): it tells two journals apart, it guards nothing, and forgotten text
/// must not stay in the table of what is done.
fn digest(request: &str) -> String {
    let hash = request
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

fn json(set: &BTreeSet<String>) -> String {
    serde_json::to_string(set).expect("a set of strings is plain data")
}
