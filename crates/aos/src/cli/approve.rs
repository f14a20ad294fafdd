//! `aos approve` and `aos reject`: a person's answers.

use std::collections::BTreeMap;
use std::io::Write as _;

use aos_abi::Pid;
use aos_abi::api::{ApproveRequest, ProposalView, Reach, RejectRequest};
use aos_abi::process::ProcessView;
use serde::Serialize;

use super::proposals::{shown, state};
use super::{Context, Exit, Failure, call, clean_line, now};
use crate::client::Address;

/// Say yes to calls that wait
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A yes for the process covers calls on the same thing (`aos inspect PID` lists it, `aos reject ID` withdraws it) and never lifts a denial or a rule about labels.\n\nExamples:\n  aos approve p3\n  aos approve p3 --for process\n  aos approve p3 --for role          shows the change to policy.yaml\n  aos approve p3 --for role --yes    makes it"
)]
pub struct Approve {
    /// Which, such as p3
    #[arg(required_unless_present = "process")]
    id: Vec<String>,
    /// All that waits of this process and of those below it; each answer is for its own call
    #[arg(long, value_name = "PID")]
    process: Option<Pid>,
    /// How far the yes reaches: to this call, to the same call of its process from now on, or to the whole rule of the role
    #[arg(long = "for", value_name = "REACH", value_enum, default_value_t = For::Once)]
    reach: For,
    /// With `--for role`: write the shown change to policy.yaml and take it into use
    #[arg(long)]
    yes: bool,
}

/// How far a yes reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum For {
    /// This call, once
    Once,
    /// The same call of this process, for as long as it lives and the policy stays
    Process,
    /// What the rule that asks is about, for every process of the role: shows the change to policy.yaml
    Role,
}

/// Say no to calls that wait
#[derive(Debug, clap::Args)]
pub struct Reject {
    /// Which, such as p3; of one that was approved for the process, the approval is withdrawn
    #[arg(required_unless_present = "process")]
    id: Vec<String>,
    /// All that waits of this process and of those below it; each answer is for its own call
    #[arg(long, value_name = "PID")]
    process: Option<Pid>,
    /// What the agent is told
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

impl Approve {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        if self.yes && self.reach != For::Role {
            return Err(Failure::usage("--yes goes with --for role").hint("leave --yes out"));
        }
        let found = asked(cx, self.process).await?;
        // Without `--yes` a change for the role is shown and no more.
        if self.reach != For::Role || self.yes {
            confirm(cx, &found)?;
        }
        let ids = all(self.id, found);
        let reach = match self.reach {
            For::Once => Reach::Once,
            For::Process => Reach::Process,
            For::Role => return super::loosen::perform(cx, &ids, self.yes).await,
        };
        answer(cx, &ids, "approve", &ApproveRequest { reach }).await
    }
}

impl Reject {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let ids = all(self.id, asked(cx, self.process).await?);
        answer(cx, &ids, "reject", &RejectRequest { why: self.why }).await
    }
}

/// What waits of a process and of all below it.
async fn asked(cx: &Context, process: Option<Pid>) -> Result<Vec<ProposalView>, Failure> {
    let Some(top) = process else { return Ok(Vec::new()) };
    let client = cx.client()?;
    let mut open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
    let processes: Vec<ProcessView> = client.get(&Address::of("/v1/processes")).await?;
    let parents: BTreeMap<Pid, Pid> = processes.iter().map(|process| (process.pid, process.parent)).collect();
    let below = |pid: Pid| {
        // A parent is older than its children, so this ends.
        std::iter::successors(Some(pid), |pid| parents.get(pid).copied().filter(|parent| parent < pid))
            .any(|pid| pid == top)
    };
    open.retain(|proposal| below(proposal.pid));
    if open.is_empty() {
        return Err(Failure::new(format!("nothing waits of process {top}, nor of any below it")).hint("aos proposals"));
    }
    Ok(open)
}

/// The proposals that were named, and those that were found.
fn all(mut ids: Vec<String>, found: Vec<ProposalView>) -> Vec<String> {
    ids.extend(found.into_iter().map(|proposal| proposal.id));
    ids.dedup();
    ids
}

/// Shows to whoever sits at a terminal what was found, and asks: more may wait by now than when they looked. What comes
/// after this is not answered. A script has no eyes; it means whatever waits.
fn confirm(cx: &Context, found: &[ProposalView]) -> Result<(), Failure> {
    if found.is_empty() || !cx.in_terminal {
        return Ok(());
    }
    let ids: Vec<String> = found.iter().map(|proposal| clean_line(&proposal.id)).collect();
    let text = shown(found, false, now(), cx.width, cx.err);
    let unread = |error: std::io::Error| Failure::new("nobody can be asked here").why(error.to_string());
    let mut typed = String::new();
    write!(std::io::stderr(), "{text}\napprove {}? y, or nothing > ", ids.join(", "))
        .and_then(|()| std::io::stdin().read_line(&mut typed))
        .map_err(unread)?;
    match typed.trim() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was approved").hint("aos approve ID answers one")),
    }
}

async fn answer(cx: &Context, ids: &[String], verb: &str, body: &impl Serialize) -> Result<Exit, Failure> {
    let client = cx.client()?;
    let mut first = None;
    for id in ids {
        match client.post::<ProposalView>(&Address::of("/v1/proposals").then(id).then(verb), body).await {
            Ok(proposal) if cx.json => cx.document(&proposal)?,
            Ok(proposal) => {
                let of = call(&proposal.call.name, &proposal.call.args);
                cx.note(&format!("{} is {}: {of}", proposal.id, state(proposal.state)));
            }
            Err(error) => first = first.or(Some(Failure::from(error))),
        }
    }
    first.map_or(Ok(Exit::Success), Err)
}
