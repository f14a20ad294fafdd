//! Wrong usage, told in the form of every error; and help.
//!
//! Start at [`told`].

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::failure::Failure;
use crate::config::nearest;

/// Shows what the command line parser says: help and the version as they are, with code 0, all else as an error.
pub(super) fn told(error: &clap::Error, arguments: &[OsString], json: bool) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Where nobody reads the help, nothing is lost.
            let _ = match json {
                true if error.kind() == ErrorKind::DisplayVersion => {
                    writeln!(std::io::stdout(), "{}", serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }))
                }
                true => writeln!(std::io::stdout(), "{}", help(&error.render().to_string())),
                false => error.print(),
            };
            ExitCode::SUCCESS
        }
        // The parser would print the whole help here.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            super::tell(&failure("error: a command is missing at the end", arguments), json)
        }
        _ => super::tell(&failure(&error.render().to_string(), arguments), json),
    }
}

/// A page of help as programs see it.
pub(super) fn help(text: &str) -> serde_json::Value {
    serde_json::json!({ "help": text })
}

/// What the parser says, in our form: its first paragraph is what, its tips are the ways out.
pub(super) fn failure(text: &str, arguments: &[OsString]) -> Failure {
    let (first, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut words = first.trim_start_matches("error: ").lines().map(str::trim);
    let what = words.next().unwrap_or("wrong usage").trim_end_matches(':');
    // The library says how digits failed, which nobody asked.
    let mut failure = match what.split_once(" for '<PID>").or_else(|| what.split_once(" for '--pipe-to <PID>")) {
        Some((value, _)) => Failure::usage(format!("{value} where a pid belongs"))
            .why("a pid is a number, which `aos spawn` prints")
            .hint("aos ps shows pids and names"),
        None => Failure::usage(what),
    };
    let details: Vec<&str> = words.filter(|line| !line.is_empty()).collect();
    if !details.is_empty() {
        failure = failure.why(details.join(", "));
    }
    for tip in rest.lines().filter_map(|line| line.trim().strip_prefix("tip: ")) {
        failure = failure.hint(tip);
    }
    let cli = super::Cli::command();
    let known: Vec<&str> =
        cli.get_subcommands().filter(|sub| !sub.is_hide_set()).map(clap::Command::get_name).collect();
    let mut words = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let typed = words.find(|word| !word.starts_with('-'));
    if let Some(command) = typed.and_then(|word| cli.find_subcommand(word)) {
        // `models key` has a page of its own.
        let inner = words.next().and_then(|word| command.find_subcommand(word));
        let page: Vec<&str> = [Some(command), inner].into_iter().flatten().map(clap::Command::get_name).collect();
        return failure.hint(format!("aos {} --help", page.join(" ")));
    }
    match typed {
        Some(word) => {
            let near = nearest(word, &known).filter(|_| failure.hints.is_empty());
            let failure = match near {
                Some(near) => failure.hint(format!("did you mean `aos {near}`?")),
                None => failure,
            };
            failure.hint("aos --help")
        }
        None => failure.hint("aos --help"),
    }
}
