//! A file on its way: what is here of it, and a note of where it came from, beside the place where it will be.
//!
//! Start at [`Part::open`]. What always holds: only one program has it at a time; bytes of two files are never mixed, as
//! far as the server tells its files apart; the hash is that of the bytes on the disk.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, BufReader};

use super::fault::Fault;

/// Bytes hashed at once of what is there already.
const PIECE: usize = 1 << 20;

/// Where the bytes came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) url: String,
    /// By which the server tells this file from another under the same address; strong ones only.
    pub(super) etag: Option<String>,
    /// The SHA-256 that the server gives, in hex.
    pub(super) sha256: Option<String>,
}

/// A file on its way.
pub(super) struct Part {
    path: PathBuf,
    beside: PathBuf,
    file: File,
    hash: Sha256,
    pub(super) have: u64,
    /// Of these, bytes that were here when this began.
    pub(super) kept: u64,
    /// How often something was thrown away since then.
    pub(super) restarts: u32,
    pub(super) note: Note,
}

impl Part {
    /// What is there of a file that will be at `to`, if it came from the same address; else nothing.
    pub(super) async fn open(to: &Path, url: &str) -> Result<Part, Fault> {
        let (path, beside) = (named(to, "part"), named(to, "part.from"));
        let io = Fault::io(&path);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(&io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(Fault::Busy(to.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        let note = std::fs::read_to_string(&beside).ok().and_then(|text| serde_json::from_str(&text).ok());
        let note: Note = note.unwrap_or_default();
        let goes_on = note.url == url;
        let (hash, note) = (Sha256::new(), if goes_on { note } else { Note::default() });
        let mut part = Part { path, beside, file: File::from_std(file), hash, have: 0, kept: 0, restarts: 0, note };
        if goes_on {
            part.hash_what_is_there().await?
        } else {
            part.restart().await?
        }
        Ok(part)
    }

    async fn hash_what_is_there(&mut self) -> Result<(), Fault> {
        let io = Fault::io(&self.path);
        let mut reader = BufReader::with_capacity(PIECE, &mut self.file);
        let mut piece = vec![0; PIECE];
        loop {
            match reader.read(&mut piece).await.map_err(&io)? {
                0 => break,
                len => {
                    self.hash.update(&piece[..len]);
                    self.have += len as u64;
                }
            }
        }
        self.kept = self.have;
        Ok(())
    }

    /// Forgets what is here.
    pub(super) async fn restart(&mut self) -> Result<(), Fault> {
        let io = Fault::io(&self.path);
        self.file.set_len(0).await.map_err(&io)?;
        self.file.seek(std::io::SeekFrom::Start(0)).await.map_err(&io)?;
        self.restarts += u32::from(self.have > 0);
        (self.have, self.kept, self.hash) = (0, 0, Sha256::new());
        Ok(())
    }

    /// Takes down where the bytes to come are from.
    pub(super) fn take_down(&mut self, note: Note) -> Result<(), Fault> {
        let text = serde_json::to_string(&note).expect("texts become JSON");
        std::fs::write(&self.beside, text).map_err(Fault::io(&self.beside))?;
        self.note = note;
        Ok(())
    }

    /// More of it.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.file.write_all(bytes).await.map_err(Fault::io(&self.path))?;
        self.hash.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    /// What is here is on the disk, should the program end now.
    pub(super) async fn flush(&mut self) -> Result<(), Fault> {
        self.file.flush().await.map_err(Fault::io(&self.path))
    }

    /// The SHA-256 of what is here, in hex.
    pub(super) fn sha256(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// It is whole: it goes to its place, with its checksum beside it as `sha256sum -c` reads it.
    pub(super) async fn finish(mut self, to: &Path, sha256: &str) -> Result<(), Fault> {
        self.flush().await?;
        self.file.sync_all().await.map_err(Fault::io(&self.path))?;
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = named(to, "sha256");
        // Before the file: one without a record is taken for a person's own, and is never overwritten.
        std::fs::write(&record, format!("# {}\n{sha256}  {name}\n", self.note.url)).map_err(Fault::io(&record))?;
        std::fs::rename(&self.path, to).map_err(Fault::io(to))?;
        if let Some(folder) = to.parent() {
            std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(Fault::io(folder))?;
        }
        // Nothing reads it any more.
        let _ = std::fs::remove_file(&self.beside);
        Ok(())
    }

    /// It is of no use: nothing of it stays.
    pub(super) fn discard(self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// A file beside another: `m.gguf` and `part` give `m.gguf.part`.
pub(super) fn named(to: &Path, more: &str) -> PathBuf {
    let mut path = to.to_owned();
    path.add_extension(more);
    path
}

/// The checksum that stands beside a file that was fetched.
pub(super) fn recorded(to: &Path) -> Option<String> {
    let text = std::fs::read_to_string(named(to, "sha256")).ok()?;
    let line = text.lines().find(|line| !line.starts_with('#'))?;
    line.split_whitespace().next().filter(|sha256| super::is_sha256(sha256)).map(str::to_owned)
}
