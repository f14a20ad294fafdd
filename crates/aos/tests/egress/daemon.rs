//! The daemon's own address, which the rules of a home open in vain: for its calls, and for commands in every way.

use std::fs;

use aos_models::scripted::Call;
use serde_json::json;

use super::rig::{Rig, Setup, any, calls, regex, results, say};
use super::web::Web;
use super::{ask, folder, policy, rig, run_in};

/// Connects to the port that it is given as if it knew of no proxy, then asks the proxy for a tunnel there.
const RAW: &str = r#"
import json, os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
port = int(sys.argv[1])
get = 'GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n' % port
tunnel = 'CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: x\r\n\r\n' % port
said = []
for to, text in [(('127.0.0.1', port), get), ((proxy.hostname, proxy.port), tunnel)]:
    s = socket.create_connection(to, 30)
    s.sendall(text.encode())
    answer = b''
    while piece := s.recv(65536): answer += piece
    said.append(answer.decode())
print(json.dumps(said))
"#;

#[test]
fn no_rule_opens_the_daemon_to_its_agents() {
    let fetch = |url: &str| Call::new("NET_FETCH", json!({ "url": url }));
    let post = json!({ "url": "http://127.0.0.1:{{1}}/v1/processes", "method": "POST", "body": "{}" });
    let wanted = ["GET http://127.0.0.1:{{1}}/healthz", "POST http://localhost:{{1}}/v1/processes"].map(str::to_owned);
    let raw = json!({ "cmd": "python3 raw.py {{1}}" });
    let steps = vec![calls(vec![
        fetch("http://127.0.0.1:{{1}}/healthz"),
        fetch("http://[::ffff:127.0.0.1]:{{1}}/healthz"),
        fetch("http://127.0.0.1:{{2}}/away"),
        Call::new("NET_SEND", post),
        ask(&wanted, ""),
        Call::new("EXEC_CMD", raw),
    ])];
    let rig = rig(vec![regex(r"alpha (\d+) (\d+)", steps), any("", vec![say("done")])], policy("      []"));
    rig.up();
    let port = rig.json(&["status"])["listen"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let there = format!("302 Found\r\nlocation: http://127.0.0.1:{port}/healthz");
    let web = Web::serve(&[("GET /away", &there, "")]);
    let rule = |to: String| {
        let all = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| format!("\"{method} /**\"")).join(", ");
        format!("      - {{to: \"{to}\", allow: [{all}], private: true}}\n")
    };
    let hosts = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"].map(|host| rule(format!("{host}:{port}")));
    let open = hosts.concat() + &rule(format!("127.0.0.1:{}", web.port));
    fs::write(rig.file("policy.yaml"), policy(&open)).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    let folder = folder(&rig);
    fs::write(folder.join("raw.py"), RAW).unwrap();
    run_in(&rig, &folder, &format!("alpha {port} {}", web.port));
    let shown = results(&rig.requests()[1]);
    for (nth, (_, one)) in shown[..4].iter().enumerate() {
        let (code, told) = (&one["error"]["code"], one["error"]["message"].as_str().unwrap_or_default());
        assert!(code == "EPERM" && told.contains("the daemon's own address"), "{nth}: {one}");
    }
    let command = |nth: usize| shown[nth].1["result"]["stdout"].as_str().unwrap_or_else(|| panic!("{}", shown[nth].1));
    let said: Vec<(u16, String)> = serde_json::from_str(command(4)).unwrap();
    for (status, told) in said {
        assert!(status == 403 && told.contains("the daemon's own address"), "{status} {told}");
    }
    let said: Vec<String> = serde_json::from_str(command(5)).unwrap();
    for told in said {
        assert!(told.starts_with("HTTP/1.1 403") && told.contains("the daemon's own address"), "{told}");
    }
    assert_eq!(web.paths(), ["GET /away"]);
    // It answers whoever is no agent.
    assert_eq!(rig.http("GET", "/healthz", None).status, 200);
}

/// `explain` told of a grant that helped nothing, then of `allow`; the journal said `allow` of what was refused, and a
/// failed request labelled its process, so that a person was asked about the next command.
#[test]
fn what_the_floor_refuses_is_said_before_and_journaled() {
    let fetch = |url: &str| Call::new("NET_FETCH", json!({ "url": url }));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let steps = vec![
        say("the first is below"),
        calls(vec![fetch(&format!("http://127.0.0.1:{closed}/"))]),
        calls(vec![Call::new("EXEC_CMD", json!({ "cmd": "ls" }))]),
        say("done"),
    ];
    let first = regex(r"alpha (\d+)", vec![calls(vec![fetch("http://127.0.0.1:{{1}}/healthz")])]);
    let rig = rig(vec![first, any("alpha", steps), any("", vec![say("done")])], policy("      []"));
    rig.up();
    let port = rig.json(&["status"])["listen"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let resident = rig.aos(&["spawn", "beta"]);
    assert_eq!(resident.code, 0, "{resident:?}");
    let call = format!("NET_FETCH {{\"url\":\"http://127.0.0.1:{port}/\"}}");
    let explained = rig.aos(&["policy", "explain", "2", &call]);
    assert!(explained.out.contains("floor: the daemon's own address"), "{explained:?}");
    let rule = |port: &str| format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET /**\"], private: true}}\n");
    fs::write(rig.file("policy.yaml"), policy(&(rule(&port) + &rule(&closed.to_string())))).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    let explained = rig.aos(&["policy", "explain", "2", &call]);
    assert!(explained.out.contains("deny") && explained.out.contains("floor: the daemon's own"), "{explained:?}");
    let folder = folder(&rig);
    run_in(&rig, &folder, &format!("alpha {port}"));
    let verdicts: Vec<_> = rig.journal().into_iter().filter(|entry| entry["type"] == "verdict").collect();
    let rule = verdicts[0]["rule"].as_str().unwrap();
    assert!(verdicts[0]["verdict"] == "deny" && rule.starts_with("floor: the daemon's own address"), "{verdicts:?}");
    // The command that follows would be denied to who has read what others wrote.
    let shown = results(rig.requests().last().unwrap());
    let [daemon, nobody, command] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!([&daemon.1["error"]["code"], &nobody.1["error"]["code"]], ["EPERM", "EIO"], "{shown:?}");
    assert_eq!(nobody.1["error"]["partial"], json!({ "received": false }), "{shown:?}");
    assert_eq!(command.1["result"]["exit_code"], 0, "{shown:?}");
}

/// `explain` said `allow` alone of what `aos.toml` or this machine's own addresses close.
#[test]
fn what_the_driver_refuses_whatever_the_policy_says_is_explained_too() {
    let rule = |to: &str| format!("      - {{to: \"{to}\", allow: [\"GET /**\"]}}\n");
    let setup = Setup {
        policy: Some(policy(&(rule("9.9.9.9:80") + &rule("8.8.8.8:80")))),
        more: "[net]\nallow = [\"9.9.9.9:80\"]\n".to_owned(),
        ..Setup::default()
    };
    let rig = Rig::with(vec![any("", vec![say("done")])], setup);
    rig.up();
    let resident = rig.aos(&["spawn", "beta"]);
    assert_eq!(resident.code, 0, "{resident:?}");
    let explained = |host: &str| {
        let call = format!("NET_FETCH {{\"url\":\"http://{host}/a\"}}");
        rig.json(&["policy", "explain", "2", &call])
    };
    let open = explained("9.9.9.9");
    assert!(open["verdict"] == "allow" && open.get("refused").is_none(), "{open}");
    let closed = explained("8.8.8.8");
    let why = closed["refused"].as_str().unwrap_or_default();
    assert!(closed["verdict"] == "allow" && why.contains("[net] of aos.toml does not name 8.8.8.8:80"), "{closed}");
    let denied = explained("8.8.4.4");
    assert!(denied["verdict"] == "deny" && denied.get("refused").is_none(), "one reason is enough: {denied}");
    let said = rig.aos(&["policy", "explain", "2", "NET_FETCH {\"url\":\"http://8.8.8.8/a\"}"]);
    assert!(said.out.contains("the network driver refuses it all the same: [net]"), "{said:?}");
}
