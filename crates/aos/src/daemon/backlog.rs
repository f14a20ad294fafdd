//! Backlogs: what models have answered and their programs have not read yet.
//!
//! Start at [`Backlogs::read`]. An answer is read as fast as its model gives it, so that the model's slot is free, and what
//! it used is settled, when the model is done. What always holds: a program that reads slowly takes room of its own and of
//! what is shared, and none that is another's own; where there is none its model waits, and no longer than the answer may
//! take; a program hears the end after the answer is settled, and one that hangs up ends the reading.

use std::sync::Arc;
use std::time::Duration;

use aos_gateway::{Answer, ApiError};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::relay::taken_back;

/// Bytes of each answer that may wait in any case.
const OWN_BYTES: usize = 256 << 10;
/// Bytes of all answers together that may wait beyond that.
const SHARED_BYTES: usize = 64 << 20;
/// How long a whole answer waits for room.
const WHOLE_WAITS: Duration = Duration::from_secs(10);

/// Whatever waits to be read by programs.
pub(crate) struct Backlogs {
    shared: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// What a program reads next.
enum Next {
    /// A piece, with the room that it takes until then.
    Piece(Bytes, Room),
    Broken(ApiError),
    End,
}

/// What something takes until it is read.
struct Room {
    _own: Option<OwnedSemaphorePermit>,
    _shared: Option<OwnedSemaphorePermit>,
}

/// A whole answer with the room that it takes.
struct Whole {
    body: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Backlogs {
    /// Nothing waits.
    pub(crate) fn new() -> Backlogs {
        Backlogs { shared: Arc::new(Semaphore::new(SHARED_BYTES)), tasks: TaskTracker::new() }
    }

    /// Reads an answer to its end, or until a time, and gives it to a program. The token ends it for both.
    pub(crate) fn read<S>(
        &self,
        pieces: S,
        until: Instant,
        token: CancellationToken,
    ) -> BoxStream<'static, Answer<Bytes>>
    where
        S: Stream<Item = Bytes> + Unpin + Send + 'static,
    {
        // Without a bound of its own: what is in it has taken room.
        let (program, waiting) = mpsc::unbounded_channel();
        let (shared, taken_away) = (Arc::clone(&self.shared), token.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = taken_away.cancelled() => {}
                () = program.closed() => {}
                () = read(pieces, until, &shared, &program) => {}
            }
        });
        let reads = stream::unfold(Some((waiting, token)), |reads| async move {
            let (mut waiting, token) = reads?;
            let next = tokio::select! {
                biased;
                () = token.cancelled() => Some(Next::Broken(taken_back())),
                next = waiting.recv() => next,
            };
            match next {
                Some(Next::Piece(piece, _room)) => Some((Ok(piece), Some((waiting, token)))),
                Some(Next::Broken(error)) => Some((Err(error), None)),
                Some(Next::End) => None,
                None => Some((Err(ApiError::internal("the answer broke off unexpectedly")), None)),
            }
        });
        reads.boxed()
    }

    /// A whole answer, which takes room until its program has read it.
    ///
    /// # Errors
    /// 503 where there is none in time.
    pub(crate) async fn hold(&self, body: Bytes) -> Answer<Bytes> {
        // What is longer than all that is shared has room elsewhere: where its model gave it (`aos_models`).
        if body.len() <= OWN_BYTES || body.len() > SHARED_BYTES {
            return Ok(body);
        }
        let own = Arc::new(Semaphore::new(OWN_BYTES));
        match room(body.len(), Instant::now() + WHOLE_WAITS, &own, &self.shared).await {
            Some(room) => Ok(Bytes::from_owner(Whole { body, _room: room })),
            None => Err(ApiError::unavailable("too much waits to be read by programs that read slowly")
                .hint("read what was asked for, or ask for less at once")),
        }
    }

    /// Waits until nothing is read any more.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn read<S>(mut pieces: S, until: Instant, shared: &Arc<Semaphore>, program: &UnboundedSender<Next>)
where
    S: Stream<Item = Bytes> + Unpin,
{
    let own = Arc::new(Semaphore::new(OWN_BYTES));
    let end = loop {
        let Some(piece) = pieces.next().await else { break Next::End };
        let Some(room) = room(piece.len(), until, &own, shared).await else { break Next::Broken(too_slow()) };
        if program.send(Next::Piece(piece, room)).is_err() {
            break Next::End;
        }
    };
    // What it used is settled before its program knows that it is over.
    drop(pieces);
    let _ = program.send(end);
}

/// Room for so many bytes; `None` where there was none in time. What is longer than an answer's own takes all of that, and the
/// rest of what is shared.
async fn room(bytes: usize, until: Instant, own: &Arc<Semaphore>, shared: &Arc<Semaphore>) -> Option<Room> {
    let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let (of_its_own, beyond) = (count(bytes.min(OWN_BYTES)), count(bytes.saturating_sub(OWN_BYTES).min(SHARED_BYTES)));
    let of_shared = match Arc::clone(own).try_acquire_many_owned(of_its_own) {
        Ok(room) if beyond == 0 => return Some(Room { _own: Some(room), _shared: None }),
        Ok(room) => match Arc::clone(shared).try_acquire_many_owned(beyond) {
            Ok(more) => return Some(Room { _own: Some(room), _shared: Some(more) }),
            Err(_) => None,
        },
        Err(_) => Arc::clone(shared).try_acquire_many_owned(count(bytes.min(SHARED_BYTES))).ok(),
    };
    if of_shared.is_some() {
        return Some(Room { _own: None, _shared: of_shared });
    }
    let own = timeout_at(until, Arc::clone(own).acquire_many_owned(of_its_own)).await.ok()?.ok()?;
    let shared = timeout_at(until, Arc::clone(shared).acquire_many_owned(beyond)).await.ok()?.ok()?;
    Some(Room { _own: Some(own), _shared: Some(shared) })
}

/// Why nothing more of an answer comes.
fn too_slow() -> ApiError {
    ApiError::new(504, "ETIMEDOUT", "the answer was read so slowly that the time of its model was over")
        .hint("read it while it comes in, or ask for a shorter one")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer in pieces of 64 KiB, so many of them, with whoever is told that it is not read any more.
    fn answer(pieces: usize) -> (impl Stream<Item = Bytes> + Unpin + Send + 'static, CancellationToken) {
        let settled = CancellationToken::new();
        let guard = settled.clone().drop_guard();
        let pieces = stream::iter((0..pieces).map(move |_| {
            let _held = &guard;
            Bytes::from(vec![0; 64 << 10])
        }));
        (pieces, settled)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// How many pieces came, and how it ended.
    async fn all(mut reads: BoxStream<'static, Answer<Bytes>>) -> (usize, Option<u16>) {
        let mut pieces = 0;
        while let Some(piece) = reads.next().await {
            match piece {
                Ok(_) => pieces += 1,
                Err(error) => return (pieces, Some(error.status)),
            }
        }
        (pieces, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_is_done_however_slowly_its_program_reads() {
        let backlogs = Backlogs::new();
        let (pieces, settled) = answer(500);
        let began = Instant::now();
        let reads = backlogs.read(pieces, soon(), CancellationToken::new());
        settled.cancelled().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(all(reads).await, (500, None), "and it reads all of it");
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_finds_no_room_ends_with_the_time_of_its_model() {
        let backlogs = Backlogs::new();
        let (pieces, settled) = answer(usize::MAX);
        let began = Instant::now();
        let reads = backlogs.read(pieces, soon(), CancellationToken::new());
        settled.cancelled().await;
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        // One that came meanwhile has room of its own, and goes on as it is read.
        let (others, _settled) = answer(100);
        let others = backlogs.read(others, soon(), CancellationToken::new());
        assert_eq!(all(others).await, (100, None));
        assert_eq!(all(reads).await, ((OWN_BYTES + SHARED_BYTES) >> 16, Some(504)));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_hangs_up_or_loses_its_key_ends_the_reading() {
        let backlogs = Backlogs::new();
        let (pieces, settled) = answer(usize::MAX);
        drop(backlogs.read(pieces, soon(), CancellationToken::new()));
        settled.cancelled().await;
        let (pieces, settled) = answer(usize::MAX);
        let token = CancellationToken::new();
        let mut reads = backlogs.read(pieces, soon(), token.clone());
        assert!(reads.next().await.is_some_and(|piece| piece.is_ok()));
        token.cancel();
        assert_eq!(all(reads).await, (0, Some(403)), "also where more waits to be read");
        settled.cancelled().await;
        backlogs.close().await;
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_of_any_length_finds_room() {
        let backlogs = Backlogs::new();
        let pieces = stream::iter([Bytes::from(vec![0; 2 * OWN_BYTES]), Bytes::from(vec![0; 1])]);
        assert_eq!(all(backlogs.read(pieces, soon(), CancellationToken::new())).await, (2, None));
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    /// Forty of them that nobody read took 450 MiB.
    #[tokio::test(start_paused = true)]
    async fn long_pieces_and_whole_answers_take_room_until_they_are_read() {
        const LONG: usize = 16 << 20;
        let backlogs = Backlogs::new();
        let long = || Bytes::from(vec![0; LONG]);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(backlogs.hold(long()).await.unwrap());
        }
        let (one, other) = (stream::iter([long(), long()]), stream::iter([long()]));
        let reads = backlogs.read(one, soon(), CancellationToken::new());
        let others = backlogs.read(other, soon(), CancellationToken::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(backlogs.shared.available_permits() < LONG);
        assert_eq!(backlogs.hold(long()).await.unwrap_err().status, 503);
        assert_eq!(backlogs.hold(Bytes::from_static(b"short")).await.unwrap(), "short");
        held.clear();
        let ended = (all(reads).await, all(others).await);
        assert_eq!(ended, ((2, None), (0, Some(504))), "one found room, the other none in time");
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }
}
