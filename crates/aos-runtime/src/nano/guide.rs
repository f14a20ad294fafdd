//! Which tokens may come next in an answer of aos-nano, so that every answer is one call or one sentence made of what was
//! shown.
//!
//! Start at [`Guide::choose`]. It reads the answer so far against the grammar, in every way that it can be read, and
//! collects what each of them would take next. What always holds: an answer that was made of such tokens decodes, unless
//! they might mean several texts, and its spans stand in a source; near the end of its room an answer is closed rather than cut. An answer is some tens of tokens,
//! so it is read anew for each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Nano;
use super::answer::{Codec, Shown, Source};
use super::grammar::{Field, Kind};
use super::words::in_word;
use aos_abi::syscall::CallSet;

/// Spans of one sentence.
const SPANS_MAX: usize = 4;
/// Names of one list, and rows of one field of a cron line.
const ITEMS_MAX: usize = 6;
const CRON_FIELDS: usize = 5;
/// Signs that join the parts of a name.
const JOINTS: [char; 3] = ['.', '_', '-'];

/// Whether a span that ends here would end within a name: `notes.m`, `notes.` or `notes` of `notes.md`.
fn splits(text: &str, end: usize) -> bool {
    let (before, mut after) = (text[..end].chars().next_back(), text[end..].chars());
    let (Some(before), Some(next)) = (before, after.next()) else { return false };
    match next {
        next if in_word(next) => in_word(before) || before == '/' || JOINTS.contains(&before),
        next => JOINTS.contains(&next) && in_word(before) && after.next().is_some_and(in_word),
    }
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
        Guide { nano, tools, ids: Vec::new(), starts, numbers, pids, reply: None, shown }
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
            && let Some(refusal) = self.nano.refusal(*best, self.tools)
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
        let mut reading = Reading { guide: self, ids: &self.ids, closing, found: BTreeSet::new() };
        reading.answer();
        reading.found
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
            Kind::Copy | Kind::Line => self.span(at),
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
                let old = self.span(at);
                let behind = self.then(self.guide.nano.marks.and, &old);
                let new: Places = behind.iter().flat_map(|at| self.span(*at)).collect();
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
            places = behind.into_iter().flat_map(|at| self.span(at)).collect();
        }
        places
    }

    fn span(&mut self, at: usize) -> Places {
        let guide = self.guide;
        let Some(first) = self.ids.get(at) else {
            self.found.extend(&guide.starts);
            return Places::new();
        };
        if guide.nano.marks.wholes.contains(first) {
            return Places::from([at + 1]);
        }
        let mut ends = Places::new();
        let sources = guide.shown.sources.iter();
        let mut places: Vec<(&Source, usize)> =
            sources.flat_map(|source| (0..source.tokens.len()).map(move |nth| (source, nth))).collect();
        for at in at.. {
            let Some(id) = self.ids.get(at) else {
                self.found.extend(places.iter().map(|(source, nth)| source.tokens[*nth].id));
                break;
            };
            places.retain(|(source, nth)| source.tokens[*nth].id == *id);
            let is_whole =
                |(source, nth): &(&Source, usize)| self.closing || !splits(&source.text, source.tokens[*nth].end);
            if !guide.nano.words.is_half(*id) && places.iter().any(is_whole) {
                ends.insert(at + 1);
            }
            places.retain_mut(|(source, nth)| {
                *nth += 1;
                *nth < source.tokens.len()
            });
            if places.is_empty() {
                break;
            }
        }
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
