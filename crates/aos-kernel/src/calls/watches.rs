//! `FS_WATCH` and `FS_UNWATCH`: the kernel keeps what is watched, the file driver looks.

use aos_abi::syscall::{FsUnwatch, FsWatch};
use aos_abi::{CallError, Code, Pid, limits};
use aos_policy::settings::Mount;
use serde_json::{Value, json};

use crate::Kernel;
use crate::effect::Effect;
use crate::process::WatchSpec;
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    pub(super) fn watch(&mut self, pid: Pid, args: FsWatch) -> Result<Value, CallError> {
        let spec = WatchSpec { path: args.path.unwrap_or_else(|| ".".into()), glob: args.glob };
        let added = self.with(pid, |process| {
            if process.watches.len() >= limits::WATCHES_MAX {
                return Err(CallError::new(
                    Code::Again,
                    format!("{} watches already, the most there may be", limits::WATCHES_MAX),
                )
                .hint("FS_UNWATCH one first"));
            }
            let id = process.fresh_id("w");
            process.watches.insert(id.clone(), spec.clone());
            Ok((id, process.workspace.clone(), process.policy_role.clone()))
        });
        let (watch_id, workspace, role) = added.unwrap_or_else(|| Err(crate::no_process(pid)))?;
        self.globals.watchers.insert(pid);
        let WatchSpec { path, glob } = spec;
        self.perform(Effect::Watch { pid, watch_id: watch_id.clone(), workspace, role, path, glob });
        Ok(json!({ "watch_id": watch_id }))
    }

    pub(super) fn unwatch(&mut self, pid: Pid, args: &FsUnwatch) -> Result<Value, CallError> {
        let left = self.with(pid, |process| process.watches.remove(&args.watch_id).map(|_| process.watches.len()));
        let Some(Some(left)) = left else {
            return Err(CallError::new(Code::NoEnt, format!("no watch `{}`", args.watch_id)));
        };
        if left == 0 {
            self.globals.watchers.remove(&pid);
        }
        self.perform(Effect::Unwatch { pid, watch_id: args.watch_id.clone() });
        Ok(json!({}))
    }

    /// Has everything watched that a process watches.
    pub(crate) fn begin_watches(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        let (workspace, role) = (process.workspace.clone(), process.policy_role.clone());
        for (watch_id, spec) in process.watches.clone() {
            self.perform(Effect::Watch {
                pid,
                watch_id,
                workspace: workspace.clone(),
                role: role.clone(),
                path: spec.path,
                glob: spec.glob,
            });
        }
    }

    /// The folders that whoever watches has mounted by the policy that holds.
    pub(crate) fn mounted_to_watchers(&mut self) -> Vec<(Pid, Vec<Mount>)> {
        let watchers = self.globals.watchers.clone().into_iter().filter_map(|pid| {
            let role = self.table.get(pid)?.policy_role.clone();
            Some((pid, self.policy.mounts_of(&role).to_vec()))
        });
        watchers.collect()
    }

    /// Another policy holds: a folder that it mounts no more is watched no more, and its names would come unlabelled.
    pub(crate) fn watch_what_is_mounted(&mut self, before: Vec<(Pid, Vec<Mount>)>) {
        let place = |mount: &Mount| (mount.at.clone(), mount.host.clone());
        for (pid, before) in before {
            let Some(process) = self.table.get(pid) else { continue };
            let now = self.policy.mounts_of(&process.policy_role);
            if now.iter().map(place).eq(before.iter().map(place)) {
                continue;
            }
            for watch_id in process.watches.keys().cloned().collect::<Vec<_>>() {
                self.perform(Effect::Unwatch { pid, watch_id });
            }
            self.begin_watches(pid);
        }
    }
}
