//! Runs this test binary again as another process: for kills, other users and other mounts.

use std::path::Path;
use std::process::Command;

/// Names the folder that a child works on.
const FOLDER: &str = "AOS_JOURNAL_TEST_FOLDER";

/// The command that runs one `#[ignore]`d test on `folder`.
pub(crate) fn command(test: &str, folder: &Path) -> Command {
    command_of(&std::env::current_exe().unwrap(), test, folder)
}

/// The same from a copy of this program.
pub(crate) fn command_of(program: &Path, test: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    command
}

/// The folder, in the child; `None` where somebody ran the ignored tests by hand.
pub(crate) fn folder() -> Option<std::path::PathBuf> {
    std::env::var_os(FOLDER).map(Into::into)
}
