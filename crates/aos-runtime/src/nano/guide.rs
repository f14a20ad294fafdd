//! Which tokens may come next in an answer of aos-nano, so that every answer is one call or one sentence made of what was
//! shown.
//!
//! Start at [`Guide::choose`]. It reads the answer so far against the grammar, in every way that it can be read, and
//! collects what each of them would take next. What always holds: an answer that was made of such tokens decodes, unless
//! they might mean several texts, and its spans stand in a source; near the end of its room an answer is closed rather than cut.
//! Of what a person quoted a value is all or nothing, and nothing is said twice, where anything else may be said. An answer is
//! some tens of tokens, so it is read anew for each.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::Nano;
use super::answer::{Codec, Shown, Source, Steers};
use super::grammar::{Field, Kind};
use super::words::{Token, in_word};
use aos_abi::syscall::CallSet;

/// Spans of one sentence.
const SPANS_MAX: usize = 4;
/// Names of one list, and rows of one field of a cron line.
const ITEMS_MAX: usize = 6;
const CRON_FIELDS: usize = 5;
/// Signs that join the parts of a name.
const JOINTS: [char; 3] = ['.', '_', '-'];
/// What a quotation begins with, and what it ends with.
const QUOTATIONS: [(char, char); 7] =
    [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('«', '»'), ('‘', '’'), ('„', '“')];

/// Whether a span that ends here would end within a name: `notes.m`, `notes.` or `notes` of `notes.md`.
fn splits(text: &str, end: usize) -> bool {
    let (before, mut after) = (text[..end].chars().next_back(), text[end..].chars());
    let (Some(before), Some(next)) = (before, after.next()) else { return false };
    match next {
        next if in_word(next) => in_word(before) || before == '/' || JOINTS.contains(&before),
        next => JOINTS.contains(&next) && in_word(before) && after.next().is_some_and(in_word),
    }
}

/// Where what is quoted begins and ends, without its marks and blanks before it. A mark behind a letter begins nothing, and one
/// before a letter ends nothing: such are apostrophes. Of a text that is one quotation every part may be meant.
fn quotations(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(mark) = text[at..].chars().next() {
        let inner = at + mark.len_utf8();
        let closing = QUOTATIONS.iter().find(|(opening, _)| *opening == mark).map(|(_, closing)| *closing);
        let closing = closing.filter(|_| !text[..at].chars().next_back().is_some_and(in_word));
        let end = closing.and_then(|closing| {
            let ends = |end: &usize| !text[end + closing.len_utf8()..].chars().next().is_some_and(in_word);
            text[inner..]
                .match_indices(closing)
                .map(|(end, _)| inner + end)
                .find(ends)
                .map(|end| (end, end + closing.len_utf8()))
        });
        let Some((end, after)) = end else {
            at = inner;
            continue;
        };
        let begin = end - text[inner..end].trim_start_matches(' ').len();
        if begin < end && (at, after) != (0, text.len()) {
            found.push(begin..end);
        }
        at = after;
    }
    found
}

/// For each token of what a person said the first and the last of the quotation in which it stands.
fn quoted(source: &Source) -> Vec<Option<(usize, usize)>> {
    let mut found = vec![None; source.tokens.len()];
    let quotations = if source.steers == Steers::Wholly { quotations(&source.text) } else { Vec::new() };
    for quotation in quotations {
        let within = |token: &Token| quotation.start <= token.begin && token.end <= quotation.end;
        let first = source.tokens.iter().position(within);
        let last = source.tokens.iter().rposition(within);
        if let Some((first, last)) = first.zip(last) {
            found[first..=last].fill(Some((first, last)));
        }
    }
    found
}

/// A token of a source, by their numbers, in a span that began with another.
#[derive(Clone, Copy)]
struct Place {
    source: usize,
    begin: usize,
    at: usize,
}

/// An answer in progress.
pub(crate) struct Guide {
    nano: Arc<Nano>,
    shown: Shown,
    tools: CallSet,
    ids: Vec<u32>,
    /// What may begin a span.
    starts: BTreeSet<u32>,
    numbers: BTreeSet<u32>,
    /// Those of processes: numbers that were told.
    pids: BTreeSet<u32>,
    /// Of each source, the quotations.
    quoted: Vec<Vec<Option<(usize, usize)>>>,
    reply: Option<String>,
}

impl Guide {
    pub(crate) fn new(nano: Arc<Nano>, shown: Shown, tools: CallSet) -> Guide {
        let blank: BTreeSet<u32> = nano.words.blank().collect();
        let of_sources = || shown.sources.iter().flat_map(|source| source.tokens.iter().map(|token| token.id));
        let wholes = nano.marks.wholes.into_iter().take(shown.results().count());
        let starts: BTreeSet<u32> = of_sources().filter(|id| !blank.contains(id)).chain(wholes).collect();
        let numbers: BTreeSet<u32> =
            of_sources().filter(|id| nano.words.is_digits(*id)).chain(nano.words.numbers()).collect();
        let told: BTreeSet<u32> = numbers.intersection(&starts).copied().collect();
        let pids = if told.is_empty() { numbers.clone() } else { told };
        let quoted = shown.sources.iter().map(quoted).collect();
        Guide { nano, tools, ids: Vec::new(), starts, numbers, pids, quoted, reply: None, shown }
    }

    /// The likeliest token that may come; `closing` prefers what brings the answer to its end. Nothing where it is at its
    /// end: then there is a reply.
    pub(crate) fn choose(&mut self, logits: &[f32], closing: bool) -> Option<u32> {
        if self.reply.is_some() {
            return None;
        }
        let nexts = self.nexts(closing);
        let rank = |id: &u32| match *id {
            _ if !closing => 0,
            id if id == self.nano.marks.end => 2,
            id if self.nano.is_structure(id) => 1,
            _ => 0,
        };
        // What is no number loses against any number.
        let likely =
            |id: &u32| logits.get(*id as usize).copied().filter(|logit| !logit.is_nan()).unwrap_or(f32::NEG_INFINITY);
        let best = nexts.iter().max_by(|a, b| rank(a).cmp(&rank(b)).then(likely(a).total_cmp(&likely(b))))?;
        if self.ids.is_empty()
            && let Some(refusal) = self.nano.refusal(*best, self.tools, &self.shown)
        {
            self.reply = Some(refusal);
            return None;
        }
        self.ids.push(*best);
        if *best == self.nano.marks.end {
            let codec = self.codec();
            let reply = codec.instead(&self.ids).or_else(|| codec.decode(&self.ids));
            self.reply = Some(reply.unwrap_or_default());
            return None;
        }
        Some(*best)
    }

    /// The whole answer, once it is at its end.
    pub(crate) fn reply(&self) -> Option<&str> {
        self.reply.as_deref()
    }

    fn codec(&self) -> Codec<'_> {
        self.nano.codec(&self.shown)
    }

    fn nexts(&self, closing: bool) -> BTreeSet<u32> {
        let found = if closing { BTreeSet::new() } else { self.read(false, true) };
        if found.is_empty() { self.read(closing, false) } else { found }
    }

    /// What may come; not `sparing`, quotations may be cut and spans be said twice.
    fn read(&self, closing: bool, sparing: bool) -> BTreeSet<u32> {
        let begun = self.ids.iter().rposition(|id| self.is_mark(*id)).map_or(0, |mark| mark + 1);
        let taken = if sparing { self.taken() } else { BTreeSet::new() };
        let mut reading =
            Reading { guide: self, ids: &self.ids, closing, sparing, begun, taken, found: BTreeSet::new() };
        reading.answer();
        reading.found
    }

    /// Each token, with its source's number, of the spans before the last one that stand once. The name of a file that goes
    /// into a folder is a part of its path, and taken twice.
    fn taken(&self) -> BTreeSet<(usize, usize)> {
        let mut taken = BTreeSet::new();
        if self.ids.iter().any(|id| self.nano.grammar.is_into(*id)) {
            return taken;
        }
        let begun = self.ids.iter().rposition(|id| self.is_mark(*id)).unwrap_or(0);
        for span in self.ids[..begun].split(|id| self.is_mark(*id)).filter(|span| !span.is_empty()) {
            let sources = self.shown.sources.iter().enumerate();
            let mut places = sources.flat_map(|(number, source)| source.places(span).map(move |at| (number, at)));
            if let (Some((number, at)), None) = (places.next(), places.next()) {
                taken.extend((at..at + span.len()).map(|at| (number, at)));
            }
        }
        taken
    }

    /// Whether a token stands before or behind a span.
    fn is_mark(&self, id: u32) -> bool {
        self.nano.is_structure(id) || id == self.nano.marks.say || self.nano.grammar.is_template(id)
    }

    /// Goes on with a given token; `None` where it may not come, else how many might have.
    #[cfg(test)]
    pub(crate) fn take(&mut self, id: u32) -> Option<usize> {
        let nexts = self.nexts(false);
        self.ids.push(id);
        nexts.contains(&id).then_some(nexts.len())
    }
}

/// One reading of the answer so far. Each step takes a place in it and gives the places where what it reads may end; at the
/// end of the answer it notes what it would take instead.
struct Reading<'a> {
    guide: &'a Guide,
    ids: &'a [u32],
    /// A span may end anywhere.
    closing: bool,
    /// Quotations are not cut, and nothing is said twice.
    sparing: bool,
    /// Where the last span begins, and what it may not be made of.
    begun: usize,
    taken: BTreeSet<(usize, usize)>,
    found: BTreeSet<u32>,
}

type Places = BTreeSet<usize>;

impl Reading<'_> {
    fn answer(&mut self) {
        let nano = self.guide.nano.clone();
        for call in &nano.grammar.calls {
            if let Some(at) = self.token(call.id, 0) {
                for shape in &call.shapes {
                    let places = self.fields(shape, at);
                    self.then(nano.marks.end, &places);
                }
            }
        }
        for template in &nano.grammar.say {
            if let Some(at) = self.token(template.id, 0) {
                let places = self.spans(at, template.spans());
                self.then(nano.marks.end, &places);
            }
        }
        if let Some(at) = self.token(nano.marks.say, 0) {
            for count in 1..=SPANS_MAX {
                let places = self.spans(at, count);
                self.then(nano.marks.end, &places);
            }
        }
    }

    fn token(&mut self, id: u32, at: usize) -> Option<usize> {
        match self.ids.get(at) {
            None => {
                self.found.insert(id);
                None
            }
            Some(found) => (*found == id).then_some(at + 1),
        }
    }

    fn any(&mut self, ids: impl IntoIterator<Item = u32>, at: usize) -> Option<usize> {
        match self.ids.get(at) {
            None => {
                self.found.extend(ids);
                None
            }
            Some(found) => ids.into_iter().any(|id| id == *found).then_some(at + 1),
        }
    }

    fn then(&mut self, id: u32, places: &Places) -> Places {
        places.iter().filter_map(|at| self.token(id, *at)).collect()
    }

    fn fields(&mut self, shape: &[Field], at: usize) -> Places {
        let mut places = Places::from([at]);
        for field in shape {
            let behind = self.then(field.id, &places);
            places = behind.into_iter().flat_map(|at| self.value(&field.kind, at)).collect();
        }
        places
    }

    fn value(&mut self, kind: &Kind, at: usize) -> Places {
        match kind {
            Kind::Copy | Kind::Line => self.span(at, true),
            Kind::Int => self.number(at).into_iter().collect(),
            Kind::Pid => self.any(self.guide.pids.iter().copied(), at).into_iter().collect(),
            Kind::Duration => {
                let once = self.duration(&Places::from([at]));
                let twice = self.duration(&once);
                once.into_iter().chain(twice).collect()
            }
            Kind::Cron => self.cron(at),
            Kind::True => Places::from([at]),
            Kind::Edits => {
                let old = self.span(at, true);
                let behind = self.then(self.guide.nano.marks.and, &old);
                let new: Places = behind.iter().flat_map(|at| self.span(*at, true)).collect();
                behind.into_iter().chain(new).collect()
            }
            Kind::List(names) => {
                let (mut places, mut ends) = (Some(at), Places::new());
                for _ in 0..ITEMS_MAX {
                    places = places.and_then(|at| self.any(names.iter().map(|(_, id)| *id), at));
                    ends.extend(places);
                }
                ends
            }
            Kind::Literals(templates) => {
                let mut ends = Places::new();
                for template in templates {
                    if let Some(at) = self.token(template.id, at) {
                        ends.extend(self.spans(at, template.spans()));
                    }
                }
                ends
            }
        }
    }

    /// So many spans, with `<|and|>` between each and the next.
    fn spans(&mut self, at: usize, count: usize) -> Places {
        let mut places = Places::from([at]);
        for nth in 0..count {
            let behind = if nth == 0 { places } else { self.then(self.guide.nano.marks.and, &places) };
            places = behind.into_iter().flat_map(|at| self.span(at, false)).collect();
        }
        places
    }

    /// A text of a source. As a value, and no part of a literal, it is all of a quotation or none of it.
    fn span(&mut self, at: usize, value: bool) -> Places {
        let guide = self.guide;
        let (sources, value, last) = (&guide.shown.sources, value && self.sparing, at == self.begun);
        let quoted = |place: &Place| guide.quoted[place.source][place.at].filter(|_| value);
        let id_of = |place: &Place| sources[place.source].tokens[place.at].id;
        let free =
            |taken: &BTreeSet<(usize, usize)>, place: &Place| !last || !taken.contains(&(place.source, place.at));
        let all = sources.iter().enumerate();
        let all = all.flat_map(|(source, of)| (0..of.tokens.len()).map(move |at| Place { source, begin: at, at }));
        let mut places: Vec<Place> = all
            .filter(|place| free(&self.taken, place) && quoted(place).is_none_or(|(first, _)| first == place.at))
            .collect();
        let wholes = guide.nano.marks.wholes;
        let Some(first) = self.ids.get(at) else {
            let begins = places.iter().map(id_of).collect::<BTreeSet<u32>>();
            let said = |id: &u32| wholes.contains(id) && !(self.sparing && self.ids.contains(id));
            self.found.extend(guide.starts.iter().filter(|id| begins.contains(id) || said(id)));
            return Places::new();
        };
        if wholes.contains(first) {
            return Places::from([at + 1]);
        }
        let mut ends = Places::new();
        for (nth, id) in self.ids.iter().enumerate().skip(at) {
            places.retain(|place| id_of(place) == *id);
            let may_end = |place: &Place| {
                let source = &sources[place.source];
                (self.closing || !splits(&source.text, source.tokens[place.at].end))
                    && quoted(place).is_none_or(|within| within == (place.begin, place.at))
            };
            if !guide.nano.words.is_half(*id) && places.iter().any(may_end) {
                ends.insert(nth + 1);
            }
            places.retain_mut(|place| {
                let whole = quoted(place) == Some((place.begin, place.at));
                place.at += 1;
                !whole && place.at < sources[place.source].tokens.len() && free(&self.taken, place)
            });
        }
        self.found.extend(places.iter().map(id_of));
        ends
    }

    fn number(&mut self, at: usize) -> Option<usize> {
        let guide = self.guide;
        self.any(guide.numbers.iter().copied(), at)
    }

    fn duration(&mut self, places: &Places) -> Places {
        let units = self.guide.nano.marks.units;
        places.iter().filter_map(|at| self.number(*at).and_then(|at| self.any(units, at))).collect()
    }

    /// Five fields. Between two there is a blank, which is taken for granted between two numbers.
    fn cron(&mut self, at: usize) -> Places {
        let mut places = Places::from([at]);
        for nth in 0..CRON_FIELDS {
            let begins: Places = if nth == 0 { places } else { places.iter().flat_map(|at| self.gap(*at)).collect() };
            places = begins.into_iter().flat_map(|at| self.row(at)).collect();
        }
        places
    }

    fn gap(&mut self, at: usize) -> Places {
        let words = &self.guide.nano.words;
        let is_number = |id: &u32| words.number(*id).is_some();
        let blank = words.known(" ");
        let mut begins = Places::new();
        if is_number(&self.ids[at - 1]) && self.ids.get(at).is_none_or(is_number) {
            begins.extend(self.any(words.numbers(), at).map(|_| at));
        }
        begins.extend(blank.and_then(|blank| self.token(blank, at)));
        begins
    }

    /// One field: `*`, numbers, ranges and steps, joined by commas.
    fn row(&mut self, at: usize) -> Places {
        let words = &self.guide.nano.words;
        let sign = |text: &str| words.known(text);
        let (mut places, mut ends) = (Places::from([at]), Places::new());
        for _ in 0..ITEMS_MAX {
            let mut rows = Places::new();
            for at in places {
                rows.extend(self.any(words.numbers(), at));
                rows.extend(sign("*").and_then(|star| self.token(star, at)));
            }
            let mut stepped = Places::new();
            for at in &rows {
                for mark in ["-", "/"].into_iter().filter_map(sign) {
                    stepped.extend(self.token(mark, *at).and_then(|at| self.any(words.numbers(), at)));
                }
            }
            rows.extend(stepped);
            places = sign(",").map_or_else(Places::new, |comma| self.then(comma, &rows));
            ends.extend(rows);
        }
        ends
    }
}
