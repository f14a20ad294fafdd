//! Backlogs: what models have answered and their programs have not read yet.
//!
//! Start at [`Backlogs::read`]. A program that keeps up takes each piece as it comes. For one that does not its answer is read
//! as fast as its model gives it, so that the model's slot is free, and what it used is settled, when the model is done. What
//! always holds: a program that reads slowly takes room of its own and of its share of what is for all, and none that is another's;
//! where there is none its model waits, and no longer than the answer may take; a program hears the end after the answer is
//! settled, and one that hangs up ends the reading.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use aos_abi::Pid;
use aos_gateway::{Answer, ApiError};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::relay::taken_back;

/// Bytes of each answer that may wait in any case.
const OWN_BYTES: usize = 256 << 10;
/// Bytes of all answers together that may wait beyond that.
const SHARED_BYTES: usize = 64 << 20;
/// Of these, the bytes of one key's programs: more than the longest answer, and so little that no key takes it from the others.
const KEY_BYTES: usize = 24 << 20;
/// Bytes of whole answers that wait for room, which they take meanwhile.
const WAITING_BYTES: usize = 64 << 20;
/// How long a whole answer waits for room.
const WHOLE_WAITS: Duration = Duration::from_secs(10);
/// Who has not asked for more within one to two of these does not keep up. Handing each piece from task to task took 55 µs of
/// a streamed answer (`bench/gateway`).
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whatever waits to be read by programs.
pub(crate) struct Backlogs {
    shared: Arc<Semaphore>,
    /// The share of each key of which something waits.
    keys: Mutex<HashMap<Pid, Weak<Semaphore>>>,
    waiting: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// What a program reads next.
enum Next {
    /// A piece, with the room that it took, if any.
    Piece(Bytes, Option<Room>),
    Broken(ApiError),
    End,
}

/// What something takes until it is read.
struct Room {
    _own: Option<OwnedSemaphorePermit>,
    _beyond: Option<Beyond>,
}

/// Room of a key's share, and of what is shared.
type Beyond = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Where there may be room for an answer.
struct Places {
    own: Arc<Semaphore>,
    key: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// Bytes with the room that they take until they are written to their program.
struct Held {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn held(bytes: Bytes, room: Room) -> Bytes {
    Bytes::from_owner(Held { bytes, _room: room })
}

/// How an answer reaches its program.
enum Course<S> {
    /// The program takes each piece when it comes.
    Along {
        pieces: S,
        /// For more, since it was last looked at.
        asked: bool,
        /// Of the program, where it waits for a piece.
        waker: Option<Waker>,
    },
    /// It is read ahead of the program.
    Ahead(UnboundedReceiver<Next>),
    Over,
}

enum Look<S> {
    KeepsUp,
    Behind(S, UnboundedSender<Next>),
    Over,
}

impl<S: Stream<Item = Bytes> + Unpin> Course<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let next = match self {
            Course::Along { pieces, asked, waker } => {
                *asked = true;
                let Poll::Ready(piece) = pieces.poll_next_unpin(cx) else {
                    *waker = Some(cx.waker().clone());
                    return Poll::Pending;
                };
                piece.map_or(Next::End, |piece| Next::Piece(piece, None))
            }
            Course::Ahead(waiting) => ready!(waiting.poll_recv(cx))
                .unwrap_or_else(|| Next::Broken(ApiError::internal("the answer broke off unexpectedly"))),
            Course::Over => Next::End,
        };
        if matches!(next, Next::End) {
            // What it used is settled before its program knows that it is over.
            *self = Course::Over;
        }
        Poll::Ready(next)
    }

    /// Takes the pieces from a program that has not asked for more since the last look; it hears of them by a channel from
    /// here on.
    fn look(&mut self) -> Look<S> {
        match std::mem::replace(self, Course::Over) {
            Course::Along { pieces, asked: true, waker } => {
                *self = Course::Along { pieces, asked: false, waker };
                Look::KeepsUp
            }
            Course::Along { pieces, asked: false, waker } => {
                // Without a bound of its own: what is in it has taken room.
                let (program, waiting) = mpsc::unbounded_channel();
                *self = Course::Ahead(waiting);
                waker.inspect(Waker::wake_by_ref);
                Look::Behind(pieces, program)
            }
            same => {
                *self = same;
                Look::Over
            }
        }
    }
}

fn lock<S>(course: &Mutex<Course<S>>) -> MutexGuard<'_, Course<S>> {
    course.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backlogs {
    /// Nothing waits.
    pub(crate) fn new() -> Backlogs {
        Backlogs {
            shared: Arc::new(Semaphore::new(SHARED_BYTES)),
            keys: Mutex::default(),
            waiting: Arc::new(Semaphore::new(WAITING_BYTES)),
            tasks: TaskTracker::new(),
        }
    }

    fn places(&self, pid: Pid) -> Places {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let known = keys.get(&pid).and_then(Weak::upgrade);
        let key = known.unwrap_or_else(|| {
            keys.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Semaphore::new(KEY_BYTES));
            keys.insert(pid, Arc::downgrade(&share));
            share
        });
        Places { own: Arc::new(Semaphore::new(OWN_BYTES)), key, shared: Arc::clone(&self.shared) }
    }

    /// Reads an answer to its end, or until a time, and gives it to a program of a key. The token ends it for both.
    pub(crate) fn read<S>(
        &self,
        pid: Pid,
        pieces: S,
        until: Instant,
        token: CancellationToken,
    ) -> BoxStream<'static, Answer<Bytes>>
    where
        S: Stream<Item = Bytes> + Unpin + Send + 'static,
    {
        let course = Arc::new(Mutex::new(Course::Along { pieces, asked: true, waker: None }));
        let (looked, tasks) = (Arc::downgrade(&course), self.tasks.clone());
        let (ahead, along) = (self.places(pid), self.places(pid));
        let taken_away = token.clone();
        let watch = AbortOnDropHandle::new(tokio::spawn(async move {
            let (pieces, program) = loop {
                let taken = timeout_at(Instant::now() + LOOK_EVERY, taken_away.cancelled()).await.is_ok();
                let Some(course) = looked.upgrade() else { return };
                let mut course = lock(&course);
                if taken {
                    *course = Course::Over;
                }
                match course.look() {
                    Look::KeepsUp => {}
                    Look::Behind(pieces, program) => break (pieces, program),
                    Look::Over => return,
                }
            };
            tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = taken_away.cancelled() => {}
                    () = program.closed() => {}
                    () = read(pieces, until, &ahead, &program) => {}
                }
            });
        }));
        let reads = stream::unfold(Some((course, token, along, watch)), move |reads| async move {
            let (course, token, along, watch) = reads?;
            let next = tokio::select! {
                biased;
                () = token.cancelled() => Next::Broken(taken_back()),
                next = poll_fn(|cx| lock(&course).poll_next(cx)) => next,
            };
            let piece = match next {
                // Where it was taken back in this moment, it is no whole answer.
                Next::End if !token.is_cancelled() => return None,
                Next::End => Err(taken_back()),
                Next::Broken(error) => Err(error),
                Next::Piece(piece, None) if piece.len() > OWN_BYTES => tokio::select! {
                    biased;
                    () = token.cancelled() => Err(taken_back()),
                    room = along.room(piece.len(), until) => {
                        room.map(|room| held(piece, room)).ok_or_else(too_slow)
                    }
                },
                Next::Piece(piece, Some(room)) if piece.len() > OWN_BYTES => Ok(held(piece, room)),
                Next::Piece(piece, _) => Ok(piece),
            };
            match piece {
                Ok(piece) => Some((Ok(piece), Some((course, token, along, watch)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        reads.boxed()
    }

    /// A whole answer, which takes room until its program has read it.
    ///
    /// # Errors
    /// 503 where there is none in time; it is no use to ask again at once. 403 where the token ends it.
    pub(crate) async fn hold(&self, pid: Pid, body: Bytes, token: &CancellationToken) -> Answer<Bytes> {
        // What is longer than any share has room elsewhere: where its model gave it (`aos_models`).
        if body.len() <= OWN_BYTES || body.len() > KEY_BYTES {
            return Ok(body);
        }
        let places = self.places(pid);
        if let Some(room) = places.try_room(body.len()) {
            return Ok(held(body, room));
        }
        let full = || {
            ApiError::new(503, "unavailable", "too much waits to be read by programs that read slowly")
                .hint("read what was asked for, or ask for less at once")
        };
        let _waits = self.waiting.try_acquire_many(count(body.len())).map_err(|_| full())?;
        tokio::select! {
            biased;
            () = token.cancelled() => Err(taken_back()),
            room = places.room(body.len(), Instant::now() + WHOLE_WAITS) => {
                room.map(|room| held(body, room)).ok_or_else(full)
            }
        }
    }

    /// Waits until nothing is read any more.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn read<S>(mut pieces: S, until: Instant, places: &Places, program: &UnboundedSender<Next>)
where
    S: Stream<Item = Bytes> + Unpin,
{
    let end = loop {
        let Some(piece) = pieces.next().await else { break Next::End };
        let Some(room) = places.room(piece.len(), until).await else { break Next::Broken(too_slow()) };
        if program.send(Next::Piece(piece, Some(room))).is_err() {
            break Next::End;
        }
    };
    // As in `Course`.
    drop(pieces);
    let _ = program.send(end);
}

fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

async fn take(of: &Arc<Semaphore>, bytes: u32, until: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(until, Arc::clone(of).acquire_many_owned(bytes)).await.ok()?.ok()
}

impl Places {
    /// Room for so many bytes, where there is. What is longer than an answer's own takes all of that, and the rest of its key's
    /// share; where its own is taken, all of it.
    fn try_room(&self, bytes: usize) -> Option<Room> {
        let of_its_own = Arc::clone(&self.own).try_acquire_many_owned(count(bytes.min(OWN_BYTES)));
        let beyond = if of_its_own.is_ok() { bytes.saturating_sub(OWN_BYTES) } else { bytes };
        if beyond == 0 {
            return Some(Room { _own: of_its_own.ok(), _beyond: None });
        }
        let beyond = count(beyond.min(KEY_BYTES));
        let of_key = Arc::clone(&self.key).try_acquire_many_owned(beyond).ok()?;
        let of_shared = Arc::clone(&self.shared).try_acquire_many_owned(beyond).ok()?;
        Some(Room { _own: of_its_own.ok(), _beyond: Some((of_key, of_shared)) })
    }

    /// The same once there is, its own before the rest; `None` where that was not in time.
    async fn room(&self, bytes: usize, until: Instant) -> Option<Room> {
        if let Some(room) = self.try_room(bytes) {
            return Some(room);
        }
        let beyond = count(bytes.saturating_sub(OWN_BYTES).min(KEY_BYTES));
        let own = take(&self.own, count(bytes.min(OWN_BYTES)), until).await?;
        let of_key = take(&self.key, beyond, until).await?;
        Some(Room { _own: Some(own), _beyond: Some((of_key, take(&self.shared, beyond, until).await?)) })
    }
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

    async fn hold(backlogs: &Backlogs, pid: u64, body: Bytes) -> Answer<Bytes> {
        backlogs.hold(Pid(pid), body, &CancellationToken::new()).await
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
        let (pieces, settled) = answer(300);
        let began = Instant::now();
        let reads = backlogs.read(Pid(2), pieces, soon(), CancellationToken::new());
        settled.cancelled().await;
        assert_eq!(began.elapsed(), 2 * LOOK_EVERY);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(all(reads).await, (300, None), "and it reads all of it");
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_keeps_up_takes_each_piece_from_its_model() {
        let backlogs = Backlogs::new();
        let (pieces, _settled) = answer(500);
        assert_eq!(all(backlogs.read(Pid(2), pieces, soon(), CancellationToken::new())).await, (500, None));
        assert!(backlogs.tasks.is_empty());
        // It may wait for a model that is slow itself, and hears of what comes whoever reads it by then.
        let slow = stream::iter(0..3).then(|_| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Bytes::from_static(b"a piece")
        });
        assert_eq!(all(backlogs.read(Pid(2), slow.boxed(), soon(), CancellationToken::new())).await, (3, None));
        backlogs.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_finds_no_room_ends_with_the_time_of_its_model() {
        let backlogs = Backlogs::new();
        let (pieces, settled) = answer(usize::MAX);
        let began = Instant::now();
        let reads = backlogs.read(Pid(2), pieces, soon(), CancellationToken::new());
        settled.cancelled().await;
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        // One that came meanwhile has room of its own, and goes on as it is read.
        let (others, _settled) = answer(100);
        let others = backlogs.read(Pid(2), others, soon(), CancellationToken::new());
        assert_eq!(all(others).await, (100, None));
        assert_eq!(all(reads).await, ((OWN_BYTES + KEY_BYTES) >> 16, Some(504)));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_hangs_up_or_loses_its_key_ends_the_reading() {
        let backlogs = Backlogs::new();
        let (pieces, settled) = answer(usize::MAX);
        drop(backlogs.read(Pid(2), pieces, soon(), CancellationToken::new()));
        settled.cancelled().await;
        // While it is read ahead.
        for hangs_up in [true, false] {
            let (pieces, settled) = answer(usize::MAX);
            let token = CancellationToken::new();
            let mut reads = backlogs.read(Pid(2), pieces, soon(), token.clone());
            assert!(reads.next().await.is_some_and(|piece| piece.is_ok()));
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(backlogs.tasks.len(), 1);
            if hangs_up {
                drop(reads);
            } else {
                token.cancel();
                assert_eq!(all(reads).await, (0, Some(403)), "also where more waits to be read");
            }
            settled.cancelled().await;
        }
        backlogs.close().await;
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_of_any_length_finds_room() {
        let backlogs = Backlogs::new();
        let pieces = stream::iter([Bytes::from(vec![0; 2 * OWN_BYTES]), Bytes::from(vec![0; 1])]);
        assert_eq!(all(backlogs.read(Pid(2), pieces, soon(), CancellationToken::new())).await, (2, None));
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    /// Forty of them that nobody read took 450 MiB, and those of one key let no other have any.
    #[tokio::test(start_paused = true)]
    async fn long_pieces_and_whole_answers_take_room_until_they_are_read() {
        const LONG: usize = 16 << 20;
        let backlogs = Backlogs::new();
        let long = || Bytes::from(vec![0; LONG]);
        let first = hold(&backlogs, 2, long()).await.unwrap();
        let refused = hold(&backlogs, 2, long()).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after_ms), (503, None), "its share is taken");
        let mut others = vec![hold(&backlogs, 3, long()).await.unwrap(), hold(&backlogs, 4, long()).await.unwrap()];
        assert_eq!(hold(&backlogs, 3, Bytes::from_static(b"short")).await.unwrap(), "short");
        let later = Instant::now() + Duration::from_secs(60);
        let reads = backlogs.read(Pid(5), stream::iter([long(), long()]), later, CancellationToken::new());
        let waits = backlogs.read(Pid(6), stream::iter([long()]), soon(), CancellationToken::new());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(backlogs.shared.available_permits() < LONG);
        assert_eq!(hold(&backlogs, 7, long()).await.unwrap_err().status, 503);
        assert_eq!(all(waits).await, (0, Some(504)), "it found no room in time");
        others.clear();
        drop(first);
        assert_eq!(all(reads).await, (2, None));
        assert_eq!(backlogs.shared.available_permits(), SHARED_BYTES);
    }

    /// A quick model filled the memory with answers that waited for room, which was counted nowhere.
    #[tokio::test(start_paused = true)]
    async fn what_waits_for_room_is_counted_too() {
        const LONG: usize = 16 << 20;
        let backlogs = Arc::new(Backlogs::new());
        let long = || Bytes::from(vec![0; LONG]);
        let first = hold(&backlogs, 2, long()).await.unwrap();
        let wait = |token: CancellationToken| {
            let (backlogs, body) = (Arc::clone(&backlogs), long());
            tokio::spawn(async move { backlogs.hold(Pid(2), body, &token).await.map_err(|error| error.status) })
        };
        let taken_away = CancellationToken::new();
        let waiting =
            [taken_away.clone(), CancellationToken::new(), CancellationToken::new(), CancellationToken::new()];
        let waiting = waiting.map(wait);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        assert_eq!(hold(&backlogs, 2, long()).await.unwrap_err().status, 503);
        assert_eq!(began.elapsed(), Duration::ZERO);
        taken_away.cancel();
        drop(first);
        let mut found = Vec::new();
        for waits in waiting {
            found.push(waits.await.unwrap().map(drop));
        }
        assert_eq!(found[0], Err(403));
        assert!(found[1..].contains(&Ok(())), "{found:?}");
    }
}
