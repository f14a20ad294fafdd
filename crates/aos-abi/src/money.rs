//! Money, exact: whole billionths of a US dollar inside, a number of dollars on the wire.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An amount in nano-dollars. The cheapest listed token prices are about ten of these; `u64` holds 18 billion dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "f64")]
pub struct Usd(pub u64);

impl Usd {
    /// Nothing.
    pub const ZERO: Usd = Usd(0);

    /// From dollars, rounded to the nearest nano-dollar; negative and non-finite amounts are `None`.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Usd> {
        (dollars.is_finite() && (0.0..1e10).contains(&dollars)).then(|| Usd((dollars * 1e9).round() as u64))
    }

    /// As dollars.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }

    /// The difference, never below zero.
    #[must_use]
    pub fn minus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.dollars())
    }
}

impl Serialize for Usd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_f64(self.dollars())
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(Usd);
        }
        let dollars = f64::deserialize(deserializer)?;
        Usd::from_dollars(dollars)
            .ok_or_else(|| serde::de::Error::custom("expected an amount of dollars, zero or more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn reads_back_exactly(nanos in 0u64..4_000_000_000_000_000) {
            let text = serde_json::to_string(&Usd(nanos)).unwrap();
            proptest::prop_assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), Usd(nanos));
        }
    }
}
