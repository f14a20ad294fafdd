//! `[models.NAME]` as meant: how a model is reached, and what the kernel knows of it.
//!
//! Start at [`mean`]. What always holds of a [`ModelConfig`] that comes from here: its numbers are above zero, its address is an `http` or `https`
//! URL without a secret in it, and its key is only named, never held.

use std::ops::Range;

use aos_abi::Usd;
use aos_abi::inference::Encoding;
use aos_abi::model::{ModelLimits, Price};
use aos_models::config::{CONTEXT_WINDOW_DEFAULT, MAX_OUTPUT_DEFAULT, ModelConfig, Provider, Tier};

use super::fault::Faults;
use super::{keys, typed};

/// The smallest window that a process can work in, in tokens: what it is told of itself alone takes a part of it.
pub const CONTEXT_WINDOW_MIN: u32 = 1024;

const PROVIDERS: [Provider; 4] = [Provider::Openai, Provider::Anthropic, Provider::Gemini, Provider::Local];
const TIERS: [Tier; 5] = [Tier::Nano, Tier::Small, Tier::Standard, Tier::Strong, Tier::Frontier];
const ENCODINGS: [Encoding; 3] = [Encoding::Native, Encoding::Text, Encoding::Constrained];

/// The name of a provider in the file.
#[must_use]
pub fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::Openai => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Gemini => "gemini",
        Provider::Local => "local",
    }
}

/// The name of a tier in the file.
#[must_use]
pub fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Nano => "nano",
        Tier::Small => "small",
        Tier::Standard => "standard",
        Tier::Strong => "strong",
        Tier::Frontier => "frontier",
    }
}

/// Reads one table; `None` where a fault was found.
pub(super) fn mean(name: &str, at: Range<usize>, typed: &typed::Model, faults: &mut Faults<'_>) -> Option<ModelConfig> {
    if !is_model_name(name) {
        faults.at(at, format!("`{name}` cannot name a model"), "use letters, digits, `.`, `-` and `_`; not `auto`");
        return None;
    }
    let provider = choice(&typed.provider, "provider", &PROVIDERS, provider_name, faults);
    let tier = match &typed.tier {
        None => Some(None),
        Some(tier) => choice(tier, "tier", &TIERS, tier_name, faults).map(Some),
    };
    let encoding = match &typed.tools {
        // The runtime inside holds its answers to a grammar.
        None if provider == Some(Provider::Local) => Some(Encoding::Constrained),
        None => Some(Encoding::Native),
        Some(tools) => choice(tools, "tools", &ENCODINGS, encoding_name, faults),
    };
    let base_url = address(typed, faults);
    if let (Some(Provider::Local), Some(url)) = (provider, &typed.base_url) {
        faults.at(
            url.span(),
            "a model inside aos has no `base_url`",
            "leave it out; `model` is the path of a .gguf file, or the name of one in models/ of the home",
        );
    }
    let api_key_env = key_variable(typed, faults);
    if typed.model.get_ref().trim().is_empty() {
        faults.at(
            typed.model.span(),
            "`model` is empty",
            "write what the provider calls the model, such as \"qwen3:8b\"",
        );
    }
    let (context_window, max_output) = window(typed, faults)?;
    let price = price(typed, faults)?;
    let limits = limits(&typed.limits, faults)?;
    Some(ModelConfig {
        provider: provider?,
        base_url: base_url?,
        model: typed.model.get_ref().clone(),
        api_key_env: api_key_env?,
        tier: tier?,
        context_window,
        max_output,
        price,
        limits,
        local: typed.local,
        tools: encoding?,
        images: typed.images,
        reasoning: typed.reasoning,
        json_schema: typed.json_schema,
        dimension: dimension(typed, faults)?,
        timeout_s: timeout(typed, faults)?,
    })
}

/// Whether people can name a model so: it stands on command lines and in URLs. `auto` is the router.
fn is_model_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(fits) && name != "auto"
}

fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Native => "native",
        Encoding::Text => "text",
        Encoding::Constrained => "constrained",
    }
}

fn choice<T: Copy>(
    value: &toml::Spanned<String>,
    key: &str,
    all: &[T],
    name: fn(T) -> &'static str,
    faults: &mut Faults<'_>,
) -> Option<T> {
    let found = all.iter().copied().find(|one| name(*one) == value.get_ref());
    if found.is_none() {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        let hint = match keys::nearest(value.get_ref(), &names) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("one of {}", names.join(", ")),
        };
        faults.at(value.span(), format!("no {key} `{}`", value.get_ref()), hint);
    }
    found
}

fn dimension(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<Option<u32>> {
    match &typed.dimension {
        Some(value) if *value.get_ref() == 0 => {
            faults.at(
                value.span(),
                "`dimension` is 0, so a vector would hold nothing",
                "how many numbers the model's vectors have; leave it out for a model that answers",
            );
            None
        }
        other => Some(other.as_ref().map(|value| *value.get_ref())),
    }
}

fn timeout(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<Option<u64>> {
    match &typed.timeout_s {
        Some(value) if *value.get_ref() == 0 => {
            faults.at(
                value.span(),
                "`timeout_s` is 0, so no answer could ever come",
                "at least 1; leave it out for 120",
            );
            None
        }
        other => Some(other.as_ref().map(|value| *value.get_ref())),
    }
}

fn address(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<Option<String>> {
    let Some(url) = &typed.base_url else { return Some(None) };
    match check_url(url.get_ref()) {
        Ok(()) => Some(Some(url.get_ref().trim_end_matches('/').to_owned())),
        Err((what, hint)) => {
            faults.at(url.span(), what, hint);
            None
        }
    }
}

/// Says what is wrong with a server's address, without showing one that may hold a secret.
fn check_url(url: &str) -> Result<(), (String, &'static str)> {
    const SHAPE: &str = "write it as http://127.0.0.1:11434/v1 or https://HOST/v1";
    if url.contains('@') {
        return Err(("`base_url` holds a user or password".into(), "name the key's variable in api_key_env instead"));
    }
    if url.contains(['?', '#']) {
        return Err(("`base_url` holds a query".into(), "end it at the path; name a key's variable in api_key_env"));
    }
    let parsed: hyper::Uri = url.parse().map_err(|_| (format!("`{url}` is no URL"), SHAPE))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none_or(str::is_empty) {
        return Err((format!("`{url}` is no http or https URL"), SHAPE));
    }
    Ok(())
}

fn key_variable(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<Option<String>> {
    match &typed.api_key_env {
        None => Some(None),
        Some(name) if keys::is_variable(name.get_ref()) => Some(Some(name.get_ref().clone())),
        // The value is not shown: people put the key itself here.
        Some(name) => {
            faults.at(
                name.span(),
                "`api_key_env` must be the name of an environment variable, not a key",
                "export the key as OPENAI_API_KEY, say, and write api_key_env = \"OPENAI_API_KEY\"",
            );
            None
        }
    }
}

fn window(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<(u32, u32)> {
    let context = typed.context_window.as_ref().map_or(CONTEXT_WINDOW_DEFAULT, |value| *value.get_ref());
    let output = typed.max_output.as_ref().map_or(MAX_OUTPUT_DEFAULT.min(context / 4), |value| *value.get_ref());
    if let Some(value) = typed.context_window.as_ref().filter(|value| *value.get_ref() < CONTEXT_WINDOW_MIN) {
        faults.at(
            value.span(),
            format!("`context_window` is {context} tokens, too few to work in"),
            format!("at least {CONTEXT_WINDOW_MIN}; see the model's documentation"),
        );
        return None;
    }
    if let Some(value) = typed.max_output.as_ref().filter(|_| output == 0 || output >= context) {
        faults.at(
            value.span(),
            format!("`max_output` is {output}, it must be above 0 and below `context_window` ({context})"),
            "a quarter of `context_window` is usual",
        );
        return None;
    }
    Some((context, output))
}

fn price(typed: &typed::Model, faults: &mut Faults<'_>) -> Option<Option<Price>> {
    let Some(spanned) = &typed.price else { return Some(None) };
    let typed::Price { input, output, cached_input, cache_write, reasoning } = spanned.get_ref();
    let read = || {
        // Left out is one thing, below zero another.
        let part = |dollars: &Option<f64>| dollars.map_or(Some(None), |dollars| Usd::from_dollars(dollars).map(Some));
        Some(Price {
            input: Usd::from_dollars(*input)?,
            output: Usd::from_dollars(*output)?,
            cached_input: part(cached_input)?,
            cache_write: part(cache_write)?,
            reasoning: part(reasoning)?,
        })
    };
    let price = read();
    if price.is_none() {
        faults.at(spanned.span(), "`price` holds an amount below zero", "US dollars per million tokens, zero or more");
    }
    price.map(Some)
}

fn limits(typed: &typed::Limits, faults: &mut Faults<'_>) -> Option<ModelLimits> {
    let zero = |span: Range<usize>, key: &str, faults: &mut Faults<'_>| {
        faults.at(
            span,
            format!("`{key}` is 0, so no call could ever be made"),
            "at least 1; leave it out for the default",
        );
    };
    let mut good = true;
    if let Some(value) = typed.concurrency.as_ref().filter(|value| *value.get_ref() == 0) {
        zero(value.span(), "concurrency", faults);
        good = false;
    }
    if let Some(value) = typed.rpm.as_ref().filter(|value| *value.get_ref() == 0) {
        zero(value.span(), "rpm", faults);
        good = false;
    }
    if let Some(value) = typed.tpm.as_ref().filter(|value| *value.get_ref() == 0) {
        zero(value.span(), "tpm", faults);
        good = false;
    }
    good.then(|| ModelLimits {
        concurrency: typed.concurrency.as_ref().map_or(ModelLimits::default().concurrency, |value| *value.get_ref()),
        rpm: typed.rpm.as_ref().map(|value| *value.get_ref()),
        tpm: typed.tpm.as_ref().map(|value| *value.get_ref()),
    })
}
