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
const SUPPOSES: [&str; 8] =
    ["pretend", "imagine", "suppose", "forget about", "tell me before", "ask me before", "wait for my", "unless"];
/// How something is spared, and what behind these words is something else.
const SPARES: [&str; 4] = ["keep", "leave", "spare", "protect"];
const NO_FILE: [&str; 8] = ["in", "that", "a", "an", "all", "nothing", "everything", "memory"];
/// How something is taken away.
const TAKES: [&str; 9] = ["delete", "remove", "erase", "cut", "drop", "strip", "clear", "wipe", "discard"];
/// How one asks about it.
const ASKS: [&str; 37] = [
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
    "has anybody",
    "has anyone",
    "has somebody",
    "has someone",
    "have you",
    "have we",
    "have i",
    "had you",
    "had anybody",
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
const CASES: [&str; 11] = [
    " only if ",
    " unless ",
    " except ",
    " other than ",
    " apart from ",
    " but not ",
    "? no way",
    "? no!",
    "? no,",
    "? no.",
    ", just kidding",
];
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
    let one = clauses == 1 && !last.contains(" and ");
    let spares = begins_with(last, &SPARES).filter(|_| one);
    let spares = spares.is_some_and(|rest| rest.split(' ').next().is_some_and(|word| !NO_FILE.contains(&word)));
    if begins(last, &SUPPOSES)
        || spares
        || all_but(last)
        || CASES.iter().any(|case| text.contains(case))
        || if_a_file(last)
    {
        return Some(Unmeant::Order);
    }
    if begins(last, &ASKS) {
        return Some(Unmeant::Question);
    }
    takes_part(last).then_some(Unmeant::Part)
}

/// Whether a sentence takes away a part of something, such as line 2 of a file.
fn takes_part(sentence: &str) -> bool {
    let mut clauses = sentence.split([',', ';', ':']).flat_map(|clause| clause.split(" and "));
    clauses.any(|clause| {
        let mut words = clause.split_whitespace().skip_while(|word| !TAKES.contains(word)).peekable();
        let mut is_part = false;
        while let Some(word) = words.next() {
            let next = words.peek().copied().unwrap_or_default();
            is_part |= PARTS.contains(&word) && (matches!(next, "of" | "in" | "from") || next.parse::<u32>().is_ok());
        }
        is_part
    })
}

/// Whether a sentence is about all but a file.
fn all_but(sentence: &str) -> bool {
    let all = ["every ", "all ", "each ", "everything "].iter().any(|all| sentence.contains(all));
    let kept = sentence.split_once(" but ").and_then(|(_, rest)| rest.split_whitespace().next());
    all && kept.is_some_and(|word| word.contains(['.', '/']))
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

    /// The tasks that it is measured on and was developed with, all of them meant: at most they look like questions, of which
    /// something that changes nothing may come.
    #[test]
    fn no_task_of_the_repository_is_taken_for_unmeant() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano");
        let mut count = 0;
        for file in
            ["compositions/single", "compositions/two", "compositions/three", "development/single", "development/two"]
        {
            let lines = std::fs::read_to_string(folder.join(file).with_extension("jsonl")).unwrap();
            for line in lines.lines() {
                let task: serde_json::Value = serde_json::from_str(line).unwrap();
                let request = ["request", "task", "prompt"].iter().find_map(|key| task[*key].as_str()).unwrap();
                assert!(matches!(unmeant(request), None | Some(Unmeant::Question)), "{request}");
                count += 1;
            }
        }
        assert!(count > 900, "{count}");
    }
}
