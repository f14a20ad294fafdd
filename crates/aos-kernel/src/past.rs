//! The window of a process as it was after some entry, read from what was journaled of it.
//!
//! Start at [`Past::take`]. A window is state, of which the journal holds no record; what enters it, and when, is the
//! kernel's to say (`turn`, `step`, `outcome`), and this says the same a second time, for moments of which no state is left.
//! What always holds: for a living process and now it has the items that [`crate::Kernel::past`] gives, in the
//! same order, which the simulation compares; but for what came since the last result of a step, while its turn is put off.
//! Deliberately absent: what was cut from the history since, as by a prune.

use std::collections::BTreeSet;
use std::sync::Arc;

use aos_abi::decode::{ASKED_BY_KERNEL, Decoding, call_ids, decode};
use aos_abi::entry::{InferenceOutcome, ItemKind, Outcome, Purpose, WindowItem};
use aos_abi::inference::{Encoding, Stop};
use aos_abi::{Body, CallId, EffectId, Entry, Lsn, Name, Pid};
use serde_json::Value;

/// A window on its way through the journal.
#[derive(Debug)]
pub struct Past {
    pid: Pid,
    window: Vec<WindowItem>,
    /// Replies in it that say nothing, which are left out in the end: a summary may have been made up to one, where its
    /// model had another encoding.
    blank: BTreeSet<Lsn>,
    /// What has come and was not shown yet, oldest first.
    news: Vec<(From, WindowItem)>,
    /// The inferences of which the first to answer counts, and whether that is a turn.
    awaited: (Vec<EffectId>, bool),
    /// The calls of the last reply, whose results enter the window together.
    step: Vec<Call>,
    /// Its last reply, where that says something and calls nothing.
    spoke: Option<Lsn>,
    /// It was asked to end.
    terminating: bool,
}

/// A call of the last reply.
#[derive(Debug)]
struct Call {
    id: CallId,
    /// The entry with which it began.
    began: Lsn,
    /// The call that it proposes, whose result it has.
    proposes: Option<String>,
    result: Option<WindowItem>,
}

/// How something came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Shown with the next turn, whatever else is under way.
    Outside,
    /// The same for a person's words, which calls may read first.
    Person,
    Pipe,
    /// The end of input.
    End,
    Letter,
    Child(Pid),
}

impl Past {
    /// Of a process of which nothing was read yet.
    #[must_use]
    pub fn of(pid: Pid) -> Past {
        Past {
            pid,
            window: Vec::new(),
            blank: BTreeSet::new(),
            news: Vec::new(),
            awaited: (Vec::new(), false),
            step: Vec::new(),
            spoke: None,
            terminating: false,
        }
    }

    /// The next entry: of the process itself, or the end of a child of its own. In the order of the journal, and all of them.
    pub fn take(&mut self, entry: &Entry) {
        let item = aos_context::item(entry).map(|kind| item_of(entry, kind));
        if entry.pid != self.pid {
            self.news.extend(item.map(|item| (From::Child(entry.pid), item)));
            return;
        }
        match (&entry.body, item) {
            (Body::Forked { window, .. }, _) => self.window.clone_from(window),
            (Body::InferenceStarted { effect, purpose, .. }, _) => self.asked(*effect, *purpose),
            (Body::Hedged { effect, by, .. }, _) => self.awaited.0 = vec![*effect, *by],
            (Body::InferenceCompleted { effect, outcome, .. }, _) => {
                let counts = self.answered(*effect, outcome);
                self.window.extend(item.filter(|_| counts));
                if counts {
                    self.spoke = only_says(entry).then_some(entry.lsn);
                }
                if says_nothing(entry) {
                    self.blank.insert(entry.lsn);
                }
            }
            (Body::Compacted { upto, .. }, Some(summary)) => self.compacted(*upto, summary),
            // What is still under way comes too late.
            (Body::Exited { .. }, _) => self.awaited.0.clear(),
            (Body::Syscall { call_id, name, args }, _) => {
                // Whether data may leave is asked where a turn was about to begin.
                if *call_id == ASKED_BY_KERNEL {
                    self.show();
                }
                let proposes = args["action"]["name"].as_str().filter(|_| name == Name::Propose.as_str());
                let proposes = proposes.map(str::to_owned);
                self.step.push(Call { id: call_id.clone(), began: entry.lsn, proposes, result: None });
            }
            (Body::Result { call_id, name, outcome, .. }, Some(item)) => {
                let mut calls = self.step.iter_mut();
                match calls.find(|call| call.id == *call_id && call.result.is_none()) {
                    Some(call) => {
                        call.result = Some(item);
                        let (name, began) = (call.proposes.take().unwrap_or_else(|| name.clone()), call.began);
                        self.was_read(&name, outcome, began);
                    }
                    // One that could not be made out.
                    None => {
                        let (id, began) = (call_id.clone(), entry.lsn);
                        self.step.push(Call { id, began, proposes: None, result: Some(item) });
                    }
                }
            }
            (Body::Spawned(_), Some(item)) => self.window.push(item),
            (Body::Reaped { children }, Some(item)) => {
                self.news.retain(|(from, _)| !children.iter().any(|child| *from == From::Child(*child)));
                self.news.push((From::Outside, item));
            }
            (Body::Message { .. }, Some(item)) => self.news.push((From::Letter, item)),
            (Body::Input { from_pid, text, untrusted, .. }, Some(item)) => {
                let from = match *from_pid {
                    // That no more will come is no piece of input.
                    _ if text.is_empty() => From::End,
                    Pid::INIT if !untrusted => From::Person,
                    _ => From::Pipe,
                };
                self.news.push((from, item));
            }
            // Asked to end a second time, it is told nothing.
            (Body::Signal { .. }, Some(item)) if !self.terminating => {
                self.terminating = true;
                self.news.push((From::Outside, item));
            }
            (Body::Signal { .. }, _) => {}
            (_, Some(item)) => self.news.push((From::Outside, item)),
            (_, None) => {}
        }
    }

    /// Whether it had nothing to do: it had spoken last, and nothing has come since.
    #[must_use]
    pub fn rests(&self) -> bool {
        let nothing_new = self.news.is_empty() && self.step.is_empty() && self.awaited.0.is_empty();
        let last = self.window.iter().rev().find(|item| !self.blank.contains(&item.lsn));
        nothing_new && self.spoke.is_some() && last.map(|item| item.lsn) == self.spoke
    }

    /// The window, with all that has come, read or not.
    #[must_use]
    pub fn window(mut self) -> Vec<WindowItem> {
        self.absorb(|_| true);
        self.window.retain(|item| !self.blank.contains(&item.lsn));
        self.window
    }

    /// A turn begins, or a second model is asked for the one that goes on.
    fn asked(&mut self, effect: EffectId, purpose: Purpose) {
        if self.awaited.0.contains(&effect) {
            return;
        }
        self.awaited = (vec![effect], purpose == Purpose::Turn);
        self.show();
    }

    /// What its next turn shows enters the window.
    fn show(&mut self) {
        let at_rest = self.step.is_empty();
        self.absorb(|from| at_rest || matches!(from, From::Outside | From::Person | From::End));
    }

    /// Takes the results of the step into the window, and of the news what is shown now.
    fn absorb(&mut self, shown: impl Fn(From) -> bool) {
        self.window.extend(self.step.drain(..).filter_map(|call| call.result));
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.news).into_iter().partition(|(from, _)| shown(*from));
        self.news = later;
        self.window.extend(now.into_iter().map(|(_, item)| item));
    }

    /// Whether it is a turn: only the first answer of those that are awaited counts, and a summary has an entry of its own.
    fn answered(&mut self, effect: EffectId, outcome: &InferenceOutcome) -> bool {
        if !self.awaited.0.contains(&effect) {
            return false;
        }
        let answered = matches!(outcome, InferenceOutcome::Answered(_));
        // Of those that fail the other one may still answer.
        self.awaited.0.retain(|awaited| !answered && *awaited != effect);
        answered && self.awaited.1
    }

    /// What a call has given to its process does not come a second time.
    fn was_read(&mut self, name: &str, outcome: &Outcome, began: Lsn) {
        let Outcome::Success { result } = outcome else { return };
        let is = |call: Name| call.as_str() == name;
        if is(Name::RecvMsg) {
            self.news.retain(|(from, _)| *from != From::Letter);
        } else if is(Name::Wait) {
            let child = result.get("pid").and_then(Value::as_u64).map(|pid| From::Child(Pid(pid)));
            self.news.retain(|(from, _)| Some(*from) != child);
        } else if is(Name::AskUser) {
            let answer = self.news.iter().rposition(|(from, _)| *from == From::Person);
            answer.map(|answer| self.news.remove(answer));
        } else if is(Name::SysReadStdin) && result.get("text").is_some() {
            // The oldest, whoever it is from.
            let first = self.news.iter().position(|(from, _)| matches!(from, From::Person | From::Pipe));
            first.map(|first| self.news.remove(first));
        } else if is(Name::SysReadStdin) {
            // Whoever waits for input when it ends is told so by the call alone.
            self.news.retain(|(from, item)| *from != From::End || item.lsn < began);
        }
    }

    /// As the window itself does it: everything up to there but the task gives way.
    fn compacted(&mut self, upto: Lsn, summary: WindowItem) {
        let from = usize::from(self.window.first().is_some_and(|item| item.kind == ItemKind::Task));
        if let Some(last) = self.window.iter().position(|item| item.lsn == upto).filter(|last| *last >= from) {
            self.window.splice(from..=last, [summary]);
        }
    }
}

/// How the window of a living process, with all that has come since, is not what the journal says of it: both, or `None`
/// where they are the same. `history` is the whole journal; for whoever checks a kernel.
#[must_use]
pub fn mismatch(history: &[Arc<Entry>], pid: Pid, real: Vec<WindowItem>) -> Option<String> {
    let is_child = |entry: &&Arc<Entry>| matches!(&entry.body, Body::Spawned(spec) if spec.parent == pid);
    let children: BTreeSet<Pid> = history.iter().filter(is_child).map(|entry| entry.pid).collect();
    let mut read = Past::of(pid);
    for entry in history {
        let ends = matches!(entry.body, Body::Exited { .. }) && children.contains(&entry.pid);
        if entry.pid == pid || ends {
            read.take(entry);
        }
    }
    // A reply that says nothing in one encoding is left out, since what the model had may have been configured anew.
    let blank = |lsn: Lsn| {
        let at = history.binary_search_by_key(&lsn, |entry| entry.lsn);
        at.is_ok_and(|at| says_nothing(&history[at]))
    };
    let plain = |items: Vec<WindowItem>| {
        let items = items.into_iter().filter(|item| !blank(item.lsn));
        let mut items: Vec<_> = items.map(|item| (item.lsn, item.kind)).collect();
        // While a turn is put off, what is to be shown with it stands before what was there already.
        let since = items.iter().rposition(|(_, kind)| *kind != ItemKind::User).map_or(0, |last| last + 1);
        items[since..].sort();
        items
    };
    let (read, real) = (plain(read.window()), plain(real));
    (read != real).then(|| format!("{read:?}, it is {real:?}"))
}

/// Whether an entry is a reply that says nothing and calls nothing: providers refuse an empty message in the history.
#[must_use]
pub fn says_nothing(entry: &Entry) -> bool {
    decoded(entry).is_some_and(|decoded| decoded.calls.is_empty() && decoded.say.is_empty())
}

/// Whether an entry is a reply that says something and calls nothing.
fn only_says(entry: &Entry) -> bool {
    decoded(entry).is_some_and(|decoded| decoded.calls.is_empty() && !decoded.say.is_empty())
}

/// A reply in the widest of the encodings, since the entry does not say which one the model had.
fn decoded(entry: &Entry) -> Option<Decoding> {
    let Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. } = &entry.body else { return None };
    let cut_off = reply.stop == Stop::Length;
    Some(decode(&reply.text, &reply.calls, Encoding::Constrained, cut_off, &mut call_ids(entry.lsn)))
}

fn item_of(entry: &Entry, kind: ItemKind) -> WindowItem {
    let tokens = aos_context::estimate(aos_context::item_bytes(entry));
    WindowItem { lsn: entry.lsn, tokens: u32::try_from(tokens).unwrap_or(u32::MAX), kind }
}
