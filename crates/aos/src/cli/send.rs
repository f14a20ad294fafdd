//! `aos send`.

use aos_abi::Pid;
use aos_abi::api::{Accepted, InputRequest};

use super::{Context, Exit, Failure, view};

/// Send text to a process's standard input
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos send 7 \"and now in French\"\n  cat report.md | aos send 7 -\n  cat mail.txt | aos send --untrusted 7 -\n\n\
What you send is taken as your own words, which the agent may act on. What others wrote send with\n--untrusted: rules about untrusted content hold then."
)]
pub struct Args {
    /// To which
    pid: Pid,
    /// What; `-` reads it from standard input
    #[arg(required_unless_present = "eof")]
    text: Option<String>,
    /// Others wrote the text: none of it counts as your words
    #[arg(long, requires = "text")]
    untrusted: bool,
    /// Say that no more will come; text that you send later takes that back
    #[arg(long)]
    eof: bool,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let text = match self.text.as_deref() {
            Some("-") => view::all_of_stdin(&format!(
                "put it into the process's workspace, which `aos inspect {0}` names, and send what the file is called",
                self.pid
            ))?,
            Some(text) => text.to_owned(),
            None => String::new(),
        };
        let request = InputRequest { text, eof: self.eof, untrusted: self.untrusted };
        let accepted: Accepted = cx.client()?.post(&view::process(self.pid).then("stdin"), &request).await?;
        if cx.json {
            cx.document(&accepted)?;
        }
        if accepted.stopped {
            cx.note(&format!("process {0} is stopped, and reads it once it goes on: aos resume {0}", self.pid));
        }
        Ok(Exit::Success)
    }
}
