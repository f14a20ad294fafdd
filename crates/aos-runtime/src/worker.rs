//! The thread of one model: it reads prompts in pieces and writes answers a token at a time, many processes at once.
//!
//! Start at [`Worker::run`]. In each round every process that runs gets its next piece, all of them in one pass over the
//! weights. What always holds: a process that is done leaves what it read in the cache, and its next prompt goes on from
//! there; a process's prompt that begins as any other did begins where that one parts from it; memory stays below the
//! limit, and what was evicted is computed again; who waits no longer is not computed for; a prompt that is far too long
//! holds up nobody.
//!
//! Whoever asks without being a process, such as a program with a key, writes all of its prompt by itself. The bill and the
//! time to the first token would tell it how far a guess agrees with what an agent has said, token by token. So it begins
//! with nothing of others but a role that is the same to its last token, which it has to know all of, and which programs
//! that ask again and again have in common with themselves.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use aos_abi::Pid;
use aos_abi::inference::{NativeCall, Prompt};
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::{mpsc, oneshot};

use crate::decoder::{Decoder, Piece};
use crate::fault::Fault;
use crate::form::{Form, Written, told};
use crate::guide::{Guide, Guides};
use crate::vocabulary::Vocabulary;

/// Tokens of one prompt read in one round: others get their next token in between.
const PIECE: usize = 128;
/// Tokens of all prompts read in one round.
const ROUND: usize = 512;
/// Tokens that prompts are made into in one round, and what the last of them has more: who runs gets its next in between.
const WRITTEN: usize = 1 << 14;
/// Most requests that wait in the thread.
pub(crate) const WAITING_MAX: usize = 256;
/// Most processes that run at once: beyond, a round takes longer than it helps.
const RUNNING_MAX: usize = 32;
/// Tokens in which the longest half-written call can be closed.
const CLOSING: usize = 256;
/// Least room for an answer.
const ANSWER_MIN: usize = 32;

/// One request.
pub(crate) struct Job {
    pub(crate) pid: Option<Pid>,
    pub(crate) prompt: Prompt,
    pub(crate) asked: Instant,
    pub(crate) deltas: mpsc::Sender<String>,
    pub(crate) reply: oneshot::Sender<Result<Answered, Fault>>,
}

/// What comes to the thread.
pub(crate) enum Note {
    Ask(Box<Job>),
    /// A process has ended.
    Ended(Pid),
}

/// Who waits.
struct Waiting {
    job: Job,
    /// Its prompt as the model reads it, where it has been its turn and there was no room.
    written: Option<Written>,
}

/// A finished answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its text.
    pub text: String,
    /// Its calls, where the prompt asks for native ones.
    pub calls: Vec<NativeCall>,
    /// It ended by itself, not at its limit.
    pub whole: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, those that had been read before, for whomever.
    pub reused_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
    /// From the request to the first token of the answer.
    pub first: Duration,
    /// From the first token to the last.
    pub rest: Duration,
    /// Of both, what was spent on the grammar.
    pub masks: Duration,
}

/// What one process has read.
struct Kept<S> {
    pid: Option<Pid>,
    ids: Vec<u32>,
    state: S,
    /// Of these tokens, those of its role, with which others may begin too.
    role: usize,
    used: u64,
}

struct Running<S> {
    job: Job,
    /// Prompt and answer so far.
    ids: Vec<u32>,
    /// Of these, those that the state has read.
    read: usize,
    state: S,
    prompt: usize,
    /// Of the prompt, the tokens of the role.
    role: usize,
    reused: usize,
    most: usize,
    guide: Option<Guide>,
    /// Time spent on what may come next.
    masks: Duration,
    first: Option<Instant>,
    /// Bytes of the answer, and how many of them were told.
    bytes: Vec<u8>,
    told: usize,
    /// The place for what is told last, which whoever listens too slowly has not filled; `None` where nobody listens.
    last: Option<OwnedPermit<String>>,
}

/// The thread's state.
pub(crate) struct Worker<D: Decoder> {
    decoder: D,
    vocabulary: Vocabulary,
    form: Form,
    guides: Guides,
    end: u32,
    cache_bytes: usize,
    waiting: VecDeque<Waiting>,
    running: Vec<Running<D::State>>,
    kept: Vec<Kept<D::State>>,
    clock: u64,
}

impl<D: Decoder> Worker<D> {
    pub(crate) fn new(decoder: D, vocabulary: Vocabulary, form: Form, cache_bytes: usize) -> Result<Worker<D>, Fault> {
        let end = form.end(&vocabulary);
        let guides = Guides::new(&vocabulary, end)?;
        let (waiting, running, kept) = (VecDeque::new(), Vec::new(), Vec::new());
        Ok(Worker { decoder, vocabulary, form, guides, end, cache_bytes, waiting, running, kept, clock: 0 })
    }

    /// Serves until nobody has asked for `idle`, or everybody who could has gone.
    pub(crate) fn run(&mut self, notes: &Receiver<Note>, idle: Duration) {
        loop {
            if self.running.is_empty() && self.waiting.is_empty() {
                match notes.recv_timeout(idle) {
                    Ok(note) => self.take(note),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
                }
            }
            while self.waiting.len() < WAITING_MAX {
                match notes.try_recv() {
                    Ok(note) => self.take(note),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.round();
        }
    }

    /// How many wait, run and are kept.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.waiting.len(), self.running.len(), self.kept.len())
    }

    /// Whether the prompt of the first who waits is written already.
    #[cfg(test)]
    pub(crate) fn is_written(&self) -> bool {
        self.waiting.front().is_some_and(|waiting| waiting.written.is_some())
    }

    /// Bytes that are held of what was read.
    #[cfg(test)]
    pub(crate) fn bytes_held(&self) -> usize {
        self.decoder.bytes_held()
    }

    /// Answers everybody with a fault: the model cannot go on.
    pub(crate) fn fail(&mut self, fault: &Fault) {
        let running = self.running.drain(..).map(|running| running.job);
        for job in running.chain(self.waiting.drain(..).map(|waiting| waiting.job)) {
            // Whoever waits no longer needs no answer.
            let _ = job.reply.send(Err(fault.clone()));
        }
        self.kept.clear();
    }

    pub(crate) fn take(&mut self, note: Note) {
        match note {
            Note::Ask(job) => self.waiting.push_back(Waiting { job: *job, written: None }),
            Note::Ended(pid) => self.forget(pid),
        }
    }

    /// Drops all that a process has read but the beginning that others of its role may share, which loses its name. What it
    /// is still being answered will not be kept either.
    fn forget(&mut self, pid: Pid) {
        while let Some(nth) = self.kept.iter().position(|kept| kept.pid == Some(pid)) {
            let Kept { ids, state, role, .. } = self.kept.swap_remove(nth);
            let read = ids.len();
            self.keep(None, ids, state, read, role);
        }
        let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.job);
        let jobs = self.running.iter_mut().map(|running| &mut running.job).chain(waiting);
        jobs.filter(|job| job.pid == Some(pid)).for_each(|job| job.pid = None);
    }

    /// One pass over the weights.
    pub(crate) fn round(&mut self) {
        self.drop_cancelled();
        self.admit();
        if self.running.is_empty() {
            return;
        }
        let mut room = ROUND;
        let mut pieces = Vec::new();
        let mut of = Vec::new();
        for (nth, running) in self.running.iter_mut().enumerate() {
            // Who only waits for its next token always gets it.
            let rest = running.ids.len() - running.read;
            let len = if rest == 1 { 1 } else { rest.min(PIECE).min(room) };
            if len == 0 {
                continue;
            }
            room = room.saturating_sub(len);
            let ids = &running.ids[running.read..running.read + len];
            running.read += len;
            pieces.push(Piece { ids, state: &mut running.state, wanted: len == rest });
            of.push(nth);
        }
        let logits = match self.decoder.read(&mut pieces) {
            Ok(logits) => logits,
            Err(fault) => return self.fail(&fault),
        };
        let mut done = Vec::new();
        for (nth, logits) in of.into_iter().zip(logits) {
            if let Some(logits) = logits {
                let next = self.running[nth].next(&logits, &self.vocabulary, self.end);
                match next {
                    Ok(None) => {}
                    Ok(Some(whole)) => done.push((nth, Ok(whole))),
                    Err(fault) => done.push((nth, Err(fault))),
                }
            }
        }
        for (nth, outcome) in done.into_iter().rev() {
            let running = self.running.swap_remove(nth);
            self.finish(running, outcome);
        }
        self.evict(self.cache_bytes);
    }

    fn drop_cancelled(&mut self) {
        self.waiting.retain(|waiting| !waiting.job.reply.is_closed());
        let mut nth = 0;
        while nth < self.running.len() {
            if self.running[nth].job.reply.is_closed() {
                let running = self.running.swap_remove(nth);
                self.keep(running.job.pid, running.ids, running.state, running.read, running.role);
            } else {
                nth += 1;
            }
        }
    }

    /// Lets in who waits, as long as all who run fit into memory with the longest answers that they may give.
    fn admit(&mut self) {
        let mut made = 0;
        while self.running.len() < RUNNING_MAX && made < WRITTEN {
            let Some(Waiting { job, written }) = self.waiting.pop_front() else { return };
            let written = match written {
                Some(written) => Ok(written),
                None => self.write(&job.prompt, job.pid.is_none()).inspect(|written| made += written.ids.len()),
            };
            let fits = |tokens| fit(&self.decoder, self.cache_bytes, &job.prompt, tokens);
            let fitting = written.and_then(|written| Ok((fits(written.ids.len())?, written)));
            let ((most, needed), written) = match fitting {
                Ok(fitting) => fitting,
                Err(fault) => {
                    let _ = job.reply.send(Err(fault));
                    continue;
                }
            };
            let promised: usize = self.running.iter().map(|one| self.decoder.bytes_of(one.prompt + one.most)).sum();
            if promised + needed > self.cache_bytes {
                self.waiting.push_front(Waiting { job, written: Some(written) });
                return;
            }
            let (state, reused) = self.begin(job.pid, &written.ids, written.role);
            self.running.push(Running {
                last: job.deltas.clone().try_reserve_owned().ok(),
                job,
                prompt: written.ids.len(),
                role: written.role,
                ids: written.ids,
                read: reused,
                state,
                reused,
                most,
                guide: written.guide,
                masks: Duration::ZERO,
                first: None,
                bytes: Vec::new(),
                told: 0,
            });
            self.evict(self.cache_bytes.saturating_sub(needed));
        }
    }

    /// A prompt as the model reads it. One that cannot fit by its bytes alone is refused before it is made into tokens, so
    /// that no prompt takes longer to write than a window full of the longest tokens. A process goes on with what it has
    /// room for, as its window does; whoever is none is not answered as if all of it had been read.
    fn write(&mut self, prompt: &Prompt, whole: bool) -> Result<Written, Fault> {
        let fits = |least| fit(&self.decoder, self.cache_bytes, prompt, least).map(drop);
        self.form.write(prompt, whole, &self.vocabulary, &mut self.guides, fits)
    }

    /// The state that has read most of these tokens already, cut to where they part: the process's own, or a fork of any
    /// other's. Who is no process begins with a whole role that is the same, or with nothing.
    fn begin(&mut self, pid: Option<Pid>, ids: &[u32], role: usize) -> (D::State, usize) {
        // The last token is read in any case, since what follows it is asked for.
        let most = ids.len() - 1;
        let common = |other: &[u32], of: usize| match pid {
            Some(_) => other.iter().zip(&ids[..most]).take_while(|(a, b)| a == b).count(),
            None if of == role && other.starts_with(&ids[..role]) => role,
            None => 0,
        };
        let own = pid.and_then(|pid| self.kept.iter().position(|kept| kept.pid == Some(pid)));
        let own = own.map(|nth| self.kept.swap_remove(nth));
        let own_len = own.as_ref().map_or(0, |own| common(&own.ids, own.role));
        let kept = self.kept.iter().enumerate().map(|(nth, kept)| (common(&kept.ids, kept.role), Ok(nth)));
        let running =
            self.running.iter().enumerate().map(|(nth, one)| (common(&one.ids[..one.read], one.role), Err(nth)));
        let other = kept.chain(running).max_by_key(|(len, _)| *len).filter(|(len, _)| *len > own_len);
        let (mut state, len) = match (other, own) {
            (Some((len, Ok(nth))), _) => {
                self.clock += 1;
                self.kept[nth].used = self.clock;
                (self.kept[nth].state.clone(), len)
            }
            (Some((len, Err(nth))), _) => (self.running[nth].state.clone(), len),
            (None, Some(own)) => (own.state, own_len),
            (None, None) => (self.decoder.fresh(), 0),
        };
        D::truncate(&mut state, len);
        (state, len)
    }

    fn finish(&mut self, running: Running<D::State>, outcome: Result<bool, Fault>) {
        let Running {
            job, ids, read, state, prompt, role, reused, guide, masks, first, bytes, told: from, last, ..
        } = running;
        let answer = outcome.map(|whole| {
            let written = String::from_utf8_lossy(&bytes).into_owned();
            let rest = String::from_utf8_lossy(&bytes[from..]).into_owned();
            // Free text is what it is, though it may look like the object that a guide has written.
            let (text, calls) = if guide.is_some() { told(written, &job.prompt) } else { (written, Vec::new()) };
            let rest = if matches!(guide, Some(Guide::Nano(_))) { text.clone() } else { rest };
            if let Some(last) = last.filter(|_| !rest.is_empty()) {
                last.send(rest);
            }
            let first = first.unwrap_or_else(Instant::now);
            Answered {
                text,
                calls,
                whole,
                prompt_tokens: prompt,
                reused_tokens: reused,
                answer_tokens: ids.len() - prompt,
                first: first.duration_since(job.asked),
                rest: first.elapsed(),
                masks,
            }
        });
        let _ = job.reply.send(answer);
        self.keep(job.pid, ids, state, read, role);
    }

    /// Keeps what was read; where it is nobody's, no more of it than others may begin with, and once.
    fn keep(&mut self, pid: Option<Pid>, mut ids: Vec<u32>, mut state: D::State, read: usize, role: usize) {
        let read = if pid.is_some() { read } else { read.min(role) };
        if read == 0 {
            return;
        }
        ids.truncate(read);
        if pid.is_none() && self.kept.iter().any(|kept| kept.ids.starts_with(&ids)) {
            return;
        }
        D::truncate(&mut state, read);
        self.clock += 1;
        self.kept.push(Kept { pid, ids, state, role, used: if pid.is_some() { self.clock } else { 0 } });
    }

    /// Lets go of what was used longest ago until no more than so many bytes are held.
    fn evict(&mut self, bytes: usize) {
        while self.decoder.bytes_held() > bytes {
            let Some(oldest) = (0..self.kept.len()).min_by_key(|nth| self.kept[*nth].used) else { return };
            self.kept.swap_remove(oldest);
        }
    }
}

impl<S> Running<S> {
    /// Takes the next token; `Some` where the answer is at its end: whether by itself.
    fn next(&mut self, logits: &[f32], vocabulary: &Vocabulary, end: u32) -> Result<Option<bool>, Fault> {
        self.first.get_or_insert_with(Instant::now);
        let left = self.most - (self.ids.len() - self.prompt);
        let began = Instant::now();
        let chosen = match &mut self.guide {
            Some(guide) => guide.choose(logits, left <= CLOSING.min(self.most / 2), vocabulary)?,
            None => likeliest(logits).filter(|id| *id != end && *id != vocabulary.eos),
        };
        self.masks += began.elapsed();
        self.ids.extend(chosen);
        if let Some(Guide::Nano(guide)) = &self.guide {
            // What its tokens mean shows when they are all there, and is told when it is unpacked.
            self.bytes = guide.reply().unwrap_or_default().as_bytes().to_vec();
        } else {
            self.bytes.extend(chosen.map_or(&[][..], |id| vocabulary.bytes(id)));
            self.tell();
        }
        if chosen.is_none() || self.guide.as_ref().is_some_and(Guide::ended) {
            return Ok(Some(true));
        }
        Ok((left == 1).then_some(false))
    }

    /// Passes on what is whole characters. Whoever listens too slowly gets more at once later.
    fn tell(&mut self) {
        let new = &self.bytes[self.told..];
        let (mut text, mut len) = (String::new(), 0);
        for chunk in new.utf8_chunks() {
            text.push_str(chunk.valid());
            len += chunk.valid().len();
            let begun = |error: std::str::Utf8Error| error.error_len().is_none();
            let at_end = len + chunk.invalid().len() == new.len();
            if chunk.invalid().is_empty() || at_end && std::str::from_utf8(chunk.invalid()).is_err_and(begun) {
                break;
            }
            text.push('\u{fffd}');
            len += chunk.invalid().len();
        }
        if len > 0 && self.job.deltas.try_send(text).is_ok() {
            self.told += len;
        }
    }
}

/// How long the answer to a prompt of so many tokens may be, and the bytes that both take.
fn fit<D: Decoder>(decoder: &D, limit: usize, prompt: &Prompt, tokens: usize) -> Result<(usize, usize), Fault> {
    let (window, wanted) = (decoder.window(), prompt.max_output as usize);
    let most = wanted.min(window.saturating_sub(tokens));
    if most < ANSWER_MIN.min(wanted) || most == 0 {
        return Err(Fault::TooLong { tokens, window });
    }
    let needed = decoder.bytes_of(tokens + most);
    if needed > limit { Err(Fault::TooLarge { needed, limit }) } else { Ok((most, needed)) }
}

/// The likeliest token.
fn likeliest(logits: &[f32]) -> Option<u32> {
    let numbers = logits.iter().enumerate().filter(|(_, logit)| !logit.is_nan());
    numbers.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(id, _)| id as u32)
}
