//! Tunnels: what a command asks `CONNECT` for.
//!
//! Start at [`Proxy::connect`]. Where everything on a host is allowed, TLS is passed on as it is, once the name inside is
//! the name that was asked for; where rules name methods and paths, or a secret is to be put in, it is opened by an
//! authority of the command's own and each request in it is decided like any other. What always holds: nothing but TLS
//! goes through, and a tunnel ends with its command, or when the rules would not make it any more.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::authority::Authority;
use super::destination::reach;
use super::proxy::{Answer, Gate, HEAD_BYTES_MAX, HEAD_WITHIN, Proxy, Seen, said, words};

/// Most bytes of a TLS greeting: a few certificates' worth of extensions.
const GREETING_MAX: usize = 64 << 10;

/// What becomes of a tunnel.
pub enum Tunnel {
    /// It is passed on to the host whose name it carries.
    Passed,
    /// It is opened, and each request in it is decided.
    Opened(Arc<Authority>),
}

/// Where a tunnel leads.
#[derive(Clone)]
struct End {
    /// Without brackets.
    host: String,
    port: u16,
    /// As it was asked for.
    shown: String,
}

impl<G: Gate> Proxy<G> {
    /// Answers `CONNECT`.
    pub(super) async fn connect(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let shown = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let authority = request.uri().authority().and_then(|to| Some((to.host().to_owned(), to.port_u16()?)));
        let Some((host, port)) = authority.filter(|_| !shown.contains('@')) else {
            return self.closed(&shown, "CONNECT takes HOST:PORT");
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tunnel = match self.gate.tunnel(&bare, port) {
            Ok(tunnel) => tunnel,
            Err(error) => return self.closed(&shown, &words(&error)),
        };
        let end = End { host: bare, port, shown };
        let proxy = Arc::clone(&self);
        match tunnel {
            Tunnel::Opened(authority) => self.track(end.clone(), false, async move {
                if let Ok(inside) = hyper::upgrade::on(request).await {
                    proxy.open(TokioIo::new(inside), end, authority).await;
                }
            }),
            Tunnel::Passed => {
                let url = format!("https://{host}:{port}/");
                let destination = match reach(&url, self.gate.private(), self.driver.resolver()).await {
                    Ok(destination) => destination,
                    Err(error) => return self.closed(&end.shown, &words(&error.into())),
                };
                let addresses = destination.addresses();
                let connected = tokio::time::timeout(HEAD_WITHIN, TcpStream::connect(&addresses[..])).await;
                let Ok(Ok(outside)) = connected else {
                    return said(StatusCode::BAD_GATEWAY, "the other side cannot be reached");
                };
                self.track(end.clone(), true, async move {
                    if let Ok(inside) = hyper::upgrade::on(request).await {
                        proxy.pass(TokioIo::new(inside), outside, end).await;
                    }
                });
            }
        }
        Response::new(BodyExt::boxed_unsync(Full::default().map_err(|never| match never {})))
    }

    /// Runs a tunnel until it ends, at the latest with the command or when the rules would not make it so any more.
    fn track(self: &Arc<Self>, end: End, passed: bool, tunnel: impl Future<Output = ()> + Send + 'static) {
        let proxy = Arc::clone(self);
        self.tunnels.spawn(async move {
            let same = |tunnel: Tunnel| matches!(tunnel, Tunnel::Passed) == passed;
            tokio::select! {
                () = proxy.stop.cancelled() => {}
                () = proxy.withdrawn(|gate| gate.tunnel(&end.host, end.port).is_ok_and(same)) => {}
                () = tunnel => {}
            }
        });
    }

    fn refused(&self, to: &str, why: &str) {
        self.gate.saw(Seen { method: "CONNECT".into(), to: to.to_owned(), refused: Some(why.to_owned()) });
    }

    fn closed(&self, to: &str, why: &str) -> Answer {
        self.refused(to, why);
        said(StatusCode::FORBIDDEN, why)
    }

    /// Hands on bytes, once the greeting names the host.
    async fn pass(&self, inside: TokioIo<hyper::upgrade::Upgraded>, outside: TcpStream, end: End) {
        let (mut in_read, mut in_write) = tokio::io::split(inside);
        let (mut out_read, mut out_write) = outside.into_split();
        let greeting = match tokio::time::timeout(HEAD_WITHIN, greeting(&mut in_read)).await {
            Ok(Ok((greeting, name))) if names(name.as_deref(), &end.host) => greeting,
            Ok(Ok((_, name))) => {
                let name = name.unwrap_or_else(|| "no host".to_owned());
                return self.refused(&end.shown, &format!("the TLS inside is for {name}"));
            }
            Ok(Err(_)) | Err(_) => return self.refused(&end.shown, "only TLS is passed on"),
        };
        self.gate.saw(Seen { method: "CONNECT".into(), to: end.shown, refused: None });
        if !self.spend(greeting.len()) || out_write.write_all(&greeting).await.is_err() {
            return;
        }
        tokio::select! {
            _ = self.pump(&mut in_read, &mut out_write) => {}
            _ = self.pump(&mut out_read, &mut in_write) => {}
        }
    }

    async fn pump(
        &self,
        from: &mut (impl AsyncReadExt + Unpin),
        to: &mut (impl AsyncWriteExt + Unpin),
    ) -> io::Result<()> {
        let mut piece = vec![0; 16 << 10];
        loop {
            let length = from.read(&mut piece).await?;
            if length == 0 || !self.spend(length) {
                return to.shutdown().await;
            }
            to.write_all(&piece[..length]).await?;
        }
    }

    /// Ends TLS here and serves the requests in it.
    async fn open(self: Arc<Self>, inside: TokioIo<hyper::upgrade::Upgraded>, end: End, authority: Arc<Authority>) {
        let shake = async {
            let greeted =
                LazyConfigAcceptor::new(Acceptor::default(), inside).await.map_err(|error| error.to_string())?;
            let name = greeted.client_hello().server_name().map(str::to_owned);
            if !names(name.as_deref(), &end.host) {
                return Err(format!("the TLS inside is for {}", name.as_deref().unwrap_or("no host")));
            }
            greeted.into_stream(authority.serves(&end.host)?).await.map_err(|error| error.to_string())
        };
        let stream = match tokio::time::timeout(HEAD_WITHIN, shake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(why)) => {
                let hint = "the certificate to trust is where SSL_CERT_FILE says";
                return self.refused(&end.shown, &format!("the TLS could not be opened: {why} ({hint})"));
            }
            Err(_) => return self.refused(&end.shown, "no TLS greeting came"),
        };
        let service = service_fn(move |request| {
            let (proxy, end) = (Arc::clone(&self), end.clone());
            async move { Ok::<_, Infallible>(proxy.inside(request, &end).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX);
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    /// One request of an opened tunnel: for the tunnel's host, and no other.
    async fn inside(self: Arc<Self>, request: Request<Incoming>, end: &End) -> Answer {
        let host = if end.host.contains(':') { format!("[{}]", end.host) } else { end.host.clone() };
        let full = format!("{host}:{}", end.port);
        let mut named = request.headers().get_all(HOST).iter();
        let told = named.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_ours = told.eq_ignore_ascii_case(&full) || (end.port == 443 && told.eq_ignore_ascii_case(&host));
        if !is_ours || named.next().is_some() {
            return said(
                StatusCode::MISDIRECTED_REQUEST,
                &format!("this connection is for {full}, and one `host` says so"),
            );
        }
        let origin = request.uri().scheme().is_none() && request.uri().authority().is_none();
        match request.uri().path_and_query().filter(|path| origin && path.as_str().starts_with('/')) {
            Some(path) => {
                let url = format!("https://{}{path}", if end.port == 443 { host } else { full });
                self.decided(request, url).await
            }
            None => said(StatusCode::BAD_REQUEST, "a request in a tunnel begins with its path"),
        }
    }
}

/// Whether the name in a greeting is the host's; an address in numbers has none there (RFC 6066, 3).
fn names(name: Option<&str>, host: &str) -> bool {
    match name {
        Some(name) => name.eq_ignore_ascii_case(host.trim_end_matches('.')),
        None => host.parse::<std::net::IpAddr>().is_ok(),
    }
}

/// Reads the greeting of TLS: its bytes, and the host that it names.
async fn greeting(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<(Bytes, Option<String>)> {
    let (mut acceptor, mut bytes) = (Acceptor::default(), Vec::new());
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let mut piece = vec![0; 4 << 10];
    while bytes.len() < GREETING_MAX {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Err(broken());
        }
        bytes.extend_from_slice(&piece[..length]);
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            if acceptor.read_tls(&mut rest)? == 0 {
                break;
            }
        }
        if let Some(accepted) = acceptor.accept().map_err(|_| broken())? {
            return Ok((bytes.into(), accepted.client_hello().server_name().map(str::to_owned)));
        }
    }
    Err(broken())
}
