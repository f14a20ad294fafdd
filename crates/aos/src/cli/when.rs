//! Moments and lengths of time as people type them: `10m`, `2h`, `3d`, or a date.
//!
//! Start at [`moment`].

use std::time::Duration;

use aos_abi::Timestamp;

use super::Failure;

/// A moment that was not understood, with the ways to write one.
pub(super) fn wrong(what: String) -> Failure {
    Failure::usage(what).hint("10m or 2h for that long ago, 2026-11-22, or 2026-11-22T13:00:00Z")
}

/// A length such as `90`, `90s`, `10m`, `2h`, `3d` or `1.5h`; a bare number is seconds.
///
/// # Errors
/// In words, where it is none.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no length of time; write 90s, 10m, 2h or 3d");
    let digits = text.trim_end_matches(|one: char| one.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(bad()),
    };
    if !digits.starts_with(|one: char| one.is_ascii_digit()) {
        return Err(bad());
    }
    let number: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| bad())
}

/// A moment: a length of time before `now`, a date such as `2026-11-22` (its start in UTC), or an RFC 3339 time.
///
/// # Errors
/// In words, where it is none.
pub(super) fn moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(length) = length(text) {
        let millis = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        return Ok(Timestamp(now.0.saturating_sub(millis).max(0)));
    }
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    whole.parse().map_err(|_| format!("`{text}` is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_dates() {
        let seconds = |text: &str| length(text).map(|length| length.as_secs());
        assert_eq!(["90", "90s", "10m", "1.5h", "3d"].map(seconds), [90, 90, 600, 5_400, 259_200].map(Ok));
        for bad in ["", "m", "-5m", "5 m", "5w", "inf", "1e400s", "NaN"] {
            assert!(length(bad).is_err(), "{bad}");
        }
        let now = Timestamp(1_795_305_600_000);
        assert_eq!(moment("1m", now).unwrap(), Timestamp(1_795_305_540_000));
        assert_eq!(moment("2026-11-22", now).unwrap(), now);
        assert_eq!(moment("2026-11-22T00:00:00Z", now).unwrap(), now);
        assert_eq!(moment("100000d", now).unwrap(), Timestamp(0));
        assert!(moment("yesterday", now).is_err());
    }
}
