//! `aos approve --for role`: the change to policy.yaml by which a rule asks no more, or by which a role gets what a denied
//! call wants.
//!
//! Start at [`perform`]. What always holds: the file is the one that holds, or nothing is done; one place of it changes and
//! all else stays, comments included; it is replaced whole, and where the daemon refuses the new one the old one is back.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aos_abi::Syscall;
use aos_abi::api::ProposalView;
use aos_abi::entry::{ProposalState, Verdict};
use aos_abi::process::{PolicyView, StatusView};
use aos_policy::Policy;
use aos_policy::diff::diff;
use aos_policy::loosen::{Loosened, NotLoosened, grant, loosen};

use super::style::now;
use super::{Context, Exit, Failure, clean_line};
use crate::client::{Address, Client};

pub(super) async fn perform(cx: &Context, ids: &[String], yes: bool) -> Result<Exit, Failure> {
    let [id] = ids else {
        return Err(Failure::usage("one proposal at a time can be approved for the role").hint("name one, such as p3"));
    };
    let client = cx.client()?;
    let proposal = wanted(&client, id).await?;
    let file = cx.home.policy_file();
    let unreadable =
        |error: std::io::Error| Failure::new(format!("cannot read {}", file.display())).why(error.to_string());
    let text = std::fs::read_to_string(&file).map_err(unreadable)?;
    let status: StatusView = client.get(&Address::of("/v1/status")).await?;
    let old = Policy::parse(&text).ok().filter(|old| old.generation() == status.policy.generation);
    let Some(old) = old else {
        return Err(Failure::new(format!("{} is not the policy that holds", file.display()))
            .hint("aos policy check, then aos policy reload"));
    };
    let loosened = changed(&text, &proposal)?;
    let new = Policy::parse(&loosened.text).map_err(|_| Failure::new("the changed policy has a fault"))?;
    let (was, is) = differing(&text, &loosened.text);
    let changes: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
    if !cx.json {
        let name = file.display();
        cx.line(&format!("--- {name}\n+++ {name}\n@@ -{0} +{0} @@", loosened.line))?;
        was.iter().try_for_each(|line| cx.line(&format!("-{line}")))?;
        is.iter().try_for_each(|line| cx.line(&format!("+{line}")))?;
        for change in &changes {
            cx.line(&clean_line(change))?;
        }
    }
    let mut generation = None;
    if yes {
        replace(&file, &loosened.text).map_err(unwritten(&file))?;
        let taken = client.post::<PolicyView>(&Address::of("/v1/policy/reload"), &serde_json::json!({})).await;
        match taken {
            Ok(view) => generation = Some(view.generation),
            Err(error) => {
                replace(&file, &text).map_err(unwritten(&file))?;
                return Err(error.into());
            }
        }
    }
    if cx.json {
        cx.document(&serde_json::json!({
            "id": id, "file": file, "line": loosened.line, "old": was.join("\n"), "new": is.join("\n"), "changes": changes,
            "written": yes, "generation": generation,
        }))?;
    } else if yes {
        let told = match proposal.state {
            ProposalState::Expired => "its agent has ended, and the next one of the role may make the call",
            _ => "the agent is told to make its call again",
        };
        cx.note(&format!("written; {id} is over, and {told}"));
    } else {
        cx.note(&format!("nothing was changed; `aos approve {id} --for role --yes` writes it"));
    }
    Ok(Exit::Success)
}

/// An open proposal, or a denial whose process has ended before its time was over: what its role lacks the next one lacks
/// as well, and an agent that runs for one task ends before a person has read of it.
async fn wanted(client: &Client, id: &str) -> Result<ProposalView, Failure> {
    let open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
    if let Some(open) = open.into_iter().find(|proposal| proposal.id == id) {
        return Ok(open);
    }
    let ended = ended(client, id).await?;
    ended.ok_or_else(|| Failure::new(format!("no open proposal `{id}`")).hint("aos proposals"))
}

/// A denial that is over for its process, whose time is not. A no stays one.
pub(super) async fn ended(client: &Client, id: &str) -> Result<Option<ProposalView>, Failure> {
    let all: Vec<ProposalView> = client.get(&Address::of("/v1/proposals").with("all", true)).await?;
    let denied = all.into_iter().find(|one| one.id == id && one.verdict == Verdict::Deny);
    Ok(denied.filter(|one| one.state == ProposalState::Expired && now() < one.expires_at))
}

/// The text by which the call of a proposal is not asked about, or not denied, any more.
fn changed(text: &str, proposal: &ProposalView) -> Result<Loosened, Failure> {
    let not = |not: NotLoosened| Failure::new(not.why).hint(not.hint);
    if proposal.verdict != Verdict::Deny {
        return loosen(text, &proposal.rule).map_err(not);
    }
    let role = proposal.rule.strip_prefix("role ").and_then(|rest| rest.split_once(": no rule"));
    // What else is said to the call may stand behind it.
    let role = role.filter(|(_, after)| after.is_empty() || after.starts_with("; then ")).map(|(role, _)| role);
    let Some(role) = role else {
        return Err(Failure::new(format!("its role does not deny it: {}", proposal.rule))
            .hint("approve it once, or give the next process what it wants with --grant"));
    };
    let call = Syscall::parse(&proposal.call.name, &proposal.call.args.to_string())
        .map_err(|error| Failure::new(error.message))?;
    grant(text, role, &proposal.grants, &call).map_err(not)
}

/// The lines that two texts have not in common, between those at their beginnings and ends that they have.
fn differing<'t>(old: &'t str, new: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    (old[..old.len() - end].to_vec(), new[..new.len() - end].to_vec())
}

fn unwritten(file: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot write {}", file.display())).why(error.to_string())
}

/// Puts a text in the place of a file, with its permissions; beyond a symbolic link it is what that leads to.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = file.canonicalize()?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut draft = tempfile::Builder::new().prefix(".policy-").tempfile_in(folder)?;
    draft.write_all(text.as_bytes())?;
    let mode = std::fs::metadata(&file)?.permissions().mode();
    draft.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    draft.as_file().sync_all()?;
    draft.persist(&file).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()
}
