//! The command line: a file per command.
//!
//! Start at [`main`], then [`Command`]. What always holds: results go to standard output and everything else to standard
//! error; every failure is told as `error:`, `why:`, `try:`; no panic shows a backtrace. `failure` has the exit codes,
//! `context` what every command has, `clean` makes agents' text safe, `narrate` tells what a process does.

mod clean;
mod context;
mod decisions;
#[cfg(test)]
mod documented;
mod failure;
mod keyboard;
mod narrate;
mod progress;
mod source;
mod style;
mod table;
mod talk;
#[cfg(test)]
mod tests;
mod usage;
mod view;
mod when;

mod absent;
mod approve;
mod attach;
mod audit;
mod backup;
mod budget;
mod completion;
mod cost;
mod doctor;
mod down;
mod fork;
mod init;
mod inspect;
mod kill;
mod logs;
mod loosen;
mod man;
mod memory;
mod models;
mod pause;
mod policy;
mod proposals;
mod prune;
mod ps;
mod pull;
mod replay;
mod restore;
mod run;
mod send;
mod spawn;
mod status;
mod timers;
mod tree;
mod undo;
mod up;
mod version;
mod wait;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use approve::answer;
pub use clean::{clean, clean_json, clean_line, cut};
pub use context::{Context, Global};
pub use failure::{Exit, Failure};
pub(crate) use loosen::{Change, is_of_role, questions_end};
pub use narrate::{Narrator, Times, call};
pub(crate) use proposals::{PREVIEW, is_denial, pieces, whole};
pub use style::{Style, ago, clock, cost as cost_of, count, duration, moment, money, now, of, size};
pub(crate) use talk::asked;
pub(crate) use undo::shown as undo_shown;
pub(crate) use view::question;

use crate::env::Env;

const START: &str = "\
AOS runs language-model agents as processes.

  aos run \"say hello\"            one agent, one task; prints the result
  aos spawn \"watch the inbox\"    an agent that stays, in the background
  aos ps                         what runs; aos top shows it live
  aos doctor                     checks that everything is in order

All commands: aos --help. One of them: aos run --help.
";

const EXAMPLES: &str = "\
Examples:
  aos run \"summarise notes.txt in three lines\" -f notes.txt
  git diff | aos run -m small -
  aos spawn --name reminder \"remind me every hour to stretch\"
  aos logs -f 7
  aos kill 7

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon, 4 denied by the policy,
5 budget spent, 124 timeout; `aos run` and `aos wait` exit with the agent's own code.";

/// An operating system for language-model agents
#[derive(Debug, Parser)]
#[command(name = "aos", version, after_help = EXAMPLES, infer_long_args = false)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Every command.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "each is described by its arguments' type")]
pub enum Command {
    Init(init::Args),
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Run(run::Args),
    Spawn(spawn::Args),
    Ps(ps::Args),
    Tree(tree::Args),
    Inspect(inspect::Args),
    Top(crate::top::Args),
    Logs(logs::Args),
    Attach(attach::Args),
    Send(send::Args),
    Wait(wait::Args),
    Kill(kill::Args),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Timers(timers::Args),
    Fork(fork::Args),
    Replay(replay::Args),
    Proposals(proposals::Args),
    Approve(approve::Approve),
    Reject(approve::Reject),
    Undo(undo::Args),
    Policy(policy::Args),
    Audit(audit::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Prune(prune::Args),
    Models(models::Args),
    Budget(budget::Args),
    Cost(cost::Args),
    Memory(memory::Args),
    Doctor(doctor::Args),
    Man(man::Args),
    Completion(completion::Args),
    Version(version::Args),
    #[command(hide = true)]
    Threads(absent::Args),
    #[command(hide = true)]
    Tools(absent::Args),
    #[command(hide = true)]
    Apps(absent::Args),
    #[command(hide = true)]
    Channels(absent::Args),
    #[command(hide = true)]
    Mcp(absent::Args),
    #[command(hide = true)]
    Dashboard(absent::Args),
}

/// `aos up --foreground` alone, with the meaning that it has in [`Cli`]. It becomes the daemon, and what building every
/// command takes would stay in its memory: a twentieth of all.
#[derive(Debug, Parser)]
#[command(name = "aos")]
struct Foreground {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Up,
}

#[derive(Debug, Subcommand)]
enum Up {
    Up(up::Args),
}

impl Cli {
    fn read(arguments: &[OsString]) -> Result<Cli, clap::Error> {
        // The parser's `help` takes no flags.
        if arguments.get(1).is_some_and(|first| first == "help") {
            return Cli::try_parse_from(arguments.iter().filter(|argument| *argument != "--json"));
        }
        if arguments.iter().any(|argument| argument == "--foreground")
            && let Ok(Foreground { global, command: Up::Up(args) }) = Foreground::try_parse_from(arguments)
        {
            return Ok(Cli { global, command: Some(Command::Up(args)) });
        }
        Cli::try_parse_from(arguments)
    }
}

/// The program: reads the command line, does what it says, and gives the exit code.
#[must_use]
pub fn main() -> ExitCode {
    install_panic_hook();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let env = Env::of_process();
    let json = arguments.iter().any(|argument| argument == "--json");
    let cli = match Cli::read(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::told(&error, &arguments, json),
    };
    let ended = Context::new(&cli.global, env).and_then(|context| match cli.command {
        None if json => context.document(&usage::help(START)).map(|()| Exit::Success),
        None => context.print(START).map(|()| Exit::Success),
        Some(command) => command.perform(&context),
    });
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => tell(&failure, json),
    }
}

/// Shows a failure and gives its exit code.
fn tell(failure: &Failure, json: bool) -> ExitCode {
    use std::io::Write as _;
    if failure.code == context::READER_GONE {
        return failure.exit.into();
    }
    // Where nobody reads, there is nothing left to do about it.
    let _ = std::io::stderr().write_all(failure.shown().as_bytes());
    if json {
        let body = serde_json::to_string(&failure.body()).expect("three strings are always JSON");
        let _ = writeln!(std::io::stdout(), "{body}");
    }
    failure.exit.into()
}

/// A panic is a fault of ours: it is told in the form of every error, without a backtrace, and ends the program with 1.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        use std::io::Write as _;
        let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        let said = info.payload_as_str().unwrap_or("no words");
        let failure = Failure::new("aos has a fault in itself")
            .why(format!("{said} ({place})"))
            .hint("aos doctor; if it happens again, report the two lines above");
        let _ = std::io::stderr().write_all(failure.shown().as_bytes());
    }));
}

impl Command {
    fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        match self {
            Command::Init(args) => args.perform(cx),
            Command::Up(args) => args.perform(cx),
            Command::Down(args) => wait_for(args.perform(cx)),
            Command::Status(args) => wait_for(args.perform(cx)),
            Command::Run(args) => wait_for(args.perform(cx)),
            Command::Spawn(args) => wait_for(args.perform(cx)),
            Command::Ps(args) => wait_for(args.perform(cx)),
            Command::Tree(args) => wait_for(args.perform(cx)),
            Command::Inspect(args) => wait_for(args.perform(cx)),
            Command::Top(args) => wait_for(args.perform(cx)),
            Command::Logs(args) => wait_for(args.perform(cx)),
            Command::Attach(args) => wait_for(args.perform(cx)),
            Command::Send(args) => wait_for(args.perform(cx)),
            Command::Wait(args) => wait_for(args.perform(cx)),
            Command::Kill(args) => wait_for(args.perform(cx)),
            Command::Pause(args) => wait_for(args.perform(cx)),
            Command::Resume(args) => wait_for(args.perform(cx)),
            Command::Timers(args) => wait_for(args.perform(cx)),
            Command::Fork(args) => wait_for(args.perform(cx)),
            Command::Replay(args) => wait_for(args.perform(cx)),
            Command::Proposals(args) => wait_for(args.perform(cx)),
            Command::Approve(args) => wait_for(args.perform(cx)),
            Command::Reject(args) => wait_for(args.perform(cx)),
            Command::Undo(args) => wait_for(args.perform(cx)),
            Command::Policy(args) => wait_for(args.perform(cx)),
            Command::Audit(args) => wait_for(args.perform(cx)),
            Command::Backup(args) => args.perform(cx),
            Command::Restore(args) => wait_for(args.perform(cx)),
            Command::Prune(args) => wait_for(args.perform(cx)),
            Command::Models(args) => wait_for(args.perform(cx)),
            Command::Budget(args) => wait_for(args.perform(cx)),
            Command::Cost(args) => wait_for(args.perform(cx)),
            Command::Memory(args) => wait_for(args.perform(cx)),
            Command::Doctor(args) => wait_for(args.perform(cx)),
            Command::Man(args) => args.perform(cx),
            Command::Completion(args) => args.perform(cx),
            Command::Version(args) => args.perform(cx),
            Command::Threads(_) => Err(absent::failure("aos threads", "entity threads")),
            Command::Tools(_) => Err(absent::failure("aos tools", "the tool registry")),
            Command::Apps(_) => Err(absent::failure("aos apps", "apps")),
            Command::Channels(_) => Err(absent::failure("aos channels", "channels")),
            Command::Mcp(_) => Err(absent::failure("aos mcp", "MCP servers")),
            Command::Dashboard(_) => {
                Err(absent::failure("aos dashboard", "the web page").hint("aos top shows the same live"))
            }
        }
    }
}

/// Runs a client command to its end. One thread is enough: it waits for the daemon most of the time.
fn wait_for(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start").why(error.to_string()))?;
    runtime.block_on(work)
}
