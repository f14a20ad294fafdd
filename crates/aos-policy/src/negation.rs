//! Negations: the words by which a person says that something is not to be done, or not before they have been asked.
//!
//! Start at [`first`]. No meaning is read: a word of the list stands for all of its sentence that comes after it, whatever it
//! was about, and one that wants a question stands for the whole sentence, since what is not given is a question and never a
//! yes. Deliberately absent: other languages than English.

use crate::passage::{bare, is_one};

/// Words that negate what comes after them.
const WORDS: [&str; 24] = [
    "not",
    "never",
    "cannot",
    "dont",
    "without",
    "avoid",
    "avoids",
    "avoiding",
    "refrain",
    "neither",
    "nor",
    "nobody",
    "unless",
    "except",
    "excluding",
    "forbid",
    "forbids",
    "forbidden",
    "prohibited",
    "skip",
    "skips",
    "skipping",
    "ignore",
    "ignoring",
];
/// Words that do so together.
const PAIRS: [(&str, &str); 2] = [("instead", "of"), ("rather", "than")];
/// Words by which a person wants to be asked, where one of [`FIRST`] stands in the same sentence.
const ASK: [&str; 10] =
    ["ask", "asking", "confirm", "confirmation", "permission", "approval", "approve", "approved", "consent", "agree"];
const FIRST: [&str; 9] = ["before", "beforehand", "first", "until", "only", "once", "after", "if", "when"];

/// Where the first word that negates begins in a text; what `is_marked` says stands in quotes or code does not count.
pub(crate) fn first(text: &str, is_marked: impl Fn(usize) -> bool) -> Option<usize> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let chunks = text.split_whitespace();
    // Those that count, and none in the place of the others.
    let words = chunks.map(|chunk| Some(bare(chunk)).filter(|word| !is_marked(start(word))).unwrap_or_default());
    let words: Vec<&str> = words.collect();
    let has = |list: &[&str]| words.iter().any(|word| is_one(word, list));
    if has(&ASK) && has(&FIRST) {
        return Some(0);
    }
    let next = |at: usize| words.get(at + 1).copied().unwrap_or("?");
    let found = (0..words.len()).find(|at| match words[*at] {
        // "no errors" is about what is; "no `rm x`" is about what is done.
        no if no.eq_ignore_ascii_case("no") => next(*at).is_empty(),
        word => negates(word) || PAIRS.iter().any(|pair| is_one(word, &[pair.0]) && is_one(next(*at), &[pair.1])),
    });
    found.map(|at| start(words[at]))
}

fn negates(word: &str) -> bool {
    let ends = |end: &str| {
        let at = word.len().checked_sub(end.len()).and_then(|at| word.get(at..));
        at.is_some_and(|last| last.eq_ignore_ascii_case(end))
    };
    is_one(word, &WORDS) || ends("n't") || ends("n’t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_negates_is_found_whole_and_outside_of_marks() {
        let at = |text: &str| first(text, |_| false);
        for (text, found) in [
            ("Never run it", 0),
            ("please DON'T run it", 7),
            ("you don’t run it", 4),
            ("do not run it", 3),
            ("Read it (without running it)", 9),
            ("use a instead of b", 6),
            ("use a rather than b", 6),
            ("Nobody should run b", 0),
            ("It is forbidden to run b", 6),
            ("run a and ask before you run b", 0),
            ("run b, but only if I agree", 0),
        ] {
            assert_eq!(at(text), Some(found), "{text}");
        }
        for text in [
            "run it",
            "a note, a knot and nothing else",
            "",
            "https://example.com/never",
            "do-not-run.sh",
            "instead, run b",
            "where there are no errors run b",
            "ask me what to do",
            "run a before b",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        assert_eq!(first("say \"do not\" and never more", |at| at < 12), Some(17));
        assert_eq!(first("run a, no `b`", |at| at > 9), Some(7));
    }
}
