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
    // The write-ahead log still holds the text; folding it into the file and emptying it ends that. A reader in the
    // middle of a search puts it off to the next time.
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    Ok(doomed.len() as u64)
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

/// Removes expired versions, each with the ones before it: an older fact must not come back when a newer one ends.
pub(super) fn sweep(transaction: &Transaction<'_>, now: Timestamp, most: i64) -> Result<u64, Error> {
    let mut statement = transaction.prepare_cached(
        "SELECT old.id FROM memory gone JOIN memory old
             ON old.namespace = gone.namespace AND old.key = gone.key AND old.version <= gone.version
         WHERE gone.expires_at IS NOT NULL AND gone.expires_at <= ?1 GROUP BY old.id LIMIT ?2",
    )?;
    let found = statement.query_map(params![now.0, most], |row| row.get(0))?;
    let mut doomed: Vec<i64> = found.collect::<Result<_, _>>()?;
    // Oldest first, so that a sweep cut short leaves no older version without the newer one that hides it.
    doomed.sort_unstable();
    remove(transaction, &doomed)?;
    Ok(doomed.len() as u64)
}
