//! Forks of processes: another one with the same past, and a copy of its files.
//!
//! What always holds: the files are copied beside the loop, so that nothing waits for them but calls that would change
//! them; what is refused leaves nothing behind.

use std::path::PathBuf;

use aos_abi::api::{Accepted, ForkRequest};
use aos_abi::process::SpawnSpec;
use aos_abi::{Body, CallError, Code, Lsn, Pid};
use aos_gateway::{Answer, ApiError};

use super::folders;
use super::heart::LiveKernel;
use super::past::{self, Told};
use super::system::{Daemon, blocking};

impl Daemon {
    /// Makes a process that has lived through what another one had, now or just after an entry.
    pub(super) async fn forked(&self, pid: Pid, request: ForkRequest) -> Answer<Accepted> {
        let ForkRequest { at, name } = request;
        let lives = self.heart.look(move |kernel| kernel.process(pid).is_some_and(|process| !process.exited())).await?;
        let told = match at.is_none() && lives {
            // Whoever lives knows best; it is asked once the files are there.
            true => None,
            false => {
                let reader = self.journal.reader();
                let told = blocking(move || past::window(&reader, pid, at)).await?;
                Some(told.ok_or_else(|| {
                    CallError::new(Code::NoEnt, format!("process {pid} has no entries up to there"))
                        .hint(format!("`aos logs {pid} --events` shows the number of each"))
                })?)
            }
        };
        // What cannot be made is refused before anything is copied.
        let look = {
            let name = name.clone();
            move |kernel: &mut LiveKernel| {
                fork(kernel, pid, name, Told { upto: Lsn::ZERO, window: Vec::new(), rests: false })?;
                kernel.detail(pid).map(|detail| detail.workspace)
            }
        };
        let source = self.edges.folder(&self.heart.look(look).await??);
        let staged = self.copy_of(source, "a fork").await?;
        let workspaces = self.home.workspaces();
        let make = move |kernel: &mut LiveKernel| {
            let told = told.map_or_else(|| now(kernel, pid), Ok)?;
            let (new, body) = fork(kernel, pid, name, told)?;
            std::fs::rename(staged.path(), workspaces.join(new.to_string()))
                .map_err(|error| CallError::new(Code::Io, format!("no workspace could be made: {error}")))?;
            let _ = staged.keep();
            Ok((new, body))
        };
        Ok(self.heart.change(make).await?)
    }

    /// A copy of a folder, on which `what` will work, made while nobody changes it.
    pub(super) async fn copy_of(&self, folder: PathBuf, what: &'static str) -> Answer<tempfile::TempDir> {
        let turn = self.undo.persons_turn(&folder, folders::TURN_WITHIN).await?;
        let into = self.home.workspaces();
        let copy = move || {
            // To its end, also where nobody waits for it any more.
            let _turn = turn;
            folders::copy_apart(&folder, &into, what)
        };
        let copied = tokio::task::spawn_blocking(copy).await;
        copied.map_err(|error| ApiError::internal(error.to_string()))?
    }
}

/// What a living process has lived through.
fn now(kernel: &mut LiveKernel, pid: Pid) -> Result<Told, CallError> {
    let window = kernel.past(pid).ok_or_else(|| {
        CallError::new(Code::Again, format!("process {pid} has ended meanwhile"))
            .hint("fork it again: its past is in the journal")
    })?;
    Ok(Told { upto: kernel.lsn(), window, rests: kernel.rests(pid) })
}

/// The process that would be made, checked.
fn fork(kernel: &mut LiveKernel, pid: Pid, name: Option<String>, told: Told) -> Result<(Pid, Body), CallError> {
    let new = kernel.next_pid();
    let spec = Box::new(SpawnSpec { name, ..kernel.fork_of(pid)? });
    let Told { upto: from_lsn, window, rests } = told;
    let body = Body::Forked { from_pid: pid, from_lsn, spec, window, rests };
    kernel.check(new, &body)?;
    Ok((new, body))
}
