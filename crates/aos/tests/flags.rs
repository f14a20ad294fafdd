//! What flags and variables of the command line change, end to end: each is given, and something comes out otherwise.
//!
//! Deliberately absent: flags whose command has a test file of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::{Fault, Rule};
use rig::{Rig, Running, Setup, Terminal, any, assert_told, call, echo, say, words};
use serde_json::{Value, json};

#[test]
fn a_budget_that_a_person_sets_is_the_one_that_holds() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    let set = ["budget", &pid, "--usd", "5", "--tokens", "100000", "--calls", "10", "--time", "2h"];
    assert_eq!(rig.aos(&set).code, 0);
    let budget = rig.json(&["budget", &pid])[0]["budget"].clone();
    assert_eq!(
        (&budget["usd"], &budget["tokens"], &budget["calls"]),
        (&json!(5.0), &json!(100_000), &json!(10)),
        "{budget}"
    );
    assert!(budget["ends_at"].is_string(), "{budget}");
    let shown = rig.aos(&["budget", &pid]).out;
    assert!(shown.contains("100,000") || shown.contains("100000") || shown.contains("100k"), "{shown}");
}

#[test]
fn only_what_happened_since_is_shown_and_only_what_ended_before_is_pruned() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let ended = rig.entries(2, "exited")[0]["at"].as_str().unwrap().to_owned();
    let lines = |more: &[&str]| {
        let ran = rig.aos(&[&["logs", "2", "--events"], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.lines().count()
    };
    let (all, since) = (lines(&[]), lines(&["--since", &ended]));
    assert!(0 < since && since < all, "{since} of {all}");
    assert_eq!(lines(&["--since", "10m"]), all);
    let pruned = |more: &[&str]| rig.json(&[&["prune", "--dry-run"], more].concat())["pids"].clone();
    assert_eq!((pruned(&["--before", "2020-01-01"]), pruned(&[])), (json!([]), json!([2])));
    rig.json(&["prune", "--before", "2020-01-01"]);
    assert_eq!(pruned(&[]), json!([2]), "it is there still");
}

#[test]
fn what_an_agent_remembers_is_shown_exported_and_forgotten() {
    let remember = |value: &str| call("MEM_WRITE", json!({ "key": "tea", "value": value }));
    let rig = Rig::new(vec![any("alpha", vec![remember("black"), remember("green, at nine"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let listed = rig.json(&["memory", "list"])["memories"].clone();
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let shown = rig.aos(&["memory", "show", &id]);
    assert!(shown.out.contains("green, at nine") && shown.out.contains("black"), "and what it was before: {shown:?}");
    let exported = rig.aos(&["memory", "export"]).out;
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert!(exported.contains("green, at nine") && first["id"].is_string(), "{exported}");
    let forgot = rig.aos(&["memory", "forget", &id]);
    assert_eq!((forgot.code, rig.json(&["memory", "list"])["memories"].clone()), (0, json!([])), "{forgot:?}");
    assert_told(&rig.aos(&["memory", "show", &id]), 1, &[&id]);
}

#[test]
fn the_model_may_stand_in_the_environment() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let ran = |model: &str| {
        let output = rig.command(&["run", "alpha"]).env("AOS_MODEL", model).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ran("small").0, 0);
    let (code, told) = ran("nowhere");
    assert!(code != 0 && told.contains("nowhere"), "{code} {told}");
}

#[test]
fn the_log_says_as_much_as_aos_log_lets_it() {
    let busy = Fault::Status { status: 503, body: "{}".to_owned(), headers: Default::default() };
    let once = || Rule { times: Some(1), fault: Some(busy.clone()), ..any("alpha", vec![]) };
    for (filter, retries, ready) in [
        (None, false, true),
        (Some("debug"), true, true),
        (Some("info,aos_models=debug"), true, true),
        (Some("warn,aos_models=debug"), true, false),
        (Some("error"), false, false),
        (Some("off"), false, false),
    ] {
        let rig = Rig::new(vec![once(), any("alpha", vec![say("done")])]);
        let mut command = rig.command(&["run", "alpha"]);
        if let Some(filter) = filter {
            command.env("AOS_LOG", filter);
        }
        let ran = Running::new(command).end();
        assert_eq!((ran.code, rig.request_count()), (0, 2), "{filter:?}: {ran:?}");
        let log = rig.log();
        assert_eq!(log.contains("trying again"), retries, "{filter:?}: {log}");
        assert_eq!(log.contains("ready"), ready, "{filter:?}: {log}");
    }
    let rig = Rig::new(vec![]);
    let mut command = rig.command(&["up", "--foreground"]);
    command.env("AOS_LOG", "aos=louder");
    assert_told(&Running::new(command).end(), 2, &["AOS_LOG is no filter", "why: ", "try: ", "AOS_LOG=debug"]);
}

/// The beginning of a terminal's colours, of which `m` is the last letter; others clear a line or move the cursor.
fn coloured(shown: &str) -> bool {
    let last = |rest: &str| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').chars().next();
    shown.split("\u{1b}[").skip(1).any(|rest| last(rest) == Some('m'))
}

#[test]
fn colours_are_where_a_person_wants_them() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    for (no_color, auto) in [(None, true), (Some(""), true), (Some("1"), false)] {
        for (color, expected) in [("auto", auto), ("always", true), ("never", false)] {
            let terminal = Terminal::new();
            let mut command = rig.command(&["--color", color, "run", "alpha"]);
            if let Some(value) = no_color {
                command.env("NO_COLOR", value);
            }
            assert_eq!(terminal.start(command).end().code, 0);
            let shown = terminal.all();
            assert_eq!(coloured(&shown), expected, "NO_COLOR={no_color:?} --color {color}: {shown:?}");
        }
    }
    // Where nobody looks, only who asks for it gets colours.
    for (color, expected) in [("auto", false), ("always", true)] {
        let ran = rig.aos(&["--color", color, "run", "alpha"]);
        assert_eq!(coloured(&ran.err), expected, "{color}: {ran:?}");
    }
}

/// It ended in a fault of its own there: colours were asked of a log that has none.
#[test]
fn a_daemon_runs_at_a_terminal_and_logs_there() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let terminal = Terminal::new();
    let running = terminal.start(rig.command(&["--color", "always", "up", "--foreground"]));
    terminal.see("ready");
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    rig.down();
    assert_eq!(running.end().code, 0);
    let shown = terminal.all();
    assert!(shown.contains("INFO aos::daemon: ready") && !coloured(&shown), "{shown:?}");
}

#[test]
fn commands_that_are_not_there_yet_say_so() {
    let rig = Rig::new(vec![]);
    for command in ["threads", "tools", "apps", "channels", "mcp", "dashboard"] {
        assert_told(&rig.aos(&[command, "list", "--all"]), 1, &[&format!("`aos {command}` is not there yet"), "why: "]);
    }
    assert!(rig.daemons().is_empty(), "for nothing");
}

#[test]
fn who_writes_to_a_stopped_process_is_told_when_it_reads() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    assert_eq!(rig.aos(&["pause", &pid]).code, 0);
    let told = rig.aos(&["send", &pid, "alpha"]);
    assert!(told.code == 0 && told.err.contains("is stopped") && told.err.contains(&format!("aos resume {pid}")));
    assert_eq!(rig.json(&["send", &pid, "beta"])["stopped"], true);
    assert_eq!(rig.aos(&["resume", &pid]).code, 0);
    rig.until_idle(pid.parse().unwrap());
    let quiet = rig.aos(&["send", &pid, "gamma"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    assert!(rig.json(&["send", &pid, "delta"]).get("stopped").is_none());
}

/// Its words are fenced, and whoever was sent them carries the label from then on.
#[test]
fn what_others_wrote_is_sent_as_such() {
    let rig = Rig::new(vec![any("", vec![say("noted")])]);
    let pid = rig.spawn(&["--role", "You answer."]);
    assert_eq!(rig.aos(&["send", &pid.to_string(), "alpha"]).code, 0);
    rig.until_idle(pid);
    assert!(rig.process(pid).get("labels").is_none());
    assert_eq!(rig.aos_fed(&["send", "--untrusted", &pid.to_string(), "-"], b"beta").code, 0);
    rig.until_idle(pid);
    assert_eq!(rig.process(pid)["labels"], json!(["untrusted.file"]));
    let asked = rig.requests().pop().unwrap();
    let shown = words(&asked);
    let (plain, fenced) =
        (shown.find("alpha").unwrap(), shown.find("<untrusted source=\"standard input, written by others\"").unwrap());
    assert!(plain < fenced && shown[fenced..].contains("beta"), "{shown}");
}

#[test]
fn what_is_not_there_fails_alike_wherever_it_is_named() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]).to_string();
    for command in [&["run", "-m", "nope", "alpha"][..], &["spawn", "-m", "nope"], &["models", "test", "nope"]] {
        assert_told(&rig.aos(command), 1, &["no model `nope`", "configured are: small"]);
    }
    for (command, at, words) in [
        ("replay", "0", "no entry 0"),
        ("replay", "99999", "no entry 99999"),
        ("fork", "99999", "no entry 99999"),
        ("fork", "0", "no entry"),
    ] {
        assert_told(&rig.aos(&[command, &pid, "--at", at]), 1, &[words, "try: "]);
    }
    assert_told(&rig.aos(&["replay", &pid, "--at", "x"]), 2, &["'x'", "try: "]);
    for (number, words) in [("0", "the daemon itself"), ("1", "stands for you")] {
        assert_told(&rig.aos(&["kill", number]), 1, &[words, "aos ps"]);
    }
}

#[test]
fn an_empty_name_and_a_limit_of_nothing_are_wrong_usage() {
    let rig = Rig::new(vec![]);
    for (command, words) in [
        (&["spawn", "--name", ""][..], "--name"),
        (&["spawn", "--group", " "], "--group"),
        (&["run", "--group", "", "alpha"], "--group"),
        (&["kill", "--group", ""], "--group"),
        (&["fork", "2", "--name", ""], "--name"),
        (&["models", "key", ""], "NAME"),
        (&["models", "key", "site", "--rpm", "0"], "--rpm"),
        (&["models", "key", "site", "--tokens", "0"], "--tokens"),
    ] {
        assert_told(&rig.aos(command), 2, &[words, "try: "]);
    }
    assert_told(&rig.aos(&["models", "key", "site", "--rpm", "0"]), 2, &["try: aos models key --help"]);
    assert!(rig.daemons().is_empty(), "nothing was to be asked of it");
}

#[test]
fn help_is_json_where_that_is_asked_for() {
    let rig = Rig::new(vec![]);
    for (command, words) in [
        (&["--json"][..], "aos run"),
        (&["help", "--json"], "Usage: aos"),
        (&["help", "run", "--json"], "Usage: aos run"),
        (&["run", "--help", "--json"], "Usage: aos run"),
    ] {
        let ran = rig.aos(command);
        let page: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert!(ran.code == 0 && page["help"].as_str().unwrap().contains(words), "{ran:?}");
    }
    let version: Value = serde_json::from_str(&rig.aos(&["--version", "--json"]).out).unwrap();
    assert_eq!(version, rig.json(&["version"]));
    assert!(rig.aos(&["help", "run"]).out.starts_with("Give one agent one task"));
}

#[test]
fn a_price_that_is_not_known_is_not_shown_as_nothing() {
    let setup = Setup { model: "local = false\n".into(), ..Setup::default() };
    let rig = Rig::with(vec![any("alpha", vec![say("done")])], setup);
    let ran = rig.aos(&["run", "alpha"]);
    assert!(ran.code == 0 && ran.err.contains("cost unknown") && !ran.err.contains("$0"), "{ran:?}");
    for command in [&["logs", "2"][..], &["ps", "-a"], &["inspect", "2"]] {
        let shown = rig.aos(command).out;
        assert!(shown.contains("unknown") && !shown.contains("$0"), "{command:?}: {shown}");
    }
}

#[test]
fn a_long_text_is_cut_in_the_log_with_the_way_to_all_of_it() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    let task = format!("alpha {}omega", "é\n".repeat(100_000));
    assert_eq!(rig.aos_fed(&["run", "-"], task.as_bytes()).code, 0);
    let shown = rig.aos(&["logs", "2"]).out;
    assert!(shown.len() < 20_000 && !shown.contains("omega"), "{} bytes", shown.len());
    assert!(shown.contains("more bytes; all of it: aos logs 2 --json") && shown.contains("│ done"), "{shown}");
    assert!(rig.aos(&["logs", "2", "--json"]).out.contains("omega"));
}

#[test]
fn the_list_of_models_says_what_each_can_and_what_its_server_allows() {
    let vectors = "[models.vectors]\nprovider = \"openai\"\nmodel = \"v\"\nbase_url = \"http://127.0.0.1:9/v1\"\ndimension = 384\n";
    let model = format!("limits = {{ concurrency = 3, rpm = 60, tpm = 200000 }}\n{vectors}");
    let rig = Rig::with(vec![], Setup { model, ..Setup::default() });
    let listed = rig.aos(&["models"]).out;
    let line = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("small").contains("tools") && line("small").contains("3 at once, 60 requests/min, 200k tokens/min"));
    assert!(line("vectors").contains("vectors of 384") && !line("vectors").contains("tools"), "{listed}");
    let listed = rig.json(&["models"]);
    let of = |name: &str| listed.as_array().unwrap().iter().find(|model| model["id"] == name).unwrap().clone();
    assert_eq!((&of("vectors")["can"], &of("vectors")["dimension"]), (&json!([]), &json!(384)));
    assert!(of("small").get("dimension").is_none());
}

#[test]
fn a_process_of_which_nothing_was_said_has_no_name() {
    let rig = Rig::new(vec![echo()]);
    rig.spawn(&[]);
    rig.spawn(&["--role", "You answer."]);
    rig.spawn(&[&"word ".repeat(40)]);
    let names: Vec<Value> = rig.json(&["ps"]).as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names[..2], [json!("(no name)"), json!("You answer.")]);
    assert!(names[2].as_str().unwrap().ends_with("word…"), "{names:?}");
}
