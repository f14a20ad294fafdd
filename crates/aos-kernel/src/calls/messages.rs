//! `SEND_MSG` and `RECV_MSG`.

use aos_abi::process::Mode;
use aos_abi::syscall::{RecvMsg, SendMsg};
use aos_abi::{Body, CallError, Code, Pid, limits};
use serde_json::{Value, json};

use super::invalid;
use crate::process::{Letter, Notice, Wait};
use crate::step::Done;
use crate::table::PageStore;
use crate::{Kernel, no_peer};

impl<P: PageStore> Kernel<P> {
    pub(super) fn send_msg(&mut self, pid: Pid, args: SendMsg) -> Result<Value, CallError> {
        let to = match (args.to_pid, &args.to) {
            (Some(to), None) => to,
            (None, Some(name)) => *self.globals.names.get(name).ok_or_else(|| {
                CallError::new(Code::Srch, format!("no live process is named `{name}`"))
                    .hint("give its pid as `to_pid`")
            })?,
            _ => return Err(invalid("exactly one of `to_pid` and `to` says who gets it")),
        };
        self.check_text("content", &args.content)?;
        let Some(receiver) = self.table.get(to) else { return Err(no_peer(to)) };
        if receiver.exited() {
            return Err(CallError::new(Code::Srch, format!("process {to} has ended")));
        }
        if receiver.mode == Mode::Program {
            return Err(CallError::new(Code::Inval, format!("process {to} is a program's key and reads nothing"))
                .hint("send it to an agent, or ask a person with ASK_USER"));
        }
        if receiver.inbox.len() >= limits::INBOX_MAX {
            let mut error =
                CallError::new(Code::Again, format!("the inbox of process {to} is full: {} unread", limits::INBOX_MAX));
            error.retry_after_ms = Some(1000);
            return Err(error);
        }
        let message_id = format!("m{}", self.globals.lsn.next());
        let attachments = args.attachments.unwrap_or_default();
        let lsn = self.fact(
            to,
            Body::Message {
                message_id: message_id.clone(),
                from_pid: pid,
                content: args.content.clone(),
                attachments: attachments.clone(),
            },
        );
        let letter = Letter {
            notice: Notice { labels: self.labels_of_message(pid), ..self.as_notice(lsn) },
            from_pid: pid,
            at: self.globals.at,
            content: args.content,
            attachments,
        };
        self.deliver(to, letter);
        Ok(json!({ "message_id": message_id }))
    }

    pub(super) fn recv_msg(&mut self, pid: Pid, args: &RecvMsg) -> Done {
        if self.table.get(pid).is_some_and(|process| !process.inbox.is_empty()) {
            return Done::Now(Ok(self.take_messages(pid)));
        }
        Done::Waits(Wait::Message, self.until(args.timeout_s))
    }
}
