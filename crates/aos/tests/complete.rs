//! The complete policy file of the documentation, in a running daemon: it is taken, and decides what it says.
//!
//! That each of its keys matters is proven beside the language (`aos-policy/tests/keys.rs`); here it is what people ask.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_models::scripted::Call;
use serde_json::json;

use rig::{Rig, Setup, any, call, calls, results, say};

const COMPLETE: &str = include_str!("../../aos-policy/tests/complete.yaml");

#[test]
fn the_complete_file_is_taken_and_decides_every_call_that_it_speaks_of() {
    let setup = Setup {
        policy: Some(COMPLETE.to_owned()),
        model: format!("{}tier = \"small\"\n", Setup::default().model),
        ..Setup::default()
    };
    let sent = call("CHANNEL_SEND", json!({"channel": "telegram", "to": "@me", "content": "x"}));
    let rules = vec![rig::last("attempt", vec![sent, say("tried")]), any("", vec![say("ready")])];
    let rig = Rig::with(rules, setup);
    let up = rig.command(&["up"]).env("GITHUB_TOKEN", "ghp_0123456789").output().unwrap();
    assert!(up.status.success(), "{up:?}\n{}", rig.log());
    let pid = rig.spawn(&["begin"]);
    rig.until_idle(pid);
    for (name, args, expected) in [
        ("SYS_SCHEDULE", json!({"prompt": "x", "seconds": 60}), "allow role assistant: calls[4] SYS_SCHEDULE"),
        ("FS_DELETE", json!({"path": "a"}), "allow role assistant: fs[0] **"),
        ("FS_WRITE", json!({"path": "contracts/a", "content": ""}), "ask role assistant: fs[1] contracts/**"),
        ("FS_READ", json!({"path": "handbook/a"}), "allow role assistant: mounts[0] handbook/**"),
        ("FS_WRITE", json!({"path": "handbook/a", "content": ""}), "deny role assistant: mounts[0] handbook/**"),
        ("EXEC_CMD", json!({"cmd": "git log | grep x"}), "allow role assistant: exec"),
        (
            "NET_FETCH",
            json!({"url": "https://api.github.com/repos/acme/x"}),
            "allow role assistant: net[0] api.github.com:443",
        ),
        ("NET_FETCH", json!({"url": "https://a.example.com/x"}), "allow role assistant: net[1] *.example.com:443"),
        (
            "NET_SEND",
            json!({"url": "https://api.github.com/repos/acme/x/issues", "method": "POST"}),
            "hold role assistant: net[2] api.github.com:443",
        ),
        ("NET_FETCH", json!({"url": "http://127.0.0.1:8080/"}), "allow role assistant: net[3] 127.0.0.1:8080"),
        ("NET_FETCH", json!({"url": "http://127.0.0.1:8081/"}), "deny role assistant: no rule"),
        ("MEM_WRITE", json!({"key": "k", "value": "v"}), "allow role assistant: memory[0] self/**"),
        ("MEM_READ", json!({"query": "q", "namespace": "team/x"}), "allow role assistant: memory[1] team/**"),
        ("SEND_MSG", json!({"to_pid": 9, "content": "x"}), "allow role assistant: ipc[0] *"),
        ("TOOL_CALL", json!({"name": "github.create", "args": {}}), "ask role assistant: tools[0] github.*"),
        ("TOOL_CALL", json!({"name": "clock.now", "args": {}}), "allow role assistant: tools[1] clock.now"),
        (
            "CHANNEL_SEND",
            json!({"channel": "telegram", "to": "@me", "content": "x"}),
            "allow role assistant: channels[0] telegram",
        ),
        (
            "CHANNEL_SEND",
            json!({"channel": "email", "to": "a@example.com", "content": "x"}),
            "hold role assistant: channels[1] email",
        ),
        (
            "CHANNEL_SEND",
            json!({"channel": "email", "to": "a@other.com", "content": "x"}),
            "deny role assistant: no rule",
        ),
        ("SYS_REGISTER_WEBHOOK", json!({"path": "x"}), "deny role assistant: no rule"),
    ] {
        let body = json!({"pid": pid, "call": {"name": name, "args": args}});
        let said = rig.http("POST", "/v1/policy/explain", Some(&body));
        assert_eq!(said.status, 200, "{name} {args}: {said:?}");
        let said = said.json();
        let said = format!("{} {}", said["verdict"].as_str().unwrap(), said["rule"].as_str().unwrap());
        assert_eq!(said, expected, "{name} {args}");
    }
    // What nothing carries out yet is said to be so, also where the policy would allow it.
    assert_eq!(rig.aos(&["send", &pid.to_string(), "attempt"]).code, 0);
    rig::until("the result", || (!rig.entries(pid, "result").is_empty()).then_some(()));
    rig.until_idle(pid);
    let (_, told) = results(rig.requests().last().unwrap()).pop().unwrap();
    assert_eq!(told["error"]["code"], "ENOSYS", "{told}");
    // The models of the role hold for whoever is made, and what is missing on this machine is said and not silent.
    assert!(rig.log().contains("handbook"), "{}", rig.log());
    let checked = rig.aos(&["policy", "check"]);
    assert!(checked.code == 0 && checked.err.contains("Documents/handbook"), "{checked:?}");
    // What a policy is expected to say is a file too, and the command says which line it does not.
    let expectations = rig.home().join("expectations.yaml");
    let write = |verdict: &str| {
        let line = format!("- {{call: FS_WRITE, args: {{path: contracts/a, content: x}}, verdict: {verdict}}}\n");
        std::fs::write(&expectations, format!("- {{call: FS_READ, args: {{path: a}}, verdict: allow}}\n{line}"))
            .unwrap();
    };
    write("ask");
    let tested = rig.aos(&["policy", "test", expectations.to_str().unwrap()]);
    assert!(tested.code == 0 && tested.err.contains("2 of 2 expectations are met"), "{tested:?}");
    write("allow");
    let tested = rig.aos(&["policy", "test", expectations.to_str().unwrap()]);
    assert!(tested.code == 1 && tested.out.starts_with("line 2: FS_WRITE "), "{tested:?}");
    assert!(tested.out.contains("is ask (role assistant: fs[1] contracts/**), not allow"), "{tested:?}");
}

/// The registry has a row for each of them, so they are parsed, documented and granted like every other call; nothing
/// carries them out.
#[test]
fn what_nothing_carries_out_yet_is_answered_plainly_and_offered_to_nobody() {
    let absent = [
        ("THREAD_ATTACH", json!({"entity": "client:acme"}), "MEM_WRITE"),
        ("THREAD_DETACH", json!({"entity": "client:acme"}), "MEM_WRITE"),
        ("TOOL_SEARCH", json!({"query": "create an issue"}), "other system calls"),
        ("TOOL_CALL", json!({"name": "clock.now", "args": {}}), "other system calls"),
        ("CHANNEL_SEND", json!({"channel": "telegram", "to": "@me", "content": "x"}), "SYS_WRITE_STDOUT"),
    ];
    let tried = absent.iter().map(|(name, args, _)| Call::new(*name, args.clone())).collect();
    let more = "calls: [THREAD_ATTACH, THREAD_DETACH, TOOL_SEARCH]";
    let policy = format!(
        "version: 1\ndefault_role: assistant\nroles:\n  assistant:\n    {more}\n    tools: [{{tool: \"*\"}}]\n    \
         channels: [{{channel: \"*\", to: [\"*\"]}}]\n    fs: [{{path: \"**\", ops: [read]}}]\n"
    );
    let setup = Setup { policy: Some(policy), ..Setup::default() };
    let rig = Rig::with(vec![any("alpha", vec![calls(tried), say("done")])], setup);
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}");
    let requests = rig.requests();
    let offered = requests[0]["tools"].to_string();
    assert!(offered.contains("\"FS_READ\""), "{offered}");
    let told = results(&requests[1]);
    assert_eq!(told.len(), absent.len());
    for ((name, _, way), (_, result)) in absent.iter().zip(&told) {
        assert!(!requests[0].to_string().contains(name), "{name} is offered or granted in the prompt");
        let error = &result["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!("ENOSYS"), &json!(format!("{name} is not there yet"))));
        assert!(error["hint"].as_str().unwrap().contains(way), "{name}: {error}");
        let page = rig.aos(&["man", name]);
        assert!(page.code == 0 && page.out.contains(way), "{page:?}");
    }
    // Nothing was decided or carried out: there is no verdict, and no effect.
    let pid = rig.get("/v1/processes?all=true")[0]["pid"].as_u64().unwrap();
    assert!(rig.entries(pid, "verdict").is_empty());
    assert!(rig.entries(pid, "result").iter().all(|entry| entry["effect"].is_null()));
}
