//! The driver: from an allowed call to what carries it out.

use aos_abi::{CallError, Code, Syscall};
use aos_policy::Permit;
use aos_sandbox::Committed;
use serde_json::Value;

use super::keep::{Keeper, Keeping};
use super::locks::Locks;
use super::path::Beneath;
use super::place::Place;
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

    /// Carries out an allowed call in a workspace; with `keeping`, so that it can be undone. Blocking: call it from a thread
    /// that may wait for a disk. What takes long and changes nothing asks `stop` now and then whether to end early.
    ///
    /// The answer's error is as the contract has them: `ENOENT`, `EEXIST`, `ENOTDIR`, `EISDIR`, `ENOSPC`, `EPERM` for what
    /// is outside or no regular file, `EINVAL`, `EAGAIN`, `EIO`; `ENOSYS` for a call that is no file call.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up by the call")]
    pub fn call(&self, permit: Permit, place: &Place, keeping: Option<Keeping>, stop: &dyn Fn() -> bool) -> Done {
        self.perform(permit.call(), place, keeping, stop)
    }

    /// Carries out a call whatever the policy says of it.
    pub(super) fn perform(
        &self,
        call: &Syscall,
        place: &Place,
        keeping: Option<Keeping>,
        stop: &dyn Fn() -> bool,
    ) -> Done {
        let mut keeper = Keeper::new(&place.root, keeping);
        let answer = self.dispatch(call, place, &mut keeper, stop);
        Done { answer, committed: keeper.into_committed() }
    }

    fn dispatch(
        &self,
        call: &Syscall,
        place: &Place,
        keeper: &mut Keeper<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Value, CallError> {
        let open = || Workspace::open(place);
        let done = match call {
            Syscall::FsRead(args) => read::read(&open()?, args),
            Syscall::FsWrite(args) => {
                let path = Beneath::parse(&args.path)?.of_file()?.of_new()?;
                let _turn = self.locks.hold(&place.root, &path);
                write::write(&open()?, args, &path, keeper)
            }
            Syscall::FsEdit(args) => {
                let path = Beneath::parse(&args.path)?.of_file()?;
                let _turn = self.locks.hold(&place.root, &path);
                edit::edit(&open()?, args, &path, keeper)
            }
            Syscall::FsList(args) => list::list(&open()?, args),
            Syscall::FsSearch(args) => search::search(&open()?, args, stop),
            Syscall::FsDelete(args) => delete::delete(&open()?, args, keeper),
            Syscall::FsMove(args) => delete::relocate(&open()?, args, keeper),
            other => return Err(CallError::new(Code::NoSys, format!("{} is no file call", other.name()))),
        };
        Ok(done?)
    }
}

/// What came of a call.
#[derive(Debug)]
#[must_use]
pub struct Done {
    /// What the agent is told.
    pub answer: Result<Value, CallError>,
    /// The change, where it was kept.
    pub committed: Option<Committed>,
}
