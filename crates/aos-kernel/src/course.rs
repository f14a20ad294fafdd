//! The course of a process through the models: what was asked for, what it was raised by, and where it goes next.
//!
//! Start at [`Kernel::choose`], called whenever a process wants a turn, and [`Kernel::judge_reply`], which raises it where a
//! better model would mend what went wrong and lets it come back down. What always holds: a process that was given a
//! model by name stays with it while that one can serve; each change of model is a fact with its reason; nothing here
//! looks at what a reply or a result says, only at whether a reply could be used.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::api::{RouteRequest, RouteView, RoutedModel};
use aos_abi::decode::Decoding;
use aos_abi::entry::{ItemKind, Outcome, Verdict};
use aos_abi::model::{ModelSpec, TIERS};
use aos_abi::{Body, CallError, Code, Name, Pid, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::Kernel;
use crate::budget::Need;
use crate::process::Process;
use crate::route::{Asked, Candidate, Route, Signals, Tally, route};
use crate::table::PageStore;

/// Replies in a row that could not be used before a better tier takes over.
const UNSOUND_MAX: u32 = 2;
/// Good replies in a row after which a raised process comes back down; twice as many each time it is raised again.
const SOUND_MIN: u32 = 4;
/// Most of them.
const SOUND_MAX: u32 = 64;
/// Replies whose calls are remembered, and how often the same calls among them make a loop.
const LATELY: usize = 6;
const LOOP: usize = 3;
/// Stretches of work after which a tier's failures count, and how many of them are remembered.
const TRIES_MIN: u32 = 8;
const TRIES_MAX: u32 = 64;
/// How long work does not begin in a tier that fails more often than not, in milliseconds.
const POOR_MS: u64 = 3_600_000;

/// Where a process is on its way through the models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// What was asked for: a model's name, a tier's, or `auto`.
    pub asked: String,
    /// How many tiers it was raised.
    pub raised: u32,
    /// Why, the last time.
    pub raised_why: String,
    /// Good replies in a row.
    pub sound: u32,
    /// Good replies that let it come down.
    pub stay: u32,
    /// Replies in a row that could not be used.
    pub unsound: u32,
    /// Models that failed in the turn that is to be served.
    pub tried: Vec<String>,
    /// The last replies that made calls, oldest first.
    pub lately: VecDeque<Made>,
    /// Of the last one, what they have come to so far, where the same calls were made lately.
    pub results: Option<u128>,
    /// It has been shown an image.
    pub images: bool,
    /// Tiers beyond its role's that a person has allowed it.
    pub allowed: BTreeSet<String>,
    /// Tiers that a person was asked for.
    pub proposed: BTreeSet<String>,
    /// What it is told of its model with the next prompt.
    pub note: String,
}

/// The calls of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Their fingerprint.
    pub calls: u128,
    /// That of what they came to; `None` for those that nobody looked at, since they were not a repetition.
    pub results: Option<u128>,
}

impl Course {
    /// The course of a process for which this was asked.
    #[must_use]
    pub fn of(asked: &str) -> Course {
        Course { asked: asked.to_owned(), ..Course::default() }
    }
}

/// What is measured of models and tiers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measures {
    /// How long each model takes to answer, in milliseconds, smoothed.
    latency_ms: BTreeMap<String, u64>,
    /// How each tier did, by role of the policy.
    tallies: BTreeMap<String, [Tally; TIERS.len()]>,
}

impl Measures {
    /// A model took so long.
    pub(crate) fn took(&mut self, model: &str, latency_ms: u64) {
        let known = self.latency_ms.entry(model.to_owned()).or_insert(latency_ms);
        *known = (known.saturating_mul(7) / 8).saturating_add(latency_ms / 8);
    }

    /// How long a model takes to answer, in milliseconds; 0: not known.
    pub(crate) fn latency_of(&self, model: &str) -> u64 {
        self.latency_ms.get(model).copied().unwrap_or(0)
    }

    /// How each tier did in a role.
    pub(crate) fn tallies_of(&self, role: &str) -> [Tally; TIERS.len()] {
        self.tallies.get(role).copied().unwrap_or_default()
    }

    fn tally(&mut self, role: &str, rank: usize) -> &mut Tally {
        &mut self.tallies.entry(role.to_owned()).or_default()[rank]
    }

    /// A stretch of work in a tier is over.
    pub(crate) fn stretch(&mut self, role: &str, rank: usize, failed: bool, now: Timestamp) {
        let tally = self.tally(role, rank);
        tally.tries += 1;
        tally.failures += u32::from(failed);
        if failed && tally.tries >= TRIES_MIN && tally.failures * 2 > tally.tries {
            // After that time half a trial's failures are enough to say it again.
            *tally = Tally { tries: TRIES_MIN / 2, failures: TRIES_MIN / 4, poor_until: now.plus_millis(POOR_MS) };
        } else if tally.tries >= TRIES_MAX {
            tally.tries /= 2;
            tally.failures /= 2;
        }
    }
}

impl<P: PageStore> Kernel<P> {
    /// Chooses the model of a process that wants a turn, and records it where it is another one than before. Gives the
    /// process up, and says `false`, where no model may serve it.
    pub(crate) fn choose(&mut self, pid: Pid) -> bool {
        let Some(process) = self.table.get(pid) else { return false };
        let (asked, model) = (process.course.asked.clone(), process.model.clone());
        let plain = process.course.tried.is_empty() && process.labels == aos_policy::Labels::NONE;
        let role = process.policy_role.clone();
        let now = self.globals.at;
        // The usual case: a model by name, of which nothing else is known.
        if plain
            && model == asked
            && self.model_verdict(&role, &asked) != Verdict::Deny
            && self.config.models.contains_key(&asked)
            && (self.config.fallback.is_empty()
                || self.globals.circuits.quiet() && self.globals.scheduler.quiet_until(&asked) <= now)
        {
            return true;
        }
        let said = self.route_of(pid);
        let Some(first) = said.order.first() else {
            if Asked::read(&asked, &self.config.models).is_some_and(|asked| !matches!(asked, Asked::Model(_))) {
                let why: Vec<String> = said.barred.iter().map(|bar| format!("`{}`: {}", bar.model, bar.why)).collect();
                let message = format!("no model may serve this process ({})", why.join("; "));
                self.give_up(pid, &message, Some("`aos models route` says what each would need"));
                return false;
            }
            // A model by name that is configured no more: who waits for it is told when it is its turn.
            return true;
        };
        if let Some(tier) = said.ask {
            self.propose_tier(pid, tier);
        }
        let most = u32::try_from(said.raised_max).unwrap_or(u32::MAX);
        self.with(pid, |process| process.course.raised = process.course.raised.min(most));
        let (to, mut why) = (first.model.clone(), first.why.clone());
        if to == model {
            return true;
        }
        if let Some(rule) = self.kept_here_by(pid) {
            why = format!("{why}; what the process holds stays here, by {rule}");
        }
        self.globals.scheduler.remove(&model, pid);
        let was = self.config.models.contains_key(&model).then_some(model);
        self.with(pid, |process| process.model.clone_from(&to));
        self.fact(pid, Body::Routed { model: to, was, why });
        true
    }

    /// What the router says of a process now.
    pub fn route_of(&mut self, pid: Pid) -> Route {
        let config = std::sync::Arc::clone(&self.config);
        let hold = self.answers_hold(pid);
        let Some(process) = self.table.get(pid) else { return Route::default() };
        let mut course = process.course.clone();
        if !hold {
            course.allowed.clear();
        }
        let role = process.policy_role.clone();
        let (ends_at, role_bytes) = (process.budget.ends_at, process.role.len());
        let words: usize = process.words.iter().map(String::len).sum();
        let window = process.window.tokens();
        // Only a task that a trusted hand wrote: other text would buy a better model by its length.
        let task = process.window.items().next().filter(|item| item.kind == ItemKind::Task && process.vouched);
        let task = task.map_or(0, |item| u64::from(item.tokens));
        let asked = Asked::read(&course.asked, &config.models).unwrap_or(Asked::Model(course.asked.clone()));
        let stay_here = self.stays_here_by_policy(pid);
        let now = self.globals.at;
        let fixed_tokens = IDENTITY_TOKENS + aos_context::estimate(role_bytes + words);
        let named = matches!(asked, Asked::Model(_));
        let mut candidates = Vec::with_capacity(config.models.len());
        for (name, spec) in &config.models {
            let need = worst_of(spec, window, fixed_tokens);
            let affordable = named || self.can_pay(pid, need);
            let room = u64::from(spec.context_window.saturating_sub(spec.max_output));
            candidates.push(Candidate {
                affordable,
                verdict: self.verdict_for(&role, &course, name),
                holds_window: window + fixed_tokens <= room,
                holds_task: task + fixed_tokens <= room,
                tried: course.tried.contains(name),
                down: self.is_down(name, spec),
                latency_ms: self.globals.measures.latency_of(name),
                name,
                spec,
            });
        }
        let signals = Signals {
            asked,
            fixed_tokens,
            stay_here,
            images: course.images,
            // An agent's calls come as text where its model makes none, and a model without eyes is told of images.
            needs: &BTreeSet::new(),
            raised: course.raised as usize,
            raised_why: &course.raised_why,
            time_left_ms: ends_at.map(|end| end.millis_since(now)),
            tallies: self.globals.measures.tallies_of(&role),
            now,
            fallback: &config.fallback,
        };
        route(&signals, &candidates)
    }

    /// What would serve a task, for a person who asks.
    ///
    /// # Errors
    /// `ENOENT` where there is no such model, tier or role.
    pub fn route_view(&mut self, request: &RouteRequest) -> Result<RouteView, CallError> {
        let RouteRequest { task, role, model, needs } = request;
        let config = std::sync::Arc::clone(&self.config);
        let asked_text = model.as_ref().unwrap_or(&config.default_model).to_owned();
        let asked = self.check_asked(&asked_text)?;
        let role = role.as_deref().unwrap_or_default();
        if self.policy.role(role).is_none() && !role.is_empty() {
            let roles: Vec<&str> = self.policy.roles().collect();
            return Err(CallError::new(Code::NoEnt, format!("the policy has no role `{role}`"))
                .hint(format!("it has: {}", roles.join(", "))));
        }
        let (now, none) = (self.globals.at, Course::default());
        let fixed_tokens = IDENTITY_TOKENS + aos_context::estimate(task.len());
        let day_left = config.usd_per_day.map(|limit| limit.0.saturating_sub(self.globals.day.spent));
        let candidates: Vec<Candidate<'_>> = config
            .models
            .iter()
            .map(|(name, spec)| Candidate {
                name,
                spec,
                verdict: self.verdict_for(role, &none, name),
                affordable: day_left.is_none_or(|left| left >= worst_of(spec, 0, fixed_tokens).usd),
                holds_window: true,
                holds_task: true,
                tried: false,
                down: self.is_down(name, spec),
                latency_ms: self.globals.measures.latency_of(name),
            })
            .collect();
        let signals = Signals {
            asked,
            fixed_tokens,
            stay_here: false,
            images: false,
            needs,
            raised: 0,
            raised_why: "",
            time_left_ms: None,
            tallies: self.globals.measures.tallies_of(role),
            now,
            fallback: &config.fallback,
        };
        let said = route(&signals, &candidates);
        let shown = |choices: Vec<crate::route::Choice>| {
            let told = choices.into_iter().map(|choice| {
                let spec = config.models.get(&choice.model);
                RoutedModel {
                    tier: spec.and_then(|spec| spec.tier.clone()),
                    worst_usd: spec
                        .and_then(|spec| spec.price.map(|_| aos_abi::Usd(worst_of(spec, 0, fixed_tokens).usd))),
                    model: choice.model,
                    why: choice.why,
                }
            });
            told.collect()
        };
        Ok(RouteView { asked: asked_text, order: shown(said.order), barred: shown(said.barred) })
    }

    /// The models elsewhere without a known price for which a budget in dollars would not hold: of all that may serve, where
    /// the process has one of its own; of the day's budget alone, only the first choice is worth a word each time.
    pub fn unpriced(&mut self, request: &RouteRequest, own_budget: bool) -> Vec<String> {
        let config = std::sync::Arc::clone(&self.config);
        if !own_budget && config.usd_per_day.is_none() {
            return Vec::new();
        }
        let Ok(RouteView { order, .. }) = self.route_view(request) else { return Vec::new() };
        let most = if own_budget { order.len() } else { 1 };
        let unpriced = |name: &String| config.models.get(name).is_some_and(|spec| !spec.local && spec.price.is_none());
        order.into_iter().take(most).map(|choice| choice.model).filter(unpriced).collect()
    }

    /// Reads what a process is to run on.
    ///
    /// # Errors
    /// `ENOENT` where it is no model, no tier and not `auto`.
    pub(crate) fn check_asked(&self, text: &str) -> Result<Asked, CallError> {
        Asked::read(text, &self.config.models).ok_or_else(|| {
            let known: Vec<&str> = self.config.models.keys().map(String::as_str).collect();
            CallError::new(Code::NoEnt, format!("no model `{text}`")).hint(format!(
                "configured are: {}; or `auto`, or a tier: {}",
                known.join(", "),
                TIERS.join(", ")
            ))
        })
    }

    /// What a role says to a model, with what a person has allowed this process beside it.
    fn verdict_for(&self, role: &str, course: &Course, model: &str) -> Verdict {
        let said = self.model_verdict(role, model);
        let tier = self.config.models.get(model).and_then(|spec| spec.tier.as_deref());
        match said {
            Verdict::Ask if tier.is_some_and(|tier| course.allowed.contains(tier)) => Verdict::Allow,
            other => other,
        }
    }

    /// A reply has come: whether it could be used decides whether the process is raised or comes back down.
    pub(crate) fn judge_reply(&mut self, pid: Pid, decoding: &Decoding, empty: bool, cut_off: bool) {
        let Some(process) = self.table.get(pid) else { return };
        let asked = process.course.asked.clone();
        let print = loop_print(decoding);
        let why = if empty {
            Some("it answered nothing")
        } else if !decoding.calls.is_empty() && decoding.calls.iter().all(|call| call.call.is_err()) {
            Some("its calls could not be understood")
        } else if print.is_some_and(|print| times(process, print) + 1 >= LOOP) {
            Some("it made the same calls again and again")
        } else if cut_off && decoding.calls.is_empty() && process.attempts.cut_off > 0 {
            Some("its answer came to no end")
        } else {
            None
        };
        let unsound = self.with(pid, |process| {
            let course = &mut process.course;
            let before = if course.brought_news() { 0 } else { process.attempts.useless };
            process.attempts.useless = why.map_or(0, |_| before + 1);
            course.tried.clear();
            course.note.clear();
            course.results = print.filter(|print| course.lately.iter().any(|made| made.calls == *print)).map(|_| 0);
            if let Some(calls) = print {
                course.lately.push_back(Made { calls, results: None });
                if course.lately.len() > LATELY {
                    course.lately.pop_front();
                }
            }
            (course.unsound, course.sound) = match why {
                Some(_) => (course.unsound + 1, 0),
                None => (0, course.sound + 1),
            };
            course.unsound
        });
        if matches!(Asked::read(&asked, &self.config.models), None | Some(Asked::Model(_))) {
            return;
        }
        match why {
            Some(why) if unsound.unwrap_or(0) >= UNSOUND_MAX => self.raise(pid, why),
            Some(_) => {}
            None => self.with(pid, |process| process.course.come_down()).unwrap_or_default(),
        }
    }

    /// Whether the replies of its model have been of no use for so long that it is asked no more.
    pub(crate) fn is_useless(&mut self, pid: Pid) -> bool {
        let most = limits::USELESS_REPLIES_MAX;
        let Some(process) = self.table.get(pid).filter(|process| process.attempts.useless >= most) else {
            return false;
        };
        let what = format!(
            "{most} replies of `{}` in a row were of no use: the same calls again and again, or none that can be understood",
            process.model
        );
        self.give_up(pid, &what, Some("say the task in other words, or choose a better model"));
        true
    }

    /// A better tier takes over from the next turn on, where there is one. Not for a process that has read untrusted
    /// content: it may have told the model to answer so, and nobody but people and parents buys a dearer one.
    fn raise(&mut self, pid: Pid, why: &str) {
        let Some(process) = self.table.get(pid) else { return };
        if process.labels.any_of(aos_policy::Labels::UNTRUSTED) {
            return;
        }
        let (role, model) = (process.policy_role.clone(), process.model.clone());
        let rank = self.config.models.get(&model).map_or(0, ModelSpec::rank);
        let now = self.globals.at;
        self.globals.measures.stretch(&role, rank, true, now);
        self.with(pid, |process| {
            let course = &mut process.course;
            course.raised = (course.raised + 1).min(TIERS.len() as u32);
            course.raised_why = format!("{UNSOUND_MAX} replies of `{model}` in a row were of no use, since {why}");
            course.stay = (course.stay * 2).clamp(SOUND_MIN, SOUND_MAX);
            course.unsound = 0;
            course.sound = 0;
            course.lately.clear();
        });
    }

    /// A result has come: models that see are better from here on where it is an image. Within a tier only, since what
    /// a file holds moves no tier.
    pub(crate) fn saw(&mut self, pid: Pid, outcome: &Outcome) {
        let Outcome::Success { result } = outcome else { return };
        if result["media_type"].as_str().is_some_and(|kind| kind.starts_with("image/")) {
            self.with(pid, |process| process.course.images = true);
        }
    }

    /// A stretch of work has ended well.
    pub(crate) fn did_well(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        if matches!(Asked::read(&process.course.asked, &self.config.models), None | Some(Asked::Model(_))) {
            return;
        }
        let role = process.policy_role.clone();
        let Some(rank) = self.config.models.get(&process.model).map(ModelSpec::rank) else { return };
        let now = self.globals.at;
        self.globals.measures.stretch(&role, rank, false, now);
    }

    /// Whether another model can take this turn over; then it is queued for that one. What failed is not asked again
    /// before something has answered, or a pause is over.
    pub(crate) fn falls_back(&mut self, pid: Pid, model: &str) -> bool {
        self.with(pid, |process| {
            if !process.course.tried.iter().any(|tried| tried == model) {
                process.course.tried.push(model.to_owned());
            }
        });
        let Some(first) = self.route_of(pid).order.into_iter().next() else { return false };
        let tried = self.table.get(pid).is_some_and(|process| process.course.tried.contains(&first.model));
        if tried {
            // Everything that may serve has failed: after a pause the first is asked again.
            self.with(pid, |process| process.course.tried.clear());
            return false;
        }
        self.with(pid, |process| {
            if process.course.note.is_empty() {
                process.course.note = format!("`{model}` failed, and `{}` answers for it", first.model);
            }
        });
        self.want_turn_again(pid);
        true
    }

    /// Puts a tier before a person that the role has it ask about; the process goes on meanwhile.
    fn propose_tier(&mut self, pid: Pid, tier: &str) {
        let hold = self.answers_hold(pid);
        let Some(process) = self.table.get(pid) else { return };
        let (known, why) = (hold && process.course.proposed.contains(tier), process.course.raised_why.clone());
        if known || self.over_asks(pid).is_some() {
            return;
        }
        self.answered(pid, |process| {
            process.course.proposed.insert(tier.to_owned());
        });
        self.ask_for_tier(pid, tier, why);
    }
}

impl Course {
    /// The calls of the last reply have come to their end: whether they came to something else than the same ones lately.
    fn brought_news(&mut self) -> bool {
        let Some(results) = self.results.take() else { return false };
        let Some((last, earlier)) = self.lately.make_contiguous().split_last_mut() else { return false };
        last.results = Some(results);
        let mut known = earlier.iter().filter(|made| made.calls == last.calls && made.results.is_some()).peekable();
        known.peek().is_some() && known.all(|made| made.results != last.results)
    }

    /// A call has come to this.
    pub(crate) fn learn(&mut self, outcome: &Outcome) {
        let Some(results) = &mut self.results else { return };
        let (of, value) = match outcome {
            Outcome::Success { result } => ("", Cow::Borrowed(result)),
            Outcome::Error { error } => (error.code.as_str(), Cow::Owned(error.message.as_str().into())),
        };
        *results = results.wrapping_add(aos_policy::fingerprint(of, &value));
    }

    /// One tier down after enough good replies.
    fn come_down(&mut self) {
        if self.raised > 0 && self.sound >= self.stay {
            self.raised -= 1;
            self.sound = 0;
            self.raised_why = format!("after {} good replies one tier down", self.stay);
        }
    }
}

/// Tokens of who a process is and of its calls, as far as that is the same for all.
const IDENTITY_TOKENS: u64 = 1500;

/// What an inference may cost at worst with a window of so many tokens, as far as is known before it is drawn up.
fn worst_of(spec: &ModelSpec, window: u64, fixed: u64) -> Need {
    let max_output = u64::from(spec.max_output.min(spec.context_window / 2).max(1));
    let input = (window + fixed).min(u64::from(spec.context_window)).saturating_mul(3);
    let usd = spec.price.map_or(0, |price| price.worst(input, max_output).0);
    Need { usd, tokens: input + max_output }
}

/// What the calls of a reply are, where repeating them is a loop and no waiting.
fn loop_print(decoding: &Decoding) -> Option<u128> {
    const WAITS: [Name; 5] = [Name::Sleep, Name::RecvMsg, Name::Wait, Name::SysReadStdin, Name::AskUser];
    let waits = |name: &str| name.parse::<Name>().is_ok_and(|name| WAITS.contains(&name));
    if decoding.calls.is_empty() || decoding.calls.iter().any(|call| waits(&call.name)) {
        return None;
    }
    // A name that there is not is of no use whether or not it is repeated.
    decoding.calls.iter().try_fold(0u128, |all, call| {
        Some(all.rotate_left(1) ^ aos_policy::fingerprint(call.name.parse::<Name>().ok()?.as_str(), &call.args))
    })
}

fn times(process: &Process, print: u128) -> usize {
    process.course.lately.iter().filter(|earlier| earlier.calls == print).count()
}
