//! What the kernel knows of a model. How it is reached (provider, address, key) stays at the model edge.

use serde::{Deserialize, Serialize};

use crate::inference::{Encoding, Usage};
use crate::money::Usd;

/// A configured model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Most tokens of prompt and answer together.
    pub context_window: u32,
    /// Most tokens of one answer.
    pub max_output: u32,
    /// `None`: unknown, and said to be unknown wherever costs are shown.
    pub price: Option<Price>,
    /// Its limits.
    pub limits: ModelLimits,
    /// What is sent there stays on this machine.
    pub local: bool,
    /// How it writes calls.
    pub encoding: Encoding,
    /// How capable it is, as the policy names it: `nano`, `small`, `standard`, `strong`, `frontier`; nobody has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Whether it is shown images.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images: bool,
}

/// Prices, each in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens sent.
    pub input: Usd,
    /// Tokens answered.
    pub output: Usd,
    /// Tokens sent that were cached; as `input` if left out.
    #[serde(default)]
    pub cached_input: Option<Usd>,
}

impl Price {
    /// What `usage` costs, rounded up to the nano-dollar.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Usd {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let per_million = |tokens: u64, price: Usd| u128::from(tokens) * u128::from(price.0);
        let total = per_million(usage.input_tokens - cached, self.input)
            + per_million(cached, self.cached_input.unwrap_or(self.input))
            + per_million(usage.output_tokens, self.output);
        Usd(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// What a model's server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelLimits {
    /// Inferences at once.
    #[serde(default = "ModelLimits::default_concurrency")]
    pub concurrency: u32,
    /// Requests per minute.
    #[serde(default)]
    pub rpm: Option<u32>,
    /// Tokens per minute, in and out together.
    #[serde(default)]
    pub tpm: Option<u64>,
}

impl ModelLimits {
    fn default_concurrency() -> u32 {
        8
    }
}

impl Default for ModelLimits {
    fn default() -> Self {
        ModelLimits { concurrency: Self::default_concurrency(), rpm: None, tpm: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_priced_apart_and_fractions_round_up() {
        let price = Price { input: Usd(100_000_000), output: Usd(400_000_000), cached_input: Some(Usd(10_000_000)) };
        let usage = Usage { input_tokens: 900, output_tokens: 120, cached_input_tokens: 400, estimated: false };
        // 500 × $0.10 + 400 × $0.01 + 120 × $0.40 per million.
        assert_eq!(price.of(&usage), Usd(50_000 + 4_000 + 48_000));
        let tiny = Price { input: Usd(1), output: Usd(0), cached_input: None };
        assert_eq!(tiny.of(&Usage { input_tokens: 1, ..Usage::default() }), Usd(1));
    }
}
