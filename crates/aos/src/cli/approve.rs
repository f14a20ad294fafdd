//! `aos approve` and `aos reject`: a person's answers.

use std::io::Write as _;

use aos_abi::Pid;
use aos_abi::api::{ApproveRequest, ProposalView, Reach, RejectRequest};
use aos_abi::entry::{ProposalState, Verdict};
use aos_abi::process::ProcessView;

use super::proposals::{Trees, shown, state};
use super::{Context, Exit, Failure, call, clean_line, now};
use crate::client::Address;

/// Say yes to calls that wait, or lift the denial of one
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A yes to a call that was denied lets its agent make that very call, once; the agent is told. Where something was denied to a command, that command may run once more and what is listed passes in it. It is shown whole and asked about first; a script gives --yes or --shown. A yes for the process covers calls on the same thing (`aos inspect PID` lists it, `aos reject ID` withdraws it). None lifts a rule that denies, a rule about labels or the floor.\n\nExamples:\n  aos approve p3\n  aos approve p3 p4 p5\n  aos approve p3 --for process\n  aos approve p3 --for role          shows the change to policy.yaml\n  aos approve p3 --for role --yes    makes it"
)]
pub struct Approve {
    /// Which, such as p3, or several; each answer is for its own call
    #[arg(required_unless_present = "process")]
    id: Vec<String>,
    /// All that waits of this process and of those below it; each answer is for its own call
    #[arg(long, value_name = "PID")]
    process: Option<Pid>,
    /// How far the yes reaches: to this call, to the same call of its process from now on, or to the whole rule of the role
    #[arg(long = "for", value_name = "REACH", value_enum, default_value_t = For::Once)]
    reach: For,
    /// With `--for role`: write the shown change to policy.yaml and take it into use. Of a denial: ask nobody
    #[arg(long)]
    yes: bool,
    /// The yes is to what `aos proposals ID --json` names so, and to nothing that became known since
    #[arg(long, value_name = "SHOWN", conflicts_with = "process")]
    shown: Option<String>,
}

/// How far a yes reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum For {
    /// This call, once
    Once,
    /// The same call of this process, for as long as it lives and the policy stays
    Process,
    /// What the rule that asks is about, or what the denied call wants, for every process of the role: shows the change to
    /// policy.yaml
    Role,
}

/// Say no to calls that wait, or dismiss denials
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
        let (found, trees) = asked(cx, self.process).await?;
        // What names what was seen is checked against it; a change for the role is shown before it is made.
        let unseen = self.reach != For::Role && self.shown.is_none();
        let named = if unseen { named(cx, &self.id).await? } else { Vec::new() };
        // A denial whose files are still being looked at is not listed; the daemon says so.
        let all_listed = named.len() >= self.id.len();
        // Of what no yes lifts the daemon says so.
        let lifts = |one: &ProposalView| one.state == ProposalState::Denied && one.closed.is_none();
        let of_closed = named.iter().any(|one| one.closed.is_some());
        let denied: Vec<ProposalView> = named.into_iter().filter(lifts).collect();
        if let ([id], true, true) = (&*self.id, self.yes && unseen, denied.is_empty())
            && let Some(over) = super::loosen::ended(&cx.client()?, id).await?
        {
            let why = over.ended.unwrap_or_else(|| "its time is over".to_owned());
            return Err(Failure::new(format!("nobody makes the call of {} any more: {}", over.id, clean_line(&why)))
                .hint(format!("aos approve {} --for role, for whoever comes after it", over.id)));
        }
        if self.yes && unseen && denied.is_empty() && !of_closed && all_listed {
            return Err(Failure::usage("--yes goes with --for role, or with a denial").hint("leave --yes out"));
        }
        // Without `--yes` a change for the role is shown and no more.
        if self.reach != For::Role || self.yes {
            confirm(cx, &found, &trees, found.len() == 1)?;
        }
        let reach = match self.reach {
            For::Once => Reach::Once,
            For::Process => Reach::Process,
            For::Role => return super::loosen::perform(cx, &all(self.id, found), self.yes).await,
        };
        if self.shown.is_some() && self.id.len() > 1 {
            return Err(Failure::usage("--shown goes with one proposal").hint("approve the others apart"));
        }
        show_denials(cx, &denied, self.yes)?;
        let seen = |id: &String| denied.iter().find(|one| one.id == *id).map(|one| one.shown.clone());
        let named = self.id.into_iter().map(|id| {
            let shown = seen(&id).or_else(|| self.shown.clone());
            (id, shown)
        });
        let found = found.into_iter().map(|one| (one.id, Some(one.shown)));
        let mut answers = Answers::new(cx);
        for (id, shown) in named.chain(found) {
            answers.take(approve(cx, &id, ApproveRequest { reach, shown }).await)?;
        }
        answers.end()
    }
}

/// Says yes to one. Where something became known of it since it was put, whoever sits at a terminal is shown it.
async fn approve(cx: &Context, id: &str, yes: ApproveRequest) -> Result<ProposalView, Failure> {
    let client = cx.client()?;
    let address = Address::of("/v1/proposals").then(id).then("approve");
    match client.post(&address, &yes).await {
        Err(error) if error.is_unseen() && cx.in_terminal => {
            let mut open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
            open.retain(|one| one.id == id);
            let Some(one) = open.first() else { return Err(error.into()) };
            let shown = Some(one.shown.clone());
            confirm(cx, &open, &Trees::default(), true)?;
            Ok(client.post(&address, &ApproveRequest { shown, ..yes }).await?)
        }
        answered => Ok(answered?),
    }
}

impl Reject {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let ids = all(self.id, asked(cx, self.process).await?.0);
        let (client, no) = (cx.client()?, RejectRequest { why: self.why });
        let mut answers = Answers::new(cx);
        for id in ids {
            let address = Address::of("/v1/proposals").then(&id).then("reject");
            answers.take(client.post(&address, &no).await.map_err(Failure::from))?;
        }
        answers.end()
    }
}

/// What waits of a process and of all below it, and the trees of these.
async fn asked(cx: &Context, process: Option<Pid>) -> Result<(Vec<ProposalView>, Trees), Failure> {
    let Some(top) = process else { return Ok((Vec::new(), Trees::default())) };
    let client = cx.client()?;
    let mut open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
    let processes: Vec<ProcessView> = client.get(&Address::of("/v1/processes")).await?;
    let trees = Trees::of(&processes);
    // What was denied waits for nobody: each is lifted by its own name.
    open.retain(|proposal| {
        proposal.state == ProposalState::Pending && trees.lineage(proposal.pid).any(|pid| pid == top)
    });
    if open.is_empty() {
        return Err(Failure::new(format!("nothing waits of process {top}, nor of any below it")).hint("aos proposals"));
    }
    Ok((open, trees))
}

/// The proposals that were named, and those that were found.
fn all(mut ids: Vec<String>, found: Vec<ProposalView>) -> Vec<String> {
    ids.extend(found.into_iter().map(|proposal| proposal.id));
    ids.dedup();
    ids
}

/// What is open of those that are named.
async fn named(cx: &Context, ids: &[String]) -> Result<Vec<ProposalView>, Failure> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut open: Vec<ProposalView> = cx.client()?.get(&Address::of("/v1/proposals")).await?;
    open.retain(|one| ids.contains(&one.id));
    Ok(open)
}

/// Shows denials whole before a yes to them, and asks about them. The list has a line of each, which is less than what an agent
/// wants to do; nor does a script say yes to what it may not have read.
fn show_denials(cx: &Context, denied: &[ProposalView], yes: bool) -> Result<(), Failure> {
    let Some(first) = denied.first() else { return Ok(()) };
    if cx.in_terminal && !yes {
        return confirm(cx, denied, &Trees::default(), true);
    }
    if !yes {
        let id = clean_line(&first.id);
        return Err(Failure::new(format!("{id} was denied, and nobody is here to be shown what a yes lets happen"))
            .hint(format!("read `aos proposals {id}`; then `aos approve {id} --yes`, or `--shown` with its `shown`")));
    }
    if !cx.json {
        let text = shown(denied, &Trees::default(), true, now(), cx.width, cx.err);
        write!(std::io::stderr(), "{text}").map_err(|error| Failure::new("cannot show it").why(error.to_string()))?;
    }
    Ok(())
}

/// Shows to whoever sits at a terminal what was found, and asks: more may wait by now than when they looked. What comes
/// after this is not answered. A script has no eyes; it means whatever waits.
fn confirm(cx: &Context, found: &[ProposalView], trees: &Trees, in_whole: bool) -> Result<(), Failure> {
    if found.is_empty() || !cx.in_terminal {
        return Ok(());
    }
    let ids: Vec<String> = found.iter().map(|proposal| clean_line(&proposal.id)).collect();
    let text = shown(found, trees, in_whole, now(), cx.width, cx.err);
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

/// What came of an answer, in a line.
pub(crate) fn answer(proposal: &ProposalView) -> String {
    let of = call(&proposal.call.name, &proposal.call.args);
    let told = match (proposal.verdict, proposal.state) {
        (Verdict::Deny, ProposalState::Approved) => "; its process was told that it may make it, once",
        (Verdict::Deny, ProposalState::Standing) => "; its process was told that it may make it",
        _ => "",
    };
    format!("{} is {}: {of}{told}", proposal.id, state(proposal.state))
}

/// What came of the answers so far. One that is refused does not keep the others from being given.
struct Answers<'c> {
    cx: &'c Context,
    first: Option<Failure>,
}

impl Answers<'_> {
    fn new(cx: &Context) -> Answers<'_> {
        Answers { cx, first: None }
    }

    fn take(&mut self, answered: Result<ProposalView, Failure>) -> Result<(), Failure> {
        match answered {
            Ok(proposal) if self.cx.json => self.cx.document(&proposal)?,
            Ok(proposal) => self.cx.note(&answer(&proposal)),
            Err(failure) => self.first = self.first.take().or(Some(failure)),
        }
        Ok(())
    }

    fn end(self) -> Result<Exit, Failure> {
        self.first.map_or(Ok(Exit::Success), Err)
    }
}
