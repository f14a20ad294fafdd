//! Requests of other programs, in the formats that they speak, served by the models of the pool.
//!
//! Start at [`Asked::read`] for what a program wants and [`Pool::relay`] for the answer. A request whose format is the
//! model's own is passed on as it came, byte for byte but for the model's name, so that fields which this code does not
//! know reach the server, and so does the answer (`passed`). Any other is understood (`chat`, `messages`, `responses`: one
//! file per format, with its reader and its writer), asked as an agent's prompt would be, and the answer written in the
//! program's format while it comes in (`told`). Embeddings are passed on to servers that speak OpenAI's format, or made inside this program.
//! What always holds: nothing is asked for whose cost has no bound (`bounds`); what an answer used is known when it ends,
//! however it ends; a program that hangs up ends the exchange. Deliberately absent: keys, budgets and limits, which are
//! whoever's who calls this; conversations kept here.

mod bounds;
mod chat;
mod count;
mod embeddings;
mod fields;
mod lost;
mod messages;
mod passed;
mod peek;
mod responses;
mod told;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aos_abi::inference::{Failure, Format, Message, Part, Prompt, Reply, Usage};
use aos_abi::model::Ability;
use bytes::Bytes;
use reqwest::header::HeaderValue;
use tokio::time::Instant;

use crate::config::Provider;
use crate::engine::Asker;
use crate::pool::Pool;
use crate::wishes::{Calling, Form, Wishes};

pub(crate) use embeddings::LARGE_BYTES_MAX;
use peek::Head;
pub use peek::Misfit;

/// Bytes of `anthropic-beta` that are passed on.
const BETAS_BYTES_MAX: usize = 1024;
/// The beta of which Anthropic asks twice the price for what is long; a model has one price here.
const DEARER_BETA: &str = "context-1m";

/// What a program asks, as far as has to be known to decide about it.
#[derive(Clone, Debug)]
pub struct Asked {
    format: Format,
    body: Bytes,
    /// The model it names.
    pub model: String,
    /// It wants the answer while it comes in.
    pub stream: bool,
    /// Most tokens of the answer, where it says so.
    pub max_output: Option<u32>,
    /// What the model must be able to do.
    pub needs: BTreeSet<Ability>,
    head: Head,
    /// What of Anthropic's interface it wants that is not in it for everybody.
    betas: Option<HeaderValue>,
}

/// A conversation that was understood, and what the program wishes beside it.
#[derive(Debug)]
struct Understood {
    prompt: Prompt,
    wishes: Wishes,
}

/// What stands between a conversation and the model: texts are hidden before they are sent, and shown again in the answer.
pub trait Veil: Send {
    /// What is sent in the place of a text that stands in a field of this name; `None`: the text itself.
    fn hide(&mut self, field: &str, text: &str) -> Option<String>;
    /// The answer as the program gets it.
    fn lift(&mut self, reply: &mut Reply);
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it used; an estimate of what had come where the program hung up or the server broke off.
    pub usage: Usage,
    /// The answer is whole.
    pub whole: bool,
}

/// An answer on its way to a program.
pub struct Relayed {
    /// The HTTP status: 200, or what the server answered to a request that it refused as wrong.
    pub status: u16,
    /// The media type of what comes.
    pub content_type: &'static str,
    kind: Kind,
}

enum Kind {
    Passed(Box<passed::Passed>),
    Told(Box<told::Told>),
    /// Known whole.
    Done(Option<Bytes>, Ended),
}

impl std::fmt::Debug for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relayed").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Asked {
    /// Reads what has to be known of a request; of its messages only what they cost.
    ///
    /// # Errors
    /// Where it is no JSON object, says no model, holds more values than any conversation, or asks for something whose cost
    /// has no bound.
    pub fn read(format: Format, body: Bytes) -> Result<Asked, Misfit> {
        // Lists of tokens are passed on unread.
        if format != Format::Embeddings {
            count::few_values(&body)?;
        }
        let (mut head, model) = Head::of(format, &body)?;
        let (stream, max_output, needs) = match format {
            // Vectors are no tokens, and need nothing but the model that is named.
            Format::Embeddings => (false, Some(0), BTreeSet::new()),
            Format::Chat | Format::Responses | Format::Messages => {
                (head.stream, head.max_output, std::mem::take(&mut head.needs))
            }
        };
        Ok(Asked { format, body, model, stream, max_output, needs, head, betas: None })
    }

    /// The same with what its program said in `anthropic-beta`: Anthropic's servers are told it where the request is passed on
    /// in their format, and nobody else.
    ///
    /// # Errors
    /// Where it can be no header, or asks for what costs more than the model's price says.
    pub fn with_betas(self, betas: Option<&str>) -> Result<Asked, Misfit> {
        let Some(said) = betas else { return Ok(self) };
        let dearer = said.split(',').map(str::trim).find(|beta| beta.starts_with(DEARER_BETA));
        if let Some(beta) = dearer {
            return Err(Misfit::new(format!("the beta `{beta}` has a price of its own beyond 200,000 tokens"))
                .hint("leave it out of `anthropic-beta`"));
        }
        // Names of betas, and nothing else: nobody looks at what is in them.
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-_., ".contains(&byte);
        let known = said.len() <= BETAS_BYTES_MAX && said.bytes().all(named);
        let betas = HeaderValue::from_str(said).ok().filter(|_| known).ok_or_else(|| {
            Misfit::new(format!("`anthropic-beta` is no list of names of at most {BETAS_BYTES_MAX} bytes"))
        })?;
        Ok(Asked { betas: Some(betas), ..self })
    }

    /// The format it came in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Tokens of the request, estimated from its size and rather too high: three times as many are never in it.
    #[must_use]
    pub fn input_tokens(&self) -> u64 {
        (self.body.len() as u64).saturating_add(self.head.weight.beyond_bytes()).div_ceil(3)
    }

    /// Every text in it with the name of its field, whatever its format: numbers and names of fields are texts too.
    ///
    /// # Errors
    /// Where the request is no JSON.
    pub fn texts(&self, see: &mut dyn FnMut(&str, &str)) -> Result<(), Misfit> {
        if self.format == Format::Embeddings {
            embeddings::holds_texts(&self.body)?;
        }
        values::look(&self.body, see)
    }

    /// The conversation in it.
    fn understood(&self, max_output: u32) -> Result<Understood, Misfit> {
        if matches!(self.format, Format::Chat | Format::Responses) {
            lost::refused(&self.body)?;
        }
        match self.format {
            Format::Chat => chat::understood(&self.body, max_output),
            Format::Responses => responses::understood(&self.body, max_output),
            Format::Messages => messages::understood(&self.body, max_output),
            Format::Embeddings => Err(embeddings::not_here()),
        }
    }
}

impl Relayed {
    /// What comes next; `None` at the end. An answer that breaks off ends with an event or a body that says so.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing; dropping the whole ends the exchange with the server.
    pub async fn next(&mut self) -> Option<Bytes> {
        match &mut self.kind {
            Kind::Passed(passed) => passed.next().await,
            Kind::Told(told) => told.next().await,
            Kind::Done(body, _) => body.take(),
        }
    }

    /// By when all of it has come, where it is read as it comes; `None`: it is here whole.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Passed(passed) => Some(passed.until()),
            Kind::Told(told) => Some(told.until()),
            Kind::Done(..) => None,
        }
    }

    /// What it has used so far; all of it once [`Relayed::next`] has given `None`.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match &self.kind {
            Kind::Passed(passed) => passed.ended(),
            Kind::Told(told) => told.ended(),
            Kind::Done(_, ended) => *ended,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The request itself cannot be served.
    Misfit(Misfit),
    /// The model's server gave none.
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::Failed(failure)
    }
}

impl From<Misfit> for Refusal {
    fn from(misfit: Misfit) -> Refusal {
        Refusal::Misfit(misfit)
    }
}

impl Pool {
    /// Serves a program's request by one of the configured models. `max_output` is the most tokens that may be answered
    /// where the request asks for none or for more; the asker's effect goes along as the request's id. Under a `veil` the request is
    /// never passed on as it came, and the answer comes when it is whole.
    ///
    /// # Errors
    /// Before anything has been answered; another model may be asked then.
    pub async fn relay(
        self: &Arc<Pool>,
        model: &str,
        asked: &Asked,
        max_output: u32,
        asker: impl Into<Asker>,
        veil: Option<Box<dyn Veil>>,
    ) -> Result<Relayed, Refusal> {
        let asker = asker.into();
        let provider = self.config(model)?.provider;
        if asked.format == Format::Embeddings {
            return embeddings::embed(self, model, asked, provider, &asker, veil).await;
        }
        let own = match provider {
            Provider::Openai => Some(Format::Chat),
            Provider::Anthropic => Some(Format::Messages),
            Provider::Gemini | Provider::Local => None,
        };
        if own == Some(asked.format) && veil.is_none() {
            return passed::pass(self, model, asked, max_output, &asker).await;
        }
        let understood = asked.understood(asked.max_output.unwrap_or(max_output).min(max_output))?;
        if matches!(provider, Provider::Local | Provider::Anthropic)
            && matches!(understood.wishes.form, Some(Form::Schema { .. }))
        {
            return Err(Misfit::new(format!("`{model}` cannot be held to a JSON schema in this format"))
                .hint("name a model of another provider, or ask for a tool with that schema")
                .into());
        }
        if provider == Provider::Local && !understood.wishes.tools.is_empty() {
            return Err(Misfit::new("a local model makes no calls but an agent's")
                .hint("leave `tools` out, or name another model")
                .into());
        }
        told::tell(self, model, asked, understood, asker, veil).await
    }
}

impl Understood {
    /// Puts what a veil gives in the place of each text that is sent.
    ///
    /// # Errors
    /// Where something is to be hidden in a name, which would be another one then.
    fn hide(&mut self, veil: &mut dyn Veil) -> Result<(), Misfit> {
        let mut put = |field: &str, text: &str| veil.hide(field, text);
        for name in self.names() {
            if put("", name).is_some() {
                return Err(Misfit::new(
                    "the name of a tool or a form holds what must not leave, and cannot be replaced",
                )
                .hint("give it a name without personal data"));
            }
        }
        self.rename_calls(&mut put);
        values::hide(&mut self.prompt.system, &mut put);
        for message in &mut self.prompt.messages {
            match message {
                Message::User(parts) => parts.iter_mut().for_each(|part| {
                    if let Part::Text(text) = part {
                        values::hide(text, &mut put);
                    }
                }),
                Message::Assistant { text, calls } => {
                    values::hide(text, &mut put);
                    calls.iter_mut().for_each(|call| values::hide_arguments(&mut call.arguments, &mut put));
                }
                Message::Result { content, .. } => values::hide(content, &mut put),
            }
        }
        for tool in &mut self.wishes.tools {
            tool.description.iter_mut().for_each(|text| values::hide(text, &mut put));
            values::hide_in("", &mut tool.parameters, &mut put);
        }
        // A model writes what stands for it, so the answer ends there too.
        self.wishes.stop.iter_mut().for_each(|text| values::hide(text, &mut put));
        if let Some(Form::Schema { schema, .. }) = &mut self.wishes.form {
            values::hide_in("", schema, &mut put);
        }
        Ok(())
    }

    /// What names something, and the kinds of images: servers take few letters there, and answers repeat them.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.wishes.tools.iter().map(|tool| tool.name.as_str()).collect();
        if let Some(Calling::Only(name)) = &self.wishes.calling {
            names.push(name);
        }
        if let Some(Form::Schema { name, .. }) = &self.wishes.form {
            names.push(name);
        }
        for message in &self.prompt.messages {
            match message {
                Message::User(parts) => names.extend(parts.iter().filter_map(|part| match part {
                    Part::Text(_) => None,
                    Part::Image { media_type, .. } => Some(media_type.as_str()),
                })),
                Message::Assistant { calls, .. } => names.extend(calls.iter().map(|call| call.name.as_str())),
                Message::Result { name, .. } => names.push(name),
            }
        }
        names
    }

    /// An id only binds a result to its call: one that holds something, or looks like it, is another one in both places.
    fn rename_calls(&mut self, put: &mut dyn FnMut(&str, &str) -> Option<String>) {
        let mut renamed = BTreeMap::<String, String>::new();
        let mut rename = |id: &mut String| {
            if put("", id).is_some() {
                let next = format!("call_hidden_{}", renamed.len());
                id.clone_from(renamed.entry(id.clone()).or_insert(next));
            }
        };
        for message in &mut self.prompt.messages {
            match message {
                Message::User(_) => {}
                Message::Assistant { calls, .. } => calls.iter_mut().for_each(|call| rename(&mut call.id)),
                Message::Result { call_id, .. } => rename(call_id),
            }
        }
    }
}

/// Seconds since the Unix epoch, as answers carry them.
fn created() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
