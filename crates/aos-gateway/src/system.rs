//! The system as the HTTP interface sees it: one trait, which the daemon implements and tests imitate.
//!
//! Start at [`System`]. What always holds: a request that changes something is durable when its future resolves.
//! Deliberately absent: tokens, headers and statuses other than those of errors; they are the gateway's business.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use serde_json::Value;

use aos_abi::api::{
    Accepted, ApproveRequest, AuditRequest, AuditView, BackupRequest, CostView, ExplainRequest, ExplainView,
    ForkRequest, GroupSignalled, InputRequest, KeyMade, KeyRequest, ModelView, ProposalView, PruneRequest, PruneView,
    RejectRequest, ReplayView, RouteRequest, RouteView, SignalRequest, SpawnRequest, Started, UndoRequest, UndoView,
};
use aos_abi::inference::Format;
use aos_abi::process::{BudgetSpec, HeldTimer, PolicyView, ProcessDetail, ProcessView, StatusView};
use aos_abi::{Entry, Lsn, Pid, Timestamp};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::query::{CostBy, MemoryExportQuery, MemoryListQuery, MemorySearchQuery, ProcessesQuery};
use crate::subscription::Subscription;

/// What a request came to.
pub type Answer<T> = Result<T, ApiError>;

/// Everything the HTTP interface can ask of the system. Errors carry their HTTP status ([`ApiError`]); a
/// [`aos_abi::CallError`] converts into one.
///
/// # Cancel safety
/// Any future may be dropped, since a client hangs up or a deadline passes: what it asked for is then done wholly or
/// not at all.
pub trait System: Send + Sync + 'static {
    /// The daemon and its processes in numbers.
    fn status(&self) -> impl Future<Output = Answer<StatusView>> + Send;
    /// Starts a process.
    fn spawn(&self, request: SpawnRequest) -> impl Future<Output = Answer<Started>> + Send;
    /// Some of the process table, those after `after` in order of pid, and where to go on; `None` at the end. A piece may be
    /// empty before the end.
    fn processes(
        &self,
        wanted: &ProcessesQuery,
        after: Pid,
    ) -> impl Future<Output = Answer<(Vec<ProcessView>, Option<Pid>)>> + Send;
    /// The timers of processes after `after`, likewise in pieces.
    fn timers(&self, after: Pid) -> impl Future<Output = Answer<(Vec<HeldTimer>, Option<Pid>)>> + Send;
    /// A person cancels a timer of a process.
    fn unschedule(&self, pid: Pid, timer_id: String) -> impl Future<Output = Answer<Accepted>> + Send;
    /// Everything about one process, exited ones included; `ESRCH` where there never was one or it was pruned.
    fn process(&self, pid: Pid) -> impl Future<Output = Answer<ProcessDetail>> + Send;
    /// Text for its standard input.
    fn input(&self, pid: Pid, request: InputRequest) -> impl Future<Output = Answer<Accepted>> + Send;
    /// A signal.
    fn signal(&self, pid: Pid, request: SignalRequest) -> impl Future<Output = Answer<Accepted>> + Send;
    /// A signal to every living process of a group; `ESRCH` where there is none.
    fn signal_group(
        &self,
        group: String,
        request: SignalRequest,
    ) -> impl Future<Output = Answer<GroupSignalled>> + Send;
    /// A second process from its past.
    fn fork(&self, pid: Pid, request: ForkRequest) -> impl Future<Output = Answer<Accepted>> + Send;
    /// Its decisions made again, up to `at` or to its end.
    fn replay(&self, pid: Pid, at: Option<Lsn>) -> impl Future<Output = Answer<ReplayView>> + Send;
    /// Other limits for it.
    fn budget(&self, pid: Pid, budget: BudgetSpec) -> impl Future<Output = Answer<Accepted>> + Send;
    /// Waits until it has ended; `None` where it still runs when the time is up.
    fn wait(&self, pid: Pid, timeout: Duration) -> impl Future<Output = Answer<Option<ProcessView>>> + Send;

    /// What happens from now on: every committed entry in order, and progress. An entry is sent only once
    /// [`System::entries`] would return it, so that whoever subscribes first and reads then misses nothing.
    fn subscribe(&self) -> Subscription;
    /// The journal as lines of JSON that prove themselves: the entries after `after`, each with its hash. At most `limit`,
    /// and fewer where they are large; none only at the end.
    fn audit_lines(&self, after: Lsn, limit: usize) -> impl Future<Output = Answer<Vec<(Lsn, String)>>> + Send;
    /// The last entry before a moment; zero where there is none.
    fn entry_before(&self, moment: Timestamp) -> impl Future<Output = Answer<Lsn>> + Send;
    /// Entries from the journal in order: those after `after`, of one process or of all. At most `limit`, and fewer
    /// where they are large (some mebibytes together at most); none only at the end of the journal.
    fn entries(
        &self,
        pid: Option<Pid>,
        after: Lsn,
        limit: usize,
    ) -> impl Future<Output = Answer<Vec<Arc<Entry>>>> + Send;

    /// Pending proposals; with `all` those that are over too.
    fn proposals(&self, all: bool) -> impl Future<Output = Answer<Vec<ProposalView>>> + Send;
    /// A person says yes.
    fn approve(&self, id: &str, request: ApproveRequest) -> impl Future<Output = Answer<ProposalView>> + Send;
    /// A person says no, or takes back what waits in its window.
    fn reject(&self, id: &str, request: RejectRequest) -> impl Future<Output = Answer<ProposalView>> + Send;
    /// A person takes back what was done.
    fn undo(&self, id: &str, request: UndoRequest) -> impl Future<Output = Answer<UndoView>> + Send;
    /// What the policy would say to a call.
    fn explain(&self, request: ExplainRequest) -> impl Future<Output = Answer<ExplainView>> + Send;
    /// Takes the policy file as it is now, or refuses it whole.
    fn policy_reload(&self) -> impl Future<Output = Answer<PolicyView>> + Send;

    /// The configured models.
    fn models(&self) -> impl Future<Output = Answer<Vec<ModelView>>> + Send;
    /// Which models would serve a task.
    fn model_route(&self, request: RouteRequest) -> impl Future<Output = Answer<RouteView>> + Send;
    /// Makes a program and its key.
    fn make_key(&self, request: KeyRequest) -> impl Future<Output = Answer<KeyMade>> + Send;
    /// Whose key this is, by the SHA-256 of the key in lower-case hex; `None` where it was never given out or was taken back.
    fn program(&self, key_sha256: &str) -> impl Future<Output = Answer<Option<Pid>>> + Send;
    /// The models that a program may name.
    fn program_models(&self, pid: Pid) -> impl Future<Output = Answer<Vec<ModelView>>> + Send;
    /// Asks a model for a program, in the program's own words. It has no deadline but the model's; whoever drops the future,
    /// or the body of the answer, ends the exchange.
    fn relay(&self, pid: Pid, said: Said) -> impl Future<Output = Answer<Relayed>> + Send;
    /// How many tokens a request in Anthropic's format has, estimated; no model is asked.
    fn count_tokens(&self, body: Bytes) -> impl Future<Output = Answer<u64>> + Send;
    /// What was spent.
    fn cost(&self, by: CostBy) -> impl Future<Output = Answer<CostView>> + Send;

    /// The best hits for some words.
    fn memory_search(&self, query: MemorySearchQuery) -> impl Future<Output = Answer<Value>> + Send;
    /// What is remembered, newest first.
    fn memory_list(&self, query: MemoryListQuery) -> impl Future<Output = Answer<Value>> + Send;
    /// One memory.
    fn memory_show(&self, id: &str) -> impl Future<Output = Answer<Value>> + Send;
    /// Forgets one memory.
    fn memory_forget(&self, id: &str) -> impl Future<Output = Answer<Value>> + Send;
    /// One page of an export: at most `limit` objects in a fixed order, each with a text `id`, those after the object
    /// with the id `after`; none only at the end.
    fn memory_export(
        &self,
        query: MemoryExportQuery,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Answer<Vec<Value>>> + Send;

    /// Who owns a path below `/hooks/`, if anybody.
    fn webhook_route(&self, path: &str) -> impl Future<Output = Answer<Option<WebhookRoute>>> + Send;
    /// Journals a request for an agent and waits [`WebhookCall::reply_within`] for its answer. `EAGAIN` where the
    /// process's queue is full.
    fn webhook(&self, call: WebhookCall) -> impl Future<Output = Answer<WebhookDelivery>> + Send;

    /// The requests for webhooks that were journaled since a moment.
    fn webhooks_since(&self, moment: Timestamp) -> impl Future<Output = Answer<Vec<TakenWebhook>>> + Send;

    /// Whether the journal is what was written.
    fn audit_verify(&self, request: AuditRequest) -> impl Future<Output = Answer<AuditView>> + Send;
    /// A consistent copy of the home.
    fn backup(&self, request: BackupRequest) -> impl Future<Output = Answer<()>> + Send;
    /// Takes exited processes out of the journal.
    fn prune(&self, request: PruneRequest) -> impl Future<Output = Answer<PruneView>> + Send;
    /// Begins to end the daemon; resolves at once.
    fn shutdown(&self) -> impl Future<Output = Answer<()>> + Send;
    /// Counters and gauges.
    fn metrics(&self) -> impl Future<Output = Answer<Metrics>> + Send;
    /// Whether it takes work. Anybody may ask, so an error must tell strangers nothing.
    fn health(&self) -> impl Future<Output = Answer<()>> + Send;
}

/// What a program says to a model.
#[derive(Clone, Debug)]
pub struct Said {
    /// The format that it speaks.
    pub format: Format,
    /// The body as it came.
    pub body: Bytes,
    /// `anthropic-beta`, where it says so: several are one list.
    pub betas: Option<String>,
}

/// What a model answers to a program.
pub struct Relayed {
    /// The HTTP status: 200, or what the model's server said to a request that is wrong in itself.
    pub status: u16,
    /// `text/event-stream` for a stream, which is passed on piece by piece; anything else is collected first.
    pub content_type: &'static str,
    /// The configured name of the model that serves.
    pub model: String,
    /// The answer. One that its server breaks off says so itself, in its format; an error ends it where the program may
    /// have no more of it.
    pub body: BoxStream<'static, Answer<Bytes>>,
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayed").field("status", &self.status).field("model", &self.model).finish_non_exhaustive()
    }
}

/// Who owns a webhook path.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookRoute {
    /// The process.
    pub pid: Pid,
    /// The key that signs requests; `None`: anybody may call it.
    pub secret: Option<String>,
    /// Seconds a caller waits for the agent's answer; 0: callers are not kept waiting.
    pub reply_within_s: u64,
}

impl fmt::Debug for WebhookRoute {
    /// The secret stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookRoute")
            .field("pid", &self.pid)
            .field("signed", &self.secret.is_some())
            .field("reply_within_s", &self.reply_within_s)
            .finish()
    }
}

/// A request for an agent, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookCall {
    /// The process that owns the path.
    pub pid: Pid,
    /// `POST` and so on.
    pub method: String,
    /// Below `/hooks/`, percent-decoded.
    pub path: String,
    /// What follows `?`, as sent.
    pub query: Option<String>,
    /// Names in lower case; without those that only concern the connection and without credentials.
    pub headers: BTreeMap<String, String>,
    /// The body, at most [`aos_abi::limits::WEBHOOK_BODY_BYTES_MAX`] bytes.
    pub body: Bytes,
    /// How long the caller waits for an answer; zero: not at all.
    pub reply_within: Duration,
    /// When it came.
    pub at: Timestamp,
}

/// A request for an agent that the journal has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenWebhook {
    /// Below `/hooks/`, percent-decoded, with what followed `?`.
    pub path: String,
    /// As in [`WebhookCall::headers`].
    pub headers: BTreeMap<String, String>,
    /// When it was journaled.
    pub at: Timestamp,
}

/// What became of a request for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// The id under which the agent got it.
    pub request_id: String,
    /// The agent's answer; `None` where it gave none in time.
    pub answer: Option<WebhookAnswer>,
}

/// An agent's answer to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}
