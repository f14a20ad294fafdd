//! `FS_SEARCH`: lines that match a regular expression.
//!
//! The engine runs in time linear in the text whatever the pattern, but linear in the size of the compiled pattern as
//! well. So a long line is matched in pieces, as long as the two together allow, and between pieces and lines it is asked
//! whether to go on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use aos_abi::limits;
use aos_abi::syscall::FsSearch;
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::FileType;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::error::Error;
use super::path::Beneath;
use super::pattern::Pattern;
use super::walk::DEPTH_MAX;
use super::workspace::{Workspace, file_in};

/// Longest regular expression, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// How much memory the program of one may take, as the smallest of these that is enough.
const PROGRAM_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// How much of a line is matched at once, times the bytes of the program: seconds where every state is walked for every
/// byte, and the whole of a file for a small program.
const WORK_MAX: usize = (FILE_BYTES_MAX as usize) * PROGRAM_BYTES[0];
/// How long one search may take.
const WITHIN: Duration = Duration::from_secs(10);
/// What is said of the file in which it stopped.
const TOO_LONG: &str = "the search took too long";
/// Bytes searched of one file and of all together.
const FILE_BYTES_MAX: u64 = 8 << 20;
const TOTAL_BYTES_MAX: u64 = 128 << 20;
/// Longest text shown of one line, in bytes; of a longer line, what is round the match.
const LINE_BYTES_MAX: usize = 400;
/// Files with a zero byte in their first so many bytes are binary and left out, as `grep -I` does.
const BINARY_LOOK_BYTES: usize = 8 << 10;
/// Most names in the list of what was left out.
const LEFT_OUT_MAX: usize = 20;

/// Searches a file, or the files below a folder, line by line. At most [`limits::LISTING_MAX`] matches, then
/// `truncated` is true; so it is where it took too long, or `stop` said to stop. `left_out` says which files were not
/// searched (wholly) and why.
pub(super) fn search(workspace: &Workspace<'_>, args: &FsSearch, stop: &dyn Fn() -> bool) -> Result<Value, Error> {
    let until = Instant::now() + WITHIN;
    let stop = &|| stop() || Instant::now() >= until;
    let path = Beneath::parse(args.path.as_deref().unwrap_or(""))?;
    let pattern = args.glob.as_deref().map(Pattern::parse).transpose()?;
    let (regex, piece) = compile(&args.pattern)?;
    let mut search = Search {
        regex,
        piece,
        stop,
        matches: Vec::new(),
        bytes_left: TOTAL_BYTES_MAX,
        left_out: BTreeMap::new(),
        buffer: Vec::new(),
    };
    let mut truncated;
    match workspace.folder(&path) {
        Ok(folder) => {
            let walked = workspace.walk(&folder, &path, DEPTH_MAX, &mut |found| {
                if found.kind != FileType::RegularFile || pattern.as_ref().is_some_and(|p| !p.matches(found.below)) {
                    return Ok(ControlFlow::Continue(()));
                }
                match file_in(found.folder, found.name, found.path) {
                    Ok((file, _)) => search.file(file, found.path),
                    // Gone or swapped since the folder was read.
                    Err(Error::System { errno: Errno::NOENT | Errno::LOOP, .. }) => Ok(ControlFlow::Continue(())),
                    Err(error) => {
                        search.leave_out(found.path, &error.to_string());
                        Ok(ControlFlow::Continue(()))
                    }
                }
            })?;
            truncated = walked.truncated;
            walked.unreadable.iter().for_each(|path| search.leave_out(path, "cannot be read"));
        }
        Err(Error::System { errno: Errno::NOTDIR, .. }) => {
            let (file, _) = workspace.file(&path)?;
            truncated = search.file(file, path.as_str())?.is_break();
        }
        Err(error) => return Err(error),
    }
    truncated |= search.left_out.len() > LEFT_OUT_MAX;
    let mut result = json!({ "matches": search.matches, "truncated": truncated });
    if !search.left_out.is_empty() {
        let list: Vec<Value> =
            search.left_out.iter().take(LEFT_OUT_MAX).map(|(path, why)| json!({ "path": path, "why": why })).collect();
        result["left_out"] = list.into();
    }
    Ok(result)
}

/// The program of a pattern, and how much of a line it is matched against at once, in bytes.
fn compile(pattern: &str) -> Result<(Regex, usize), Error> {
    let bad = |why: String| Error::Pattern { what: "regular expression", at: "/pattern", why };
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(bad(format!("it is longer than {PATTERN_BYTES_MAX} bytes")));
    }
    let mut why = String::new();
    for size in PROGRAM_BYTES {
        match RegexBuilder::new(pattern).size_limit(size).build() {
            Ok(regex) => return Ok((regex, WORK_MAX / size)),
            Err(error) => why = error.to_string(),
        }
    }
    Err(bad(why))
}

struct Search<'s> {
    regex: Regex,
    piece: usize,
    stop: &'s dyn Fn() -> bool,
    matches: Vec<Value>,
    bytes_left: u64,
    left_out: BTreeMap<String, String>,
    buffer: Vec<u8>,
}

impl Search<'_> {
    fn leave_out(&mut self, path: &str, why: &str) {
        // One more than are shown, so that it is known that there are more.
        if self.left_out.len() <= LEFT_OUT_MAX {
            self.left_out.insert(path.to_owned(), why.to_owned());
        }
    }

    fn file(&mut self, file: File, path: &str) -> Result<ControlFlow<()>, Error> {
        if (self.stop)() {
            self.leave_out(path, TOO_LONG);
            return Ok(ControlFlow::Break(()));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let most = FILE_BYTES_MAX.min(self.bytes_left);
        if let Err(error) = file.take(most + 1).read_to_end(&mut buffer) {
            self.leave_out(path, &error.to_string());
            return Ok(ControlFlow::Continue(()));
        }
        let binary = buffer[..buffer.len().min(BINARY_LOOK_BYTES)].contains(&0);
        let cut = buffer.len() as u64 > most;
        if binary {
            self.leave_out(path, "binary");
        } else {
            if cut {
                buffer.truncate(usize::try_from(most).unwrap_or(usize::MAX));
                self.leave_out(path, &format!("searched only up to byte {most}"));
            }
            self.bytes_left = self.bytes_left.saturating_sub(buffer.len() as u64);
            if self.lines(&buffer, path).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.buffer = buffer;
        Ok(if self.bytes_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn lines(&mut self, text: &[u8], path: &str) -> ControlFlow<()> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return ControlFlow::Continue(());
        }
        for (nth, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let at = match self.find(line) {
                Ok(Some(at)) => at,
                Ok(None) => {
                    if line.len() > self.piece && !self.left_out.contains_key(path) {
                        let (nth, most) = (nth + 1, self.piece / 2);
                        self.leave_out(path, &format!("in line {nth} no match of more than {most} bytes is seen"));
                    }
                    continue;
                }
                Err(byte) => {
                    self.leave_out(path, &format!("searched only up to line {}, byte {byte}: {TOO_LONG}", nth + 1));
                    return ControlFlow::Break(());
                }
            };
            if self.matches.len() == limits::LISTING_MAX {
                return ControlFlow::Break(());
            }
            self.matches.push(json!({ "path": path, "line": nth + 1, "text": shown(line, at) }));
        }
        ControlFlow::Continue(())
    }

    /// Where a line matches; as an error, up to which byte it was looked at before it was said to stop. Pieces overlap by
    /// half, so that a match is whole in one of them.
    fn find(&self, line: &[u8]) -> Result<Option<usize>, usize> {
        let mut from = 0;
        loop {
            if (self.stop)() {
                return Err(from);
            }
            let upto = line.len().min(from + self.piece);
            // What stands before a piece is looked at (`^`, `\b`), and what stands behind it is not: a match may end there
            // only because the text does.
            let ends = self.regex.shortest_match_at(&line[..upto], from);
            if ends.is_some_and(|end| end < upto || upto == line.len()) {
                return Ok(self.regex.find_at(&line[..upto], from).map(|found| found.start()));
            }
            if upto == line.len() {
                return Ok(None);
            }
            from += self.piece / 2;
        }
    }
}

/// A line as it is shown: whole, or the part that begins a little before the match.
fn shown(line: &[u8], at: usize) -> String {
    if line.len() <= LINE_BYTES_MAX {
        return String::from_utf8_lossy(line).into_owned();
    }
    let from = if at < LINE_BYTES_MAX / 2 { 0 } else { at - LINE_BYTES_MAX / 4 };
    let upto = line.len().min(from + LINE_BYTES_MAX);
    // A character cut at either end is left out rather than shown broken.
    let text = String::from_utf8_lossy(&line[from..upto]);
    let text = text.trim_matches('\u{fffd}');
    format!("{}{text}{}", if from > 0 { "…" } else { "" }, if upto < line.len() { "…" } else { "" })
}
