//! Where an archive may lie: nowhere that an agent sees it, since it holds what no agent may see, and is believed.
//!
//! Start at [`look`]. What always holds: it needs no daemon, and asks the journal, where a spawn stands before it is
//! acknowledged; what cannot be read is told and hinders nobody, or a home that is broken could not be saved. A folder that
//! holds an agent's one is fine, since no agent sees what is above its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aos_abi::process::Workspace;
use aos_abi::{Body, Pid};
use aos_journal::Reader;
use aos_policy::Policy;

use super::{Error, folder_of};
use crate::home::Home;
use crate::mounts::Mounts;

/// What of the journal says who works where.
const KINDS: &[&str] = &["booted", "configured", "spawned", "forked", "exited"];

/// A folder that agents see, and why.
struct Seen {
    folder: PathBuf,
    why: String,
}

/// Refuses a place in a folder that a living process works on or that a role mounts. What could not be asked is told.
///
/// # Errors
/// [`Error::Exposed`].
pub fn look(home: &Home, mounts: &Mounts, to: &Path) -> Result<Vec<String>, Error> {
    let mut unknown = Vec::new();
    let mut seen = vec![Seen { folder: home.workspaces(), why: "the workspaces of agents are there".to_owned() }];
    let mut policies = Vec::new();
    match home.journal_file().exists().then(|| past(home, &mut seen)).transpose() {
        Ok(in_force) => policies.extend(in_force.flatten()),
        Err(error) => unknown.push(format!("which folders agents work on is not known: {error}")),
    }
    // The policy in force is that of the journal; what the file says now holds from the next start on, or sooner.
    match std::fs::read_to_string(home.policy_file()) {
        Ok(text) => policies.push(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => unknown.push(format!("which folders roles mount is not known: policy.yaml: {error}")),
    }
    for text in policies.iter().filter(|text| !text.is_empty()) {
        match Policy::parse(text) {
            Ok(policy) => seen.extend(mounted(&policy, mounts)),
            Err(_) => unknown.push("which folders roles mount is not known: policy.yaml has faults".to_owned()),
        }
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = real(folder_of(to));
    match seen.into_iter().find(|seen| folder.starts_with(real(&seen.folder))) {
        Some(Seen { folder, why }) => {
            Err(Error::Exposed { to: to.to_owned(), folder, why, instead: home.root().to_owned() })
        }
        None => Ok(unknown),
    }
}

/// Adds the folders of people that living processes work on, and gives back the policy that was last in force.
fn past(home: &Home, seen: &mut Vec<Seen>) -> Result<Option<String>, aos_journal::Error> {
    let reader = Reader::open(&home.journal_file())?;
    let (mut policy, mut ended) = (None, BTreeSet::<Pid>::new());
    let mut before = Some(reader.last()?.0.next());
    while let Some(from) = before {
        let (entries, next) = reader.back(from, KINDS)?;
        for entry in entries {
            // From the end to the beginning: who has ended is known before who began.
            if let Some(configured) = entry.body.configured() {
                policy = policy.or_else(|| Some(configured.policy.clone()));
            }
            let spec = match entry.body {
                Body::Exited { .. } => {
                    ended.insert(entry.pid);
                    continue;
                }
                Body::Spawned(spec) | Body::Forked { spec, .. } => spec,
                _ => continue,
            };
            if let (Workspace::Folder(folder), false) = (spec.workspace, ended.remove(&entry.pid)) {
                seen.push(Seen { folder: folder.into(), why: format!("process {} works on it", entry.pid) });
            }
        }
        before = next;
    }
    Ok(policy)
}

fn mounted(policy: &Policy, mounts: &Mounts) -> Vec<Seen> {
    let all = policy.roles().flat_map(|role| policy.mounts_of(role));
    let seen = |mount: &aos_policy::settings::Mount| {
        let why = format!("{} of policy.yaml shows it to agents", mount.rule);
        Some(Seen { folder: mounts.host(mount).ok()?, why })
    };
    all.filter_map(seen).collect()
}
