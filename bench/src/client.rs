//! A client of the daemon: one connection to its Unix socket, requests one after another, or one stream of events.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Failure;

/// Longest wait for any answer: a daemon that takes longer is broken, not slow.
const DEADLINE: Duration = Duration::from_secs(120);

/// One connection.
pub(crate) struct Client(SendRequest<Full<Bytes>>);

impl Client {
    pub(crate) async fn connect(socket: &Path) -> Result<Client, Failure> {
        let stream = timeout(DEADLINE, UnixStream::connect(socket)).await??;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with its sender; what went wrong shows in the request.
        tokio::spawn(connection);
        Ok(Client(sender))
    }

    /// The answer to a request, as JSON.
    pub(crate) async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.bytes(method, path, body).await?)?)
    }

    /// The answer to a request.
    pub(crate) async fn bytes(&mut self, method: Method, path: &str, body: &Value) -> Result<Bytes, Failure> {
        let answer = timeout(DEADLINE, self.0.send_request(request(method, path, body)?)).await??;
        let status = answer.status();
        let body = timeout(DEADLINE, answer.into_body().collect()).await??.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into())
    }

    /// A resident agent without a task; its pid.
    pub(crate) async fn spawn(&mut self, spec: &Value) -> Result<u64, Failure> {
        let accepted = self.ask(Method::POST, "/v1/processes", spec).await?;
        accepted["pid"].as_u64().ok_or_else(|| format!("no pid in {accepted}").into())
    }

    /// Lines to the standard input of an agent.
    pub(crate) async fn send(&mut self, pid: u64, text: &str) -> Result<(), Failure> {
        let body = serde_json::json!({ "text": text });
        self.ask(Method::POST, &format!("/v1/processes/{pid}/stdin"), &body).await.map(|_| ())
    }
}

fn request(method: Method, path: &str, body: &Value) -> Result<Request<Full<Bytes>>, Failure> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let head = Request::builder().method(method).uri(path).header("host", "aos");
    Ok(head.header("content-type", "application/json").body(Full::new(body))?)
}

/// Whose inference was completed, and when its event was read here.
pub(crate) type Completed = (u64, Instant);

/// Every completed inference from now on.
pub(crate) async fn completions(socket: &Path) -> Result<mpsc::UnboundedReceiver<Completed>, Failure> {
    let mut client = Client::connect(socket).await?;
    let status = client.ask(Method::GET, "/v1/status", &Value::Null).await?;
    let path = format!("/v1/events?after={}", status["lsn"]);
    let mut body = client.0.send_request(request(Method::GET, &path, &Value::Null)?).await?.into_body();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // The connection lives as long as its sender.
        let _client = client;
        let mut rest = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            let now = Instant::now();
            while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = rest.drain(..end + 2).collect();
                if let Some(pid) = completed(&String::from_utf8_lossy(&event))
                    && sender.send((pid, now)).is_err()
                {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

/// The process of an event, if that is a completed inference.
fn completed(event: &str) -> Option<u64> {
    let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
    event.contains("event: inference_completed\n").then_some(())?;
    serde_json::from_str::<Value>(data).ok()?["pid"].as_u64()
}
