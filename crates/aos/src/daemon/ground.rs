//! What commands stand on: whether this host, and the file system of the home, can isolate one.
//!
//! Start at [`Ground::lacks`], and at [`Ground::lacks_in`] for a person's own folder. What always holds: the host is looked
//! at once and a folder whenever one is named, by running a command that does nothing; what is found only tells people
//! early what the first command would run into. It decides nothing: a command that lacks a wall is refused by the sandbox
//! itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aos_policy::Policy;
use aos_sandbox::{Finding, Helper, probe, probe_folder};
use tokio::sync::{OnceCell, watch};

use crate::config::Exec;

/// So long a person who asks for the status waits for it; it takes some ten milliseconds.
const WITHIN: Duration = Duration::from_secs(5);

/// What is known of it.
pub(crate) struct Ground {
    /// Where layers will be.
    state: PathBuf,
    how: Exec,
    helper: Helper,
    policy: watch::Receiver<Policy>,
    found: OnceCell<Vec<String>>,
}

impl Ground {
    /// For commands that run so, with their layers in this folder. To be made before anybody is served: what a daemon left
    /// in it that was killed meanwhile is removed now, when no trial of this one can be among it.
    pub(crate) fn new(state: PathBuf, how: Exec, helper: Helper, policy: watch::Receiver<Policy>) -> Ground {
        for left in std::fs::read_dir(&state).into_iter().flatten().flatten() {
            if left.file_name().to_string_lossy().starts_with("aos-probe-") {
                let _ = std::fs::remove_dir_all(left.path());
            }
        }
        Ground { state, how, helper, policy, found: OnceCell::new() }
    }

    /// What is missing, each with the way out; nothing where no role may run commands, or they run without walls.
    pub(crate) async fn lacks(&self) -> Vec<String> {
        let wanted = {
            let policy = self.policy.borrow();
            policy.roles().filter_map(|role| policy.role(role)).any(|role| role.exec.is_some())
        };
        if self.how != Exec::Sandboxed || !wanted {
            return Vec::new();
        }
        let looked = tokio::time::timeout(WITHIN, self.found.get_or_init(|| self.look())).await;
        looked.cloned().unwrap_or_default()
    }

    /// Why the commands of a role would be refused in a person's folder, with the way out; `None` where they would run, or
    /// it may run none.
    pub(crate) async fn lacks_in(&self, folder: &Path, role: &str) -> Option<String> {
        let wanted = self.policy.borrow().role(role).is_some_and(|role| role.exec.is_some());
        if self.how != Exec::Sandboxed || !wanted {
            return None;
        }
        let (helper, state, place) = (self.helper.clone(), self.state.clone(), folder.to_owned());
        let tried = tokio::task::spawn_blocking(move || probe_folder(&helper, &state, &place));
        match tokio::time::timeout(WITHIN, tried).await {
            Ok(Ok(Err(finding))) => {
                let lack = told(&finding);
                tracing::warn!("commands in {} will be refused, since it lacks {lack}", folder.display());
                Some(lack)
            }
            Ok(Ok(Ok(()))) => None,
            // Nothing is known; the first command will say it.
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn look(&self) -> Vec<String> {
        let (helper, state) = (self.helper.clone(), self.state.clone());
        let looked = tokio::task::spawn_blocking(move || probe(&helper, &state)).await;
        let lacks: Vec<String> = match looked {
            Ok(Ok(report)) => report.missing().map(told).collect(),
            Ok(Err(error)) => vec![format!("the sandbox cannot be tried: {error}")],
            Err(error) => vec![format!("the sandbox cannot be tried: {error}")],
        };
        for lack in &lacks {
            tracing::warn!("every command will be refused, since this host lacks what isolates it: {lack}");
        }
        lacks
    }
}

/// What is missing, and the way out.
fn told(finding: &Finding) -> String {
    let why = finding.state.as_ref().err().map_or("", String::as_str);
    format!("{}: {why} ({})", finding.feature, finding.feature.remedy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_killed_daemon_left_goes_at_the_start_and_what_is_being_tried_stays() {
        let state = tempfile::tempdir().unwrap();
        let [left, tried, kept] = ["aos-probe-left", "aos-probe-tried", "kept"].map(|name| state.path().join(name));
        std::fs::create_dir_all(left.join("layer")).unwrap();
        std::fs::create_dir(&kept).unwrap();
        let policy = "version: 1\ndefault_role: a\nroles: {a: {exec: {shell: true, programs: [sh]}}}\n";
        let (_sender, policy) = watch::channel(Policy::parse(policy).unwrap());
        let nobody = Helper::new("/bin/false", []);
        let ground = Ground::new(state.path().to_owned(), Exec::Sandboxed, nobody, policy);
        assert!(!left.exists());
        // Somebody's folder is tried while the daemon looks at its own.
        std::fs::create_dir(&tried).unwrap();
        assert!(!ground.lacks().await.is_empty(), "it has looked, in vain");
        assert!(tried.exists() && kept.exists());
    }
}
