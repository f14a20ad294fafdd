//! The system as the HTTP interface sees it.
//!
//! What always holds: a change is durable when its future resolves; a look shows only what is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::api::{
    Accepted, ApproveRequest, AuditRequest, AuditView, BackupRequest, CostView, ExplainRequest, ExplainView,
    ForkRequest, GroupSignalled, InputRequest, KeyMade, KeyRequest, ModelView, ProposalView, PruneRequest, PruneView,
    Reach, RejectRequest, ReplayView, RouteRequest, RouteView, SignalRequest, SpawnRequest, Started, UndoRequest,
    UndoView,
};
use aos_abi::entry::{Key, Outcome, ProposalState, Verdict, WebhookRequest};
use aos_abi::process::{
    BudgetSpec, DEFAULT_ROLE, HeldTimer, Mode, PolicyView, Priority, ProcessDetail, ProcessView, SpawnSpec, State,
    StatusView, Workspace,
};
use aos_abi::{Body, CallError, Code, Entry, Lsn, Pid, Syscall, Timestamp};
use aos_gateway::query::{CostBy, MemoryExportQuery, MemoryListQuery, MemorySearchQuery, ProcessesQuery};
use aos_gateway::{
    Answer, ApiError, Live, Metrics, Next, Relayed, Said, Subscription, System, TakenWebhook, WebhookCall,
    WebhookDelivery, WebhookRoute,
};
use aos_journal::Journal;
use aos_policy::{Grants, Labels, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::drivers::Drivers;
use super::edges::Edges;
use super::ground::Ground;
use super::heart::{Handle, LiveKernel};
use super::memory::People;
use super::reload::Reload;
use super::undo::Undo;
use crate::env::Env;
use crate::home::Home;
use crate::mounts::Mounts;

/// Processes looked at in one go.
const LIST_PIECE: usize = 512;

/// Whoever says yes hears within this time that the call is not made after all; a command goes on for longer.
const HELD_WITHIN: Duration = Duration::from_secs(3);

/// The running daemon.
pub(crate) struct Daemon {
    pub(crate) heart: Handle,
    pub(crate) policy: Arc<Reload>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) edges: Arc<Edges>,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) proof: Arc<super::proof::Proof>,
    pub(crate) undo: Arc<Undo>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) home: Home,
    pub(crate) listen: String,
    /// Why it is not served there.
    pub(crate) taken: Option<String>,
    pub(crate) models: Vec<ModelView>,
    /// The files of local models, wherever they are.
    pub(crate) weights: Vec<PathBuf>,
    pub(crate) started: Instant,
    pub(crate) shutdown: CancellationToken,
}

/// Journal work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, aos_journal::Error> + Send + 'static,
) -> Answer<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(ApiError::internal(error.to_string()).hint(error.hint())),
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

impl Daemon {
    /// The grants of a new process that go beyond the role it is to have.
    fn beyond_role(&self, request: &SpawnRequest) -> Vec<String> {
        let policy = self.drivers.policy();
        let policy = policy.borrow();
        let role = request.policy_role.as_deref().unwrap_or_default();
        let (labels, given) = (Labels::NONE, aos_policy::Given::default());
        let subject = Subject { pid: Pid::INIT, role, chain: &[], labels, given, reaches: None };
        let exceeds = |text: &&String| {
            Grants::parse(&[text]).is_ok_and(|grant| policy.check_child(&subject, grant.as_slice()).is_err())
        };
        request.grants.iter().flatten().filter(exceeds).cloned().collect()
    }

    async fn change(&self, pid: Pid, body: Body) -> Answer<Accepted> {
        Ok(self.heart.change(move |_| Ok((pid, body))).await?)
    }

    /// Puts the files of a spawn where the new process will find them, and gives back their folder's place-holder.
    fn stage(&self, request: &SpawnRequest) -> Result<Option<tempfile::TempDir>, CallError> {
        if request.files.is_empty() {
            return Ok(None);
        }
        let failed =
            |error: std::io::Error| CallError::new(Code::Io, format!("the files could not be put in place: {error}"));
        let dir = tempfile::Builder::new()
            .prefix(super::folders::STAGED)
            .tempdir_in(self.home.workspaces())
            .map_err(failed)?;
        for file in &request.files {
            let bytes = BASE64
                .decode(&file.base64)
                .map_err(|error| CallError::new(Code::Inval, format!("`{}` is not base64: {error}", file.path)))?;
            let path = plain_path(&file.path)?;
            let target = dir.path().join(path);
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent).map_err(failed)?;
            }
            std::fs::write(target, bytes).map_err(failed)?;
        }
        Ok(Some(dir))
    }

    /// Reads of the processes after `after`, in memory and in the store, as many as may keep agents waiting, and the one to
    /// go on after; `None` at the end. Saved ones are read off the loop and leave nothing in memory.
    async fn glance<T: Send + 'static>(
        &self,
        after: Pid,
        read: impl FnOnce(&mut LiveKernel, &[Pid]) -> T + Send + 'static,
    ) -> Answer<(T, Option<Pid>)> {
        let reader = self.journal.reader();
        let stored = blocking(move || {
            let pages = reader.pages_after(after, LIST_PIECE)?;
            let saved: Vec<Pid> = pages.iter().map(|(pid, _)| *pid).collect();
            // A page that is none of ours, or damaged, is met by the kernel.
            let stored = pages.iter().filter_map(|(_, page)| aos_kernel::table::decode(page.as_ref()?).ok()).collect();
            Ok((saved, stored))
        });
        let (saved, stored) = stored.await?;
        let look = self.heart.look(move |kernel| {
            let pids = kernel.next_pids(after, &saved, LIST_PIECE);
            let seen = kernel.glance(stored, |kernel| read(kernel, &pids));
            (seen, pids.last().copied().filter(|_| pids.len() == LIST_PIECE))
        });
        Ok(look.await?)
    }

    /// Removes the workspaces and the own memory of processes that are no more, also what a power cut after an earlier prune
    /// left. A workspace that another process names as its own stays.
    async fn sweep(&self) -> Answer<()> {
        let next = self.heart.look(|kernel| kernel.next_pid()).await?;
        let folders = std::fs::read_dir(self.home.workspaces()).into_iter().flatten().flatten();
        // Read before the processes are, so that the folder of one that is just being born is not taken for old.
        let mut old: BTreeMap<Pid, PathBuf> = folders
            .filter_map(|folder| Some((Pid(folder.file_name().to_str()?.parse().ok()?), folder.path())))
            .collect();
        let (mut after, mut known) = (Some(Pid::SYSTEM), BTreeSet::new());
        while let Some(from) = after {
            let found = self.glance(from, |kernel, pids| {
                // Of some the store still has a page, though they are gone.
                let workspace = |pid: &Pid| Some((*pid, kernel.process(*pid)?.workspace.clone()));
                pids.iter().filter_map(workspace).collect::<Vec<_>>()
            });
            let (found, more) = found.await?;
            for (pid, workspace) in found {
                known.insert(pid);
                if let Workspace::Home(owner) = workspace {
                    old.remove(&owner);
                }
            }
            after = more;
        }
        let gone = blocking(move || Ok(removed(old.range(..next).map(|(_, folder)| &**folder)))).await?;
        self.memory(move |memory| memory.sweep(&known, next)).await?;
        gone
    }

    /// Whether an entry that somebody names is there: what is to come cannot be lived through.
    fn happened(&self, at: Option<Lsn>) -> Result<(), CallError> {
        let last = self.journal.last();
        let message = match at {
            Some(Lsn::ZERO) => "there is no entry 0, the first is 1".to_owned(),
            Some(at) if at > last => format!("there is no entry {at} yet, the last is {last}"),
            _ => return Ok(()),
        };
        Err(CallError::new(Code::NoEnt, message).hint("`aos logs PID --events` shows the number of each"))
    }

    /// The same, and before them the copy of a folder that a dry run works on.
    async fn staged(&self, request: &SpawnRequest) -> Answer<Option<tempfile::TempDir>> {
        let (true, Some(folder)) = (request.dry_run, &request.workspace) else { return Ok(self.stage(request)?) };
        let dir = self.copy_of(PathBuf::from(folder), "a dry run").await?;
        if let Some(files) = self.stage(request)? {
            let copied = files.path().canonicalize().and_then(|files| super::folders::copy_folder(&files, dir.path()));
            copied.map_err(|error| ApiError::internal(error.to_string()))?;
        }
        Ok(Some(dir))
    }

    /// The real path of a folder that a person names. One folder has one name here, or what is known of its files would be
    /// known under another. A folder that is mounted twice still has two (`docs/policy.md`): to go on under the other name
    /// could make a read-only view one that is written.
    async fn real_folder(&self, named: &str) -> Answer<String> {
        if !Path::new(named).is_dir() {
            return Err(
                ApiError::usage(format!("`{named}` is no folder")).hint("`workspace` is an existing folder, absolute")
            );
        }
        let (links, _) = super::folders::followed(Path::new(named));
        let real = Path::new(named).canonicalize().ok().and_then(|real| real.into_os_string().into_string().ok());
        let real = real.ok_or_else(|| {
            ApiError::usage(format!("`{named}` has no name in UTF-8")).hint("rename it, or name another folder")
        })?;
        self.keep_out(Path::new(&real))?;
        // Whoever wrote there may have put the link there: a folder that the person did not mean.
        let put = move |kernel: &mut LiveKernel| links.into_iter().find(|link| kernel.is_untrusted(link));
        let Some(link) = self.heart.look(put).await? else { return Ok(real) };
        let message = format!(
            "`{named}` leads through the link {}, in a folder that was changed after untrusted content was read",
            link.display()
        );
        Err(ApiError::usage(message).hint(format!("name {real} itself if that is the folder you mean")))
    }

    /// Refuses a real folder through which an agent would see the daemon's own files.
    fn keep_out(&self, folder: &Path) -> Answer<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let workspaces = real(&self.home.workspaces());
        let inside = |own: &PathBuf| own.starts_with(folder) || folder.starts_with(own);
        // What is known of the files of an agent's own workspace is known by its process alone.
        if folder.starts_with(&workspaces) {
            return Err(ApiError::usage(format!("{} is an agent's own workspace", folder.display()))
                .hint("`aos fork PID` goes on with a copy of it; or copy what you need to a folder of yours"));
        }
        let mut closed = self.home.real_paths().into_iter().chain(self.weights.iter().map(|path| real(path)));
        let Some(own) = closed.find(inside) else { return Ok(()) };
        let (folder, own) = (folder.display(), own.display());
        Err(ApiError::usage(format!("{folder} holds files of AOS itself, which no agent may see: {own}"))
            .hint("work on a folder below it or beside it"))
    }

    async fn memory<T: Send + 'static>(
        &self,
        read: impl FnOnce(&People<'_>) -> Result<T, ApiError> + Send + 'static,
    ) -> Answer<T> {
        let drivers = Arc::clone(&self.drivers);
        match tokio::task::spawn_blocking(move || drivers.remembered(read)).await {
            Ok(answer) => answer,
            Err(error) => Err(ApiError::internal(error.to_string())),
        }
    }

    /// Why a proposal cannot be answered: what became of it, where there was one.
    async fn not_open(&self, id: String) -> ApiError {
        let reader = self.journal.reader();
        let past = blocking(move || super::past::proposals(&reader)).await.unwrap_or_default();
        match past.into_iter().find(|past| past.id == id) {
            Some(past) => {
                // Some end without a word: with their process, or where others took their place.
                let open = matches!(past.state, ProposalState::Pending | ProposalState::Denied);
                let state = serde_json::to_value(past.state).unwrap_or_default();
                let state = state.as_str().filter(|_| !open).unwrap_or("over");
                let why = past.ended.map(|why| format!(": {why}")).unwrap_or_default();
                ApiError::new(409, "conflict", format!("{id} is {state} already{why}"))
                    .hint("an answer is given once; `aos proposals` lists what waits")
            }
            None => no_proposal(&id).into(),
        }
    }

    /// `shown` names what a yes is to.
    async fn answer_proposal(
        &self,
        id: &str,
        state: ProposalState,
        why: Option<String>,
        shown: Option<String>,
    ) -> Answer<ProposalView> {
        let wanted = id.to_owned();
        let known = {
            let wanted = wanted.clone();
            self.heart.look(move |kernel| kernel.proposal(&wanted)).await?
        };
        // To what stands there is only a no.
        let yes = matches!(state, ProposalState::Approved | ProposalState::Standing);
        let open = |state| matches!(state, ProposalState::Pending | ProposalState::Denied);
        let Some(mut view) = known.filter(|view| !yes || open(view.state)) else {
            return Err(self.not_open(wanted).await);
        };
        // A no to what would have run by itself.
        let state = match (state, view.state, view.verdict) {
            (ProposalState::Rejected, ProposalState::Pending, Verdict::Hold) => ProposalState::Vetoed,
            (state, ..) => state,
        };
        let body = Body::Proposal { id: wanted.clone(), state, proposal: None, why };
        // Only what people saw of files can have changed since.
        let waited = view.state == ProposalState::Pending && !view.files.is_empty();
        let mut follows = (yes && waited).then(|| self.edges.subscribe());
        let answered = self.heart.change(move |kernel| {
            let pid = kernel.proposal_owner(&wanted).ok_or_else(|| no_proposal(&wanted))?;
            if yes {
                kernel.check_shown(&wanted, shown.as_deref())?;
            }
            Ok((pid, body))
        });
        match answered.await {
            Ok(_) => {}
            // Somebody answered, or it ended, since it was looked at.
            Err(error) if error.code == Code::NoEnt => return Err(self.not_open(id.to_owned()).await),
            Err(error) => return Err(error.into()),
        }
        view.state = state;
        match follows.as_mut() {
            Some(live) => held(view, live).await,
            None => Ok(view),
        }
    }
}

/// What a yes comes to at once: that its call begins, or is to wait still.
///
/// # Errors
/// Why the call is not made after all, such as a file that is no longer what was shown.
async fn held(view: ProposalView, live: &mut Subscription) -> Answer<ProposalView> {
    let over = async {
        while let Next::Live(event) = live.next().await {
            let Live::Entry(entry) = event else { continue };
            match &entry.body {
                Body::Proposal { id, state: ProposalState::Expired, why, .. } if *id == view.id => return why.clone(),
                // What says that a yes does not hold comes before its end.
                Body::Result { outcome: Outcome::Error { error }, .. } if error.code == Code::Rejected => {}
                Body::Result { name, .. } if entry.pid == view.pid && *name == view.call.name => return None,
                _ => {}
            }
        }
        None
    };
    match tokio::time::timeout(HELD_WITHIN, over).await {
        Ok(Some(why)) => {
            let said = format!("the call of {} is not made: {why}", view.id);
            Err(ApiError::new(409, "conflict", said)
                .hint(format!("its agent was told; `aos logs {}` shows what it does instead", view.pid)))
        }
        Ok(None) | Err(_) => Ok(view),
    }
}

/// How many questions wait for a person; nobody waits for what was denied.
pub(super) fn pending(kernel: &mut super::heart::LiveKernel) -> usize {
    kernel.proposals().iter().filter(|one| one.state == ProposalState::Pending).count()
}

/// A path of plain names only, so that a staged file lands in its folder and nowhere else.
fn plain_path(path: &str) -> Result<&std::path::Path, CallError> {
    use std::path::Component;
    let plain = std::path::Path::new(path);
    let fine = !path.is_empty() && plain.components().all(|part| matches!(part, Component::Normal(_)));
    let refused = || {
        CallError::new(Code::Inval, format!("`{path}` is no path inside a workspace")).hint("names separated by `/`")
    };
    fine.then_some(plain).ok_or_else(refused)
}

fn no_proposal(id: &str) -> CallError {
    CallError::new(Code::NoEnt, format!("no open proposal `{id}`")).hint("`aos proposals` lists them")
}

impl System for Daemon {
    async fn status(&self) -> Answer<StatusView> {
        let look = |kernel: &mut super::heart::LiveKernel| {
            let generation = kernel.policy().generation().to_owned();
            let today = kernel.today(super::heart::now());
            (kernel.counts(), kernel.slots(), today, kernel.measured().changed.clone(), generation)
        };
        let (processes, model_slots, today, changed, generation) = self.heart.look(look).await?;
        Ok(StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os_pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            home: self.home.root().display().to_string(),
            listen: self.listen.clone(),
            taken: self.taken.clone(),
            processes,
            spent_today_usd: today.spent_usd,
            today,
            model_slots,
            lsn: self.journal.last(),
            changed,
            altered: self.proof.altered().or_else(|| self.journal.in_place().err().map(|error| error.to_string())),
            policy: PolicyView { generation, refused: self.policy.refused(), ended: 0 },
            lacks: self.ground.lacks().await,
            ahead_s: self.heart.ahead_s(),
        })
    }

    async fn spawn(&self, mut request: SpawnRequest) -> Answer<Started> {
        if request.mode == Mode::Program {
            return Err(ApiError::usage("a program is made with its key").hint("`aos models key NAME`"));
        }
        if request.mode == Mode::OneShot && request.task.as_deref().unwrap_or_default().trim().is_empty() {
            return Err(ApiError::usage("a one-shot process needs a task").hint("say what it should do in `task`"));
        }
        if let Some(folder) = &mut request.workspace {
            *folder = self.real_folder(folder).await?;
        }
        if request.untrusted && request.files.is_empty() {
            return Err(ApiError::usage("`untrusted` is about files that are sent along, and there is none")
                .hint("name them in `files`; what lies in a folder is labelled by a rule of the policy"));
        }
        if request.dry_run && request.workspace.is_none() {
            return Err(ApiError::usage("a dry run works on a copy of a folder").hint("name it in `workspace`"));
        }
        if let (Some(folder), false, Some(file)) = (&request.workspace, request.dry_run, request.files.first()) {
            let message = format!("`{}` would go into a workspace of its own, and it works on {folder}", file.path);
            return Err(ApiError::usage(message).hint("put the file into that folder, or name no folder"));
        }
        let lacks = match &request.workspace {
            // A dry run works on a copy in the home, which is looked at when the daemon starts.
            Some(folder) if !request.dry_run => {
                self.ground.lacks_in(Path::new(folder), request.policy_role.as_deref().unwrap_or_default()).await
            }
            _ => None,
        };
        let beyond_role = self.beyond_role(&request);
        let asked =
            RouteRequest { model: request.model.clone(), role: request.policy_role.clone(), ..RouteRequest::default() };
        let own_budget = request.budget.usd.is_some();
        let brought = self.brought(&request.files).await?;
        let staged = self.staged(&request).await?;
        let (told, unpriced) = tokio::sync::oneshot::channel();
        let (workspaces, undo, dry_run) = (self.home.workspaces(), Arc::clone(&self.undo), request.dry_run);
        let accepted = self
            .heart
            .change(move |kernel| {
                let pid = kernel.next_pid();
                let spec = SpawnSpec { brought, ..spec_of(request, pid, &kernel.config().default_model) };
                let body = Body::Spawned(Box::new(spec));
                kernel.check(pid, &body)?;
                // Without files it is made when something first wants it: idle agents cost no folder.
                if let Some(files) = staged {
                    let workspace = workspaces.join(pid.to_string());
                    let copied = if dry_run { undo.copied(&workspace) } else { Ok(()) };
                    copied
                        .and_then(|()| std::fs::rename(files.path(), workspace))
                        .map_err(|error| CallError::new(Code::Io, format!("no workspace could be made: {error}")))?;
                    let _ = files.keep();
                }
                // On the same way: a look of its own would be a second one for each spawn, and could fail once it is made.
                let _ = told.send(kernel.unpriced(&asked, own_budget));
                Ok((pid, body))
            })
            .await?;
        let unpriced = unpriced.await.unwrap_or_default();
        Ok(Started { pid: accepted.pid, lsn: accepted.lsn, lacks, beyond_role, unpriced })
    }

    async fn make_key(&self, request: KeyRequest) -> Answer<KeyMade> {
        let (key, sha256) = super::relay::new_key()?;
        let KeyRequest { name, owner, policy_role, budget, rpm, tiers } = request;
        let made = self
            .heart
            .change(move |kernel| {
                let pid = kernel.next_pid();
                let model = kernel.config().default_model.clone();
                let spec = super::relay::program(pid, name, model, policy_role, budget);
                Ok((pid, Body::Spawned(Box::new(spec))))
            })
            .await?;
        let pid = made.pid;
        self.change(pid, Body::Keyed(Box::new(Key { sha256, owner, rpm, tiers }))).await?;
        Ok(KeyMade { pid, key })
    }

    async fn program(&self, key_sha256: &str) -> Answer<Option<Pid>> {
        Ok(self.edges.relays().program(key_sha256))
    }

    async fn program_models(&self, pid: Pid) -> Answer<Vec<ModelView>> {
        let usable = self.heart.look(move |kernel| kernel.models_of(pid)).await?;
        Ok(self.models.iter().filter(|model| usable.contains(&model.id)).cloned().collect())
    }

    async fn relay(&self, pid: Pid, said: Said) -> Answer<Relayed> {
        self.edges.has_room()?;
        self.edges.relays().relay(&self.heart, pid, said).await
    }

    async fn count_tokens(&self, body: Bytes) -> Answer<u64> {
        super::relay::count_tokens(body).await
    }

    async fn processes(&self, wanted: &ProcessesQuery, after: Pid) -> Answer<(Vec<ProcessView>, Option<Pid>)> {
        let ProcessesQuery { all, group } = wanted.clone();
        self.glance(after, move |kernel, pids| kernel.list(pids.iter().copied(), all, group.as_deref())).await
    }

    async fn timers(&self, after: Pid) -> Answer<(Vec<HeldTimer>, Option<Pid>)> {
        self.glance(after, |kernel, pids| kernel.timers(pids.iter().copied())).await
    }

    async fn unschedule(&self, pid: Pid, timer_id: String) -> Answer<Accepted> {
        self.change(pid, Body::Unscheduled { timer_id }).await
    }

    async fn process(&self, pid: Pid) -> Answer<ProcessDetail> {
        Ok(self.heart.look(move |kernel| kernel.detail(pid)).await??)
    }

    async fn input(&self, pid: Pid, request: InputRequest) -> Answer<Accepted> {
        let InputRequest { text, eof, untrusted } = request;
        let mut accepted = None;
        if !text.is_empty() {
            let body = Body::Input { text, eof: false, from_pid: Pid::INIT, untrusted };
            accepted = Some(self.change(pid, body).await?);
        }
        let end = Body::Input { text: String::new(), eof: true, from_pid: Pid::INIT, untrusted: false };
        match (accepted, eof) {
            (_, true) => self.change(pid, end).await,
            (Some(accepted), false) => Ok(accepted),
            (None, false) => Err(ApiError::usage("there is no text").hint("send `text`, or `eof` to end the input")),
        }
    }

    async fn signal(&self, pid: Pid, request: SignalRequest) -> Answer<Accepted> {
        self.change(pid, Body::Signal { signal: request.signal, from_pid: Pid::INIT, tree: request.tree }).await
    }

    async fn signal_group(&self, group: String, request: SignalRequest) -> Answer<GroupSignalled> {
        let SignalRequest { signal, tree } = request;
        let (sender, reached) = std::sync::mpsc::channel();
        let accepted = self
            .heart
            .change(move |kernel| {
                // It becomes an entry before anything else does, so these are whom it reaches.
                let _ = sender.send(kernel.reached(&group, tree));
                Ok((Pid::SYSTEM, Body::GroupSignal { group, signal, tree }))
            })
            .await?;
        Ok(GroupSignalled { lsn: accepted.lsn, pids: reached.try_recv().unwrap_or_default() })
    }

    async fn fork(&self, pid: Pid, request: ForkRequest) -> Answer<Accepted> {
        self.process(pid).await?;
        self.happened(request.at)?;
        self.forked(pid, request).await
    }

    async fn replay(&self, pid: Pid, at: Option<Lsn>) -> Answer<ReplayView> {
        self.process(pid).await?;
        self.happened(at)?;
        let journal = Arc::clone(&self.journal);
        let replayed = blocking(move || super::past::replay(&journal.reader(), pid, at)).await?;
        // What is asked for is right; it is not there any more.
        let gone = |why| {
            CallError::new(Code::NoEnt, why)
                .hint("`aos audit verify` still proves what is left; `aos logs PID` shows it")
                .into()
        };
        replayed.map_err(gone)
    }

    async fn budget(&self, pid: Pid, budget: BudgetSpec) -> Answer<Accepted> {
        self.change(pid, Body::Budgeted { budget }).await
    }

    async fn wait(&self, pid: Pid, timeout: Duration) -> Answer<Option<ProcessView>> {
        let mut live = self.edges.subscribe();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let view = self.heart.look(move |kernel| kernel.view(pid)).await?;
            let view = view.ok_or_else(|| aos_kernel::no_process(pid))?;
            if view.state == State::Exited {
                return Ok(Some(view));
            }
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(deadline) => return Ok(None),
                    () = self.shutdown.cancelled() => return Err(ApiError::unavailable("the daemon is stopping")),
                    next = live.next() => match next {
                        Next::Live(Live::Entry(entry)) if entry.pid == pid && matches!(entry.body, Body::Exited { .. }) => break,
                        Next::Live(_) => {}
                        Next::Lagged(_) => break,
                        Next::Closed => return Err(ApiError::unavailable("the daemon is stopping")),
                    }
                }
            }
        }
    }

    fn subscribe(&self) -> Subscription {
        self.edges.subscribe()
    }

    async fn entries(&self, pid: Option<Pid>, after: Lsn, limit: usize) -> Answer<Vec<Arc<Entry>>> {
        let reader = self.journal.reader();
        let limit = limit as u64;
        let read = blocking(move || match pid {
            Some(pid) => reader.entries_of(pid, after, limit),
            None => reader.entries(after.next(), limit),
        });
        Ok(read.await?.into_iter().map(Arc::new).collect())
    }

    async fn audit_lines(&self, after: Lsn, limit: usize) -> Answer<Vec<(Lsn, String)>> {
        let reader = self.journal.reader();
        let lines = blocking(move || reader.export(after, limit as u64)).await?;
        Ok(lines.into_iter().map(|line| (line.lsn, line.text)).collect())
    }

    async fn entry_before(&self, moment: Timestamp) -> Answer<Lsn> {
        let reader = self.journal.reader();
        blocking(move || reader.before(moment)).await
    }

    async fn proposals(&self, all: bool) -> Answer<Vec<ProposalView>> {
        // One whose files are still being looked at is not shown yet: there is nothing to say yes to.
        let ready = |kernel: &mut super::heart::LiveKernel| {
            let mut open = kernel.proposals();
            open.retain(|one| {
                // What was lifted and is not used is shown as it is, and so is what no yes lifts.
                if one.state == ProposalState::Approved || one.closed.is_some() {
                    return true;
                }
                let yes =
                    Body::Proposal { id: one.id.clone(), state: ProposalState::Approved, proposal: None, why: None };
                kernel.check(one.pid, &yes).is_ok()
            });
            open
        };
        let mut open = self.heart.look(ready).await?;
        if all {
            let reader = self.journal.reader();
            let past = blocking(move || super::past::proposals(&reader)).await?;
            let over = |past: &ProposalView| match past.state {
                ProposalState::Pending | ProposalState::Denied => false,
                ProposalState::Approved => !open.iter().any(|one| one.id == past.id),
                _ => true,
            };
            let past: Vec<ProposalView> = past.into_iter().filter(over).collect();
            open.extend(past);
        }
        Ok(open)
    }

    async fn approve(&self, id: &str, request: ApproveRequest) -> Answer<ProposalView> {
        let state = match request.reach {
            Reach::Once => ProposalState::Approved,
            Reach::Process => ProposalState::Standing,
        };
        self.answer_proposal(id, state, None, request.shown).await
    }

    async fn reject(&self, id: &str, request: RejectRequest) -> Answer<ProposalView> {
        self.answer_proposal(id, ProposalState::Rejected, Some(request.why), None).await
    }

    async fn undo(&self, id: &str, request: UndoRequest) -> Answer<UndoView> {
        let (reader, after) = (self.journal.reader(), self.journal.reader());
        let wanted = id.to_owned();
        let (proposal, links) = blocking(move || super::past::undoable(&reader, &wanted)).await?;
        let proposal = proposal.ok_or_else(|| no_proposal(id).hint("`aos proposals --all` lists them"))?;
        let pid = proposal.pid;
        let owner = move |kernel: &mut super::heart::LiveKernel| match kernel.process(pid)?.workspace {
            Workspace::Home(owner) => Some(owner),
            Workspace::Folder(_) => None,
        };
        let own = self.heart.look(owner).await?.map(|owner| self.home.workspaces().join(owner.to_string()));
        let (undo, heart) = (Arc::clone(&self.undo), self.heart.clone());
        let work = self.edges.apart(async move {
            let tell = |pid, body| async move {
                let accepted = heart.change(move |_| Ok((pid, body))).await?;
                blocking(move || super::past::proposed_by(&after, pid, accepted.lsn)).await
            };
            undo.undo(proposal, &links, request, own, tell).await
        });
        work.await.map_err(|error| ApiError::internal(error.to_string()))?
    }

    async fn explain(&self, request: ExplainRequest) -> Answer<ExplainView> {
        let (call, taken) = super::example::completed(request.call);
        let args = call.args.to_string();
        let asked = Syscall::parse(&call.name, &args)?;
        let look = move |kernel: &mut LiveKernel| {
            let view = kernel.explain(request.pid, &call.name, &args)?;
            let role = kernel.process(request.pid).map(|process| process.policy_role.clone()).unwrap_or_default();
            Ok::<_, CallError>((view, role))
        };
        let (view, role) = self.heart.look(look).await??;
        // What is denied needs no second reason.
        let refused = match view.verdict > Verdict::Deny {
            true => self.drivers.refuses(&role, &asked).await,
            false => None,
        };
        let refused = refused.map(|error| match error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message,
        });
        Ok(ExplainView { taken, refused, ..view })
    }

    async fn policy_reload(&self) -> Answer<PolicyView> {
        let policy = Arc::clone(&self.policy);
        // Whoever asked may hang up; it is taken all the same.
        let taken = self.edges.apart(async move { policy.take().await }).await;
        taken.map_err(|error| ApiError::internal(error.to_string()))?
    }

    async fn models(&self) -> Answer<Vec<ModelView>> {
        Ok(self.models.clone())
    }

    async fn model_route(&self, request: RouteRequest) -> Answer<RouteView> {
        let look = move |kernel: &mut LiveKernel| kernel.route_view(&request);
        Ok(self.heart.look(look).await??)
    }

    async fn cost(&self, by: CostBy) -> Answer<CostView> {
        let reader = self.journal.reader();
        let today = self.heart.look(|kernel| kernel.today(super::heart::now())).await?;
        let cost = blocking(move || super::cost::grouped(&reader, by)).await?;
        Ok(CostView { today, ..cost })
    }

    async fn memory_search(&self, query: MemorySearchQuery) -> Answer<Value> {
        self.memory(move |memory| memory.search(&query.q, query.namespace.as_deref(), query.limit)).await
    }

    async fn memory_list(&self, query: MemoryListQuery) -> Answer<Value> {
        self.memory(move |memory| memory.list(query.namespace.as_deref(), query.limit)).await
    }

    async fn memory_show(&self, id: &str) -> Answer<Value> {
        let id = id.to_owned();
        self.memory(move |memory| memory.show(&id)).await
    }

    async fn memory_forget(&self, id: &str) -> Answer<Value> {
        let id = id.to_owned();
        self.memory(move |memory| memory.forget(&id)).await
    }

    async fn memory_export(&self, query: MemoryExportQuery, after: Option<&str>, limit: usize) -> Answer<Vec<Value>> {
        let after = after.map(str::to_owned);
        self.memory(move |memory| memory.export(query.namespace.as_deref(), after.as_deref(), limit)).await
    }

    async fn webhook_route(&self, path: &str) -> Answer<Option<WebhookRoute>> {
        let path = path.to_owned();
        let route = self.heart.look(move |kernel| kernel.route(&path)).await?;
        Ok(route.map(|(pid, route)| WebhookRoute { pid, secret: route.secret, reply_within_s: route.reply_within_s }))
    }

    async fn webhooks_since(&self, moment: Timestamp) -> Answer<Vec<TakenWebhook>> {
        let reader = self.journal.reader();
        let read = move || {
            let mut taken = Vec::new();
            reader.for_each_after(reader.last_before(moment)?, |entry| {
                if let Body::Webhook(WebhookRequest { path, headers, .. }) = entry.body {
                    taken.push(TakenWebhook { path, headers, at: entry.at });
                }
                ControlFlow::Continue(())
            })?;
            Ok(taken)
        };
        blocking(read).await
    }

    async fn webhook(&self, call: WebhookCall) -> Answer<WebhookDelivery> {
        // How much there is left is nobody's business who only knows an address.
        self.edges.has_room().map_err(|_| ApiError::unavailable("there is no room on the disk for what comes"))?;
        let id = format!("r{}", super::random_hex(6)?);
        let waits = !call.reply_within.is_zero();
        let (body, encoding) = match String::from_utf8(call.body.to_vec()) {
            Ok(text) => (text, None),
            Err(bytes) => (BASE64.encode(bytes.as_bytes()), Some("base64".to_owned())),
        };
        let path = match &call.query {
            Some(query) => format!("{}?{query}", call.path),
            None => call.path.clone(),
        };
        let millis = u64::try_from(call.reply_within.as_millis()).unwrap_or(u64::MAX);
        let request = WebhookRequest {
            id: id.clone(),
            method: call.method,
            path,
            headers: call.headers,
            body,
            encoding,
            reply_by: waits.then(|| call.at.plus_millis(millis)),
        };
        let answer = waits.then(|| self.edges.expect_answer(&id));
        if let Err(error) = self.change(call.pid, Body::Webhook(request)).await {
            self.edges.forget_answer(&id);
            return Err(error);
        }
        let answer = match answer {
            Some(answer) => tokio::time::timeout(call.reply_within, answer).await.ok().and_then(Result::ok),
            None => None,
        };
        self.edges.forget_answer(&id);
        Ok(WebhookDelivery { request_id: id, answer })
    }

    async fn audit_verify(&self, request: AuditRequest) -> Answer<AuditView> {
        let (journal, reader) = (Arc::clone(&self.journal), self.journal.reader());
        blocking(move || {
            // It would read some of the one file and some of the other.
            journal.in_place()?;
            super::proof::audit(&reader, &request)
        })
        .await
    }

    async fn backup(&self, request: BackupRequest) -> Answer<()> {
        use crate::archive::{Error, look, write};
        let home = self.home.clone();
        let work = move || {
            let (file, mounts) = (Path::new(&request.file), Mounts::new(&home, &Env::of_process()));
            for unknown in look(&home, &mounts, file)? {
                tracing::warn!(file = request.file, "{unknown}");
            }
            write(&home, file, super::heart::now(), &mut |_, _| {})
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error @ Error::Exposed { .. })) => Err(ApiError::usage(error.to_string()).hint(error.hint())),
            Ok(Err(error @ Error::Exists(_))) => {
                Err(CallError::new(Code::Exist, error.to_string()).hint(error.hint()).into())
            }
            Ok(Err(error)) => Err(ApiError::internal(error.to_string()).hint(error.hint())),
            Err(error) => Err(ApiError::internal(error.to_string())),
        }
    }

    async fn prune(&self, request: PruneRequest) -> Answer<PruneView> {
        // Only what a checkpoint holds can be taken out, and who prunes means what has ended by now.
        self.heart.save().await?;
        let (before, mut pids, mut after) = (request.before, Vec::new(), Some(Pid::SYSTEM));
        let mut shared = Vec::new();
        while let Some(from) = after {
            let look = move |kernel: &mut LiveKernel, pids: &[Pid]| {
                let owner = |pid: &Pid| match kernel.process(*pid)?.workspace {
                    Workspace::Home(owner) => Some((*pid, owner)).filter(|(pid, owner)| pid != owner),
                    Workspace::Folder(_) => None,
                };
                let shared: Vec<(Pid, Pid)> = pids.iter().filter_map(owner).collect();
                (kernel.prunable(pids, before), shared)
            };
            let ((old, used), next) = self.glance(from, look).await?;
            pids.extend(old);
            shared.extend(used);
            after = next;
        }
        // What is known of files is known by the process whose they are, so it stays while another one works on them.
        let going: BTreeSet<Pid> = pids.iter().copied().collect();
        let used: BTreeSet<Pid> = shared.into_iter().filter(|(by, _)| !going.contains(by)).map(|(_, of)| of).collect();
        pids.retain(|pid| !used.contains(pid));
        let reader = self.journal.reader();
        let plan = blocking(move || reader.prune_plan(pids)).await?;
        let (pids, entries) = (plan.pids().to_vec(), plan.entries());
        if !request.dry_run {
            if !pids.is_empty() {
                self.heart.prune(plan).await?;
                let (undo, gone) = (Arc::clone(&self.undo), pids.clone());
                blocking(move || {
                    undo.forget_all_of(&gone);
                    Ok(())
                })
                .await?;
            }
            self.sweep().await?;
        }
        Ok(PruneView { pids, entries, dry_run: request.dry_run })
    }

    async fn shutdown(&self) -> Answer<()> {
        self.shutdown.cancel();
        Ok(())
    }

    async fn metrics(&self) -> Answer<Metrics> {
        let (counts, model_slots, pending) =
            self.heart.look(|kernel| (kernel.counts(), kernel.slots(), self::pending(kernel))).await?;
        let stats = self.journal.stats();
        let processes = State::ALL
            .iter()
            .filter_map(|state| counts.get(state.as_str()).map(|count| (*state, *count)))
            .collect::<BTreeMap<_, _>>();
        Ok(Metrics {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            processes,
            model_slots,
            entries: self.journal.last().0,
            appends: stats.entries,
            commits: stats.commits,
            proposals_pending: pending as u64,
            ..self.counters.metrics()
        })
    }

    async fn health(&self) -> Answer<()> {
        if self.shutdown.is_cancelled() { Err(ApiError::unavailable("stopping")) } else { Ok(()) }
    }
}

/// Removes folders with all that is in them, each that can be; who is told that something went must be told what did not.
fn removed<'f>(folders: impl Iterator<Item = &'f Path>) -> Answer<()> {
    let mut left = Ok(());
    for folder in folders {
        if let Err(error) = aos_sandbox::delete(folder) {
            tracing::warn!("cannot remove the workspace {}: {error}", folder.display());
            let said = format!("pruned, but the workspace {} cannot be removed: {error}", folder.display());
            left = left.and(Err(ApiError::internal(said).hint("see what holds it, then `aos prune` again")));
        }
    }
    left
}

/// What a person asked for, with every default filled in.
fn spec_of(request: SpawnRequest, pid: Pid, default_model: &str) -> SpawnSpec {
    let priority = match request.mode {
        Mode::OneShot => Priority::Interactive,
        Mode::Resident | Mode::Program => Priority::Normal,
    };
    SpawnSpec {
        parent: Pid::INIT,
        name: request.name,
        // One without a name is none.
        group: request.group.filter(|group| !group.is_empty()),
        role: request.role.unwrap_or_else(|| DEFAULT_ROLE.to_owned()),
        task: request.task,
        mode: request.mode,
        model: request.model.unwrap_or_else(|| default_model.to_owned()),
        priority: request.priority.unwrap_or(priority),
        policy_role: request.policy_role,
        grants: request.grants,
        budget: request.budget,
        pipe_to: request.pipe_to,
        copy_of: request.workspace.clone().filter(|_| request.dry_run),
        workspace: request.workspace.filter(|_| !request.dry_run).map_or(Workspace::Home(pid), Workspace::Folder),
        quarantine: false,
        brought: Vec::new(),
        untrusted: request.untrusted,
        trusted: request.trusted,
    }
}
