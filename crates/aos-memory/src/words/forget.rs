//! Forgetting, by wish and by expiry.

use aos_abi::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{rows, write};
use crate::{Error, Forget, What};

pub(super) fn forget(connection: &mut Connection, forget: &Forget) -> Result<u64, Error> {
    let (request, what) = match &forget.what {
        What::Id(id) => (serde_json::json!(["forget id", forget.namespace, id]).to_string(), format!("`{id}`")),
        What::Key(key) => (serde_json::json!(["forget key", forget.namespace, key]).to_string(), format!("`{key}`")),
    };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(count) = write::answered(&transaction, forget.effect, &request)? {
        return Ok(count.cast_unsigned());
    }
    let doomed = match rows::namespace(&transaction, &forget.namespace)? {
        None => Vec::new(),
        Some(namespace) => versions(&transaction, namespace, &forget.what)?,
    };
    if doomed.is_empty() {
        return Err(Error::NotFound { what });
    }
    remove(&transaction, &doomed)?;
    write::answer(&transaction, forget.effect, &request, i64::try_from(doomed.len()).unwrap_or(i64::MAX))?;
    transaction.commit()?;
    empty_log(connection);
    Ok(doomed.len() as u64)
}

/// Forgets all of a namespace.
pub(super) fn clear(connection: &mut Connection, name: &str) -> Result<u64, Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Some(namespace) = rows::namespace(&transaction, name)? else { return Ok(0) };
    let mut statement = transaction.prepare_cached("SELECT id FROM memory WHERE namespace = ?1")?;
    let doomed: Vec<i64> = statement.query_map([namespace], |row| row.get(0))?.collect::<Result<_, _>>()?;
    drop(statement);
    remove(&transaction, &doomed)?;
    transaction.execute("DELETE FROM namespace WHERE id = ?1", [namespace])?;
    transaction.commit()?;
    empty_log(connection);
    Ok(doomed.len() as u64)
}

/// The write-ahead log still holds the text; folding it into the file and emptying it ends that. A reader in the middle of
/// a search puts it off to the next time.
fn empty_log(connection: &Connection) {
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
}

fn versions(transaction: &Transaction<'_>, namespace: i64, what: &What) -> Result<Vec<i64>, Error> {
    let (key, upto) = match what {
        What::Key(key) => (key.trim().to_owned(), i64::MAX),
        What::Id(id) => {
            let named = transaction
                .query_row(
                    "SELECT key, version FROM memory WHERE id = ?1 AND namespace = ?2",
                    params![rows::row_id(id)?, namespace],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?;
            match named {
                Some(named) => named,
                None => return Ok(Vec::new()),
            }
        }
    };
    let mut statement = transaction
        .prepare_cached("SELECT id FROM memory WHERE namespace = ?1 AND key = ?2 AND version <= ?3 ORDER BY id")?;
    let found = statement.query_map(params![namespace, key, upto], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn remove(transaction: &Transaction<'_>, ids: &[i64]) -> Result<(), Error> {
    for id in ids {
        write::unindex(transaction, *id)?;
        transaction.prepare_cached("DELETE FROM memory WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

pub(super) fn expire(connection: &mut Connection, now: Timestamp, most: i64) -> Result<u64, Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let count = sweep(&transaction, now, most)?;
    transaction.commit()?;
    Ok(count)
}

/// Removes expired versions. Those before them stay as they are, superseded: an older fact must not come back when a newer
/// one ends, and who may write may not thereby forget what has no end.
pub(super) fn sweep(transaction: &Transaction<'_>, now: Timestamp, most: i64) -> Result<u64, Error> {
    let mut statement = transaction.prepare_cached(
        "SELECT id FROM memory WHERE expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY id LIMIT ?2",
    )?;
    let found = statement.query_map(params![now.0, most], |row| row.get(0))?;
    let doomed: Vec<i64> = found.collect::<Result<_, _>>()?;
    remove(transaction, &doomed)?;
    Ok(doomed.len() as u64)
}
