//! A segment: a turn, its results, and what came in until the next one; shown as a whole within its room.
//!
//! Start at [`Segment::show`]. What always holds: what is shown depends on the segment's entries, the encoding and the
//! fit alone; native calls and results come in pairs, under ids that no other reply has; the whole takes no more than
//! the fit's share.

use std::collections::BTreeMap;

use aos_abi::decode::{call_ids, decode, kept, native_ids, shown_id, text_form};
use aos_abi::entry::{InferenceOutcome, Outcome};
use aos_abi::inference::{Encoding, Message, NativeCall, Part, Reply};
use aos_abi::{Body, CallId, Entry, Lsn};

use crate::estimate::{FRAME_BYTES, estimate};
use crate::image::Image;
use crate::item::result_bytes;
use crate::shown::WIRE_ID_BYTES;
use crate::{Fit, item_bytes, shown};

/// Room for the notes that a cut segment may need.
const NOTES_BYTES: usize = 400;

/// The entries of one segment, in window order.
#[derive(Default)]
pub(crate) struct Segment<'a> {
    pub(crate) entries: Vec<&'a Entry>,
}

/// A segment as messages: the reply, the results of its native calls, and the parts of the user message after them.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) assistant: Option<Message>,
    pub(crate) results: Vec<Message>,
    pub(crate) user: Vec<Part>,
}

/// A native call with its result, if it has one.
struct Pair<'a> {
    call: &'a NativeCall,
    /// What the model is shown as the id of both.
    wire_id: CallId,
    result: Option<(Lsn, &'a Outcome)>,
}

/// How much of each part is shown.
struct Caps {
    text: usize,
    args: Option<usize>,
    pairs: usize,
    /// Of results, then of what is told, in bytes; from the `skipped`th.
    contents: Option<Vec<usize>>,
    skipped: usize,
}

impl<'a> Segment<'a> {
    pub(crate) fn show(&self, encoding: Encoding, fit: Fit) -> Shown {
        let turn = self.turn();
        let native = encoding == Encoding::Native;
        let (pairs, told) = self.sort(turn.filter(|_| native));
        let written =
            turn.map(|(_, reply)| if native { reply.text.clone() } else { in_text(reply) }).unwrap_or_default();

        let natural: u64 = self.entries.iter().map(|entry| estimate(item_bytes(entry))).sum();
        let caps = if natural <= fit.segment_tokens() {
            Caps { text: usize::MAX, args: None, pairs: pairs.len(), contents: None, skipped: 0 }
        } else {
            caps(&pairs, &told, &written, fit.segment_bytes())
        };
        let cap = |nth: usize| caps.contents.as_ref().map_or(usize::MAX, |contents| contents[nth]);

        let mut shown = Shown::default();
        let mut calls = Vec::with_capacity(caps.pairs);
        for (nth, pair) in pairs.iter().take(caps.pairs).enumerate() {
            let args_cap = caps.args.unwrap_or(usize::MAX).min(shown::arguments_bytes(pair.call));
            let name = shown::name(&pair.call.name).into_owned();
            let (content, image) = match pair.result {
                Some((lsn, outcome)) => result(outcome, lsn, cap(nth), fit),
                None => (shown::NO_RESULT.to_owned(), None),
            };
            if let Some(image) = image {
                shown.user.extend([Part::Text(format!("[image of {}]", pair.wire_id)), image]);
            }
            shown.results.push(Message::Result { call_id: pair.wire_id.clone(), name: name.clone(), content });
            let arguments = shown::arguments(&pair.call.arguments, args_cap);
            calls.push(NativeCall { id: pair.wire_id.clone(), name, arguments });
        }
        if pairs.len() > caps.pairs {
            let more = pairs.len() - caps.pairs;
            let note = format!("[{more} more calls of this reply and their results are not shown, for want of room]");
            shown.user.push(Part::Text(note));
        }
        if caps.skipped > 0 {
            let note = format!("[{} earlier items are not shown here, for want of room]", caps.skipped);
            shown.user.push(Part::Text(note));
        }
        let told_shown = told.iter().skip(caps.skipped).enumerate();
        for (nth, entry) in told_shown {
            let (text, image) = tell(entry, cap(caps.pairs + nth), fit);
            shown.user.push(Part::Text(text));
            shown.user.extend(image);
        }
        if let Some((_, reply)) = turn {
            let text = shown::text(&written, caps.text.min(shown::TURN_TEXT_BYTES));
            self.reply(&mut shown, reply, text, calls, encoding);
        }
        shown
    }

    /// The reply as a message, unless it is empty, which providers refuse; and a word after it where nothing came.
    fn reply(&self, shown: &mut Shown, reply: &Reply, text: String, calls: Vec<NativeCall>, encoding: Encoding) {
        let empty = text.trim().is_empty() && calls.is_empty();
        if shown.results.is_empty() && shown.user.is_empty() {
            let called = !decode(&reply.text, &[], encoding, false, &mut String::new).calls.is_empty()
                || !reply.calls.is_empty();
            shown.user.push(Part::Text(if called { shown::NO_RESULTS } else { shown::GO_ON }.to_owned()));
        }
        if !empty {
            // Providers refuse a text of white space alone.
            let text = if text.trim().is_empty() { String::new() } else { text };
            shown.assistant = Some(Message::Assistant { text, calls });
        }
    }

    fn turn(&self) -> Option<(&'a Entry, &'a Reply)> {
        match self.entries.first().map(|entry| (*entry, &entry.body)) {
            Some((entry, Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. })) => {
                Some((entry, reply))
            }
            _ => None,
        }
    }

    /// The native calls with their results, and everything else that is told.
    fn sort(&self, native: Option<(&'a Entry, &'a Reply)>) -> (Vec<Pair<'a>>, Vec<&'a Entry>) {
        let mut pairs: Vec<Pair<'a>> = Vec::new();
        let mut by_id = BTreeMap::new();
        if let Some((entry, reply)) = native {
            // Results are bound by the ids of the journal, each of which is once in a reply.
            let ids = native_ids(&reply.calls, &mut call_ids(entry.lsn));
            by_id = ids.into_iter().zip(0..).collect::<BTreeMap<CallId, usize>>();
            let pair = |(nth, call)| Pair { call, wire_id: wire_id(entry.lsn, nth), result: None };
            pairs = kept(&reply.calls).iter().enumerate().map(pair).collect();
        }
        let mut told = Vec::new();
        for entry in &self.entries {
            match &entry.body {
                Body::Result { call_id, outcome, .. } => match by_id.get(call_id).map(|nth| &mut pairs[*nth].result) {
                    Some(result @ None) => *result = Some((entry.lsn, outcome)),
                    // Without a call of this reply it is one that was made for the process, such as what was attached.
                    _ => told.push(*entry),
                },
                Body::InferenceCompleted { .. } => {}
                _ => told.push(*entry),
            }
        }
        (pairs, told)
    }
}

/// The id of a reply's `nth` native call as its model is shown it: nine letters and digits, made of the reply's entry, so
/// that it is the same in every prompt and another for each call of the history. The id that the call's own server gave
/// it does not do: another server, to which the history goes later, may find it too long, or made of other characters
/// than it takes, and some begin anew with each reply.
fn wire_id(reply: Lsn, nth: usize) -> CallId {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // A reply with more calls than this is followed by as many results before another begins.
    let mut number = (reply.0 << 12).wrapping_add(nth as u64);
    let mut id = vec![b'c'; WIRE_ID_BYTES];
    for place in id[1..].iter_mut().rev() {
        *place = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(id).expect("letters and digits")
}

/// A reply's text with its native calls in text form, for a model that has none.
fn in_text(reply: &Reply) -> String {
    let mut text = reply.text.clone();
    for call in kept(&reply.calls) {
        if !text.is_empty() {
            text.push('\n');
        }
        let args = shown::arguments(&call.arguments, shown::arguments_bytes(call));
        text.push_str(&text_form(&shown::name(&call.name), &args));
    }
    text
}

/// Something told; a result without a native call is told as a line.
fn tell(entry: &Entry, cap: usize, fit: Fit) -> (String, Option<Part>) {
    match &entry.body {
        Body::Result { call_id, name, outcome, .. } => {
            let header = format!("[result {} {}]\n", shown_id(call_id), shown::name(name));
            let (content, image) = result(outcome, entry.lsn, cap.saturating_sub(header.len()), fit);
            (header + &content, image)
        }
        _ => (shown::told(entry, cap), None),
    }
}

/// A result in at most `cap` bytes, and the image that it holds, where there is room for it.
fn result(outcome: &Outcome, lsn: Lsn, cap: usize, fit: Fit) -> (String, Option<Part>) {
    match Image::of(outcome) {
        Some(image) => image.show(fit.images(), cap),
        None => (shown::result(outcome, lsn, cap), None),
    }
}

/// Shares `room` bytes out. Half goes to pairs at their least size and an eighth each to the reply's text, to more of the
/// arguments, and to the rest at its least size; what then is left goes to results and what is told, the small ones
/// first, so that one that is large does not crowd out the others.
fn caps(pairs: &[Pair<'_>], told: &[&Entry], written: &str, room: usize) -> Caps {
    let room = room.saturating_sub(NOTES_BYTES);
    let words = |pair: &Pair<'_>| 2 * (WIRE_ID_BYTES + shown::name(&pair.call.name).len() + FRAME_BYTES);
    let least = |pair: &Pair<'_>| words(pair) + shown::ARGS_BYTES_MIN + shown::RESULT_BYTES_MIN;
    let mut used = 0;
    let shown_pairs = pairs
        .iter()
        .take_while(|pair| {
            used += least(pair);
            used <= room / 2
        })
        .count();
    let for_pairs: usize = pairs[..shown_pairs].iter().map(least).sum();
    let text = room / 8;
    let args = shown::ARGS_BYTES_MIN + room / 8 / shown_pairs.max(1);

    let for_told = room / 8 + (room / 2 - for_pairs);
    let skipped = told.len().saturating_sub(for_told / (shown::TOLD_BYTES_MIN + FRAME_BYTES));
    let told = &told[skipped..];

    let args_used: usize =
        pairs[..shown_pairs].iter().map(|pair| words(pair) + args.min(shown::arguments_bytes(pair.call))).sum();
    let fixed = written.len().min(text) + FRAME_BYTES + args_used + told.len() * FRAME_BYTES;
    let sizes: Vec<(usize, usize)> = pairs[..shown_pairs]
        .iter()
        .map(|pair| {
            (pair.result.map_or(shown::NO_RESULT.len(), |(_, outcome)| result_bytes(outcome)), shown::RESULT_BYTES_MIN)
        })
        .chain(told.iter().map(|entry| (item_bytes(entry), shown::TOLD_BYTES_MIN)))
        .collect();
    let contents = shares(&sizes, room.saturating_sub(fixed));
    Caps { text, args: Some(args), pairs: shown_pairs, contents: Some(contents), skipped }
}

/// Shares `room` among items of `(size, least)`: each gets its least, or all of itself where that is less, and from the
/// rest as much as every other that wants it.
fn shares(sizes: &[(usize, usize)], room: usize) -> Vec<usize> {
    let base: Vec<usize> = sizes.iter().map(|(size, least)| *size.min(least)).collect();
    let mut extra = room.saturating_sub(base.iter().sum());
    let mut wanted: Vec<usize> = sizes.iter().zip(&base).map(|((size, _), base)| size - base).collect();
    wanted.sort_unstable();
    let mut level = 0;
    for (nth, want) in wanted.iter().enumerate() {
        let share = extra / (wanted.len() - nth);
        level = (*want).min(share);
        extra -= level;
        if share < *want {
            // Nobody above gets more than this.
            level = share;
            break;
        }
    }
    sizes.iter().zip(&base).map(|((_, least), base)| (base + level).max(*least)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_that_is_shown_is_nine_letters_and_digits_and_nobody_elses() {
        let ids: BTreeSet<CallId> =
            (1..200).flat_map(|lsn| (0..70).map(move |nth| wire_id(Lsn(lsn * 7), nth))).collect();
        assert_eq!(ids.len(), 199 * 70);
        for id in ids.iter().chain(&[wire_id(Lsn(u64::MAX), usize::MAX), wire_id(Lsn::ZERO, 0)]) {
            assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
        }
    }
}
