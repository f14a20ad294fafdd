//! The client: requests to the daemon over its Unix socket, which is started where none runs.
//!
//! Start at [`Client::get`] and [`Client::events`]. What always holds: every request has a deadline; every error says
//! whether the daemon could be reached (see [`Error`]). Absent: TCP and the token, which programs of other users need.

mod address;
mod error;
mod events;
#[cfg(test)]
pub(crate) mod fake;
mod sse;
mod start;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use aos_abi::Lsn;
use aos_abi::api::ErrorBody;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

pub use address::Address;
pub use error::Error;
pub use events::{Event, Events, Line, Progress};

use crate::home::Home;

/// The daemon answers most requests within 30 s or says that it cannot.
const USUAL: Duration = Duration::from_secs(35);
/// What reads or writes the whole journal may take an hour.
const LONG: Duration = Duration::from_secs(3_660);
/// How often a request that only looks is sent to a daemon that goes away before it answers, and how long lies between.
const TRIES_MAX: usize = 4;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
/// Largest answer that is read into memory, in bytes; lists of two million processes fit.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Whether a missing daemon is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With this program.
    With(PathBuf),
    /// Never.
    Never,
}

/// Talks to the daemon of one home. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    home: Home,
    start: Start,
    /// By which a person is told what a daemon that was started for them found changed.
    tell: Option<fn(&str)>,
}

/// An answer whose body is still to be read. Dropping it ends the connection.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    body: Incoming,
    _connection: Connection,
}

/// The task that moves the bytes of one connection; it ends with this value at the latest.
#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// A client of the daemon of a home.
    #[must_use]
    pub fn new(home: Home, start: Start) -> Client {
        Client { home, start, tell: None }
    }

    /// The same client, which tells what a daemon that it has started found changed since the start before, a line each.
    #[must_use]
    pub fn telling(self, tell: fn(&str)) -> Client {
        Client { tell: Some(tell), ..self }
    }

    /// The same client, which starts no daemon.
    #[must_use]
    pub fn without_start(&self) -> Client {
        Client { home: self.home.clone(), start: Start::Never, tell: None }
    }

    /// Whether a daemon answers now; none is started.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn is_up(&self) -> Result<bool, Error> {
        Ok(start::connect(&self.home).await?.is_some())
    }

    /// Whether the daemon died: one that is stopped takes its socket away before it lets go of the journal.
    fn left_behind(&self) -> bool {
        !self.home.holds_journal() && self.home.socket().exists()
    }

    /// Makes sure that a daemon answers; a missing one is started.
    ///
    /// # Errors
    /// [`Error::NoDaemon`], [`Error::NotStarted`], [`Error::Closed`].
    pub async fn ready(&self) -> Result<(), Error> {
        self.stream().await.map(drop)
    }

    /// Asks for something.
    ///
    /// # Errors
    /// Every kind of [`Error`] but [`Error::Gone`]; so with all requests.
    pub async fn get<T: DeserializeOwned>(&self, address: &Address) -> Result<T, Error> {
        self.value(&Method::GET, address, None, USUAL).await
    }

    /// Asks for something that takes as long as the journal.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn get_long<T: DeserializeOwned>(&self, address: &Address) -> Result<T, Error> {
        self.value(&Method::GET, address, None, LONG).await
    }

    /// Asks for something that may not be there yet (204), for at most `within` and some seconds for the way.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn get_if_ready<T: DeserializeOwned>(
        &self,
        address: &Address,
        within: Duration,
    ) -> Result<Option<T>, Error> {
        let deadline = within + Duration::from_secs(10);
        let (status, bytes) = self.bytes(&Method::GET, address, None, deadline).await?;
        if status == StatusCode::NO_CONTENT { Ok(None) } else { self.read(address, &bytes).map(Some) }
    }

    /// Changes something.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn post<T: DeserializeOwned>(&self, address: &Address, body: &impl Serialize) -> Result<T, Error> {
        self.value(&Method::POST, address, Some(json(body)), USUAL).await
    }

    /// Changes something, in as long as the journal takes.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn post_long<T: DeserializeOwned>(&self, address: &Address, body: &impl Serialize) -> Result<T, Error> {
        self.value(&Method::POST, address, Some(json(body)), LONG).await
    }

    /// Changes something; nothing comes back.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn post_quiet(&self, address: &Address, body: &impl Serialize) -> Result<(), Error> {
        self.bytes(&Method::POST, address, Some(json(body)), LONG).await.map(|_| ())
    }

    /// Sets something.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn put<T: DeserializeOwned>(&self, address: &Address, body: &impl Serialize) -> Result<T, Error> {
        self.value(&Method::PUT, address, Some(json(body)), USUAL).await
    }

    /// Removes something.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub async fn delete<T: DeserializeOwned>(&self, address: &Address) -> Result<T, Error> {
        self.value(&Method::DELETE, address, None, USUAL).await
    }

    /// Hands on a long answer as it comes, in pieces of bytes, until its end or until `take` fails.
    ///
    /// # Errors
    /// See [`Client::get`]; and what `take` says, made into [`Error::Broken`].
    pub async fn copy(
        &self,
        address: &Address,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Error> {
        let mut answer = self.answer(&Method::GET, address, None, None).await?;
        while let Some(frame) = timeout(LONG, answer.body.frame()).await.map_err(|_| late(address, LONG))? {
            let frame = frame.map_err(|error| self.broken(address, &error.to_string()))?;
            if let Some(bytes) = frame.data_ref() {
                take(bytes).map_err(|error| self.broken(address, &error.to_string()))?;
            }
        }
        Ok(())
    }

    /// The stream of what happens: after `after`, and with `follow` for ever.
    #[must_use]
    pub fn events(&self, address: Address, after: Lsn, follow: bool) -> Events {
        Events::new(self.clone(), address.with("follow", follow), after, follow)
    }

    async fn value<T: DeserializeOwned>(
        &self,
        method: &Method,
        address: &Address,
        body: Option<Vec<u8>>,
        deadline: Duration,
    ) -> Result<T, Error> {
        let (_, bytes) = self.bytes(method, address, body, deadline).await?;
        self.read(address, &bytes)
    }

    fn read<T: DeserializeOwned>(&self, address: &Address, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes).map_err(|error| self.broken(address, &error.to_string()))
    }

    async fn bytes(
        &self,
        method: &Method,
        address: &Address,
        body: Option<Vec<u8>>,
        deadline: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let whole = async {
            let answer = self.answer(method, address, body, None).await?;
            let bytes = Limited::new(answer.body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|error| self.broken(address, &error.to_string()))?;
            Ok((answer.status, bytes.to_bytes()))
        };
        timeout(deadline, whole).await.map_err(|_| late(address, deadline))?
    }

    async fn open_stream(&self, address: &Address, after: Lsn, may_start: bool) -> Result<Answer, Error> {
        let client = if may_start { self.clone() } else { self.without_start() };
        let opened = client.answer(&Method::GET, address, None, Some(after));
        timeout(USUAL, opened).await.map_err(|_| late(address, USUAL))?
    }

    /// Sends a request and reads the head of its answer. A refusal is an error. One that only looks is sent again where the
    /// daemon went away before it answered: one that was just killed lets clients in for a moment.
    async fn answer(
        &self,
        method: &Method,
        address: &Address,
        body: Option<Vec<u8>>,
        after: Option<Lsn>,
    ) -> Result<Answer, Error> {
        let mut tries = if method == Method::GET { TRIES_MAX } else { 1 };
        loop {
            tries -= 1;
            match self.answer_once(method, address, body.clone(), after).await {
                Err(Error::Lost { .. }) if tries > 0 => tokio::time::sleep(BETWEEN_TRIES).await,
                said => return said,
            }
        }
    }

    async fn answer_once(
        &self,
        method: &Method,
        address: &Address,
        body: Option<Vec<u8>>,
        after: Option<Lsn>,
    ) -> Result<Answer, Error> {
        let stream = self.stream().await?;
        let lost = |_: hyper::Error| Error::Lost { what: address.to_string() };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // Its parent is the `Connection` below, which ends it; it answers errors by ending, which the sender sees.
        let connection = Connection(tokio::spawn(connection).abort_handle());
        let mut request = Request::builder().method(method).uri(address.to_string()).header("host", "aos");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(after) = after {
            request = request.header("accept", "text/event-stream").header("last-event-id", after.to_string());
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| self.broken(address, &error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| match error.is_parse() {
            true => self.broken(address, &error.to_string()),
            false => lost(error),
        })?;
        let answer = self.accepted(address, response).await?;
        Ok(Answer { status: answer.status(), body: answer.into_body(), _connection: connection })
    }

    async fn accepted(&self, address: &Address, response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = Limited::new(response.into_body(), 1 << 20)
            .collect()
            .await
            .map_err(|error| self.broken(address, &error.to_string()))?
            .to_bytes();
        match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => Err(Error::Refused { status: status.as_u16(), error: body.error }),
            Err(_) => Err(self.broken(address, &format!("status {status} without an error"))),
        }
    }

    async fn stream(&self) -> Result<UnixStream, Error> {
        if let Some(stream) = start::connect(&self.home).await? {
            return Ok(stream);
        }
        match &self.start {
            Start::With(program) => {
                let (stream, launched) = start::start(&self.home, program).await?;
                if let Some(tell) = self.tell.filter(|_| launched) {
                    start::drift(&self.home).iter().for_each(|line| tell(line));
                }
                Ok(stream)
            }
            Start::Never => Err(Error::NoDaemon { home: self.home.root().to_owned() }),
        }
    }

    fn broken(&self, address: &Address, why: &str) -> Error {
        Error::Broken { what: address.to_string(), why: why.to_owned() }
    }
}

fn late(address: &Address, after: Duration) -> Error {
    Error::Late { what: address.to_string(), after }
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("requests are plain data with string keys")
}
