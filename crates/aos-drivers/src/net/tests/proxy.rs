//! The proxy of commands, spoken to as a command speaks: plain bytes over a connection.

use aos_abi::Code;
use aos_policy::{Allowed, Obligations};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::super::pace::{AT_ONCE, EACH};
use super::super::proxy::CONNECTIONS_MAX;
use super::super::{Authority, Gate, Proxy, Seen, Tunnel};
use super::*;

/// Lets through what begins with one of these, and tunnels to these hosts.
struct Door {
    requests: Vec<String>,
    tunnels: Vec<String>,
    private: Vec<HostPort>,
    secrets: Vec<Secret>,
    opened: Option<Arc<Authority>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Nothing is allowed any more once this has told of a change.
    changes: Arc<tokio::sync::watch::Sender<aos_policy::Policy>>,
}

fn unchanging() -> Arc<tokio::sync::watch::Sender<aos_policy::Policy>> {
    Arc::new(tokio::sync::watch::Sender::new(aos_policy::Policy::deny_all()))
}

impl Door {
    fn is_shut(&self) -> bool {
        !self.changes.borrow().generation().starts_with("deny")
    }
}

fn rule() -> Allowed {
    Allowed { rule: "a rule".into(), generation: "1".into(), obligations: Obligations::default() }
}

impl Gate for Door {
    fn request(&self, method: &str, url: &str) -> Result<Allowed, CallError> {
        let asked = format!("{method} {url}");
        let allowed = !self.is_shut() && self.requests.iter().any(|prefix| asked.starts_with(prefix));
        allowed.then(rule).ok_or_else(|| CallError::new(Code::Perm, "no rule").hint("a rule"))
    }
    fn tunnel(&self, host: &str, port: u16) -> Result<Tunnel, CallError> {
        let allowed = !self.is_shut() && self.tunnels.contains(&format!("{host}:{port}"));
        let tunnel = || self.opened.clone().map_or_else(|| Tunnel::Passed(rule()), Tunnel::Opened);
        allowed.then(tunnel).ok_or_else(|| CallError::new(Code::Perm, "a rule names paths"))
    }
    fn names(&self, host: &str) -> bool {
        !self.is_shut() && self.tunnels.iter().chain(&self.requests).any(|rule| rule.contains(host))
    }
    fn private(&self) -> &[HostPort] {
        &self.private
    }
    fn secrets(&self) -> Vec<Secret> {
        self.secrets.clone()
    }
    fn changes(&self) -> tokio::sync::watch::Receiver<aos_policy::Policy> {
        self.changes.subscribe()
    }
    fn saw(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
    }
}

/// A proxy that runs, and what it saw.
pub(super) struct Outlet {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<io::Result<()>>,
}

impl Outlet {
    fn start(driver: Driver, requests: &[String], tunnels: &[String], private: Vec<HostPort>) -> Outlet {
        Outlet::with(driver, requests, tunnels, private, Vec::new())
    }

    pub(super) fn with(
        driver: Driver,
        requests: &[String],
        tunnels: &[String],
        private: Vec<HostPort>,
        secrets: Vec<Secret>,
    ) -> Outlet {
        let seen = Arc::default();
        let door = Door {
            requests: requests.to_vec(),
            tunnels: tunnels.to_vec(),
            private,
            secrets,
            opened: None,
            seen: Arc::clone(&seen),
            changes: unchanging(),
        };
        Outlet::of(driver, door)
    }

    fn of(driver: Driver, door: Door) -> Outlet {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, stop) = (Arc::clone(&door.seen), CancellationToken::new());
        let proxy = Proxy::new(Arc::new(driver), door, stop.clone());
        Outlet { port, seen, stop, task: tokio::spawn(proxy.serve(listener)) }
    }

    /// Says this, and gives everything that is answered until the end.
    pub(super) async fn say(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A proxy that cuts off is as good as one that ends.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(super) async fn get(&self, url: &str) -> String {
        self.say(&format!("GET {url} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    fn verdicts(&self) -> Vec<(String, bool)> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|seen| (format!("{} {}", seen.method, seen.to), seen.said.is_ok())).collect()
    }
}

#[tokio::test]
async fn a_request_is_decided_by_method_host_and_path_and_made_anew() {
    let server = Server::start(|_| with_headers("x-a: 1\r\n", "hello")).await;
    let allowed = [format!("GET {}", server.url("/public/")), format!("POST {}", server.url("/in"))];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    let answer = outlet.get(&server.url("/public/a?q=secret")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("x-a: 1\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let post = format!(
        "POST {} HTTP/1.1\r\nhost: evil\r\nproxy-authorization: x\r\nx-b: 2\r\ncontent-length: 4\r\nconnection: x-b, close\r\n\r\nbody",
        server.url("/in")
    );
    assert!(outlet.say(&post).await.starts_with("HTTP/1.1 200"));
    for refused in [server.url("/private"), "http://127.0.0.1:1/public/".to_owned()] {
        let answer = outlet.get(&refused).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("no rule (a rule)"), "{answer}");
    }
    let delete = format!("DELETE {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", server.url("/public/a"));
    assert!(outlet.say(&delete).await.starts_with("HTTP/1.1 403"));
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let host = format!("host: 127.0.0.1:{}\r\n", server.port);
    assert!(seen.iter().all(|request| request.contains(&host)), "{seen:?}");
    assert!(!seen[1].contains("proxy-auth") && !seen[1].contains("x-b") && seen[1].ends_with("body"), "{seen:?}");
    let expected = [("GET", "/public/a", true), ("POST", "/in", true), ("GET", "/private", false)]
        .map(|(method, path, allowed)| (format!("{method} {}", server.url(path)), allowed));
    assert_eq!(outlet.verdicts()[..3], expected, "the query is not told");
}

#[tokio::test]
async fn a_request_that_its_headers_make_another_is_refused_as_a_whole() {
    let server = Server::start(|_| ok("done")).await;
    let allowed = [format!("POST {}", server.url("/in"))];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    let post = |headers: &str| {
        format!(
            "POST {} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n",
            server.url("/in")
        )
    };
    // Also where it says that the header ends here.
    let ending = "connection: x-http-method\r\nx-http-method: DELETE\r\n";
    for headers in
        ["X-HTTP-Method-Override: DELETE\r\n", "x_method_override: PUT\r\n", "x-original-url: /admin\r\n", ending]
    {
        let answer = outlet.say(&post(headers)).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("another request"), "{headers}: {answer}");
    }
    assert_eq!(server.seen(), Vec::<String>::new());
    assert!(outlet.verdicts().iter().all(|(_, allowed)| !allowed), "{:?}", outlet.verdicts());
    assert!(outlet.say(&post("x-requested-with: curl\r\n")).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn private_metadata_and_rebound_addresses_are_refused_whatever_the_rules_say() {
    let everything = ["GET http".to_owned()];
    let tunnels = ["host.example:443".to_owned(), "169.254.169.254:443".to_owned()];
    let answers: [&[&str]; 4] = [&["10.0.0.1"], &["93.184.216.34", "127.0.0.1"], &["169.254.169.254"], &["::1"]];
    let outlet = Outlet::start(faking(&answers), &everything, &tunnels, vec![]);
    for url in ["http://127.0.0.1:9/", "http://[::1]:9/", "http://169.254.169.254/latest/meta-data", "http://10.1.2.3/"]
    {
        assert!(outlet.get(url).await.starts_with("HTTP/1.1 403"), "{url}");
    }
    for _ in 0..3 {
        assert!(outlet.get("http://host.example/").await.starts_with("HTTP/1.1 403"));
    }
    for to in ["host.example:443", "169.254.169.254:443"] {
        let answer = outlet.say(&format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{to}: {answer}");
    }
    assert!(outlet.verdicts().iter().all(|(_, allowed)| !allowed), "{:?}", outlet.verdicts());
}

#[tokio::test]
async fn a_redirect_is_handed_back_and_its_target_decided_anew() {
    let server =
        Server::start(|request| if request.starts_with("GET /open") { redirect_to("/closed") } else { ok("closed") })
            .await;
    let allowed = [format!("GET {}", server.url("/open"))];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    let answer = outlet.get(&server.url("/open")).await;
    assert!(answer.starts_with("HTTP/1.1 302") && answer.contains("location: /closed"), "{answer}");
    assert!(outlet.get(&server.url("/closed")).await.starts_with("HTTP/1.1 403"));
    assert_eq!(server.seen().len(), 1);
}

/// A server behind TLS with an authority of its own, for `api.test`: it says the path and what `authorization` said.
struct Upstream {
    port: u16,
    authority: Authority,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, authority) = (listener.local_addr().unwrap().port(), Authority::new().unwrap());
        let acceptor = tokio_rustls::TlsAcceptor::from(authority.serves("api.test").unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).await.unwrap();
                    bytes.push(byte[0]);
                }
                let head = String::from_utf8(bytes).unwrap();
                let told = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
                let answer = ok(format!("{} {told}", head.split(' ').nth(1).unwrap()));
                log.lock().unwrap().push(head);
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        Upstream { port, authority, seen }
    }

    fn at(&self) -> String {
        format!("api.test:{}", self.port)
    }

    /// A proxy to it whose driver trusts it.
    fn outlet(&self, requests: &[String], opened: Option<Arc<Authority>>, secrets: Vec<Secret>) -> Outlet {
        let (tunnels, private) = (vec![self.at()], vec![self.at().parse().unwrap()]);
        let driver = faking(&[&["127.0.0.1"][..]; 16]).trusting(self.authority.own());
        let requests = requests.to_vec();
        Outlet::of(
            driver,
            Door { requests, tunnels, private, secrets, opened, seen: Arc::default(), changes: unchanging() },
        )
    }
}

impl Outlet {
    /// Says this inside TLS for `name` through a tunnel to `to`, trusting one authority.
    async fn say_inside(&self, to: &str, name: &str, trusted: &Authority, bytes: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.map_err(|error| error.to_string())?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        if !head.starts_with("HTTP/1.1 200") {
            return Err(head);
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add(trusted.own()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let connecting = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let mut stream = connecting.map_err(|error| error.to_string())?;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[tokio::test]
async fn a_tunnel_is_passed_on_where_everything_is_allowed_and_names_its_host() {
    let upstream = Upstream::start().await;
    let (to, get) = (upstream.at(), "GET /any HTTP/1.1\r\nhost: api.test\r\n\r\n");
    let outlet = upstream.outlet(&[], None, vec![]);
    let answer = outlet.say_inside(&to, "api.test", &upstream.authority, get).await.unwrap();
    assert!(answer.ends_with("/any nobody"), "{answer}");
    assert!(outlet.say_inside(&to, "evil.test", &upstream.authority, get).await.is_err(), "another name inside");
    let answer = outlet.say(&format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n{get}")).await;
    assert!(!answer.contains("/any"), "what is not TLS: {answer}");
    let answer = outlet.say("CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("a rule names paths"), "{answer}");
    let answer = outlet.say(&format!("CONNECT me@{to} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.seen.lock().unwrap().len(), 1);
    let connect = format!("CONNECT {to}");
    let verdicts = outlet.verdicts();
    assert_eq!(verdicts[..3], [(connect.clone(), true), (connect.clone(), false), (connect, false)], "{verdicts:?}");
    assert!(outlet.seen.lock().unwrap()[1].said.as_ref().unwrap_err().contains("evil.test"));
}

/// A host in capitals was refused by `CONNECT` where `http://` reached it.
#[tokio::test]
async fn a_tunnels_host_is_read_as_that_of_an_address() {
    let upstream = Upstream::start().await;
    let outlet = Outlet::start(
        faking(&[&["127.0.0.1"][..]; 16]).trusting(upstream.authority.own()),
        &[],
        &[format!("localhost:{}", upstream.port)],
        vec![format!("localhost:{}", upstream.port).parse().unwrap()],
    );
    for host in ["localhost", "LOCALHOST", "LocalHost."] {
        let to = format!("{host}:{}", upstream.port);
        let answer = outlet.say(&format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    let to = format!("localhost..:{}", upstream.port);
    let answer = outlet.say(&format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn a_tunnel_is_opened_where_rules_name_paths_and_each_request_is_decided() {
    let upstream = Upstream::start().await;
    let (to, own) = (upstream.at(), Arc::new(Authority::new().unwrap()));
    let secret = Secret::new("TOKEN", "api.test", upstream.port, "authorization", Ok("ghp_0123456789".into()));
    let allowed = [format!("GET https://{to}/repos/")];
    let outlet = upstream.outlet(&allowed, Some(Arc::clone(&own)), vec![secret]);
    let request = |path: &str, host: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: mine\r\nconnection: close\r\n\r\n")
    };
    let say =
        async |path: &str, host: &str| outlet.say_inside(&to, "api.test", &own, &request(path, host)).await.unwrap();
    let answer = say("/repos/a?q", &to).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/repos/a?q Bearer **************"), "{answer}");
    for (path, host, status) in [
        ("/other", to.as_str(), 403),
        ("/repos/a", "evil.test", 421),
        ("http://evil.test/repos/a", to.as_str(), 400),
        ("/repos/../other", to.as_str(), 403),
    ] {
        let answer = say(path, host).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {host}: {answer}");
    }
    // Two at once, the second for elsewhere.
    let two = format!("GET /repos/b HTTP/1.1\r\nhost: {to}\r\n\r\n{}", request("/repos/c", "evil.test"));
    let answer = outlet.say_inside(&to, "api.test", &own, &two).await.unwrap();
    assert!(answer.contains("/repos/b") && answer.contains("HTTP/1.1 421"), "{answer}");
    assert!(outlet.say_inside(&to, "evil.test", &own, &request("/repos/a", &to)).await.is_err());
    assert!(outlet.say_inside(&to, "api.test", &upstream.authority, &request("/repos/a", &to)).await.is_err());
    let seen = upstream.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].contains("authorization: Bearer ghp_0123456789\r\n") && !seen[0].contains("mine"), "{seen:?}");
    assert!(outlet.verdicts().contains(&(format!("GET https://{to}/other"), false)), "{:?}", outlet.verdicts());
}

#[tokio::test]
async fn an_opened_tunnel_verifies_the_other_side() {
    let upstream = Upstream::start().await;
    let (to, own, stranger) = (upstream.at(), Arc::new(Authority::new().unwrap()), Authority::new().unwrap());
    let allowed = ["GET https://".to_owned()];
    let door = Door {
        requests: allowed.to_vec(),
        tunnels: vec![to.clone()],
        private: vec![to.parse().unwrap()],
        secrets: vec![],
        opened: Some(Arc::clone(&own)),
        seen: Arc::default(),
        changes: unchanging(),
    };
    let outlet = Outlet::of(faking(&[&["127.0.0.1"]]).trusting(stranger.own()), door);
    let get = format!("GET / HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n");
    let answer = outlet.say_inside(&to, "api.test", &own, &get).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(upstream.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_written_to_be_read_in_two_ways_reaches_nobody() {
    let server = Server::start(|_| ok("x")).await;
    let base = server.url("");
    let allowed = [format!("GET {base}/ok"), format!("POST {base}/ok")];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    for bytes in [
        // Two lengths, paths that climb, a name before the host, a folded line.
        format!("POST {base}/ok HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nbody"),
        format!("GET {base}/ok/../closed HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
        format!("GET {base}/ok%2f..%2fclosed HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
        format!("GET http://u:p@127.0.0.1:{}/ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", server.port),
        format!("GET {base}/ok HTTP/1.1\r\nhost: x\r\nx: a\nb: c\r\n d\r\nconnection: close\r\n\r\n"),
        "GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "TRACE http://x/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1} a TLS greeting\r\n\r\n".to_owned(),
    ] {
        let answer = outlet.say(&bytes).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{bytes:?}: {answer}");
    }
    let chunked = format!(
        "POST {base}/ok HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    );
    assert!(outlet.say(&chunked).await.starts_with("HTTP/1.1 200"));
    let seen = server.seen();
    assert!(seen.len() == 1 && seen[0].contains("content-length: 4") && seen[0].ends_with("\r\n\r\nbody"), "{seen:?}");
    // What stands behind a body is a request of its own, decided like any other.
    let hidden = format!(
        "POST {base}/ok HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbodyGET {base}/closed HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    );
    assert!(outlet.say(&hidden).await.starts_with("HTTP/1.1 200"));
    let seen = server.seen();
    assert!(seen.len() == 2 && !seen[1].contains("/closed"), "{seen:?}");
    // Of two ways to say how long a body is, the other side gets one (RFC 9112, 6.3).
    let both = format!(
        "POST {base}/ok HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n"
    );
    outlet.say(&both).await;
    let last = server.seen().pop().unwrap();
    assert!(last.contains("content-length: 2") && !last.contains("transfer-encoding"), "{last}");
    assert!(last.ends_with("\r\n\r\nab") && !last.contains("content-length: 4"), "{last}");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(|_| ok("x")).await;
    let outlet = Outlet::start(Driver::new(Options::default()), &["GET http".into()], &[], vec![server.private()]);
    let long = format!("GET {} HTTP/1.1\r\nhost: x\r\nx-a: {}\r\n\r\n", server.url("/"), "a".repeat(1 << 20));
    let many = format!("GET {} HTTP/1.1\r\nhost: x\r\n{}\r\n", server.url("/"), "x-a: 1\r\n".repeat(1000));
    for head in [long, many] {
        let answer = outlet.say(&head).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert!(server.seen().is_empty() && outlet.verdicts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_trickles_is_left() {
    let outlet = Outlet::start(faking(&[&["93.184.216.34"]]), &["POST http".into()], &[], vec![]);
    // The clock goes on by itself where nothing else can happen.
    for head in ["GET http://ok.test/ HTTP/1.1\r\nhost:", ""] {
        assert!(!outlet.say(head).await.starts_with("HTTP/1.1 2"));
    }
    let answer = outlet.say("POST http://ok.test/ HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nbo").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// The bytes with which TLS to an address in numbers begins.
fn greeting() -> Vec<u8> {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut greeting = Vec::new();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut greeting).unwrap();
    greeting
}

#[tokio::test]
async fn a_tunnel_keeps_the_place_of_its_connection() {
    // Nobody accepts there; the system connects.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = silent.local_addr().unwrap().to_string();
    let private = vec![to.parse().unwrap()];
    let outlet = Outlet::start(Driver::new(Options::default()), &[], std::slice::from_ref(&to), private);
    let ask = async || {
        let mut stream = TcpStream::connect(("127.0.0.1", outlet.port)).await.unwrap();
        stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        stream
    };
    let mut tunnels = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let (mut stream, mut head) = (ask().await, [0; 12]);
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        // Without a greeting it would not last.
        stream.write_all(&greeting()).await.unwrap();
        tunnels.push(stream);
    }
    let (mut one_more, mut head) = (ask().await, [0; 12]);
    let early = tokio::time::timeout(Duration::from_millis(300), one_more.read_exact(&mut head)).await;
    assert!(early.is_err(), "more tunnels than connections: {:?}", String::from_utf8_lossy(&head));
    tunnels.pop();
    one_more.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
}

#[tokio::test]
async fn stopping_closes_every_connection_and_the_listener() {
    let server = Server::start(|_| Vec::new()).await;
    let to = format!("127.0.0.1:{}", server.port);
    let outlet = Outlet::start(Driver::new(Options::default()), &[], std::slice::from_ref(&to), vec![server.private()]);
    let mut stream = TcpStream::connect(("127.0.0.1", outlet.port)).await.unwrap();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    outlet.stop.cancel();
    outlet.task.await.unwrap().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(TcpStream::connect(("127.0.0.1", outlet.port)).await.is_err());
}

#[tokio::test]
async fn what_is_open_is_closed_when_the_rules_forbid_it() {
    let server = Server::start(|_| Vec::new()).await;
    let to = format!("127.0.0.1:{}", server.port);
    let changes = unchanging();
    let door = Door {
        requests: vec![],
        tunnels: vec![to.clone()],
        private: vec![server.private()],
        secrets: vec![],
        opened: None,
        seen: Arc::default(),
        changes: Arc::clone(&changes),
    };
    let outlet = Outlet::of(Driver::new(Options::default()), door);
    let mut stream = TcpStream::connect(("127.0.0.1", outlet.port)).await.unwrap();
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    changes.send_replace(aos_policy::Policy::parse(aos_policy::Policy::default_text()).unwrap());
    // It would wait for a greeting for long.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the tunnel is open still");
}

#[tokio::test]
async fn a_command_that_only_asks_is_slowed() {
    let outlet = Outlet::start(Driver::new(Options::default()), &[], &[], Vec::new());
    // A connection takes a turn, and its request another.
    let (programs, each) = (8, (AT_ONCE as usize / 2 + 200) / 8);
    let began = std::time::Instant::now();
    let asking = (0..programs).map(|_| async {
        for _ in 0..each {
            let answer = outlet.get("http://x/").await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
        }
    });
    futures_util::future::join_all(asking).await;
    assert!(began.elapsed() >= EACH * 390, "{:?}", began.elapsed());
}

/// Each piece was kept as it had come, at the cost of a far larger one.
#[tokio::test]
async fn a_body_in_pieces_of_a_byte_arrives_whole_and_who_has_said_all_hears_the_answer() {
    let server = Server::start(|_| ok("done")).await;
    let allowed = [format!("POST {}", server.url("/in"))];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    let head = format!("POST {} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", server.url("/in"));
    let mut stream = TcpStream::connect(("127.0.0.1", outlet.port)).await.unwrap();
    stream.write_all(format!("{head}{}0\r\n\r\n", "1\r\nx\r\n".repeat(20_000)).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert!(server.seen()[0].ends_with(&"x".repeat(20_000)));
    let large = format!("POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n", server.url("/in"));
    assert!(outlet.say(&large).await.starts_with("HTTP/1.1 413"));
}

/// Names that nobody can be asked for, and how many were asked at once.
#[derive(Default)]
struct Silent {
    now: std::sync::atomic::AtomicUsize,
}

impl Resolve for Silent {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        self.now.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

/// Hanging up ends no lookup, and each takes a thread of those that everybody needs.
#[tokio::test]
async fn a_command_has_few_names_looked_up_at_once_however_often_it_asks() {
    let silent = Arc::new(Silent::default());
    let driver = Driver::with_resolver(Options::default(), Arc::clone(&silent) as Arc<dyn Resolve>);
    let outlet = Outlet::start(driver, &["GET http://".to_owned()], &[], Vec::new());
    for nth in 0..40 {
        let mut stream = TcpStream::connect(("127.0.0.1", outlet.port)).await.unwrap();
        stream.write_all(format!("GET http://n{nth}.example/ HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    }
    let now = || silent.now.load(std::sync::atomic::Ordering::SeqCst);
    while now() < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(now(), 8);
}

/// A pattern let a command have one made for each name that it thought of, for as long as it ran.
#[test]
fn certificates_of_few_hosts_are_kept() {
    let authority = Authority::new().unwrap();
    let first = authority.serves("h0.example").unwrap();
    for nth in 1..300 {
        authority.serves(&format!("h{nth}.example")).unwrap();
    }
    assert!(Arc::ptr_eq(&first, &authority.serves("h0.example").unwrap()));
    let late = authority.serves("h299.example").unwrap();
    assert!(!Arc::ptr_eq(&late, &authority.serves("h299.example").unwrap()));
}
