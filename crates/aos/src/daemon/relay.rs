//! Requests of programs with a key: put before the kernel, served by the model that it names, told back when they are over.
//!
//! Start at [`Relays::relay`]. What always holds: what a program says goes to its model and nowhere else, and never into the
//! journal; every request that the kernel has let begin comes back to it with exactly one end, also where the program hangs
//! up in the middle; nothing is sent before it was looked at for personal data, where the policy says so.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use aos_abi::entry::{self, Personal, ServedOutcome};
use aos_abi::inference::{Failure, FailureKind, Format, Reply, Usage};
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec};
use aos_abi::{Body, CallError, Code, Entry, Pid};
use aos_gateway::{Answer, ApiError, Key, Said};
use aos_kernel::effect::{Guard, Serve, Then};
use aos_models::engine::Asker;
use aos_models::{Asked, Misfit, Pool, Refusal, Relayed, Tries, Veil};
use aos_personal::{Detector, Tokens};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlogs;
use super::heart::{Completion, Handle};
use super::inference::{cancelled, withheld};
use super::privacy::{fill, not_known, unbroken};

/// Who a program is, in words; it takes no turns, so nobody reads them but people.
const ROLE: &str = "A program outside that asks models with a key.";

/// Bytes of a request from which on it is read by a thread of its own: a millisecond's work.
const LONG: usize = 256 << 10;

/// A key made of 32 random bytes, and its SHA-256 in hex.
pub(crate) fn new_key() -> Answer<(String, String)> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| ApiError::internal(error.to_string()))?;
    let text = format!("{}{}", Key::PREFIX, URL_SAFE_NO_PAD.encode(secret));
    let key = Key::parse(&text).ok_or_else(|| ApiError::internal("the key that was made has not the form of one"))?;
    Ok((text, key.sha256()))
}

/// A program's place in the process table.
pub(crate) fn program(
    pid: Pid,
    name: String,
    model: String,
    policy_role: Option<String>,
    budget: BudgetSpec,
) -> SpawnSpec {
    SpawnSpec { name: Some(name), mode: Mode::Program, policy_role, budget, ..SpawnSpec::resident(pid, ROLE, model) }
}

/// What the kernel decides about a request.
enum Decision {
    /// It is served by this model, until the token says otherwise.
    Serve(Box<Serve>, CancellationToken),
    /// It gets no answer.
    Refuse(CallError),
}

/// The requests that programs have put and that are not over.
pub(crate) struct Relays {
    pool: Arc<Pool>,
    completions: mpsc::UnboundedSender<Completion>,
    /// Who waits for the kernel's word, by request.
    waiting: Mutex<HashMap<u64, mpsc::UnboundedSender<Decision>>>,
    last: AtomicU64,
    keys: RwLock<Keys>,
    /// How many requests of whom were refused without an entry since the last entry.
    unsaid: Mutex<HashMap<Pid, u64>>,
    backlogs: Backlogs,
}

/// Whose keys are whose, as far as durable.
#[derive(Default)]
struct Keys {
    by_hash: HashMap<String, Pid>,
    by_pid: HashMap<Pid, String>,
}

impl Keys {
    fn put(&mut self, sha256: String, pid: Pid) {
        self.take(pid);
        self.by_hash.insert(sha256.clone(), pid);
        self.by_pid.insert(pid, sha256);
    }

    fn take(&mut self, pid: Pid) {
        if let Some(old) = self.by_pid.remove(&pid) {
            self.by_hash.remove(&old);
        }
    }
}

impl Relays {
    /// Over a pool; ends of requests go to the loop through `completions`.
    pub(crate) fn new(pool: Arc<Pool>, completions: mpsc::UnboundedSender<Completion>) -> Relays {
        Relays {
            pool,
            completions,
            waiting: Mutex::default(),
            last: AtomicU64::new(0),
            keys: RwLock::default(),
            unsaid: Mutex::default(),
            backlogs: Backlogs::new(),
        }
    }

    /// Waits until no answer is read any more.
    pub(crate) async fn close(&self) {
        self.backlogs.close().await;
    }

    /// The keys that there are when the daemon starts.
    pub(crate) fn know(&self, keys: Vec<(String, Pid)>) {
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.into_iter().for_each(|(sha256, pid)| known.put(sha256, pid));
    }

    /// Keeps up with keys that were made and revoked.
    pub(crate) fn follow(&self, entries: &[Arc<Entry>]) {
        for entry in entries {
            match &entry.body {
                Body::Keyed(key) => {
                    self.keys.write().unwrap_or_else(PoisonError::into_inner).put(key.sha256.clone(), entry.pid);
                }
                Body::Exited { .. } if self.holds(entry.pid) => {
                    self.unsaid(entry.pid);
                    self.keys.write().unwrap_or_else(PoisonError::into_inner).take(entry.pid);
                }
                _ => {}
            }
        }
    }

    fn holds(&self, pid: Pid) -> bool {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).by_pid.contains_key(&pid)
    }

    /// Whose key this is, by its SHA-256 in hex.
    pub(crate) fn program(&self, sha256: &str) -> Option<Pid> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).by_hash.get(sha256).copied()
    }

    /// The kernel has decided that a request is served.
    pub(crate) fn serve(&self, serve: Box<Serve>, token: CancellationToken) {
        let waits = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&serve.request).cloned();
        let (pid, effect) = (serve.pid, serve.id);
        let told = waits.is_some_and(|waits| waits.send(Decision::Serve(serve, token)).is_ok());
        if !told {
            // It hung up a moment ago.
            let outcome = ServedOutcome::Failed { failure: unasked() };
            let _ = self.completions.send((pid, Body::Served { effect, latency_ms: 0, personal: None, outcome }));
        }
    }

    /// The kernel has decided that a request gets no answer.
    pub(crate) fn refuse(&self, request: u64, error: CallError) {
        let waits = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&request).cloned();
        if let Some(waits) = waits {
            // It may hang up at any moment.
            let _ = waits.send(Decision::Refuse(error));
        }
    }

    /// A program's request, from its bytes to the beginning of its answer.
    pub(crate) async fn relay(
        self: &Arc<Self>,
        heart: &Handle,
        pid: Pid,
        Said { format, body, betas }: Said,
    ) -> Answer<aos_gateway::Relayed> {
        let bytes = body.len();
        let read = move || Asked::read(format, body)?.with_betas(betas.as_deref());
        let asked = beside(bytes, read).await?.map_err(misfit)?;
        let asked = Arc::new(asked);
        let mut waits = self.wait(pid);
        let more = self.unsaid(pid);
        let wanted = Body::Asked(Box::new(entry::Asked {
            request: waits.request,
            model: asked.model.clone(),
            format,
            input_tokens: asked.input_tokens(),
            max_output: asked.max_output,
            needs: asked.needs.clone(),
            more,
        }));
        // What the kernel decides may be here before the request is durable: then it is paid ahead.
        let mut put = std::pin::pin!(heart.change(move |_| Ok((pid, wanted))));
        let mut durable = false;
        let mut failed = None;
        loop {
            let decided = tokio::select! {
                biased;
                decided = waits.decided.recv() => decided,
                put = &mut put, if !durable => {
                    put.inspect_err(|_| self.left_unsaid(pid, more + 1))?;
                    durable = true;
                    continue;
                }
            };
            // The sender is kept with what waits, so it ends only with the daemon.
            match decided {
                None => return Err(ApiError::unavailable("the daemon is stopping")),
                Some(Decision::Refuse(error)) => {
                    waits.undecided = false;
                    return Err(refused(error, failed));
                }
                Some(Decision::Serve(serve, token)) => {
                    waits.undecided = false;
                    match self.ask(*serve, token, &asked).await? {
                        Ok(answer) => return Ok(answer),
                        Err(kind) => failed = Some(kind),
                    }
                    // The kernel says what follows from the failure.
                    waits.undecided = true;
                }
            }
        }
    }

    /// Asks the model that the kernel has named. How it failed is known to the kernel, which decides what happens next.
    async fn ask(
        self: &Arc<Self>,
        serve: Serve,
        token: CancellationToken,
        asked: &Arc<Asked>,
    ) -> Answer<Result<aos_gateway::Relayed, FailureKind>> {
        let pid = serve.pid;
        let tries = if serve.once { Tries::none(pid) } else { Tries::uncounted() };
        let asker = Asker { tries, ..serve.id.into() };
        let mut serving = Serving::of(&serve, self.completions.clone());
        let (guard, looked_at) = (serve.guard, Arc::clone(asked));
        let looked =
            beside(asked.bytes(), move || guard.map_or(Ok(Looked::default()), |guard| look(&guard, &looked_at)));
        let looked = match looked.await? {
            Ok(looked) => looked,
            Err(failure) => return Ok(Err(serving.failed(failure))),
        };
        serving.classes = looked.classes;
        if looked.withheld {
            return Ok(Err(serving.failed(withheld(&serving.classes))));
        }
        serving.asked = true;
        let relayed = tokio::select! {
            biased;
            () = token.cancelled() => Err(Refusal::Failed(cancelled())),
            relayed = self.pool.relay(&serve.model, asked, serve.max_output, asker, looked.veil) => relayed,
        };
        match relayed {
            Ok(mut relayed) => {
                let (status, content_type) = (relayed.status, relayed.content_type);
                let body = match relayed.until() {
                    None => {
                        let whole = relayed.next().await;
                        // The model is done, whatever its program does.
                        serving.relayed = Some(relayed);
                        drop(serving);
                        let whole = match whole {
                            Some(whole) => Some(Ok(self.backlogs.hold(pid, whole, &token).await?)),
                            None => None,
                        };
                        stream::iter(whole).boxed()
                    }
                    Some(until) => {
                        serving.relayed = Some(relayed);
                        let pieces = stream::unfold(serving, |mut serving| async move {
                            serving.next().await.map(|piece| (piece, serving))
                        });
                        self.backlogs.read(pid, pieces.boxed(), until, token)
                    }
                };
                Ok(Ok(aos_gateway::Relayed { status, content_type, model: serve.model, body }))
            }
            Err(Refusal::Failed(failure)) => Ok(Err(serving.failed(failure))),
            Err(Refusal::Misfit(wrong)) => {
                let failure = Failure { kind: FailureKind::Refused, message: wrong.message.clone(), ..cancelled() };
                serving.failed(failure);
                Err(misfit(wrong))
            }
        }
    }

    /// How many requests were refused without an entry: the next one says so.
    fn unsaid(&self, pid: Pid) -> u64 {
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid).unwrap_or(0)
    }

    fn left_unsaid(&self, pid: Pid, requests: u64) {
        *self.unsaid.lock().unwrap_or_else(PoisonError::into_inner).entry(pid).or_default() += requests;
    }

    fn wait(self: &Arc<Self>, pid: Pid) -> Waits {
        let request = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, decided) = mpsc::unbounded_channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(request, sender);
        Waits { relays: Arc::clone(self), pid, request, undecided: true, decided }
    }
}

/// A request that waits for the kernel's word.
struct Waits {
    relays: Arc<Relays>,
    pid: Pid,
    request: u64,
    /// The kernel has not let it begin, or has not said what follows from a failure.
    undecided: bool,
    decided: mpsc::UnboundedReceiver<Decision>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        // First, so that who decides from here on learns that nobody waits.
        self.decided.close();
        self.relays.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request);
        if self.undecided {
            // Dropped by the loop where it does not wait there any more.
            let _ = self.relays.completions.send((self.pid, Body::Withdrawn { request: self.request }));
        }
        // What was decided meanwhile comes to its end here.
        while let Ok(decision) = self.decided.try_recv() {
            if let Decision::Serve(serve, _) = decision {
                Serving::of(&serve, self.relays.completions.clone()).failed(unasked());
            }
        }
    }
}

/// A request at a model. Its end is told once, when this is dropped: as soon as the model is done.
struct Serving {
    pid: Pid,
    effect: aos_abi::EffectId,
    since: Instant,
    classes: BTreeSet<String>,
    /// By which rule it is not sent as it is.
    rule: Option<String>,
    /// Its model was asked: from then on it may have to be paid, whoever hears the answer.
    asked: bool,
    relayed: Option<Relayed>,
    failure: Option<Failure>,
    completions: mpsc::UnboundedSender<Completion>,
}

impl Serving {
    fn of(serve: &Serve, completions: mpsc::UnboundedSender<Completion>) -> Serving {
        Serving {
            pid: serve.pid,
            effect: serve.id,
            since: Instant::now(),
            classes: BTreeSet::new(),
            rule: serve.guard.as_ref().and_then(|guard| guard.rule.as_deref()).map(str::to_owned),
            asked: false,
            relayed: None,
            failure: None,
            completions,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.relayed.as_mut()?.next().await
    }

    fn failed(&mut self, failure: Failure) -> FailureKind {
        let kind = failure.kind;
        self.failure = Some(failure);
        kind
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let outcome = match (self.failure.take(), &self.relayed) {
            (Some(failure), _) => ServedOutcome::Failed { failure },
            (None, Some(relayed)) => {
                let ended = relayed.ended();
                ServedOutcome::Answered { usage: ended.usage, whole: ended.whole }
            }
            // The program hung up before the model had answered.
            (None, None) => ServedOutcome::Failed { failure: if self.asked { hung_up() } else { unasked() } },
        };
        let (classes, rule) = (std::mem::take(&mut self.classes), self.rule.take());
        let personal = (!classes.is_empty()).then(|| Box::new(Personal { classes, rule, ..Personal::default() }));
        let latency_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let body = Body::Served { effect: self.effect, latency_ms, personal, outcome };
        // The loop is gone only when the daemon stops; the next start settles it.
        let _ = self.completions.send((self.pid, body));
    }
}

/// How many tokens a request in Anthropic's format has, estimated as it is before its model is asked.
pub(crate) async fn count_tokens(body: Bytes) -> Answer<u64> {
    let bytes = body.len();
    let asked = beside(bytes, move || Asked::read(Format::Messages, body)).await?.map_err(misfit)?;
    Ok(asked.input_tokens())
}

/// What looking at a request came to.
#[derive(Default)]
struct Looked {
    classes: BTreeSet<String>,
    withheld: bool,
    veil: Option<Box<dyn Veil>>,
}

/// Looks at a request for personal data. Where looking fails nothing is sent.
fn look(guard: &Guard, asked: &Asked) -> Result<Looked, Failure> {
    unbroken(|| {
        let (mut classes, mut unknown) = (BTreeSet::new(), None);
        let mut tokens = Tokens::default();
        let read = asked.texts(&mut |field, text| {
            match guard.detector.find_after(field, text) {
                Ok(found) => classes.extend(found.into_iter().map(|found| found.class.to_string())),
                Err(why) => unknown = Some(why),
            }
            tokens.avoid(text);
        });
        match read {
            // Tokens in numbers cannot be looked at; where nothing is kept back whatever is found, they go as they are.
            Err(_) if asked.format() == Format::Embeddings && matches!(guard.then, Then::Tell) => {
                return Ok(Looked::default());
            }
            Err(wrong) => {
                let (kind, message, hint) = (FailureKind::Refused, wrong.message, wrong.hint);
                return Err(Failure { kind, message, hint, ..cancelled() });
            }
            Ok(()) => {}
        }
        match (unknown, guard.then) {
            (Some(why), _) => Err(not_known(why)),
            _ if classes.is_empty() => Ok(Looked::default()),
            (None, Then::Tell) => Ok(Looked { classes, ..Looked::default() }),
            (None, Then::Withhold) => Ok(Looked { classes, withheld: true, veil: None }),
            (None, Then::Replace) => {
                let veil = Replaced { detector: Arc::clone(&guard.detector), tokens };
                Ok(Looked { classes, withheld: false, veil: Some(Box::new(veil)) })
            }
        }
    })
}

/// Tokens in the place of personal data.
struct Replaced {
    detector: Arc<Detector>,
    tokens: Tokens,
}

impl Veil for Replaced {
    fn hide(&mut self, field: &str, text: &str) -> Option<String> {
        // It was looked at a moment ago; what cannot be any more does not go.
        self.tokens.replace(&self.detector, field, text).unwrap_or_else(|_| Some(String::new()))
    }

    fn lift(&mut self, reply: &mut Reply) {
        fill(&self.tokens, reply);
    }
}

/// Does what takes as long as a request is, beside everything else where that is long.
async fn beside<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    if bytes < LONG {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(error.to_string()))
}

/// Why a request gets no answer. That a model's server failed is told as that of a server behind this one: what may pass
/// with 503, what the owner must mend with 502. What is longer than its window is told by the code that clients cut by.
fn refused(error: CallError, failed: Option<FailureKind>) -> ApiError {
    let status = match (error.code, error.retry_after_ms) {
        (Code::Io, Some(_)) => Some(503),
        (Code::Io, None) => Some(502),
        _ => None,
    };
    let too_long = failed == Some(FailureKind::TooLong) && error.code == Code::Inval;
    let error = ApiError::from(error);
    let code = if too_long { "context_length_exceeded".to_owned() } else { error.code };
    ApiError { status: status.unwrap_or(error.status), code, ..error }
}

fn misfit(wrong: Misfit) -> ApiError {
    let error = CallError::new(Code::Inval, wrong.message);
    ApiError::from(match wrong.hint {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

/// Why nothing more of an answer comes.
pub(super) fn taken_back() -> ApiError {
    ApiError::forbidden("the key has ended while this was answered: it was taken back, or its time is over")
        .hint("`aos ps --all` shows why; `aos models key` makes another one")
}

/// The same before its model was asked anything, which costs nothing.
fn unasked() -> Failure {
    Failure { usage: Some(Usage::default()), ..hung_up() }
}

fn hung_up() -> Failure {
    Failure { message: "the program hung up".into(), ..cancelled() }
}
