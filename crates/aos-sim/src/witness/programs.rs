//! Programs: every request ends once, and nothing is asked for one that is over.

use std::collections::{BTreeMap, BTreeSet};

use aos_abi::entry::{Purpose, ServedOutcome};
use aos_abi::{Body, EffectId, Entry, Pid};
use aos_kernel::effect::Serve;

use crate::report::{Broken, broken};

const ONCE: &str = "a program's request ends once";

/// The requests of every program.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Put, and neither served nor refused nor withdrawn.
    pub(crate) waiting: BTreeMap<u64, Pid>,
    /// At a model, with the request once it is known.
    serving: BTreeMap<EffectId, (Pid, u64)>,
    refused: BTreeSet<u64>,
    /// How many were served.
    pub(crate) served: u64,
}

impl Programs {
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        match &entry.body {
            Body::Asked(asked) => {
                self.waiting.insert(asked.request, entry.pid);
            }
            Body::Withdrawn { request } => {
                self.waiting.remove(request);
            }
            Body::InferenceStarted { effect, purpose: Purpose::Request, .. } => {
                self.serving.insert(*effect, (entry.pid, 0));
            }
            Body::Served { effect, outcome, .. } => {
                let Some((pid, request)) = self.serving.remove(effect) else {
                    return Err(broken(ONCE, format!("{effect} is over and was not under way")));
                };
                match outcome {
                    ServedOutcome::Answered { .. } => self.served += 1,
                    // Another model may be asked for it.
                    ServedOutcome::Failed { .. } => _ = self.waiting.insert(request, pid),
                }
            }
            Body::Exited { .. } => self.waiting.retain(|_, pid| *pid != entry.pid),
            Body::Booted { .. } => {
                // Whoever asked was cut off with the daemon.
                self.waiting.clear();
                self.serving.clear();
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn serve(&mut self, serve: &Serve) -> Result<(), Broken> {
        if self.waiting.remove(&serve.request) != Some(serve.pid) {
            return Err(broken(ONCE, format!("request {} is served and does not wait", serve.request)));
        }
        match self.serving.get_mut(&serve.id) {
            Some((pid, request)) if *pid == serve.pid => {
                *request = serve.request;
                Ok(())
            }
            _ => Err(broken(ONCE, format!("{} is not recorded as begun", serve.id))),
        }
    }

    pub(crate) fn refuse(&mut self, request: u64) -> Result<(), Broken> {
        self.waiting.remove(&request);
        if !self.refused.insert(request) {
            return Err(broken(ONCE, format!("request {request} is refused twice")));
        }
        Ok(())
    }
}
