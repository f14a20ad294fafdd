//! Whether a request means what it names: nano was taught orders, and takes "never delete a.txt" for one.
//!
//! Start at [`unmeant`]. What always holds: what stands between quotation marks is not read; a request that looks unmeant is
//! not acted on by calls that change something, and answered in words, which costs a person a rewording and no file.
//! Deliberately absent: other languages than English, and any meaning beyond these forms.

use aos_abi::Name;

/// Said in the place of such a call.
pub(super) const UNMEANT: &str = "I take plain orders only, and this looks as if something were forbidden, asked about, or to \
                                  be done in some case or to a part only. I did nothing. Say what to do, or choose a larger \
                                  model (`aos models`).";

/// Why a request may not mean what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmeant {
    /// It forbids it, or wants it in some case only.
    Order,
    /// It asks about it. Commands may be the answer.
    Question,
    /// It is about a part of a file.
    Part,
}

impl Unmeant {
    /// Whether this call is not to come of such a request.
    pub(super) fn forbids(self, call: Name) -> bool {
        match self {
            Unmeant::Order => matches!(
                call,
                Name::FsDelete
                    | Name::FsWrite
                    | Name::FsEdit
                    | Name::FsMove
                    | Name::ExecCmd
                    | Name::Kill
                    | Name::MemForget
                    | Name::SendMsg
            ),
            Unmeant::Question => {
                matches!(call, Name::FsDelete | Name::FsWrite | Name::FsEdit | Name::FsMove | Name::Kill)
            }
            Unmeant::Part => call == Name::FsDelete,
        }
    }
}

/// What a sentence may begin with before it says anything.
const POLITE: [&str; 14] =
    ["please", "kindly", "hey", "hi", "ok", "okay", "well", "nano", "and", "but", "so", "now", "dear", "oh"];
/// How something is forbidden.
const FORBIDS: [&str; 24] = [
    "never",
    "don't you dare",
    "don't",
    "do not",
    "dont",
    "you must not",
    "you mustn't",
    "you may not",
    "you should not",
    "you shouldn't",
    "nobody should",
    "nobody may",
    "nobody asked you to",
    "no one should",
    "no one may",
    "make sure that nobody",
    "make sure nobody",
    "there is no need to",
    "there is no reason to",
    "it would be",
    "it is forbidden to",
    "i would never",
    "under no circumstances",
    "on no account",
];
/// After which a forbidding word forbids nothing: "don't forget to", "don't worry".
const HARMLESS: [&str; 9] = ["forget", "hesitate", "worry", "mind", "bother", "ask", "wait", "stop", "be"];
/// How one speaks of what is not to be done now.
const SUPPOSES: [&str; 12] = [
    "pretend",
    "imagine",
    "suppose",
    "forget about",
    "keep",
    "leave",
    "spare",
    "protect",
    "tell me before",
    "ask me before",
    "wait for my",
    "unless",
];
/// How one asks about it.
const ASKS: [&str; 31] = [
    "should i",
    "should we",
    "shall i",
    "must i",
    "may i",
    "is it",
    "would it",
    "who",
    "why did",
    "why was",
    "why is",
    "when did",
    "when was",
    "how do",
    "how does",
    "how would",
    "how can i",
    "how should",
    "was",
    "were",
    "has",
    "have",
    "had",
    "did",
    "would you ever",
    "what would",
    "what happens",
    "what if",
    "i already",
    "i have already",
    "my colleague",
];
/// In which case, or to what, it is to be done.
const CASES: [&str; 8] =
    [" only if ", " unless ", " except ", " other than ", " apart from ", " but not ", "? no", ", just kidding"];
const PARTS: [&str; 12] = [
    "line",
    "lines",
    "word",
    "words",
    "row",
    "rows",
    "column",
    "paragraph",
    "comments",
    "header",
    "character",
    "section",
];

/// Why this request does not mean what it names, if it looks so.
pub(super) fn unmeant(request: &str) -> Option<Unmeant> {
    let text = unquoted(request).to_lowercase().replace('’', "'");
    let sentences: Vec<&str> = sentences(&text).collect();
    let last = *sentences.last()?;
    let clauses = last.split([',', ';', ':']).filter(|clause| !clause.trim().is_empty()).count();
    // "Don't touch a.txt, only print it" says what to do.
    if clauses == 1 && begins_with(last, &FORBIDS).is_some_and(|rest| !begins(rest, &HARMLESS)) {
        return Some(Unmeant::Order);
    }
    let all_but =
        ["every ", "all ", "each ", "everything "].iter().any(|all| last.contains(all)) && last.contains(" but ");
    if begins(last, &SUPPOSES) || all_but || CASES.iter().any(|case| text.contains(case)) || if_a_file(last) {
        return Some(Unmeant::Order);
    }
    if begins(last, &ASKS) {
        return Some(Unmeant::Question);
    }
    let words: Vec<&str> = last.split_whitespace().collect();
    let of = |word: &str| matches!(word, "of" | "in" | "from");
    let part = words.windows(2).any(|two| PARTS.contains(&two[0]) && (of(two[1]) || two[1].parse::<u32>().is_ok()));
    part.then_some(Unmeant::Part)
}

/// Whether a sentence begins with what is to be the case of a file.
fn if_a_file(sentence: &str) -> bool {
    let rest = begins_with(sentence, &["if"]);
    rest.and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|word| word.trim_end_matches(',').contains(['.', '/']))
}

fn begins(sentence: &str, list: &[&str]) -> bool {
    begins_with(sentence, list).is_some()
}

/// What stands behind the one of these that a sentence begins with, politeness left out.
fn begins_with<'a>(sentence: &'a str, list: &[&str]) -> Option<&'a str> {
    let mut rest = sentence.trim_start();
    loop {
        let word = rest.split([' ', ',', ':']).next().unwrap_or_default();
        if word.is_empty() || !POLITE.contains(&word) {
            break;
        }
        rest = rest[word.len()..].trim_start_matches([' ', ',', ':']);
    }
    list.iter()
        .find_map(|one| rest.strip_prefix(one).filter(|rest| rest.is_empty() || rest.starts_with(' ')))
        .map(str::trim_start)
}

/// The sentences of a text, each with the mark that ends it.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let ends = |(at, c): (usize, char)| {
        let next = text[at + c.len_utf8()..].chars().next();
        (c == '\n' || (matches!(c, '.' | '!') && next == Some(' '))).then_some(at + c.len_utf8())
    };
    let ends: Vec<usize> = text.char_indices().filter_map(ends).chain([text.len()]).collect();
    let begins = std::iter::once(0).chain(ends.clone());
    begins.zip(ends).map(|(begin, end)| text[begin..end].trim()).filter(|sentence| !sentence.is_empty())
}

/// A text without what stands between quotation marks.
fn unquoted(text: &str) -> String {
    const PAIRS: [(char, char); 5] = [('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('„', '“')];
    let mut kept = String::with_capacity(text.len());
    let mut close = None;
    for c in text.chars() {
        match close {
            Some(end) if c == end => close = None,
            Some(_) => {}
            None => match PAIRS.iter().find(|(open, _)| *open == c) {
                Some((_, end)) => close = Some(*end),
                None => kept.push(c),
            },
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forbidden_asked_about_or_for_a_case_is_not_meant() {
        for request in [
            "Don't delete data.csv",
            "The fair is over. Never delete notes.txt!",
            "Please don't run the command rm data.csv",
            "Do not write \"x\" to notes.txt",
            "don’t you dare delete data.csv",
            "You must not touch data.csv",
            "Make sure that nobody deletes notes.txt",
            "Nobody asked you to empty notes.txt",
            "It would be silly to delete notes.txt",
            "Keep data.csv",
            "Please leave notes.txt alone",
            "Pretend to delete data.csv",
            "Delete notes.txt only if it is empty",
            "Unless notes.txt is empty, delete data.csv",
            "Rename notes.txt to a.txt unless a.txt exists",
            "Remove every file but data.csv",
            "Delete all the files except notes.txt",
            "If notes.txt mentions cheese, delete data.csv",
            "Delete notes.txt? No way!",
            "Tell me before you delete notes.txt",
        ] {
            assert_eq!(unmeant(request), Some(Unmeant::Order), "{request}");
        }
        for request in [
            "Should I delete notes.txt?",
            "Is it safe to remove data.csv?",
            "Who deleted notes.txt?",
            "Was notes.txt deleted yesterday?",
            "How do I delete notes.txt?",
            "I already deleted data.csv",
        ] {
            assert_eq!(unmeant(request), Some(Unmeant::Question), "{request}");
        }
        assert_eq!(unmeant("Delete line 2 of notes.txt"), Some(Unmeant::Part));
    }

    #[test]
    fn what_is_ordered_is_meant() {
        for request in [
            "Delete data.csv",
            "Don't forget to delete data.csv",
            "Please delete data.csv, don't ask",
            "Could you delete notes.txt?",
            "Don't touch a.html, only display it",
            "don't do it yourself: launch another helper to write the report",
            "I don't need a.md any more. Throw it away, would you?",
            "Write \"never delete a.txt unless I say so\" to rules.txt",
            "if you don't mind, make a folder called dale",
            "Show a.txt; if it is not there, write \"x\" to it",
            "",
        ] {
            assert_eq!(unmeant(request), None, "{request}");
        }
        assert!(!Unmeant::Question.forbids(Name::ExecCmd) && Unmeant::Order.forbids(Name::ExecCmd));
        assert!(!Unmeant::Order.forbids(Name::FsRead) && !Unmeant::Part.forbids(Name::FsEdit));
    }
}
