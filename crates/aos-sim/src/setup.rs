//! The configurations a world runs under.

use std::collections::BTreeMap;

use aos_abi::Usd;
use aos_abi::entry::Configured;
use aos_abi::inference::Encoding;
use aos_abi::model::{ModelLimits, ModelSpec, Price};

use crate::chance::Chance;

/// Answers with native tool calls; has a price.
pub(crate) const NATIVE: &str = "native";
/// Writes calls as text; one slot, no price.
pub(crate) const TEXT: &str = "text";
/// Answers one JSON object; limited per minute and with a small window.
pub(crate) const CONSTRAINED: &str = "constrained";
/// What a process may ask for: a model, a tier, or whatever serves.
pub(crate) const ASKED: [&str; 5] = [NATIVE, TEXT, CONSTRAINED, "auto", "standard"];
/// Webhook paths that agents register.
pub(crate) const PATHS: [&str; 3] = ["orders", "mail/in", "x"];
/// Names that processes take.
pub(crate) const NAMES: [&str; 3] = ["ann", "bob", "cat"];
/// Groups that they are in.
pub(crate) const GROUPS: [&str; 2] = ["day", "night"];

const LENIENT: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, SYS_SCHEDULE, ASK_USER, PROPOSE, TOOL_SEARCH, THREAD_ATTACH, THREAD_DETACH, "SYS_REGISTER_WEBHOOK **"]
    fs:
      - {path: "**", ops: [read, write, delete]}
      - {path: "asks/**", ops: [read, write, delete], verdict: ask}
      - {path: "holds/**", ops: [read, write, delete], verdict: hold, window: 5m}
    exec: {shell: true, programs: [sh], net: none}
    net:
      - {to: "api.example.com:443", allow: ["GET /**", "POST /**"]}
    memory:
      - {namespace: "self/**", ops: [read, write, forget]}
    ipc:
      - {peer: "*", ops: [send], rate: 6/min}
      - {peer: "bob", ops: [signal], rate: 3/min}
    budget: {usd: 0.60/h, tokens: 900k/h, calls: 60/h, wall: 5d}
labels:
  - {when: untrusted, calls: [EXEC_CMD, SPAWN_AGENT], verdict: ask}
"#;

const STRICT: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, ASK_USER, PROPOSE]
    fs:
      - {path: "**", ops: [read]}
      - {path: "asks/**", ops: [write], verdict: ask}
    ipc:
      - {peer: "*", ops: [send]}
"#;

/// What no policy parses.
const BROKEN: &str = "this is no policy";

/// The policies by what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Almost everything, some of it on a word.
    Lenient,
    /// Reading and talking.
    Strict,
    /// The one that `aos init` writes.
    Shipped,
    /// Nothing.
    Broken,
}

/// Which of them a text is.
pub(crate) fn rules(policy: &str) -> Rules {
    if policy.starts_with(LENIENT) {
        Rules::Lenient
    } else if policy.starts_with(STRICT) {
        Rules::Strict
    } else if policy == aos_policy::Policy::default_text() {
        Rules::Shipped
    } else {
        Rules::Broken
    }
}

/// What a world is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bit of everything.
    Mixed,
    /// Many who never rest, before one slot.
    Busy,
    /// Many who ask people, of whom some are careless and some malicious.
    Asking,
}

/// A random configuration; in a busy world, of one slot and without limits, in an asking one, of rules that ask.
pub(crate) fn configured(chance: &mut Chance, kind: Kind) -> Configured {
    let busy = kind == Kind::Busy;
    let price = Price {
        input: Usd(1_000_000_000),
        output: Usd(4_000_000_000),
        cached_input: Some(Usd(100_000_000)),
        ..Price::default()
    };
    let model = |encoding, window, limits, price, tier: &str| ModelSpec {
        context_window: window,
        max_output: 1000,
        price,
        limits,
        local: false,
        encoding,
        tier: Some(tier.to_owned()),
        endpoint: Some("https://models.example".to_owned()),
        ..ModelSpec::default()
    };
    let slots = if busy { 1 } else { chance.between(1, 4) as u32 };
    let native = ModelLimits { concurrency: slots, rpm: None, tpm: None };
    let text = ModelLimits { concurrency: 1, rpm: None, tpm: None };
    let constrained =
        ModelLimits { concurrency: 2, rpm: chance.percent(70).then_some(6), tpm: chance.percent(30).then_some(20_000) };
    let mut models = BTreeMap::from([
        (NATIVE.to_owned(), model(Encoding::Native, 20_000, native, Some(price), "standard")),
        (TEXT.to_owned(), model(Encoding::Text, 6000, text, None, "nano")),
    ]);
    if chance.percent(85) {
        models.insert(CONSTRAINED.to_owned(), model(Encoding::Constrained, 5000, constrained, Some(price), "strong"));
    }
    let weights = match kind {
        Kind::Busy => [1, 0, 0, 0],
        Kind::Asking => [90, 5, 3, 2],
        Kind::Mixed => [70, 15, 12, 3],
    };
    let policy = match chance.weighted(&weights) {
        // Who asks much is let; a line of no meaning makes another policy of the same rules.
        0 if kind == Kind::Asking => {
            format!("{LENIENT}proposals: {{ttl: 3h, max_asks: 60/h}}\n# {}\n", chance.between(1, 9))
        }
        0 => format!("{LENIENT}proposals: {{ttl: 3h, max_asks: 8/h}}\n"),
        1 => STRICT.to_owned(),
        2 => aos_policy::Policy::default_text().to_owned(),
        _ => BROKEN.to_owned(),
    };
    let fallback = [TEXT, NATIVE].map(str::to_owned);
    Configured {
        fallback: if chance.percent(30) { fallback.to_vec() } else { Vec::new() },
        models,
        default_model: NATIVE.to_owned(),
        policy,
        usd_per_day: (kind == Kind::Mixed && chance.percent(40))
            .then(|| Usd(chance.between(50_000_000, 3_000_000_000))),
        hedge_after_ms: chance.percent(60).then(|| chance.between(200, 4000)),
        hooks_url: "http://127.0.0.1:7717/hooks/".to_owned(),
        listens: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_are_readable() {
        for text in [LENIENT, STRICT] {
            assert!(aos_policy::Policy::parse(text).is_ok(), "{:?}", aos_policy::Policy::parse(text).err());
        }
    }
}
