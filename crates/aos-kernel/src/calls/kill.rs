//! `KILL`.

use aos_abi::syscall::Kill;
use aos_abi::{Body, CallError, Code, Pid, Signal, Syscall};
use serde_json::json;

use super::invalid;
use crate::process::Process;
use crate::step::Done;
use crate::table::PageStore;
use crate::{Kernel, no_peer};

/// How the reason begins for which a process is stopped that an agent has stopped.
const BY_AGENT: &str = "stopped by process ";

impl<P: PageStore> Kernel<P> {
    /// The permit says that the policy lets the signal reach whom the call names.
    pub(super) fn kill(&mut self, pid: Pid, index: usize, args: &Kill) -> Done {
        let signal = args.signal.unwrap_or(Signal::Term);
        let said = match (args.pid, &args.group) {
            (Some(to), None) if to == pid && signal != Signal::Kill => {
                // The call itself is over before the signal takes hold, else it would wait for its own result.
                self.finish_call(pid, index, Ok(json!({})));
                let lsn = self.fact(pid, Body::Signal { signal, from_pid: pid, tree: false });
                self.signal(pid, signal, lsn);
                return Done::Ended;
            }
            (Some(to), None) => self.check_reachable(to).and_then(|()| self.send(pid, to, signal)).map(|()| json!({})),
            (None, Some(group)) => self.kill_group(pid, group, signal),
            _ => Err(invalid("exactly one of `pid` and `group` says whom")),
        };
        if self.table.get(pid).is_none_or(Process::exited) { Done::Ended } else { Done::Now(said) }
    }

    /// Why nobody is there for a signal to one process, whatever the policy says.
    pub(crate) fn unreachable(&mut self, from: Pid, call: &Syscall) -> Option<CallError> {
        let Syscall::Kill(Kill { pid: Some(to), group: None, .. }) = call else { return None };
        if *to == from { None } else { self.check_reachable(*to).err() }
    }

    fn check_reachable(&mut self, to: Pid) -> Result<(), CallError> {
        match self.table.get(to) {
            None => Err(no_peer(to)),
            Some(process) if process.exited() => Err(CallError::new(Code::Srch, format!("process {to} has ended"))),
            Some(process) if process.is_program() => {
                Err(CallError::new(Code::Perm, format!("process {to} is a program that a person let in"))
                    .hint("people alone end it; there is no grant for this"))
            }
            Some(_) => Ok(()),
        }
    }

    /// What a person has stopped, or what waits for one, no agent lets go on, not even for a last turn.
    fn send(&mut self, from: Pid, to: Pid, signal: Signal) -> Result<(), CallError> {
        let was = self.table.get(to).and_then(|process| process.stopped.clone());
        let by_agent = was.as_ref().is_none_or(|why| why.starts_with(BY_AGENT));
        if matches!(signal, Signal::Cont | Signal::Term) && !by_agent {
            let message = format!("process {to} is stopped until a person lets it go on");
            let hint = "ask with ASK_USER, or go on without it; KILL ends it as it is";
            return Err(CallError::new(Code::Perm, message).hint(hint));
        }
        let lsn = self.fact(to, Body::Signal { signal, from_pid: from, tree: false });
        self.signal(to, signal, lsn);
        if signal == Signal::Stop {
            let why = if by_agent { Some(format!("{BY_AGENT}{from}")) } else { was };
            self.with(to, |process| process.stopped = why);
        }
        Ok(())
    }

    fn kill_group(&mut self, pid: Pid, group: &str, signal: Signal) -> Result<serde_json::Value, CallError> {
        self.check_members(group).map_err(|error| CallError { hint: None, ..error })?;
        let reach = self.reach(pid, group, Some(signal));
        if reach.signalled.is_empty() {
            let message = format!("nobody in the group `{group}` is below you or granted to you");
            let hint = "name one by its `pid`: a person is asked then, or sees which grant that takes";
            return Err(CallError::new(Code::Perm, message).hint(hint));
        }
        let mut left_out = reach.left_out;
        let mut signalled = Vec::new();
        for to in reach.signalled {
            // The end of one may have been that of another.
            if self.table.get(to).is_none_or(Process::exited) {
                continue;
            }
            match self.send(pid, to, signal) {
                Ok(()) => signalled.push(to),
                Err(_) => left_out.push(to),
            }
        }
        Ok(json!({ "signalled": signalled, "left_out": left_out }))
    }
}
