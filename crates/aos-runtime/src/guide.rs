//! What may come next in a reply: a grammar in progress, and the choice of a token under it.
//!
//! Start at [`Guides::start`]. What always holds: a token that the grammar does not let through is never chosen, however
//! likely it is; near the end of its room a reply is closed rather than cut, so that no half call comes out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::syscall::CallSet;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use crate::fault::Fault;
use crate::grammar;
use crate::vocabulary::Vocabulary;

/// Most sets of calls whose grammar is kept. They follow from roles, so there are few.
const SETS_MAX: usize = 64;

/// The grammars over one vocabulary.
pub(crate) struct Guides {
    factory: ParserFactory,
    by_calls: HashMap<CallSet, Matcher>,
}

/// One grammar in progress.
pub(crate) struct Guide {
    matcher: Matcher,
    /// Time spent on masks, and how many there were.
    pub(crate) spent: Duration,
    pub(crate) masks: u32,
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
            return Ok(Guide::new(kept.clone()));
        }
        let guide = self.start(grammar::of_calls(set))?;
        if self.by_calls.len() >= SETS_MAX {
            self.by_calls.clear();
        }
        self.by_calls.insert(set, guide.matcher.clone());
        Ok(guide)
    }

    /// A grammar from its beginning.
    pub(crate) fn start(&self, grammar: String) -> Result<Guide, Fault> {
        let matcher = Matcher::new(self.factory.create_parser(TopLevelGrammar::from_lark(grammar)));
        match matcher.get_error() {
            Some(error) => Err(Fault::Grammar(error.lines().next().unwrap_or_default().to_owned())),
            None => Ok(Guide::new(matcher)),
        }
    }
}

impl Guide {
    fn new(matcher: Matcher) -> Guide {
        Guide { matcher, spent: Duration::ZERO, masks: 0 }
    }

    /// The likeliest token that may come; `closing` prefers what ends strings, objects and lists. The grammar goes on with
    /// it. Nothing where the reply is at its end.
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        closing: bool,
        vocabulary: &Vocabulary,
    ) -> Result<Option<u32>, Fault> {
        if self.matcher.is_stopped() {
            return Ok(None);
        }
        let began = Instant::now();
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
        self.masks += 1;
        let Some((id, ..)) = best else {
            self.spent += began.elapsed();
            return match self.matcher.is_accepting() {
                Ok(true) => Ok(None),
                Ok(false) => Err(Fault::Grammar("nothing may come next".to_owned())),
                Err(error) => Err(broken(&error)),
            };
        };
        self.matcher.consume_token(id).map_err(|error| broken(&error))?;
        self.spent += began.elapsed();
        Ok(Some(id))
    }

    /// Whether the reply is whole.
    pub(crate) fn ended(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn broken(error: &impl std::fmt::Display) -> Fault {
    Fault::Grammar(error.to_string().lines().next().unwrap_or_default().to_owned())
}
