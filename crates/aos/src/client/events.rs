//! The stream of what happens, resumed where it broke.
//!
//! Start at [`Events::next`]. What always holds: each entry comes once and in order, also when the daemon restarts
//! meanwhile: the stream is taken up after the last entry that came (`Last-Event-ID`). A stream never starts the daemon:
//! whoever stopped it meant it.

use std::collections::VecDeque;
use std::time::Duration;

use aos_abi::{Entry, Lsn};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::sse::{Parser, Sse};
use super::{Answer, Client, Error};

/// How long a daemon that went away is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The daemon sends a comment every 15 s; a stream that is silent for three of them is dead.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An entry of the journal.
    Entry(Line),
    /// A piece of an answer while it is written.
    Progress(Progress),
    /// The daemon went away; the stream goes on when it is back.
    Lost,
    /// The daemon is back.
    Back,
}

/// An entry as the daemon sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its position.
    pub lsn: Lsn,
    /// The JSON, one line.
    pub json: String,
    /// What it means; `None` for a type that this program does not know.
    pub entry: Option<Box<Entry>>,
}

/// A piece of an answer while it is written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Progress {
    /// Whose.
    pub pid: aos_abi::Pid,
    /// The piece.
    pub text: String,
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    client: Client,
    address: Address,
    follow: bool,
    after: Lsn,
    open: Option<(Answer, Parser)>,
    ready: VecDeque<Event>,
    lost_at: Option<Instant>,
    pause: Duration,
}

impl Events {
    pub(super) fn new(client: Client, address: Address, after: Lsn, follow: bool) -> Events {
        let pause = Duration::from_millis(50);
        Events { client, address, follow, after, open: None, ready: VecDeque::new(), lost_at: None, pause }
    }

    /// The next event; `None` at the end of a stream that does not follow.
    ///
    /// # Errors
    /// [`Error::Refused`] where the daemon will not have it, [`Error::Gone`] where it does not come back in time.
    ///
    /// # Cancel safety
    /// Nothing is lost where the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some((answer, parser)) = &mut self.open else {
                self.connect().await?;
                continue;
            };
            match timeout(SILENCE, answer.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    let Some(bytes) = frame.data_ref() else { continue };
                    let events =
                        parser.feed(bytes).map_err(|_| self.client.broken(&self.address, "an event is too long"))?;
                    for event in events {
                        self.take(event)?;
                    }
                }
                Ok(None) if !self.follow => return Ok(None),
                Ok(None | Some(Err(_))) | Err(_) => self.lose(),
            }
        }
    }

    fn lose(&mut self) {
        self.open = None;
        if self.lost_at.is_none() {
            self.lost_at = Some(Instant::now());
            self.ready.push_back(Event::Lost);
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        if let Some(since) = self.lost_at {
            if since.elapsed() >= PATIENCE {
                return Err(Error::Gone { after: PATIENCE });
            }
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        match self.client.open_stream(&self.address, self.after, self.lost_at.is_none()).await {
            Ok(answer) => {
                self.open = Some((answer, Parser::default()));
                self.pause = Duration::from_millis(50);
                if self.lost_at.take().is_some() {
                    self.ready.push_back(Event::Back);
                }
                Ok(())
            }
            // A daemon that ends or starts may answer 503, or hang up.
            Err(
                Error::Refused { status: 503, .. }
                | Error::NoDaemon { .. }
                | Error::Lost { .. }
                | Error::Broken { .. }
                | Error::Late { .. },
            ) if self.lost_at.is_some() => Ok(()),
            // It hung up before the stream began: whoever follows waits for it as for one that hangs up later.
            Err(Error::Lost { .. } | Error::Broken { .. }) if self.follow => {
                self.lose();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, event: Sse) -> Result<(), Error> {
        let Some(id) = event.id else {
            if let Ok(progress) = serde_json::from_str(&event.data) {
                self.ready.push_back(Event::Progress(progress));
            }
            return Ok(());
        };
        let lsn = id.parse().map(Lsn).map_err(|_| self.client.broken(&self.address, "an event has no position"))?;
        // After a resume the daemon sends only later ones; one that comes twice all the same is dropped here.
        if lsn > self.after {
            self.after = lsn;
            let entry = serde_json::from_str(&event.data).ok();
            self.ready.push_back(Event::Entry(Line { lsn, json: event.data, entry }));
        }
        Ok(())
    }
}
