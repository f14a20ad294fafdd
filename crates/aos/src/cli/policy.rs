//! `aos policy`.

use std::path::PathBuf;

use aos_abi::Pid;
use aos_abi::api::{CallView, ExplainRequest, ExplainView};
use aos_policy::Policy;

use super::{Context, Exit, Failure, absent};
use crate::client::Address;

/// Check the policy, and ask it what it would say
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos policy check\n  aos policy explain 7 'FS_WRITE {\"path\":\"a\"}'")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say whether a policy file can be used, with every fault and its line
    Check {
        /// The file [default: the home's policy.yaml]
        file: Option<PathBuf>,
    },
    /// Say what the policy would do with a call of a process, and which rule decides; nothing is done
    Explain {
        /// Whose call
        pid: Pid,
        /// The call: its name and its arguments as JSON
        #[arg(required = true, num_args = 1.., value_name = "CALL")]
        call: Vec<String>,
    },
    #[command(hide = true)]
    Test(absent::Args),
    #[command(hide = true)]
    Diff(absent::Args),
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        match self.command {
            Command::Check { file } => check(cx, file.unwrap_or_else(|| cx.home.policy_file())),
            Command::Explain { pid, call } => explain(cx, pid, &call.join(" ")).await,
            Command::Test(_) => Err(absent::failure("aos policy test", "test cases for policies")),
            Command::Diff(_) => Err(absent::failure("aos policy diff", "the comparison of policies")),
        }
    }
}

fn check(cx: &Context, file: PathBuf) -> Result<Exit, Failure> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|error| {
        Failure::new(format!("cannot read {shown}"))
            .why(error.to_string())
            .hint("aos init writes one where there is none")
    })?;
    match Policy::parse(&text) {
        Ok(policy) => {
            if cx.json {
                cx.document(&serde_json::json!({ "file": shown, "good": true, "generation": policy.generation() }))?;
            } else {
                cx.note(&format!("{shown} can be used, generation {}", policy.generation()));
            }
            Ok(Exit::Success)
        }
        Err(faults) => {
            let failure = Failure { code: "policy".into(), ..Failure::new(format!("{shown} cannot be used")) };
            Err(faults.iter().fold(failure, |failure, fault| {
                let failure = failure.why(fault.to_string());
                match &fault.hint {
                    Some(hint) => failure.hint(format!("line {}: {hint}", fault.line)),
                    None => failure,
                }
            }))
        }
    }
}

async fn explain(cx: &Context, pid: Pid, call: &str) -> Result<Exit, Failure> {
    let request = ExplainRequest { pid, call: read_call(call)? };
    let view: ExplainView = cx.client()?.post(&Address::of("/v1/policy/explain"), &request).await?;
    if cx.json {
        cx.document(&view)?;
        return Ok(Exit::Success);
    }
    cx.line(&format!("{}, by {}", view.verdict.as_str(), view.rule))?;
    if let Some(hint) = view.hint {
        cx.line(&format!("  try: {hint}"))?;
    }
    Ok(Exit::Success)
}

/// Reads `NAME {json}`.
pub(super) fn read_call(text: &str) -> Result<CallView, Failure> {
    let text = text.trim();
    let (name, args) = text
        .split_once(|one: char| one.is_whitespace() || one == '{')
        .map_or((text, ""), |(name, _)| (name, text[name.len()..].trim()));
    let args = if args.is_empty() { "{}" } else { args };
    let args = serde_json::from_str(args).map_err(|error| {
        Failure::usage("the arguments of the call are no JSON")
            .why(error.to_string())
            .hint("such as: aos policy explain 7 'FS_WRITE {\"path\":\"a\"}'")
    })?;
    Ok(CallView { name: name.to_owned(), args })
}
