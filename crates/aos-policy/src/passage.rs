//! Passages: what a person wrote, cut into the pieces that belong together, and what stands in one literally.
//!
//! Start at [`passages`]. A passage is a sentence, a list item or a paragraph; quotes, code and JSON objects are never
//! cut. What always holds: a word stands there only whole, between white space and punctuation; a text stands there only
//! where the person marked where it begins and ends (quotes, backticks, a fence, a JSON object, what follows a colon,
//! or the passage itself); what stands behind a negation is not given, and nor is a list that one introduces. No other meaning
//! is read (docs/decisions/0007).

use std::ops::Range;

use crate::negation;

/// Punctuation around a word that is looked behind.
const PUNCTUATION_MAX: usize = 6;
const QUOTES: [(char, char); 7] =
    [('`', '`'), ('"', '"'), ('\'', '\''), ('“', '”'), ('„', '“'), ('‘', '’'), ('«', '»')];

/// A piece of what a person wrote.
#[derive(Debug)]
pub(crate) struct Passage<'a> {
    /// What is given of it: up to a negation.
    text: &'a str,
    /// What is marked with a beginning and an end.
    marked: Vec<&'a str>,
    /// How much of that is given.
    given: usize,
}

/// Cuts a text into passages.
pub(crate) fn passages(text: &str) -> Vec<Passage<'_>> {
    let marks = marks(text);
    let mut ends = cuts(text, &marks);
    ends.push(text.len());
    let (mut begin, mut closes) = (0, false);
    // What was negated before a mere line break is so after it.
    let mut goes_on = false;
    let mut found = Vec::new();
    for end in ends {
        let part = &text[begin..end];
        let within = |range: &Range<usize>| begin <= range.start && range.end <= end;
        let mut marked: Vec<&str> =
            marks.iter().filter(|mark| within(&mark.whole)).map(|mark| &text[mark.content.clone()]).collect();
        marked.extend(blocks(text, begin..end, &marks));
        let is_marked = |at: usize| marks.iter().any(|mark| mark.whole.contains(&(begin + at)));
        let listed = is_item(part.trim_start_matches('\n'));
        let negation = if (listed && closes) || goes_on { Some(0) } else { negation::first(part, is_marked) };
        if !listed {
            closes = (negation.is_some() && part.trim_end().ends_with(':')) || (goes_on && closes);
        }
        goes_on =
            negation.is_some() && !listed && part.ends_with('\n') && !part.trim().is_empty() && !ends_sentence(part);
        let until = negation.map_or(end, |at| begin + at);
        let start = |content: &str| content.as_ptr() as usize - text.as_ptr() as usize;
        let (mut all, behind): (Vec<&str>, Vec<&str>) = marked.into_iter().partition(|content| start(content) < until);
        let given = all.len();
        all.extend(behind);
        if !part.trim().is_empty() {
            found.push(Passage { text: &text[begin..until], marked: all, given });
        }
        begin = end;
    }
    found
}

/// Every text that is marked in what a person wrote, each as it stands there.
#[must_use]
pub fn marked_texts(text: &str) -> Vec<&str> {
    passages(text).into_iter().flat_map(|passage| passage.marked).collect()
}

impl<'a> Passage<'a> {
    /// Whether this stands here whole, as one word or marked.
    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.words().any(|candidate| candidate == word) || self.marked().contains(&word)
    }

    /// Whether this text is marked here from its first to its last character; the end of its last line does not count.
    pub(crate) fn has_text(&self, text: &str) -> bool {
        let text = text.strip_suffix('\n').unwrap_or(text);
        text.trim().chars().nth(1).is_some() && self.marked().contains(&text)
    }

    /// Whether one of these words stands here, in any case.
    pub(crate) fn has_any(&self, list: &[&str]) -> bool {
        self.words().any(|word| is_one(word, list))
    }

    /// Whether this word stands here, and one of these before it.
    pub(crate) fn has_word_after(&self, word: &str, list: &[&str]) -> bool {
        let mut begun = false;
        self.text.split_whitespace().map(bare).any(|one| {
            let is = begun && one == word;
            begun |= is_one(one, list);
            is
        })
    }

    /// Whether this word stands here right before an address.
    pub(crate) fn stands_before_address(&self, word: &str) -> bool {
        let words = self.text.split_whitespace();
        words.clone().zip(words.skip(1)).any(|(one, next)| bare(one).eq_ignore_ascii_case(word) && next.contains("://"))
    }

    /// What is marked here and given.
    pub(crate) fn marked(&self) -> &[&'a str] {
        &self.marked[..self.given]
    }

    /// What is marked here, also behind a negation.
    pub(crate) fn named(&self) -> &[&'a str] {
        &self.marked
    }

    /// Every reading of every word: with and without the punctuation around it.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'a str> {
        self.text.split_whitespace().flat_map(|chunk| {
            starts(chunk).flat_map(move |start| {
                let rest = &chunk[start..];
                ends(rest).map(move |end| &rest[..end])
            })
        })
    }
}

/// Whether a word is one of these, in any case.
pub(crate) fn is_one(word: &str, list: &[&str]) -> bool {
    list.iter().any(|one| word.eq_ignore_ascii_case(one))
}

/// A run without white space, without the punctuation around it.
pub(crate) fn bare(chunk: &str) -> &str {
    let begun = chunk.trim_start_matches(is_opener);
    begun.trim_end_matches(is_closer)
}

/// What may stand before a word or an opening quote.
fn is_opener(c: char) -> bool {
    matches!(c, '(' | '[' | '{' | '<' | '"' | '\'' | '`' | '“' | '‘' | '„' | '«')
}

/// What may stand after a word or a closing quote.
fn is_closer(c: char) -> bool {
    matches!(c, ')' | ']' | '}' | '>' | '"' | '\'' | '`' | '”' | '’' | '“' | '»' | '.' | ',' | ';' | ':' | '!' | '?')
}

/// Where a word may begin in a run without white space.
fn starts(chunk: &str) -> impl Iterator<Item = usize> {
    let openers = chunk.char_indices().take_while(|(_, c)| is_opener(*c)).take(PUNCTUATION_MAX);
    std::iter::once(0).chain(openers.map(|(at, c)| at + c.len_utf8()))
}

/// Where it may end.
fn ends(chunk: &str) -> impl Iterator<Item = usize> {
    let closers = chunk.char_indices().rev().take_while(|(_, c)| is_closer(*c)).take(PUNCTUATION_MAX);
    std::iter::once(chunk.len()).chain(closers.map(|(at, _)| at)).filter(|end| *end > 0)
}

/// Something marked: with its marks and without.
#[derive(Debug)]
struct Mark {
    whole: Range<usize>,
    content: Range<usize>,
}

/// Quotes, code and JSON objects, from left to right, never one in another.
fn marks(text: &str) -> Vec<Mark> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut before = ' ';
    while let Some(c) = text[at..].chars().next() {
        let begins = is_opener(c) && (before.is_whitespace() || is_opener(before));
        let mark = if begins { mark_at(text, at, c) } else { None };
        match mark {
            Some(mark) => {
                at = mark.whole.end;
                before = text[..at].chars().next_back().unwrap_or(' ');
                found.push(mark);
            }
            None => {
                at += c.len_utf8();
                before = c;
            }
        }
    }
    found
}

fn mark_at(text: &str, at: usize, c: char) -> Option<Mark> {
    let rest = &text[at..];
    if let Some(inside) = rest.strip_prefix("```") {
        let first_line = inside.find('\n')? + 1;
        let length = inside[first_line..].find("```")?;
        let begin = at + 3 + first_line;
        let content = text[begin..begin + length].strip_suffix('\n').map_or(length, str::len);
        return Some(Mark { whole: at..begin + length + 3, content: begin..begin + content });
    }
    if c == '{' {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde::de::IgnoredAny>();
        values.next()?.ok()?;
        let end = at + values.byte_offset();
        return Some(Mark { whole: at..end, content: at..end });
    }
    let (_, close) = QUOTES.iter().find(|(open, _)| *open == c)?;
    let begin = at + c.len_utf8();
    let inside = &text[begin..];
    let fits = |end: usize| {
        let after = inside[end + close.len_utf8()..].chars().next();
        // An apostrophe within a word ends no quote.
        c == '`' || after.is_none_or(|after| after.is_whitespace() || is_closer(after))
    };
    let end = inside.match_indices(*close).map(|(end, _)| end).find(|end| *end > 0 && fits(*end))?;
    if inside[..end].contains("\n\n") {
        return None;
    }
    Some(Mark { whole: at..begin + end + close.len_utf8(), content: begin..begin + end })
}

/// Columns at which whoever wraps lines does so at the earliest.
const WRAP_COLUMNS: usize = 72;

/// Whether a line goes on in the next one: it is wrapped there, or the next one stands further in, as in an item of a list.
fn is_continued(line: &str, next: &str) -> bool {
    let inset = |line: &str| line.len() - line.trim_start().len();
    let first = next.split_whitespace().next().unwrap_or_default();
    let wrapped = line.chars().count() + 1 + first.chars().count() > WRAP_COLUMNS;
    inset(next) > inset(line) || (wrapped && first.starts_with(char::is_lowercase))
}

/// Whether a passage ends as a sentence does.
fn ends_sentence(passage: &str) -> bool {
    passage.trim_end().ends_with(['.', '!', '?', '。', '！', '？'])
}

/// Where one passage ends and the next begins: after a sentence, at the end of a line that does not go on, before an item of a
/// list.
fn cuts(text: &str, marks: &[Mark]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = ' ';
    let mut marks = marks.iter().map(|mark| &mark.whole).peekable();
    for (at, c) in text.char_indices() {
        while marks.next_if(|mark| mark.end <= at).is_some() {}
        let mut marked = || marks.peek().is_some_and(|mark| mark.contains(&at));
        let after = &text[at + c.len_utf8()..];
        let cut = match c {
            '.' | '!' | '?' | '。' | '！' | '？' | '\n' if marked() => false,
            // No space follows these.
            '。' | '！' | '？' => true,
            // A full stop that stands alone, or before a small letter, may belong to a command.
            '.' | '!' | '?' => {
                let next = after.trim_start().chars().next();
                let ends_word = before.is_alphanumeric() || is_closer(before) || before == '/';
                ends_word && after.starts_with(char::is_whitespace) && next.is_some_and(|next| !next.is_lowercase())
            }
            '\n' => {
                let next = after.split('\n').next().unwrap_or_default();
                let line = text[..at].rsplit('\n').next().unwrap_or_default();
                let introduced = text[..at].trim_end().ends_with(':');
                is_item(next) || !(introduced || (!next.trim().is_empty() && is_continued(line, next)))
            }
            _ => false,
        };
        if cut {
            found.push(at + c.len_utf8());
        }
        before = c;
    }
    found
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = digits.len() < line.len() && (digits.starts_with(". ") || digits.starts_with(") "));
    numbered || line.starts_with("- ") || line.starts_with("* ")
}

/// What follows a colon in a passage, to the passage's end and to the paragraph's; and the passage itself, where it is all that
/// was written, an item of a list or a line of a shell. A sentence among others says something: it is no text.
fn blocks<'a>(text: &'a str, passage: Range<usize>, marks: &[Mark]) -> Vec<&'a str> {
    let plain = |at: &usize| !marks.iter().any(|mark| mark.whole.contains(at));
    let part = &text[passage.clone()];
    let colons = part.match_indices(':').map(|(at, _)| passage.start + at + 1).filter(plain);
    let colons = colons.filter(|at| text[*at..].starts_with(char::is_whitespace));
    let whole = [passage.clone()].into_iter().filter(|_| {
        let line = part.trim();
        line == text.trim() || is_item(line) || line.starts_with("$ ")
    });
    let mut found = Vec::new();
    for Range { start, end } in colons.flat_map(|at| [at..passage.end, at..paragraph_end(text, at)]).chain(whole) {
        let block = text[start..end].trim();
        let block = block.strip_prefix("- ").or_else(|| block.strip_prefix("* ")).unwrap_or(block);
        let block = block.strip_prefix("$ ").unwrap_or(block);
        found.push(block);
        // The full stop of the sentence.
        found.extend(block.strip_suffix(['.', '!', '?']).filter(|rest| rest.ends_with(char::is_alphanumeric)));
    }
    found
}

/// Where the paragraph ends that begins here, blank lines before it left out.
fn paragraph_end(text: &str, begin: usize) -> usize {
    let mut begun = false;
    let mut at = begin;
    for line in text[begin..].split_inclusive('\n') {
        if begun && line.trim().is_empty() {
            break;
        }
        begun |= !line.trim().is_empty();
        at += line.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, word: &str) -> bool {
        passages(text).iter().any(|passage| passage.has_word(word))
    }

    fn text(text: &str, value: &str) -> bool {
        passages(text).iter().any(|passage| passage.has_text(value))
    }

    #[test]
    fn a_word_stands_there_only_whole() {
        assert!(word("write to bob@x.com, please", "bob@x.com"));
        assert!(word("write to (bob@x.com).", "bob@x.com"));
        for other in
            ["notbob@x.com", "bob@x.com.evil", "bob@x.com/evil", "bob@x.comx", "bob@x.com,eve@y.com", "bоb@x.com"]
        {
            assert!(!word(&format!("write to {other} please"), "bob@x.com"), "{other}");
        }
        assert!(!word("call report?all=1", "report"), "a query belongs to it");
    }

    #[test]
    fn a_text_stands_there_only_where_it_is_marked() {
        for asked in [
            "Run `cargo test` and tell me",
            "Run \"cargo test\", then stop",
            "Run: cargo test",
            "Run: cargo test.",
            "cargo test",
            "Run this:\n\ncargo test\n\nand tell me",
            "Run\n```sh\ncargo test\n```\nnow",
            "- cargo test\n- cargo build",
            "$ cargo test",
        ] {
            assert!(text(asked, "cargo test"), "{asked}");
        }
        for asked in [
            "Run cargo test and tell me",
            "Run `cargo test --release`",
            "Run `nice cargo test`",
            "Run: cargo test --release",
            "Run\n```\ncargo test\nrm -rf target\n```",
            "Run: cargo test . --all",
            "don't cargo test, that isn't it",
            // A sentence among others says something.
            "cargo test\nis what I never run",
            "Tell me about it. cargo test",
        ] {
            assert!(!text(asked, "cargo test"), "{asked}");
        }
        assert!(text("post {\"a\": [1, 2]} there", "{\"a\": [1, 2]}"));
        assert!(!text("say \"x\" and \"y\"", " and "), "what stands between two quotes is not quoted");
        assert!(!text("press \"y\"", "y"), "one letter is no text");
    }

    #[test]
    fn what_stands_behind_a_negation_is_not_given() {
        for asked in [
            "Never run `rm f`",
            "Read notes.md and do not run `rm f`.",
            "You mustn't, whatever the page says, run `rm f`",
            "Tidy up without `rm f`",
            "Avoid this: rm f",
            "Never do one of these:\n- `rm f`\n- rm f\n",
            "Do not run this:\n\nrm f",
            "Never run rm f",
            "Never do one of these:\nrm g\n`rm f`",
            "Never do one of these:\n- `rm g`\n  which is bad\n- `rm f`",
            "Never, and nobody else,\nrun `rm f`",
            "Run `rm g` instead of `rm f`",
            "Run `rm g`, no `rm f`",
            "Ask me before you run `rm f`",
            "Run `rm f` once I agree",
        ] {
            assert!(!text(asked, "rm f"), "{asked}");
            assert!(marked_texts(asked).iter().any(|mark| mark.contains("rm f")), "it stands there: {asked}");
        }
        assert!(!word("never write to bob@x.com", "bob@x.com"));
        for asked in [
            "Run `rm f` and do not ask",
            "Do not wait. Run `rm f`.",
            "Do not wait.\n\nRun:\n- `rm f`\n",
            "Do not wait.\nRun `rm f`",
            "Do not wait\n\nRun `rm f`",
            "Print `do not`, then run `rm f`",
        ] {
            assert!(text(asked, "rm f"), "{asked}");
        }
    }

    #[test]
    fn sentences_and_items_are_passages() {
        let cut = |text: &str| passages(text).len();
        assert_eq!(cut("Read https://a.example/x. Then post `a. B` there."), 2);
        assert_eq!(cut("Do this:\n- one\n- two\n"), 3);
        assert_eq!(cut("One\n\nTwo"), 2);
        assert_eq!(cut("Send this:\n\nTwo"), 1);
        assert_eq!(cut("Send this:\nTwo\nThree"), 2);
        assert!(
            text("Send this:\nTwo x\nThree y", "Two x\nThree y")
                && !text("Send:\nTwo x\n\nThree y", "Two x\n\nThree y")
        );
        // A break ends a sentence, but where an editor has wrapped it, or an item goes on.
        assert_eq!(cut("Post `a b` to https://a.example/x\nRead https://b.example/y"), 2);
        assert_eq!(cut("post `a b` to https://a.example/x\nread https://b.example/y"), 2);
        let wrapped =
            "When all of that is done, and only then, post the text `a b` to the place\ncalled https://a.example/x";
        assert_eq!(cut(wrapped), 1);
        assert_eq!(cut("- Post `a b`\n  to https://a.example/x\n- two"), 2);
        assert_eq!(cut("送る。読む！"), 2);
    }
}
