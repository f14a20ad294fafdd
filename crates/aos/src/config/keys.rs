//! The keys of `aos.toml`, and the walk over a parsed file that refuses unknown keys and secrets and reads `${NAME}`.
//!
//! Start at [`walk`]. It runs before the file is read into types, so that a wrong key is named with its line and the
//! nearest known key, and all of them at once. `$${` stands for the two characters `${`.

use std::borrow::Cow;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::fault::Faults;
use crate::env::Env;

/// The sections and their keys. Below `models` each key is a name that people choose.
pub(super) const SECTIONS: &[(&str, &[&str])] = &[
    ("daemon", &["listen", "exposed", "hosts", "default_model"]),
    ("store", &["url"]),
    ("models", &[]),
    ("router", &["fallback", "hedge_after_s"]),
    ("budget", &["usd_per_day"]),
    ("exec", &["sandbox"]),
    ("net", &["allow", "private"]),
];
/// The keys of `[models.NAME]`.
pub(super) const MODEL: &[&str] = &[
    "provider",
    "base_url",
    "model",
    "api_key_env",
    "tier",
    "context_window",
    "max_output",
    "price",
    "limits",
    "local",
    "tools",
    "images",
    "reasoning",
    "json_schema",
    "dimension",
    "timeout_s",
];
/// The keys of `price`.
pub(super) const PRICE: &[&str] = &["input", "output", "cached_input", "cache_write", "reasoning"];
/// The keys of `limits`.
pub(super) const LIMITS: &[&str] = &["concurrency", "rpm", "tpm"];

/// Checks every key and replaces `${NAME}` in every string value.
pub(super) fn walk(file: &mut DeTable<'_>, env: &Env, faults: &mut Faults<'_>) {
    for (key, value) in file.iter_mut() {
        let (section, span) = (key.get_ref().as_ref(), key.span());
        match SECTIONS.iter().find(|(name, _)| *name == section) {
            None => unknown(section, span, "", &SECTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), faults),
            Some(("models", _)) => models(value.get_mut(), faults),
            Some((name, keys)) => table(value.get_mut(), name, keys, faults),
        }
        let span = value.span();
        expand(value.get_mut(), span, env, faults);
    }
}

fn table(value: &mut DeValue<'_>, at: &str, keys: &[&str], faults: &mut Faults<'_>) {
    let DeValue::Table(table) = value else { return };
    for (key, _) in table.iter() {
        let name = key.get_ref().as_ref();
        if !keys.contains(&name) {
            unknown(name, key.span(), at, keys, faults);
        }
    }
}

fn models(value: &mut DeValue<'_>, faults: &mut Faults<'_>) {
    let DeValue::Table(models) = value else { return };
    for (name, model) in models.iter_mut() {
        let at = format!("models.{}", name.get_ref());
        let DeValue::Table(fields) = model.get_mut() else { continue };
        for (key, value) in fields.iter_mut() {
            match key.get_ref().as_ref() {
                "price" => table(value.get_mut(), &format!("{at}.price"), PRICE, faults),
                "limits" => table(value.get_mut(), &format!("{at}.limits"), LIMITS, faults),
                known if MODEL.contains(&known) => {}
                other => unknown(other, key.span(), &at, MODEL, faults),
            }
        }
    }
}

fn unknown(key: &str, span: Range<usize>, at: &str, known: &[&str], faults: &mut Faults<'_>) {
    if looks_secret(key) {
        faults.at(
            span,
            format!("`{key}` would put a secret into the file"),
            "keep the key in an environment variable and name that variable: api_key_env = \"OPENAI_API_KEY\"",
        );
        return;
    }
    let place = if at.is_empty() { String::new() } else { format!(" in [{at}]") };
    let hint = if let Some(section) = section_of(key).filter(|section| *section != at) {
        format!("`{key}` belongs into [{section}]")
    } else if let Some(near) = nearest(key, known) {
        format!("did you mean `{near}`?")
    } else if known.is_empty() {
        "remove it".into()
    } else {
        format!("known here: {}", known.join(", "))
    };
    faults.at(span, format!("unknown key `{key}`{place}"), hint);
}

/// The section a key belongs into, where it is the key of exactly one.
fn section_of(key: &str) -> Option<&'static str> {
    let mut homes = SECTIONS.iter().filter(|(_, keys)| keys.contains(&key)).map(|(name, _)| *name);
    let first = homes.next();
    match (first, homes.next()) {
        (Some(section), None) => Some(section),
        (None, None) if MODEL.contains(&key) => Some("models.NAME"),
        _ => None,
    }
}

/// The nearest known name, where it is near enough to be meant.
pub(crate) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let lower = key.to_lowercase();
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&lower, name), *name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(lower.len()) / 2)
        .map(|(_, name)| name)
}

fn looks_secret(key: &str) -> bool {
    let lower = key.to_lowercase().replace('-', "_");
    ["api_key", "apikey", "key", "token", "api_token", "access_token", "auth_token", "bearer", "password", "passwd"]
        .contains(&lower.as_str())
        || lower.contains("secret")
}

/// Replaces `${NAME}` in a value and in everything inside it.
fn expand(value: &mut DeValue<'_>, span: Range<usize>, env: &Env, faults: &mut Faults<'_>) {
    match value {
        DeValue::String(text) => match expanded(text, env, faults) {
            Ok(None) => {}
            Ok(Some(new)) => *text = Cow::Owned(new),
            Err(Expansion::Unset(name)) => faults.at(
                span,
                format!("the environment variable {name} is not set"),
                format!("export {name}, or write the value itself; `$${{` stands for a plain `${{`"),
            ),
            Err(Expansion::Malformed) => faults.at(
                span,
                "a `${` is not followed by a variable's name and `}`",
                "write ${NAME}; `$${` stands for a plain `${`",
            ),
        },
        DeValue::Array(items) => {
            for item in items.iter_mut() {
                let span = item.span();
                expand(item.get_mut(), span, env, faults);
            }
        }
        DeValue::Table(table) => {
            for (_, item) in table.iter_mut() {
                let span = item.span();
                expand(item.get_mut(), span, env, faults);
            }
        }
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {}
    }
}

#[derive(Debug)]
enum Expansion {
    Unset(String),
    Malformed,
}

/// The text with its variables read; `None` where it holds none.
fn expanded(text: &str, env: &Env, faults: &mut Faults<'_>) -> Result<Option<String>, Expansion> {
    if !text.contains("${") {
        return Ok(None);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let (name, after) = from[2..].split_once('}').ok_or(Expansion::Malformed)?;
        if !is_variable(name) {
            return Err(Expansion::Malformed);
        }
        let value = env.text(name).ok_or_else(|| Expansion::Unset(name.to_owned()))?;
        faults.hide(name, value);
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// Whether this can be the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
