//! Programs that know of no proxy: they ask for a name, connect to what they are told, and are decided all the same.

use std::fs;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use super::rig::{Running, any, calls, results, say};
use super::web::{Web, serve_tls};
use super::{policy, rig};

/// Takes the ports of two servers, the second behind TLS, and prints what came of everything that it tried.
const RAW: &str = r#"
import json, os, socket, ssl, struct, sys
PORT, TLS = int(sys.argv[1]), int(sys.argv[2])
def ask(name, kind=1, tcp=False, to='127.0.0.1'):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    question = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, 1)
    if tcp:
        s = socket.create_connection((to, 53), 20)
        s.sendall(struct.pack('>H', len(question)) + question)
        answer = s.recv(struct.unpack('>H', s.recv(2, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(20)
        s.connect((to, 53))
        s.send(question)
        answer = s.recv(4096)
    return socket.inet_ntoa(answer[-4:]) if struct.unpack('>H', answer[6:8])[0] else 'code %d' % (answer[3] & 15)
def get(address, port, path, host, tls=None, first=None):
    s = socket.create_connection((address, port), 20)
    if tls: s = ssl.create_default_context().wrap_socket(s, server_hostname=tls)
    s.sendall(first or ('GET %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n' % (path, host)).encode())
    text = b''
    while piece := s.recv(65536): text += piece
    text = text.decode()
    return [int(text.split(' ')[1]), text.split('\r\n\r\n', 1)[1]] if text else 'closed'
said = {}
def tried(what, attempt):
    try: said[what] = attempt()
    except ssl.SSLError: said[what] = 'closed'
    except (ConnectionResetError, BrokenPipeError): said[what] = 'closed'
    except OSError as error: said[what] = 'nothing there'
named, plain, secured = ask('localhost'), 'localhost:%d' % PORT, 'localhost:%d' % TLS
tried('named', lambda: named)
tried('by connection', lambda: ask('LocalHost', tcp=True))
tried('sixth', lambda: ask('localhost', 28))
tried('not granted', lambda: ask('other.example'))
tried('asked elsewhere', lambda: ask('localhost', to='192.0.2.1'))
tried('resolver', lambda: socket.getaddrinfo('api.granted.example', 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
tried('resolver, not granted', lambda: socket.getaddrinfo('other.example', 80))
tried('open', lambda: get(named, PORT, '/open/a?q=1', plain))
tried('closed path', lambda: get(named, PORT, '/closed', plain))
tried('another host', lambda: get(named, PORT, '/open/a', 'other.example'))
tried('a proxy there', lambda: get(named, PORT, 'http://%s/open/a' % plain, plain))
tried('address', lambda: get('127.0.0.1', PORT, '/open/a', '127.0.0.1:%d' % PORT))
tried('never answered', lambda: get('198.18.9.9', PORT, '/open/a', plain))
tried('elsewhere', lambda: get('192.0.2.1', 80, '/', '192.0.2.1'))
tried('sixth address', lambda: get('2001:db8::1', 80, '/', 'x'))
tried('no port of a rule', lambda: get(named, 9, '/', plain))
tried('packets', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9)))
tried('no http', lambda: get(named, PORT, '', '', first=b'\0\0SSH-2.0-x\r\n'))
tried('tls', lambda: get(named, TLS, '/repos/a', secured, 'localhost'))
tried('tls, closed path', lambda: get(named, TLS, '/other', secured, 'localhost'))
tried('tls, another name', lambda: get(named, TLS, '/repos/a', secured, 'other.example'))
tried('tls, another host', lambda: get(named, TLS, '/repos/a', 'other.example', 'localhost'))
tried('unreachable', lambda: get(socket.gethostbyname('api.granted.example'), 80, '/x', 'api.granted.example')[0])
print(json.dumps(said))
"#;

/// Answers with what it was asked, on the host's IPv6 loopback; nothing where it has none.
fn sixth() -> Option<u16> {
    let listener = std::net::TcpListener::bind("[::1]:0").ok()?;
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(stream.try_clone().unwrap()), &mut line);
            let body = format!("sixth {}", line.trim());
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = std::io::Write::write_all(&mut stream, format!("{head}{body}").as_bytes());
        }
    });
    Some(port)
}

/// What `curl` prints of each address: status, then body or error.
fn curls(urls: &[String]) -> String {
    let one = |url: &String| {
        format!("env -i PATH=$PATH curl -sS -g -m 30 -w ' %{{http_code}}\\n' '{url}' 2>/dev/null | tail -n 1")
    };
    urls.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn curl_without_proxy_variables_comes_out_by_the_rules_and_by_no_other_address() {
    if !std::path::Path::new("/usr/bin/curl").exists() {
        eprintln!("SKIPPED: there is no curl");
        return;
    }
    let Some(port) = sixth() else {
        eprintln!("SKIPPED: this host has no IPv6");
        return;
    };
    let web = Web::serve(&[("GET /open/a", "200 OK", "open a"), ("GET /closed", "200 OK", "top secret")]);
    let net = format!(
        "      - {{to: \"127.0.0.1:{}\", allow: [\"GET /open/**\"], private: true}}\n      \
         - {{to: \"*.granted.example:80\", allow: [\"GET /open/**\"]}}\n      \
         - {{to: \"[::1]:{port}\", allow: [\"GET /open/**\"], private: true}}\n      \
         - {{to: \"[2001:db8::7]:80\", allow: [\"GET /open/**\"], private: true}}",
        web.port
    );
    let plain = format!("127.0.0.1:{}", web.port);
    let wanted = [
        (format!("http://{plain}/open/a"), "open a 200"),
        (format!("http://{plain}/closed"), " 403"),
        // A name is asked for inside and stands for itself; what it may be asked is decided before it is looked up.
        ("http://api.granted.example/closed".to_owned(), " 403"),
        // An address that a rule names is meant as it is; nobody lives at the second one.
        (format!("http://[::1]:{port}/open/a"), "sixth GET /open/a HTTP/1.1 200"),
        (format!("http://[::1]:{port}/closed"), " 403"),
        ("http://[2001:db8::7]/closed".to_owned(), " 403"),
        // The same port under the other family is another place, and so is every other address.
        (format!("http://[::ffff:127.0.0.1]:{port}/open/a"), " 421"),
        (format!("http://[::1]:{}/open/a", web.port), " 403"),
        ("http://[2001:db8::8]/open/a".to_owned(), " 000"),
        ("http://[fd00:ec2::254]/latest/meta-data".to_owned(), " 000"),
        ("http://[fe80::1]/".to_owned(), " 000"),
        ("http://other.example/".to_owned(), " 000"),
    ];
    let urls: Vec<String> = wanted.iter().map(|(url, _)| url.clone()).collect();
    let steps = vec![calls(vec![Call::new("EXEC_CMD", json!({ "cmd": curls(&urls) }))]), say("done")];
    let rig = rig(vec![any("alpha", steps)], policy(&net).replace("python3]", "python3, curl]"));
    let folder = rig.folder("mine");
    let ran = rig.aos(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    let shown = results(&rig.requests()[1])[0].1["result"].clone();
    let said: Vec<&str> = shown["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(said.len(), wanted.len(), "{shown}");
    for ((url, expected), line) in wanted.iter().zip(&said) {
        assert!(line.ends_with(expected), "{url}: {line}\n{shown}");
    }
    assert!(!shown.to_string().contains("top secret"));
    assert_eq!(web.paths(), ["GET /open/a"]);
    let told = shown["requests"].as_array().unwrap();
    let verdict = |to: &str| told.iter().find(|one| one["to"] == to).map(|one| one["verdict"].clone());
    assert_eq!(verdict(&format!("http://[::1]:{port}/open/a")), Some(json!("allow")), "{shown}");
    assert_eq!(verdict("http://[2001:db8::7]/closed"), Some(json!("deny")), "{shown}");
}

#[test]
fn programs_that_know_of_no_proxy_are_decided_by_the_same_rules() {
    let web = Web::serve(&[("GET /open/a", "200 OK", "open a"), ("GET /closed", "200 OK", "top secret")]);
    let (secured, authority) = serve_tls();
    let net = format!(
        "      - {{to: \"localhost:{}\", allow: [\"GET /open/**\"], private: true, label: personal}}\n      \
         - {{to: \"localhost:{}\", allow: [\"GET /repos/**\"], private: true}}\n      \
         - {{to: \"*.granted.example\", allow: [\"GET /**\"]}}",
        web.port, secured.port
    );
    let command =
        format!("env -i PATH=$PATH SSL_CERT_FILE=$SSL_CERT_FILE python3 raw.py {} {}", web.port, secured.port);
    let steps = vec![calls(vec![Call::new("EXEC_CMD", json!({ "cmd": command }))]), say("done")];
    let rig = rig(vec![any("alpha", steps)], policy(&net));
    let folder = rig.folder("mine");
    fs::write(folder.join("raw.py"), RAW).unwrap();
    let mut run = rig.command(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
    run.env("SSL_CERT_FILE", authority);
    let ran = Running::new(run).end();
    assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
    let shown = results(&rig.requests()[1])[0].1["result"].clone();
    let printed = shown["stdout"].as_str().unwrap();
    let said: Value = serde_json::from_str(printed).unwrap_or_else(|_| panic!("{shown}"));
    assert_eq!((&said["named"], &said["by connection"]), (&json!("198.18.0.1"), &json!("198.18.0.1")), "{said}");
    assert_eq!((&said["sixth"], &said["not granted"]), (&json!("code 0"), &json!("code 3")), "{said}");
    assert_eq!(said["resolver"], "198.18.0.2", "by the system's own means: {said}");
    assert_eq!(said["open"], json!([200, "open a"]), "{said}");
    assert_eq!(said["tls"], json!([200, "/repos/a nobody"]), "{said}");
    for (what, status, why) in [
        ("closed path", 403, "no rule"),
        ("another host", 421, "this connection is for localhost"),
        ("a proxy there", 400, "begins with its path"),
        ("address", 403, "no rule"),
        ("tls, closed path", 403, "no rule"),
        ("tls, another host", 421, "this connection is for localhost"),
    ] {
        assert!(said[what][0] == status && said[what][1].as_str().unwrap().contains(why), "{what}: {said}");
    }
    for what in ["never answered", "no http", "tls, another name"] {
        assert_eq!(said[what], "closed", "{what}: {said}");
    }
    for what in
        ["asked elsewhere", "resolver, not granted", "elsewhere", "sixth address", "no port of a rule", "packets"]
    {
        assert_eq!(said[what], "nothing there", "{what}: {said}");
    }
    assert!(said["unreachable"] == 403 || said["unreachable"] == 502, "it is resolved outside: {said}");
    assert_eq!(web.paths(), ["GET /open/a?q=1"]);
    assert_eq!(secured.paths(), ["GET /repos/a"]);
    // It is told and labelled as what comes by the proxy.
    let verdict = |to: &str| {
        let requests = shown["requests"].as_array().unwrap();
        requests.iter().find(|one| one["to"] == to).unwrap_or_else(|| panic!("{to}: {shown}"))["verdict"].clone()
    };
    assert_eq!(verdict(&format!("http://localhost:{}/open/a", web.port)), "allow");
    assert_eq!(verdict(&format!("http://localhost:{}/closed", web.port)), "deny");
    assert_eq!(verdict(&format!("https://localhost:{}/repos/a", secured.port)), "allow");
    assert_eq!(verdict(&format!("198.18.9.9:{}", web.port)), "deny");
    assert_eq!(shown["label"], "untrusted.web, personal");
}
