//! Turns: one inference at a time, and windows in which no call is parted from its result.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::decode::{call_ids, decode};
use aos_abi::entry::{Configured, Faulted, InferenceOutcome, Purpose, ServedOutcome};
use aos_abi::inference::{Failure, FailureKind, Stop};
use aos_abi::model::ModelLimits;
use aos_abi::process::Mode;
use aos_abi::{Body, CallId, EffectId, Entry, Lsn, Pid, Timestamp};
use aos_kernel::effect::Infer;

use crate::report::{Broken, broken};

const ONE_AT_A_TIME: &str = "one inference at a time";
/// The span of limits per minute.
const MINUTE_MS: u64 = 60_000;
const TOGETHER: &str = "a call is never parted from its result";

/// The inferences and replies of every process.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Asked and not answered: whose, on what, why.
    pub(crate) in_flight: BTreeMap<EffectId, (Pid, String, Purpose)>,
    /// The most that each of them may answer.
    outputs: BTreeMap<EffectId, u64>,
    /// What each process waits for: one inference, or a second one beside it.
    asking: BTreeMap<Pid, Vec<EffectId>>,
    /// Inferences that are one of two, or were and lost.
    raced: BTreeSet<EffectId>,
    /// Those that ever were one of two.
    ever: BTreeSet<EffectId>,
    /// Seconds that were announced and have not begun.
    announced: BTreeSet<EffectId>,
    /// Inferences of two that were given up with the last input, each with the least that it must be charged.
    unpaid: Vec<(Pid, u64)>,
    /// Inferences of agents by process and model that are not charged yet.
    uncharged: BTreeMap<(Pid, String), u64>,
    programs: BTreeSet<Pid>,
    /// How many seconds there were.
    pub(crate) hedged: u64,
    /// Replies with the ids of their calls, in order.
    replies: BTreeMap<Lsn, Vec<CallId>>,
    /// Results with the reply whose call they answer.
    results: BTreeMap<Lsn, (Lsn, CallId)>,
    newest: BTreeMap<Pid, Lsn>,
    /// Since when each process is its own: entries before belong to the one it was forked from.
    pub(crate) born: BTreeMap<Pid, Lsn>,
    /// Until when a model's server wants quiet.
    pub(crate) quiet: BTreeMap<String, Timestamp>,
    /// How many there were.
    pub(crate) started: u64,
    /// Starts by model.
    pub(crate) starts: BTreeMap<String, u64>,
    /// What the input under way has models asked.
    pub(crate) again: BTreeSet<EffectId>,
    /// Those of `in_flight` that were under way when the configuration changed: a start may ask them no more.
    outdated: BTreeSet<EffectId>,
    /// Who started with the last input, on what.
    pub(crate) begun: Vec<(Pid, String)>,
    /// Starts of the last minute by model, with the tokens they might take.
    minute: BTreeMap<String, VecDeque<(Timestamp, u64)>>,
}

impl Turns {
    /// Whoever serves is paid, whatever was asked first, and once: a fallback at its own price, each of two for itself.
    fn charged(&mut self, pid: Pid, model: &str) -> Result<(), Broken> {
        // What programs ask is counted by `bill`, which knows what their purses held.
        if self.programs.contains(&pid) {
            return Ok(());
        }
        match self.uncharged.get_mut(&(pid, model.to_owned())) {
            Some(left @ 1..) => {
                *left -= 1;
                Ok(())
            }
            _ => Err(broken("a charge is for the model that was asked", format!("{pid} is charged for {model}"))),
        }
    }

    pub(crate) fn entry(&mut self, entry: &Entry, config: Option<&Configured>) -> Result<(), Broken> {
        let pid = entry.pid;
        match &entry.body {
            Body::Spawned(spec) => {
                self.born.insert(pid, entry.lsn);
                if spec.mode == Mode::Program {
                    self.programs.insert(pid);
                }
            }
            Body::Forked { .. } => {
                self.born.insert(pid, entry.lsn);
            }
            Body::InferenceStarted { effect, model, purpose, input_tokens, max_output } => {
                let limits = config.and_then(|config| config.models.get(model)).map(|spec| spec.limits);
                if self.held(model, &limits.unwrap_or_default(), entry.at) {
                    return Err(broken("limits of models hold", format!("{effect} of {pid} starts on {model}")));
                }
                let minute = self.minute.entry(model.clone()).or_default();
                minute.push_back((entry.at, input_tokens + u64::from(*max_output)));
                while minute.front().is_some_and(|(at, _)| entry.at.millis_since(*at) >= MINUTE_MS) {
                    minute.pop_front();
                }
                self.outputs.insert(*effect, (*max_output).into());
                if *purpose != Purpose::Request {
                    *self.uncharged.entry((pid, model.clone())).or_default() += 1;
                }
                if self.announced.remove(effect) {
                    return self.second(pid, *effect, model, *purpose);
                }
                self.begun.push((pid, model.clone()));
                if *purpose == Purpose::Request {
                    self.started += 1;
                    *self.starts.entry(model.clone()).or_default() += 1;
                    self.in_flight.insert(*effect, (pid, model.clone(), *purpose));
                    return Ok(());
                }
                if let Some(others) = self.asking.insert(pid, vec![*effect]) {
                    return Err(broken(ONE_AT_A_TIME, format!("{pid} asks {effect} during {others:?}")));
                }
                self.started += 1;
                *self.starts.entry(model.clone()).or_default() += 1;
                self.in_flight.insert(*effect, (pid, model.clone(), *purpose));
            }
            Body::Hedged { effect, by, .. } => {
                if self.asking.get(&pid).is_none_or(|asking| asking[..] != [*effect]) || !self.ever.insert(*effect) {
                    return Err(broken(ONE_AT_A_TIME, format!("{by} of {pid} is asked beside {effect}")));
                }
                self.ever.insert(*by);
                self.raced.extend([*effect, *by]);
                self.announced.insert(*by);
            }
            Body::Charged { usage, model, .. } => {
                self.charged(pid, model)?;
                let tokens = usage.input_tokens + usage.output_tokens;
                if let Some(at) = self.unpaid.iter().position(|(of, least)| *of == pid && *least <= tokens) {
                    self.unpaid.swap_remove(at);
                }
            }
            Body::Served { effect, outcome, .. } => {
                let model = self.in_flight.remove(effect).map(|(_, model, _)| model).unwrap_or_default();
                if let ServedOutcome::Failed { failure } = outcome
                    && let Some(wait) = failure.retry_after_ms
                {
                    let quiet = self.quiet.entry(model).or_default();
                    *quiet = entry.at.plus_millis(wait).max(*quiet);
                }
            }
            Body::InferenceCompleted { effect, outcome, .. } => {
                let Some((_, model, purpose)) = self.in_flight.remove(effect) else {
                    return Err(broken(ONE_AT_A_TIME, format!("{effect} is answered and was not asked")));
                };
                let ours = self.asking.get(&pid).is_some_and(|asking| asking.contains(effect));
                if ours {
                    self.comes_back(pid, *effect, matches!(outcome, InferenceOutcome::Answered(_)));
                }
                let silent = |failure: &Failure| failure.kind == FailureKind::Cancelled && failure.usage.is_none();
                // For a digest no model was asked.
                let asked = purpose != Purpose::Digest;
                if matches!(outcome, InferenceOutcome::Failed { failure } if asked && silent(failure)) {
                    self.owes(pid, *effect);
                }
                match outcome {
                    InferenceOutcome::Answered(reply) if ours && purpose == Purpose::Turn => {
                        let spec = config.and_then(|config| config.models.get(&model));
                        let encoding = spec.map(|spec| spec.encoding).unwrap_or_default();
                        let cut_off = reply.stop == Stop::Length;
                        let ids = &mut call_ids(entry.lsn);
                        let decoding = decode(&reply.text, &reply.calls, encoding, cut_off, ids);
                        let ids = decoding.calls.into_iter().map(|call| call.call_id).collect();
                        self.replies.insert(entry.lsn, ids);
                        self.newest.insert(pid, entry.lsn);
                    }
                    InferenceOutcome::Failed { failure } => {
                        if let Some(wait) = failure.retry_after_ms {
                            let until = entry.at.plus_millis(wait);
                            let quiet = self.quiet.entry(model).or_default();
                            *quiet = until.max(*quiet);
                        }
                    }
                    InferenceOutcome::Answered(_) => {}
                }
            }
            Body::Result { call_id, .. } => {
                if let Some(reply) = self.newest.get(&pid) {
                    self.results.insert(entry.lsn, (*reply, call_id.clone()));
                }
            }
            Body::Faulted(Faulted { lost, .. }) => {
                // After a stop nothing that it has under way goes on.
                let own = self.in_flight.iter().filter(|(_, (of, ..))| *of == pid).map(|(effect, _)| *effect);
                self.outdated.extend(own);
                if let Some(effect) = lost
                    && let Some((pid, ..)) = self.in_flight.remove(effect)
                    && self.asking.get(&pid).is_some_and(|asking| asking.contains(effect))
                {
                    self.comes_back(pid, *effect, false);
                    self.owes(pid, *effect);
                }
            }
            Body::Exited { .. } => {
                self.asking.remove(&pid);
            }
            Body::Configured(_) => self.outdated.extend(self.in_flight.keys()),
            Body::Booted { configured, faulted, .. } => {
                // What a process that has ended was asking is asked no more, nor what may be asked no more by what holds now.
                let known = |model: &str| config.is_some_and(|config| config.models.contains_key(model));
                let (outdated, again) = (std::mem::take(&mut self.outdated), &self.again);
                let undisturbed = configured.is_none() && faulted.is_empty();
                // What a provider may have been at work on is paid, and asked anew; no model here is free.
                let as_before = |effect: &EffectId, purpose: Purpose| {
                    purpose == Purpose::Digest && undisturbed && !outdated.contains(effect)
                };
                let goes_on =
                    |effect: &EffectId, purpose: Purpose| as_before(effect, purpose) || again.contains(effect);
                // Of two the first goes on.
                for asking in self.asking.values_mut() {
                    asking.truncate(1);
                    asking.iter().for_each(|of| _ = self.raced.remove(of));
                }
                let asking = &self.asking;
                let (kept, gone) =
                    std::mem::take(&mut self.in_flight).into_iter().partition(|(effect, (pid, model, purpose))| {
                        let asks = asking.get(pid).is_some_and(|asking| asking.contains(effect));
                        asks && known(model) && goes_on(effect, *purpose)
                    });
                self.in_flight = kept;
                let gone: BTreeMap<EffectId, (Pid, String, Purpose)> = gone;
                let failed = |pid: Pid| faulted.iter().any(|unrecovered| unrecovered.pid == pid);
                for (effect, (pid, _, purpose)) in gone {
                    let asked = matches!(purpose, Purpose::Turn | Purpose::Summary);
                    if self.raced.contains(&effect) || asked && !failed(pid) {
                        self.owes(pid, effect);
                    }
                }
                // Nor is anybody whose model is configured no more.
                let in_flight = &self.in_flight;
                self.outdated = outdated.into_iter().filter(|effect| in_flight.contains_key(effect)).collect();
                self.asking.retain(|_, asking| asking.iter().all(|effect| in_flight.contains_key(effect)));
            }
            _ => {}
        }
        Ok(())
    }

    /// A second one begins beside the only one that its process waits for.
    fn second(&mut self, pid: Pid, effect: EffectId, model: &str, purpose: Purpose) -> Result<(), Broken> {
        self.hedged += 1;
        self.started += 1;
        *self.starts.entry(model.to_owned()).or_default() += 1;
        let asking = self.asking.entry(pid).or_default();
        asking.push(effect);
        let on = |of: &EffectId| self.in_flight.get(of).map(|(_, model, _)| model.as_str());
        if asking.len() != 2 || purpose != Purpose::Turn || on(&asking[0]) == Some(model) {
            return Err(broken(ONE_AT_A_TIME, format!("{pid} asks {model} among {asking:?}")));
        }
        self.in_flight.insert(effect, (pid, model.to_owned(), purpose));
        Ok(())
    }

    /// What a process waits for has come: an answer ends its waiting, and so does the failure of the last of two.
    fn comes_back(&mut self, pid: Pid, effect: EffectId, answered: bool) {
        let Some(asking) = self.asking.get_mut(&pid) else { return };
        asking.retain(|of| *of != effect);
        if !answered {
            // The other one is like any from here on.
            asking.iter().for_each(|of| _ = self.raced.remove(of));
        }
        if answered || asking.is_empty() {
            self.asking.remove(&pid);
        }
    }

    /// One was given up: the least that its process must be charged by the same input.
    fn owes(&mut self, pid: Pid, effect: EffectId) {
        let least = self.outputs.get(&effect).copied().unwrap_or_default();
        self.unpaid.push((pid, least));
    }

    /// An input is over: whatever of two was given up with it is paid.
    pub(crate) fn over(&mut self) -> Result<(), Broken> {
        match std::mem::take(&mut self.unpaid).first() {
            None => Ok(()),
            Some((pid, least)) => Err(broken(
                "what was given up is paid at its worst",
                format!("{pid} was not charged the {least} tokens at least of what was given up"),
            )),
        }
    }

    /// Whether a limit keeps the next inference of this model from starting now.
    pub(crate) fn held(&self, model: &str, limits: &ModelLimits, now: Timestamp) -> bool {
        let quiet = self.quiet.get(model).is_some_and(|until| *until > now);
        let recent = self.minute.get(model).into_iter().flatten();
        let recent = recent.filter(|(at, _)| now.millis_since(*at) < MINUTE_MS);
        let (starts, tokens) = recent.fold((0, 0), |(starts, sum), (_, tokens)| (starts + 1, sum + tokens));
        quiet || limits.rpm.is_some_and(|rpm| starts >= rpm.max(1)) || limits.tpm.is_some_and(|tpm| tokens >= tpm)
    }

    pub(crate) fn infer(&mut self, infer: &Infer) -> Result<(), Broken> {
        let born = self.born.get(&infer.pid).copied().unwrap_or_default();
        let fault = |what: String| Err(broken(TOGETHER, format!("{} of {}: {what}", infer.id, infer.pid)));
        let mut items = infer.items.iter().filter(|lsn| **lsn >= born).copied().peekable();
        while let Some(item) = items.next() {
            if let Some((reply, call_id)) = self.results.get(&item) {
                return fault(format!("the result {item} of {call_id} stands without its reply {reply}"));
            }
            let Some(ids) = self.replies.get(&item) else { continue };
            for id in ids {
                match items.next().map(|lsn| (lsn, self.results.get(&lsn))) {
                    Some((_, Some((reply, call_id)))) if *reply == item && call_id == id => {}
                    other => return fault(format!("after {item} the result of {id} is wanted, there is {other:?}")),
                }
            }
        }
        Ok(())
    }
}
