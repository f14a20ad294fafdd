//! `aos spawn`.

use aos_abi::api::{SpawnRequest, Started};
use aos_abi::process::{BudgetSpec, Mode, Priority};
use aos_abi::{Pid, Usd};

use super::run::{all_of_stdin, file_args, folder, named, positive, usd};
use super::{Context, Exit, Failure, absent, view};
use crate::client::Address;

/// Start an agent in the background that stays until it ends or is ended; prints its pid
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  aos spawn --name reminder \"remind me every hour to stretch\"\n  \
aos spawn --role \"You answer questions about this folder.\" -w . --grant \"FS_READ **\"\n  \
aos send PID \"what changed today?\"; aos logs -f PID")]
pub struct Args {
    /// What it does first; `-` reads it from standard input. Without one it waits for input
    task: Option<String>,
    /// Who it is and how it works
    #[arg(long, value_name = "TEXT")]
    role: Option<String>,
    /// A packaged agent
    #[arg(long, value_name = "NAME", hide = true, conflicts_with = "role")]
    agent: Option<String>,
    /// A name that other agents can send to
    #[arg(long, value_parser = named)]
    name: Option<String>,
    /// The group it and its children belong to; `aos kill --group` reaches all of it
    #[arg(long, value_name = "NAME", value_parser = named)]
    group: Option<String>,
    /// The model it runs on
    #[arg(short, long, env = "AOS_MODEL", hide_env = true)]
    model: Option<String>,
    /// The role of policy.yaml that it runs under, instead of the default one
    #[arg(long, value_name = "NAME")]
    policy_role: Option<String>,
    /// Allow only this: a call, or a call and a pattern, such as "FS_READ docs/**"; may be repeated
    #[arg(long, value_name = "CALL [PATTERN]")]
    grant: Vec<String>,
    /// Work on this folder instead of one of its own
    #[arg(short, long, value_name = "DIR")]
    workspace: Option<std::path::PathBuf>,
    /// You have looked at the folder of -w: what agents left there under untrusted content counts as yours
    #[arg(long, requires = "workspace")]
    trusted: bool,
    /// Put a copy of this file into its workspace, not with -w; `-` is standard input, as input.txt; may be repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<std::path::PathBuf>,
    /// Others wrote the files of -f: what is read of them is labelled `untrusted.file`
    #[arg(long, requires = "file")]
    untrusted: bool,
    /// The most it may spend, in US dollars
    #[arg(long, value_name = "USD", value_parser = usd, allow_negative_numbers = true)]
    budget: Option<Usd>,
    /// End it after this time: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = positive, allow_hyphen_values = true)]
    timeout: Option<std::time::Duration>,
    /// Its class on the model slots: interactive, normal or batch
    #[arg(long, value_name = "CLASS", value_parser = priority)]
    priority: Option<Priority>,
    /// Send its standard output to this process
    #[arg(long, value_name = "PID")]
    pipe_to: Option<Pid>,
}

fn priority(text: &str) -> Result<Priority, String> {
    serde_json::from_value(serde_json::Value::String(text.to_lowercase()))
        .map_err(|_| "there are interactive, normal and batch".to_owned())
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        if self.agent.is_some() {
            return Err(absent::failure("aos spawn --agent", "packaged agents").hint("say who it is: --role TEXT"));
        }
        let task = match self.task.as_deref() {
            Some("-") => Some(all_of_stdin(&self.file)?),
            other => other.map(str::to_owned),
        };
        let request = SpawnRequest {
            task: task.filter(|task| !task.trim().is_empty()),
            role: self.role,
            name: self.name,
            group: self.group,
            mode: Mode::Resident,
            model: self.model.filter(|model| !model.is_empty()),
            priority: self.priority,
            policy_role: self.policy_role,
            grants: (!self.grant.is_empty()).then_some(self.grant),
            budget: BudgetSpec {
                usd: self.budget,
                wall_s: self.timeout.map(|time| time.as_secs_f64().ceil() as u64),
                ..BudgetSpec::default()
            },
            pipe_to: self.pipe_to,
            workspace: self.workspace.as_deref().map(folder).transpose()?,
            dry_run: false,
            files: file_args(&self.file)?,
            untrusted: self.untrusted,
            trusted: self.trusted,
        };
        let started: Started = cx.client()?.post(&Address::of("/v1/processes"), &request).await?;
        view::lacks(cx, &request, &started);
        if cx.json {
            cx.document(&started)?;
        } else {
            cx.print(&format!("{}\n", started.pid))?;
        }
        Ok(Exit::Success)
    }
}
