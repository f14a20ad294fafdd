//! Which entries are part of a window, and how many bytes each takes there.

use aos_abi::decode::{kept, shown_id};
use aos_abi::entry::{InferenceOutcome, ItemKind, Outcome};
use aos_abi::inference::Reply;
use aos_abi::{Body, Entry, Signal};

use crate::image::Image;
use crate::shown;

/// What an entry is to the window of its process; `None` where it is not part of it.
#[must_use]
pub fn item(entry: &Entry) -> Option<ItemKind> {
    match &entry.body {
        Body::Spawned(spec) => spec.task.is_some().then_some(ItemKind::Task),
        Body::Input { .. }
        | Body::Message { .. }
        | Body::Timer { .. }
        | Body::Webhook(_)
        | Body::Watch { .. }
        | Body::Reaped { .. }
        | Body::Lifted { .. }
        | Body::Exited { .. } => Some(ItemKind::User),
        Body::Signal { signal, .. } => match signal {
            Signal::Term => Some(ItemKind::User),
            Signal::Kill | Signal::Stop | Signal::Cont => None,
        },
        Body::InferenceCompleted { outcome, .. } => match outcome {
            InferenceOutcome::Answered(_) => Some(ItemKind::Turn),
            InferenceOutcome::Failed { .. } => None,
        },
        Body::Result { .. } => Some(ItemKind::Result),
        Body::Compacted { .. } => Some(ItemKind::Summary),
        Body::Booted { .. }
        | Body::Faulted(_)
        | Body::Configured(_)
        | Body::Measured(_)
        | Body::Tick
        | Body::InferenceStarted { .. }
        | Body::Routed { .. }
        | Body::Silent { .. }
        | Body::Hedged { .. }
        | Body::Circuit { .. }
        | Body::Syscall { .. }
        | Body::Verdict { .. }
        | Body::Requested(_)
        | Body::Changed(_)
        | Body::Examined(_)
        | Body::Proposal { .. }
        | Body::Charged { .. }
        | Body::NearlySpent(_)
        | Body::Keyed(_)
        | Body::Asked(_)
        | Body::Withdrawn { .. }
        | Body::Ahead { .. }
        | Body::Rested { .. }
        | Body::Refused { .. }
        | Body::Served { .. }
        | Body::Forked { .. }
        | Body::Budgeted { .. }
        | Body::GroupSignal { .. }
        | Body::Unscheduled { .. }
        | Body::Labelled { .. }
        | Body::Stopped { .. }
        | Body::Pruned { .. } => None,
    }
}

/// Bytes that an entry takes in a window at most, cut as [`crate::render`] cuts it, with the frames of what is made of
/// it; 0 where it is not part of one. A turn counts with the note or the results that stand in where its calls have
/// none.
#[must_use]
pub fn item_bytes(entry: &Entry) -> usize {
    match &entry.body {
        Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. } => turn_bytes(reply),
        Body::Result { call_id, name, outcome, .. } => {
            let content = result_bytes(outcome).min(aos_abi::limits::RESULT_SHOWN_BYTES);
            shown_id(call_id).len() + shown::name(name).len() + content + shown::RESULT_HEADER_BYTES
        }
        _ if item(entry).is_some() => shown::told_bytes(entry),
        _ => 0,
    }
}

/// Bytes of a result before it is cut; of an image, what it takes beside its words.
pub(crate) fn result_bytes(outcome: &Outcome) -> usize {
    Image::of(outcome).map_or_else(|| shown::json_bytes(outcome), |image| image.bytes())
}

fn turn_bytes(reply: &Reply) -> usize {
    let of_calls: usize = kept(&reply.calls).iter().map(shown::call_bytes).sum();
    reply.text.len().min(shown::TURN_TEXT_BYTES) + of_calls + shown::TURN_NOTES_BYTES
}
