//! The scheduler: who gets a model slot next.
//!
//! Start at [`Scheduler::next`]. Processes wait per model, in a priority class, and inside a class by the service they
//! have had: tokens actually served, answered ones weighing more (virtual token counters, Sheng et al., "Fairness in
//! Serving Large Language Models", OSDI 2024). What always holds: a process waits at most once; a free slot and a
//! waiting process never coexist unless the model's own limits say so; what has waited long gets every fourth slot
//! whatever its class, so nothing starves and priorities still mean something under load.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::inference::Usage;
use aos_abi::model::ModelLimits;
use aos_abi::process::{Priority, SlotView};
use aos_abi::{Pid, Timestamp};
use serde::{Deserialize, Serialize};

/// How long a process waits before it counts as aged, in milliseconds.
const AGED_MS: u64 = 20_000;
/// Every so many starts, an aged process goes first.
const AGED_EVERY: u32 = 4;
/// Weight of an answered token against a sent one, as in the paper.
const OUTPUT_WEIGHT: u64 = 2;
/// A server that wants quiet for longer than this has a quota that is used up, in milliseconds: it is no pause that anybody
/// sits out unasked.
pub(crate) const WALL_MS: u64 = 60_000;
/// The span of "per minute" limits, in milliseconds.
const MINUTE_MS: u64 = 60_000;

/// Queues for every model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Scheduler {
    queues: BTreeMap<String, Queue>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Queue {
    /// Per class: service had, order of arrival, pid.
    classes: [BTreeSet<(u64, u64, Pid)>; 3],
    /// All classes by arrival.
    arrivals: BTreeSet<(Timestamp, u64, Pid)>,
    places: BTreeMap<Pid, Place>,
    running: u32,
    /// Service of the last process started: newcomers begin here, so that idling saves up nothing.
    floor: u64,
    arrived: u64,
    started: u32,
    /// The server asked for quiet until then.
    not_before: Timestamp,
    /// It said so because a quota is used up.
    wall: Option<Wall>,
    /// Starts of the last minute with their tokens.
    minute: VecDeque<(Timestamp, u64)>,
}

/// A quota that is used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wall {
    /// Until when.
    pub until: Timestamp,
    /// What the server said.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// A person has to mend it, so that nobody waits for its end.
    pub lasting: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    class: Priority,
    service: u64,
    arrival: u64,
    since: Timestamp,
}

/// Service of some usage, in weighted tokens.
#[must_use]
pub fn service_of(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens.saturating_mul(OUTPUT_WEIGHT))
}

impl Scheduler {
    /// Queues a process for a model slot, or raises its class where it waits already. Returns its service from here on.
    pub fn enqueue(&mut self, model: &str, pid: Pid, class: Priority, service: u64, now: Timestamp) -> u64 {
        let queue = self.queues.entry(model.to_owned()).or_default();
        let mut place = match queue.take(pid) {
            Some(place) => Place { class: place.class.min(class), ..place },
            None => {
                queue.arrived += 1;
                Place { class, service: service.max(queue.floor), arrival: queue.arrived, since: now }
            }
        };
        place.class = place.class.min(class);
        queue.put(pid, place);
        place.service
    }

    /// Takes a process out of the queue.
    pub fn remove(&mut self, model: &str, pid: Pid) {
        if let Some(queue) = self.queues.get_mut(model) {
            queue.take(pid);
        }
    }

    /// A process that waits has had more service meanwhile, as programs may.
    pub fn weigh(&mut self, model: &str, pid: Pid, service: u64) {
        if let Some(queue) = self.queues.get_mut(model)
            && let Some(place) = queue.take(pid)
        {
            queue.put(pid, Place { service, ..place });
        }
    }

    /// Takes everybody out of a model's queue, in order of arrival: there is no such model any more.
    pub fn dismiss(&mut self, model: &str) -> Vec<Pid> {
        let Some(queue) = self.queues.get_mut(model) else { return Vec::new() };
        let waiting: Vec<Pid> = queue.arrivals.iter().map(|(.., pid)| *pid).collect();
        for pid in &waiting {
            queue.take(*pid);
        }
        waiting
    }

    /// The next process to get a slot of this model, taken out of the queue; `None` while there is no slot or nobody waits.
    pub fn next(&mut self, model: &str, limits: &ModelLimits, now: Timestamp) -> Option<Pid> {
        let queue = self.queues.get_mut(model)?;
        if queue.running >= limits.concurrency || queue.free_at(limits, now) > now {
            return None;
        }
        let aged =
            queue.arrivals.first().filter(|(since, ..)| now.millis_since(*since) >= AGED_MS).map(|first| first.2);
        let fair = queue.classes.iter().find_map(|class| class.first()).map(|first| first.2);
        let pid = match aged {
            Some(pid) if queue.started % AGED_EVERY == AGED_EVERY - 1 => pid,
            _ => fair?,
        };
        let place = queue.take(pid)?;
        queue.floor = queue.floor.max(place.service);
        queue.started = queue.started.wrapping_add(1);
        Some(pid)
    }

    /// Whether an inference of this model can begin now without passing anybody who waits.
    pub fn is_free(&mut self, model: &str, limits: &ModelLimits, now: Timestamp) -> bool {
        let Some(queue) = self.queues.get_mut(model) else { return limits.concurrency > 0 };
        queue.places.is_empty() && queue.running < limits.concurrency && queue.free_at(limits, now) <= now
    }

    /// An inference of so many tokens, at worst, has begun.
    pub fn started(&mut self, model: &str, tokens: u64, now: Timestamp) {
        let queue = self.queues.entry(model.to_owned()).or_default();
        queue.running += 1;
        queue.minute.push_back((now, tokens));
    }

    /// An inference that has ended here already is about to end once more.
    pub(crate) fn takes_up(&mut self, model: &str) {
        self.queues.entry(model.to_owned()).or_default().running += 1;
    }

    /// An inference has ended.
    pub fn finished(&mut self, model: &str) {
        if let Some(queue) = self.queues.get_mut(model) {
            queue.running = queue.running.saturating_sub(1);
        }
    }

    /// The model's server asked for quiet until then.
    pub fn quiet(&mut self, model: &str, until: Timestamp) {
        let queue = self.queues.entry(model.to_owned()).or_default();
        queue.not_before = queue.not_before.max(until);
    }

    /// A quota of the model's server is used up.
    pub fn put_wall(&mut self, model: &str, wall: Wall) {
        self.quiet(model, wall.until);
        let queue = self.queues.entry(model.to_owned()).or_default();
        if queue.wall.as_ref().is_none_or(|before| before.until <= wall.until) {
            queue.wall = Some(wall);
        }
    }

    /// The quota that keeps anybody from this model for longer than a pause.
    #[must_use]
    pub fn wall(&self, model: &str, now: Timestamp) -> Option<&Wall> {
        self.queues.get(model)?.wall.as_ref().filter(|wall| now.plus_millis(WALL_MS) <= wall.until)
    }

    /// Until when the model's server wants quiet.
    #[must_use]
    pub fn quiet_until(&self, model: &str) -> Timestamp {
        self.queues.get(model).map(|queue| queue.not_before).unwrap_or_default()
    }

    /// Who waits for a model, in order of arrival.
    #[must_use]
    pub fn waiting(&self, model: &str) -> Vec<Pid> {
        self.queues.get(model).map(|queue| queue.arrivals.iter().map(|(.., pid)| *pid).collect()).unwrap_or_default()
    }

    /// When a limit of this model next lets a waiting process start; `None` where time alone changes nothing.
    pub fn due(&mut self, model: &str, limits: &ModelLimits, now: Timestamp) -> Option<Timestamp> {
        let queue = self.queues.get_mut(model)?;
        if queue.places.is_empty() || queue.running >= limits.concurrency {
            return None;
        }
        Some(queue.free_at(limits, now)).filter(|at| *at > now)
    }

    /// The models somebody waits for.
    #[must_use]
    pub fn waited_for(&self) -> Vec<String> {
        self.queues.iter().filter(|(_, queue)| !queue.places.is_empty()).map(|(model, _)| model.clone()).collect()
    }

    /// The slots of a model.
    #[must_use]
    pub fn slots(&self, model: &str, limits: &ModelLimits) -> SlotView {
        let (used, waiting) = self
            .queues
            .get(model)
            .map_or((0, 0), |queue| (queue.running, u32::try_from(queue.places.len()).unwrap_or(u32::MAX)));
        SlotView { used, limit: limits.concurrency, waiting }
    }

    /// Whether a process waits for this model.
    #[must_use]
    pub fn waits(&self, model: &str, pid: Pid) -> bool {
        self.queues.get(model).is_some_and(|queue| queue.places.contains_key(&pid))
    }
}

impl Queue {
    fn take(&mut self, pid: Pid) -> Option<Place> {
        let place = self.places.remove(&pid)?;
        self.classes[place.class as usize].remove(&(place.service, place.arrival, pid));
        self.arrivals.remove(&(place.since, place.arrival, pid));
        Some(place)
    }

    fn put(&mut self, pid: Pid, place: Place) {
        self.classes[place.class as usize].insert((place.service, place.arrival, pid));
        self.arrivals.insert((place.since, place.arrival, pid));
        self.places.insert(pid, place);
    }

    /// When the model's limits let the next inference start.
    fn free_at(&mut self, limits: &ModelLimits, now: Timestamp) -> Timestamp {
        while self.minute.front().is_some_and(|(at, _)| now.millis_since(*at) >= MINUTE_MS) {
            self.minute.pop_front();
        }
        let mut free = self.not_before;
        if let Some(rpm) = limits.rpm {
            let over = (self.minute.len() + 1).saturating_sub(rpm.max(1) as usize);
            if over > 0 {
                free = free.max(self.minute[over - 1].0.plus_millis(MINUTE_MS));
            }
        }
        if let Some(tpm) = limits.tpm {
            let mut sum: u64 = self.minute.iter().map(|(_, tokens)| tokens).sum();
            for (at, tokens) in &self.minute {
                if sum < tpm {
                    break;
                }
                sum -= tokens;
                free = free.max(at.plus_millis(MINUTE_MS));
            }
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: &str = "small";

    fn limits(concurrency: u32) -> ModelLimits {
        ModelLimits { concurrency, rpm: None, tpm: None }
    }

    fn start(scheduler: &mut Scheduler, limits: &ModelLimits, now: i64) -> Option<u64> {
        let pid = scheduler.next(M, limits, Timestamp(now))?;
        scheduler.started(M, 100, Timestamp(now));
        Some(pid.0)
    }

    #[test]
    fn classes_go_first_then_the_least_served() {
        let mut s = Scheduler::default();
        for (pid, class, service) in [
            (1, Priority::Batch, 0),
            (2, Priority::Normal, 50),
            (3, Priority::Normal, 10),
            (4, Priority::Interactive, 99),
        ] {
            s.enqueue(M, Pid(pid), class, service, Timestamp(0));
        }
        let order: Vec<u64> = std::iter::from_fn(|| start(&mut s, &limits(9), 0)).collect();
        assert_eq!(order, [4, 3, 2, 1]);
    }

    #[test]
    fn a_process_waits_at_most_once_and_a_person_raises_its_class() {
        let mut s = Scheduler::default();
        s.enqueue(M, Pid(2), Priority::Normal, 0, Timestamp(0));
        s.enqueue(M, Pid(3), Priority::Normal, 5, Timestamp(0));
        s.enqueue(M, Pid(3), Priority::Interactive, 5, Timestamp(1));
        s.enqueue(M, Pid(3), Priority::Batch, 5, Timestamp(2));
        assert_eq!(s.slots(M, &limits(1)).waiting, 2);
        assert_eq!(start(&mut s, &limits(9), 3), Some(3));
        assert_eq!(start(&mut s, &limits(9), 3), Some(2));
        assert_eq!(start(&mut s, &limits(9), 3), None);
    }

    #[test]
    fn idling_saves_up_no_service() {
        let mut s = Scheduler::default();
        s.enqueue(M, Pid(2), Priority::Normal, 10_000, Timestamp(0));
        start(&mut s, &limits(9), 0);
        assert_eq!(s.enqueue(M, Pid(3), Priority::Normal, 0, Timestamp(0)), 10_000);
    }

    #[test]
    fn nothing_starves_behind_a_stream_of_interactive_work() {
        let mut s = Scheduler::default();
        s.enqueue(M, Pid(2), Priority::Batch, 0, Timestamp(0));
        for turn in 0..i64::from(AGED_EVERY) {
            let now = AGED_MS as i64 + turn;
            s.enqueue(M, Pid(100 + turn as u64), Priority::Interactive, 0, Timestamp(now));
            if start(&mut s, &limits(9), now) == Some(2) {
                return;
            }
        }
        panic!("the batch process never ran");
    }

    #[test]
    fn limits_per_minute_hold_and_say_when_they_end() {
        let mut s = Scheduler::default();
        let limits = ModelLimits { concurrency: 9, rpm: Some(2), tpm: None };
        for pid in 2..5 {
            s.enqueue(M, Pid(pid), Priority::Normal, 0, Timestamp(0));
        }
        assert_eq!(start(&mut s, &limits, 10), Some(2));
        assert_eq!(start(&mut s, &limits, 20), Some(3));
        assert_eq!(start(&mut s, &limits, 30), None);
        assert_eq!(s.due(M, &limits, Timestamp(30)), Some(Timestamp(60_010)));
        assert_eq!(start(&mut s, &limits, 60_010), Some(4));
        let limits = ModelLimits { concurrency: 9, rpm: None, tpm: Some(150) };
        let mut s = Scheduler::default();
        for pid in 2..5 {
            s.enqueue(M, Pid(pid), Priority::Normal, 0, Timestamp(0));
        }
        assert_eq!(start(&mut s, &limits, 10), Some(2));
        assert_eq!(start(&mut s, &limits, 20), Some(3));
        assert_eq!(start(&mut s, &limits, 30), None, "200 tokens of 150 in this minute");
        assert_eq!(s.due(M, &limits, Timestamp(30)), Some(Timestamp(60_010)));
    }

    #[test]
    fn a_slot_is_free_again_when_an_inference_ends() {
        let mut s = Scheduler::default();
        s.enqueue(M, Pid(2), Priority::Normal, 0, Timestamp(0));
        s.enqueue(M, Pid(3), Priority::Normal, 0, Timestamp(0));
        assert_eq!(start(&mut s, &limits(1), 0), Some(2));
        assert_eq!(start(&mut s, &limits(1), 0), None);
        assert_eq!(s.due(M, &limits(1), Timestamp(0)), None, "time alone frees no slot");
        s.finished(M);
        assert_eq!(start(&mut s, &limits(1), 0), Some(3));
    }
}
