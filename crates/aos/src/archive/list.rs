//! The list of an archive while it grows: what is in it and what is not, never longer than is read again.
//!
//! Start at [`List::fits`]. What always holds: what agents leave in one workspace takes at most half of the room that is left,
//! and of the holes that may still come, so it hinders neither the backup nor what comes after it; what was left out is
//! counted for each workspace. What is in a folder that is not in the list is not in it either.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{HOLES_BYTES_MAX, Held, LeftOut, MANIFEST_BYTES_MAX};

/// Kept for what is at the top of a home, and for counts of what was left out.
const RESERVE_BYTES: usize = MANIFEST_BYTES_MAX / 8;

/// How many things that could not be copied are named of one workspace; the others are counted.
const NAMED_MAX: usize = 100;

/// What an archive holds and what it does not.
pub(super) struct List {
    held: Vec<Held>,
    left_out: Vec<LeftOut>,
    /// Bytes of JSON that may still come.
    room: usize,
    /// Bytes of holes that may still come.
    holes: u64,
    part: Part,
}

/// A workspace, a change that can be undone, or another folder at the top of a home.
#[derive(Default)]
struct Part {
    name: PathBuf,
    room: usize,
    holes: u64,
    full: bool,
    named: usize,
    /// What was left out and is not named.
    more: u64,
}

impl List {
    pub(super) fn new() -> List {
        let room = MANIFEST_BYTES_MAX - RESERVE_BYTES;
        List { held: Vec::new(), left_out: Vec::new(), room, holes: HOLES_BYTES_MAX, part: Part::default() }
    }

    /// Whether there is room for something, which is counted where there is not; then there is none for the rest of its
    /// workspace.
    pub(super) fn fits(&mut self, held: &Held) -> bool {
        let name = Path::new(&held.path);
        if name.components().count() == 1 {
            return true;
        }
        self.enter(name);
        let fits = !self.part.full && self.take(held);
        if !fits {
            self.part.full = true;
            self.part.more += 1;
        }
        fits
    }

    /// Whether there may be so many more bytes of holes, in a file of this name; they count from now on.
    pub(super) fn takes_holes(&mut self, name: &Path, bytes: u64) -> bool {
        self.enter(name);
        let takes = bytes <= self.part.holes;
        if takes {
            self.part.holes -= bytes;
            self.holes -= bytes;
        }
        takes
    }

    /// Adds what [`List::fits`] had room for.
    pub(super) fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Names what is not in the archive, or counts it.
    pub(super) fn leave_out(&mut self, left: LeftOut) {
        self.enter(Path::new(&left.path));
        if !self.part.full && self.part.named < NAMED_MAX && self.take(&left) {
            self.part.named += 1;
            self.left_out.push(left);
        } else {
            self.part.more += 1;
        }
    }

    /// All of it.
    pub(super) fn end(mut self) -> (Vec<Held>, Vec<LeftOut>) {
        self.leave();
        (self.held, self.left_out)
    }

    fn take(&mut self, one: &impl Serialize) -> bool {
        // A comma follows it.
        let bytes = serde_json::to_vec(one).expect("what is listed is plain data with string keys").len() + 1;
        if bytes > self.part.room {
            return false;
        }
        self.part.room -= bytes;
        self.room -= bytes;
        true
    }

    fn enter(&mut self, name: &Path) {
        let levels = if name.starts_with("workspaces") {
            2
        } else if name.starts_with("undo") {
            3
        } else {
            1
        };
        let part: PathBuf = name.components().take(levels).collect();
        if part != self.part.name {
            self.leave();
            self.part = Part { name: part, room: self.room / 2, holes: self.holes / 2, ..Part::default() };
        }
    }

    fn leave(&mut self) {
        let Part { name, more, .. } = std::mem::take(&mut self.part);
        if more > 0 {
            let why = format!("{more} more files and folders in it are not listed: too many, or with paths too long");
            self.left_out.push(LeftOut { path: name.to_string_lossy().into_owned(), why });
        }
    }
}
