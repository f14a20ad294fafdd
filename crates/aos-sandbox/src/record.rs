//! What is written down of a commit, in its layer's folder: what is to be done, once, and behind that how far it has come.
//!
//! Start at [`Record`]. What always holds: a crash leaves the state before or the one after; what is to be done is never
//! written again, so that a state costs a few hundred bytes however much was changed, and those are set aside from the
//! beginning where the file system can do that. Deliberately absent: what the steps are (`step`) and the order of all
//! (`commit`).

use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};

use crate::commit::Stage;
use crate::failpoint::{Done, done, fail, pass};
use crate::step::{Name, Step};

/// The file in a layer's folder.
pub(crate) const RECORD: &str = "committed.json";

/// Bytes that are set aside for what is going to be said behind the steps: a commit that is done needs one state, one that
/// is taken back two more.
const STATES_BYTES: u64 = 16 << 10;

/// What is written down of a commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) workspace: Name,
    /// In the order of the paths, so folders before what is in them.
    pub(crate) steps: Vec<(Name, Step)>,
    #[serde(flatten)]
    pub(crate) state: State,
    /// Bytes of the file that count; what is behind them was being written when something ended it.
    #[serde(skip)]
    pub(crate) bytes: u64,
    /// The last state in which it was at rest.
    #[serde(skip)]
    pub(crate) rest: Option<State>,
}

/// How far a commit has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// Rises with each time it is done or taken back.
    pub(crate) turn: u32,
    /// What the names of things on their way through the workspace are made of in this turn: random, so that nothing that
    /// was there before can have one, and written down before the first step, so that after a crash they are found. Not
    /// in records of the time before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nonce: Option<String>,
    /// When it came to rest, in seconds and nanoseconds since 1970: what changed later is somebody else's doing. Not in records
    /// of version 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rested: Option<(i64, i64)>,
    /// The steps, by their places, of which nothing was there any more to be kept when their turn came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<usize>,
    /// The caller's own.
    pub(crate) note: serde_json::Value,
}

impl State {
    fn rests(&self) -> Option<State> {
        self.stage.rests().then(|| self.clone())
    }
}

impl Record {
    /// The record in a layer's folder, if there is one.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Record>> {
        let text = match std::fs::read(dir.join(RECORD)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let mut record: Record = serde_json::from_slice(first)?;
        let mut bytes = first.len();
        record.rest = record.state.rests();
        while let Some(line) = lines.next() {
            match serde_json::from_slice(line) {
                Ok(state) => record.is_now(state),
                // No part of an object is one, so what was cut off is known by that.
                Err(_) if lines.next().is_none() => break,
                Err(error) => return Err(error.into()),
            }
            bytes += 1 + line.len();
        }
        record.bytes = bytes as u64;
        Ok(Some(record))
    }

    /// Writes all of it.
    pub(crate) fn begin(&mut self, dir: &Path) -> io::Result<()> {
        let draft = dir.join("draft");
        let mut to = BufWriter::new(std::fs::File::create(&draft)?);
        serde_json::to_writer(&mut to, self)?;
        let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        let bytes = file.metadata()?.len();
        // Where it cannot, the disk may be full when the next state is written; what follows from that is the caller's.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, bytes, STATES_BYTES);
        file.sync_all()?;
        pass();
        self.bytes = bytes;
        std::fs::rename(&draft, dir.join(RECORD))?;
        fail()?;
        std::fs::File::open(dir)?.sync_all()?;
        done(Done::Recorded(self.state.stage));
        Ok(())
    }

    /// Writes a new state behind the others; it holds only when it is written.
    pub(crate) fn change(&mut self, dir: &Path, state: State) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).open(dir.join(RECORD))?;
        if file.metadata()?.len() != self.bytes {
            file.set_len(self.bytes)?;
        }
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, &state)?;
        let mut write = || {
            fail()?;
            file.seek(SeekFrom::Start(self.bytes))?;
            file.write_all(&line)?;
            pass();
            fail()?;
            file.sync_all()
        };
        if let Err(error) = write() {
            // Whoever hears that it was not written must not find it later.
            let _ = file.set_len(self.bytes).and_then(|()| file.sync_all());
            return Err(error);
        }
        self.bytes += line.len() as u64;
        done(Done::Recorded(state.stage));
        self.is_now(state);
        Ok(())
    }

    fn is_now(&mut self, state: State) {
        self.rest = state.rests().or(self.rest.take());
        self.state = state;
    }
}
