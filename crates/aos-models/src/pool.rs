//! The pool: the configured models, and one inference against one of them.
//!
//! Start at [`Pool::infer`]. What always holds: a failed inference has been tried as often as may help, and no oftener;
//! once something usable has come it is never asked for again, because it has been paid for; dropping the future ends
//! the exchange. Deliberately absent: fallback to another model, which the kernel decides since it is another price.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aos_abi::inference::{Encoding, Failure, FailureKind, Message, Part, Prompt, Reply};
use aos_abi::{EffectId, Lsn, Pid};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::{Clients, Timeouts};
use crate::config::{ModelConfig, Provider};
use crate::embed::{Cache, Embedder};
use crate::engine::{Asker, Engine, Work};
use crate::exchange::{Attempt, Deadlines, attempt};
use crate::failure::{self, permanent, transient};
use crate::listing;
use crate::openai::{Ours, Quirks};
use crate::relay::LARGE_BYTES_MAX;
use crate::retry::{Backoff, Retries};
use crate::target::{Ask, Target};
use crate::tools::Tools;
use crate::tries::Tries;
use crate::wishes::{Request, Wishes};
use crate::written::Written;
use crate::{anthropic, gemini, openai};

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
        /// The provider's id for it; may be empty.
        id: String,
        /// Its name, as the model wrote it.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        /// Which call of the answer, from 0.
        call: usize,
        /// JSON text, or a part of it.
        text: String,
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

/// How often `timeout_s`, the wait for the beginning of an answer, fits into the time for all of it.
const TOTAL_OF_TIMEOUT: u32 = 5;
/// How long a server may take to list its models.
const LISTING_WAIT: Duration = Duration::from_secs(10);

/// The configured models.
pub struct Pool {
    models: BTreeMap<String, Model>,
    env: Env,
    options: Options,
    clients: Clients,
    tools: Tools,
    /// What answers for models with `provider = "local"`.
    engine: Option<Arc<dyn Engine>>,
    /// What makes vectors for them.
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    /// Vectors that were made.
    pub(crate) vectors: Mutex<Cache>,
    /// What the servers of models are suspected not to accept, by model and by who found it and had no request left to see.
    suspected: Mutex<BTreeMap<(String, Pid), Quirks>>,
    /// KiB of vectors that may be on their way to programs at once, beside answers that are no longer than text.
    pub(crate) large: Arc<Semaphore>,
}

struct Model {
    config: ModelConfig,
    /// What its server does not accept, as [`Quirks`].
    quirks: AtomicU8,
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
        let vectors = Mutex::default();
        let large = Arc::new(Semaphore::new(LARGE_BYTES_MAX >> 10));
        let (tools, suspected) = (Tools::default(), Mutex::default());
        Pool { models, env, options, clients, tools, engine: None, embedder: None, vectors, suspected, large }
    }

    /// The same pool, in which `engine` answers for every model with `provider = "local"`.
    #[must_use]
    pub fn with_engine(self, engine: Arc<dyn Engine>) -> Pool {
        Pool { engine: Some(engine), ..self }
    }

    /// The same pool, in which `embedder` makes the vectors of every model with `provider = "local"`.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>) -> Pool {
        Pool { embedder: Some(embedder), ..self }
    }

    /// A process has ended: nothing is kept of it any more.
    pub fn ended(&self, pid: Pid) {
        if let Some(engine) = &self.engine {
            engine.ended(pid);
        }
        self.suspected.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, of), _| *of != pid);
    }

    /// The configured models by name.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelConfig)> {
        self.models.iter().map(|(name, model)| (name.as_str(), &model.config))
    }

    /// One inference. `deltas` is told what comes in while it comes in; the asker's effect goes along as the request's id.
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
        asker: impl Into<Asker>,
        deltas: impl FnMut(Delta) + Send,
    ) -> Result<Reply, Failure> {
        self.go_on(model, prompt, asker, &mut Written::default(), deltas).await
    }

    /// The same for a prompt that goes on where an earlier one ended. `written` is what was written of that one, kept as
    /// far as the two are the same; then what was written of this one.
    ///
    /// # Errors
    /// As [`Pool::infer`].
    ///
    /// # Cancel safety
    /// As [`Pool::infer`].
    pub async fn go_on(
        &self,
        model: &str,
        prompt: &Prompt,
        asker: impl Into<Asker>,
        written: &mut Written,
        deltas: impl FnMut(Delta) + Send,
    ) -> Result<Reply, Failure> {
        self.answer(model, prompt, None, asker.into(), written, deltas).await
    }

    /// The same for an agent and, with `wishes`, for another program.
    pub(crate) async fn answer(
        &self,
        model: &str,
        prompt: &Prompt,
        wishes: Option<&Wishes>,
        asker: Asker,
        written: &mut Written,
        mut deltas: impl FnMut(Delta) + Send,
    ) -> Result<Reply, Failure> {
        let of = self.model(model)?;
        if let Some(engine) = self.engine_of(&of.config) {
            let work = Work { name: model, config: &of.config, prompt, asker };
            return self.work(engine, work, &mut deltas).await;
        }
        let (effect, tries) = (asker.effect, &asker.tries);
        let target = Target::of(model, &of.config, Ask::Answer, &self.env, &self.clients)?;
        let target = Target { program: wishes.is_some(), ..target };
        let config = &of.config;
        let deadlines = self.deadlines(config);
        let mut backoff = self.backoff();
        let mut quirks = self.quirks_for(model, tries);
        let mut body = self.body(config, prompt, wishes, quirks, written);
        loop {
            let attempted = attempt(&target, &body, prompt, effect, deadlines, &mut deltas).await;
            let failure = match attempted {
                Ok(reply) => {
                    self.learned(model, quirks);
                    return Ok(reply);
                }
                Err(Attempt::Failed(failure)) => failure,
                Err(Attempt::Page(failure)) => backoff.paged(failure),
                Err(Attempt::Rejected { status, headers, error }) => {
                    // What the server does not accept is written otherwise; that is no try that failed.
                    let limit = Some(quirks.limit_field(config.address()));
                    let ours = Ours { usage: quirks.stream_options(), limit };
                    if config.provider == Provider::Openai
                        && let Some(learned) =
                            quirks.learn_order(status, &error).or_else(|| quirks.learn(status, &error, ours))
                    {
                        if !tries.may() {
                            return Err(self.suspect(model, tries, learned));
                        }
                        quirks = learned;
                        body = self.body(config, prompt, wishes, quirks, written);
                        continue;
                    }
                    failure::classify(status, &headers, &error, &target.about())
                }
            };
            match backoff.after(&failure, fastrand::f64()) {
                Some(wait) if Instant::now() + wait < deadlines.end && tries.may() => {
                    tracing::debug!(model, %effect, ?wait, failure = failure.message, "trying again");
                    tokio::time::sleep(wait).await;
                }
                Some(_) | None => return Err(failure),
            }
        }
    }

    /// One inference by an engine, within the same time as any other.
    async fn work(
        &self,
        engine: &dyn Engine,
        work: Work<'_>,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Reply, Failure> {
        let end = self.deadlines(work.config).end;
        let name = work.name;
        let late = |_| {
            let hint = "let it answer less (`max_output`), or give it more time (`timeout_s`)".to_owned();
            Err(Failure { hint: Some(hint), ..transient(format!("{name} did not finish its answer in time")) })
        };
        timeout_at(end, engine.infer(work, deltas)).await.unwrap_or_else(late)
    }

    fn engine_of(&self, config: &ModelConfig) -> Option<&dyn Engine> {
        self.engine.as_deref().filter(|_| config.provider == Provider::Local)
    }

    /// Asks a model for one word, to see that it answers.
    ///
    /// # Errors
    /// As [`Pool::infer`].
    pub async fn check(&self, model: &str) -> Result<Checked, Failure> {
        let prompt = Prompt {
            // Not every model inside this program reads one.
            system: match self.config(model)?.provider {
                Provider::Local => String::new(),
                Provider::Openai | Provider::Anthropic | Provider::Gemini => {
                    "You are being tested for reachability.".to_owned()
                }
            },
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

    /// The models that a model's server says it has, by the server's names.
    ///
    /// # Errors
    /// As [`Pool::infer`], but after one try.
    pub async fn list(&self, model: &str) -> Result<Vec<String>, Failure> {
        let of = self.model(model)?;
        if let Some(engine) = self.engine_of(&of.config) {
            return Ok(engine.models());
        }
        let target = Target::of(model, &of.config, Ask::Models, &self.env, &self.clients)?;
        let late = |_| Err(transient(format!("{} did not list its models in time", target.host)));
        timeout(LISTING_WAIT, listing::of(&target)).await.unwrap_or_else(late)
    }

    /// When the parts of an inference that begins now must be over.
    pub(crate) fn deadlines(&self, config: &ModelConfig) -> Deadlines {
        let timeouts = &self.options.timeouts;
        let own = config.timeout_s.map(Duration::from_secs);
        Deadlines {
            first_byte: own.unwrap_or(timeouts.first_byte),
            stall: timeouts.stall,
            end: Instant::now() + own.map_or(timeouts.total, |own| own.saturating_mul(TOTAL_OF_TIMEOUT)),
        }
    }

    /// How a model is configured.
    pub(crate) fn config(&self, model: &str) -> Result<&ModelConfig, Failure> {
        Ok(&self.model(model)?.config)
    }

    /// Where a request to a model goes.
    pub(crate) fn target<'p>(&'p self, model: &'p str, ask: Ask) -> Result<Target<'p>, Failure> {
        Target::of(model, self.config(model)?, ask, &self.env, &self.clients)
    }

    /// How failed requests are tried again.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.options.retries)
    }

    /// What a model's server does not accept, as far as is known, and as this asker is about to see.
    pub(crate) fn quirks_for(&self, model: &str, tries: &Tries) -> Quirks {
        let suspected = tries.pid().and_then(|pid| {
            self.suspected.lock().unwrap_or_else(PoisonError::into_inner).remove(&(model.to_owned(), pid))
        });
        Quirks(self.quirks(model).0 | suspected.map_or(0, |quirks| quirks.0))
    }

    /// A refusal has taught something that the next request of this asker shows: there is none left in this minute.
    pub(crate) fn suspect(&self, model: &str, tries: &Tries, quirks: Quirks) -> Failure {
        if let Some(pid) = tries.pid() {
            self.suspected.lock().unwrap_or_else(PoisonError::into_inner).insert((model.to_owned(), pid), quirks);
        }
        let message =
            format!("the server of `{model}` wants the request in another form, and no other one may go out now");
        Failure { kind: FailureKind::Here, ..transient(message) }
    }

    /// What is known that a model's server does not accept.
    fn quirks(&self, model: &str) -> Quirks {
        Quirks(self.models.get(model).map_or(0, |of| of.quirks.load(Ordering::Relaxed)))
    }

    /// A request that leaves these out has been served, after it was refused with them: words alone, which may be the
    /// asker's own that a server repeats, are not believed.
    pub(crate) fn learned(&self, model: &str, quirks: Quirks) {
        if let Some(of) = self.models.get(model) {
            of.quirks.fetch_or(quirks.0, Ordering::Relaxed);
        }
    }

    fn model(&self, name: &str) -> Result<&Model, Failure> {
        self.models.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            permanent(format!("no model is named {name}"), format!("configured are: {known}"))
        })
    }

    fn body(
        &self,
        config: &ModelConfig,
        prompt: &Prompt,
        wishes: Option<&Wishes>,
        quirks: Quirks,
        written: &mut Written,
    ) -> Bytes {
        let request = Request { model: &config.model, prompt, wishes };
        Bytes::from(match config.provider {
            Provider::Openai => openai::body(&request, config.address(), &self.tools, quirks, written),
            Provider::Anthropic => anthropic::body(&request, &self.tools),
            Provider::Gemini => gemini::body(&request, &self.tools),
            Provider::Local => unreachable!("such a model has no target"),
        })
    }
}
