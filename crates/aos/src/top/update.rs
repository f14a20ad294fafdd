//! How what `aos top` knows changes.
//!
//! Start at [`update`], which is pure. An entry says what happened and not always what state comes of it; where it does
//! not, the nearest state is shown and the table is read again some seconds later ([`State::stale`]).

use aos_abi::api::Reach;
use aos_abi::entry::{BudgetOf, InferenceOutcome, NearlySpent, ProposalState};
use aos_abi::process::{
    BudgetView, DayView, Mode, ProcessView, SlotView, State as ProcessState, StatusView, UsageView,
};
use aos_abi::{Body, Entry, Pid, Signal, Timestamp};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Denial, EVENTS_MAX, EXITED_MAX, Grant, Over, Preview, RATE_MS, State, Undoable, Waiting};
use super::{denials, page, proposal, undo};
use crate::cli::{Change, Narrator, Style, asked as question_of, call, clean_line, clock};
use crate::said::said;

/// Something that changes what is known.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// A key.
    Key(KeyEvent),
    /// An entry of the journal.
    Entry(Box<Entry>),
    /// The whole table.
    Processes(Vec<ProcessView>),
    /// The daemon in numbers.
    Status(Box<StatusView>),
    /// What a process did before this view was opened, the last of it.
    Past(Pid, Vec<String>),
    /// What waits for a person.
    Proposals(Vec<Waiting>),
    /// What was denied, or lifted and not made yet.
    Denied(Vec<Denial>),
    /// What a yes for the role would change.
    Change(Grant),
    /// What can be taken back, the newest first.
    Undoable(Vec<Undoable>),
    /// What taking one back would do.
    Preview(Preview),
    /// Time passed.
    Tick(Timestamp),
    /// The terminal has so many columns and rows.
    Resized(u16, u16),
    /// The daemon went away.
    Lost,
    /// The daemon is back.
    Back,
    /// What came of a command.
    Said(String),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Send a signal.
    Signal(Pid, Signal),
    /// Say yes to each of these, which are shown by the same words.
    Approve { ids: Vec<String>, shown_as: String, reach: Reach },
    /// Say no.
    Reject(String, String),
    /// Read what a yes to a denial for its role would change.
    Change(String),
    /// Make that change.
    Make(Box<Change>),
    /// Read what can be taken back.
    Undoable,
    /// Read what taking one back would do, which stands at this place.
    Preview { id: String, at: usize },
    /// Take it back.
    Undo(String),
    /// Leave.
    Quit,
}

/// Changes what is known; what is to be done.
pub(super) fn update(state: &mut State, input: Input) -> Option<Command> {
    let before = std::mem::replace(&mut state.changed, true);
    match input {
        Input::Key(key) => return pressed(state, key),
        Input::Entry(entry) => heard(state, &entry),
        Input::Processes(processes) => {
            let ended: Vec<ProcessView> =
                state.processes.values().filter(|process| process.state == ProcessState::Exited).cloned().collect();
            state.processes = processes.into_iter().map(|process| (process.pid, process)).collect();
            for process in ended {
                state.processes.entry(process.pid).or_insert(process);
            }
            state.stale = false;
            let processes = &state.processes;
            state.events.retain(|pid, _| processes.contains_key(pid));
            state.told.retain(|pid| processes.contains_key(pid));
        }
        Input::Past(pid, lines) => {
            let events = state.events.entry(pid).or_default();
            let room = EVENTS_MAX.saturating_sub(events.len());
            lines.into_iter().rev().take(room).for_each(|line| events.push_front(line));
            state.told.insert(pid);
        }
        Input::Status(status) => {
            state.slots = status.model_slots;
            state.version = status.version;
            state.lsn = state.lsn.max(status.lsn);
            state.exited = status.processes.get(ProcessState::Exited.as_str()).copied().unwrap_or_default();
            state.today = DayView { spent_usd: status.spent_today_usd, ..status.today };
            state.counted = status.lsn;
        }
        Input::Proposals(waiting) => {
            let before = state.over_whole().cloned();
            state.waiting = waiting;
            state.unread = false;
            close_what_is_over(state);
            close_what_has_changed(state, before);
        }
        Input::Denied(denied) => {
            let before = state.over_whole().cloned();
            state.denied = denied;
            close_what_is_over(state);
            close_what_has_changed(state, before);
        }
        Input::Change(shown) => {
            if matches!(&state.over, Some(Over::Denial { id, .. }) if *id == shown.change.id) {
                state.over = Some(Over::Change { shown, from: 0 });
            }
        }
        Input::Undoable(undoable) => state.undoable = Some(undoable),
        Input::Preview(shown) => {
            if matches!(state.over, Some(Over::Undo { .. })) {
                state.over = Some(Over::Undoing { shown, from: 0 });
            }
        }
        Input::Tick(now) => {
            // The ages change once a second, and the rate while there is one; what changed and is not drawn yet is so still.
            state.changed = before || now.0 / 1_000 != state.now.0 / 1_000;
            state.now = now;
            while state.spent.front().is_some_and(|(at, _)| now.millis_since(*at) >= RATE_MS) {
                state.spent.pop_front();
            }
        }
        Input::Resized(columns, rows) => state.size = (columns, rows),
        Input::Lost => state.lost = true,
        Input::Back => {
            state.lost = false;
            state.stale = true;
        }
        Input::Said(text) => state.said = Some(clean_line(&text)),
    }
    None
}

fn heard(state: &mut State, entry: &Entry) {
    state.lsn = state.lsn.max(entry.lsn);
    state.now = state.now.max(entry.at);
    let pid = entry.pid;
    if pid == Pid::SYSTEM {
        return;
    }
    let used = state.processes.get(&pid).map(|process| process.usage).unwrap_or_default();
    let lines = Narrator::new(Style::plain(), 200, Some(clock)).after(&used).tell(entry);
    if !lines.is_empty() {
        let events = state.events.entry(pid).or_default();
        events.extend(lines);
        while events.len() > EVENTS_MAX {
            events.pop_front();
        }
    }
    if entry.lsn > state.counted {
        match &entry.body {
            Body::Exited { .. } => state.exited += 1,
            Body::Charged { cost_usd, .. } => {
                state.today.spent_usd = state.today.spent_usd.plus(cost_usd.unwrap_or_default());
                state.today.cost_unknown |= cost_usd.is_none();
            }
            Body::NearlySpent(NearlySpent { budget: BudgetOf::Day, .. }) => state.today.nearly_spent = true,
            _ => {}
        }
    }
    match &entry.body {
        Body::Spawned(spec) => {
            state.processes.entry(pid).or_insert_with(|| born(pid, entry.at, spec));
        }
        Body::Charged { usage, cost_usd, .. } => {
            state.spent.push_back((entry.at, usage.input_tokens + usage.output_tokens));
            if let Some(process) = state.processes.get_mut(&pid) {
                process.usage.input_tokens += usage.input_tokens;
                process.usage.output_tokens += usage.output_tokens;
                process.usage.cached_input_tokens += usage.cached_input_tokens;
                match cost_usd {
                    Some(cost) => {
                        process.usage.cost_usd = process.usage.cost_usd.plus(*cost);
                        process.budget.usd_left = process.budget.usd_left.map(|left| left.minus(*cost));
                    }
                    None => process.usage.cost_unknown = true,
                }
            }
        }
        Body::InferenceStarted { model, .. } => slot(state, model, true),
        Body::InferenceCompleted { outcome, .. } => {
            let model = match outcome {
                InferenceOutcome::Answered(reply) => reply.model.clone(),
                InferenceOutcome::Failed { .. } => {
                    state.processes.get(&pid).map(|process| process.model.clone()).unwrap_or_default()
                }
            };
            slot(state, &model, false);
        }
        Body::Proposal { id, state: ProposalState::Pending, proposal, .. } => {
            let call = proposal.as_ref().map(|p| call(p.name.as_str(), &p.args)).unwrap_or_default();
            let (shown, shown_as, rule) = (Vec::new(), String::new(), String::new());
            state.waiting.push(Waiting { id: id.clone(), pid, call, rule, shown, shown_as });
            state.unread = true;
        }
        Body::Proposal { id, state: ProposalState::Executed, proposal: Some(done), .. } => {
            let call = call(done.name.as_str(), &done.args);
            let one = Undoable { id: id.clone(), pid, call, until: done.expires_at };
            // A list that was read just now may have it.
            let lists = state.undoable.iter_mut().filter(|list| list.iter().all(|other| other.id != one.id));
            lists.for_each(|list| list.insert(0, one.clone()));
        }
        Body::Proposal { state: ProposalState::Denied, .. } => state.unread = true,
        Body::Proposal { id, state: what, .. } => {
            state.unread |= !state.denied.is_empty();
            if *what == ProposalState::Undone {
                state.undoable.iter_mut().for_each(|list| list.retain(|one| one.id != *id));
            }
            state.waiting.retain(|waiting| waiting.id != *id);
            // One that was lifted is there until its call is made.
            let lifted = *what == ProposalState::Approved;
            state.denied.retain(|denial| denial.what.id != *id || lifted);
            state.denied.iter_mut().filter(|denial| denial.what.id == *id).for_each(|denial| denial.lifted = true);
            close_what_is_over(state);
        }
        // What it would change is known by now.
        Body::Examined(_) => state.unread = true,
        _ => {}
    }
    match state.processes.get_mut(&pid) {
        Some(process) => move_on(process, entry),
        // A fork, or a process that was born before the table was read.
        None => state.stale = true,
    }
    if let Body::Exited { .. } = entry.body {
        bury(state);
    }
    state.stale |= matches!(
        entry.body,
        Body::Verdict { .. } | Body::Result { .. } | Body::Signal { .. } | Body::Served { .. } | Body::Budgeted { .. }
    );
}

/// The process as the entry leaves it, as far as the entry alone says.
fn move_on(process: &mut ProcessView, entry: &Entry) {
    let mut question = None;
    let (state, waiting_for) = match &entry.body {
        Body::Spawned(_) | Body::Result { .. } | Body::Input { .. } | Body::Message { .. } | Body::Timer { .. } => {
            (ProcessState::Ready, None)
        }
        Body::Routed { model, .. } => {
            process.model.clone_from(model);
            return;
        }
        Body::InferenceStarted { .. } => (ProcessState::Running, None),
        Body::InferenceCompleted { outcome, .. } => {
            process.usage.inferences += 1;
            match outcome {
                InferenceOutcome::Answered(reply) if process.mode == Mode::Resident && !said(reply).calls => {
                    (ProcessState::Blocked, Some("stdin"))
                }
                _ => (ProcessState::Ready, None),
            }
        }
        Body::Syscall { name, args, .. } => {
            process.usage.syscalls += 1;
            match name.as_str() {
                "SLEEP" => (ProcessState::Sleeping, None),
                "WAIT" => (ProcessState::Blocked, Some("child")),
                "RECV_MSG" => (ProcessState::Blocked, Some("message")),
                "SYS_READ_STDIN" => (ProcessState::Blocked, Some("stdin")),
                "ASK_USER" => {
                    question = Some(question_of(args));
                    (ProcessState::Blocked, Some("person"))
                }
                _ => (ProcessState::Running, None),
            }
        }
        Body::Proposal { state: ProposalState::Pending, .. } => (ProcessState::Blocked, Some("approval")),
        Body::Signal { signal: Signal::Stop, .. } => (ProcessState::Stopped, None),
        Body::Signal { signal: Signal::Cont, .. } => (ProcessState::Ready, None),
        Body::Stopped { reason, until } => {
            process.reason = Some(reason.clone());
            match until {
                None => (ProcessState::Stopped, None),
                Some(_) => (ProcessState::Blocked, Some("budget")),
            }
        }
        Body::Exited { exit_code, result, reason, .. } => {
            process.exit_code = Some(*exit_code);
            process.result.clone_from(result);
            process.reason = Some(reason.clone());
            process.exited_at = Some(entry.at);
            (ProcessState::Exited, None)
        }
        _ => return,
    };
    process.question = question;
    process.state = state;
    process.waiting_for = waiting_for.map(str::to_owned);
}

fn born(pid: Pid, at: Timestamp, spec: &aos_abi::process::SpawnSpec) -> ProcessView {
    ProcessView {
        pid,
        parent: spec.parent,
        name: spec.name.clone().unwrap_or_else(|| spec.title()),
        group: spec.group.clone(),
        state: ProcessState::Ready,
        waiting_for: None,
        question: None,
        model: spec.model.clone(),
        priority: spec.priority,
        mode: spec.mode,
        usage: UsageView::default(),
        budget: BudgetView::default(),
        started_at: at,
        exited_at: None,
        exit_code: None,
        result: None,
        reason: None,
    }
}

fn slot(state: &mut State, model: &str, taken: bool) {
    let slots: &mut SlotView = state.slots.entry(model.to_owned()).or_default();
    slots.used = if taken { slots.used + 1 } else { slots.used.saturating_sub(1) };
}

/// Forgets the processes that ended longest ago.
fn bury(state: &mut State) {
    let mut ended: Vec<(Option<Timestamp>, Pid)> = state
        .processes
        .values()
        .filter(|process| process.state == ProcessState::Exited)
        .map(|process| (process.exited_at, process.pid))
        .collect();
    ended.sort_unstable();
    for (_, pid) in &ended[..ended.len().saturating_sub(EXITED_MAX)] {
        state.processes.remove(pid);
        state.events.remove(pid);
        state.told.remove(pid);
    }
}

fn pressed(state: &mut State, key: KeyEvent) -> Option<Command> {
    state.said = None;
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Command::Quit);
    }
    match state.over.take() {
        None => pressed_on_table(state, key.code),
        // Any key closes it.
        Some(Over::Help) => None,
        Some(Over::Proposal { id, from }) => pressed_on_proposal(state, id, from, key.code),
        Some(Over::Denials { at }) => denials::pressed(state, at, key.code),
        Some(Over::Denial { id, from }) => denials::pressed_on_one(state, id, from, key.code),
        Some(Over::Change { shown, from }) => denials::pressed_on_change(state, shown, from, key.code),
        Some(Over::Undo { at }) => undo::pressed(state, at, key.code),
        Some(Over::Undoing { shown, from }) => undo::pressed_on_preview(state, shown, from, key.code),
        Some(Over::Kill(pid)) => (key.code == KeyCode::Char('y')).then_some(Command::Signal(pid, Signal::Term)),
        Some(Over::Filter) => {
            match key.code {
                KeyCode::Enter => return None,
                KeyCode::Esc => {
                    state.filter.clear();
                    return None;
                }
                KeyCode::Backspace => {
                    state.filter.pop();
                }
                KeyCode::Char(one) => state.filter.push(one),
                _ => {}
            }
            state.over = Some(Over::Filter);
            None
        }
        Some(Over::Reject { id, mut why }) => {
            let leaves = matches!(key.code, KeyCode::Enter | KeyCode::Esc);
            if leaves && state.denial(&id).is_some() {
                state.over = Some(denials::back_to(state, &id));
            }
            match key.code {
                KeyCode::Enter => return Some(Command::Reject(id, why)),
                KeyCode::Esc => return None,
                KeyCode::Backspace => {
                    why.pop();
                }
                KeyCode::Char(one) => why.push(one),
                _ => {}
            }
            state.over = Some(Over::Reject { id, why });
            None
        }
    }
}

fn pressed_on_table(state: &mut State, key: KeyCode) -> Option<Command> {
    match key {
        KeyCode::Char('q') => return Some(Command::Quit),
        KeyCode::Char('?') | KeyCode::Char('h') => state.over = Some(Over::Help),
        KeyCode::Char('/') => state.over = Some(Over::Filter),
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char('s') => state.sort = state.sort.next(),
        KeyCode::Char('S') => state.reversed = !state.reversed,
        KeyCode::Char('k') => {
            let living = state.selected().filter(|process| process.state != ProcessState::Exited);
            state.over = living.map(|process| Over::Kill(process.pid));
        }
        KeyCode::Char('p') => {
            let process = state.selected().filter(|process| process.state != ProcessState::Exited)?;
            let stopped = process.state == ProcessState::Stopped;
            return Some(Command::Signal(process.pid, if stopped { Signal::Cont } else { Signal::Stop }));
        }
        // Nothing is said yes to that was not shown whole.
        KeyCode::Char('a') | KeyCode::Enter => {
            state.over = asked(state).map(|id| Over::Proposal { id, from: 0 });
        }
        KeyCode::Char('r') => {
            state.over = asked(state).map(|id| Over::Reject { id, why: String::new() });
        }
        KeyCode::Char('d') => state.over = Some(denials::opened(state)),
        KeyCode::Char('u') => {
            state.over = Some(Over::Undo { at: 0 });
            state.undoable = None;
            return Some(Command::Undoable);
        }
        KeyCode::Up => step(state, -1),
        KeyCode::Down => step(state, 1),
        KeyCode::PageUp => step(state, -10),
        KeyCode::PageDown => step(state, 10),
        KeyCode::Home => step(state, isize::MIN),
        KeyCode::End => step(state, isize::MAX),
        _ => {}
    }
    None
}

/// A key while a proposal stands over the table: it is answered, scrolled, left, or gives way to the next one.
fn pressed_on_proposal(state: &mut State, id: String, from: usize, key: KeyCode) -> Option<Command> {
    let waiting = state.waiting(&id)?;
    let (seen, last) = (state.has_seen(waiting), proposal::last(state, waiting, state.size));
    let over = match key {
        KeyCode::Char('a') if seen => {
            return Some(Command::Approve { ids: vec![id], shown_as: waiting.shown_as.clone(), reach: Reach::Once });
        }
        KeyCode::Char('A') if seen => {
            let (ids, shown_as) = (state.seen_alike().to_vec(), waiting.shown_as.clone());
            return Some(Command::Approve { ids, shown_as, reach: Reach::Once });
        }
        KeyCode::Char('r') => Over::Reject { id, why: String::new() },
        KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter => return None,
        KeyCode::Tab => {
            let at = state.waiting.iter().position(|other| other.id == id).map_or(0, |at| at + 1);
            let next = &state.waiting[at % state.waiting.len()];
            let over = Over::Proposal { id: next.id.clone(), from: 0 };
            state.selected = Some(next.pid);
            over
        }
        _ => Over::Proposal { id, from: page::moved(from, last, key, state.size) },
    };
    state.over = Some(over);
    None
}

/// A proposal that was answered elsewhere is not looked at any more, and says so; nor is a denial that is over.
fn close_what_is_over(state: &mut State) {
    let id = match &state.over {
        Some(Over::Proposal { id, .. } | Over::Reject { id, .. } | Over::Denial { id, .. }) => id.clone(),
        Some(Over::Change { shown, .. }) => shown.change.id.clone(),
        _ => return,
    };
    if state.waiting(&id).is_none() && state.denial(&id).is_none() {
        let listed = matches!(state.over, Some(Over::Denial { .. } | Over::Change { .. }));
        state.over = listed.then(|| denials::back_to(state, &id));
        state.said = Some(format!("{} is over", clean_line(&id)));
    }
}

/// Where something became known of what is looked at, it is shown from its beginning, by whoever opens it again: a key that
/// was meant for the old one answers nothing.
fn close_what_has_changed(state: &mut State, before: Option<Waiting>) {
    let Some(before) = before.filter(|before| !before.shown.is_empty()) else { return };
    if state.over_whole().is_some_and(|now| now.shown_as != before.shown_as) {
        let listed = matches!(state.over, Some(Over::Denial { .. }));
        state.over = listed.then(|| denials::back_to(state, &before.id));
        state.said = Some(format!("{} has changed; Enter shows it as it is", clean_line(&before.id)));
    }
}

/// The proposal of the selected process that has waited longest. Only what is shown can be answered.
fn asked(state: &mut State) -> Option<String> {
    let id = state.waiting.iter().find(|waiting| Some(waiting.pid) == state.selected).map(|waiting| waiting.id.clone());
    if id.is_none() {
        let denied = state.denied.iter().any(|denial| Some(denial.what.pid) == state.selected);
        let more = if denied { "; d lists what was denied" } else { "" };
        state.said = Some(format!("the selected process has no proposal that waits{more}"));
    }
    id
}

fn step(state: &mut State, by: isize) {
    let view = state.view();
    let at = state.selected.and_then(|pid| view.iter().position(|other| *other == pid)).unwrap_or(0);
    let to = at.saturating_add_signed(by).min(view.len().saturating_sub(1));
    state.selected = view.get(to).copied();
}
