//! How `aos top` looks.
//!
//! Start at [`render`], which is pure: the same state and size give the same picture. Only the rows that can be seen are
//! made, so that a thousand processes cost no more than twenty.

use aos_abi::process::{DayView, ProcessView, State as ProcessState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use super::state::{Over, Sort, State};
use super::{denials, page, proposal, undo};
use crate::cli::{clean_line, cost_of, count, cut, duration, money, question as asked_of};

/// Draws everything.
pub(super) fn render(state: &State, frame: &mut Frame<'_>) {
    let slots = u16::try_from(state.slots.len().min(4)).unwrap_or(4);
    let detail = (frame.area().height / 3).clamp(3, 12);
    let [header, gauges, table, events, footer] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(slots),
        Constraint::Min(3),
        Constraint::Length(detail),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head(state)), header);
    frame.render_widget(Paragraph::new(gauge_lines(state, gauges.width)), gauges);
    processes(state, frame, table);
    detail_pane(state, frame, events);
    frame.render_widget(Paragraph::new(foot(state, footer.width)), footer);
    match &state.over {
        Some(Over::Help) => help(frame),
        Some(Over::Proposal { id, from }) => {
            if let Some(waiting) = state.waiting(id) {
                proposal::draw(state, waiting, *from, frame);
            }
        }
        Some(Over::Denials { at }) => denials::list(state, *at, frame),
        Some(Over::Denial { id, from }) => {
            if let Some(denial) = state.denial(id) {
                denials::whole(state, denial, *from, frame);
            }
        }
        Some(Over::Change { shown, from }) => denials::change(state, shown, *from, frame),
        Some(Over::Undo { at }) => undo::list(state, *at, frame),
        Some(Over::Undoing { shown, from }) => undo::preview(shown, *from, frame),
        Some(Over::Kill(pid)) => {
            question(frame, &format!("End process {pid}? It gets one last turn. y / any other key"))
        }
        Some(Over::Reject { id, why }) => {
            let does = if state.denial(id).is_some() { "Dismiss" } else { "Reject" };
            question(frame, &format!("{does} {}: why? {}▏ Enter / Esc", clean_line(id), clean_line(why)))
        }
        Some(Over::Filter) | None => {}
    }
}

fn head(state: &State) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut counts = vec![Span::styled("aos top", bold), Span::raw("  ")];
    for one in ProcessState::ALL {
        let number = state.count(one);
        let style = if number == 0 { Style::new().fg(Color::DarkGray) } else { state_style(one) };
        counts.push(Span::styled(format!("{number} {}  ", one.as_str()), style));
    }
    let waiting = match state.waiting.len() {
        0 => Span::raw("no proposals"),
        1 => Span::styled("1 proposal waits", Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)),
        number => Span::styled(
            format!("{number} proposals wait"),
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        ),
    };
    let mut numbers = vec![
        Span::raw(format!("{} tokens/s  ", count(state.rate()))),
        today(&state.today),
        Span::raw(format!("  journal {}  ", state.lsn)),
        waiting,
    ];
    let waits = match state.questions() {
        0 => None,
        1 => Some("  1 question waits".to_owned()),
        number => Some(format!("  {number} questions wait")),
    };
    numbers.extend(waits.map(|text| Span::styled(text, Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD))));
    if !state.denied.is_empty() {
        numbers.push(Span::raw(format!("  {} denied (d)", state.denied())));
    }
    if state.lost {
        numbers.push(Span::styled("  the daemon went away, waiting for it", Style::new().fg(Color::Red)));
    }
    vec![Line::from(counts), Line::from(numbers)]
}

fn today(day: &DayView) -> Span<'static> {
    let spent = cost_of(day.spent_usd, day.cost_unknown);
    match day.usd_per_day.filter(|_| day.nearly_spent) {
        Some(limit) => Span::styled(
            format!("{spent} of {} today, nearly spent", money(limit)),
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        ),
        None => Span::raw(format!("{spent} today")),
    }
}

fn gauge_lines(state: &State, width: u16) -> Vec<Line<'static>> {
    let widest = state.slots.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(16);
    let bar = usize::from(width).saturating_sub(widest + 26).clamp(5, 40);
    // The busiest models, where there is no room for all.
    let mut slots: Vec<_> = state.slots.iter().collect();
    slots.sort_by_key(|(_, slots)| std::cmp::Reverse(slots.used + slots.waiting));
    slots
        .into_iter()
        .take(4)
        .map(|(name, slots)| {
            let limit = slots.limit.max(slots.used).max(1) as usize;
            let filled = (slots.used as usize * bar).div_ceil(limit).min(bar);
            let color = if slots.waiting > 0 { Color::Yellow } else { Color::Green };
            Line::from(vec![
                Span::raw(format!("{:<widest$} ", cut(&clean_line(name), widest))),
                Span::styled("█".repeat(filled), Style::new().fg(color)),
                Span::styled("░".repeat(bar - filled), Style::new().fg(Color::DarkGray)),
                Span::raw(format!(" {}/{} slots, {} waiting", slots.used, slots.limit, slots.waiting)),
            ])
        })
        .collect()
}

fn state_style(state: ProcessState) -> Style {
    let style = Style::new();
    match state {
        ProcessState::Running => style.fg(Color::Green),
        ProcessState::Ready => style.fg(Color::Cyan),
        ProcessState::Blocked | ProcessState::Sleeping => style,
        ProcessState::Stopped => style.fg(Color::Yellow),
        ProcessState::Exited => style.fg(Color::DarkGray),
    }
}

fn processes(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let view = state.view();
    let rows = usize::from(area.height.saturating_sub(1));
    let at = state.selected.and_then(|pid| view.iter().position(|other| *other == pid)).unwrap_or(0);
    let first = at.saturating_sub(rows.saturating_sub(1) / 2).min(view.len().saturating_sub(rows));
    let roomy = area.width >= ROOMY;
    let shown = view.iter().skip(first).take(rows).filter_map(|pid| state.processes.get(pid));
    let body = shown.map(|process| {
        let style = state_style(process.state);
        let selected = Some(process.pid) == state.selected;
        row(state, process, area.width).style(if selected { style.add_modifier(Modifier::REVERSED) } else { style })
    });
    let heads = Sort::ALL.into_iter().filter(|sort| roomy || *sort != Sort::Left).map(|sort| {
        let sign = match (sort == state.sort, state.reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        Cell::new(format!("{}{sign}", sort.head()))
    });
    let widths = widths(area.width).into_iter().map(Constraint::Length).chain([Constraint::Fill(1)]);
    let header = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
    frame.render_widget(Table::new(body, widths).header(header).column_spacing(1), area);
}

/// How wide the columns before the last one are, on a screen of so many.
fn widths(screen: u16) -> Vec<u16> {
    let mut widths = vec![6, 17, if screen >= 70 { 10 } else { 0 }, 6, 7, 8, 7];
    if screen >= ROOMY {
        widths.insert(LEFT_AT, 8);
    }
    widths
}

/// From so many columns on there is room for what is left of each budget, and where that stands.
const ROOMY: u16 = 90;
const LEFT_AT: usize = 6;

fn row(state: &State, process: &ProcessView, screen: u16) -> Row<'static> {
    let usage = &process.usage;
    let doing = match (&process.waiting_for, process.exit_code) {
        (Some(what), _) => format!("{}: {}", process.state.as_str(), clean_line(what)),
        (None, Some(code)) => format!("{} {code}", process.state.as_str()),
        (None, None) => process.state.as_str().to_owned(),
    };
    let age = process.exited_at.unwrap_or(state.now).millis_since(process.started_at) / 1_000;
    let mut cells = vec![
        process.pid.to_string(),
        doing,
        clean_line(&process.model),
        count(usage.syscalls),
        count(usage.input_tokens + usage.output_tokens),
        cost_of(usage.cost_usd, usage.cost_unknown),
        duration(age),
        clean_line(&process.name),
    ];
    if screen >= ROOMY {
        cells.insert(LEFT_AT, process.budget.usd_left.map_or_else(|| "-".to_owned(), money));
    }
    let before = widths(screen);
    let last = screen.saturating_sub(before.iter().map(|width| width + 1).sum());
    let cells = cells.iter().zip(before.into_iter().chain([last]));
    Row::new(cells.map(|(cell, width)| cut(cell, width.into()).into_owned()).collect::<Vec<_>>())
}

fn detail_pane(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let block = |title: String| Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
    let Some(process) = state.selected() else {
        let none = if state.processes.is_empty() { "no process lives" } else { "none fits the filter" };
        frame.render_widget(Paragraph::new(none).block(block(String::new())), area);
        return;
    };
    let left = process.budget.usd_left.map(|left| format!(", {} left", money(left))).unwrap_or_default();
    let inside = usize::from(area.width.saturating_sub(2));
    let title = format!(" {} {}{left} ", process.pid, clean_line(&process.name));
    let title = cut(&title, inside).into_owned();
    let rows = usize::from(area.height.saturating_sub(2));
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut waiting = state.waiting.iter().filter(|waiting| waiting.pid == process.pid);
    if let Some(first) = waiting.next() {
        let more = waiting.count();
        let more = if more > 0 { format!(", {more} more") } else { String::new() };
        let text = format!("? {} waits: {}  (Enter shows it{more})", clean_line(&first.id), clean_line(&first.call));
        lines.push(Line::styled(text, Style::new().fg(Color::Yellow)));
        let shown = first.shown.iter().take(rows.saturating_sub(2));
        lines.extend(shown.map(|line| Line::styled(line.as_str(), page::style(line))));
    }
    let mut denied = state.denied.iter().filter(|denial| denial.what.pid == process.pid && !denial.lifted);
    if let Some(first) = denied.next() {
        let more = denied.count();
        let more = if more > 0 { format!(", {more} more") } else { String::new() };
        let (id, call) = (clean_line(&first.what.id), clean_line(&first.what.call));
        lines.push(Line::raw(format!("! {id} was denied: {call}  (d lists it{more})")));
    }
    if let Some(asked) = &process.question {
        let text = format!("? {}  (aos send {} TEXT)", clean_line(&asked_of(asked)), process.pid);
        lines.push(Line::styled(text, Style::new().fg(Color::Yellow)));
    }
    // One that was resumed keeps the reason why it had stopped.
    let held = process.state == ProcessState::Stopped || process.waiting_for.as_deref() == Some("budget");
    if let Some(reason) = process.reason.as_deref().filter(|_| held) {
        lines.push(Line::styled(format!("! {}", clean_line(reason)), Style::new().fg(Color::Yellow)));
    }
    let latest = state.events.get(&process.pid);
    let room = rows.saturating_sub(lines.len());
    let skipped = latest.map_or(0, |events| events.len().saturating_sub(room));
    lines.extend(latest.into_iter().flatten().skip(skipped).map(|line| Line::raw(cut(line, inside))));
    if lines.is_empty() {
        let told = state.told.contains(&process.pid);
        let none = if told { "it has done nothing yet" } else { "what it did is being read" };
        lines.push(Line::styled(none, Style::new().fg(Color::DarkGray)));
    }
    frame.render_widget(Paragraph::new(lines).block(block(title)), area);
}

fn foot(state: &State, width: u16) -> Line<'static> {
    if let Some(said) = &state.said {
        return Line::styled(said.clone(), Style::new().fg(Color::Yellow));
    }
    if state.over == Some(Over::Filter) {
        return Line::raw(format!("filter: {}▏  Enter keeps it, Esc clears it", clean_line(&state.filter)));
    }
    let filter =
        if state.filter.is_empty() { String::new() } else { format!("   filter: {}", clean_line(&state.filter)) };
    // Where there is no room for all, what is no letter goes without saying.
    let arrows = if width >= 88 { "↑↓ move  " } else { "" };
    let keys = "s sort  / filter  k kill  p pause  Enter look  d denied  u undo  ? help  q quit";
    Line::styled(format!("{arrows}{keys}{filter}"), Style::new().fg(Color::DarkGray))
}

fn help(frame: &mut Frame<'_>) {
    let keys = [
        ("↑ ↓ PgUp PgDn Home End", "move"),
        ("s, S", "sort by the next column, turn the order round"),
        ("/", "filter by name, model, state or pid; Esc clears"),
        ("k", "end the process: TERM, one last turn, then KILL"),
        ("p", "pause it, or let it go on"),
        ("Enter, a", "show what it waits for; a, A approve, r rejects"),
        ("r", "reject it, with a reason"),
        ("d", "list what was denied; Enter shows one whole"),
        ("u", "show what can be taken back, and take it back"),
        ("q, Ctrl-C", "leave"),
    ];
    let lines: Vec<Line<'_>> = keys.iter().map(|(key, does)| Line::raw(format!(" {key:<24}{does}"))).collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(10);
    let area = middle(frame.area(), 76, height);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

fn question(frame: &mut Frame<'_>, text: &str) {
    let width = u16::try_from(text.chars().count() + 4).unwrap_or(u16::MAX);
    let area = middle(frame.area(), width, 3);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text.to_owned()).block(Block::bordered()), area);
}

fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
