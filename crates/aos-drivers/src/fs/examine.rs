//! The files that a call concerns, as they are now: what an approval binds, and what a person is shown before.
//!
//! Start at [`examine`]. Looked at twice, once when a call is put before a person and once when it is about to run: it
//! runs only if both times the same was seen. What always holds: nothing outside the workspace is read, nothing is
//! changed; the same files give the same answer; what could not be bound is said.
//!
//! Of a command the words count that name something in the workspace. Deliberately absent: what the programs themselves
//! go on to read (`docs/decisions/0009-approvals.md`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;

use aos_abi::Syscall;
use aos_abi::entry::BoundFile;
use aos_abi::syscall::{FsEdit, FsWrite, WriteMode};
use aos_sandbox::{digest, digest_of, hex};
use rustix::fs::{FileType, OFlags, ResolveFlags, Stat};
use sha2::{Digest as _, Sha256};

use super::difference;
use super::edit;
use super::path::{Beneath, PATH_BYTES_MAX};
use super::place::Place;
use super::walk::DEPTH_MAX;
use super::workspace::{Workspace, look};

/// Largest file whose content is hashed, and the most bytes of all together: a person waits for the first look.
const HASHED_BYTES_MAX: u64 = 64 << 20;
/// Most files that are bound.
const FILES_MAX: usize = 64;
/// Most words of a command that are looked for in the workspace.
const WORDS_MAX: usize = 512;
/// Most parts of its words that are.
const PARTS_MAX: usize = 4_096;
/// Most entries of a folder that are bound.
const ENTRIES_MAX: usize = 10_000;

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What the call names, in its order.
    pub files: Vec<BoundFile>,
    /// What it would change, as a unified diff that leaves nothing out; empty where there is none such: then the call's
    /// arguments have to be shown.
    pub diff: String,
    /// What it concerns and what is not bound, in words.
    pub unbound: Option<String>,
}

/// Looks at the files that a call concerns. Blocking.
#[must_use]
pub fn examine(place: &Place, call: &Syscall) -> Seen {
    let workspace = match Workspace::open(place) {
        Ok(workspace) => workspace,
        Err(error) => return Seen { unbound: Some(format!("the workspace: {error}")), ..Seen::default() },
    };
    let mut eye = Eye { workspace: &workspace, seen: Seen::default(), left: HASHED_BYTES_MAX, links: false };
    match call {
        Syscall::FsRead(args) => eye.path(&args.path),
        Syscall::FsWrite(args) => {
            eye.path(&args.path);
            eye.seen.diff = eye.diff(&args.path, |old| written(args, old));
        }
        Syscall::FsEdit(args) => {
            eye.path(&args.path);
            eye.seen.diff = eye.diff(&args.path, |old| edited(args, old));
        }
        Syscall::FsDelete(args) => {
            eye.path(&args.path);
            eye.seen.diff = eye.diff(&args.path, |old| old.map(|_| Vec::new()));
        }
        Syscall::FsMove(args) => {
            eye.path(&args.from);
            eye.path(&args.to);
        }
        Syscall::ExecCmd(args) => {
            eye.links = true;
            eye.command(&args.cmd);
        }
        _ => {}
    }
    eye.seen
}

/// What differs between what was shown and what is there, in words; `None` where nothing does.
#[must_use]
pub fn drift(shown: &[BoundFile], now: &[BoundFile]) -> Option<String> {
    if shown == now {
        return None;
    }
    let of = |files: &[BoundFile], path: &str| files.iter().find(|file| file.path == path).cloned();
    let paths: BTreeSet<&str> = shown.iter().chain(now).map(|file| file.path.as_str()).collect();
    let mut differ = paths.into_iter().filter(|path| of(shown, path) != of(now, path));
    let path = differ.next().unwrap_or("what it names");
    let more = differ.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("`{}`{more}", path.escape_debug()))
}

struct Eye<'w> {
    workspace: &'w Workspace<'w>,
    seen: Seen,
    /// Bytes that may still be hashed.
    left: u64,
    /// Whether links are followed, as a command does; never out of the workspace.
    links: bool,
}

impl Eye<'_> {
    fn path(&mut self, text: &str) {
        // What no path can be is refused by the driver.
        let Ok(path) = Beneath::parse(text) else { return };
        let file = self.look(&path).unwrap_or_else(|| BoundFile {
            path: path.as_str().to_owned(),
            is: "nothing".to_owned(),
            mode: String::new(),
            bytes: 0,
            sha256: None,
        });
        self.seen.files.push(file);
    }

    fn command(&mut self, line: &str) {
        let plain = without_signs(line);
        let mut words = words(line);
        if let Some(plain) = &plain {
            self.not_bound("names that the shell puts together from pieces".to_owned());
            words.extend(self::words(plain));
        }
        if is_worked_out(line) {
            self.not_bound("names that the shell works out from patterns or variables".to_owned());
        }
        let parts = parts(&words);
        for (names, most, what) in [(&words, WORDS_MAX, "words"), (&parts, PARTS_MAX, "parts of words")] {
            if names.len() > most {
                self.not_bound(format!("{what} beyond the first {most}"));
            }
            for name in names.iter().take(most) {
                if self.named(name).is_break() {
                    self.not_bound(format!("files beyond the first {FILES_MAX}"));
                    return;
                }
            }
        }
    }

    /// Binds what a word of a command names, until there are too many.
    fn named(&mut self, word: &str) -> ControlFlow<()> {
        let below = word.strip_prefix(aos_sandbox::WORKSPACE).map_or(word, |rest| rest.trim_start_matches('/'));
        let path = match Beneath::parse(below) {
            Ok(path) => path,
            // With `..` it may name something here all the same, and so may it with what no call takes in a name.
            Err(_) => match self.workspace.real(below).map(|real| (Beneath::parse(&real), real)) {
                None => return ControlFlow::Continue(()),
                Some((Ok(path), _)) => path,
                Some((Err(_), real)) => {
                    self.not_bound(format!("the content of `{}`", real.escape_debug()));
                    return ControlFlow::Continue(());
                }
            },
        };
        // The workspace itself is where every command runs, whether it is named or not.
        if path.as_str().is_empty() || self.seen.files.iter().any(|file| file.path == path.as_str()) {
            return ControlFlow::Continue(());
        }
        let Some(file) = self.look(&path) else { return ControlFlow::Continue(()) };
        if self.seen.files.len() == FILES_MAX {
            return ControlFlow::Break(());
        }
        self.seen.files.push(file);
        ControlFlow::Continue(())
    }

    /// What is at a path; `None` where there is nothing.
    fn look(&mut self, path: &Beneath) -> Option<BoundFile> {
        let follow = if self.links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let inside = if self.links { inside } else { inside | ResolveFlags::NO_SYMLINKS };
        // `NO_SYMLINKS` refuses the last name too, unless it is only looked at.
        let found = self.workspace.opened(path, OFlags::PATH | OFlags::CLOEXEC | follow, inside).ok()?;
        let stat = rustix::fs::fstat(&found).ok()?;
        let mut file = BoundFile {
            path: path.as_str().to_owned(),
            is: "other".to_owned(),
            mode: format!("{:o}", stat.st_mode & 0o7777),
            bytes: 0,
            sha256: None,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                file.is = "file".to_owned();
                file.bytes = u64::try_from(stat.st_size).unwrap_or(0);
                file.sha256 = if file.bytes <= self.left {
                    self.left -= file.bytes;
                    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                    self.workspace.opened(path, flags, inside).ok().and_then(|fd| digest_of(File::from(fd)).ok())
                } else {
                    Some(digest(stamp(&stat).as_bytes()))
                };
            }
            FileType::Symlink => {
                file.is = "link".to_owned();
                let target = rustix::fs::readlinkat(&found, "", Vec::new()).ok()?;
                file.sha256 = Some(digest(target.as_bytes()));
            }
            FileType::Directory => {
                file.is = "folder".to_owned();
                file.sha256 = self.below(path);
            }
            _ => {}
        }
        if file.sha256.is_none() && file.is != "other" {
            self.not_bound(format!("the content of `{}`", path.as_str().escape_debug()));
        }
        Some(file)
    }

    /// Names all that is in a folder: any change to any of it gives another value, since nobody but the system sets
    /// times of change.
    fn below(&self, path: &Beneath) -> Option<String> {
        let folder = self.workspace.folder(path).ok()?;
        let (mut hash, mut count) = (Sha256::new(), 0);
        let walked = self.workspace.walk(&folder, path, DEPTH_MAX, &mut |found| {
            count += 1;
            if count > ENTRIES_MAX {
                return Ok(ControlFlow::Break(()));
            }
            hash.update(found.path.as_bytes());
            if let Some(stat) = look(found.folder, found.name, found.path)? {
                hash.update(stamp(&stat));
            }
            Ok(ControlFlow::Continue(()))
        });
        walked.ok().filter(|walked| !walked.truncated && walked.unreadable.is_empty()).map(|_| hex(&hash.finalize()))
    }

    /// The change to the file that was looked at before, where it is text and all of the change can be shown. It is against
    /// the content that is bound: what somebody had put there only for this moment would not be in it.
    fn diff(&self, path: &str, new: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>) -> String {
        let Ok(path) = Beneath::parse(path) else { return String::new() };
        let old = match self.workspace.file(&path) {
            Ok((file, stat)) if u64::try_from(stat.st_size).is_ok_and(|size| size <= difference::SHOWN_BYTES_MAX) => {
                let mut bytes = Vec::new();
                match file.take(difference::SHOWN_BYTES_MAX).read_to_end(&mut bytes) {
                    Ok(_) if self.is_bound(&bytes) => Some(bytes),
                    _ => return String::new(),
                }
            }
            Ok(_) => return String::new(),
            Err(_) => None,
        };
        let before = old.clone().unwrap_or_default();
        let Some(after) = new(old) else { return String::new() };
        difference::whole(path.as_str(), before, after).unwrap_or_default()
    }

    fn is_bound(&self, bytes: &[u8]) -> bool {
        let hash = digest(bytes);
        self.seen.files.iter().any(|file| file.sha256.as_ref() == Some(&hash))
    }

    fn not_bound(&mut self, what: String) {
        let said = self.seen.unbound.get_or_insert_default();
        if !said.is_empty() {
            said.push_str(", ");
        }
        let _ = write!(said, "{what}");
    }
}

/// What a file will hold once it is written; `None` where the call will fail.
fn written(args: &FsWrite, old: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let new = args.content.clone().into_bytes();
    match (args.mode.unwrap_or_default(), old) {
        (WriteMode::Create, Some(_)) => None,
        (WriteMode::Append, Some(old)) => Some([old, new].concat()),
        (WriteMode::Create | WriteMode::Replace | WriteMode::Append, _) => Some(new),
    }
}

fn edited(args: &FsEdit, old: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let old = String::from_utf8(old?).ok()?;
    edit::apply(&old, &args.edits, &args.path).ok().map(String::into_bytes)
}

/// The pieces of a command line that could name a file: between blanks, quotes and the shell's signs, and what stands in
/// quotes as a whole. What the shell only makes while it runs (variables, patterns) names nothing here.
fn words(line: &str) -> Vec<&str> {
    let sign = |c: char| c.is_whitespace() || ";|&<>()'\"`=,:{}".contains(c);
    let quoted = line.split(['\'', '"']).skip(1).step_by(2);
    let mut words: Vec<&str> = line.split(sign).chain(quoted).filter(|word| !word.is_empty()).collect();
    let mut known = BTreeSet::new();
    words.retain(|word| known.insert(*word));
    words
}

/// What within words could name a file: what stands between the signs by which programs tell a name from what is beside it
/// (`@list`, `archive#part`), and every end of an option, since its value may follow its letters (`-fprog.awk`,
/// `-xzfa.tar`); of a long one it stands after `=`. To bind what the program takes for no name does no harm. One more than
/// are looked for, so that it is known that there are more.
fn parts<'l>(words: &[&'l str]) -> Vec<&'l str> {
    let sign = |c: char| "@#%+~!?^*$[]".contains(c);
    let between = words.iter().filter(|word| word.contains(sign)).flat_map(|word| word.split(sign));
    let options = words.iter().filter(|word| word.starts_with('-') && !word.starts_with("--"));
    let ends = options.flat_map(|word| word.char_indices().skip(1).map(|(at, _)| &word[at..]));
    let mut known: BTreeSet<&str> = words.iter().copied().collect();
    let could_be = |part: &&str| !part.is_empty() && part.len() <= PATH_BYTES_MAX;
    between.chain(ends).filter(could_be).filter(|part| known.insert(part)).take(PARTS_MAX + 1).collect()
}

/// Whether the shell finds names by patterns, or puts in what stands in variables or commands print: which files that will be
/// nobody knows before it runs.
fn is_worked_out(line: &str) -> bool {
    let mut open = None;
    line.chars().any(|c| match (open, c) {
        (None, '\'' | '"') => {
            open = Some(c);
            false
        }
        (Some(quote), c) if c == quote => {
            open = None;
            false
        }
        (Some('\''), _) => false,
        (Some(_), c) => matches!(c, '$' | '`'),
        (None, c) => matches!(c, '*' | '?' | '[' | '$' | '`'),
    })
}

/// The line without quotes and backslashes, where it has some within a word: there the shell makes one name of pieces.
fn without_signs(line: &str) -> Option<String> {
    let is_quote = |c: char| matches!(c, '\'' | '"');
    let of_word = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let chars: Vec<char> = line.chars().collect();
    let mut open = None;
    let within = chars.iter().enumerate().any(|(at, c)| {
        let next_to = |at: Option<&char>| at.is_some_and(|c| of_word(*c) || is_quote(*c));
        match (open, *c) {
            (None, '\\') => true,
            (None, quote) if is_quote(quote) => {
                open = Some(quote);
                at > 0 && next_to(chars.get(at - 1))
            }
            (Some(quote), c) if c == quote => {
                open = None;
                next_to(chars.get(at + 1))
            }
            _ => false,
        }
    });
    within.then(|| line.chars().filter(|c| !is_quote(*c) && *c != '\\').collect())
}

/// What the system keeps of a file and changes with it.
fn stamp(stat: &Stat) -> String {
    format!(
        "\0{:o} {} {} {} {}.{}\0",
        stat.st_mode, stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime, stat.st_ctime_nsec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_against_what_is_bound_alone() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::new(home.path());
        let put = |content: &str| std::fs::write(home.path().join("a"), content).unwrap();
        put("one\n");
        let workspace = Workspace::open(&place).unwrap();
        let mut eye = Eye { workspace: &workspace, seen: Seen::default(), left: HASHED_BYTES_MAX, links: false };
        eye.path("a");
        let write = |_| Some(b"one\nevil\n".to_vec());
        assert!(eye.diff("a", write).ends_with(" one\n+evil\n"));
        put("evil\n");
        assert_eq!(eye.diff("a", write), "");
    }
}
