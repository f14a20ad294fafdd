//! Embeddings: a program's texts, passed on to a server that speaks OpenAI's format, and the vectors, passed back as they come.
//!
//! Start at [`embed`]. What always holds: whatever the server knows (`dimensions`, `encoding_format`, lists of texts or of
//! tokens) reaches it as it came; where texts have to be looked at for personal data, there are only texts. Deliberately
//! absent: a second server where one fails, since the vectors of two models have nothing to do with each other.
//! Format: platform.openai.com/docs/api-reference/embeddings.

use std::sync::Arc;

use aos_abi::EffectId;
use aos_abi::inference::{Format, Usage};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Asked, Misfit, Refusal, Relayed, Veil, passed};
use crate::config::Provider;
use crate::pool::Pool;

/// Has a request for vectors answered.
pub(super) async fn embed(
    pool: &Arc<Pool>,
    model: &str,
    asked: &Asked,
    provider: Provider,
    effect: EffectId,
    veil: Option<Box<dyn Veil>>,
) -> Result<Relayed, Refusal> {
    match provider {
        Provider::Openai => {}
        Provider::Anthropic | Provider::Gemini | Provider::Local => return Err(not_here().into()),
    }
    match veil {
        None => passed::pass(pool, model, asked, 0, effect).await,
        Some(mut veil) => passed::pass(pool, model, &hidden(asked, &mut *veil)?, 0, effect).await,
    }
}

/// The way out for a model that makes no vectors.
pub(super) fn not_here() -> Misfit {
    Misfit::new("this model makes no embeddings").hint("name a model of a server that speaks OpenAI's /v1/embeddings")
}

/// Whether all that is to be embedded can be looked at.
pub(super) fn holds_texts(request: &Value) -> Result<(), Misfit> {
    let texts = match &request["input"] {
        Value::String(_) => true,
        Value::Array(inputs) => inputs.iter().all(Value::is_string),
        _ => false,
    };
    if texts {
        return Ok(());
    }
    Err(Misfit::new("`input` is no text, so that it cannot be looked at for personal data")
        .hint("send texts, not tokens"))
}

/// The request with what a veil gives in the place of each text.
fn hidden(asked: &Asked, veil: &mut dyn Veil) -> Result<Asked, Misfit> {
    let mut request: Value = serde_json::from_slice(&asked.body)?;
    let mut hide = |input: &mut Value| {
        if let Some(hidden) = input.as_str().and_then(|text| veil.hide(text)) {
            *input = Value::String(hidden);
        }
    };
    match &mut request["input"] {
        Value::Array(inputs) => inputs.iter_mut().for_each(&mut hide),
        input => hide(input),
    }
    Asked::read(Format::Embeddings, Bytes::from(request.to_string()))
}

/// What an answer used; `None` where it holds no vectors. A server that does not say is believed to have read what was sent.
pub(super) fn usage(body: &[u8], asked: &Asked) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Vectors {
        #[serde(rename = "data")]
        _data: Vec<IgnoredAny>,
        #[serde(default)]
        usage: Option<Used>,
    }
    #[derive(Deserialize)]
    struct Used {
        prompt_tokens: u64,
    }
    let vectors: Vectors = serde_json::from_slice(body).ok()?;
    Some(match vectors.usage {
        Some(used) => Usage { input_tokens: used.prompt_tokens, ..Usage::default() },
        None => Usage { input_tokens: asked.input_tokens(), estimated: true, ..Usage::default() },
    })
}
