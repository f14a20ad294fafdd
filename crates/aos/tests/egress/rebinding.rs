//! Names that change their mind (DNS rebinding): a command asks for a host that a rule names, and whoever answers for that
//! name leads to the attacker's own server first, to this machine, its daemon or its metadata service then.
//!
//! Start at [`a_name_that_changes_its_mind_leads_nowhere_else`]; each attack is listed in `docs/sandbox.md`. What always
//! holds: the daemon is the real one and asks the C library, before which [`INTERNET`] is put, so that names and the public
//! address are the test's. [`NAIVE`] is a proxy as it is often written, and the same command gets through it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aos_models::scripted::Call;
use serde_json::{Value, json};

use super::rig::{Running, any, calls, results, say, skipped};
use super::web::{Web, serve_tls};
use super::{policy, rig, run_in};

/// Where the attacker's own server is, and the name begins to lead to.
const PUBLIC: &str = "93-184-216-34";

/// A name server and a public address that are the test's, as a library for `LD_PRELOAD`. `flip-A-B-….test` is the first
/// time at address A and from then on at B, `both-A-B-….test` at A and B every time; whoever connects to 93.184.216.34 at
/// port `PLAIN` or `TLS` comes out on loopback. Each look-up is a line of `LOG`.
const INTERNET: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

typedef int asking(const char *, const char *, const struct addrinfo *, struct addrinfo **);
typedef int connecting(int, const struct sockaddr *, socklen_t);
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char asked[64][128];

static int is_first(const char *name) {
    int first = 0;
    pthread_mutex_lock(&turn);
    FILE *log = fopen(LOG, "a");
    if (log) { fprintf(log, "%s\n", name); fclose(log); }
    for (int i = 0; i < 64; i++) {
        if (!strcmp(asked[i], name)) break;
        if (!asked[i][0]) { snprintf(asked[i], sizeof asked[i], "%s", name); first = 1; break; }
    }
    pthread_mutex_unlock(&turn);
    return first;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    asking *real = (asking *)dlsym(RTLD_NEXT, "getaddrinfo");
    unsigned p[8];
    char kind[5], text[2][32];
    if (!node || sscanf(node, "%4[a-z]-%u-%u-%u-%u-%u-%u-%u-%u-", kind, p, p + 1, p + 2, p + 3, p + 4, p + 5, p + 6, p + 7) != 9)
        return real(node, service, hints, found);
    for (int i = 0; i < 2; i++) snprintf(text[i], sizeof text[i], "%u.%u.%u.%u", p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]);
    int first = is_first(node), both = !strcmp(kind, "both");
    int failed = real(first || both ? text[0] : text[1], service, hints, found);
    if (failed || !both) return failed;
    struct addrinfo *last = *found;
    while (last->ai_next) last = last->ai_next;
    return real(text[1], service, hints, &last->ai_next);
}

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    connecting *real = (connecting *)dlsym(RTLD_NEXT, "connect");
    struct sockaddr_in v4;
    if (to->sa_family != AF_INET || length < sizeof v4) return real(fd, to, length);
    memcpy(&v4, to, sizeof v4);
    if (v4.sin_addr.s_addr != inet_addr("93.184.216.34")) return real(fd, to, length);
    v4.sin_addr.s_addr = inet_addr("127.0.0.1");
    v4.sin_port = htons(ntohs(v4.sin_port) == PLAIN ? PUBLIC_PLAIN : ntohs(v4.sin_port) == TLS ? PUBLIC_TLS : 9);
    return real(fd, (struct sockaddr *)&v4, sizeof v4);
}
"#;

/// What the command runs: each attempt of the list that it is given, twice, by its way; prints status and text of each.
const RAW: &str = r#"
import json, os, socket, ssl, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
def answer(s):
    text = b''
    while piece := s.recv(65536): text += piece
    head, _, body = text.decode('latin-1').partition('\r\n\r\n')
    return [int(head.split(' ')[1]), body]
def within(s, name, path, to):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    t = context.wrap_socket(s, server_hostname=name)
    t.sendall(f'GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n'.encode())
    return answer(t)
def plain(name, to, path):
    s = socket.create_connection((proxy.hostname, proxy.port), 30)
    s.sendall(f'GET http://{to}{path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n'.encode())
    return answer(s)
def tunnel(name, to, path):
    s = socket.create_connection((proxy.hostname, proxy.port), 30)
    s.sendall(f'CONNECT {to} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n'.encode())
    head = b''
    while b'\r\n\r\n' not in head: head += s.recv(1) or 1 / 0
    status = int(head.split(b' ')[1])
    return within(s, name, path, to) if status == 200 else [status, '']
def connected(name, to):
    return socket.create_connection((socket.gethostbyname(name), int(to.rsplit(':', 1)[1])), 30)
def unaware(name, to, path):
    s = connected(name, to)
    s.sendall(f'GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n'.encode())
    return answer(s)
def unaware_tls(name, to, path): return within(connected(name, to), name, path, to)
said = []
for way, to, path in json.load(open(sys.argv[1])):
    for _ in range(2):
        try: said.append(globals()[way](to.rsplit(':', 1)[0], to, path))
        except (OSError, IndexError, ZeroDivisionError) as error: said.append([0, repr(error)])
print(json.dumps(said))
"#;

/// A proxy that looks at the addresses of a name, and then connects to the name: it prints its port and serves all comers.
const NAIVE: &str = r#"
import ipaddress, re, socket, threading
def copy(a, b):
    try:
        while piece := a.recv(65536): b.sendall(piece)
        b.shutdown(socket.SHUT_WR)
    except OSError: pass
def serve(s):
    text = b''
    while b'\r\n\r\n' not in text: text += s.recv(1)
    method, url = text.decode().split(' ')[:2]
    host, port = re.fullmatch(r'(?:http://)?([^:/]+):(\d+).*', url).groups()
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    if not all(ipaddress.ip_address(one[4][0]).is_global for one in found):
        return s.sendall(b'HTTP/1.1 403 Forbidden\r\n\r\nprivate') or s.close()
    other = socket.create_connection((host, int(port)), 30)
    if method == 'CONNECT': s.sendall(b'HTTP/1.1 200 OK\r\n\r\n')
    else: other.sendall(text.replace(url.encode(), re.sub('^http://[^/]+', '', url).encode(), 1))
    threading.Thread(target=copy, args=(s, other), daemon=True).start()
    copy(other, s)
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// An attack: what it is called, its way in [`RAW`], host and port, the status of the first answer, and why there is no
/// second.
struct Attack {
    what: &'static str,
    way: &'static str,
    host: String,
    port: u16,
    first: u16,
    why: &'static str,
}

/// Attacks as a file for [`RAW`].
fn list(attacks: &[Attack]) -> String {
    let attempts = attacks.iter().map(|one| json!([one.way, format!("{}:{}", one.host, one.port), "/secret"]));
    Value::from_iter(attempts).to_string()
}

/// The attacker's server and the one that is meant, each plain and behind TLS.
struct Servers {
    public: [Web; 2],
    inner: [Web; 2],
}

impl Servers {
    fn start() -> Servers {
        let public = Web::serve(&[("GET /secret", "200 OK", "the attacker's own page")]);
        let inner = Web::serve(&[("GET /secret", "200 OK", "top secret")]);
        Servers { public: [public, serve_tls().0], inner: [inner, serve_tls().0] }
    }

    /// The library of [`INTERNET`], and what it writes down; nothing where there is no compiler.
    fn internet(&self, folder: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
        let (source, library) = (folder.join("internet.c"), folder.join(format!("{name}.so")));
        let log = folder.join(format!("{name}.log"));
        fs::write(&source, INTERNET).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).args(["-ldl", "-pthread"]);
        cc.arg(format!("-DLOG=\"{}\"", log.display()));
        let ports = [("PLAIN", &self.inner[0]), ("TLS", &self.inner[1])];
        let public = [("PUBLIC_PLAIN", &self.public[0]), ("PUBLIC_TLS", &self.public[1])];
        cc.args(ports.into_iter().chain(public).map(|(what, web)| format!("-D{what}={}", web.port)));
        cc.status().is_ok_and(|status| status.success()).then_some((library, log))
    }

    /// Those through which a [`NAIVE`] proxy lets a command come first. What is not a server of the test's, or is one whose
    /// certificate nobody vouches for, cannot be reached the first time either (502).
    fn attacks(&self, daemon: u16) -> Vec<Attack> {
        const PRIVATE: &str = "resolves to 127.0.0.1";
        let [plain, tls] = [self.inner[0].port, self.inner[1].port];
        let host = |kind: &str, then: &str, of: &str| format!("{kind}-{PUBLIC}-{then}-{of}.test");
        let here = |of: &str| host("flip", "127-0-0-1", of);
        let attack = |what, way, host, port, first, why| Attack { what, way, host, port, first, why };
        let named = |rest: &'static str, way, of, port, first| attack(rest, way, here(of), port, first, PRIVATE);
        let metadata = host("flip", "169-254-169-254", "f.private");
        let own = "the daemon's own address";
        vec![
            named("a name that changes its mind, by HTTP", "plain", "a.rebind", plain, 200),
            named("a name that changes its mind, by a tunnel", "tunnel", "b.rebind", tls, 200),
            named("a name that changes its mind, by a tunnel that is opened", "tunnel", "c.opened", tls, 502),
            named(
                "a name that changes its mind, for a program that knows of no proxy",
                "unaware",
                "d.rebind",
                plain,
                200,
            ),
            named("a name that changes its mind, for such a program with TLS", "unaware_tls", "e.rebind", tls, 200),
            attack("a name that turns into the metadata service", "plain", metadata, plain, 200, "metadata service"),
            attack("a name that turns into the daemon", "plain", here("g.private"), daemon, 502, own),
            attack(
                "a name with a good address and a bad one",
                "plain",
                host("both", "127-0-0-1", "h.rebind"),
                plain,
                403,
                PRIVATE,
            ),
        ]
    }
}

/// Runs the command's program outside, by a proxy as it is often written; what came of each attempt.
fn by_a_naive_proxy(folder: &Path, library: &Path) -> Vec<(u16, String)> {
    let mut naive = Command::new("python3");
    naive.args(["-c", NAIVE]).env("LD_PRELOAD", library).stdout(Stdio::piped());
    let mut naive = naive.spawn().unwrap();
    let mut port = String::new();
    BufReader::new(naive.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let mut client = Command::new("python3");
    client.args(["raw.py", "control.json"]).current_dir(folder);
    client.env("HTTP_PROXY", format!("http://127.0.0.1:{}", port.trim()));
    let ran = client.output().unwrap();
    naive.kill().unwrap();
    naive.wait().unwrap();
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

/// Rules under which the hosts of the attacks are granted.
fn rules(plain: u16, tls: u16) -> String {
    let all = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|method| format!("\"{method} /**\"")).join(", ");
    format!(
        "      - {{to: \"*.rebind.test:{plain}\", allow: [\"GET /**\"]}}\n      \
         - {{to: \"*.rebind.test:{tls}\", allow: [{all}]}}\n      \
         - {{to: \"*.opened.test:{tls}\", allow: [\"GET /**\"]}}\n      \
         - {{to: \"*.private.test:*\", allow: [\"GET /**\"], private: true}}"
    )
}

#[test]
fn a_name_that_changes_its_mind_leads_nowhere_else() {
    let servers = Servers::start();
    let steps = vec![calls(vec![Call::new("EXEC_CMD", json!({ "cmd": "python3 raw.py attempts.json" }))]), say("done")];
    let rig = rig(vec![any("alpha", steps)], policy(&rules(servers.inner[0].port, servers.inner[1].port)));
    let Some((library, log)) = servers.internet(&rig.home(), "internet") else {
        return skipped("there is no C compiler");
    };
    let mut up = rig.command(&["up"]);
    up.env("LD_PRELOAD", &library);
    let up = Running::new(up).end();
    assert_eq!(up.code, 0, "{up:?}\n{}", rig.log());
    let listen = rig.json(&["status"])["listen"].as_str().unwrap().to_owned();
    let folder = rig.folder("mine");
    let attacks = servers.attacks(listen.rsplit_once(':').unwrap().1.parse().unwrap());
    fs::write(folder.join("attempts.json"), list(&attacks)).unwrap();
    fs::write(folder.join("control.json"), list(&attacks[..2])).unwrap();
    fs::write(folder.join("raw.py"), RAW).unwrap();
    run_in(&rig, &folder, "alpha");
    let shown = results(&rig.requests()[1])[0].1["result"].clone();
    let said: Vec<(u16, String)> =
        serde_json::from_str(shown["stdout"].as_str().unwrap_or_default()).unwrap_or_else(|_| panic!("{shown}"));
    let (table, looked_up) = (include_str!("../../../../docs/sandbox.md"), fs::read_to_string(log).unwrap());
    for (attack, said) in attacks.iter().zip(said.chunks(2)) {
        let what = attack.what;
        assert_eq!(said[0].0, attack.first, "{what}: {said:?}");
        assert_ne!(said[1].0, 200, "{what}: {said:?}");
        let mut latest = shown["requests"].as_array().unwrap().iter().rev();
        let told = latest.find(|one| one["to"].as_str().unwrap().contains(&attack.host)).unwrap();
        assert!(told["verdict"] == "deny" && told["why"].as_str().unwrap().contains(attack.why), "{what}: {told}");
        assert_eq!(looked_up.matches(&attack.host).count(), 2, "{what}: each request looks it up once");
        assert!(table.contains(&format!("| {what} |")), "docs/sandbox.md does not list: {what}");
    }
    for inner in &servers.inner {
        assert_eq!(inner.asked(), [""; 0], "nobody came");
    }

    let naive = servers.internet(&rig.home(), "naive").unwrap().0;
    let said = by_a_naive_proxy(&folder, &naive);
    assert!(said[0].1 == "top secret" && said[2].0 == 200, "{said:?}");
    for inner in &servers.inner {
        assert_eq!(inner.paths(), ["GET /secret"], "without the walls somebody does");
    }
}
