//! Event streams: the journal from any place, then what happens, without a gap and without a duplicate.
//!
//! Start at [`Feed::chunk`]. It subscribes first and reads then, so whatever is committed meanwhile waits in the
//! subscription, and positions already sent are skipped. A client that falls behind loses its place in the
//! subscription and goes on from the journal. What always holds: nothing is made before the client has taken what was
//! made before, so a stream holds one page of the journal and one chunk of text at most, however slow its client is.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use tokio::time::Instant;

use aos_abi::{CallError, Code, Entry, Lsn, Pid, Timestamp};

use crate::dispatch::Shared;
use crate::error::ApiError;
use crate::subscription::{Live, Next, Subscription};
use crate::system::System;

/// Text that is gathered before it is sent; one event may be larger.
const CHUNK_BYTES: usize = 64 << 10;
/// How long one page of the journal may take to read.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Which events a client wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Of one process, or of all.
    pub(crate) pid: Option<Pid>,
    /// Those after this one.
    pub(crate) after: Lsn,
    /// And then what happens from now on.
    pub(crate) follow: bool,
    /// Pieces of answers too.
    pub(crate) progress: bool,
}

/// Whether the journal reaches up to the place after which a client goes on. Where what it has seen is lost, as after a
/// restore, other entries get those numbers, and it would miss them without a word.
pub(crate) async fn check_place<S: System>(shared: &Arc<Shared<S>>, after: Lsn) -> Result<(), ApiError> {
    if after == Lsn::ZERO {
        return Ok(());
    }
    let last = shared.system.entry_before(Timestamp(i64::MAX)).await?;
    if after <= last {
        return Ok(());
    }
    Err(ApiError::from(CallError::new(Code::NoEnt, format!("there is no entry {after} yet: the journal ends at {last}")))
        .hint("if you have seen it, the journal's end was lost, or another was restored: begin anew with `after=0`, without `Last-Event-ID`"))
}

/// The answer that carries a stream.
pub(crate) fn respond<S: System>(shared: &Arc<Shared<S>>, wanted: Wanted) -> Response {
    let feed = Feed {
        subscription: shared.system.subscribe(),
        shared: Arc::clone(shared),
        wanted,
        last: wanted.after,
        stage: Stage::Journal,
        quiet_until: Instant::now() + shared.options.keep_alive_every,
    };
    let stream = futures_util::stream::unfold(feed, |mut feed| async move {
        feed.chunk().await.map(|text| (Ok::<_, Infallible>(Bytes::from(text)), feed))
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// One client's stream.
struct Feed<S> {
    shared: Arc<Shared<S>>,
    subscription: Subscription,
    wanted: Wanted,
    /// Everything up to here was sent, or is not wanted.
    last: Lsn,
    stage: Stage,
    /// When a comment is due.
    quiet_until: Instant,
}

enum Stage {
    /// Behind: the journal is read from `last` on.
    Journal,
    /// Behind: these were read and are to be sent.
    Page(VecDeque<Arc<Entry>>),
    /// At the live edge.
    Live,
    /// Over.
    Done,
}

impl<S: System> Feed<S> {
    /// The next piece of the stream; `None` at its end.
    async fn chunk(&mut self) -> Option<String> {
        let mut text = String::new();
        while text.is_empty() {
            match &mut self.stage {
                Stage::Journal => self.read_page(&mut text).await,
                Stage::Page(page) => match page.pop_front() {
                    None => self.stage = Stage::Journal,
                    Some(entry) => {
                        let mut next = Some(entry);
                        while let Some(entry) = next {
                            self.last = entry.lsn;
                            write_entry(&mut text, &entry);
                            next = if text.len() < CHUNK_BYTES { page.pop_front() } else { None };
                        }
                    }
                },
                Stage::Live => self.live(&mut text).await,
                Stage::Done => return None,
            }
        }
        self.quiet_until = Instant::now() + self.shared.options.keep_alive_every;
        Some(text)
    }

    async fn read_page(&mut self, text: &mut String) {
        let shared = Arc::clone(&self.shared);
        let read = shared.system.entries(self.wanted.pid, self.last, shared.options.page_entries);
        let page = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return self.stage = Stage::Done,
            page = tokio::time::timeout(PAGE_WITHIN, read) => page,
        };
        let page = page.unwrap_or_else(|_| Err(ApiError::new(504, "ETIMEDOUT", "the journal does not answer")));
        match page {
            Ok(page) if page.is_empty() => self.stage = if self.wanted.follow { Stage::Live } else { Stage::Done },
            Ok(page) => self.stage = Stage::Page(page.into()),
            // The status has long been sent, so the error is an event, the last one.
            Err(error) => {
                let _ = write!(text, "event: error\ndata: {}\n\n", serde_json::json!(error.body()));
                self.stage = Stage::Done;
            }
        }
    }

    async fn live(&mut self, text: &mut String) {
        let mut next = tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => return self.stage = Stage::Done,
            next = self.subscription.next() => Some(next),
            () = tokio::time::sleep_until(self.quiet_until) => return text.push_str(": keep-alive\n\n"),
        };
        while let Some(came) = next {
            match came {
                Next::Live(Live::Entry(entry)) => self.take(&entry, text),
                Next::Live(Live::Progress(piece)) => {
                    if self.wanted.progress && self.wanted.pid.is_none_or(|pid| pid == piece.pid) {
                        let _ = write!(text, "event: progress\ndata: {}\n\n", serde_json::json!(*piece));
                    }
                }
                Next::Lagged(_) => return self.stage = Stage::Journal,
                Next::Closed => return self.stage = Stage::Done,
            }
            next = if text.len() < CHUNK_BYTES { self.subscription.try_next() } else { None };
        }
    }

    fn take(&mut self, entry: &Entry, text: &mut String) {
        let wanted = self.wanted.pid.is_none_or(|pid| pid == entry.pid);
        if wanted && entry.lsn > self.last {
            self.last = entry.lsn;
            write_entry(text, entry);
        }
    }
}

/// JSON holds no line break, so one `data:` line is enough.
fn write_entry(text: &mut String, entry: &Entry) {
    let json = serde_json::to_string(entry).expect("an entry was JSON before it was journaled");
    let _ = write!(text, "id: {}\nevent: {}\ndata: {json}\n\n", entry.lsn, entry.body.kind());
}
