//! What was denied: a list over the table, then one of them whole, then what a yes for the role would change in policy.yaml.
//!
//! Start at [`pressed`]. What always holds: nothing is lifted that was not shown whole before, and a yes names what was on
//! the screen; policy.yaml is changed by a second key alone, to what was shown.

use aos_abi::api::Reach;
use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::state::{Denial, Grant, Over, State};
use super::update::Command;
use super::{page, proposal, undo};
use crate::cli::{clean_line, cut, questions_end};

/// Columns of what one wants, in the list; the call begins behind it.
const WANTS_WIDTH: usize = 30;
/// From so many columns on there is room for where each stands, and for how long.
const ROOMY: u16 = 70;

/// Draws the list.
pub(super) fn list(state: &State, at: usize, frame: &mut Frame<'_>) {
    let size = (frame.area().width, frame.area().height);
    let all = &state.denied;
    let at = at.min(all.len().saturating_sub(1));
    let wants = |one: &Denial| cut(&clean_line(&one.wants), WANTS_WIDTH).into_owned();
    let shown = all.iter().enumerate().skip(page::first(at, all.len(), size)).take(page::room(size).max(1));
    let width = shown.clone().map(|(_, one)| wants(one).chars().count()).max().unwrap_or(0);
    let roomy = size.0 >= ROOMY;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (nth, one) in shown {
        let (what, left) = (&one.what, undo::left(one.until, state.now));
        let sign = if one.risky { "!" } else { " " };
        let stands = if roomy { format!("{:<9}{left:>7}  ", one.state()) } else { String::new() };
        let (pid, wants) = (what.pid.to_string(), wants(one));
        let text = format!("{sign}{:<7}{pid:<7}{stands}{wants:<width$}  {}", what.id, what.call);
        let style = if one.risky { Style::new().fg(Color::Yellow) } else { Style::new() };
        let style = if nth == at { style.add_modifier(Modifier::REVERSED) } else { style };
        lines.push(Line::styled(cut(&clean_line(&text), page::columns(size)).into_owned(), style));
    }
    if all.is_empty() {
        lines.push(Line::raw("nothing was denied"));
    }
    let stands = if roomy { "state, time left, " } else { "" };
    let title = format!(" {} denied: id, process, {stands}what it wants, call ", all.len());
    let keys = state.said.as_deref().unwrap_or("Enter shows it whole, to be answered  ↑↓ move  ! risk  Esc back");
    page::panel(frame, title, String::new(), lines, keys);
}

/// Draws one whole.
pub(super) fn whole(state: &State, one: &Denial, from: usize, frame: &mut Frame<'_>) {
    let what = &one.what;
    let became = if one.lifted { "may make" } else { "was denied" };
    let title = format!(" {}: process {} {became} {} ", clean_line(&what.id), what.pid, clean_line(&what.call));
    let answers = match (one.lifted, one.of_role) {
        (true, _) => "r take it back",
        (false, true) if one.closed => "g for the role  r dismiss",
        (false, false) if one.closed => "r dismiss",
        (false, true) if frame.area().width < ROOMY => "a once  p process  g role  r dismiss",
        (false, true) => "a approve once  p for the process  g for the role  r dismiss",
        (false, false) => "a approve once  r dismiss",
    };
    let next = if state.denied.len() > 1 { "  Tab next" } else { "" };
    let keys = format!("{answers}{next}  Esc back");
    page::text(frame, title, &proposal::lines(state, what), from, state.said.as_deref().unwrap_or(&keys));
}

/// Draws what a yes for the role would change.
pub(super) fn change(state: &State, shown: &Grant, from: usize, frame: &mut Frame<'_>) {
    let title = format!(" {} for every process of its role? ", clean_line(&shown.change.id));
    // Each was asked under the policy that this one takes the place of.
    let keys = match questions_end(state.waiting.len()) {
        None => "y writes it to policy.yaml  ↑↓ scroll  Esc back to the denial".to_owned(),
        Some(ends) => format!("y writes it to policy.yaml, and {ends}  ↑↓ scroll  Esc back"),
    };
    page::text(frame, title, &shown.lines, from, &keys);
}

/// The list, with the first of the selected process chosen.
pub(super) fn opened(state: &State) -> Over {
    let at = state.denied.iter().position(|one| Some(one.what.pid) == state.selected).unwrap_or(0);
    Over::Denials { at }
}

/// The list, with this one chosen where it is still in it.
pub(super) fn back_to(state: &State, id: &str) -> Over {
    Over::Denials { at: state.denied.iter().position(|one| one.what.id == id).unwrap_or(0) }
}

/// A key while the list stands over the table.
pub(super) fn pressed(state: &mut State, at: usize, key: KeyCode) -> Option<Command> {
    let end = state.denied.len().saturating_sub(1);
    state.over = match (key, state.denied.get(at.min(end))) {
        (KeyCode::Esc | KeyCode::Char('q' | 'd'), _) => None,
        // Nothing is said yes to that was not shown whole.
        (KeyCode::Enter | KeyCode::Char('a'), Some(one)) => Some(Over::Denial { id: one.what.id.clone(), from: 0 }),
        _ => Some(Over::Denials { at: page::moved(at, end, key, state.size) }),
    };
    None
}

/// A key while one stands there whole: it is answered, scrolled, left, or gives way to the next one.
pub(super) fn pressed_on_one(state: &mut State, id: String, from: usize, key: KeyCode) -> Option<Command> {
    let one = state.denial(&id)?;
    let seen = state.has_seen(&one.what);
    let shown_as = one.what.shown_as.clone();
    let back = back_to(state, &id);
    let may = seen && !one.lifted && !one.closed;
    let (may_for_longer, may_for_role) = (may && one.of_role, seen && !one.lifted && one.of_role);
    let over = match key {
        KeyCode::Char('a') if may => {
            state.over = Some(back);
            return Some(Command::Approve { ids: vec![id], shown_as, reach: Reach::Once });
        }
        KeyCode::Char('p') if may_for_longer => {
            state.over = Some(back);
            return Some(Command::Approve { ids: vec![id], shown_as, reach: Reach::Process });
        }
        KeyCode::Char('g') if may_for_role => {
            state.over = Some(Over::Denial { id: id.clone(), from });
            return Some(Command::Change(id));
        }
        KeyCode::Char('r') => Over::Reject { id, why: String::new() },
        KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter => back,
        KeyCode::Tab => {
            let at = state.denied.iter().position(|other| other.what.id == id).map_or(0, |at| at + 1);
            let next = &state.denied[at % state.denied.len()].what;
            Over::Denial { id: next.id.clone(), from: 0 }
        }
        _ => {
            let last = proposal::last(state, &one.what, state.size);
            Over::Denial { id, from: page::moved(from, last, key, state.size) }
        }
    };
    state.over = Some(over);
    None
}

/// A key while it is shown what a yes for the role would change.
pub(super) fn pressed_on_change(state: &mut State, shown: Grant, from: usize, key: KeyCode) -> Option<Command> {
    let id = shown.change.id.clone();
    match key {
        KeyCode::Char('y') => {
            state.over = Some(back_to(state, &id));
            return Some(Command::Make(Box::new(shown.change)));
        }
        KeyCode::Esc | KeyCode::Char('q') => state.over = Some(Over::Denial { id, from: 0 }),
        _ => {
            let from = page::moved(from, page::last(&shown.lines, state.size), key, state.size);
            state.over = Some(Over::Change { shown, from });
        }
    }
    None
}
