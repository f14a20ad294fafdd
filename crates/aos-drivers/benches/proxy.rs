//! What a command's proxy adds to a request, each beside the same request without it, by turns: `cargo bench -p
//! aos-drivers --bench proxy`. As a test each is made a few times, and nothing is judged.
//!
//! Prints medians and 99th percentiles in microseconds, what the proxy adds to the median, and the ratio. Everything is on
//! loopback and answers at once; each request has a connection of its own and, where there is TLS, a whole handshake, as
//! a command's first request to a host has. The proxy makes a connection per request too, and two handshakes where it
//! opens TLS.
#![allow(clippy::expect_used, reason = "a measurement that cannot go on ends here")]

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_abi::CallError;
use aos_drivers::net::{Authority, Driver, Gate, HostPort, Options, Proxy, Resolve, Resolving, Secret, Seen, Tunnel};
use aos_policy::{Allowed, Obligations, Policy};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

/// The server's name, in its certificate and in the rules.
const HOST: &str = "localhost";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";

/// Lets everything through; opens TLS where it has an authority to do so.
struct Open {
    opener: Option<Arc<Authority>>,
    private: Vec<HostPort>,
    changes: watch::Sender<Policy>,
}

fn allowed() -> Allowed {
    Allowed { rule: "a rule".into(), generation: "1".into(), obligations: Obligations::default() }
}

impl Gate for Open {
    fn request(&self, _: &str, _: &str) -> Result<Allowed, CallError> {
        Ok(allowed())
    }
    fn tunnel(&self, _: &str, _: u16) -> Result<Tunnel, CallError> {
        Ok(self.opener.clone().map_or_else(|| Tunnel::Passed(allowed()), Tunnel::Opened))
    }
    fn names(&self, _: &str) -> bool {
        true
    }
    fn private(&self) -> &[HostPort] {
        &self.private
    }
    fn secrets(&self) -> Vec<Secret> {
        Vec::new()
    }
    fn changes(&self) -> watch::Receiver<Policy> {
        self.changes.subscribe()
    }
    fn saw(&self, _: Seen) {}
}

/// Every name is this machine.
struct Here;

impl Resolve for Here {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        Box::pin(std::future::ready(Ok::<_, io::Error>(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])))
    }
}

fn certificates() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../aos-models/tests/tls")
}

fn main() {
    // The driver trusts whom the system trusts, which is read from the environment once and for all.
    let authority = certificates().join("authority.pem");
    if std::env::var_os("SSL_CERT_FILE").is_none_or(|file| file != authority) {
        let again = std::process::Command::new(std::env::current_exe().expect("it runs"))
            .args(std::env::args_os().skip(1))
            .env("SSL_CERT_FILE", &authority)
            .status();
        std::process::exit(again.expect("it starts").code().unwrap_or(1));
    }
    let rounds = if std::env::args().any(|argument| argument == "--bench") { 1000 } else { 3 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(measure(rounds));
}

async fn measure(rounds: usize) {
    let (plain, secured) = (serve(None).await, serve(Some(acceptor())).await);
    let opener = Arc::new(Authority::new().expect("keys can be made"));
    let (passing, opening) = (proxy(None, &[plain, secured]).await, proxy(Some(Arc::clone(&opener)), &[secured]).await);
    let real = connector(&std::fs::read(certificates().join("authority.pem")).expect("it is there"));
    let own = connector(opener.pem().as_bytes());
    println!("microseconds a request, {rounds} each by turns");
    println!("{:<24} {:>8} {:>8} {:>9} {:>9} {:>8} {:>6}", "", "alone", "p99", "by proxy", "p99", "added", "ratio");
    for way in [Way::Plain, Way::Passed, Way::Opened] {
        let (mut alone, mut proxied) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        // The first ones pay for what is made once.
        for round in 0..rounds + 2 {
            let began = Instant::now();
            match way {
                Way::Plain => get(connect(plain).await, "/").await,
                Way::Passed | Way::Opened => get(shake(&real, connect(secured).await).await, "/").await,
            }
            let between = Instant::now();
            match way {
                Way::Plain => get(connect(passing).await, &format!("http://{HOST}:{plain}/")).await,
                Way::Passed => get(shake(&real, tunnel(passing, secured).await).await, "/").await,
                Way::Opened => {
                    let stream = shake(&own, tunnel(opening, secured).await).await;
                    ask(stream, "/", &format!("{HOST}:{secured}")).await;
                }
            }
            if round >= 2 {
                alone.push(between - began);
                proxied.push(between.elapsed());
            }
        }
        tell(way.name(), alone, proxied);
    }
}

fn tell(name: &str, mut alone: Vec<Duration>, mut proxied: Vec<Duration>) {
    alone.sort_unstable();
    proxied.sort_unstable();
    let at = |took: &[Duration], percent: usize| took[took.len() * percent / 100].as_micros();
    let (a, p) = (at(&alone, 50), at(&proxied, 50));
    println!(
        "{name:<24} {a:>8} {:>8} {p:>9} {:>9} {:>8} {:>6.2}",
        at(&alone, 99),
        at(&proxied, 99),
        p.cast_signed() - a.cast_signed(),
        p as f64 / a as f64
    );
}

/// How a request goes.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Passed,
    Opened,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Plain => "http",
            Way::Passed => "https, passed on",
            Way::Opened => "https, opened",
        }
    }
}

/// A server that answers each connection once; its port.
async fn serve(acceptor: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true).expect("it is connected");
                match acceptor {
                    None => answer(stream).await,
                    // Whoever breaks off is measured as such on the other side.
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => answer(stream).await,
                        Err(_) => Ok(()),
                    },
                }
            });
        }
    });
    port
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let (mut head, mut piece) = (Vec::new(), [0; 2048]);
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..length]);
    }
    stream.write_all(ANSWER).await?;
    stream.flush().await?;
    stream.shutdown().await
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(certificates().join("server.pem")).expect("it is there");
    let key = PrivateKeyDer::from_pem_file(certificates().join("server.key")).expect("it is there");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions are known")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    TlsAcceptor::from(Arc::new(config.expect("they belong together")))
}

/// A client that trusts these authorities, and remembers no session.
fn connector(authorities: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        roots.add(authority.expect("it is readable")).expect("it is a certificate");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions are known")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

/// A proxy as a command has one, on a port of this machine.
async fn proxy(opener: Option<Arc<Authority>>, to: &[u16]) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let private = to.iter().map(|port| format!("{HOST}:{port}").parse().expect("it is a place")).collect();
    let gate = Open { opener, private, changes: watch::Sender::new(Policy::deny_all()) };
    let driver = Driver::with_resolver(Options::default(), Arc::new(Here));
    tokio::spawn(Proxy::new(Arc::new(driver), gate, CancellationToken::new()).serve(listener));
    port
}

async fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("somebody listens");
    stream.set_nodelay(true).expect("it is connected");
    stream
}

async fn shake(connector: &TlsConnector, stream: TcpStream) -> impl AsyncRead + AsyncWrite + Unpin {
    let name = ServerName::try_from(HOST).expect("it is a name");
    connector.connect(name, stream).await.expect("it is trusted")
}

/// Asks a proxy for a tunnel.
async fn tunnel(proxy: u16, to: u16) -> TcpStream {
    let mut stream = connect(proxy).await;
    let asked = format!("CONNECT {HOST}:{to} HTTP/1.1\r\nhost: {HOST}:{to}\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.expect("it listens");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("it answers"));
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

async fn get(stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) {
    ask(stream, path, HOST).await;
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, host: &str) {
    let asked = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.expect("it listens");
    // TLS may keep what is written for itself until then.
    stream.flush().await.expect("it listens");
    let mut text = Vec::new();
    // A server that closes without a farewell has answered all the same.
    let _ = stream.read_to_end(&mut text).await;
    assert!(text.starts_with(b"HTTP/1.1 200") && text.ends_with(b"hello"), "{}", String::from_utf8_lossy(&text));
}
