//! `aos approve --for role`: the change to policy.yaml by which a rule asks no more, or by which a role gets what a denied
//! call wants.
//!
//! Start at [`Change`]. What always holds: the file is the one that holds, or nothing is done; one place of it changes and
//! all else stays, comments included; it is replaced whole, and where the daemon refuses the new one the old one is back.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aos_abi::api::ProposalView;
use aos_abi::entry::{ProposalState, Verdict};
use aos_abi::process::{PolicyView, StatusView};
use aos_abi::{Name, Syscall};
use aos_policy::Policy;
use aos_policy::diff::diff;
use aos_policy::loosen::{Loosened, NotLoosened, grant, loosen};

use super::style::now;
use super::{Context, Exit, Failure, clean_line};
use crate::client::{Address, Client};

/// What a yes for the role changes in policy.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The proposal or denial that it answers.
    pub(crate) id: String,
    file: PathBuf,
    /// The whole text as it is, and as it will be.
    old: String,
    new: String,
    /// The line at which they differ, those that go, and those that come in their place.
    line: usize,
    was: Vec<String>,
    is: Vec<String>,
    /// What becomes possible and impossible by it.
    changes: Vec<String>,
    /// The process that was denied has ended.
    ended: bool,
    /// How many open questions end with the policy that holds.
    questions: usize,
}

/// What becomes of so many open questions with another policy; nothing where there is none.
pub(crate) fn questions_end(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 open question ends".to_owned()),
        more => Some(format!("{more} open questions end")),
    }
}

impl Change {
    /// What a yes to this one for its role would change; nothing is changed.
    ///
    /// # Errors
    /// Where there is no such proposal, the file is not the policy that holds, or no change of it would do.
    pub(crate) async fn of(client: &Client, file: &Path, id: &str) -> Result<Change, Failure> {
        let open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
        let questions = open.iter().filter(|one| one.state == ProposalState::Pending).count();
        let proposal = wanted(client, open, id).await?;
        let unreadable =
            |error: std::io::Error| Failure::new(format!("cannot read {}", file.display())).why(error.to_string());
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let status: StatusView = client.get(&Address::of("/v1/status")).await?;
        let old = Policy::parse(&text).ok().filter(|old| old.generation() == status.policy.generation);
        let Some(old) = old else {
            return Err(Failure::new(format!("{} is not the policy that holds", file.display()))
                .hint("aos policy check, then aos policy reload"));
        };
        let loosened = changed(&text, &proposal)?;
        let new = Policy::parse(&loosened.text).map_err(|_| Failure::new("the changed policy has a fault"))?;
        let (was, is) = differing(&text, &loosened.text);
        Ok(Change {
            id: id.to_owned(),
            file: file.to_owned(),
            line: loosened.line,
            was,
            is,
            changes: diff(&old, &new).iter().map(ToString::to_string).collect(),
            ended: proposal.state == ProposalState::Expired,
            questions,
            old: text,
            new: loosened.text,
        })
    }

    /// One that can be looked at.
    #[cfg(test)]
    pub(crate) fn example(id: &str) -> Change {
        let text = |grant: &str| format!("roles:\n  assistant:\n    calls: [{grant}]\n");
        Change {
            id: id.to_owned(),
            file: PathBuf::from("/h/policy.yaml"),
            old: text(""),
            new: text("FS_WRITE notes"),
            line: 3,
            was: vec!["    calls: []".into()],
            is: vec!["    calls: [FS_WRITE notes]".into()],
            changes: vec!["+ assistant: FS_WRITE notes was deny, is allow".into()],
            ended: false,
            questions: 0,
        }
    }

    /// As people are shown it, before it is made.
    pub(crate) fn shown(&self) -> Vec<String> {
        let name = self.file.display();
        let head = [format!("--- {name}"), format!("+++ {name}"), format!("@@ -{0} +{0} @@", self.line)];
        let (was, is) = (self.was.iter().map(|line| format!("-{line}")), self.is.iter().map(|line| format!("+{line}")));
        head.into_iter().chain(was).chain(is).chain(self.changes.iter().map(|change| clean_line(change))).collect()
    }

    /// Makes it, and has the daemon take it into use; the generation that holds then.
    ///
    /// # Errors
    /// Where the file is another one by now, cannot be written, or the daemon refuses it; then the old one is back.
    pub(crate) async fn make(&self, client: &Client) -> Result<String, Failure> {
        let unwritten = |error: std::io::Error| {
            Failure::new(format!("cannot write {}", self.file.display())).why(error.to_string())
        };
        if std::fs::read_to_string(&self.file).map_err(unwritten)? != self.old {
            let what = format!("{} was changed since the change to it was shown", self.file.display());
            return Err(Failure::new(what).hint("look at it again"));
        }
        replace(&self.file, &self.new).map_err(unwritten)?;
        match client.post::<PolicyView>(&Address::of("/v1/policy/reload"), &serde_json::json!({})).await {
            Ok(view) => Ok(view.generation),
            Err(error) => {
                replace(&self.file, &self.old).map_err(unwritten)?;
                Err(error.into())
            }
        }
    }
}

pub(super) async fn perform(cx: &Context, ids: &[String], yes: bool) -> Result<Exit, Failure> {
    let [id] = ids else {
        return Err(Failure::usage("one proposal at a time can be approved for the role").hint("name one, such as p3"));
    };
    let client = cx.client()?;
    let change = Change::of(&client, &cx.home.policy_file(), id).await?;
    if !cx.json {
        change.shown().iter().try_for_each(|line| cx.line(line))?;
    }
    let generation = if yes { Some(change.make(&client).await?) } else { None };
    if cx.json {
        cx.document(&serde_json::json!({
            "id": id, "file": change.file, "line": change.line, "old": change.was.join("\n"), "new": change.is.join("\n"),
            "changes": change.changes, "questions": change.questions, "written": yes, "generation": generation,
        }))?;
    } else if yes {
        let told = match change.ended {
            true => "its agent has ended, and the next one of the role may make the call",
            false => "the agent is told to make its call again",
        };
        cx.note(&format!("written; {id} is over, and {told}"));
    } else {
        let ends = questions_end(change.questions).map(|ends| format!(", and {ends}, to be asked anew"));
        let ends = ends.unwrap_or_default();
        cx.note(&format!("nothing was changed; `aos approve {id} --for role --yes` writes it{ends}"));
    }
    Ok(Exit::Success)
}

/// An open proposal, or a denial whose process has ended before its time was over: what its role lacks the next one lacks
/// as well, and an agent that runs for one task ends before a person has read of it.
async fn wanted(client: &Client, open: Vec<ProposalView>, id: &str) -> Result<ProposalView, Failure> {
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

/// The role that denies by having no rule, where nothing else keeps the call from its process.
fn role_without_rule(rule: &str) -> Option<&str> {
    let (role, after) = rule.strip_prefix("role ")?.split_once(": no rule")?;
    // What else is said to the call may stand behind it.
    (after.is_empty() || after.starts_with("; then ")).then_some(role)
}

/// The rule of a role that asks about what nobody could be asked about when it was due, where nothing else stands in its way.
fn role_that_asks(rule: &str) -> Option<&str> {
    let rule = rule.strip_suffix(" asks").or_else(|| rule.strip_suffix(" holds"))?;
    (rule.starts_with("role ") && !rule.contains("; ")).then_some(rule)
}

/// Whether a rule of the role is all that denies it, so that it can be let through for longer than once.
pub(crate) fn is_of_role(rule: &str) -> bool {
    role_without_rule(rule).is_some() || role_that_asks(rule).is_some()
}

/// The text by which the call of a proposal is not asked about, or not denied, any more.
fn changed(text: &str, proposal: &ProposalView) -> Result<Loosened, Failure> {
    let not = |not: NotLoosened| Failure::new(not.why).hint(not.hint);
    if proposal.verdict != Verdict::Deny {
        return loosen(text, &proposal.rule).map_err(not);
    }
    if let Some(rule) = role_that_asks(&proposal.rule) {
        return loosen(text, rule).map_err(not);
    }
    let role = role_without_rule(&proposal.rule);
    // Of what no yes lifts a command can be given to a role; all else takes more thought than a key.
    if let Some(why) = &proposal.closed
        && (role.is_none() || !proposal.inner.is_empty() || proposal.call.name != Name::ExecCmd.as_str())
    {
        return Err(Failure::new(format!("no yes lets it pass: {}", clean_line(why)))
            .hint("change policy.yaml by hand, if that is to be possible"));
    }
    let Some(role) = role else {
        return Err(Failure::new(format!("its role does not deny it: {}", proposal.rule))
            .hint("approve it once, or give the next process what it wants with --grant"));
    };
    let denied = if proposal.inner.is_empty() { std::slice::from_ref(&proposal.call) } else { &proposal.inner };
    let calls = denied.iter().map(|call| Syscall::parse(&call.name, &call.args.to_string()));
    let calls: Vec<Syscall> = calls.collect::<Result<_, _>>().map_err(|error| Failure::new(error.message))?;
    grant(text, role, &proposal.grants, &calls).map_err(not)
}

/// The lines that two texts have not in common, between those at their beginnings and ends that they have.
fn differing(old: &str, new: &str) -> (Vec<String>, Vec<String>) {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[same..], &new[same..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let but_end = |lines: &[&str]| lines[..lines.len() - end].iter().map(|line| (*line).to_owned()).collect();
    (but_end(old), but_end(new))
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
