//! Each fault of `aos.toml` as people see it.

use super::*;

fn faults(text: &str) -> String {
    faults_in(text, &Env::from([("HERE", "sk-very-secret")]))
}

fn faults_in(text: &str, env: &Env) -> String {
    match Config::parse(text, env) {
        Ok(config) => format!("no fault: {config:?}"),
        Err(error) => format!("{error}\ntry: {}", error.hints().join("\ntry: ")),
    }
}

const MODEL: &str = "[models.small]\nprovider = \"openai\"\nmodel = \"m\"\n";

#[test]
fn the_example_of_the_contract_is_read() {
    let text = r#"
[daemon]
listen = "127.0.0.1:7717"
default_model = "small"
[store]
url = "sqlite"
[models.small]
provider = "openai"
base_url = "http://127.0.0.1:11434/v1/"
model = "qwen3:8b"
api_key_env = "OPENAI_API_KEY"
tier = "small"
context_window = 32768
max_output = 4096
price = { input = 0.10, output = 0.40, cached_input = 0.01 }
limits = { concurrency = 8, rpm = 500, tpm = 200000 }
local = true
tools = "native"
[models.standard]
provider = "anthropic"
model = "c"
[router]
fallback = ["standard", "small"]
[budget]
usd_per_day = 5.0
[exec]
sandbox = "required"
[net]
allow = ["example.com:443", "*.example.org:443"]
private = ["127.0.0.1:8080"]
"#;
    let config = Config::parse(text, &Env::default()).unwrap();
    let small = &config.models["small"];
    assert_eq!(small.base_url.as_deref(), Some("http://127.0.0.1:11434/v1"));
    assert_eq!(small.price.unwrap().cached_input, Some(Usd(10_000_000)));
    assert_eq!((small.limits.rpm, small.local), (Some(500), Some(true)));
    assert_eq!(config.models["standard"].limits.concurrency, 8);
    assert_eq!((config.exec, config.net.allow.len()), (Exec::Sandboxed, 2));
    let configured = config.configured("version: 1\n");
    assert_eq!(configured.hooks_url, "http://127.0.0.1:7717/hooks/");
    assert_eq!(configured.usd_per_day, Some(Usd(5_000_000_000)));
    assert_eq!(configured.models.keys().collect::<Vec<_>>(), ["small", "standard"]);
}

#[test]
fn an_empty_file_is_a_home_without_a_model_on_loopback() {
    let config = Config::parse("", &Env::default()).unwrap();
    assert!(config.has_no_model());
    assert_eq!(config.listen.to_string(), "127.0.0.1:7717");
}

#[test]
fn every_known_key_is_a_field() {
    // A key that the walk lets through and the types refuse would be an error without a line's worth of help.
    for (section, keys) in keys::SECTIONS {
        for key in *keys {
            let fault = faults(&format!("[{section}]\n{key} = true\n"));
            assert!(!fault.contains("unknown"), "{section}.{key}: {fault}");
        }
    }
    for (at, known) in [("", keys::MODEL), ("price.", keys::PRICE), ("limits.", keys::LIMITS)] {
        for key in known {
            let fault = faults(&format!("[models.a]\n{at}{key} = true\n"));
            assert!(!fault.contains("unknown"), "models.{at}{key}: {fault}");
        }
    }
}

#[test]
fn unknown_keys_are_named_all_at_once_with_the_nearest() {
    let text = "[daemon]\nlissten = \"x\"\nbudget = 1\nprovider = 1\n[modles.a]\nx = 1\n[models.a]\nbase_ulr = \"x\"\nprice = { inptu = 1 }\nqqqqqqqqqqqq = 1\n[net]\nusd_per_day = 2\n";
    insta::assert_snapshot!(faults(text), @"
    aos.toml: line 2: unknown key `lissten` in [daemon]
    aos.toml: line 3: unknown key `budget` in [daemon]
    aos.toml: line 4: unknown key `provider` in [daemon]
    aos.toml: line 5: unknown key `modles`
    aos.toml: line 8: unknown key `base_ulr` in [models.a]
    aos.toml: line 9: unknown key `inptu` in [models.a.price]
    aos.toml: line 10: unknown key `qqqqqqqqqqqq` in [models.a]
    aos.toml: line 12: unknown key `usd_per_day` in [net]
    try: did you mean `listen`?
    try: known here: listen, exposed, hosts, default_model
    try: `provider` belongs into [models.NAME]
    try: did you mean `models`?
    try: did you mean `base_url`?
    try: did you mean `input`?
    try: known here: provider, base_url, model, api_key_env, tier, context_window, max_output, price, limits, local, tools, images, reasoning, json_schema, dimension, timeout_s
    try: `usd_per_day` belongs into [budget]
    ");
}

#[test]
fn secrets_are_refused_and_never_shown() {
    let text = "[models.a]\napi_key = \"sk-very-secret\"\nOPENAI_SECRET = \"${HERE}\"\n";
    let shown = faults(text);
    assert!(!shown.contains("very-secret"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    aos.toml: line 2: `api_key` would put a secret into the file
    aos.toml: line 3: `OPENAI_SECRET` would put a secret into the file
    try: keep the key in an environment variable and name that variable: api_key_env = "OPENAI_API_KEY"
    "#);
    let shown =
        faults(&format!("{MODEL}api_key_env = \"sk-very-secret\"\nbase_url = \"https://me:very-secret@h/v1\"\n"));
    assert!(!shown.contains("very-secret"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    aos.toml: line 4: `api_key_env` must be the name of an environment variable, not a key
    aos.toml: line 5: `base_url` holds a user or password
    try: export the key as OPENAI_API_KEY, say, and write api_key_env = "OPENAI_API_KEY"
    try: name the key's variable in api_key_env instead
    "#);
    let shown = faults(&format!(
        "{MODEL}base_url = \"https://h/v1?key=very-secret\"\n[store]\nurl = \"postgres://me:very-secret@h\"\n"
    ));
    assert!(!shown.contains("very-secret"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    aos.toml: line 4: `base_url` holds a query
    aos.toml: line 6: PostgreSQL as the store is not there yet
    try: end it at the path; name a key's variable in api_key_env
    try: write url = "sqlite", or leave it out
    "#);
}

#[test]
fn a_secret_from_the_environment_is_never_shown() {
    let env = Env::from([("KEY", "sk-very-\"secret\""), ("HOST", "very-secret.example"), ("SHORT", "x")]);
    for text in [
        format!("{MODEL}base_url = \"${{KEY}}\"\n"),
        "[daemon]\nlisten = \"${KEY}\"\ndefault_model = \"${KEY}\"\n".into(),
        "[budget]\nusd_per_day = \"${KEY}\"\n".into(),
        "[exec]\nsandbox = \"no ${KEY}\"\n[net]\nallow = [\"${KEY}\"]\nprivate = [\"*.${HOST}:80\"]\n".into(),
    ] {
        let shown = faults_in(&text, &env);
        assert!(!shown.contains("secret") && shown.contains("${"), "{shown}");
    }
    insta::assert_snapshot!(faults_in("[exec]\nsandbox = \"${KEY} ${SHORT}\"\n", &env), @r#"
    aos.toml: line 2: `sandbox` is `${KEY} x`
    try: write sandbox = "required", or in full words what you consent to: sandbox = "unsandboxed: commands run with my rights"
    "#);
}

#[test]
fn variables_are_read_and_missed() {
    let env = Env::from([("MODEL_NAME", "qwen3:8b")]);
    let text = "[models.a]\nprovider = \"openai\"\nmodel = \"x-${MODEL_NAME}-$${y}\"\n";
    assert_eq!(Config::parse(text, &env).unwrap().models["a"].model, "x-qwen3:8b-${y}");
    insta::assert_snapshot!(faults("[models.a]\nprovider = \"openai\"\nmodel = \"${NOT_THERE}\"\nbase_url = \"${no\"\n"), @"
    aos.toml: line 3: the environment variable NOT_THERE is not set
    aos.toml: line 4: a `${` is not followed by a variable's name and `}`
    try: export NOT_THERE, or write the value itself; `$${` stands for a plain `${`
    try: write ${NAME}; `$${` stands for a plain `${`
    ");
}

#[test]
fn a_vector_has_numbers() {
    let model = |dimension: u32| format!("[models.v]\nprovider = \"openai\"\nmodel = \"m\"\ndimension = {dimension}\n");
    insta::assert_snapshot!(faults(&model(0)), @"
    aos.toml: line 4: `dimension` is 0, so a vector would hold nothing
    try: how many numbers the model's vectors have; leave it out for a model that answers
    ");
    assert!(faults(&model(384)).contains("dimension: Some(384)"));
    let read = |text: &str| Config::parse(text, &Env::from([])).unwrap();
    let config = read(&model(384));
    assert!(config.has_no_model() && config.default_model.is_empty(), "nothing there answers: {config:?}");
    assert_eq!(read(&format!("{}{MODEL}", model(384))).default_model, "small");
    let named = format!("[daemon]\ndefault_model = \"v\"\n[router]\nfallback = [\"v\"]\n{}{MODEL}", model(384));
    insta::assert_snapshot!(faults(&named), @"
    aos.toml: line 2: `default_model` names the model `v`, which makes vectors and no answers
    aos.toml: line 4: `fallback` names the model `v`, which makes vectors and no answers
    try: one of small
    ");
}

#[test]
fn what_could_never_work_is_said() {
    let text = "[daemon]\ndefault_model = \"smal\"\n[models.small]\nprovider = \"opnai\"\nmodel = \"\"\nbase_url = \"ftp://x\"\n\
                [models.auto]\nprovider = \"gemini\"\nmodel = \"m\"\n[models.b]\nprovider = \"gemini\"\nmodel = \"m\"\ntimeout_s = 0\n\
                base_url = \"http://x\"\nlimits = { concurrency = 0, rpm = 0, tpm = 0 }\ntools = \"none\"\ntier = \"huge\"\n\
                [models.c]\nprovider = \"gemini\"\nmodel = \"m\"\ncontext_window = 10\n[models.d]\nprovider = \"gemini\"\nmodel = \"m\"\n\
                max_output = 90000\n[models.e]\nprovider = \"gemini\"\nmodel = \"m\"\nprice = { input = -1, output = 1 }\n\
                [models.f]\nprovider = \"local\"\nmodel = \"m\"\nbase_url = \"http://x\"\n[router]\nfallback = [\"q\"]\n[budget]\nusd_per_day = 0\n[exec]\nsandbox = \"off\"\n[store]\nurl = \"redis\"\n\
                [net]\nallow = [\"example.com\"]\nprivate = [\"*.local:80\"]\n";
    insta::assert_snapshot!(faults(text), @r#"
    aos.toml: line 2: `default_model` names the model `smal`, which is not configured
    aos.toml: line 4: no provider `opnai`
    aos.toml: line 5: `model` is empty
    aos.toml: line 6: `ftp://x` is no http or https URL
    aos.toml: line 7: `auto` cannot name a model
    aos.toml: line 15: `concurrency` is 0, so no call could ever be made
    aos.toml: line 15: `rpm` is 0, so no call could ever be made
    aos.toml: line 15: `tpm` is 0, so no call could ever be made
    aos.toml: line 16: no tools `none`
    aos.toml: line 17: no tier `huge`
    aos.toml: line 21: `context_window` is 10 tokens, too few to work in
    aos.toml: line 25: `max_output` is 90000, it must be above 0 and below `context_window` (32768)
    aos.toml: line 29: `price` holds an amount below zero
    aos.toml: line 33: a model inside aos has no `base_url`
    aos.toml: line 35: `fallback` names the model `q`, which is not configured
    aos.toml: line 37: `usd_per_day` is 0, so no paid call could ever be made
    aos.toml: line 39: `sandbox` is `off`
    aos.toml: line 41: `url` names no known store
    aos.toml: line 43: `example.com` does not end in a port
    aos.toml: line 44: `*.local:80` is a pattern, private places are named one by one
    try: did you mean "small"?
    try: did you mean "openai"?
    try: write what the provider calls the model, such as "qwen3:8b"
    try: write it as http://127.0.0.1:11434/v1 or https://HOST/v1
    try: use letters, digits, `.`, `-` and `_`; not `auto`
    try: at least 1; leave it out for the default
    try: one of native, text, constrained
    try: one of nano, small, standard, strong, frontier
    try: at least 1024; see the model's documentation
    try: a quarter of `context_window` is usual
    try: US dollars per million tokens, zero or more
    try: leave it out; `model` is the path of a .gguf file, or the name of one in models/ of the home
    try: one of auto, b, c, d, e, f, small
    try: write an amount above 0 in US dollars; leave it out for no limit
    try: write sandbox = "required", or in full words what you consent to: sandbox = "unsandboxed: commands run with my rights"
    try: write url = "sqlite", or leave it out
    try: write it as "example.com:443", "*.example.org:443" or "127.0.0.1:8080"
    try: write it as "127.0.0.1:8080"
    "#);
}

#[test]
fn a_proxys_names_are_names() {
    let config = Config::parse("[daemon]\nhosts = [\"Hooks.example.com\", \"gate\"]\n", &Env::default()).unwrap();
    assert_eq!(config.hosts, ["Hooks.example.com", "gate"]);
    insta::assert_snapshot!(faults("[daemon]\nhosts = [\"https://a.example\", \"b.example\", \"c:1\", \"\"]\n"), @r#"
    aos.toml: line 2: `https://a.example` is no host name
    aos.toml: line 2: `c:1` is no host name
    aos.toml: line 2: `` is no host name
    try: write it as "hooks.example.com", without `https://` and without a port
    "#);
}

#[test]
fn other_machines_are_let_in_only_in_words() {
    insta::assert_snapshot!(faults("[daemon]\nlisten = \"0.0.0.0:7717\"\n"), @r#"
    aos.toml: line 2: `listen = "0.0.0.0:7717"` would let other machines in
    try: listen on 127.0.0.1, or say below [daemon] that you want it: exposed = "reachable from other machines: whoever holds the token acts as me"
    "#);
    insta::assert_snapshot!(faults("[daemon]\nlisten = \"7717\"\nexposed = \"yes\"\n"), @r#"
    aos.toml: line 2: `listen` is `7717`, not an address with a port
    aos.toml: line 3: `exposed` does not hold the words of consent
    try: write it as "127.0.0.1:7717"; port 0 takes any free one
    try: write exactly exposed = "reachable from other machines: whoever holds the token acts as me"
    "#);
    let text =
        format!("[daemon]\nlisten = \"0.0.0.0:1\"\nexposed = \"{EXPOSED}\"\n[exec]\nsandbox = \"{UNSANDBOXED}\"\n");
    let config = Config::parse(&text, &Env::default()).unwrap();
    assert_eq!((config.listen.port(), config.exec), (1, Exec::Unsandboxed));
}

#[test]
fn the_default_model_is_the_only_one_or_is_asked_for() {
    assert_eq!(Config::parse(MODEL, &Env::default()).unwrap().default_model, "small");
    insta::assert_snapshot!(faults(&format!("{MODEL}[models.b]\nprovider = \"gemini\"\nmodel = \"m\"\n")), @r#"
    aos.toml: `default_model` is missing below [daemon] and there are several models
    try: add default_model = "b", or another of b, small
    "#);
    let auto = Config::parse(&format!("[daemon]\ndefault_model = \"auto\"\n{MODEL}"), &Env::default()).unwrap();
    assert_eq!(auto.default_model, "auto");
    insta::assert_snapshot!(faults("[daemon]\ndefault_model = \"auto\"\n"), @r#"
    aos.toml: line 2: default_model = "auto" has no model to choose from
    try: add a table [models.NAME]; `aos init` looks for models
    "#);
}

#[test]
fn shape_and_syntax_faults_have_their_line() {
    insta::assert_snapshot!(faults("[budget]\nusd_per_day = \"five\"\n"), @r#"
    aos.toml: line 2: invalid type: string "five", expected f64
    try: write a value of that kind
    "#);
    insta::assert_snapshot!(faults("[models.a]\nmodel = \"m\"\n"), @r#"
    aos.toml: line 1: missing field `provider`
    try: add provider = "openai" (and whatever speaks it), "anthropic" or "gemini"
    "#);
    insta::assert_snapshot!(faults("[models\n"), @"
    aos.toml: line 1: unclosed table, expected `]`
    try: see https://toml.io for how values are written
    ");
    insta::assert_snapshot!(faults("[daemon]\nlisten = \"a\"\nlisten = \"b\"\n"), @"
    aos.toml: line 3: duplicate key
    try: see https://toml.io for how values are written
    ");
}

/// A key that is misspelt, at every level of the file, is an error with its line and the key that was meant.
#[test]
fn keys_are_not_silently_ignored() {
    let refused = |text: &str, line: usize, wrong: &str, meant: &str| {
        let Err(ConfigError::Faults { faults, .. }) = Config::parse(text, &Env::default()) else {
            panic!("`{wrong}` was ignored in\n{text}")
        };
        let fault = faults.iter().find(|fault| fault.what.contains(&format!("unknown key `{wrong}`")));
        let fault = fault.unwrap_or_else(|| panic!("nothing of `{wrong}` in {faults:?}"));
        assert_eq!(
            (fault.line, fault.hint.as_str()),
            (Some(line), format!("did you mean `{meant}`?").as_str()),
            "{text}"
        );
    };
    let misspelt = |key: &str| format!("{key}{}", &key[key.len() - 1..]);
    for (section, keys) in keys::SECTIONS {
        let wrong = misspelt(section);
        refused(&format!("\n[{wrong}]\n"), 2, &wrong, section);
        for key in *keys {
            let wrong = misspelt(key);
            refused(&format!("[{section}]\n{wrong} = 1\n"), 2, &wrong, key);
            refused(&format!("{section}.{wrong} = 1\n"), 1, &wrong, key);
        }
    }
    for key in keys::MODEL {
        let wrong = misspelt(key);
        refused(&format!("{MODEL}{wrong} = 1\n"), 4, &wrong, key);
    }
    for (table, keys) in [("price", keys::PRICE), ("limits", keys::LIMITS)] {
        for key in keys {
            let wrong = misspelt(key);
            refused(&format!("{MODEL}{table} = {{ {wrong} = 1 }}\n"), 4, &wrong, key);
            refused(&format!("{MODEL}[models.small.{table}]\n{wrong} = 1\n"), 5, &wrong, key);
        }
    }
    let read = Config::parse(&format!("{MODEL}[router]\nfallback = [\"small\"]\n"), &Env::default()).unwrap();
    assert_eq!(read.configured("").fallback, ["small"]);
    let tiers = format!(
        "{MODEL}tier = \"nano\"\n\
         [models.dear]\nprovider = \"openai\"\nmodel = \"m\"\ntier = \"strong\"\nprice = {{ input = 2, output = 2 }}\n\
         [models.cheap]\nprovider = \"openai\"\nmodel = \"m\"\ntier = \"strong\"\nprice = {{ input = 1, output = 1 }}\n\
         [models.any]\nprovider = \"openai\"\nmodel = \"m\"\ntier = \"strong\"\n\
         [models.vectors]\nprovider = \"openai\"\nmodel = \"m\"\ntier = \"strong\"\ndimension = 4\n\
         [daemon]\ndefault_model = \"small\"\n[router]\nfallback = [\"dear\", \"strong\", \"small\"]\n"
    );
    let read_tiers = Config::parse(&tiers, &Env::default()).unwrap();
    // `small` is a model here, whatever its tier is.
    assert_eq!(read_tiers.configured("").fallback, ["dear", "cheap", "any", "small"]);
    let nobodys = faults(&format!("{MODEL}[router]\nfallback = [\"frontier\"]\n"));
    assert!(nobodys.contains("line 5: `fallback` names the tier `frontier`, and no model has it"), "{nobodys}");
    assert_eq!(read.configured("").hedge_after_ms, None, "nobody is asked beside another where nobody allows it");
    let hedged = |value: &str| Config::parse(&format!("{MODEL}[router]\nhedge_after_s = {value}\n"), &Env::default());
    assert_eq!(hedged("2.5").unwrap().configured("").hedge_after_ms, Some(2500));
    for value in ["0", "-1", "601", "nan", "\"2\""] {
        assert!(hedged(value).is_err(), "{value}");
    }
}

/// `written/` holds what `aos init` wrote in each version, which its own test adds to. All of it must be read for ever.
#[test]
fn an_upgrade_does_not_break_the_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/written");
    let mut read = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|kind| kind == "yaml") {
            assert!(aos_policy::Policy::parse(&text).is_ok(), "{}", path.display());
        } else {
            Config::load(&path, &Env::default()).unwrap_or_else(|error| panic!("{error}"));
        }
        read += 1;
    }
    assert!(read >= 3, "{read} files");
    // And it means what it meant.
    let first = Config::load(&folder.join("0.1.0-models.toml"), &Env::default()).unwrap();
    assert_eq!((first.listen.to_string().as_str(), first.default_model.as_str()), ("127.0.0.1:7717", "auto"));
    assert_eq!((first.usd_per_day, first.exec), (Some(Usd(5_000_000_000)), Exec::Sandboxed));
    assert_eq!(first.models["small"].base_url.as_deref(), Some("http://127.0.0.1:11434/v1"));
    assert_eq!(first.models["haiku"].api_key_env.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert_eq!(first.models["haiku"].price.unwrap().input, Usd(1_000_000_000));
}
