//! Embeddings: a program's texts, passed on to a server that speaks OpenAI's format, and the vectors, passed back as they
//! come; or made by a model inside this program, and written in the same format.
//!
//! Start at [`embed`]. What always holds: whatever a server knows (`dimensions`, `encoding_format`, lists of texts or of
//! tokens) reaches it as it came; where texts have to be looked at for personal data, there are only texts. Deliberately
//! absent: a second server where one fails, since the vectors of two models have nothing to do with each other.
//! Format: platform.openai.com/docs/api-reference/embeddings.

use std::sync::Arc;

use aos_abi::EffectId;
use aos_abi::inference::{Format, Usage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Asked, Ended, Kind, Misfit, Refusal, Relayed, Veil, count, passed, values};
use crate::config::Provider;
use crate::embed::Vector;
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
    let hidden;
    let asked = match veil {
        None => asked,
        Some(mut veil) => {
            hidden = hide(asked, &mut *veil)?;
            &hidden
        }
    };
    match provider {
        Provider::Openai => passed::pass(pool, model, asked, 0, effect).await,
        Provider::Local if pool.config(model)?.dimension.is_none() => {
            let hint =
                "name a model with a `dimension`; if this one makes vectors, write it below its name in aos.toml";
            Err(Misfit::new(format!("{model} makes answers and no vectors")).hint(hint).into())
        }
        Provider::Local => made(pool, model, asked).await,
        Provider::Anthropic | Provider::Gemini => Err(not_here().into()),
    }
}

/// The way out for a model that makes no vectors.
pub(super) fn not_here() -> Misfit {
    Misfit::new("this model makes no embeddings").hint("name a model of a server that speaks OpenAI's /v1/embeddings")
}

/// Whether all that is to be embedded can be looked at.
pub(super) fn holds_texts(body: &[u8]) -> Result<(), Misfit> {
    // Two inputs are none: nobody knows which one a server takes.
    #[derive(Deserialize)]
    struct Held {
        #[serde(default)]
        input: Value,
    }
    count::few_values(body)?;
    let held: Held = serde_json::from_slice(body)?;
    let texts = match &held.input {
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

/// The request with what a veil gives in the place of each text, whatever field it stands in.
fn hide(asked: &Asked, veil: &mut dyn Veil) -> Result<Asked, Misfit> {
    let mut request: Value = serde_json::from_slice(&asked.body)?;
    let mut put = |field: &str, text: &str| veil.hide(field, text);
    if let Some(fields) = request.as_object_mut() {
        for (name, mut value) in std::mem::take(fields) {
            // Numbers here are settings, and the name of the model is written anew anyway.
            if name != "model" && !value.is_number() {
                values::hide_in(&name, &mut value, &mut put);
            }
            fields.insert(put("", &name).unwrap_or(name), value);
        }
    }
    Asked::read(Format::Embeddings, Bytes::from(request.to_string()))
}

/// A request to a model inside this program.
#[derive(Deserialize)]
struct Request {
    input: Input,
    #[serde(default)]
    dimensions: Option<usize>,
    #[serde(default)]
    encoding_format: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    /// Tokens, or nothing that is embedded.
    Other(IgnoredAny),
}

/// The answer to it.
#[derive(Serialize)]
struct Answer<'a> {
    object: &'static str,
    data: Vec<Datum<'a>>,
    model: &'a str,
    usage: Used,
}

#[derive(Serialize)]
struct Datum<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'a> {
    Floats(&'a [f32]),
    /// Little-endian 32 bit floats.
    Base64(String),
}

#[derive(Serialize)]
struct Used {
    prompt_tokens: u64,
    total_tokens: u64,
}

/// Has the vectors made inside this program, and answers as a server would. A text whose vector is known counts like any
/// other, so that no program sees from its bill what another one has asked.
async fn made(pool: &Arc<Pool>, model: &str, asked: &Asked) -> Result<Relayed, Refusal> {
    count::few_values(&asked.body)?;
    let request: Request = serde_json::from_slice(&asked.body).map_err(Misfit::from)?;
    let packed = match request.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let wrong = Misfit::new(format!("there is no encoding_format `{other}`"));
            return Err(wrong.hint("`float` or `base64`").into());
        }
    };
    let texts = match &request.input {
        Input::Text(text) => vec![text.as_str()],
        Input::Texts(texts) => texts.iter().map(String::as_str).collect(),
        Input::Other(_) => Vec::new(),
    };
    if texts.is_empty() {
        let hint = "send a text or a list of texts, not tokens: those of this model are its own";
        return Err(Misfit::new("`input` holds no text").hint(hint).into());
    }
    let vectors = pool.embed(model, &texts).await?;
    let dimension = vectors.first().map_or(0, Vector::dimension);
    if request.dimensions.is_some_and(|wanted| wanted != dimension) {
        let wrong = Misfit::new(format!("the vectors of {model} have {dimension} numbers, no more and no less"));
        return Err(wrong.hint("leave `dimensions` out").into());
    }
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let bytes = || vector.numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        let embedding =
            if packed { Numbers::Base64(STANDARD.encode(bytes())) } else { Numbers::Floats(&vector.numbers) };
        Datum { object: "embedding", index, embedding }
    });
    let tokens = vectors.iter().map(|vector| vector.tokens).sum();
    let usage = Used { prompt_tokens: tokens, total_tokens: tokens };
    let answer = Answer { object: "list", data: data.collect(), model: &asked.model, usage };
    let body = serde_json::to_vec(&answer).expect("numbers and names are written");
    let usage = Usage { input_tokens: tokens, ..Usage::default() };
    let kind = Kind::Done(Some(Bytes::from(body)), Ended { usage, whole: true });
    Ok(Relayed { status: 200, content_type: "application/json", kind })
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
