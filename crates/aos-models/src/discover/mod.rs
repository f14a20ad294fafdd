//! Finding models for `aos init`: servers on this machine, and keys in the environment.
//!
//! Start at [`discover`]. What always holds: only loopback is asked, for a fraction of a second and without any key; a
//! key is only seen to be there, never used. Prices and windows of the providers' models are those of their public
//! price pages at the end of 2025, written into the configuration where a person can correct them.

mod servers;

use aos_abi::Usd;
use aos_abi::model::Price;

use crate::config::{ModelConfig, Provider, Tier};
use crate::pool::Env;

/// Where Ollama listens by itself.
const OLLAMA_PORT: u16 = 11434;

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

/// The servers people run, at their usual ports, the likeliest first; Ollama where `OLLAMA_HOST` says, which is its own
/// variable, if that is on this machine.
#[must_use]
pub fn known_servers(env: &Env) -> Vec<Probe> {
    let probe = |name: &str, server: &str, port: u16| Probe {
        name: name.to_owned(),
        server: server.to_owned(),
        root: format!("http://127.0.0.1:{port}"),
    };
    vec![
        probe("ollama", "Ollama", env("OLLAMA_HOST").and_then(|host| ollama_port(&host)).unwrap_or(OLLAMA_PORT)),
        probe("llama-server", "llama-server", 8080),
        probe("vllm", "vLLM", 8000),
        probe("lm-studio", "LM Studio", 1234),
    ]
}

/// The port that `OLLAMA_HOST` names, such as `127.0.0.1:11500` or `http://0.0.0.0:11500`; `None` where it names another
/// machine. A server is told by it to listen at every address, so that is this machine too.
fn ollama_port(host: &str) -> Option<u16> {
    let host = host.trim().trim_start_matches("http://").trim_end_matches('/');
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (host, OLLAMA_PORT),
    };
    matches!(host, "" | "localhost" | "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]").then_some(port)
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
            asked.spawn(async move { (nth, servers::models(&client, &probe).await) });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(nth, _)| *nth);
        found.extend(answers.into_iter().flat_map(|(_, candidates)| candidates));
    }
    let providers = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
    found.extend(providers.into_iter().flat_map(|provider| keyed(provider, env)));
    found
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
