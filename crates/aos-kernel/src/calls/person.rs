//! `ASK_USER` and `PROPOSE`.

use aos_abi::entry::Verdict;
use aos_abi::syscall::{AskUser, Handler, Propose};
use aos_abi::{CallError, Code, Pid, Syscall, limits};

use super::invalid_at;
use crate::Kernel;
use crate::denials::denied;
use crate::process::Wait;
use crate::proposals::Question;
use crate::step::Done;
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    pub(super) fn ask_user(&mut self, pid: Pid, args: &AskUser) -> Done {
        if let Err(error) = self.check_text("question", &args.question) {
            return Done::Now(Err(error));
        }
        self.puts(pid, &serde_json::json!(args));
        self.count_ask(pid);
        Done::Waits(Wait::Person, self.until(args.timeout_s))
    }

    pub(super) fn propose_call(&mut self, pid: Pid, index: usize, args: Propose) -> Done {
        let action = match Syscall::parse(&args.action.name, &args.action.args.to_string()) {
            Ok(action) if matches!(action, Syscall::Propose(_) | Syscall::SysExit(_)) => {
                return Done::Now(Err(invalid_at("/action/name", format!("{} cannot be proposed", action.name()))));
            }
            Ok(action) => match action.name().spec().handler {
                Handler::Absent(hint) => {
                    let error = CallError::new(Code::NoSys, format!("{} is not there yet", action.name())).hint(hint);
                    return Done::Now(Err(error));
                }
                Handler::Kernel | Handler::Files | Handler::Exec | Handler::Net | Handler::Memory => action,
            },
            Err(mut error) => {
                error.message = format!("in `action`: {}", error.message);
                return Done::Now(Err(error));
            }
        };
        if let Err(error) = check_reason("why", &args.why).and(check_reason("risk", args.risk.as_deref().unwrap_or("")))
        {
            return Done::Now(Err(error));
        }
        let (name, canonical) = (action.name(), action.args());
        let Some(ruling) = self.rule(pid, action) else { return Done::Ended };
        if ruling.verdict == Verdict::Deny {
            let call_id = self.table.get(pid).map(|process| process.step[index].call_id.clone());
            if let (Some(call_id), Some(call)) = (call_id, &ruling.refused) {
                self.keep_denial(pid, call_id, call, &ruling.rule, None);
            }
            return Done::Now(Err(denied(name, &ruling.rule, ruling.hint)));
        }
        // Whatever the policy says of it, a person is asked.
        if let Some(over) = self.over(pid, name, Verdict::Ask, &ruling.obligations) {
            return Done::Now(Err(over.error(name)));
        }
        self.count_rates(pid, &ruling.obligations);
        let rule = "PROPOSE".to_owned();
        // What is known of it first: a process that was told what to propose was told what to say of it, too.
        let known = ruling.lacking.map(|lacking| self.risk(pid, &lacking));
        let risk = match (known, args.risk) {
            (Some(known), Some(said)) => Some(format!("{known}. It says itself: {said}")),
            (None, Some(said)) => Some(format!("it says itself: {said}")),
            (known, None) => known,
        };
        let question = Question { name, args: canonical, hold_ms: None, rule, why: Some(args.why), risk };
        self.propose(pid, index, question);
        // `propose` has put the call into its waiting state already.
        Done::Ended
    }
}

/// What a process says for its proposal is read by a person before they answer.
fn check_reason(what: &str, said: &str) -> Result<(), CallError> {
    let most = limits::REASON_BYTES_MAX;
    if said.len() <= most {
        return Ok(());
    }
    let error = CallError::new(Code::Inval, format!("`{what}` holds {} bytes, the most is {most}", said.len()));
    Err(error.hint("say it in a few sentences: a person reads it before they answer"))
}
