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
        cx.print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Success)
    }
}
