//! The driver: from an allowed call to what carries it out.

use std::path::Path;

use aos_abi::{CallError, Code, Syscall};
use aos_policy::Permit;
use serde_json::Value;

use super::locks::Locks;
use super::path::Beneath;
use super::workspace::Workspace;
use super::{delete, edit, list, read, search, write};

/// Carries out file calls. Holds no file open between calls; share one for the whole daemon.
#[derive(Debug)]
pub struct Driver {
    locks: Locks,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver::new()
    }
}

impl Driver {
    /// A driver. Writers of one file take turns only if they use the same one.
    #[must_use]
    pub fn new() -> Driver {
        Driver { locks: Locks::new() }
    }

    /// Carries out an allowed call in a workspace. Blocking: call it from a thread that may wait for a disk.
    ///
    /// # Errors
    /// As the contract has them: `ENOENT`, `EEXIST`, `ENOTDIR`, `EISDIR`, `ENOSPC`, `EPERM` for what is outside or no
    /// regular file, `EINVAL`, `EAGAIN`, `EIO`; `ENOSYS` for a call that is no file call.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up by the call")]
    pub fn call(&self, permit: Permit, workspace: &Path) -> Result<Value, CallError> {
        self.perform(permit.call(), workspace)
    }

    /// Carries out a call whatever the policy says of it.
    pub(super) fn perform(&self, call: &Syscall, workspace: &Path) -> Result<Value, CallError> {
        let open = || Workspace::open(workspace);
        let done = match call {
            Syscall::FsRead(args) => read::read(&open()?, args),
            Syscall::FsWrite(args) => {
                let path = Beneath::parse(&args.path)?.of_file()?;
                let _turn = self.locks.hold(workspace, &path);
                write::write(&open()?, args, &path)
            }
            Syscall::FsEdit(args) => {
                let path = Beneath::parse(&args.path)?.of_file()?;
                let _turn = self.locks.hold(workspace, &path);
                edit::edit(&open()?, args, &path)
            }
            Syscall::FsList(args) => list::list(&open()?, args),
            Syscall::FsSearch(args) => search::search(&open()?, args),
            Syscall::FsDelete(args) => delete::delete(&open()?, args),
            Syscall::FsMove(args) => delete::relocate(&open()?, args),
            other => return Err(CallError::new(Code::NoSys, format!("{} is no file call", other.name()))),
        };
        Ok(done?)
    }
}
