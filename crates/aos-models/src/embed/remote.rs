//! Vectors from a server that speaks OpenAI's `/v1/embeddings`.
//!
//! Start at [`Remote`]. What always holds: a batch that the server finds too large is sent again in halves; the vectors are
//! put in order by their `index`; floats and base64 are read alike, and neither is asked for, since some servers know only
//! one; what is no answer, or one for other texts, is tried again as any answer of a model would be.
//! Format: platform.openai.com/docs/api-reference/embeddings.

use std::sync::Arc;

use aos_abi::inference::{Failure, FailureKind, Usage};
use aos_abi::{EffectId, Lsn};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Embedder, Embedding, Vector, Wanted};
use crate::answer::Sent;
use crate::exchange::{self, Attempt, Deadlines};
use crate::failure;
use crate::pool::Pool;
use crate::target::{Ask, Target};
use crate::wire::{Count, lenient};

/// Most texts of one request: less than the least that well-known servers take, with room in one answer for 4,096 numbers
/// each.
const BATCH: usize = 64;
/// Most bytes of one request's texts, unless one alone has more: some 60,000 tokens.
const BATCH_BYTES: usize = 256 << 10;

/// The servers of a pool.
#[derive(Debug)]
pub(super) struct Remote<'p>(pub(super) &'p Pool);

/// Why a request brought no vectors.
enum Unmade {
    /// The server may take some of its texts at once.
    TooMany,
    Failed(Failure),
}

impl Embedder for Remote<'_> {
    fn embed<'a>(&'a self, wanted: Wanted<'a>) -> Embedding<'a> {
        Box::pin(async move {
            let target = self.0.target(wanted.name, Ask::Vectors)?;
            let deadlines = self.0.deadlines(wanted.config);
            let mut most = BATCH;
            let mut made: Vec<Vector> = Vec::with_capacity(wanted.texts.len());
            while made.len() < wanted.texts.len() {
                let batch = batch(&wanted.texts[made.len()..], most);
                match self.ask(&target, batch, deadlines).await {
                    Ok(vectors) => made.extend(vectors),
                    Err(Unmade::TooMany) => most = batch.len() / 2,
                    Err(Unmade::Failed(failure)) => {
                        // What came before has been paid for.
                        let input_tokens = made.iter().map(|vector| vector.tokens).fold(0, u64::saturating_add);
                        let usage = (input_tokens > 0).then(|| Usage { input_tokens, ..Usage::default() });
                        return Err(Failure { usage, ..failure });
                    }
                }
            }
            Ok(made)
        })
    }
}

/// The texts of the next request.
fn batch<'t>(texts: &'t [&'t str], most: usize) -> &'t [&'t str] {
    let mut bytes = 0;
    let fits = |text: &&&str| {
        bytes += text.len();
        bytes <= BATCH_BYTES
    };
    &texts[..texts.iter().take(most).take_while(fits).count().max(1)]
}

impl Remote<'_> {
    /// One request, tried as often as may help.
    async fn ask(&self, target: &Target<'_>, texts: &[&str], deadlines: Deadlines) -> Result<Vec<Vector>, Unmade> {
        let body = Bytes::from(json!({ "model": target.config.model, "input": texts }).to_string());
        let sent = Sent { body_bytes: body.len(), ..Sent::default() };
        let mut backoff = self.0.backoff();
        loop {
            // No process asks, so there is no effect to name.
            let effect = EffectId { cause: Lsn::ZERO, nth: 0 };
            let failure = match exchange::open(target, &body, effect, deadlines, &sent).await {
                Ok(response) => match exchange::whole(response, target, deadlines, &sent).await {
                    Ok(answer) => match read(&answer, target, texts) {
                        Ok(vectors) => return Ok(vectors),
                        Err(failure) => failure,
                    },
                    Err(failure) => failure,
                },
                Err(Attempt::Failed(failure) | Attempt::Page(failure)) => failure,
                Err(Attempt::Rejected { status: 400 | 413 | 422, .. }) if texts.len() > 1 => {
                    return Err(Unmade::TooMany);
                }
                Err(Attempt::Rejected { status, headers, error }) => {
                    failure::classify(status, &headers, &error, &target.about())
                }
            };
            // Vectors are cheap: what a try that broke off may have cost is not counted, and they are asked for again.
            let failure = Failure { usage: None, ..failure };
            match backoff.after(&failure, fastrand::f64()) {
                Some(wait) if Instant::now() + wait < deadlines.end => tokio::time::sleep(wait).await,
                Some(_) | None => return Err(Unmade::Failed(failure)),
            }
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Datum>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<Used>,
}

#[derive(Deserialize)]
struct Used {
    #[serde(default)]
    prompt_tokens: Count,
}

#[derive(Deserialize)]
struct Datum {
    /// Which text it is of; by its place where the server does not say.
    #[serde(default)]
    index: Option<usize>,
    embedding: Numbers,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Numbers {
    Floats(Vec<f32>),
    /// Little-endian 32 bit floats.
    Base64(String),
}

impl Numbers {
    fn read(self) -> Option<Arc<[f32]>> {
        match self {
            Numbers::Floats(floats) => Some(floats.into()),
            Numbers::Base64(text) => {
                let bytes = STANDARD.decode(text).ok()?;
                let (floats, rest) = bytes.as_chunks::<4>();
                rest.is_empty().then(|| floats.iter().map(|float| f32::from_le_bytes(*float)).collect())
            }
        }
    }
}

/// The vectors of an answer, in the order of the texts.
fn read(answer: &[u8], target: &Target<'_>, texts: &[&str]) -> Result<Vec<Vector>, Failure> {
    let wrong = |what: &str| failure::transient(format!("{} {what}", target.host));
    let Ok(answer) = serde_json::from_slice::<Answer>(answer) else {
        // Nothing but texts was asked for, so what came instead may be another thing the next time.
        let failure = exchange::no_answer(answer, target, &Sent::default());
        return Err(Failure { kind: FailureKind::Transient, usage: None, ..failure });
    };
    if answer.data.len() != texts.len() {
        return Err(wrong(&format!("sent {} vectors for {} texts", answer.data.len(), texts.len())));
    }
    let model: Arc<str> = target.config.model.as_str().into();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    let used = answer.usage.and_then(|used| used.prompt_tokens.0).unwrap_or(0);
    let mut vectors: Vec<Option<Vector>> = vec![None; texts.len()];
    for (place, datum) in answer.data.into_iter().enumerate() {
        let index = datum.index.unwrap_or(place);
        let numbers = datum.embedding.read().filter(|numbers| numbers.iter().all(|number| number.is_finite()));
        let numbers = numbers.ok_or_else(|| wrong("sent a vector of what are no numbers"))?;
        let (Some(free @ None), Some(text)) = (vectors.get_mut(index), texts.get(index)) else {
            return Err(wrong(&format!("sent two vectors for text {index}, or there is no such text")));
        };
        let tokens = (used.saturating_mul(text.len() as u64)).div_ceil(bytes.max(1) as u64);
        *free = Some(Vector { model: Arc::clone(&model), numbers, tokens });
    }
    Ok(vectors.into_iter().flatten().collect())
}
