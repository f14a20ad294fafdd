//! Birth, signals and death.
//!
//! What always holds: whatever belongs to a process (timers, routes, watches, its name, its place in a queue) is gone
//! when it ends; what it had under way is cancelled and still paid for; children are adopted, budgets never widen.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use aos_abi::entry::{PROCESS_ENDED, ProposalState};
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec, Workspace};
use aos_abi::{Body, CallError, Code, Lsn, Name, Pid, Signal, Timestamp, limits};
use aos_context::{ItemKind, Window};
use aos_policy::{Grants, Labels};
use serde_json::Value;

use crate::budget::{Budget, Count, Dimension, Grant};
use crate::effect::Effect;
use crate::process::{Attempts, CallState, Counters, Exit, Leave, Notice, Phase, Process, Terminating, Wait, Zombie};
use crate::table::PageStore;
use crate::{InFlight, Kernel};

impl<P: PageStore> Kernel<P> {
    /// A new process, from an entry that has been checked. `vouched`: by a person, or by one who speaks for a person.
    pub(crate) fn born(&mut self, pid: Pid, spec: &SpawnSpec, vouched: bool) {
        let lsn = self.globals.lsn;
        let mut process = self.embryo(pid, spec);
        process.vouched = vouched;
        self.enter(process);
        let copied = spec.copy_of.clone().map(Workspace::Folder);
        for from in copied.iter().chain(&spec.brought) {
            self.labels_of_copy(pid, None, Some(from));
        }
        if spec.untrusted {
            self.mark_files(&spec.workspace, Labels::FILE);
        }
        if let Workspace::Folder(path) = &spec.workspace
            && spec.trusted
        {
            self.trusts(path);
        }
        if let Some(task) = spec.task.as_deref().filter(|_| vouched) {
            self.gives(pid, task);
        }
        if spec.task.is_some() {
            let notice = self.as_notice(lsn);
            self.with(pid, |process| process.window.push(notice.lsn, notice.tokens, ItemKind::Task));
            self.want_turn(pid);
        }
    }

    /// A process that has lived through nothing, joined to its parent, budget and pipe.
    pub(crate) fn embryo(&mut self, pid: Pid, spec: &SpawnSpec) -> Process {
        let now = self.globals.at;
        let own = spec.grants.as_ref().map(|list| Grants::parse(list).unwrap_or_default());
        let own_grants = own.is_some();
        let of_a_dry_run = spec.copy_of.as_ref().map(|_| Grants::of_a_dry_run());
        let (above, depth, root, parents_end) = match self.table.get(spec.parent) {
            Some(parent) => (parent.chain.clone(), parent.depth + 1, parent.root, parent.budget.ends_at),
            None => (Vec::new(), 1, pid, None),
        };
        let policy_role = spec.policy_role.clone().unwrap_or_default();
        let roles_end = self.policy.role(&policy_role).and_then(|role| role.budget.wall_ms);
        let mut budget = Budget {
            usd: Default::default(),
            tokens: Default::default(),
            calls: Default::default(),
            ends_at: [spec.budget.wall_s.map(|seconds| seconds.saturating_mul(1000)), roles_end]
                .into_iter()
                .map(|millis| millis.map(|millis| now.plus_millis(millis)))
                .chain([parents_end])
                .flatten()
                .min(),
            from: spec.parent,
            drawers: 0,
            closed: false,
        };
        let grant = Grant::from(&spec.budget);
        for dimension in Dimension::ALL {
            budget.account_mut(dimension).limit = grant.get(dimension);
        }
        if self.table.get(spec.parent).is_some() {
            // Checked before the entry was made; a journal that says otherwise is not made richer here.
            if self.carve(spec.parent, &grant).is_err() {
                Dimension::ALL.into_iter().for_each(|dimension| {
                    let account = budget.account_mut(dimension);
                    account.limit = account.limit.map(|_| 0);
                });
            }
            self.with(spec.parent, |parent| {
                parent.children.insert(pid);
                parent.budget.drawers += 1;
            });
        }
        if let Some(to) = spec.pipe_to {
            self.with(to, |to| to.pipe_sources += 1);
        }
        Process {
            pid,
            parent: spec.parent,
            name: spec.name.clone(),
            group: spec.group.clone(),
            title: spec.title(),
            role: spec.role.clone(),
            mode: spec.mode,
            model: spec.model.clone(),
            course: crate::course::Course::of(&spec.model),
            priority: spec.priority,
            chain: own.into_iter().chain(of_a_dry_run).chain(above).collect(),
            policy_role,
            quarantine: spec.quarantine,
            vouched: false,
            words: Vec::new(),
            questions: String::new(),
            named: Vec::new(),
            leave: Leave::default(),
            answered_under: String::new(),
            labels: Labels::NONE,
            incoming: Labels::NONE,
            files: Labels::NONE,
            own_grants,
            depth,
            root,
            origin: None,
            workspace: spec.workspace.clone(),
            pipe_to: spec.pipe_to,
            pipe_sources: 0,
            children: Default::default(),
            zombies: Default::default(),
            put_away: Vec::new(),
            budget,
            usage: Counters::default(),
            started_at: now,
            phase: Phase::Idle,
            stopped: None,
            terminating: None,
            hurried: false,
            step: Vec::new(),
            stepped: false,
            window: Window::default(),
            inbox: Default::default(),
            stdin: Default::default(),
            stdin_eof: false,
            writers: Default::default(),
            notices: Default::default(),
            timers: Default::default(),
            webhooks: Default::default(),
            requests: Default::default(),
            watches: Default::default(),
            proposals: Default::default(),
            denials: Default::default(),
            denied: Default::default(),
            standing: Default::default(),
            refusals: Default::default(),
            rates: Default::default(),
            asked: Count::default(),
            brought: Count::default(),
            allowances: Default::default(),
            next_id: 0,
            key: None,
            asks: Default::default(),
            purse: None,
            serving: 0,
            begun: String::new(),
            attempts: Attempts::default(),
            service: 0,
            due: None,
            exit: None,
        }
    }

    /// A signal to a process, from the entry under way, or to all below it too.
    pub(crate) fn signal_tree(&mut self, pid: Pid, signal: Signal, from: Pid, tree: bool) {
        let lsn = self.globals.lsn;
        // Taken before anything happens: what is adopted meanwhile must not miss its signal.
        let below = if tree { self.below(pid) } else { Vec::new() };
        if signal == Signal::Kill {
            self.freeze(pid);
            below.iter().for_each(|child| self.freeze(*child));
        }
        self.signal(pid, signal, lsn);
        for child in below {
            if self.table.get(child).is_some_and(|process| !process.exited()) {
                let lsn = self.fact(child, Body::Signal { signal, from_pid: from, tree: false });
                self.signal(child, signal, lsn);
            }
        }
    }

    /// The living processes below one, parents first.
    pub(crate) fn below(&mut self, pid: Pid) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut next = vec![pid];
        while let Some(at) = next.pop() {
            let children = self.table.get(at).map(|process| process.children.clone()).unwrap_or_default();
            for child in children {
                if self.table.get(child).is_some_and(|process| !process.exited()) {
                    found.push(child);
                    next.push(child);
                }
            }
        }
        found
    }

    /// Keeps a process that is about to end from starting anything when another end reaches it first.
    pub(crate) fn freeze(&mut self, pid: Pid) {
        if self.table.get(pid).is_some_and(|process| !process.exited() && process.stopped.is_none()) {
            self.unqueue(pid);
            self.with(pid, |process| process.stopped = Some("ending".into()));
        }
    }

    /// A signal to one process; `lsn` is the entry that says so to it.
    pub(crate) fn signal(&mut self, pid: Pid, signal: Signal, lsn: Lsn) {
        let Some(process) = self.table.get(pid) else { return };
        if process.exited() {
            return;
        }
        match signal {
            Signal::Kill => self.exit(pid, 137, Value::Null, "killed"),
            Signal::Term => self.terminate(pid, lsn),
            Signal::Stop => {
                self.unqueue(pid);
                self.with(pid, |process| {
                    if !process.is_faulted() {
                        process.stopped = Some("stopped by a signal".into());
                    }
                });
            }
            Signal::Cont => self.go_on(pid),
        }
    }

    fn go_on(&mut self, pid: Pid) {
        let stopped = self.with(pid, |process| (process.is_faulted(), process.stopped.take().is_some()));
        let Some((was_faulted, true)) = stopped else { return };
        if was_faulted {
            self.pay_let_go(pid);
            // What was seen of its files may be what was left out.
            self.examine_again();
            self.works_on(pid);
        }
        self.queue_again(pid);
        match self.table.get(pid).map(|process| process.phase.clone()) {
            Some(Phase::Ready) => self.want_turn(pid),
            Some(Phase::Calling | Phase::Writing(_)) => self.run_step(pid),
            Some(Phase::Broke { .. }) => self.want_turn_again(pid),
            Some(Phase::Idle) => self.wake(pid),
            _ => {}
        }
    }

    /// `TERM`: one last turn and five seconds. Whoever is set aside for a fault takes no turn, and is due for no end either.
    fn terminate(&mut self, pid: Pid, lsn: Lsn) {
        if self.table.get(pid).is_some_and(Process::is_faulted) {
            self.exit(pid, 143, Value::Null, "ended by TERM while it was set aside");
            return;
        }
        let kill_at = self.globals.at.plus_millis(limits::TERM_GRACE_MS);
        let notice = self.as_notice(lsn);
        let again = self.with(pid, |process| {
            let again = process.terminating.is_some();
            if !again {
                process.terminating = Some(Terminating { kill_at, last_turn: false });
                process.notices.push_back(notice);
            }
            again
        });
        if again == Some(true) {
            return;
        }
        // Before it goes on, or a stopped process would start them.
        self.abandon_queued(pid, "TERM came first");
        self.go_on(pid);
        self.end_commands(pid);
        match self.table.get(pid).map(|process| process.phase.clone()) {
            Some(Phase::Waiting { .. }) => {
                self.close_proposals(pid);
                self.resolve(
                    pid,
                    Err(CallError::new(Code::Intr, "TERM ended the wait").hint("this is your last turn")),
                );
            }
            Some(Phase::Writing(text)) => {
                // It has said them already, and has no time to wait for its reader.
                self.wrote(pid, &text);
                self.want_turn(pid);
            }
            Some(Phase::Idle | Phase::Backoff(_) | Phase::Broke { .. } | Phase::Ready) => self.want_turn(pid),
            _ => {}
        }
    }

    /// Ends the commands of a process, which may run for longer than it has left: what came of them is told to its last turn.
    fn end_commands(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        let running = process.step.iter().filter_map(|call| match call.state {
            CallState::Running(effect) if call.made() == Name::ExecCmd.as_str() => Some(effect),
            CallState::Running(_) | CallState::Queued | CallState::Waiting | CallState::Done(..) => None,
        });
        let running: Vec<_> = running.collect();
        running.into_iter().for_each(|effect| self.perform(Effect::Cancel(effect)));
    }

    /// Ends a process and everything below it.
    pub(crate) fn exit_tree(&mut self, pid: Pid, code: i32, reason: &str) {
        let below = self.below(pid);
        for at in [pid].iter().chain(&below) {
            self.freeze(*at);
        }
        for at in [pid].into_iter().chain(below) {
            self.exit(at, code, Value::Null, reason);
        }
    }

    /// Ends a process.
    pub(crate) fn exit(&mut self, pid: Pid, code: i32, result: Value, reason: &str) {
        if self.table.get(pid).is_none_or(Process::exited) {
            return;
        }
        if code == 0 {
            self.did_well(pid);
        }
        self.pay_let_go(pid);
        self.approvals_are_over(pid, PROCESS_ENDED);
        self.close_proposals(pid);
        self.close_denials(pid);
        self.revoke(pid);
        // Nothing reads back from JSON as none, so nothing is none here too.
        let shown = Some(result.clone()).filter(|result| !result.is_null());
        let awaited = self.table.get(pid).filter(|process| code == 0 && process.mode == Mode::OneShot).map(awaited);
        let awaited = awaited.unwrap_or_default();
        let body = Body::Exited { exit_code: code, result: shown, reason: reason.to_owned(), awaited };
        let lsn = self.fact(pid, body);
        let notice = Notice { labels: self.labels_of_end(pid, &result, reason), ..self.as_notice(lsn) };
        self.release(pid);
        let at = self.globals.at;
        let result = result.to_string();
        let Some((parent, root, children, pipe_to, origin)) = self.with(pid, |process| {
            process.phase = Phase::Exited;
            process.stopped = None;
            process.terminating = None;
            process.exit = Some(Exit { lsn, at, code, result: result.clone(), reason: reason.to_owned() });
            process.step = Vec::new();
            process.window = Window::default();
            process.words = Vec::new();
            process.named = Vec::new();
            // Whoever forks it is shown what it never was.
            process.incoming = process.labels_to_come();
            process.inbox = Default::default();
            process.stdin = Default::default();
            process.notices = Default::default();
            process.begun = String::new();
            process.zombies = Default::default();
            process.put_away = Vec::new();
            process.refusals = Default::default();
            process.rates = Default::default();
            (process.parent, process.root, std::mem::take(&mut process.children), process.pipe_to, process.origin)
        }) else {
            return;
        };
        for child in children {
            self.with(child, |child| child.parent = Pid::INIT);
        }
        if let Some(origin) = origin {
            fewer(&mut self.globals.origins, origin);
        }
        if root != pid {
            fewer(&mut self.globals.trees, root);
        }
        self.made_room(pid);
        if let Some(to) = pipe_to {
            self.unpipe(pid, to);
        }
        self.close_account(pid);
        let zombie = Zombie { pid, notice, exit_code: code, result, shown: false };
        self.child_ended(parent, zombie);
    }

    /// Gives back everything that has one owner.
    fn release(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        let (name, group) = (process.name.clone(), process.group.clone());
        let phase = process.phase.clone();
        let calls: Vec<_> = process
            .step
            .iter()
            .filter_map(|call| match call.state {
                CallState::Running(effect) => Some((effect, call.made().to_owned())),
                CallState::Queued | CallState::Waiting | CallState::Done(..) => None,
            })
            .collect();
        if let Some(name) = name {
            self.globals.names.remove(&name);
        }
        if let Some(group) = group {
            self.leaves(pid, &group);
        }
        self.unqueue(pid);
        if let Phase::Inferring(effect) = phase
            && self.globals.in_flight.contains_key(&effect)
        {
            // It stays in flight until its outcome has come: the slot is held and the cost is charged.
            let rival = self.rival_of(effect);
            self.perform(Effect::Cancel(effect));
            if let Some(rival) = rival {
                self.perform(Effect::Cancel(rival));
            }
        }
        for (effect, call) in calls {
            self.globals.in_flight.remove(&effect);
            self.perform(Effect::Cancel(effect));
            self.labels_lost(pid, &call);
        }
        let (webhooks, watches, requests) = self
            .with(pid, |process| {
                process.timers.clear();
                (
                    std::mem::take(&mut process.webhooks),
                    std::mem::take(&mut process.watches),
                    std::mem::take(&mut process.requests),
                )
            })
            .unwrap_or_default();
        for path in webhooks.keys() {
            self.globals.routes.remove(path);
        }
        for watch_id in watches.into_keys() {
            self.perform(Effect::Unwatch { pid, watch_id });
        }
        self.globals.watchers.remove(&pid);
        for request_id in requests.into_keys() {
            let body = r#"{"error":{"code":"unavailable","message":"the agent has ended","hint":null}}"#.to_owned();
            self.perform(Effect::WebhookReply { request_id, status: 503, headers: Vec::new(), body });
        }
    }

    fn unpipe(&mut self, from: Pid, to: Pid) {
        let told = self.with(to, |to| {
            to.pipe_sources = to.pipe_sources.saturating_sub(1);
            to.writers.retain(|writer| *writer != from);
            // Whoever knows that its input has ended need not be told again.
            let last = to.pipe_sources == 0 && !to.exited() && !to.stdin_eof;
            let reads = matches!(to.phase, Phase::Waiting { wait: Wait::Stdin, .. });
            if last && !reads && to.is_full() {
                // No room to tell it now: it finds out when it reads.
                to.stdin_eof = true;
                return false;
            }
            last
        });
        if told == Some(true) {
            let lsn = self.fact(to, Body::Input { text: String::new(), eof: true, from_pid: from, untrusted: false });
            self.input(to, lsn, from, "", true);
        }
    }

    fn child_ended(&mut self, parent: Pid, zombie: Zombie) {
        let child = zombie.pid;
        let alive = self.with(parent, |parent| {
            if parent.exited() {
                return false;
            }
            parent.zombies.push_back(zombie);
            // Shown or not: its next prompt says that they ended and were put away.
            while parent.zombies.len() > limits::ZOMBIES_MAX
                && let Some(zombie) = parent.zombies.pop_front()
            {
                parent.children.remove(&zombie.pid);
                parent.put_away.push(zombie.pid);
            }
            true
        });
        if alive != Some(true) {
            return;
        }
        let waited = self.table.get(parent).is_some_and(|parent| {
            matches!(&parent.phase, Phase::Waiting { wait: Wait::Child(which), .. } if which.is_none_or(|which| which == child))
        });
        if waited {
            if let Some(result) = self.reap(parent, Some(child)) {
                self.resolve(parent, Ok(result));
            }
        } else {
            self.wake(parent);
            // Whoever waits may have waited for the one that has just ended.
            if self.table.get(parent).is_some_and(|parent| matches!(parent.phase, Phase::Waiting { .. })) {
                self.find_deadlock(parent);
            }
        }
    }

    /// A person has changed a budget.
    pub(crate) fn budgeted(&mut self, pid: Pid, spec: &BudgetSpec) {
        // Its limits may be lower than what is set aside ahead.
        self.put_back(pid);
        let grant = Grant::from(spec);
        for dimension in Dimension::ALL {
            let Some(limit) = grant.get(dimension) else { continue };
            self.set_limit(pid, dimension, limit);
        }
        let now = self.globals.at;
        self.with(pid, |process| {
            if let Some(seconds) = spec.wall_s {
                process.budget.ends_at = Some(process.started_at.plus_millis(seconds.saturating_mul(1000)).max(now));
            }
        });
        // Those below may draw on it.
        for at in std::iter::once(pid).chain(self.below(pid)) {
            let short = self.table.get(at).and_then(|process| process.stopped.as_ref());
            if short.is_some_and(|why| why.starts_with("the budget")) {
                self.go_on(at);
            }
        }
    }

    /// Those of these processes that may be taken out: ended (before then, where a time is given), settled, waited for, no
    /// living fork's past, and in no window of their parent's any more.
    pub fn prunable(&mut self, pids: &[Pid], before: Option<Timestamp>) -> Vec<Pid> {
        let mut out = pids.to_vec();
        out.retain(|pid| {
            let Some(process) = self.table.get(*pid) else { return false };
            let (parent, closed) = (process.parent, process.budget.closed);
            let Some((ended, end)) = process.exit.as_ref().map(|exit| (exit.at, exit.lsn)) else { return false };
            let is_old = before.is_none_or(|before| ended < before);
            is_old && closed && !self.globals.origins.contains_key(pid) && !self.is_shown(parent, *pid, end)
        });
        out
    }

    /// Whether a living process, or a fork of it, has or may yet have the end of a child in its window.
    fn is_shown(&mut self, parent: Pid, child: Pid, end: Lsn) -> bool {
        let forked = self.globals.origins.contains_key(&parent);
        self.table.get(parent).is_some_and(|parent| {
            let shown = || parent.children.contains(&child) || parent.window.items().any(|item| item.lsn == end);
            forked || !parent.exited() && shown()
        })
    }

    /// Takes ended processes out for ever.
    pub(crate) fn pruned(&mut self, pids: &[Pid]) {
        for pid in pids {
            let Some(process) = self.table.get(*pid) else { continue };
            if !process.exited() || !process.budget.closed {
                continue;
            }
            let parent = process.parent;
            self.globals.counts[aos_abi::process::State::Exited as usize] -= 1;
            self.with(parent, |parent| {
                parent.children.remove(pid);
                parent.zombies.retain(|zombie| zombie.pid != *pid);
            });
            self.table.remove(*pid);
        }
    }

    /// Ends every open proposal of a process unanswered, and every approval that stands for it.
    fn close_proposals(&mut self, pid: Pid) {
        let open = self.with(pid, |process| std::mem::take(&mut process.proposals)).unwrap_or_default();
        for id in open.into_keys() {
            self.globals.proposals.remove(&id);
            let why = Some(PROCESS_ENDED.to_owned());
            self.fact(pid, Body::Proposal { id, state: ProposalState::Expired, proposal: None, why });
        }
        let stood = self.with(pid, |process| std::mem::take(&mut process.standing)).unwrap_or_default();
        for id in stood.into_keys() {
            self.globals.standing.remove(&id);
        }
    }

    /// Effects still to come back, with their processes.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.globals.in_flight.values().filter(|in_flight| !matches!(in_flight, InFlight::Serve { .. })).count()
    }
}

/// One less of those that are counted by process; what comes to none is not kept.
fn fewer(counts: &mut BTreeMap<Pid, u32>, of: Pid) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// What a process waits for that nobody will hear of once it has ended.
fn awaited(process: &Process) -> Vec<String> {
    let timers = process.timers.keys().map(|timer| format!("timer {timer}"));
    timers.chain(process.webhooks.keys().map(|path| format!("webhook {path}"))).collect()
}
