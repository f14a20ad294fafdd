//! Chance: every random choice of a run, from its seed.

/// A stream of choices.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    rng: fastrand::Rng,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance { rng: fastrand::Rng::with_seed(seed) }
    }

    /// `true` so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.rng.u64(low..=high.max(low))
    }

    /// One of these; `None` of nothing.
    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.rng.usize(0..of.len())].clone()) }
    }

    /// One of these, of which there is at least one.
    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(0..of.len())].clone()
    }

    /// The place of a weight in a list of weights.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.rng.u32(0..weights.iter().sum::<u32>().max(1));
        for (index, weight) in weights.iter().enumerate() {
            if at < *weight {
                return index;
            }
            at -= weight;
        }
        weights.len() - 1
    }
}
