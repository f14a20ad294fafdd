//! Finding by words.
//!
//! Start at [`search`]. The score of a record is the share of the query that it answers: each term weighs more the rarer
//! it is in the namespace (the smoothed inverse document frequency), and counts wholly where the word itself is there,
//! less where only its beginning, its inside or its stem is. Four fifths of the score are that share; the last fifth is
//! scaled by the record's BM25 rank against the best one, which knows about length and repetition. BM25 alone would not
//! do: in a store of a few records it is near zero for every hit, and no threshold could be met.
//!
//! What always holds: a search ends, whatever the records and the query hold. First all terms are looked for as words and
//! as beginnings of words; that and all else may take `TIME_MAX`, after which the search fails. The look inside words (of
//! `INSIDE_MAX` words, those first that stand in the fewest records) and the rank are left out where they would begin, or
//! go on, later than `REFINED_WITHIN` after the start. No term makes the index step through a record's positions more
//! than a few times: words are looked for by their beginning, and what stands inside words by the set of its trigrams.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

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
/// How long a search may take; a call that takes longer keeps its agent waiting and a core busy for nothing.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How long after its start a search may still look for more than words and beginnings.
const REFINED_WITHIN: Duration = Duration::from_secs(2);
/// Steps of the database between two looks at the clock. Reading a page of an index is a handful of them.
const STEPS: i32 = 100;
/// Letters of a word that are looked for. A word can be several tokens to the index, with marks that it does not count as
/// letters between them; the cost of their phrase is the product of their places.
const LETTERS_MAX: usize = 64;
/// Words that are looked for inside of others.
const INSIDE_MAX: usize = 8;
/// Different trigrams of a word by which the index finds records that may hold it.
const GRAMS_MAX: usize = 16;
/// What a term that stands nowhere in the namespace weighs, where one that stands everywhere weighs 1.
const UNKNOWN_WEIGHT: f64 = 0.5;
/// How much a word counts by the way in which it is there.
const EXACT: f64 = 1.0;
const BEGINNING: f64 = 0.8;
const INSIDE: f64 = 0.6;
const STEM: f64 = 0.5;
/// The columns of `words` that hold text.
const COLUMNS: &str = "{key tags value}";

pub(super) fn search(connection: &mut Connection, search: &Search, now: Timestamp) -> Result<Vec<Hit>, Error> {
    if search.query.len() > QUERY_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the query has {} bytes, the most is {QUERY_BYTES_MAX}",
            search.query.len()
        )));
    }
    let began = Instant::now();
    let (refined_until, until) = (began + REFINED_WITHIN, began + TIME_MAX);
    let query = search.query.trim();
    let terms = segment::terms(query);
    let Some(namespace) = rows::namespace(connection, &search.namespace)? else { return Ok(Vec::new()) };
    let token = namespace_token(namespace);
    let mut found = within(connection, until, |connection| {
        terms.iter().map(|term| Ok((term, occurrences(connection, &token, term)?))).collect::<Result<Vec<_>, Error>>()
    })?;
    let refined = within(connection, refined_until, |connection| {
        look_inside(connection, &token, &mut found)?;
        ranks(connection, &token, &terms)
    });
    let ranks = match refined {
        Err(Error::Slow) => HashMap::new(),
        refined => refined?,
    };
    within(connection, until, |connection| {
        let limit = search.limit.min(HITS_MAX);
        if terms.is_empty() {
            // No query at all, or one of signs alone (`++`, an emoji), which no word index holds.
            return plain(connection, namespace, query, search, limit, now);
        }
        let scores = scores(connection, namespace, found, &ranks)?;
        best(connection, namespace, scores, search, limit, now)
    })
}

/// Does something with the database that fails as too slow where it goes on past `until`.
fn within<T>(
    connection: &mut Connection,
    until: Instant,
    what: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    if Instant::now() >= until {
        return Err(Error::Slow);
    }
    connection.progress_handler(STEPS, Some(move || Instant::now() >= until))?;
    let done = what(connection);
    connection.progress_handler(0, None::<fn() -> bool>)?;
    done
}

/// The records with the best scores that pass the filters.
fn best(
    connection: &Connection,
    namespace: i64,
    scores: HashMap<i64, f64>,
    search: &Search,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Hit>, Error> {
    let mut scored: Vec<(f64, i64)> = scores.into_iter().map(|(id, score)| (score, id)).collect();
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

/// A term, and the records that it is in, and how well.
type Found<'a> = (&'a Term, BTreeMap<i64, f64>);

/// The scores of all records that any term is in.
fn scores(
    connection: &Connection,
    namespace: i64,
    found: Vec<Found<'_>>,
    ranks: &HashMap<i64, f64>,
) -> Result<HashMap<i64, f64>, Error> {
    let total: i64 = connection
        .prepare_cached("SELECT count(*) FROM memory WHERE namespace = ?1 AND newest")?
        .query_row([namespace], |row| row.get(0))?;
    let mut share: HashMap<i64, f64> = HashMap::new();
    let mut whole = 0.0;
    for (_, found) in found {
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
    for (id, share) in &mut share {
        *share = *share / whole * (0.8 + 0.2 * ranks.get(id).copied().unwrap_or(0.0));
    }
    Ok(share)
}

/// The records that a term is in as a word or as the beginning of one, and how well.
fn occurrences(connection: &Connection, token: &str, term: &Term) -> Result<BTreeMap<i64, f64>, Error> {
    let mut found = BTreeMap::new();
    let mut add = |what: &str, how: f64| -> Result<(), Error> {
        for id in words(connection, token, what)? {
            found.entry(id).or_insert(how);
        }
        Ok(())
    };
    match term {
        Term::Pair(pair) => add(&quoted(pair), EXACT)?,
        Term::Single(_) => add(&beginning(term), EXACT)?,
        Term::Word(word) => {
            let length = word.chars().count();
            add(&if length > LETTERS_MAX { beginning(term) } else { quoted(word) }, EXACT)?;
            if length >= 3 {
                add(&beginning(term), BEGINNING)?;
            }
            // Endings differ between a question and an answer in most languages; without a dictionary, the last letter
            // or two of a long word are let go.
            let stem: String = word.chars().take((length - length.min(2)).clamp(4, LETTERS_MAX)).collect();
            if length >= 5 {
                add(&format!("{}*", quoted(&stem)), STEM)?;
            }
        }
    }
    Ok(found)
}

/// Adds the records where words stand inside of others.
fn look_inside(connection: &Connection, token: &str, found: &mut [Found<'_>]) -> Result<(), Error> {
    let mut rarest: Vec<&mut Found<'_>> = found.iter_mut().collect();
    rarest.sort_by_key(|(_, found)| found.len());
    let words = rarest.into_iter().filter_map(|(term, found)| match term {
        Term::Word(word) => Some((word, grams(word)?, found)),
        Term::Pair(_) | Term::Single(_) => None,
    });
    for (word, grams, found) in words.take(INSIDE_MAX) {
        for id in inside(connection, token, &grams, word)? {
            let how = found.entry(id).or_insert(INSIDE);
            *how = how.max(INSIDE);
        }
    }
    Ok(())
}

/// What stands in every text that holds the word: its trigrams, in any order and each once, so that looking for them
/// passes each place of a text once. `None` for a word that has none.
fn grams(word: &str) -> Option<String> {
    let letters: Vec<char> = word.chars().collect();
    let mut seen = BTreeSet::new();
    let grams: Vec<String> = letters
        .windows(3)
        .filter(|gram| seen.insert(*gram))
        .take(GRAMS_MAX)
        .map(|gram| quoted(&gram.iter().collect::<String>()))
        .collect();
    (!grams.is_empty()).then(|| grams.join(" AND "))
}

/// The newest records with an expression in one of their columns.
fn words(connection: &Connection, token: &str, what: &str) -> Result<Vec<i64>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid FROM words WHERE words MATCH ?1 ORDER BY rowid DESC LIMIT {ROWS_PER_TERM_MAX}"
    ))?;
    let ids = statement.query_map([format!("ns : {token} AND {COLUMNS} : ({what})")], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// The newest records whose text has the trigrams and holds the word.
fn inside(connection: &Connection, token: &str, grams: &str, word: &str) -> Result<Vec<i64>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid FROM grams WHERE grams MATCH ?1 AND instr(text, ?2) ORDER BY rowid DESC LIMIT {ROWS_PER_TERM_MAX}"
    ))?;
    let ids = statement.query_map([format!("ns : {token} AND text : ({grams})"), word.to_owned()], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// BM25 of the best records against the best of all, 0 to 1. The key counts double, tags half as much again.
fn ranks(connection: &Connection, token: &str, terms: &BTreeSet<Term>) -> Result<HashMap<i64, f64>, Error> {
    let any: Vec<String> = terms
        .iter()
        .map(|term| match term {
            Term::Pair(text) => quoted(text),
            Term::Word(_) | Term::Single(_) => beginning(term),
        })
        .collect();
    if any.is_empty() {
        return Ok(HashMap::new());
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT rowid, -bm25(words, 0.0, 2.0, 1.5, 1.0) AS score FROM words WHERE words MATCH ?1
         ORDER BY score DESC LIMIT {RANKED_MAX}"
    ))?;
    let expression = format!("ns : {token} AND {COLUMNS} : ({})", any.join(" OR "));
    let rows = statement.query_map([expression], |row| Ok((row.get(0)?, row.get::<_, f64>(1)?)))?;
    let mut ranks: HashMap<i64, f64> = rows.collect::<Result<_, _>>()?;
    let best = ranks.values().copied().fold(f64::MIN_POSITIVE, f64::max);
    ranks.values_mut().for_each(|rank| *rank = (*rank / best).clamp(0.0, 1.0));
    Ok(ranks)
}

/// A term as the beginning of a word.
fn beginning(term: &Term) -> String {
    let (Term::Word(text) | Term::Pair(text) | Term::Single(text)) = term;
    format!("{}*", quoted(&text.chars().take(LETTERS_MAX).collect::<String>()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_looked_for_by_few_trigrams() {
        assert_eq!(grams("farbe").unwrap(), r#""far" AND "arb" AND "rbe""#);
        assert_eq!(grams(&"a".repeat(4096)).unwrap(), r#""aaa""#);
        assert_eq!(grams("ab"), None);
        let many: String = (0..1000).map(|nth| format!("{nth}")).collect();
        assert_eq!(grams(&many).unwrap().split(" AND ").count(), GRAMS_MAX);
        let long = Term::Word("ab".repeat(2000));
        assert_eq!(beginning(&long).chars().count(), LETTERS_MAX + "\"\"*".len());
    }

    #[test]
    fn what_goes_on_past_its_time_is_given_up() {
        let mut connection = Connection::open_in_memory().unwrap();
        let count = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1) SELECT max(i) FROM n";
        let soon = Instant::now() + Duration::from_millis(1);
        let endless = within(&mut connection, soon, |on| Ok(on.query_row(count, [-1], |_| Ok(()))?));
        assert!(matches!(endless, Err(Error::Slow)), "{endless:?}");
        let after: i64 = connection.query_row(count, [9999], |row| row.get(0)).unwrap();
        assert_eq!(after, 9999, "the connection goes on");
    }
}
