//! Embeddings: texts in, vectors out, whoever makes them.
//!
//! Start at [`Pool::embed`]. [`Embedder`] is what makes vectors: `remote` asks a server that speaks OpenAI's
//! `/v1/embeddings`, and a runtime inside this program comes in by [`Pool::with_embedder`]. `cache` keeps what was made.
//! What always holds: as many vectors as texts, in their order, all finite and of one dimension, and of the configured one
//! where there is one; each says which model made it, since vectors of two models cannot be compared; a call ends within
//! the model's deadline. Deliberately absent: a second model where one fails, for the same reason.

mod cache;
mod remote;

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use aos_abi::inference::{Failure, FailureKind};
use tokio::time::timeout_at;

pub(crate) use cache::Cache;
use cache::Key;
use remote::Remote;

use crate::config::{ModelConfig, Provider};
use crate::failure::{permanent, transient};
use crate::pool::Pool;

/// Most texts of one call, as many as OpenAI takes in one request.
pub const TEXTS_MAX: usize = 2048;
/// Most bytes of all texts of one call.
pub const TEXTS_BYTES_MAX: usize = 8 << 20;

/// What a model makes of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// The model that made it, by the name that its server or the runtime knows it by.
    pub model: Arc<str>,
    /// The vector itself; how many there are is its dimension.
    pub numbers: Arc<[f32]>,
    /// Tokens of the text, as the model counts them; a share of the sum by length where its server tells only that.
    pub tokens: u64,
}

impl Vector {
    /// How many numbers it has.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.numbers.len()
    }
}

/// Vectors to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// The model's configured name.
    pub name: &'w str,
    /// How it is configured.
    pub config: &'w ModelConfig,
    /// Of what; at most [`TEXTS_MAX`], and not empty.
    pub texts: &'w [&'w str],
}

/// Vectors to come.
pub type Embedding<'a> = Pin<Box<dyn Future<Output = Result<Vec<Vector>, Failure>> + Send + 'a>>;

/// Whoever makes vectors.
pub trait Embedder: Debug + Send + Sync {
    /// One vector for each text, in their order. A failure is [`Failure`] as for any model: what time may mend is
    /// transient, what a person must mend permanent with a hint; a text that is too long is [`FailureKind::TooLong`], never
    /// cut. The pool keeps the deadline and looks at what came.
    ///
    /// # Cancel safety
    /// Dropping the future ends the work soon and leaves the embedder usable.
    fn embed<'a>(&'a self, wanted: Wanted<'a>) -> Embedding<'a>;
}

impl Pool {
    /// The vectors of these texts, in their order, by one of the configured models. A text whose vector is still known is
    /// not asked for again.
    ///
    /// # Errors
    /// Why there are none; some vectors without the others are never given.
    ///
    /// # Cancel safety
    /// Dropping the future ends the exchange with the server and leaves the pool as it was.
    pub async fn embed(&self, model: &str, texts: &[&str]) -> Result<Vec<Vector>, Failure> {
        let config = self.config(model)?;
        bounded(texts)?;
        let keys: Vec<Key> = texts.iter().map(|text| cache::key(model, text)).collect();
        let mut known: HashMap<Key, Vector> = {
            let mut cache = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
            keys.iter().filter_map(|key| Some((*key, cache.get(key)?))).collect()
        };
        // Each text once, however often it stands there.
        let mut seen = HashSet::new();
        let fresh = keys.iter().zip(texts).filter(|(key, _)| !known.contains_key(*key) && seen.insert(**key));
        let (fresh, texts): (Vec<Key>, Vec<&str>) = fresh.map(|(key, text)| (*key, *text)).unzip();
        if !texts.is_empty() {
            let vectors = self.make(Wanted { name: model, config, texts: &texts }).await?;
            let mut cache = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, vector) in fresh.into_iter().zip(vectors) {
                cache.put(key, vector.clone());
                known.insert(key, vector);
            }
        }
        let vectors: Vec<Vector> = keys.iter().filter_map(|key| known.get(key).cloned()).collect();
        alike(model, config, &vectors)?;
        Ok(vectors)
    }

    /// Has vectors made, within the time that the model has.
    async fn make(&self, wanted: Wanted<'_>) -> Result<Vec<Vector>, Failure> {
        let remote = Remote(self);
        let embedder: &dyn Embedder = match (&self.embedder, wanted.config.provider) {
            (Some(inside), Provider::Local) => &**inside,
            (None, Provider::Local) | (_, Provider::Openai | Provider::Anthropic | Provider::Gemini) => &remote,
        };
        let end = self.deadlines(wanted.config).end;
        let made = timeout_at(end, embedder.embed(wanted)).await.unwrap_or_else(|_| {
            let hint = "send fewer texts at once, or give it more time (`timeout_s`)".to_owned();
            Err(Failure {
                hint: Some(hint),
                ..transient(format!("{} did not finish its vectors in time", wanted.name))
            })
        })?;
        if made.len() != wanted.texts.len() {
            let (got, texts) = (made.len(), wanted.texts.len());
            return Err(transient(format!("{} gave {got} vectors for {texts} texts", wanted.name)));
        }
        alike(wanted.name, wanted.config, &made)?;
        Ok(made)
    }
}

fn bounded(texts: &[&str]) -> Result<(), Failure> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if texts.len() <= TEXTS_MAX && bytes <= TEXTS_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{} texts of {bytes} bytes are too many at once", texts.len());
    let hint = format!("send at most {TEXTS_MAX} texts of {} MiB in one request", TEXTS_BYTES_MAX >> 20);
    Err(Failure { kind: FailureKind::TooLong, hint: Some(hint), ..transient(message) })
}

/// Whether vectors can be compared with each other, and with those of another day.
fn alike(name: &str, config: &ModelConfig, vectors: &[Vector]) -> Result<(), Failure> {
    let Some(first) = vectors.first() else { return Ok(()) };
    let dimension = config.dimension.map_or(first.dimension(), |dimension| dimension as usize);
    if let Some(other) = vectors.iter().map(Vector::dimension).find(|other| *other != dimension || *other == 0) {
        let hint = match config.dimension {
            Some(_) => format!("if that is the model meant, `dimension = {other}` below [models.{name}] says so"),
            None => format!("look at the server of [models.{name}]: one model has one dimension"),
        };
        return Err(permanent(format!("a vector of {name} has {other} numbers, not {dimension}"), hint));
    }
    if vectors.iter().any(|vector| !vector.numbers.iter().all(|number| number.is_finite())) {
        return Err(transient(format!("a vector of {name} holds what is no number")));
    }
    Ok(())
}
