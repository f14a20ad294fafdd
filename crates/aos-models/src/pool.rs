//! The pool: the configured models, and one inference against one of them.
//!
//! Start at [`Pool::infer`]. What always holds: a failed inference has been tried as often as may help, and no oftener;
//! once something usable has come it is never asked for again, because it has been paid for; dropping the future ends
//! the exchange. Deliberately absent: fallback to another model, which the kernel decides since it is another price.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use aos_abi::inference::{Encoding, Failure, Message, Part, Prompt, Reply};
use aos_abi::limits::REPLY_BYTES_MAX;
use aos_abi::{EffectId, Lsn};
use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Answer, Finish, Sent};
use crate::client::{self, Clients, Timeouts};
use crate::config::{ModelConfig, Provider};
use crate::failure::{self, About, Secret, permanent, transient};
use crate::openai::Quirks;
use crate::retry::{Backoff, Retries};
use crate::tools::Tools;
use crate::wire::Unread;
use crate::{anthropic, gemini, openai, sse};

/// Looks a variable of the environment up, at the time of the call.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of this program.
#[must_use]
pub fn environment() -> Env {
    Arc::new(|name| std::env::var(name).ok())
}

/// How the pool behaves towards servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `User-Agent`.
    pub ua: String,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Tries.
    pub retries: Retries,
}

impl Default for Options {
    fn default() -> Self {
        let ua = concat!("aos/", env!("CARGO_PKG_VERSION")).to_owned();
        Options { ua, timeouts: Timeouts::default(), retries: Retries::default() }
    }
}

/// A piece of an answer while it comes in, for whoever watches. Only the [`Reply`] counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// A call begins.
    Call {
        /// Its name, as the model wrote it.
        name: String,
    },
}

/// A model that answered a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// From the request to the whole answer.
    pub latency: Duration,
    /// What it answered.
    pub reply: Reply,
}

/// Bytes of an error body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Bytes of one event, and of a whole answer that is not streamed: the largest reply with every byte escaped as `\u00xx`
/// would be six times as long, but twice is what text comes to.
const WIRE_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX + (1 << 20);
/// How long the end of a stream is waited for after its last event, so that the connection can be used again.
const TRAILER_WAIT: Duration = Duration::from_millis(100);

/// The configured models.
pub struct Pool {
    models: BTreeMap<String, Model>,
    env: Env,
    options: Options,
    clients: Clients,
    tools: Tools,
}

struct Model {
    config: ModelConfig,
    /// What its server does not accept, as [`Quirks`].
    quirks: AtomicU8,
}

/// A model with all that a request to it needs.
struct Target<'p> {
    name: &'p str,
    model: &'p Model,
    url: reqwest::Url,
    host: String,
    near: bool,
    key: String,
    client: reqwest::Client,
}

impl Target<'_> {
    fn about(&self) -> About<'_> {
        let ModelConfig { model, .. } = &self.model.config;
        let key_env = self.model.config.key_env();
        About { name: self.name, model, host: &self.host, key_env, key: Secret(&self.key) }
    }
}

/// When the parts of one inference must be over.
#[derive(Clone, Copy)]
struct Deadlines {
    first_byte: Duration,
    stall: Duration,
    end: Instant,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("models", &self.models.keys()).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `models`, by the names under which they are configured. Nothing is asked of any server yet.
    #[must_use]
    pub fn new(models: BTreeMap<String, ModelConfig>, env: Env, options: Options) -> Pool {
        let clients = Clients::new(&options.ua, options.timeouts.connect);
        let model = |config| Model { config, quirks: AtomicU8::new(0) };
        let models = models.into_iter().map(|(name, config)| (name, model(config))).collect();
        Pool { models, env, options, clients, tools: Tools::default() }
    }

    /// The configured models by name.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelConfig)> {
        self.models.iter().map(|(name, model)| (name.as_str(), &model.config))
    }

    /// One inference. `deltas` is told what comes in while it comes in; `effect` goes along as the request's id.
    ///
    /// # Errors
    /// When no answer came that a process could use, after the tries that may help.
    ///
    /// # Cancel safety
    /// Dropping the future ends the exchange with the server and leaves the pool as it was.
    pub async fn infer(
        &self,
        model: &str,
        prompt: &Prompt,
        effect: EffectId,
        mut deltas: impl FnMut(Delta) + Send,
    ) -> Result<Reply, Failure> {
        let target = self.target(model)?;
        let config = &target.model.config;
        let timeouts = &self.options.timeouts;
        let own = config.timeout_s.map(Duration::from_secs);
        let deadlines = Deadlines {
            first_byte: own.unwrap_or(timeouts.first_byte),
            stall: timeouts.stall,
            end: Instant::now() + own.map_or(timeouts.total, |own| own.saturating_mul(5)),
        };
        let mut backoff = Backoff::new(self.options.retries);
        let mut quirks = Quirks(target.model.quirks.load(Ordering::Relaxed));
        let mut body = self.body(config, prompt, quirks);
        loop {
            let attempt = self.attempt(&target, &body, prompt, effect, deadlines, &mut deltas).await;
            let failure = match attempt {
                Ok(reply) => return Ok(reply),
                Err(Attempt::Failed(failure)) => failure,
                Err(Attempt::Rejected { status, headers, error }) => {
                    // A field that the server does not know is left out from now on; that is no try that failed.
                    if config.provider == Provider::Openai
                        && let Some(learned) = quirks.learn(status, &error)
                    {
                        quirks = learned;
                        target.model.quirks.store(quirks.0, Ordering::Relaxed);
                        body = self.body(config, prompt, quirks);
                        continue;
                    }
                    failure::classify(status, &headers, &error, &target.about())
                }
            };
            match backoff.after(&failure, fastrand::f64()) {
                Some(wait) if Instant::now() + wait < deadlines.end => {
                    tracing::debug!(model, %effect, ?wait, failure = failure.message, "trying again");
                    tokio::time::sleep(wait).await;
                }
                Some(_) | None => return Err(failure),
            }
        }
    }

    /// Asks a model for one word, to see that it answers.
    ///
    /// # Errors
    /// As [`Pool::infer`].
    pub async fn check(&self, model: &str) -> Result<Checked, Failure> {
        let prompt = Prompt {
            system: "You are being tested for reachability.".to_owned(),
            messages: vec![Message::User(vec![Part::Text("Answer with the single word: ready".to_owned())])],
            status: String::new(),
            tools: aos_abi::syscall::CallSet::EMPTY,
            encoding: Encoding::Text,
            // Models that reason spend tokens before the first word.
            max_output: 256,
        };
        let began = Instant::now();
        let reply = self.infer(model, &prompt, EffectId { cause: Lsn::ZERO, nth: 0 }, |_| ()).await?;
        Ok(Checked { latency: began.elapsed(), reply })
    }

    fn target<'p>(&'p self, name: &'p str) -> Result<Target<'p>, Failure> {
        let Some(model) = self.models.get(name) else {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            let hint =
                format!("configured are: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") });
            return Err(permanent(format!("no model is named {name}"), hint));
        };
        let config = &model.config;
        let path = match config.provider {
            Provider::Openai => "/chat/completions".to_owned(),
            Provider::Anthropic if config.address().ends_with("/v1") => "/messages".to_owned(),
            Provider::Anthropic => "/v1/messages".to_owned(),
            Provider::Gemini => {
                let of = config.model.trim_start_matches("models/");
                format!("/models/{of}:streamGenerateContent?alt=sse")
            }
            Provider::Local => {
                return Err(permanent(
                    format!("the local runtime that {name} needs is not part of this build yet"),
                    "use provider = \"openai\" with a local server such as Ollama or llama-server",
                ));
            }
        };
        let url = parse(name, &format!("{}{path}", config.address()))?;
        let key = self.key(config)?;
        let near = config.local() || client::loopback(&url);
        let client = self.clients.to(&url, config.local())?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", url.host_str().unwrap_or("?"));
        Ok(Target { name, model, url, host, near, key, client })
    }

    /// The key, or an empty one where none is to be sent.
    fn key(&self, config: &ModelConfig) -> Result<String, Failure> {
        let Some(variable) = config.key_env() else { return Ok(String::new()) };
        let key = (self.env)(variable).map(|key| key.trim().to_owned()).unwrap_or_default();
        if key.is_empty() {
            return Err(permanent(
                format!("the environment variable {variable} that should hold the key is not set"),
                format!("set {variable} in the environment of the daemon and start it again, or change api_key_env"),
            ));
        }
        if HeaderValue::from_str(&key).is_err() {
            let hint = format!("{variable} should hold the key alone, as the provider shows it");
            return Err(permanent(format!("the key in {variable} holds characters that no key has"), hint));
        }
        Ok(key)
    }

    fn body(&self, config: &ModelConfig, prompt: &Prompt, quirks: Quirks) -> Bytes {
        Bytes::from(match config.provider {
            Provider::Openai => openai::body(&config.model, config.address(), prompt, &self.tools, quirks),
            Provider::Anthropic => anthropic::body(&config.model, prompt, &self.tools),
            Provider::Gemini => gemini::body(&config.model, prompt, &self.tools),
            Provider::Local => unreachable!("such a model has no target"),
        })
    }

    async fn attempt(
        &self,
        target: &Target<'_>,
        body: &Bytes,
        prompt: &Prompt,
        effect: EffectId,
        deadlines: Deadlines,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Reply, Attempt> {
        let first_byte = (Instant::now() + deadlines.first_byte).min(deadlines.end);
        let request = target.client.post(target.url.clone()).headers(headers(target, effect)).body(body.clone());
        let failed = |error| client::failed(error, &target.host, target.near);
        let silent = || transient(format!("{} did not begin to answer in time", target.host));
        let response = match timeout_at(first_byte, request.send()).await {
            Err(_) => return Err(silent().into()),
            Ok(Err(error)) => return Err(failed(error).into()),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(rejected(response, deadlines).await);
        }
        let sent = sent(prompt, body.len());
        let mut answer = Answer::new(deltas);
        let end = read(response, &mut answer, target, first_byte, deadlines).await;
        Ok(conclude(answer, end, target, &sent)?)
    }
}

/// Why one try gave no reply.
enum Attempt {
    Failed(Failure),
    /// The server answered with an error.
    Rejected {
        status: u16,
        headers: HeaderMap,
        error: Vec<u8>,
    },
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Attempt::Failed(failure)
    }
}

fn parse(name: &str, address: &str) -> Result<reqwest::Url, Failure> {
    let hint = format!("base_url of [models.{name}] should be like http://127.0.0.1:11434/v1");
    let url: reqwest::Url = address
        .parse()
        .map_err(|error| permanent(format!("the base_url of {name} is no address: {error}"), hint.clone()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(permanent(format!("the base_url of {name} is no HTTP address"), hint));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let hint = "put the key into the environment and name its variable with api_key_env";
        return Err(permanent(format!("the base_url of {name} holds a user name or password"), hint));
    }
    Ok(url)
}

fn headers(target: &Target<'_>, effect: EffectId) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    let secret = |text: &str| {
        let mut value = HeaderValue::from_str(text).expect("checked when the key was read");
        value.set_sensitive(true);
        value
    };
    let key = &target.key;
    match target.model.config.provider {
        Provider::Openai => {
            if !key.is_empty() {
                headers.insert(AUTHORIZATION, secret(&format!("Bearer {key}")));
            }
            let id = HeaderValue::from_str(&format!("aos-{effect}")).expect("digits and a dot");
            headers.insert(HeaderName::from_static("x-client-request-id"), id);
        }
        Provider::Anthropic => {
            headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(anthropic::VERSION));
            if !key.is_empty() {
                headers.insert(HeaderName::from_static("x-api-key"), secret(key));
            }
        }
        // In a header and not in the address, which stands in logs on the way.
        Provider::Gemini if !key.is_empty() => {
            headers.insert(HeaderName::from_static("x-goog-api-key"), secret(key));
        }
        Provider::Gemini | Provider::Local => {}
    }
    headers
}

fn sent(prompt: &Prompt, body_bytes: usize) -> Sent {
    let mut sent = Sent { body_bytes, max_output: prompt.max_output, ..Sent::default() };
    for message in &prompt.messages {
        if let Message::User(parts) = message {
            for part in parts {
                if let Part::Image { base64, .. } = part {
                    sent.images += 1;
                    sent.image_bytes += base64.len();
                }
            }
        }
    }
    sent
}

async fn rejected(mut response: reqwest::Response, deadlines: Deadlines) -> Attempt {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let until = (Instant::now() + deadlines.stall).min(deadlines.end);
    let mut error = Vec::new();
    // What there is of the body explains the status; without any the status has to do.
    while let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await {
        error.extend_from_slice(&piece[..piece.len().min(ERROR_BYTES_MAX - error.len())]);
        if error.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    Attempt::Rejected { status, headers, error }
}

/// How the body of an answer ended.
enum End {
    /// As it should, as far as HTTP goes.
    Whole,
    /// Before that; why.
    Cut(Failure),
    /// It is no answer of a model; why.
    NoAnswer(Failure),
}

/// What the body of an answer turned out to be.
enum Form {
    /// Nothing but white space has come.
    Unknown,
    Stream(sse::Reader),
    /// One JSON document: the server does not stream.
    Document(Vec<u8>),
}

async fn read(
    mut response: reqwest::Response,
    answer: &mut Answer<'_>,
    target: &Target<'_>,
    first_byte: Instant,
    deadlines: Deadlines,
) -> End {
    let mut form = Form::Unknown;
    let mut until = first_byte;
    let end = loop {
        let piece = match timeout_at(until, response.chunk()).await {
            Err(_) => {
                let what = if Instant::now() >= deadlines.end { "took too long" } else { "stalled" };
                break End::Cut(transient(format!("the answer of {} {what}", target.host)));
            }
            Ok(Err(error)) => break End::Cut(client::failed(error, &target.host, target.near)),
            Ok(Ok(None)) => break End::Whole,
            Ok(Ok(Some(piece))) => piece,
        };
        answer.received += piece.len();
        if let Err(end) = take(&mut form, &piece, answer, target) {
            break end;
        }
        if answer.done() {
            // The stream's end is usually in the same packet; read, it lets the connection be used again.
            let _ = tokio::time::timeout(TRAILER_WAIT, response.chunk()).await;
            return End::Whole;
        }
        until = (Instant::now() + deadlines.stall).min(deadlines.end);
    };
    match form {
        Form::Unknown => end,
        Form::Stream(mut reader) => {
            // Its bound was kept while it was read.
            let _ = reader.finish(&mut |data| event(data, answer, target));
            end
        }
        Form::Document(bytes) => match (std::str::from_utf8(&bytes), end) {
            (Ok(text), End::Whole) => {
                event(text, answer, target);
                answer.ended = true;
                End::Whole
            }
            (Err(_), End::Whole) => End::NoAnswer(transient(format!("the answer of {} is not JSON", target.host))),
            (_, cut) => cut,
        },
    }
}

fn take(form: &mut Form, piece: &[u8], answer: &mut Answer<'_>, target: &Target<'_>) -> Result<(), End> {
    let too_long = || End::Cut(transient(format!("{} sent more than an answer can hold", target.host)));
    if let Form::Unknown = form {
        match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Ok(()),
            Some(b'{' | b'[') => *form = Form::Document(Vec::new()),
            Some(b'<') => {
                let mut failure = transient(format!("{} sent a web page instead of an answer", target.host));
                failure.hint = Some(format!("check base_url of [models.{}]", target.name));
                return Err(End::NoAnswer(failure));
            }
            Some(_) => *form = Form::Stream(sse::Reader::new(WIRE_BYTES_MAX)),
        }
    }
    match form {
        Form::Stream(reader) => reader.push(piece, &mut |data| event(data, answer, target)).map_err(|_| too_long()),
        Form::Document(bytes) => {
            bytes.extend_from_slice(piece);
            if bytes.len() > WIRE_BYTES_MAX { Err(too_long()) } else { Ok(()) }
        }
        Form::Unknown => Ok(()),
    }
}

fn event(data: &str, answer: &mut Answer<'_>, target: &Target<'_>) {
    if answer.done() {
        return;
    }
    let taken = match target.model.config.provider {
        Provider::Openai => openai::event(data, answer),
        Provider::Anthropic => anthropic::event(data, answer),
        Provider::Gemini => gemini::event(data, answer),
        Provider::Local => unreachable!("such a model has no target"),
    };
    answer.fault = match taken {
        Ok(()) => return,
        Err(Unread::Error(error)) => {
            let error = serde_json::from_str(&error).unwrap_or(serde_json::Value::String(error));
            Some(failure::classify_event(&error, &target.about()))
        }
        Err(Unread::Broken(error)) => {
            let said = failure::quote(data, &target.key);
            Some(transient(format!("{} sent what is no answer ({error}): {said}", target.host)))
        }
    };
}

fn conclude(mut answer: Answer<'_>, end: End, target: &Target<'_>, sent: &Sent) -> Result<Reply, Failure> {
    if let Some(Finish::Refused(why)) = &answer.finish {
        return Err(answer.refused(&why.clone(), sent));
    }
    // An end without the provider's own mark is a cut: half an answer must not pass for a whole one.
    let marked = answer.ended || answer.finish.is_some();
    if answer.usable() {
        let whole = marked && matches!(end, End::Whole);
        return Ok(answer.into_reply(target.name, sent, whole));
    }
    let failure = match (answer.fault.take(), end) {
        (Some(fault), _) => fault,
        (None, End::Cut(failure) | End::NoAnswer(failure)) => failure,
        (None, End::Whole) if answer.understood && marked => {
            return Ok(answer.into_reply(target.name, sent, true));
        }
        (None, End::Whole) => transient(format!("{} ended its answer before there was one", target.host)),
    };
    Err(failure)
}
