//! How often a webhook that anybody may call wakes its agent.
//!
//! Start at [`Rates::take`]. A count begins with the first request that is counted and begins anew a minute later, as the
//! policy's rates do. What always holds: only paths that somebody owns are counted, and what is over is forgotten, so that
//! no stranger makes this grow. Deliberately absent: signed webhooks, whose senders are known.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ApiError;

/// How long one count goes on.
const PER: Duration = Duration::from_secs(60);

/// What was counted of each path in the last minute.
#[derive(Debug)]
pub(crate) struct Rates {
    max: u32,
    paths: Mutex<BTreeMap<String, (Instant, u32)>>,
}

impl Rates {
    /// So many requests a minute and path.
    pub(crate) fn new(max: u32) -> Rates {
        Rates { max, paths: Mutex::default() }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// 429 where there were as many as there may be.
    pub(crate) fn take(&self, path: &str) -> Result<(), ApiError> {
        let now = Instant::now();
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.retain(|_, (until, _)| now < *until);
        let (until, count) = paths.entry(path.to_owned()).or_insert((now + PER, 0));
        if *count >= self.max {
            let left = u64::try_from(until.duration_since(now).as_millis()).unwrap_or(u64::MAX);
            let message = format!("this webhook takes {} unsigned requests a minute", self.max);
            return Err(ApiError::new(429, "EAGAIN", message)
                .hint("send fewer, or let its agent register it with a secret: what is signed has no such bound")
                .retry_after_ms(left));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_minute_has_so_many_of_each_path() {
        let rates = Rates::new(2);
        let taken = |path: &str| rates.take(path).map_err(|error| (error.status, error.retry_after_ms));
        assert_eq!(taken("a"), Ok(()));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!((taken("a"), taken("a")), (Ok(()), Err((429, Some(40_000)))));
        assert_eq!(taken("b"), Ok(()), "each path has its own");
        tokio::time::advance(Duration::from_secs(39)).await;
        assert_eq!(taken("a"), Err((429, Some(1000))), "what is refused counts for nothing");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(taken("a"), Ok(()));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken("b"), Ok(()));
        assert_eq!(rates.paths.lock().unwrap().len(), 1, "what is over is forgotten");
    }
}
