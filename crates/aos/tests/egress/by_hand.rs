//! A command that speaks to its proxy by hand: what is written to be read in two ways, tunnels to where nothing leads, and
//! names that lead to this machine. Each attempt is listed in `docs/sandbox.md`.

use std::fs;

use aos_models::scripted::Call;
use serde_json::json;

use super::rig::{any, calls, results, say};
use super::web::Web;
use super::{policy, rig};

/// Says each text of a list to the proxy, on a connection of its own, and prints what came of it. Then asks for something
/// within TLS through a tunnel to each place of another list, as a program that trusts the authority does.
const RAW: &str = r#"
import json, os, socket, ssl, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
said = []
for attempt in json.load(open('attempts.json')):
    text = b''
    try:
        s = socket.create_connection((proxy.hostname, proxy.port), 30)
        s.sendall(attempt.encode('latin-1'))
        while piece := s.recv(65536): text += piece
    except OSError: pass
    said.append(text.decode('latin-1'))
for to, path in json.load(open('tunnels.json')):
    text = b''
    try:
        s = socket.create_connection((proxy.hostname, proxy.port), 30)
        s.sendall(f'CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n'.encode())
        head = b''
        while b'\r\n\r\n' not in head: head += s.recv(1) or 1 / 0
        t = ssl.create_default_context().wrap_socket(s, server_hostname=to.rsplit(':', 1)[0])
        t.sendall(f'GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n'.encode())
        while piece := t.recv(65536): text += piece
    except OSError as error: text += repr(error).encode()
    said.append(text.decode('latin-1'))
print(json.dumps(said))
"#;

/// What each is called, and what is said to the proxy whose rules allow `GET /open/**` and `POST /in/*` of `to` alone. All
/// mean to have the other side see `/closed`, or to reach what no rule names.
fn attempts(to: &str, elsewhere: &str, daemon: &str) -> Vec<(&'static str, String)> {
    let get = |url: String| get(&url, to);
    let path = |path: &str| get(format!("http://{to}{path}"));
    let post =
        |headers: &str, body: &str| format!("POST http://{to}/in/box HTTP/1.1\r\nhost: {to}\r\n{headers}\r\n{body}");
    let hidden = path("/closed");
    let long = hidden.len() + 5;
    let connect =
        |to: &str, then: &str| format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n{then}");
    vec![
        ("two lengths of a body", post(&format!("content-length: 0\r\ncontent-length: {long}\r\n"), &hidden)),
        ("two lengths in one line", post(&format!("content-length: 0, {long}\r\n"), &hidden)),
        (
            "a length and chunks",
            post(&format!("content-length: {long}\r\ntransfer-encoding: chunked\r\n"), &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "chunks, with a blank before the colon",
            post("transfer-encoding : chunked\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        ("chunks in another spelling", post("transfer-encoding: xchunked\r\n", &format!("0\r\n\r\n{hidden}"))),
        (
            "chunks and something else",
            post("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", &format!("0\r\n\r\n{hidden}")),
        ),
        ("a chunk that lies about its length", post("transfer-encoding: chunked\r\n", &format!("-1\r\n{hidden}"))),
        ("a header that goes on in the next line", post("x: a\r\n content-length: 0\r\n", &hidden)),
        ("a header that ends in the middle", post(&format!("x: a\rcontent-length: {long}\r\n"), &hidden)),
        ("a request behind a body", post("content-length: 4\r\n", &format!("body{hidden}"))),
        ("a line's end in the path", path("/open/a%0d%0a%0d%0aGET%20/closed%20HTTP/1.1")),
        ("a line feed in the path", path("/open/a\nGET /closed")),
        ("a path that climbs", path("/open/../closed")),
        ("a path that climbs, in numbers", path("/open/%2e%2e/closed")),
        ("a path that climbs, with its slash in numbers", path("/open/..%2fclosed")),
        ("a path that climbs by a backslash", path("/open/..\\closed")),
        ("a name before the host", get(format!("http://{to}@{elsewhere}/open/a"))),
        ("a name with a password before the host", get(format!("http://a:b@{to}/closed"))),
        ("a host in the header alone", format!("GET /closed HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n")),
        ("another method in the header", path("/closed").replacen("host", "x-http-method-override: GET\r\nhost", 1)),
        ("another path in the header", path("/open/a").replacen("host", "x-original-url: /closed\r\nhost", 1)),
        ("another port of an allowed host", get(format!("http://{elsewhere}/open/a"))),
        ("a name that leads to this machine", get(format!("http://localhost:{}/open/a", port(to)))),
        ("this machine as one number", get(format!("http://2130706433:{}/open/a", port(elsewhere)))),
        ("this machine in IPv6", get(format!("http://[::ffff:127.0.0.1]:{}/open/a", port(elsewhere)))),
        ("the metadata service", get("http://169.254.169.254/open/a".to_owned())),
        ("a tunnel to what is allowed in part", connect(to, &hidden)),
        ("a tunnel to another port", connect(elsewhere, &path("/open/a"))),
        ("a tunnel to the metadata service", connect("169.254.169.254:80", &hidden)),
        ("a tunnel to the daemon", connect(daemon, "GET /v1/processes HTTP/1.1\r\nhost: localhost\r\n\r\n")),
        ("a tunnel to nowhere", connect("[::]:0", "")),
    ]
}

fn get(url: &str, host: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

#[test]
fn what_is_said_to_the_proxy_by_hand_reaches_nothing_else() {
    let pages = [
        ("GET /open/a", "200 OK", "open a"),
        ("GET /closed", "200 OK", "top secret"),
        ("POST /in/box", "201 Created", "taken"),
    ];
    let (web, elsewhere) = (Web::serve(&pages), Web::serve(&pages));
    let to = format!("127.0.0.1:{}", web.port);
    let rules = format!(
        "      - {{to: \"{to}\", allow: [\"GET /open/**\", \"POST /in/*\"], private: true}}\n      \
         - {{to: \"**:*\", allow: [\"GET /open/**\"]}}"
    );
    let steps = vec![calls(vec![Call::new("EXEC_CMD", json!({ "cmd": "python3 raw.py" }))]), say("done")];
    let rig = rig(vec![any("alpha", steps)], policy(&rules));
    rig.up();
    let daemon = rig.json(&["status"])["listen"].as_str().unwrap().to_owned();
    let mut all = attempts(&to, &format!("127.0.0.1:{}", elsewhere.port), &daemon);
    all.push(("an ordinary request", get(&format!("http://{to}/open/a"), &to)));
    let folder = rig.folder("mine");
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    fs::write(folder.join("attempts.json"), json!(texts).to_string()).unwrap();
    fs::write(folder.join("raw.py"), RAW).unwrap();
    let other = format!("127.0.0.1:{}", elsewhere.port);
    // Of these a rule allows the path at every host, but for what the floor closes. To the daemon no tunnel is opened.
    let tunnels = [(&*to, "/closed"), (&*other, "/open/a"), ("169.254.169.254:80", "/open/a")];
    fs::write(folder.join("tunnels.json"), json!(tunnels).to_string()).unwrap();
    let ran = rig.aos(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    let shown = results(&rig.requests()[1])[0].1["result"].clone();
    let said: Vec<String> =
        serde_json::from_str(shown["stdout"].as_str().unwrap()).unwrap_or_else(|_| panic!("{shown}"));
    let (said, within) = said.split_at(all.len());
    let (ordinary, said) = said.split_last().unwrap();
    assert!(ordinary.starts_with("HTTP/1.1 200") && ordinary.ends_with("open a"), "{ordinary}");
    let table = include_str!("../../../../docs/sandbox.md");
    for ((what, _), answer) in all.iter().zip(said) {
        assert!(!answer.contains("top secret"), "{what}: {answer}");
        let (head, rest) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        match what.starts_with("a tunnel to ") {
            // Where rules name paths the proxy answers itself, and the tunnel ends at once, since what comes in it is no TLS.
            // To the daemon none is made at all.
            true if what.ends_with("the daemon") => {
                let no_rule = !rest.contains("would allow");
                assert!(
                    head.starts_with("HTTP/1.1 403") && rest.contains("floor: the daemon") && no_rule,
                    "{answer:?}"
                );
            }
            true => assert!(!rest.contains("HTTP/") && rest.len() < 64, "{what}: {answer:?}"),
            false => assert!(!head.starts_with("HTTP/1.1 200"), "{what}: {answer}"),
        }
        assert!(!rest.contains("HTTP/1.1 200"), "{what}: {answer}");
        assert!(!answer.contains("open a"), "{what}: {answer}");
        assert!(table.contains(&format!("| {what} |")), "docs/sandbox.md does not list: {what}");
    }
    for (tunnel, answer) in tunnels.iter().zip(within) {
        assert!(answer.starts_with("HTTP/1.1 403"), "within TLS to {tunnel:?}: {answer}");
    }
    assert!(elsewhere.asked().is_empty(), "{:?}", elsewhere.asked());
    let beside: Vec<String> = web.asked().into_iter().filter(|asked| asked.contains("/closed")).collect();
    assert!(beside.is_empty(), "{beside:?}");
}
