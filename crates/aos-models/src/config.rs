//! A model as it stands in `aos.toml`: one `[models.NAME]` table.
//!
//! Start at [`ModelConfig`]. What always holds: an unknown key is an error; no secret stands here, `api_key_env` only
//! names the variable that holds it. Deliberately absent: reading the file and `${NAME}`, which the binary does.

use aos_abi::inference::Encoding;
use aos_abi::model::{ModelLimits, ModelSpec, Price};
use serde::{Deserialize, Serialize};

/// Prompt and answer together where nothing else is configured, in tokens.
pub const CONTEXT_WINDOW_DEFAULT: u32 = 32_768;
/// Most tokens of an answer where nothing else is configured.
pub const MAX_OUTPUT_DEFAULT: u32 = 4096;

/// A configured model: how it is reached and what is true of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Whose wire format it speaks.
    pub provider: Provider,
    /// Where it is, without a trailing path such as `/chat/completions`; the provider's own address if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The name the provider knows it by.
    pub model: String,
    /// The environment variable that holds the key. Left out: the provider's usual one at the provider's own address,
    /// none at any other address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// How capable it is, for the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Most tokens of prompt and answer together.
    #[serde(default = "ModelConfig::default_context_window")]
    pub context_window: u32,
    /// Most tokens of one answer.
    #[serde(default = "ModelConfig::default_max_output")]
    pub max_output: u32,
    /// US dollars per million tokens; left out: nothing where what is sent stays on this machine, else unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What its server allows.
    #[serde(default)]
    pub limits: ModelLimits,
    /// What is sent there stays on this machine. Left out: only for `provider = "local"`; a server on loopback may
    /// itself pass requests on, so its address proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<bool>,
    /// How it writes calls.
    #[serde(default)]
    pub tools: Encoding,
    /// Whether it is shown the images that an agent reads. Left out: only at a provider's own address, since many a
    /// model behind another one refuses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// Whether it thinks before it answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    /// Whether its server holds an answer to a JSON schema.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json_schema: bool,
    /// How many numbers a vector has, for a model that makes vectors of texts (embeddings) and no answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<u32>,
    /// Longest wait for an answer to begin, in seconds (120 if left out). The whole answer may take five times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

/// Whose wire format a model speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// OpenAI's chat completions, and whatever speaks them.
    Openai,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// The runtime inside the binary: [`crate::engine`].
    Local,
}

/// How capable a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Classifies, extracts.
    Nano,
    /// Short tasks with few calls.
    Small,
    /// Everyday work.
    Standard,
    /// Hard work.
    Strong,
    /// The best there is.
    Frontier,
}

impl Tier {
    /// The name in `aos.toml` and in the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Nano => "nano",
            Tier::Small => "small",
            Tier::Standard => "standard",
            Tier::Strong => "strong",
            Tier::Frontier => "frontier",
        }
    }
}

impl Provider {
    /// The provider's own address.
    #[must_use]
    pub fn base_url(self) -> &'static str {
        match self {
            Provider::Openai => "https://api.openai.com/v1",
            Provider::Anthropic => "https://api.anthropic.com",
            Provider::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Provider::Local => "",
        }
    }

    /// The environment variable in which the provider's key usually is.
    #[must_use]
    pub fn key_env(self) -> Option<&'static str> {
        match self {
            Provider::Openai => Some("OPENAI_API_KEY"),
            Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
            Provider::Gemini => Some("GEMINI_API_KEY"),
            Provider::Local => None,
        }
    }
}

impl ModelConfig {
    /// A model with defaults for everything else.
    #[must_use]
    pub fn new(provider: Provider, model: impl Into<String>) -> ModelConfig {
        ModelConfig {
            provider,
            base_url: None,
            model: model.into(),
            api_key_env: None,
            tier: None,
            context_window: CONTEXT_WINDOW_DEFAULT,
            max_output: MAX_OUTPUT_DEFAULT,
            price: None,
            limits: ModelLimits::default(),
            local: None,
            tools: Encoding::default(),
            images: None,
            reasoning: false,
            json_schema: false,
            dimension: None,
            timeout_s: None,
        }
    }

    /// What the kernel knows of it.
    #[must_use]
    pub fn spec(&self) -> ModelSpec {
        ModelSpec {
            context_window: self.context_window,
            max_output: self.max_output,
            // What runs on this machine costs nothing, unless somebody has set a price for it.
            price: self.price.or_else(|| self.local().then(Price::default)),
            limits: self.limits,
            local: self.local(),
            encoding: self.tools,
            tier: self.tier.map(|tier| tier.name().to_owned()),
            images: self.images.unwrap_or(self.base_url.is_none() && self.provider != Provider::Local),
            reasoning: self.reasoning,
            json_schema: self.json_schema,
            vectors: self.dimension.is_some(),
            endpoint: Some(self.endpoint()),
        }
    }

    /// Whether what is sent there stays on this machine.
    #[must_use]
    pub fn local(&self) -> bool {
        self.local.unwrap_or(self.provider == Provider::Local)
    }

    /// Its address without a trailing slash.
    #[must_use]
    pub fn address(&self) -> &str {
        self.base_url.as_deref().unwrap_or(self.provider.base_url()).trim_end_matches('/')
    }

    /// Scheme, host and port of its address: what fails together. Inside the program each file fails alone.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let address = self.address();
        let host = address.find("://").map_or(0, |at| at + 3);
        let end = address[host..].find('/').map_or(address.len(), |at| host + at);
        if self.provider == Provider::Local { format!("here:{}", self.model) } else { address[..end].to_owned() }
    }

    /// The variable its key is read from; `None`: no key is sent.
    #[must_use]
    pub fn key_env(&self) -> Option<&str> {
        match (&self.api_key_env, &self.base_url) {
            (Some(name), _) => Some(name),
            (None, None) => self.provider.key_env(),
            (None, Some(_)) => None,
        }
    }

    fn default_context_window() -> u32 {
        CONTEXT_WINDOW_DEFAULT
    }

    fn default_max_output() -> u32 {
        MAX_OUTPUT_DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::Usd;

    use super::*;

    #[test]
    fn the_table_of_the_contract_reads() {
        let config: ModelConfig = toml::from_str(
            r#"
            provider = "openai"
            base_url = "http://127.0.0.1:11434/v1"
            model = "qwen3:8b"
            api_key_env = "OPENAI_API_KEY"
            tier = "small"
            context_window = 32768
            max_output = 4096
            price = { input = 0.10, output = 0.40, cached_input = 0.01 }
            limits = { concurrency = 8, rpm = 500, tpm = 200000 }
            local = true
            tools = "native"
            "#,
        )
        .unwrap();
        let price = Price {
            input: Usd(100_000_000),
            output: Usd(400_000_000),
            cached_input: Some(Usd(10_000_000)),
            ..Price::default()
        };
        let limits = ModelLimits { concurrency: 8, rpm: Some(500), tpm: Some(200_000) };
        assert_eq!(
            config.spec(),
            ModelSpec {
                context_window: 32768,
                max_output: 4096,
                price: Some(price),
                limits,
                local: true,
                encoding: Encoding::Native,
                tier: Some("small".to_owned()),
                endpoint: Some("http://127.0.0.1:11434".to_owned()),
                ..ModelSpec::default()
            }
        );
        assert_eq!(config.key_env(), Some("OPENAI_API_KEY"));
        let written = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<ModelConfig>(&written).unwrap(), config, "{written}");
    }

    #[test]
    fn an_unknown_key_is_an_error_and_little_is_needed() {
        assert!(toml::from_str::<ModelConfig>("provider = \"openai\"\nmodel = \"a\"\nmodle = 1").is_err());
        let config: ModelConfig = toml::from_str("provider = \"anthropic\"\nmodel = \"a\"").unwrap();
        assert_eq!(config, ModelConfig::new(Provider::Anthropic, "a"));
        assert_eq!(config.address(), "https://api.anthropic.com");
        assert_eq!(config.key_env(), Some("ANTHROPIC_API_KEY"));
    }

    #[test]
    fn a_usual_key_is_never_sent_to_an_unusual_address() {
        let config: ModelConfig =
            toml::from_str("provider = \"openai\"\nmodel = \"a\"\nbase_url = \"http://example.com/v1/\"").unwrap();
        assert_eq!(config.key_env(), None);
        assert_eq!(config.address(), "http://example.com/v1");
    }

    #[test]
    fn what_runs_here_costs_nothing_unless_it_has_a_price() {
        let mut config = ModelConfig::new(Provider::Local, "m");
        assert_eq!(config.spec().price, Some(Price::default()));
        let power = Price { output: Usd(1_000_000), ..Price::default() };
        config.price = Some(power);
        assert_eq!(config.spec().price, Some(power));
        let mut server = ModelConfig::new(Provider::Openai, "m");
        server.base_url = Some("http://127.0.0.1:11434/v1".into());
        assert_eq!(server.spec().price, None, "a server on loopback may pass requests on");
        server.local = Some(true);
        assert_eq!(server.spec().price, Some(Price::default()));
    }
}
