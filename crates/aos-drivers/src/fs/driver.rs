//! The driver: from an allowed call to what carries it out.

use std::path::Path;

use aos_abi::{CallError, Code, Syscall};
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
