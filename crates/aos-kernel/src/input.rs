//! What reaches a process from outside: standard input, messages, webhooks, notices.
//!
//! What always holds: a process is woken at most once for a burst; whatever waits for exactly this gets it, all else
//! is kept in order until it is read or shown.

use aos_abi::entry::WebhookRequest;
use aos_abi::{Body, Lsn, Pid, limits};
use serde_json::json;

use crate::Kernel;
use crate::process::{Chunk, Letter, Phase, Wait};
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    /// Something for standard input; `from` is [`Pid::INIT`] for a person.
    pub(crate) fn input(&mut self, pid: Pid, lsn: Lsn, from: Pid, text: &str, eof: bool) {
        let notice = self.as_notice(lsn);
        let Some(process) = self.table.get(pid) else { return };
        if process.exited() {
            return;
        }
        let person = from == Pid::INIT;
        match process.phase.clone() {
            Phase::Waiting { wait: Wait::Person, .. } if person && !text.is_empty() => {
                self.resolve(pid, Ok(json!({ "answer": text.trim_end_matches('\n') })));
                self.hasten(pid);
                return;
            }
            Phase::Waiting { wait: Wait::Stdin, .. } => {
                self.with(pid, |process| process.stdin_eof |= eof);
                let result = if text.is_empty() { json!({ "eof": true }) } else { json!({ "text": text }) };
                self.resolve(pid, Ok(result));
                if person {
                    self.hasten(pid);
                }
                return;
            }
            _ => {}
        }
        self.with(pid, |process| {
            process.stdin_eof |= eof;
            if text.is_empty() {
                process.notices.push_back(notice);
            } else {
                process.stdin.push_back(Chunk { notice, from_pid: from, text: text.to_owned() });
            }
        });
        if person {
            self.interrupt(pid, "a person's input");
            self.hasten(pid);
        }
        self.wake(pid);
    }

    /// A person has spoken: waits that only pass time end early.
    fn interrupt(&mut self, pid: Pid, by: &str) {
        let now = self.globals.at;
        let Some(process) = self.table.get(pid) else { return };
        let Phase::Waiting { wait, since, .. } = process.phase.clone() else { return };
        let waited_s = now.millis_since(since) as f64 / 1000.0;
        let result = match wait {
            Wait::Sleep => json!({ "slept_s": waited_s, "interrupted": by }),
            Wait::Message => json!({ "messages": [], "interrupted": by }),
            Wait::Child(_) => json!({ "pid": null, "interrupted": by }),
            Wait::Stdin | Wait::Person | Wait::Approval(_) => return,
        };
        self.resolve(pid, Ok(result));
    }

    /// A waiting process moves up to the interactive class.
    fn hasten(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid) else { return };
        if process.phase == Phase::Ready && process.stopped.is_none() {
            let (model, service) = (process.model.clone(), process.service);
            let class = aos_abi::process::Priority::Interactive;
            self.globals.scheduler.enqueue(&model, pid, class, service, self.globals.at);
        }
    }

    /// Text on a process's standard output: to whoever it is piped to.
    pub(crate) fn pipe(&mut self, pid: Pid, text: &str) {
        let Some(to) = self.table.get(pid).and_then(|process| process.pipe_to) else { return };
        if text.is_empty() || self.table.get(to).is_none_or(crate::process::Process::exited) {
            return;
        }
        let lsn = self.fact(to, Body::Input { text: text.to_owned(), eof: false, from_pid: pid });
        self.input(to, lsn, pid, text, false);
    }

    /// A message into an inbox, or straight to a process that waits for one.
    pub(crate) fn deliver(&mut self, to: Pid, letter: Letter) {
        let waiting = self
            .table
            .get(to)
            .is_some_and(|process| matches!(process.phase, Phase::Waiting { wait: Wait::Message, .. }));
        self.with(to, |process| process.inbox.push_back(letter));
        if waiting {
            let messages = self.take_messages(to);
            self.resolve(to, Ok(messages));
        } else {
            self.wake(to);
        }
    }

    /// Every unread message as the result of `RECV_MSG`.
    pub(crate) fn take_messages(&mut self, pid: Pid) -> serde_json::Value {
        let letters = self.with(pid, |process| std::mem::take(&mut process.inbox)).unwrap_or_default();
        let messages: Vec<_> = letters
            .into_iter()
            .map(|letter| {
                let mut message = json!({ "from_pid": letter.from_pid, "content": letter.content, "at": letter.at });
                if !letter.attachments.is_empty() {
                    message["attachments"] = json!(letter.attachments);
                }
                message
            })
            .collect();
        json!({ "messages": messages })
    }

    /// Something that goes into the window at the next turn.
    pub(crate) fn notice(&mut self, pid: Pid, lsn: Lsn) {
        let notice = self.as_notice(lsn);
        let taken = self.with(pid, |process| {
            if process.exited() || process.notices.len() >= limits::NOTICES_MAX {
                return false;
            }
            process.notices.push_back(notice);
            true
        });
        if taken == Some(true) {
            self.wake(pid);
        }
    }

    /// An HTTP request for a webhook.
    pub(crate) fn webhook(&mut self, pid: Pid, request: &WebhookRequest) {
        let lsn = self.globals.lsn;
        if let Some(reply_by) = request.reply_by {
            let now = self.globals.at;
            self.with(pid, |process| {
                // Those whose callers have gone were answered by the edge.
                process.requests.retain(|_, reply_by| *reply_by >= now);
                process.requests.insert(request.id.clone(), reply_by)
            });
        }
        self.notice(pid, lsn);
    }
}
