//! The window: which entries a process's next prompt shows, and what gives way when they are too many.
//!
//! Start at [`Window::push`] and [`Window::plan`]. What always holds: a segment (see [`Fit`]) is kept or summarised as a
//! whole, so a call is never parted from its result; the newest segment and the task are kept; a window whose plan is
//! `None` renders to no more than its budget; and a plan always makes the window smaller, so none ever wedges.

use aos_abi::Lsn;
use serde::{Deserialize, Serialize};

use crate::{Fit, ItemKind};

/// One entry of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Where it stands in the journal. Not always rising: a summary is younger than what follows it.
    pub lsn: Lsn,
    /// Tokens it takes if it is not cut to fit, estimated from [`crate::item_bytes`].
    pub tokens: u32,
    /// What it is.
    pub kind: ItemKind,
}

/// The entries of a window, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    items: Vec<Item>,
}

/// The oldest part of a window that is to give way to a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The last item that the summary stands for.
    pub upto: Lsn,
    /// What the summary is made from: the task, an older summary, and the segments that go. Sorted.
    covered: Vec<Lsn>,
    /// Tokens of the window before, as they would be shown.
    pub tokens_before: u64,
    /// Tokens that stay, without the summary.
    pub tokens_kept: u64,
}

impl Compaction {
    /// Whether the summary is to be made from this item, among others.
    #[must_use]
    pub fn covers(&self, item: &Item) -> bool {
        self.covered.binary_search(&item.lsn).is_ok()
    }
}

impl Window {
    /// Adds an item at the end.
    pub fn push(&mut self, lsn: Lsn, tokens: u32, kind: ItemKind) {
        self.items.push(Item { lsn, tokens, kind });
    }

    /// The items, in the order in which they are shown.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.iter()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Tokens of all items, uncut: never less than what is shown.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.items.iter().map(|item| u64::from(item.tokens)).sum()
    }

    /// Tokens of all items as they are shown within a budget: what is too large counts as cut.
    #[must_use]
    pub fn tokens_within(&self, budget_tokens: u64) -> u64 {
        let fit = self.fit(budget_tokens);
        let (head, body) = self.parts();
        self.head_tokens(head, fit) + segments(body).map(|segment| segment_tokens(segment, fit)).sum::<u64>()
    }

    /// How items are cut to that budget; [`crate::render_fitted`] wants the same.
    #[must_use]
    pub fn fit(&self, budget_tokens: u64) -> Fit {
        Fit::for_budget(budget_tokens)
    }

    /// What has to be summarised before the window is shown within `budget_tokens`; `None` where it fits. Takes the
    /// fewest of the oldest segments so that those which stay take at most three eighths of the budget, always keeps the
    /// newest, and leaves at most three quarters in all, the summary included.
    #[must_use]
    pub fn plan(&self, budget_tokens: u64) -> Option<Compaction> {
        let tokens_before = self.tokens_within(budget_tokens);
        if tokens_before <= budget_tokens {
            return None;
        }
        let fit = self.fit(budget_tokens);
        let (head, body) = self.parts();
        let sizes: Vec<(usize, u64)> =
            segments(body).map(|segment| (segment.len(), segment_tokens(segment, fit))).collect();
        let mut kept_tokens = sizes.last()?.1;
        let mut kept_segments = 1;
        for (_, tokens) in sizes.iter().rev().skip(1) {
            if kept_tokens + tokens > fit.kept_tokens() {
                break;
            }
            kept_tokens += tokens;
            kept_segments += 1;
        }
        let gone: usize = sizes[..sizes.len() - kept_segments].iter().map(|(length, _)| length).sum();
        // The task stays although it opens the first segment as long as there is no summary.
        let goes = |item: &&Item| item.kind != ItemKind::Task || item.lsn != self.items[0].lsn;
        let upto = body[..gone].iter().rfind(goes)?.lsn;
        let mut covered: Vec<Lsn> = head.iter().chain(&body[..gone]).map(|item| item.lsn).collect();
        covered.sort_unstable();
        Some(Compaction { upto, covered, tokens_before, tokens_kept: kept_tokens })
    }

    /// The items that a summary up to there is made from, in order; none where there is no such item.
    pub fn covered(&self, upto: Lsn) -> impl Iterator<Item = &Item> {
        let count = self.items.iter().position(|item| item.lsn == upto).map_or(0, |last| last + 1);
        self.items[..count].iter()
    }

    /// Puts a summary in the place of everything up to and including `upto`, the task excepted. Says whether it did:
    /// where no such item is (any more), nothing changes.
    pub fn compacted(&mut self, upto: Lsn, summary_lsn: Lsn, summary_tokens: u32) -> bool {
        let Some(last) = self.items.iter().position(|item| item.lsn == upto) else { return false };
        let from = self.task();
        if last < from {
            return false;
        }
        let summary = Item { lsn: summary_lsn, tokens: summary_tokens, kind: ItemKind::Summary };
        self.items.splice(from..=last, [summary]);
        true
    }

    /// 1 where the first item is the task, else 0.
    fn task(&self) -> usize {
        usize::from(self.items.first().is_some_and(|item| item.kind == ItemKind::Task))
    }

    /// The head (task and summary where there is a summary) and the rest.
    fn parts(&self) -> (&[Item], &[Item]) {
        let summary = self.task();
        match self.items.get(summary) {
            Some(item) if item.kind == ItemKind::Summary => self.items.split_at(summary + 1),
            Some(_) | None => self.items.split_at(0),
        }
    }

    fn head_tokens(&self, head: &[Item], fit: Fit) -> u64 {
        head.iter().map(|item| u64::from(item.tokens).min(fit.head_tokens())).sum()
    }
}

/// The segments of a body: each begins at a turn, but for the first.
fn segments(body: &[Item]) -> impl Iterator<Item = &[Item]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let length = rest.iter().skip(1).position(|item| item.kind == ItemKind::Turn).map_or(rest.len(), |at| at + 1);
        let (segment, after) = rest.split_at(length);
        rest = after;
        (!segment.is_empty()).then_some(segment)
    })
}

fn segment_tokens(segment: &[Item], fit: Fit) -> u64 {
    segment.iter().map(|item| u64::from(item.tokens)).sum::<u64>().min(fit.segment_tokens())
}
