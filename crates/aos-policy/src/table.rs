//! Tables: the rules of one role about one action, indexed so that a decision does not look at every rule.
//!
//! Start at [`Table::find`]. The index is a tree over the segments of patterns and only preselects: each rule it offers
//! is matched in full. What always holds: every rule that matches is among those offered (a property test compares
//! with a linear reading), and a finding does not depend on the order of the rules, but for which of several equals is named.

use std::collections::BTreeMap;
use std::sync::Arc;

use aos_abi::entry::Verdict;

use crate::pattern::{Domain, Pattern, Segment};
use crate::scope::{Hit, Scope, host_words};
use crate::target::{Reach, Target};
use crate::terms::{Obligations, Terms};

/// One rule of a role, for one action.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Such as `role assistant: fs[0] **`.
    pub(crate) name: Arc<str>,
    pub(crate) scope: Scope,
    pub(crate) terms: Terms,
    /// Whether it gives a right. A rule that does not can only make the verdict of others stricter.
    pub(crate) grants: bool,
    /// Whether it names a private address on purpose.
    pub(crate) private: bool,
}

/// The rules about one action.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rules: Vec<Rule>,
    index: Node,
}

/// What a table says to a target.
#[derive(Debug)]
pub(crate) struct Finding<'p> {
    /// The terms of all rules that match; `None` where none of them grants.
    pub(crate) terms: Option<Terms>,
    /// What is said to a part of what the call reaches, where none grants the whole.
    pub(crate) partly: Terms,
    /// The first rule with the least verdict.
    pub(crate) rule: Option<&'p Rule>,
    /// Whether a rule that grants names private addresses.
    pub(crate) private: bool,
}

impl Table {
    pub(crate) fn push(&mut self, rule: Rule) {
        let at = self.rules.len();
        self.index.insert(&rule.scope, at);
        self.rules.push(rule);
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that give a right of any kind.
    pub(crate) fn granting(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.grants && rule.terms.verdict > Verdict::Deny)
    }

    pub(crate) fn find(&self, target: &Target<'_>) -> Finding<'_> {
        let mut finding = Finding { terms: None, partly: Terms::unbounded(), rule: None, private: false };
        let mut granted = false;
        let mut verdict = Verdict::Allow;
        let mut obligations = Obligations::default();
        for at in self.index.offer(target) {
            let rule = &self.rules[at];
            let hit = rule.scope.hit(target);
            // A rule that holds only a part of what the call reaches cannot grant it, but its strictness counts.
            if hit == Hit::Missed {
                continue;
            }
            if hit == Hit::Partly && rule.terms.verdict == Verdict::Allow {
                // What it reaches comes back all the same.
                obligations.labels = obligations.labels.and(rule.terms.obligations.labels);
                continue;
            }
            let gives = rule.grants && hit == Hit::Fully;
            granted |= gives;
            finding.private |= gives && rule.private;
            if finding.rule.is_none() || rule.terms.verdict < verdict {
                finding.rule = Some(rule);
            }
            verdict = verdict.min(rule.terms.verdict);
            obligations.join(&rule.terms.obligations);
        }
        let terms = Terms { verdict, obligations };
        if granted || verdict == Verdict::Deny {
            finding.terms = Some(terms);
        } else {
            finding.partly = terms;
        }
        finding
    }
}

/// A node of the index: what may come next, and the rules whose pattern ends here.
#[derive(Clone, Debug, Default)]
struct Node {
    literal: BTreeMap<Box<str>, Node>,
    wild: Vec<(Domain, Segment, Node)>,
    here: Vec<usize>,
    rest: Vec<usize>,
}

/// Between the labels of a host and the segments of a path; no label is this.
const BETWEEN: &str = ":";

impl Node {
    fn insert(&mut self, scope: &Scope, rule: usize) {
        let (node, rest) = match scope {
            Scope::Words(pattern) => (self.descend(pattern), pattern.has_rest()),
            // A host with a rest would need the path in the middle of the tree; there are few such rules.
            Scope::Net(net) if !net.host.has_rest() => {
                let between = Segment::Literal(BETWEEN.into());
                let node = self.descend(&net.host).child(Domain::Host, &between).descend(&net.path);
                (node, net.path.has_rest())
            }
            Scope::Any | Scope::Commands { .. } | Scope::Net(_) | Scope::Channel { .. } => (self, true),
        };
        if rest { node.rest.push(rule) } else { node.here.push(rule) }
    }

    fn descend(&mut self, pattern: &Pattern) -> &mut Node {
        pattern.segments().iter().fold(self, |node, segment| node.child(pattern.domain(), segment))
    }

    fn child(&mut self, domain: Domain, segment: &Segment) -> &mut Node {
        match segment {
            Segment::Literal(word) => self.literal.entry(word.clone()).or_default(),
            Segment::Wild { .. } => {
                let known = self.wild.iter().position(|(of, known, _)| *of == domain && known == segment);
                let at = known.unwrap_or_else(|| {
                    self.wild.push((domain, segment.clone(), Node::default()));
                    self.wild.len() - 1
                });
                &mut self.wild[at].2
            }
        }
    }

    /// The rules that may match, in the order of the file.
    fn offer(&self, target: &Target<'_>) -> Vec<usize> {
        let mut rules = Vec::new();
        match target {
            Target::Words { words, reach } => {
                let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
                self.collect(&words, *reach > Reach::Itself, &mut rules);
            }
            Target::Net { address, .. } => {
                let mut words = host_words(&address.host);
                words.push(BETWEEN);
                words.extend(address.path.iter().map(String::as_str));
                self.collect(&words, false, &mut rules);
            }
            Target::Bare | Target::Command(_) | Target::Channel { .. } => rules.extend(&self.rest),
        }
        rules.sort_unstable();
        rules
    }

    /// Adds the rules along `words`, and with `below` those below its end.
    fn collect(&self, words: &[&str], below: bool, rules: &mut Vec<usize>) {
        rules.extend(&self.rest);
        match words.split_first() {
            Some((word, words)) => {
                if let Some(node) = self.literal.get(*word) {
                    node.collect(words, below, rules);
                }
                for (_, _, node) in self.wild.iter().filter(|(domain, segment, _)| segment.matches(*domain, word)) {
                    node.collect(words, below, rules);
                }
            }
            None => {
                rules.extend(&self.here);
                if below {
                    let children = self.literal.values().chain(self.wild.iter().map(|(_, _, node)| node));
                    children.for_each(|node| node.collect(&[], true, rules));
                }
            }
        }
    }
}
