//! The decoder: from a model's reply to the calls it makes.
//!
//! Start at [`decode`]. Only a model's own reply is decoded, never what it was shown. What always holds: the calls come
//! out in the order in which they were made, text before native ones; a call that does not decode is a [`Decoded`] with
//! its error and takes no other call with it; every call id in one reply is different; time is linear in the reply, what
//! comes out has a bound however many calls were written, and nothing recurses on what a model wrote. Deliberately
//! absent: rights (see `aos-policy`) and any guess at what a broken call may have meant, since a wrong guess would run
//! something that nobody wrote.

mod constrained;
mod text;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::inference::{Encoding, NativeCall};
use crate::{CallError, CallId, Code, Lsn, Name, Syscall, limits};

/// What a reply says and does.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// The reply's text without the calls, trimmed.
    pub say: String,
    /// The calls, in the order in which they run. Of those beyond [`limits::CALLS_PER_REPLY_MAX`] the first is here, with an
    /// error that counts the rest, and every other one of [`kept`], each with such an error.
    pub calls: Vec<Decoded>,
}

/// One call of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Binds the result to it; different from every other in the reply.
    pub call_id: CallId,
    /// The name as the model wrote it; empty where the reply broke before it.
    pub name: String,
    /// The arguments as written; a string where they were no JSON.
    pub args: Value,
    /// The call, or why it cannot be run.
    pub call: Result<Syscall, CallError>,
}

/// What the text of a reply holds, before the calls are parsed.
#[derive(Debug, Default)]
struct Written {
    say: String,
    calls: Vec<WrittenCall>,
}

/// A call as it stands in the text of a reply.
#[derive(Debug)]
struct WrittenCall {
    name: String,
    args: String,
    /// Why it is none, where already its form is broken.
    fault: Option<CallError>,
}

/// Reads the calls out of a reply. `cut_off` says that the reply ended before the model was done, so that its last call
/// may be half a call. `new_id` makes an id for a call that has none of its own; [`call_ids`] gives the usual one.
///
/// Three forms are read: the provider's tool calls, `[SYS_CALL::NAME] {json}` in the text (also from models with tool
/// calls, which sometimes print one instead of making it), and for [`Encoding::Constrained`] the one JSON object.
/// In text, a tag is **data** and stays in `say`:
/// - on a line of a Markdown block quote (`>`), and inside the arguments of another call;
/// - directly behind a quotation mark or a backslash, and in a code span that stands inside a sentence;
/// - in a code fence after anything that is not a call. A fence (or a code span alone on its line) that *begins* with a
///   call merely wraps it, which models often do, and the call is run. A quotation in a fence that consists of a call
///   alone cannot be told from that; the policy's labels are the wall behind this one;
/// - after `<untrusted`, wherever it stands outside of a call, up to `</untrusted>` or, without one, to the reply's end: the
///   fence in which agents are shown what strangers wrote. Alone in a code span (`` `<untrusted>` ``) it is but a word;
/// - between `<think>` at the start of a line and `</think>`.
///
/// A call in the text that repeats a native one of the same reply word by word is its announcement and is not run twice.
#[must_use]
pub fn decode(
    text: &str,
    native: &[NativeCall],
    encoding: Encoding,
    cut_off: bool,
    new_id: &mut dyn FnMut() -> CallId,
) -> Decoding {
    // A provider's tool calls come after the text, so the cut goes through the last of them if there is one.
    let text_cut_off = cut_off && native.is_empty();
    let Written { say, calls: written } = match encoding {
        Encoding::Constrained => {
            constrained::read(text, text_cut_off).unwrap_or_else(|| text::read(text, text_cut_off))
        }
        Encoding::Native | Encoding::Text => text::read(text, text_cut_off),
    };
    let form = if encoding == Encoding::Constrained { Form::Constrained } else { Form::Text };
    let native_ids = native_ids(native, new_id);
    let mut taken: BTreeSet<CallId> = native_ids.iter().cloned().collect();
    let native_args: Vec<Value> = kept(native).iter().map(|call| value_of(&call.arguments)).collect();

    let mut calls = Vec::new();
    let count = written.len();
    for (nth, call) in written.into_iter().enumerate() {
        let args = value_of(&call.args);
        let beyond = calls.len() >= limits::CALLS_PER_REPLY_MAX;
        if !beyond && announces(&call.name, &args, native, &native_args) {
            continue;
        }
        let parsed = match call.fault {
            _ if beyond => Err(beyond_the_limit(count - nth - 1 + native.len())),
            Some(fault) if fault.hint.is_none() => Err(with_example(fault, &call.name, form)),
            Some(fault) => Err(fault),
            None => parse(&call.name, &call.args, form),
        };
        calls.push(Decoded { call_id: fresh(&mut taken, new_id), name: call.name, args, call: parsed });
        if beyond {
            break;
        }
    }
    let last = native.len().saturating_sub(1);
    for (nth, ((call, call_id), args)) in kept(native).iter().zip(native_ids).zip(native_args).enumerate() {
        let parsed = if calls.len() >= limits::CALLS_PER_REPLY_MAX {
            Err(beyond_the_limit(native.len() - nth - 1))
        } else if cut_off && nth == last && is_incomplete(&call.arguments) {
            Err(was_cut_off())
        } else {
            parse(&call.name, &call.arguments, Form::Native)
        };
        calls.push(Decoded { call_id, name: call.name.clone(), args, call: parsed });
    }
    Decoding { say, calls }
}

/// Longest id of a provider that is kept, in bytes; they use 9 to some 40.
const CALL_ID_BYTES_MAX: usize = 64;

/// What the kernel itself asks a person for a process has this id in the place of a call's. No call of a model does.
pub const ASKED_BY_KERNEL: &str = "leave";

/// The native calls of a reply that get a result: as many as may run, and the next one, whose error says how many more there
/// were. No model is shown any others, since providers refuse a call without a result.
#[must_use]
pub fn kept(native: &[NativeCall]) -> &[NativeCall] {
    &native[..native.len().min(limits::CALLS_PER_REPLY_MAX + 1)]
}

/// The ids of [`kept`] native calls as [`decode`] gives them: the provider's own, replaced where empty, used before, longer
/// than any provider's, or the kernel's. Whoever shows a reply to a model again needs them to bind results to it.
#[must_use]
pub fn native_ids(native: &[NativeCall], new_id: &mut dyn FnMut() -> CallId) -> Vec<CallId> {
    let native = kept(native);
    let mut taken: BTreeSet<CallId> = native.iter().map(|call| call.id.clone()).collect();
    let mut seen = BTreeSet::new();
    native
        .iter()
        .map(|call| {
            let fine = (1..=CALL_ID_BYTES_MAX).contains(&call.id.len()) && call.id != ASKED_BY_KERNEL;
            if fine && seen.insert(call.id.as_str()) { call.id.clone() } else { fresh(&mut taken, new_id) }
        })
        .collect()
}

/// An id as a line may hold it that is shown to a model, such as the header of a result: letters, digits and `_-.:`, up to
/// 64 of them, of which the providers make theirs. A model's server chose it, and a line break or bracket in it would
/// write lines of the user's side for the next model. Results are bound by the id itself.
#[must_use]
pub fn shown_id(id: &str) -> Cow<'_, str> {
    word(id, "_-.:")
}

/// A text as one word of at most 64 letters, digits and `signs`: `_` stands for any other character.
#[must_use]
pub fn word<'t>(text: &'t str, signs: &str) -> Cow<'t, str> {
    let taken = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    if text.len() <= CALL_ID_BYTES_MAX && text.chars().all(taken) {
        return text.into();
    }
    text.chars().take(CALL_ID_BYTES_MAX).map(|c| if taken(c) { c } else { '_' }).collect::<String>().into()
}

/// Makes the ids of the calls of one reply from the entry that holds it: `c41-0`, `c41-1` and so on, the same on every
/// replay. Letters, digits and `-` only, because providers refuse other ids when they get them back.
pub fn call_ids(reply: Lsn) -> impl FnMut() -> CallId {
    let mut nth = 0u64;
    move || {
        let id = format!("c{reply}-{nth}");
        nth += 1;
        id
    }
}

/// A call in text form.
#[must_use]
pub fn text_form(name: &str, args: &str) -> String {
    format!("{}{name}] {args}", text::TAG)
}

/// How a call was written, for the example in its error.
#[derive(Clone, Copy)]
enum Form {
    Native,
    Text,
    Constrained,
}

#[allow(clippy::result_large_err, reason = "the error goes straight into `Decoded`, which is as large either way")]
fn parse(name: &str, args: &str, form: Form) -> Result<Syscall, CallError> {
    let unwrapped = unwrapped(args);
    Syscall::parse(name, unwrapped.as_deref().unwrap_or(args)).map_err(|error| match (form, error.code) {
        (Form::Text | Form::Constrained, Code::Inval) => with_example(error, name, form),
        _ => error,
    })
}

/// The same error with one correct call as the model writes it, where there is a call of that name.
fn with_example(error: CallError, name: &str, form: Form) -> CallError {
    match (name.parse::<Name>(), form) {
        (Ok(known), Form::Constrained) => error.hint(constrained::example(known)),
        (Ok(known), Form::Native | Form::Text) => {
            error.hint(format!("a correct call: {}", text_form(name, known.spec().example)))
        }
        (Err(unknown), _) => unknown,
    }
}

/// Two slips of providers that can mean only one thing: arguments as a string that holds the object, and `null` for none.
fn unwrapped(args: &str) -> Option<String> {
    match args.trim_start().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(args).ok().filter(|inner| inner.trim_start().starts_with('{')),
        Some(b'n') if args.trim() == "null" => Some("{}".to_owned()),
        _ => None,
    }
}

fn value_of(args: &str) -> Value {
    if args.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    let unwrapped = unwrapped(args);
    serde_json::from_str(unwrapped.as_deref().unwrap_or(args)).unwrap_or_else(|_| Value::String(args.to_owned()))
}

/// Empty arguments count: in a reply that was cut off they are more likely lost than left out.
fn is_incomplete(args: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(args).is_err_and(|error| error.is_eof())
}

fn was_cut_off() -> CallError {
    CallError::new(Code::Inval, "the reply was cut off before this call was complete, so it was not run")
        .hint("make the call again; split long arguments, for instance into several FS_WRITE with \"mode\":\"append\"")
}

fn fresh(taken: &mut BTreeSet<CallId>, new_id: &mut dyn FnMut() -> CallId) -> CallId {
    let mut id = new_id();
    // A provider may have given that very id. Each round uses up one of the taken ids if ids are made as by `call_ids`;
    // a maker that repeats itself gets a suffix instead of an endless loop.
    for _ in 0..8 {
        if taken.insert(id.clone()) {
            return id;
        }
        id = new_id();
    }
    let mut suffix = taken.len();
    loop {
        let unique = format!("{id}-{suffix}");
        if taken.insert(unique.clone()) {
            return unique;
        }
        suffix += 1;
    }
}

/// What is said of a call beyond the limit that is followed by so many others.
fn beyond_the_limit(others: usize) -> CallError {
    let most = limits::CALLS_PER_REPLY_MAX;
    let (which, hint) = match others {
        0 => ("this one was".to_owned(), "make it again in the next reply".to_owned()),
        _ => (
            format!("this one and {others} more after it were"),
            format!("make those that are still needed again, at most {most} in a reply"),
        ),
    };
    CallError::new(Code::Again, format!("a reply may hold {most} calls, and {which} not run")).hint(hint)
}

/// Whether a call in the text is word by word one of the native calls of the same reply, of those that may run.
fn announces(name: &str, args: &Value, native: &[NativeCall], native_args: &[Value]) -> bool {
    let mut runnable = native.iter().zip(native_args).take(limits::CALLS_PER_REPLY_MAX);
    runnable.any(|(call, of)| call.name == name && of == args)
}
