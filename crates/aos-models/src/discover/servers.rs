//! What a server on this machine says of its models: which there are, their windows, whether they make tool calls.
//!
//! Start at [`models`]. Each server is asked by its own documents: Ollama's `/api/show` and `/api/ps`, llama-server's
//! `/props`, LM Studio's `/api/v0/models`, vLLM's `/v1/models`. What always holds: what a server does not say is left
//! at the default; a server that stops answering is asked nothing more.

use std::time::Duration;

use aos_abi::inference::Encoding;
use aos_abi::model::Price;
use serde_json::{Value, json};

use super::{Candidate, Probe};
use crate::config::{CONTEXT_WINDOW_DEFAULT, ModelConfig, Provider, Tier};
use crate::failure;
use crate::listing::{self, LISTING_BYTES_MAX};

/// How long a server on this machine may take for each document.
const PROBE_WAIT: Duration = Duration::from_millis(300);
/// Most models that are asked about one by one.
const ASKED_MAX: usize = 32;
/// The longest name of a model that is taken, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// What an agent is told of itself and its calls takes several thousand tokens; a window below this is said to be small.
const WINDOW_SMALL: u64 = 8192;

/// What a server says of one of its models. `None`: nothing.
#[derive(Debug, Default)]
struct Said {
    /// Prompt and answer together as the model runs now, in tokens.
    window: Option<u64>,
    /// The most that the window could be set to.
    window_max: Option<u64>,
    /// Whether it makes tool calls.
    tools: Option<bool>,
    /// It makes vectors of texts, and no answers.
    vectors: bool,
}

/// One model of each tier that a server has, the first that makes tool calls if any does; the first of all has the
/// server's name.
pub(super) async fn models(client: &reqwest::Client, probe: &Probe) -> Vec<Candidate> {
    let Some(listing) = get(client, &format!("{}/v1/models", probe.root)).await else { return Vec::new() };
    let mut entries = listing::entries(&listing).unwrap_or_default();
    entries.retain(|(name, _)| is_name(name));
    let about = match probe.name.as_str() {
        "ollama" => get(client, &format!("{}/api/ps", probe.root)).await,
        "llama-server" => get(client, &format!("{}/props", probe.root)).await,
        "lm-studio" => get(client, &format!("{}/api/v0/models", probe.root)).await,
        _ => None,
    };
    let about = about.unwrap_or_default();
    let mut found: Vec<Candidate> = Vec::new();
    let mut silent = false;
    for (model, entry) in entries.iter().filter(|(name, _)| converses(name)).take(ASKED_MAX) {
        let tier = tier_of(model);
        let same = found.iter().position(|other| other.config.tier == Some(tier));
        // Once one makes tool calls there is nothing to gain; where the server is silent, nothing to learn.
        if same.is_some_and(|at| silent || found[at].config.tools == Encoding::Native) {
            continue;
        }
        let said = match probe.name.as_str() {
            _ if silent => None,
            "ollama" => ollama(client, probe, &about, model).await,
            "llama-server" => Some(llama_server(&about)),
            "lm-studio" => Some(lm_studio(&about, model)),
            _ => Some(vllm(client, probe, entry, model).await),
        };
        silent = said.is_none();
        let said = said.unwrap_or_default();
        if said.vectors || same.is_some() && said.tools == Some(false) {
            continue;
        }
        let candidate = candidate(probe, model, tier, &said, entries.len());
        match same {
            Some(at) => found[at] = candidate,
            None => found.push(candidate),
        }
    }
    for (nth, candidate) in found.iter_mut().enumerate() {
        let tier = candidate.config.tier.map_or("", Tier::name);
        candidate.name = if nth == 0 { probe.name.clone() } else { format!("{}-{tier}", probe.name) };
    }
    found
}

fn candidate(probe: &Probe, model: &str, tier: Tier, said: &Said, models: usize) -> Candidate {
    let mut config = ModelConfig::new(Provider::Openai, model);
    config.base_url = Some(format!("{}/v1", probe.root));
    config.local = Some(true);
    config.price = Some(Price::default());
    config.tier = Some(tier);
    let mut reason = format!("{} answers at {} with {model}", probe.server, probe.root);
    let set = match probe.name.as_str() {
        "ollama" => "start Ollama with OLLAMA_CONTEXT_LENGTH",
        "llama-server" => "start it with -c",
        "lm-studio" => "load it with a context length",
        _ => "start it with --max-model-len",
    };
    match said.window.filter(|window| *window > 0) {
        Some(window) => {
            window_is(&mut config, window);
            if window < WINDOW_SMALL {
                reason.push_str(&format!(
                    "; a window of {window} leaves an agent little room: {set} of {CONTEXT_WINDOW_DEFAULT} or so"
                ));
            }
        }
        None => {
            // The server may be started with less, and does not say so.
            window_is(&mut config, said.window_max.unwrap_or(u64::MAX).clamp(1, CONTEXT_WINDOW_DEFAULT.into()));
            match probe.name.as_str() {
                "ollama" => reason.push_str(
                    "; its window is what OLLAMA_CONTEXT_LENGTH says, often only 4096: set that to context_window or more",
                ),
                "lm-studio" if said.window_max.is_some() => {
                    reason.push_str("; it is not loaded: load it with a context length of context_window or more");
                }
                _ => {}
            }
        }
    }
    if said.tools == Some(false) {
        config.tools = Encoding::Text;
        reason.push_str("; it makes no tool calls, so it is asked for them as text");
    }
    if models > 1 {
        reason.push_str(&format!(" ({models} models in all)"));
    }
    Candidate { name: String::new(), config, reason }
}

/// The server knows its window better than any default. An answer never takes more than half of it.
fn window_is(config: &mut ModelConfig, window: u64) {
    let window = u32::try_from(window).unwrap_or(u32::MAX);
    config.context_window = window;
    config.max_output = config.max_output.min(window / 2).max(1);
}

/// Ollama: abilities and parameters of one model, and the window of those that are loaded (`running`). A window that its
/// Modelfile sets goes before.
async fn ollama(client: &reqwest::Client, probe: &Probe, running: &Value, model: &str) -> Option<Said> {
    let show = post(client, &format!("{}/api/show", probe.root), &json!({ "model": model })).await?.1;
    let has = |ability: &str| show["capabilities"].as_array().map(|all| all.iter().any(|one| one == ability));
    let set = show["parameters"].as_str().and_then(|parameters| {
        let mut lines = parameters.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.next() == Some("num_ctx")).then(|| words.next()?.parse().ok()).flatten())
    });
    let loaded = running["models"].as_array().into_iter().flatten();
    let loaded = loaded.filter(|one| one["name"] == model || one["model"] == model);
    let trained = show["model_info"].as_object().into_iter().flatten();
    Some(Said {
        window: set.or_else(|| loaded.filter_map(|one| one["context_length"].as_u64()).next()),
        window_max: trained
            .filter(|(key, _)| key.ends_with(".context_length"))
            .find_map(|(_, length)| length.as_u64())
            .filter(|length| *length > 0),
        tools: has("tools"),
        vectors: has("embedding") == Some(true) && has("completion") == Some(false),
    })
}

/// llama-server: one model, its window by slot. With a chat template that knows no tools it takes them and passes over
/// them without a word. Older ones show the template and not what it can do.
fn llama_server(props: &Value) -> Said {
    let by_template = || {
        let template = props["chat_template"].as_str().filter(|template| !template.is_empty())?;
        Some(props["chat_template_tool_use"].is_string() || template.contains("tool"))
    };
    Said {
        window: props["default_generation_settings"]["n_ctx"].as_u64(),
        tools: props["chat_template_caps"]["supports_tools"].as_bool().or_else(by_template),
        ..Said::default()
    }
}

/// LM Studio: all that are on the disk, and the window of those that are loaded. Those before 0.3.16 say nothing of tools.
fn lm_studio(models: &Value, model: &str) -> Said {
    let Some(about) = models["data"].as_array().into_iter().flatten().find(|one| one["id"] == model) else {
        return Said::default();
    };
    Said {
        window: about["loaded_context_length"].as_u64(),
        window_max: about["max_context_length"].as_u64().filter(|length| *length > 0),
        tools: about["capabilities"].as_array().map(|all| all.iter().any(|one| one == "tool_use")),
        vectors: about["type"] == "embeddings",
    }
}

/// vLLM: it takes tools only where it was started for that, and says so only when it is asked with some. It refuses
/// before it computes anything; where it does not, the answer is one token long.
async fn vllm(client: &reqwest::Client, probe: &Probe, about: &Value, model: &str) -> Said {
    let window = about["max_model_len"].as_u64();
    let tool = json!({
        "type": "function",
        "function": {"name": "noop", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}},
    });
    let ask = json!({
        "model": model, "max_tokens": 1, "tools": [tool], "messages": [{"role": "user", "content": "Hello."}],
    });
    // Other servers at this port are not asked to compute.
    let answer = match window {
        Some(_) => post(client, &format!("{}/v1/chat/completions", probe.root), &ask).await,
        None => None,
    };
    let tools = match answer {
        Some((400, body)) if failure::lacks_tools(&body.to_string().to_lowercase()) => Some(false),
        Some((200, _)) => Some(true),
        _ => None,
    };
    Said { window, tools, ..Said::default() }
}

/// The tier that a model's size puts it into, by the count of parameters in its name, such as `qwen3:8b`. Of a model with
/// experts (`30b-a3b`) the whole counts. Where the name says nothing it is `small`, as most that people run at home are.
fn tier_of(model: &str) -> Tier {
    let name = model.to_lowercase();
    let billions = name
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .filter_map(|word| word.strip_suffix('b').or_else(|| word.strip_suffix('m').filter(|_| word.len() > 3)))
        // Words such as `inf` and `nan` are numbers too.
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        .filter_map(|number| number.parse::<f64>().ok().filter(|number| number.is_finite()))
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

/// Whether a model can be configured by this name: whoever wrote the server may have put anything there.
fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control)
}

/// Whether a model is one to talk to, and runs here: servers list embedding models too, and Ollama's cloud models.
fn converses(name: &str) -> bool {
    const OTHER: &[&str] = &["embed", "rerank", "whisper", "tts", "bge-", "minilm", "clip", "-cloud", ":cloud"];
    let name = name.to_lowercase();
    !OTHER.iter().any(|other| name.contains(other))
}

/// A document; `None` where there is none in time.
async fn get(client: &reqwest::Client, address: &str) -> Option<Value> {
    let (status, document) = exchange(client.get(address)).await?;
    (200..300).contains(&status).then_some(document)
}

/// The answer to a document, with its status.
async fn post(client: &reqwest::Client, address: &str, document: &Value) -> Option<(u16, Value)> {
    exchange(client.post(address).header("content-type", "application/json").body(document.to_string())).await
}

async fn exchange(request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
    let whole = async {
        let mut response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.ok()? {
            body.extend_from_slice(&piece);
            if body.len() > LISTING_BYTES_MAX {
                return None;
            }
        }
        Some((status, serde_json::from_slice(&body).ok()?))
    };
    tokio::time::timeout(PROBE_WAIT, whole).await.ok().flatten()
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
            ("infb", Tier::Small),
            ("a-nanb", Tier::Small),
            ("infinityb", Tier::Small),
        ] {
            assert_eq!(tier_of(name), tier, "{name}");
        }
    }
}
