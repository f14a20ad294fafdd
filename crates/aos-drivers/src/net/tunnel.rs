//! Tunnels: what a command asks `CONNECT` for.
//!
//! Start at [`Proxy::connect`]. Where everything on a host is allowed, TLS is passed on as it is, once the name inside is
//! the name that was asked for; where rules name methods and paths, or a secret is to be put in, it is opened by an
//! authority of the command's own and each request in it is decided like any other. What always holds: nothing but TLS
//! goes through, and a tunnel ends with its command, or when the rules would not make it any more.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use aos_policy::Allowed;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::authority::Authority;
use super::proxy::{Answer, Gate, HEAD_BYTES_MAX, HEAD_WITHIN, Proxy, Seat, Seen, said, words};

/// Most bytes of a TLS greeting: a few certificates' worth of extensions.
const GREETING_MAX: usize = 64 << 10;

/// What becomes of a tunnel.
pub enum Tunnel {
    /// It is passed on to the host whose name it carries, since this allows it.
    Passed(Allowed),
    /// It is opened, and each request in it is decided.
    Opened(Arc<Authority>),
}

/// Where a tunnel leads.
#[derive(Clone)]
pub(super) struct End {
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// As it was asked for.
    pub(super) shown: String,
}

/// A tunnel that was decided, as far as it is made.
pub(super) enum Way {
    /// To the other side, and what allows it.
    Passed(TcpStream, Allowed),
    /// To an end here.
    Opened(Arc<Authority>),
}

impl Way {
    pub(super) fn is_passed(&self) -> bool {
        matches!(self, Way::Passed(..))
    }
}

impl<G: Gate> Proxy<G> {
    /// Answers `CONNECT`. The connection's place is the tunnel's from here on: the connection itself ends with the answer.
    pub(super) async fn connect(self: Arc<Self>, request: Request<Incoming>, seat: Option<Seat>) -> Answer {
        let shown = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let authority = request.uri().authority().and_then(|to| Some((to.host().to_owned(), to.port_u16()?)));
        let Some((host, port)) = authority.filter(|_| !shown.contains('@')) else {
            let why = "CONNECT takes HOST:PORT";
            self.refused(&shown, why);
            return said(StatusCode::FORBIDDEN, why);
        };
        // As the policy reads the host of an address.
        let host = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
        let end = End { host: host.trim_start_matches('[').trim_end_matches(']').to_owned(), port, shown };
        let way = match self.tunnel_to(&end).await {
            Ok(way) => way,
            Err((status, why)) => {
                if status == StatusCode::FORBIDDEN {
                    self.refused(&end.shown, &why);
                }
                return said(status, &why);
            }
        };
        let inside = async move { hyper::upgrade::on(request).await.ok().map(TokioIo::new) };
        let (proxy, passed) = (Arc::clone(&self), way.is_passed());
        self.tunnels.spawn(async move {
            let _seat = seat;
            let carried = Arc::clone(&proxy).carry(way, end.clone(), inside);
            proxy.kept(end, passed, carried).await;
        });
        Response::new(BodyExt::boxed_unsync(Full::default().map_err(|never| match never {})))
    }

    /// Decides a tunnel, and connects where it is passed on; or says why not.
    pub(super) async fn tunnel_to(self: &Arc<Self>, end: &End) -> Result<Way, (StatusCode, String)> {
        let forbidden = |why: String| (StatusCode::FORBIDDEN, why);
        match self.gate.tunnel(&end.host, end.port).map_err(|error| forbidden(words(&error)))? {
            Tunnel::Opened(authority) => Ok(Way::Opened(authority)),
            Tunnel::Passed(allowed) => {
                let host = if end.host.contains(':') { format!("[{}]", end.host) } else { end.host.clone() };
                let url = format!("https://{host}:{}/", end.port);
                let addresses = self.reach(&url).await.map_err(forbidden)?.addresses();
                match tokio::time::timeout(HEAD_WITHIN, TcpStream::connect(&addresses[..])).await {
                    Ok(Ok(outside)) => Ok(Way::Passed(outside, allowed)),
                    Ok(Err(_)) | Err(_) => {
                        Err((StatusCode::BAD_GATEWAY, "the other side cannot be reached".to_owned()))
                    }
                }
            }
        }
    }

    /// Carries what comes from inside, once it is there, by a way that was decided.
    pub(super) async fn carry(
        self: Arc<Self>,
        way: Way,
        end: End,
        inside: impl Future<Output = Option<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>>,
    ) {
        let Some(inside) = inside.await else { return };
        match way {
            Way::Passed(outside, allowed) => self.pass(inside, outside, end, allowed).await,
            Way::Opened(authority) => self.open(inside, end, authority).await,
        }
    }

    /// Runs a tunnel until it ends, at the latest with the command or when the rules would not make it so any more.
    pub(super) async fn kept(&self, end: End, passed: bool, tunnel: impl Future<Output = ()>) {
        let same = |tunnel: Tunnel| matches!(tunnel, Tunnel::Passed(_)) == passed;
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.withdrawn(|gate| gate.tunnel(&end.host, end.port).is_ok_and(same)) => {}
            () = tunnel => {}
        }
    }

    pub(super) fn refused(&self, to: &str, why: &str) {
        self.gate.saw(Seen { method: "CONNECT".into(), to: to.to_owned(), said: Err(why.to_owned()), denied: None });
    }

    /// Hands on bytes, once the greeting names the host.
    async fn pass(&self, inside: impl AsyncRead + AsyncWrite, outside: TcpStream, end: End, allowed: Allowed) {
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
        self.gate.saw(Seen { method: "CONNECT".into(), to: end.shown, said: Ok(allowed), denied: None });
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
    async fn open(
        self: Arc<Self>,
        inside: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        end: End,
        authority: Arc<Authority>,
    ) {
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
            async move { Ok::<_, Infallible>(proxy.origin(request, &end, "https").await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX).half_close(true);
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
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
