//! A proposal over the table: all of it, in lines as wide as the screen lets them be.
//!
//! Start at [`draw`]. What always holds: nothing of it is cut off; what does not fit is reached by scrolling, and the last
//! line says that there is more.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::state::{State, Waiting};
use crate::cli::{PREVIEW, clean_line, pieces};

/// Columns that the frame takes.
const FRAME: u16 = 2;

/// Rows of text that fit.
pub(super) fn room(size: (u16, u16)) -> usize {
    // One more row says which keys there are.
    usize::from(size.1.saturating_sub(FRAME + 1))
}

/// The furthest line that one can begin at.
pub(super) fn last(waiting: &Waiting, size: (u16, u16)) -> usize {
    lines(waiting, size.0).len().saturating_sub(room(size))
}

/// Draws it over everything but the last row.
pub(super) fn draw(state: &State, waiting: &Waiting, from: usize, frame: &mut Frame<'_>) {
    let whole = frame.area();
    let area = Rect { height: whole.height.saturating_sub(1), ..whole };
    let lines = lines(waiting, whole.width);
    let size = (whole.width, whole.height);
    let from = from.min(last(waiting, size));
    let left = lines.len().saturating_sub(from + room(size));
    let shown: Vec<Line<'_>> =
        lines.iter().skip(from).take(room(size)).map(|line| Line::styled(line.as_str(), style(line))).collect();
    let more = match (from, left) {
        (0, 0) => String::new(),
        (above, left) => format!(" {above} lines above, {left} below "),
    };
    let block = Block::bordered()
        .title(format!(" {} of process {}: {} ", clean_line(&waiting.id), waiting.pid, clean_line(&waiting.call)))
        .title_bottom(more)
        .border_style(Style::new().fg(Color::Yellow));
    frame.render_widget(Clear, whole);
    frame.render_widget(Paragraph::new(shown).block(block), area);
    let keys = if state.waiting.len() > 1 {
        "a approve  r reject  ↑↓ scroll  Tab next  Esc back"
    } else {
        "a approve  r reject  ↑↓ scroll  Esc back"
    };
    let foot = Rect { y: whole.height.saturating_sub(1), height: whole.height.min(1), ..whole };
    frame.render_widget(Paragraph::new(Line::styled(keys, Style::new().fg(Color::DarkGray))), foot);
}

/// What is added and taken away by a diff; the signs stand there as well.
pub(super) fn style(line: &str) -> Style {
    match line.strip_prefix(PREVIEW).unwrap_or(line).bytes().next() {
        Some(b'+') => Style::new().fg(Color::Green),
        Some(b'-') => Style::new().fg(Color::Red),
        _ => Style::new(),
    }
}

/// Its lines, broken where the screen ends.
fn lines(waiting: &Waiting, columns: u16) -> Vec<String> {
    let width = usize::from(columns.saturating_sub(FRAME)).max(1);
    if waiting.shown.is_empty() {
        return vec!["it is being read…".to_owned()];
    }
    waiting.shown.iter().flat_map(|line| pieces(line, width)).collect()
}
