//! What touches the machine, end to end: commands in the sandbox, the network, watched folders, the full screen, shells.
//!
//! Start at the first test. What always holds: the policy of the home is what allows each of these, and nothing else does.
//! A host on which the sandbox cannot work fails the tests of commands, as it fails agents.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use aos_models::scripted::Call;
use rig::{Rig, Running, Setup, Terminal, any, call, calls, echo, last, read, results, say, until, words};
use serde_json::{Value, json};

/// The policy of the rig with more in its role.
fn with_role(more: &str) -> Setup {
    Setup { policy: Some(format!("{}{more}", rig::POLICY)), ..Setup::default() }
}

const EXEC: &str = "    exec: {shell: true, programs: [sh, bash, coreutils, python3], net: none}\n";

fn exec(cmd: &str) -> Call {
    Call::new("EXEC_CMD", json!({ "cmd": cmd }))
}

#[test]
fn a_command_runs_in_its_workspace_behind_walls() {
    let commands = vec![
        exec("echo one > a.txt; cat a.txt; pwd; exit 3"),
        exec("cat /etc/shadow /root/.ssh/id_rsa ../../aos.toml ../../run/token; echo code $?"),
        exec("env"),
        exec("kill -9 -1; ls /proc | grep -c '^[0-9]'"),
        Call::new("EXEC_CMD", json!({ "cmd": "sleep 600", "timeout_s": 1 })),
        Call::new("EXEC_CMD", json!({ "cmd": "tr a-z A-Z", "stdin": "loud" })),
    ];
    let rig = Rig::with(vec![any("alpha", vec![calls(commands), say("done")])], with_role(EXEC));
    let mut run = rig.command(&["run", "alpha"]);
    run.env("SECRET_OF_THE_DAEMON", "hunter2");
    let ran = Running::new(run).end();
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown = results(&rig.requests()[1]);
    let result = |nth: usize| &shown[nth].1["result"];
    assert_eq!(result(0)["exit_code"], 3, "{shown:?}");
    assert!(result(0)["stdout"].as_str().unwrap().starts_with("one\n"), "{shown:?}");
    assert_eq!(read(rig.file("workspaces/2/a.txt")), "one\n", "what it wrote is there afterwards");
    assert!(result(1)["stdout"].as_str().unwrap().ends_with("code 1\n"), "nothing of this can be read: {shown:?}");
    assert!(!words(&rig.requests()[1]).contains(&rig.token()) && !words(&rig.requests()[1]).contains("base_url"));
    assert!(!result(2)["stdout"].as_str().unwrap().contains("hunter2"), "{shown:?}");
    assert_eq!(shown[4].1["error"]["code"], "ETIMEDOUT", "{shown:?}");
    assert_eq!(result(5)["stdout"], "LOUD", "{shown:?}");
}

/// One agent's children, each with a workspace of its own, ran as many as they liked, and everybody else waited.
#[test]
fn no_tree_of_agents_has_all_commands_at_once() {
    let most = (2 * std::thread::available_parallelism().unwrap().get()).max(4);
    let child = json!({"role": "You wait.", "task": "beta", "permissions": ["EXEC_CMD"], "workspace": "own"});
    let children = vec![Call::new("SPAWN_AGENT", child); (most + 2).min(64)];
    let rules = vec![
        any("alpha", vec![calls(children), call("WAIT", json!({})), say("done")]),
        any("beta", vec![calls(vec![exec("echo x > started; sleep 100")]), say("done")]),
        any("gamma", vec![calls(vec![exec("echo mine")]), say("{{last_result.result.stdout}}")]),
    ];
    let rig = Rig::with(rules, with_role(EXEC));
    if !rig.isolates() {
        return;
    }
    assert_eq!(rig.aos(&["spawn", "alpha"]).code, 0);
    let started = || {
        let layers = std::fs::read_dir(rig.file("undo")).unwrap().flatten();
        layers.filter(|layer| layer.path().join("upper/started").exists()).count()
    };
    until("its commands to run", || (started() == most - 1).then_some(()));
    assert_eq!(rig.aos(&["run", "gamma"]).out.trim(), "mine", "another's command waits for none of them");
    assert_eq!(started(), most - 1, "and one is left for others");
    assert_eq!(rig.aos(&["kill", "--tree", "2"]).code, 0);
    until("all to end", || (started() == 0).then_some(()));
}

#[test]
fn python_runs_in_the_sandbox_and_without_a_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!(
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {}), 2)\"",
        listener.local_addr().unwrap().port()
    );
    let commands = vec![exec("python3 -c 'print(6 * 7)'"), exec(&connect)];
    let rig = Rig::with(vec![any("alpha", vec![calls(commands), say("done")])], with_role(EXEC));
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let shown = results(&rig.requests()[1]);
    assert_eq!(shown[0].1["result"]["stdout"], "42\n", "{shown:?}");
    assert_ne!(shown[1].1["result"]["exit_code"], 0, "{shown:?}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn without_exec_in_the_policy_no_command_runs() {
    let rig = Rig::new(vec![any("alpha", vec![calls(vec![exec("touch a")]), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(results(&rig.requests()[1])[0].1["error"]["code"], "EPERM");
    assert!(!rig.file("workspaces/2/a").exists());
}

/// A web server that says what it was asked for; the requests it got.
fn serve(pages: &'static [(&'static str, &'static str)]) -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let answer =
                pages.iter().find(|(page, _)| *page == path).map_or("HTTP/1.0 404 No\r\n\r\n", |(_, page)| *page);
            let _ = stream.write_all(answer.as_bytes());
            let _ = sender.send(path);
        }
    });
    (port, asked)
}

#[test]
fn an_address_that_the_policy_allows_is_fetched_and_no_other() {
    let (port, asked) = serve(&[
        ("/open/a", "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nOpen from nine."),
        ("/open/away", "HTTP/1.0 302 Found\r\nLocation: /closed\r\n\r\n"),
        ("/closed", "HTTP/1.0 200 OK\r\n\r\ntop secret"),
    ]);
    let fetch = |path: &str| Call::new("NET_FETCH", json!({ "url": format!("http://127.0.0.1:{port}{path}") }));
    let wanted = vec![fetch("/open/a"), fetch("/closed"), fetch("/open/away"), fetch("/open/missing")];
    let rule = format!("    net: [{{to: \"127.0.0.1:{port}\", allow: [\"GET /open/**\"], private: true}}]\n");
    // Another private place in aos.toml shuts out nobody.
    let setup = Setup { more: "[net]\nprivate = [\"127.0.0.1:1\"]\n".into(), ..with_role(&rule) };
    let rig = Rig::with(vec![any("alpha", vec![calls(wanted), say("done")])], setup);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let shown = results(&rig.requests()[1]);
    assert!(shown[0].1.to_string().contains("Open from nine."), "{shown:?}");
    assert_eq!([&shown[1].1["error"]["code"], &shown[2].1["error"]["code"]], ["EPERM", "EPERM"], "{shown:?}");
    assert_eq!(shown[3].1["result"]["status"], 404, "{shown:?}");
    assert!(!words(&rig.requests()[1]).contains("top secret"));
    // Calls that only read run side by side.
    let mut got: Vec<String> = asked.try_iter().collect();
    got.sort();
    assert_eq!(got, ["/open/a", "/open/away", "/open/missing"], "what is denied is not even asked for");
}

#[test]
fn hosts_in_aos_toml_are_a_limit_above_the_policy() {
    let (port, asked) = serve(&[("/a", "HTTP/1.0 200 OK\r\n\r\nhello")]);
    let fetch = call("NET_FETCH", json!({ "url": format!("http://127.0.0.1:{port}/a") }));
    let rule = format!("    net: [{{to: \"127.0.0.1:{port}\", allow: [\"GET /**\"], private: true}}]\n");
    let setup = Setup { more: "[net]\nallow = [\"example.com:443\"]\n".into(), ..with_role(&rule) };
    let rig = Rig::with(vec![any("alpha", vec![fetch, say("done")])], setup);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let shown = results(&rig.requests()[1]);
    assert_eq!(shown[0].1["error"]["code"], "EPERM", "{shown:?}");
    assert!(shown[0].1.to_string().contains("[net] of aos.toml"), "{shown:?}");
    assert_eq!(asked.try_iter().count(), 0);
}

#[test]
fn a_change_in_a_watched_folder_wakes_its_agent_also_after_a_restart() {
    let rig = Rig::new(vec![
        last("notes/b.txt", vec![say("saw b")]),
        last("notes/a.txt", vec![say("saw a")]),
        any("alpha", vec![call("FS_WATCH", json!({ "path": "notes", "glob": "*.txt" })), say("watching")]),
    ]);
    let folder = rig.folder("project");
    std::fs::create_dir(folder.join("notes")).unwrap();
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "alpha"]);
    rig.until_idle(pid);
    let said = |text: &str| {
        until(text, || {
            let said = rig.entries(pid, "inference_completed");
            said.iter().any(|entry| entry["text"] == text).then_some(())
        });
    };
    std::fs::write(folder.join("notes/not.md"), "no").unwrap();
    std::fs::write(folder.join("notes/a.txt"), "one").unwrap();
    said("saw a");
    rig.until_idle(pid);
    rig.kill_daemon();
    rig.up();
    // The watch is set up again in the background: a change before that is not one that it can see.
    let mut text = String::new();
    until("the new file to be seen", || {
        text.push('x');
        std::fs::write(folder.join("notes/b.txt"), &text).unwrap();
        let said = rig.entries(pid, "inference_completed");
        said.iter().any(|entry| entry["text"] == "saw b").then_some(())
    });
    assert!(!rig.requests().iter().any(|request| words(request).contains("not.md")));
}

#[test]
fn top_shows_what_lives_and_leaves_the_terminal_as_it_was() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--name", "helper", "--role", "You answer."]);
    let terminal = Terminal::new();
    let before = format!("{:?}", rustix::termios::tcgetattr(&terminal.side).unwrap());
    let running = terminal.start(top(&rig, &terminal));
    terminal.see("helper");
    assert_eq!(rig.aos(&["send", &pid.to_string(), "tulip"]).code, 0);
    terminal.see("tulip");
    terminal.keys("?");
    terminal.see("filter");
    // The first closes the help, the second leaves.
    terminal.keys("qq");
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    // The other screen, which is left again; what it wrote last may still be on its way here.
    terminal.see("\x1b[?1049h");
    terminal.see("\x1b[?1049l");
    assert_eq!(format!("{:?}", rustix::termios::tcgetattr(&terminal.side).unwrap()), before);
}

fn top(rig: &Rig, terminal: &Terminal) -> Command {
    let mut command = rig.command(&["top"]);
    command.env("TERM", "xterm-256color").stdout(terminal.side.try_clone().unwrap());
    command
}

#[test]
fn top_goes_on_where_the_daemon_was_away() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--name", "helper", "--role", "You answer."]);
    let terminal = Terminal::new();
    let running = terminal.start(top(&rig, &terminal));
    terminal.see("helper");
    rig.stop();
    terminal.see("went");
    // Long enough for pauses between attempts that are longer than a frame: whoever stopped it meant it.
    std::thread::sleep(Duration::from_secs(3));
    assert!(rig.daemons().is_empty());
    assert_eq!(rig.aos(&["send", &pid.to_string(), "tulip"]).code, 0);
    terminal.see("tulip");
    terminal.keys("q");
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Runs a script in a shell, where that shell is installed.
fn in_shell(shell: &str, script: &str) -> Option<std::process::Output> {
    let started = Command::new(shell).args(["-c", script]).stdin(Stdio::null()).output();
    match started {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{shell} is not installed here");
            None
        }
        started => Some(started.unwrap()),
    }
}

#[test]
fn completion_scripts_load_in_their_shells_and_complete() {
    let rig = Rig::new(vec![]);
    let folder = rig.folder("scripts");
    for shell in ["bash", "zsh", "fish"] {
        let ran = rig.aos(&["completion", shell]);
        assert!(ran.code == 0 && ran.err.is_empty() && ran.out.contains("inspect"), "{shell}: {ran:?}");
        std::fs::write(folder.join(shell), ran.out).unwrap();
    }
    let path = |shell: &str| folder.join(shell).display().to_string();
    let tries = [
        (
            "bash",
            format!(
                ". {}; COMP_WORDS=(aos po); COMP_CWORD=1; _aos aos po aos; echo \"${{COMPREPLY[@]}}\"",
                path("bash")
            ),
        ),
        ("zsh", format!("autoload -Uz compinit; compinit -D; . {}; whence -w _aos; echo policy", path("zsh"))),
        ("fish", format!("source {}; complete -C 'aos po'", path("fish"))),
    ];
    for (shell, script) in tries {
        let Some(ran) = in_shell(shell, &script) else { continue };
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && out.contains("policy") && err.is_empty(), "{shell}: {out} {err}");
    }
}

/// Processes that ended are pruned while the power fails again and again; whoever lives, lives on.
#[test]
fn prunes_and_power_cuts_lose_nobody_and_bring_nobody_back() {
    let rig = Rig::new(vec![echo(), any("task", vec![rig::write("a.txt", "one"), say("done")])]);
    let stays = rig.spawn(&["--role", "You answer."]);
    let mut gone: Vec<Value> = Vec::new();
    for round in 0..6 {
        for task in 0..3 {
            assert_eq!(rig.aos(&["run", &format!("task {round}.{task}")]).code, 0);
        }
        let pruning = rig.start(&["--no-start", "--json", "prune"]);
        if round % 2 == 0 {
            // At some moment of it.
            std::thread::sleep(std::time::Duration::from_millis(7 * round));
            rig.kill_daemon();
        }
        let pruned = pruning.end();
        if pruned.code == 0 {
            let pruned: Value = serde_json::from_str(&pruned.out).unwrap();
            gone.extend(pruned["pids"].as_array().unwrap().iter().cloned());
        }
        rig.up();
        assert_eq!(rig.json(&["audit", "verify"])["intact"], true, "round {round}");
        let listed = rig.json(&["ps", "-a"]);
        let listed: Vec<&Value> = listed.as_array().unwrap().iter().map(|process| &process["pid"]).collect();
        assert!(listed.contains(&&json!(stays)), "{listed:?}");
        assert!(gone.iter().all(|pid| !listed.contains(&pid)), "{gone:?} {listed:?}");
    }
    assert!(!gone.is_empty());
    assert_eq!(rig.aos(&["prune"]).code, 0);
    assert_eq!(rig.json(&["ps", "-a"]).as_array().unwrap().len(), 1);
    let folders: Vec<_> = std::fs::read_dir(rig.file("workspaces")).unwrap().flatten().collect();
    assert!(folders.is_empty(), "no workspace of a pruned process stays: {folders:?}");
    assert_eq!(rig.aos_fed(&["attach", &stays.to_string()], b"ping\n").out, "echo: ping\n");
}

/// What its files carry is known by the process that is gone; nobody would know, and every command of its child be asked about.
#[test]
fn whose_files_another_still_works_on_is_not_pruned() {
    let spawn = Call::new("SPAWN_AGENT", json!({"role": "You run things.", "permissions": ["EXEC_CMD"]}));
    let run = Call::new("EXEC_CMD", json!({"cmd": "true"}));
    let rules =
        vec![any("alpha", vec![calls(vec![spawn]), say("done")]), any("go", vec![calls(vec![run]), say("ran")])];
    let rig = Rig::with(rules, with_role(EXEC));
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    assert_eq!(rig.json(&["prune"])["pids"], json!([]));
    assert_eq!(rig.aos(&["send", "3", "go"]).code, 0);
    let told = rig::until("its result", || rig.entries(3, "result").pop());
    assert_eq!(told["name"], "EXEC_CMD", "{told}");
    assert_eq!(rig.json(&["proposals", "--all"]), json!([]));
    assert_eq!(rig.aos(&["kill", "3"]).code, 0);
    // It has a last turn, and may end while a prune looks: then its parent goes with the next one.
    let mut gone = Vec::new();
    until("both to be pruned", || {
        gone.extend(rig.json(&["prune"])["pids"].as_array().unwrap().iter().filter_map(Value::as_u64));
        (gone.len() == 2).then_some(())
    });
    gone.sort_unstable();
    assert_eq!(gone, [2, 3]);
}
