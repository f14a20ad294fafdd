//! A daemon for tests: answers on a Unix socket as a test says, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::{Client, Start};
use crate::home::Home;

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: String,
    pub(crate) last_event_id: Option<String>,
    pub(crate) body: String,
}

/// What is answered: a status and a body, which ends with the connection.
pub(crate) struct Reply(pub(crate) u16, pub(crate) String);

/// A running fake.
pub(crate) struct Fake {
    pub(crate) home: Home,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
    dir: Option<tempfile::TempDir>,
}

impl Fake {
    /// Answers each request by `answer`.
    pub(crate) fn serve(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        let mut fake = Fake::serve_at(home, answer);
        fake.dir = Some(dir);
        fake
    }

    /// The same in a home that is there already.
    pub(crate) fn serve_at(home: Home, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Fake {
        let listener = UnixListener::bind(home.socket()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that only looks whether somebody listens sends nothing.
                if let Some(request) = one(stream, &answer).await {
                    log.lock().unwrap().push(request);
                }
            }
        });
        Fake { home, seen, task, dir: None }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.home.clone(), Start::Never)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Stops answering and leaves the socket behind, as a daemon that was killed does.
    pub(crate) async fn kill(mut self) -> Option<tempfile::TempDir> {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.dir.take()
    }
}

async fn one(mut stream: UnixStream, answer: &impl Fn(&Seen) -> Reply) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let header = |name: &str| {
        text.lines().find_map(|line| line.to_lowercase().strip_prefix(&format!("{name}: ")).map(str::to_owned))
    };
    let length: usize = header("content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head + length {
        stream.read_buf(&mut bytes).await.unwrap();
    }
    let what = text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let body = String::from_utf8(bytes[head..].to_vec()).unwrap();
    let request = Seen { what, last_event_id: header("last-event-id"), body };
    let Reply(status, body) = answer(&request);
    let answer = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
    Some(request)
}
