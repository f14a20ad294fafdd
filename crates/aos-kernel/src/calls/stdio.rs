//! `SYS_WRITE_STDOUT`, `SYS_READ_STDIN`, `SLEEP`.

use aos_abi::syscall::{Sleep, SysReadStdin, SysWriteStdout};
use aos_abi::{CallError, Code, Pid, limits};
use serde_json::{Value, json};

use super::invalid_at;
use crate::Kernel;
use crate::process::Wait;
use crate::step::Done;
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    /// The call's own entry is what attached terminals and the log show; a pipe gets the text besides.
    pub(super) fn write_stdout(&mut self, pid: Pid, args: &SysWriteStdout) -> Result<Value, CallError> {
        self.check_text("text", &args.text)?;
        if let Some(to) = self.table.get(pid).and_then(|process| process.pipe_to)
            && let Some(reader) = self.table.get(to)
            && reader.stdin.len() >= limits::STDIN_MAX
        {
            let mut error =
                CallError::new(Code::Again, format!("process {to} has {} unread pieces of input", limits::STDIN_MAX));
            error.retry_after_ms = Some(1000);
            return Err(error);
        }
        self.pipe(pid, &args.text);
        Ok(json!({}))
    }

    pub(super) fn read_stdin(&mut self, pid: Pid, args: &SysReadStdin) -> Done {
        let next = self.with(pid, |process| (process.stdin.pop_front(), process.stdin_eof));
        self.made_room(pid);
        if let Some((Some(chunk), _)) = &next {
            self.will_see(pid, chunk.notice.labels);
        }
        match next {
            Some((Some(chunk), _)) => Done::Now(Ok(json!({ "text": chunk.text }))),
            Some((None, true)) => Done::Now(Ok(json!({ "eof": true }))),
            _ => Done::Waits(Wait::Stdin, self.until(args.timeout_s)),
        }
    }

    pub(super) fn sleep(&mut self, args: &Sleep) -> Done {
        if !args.seconds.is_finite() || args.seconds < 0.0 {
            return Done::Now(Err(invalid_at("/seconds", "zero or more was expected")));
        }
        if args.seconds > limits::TIMER_PERIOD_S_MAX as f64 {
            let message = format!("the longest is {} s, a hundred years", limits::TIMER_PERIOD_S_MAX);
            return Done::Now(Err(invalid_at("/seconds", message)));
        }
        Done::Waits(Wait::Sleep, self.until(Some(args.seconds)))
    }
}
