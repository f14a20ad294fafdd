//! The thread of one encoder: texts become tokens, and tokens vectors, a piece of each request at a time.
//!
//! Start at [`Encoder::run`]. What always holds: a text is read whole or refused, never cut; nothing in a text becomes a
//! control token; requests that wait take turns, in making tokens and in making vectors, so that a large one holds up a
//! small one by a piece; who waits no longer is not computed for.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokenizers::Tokenizer;
use tokio::sync::oneshot;

use crate::bert::{self, Bert};
use crate::fault::Fault;
use crate::worker::WAITING_MAX;

/// Tokens computed at once, unless one text has more: some 40 sentences.
const PIECE: usize = 1024;
/// Bytes of texts made into tokens at once, unless one text has more.
const READ: usize = 64 << 10;
/// Most bytes of a text for each token of the window: what has more is mostly blank or no words, and to make it into tokens
/// would hold up all others.
const TOKEN_BYTES: usize = 256;

/// One request.
pub(crate) struct Texts {
    pub(crate) texts: Vec<String>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Embedded>, Fault>>,
}

/// The vector of a text, of length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// Its numbers.
    pub numbers: Vec<f32>,
    /// Tokens of the text, with those that every text gets.
    pub tokens: usize,
}

/// A request that is being worked on, or waits for its turn.
struct Working {
    /// What is not made into tokens yet.
    texts: std::vec::IntoIter<String>,
    ids: Vec<Vec<u32>>,
    made: Vec<Embedded>,
    reply: oneshot::Sender<Result<Vec<Embedded>, Fault>>,
}

impl From<Texts> for Working {
    fn from(Texts { texts, reply }: Texts) -> Working {
        Working { ids: Vec::with_capacity(texts.len()), made: Vec::new(), texts: texts.into_iter(), reply }
    }
}

/// The thread's state.
pub(crate) struct Encoder {
    bert: Bert,
    tokenizer: Tokenizer,
}

impl Encoder {
    /// Opens and checks the folder of a model.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn open(path: &Path) -> Result<Encoder, Fault> {
        let bert = Bert::open(path)?;
        let file = path.join("tokenizer.json");
        let read = Tokenizer::from_bytes(bert::bytes(&file)?);
        let mut tokenizer = read.map_err(|error| Fault::Damaged { path: file, why: error.to_string() })?;
        // Files say how long texts were in training; here each is read as long as it is.
        tokenizer.with_padding(None);
        let _ = tokenizer.with_truncation(None);
        tokenizer.set_encode_special_tokens(true);
        let unsupported = |why: &str| Fault::NoEncoder { path: path.to_owned(), why: why.to_owned() };
        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or(u32::MAX);
        if largest as usize >= bert.vocabulary() {
            return Err(unsupported("its tokenizer knows tokens that it does not"));
        }
        let encoder = Encoder { bert, tokenizer };
        if encoder.ids("")?.is_empty() {
            return Err(unsupported("its tokenizer makes nothing of an empty text"));
        }
        Ok(encoder)
    }

    /// Serves until nobody has asked for `idle`, or everybody who could has gone.
    pub(crate) fn run(&self, asked: &Receiver<Texts>, idle: Duration) {
        let mut working: VecDeque<Working> = VecDeque::new();
        loop {
            if working.is_empty() {
                let Ok(texts) = asked.recv_timeout(idle) else { return };
                working.push_back(Working::from(texts));
            }
            while working.len() < WAITING_MAX
                && let Ok(texts) = asked.try_recv()
            {
                working.push_back(Working::from(texts));
            }
            let Some(mut first) = working.pop_front().filter(|first| !first.reply.is_closed()) else { continue };
            let done = self.turn(&mut first);
            // Whoever waits no longer needs no answer.
            match done {
                Ok(false) => working.push_back(first),
                Ok(true) => drop(first.reply.send(Ok(first.made))),
                Err(fault) => drop(first.reply.send(Err(fault))),
            }
        }
    }

    /// The next piece of a request; whether that was all. No vector is made before all its texts are known to fit.
    fn turn(&self, working: &mut Working) -> Result<bool, Fault> {
        let mut bytes = 0;
        while bytes < READ
            && let Some(text) = working.texts.next()
        {
            bytes += text.len();
            working.ids.push(self.fitting(&text)?);
        }
        if working.texts.len() > 0 { Ok(false) } else { self.piece(working) }
    }

    /// The tokens of a text, where they fit.
    fn fitting(&self, text: &str) -> Result<Vec<u32>, Fault> {
        let (bytes, window) = (text.len(), self.bert.window());
        let most = window.saturating_mul(TOKEN_BYTES);
        if bytes > most {
            return Err(Fault::HugeText { bytes, most });
        }
        let ids = self.ids(text)?;
        if ids.len() > window { Err(Fault::LongText { tokens: ids.len(), window }) } else { Ok(ids) }
    }

    /// Makes the next vectors of a request; whether that was all.
    fn piece(&self, working: &mut Working) -> Result<bool, Fault> {
        let rest = &working.ids[working.made.len()..];
        let mut tokens = 0;
        let fits = |ids: &&Vec<u32>| {
            tokens += ids.len();
            tokens <= PIECE
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let texts: Vec<&[u32]> = rest[..count].iter().map(Vec::as_slice).collect();
        if !texts.is_empty() {
            let numbers = self.bert.read(&texts)?;
            let made = numbers.into_iter().zip(&texts).map(|(numbers, ids)| Embedded { numbers, tokens: ids.len() });
            working.made.extend(made);
        }
        Ok(working.made.len() == working.ids.len())
    }

    fn ids(&self, text: &str) -> Result<Vec<u32>, Fault> {
        let read = self.tokenizer.encode_fast(text, true);
        read.map(|read| read.get_ids().to_vec()).map_err(|error| Fault::Broke(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::folder::Folder;

    #[test]
    fn a_request_of_many_texts_is_read_a_piece_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        Folder::new().write(home.path());
        let encoder = Encoder::open(home.path()).unwrap();
        let of = |count: usize| {
            let (reply, _) = oneshot::channel();
            Working::from(Texts { texts: vec!["cat".to_owned() + &" ".repeat(4093); count], reply })
        };
        let (mut large, mut small) = (of(40), of(16));
        let turns = |working: &mut Working| {
            let done = encoder.turn(working).unwrap();
            (done, working.ids.len(), working.made.len())
        };
        assert_eq!([turns(&mut large), turns(&mut large)], [(false, 16, 0), (false, 32, 0)]);
        assert_eq!(turns(&mut small), (true, 16, 16), "what is read at once is made at once");
        assert_eq!(turns(&mut large), (true, 40, 40));
    }
}
