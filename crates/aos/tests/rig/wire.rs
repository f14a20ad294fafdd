//! HTTP over plain sockets: one request and its answer, and streams of events.
//!
//! Start at [`exchange`]. What always holds: an answer that is cut short is an error, never a short answer.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// One request with HTTP/1.0, so that the answer ends where the connection does and comes in one piece.
pub(crate) fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> std::io::Result<Http> {
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n{}", body.unwrap_or("")).as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let broken = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "no whole answer came");
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(broken)?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = bytes.split_off(end + 4);
    let whole = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .is_none_or(|(_, length)| method == "HEAD" || length.parse::<usize>().is_ok_and(|length| length == body.len()));
    if whole { Ok(Http { status, headers, body }) } else { Err(broken()) }
}

/// A stream of server-sent events.
pub(crate) struct Sse {
    reader: BufReader<UnixStream>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Sse {
    /// Events from a stream whose head was read.
    pub(crate) fn new(reader: BufReader<UnixStream>) -> Sse {
        Sse { reader }
    }
}

impl Iterator for Sse {
    type Item = Sent;

    /// The next event; `None` where the stream ended or broke.
    fn next(&mut self) -> Option<Sent> {
        let mut sent = Sent { id: None, event: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if !matches!(self.reader.read_line(&mut line), Ok(count) if count > 0 && line.ends_with('\n')) {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => sent.id = id.parse().ok(),
                Some(("event", event)) => event.clone_into(&mut sent.event),
                Some(("data", data)) => sent.data = serde_json::from_str(data).unwrap(),
                _ if line.trim().is_empty() && !sent.event.is_empty() => return Some(sent),
                _ => {}
            }
        }
    }
}
