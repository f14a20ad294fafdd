//! The proxy of commands, spoken to as a command speaks: plain bytes over a connection.

use aos_abi::Code;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::super::{Gate, Proxy, Seen};
use super::*;

/// Lets through what begins with one of these, and tunnels to these hosts.
struct Door {
    requests: Vec<String>,
    tunnels: Vec<String>,
    private: Vec<HostPort>,
    secrets: Vec<Secret>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Gate for Door {
    fn request(&self, method: &str, url: &str) -> Result<(), CallError> {
        let asked = format!("{method} {url}");
        let allowed = self.requests.iter().any(|prefix| asked.starts_with(prefix));
        allowed.then_some(()).ok_or_else(|| CallError::new(Code::Perm, "no rule").hint("a rule"))
    }
    fn tunnel(&self, host: &str, port: u16) -> Result<(), CallError> {
        let allowed = self.tunnels.contains(&format!("{host}:{port}"));
        allowed.then_some(()).ok_or_else(|| CallError::new(Code::Perm, "a rule names paths"))
    }
    fn private(&self) -> &[HostPort] {
        &self.private
    }
    fn secrets(&self) -> &[Secret] {
        &self.secrets
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
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, seen, stop) = (listener.local_addr().unwrap().port(), Arc::default(), CancellationToken::new());
        let door =
            Door { requests: requests.to_vec(), tunnels: tunnels.to_vec(), private, secrets, seen: Arc::clone(&seen) };
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
        seen.iter().map(|seen| (format!("{} {}", seen.method, seen.to), seen.refused.is_none())).collect()
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

#[tokio::test]
async fn a_tunnel_goes_where_everything_is_allowed_and_nowhere_else() {
    let server = Server::start(|_| b"through".to_vec()).await;
    let to = format!("127.0.0.1:{}", server.port);
    let outlet = Outlet::start(Driver::new(Options::default()), &[], std::slice::from_ref(&to), vec![server.private()]);
    let answer = outlet.say(&format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n\r\nhi\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("through"), "{answer}");
    assert_eq!(server.seen(), ["hi\r\n\r\n"]);
    let answer = outlet.say("CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("a rule names paths"), "{answer}");
    assert_eq!(outlet.verdicts(), [(format!("CONNECT {to}"), true), ("CONNECT 127.0.0.1:1".into(), false)]);
}

#[tokio::test]
async fn what_is_written_to_be_read_in_two_ways_reaches_nobody() {
    let server = Server::start(|_| ok("x")).await;
    let base = server.url("");
    let allowed = [format!("GET {base}/ok"), format!("POST {base}/ok")];
    let outlet = Outlet::start(Driver::new(Options::default()), &allowed, &[], vec![server.private()]);
    for bytes in [
        // Two lengths, a chunked body with a length, a second request hidden in a body's end, a path that climbs.
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
