//! Bodies that come in pieces, late, cut off or never.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The connection is to end without an answer.
#[derive(Debug, thiserror::Error)]
#[error("reset on purpose")]
pub(super) struct Reset;

/// What a body does next.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    Wait(Duration),
    /// Lets what was written so far reach the other side.
    Flush,
    /// Nothing more, for ever.
    Stall,
    /// The connection ends here.
    Abort,
}

/// A body on its way.
pub(super) struct Sending {
    pieces: VecDeque<Piece>,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Sending {
    pub(super) fn whole(bytes: Bytes) -> Sending {
        Sending { pieces: VecDeque::from([Piece::Data(bytes)]), wait: None }
    }

    pub(super) fn pieces(pieces: Vec<Piece>, delay_ms: u64) -> Sending {
        let mut pieces = VecDeque::from(pieces);
        if delay_ms > 0 {
            pieces.push_front(Piece::Wait(Duration::from_millis(delay_ms)));
        }
        Sending { pieces, wait: None }
    }
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                if wait.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.wait = None;
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Piece::Wait(delay)) => self.wait = Some(Box::pin(tokio::time::sleep(delay))),
                Some(Piece::Flush) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Piece::Stall) => {
                    // Nobody wakes this; the connection ends when the other side leaves.
                    self.pieces.push_front(Piece::Stall);
                    return Poll::Pending;
                }
                Some(Piece::Abort) => return Poll::Ready(Some(Err(Reset))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.pieces.front() {
            Some(Piece::Data(bytes)) if self.pieces.len() == 1 => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::new(),
        }
    }
}
