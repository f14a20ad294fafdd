//! The command line as people see it, and what is told about a run.

use aos_abi::Entry;
use clap::CommandFactory as _;
use serde_json::{Value, json};

use super::talk::{Action, Kind, Talk};
use super::*;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn help_for_newcomers() {
    insta::assert_snapshot!(Cli::command().term_width(100).render_help(), @r#"
    An operating system for language-model agents

    Usage: aos [OPTIONS] [COMMAND]

    Commands:
      init        Make the home: a commented aos.toml and policy.yaml, with the models that are found
      up          Start the daemon; every other command does so by itself
      down        Stop the daemon in good order; agents go on when it starts again
      status      Show whether the daemon runs, and what with; does not start it
      run         Give one agent one task, show what it does, and print its result
      spawn       Start an agent in the background that stays until it ends or is ended; prints its pid
      ps          List the processes that live
      tree        Show the processes that live below their parents
      inspect     Show everything about a process
      top         Watch the processes live, full screen
      logs        Show what a process thought, called and got
      attach      Connect this terminal to a process: its output here, your lines to its input
      send        Send text to a process's standard input
      wait        Wait until a process has ended; prints its result and exits with its code
      kill        End processes: TERM gives one last turn and 5 s, then KILL
      pause       Let processes finish what they are at and start nothing new
      resume      Let paused or stopped processes go on
      timers      List what wakes processes at its time, or cancel one
      fork        Start a second process from the past of a first one; prints its pid
      replay      Make a process's decisions again, offline, and say where they differ from what was
                  recorded
      proposals   List what waits for a person, and what was denied
      approve     Say yes to calls that wait, or lift the denial of one
      reject      Say no to calls that wait, or dismiss denials
      undo        Take back what was done, while its window lasts
      policy      Check the policy, and ask it what it would say
      audit       Prove that the journal was not altered, or export it
      backup      Write a consistent copy of everything in the home, also while agents run
      restore     Put back what `aos backup` wrote; the daemon must be down
      prune       Take processes that have ended out of the journal; a sealed mark in the chain says so
      models      List the configured models, test them, fetch others, make keys for other programs
      budget      Show what processes may still spend, or set the limits of one
      cost        Show what was spent
      memory      Search, show and forget what agents remember
      doctor      Check the host, the home, the configuration and the models, and say how to mend each
                  fault
      man         Show the manual page of a system call; without a name, list them
      completion  Print a script that completes commands in your shell
      version     Print the version of this program
      help        Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Everywhere:
          --home <DIR>    The folder that holds everything of one AOS [default: $AOS_HOME, else ~/.aos]
          --json          Print JSON: one document, or a line for each thing where it streams
          --no-start      Fail with exit code 3 where no daemon runs, instead of starting it
          --color <WHEN>  When to use colours; NO_COLOR is honoured [default: auto] [possible values:
                          auto, always, never]
      -q, --quiet         Print results and errors only

    Examples:
      aos run "summarise notes.txt in three lines" -f notes.txt
      git diff | aos run -m small -
      aos spawn --name reminder "remind me every hour to stretch"
      aos logs -f 7
      aos kill 7

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon, 4 denied by the policy,
    5 budget spent, 124 timeout; `aos run` and `aos wait` exit with the agent's own code.
    "#);
}

#[test]
fn help_of_run() {
    let mut aos = Cli::command().term_width(100);
    aos.build();
    insta::assert_snapshot!(aos.find_subcommand_mut("run").unwrap().render_help(), @r#"
    Give one agent one task, show what it does, and print its result

    Usage: aos run [OPTIONS] [TASK]

    Arguments:
      [TASK]  What it is to do; `-`, or nothing with something piped in, reads it from standard input

    Options:
      -m, --model <MODEL>           The model it runs on
      -w, --workspace <DIR>         Work on this folder instead of one of its own
          --trusted                 You have looked at the folder of -w: what agents left there under
                                    untrusted content counts as yours
      -f, --file <FILE>             Put a copy of this file into its workspace, with -w only in a
                                    --dry-run; `-` is standard input, as input.txt; may be repeated
          --untrusted               Others wrote the files of -f: what is read of them is labelled
                                    `untrusted.file`
          --budget <USD>            The most it may spend, in US dollars
          --timeout <TIME>          End it after this time with exit code 124: 90s, 10m, 2h
          --grant <CALL [PATTERN]>  Allow only this: a call, or a call and a pattern, such as "FS_READ
                                    docs/**"; may be repeated
          --group <NAME>            The group it and its children belong to; `aos kill --group` reaches
                                    all of it
          --dry-run                 Show what it would change in the folder, and change nothing: it
                                    works on a copy, and sends, remembers and schedules nothing
      -h, --help                    Print help (see more with '--help')

    Everywhere:
          --home <DIR>    The folder that holds everything of one AOS [default: $AOS_HOME, else ~/.aos]
          --json          Print JSON: one document, or a line for each thing where it streams
          --no-start      Fail with exit code 3 where no daemon runs, instead of starting it
          --color <WHEN>  When to use colours; NO_COLOR is honoured [default: auto] [possible values:
                          auto, always, never]
      -q, --quiet         Print results and errors only

    Examples:
      aos run "say hello"
      aos run -f report.md "summarise report.md in three lines" > summary.txt
      git diff | aos run -f - --untrusted "review the diff in input.txt"
      aos run -w . --budget 0.50 --timeout 10m "fix the failing test"

    What it does goes to standard error, its result to standard output. Ctrl-C asks it to end,
    twice ends it. The exit code is the agent's own.

    A task that comes through `-` is taken as your own words. What others wrote give with -f and
    --untrusted: rules of policy.yaml about untrusted content hold for whatever is done after it is
    read.
    "#);
}

#[test]
fn commands_that_are_not_there_are_not_in_the_help() {
    let help = Cli::command().render_long_help().to_string();
    for absent in ["threads", "tools", "apps", "channels", "mcp", "dashboard"] {
        assert!(!help.contains(&format!("  {absent} ")), "{absent}");
        assert!(Cli::try_parse_from(["aos", absent, "--anything", "x"]).is_ok(), "{absent}");
    }
}

#[test]
fn wrong_usage_is_told_like_every_error() {
    let told = |arguments: &[&str]| {
        let error = Cli::try_parse_from(arguments).unwrap_err();
        let arguments: Vec<std::ffi::OsString> = arguments.iter().map(Into::into).collect();
        let failure = usage::failure(&error.render().to_string(), &arguments);
        format!("{}exit {}\n", failure.shown(), failure.exit.code())
    };
    let all = [
        told(&["aos", "rnu", "x"]),
        told(&["aos", "logs"]),
        told(&["aos", "logs", "7", "--folow"]),
        told(&["aos", "logs", "seven"]),
        told(&["aos", "run", "x", "--budget", "0"]),
        told(&["aos", "run", "x", "--timeout", "0s"]),
        told(&["aos", "run", "--budget", "-1", "x"]),
        told(&["aos", "run", "--timeout", "-5s", "x"]),
        told(&["aos", "budget", "2", "--usd", "-1"]),
        told(&["aos", "budget", "2", "--tokens", "-1"]),
        told(&["aos", "spawn", "--name", &"n".repeat(70)]),
        told(&["aos", "kill", "7", "-s", "HUP"]),
        told(&["aos", "--color", "blue", "ps"]),
    ];
    insta::assert_snapshot!(all.join("\n"), @"
    error: unrecognized subcommand 'rnu'
      try: did you mean `aos run`?
      try: aos --help
    exit 2

    error: the following required arguments were not provided
      why: <PID>
      try: aos logs --help
    exit 2

    error: unexpected argument '--folow' found
      try: a similar argument exists: '--follow'
      try: aos logs --help
    exit 2

    error: invalid value 'seven' where a pid belongs
      why: a pid is a number, which `aos spawn` prints
      try: aos ps shows pids and names
      try: aos logs --help
    exit 2

    error: invalid value '0' for '--budget <USD>': an amount above 0 in US dollars, such as 0.50
      try: aos run --help
    exit 2

    error: invalid value '0s' for '--timeout <TIME>': a time above 0, such as 90s or 10m
      try: aos run --help
    exit 2

    error: invalid value '-1' for '--budget <USD>': an amount above 0 in US dollars, such as 0.50
      try: aos run --help
    exit 2

    error: invalid value '-5s' for '--timeout <TIME>': `-5s` is no length of time; write 90s, 10m, 2h or 3d
      try: aos run --help
    exit 2

    error: invalid value '-1' for '--usd <USD>': an amount above 0 in US dollars, such as 0.50
      try: aos budget --help
    exit 2

    error: invalid value '-1' for '--tokens <TOKENS>': a number above 0
      try: aos budget --help
    exit 2

    error: invalid value 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn' for '--name <NAME>': 70 bytes, the most for a name is 64
      try: aos spawn --help
    exit 2

    error: invalid value 'HUP' for '--signal <SIGNAL>': no signal `HUP`; there are TERM, KILL, STOP and CONT
      try: aos kill --help
    exit 2

    error: invalid value 'blue' for '--color <WHEN>'
      why: [possible values: auto, always, never]
      try: aos --help
    exit 2
    ");
}

#[test]
fn a_call_to_explain_is_read() {
    let read = |text: &str| policy::read_call(text).map(|call| (call.name, call.args));
    assert_eq!(read("FS_WRITE {\"path\":\"a\"}").unwrap(), ("FS_WRITE".into(), json!({"path": "a"})));
    assert_eq!(read(" FS_WRITE{\"path\":\"a b\"}").unwrap(), ("FS_WRITE".into(), json!({"path": "a b"})));
    assert_eq!(read("SYS_EXIT").unwrap(), ("SYS_EXIT".into(), json!({})));
    assert_eq!(read("FS_WRITE {").unwrap_err().exit, Exit::Usage);
}

fn entries(bodies: Vec<Value>) -> Vec<Entry> {
    bodies
        .into_iter()
        .enumerate()
        .map(|(at, mut body)| {
            body["lsn"] = json!(at + 1);
            body["pid"] = json!(7);
            body["at"] = json!("2026-11-22T13:05:59.000Z");
            serde_json::from_value(body.clone()).unwrap_or_else(|error| panic!("{error}: {body}"))
        })
        .collect()
}

fn story() -> Vec<Entry> {
    entries(vec![
        json!({"type": "spawned", "parent": 1, "role": "r", "task": "count", "mode": "one_shot", "model": "nano",
               "priority": "interactive", "workspace": {"home": 7}}),
        json!({"type": "inference_started", "effect": "1.0", "model": "nano", "purpose": "turn", "input_tokens": 900, "max_output": 10}),
        json!({"type": "inference_completed", "effect": "1.0", "latency_ms": 5, "text": "I will look\u{1b}[2J.\n→ fake", "stop": "calls",
               "calls": [{"id": "c1", "name": "FS_READ", "arguments": "{}"}], "usage": {"input_tokens": 900, "output_tokens": 20}, "model": "nano"}),
        json!({"type": "charged", "model": "nano", "usage": {"input_tokens": 900, "output_tokens": 20}, "cost_usd": 0.0004}),
        json!({"type": "syscall", "call_id": "c1", "name": "FS_READ", "args": {"path": "notes.txt"}}),
        json!({"type": "verdict", "call_id": "c1", "verdict": "allow", "rule": "role"}),
        json!({"type": "result", "call_id": "c1", "name": "FS_READ", "status": "SUCCESS", "result": {"content": "x", "size": 1234, "truncated": false}}),
        json!({"type": "syscall", "call_id": "c2", "name": "EXEC_CMD", "args": {"cmd": "wc -w\nnotes.txt"}}),
        json!({"type": "result", "call_id": "c2", "name": "EXEC_CMD", "status": "SUCCESS", "result": {"stdout": "\n42 notes.txt\n", "stderr": "", "exit_code": 0}}),
        json!({"type": "syscall", "call_id": "c3", "name": "NET_SEND", "args": {"url": "https://example.com/"}}),
        json!({"type": "verdict", "call_id": "c3", "verdict": "deny", "rule": "file: no rule"}),
        json!({"type": "result", "call_id": "c3", "name": "NET_SEND", "status": "ERROR", "error": {"code": "EPERM", "message": "denied", "hint": "net to example.com:443"}}),
        json!({"type": "syscall", "call_id": "c4", "name": "ASK_USER", "args": {"question": "Which?\nReally", "options": ["a", "b"]}}),
        json!({"type": "input", "text": "a", "from_pid": 1}),
        json!({"type": "result", "call_id": "c4", "name": "ASK_USER", "status": "SUCCESS", "result": {"answer": "a"}}),
        json!({"type": "proposal", "id": "p3", "state": "pending", "proposal": {"call_id": "c5", "name": "FS_DELETE", "args": {"path": "old.txt"},
               "verdict": "ask", "rule": "role", "why": null, "risk": null, "expires_at": "2026-11-23T00:00:00Z"}}),
        json!({"type": "proposal", "id": "p3", "state": "rejected", "why": "keep it"}),
        json!({"type": "syscall", "call_id": "c7", "name": "FS_WRITE", "args": {"path": "new.txt", "content": "hello"}}),
        json!({"type": "proposal", "id": "p4", "state": "executed", "proposal": {"call_id": "c7", "name": "FS_WRITE", "args": {"path": "new.txt"},
               "verdict": "allow", "rule": "role", "why": null, "risk": null, "expires_at": "2026-11-22T07:33:17Z"}}),
        json!({"type": "result", "call_id": "c7", "name": "FS_WRITE", "status": "SUCCESS", "result": {"bytes": 5}}),
        json!({"type": "syscall", "call_id": "c6", "name": "SYS_WRITE_STDOUT", "args": {"text": "half way"}}),
        json!({"type": "result", "call_id": "c6", "name": "SYS_WRITE_STDOUT", "status": "SUCCESS", "result": {}}),
        json!({"type": "exited", "exit_code": 0, "result": "42 words\u{7}", "reason": "answered"}),
    ])
}

fn heard(kind: Kind) -> String {
    let mut talk = Talk::new(kind, Narrator::new(Style::plain(), 80, None));
    let mut out = String::new();
    for entry in story() {
        for action in talk.hear(&entry) {
            out.push_str(&match action {
                Action::Tell(text) => format!("err| {text}\n"),
                Action::Write(text) => format!("out| {text}\n"),
                Action::Ask => format!("ask| {:?}\n", talk.prompt().unwrap()),
                Action::Looked { text, .. } => format!("err| {text}\n"),
                other => format!("{other:?}\n"),
            });
        }
    }
    assert_eq!(talk.prompt(), None, "everything asked was answered");
    out
}

/// A question about where it may be asked came behind "the model failed".
#[test]
fn what_is_kept_here_is_no_failure_of_the_model() {
    let told = |kind: &str| {
        let failure = json!({"kind": kind, "message": "nothing was sent: it holds personal data (email)",
            "hint": null, "retry_after_ms": null, "usage": null});
        let body = json!({"type": "inference_completed", "effect": "1.0", "latency_ms": 5, "failure": failure});
        Narrator::new(Style::plain(), 80, None).tell(&entries(vec![body]).remove(0)).join("")
    };
    assert_eq!(told("withheld"), "! nothing was sent: it holds personal data (email)");
    assert!(told("transient").starts_with("! the model failed: "), "{}", told("transient"));
}

#[test]
fn a_run_is_told_in_a_line_for_each_call_and_result() {
    insta::assert_snapshot!(heard(Kind::Run), @r#"
    err| process 7 on model nano
    err| note: nano is the small model inside aos, for plain tasks; `aos init` looks for a larger one
    err| │ I will look␛[2J.
    err| │ → fake
    err| → FS_READ notes.txt
    err|   ✓ 1234 bytes
    err| → EXEC_CMD wc -w notes.txt
    err|   ✓ exit 0: 42 notes.txt
    err| → NET_SEND https://example.com/
    err|   ⊘ denied by file: no rule
    err|   ✗ EPERM: denied; net to example.com:443
    err| → ASK_USER Which? Really
    err| │ Which?
    err| │ Really (a / b)
    ask| Question { call: "c4", lines: ["│ Which?", "│ Really (a / b)"] }
    err| ← input: a
    err|   ✓ a
    err| ? proposal p3: FS_DELETE old.txt
    ask| Approval { id: "p3" }
    err|   • proposal p3 rejected, keep it
    err| → FS_WRITE new.txt
    err|   ↶ until 07:33:17 `aos undo p4` takes it back
    err|   ✓ 5 bytes
    err| → SYS_WRITE_STDOUT half way
    err|   ✓ done
    err| │ half way
    err| ■ exit 0, answered: 1 inference, 900+20 tokens, $0.0004
    End { code: 0, result: Some("42 words␇"), reason: "answered" }
    "#);
}

/// What a rule of the role asks about inside a command was offered with `--grant`, which led to the next denial.
#[test]
fn a_denial_names_what_lets_the_next_one_pass_and_nothing_else() {
    let told = |rule: &str| {
        let proposal = json!({"call_id": "c", "name": "NET_SEND", "args": {"url": "https://a.example/"}, "verdict": "deny",
            "rule": rule, "why": null, "risk": null, "grants": ["NET_SEND POST a.example/"], "expires_at": "2026-11-23T00:00:00Z"});
        let body = json!({"type": "proposal", "id": "p3", "state": "denied", "proposal": proposal});
        let lines = Narrator::new(Style::plain(), 120, None).tell(&entries(vec![body]).remove(0));
        assert_eq!(lines[0], "  ? `aos approve p3` would let it be done");
        lines[1..].join("|")
    };
    let of_role = "  ? `aos approve p3 --for role` is for good, also when this one has ended";
    for rule in [
        "role assistant: no rule",
        "role assistant: no rule; then label: labels[0] untrusted asks",
        "role assistant: net[0] a asks",
    ] {
        assert_eq!(told(rule), of_role, "{rule}");
    }
    assert_eq!(
        told("grant: none of this process, which has [FS_READ **]"),
        "  ? the next one may with --grant \"NET_SEND POST a.example/\""
    );
    for rule in ["label: labels[0] untrusted asks", "role assistant: no rule; also role assistant: net[0] a asks"] {
        assert_eq!(told(rule), "", "{rule}");
    }
}

/// A run ended with a line for each denial, closed ones too, of which nothing came.
#[test]
fn of_denials_that_end_with_their_process_only_an_unused_yes_is_told() {
    let of =
        |id: &str, state: &str, why: Option<&str>| json!({"type": "proposal", "id": id, "state": state, "why": why});
    let denied = |id: &str| {
        json!({"type": "proposal", "id": id, "state": "denied", "proposal": {"call_id": "c", "name": "FS_WRITE", "args": {"path": "a"},
            "verdict": "deny", "rule": "x", "why": null, "risk": null, "closed": "no yes lifts x", "expires_at": "2026-11-23T00:00:00Z"}})
    };
    let ended = Some("its process has ended");
    let told = entries(vec![
        denied("p1"),
        denied("p2"),
        denied("p3"),
        of("p2", "approved", None),
        of("p3", "expired", Some("newer ones took its place")),
        of("p1", "expired", ended),
        of("p2", "expired", ended),
        // A question.
        of("p4", "expired", ended),
    ]);
    let mut narrator = Narrator::new(Style::plain(), 80, None);
    let lines: Vec<String> = told.iter().flat_map(|entry| narrator.tell(entry)).collect();
    assert_eq!(
        lines[3..],
        [
            "  • proposal p2 approved",
            "  • proposal p3 expired, newer ones took its place",
            "  • proposal p2 expired, its process has ended",
            "  • proposal p4 expired, its process has ended",
        ]
    );
}

#[test]
fn a_command_that_failed_is_not_told_as_done() {
    let result = |code: i32| {
        let body = json!({"type": "result", "call_id": "c", "name": "EXEC_CMD", "status": "SUCCESS", "result": {"exit_code": code, "stdout": "", "stderr": "sh: no\n"}});
        let entry = entries(vec![body]).remove(0);
        Narrator::new(Style::plain(), 80, None).tell(&entry).join("")
    };
    assert_eq!([result(127), result(0)], ["  ✗ exit 127: sh: no", "  ✓ exit 0: sh: no"]);
}

#[test]
fn what_is_left_out_of_a_commands_changes_is_told_before_its_output() {
    let told = |left_out: Value, more: Value| {
        let result =
            json!({"exit_code": 0, "stdout": "done\n", "stderr": "", "left_out": left_out, "left_out_more": more});
        let body = json!({"type": "result", "call_id": "c", "name": "EXEC_CMD", "status": "SUCCESS", "result": result});
        Narrator::new(Style::plain(), 80, None).tell(&entries(vec![body]).remove(0)).join("")
    };
    assert_eq!(told(json!(["p: a pipe"]), Value::Null), "  ✓ exit 0 (left out p: a pipe): done");
    assert_eq!(told(json!(["p: a pipe", "q: a pipe"]), json!(3)), "  ✓ exit 0 (left out p: a pipe, and 4 more): done");
}

/// The result of the first of two reads stood below the second.
#[test]
fn a_result_names_its_call_where_another_was_told_last() {
    let call =
        |id: &str, path: &str| json!({"type": "syscall", "call_id": id, "name": "FS_LIST", "args": {"path": path}});
    let failed = |id: &str| json!({"type": "result", "call_id": id, "name": "FS_LIST", "status": "ERROR", "error": {"code": "ENOENT", "message": "no"}});
    let mut narrator = Narrator::new(Style::plain(), 80, None);
    let told = entries(vec![call("c1", "a"), call("c2", "b"), failed("c2"), failed("c1")]);
    let lines: Vec<String> = told.iter().flat_map(|entry| narrator.tell(entry)).collect();
    assert_eq!(lines, ["→ FS_LIST a", "→ FS_LIST b", "  ✗ ENOENT: no", "  ✗ FS_LIST: ENOENT: no"]);
}

#[test]
fn attached_one_sees_what_goes_to_standard_output() {
    let told = heard(Kind::Attach);
    let written: Vec<&str> = told.lines().filter(|line| line.starts_with("out| ")).collect();
    assert_eq!(written, ["out| half way"]);
}

/// A command that names no file was asked about before it could be shown, and nothing came after that.
#[test]
fn a_look_that_found_no_file_is_heard_of() {
    let mut talk = Talk::new(Kind::Run, Narrator::new(Style::plain(), 80, None));
    let asked = json!({"type": "proposal", "id": "p3", "state": "pending", "proposal": {"call_id": "c", "name": "EXEC_CMD",
        "args": {"cmd": "true"}, "verdict": "ask", "rule": "role", "why": null, "risk": null, "expires_at": "2026-11-23T00:00:00Z"}});
    let looked = json!({"type": "examined", "id": "p3", "files": [], "diff": "", "unbound": null});
    let heard: Vec<Action> = entries(vec![asked, looked]).iter().flat_map(|entry| talk.hear(entry)).collect();
    let last = heard.last().unwrap();
    assert!(matches!(last, Action::Looked { id, text } if id == "p3" && text.is_empty()), "{heard:?}");
}

#[test]
fn no_line_is_wider_than_asked_or_looks_like_ours() {
    let mut narrator = Narrator::new(Style::plain(), 60, Some(super::clock));
    for entry in story() {
        for line in narrator.tell(&entry) {
            assert!(unicode_width::UnicodeWidthStr::width(line.as_str()) <= 60 || line.contains('│'), "{line}");
            assert!(!line.contains('\u{1b}') && !line.contains('\n'), "{line:?}");
        }
    }
    // What the agent quotes is led by a bar, so that it cannot be taken for a call.
    assert!(narrator.quoted("→ fake").iter().all(|line| line.starts_with('│')));
}

#[test]
fn processes_in_a_table_and_a_tree() {
    let process = |pid: u64, parent: u64, name: &str, state: &str| -> aos_abi::process::ProcessView {
        serde_json::from_value(json!({
            "pid": pid, "parent": parent, "name": name, "state": state, "waiting_for": if state == "blocked" { json!("stdin") } else { json!(null) },
            "model": "small", "priority": "normal", "mode": "resident",
            "usage": {"inferences": 3, "syscalls": 5, "input_tokens": 12_900, "output_tokens": 120, "cached_input_tokens": 0, "cost_usd": 0.0004},
            "budget": {"usd": 0.5, "usd_left": 0.4996, "tokens": null, "tokens_left": null, "calls": null, "calls_left": null, "ends_at": null},
            "started_at": "2026-11-22T00:00:00Z", "exited_at": null, "exit_code": if state == "exited" { json!(5) } else { json!(null) },
            "result": null, "reason": null,
        }))
        .unwrap()
    };
    let all = [
        process(7, 1, "watch the \u{1b}[31minbox", "blocked"),
        process(8, 7, "sort", "running"),
        process(9, 8, "read", "exited"),
        process(12, 7, "write", "sleeping"),
        process(13, 3, "orphan", "ready"),
    ];
    let at = "2026-11-22T00:10:00Z".parse().unwrap();
    let wide = ps::shown(&all, at, None, Style::plain());
    let narrow = ps::shown(&all, at, Some(50), Style::plain());
    insta::assert_snapshot!(format!("{wide}\n{narrow}\n{}", tree::lines(&all).join("\n")), @"
    PID  STATE           MODEL  CALLS  TOKENS     COST     AGE  NAME
      7  blocked: stdin  small      5   13.0k  $0.0004  10m00s  watch the ␛[31minbox
      8  running         small      5   13.0k  $0.0004  10m00s  sort
      9  exited 5        small      5   13.0k  $0.0004  10m00s  read
     12  sleeping        small      5   13.0k  $0.0004  10m00s  write
     13  ready           small      5   13.0k  $0.0004  10m00s  orphan

    PID  STATE           MODEL     AGE  NAME
      7  blocked: stdin  small  10m00s  watch the ␛[3…
      8  running         small  10m00s  sort
      9  exited 5        small  10m00s  read
     12  sleeping        small  10m00s  write
     13  ready           small  10m00s  orphan

    7 watch the ␛[31minbox [blocked: stdin]
    ├─ 8 sort [running]
    │  └─ 9 read [exited 5]
    └─ 12 write [sleeping]
    13 orphan [ready]
    ");
}

#[test]
fn the_daemons_status_in_lines() {
    let status = serde_json::from_value(json!({
        "version": "0.1.0", "os_pid": 123, "uptime_s": 65.2, "home": "/h", "listen": "127.0.0.1:7717",
        "processes": {"ready": 0, "running": 1, "blocked": 4, "exited": 9},
        "model_slots": {"big": {"used": 1, "limit": 8, "waiting": 2}, "small": {"used": 0, "limit": 1, "waiting": 0}}, "lsn": 41,
    }))
    .unwrap();
    insta::assert_snapshot!(status::shown(&status), @"
    aos 0.1.0 is up for 1m05s, pid 123 of this machine
    home       /h
    listening  http://127.0.0.1:7717
    journal    41 entries
    processes  4 blocked, 9 exited, 1 running
    models     big: 1 of 8 in use, 2 waiting
               small: 0 of 1 in use, 0 waiting
    ");
}

#[test]
fn what_a_call_came_to_is_told_in_words() {
    let told = |name: &str, result: Value| {
        let bodies =
            vec![json!({"type": "result", "call_id": "c", "name": name, "status": "SUCCESS", "result": result})];
        let mut narrator = Narrator::new(Style::plain(), 80, None);
        narrator.tell(&entries(bodies)[0]).join("|")
    };
    let all = [
        told("FS_WATCH", json!({"watch_id": "w1"})),
        told("SYS_REGISTER_WEBHOOK", json!({"url": "http://127.0.0.1:7717/hooks/a"})),
        told("SLEEP", json!({"slept_s": 3.001})),
        told("SLEEP", json!({"slept_s": 0.52, "interrupted": "input"})),
        told("WAIT", json!({"pid": 7, "exit_code": 0, "result": {"a": "long one"}})),
        told("SYS_READ_STDIN", json!({"text": "two\nlines"})),
        told("SYS_READ_STDIN", json!({"eof": true})),
    ];
    insta::assert_snapshot!(all.join("\n"), @"
      ✓ w1
      ✓ http://127.0.0.1:7717/hooks/a
      ✓ 3.0 s
      ✓ 0.5 s, woken early: input
      ✓ process 7: exit 0
      ✓ two lines
      ✓ end of input
    ");
}
