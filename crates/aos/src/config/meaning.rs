//! From `aos.toml` as typed to the configuration as meant.
//!
//! Start at [`mean`]. Everything that is wrong is found in one go; what is left out gets its default here and nowhere else.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use aos_abi::Usd;
use aos_abi::model::TIERS;
use aos_models::config::ModelConfig;
use toml::Spanned;

use super::fault::Faults;
use super::host::{HostPort, is_host_name};
use super::model;
use super::{Config, EXPOSED, Exec, Net, UNSANDBOXED, keys, typed};

/// The word for whatever the router chooses.
const AUTO: &str = "auto";
/// Where HTTP is served where the file says nothing.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 7717);
/// The shortest and the longest silence after which another model is asked too, in seconds.
const HEDGE_AFTER_S_MIN: f64 = 0.1;
const HEDGE_AFTER_S_MAX: f64 = 600.0;

/// Reads the meaning; the faults found on the way go to `faults`, and where there are any the value is not to be used.
pub(super) fn mean(file: &typed::File, faults: &mut Faults<'_>) -> Config {
    let models: BTreeMap<String, ModelConfig> = file
        .models
        .iter()
        .filter_map(|(name, typed)| {
            let model = model::mean(name.get_ref(), name.span(), typed, faults)?;
            Some((name.get_ref().clone(), model))
        })
        .collect();
    let names: Vec<&str> = file.models.keys().map(|name| name.get_ref().as_str()).collect();
    let answering = answering(file, faults);
    store(&file.store, faults);
    Config {
        listen: listen(&file.daemon, faults),
        hosts: host_names(&file.daemon.hosts, faults),
        default_model: default_model(&file.daemon, &names, &answering, faults),
        fallback: fallback(&file.router, &names, &models, faults),
        hedge_after_ms: hedge_after(&file.router, faults),
        models,
        usd_per_day: usd_per_day(&file.budget, faults),
        exec: exec(&file.exec, faults),
        net: Net { allow: hosts(&file.net.allow, false, faults), private: hosts(&file.net.private, true, faults) },
    }
}

fn listen(daemon: &typed::Daemon, faults: &mut Faults<'_>) -> SocketAddr {
    if let Some(words) = daemon.exposed.as_ref().filter(|words| words.get_ref() != EXPOSED) {
        faults.at(
            words.span(),
            "`exposed` does not hold the words of consent",
            format!("write exactly exposed = \"{EXPOSED}\""),
        );
    }
    let Some(value) = &daemon.listen else { return LISTEN.into() };
    let text = match value.get_ref().strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => value.get_ref().clone(),
    };
    let Ok(address) = text.parse::<SocketAddr>() else {
        faults.at(
            value.span(),
            format!("`listen` is `{}`, not an address with a port", value.get_ref()),
            "write it as \"127.0.0.1:7717\"; port 0 takes any free one",
        );
        return LISTEN.into();
    };
    if !address.ip().is_loopback() && daemon.exposed.is_none() {
        faults.at(
            value.span(),
            format!("`listen = \"{address}\"` would let other machines in"),
            format!("listen on 127.0.0.1, or say below [daemon] that you want it: exposed = \"{EXPOSED}\""),
        );
    }
    address
}

/// The names of hosts, without ports.
fn host_names(list: &[Spanned<String>], faults: &mut Faults<'_>) -> Vec<String> {
    for value in list.iter().filter(|value| !is_host_name(value.get_ref())) {
        faults.at(
            value.span(),
            format!("`{}` is no host name", value.get_ref()),
            "write it as \"hooks.example.com\", without `https://` and without a port",
        );
    }
    list.iter().map(|value| value.get_ref().clone()).collect()
}

fn store(store: &typed::Store, faults: &mut Faults<'_>) {
    let Some(url) = store.url.as_ref().filter(|url| url.get_ref() != "sqlite") else { return };
    // A database's address may hold a password, so it is not shown.
    let (what, hint) = if url.get_ref().starts_with("postgres") {
        ("PostgreSQL as the store is not there yet", "write url = \"sqlite\", or leave it out")
    } else {
        ("`url` names no known store", "write url = \"sqlite\", or leave it out")
    };
    faults.at(url.span(), what, hint);
}

/// The models that answer, and are not for vectors.
fn answering<'f>(file: &'f typed::File, faults: &mut Faults<'_>) -> Vec<&'f str> {
    let of = |answers: bool| {
        let models = file.models.iter().filter(move |(_, typed)| typed.dimension.is_none() == answers);
        models.map(|(name, _)| name.get_ref().as_str()).collect::<Vec<_>>()
    };
    let (answering, silent) = (of(true), of(false));
    let default = file.daemon.default_model.iter().map(|name| ("default_model", name));
    let named = default.chain(file.router.fallback.iter().map(|name| ("fallback", name)));
    for (key, name) in named.filter(|(_, name)| silent.contains(&name.get_ref().as_str())) {
        let what = format!("`{key}` names the model `{}`, which makes vectors and no answers", name.get_ref());
        faults.at(name.span(), what, known_models(&answering));
    }
    answering
}

/// The default model; empty where none is configured that answers, which is where the scripted one serves.
fn default_model(daemon: &typed::Daemon, names: &[&str], answering: &[&str], faults: &mut Faults<'_>) -> String {
    match (&daemon.default_model, answering) {
        (None, []) => String::new(),
        (None, [only]) => (*only).to_owned(),
        (None, several) => {
            faults.missing(
                "`default_model` is missing below [daemon] and there are several models",
                format!("add default_model = \"{}\", or another of {}", several[0], several.join(", ")),
            );
            String::new()
        }
        (Some(name), []) if name.get_ref() == AUTO => {
            faults.at(name.span(), "default_model = \"auto\" has no model to choose from", known_models(names));
            String::new()
        }
        (Some(name), _) if name.get_ref() == AUTO => AUTO.to_owned(),
        (Some(name), _) => {
            if !names.contains(&name.get_ref().as_str()) {
                unknown_model("default_model", name, names, faults);
            }
            name.get_ref().clone()
        }
    }
}

/// The models that stand in for one that failed. What names no model and a tier stands for the models of that tier, the
/// cheapest first.
fn fallback(
    router: &typed::Router,
    names: &[&str],
    models: &BTreeMap<String, ModelConfig>,
    faults: &mut Faults<'_>,
) -> Vec<String> {
    let mut fallback: Vec<String> = Vec::new();
    for name in &router.fallback {
        let text = name.get_ref();
        let found = match names.contains(&text.as_str()) {
            true => vec![text.clone()],
            false => of_tier(text, models),
        };
        match found.as_slice() {
            [] if TIERS.contains(&text.as_str()) => faults.at(
                name.span(),
                format!("`fallback` names the tier `{text}`, and no model has it"),
                format!("give a model the line tier = \"{text}\"; or {}", known_models(names)),
            ),
            [] => unknown_model("fallback", name, names, faults),
            _ => fallback.extend(found.into_iter().filter(|one| !fallback.contains(one)).collect::<Vec<_>>()),
        }
    }
    fallback
}

/// The models of a tier that answer, the cheapest first; what is not known is not nothing.
fn of_tier(tier: &str, models: &BTreeMap<String, ModelConfig>) -> Vec<String> {
    let specs = models.iter().map(|(name, model)| (name, model.spec()));
    let mut found: Vec<_> = specs.filter(|(_, spec)| spec.tier.as_deref() == Some(tier) && !spec.vectors).collect();
    found.sort_by_key(|(_, spec)| {
        spec.price.map_or((true, 0), |price| (false, price.input.0.saturating_add(price.output.0)))
    });
    found.into_iter().map(|(name, _)| name.clone()).collect()
}

fn hedge_after(router: &typed::Router, faults: &mut Faults<'_>) -> Option<u64> {
    let value = router.hedge_after_s.as_ref()?;
    let seconds = *value.get_ref();
    if !(HEDGE_AFTER_S_MIN..=HEDGE_AFTER_S_MAX).contains(&seconds) {
        faults.at(
            value.span(),
            format!("`hedge_after_s` is {seconds}"),
            format!("from {HEDGE_AFTER_S_MIN} to {HEDGE_AFTER_S_MAX} seconds; leave it out to ask one model at a time"),
        );
        return None;
    }
    Some((seconds * 1000.0) as u64)
}

fn unknown_model(key: &str, name: &Spanned<String>, names: &[&str], faults: &mut Faults<'_>) {
    let hint = match keys::nearest(name.get_ref(), names) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => known_models(names),
    };
    faults.at(name.span(), format!("`{key}` names the model `{}`, which is not configured", name.get_ref()), hint);
}

fn known_models(names: &[&str]) -> String {
    match names {
        [] => "add a table [models.NAME]; `aos init` looks for models".into(),
        names => format!("one of {}", names.join(", ")),
    }
}

fn usd_per_day(budget: &typed::Budget, faults: &mut Faults<'_>) -> Option<Usd> {
    let value = budget.usd_per_day.as_ref()?;
    match Usd::from_dollars(*value.get_ref()) {
        None | Some(Usd::ZERO) => {
            faults.at(
                value.span(),
                format!("`usd_per_day` is {}, so no paid call could ever be made", value.get_ref()),
                "write an amount above 0 in US dollars; leave it out for no limit",
            );
            None
        }
        some => some,
    }
}

fn exec(exec: &typed::Exec, faults: &mut Faults<'_>) -> Exec {
    match exec.sandbox.as_ref().map(|value| (value, value.get_ref().as_str())) {
        None | Some((_, "required")) => Exec::Sandboxed,
        Some((_, UNSANDBOXED)) => Exec::Unsandboxed,
        Some((value, other)) => {
            faults.at(
                value.span(),
                format!("`sandbox` is `{other}`"),
                format!(
                    "write sandbox = \"required\", or in full words what you consent to: sandbox = \"{UNSANDBOXED}\""
                ),
            );
            Exec::Sandboxed
        }
    }
}

fn hosts(list: &[Spanned<String>], private: bool, faults: &mut Faults<'_>) -> Vec<HostPort> {
    let mut good = Vec::new();
    for value in list {
        match value.get_ref().parse::<HostPort>() {
            Ok(host) if private && host.host().starts_with("*.") => {
                faults.at(
                    value.span(),
                    format!("`{}` is a pattern, private places are named one by one", value.get_ref()),
                    "write it as \"127.0.0.1:8080\"",
                );
            }
            Ok(host) => good.push(host),
            Err(error) => {
                faults.at(
                    value.span(),
                    error.to_string(),
                    "write it as \"example.com:443\", \"*.example.org:443\" or \"127.0.0.1:8080\"",
                );
            }
        }
    }
    good
}
