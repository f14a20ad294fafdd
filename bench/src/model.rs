//! A model that answers at once: real HTTP on loopback in OpenAI's streaming format, always the same but for its number.
//!
//! It reads no request but for its length and, for [`Answer::Chat`], for whether it asks for a stream, so that what the
//! model costs stays small beside what is measured, and notes when each begins to arrive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// What the model always answers.
pub(crate) enum Answer {
    /// This text.
    Text(&'static str),
    /// One call, whose arguments are made of the number of the request: who makes the same call again and again is stopped.
    Call(&'static str, fn(u64) -> Value),
    /// These words with what they used: one document, or a stream of an event for each, as the request asks.
    Chat(&'static [&'static str]),
}

/// A running model; it ends with the program.
pub(crate) struct Model {
    answer: Answer,
    /// The two forms of [`Answer::Chat`], written once: the document and the stream.
    written: [Bytes; 2],
    answered: AtomicU64,
    received_bytes: AtomicU64,
    /// When the last request began to arrive.
    arrived: Mutex<Option<Instant>>,
}

impl Model {
    /// A model on this port of loopback.
    pub(crate) async fn start(port: u16, answer: Answer) -> Result<Arc<Model>, Failure> {
        let (answered, received_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let written = match &answer {
            Answer::Chat(words) => [document(words).into(), events(words).into()],
            Answer::Text(_) | Answer::Call(..) => Default::default(),
        };
        let model = Arc::new(Model { answer, written, answered, received_bytes, arrived: Mutex::new(None) });
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let serving = Arc::clone(&model);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, Arc::clone(&serving)));
            }
        });
        Ok(model)
    }

    /// Requests answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Bytes of their bodies.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// When the last request began to arrive; once.
    pub(crate) fn take_arrival(&self) -> Option<Instant> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let body = request.into_body().collect().await?.to_bytes();
        self.received_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        let nth = self.answered.fetch_add(1, Ordering::Relaxed);
        let (kind, answer) = match &self.answer {
            Answer::Chat(_) if asks_for_stream(&body) => ("text/event-stream", self.written[1].clone()),
            Answer::Chat(_) => ("application/json", self.written[0].clone()),
            answer => ("text/event-stream", answer.stream(nth).into()),
        };
        let mut response = Response::new(Full::new(answer));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(response)
    }
}

impl Answer {
    /// The events of one answer. An agent's has no usage: the daemon goes by its own estimate, as with servers that report
    /// none.
    fn stream(&self, nth: u64) -> String {
        let (first, finish) = match self {
            Answer::Chat(words) => return events(words),
            Answer::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
            Answer::Call(name, arguments) => {
                let function = json!({ "name": name, "arguments": arguments(nth).to_string() });
                let call = json!({ "index": 0, "id": format!("call_{nth}"), "type": "function", "function": function });
                (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
            }
        };
        chunk(first, Value::Null) + &chunk(json!({}), json!(finish)) + "data: [DONE]\n\n"
    }
}

fn chunk(delta: Value, finish: Value) -> String {
    let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
    let chunk =
        json!({ "id": "r", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": choices });
    format!("data: {chunk}\n\n")
}

/// What an answer of so many words used.
fn usage(words: &[&str]) -> Value {
    json!({ "prompt_tokens": 20, "completion_tokens": words.len(), "total_tokens": 20 + words.len() })
}

fn events(words: &[&str]) -> String {
    let mut events: String = words.iter().map(|word| chunk(json!({ "content": word }), Value::Null)).collect();
    events += &chunk(json!({}), json!("stop"));
    let last = json!({ "id": "r", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [], "usage": usage(words) });
    events + &format!("data: {last}\n\ndata: [DONE]\n\n")
}

fn document(words: &[&str]) -> String {
    let message = json!({ "role": "assistant", "content": words.concat() });
    let choices = json!([{ "index": 0, "message": message, "finish_reason": "stop" }]);
    let document = json!({ "id": "r", "object": "chat.completion", "created": 1, "model": "scripted", "choices": choices, "usage": usage(words) });
    document.to_string()
}

/// As the clients write it, with or without a space.
fn asks_for_stream(body: &[u8]) -> bool {
    let has = |mark: &[u8]| body.windows(mark.len()).any(|window| window == mark);
    has(br#""stream":true"#) || has(br#""stream": true"#)
}

async fn connection(stream: TcpStream, model: Arc<Model>) {
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let model = Arc::clone(&model);
        async move { model.respond(request).await }
    });
    // The daemon closes what it no longer wants.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
