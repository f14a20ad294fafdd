//! Fetching a file from a server that misbehaves in every way known, over real sockets.
//!
//! Start at [`Server`]: each connection is one request, answered by the next of its lines; the last answers all others.
//! Nothing here is fetched from the internet.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_models::pull::{Fault, Order, Patience, Pulled, Vouched, pull};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// What the server does with one request.
#[derive(Clone)]
enum Do {
    /// Serves the file, from where it is asked to, with this name for the bytes; hangs up after so many of them.
    Serve { etag: Option<&'static str>, cut: Option<usize> },
    /// Serves all of it whatever was asked for.
    Whole { cut: Option<usize> },
    /// These very bytes of HTTP.
    Say(String),
    /// Begins, and sends no more.
    Stall,
    /// Nothing, and hangs up.
    HangUp,
}

/// A server and what it was asked.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(file: Vec<u8>, lines: Vec<Do>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            for nth in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
                heard.lock().unwrap().push(request.clone());
                let answer = answered(&lines[nth.min(lines.len() - 1)], &file, &request);
                // Whoever asked may have hung up first.
                let _ = stream.write_all(&answer).await;
                if matches!(lines[nth.min(lines.len() - 1)], Do::Stall) {
                    tokio::spawn(async move {
                        let _ = stream.read_u8().await;
                    });
                }
            }
        });
        Server { address, asked }
    }

    fn url(&self) -> String {
        format!("{}/m.gguf", self.address)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answered(what: &Do, file: &[u8], request: &str) -> Vec<u8> {
    let wish = |name: &str| {
        let line = request.lines().find(|line| line.starts_with(name));
        line.map(|line| line[name.len() + 1..].trim().to_owned())
    };
    let head = |status: &str, more: &str, len: usize| {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len}\r\n{more}\r\n").into_bytes()
    };
    let (etag, cut, ranged) = match what {
        Do::Serve { etag, cut } => (*etag, *cut, true),
        Do::Whole { cut } => (None, *cut, false),
        Do::Say(text) => return text.clone().into_bytes(),
        Do::Stall => (Some("\"one\""), Some(10), true),
        Do::HangUp => return Vec::new(),
    };
    let etag_line = etag.map_or(String::new(), |etag| format!("etag: {etag}\r\n"));
    let from = wish("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let still = wish("if-range").is_none_or(|name| Some(name.as_str()) == etag);
    let (head, body) = match from.filter(|_| ranged && still) {
        Some(from) if from >= file.len() => {
            (head("416 Range Not Satisfiable", &format!("content-range: bytes */{}\r\n", file.len()), 0), &file[..0])
        }
        Some(from) => {
            let range = format!("content-range: bytes {from}-{}/{}\r\n{etag_line}", file.len() - 1, file.len());
            (head("206 Partial Content", &range, file.len() - from), &file[from..])
        }
        None => (head("200 OK", &etag_line, file.len()), file),
    };
    [head, body[..cut.unwrap_or(body.len()).min(body.len())].to_vec()].concat()
}

fn file(seed: u8) -> Vec<u8> {
    let bytes = (0..300_000u32).map(|nth| (nth.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed);
    b"GGUF".iter().copied().chain(bytes).collect()
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(5), stall: Duration::from_millis(400), tries: 3, wait: Duration::ZERO };

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn to(&self) -> PathBuf {
        self.0.path().join("m.gguf")
    }

    /// The names of what is there.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

async fn fetch(url: &str, to: &Path, sha256: Option<&str>) -> Result<Pulled, Fault> {
    pull(Order { url, to, sha256 }, PATIENCE, &mut |_, _| ()).await
}

const SERVE: Do = Do::Serve { etag: Some("\"one\""), cut: None };

#[tokio::test]
async fn what_is_cut_in_the_middle_goes_on_where_it_ended() {
    let (place, bytes) = (Place::new(), file(0));
    let cut = |at| Do::Serve { etag: Some("\"one\""), cut: Some(at) };
    let server = Server::start(bytes.clone(), vec![cut(100_000), Do::HangUp, Do::Stall, cut(7), SERVE]).await;
    let mut told = Vec::new();
    let order = Order { url: &server.url(), to: &place.to(), sha256: None };
    let pulled = pull(order, PATIENCE, &mut |have, total| told.push((have, total))).await.unwrap();
    let all = bytes.len() as u64;
    let want = Pulled { bytes: all, sha256: hash(&bytes), vouched: Vouched::Nobody, kept: 0 };
    assert_eq!(pulled, want);
    assert_eq!(std::fs::read(place.to()).unwrap(), bytes);
    assert_eq!(place.names(), ["m.gguf", "m.gguf.sha256"]);
    assert!(told.is_sorted() && told.last() == Some(&(all, Some(all))), "{told:?}");
    let asked = server.asked();
    assert!(!asked[0].contains("range:") && asked[1].contains("range: bytes=100000-"), "{asked:#?}");
    assert!(asked[4].contains("range: bytes=100017-") && asked[4].contains("if-range: \"one\""), "{asked:#?}");
    let again = fetch(&server.url(), &place.to(), Some(&hash(&bytes))).await.unwrap();
    assert_eq!((again.vouched, server.asked().len()), (Vouched::Record, asked.len()));
}

#[tokio::test]
async fn what_broke_off_for_good_goes_on_the_next_time() {
    let (place, bytes) = (Place::new(), file(0));
    let once = Do::Serve { etag: Some("\"one\""), cut: Some(5000) };
    let server = Server::start(bytes.clone(), vec![once, Do::HangUp, Do::HangUp, Do::HangUp, SERVE]).await;
    let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Broken { have: 5000, .. }), "{fault}");
    assert!(fault.hint().contains("goes on") && !place.to().exists());
    let pulled = fetch(&server.url(), &place.to(), None).await.unwrap();
    assert_eq!((pulled.kept, pulled.sha256), (5000, hash(&bytes)));

    // From another address nothing of it is taken.
    let place = Place::new();
    std::fs::write(place.to().with_extension("gguf.part"), "GGUFother").unwrap();
    std::fs::write(place.to().with_extension("gguf.part.from"), r#"{"url":"http://127.0.0.1:1/m.gguf"}"#).unwrap();
    assert_eq!(fetch(&server.url(), &place.to(), None).await.unwrap().sha256, hash(&bytes));
}

#[tokio::test]
async fn a_server_that_cannot_go_on_sends_all_again() {
    let (place, bytes) = (Place::new(), file(0));
    let cut = Do::Whole { cut: Some(9000) };
    let server = Server::start(bytes.clone(), vec![cut.clone(), cut.clone(), Do::Whole { cut: None }]).await;
    let pulled = fetch(&server.url(), &place.to(), Some(&hash(&bytes))).await.unwrap();
    assert_eq!((pulled.vouched, std::fs::read(place.to()).unwrap()), (Vouched::Order, bytes.clone()));
    assert!(server.asked()[2].contains("range: bytes=9000-"));
    // Nobody says what it is: two halves could be of two files.
    let place = Place::new();
    let server = Server::start(bytes, vec![cut, Do::Serve { etag: None, cut: None }]).await;
    fetch(&server.url(), &place.to(), None).await.unwrap();
    assert!(!server.asked()[1].contains("range:"));
    // One that never sends more is given up.
    let server = Server::start(file(0), vec![Do::Whole { cut: Some(9000) }]).await;
    let fault = fetch(&server.url(), &Place::new().to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Broken { .. }) && server.asked().len() == 4, "{fault}");
}

#[tokio::test]
async fn a_file_that_changes_meanwhile_is_never_mixed() {
    let (place, bytes) = (Place::new(), file(1));
    let before = Do::Say(format!(
        "HTTP/1.1 200 OK\r\netag: \"old\"\r\ncontent-length: 300004\r\n\r\n{}",
        "GGUF of another file, and then no more"
    ));
    let server = Server::start(bytes.clone(), vec![before.clone(), SERVE]).await;
    assert_eq!(fetch(&server.url(), &place.to(), None).await.unwrap().sha256, hash(&bytes));
    assert!(server.asked()[1].contains("if-range: \"old\""));
    // A part that does not belong to it, and a checksum that tells: all of it is fetched again.
    let place = Place::new();
    let server = Server::start(bytes.clone(), vec![before, Do::HangUp, Do::HangUp, Do::HangUp, SERVE]).await;
    let sha256 = hash(&bytes);
    fetch(&server.url(), &place.to(), Some(&sha256)).await.unwrap_err();
    let pulled = fetch(&server.url(), &place.to(), Some(&sha256)).await.unwrap();
    assert_eq!((pulled.sha256, pulled.kept), (sha256, 0));
}

#[tokio::test]
async fn a_wrong_checksum_is_no_file() {
    let (place, bytes) = (Place::new(), file(0));
    let server = Server::start(bytes.clone(), vec![SERVE]).await;
    let wrong = hash(b"something else");
    let fault = fetch(&server.url(), &place.to(), Some(&wrong)).await.unwrap_err();
    assert_eq!(fault, Fault::Checksum { expected: wrong.clone(), got: hash(&bytes) });
    assert_eq!(place.names(), Vec::<String>::new(), "nothing of it stays");
    // The same where the server itself says what it should be, on the way there.
    let to =
        format!("HTTP/1.1 302 Found\r\nlocation: /there\r\nx-linked-etag: \"{wrong}\"\r\ncontent-length: 0\r\n\r\n");
    let server = Server::start(bytes.clone(), vec![Do::Say(to), SERVE]).await;
    let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Checksum { .. }), "{fault}");
    let to = format!(
        "HTTP/1.1 302 Found\r\nlocation: /there\r\nx-linked-etag: \"{}\"\r\ncontent-length: 0\r\n\r\n",
        hash(&bytes)
    );
    let server = Server::start(bytes, vec![Do::Say(to), SERVE]).await;
    assert_eq!(fetch(&server.url(), &place.to(), None).await.unwrap().vouched, Vouched::Server);
}

#[tokio::test]
async fn what_is_no_model_is_not_kept() {
    let say = |status: &str, more: &str, body: &str| {
        Do::Say(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{more}\r\n{body}", body.len()))
    };
    let cases = [
        (say("404 Not Found", "", "no"), "has no such file", 1),
        (say("401 Unauthorized", "", "no"), "only to those who are let in", 1),
        (say("418 I'm a teapot", "", "no"), "the status 418", 1),
        (say("503 Service Unavailable", "", "no"), "broke off", 3),
        (say("200 OK", "content-type: text/html; charset=utf-8\r\n", "<!doctype html>"), "it is a web page", 1),
        (say("200 OK", "", "<!doctype html>"), "it does not begin as one", 1),
        (say("200 OK", "", "GG"), "it is empty", 1),
        (say("302 Found", "location: ftp://127.0.0.1/m.gguf\r\n", ""), "not protected", 1),
        (say("302 Found", "location: /m.gguf\r\n", ""), "more than 5 times", 6),
        (say("302 Found", "", ""), "to nowhere", 1),
        (say("200 OK", "content-length: 99\r\n", "GGUF"), "broke off", 3),
    ];
    for (line, said, asked) in cases {
        let (place, server) = (Place::new(), Server::start(file(0), vec![line]).await);
        let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
        assert!(fault.to_string().contains(said), "{said}: {fault}");
        assert!(!place.to().exists() && !fault.hint().is_empty());
        assert_eq!(server.asked().len(), asked, "{said}");
    }
    for (url, said) in [
        ("nonsense", "no address"),
        ("ftp://127.0.0.1/m.gguf", "no address"),
        ("https://me:word@127.0.0.1/m.gguf", "no address"),
        ("http://models.example/m.gguf", "unprotected"),
    ] {
        let fault = fetch(url, &Place::new().to(), None).await.unwrap_err();
        assert!(fault.to_string().contains(said), "{url}: {fault}");
    }
}

#[tokio::test]
async fn a_file_begins_as_its_name_says() {
    let header = b"\x10\0\0\0\0\0\0\0{\"a\":1}";
    let files: [(&str, &[u8]); 2] = [("m.safetensors", header), ("m.json", b"{\"a\":1}")];
    for (name, bytes) in files {
        let place = Place::new();
        let to = place.to().with_file_name(name);
        // The first piece ends before what tells.
        let cut = Do::Serve { etag: Some("\"one\""), cut: Some(1) };
        let server = Server::start(bytes.to_vec(), vec![cut, SERVE]).await;
        fetch(&server.url(), &to, None).await.unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), bytes);
        for (other, words) in [(&b"<html>, and more of it"[..], "does not begin as one"), (b"", "is empty")] {
            let to = place.to().with_file_name(format!("other-{name}"));
            let server = Server::start(other.to_vec(), vec![SERVE]).await;
            let fault = fetch(&server.url(), &to, None).await.unwrap_err();
            assert!(fault.to_string().contains(words) && !to.exists(), "{name}: {fault}");
        }
    }
}

#[tokio::test]
async fn what_does_not_fit_is_not_begun_and_what_is_there_is_not_touched() {
    let huge = Do::Say(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\nGGUF", 1u64 << 60));
    let (place, server) = (Place::new(), Server::start(file(0), vec![huge]).await);
    let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Space { .. }), "{fault}");
    std::fs::write(place.to(), "mine").unwrap();
    assert_eq!(fetch(&server.url(), &place.to(), None).await.unwrap_err(), Fault::Taken(place.to()));
    assert_eq!(std::fs::read_to_string(place.to()).unwrap(), "mine");
}

#[tokio::test]
async fn what_sends_more_than_it_said_or_changes_again_and_again_is_given_up() {
    let begin = Do::Serve { etag: Some("\"one\""), cut: Some(1000) };
    let long = format!(
        "HTTP/1.1 206 Partial Content\r\netag: \"one\"\r\ncontent-range: bytes 1000-300003/300004\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n",
        400_000,
        "x".repeat(400_000)
    );
    let (place, server) = (Place::new(), Server::start(file(0), vec![begin, Do::Say(long)]).await);
    let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Other { why: "it is longer than was said", .. }), "{fault}");
    assert_eq!((place.names(), server.asked().len()), (vec![], 2));

    // Each time some of it comes, and then it is another file.
    let one = |etag| Do::Serve { etag: Some(etag), cut: Some(1000) };
    let names = ["\"1\"", "\"2\"", "\"3\"", "\"4\"", "\"5\"", "\"6\"", "\"7\"", "\"8\""];
    let other = Do::Say(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 7-300003/300004\r\ncontent-length: 0\r\n\r\n".to_owned(),
    );
    let lines = names.into_iter().flat_map(|name| [one(name), other.clone()]).chain([SERVE]).collect();
    let (place, server) = (Place::new(), Server::start(file(0), lines).await);
    let fault = fetch(&server.url(), &place.to(), None).await.unwrap_err();
    assert!(matches!(fault, Fault::Broken { .. }) && fault.to_string().contains("not what it was"), "{fault}");
    assert_eq!(server.asked().len(), 6, "three tries, each with its end");
}

#[tokio::test]
async fn one_at_a_time_fetches_a_file() {
    let place = Place::new();
    let server = Server::start(file(0), vec![Do::Stall, SERVE]).await;
    let (url, to) = (server.url(), place.to());
    let long = Patience { stall: Duration::from_secs(30), ..PATIENCE };
    let first = tokio::spawn({
        let (url, to) = (url.clone(), to.clone());
        async move { pull(Order { url: &url, to: &to, sha256: None }, long, &mut |_, _| ()).await }
    });
    while server.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fetch(&url, &to, None).await.unwrap_err(), Fault::Busy(to.clone()));
    first.abort();
    let _ = first.await;
    // What the first one was writing may hold the file a moment longer.
    while fetch(&url, &to, None).await.inspect_err(|fault| assert_eq!(*fault, Fault::Busy(to.clone()))).is_err() {
        tokio::task::yield_now().await;
    }
}
