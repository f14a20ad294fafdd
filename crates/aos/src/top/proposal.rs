//! A proposal over the table: all of it, in lines as wide as the screen lets them be.
//!
//! Start at [`draw`].

use std::borrow::Cow;

use ratatui::Frame;

use super::page;
use super::state::{State, Waiting};
use crate::cli::clean_line;

/// The furthest line that one can begin at.
pub(super) fn last(waiting: &Waiting, size: (u16, u16)) -> usize {
    page::last(&lines(waiting), size)
}

/// Draws it over everything but the last row.
pub(super) fn draw(state: &State, waiting: &Waiting, from: usize, frame: &mut Frame<'_>) {
    let title = format!(" {} of process {}: {} ", clean_line(&waiting.id), waiting.pid, clean_line(&waiting.call));
    let keys = if state.waiting.len() > 1 {
        "a approve  r reject  ↑↓ scroll  Tab next  Esc back"
    } else {
        "a approve  r reject  ↑↓ scroll  Esc back"
    };
    page::text(frame, title, &lines(waiting), from, state.said.as_deref().unwrap_or(keys));
}

/// All that is known of it, as far as it was read.
pub(super) fn lines(waiting: &Waiting) -> Cow<'_, [String]> {
    if waiting.shown.is_empty() {
        return Cow::Owned(vec!["it is being read…".to_owned()]);
    }
    Cow::Borrowed(&waiting.shown)
}
