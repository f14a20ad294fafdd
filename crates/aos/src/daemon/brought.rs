//! Files that a person sends along with a new process: what is known of each goes with it.
//!
//! Start at [`Daemon::brought`]. Deliberately absent: their bytes, which the client read.

use std::path::{Path, PathBuf};

use aos_abi::Pid;
use aos_abi::api::FileArg;
use aos_abi::process::Workspace;
use aos_gateway::{Answer, ApiError};

use super::heart::LiveKernel;
use super::system::Daemon;

impl Daemon {
    /// Where files lay. One that was read through a link which an agent may have put there is refused: it may be another
    /// than the person means.
    pub(super) async fn brought(&self, files: &[FileArg]) -> Answer<Vec<Workspace>> {
        let workspaces = self.home.workspaces();
        let workspaces = workspaces.canonicalize().unwrap_or(workspaces);
        let links =
            files.iter().flat_map(|file| file.links.iter().map(|link| (file.path.clone(), PathBuf::from(link))));
        let (links, own): (Vec<_>, _) = (links.collect(), workspaces.clone());
        let put = move |kernel: &mut LiveKernel| {
            links.into_iter().find(|(_, link)| link.starts_with(&own) || kernel.is_untrusted(link))
        };
        if let Some((name, link)) = self.heart.look(put).await? {
            let message =
                format!("`{name}` was read through the link {}, which an agent may have put there", link.display());
            return Err(ApiError::usage(message).hint("name the file itself if that is the one you mean"));
        }
        Ok(files.iter().filter_map(|file| Some(source(file.from.as_deref()?, &workspaces))).collect())
    }
}

/// What an agent's own workspace holds is known by its process alone; of what else lies beside them nobody knows.
fn source(from: &str, workspaces: &Path) -> Workspace {
    let Ok(below) = Path::new(from).strip_prefix(workspaces) else { return Workspace::Folder(from.to_owned()) };
    let owner = below.iter().next().and_then(|name| name.to_str()?.parse().ok());
    Workspace::Home(owner.map_or(Pid::SYSTEM, Pid))
}
