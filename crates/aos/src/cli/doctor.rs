//! `aos doctor`.
//!
//! Start at [`Args::perform`]. Each check is one function that gives findings; nothing is changed, and no daemon started.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::Lsn;
use aos_abi::process::StatusView;
use aos_models::embed::{Embedder, Vector};
use aos_models::{Pool, Provider};
use aos_policy::{Fault, Policy, text_of};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Exit, Failure, clean_line};
use crate::client::Address;
use crate::config::{self, Config};
use crate::daemon::{programs, proof};
use crate::env::Env;
use crate::home::Home;
use crate::local::Local;
use crate::mounts::Mounts;
use crate::secrets::Secrets;

/// Free bytes below which a disk counts as full.
const DISK_FREE_MIN: u64 = 256 << 20;
/// How long a model may take to answer a check.
const MODEL_WITHIN: Duration = Duration::from_secs(30);
/// The same for one inside this program, which is loaded first and then measured.
const LOCAL_WITHIN: Duration = Duration::from_secs(120);

/// Check the host, the home, the configuration and the models, and say how to mend each fault
#[derive(Debug, clap::Args)]
pub struct Args {}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    area: &'static str,
    state: State,
    what: String,
    hint: Option<String>,
    /// What was measured, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// Worth knowing, and no fault.
    Note,
    Fault,
}

impl Finding {
    fn good(area: &'static str, what: impl Into<String>) -> Finding {
        Finding { area, state: State::Good, what: what.into(), hint: None, figures: None }
    }
    fn note(area: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { area, state: State::Note, what: what.into(), hint: Some(hint.into()), figures: None }
    }
    fn fault(area: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding { area, state: State::Fault, what: what.into(), hint: Some(hint.into()), figures: None }
    }
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let mut findings = Vec::new();
        let mut listen = None;
        // What is no folder is no home, and its permissions are nothing to mend.
        if let Err(error @ crate::home::Error::NoFolder { .. }) = cx.home.check_private() {
            findings.push(Finding::fault("home", error.to_string(), error.hint()));
            return tell(cx, &findings);
        }
        if cx.home.is_new() {
            findings.push(Finding::note("home", format!("{} is not made yet", cx.home.root().display()), "aos init"));
        } else {
            findings.extend(home(&cx.home));
            if let Err(error) = cx.home.check_private() {
                findings.push(Finding::fault("home", error.to_string(), error.hint()));
                // Who writes the rest of it says where keys go.
                return tell(cx, &findings);
            }
            if let Err(error) = cx.home.check_writable() {
                findings.push(Finding::fault("home", error.to_string(), error.hint()));
                // What else is tried there would blame something else.
                return tell(cx, &findings);
            }
            findings.extend(disk(&cx.home));
            findings.extend(policy(&cx.home, &Mounts::new(&cx.home, &cx.env)));
            findings.extend(secrets(&cx.home, &cx.env));
            findings.push(journal(&cx.home));
            findings.extend(lost(&cx.home));
            match Config::load(&cx.home.config_file(), &cx.env) {
                Ok(config) => {
                    findings.extend(configuration(&config));
                    listen = Some(config.listen);
                    findings.extend(models(&config, &cx.home, &cx.env, None).await);
                }
                Err(error) => {
                    findings.push(Finding::fault("config", error.to_string(), error.hints().join("\n")));
                }
            }
            findings.extend(daemon(cx, listen).await);
        }
        findings.extend(host(&cx.home));
        findings.extend(folder());
        tell(cx, &findings)
    }
}

/// Shows findings; exit code 1 where one is a fault.
pub(super) fn tell(cx: &Context, findings: &[Finding]) -> Result<Exit, Failure> {
    let faults = findings.iter().filter(|finding| finding.state == State::Fault).count();
    if cx.json {
        cx.document(&json!({ "faults": faults, "findings": findings }))?;
    } else {
        let style = cx.out;
        let mut text = String::new();
        for finding in findings.iter().filter(|finding| !cx.quiet || finding.state == State::Fault) {
            let sign = match finding.state {
                State::Good => style.green("✓ good "),
                State::Note => style.yellow("• note "),
                State::Fault => style.red("✗ FAULT"),
            };
            let mut lines = finding.what.lines();
            text.push_str(&format!("{sign} {:<8} {}\n", finding.area, clean_line(lines.next().unwrap_or(""))));
            for line in lines {
                text.push_str(&format!("{:17} {}\n", "", clean_line(line)));
            }
            for line in finding.hint.iter().flat_map(|hint| hint.lines()) {
                text.push_str(&format!("{:17} try: {}\n", "", clean_line(line)));
            }
        }
        cx.print(&text)?;
        cx.note(&match faults {
            0 => "no faults".to_owned(),
            1 => "1 fault".to_owned(),
            several => format!("{several} faults"),
        });
    }
    Ok(if faults == 0 { Exit::Success } else { Exit::Failed })
}

fn home(home: &Home) -> Vec<Finding> {
    let exposed = home.exposed();
    let private = exposed.is_empty().then(|| Finding::good("home", format!("{} is private", home.root().display())));
    let exposed = exposed.into_iter().map(|(path, mode)| {
        let right = if path.is_dir() { "700" } else { "600" };
        let path = path.display();
        Finding::fault("home", format!("others can read {path} (mode {mode:03o})"), format!("chmod {right} {path}"))
    });
    let exchangeable = home.exchangeable().into_iter().map(|(path, mode)| {
        let path = path.display();
        Finding::note(
            "home",
            format!("every user can exchange what lies in {path} (mode {mode:03o}), and the home does"),
            format!("nothing, if nobody else has an account here; else, as its owner: chmod +t {path}"),
        )
    });
    private.into_iter().chain(exposed).chain(exchangeable).collect()
}

fn disk(home: &Home) -> Option<Finding> {
    let disk = rustix::fs::statvfs(home.root()).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let mebibytes = free >> 20;
    Some(if free < DISK_FREE_MIN {
        Finding::fault(
            "disk",
            format!("only {mebibytes} MiB are free"),
            "make room; aos prune takes old processes out of the journal",
        )
    } else {
        Finding::good("disk", format!("{mebibytes} MiB are free"))
    })
}

fn parsed(bytes: Vec<u8>) -> Result<Policy, Vec<Fault>> {
    Policy::parse(&text_of(bytes).map_err(|fault| vec![fault])?)
}

fn policy(home: &Home, mounts: &Mounts) -> Vec<Finding> {
    let file = home.policy_file();
    match std::fs::read(&file) {
        Err(error) => {
            vec![Finding::fault(
                "policy",
                format!("{}: {error}; everything is denied", file.display()),
                "aos init writes one",
            )]
        }
        Ok(bytes) => match parsed(bytes).and_then(|policy| match mounts.faults(&policy) {
            faults if faults.is_empty() => Ok(policy),
            faults => Err(faults),
        }) {
            Ok(policy) => {
                let missing = mounts
                    .missing(&policy)
                    .into_iter()
                    .chain(programs::missing(&policy, mounts.person()))
                    .chain(programs::unshown(&policy, mounts.person()))
                    .chain(super::policy::unread(&policy));
                let missing = missing.map(|(what, hint)| Finding::note("policy", what, hint));
                let good = Finding::good("policy", format!("generation {}", policy.generation()));
                std::iter::once(good).chain(missing).collect()
            }
            Err(faults) => faults
                .into_iter()
                .map(|fault| {
                    let hint = fault.hint.clone().unwrap_or_else(|| "aos policy check".into());
                    Finding::fault("policy", format!("{}: {fault}", file.display()), hint)
                })
                .collect(),
        },
    }
}

/// Looks whether each secret that the policy names has a value.
fn secrets(home: &Home, env: &Env) -> Vec<Finding> {
    // A policy that cannot be read is a finding of its own.
    let text = std::fs::read_to_string(home.policy_file()).unwrap_or_default();
    let Ok(policy) = Policy::parse(&text) else { return Vec::new() };
    let kept = Secrets::new(home.secrets(), env.clone());
    let roles = policy.roles().filter_map(|name| policy.role(name));
    let names: BTreeSet<&str> = roles.flat_map(|role| &role.secrets).map(|secret| secret.name.as_str()).collect();
    let look = |name: &str| match kept.value(name) {
        Ok(_) => Finding::good("secrets", format!("{name} has a value")),
        Err(error) => Finding::fault("secrets", error.to_string(), error.hint()),
    };
    names.into_iter().map(look).collect()
}

/// What is missing that whoever has a journal has had.
fn lost(home: &Home) -> Vec<Finding> {
    if !matches!(aos_journal::look(&home.journal_file()), Ok(Some(last)) if last > Lsn::ZERO) {
        return Vec::new();
    }
    let memory = crate::daemon::Error::Memory(home.memory_file());
    let memory = (!home.memory_file().exists()).then(|| Finding::fault("home", memory.to_string(), memory.hint()));
    let folders = home.lost().into_iter().filter(|folder| *folder != home.memory()).map(|folder| {
        Finding::fault(
            "home",
            format!("{} is missing", folder.display()),
            "put it back, or `aos restore FILE` from a backup; the next start makes an empty one",
        )
    });
    memory.into_iter().chain(folders).collect()
}

/// Looks at the journal as a start would.
fn journal(home: &Home) -> Finding {
    match aos_journal::look(&home.journal_file()) {
        Ok(None) => Finding::good("journal", "none yet"),
        Ok(Some(last)) => proven(home, last),
        Err(error) => {
            let error = error.located(&home.journal_file());
            Finding::fault("journal", error.to_string(), error.hint())
        }
    }
}

/// How far it was proven that nobody has altered it: that is looked at beside the daemon, and not now.
fn proven(home: &Home, last: Lsn) -> Finding {
    let all = "aos audit verify proves all of them now";
    match proof::proven(home) {
        None => Finding::good("journal", format!("the last entry is {last}, and none was proven yet; {all}")),
        Some(proven) => {
            let age = age(proven.age_s);
            let upto = format!("the last entry is {last}; those up to {} were proven unaltered {age} ago", proven.upto);
            match proven.untouched || home.holds_journal() {
                true => Finding::good("journal", format!("{upto}; {all}")),
                false => Finding::note(
                    "journal",
                    format!("{upto}, and its file was written since: the daemon was killed, or it was somebody else"),
                    all,
                ),
            }
        }
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn configuration(config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding::good("config", format!("listens on {}", config.listen))];
    if config.exec == config::Exec::Unsandboxed {
        findings.push(Finding::note(
            "config",
            "commands of agents run without a sandbox, as you consented to",
            "remove `sandbox` below [exec]",
        ));
    }
    if !config.listen.ip().is_loopback() {
        findings.push(Finding::note(
            "config",
            "other machines can connect, as you consented to",
            "listen on 127.0.0.1",
        ));
    }
    if config.usd_per_day.is_none() && config.models.values().any(|model| !model.local()) {
        findings.push(Finding::note(
            "config",
            "there is no limit to what a day may cost",
            "usd_per_day below [budget]",
        ));
    }
    findings
}

/// Asks each model (or one) for a short answer; those inside this program say how fast they are.
pub(super) async fn models(config: &Config, home: &Home, env: &Env, only: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.has_no_model() && only.is_none() {
        findings.push(Finding::note(
            "model",
            "none is configured: nano answers, the small model inside aos",
            "start a model server or export a key, then aos init; or add a table [models.NAME] to aos.toml",
        ));
    }
    let keys = env.clone();
    let serving = config.serving();
    let pool = Pool::new(
        serving.clone(),
        Arc::new(move |name: &str| keys.text(name).map(str::to_owned)),
        aos_models::Options::default(),
    );
    let local = Arc::new(Local::new(home));
    let pool = pool.with_embedder(Arc::clone(&local) as Arc<dyn Embedder>);
    let checks = serving.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).map(|(name, model)| {
        let (pool, local) = (&pool, &local);
        async move {
            if model.dimension.is_some() {
                let within = if model.provider == Provider::Local { LOCAL_WITHIN } else { MODEL_WITHIN };
                return embedded(name, &model.model, pool, within).await;
            }
            if model.provider == Provider::Local {
                return measured(name, &model.model, local).await;
            }
            let place = format!("{name} ({})", model.address());
            match tokio::time::timeout(MODEL_WITHIN, pool.check(name)).await {
                Ok(Ok(checked)) => {
                    Finding::good("model", format!("{place} answers in {} ms", checked.latency.as_millis()))
                }
                Ok(Err(failure)) => {
                    let hint = failure.hint.unwrap_or_else(|| format!("check [models.{name}] in aos.toml"));
                    Finding::fault("model", format!("{place}: {}", failure.message), hint)
                }
                Err(_) => {
                    let late = format!("{place} has not answered within {} s", MODEL_WITHIN.as_secs());
                    Finding::fault("model", late, "look at the model's server; it may still be loading")
                }
            }
        }
    });
    findings.extend(futures_util::future::join_all(checks).await);
    findings
}

/// How fast a model inside this program is on this machine.
async fn measured(name: &str, model: &str, local: &Local) -> Finding {
    match tokio::time::timeout(LOCAL_WITHIN, local.measure(model)).await {
        Ok(Ok(speed)) => {
            let (cold_ms, prefill) = (speed.cold.as_millis() as u64, speed.prefill.round());
            let decode = speed.decode.map(f64::round);
            let writes = decode.map_or(String::new(), |decode| format!(" and writes {decode}"));
            let what =
                format!("{name} ({model}) reads {prefill}{writes} tokens a second; {cold_ms} ms from a cold start");
            let figures = json!({
                "model": name, "cold_start_ms": cold_ms, "prefill_tokens_per_s": prefill, "decode_tokens_per_s": decode,
            });
            Finding { figures: Some(figures), ..Finding::good("model", what) }
        }
        Ok(Err(fault)) => Finding::fault("model", format!("{name} ({model}): {fault}"), fault.hint()),
        Err(_) => {
            let late = format!("{name} ({model}) has not answered within {} s", LOCAL_WITHIN.as_secs());
            Finding::fault("model", late, "use a smaller model, or a model server with an accelerator")
        }
    }
}

/// How many sentences a model makes vectors of in a second, seen from here.
async fn embedded(name: &str, model: &str, pool: &Pool, within: Duration) -> Finding {
    let sentences: Vec<String> = (0..64).map(|nth| format!("Sentence {nth}: a note of a day, to be found.")).collect();
    let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let measure = async {
        let began = Instant::now();
        // The first one alone: whatever is not loaded yet is loaded for it.
        let vectors = pool.embed(name, &["A first sentence."]).await?;
        let cold = began.elapsed();
        let began = Instant::now();
        pool.embed(name, &sentences).await?;
        Ok((vectors.first().map_or(0, Vector::dimension), cold, sentences.len() as f64 / began.elapsed().as_secs_f64()))
    };
    match tokio::time::timeout(within, measure).await {
        Ok(Ok((dimension, cold, rate))) => {
            let (cold_ms, rate) = (cold.as_millis() as u64, rate.round());
            let what = format!(
                "{name} ({model}) makes vectors of {dimension} numbers of {rate} sentences a second; {cold_ms} ms for the first"
            );
            let figures = json!({
                "model": name, "dimension": dimension, "sentences_per_s": rate, "cold_start_ms": cold_ms,
            });
            Finding { figures: Some(figures), ..Finding::good("model", what) }
        }
        Ok(Err(failure)) => {
            let failure: aos_abi::inference::Failure = failure;
            let hint = failure.hint.unwrap_or_else(|| format!("check [models.{name}] in aos.toml"));
            Finding::fault("model", format!("{name} ({model}): {}", failure.message), hint)
        }
        Err(_) => {
            let late = format!("{name} ({model}) has made no vectors within {} s", within.as_secs());
            Finding::fault("model", late, "look at the model's server; it may still be loading")
        }
    }
}

async fn daemon(cx: &Context, listen: Option<SocketAddr>) -> Vec<Finding> {
    let status = match cx.client_without_start().get::<StatusView>(&Address::of("/v1/status")).await {
        Ok(status) => status,
        Err(crate::client::Error::NoDaemon { .. }) => {
            return vec![Finding::good("daemon", "does not run; the next command starts it")];
        }
        Err(error) => {
            let failure = Failure::from(error);
            return vec![Finding::fault("daemon", failure.what, failure.hints.join("\n"))];
        }
    };
    let changed = (!status.changed.is_empty()).then(|| {
        Finding::note(
            "daemon",
            format!("since the start before that one these changed: {}", status.changed.join(", ")),
            "nothing, if that was you; `aos audit export` shows each start as `measured`",
        )
    });
    std::iter::once(running(&status, listen)).chain(changed).collect()
}

/// What is to be said first of a daemon that runs.
fn running(status: &StatusView, listen: Option<SocketAddr>) -> Finding {
    let other = listen.filter(|at| at.port() != 0 && at.to_string() != status.listen);
    match (status, other) {
        (StatusView { altered: Some(fault), .. }, _) => Finding::fault(
            "daemon",
            format!("runs, and the journal was ALTERED: {fault}"),
            "aos audit verify proves all of it; aos restore goes back to a backup",
        ),
        (StatusView { taken: Some(why), .. }, _) => Finding::fault(
            "daemon",
            format!("runs, on its Unix socket alone: {why}"),
            "end it, or set another `listen` in aos.toml; then aos down. What programs sent there is known to that user",
        ),
        (StatusView { version, .. }, _) if version != env!("CARGO_PKG_VERSION") => Finding::fault(
            "daemon",
            format!("runs as version {version}, this program is {}", env!("CARGO_PKG_VERSION")),
            "aos down, then aos up",
        ),
        (StatusView { ahead_s: Some(seconds), .. }, _) => Finding::note(
            "daemon",
            format!("runs, and {}", super::status::ahead(*seconds)),
            "nothing, if this machine's clock is right by now; else set it",
        ),
        (_, Some(at)) => Finding::note(
            "daemon",
            format!("runs, listening on {}, while aos.toml says {at}", status.listen),
            "aos down, and the next start tries that again; if another program has it, set another `listen`",
        ),
        (_, None) => Finding::good("daemon", format!("runs, listening on {}", status.listen)),
    }
}

fn host(home: &Home) -> Vec<Finding> {
    let workspaces = home.workspaces();
    let state = if workspaces.exists() { workspaces } else { std::env::temp_dir() };
    match aos_sandbox::probe(&aos_sandbox::Helper::default(), &state) {
        Err(error) => vec![Finding::fault("host", format!("the sandbox cannot be tried: {error}"), "reinstall aos")],
        Ok(report) => {
            let mut findings = vec![Finding::good("host", format!("Linux {}", report.kernel))];
            findings.extend(report.findings.iter().map(|finding| match (&finding.state, finding.needed) {
                (Ok(state), _) => Finding::good("host", format!("{}: {state}", finding.feature)),
                (Err(why), true) => {
                    Finding::fault("host", format!("{}: {why}", finding.feature), finding.feature.remedy())
                }
                (Err(why), false) => {
                    Finding::note("host", format!("{}: {why}", finding.feature), finding.feature.remedy())
                }
            }));
            findings
        }
    }
}

/// What commands could not change of the folder that this is asked in, which a person may name with `-w`.
fn folder() -> Option<Finding> {
    let here = std::env::current_dir().ok()?;
    let meta = std::fs::metadata(&here).ok()?;
    // A folder in which everybody has their own files is nobody's to work in.
    let shared = std::os::unix::fs::MetadataExt::mode(&meta) & 0o1000 != 0;
    if shared || rustix::fs::access(&here, rustix::fs::Access::WRITE_OK).is_err() {
        return None;
    }
    let found = aos_sandbox::foreign(&here, |_| true)?;
    Some(Finding::note("folder", format!("in {}: {found}", here.display()), found.remedy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_nothing_to_remark_on() {
        let model = "[models.a]\nprovider = \"gemini\"\nmodel = \"m\"\n[budget]\nusd_per_day = 1\n";
        let findings = |text: &str| configuration(&Config::parse(text, &Env::default()).unwrap());
        for text in [model, &format!("{model}[router]\nfallback = [\"a\"]\n")] {
            assert_eq!(findings(text), [Finding::good("config", "listens on 127.0.0.1:7717")]);
        }
    }
}
