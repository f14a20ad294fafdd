//! Time as the journal knows it: milliseconds since the Unix epoch, RFC 3339 in UTC on the wire.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970-01-01T00:00:00Z. The kernel's only clock is `Entry::at`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Timestamp(pub i64);

/// The last moment that can be written: 9999-12-30T22:00:00Z, the bound of the library that formats it.
const MILLIS_MAX: i64 = 253_402_207_200_000;

impl Timestamp {
    /// This moment and `millis` more, saturating.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)).min(MILLIS_MAX))
    }

    /// This moment and `seconds` more, saturating; negative and non-finite values count as zero.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Timestamp {
        // `as` saturates, which is what a deadline wants.
        self.plus_millis((seconds.max(0.0) * 1000.0) as u64)
    }

    /// Milliseconds from `earlier` to here; zero where `earlier` is later.
    #[must_use]
    pub fn millis_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0.clamp(0, MILLIS_MAX)).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.to_jiff())
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(|at| Timestamp(at.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_i64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Timestamp);
        }
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_rfc_3339_in_utc_and_reads_back() {
        let at = Timestamp(1_795_305_600_123);
        assert_eq!(at.to_string(), "2026-11-22T00:00:00.123Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }

    #[test]
    fn deadlines_saturate() {
        assert_eq!(Timestamp(0).plus_seconds(f64::INFINITY), Timestamp(MILLIS_MAX));
        assert_eq!(Timestamp(5).plus_seconds(f64::NAN), Timestamp(5));
        assert_eq!(Timestamp(5).plus_seconds(-1.0), Timestamp(5));
    }
}
