//! An answer while it comes in: what every provider's events are put together into.
//!
//! Start at [`Answer`]. What always holds: text and calls together never hold more than
//! [`REPLY_BYTES_MAX`] bytes as JSON writes them, so that no entry of a reply is longer than a client takes; usage that is less than it can have been is replaced by an estimate
//! that says it is one, and usage that is more is left to whoever set aside what it may cost; two calls never carry the same id. Deliberately absent: any provider's field names, and deciding whether to try again.

use aos_abi::inference::{self, Failure, FailureKind, NativeCall, Reply, Stop, Usage};
use aos_abi::limits::{CALLS_PER_REPLY_MAX, REPLY_BYTES_MAX};

use serde_json::Value;

use crate::pool::Delta;

/// What a call weighs beside its text, and the longest id or name.
const CALL_BYTES: usize = 256;
/// Most calls of a reply. More than run are kept, so that it can be said how many there were; with each piece of a call all of
/// these are looked through, while nothing else runs.
const CALLS_MAX: usize = 4 * CALLS_PER_REPLY_MAX;
/// Bytes of JSON per token where nobody counted. English prose has about four and code about three, so this
/// estimate is rather too high, as a budget wants.
const BYTES_PER_TOKEN: usize = 3;
/// More bytes than this stand for one token in no text that anybody sends: a count below is of something else, such as
/// only what was not cached.
const TOKEN_BYTES_MAX: u64 = 64;
/// Tokens of one image where nobody counted (providers: 85 to about 1600).
const IMAGE_TOKENS: usize = 1000;

/// How big the request was; what usage is checked against and estimated from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Bytes of the body.
    pub(crate) body_bytes: usize,
    /// Of these, bytes of images in base64, and how many images.
    pub(crate) image_bytes: usize,
    pub(crate) images: usize,
    /// Tokens beyond its text at most, where its images are not told one by one.
    pub(crate) beyond_text: u64,
    /// Most tokens of the answer that were asked for.
    pub(crate) max_output: u32,
}

impl Sent {
    /// A failure after which the server may have worked on the request all the while, though nothing was heard of it: it
    /// costs the longest answer.
    pub(crate) fn unheard(&self, failure: Failure) -> Failure {
        Answer::new(&mut |_| ()).unheard(self, failure)
    }
}

/// Usage as it was reported; a field that was not, or not as a number from zero up, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Tokens sent, cached ones included.
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cached: Option<u64>,
    /// Of those sent, written to the provider's cache.
    pub(crate) cache_write: Option<u64>,
    /// Of those answered, reasoning.
    pub(crate) reasoning: Option<u64>,
}

/// How the provider says an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop(Stop),
    /// The provider or the model will not answer this; why.
    Refused(String),
}

/// One call while it comes in.
#[derive(Debug)]
struct Slot {
    /// The provider's number for it, if it has one.
    index: Option<u64>,
    call: NativeCall,
}

/// An answer while it comes in.
pub(crate) struct Answer<'d> {
    text: String,
    calls: Vec<Slot>,
    pub(crate) finish: Option<Finish>,
    pub(crate) reported: Reported,
    /// Something failed inside the answer: an error event, or an event that is not JSON.
    pub(crate) fault: Option<Failure>,
    /// At least one event was understood.
    pub(crate) understood: bool,
    /// The provider said that nothing more comes.
    pub(crate) ended: bool,
    /// It grew past the limit and the rest was dropped.
    full: bool,
    bytes: usize,
    /// Bytes of what it was seen to think, which is shown to nobody and paid all the same.
    thought: usize,
    deltas: &'d mut (dyn FnMut(Delta) + Send),
}

impl<'d> Answer<'d> {
    pub(crate) fn new(deltas: &'d mut (dyn FnMut(Delta) + Send)) -> Answer<'d> {
        Answer {
            text: String::new(),
            calls: Vec::new(),
            finish: None,
            reported: Reported::default(),
            fault: None,
            understood: false,
            ended: false,
            full: false,
            bytes: 0,
            thought: 0,
            deltas,
        }
    }

    /// No more has to be read.
    pub(crate) fn done(&self) -> bool {
        self.ended || self.full || self.fault.is_some()
    }

    /// It grew past all that an answer may be.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// There is something a process could use.
    pub(crate) fn usable(&self) -> bool {
        !self.text.trim().is_empty() || !self.calls.is_empty()
    }

    /// Whether a whole document, which was taken, is JSON and nothing that a model answers, nor an error.
    pub(crate) fn says_nothing_known(&self, document: &str) -> bool {
        let is_error = |value: &Value| value.get("error").is_some_and(|error| !error.is_null());
        !self.understood
            && serde_json::from_str::<Value>(document).is_ok_and(|value| match &value {
                // Gemini wraps errors in a list.
                Value::Array(values) => !values.iter().any(is_error),
                value => !is_error(value),
            })
    }

    /// It thinks, in so many bytes.
    pub(crate) fn thinks(&mut self, bytes: usize) {
        self.thought = self.thought.saturating_add(bytes);
    }

    /// More text.
    pub(crate) fn push_text(&mut self, text: &str) {
        let kept = self.fit(text);
        if !kept.is_empty() {
            self.text.push_str(kept);
            (self.deltas)(Delta::Text(kept.to_owned()));
        }
    }

    /// A call begins.
    pub(crate) fn open_call(&mut self, index: Option<u64>, id: &str, name: &str) {
        if self.full || self.calls.len() >= CALLS_MAX || self.bytes + CALL_BYTES > REPLY_BYTES_MAX {
            self.full = true;
            return;
        }
        self.bytes += CALL_BYTES;
        // A name or id longer than this is no name or id; the decoder answers the name with `ENOSYS`.
        let (id, name) = (head(id, CALL_BYTES), head(name, CALL_BYTES));
        let call = NativeCall { id: id.to_owned(), name: name.to_owned(), arguments: String::new() };
        self.calls.push(Slot { index, call });
        (self.deltas)(Delta::Call { id: id.to_owned(), name: name.to_owned() });
    }

    /// More of the arguments of the last call that has this number, or of the last call where it has none.
    pub(crate) fn push_arguments(&mut self, index: Option<u64>, arguments: &str) {
        let kept = self.fit(arguments);
        if kept.is_empty() {
            return;
        }
        let found = match index {
            Some(_) => self.calls.iter().rposition(|slot| slot.index == index),
            None => self.calls.len().checked_sub(1),
        };
        if let Some(call) = found {
            self.calls[call].call.arguments.push_str(kept);
            (self.deltas)(Delta::Arguments { call, text: kept.to_owned() });
        }
    }

    /// The last call that has this number, or the last call where none is given.
    pub(crate) fn call(&self, index: Option<u64>) -> Option<&NativeCall> {
        let slot = match index {
            Some(_) => self.calls.iter().rev().find(|slot| slot.index == index),
            None => self.calls.last(),
        };
        slot.map(|slot| &slot.call)
    }

    /// The part of `piece` that still fits, cut between characters.
    fn fit<'t>(&mut self, piece: &'t str) -> &'t str {
        if self.full {
            return "";
        }
        let mut kept = piece.len();
        for (at, byte) in piece.bytes().enumerate() {
            self.bytes += escaped(byte);
            if self.bytes > REPLY_BYTES_MAX {
                (self.full, kept) = (true, piece.floor_char_boundary(at));
                break;
            }
        }
        &piece[..kept]
    }

    /// Whether it ends otherwise than its server says, or than it may be long; `whole` as in [`Answer::into_reply`].
    pub(crate) fn breaks_off(&self, whole: bool) -> bool {
        !self.full && (!whole || self.fault.is_some())
    }

    /// The reply, once the stream has ended; `whole` says that it ended as it should.
    pub(crate) fn into_reply(self, model: &str, sent: &Sent, whole: bool) -> Reply {
        let usage = self.usage(sent);
        let cut = self.full || !whole || self.fault.is_some();
        let stop = match (self.finish, self.calls.is_empty()) {
            _ if cut => Stop::Length,
            (Some(Finish::Stop(Stop::Length)), _) => Stop::Length,
            (_, false) => Stop::Calls,
            (_, true) => Stop::End,
        };
        let mut calls: Vec<NativeCall> = Vec::with_capacity(self.calls.len());
        for Slot { mut call, .. } in self.calls {
            // Results are bound to calls by id, so a repeated one would bind two results to one call. The kernel
            // makes an id where there is none.
            if calls.iter().any(|earlier| earlier.id == call.id) {
                call.id.clear();
            }
            calls.push(call);
        }
        Reply { text: self.text, calls, stop, usage, model: model.to_owned() }
    }

    /// What it used: as reported, and estimated where nothing was or less than there can have been. What is more than there
    /// can have been stands as it was reported: the most that was set aside is charged for it, which is not known here.
    pub(crate) fn usage(&self, sent: &Sent) -> Usage {
        let answered = self.text.len()
            + self.calls.iter().map(|slot| slot.call.arguments.len() + slot.call.name.len()).sum::<usize>();
        let text_bytes = sent.body_bytes.saturating_sub(sent.image_bytes);
        let input_min = input_least(text_bytes);
        let output_min = (answered as u64).div_ceil(TOKEN_BYTES_MAX);
        let input = self.reported.input.filter(|tokens| *tokens >= input_min);
        let output = self.reported.output.filter(|tokens| *tokens >= output_min);
        let low = inference::Reported {
            input_tokens: self.reported.input.filter(|_| input.is_none()),
            output_tokens: self.reported.output.filter(|_| output.is_none()),
        };
        // What is said of an answer before it has ended is said of a part of it: Anthropic begins with one token.
        let whole = self.finish.is_some() || self.ended;
        let estimated = input.is_none() || output.is_none() || !whole;
        let input_tokens = input.unwrap_or_else(|| {
            let counted = (text_bytes.div_ceil(BYTES_PER_TOKEN) + sent.images * IMAGE_TOKENS) as u64;
            counted.saturating_add(sent.beyond_text.div_ceil(BYTES_PER_TOKEN as u64))
        });
        let seen = (answered + self.thought).div_ceil(BYTES_PER_TOKEN) as u64;
        let output_tokens = match output {
            Some(output) if whole => output,
            Some(output) => output.max(seen),
            None => seen,
        };
        let cached_input_tokens = input.and(self.reported.cached).unwrap_or(0).min(input_tokens);
        Usage {
            input_tokens,
            output_tokens,
            cached_input_tokens,
            cache_write_tokens: input
                .and(self.reported.cache_write)
                .unwrap_or(0)
                .min(input_tokens - cached_input_tokens),
            reasoning_tokens: output.and(self.reported.reasoning).unwrap_or(0).min(output_tokens),
            estimated,
            reported: Some(low).filter(|low| *low != inference::Reported::default()),
        }
    }

    /// What it used, where the provider says so.
    pub(crate) fn reported_usage(&self, sent: &Sent) -> Option<Usage> {
        let reported = self.reported.input.is_some() || self.reported.output.is_some();
        reported.then(|| self.usage(sent))
    }

    /// `failure`, by which it ended before there was anything of use: what was thought unheard is paid, so it costs the
    /// longest answer.
    pub(crate) fn unheard(&self, sent: &Sent, failure: Failure) -> Failure {
        let usage = Usage { output_tokens: sent.max_output.into(), estimated: true, ..self.usage(sent) };
        Failure { usage: Some(usage), ..failure }
    }

    /// What a refused answer cost, where the provider says so.
    pub(crate) fn refused(&self, why: &str, sent: &Sent) -> Failure {
        Failure {
            kind: FailureKind::Refused,
            message: format!("the provider refused this prompt: {}", crate::failure::quote(why, "")),
            hint: Some("other content may pass; asking the same again will not".to_owned()),
            retry_after_ms: None,
            usage: self.reported_usage(sent),
            unreachable: false,
        }
    }
}

/// The fewest tokens that so many bytes of a request can be.
pub(crate) fn input_least(text_bytes: usize) -> u64 {
    (text_bytes as u64 / TOKEN_BYTES_MAX).max(1)
}

/// Bytes that a byte of a text takes in JSON. A control character takes six: of a server that sends nothing else, a reply
/// would be six times as long in the journal as it was here.
fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// The first bytes of `text`, at most `bytes_max`, cut between characters.
pub(crate) fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Sent = Sent { body_bytes: 3000, image_bytes: 0, images: 0, beyond_text: 0, max_output: 100 };

    fn usage(reported: Reported) -> Usage {
        let mut drop = |_| ();
        let mut answer = Answer::new(&mut drop);
        answer.push_text("123456");
        answer.reported = reported;
        answer.ended = true;
        answer.usage(&SENT)
    }

    #[test]
    fn usage_that_is_less_than_was_seen_is_estimated_and_more_is_for_whoever_pays() {
        let told = |input, output, cached| usage(Reported { input, output, cached, ..Reported::default() });
        let plain = Usage { input_tokens: 900, output_tokens: 7, cached_input_tokens: 400, ..Usage::default() };
        assert_eq!(told(Some(900), Some(7), Some(400)), plain);
        assert_eq!(told(Some(900), Some(7), Some(4000)), Usage { cached_input_tokens: 900, ..plain });
        let estimate = Usage { input_tokens: 1000, output_tokens: 2, estimated: true, ..Usage::default() };
        assert_eq!(told(None, None, None), estimate);
        let low = |input_tokens, output_tokens| Some(inference::Reported { input_tokens, output_tokens });
        let less = |input| Usage { output_tokens: 7, reported: low(Some(input), None), ..estimate };
        assert_eq!(told(Some(0), Some(7), None), less(0));
        assert_eq!(told(Some(45), Some(7), None), less(45), "below any possible count");
        let nothing = Usage { input_tokens: 900, reported: low(None, Some(0)), ..estimate };
        assert_eq!(told(Some(900), Some(0), None), nothing);
        let more = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..plain };
        assert_eq!(told(Some(1 << 40), Some(7), Some(400)), more(1 << 40, 7), "as it was reported");
        assert_eq!(told(Some(900), Some(101), Some(400)), more(900, 101));
        assert_eq!(
            told(Some(900), Some(100), None).output_tokens,
            100,
            "reasoning is hidden, so up to the maximum is believed"
        );
        let parts = Reported {
            input: Some(900),
            output: Some(90),
            cached: Some(500),
            cache_write: Some(999),
            reasoning: Some(80),
        };
        let parts = usage(parts);
        assert_eq!((parts.cache_write_tokens, parts.reasoning_tokens), (400, 80), "no part is more than the rest");
    }

    /// A picture of many bytes is few tokens, and one that is given by its address may be many.
    #[test]
    fn an_image_is_what_the_server_counts() {
        let told = |sent: Sent, input| {
            let mut drop = |_| ();
            let mut answer = Answer::new(&mut drop);
            answer.reported = Reported { input: Some(input), output: Some(1), ..Reported::default() };
            answer.ended = true;
            let usage = answer.usage(&sent);
            (usage.input_tokens, usage.estimated)
        };
        let large = Sent { body_bytes: 640_300, image_bytes: 640_000, beyond_text: 50_000, ..SENT };
        assert_eq!(told(large, 900), (900, false));
        let named = Sent { body_bytes: 300, image_bytes: 100, beyond_text: 50_000, ..SENT };
        assert_eq!(told(named, 48_000), (48_000, false));
        assert_eq!(told(named, 1), (67 + 16_667, true), "estimated rather too high");
    }

    #[test]
    fn a_reply_past_the_limit_is_cut_between_characters() {
        let mut seen = 0;
        let mut count = |delta: Delta| {
            if let Delta::Text(text) = delta {
                seen += text.len()
            }
        };
        let mut answer = Answer::new(&mut count);
        let piece = "日".repeat(1 << 20);
        for _ in 0..4 {
            answer.push_text(&piece);
        }
        assert!(answer.done());
        let reply = answer.into_reply("m", &SENT, true);
        assert_eq!((reply.stop, reply.text.len()), (Stop::Length, REPLY_BYTES_MAX / 3 * 3));
        assert_eq!(seen, reply.text.len());
    }

    #[test]
    fn a_reply_is_as_long_as_json_writes_it() {
        let mut drop = |_| ();
        let mut answer = Answer::new(&mut drop);
        answer.push_text("\"\n\u{1}日");
        assert_eq!(answer.bytes + 2, serde_json::to_string("\"\n\u{1}日").unwrap().len());
        answer.push_text(&"\u{1}".repeat(REPLY_BYTES_MAX));
        let reply = answer.into_reply("m", &SENT, true);
        let written = serde_json::to_string(&reply.text).unwrap().len();
        assert!(
            reply.stop == Stop::Length && (REPLY_BYTES_MAX - 6..=REPLY_BYTES_MAX + 2).contains(&written),
            "{written}"
        );
    }

    /// A server that opened tens of thousands of them, and went on with the first in tiny pieces, stopped the daemon for minutes.
    #[test]
    fn a_reply_has_no_more_calls_than_can_be_looked_through() {
        let mut drop = |_| ();
        let mut answer = Answer::new(&mut drop);
        for index in 0..=CALLS_MAX as u64 {
            assert!(!answer.done(), "{index}");
            answer.open_call(Some(index), "\u{1}", &"\u{1}".repeat(CALL_BYTES));
        }
        assert!(answer.done());
        let reply = answer.into_reply("m", &SENT, true);
        assert_eq!((reply.calls.len(), reply.stop), (CALLS_MAX, Stop::Length));
        assert!(serde_json::to_string(&reply).unwrap().len() < REPLY_BYTES_MAX);
    }

    #[test]
    fn a_repeated_id_is_left_to_the_kernel() {
        let mut drop = |_| ();
        let mut answer = Answer::new(&mut drop);
        for index in 0..2 {
            answer.open_call(Some(index), "x", "WAIT");
            answer.push_arguments(Some(index), "{}");
        }
        let reply = answer.into_reply("m", &SENT, true);
        assert_eq!(reply.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["x", ""]);
        assert_eq!(reply.stop, Stop::Calls);
    }
}
