//! Faults of `aos.toml`: where, what, and the way out.
//!
//! Start at [`Fault`]. All faults of a file are reported at once where the syntax allows it. No fault shows a value
//! that may be a secret.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file does not say something that can be meant. Never empty.
    #[error("{}", list(.path.as_deref(), .faults))]
    Faults {
        /// The file, where it is one.
        path: Option<PathBuf>,
        /// Each fault, in the order of the file.
        faults: Vec<Fault>,
    },
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1; `None` where the fault is that something is missing.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// The way out.
    pub hint: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl ConfigError {
    /// The ways out, one for each fault, without repetition.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        match self {
            ConfigError::Unreadable { path, .. } => vec![format!("check the permissions of {}", path.display())],
            ConfigError::Faults { faults, .. } => {
                let mut hints: Vec<String> = faults.iter().map(|fault| fault.hint.clone()).collect();
                hints.dedup();
                hints
            }
        }
    }
}

fn list(path: Option<&std::path::Path>, faults: &[Fault]) -> String {
    let path = path.map_or("aos.toml".into(), |path| path.display().to_string());
    let lines: Vec<String> = faults.iter().map(|fault| format!("{path}: {fault}")).collect();
    lines.join("\n")
}

/// The shortest value of a variable that is hidden, in bytes: a shorter one is no key, and stands in other words by chance.
const HIDDEN_BYTES_MIN: usize = 8;

/// Gathers faults of one text.
#[derive(Debug)]
pub(super) struct Faults<'t> {
    text: &'t str,
    found: Vec<Fault>,
    /// Values that came from the environment, with the `${NAME}` that is shown instead.
    hidden: Vec<(String, String)>,
}

impl<'t> Faults<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Faults { text, found: Vec::new(), hidden: Vec::new() }
    }

    /// From now on shows the variable's name instead of its value, which may be a key that somebody put in a wrong place.
    pub(super) fn hide(&mut self, name: &str, value: &str) {
        if value.len() < HIDDEN_BYTES_MIN {
            return;
        }
        let quoted = format!("{value:?}");
        // A library's message shows the value as a literal, where a quotation mark has a backslash before it.
        for value in [value, quoted.trim_matches('"')] {
            self.hidden.push((value.to_owned(), format!("${{{name}}}")));
        }
        // The longest first: one value may be a part of another.
        self.hidden.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        self.hidden.dedup();
    }

    fn shown(&self, text: String) -> String {
        self.hidden.iter().fold(text, |text, (value, name)| text.replace(value, name))
    }

    /// A fault at a place of the text.
    pub(super) fn at(&mut self, span: Range<usize>, what: impl Into<String>, hint: impl Into<String>) {
        let before = self.text.get(..span.start.min(self.text.len())).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let (what, hint) = (self.shown(what.into()), self.shown(hint.into()));
        self.found.push(Fault { line: Some(line), what, hint });
    }

    /// A fault that has no place: something is missing.
    pub(super) fn missing(&mut self, what: impl Into<String>, hint: impl Into<String>) {
        let (what, hint) = (self.shown(what.into()), self.shown(hint.into()));
        self.found.push(Fault { line: None, what, hint });
    }

    /// Nothing, or everything found so far in the order of the text.
    pub(super) fn checked(&mut self) -> Result<(), ConfigError> {
        if self.found.is_empty() {
            return Ok(());
        }
        let mut faults = std::mem::take(&mut self.found);
        faults.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
        Err(ConfigError::Faults { path: None, faults })
    }
}
