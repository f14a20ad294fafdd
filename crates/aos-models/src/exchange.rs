//! One exchange with a server: the request goes out, the answer comes in, and it is decided what it was.
//!
//! Start at [`attempt`]. What always holds: each wait has its own deadline; what comes is bounded; half an answer never
//! passes for a whole one, and once something usable has come for an agent the exchange is a reply and no failure. What a
//! server may have worked on is in the failure's usage: it is on the provider's bill, whether or not anything of it was
//! heard.
//! Deliberately absent: trying again, which is the pool's.

use std::time::Duration;

use aos_abi::EffectId;
use aos_abi::inference::{Failure, Message, Part, Prompt, Reply};
use aos_abi::limits::REPLY_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use reqwest::header::HeaderMap;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout_at};

use crate::answer::{Answer, Finish, Sent};
use crate::config::Provider;
use crate::failure::{self, permanent, transient};
use crate::pool::Delta;
use crate::target::Target;
use crate::wire::Unread;
use crate::{anthropic, client, gemini, openai, sse};

/// Bytes of an error body that are read.
pub(crate) const ERROR_BYTES_MAX: usize = 64 << 10;
/// Bytes of one event, and of a whole answer that is not streamed: the largest reply with every byte escaped as `\u00xx`
/// would be six times as long, but twice is what text comes to.
pub(crate) const WIRE_BYTES_MAX: usize = 2 * REPLY_BYTES_MAX + (1 << 20);
/// After so long without an answer a server may have been thinking: who cannot serve says so sooner, and a connection that
/// was kept and is closed by now fails at once.
const WORKED: Duration = Duration::from_secs(10);
/// How what stands before a server says that this one took too long: Request Timeout, Gateway Timeout, and Cloudflare's own.
const BROKEN_OFF: [u16; 3] = [408, 504, 524];
/// How long usage and the end mark are waited for after an answer that is whole.
pub(crate) const EPILOGUE_WAIT: Duration = Duration::from_secs(5);
/// How long the end of a stream is waited for after its last event, so that the connection can be used again.
const TRAILER_WAIT: Duration = Duration::from_millis(100);

/// When the parts of one inference must be over.
#[derive(Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) first_byte: Duration,
    pub(crate) stall: Duration,
    pub(crate) end: Instant,
}

/// Why one try gave no reply.
pub(crate) enum Attempt {
    Failed(Failure),
    /// A web page came with status 200.
    Page(Failure),
    /// The server answered with an error.
    Rejected {
        status: u16,
        headers: HeaderMap,
        error: Vec<u8>,
    },
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Attempt::Failed(failure)
    }
}

/// Sends a request and reads the answer, once.
pub(crate) async fn attempt(
    target: &Target<'_>,
    body: &Bytes,
    prompt: &Prompt,
    effect: EffectId,
    deadlines: Deadlines,
    deltas: &mut (dyn FnMut(Delta) + Send),
) -> Result<Reply, Attempt> {
    let first_byte = (Instant::now() + deadlines.first_byte).min(deadlines.end);
    let sent = sent(prompt, body.len());
    let response = open(target, body, effect, deadlines, &sent).await?;
    let mut answer = Answer::new(deltas);
    let end = read(response, &mut answer, (target, &sent), first_byte, deadlines).await;
    match end {
        End::Page(failure) => Err(Attempt::Page(failure)),
        end => Ok(conclude(answer, end, target, &sent)?),
    }
}

/// Sends a request; the answer begins well, or it is none.
pub(crate) async fn open(
    target: &Target<'_>,
    body: &Bytes,
    effect: EffectId,
    deadlines: Deadlines,
    sent: &Sent,
) -> Result<reqwest::Response, Attempt> {
    let began = Instant::now();
    let first_byte = (began + deadlines.first_byte).min(deadlines.end);
    let request = target.client.post(target.url.clone()).headers(target.headers(effect)).body(body.clone());
    let failed = |error| client::failed(error, &target.host, target.near);
    let silent = || sent.unheard(transient(format!("{} did not begin to answer in time", target.host)));
    let response = match timeout_at(first_byte, request.send()).await {
        Err(_) => return Err(silent().into()),
        Ok(Err(error)) if !error.is_connect() && began.elapsed() >= WORKED => {
            return Err(sent.unheard(failed(error)).into());
        }
        Ok(Err(error)) => return Err(failed(error).into()),
        Ok(Ok(response)) => response,
    };
    if response.status().is_success() {
        return Ok(response);
    }
    let worked = began.elapsed() >= WORKED;
    Err(match rejected(response, deadlines).await {
        Attempt::Rejected { status, headers, error } if worked && BROKEN_OFF.contains(&status) => {
            sent.unheard(failure::classify(status, &headers, &error, &target.about())).into()
        }
        attempt => attempt,
    })
}

/// Reads an answer that comes in one piece, and is no longer than one of text can be.
pub(crate) async fn whole(
    response: reqwest::Response,
    target: &Target<'_>,
    deadlines: Deadlines,
    sent: &Sent,
) -> Result<Bytes, Failure> {
    let beyond = transient(format!("{} sent more than an answer can hold", target.host));
    within(WIRE_BYTES_MAX, beyond, response, target, deadlines, sent).await
}

/// Reads an answer that comes in one piece; `beyond` is the failure where it is longer than so many bytes.
pub(crate) async fn within(
    bytes_max: usize,
    beyond: Failure,
    mut response: reqwest::Response,
    target: &Target<'_>,
    deadlines: Deadlines,
    sent: &Sent,
) -> Result<Bytes, Failure> {
    let mut body = BytesMut::new();
    let failure = loop {
        let until = (Instant::now() + deadlines.stall).min(deadlines.end);
        match timeout_at(until, response.chunk()).await {
            Err(_) => break transient(format!("the answer of {} stalled", target.host)),
            Ok(Err(error)) => break client::failed(error, &target.host, target.near),
            Ok(Ok(None)) => return Ok(body.freeze()),
            Ok(Ok(Some(piece))) if body.len() + piece.len() > bytes_max => break beyond,
            Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
        }
    };
    Err(sent.unheard(failure))
}

fn sent(prompt: &Prompt, body_bytes: usize) -> Sent {
    let mut sent = Sent { body_bytes, max_output: prompt.max_output, ..Sent::default() };
    for message in &prompt.messages {
        if let Message::User(parts) = message {
            for part in parts {
                if let Part::Image { base64, .. } = part {
                    sent.images += 1;
                    sent.image_bytes += base64.len();
                }
            }
        }
    }
    sent
}

async fn rejected(mut response: reqwest::Response, deadlines: Deadlines) -> Attempt {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let until = (Instant::now() + deadlines.stall).min(deadlines.end);
    let mut error = Vec::new();
    // What there is of the body explains the status; without any the status has to do.
    while let Ok(Ok(Some(piece))) = timeout_at(until, response.chunk()).await {
        error.extend_from_slice(&piece[..piece.len().min(ERROR_BYTES_MAX - error.len())]);
        if error.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    Attempt::Rejected { status, headers, error }
}

/// How the body of an answer ended.
enum End {
    /// As it should, as far as HTTP goes.
    Whole,
    /// Before that; why.
    Cut(Failure),
    /// It is no answer of a model; why.
    NoAnswer(Failure),
    /// It is a web page.
    Page(Failure),
}

/// What the body of an answer turned out to be.
enum Form {
    /// Nothing but white space has come.
    Unknown,
    Stream(sse::Reader),
    /// One JSON document: the server does not stream.
    Document(Vec<u8>),
}

async fn read(
    mut response: reqwest::Response,
    answer: &mut Answer<'_>,
    (target, sent): (&Target<'_>, &Sent),
    first_byte: Instant,
    deadlines: Deadlines,
) -> End {
    let mut form = Form::Unknown;
    let mut until = first_byte;
    let end = loop {
        let piece = match timeout_at(until, response.chunk()).await {
            Err(_) => {
                let what = if Instant::now() >= deadlines.end { "took too long" } else { "stalled" };
                break End::Cut(transient(format!("the answer of {} {what}", target.host)));
            }
            Ok(Err(error)) => break End::Cut(client::failed(error, &target.host, target.near)),
            Ok(Ok(None)) => break End::Whole,
            Ok(Ok(Some(piece))) => piece,
        };
        if let Err(end) = take(&mut form, &piece, answer, target) {
            break end;
        }
        if answer.done() {
            // The stream's end is usually in the same packet; read, it lets the connection be used again.
            let _ = tokio::time::timeout(TRAILER_WAIT, response.chunk()).await;
            return End::Whole;
        }
        // Once the provider has said why it stopped, only usage and the end mark can follow.
        let wait = if answer.finish.is_some() { deadlines.stall.min(EPILOGUE_WAIT) } else { deadlines.stall };
        until = (Instant::now() + wait).min(deadlines.end);
    };
    match form {
        Form::Unknown => end,
        Form::Stream(mut reader) => {
            let cut = matches!(end, End::Cut(_));
            let broken = |data: &str| serde_json::from_str::<IgnoredAny>(data).is_err();
            // Its bound was kept while it was read. What is cut in the middle of an event is cut, and no fault.
            let _ = reader.finish(&mut |data| {
                if !((cut || answer.understood) && broken(data)) {
                    event(data, answer, target)
                }
            });
            end
        }
        Form::Document(bytes) => match (std::str::from_utf8(&bytes), end) {
            (Ok(text), End::Whole) => {
                event(text, answer, target);
                answer.ended = true;
                if answer.says_nothing_known(text) {
                    End::NoAnswer(no_answer(&bytes, target, sent))
                } else {
                    End::Whole
                }
            }
            (Err(_), End::Whole) => End::NoAnswer(transient(format!("the answer of {} is not JSON", target.host))),
            (_, cut) => cut,
        },
    }
}

fn take(form: &mut Form, piece: &[u8], answer: &mut Answer<'_>, target: &Target<'_>) -> Result<(), End> {
    let too_long = || End::Cut(transient(format!("{} sent more than an answer can hold", target.host)));
    if let Form::Unknown = form {
        match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => return Ok(()),
            Some(b'{' | b'[') => *form = Form::Document(Vec::new()),
            Some(b'<') => return Err(End::Page(page(target))),
            Some(_) => *form = Form::Stream(sse::Reader::new(WIRE_BYTES_MAX)),
        }
    }
    match form {
        Form::Stream(reader) => reader.push(piece, &mut |data| event(data, answer, target)).map_err(|_| too_long()),
        Form::Document(bytes) => {
            bytes.extend_from_slice(piece);
            if bytes.len() > WIRE_BYTES_MAX { Err(too_long()) } else { Ok(()) }
        }
        Form::Unknown => Ok(()),
    }
}

/// Whether a body is a web page.
pub(crate) fn is_page(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

/// The failure that a web page stands for.
fn page(target: &Target<'_>) -> Failure {
    let hint = Some(format!("check base_url of [models.{}]", target.name));
    Failure { hint, ..transient(format!("{} sent a web page instead of an answer", target.host)) }
}

/// The failure that a body stands for which is no answer of a model. Where it is JSON all the same, its server has done
/// something else than it was asked for, may have worked on that, and would do so again.
pub(crate) fn no_answer(body: &[u8], target: &Target<'_>, sent: &Sent) -> Failure {
    if is_page(body) {
        return page(target);
    }
    let said = failure::quote(&String::from_utf8_lossy(&body[..body.len().min(ERROR_BYTES_MAX)]), &target.key);
    let message = format!("{} sent what is no answer: {said}", target.host);
    if serde_json::from_slice::<IgnoredAny>(body).is_err() {
        return transient(message);
    }
    let hint = if target.program {
        "leave out of the request what asks for something else".to_owned()
    } else {
        format!("check base_url of [models.{}]", target.name)
    };
    sent.unheard(permanent(message, hint))
}

fn event(data: &str, answer: &mut Answer<'_>, target: &Target<'_>) {
    if answer.done() {
        return;
    }
    let taken = match target.config.provider {
        Provider::Openai => openai::event(data, answer),
        Provider::Anthropic => anthropic::event(data, answer),
        Provider::Gemini => gemini::event(data, answer),
        Provider::Local => unreachable!("such a model has no target"),
    };
    answer.fault = match taken {
        Ok(()) => return,
        Err(Unread::Error(error)) => {
            let error = serde_json::from_str(&error).unwrap_or(serde_json::Value::String(error));
            Some(failure::classify_event(&error, &target.about()))
        }
        Err(Unread::Broken(error)) => {
            let said = failure::quote(data, &target.key);
            Some(transient(format!("{} sent what is no answer ({error}): {said}", target.host)))
        }
    };
}

fn conclude(mut answer: Answer<'_>, end: End, target: &Target<'_>, sent: &Sent) -> Result<Reply, Failure> {
    if let Some(Finish::Refused(why)) = &answer.finish {
        return Err(answer.refused(&why.clone(), sent));
    }
    // An end without the provider's own mark is a cut: half an answer must not pass for a whole one. With the mark it is
    // whole, however the connection ends after it.
    let whole = answer.finish.is_some() || answer.ended && matches!(end, End::Whole);
    if answer.usable() && !(target.program && answer.breaks_off(whole)) {
        return Ok(answer.into_reply(target.name, sent, whole));
    }
    if answer.usable() {
        // A program would take it for one that ends at its limit.
        let early = || transient(format!("the answer of {} broke off before its end", target.host));
        let failure = match (answer.fault.take(), end) {
            (Some(failure), _) | (None, End::NoAnswer(failure) | End::Page(failure) | End::Cut(failure)) => failure,
            (None, End::Whole) => early(),
        };
        let failure = Failure { usage: Some(answer.usage(sent)), ..failure };
        return Err(if target.config.reasoning { answer.unheard(sent, failure) } else { failure });
    }
    let early = || transient(format!("{} ended its answer before there was one", target.host));
    Err(match (answer.fault.take(), end) {
        (_, End::NoAnswer(failure) | End::Page(failure)) => failure,
        // A server that says that it failed bills what it says was used.
        (Some(fault), _) => Failure { usage: answer.reported_usage(sent), ..fault },
        (None, _) if answer.understood && whole => return Ok(answer.into_reply(target.name, sent, true)),
        (None, End::Cut(failure)) => answer.unheard(sent, failure),
        (None, End::Whole) if answer.understood => answer.unheard(sent, early()),
        (None, End::Whole) => early(),
    })
}
