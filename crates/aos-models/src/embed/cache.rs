//! Vectors that were made, by model and text.
//!
//! Start at [`Cache::get`]. What always holds: at most [`BYTES_MAX`] bytes are held, and what was asked for longest ago
//! goes first; no text is kept, only its digest. In memory, since a vector is made again in milliseconds, and a file of
//! vectors would be one more place where what people wrote can be guessed from; vectors that are to stay are the business
//! of whoever has the texts too.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest as _, Sha256};

use super::Vector;

/// Most bytes of all vectors: some ten thousand of 384 numbers.
const BYTES_MAX: usize = 16 << 20;
/// What an entry takes beside its numbers, about: two maps, the key in both, the counts of what is shared.
const ENTRY_BYTES: usize = 192;

/// The digest of a model's configured name and a text.
pub(super) type Key = [u8; 32];

/// The key of a text's vector.
pub(super) fn key(model: &str, text: &str) -> Key {
    let mut digest = Sha256::new();
    // The length keeps a name that ends as a text begins apart from another pair.
    digest.update((model.len() as u64).to_le_bytes());
    digest.update(model);
    digest.update(text);
    digest.finalize().into()
}

/// The vectors, in order of their last use.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<Key, (u64, Vector)>,
    by_use: BTreeMap<u64, Key>,
    bytes: usize,
    clock: u64,
}

impl Cache {
    /// A vector that is still here.
    pub(super) fn get(&mut self, key: &Key) -> Option<Vector> {
        let (used, vector) = self.entries.get_mut(key)?;
        self.by_use.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.by_use.insert(self.clock, *key);
        Some(vector.clone())
    }

    /// Keeps a vector, as long as there is room for it.
    pub(super) fn put(&mut self, key: Key, vector: Vector) {
        if bytes(&vector) > BYTES_MAX {
            return;
        }
        self.bytes += bytes(&vector);
        self.clock += 1;
        if let Some((used, old)) = self.entries.insert(key, (self.clock, vector)) {
            self.bytes -= bytes(&old);
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.clock, key);
        while self.bytes > BYTES_MAX
            && let Some((_, key)) = self.by_use.pop_first()
        {
            let (_, old) = self.entries.remove(&key).expect("both maps hold the same");
            self.bytes -= bytes(&old);
        }
    }
}

fn bytes(vector: &Vector) -> usize {
    size_of_val(&*vector.numbers) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(number: f32, dimension: usize) -> Vector {
        Vector { model: "m".into(), numbers: vec![number; dimension].into(), tokens: 1 }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bound_holds() {
        // Four of them have room.
        let dimension = (BYTES_MAX / 4 - ENTRY_BYTES) / size_of::<f32>();
        let keys: Vec<Key> = (0..6).map(|nth| key("m", &nth.to_string())).collect();
        let mut cache = Cache::default();
        for (nth, key) in keys[..4].iter().enumerate() {
            cache.put(*key, vector(nth as f32, dimension));
        }
        assert_eq!(cache.get(&keys[0]), Some(vector(0.0, dimension)));
        cache.put(keys[4], vector(4.0, dimension));
        cache.put(keys[4], vector(5.0, dimension));
        let here: Vec<Option<f32>> = keys.iter().map(|key| cache.get(key).map(|vector| vector.numbers[0])).collect();
        assert_eq!(here, [Some(0.0), None, Some(2.0), Some(3.0), Some(5.0), None]);
        assert!(cache.bytes <= BYTES_MAX && cache.by_use.len() == cache.entries.len());
        cache.put(keys[5], vector(6.0, BYTES_MAX));
        assert_eq!(cache.get(&keys[5]), None, "larger than all the room");
        assert_eq!(cache.entries.len(), 4);
    }

    #[test]
    fn a_key_is_of_one_model_and_one_text() {
        assert_eq!(key("m", "text"), key("m", "text"));
        assert_ne!(key("m", "text"), key("mt", "ext"));
        assert_ne!(key("m", "text"), key("m", "Text"));
    }
}
