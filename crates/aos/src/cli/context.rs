//! What every command has: the home, the client, the streams and how they are to be written.
//!
//! Start at [`Context::client`]. What always holds: results go to standard output, everything else to standard error; a
//! reader of standard output that goes away ends the command quietly.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::clean::{clean, clean_json};
use super::failure::{Exit, Failure};
use super::init;
use super::style::{Color, Style};
use crate::client::{Client, Start};
use crate::env::Env;
use crate::home::Home;

/// Flags that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Global {
    /// The folder that holds everything of one AOS [default: $AOS_HOME, else ~/.aos]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub home: Option<std::path::PathBuf>,
    /// Print JSON: one document, or a line for each thing where it streams
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// Fail with exit code 3 where no daemon runs, instead of starting it
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub no_start: bool,
    /// When to use colours; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Everywhere")]
    pub color: Color,
    /// Print results and errors only
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
}

/// What every command has.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where everything is.
    pub home: Home,
    /// The environment.
    pub env: Env,
    /// Programs read the output.
    pub json: bool,
    /// Only results and errors.
    pub quiet: bool,
    /// A missing daemon may be started.
    pub start: bool,
    /// How standard output is written.
    pub out: Style,
    /// How standard error is written.
    pub err: Style,
    /// The width of standard output, where it is a terminal.
    pub width: Option<usize>,
    /// Standard error is a terminal.
    pub err_terminal: bool,
    /// Standard input is a terminal.
    pub in_terminal: bool,
}

impl Context {
    /// From the flags and the environment.
    ///
    /// # Errors
    /// Where no home can be found.
    pub fn new(global: &Global, env: Env) -> Result<Context, Failure> {
        let home = Home::find(global.home.as_deref(), &env)?;
        let no_color = env.path("NO_COLOR").is_some();
        let (out_terminal, err_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let asked = env.text("COLUMNS").and_then(|columns| columns.parse().ok());
        let width = out_terminal.then(|| crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)));
        Ok(Context {
            home,
            json: global.json,
            quiet: global.quiet,
            start: !global.no_start,
            out: Style::new(global.color, out_terminal, no_color),
            err: Style::new(global.color, err_terminal, no_color),
            width: asked.or(width.flatten()).filter(|width| *width >= 20),
            err_terminal,
            in_terminal: io::stdin().is_terminal(),
            env,
        })
    }

    /// The client of the daemon. A home that is missing is made first, and what was chosen is said.
    ///
    /// # Errors
    /// Where the home cannot be made, is another user's, or others may write it.
    pub fn client(&self) -> Result<Client, Failure> {
        self.home.make_private()?;
        if !self.start {
            return Ok(self.client_without_start());
        }
        if self.home.is_new() {
            let made = init::make(&self.home, &self.env)?;
            for line in made.lines() {
                self.note(&line);
            }
        }
        let program = std::env::current_exe().map_err(|error| {
            Failure::new("this program cannot find itself, to start the daemon").why(error.to_string())
        })?;
        let client = Client::new(self.home.clone(), Start::With(program));
        Ok(if self.quiet { client } else { client.telling(warn) })
    }

    /// The client of a daemon that runs already.
    #[must_use]
    pub fn client_without_start(&self) -> Client {
        Client::new(self.home.clone(), Start::Never)
    }

    /// Writes text to standard output as it is; it must be clean already.
    ///
    /// # Errors
    /// `gone` where nobody reads any more.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| gone(&error))
    }

    /// Writes a line of an agent's text to standard output, cleaned.
    ///
    /// # Errors
    /// See [`Context::print`].
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{}\n", clean(text)))
    }

    /// Writes one JSON document on one line.
    ///
    /// # Errors
    /// See [`Context::print`].
    pub fn document(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).expect("answers are plain data with string keys");
        self.print(&format!("{}\n", clean_json(&text)))
    }

    /// Tells the person something beside the result; cleaned, and not with `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // Nobody may read standard error; that is no reason to fail.
            let _ = writeln!(io::stderr(), "{}", clean(text));
        }
    }
}

/// Tells the person what they should look at.
fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", clean(text));
}

/// The failure of writing to standard output: quiet where its reader went away.
#[must_use]
pub(super) fn gone(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure { exit: Exit::Success, code: READER_GONE.into(), ..Failure::new("") };
    }
    Failure::new("cannot write to standard output").why(error.to_string()).hint("make room there, or write elsewhere")
}

/// The code of a failure that is not to be shown; no code of an answer over HTTP.
pub(super) const READER_GONE: &str = "reader_gone";
