//! What stands over the whole table: lines in a frame, and below it the keys.
//!
//! Start at [`text`]. What always holds: nothing of a text is cut off; what does not fit is reached by scrolling, and the
//! last line of the frame says that there is more.

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use crate::cli::{PREVIEW, pieces};

/// Columns and rows that the frame takes.
const FRAME: u16 = 2;

/// Columns inside the frame.
pub(super) fn columns(size: (u16, u16)) -> usize {
    usize::from(size.0.saturating_sub(FRAME))
}

/// Rows of text that fit.
pub(super) fn room(size: (u16, u16)) -> usize {
    // One more row says which keys there are.
    usize::from(size.1.saturating_sub(FRAME + 1))
}

/// The furthest line that a text can begin at.
pub(super) fn last(text: &[String], size: (u16, u16)) -> usize {
    broken(text, size).len().saturating_sub(room(size))
}

/// A text from this line on.
pub(super) fn text(frame: &mut Frame<'_>, title: String, text: &[String], from: usize, keys: &str) {
    let size = (frame.area().width, frame.area().height);
    let lines = broken(text, size);
    let from = from.min(last(text, size));
    let left = lines.len().saturating_sub(from + room(size));
    let shown = lines.iter().skip(from).take(room(size)).map(|line| Line::styled(line.as_str(), style(line))).collect();
    let more = match (from, left) {
        (0, 0) => String::new(),
        (above, left) => format!(" {above} lines above, {left} below "),
    };
    panel(frame, title, more, shown, keys);
}

/// A list with one of it chosen: where it begins, so that the chosen one is in sight.
pub(super) fn first(at: usize, all: usize, size: (u16, u16)) -> usize {
    let room = room(size).max(1);
    at.saturating_sub(room / 2).min(all.saturating_sub(room))
}

/// A frame over all but the last row, in which the keys stand.
pub(super) fn panel(frame: &mut Frame<'_>, title: String, more: String, lines: Vec<Line<'_>>, keys: &str) {
    let whole = frame.area();
    let area = Rect { height: whole.height.saturating_sub(1), ..whole };
    let foot = Rect { y: whole.height.saturating_sub(1), height: whole.height.min(1), ..whole };
    let block = Block::bordered().title(title).title_bottom(more).border_style(Style::new().fg(Color::Yellow));
    frame.render_widget(Clear, whole);
    frame.render_widget(Paragraph::new(lines).block(block), area);
    frame.render_widget(Paragraph::new(Line::styled(keys.to_owned(), Style::new().fg(Color::DarkGray))), foot);
}

/// Where a key leads from one place to another, up to `end`; also where it is none of those that move.
pub(super) fn moved(at: usize, end: usize, key: KeyCode, size: (u16, u16)) -> usize {
    let page = room(size).max(1);
    let to = match key {
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down => at.saturating_add(1),
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at.saturating_add(page),
        KeyCode::Home => 0,
        KeyCode::End => end,
        _ => at,
    };
    to.min(end)
}

/// What is added and taken away by a diff; the signs stand there as well.
pub(super) fn style(line: &str) -> Style {
    match line.strip_prefix(PREVIEW).unwrap_or(line).bytes().next() {
        Some(b'+') => Style::new().fg(Color::Green),
        Some(b'-') => Style::new().fg(Color::Red),
        _ => Style::new(),
    }
}

/// Lines broken where the screen ends.
fn broken(text: &[String], size: (u16, u16)) -> Vec<String> {
    text.iter().flat_map(|line| pieces(line, columns(size).max(1))).collect()
}
