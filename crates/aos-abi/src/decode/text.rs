//! The text form: `[SYS_CALL::NAME] {json}` anywhere in a reply.
//!
//! Start at [`read`]. One pass over the text, line by line: what a line is (quotation, fence, prose) decides whether a tag
//! on it is a call or data; the rules are at [`super::decode`]. What always holds: each byte is looked at a bounded number
//! of times, and a position never goes back.

use std::ops::Range;

use serde::de::IgnoredAny;

use super::{Written, WrittenCall, was_cut_off};
use crate::{CallError, Code};

/// What a call in text begins with.
pub(super) const TAG: &str = "[SYS_CALL::";

/// How the fence around what strangers wrote begins, wherever it stands, and how it ends.
const QUOTE: &str = "<untrusted";
const QUOTE_END: &str = "</untrusted>";

/// How a block of thoughts begins at the start of a line, and how it ends.
const THOUGHT: &str = "<think>";
const THOUGHT_END: &str = "</think>";

pub(super) fn read(text: &str, cut_off: bool) -> Written {
    let mut scan = Scan::new(text);
    let mut calls = Vec::new();
    while let Some(found) = text[scan.pos..].find(TAG) {
        let tag = scan.pos + found;
        scan.advance(tag);
        if scan.pos > tag {
            continue;
        }
        match scan.is_call(tag).then(|| call_at(text, tag, cut_off)).flatten() {
            Some((call, end)) => {
                scan.take(tag, end);
                calls.push(call);
            }
            None => scan.advance(tag + TAG.len()),
        }
    }
    scan.advance(text.len());
    if cut_off && let Some(start) = half_tag(text, scan.taken_to) {
        scan.removed.push(start..text.len());
        let args = text[start..].to_owned();
        calls.push(WrittenCall { name: String::new(), args, fault: Some(was_cut_off()) });
    }
    Written { say: scan.say(), calls }
}

/// Where a reply that was cut off ends within a tag; shorter beginnings than `[SYS_` may be anything.
fn half_tag(text: &str, from: usize) -> Option<usize> {
    let rest = &text[from..];
    (5..TAG.len()).rev().find(|length| rest.ends_with(&TAG[..*length])).map(|length| text.len() - length)
}

/// Reads the call whose tag starts at `tag`, and where it ends. `None` where no name follows: then it is prose.
fn call_at(text: &str, tag: usize, cut_off: bool) -> Option<(WrittenCall, usize)> {
    let bytes = text.as_bytes();
    let name_at = tag + TAG.len();
    let name_end = name_at + run(bytes, name_at, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    let name = &text[name_at..name_end];
    let broken = |fault: CallError, from: usize, end: usize| {
        Some((WrittenCall { name: name.to_owned(), args: text[from..end].to_owned(), fault: Some(fault) }, end))
    };
    if name_end == text.len() && cut_off {
        return broken(was_cut_off(), name_end, name_end);
    }
    if name.is_empty() {
        return None;
    }
    if bytes.get(name_end) != Some(&b']') {
        return broken(fault("expected `]` right after the name"), name_end, name_end);
    }
    let mut at = skip_white(bytes, name_end + 1);
    let fence = fence_run(bytes, at);
    if fence > 0 {
        at += fence;
        at += run(bytes, at, |b| b.is_ascii_alphanumeric());
        at = skip_white(bytes, at);
    }
    if at == text.len() && cut_off {
        return broken(was_cut_off(), at, at);
    }
    if bytes.get(at) != Some(&b'{') {
        return broken(fault("expected a JSON object right after the tag"), name_end + 1, name_end + 1);
    }
    let mut stream = serde_json::Deserializer::from_str(&text[at..]).into_iter::<IgnoredAny>();
    match stream.next() {
        Some(Ok(_)) => {
            let args_end = at + stream.byte_offset();
            let mut end = args_end;
            if fence > 0 {
                let closing = skip_white(bytes, args_end);
                let marks = fence_run(bytes, closing);
                end = if marks > 0 { closing + marks } else { args_end };
            }
            Some((WrittenCall { name: name.to_owned(), args: text[at..args_end].to_owned(), fault: None }, end))
        }
        Some(Err(error)) if error.is_eof() && cut_off => broken(was_cut_off(), at, text.len()),
        Some(Err(error)) => {
            let end = extent(text, at);
            let rest = if end == text.len() { "; the rest of the reply was taken for a part of it" } else { "" };
            broken(fault(&format!("{error}{rest}")), at, end)
        }
        // Not reached, since an object begins here; an empty stream would be an absent object.
        None => broken(fault("expected a JSON object right after the tag"), at, at),
    }
}

/// Without a hint: the example is added where it is certain that the call counts.
fn fault(expected: &str) -> CallError {
    CallError::new(Code::Inval, expected)
}

/// Where the object that begins at `at` and is no JSON seems to end: at its last brace, else at a line outside of any
/// string that begins a call or closes a fence. A tag inside one of its strings stays data; if a string never ends, that
/// is the whole rest of the reply, because a call found in there may be what a stranger wrote. What is quoted of a
/// stranger is stepped over in and outside of strings, since its own quotation marks are what broke the object.
fn extent(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut in_string, mut line_is_blank) = (0usize, false, false);
    let mut i = at;
    while i < bytes.len() {
        let byte = bytes[i];
        match byte {
            b'<' if text[i..].starts_with(QUOTE) => i = quote_end(text, i).unwrap_or(bytes.len()) - 1,
            b'\\' if in_string => i += 1,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' if line_is_blank && text[i..].starts_with(TAG) => return i,
            b'`' | b'~' if line_is_blank && fence_run(bytes, i) > 0 => return i,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
        line_is_blank = byte == b'\n' || (line_is_blank && byte.is_ascii_whitespace());
        i += 1;
    }
    bytes.len()
}

/// Where the next quotation of a stranger begins at or after `from`; the text's end where none does.
fn next_quote(text: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = text[at..].find(QUOTE) {
        at += found;
        if !is_mention(text, at) {
            return at;
        }
        at += QUOTE.len();
    }
    text.len()
}

/// Whether the mark at `at` is only spoken of: alone in a code span and without the attributes that every fence has which
/// an agent is shown. Else whoever says that `<untrusted>` holds data could make no call after it.
fn is_mention(text: &str, at: usize) -> bool {
    let rest = &text[at + QUOTE.len()..];
    let rest = rest.strip_prefix(" …").or_else(|| rest.strip_prefix(" ...")).unwrap_or(rest);
    text[..at].ends_with('`') && rest.strip_prefix('>').unwrap_or(rest).starts_with('`')
}

/// Where the quotation that begins at `at` ends, if it does.
fn quote_end(text: &str, at: usize) -> Option<usize> {
    text[at..].find(QUOTE_END).map(|length| at + length + QUOTE_END.len())
}

/// Where the block of thoughts that begins at `at` ends, if it does. The mark of its end within a quotation is the
/// stranger's. A quotation that has no end before the next begins does not count here: thoughts name the fence often, and
/// they are data anyway.
fn thought_end(text: &str, at: usize) -> Option<usize> {
    let (mut from, mut end) = (at, at);
    loop {
        if end <= from {
            end = from + text[from..].find(THOUGHT_END)? + THOUGHT_END.len();
        }
        let quote = next_quote(&text[..end], from);
        if quote == end {
            return Some(end);
        }
        let inside = quote + QUOTE.len();
        from = quote_end(&text[..next_quote(text, inside)], inside).unwrap_or(inside);
    }
}

fn run(bytes: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().take_while(|byte| belongs(**byte)).count()
}

fn skip_white(bytes: &[u8], at: usize) -> usize {
    at + run(bytes, at, |b| b.is_ascii_whitespace())
}

/// How many marks of a Markdown fence stand at `at`: three or more of one kind, else 0.
fn fence_run(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(mark @ (b'`' | b'~')) => Some(run(bytes, at, |b| b == *mark)).filter(|length| *length >= 3).unwrap_or(0),
        _ => 0,
    }
}

/// A code fence that is open.
struct Fence {
    mark: u8,
    length: usize,
    /// Its opening line.
    opening: Range<usize>,
    /// Nothing but calls and white space so far.
    only_calls: bool,
    calls: usize,
}

/// Where the pass is, and what it knows of the line and the fence around it.
struct Scan<'a> {
    text: &'a str,
    pos: usize,
    at_line_start: bool,
    /// The line is one of a block quote.
    quoted: bool,
    /// Runs of backticks in the line so far; odd within a code span.
    ticks: usize,
    /// The line so far holds nothing but white space, backticks and calls.
    bare: bool,
    fence: Option<Fence>,
    /// Where the next quotation of a stranger begins, as seen from where the pass was when it was looked for.
    quote_at: usize,
    /// No block of thoughts has an end any more, so that it is looked for once only.
    thoughts_endless: bool,
    /// What is not part of `say`.
    removed: Vec<Range<usize>>,
    /// Where the last call, or the last quotation of a stranger, ended.
    taken_to: usize,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Scan {
            text,
            pos: 0,
            at_line_start: true,
            quoted: false,
            ticks: 0,
            bare: true,
            fence: None,
            quote_at: next_quote(text, 0),
            thoughts_endless: false,
            removed: Vec::new(),
            taken_to: 0,
        }
    }

    /// Goes on to `to` over what is no call. May go beyond it, to the end of thoughts or of a quotation.
    fn advance(&mut self, to: usize) {
        loop {
            if self.at_line_start && self.pos < self.text.len() {
                self.open_line();
            }
            if self.pos >= to {
                return;
            }
            if self.quote_at < self.pos {
                self.quote_at = next_quote(self.text, self.pos);
            }
            let rest = &self.text[self.pos..to.min(self.quote_at)];
            let length = rest.find('\n').unwrap_or(rest.len());
            self.pass(self.pos + length);
            if length < rest.len() {
                self.pos += 1;
                self.at_line_start = true;
            } else if self.pos < to {
                self.skip_quote();
            }
        }
    }

    /// Steps over the quotation of a stranger that begins here. Without an end it is the whole rest of the reply: what was
    /// cut off in the middle of a quotation, or quoted without its last line, is a stranger's no less.
    fn skip_quote(&mut self) {
        self.pos = quote_end(self.text, self.pos).unwrap_or(self.text.len());
        (self.taken_to, self.bare) = (self.pos, false);
        if let Some(fence) = &mut self.fence {
            fence.only_calls = false;
        }
    }

    /// Looks at the line that begins here as a whole, and steps over a fence's own line and over thoughts.
    fn open_line(&mut self) {
        (self.at_line_start, self.quoted, self.ticks, self.bare) = (false, false, 0, true);
        let start = self.pos;
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |length| start + length);
        let line = &self.text[start..line_end];
        let trimmed = line.trim_start();
        let marks = fence_run(trimmed.as_bytes(), 0);
        if let Some(fence) = &self.fence {
            let closes = marks >= fence.length && trimmed.as_bytes()[0] == fence.mark;
            if closes && trimmed[marks..].trim().is_empty() {
                if fence.only_calls && fence.calls > 0 {
                    self.removed.push(fence.opening.clone());
                    self.removed.push(start..line_end);
                }
                self.fence = None;
                self.pos = line_end;
                return;
            }
        } else if marks > 0 {
            let info_at = start + (line.len() - trimmed.len()) + marks;
            let info = &self.text[info_at..line_end];
            // CommonMark: the info string of a fence of backticks holds none, else the line is a code span.
            if trimmed.as_bytes()[0] == b'~' || !info.contains('`') {
                let info_length = info.find(TAG).unwrap_or(info.len()).min(next_quote(info, 0));
                let only_calls = info.len() == info_length || info[..info_length].split_whitespace().count() <= 1;
                let opening = start..info_at + info_length;
                self.pos = opening.end;
                self.fence = Some(Fence { mark: trimmed.as_bytes()[0], length: marks, opening, only_calls, calls: 0 });
                return;
            }
        } else if trimmed.starts_with(THOUGHT) {
            let end = if self.thoughts_endless { None } else { thought_end(self.text, start) };
            match end {
                Some(end) => self.pos = end,
                None => self.thoughts_endless = true,
            }
            return;
        }
        self.quoted = is_quoted(trimmed);
    }

    /// Steps over text of one line that is no call.
    fn pass(&mut self, to: usize) {
        let bytes = self.text.as_bytes();
        for i in self.pos..to {
            if bytes[i] == b'`' && (i == 0 || bytes[i - 1] != b'`') {
                self.ticks += 1;
            }
            if !bytes[i].is_ascii_whitespace() {
                self.bare &= bytes[i] == b'`';
                if let Some(fence) = &mut self.fence {
                    fence.only_calls = false;
                }
            }
        }
        self.pos = to;
    }

    /// Whether the tag at `tag`, where the pass is, is a call rather than data.
    fn is_call(&self, tag: usize) -> bool {
        let before = self.text[..tag].chars().next_back();
        let quotation = matches!(before, Some('"' | '\'' | '“' | '‘' | '„' | '‚' | '«' | '‹' | '\\'));
        let in_code = match &self.fence {
            Some(fence) => !fence.only_calls,
            None => self.ticks % 2 == 1 && !self.bare,
        };
        !self.quoted && !quotation && !in_code
    }

    /// Takes a call out of the text, with the code span that wraps it.
    fn take(&mut self, tag: usize, end: usize) {
        let bytes = self.text.as_bytes();
        let (mut from, mut to) = (tag, end);
        if let Some(fence) = &mut self.fence {
            fence.calls += 1;
        } else if self.ticks % 2 == 1 {
            while from > self.taken_to && bytes[from - 1] == b'`' {
                from -= 1;
            }
            to += run(bytes, end, |b| b == b'`');
            self.ticks = 0;
        }
        self.removed.push(from..to);
        (self.pos, self.taken_to, self.quoted) = (to, to, false);
    }

    /// The text without what was removed. Where something was, the white space around it becomes one break.
    fn say(mut self) -> String {
        self.removed.sort_by_key(|range| range.start);
        let mut say = String::with_capacity(self.text.len());
        let mut from = 0;
        let end = std::iter::once(self.text.len()..self.text.len());
        let mut pending = String::new();
        for range in self.removed.into_iter().chain(end) {
            let piece = &self.text[from..range.start];
            let words = piece.trim();
            if words.is_empty() {
                pending.push_str(piece);
            } else {
                let lead = &piece[..piece.len() - piece.trim_start().len()];
                pending.push_str(lead);
                if !say.is_empty() {
                    let breaks = pending.matches('\n').count();
                    say.push_str(["", "\n", "\n\n"][breaks.min(2)]);
                    if breaks == 0 {
                        say.push(' ');
                    }
                }
                say.push_str(words);
                pending = piece[piece.trim_end().len()..].to_owned();
            }
            from = range.end;
        }
        say
    }
}

/// Whether a line, trimmed at its start, is one of a block quote, be it inside a list.
fn is_quoted(line: &str) -> bool {
    let mut rest = line;
    // Lists nest; eight levels are more than anybody writes and keep a line of dashes cheap.
    for _ in 0..8 {
        let digits = run(rest.as_bytes(), 0, |b| b.is_ascii_digit());
        let marker = match rest.as_bytes().get(digits) {
            Some(b'-' | b'*' | b'+') if digits == 0 => 1,
            Some(b'.' | b')') if digits > 0 => digits + 1,
            _ => break,
        };
        rest = rest[marker..].trim_start();
    }
    rest.starts_with('>')
}
