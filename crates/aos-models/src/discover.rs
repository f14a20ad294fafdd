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
        found.extend(answers.into_iter().flat_map(|(_, candidates)| candidates));
    }
    let providers = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
    found.extend(providers.into_iter().flat_map(|provider| keyed(provider, env)));
    found
}

/// The first model of each tier that a server has; the first of all has the server's name.
async fn server(client: &reqwest::Client, probe: &Probe) -> Vec<Candidate> {
    let asked = tokio::time::timeout(PROBE_WAIT, get(client, &format!("{}/v1/models", probe.root))).await;
    let Some(listing) = asked.ok().flatten() else { return Vec::new() };
    let names = listing::names(&listing).unwrap_or_default();
    let mut found: Vec<Candidate> = Vec::new();
    for (chosen, model) in names.iter().enumerate().filter(|(_, name)| converses(name)) {
        let tier = tier_of(model);
        if found.iter().any(|other| other.config.tier == Some(tier)) {
            continue;
        }
        let mut candidate = served(client, probe, &listing, &names, chosen).await;
        candidate.config.tier = Some(tier);
        if !found.is_empty() {
            candidate.name = format!("{}-{}", probe.name, tier.name());
        }
        found.push(candidate);
    }
    found
}

/// The tier that a model's size puts it into, by the count of parameters in its name, such as `qwen3:8b`. Of a model with
/// experts (`30b-a3b`) the whole counts. Where the name says nothing it is `small`, as most that people run at home are.
fn tier_of(model: &str) -> Tier {
    let name = model.to_lowercase();
    let billions = name
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .filter_map(|word| word.strip_suffix('b').or_else(|| word.strip_suffix('m').filter(|_| word.len() > 3)))
        .filter_map(|number| number.parse::<f64>().ok())
        // `270m` is millions.
        .map(|number| if number >= 100.0 && name.contains(&format!("{number}m")) { number / 1000.0 } else { number })
        .fold(None, |most: Option<f64>, number| Some(most.map_or(number, |most| most.max(number))));
    match billions {
        Some(size) if size < 2.0 => Tier::Nano,
        None => Tier::Small,
        Some(size) if size < 15.0 => Tier::Small,
        Some(size) if size < 50.0 => Tier::Standard,
        Some(_) => Tier::Strong,
    }
}

async fn served(
    client: &reqwest::Client,
    probe: &Probe,
    listing: &Value,
    names: &[String],
    chosen: usize,
) -> Candidate {
    let model = &names[chosen];
    let mut config = ModelConfig::new(Provider::Openai, model);
    config.base_url = Some(format!("{}/v1", probe.root));
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
    Candidate { name: probe.name.clone(), config, reason }
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

/// What is known of a provider's model: its name in `aos.toml`, the provider's name for it, its tier, its window in tokens,
/// and US dollars per million tokens: in, out, in from the cache, written to the cache.
type Known = (&'static str, &'static str, Tier, u32, [f64; 4]);

/// A pool of each provider: the usual one first, then a smaller and a better one.
const OPENAI: [Known; 3] = [
    ("openai", "gpt-5-mini", Tier::Standard, 400_000, [0.25, 2.0, 0.025, 0.25]),
    ("openai-small", "gpt-5-nano", Tier::Small, 400_000, [0.05, 0.4, 0.005, 0.05]),
    ("openai-strong", "gpt-5", Tier::Strong, 400_000, [1.25, 10.0, 0.125, 1.25]),
];
const ANTHROPIC: [Known; 3] = [
    ("anthropic", "claude-sonnet-4-5", Tier::Standard, 200_000, [3.0, 15.0, 0.3, 3.75]),
    ("anthropic-small", "claude-haiku-4-5", Tier::Small, 200_000, [1.0, 5.0, 0.1, 1.25]),
    ("anthropic-strong", "claude-opus-4-5", Tier::Strong, 200_000, [5.0, 25.0, 0.5, 6.25]),
];
/// Beyond 200,000 tokens the last one has another price, so its window ends there.
const GEMINI: [Known; 3] = [
    ("gemini", "gemini-2.5-flash", Tier::Standard, 1_048_576, [0.3, 2.5, 0.03, 0.3]),
    ("gemini-small", "gemini-2.5-flash-lite", Tier::Small, 1_048_576, [0.1, 0.4, 0.01, 0.1]),
    ("gemini-strong", "gemini-2.5-pro", Tier::Strong, 200_000, [1.25, 10.0, 0.125, 1.25]),
];

fn keyed(provider: Provider, env: &Env) -> Vec<Candidate> {
    let Some(variable) = provider.key_env().filter(|name| env(name).is_some_and(|key| !key.trim().is_empty())) else {
        return Vec::new();
    };
    let known: &[Known] = match provider {
        Provider::Openai => &OPENAI,
        Provider::Anthropic => &ANTHROPIC,
        Provider::Gemini => &GEMINI,
        Provider::Local => &[],
    };
    let candidate = |(name, model, tier, window, price): &Known| {
        let [input, output, cached, written] = price.map(|dollars| Usd::from_dollars(dollars).unwrap_or_default());
        let mut config = ModelConfig::new(provider, *model);
        config.api_key_env = Some(variable.to_owned());
        config.tier = Some(*tier);
        config.context_window = *window;
        // Reasoning counts as output and comes first.
        config.max_output = 16_384;
        config.reasoning = true;
        config.json_schema = true;
        // Written only where it costs something of its own.
        let cache_write = (written != input).then_some(written);
        config.price = Some(Price { input, output, cached_input: Some(cached), cache_write, ..Price::default() });
        Candidate {
            name: (*name).to_owned(),
            config,
            reason: format!("{model}, since {variable} is in the environment"),
        }
    };
    known.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_tier() {
        for (name, tier) in [
            ("qwen3:8b", Tier::Small),
            ("qwen3:0.6b", Tier::Nano),
            ("gemma3:270m", Tier::Nano),
            ("llama-3.3-70b-instruct", Tier::Strong),
            ("qwen3:30b-a3b", Tier::Standard),
            ("mistral-small:24b", Tier::Standard),
            ("mistral", Tier::Small),
            ("Qwen/Qwen3-1.7B", Tier::Nano),
        ] {
            assert_eq!(tier_of(name), tier, "{name}");
        }
    }
}
