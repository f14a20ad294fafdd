//! Commands of the contract whose engine is not there yet: they say so, and are not in the help.

use super::failure::Failure;

/// Whatever follows.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Not read.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

/// The plain answer.
pub(super) fn failure(command: &str, engine: &str) -> Failure {
    Failure { code: "not_there_yet".into(), ..Failure::new(format!("`{command}` is not there yet")) }
        .why(format!("this version comes without {engine}"))
}
