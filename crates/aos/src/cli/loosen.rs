//! `aos approve --for role`: the change to policy.yaml by which a rule asks no more.
//!
//! Start at [`perform`]. What always holds: the file is the one that holds, or nothing is done; one word of it changes and
//! all else stays, comments included; it is replaced whole, and where the daemon refuses the new one the old one is back.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aos_abi::api::ProposalView;
use aos_abi::process::{PolicyView, StatusView};
use aos_policy::Policy;
use aos_policy::diff::diff;
use aos_policy::loosen::loosen;

use super::{Context, Exit, Failure, clean_line};
use crate::client::Address;

pub(super) async fn perform(cx: &Context, ids: &[String], yes: bool) -> Result<Exit, Failure> {
    let [id] = ids else {
        return Err(Failure::usage("one proposal at a time can be approved for the role").hint("name one, such as p3"));
    };
    let client = cx.client()?;
    let open: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
    let proposal = open.into_iter().find(|proposal| proposal.id == *id);
    let proposal = proposal.ok_or_else(|| Failure::new(format!("no open proposal `{id}`")).hint("aos proposals"))?;
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
    let loosened = loosen(&text, &proposal.rule).map_err(|not| Failure::new(not.why).hint(not.hint))?;
    let new = Policy::parse(&loosened.text).map_err(|_| Failure::new("the changed policy has a fault"))?;
    let line = |text: &str| text.lines().nth(loosened.line - 1).unwrap_or_default().to_owned();
    let (was, is) = (line(&text), line(&loosened.text));
    let changes: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
    if !cx.json {
        let name = file.display();
        cx.line(&format!("--- {name}\n+++ {name}\n@@ -{0} +{0} @@\n-{was}\n+{is}", loosened.line))?;
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
            "id": id, "file": file, "line": loosened.line, "old": was, "new": is, "changes": changes,
            "written": yes, "generation": generation,
        }))?;
    } else if yes {
        cx.note(&format!("written; the question {id} is over, and the agent is told to make its call again"));
    } else {
        cx.note(&format!("nothing was changed; `aos approve {id} --for role --yes` writes it"));
    }
    Ok(Exit::Success)
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
