//! Faults: why a policy file is refused, each with its place and the way out.

use std::fmt;

use crate::yaml::Place;

/// One fault of a policy file. A file with any is refused whole, and the old one stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The way out, such as the nearest known word.
    pub hint: Option<String>,
}

impl Fault {
    pub(crate) fn at(place: Place, message: impl Into<String>) -> Fault {
        Fault { line: place.line, column: place.column, message: shortened(message.into()), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(shortened(hint.into()));
        self
    }
}

/// Its beginning and its end, where it quotes more of the file than anybody reads.
fn shortened(text: String) -> String {
    /// Most characters, and how many of them are its beginning.
    const CHARS_MAX: usize = 1000;
    const BEGINNING: usize = 700;
    // No character is shorter than a byte.
    let chars = if text.len() <= CHARS_MAX { return text } else { text.chars().count() };
    if chars <= CHARS_MAX {
        return text;
    }
    let end = chars - (CHARS_MAX - 1 - BEGINNING);
    let kept = text.chars().enumerate().filter(|(at, _)| *at < BEGINNING || *at >= end).map(|(_, one)| one);
    let mut kept: Vec<char> = kept.collect();
    kept.insert(BEGINNING, '…');
    kept.into_iter().collect()
}

/// The text of a file, which is UTF-8.
///
/// # Errors
/// Where it is none: at its first byte that is not.
pub fn text_of(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|error| {
        let upto = error.utf8_error().valid_up_to();
        let good = String::from_utf8_lossy(&error.as_bytes()[..upto]).into_owned();
        let line = good.matches('\n').count() + 1;
        let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let what = format!("the file is no UTF-8: here is the byte {:#04x}", error.as_bytes()[upto]);
        Fault::at(Place { line, column }, what).hint("save it as UTF-8, without what stands there")
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

/// Says which known word is nearest to a wrong one, or which there are.
pub(crate) fn nearest(wrong: &str, known: &[&str]) -> String {
    /// Nobody has mistyped a longer one.
    const WORD_BYTES_MAX: usize = 100;
    let best = known
        .iter()
        .filter(|_| wrong.len() <= WORD_BYTES_MAX)
        .map(|word| (strsim::jaro_winkler(&wrong.to_ascii_lowercase(), &word.to_ascii_lowercase()), *word))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        // Below this the likeness is an accident; the value is that of the usual spelling checkers.
        Some((likeness, word)) if likeness > 0.75 => format!("did you mean `{word}`?"),
        _ => format!("there are: {}", known.join(", ")),
    }
}
