//! The check before the journal: whether an input from outside may become an entry.
//!
//! What is refused here leaves no trace and gets an error with a way out; what passes is applied without failing.

use aos_abi::entry::ProposalState;
use aos_abi::process::Mode;
use aos_abi::{Body, CallError, Code, Pid, Timestamp, limits};

use crate::budget::{Dimension, Grant};
use crate::process::OpenProposal;
use crate::proposals::no_proposal;
use crate::table::PageStore;
use crate::{Kernel, no_process};

impl<P: PageStore> Kernel<P> {
    /// Whether this input may be applied at this time, which may be later than the last entry: what renews with time has.
    ///
    /// # Errors
    /// As [`Kernel::check`].
    pub fn check_at(&mut self, at: Timestamp, pid: Pid, body: &Body) -> Result<(), CallError> {
        let before = (self.globals.at, self.globals.day);
        self.globals.at = before.0.max(at);
        self.globals.day.turn(self.globals.at);
        let checked = self.check(pid, body);
        // Only an entry makes time pass.
        (self.globals.at, self.globals.day) = before;
        checked
    }

    /// Whether this input may be applied as of the last entry.
    ///
    /// # Errors
    /// `ESRCH` for a process that does not live, `EINVAL` for what does not fit, `EAGAIN` for a full queue, `ENOENT`
    /// for an outcome nobody waits for any more (the edge then drops it).
    pub fn check(&mut self, pid: Pid, body: &Body) -> Result<(), CallError> {
        match body {
            Body::Spawned(spec) => {
                self.check_new(pid)?;
                if spec.mode == Mode::Program && spec.task.is_some() {
                    return Err(CallError::new(Code::Inval, "a program has no task"));
                }
                self.check_spawn(spec)
            }
            Body::Forked { spec, .. } => {
                self.check_new(pid)?;
                self.check_spawn(spec)
            }
            Body::Input { text, eof, .. } => {
                self.check_text("text", text)?;
                if self.live(pid)?.mode == Mode::Program {
                    return Err(CallError::new(
                        Code::Inval,
                        format!("process {pid} is a program's key and reads nothing"),
                    )
                    .hint("`aos ps` lists agents too"));
                }
                if text.is_empty() && !eof {
                    return Err(CallError::new(Code::Inval, "`text` is empty"));
                }
                let process = self.live(pid)?;
                if text.is_empty() && process.is_full() {
                    return Err(busy(format!("process {pid} has {} unread events", process.notices.len())));
                }
                if process.stdin.len() >= limits::STDIN_MAX {
                    return Err(busy(format!("process {pid} has {} unread pieces of input", limits::STDIN_MAX)));
                }
                Ok(())
            }
            Body::Signal { .. } => self.live(pid).map(|_| ()),
            Body::GroupSignal { group, .. } => self.check_members(group),
            Body::Unscheduled { timer_id } => {
                let process = self.live(pid)?;
                if process.timers.contains_key(timer_id) { Ok(()) } else { Err(process.no_timer(timer_id)) }
            }
            Body::Webhook(_) => {
                let process = self.live(pid)?;
                if process.is_full() {
                    return Err(busy(format!("process {pid} has {} unread events", process.notices.len())));
                }
                self.check_brought(pid)
            }
            Body::Watch { watch_id, .. } => {
                let process = self.live(pid)?;
                if !process.watches.contains_key(watch_id) {
                    Err(CallError::new(Code::NoEnt, format!("process {pid} has no watch `{watch_id}`")))
                } else if process.is_full() {
                    Err(busy(format!("process {pid} has {} unread events", process.notices.len())))
                } else {
                    Ok(())
                }
            }
            Body::Keyed(key) => self.check_key(pid, key),
            Body::Asked(asked) => self.check_request(pid, asked),
            Body::Withdrawn { request } => match self.table.get(pid) {
                Some(process) if process.asks.iter().any(|ask| ask.request == *request) => Ok(()),
                _ => Err(CallError::new(Code::NoEnt, format!("request {request} does not wait"))),
            },
            Body::InferenceCompleted { effect, .. }
            | Body::Served { effect, .. }
            | Body::Result { effect: Some(effect), .. } => {
                if self.globals.in_flight.contains_key(effect) {
                    Ok(())
                } else {
                    Err(CallError::new(Code::NoEnt, format!("nothing waits for effect {effect}")))
                }
            }
            Body::Silent { effect } if self.may_be_hedged(*effect) => Ok(()),
            Body::Silent { effect } => Err(CallError::new(
                Code::NoEnt,
                format!("effect {effect} is not waited for, or not for the first time"),
            )),
            // Also of one that has ended: a person may take back what it did.
            Body::Changed(_) | Body::Requested(_) if self.table.get(pid).is_some() => Ok(()),
            Body::Changed(_) | Body::Requested(_) => Err(no_process(pid)),
            Body::Proposal {
                state:
                    ProposalState::Pending
                    | ProposalState::Expired
                    | ProposalState::Executed
                    | ProposalState::Undone
                    | ProposalState::Denied,
                ..
            } => Err(CallError::new(Code::Inval, "a proposal is answered with approved, standing, rejected or vetoed")),
            Body::Proposal { id, state, .. } => self.check_answer(pid, id, *state),
            Body::Examined(examined) => {
                let unseen = |open: &OpenProposal| open.examined.is_none();
                let asked = self.open_proposal(pid, &examined.id).is_some_and(unseen);
                if asked || self.denial(pid, &examined.id).is_some_and(|denial| unseen(&denial.open)) {
                    Ok(())
                } else {
                    Err(no_proposal(&examined.id))
                }
            }
            Body::Budgeted { budget } => self.check_budget(pid, &Grant::from(budget)),
            Body::Booted { .. }
            | Body::Faulted(_)
            | Body::Configured(_)
            | Body::Measured(_)
            | Body::Tick
            | Body::Rested { .. }
            | Body::Pruned { .. } => Ok(()),
            other => Err(CallError::new(Code::Inval, format!("`{}` is decided by the kernel alone", other.kind()))),
        }
    }

    fn check_new(&self, pid: Pid) -> Result<(), CallError> {
        if pid == self.next_pid() {
            Ok(())
        } else {
            Err(CallError::new(Code::Inval, format!("the next pid is {}, not {pid}", self.next_pid())))
        }
    }

    fn live(&mut self, pid: Pid) -> Result<&crate::process::Process, CallError> {
        match self.table.get(pid) {
            None => Err(no_process(pid)),
            Some(process) if process.exited() => {
                Err(CallError::new(Code::Srch, format!("process {pid} has ended"))
                    .hint("`aos ps` lists those that live"))
            }
            Some(process) => Ok(process),
        }
    }

    fn check_budget(&mut self, pid: Pid, grant: &Grant) -> Result<(), CallError> {
        let process = self.live(pid)?;
        let (budget, from) = (process.budget, process.budget.from);
        for dimension in Dimension::ALL {
            let account = budget.account(dimension);
            let Some(limit) = grant.get(dimension) else { continue };
            // What is set aside ahead is given back first.
            let ahead = self.ahead(pid, dimension);
            let used = account.used().saturating_sub(ahead);
            if limit < used {
                return Err(CallError::new(Code::Inval, format!("{} are used already", dimension.show(used))));
            }
            let more = limit.saturating_sub(account.limit.unwrap_or(used));
            if let Some(left) = self.left(from, dimension)
                && more > left
            {
                return Err(CallError::new(Code::DQuot, format!("its parent has {} left", dimension.show(left))));
            }
        }
        Ok(())
    }

    /// A text that people and agents may send.
    pub(crate) fn check_text(&self, what: &str, text: &str) -> Result<(), CallError> {
        if text.len() <= limits::TEXT_BYTES_MAX {
            return Ok(());
        }
        Err(CallError::new(
            Code::Inval,
            format!("`{what}` holds {} bytes, the most is {}", text.len(), limits::TEXT_BYTES_MAX),
        )
        .hint("put it into a file of the workspace and name that"))
    }

    /// A name that a new process may have.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), CallError> {
        check_plain("a process", name)?;
        match self.globals.names.get(name) {
            Some(pid) => {
                Err(CallError::new(Code::Exist, format!("process {pid} has the name `{name}`"))
                    .hint("choose another name"))
            }
            None => Ok(()),
        }
    }
}

/// A name as processes and groups have them. One of digits alone would be taken for a pid.
pub(crate) fn check_plain(of: &str, name: &str) -> Result<(), CallError> {
    let fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let bad = name.is_empty() || name.len() > limits::NAME_BYTES_MAX || !name.chars().all(fine);
    if bad || name.chars().all(|c| c.is_ascii_digit()) {
        let hint =
            format!("letters, digits, `-`, `_` and `.`, at most {} bytes, not only digits", limits::NAME_BYTES_MAX);
        return Err(CallError::new(Code::Inval, format!("that is no name for {of}")).hint(hint));
    }
    Ok(())
}

fn busy(message: String) -> CallError {
    let mut error = CallError::new(Code::Again, message);
    error.retry_after_ms = Some(1000);
    error
}
