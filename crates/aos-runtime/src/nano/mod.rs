//! aos-nano: what it is shown of a process's history, and what it may answer.
//!
//! Start at [`Nano::prompt`]. It follows `models/nano/FORMAT.md`, whose vectors are tests here: `words` turns texts into
//! tokens, `result` says what a result is as text, `grammar` is what may be answered, `answer` goes from replies to tokens
//! and back, `guide` chooses. What always holds: control tokens come from here alone; each text that somebody wrote is a
//! source, of which answers may take spans, and an answer holds nothing else but the file's own literals.

mod answer;
mod grammar;
mod guide;
#[cfg(test)]
mod histories;
mod meant;
mod result;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;

use aos_abi::Name;
use aos_abi::inference::{Message, Part, Prompt};
use aos_abi::syscall::CallSet;
use serde_json::Value;

use self::answer::{Codec, Marks, Shown, Source, Steers, UNITS};
use self::grammar::Grammar;
pub(crate) use self::guide::Guide;
use self::meant::{UNMEANT, unmeant};
use self::result::{is_cut, text_of};
use self::words::{Table, Words};
use crate::fault::Fault;
use crate::vocabulary::Vocabulary;
use crate::weights::Weights;

const TEXT_IDS: usize = 384;
/// A request of more tokens is not acted on: the longest that it was taught with has 90, and of a letter or a page that is
/// pasted in it makes calls that nobody asked for.
const REQUEST_IDS: usize = 128;
const TOO_LONG: &str = "This is longer than what I understand. Tell me what to do in a sentence or two, or choose a larger \
                        model (`aos models`).";
/// What the kernel tells of a `TERM`, of which it was taught nothing either.
const TERM: &str = "[signal TERM ";
const ENDED: &str = "I was told to end.";
const RESULT_IDS: usize = 320;
const PROMPT_IDS: usize = 896;
/// In how many numberings of the slots a prompt is read.
const VOICES: u32 = 4;
const SUMMARY: &str = "[summary of what happened before this point]\n";
/// What the kernel tells of a denial that a person has lifted.
const LIFTED: &str = ": a person lifted a denial: ";
const INPUT_END: &str = "[end of standard input]";

/// The form of a model: its words, its answers, and the tokens between them.
pub(crate) struct Nano {
    words: Words,
    grammar: Grammar,
    marks: Marks,
    /// The calls that it knows, in their order.
    calls: Vec<(Name, u32)>,
    lack: u32,
    user: u32,
    reply: u32,
    result: u32,
    error: u32,
    told: u32,
    cut: u32,
}

/// A message as it is shown: somebody's text, or a reply of the model's.
enum Item {
    Said { control: u32, text: String, was_cut: bool, steers: Steers },
    Reply(String),
}

/// Whether a text is the kernel's word that a call may be made which was denied.
fn is_lifted(text: &str) -> bool {
    text.starts_with("[p") && text.split_once("]\n").is_some_and(|(header, _)| header.contains(LIFTED))
}

impl Nano {
    /// What a file says of the form.
    pub(crate) fn of(weights: &Weights, vocabulary: &Vocabulary) -> Result<Nano, Fault> {
        if weights.id("aos.nano.format") != Some(2) {
            return Err(weights.unsupported("its aos.nano.format is not 2".to_owned()));
        }
        let control = |name: &str| {
            vocabulary.control(name).ok_or_else(|| weights.unsupported(format!("it has no control token {name}")))
        };
        let known: HashMap<String, u32> = vocabulary.texts().map(|(id, text)| (text.to_owned(), id)).collect();
        let words = Words::new(vocabulary, known);
        let written: Value = serde_json::from_str(weights.text("aos.nano.grammar")?)
            .map_err(|error| weights.unsupported(format!("its aos.nano.grammar is no JSON: {error}")))?;
        let grammar = Grammar::of(&written, vocabulary);
        let of = |name: &String| Name::ALL.iter().copied().find(|known| known.as_str() == name);
        let calls = weights.texts("aos.nano.calls").unwrap_or_default();
        let calls = calls.iter().map(|name| {
            let call = of(name).ok_or_else(|| weights.unsupported(format!("there is no system call {name}")))?;
            Ok((call, control(name)?))
        });
        let mut units = [0; UNITS.len()];
        for (id, (name, _)) in units.iter_mut().zip(UNITS) {
            *id = control(&format!("<|{name}|>"))?;
        }
        let wholes = [control("<|whole1|>")?, control("<|whole2|>")?, control("<|whole3|>")?, control("<|whole4|>")?];
        let marks =
            Marks { end: control("<|end|>")?, say: control("<|say|>")?, and: control("<|and|>")?, wholes, units };
        Ok(Nano {
            words: words.ok_or_else(|| weights.unsupported("it lacks the tokens of words".to_owned()))?,
            grammar: grammar
                .ok_or_else(|| weights.unsupported("its aos.nano.grammar is of another form".to_owned()))?,
            marks,
            calls: calls.collect::<Result<_, Fault>>()?,
            lack: control("<|lack|>")?,
            user: control("<|user|>")?,
            reply: control("<|reply|>")?,
            result: control("<|result|>")?,
            error: control("<|error|>")?,
            told: control("<|told|>")?,
            cut: control("<|cut|>")?,
        })
    }

    /// For each voice but the first, the token that it reads in the place of each.
    pub(crate) fn voices(&self) -> Vec<Vec<u32>> {
        (1..VOICES).map(|voice| self.words.renumbered(voice, VOICES)).collect()
    }

    /// A prompt, ready to go on, and what was shown in it. Where it is too long, the oldest replies with what follows them are
    /// left out.
    pub(crate) fn prompt(&self, prompt: &Prompt) -> (Vec<u32>, Shown) {
        let (head, turns) = self.items(&prompt.messages);
        let (ids, shown) = self.shorten(prompt.tools, &head, &turns);
        let unmeant = self.request(&head, &turns).and_then(unmeant);
        (ids, Shown { instead: self.instead(&prompt.messages, &head, &turns), unmeant, ..shown })
    }

    /// What it says in the place of a call.
    fn instead(&self, messages: &[Message], head: &[Item], turns: &[Vec<Item>]) -> Option<&'static str> {
        let ends = |message: &Message| match message {
            Message::User(parts) => parts.iter().any(|part| matches!(part, Part::Text(text) if text.starts_with(TERM))),
            Message::Assistant { .. } | Message::Result { .. } => false,
        };
        if messages.iter().rev().take_while(|message| !matches!(message, Message::Assistant { .. })).any(ends) {
            return Some(ENDED);
        }
        let request = self.request(head, turns)?;
        (self.words.count(request, REQUEST_IDS) > REQUEST_IDS).then_some(TOO_LONG)
    }

    /// What a person said last.
    fn request<'a>(&self, head: &'a [Item], turns: &'a [Vec<Item>]) -> Option<&'a str> {
        let items = turns.iter().rev().flat_map(|turn| turn.iter().rev()).chain(head.iter().rev());
        items.into_iter().find_map(|item| match item {
            Item::Said { control, text, .. } if *control == self.user => Some(text.as_str()),
            _ => None,
        })
    }

    fn shorten(&self, tools: CallSet, head: &[Item], turns: &[Vec<Item>]) -> (Vec<u32>, Shown) {
        let since = |turn: usize| head.iter().chain(turns[turn..].iter().flatten());
        let left_out = |(ids, mut shown): (Vec<u32>, Shown), turn: usize| {
            // How much was left out is not counted: that would take as long as there is.
            if turn > 0 {
                shown.beyond = Some((PROMPT_IDS + 1, PROMPT_IDS));
            }
            (ids, shown)
        };
        for turn in self.first_turn(tools, head, turns)..turns.len() {
            let written = self.write(tools, since(turn), PROMPT_IDS);
            if written.0.len() <= PROMPT_IDS {
                return left_out(written, turn);
            }
        }
        left_out(self.write(tools, since(turns.len()), usize::MAX), turns.len())
    }

    /// The first turn with which a prompt may be short enough. It counts from the newest back and writes nothing, so what is
    /// older costs nothing.
    fn first_turn(&self, tools: CallSet, head: &[Item], turns: &[Vec<Item>]) -> usize {
        let least = |items: &[Item]| items.iter().map(|item| self.least(item)).sum::<usize>();
        let mut sum = self.lacking(tools).len() + least(head) + 1;
        let fits = |turn: &&Vec<Item>| {
            sum += least(turn);
            sum <= PROMPT_IDS
        };
        turns.len() - turns.iter().rev().take_while(fits).count()
    }

    /// The fewest tokens that an item has, whatever stands around it: a slip makes no text shorter.
    fn least(&self, item: &Item) -> usize {
        match item {
            Item::Said { control, text, was_cut, .. } => {
                let most = self.most(*control);
                let count = self.words.count(text, most);
                1 + count.min(most) + usize::from(*was_cut || count > most)
            }
            Item::Reply(text) => match serde_json::from_str::<Value>(text) {
                // Its mark, its head and its end; then each field with at least one token of text.
                Ok(reply) => {
                    let of = |value: &Value| 1 + usize::from(value.is_string() || value.is_number());
                    let args = reply["calls"][0]["args"].as_object();
                    3 + args.filter(|_| reply.get("say").is_none()).map_or(0, |args| args.values().map(of).sum())
                }
                Err(_) => 2 + self.words.count(text, PROMPT_IDS),
            },
        }
    }

    /// How many tokens of a text are shown.
    fn most(&self, control: u32) -> usize {
        if self.is_result(control) { RESULT_IDS } else { TEXT_IDS }
    }

    fn is_result(&self, control: u32) -> bool {
        control == self.result || control == self.error
    }

    /// What a prompt begins with where a process may not make all the calls.
    fn lacking(&self, tools: CallSet) -> Vec<u32> {
        let calls = self.calls.iter().filter(|(name, _)| !tools.contains(*name)).map(|(_, id)| *id);
        let calls: Vec<u32> = calls.collect();
        if calls.is_empty() { calls } else { [vec![self.lack], calls].concat() }
    }

    /// From replies to tokens and back.
    fn codec<'a>(&'a self, shown: &'a Shown) -> Codec<'a> {
        Codec { grammar: &self.grammar, words: &self.words, marks: self.marks, shown }
    }

    /// The whole reply in the place of a call that the process may not make; `None` where it may, or where no call begins
    /// with this token. Under the rest of the grammar the model would make the likeliest other call, which nobody asked for.
    /// So is what was shown where no call, or not this one, is to come of it.
    fn refusal(&self, id: u32, tools: CallSet, shown: &Shown) -> Option<String> {
        let (name, _) = self.calls.iter().find(|(_, of)| *of == id)?;
        let unmeant = shown.unmeant.is_some_and(|why| why.forbids(*name)).then_some(UNMEANT);
        let instead = shown.instead.or(unmeant);
        if instead.is_none() && tools.contains(*name) {
            return None;
        }
        let said = instead.or_else(|| self.grammar.refusal(name.as_str())).unwrap_or_default();
        Some(format!("{{\"say\":{}}}", Value::from(said)))
    }

    /// Whether a token is no part of a text: it ends a span.
    fn is_structure(&self, id: u32) -> bool {
        id == self.marks.and || self.grammar.is_field(id)
    }

    /// A prompt of these; of one with more tokens than `most` some that are more too. It is written twice where slots run
    /// out: which words need one most shows at the end, and how many tokens a text has is the same with any slots.
    fn write<'i>(
        &self,
        tools: CallSet,
        items: impl Iterator<Item = &'i Item> + Clone,
        most: usize,
    ) -> (Vec<u32>, Shown) {
        let written = self.write_with(tools, items.clone(), most, Table::default());
        let table = if written.0.len() > most { None } else { written.1.table.shared() };
        table.map(|table| self.write_with(tools, items, most, table)).unwrap_or(written)
    }

    fn write_with<'i>(
        &self,
        tools: CallSet,
        items: impl Iterator<Item = &'i Item>,
        most: usize,
        table: Table,
    ) -> (Vec<u32>, Shown) {
        let (mut ids, mut shown) = (self.lacking(tools), Shown { table, ..Shown::default() });
        for item in items {
            if ids.len() >= most {
                break;
            }
            match item {
                Item::Said { control, text, was_cut, steers } => {
                    ids.push(*control);
                    let too_long = self.show(*control, text, *steers, &mut shown, &mut ids);
                    if too_long {
                        shown.beyond = Some((self.most(*control) + 1, self.most(*control)));
                    }
                    if *was_cut || too_long {
                        ids.push(self.cut);
                    }
                }
                Item::Reply(text) => {
                    let encoded = self.codec(&shown).encode(text).unwrap_or_else(|| {
                        // With more, the prompt is too long whatever they are.
                        let (tokens, _) = self.words.shown(text, PROMPT_IDS, false, &mut shown.table);
                        tokens.iter().map(|token| token.id).chain([self.marks.end]).collect()
                    });
                    shown.unsure.extend(encoded.iter().filter(|id| self.words.is_shared(**id)));
                    ids.push(self.reply);
                    ids.extend(encoded);
                }
            }
        }
        ids.push(self.reply);
        (ids, shown)
    }

    /// A text that may be copied from; whether it was too long, and was cut.
    fn show(&self, control: u32, text: &str, steers: Steers, shown: &mut Shown, ids: &mut Vec<u32>) -> bool {
        let result = self.is_result(control);
        if control == self.user {
            self.words.correct(text, &mut shown.table);
        }
        let most = self.most(control);
        let by_person = steers == Steers::Wholly;
        let (tokens, too_long) = self.words.shown(text, most, by_person, &mut shown.table);
        let end = if too_long { tokens.last().map_or(0, |token| token.end) } else { text.len() };
        ids.extend(tokens.iter().map(|token| token.id));
        shown.sources.push(Source { text: text[..end].to_owned(), tokens, result, steers });
        too_long
    }

    /// What stands before the first reply, and each reply with all that follows it until the next.
    fn items(&self, messages: &[Message]) -> (Vec<Item>, Vec<Vec<Item>>) {
        let (mut head, mut turns): (Vec<Item>, Vec<Vec<Item>>) = (Vec::new(), Vec::new());
        let mut ordered: Option<String> = None;
        for (nth, message) in messages.iter().enumerate() {
            match message {
                Message::Assistant { text, .. } => turns.push(vec![Item::Reply(text.clone())]),
                Message::User(parts) => {
                    let place = turns.last_mut().unwrap_or(&mut head);
                    for (part_nth, part) in parts.iter().enumerate() {
                        let Part::Text(text) = part else { continue };
                        let first = nth == 0 && part_nth == 0;
                        // What was denied may be done now: what was ordered last is ordered again.
                        let again = ordered.as_deref().filter(|_| !first && is_lifted(text));
                        let item = self.part(again.unwrap_or(text), first || again.is_some());
                        if let Some(Item::Said { control, text, .. }) = &item
                            && *control == self.user
                        {
                            ordered = Some(text.clone());
                        }
                        place.extend(item);
                    }
                }
                Message::Result { name, content, .. } => {
                    turns.last_mut().unwrap_or(&mut head).push(self.outcome(name, content));
                }
            }
        }
        (head, turns)
    }

    fn part(&self, part: &str, first: bool) -> Option<Item> {
        if let Some(rest) = part.strip_prefix("[result ")
            && let Some((header, body)) = rest.split_once("]\n")
        {
            let name = header.rsplit(' ').next().unwrap_or_default();
            return Some(self.outcome(name, body));
        }
        let part = part.trim();
        let (mut control, mut text) = (self.user, part);
        // The task stands as it is, but what begins a process that has none is no task.
        if !first || ["<untrusted ", SUMMARY.trim_end()].iter().any(|begin| part.starts_with(begin)) {
            if part.starts_with("<untrusted ") {
                control = self.told;
                let inner = part.split_once('\n').map_or("", |(_, inner)| inner);
                text = inner.rsplit_once("\n</untrusted>").map_or("", |(inner, _)| inner);
            } else if let Some(summary) = part.strip_prefix(SUMMARY) {
                (control, text) = (self.told, summary);
            } else if ["[input, ", "[timer ", "[message "].iter().any(|begin| part.starts_with(begin))
                && let Some((_, inner)) = part.split_once("]\n")
            {
                text = inner;
            } else if part.starts_with('[') && part.ends_with(']') && !part.contains('\n') {
                text = "";
            }
            text = text.strip_suffix(INPUT_END).unwrap_or(text);
        }
        let text = text.trim();
        let steers = if control == self.user { Steers::Wholly } else { Steers::Nothing };
        (!text.is_empty()).then(|| Item::Said { control, text: text.to_owned(), was_cut: false, steers })
    }

    /// A result as the kernel shows it.
    fn outcome(&self, name: &str, body: &str) -> Item {
        // What is no outcome is shown as it stands, so that nothing is lost without a word.
        let outcome: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        if let Some(error) = outcome.get("error") {
            let of = |key: &str| error[key].as_str().unwrap_or_default();
            let text = format!("{} {}", of("code"), of("message"));
            return Item::Said { control: self.error, text, was_cut: false, steers: Steers::Nothing };
        }
        let by_kernel = is_cut(&outcome);
        let value = match by_kernel {
            true => outcome.get("shown"),
            false => outcome.get("result"),
        };
        let value = value.unwrap_or(&outcome);
        let said = text_of(name, value);
        // Line feeds at its end say nothing.
        let text = match said.trim_end_matches(['\r', '\n']) {
            "" => "(nothing)".to_owned(),
            said => said.to_owned(),
        };
        let names = self.grammar.naming.iter().any(|call| call == name);
        let steers = if names { Steers::Names } else { Steers::Nothing };
        Item::Said { control: self.result, text, was_cut: by_kernel || is_cut(value), steers }
    }
}
