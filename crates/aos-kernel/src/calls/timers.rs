//! `SYS_SCHEDULE` and `SYS_UNSCHEDULE`.

use aos_abi::syscall::{SysSchedule, SysUnschedule};
use aos_abi::{CallError, Code, Pid, Syscall, limits};
use aos_policy::Labels;
use serde_json::{Value, json};

use super::{invalid, invalid_at};
use crate::Kernel;
use crate::process::{Process, Timer, TimerRule};
use crate::table::PageStore;
use crate::time::next_after;

impl<P: PageStore> Kernel<P> {
    pub(super) fn set_timer(&mut self, pid: Pid, args: SysSchedule) -> Result<Value, CallError> {
        self.check_text("prompt", &args.prompt)?;
        // It is told to the process for as long as it fires, when nobody remembers where the words came from.
        let labels = self.labels_of_call(pid, &Syscall::SysSchedule(args.clone()));
        let untrusted = labels.any_of(Labels::UNTRUSTED);
        let rule = match (args.seconds, args.cron) {
            (Some(..limits::TIMER_PERIOD_S_MIN), None) => {
                let message = format!("the shortest period is {} s", limits::TIMER_PERIOD_S_MIN);
                return Err(invalid_at("/seconds", message));
            }
            (Some(seconds), None) if seconds > limits::TIMER_PERIOD_S_MAX => {
                let message = format!("the longest period is {} s, a hundred years", limits::TIMER_PERIOD_S_MAX);
                return Err(invalid_at("/seconds", message));
            }
            (Some(seconds), None) => TimerRule::Every(seconds * 1000),
            (None, Some(line)) => TimerRule::Cron(line, args.timezone.unwrap_or_else(|| "UTC".into())),
            _ => return Err(invalid("exactly one of `seconds` and `cron` says when")),
        };
        let next_at = next_after(&rule, self.globals.at)?;
        let once = args.once.unwrap_or(false);
        let timer = Timer { name: args.name.clone(), prompt: args.prompt, next_at, rule, once, untrusted };
        self.with(pid, |process| {
            let same = args.name.as_ref().and_then(|name| {
                process.timers.iter().find(|(_, timer)| timer.name.as_ref() == Some(name)).map(|(id, _)| id.clone())
            });
            if same.is_none() && process.timers.len() >= limits::TIMERS_MAX {
                return Err(CallError::new(
                    Code::Again,
                    format!("{} timers already, the most there may be", limits::TIMERS_MAX),
                )
                .hint("SYS_UNSCHEDULE one first"));
            }
            let id = same.unwrap_or_else(|| process.fresh_id("t"));
            process.timers.insert(id.clone(), timer);
            Ok(json!({ "timer_id": id, "next_at": next_at }))
        })
        .unwrap_or_else(|| Err(crate::no_process(pid)))
    }

    pub(super) fn cancel_timer(&mut self, pid: Pid, args: &SysUnschedule) -> Result<Value, CallError> {
        let id = &args.timer_id;
        let cancelled = self.with(pid, |process| process.timers.remove(id).ok_or_else(|| process.no_timer(id)));
        cancelled.unwrap_or_else(|| Err(crate::no_process(pid))).map(|_| json!({}))
    }
}

impl Process {
    /// It has no timer of this id; it has those that the hint names.
    pub(crate) fn no_timer(&self, id: &str) -> CallError {
        let shown = |(id, timer): (&String, &Timer)| {
            let name = timer.name.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default();
            format!("{id}{name}, next at {}", timer.next_at)
        };
        let has: Vec<String> = self.timers.iter().map(shown).collect();
        let has = if has.is_empty() { "no timer is set".to_owned() } else { format!("there are: {}", has.join("; ")) };
        CallError::new(Code::NoEnt, format!("no timer `{id}`")).hint(has)
    }
}
