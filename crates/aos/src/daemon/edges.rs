//! The edges: effects of the kernel, performed; outcomes, brought back.
//!
//! Start at [`Edges::perform`]. Each effect is one tracked task with a token by which it is cancelled; its outcome goes
//! back to the loop as an input. What always holds: every inference and every call comes back with exactly one
//! outcome, also when it is cancelled, panics or its driver fails.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::entry::{Examined, InferenceOutcome, Outcome, Purpose};
use aos_abi::inference::{Failure, FailureKind};
use aos_abi::process::Workspace;
use aos_abi::syscall::{Handler, Risk};
use aos_abi::{Body, CallError, CallId, Code, EffectId, Entry, Pid, Syscall};
use aos_drivers::fs::{self, Keeping, Place, Seen};
use aos_gateway::{Live, Subscription, WebhookAnswer};
use aos_kernel::effect::{Authority, Effect};
use aos_policy::{Labels, Permit, Policy};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::drivers::Drivers;
use super::found::Found;
use super::heart::Completion;
use super::history::History;
use super::inference::Models;
use super::relay::Relays;
use super::requests::Requests;
use super::undo::{Note, Undo, Wants};

/// Live events a slow watcher may be behind; beyond, it goes back to the journal.
const LIVE_MAX: usize = 4096;

/// Everything outside the kernel that the daemon can reach.
pub(crate) struct Edges {
    runtime: tokio::runtime::Handle,
    completions: mpsc::UnboundedSender<Completion>,
    history: Arc<History>,
    models: Arc<Models>,
    drivers: Arc<Drivers>,
    undo: Arc<Undo>,
    counters: Arc<Counters>,
    relays: Arc<Relays>,
    workspaces: PathBuf,
    live: broadcast::Sender<Live>,
    tasks: TaskTracker,
    under_way: Mutex<HashMap<EffectId, CancellationToken>>,
    /// HTTP callers that wait for an agent's answer, by request.
    callers: Mutex<HashMap<String, oneshot::Sender<WebhookAnswer>>>,
}

impl Edges {
    /// Edges that bring their outcomes back through `completions`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the daemon")]
    pub(crate) fn new(
        runtime: tokio::runtime::Handle,
        completions: mpsc::UnboundedSender<Completion>,
        history: Arc<History>,
        models: Arc<Models>,
        drivers: Arc<Drivers>,
        undo: Arc<Undo>,
        counters: Arc<Counters>,
        relays: Arc<Relays>,
        workspaces: PathBuf,
    ) -> Edges {
        let (live, _) = broadcast::channel(LIVE_MAX);
        // A workspace is opened through no link.
        let workspaces = workspaces.canonicalize().unwrap_or(workspaces);
        Edges {
            runtime,
            completions,
            history,
            models,
            drivers,
            undo,
            counters,
            relays,
            workspaces,
            live,
            tasks: TaskTracker::new(),
            under_way: Mutex::default(),
            callers: Mutex::default(),
        }
    }

    /// Entries that a coming prompt may show.
    pub(crate) fn remember(&self, entries: &[Arc<Entry>]) {
        self.history.remember(entries);
    }

    /// Puts away what was built for a process that was not born then, before another one gets its number.
    pub(crate) fn unborn(&self, pid: Pid) {
        let folder = self.workspaces.join(pid.to_string());
        self.undo.copied_no_more(&folder);
        if folder.symlink_metadata().is_ok()
            && let Err(error) = super::left::put(&folder, &self.workspaces, pid, std::time::SystemTime::now())
        {
            tracing::warn!(folder = %folder.display(), %error, "what was built for a process that is not born stays");
        }
    }

    /// Nothing happens: what is kept only to be quick is given back.
    pub(crate) fn rest(&self) {
        self.history.rest();
    }

    /// What serves programs.
    pub(crate) fn relays(&self) -> &Arc<Relays> {
        &self.relays
    }

    /// Whether the disk has room for what comes from outside and is journaled.
    ///
    /// # Errors
    /// `ENOSPC` where what is left is the daemon's.
    pub(crate) fn has_room(&self) -> Result<(), CallError> {
        self.drivers.has_room()
    }

    /// Tells whoever watches that these entries are durable.
    pub(crate) fn announce(&self, entries: Vec<Arc<Entry>>) {
        self.counters.count(&entries);
        self.relays.follow(&entries);
        for entry in &entries {
            match &entry.body {
                Body::Served { effect, .. } => {
                    self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(effect);
                }
                Body::Exited { .. } => self.models.ended(entry.pid),
                _ => {}
            }
        }
        for entry in &entries {
            let Body::Changed(changed) = &entry.body else { continue };
            let (undo, changed) = (Arc::clone(&self.undo), changed.clone());
            // A file is made for it, and this is the journal's thread, for which everyone waits.
            self.tasks.spawn_blocking_on(move || undo.told(&changed), &self.runtime);
        }
        if self.live.receiver_count() == 0 {
            return;
        }
        for entry in entries {
            // Nobody may be watching any more.
            let _ = self.live.send(Live::Entry(entry));
        }
    }

    /// What happens from now on.
    pub(crate) fn subscribe(&self) -> Subscription {
        Subscription::new(self.live.subscribe())
    }

    /// Begins an effect. Never blocks; called from the loop and from the journal's thread.
    pub(crate) fn perform(self: &Arc<Self>, effect: Effect) {
        match effect {
            Effect::Infer(infer) => {
                let (id, pid) = (infer.id, infer.pid);
                let (models, history) = (Arc::clone(&self.models), Arc::clone(&self.history));
                let live = self.live.clone();
                let completions = self.completions.clone();
                // The loop is gone only when the daemon stops.
                let silent = move || _ = completions.send((pid, Body::Silent { effect: id }));
                let broken = move || Body::InferenceCompleted {
                    effect: id,
                    latency_ms: 0,
                    personal: None,
                    outcome: inference_broke(),
                };
                self.track(id, pid, broken, move |token| async move {
                    let started = std::time::Instant::now();
                    let (outcome, personal) = models.infer(&infer, &history, &live, token, silent).await;
                    let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    debug_assert!(infer.purpose != Purpose::Request);
                    Body::InferenceCompleted { effect: id, latency_ms, personal, outcome }
                });
            }
            Effect::Serve(serve) => {
                let token = CancellationToken::new();
                self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(serve.id, token.clone());
                self.relays.serve(serve, token);
            }
            Effect::Refuse { request, error } => self.relays.refuse(request, error),
            Effect::Call { id, pid, call_id, permit, workspace, authority, bound, proposed, .. } => {
                let place = self.place(&workspace, &authority.policy, &authority.role);
                self.call(Job { id, pid, call_id, permit, place, authority, bound, proposed });
            }
            Effect::Examine { pid, id, call, workspace, role } => {
                let (place, completions) = (self.place_now(&workspace, &role), self.completions.clone());
                let look = move || {
                    let Seen { files, diff, unbound } = fs::examine(&place, &call);
                    // The loop is gone only when the daemon stops; the next one looks again.
                    let _ = completions.send((pid, Body::Examined(Box::new(Examined { id, files, diff, unbound }))));
                };
                self.tasks.spawn_blocking_on(look, &self.runtime);
            }
            Effect::Cancel(id) => {
                let token = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
                if let Some(token) = token {
                    token.cancel();
                }
            }
            Effect::Policy(policy) => self.drivers.adopt(policy),
            Effect::Watch { pid, watch_id, workspace, role, path, glob } => {
                let order = super::drivers::watch_order(self.place_now(&workspace, &role), path, glob);
                self.drivers.watch(&self.runtime, self.completions.clone(), pid, watch_id, order);
            }
            Effect::Unwatch { pid, watch_id } => self.drivers.unwatch(pid, &watch_id),
            Effect::WebhookReply { request_id, status, headers, body } => {
                let caller = self.callers.lock().unwrap_or_else(PoisonError::into_inner).remove(&request_id);
                if let Some(caller) = caller {
                    // The caller may have hung up.
                    let _ = caller.send(WebhookAnswer { status, headers: headers.into_iter().collect(), body });
                }
            }
        }
    }

    /// A caller that waits for an agent's answer.
    pub(crate) fn expect_answer(&self, request_id: &str) -> oneshot::Receiver<WebhookAnswer> {
        let (sender, answer) = oneshot::channel();
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).insert(request_id.to_owned(), sender);
        answer
    }

    /// A caller that waits no longer.
    pub(crate) fn forget_answer(&self, request_id: &str) {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).remove(request_id);
    }

    /// Cancels what is under way and waits for it.
    pub(crate) async fn close(&self) {
        let tokens: Vec<CancellationToken> =
            self.under_way.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        // Tasks end without an outcome: after the next start the kernel recovers each by its rule.
        tokens.iter().for_each(CancellationToken::cancel);
        self.drivers.close();
        self.relays.close().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The folder of a workspace; one in the home is made where it is missing, as for a child with its own.
    pub(crate) fn folder(&self, workspace: &Workspace) -> PathBuf {
        match workspace {
            Workspace::Home(pid) => {
                let folder = self.workspaces.join(pid.to_string());
                if !folder.is_dir()
                    && let Err(error) = std::fs::create_dir_all(&folder)
                {
                    // The call that wants it fails with the driver's own words.
                    tracing::warn!(folder = %folder.display(), %error, "no workspace could be made");
                }
                folder
            }
            Workspace::Folder(path) => PathBuf::from(path),
        }
    }

    /// Where a process's files are, with the mounts of its role.
    fn place(&self, workspace: &Workspace, policy: &Policy, role: &str) -> Place {
        Place { root: self.folder(workspace), mounts: self.drivers.mounts().placed(policy.mounts_of(role)) }
    }

    /// The same under the policy that holds now.
    fn place_now(&self, workspace: &Workspace, role: &str) -> Place {
        let policy = self.drivers.policy().borrow().clone();
        self.place(workspace, &policy, role)
    }

    /// Runs an effect as a task that comes back with exactly one outcome; `broken` is that of one that panics.
    fn track<F, T>(self: &Arc<Self>, id: EffectId, pid: Pid, broken: impl FnOnce() -> Body + Send + 'static, make: F)
    where
        F: FnOnce(CancellationToken) -> T,
        T: Future<Output = Body> + Send + 'static,
    {
        let token = CancellationToken::new();
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id, token.clone());
        let work = make(token);
        let edges = Arc::clone(self);
        self.tasks.spawn_on(
            async move {
                let body = settled(work, broken).await;
                edges.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                // The loop is gone only when the daemon stops.
                let _ = edges.completions.send((pid, body));
            },
            &self.runtime,
        );
    }

    fn call(self: &Arc<Self>, job: Job) {
        let edges = Arc::clone(self);
        let (id, call_id, name) = (job.id, job.call_id.clone(), job.permit.call().name());
        let broken = move || {
            let outcome = Outcome::Error { error: driver_broke() };
            Body::Result { call_id, name: name.as_str().to_owned(), effect: Some(id), outcome }
        };
        self.track(job.id, job.pid, broken, move |token| async move {
            let (id, call_id, name) = (job.id, job.call_id.clone(), job.permit.call().name());
            let proposed = job.proposed.clone();
            let result = edges.dispatch(job, token).await.map_err(|error| error.or_example(name));
            let result = match &proposed {
                Some(id) => aos_kernel::told_of(id, result),
                None => result,
            };
            let outcome = Outcome::from(bounded(result));
            Body::Result { call_id, name: name.as_str().to_owned(), effect: Some(id), outcome }
        });
    }

    /// Work that goes on also where whoever asked for it hangs up; the daemon waits for it before it ends.
    pub(crate) fn apart<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.tasks.spawn_on(work, &self.runtime)
    }

    /// Takes a call to its driver.
    async fn dispatch(&self, job: Job, token: CancellationToken) -> Result<Value, CallError> {
        let Job { id, call_id, permit, place, authority, bound, .. } = job;
        let drivers = Arc::clone(&self.drivers);
        drivers.has_room()?;
        if let Syscall::FsRead(read) = permit.call()
            && let Some(lsn) = super::handles::parse(&read.path)
        {
            let (offset, limit) = (read.offset, read.limit);
            let (history, pid) = (Arc::clone(&self.history), permit.pid());
            return blocking(move || super::handles::read(&history, pid, lsn, offset, limit)).await;
        }
        let spec = permit.call().name().spec();
        let labelled = !authority.labels.and(authority.files).is_empty();
        // What a person has seen, they may let be replaced for good.
        let unseen = bound.is_none() && authority.labels.and(authority.files).any_of(Labels::UNTRUSTED);
        match spec.handler {
            Handler::Files if spec.risk == Risk::Read => {
                let _slot = drivers.slot(permit.call(), &authority, &token).await?;
                blocking(move || {
                    held(bound.as_deref(), &place, permit.call())?;
                    drivers.files(permit, &place, None, &token).answer
                })
                .await
            }
            Handler::Files => {
                let wants = Wants { workspace: &place.root, mounted: &[], labelled };
                let _turn = self.undo.turn(wants, &token).await?;
                if unseen {
                    self.undo.can_hold(permit.pid())?;
                }
                let note = Note::of(id, &call_id, &permit).held(unseen).written();
                let Some(layer) = self.undo.layer(id) else {
                    return self.undo.made_before(id, permit.pid(), &call_id, permit.call());
                };
                let watch = self.undo.watch(id, &place.root);
                let (answer, told) = blocking(move || {
                    held(bound.as_deref(), &place, permit.call())?;
                    let done = drivers.files(permit, &place, Some(Keeping { layer, note }), &token);
                    Ok((done.answer, watch.took(done.committed)))
                })
                .await?;
                self.tell(told);
                answer
            }
            Handler::Memory => {
                let slot = drivers.slot(permit.call(), &authority, &token).await?;
                // A search that is given up goes on to its end, and holds its slot until then.
                blocking(move || {
                    let _slot = slot;
                    drivers.memory(id, permit)
                })
                .await
            }
            Handler::Exec => {
                let mounted: Vec<PathBuf> = place.mounts.iter().map(|mount| mount.host.clone()).collect();
                let wants = Wants { workspace: &place.root, mounted: &mounted, labelled };
                let _turn = self.undo.turn(wants, &token).await?;
                // After the turn: who holds a slot waits for nobody.
                let _slot = drivers.slot(permit.call(), &authority, &token).await?;
                if unseen {
                    self.undo.can_hold(permit.pid())?;
                }
                let note = Note::of(id, &call_id, &permit).held(unseen).written();
                // Commands are never repeated after a crash, so nothing is there yet.
                let layer = self.undo.layer(id).ok_or_else(|| CallError::new(Code::Intr, "it was begun before"))?;
                let folder = place.root.clone();
                let (looked_at, found) = (place.clone(), Found::of(&authority));
                let looked = move || {
                    place.check()?;
                    held(bound.as_deref(), &place, permit.call())?;
                    Ok((found.look(&place), permit))
                };
                let (found, permit) = blocking(looked).await?;
                let authority = found.narrow(authority);
                let requests = Requests::new(&authority, &call_id, self.completions.clone());
                let watch = self.undo.watch(id, &folder);
                let ran = drivers.exec(permit, folder, Keeping { layer, note }, &authority, requests, token).await?;
                let ended = move || {
                    let mut answer = ran.answer;
                    // What came to lie there meanwhile, it may have read.
                    found.look(&looked_at).tell(&mut answer);
                    Ok((answer, watch.took(ran.committed)))
                };
                let (answer, told) = blocking(ended).await?;
                self.tell(told);
                answer
            }
            Handler::Net => {
                let requests = Requests::new(&authority, &call_id, self.completions.clone());
                drivers.net(permit, &authority, requests, token).await
            }
            Handler::Kernel | Handler::Absent(_) => {
                Err(CallError::new(Code::Io, format!("{} has no driver", permit.call().name())))
            }
        }
    }

    /// Has a change journaled, before the result of its call.
    fn tell(&self, told: Option<(Pid, Body)>) {
        if let Some(told) = told {
            // The loop is gone only when the daemon stops; then the next start finds it.
            let _ = self.completions.send(told);
        }
    }
}

/// A call on its way to a driver.
pub(crate) struct Job {
    pub(crate) id: EffectId,
    pub(crate) pid: Pid,
    pub(crate) call_id: CallId,
    pub(crate) permit: Permit,
    pub(crate) place: Place,
    pub(crate) authority: Authority,
    pub(crate) bound: Option<Box<Examined>>,
    /// The proposal by which its process asked for it.
    pub(crate) proposed: Option<String>,
}

/// Whether the files that a person saw when they approved a call are still the same. Whoever asks keeps other changing
/// calls out of the workspace meanwhile. Blocking.
fn held(bound: Option<&Examined>, place: &Place, call: &Syscall) -> Result<(), CallError> {
    let Some(bound) = bound else { return Ok(()) };
    match fs::drift(&bound.files, &fs::examine(place, call).files) {
        None => Ok(()),
        Some(what) => Err(CallError::new(
            Code::Rejected,
            format!("the approval of {} does not hold any more: {what} has changed since it was shown", bound.id),
        )
        .hint("make the call again, so that a person sees what is there now")),
    }
}

/// What some work comes to, or `broken` where it panics: that ends its effect alone, and its process is told.
async fn settled(work: impl Future<Output = Body>, broken: impl FnOnce() -> Body) -> Body {
    // Nothing that the work shares is behind a lock that a panic leaves half-changed.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("an effect panicked");
        broken()
    })
}

/// The outcome of a call whose driver panicked.
fn driver_broke() -> CallError {
    CallError::new(Code::Io, "the driver failed unexpectedly").hint("the daemon's log says more")
}

/// The outcome of an inference that panicked: the kernel tries it again a few times.
fn inference_broke() -> InferenceOutcome {
    let failure = Failure {
        kind: FailureKind::Here,
        message: "the model edge failed unexpectedly".into(),
        hint: Some("the daemon's log says more".into()),
        retry_after_ms: None,
        usage: None,
        unreachable: false,
    };
    InferenceOutcome::Failed { failure }
}

/// Runs blocking work; a panic in it ends this call alone.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a driver failed");
            Err(driver_broke())
        }
    }
}

/// A result no larger than the journal takes, also where it is what a call that failed brought. Of one that is larger stays
/// what it carries: the call was made all the same.
fn bounded(result: Result<Value, CallError>) -> Result<Value, CallError> {
    let brought = result.as_ref().map_or_else(|error| error.partial.as_ref(), Some);
    let bytes = brought.map_or(0, aos_context::json_bytes);
    if bytes <= aos_abi::limits::RESULT_BYTES_MAX {
        return result;
    }
    let partial = brought.and_then(|brought| brought.get("label")).map(|label| json!({ "label": label }));
    let error = result.err().unwrap_or_else(|| {
        let most = aos_abi::limits::RESULT_BYTES_MAX;
        CallError::new(Code::Io, format!("the result holds {bytes} bytes, the most is {most}"))
            .hint("ask for less at once")
    });
    Err(CallError { partial, ..error })
}

#[cfg(test)]
mod tests;
