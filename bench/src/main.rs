//! The load: a model that answers at once, and clients that measure a daemon from outside.
//!
//! `bench/run` and `bench/gateway` start it, one scenario at a time: `load SCENARIO --socket S [--KEY VALUE]…`; it prints one JSON document
//! and ends. Start at the scenarios: [`latency`] asks one agent at a time, [`spin`] keeps many turning, [`spawn`] makes
//! idle ones, [`gateway`] is a program that asks models. What always holds: nothing of the daemon is reached but its
//! addresses, its model address and its counters in /proc. Deliberately absent: thresholds; figures are judged by people.

mod client;
mod daemon;
mod disk;
mod gateway;
mod latency;
mod model;
mod spawn;
mod spin;

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::Value;

/// Why a scenario came to nothing, in words.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `--KEY VALUE` pairs.
pub(crate) struct Arguments(BTreeMap<String, String>);

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
        let mut pairs = BTreeMap::new();
        while let Some(key) = words.next() {
            let Some(name) = key.strip_prefix("--") else { return Err(format!("`{key}` is no option").into()) };
            let value = words.next().ok_or_else(|| format!("{key} wants a value"))?;
            pairs.insert(name.to_owned(), value);
        }
        Ok(Arguments(pairs))
    }

    /// The value of a key that must be there.
    pub(crate) fn text(&self, key: &str) -> Result<&str, Failure> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("--{key} is missing").into())
    }

    /// A number that must be there.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<T, Failure> {
        self.text(key)?.parse().map_err(|_| format!("--{key} is no number that fits").into())
    }

    /// A number, or what holds without it.
    pub(crate) fn number_or<T: FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        if self.0.contains_key(key) { self.number(key) } else { Ok(default) }
    }
}

// One thread, so that what is measured has the other core for itself.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let scenario = words.next().unwrap_or_default();
    let arguments = Arguments::read(words)?;
    let figures: Value = match scenario.as_str() {
        "latency" => latency::run(&arguments).await?,
        "spin" => spin::run(&arguments).await?,
        "spawn" => spawn::run(&arguments).await?,
        "gateway" => gateway::run(&arguments).await?,
        _ => return Err("usage: load latency|spin|spawn|gateway [--KEY VALUE]…; `bench/run` starts it".into()),
    };
    println!("{figures}");
    Ok(())
}
