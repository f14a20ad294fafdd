//! Answers of aos-nano as tokens, and back (`models/nano/FORMAT.md`, part 5).
//!
//! Start at [`Codec::decode`]. A reply is one call, its token and then each field's token with its value, or one sentence. A
//! value is a choice among literals, a number, or spans; a span is the tokens of a source, or the whole of one of the last
//! results. The runtime writes the JSON from it, so the model never does. What always holds: what is decoded names what was
//! shown to the last byte, or is a literal of the file's; tokens that might mean several texts mean none but a person's.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::PROMPT_IDS;
use super::grammar::{Field, Grammar, Kind, Template};
use super::meant::Unmeant;
use super::words::{Table, Token, Words};

/// Units of time and their seconds, the largest first.
pub(crate) const UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
/// Last results that can be named whole.
pub(crate) const WHOLES: usize = 4;

/// A text of the prompt that may be copied from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// What a call brought, its error included.
    pub(crate) result: bool,
    pub(crate) steers: Steers,
}

/// How far a text may say what a call is about: its names, paths, addresses and tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steers {
    /// A person said it.
    Wholly,
    /// It names things: where its lines begin, and as the number of a new process.
    Names,
    /// It was read: whoever wrote it asks for nothing.
    Nothing,
}

/// The reply where the texts that an answer names are not certain. It is true before and after things were done.
const UNSURE: &str = "I cannot tell which of several words is meant here, so I leave it. A larger model could do it.";

/// What stands before the number of a new process.
const PID_MARK: &str = "pid ";

impl Source {
    /// Each place where these tokens stand.
    pub(crate) fn places<'a>(&'a self, ids: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let windows = self.tokens.windows(ids.len().max(1)).enumerate();
        let alike = move |window: &[Token]| window.iter().map(|token| &token.id).eq(ids);
        windows.filter(move |(_, window)| alike(window)).map(|(at, _)| at)
    }

    /// Whether this text, of these tokens, stands where this source may say what a call is about.
    fn names(&self, text: &str, ids: &[u32]) -> bool {
        let begins = |at: usize| {
            let line = self.text[..self.tokens[at].begin].rsplit('\n').next().unwrap_or_default();
            line.is_empty() || line == PID_MARK
        };
        let mut places = self.places(ids).filter(|at| self.cut(*at, ids.len()) == text);
        match self.steers {
            Steers::Wholly => places.next().is_some(),
            Steers::Names => places.any(begins),
            Steers::Nothing => false,
        }
    }

    /// The text of some tokens.
    fn cut(&self, at: usize, count: usize) -> &str {
        &self.text[self.tokens[at].begin..self.tokens[at + count - 1].end]
    }
}

/// What a prompt showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) sources: Vec<Source>,
    pub(crate) table: Table,
    /// Shared slots in replies of before, where they may stand for what is shown no longer.
    pub(crate) unsure: BTreeSet<u32>,
    /// What is said in the place of any call: it was taught nothing about what it is asked now.
    pub(crate) instead: Option<&'static str>,
    /// Why what it is asked does not mean what it names.
    pub(crate) unmeant: Option<Unmeant>,
    /// Something of the prompt had no room: so many tokens at least were to be read, and so many can be.
    pub(crate) beyond: Option<(usize, usize)>,
}

impl Shown {
    /// The last results, the latest first.
    pub(crate) fn results(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().rev().filter(|source| source.result).take(WHOLES)
    }
}

/// The tokens that answers are built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) end: u32,
    pub(crate) say: u32,
    pub(crate) and: u32,
    pub(crate) wholes: [u32; WHOLES],
    pub(crate) units: [u32; UNITS.len()],
}

/// From replies to tokens and back, after what has been shown.
pub(crate) struct Codec<'a> {
    pub(crate) grammar: &'a Grammar,
    pub(crate) words: &'a Words,
    pub(crate) marks: Marks,
    pub(crate) shown: &'a Shown,
}

// From a reply to tokens.
impl Codec<'_> {
    /// The tokens of a reply, its end included; `None` where it is no answer of this model.
    pub(crate) fn encode(&self, reply: &str) -> Option<Vec<u32>> {
        let reply: Value = serde_json::from_str(reply).ok()?;
        let mut ids = match reply.get("say") {
            Some(text) => self.sentence(text.as_str()?),
            None => {
                let [made] = reply.get("calls")?.as_array()?.as_slice() else { return None };
                let (call, args) = (self.grammar.call(made.get("name")?.as_str()?)?, made.get("args")?.as_object()?);
                let shape = call.shapes.iter().find(|shape| self.fits(shape, args))?;
                let mut ids = vec![call.id];
                for field in shape {
                    ids.push(field.id);
                    ids.extend(self.value(&field.kind, &args[&field.name])?);
                }
                ids
            }
        };
        ids.push(self.marks.end);
        Some(ids)
    }

    fn fits(&self, shape: &[Field], args: &Map<String, Value>) -> bool {
        let of = |field: &Field, value: &Value| match &field.kind {
            Kind::Copy | Kind::Line => value.as_str().is_some_and(|text| !text.is_empty()),
            Kind::Int | Kind::Pid | Kind::Duration => value.is_i64() || value.is_u64(),
            Kind::Cron => value.as_str().is_some_and(|text| text.split(' ').count() == 5),
            Kind::True => *value == Value::Bool(true),
            Kind::Edits => value.as_array().is_some_and(|edits| edits.iter().all(|edit| edit["old"].is_string())),
            Kind::List(names) => value.as_array().is_some_and(|all| {
                all.iter().all(|item| names.iter().any(|(name, _)| Some(name.as_str()) == item.as_str()))
            }),
            Kind::Literals(templates) => {
                value.as_str().is_some_and(|text| templates.iter().any(|template| could_be(&template.text, text)))
            }
        };
        let named = shape.iter().map(|field| &field.name).eq(args.keys());
        named && shape.iter().zip(args.values()).all(|(field, value)| of(field, value))
    }

    fn sentence(&self, text: &str) -> Vec<u32> {
        if let Some(template) = self.grammar.say.iter().find(|template| template.text == text) {
            return vec![template.id];
        }
        let filled = |template: &Template| Some((template.id, self.filled(&template.text, text)?));
        let of_spans = self.grammar.say.iter().filter(|template| template.spans() > 0);
        match of_spans.map(filled).find_map(|found| found) {
            Some((id, spans)) => [vec![id], spans].concat(),
            None => [vec![self.marks.say], self.lines(text)].concat(),
        }
    }

    /// A text made of spans with a line feed between each and the next, as few of them as may be; no more of it than a prompt
    /// takes.
    fn lines(&self, text: &str) -> Vec<u32> {
        let (mut ids, mut rest) = (Vec::new(), text);
        // What is longer than all that was shown stands nowhere in it.
        let longest = self.shown.sources.iter().map(|source| source.text.len()).max().unwrap_or_default();
        while ids.len() <= PROMPT_IDS {
            if let Some(whole) = self.span(rest) {
                ids.extend(whole);
                return ids;
            }
            let near = &rest.as_bytes()[..rest.len().min(longest + 1)];
            let mut cuts = (0..near.len()).rev().filter(|at| near[*at] == b'\n');
            let found = cuts.find_map(|at| Some((at, self.span(&rest[..at])?)));
            let Some((at, first)) = found else { break };
            ids.extend(first);
            ids.push(self.marks.and);
            rest = &rest[at + 1..];
        }
        ids.extend(self.plain(rest));
        ids
    }

    fn value(&self, kind: &Kind, value: &Value) -> Option<Vec<u32>> {
        match kind {
            Kind::Copy => Some(self.copied(value.as_str()?)),
            Kind::Line => {
                let text = value.as_str()?;
                let line = text.strip_suffix('\n').unwrap_or(text);
                Some(self.span(line).unwrap_or_else(|| self.copied(text)))
            }
            Kind::Int | Kind::Pid => Some(self.copied(&value.to_string())),
            Kind::Duration => Some(self.duration(value.as_u64()?)),
            Kind::Cron => Some(self.plain(value.as_str()?)),
            Kind::True => Some(Vec::new()),
            Kind::Edits => {
                let [edit] = value.as_array()?.as_slice() else { return None };
                let (old, new) = (edit.get("old")?.as_str()?, edit.get("new")?.as_str()?);
                let new = if new.is_empty() { Vec::new() } else { self.copied(new) };
                Some([self.copied(old), vec![self.marks.and], new].concat())
            }
            Kind::List(names) => {
                let id = |item: &Value| names.iter().find(|(name, _)| Some(name.as_str()) == item.as_str());
                value.as_array()?.iter().map(|item| id(item).map(|(_, id)| *id)).collect()
            }
            Kind::Literals(templates) => {
                let text = value.as_str()?;
                templates.iter().find_map(|template| {
                    let spans = self.filled(&template.text, text)?;
                    Some([vec![template.id], spans].concat())
                })
            }
        }
    }

    /// As it was said: the count that stands before a word with the unit's letter; else the largest unit that goes.
    fn duration(&self, seconds: u64) -> Vec<u32> {
        let fitting = || {
            let units = UNITS.iter().zip(self.marks.units).filter(|((_, size), _)| seconds.is_multiple_of(*size));
            units.map(|((name, size), id)| (seconds / size, name, id))
        };
        let said = |count: u64, name: &str| {
            let letter = name.chars().next();
            self.shown.sources.iter().any(|source| is_said(source, &count.to_string(), letter))
        };
        let known = |count: u64| self.words.known(&count.to_string()).is_some();
        let found = fitting()
            .find(|(count, name, _)| said(*count, name))
            .or_else(|| fitting().find(|(count, ..)| known(*count)))
            .map_or((seconds, self.marks.units[UNITS.len() - 1]), |(count, _, id)| (count, id));
        [self.plain(&found.0.to_string()), vec![found.1]].concat()
    }

    /// The tokens of the spans with which a template makes a text.
    fn filled(&self, template: &str, text: &str) -> Option<Vec<u32>> {
        let parts: Vec<&str> = template.split("{}").collect();
        match parts.as_slice() {
            [whole] => (*whole == text).then(Vec::new),
            [first, rest @ ..] => self.rest(rest, text.strip_prefix(first)?),
            [] => None,
        }
    }

    fn rest(&self, parts: &[&str], text: &str) -> Option<Vec<u32>> {
        let (part, others) = parts.split_first()?;
        if others.is_empty() {
            return self.span(text.strip_suffix(part).filter(|span| !span.is_empty())?);
        }
        let places = text.match_indices(part).filter(|(at, _)| *at > 0);
        places.map(|(at, _)| at).find_map(|at| {
            let span = self.span(&text[..at])?;
            let behind = self.rest(others, &text[at + part.len()..])?;
            Some([span, vec![self.marks.and], behind].concat())
        })
    }

    /// The tokens of a text that stands in what was shown.
    fn span(&self, text: &str) -> Option<Vec<u32>> {
        if let Some(nth) = self.shown.results().position(|source| source.text == text) {
            return Some(vec![self.marks.wholes[nth]]);
        }
        // Most texts stand in none, which shows without their tokens.
        let sources: Vec<&Source> = self.shown.sources.iter().filter(|source| source.text.contains(text)).collect();
        if sources.is_empty() {
            return None;
        }
        let ids = self.plain(text);
        let stands = |source: &&Source| source.places(&ids).any(|at| source.cut(at, ids.len()) == text);
        sources.iter().any(stands).then_some(ids)
    }

    /// A span; what another model said, or a person's hand made of it, stands as it is.
    fn copied(&self, text: &str) -> Vec<u32> {
        self.span(text).unwrap_or_else(|| self.plain(text))
    }

    fn plain(&self, text: &str) -> Vec<u32> {
        self.words.sought(text, PROMPT_IDS, &self.shown.table).iter().map(|token| token.id).collect()
    }
}

// What a call is about.
impl Codec<'_> {
    /// The reply in the place of an answer of which it is not certain what it names, or of a call that something read would
    /// steer: what was read, or that it was noted. `None` where each name, path, address and task of it was said by a person,
    /// or stands where a list names it.
    pub(crate) fn instead(&self, ids: &[u32]) -> Option<String> {
        if self.decode(ids).is_none() {
            return Some(format!("{{\"say\":{}}}", Value::from(UNSURE)));
        }
        let sources = &self.shown.sources;
        if sources.iter().all(|source| source.steers == Steers::Wholly) || self.is_asked(ids) {
            return None;
        }
        let said = sources.last().filter(|source| source.result).map_or(&self.grammar.noted, |source| &source.text);
        Some(format!("{{\"say\":{}}}", Value::from(said.as_str())))
    }

    fn is_asked(&self, ids: &[u32]) -> bool {
        let Some((head, body)) = ids.split_first() else { return true };
        let Some(call) = self.grammar.calls.iter().find(|call| call.id == *head) else { return true };
        let body = body.strip_suffix(&[self.marks.end]).unwrap_or(body);
        self.fields(body).into_iter().all(|(id, value)| {
            let field = call.shapes.iter().flatten().find(|field| field.id == id);
            field.is_none_or(|field| self.is_asked_in(field, value))
        })
    }

    /// Whether what stands in a field is nobody's order: contents come from anywhere.
    fn is_asked_in(&self, field: &Field, value: &[u32]) -> bool {
        let spans = match &field.kind {
            _ if self.grammar.contents.contains(&field.name) => return true,
            Kind::Copy | Kind::Pid => value,
            Kind::Literals(_) => value.get(1..).unwrap_or_default(),
            _ => return true,
        };
        // A count in a command steers nothing.
        let counts =
            |span: &[u32]| !matches!(field.kind, Kind::Pid) && matches!(span, [id] if self.words.number(*id).is_some());
        spans.split(|id| *id == self.marks.and).all(|span| span.is_empty() || counts(span) || self.is_said(span))
    }

    fn is_said(&self, span: &[u32]) -> bool {
        if let Some(nth) = self.marks.wholes.iter().position(|whole| span.first() == Some(whole)) {
            return self.shown.results().nth(nth).is_some_and(|source| source.steers != Steers::Nothing);
        }
        self.text(span).is_some_and(|text| self.shown.sources.iter().any(|source| source.names(&text, span)))
    }
}

// From tokens to a reply.
impl Codec<'_> {
    /// The reply that tokens mean, its end included; `None` where they mean none.
    pub(crate) fn decode(&self, ids: &[u32]) -> Option<String> {
        let (head, body) = ids.strip_suffix(&[self.marks.end])?.split_first()?;
        let say = |text: String| Some(format!("{{\"say\":{}}}", Value::from(text)));
        if *head == self.marks.say {
            return say(self.texts(body)?.join("\n"));
        }
        if let Some(template) = self.grammar.say.iter().find(|template| template.id == *head) {
            return say(self.meant_by(template, body)?);
        }
        let call = self.grammar.calls.iter().find(|call| call.id == *head)?;
        let args = call.shapes.iter().find_map(|shape| self.args(shape, body))?;
        Some(format!("{{\"calls\":[{{\"name\":{},\"args\":{args}}}]}}", Value::from(call.name.as_str())))
    }

    /// The arguments in the order of the shape; `None` where the tokens are not of this shape.
    fn args(&self, shape: &[Field], body: &[u32]) -> Option<String> {
        let fields = self.fields(body);
        if !fields.iter().map(|(id, _)| *id).eq(shape.iter().map(|field| field.id)) {
            return None;
        }
        let written = shape.iter().zip(fields).map(|(field, (_, value))| {
            Some(format!("{}:{}", Value::from(field.name.as_str()), self.meant(&field.kind, value)?))
        });
        Some(format!("{{{}}}", written.collect::<Option<Vec<_>>>()?.join(",")))
    }

    /// What follows the token of a call: the token of each field, with the tokens of its value.
    fn fields<'b>(&self, body: &'b [u32]) -> Vec<(u32, &'b [u32])> {
        let (mut rest, mut found) = (body, Vec::new());
        while let Some((id, behind)) = rest.split_first() {
            let len = behind.iter().position(|id| self.grammar.is_field(*id)).unwrap_or(behind.len());
            let (value, after) = behind.split_at(len);
            found.push((*id, value));
            rest = after;
        }
        found
    }

    fn meant(&self, kind: &Kind, value: &[u32]) -> Option<Value> {
        match kind {
            Kind::Copy => Some(Value::from(self.text(value)?)),
            Kind::Line => {
                let text = self.text(value)?;
                Some(Value::from(if text.ends_with('\n') { text } else { text + "\n" }))
            }
            Kind::Int | Kind::Pid => self.number(value).map(Value::from),
            Kind::Duration => {
                let one = |pair: &[u32]| {
                    let [count, unit] = pair else { return None };
                    let nth = self.marks.units.iter().position(|id| id == unit)?;
                    self.number(&[*count])?.checked_mul(UNITS[nth].1)
                };
                let sum = value.chunks(2).try_fold(0u64, |sum, pair| sum.checked_add(one(pair)?))?;
                (!value.is_empty()).then(|| Value::from(sum))
            }
            Kind::Cron => self.words.spelled(value).map(Value::from),
            Kind::True => value.is_empty().then_some(Value::Bool(true)),
            Kind::Edits => {
                let at = value.iter().position(|id| *id == self.marks.and)?;
                let new = if at + 1 == value.len() { String::new() } else { self.text(&value[at + 1..])? };
                Some(json!([{ "old": self.text(&value[..at])?, "new": new }]))
            }
            Kind::List(names) => {
                let name = |id: &u32| names.iter().find(|(_, of)| of == id).map(|(name, _)| Value::from(name.as_str()));
                (!value.is_empty()).then(|| value.iter().map(name).collect::<Option<Vec<_>>>().map(Value::from))?
            }
            Kind::Literals(templates) => {
                let (id, spans) = value.split_first()?;
                let template = templates.iter().find(|template| template.id == *id)?;
                Some(Value::from(self.meant_by(template, spans)?))
            }
        }
    }

    fn meant_by(&self, template: &Template, body: &[u32]) -> Option<String> {
        let spans = if body.is_empty() { Vec::new() } else { self.texts(body)? };
        template.fill(&spans)
    }

    fn texts(&self, body: &[u32]) -> Option<Vec<String>> {
        body.split(|id| *id == self.marks.and).map(|span| self.text(span)).collect()
    }

    /// A whole number that was shown, or that the model knows. What is too large for JSON's readers is none.
    fn number(&self, value: &[u32]) -> Option<u64> {
        self.text(value)?.parse().ok().filter(|number| *number < 1 << 53)
    }

    /// The text of a span: of a whole result, or the one that stands wherever its tokens do. Where there are several, the one
    /// that a person said last.
    fn text(&self, span: &[u32]) -> Option<String> {
        if let [id] = span
            && let Some(nth) = self.marks.wholes.iter().position(|whole| whole == id)
        {
            return self.shown.results().nth(nth).map(|source| source.text.clone());
        }
        if span.iter().any(|id| self.shown.unsure.contains(id)) {
            return None;
        }
        let sources = self.shown.sources.iter();
        let mut found: Vec<(&Source, &str)> = sources
            .flat_map(|source| source.places(span).map(move |at| (source, source.cut(at, span.len()))))
            .collect();
        // None behind a mark of capitals, where there is another.
        if found.iter().any(|(_, text)| self.plain(text) == span) {
            found.retain(|(_, text)| self.plain(text) == span);
        }
        if !alike(&found) {
            // Nobody knows whose a shared slot is here.
            if span.iter().any(|id| self.words.is_shared(*id)) {
                return None;
            }
            let last = found.iter().rev().map(|(source, _)| *source).find(|source| source.steers == Steers::Wholly)?;
            found.retain(|(source, _)| std::ptr::eq(*source, last));
            if !alike(&found) {
                return None;
            }
        }
        match (found.first(), span) {
            (Some((_, text)), _) => Some((*text).to_owned()),
            (None, [id]) => self.words.number(*id).map(str::to_owned),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
impl Codec<'_> {
    /// A text made of spans by its definition: the longest that there is, then the same of the rest.
    pub(crate) fn lines_plainly(&self, text: &str) -> Vec<u32> {
        if let Some(whole) = self.span(text) {
            return whole;
        }
        for (at, _) in text.rmatch_indices('\n') {
            if let Some(first) = self.span(&text[..at]) {
                return [first, vec![self.marks.and], self.lines_plainly(&text[at + 1..])].concat();
            }
        }
        self.plain(text)
    }
}

/// Whether all these places have the same text.
fn alike(places: &[(&Source, &str)]) -> bool {
    places.windows(2).all(|pair| pair[0].1 == pair[1].1)
}

/// Whether this number stands there with a word behind it that begins with this letter.
fn is_said(source: &Source, count: &str, letter: Option<char>) -> bool {
    source.tokens.split_last().is_some_and(|(_, tokens)| {
        tokens.iter().filter(|token| &source.text[token.begin..token.end] == count).any(|token| {
            let behind: String = source.text[token.end..].chars().take(3).collect();
            behind.trim_start_matches([' ', '-']).to_lowercase().chars().next() == letter
        })
    })
}

/// Whether a template could have made a text; spans may be anything but empty.
fn could_be(template: &str, text: &str) -> bool {
    let parts: Vec<&str> = template.split("{}").collect();
    let [first, between @ ..] = parts.as_slice() else { return false };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some((last, between)) = between.split_last() else { return rest.is_empty() };
    for part in between {
        let Some((at, _)) = rest.match_indices(part).find(|(at, _)| *at > 0) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() > last.len() && rest.ends_with(last)
}
