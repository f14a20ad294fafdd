//! A window as the messages of a prompt.
//!
//! Start at [`render_fitted`], or at [`Rendered`] for a window that grows. What always holds: entries that were shown in
//! a prompt are shown in the same bytes in every later one, until a compaction; user messages and replies alternate;
//! every native call is followed by its result.

use std::sync::Arc;

use aos_abi::inference::{Encoding, Message, Part};
use aos_abi::{Entry, Lsn};

use crate::estimate::FRAME_BYTES;
use crate::segment::Segment;
use crate::{Fit, ItemKind, item, shown};

/// The messages of a window, cut only at the limits of each item. `entries` are those of its items, in their order;
/// others are left out.
#[must_use]
pub fn render(entries: &[Arc<Entry>], encoding: Encoding) -> Vec<Message> {
    render_fitted(entries, encoding, Fit::unbounded())
}

/// The same cut so that a window whose [`crate::Window::plan`] is `None` for the fit's budget takes no more tokens than
/// that.
#[must_use]
pub fn render_fitted(entries: &[Arc<Entry>], encoding: Encoding, fit: Fit) -> Vec<Message> {
    Rendered::default().render(entries, encoding, fit).messages
}

/// A window as it was rendered last, so that at the next turn only what is new is put together: a segment that another
/// turn has followed never changes again.
///
/// What always holds: [`Rendered::render`] gives the messages of [`render_fitted`], whatever was rendered before.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The messages of the window. Whoever takes them out for a prompt puts them back; without them it starts anew.
    pub messages: Vec<Message>,
    /// How many of them at the beginning are, byte for byte, what they were when it was rendered before.
    pub same: usize,
    /// For what they were rendered.
    way: Option<Way>,
    /// The entries of closed segments, and of the head before them.
    closed: Vec<Lsn>,
    /// How much of the messages these are.
    mark: Mark,
}

/// What decides how entries are shown, beside themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    encoding: Encoding,
    fit: Fit,
    /// Entries before the first segment: the task and a summary, where there is one.
    head: usize,
}

/// A place in the messages: so many, and so many parts of the last one where that is the user's.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    messages: usize,
    parts: usize,
}

impl Rendered {
    /// The window rendered. `entries` are those of its items, in their order; others are left out.
    #[must_use]
    pub fn render(mut self, entries: &[Arc<Entry>], encoding: Encoding, fit: Fit) -> Rendered {
        let shown: Vec<(&Entry, ItemKind)> =
            entries.iter().filter_map(|entry| item(entry).map(|kind| (entry.as_ref(), kind))).collect();
        let task = usize::from(shown.first().is_some_and(|(_, kind)| *kind == ItemKind::Task));
        let head = match shown.get(task) {
            Some((_, ItemKind::Summary)) => task + 1,
            Some(_) | None => 0,
        };
        let way = Way { encoding, fit, head };
        let before = if self.goes_on(&shown, way) { self.mark } else { Mark::default() };
        let begin = if before.messages > 0 {
            self.back_to_mark();
            self.closed.len()
        } else {
            self = Rendered { way: Some(way), ..Rendered::default() };
            let room = fit.head_bytes().saturating_sub(FRAME_BYTES);
            say(
                &mut self.messages,
                shown[..head].iter().map(|(entry, _)| Part::Text(shown::told(entry, room))).collect(),
            );
            head
        };
        let mut segment = Segment::default();
        for (at, (entry, kind)) in shown.iter().enumerate().skip(begin) {
            if *kind == ItemKind::Turn && !segment.entries.is_empty() {
                put(&mut self.messages, &std::mem::take(&mut segment), encoding, fit);
                self.closed.extend(shown[self.closed.len()..at].iter().map(|(entry, _)| entry.lsn));
                self.mark = Mark::of(&self.messages);
            }
            segment.entries.push(entry);
        }
        if !segment.entries.is_empty() {
            put(&mut self.messages, &segment, encoding, fit);
        }
        // What the last of them is now may be more than was said then.
        self.same = match before.messages.checked_sub(1).and_then(|last| self.messages.get(last)) {
            Some(Message::User(parts)) if parts.len() > before.parts => before.messages - 1,
            Some(_) | None => before.messages,
        };
        self
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Image { base64, .. } => base64.len(),
        };
        let of = |message: &Message| match message {
            Message::User(parts) => parts.iter().map(of_part).sum::<usize>(),
            Message::Assistant { text, calls } => {
                text.len() + calls.iter().map(|call| size_of_val(call) + call.arguments.len()).sum::<usize>()
            }
            Message::Result { content, .. } => content.len(),
        };
        self.messages.iter().map(|message| size_of::<Message>() + of(message)).sum()
    }

    /// Whether what is closed is how this window begins.
    fn goes_on(&self, shown: &[(&Entry, ItemKind)], way: Way) -> bool {
        let closed = self.closed.len();
        self.way == Some(way)
            && self.messages.len() >= self.mark.messages
            && shown.get(closed).is_some_and(|(_, kind)| *kind == ItemKind::Turn)
            && self.closed.iter().zip(shown).all(|(lsn, (entry, _))| *lsn == entry.lsn)
    }

    fn back_to_mark(&mut self) {
        self.messages.truncate(self.mark.messages);
        if let Some(Message::User(parts)) = self.messages.last_mut() {
            parts.truncate(self.mark.parts);
        }
    }
}

impl Mark {
    fn of(messages: &[Message]) -> Mark {
        let parts = match messages.last() {
            Some(Message::User(parts)) => parts.len(),
            Some(Message::Assistant { .. } | Message::Result { .. }) | None => 0,
        };
        Mark { messages: messages.len(), parts }
    }
}

fn put(messages: &mut Vec<Message>, segment: &Segment<'_>, encoding: Encoding, fit: Fit) {
    let shown = segment.show(encoding, fit);
    if let Some(reply) = shown.assistant {
        if messages.is_empty() {
            say(messages, vec![Part::Text(shown::STARTED.to_owned())]);
        }
        messages.push(reply);
    }
    messages.extend(shown.results);
    say(messages, shown.user);
}

/// Adds to the user message at the end, or begins one: some chat templates refuse two of them in a row.
fn say(messages: &mut Vec<Message>, parts: Vec<Part>) {
    if parts.is_empty() {
        return;
    }
    match messages.last_mut() {
        Some(Message::User(before)) => before.extend(parts),
        Some(Message::Assistant { .. } | Message::Result { .. }) | None => messages.push(Message::User(parts)),
    }
}
