//! The turn: news into the window, and a prompt to the model.
//!
//! Start at [`Kernel::schedule`], which hands out free slots; what comes back is `outcome`'s. What always holds: one inference
//! per process at a time, and a second of the same turn where `hedge` asks one; whatever was recorded for a process is shown
//! to it; an item enters the window before the prompt that shows it and stays there if that inference fails; nothing is
//! asked that cannot be paid.

use std::sync::Arc;
use std::sync::LazyLock;

use aos_abi::entry::Purpose;
use aos_abi::inference::Encoding;
use aos_abi::model::ModelSpec;
use aos_abi::process::{Mode, Priority};
use aos_abi::syscall::CallSet;
use aos_abi::{Body, EffectId, Lsn, Name, Pid, Usd};
use aos_context::{Calibration, Identity, ItemKind};
use aos_policy::Labels;

use crate::budget::{Dimension, Need};
use crate::effect::{Effect, Infer};
use crate::hedge::Race;
use crate::process::{Notice, Phase, Process};
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// Room for the status line, in tokens.
const STATUS_TOKENS: u64 = 128;
/// Tokens a summary may have; where a model thinks, which counts as well, it may have as many as a turn.
const SUMMARY_TOKENS: u32 = 1024;
/// Least room for a window, in tokens, however small the model's: below it nothing sensible can be said.
const WINDOW_TOKENS_MIN: u64 = 256;

/// Tokens of each call's description in a tool list, estimated once: the table never changes.
static TOOL_TOKENS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    Name::ALL
        .iter()
        .map(|name| {
            let schema = aos_abi::syscall::schema(*name).to_string().len();
            aos_context::estimate(schema + name.as_str().len() + name.spec().summary.len() + 64)
        })
        .collect()
});

impl<P: PageStore> Kernel<P> {
    /// Gives every free slot to whoever is next. Called at the end of every input, so that a free slot and a waiting
    /// process never coexist.
    pub(crate) fn schedule(&mut self) {
        let config = Arc::clone(&self.config);
        // A process that cannot pay ends here, and may wake others that wait for a model already looked at.
        let mut again = true;
        while std::mem::take(&mut again) {
            self.run_steps();
            self.look_at_the_broke();
            for model in self.globals.scheduler.waited_for() {
                let Some(spec) = config.models.get(&model) else {
                    for pid in self.globals.scheduler.dismiss(&model) {
                        self.works_on(pid);
                        again = true;
                        if self.table.get(pid).is_some_and(|process| process.mode == Mode::Program) {
                            self.refuse_for_want_of(pid, &model);
                            continue;
                        }
                        if !self.route_of(pid).order.is_empty() {
                            self.want_turn(pid);
                            continue;
                        }
                        let known: Vec<&str> = config.models.keys().map(String::as_str).collect();
                        let hint = format!("configured are: {}", known.join(", "));
                        self.give_up(pid, &format!("no model `{model}` is configured"), Some(&hint));
                    }
                    continue;
                };
                while let Some(pid) = self.globals.scheduler.next(&model, &spec.limits, self.globals.at) {
                    self.works_on(pid);
                    if self.table.get(pid).is_some_and(|process| process.mode == Mode::Program) {
                        self.serve(pid, &model, spec);
                    } else {
                        self.start_turn(pid, &model, spec);
                    }
                    again = true;
                }
            }
            // Whoever was looked at may have given back what another waits for.
            again |= self.freed;
        }
    }

    /// Queues a process for its next turn, unless something holds it.
    pub(crate) fn want_turn(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        if process.exited() || process.stopped.is_some() {
            self.with(pid, |process| {
                if !process.exited() {
                    process.phase = Phase::Ready;
                }
            });
            return;
        }
        if process.mode == Mode::Program {
            // It takes no turns, so there is no last one either.
            if process.terminating.is_some() {
                self.exit(pid, 143, serde_json::Value::Null, "revoked by TERM");
            }
            return;
        }
        if process.terminating.is_some_and(|terminating| terminating.last_turn) {
            self.exit(pid, 143, serde_json::Value::Null, "ended by TERM after its last turn");
            return;
        }
        if self.is_useless(pid) {
            return;
        }
        if !self.choose(pid) || self.meets_wall(pid) {
            return;
        }
        let Some(process) = self.table.get(pid) else { return };
        let urgent = process.hurried || process.has_person_input() || process.terminating.is_some();
        let class = if urgent { Priority::Interactive } else { process.priority };
        let (model, service) = (process.model.clone(), process.service);
        let service = self.globals.scheduler.enqueue(&model, pid, class, service, self.globals.at);
        self.with(pid, |process| {
            process.phase = Phase::Ready;
            process.service = service;
        });
    }

    /// Wakes an idle process that has news.
    pub(crate) fn wake(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        if process.phase == Phase::Idle && process.stopped.is_none() && process.has_news() {
            self.want_turn(pid);
        }
    }

    /// Takes what is new into the window. A process that is in the middle of something leaves messages and piped input
    /// to the calls that read them; what a person says, timers, webhooks and watches are shown at once.
    fn absorb(&mut self, pid: Pid) {
        let mut put_away = Vec::new();
        let mut labels = Labels::NONE;
        self.with(pid, |process| {
            // However often the turn is put off, what was in the middle of something is so until it begins.
            process.stepped |= !process.step.is_empty();
            process.hurried |= process.has_person_input();
            let at_rest = !process.stepped;
            let mut news: Vec<Notice> = process.notices.drain(..).collect();
            for chunk in std::mem::take(&mut process.stdin) {
                if at_rest || chunk.from_pid == Pid::INIT {
                    news.push(chunk.notice);
                } else {
                    process.stdin.push_back(chunk);
                }
            }
            put_away = std::mem::take(&mut process.put_away);
            if at_rest {
                news.extend(process.inbox.drain(..).map(|letter| letter.notice));
                for zombie in process.zombies.iter_mut().filter(|zombie| !zombie.shown) {
                    zombie.shown = true;
                    news.push(zombie.notice);
                }
            }
            news.sort_by_key(|notice| notice.lsn);
            labels =
                news.iter().fold(std::mem::take(&mut process.incoming), |labels, notice| labels.and(notice.labels));
            for notice in news {
                process.window.push(notice.lsn, notice.tokens, ItemKind::User);
            }
            if let Some(terminating) = &mut process.terminating {
                terminating.last_turn = true;
            }
            process.step.clear();
        });
        self.learns(pid, labels);
        if !put_away.is_empty() {
            let lsn = self.fact(pid, Body::Reaped { children: put_away });
            let notice = self.as_notice(lsn);
            self.with(pid, |process| process.window.push(notice.lsn, notice.tokens, ItemKind::User));
        }
        self.made_room(pid);
    }

    fn start_turn(&mut self, pid: Pid, model: &str, spec: &ModelSpec) {
        if self.withdrawn_model(pid, model) || self.passes_by(pid, model, spec) {
            return;
        }
        let hedge_after_ms = self.patience(pid);
        self.absorb(pid);
        if !spec.local && self.must_stay_here(pid, model) {
            return;
        }
        let Some(mut draft) = self.draft(pid, model, spec) else { return };
        let need = draft.need(spec);
        if !self.afford(pid, need) {
            return;
        }
        draft.infer.hedge_after_ms = hedge_after_ms.filter(|_| draft.infer.purpose == Purpose::Turn);
        let race = if draft.infer.hedge_after_ms.is_some() { Race::Open } else { Race::Alone };
        let id = draft.infer.id;
        self.with(pid, |process| process.phase = Phase::Inferring(id));
        self.begin(draft, spec, need, race);
    }

    /// An inference that is paid goes out.
    pub(crate) fn begin(&mut self, mut draft: Draft, spec: &ModelSpec, need: Need, race: Race) {
        let Infer { id, pid, purpose, max_output, .. } = draft.infer;
        let model = draft.infer.model.clone();
        self.globals.in_flight.insert(
            id,
            InFlight::Infer {
                pid,
                model: model.clone(),
                purpose,
                upto: draft.upto,
                estimate: draft.estimate,
                reserved_usd: need.usd,
                reserved_tokens: need.tokens,
                price: spec.price,
                max_output,
                race,
                heard: None,
            },
        );
        let (tokens, now) = (draft.estimate + u64::from(max_output), self.globals.at);
        draft.infer.once = spec.limits.per_minute();
        self.globals.scheduler.started(&model, tokens, now);
        let started = Body::InferenceStarted {
            effect: id,
            model: model.clone(),
            purpose,
            input_tokens: draft.estimate,
            max_output,
        };
        self.fact(pid, started);
        self.with(pid, |process| {
            process.stepped = false;
            process.hurried &= purpose != Purpose::Turn;
        });
        self.tries(pid, &model, id);
        self.perform(Effect::Infer(Box::new(draft.infer)));
    }

    /// Stops a process until a person acts.
    pub(crate) fn stop_with(&mut self, pid: Pid, reason: &str) {
        self.fact(pid, Body::Stopped { reason: reason.to_owned(), until: None });
        // It may have waited for a model when another word, such as TERM, had it ask for one anew.
        self.unqueue(pid);
        self.with(pid, |process| {
            process.stopped = Some(reason.to_owned());
            process.phase = Phase::Ready;
            // Its last turn has not begun.
            if let Some(terminating) = &mut process.terminating {
                terminating.last_turn = false;
            }
        });
    }

    /// The next prompt of a process: a turn, or first a summary where the window is full.
    pub(crate) fn draft(&mut self, pid: Pid, model: &str, spec: &ModelSpec) -> Option<Draft> {
        let tools = self.calls_of(pid);
        let role_grants = self.granted_by_role(pid);
        let guard = self.guard(pid, spec);
        let process = self.table.get(pid)?;
        let system = aos_context::system_prompt(&identity(process, &role_grants, spec, tools));
        let max_output = spec.max_output.min(spec.context_window / 2).max(1);
        let calibration = self.globals.calibration.get(model).copied().unwrap_or_default();
        let fixed = fixed_tokens(&system, tools, spec.encoding);
        let budget = window_budget(spec, max_output, &calibration, fixed);
        let plan = process.window.plan(budget);
        let id = self.effect_id();
        let process = self.table.get(pid)?;
        let (purpose, items, max_output, upto) = match plan {
            Some(compaction) => {
                let items = process.window.covered(compaction.upto).map(|item| item.lsn).collect();
                let (purpose, most) = match process.attempts.digest {
                    true => (Purpose::Digest, 0),
                    false if spec.reasoning => (Purpose::Summary, max_output),
                    false => (Purpose::Summary, SUMMARY_TOKENS.min(max_output)),
                };
                (purpose, items, most, compaction.upto)
            }
            None => (Purpose::Turn, process.window.items().map(|item| item.lsn).collect(), max_output, Lsn::ZERO),
        };
        let window = process.window.tokens_within(budget);
        let sent = if purpose == Purpose::Digest { 0 } else { window + fixed };
        let estimate = calibration.apply(sent);
        // A token is at least one byte, and an estimate counts a token for every three: this is never exceeded.
        let worst_input = sent * 3;
        let status = self.status_line(pid, window + fixed, budget + fixed);
        let infer = Infer {
            id,
            pid,
            purpose,
            model: model.to_owned(),
            system,
            items,
            budget,
            status,
            tools,
            encoding: spec.encoding,
            images: spec.images,
            max_output,
            guard,
            once: spec.limits.per_minute(),
            hedge_after_ms: None,
        };
        Some(Draft { infer, estimate, worst_input, upto })
    }

    /// The same inference again, after a restart.
    pub(crate) fn redraft(
        &mut self,
        id: EffectId,
        pid: Pid,
        model: &str,
        purpose: Purpose,
        upto: Lsn,
        max_output: u32,
    ) -> Option<Infer> {
        let spec = self.model(model)?;
        let tools = self.calls_of(pid);
        let role_grants = self.granted_by_role(pid);
        let guard = self.guard(pid, &spec);
        let process = self.table.get(pid)?;
        let system = aos_context::system_prompt(&identity(process, &role_grants, &spec, tools));
        let items = match purpose {
            Purpose::Turn | Purpose::Request => process.window.items().map(|item| item.lsn).collect(),
            Purpose::Summary | Purpose::Digest => process.window.covered(upto).map(|item| item.lsn).collect(),
        };
        let calibration = self.globals.calibration.get(model).copied().unwrap_or_default();
        let fixed = fixed_tokens(&system, tools, spec.encoding);
        let room = spec.max_output.min(spec.context_window / 2).max(1);
        let budget = window_budget(&spec, room, &calibration, fixed);
        let process = self.table.get(pid)?;
        let window = process.window.tokens_within(budget);
        let status = self.status_line(pid, window + fixed, budget + fixed);
        Some(Infer {
            id,
            pid,
            purpose,
            model: model.to_owned(),
            system,
            items,
            budget,
            status,
            tools,
            encoding: spec.encoding,
            images: spec.images,
            max_output,
            guard,
            once: spec.limits.per_minute(),
            hedge_after_ms: None,
        })
    }

    fn status_line(&mut self, pid: Pid, used: u64, of: u64) -> String {
        let left = Dimension::ALL.map(|dimension| self.left(pid, dimension));
        let now = self.globals.at;
        let Some(model) = self.table.get(pid).map(|process| process.model.clone()) else { return String::new() };
        let spec = self.config.models.get(&model);
        let priced = spec.and_then(|spec| spec.price).is_some_and(|price| price.worst(1, 1) > Usd::ZERO);
        let nearly_spent = self.nearly_spent(pid, priced);
        let Some(process) = self.table.get(pid) else { return String::new() };
        aos_context::status(&aos_context::Status {
            now,
            usd_left: left[0].map(Usd),
            tokens_left: left[1],
            calls_left: left[2],
            ends_at: process.budget.ends_at,
            window_percent: u32::try_from(used.saturating_mul(100) / of.max(1)).unwrap_or(100).min(100),
            unread_messages: process.inbox.len(),
            unread_input: process.stdin.len(),
            last_was_empty: process.attempts.empty > 0,
            last_was_cut_off: process.attempts.cut_off > 0,
            terminating: process.terminating.is_some(),
            nearly_spent,
            model_note: Some(process.course.note.clone()).filter(|note| !note.is_empty()),
        })
    }

    /// What the role of a process grants, in words.
    fn granted_by_role(&mut self, pid: Pid) -> Arc<Vec<String>> {
        let Some(process) = self.table.get(pid) else { return Arc::default() };
        if let Some(lines) = self.role_grants.get(&process.policy_role) {
            return Arc::clone(lines);
        }
        let lines = Arc::new(self.policy.describe(&process.policy_role));
        self.role_grants.insert(process.policy_role.clone(), Arc::clone(&lines));
        lines
    }

    /// The calls a process may make at all.
    pub(crate) fn calls_of(&mut self, pid: Pid) -> CallSet {
        let Some(process) = self.table.get(pid) else { return CallSet::EMPTY };
        // What has no handler yet is not offered; a call to it still gets a plain answer.
        self.policy
            .calls(&process.subject())
            .iter()
            .filter(|name| !matches!(name.spec().handler, aos_abi::syscall::Handler::Absent(_)))
            .collect()
    }
}

/// Tokens of a prompt beside its window.
fn fixed_tokens(system: &str, tools: CallSet, encoding: Encoding) -> u64 {
    let tool_tokens: u64 = match encoding {
        Encoding::Native => tools.iter().map(|name| TOOL_TOKENS[name as usize]).sum(),
        Encoding::Text | Encoding::Constrained => 0,
    };
    aos_context::estimate(system.len()) + tool_tokens + STATUS_TOKENS
}

/// Tokens a window may have, in its own uncalibrated unit.
fn window_budget(spec: &ModelSpec, max_output: u32, calibration: &Calibration, fixed: u64) -> u64 {
    let room = calibration.uncalibrated(u64::from(spec.context_window - max_output));
    room.saturating_sub(fixed).max(WINDOW_TOKENS_MIN)
}

pub(crate) struct Draft {
    pub(crate) infer: Infer,
    /// Tokens of the prompt, calibrated.
    estimate: u64,
    /// Tokens it cannot exceed.
    worst_input: u64,
    /// For a summary: the last entry it stands for.
    upto: Lsn,
}

impl Draft {
    /// The worst that it may cost.
    pub(crate) fn need(&self, spec: &ModelSpec) -> Need {
        let worst_output = u64::from(self.infer.max_output);
        let usd = spec.price.map_or(Usd::ZERO, |price| price.worst(self.worst_input, worst_output)).0;
        Need { usd, tokens: self.worst_input + worst_output }
    }
}

fn identity<'a>(process: &'a Process, role_grants: &[String], spec: &ModelSpec, calls: CallSet) -> Identity<'a> {
    let grants = match process.chain.first() {
        Some(grants) if process.own_grants => grants.texts(),
        _ => role_grants.to_vec(),
    };
    Identity {
        pid: process.pid,
        parent: process.parent,
        origin: process.origin,
        name: process.name.as_deref(),
        role: &process.role,
        mode: process.mode,
        grants,
        workspace: match &process.workspace {
            aos_abi::process::Workspace::Home(_) => "your own folder",
            aos_abi::process::Workspace::Folder(path) => path,
        },
        model: &process.model,
        encoding: spec.encoding,
        calls,
    }
}
