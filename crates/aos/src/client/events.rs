//! The stream of what happens, resumed where it broke.
//!
//! Start at [`Events::next`]. What always holds: each entry comes once and in order, also when the daemon restarts
//! meanwhile: the stream is taken up after the last entry that came (`Last-Event-ID`). A daemon that died is started again,
//! as by every command; one that was stopped is only waited for: whoever stopped it meant it.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use aos_abi::{Entry, Lsn};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::address::Address;
use super::sse::{Parser, Sse};
use super::{Answer, Client, Error};

/// How long a daemon that went away is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The daemon sends a comment every 15 s; a stream that is silent for three of them is dead.
const SILENCE: Duration = Duration::from_secs(45);
/// The first pause before another attempt, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What stands in the place of an entry that is longer than a client takes.
const TOO_LONG: &str = "this entry is too long to be shown; `aos audit export` has all of it";

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

/// A stream of events. Whatever takes time is kept here and not in the future of [`Events::next`], which a screen drops at
/// each of its ticks: what began anew each time would never end.
#[derive(Debug)]
pub struct Events {
    client: Client,
    address: Address,
    follow: bool,
    after: Lsn,
    opening: Option<Opening>,
    open: Option<(Answer, Parser)>,
    ready: VecDeque<Event>,
    heard_at: Instant,
    lost_at: Option<Instant>,
    retry_at: Instant,
    pause: Duration,
    /// When a daemon that had died was started again last.
    started_at: Option<Instant>,
}

/// A request for the stream that is under way.
struct Opening(Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>);

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening")
    }
}

impl Events {
    pub(super) fn new(client: Client, address: Address, after: Lsn, follow: bool) -> Events {
        let now = Instant::now();
        Events {
            client,
            address,
            follow,
            after,
            opening: None,
            open: None,
            ready: VecDeque::new(),
            heard_at: now,
            lost_at: None,
            retry_at: now,
            pause: PAUSE_MIN,
            started_at: None,
        }
    }

    /// The next event; `None` at the end of a stream that does not follow.
    ///
    /// # Errors
    /// [`Error::Refused`] where the daemon will not have it, [`Error::Gone`] where it does not come back in time.
    ///
    /// # Cancel safety
    /// Nothing is lost where the future is dropped, and the next one goes on where it was.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some((answer, parser)) = &mut self.open else {
                self.connect().await?;
                continue;
            };
            match timeout_at(self.heard_at + SILENCE, answer.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    self.heard_at = Instant::now();
                    let Some(bytes) = frame.data_ref() else { continue };
                    for event in parser.feed(bytes) {
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
            let now = Instant::now();
            self.lost_at = Some(now);
            self.ready.push_back(Event::Lost);
            self.wait(now);
        }
    }

    /// Whether the daemon died and may be started: one that dies soon after each start is left alone after the first.
    fn may_start_again(&mut self) -> bool {
        let lately = self.started_at.is_some_and(|at| at.elapsed() < PATIENCE);
        let may = !lately && self.client.left_behind();
        if may {
            self.started_at = Some(Instant::now());
        }
        may
    }

    /// Puts the next attempt off.
    fn wait(&mut self, now: Instant) {
        self.retry_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    async fn connect(&mut self) -> Result<(), Error> {
        if self.opening.is_none() {
            if let Some(since) = self.lost_at {
                if since.elapsed() >= PATIENCE {
                    return Err(Error::Gone { after: PATIENCE });
                }
                sleep_until(self.retry_at).await;
            }
            let may_start = self.lost_at.is_none() || self.may_start_again();
            let (client, address, after) = (self.client.clone(), self.address.clone(), self.after);
            self.opening = Some(Opening(Box::pin(async move { client.open_stream(&address, after, may_start).await })));
        }
        let Some(Opening(opening)) = &mut self.opening else { return Ok(()) };
        let opened = opening.await;
        self.opening = None;
        let now = Instant::now();
        match opened {
            Ok(answer) => {
                self.open = Some((answer, Parser::default()));
                self.heard_at = now;
                self.pause = PAUSE_MIN;
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
            ) if self.lost_at.is_some() => {
                self.wait(now);
                Ok(())
            }
            // One that takes long to come up has the journal.
            Err(Error::NotStarted { .. }) if self.lost_at.is_some() && self.client.home.holds_journal() => {
                self.wait(now);
                Ok(())
            }
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
            let json = match event.too_long {
                // Whoever follows goes on behind it.
                true => serde_json::json!({ "lsn": lsn, "error": TOO_LONG }).to_string(),
                false => event.data,
            };
            let entry = serde_json::from_str(&json).ok();
            self.ready.push_back(Event::Entry(Line { lsn, json, entry }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Start;
    use crate::home::Home;

    #[test]
    fn a_daemon_that_dies_soon_after_each_start_is_started_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        home.create().unwrap();
        let client = Client::new(home.clone(), Start::Never);
        let mut events = Events::new(client, Address::of("/v1/events"), Lsn::ZERO, true);
        assert!(!events.may_start_again(), "one that was stopped takes its socket away");
        drop(std::os::unix::net::UnixListener::bind(home.socket()).unwrap());
        assert_eq!([events.may_start_again(), events.may_start_again()], [true, false]);
    }
}
