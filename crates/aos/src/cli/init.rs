//! `aos init`, which also runs by itself where a home is missing.
//!
//! Start at [`make`], and at [`add_models`] for a home that is there. What always holds: nothing that a person wrote is
//! overwritten or moved; the files are written whole or not at all.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use aos_models::discover::{self, Candidate, Found, Probe};
use aos_policy::Policy;

use super::{Context, Exit, Failure};
use crate::config::{CONTEXT_WINDOW_MIN, Config, TEMPLATE};
use crate::env::Env;
use crate::home::Home;
use crate::listeners;

/// The word for whatever the router chooses.
const AUTO: &str = "auto";
/// The port of HTTP where it is free.
const PORT: u16 = 7717;
/// How many ports above it are tried: other homes of this machine.
const PORTS: u16 = 50;

/// Make the home: a commented aos.toml and policy.yaml, with the models that are found
#[derive(Debug, clap::Args)]
#[command(after_help = "Nothing that is there is overwritten. Without a model, the small one inside aos answers; \
in such a home `aos init` looks again, and adds what it finds to the end of aos.toml.")]
pub struct Args {}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let mut made = make(&cx.home, &cx.env)?;
        if made.models.is_empty() && made.written.is_empty() {
            made = add_models(&cx.home, &cx.env, made)?;
        }
        let stale = !made.added.is_empty() && std::os::unix::net::UnixStream::connect(cx.home.socket()).is_ok();
        if cx.json {
            let default = Some(&made.default_model).filter(|name| !name.is_empty());
            cx.document(&serde_json::json!({
                "home": cx.home.root(), "written": made.written, "models": made.models, "default_model": default,
                "added": made.added, "left_out": made.left, "notes": made.notes, "nano": made.models.is_empty(),
            }))?;
        } else {
            for line in made.lines() {
                cx.note(&line);
            }
            if stale {
                cx.note("the daemon that runs does not know them yet: aos down; the next command starts it with them");
            }
        }
        Ok(Exit::Success)
    }
}

/// What was made, and what holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    written: Vec<PathBuf>,
    /// Models that came into a file that was there.
    added: Vec<String>,
    models: Vec<String>,
    default_model: String,
    reasons: Vec<String>,
    /// Servers that were not taken.
    left: Vec<String>,
    notes: Vec<String>,
}

impl Made {
    /// In words.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.written.iter().map(|path| format!("wrote {}", path.display())).collect();
        lines.extend(self.added.iter().map(|name| format!("added [models.{name}] to aos.toml")));
        if lines.is_empty() {
            lines.push("everything is there already; nothing was changed".into());
        }
        lines.extend(self.reasons.iter().map(|reason| format!("found: {reason}")));
        lines.extend(self.left.iter().map(|why| format!("left out: {why}")));
        lines.extend(self.notes.iter().cloned());
        lines.push(match self.models.as_slice() {
            [] => "no model was found: nano, the small one inside aos, answers until `aos init` finds one or you add it to aos.toml".into(),
            [only] => format!("the model is `{only}`"),
            several if self.default_model == AUTO => {
                format!("the router chooses among {}: `aos models route` says which and why", several.join(", "))
            }
            several => format!("the model is `{}`, of {}", self.default_model, several.join(", ")),
        });
        lines
    }
}

/// Makes what is missing of a home.
///
/// # Errors
/// Where a file cannot be written, or the `aos.toml` that is there cannot be used.
pub(super) fn make(home: &Home, env: &Env) -> Result<Made, Failure> {
    home.prepare()?;
    let mut written = Vec::new();
    let mut write = |path: PathBuf, text: &dyn Fn() -> String| {
        if !path.exists() {
            Home::write_private(&path, &text())?;
            written.push(path);
        }
        Ok::<(), Failure>(())
    };
    // The policy first: where a crash comes between the two, the home counts as new still.
    write(home.policy_file(), &|| Policy::default_text().to_owned())?;
    let (found, left) = if home.is_new() {
        let (found, left) = discover(env);
        (fitting(found, env), left)
    } else {
        Default::default()
    };
    write(home.config_file(), &|| config_text(free_port(), &found))?;
    home.token()?;
    let config = Config::load(&home.config_file(), env)?;
    let models = config.models.keys().cloned().collect();
    let (reasons, notes) = told(found);
    Ok(Made { written, added: Vec::new(), models, default_model: config.default_model, reasons, left, notes })
}

/// What is found, as far as an `aos.toml` with it can be read: no server's word makes a home that cannot be used.
fn fitting(found: Found, env: &Env) -> Found {
    let Err(error) = Config::parse(&config_text(PORT, &found), env) else { return found };
    let why = super::clean_line(&error.to_string());
    let mut notes = found.notes;
    notes.push(format!("what was found does not fit into aos.toml, so nothing of it was taken: {why}"));
    Found { notes, ..Found::default() }
}

/// Looks for models again and adds them to an `aos.toml` that has none.
fn add_models(home: &Home, env: &Env, made: Made) -> Result<Made, Failure> {
    let (found, left) = discover(env);
    if found.models.is_empty() {
        let notes = told(found).1;
        return Ok(Made { left, notes, ..made });
    }
    // A link stays one: what it leads to is written.
    let file = home.config_file().canonicalize().unwrap_or_else(|_| home.config_file());
    let old = std::fs::read_to_string(&file).map_err(|error| {
        Failure::new(format!("cannot read {}", file.display())).why(error.to_string()).hint("check its permissions")
    })?;
    let new = with_models(&old, &found);
    let config = Config::parse(&new, env).map_err(|error| {
        Failure::new("the models that were found do not fit into aos.toml as it is written; nothing was changed")
            .why(error.to_string())
            .hint(format!("add them yourself:\n{}", tables(&found.models).trim()))
    })?;
    Home::write_private(&file, &new)?;
    let added = found.models.iter().map(|candidate| candidate.name.clone()).collect();
    let models = config.models.keys().cloned().collect();
    let (reasons, notes) = told(found);
    Ok(Made { added, models, default_model: config.default_model, reasons, left, notes, ..made })
}

/// What is said of what was found: the reason for each model, and notes.
fn told(found: Found) -> (Vec<String>, Vec<String>) {
    let mut notes = found.notes;
    if !found.proposed.is_empty() {
        let names: Vec<&str> = found.proposed.iter().map(|candidate| candidate.config.model.as_str()).collect();
        notes.push(format!("commented out in aos.toml, since the price is not known here: {}", names.join(", ")));
    }
    (found.models.into_iter().map(|candidate| candidate.reason).collect(), notes)
}

/// The text of an `aos.toml` with these models behind everything else, and the router before several.
fn with_models(text: &str, found: &Found) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let [_, _, ..] = &found.models[..] {
        let default = format!("default_model = \"{AUTO}\"");
        let is_daemon = |line: &String| line.split('#').next().is_some_and(|code| code.trim() == "[daemon]");
        match lines.iter().position(is_daemon) {
            Some(at) => lines.insert(at + 1, default),
            None => lines.extend([String::new(), "[daemon]".to_owned(), default]),
        }
    }
    format!("{}\n{}{}", lines.join("\n"), tables(&found.models), proposals(&found.proposed))
}

/// The models of this machine and of the environment's keys, the best choice first, with the reason for each; and what
/// was left out.
fn discover(env: &Env) -> (Found, Vec<String>) {
    let keys = env.clone();
    let lookup: aos_models::Env = Arc::new(move |name: &str| keys.text(name).map(str::to_owned));
    let (probes, left) = trusted(discover::known_servers(&lookup));
    let accounts = discover::known_accounts();
    let mut found = apart(discover::discover(&probes, &accounts, &lookup)).unwrap_or_default();
    // A window smaller than that is refused in aos.toml.
    for models in [&mut found.models, &mut found.proposed] {
        models.retain(|candidate| candidate.config.context_window >= CONTEXT_WINDOW_MIN);
    }
    (found, left)
}

/// Waits for something on a thread with a runtime of its own, since this runs inside of others; `None` where there is none.
fn apart<T: Send>(what: impl Future<Output = T> + Send) -> Option<T> {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let came = runtime.block_on(what);
        // Whoever asks for the address of a host waits for as long as that takes, which nothing cuts short.
        runtime.shutdown_background();
        Some(came)
    };
    std::thread::scope(|scope| scope.spawn(wait).join().ok().flatten())
}

/// The servers that no other person of this machine runs, and why the rest is left out. A model of this machine is shown
/// what is personal, so whoever took a usual port first would read it.
fn trusted(probes: Vec<Probe>) -> (Vec<Probe>, Vec<String>) {
    let mut left = Vec::new();
    let ours = |probe: &Probe| {
        let at: Option<SocketAddr> = probe.root.strip_prefix("http://").and_then(|at| at.parse().ok());
        let Some(user) = at.and_then(listeners::stranger).filter(|user| listeners::is_a_person(*user)) else {
            return true;
        };
        left.push(format!(
            "{} is run by the user {user} and would read what your agents do; if you trust it, add a [models.NAME] with that base_url to aos.toml",
            probe.root
        ));
        false
    };
    let kept = probes.into_iter().filter(ours).collect();
    (kept, left)
}

/// The text of a new `aos.toml`.
pub(super) fn config_text(port: u16, found: &Found) -> String {
    let default = match &found.models[..] {
        [] => "# The model of a process that names none. Without any model the small one inside aos answers.\n# default_model = \"small\"".to_owned(),
        [only] => format!("# The model of a process that names none.\ndefault_model = \"{}\"", only.name),
        _ => format!(
            "# The model of a process that names none; \"{AUTO}\": the lowest tier that does it (`aos models route` says which).\n\
             default_model = \"{AUTO}\""
        ),
    };
    TEMPLATE
        .replace("@LISTEN@", &format!("{}:{port}", Ipv4Addr::LOCALHOST))
        .replace("@DEFAULT_MODEL@", &default)
        .replace("@MODELS@", &format!("{}{}", tables(&found.models), proposals(&found.proposed)))
}

/// The tables of models, each with the reason why it is there.
fn tables(models: &[Candidate]) -> String {
    models
        .iter()
        .map(|Candidate { name, config, reason }| {
            let fields = toml::to_string(config).expect("a model is plain data with string keys");
            // Tables inside a model's table need its name in front.
            let fields = fields.replace("\n[", &format!("\n[models.{name}."));
            format!("\n# {}\n[models.{name}]\n{fields}", super::clean_line(reason))
        })
        .collect()
}

/// The tables of models that a person may take in, as comments, with the price to fill in.
fn proposals(models: &[Candidate]) -> String {
    // No configuration as it stands, so that nobody takes it in without.
    let price = "price = { input = LOOK_UP, output = LOOK_UP }   # US dollars per million tokens\n";
    let commented = |model: &Candidate| {
        let table = tables(std::slice::from_ref(model));
        // Before the tables inside it, which end the model's own keys.
        let at = table.find("\n[models.").and_then(|from| table[from + 1..].find("\n[").map(|to| from + 1 + to + 1));
        let (own, inner) = table.split_at(at.unwrap_or(table.len()));
        let whole = format!("{}\n{price}{inner}", own.trim_end());
        let comment = |line: &str| {
            if line.is_empty() || line.starts_with("# ") { format!("{line}\n") } else { format!("# {line}\n") }
        };
        whole.lines().map(comment).collect::<String>()
    };
    models.iter().map(commented).collect()
}

/// The first port from [`PORT`] on that nobody listens on now.
fn free_port() -> u16 {
    (PORT..PORT + PORTS).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use aos_models::config::{ModelConfig, Provider};

    use super::*;

    fn of(models: Vec<Candidate>) -> Found {
        Found { models, ..Found::default() }
    }

    #[test]
    fn what_is_written_can_be_read_and_is_not_written_twice() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let made = make(&home, &Env::default()).unwrap();
        assert_eq!(made.written, [home.policy_file(), home.config_file()]);
        assert_eq!(home.exposed(), vec![]);
        std::fs::write(home.config_file(), "[budget]\nusd_per_day = 1\n").unwrap();
        let again = make(&home, &Env::default()).unwrap();
        assert_eq!(again.written, Vec::<PathBuf>::new());
        assert_eq!(std::fs::read_to_string(home.config_file()).unwrap(), "[budget]\nusd_per_day = 1\n");
        assert!(Policy::parse(&std::fs::read_to_string(home.policy_file()).unwrap()).is_ok());
    }

    /// A name whose server does not answer is looked up for as long as the resolver tries, long after two seconds.
    #[test]
    fn what_a_search_began_and_cannot_end_holds_nobody_up() {
        let (done, until_then) = std::sync::mpsc::channel::<()>();
        let began = std::time::Instant::now();
        let found = apart(async {
            // As a look-up does it: on a thread that nothing stops.
            tokio::task::spawn_blocking(move || until_then.recv_timeout(std::time::Duration::from_secs(20)));
            "found"
        });
        assert_eq!(found, Some("found"));
        assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
        drop(done);
    }

    /// A new home could not be used, and nothing was left to do but to mend its file.
    #[test]
    fn a_model_that_cannot_be_configured_spoils_no_new_home() {
        let found = |model: &str| {
            let config = ModelConfig::new(Provider::Openai, model);
            of(vec![Candidate { name: "small".into(), config, reason: "it answers".into() }])
        };
        assert_eq!(fitting(found("qwen3:8b"), &Env::default()), found("qwen3:8b"));
        let fits = fitting(found(" "), &Env::default());
        assert_eq!((fits.models.len(), fits.notes.len()), (0, 1), "{fits:?}");
        assert!(Config::parse(&config_text(PORT, &fits), &Env::default()).unwrap().has_no_model());
    }

    #[test]
    fn the_template_with_and_without_models_is_a_configuration() {
        let config = Config::parse(&config_text(7717, &Found::default()), &Env::default()).unwrap();
        assert!(config.has_no_model());
        let mut model = ModelConfig::new(Provider::Openai, "qwen3:8b");
        model.base_url = Some("http://127.0.0.1:11434/v1".into());
        model.price = Some(aos_abi::model::Price::default());
        let found = |name: &str, config| Candidate { name: name.into(), config, reason: "it\nanswers".into() };
        let models = [found("small", model.clone()), found("b", ModelConfig::new(Provider::Gemini, "g"))];
        let config = Config::parse(&config_text(7718, &of(models.to_vec())), &Env::default()).unwrap();
        assert_eq!((config.listen.port(), config.default_model.as_str()), (7718, "auto"));
        assert_eq!(config.models["small"], model);
    }

    #[test]
    fn a_server_that_another_person_runs_is_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let root = format!("http://{}", listener.local_addr().unwrap());
        let probe = |root: &str| Probe { name: "ollama".into(), server: "Ollama".into(), root: root.into() };
        let probes = vec![probe(&root), probe("http://127.0.0.1:1")];
        assert_eq!(trusted(probes.clone()), (probes.clone(), vec![]));
        // Only root can give a socket away.
        if std::os::unix::fs::fchown(&listener, Some(4242), None).is_ok() {
            let (kept, left) = trusted(probes.clone());
            assert_eq!(kept, probes[1..]);
            assert!(left.len() == 1 && left[0].contains(&root) && left[0].contains("user 4242"), "{left:?}");
            std::os::unix::fs::fchown(&listener, Some(998), None).unwrap();
            assert_eq!(trusted(probes.clone()).0, probes, "a service of the system");
        }
    }

    #[test]
    fn models_come_behind_what_a_person_wrote() {
        let found = |name: &str| Candidate {
            name: name.into(),
            config: ModelConfig::new(Provider::Gemini, "g"),
            reason: "a key".into(),
        };
        for before in ["", "# mine\n[daemon] # here\nlisten = \"127.0.0.1:0\"", &config_text(7717, &Found::default())] {
            for models in [vec![found("a")], vec![found("b"), found("a")]] {
                let after = with_models(before, &of(models.clone()));
                let config = Config::parse(&after, &Env::default()).unwrap_or_else(|error| panic!("{error}\n{after}"));
                let default = if models.len() > 1 { AUTO } else { &models[0].name };
                assert_eq!((config.models.len(), config.default_model.as_str()), (models.len(), default), "{after}");
                let mut lines = after.lines();
                assert!(before.lines().all(|line| lines.any(|other| other == line)), "a line is gone:\n{after}");
            }
        }
    }

    #[test]
    fn a_model_whose_price_is_not_known_is_a_comment_that_can_be_taken_in() {
        let mut config = ModelConfig::new(Provider::Openai, "gpt-9-pro");
        config.api_key_env = Some("OPENAI_API_KEY".into());
        let proposed = vec![Candidate { name: "dear".into(), config, reason: "gpt-9-pro is listed".into() }];
        let found = Found { proposed, ..Found::default() };
        for text in [config_text(7717, &found), with_models("", &found)] {
            assert!(Config::parse(&text, &Env::default()).unwrap().has_no_model(), "{text}");
            let at = text.find("# gpt-9-pro is listed").unwrap();
            let (before, rest) = text.split_at(at);
            let (table, behind) = rest.split_once("\n\n").unwrap_or((rest, ""));
            let lines = table.lines().skip(1).map(|line| line.strip_prefix("# ").unwrap());
            let table = format!("{}\n{behind}", lines.collect::<Vec<_>>().join("\n"));
            assert!(Config::parse(&format!("{before}{table}"), &Env::default()).is_err(), "without a price:\n{table}");
            let table = table.replace("LOOK_UP", "15.0");
            let taken = Config::parse(&format!("{before}{table}"), &Env::default());
            let taken = taken.unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(taken.models["dear"].model, "gpt-9-pro");
            assert!(taken.models["dear"].price.is_some(), "{text}");
        }
        let (_, notes) = told(found);
        assert!(notes[0].contains("gpt-9-pro") && notes[0].contains("price"), "{notes:?}");
    }

    /// What this version writes is kept in `config/written/`, where a test of `config` reads what every version wrote.
    /// Where this fails, add files for the new version there; those of released versions stay as they are.
    #[test]
    fn what_is_written_is_kept_for_later_versions() {
        let mut local = ModelConfig::new(Provider::Openai, "qwen3:8b");
        local.base_url = Some("http://127.0.0.1:11434/v1".into());
        let mut cloud = ModelConfig::new(Provider::Anthropic, "claude-haiku-4-5");
        cloud.api_key_env = Some("ANTHROPIC_API_KEY".into());
        cloud.price = Some(aos_abi::model::Price { input: aos_abi::Usd(1_000_000_000), ..Default::default() });
        let found = |name: &str, config, reason: &str| Candidate { name: name.into(), config, reason: reason.into() };
        let models = [found("small", local, "a server answers"), found("haiku", cloud, "a key is set")];
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/written");
        let version = env!("CARGO_PKG_VERSION");
        for (name, written) in [
            (format!("{version}.toml"), config_text(7717, &Found::default())),
            (format!("{version}-models.toml"), config_text(7717, &of(models.to_vec()))),
            (format!("{version}-policy.yaml"), Policy::default_text().to_owned()),
        ] {
            let path = folder.join(&name);
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(kept == written, "{} is not what this version writes:\n{written}", path.display());
        }
    }

    #[test]
    fn every_commented_default_is_one() {
        // Each example in the template, taken in, must be a configuration.
        let text: String = config_text(7717, &Found::default())
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest)
                    if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) =>
                {
                    format!("{rest}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let config = Config::parse(&text, &Env::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config.models["small"].context_window, 32_768);
        assert_eq!(config.default_model, "small");
    }
}
