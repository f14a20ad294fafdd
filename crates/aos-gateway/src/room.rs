//! Room in memory for the requests of programs, from the first byte to the end of the answer.
//!
//! Start at [`Room::take`]. What always holds: together they hold no more than there is, and those of one key no more than
//! its share, so that the requests of one program, however slowly it reads, leave room for the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::Pid;

use crate::error::ApiError;

/// The part of all that one key may have: one in so many.
const SHARES: usize = 4;

/// How much is taken, and by whom, in bytes.
pub(crate) struct Room {
    all_max: usize,
    each_max: usize,
    taken: Mutex<BTreeMap<Pid, usize>>,
}

/// Room that was taken, until this is dropped.
pub(crate) struct Taken {
    room: Arc<Room>,
    pid: Pid,
    bytes: usize,
}

impl Room {
    /// For `all_max` bytes of requests of up to `request_max`.
    pub(crate) fn new(all_max: usize, request_max: usize) -> Arc<Room> {
        // The largest request fits in any case.
        let each_max = (all_max / SHARES).max(request_max).min(all_max);
        Arc::new(Room { all_max, each_max, taken: Mutex::default() })
    }

    /// Room for so many bytes of the program that has this key.
    ///
    /// # Errors
    /// 503 where its share, or all there is, is taken.
    pub(crate) fn take(self: &Arc<Room>, pid: Pid, bytes: usize) -> Result<Taken, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&pid).copied().unwrap_or(0);
        let full = |message: &str| Err(ApiError::unavailable(message).hint("try again in a moment"));
        if own.saturating_add(bytes) > self.each_max {
            return full("too many large requests at once with this key");
        }
        if all.saturating_add(bytes) > self.all_max {
            return full("too many large requests at once");
        }
        taken.insert(pid, own + bytes);
        Ok(Taken { room: Arc::clone(self), pid, bytes })
    }
}

impl Taken {
    /// Keeps no more than so many bytes: what came was smaller than it might have been.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let given_back = self.bytes.saturating_sub(bytes);
        self.bytes -= given_back;
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.pid) {
            *own -= given_back;
            if *own == 0 {
                taken.remove(&self.pid);
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_leaves_room_for_the_others() {
        let room = Room::new(100, 20);
        let mut first = room.take(Pid(2), 20).unwrap();
        first.shrink(25);
        let _second = room.take(Pid(2), 5).unwrap();
        assert!(room.take(Pid(2), 1).err().unwrap().message.contains("with this key"));
        let _others: Vec<Taken> = (3..6).map(|pid| room.take(Pid(pid), 25).unwrap()).collect();
        assert!(!room.take(Pid(6), 1).err().unwrap().message.contains("with this key"));
        first.shrink(10);
        assert!(room.take(Pid(6), 10).is_ok(), "what a request turned out not to need is there for others");
        drop(first);
        assert!(room.take(Pid(6), 20).is_ok());
        assert_eq!(room.taken.lock().unwrap().len(), 4, "nothing is kept of a key that holds nothing");
    }
}
