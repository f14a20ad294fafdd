//! `aos.toml` as somebody may write it.

use aos::config::{Config, ConfigError};
use aos::env::Env;
use aos_abi::entry::Configured;

/// What the environment holds and no message may show, unless the text holds it too.
const SECRET: &str = "sk-0123456789abcdef";

/// The text of `aos.toml`, where `HOST` and `SECRET` are set in the environment.
pub fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let env = Env::from([("HOST", "127.0.0.1"), ("SECRET", SECRET)]);
    let parsed = Config::parse(&text, &env);
    match &parsed {
        Ok(config) => {
            let again = Config::parse(&text, &env).expect("the same text and environment give the same answer");
            assert_eq!(&again, config);
            means_something(config);
        }
        Err(error) => {
            let ConfigError::Faults { faults, .. } = error else { panic!("no file was read: {error}") };
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(!fault.what.is_empty() && !fault.hint.is_empty(), "{fault:?}");
                assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault:?} of {lines} lines");
                let shown = format!("{fault} {}", fault.hint);
                assert!(text.contains(SECRET) || !shown.contains(SECRET), "a secret is shown: {shown}");
            }
        }
    }
}

/// What always holds of a configuration, and that the kernel gets the same one again from the journal.
fn means_something(config: &Config) {
    let policy = "version: 1\n";
    let configured = config.configured(policy);
    assert_eq!(configured.models.keys().collect::<Vec<_>>(), config.models.keys().collect::<Vec<_>>());
    assert_eq!((&configured.default_model, configured.policy.as_str()), (&config.default_model, policy));
    assert_eq!(configured.usd_per_day, config.usd_per_day);
    if config.has_no_model() {
        assert_eq!(config.default_model, "");
    } else {
        assert!(config.models.contains_key(&config.default_model));
    }
    assert!(config.fallback.iter().all(|name| config.models.contains_key(name)));

    let json = serde_json::to_string(&configured).expect("a configuration is plain data with string keys");
    let again: Configured = serde_json::from_str(&json).expect("a configuration that was written can be read");
    assert_eq!(again, configured);
}
