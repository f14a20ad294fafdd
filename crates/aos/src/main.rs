//! The binary `aos`; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The sandbox starts this program again as its helper, which must come before anything else.
    if std::env::args_os().nth(1).is_some_and(|first| first == aos_sandbox::HELPER_SUBCOMMAND) {
        aos_sandbox::helper_main();
    }
    aos::cli::main()
}
