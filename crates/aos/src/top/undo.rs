//! What was done and can be taken back: a list over the table, then what taking one back would do.
//!
//! Start at [`pressed`]. What always holds: nothing is taken back that was not shown whole before; what cannot be taken back,
//! since somebody changed a path since, is shown with the reason and takes no yes.

use aos_abi::Timestamp;
use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::page;
use super::state::{Over, Preview, State, Undoable};
use super::update::Command;
use crate::cli::{clean_line, cut, duration};

/// What can still be taken back, the newest first.
fn open(state: &State) -> Vec<&Undoable> {
    state.undoable.iter().flatten().filter(|one| one.until > state.now).collect()
}

/// Draws the list.
pub(super) fn list(state: &State, at: usize, frame: &mut Frame<'_>) {
    let size = (frame.area().width, frame.area().height);
    let open = open(state);
    let at = at.min(open.len().saturating_sub(1));
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (nth, one) in open.iter().enumerate().skip(page::first(at, open.len(), size)).take(page::room(size).max(1)) {
        let text = format!("{:<7}{:<7}{:>7}  {}", one.id, one.pid.to_string(), left(one.until, state.now), one.call);
        let style = if nth == at { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::styled(cut(&clean_line(&text), page::columns(size)).into_owned(), style));
    }
    if open.is_empty() {
        let none = if state.undoable.is_none() { "it is being read…" } else { "nothing can be taken back" };
        lines.push(Line::raw(none));
    }
    let title = format!(" {} can be taken back: id, process, time left, call ", open.len());
    let keys = state.said.as_deref().unwrap_or("Enter shows what it would do  ↑↓ move  Esc back");
    page::panel(frame, title, String::new(), lines, keys);
}

pub(super) fn left(until: Timestamp, now: Timestamp) -> String {
    duration(until.millis_since(now) / 1_000)
}

/// Draws what taking one back would do.
pub(super) fn preview(shown: &Preview, from: usize, frame: &mut Frame<'_>) {
    let keys = if shown.may {
        "y takes it back  ↑↓ scroll  Esc back to the list"
    } else {
        "↑↓ scroll  Esc back to the list"
    };
    page::text(frame, format!(" undo {}? ", clean_line(&shown.id)), &shown.lines, from, keys);
}

/// A key while the list stands over the table.
pub(super) fn pressed(state: &mut State, at: usize, key: KeyCode) -> Option<Command> {
    let open = open(state);
    let end = open.len().saturating_sub(1);
    match key {
        KeyCode::Esc | KeyCode::Char('q' | 'u') => None,
        KeyCode::Enter => {
            let id = open.get(at.min(end)).map(|one| one.id.clone());
            state.over = Some(Over::Undo { at });
            id.map(|id| Command::Preview { id, at })
        }
        _ => {
            state.over = Some(Over::Undo { at: page::moved(at, end, key, state.size) });
            None
        }
    }
}

/// A key while it is shown what taking one back would do.
pub(super) fn pressed_on_preview(state: &mut State, shown: Preview, from: usize, key: KeyCode) -> Option<Command> {
    match key {
        KeyCode::Char('y') if shown.may => {
            state.over = Some(Over::Undo { at: shown.at });
            Some(Command::Undo(shown.id))
        }
        KeyCode::Esc | KeyCode::Char('q') => {
            state.over = Some(Over::Undo { at: shown.at });
            None
        }
        _ => {
            let from = page::moved(from, page::last(&shown.lines, state.size), key, state.size);
            state.over = Some(Over::Undoing { shown, from });
            None
        }
    }
}
