//! A file's bytes on their way into an archive: those that were written, and where the holes are between them.
//!
//! Start at [`Content::of`]. What always holds: it is as long as it is said to be, whatever becomes of the file; the hash is
//! that of the whole file, holes included. The form is GNU tar's oldest for files with holes, which every tar reads:
//! <https://www.gnu.org/software/tar/manual/html_section/Sparse-Formats.html>.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::iter;
use std::ops::Range;

use aos_journal::chain::hex;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, GnuExtSparseHeader, Header};

/// Smaller holes than these are written out: each piece between them costs the archive a place in its map.
const HOLE_BYTES_MIN: u64 = 64 << 10;

/// What a tar is made of; a piece ends in the middle of one only at the file's end.
const BLOCK: u64 = 512;

/// Exactly as many bytes of a file as it had when it was opened, without those of its holes: what was cut off meanwhile
/// comes as zeros, what was added not at all.
pub(super) struct Content {
    file: File,
    length: u64,
    /// What is still to be read, in order.
    ahead: VecDeque<Range<u64>>,
    /// How much of the file has been hashed.
    at: u64,
    hash: Sha256,
}

impl Content {
    pub(super) fn of(file: File, length: u64) -> Content {
        // Where nobody can say where its holes are it is taken whole.
        let pieces = aos_sandbox::data(&file, length).unwrap_or_else(|_| iter::once(0..length).collect());
        Content { file, length, ahead: joined(pieces, length), at: 0, hash: Sha256::new() }
    }

    /// How many bytes are still to be read.
    pub(super) fn written(&self) -> u64 {
        self.ahead.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// Makes a header one of a file with holes, and returns what of their map comes before the bytes.
    pub(super) fn map(&self, header: &mut Header) -> Vec<u8> {
        header.set_entry_type(EntryType::GNUSparse);
        let gnu = header.as_gnu_mut().expect("it was made as one of GNU tar");
        gnu.set_real_size(self.length);
        // A piece of no bytes says where the file ends.
        let mut pieces = self.ahead.iter().cloned().chain(iter::once(self.length..self.length)).peekable();
        for (place, piece) in gnu.sparse.iter_mut().zip(&mut pieces) {
            place.set_offset(piece.start);
            place.set_length(piece.end - piece.start);
        }
        gnu.set_is_extended(pieces.peek().is_some());
        let mut map = Vec::new();
        while pieces.peek().is_some() {
            let mut more = GnuExtSparseHeader::new();
            for (place, piece) in more.sparse_mut().iter_mut().zip(&mut pieces) {
                place.set_offset(piece.start);
                place.set_length(piece.end - piece.start);
            }
            more.set_is_extended(pieces.peek().is_some());
            map.extend_from_slice(more.as_bytes());
        }
        map
    }

    /// The hash of the whole file, in hex, once all was read.
    pub(super) fn hash(mut self) -> String {
        self.hole(self.length);
        hex(&self.hash.finalize().into())
    }

    /// Hashes the hole up to a place.
    fn hole(&mut self, end: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.at < end {
            let next = (end - self.at).min(ZEROS.len() as u64);
            self.hash.update(&ZEROS[..usize::try_from(next).unwrap_or(ZEROS.len())]);
            self.at += next;
        }
    }
}

impl Read for Content {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.ahead.front().cloned() else { return Ok(0) };
        if self.at <= piece.start {
            self.hole(piece.start);
            self.file.seek(SeekFrom::Start(piece.start))?;
        }
        let room = into.len().min(usize::try_from(piece.end - self.at).unwrap_or(usize::MAX));
        let into = &mut into[..room];
        let got = match self.file.read(into)? {
            0 => {
                into.fill(0);
                room
            }
            got => got,
        };
        self.hash.update(&into[..got]);
        self.at += got as u64;
        if self.at == piece.end {
            self.ahead.pop_front();
        }
        Ok(got)
    }
}

/// The pieces in whole blocks, those that lie close together as one.
fn joined(pieces: Vec<Range<u64>>, length: u64) -> VecDeque<Range<u64>> {
    let mut joined: VecDeque<Range<u64>> = VecDeque::new();
    for piece in pieces {
        let (start, end) = (piece.start / BLOCK * BLOCK, piece.end.next_multiple_of(BLOCK).min(length));
        match joined.back_mut() {
            Some(last) if start.saturating_sub(last.end) < HOLE_BYTES_MIN => last.end = end,
            None if start < HOLE_BYTES_MIN => joined.push_back(0..end),
            _ => joined.push_back(start..end),
        }
    }
    match joined.back_mut() {
        Some(last) if length - last.end < HOLE_BYTES_MIN => last.end = length,
        None if length > 0 && length < HOLE_BYTES_MIN => joined.push_back(0..length),
        _ => {}
    }
    joined
}
