//! Programs outside that ask models with a key: their requests wait for the same slots, and are paid from the same budgets,
//! as the turns of agents.
//!
//! Start at [`Kernel::asked`]. A program is a process that takes no turns: it has a place in the table, a budget, a role and
//! an end, and any number of requests. What always holds: a request is refused, or served, or withdrawn, once; what is
//! refused is journaled so many times a minute and no oftener; nothing is asked of a model that its program may not use or
//! cannot pay; a program waits at most once for each model, whatever it has asked, so that many requests are no larger
//! share. Deliberately absent: what a request says. It is the edge's, and never in the journal.

use std::collections::BTreeSet;

use aos_abi::entry::{Asked, Key, Personal, Purpose, ServedOutcome, Verdict};
use aos_abi::inference::{Failure, FailureKind, Format, Usage};
use aos_abi::model::{Ability, ModelSpec};
use aos_abi::process::Mode;
use aos_abi::{Body, CallError, Code, EffectId, Pid, Usd, limits};

use crate::boot::STOPPED;
use crate::budget::Need;
use crate::effect::{Effect, Serve};
use crate::money::Outlook;
use crate::process::{Ask, HeldKey};
use crate::route::{self, Candidate, Choice, Signals};
use crate::table::PageStore;
use crate::{InFlight, Kernel, circuit, outcome};

/// The span of `rpm`, in seconds.
const MINUTE_S: u64 = 60;
/// When a program may ask again after a failure that may pass, in milliseconds.
const SOON_MS: u64 = 1000;
/// The name under which a key's requests are counted among its rates.
const RPM: &str = "requests";
/// The same for those that were refused.
const REFUSED: &str = "refusals";

impl<P: PageStore> Kernel<P> {
    /// A program gets a key in place of the one it had.
    pub(crate) fn keyed(&mut self, pid: Pid, key: &Key) {
        let Key { sha256, owner, rpm, tiers } = key.clone();
        let held = HeldKey { sha256, owner, rpm, tiers };
        let before = self.with(pid, |process| process.key.replace(Box::new(held)));
        if let Some(Some(before)) = before {
            self.globals.keys.remove(&before.sha256);
        }
        self.globals.keys.insert(key.sha256.clone(), pid);
    }

    /// The keys that there are, each by its SHA-256 in hex, and whose they are.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, Pid)> {
        self.globals.keys.iter().map(|(sha256, pid)| (sha256.clone(), *pid)).collect()
    }

    /// Whether a key may be given to this process.
    pub(crate) fn check_key(&mut self, pid: Pid, key: &Key) -> Result<(), CallError> {
        self.live_program(pid)?;
        if key.sha256.len() != 64 || !key.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(CallError::new(Code::Inval, "a key is given by its SHA-256 in hex"));
        }
        if self.globals.keys.contains_key(&key.sha256) {
            return Err(CallError::new(Code::Exist, "this key exists").hint("make another one"));
        }
        Ok(())
    }

    /// Whether a request of a program may be looked at: it lives, goes on, not too many of its requests wait, and it would
    /// not be refused where as many of them were as are journaled.
    pub(crate) fn check_request(&mut self, pid: Pid, asked: &Asked) -> Result<(), CallError> {
        self.live_program(pid)?;
        let Some(process) = self.table.get(pid) else { return Ok(()) };
        if let Some(why) = &process.stopped {
            return Err(CallError::new(Code::Perm, format!("the key is paused: {why}"))
                .hint(format!("`aos resume {pid}` lets it go on")));
        }
        if process.key.is_none() {
            return Err(
                CallError::new(Code::Perm, format!("program {pid} has no key")).hint("`aos models key NAME` makes one")
            );
        }
        if process.asks.len() >= limits::ASKS_MAX {
            let busy = format!("the key has {} requests that wait for a model", limits::ASKS_MAX);
            return Err(CallError { retry_after_ms: Some(1000), ..CallError::new(Code::Again, busy) });
        }
        let refused = process.rates.get(REFUSED).copied().unwrap_or_default();
        if refused.used_at(self.globals.at) < limits::REFUSALS_PER_MINUTE {
            return Ok(());
        }
        self.foresee(pid, asked)
    }

    /// What a request would be refused for, without any change: whoever only looks leaves no entry.
    fn foresee(&mut self, pid: Pid, asked: &Asked) -> Result<(), CallError> {
        self.over_rpm(pid)?;
        let ask = Ask::of(asked);
        let next = self.next_model_as(pid, &ask, |kernel, pid, need| {
            matches!(kernel.outlook_as_it_is(pid, need), Outlook::Now | Outlook::Soon)
        })?;
        let Choice { model, .. } = next.ok_or_else(|| self.none_serves(pid))?;
        let Some(spec) = self.model(&model) else { return Ok(()) };
        let outlook = self.outlook_as_it_is(pid, worst(&spec, &ask).1);
        match outlook {
            // Once purses are called in there may be enough, and while it waits what others have set aside may be settled.
            Outlook::Soon if !self.holds_purses() && self.begins_at_once(pid, &model, &spec) => Err(all_set_aside()),
            // All of them could turn out to be refused, too, each time that one of their own is done.
            Outlook::Soon if self.has_many_asks(pid) => Err(all_set_aside()),
            Outlook::Now | Outlook::Soon => Ok(()),
            Outlook::Later(_, error) | Outlook::Never(error) => Err(error),
        }
    }

    fn has_many_asks(&mut self, pid: Pid) -> bool {
        self.table.get(pid).is_some_and(|process| process.asks.len() as u64 >= limits::REFUSALS_PER_MINUTE)
    }

    fn begins_at_once(&mut self, pid: Pid, model: &str, spec: &ModelSpec) -> bool {
        let now = self.globals.at;
        self.globals.scheduler.is_free(model, &spec.limits, now) && !self.globals.scheduler.waits(model, pid)
    }

    fn live_program(&mut self, pid: Pid) -> Result<(), CallError> {
        match self.table.get(pid) {
            Some(process) if process.mode == Mode::Program && !process.exited() => Ok(()),
            Some(process) if process.exited() => {
                Err(CallError::new(Code::Srch, "the key was revoked").hint("`aos models key NAME` makes another one"))
            }
            Some(_) => Err(CallError::new(Code::Inval, format!("process {pid} is an agent and no program"))),
            None => Err(crate::no_process(pid)),
        }
    }

    /// A program asks: its request waits for a slot of the model that it may have, or is refused.
    pub(crate) fn asked(&mut self, pid: Pid, asked: &Asked) {
        if let Err(error) = self.count_request(pid) {
            return self.refuse(pid, asked.request, error);
        }
        let ask = Ask::of(asked);
        match self.next_model(pid, &ask) {
            Ok(Some(choice)) => self.put(pid, ask, choice),
            Ok(None) => {
                let error = self.none_serves(pid);
                self.refuse(pid, asked.request, error);
            }
            Err(error) => self.refuse(pid, asked.request, error),
        }
    }

    fn none_serves(&mut self, pid: Pid) -> CallError {
        CallError::new(Code::Perm, "no model may serve the key").hint(said_usable(&self.models_of(pid)))
    }

    /// Puts a request where it waits for the model that was chosen; the choice is recorded where it is one.
    fn put(&mut self, pid: Pid, ask: Ask, choice: Choice) {
        let Choice { model, why } = choice;
        if model != ask.wanted {
            let was = ask.tried.last().cloned();
            self.fact(pid, Body::Routed { model: model.clone(), was, why });
        }
        let ask = Ask { model: model.clone(), ..ask };
        self.with(pid, |process| process.asks.push_back(ask));
        self.queue(pid, &model);
    }

    /// Counts a request, unless its key has asked as often as it may in a minute.
    fn count_request(&mut self, pid: Pid) -> Result<(), CallError> {
        if self.over_rpm(pid)? {
            self.count(pid, RPM);
        }
        Ok(())
    }

    /// Whether the requests of a key are counted; an error where it has asked as often as it may.
    fn over_rpm(&mut self, pid: Pid) -> Result<bool, CallError> {
        let now = self.globals.at;
        let Some(process) = self.table.get(pid) else { return Ok(false) };
        let Some(rpm) = process.key.as_ref().and_then(|key| key.rpm) else { return Ok(false) };
        let window = process.rates.get(RPM).copied().unwrap_or_default();
        if window.used_at(now) >= u64::from(rpm) {
            let error = CallError::new(Code::Again, format!("the key may ask {rpm} times a minute"));
            return Err(CallError { retry_after_ms: Some(window.until.millis_since(now).max(1)), ..error });
        }
        Ok(true)
    }

    /// Counts one more in a minute of a program.
    fn count(&mut self, pid: Pid, what: &str) {
        let now = self.globals.at;
        self.with(pid, |process| process.rates.entry(what.to_owned()).or_default().add(now, MINUTE_S, 1));
    }

    /// The model that a request goes to next: the first that the router names of those that its key may use and that have
    /// not failed it. `None` where there is none left.
    fn next_model(&mut self, pid: Pid, ask: &Ask) -> Result<Option<Choice>, CallError> {
        self.next_model_as(pid, ask, Self::can_pay)
    }

    /// The same, where this says what the program can pay.
    fn next_model_as(
        &mut self,
        pid: Pid,
        ask: &Ask,
        can_pay: fn(&mut Self, Pid, Need) -> bool,
    ) -> Result<Option<Choice>, CallError> {
        let usable = self.models_of(pid);
        let config = std::sync::Arc::clone(&self.config);
        let asked = route::Asked::read(&ask.wanted, &config.models).ok_or_else(|| {
            CallError::new(Code::NoEnt, format!("there is no model `{}`", ask.wanted)).hint(said_usable(&usable))
        })?;
        let named = matches!(asked, route::Asked::Model(_));
        if named && !usable.contains(&ask.wanted) {
            let said = format!("the key may not use the model `{}`", ask.wanted);
            return Err(CallError::new(Code::Perm, said).hint(said_usable(&usable)));
        }
        if named && let Some(spec) = config.models.get(&ask.wanted) {
            self.bounded(pid, &ask.wanted, spec)?;
        }
        if ask.only {
            let error = CallError::new(Code::Inval, "embeddings are made by a model that is named");
            let vectors = usable.into_iter().filter(|name| config.models.get(name).is_some_and(|spec| spec.vectors));
            let error = error.hint(said_usable(&vectors.collect()));
            if !named {
                return Err(error);
            }
            let choice = Choice { model: ask.wanted.clone(), why: String::new() };
            return self.first_open(ask, vec![choice]);
        }
        let now = self.globals.at;
        let process = self.table.get(pid);
        let time_left_ms = process.and_then(|process| process.budget.ends_at).map(|end| end.millis_since(now));
        let role = process.map(|process| process.policy_role.clone()).unwrap_or_default();
        let mut candidates = Vec::with_capacity(usable.len());
        let mut unbounded = None;
        for (name, spec) in config.models.iter().filter(|(name, _)| usable.contains(*name)) {
            if let Err(error) = self.bounded(pid, name, spec) {
                unbounded = Some(error);
                continue;
            }
            candidates.push(Candidate {
                name,
                spec,
                verdict: Verdict::Allow,
                affordable: named || can_pay(self, pid, worst(spec, ask).1),
                holds_window: ask.input_tokens <= u64::from(spec.context_window),
                // All of it is sent in any case.
                holds_task: true,
                tried: ask.tried.contains(name),
                down: self.is_down_for(pid, name, spec),
                latency_ms: self.globals.measures.latency_of(name),
            });
        }
        let signals = Signals {
            asked,
            fixed_tokens: ask.input_tokens,
            // Those elsewhere are not among the usable ones then.
            stay_here: false,
            images: false,
            needs: &ask.needs,
            raised: 0,
            raised_why: "",
            time_left_ms,
            tallies: self.globals.measures.tallies_of(&role),
            now,
            fallback: &config.fallback,
        };
        let said = route::route(&signals, &candidates);
        if let Some(error) = unbounded.filter(|_| candidates.is_empty()) {
            return Err(error);
        }
        if said.order.is_empty() && !candidates.is_empty() {
            return Err(unable(&said.barred, ask));
        }
        self.first_open(ask, said.order)
    }

    /// The first of these that has not failed a request, and has a quota left for it; an error where none has, since no
    /// program waits for the end of one.
    fn first_open(&self, ask: &Ask, order: Vec<Choice>) -> Result<Option<Choice>, CallError> {
        let mut soonest: Option<CallError> = None;
        for choice in order.into_iter().filter(|choice| !ask.tried.contains(&choice.model)) {
            let Some(error) = self.walled(&choice.model) else { return Ok(Some(choice)) };
            if soonest.as_ref().is_none_or(|before| error.retry_after_ms < before.retry_after_ms) {
                soonest = Some(error);
            }
        }
        soonest.map_or(Ok(None), Err)
    }

    /// What a program has asked a model that takes nothing for long goes to another one, or is refused.
    pub(crate) fn ask_elsewhere(&mut self, pid: Pid, model: &str) {
        self.globals.scheduler.remove(model, pid);
        let asks = self.with(pid, |process| {
            let (of, kept) = std::mem::take(&mut process.asks).into_iter().partition(|ask| ask.model == model);
            process.asks = kept;
            of
        });
        let asks: std::collections::VecDeque<Ask> = asks.unwrap_or_default();
        for ask in asks {
            match self.next_model(pid, &ask) {
                Ok(Some(choice)) => self.put(pid, ask, choice),
                Ok(None) => {
                    let error = self.none_serves(pid);
                    self.refuse(pid, ask.request, error);
                }
                Err(error) => self.refuse(pid, ask.request, error),
            }
        }
    }

    /// Whether what a program may spend on a model has an end: a budget in dollars is none for a model elsewhere that has no
    /// price, but one in tokens is.
    fn bounded(&mut self, pid: Pid, model: &str, spec: &ModelSpec) -> Result<(), CallError> {
        let Some(budget) = self.table.get(pid).map(|process| &process.budget) else { return Ok(()) };
        if spec.local || spec.price.is_some() || budget.usd.limit.is_none() || budget.tokens.limit.is_some() {
            return Ok(());
        }
        let what = format!("the key has a budget in dollars, and `{model}` has no price that it could be counted in");
        Err(CallError::new(Code::Perm, what).hint(format!(
            "write its `price` in aos.toml, or bound the key in tokens too: `aos budget {pid} --tokens N`"
        )))
    }

    /// The models that a program may use unasked, by name: those of its role, and of its key's tiers.
    pub fn models_of(&mut self, pid: Pid) -> BTreeSet<String> {
        let Some(process) = self.table.get(pid) else { return BTreeSet::new() };
        let (role, labels) = (process.policy_role.clone(), process.labels);
        let tiers = process.key.as_ref().map(|key| key.tiers.clone()).unwrap_or_default();
        let flow = self.policy.model_flow(labels);
        let elsewhere = flow.verdict == Verdict::Allow && !flow.obligations.local_only;
        let config = std::sync::Arc::clone(&self.config);
        let may = |name: &str, spec: &ModelSpec| {
            (tiers.is_empty() || spec.tier.as_ref().is_some_and(|tier| tiers.contains(tier)))
                && (spec.local || elsewhere)
                && self.model_verdict(&role, name) == Verdict::Allow
        };
        config.models.iter().filter(|(name, spec)| may(name, spec)).map(|(name, _)| name.clone()).collect()
    }

    /// Puts a program into the queue for a model, where it stands once however much it has asked.
    fn queue(&mut self, pid: Pid, model: &str) {
        let Some(process) = self.table.get(pid) else { return };
        if process.stopped.is_some() {
            return;
        }
        let (class, service, now) = (process.priority, process.service, self.globals.at);
        let service = self.globals.scheduler.enqueue(model, pid, class, service, now);
        self.with(pid, |process| process.service = service);
        self.weigh(pid);
    }

    /// The models that a program's requests wait for.
    fn waits_for(&mut self, pid: Pid) -> BTreeSet<String> {
        let asks = self.table.get(pid).map(|process| &process.asks);
        asks.into_iter().flatten().map(|ask| ask.model.clone()).collect()
    }

    /// Its place everywhere follows the service that it has had.
    fn weigh(&mut self, pid: Pid) {
        let service = self.table.get(pid).map_or(0, |process| process.service);
        for model in self.waits_for(pid) {
            self.globals.scheduler.weigh(&model, pid, service);
        }
    }

    /// Takes a process out of every queue: it is stopped, ends, or waits for something else first.
    pub(crate) fn unqueue(&mut self, pid: Pid) {
        let own = self.table.get(pid).map(|process| process.model.clone());
        for model in self.waits_for(pid).into_iter().chain(own) {
            self.globals.scheduler.remove(&model, pid);
        }
    }

    /// A program that was stopped goes on.
    pub(crate) fn queue_again(&mut self, pid: Pid) {
        for model in self.waits_for(pid) {
            self.queue(pid, &model);
        }
    }

    /// A program's turn at a model: its oldest request for that model is served.
    pub(crate) fn serve(&mut self, pid: Pid, model: &str, spec: &ModelSpec) {
        let ask = self.with(pid, |process| {
            let at = process.asks.iter().position(|ask| ask.model == model)?;
            process.asks.remove(at)
        });
        let Some(Some(ask)) = ask else { return };
        if self.table.get(pid).is_some_and(|process| process.asks.iter().any(|ask| ask.model == model)) {
            self.queue(pid, model);
        }
        // It was up when it was chosen.
        if self.is_down_for(pid, model, spec).is_some()
            && let Ok(Some(choice)) = self.next_model(pid, &ask)
            && choice.model != model
        {
            return self.put(pid, ask, choice);
        }
        // It was allowed when it was asked, and the policy may be another one since.
        let role = self.table.get(pid).map(|process| process.policy_role.clone()).unwrap_or_default();
        if self.model_verdict(&role, model) != Verdict::Allow {
            let error = CallError::new(Code::Perm, format!("the policy was changed and forbids `{model}` by now"));
            return self.refuse(pid, ask.request, error.hint("`aos policy explain` says what holds"));
        }
        let (max_output, need) = worst(spec, &ask);
        let id = self.effect_id();
        let paid_by = match self.cover(pid, model, need) {
            Some(filled) => filled,
            None => match self.outlook(pid, need) {
                Outlook::Now => {
                    self.set_aside(pid, need);
                    id.cause
                }
                Outlook::Soon => return self.refuse(pid, ask.request, all_set_aside()),
                Outlook::Later(_, error) | Outlook::Never(error) => return self.refuse(pid, ask.request, error),
            },
        };
        let guard = self.guard(pid, spec);
        let (request, input_tokens) = (ask.request, ask.input_tokens);
        self.globals.in_flight.insert(
            id,
            InFlight::Serve {
                pid,
                ask,
                max_output,
                reserved_usd: need.usd,
                reserved_tokens: need.tokens,
                price: spec.price,
                heard: None,
            },
        );
        self.tries_for(pid, model, id);
        let now = self.globals.at;
        let tokens = input_tokens.saturating_add(u64::from(max_output));
        self.globals.scheduler.started(model, tokens, now);
        let once = spec.limits.per_minute();
        self.fact(
            pid,
            Body::InferenceStarted {
                effect: id,
                model: model.to_owned(),
                purpose: Purpose::Request,
                input_tokens,
                max_output,
            },
        );
        self.with(pid, |process| process.serving += 1);
        let model = model.to_owned();
        self.perform(Effect::Serve(Box::new(Serve { id, pid, request, model, max_output, once, guard, paid_by })));
    }

    /// A request is over: it is paid, and its slot is free. Where its model has failed another one is asked, as long as
    /// the router names one. Without a latency nobody heard how it ended, and nothing is learned of its model.
    pub(crate) fn request_over(
        &mut self,
        effect: EffectId,
        latency_ms: Option<u64>,
        outcome: &ServedOutcome,
        personal: Option<&Personal>,
    ) {
        let Some(InFlight::Serve { pid, mut ask, max_output, reserved_usd, reserved_tokens, price, .. }) =
            self.globals.in_flight.remove(&effect)
        else {
            return;
        };
        let model = ask.model.clone();
        self.globals.scheduler.finished(&model);
        self.with(pid, |process| process.serving = process.serving.saturating_sub(1));
        let thinks = self.thinks(&model) || ask.needs.contains(&Ability::Reasoning);
        let (usage, failure) = match outcome {
            // It hung up, or the server broke off, before it was said what came to it: what was thought is not heard.
            ServedOutcome::Answered { usage, whole: false } if usage.estimated && thinks => {
                (Some(Usage { output_tokens: max_output.into(), ..*usage }), None)
            }
            ServedOutcome::Answered { usage, .. } => (Some(*usage), None),
            ServedOutcome::Failed { failure } if failure.kind == FailureKind::Cancelled => {
                let unheard = thinks.then_some(max_output);
                let usage = outcome::given_up(failure.usage, ask.input_tokens, reserved_tokens, max_output, unheard);
                (usage, Some(failure))
            }
            ServedOutcome::Failed { failure } => (failure.usage, Some(failure)),
        };
        let used = usage.map(|usage| outcome::Believed::of(usage, reserved_tokens, max_output));
        let why = if latency_ms.is_some() { outcome::UNHEARD } else { STOPPED };
        let why = outcome::is_unheard(failure).then_some(why);
        self.charge(pid, (&model, price), used, Need { usd: reserved_usd, tokens: reserved_tokens }, why);
        self.weigh(pid);
        self.was_shown(pid, personal);
        let Some(latency_ms) = latency_ms else {
            return self.globals.circuits.dropped(&circuit::of_program(&model, pid), effect);
        };
        self.served_program(pid, &model, effect, failure);
        let Some(failure) = failure else {
            self.globals.measures.took(&model, latency_ms);
            return;
        };
        if let Some(wait) = failure.retry_after_ms {
            self.globals.scheduler.quiet(&model, self.globals.at.plus_millis(wait));
            self.look_at_wall(&model);
        }
        let lives = self.table.get(pid).is_some_and(|process| !process.exited());
        if lives && matches!(failure.kind, FailureKind::Transient | FailureKind::Permanent) {
            ask.tried.push(model.clone());
            if let Ok(Some(next)) = self.next_model(pid, &ask) {
                return self.put(pid, ask, next);
            }
        }
        let wall = failure.retry_after_ms.and_then(|_| self.walled(&model));
        let error = wall.unwrap_or_else(|| as_error(&model, failure));
        self.perform(Effect::Refuse { request: ask.request, error });
    }

    /// A program has hung up before its request was served.
    pub(crate) fn withdrawn(&mut self, pid: Pid, request: u64) {
        let before = self.waits_for(pid);
        self.with(pid, |process| process.asks.retain(|ask| ask.request != request));
        let after = self.waits_for(pid);
        for model in before.difference(&after) {
            self.globals.scheduler.remove(model, pid);
        }
    }

    /// Refuses what waits for a model that is configured no more.
    pub(crate) fn refuse_for_want_of(&mut self, pid: Pid, model: &str) {
        let asks = self.with(pid, |process| {
            let (gone, kept) = std::mem::take(&mut process.asks).into_iter().partition(|ask| ask.model == model);
            process.asks = kept;
            gone
        });
        let asks: std::collections::VecDeque<Ask> = asks.unwrap_or_default();
        for ask in asks {
            let error = CallError::new(Code::NoEnt, format!("the model `{model}` is configured no more"));
            self.refuse(pid, ask.request, error);
        }
    }

    fn refuse(&mut self, pid: Pid, request: u64, error: CallError) {
        self.count(pid, REFUSED);
        self.fact(pid, Body::Refused { request, error: error.clone() });
        self.perform(Effect::Refuse { request, error });
    }

    /// Ends what a program has asked: its key is of no more use.
    pub(crate) fn revoke(&mut self, pid: Pid) {
        self.unqueue(pid);
        self.put_back(pid);
        let taken = self.with(pid, |process| (process.key.take(), std::mem::take(&mut process.asks)));
        let Some((key, asks)) = taken else { return };
        if let Some(key) = key {
            self.globals.keys.remove(&key.sha256);
        }
        self.globals.circuits.forget(pid);
        for ask in asks {
            self.perform(Effect::Refuse {
                request: ask.request,
                error: CallError::new(Code::Srch, "the key was revoked"),
            });
        }
        let serving: Vec<EffectId> = self
            .globals
            .in_flight
            .iter()
            .filter(|(_, in_flight)| matches!(in_flight, InFlight::Serve { pid: of, .. } if *of == pid))
            .map(|(id, _)| *id)
            .collect();
        // They stay in flight until their outcome has come: the slots are held and the cost is charged.
        serving.into_iter().for_each(|effect| self.perform(Effect::Cancel(effect)));
    }

    /// After a restart: whoever asked has been cut off. What a request had used by then is paid as for one that is given up:
    /// where it is not known, at the most that it may have been.
    pub(crate) fn cut_off(&mut self, bare: &BTreeSet<Pid>) {
        let served = self.globals.in_flight.iter().filter_map(|(id, in_flight)| match in_flight {
            InFlight::Serve { pid, heard, .. } => Some((*id, *pid, *heard)),
            InFlight::Infer { .. } | InFlight::Call { .. } => None,
        });
        for (id, pid, heard) in served.collect::<Vec<_>>() {
            self.works_on(pid);
            if self.is_set_aside(pid) {
                continue;
            }
            let failure = outcome::cut_off(heard.map(Usage::from));
            self.request_over(id, None, &ServedOutcome::Failed { failure }, None);
        }
        self.lose_purses(bare);
        let programs: BTreeSet<Pid> = self.globals.keys.values().copied().collect();
        for pid in programs {
            self.works_on(pid);
            if !self.is_set_aside(pid) {
                self.unqueue(pid);
            }
            self.with(pid, |process| process.asks.clear());
        }
    }
}

impl Ask {
    /// A request as it is put.
    fn of(asked: &Asked) -> Ask {
        Ask {
            request: asked.request,
            wanted: asked.model.clone(),
            model: String::new(),
            tried: Vec::new(),
            input_tokens: asked.input_tokens,
            max_output: asked.max_output,
            needs: asked.needs.clone(),
            // The vectors of two models have nothing to do with each other.
            only: asked.format == Format::Embeddings,
        }
    }
}

/// A budget that others use up meanwhile, and may give back.
fn all_set_aside() -> CallError {
    let error = CallError::new(Code::Again, "what is left of the budget is set aside for requests under way");
    CallError { retry_after_ms: Some(1000), ..error }
}

/// The way out for a program that named what it may not have.
fn said_usable(usable: &BTreeSet<String>) -> String {
    let usable: Vec<&str> = usable.iter().map(String::as_str).collect();
    if usable.is_empty() { "the key may use none".into() } else { format!("the key may use {}", usable.join(", ")) }
}

/// None of the models that a key may use does what a request needs, or has a window for it.
fn unable(barred: &[Choice], ask: &Ask) -> CallError {
    let why: Vec<String> = barred.iter().map(|bar| format!("`{}`: {}", bar.model, bar.why)).collect();
    let error = CallError::new(Code::Inval, format!("no model may serve the request ({})", why.join("; ")));
    // A model that was named is barred only for what no request changes.
    let named = barred.iter().any(|bar| bar.model == ask.wanted);
    error.hint(match ask.needs.is_empty() {
        _ if named => "name another model",
        true => "send less at once, or name a model instead (it is asked as it is)",
        false => {
            "leave out what needs it, name a model instead (it is asked as it is), or say in aos.toml that one can"
        }
    })
}

/// The most tokens that a model may answer to a request, and the worst that it may cost.
fn worst(spec: &ModelSpec, ask: &Ask) -> (u32, Need) {
    let max_output = ask.max_output.unwrap_or(u32::MAX).min(spec.max_output);
    // Its tokens are estimated as one for three bytes, and a token is at least one byte.
    let input = ask.input_tokens.saturating_mul(3);
    let usd = spec.price.map_or(Usd::ZERO, |price| price.worst(input, u64::from(max_output))).0;
    (max_output, Need { usd, tokens: input.saturating_add(max_output.into()) })
}

/// A failed inference as the answer to a program.
fn as_error(model: &str, failure: &Failure) -> CallError {
    let code = match failure.kind {
        // It is up and says when it may be asked again.
        FailureKind::Transient if failure.retry_after_ms.is_some() => Code::Again,
        FailureKind::Here => Code::Again,
        FailureKind::Transient => Code::Io,
        FailureKind::Permanent => Code::Io,
        FailureKind::Refused | FailureKind::TooLong | FailureKind::TooLarge => Code::Inval,
        FailureKind::Cancelled => Code::Intr,
        FailureKind::Withheld => Code::Perm,
    };
    let mut error = CallError::new(code, format!("model `{model}`: {}", failure.message));
    error.hint.clone_from(&failure.hint);
    // What may pass is worth another request, which what a person must mend is not.
    let soon = (failure.kind == FailureKind::Transient).then_some(SOON_MS);
    error.retry_after_ms = failure.retry_after_ms.or(soon);
    error
}
