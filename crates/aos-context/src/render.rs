//! A window as the messages of a prompt.
//!
//! Start at [`render_fitted`]. What always holds: entries that were shown in a prompt are shown in the same bytes in
//! every later one, until a compaction; user messages and replies alternate; every native call is followed by its
//! result.

use std::sync::Arc;

use aos_abi::Entry;
use aos_abi::inference::{Encoding, Message, Part};

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
    let shown: Vec<(&Entry, ItemKind)> =
        entries.iter().filter_map(|entry| item(entry).map(|kind| (entry.as_ref(), kind))).collect();
    let mut messages = Vec::new();
    let task = usize::from(shown.first().is_some_and(|(_, kind)| *kind == ItemKind::Task));
    let head = match shown.get(task) {
        Some((_, ItemKind::Summary)) => task + 1,
        Some(_) | None => 0,
    };
    let head_texts =
        shown[..head].iter().map(|(entry, _)| shown::told(entry, fit.head_bytes().saturating_sub(FRAME_BYTES)));
    say(&mut messages, head_texts.collect());

    let mut segment = Segment::default();
    for (entry, kind) in &shown[head..] {
        if *kind == ItemKind::Turn && !segment.entries.is_empty() {
            put(&mut messages, &std::mem::take(&mut segment), encoding, fit);
        }
        segment.entries.push(entry);
    }
    if !segment.entries.is_empty() {
        put(&mut messages, &segment, encoding, fit);
    }
    messages
}

fn put(messages: &mut Vec<Message>, segment: &Segment<'_>, encoding: Encoding, fit: Fit) {
    let shown = segment.show(encoding, fit);
    if let Some(reply) = shown.assistant {
        if messages.is_empty() {
            say(messages, vec![shown::STARTED.to_owned()]);
        }
        messages.push(reply);
    }
    messages.extend(shown.results);
    say(messages, shown.user);
}

/// Adds to the user message at the end, or begins one: some chat templates refuse two of them in a row.
fn say(messages: &mut Vec<Message>, texts: Vec<String>) {
    if texts.is_empty() {
        return;
    }
    let parts = texts.into_iter().map(Part::Text);
    match messages.last_mut() {
        Some(Message::User(before)) => before.extend(parts),
        Some(Message::Assistant { .. } | Message::Result { .. }) | None => {
            messages.push(Message::User(parts.collect()))
        }
    }
}
