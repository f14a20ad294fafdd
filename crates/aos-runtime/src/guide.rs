//! What may come next in a reply: a grammar in progress, and the choice of a token under it.
//!
//! Start at [`Guides::calls`]. aos-nano brings a guide of its own. What always holds: a token that the grammar does not let through is never chosen, however
//! likely it is; near the end of its room a reply is closed rather than cut, so that no half call comes out.

use std::collections::HashMap;
use std::sync::Arc;

use aos_abi::syscall::CallSet;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use crate::fault::Fault;
use crate::grammar;
use crate::nano;
use crate::vocabulary::Vocabulary;

/// Most sets of calls whose grammar is kept. They follow from roles, so there are few.
const SETS_MAX: usize = 64;

/// The grammars over one vocabulary.
pub(crate) struct Guides {
    factory: ParserFactory,
    by_calls: HashMap<CallSet, Matcher>,
}

/// A reply in progress.
pub(crate) enum Guide {
    /// Held to the system calls' schemas.
    Calls(Box<Matched>),
    /// Held to what aos-nano answers.
    Nano(Box<nano::Guide>),
}

/// One grammar in progress.
pub(crate) struct Matched {
    matcher: Matcher,
}

impl Guides {
    /// `end` is the token that ends a reply.
    pub(crate) fn new(vocabulary: &Vocabulary, end: u32) -> Result<Guides, Fault> {
        let words: Vec<Vec<u8>> = (0..vocabulary.len() as u32)
            .map(|id| match vocabulary.bytes(id) {
                // Nothing that is no text matches any text.
                [] => {
                    format!("\u{0}<|{id}|>").into_bytes().into_iter().map(|b| if b == 0 { 0xff } else { b }).collect()
                }
                bytes => bytes.to_vec(),
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &[]);
        let mut factory = factory.map_err(|error| broken(&error))?;
        factory.quiet();
        Ok(Guides { factory, by_calls: HashMap::new() })
    }

    /// A reply of the constrained encoding with calls of the set.
    pub(crate) fn calls(&mut self, set: CallSet) -> Result<Guide, Fault> {
        if let Some(kept) = self.by_calls.get(&set) {
            return Ok(Guide::matched(kept.clone()));
        }
        let grammar = TopLevelGrammar::from_lark(grammar::of_calls(set));
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        if let Some(error) = matcher.get_error() {
            return Err(Fault::Grammar(error.lines().next().unwrap_or_default().to_owned()));
        }
        if self.by_calls.len() >= SETS_MAX {
            self.by_calls.clear();
        }
        self.by_calls.insert(set, matcher.clone());
        Ok(Guide::matched(matcher))
    }
}

impl Guide {
    fn matched(matcher: Matcher) -> Guide {
        Guide::Calls(Box::new(Matched { matcher }))
    }

    /// The likeliest token that may come; `closing` prefers what brings the reply to its end. The guide goes on with it.
    /// Nothing where the reply is at its end.
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        closing: bool,
        vocabulary: &Vocabulary,
    ) -> Result<Option<u32>, Fault> {
        match self {
            Guide::Calls(matched) => matched.choose(logits, closing, vocabulary),
            Guide::Nano(guide) => Ok(guide.choose(logits, closing)),
        }
    }

    /// Whether the reply is whole.
    pub(crate) fn ended(&self) -> bool {
        match self {
            Guide::Calls(matched) => matched.matcher.is_stopped(),
            Guide::Nano(guide) => guide.reply().is_some(),
        }
    }
}

impl Matched {
    fn choose(&mut self, logits: &[f32], closing: bool, vocabulary: &Vocabulary) -> Result<Option<u32>, Fault> {
        if self.matcher.is_stopped() {
            return Ok(None);
        }
        let mask = self.matcher.compute_mask().map_err(|error| broken(&error))?;
        let mut best: Option<(u32, u8, f32)> = None;
        mask.iter_set_entries(|id| {
            let id = id as u32;
            let (Some(logit), bytes) = (logits.get(id as usize), vocabulary.bytes(id)) else { return };
            let Some(first) = bytes.first() else { return };
            let rank = match first {
                b'"' if closing => 3,
                b'}' if closing => 2,
                b']' if closing => 1,
                _ => 0,
            };
            // What is no number loses against any number.
            let logit = if logit.is_nan() { f32::NEG_INFINITY } else { *logit };
            if best.is_none_or(|(_, rank_best, best)| (rank, logit) > (rank_best, best)) {
                best = Some((id, rank, logit));
            }
        });
        let Some((id, ..)) = best else {
            return match self.matcher.is_accepting() {
                Ok(true) => Ok(None),
                Ok(false) => Err(Fault::Grammar("nothing may come next".to_owned())),
                Err(error) => Err(broken(&error)),
            };
        };
        self.matcher.consume_token(id).map_err(|error| broken(&error))?;
        Ok(Some(id))
    }
}

fn broken(error: &impl std::fmt::Display) -> Fault {
    Fault::Grammar(error.to_string().lines().next().unwrap_or_default().to_owned())
}
