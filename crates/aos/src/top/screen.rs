//! The terminal and the daemon behind `aos top`.
//!
//! Start at [`show`]. The keys come from a thread of their own, since reading them cannot be interrupted; it is bounded
//! and ends with the program.

use std::path::Path;
use std::time::Duration;

use aos_abi::api::{ApproveRequest, ProposalView, RejectRequest, SignalRequest, UndoRequest, UndoView};
use aos_abi::entry::{ProposalState, Verdict};
use aos_abi::process::{ProcessView, StatusView};
use aos_abi::{Lsn, Pid};
use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::past::Past;
use super::render::render;
use super::state::{Denial, Grant, Preview, State, Undoable, Waiting};
use super::update::{Command, Input, update};
use crate::cli::{Change, Exit, Failure, answer, call, is_denial, is_of_role, now, undo_shown, whole};
use crate::client::{Address, Client, Error, Event};

/// At most ten frames a second.
const FRAME: Duration = Duration::from_millis(100);
/// The same where a person has pressed a key, and looks for what it does.
const KEY_FRAME: Duration = Duration::from_millis(16);
/// How often the table is read again, where events left it in doubt.
const RESYNC: Duration = Duration::from_secs(5);
/// Events taken in a row before the screen gets its turn.
const BURST: usize = 1_000;

/// Shows the screen until the person leaves.
pub(super) async fn show(client: Client, policy: &Path) -> Result<Exit, Failure> {
    let mut state = State::default();
    state.now = now();
    // Everything is read before the screen is taken, so that an error is told in the usual way.
    let after = read_again(&client, &mut state).await?;
    let unusable =
        |error: std::io::Error| Failure::new("the terminal cannot be used").why(error.to_string()).hint("aos ps");
    let mut terminal = ratatui::try_init().map_err(unusable)?;
    if let Ok(size) = terminal.size() {
        update(&mut state, Input::Resized(size.width, size.height));
    }
    let ended = run(&client, policy, &mut state, &mut terminal, after).await;
    ratatui::try_restore().map_err(unusable)?;
    ended
}

async fn run(
    client: &Client,
    policy: &Path,
    state: &mut State,
    terminal: &mut DefaultTerminal,
    after: Lsn,
) -> Result<Exit, Failure> {
    let mut events = client.events(Address::of("/v1/events"), after, true);
    let mut keys = listen();
    let mut tick = interval(FRAME);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut drawn, mut asked, mut read) = (None::<Instant>, None::<Instant>, Instant::now());
    let mut burst = 0;
    let (mut past, mut rests) = (None::<Past>, None::<Pid>);
    state.changed = true;
    loop {
        let inputs = tokio::select! {
            biased;
            input = keys.recv() => vec![input.ok_or_else(|| Failure::new("the terminal went away"))?],
            _ = tick.tick() => {
                burst = 0;
                // Who is only passed by on the way to another one is not read.
                let rested = state.selected == std::mem::replace(&mut rests, state.selected);
                if let Some(pid) = state.selected.filter(|pid| rested && !state.lost && !state.told.contains(pid))
                    && past.as_ref().is_none_or(|past| past.pid() != pid)
                {
                    past = Some(Past::of(client, pid, after));
                }
                vec![Input::Tick(now())]
            }
            read = next_of(&mut past), if past.is_some() => {
                past = None;
                vec![read]
            }
            event = events.next(), if burst < BURST => {
                burst += 1;
                match event? {
                    Some(Event::Entry(line)) => line.entry.map(Input::Entry).into_iter().collect(),
                    Some(Event::Lost) => vec![Input::Lost],
                    Some(Event::Back) => vec![Input::Back],
                    Some(Event::Progress(_)) | None => vec![],
                }
            }
        };
        let soon = if inputs.iter().any(|input| matches!(input, Input::Key(_))) { KEY_FRAME } else { FRAME };
        for input in inputs {
            match update(state, input) {
                None => {}
                Some(Command::Quit) => return Ok(Exit::Success),
                Some(command) => {
                    // A list that is read again may follow what was done.
                    let again = matches!(command, Command::Undo(_));
                    let came = carry_out(client, policy, command).await;
                    update(state, came);
                    if again {
                        let list = carry_out(client, policy, Command::Undoable).await;
                        if matches!(list, Input::Undoable(_)) {
                            update(state, list);
                        }
                    }
                }
            }
        }
        if state.unread && !state.lost && asked.is_none_or(|at| at.elapsed() >= FRAME) {
            asked = Some(Instant::now());
            // Where it fails, the stream says what is wrong, and the next frame tries again.
            if let Ok((waiting, denied)) = proposals(&client.without_start()).await {
                update(state, Input::Proposals(waiting));
                update(state, Input::Denied(denied));
            }
        }
        if state.stale && !state.lost && read.elapsed() >= RESYNC {
            read = Instant::now();
            // It is only a correction: where it fails the stream says what is wrong.
            let _ = read_again(&client.without_start(), state).await;
        }
        if state.changed && drawn.is_none_or(|at| at.elapsed() >= soon) {
            state.settle();
            terminal
                .draw(|frame| render(state, frame))
                .map_err(|error| Failure::new("the terminal cannot be written").why(error.to_string()))?;
            state.changed = false;
            drawn = Some(Instant::now());
        }
    }
}

async fn next_of(past: &mut Option<Past>) -> Input {
    match past {
        Some(past) => past.next().await,
        None => std::future::pending().await,
    }
}

/// Reads the whole picture; the position that it holds at least.
async fn read_again(client: &Client, state: &mut State) -> Result<Lsn, Failure> {
    // The position first: what happens between the two reads then comes again as events, which is better than never.
    let status: StatusView = client.get(&Address::of("/v1/status")).await?;
    let processes: Vec<ProcessView> = client.get(&Address::of("/v1/processes")).await?;
    let (waiting, denied) = proposals(client).await?;
    let lsn = status.lsn;
    update(state, Input::Status(Box::new(status)));
    update(state, Input::Processes(processes));
    update(state, Input::Proposals(waiting));
    update(state, Input::Denied(denied));
    Ok(lsn)
}

/// What waits for a person, and what was denied, last what no yes lifts; each with all that one should know before one answers.
async fn proposals(client: &Client) -> Result<(Vec<Waiting>, Vec<Denial>), Failure> {
    let proposals: Vec<ProposalView> = client.get(&Address::of("/v1/proposals")).await?;
    let (denied, asked): (Vec<_>, Vec<_>) = proposals.into_iter().partition(is_denial);
    let one = |proposal: ProposalView| Waiting {
        call: call(&proposal.call.name, &proposal.call.args),
        shown: whole(&proposal, None).lines().map(str::to_owned).collect(),
        shown_as: proposal.shown,
        rule: proposal.rule,
        id: proposal.id,
        pid: proposal.pid,
    };
    let denial = |proposal: ProposalView| Denial {
        closed: proposal.closed.is_some(),
        wants: proposal.closed.as_ref().map_or_else(|| proposal.grants.join(", "), |_| "no yes lifts it".to_owned()),
        until: proposal.expires_at,
        lifted: proposal.state == ProposalState::Approved,
        of_role: is_of_role(&proposal.rule),
        risky: proposal.risk.is_some(),
        what: one(proposal),
    };
    let pending = asked.into_iter().filter(|proposal| proposal.state == ProposalState::Pending);
    let mut denied: Vec<Denial> = denied.into_iter().map(denial).collect();
    denied.sort_by_key(|denial| denial.closed);
    Ok((pending.map(one).collect(), denied))
}

/// What a yes for the role would change, which is shown before it is made.
async fn change(client: &Client, policy: &Path, id: &str) -> Result<Grant, Failure> {
    let change = Change::of(client, policy, id).await?;
    Ok(Grant { lines: change.shown(), change })
}

/// What can be taken back, the newest first: of what was changed under an approval the change, not the question.
async fn undoable(client: &Client) -> Result<Vec<Undoable>, Error> {
    let all: Vec<ProposalView> = client.get(&Address::of("/v1/proposals").with("all", true)).await?;
    let done = |one: &ProposalView| {
        one.state == ProposalState::Executed && one.verdict == Verdict::Allow && one.expires_at > now()
    };
    let one = |one: ProposalView| Undoable {
        call: call(&one.call.name, &one.call.args),
        until: one.expires_at,
        id: one.id,
        pid: one.pid,
    };
    Ok(all.into_iter().filter(done).map(one).rev().collect())
}

async fn preview(client: &Client, id: String, at: usize) -> Result<Preview, Error> {
    let address = Address::of("/v1/proposals").then(&id).then("undo");
    let view: UndoView = client.post_long(&address, &UndoRequest { dry_run: true }).await?;
    let lines = undo_shown(&view).lines().map(str::to_owned).collect();
    Ok(Preview { id, at, lines, may: view.conflicts.is_empty() })
}

async fn carry_out(client: &Client, policy: &Path, command: Command) -> Input {
    let client = client.without_start();
    let failed = |error: Error| Input::Said(error.to_string());
    let unable = |failure: Failure| Input::Said(failure.what);
    let proposal = |id: &str| Address::of("/v1/proposals").then(id);
    let (done, result) = match command {
        Command::Signal(pid, signal) => {
            let address = Address::of("/v1/processes").then(pid).then("signal");
            let sent = client.post::<serde_json::Value>(&address, &SignalRequest { signal, tree: false }).await;
            (format!("sent {signal} to {pid}"), sent)
        }
        Command::Approve { ids, shown_as, reach } => {
            let yes = ApproveRequest { shown: Some(shown_as), reach };
            let mut said = Vec::new();
            for id in &ids {
                let answered = client.post::<ProposalView>(&proposal(id).then("approve"), &yes).await;
                said.push(answered.map_or_else(|error| error.to_string(), |one| answer(&one)));
            }
            return Input::Said(said.join("; "));
        }
        Command::Change(id) => {
            return change(&client, policy, &id).await.map_or_else(unable, Input::Change);
        }
        Command::Make(change) => {
            let done = format!("policy.yaml is changed; the agent is told to make the call of {} again", change.id);
            return change.make(&client).await.map_or_else(unable, |_| Input::Said(done));
        }
        Command::Reject(id, why) => {
            (format!("rejected {id}"), client.post(&proposal(&id).then("reject"), &RejectRequest { why }).await)
        }
        Command::Undoable => return undoable(&client).await.map_or_else(failed, Input::Undoable),
        Command::Preview { id, at } => return preview(&client, id, at).await.map_or_else(failed, Input::Preview),
        Command::Undo(id) => {
            let undone = client.post_long(&proposal(&id).then("undo"), &UndoRequest { dry_run: false }).await;
            (format!("{id} is undone"), undone)
        }
        Command::Quit => return Input::Said(String::new()),
    };
    match result {
        Ok(_) => Input::Said(done),
        Err(error) => failed(error),
    }
}

fn listen() -> mpsc::Receiver<Input> {
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            let input = match event {
                TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
                TerminalEvent::Resize(columns, rows) => Input::Resized(columns, rows),
                _ => continue,
            };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    });
    receiver
}
