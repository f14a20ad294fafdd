//! The configuration: `aos.toml` as typed, checked, and as meant.
//!
//! Start at [`Config::parse`], which is pure, or [`Config::load`]. What always holds: a key that is not known is an error
//! with its line and the nearest known key; a secret never stands in the file; a [`Config`] can be worked with because it
//! exists. Absent here: the policy, which is a file of its own.

mod fault;
mod host;
mod keys;
mod meaning;
mod model;
mod typed;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use aos_abi::Usd;
use aos_abi::entry::Configured;
use aos_models::config::ModelConfig;
use serde::Deserialize as _;

pub use fault::{ConfigError, Fault};
pub use host::{BadHost, HostPort};
pub(crate) use keys::nearest;
pub use model::{CONTEXT_WINDOW_MIN, provider_name, tier_name};

use crate::env::Env;
use crate::local::{self, NANO};
use fault::Faults;

/// The words in `[exec] sandbox` by which a person consents to commands without a sandbox.
pub const UNSANDBOXED: &str = "unsandboxed: commands run with my rights";
/// The words in `[daemon] exposed` by which a person consents to a `listen` that other machines reach.
pub const EXPOSED: &str = "reachable from other machines: whoever holds the token acts as me";

/// The configuration as meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where HTTP is served. Port 0: any free one.
    pub listen: SocketAddr,
    /// Names by which a loopback listener may be addressed beside its own, without a port: those of a proxy in front.
    pub hosts: Vec<String>,
    /// The models by name. Empty: aos-nano is to serve, and people are told so.
    pub models: BTreeMap<String, ModelConfig>,
    /// The model of a process that names none: a key of `models`, or `auto` for the router; empty where there are none.
    pub default_model: String,
    /// The models to try, in this order, where one fails; keys of `models`.
    pub fallback: Vec<String>,
    /// After how many milliseconds without a word another model is asked too, where a person waits; `None`: never.
    pub hedge_after_ms: Option<u64>,
    /// US dollars a day for everything together; `None`: no limit.
    pub usd_per_day: Option<Usd>,
    /// How commands are run.
    pub exec: Exec,
    /// Limits of the network above those of the policy.
    pub net: Net,
}

/// How commands are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exec {
    /// In the sandbox, or not at all.
    #[default]
    Sandboxed,
    /// With the person's own rights; they consented in words.
    Unsandboxed,
}

/// `[net]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// Where it is not empty: these hosts and those of `private` are reached, and no others. The policy decides on each.
    pub allow: Vec<HostPort>,
    /// Hosts whose name may lead to a private address. They limit nothing.
    pub private: Vec<HostPort>,
}

impl Config {
    /// Reads `aos.toml`.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`], also where there is no file, and [`ConfigError::Faults`] with every fault found.
    pub fn load(path: &Path, env: &Env) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Config::parse(&text, env).map_err(|error| match error {
            ConfigError::Faults { faults, .. } => ConfigError::Faults { path: Some(path.to_owned()), faults },
            ConfigError::Unreadable { .. } => error,
        })
    }

    /// Reads the text of `aos.toml`. Pure: the same text and environment give the same answer.
    ///
    /// # Errors
    /// [`ConfigError::Faults`] with every fault found.
    pub fn parse(text: &str, env: &Env) -> Result<Config, ConfigError> {
        let mut faults = Faults::new(text);
        let (mut table, errors) = toml::de::DeTable::parse_recoverable(text);
        for error in &errors {
            faults.at(error.span().unwrap_or(0..0), error.message(), "see https://toml.io for how values are written");
        }
        faults.checked()?;
        keys::walk(table.get_mut(), env, &mut faults);
        faults.checked()?;
        let file = typed::File::deserialize(toml::de::Deserializer::from(table)).map_err(|error| {
            faults.at(error.span().unwrap_or(0..0), error.message(), shape_hint(error.message()));
            faults.checked().expect_err("a fault was just added")
        })?;
        let config = meaning::mean(&file, &mut faults);
        faults.checked()?;
        Ok(config)
    }

    /// Whether no model is configured that answers, so that aos-nano serves.
    #[must_use]
    pub fn has_no_model(&self) -> bool {
        self.models.values().all(|model| model.dimension.is_some())
    }

    /// The models that serve, by name: those that are configured, and aos-nano where none of them answers.
    #[must_use]
    pub fn serving(&self) -> BTreeMap<String, ModelConfig> {
        let nano = self.has_no_model().then(|| (NANO.to_owned(), local::nano()));
        self.models.clone().into_iter().chain(nano).collect()
    }

    /// The configuration as the kernel needs it. Where no model answers the daemon adds aos-nano; where `listen` has port 0
    /// it puts the true one into `hooks_url` and `listens`.
    #[must_use]
    pub fn configured(&self, policy_text: &str) -> Configured {
        Configured {
            models: self.models.iter().map(|(name, model)| (name.clone(), model.spec())).collect(),
            default_model: self.default_model.clone(),
            fallback: self.fallback.clone(),
            hedge_after_ms: self.hedge_after_ms,
            policy: policy_text.to_owned(),
            usd_per_day: self.usd_per_day,
            hooks_url: format!("http://{}/hooks/", self.listen),
            listens: Some(self.listen),
        }
    }
}

fn shape_hint(message: &str) -> &'static str {
    if message.contains("missing field `provider`") {
        "add provider = \"openai\" (and whatever speaks it), \"anthropic\" or \"gemini\""
    } else if message.contains("missing field `model`") {
        "add model = \"…\": what the provider calls it"
    } else if message.contains("missing field") {
        "add the missing key"
    } else {
        "write a value of that kind"
    }
}

/// What `aos init` writes; the model tables and the default model are put in.
pub const TEMPLATE: &str = include_str!("template.toml");
