//! Embeddings: a program's texts, passed on to a server that speaks OpenAI's format, and the vectors, passed back as they
//! come; or made by a model inside this program, and written in the same format.
//!
//! Start at [`embed`]. What always holds: whatever a server knows (`dimensions`, `encoding_format`, lists of texts or of
//! tokens) reaches it as it came; where texts have to be looked at for personal data, there are only texts. Deliberately
//! absent: a second server where one fails, since the vectors of two models have nothing to do with each other.
//! Format: platform.openai.com/docs/api-reference/embeddings.

use std::sync::Arc;
use std::time::Duration;

use aos_abi::inference::{Failure, FailureKind, Format, Reported, Usage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Asked, Ended, Kind, Misfit, Refusal, Relayed, Veil, count, passed, values};
use crate::answer;
use crate::config::Provider;
use crate::embed::{TEXTS_MAX, Vector};
use crate::engine::Asker;
use crate::exchange::WIRE_BYTES_MAX;
use crate::failure::{permanent, transient};
use crate::pool::Pool;
use crate::target::Target;
use crate::wire::{Count, lenient};

/// Bytes of one vector in an answer: 4,096 numbers, each written with all its digits on a line of its own.
const VECTOR_BYTES_MAX: usize = 4096 * 32;
/// Bytes of all large answers that are held at once, as many as those of the requests (`programs_bytes_max`).
pub(crate) const LARGE_BYTES_MAX: usize = 512 << 20;

/// Has a request for vectors answered.
pub(super) async fn embed(
    pool: &Arc<Pool>,
    model: &str,
    asked: &Asked,
    provider: Provider,
    asker: &Asker,
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
        Provider::Openai => {
            let wait = pool.deadlines(pool.config(model)?).first_byte;
            let room = Most::of(asked).room(&pool.large, wait).await?;
            Ok(hold(passed::pass(pool, model, asked, 0, asker).await?, room))
        }
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
        .hint(
            "send texts, not tokens (LangChain's OpenAIEmbeddings: `check_embedding_ctx_length=False`), or name a model of this machine",
        ))
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

/// How large an answer may be: as large as the vectors of the texts that were asked for, and at least as one of text.
pub(super) struct Most {
    texts: usize,
}

impl Most {
    pub(super) fn of(asked: &Asked) -> Most {
        #[derive(Deserialize)]
        struct Held<'a> {
            #[serde(borrow)]
            input: &'a RawValue,
        }
        let input = serde_json::from_slice::<Held<'_>>(&asked.body).map_or("", |held| held.input.get());
        // A list of numbers is one text, in tokens.
        let inner = input.strip_prefix('[').map_or("", str::trim_start);
        let many = inner.starts_with(['"', '[']).then(|| serde_json::from_str::<Vec<IgnoredAny>>(input));
        Most { texts: many.and_then(Result::ok).map_or(1, |texts| texts.len()) }
    }

    /// Bytes of the longest answer.
    pub(super) fn bytes(&self) -> usize {
        (self.texts.min(TEXTS_MAX) * VECTOR_BYTES_MAX).max(WIRE_BYTES_MAX)
    }

    /// The failure of a longer one. It would be as long the next time, and says nothing of the server.
    pub(super) fn beyond(&self) -> Failure {
        let message = format!("the vectors of {} texts are more than {} MiB", self.texts, self.bytes() >> 20);
        let hint = "ask for fewer texts at once, or for `encoding_format` `base64`".to_owned();
        Failure { kind: FailureKind::Refused, hint: Some(hint), ..transient(message) }
    }

    /// Room for a large answer; an ordinary one needs none.
    async fn room(&self, large: &Arc<Semaphore>, wait: Duration) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        if self.bytes() <= WIRE_BYTES_MAX {
            return Ok(None);
        }
        let kib = u32::try_from(self.bytes() >> 10).expect("a bound of some hundred MiB");
        let Ok(Ok(room)) = timeout(wait, Arc::clone(large).acquire_many_owned(kib)).await else {
            let hint = "ask again later, or for fewer texts at once".to_owned();
            let message = "there are too many vectors on their way to programs";
            return Err(Failure { kind: FailureKind::Here, hint: Some(hint), ..transient(message) });
        };
        Ok(Some(room))
    }
}

/// An answer with the room that it takes, until the program has read it.
struct Taken {
    body: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn hold(mut relayed: Relayed, room: Option<OwnedSemaphorePermit>) -> Relayed {
    if let (Kind::Done(Some(body), _), Some(mut room)) = (&mut relayed.kind, room) {
        drop(room.split(room.num_permits().saturating_sub(body.len().div_ceil(1 << 10))));
        *body = Bytes::from_owner(Taken { body: std::mem::take(body), _room: room });
    }
    relayed
}

/// What an answer used; `None` where it holds no vectors. A server that does not say, or says less than there can have been,
/// is believed to have read what was sent.
pub(super) fn usage(body: &[u8], asked: &Asked) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Vectors {
        #[serde(rename = "data")]
        _data: Vec<IgnoredAny>,
        #[serde(default, deserialize_with = "lenient")]
        usage: Option<Used>,
    }
    #[derive(Deserialize)]
    struct Used {
        #[serde(default)]
        prompt_tokens: Count,
    }
    let vectors: Vectors = serde_json::from_slice(body).ok()?;
    let said = vectors.usage.and_then(|used| used.prompt_tokens.0);
    Some(match said {
        Some(input_tokens) if input_tokens >= answer::input_least(asked.bytes()) => {
            Usage { input_tokens, ..Usage::default() }
        }
        low => {
            let reported = low.map(|low| Reported { input_tokens: Some(low), output_tokens: None });
            Usage { input_tokens: asked.input_tokens(), estimated: true, reported, ..Usage::default() }
        }
    })
}

/// Whether an answer has a vector for each text, of as many numbers as were asked for or are configured.
pub(super) fn fit(body: &[u8], asked: &Asked, target: &Target<'_>) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Vectors<'a> {
        #[serde(borrow)]
        data: Vec<Made<'a>>,
    }
    #[derive(Deserialize)]
    struct Made<'a> {
        #[serde(borrow)]
        embedding: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Wanted {
        #[serde(default, deserialize_with = "lenient")]
        dimensions: Option<usize>,
    }
    let wrong = |what: String, hint: String| Err(permanent(format!("{} sent {what}", target.host), hint));
    let again = || "check base_url and model of the table, or ask for other texts".to_owned();
    let Ok(Vectors { data }) = serde_json::from_slice::<Vectors<'_>>(body) else {
        return wrong("vectors of another form".to_owned(), again());
    };
    let texts = Most::of(asked).texts;
    if data.len() != texts {
        return wrong(format!("{} vectors for {texts} texts", data.len()), again());
    }
    let wanted = serde_json::from_slice::<Wanted>(&asked.body).ok().and_then(|wanted| wanted.dimensions);
    let Some(dimension) = wanted.or(target.config.dimension.map(|numbers| numbers as usize)) else { return Ok(()) };
    let other = data.iter().map(|made| numbers_in(made.embedding.get())).find(|numbers| *numbers != dimension);
    let Some(other) = other else { return Ok(()) };
    let hint = match wanted {
        Some(_) => "leave `dimensions` out; the model does not keep to it".to_owned(),
        None => format!("write `dimension = {other}` below [models.{}] in aos.toml, if it is meant", target.name),
    };
    wrong(format!("a vector of {other} numbers, and {dimension} were to come"), hint)
}

/// How many numbers a vector has, as a list or as base64 of 32 bit floats.
fn numbers_in(vector: &str) -> usize {
    match vector.strip_prefix('"') {
        Some(packed) => packed.trim_end_matches(['"', '=']).len() * 3 / 4 / 4,
        None if vector.trim_matches(['[', ']']).trim().is_empty() => 0,
        None => vector.bytes().filter(|byte| *byte == b',').count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(input: &Value) -> Most {
        let body = Bytes::from(serde_json::json!({"model": "m", "input": input}).to_string());
        Most::of(&Asked::read(Format::Embeddings, body).unwrap())
    }

    #[test]
    fn an_answer_may_be_as_large_as_the_texts_allow() {
        let of = |input: Value| most(&input).bytes() >> 20;
        assert_eq!(of("a".into()), 17);
        assert_eq!(of(vec![7; 1000].into()), 17, "one text, in tokens");
        assert_eq!(of(vec!["a"; 1000].into()), 125);
        assert_eq!(of(vec![vec![7, 8]; 1000].into()), 125);
        assert_eq!(of(vec!["a"; 1_000_000].into()), 256);
    }

    /// Whoever does not read keeps no more from the others than what is there for it.
    #[tokio::test(start_paused = true)]
    async fn what_large_answers_take_is_bounded_until_they_are_read() {
        let large = Arc::new(Semaphore::new(LARGE_BYTES_MAX >> 10));
        let most = most(&vec!["a"; 2048].into());
        let room = async || most.room(&large, Duration::from_secs(60)).await;
        let (first, second) = (room().await.unwrap(), room().await.unwrap());
        assert_eq!(room().await.unwrap_err().kind, FailureKind::Here);
        let ended = Ended { usage: Usage::default(), whole: true };
        let kind = Kind::Done(Some(Bytes::from(vec![b' '; 3 << 20])), ended);
        let held = hold(Relayed { status: 200, content_type: "application/json", kind }, first);
        assert_eq!(large.available_permits(), (256 - 3) << 10);
        drop((held, second));
        assert_eq!(large.available_permits(), 512 << 10);
    }
}
