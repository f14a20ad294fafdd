//! The policy is changed while agents run: a new one holds from the next decision on, and one with a fault is refused whole.
//!
//! What always holds: everything goes through the binary, and files are replaced as editors do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use aos_models::scripted::Call;
use serde_json::json;

use rig::{POLICY, Rig, Setup, any, assert_told, calls, last, results, say, until, write};

/// Replaces the policy as most editors do: a file beside it, and then its name.
fn replace(rig: &Rig, text: &str) {
    fs::write(rig.file("policy.yaml.new"), text).unwrap();
    fs::rename(rig.file("policy.yaml.new"), rig.file("policy.yaml")).unwrap();
}

fn generation(rig: &Rig) -> String {
    rig.json(&["status"])["policy"]["generation"].as_str().unwrap().to_owned()
}

/// Has the agent try once more to write, and says what came of it.
fn attempt(rig: &Rig, pid: u64) -> String {
    let before = rig.entries(pid, "result").len();
    assert_eq!(rig.aos(&["send", &pid.to_string(), "attempt"]).code, 0);
    until("the result", || (rig.entries(pid, "result").len() > before).then_some(()));
    rig.until_idle(pid);
    let requests = rig.requests();
    let (_, result) = results(requests.last().unwrap()).pop().unwrap();
    result["error"]["code"].as_str().unwrap_or("done").to_owned()
}

#[test]
fn a_changed_policy_holds_at_once_and_one_with_a_fault_leaves_the_old_one() {
    let rig = Rig::new(vec![last("attempt", vec![write("a.txt", "1"), say("tried")]), any("", vec![say("ready")])]);
    let closed = POLICY.replace("      - {path: \"**\", ops: [read, write, delete]}\n", "");
    assert_ne!(closed, POLICY);
    replace(&rig, &closed);
    let pid = rig.spawn(&["begin"]);
    rig.until_idle(pid);
    let first = generation(&rig);
    assert_eq!(attempt(&rig, pid), "EPERM");

    // Noticed by itself, and the very same call passes.
    replace(&rig, POLICY);
    let open = until("another policy", || Some(generation(&rig)).filter(|generation| *generation != first));
    assert_eq!(attempt(&rig, pid), "done");

    // Noticed by itself too, and refused whole: the fault stands in the log and in the status.
    replace(&rig, &closed.replace("roles:", "rols:"));
    until("the fault", || (!rig.json(&["status"])["policy"]["refused"].is_null()).then_some(()));
    assert_eq!((generation(&rig), attempt(&rig, pid)), (open.clone(), "done".to_owned()));
    let words = ["line 6", "rols", "did you mean `roles`?"];
    let status = rig.aos(&["status"]);
    assert!(
        words.iter().all(|word| status.out.contains(word) && rig.log().contains(word)),
        "{status:?}\n{}",
        rig.log()
    );
    assert_told(&rig.aos(&["policy", "reload"]), 1, &["line 6", "rols", "did you mean `roles`?", &open]);

    // On demand: who is told that it holds need not wait.
    fs::write(rig.file("policy.yaml"), &closed).unwrap();
    let reloaded = rig.json(&["policy", "reload"]);
    assert_eq!(reloaded["generation"], first.as_str());
    assert_eq!(attempt(&rig, pid), "EPERM");
    assert!(rig.json(&["status"])["policy"]["refused"].is_null());

    let same = rig.aos(&["policy", "reload"]);
    assert!(same.code == 0 && same.err.ends_with(" holds\n") && rig.json(&["policy", "reload"])["ended"].is_null());

    // What holds is in the journal, so it is there after a crash, and the past is decided as it was.
    let journal = rig.journal();
    let configured = journal.iter().rev().find(|entry| entry["type"] == "configured").unwrap();
    assert_eq!(configured["policy"], closed.as_str());
    rig.kill_daemon();
    rig.up();
    assert_eq!(generation(&rig), first);
    let replayed = rig.aos(&["replay", &pid.to_string()]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

/// Each was asked under the policy that is over, and people who were about to answer want to know.
#[test]
fn a_reload_says_how_many_open_questions_it_ended() {
    let asks = POLICY.replace("ops: [read, write, delete]}", "ops: [read, write, delete], verdict: ask}");
    assert_ne!(asks, POLICY);
    let setup = Setup { policy: Some(asks.clone()), ..Setup::default() };
    let rig = Rig::with(vec![any("", vec![write("a.txt", "1"), say("told")])], setup);
    // Beyond a symbolic link nothing tells of a change, so that no reload but this one takes it.
    fs::write(rig.file("real.yaml"), &asks).unwrap();
    std::os::unix::fs::symlink(rig.file("real.yaml"), rig.file("link.yaml")).unwrap();
    fs::rename(rig.file("link.yaml"), rig.file("policy.yaml")).unwrap();
    for task in ["one", "two"] {
        rig.spawn(&[task]);
    }
    until("both questions", || (rig.json(&["proposals"]).as_array()?.len() == 2).then_some(()));
    fs::write(rig.file("real.yaml"), asks.clone() + "# another\n").unwrap();
    let reloaded = rig.aos(&["policy", "reload"]);
    assert!(reloaded.code == 0 && reloaded.err.contains(" holds; 2 open questions ended"), "{reloaded:?}");
    assert_eq!(rig.json(&["proposals", "--all"])[0]["state"], "expired");
    fs::write(rig.file("real.yaml"), asks + "# and another\n").unwrap();
    let none = rig.json(&["policy", "reload"]);
    assert!(none["ended"].is_null(), "{none}");
}

#[test]
fn a_policy_that_is_gone_denies_everything_until_it_is_back() {
    let rig = Rig::new(vec![last("attempt", vec![write("a.txt", "1"), say("tried")]), any("", vec![say("ready")])]);
    let pid = rig.spawn(&["begin"]);
    rig.until_idle(pid);
    assert_eq!(attempt(&rig, pid), "done");
    fs::remove_file(rig.file("policy.yaml")).unwrap();
    until("no policy", || (generation(&rig) == "deny-all").then_some(()));
    assert!(rig.log().contains("everything is denied"), "{}", rig.log());
    // Also to think: nobody is asked for an answer that costs money.
    let asked = rig.request_count();
    assert_eq!(rig.aos(&["send", &pid.to_string(), "attempt"]).code, 0);
    let stopped = until("its stop", || rig.entries(pid, "stopped").pop());
    assert!(stopped["reason"].as_str().unwrap().contains("no role"), "{stopped}");
    let refused = rig.aos(&["run", "attempt"]);
    assert!(refused.code != 0 && refused.err.contains("there is no policy"), "{refused:?}");
    assert_eq!(rig.request_count(), asked);
    replace(&rig, POLICY);
    until("a policy", || (generation(&rig) != "deny-all").then_some(()));
    assert_eq!(rig.aos(&["resume", &pid.to_string()]).code, 0);
    rig.until_idle(pid);
    assert_eq!(rig.entries(pid, "result").len(), 2, "what it was sent meanwhile is done now");
    assert_eq!(attempt(&rig, pid), "done");
}

/// Reads an answer that does not end, and says how it ended.
const READS: &str = "
import urllib.request
try:
    with urllib.request.urlopen('http://127.0.0.1:PORT/open', timeout=120) as answer:
        answer.read()
    print('it ended')
except Exception as error:
    print('it was cut off')
";

#[test]
fn what_a_running_command_has_open_is_closed_when_its_rule_goes() {
    is_closed("python3 reads.py");
}

#[test]
fn what_a_program_has_open_that_knows_of_no_proxy_is_closed_too() {
    is_closed("env -i PATH=$PATH python3 reads.py");
}

fn is_closed(command: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nso far").unwrap();
        sender.send("open").unwrap();
        // Until the other side closes.
        let _ = reader.read(&mut [0]);
        sender.send("closed").unwrap();
    });
    let rule = format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET /open\"], private: true}}\n");
    let other = "      - {to: \"other.example:443\", allow: [\"GET /open\"]}\n";
    let policy = |net: &str| {
        format!(
            "version: 1\ndefault_role: assistant\nroles:\n  assistant:\n    fs: [{{path: \"**\", ops: [read]}}]\n    \
             exec: {{shell: true, programs: [sh, coreutils, python3], net: rules}}\n    net:\n{other}{net}"
        )
    };
    let command = Call::new("EXEC_CMD", json!({ "cmd": command }));
    let setup = Setup { policy: Some(policy(&rule)), ..Setup::default() };
    let rig = Rig::with(vec![any("alpha", vec![calls(vec![command]), say("{{last_result.result.stdout}}")])], setup);
    let folder = rig.folder("mine");
    fs::write(folder.join("reads.py"), READS.replace("PORT", &port.to_string())).unwrap();
    let running = rig.start(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    let within = std::time::Duration::from_secs(30);
    assert_eq!(told.recv_timeout(within), Ok("open"));
    replace(&rig, &policy(""));
    assert_eq!(told.recv_timeout(within), Ok("closed"), "{}", rig.log());
    let ran = running.end();
    assert!(ran.code == 0 && ran.out.contains("it was cut off"), "the command itself goes on: {ran:?}\n{}", rig.log());
}
