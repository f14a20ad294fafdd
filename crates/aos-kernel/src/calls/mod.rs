//! System calls that the kernel carries out itself, a file per family.
//!
//! Start at [`Kernel::kernel_call`]. Each family checks its arguments, changes the table and says what the call came to.

mod agents;
mod kill;
mod messages;
mod person;
mod stdio;
mod timers;
mod watches;
mod webhooks;

use aos_abi::{CallError, Code, Pid, Syscall, Timestamp};
use aos_policy::Permit;

use crate::Kernel;
use crate::step::Done;
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    /// Carries out a call that needs no driver. The permit is proof that the policy allowed it.
    pub(crate) fn kernel_call(&mut self, pid: Pid, index: usize, permit: Permit) -> Done {
        let attached = permit.attached();
        match permit.into_call() {
            Syscall::SpawnAgent(args) => Done::Now(self.spawn_agent(pid, index, args, attached)),
            Syscall::Wait(args) => self.wait(pid, &args),
            Syscall::Kill(args) => self.kill(pid, index, &args),
            Syscall::SysExit(args) => {
                let code = i32::from(args.code.unwrap_or(0));
                self.exit(pid, code, args.result.unwrap_or(serde_json::Value::Null), "SYS_EXIT");
                Done::Ended
            }
            Syscall::SendMsg(args) => Done::Now(self.send_msg(pid, args)),
            Syscall::RecvMsg(args) => self.recv_msg(pid, &args),
            Syscall::SysWriteStdout(args) => Done::Now(self.write_stdout(pid, &args)),
            Syscall::SysReadStdin(args) => self.read_stdin(pid, &args),
            Syscall::Sleep(args) => self.sleep(&args),
            Syscall::SysSchedule(args) => Done::Now(self.set_timer(pid, args)),
            Syscall::SysUnschedule(args) => Done::Now(self.cancel_timer(pid, &args)),
            Syscall::SysRegisterWebhook(args) => Done::Now(self.register_webhook(pid, args)),
            Syscall::SysWebhookReply(args) => Done::Now(self.webhook_reply(pid, args)),
            Syscall::FsWatch(args) => Done::Now(self.watch(pid, args)),
            Syscall::FsUnwatch(args) => Done::Now(self.unwatch(pid, &args)),
            Syscall::AskUser(args) => self.ask_user(pid, &args),
            Syscall::Propose(args) => self.propose_call(pid, index, args),
            other => Done::Now(Err(CallError::new(Code::Io, format!("{} has no place in the kernel", other.name())))),
        }
    }

    /// The end of a wait of at most so many seconds from now.
    fn until(&self, timeout_s: Option<f64>) -> Option<Timestamp> {
        timeout_s.map(|seconds| self.globals.at.plus_seconds(seconds))
    }
}

/// A call whose arguments have the right types and the wrong values. Where nothing else is hinted it is told with an example.
fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(Code::Inval, message)
}

/// The same of one argument, by its JSON pointer.
fn invalid_at(pointer: &str, message: impl AsRef<str>) -> CallError {
    invalid(aos_abi::syscall::at(pointer, message.as_ref()))
}
