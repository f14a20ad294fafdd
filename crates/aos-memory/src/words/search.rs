//! Finding by words.
//!
//! Start at [`search`]. The score of a record is the share of the query that it answers: each term weighs more the rarer
//! it is in the namespace (the smoothed inverse document frequency), and counts wholly where the word itself is there,
//! less where only its beginning, its inside or its stem is. Four fifths of the score are that share; the last fifth is
//! scaled by the record's BM25 rank against the best one, which knows about length and repetition. BM25 alone would not
//! do: in a store of a few records it is near zero for every hit, and no threshold could be met.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aos_abi::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rows;
use super::write::namespace_token;
use crate::segment::{self, Term};
use crate::{Error, Hit, Record, Search};

/// Hits below this answer next to nothing of the query.
const SCORE_MIN: f64 = 0.1;
/// Most hits of one search.
const HITS_MAX: usize = 100;
/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 4096;
/// Records looked at per term, newest first: what is more common than that says nothing.
const ROWS_PER_TERM_MAX: i64 = 20_000;
/// Records ranked by BM25; the others rank last.
const RANKED_MAX: i64 = 200;
/// What a term that stands nowhere in the namespace weighs, where one that stands everywhere weighs 1.
const UNKNOWN_WEIGHT: f64 = 0.5;
/// How much a word counts by the way in which it is there.
const EXACT: f64 = 1.0;
const BEGINNING: f64 = 0.8;
const INSIDE: f64 = 0.6;
const STEM: f64 = 0.5;

pub(super) fn search(connection: &Connection, search: &Search, now: Timestamp) -> Result<Vec<Hit>, Error> {
    if search.query.len() > QUERY_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the query has {} bytes, the most is {QUERY_BYTES_MAX}",
            search.query.len()
        )));
    }
    let Some(namespace) = rows::namespace(connection, &search.namespace)? else { return Ok(Vec::new()) };
    let limit = search.limit.min(HITS_MAX);
    let query = search.query.trim();
    let terms = segment::terms(query);
    if terms.is_empty() {
        // No query at all, or one of signs alone (`++`, an emoji), which no word index holds.
        return plain(connection, namespace, query, search, limit, now);
    }
    let mut scored: Vec<(f64, i64)> =
        scores(connection, namespace, &terms)?.into_iter().map(|(id, s)| (s, id)).collect();
    // Best first; of equal ones the newest.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let mut hits = Vec::new();
    for (score, id) in scored.into_iter().take_while(|(score, _)| *score >= SCORE_MIN) {
        if hits.len() == limit {
            break;
        }
        if let Some(record) = fetch(connection, namespace, id, search, now)? {
            hits.push(Hit { record, score: (score * 1000.0).round() / 1000.0 });
        }
    }
    Ok(hits)
}

/// The scores of all records that any term is in.
fn scores(connection: &Connection, namespace: i64, terms: &BTreeSet<Term>) -> Result<HashMap<i64, f64>, Error> {
    let token = namespace_token(namespace);
    let total: i64 = connection
        .prepare_cached("SELECT count(*) FROM memory WHERE namespace = ?1 AND newest")?
        .query_row([namespace], |row| row.get(0))?;
    let mut share: HashMap<i64, f64> = HashMap::new();
    let mut whole = 0.0;
    for term in terms {
        let found = occurrences(connection, &token, term)?;
        let weight = if found.is_empty() {
            UNKNOWN_WEIGHT
        } else {
            1.0 + ((total as f64 + 1.0) / (found.len() as f64 + 1.0)).ln().max(0.0)
        };
        whole += weight;
        for (id, how) in found {
            *share.entry(id).or_default() += weight * how;
        }
    }
    let ranks = ranks(connection, &token, terms)?;
    for (id, share) in &mut share {
        *share = *share / whole * (0.8 + 0.2 * ranks.get(id).copied().unwrap_or(0.0));
    }
    Ok(share)
}

/// The records that a term is in, and how well.
fn occurrences(connection: &Connection, token: &str, term: &Term) -> Result<BTreeMap<i64, f64>, Error> {
    let mut found = BTreeMap::new();
    let mut add = |ids: Vec<i64>, how: f64| {
        for id in ids {
            found.entry(id).or_insert(how);
        }
    };
    match term {
        Term::Pair(pair) => add(matching(connection, WORDS, token, &quoted(pair))?, EXACT),
        Term::Single(character) => {
            add(matching(connection, WORDS, token, &format!("{}*", quoted(character)))?, EXACT);
        }
        Term::Word(word) => {
            add(matching(connection, WORDS, token, &quoted(word))?, EXACT);
            let length = word.chars().count();
            if length >= 3 {
                add(matching(connection, WORDS, token, &format!("{}*", quoted(word)))?, BEGINNING);
                add(matching(connection, GRAMS, token, &quoted(word))?, INSIDE);
            }
            // Endings differ between a question and an answer in most languages; without a dictionary, the last letter
            // or two of a long word are let go.
            let stem: String = word.chars().take((length - length.min(2)).max(4)).collect();
            if length >= 5 {
                add(matching(connection, WORDS, token, &format!("{}*", quoted(&stem)))?, STEM);
            }
        }
    }
    Ok(found)
}

/// An index and its columns that hold text.
type Index = (&'static str, &'static str);
const WORDS: Index = ("words", "{key tags value}");
const GRAMS: Index = ("grams", "text");

fn matching(connection: &Connection, index: Index, token: &str, what: &str) -> Result<Vec<i64>, Error> {
    let (table, columns) = index;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid FROM {table} WHERE {table} MATCH ?1 ORDER BY rowid DESC LIMIT {ROWS_PER_TERM_MAX}"
    ))?;
    let ids = statement.query_map([format!("ns : {token} AND {columns} : ({what})")], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// BM25 of the best records against the best of all, 0 to 1. The key counts double, tags half as much again.
fn ranks(connection: &Connection, token: &str, terms: &BTreeSet<Term>) -> Result<HashMap<i64, f64>, Error> {
    let any: Vec<String> = terms
        .iter()
        .map(|term| match term {
            Term::Pair(text) => quoted(text),
            Term::Word(text) | Term::Single(text) => format!("{}*", quoted(text)),
        })
        .collect();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid, -bm25(words, 0.0, 2.0, 1.5, 1.0) AS score FROM words WHERE words MATCH ?1
         ORDER BY score DESC LIMIT {RANKED_MAX}"
    ))?;
    let expression = format!("ns : {token} AND {} : ({})", WORDS.1, any.join(" OR "));
    let rows = statement.query_map([expression], |row| Ok((row.get(0)?, row.get::<_, f64>(1)?)))?;
    let mut ranks: HashMap<i64, f64> = rows.collect::<Result<_, _>>()?;
    let best = ranks.values().copied().fold(f64::MIN_POSITIVE, f64::max);
    ranks.values_mut().for_each(|rank| *rank = (*rank / best).clamp(0.0, 1.0));
    Ok(ranks)
}

/// Text as one string of the query language, whatever it holds.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The record, where it passes the filters.
fn fetch(
    connection: &Connection,
    namespace: i64,
    id: i64,
    search: &Search,
    now: Timestamp,
) -> Result<Option<Record>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} {} WHERE m.id = ?1 AND m.namespace = ?2 AND m.newest AND m.at >= ?3
         AND (m.expires_at IS NULL OR m.expires_at > ?4)",
        rows::COLUMNS,
        rows::FROM
    ))?;
    let since = search.since.map_or(i64::MIN, |since| since.0);
    let record = statement.query_row(params![id, namespace, since, now.0], rows::record).optional()?;
    Ok(record.filter(|record| search.tags.is_subset(&record.tags)))
}

/// What holds the query as it is written, newest first.
fn plain(
    connection: &Connection,
    namespace: i64,
    query: &str,
    search: &Search,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Hit>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM memory WHERE namespace = ?1 AND newest
         AND (?2 = '' OR instr(key, ?2) OR instr(value, ?2) OR instr(tags, ?2)) ORDER BY id DESC",
    )?;
    let mut hits = Vec::new();
    for id in statement.query_map(params![namespace, query], |row| row.get(0))? {
        if hits.len() == limit {
            break;
        }
        if let Some(record) = fetch(connection, namespace, id?, search, now)? {
            hits.push(Hit { record, score: 1.0 });
        }
    }
    Ok(hits)
}
