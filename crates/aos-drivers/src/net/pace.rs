//! How fast a command may ask its proxy: no number bounds what is refused, so its rate is.
//!
//! Start at [`Pace::turn`]. It is the virtual schedule of the generic cell rate algorithm (ITU-T I.371): a turn that comes
//! later than its time saves some up, one that comes earlier waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A turn's share of time: deciding a request takes the daemon some 50 µs of processor, so that a command that does
/// nothing but ask takes a tenth of one.
pub(super) const EACH: Duration = Duration::from_micros(500);
/// Turns that come at once, after a pause, without waiting: more than any program opens together.
pub(super) const AT_ONCE: u32 = 2_000;

/// The turns of one command, for its connections, its requests and its questions about names together.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the next turn has its time.
    next: Mutex<Instant>,
}

impl Pace {
    /// With as many turns saved up as can be.
    pub(super) fn new() -> Pace {
        let now = Instant::now();
        Pace { next: Mutex::new(now.checked_sub(EACH * AT_ONCE).unwrap_or(now)) }
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    /// Dropping it gives the turn up; it is not another's.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let time = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let time = *next;
            // What was saved up is no more than this, however long nothing came.
            *next = now.checked_sub(EACH * AT_ONCE).map_or(time, |least| time.max(least)) + EACH;
            time
        };
        if time > now {
            tokio::time::sleep_until(time).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_a_flood_is_slowed() {
        let pace = Pace::new();
        let turns = async |count: u32| {
            let began = Instant::now();
            for _ in 0..count {
                pace.turn().await;
            }
            began.elapsed()
        };
        assert_eq!(turns(AT_ONCE).await, Duration::ZERO, "a program that starts");
        turns(100).await;
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(turns(AT_ONCE).await, Duration::ZERO, "at once after a pause, however long it was");
        let flood = turns(10_000).await;
        assert!(flood >= EACH * 9_990 && flood <= EACH * 10_010, "{flood:?}");
        assert!(turns(10).await > Duration::ZERO, "nothing was saved up meanwhile");
        tokio::time::advance(EACH * 100).await;
        assert_eq!(turns(99).await, Duration::ZERO, "a short pause saves up a little");
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_together_wait_for_each_other() {
        let pace = Pace::new();
        let began = Instant::now();
        futures_util::future::join_all((0..AT_ONCE + 1000).map(|_| pace.turn())).await;
        assert!(began.elapsed() >= EACH * 990, "{:?}", began.elapsed());
    }
}
