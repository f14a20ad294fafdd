//! What was spent, summed from the `charged` entries: the figures behind `aos cost`.
//!
//! Sums are exact (whole nano-dollars). Pruned processes stay in them, because pruning keeps their charges.

use std::collections::BTreeMap;

use aos_abi::{Body, Pid, Timestamp, Usd};

use crate::row::{COLUMNS, Stored};
use crate::{Error, Reader};

/// By what charges are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargesBy {
    /// The day in UTC, such as `2026-11-22`.
    Day,
    /// The configured name of the model.
    Model,
    /// The process.
    Pid,
}

/// A sum of charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The day, model or pid.
    pub key: String,
    /// How many charges.
    pub charges: u64,
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// Of the tokens sent, those the provider had cached.
    pub cached_input_tokens: u64,
    /// Money, where the model has a price.
    pub cost_usd: Usd,
    /// Charges of models without a price, so that a sum is not taken for more than it is.
    pub unpriced: u64,
    /// Of the money, what is estimated: nobody said what was used.
    pub estimated_usd: Usd,
}

/// Charges that one statement reads.
const CHUNK: u64 = 1024;

impl Reader {
    /// Sums the charges from `since` on, by rising key (pids as numbers).
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a charge does not parse.
    pub fn charges(&self, by: ChargesBy, since: Option<Timestamp>) -> Result<Vec<Charge>, Error> {
        let mut sums: BTreeMap<(Pid, String), Charge> = BTreeMap::new();
        let mut after = (since.map_or(i64::MIN, |since| since.0), 0_u64);
        loop {
            let chunk = self.charged_after(after)?;
            let Some(last) = chunk.last() else { break };
            after = (last.at.0, last.lsn.0);
            for stored in chunk {
                let entry = stored.parse()?;
                // The kind column said so; a row where the body disagrees is found by verification.
                let Body::Charged { model, usage, cost_usd, .. } = entry.body else { continue };
                let key = match by {
                    ChargesBy::Day => (Pid::SYSTEM, entry.at.to_string().chars().take(10).collect()),
                    ChargesBy::Model => (Pid::SYSTEM, model),
                    ChargesBy::Pid => (entry.pid, entry.pid.to_string()),
                };
                let sum = sums.entry(key).or_default();
                sum.charges += 1;
                sum.input_tokens += usage.input_tokens;
                sum.output_tokens += usage.output_tokens;
                sum.cached_input_tokens += usage.cached_input_tokens;
                sum.cost_usd = sum.cost_usd.plus(cost_usd.unwrap_or(Usd::ZERO));
                sum.unpriced += u64::from(cost_usd.is_none());
                if usage.estimated {
                    sum.estimated_usd = sum.estimated_usd.plus(cost_usd.unwrap_or(Usd::ZERO));
                }
            }
        }
        Ok(sums.into_iter().map(|((_, key), sum)| Charge { key, ..sum }).collect())
    }

    /// The next charges in order of (at, lsn), which is how the index holds them.
    fn charged_after(&self, (at, lsn): (i64, u64)) -> Result<Vec<Stored>, Error> {
        self.with(|db| {
            db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM entry WHERE kind = 'charged' AND (at, lsn) > (?1, ?2) ORDER BY at, lsn LIMIT ?3"
            ))
            .and_then(|mut statement| statement.query_map((at, lsn, CHUNK), Stored::read)?.collect())
            .map_err(self.fail())
        })
    }
}
