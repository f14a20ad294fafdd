//! A proposal over the table: all of it, in lines as wide as the screen lets them be.
//!
//! Start at [`draw`].

use std::borrow::Cow;

use ratatui::Frame;

use super::page;
use super::state::{State, Waiting};
use crate::cli::clean_line;

/// The furthest line that one can begin at.
pub(super) fn last(state: &State, waiting: &Waiting, size: (u16, u16)) -> usize {
    page::last(&lines(state, waiting), size)
}

/// Draws it over everything but the last row.
pub(super) fn draw(state: &State, waiting: &Waiting, from: usize, frame: &mut Frame<'_>) {
    let title = format!(" {} of process {}: {} ", clean_line(&waiting.id), waiting.pid, clean_line(&waiting.call));
    let all = match state.alike(waiting).len() {
        0 | 1 => String::new(),
        alike => format!("  A all {alike}"),
    };
    let next = if state.waiting.len() > 1 { "  Tab next" } else { "" };
    let keys = format!("a approve{all}  r reject  ↑↓ scroll{next}  Esc back");
    page::text(frame, title, &lines(state, waiting), from, state.said.as_deref().unwrap_or(&keys));
}

/// All that is known of it, as far as it was read; and who else of its tree asks the very same.
pub(super) fn lines<'w>(state: &State, waiting: &'w Waiting) -> Cow<'w, [String]> {
    if waiting.shown.is_empty() {
        return Cow::Owned(vec!["it is being read…".to_owned()]);
    }
    let alike = state.alike(waiting);
    if alike.len() < 2 {
        return Cow::Borrowed(&waiting.shown);
    }
    let of = |id: &String| state.waiting(id).map(|one| format!("{} of process {}", clean_line(id), one.pid));
    let named: Vec<String> = alike.iter().filter_map(of).collect();
    let head = format!("the same {} times: {}", alike.len(), named.join(", "));
    Cow::Owned(std::iter::once(head).chain(waiting.shown.iter().cloned()).collect())
}
