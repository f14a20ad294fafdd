//! An imitated system: one process with the pid 7, a journal in memory, webhooks with fixed habits, one program.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::api::*;
use aos_abi::entry::{Body, ProposalState, Verdict};
use aos_abi::inference::Format;
use aos_abi::process::*;
use aos_abi::{CallError, Code, EffectId, Entry, Lsn, Pid, Timestamp, Usd};
use aos_gateway::query::{CostBy, MemoryExportQuery, MemoryListQuery, MemorySearchQuery, ProcessesQuery};
use aos_gateway::*;
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// A piece in whose place the answer may go on no longer.
pub(crate) const TAKEN_BACK: &str = "the key is taken back";
pub(crate) const NOW_S: u64 = 1_795_305_600;

pub(crate) struct Fake {
    journal: Mutex<Vec<Arc<Entry>>>,
    live: broadcast::Sender<Live>,
    /// The moment, in milliseconds; the gateway's clock reads it.
    pub(crate) now: AtomicI64,
    pub(crate) healthy: AtomicBool,
    /// The journal fails from now on.
    pub(crate) broken: AtomicBool,
    /// What is committed just before and just after the next pages are read from the journal.
    pub(crate) meanwhile: Mutex<VecDeque<(u8, u8)>>,
    /// Entries read from the journal.
    pub(crate) read: AtomicUsize,
    pub(crate) calls: Mutex<Vec<WebhookCall>>,
    /// What an earlier daemon took.
    pub(crate) taken: Mutex<Vec<TakenWebhook>>,
    pub(crate) spawned: Mutex<Vec<SpawnRequest>>,
    /// Opened, the webhook `held`, a body `held` and the wait for pid 9 go on.
    pub(crate) gate: tokio::sync::Semaphore,
    /// How many stand at the gate.
    pub(crate) waiting: AtomicUsize,
    pub(crate) shut_down: AtomicBool,
    /// What programs asked.
    pub(crate) relayed: Mutex<Vec<(Format, Bytes)>>,
    /// `anthropic-beta` of the last request.
    pub(crate) betas: Mutex<Option<String>>,
    /// What the next ones are answered; a document where nothing is left.
    pub(crate) relays: Mutex<VecDeque<Answer<Relayed>>>,
    /// How many exchanges with models have ended, one way or another.
    pub(crate) ended: Arc<AtomicUsize>,
}

/// A key of the process 7.
pub(crate) const KEY: &str = "aos_sk_0123456789-abcdefghijklmnopqrstuvwxyz_ABCDE";

/// An exchange with a model, which ends when this is dropped.
pub(crate) struct Exchange(Arc<AtomicUsize>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fake {
    /// `live`: how many things a subscriber may be behind.
    pub(crate) fn new(live: usize) -> Fake {
        Fake {
            journal: Mutex::default(),
            live: broadcast::channel(live).0,
            now: AtomicI64::new(NOW_S as i64 * 1000),
            healthy: AtomicBool::new(true),
            broken: AtomicBool::new(false),
            meanwhile: Mutex::default(),
            read: AtomicUsize::new(0),
            calls: Mutex::default(),
            taken: Mutex::default(),
            spawned: Mutex::default(),
            gate: tokio::sync::Semaphore::new(0),
            waiting: AtomicUsize::new(0),
            shut_down: AtomicBool::new(false),
            relayed: Mutex::default(),
            betas: Mutex::default(),
            relays: Mutex::default(),
            ended: Arc::default(),
        }
    }

    /// A stream for the next program, whose pieces are sent from here.
    pub(crate) fn stream(&self) -> tokio::sync::mpsc::Sender<&'static str> {
        let (sender, pieces) = tokio::sync::mpsc::channel::<&'static str>(64);
        let state = (pieces, Exchange(Arc::clone(&self.ended)));
        let body = futures_util::stream::unfold(state, |(mut pieces, exchange)| async move {
            let piece = pieces.recv().await?;
            let piece = if piece == TAKEN_BACK { Err(ApiError::forbidden(TAKEN_BACK)) } else { Ok(Bytes::from(piece)) };
            Some((piece, (pieces, exchange)))
        });
        self.answer_next(Ok(Relayed {
            status: 200,
            content_type: "text/event-stream",
            model: "small".into(),
            body: body.boxed(),
        }));
        sender
    }

    pub(crate) fn answer_next(&self, answer: Answer<Relayed>) {
        self.relays.lock().unwrap().push_back(answer);
    }

    pub(crate) fn append(&self, pid: Pid, text: &str) -> Lsn {
        let mut journal = self.journal.lock().unwrap();
        let lsn = Lsn(journal.len() as u64 + 1);
        let body = Body::Input { text: text.to_owned(), eof: false, from_pid: Pid::INIT, untrusted: false };
        let entry = Arc::new(Entry { lsn, at: Timestamp(NOW_S as i64 * 1000), pid, cause: None, body });
        journal.push(Arc::clone(&entry));
        // Under the lock, so that the order is that of the journal; nobody listening is no error.
        let _ = self.live.send(Live::Entry(entry));
        lsn
    }

    pub(crate) fn append_many(&self, count: u8) {
        for _ in 0..count {
            self.append(Pid(7), "hi");
        }
    }

    pub(crate) fn entries_count(&self) -> u64 {
        self.journal.lock().unwrap().len() as u64
    }

    pub(crate) fn progress(&self, pid: Pid, text: &str) {
        let effect = EffectId { cause: Lsn(1), nth: 0 };
        let _ = self.live.send(Live::Progress(Arc::new(Progress { pid, effect, text: text.to_owned() })));
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.live.receiver_count()
    }

    async fn stand_at_the_gate(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
    }
}

fn known(pid: Pid) -> Result<(), ApiError> {
    match pid.0 {
        7..=9 => Ok(()),
        6 => Err(CallError { retry_after_ms: Some(2500), ..CallError::new(Code::Again, "the queue is full") }.into()),
        _ => Err(CallError::new(Code::Srch, format!("no process {pid}")).hint("`aos ps` lists them").into()),
    }
}

fn accepted(pid: Pid) -> Answer<Accepted> {
    known(pid).map(|()| Accepted { pid, lsn: Lsn(41), stopped: false })
}

fn view(pid: Pid) -> ProcessView {
    ProcessView {
        pid,
        parent: Pid::INIT,
        name: "count".into(),
        group: None,
        state: State::Exited,
        waiting_for: None,
        question: None,
        model: "small".into(),
        priority: Priority::Normal,
        mode: Mode::OneShot,
        usage: UsageView::default(),
        budget: BudgetView::default(),
        started_at: Timestamp(0),
        exited_at: Some(Timestamp(1)),
        exit_code: Some(0),
        result: Some(json!("42 words")),
        reason: None,
    }
}

fn timer() -> TimerView {
    let (timer_id, next_at, schedule, prompt) = ("t1".into(), Timestamp(0), "every 60 s".into(), "look".into());
    TimerView { timer_id, name: None, next_at, schedule, prompt }
}

fn proposal(id: &str, state: ProposalState) -> Answer<ProposalView> {
    if id != "p3" {
        return Err(CallError::new(Code::NoEnt, format!("no proposal `{id}`")).into());
    }
    Ok(ProposalView {
        id: id.to_owned(),
        pid: Pid(7),
        call: CallView { name: "FS_DELETE".into(), args: json!({"path": "a"}) },
        verdict: Verdict::Ask,
        rule: "role: ask FS_DELETE".into(),
        grants: Vec::new(),
        inner: Vec::new(),
        led: None,
        closed: None,
        why: None,
        risk: None,
        preview: "deletes a".into(),
        files: Vec::new(),
        unbound: None,
        shown: String::new(),
        state,
        ended: None,
        under: None,
        expires_at: Timestamp(NOW_S as i64 * 1000),
    })
}

impl System for Fake {
    async fn status(&self) -> Answer<StatusView> {
        Ok(StatusView {
            version: "0.1.0".into(),
            os_pid: 1,
            uptime_s: 1.5,
            home: "/home".into(),
            listen: "127.0.0.1:7717".into(),
            taken: None,
            processes: BTreeMap::from([("exited".to_owned(), 1)]),
            spent_today_usd: Usd::ZERO,
            today: DayView::default(),
            model_slots: BTreeMap::new(),
            lsn: Lsn(41),
            changed: Vec::new(),
            altered: None,
            policy: PolicyView::default(),
            lacks: Vec::new(),
            ahead_s: None,
        })
    }
    async fn make_key(&self, _: KeyRequest) -> Answer<KeyMade> {
        Ok(KeyMade { pid: Pid(7), key: KEY.to_owned() })
    }

    async fn spawn(&self, request: SpawnRequest) -> Answer<Started> {
        self.spawned.lock().unwrap().push(request);
        Ok(Started { pid: Pid(7), lsn: Lsn(41), lacks: None, beyond_role: Vec::new(), unpriced: Vec::new() })
    }
    /// Three, one to a piece, of which only the one in the middle lives.
    async fn processes(&self, wanted: &ProcessesQuery, after: Pid) -> Answer<(Vec<ProcessView>, Option<Pid>)> {
        let next = Pid(after.0.max(6) + 1);
        let shown = (wanted.all || next == Pid(8)) && (wanted.group.is_none() || next == Pid(9));
        Ok((shown.then(|| view(next)).into_iter().collect(), (next < Pid(9)).then_some(next)))
    }
    async fn timers(&self, after: Pid) -> Answer<(Vec<HeldTimer>, Option<Pid>)> {
        let next = Pid(after.0.max(6) + 1);
        let held = (next > Pid(7)).then(|| HeldTimer { pid: next, timer: timer() });
        Ok((held.into_iter().collect(), (next < Pid(9)).then_some(next)))
    }
    async fn unschedule(&self, pid: Pid, _: String) -> Answer<Accepted> {
        accepted(pid)
    }
    async fn signal_group(&self, group: String, _: SignalRequest) -> Answer<GroupSignalled> {
        match group.as_str() {
            "night" => Ok(GroupSignalled { lsn: Lsn(1), pids: vec![Pid(7), Pid(9)] }),
            _ => Err(CallError::new(Code::Srch, "no process of that group lives").into()),
        }
    }
    async fn process(&self, pid: Pid) -> Answer<ProcessDetail> {
        known(pid)?;
        Ok(ProcessDetail {
            process: view(pid),
            role: "You count.".into(),
            policy_role: None,
            grants: None,
            labels: vec![],
            standing: Vec::new(),
            children: vec![],
            pipe_to: None,
            workspace: Workspace::Home(pid),
            inbox: 0,
            timers: vec![timer()],
            webhooks: vec![],
            watches: vec![],
            window: WindowView::default(),
        })
    }
    async fn input(&self, pid: Pid, _: InputRequest) -> Answer<Accepted> {
        accepted(pid)
    }
    async fn signal(&self, pid: Pid, request: SignalRequest) -> Answer<Accepted> {
        accepted(pid).map(|accepted| Accepted { lsn: Lsn(request.signal as u64), ..accepted })
    }
    async fn fork(&self, pid: Pid, _: ForkRequest) -> Answer<Accepted> {
        accepted(pid)
    }
    async fn replay(&self, pid: Pid, at: Option<Lsn>) -> Answer<ReplayView> {
        known(pid)?;
        Ok(ReplayView { after: Lsn::ZERO, inputs: at.map_or(0, |at| at.0), facts: 2, difference: None })
    }
    async fn budget(&self, pid: Pid, _: BudgetSpec) -> Answer<Accepted> {
        accepted(pid)
    }
    async fn wait(&self, pid: Pid, timeout: Duration) -> Answer<Option<ProcessView>> {
        known(pid)?;
        match pid.0 {
            7 => Ok(Some(view(pid))),
            9 => {
                self.stand_at_the_gate().await;
                Ok(Some(view(pid)))
            }
            _ => {
                tokio::time::sleep(timeout).await;
                Ok(None)
            }
        }
    }
    fn subscribe(&self) -> Subscription {
        Subscription::new(self.live.subscribe())
    }
    async fn audit_lines(&self, after: Lsn, limit: usize) -> Answer<Vec<(Lsn, String)>> {
        let page = self.entries(None, after, limit).await?;
        Ok(page.iter().map(|entry| (entry.lsn, serde_json::to_string(&**entry).unwrap())).collect())
    }

    async fn entry_before(&self, moment: Timestamp) -> Answer<Lsn> {
        let journal = self.journal.lock().unwrap();
        Ok(Lsn(journal.iter().filter(|entry| entry.at < moment).count() as u64))
    }

    async fn entries(&self, pid: Option<Pid>, after: Lsn, limit: usize) -> Answer<Vec<Arc<Entry>>> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(CallError::new(Code::Io, "the disk is gone").into());
        }
        let (before, after_page) = self.meanwhile.lock().unwrap().pop_front().unwrap_or_default();
        self.append_many(before);
        let found: Vec<_> = (self.journal.lock().unwrap())
            .iter()
            .skip(after.0 as usize)
            .filter(|entry| pid.is_none_or(|pid| pid == entry.pid))
            .take(limit)
            .cloned()
            .collect();
        self.append_many(after_page);
        self.read.fetch_add(found.len(), Ordering::SeqCst);
        Ok(found)
    }
    async fn proposals(&self, _: bool) -> Answer<Vec<ProposalView>> {
        Ok(vec![proposal("p3", ProposalState::Pending)?])
    }
    async fn approve(&self, id: &str, request: ApproveRequest) -> Answer<ProposalView> {
        let once = request.reach == Reach::Once;
        proposal(id, if once { ProposalState::Approved } else { ProposalState::Standing })
    }
    async fn reject(&self, id: &str, _: RejectRequest) -> Answer<ProposalView> {
        proposal(id, ProposalState::Rejected)
    }
    async fn undo(&self, id: &str, request: UndoRequest) -> Answer<UndoView> {
        let proposal = proposal(id, ProposalState::Undone)?;
        let (changes, diff, conflicts) = Default::default();
        Ok(UndoView {
            proposal,
            changes,
            links: Default::default(),
            more: 0,
            diff,
            conflicts,
            done: !request.dry_run,
            back: None,
        })
    }
    async fn explain(&self, request: ExplainRequest) -> Answer<ExplainView> {
        known(request.pid)?;
        Ok(ExplainView {
            given: None,
            lacking: None,
            verdict: Verdict::Deny,
            ended: false,
            rule: "default: deny".into(),
            hint: Some("FS_DELETE a".into()),
            taken: vec![],
            refused: None,
        })
    }
    async fn policy_reload(&self) -> Answer<PolicyView> {
        Ok(PolicyView { generation: "0123456789abcdef".into(), refused: vec![], ended: 0 })
    }
    async fn models(&self) -> Answer<Vec<ModelView>> {
        Ok(vec![ModelView {
            id: "small".into(),
            object: "model".into(),
            created: 1,
            owned_by: "openai".into(),
            provider: "openai".into(),
            model: "qwen3:8b".into(),
            tier: None,
            context_window: 32768,
            max_output: 4096,
            price: None,
            can: vec![],
            dimension: None,
            limits: Default::default(),
            local: true,
            default: true,
        }])
    }
    async fn model_route(&self, request: RouteRequest) -> Answer<RouteView> {
        Ok(RouteView { asked: request.task, ..RouteView::default() })
    }
    async fn program(&self, key_sha256: &str) -> Answer<Option<Pid>> {
        let known = Key::parse(KEY).unwrap().sha256();
        Ok((key_sha256 == known).then_some(Pid(7)))
    }
    async fn program_models(&self, pid: Pid) -> Answer<Vec<ModelView>> {
        assert_eq!(pid, Pid(7));
        Ok(self.models().await?.into_iter().map(|view| ModelView { id: "cheap".into(), ..view }).collect())
    }
    /// The request `held` waits at the gate.
    async fn count_tokens(&self, body: Bytes) -> Answer<u64> {
        Ok(body.len() as u64)
    }
    async fn relay(&self, pid: Pid, Said { format, body, betas }: Said) -> Answer<Relayed> {
        assert_eq!(pid, Pid(7));
        *self.betas.lock().unwrap() = betas;
        let held = body == "held";
        self.relayed.lock().unwrap().push((format, body));
        if held {
            let _exchange = Exchange(Arc::clone(&self.ended));
            self.stand_at_the_gate().await;
        }
        let next = self.relays.lock().unwrap().pop_front();
        next.unwrap_or_else(|| {
            let pieces = [r#"{"an":"#, r#""answer"}"#].map(|piece| Ok(Bytes::from(piece)));
            let body = futures_util::stream::iter(pieces).boxed();
            Ok(Relayed { status: 200, content_type: "application/json", model: "small".into(), body })
        })
    }
    async fn cost(&self, by: CostBy) -> Answer<CostView> {
        let group = CostGroup { inferences: 3, cost_usd: Usd(400_000), ..CostGroup::default() };
        let groups = BTreeMap::from([(format!("{by:?}"), group)]);
        Ok(CostView { groups, total: group, ..CostView::default() })
    }
    async fn memory_search(&self, query: MemorySearchQuery) -> Answer<Value> {
        Ok(json!({"hits": [{"id": "m1", "key": query.q}]}))
    }
    async fn memory_list(&self, _: MemoryListQuery) -> Answer<Value> {
        Ok(json!([{"id": "m1"}]))
    }
    async fn memory_show(&self, id: &str) -> Answer<Value> {
        match id {
            "m1" => Ok(json!({"id": id})),
            _ => Err(CallError::new(Code::NoEnt, format!("no memory `{id}`")).into()),
        }
    }
    async fn memory_forget(&self, id: &str) -> Answer<Value> {
        self.memory_show(id).await.map(|_| json!({"forgotten": 1}))
    }
    async fn memory_export(&self, _: MemoryExportQuery, after: Option<&str>, limit: usize) -> Answer<Vec<Value>> {
        let after: u64 = after.map_or(0, |id| id[1..].parse().unwrap());
        Ok((after + 1..=20).take(limit).map(|nth| json!({"id": format!("m{nth}")})).collect())
    }
    async fn webhook_route(&self, path: &str) -> Answer<Option<WebhookRoute>> {
        let (secret, reply_within_s) = match path {
            "open" | "full" | "held" | "a/b c" => (None, 5),
            "signed" | "signed/too" => (Some("key".to_owned()), 5),
            "late" => (None, 0),
            "silent" => (None, 1),
            _ => return Ok(None),
        };
        Ok(Some(WebhookRoute { pid: Pid(7), secret, reply_within_s }))
    }
    async fn webhooks_since(&self, _: Timestamp) -> Answer<Vec<TakenWebhook>> {
        Ok(self.taken.lock().unwrap().clone())
    }
    async fn webhook(&self, call: WebhookCall) -> Answer<WebhookDelivery> {
        if call.path == "full" || (call.path == "signed" && !self.healthy.load(Ordering::SeqCst)) {
            let full = CallError::new(Code::Again, "256 notices wait already");
            return Err(CallError { retry_after_ms: Some(1500), ..full }.into());
        }
        if call.path == "held" || call.body == "held" {
            self.stand_at_the_gate().await;
        }
        let answer = (call.reply_within > Duration::from_secs(1)).then(|| WebhookAnswer {
            status: 201,
            headers: [("content-type".to_owned(), "text/plain".to_owned())].into(),
            body: format!("heard {}", String::from_utf8_lossy(&call.body)),
        });
        let mut calls = self.calls.lock().unwrap();
        calls.push(call);
        Ok(WebhookDelivery { request_id: format!("r{}", calls.len()), answer })
    }
    async fn audit_verify(&self, _: AuditRequest) -> Answer<AuditView> {
        Ok(AuditView {
            intact: true,
            entries: 1,
            last_lsn: Lsn(1),
            head: "00".into(),
            fault: None,
            sound_upto: None,
            hint: None,
        })
    }
    async fn backup(&self, _: BackupRequest) -> Answer<()> {
        Ok(())
    }
    async fn prune(&self, request: PruneRequest) -> Answer<PruneView> {
        Ok(PruneView { pids: vec![Pid(7)], entries: 3, dry_run: request.dry_run })
    }
    async fn shutdown(&self) -> Answer<()> {
        self.shut_down.store(true, Ordering::SeqCst);
        Ok(())
    }
    async fn metrics(&self) -> Answer<Metrics> {
        Ok(Metrics { version: "0.1.0".into(), appends: 12, ..Metrics::default() })
    }
    async fn health(&self) -> Answer<()> {
        if self.healthy.load(Ordering::SeqCst) { Ok(()) } else { Err(ApiError::unavailable("starting")) }
    }
}
