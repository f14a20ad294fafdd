//! Where a request goes: the address, the headers and the key of one model.
//!
//! Start at [`Target::of`]. What always holds: the key is read here, once per inference, and leaves only in a header that
//! is marked as sensitive; an address that holds a password is refused, since addresses stand in logs.

use aos_abi::EffectId;
use aos_abi::inference::Failure;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::anthropic;
use crate::client::{self, Clients};
use crate::config::{ModelConfig, Provider};
use crate::failure::{About, Secret, permanent};
use crate::pool::Env;

/// A model with all that a request to it needs.
pub(crate) struct Target<'p> {
    pub(crate) name: &'p str,
    pub(crate) config: &'p ModelConfig,
    pub(crate) url: reqwest::Url,
    pub(crate) host: String,
    pub(crate) near: bool,
    pub(crate) key: String,
    pub(crate) client: reqwest::Client,
    /// What is asked is another program's request.
    pub(crate) program: bool,
    /// What of Anthropic's interface the program wants that is not in it for everybody.
    pub(crate) betas: Option<HeaderValue>,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// An answer to a prompt.
    Answer,
    /// Vectors for texts.
    Vectors,
    /// The models it has.
    Models,
}

impl<'p> Target<'p> {
    /// The target for a model; permanent failures for what only a person can mend.
    pub(crate) fn of(
        name: &'p str,
        config: &'p ModelConfig,
        ask: Ask,
        env: &Env,
        clients: &Clients,
    ) -> Result<Target<'p>, Failure> {
        let path = path(name, config, ask)?;
        let url = parse(name, &format!("{}{path}", config.address()))?;
        let key = key(config, env)?;
        let near = config.local() || client::loopback(&url);
        let client = clients.to(&url, config.local())?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", url.host_str().unwrap_or("?"));
        Ok(Target { name, config, url, host, near, key, client, program: false, betas: None })
    }

    /// What failures name.
    pub(crate) fn about(&self) -> About<'_> {
        let (model, key_env) = (&self.config.model, self.config.key_env());
        About { name: self.name, model, host: &self.host, key_env, key: Secret(&self.key), program: self.program }
    }

    /// The headers of a request; `effect` goes along as its id where the format has a place for one.
    pub(crate) fn headers(&self, effect: EffectId) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        let secret = |text: &str| {
            let mut value = HeaderValue::from_str(text).expect("checked when the key was read");
            value.set_sensitive(true);
            value
        };
        let key = &self.key;
        match self.config.provider {
            Provider::Openai => {
                if !key.is_empty() {
                    headers.insert(AUTHORIZATION, secret(&format!("Bearer {key}")));
                }
                let id = HeaderValue::from_str(&format!("aos-{effect}")).expect("digits and a dot");
                headers.insert(HeaderName::from_static("x-client-request-id"), id);
            }
            Provider::Anthropic => {
                headers
                    .insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(anthropic::VERSION));
                if let Some(betas) = &self.betas {
                    headers.insert(HeaderName::from_static("anthropic-beta"), betas.clone());
                }
                if !key.is_empty() {
                    headers.insert(HeaderName::from_static("x-api-key"), secret(key));
                }
            }
            // In a header and not in the address, which stands in logs on the way.
            Provider::Gemini if !key.is_empty() => {
                headers.insert(HeaderName::from_static("x-goog-api-key"), secret(key));
            }
            Provider::Gemini | Provider::Local => {}
        }
        headers
    }
}

fn path(name: &str, config: &ModelConfig, ask: Ask) -> Result<String, Failure> {
    // Both forms of Anthropic's address are in use.
    let version = if config.address().ends_with("/v1") { "" } else { "/v1" };
    Ok(match (config.provider, ask) {
        (Provider::Openai, Ask::Answer) => "/chat/completions".to_owned(),
        (Provider::Openai, Ask::Vectors) => "/embeddings".to_owned(),
        (Provider::Anthropic | Provider::Gemini, Ask::Vectors) => {
            let hint = "name a model of a server that speaks OpenAI's /v1/embeddings";
            return Err(permanent(format!("{name} makes no embeddings"), hint));
        }
        (Provider::Anthropic, Ask::Answer) => format!("{version}/messages"),
        (Provider::Gemini, Ask::Answer) => {
            let of = config.model.trim_start_matches("models/");
            format!("/models/{of}:streamGenerateContent?alt=sse")
        }
        // All at once: by themselves these two send 20 and 50, and more when asked again.
        (Provider::Anthropic, Ask::Models) => format!("{version}/models?limit=1000"),
        (Provider::Gemini, Ask::Models) => "/models?pageSize=1000".to_owned(),
        (Provider::Openai, Ask::Models) => "/models".to_owned(),
        (Provider::Local, _) => {
            return Err(permanent(
                format!("the local runtime that {name} needs is not part of this pool"),
                "use provider = \"openai\" with a local server such as Ollama or llama-server",
            ));
        }
    })
}

/// The key, or an empty one where none is to be sent.
fn key(config: &ModelConfig, env: &Env) -> Result<String, Failure> {
    let Some(variable) = config.key_env() else { return Ok(String::new()) };
    let key = env(variable).map(|key| key.trim().to_owned()).unwrap_or_default();
    if key.is_empty() {
        return Err(permanent(
            format!("the environment variable {variable} that should hold the key is not set"),
            format!("set {variable} in the environment of the daemon and start it again, or change api_key_env"),
        ));
    }
    if HeaderValue::from_str(&key).is_err() {
        let hint = format!("{variable} should hold the key alone, as the provider shows it");
        return Err(permanent(format!("the key in {variable} holds characters that no key has"), hint));
    }
    Ok(key)
}

fn parse(name: &str, address: &str) -> Result<reqwest::Url, Failure> {
    let hint = format!("base_url of [models.{name}] should be like http://127.0.0.1:11434/v1");
    let url: reqwest::Url = address
        .parse()
        .map_err(|error| permanent(format!("the base_url of {name} is no address: {error}"), hint.clone()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(permanent(format!("the base_url of {name} is no HTTP address"), hint));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let hint = "put the key into the environment and name its variable with api_key_env";
        return Err(permanent(format!("the base_url of {name} holds a user name or password"), hint));
    }
    Ok(url)
}
