//! `aos policy`.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use aos_abi::Pid;
use aos_abi::api::{CallView, ExplainRequest, ExplainView};
use aos_abi::process::PolicyView;
use aos_journal::Reader;
use aos_policy::address::Listens;
use aos_policy::{FILE_BYTES_MAX, Fault, Policy};

use super::clean::clean_line;
use super::decisions::Turned;
use super::progress::Progress;
use super::{Context, Exit, Failure, cut, source};
use crate::client::Address;
use crate::config::Config;
use crate::daemon::programs;
use crate::mounts::Mounts;

/// Check the policy, and ask it what it would say
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos policy check\n  aos policy reload\n  aos policy explain 7 'FS_WRITE {\"path\":\"a\"}'\n  aos policy diff old.yaml\n  aos policy test expectations.yaml"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say whether a policy file can be used, with every fault and its line
    Check {
        /// The file [default: the home's policy.yaml]
        file: Option<PathBuf>,
    },
    /// Take the file as it is now, as the daemon does by itself when it changes; with a fault the old one stays
    Reload,
    /// Say what the policy would do with a call of a process, and which rule decides; nothing is done
    Explain {
        /// Whose call
        pid: Pid,
        /// The call: its name and its arguments as JSON
        #[arg(required = true, num_args = 1.., value_name = "CALL")]
        call: Vec<String>,
    },
    /// Check what a policy must say, from a file of expectations; exits 1 where one is not met
    Test {
        /// The expectations: a list of {call: FS_READ, args: {path: a}, verdict: allow}
        expectations: PathBuf,
        /// The policy [default: the home's policy.yaml]
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Show what becomes possible (+) and what becomes impossible (-), with an example of each, and which of the last
    /// 10,000 recorded decisions would be others
    Diff {
        /// The old policy
        old: PathBuf,
        /// The new one [default: the home's policy.yaml]
        new: Option<PathBuf>,
    },
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        match self.command {
            Command::Check { file } => check(cx, file.unwrap_or_else(|| cx.home.policy_file())),
            Command::Reload => reload(cx).await,
            Command::Explain { pid, call } => explain(cx, pid, &call.join(" ")).await,
            Command::Test { expectations, policy } => {
                test(cx, &expectations, &policy.unwrap_or_else(|| cx.home.policy_file()))
            }
            Command::Diff { old, new } => diff(cx, &old, &new.unwrap_or_else(|| cx.home.policy_file())),
        }
    }
}

async fn reload(cx: &Context) -> Result<Exit, Failure> {
    let view: PolicyView = cx.client()?.post(&Address::of("/v1/policy/reload"), &serde_json::json!({})).await?;
    if cx.json {
        cx.document(&view)?;
    } else {
        let ended = match view.ended {
            0 => String::new(),
            1 => "; 1 open question ended, and its call is decided anew where it is made again".to_owned(),
            more => {
                format!("; {more} open questions ended, and their calls are decided anew where they are made again")
            }
        };
        cx.note(&format!("generation {} holds{ended}", view.generation));
    }
    Ok(Exit::Success)
}

fn check(cx: &Context, file: PathBuf) -> Result<Exit, Failure> {
    let policy = load(cx, &file)?;
    // A daemon takes none that others could change.
    if file == cx.home.policy_file() {
        cx.home.check_private().map_err(|error| {
            Failure::new(format!("{} cannot be used", file.display())).why(error.to_string()).hint(error.hint())
        })?;
    }
    let mounts = Mounts::new(&cx.home, &cx.env);
    let faults = mounts.faults(&policy);
    if !faults.is_empty() {
        return Err(refused(&file, &faults));
    }
    let missing = mounts.missing(&policy);
    let programs: Vec<(String, String)> = programs::missing(&policy, mounts.person())
        .into_iter()
        .chain(programs::unshown(&policy, mounts.person()))
        .chain(in_vain(cx, &policy))
        .chain(unread(&policy))
        .collect();
    if cx.json {
        let what = |(what, _): &(String, String)| what.clone();
        let (warnings, notes): (Vec<_>, Vec<_>) =
            (missing.iter().map(what).collect(), programs.iter().map(what).collect());
        cx.document(&serde_json::json!({
            "file": file, "good": true, "generation": policy.generation(), "warnings": warnings, "notes": notes,
        }))?;
    } else {
        let warnings = missing.iter().map(|said| ("warning", said));
        for (kind, (what, hint)) in warnings.chain(programs.iter().map(|said| ("note", said))) {
            cx.note(&format!("{kind}: {}\n  try: {}", clean_line(what), clean_line(hint)));
        }
        cx.note(&format!("{} can be used, generation {}", file.display(), policy.generation()));
    }
    Ok(Exit::Success)
}

/// Rules for the daemon's own address, which do nothing. With a broken configuration nobody knows it, and that is said elsewhere.
fn in_vain(cx: &Context, policy: &Policy) -> Option<(String, String)> {
    let config = Config::load(&cx.home.config_file(), &cx.env).ok()?;
    let rules = policy.granted_in_vain(Listens(config.listen));
    let what = format!("rules of `net` for the daemon's own address open nothing: {}", rules.join(", "));
    (!rules.is_empty()).then(|| (what, "take them out: no agent and no command reaches the daemon".to_owned()))
}

/// Labels of rules for files that are on no file.
pub(super) fn unread(policy: &Policy) -> Option<(String, String)> {
    let rules = policy.labels_unread();
    let what = format!(
        "rules of `fs` whose label is on whoever writes or deletes there, and on no file, since they do not name `read`: {}",
        rules.join(", ")
    );
    let hint = "name `read` in their `ops`, or put the label into the rule by which these files are read";
    (!rules.is_empty()).then(|| (what, hint.to_owned()))
}

/// `none`: the way out where there is no such file.
fn read(file: &Path, none: &str) -> Result<String, Failure> {
    let cannot = |why: String| Failure::new(format!("cannot read {}", file.display())).why(why);
    let bytes = bytes_of(file).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => none.to_owned(),
            ErrorKind::IsADirectory => format!("name a file in it, such as {}", file.join("policy.yaml").display()),
            ErrorKind::BrokenPipe => "name a file, or a pipe that something writes into".to_owned(),
            _ => "look at its owner and its permissions: ls -l".to_owned(),
        };
        cannot(error.to_string()).hint(hint)
    })?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(cannot(format!("it is larger than {} MiB, the most that is read", FILE_BYTES_MAX >> 20))
            .hint("name what belongs together by a pattern, such as `docs/**`"));
    }
    aos_policy::text_of(bytes).map_err(|fault| refused(file, &[fault]))
}

/// What is in a file, or comes of a pipe, and no more of it than shows that it is too large. A pipe without a writer is waited
/// for by nobody.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = source::open(path)?;
    let mut bytes = Vec::new();
    (&file).take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    match source::nothing_comes(&file, &bytes) {
        Some(why) => Err(io::Error::new(ErrorKind::BrokenPipe, why)),
        None => Ok(bytes),
    }
}

/// A policy; of the home it is written where there is none.
fn load(cx: &Context, file: &Path) -> Result<Policy, Failure> {
    let none = match *file == cx.home.policy_file() {
        true => "aos init writes a policy.yaml",
        false => "name a file that is there; without one it is the home's policy.yaml",
    };
    parse(file, &read(file, none)?)
}

fn parse(file: &Path, text: &str) -> Result<Policy, Failure> {
    Policy::parse(text).map_err(|faults| refused(file, &faults))
}

/// Every fault of a file, with its line and the way out.
fn refused(file: &Path, faults: &[Fault]) -> Failure {
    let failure = Failure { code: "policy".into(), ..Failure::new(format!("{} cannot be used", file.display())) };
    faults.iter().fold(failure, |failure, fault| {
        let failure = failure.why(fault.to_string());
        match &fault.hint {
            Some(hint) => failure.hint(format!("line {}: {hint}", fault.line)),
            None => failure,
        }
    })
}

/// Columns of a call that is told: its arguments may be as long as its file.
const CALL_WIDTH: usize = 500;

/// What a file of expectations holds.
const EXPECTATIONS: &str = "write one, a line for each call: - {call: FS_READ, args: {path: a}, verdict: allow}";

fn test(cx: &Context, expectations: &Path, policy: &Path) -> Result<Exit, Failure> {
    let outcomes = aos_policy::expect::check(&load(cx, policy)?, &read(expectations, EXPECTATIONS)?)
        .map_err(|faults| refused(expectations, &faults))?;
    let missed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    if cx.json {
        let list: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                serde_json::json!({
                    "line": outcome.line, "call": outcome.call, "expected": outcome.expected, "said": outcome.said,
                    "rule": outcome.rule, "passed": outcome.passed(),
                })
            })
            .collect();
        cx.document(&list)?;
    } else {
        for outcome in outcomes.iter().filter(|outcome| !outcome.passed()) {
            let (expected, said) = (outcome.expected.as_str(), outcome.said.as_str());
            let call = cut(&outcome.call, CALL_WIDTH);
            cx.line(&format!("line {}: {call} is {said} ({}), not {expected}", outcome.line, outcome.rule))?;
        }
        cx.note(&format!("{} of {} expectations are met", outcomes.len() - missed, outcomes.len()));
    }
    Ok(if missed == 0 { Exit::Success } else { Exit::Failed })
}

fn diff(cx: &Context, old: &Path, new: &Path) -> Result<Exit, Failure> {
    let (old, new) = (load(cx, old)?, load(cx, new)?);
    let (changes, beside) = (aos_policy::diff::diff(&old, &new), aos_policy::diff::beside(&old, &new));
    let turned = turned(cx, &old, &new)?;
    if cx.json {
        let list: Vec<_> = changes
            .iter()
            .map(|change| {
                serde_json::json!({
                    "role": change.role, "example": change.example, "loosens": change.loosens(), "old": change.old,
                    "new": change.new, "old_rule": change.old_rule, "new_rule": change.new_rule,
                })
            })
            .collect();
        let beside: Vec<_> = beside.iter().map(ToString::to_string).collect();
        cx.document(&serde_json::json!({ "changes": list, "beside": beside, "decisions": turned }))?;
        return Ok(Exit::Success);
    }
    if changes.is_empty() && beside.is_empty() {
        cx.note("they allow the same");
    }
    for change in changes {
        cx.line(&change.to_string())?;
    }
    for part in beside {
        match &part.changes[..] {
            [] => cx.line(&format!("~ {part}: differs, and no call shows it"))?,
            _ => cx.line(&clean_line(&format!("~ {part}")))?,
        }
    }
    let Some(turned) = turned else {
        cx.note("no decision is recorded in this home yet");
        return Ok(Exit::Success);
    };
    cx.line(&turned.to_string())?;
    for example in &turned.examples {
        cx.line(&clean_line(&example.to_string()))?;
    }
    if turned.undecided > 0 {
        let what = "cannot be made again, since the call or what its process was is gone";
        cx.note(&format!("{} more {what}", turned.undecided));
    }
    if turned.pruned > 0 {
        cx.note(&format!("{} entries of that time were pruned, and their decisions with them", turned.pruned));
    }
    Ok(Exit::Success)
}

/// What was decided, decided again. It is read from the journal itself, whether a daemon writes there or not; `None`
/// where nothing was decided yet.
fn turned(cx: &Context, old: &Policy, new: &Policy) -> Result<Option<Turned>, Failure> {
    let file = cx.home.journal_file();
    if !file.exists() {
        return Ok(None);
    }
    let mut progress = Progress::new(cx);
    let told = |decided| progress.tell(&format!("{decided} decisions made again"), 0);
    let turned = Reader::open(&file).and_then(|reader| Turned::find(&reader, old, new, told)).map_err(|error| {
        Failure::new("the recorded decisions cannot be read").why(error.to_string()).hint(error.hint())
    })?;
    Ok(Some(turned).filter(|turned| turned.decided + turned.undecided + turned.pruned > 0))
}

async fn explain(cx: &Context, pid: Pid, call: &str) -> Result<Exit, Failure> {
    let request = ExplainRequest { pid, call: read_call(call)? };
    let view: ExplainView = cx.client()?.post(&Address::of("/v1/policy/explain"), &request).await?;
    if cx.json {
        cx.document(&view)?;
        return Ok(Exit::Success);
    }
    if !view.taken.is_empty() {
        cx.note(&format!("taken from the call's example, since it was left out: {}", view.taken.join(", ")));
    }
    cx.line(&format!("{}, by {}", view.verdict.as_str(), view.rule))?;
    if view.ended {
        cx.line(&format!("  process {pid} has ended: it makes no call any more, and one like it would be told this"))?;
    }
    if let Some(lacking) = &view.lacking {
        cx.line(&format!("  since {}", clean_line(lacking)))?;
    }
    if let Some(lifted) = &view.given {
        cx.line(&format!("  {lifted} does not ask, since all that steers it stands in your request"))?;
    }
    if let Some(refused) = &view.refused {
        cx.line(&format!("  the network driver refuses it all the same: {}", clean_line(refused)))?;
    }
    if let Some(hint) = view.hint {
        cx.line(&format!("  try: {hint}"))?;
    }
    Ok(Exit::Success)
}

/// Reads `NAME {json}`.
pub(super) fn read_call(text: &str) -> Result<CallView, Failure> {
    let text = text.trim();
    let (name, args) = text
        .split_once(|one: char| one.is_whitespace() || one == '{')
        .map_or((text, ""), |(name, _)| (name, text[name.len()..].trim()));
    let args = if args.is_empty() { "{}" } else { args };
    let args = serde_json::from_str(args).map_err(|error| {
        Failure::usage("the arguments of the call are no JSON")
            .why(error.to_string())
            .hint("such as: aos policy explain 7 'FS_WRITE {\"path\":\"a\"}'")
    })?;
    Ok(CallView { name: name.to_ascii_uppercase(), args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_faults_is_refused_with_their_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        std::fs::write(&file, "version: 1\nrols: {}\n").unwrap();
        let failure = read(&file, "").and_then(|text| parse(&file, &text)).unwrap_err();
        assert_eq!(failure.code, "policy");
        assert!(failure.why.iter().any(|why| why.starts_with("line 2,") && why.contains("rols")), "{failure:?}");
        assert!(failure.hints.contains(&"line 2: did you mean `roles`?".to_owned()), "{failure:?}");
        std::fs::write(&file, Policy::default_text()).unwrap();
        assert!(parse(&file, &read(&file, "").unwrap()).is_ok());
    }

    /// The first was read without end, the second waited for a writer that never came.
    #[test]
    fn what_has_no_end_or_no_beginning_is_not_waited_for() {
        let endless = read(Path::new("/dev/zero"), "").unwrap_err();
        assert!(endless.why.iter().any(|why| why.contains("larger than 8 MiB")), "{endless:?}");
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let silent = read(&pipe, "").unwrap_err();
        assert!(silent.why.iter().any(|why| why.contains("nothing comes of this pipe")), "{silent:?}");
        // `aos policy check <(…)` hands over a pipe whose writer may be slower than its reader.
        let (reading, mut writing) = io::pipe().unwrap();
        let slow = std::thread::spawn(move || {
            for part in ["version: 1\n", "default_role: r\n"] {
                std::thread::sleep(std::time::Duration::from_millis(20));
                io::Write::write_all(&mut writing, part.as_bytes()).unwrap();
            }
        });
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reading));
        assert_eq!(read(Path::new(&name), "").unwrap(), "version: 1\ndefault_role: r\n");
        slow.join().unwrap();
    }

    /// It had no place, and `aos init` was said to be the way out of whatever could not be read.
    #[test]
    fn what_cannot_be_read_has_a_place_or_a_way_out_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        std::fs::write(&file, b"version: 1\n# caf\xe9\n").unwrap();
        let failure = read(&file, "").unwrap_err();
        assert!(
            failure.why.iter().any(|why| why.starts_with("line 2, column 6:") && why.contains("0xe9")),
            "{failure:?}"
        );
        assert!(failure.hints.iter().any(|hint| hint.contains("save it as UTF-8")), "{failure:?}");
        let failure = read(dir.path(), "").unwrap_err();
        assert!(failure.hints.iter().any(|hint| hint.starts_with("name a file in it, such as /")), "{failure:?}");
        let failure = read(&dir.path().join("nofile"), EXPECTATIONS).unwrap_err();
        assert!(failure.hints.iter().any(|hint| hint.contains("{call: FS_READ")), "{failure:?}");
    }
}
