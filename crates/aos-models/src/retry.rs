//! Trying again: how often, after how long, and when not.
//!
//! Start at [`Backoff::after`]. What always holds: only [`FailureKind::Transient`] is tried again, and only where the try
//! cost nothing, since one inference is all that was set aside; a wait that the server
//! asks for is honoured, and one too long to sit out inside an inference goes back to the kernel's scheduler instead.
//! Exponential backoff with full jitter (Brooker, "Exponential Backoff and Jitter", AWS 2015).

use std::time::{Duration, SystemTime};

use aos_abi::inference::{Failure, FailureKind};
use reqwest::header::HeaderMap;

/// The longest wait that a server's word brings about: quotas that are renewed are so within a day, and where one is not, a
/// request a day costs nothing. Without it a server that sends a moment in place of a span, or one that is hostile, would
/// silence a model for years, over restarts.
pub(crate) const WAIT_ASKED_MAX: Duration = Duration::from_secs(24 * 3600);

/// How the edge tries again within one inference.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Most tries after the first.
    pub retries_max: u32,
    /// The first wait is at most this long, each next one at most twice the last.
    pub base: Duration,
    /// A longer wait than this is not sat out here: the failure goes back with `retry_after_ms`.
    pub wait_max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Retries { retries_max: 2, base: Duration::from_millis(250), wait_max: Duration::from_secs(10) }
    }
}

/// The tries of one inference.
#[derive(Debug)]
pub(crate) struct Backoff {
    retries: Retries,
    tried: u32,
    /// A web page has come in the place of an answer.
    page: bool,
}

impl Backoff {
    pub(crate) fn new(retries: Retries) -> Backoff {
        Backoff { retries, tried: 0, page: false }
    }

    /// A web page in the place of an answer: the first may be one that stands before the server in passing, the second says
    /// that the address is another one's.
    pub(crate) fn paged(&mut self, failure: Failure) -> Failure {
        let again = std::mem::replace(&mut self.page, true);
        let kind = if again { FailureKind::Permanent } else { failure.kind };
        Failure { kind, ..failure }
    }

    /// How long to wait before the next try; `None`: give up. `chance` is from 0 to 1.
    pub(crate) fn after(&mut self, failure: &Failure, chance: f64) -> Option<Duration> {
        if failure.kind != FailureKind::Transient || failure.usage.is_some() || self.tried >= self.retries.retries_max {
            return None;
        }
        let ceiling = self.retries.base.saturating_mul(1 << self.tried.min(16));
        self.tried += 1;
        let chance = chance.clamp(0.0, 1.0);
        // Jitter also on top of what the server asks for: all who were told the same second would come together. A server
        // that asks for none, or for less each time, uses up no tries at once.
        let asked = failure
            .retry_after_ms
            .map_or(Duration::ZERO, |millis| Duration::from_millis(millis) + self.retries.base.mul_f64(chance));
        let wait = ceiling.mul_f64(chance).max(asked);
        (wait <= self.retries.wait_max).then_some(wait)
    }
}

/// The time of day, in milliseconds since the Unix epoch.
pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// When a wait that begins now ends, for a person.
pub(crate) fn moment(wait: Duration) -> String {
    aos_abi::Timestamp(now_millis()).plus_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).to_string()
}

/// The wait that a server asks for: `retry-after-ms`, `Retry-After` (seconds or a date, RFC 9110 section 10.2.3), or
/// the reset of the rate limit that is used up (`x-ratelimit-*`, as OpenAI and its like send them).
pub(crate) fn wait_asked(headers: &HeaderMap, now_millis: i64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str| text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if let Some(wait) = text("retry-after-ms").and_then(seconds) {
        return Some(wait / 1000);
    }
    if let Some(asked) = text("retry-after") {
        let date = || {
            let at = jiff::fmt::rfc2822::parse(asked).ok()?.timestamp().as_millisecond();
            Some(Duration::from_millis(u64::try_from(at.saturating_sub(now_millis)).unwrap_or(0)))
        };
        if let Some(wait) = seconds(asked).or_else(date) {
            return Some(wait);
        }
    }
    ["requests", "tokens"]
        .into_iter()
        .filter(|what| text(&format!("x-ratelimit-remaining-{what}")) == Some("0"))
        .filter_map(|what| span(text(&format!("x-ratelimit-reset-{what}"))?))
        .max()
}

/// A span as Go writes it: `1s`, `6m0s`, `20ms`, `1h2m3.5s`; a bare number is seconds.
fn span(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        total += number
            * match &rest[..letters] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" | "" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{permanent, transient};

    fn asked(pairs: &[(&'static str, &str)]) -> Option<u128> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        // 2015-10-21T07:28:00Z, the date in RFC 9110's example.
        wait_asked(&headers, 1_445_412_480_000).map(|wait| wait.as_millis())
    }

    #[test]
    fn every_form_of_a_wait_is_read() {
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[("retry-after-ms", "1250"), ("retry-after", "9")]), Some(1250));
        assert_eq!(asked(&[("retry-after", "9")]), Some(9000));
        assert_eq!(asked(&[("retry-after", "0.5")]), Some(500));
        assert_eq!(asked(&[("retry-after", "Wed, 21 Oct 2015 07:28:07 GMT")]), Some(7000));
        assert_eq!(asked(&[("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT")]), Some(0), "a past date");
        assert_eq!(asked(&[("retry-after", "soon")]), None);
        assert_eq!(asked(&[("retry-after", "-3")]), None);
        assert_eq!(asked(&[("retry-after", "1e300")]), None);
        assert_eq!(
            asked(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0.5s")]),
            Some(360_500)
        );
        assert_eq!(asked(&[("x-ratelimit-remaining-tokens", "5"), ("x-ratelimit-reset-tokens", "6m0s")]), None);
        assert_eq!(asked(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "20ms")]), Some(20));
    }

    #[test]
    fn an_endless_retry_on_a_permanent_error_does_not_happen() {
        let mut backoff = Backoff::new(Retries::default());
        for kind in [FailureKind::Permanent, FailureKind::Refused, FailureKind::TooLong, FailureKind::Cancelled] {
            assert_eq!(backoff.after(&Failure { kind, ..permanent("no", "mend it") }, 0.5), None);
        }
        assert!(backoff.after(&transient("busy"), 0.5).is_some(), "none of them used up a try");
    }

    #[test]
    fn waits_double_and_end() {
        let mut backoff = Backoff::new(Retries::default());
        let busy = transient("busy");
        assert_eq!(backoff.after(&busy, 1.0), Some(Duration::from_millis(250)));
        assert_eq!(backoff.after(&busy, 0.5), Some(Duration::from_millis(250)));
        assert_eq!(backoff.after(&busy, 0.5), None);
        assert_eq!(Backoff::new(Retries::default()).after(&busy, 0.0), Some(Duration::ZERO), "full jitter");
    }

    #[test]
    fn a_wait_that_a_server_asks_for_shortens_none() {
        for millis in [0, 120] {
            let mut backoff = Backoff::new(Retries { retries_max: 4, ..Retries::default() });
            let busy = Failure { retry_after_ms: Some(millis), ..transient("busy") };
            let waits: Vec<u128> = (0..4).map(|_| backoff.after(&busy, 1.0).unwrap().as_millis()).collect();
            assert_eq!(waits, [250 + u128::from(millis), 500, 1000, 2000]);
        }
    }

    #[test]
    fn a_long_wait_goes_back_to_the_scheduler() {
        let mut backoff = Backoff::new(Retries::default());
        let mut busy = transient("busy");
        busy.retry_after_ms = Some(2000);
        assert_eq!(backoff.after(&busy, 0.0), Some(Duration::from_secs(2)));
        busy.retry_after_ms = Some(60_000);
        assert_eq!(backoff.after(&busy, 0.0), None);
    }
}
