//! What happens from now on, as the system tells it to whoever watches.
//!
//! Start at [`Subscription::next`]. What always holds: it is bounded; a subscriber that falls behind is told so
//! ([`Next::Lagged`]) and loses its place, never the sender's time. What was missed is in the journal.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::broadcast;

use aos_abi::{EffectId, Entry, Pid};

/// Something that just happened.
#[derive(Clone, Debug)]
pub enum Live {
    /// An entry was committed.
    Entry(Arc<Entry>),
    /// A model wrote a piece of its answer. It has no place in the journal.
    Progress(Arc<Progress>),
}

/// A piece of an answer while it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Whose inference.
    pub pid: Pid,
    /// The effect that asks.
    pub effect: EffectId,
    /// The piece.
    pub text: String,
}

/// What a subscription had to say.
#[derive(Clone, Debug)]
pub enum Next {
    /// Something happened.
    Live(Live),
    /// This many things were missed; read the journal.
    Lagged(u64),
    /// Nothing will come any more.
    Closed,
}

/// One watcher's place in the stream of what happens.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Live>);

impl Subscription {
    /// From the receiving end of the system's channel.
    #[must_use]
    pub fn new(receiver: broadcast::Receiver<Live>) -> Subscription {
        Subscription(receiver)
    }

    /// Waits for what comes next.
    ///
    /// # Cancel safety
    /// Nothing is lost where the future is dropped.
    pub async fn next(&mut self) -> Next {
        match self.0.recv().await {
            Ok(live) => Next::Live(live),
            Err(broadcast::error::RecvError::Lagged(missed)) => Next::Lagged(missed),
            Err(broadcast::error::RecvError::Closed) => Next::Closed,
        }
    }

    /// What has come already; `None` where it would have to wait.
    pub fn try_next(&mut self) -> Option<Next> {
        match self.0.try_recv() {
            Ok(live) => Some(Next::Live(live)),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(Next::Lagged(missed)),
            Err(broadcast::error::TryRecvError::Closed) => Some(Next::Closed),
            Err(broadcast::error::TryRecvError::Empty) => None,
        }
    }
}
