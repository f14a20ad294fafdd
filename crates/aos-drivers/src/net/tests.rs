//! The network driver against servers on this machine.

mod daemon;
mod proxy;
mod secrets;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::{CallError, Code, Syscall};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Driver, HostPort, Options, Resolve, Resolving, Secret, Trip};

/// A server that writes down what it is asked and answers with the bytes it was given.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    _task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                let bytes = answer(&request);
                log.lock().unwrap().push(request);
                if bytes.is_empty() {
                    // Says nothing, and keeps the line.
                    std::mem::forget(stream);
                    continue;
                }
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
            }
        });
        Server { port, seen, _task: task }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn private(&self) -> HostPort {
        format!("127.0.0.1:{}", self.port).parse().unwrap()
    }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.unwrap();
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |l| l.parse().unwrap());
            if body.len() >= length {
                return text;
            }
        }
        // A TLS greeting has no end of lines to wait for.
        if count == 0 || bytes[0] == 0x16 {
            return text;
        }
    }
}

fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    with_headers("", body)
}

fn with_headers(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect_to(url: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// Answers from a list, one entry per question, and writes the questions down.
#[derive(Default)]
struct Fake {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Fake {
    fn with(answers: &[&[&str]]) -> Arc<Fake> {
        let parse = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Fake { answers: Mutex::new(answers.iter().map(parse).collect()), asked: Mutex::default() })
    }
}

impl Resolve for Fake {
    fn resolve<'r>(&'r self, host: &'r str) -> Resolving<'r> {
        self.asked.lock().unwrap().push(host.to_owned());
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("asked once too often")) })
    }
}

/// For a trip of which nobody is told where it is refused.
const UNTOLD: fn(&str, &'static str, &str) = |_, _, _| {};

async fn call(driver: &Driver, private: &[HostPort], name: &str, args: Value) -> Result<Value, CallError> {
    let decide = |_: &str| Ok(());
    driver
        .perform(
            Syscall::parse(name, &args.to_string()).unwrap(),
            Trip { decide: &decide, refused: &UNTOLD, private, secrets: &[] },
        )
        .await
}

async fn call_with(private: &[HostPort], secrets: &[Secret], name: &str, args: Value) -> Result<Value, CallError> {
    let decide = |_: &str| Ok(());
    let call = Syscall::parse(name, &args.to_string()).unwrap();
    Driver::new(Options::default()).perform(call, Trip { decide: &decide, refused: &UNTOLD, private, secrets }).await
}

async fn fetch(server: &Server, path: &str) -> Result<Value, CallError> {
    call(&Driver::new(Options::default()), &[server.private()], "NET_FETCH", json!({ "url": server.url(path) })).await
}

/// A driver whose names all resolve to what is given, in turn.
fn faking(answers: &[&[&str]]) -> Driver {
    Driver::with_resolver(Options::default(), Fake::with(answers))
}

#[tokio::test]
async fn an_answer_is_shown_whole_and_labelled() {
    let server = Server::start(|_| with_headers("X-A: 1\r\nx-a: 2\r\n", "grüezi")).await;
    let result = fetch(&server, "/path?q=1").await.unwrap();
    assert_eq!(
        result,
        json!({ "status": 200, "headers": { "x-a": "1, 2", "content-length": "7" }, "body": "grüezi",
            "truncated": false, "label": "untrusted.web" })
    );
    let seen = server.seen();
    assert!(seen[0].starts_with("GET /path?q=1 HTTP/1.1\r\n"), "{}", seen[0]);
    assert!(seen[0].contains("user-agent: aos/"), "{}", seen[0]);
}

#[tokio::test]
async fn bytes_that_are_no_text_come_as_base64() {
    let server = Server::start(|_| ok([0xff, 0x00])).await;
    let result = fetch(&server, "/").await.unwrap();
    assert_eq!((&result["body"], &result["encoding"]), (&json!("/wA="), &json!("base64")));
}

#[tokio::test]
async fn a_private_address_is_refused_in_every_spelling() {
    let driver = Driver::new(Options::default());
    for host in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "172.31.255.255",
        "100.64.0.1",
        "169.254.1.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd12::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2002:a00:1::1]",
        "[2001:db8::1]",
        "[2001:0:1::1]",
        "localhost",
        "printer.local",
        "intranet",
        "a.localhost",
        "localhost.",
    ] {
        let error = call(&driver, &[], "NET_FETCH", json!({ "url": format!("http://{host}/") })).await.unwrap_err();
        assert_eq!(error.code, Code::Perm, "{host}: {error}");
    }
    for host in [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "0x7f.1",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "%31%32%37.0.0.1",
    ] {
        let refused = call(&driver, &[], "NET_FETCH", json!({ "url": format!("http://{host}/") })).await;
        let error = refused.unwrap_err();
        assert!(matches!(error.code, Code::Perm | Code::Inval), "{host}: {error}");
    }
}

#[tokio::test]
async fn metadata_services_are_never_reached() {
    let urls = [
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
    ];
    let excepted: Vec<HostPort> = [
        "169.254.169.254:80",
        "metadata.google.internal:80",
        "[fd00:ec2::254]:80",
        "[::ffff:169.254.169.254]:80",
        "friend.test:80",
    ]
    .map(|text| text.parse().unwrap())
    .into();
    for url in urls {
        let error = call(&faking(&[]), &excepted, "NET_FETCH", json!({ "url": url })).await.unwrap_err();
        assert_eq!(error.code, Code::Perm, "{url}");
    }
    let driver = faking(&[&["169.254.169.254"]]);
    let error = call(&driver, &excepted, "NET_FETCH", json!({ "url": "http://friend.test/" })).await.unwrap_err();
    assert!(error.message.contains("never reached"), "{error}");
}

#[tokio::test]
async fn a_name_is_as_good_as_its_worst_address() {
    for addresses in [&["127.0.0.1"][..], &["93.184.216.34", "10.0.0.1"], &["::1"], &["::ffff:192.168.0.1"]] {
        let error =
            call(&faking(&[addresses]), &[], "NET_FETCH", json!({ "url": "http://a.test/" })).await.unwrap_err();
        assert_eq!(error.code, Code::Perm, "{addresses:?}: {error}");
        assert!(error.message.starts_with("`a.test:80` resolves to"), "{error}");
        assert!(error.hint.unwrap().contains("`private = [\"a.test:80\"]` below [net] of aos.toml"));
    }
    let error = call(&faking(&[&[]]), &[], "NET_FETCH", json!({ "url": "http://a.test/" })).await.unwrap_err();
    assert_eq!(error.code, Code::Io, "{error}");
}

/// The name is asked for once, and the connection goes to that answer: a second answer would lead elsewhere.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_held_to_its_first_answer() {
    let server = Server::start(|_| ok("here")).await;
    let fake = Fake::with(&[&["127.0.0.1"], &["127.0.0.99"]]);
    let driver = Driver::with_resolver(Options::default(), fake.clone());
    let private = [format!("pin.test:{}", server.port).parse().unwrap()];
    let url = format!("http://PIN.test:{}/", server.port);
    let result = call(&driver, &private, "NET_FETCH", json!({ "url": url })).await.unwrap();
    assert_eq!(result["body"], "here");
    assert_eq!(*fake.asked.lock().unwrap(), ["pin.test"]);
    assert!(server.seen()[0].contains(&format!("host: pin.test:{}\r\n", server.port)));
}

/// Rebinding between two hops: the second hop's name resolves anew, to this machine, and is refused.
#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let inner = Server::start(|_| ok("secret")).await;
    for (target, answers) in [
        (inner.url("/"), &[&["127.0.0.1"][..]][..]),
        (format!("http://a.test:{}/", inner.port), &[&["127.0.0.1"], &["127.0.0.1"]]),
        (format!("//localhost:{}/", inner.port), &[&["127.0.0.1"]]),
    ] {
        let outer = Server::start(move |_| redirect_to(&target)).await;
        let private = [format!("a.test:{}", outer.port).parse().unwrap()];
        let url = format!("http://a.test:{}/", outer.port);
        let error = call(&faking(answers), &private, "NET_FETCH", json!({ "url": url })).await.unwrap_err();
        assert_eq!(error.code, Code::Perm, "{error}");
        assert_eq!(outer.seen().len(), 1, "the first hop was made");
    }
    assert_eq!(inner.seen(), Vec::<String>::new(), "and the second was not");
}

#[tokio::test]
async fn every_redirect_is_decided_anew() {
    let last =
        Server::start(|request| if request.starts_with("GET /end") { ok("end") } else { redirect_to("/end#part") })
            .await;
    let target = last.url("/middle");
    let first = Server::start(move |_| redirect_to(&target)).await;
    let private = [first.private(), last.private()];
    let asked = Mutex::new(Vec::new());
    let decide = |url: &str| {
        asked.lock().unwrap().push(url.to_owned());
        Ok(())
    };
    let args = json!({ "url": first.url("/"), "headers": { "Authorization": "Bearer x", "X-Key": "k", "Accept": "text/plain" } });
    let fetch = || Syscall::parse("NET_FETCH", &args.to_string()).unwrap();
    let driver = Driver::new(Options::default());
    let result = driver
        .perform(fetch(), Trip { decide: &decide, refused: &UNTOLD, private: &private, secrets: &[] })
        .await
        .unwrap();
    assert_eq!((&result["body"], &result["url"]), (&json!("end"), &json!(last.url("/end"))));
    assert_eq!(*asked.lock().unwrap(), [last.url("/middle"), last.url("/end")]);
    assert!(first.seen()[0].contains("authorization: Bearer x\r\n"));
    for seen in last.seen() {
        let seen = seen.to_ascii_lowercase();
        assert!(
            !seen.contains("authorization") && !seen.contains("x-key"),
            "another origin sees no credentials: {seen}"
        );
        assert!(seen.contains("accept: text/plain\r\n"), "{seen}");
    }
    let deny = |url: &str| Err(CallError::new(Code::Perm, format!("no rule for {url}")).hint("ask"));
    let error = driver
        .perform(fetch(), Trip { decide: &deny, refused: &UNTOLD, private: &private, secrets: &[] })
        .await
        .unwrap_err();
    assert_eq!((error.code, error.hint.as_deref()), (Code::Perm, Some("ask")));
    assert_eq!(last.seen().len(), 2, "what was refused was not asked for");
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start(|_| redirect_to("/again")).await;
    let error = fetch(&server, "/").await.unwrap_err();
    assert!(error.message.contains("more than 5 redirects"), "{error}");
    assert_eq!(server.seen().len(), 6);
    let server = Server::start(|_| redirect_to("file:///etc/passwd")).await;
    assert_eq!(fetch(&server, "/").await.unwrap_err().code, Code::Inval);
}

#[tokio::test]
async fn what_is_sent_is_sent_once_and_follows_nothing() {
    let server = Server::start(|_| redirect_to("/other")).await;
    let args = json!({ "url": server.url("/"), "method": "POST", "body": "{\"a\":1}", "headers": { "content-type": "application/json" } });
    let driver = Driver::new(Options::default());
    let result = call(&driver, &[server.private()], "NET_SEND", args).await.unwrap();
    assert_eq!((&result["status"], &result["headers"]["location"]), (&json!(302), &json!("/other")));
    let seen = server.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].starts_with("POST / HTTP/1.1\r\n") && seen[0].ends_with("\r\n\r\n{\"a\":1}"), "{}", seen[0]);
    for method in ["GET", "post", "CONNECT", "POST / HTTP/1.1\r\nX: y"] {
        let args = json!({ "url": server.url("/"), "method": method });
        assert_eq!(
            call(&driver, &[server.private()], "NET_SEND", args).await.unwrap_err().code,
            Code::Inval,
            "{method}"
        );
    }
}

#[tokio::test]
async fn headers_that_frame_the_message_are_refused() {
    let server = Server::start(|_| ok("")).await;
    let driver = Driver::new(Options::default());
    for (name, value) in [
        ("Host", "evil"),
        ("Content-Length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Trailer", "x"),
        ("Proxy-Authorization", "x"),
        ("proxy-anything", "x"),
        ("Expect", "100-continue"),
        ("Keep-Alive", "1"),
        ("X", "a\r\nHost: evil"),
        ("X", "a\nb"),
        ("X", "a\0b"),
        ("X: y\r\nHost", "evil"),
        ("X Y", "z"),
        ("", "x"),
    ] {
        let args = json!({ "url": server.url("/"), "headers": { name: value } });
        let error = call(&driver, &[server.private()], "NET_FETCH", args).await.unwrap_err();
        assert_eq!(error.code, Code::Inval, "{name:?}: {value:?}");
    }
    let args = json!({ "url": server.url("/"), "headers": { "X-A": "1", "x-a": "2" } });
    assert_eq!(call(&driver, &[server.private()], "NET_FETCH", args).await.unwrap_err().code, Code::Inval);
    assert_eq!(server.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn headers_that_make_another_request_of_it_are_refused() {
    let server = Server::start(|_| ok("")).await;
    let driver = Driver::new(Options::default());
    for (name, value) in [
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-HTTP-Method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("X_HTTP_Method_Override", "DELETE"),
        ("X-Original-URL", "/admin"),
        ("X-Rewrite-URL", "/admin"),
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-Prefix", "/admin"),
        ("Forwarded", "host=evil"),
        ("X-Host", "evil"),
    ] {
        let fetch = json!({ "url": server.url("/"), "headers": { name: value } });
        let send = json!({ "url": server.url("/"), "method": "POST", "headers": { name: value } });
        for (of, args) in [("NET_FETCH", fetch), ("NET_SEND", send)] {
            let error = call(&driver, &[server.private()], of, args).await.unwrap_err();
            assert!(error.code == Code::Inval && error.message.contains("another request"), "{of} {name}: {error:?}");
        }
    }
    assert_eq!(server.seen(), Vec::<String>::new());
    let args = json!({ "url": server.url("/"), "headers": { "X-Requested-With": "1", "Origin": "https://a.example" } });
    call(&driver, &[server.private()], "NET_FETCH", args).await.unwrap();
}

#[tokio::test]
async fn urls_that_can_be_read_in_two_ways_are_refused() {
    let driver = faking(&[]);
    for url in [
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com",
        "http:\\\\127.0.0.1/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://[::1/",
        "http://",
        "gopher://example.com/",
        "http://example.com/\r\nX: y",
        "data:text/plain,x",
        "http://example.com:80:80/",
    ] {
        let error = call(&driver, &[], "NET_FETCH", json!({ "url": url })).await.unwrap_err();
        assert_eq!(error.code, Code::Inval, "{url}: {error}");
    }
}

#[tokio::test]
async fn an_oversized_body_is_cut() {
    let server = Server::start(|_| ok("日".repeat(1000))).await;
    let driver = Driver::new(Options { body_bytes_max: 100, ..Options::default() });
    let result = call(&driver, &[server.private()], "NET_FETCH", json!({ "url": server.url("/") })).await.unwrap();
    assert_eq!(
        (&result["body"], &result["truncated"]),
        (&json!("日".repeat(33)), &json!(true)),
        "cut between characters"
    );
    let exact = Driver::new(Options { body_bytes_max: 3000, ..Options::default() });
    let result = call(&exact, &[server.private()], "NET_FETCH", json!({ "url": server.url("/") })).await.unwrap();
    assert_eq!((result["body"].as_str().unwrap().len(), &result["truncated"]), (3000, &json!(false)));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_packed_body_is_counted_unpacked() {
    let packed = |bytes: &[u8]| with_headers("content-encoding: gzip\r\n", gzip(bytes));
    let server = Server::start(move |request| match request.split(' ').nth(1) {
        Some("/bomb") => packed(&vec![b'x'; 50 << 20]),
        Some("/broken") => with_headers("content-encoding: gzip\r\n", "no gzip at all"),
        Some("/torn") => with_headers("content-encoding: gzip\r\n", &gzip(b"hello hello hello")[..20]),
        _ => packed("hällo".as_bytes()),
    })
    .await;
    let result = fetch(&server, "/").await.unwrap();
    assert_eq!((&result["body"], &result["headers"]), (&json!("hällo"), &json!({})));
    assert!(server.seen()[0].contains("accept-encoding: gzip\r\n"));
    let result = fetch(&server, "/bomb").await.unwrap();
    assert_eq!((result["body"].as_str().unwrap().len(), &result["truncated"]), (5 << 20, &json!(true)));
    for path in ["/broken", "/torn"] {
        assert_eq!(fetch(&server, path).await.unwrap_err().code, Code::Io, "{path}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_or_trickles_is_left() {
    let silent = Server::start(|_| Vec::new()).await;
    let trickling = Server::start(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec()).await;
    let driver = Driver::new(Options { timeout: Duration::from_millis(100), ..Options::default() });
    let private = [silent.private(), trickling.private()];
    let error = call(&driver, &private, "NET_FETCH", json!({ "url": silent.url("/") })).await.unwrap_err();
    assert_eq!((error.code, error.hint), (Code::TimedOut, None));
    let args = json!({ "url": silent.url("/"), "method": "POST" });
    let error = call(&driver, &private, "NET_SEND", args).await.unwrap_err();
    assert_eq!(error.code, Code::TimedOut);
    assert!(error.hint.unwrap().contains("may have been carried out"));
    let error = call(&driver, &private, "NET_FETCH", json!({ "url": trickling.url("/") })).await.unwrap_err();
    assert_eq!(error.code, Code::Io, "half an answer is no answer: {error}");
}

#[tokio::test]
async fn nobody_there_is_said_and_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let private = [format!("127.0.0.1:{port}").parse().unwrap()];
    let args = json!({ "url": format!("http://127.0.0.1:{port}/?token=secret"), "method": "POST" });
    let error = call(&Driver::new(Options::default()), &private, "NET_SEND", args).await.unwrap_err();
    assert_eq!((error.code, error.hint), (Code::Io, None));
    assert!(error.message.contains("refused") && !error.message.contains("secret"), "{}", error.message);
}

/// The server speaks no TLS at all, which must not fall back to plain text.
#[tokio::test]
async fn https_does_not_fall_back() {
    let server = Server::start(|_| ok("plain")).await;
    let url = server.url("/").replace("http:", "https:");
    let error = call(&Driver::new(Options::default()), &[server.private()], "NET_FETCH", json!({ "url": url }))
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Io, "{error}");
    assert!(server.seen().iter().all(|seen| !seen.contains("GET")), "nothing left in plain text");
}

#[test]
fn exceptions_are_read_strictly() {
    assert!("127.0.0.1:8080".parse::<HostPort>().is_ok() && "[::1]:80".parse::<HostPort>().is_ok());
    for text in ["127.0.0.1", "a:0", "a:b", ":80", "*:80", "127.1:80", "a b:80"] {
        assert!(text.parse::<HostPort>().is_err(), "{text}");
    }
}

/// A person was asked about every command after a name that nobody has.
#[tokio::test]
async fn an_error_says_where_nothing_was_received() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Server::start(|_| redirect_to("http://127.0.0.1:1/")).await;
    let private = [server.private(), format!("127.0.0.1:{closed}").parse().unwrap()];
    let fetch = |url: String| json!({ "url": url });
    let nowhere = faking(&[&[]]);
    let plain = Driver::new(Options::default());
    let bad = json!({ "url": server.url("/"), "headers": { "Host": "x" } });
    let unheard = [
        (&nowhere, "NET_FETCH", fetch("http://gone.example/".into())),
        (&plain, "NET_FETCH", fetch("http://10.0.0.1/".into())),
        (&plain, "NET_FETCH", fetch(format!("http://127.0.0.1:{closed}/"))),
        (&plain, "NET_SEND", json!({ "url": format!("http://127.0.0.1:{closed}/"), "method": "POST" })),
        (&plain, "NET_FETCH", bad),
    ];
    for (driver, name, args) in unheard {
        let error = call(driver, &private, name, args.clone()).await.unwrap_err();
        assert!(error.is_unheard(), "{args}: {error:?}");
    }
    assert!(server.seen().is_empty());
    // Where it leads is what the server says.
    let error = call(&plain, &private, "NET_FETCH", fetch(server.url("/"))).await.unwrap_err();
    assert!(!error.is_unheard(), "{error:?}");
    // Who speaks no TLS may have said anything.
    let tls = call(&plain, &private, "NET_FETCH", fetch(server.url("/").replace("http:", "https:"))).await.unwrap_err();
    assert!(!tls.is_unheard(), "{tls:?}");
}

#[tokio::test]
async fn who_decides_is_told_of_an_address_that_only_the_driver_sees() {
    let told = Mutex::new(Vec::new());
    let refused = |url: &str, floor: &'static str, why: &str| {
        told.lock().unwrap().push((url.to_owned(), floor, why.contains("10.0.0.1")));
    };
    let decide = |_: &str| Ok(());
    let trip = || Trip { decide: &decide, refused: &refused, private: &[], secrets: &[] };
    let call = |url: &str| Syscall::parse("NET_FETCH", &json!({ "url": url }).to_string()).unwrap();
    let own = super::Own::new("127.0.0.1:7".parse().unwrap());
    let driver = faking(&[&["10.0.0.1"], &["127.0.0.1"]]).away_from(own);
    for url in ["http://a.example/", "http://b.example:7/", "nonsense"] {
        driver.perform(call(url), trip()).await.unwrap_err();
    }
    let private = "private addresses are reached only where a rule says so";
    let daemon = "the daemon's own address is closed to agents";
    let expected = [("http://a.example/", private, true), ("http://b.example:7/", daemon, false)];
    assert_eq!(*told.lock().unwrap(), expected.map(|(url, floor, named)| (url.to_owned(), floor, named)));
}
