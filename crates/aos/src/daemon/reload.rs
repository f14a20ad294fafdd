//! The policy file: read at the start, and again when it changes.
//!
//! Start at [`Reload::take`]. What always holds: a new file is taken whole, by an input of the kernel like any other, or it is
//! refused with its faults and the old policy stays; who asked is answered when the new one is durable; a file that is
//! gone denies everything, as at the start. Changes are told by inotify, so a daemon at rest is not woken; `aos policy
//! reload` serves where nothing tells of them, as beyond a symbolic link.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aos_abi::entry::{Configured, Measured};
use aos_abi::process::PolicyView;
use aos_abi::{Body, CallError, Code, Pid};
use aos_gateway::ApiError;
use aos_policy::Policy;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::heart::Handle;
use crate::home::Home;
use crate::mounts::Mounts;

/// So long after the last change the file is read: longer than the steps of an editor's save.
const SETTLED: Duration = Duration::from_millis(200);

/// A policy file that can be used: its text, which the journal has, and what it means.
pub(crate) struct Looked {
    pub(crate) text: String,
    pub(crate) policy: Policy,
}

/// The policy file. A missing one denies everything, as the contract says.
///
/// # Errors
/// Every fault, with its line.
pub(crate) fn read(path: &Path, mounts: &Mounts) -> Result<Looked, Vec<String>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), "there is no policy: everything is denied; `aos init` writes one");
            return Ok(Looked { text: String::new(), policy: Policy::deny_all() });
        }
        Err(error) => return Err(vec![error.to_string()]),
    };
    let shown = |fault: aos_policy::Fault| match &fault.hint {
        Some(hint) => format!("{fault} ({hint})"),
        None => fault.to_string(),
    };
    let text = aos_policy::text_of(bytes).map_err(|fault| vec![shown(fault)])?;
    let looked = Policy::parse(&text).and_then(|policy| match mounts.faults(&policy) {
        faults if faults.is_empty() => Ok(policy),
        faults => Err(faults),
    });
    let policy = looked.map_err(|faults| faults.into_iter().map(shown).collect::<Vec<_>>())?;
    for (what, hint) in mounts.missing(&policy) {
        tracing::warn!(hint, "{what}");
    }
    Ok(Looked { text, policy })
}

/// Takes changed policies into use.
pub(crate) struct Reload {
    heart: Handle,
    home: Home,
    mounts: Mounts,
    /// One at a time, so that an older text never comes after a newer one.
    turn: tokio::sync::Mutex<()>,
    /// Why the file as it was last read was refused.
    refused: Mutex<Vec<String>>,
}

impl Reload {
    /// For the policy of this home.
    pub(crate) fn new(heart: Handle, home: Home, mounts: Mounts) -> Reload {
        Reload { heart, home, mounts, turn: tokio::sync::Mutex::default(), refused: Mutex::default() }
    }

    /// Why the file as it was last read was refused; empty where it holds.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the file as it is now; durable when it resolves.
    ///
    /// # Errors
    /// 409 with every fault of the file: then the old policy holds on.
    pub(crate) async fn take(&self) -> Result<PolicyView, ApiError> {
        let _turn = self.turn.lock().await;
        let (home, mounts) = (self.home.clone(), self.mounts.clone());
        let looked = tokio::task::spawn_blocking(move || {
            home.check_private().map_err(|error| vec![error.to_string()])?;
            read(&home.policy_file(), &mounts)
        });
        let looked = looked.await.map_err(|error| ApiError::internal(error.to_string()))?;
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(looked.as_ref().err().unwrap_or(&vec![]));
        let text = match looked {
            Ok(looked) => looked.text,
            Err(faults) => {
                let generation = self.heart.look(|kernel| kernel.policy().generation().to_owned()).await?;
                let file = self.home.policy_file();
                let faults = faults.join("; ");
                tracing::error!(file = %file.display(), %generation, "the changed policy is refused and the old one stays: {faults}");
                return Err(ApiError::new(409, "policy", format!("{} cannot be used: {faults}", file.display())).hint(
                    format!("the policy that was there holds on, generation {generation}; `aos policy check` shows every fault"),
                ));
            }
        };
        let hash = if text.is_empty() { String::new() } else { aos_sandbox::digest(text.as_bytes()) };
        let (counted, asked) = tokio::sync::oneshot::channel();
        let taken = self.heart.change(move |kernel| {
            if kernel.config().policy == text {
                return Err(unchanged());
            }
            // Whoever asked may have hung up.
            let _ = counted.send(super::system::pending(kernel));
            Ok((Pid::SYSTEM, Body::Configured(Box::new(Configured { policy: text, ..(**kernel.config()).clone() }))))
        });
        let changed = match taken.await {
            Ok(_) => true,
            Err(error) if error == unchanged() => false,
            Err(error) => return Err(error.into()),
        };
        let generation = self.heart.look(|kernel| kernel.policy().generation().to_owned()).await?;
        let mut ended = 0;
        if changed {
            ended = asked.await.map_or(0, |asked| asked as u64);
            tracing::info!(%generation, ended, "another policy holds");
            // What the next start compares with is what the person has changed since.
            let measured = self.heart.change(move |kernel| {
                Ok((Pid::SYSTEM, Body::Measured(Measured { policy: hash, ..kernel.measured().clone() })))
            });
            measured.await?;
        }
        Ok(PolicyView { generation, refused: Vec::new(), ended })
    }

    /// Takes the file whenever it changes, until it is dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let file = self.home.policy_file();
        let watched = file.parent().zip(file.file_name()).ok_or(Errno::INVAL);
        let (folder, name) =
            match watched.and_then(|(folder, name)| Ok((Folder::watch(folder)?, name.as_encoded_bytes()))) {
                Ok(watched) => watched,
                Err(error) => {
                    tracing::warn!(%error, "changes of the policy are not noticed; `aos policy reload` takes them");
                    return;
                }
            };
        loop {
            if let Err(error) = folder.settled(name).await {
                tracing::warn!(%error, "changes of the policy are noticed no more; `aos policy reload` takes them");
                return;
            }
            // A fault is logged there, and shown by whoever asks.
            let _ = self.take().await;
        }
    }
}

/// No reason to make an entry.
fn unchanged() -> CallError {
    CallError::new(Code::Exist, "the policy is that one already")
}

/// A folder in which a file is replaced or written anew. The journal's files may lie beside it, so mere writing is not told.
struct Folder(AsyncFd<std::os::fd::OwnedFd>);

impl Folder {
    #[expect(
        deprecated,
        reason = "the new name is unsafe for types that may swap their descriptor; this one never does"
    )]
    fn watch(folder: &Path) -> Result<Folder, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, folder, flags)?;
        let fd = AsyncFd::with_interest(inotify, Interest::READABLE);
        fd.map(Folder).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Waits until the file of this name has changed, and then until it changes no more.
    async fn settled(&self, name: &[u8]) -> Result<(), Errno> {
        while !self.changed(name).await? {}
        while let Ok(more) = tokio::time::timeout(SETTLED, self.changed(name)).await {
            more?;
        }
        Ok(())
    }

    /// Waits for something in the folder; whether it was this file.
    async fn changed(&self, name: &[u8]) -> Result<bool, Errno> {
        let mut ready = self.0.readable().await.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut reader = inotify::Reader::new(self.0.get_ref(), &mut buffer);
        let mut ours = false;
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => return Err(Errno::NOENT),
                // Told of too much at once, it is looked at.
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => ours = true,
                Ok(event) => ours |= event.file_name().is_some_and(|changed| changed.to_bytes() == name),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        ready.clear_ready();
        Ok(ours)
    }
}
