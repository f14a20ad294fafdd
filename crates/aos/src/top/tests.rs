//! `aos top` on a screen of 80 by 24, with a thousand processes.

use aos_abi::api::Reach;
use aos_abi::process::ProcessView;
use aos_abi::{Entry, Pid};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::render::render;
use super::state::{Denial, EVENTS_MAX, EXITED_MAX, Grant, Over, Preview, Sort, State, Undoable, Waiting};
use super::update::{Command, Input, update};

fn process(pid: u64) -> ProcessView {
    let states = ["running", "ready", "blocked", "sleeping"];
    serde_json::from_value(json!({
        "pid": pid, "parent": 1, "name": format!("agent \u{1b}[31m{pid}"), "state": states[pid as usize % 4],
        "waiting_for": if pid % 4 == 2 { json!("stdin") } else { json!(null) },
        "model": if pid.is_multiple_of(2) { "small" } else { "standard" }, "priority": "normal", "mode": "resident",
        "usage": {"inferences": pid, "syscalls": pid * 2, "input_tokens": pid * 100, "output_tokens": pid, "cached_input_tokens": 0, "cost_usd": pid as f64 / 1000.0},
        "budget": {"usd": 1.0, "usd_left": 0.5, "tokens": null, "tokens_left": null, "calls": null, "calls_left": null, "ends_at": null},
        "started_at": "2026-11-22T00:00:00Z", "exited_at": null, "exit_code": null, "result": null, "reason": null,
    }))
    .unwrap()
}

fn entry(lsn: u64, pid: u64, mut body: Value) -> Input {
    body["lsn"] = json!(lsn);
    body["pid"] = json!(pid);
    body["at"] = json!("2026-11-22T00:10:00Z");
    let entry: Entry = serde_json::from_value(body.clone()).unwrap_or_else(|error| panic!("{error}: {body}"));
    Input::Entry(Box::new(entry))
}

fn thousand() -> State {
    let mut state = State::default();
    update(&mut state, Input::Tick("2026-11-22T00:10:00Z".parse().unwrap()));
    update(
        &mut state,
        Input::Status(Box::new(
            serde_json::from_value(json!({
                "version": "0.1.0", "os_pid": 1, "uptime_s": 1.0, "home": "/h", "listen": "127.0.0.1:7717", "processes": {},
                "model_slots": {"small": {"used": 5, "limit": 8, "waiting": 12}, "standard": {"used": 0, "limit": 4, "waiting": 0}}, "lsn": 41,
            }))
            .unwrap(),
        )),
    );
    update(&mut state, Input::Processes((2..1_002).map(process).collect()));
    update(&mut state, Input::Resized(80, 24));
    state
}

fn waiting(id: &str, pid: u64, call: &str, shown: &str) -> Waiting {
    Waiting {
        id: id.into(),
        pid: Pid(pid),
        call: call.into(),
        rule: "role assistant: fs[1] asks/**".into(),
        shown: shown.lines().map(str::to_owned).collect(),
        shown_as: format!("{id} as it is"),
    }
}

/// A write of process `pid` that was denied for want of a rule of its role.
fn denial(id: &str, pid: u64) -> Denial {
    let shown = "  | FS_WRITE notes\n  | +one\n  rule: role assistant: no rule\n  wants: FS_WRITE notes";
    Denial {
        what: waiting(id, pid, "FS_WRITE notes", shown),
        wants: "FS_WRITE notes".into(),
        until: "2026-11-22T01:10:00Z".parse().unwrap(),
        lifted: false,
        of_role: true,
        closed: false,
        risky: false,
    }
}

fn press(state: &mut State, code: KeyCode) -> Option<Command> {
    let command = update(state, Input::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    state.settle();
    command
}

fn drawn(state: &mut State) -> String {
    state.settle();
    let (columns, rows) = state.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| render(state, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let rows = (0..rows).map(row);
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_thousand_processes_on_a_small_screen() {
    let mut state = thousand();
    update(
        &mut state,
        entry(42, 2, json!({"type": "syscall", "call_id": "c", "name": "FS_READ", "args": {"path": "a"}})),
    );
    update(
        &mut state,
        entry(
            43,
            2,
            json!({"type": "charged", "model": "small", "usage": {"input_tokens": 900, "output_tokens": 100}, "cost_usd": 0.5}),
        ),
    );
    update(
        &mut state,
        Input::Proposals(vec![waiting("p3", 2, "FS_DELETE old.txt", "  why: it is old\n  FS_DELETE old.txt\n  -one")]),
    );
    insta::assert_snapshot!(drawn(&mut state), @"
    aos top  250 ready  251 running  249 blocked  250 sleeping  0 stopped  0 exited
    100 tokens/s  $0.5000 today  journal 43  1 proposal waits
    small    █████████████████████████░░░░░░░░░░░░░░░ 5/8 slots, 12 waiting
    standard ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/4 slots, 0 waiting
    PID▾   STATE             MODEL      CALLS  TOKENS  COST     AGE     NAME
    2      running           small      5      1.2k    $0.5020  10m00s  agent ␛[31m2
    3      sleeping          standard   6      303     $0.0030  10m00s  agent ␛[31m3
    4      running           small      8      404     $0.0040  10m00s  agent ␛[31m4
    5      ready             standard   10     505     $0.0050  10m00s  agent ␛[31m5
    6      blocked: stdin    small      12     606     $0.0060  10m00s  agent ␛[31m6
    7      sleeping          standard   14     707     $0.0070  10m00s  agent ␛[31m7
    8      running           small      16     808     $0.0080  10m00s  agent ␛[31m8
    9      ready             standard   18     909     $0.0090  10m00s  agent ␛[31m9
    10     blocked: stdin    small      20     1.0k    $0.0100  10m00s  agent ␛[31m…
    11     sleeping          standard   22     1.1k    $0.0110  10m00s  agent ␛[31m…
    ┌ 2 agent ␛[31m2, $0 left ─────────────────────────────────────────────────────┐
    │? p3 waits: FS_DELETE old.txt  (Enter shows it)                               │
    │  why: it is old                                                              │
    │  FS_DELETE old.txt                                                           │
    │  -one                                                                        │
    │00:10:00 → FS_READ a                                                          │
    │                                                                              │
    └──────────────────────────────────────────────────────────────────────────────┘
    s sort  / filter  k kill  p pause  Enter look  d denied  u undo  ? help  q quit
    ");
}

#[test]
fn sorted_filtered_and_moved_through() {
    let mut state = thousand();
    while state.sort != Sort::Cost {
        press(&mut state, KeyCode::Char('s'));
    }
    press(&mut state, KeyCode::Home);
    assert_eq!(state.selected, Some(Pid(1_001)), "the dearest first");
    press(&mut state, KeyCode::Char('S'));
    press(&mut state, KeyCode::End);
    assert_eq!(state.selected, Some(Pid(1_001)), "the selection is the last one now");
    press(&mut state, KeyCode::Char('/'));
    for one in "31m77".chars() {
        press(&mut state, KeyCode::Char(one));
    }
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.view().len(), 11, "77 and 770 to 779");
    insta::assert_snapshot!(drawn(&mut state), @"
    aos top  250 ready  250 running  250 blocked  250 sleeping  0 stopped  0 exited
    0 tokens/s  $0 today  journal 41  no proposals
    small    █████████████████████████░░░░░░░░░░░░░░░ 5/8 slots, 12 waiting
    standard ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/4 slots, 0 waiting
    PID    STATE             MODEL      CALLS  TOKENS  COST▴    AGE     NAME
    770    blocked: stdin    small      1.5k   77.8k   $0.7700  10m00s  agent ␛[31m…
    771    sleeping          standard   1.5k   77.9k   $0.7710  10m00s  agent ␛[31m…
    772    running           small      1.5k   78.0k   $0.7720  10m00s  agent ␛[31m…
    773    ready             standard   1.5k   78.1k   $0.7730  10m00s  agent ␛[31m…
    774    blocked: stdin    small      1.5k   78.2k   $0.7740  10m00s  agent ␛[31m…
    775    sleeping          standard   1.6k   78.3k   $0.7750  10m00s  agent ␛[31m…
    776    running           small      1.6k   78.4k   $0.7760  10m00s  agent ␛[31m…
    777    ready             standard   1.6k   78.5k   $0.7770  10m00s  agent ␛[31m…
    778    blocked: stdin    small      1.6k   78.6k   $0.7780  10m00s  agent ␛[31m…
    779    sleeping          standard   1.6k   78.7k   $0.7790  10m00s  agent ␛[31m…
    ┌ 779 agent ␛[31m779, $0.5000 left ────────────────────────────────────────────┐
    │what it did is being read                                                     │
    │                                                                              │
    │                                                                              │
    │                                                                              │
    │                                                                              │
    │                                                                              │
    └──────────────────────────────────────────────────────────────────────────────┘
    s sort  / filter  k kill  p pause  Enter look  d denied  u undo  ? help  q quit
    ");
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.view().len(), 1_000);
    press(&mut state, KeyCode::Char('?'));
    insta::assert_snapshot!(drawn(&mut state), @"
    aos top  250 ready  250 running  250 blocked  250 sleeping  0 stopped  0 exited
    0 tokens/s  $0 today  journal 41  no proposals
    small    █████████████████████████░░░░░░░░░░░░░░░ 5/8 slots, 12 waiting
    standard ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/4 slots, 0 waiting
    PID    STATE             MODEL      CALLS  TOKENS  COST▴    AGE     NAME
    775    sleeping          standard   1.6k   78.3k   $0.7750  10m00s  agent ␛[31m…
    77┌ Keys ────────────────────────────────────────────────────────────────────┐m…
    77│ ↑ ↓ PgUp PgDn Home End  move                                             │m…
    77│ s, S                    sort by the next column, turn the order round    │m…
    77│ /                       filter by name, model, state or pid; Esc clears  │m…
    78│ k                       end the process: TERM, one last turn, then KILL  │m…
    78│ p                       pause it, or let it go on                        │m…
    78│ Enter, a                show what it waits for; a, A approve, r rejects  │m…
    78│ r                       reject it, with a reason                         │m…
    78│ d                       list what was denied; Enter shows one whole      │m…
    ┌ │ u                       show what can be taken back, and take it back    │─┐
    │w│ q, Ctrl-C               leave                                            │ │
    │ └──────────────────────────────────────────────────────────────────────────┘ │
    │                                                                              │
    │                                                                              │
    │                                                                              │
    │                                                                              │
    └──────────────────────────────────────────────────────────────────────────────┘
    s sort  / filter  k kill  p pause  Enter look  d denied  u undo  ? help  q quit
    ");
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = thousand();
    press(&mut state, KeyCode::Char('?'));
    for (width, height) in [(1, 1), (10, 3), (20, 8), (80, 5), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| render(&state, frame)).unwrap();
    }
}

#[test]
fn keys_ask_before_they_end_and_answer_only_what_is_shown() {
    let mut state = thousand();
    state.settle();
    assert_eq!(press(&mut state, KeyCode::Char('k')), None);
    assert_eq!(press(&mut state, KeyCode::Char('n')), None);
    press(&mut state, KeyCode::Char('k'));
    assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Command::Signal(Pid(2), aos_abi::Signal::Term)));
    assert_eq!(press(&mut state, KeyCode::Char('p')), Some(Command::Signal(Pid(2), aos_abi::Signal::Stop)));
    update(&mut state, Input::Proposals(vec![waiting("p3", 3, "x", "  x")]));
    assert_eq!(press(&mut state, KeyCode::Char('a')), None, "the proposal is another process's");
    assert_eq!(state.over, None);
    press(&mut state, KeyCode::Down);
    assert_eq!(press(&mut state, KeyCode::Char('a')), None, "first it is shown whole");
    assert_eq!(
        press(&mut state, KeyCode::Char('a')),
        Some(Command::Approve { ids: vec!["p3".into()], shown_as: "p3 as it is".into(), reach: Reach::Once })
    );
    press(&mut state, KeyCode::Char('r'));
    for one in "no".chars() {
        press(&mut state, KeyCode::Char(one));
    }
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Command::Reject("p3".into(), "no".into())));
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Command::Quit));
}

/// A change of forty lines to a file, proposed by process 3.
fn change() -> Waiting {
    let diff: Vec<String> =
        (1..=40).map(|nth| format!("  {}line {nth}", if nth % 2 == 0 { '+' } else { '-' })).collect();
    waiting("p3", 3, "FS_WRITE a.txt", &format!("  why: the report is wrong\n  FS_WRITE a.txt\n{}", diff.join("\n")))
}

#[test]
fn a_proposal_is_shown_whole_and_answered_there() {
    let mut state = thousand();
    let command = format!("$ {}", "curl -d @a https://a.example/ ".repeat(8));
    update(&mut state, Input::Proposals(vec![change(), waiting("p4", 5, "EXEC_CMD curl", &command)]));
    state.settle();
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Enter);
    let first = drawn(&mut state);
    assert!(first.contains("p3 of process 3: FS_WRITE a.txt") && first.contains("why: the report is wrong"), "{first}");
    assert!(first.contains("-line 1 ") && first.contains("0 lines above, 21 below"), "{first}");
    for key in [KeyCode::PageDown, KeyCode::Down, KeyCode::End] {
        press(&mut state, key);
    }
    press(&mut state, KeyCode::Down);
    let end = drawn(&mut state);
    assert!(end.contains("+line 40") && end.contains("21 lines above, 0 below"), "{end}");
    press(&mut state, KeyCode::Up);
    assert!(drawn(&mut state).contains("20 lines above, 1 below"), "what lies beyond the end is not scrolled through");

    // The next one, of another process: a long line is broken, not cut.
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.selected, Some(Pid(5)));
    let next = drawn(&mut state);
    let text: String = next.lines().map(|line| line.trim_matches('│')).collect();
    assert_eq!(text.matches("curl -d @a https://a.example/").count(), 8, "{next}");
    update(&mut state, Input::Resized(120, 40));
    assert!(drawn(&mut state).lines().count() == 40);
    press(&mut state, KeyCode::Char('r'));
    press(&mut state, KeyCode::Char('n'));
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Command::Reject("p4".into(), "n".into())));

    press(&mut state, KeyCode::Enter);
    assert_eq!(press(&mut state, KeyCode::Esc), None);
    assert_eq!((press(&mut state, KeyCode::Char('q')), &state.over), (Some(Command::Quit), &None));
}

#[test]
fn a_proposal_that_is_new_is_read_before_it_can_be_approved_and_one_that_is_over_goes() {
    let mut state = thousand();
    state.settle();
    let proposal = json!({"type": "proposal", "id": "p3", "state": "pending", "proposal": {
        "call_id": "c", "name": "FS_WRITE", "args": {"path": "a.txt", "content": "x"}, "verdict": "ask", "rule": "r",
        "why": null, "risk": null, "expires_at": "2026-11-23T00:00:00Z",
    }});
    update(&mut state, entry(42, 2, proposal));
    assert!(state.unread, "what it would do is to be read");
    press(&mut state, KeyCode::Enter);
    assert!(drawn(&mut state).contains("it is being read"));
    assert_eq!(press(&mut state, KeyCode::Char('a')), None, "nobody has seen it yet");
    update(&mut state, Input::Proposals(vec![waiting("p3", 2, "FS_WRITE a.txt", "  FS_WRITE a.txt\n  +x")]));
    assert!(!state.unread && drawn(&mut state).contains("+x"));
    update(&mut state, entry(43, 2, json!({"type": "proposal", "id": "p3", "state": "rejected"})));
    assert_eq!((&state.over, state.said.as_deref()), (&None, Some("p3 is over")));
}

#[test]
fn entries_move_a_process_through_its_states() {
    let mut state = State::default();
    let mut lsn = 0;
    let mut now = |body: Value, state: &mut State| {
        lsn += 1;
        update(state, entry(lsn, 7, body));
        let process = &state.processes[&Pid(7)];
        format!(
            "{}{}",
            process.state.as_str(),
            process.waiting_for.as_ref().map(|w| format!(":{w}")).unwrap_or_default()
        )
    };
    let spawned = json!({"type": "spawned", "parent": 1, "role": "r", "task": "count the words", "mode": "resident", "model": "small",
                         "priority": "normal", "workspace": {"home": 7}});
    let answer = json!({"type": "inference_completed", "effect": "1.0", "latency_ms": 5, "text": "hi", "stop": "end",
                        "usage": {"input_tokens": 1, "output_tokens": 2}, "model": "small"});
    let seen = [
        now(spawned, &mut state),
        now(
            json!({"type": "inference_started", "effect": "1.0", "model": "small", "purpose": "turn", "input_tokens": 9, "max_output": 1}),
            &mut state,
        ),
        now(answer, &mut state),
        now(json!({"type": "input", "text": "x", "from_pid": 1}), &mut state),
        now(json!({"type": "syscall", "call_id": "c", "name": "ASK_USER", "args": {}}), &mut state),
        now(json!({"type": "signal", "signal": "STOP", "from_pid": 1}), &mut state),
        now(json!({"type": "exited", "exit_code": 3, "result": null, "reason": "r"}), &mut state),
    ];
    assert_eq!(seen, ["ready", "running", "blocked:stdin", "ready", "blocked:person", "stopped", "exited"]);
    let process = &state.processes[&Pid(7)];
    assert_eq!((process.exit_code, process.usage.inferences, process.usage.syscalls), (Some(3), 1, 1));
    assert_eq!(process.name, "count the words");
    assert_eq!(state.slots["small"].used, 0);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut state = State::default();
    for pid in 2..2 + 2 * EXITED_MAX as u64 {
        update(
            &mut state,
            entry(
                pid,
                pid,
                json!({"type": "spawned", "parent": 1, "role": "r", "mode": "resident", "model": "m", "priority": "normal", "workspace": {"home": pid}}),
            ),
        );
        update(&mut state, entry(pid, pid, json!({"type": "exited", "exit_code": 0, "result": null, "reason": "r"})));
    }
    assert_eq!(state.processes.len(), EXITED_MAX);
    for lsn in 0..3 * EVENTS_MAX as u64 {
        update(&mut state, entry(lsn, 9_999, json!({"type": "input", "text": "x", "from_pid": 1})));
    }
    assert_eq!(state.events[&Pid(9_999)].len(), EVENTS_MAX);
    assert!(state.events.len() <= EXITED_MAX + 1);
}

#[test]
fn nothing_is_drawn_without_a_change() {
    let mut state = thousand();
    state.changed = false;
    update(&mut state, Input::Tick("2026-11-22T00:10:00.100Z".parse().unwrap()));
    assert!(!state.changed);
    update(&mut state, Input::Tick("2026-11-22T00:10:01Z".parse().unwrap()));
    assert!(state.changed, "ages are shown in seconds");
    // A key that came too soon after a frame was forgotten by the next tick.
    state.changed = false;
    press(&mut state, KeyCode::Down);
    update(&mut state, Input::Tick("2026-11-22T00:10:01.100Z".parse().unwrap()));
    assert!(state.changed, "what changed is drawn");
}

#[test]
fn a_question_is_shown_until_it_is_answered() {
    let mut state = thousand();
    let ask = json!({"type": "syscall", "call_id": "c", "name": "ASK_USER", "args": {"question": "Tea?", "options": ["yes", "no"]}});
    update(&mut state, entry(42, 2, ask));
    let shown = drawn(&mut state);
    assert!(shown.contains("1 question waits") && shown.contains("? Tea? (yes / no)  (aos send 2 TEXT)"), "{shown}");
    update(
        &mut state,
        entry(
            43,
            2,
            json!({"type": "result", "call_id": "c", "name": "ASK_USER", "status": "SUCCESS", "result": {"answer": "yes"}}),
        ),
    );
    assert!(!drawn(&mut state).contains("question waits"));
}

#[test]
fn who_has_ended_counts_and_so_does_what_the_day_cost() {
    let mut state = thousand();
    let status = json!({
        "version": "0.1.0", "os_pid": 1, "uptime_s": 1.0, "home": "/h", "listen": "127.0.0.1:7717",
        "processes": {"exited": 7}, "spent_today_usd": 0.5, "model_slots": {}, "lsn": 50,
    });
    update(&mut state, Input::Processes(vec![process(2)]));
    update(&mut state, Input::Status(Box::new(serde_json::from_value(status).unwrap())));
    let exited = json!({"type": "exited", "exit_code": 0, "result": null, "reason": "r"});
    update(&mut state, entry(50, 3, exited.clone()));
    let charged = json!({"type": "charged", "model": "small", "usage": {"input_tokens": 9, "output_tokens": 1}, "cost_usd": 0.25});
    update(&mut state, entry(51, 2, charged));
    assert!(drawn(&mut state).contains(" 7 exited"), "the status knew of that one: {}", drawn(&mut state));
    update(&mut state, entry(52, 2, exited));
    let shown = drawn(&mut state);
    assert!(shown.contains(" 8 exited") && shown.contains("  $0.7500 today  "), "{shown}");
}

#[test]
fn a_cost_that_nobody_knows_is_not_shown_as_nothing_and_a_day_that_ends_soon_is() {
    let mut state = thousand();
    let status = json!({
        "version": "0.1.0", "os_pid": 1, "uptime_s": 1.0, "home": "/h", "listen": "127.0.0.1:7717", "processes": {},
        "spent_today_usd": 0.0, "model_slots": {}, "lsn": 50, "today": {
            "spent_usd": 0.0, "cost_unknown": true, "usd_per_day": 5.0, "nearly_spent": false, "renews_at": "2026-11-23T00:00:00Z",
        },
    });
    let heard = |state: &mut State, status: &serde_json::Value| {
        update(state, Input::Status(Box::new(serde_json::from_value(status.clone()).unwrap())));
    };
    update(&mut state, Input::Processes(vec![process(2)]));
    heard(&mut state, &status);
    assert!(drawn(&mut state).contains("  unknown today  "), "{}", drawn(&mut state));
    let mut known = status;
    known["today"]["cost_unknown"] = json!(false);
    heard(&mut state, &known);
    assert!(drawn(&mut state).contains("  $0 today  "), "{}", drawn(&mut state));
    let usage = json!({"input_tokens": 9, "output_tokens": 1});
    let charged = json!({"type": "charged", "model": "small", "usage": usage, "cost_usd": 4.6});
    update(&mut state, entry(51, 2, charged));
    let nearly = json!({"type": "nearly_spent", "budget": "day", "limit": {"usd": 5.0}, "left": {"usd": 0.4}, "until": "2026-11-23T00:00:00Z"});
    update(&mut state, entry(52, 2, nearly));
    let shown = drawn(&mut state);
    assert!(shown.contains("  $4.60 of $5.00 today, nearly spent  "), "{shown}");
    assert!(shown.contains("nearly spent: $0.4 left of the day's $5, until 2026-11-23T00:00:00"), "{shown}");
    let unpriced = json!({"type": "charged", "model": "own", "usage": usage, "cost_usd": null});
    update(&mut state, entry(53, 2, unpriced));
    assert!(drawn(&mut state).contains("  $4.60 + unknown of $5.00 today"), "{}", drawn(&mut state));
}

#[test]
fn a_wide_screen_shows_what_is_left_of_each_budget() {
    let mut state = thousand();
    assert!(!drawn(&mut state).contains("LEFT"));
    update(&mut state, Input::Resized(100, 24));
    let shown = drawn(&mut state);
    assert!(shown.contains("  COST     LEFT     AGE     NAME\n2 "), "{shown}");
    assert!(shown.contains("  $0.0020  $0.5000  10m00s  agent ␛[31m2\n"), "{shown}");
}

fn undoable(nth: u64, until: &str) -> Undoable {
    Undoable {
        id: format!("p{nth}"),
        pid: Pid(2),
        call: format!("FS_WRITE notes/{nth}.txt"),
        until: until.parse().unwrap(),
    }
}

#[test]
fn what_was_done_is_listed_shown_and_taken_back() {
    let mut state = thousand();
    assert_eq!(press(&mut state, KeyCode::Char('u')), Some(Command::Undoable));
    assert!(drawn(&mut state).contains("it is being read"));
    assert_eq!(press(&mut state, KeyCode::Enter), None, "nothing is chosen yet");
    let list = (4..40).rev().map(|nth| undoable(nth, "2026-11-22T00:25:00Z"));
    let over = undoable(3, "2026-11-22T00:09:59Z");
    update(&mut state, Input::Undoable(list.chain([over]).collect()));
    let first = drawn(&mut state);
    assert!(
        first.contains("36 can be taken back") && first.contains("p39    2       15m00s  FS_WRITE notes/39.txt"),
        "{first}"
    );
    assert!(!first.contains("notes/3.txt"), "its time is over: {first}");
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Down);
    assert!(drawn(&mut state).contains("notes/4.txt"));
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Command::Preview { id: "p4".into(), at: 35 }));
    let lines: Vec<String> = (1..=40).map(|nth| format!("-line {nth}")).collect();
    let shown = Preview { id: "p4".into(), at: 35, lines, may: true };
    update(&mut state, Input::Preview(shown.clone()));
    let seen = drawn(&mut state);
    assert!(seen.contains("undo p4?") && seen.contains("-line 1 ") && seen.contains("y takes it back"), "{seen}");
    press(&mut state, KeyCode::End);
    assert!(drawn(&mut state).contains("-line 40"));
    assert_eq!(press(&mut state, KeyCode::Char('u')), None, "only what is meant so takes it back");
    assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Command::Undo("p4".into())));
    update(&mut state, Input::Said("p4 is undone".into()));
    update(&mut state, entry(50, 2, json!({"type": "proposal", "id": "p4", "state": "undone"})));
    let after = drawn(&mut state);
    assert!(after.contains("35 can be taken back") && after.contains("p4 is undone"), "{after}");

    // What somebody changed since takes no yes.
    press(&mut state, KeyCode::Home);
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Command::Preview { id: "p39".into(), at: 0 }));
    update(&mut state, Input::Preview(Preview { id: "p39".into(), at: 0, may: false, ..shown.clone() }));
    assert_eq!(press(&mut state, KeyCode::Char('y')), None);
    assert!(!drawn(&mut state).contains("takes it back"));
    press(&mut state, KeyCode::Esc);
    let done = json!({"type": "proposal", "id": "p50", "state": "executed", "proposal": {
        "call_id": "c", "name": "FS_WRITE", "args": {"path": "new.txt", "content": "x"}, "verdict": "allow", "rule": "r",
        "why": null, "risk": null, "expires_at": "2026-11-22T00:25:00Z",
    }});
    update(&mut state, entry(51, 2, done.clone()));
    update(&mut state, entry(51, 2, done));
    assert!(drawn(&mut state).contains("36 can be taken back"), "once, however often it is heard of");
    assert!(drawn(&mut state).contains("p50    2       15m00s  FS_WRITE new.txt"));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.over, None);
    update(&mut state, Input::Preview(shown));
    assert_eq!(state.over, None, "what comes after one has gone is not shown");
}

#[test]
fn what_was_denied_is_listed_with_what_it_wants() {
    let mut state = thousand();
    press(&mut state, KeyCode::Char('d'));
    assert!(drawn(&mut state).contains("nothing was denied"));
    press(&mut state, KeyCode::Esc);
    let denied = json!({"type": "proposal", "id": "p3", "state": "denied", "proposal": {
        "call_id": "c", "name": "FS_WRITE", "args": {"path": "a", "content": "x"}, "verdict": "deny", "rule": "r",
        "grants": ["FS_WRITE a"], "why": null, "risk": null, "expires_at": "2026-11-23T00:00:00Z",
    }});
    update(&mut state, entry(42, 2, denied));
    assert!(state.unread && state.waiting.is_empty(), "nobody waits for it");
    update(&mut state, Input::Proposals(Vec::new()));
    let risky = Denial { wants: "NET_SEND a.example/\u{1b}[2J".into(), risky: true, ..denial("p4", 3) };
    update(&mut state, Input::Denied(vec![denial("p3", 2), risky, Denial { lifted: true, ..denial("p5", 3) }]));
    let table = drawn(&mut state);
    assert!(table.contains("no proposals  2 denied (d)"), "what was lifted is not denied any more: {table}");
    assert!(table.contains("! p3 was denied: FS_WRITE notes  (d lists it)"), "{table}");
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('d'));
    assert_eq!(state.over, Some(Over::Denials { at: 1 }), "that of the selected process");
    insta::assert_snapshot!(drawn(&mut state).lines().take(5).collect::<Vec<_>>().join("\n"), @"
    ┌ 3 denied: id, process, state, time left, what it wants, call ────────────────┐
    │ p3     2      denied     1h00m  FS_WRITE notes           FS_WRITE notes      │
    │!p4     3      denied     1h00m  NET_SEND a.example/␛[2J  FS_WRITE notes      │
    │ p5     3      approved   1h00m  FS_WRITE notes           FS_WRITE notes      │
    │                                                                              │
    ");
    // What it looks like on a narrow screen, and with more than fit.
    update(&mut state, Input::Denied((1..=200).map(|nth| denial(&format!("p{nth}"), 2)).collect()));
    update(&mut state, Input::Resized(30, 10));
    press(&mut state, KeyCode::End);
    let narrow = drawn(&mut state);
    assert!(
        narrow.contains("p200   2      FS_WRITE not") && narrow.lines().all(|line| line.chars().count() <= 30),
        "{narrow}"
    );
    update(&mut state, entry(43, 2, json!({"type": "proposal", "id": "p200", "state": "rejected"})));
    assert!(state.unread && state.denied.len() == 199);
    assert!(drawn(&mut state).contains("p199   2      FS_WRITE not"), "the last one is chosen then");
}

#[test]
fn a_denial_is_answered_where_it_is_shown_whole() {
    let mut state = thousand();
    update(&mut state, Input::Denied(vec![denial("p3", 2), Denial { of_role: false, ..denial("p4", 3) }]));
    let lift =
        |id: &str, reach| Some(Command::Approve { ids: vec![id.into()], shown_as: format!("{id} as it is"), reach });
    let look = |state: &mut State, keys: &[KeyCode]| {
        state.over = None;
        keys.iter().for_each(|key| assert_eq!(press(state, *key), None));
        drawn(state)
    };
    let (d, enter) = (KeyCode::Char('d'), KeyCode::Enter);
    let listed = look(&mut state, &[d]);
    assert!(listed.contains("2 denied: id, process, state"), "{listed}");
    for key in ['p', 'g', 'r'] {
        assert_eq!(press(&mut state, KeyCode::Char(key)), None, "the list has less than the call");
        assert!(matches!(state.over, Some(Over::Denials { .. })));
    }
    let whole = look(&mut state, &[d, enter]);
    assert!(whole.contains("p3: process 2 was denied FS_WRITE notes") && whole.contains("| +one"), "{whole}");
    assert!(
        whole.contains("a approve once  p for the process  g for the role  r dismiss  Tab next  Esc back"),
        "{whole}"
    );
    assert_eq!(press(&mut state, KeyCode::Char('a')), lift("p3", Reach::Once));
    assert_eq!(state.over, Some(Over::Denials { at: 0 }), "back in the list, where it is said what came of it");
    update(&mut state, Input::Said("p3 is approved".into()));
    assert!(drawn(&mut state).ends_with("p3 is approved"));
    look(&mut state, &[d, KeyCode::Char('a')]);
    assert_eq!(press(&mut state, KeyCode::Char('p')), lift("p3", Reach::Process));
    // What its role is not to blame for can be lifted for once alone.
    let next = look(&mut state, &[d, enter, KeyCode::Tab]);
    assert!(next.contains("p4: process 3") && next.contains("a approve once  r dismiss  Tab next"), "{next}");
    for key in ['p', 'g', 'y'] {
        assert_eq!(press(&mut state, KeyCode::Char(key)), None);
    }
    press(&mut state, KeyCode::Char('r'));
    press(&mut state, KeyCode::Char('n'));
    assert!(drawn(&mut state).contains("Dismiss p4: why? n"));
    assert_eq!(press(&mut state, enter), Some(Command::Reject("p4".into(), "n".into())));
    assert_eq!(state.over, Some(Over::Denials { at: 1 }));
    // Lifted by somebody: it can be taken back until the call is made.
    update(&mut state, entry(50, 3, json!({"type": "proposal", "id": "p4", "state": "approved"})));
    let taken = look(&mut state, &[d, KeyCode::Down, enter]);
    assert!(taken.contains("p4: process 3 may make FS_WRITE notes") && taken.contains("r take it back"), "{taken}");
    assert_eq!(press(&mut state, KeyCode::Char('a')), None);
    update(&mut state, entry(51, 3, json!({"type": "proposal", "id": "p4", "state": "executed"})));
    assert_eq!((&state.over, state.said.as_deref()), (&Some(Over::Denials { at: 0 }), Some("p4 is over")));
}

#[test]
fn the_grants_for_the_role_are_shown_and_take_a_second_key() {
    let mut state = thousand();
    update(&mut state, Input::Denied(vec![denial("p3", 2)]));
    let open = |state: &mut State| {
        state.over = None;
        [KeyCode::Char('d'), KeyCode::Enter].into_iter().for_each(|key| assert_eq!(press(state, key), None));
        press(state, KeyCode::Char('g'))
    };
    let change = crate::cli::Change::example("p3");
    let lines = change.shown();
    assert_eq!(open(&mut state), Some(Command::Change("p3".into())));
    update(&mut state, Input::Said("the policy has changed".into()));
    assert!(drawn(&mut state).ends_with("the policy has changed"), "why it cannot be is said beside the denial");
    open(&mut state);
    update(&mut state, Input::Change(Grant { change: change.clone(), lines: lines.clone() }));
    let shown = drawn(&mut state);
    assert!(
        shown.contains("p3 for every process of its role?") && shown.contains("│+    calls: [FS_WRITE notes]"),
        "{shown}"
    );
    assert!(shown.contains("y writes it to policy.yaml  ↑↓ scroll"), "{shown}");
    // Whoever presses it ends what waits for an answer, also what came meanwhile.
    let ask = |id: &str, pid| waiting(id, pid, "FS_WRITE a", "  | FS_WRITE a");
    update(&mut state, Input::Proposals(vec![ask("p4", 3)]));
    assert!(drawn(&mut state).contains("y writes it to policy.yaml, and 1 open question ends  ↑↓ scroll  Esc back"));
    update(&mut state, Input::Proposals(vec![ask("p4", 3), ask("p5", 4)]));
    assert!(drawn(&mut state).contains("and 2 open questions end  ↑↓"), "{}", drawn(&mut state));
    assert_eq!(press(&mut state, KeyCode::Char('g')), None, "the same key twice writes nothing");
    assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Command::Make(Box::new(change.clone()))));
    open(&mut state);
    press(&mut state, KeyCode::Esc);
    update(&mut state, Input::Change(Grant { change, lines }));
    assert_eq!(state.over, Some(Over::Denials { at: 0 }), "what comes after one has gone is not shown");
}

#[test]
fn one_key_answers_the_same_question_of_a_tree() {
    let mut state = thousand();
    // All but process 9 are children of 2.
    let children = (3..12).map(|pid| ProcessView { parent: Pid(if pid == 9 { 1 } else { 2 }), ..process(pid) });
    update(&mut state, Input::Processes(std::iter::once(process(2)).chain(children).collect()));
    let same =
        |id: &str, pid| Waiting { shown_as: "the same".into(), ..waiting(id, pid, "FS_WRITE a", "  | FS_WRITE a") };
    let ask = |late: bool| {
        let other = Waiting { shown_as: "another".into(), ..same("p6", 6) };
        let by = Waiting { rule: "label: labels[0] untrusted".into(), ..same("p7", 7) };
        let list = [same("p3", 3), same("p4", 4), same("p5", 9), other, by, same("p8", 8)];
        Input::Proposals(list.into_iter().take(if late { 6 } else { 5 }).collect())
    };
    update(&mut state, ask(false));
    state.selected = Some(Pid(4));
    press(&mut state, KeyCode::Enter);
    let shown = drawn(&mut state);
    assert!(shown.contains("the same 2 times: p3 of process 3, p4 of process 4"), "{shown}");
    assert!(shown.contains("a approve  A all 2  r reject"), "{shown}");
    // One that comes now is not on the screen yet.
    update(&mut state, ask(true));
    let yes = |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Some(Command::Approve { ids, shown_as: "the same".into(), reach: Reach::Once })
    };
    assert_eq!(press(&mut state, KeyCode::Char('A')), yes(&["p3", "p4"]));
    state.over = Some(Over::Proposal { id: "p4".into(), from: 0 });
    assert!(drawn(&mut state).contains("A all 3"));
    assert_eq!(press(&mut state, KeyCode::Char('A')), yes(&["p3", "p4", "p8"]));
    state.over = Some(Over::Proposal { id: "p6".into(), from: 0 });
    assert!(!drawn(&mut state).contains("A all"));
    assert_eq!(
        press(&mut state, KeyCode::Char('a')),
        Some(Command::Approve { ids: vec!["p6".into()], shown_as: "another".into(), reach: Reach::Once })
    );
}

/// A yes went to what had come since the last frame, and had never been on the screen.
#[test]
fn a_yes_is_to_what_the_last_frame_showed() {
    let mut state = thousand();
    let new = |shown_as: &str| Waiting { shown_as: shown_as.into(), ..waiting("p3", 2, "x", "  | more") };
    let key = |state: &mut State, one| update(state, Input::Key(KeyEvent::new(KeyCode::Char(one), KeyModifiers::NONE)));
    update(&mut state, Input::Proposals(vec![Waiting { shown: Vec::new(), ..new("") }]));
    press(&mut state, KeyCode::Enter);
    update(&mut state, Input::Proposals(vec![new("first")]));
    assert_eq!(key(&mut state, 'a'), None, "it was read, and is not drawn yet");
    assert!(drawn(&mut state).contains("| more"));
    update(&mut state, Input::Proposals(vec![new("second")]));
    assert_eq!(
        (key(&mut state, 'x'), &state.over),
        (None, &None),
        "it closes, so that no key meant for the first answers it"
    );
    update(&mut state, Input::Denied(vec![denial("p4", 2)]));
    [KeyCode::Char('d'), KeyCode::Enter].into_iter().for_each(|key| assert_eq!(press(&mut state, key), None));
    let mut changed = denial("p4", 2);
    changed.what.shown_as = "with a risk".into();
    update(&mut state, Input::Denied(vec![changed]));
    assert_eq!(state.said.as_deref(), Some("p4 has changed; Enter shows it as it is"));
    assert_eq!(key(&mut state, 'p'), None);
}

#[test]
fn what_a_process_did_before_stands_above_what_it_does_now() {
    let mut state = thousand();
    state.settle();
    update(
        &mut state,
        entry(42, 2, json!({"type": "syscall", "call_id": "c", "name": "FS_READ", "args": {"path": "new"}})),
    );
    let before = |number: usize| (0..number).map(|nth| format!("00:00:00 → FS_READ old{nth}")).collect();
    update(&mut state, Input::Past(Pid(2), before(3)));
    let shown = drawn(&mut state);
    let at =
        |words: &str| shown.lines().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {shown}"));
    assert!(at("old0") < at("old2") && at("old2") < at("FS_READ new"), "{shown}");
    update(&mut state, Input::Past(Pid(3), before(3 * EVENTS_MAX)));
    update(&mut state, Input::Past(Pid(4), Vec::new()));
    assert_eq!(state.events[&Pid(3)].len(), EVENTS_MAX);
    assert_eq!(state.events[&Pid(3)].back().unwrap(), &format!("00:00:00 → FS_READ old{}", 3 * EVENTS_MAX - 1));
    state.selected = Some(Pid(4));
    assert!(drawn(&mut state).contains("it has done nothing yet"));
    // Who is gone is read again where it comes back.
    update(&mut state, Input::Processes(vec![process(3)]));
    assert_eq!(state.told.into_iter().collect::<Vec<_>>(), [Pid(3)]);
}

#[test]
fn what_is_cut_has_a_sign_and_every_key_is_named() {
    let mut state = thousand();
    let mut long = process(2);
    long.name = "one that was given a very long name, and longer".repeat(3);
    long.model = "a-model-of-some-size".into();
    update(&mut state, Input::Processes(vec![long]));
    update(&mut state, Input::Past(Pid(2), vec![format!("00:00:00 ← input: {}", "word ".repeat(40))]));
    for width in [80, 120] {
        update(&mut state, Input::Resized(width, 24));
        let shown = drawn(&mut state);
        let row = shown.lines().find(|line| line.starts_with("2 ")).unwrap();
        assert!(row.contains("a-model-o…") && row.ends_with('…'), "{shown}");
        assert!(shown.lines().any(|line| line.starts_with("┌ 2 one") && line.ends_with("…┐")), "{shown}");
        assert!(shown.lines().any(|line| line.starts_with("│00:00:00") && line.ends_with("…│")), "{shown}");
        let keys = shown.lines().last().unwrap();
        assert!(keys.ends_with("? help  q quit") && keys.starts_with('↑') == (width == 120), "{keys}");
    }
}

#[test]
fn the_end_of_a_process_says_what_all_of_it_used() {
    let mut state = thousand();
    state.settle();
    update(&mut state, entry(42, 2, json!({"type": "exited", "exit_code": 0, "result": null, "reason": "answered"})));
    assert!(drawn(&mut state).contains("answered: 2 inferences, 200+2 tokens, $0.0020"), "{}", drawn(&mut state));
}
