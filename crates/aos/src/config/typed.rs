//! `aos.toml` as typed: the shape of the file and nothing more. What it means is [`super::meaning`]'s.
//!
//! Start at [`File`]. Every key of the file is a field here and a name in [`super::keys`]; a test holds the two together.
//! Values that can be wrong in meaning keep their place in the text.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) daemon: Daemon,
    pub(super) store: Store,
    pub(super) models: BTreeMap<Spanned<String>, Model>,
    pub(super) router: Router,
    pub(super) budget: Budget,
    pub(super) exec: Exec,
    pub(super) net: Net,
}

/// `[daemon]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Daemon {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) exposed: Option<Spanned<String>>,
    pub(super) hosts: Vec<Spanned<String>>,
    pub(super) default_model: Option<Spanned<String>>,
}

/// `[store]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Store {
    pub(super) url: Option<Spanned<String>>,
}

/// `[models.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) provider: Spanned<String>,
    pub(super) base_url: Option<Spanned<String>>,
    pub(super) model: Spanned<String>,
    pub(super) api_key_env: Option<Spanned<String>>,
    pub(super) tier: Option<Spanned<String>>,
    pub(super) context_window: Option<Spanned<u32>>,
    pub(super) max_output: Option<Spanned<u32>>,
    pub(super) price: Option<Spanned<Price>>,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) local: Option<bool>,
    pub(super) tools: Option<Spanned<String>>,
    pub(super) images: Option<bool>,
    #[serde(default)]
    pub(super) reasoning: bool,
    #[serde(default)]
    pub(super) json_schema: bool,
    pub(super) dimension: Option<Spanned<u32>>,
    pub(super) timeout_s: Option<Spanned<u64>>,
}

/// `price = { … }`, US dollars per million tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Price {
    pub(super) input: f64,
    pub(super) output: f64,
    pub(super) cached_input: Option<f64>,
    pub(super) cache_write: Option<f64>,
    pub(super) reasoning: Option<f64>,
}

/// `limits = { … }`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) concurrency: Option<Spanned<u32>>,
    pub(super) rpm: Option<Spanned<u32>>,
    pub(super) tpm: Option<Spanned<u64>>,
}

/// `[router]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Router {
    pub(super) fallback: Vec<Spanned<String>>,
    pub(super) hedge_after_s: Option<Spanned<f64>>,
}

/// `[budget]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) usd_per_day: Option<Spanned<f64>>,
}

/// `[exec]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Exec {
    pub(super) sandbox: Option<Spanned<String>>,
}

/// `[net]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Net {
    pub(super) allow: Vec<Spanned<String>>,
    pub(super) private: Vec<Spanned<String>>,
}
