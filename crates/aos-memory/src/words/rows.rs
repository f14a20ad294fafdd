//! Rows of `memory` as records, and the plain reading of them.

use std::collections::BTreeSet;

use aos_abi::{Lsn, Pid, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{Error, Record, Source, Stats};

/// What [`record`] reads, in its order.
pub(super) const COLUMNS: &str =
    "m.id, n.name, m.key, m.value, m.tags, m.labels, m.version, m.at, m.expires_at, m.pid, m.lsn";
/// Whose rows they are.
pub(super) const FROM: &str = "FROM memory m JOIN namespace n ON n.id = m.namespace";
/// Most records of one page.
const PAGE_MAX: usize = 1000;

/// An id as it is shown.
pub(super) fn shown(id: i64) -> String {
    format!("m{id}")
}

/// The row that an id names.
pub(super) fn row_id(id: &str) -> Result<i64, Error> {
    id.strip_prefix('m')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Error::Id(id.escape_debug().to_string()))
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let set = |nth: usize| -> rusqlite::Result<BTreeSet<String>> {
        serde_json::from_str(row.get_ref(nth)?.as_str()?)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(nth, rusqlite::types::Type::Text, error.into()))
    };
    Ok(Record {
        id: shown(row.get(0)?),
        namespace: row.get(1)?,
        key: row.get(2)?,
        value: row.get(3)?,
        tags: set(4)?,
        labels: set(5)?,
        version: row.get(6)?,
        at: Timestamp(row.get(7)?),
        expires_at: row.get::<_, Option<i64>>(8)?.map(Timestamp),
        source: Source {
            pid: Pid(row.get::<_, i64>(9)?.cast_unsigned()),
            lsn: Lsn(row.get::<_, i64>(10)?.cast_unsigned()),
        },
    })
}

/// The namespace's number, where anything was ever written there.
pub(super) fn namespace(connection: &Connection, name: &str) -> Result<Option<i64>, Error> {
    let mut statement = connection.prepare_cached("SELECT id FROM namespace WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// All namespaces, also those of which nothing is left.
pub(super) fn namespaces(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare_cached("SELECT name FROM namespace")?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

pub(super) fn list(
    connection: &Connection,
    namespace: Option<&str>,
    before: Option<&str>,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Record>, Error> {
    let before = before.map_or(Ok(i64::MAX), row_id)?;
    let limit = i64::try_from(limit.min(PAGE_MAX)).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} {FROM} WHERE m.newest AND (?1 IS NULL OR n.name = ?1) AND m.id < ?2
         AND (m.expires_at IS NULL OR m.expires_at > ?3) ORDER BY m.id DESC LIMIT ?4"
    ))?;
    let rows = statement.query_map(params![namespace, before, now.0, limit], record)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn show(connection: &Connection, id: &str, now: Timestamp) -> Result<Vec<Record>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} {FROM} JOIN memory asked ON asked.namespace = m.namespace AND asked.key = m.key
         WHERE asked.id = ?1 AND (m.expires_at IS NULL OR m.expires_at > ?2) ORDER BY m.version DESC"
    ))?;
    let rows = statement.query_map(params![row_id(id)?, now.0], record)?;
    let versions: Vec<Record> = rows.collect::<Result<_, _>>()?;
    if versions.is_empty() {
        return Err(Error::NotFound { what: format!("`{id}`") });
    }
    Ok(versions)
}

pub(super) fn export(
    connection: &Connection,
    namespace: Option<&str>,
    after: Option<&str>,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Record>, Error> {
    let after = after.map_or(Ok(0), row_id)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} {FROM} WHERE (?1 IS NULL OR n.name = ?1) AND m.id > ?2
         AND (m.expires_at IS NULL OR m.expires_at > ?3) ORDER BY m.id LIMIT ?4"
    ))?;
    let rows = statement.query_map(params![namespace, after, now.0, limit], record)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn stats(connection: &Connection) -> Result<Stats, Error> {
    let mut stats = Stats {
        versions: connection.query_row("SELECT count(*) FROM memory", [], |row| row.get::<_, i64>(0))?.cast_unsigned(),
        ..Stats::default()
    };
    let sizes = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    stats.bytes = connection.query_row(sizes, [], |row| row.get::<_, i64>(0))?.cast_unsigned();
    let mut statement = connection.prepare_cached(
        "SELECT n.name, count(*) FROM memory m JOIN namespace n ON n.id = m.namespace WHERE m.newest GROUP BY n.id",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
    stats.namespaces = rows.collect::<Result<_, _>>()?;
    Ok(stats)
}
