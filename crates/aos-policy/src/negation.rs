//! Negations: the words by which a person says that something is not to be done.
//!
//! Start at [`first`]. No meaning is read: a word of the list stands for all of its sentence that comes after it, whatever it
//! was about, since what is not given is a question and never a yes. Deliberately absent: other languages than English.

use crate::passage::bare;

/// Where the first word that negates begins in a text; what `is_marked` says stands in quotes or code does not count.
pub(crate) fn first(text: &str, is_marked: impl Fn(usize) -> bool) -> Option<usize> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(bare).find(|word| negates(word) && !is_marked(start(word))).map(start)
}

fn negates(word: &str) -> bool {
    const WORDS: [&str; 10] =
        ["not", "never", "cannot", "dont", "without", "avoid", "avoids", "avoiding", "refrain", "neither"];
    let ends = |end: &str| {
        let at = word.len().checked_sub(end.len()).and_then(|at| word.get(at..));
        at.is_some_and(|last| last.eq_ignore_ascii_case(end))
    };
    WORDS.iter().any(|negation| word.eq_ignore_ascii_case(negation)) || ends("n't") || ends("n’t")
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
        ] {
            assert_eq!(at(text), Some(found), "{text}");
        }
        for text in ["run it", "a note, a knot and nothing else", "", "https://example.com/never", "do-not-run.sh"] {
            assert_eq!(at(text), None, "{text}");
        }
        assert_eq!(first("say \"do not\" and never more", |at| at < 12), Some(17));
    }
}
