//! `aos wait`.

use std::time::Duration;

use aos_abi::Pid;
use aos_abi::process::ProcessView;
use tokio::time::Instant;

use super::run::positive;
use super::{Context, Exit, Failure, view};

/// How long one request waits before the next.
const TURN: Duration = Duration::from_secs(60);

/// Wait until a process has ended; prints its result and exits with its code
#[derive(Debug, clap::Args)]
pub struct Args {
    /// For which
    pid: Pid,
    /// Give up after this time with exit code 124: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = positive, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let client = cx.client()?;
        let until = self.timeout.map(|timeout| Instant::now() + timeout);
        let process: ProcessView = loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let turn = left.unwrap_or(TURN).min(TURN);
            let address = view::process(self.pid).then("wait").with("timeout_s", turn.as_secs_f64());
            if let Some(process) = client.get_if_ready(&address, turn).await? {
                break process;
            }
            if left.is_some_and(|left| left <= turn) {
                let code = "ETIMEDOUT".into();
                return Err(Failure {
                    exit: Exit::TimedOut,
                    code,
                    ..Failure::new(format!("process {} still runs", self.pid))
                }
                .why(format!("it has not ended within {} s", self.timeout.unwrap_or_default().as_secs_f64()))
                .hint(format!("aos logs {}", self.pid)));
            }
        };
        if cx.json {
            cx.document(&process)?;
        } else if let Some(result) = view::result_text(process.result.as_ref()) {
            cx.line(&result)?;
        }
        Ok(Exit::Agent(process.exit_code.unwrap_or(1)))
    }
}
