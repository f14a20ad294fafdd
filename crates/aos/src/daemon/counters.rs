//! What the daemon counts, from the entries as they become durable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::entry::{InferenceOutcome, Outcome, ServedOutcome, Verdict};
use aos_abi::{Body, Code, Entry, Name, Usd};
use aos_gateway::{InferenceCounters, Metrics};

/// Counters since the daemon started.
#[derive(Default)]
pub(crate) struct Counters(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    inferences: BTreeMap<String, InferenceCounters>,
    /// The call that a verdict is about: the syscall entry just before it.
    last_call: Option<Name>,
    syscalls: BTreeMap<(Name, Verdict), u64>,
    syscalls_invalid: u64,
    /// The model of an inference that has not ended.
    asked: BTreeMap<aos_abi::EffectId, String>,
}

impl Counters {
    /// Counts entries, in the order of the journal.
    pub(crate) fn count(&self, entries: &[Arc<Entry>]) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            counted.count(&entry.body);
        }
    }

    /// The counters, with everything else left at its default.
    pub(crate) fn metrics(&self) -> Metrics {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Metrics {
            inferences: counted.inferences.clone(),
            syscalls: counted.syscalls.clone(),
            syscalls_invalid: counted.syscalls_invalid,
            ..Metrics::default()
        }
    }
}

impl Counted {
    fn count(&mut self, body: &Body) {
        match body {
            Body::InferenceStarted { effect, model, .. } => {
                self.asked.insert(*effect, model.clone());
            }
            Body::Served { effect, outcome, .. } => {
                if let Some(model) = self.asked.remove(effect) {
                    let of = self.inferences.entry(model).or_default();
                    match outcome {
                        ServedOutcome::Answered { .. } => of.completed += 1,
                        ServedOutcome::Failed { .. } => of.failed += 1,
                    }
                }
            }
            Body::InferenceCompleted { effect, outcome, .. } => {
                let asked = self.asked.remove(effect);
                match outcome {
                    InferenceOutcome::Answered(reply) => {
                        self.inferences.entry(reply.model.clone()).or_default().completed += 1
                    }
                    InferenceOutcome::Failed { .. } => {
                        if let Some(model) = asked {
                            self.inferences.entry(model).or_default().failed += 1;
                        }
                    }
                }
            }
            Body::Charged { model, usage, cost_usd, .. } => {
                let counters = self.inferences.entry(model.clone()).or_default();
                counters.input_tokens += usage.input_tokens;
                counters.output_tokens += usage.output_tokens;
                counters.cached_input_tokens += usage.cached_input_tokens;
                counters.cost_usd = counters.cost_usd.plus(cost_usd.unwrap_or(Usd::ZERO));
            }
            Body::Syscall { name, .. } => self.last_call = name.parse().ok(),
            Body::Verdict { verdict, .. } => {
                if let Some(name) = self.last_call.take() {
                    *self.syscalls.entry((name, *verdict)).or_default() += 1;
                }
            }
            Body::Result { outcome: Outcome::Error { error }, effect: None, .. }
                if matches!(error.code, Code::Inval | Code::NoSys) && self.last_call.is_some() =>
            {
                self.last_call = None;
                self.syscalls_invalid += 1;
            }
            _ => {}
        }
    }
}
