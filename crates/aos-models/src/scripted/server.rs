//! The server: HTTP/1.1 on loopback around a [`Script`].
//!
//! Start at [`Server::start`]. What always holds: it ends, with all its connections, when it is dropped; it keeps the
//! last [`RECORDED_MAX`] requests and no more.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use regex::Regex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::body::{Piece, Reset, Sending};
use super::conversation::{Conversation, Wire};
use super::render::{self, Filled, FilledCall};
use super::script::{Answer, Fault, Page, Rule, Script, UsageAs, When};
use super::template::Known;
use crate::config::{ModelConfig, Provider};

/// Most requests that are kept for assertions.
pub const RECORDED_MAX: usize = 1000;
/// Largest request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address on loopback could be had.
    #[error("the scripted server cannot listen")]
    Listen(#[from] std::io::Error),
    /// A rule's `regex` is none.
    #[error("rule {rule} of the script has a bad regular expression")]
    Regex {
        /// Its place, from 0.
        rule: usize,
        /// What is wrong with it.
        source: Box<regex::Error>,
    },
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A running server. Dropped, it ends.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    script: Script,
    /// By rule.
    regexes: Vec<Option<Regex>>,
    used: Vec<AtomicU32>,
    instant: Option<[Bytes; 3]>,
    count: AtomicU64,
    connections: AtomicU64,
    recorded: Mutex<VecDeque<Recorded>>,
}

impl Server {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Where no port can be had or a regular expression is none.
    pub async fn start(script: Script) -> Result<Server, Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        Server::start_on(listener, script)
    }

    /// Starts on `listener`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(listener: TcpListener, script: Script) -> Result<Server, Error> {
        let address = listener.local_addr()?;
        let state = Arc::new(State::new(script)?);
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, Arc::clone(&state), stop.clone()));
        Ok(Server { address, state, stop, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The `base_url` under which it speaks a provider's format.
    #[must_use]
    pub fn base_url(&self, provider: Provider) -> String {
        let path = match provider {
            Provider::Openai | Provider::Local => "/v1",
            Provider::Anthropic => "",
            Provider::Gemini => "/v1beta",
        };
        format!("http://{}{path}", self.address)
    }

    /// The configuration of a model on this server: its first one, in a provider's format, free and local.
    #[must_use]
    pub fn model(&self, provider: Provider) -> ModelConfig {
        let name = self.state.script.models.first().map_or("scripted", String::as_str);
        let mut config = ModelConfig::new(provider, name);
        config.base_url = Some(self.base_url(provider));
        config.local = Some(true);
        config.price = Some(aos_abi::model::Price::default());
        config
    }

    /// The last requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.recorded.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How many requests for an answer came since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// How many connections were made since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Ends it and waits until it has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // It ends by itself; that it panicked would have been printed.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, state: Arc<State>, stop: CancellationToken) {
    // Dropping the set at the end aborts every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    state.connections.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(connection(stream, Arc::clone(&state)));
                }
                // Out of file descriptors, mostly: others must close before another can open.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

async fn connection(stream: TcpStream, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { state.respond(request).await }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // Many connections are broken on purpose; how they end is nobody's concern.
    let _ = http.pipeline_flush(true).serve_connection(TokioIo::new(stream), service).await;
}

impl State {
    fn new(script: Script) -> Result<State, Error> {
        let compile = |(rule, of): (usize, &Rule)| match &of.when.regex {
            None => Ok(None),
            Some(text) => Regex::new(text).map(Some).map_err(|source| Error::Regex { rule, source: Box::new(source) }),
        };
        let regexes = script.rules.iter().enumerate().map(compile).collect::<Result<_, _>>()?;
        let used = script.rules.iter().map(|_| AtomicU32::new(0)).collect();
        let instant = script.instant.as_ref().map(|text| {
            [Wire::Openai, Wire::Anthropic, Wire::Gemini].map(|wire| {
                // The request is not read, so this is that of a usual one, of 12 kB.
                let usage = Some((3000, 1 + text.len() as i64 / 4, 0));
                let filled = Filled { model: "scripted".to_owned(), text: text.clone(), usage, ..Filled::default() };
                Bytes::from(render::events(wire, &filled).concat())
            })
        });
        let recorded = Mutex::new(VecDeque::with_capacity(RECORDED_MAX));
        Ok(State { script, regexes, used, instant, count: AtomicU64::new(0), connections: AtomicU64::new(0), recorded })
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Sending>, Reset> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if self.script.pages.iter().any(|page| page.path == path) {
            return self.page(head, body).await;
        }
        if head.method == Method::GET {
            return Ok(if path.ends_with("/models") { self.models() } else { not_found() });
        }
        let wire = if path.ends_with("/chat/completions") {
            Wire::Openai
        } else if path.ends_with("/messages") {
            Wire::Anthropic
        } else if path.ends_with(":streamGenerateContent") || path.ends_with(":generateContent") {
            Wire::Gemini
        } else if !path.ends_with("/embeddings") {
            return Ok(not_found());
        } else {
            let Ok(body) = http_body_util::Limited::new(body, REQUEST_BYTES_MAX).collect().await else {
                return Err(Reset);
            };
            let body = body.to_bytes();
            let path = path.to_owned();
            self.record(Recorded { path, headers: head.headers, body: body.clone() });
            return Ok(vectors(&body));
        };
        let Ok(body) = http_body_util::Limited::new(body, REQUEST_BYTES_MAX).collect().await else { return Err(Reset) };
        let body = body.to_bytes();
        let path = head.uri.path_and_query().map_or_else(String::new, |path| path.as_str().to_owned());
        self.count.fetch_add(1, Ordering::Relaxed);
        let stream = path.contains(":streamGenerateContent");
        self.record(Recorded { path, headers: head.headers, body: body.clone() });
        if let Some(instant) = &self.instant {
            let sending = Sending::whole(instant[wire as usize].clone());
            return Ok(response(StatusCode::OK, "text/event-stream", sending));
        }
        if let Some(answer) = self.answer(wire, stream, &body) { answer } else { std::future::pending().await }
    }

    /// The first document of a path that fits; these requests are kept too.
    async fn page(&self, head: Parts, body: Incoming) -> Result<Response<Sending>, Reset> {
        let Ok(body) = http_body_util::Limited::new(body, REQUEST_BYTES_MAX).collect().await else { return Err(Reset) };
        let body = body.to_bytes();
        let text = String::from_utf8_lossy(&body);
        let fits = |page: &&Page| {
            page.path == head.uri.path() && page.body.as_ref().is_none_or(|needle| text.contains(needle.as_str()))
        };
        let answer = self.script.pages.iter().find(fits).map_or_else(not_found, |page| {
            let status = page.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK);
            response(status, "application/json", Sending::whole(page.document.to_string().into()))
        });
        let path = head.uri.path_and_query().map_or_else(String::new, |path| path.as_str().to_owned());
        self.record(Recorded { path, headers: head.headers, body });
        Ok(answer)
    }

    fn record(&self, request: Recorded) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= RECORDED_MAX {
            recorded.pop_front();
        }
        recorded.push_back(request);
    }

    fn models(&self) -> Response<Sending> {
        let default = ["scripted".to_owned()];
        let names = if self.script.models.is_empty() { &default[..] } else { &self.script.models };
        let data: Vec<_> = names.iter().map(|id| json!({"id": id, "object": "model", "owned_by": "aos"})).collect();
        let body = json!({"object": "list", "data": data}).to_string();
        response(StatusCode::OK, "application/json", Sending::whole(body.into()))
    }

    /// The answer; `None`: none is to come, and the connection stays.
    fn answer(&self, wire: Wire, gemini_stream: bool, body: &Bytes) -> Option<Result<Response<Sending>, Reset>> {
        let refuse = |message: String| {
            let body = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
            response(StatusCode::BAD_REQUEST, "application/json", Sending::whole(body.into()))
        };
        let conversation = match Conversation::read(wire, body) {
            Ok(conversation) => conversation,
            Err(error) => return Some(Ok(refuse(format!("the request is not JSON of this format: {error}")))),
        };
        let Some((rule, regex)) = self.matching(&conversation, body) else {
            return Some(Ok(refuse("no rule of the script matches this request".to_owned())));
        };
        if rule.fault == Some(Fault::Hang) {
            return None;
        }
        let nothing = Answer::default();
        let steps = &rule.answers;
        let step = if steps.len() > 1 { conversation.step().min(steps.len() - 1) } else { 0 };
        let answer = steps.get(step).unwrap_or(&nothing);
        let groups = regex.and_then(|regex| regex.captures(conversation.last()));
        let known = Known { conversation: &conversation, groups };
        let mut filled = fill(answer, &known, body);
        if let Some(Fault::Megabytes { megabytes }) = rule.fault {
            filled.text = "all work and no play ".repeat(megabytes.saturating_mul(1_000_000).div_ceil(21));
            filled.chunk_bytes = 1 << 16;
        }
        let stream = if wire == Wire::Gemini { gemini_stream } else { conversation.outline().stream };
        Some(send(wire, stream && !answer.plain, answer, &filled, rule.fault.as_ref()))
    }

    fn matching(&self, conversation: &Conversation<'_>, body: &Bytes) -> Option<(&Rule, Option<&Regex>)> {
        let rules = self.script.rules.iter().zip(&self.regexes).zip(&self.used);
        for ((rule, regex), used) in rules {
            if !matches(&rule.when, regex.as_ref(), conversation, body) {
                continue;
            }
            let free = |used: u32| rule.times.is_none_or(|times| used < times).then(|| used.saturating_add(1));
            if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok() {
                return Some((rule, regex.as_ref()));
            }
        }
        None
    }
}

fn matches(when: &When, regex: Option<&Regex>, conversation: &Conversation<'_>, body: &Bytes) -> bool {
    let holds = |wanted: &Option<String>, holds: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(holds);
    let last_call = |name: &str| conversation.results().last().is_some_and(|result| result.name == name);
    // What is cheap to see is asked first.
    when.nth.is_none_or(|nth| conversation.nth() == nth)
        && when.step.is_none_or(|step| conversation.step() == step)
        && holds(&when.model, &|model| conversation.outline().model == model)
        && holds(&when.body, &|needle| String::from_utf8_lossy(body).contains(needle))
        && holds(&when.last, &|needle| conversation.last().contains(needle))
        && regex.is_none_or(|regex| regex.is_match(conversation.last()))
        && holds(&when.after, &last_call)
        && holds(&when.system, &|needle| conversation.system(needle))
        && holds(&when.any, &|needle| conversation.any(needle))
}

fn fill(answer: &Answer, known: &Known<'_, '_>, body: &[u8]) -> Filled {
    let outline = known.conversation.outline();
    let mut text = known.fill(&answer.text);
    let mut calls = Vec::with_capacity(answer.calls.len());
    for (nth, call) in answer.calls.iter().enumerate() {
        let arguments = match &call.raw_args {
            Some(raw) => known.fill(raw),
            None => known.fill_value(&call.args).to_string(),
        };
        if outline.tools {
            let id = call.id.clone().unwrap_or_else(|| format!("call_{:08x}_{nth}", mark(body)));
            calls.push(FilledCall { id, name: call.name.clone(), arguments });
        } else {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[SYS_CALL::{}] {arguments}", call.name));
        }
    }
    let answered = text.len() + calls.iter().map(|call| call.arguments.len()).sum::<usize>();
    let usage = match answer.usage {
        UsageAs::Plausible => Some(((body.len() / 4).max(1) as i64, (answered / 4).max(1) as i64, 0)),
        UsageAs::Missing => None,
        UsageAs::Said { input, output, cached } => Some((input, output, cached)),
    };
    let model = outline.model.clone().into_owned();
    Filled { model, text, calls, stop: answer.stop, usage, chunk_bytes: answer.chunk_bytes }
}

/// A number that another request of the same conversation hardly shares: FNV-1a over the end of the body, where what is
/// new stands. Ids made of it survive a restart of the server, unlike those of a counter.
fn mark(body: &[u8]) -> u32 {
    let end = &body[body.len().saturating_sub(4096)..];
    let start = (body.len() as u32) ^ 0x811c_9dc5;
    end.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn send(
    wire: Wire,
    stream: bool,
    answer: &Answer,
    filled: &Filled,
    fault: Option<&Fault>,
) -> Result<Response<Sending>, Reset> {
    let mut events = if stream { render::events(wire, filled) } else { vec![render::document(wire, filled)] };
    let (content_type, mut end) = (if stream { "text/event-stream" } else { "application/json" }, Vec::new());
    let mut bytes_max = usize::MAX;
    match fault {
        None | Some(Fault::Megabytes { .. }) => {}
        Some(Fault::Reset) => return Err(Reset),
        // The request is held before it gets here.
        Some(Fault::Hang) => {}
        Some(Fault::Status { status, body, headers }) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = response(status, "application/json", Sending::whole(body.clone().into()));
            for (name, value) in headers {
                if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                    response.headers_mut().insert(name, value);
                }
            }
            return Ok(response);
        }
        Some(Fault::Body { content_type, body }) => {
            return Ok(response(StatusCode::OK, content_type, Sending::whole(body.clone().into())));
        }
        Some(Fault::Cut { after_bytes }) => (bytes_max, end) = (*after_bytes, vec![Piece::Flush, Piece::Abort]),
        Some(Fault::End { after_bytes }) => bytes_max = *after_bytes,
        Some(Fault::Stall { after_bytes }) => (bytes_max, end) = (*after_bytes, vec![Piece::Stall]),
        Some(Fault::Event { after_bytes, data }) => {
            let mut bytes = 0;
            events.retain(|event| {
                bytes += event.len();
                bytes <= *after_bytes
            });
            events.push(format!("data: {data}\n\n"));
        }
    }
    let mut bytes = events.concat().into_bytes();
    bytes.truncate(bytes_max);
    let bytes = Bytes::from(bytes);
    if end.is_empty() && answer.write_bytes == 0 && answer.delay_ms == 0 {
        return Ok(response(StatusCode::OK, content_type, Sending::whole(bytes)));
    }
    let mut pieces = Vec::new();
    let size = if answer.write_bytes == 0 { usize::MAX } else { answer.write_bytes };
    let mut rest = bytes;
    while !rest.is_empty() {
        if !pieces.is_empty() {
            let delay = Duration::from_millis(answer.write_delay_ms);
            pieces.push(if delay.is_zero() { Piece::Flush } else { Piece::Wait(delay) });
        }
        pieces.push(Piece::Data(rest.split_to(size.min(rest.len()))));
    }
    if answer.write_bytes > 0 {
        // The end of the body comes on its own too, as from a server that streams.
        pieces.push(Piece::Flush);
    }
    pieces.append(&mut end);
    Ok(response(StatusCode::OK, content_type, Sending::pieces(pieces, answer.delay_ms)))
}

fn response(status: StatusCode, content_type: &str, body: Sending) -> Response<Sending> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// One vector for each text, the same for all of them: 1 and then halves, as many as `dimensions` says, or two in base64.
fn vectors(body: &[u8]) -> Response<Sending> {
    let request: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let texts = request["input"].as_array().map_or(1, Vec::len);
    let halves = request["dimensions"].as_u64().unwrap_or(2).clamp(1, 4096);
    let vector = match request["encoding_format"].as_str() {
        // 1.0 and 0.5 as little-endian 32 bit floats.
        Some("base64") => json!("AACAPwAAAD8="),
        _ => (0..halves).map(|at| if at == 0 { 1.0 } else { 0.5 }).collect(),
    };
    let data: Vec<_> =
        (0..texts).map(|index| json!({"object": "embedding", "index": index, "embedding": vector})).collect();
    let usage = json!({"prompt_tokens": 3 * texts, "total_tokens": 3 * texts});
    let body = json!({"object": "list", "data": data, "model": "scripted", "usage": usage}).to_string();
    response(StatusCode::OK, "application/json", Sending::whole(body.into()))
}

fn not_found() -> Response<Sending> {
    let body = json!({"error": {"message": "the scripted server has no such path"}}).to_string();
    response(StatusCode::NOT_FOUND, "application/json", Sending::whole(body.into()))
}
