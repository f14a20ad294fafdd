//! A client: one connection per request, over either kind of listener.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use crate::server::TOKEN;

/// Far beyond what anything takes, so that a test that hangs fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) enum Door {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Checks the form that every error has, and returns `code: message`.
    pub(crate) fn error(&self) -> String {
        assert!(self.status >= 400, "{self:?}");
        assert_eq!(self.header("content-type"), "application/json", "{self:?}");
        let json = self.json();
        let text = |of: &str| json["error"][of].as_str().unwrap_or_else(|| panic!("no {of} in {json}")).to_owned();
        assert!(json["error"].get("hint").is_some(), "{json}");
        format!("{}: {}", text("code"), text("message"))
    }
}

impl Door {
    /// A request with the token where it is needed.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Got {
        let token = format!("Bearer {TOKEN}");
        match self {
            Door::Tcp(_) => self.send_with(method, path, &[("authorization", &token)], body).await,
            Door::Unix(_) => self.send_with(method, path, &[], body).await,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send("GET", path, "").await
    }

    /// A request with just these headers, and a `Host` unless they hold one.
    pub(crate) async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Got {
        let answer = async {
            let (status, headers, mut body) = self.open(method, path, headers, body).await;
            let mut bytes = Vec::new();
            while let Some(frame) = body.frame().await {
                bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            Got { status, headers, body: bytes.into() }
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{method} {path} is not answered"))
    }

    /// The head of an answer, and its body to be read.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> (u16, HeaderMap, Incoming) {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let answer = match self {
            Door::Tcp(address) => exchange(TcpStream::connect(address).await.unwrap(), request).await,
            Door::Unix(path) => exchange(UnixStream::connect(path).await.unwrap(), request).await,
        };
        let (parts, body) = answer.into_parts();
        (parts.status.as_u16(), parts.headers, body)
    }
}

async fn exchange<IO>(stream: IO, request: Request<Body>) -> axum::http::Response<Incoming>
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    // It ends with the body of the answer, or when that is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sse {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) comment: String,
}

/// An event stream that is read event by event.
pub(crate) struct Stream {
    body: Incoming,
    text: Vec<u8>,
}

impl Stream {
    pub(crate) async fn open(door: &Door, path: &str, last_event_id: Option<u64>) -> Stream {
        let token = format!("Bearer {TOKEN}");
        let id = last_event_id.map(|id| id.to_string());
        let mut headers = vec![("authorization", token.as_str())];
        headers.extend(id.as_deref().map(|id| ("last-event-id", id)));
        let (status, headers, body) = door.open("GET", path, &headers, "").await;
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        Stream { body, text: Vec::new() }
    }

    /// The next event or comment; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(at) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..at + 2).collect();
                return Some(parse(std::str::from_utf8(&block).unwrap()));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("the stream is silent");
            match frame {
                None => {
                    assert!(self.text.is_empty(), "the stream ends in the middle of an event");
                    return None;
                }
                Some(frame) => self.text.extend_from_slice(&frame.unwrap().into_data().unwrap()),
            }
        }
    }

    pub(crate) async fn next_id(&mut self) -> u64 {
        let event = self.next().await.expect("the stream ended");
        event.id.unwrap_or_else(|| panic!("an id was expected: {event:?}"))
    }
}

fn parse(block: &str) -> Sse {
    let mut event = Sse::default();
    for line in block.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "id" => event.id = Some(value.parse().unwrap()),
            "event" => event.event = value,
            "data" => event.data = value,
            "" => event.comment = value,
            other => panic!("an unknown field `{other}` in {block}"),
        }
    }
    event
}
