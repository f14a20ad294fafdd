//! `FS_WATCH` and `FS_UNWATCH`: the kernel keeps what is watched, the file driver looks.

use aos_abi::syscall::{FsUnwatch, FsWatch};
use aos_abi::{CallError, Code, Pid, limits};
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
}
