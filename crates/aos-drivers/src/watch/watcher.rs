//! The task of a watch, and the handle that ends it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use aos_abi::{CallError, Code};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::burst::{Burst, Changed, Settle};
use super::tree::{Target, Tree};
use crate::fs::{Beneath, Error, Pattern, Place, Workspace};

/// How often a watched folder that is gone is looked for.
const REPLANT: Duration = Duration::from_secs(1);

/// What to watch.
#[derive(Clone, Debug)]
pub struct Order {
    /// Where the files are. Mounts are watched where `path` leads into one, and not with the workspace as a whole.
    pub place: Place,
    /// The file or folder beneath it; the workspace itself if left out.
    pub path: Option<String>,
    /// Only paths that match; without a `/` it is matched against the last name.
    pub glob: Option<String>,
    /// When a burst is over.
    pub settle: Settle,
}

/// A running watch. It ends when this is dropped, or when nobody receives its events any more.
#[derive(Debug)]
pub struct Watcher {
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl Watcher {
    /// Starts watching. When it returns, whatever changes from then on is told. While the channel is full the burst that
    /// cannot be delivered goes on gathering, so nothing is lost and nothing piles up.
    ///
    /// # Errors
    /// `ENOENT`, `EPERM`, `EINVAL` for the path and the glob; `EAGAIN` where there are too many folders to watch.
    ///
    /// # Cancel safety
    /// Dropping it starts no watch.
    pub async fn start(order: Order, on_event: mpsc::Sender<Changed>) -> Result<Watcher, CallError> {
        let settle = order.settle;
        // A large tree takes a while to read.
        let planted = tokio::task::spawn_blocking(move || target(order).and_then(Tree::plant)).await;
        let planted = planted.map_err(|error| CallError::new(Code::Io, format!("watch: {error}")))?;
        let tree = planted.map_err(|error| match error {
            Error::System { errno: rustix::io::Errno::NOSPC | rustix::io::Errno::MFILE, .. } => {
                CallError::new(Code::Again, "there are more folders than can be watched")
                    .hint("watch a folder further down")
            }
            error => error.into(),
        })?;
        let news = tree.news().and_then(register);
        let news = news.map_err(|error| CallError::new(Code::Io, format!("watch: {error}")))?;
        Ok(Watcher { task: tokio::spawn(run(tree, news, settle, on_event)) })
    }

    /// Ends the watch and waits until nothing more will be told.
    pub async fn stop(mut self) {
        self.task.abort();
        // Cancelled, which is what was asked for.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A folder is watched with all below it; a file by the folder it is in, so that it may be replaced.
fn target(order: Order) -> Result<Target, Error> {
    let path = Beneath::parse(order.path.as_deref().unwrap_or(""))?;
    let glob = order.glob.as_deref().map(Pattern::parse).transpose()?;
    let workspace = Workspace::open(&order.place)?;
    match workspace.folder(&path) {
        Ok(_) => Ok(Target { place: order.place, folder: path, file: None, glob }),
        Err(Error::System { errno: rustix::io::Errno::NOTDIR, .. }) => {
            workspace.file(&path)?;
            let (folder, name) = path.split()?;
            Ok(Target { place: order.place, folder: Beneath::parse(folder)?, file: Some(name.to_owned()), glob: None })
        }
        Err(error) => Err(error),
    }
}

/// Hands the descriptor to the runtime.
#[expect(deprecated, reason = "the new name is unsafe for types that may swap their descriptor; this one never does")]
fn register(news: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(news, Interest::READABLE)
}

/// A large tree that was moved in, or is there again, takes a while to read: others are served meanwhile. `None`: the
/// runtime ends.
async fn beside<T: Send + 'static>(
    (mut tree, mut burst): (Tree, Burst),
    work: fn(&mut Tree, &mut Burst) -> T,
) -> Option<(Tree, Burst, T)> {
    let worked = tokio::task::spawn_blocking(move || {
        let done = work(&mut tree, &mut burst);
        (tree, burst, done)
    });
    worked.await.ok()
}

async fn run(mut tree: Tree, news: AsyncFd<OwnedFd>, settle: Settle, on_event: mpsc::Sender<Changed>) {
    let mut burst = Burst::default();
    let mut look_again = Instant::now();
    loop {
        let due = burst.due(settle);
        let settled = due.is_some_and(|due| due <= Instant::now());
        let uprooted = tree.is_uprooted();
        // Each branch is safe to drop: nothing is taken before it is chosen.
        tokio::select! {
            ready = news.readable() => {
                let Ok(mut ready) = ready else { return };
                let Some(worked) = beside((tree, burst), Tree::drain).await else { return };
                let drained;
                (tree, burst, drained) = worked;
                match drained {
                    Ok(true) => ready.clear_ready(),
                    Ok(false) => {}
                    Err(_) => {
                        burst.lose();
                        ready.clear_ready();
                    }
                }
                look_again = Instant::now() + REPLANT;
            }
            slot = on_event.reserve(), if settled => match slot {
                Ok(slot) => slot.send(burst.take()),
                Err(_) => return,
            },
            () = sleep_until(due.unwrap_or(look_again)), if due.is_some() && !settled => {}
            () = sleep_until(look_again), if uprooted => {
                let Some(worked) = beside((tree, burst), Tree::replant).await else { return };
                (tree, burst, ()) = worked;
                look_again = Instant::now() + REPLANT;
            }
            () = on_event.closed() => return,
        }
    }
}
