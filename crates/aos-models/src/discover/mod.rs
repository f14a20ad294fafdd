//! Finding models for `aos init`: servers on this machine, and keys in the environment.
//!
//! Start at [`discover`]. What always holds: servers are asked on loopback only, for a fraction of a second and without
//! any key; a key goes to its own provider and nowhere else, once, for the list of its models, and not even there where a
//! variable of the environment says that it belongs to another address.

mod accounts;
mod servers;

pub use accounts::{Account, known_accounts};

use crate::config::ModelConfig;
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

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Models to configure, the best choice first.
    pub models: Vec<Candidate>,
    /// Models to propose only: nobody here knows their price, so no budget in dollars would bound them.
    pub proposed: Vec<Candidate>,
    /// What a person should know of it; some with lines to copy.
    pub notes: Vec<String>,
}

/// What could be configured here: models of running servers first, in the order of `probes`, then those of the `accounts`
/// whose key is in the environment.
///
/// # Cancel safety
/// Dropping the future ends the questions.
pub async fn discover(probes: &[Probe], accounts: &[Account], env: &Env) -> Found {
    let (mut found, listed) = tokio::join!(local(probes), accounts::models(accounts, env));
    found.models.extend(listed.models);
    found.proposed.extend(listed.proposed);
    found.notes.extend(listed.notes);
    found
}

async fn local(probes: &[Probe]) -> Found {
    let mut found = Found::default();
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
        found.models.extend(answers.into_iter().flat_map(|(_, candidates)| candidates));
    }
    found
}
