//! `aos completion`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Context, Exit, Failure};

/// Print a script that completes commands in your shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos completion bash > ~/.local/share/bash-completion/completions/aos\n  \
aos completion zsh > ~/.zfunc/_aos\n  aos completion fish > ~/.config/fish/completions/aos.fish")]
pub struct Args {
    /// Which shell
    shell: Shell,
}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "aos", &mut script);
        let script = String::from_utf8_lossy(&script);
        if cx.json {
            cx.document(&serde_json::json!({ "shell": self.shell.to_string(), "script": script }))?;
        } else {
            cx.print(&script)?;
        }
        Ok(Exit::Success)
    }
}
