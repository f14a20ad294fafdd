//! What was done and can be taken back: a list over the table, then what taking one back would do.
//!
//! Start at [`pressed`]. What always holds: nothing is taken back that was not shown whole before; what cannot be taken back,
//! since somebody changed a path since, is shown with the reason and takes no yes.

use aos_abi::Timestamp;
use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::proposal;
use super::state::{Over, Preview, State, Undoable};
use super::update::Command;
use crate::cli::{clean_line, cut, duration, pieces};

/// What can still be taken back, the newest first.
fn open(state: &State) -> Vec<&Undoable> {
    state.undoable.iter().flatten().filter(|one| one.until > state.now).collect()
}

/// Draws the list.
pub(super) fn list(state: &State, at: usize, frame: &mut Frame<'_>) {
    let width = usize::from(frame.area().width.saturating_sub(2));
    let open = open(state);
    let room = proposal::room((frame.area().width, frame.area().height)).max(1);
    let at = at.min(open.len().saturating_sub(1));
    let first = at.saturating_sub(room / 2).min(open.len().saturating_sub(room));
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (nth, one) in open.iter().enumerate().skip(first).take(room) {
        let text = format!("{:<7}{:<7}{:>7}  {}", one.id, one.pid.to_string(), left(one.until, state.now), one.call);
        let style = if nth == at { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::styled(cut(&clean_line(&text), width).into_owned(), style));
    }
    if open.is_empty() {
        let none = if state.undoable.is_none() { "it is being read…" } else { "nothing can be taken back" };
        lines.push(Line::raw(none));
    }
    let title = format!(" {} can be taken back: id, process, time left, call ", open.len());
    let keys = state.said.as_deref().unwrap_or("Enter shows what it would do  ↑↓ move  Esc back");
    panel(frame, title, String::new(), lines, keys);
}

fn left(until: Timestamp, now: Timestamp) -> String {
    duration(until.millis_since(now) / 1_000)
}

/// Draws what taking one back would do.
pub(super) fn preview(shown: &Preview, from: usize, frame: &mut Frame<'_>) {
    let size = (frame.area().width, frame.area().height);
    let all = lines(shown, size.0);
    let from = from.min(last(shown, size));
    let left = all.len().saturating_sub(from + proposal::room(size));
    let more = match (from, left) {
        (0, 0) => String::new(),
        (above, left) => format!(" {above} lines above, {left} below "),
    };
    let text = all.iter().skip(from).take(proposal::room(size));
    let text = text.map(|line| Line::styled(line.as_str(), proposal::style(line))).collect();
    let keys = if shown.may {
        "y takes it back  ↑↓ scroll  Esc back to the list"
    } else {
        "↑↓ scroll  Esc back to the list"
    };
    panel(frame, format!(" undo {}? ", clean_line(&shown.id)), more, text, keys);
}

fn panel(frame: &mut Frame<'_>, title: String, more: String, lines: Vec<Line<'_>>, keys: &str) {
    let whole = frame.area();
    let area = Rect { height: whole.height.saturating_sub(1), ..whole };
    let foot = Rect { y: whole.height.saturating_sub(1), height: whole.height.min(1), ..whole };
    let block = Block::bordered().title(title).title_bottom(more).border_style(Style::new().fg(Color::Yellow));
    frame.render_widget(Clear, whole);
    frame.render_widget(Paragraph::new(lines).block(block), area);
    frame.render_widget(Paragraph::new(Line::styled(keys.to_owned(), Style::new().fg(Color::DarkGray))), foot);
}

fn lines(shown: &Preview, columns: u16) -> Vec<String> {
    let width = usize::from(columns.saturating_sub(2)).max(1);
    shown.lines.iter().flat_map(|line| pieces(line, width)).collect()
}

fn last(shown: &Preview, size: (u16, u16)) -> usize {
    lines(shown, size.0).len().saturating_sub(proposal::room(size))
}

/// A key while the list stands over the table.
pub(super) fn pressed(state: &mut State, at: usize, key: KeyCode) -> Option<Command> {
    let open = open(state);
    let end = open.len().saturating_sub(1);
    let page = proposal::room(state.size).max(1);
    let at = match key {
        KeyCode::Esc | KeyCode::Char('q' | 'u') => return None,
        KeyCode::Enter => {
            let id = open.get(at.min(end)).map(|one| one.id.clone());
            state.over = Some(Over::Undo { at });
            return id.map(|id| Command::Preview { id, at });
        }
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down => at + 1,
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at.saturating_add(page),
        KeyCode::Home => 0,
        KeyCode::End => end,
        _ => at,
    };
    state.over = Some(Over::Undo { at: at.min(end) });
    None
}

/// A key while it is shown what taking one back would do.
pub(super) fn pressed_on_preview(state: &mut State, shown: Preview, from: usize, key: KeyCode) -> Option<Command> {
    let (end, page) = (last(&shown, state.size), proposal::room(state.size).max(1));
    let from = match key {
        KeyCode::Char('y') if shown.may => {
            state.over = Some(Over::Undo { at: shown.at });
            return Some(Command::Undo(shown.id));
        }
        KeyCode::Esc | KeyCode::Char('q') => {
            state.over = Some(Over::Undo { at: shown.at });
            return None;
        }
        KeyCode::Up => from.saturating_sub(1),
        KeyCode::Down => from + 1,
        KeyCode::PageUp => from.saturating_sub(page),
        KeyCode::PageDown => from.saturating_add(page),
        KeyCode::Home => 0,
        KeyCode::End => end,
        _ => from,
    };
    state.over = Some(Over::Undoing { shown, from: from.min(end) });
    None
}
