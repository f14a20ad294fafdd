//! What the kernel knows of a model. How it is reached (provider, address, key) stays at the model edge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inference::{Encoding, Usage};
use crate::money::Usd;

/// The tiers, the least capable first. The policy and `aos.toml` name them so.
pub const TIERS: [&str; 5] = ["nano", "small", "standard", "strong", "frontier"];
/// The place in [`TIERS`] of a model that nobody has put into a tier: it may be anything.
const RANK_UNKNOWN: usize = 2;

/// The place of a tier in [`TIERS`]; `None`: there is no such tier.
#[must_use]
pub fn rank_of(tier: &str) -> Option<usize> {
    TIERS.iter().position(|name| *name == tier)
}

/// What a model can do beside answering in words. A task that needs one goes to models that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// It calls tools that a program declares.
    Tools,
    /// It is shown images.
    Images,
    /// It thinks before it answers.
    Reasoning,
    /// Its server holds an answer to a JSON schema.
    JsonSchema,
}

impl Ability {
    /// All of them.
    pub const ALL: [Ability; 4] = [Ability::Tools, Ability::Images, Ability::Reasoning, Ability::JsonSchema];

    /// As it is written everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ability::Tools => "tools",
            Ability::Images => "images",
            Ability::Reasoning => "reasoning",
            Ability::JsonSchema => "json_schema",
        }
    }

    /// What a model in `aos.toml` that has it says.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Ability::Tools => "tools = \"native\"",
            Ability::Images => "images = true",
            Ability::Reasoning => "reasoning = true",
            Ability::JsonSchema => "json_schema = true",
        }
    }
}

/// A configured model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Whether it thinks before it answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    /// Whether its server holds an answer to a JSON schema.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json_schema: bool,
    /// It makes vectors of texts and no answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vectors: bool,
    /// Where it is served, such as `https://api.openai.com`: models of one address fail together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

impl ModelSpec {
    /// Its place in [`TIERS`]; that of `standard` where nobody has named its tier.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.tier.as_deref().and_then(rank_of).unwrap_or(RANK_UNKNOWN)
    }

    /// Whether it has an ability, as far as the configuration says. Who makes vectors and no answers has none.
    #[must_use]
    pub fn can(&self, ability: Ability) -> bool {
        match ability {
            _ if self.vectors => false,
            Ability::Tools => self.encoding == Encoding::Native,
            Ability::Images => self.images,
            Ability::Reasoning => self.reasoning,
            Ability::JsonSchema => self.json_schema,
        }
    }
}

/// Prices, each in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens sent.
    pub input: Usd,
    /// Tokens answered.
    pub output: Usd,
    /// Tokens sent that were cached; as `input` if left out.
    #[serde(default)]
    pub cached_input: Option<Usd>,
    /// Tokens sent that were written to the provider's cache; as `input` if left out.
    #[serde(default)]
    pub cache_write: Option<Usd>,
    /// Tokens of reasoning, where a provider prices them apart; as `output` if left out.
    #[serde(default)]
    pub reasoning: Option<Usd>,
}

impl Price {
    /// What `usage` costs, rounded up to the nano-dollar.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> Usd {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let thought = usage.reasoning_tokens.min(usage.output_tokens);
        let per_million = |tokens: u64, price: Usd| u128::from(tokens) * u128::from(price.0);
        let total = per_million(usage.input_tokens - cached - written, self.input)
            + per_million(cached, self.cached_input.unwrap_or(self.input))
            + per_million(written, self.cache_write.unwrap_or(self.input))
            + per_million(usage.output_tokens - thought, self.output)
            + per_million(thought, self.reasoning.unwrap_or(self.output));
        Usd(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// The most that so many tokens in and out may cost, whichever of them are cached, written to a cache or thought.
    #[must_use]
    pub fn worst(&self, input_tokens: u64, output_tokens: u64) -> Usd {
        let most = |price: Usd, others: [Option<Usd>; 2]| others.into_iter().flatten().fold(price, Usd::max);
        let dearest = Price {
            input: most(self.input, [self.cached_input, self.cache_write]),
            output: most(self.output, [self.reasoning, None]),
            ..Price::default()
        };
        dearest.of(&Usage { input_tokens, output_tokens, ..Usage::default() })
    }
}

/// What a model's server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Whether anything is counted by the minute.
    #[must_use]
    pub fn per_minute(&self) -> bool {
        self.rpm.is_some() || self.tpm.is_some()
    }

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
        let price = Price {
            input: Usd(100_000_000),
            output: Usd(400_000_000),
            cached_input: Some(Usd(10_000_000)),
            ..Price::default()
        };
        let usage = Usage { input_tokens: 900, output_tokens: 120, cached_input_tokens: 400, ..Usage::default() };
        // 500 × $0.10 + 400 × $0.01 + 120 × $0.40 per million.
        assert_eq!(price.of(&usage), Usd(50_000 + 4_000 + 48_000));
        let tiny = Price { input: Usd(1), ..Price::default() };
        assert_eq!(tiny.of(&Usage { input_tokens: 1, ..Usage::default() }), Usd(1));
    }

    #[test]
    fn reasoning_and_what_a_cache_takes_are_priced_apart_and_the_worst_covers_them() {
        let price = Price {
            input: Usd(1_000_000),
            output: Usd(4_000_000),
            cached_input: Some(Usd(100_000)),
            cache_write: Some(Usd(1_250_000)),
            reasoning: Some(Usd(6_000_000)),
        };
        let usage = Usage {
            input_tokens: 1000,
            output_tokens: 100,
            cached_input_tokens: 300,
            cache_write_tokens: 200,
            reasoning_tokens: 60,
            ..Usage::default()
        };
        assert_eq!(price.of(&usage), Usd(500 + 30 + 250 + 160 + 360));
        assert_eq!(price.worst(1000, 100), Usd(1250 + 600));
        let lie = Usage { cached_input_tokens: 5000, cache_write_tokens: 9, reasoning_tokens: 700, ..usage };
        assert_eq!(price.of(&lie), Usd(100 + 600), "more than all is all");
    }
}
