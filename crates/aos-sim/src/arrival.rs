//! Arrival: what comes back from outside reaches the kernel.
//!
//! Start at [`Simulation::deliver`]. What is made up is made up here, at the last moment; an outcome may be offered twice.

use aos_abi::entry::{Examined, InferenceOutcome, Inner, Outcome, Requested, Took};
use aos_abi::inference::{Failure, FailureKind};
use aos_abi::{Body, CallError, CallId, Code, EffectId, Pid};
use aos_kernel::effect::Infer;
use serde_json::json;

use crate::mind::{self, Scene};
use crate::outside::Job;
use crate::report::{Halt, broken};
use crate::setup::Kind;
use crate::world::Simulation;

impl Simulation {
    /// An outcome reaches the kernel.
    pub(crate) fn deliver(&mut self, job: Job) -> Result<(), Halt> {
        let (pid, body) = match job {
            Job::Infer(infer) => {
                let cancelled = self.outside.is_cancelled(infer.id) && self.chance.percent(60);
                let outcome = if cancelled {
                    InferenceOutcome::Failed {
                        failure: Failure {
                            kind: FailureKind::Cancelled,
                            message: "cancelled".into(),
                            hint: None,
                            retry_after_ms: None,
                            usage: None,
                            unreachable: false,
                        },
                    }
                } else {
                    let scene = self.scene(&infer);
                    mind::answer(&mut self.chance, &scene, &infer.model, infer.encoding, infer.purpose)
                };
                self.outside.bill.inferred(infer.id, &outcome);
                let latency_ms = self.chance.between(1, 9000);
                (infer.pid, Body::InferenceCompleted { effect: infer.id, latency_ms, personal: None, outcome })
            }
            Job::Silent { id, pid } => (pid, Body::Silent { effect: id }),
            Job::Serve { id, pid, max_output } => {
                let cancelled = self.outside.is_cancelled(id);
                let outcome = mind::serve(&mut self.chance, max_output, cancelled);
                self.outside.bill.answered(id, &outcome);
                let latency_ms = self.chance.between(1, 9000);
                (pid, Body::Served { effect: id, latency_ms, personal: None, outcome })
            }
            Job::Look { pid, id, workspace, call } => {
                let files = self.outside.files.look(pid, &workspace, &call);
                (pid, Body::Examined(Box::new(Examined { id, files, diff: String::new(), unbound: None })))
            }
            Job::Call { id, pid, call_id, name, holds: false, .. } => {
                let outcome = Outcome::Error { error: CallError::new(Code::Rejected, "`a` has changed since") };
                (pid, Body::Result { call_id, name: name.as_str().to_owned(), effect: Some(id), outcome })
            }
            Job::Call { id, pid, call_id, name, holds: true, denied } => {
                self.tell(id)?;
                self.tell_denied(pid, &call_id, denied)?;
                let outcome = if self.outside.calm { Outcome::Success { result: json!({}) } } else { self.driven() };
                (pid, Body::Result { call_id, name: name.as_str().to_owned(), effect: Some(id), outcome })
            }
        };
        let again = self.chance.percent(20).then(|| body.clone());
        let failures = self.failures;
        self.offer(pid, body)?;
        // What the kernel failed over was not told.
        if failures == self.failures && again.is_some_and(|body| self.kernel.check(pid, &body).is_ok()) {
            return Err(broken("an outcome counts once", format!("{pid} could be told again")).into());
        }
        Ok(())
    }

    /// A change to files is journaled before the result of its call; at times somebody takes it back in between.
    fn tell(&mut self, id: EffectId) -> Result<(), Halt> {
        let Some((pid, body)) = self.outside.files.untold(id) else { return Ok(()) };
        if self.offer(pid, body)? && !self.outside.calm && self.chance.percent(5) {
            self.sync()?;
            self.takes_back(Some(id))?;
        }
        Ok(())
    }

    /// So is what the call led to and was denied.
    fn tell_denied(&mut self, pid: Pid, call_id: &CallId, denied: Vec<Inner>) -> Result<(), Halt> {
        if denied.is_empty() {
            return Ok(());
        }
        let requested = Requested {
            call_id: call_id.clone(),
            generation: String::new(),
            labels: Vec::new(),
            took_us: Took::default(),
            requests: Vec::new(),
            more: 0,
            denied,
            closed: Vec::new(),
        };
        self.offer(pid, Body::Requested(Box::new(requested))).map(drop)
    }

    fn driven(&mut self) -> Outcome {
        match self.chance.weighted(&[75, 10, 10, 5]) {
            0 => Outcome::Success { result: json!({ "content": "some text", "size": 9, "truncated": false }) },
            1 => Outcome::Success { result: json!({ "content": "x".repeat(self.chance.between(0, 9000) as usize) }) },
            2 => Outcome::Error { error: CallError::new(Code::NoEnt, "no such file") },
            _ => Outcome::Error { error: CallError::new(Code::Io, "the simulated driver failed") },
        }
    }

    fn scene(&mut self, infer: &Infer) -> Scene {
        let pid = infer.pid;
        let everybody = (2..self.kernel.next_pid().0).map(Pid).collect();
        let calm = self.outside.calm;
        let Some(process) = self.kernel.process(pid) else { return Scene::default() };
        Scene {
            pid: pid.0,
            parent: process.parent.0,
            children: process.children.iter().copied().collect(),
            everybody,
            timers: process.timers.keys().cloned().collect(),
            watches: process.watches.keys().cloned().collect(),
            requests: process.requests.keys().cloned().collect(),
            lifted: process
                .denials
                .values()
                .filter(|denial| denial.lifted)
                .map(|denial| (denial.open.name.clone(), denial.open.args.clone()))
                .collect(),
            worst_input: (process.window.tokens_within(infer.budget) + 128) * 3,
            max_output: infer.max_output.into(),
            calm,
            busy: self.kind == Kind::Busy,
            asking: self.kind == Kind::Asking,
        }
    }
}
