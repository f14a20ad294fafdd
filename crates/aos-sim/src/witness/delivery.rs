//! Delivery: whatever was recorded for a process is shown to it or read by it, once and in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aos_abi::entry::Outcome;
use aos_abi::{Body, Entry, Lsn, Pid, Signal};
use aos_kernel::effect::Infer;
use serde_json::Value;

use crate::report::{Broken, broken};

const MESSAGES: &str = "every message is delivered once and in order";

/// What each process has coming.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    of: BTreeMap<Pid, Owed>,
    parents: BTreeMap<Pid, Pid>,
    births: BTreeMap<Pid, Lsn>,
}

#[derive(Debug, Default)]
struct Owed {
    /// Messages neither read nor shown, oldest first.
    letters: VecDeque<(Lsn, String)>,
    /// Messages that `RECV_MSG` returned.
    read: BTreeMap<Lsn, ()>,
    /// Everything else that must still be shown or read.
    news: BTreeMap<Lsn, News>,
}

#[derive(Debug, PartialEq, Eq)]
enum News {
    Result,
    Event,
    Input(String),
    Eof,
    End(Pid),
}

impl Delivery {
    /// What a process has coming, in words; empty where there is nothing.
    pub(crate) fn owed(&self, pid: Pid) -> Vec<String> {
        let Some(owed) = self.of.get(&pid) else { return Vec::new() };
        let letters = owed.letters.iter().map(|(lsn, _)| format!("message {lsn}"));
        letters.chain(owed.news.iter().map(|(lsn, news)| format!("{news:?} {lsn}"))).collect()
    }

    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Broken> {
        let pid = entry.pid;
        match &entry.body {
            Body::Spawned(spec) | Body::Forked { spec, .. } => {
                self.of.insert(pid, Owed::default());
                self.parents.insert(pid, spec.parent);
                self.births.insert(pid, entry.lsn);
            }
            Body::Message { content, .. } => match self.of.get_mut(&pid) {
                Some(owed) => owed.letters.push_back((entry.lsn, content.clone())),
                None => return Err(broken(MESSAGES, format!("{} goes to {pid}, which has ended", entry.lsn))),
            },
            Body::Input { text, eof, .. } => {
                let news = match (text.is_empty(), eof) {
                    (false, _) => News::Input(text.clone()),
                    (true, true) => News::Eof,
                    (true, false) => return Ok(()),
                };
                self.owe(pid, entry.lsn, news);
            }
            Body::Timer { .. } | Body::Webhook(_) | Body::Watch { .. } | Body::Lifted { .. } => {
                self.owe(pid, entry.lsn, News::Event)
            }
            // Only the first of several, and only to a process that lives on: see `settled`.
            Body::Signal { signal: Signal::Term | Signal::Kill | Signal::Stop | Signal::Cont, .. } => {}
            Body::Result { name, outcome, .. } => {
                if let Outcome::Success { result } = outcome {
                    self.consumed(pid, name, result)?;
                }
                self.owe(pid, entry.lsn, News::Result);
            }
            Body::Reaped { children } => {
                if let Some(owed) = self.of.get_mut(&pid) {
                    owed.news.retain(|_, news| !matches!(news, News::End(child) if children.contains(child)));
                }
            }
            Body::Exited { .. } => {
                self.of.remove(&pid);
                if let Some(parent) = self.parents.get(&pid).copied() {
                    self.owe(parent, entry.lsn, News::End(pid));
                }
                self.parents.values_mut().filter(|parent| **parent == pid).for_each(|parent| *parent = Pid::INIT);
            }
            _ => {}
        }
        Ok(())
    }

    fn owe(&mut self, pid: Pid, lsn: Lsn, news: News) {
        if let Some(owed) = self.of.get_mut(&pid) {
            owed.news.insert(lsn, news);
        }
    }

    /// A call's result told something that is not in a window of its own.
    fn consumed(&mut self, pid: Pid, name: &str, result: &Value) -> Result<(), Broken> {
        let Some(owed) = self.of.get_mut(&pid) else { return Ok(()) };
        if let Some(messages) = result.get("messages").and_then(Value::as_array) {
            for message in messages {
                let content = message["content"].as_str().unwrap_or_default();
                match owed.letters.pop_front() {
                    Some((lsn, wanted)) if wanted == content => {
                        owed.read.insert(lsn, ());
                    }
                    other => {
                        return Err(broken(MESSAGES, format!("{pid} reads `{content}`, next was {other:?}")));
                    }
                }
            }
        }
        let text = match name {
            "SYS_READ_STDIN" => result.get("text"),
            "ASK_USER" => result.get("answer"),
            _ => None,
        };
        if let Some(text) = text.and_then(Value::as_str) {
            let found = owed.news.iter().find(|(_, news)| matches!(news, News::Input(input) if input.trim_end_matches('\n') == text.trim_end_matches('\n')));
            let Some(lsn) = found.map(|(lsn, _)| *lsn) else {
                return Err(broken("input is read once", format!("{pid} reads `{text}`, which nobody sent or it has")));
            };
            owed.news.remove(&lsn);
        }
        if result.get("eof").is_some() {
            owed.news.retain(|_, news| *news != News::Eof);
        }
        if result.get("exit_code").is_some()
            && let Some(child) = result.get("pid").and_then(Value::as_u64)
        {
            owed.news.retain(|_, news| *news != News::End(Pid(child)));
        }
        Ok(())
    }

    pub(crate) fn infer(&mut self, infer: &Infer) -> Result<(), Broken> {
        let born = self.births.get(&infer.pid).copied().unwrap_or_default();
        let Some(owed) = self.of.get_mut(&infer.pid) else {
            // It was ended by the same input.
            return Ok(());
        };
        let mut shown = BTreeSet::new();
        for lsn in infer.items.iter().filter(|lsn| **lsn >= born) {
            if !shown.insert(*lsn) {
                return Err(broken("an entry is shown once", format!("{lsn} stands twice before {}", infer.pid)));
            }
            owed.news.remove(lsn);
            if owed.read.contains_key(lsn) {
                return Err(broken(MESSAGES, format!("{lsn} is shown to {} after it was read", infer.pid)));
            }
            if let Some(place) = owed.letters.iter().position(|(letter, _)| letter == lsn) {
                if place != 0 {
                    return Err(broken(MESSAGES, format!("{lsn} is shown to {} before earlier ones", infer.pid)));
                }
                owed.letters.pop_front();
            }
        }
        Ok(())
    }
}
