//! Differences as people see them: unified diffs of small text files, bounded, whoever asks.
//!
//! Start at [`whole`], for what somebody is asked about, and [`Differences`], for several.

use super::edit::diff;

/// Largest file that is shown as a diff, in bytes.
pub const SHOWN_BYTES_MAX: u64 = 256 << 10;
/// Most bytes of all diffs together.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// All of one file's difference; `None` where it is too long for that, or one of the two is no text or has line ends that
/// no line of a diff begins after.
pub(super) fn whole(path: &str, old: Vec<u8>, new: Vec<u8>) -> Option<String> {
    let (old, new) = (String::from_utf8(old).ok()?, String::from_utf8(new).ok()?);
    let lone = |text: &str| text.split('\r').skip(1).any(|rest| !rest.starts_with('\n'));
    if lone(&old) || lone(&new) {
        return None;
    }
    let (text, cut) = diff(&old, &new, &path.escape_debug().to_string());
    (!cut).then_some(text)
}

/// One file's difference, as far as it can be shown; a file that is not there is empty. `None` for what is not shown (too
/// large, no file): then there is no diff.
fn of_file(path: &str, old: Option<Vec<u8>>, new: Option<Vec<u8>>) -> String {
    let path = path.escape_debug().to_string();
    let (Some(old), Some(new)) = (old, new) else { return String::new() };
    if old == new {
        return String::new();
    }
    match (String::from_utf8(old), String::from_utf8(new)) {
        (Ok(old), Ok(new)) => {
            let (mut text, cut) = diff(&old, &new, &path);
            if cut {
                text.push_str("\n… and more\n");
            }
            text
        }
        _ => format!("{path}: bytes that are no text differ\n"),
    }
}

/// The differences of several files, as far as there is room.
#[derive(Debug, Default)]
pub struct Differences {
    text: String,
    full: bool,
}

impl Differences {
    /// Whether more is not shown any more, so that nobody needs to read it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds one file's, in the order of the files.
    pub fn add(&mut self, path: &str, old: Option<Vec<u8>>, new: Option<Vec<u8>>) {
        if self.full {
            return;
        }
        self.text.push_str(&of_file(path, old, new));
        if self.text.len() >= TOGETHER_BYTES_MAX {
            self.full = true;
            self.text.push_str("… and more\n");
        }
    }

    /// All of it.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}
