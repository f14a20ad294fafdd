//! The drivers as the edges use them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::{CallError, Code, EffectId, Pid};
use aos_drivers::fs;
use aos_gateway::ApiError;
use aos_memory::{MemoryStore, WordStore};
use aos_policy::Permit;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::heart::Completion;
use super::memory::People;
use crate::config::Config;
use crate::home::Home;

/// Every driver of the daemon.
pub(crate) struct Drivers {
    files: fs::Driver,
    memory: Arc<dyn MemoryStore>,
    watches: Mutex<HashMap<(Pid, String), CancellationToken>>,
}

impl Drivers {
    /// The drivers that the configuration asks for.
    pub(crate) fn new(_config: &Config, home: &Home) -> Result<Drivers, super::Error> {
        let memory = WordStore::open(&home.memory().join("memory.db"))
            .map_err(|error| super::Error::Part { what: "the memory store", why: error.to_string() })?;
        Ok(Drivers { files: fs::Driver::new(), memory: Arc::new(memory), watches: Mutex::default() })
    }

    /// A file call. Blocking.
    pub(crate) fn files(&self, permit: Permit, folder: &Path) -> Result<Value, CallError> {
        self.files.call(permit, folder)
    }

    /// A memory call. Blocking.
    pub(crate) fn memory(&self, effect: EffectId, permit: Permit) -> Result<Value, CallError> {
        let pid = permit.pid();
        super::memory::call(&*self.memory, effect, pid, permit.into_call())
    }

    /// Memory as people see it. Blocking.
    pub(crate) fn remembered<T>(&self, read: impl FnOnce(&People<'_>) -> Result<T, ApiError>) -> Result<T, ApiError> {
        read(&People(&*self.memory))
    }

    /// A command.
    pub(crate) async fn exec(
        &self,
        _permit: Permit,
        _folder: PathBuf,
        _token: CancellationToken,
    ) -> Result<Value, CallError> {
        Err(CallError::new(Code::NoSys, "commands are not there yet"))
    }

    /// A request to the network.
    pub(crate) async fn net(&self, _permit: Permit, _token: CancellationToken) -> Result<Value, CallError> {
        Err(CallError::new(Code::NoSys, "the network is not there yet"))
    }

    /// Begins to watch files; changes come back through `completions`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the effect")]
    pub(crate) fn watch(
        &self,
        _runtime: &tokio::runtime::Handle,
        _completions: mpsc::UnboundedSender<Completion>,
        pid: Pid,
        watch_id: String,
        _folder: PathBuf,
        _path: &str,
        _glob: Option<String>,
    ) {
        let token = CancellationToken::new();
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).insert((pid, watch_id), token);
    }

    /// Stops watching.
    pub(crate) fn unwatch(&self, pid: Pid, watch_id: &str) {
        let token = self.watches.lock().unwrap_or_else(PoisonError::into_inner).remove(&(pid, watch_id.to_owned()));
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Stops every watch.
    pub(crate) fn close(&self) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).drain().for_each(|(_, token)| token.cancel());
    }
}
