//! Listening: connections are accepted, bounded, watched, and drained at the end.
//!
//! Start at [`serve`]. What always holds: each listener has its own bound, so that a crowd on TCP leaves the socket
//! free for `aos`; every connection's task belongs to its listener, which waits for it; after the shutdown no
//! connection outlives the drain deadline. Deliberately absent: TLS, which a proxy in front does.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dispatch::{Shared, router};
use crate::door::Door;
use crate::error::ApiError;
use crate::options::Options;
use crate::stall::Stall;
use crate::system::System;

/// Most connections beyond the bound that are told so at once; the rest wait in the system's own queue.
const REFUSED_MAX: usize = 32;
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long to wait after a failed `accept`, which fails for want of file descriptors or memory.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Where the interface is served. Made outside, so that whoever makes it decides on addresses and permissions.
#[derive(Debug)]
pub enum Listener {
    /// For whoever holds the token.
    Tcp(TcpListener),
    /// For the programs of its own user.
    Unix(UnixListener),
}

/// Why the interface could not be served at all.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener does not know its own address.
    #[error("a listener has no address")]
    Address(#[source] io::Error),
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Connections that were still busy at the drain deadline and were cut off.
    pub cut: usize,
}

/// Serves the interface on every listener until `shutdown`, then stops accepting, lets what is under way end, and
/// cuts off what has not by `Options::drain_within`.
///
/// # Errors
/// Only before anything is served.
///
/// # Cancel safety
/// Where the future is dropped every connection is cut off at once.
pub async fn serve<S: System>(
    listeners: Vec<Listener>,
    system: Arc<S>,
    options: Options,
    shutdown: CancellationToken,
) -> Result<Drained, ServeError> {
    let shared = Arc::new(Shared::new(system, options, shutdown));
    let router = router(Arc::clone(&shared));
    let mut doors = Vec::new();
    for listener in listeners {
        doors.push(match &listener {
            Listener::Tcp(tcp) => (Door::Tcp(tcp.local_addr().map_err(ServeError::Address)?.ip()), listener),
            Listener::Unix(_) => (Door::Socket, listener),
        });
    }
    let mut halls = JoinSet::new();
    for (door, listener) in doors {
        let hall = Hall {
            door,
            router: router.clone(),
            options: shared.options.clone(),
            shutdown: shared.shutdown.clone(),
            seats: Arc::new(Semaphore::new(shared.options.connections_max.min(Semaphore::MAX_PERMITS))),
            benches: Arc::new(Semaphore::new(REFUSED_MAX)),
        };
        halls.spawn(async move { hall.run(listener).await });
    }
    let mut drained = Drained::default();
    while let Some(ended) = halls.join_next().await {
        match ended {
            Ok(cut) => drained.cut += cut,
            Err(error) => tracing::error!(%error, "a listener ended by a fault"),
        }
    }
    Ok(drained)
}

/// One listener and its connections.
struct Hall {
    door: Door,
    router: Router,
    options: Options,
    shutdown: CancellationToken,
    /// Connections that are served.
    seats: Arc<Semaphore>,
    /// Connections that are told that there is no seat.
    benches: Arc<Semaphore>,
}

/// A place for one connection, given back when it is dropped.
struct Place {
    /// Beyond the bound: it is only told so.
    refused: bool,
    _permit: OwnedSemaphorePermit,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Hall {
    /// Returns how many connections were cut off.
    async fn run(self, listener: Listener) -> usize {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => report(ended),
                (place, stream) = self.accept(&listener) => self.start(&mut connections, place, stream),
            }
        }
        drop(listener);
        let drain = async {
            while let Some(ended) = connections.join_next().await {
                report(ended);
            }
        };
        if tokio::time::timeout(self.options.drain_within, drain).await.is_ok() {
            return 0;
        }
        let cut = connections.len();
        connections.shutdown().await;
        cut
    }

    /// Waits for a place, then for a connection.
    ///
    /// # Cancel safety
    /// A place is given back and no connection is lost where the future is dropped.
    async fn accept(&self, listener: &Listener) -> (Place, Stream) {
        loop {
            let place = match Arc::clone(&self.seats).try_acquire_owned() {
                Ok(seat) => Place { refused: false, _permit: seat },
                Err(_) => tokio::select! {
                    biased;
                    Ok(seat) = Arc::clone(&self.seats).acquire_owned() => Place { refused: false, _permit: seat },
                    Ok(bench) = Arc::clone(&self.benches).acquire_owned() => Place { refused: true, _permit: bench },
                    else => std::future::pending().await,
                },
            };
            let accepted = match listener {
                Listener::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
                Listener::Unix(unix) => unix.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            };
            match accepted {
                Ok(stream) => return (place, stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn start(&self, connections: &mut JoinSet<()>, place: Place, stream: Stream) {
        let refusal = match (place.refused, &stream) {
            (true, _) => Some(ApiError::unavailable("too many connections").hint("close some, or try again")),
            (false, Stream::Unix(stream)) => self.check_peer(stream).err(),
            (false, Stream::Tcp(_)) => None,
        };
        let connection = Connection {
            door: self.door,
            router: self.router.clone(),
            refusal,
            header_within: self.options.header_within,
            shutdown: self.shutdown.clone(),
        };
        let stall_within = self.options.stall_within;
        connections.spawn(async move {
            match stream {
                Stream::Tcp(stream) => {
                    // Events are small and each matters now; a failure costs latency only.
                    let _ = stream.set_nodelay(true);
                    connection.run(Stall::new(stream, stall_within)).await;
                }
                Stream::Unix(stream) => connection.run(Stall::new(stream, stall_within)).await,
            }
            drop(place);
        });
    }

    /// The file mode of the socket keeps others out already; this holds where its folder was opened by mistake.
    fn check_peer(&self, stream: &UnixStream) -> Result<(), ApiError> {
        let peer = stream.peer_cred().map_err(|error| ApiError::forbidden(format!("the peer is unknown: {error}")))?;
        if admits_user(peer.uid(), self.options.socket_uid) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("this socket is not for the user {}", peer.uid()))
            .hint("use the TCP address with the token"))
    }
}

fn admits_user(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection ended by a fault");
    }
}

/// One connection, to be served or refused.
struct Connection {
    door: Door,
    router: Router,
    refusal: Option<ApiError>,
    header_within: Duration,
    shutdown: CancellationToken,
}

impl Connection {
    async fn run<IO: AsyncRead + AsyncWrite + Unpin>(self, stream: IO) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.header_within).max_buf_size(HEAD_BYTES_MAX);
        let service = service_fn(|mut request: Request<Incoming>| {
            let refusal = self.refusal.clone();
            let router = TowerToHyperService::new(self.router.clone());
            request.extensions_mut().insert(self.door);
            async move {
                match refusal {
                    Some(error) => Ok(closing(error)),
                    None => hyper::service::Service::call(&router, request).await,
                }
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke off");
        }
    }
}

fn closing(error: ApiError) -> Response<axum::body::Body> {
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_for_its_own_user_and_root() {
        assert!(admits_user(1000, 1000));
        assert!(admits_user(0, 1000));
        assert!(!admits_user(1001, 1000));
        assert!(!admits_user(1000, 0));
    }
}
