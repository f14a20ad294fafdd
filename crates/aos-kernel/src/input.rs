//! What reaches a process from outside: standard input, messages, webhooks, notices.
//!
//! What always holds: a process is woken at most once for a burst; whatever waits for exactly this gets it, all else
//! is kept in order until it is read or shown.

use aos_abi::entry::WebhookRequest;
use aos_abi::{Body, Lsn, Pid, limits};
use aos_policy::Labels;
use serde_json::json;

use crate::Kernel;
use crate::process::{Chunk, Letter, Notice, Phase, Process, Wait};
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    /// Something for standard input; `from` is [`Pid::INIT`] for a person, and [`Pid::SYSTEM`] for what a person passes on of
    /// others.
    pub(crate) fn input(&mut self, pid: Pid, lsn: Lsn, from: Pid, text: &str, eof: bool) {
        let labels = if from == Pid::SYSTEM { Labels::FILE } else { self.labels_of(from) };
        let notice = Notice { labels, ..self.as_notice(lsn) };
        let Some(process) = self.table.get(pid) else { return };
        if process.exited() {
            return;
        }
        let phase = process.phase.clone();
        let person = from == Pid::INIT;
        // Whoever sends more than the last takes back that it was the last; what is piped says itself when it ends.
        let takes_back = from <= Pid::INIT && !text.is_empty();
        self.with(pid, |process| process.stdin_eof = eof || process.stdin_eof && !takes_back);
        if person {
            self.answers(pid, text);
        }
        match phase {
            Phase::Waiting { wait: Wait::Person, .. } if person && !text.is_empty() => {
                self.resolve(pid, Ok(json!({ "answer": text.trim_end_matches('\n') })));
                self.hasten(pid);
                return;
            }
            Phase::Waiting { wait: Wait::Stdin, .. } => {
                self.will_see(pid, labels);
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
            if text.is_empty() {
                process.notices.push_back(notice);
            } else {
                process.stdin.push_back(Chunk { notice, from_pid: from, text: text.to_owned() });
            }
        });
        if person {
            self.interrupt(pid, "a person's input");
        }
        self.wake(pid);
        if person {
            self.hasten(pid);
        }
    }

    /// A person has spoken: waits that only pass time end early.
    pub(crate) fn interrupt(&mut self, pid: Pid, by: &str) {
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

    /// A process moves up to the interactive class until its next turn.
    fn hasten(&mut self, pid: Pid) {
        self.with(pid, |process| process.hurried = true);
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
        // Where there is no room and no time to wait for it, they do not arrive, like any write that is interrupted.
        let full = |reader: &Process| reader.exited() || reader.stdin.len() >= limits::STDIN_MAX;
        if text.is_empty() || self.table.get(to).is_none_or(full) {
            return;
        }
        let lsn = self.fact(to, Body::Input { text: text.to_owned(), eof: false, from_pid: pid, untrusted: false });
        self.input(to, lsn, pid, text, false);
    }

    /// Whether a process must wait before its words go where they are piped to; then it does.
    pub(crate) fn must_wait_to_write(&mut self, pid: Pid, text: &str) -> bool {
        let Some(to) = self.table.get(pid).and_then(|process| process.pipe_to).filter(|_| !text.is_empty()) else {
            return false;
        };
        if self.table.get(to).is_none_or(|reader| reader.exited() || reader.stdin.len() < limits::STDIN_MAX) {
            return false;
        }
        self.with(pid, |process| process.phase = Phase::Writing(text.to_owned()));
        self.with(to, |reader| {
            if !reader.writers.contains(&pid) {
                reader.writers.push_back(pid);
            }
        });
        self.find_deadlock(pid);
        true
    }

    /// There may be room for the words of a process that waits to write.
    pub(crate) fn write_on(&mut self, pid: Pid) {
        let Some(Process { phase: Phase::Writing(text), stopped: None, .. }) = self.table.get(pid) else { return };
        let text = text.clone();
        if !self.must_wait_to_write(pid, &text) {
            self.wrote(pid, &text);
            self.spoke(pid, &text);
        }
    }

    /// The words of a process that waited to write go to their reader.
    pub(crate) fn wrote(&mut self, pid: Pid, text: &str) {
        if let Some(to) = self.table.get(pid).and_then(|process| process.pipe_to) {
            self.with(to, |reader| reader.writers.retain(|writer| *writer != pid));
        }
        self.with(pid, |process| process.phase = Phase::Idle);
        self.pipe(pid, text);
    }

    /// A process has taken from its standard input, or has ended: whoever waits to write there goes on.
    pub(crate) fn made_room(&mut self, pid: Pid) {
        let Some(process) = self.table.get(pid).filter(|process| !process.writers.is_empty()) else { return };
        let room = if process.exited() { usize::MAX } else { limits::STDIN_MAX.saturating_sub(process.stdin.len()) };
        let room = room.min(process.writers.len());
        let writers: Vec<Pid> = self.with(pid, |process| process.writers.drain(..room).collect()).unwrap_or_default();
        writers.into_iter().for_each(|writer| self.run_step(writer));
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
        let labels = letters.iter().fold(Labels::NONE, |labels, letter| labels.and(letter.notice.labels));
        self.will_see(pid, labels);
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
    pub(crate) fn notice(&mut self, pid: Pid, lsn: Lsn, labels: Labels) {
        let notice = Notice { labels, ..self.as_notice(lsn) };
        // There was room before it was recorded.
        let taken = self.with(pid, |process| {
            if process.exited() {
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
        self.count_brought(pid, request);
        if let Some(reply_by) = request.reply_by {
            let now = self.globals.at;
            self.with(pid, |process| {
                // Those whose callers have gone were answered by the edge.
                process.requests.retain(|_, reply_by| *reply_by >= now);
                process.requests.insert(request.id.clone(), reply_by)
            });
        }
        self.notice(pid, lsn, Labels::WEBHOOK);
    }
}
