//! Finding models for `aos init`: servers on this machine, and keys in the environment.
//!
//! Start at [`discover`]. What always holds: only loopback is asked, for a fraction of a second and without any key; a
//! key is only seen to be there, never used. Prices and windows of the providers' models are those of their public
//! price pages at the end of 2025, written into the configuration where a person can correct them.

use std::time::Duration;

use aos_abi::Usd;
use aos_abi::model::Price;
use serde_json::Value;

use crate::config::{ModelConfig, Provider, Tier};
use crate::listing::{self, LISTING_BYTES_MAX};
use crate::pool::Env;

/// How long a server on this machine may take to list its models.
const PROBE_WAIT: Duration = Duration::from_millis(300);

/// A server that may run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What a model found there is called.
    pub name: String,
    /// Whose server it is, for a person.
    pub server: String,
    /// Its address, such as `http://127.0.0.1:11434`.
    pub root: String,
}

/// A model that could be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name it would be configured under.
    pub name: String,
    /// Its table.
    pub config: ModelConfig,
    /// Why it is proposed, for a person.
    pub reason: String,
}

/// The servers people run, at their usual ports, the likeliest first.
#[must_use]
pub fn known_servers() -> Vec<Probe> {
    let probe = |name: &str, server: &str, port: u16| Probe {
        name: name.to_owned(),
        server: server.to_owned(),
        root: format!("http://127.0.0.1:{port}"),
    };
    vec![
        probe("ollama", "Ollama", 11434),
        probe("llama-server", "llama-server", 8080),
        probe("vllm", "vLLM", 8000),
        probe("lm-studio", "LM Studio", 1234),
    ]
}

/// What could be configured here: models of running servers first, in the order of `probes`, then of providers whose
/// key is in the environment.
///
/// # Cancel safety
/// Dropping the future ends the questions.
pub async fn discover(probes: &[Probe], env: &Env) -> Vec<Candidate> {
    let mut found = Vec::new();
    // No proxy: it would be asked about its own loopback.
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    if let Ok(tls) = crate::client::no_roots()
        && let Ok(client) = builder.tls_backend_preconfigured(tls).build()
    {
        let mut asked = tokio::task::JoinSet::new();
        for (nth, probe) in probes.iter().cloned().enumerate() {
            let client = client.clone();
            asked.spawn(async move { (nth, server(&client, &probe).await) });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(nth, _)| *nth);
        found.extend(answers.into_iter().filter_map(|(_, candidate)| candidate));
    }
    let providers = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
    found.extend(providers.into_iter().filter_map(|provider| keyed(provider, env)));
    found
}

async fn server(client: &reqwest::Client, probe: &Probe) -> Option<Candidate> {
    let listing = tokio::time::timeout(PROBE_WAIT, get(client, &format!("{}/v1/models", probe.root))).await.ok()??;
    let names = listing::names(&listing)?;
    let chosen = names.iter().position(|name| converses(name))?;
    let model = &names[chosen];
    let mut config = ModelConfig::new(Provider::Openai, model);
    config.base_url = Some(format!("{}/v1", probe.root));
    config.tier = Some(Tier::Small);
    config.local = Some(true);
    config.price = Some(Price::default());
    let mut reason = format!("{} answers at {} with {model}", probe.server, probe.root);
    match probe.name.as_str() {
        "llama-server" => {
            let address = format!("{}/props", probe.root);
            let properties = tokio::time::timeout(PROBE_WAIT, get(client, &address)).await.ok().flatten();
            let window = properties.and_then(|props| props["default_generation_settings"]["n_ctx"].as_u64());
            window_is(&mut config, window);
        }
        "ollama" => reason.push_str(
            "; its window is what OLLAMA_CONTEXT_LENGTH says, often only 4096: set that to context_window or more",
        ),
        _ => window_is(&mut config, listing["data"][chosen]["max_model_len"].as_u64()),
    }
    if names.len() > 1 {
        reason.push_str(&format!(" ({} models in all)", names.len()));
    }
    Some(Candidate { name: probe.name.clone(), config, reason })
}

/// The server knows its window better than any default. An answer never takes more than half of it.
fn window_is(config: &mut ModelConfig, window: Option<u64>) {
    if let Some(window) = window.and_then(|window| u32::try_from(window).ok()).filter(|window| *window > 0) {
        config.context_window = window;
        config.max_output = config.max_output.min(window / 2).max(1);
    }
}

/// Whether a model is one to talk to, and runs here: servers list embedding models too, and Ollama's cloud models.
fn converses(name: &str) -> bool {
    const OTHER: &[&str] = &["embed", "rerank", "whisper", "tts", "bge-", "minilm", "clip", "-cloud", ":cloud"];
    let name = name.to_lowercase();
    !OTHER.iter().any(|other| name.contains(other))
}

async fn get(client: &reqwest::Client, address: &str) -> Option<Value> {
    let mut response = client.get(address).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > LISTING_BYTES_MAX {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

fn keyed(provider: Provider, env: &Env) -> Option<Candidate> {
    let variable = provider.key_env()?;
    env(variable).filter(|key| !key.trim().is_empty())?;
    // US dollars per million tokens: in, out, in from the cache.
    let (name, model, window, price) = match provider {
        Provider::Openai => ("openai", "gpt-5-mini", 400_000, [0.25, 2.0, 0.025]),
        Provider::Anthropic => ("anthropic", "claude-sonnet-4-5", 200_000, [3.0, 15.0, 0.3]),
        Provider::Gemini => ("gemini", "gemini-2.5-flash", 1_048_576, [0.3, 2.5, 0.03]),
        Provider::Local => return None,
    };
    let [input, output, cached] = price.map(|dollars| Usd::from_dollars(dollars).unwrap_or_default());
    let mut config = ModelConfig::new(provider, model);
    config.api_key_env = Some(variable.to_owned());
    config.tier = Some(Tier::Standard);
    config.context_window = window;
    // Reasoning counts as output and comes first.
    config.max_output = 16_384;
    config.price = Some(Price { input, output, cached_input: Some(cached) });
    Some(Candidate { name: name.to_owned(), config, reason: format!("{variable} is in the environment") })
}
