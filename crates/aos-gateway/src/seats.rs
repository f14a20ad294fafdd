//! Seats for webhook requests, from before the body is read until the answer.
//!
//! Start at [`Seats::take`]. What always holds: each path has its own, so that whoever sends slow or unsigned bodies to one
//! takes no seat of another. How many there are of all paths together is bounded by the listener's connections.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::error::ApiError;

/// How many requests to each path are under way.
#[derive(Debug)]
pub(crate) struct Seats {
    max: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

/// A seat, given back when it is dropped.
#[must_use]
pub(crate) struct Seat<'s> {
    seats: &'s Seats,
    path: &'s str,
}

impl Seats {
    /// So many seats for each path.
    pub(crate) fn new(max: usize) -> Seats {
        Seats { max, taken: Mutex::default() }
    }

    /// A seat for a request to a path.
    ///
    /// # Errors
    /// 503 where all of that path are taken.
    pub(crate) fn take<'s>(&'s self, path: &'s str) -> Result<Seat<'s>, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(path).copied().unwrap_or(0);
        if own >= self.max {
            return Err(
                ApiError::unavailable("too many requests to this webhook at once").hint("try again in a moment")
            );
        }
        taken.insert(path.to_owned(), own + 1);
        Ok(Seat { seats: self, path })
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(self.path) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_own() {
        let seats = Seats::new(2);
        let (first, _second) = (seats.take("a").unwrap(), seats.take("a").unwrap());
        assert_eq!(seats.take("a").err().map(|error| error.status), Some(503));
        let other = seats.take("b").unwrap();
        drop(first);
        assert!(seats.take("a").is_ok());
        drop(other);
        assert_eq!(seats.taken.lock().unwrap().iter().collect::<Vec<_>>(), [(&"a".to_owned(), &1)]);
    }
}
