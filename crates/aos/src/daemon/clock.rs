//! The kernel's time: that of the wall clock, but it never goes back and never stands still.
//!
//! Start at [`Clock::now`]. Entries are never stamped earlier than those before, so a wall clock that was ahead once, for
//! one entry, is behind the journal ever after. What always holds: until it has come up, time goes on from the latest
//! moment it has had, also over restarts, by what really passes, suspends of the machine included. It goes a tenth slower
//! then: at the same pace the wall clock would never come up. Deliberately absent: doubt in a wall clock that goes ahead,
//! which is what it does after a suspend, too.

use std::sync::{Mutex, PoisonError};

use aos_abi::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::heart;

/// Of so many milliseconds that pass one is left out while the wall clock is behind.
const SLOWER_BY: u64 = 10;
/// How far the wall clock may be behind before people are told, in milliseconds.
const TOLD_MS: u64 = 60_000;

/// A clock that goes on.
#[derive(Debug)]
pub(crate) struct Clock(Mutex<Going>);

#[derive(Debug)]
struct Going {
    /// When it last was the wall clock's time, or when it began.
    at: Timestamp,
    /// What the machine's own clock showed then: milliseconds since it was started.
    up_ms: u64,
    /// Whether it was said that the wall clock is behind.
    told: bool,
}

impl Clock {
    /// Goes on from the journal's last moment.
    pub(crate) fn new(last: Timestamp) -> Clock {
        Clock(Mutex::new(Going { at: last, up_ms: up_ms(), told: false }))
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        let mut going = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = heart::now();
        let now = going.read(wall, up_ms());
        going.tell(now.millis_since(wall));
        now
    }

    /// Seconds that it is ahead of the wall clock, where it is much.
    pub(crate) fn ahead_s(&self) -> Option<u64> {
        let ahead_ms = self.now().millis_since(heart::now());
        (ahead_ms >= TOLD_MS).then_some(ahead_ms / 1000)
    }
}

impl Going {
    fn read(&mut self, wall: Timestamp, up_ms: u64) -> Timestamp {
        let passed = up_ms.saturating_sub(self.up_ms);
        let alone = self.at.plus_millis(passed - passed.div_ceil(SLOWER_BY));
        if wall < alone {
            return alone;
        }
        (self.at, self.up_ms) = (wall, up_ms);
        wall
    }

    fn tell(&mut self, ahead_ms: u64) {
        if !self.told && ahead_ms >= TOLD_MS {
            self.told = true;
            tracing::warn!(
                ahead_s = ahead_ms / 1000,
                "this machine's clock is behind the journal's time, which does not go back: it goes on by itself, \
                 a tenth slower, until the clock has come up; till then stamps and times of day are early by that much"
            );
        } else if self.told && ahead_ms == 0 {
            self.told = false;
            tracing::info!("this machine's clock has come up to the journal's time");
        }
    }
}

/// Milliseconds since the machine was started; those count that it was suspended.
fn up_ms() -> u64 {
    let up = clock_gettime(ClockId::Boottime);
    u64::try_from(up.tv_sec * 1000 + up.tv_nsec / 1_000_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// What a clock shows that began at `last`, by what the wall clock showed and how long the machine was up.
    fn shown<const N: usize>(last: i64, readings: [(i64, u64); N]) -> [i64; N] {
        let mut going = Going { at: Timestamp(last), up_ms: 0, told: false };
        readings.map(|(wall, up_ms)| going.read(Timestamp(wall), up_ms).0)
    }

    #[test]
    fn it_is_the_wall_clocks_wherever_that_goes_ahead() {
        let readings = [(5, 0), (5, 1), (1005, 1000), (HOUR, 1001), (HOUR + 10, 1011)];
        assert_eq!(shown(0, readings), readings.map(|(wall, _)| wall));
    }

    #[test]
    fn it_goes_on_while_the_wall_clock_is_behind_and_lets_it_come_up() {
        let hour = HOUR as u64;
        assert_eq!(
            shown(
                HOUR,
                [(0, 0), (1_000, 1_000), (5 * HOUR, 5 * hour), (10 * HOUR, 10 * hour), (10 * HOUR + 1, 10 * hour + 1)]
            ),
            [HOUR, HOUR + 900, HOUR + 9 * HOUR / 2, 10 * HOUR, 10 * HOUR + 1]
        );
    }

    #[test]
    fn a_wall_clock_that_goes_back_does_not_take_it_along() {
        assert_eq!(
            shown(0, [(2 * HOUR, 7), (HOUR, 17), (HOUR + 1_000, 1_007), (3 * HOUR, 1_008), (0, 2_008)]),
            [2 * HOUR, 2 * HOUR + 9, 2 * HOUR + 900, 3 * HOUR, 3 * HOUR + 900]
        );
    }
}
