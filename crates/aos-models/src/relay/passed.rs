//! A request in the model's own format, passed on, and its answer, passed back.
//!
//! Start at [`pass`]. What always holds: an answer that is not streamed is whole before any of it is passed back; what was
//! used is read on the way; an event that the program did not ask for does not reach it, nor does the key in an error.

use std::sync::Arc;
use std::time::Duration;

use aos_abi::inference::{Failure, FailureKind, Format, Usage};
use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::peek::Anew;
use super::{Asked, Ended, Kind, Refusal, Relayed, chat, embeddings, messages};
use crate::answer::{Answer, Sent};
use crate::config::Provider;
use crate::engine::Asker;
use crate::exchange::{self, Attempt, Deadlines, EPILOGUE_WAIT, WIRE_BYTES_MAX};
use crate::failure::{self, Secret, transient};
use crate::openai::{Ours, Quirks};
use crate::pool::{Delta, Pool};
use crate::sse;
use crate::target::{Ask, Target};
use crate::{anthropic, client, openai};

/// A stream on its way.
pub(super) struct Passed {
    response: reqwest::Response,
    meter: Meter,
    sieve: Sieve,
    host: String,
    near: bool,
    stall: Duration,
    end: Instant,
    over: bool,
    whole: bool,
}

/// Passes a request on.
pub(super) async fn pass(
    pool: &Arc<Pool>,
    model: &str,
    asked: &Asked,
    max_output: u32,
    asker: &Asker,
) -> Result<Relayed, Refusal> {
    let config = pool.config(model)?;
    let what = if asked.format == Format::Embeddings { Ask::Vectors } else { Ask::Answer };
    let target = Target { program: true, betas: asked.betas.clone(), ..pool.target(model, what)? };
    let deadlines = pool.deadlines(config);
    let mut backoff = pool.backoff();
    let mut quirks = pool.quirks_for(model, &asker.tries);
    loop {
        let body = anew(asked, &target, max_output, quirks);
        let weight = asked.head.weight;
        let (image_bytes, beyond_text) = (weight.image_bytes, weight.beyond_text());
        let max_output = if asked.format == Format::Embeddings { 0 } else { max_output };
        let sent = Sent { body_bytes: body.len(), image_bytes, beyond_text, max_output, ..Sent::default() };
        let failure = match exchange::open(&target, &body, asker.effect, deadlines, &sent).await {
            Ok(response) => match take(response, asked, &target, sent, deadlines).await {
                Ok(relayed) => {
                    pool.learned(model, quirks);
                    return Ok(relayed);
                }
                Err(Attempt::Page(failure)) => backoff.paged(failure),
                Err(Attempt::Failed(failure)) => failure,
                Err(Attempt::Rejected { .. }) => unreachable!("it began well"),
            },
            Err(Attempt::Failed(failure) | Attempt::Page(failure)) => failure,
            Err(Attempt::Rejected { status, headers, error }) => {
                if config.provider == Provider::Openai
                    && let Some(learned) = quirks.learn(status, &error, ours(asked, &target, quirks, &error))
                {
                    if !asker.tries.may() {
                        return Err(pool.suspect(model, &asker.tries, learned).into());
                    }
                    quirks = learned;
                    continue;
                }
                let failure = failure::classify(status, &headers, &error, &target.about());
                // What is wrong with the request itself is for the program, in the words of the server.
                let programs =
                    matches!(failure.kind, FailureKind::TooLong | FailureKind::TooLarge | FailureKind::Refused);
                if programs && let Some(said) = without(target.about().key, &error) {
                    let ended = Ended { usage: Usage::default(), whole: true };
                    let kind = Kind::Done(Some(said), ended);
                    return Ok(Relayed { status, content_type: "application/json", kind });
                }
                failure
            }
        };
        match backoff.after(&failure, fastrand::f64()) {
            Some(wait) if Instant::now() + wait < deadlines.end && asker.tries.may() => tokio::time::sleep(wait).await,
            Some(_) | None => return Err(failure.into()),
        }
    }
}

/// A server's words for a program, without the key that the server was sent: it is the owner's. `None`: no JSON.
fn without(key: Secret<'_>, said: &[u8]) -> Option<Bytes> {
    let mut value = serde_json::from_slice(said).ok()?;
    // Written anew from what was read here: an escape, or a second field of one name, hides nothing.
    cover(&mut value, key);
    Some(value.to_string().into())
}

fn cover(value: &mut Value, key: Secret<'_>) {
    match value {
        Value::String(text) => covered(text, key),
        Value::Array(values) => values.iter_mut().for_each(|value| cover(value, key)),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(mut name, mut value)| {
                    covered(&mut name, key);
                    cover(&mut value, key);
                    (name, value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn covered(text: &mut String, key: Secret<'_>) {
    if !key.0.is_empty() && text.contains(key.0) {
        *text = text.replace(key.0, "[key]");
    }
}

fn anew(asked: &Asked, target: &Target<'_>, max_output: u32, quirks: Quirks) -> Bytes {
    let (usage, limit_field) = match asked.format {
        Format::Chat => (quirks.stream_options(), Some(quirks.limit_field(target.config.address()))),
        Format::Responses | Format::Messages => (false, Some("max_tokens")),
        Format::Embeddings => (false, None),
    };
    asked.head.anew(&asked.body, Anew { model: &target.config.model, usage, max_output, limit_field })
}

/// The fields of a request that is passed on whose refusal teaches something: the program's own are its own affair.
fn ours(asked: &Asked, target: &Target<'_>, quirks: Quirks, error: &[u8]) -> Ours {
    const NEW: &str = "max_completion_tokens";
    if asked.format != Format::Chat {
        return Ours { usage: false, limit: None };
    }
    let usage = asked.stream && quirks.stream_options() && !asked.head.wants_usage();
    // Whoever says the limit, its name is ours to choose. What else is wrong with a limit may come right under a name that
    // the server passes over, and the answer would have none: so the new name is taken only where the server has it.
    let limit = quirks.limit_field(target.config.address());
    let known = limit == NEW || openai::names(&String::from_utf8_lossy(error), NEW);
    Ours { usage, limit: known.then_some(limit) }
}

/// Takes an answer that began well: a stream as it comes, anything else whole.
async fn take(
    response: reqwest::Response,
    asked: &Asked,
    target: &Target<'_>,
    sent: Sent,
    deadlines: Deadlines,
) -> Result<Relayed, Attempt> {
    let kind = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let mut meter = Meter { thinks: asked.head.thinks, ..Meter::new(asked.format, sent) };
    if kind.starts_with("text/event-stream") && asked.format != Format::Embeddings {
        let sieve = Sieve { all: asked.format != Format::Chat || asked.head.wants_usage(), ..Sieve::default() };
        let passed = Passed {
            response,
            meter,
            sieve,
            host: target.host.clone(),
            near: target.near,
            stall: deadlines.stall,
            end: deadlines.end,
            over: false,
            whole: false,
        };
        return Ok(Relayed { status: 200, content_type: "text/event-stream", kind: Kind::Passed(Box::new(passed)) });
    }
    let (body, usage) = match asked.format {
        Format::Embeddings => {
            let most = embeddings::Most::of(asked);
            let body = exchange::within(most.bytes(), most.beyond(), response, target, deadlines, &sent).await?;
            let usage = embeddings::usage(&body, asked);
            if let Some(usage) = usage {
                embeddings::fit(&body, asked, target).map_err(|failure| Failure { usage: Some(usage), ..failure })?;
            }
            (body, usage)
        }
        Format::Chat | Format::Responses | Format::Messages => {
            let body = exchange::whole(response, target, deadlines, &sent).await?;
            let usage = meter.document(&body).then(|| meter.usage());
            (body, usage)
        }
    };
    let Some(usage) = usage else {
        let failure = unanswered(&body, target, &sent);
        return Err(if exchange::is_page(&body) { Attempt::Page(failure) } else { Attempt::Failed(failure) });
    };
    let ended = Ended { usage, whole: true };
    Ok(Relayed { status: 200, content_type: "application/json", kind: Kind::Done(Some(body), ended) })
}

/// Why a body that is whole is no answer: its server says that it failed, or what came is something else.
fn unanswered(body: &[u8], target: &Target<'_>, sent: &Sent) -> Failure {
    match serde_json::from_slice::<Value>(body) {
        Ok(said) if said.get("error").is_some_and(|error| !error.is_null()) => {
            failure::classify_event(&said, &target.about())
        }
        _ => exchange::no_answer(body, target, sent),
    }
}

impl Passed {
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            // Once the provider has said why it stopped, only usage and the end mark can follow.
            let finished = self.meter.answer.finish.is_some();
            let wait = if finished { self.stall.min(EPILOGUE_WAIT) } else { self.stall };
            let until = (Instant::now() + wait).min(self.end);
            let broken = match timeout_at(until, self.response.chunk()).await {
                Ok(Ok(Some(piece))) if self.meter.is_beyond(&piece) => {
                    Some(transient(format!("{} sent more than an answer can hold", self.host)))
                }
                Ok(Ok(Some(piece))) => match self.sieve.push(&piece) {
                    Some(events) => return Some(events),
                    None => continue,
                },
                Ok(Ok(None)) => {
                    // The last event may lack its empty line.
                    self.meter.finish();
                    let early = || transient(format!("the answer of {} broke off before its end", self.host));
                    (!self.meter.is_whole()).then(early)
                }
                Ok(Err(error)) => Some(client::failed(error, &self.host, self.near)),
                Err(_) if finished => None,
                Err(_) if Instant::now() >= self.end => {
                    Some(transient(format!("the answer of {} took too long", self.host)))
                }
                Err(_) => Some(transient(format!("the answer of {} stalled", self.host))),
            };
            self.over = true;
            self.meter.finish();
            self.whole = broken.is_none();
            return match broken {
                None => self.sieve.rest(),
                // Half an event is no program's: the error would be read as its end.
                Some(failure) => Some(match self.meter.format {
                    Format::Chat | Format::Responses | Format::Embeddings => chat::error_event(&failure),
                    Format::Messages => messages::error_event(&failure),
                }),
            };
        }
        None
    }

    pub(super) fn until(&self) -> Instant {
        self.end
    }

    pub(super) fn ended(&self) -> Ended {
        Ended { usage: self.meter.usage(), whole: self.whole }
    }
}

/// Passes whole events on, and keeps the one that only tells the usage from a program that did not ask for it.
#[derive(Default)]
struct Sieve {
    /// That one too.
    all: bool,
    /// What has come of an event that is not whole.
    kept: BytesMut,
    /// How much of that was looked through: what comes in small pieces is not looked through again.
    looked: usize,
}

impl Sieve {
    /// The whole events of what has come.
    fn push(&mut self, piece: &[u8]) -> Option<Bytes> {
        self.kept.extend_from_slice(piece);
        let mut passed = BytesMut::new();
        let (mut start, mut at) = (0, self.looked);
        while let Some(length) = self.kept[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            at += length + 1;
            let event = &self.kept[start..at];
            // An empty line, in each of the ways in which lines may end.
            if [&b"\n\n"[..], b"\n\r\n", b"\r\r"].iter().any(|end| event.ends_with(end)) {
                if self.all || !tells_usage_only(event) {
                    passed.extend_from_slice(event);
                }
                start = at;
            }
        }
        drop(self.kept.split_to(start));
        // A server that ends no event would be kept for ever.
        if self.kept.len() > WIRE_BYTES_MAX {
            passed.unsplit(std::mem::take(&mut self.kept));
        }
        self.looked = self.kept.len();
        (!passed.is_empty()).then(|| passed.freeze())
    }

    /// What the end of the stream makes of what has come since the last whole event: an event where only its empty line is
    /// missing, which it gets; half an event is no program's.
    fn rest(&mut self) -> Option<Bytes> {
        let mut rest = std::mem::take(&mut self.kept);
        if !is_all_there(&rest) || (!self.all && tells_usage_only(&rest)) {
            return None;
        }
        rest.extend_from_slice(b"\n\n");
        Some(rest.freeze())
    }
}

/// Whether an event lacks nothing but its empty line.
fn is_all_there(event: &[u8]) -> bool {
    let mut data = event.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| line.strip_prefix(b"data:"));
    let reads = |line: &[u8]| line == b"[DONE]" || serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
    data.next().is_some_and(|line| reads(line.trim_ascii())) && data.next().is_none()
}

fn tells_usage_only(event: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Chunk {
        choices: Vec<serde::de::IgnoredAny>,
        usage: Option<serde::de::IgnoredAny>,
    }
    let Some(data) = event.strip_prefix(b"data:") else { return false };
    serde_json::from_slice::<Chunk>(data.trim_ascii())
        .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

/// Reads what an answer used while it passes.
struct Meter {
    format: Format,
    sent: Sent,
    /// It may think what nobody hears.
    thinks: bool,
    /// `None` once an event was longer than any is: the rest is passed on unread.
    reader: Option<sse::Reader>,
    answer: Answer<'static>,
}

impl Meter {
    fn new(format: Format, sent: Sent) -> Meter {
        // Nobody watches: a function without a state takes no memory, so nothing is leaked.
        let nobody: &'static mut (dyn FnMut(Delta) + Send) = Box::leak(Box::new(|_: Delta| ()));
        let reader = Some(sse::Reader::new(WIRE_BYTES_MAX));
        Meter { format, sent, thinks: false, reader, answer: Answer::new(nobody) }
    }

    fn piece(&mut self, piece: &[u8]) {
        let (format, answer) = (self.format, &mut self.answer);
        let Some(reader) = &mut self.reader else { return };
        // What cannot be read is passed on all the same; then what was read before counts.
        if reader.push(piece, &mut |data| event(format, data, answer)).is_err() {
            self.reader = None;
        }
    }

    /// Takes a piece; whether the answer grew past all that one may be with it.
    fn is_beyond(&mut self, piece: &[u8]) -> bool {
        self.piece(piece);
        self.answer.is_full()
    }

    fn finish(&mut self) {
        let (format, answer) = (self.format, &mut self.answer);
        let _ = self.reader.as_mut().map(|reader| reader.finish(&mut |data| event(format, data, answer)));
    }

    /// Whether its server has said that it ends here. Of what could not be read nobody knows.
    fn is_whole(&self) -> bool {
        self.answer.finish.is_some() || self.answer.ended || self.reader.is_none()
    }

    /// Takes an answer that is whole; whether it is one.
    fn document(&mut self, body: &[u8]) -> bool {
        if let Ok(text) = std::str::from_utf8(body) {
            event(self.format, text, &mut self.answer);
        }
        self.answer.ended = true;
        self.answer.understood
    }

    /// What it used. Where no word was heard, and no end, it may have thought all the while; and so it may where it was asked
    /// to think, whatever was heard.
    fn usage(&self) -> Usage {
        let usage = self.answer.usage(&self.sent);
        let unheard = usage.estimated && self.answer.finish.is_none() && (self.thinks || !self.answer.usable());
        let output_tokens = if unheard { self.sent.max_output.into() } else { usage.output_tokens };
        Usage { output_tokens, ..usage }
    }
}

fn event(format: Format, data: &str, answer: &mut Answer<'static>) {
    let _ = match format {
        Format::Chat | Format::Responses | Format::Embeddings => openai::event(data, answer),
        Format::Messages => anthropic::event(data, answer),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sieved(pieces: &[&[u8]]) -> (String, usize) {
        let mut sieve = Sieve::default();
        let passed: Vec<Bytes> = pieces.iter().filter_map(|piece| sieve.push(piece)).collect();
        (String::from_utf8(passed.concat()).unwrap(), sieve.kept.len())
    }

    #[test]
    fn only_what_tells_the_usage_alone_is_kept_back_wherever_it_is_cut() {
        let told = r#"data: {"choices":[],"usage":{}}"#;
        let stream = format!("data: a\n\n\n\n{told}\n\n: b\r\n\r\n{told}\r\n\r\ndata: {{}}\n\r\ndata: c\n\nd\r\n\r");
        let passed = "data: a\n\n\n\n: b\r\n\r\ndata: {}\n\r\ndata: c\n\n";
        let bytes = stream.as_bytes();
        for size in 1..=bytes.len() {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(sieved(&pieces), (passed.to_owned(), 4), "in pieces of {size}");
        }
    }

    #[test]
    fn what_no_event_can_be_is_not_kept() {
        let mut meter = Meter::new(Format::Chat, Sent::default());
        meter.piece(b"data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n");
        for _ in 0..2 {
            meter.piece(&vec![b'a'; WIRE_BYTES_MAX]);
        }
        meter.finish();
        assert!(meter.reader.is_none());
        assert_eq!(meter.usage().input_tokens, 7, "what was read before counts");
    }

    /// Looked through from its beginning for each event or with each piece, these would take hours.
    #[test]
    fn a_stream_is_looked_through_once() {
        assert_eq!(sieved(&[&[b'\n'; 400_001]]).1, 1);
        let piece: &[u8] = &[b'a'; 64];
        assert_eq!(sieved(&vec![piece; WIRE_BYTES_MAX / 64]), (String::new(), WIRE_BYTES_MAX));
        assert_eq!(sieved(&vec![piece; WIRE_BYTES_MAX / 64 + 1]).1, 0);
    }
}
