//! Models of the providers whose key is in the environment.
//!
//! Start at [`models`]. Each provider is asked which models its key may use; where it does not answer, those that are
//! usual are taken. Prices and windows are those of the providers' public pages at the end of 2025, written into the
//! configuration where a person can correct them. What always holds: a newer model of a family comes only where the known
//! one is gone, and without a price, since none is guessed; such a model serves only where its provider lists none with a
//! price, whatever others have, and else is proposed. A key goes nowhere while a variable of the environment says that it
//! belongs elsewhere.

use std::time::Duration;

use aos_abi::Usd;
use aos_abi::model::Price;
use serde_json::Value;

use super::{Candidate, Found};
use crate::client::Clients;
use crate::config::{ModelConfig, Provider, Tier};
use crate::failure::transient;
use crate::listing;
use crate::pool::Env;
use crate::target::{Ask, Target};

/// How long a provider may take to list its models.
const LISTING_WAIT: Duration = Duration::from_secs(2);

/// A provider and where it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Whose key and whose format.
    pub provider: Provider,
    /// Its address, as in `base_url`.
    pub address: String,
}

/// The providers at their own addresses.
#[must_use]
pub fn known_accounts() -> Vec<Account> {
    let at = |provider: Provider| Account { provider, address: provider.base_url().to_owned() };
    [Provider::Openai, Provider::Anthropic, Provider::Gemini].map(at).to_vec()
}

/// The variables by which the provider's own programs are sent to another address, whose key is the one in the environment
/// then.
fn detours(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Openai => &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        Provider::Anthropic => &["ANTHROPIC_BASE_URL"],
        Provider::Gemini => &["GOOGLE_GEMINI_BASE_URL"],
        Provider::Local => &[],
    }
}

/// The variable that says that the key of an account belongs to another address, and that address as far as it is one.
fn detour(account: &Account, env: &Env) -> Option<(&'static str, Option<reqwest::Url>)> {
    let own = reqwest::Url::parse(&account.address).ok().map(|url| url.origin());
    detours(account.provider).iter().find_map(|name| {
        let address = env(name).filter(|address| !address.trim().is_empty())?;
        let url = reqwest::Url::parse(address.trim()).ok();
        let same = url.is_some() && url.as_ref().map(reqwest::Url::origin) == own;
        (!same).then_some((*name, url))
    })
}

/// What a person can write for a key that belongs to another address.
fn by_hand(
    provider: Provider,
    family: &str,
    key: &str,
    host: &str,
    (name, url): (&str, Option<reqwest::Url>),
) -> String {
    let address = url.and_then(|mut url| {
        // Whatever secret is in it stays out of words and files.
        url.set_username("").and_then(|()| url.set_password(None)).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        Some(url)
    });
    let address = address.map_or_else(
        || "ADDRESS".to_owned(),
        // The others' addresses are written there as they are here.
        |url| {
            format!(
                "{}{}",
                url.as_str().trim_end_matches('/'),
                if provider == Provider::Gemini { "/v1beta" } else { "" }
            )
        },
    );
    format!(
        "{name} sends the key in {key} elsewhere, so {host} is not asked and no model of it is taken; add to aos.toml, with a \
         name that is known there:\n[models.{family}]\nprovider = \"{family}\"\nbase_url = \"{address}\"\n\
         api_key_env = \"{key}\"\nmodel = \"NAME\""
    )
}

/// Models of a provider that follow each other.
struct Family {
    /// What its model is called in `aos.toml`.
    name: &'static str,
    /// What stands before and behind the version in the provider's names.
    around: (&'static str, &'static str),
    /// The model that is known.
    known: Option<Known>,
    tier: Tier,
    /// Prompt and answer together, in tokens.
    window: u32,
}

/// The provider's name for a model, and US dollars per million tokens: in, out, in from the cache, written to the cache.
struct Known(&'static str, [f64; 4]);

const fn family(
    name: &'static str,
    around: (&'static str, &'static str),
    tier: Tier,
    window: u32,
    known: Option<Known>,
) -> Family {
    Family { name, around, known, tier, window }
}

/// The families of each provider: the usual one first, then a smaller and better ones.
const OPENAI: &[Family] = &[
    family("openai", ("gpt-", "-mini"), Tier::Standard, 400_000, Some(Known("gpt-5-mini", [0.25, 2.0, 0.025, 0.25]))),
    family(
        "openai-small",
        ("gpt-", "-nano"),
        Tier::Small,
        400_000,
        Some(Known("gpt-5-nano", [0.05, 0.4, 0.005, 0.05])),
    ),
    family("openai-strong", ("gpt-", ""), Tier::Strong, 400_000, Some(Known("gpt-5", [1.25, 10.0, 0.125, 1.25]))),
    family("openai-frontier", ("gpt-", "-pro"), Tier::Frontier, 400_000, None),
];
const ANTHROPIC: &[Family] = &[
    family(
        "anthropic",
        ("claude-sonnet-", ""),
        Tier::Standard,
        200_000,
        Some(Known("claude-sonnet-4-5", [3.0, 15.0, 0.3, 3.75])),
    ),
    family(
        "anthropic-small",
        ("claude-haiku-", ""),
        Tier::Small,
        200_000,
        Some(Known("claude-haiku-4-5", [1.0, 5.0, 0.1, 1.25])),
    ),
    family(
        "anthropic-frontier",
        ("claude-opus-", ""),
        Tier::Frontier,
        200_000,
        Some(Known("claude-opus-4-5", [5.0, 25.0, 0.5, 6.25])),
    ),
    family("anthropic-fable", ("claude-fable-", ""), Tier::Frontier, 200_000, None),
];
/// Beyond 200,000 tokens the last one has another price, so its window ends there.
const GEMINI: &[Family] = &[
    family(
        "gemini",
        ("gemini-", "-flash"),
        Tier::Standard,
        1_048_576,
        Some(Known("gemini-2.5-flash", [0.3, 2.5, 0.03, 0.3])),
    ),
    family(
        "gemini-small",
        ("gemini-", "-flash-lite"),
        Tier::Small,
        1_048_576,
        Some(Known("gemini-2.5-flash-lite", [0.1, 0.4, 0.01, 0.1])),
    ),
    family(
        "gemini-strong",
        ("gemini-", "-pro"),
        Tier::Strong,
        200_000,
        Some(Known("gemini-2.5-pro", [1.25, 10.0, 0.125, 1.25])),
    ),
];

/// A model that a provider lists.
struct Listed {
    id: String,
    /// Most tokens of a prompt, where it says so.
    window: Option<u32>,
}

/// The models of each account whose key is in the environment.
pub(super) async fn models(accounts: &[Account], env: &Env) -> Found {
    let clients = Clients::new(concat!("aos/", env!("CARGO_PKG_VERSION")), LISTING_WAIT);
    let (clients, clients_env) = (std::sync::Arc::new(clients), env.clone());
    let mut asked = tokio::task::JoinSet::new();
    for (nth, account) in accounts.iter().cloned().enumerate() {
        let (clients, env) = (std::sync::Arc::clone(&clients), clients_env.clone());
        asked.spawn(async move { (nth, of_account(&account, &env, &clients).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(nth, _)| *nth);
    answers.into_iter().fold(Found::default(), |mut all, (_, found)| {
        all.models.extend(found.models);
        all.proposed.extend(found.proposed);
        all.notes.extend(found.notes);
        all
    })
}

async fn of_account(account: &Account, env: &Env, clients: &Clients) -> Found {
    let provider = account.provider;
    let Some(variable) = provider.key_env().filter(|name| env(name).is_some_and(|key| !key.trim().is_empty())) else {
        return Found::default();
    };
    let families: &[Family] = match provider {
        Provider::Openai => OPENAI,
        Provider::Anthropic => ANTHROPIC,
        Provider::Gemini => GEMINI,
        Provider::Local => &[],
    };
    let host = account.address.split("://").last().and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let mut found = Found::default();
    if let Some(detour) = detour(account, env) {
        let family = families.first().map_or("", |family| family.name);
        found.notes.push(by_hand(provider, family, variable, host, detour));
        return found;
    }
    let listed = match list(account, variable, env, clients).await {
        Ok(listed) => Some(listed),
        Err(why) => {
            found.notes.push(format!("{host} did not list its models, so those that are usual are taken ({why})"));
            None
        }
    };
    let all = families.iter().filter_map(|family| candidate(provider, family, variable, host, listed.as_deref()));
    // What the router may choose by itself must have a price, unless there is nothing else; the dearest tier never goes
    // without.
    (found.models, found.proposed) = all.partition(|one| one.config.price.is_some());
    if found.models.is_empty() {
        let dearest = |one: &Candidate| one.config.tier == Some(Tier::Frontier);
        (found.proposed, found.models) = std::mem::take(&mut found.proposed).into_iter().partition(dearest);
    }
    if found.models.is_empty() {
        found
            .notes
            .push(format!("{host} lists no model that is known here: add a [models.NAME] with one of its names"));
    }
    found
}

/// What the provider lists for its key; why not, in words without the key.
async fn list(account: &Account, variable: &str, env: &Env, clients: &Clients) -> Result<Vec<Listed>, String> {
    let mut config = ModelConfig::new(account.provider, "");
    config.base_url = Some(account.address.clone());
    config.api_key_env = Some(variable.to_owned());
    let target = Target::of("", &config, Ask::Models, env, clients).map_err(|failure| failure.message)?;
    let late = |_| Err(transient(format!("no answer within {} s", LISTING_WAIT.as_secs())));
    let listing = tokio::time::timeout(LISTING_WAIT, listing::document(&target)).await.unwrap_or_else(late);
    let listing = listing.map_err(|failure| failure.message)?;
    // OpenAI's and Anthropic's form, and Gemini's.
    let all = listing["data"].as_array().or(listing["models"].as_array()).ok_or("what came is no list of models")?;
    let listed = |one: &Value| {
        let id = one["id"].as_str().or(one["name"].as_str())?.trim_start_matches("models/").to_owned();
        let window = one["max_input_tokens"].as_u64().or(one["inputTokenLimit"].as_u64());
        Some(Listed { id, window: window.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0) })
    };
    Ok(all.iter().filter_map(listed).collect())
}

/// The model of a family that an account can be configured with: the known one, or the newest where that is gone.
fn candidate(
    provider: Provider,
    family: &Family,
    variable: &str,
    host: &str,
    listed: Option<&[Listed]>,
) -> Option<Candidate> {
    let known = family.known.as_ref();
    let here = |name: &str| listed.and_then(|listed| listed.iter().find(|one| undated(&one.id).0 == name));
    let (model, window, price) = match (listed, known) {
        (None, None) => return None,
        (None, Some(known)) => (known.0, family.window, Some(known.1)),
        (Some(listed), known) => match known.and_then(|known| here(known.0).map(|one| (known, one))) {
            // Its price holds for no more than the window that is known.
            Some((known, one)) => (known.0, one.window.map_or(family.window, |w| w.min(family.window)), Some(known.1)),
            None => {
                let newest = newest(family, listed)?;
                (newest.id.as_str(), newest.window.unwrap_or(family.window), None)
            }
        },
    };
    let mut config = ModelConfig::new(provider, model);
    config.api_key_env = Some(variable.to_owned());
    config.tier = Some(family.tier);
    config.context_window = window;
    // Reasoning counts as output and comes first.
    config.max_output = 16_384.min(window / 2).max(1);
    config.reasoning = true;
    config.json_schema = true;
    config.price = price.map(|price| {
        let [input, output, cached, written] = price.map(|dollars| Usd::from_dollars(dollars).unwrap_or_default());
        // Written only where it costs something of its own.
        let cache_write = (written != input).then_some(written);
        Price { input, output, cached_input: Some(cached), cache_write, ..Price::default() }
    });
    let mut reason = match listed {
        Some(_) => format!("{model}, which {host} lists for the key in {variable}"),
        None => format!("{model}, since {variable} is in the environment"),
    };
    if price.is_none() {
        reason.push_str("; its price is not known here, and without one no budget in dollars bounds it");
    }
    Some(Candidate { name: family.name.to_owned(), config, reason })
}

/// The newest model of a family that is newer than the known one; of its names the one without a date.
fn newest<'l>(family: &Family, listed: &'l [Listed]) -> Option<&'l Listed> {
    let since = family.known.as_ref().and_then(|known| version(family, known.0));
    let newer = listed.iter().filter_map(|one| {
        let (name, date) = undated(&one.id);
        let version = version(family, name).filter(|version| since.as_ref().is_none_or(|since| version > since))?;
        Some(((version, date.is_empty(), date), one))
    });
    newer.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, one)| one)
}

/// The version in a name of this family, such as `[4, 5]`; `None` for names of others, previews and variants.
fn version(family: &Family, name: &str) -> Option<Vec<u32>> {
    let (before, behind) = family.around;
    let version = name.strip_prefix(before)?.strip_suffix(behind)?;
    let parts: Option<Vec<u32>> = version
        .split(['.', '-'])
        .map(|part| part.parse().ok().filter(|_| part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit())))
        .collect();
    parts.filter(|parts| parts.len() <= 2)
}

/// A name without the date of its snapshot, and the date: `-20250929` or `-2025-08-07`.
fn undated(id: &str) -> (&str, &str) {
    let dated = |length: usize| {
        let at = id.len().checked_sub(length).filter(|at| id.is_char_boundary(*at))?;
        let (name, date) = id.split_at(at);
        let digits = date.strip_prefix('-')?.bytes().filter(u8::is_ascii_digit).count();
        let rest = date.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
        (digits == 8 && rest).then_some((name, date))
    };
    dated("-20250807".len()).or_else(|| dated("-2025-08-07".len())).unwrap_or((id, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(ids: &[&str]) -> Vec<Listed> {
        ids.iter().map(|id| Listed { id: (*id).to_owned(), window: None }).collect()
    }

    #[test]
    fn a_name_tells_its_family_and_its_version() {
        let [mini, _, plain, pro] = OPENAI else { panic!("four families") };
        for (family, name, is) in [
            (mini, "gpt-5-mini", Some(vec![5])),
            (mini, "gpt-5.4-mini", Some(vec![5, 4])),
            (mini, "gpt-4o-mini", None),
            (mini, "gpt-5.1-codex-mini", None),
            (plain, "gpt-5", Some(vec![5])),
            (plain, "gpt-5-mini", None),
            (plain, "gpt-5-chat-latest", None),
            (plain, "gpt-4-0613", None),
            (pro, "gpt-5-pro", Some(vec![5])),
            (&ANTHROPIC[0], "claude-sonnet-4-5", Some(vec![4, 5])),
            (&ANTHROPIC[0], "claude-3-5-sonnet", None),
            (&GEMINI[0], "gemini-3.5-flash", Some(vec![3, 5])),
            (&GEMINI[0], "gemini-2.5-flash-lite", None),
            (&GEMINI[2], "gemini-3-pro-preview", None),
        ] {
            assert_eq!(version(family, name), is, "{name}");
        }
        assert_eq!(undated("claude-sonnet-4-5-20250929"), ("claude-sonnet-4-5", "-20250929"));
        assert_eq!(undated("gpt-5-mini-2025-08-07"), ("gpt-5-mini", "-2025-08-07"));
        assert_eq!(undated("gpt-5"), ("gpt-5", ""));
        assert_eq!(undated("modèle"), ("modèle", ""));
    }

    #[test]
    fn the_newest_of_a_family_goes_by_its_name_without_a_date() {
        let of = |ids: &[&str]| newest(&OPENAI[0], &listed(ids)).map(|one| one.id.clone());
        let ids = ["gpt-5.9-mini-2026-09-01", "gpt-5.10-mini-2026-10-01", "gpt-5.10-mini", "gpt-5.10-mini-2026-11-01"];
        assert_eq!(of(&ids).as_deref(), Some("gpt-5.10-mini"));
        assert_eq!(of(&ids[..2]).as_deref(), Some("gpt-5.10-mini-2026-10-01"));
        assert_eq!(of(&["gpt-4.1-mini", "gpt-5.2-turbo-mini"]), None, "older ones and others stand for nothing");
    }
}
