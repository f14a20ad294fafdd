//! Connections of programs that know of no proxy: they mean an address, and come out here.
//!
//! Start at [`Proxy::serve_names`] and [`Proxy::serve_through`]. What always holds: whom a connection means is read from
//! the socket that accepted it, never from what the program says; it is decided, opened or passed on, counted and closed
//! by the same code as what comes by the proxy; what is neither TLS nor a request of HTTP is cut off.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;

use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, StatusCode, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::proxy::{ACCEPT_AGAIN, Answer, Gate, HEAD_BYTES_MAX, HEAD_WITHIN, Proxy, said};
use super::tunnel::End;

/// The first byte of TLS: a record that is a greeting (RFC 8446, 5.1).
const GREETS: u8 = 22;
/// Longest question or answer about names; those by packet are far shorter.
const MESSAGE_MAX: usize = 4 << 10;

impl<G: Gate> Proxy<G> {
    /// Answers questions about names, by packet and by connection, until `stop` is cancelled.
    ///
    /// # Errors
    /// Where the sockets cannot be used.
    pub async fn serve_names(self: Arc<Self>, packets: UdpSocket, connections: TcpListener) -> io::Result<()> {
        packets.set_nonblocking(true)?;
        connections.set_nonblocking(true)?;
        let packets = tokio::net::UdpSocket::from_std(packets)?;
        let by_connection = Arc::clone(&self).accept(connections, |proxy, stream, _| async move {
            let _ = tokio::time::timeout(HEAD_WITHIN, proxy.name_by_connection(stream)).await;
        });
        let by_packet = async {
            let mut packet = [0; MESSAGE_MAX];
            loop {
                let Ok((length, from)) = packets.recv_from(&mut packet).await else {
                    // The command's own network failed, or somebody did not wait for the answer: the next one may.
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                };
                self.pace.turn().await;
                if let Some(answer) = self.name(&packet[..length]) {
                    let _ = packets.send_to(&answer, from).await;
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => Ok(()),
            () = by_packet => Ok(()),
            done = by_connection => done,
        }
    }

    /// Lets those through who connect to where this listens, until `stop` is cancelled.
    ///
    /// # Errors
    /// Where the listener cannot be used.
    pub async fn serve_through(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        self.accept(listener, |proxy, stream, _| async move {
            // A socket without an address of its own is one whose other side is gone.
            if let Ok(meant) = stream.local_addr() {
                proxy.through(stream, meant.ip().to_canonical(), meant.port()).await;
            }
        })
        .await
    }

    fn name(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.names.answer(message, |name| self.gate.names(name))
    }

    /// Questions by connection come with their length before them (RFC 1035, 4.2.2).
    async fn name_by_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = usize::from(stream.read_u16().await?);
            if length > MESSAGE_MAX {
                return Ok(());
            }
            let mut message = vec![0; length];
            stream.read_exact(&mut message).await?;
            self.pace.turn().await;
            let Some(answer) = self.name(&message) else { return Ok(()) };
            stream.write_u16(u16::try_from(answer.len()).unwrap_or(u16::MAX)).await?;
            stream.write_all(&answer).await?;
        }
    }

    async fn through(self: Arc<Self>, stream: TcpStream, meant: IpAddr, port: u16) {
        let host = match meant {
            IpAddr::V4(address) if is_standing_in(address) => self.names.of(address),
            address => Some(address.to_string()),
        };
        let Some(host) = host else {
            return self.refused(&format!("{meant}:{port}"), "no name was asked for that this address stands for");
        };
        let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut first = [0];
        let first = match tokio::time::timeout(HEAD_WITHIN, stream.peek(&mut first)).await {
            Ok(Ok(1)) => first[0],
            // It was only to see whether somebody is there.
            Ok(Ok(_) | Err(_)) => return,
            Err(_) => return self.refused(&shown, "it said nothing, and only TLS and requests of HTTP go through"),
        };
        let end = End { host, port, shown };
        match first {
            GREETS => self.tunnel_for(stream, end).await,
            b'A'..=b'Z' => self.plain_for(stream, end).await,
            _ => self.refused(&end.shown, "only TLS and requests of HTTP go through"),
        }
    }

    /// As if the program had asked for a tunnel, whose refusal it could not read.
    async fn tunnel_for(self: Arc<Self>, stream: TcpStream, end: End) {
        match self.tunnel_to(&end).await {
            Ok(way) => {
                let passed = way.is_passed();
                let carried = Arc::clone(&self).carry(way, end.clone(), std::future::ready(Some(stream)));
                self.kept(end, passed, carried).await;
            }
            Err((_, why)) => self.refused(&end.shown, &why),
        }
    }

    /// Requests as they are written to a server, each for the host that the connection means.
    async fn plain_for(self: Arc<Self>, stream: TcpStream, end: End) {
        let service = service_fn(move |request| {
            let (proxy, end) = (Arc::clone(&self), end.clone());
            async move { Ok::<_, Infallible>(proxy.origin(request, &end, "http").await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX).half_close(true);
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }

    /// One request as it is written to a server: for the host that the connection is for, and no other.
    pub(super) async fn origin(self: Arc<Self>, request: Request<Incoming>, end: &End, scheme: &str) -> Answer {
        self.pace.turn().await;
        let host = if end.host.contains(':') { format!("[{}]", end.host) } else { end.host.clone() };
        let full = format!("{host}:{}", end.port);
        let usual = end.port == if scheme == "https" { 443 } else { 80 };
        let mut named = request.headers().get_all(HOST).iter();
        let told = named.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_ours = told.eq_ignore_ascii_case(&full) || (usual && told.eq_ignore_ascii_case(&host));
        if !is_ours || named.next().is_some() {
            return said(
                StatusCode::MISDIRECTED_REQUEST,
                &format!("this connection is for {full}, and one `host` says so"),
            );
        }
        let origin = request.uri().scheme().is_none() && request.uri().authority().is_none();
        match request.uri().path_and_query().filter(|path| origin && path.as_str().starts_with('/')) {
            Some(path) => {
                let url = format!("{scheme}://{}{path}", if usual { host } else { full });
                self.decided(request, url).await
            }
            None => said(StatusCode::BAD_REQUEST, "a request to a server begins with its path"),
        }
    }
}

/// Whether an address is one of those that stand in for names.
fn is_standing_in(address: Ipv4Addr) -> bool {
    let (network, prefix) = aos_sandbox::STANDING_IN;
    (address.to_bits() ^ network.to_bits()) >> (32 - u32::from(prefix)) == 0
}
