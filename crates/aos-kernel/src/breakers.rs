//! Breakers as inferences and requests move them: who failed, who answered, who tries again.
//!
//! Start at [`Kernel::served`] for agents and [`Kernel::served_program`] for programs; [`crate::circuit`] is what they move.
//! What always holds: what a program asks for closes no server to anybody else, however its requests fail, since what a
//! server makes of a request may be the request's own doing. Where the server could not be reached none was made, and all
//! learn of it together.

use aos_abi::entry::CircuitState;
use aos_abi::inference::{Failure, FailureKind};
use aos_abi::model::ModelSpec;
use aos_abi::process::Mode;
use aos_abi::{Body, CallError, Code, EffectId, Pid};

use crate::scheduler::{WALL_MS, Wall};
use crate::table::PageStore;
use crate::{Kernel, circuit};

impl<P: PageStore> Kernel<P> {
    /// Why a model is not to be asked now, in words.
    pub(crate) fn is_down(&self, name: &str, spec: &ModelSpec) -> Option<String> {
        let now = self.globals.at;
        let quiet = self.globals.scheduler.quiet_until(name);
        if quiet > now {
            return Some(format!("wants no request before {quiet}"));
        }
        let circuits = &self.globals.circuits;
        let down = circuits.down(name, now).or_else(|| circuits.down(spec.endpoint.as_deref()?, now))?;
        Some(if down > now { format!("is down, tried again at {down}") } else { "is being tried again".to_owned() })
    }

    /// The same for a program, which is not sent either where its own requests have failed.
    pub(crate) fn is_down_for(&self, pid: Pid, name: &str, spec: &ModelSpec) -> Option<String> {
        let own = || {
            let now = self.globals.at;
            let down = self.globals.circuits.down(&circuit::of_program(name, pid), now)?;
            let when =
                if down > now { format!("tried again at {down}") } else { "and is being tried again".to_owned() };
            Some(format!("failed the last requests of this key, {when}"))
        };
        self.is_down(name, spec).or_else(own)
    }

    /// An inference goes out: it may be the one that tries a server again.
    pub(crate) fn tries(&mut self, pid: Pid, model: &str, effect: EffectId) {
        if self.globals.circuits.quiet() {
            return;
        }
        self.keys_of(model).into_iter().for_each(|of| self.tries_one(pid, of, effect));
    }

    /// The breakers that a model hangs on: its own, and its server's.
    fn keys_of(&self, model: &str) -> Vec<String> {
        let endpoint = self.config.models.get(model).and_then(|spec| spec.endpoint.clone());
        std::iter::once(model.to_owned()).chain(endpoint).collect()
    }

    /// A model has answered, or says nothing of its server.
    pub(crate) fn served(&mut self, pid: Pid, model: &str, effect: EffectId, failure: Option<&Failure>) {
        let now = self.globals.at;
        let kind = failure.map(|failure| failure.kind);
        let keys = self.keys_of(model);
        let (own, server) = (keys[0].clone(), keys.last().cloned().unwrap_or_default());
        match (kind, failure) {
            (Some(FailureKind::Transient | FailureKind::Permanent), Some(failure)) => {
                if failure.retry_after_ms.is_some() {
                    // It is up and says when.
                    keys.iter().for_each(|of| self.globals.circuits.dropped(of, effect));
                    return self.note_quota(pid, model, failure);
                }
                let of = if kind == Some(FailureKind::Permanent) { own } else { server };
                keys.iter().filter(|key| **key != of).for_each(|key| self.globals.circuits.dropped(key, effect));
                if let Some(until) = self.globals.circuits.failed(&of, effect, now) {
                    let (state, why) = (CircuitState::Open, failure.message.clone());
                    self.fact(pid, Body::Circuit { of, state, until: Some(until), why });
                    self.move_on(model, pid);
                }
            }
            (Some(FailureKind::Cancelled | FailureKind::Withheld | FailureKind::Here), _) => {
                keys.iter().for_each(|of| self.globals.circuits.dropped(of, effect));
            }
            (None | Some(_), _) => {
                keys.into_iter().for_each(|of| self.answers_again(pid, of));
            }
        }
    }

    /// A model has answered a program's request, or has not. What fails may be the request's own doing, in ways that
    /// nobody here can tell: so it speaks against the model for this program alone, and tries no server for others. An
    /// answer is one for all, and so is that nobody could be reached.
    pub(crate) fn served_program(&mut self, pid: Pid, model: &str, effect: EffectId, failure: Option<&Failure>) {
        let (now, of) = (self.globals.at, circuit::of_program(model, pid));
        let lives = self.table.get(pid).is_some_and(|process| !process.exited());
        match failure {
            Some(failure) if failure.unreachable => {
                self.globals.circuits.dropped(&of, effect);
                let server = self.keys_of(model).pop().unwrap_or_default();
                if let Some(until) = self.globals.circuits.unreachable(&server, now) {
                    let (state, why) = (CircuitState::Open, failure.message.clone());
                    self.fact(pid, Body::Circuit { of: server, state, until: Some(until), why });
                    self.move_on(model, pid);
                }
            }
            Some(failure) if matches!(failure.kind, FailureKind::Transient | FailureKind::Permanent) => {
                if failure.retry_after_ms.is_some() || !lives {
                    // It is up and says when; or nobody asks for it any more.
                    self.globals.circuits.dropped(&of, effect);
                    self.note_quota(pid, model, failure);
                } else if let Some(until) = self.globals.circuits.failed(&of, effect, now) {
                    let (state, why) = (CircuitState::Open, failure.message.clone());
                    self.fact(pid, Body::Circuit { of, state, until: Some(until), why });
                }
            }
            Some(_) => self.globals.circuits.dropped(&of, effect),
            None => {
                for of in self.keys_of(model).into_iter().chain([of]) {
                    self.answers_again(pid, of);
                }
            }
        }
    }

    /// A server says that it takes nothing for long.
    fn note_quota(&mut self, pid: Pid, model: &str, failure: &Failure) {
        let Some(wait) = failure.retry_after_ms.filter(|wait| *wait >= WALL_MS) else { return };
        let wall = Wall {
            until: self.globals.at.plus_millis(wait),
            message: failure.message.clone(),
            hint: failure.hint.clone(),
            lasting: failure.kind == FailureKind::Permanent,
        };
        self.tell_of_wall(pid, model, &wall);
        self.globals.scheduler.put_wall(model, wall);
    }

    fn tell_of_wall(&mut self, pid: Pid, model: &str, wall: &Wall) {
        let (until, why) = (wall.until, wall.message.clone());
        let (of, state) = (model.to_owned(), CircuitState::Quota);
        self.fact(pid, Body::Circuit { of, state, until: Some(until), why });
        self.with(pid, |process| process.course.note = format!("the quota of `{model}` is used up until {until}"));
    }

    /// Whether an agent that is about to wait for its model ends or stops instead: a quota is used up that a person has to
    /// mend. It is told of any as whoever met it first was, since nothing else says why it waits.
    pub(crate) fn meets_wall(&mut self, pid: Pid) -> bool {
        let Some(model) = self.table.get(pid).map(|process| process.model.clone()) else { return false };
        let Some(wall) = self.globals.scheduler.wall(&model, self.globals.at).cloned() else { return false };
        if !self.globals.scheduler.waits(&model, pid) {
            self.tell_of_wall(pid, &model, &wall);
        }
        if wall.lasting {
            self.unqueue(pid);
            self.give_up(pid, &format!("model `{model}`: {}", wall.message), wall.hint.as_deref());
        }
        wall.lasting
    }

    /// A quota may have been found used up: whoever waits for the model goes to another one, or is told.
    pub(crate) fn look_at_wall(&mut self, model: &str) {
        let Some(wall) = self.globals.scheduler.wall(model, self.globals.at).cloned() else { return };
        for pid in self.globals.scheduler.waiting(model) {
            if self.table.get(pid).is_some_and(|process| process.mode == Mode::Program) {
                self.ask_elsewhere(pid, model);
            } else if !self.goes_elsewhere(pid, model) {
                self.tell_of_wall(pid, model, &wall);
                self.meets_wall(pid);
            }
        }
    }

    /// What keeps a program from a model for longer than it would wait.
    pub(crate) fn walled(&self, model: &str) -> Option<CallError> {
        let now = self.globals.at;
        let Wall { until, message, hint, .. } = self.globals.scheduler.wall(model, now)?;
        let error = CallError::new(Code::Again, format!("the quota of `{model}` is used up until {until}: {message}"));
        Some(CallError { hint: hint.clone(), retry_after_ms: Some(until.millis_since(now)), ..error })
    }

    fn answers_again(&mut self, pid: Pid, of: String) {
        if self.globals.circuits.answered(&of) {
            let (state, why) = (CircuitState::Closed, String::new());
            self.fact(pid, Body::Circuit { of, state, until: None, why });
        }
    }

    /// A program's request goes out: it may be the one that tries again what failed the program.
    pub(crate) fn tries_for(&mut self, pid: Pid, model: &str, effect: EffectId) {
        self.tries_one(pid, circuit::of_program(model, pid), effect);
    }

    fn tries_one(&mut self, pid: Pid, of: String, effect: EffectId) {
        if self.globals.circuits.started(&of, effect, self.globals.at) {
            self.fact(pid, Body::Circuit { of, state: CircuitState::HalfOpen, until: None, why: String::new() });
        }
    }

    /// An inference of this model will not come back: it tries no server any more.
    pub(crate) fn gives_up_trying(&mut self, model: &str, effect: EffectId) {
        for of in self.keys_of(model) {
            self.globals.circuits.dropped(&of, effect);
        }
    }

    /// Whoever waits for a model that went down goes to another one, where one may serve.
    fn move_on(&mut self, model: &str, but: Pid) {
        for pid in self.globals.scheduler.waiting(model) {
            if pid != but {
                self.goes_elsewhere(pid, model);
            }
        }
    }

    /// Has a process go to another model where that is its first choice now; whether it does.
    fn goes_elsewhere(&mut self, pid: Pid, model: &str) -> bool {
        let elsewhere = self.route_of(pid).order.first().is_some_and(|first| first.model != *model);
        if elsewhere {
            self.want_turn(pid);
        }
        elsewhere
    }

    /// Whether a process whose turn it is goes to another model: the server of the one that it waited for went down meanwhile,
    /// or another inference tries it just now.
    pub(crate) fn passes_by(&mut self, pid: Pid, model: &str, spec: &ModelSpec) -> bool {
        self.is_down(model, spec).is_some() && self.goes_elsewhere(pid, model)
    }
}
