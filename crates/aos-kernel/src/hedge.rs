//! Hedging: where a person waits and a model says nothing, a second one is asked the same, and the first answer counts.
//!
//! Start at [`Kernel::silent`]. What always holds: an inference is hedged at most once, by another model, which its process
//! may use unasked and which has a free slot that nobody waits for; both are set aside before and charged after, and one
//! that was given up is charged at the most that it may have come to, unless its server has said what it was; a phase names
//! one of the two, the other is found through it. Deliberately absent: a clock. Whoever asks models sees the first word
//! and says when there was none (`silent`).

use std::sync::Arc;

use aos_abi::entry::{InferenceOutcome, Personal, Purpose};
use aos_abi::inference::FailureKind;
use aos_abi::model::ModelSpec;
use aos_abi::process::Priority;
use aos_abi::{Body, EffectId, Pid};
use serde::{Deserialize, Serialize};

use crate::boot::STOPPED;
use crate::effect::Effect;
use crate::money::Outlook;
use crate::process::{Phase, Process};
use crate::route::Choice;
use crate::table::PageStore;
use crate::{InFlight, Kernel};

/// How an inference stands to a second one for the same turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Race {
    /// There is none, and there will be none.
    #[default]
    Alone,
    /// There may be one, where this one stays silent.
    Open,
    /// There is this one.
    Against(EffectId),
    /// The other one has answered.
    Lost,
}

impl<P: PageStore> Kernel<P> {
    /// How long the turn that this process is about to begin may be silent, in milliseconds; `None`: for ever.
    pub(crate) fn patience(&mut self, pid: Pid) -> Option<u64> {
        let patience = self.config.hedge_after_ms.filter(|_| self.config.models.len() > 1)?;
        let process = self.table.get(pid)?;
        let awaited = process.priority == Priority::Interactive || process.hurried || process.has_person_input();
        awaited.then_some(patience)
    }

    /// Whether an inference may still be hedged.
    pub(crate) fn may_be_hedged(&self, effect: EffectId) -> bool {
        matches!(self.globals.in_flight.get(&effect), Some(InFlight::Infer { race: Race::Open, .. }))
    }

    /// An inference has had no word of an answer for as long as it may: another model is asked too, where one can be.
    pub(crate) fn silent(&mut self, effect: EffectId) {
        let Some(InFlight::Infer { pid, model, race: Race::Open, .. }) = self.globals.in_flight.get(&effect).cloned()
        else {
            return;
        };
        self.race(effect, Race::Alone);
        let goes_on = |process: &Process| process.phase == Phase::Inferring(effect) && process.stopped.is_none();
        // The configuration may be another one since, and its process gone.
        if self.config.hedge_after_ms.is_none() || !self.table.get(pid).is_some_and(goes_on) {
            return;
        }
        let config = Arc::clone(&self.config);
        for choice in self.route_of(pid).order {
            let Some(spec) = config.models.get(&choice.model) else { continue };
            if choice.model != model && self.is_free(pid, &choice.model, spec) && self.hedge(pid, effect, choice, spec)
            {
                return;
            }
        }
    }

    /// Whether a model can be asked now without taking anybody's turn.
    fn is_free(&mut self, pid: Pid, model: &str, spec: &ModelSpec) -> bool {
        let tried = self.table.get(pid).is_some_and(|process| process.course.tried.iter().any(|tried| tried == model));
        let now = self.globals.at;
        !tried && self.is_down(model, spec).is_none() && self.globals.scheduler.is_free(model, &spec.limits, now)
    }

    /// Asks a second model the same; `false` where it may not see that, its window is too small or it cannot be paid now.
    fn hedge(&mut self, pid: Pid, effect: EffectId, choice: Choice, spec: &ModelSpec) -> bool {
        // The first may be one of this machine, which may see everything.
        if !spec.local && !self.may_go_elsewhere(pid) {
            return false;
        }
        let Some(draft) = self.draft(pid, &choice.model, spec) else { return false };
        let need = draft.need(spec);
        if draft.infer.purpose != Purpose::Turn || !matches!(self.outlook(pid, need), Outlook::Now) {
            return false;
        }
        self.set_aside(pid, need);
        let by = draft.infer.id;
        let Choice { model, why } = choice;
        self.fact(pid, Body::Hedged { effect, by, model, why });
        self.race(effect, Race::Against(by));
        self.begin(draft, spec, need, Race::Against(effect));
        true
    }

    /// Whether its process goes on with what an inference came to: it is the one that the process waits for, and no other
    /// one is still to come or has answered.
    pub(crate) fn is_awaited(
        &mut self,
        (pid, effect, model): (Pid, EffectId, &str),
        race: Race,
        outcome: &InferenceOutcome,
        personal: Option<&Personal>,
    ) -> bool {
        let phase = self.table.get(pid).map(|process| process.phase.clone());
        let Race::Against(other) = race else { return phase == Some(Phase::Inferring(effect)) };
        if phase != Some(Phase::Inferring(effect)) && phase != Some(Phase::Inferring(other)) {
            // Killed meanwhile: both are on their way back.
            return false;
        }
        match outcome {
            InferenceOutcome::Answered(_) => {
                self.race(other, Race::Lost);
                self.perform(Effect::Cancel(other));
                self.with(pid, |process| process.phase = Phase::Inferring(effect));
                true
            }
            InferenceOutcome::Failed { failure } => {
                self.race(other, Race::Alone);
                self.was_shown(pid, personal);
                let fails = matches!(failure.kind, FailureKind::Transient | FailureKind::Permanent);
                self.with(pid, |process| {
                    process.phase = Phase::Inferring(other);
                    if fails {
                        process.course.tried.push(model.to_owned());
                    }
                });
                false
            }
        }
    }

    /// What has lost was paid while its process may wait for its next turn: its place there follows.
    pub(crate) fn weigh_again(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        let (model, service) = (process.model.clone(), process.service);
        self.globals.scheduler.weigh(&model, pid, service);
    }

    /// The other one of two inferences under way.
    pub(crate) fn rival_of(&self, effect: EffectId) -> Option<EffectId> {
        match self.globals.in_flight.get(&effect) {
            Some(InFlight::Infer { race: Race::Against(other), .. }) => Some(*other),
            _ => None,
        }
    }

    /// After a restart: of two inferences the one goes on that its process waits for, and what has lost never comes. What
    /// they used is not known, so that it is paid at the most that it may have been.
    pub(crate) fn end_races(&mut self) {
        let raced = self.globals.in_flight.iter().filter_map(|(id, in_flight)| match in_flight {
            InFlight::Infer { pid, race: Race::Against(_) | Race::Lost, .. } => Some((*id, *pid)),
            InFlight::Infer { .. } | InFlight::Call { .. } | InFlight::Serve { .. } => None,
        });
        for (id, pid) in raced.collect::<Vec<_>>() {
            self.works_on(pid);
            if self.is_set_aside(pid) {
                continue;
            }
            let awaited = self.table.get(pid).is_some_and(|process| process.phase == Phase::Inferring(id));
            if !awaited {
                self.never_came(id, STOPPED);
                self.weigh_again(pid);
            }
        }
        let open = self.globals.in_flight.values_mut().filter_map(|in_flight| match in_flight {
            InFlight::Infer { race, .. } => Some(race),
            InFlight::Call { .. } | InFlight::Serve { .. } => None,
        });
        open.for_each(|race| *race = Race::Alone);
    }

    /// One of two inferences never comes: its process goes on with the other.
    pub(crate) fn ends_race(&mut self, lost: EffectId) {
        let Some(other) = self.rival_of(lost) else { return };
        let Some(pid) = self.globals.in_flight.get(&other).map(InFlight::pid) else { return };
        self.race(other, Race::Alone);
        self.with(pid, |process| {
            if process.phase == Phase::Inferring(lost) {
                process.phase = Phase::Inferring(other);
            }
        });
    }

    fn race(&mut self, effect: EffectId, now: Race) {
        if let Some(InFlight::Infer { race, .. }) = self.globals.in_flight.get_mut(&effect) {
            *race = now;
        }
    }
}
