//! What an inference came to: it is paid, and its reply becomes calls, words or an end; its failure a pause, another model or
//! an end.
//!
//! Start at [`Kernel::inference_completed`]. What always holds: whatever was asked is paid, wanted or not; nothing is charged
//! beyond what was set aside; a process that failed either tries again at a time that is set, or has ended or stopped with
//! a word on the way out.

use aos_abi::decode::{call_ids, decode};
use aos_abi::entry::{InferenceOutcome, Personal, Purpose};
use aos_abi::inference::{Failure, FailureKind, Reply, Reported, Stop, Usage};
use aos_abi::model::Price;
use aos_abi::process::Mode;
use aos_abi::{Body, EffectId, Lsn, Pid, Usd, limits};
use aos_context::ItemKind;
use serde_json::Value;

use crate::budget::Need;
use crate::hedge::Race;
use crate::process::{CallState, Fault, Phase, StepCall};
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// Why an inference that was given up before it was answered is charged at the most that it can have come to.
pub(crate) const UNHEARD: &str =
    "it was given up before a word of its answer came: what its server made of it is not known";
/// First wait after an inference that failed in passing, in milliseconds; doubled each time.
const BACKOFF_MS: u64 = 1000;

impl<P: PageStore> Kernel<P> {
    /// A model has answered, or failed to.
    pub(crate) fn inference_completed(
        &mut self,
        effect: EffectId,
        lsn: Lsn,
        latency_ms: u64,
        outcome: &InferenceOutcome,
        personal: Option<&Personal>,
    ) {
        let Some(flight) = self.globals.in_flight.get(&effect).cloned() else { return };
        let InFlight::Infer { pid, ref model, purpose, upto, estimate, race, reserved_tokens, max_output, .. } = flight
        else {
            return;
        };
        self.globals.in_flight.remove(&effect);
        self.globals.scheduler.finished(model);
        self.pay(&flight, outcome);
        if race == Race::Lost {
            self.weigh_again(pid);
        }
        match outcome {
            // It says nothing of the server.
            InferenceOutcome::Answered(_) if purpose == Purpose::Digest => self.gives_up_trying(model, effect),
            InferenceOutcome::Answered(_) => {
                self.globals.measures.took(model, latency_ms);
                self.served(pid, model, effect, None);
            }
            InferenceOutcome::Failed { failure } => self.served(pid, model, effect, Some(failure)),
        }
        // The server wants quiet whoever asked, and whether or not that one still lives.
        if let InferenceOutcome::Failed { failure: Failure { retry_after_ms: Some(wait), .. } } = outcome {
            self.globals.scheduler.quiet(model, self.globals.at.plus_millis(*wait));
            self.look_at_wall(model);
        }
        if !self.is_awaited((pid, effect, model), race, outcome, personal) {
            // It was paid for, and that is all.
            return;
        }
        self.was_shown(pid, personal);
        if let (InferenceOutcome::Answered(reply), Purpose::Turn) = (outcome, purpose)
            && !Believed::of(reply.usage, reserved_tokens, max_output).usage.estimated
        {
            self.globals.calibration.entry(model.clone()).or_default().observe(estimate, reply.usage.input_tokens);
        }
        match (outcome, purpose) {
            (InferenceOutcome::Answered(reply), Purpose::Turn | Purpose::Request) => {
                self.replied(pid, lsn, model, reply, personal);
            }
            (InferenceOutcome::Answered(reply), Purpose::Summary | Purpose::Digest) => {
                self.summarised(pid, upto, &reply.text);
            }
            (InferenceOutcome::Failed { failure }, _) => self.inference_failed(pid, model, purpose, failure),
        }
    }

    /// Charges what an inference used, or may have used.
    pub(crate) fn pay(&mut self, flight: &InFlight, outcome: &InferenceOutcome) {
        let InFlight::Infer { pid, model, purpose, estimate, reserved_usd, reserved_tokens, price, max_output, .. } =
            flight
        else {
            return;
        };
        let (estimate, reserved_tokens, max_output) = (*estimate, *reserved_tokens, *max_output);
        let (served, usage) = match outcome {
            // No model was asked for it.
            _ if *purpose == Purpose::Digest => (model, None),
            // It was cut off before it was said what came to it: what was thought is not heard.
            InferenceOutcome::Answered(Reply { stop: Stop::Length, usage, model: served, .. })
                if usage.estimated && self.thinks(model) =>
            {
                (served, Some(Usage { output_tokens: max_output.into(), ..*usage }))
            }
            InferenceOutcome::Answered(reply) => (&reply.model, Some(reply.usage)),
            InferenceOutcome::Failed { failure } if failure.kind == FailureKind::Cancelled => {
                let unheard = self.thinks(model).then_some(max_output);
                (model, given_up(failure.usage, estimate, reserved_tokens, max_output, unheard))
            }
            InferenceOutcome::Failed { failure } => (model, failure.usage),
        };
        // Another model than the one asked has served it: nothing was agreed but what the configuration says now.
        let price = match served == model {
            true => *price,
            false => self.config.models.get(served).and_then(|spec| spec.price),
        };
        let used = usage.map(|usage| Believed::of(usage, reserved_tokens, max_output));
        let failure = match outcome {
            InferenceOutcome::Failed { failure } => Some(failure),
            InferenceOutcome::Answered(_) => None,
        };
        let reserved = Need { usd: *reserved_usd, tokens: reserved_tokens };
        self.charge(*pid, (served, price), used, reserved, is_unheard(failure).then_some(UNHEARD));
    }

    /// A reply: its calls run, or it ends the turn.
    fn replied(&mut self, pid: Pid, lsn: Lsn, model: &str, reply: &Reply, personal: Option<&Personal>) {
        let cut_off = reply.stop == Stop::Length;
        let encoding = self.config.models.get(model).map(|spec| spec.encoding).unwrap_or_default();
        // The same ids as whoever shows this reply again: results are bound by them.
        let mut decoding = decode(&reply.text, &reply.calls, encoding, cut_off, &mut call_ids(lsn));
        self.keep_tokens(pid, personal, &mut decoding.calls);
        let item = self.as_notice(lsn);
        let empty = decoding.calls.is_empty() && decoding.say.is_empty();
        self.judge_reply(pid, &decoding, empty, cut_off);
        self.with(pid, |process| {
            process.attempts.transient = 0;
            process.attempts.too_long = 0;
            process.attempts.digest = false;
            process.attempts.cut_off = if cut_off { process.attempts.cut_off + 1 } else { 0 };
            process.attempts.empty = if empty { process.attempts.empty + 1 } else { 0 };
            // Providers refuse an empty message in the history.
            if !empty {
                process.window.push(item.lsn, item.tokens, ItemKind::Turn);
            }
            process.step = decoding
                .calls
                .into_iter()
                .map(|decoded| StepCall {
                    call_id: decoded.call_id,
                    name: decoded.name,
                    args: decoded.args.to_string(),
                    fault: decoded.call.err().map(|error| Fault {
                        code: error.code,
                        message: error.message,
                        hint: error.hint,
                    }),
                    state: CallState::Queued,
                    approved: None,
                })
                .collect();
        });
        let begun = self.table.get(pid).is_some_and(|process| !process.begun.is_empty());
        if self.table.get(pid).is_some_and(|process| !process.step.is_empty()) {
            self.with(pid, |process| {
                // What stands beside a call is no answer.
                process.begun = String::new();
                process.phase = Phase::Calling;
            });
            self.run_step(pid);
        } else if empty && !begun {
            self.empty_reply(pid);
        } else if begun || cut_off {
            // The words as they came, where they are all that did: a piece may end in a space.
            let whole = reply.text.trim() == decoding.say;
            self.went_on(pid, if whole { &reply.text } else { &decoding.say });
        } else {
            self.said(pid, &decoding.say);
        }
    }

    /// A piece of an answer, of which others may have come before and more may follow.
    fn went_on(&mut self, pid: Pid, piece: &str) {
        let Some((cut_off, terminating, room)) = self.with(pid, |process| {
            process.begun.push_str(piece);
            let room = process.begun.len() < limits::TEXT_BYTES_MAX;
            (process.attempts.cut_off, process.terminating.is_some(), room)
        }) else {
            return;
        };
        if (1..=limits::EMPTY_REPLIES_MAX).contains(&cut_off) && room && !terminating {
            // It was not done; the status line tells it to go on.
            self.want_turn(pid);
            return;
        }
        let answer = self.with(pid, |process| std::mem::take(&mut process.begun)).unwrap_or_default();
        self.said(pid, answer.trim());
    }

    /// A reply without a call: the end of a one-shot process, a word on stdout from a resident one.
    fn said(&mut self, pid: Pid, text: &str) {
        let Some(process) = self.table.get(pid) else { return };
        if process.terminating.is_none() && self.must_wait_to_write(pid, text) {
            return;
        }
        self.pipe(pid, text);
        self.spoke(pid, text);
    }

    /// What a process does once it has spoken.
    pub(crate) fn spoke(&mut self, pid: Pid, text: &str) {
        let Some(process) = self.table.get(pid) else { return };
        let (mode, more) = (process.mode, process.has_person_input() || !process.notices.is_empty());
        let (terminating, quarantine) = (process.terminating.is_some(), process.quarantine);
        let cut_off = process.attempts.cut_off;
        match mode {
            _ if terminating => self.exit(pid, 143, text.into(), "ended by TERM after its last turn"),
            Mode::OneShot if !more && cut_off > 0 => {
                let reason = format!("its answer was cut off {cut_off} times in a row, and is not whole");
                self.exit(pid, 1, text.into(), &reason);
            }
            Mode::OneShot if !more => {
                let answer = if quarantine { value_in(text) } else { text.into() };
                self.exit(pid, 0, answer, "answered");
            }
            Mode::OneShot | Mode::Resident | Mode::Program => {
                self.did_well(pid);
                self.with(pid, |process| {
                    process.attempts.cut_off = 0;
                    process.phase = Phase::Idle;
                });
                self.rest(pid);
                self.wake(pid);
            }
        }
    }

    fn empty_reply(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        match process.mode {
            // A resident process may well have nothing to say.
            Mode::Resident | Mode::Program => {
                self.with(pid, |process| {
                    process.attempts.empty = 0;
                    process.phase = Phase::Idle;
                });
                self.rest(pid);
                self.wake(pid);
            }
            Mode::OneShot if process.attempts.empty >= limits::EMPTY_REPLIES_MAX => {
                let reason = format!("the model answered nothing {} times in a row", limits::EMPTY_REPLIES_MAX);
                self.exit(pid, 1, serde_json::Value::Null, &reason);
            }
            Mode::OneShot => self.want_turn(pid),
        }
    }

    /// An idle process: its end, if `TERM` has come meanwhile; and whoever waits for it may now wait for ever.
    fn rest(&mut self, pid: Pid) {
        if self.table.get(pid).is_some_and(|process| process.terminating.is_some()) {
            self.want_turn(pid);
        } else {
            self.find_deadlock(pid);
        }
    }

    fn summarised(&mut self, pid: Pid, upto: Lsn, summary: &str) {
        let before = self.table.get(pid).map_or(0, |process| process.window.tokens());
        let summary = if summary.trim().is_empty() { "(nothing of note)" } else { summary.trim() };
        let bytes = summary.len() + 64;
        let tokens = u32::try_from(aos_context::estimate(bytes)).unwrap_or(u32::MAX);
        let lsn = self.globals.lsn.next();
        let after = self.with(pid, |process| {
            process.window.compacted(upto, lsn, tokens);
            process.attempts.transient = 0;
            process.attempts.digest = false;
            process.window.tokens()
        });
        self.fact(pid, Body::Compacted { upto, summary: summary.to_owned(), tokens: (before, after.unwrap_or(0)) });
        self.want_turn_again(pid);
    }

    /// Queues a process whose turn was put off by the system itself.
    pub(crate) fn want_turn_again(&mut self, pid: Pid) {
        self.with(pid, |process| {
            if let Some(terminating) = &mut process.terminating {
                terminating.last_turn = false;
            }
        });
        self.want_turn(pid);
    }

    fn inference_failed(&mut self, pid: Pid, model: &str, purpose: Purpose, failure: &Failure) {
        let now = self.globals.at;
        let summary = purpose == Purpose::Summary;
        match failure.kind {
            FailureKind::Transient | FailureKind::Permanent if self.falls_back(pid, model) => {}
            FailureKind::Transient | FailureKind::Here => {
                let attempts = self.with(pid, |process| {
                    process.attempts.transient += 1;
                    process.attempts.transient
                });
                let attempts = attempts.unwrap_or(0);
                if attempts > limits::INFERENCE_RETRIES_MAX {
                    if summary {
                        self.want_digest(pid);
                        return;
                    }
                    let reason = format!("model `{model}` failed {attempts} times in a row: {}", failure.message);
                    self.give_up(pid, &reason, failure.hint.as_deref());
                    return;
                }
                // A server may ask for less, again and again: all tries would be used up in a moment.
                let least = BACKOFF_MS << attempts.saturating_sub(1).min(6);
                let wait = failure.retry_after_ms.unwrap_or(0).max(least);
                let until = now.plus_millis(wait);
                self.with(pid, |process| process.phase = Phase::Backoff(until));
            }
            // Of a request that is too large the images have been left out: what remains is text.
            FailureKind::TooLong | FailureKind::TooLarge => {
                // The model counts more tokens than estimated: believe it, and the next prompt is smaller.
                self.globals.calibration.entry(model.to_owned()).or_default().too_long();
                if summary {
                    self.want_digest(pid);
                    return;
                }
                let attempts = self.with(pid, |process| {
                    process.attempts.too_long += 1;
                    process.attempts.too_long
                });
                if attempts.unwrap_or(0) <= limits::INFERENCE_RETRIES_MAX {
                    self.want_turn_again(pid);
                } else if !self.falls_back(pid, model) {
                    self.give_up(pid, &failure.message, failure.hint.as_deref());
                }
            }
            FailureKind::Refused if summary => self.want_digest(pid),
            // Also where it was a summary: the plainest of requests. Until a person has mended it nothing need be forgotten.
            FailureKind::Permanent | FailureKind::Refused => {
                self.give_up(pid, &format!("model `{model}`: {}", failure.message), failure.hint.as_deref());
            }
            // What was found is a label by now, and decides which model is asked next.
            FailureKind::Cancelled | FailureKind::Withheld => self.want_turn_again(pid),
        }
    }

    /// No model can make the summary that a process needs to go on: it goes on with a digest.
    fn want_digest(&mut self, pid: Pid) {
        self.with(pid, |process| {
            process.attempts.transient = 0;
            process.attempts.digest = true;
        });
        self.want_turn_again(pid);
    }

    /// Asking again changes nothing: a one-shot process ends, a resident one stops until a person has mended it.
    pub(crate) fn give_up(&mut self, pid: Pid, message: &str, hint: Option<&str>) {
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        match self.table.get(pid).map(|process| process.mode) {
            Some(Mode::OneShot) => {
                self.exit(pid, 1, serde_json::Value::Null, &format!("{message}{hint}"));
            }
            Some(Mode::Resident | Mode::Program) => {
                self.with(pid, |process| process.attempts = Default::default());
                self.stop_with(pid, &format!("{message}{hint}; then `aos resume {pid}`"));
            }
            None => {}
        }
    }
}

/// What an answer that is nothing but JSON, fenced or not, says; else its text.
fn value_in(text: &str) -> Value {
    let bare = text.trim();
    let bare = bare.strip_prefix("```json").or_else(|| bare.strip_prefix("```")).unwrap_or(bare);
    let bare = bare.strip_suffix("```").unwrap_or(bare);
    serde_json::from_str(bare).unwrap_or_else(|_| text.trim().into())
}

/// What is believed of what a server says was used.
pub(crate) struct Believed {
    /// As it can have been.
    pub(crate) usage: Usage,
    /// Of the tokens sent it says more than can have been.
    input: bool,
    /// Of the tokens answered it does.
    output: bool,
}

impl Believed {
    /// A server that reports more than was sent and asked for is believed up to what was set aside: never charged beyond
    /// it, and never less for saying more. What it said stands in the journal.
    pub(crate) fn of(usage: Usage, reserved_tokens: u64, max_output: u32) -> Believed {
        let output_most = u64::from(max_output);
        let input_most = reserved_tokens.saturating_sub(output_most);
        let (input, output) = (usage.input_tokens > input_most, usage.output_tokens > output_most);
        if !input && !output {
            return Believed { usage, input, output };
        }
        // An estimate, which is rather too high, is nothing that a server has said.
        let said = Reported {
            input_tokens: input.then_some(usage.input_tokens),
            output_tokens: output.then_some(usage.output_tokens),
        };
        let usage = Usage {
            input_tokens: usage.input_tokens.min(input_most),
            output_tokens: usage.output_tokens.min(output_most),
            reported: if usage.estimated { usage.reported } else { Some(said) },
            estimated: true,
            ..usage
        };
        Believed { usage, input, output }
    }

    /// What it costs: where more is said than can have been, the most that so much can cost, whatever is said of its parts.
    pub(crate) fn cost(&self, price: Price) -> Usd {
        let Believed { usage, input, output } = *self;
        let of = |beyond: bool, tokens: u64| if beyond { (tokens, 0) } else { (0, tokens) };
        let (input_most, input_tokens) = of(input, usage.input_tokens);
        let (output_most, output_tokens) = of(output, usage.output_tokens);
        price.worst(input_most, output_most).plus(price.of(&Usage { input_tokens, output_tokens, ..usage }))
    }

    /// Why it is the most that it can be, where more is said.
    pub(crate) fn why(&self) -> Option<String> {
        let said = self.usage.reported.unwrap_or_default();
        let told = |tokens: Option<u64>, most: u64, way: &str| {
            let tokens = tokens.filter(|tokens| *tokens > most)?;
            Some(format!("{tokens} tokens {way}, where at most {most} can have been"))
        };
        let input = told(said.input_tokens, self.usage.input_tokens, "sent");
        let output = told(said.output_tokens, self.usage.output_tokens, "answered");
        let parts: Vec<String> = [input, output].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("its server reported {}", parts.join(", and ")))
    }
}

/// What an inference used that was given up before its server said so: the prompt as it was estimated and as much of the
/// answer as came; where nothing came, the most that both may have been, since what a server thinks unheard is paid too.
/// `unheard`: the most that it may have thought beside what came, for a model that does.
pub(crate) fn given_up(
    heard: Option<Usage>,
    estimate: u64,
    reserved_tokens: u64,
    max_output: u32,
    unheard: Option<u32>,
) -> Option<Usage> {
    match heard {
        Some(heard) if heard.estimated => {
            let output_tokens = unheard.map_or(heard.output_tokens, u64::from);
            Some(Usage { input_tokens: estimate, output_tokens, ..heard })
        }
        Some(said) => (said != Usage::default()).then_some(said),
        None => Some(at_most(reserved_tokens, max_output)),
    }
}

/// Of an inference that a stop has cut off, of which so much was heard.
pub(crate) fn cut_off(usage: Option<Usage>) -> Failure {
    let (message, kind) = ("cut off".to_owned(), FailureKind::Cancelled);
    Failure { kind, message, hint: None, retry_after_ms: None, usage, unreachable: false }
}

/// Whether an inference was given up and nobody heard what it came to.
pub(crate) fn is_unheard(failure: Option<&Failure>) -> bool {
    failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled && failure.usage.is_none())
}

/// The most that can have been used of what was set aside, where nobody knows what was.
pub(crate) fn at_most(reserved_tokens: u64, max_output: u32) -> Usage {
    let output_tokens = u64::from(max_output);
    let input_tokens = reserved_tokens.saturating_sub(output_tokens);
    Usage { input_tokens, output_tokens, estimated: true, ..Usage::default() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd() -> impl Strategy<Value = Usd> {
        (0u64..50_000_000_000).prop_map(Usd)
    }

    fn price() -> impl Strategy<Value = Price> {
        let part = || proptest::option::of(usd());
        (usd(), usd(), part(), part(), part()).prop_map(|(input, output, cached_input, cache_write, reasoning)| Price {
            input,
            output,
            cached_input,
            cache_write,
            reasoning,
        })
    }

    /// Around the bounds, far beyond them, and what no model can have used.
    fn tokens() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0u64..4_000, 1 => Just(9_000_000_000u64), 1 => Just(u64::MAX)]
    }

    fn usage() -> impl Strategy<Value = Usage> {
        (tokens(), tokens(), tokens(), tokens(), tokens()).prop_map(|(input, output, cached, written, thought)| Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: thought,
            ..Usage::default()
        })
    }

    proptest! {
        /// A server that says more than can have been is charged no less than one that says just that, whatever it says of
        /// its parts, and no more than was set aside; what it said is kept.
        #[test]
        fn saying_too_much_never_makes_it_cheaper(
            said in usage(), price in price(), input_most in 1u64..3_000, max_output in 1u32..3_000,
        ) {
            let reserved = input_most + u64::from(max_output);
            // Rounded up to the nano-dollar once for each half; whoever charges cuts it off at what was set aside.
            let most = price.worst(input_most, max_output.into()).plus(Usd(1));
            let believed = Believed::of(said, reserved, max_output);
            let just = Usage {
                input_tokens: said.input_tokens.min(input_most),
                output_tokens: said.output_tokens.min(max_output.into()),
                ..said
            };
            prop_assert!(believed.cost(price) >= price.of(&just) && believed.cost(price) <= most);
            let (more_in, more_out) = (said.input_tokens > input_most, said.output_tokens > max_output.into());
            let reported = Reported {
                input_tokens: more_in.then_some(said.input_tokens),
                output_tokens: more_out.then_some(said.output_tokens),
            };
            prop_assert_eq!(believed.usage.reported.unwrap_or_default(), reported);
            prop_assert_eq!((believed.usage.estimated, believed.why().is_some()), (more_in || more_out, more_in || more_out));
            prop_assert!(believed.usage.input_tokens + believed.usage.output_tokens <= reserved);
            // An estimate is cut off likewise, and is nobody's word.
            let estimate = Believed::of(Usage { estimated: true, ..said }, reserved, max_output);
            prop_assert_eq!((estimate.usage.reported, estimate.why()), (None, None));
            prop_assert_eq!(estimate.cost(price), believed.cost(price));
        }
    }
}
