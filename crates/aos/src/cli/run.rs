//! `aos run`: one agent, one task, attached.
//!
//! Start at [`Args::perform`]; what happens then is [`session`]'s.

mod session;

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aos_abi::api::{FileArg, SpawnRequest, Started};
use aos_abi::process::{BudgetSpec, Mode};
use aos_abi::{Usd, limits};
use base64::Engine as _;

use super::backup::absolute;
use super::keyboard::Keyboard;
use super::{Context, Exit, Failure, clean, clean_line, source, view};
use crate::client::Address;
use crate::daemon::folders::followed;
use crate::difference::{Brought, Difference};

pub(super) use session::{Interrupts, Session};

/// Most bytes of files that are sent along: what the daemon takes, less a third for base64 and some for the rest.
const FILES_BYTES_MAX: u64 = 47 << 20;

/// What standard input is called, and what in a workspace.
const STDIN: &str = "/dev/stdin";
const STDIN_NAME: &str = "input.txt";

/// Give one agent one task, show what it does, and print its result
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos run \"say hello\"\n  aos run -f report.md \"summarise report.md in three lines\" > summary.txt\n  \
git diff | aos run -f - --untrusted \"review the diff in input.txt\"\n  aos run -w . --budget 0.50 --timeout 10m \"fix the failing test\"\n\n\
What it does goes to standard error, its result to standard output. Ctrl-C asks it to end,\n\
twice ends it. The exit code is the agent's own.\n\n\
A task that comes through `-` is taken as your own words. What others wrote give with -f and\n\
--untrusted: rules of policy.yaml about untrusted content hold for whatever is done after it is read."
)]
pub struct Args {
    /// What it is to do; `-`, or nothing with something piped in, reads it from standard input
    task: Option<String>,
    /// The model it runs on
    #[arg(short, long, env = "AOS_MODEL", hide_env = true)]
    model: Option<String>,
    /// Work on this folder instead of one of its own
    #[arg(short, long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// You have looked at the folder of -w: what agents left there under untrusted content counts as yours
    #[arg(long, requires = "workspace", conflicts_with = "dry_run")]
    trusted: bool,
    /// Put a copy of this file into its workspace, with -w only in a --dry-run; `-` is standard input, as input.txt; may be
    /// repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Others wrote the files of -f: what is read of them is labelled `untrusted.file`
    #[arg(long, requires = "file")]
    untrusted: bool,
    /// The most it may spend, in US dollars
    #[arg(long, value_name = "USD", value_parser = usd, allow_negative_numbers = true)]
    budget: Option<Usd>,
    /// End it after this time with exit code 124: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = positive, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Allow only this: a call, or a call and a pattern, such as "FS_READ docs/**"; may be repeated
    #[arg(long, value_name = "CALL [PATTERN]")]
    grant: Vec<String>,
    /// The group it and its children belong to; `aos kill --group` reaches all of it
    #[arg(long, value_name = "NAME", value_parser = named)]
    group: Option<String>,
    /// Show what it would change in the folder, and change nothing: it works on a copy, and sends, remembers and schedules nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        if self.dry_run && self.workspace.is_none() {
            return Err(Failure::usage("--dry-run shows what would change in a folder, and there is none")
                .hint("name it: aos run --dry-run -w . \"TASK\""));
        }
        let (task, keyboard) = self.task()?;
        let request = SpawnRequest {
            task: Some(task),
            role: None,
            name: None,
            group: self.group,
            mode: Mode::OneShot,
            model: self.model.filter(|model| !model.is_empty()),
            priority: None,
            policy_role: None,
            grants: (!self.grant.is_empty()).then_some(self.grant),
            budget: BudgetSpec {
                usd: self.budget,
                wall_s: self.timeout.map(|time| time.as_secs_f64().ceil() as u64),
                ..BudgetSpec::default()
            },
            pipe_to: None,
            workspace: self.workspace.as_deref().map(folder).transpose()?,
            dry_run: self.dry_run,
            files: file_args(&self.file)?,
            untrusted: self.untrusted,
            trusted: self.trusted,
        };
        let client = cx.client()?;
        // From here on Ctrl-C means the process: without a listener it would end this program alone.
        client.ready().await?;
        let interrupts = Interrupts::listen()?;
        let started: Started = client.post(&Address::of("/v1/processes"), &request).await?;
        view::lacks(cx, &request, &started);
        let brought = if self.dry_run { brought(&request.files) } else { Brought::new() };
        let session = Session::of_run(cx, client, started.pid, keyboard, interrupts);
        let Some(folder) = request.workspace.as_deref().filter(|_| self.dry_run) else {
            return session.until_the_end().await;
        };
        let copy = cx.home.workspaces().join(started.pid.to_string());
        let exit = session.until_the_end_and(|| show_difference(cx, Path::new(folder), &copy, &brought)).await;
        // Nothing but the difference was wanted of it; what is left is only disk space. The home is ours alone, as the
        // client saw to, so nobody else says what its `workspaces` is.
        let _ = std::fs::remove_dir_all(&copy);
        exit
    }

    /// The task, and what is left of standard input for answers.
    fn task(&self) -> Result<(String, Keyboard), Failure> {
        let piped = !std::io::stdin().is_terminal();
        let (task, keyboard) = match self.task.as_deref() {
            Some("-") => (all_of_stdin(&self.file)?, Keyboard::ended()),
            Some(task) if self.file.iter().any(|path| is_stdin(path)) => (task.to_owned(), Keyboard::ended()),
            Some(task) => (task.to_owned(), Keyboard::default()),
            None if piped => (all_of_stdin(&self.file)?, Keyboard::ended()),
            None => (String::new(), Keyboard::ended()),
        };
        if task.trim().is_empty() {
            return Err(Failure::usage("there is no task").hint("aos run \"say hello\""));
        }
        Ok((task, keyboard))
    }
}

/// The files of `-f`, as they lie in a workspace before anything is done there.
fn brought(files: &[FileArg]) -> Brought {
    let bytes = |file: &FileArg| base64::engine::general_purpose::STANDARD.decode(&file.base64).unwrap_or_default();
    files.iter().map(|file| (PathBuf::from(&file.path), bytes(file))).collect()
}

/// Shows what a dry run changed in its copy of a folder, to which a person had brought something.
fn show_difference(cx: &Context, folder: &Path, copy: &Path, brought: &Brought) -> Result<(), Failure> {
    let found = Difference::between(folder, copy, brought)
        .map_err(|error| Failure::new("what it would change cannot be shown").why(error.to_string()))?;
    if cx.json {
        let mut document = serde_json::json!(found);
        document["type"] = "dry_run".into();
        return cx.document(&document);
    }
    for change in &found.changes {
        let modes = change.modes.as_ref().map(|[was, is]| format!(", mode {was} to {is}")).unwrap_or_default();
        let leads = change.link.as_ref().map(view::leads).unwrap_or_default();
        cx.note(&format!("would be {}: {}{leads}{modes}", change.kind, clean_line(&change.path)));
    }
    if found.more > 0 {
        cx.note(&format!("and {} more", found.more));
    }
    if found.changes.is_empty() {
        cx.note(&format!("nothing in {} would change", clean_line(&folder.to_string_lossy())));
    }
    cx.print(&clean(&found.diff))
}

/// Reads an amount of dollars above zero.
pub(super) fn usd(text: &str) -> Result<Usd, String> {
    let dollars = text.trim_start_matches('$').parse().ok().and_then(Usd::from_dollars);
    dollars.filter(|usd| *usd > Usd::ZERO).ok_or_else(|| "an amount above 0 in US dollars, such as 0.50".into())
}

/// Reads a name: an empty one is none, which nobody means.
pub(super) fn named(text: &str) -> Result<String, String> {
    let text = text.trim();
    let hint = "a name has letters, digits, `-`, `_` and `.`, such as watcher-1";
    if text.is_empty() {
        return Err(hint.into());
    }
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(format!("{} bytes, the most for a name is {}", text.len(), limits::NAME_BYTES_MAX));
    }
    Ok(text.to_owned())
}

/// Reads a number above zero.
pub(super) fn above_zero<N: std::str::FromStr + PartialOrd + Default>(text: &str) -> Result<N, String> {
    text.parse().ok().filter(|number| *number > N::default()).ok_or_else(|| "a number above 0".into())
}

/// Reads a length of time above zero.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    let length = super::when::length(text)?;
    if length.is_zero() { Err("a time above 0, such as 90s or 10m".into()) } else { Ok(length) }
}

/// A folder as the daemon needs it.
pub(super) fn folder(path: &Path) -> Result<String, Failure> {
    if !path.is_dir() {
        return Err(Failure::usage(format!("{} is no folder", path.display())).hint("-w takes a folder that exists"));
    }
    absolute(path)
}

/// Whether a file to be sent along is standard input.
fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A task that comes through standard input, of which no file is made.
pub(super) fn all_of_stdin(files: &[PathBuf]) -> Result<String, Failure> {
    if files.iter().any(|path| is_stdin(path)) {
        return Err(
            Failure::usage("standard input is a file already, and there is no task").hint("aos run -f - \"TASK\"")
        );
    }
    view::all_of_stdin("give it as a file, and say what to do with it: -f - \"TASK\"")
}

/// Reads the files that are sent along, each under its own name.
pub(super) fn file_args(paths: &[PathBuf]) -> Result<Vec<FileArg>, Failure> {
    let mut left = FILES_BYTES_MAX;
    let mut files: Vec<FileArg> = Vec::new();
    for path in paths {
        let (stdin, path) = if is_stdin(path) { (true, Path::new(STDIN)) } else { (false, path.as_path()) };
        let shown = path.display();
        let unreadable = |why: String| Failure::usage(format!("cannot read {shown}")).why(why);
        let too_large = || {
            unreadable(format!("the files together are larger than {} MiB", FILES_BYTES_MAX >> 20))
                .hint("work on their folder: -w DIR")
        };
        let (links, real) = followed(path);
        // Its own descriptor: a socket cannot be opened by that name.
        let opened =
            if stdin { std::io::stdin().as_fd().try_clone_to_owned().map(File::from) } else { source::open(path) };
        let (metadata, file) = opened.and_then(|file| Ok((file.metadata()?, file))).map_err(|error| {
            unreadable(error.to_string())
                .hint("-f takes a file that exists and that you may read; -w DIR takes a folder")
        })?;
        if metadata.is_dir() {
            return Err(unreadable("it is a folder".into()).hint(format!("work on it: -w {shown}")));
        }
        let name = if stdin { Some(STDIN_NAME) } else { path.file_name().and_then(|name| name.to_str()) }.ok_or_else(
            || unreadable("it has no plain name".into()).hint("name a file, and one whose name is UTF-8"),
        )?;
        if files.iter().any(|file| file.path == name) {
            return Err(unreadable(format!("another file is named {name} too")).hint("rename one, or use -w DIR"));
        }
        let (from, links) = lies(path, &file, links, real)?;
        let mut bytes = Vec::new();
        // No further than a pipe without end, or a file that grows, would be of use.
        (&file)
            .take(left + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(error.to_string()).hint("-f takes a file that you may read"))?;
        if let Some(why) = source::nothing_comes(&file, &bytes).filter(|_| !stdin) {
            return Err(unreadable(why.to_owned()).hint("name a file, or a pipe that something writes into"));
        }
        left = left.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        files.push(FileArg { path: name.to_owned(), base64, from, links });
    }
    Ok(files)
}

/// Where an opened file lies, and the links that lead there: what the daemon knows of a folder holds for what comes out of
/// it. A pipe lies nowhere, nor what has no name any more. Refuses a link out of its folder, which may be somebody else's to a file of the person's.
fn lies(
    path: &Path,
    file: &File,
    links: Vec<PathBuf>,
    real: PathBuf,
) -> Result<(Option<String>, Vec<String>), Failure> {
    let refused = |why: String| Failure::usage(format!("cannot read {}", path.display())).why(why);
    // Names may have been changed since they were followed; this is the file that was opened.
    let at = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(|error| refused(format!("where it lies cannot be told: {error}")).hint("is /proc mounted?"))?;
    // What a shell puts before a command (`<<END`) may be gone by the time it is read.
    let is_gone = file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
    if !at.is_absolute() || is_gone {
        return Ok((None, Vec::new()));
    }
    if at != real {
        return Err(refused("it was moved meanwhile".into()).hint("try again"));
    }
    let folder = std::path::absolute(path).ok().and_then(|path| Some(followed(path.parent()?).1)).unwrap_or_default();
    let systems = ["/dev", "/proc"].iter().any(|own| folder.starts_with(own));
    if !systems && !real.starts_with(&folder) {
        return Err(refused(format!("it is a link out of its folder, to {}", real.display()))
            .hint(format!("if that is the file you mean: -f {}", real.display())));
    }
    let links = links.iter().map(|link| absolute(link)).collect::<Result<_, _>>()?;
    Ok((Some(absolute(&real)?), links))
}
