//! The one way out of a command's network: an HTTP proxy that decides every request by the policy's tables.
//!
//! Start at [`Proxy::serve`]. Plain HTTP is seen whole: host, port, method and path are decided, then the request is made
//! anew by the same code as `NET_FETCH` and `NET_SEND`, so that nothing of how it was written reaches the other side.
//! TLS (`CONNECT`) is passed on or opened: see `tunnel`. Programs that know of no proxy come in by `through`.
//!
//! What always holds: names are resolved here and every address is checked; private and metadata addresses are refused
//! as for calls; a redirect is the command's to follow, by a new request; bodies, bytes, time and the rate of asking are
//! bounded; every request is told to whoever listens, with its verdict.
//!
//! Deliberately absent: HTTP/2, and caching.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aos_abi::{CallError, limits};
use aos_policy::{Allowed, Policy};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{PACKED, is_packed};
use super::destination::{Destination, HostPort};
use super::driver::Driver;
use super::headers::{REWRITES, is_framing, is_rewriting};
use super::methods::Demand;
use super::names::Names;
use super::pace::Pace;
use super::secret::{Mask, Masking, Secret};
use super::tunnel::Tunnel;

/// Connections of one command at once, those that became tunnels too. Each holds two descriptors of the daemon's at most.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// How long nothing is accepted after it failed: what it failed for, as descriptors that are all taken, goes on for a while.
pub(super) const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Largest head of a request, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest time for the head of a request, for its body, and for reaching the other side.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(limits::NET_TIMEOUT_S);

/// Bytes of bodies of requests that the daemon holds for one command at once, in KiB; each is held whole until it is sent.
const BODIES_KIB_MAX: usize = 16 << 10;
/// Names of one command that are looked up at once. What nobody waits for any more counts until it has ended.
const LOOKUPS_MAX: usize = 8;

/// What is said where the rules changed meanwhile.
const WITHDRAWN: &str = "the policy was changed and forbids it by now";

/// Comes when the rules allow a request no more.
type Gone = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's place among those of its command, held by it and by the tunnel that it becomes.
pub(super) type Seat = Arc<OwnedSemaphorePermit>;

pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// One request of a command, as it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `GET` and so on; `CONNECT` for a tunnel.
    pub method: String,
    /// Scheme, host, port and path, without the query; of a tunnel host and port.
    pub to: String,
    /// What allowed it, or why it was refused.
    pub said: Result<Allowed, String>,
    /// The whole address, where the gate did not let the request through.
    pub denied: Option<String>,
}

/// What one command may reach.
pub trait Gate: Send + Sync + 'static {
    /// What allows a request.
    ///
    /// # Errors
    /// Why not, as the agent would be told.
    fn request(&self, method: &str, url: &str) -> Result<Allowed, CallError>;
    /// What becomes of a connection of which only host and port can be seen.
    ///
    /// # Errors
    /// As above.
    fn tunnel(&self, host: &str, port: u16) -> Result<Tunnel, CallError>;
    /// Whether a rule speaks of a host at all: others do not exist for those who ask for names.
    fn names(&self, host: &str) -> bool;
    /// Hosts that may be reached at private addresses.
    fn private(&self) -> &[HostPort];
    /// What is put into requests to the places they are for. It is asked for each request, so that what was taken back is
    /// put in no more; whatever it has ever held is covered in every answer.
    fn secrets(&self) -> Vec<Secret>;
    /// Told of each change of the rules: what is open and allowed no more is closed then.
    fn changes(&self) -> watch::Receiver<Policy>;
    /// A request came and was decided.
    fn saw(&self, seen: Seen);
}

/// The proxy of one command.
pub struct Proxy<G> {
    pub(super) driver: Arc<Driver>,
    pub(super) gate: G,
    pub(super) names: Names,
    /// For so many connections at once, wherever they come in.
    room: Arc<Semaphore>,
    pub(super) pace: Pace,
    /// For what it sends, in KiB.
    bodies: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    left: AtomicU64,
    /// What must not come back: every secret that was ever there to be put in.
    covered: Mutex<Mask>,
    pub(super) tunnels: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl<G: Gate> Proxy<G> {
    /// A proxy that reaches out as `driver` does, where `gate` lets it.
    #[must_use]
    pub fn new(driver: Arc<Driver>, gate: G, stop: CancellationToken) -> Arc<Proxy<G>> {
        let left = AtomicU64::new(limits::EGRESS_BYTES_MAX);
        let (network, _) = aos_sandbox::STANDING_IN;
        // The first address of a network names the network itself.
        let names = Names::new(Ipv4Addr::from_bits(network.to_bits() + 1));
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let covered = Mutex::default();
        let pace = Pace::new();
        let (bodies, lookups) = (Arc::new(Semaphore::new(BODIES_KIB_MAX)), Arc::new(Semaphore::new(LOOKUPS_MAX)));
        let tunnels = TaskTracker::new();
        Arc::new(Proxy { driver, gate, names, room, pace, bodies, lookups, left, covered, tunnels, stop })
    }

    /// Serves a listener until `stop` is cancelled; then every connection is closed.
    ///
    /// # Errors
    /// Where the listener cannot be used.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        Arc::clone(&self).accept(listener, |proxy, stream, seat| proxy.speak_from(stream, Some(seat))).await?;
        self.tunnels.close();
        self.tunnels.wait().await;
        Ok(())
    }

    /// Does something with each connection of a listener until `stop` is cancelled; then all are closed.
    pub(super) async fn accept<F: Future<Output = ()> + Send + 'static>(
        self: Arc<Self>,
        listener: TcpListener,
        each: impl Fn(Arc<Self>, TcpStream, Seat) -> F,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut open = JoinSet::new();
        loop {
            let (stream, seat) = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(_) = open.join_next() => continue,
                accepted = self.next(&listener) => accepted,
            };
            let (proxy, done) = (Arc::clone(&self), each(Arc::clone(&self), stream, Arc::clone(&seat)));
            open.spawn(async move {
                let _seat = seat;
                proxy.pace.turn().await;
                done.await;
            });
        }
        open.shutdown().await;
        Ok(())
    }

    /// Waits for a place, then for a connection.
    async fn next(&self, listener: &tokio::net::TcpListener) -> (TcpStream, Seat) {
        loop {
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { std::future::pending().await };
            match listener.accept().await {
                Ok((stream, _)) => return (stream, Arc::new(permit)),
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    /// Serves one connection until it ends; its tunnels go on.
    pub async fn speak(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        self.speak_from(stream, None).await;
    }

    async fn speak_from(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        seat: Option<Seat>,
    ) {
        let service = service_fn(move |request| {
            let (proxy, seat) = (Arc::clone(&self), seat.clone());
            async move { Ok::<_, Infallible>(proxy.answer(request, seat).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES_MAX).half_close(true);
        // A command that speaks wrongly hears so or is cut off; nobody else has to know.
        let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>, seat: Option<Seat>) -> Answer {
        self.pace.turn().await;
        if request.method() == Method::CONNECT {
            return self.connect(request, seat).await;
        }
        let uri = request.uri().clone();
        if uri.scheme_str() != Some("http") {
            return said(StatusCode::BAD_REQUEST, "this is a proxy: ask for http://HOST/PATH, or CONNECT to HOST:PORT");
        }
        self.decided(request, uri.to_string()).await
    }

    /// Decides a request for this URL, and makes it anew.
    pub(super) async fn decided(self: Arc<Self>, request: Request<Incoming>, url: String) -> Answer {
        let method = request.method().clone();
        let to = url.split(['?', '#']).next().unwrap_or_default().to_owned();
        let seen = |said, denied| self.gate.saw(Seen { method: method.to_string(), to: to.clone(), said, denied });
        let refuse = |status, why: &str| {
            seen(Err(why.to_owned()), None);
            said(status, why)
        };
        // Refused and not left out: without it, too, it would be another request than the command meant.
        if let Some(name) = request.headers().keys().find(|name| is_rewriting(name.as_str())) {
            return refuse(StatusCode::FORBIDDEN, &format!("header `{name}` {REWRITES}"));
        }
        let demand = match Demand::of(&method, &url, request.headers()) {
            Ok(demand) => demand,
            Err(why) => return refuse(StatusCode::METHOD_NOT_ALLOWED, why),
        };
        let allowed = match demand.put_to(&self.gate) {
            Ok(allowed) => allowed,
            Err(error) if !demand.is_named() => {
                let takes = "no rule can name this method: it takes GET, POST, PUT, PATCH and DELETE of what it is on";
                return refuse(StatusCode::FORBIDDEN, &format!("{takes}; {}", words(&error)));
            }
            Err(error) => {
                let why = words(&error);
                seen(Err(why.clone()), Some(url));
                return said(StatusCode::FORBIDDEN, &why);
            }
        };
        let to_checked = match self.reach(&url).await {
            Ok(destination) => destination,
            Err(why) => return refuse(StatusCode::FORBIDDEN, &why),
        };
        let headers = passed_on(request.headers());
        let gathered = tokio::time::timeout(HEAD_WITHIN, self.gather(request.into_body())).await;
        let (body, _held) = match gathered {
            Ok(Ok(body)) => body,
            Ok(Err((status, why))) => return refuse(status, &why),
            Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
        };
        seen(Ok(allowed), None);
        let secrets = self.gate.secrets();
        let mask = self.mask(&secrets);
        let proxy = Arc::clone(&self);
        let mut gone: Gone = Box::pin(async move {
            proxy.withdrawn(|gate| demand.put_to(gate).is_ok()).await;
        });
        let passing = self.driver.pass_on(&to_checked, method.clone(), headers, body, &secrets);
        let passed = tokio::select! {
            biased;
            () = &mut gone => return refuse(StatusCode::FORBIDDEN, WITHDRAWN),
            passed = tokio::time::timeout(HEAD_WITHIN, passing) => passed,
        };
        match passed {
            Ok(Ok(response)) => self.bring(response, mask, gone),
            Ok(Err(error)) => said(StatusCode::BAD_GATEWAY, &words(&mask.error(error.into()))),
            Err(_) => said(StatusCode::GATEWAY_TIMEOUT, "no answer in time"),
        }
    }

    /// Where a URL leads. The lookup counts until it has ended: no program ends one by hanging up.
    ///
    /// # Errors
    /// Why nothing leads there, as the command is told.
    pub(super) async fn reach(self: &Arc<Self>, url: &str) -> Result<Destination, String> {
        let late = || "its name was not looked up in time".to_owned();
        let looked = async {
            let permit = Arc::clone(&self.lookups).acquire_owned().await;
            let (proxy, url) = (Arc::clone(self), url.to_owned());
            let looking = tokio::spawn(async move {
                let _permit = permit;
                proxy.driver.reach(&url, proxy.gate.private()).await
            });
            looking.await
        };
        match tokio::time::timeout(HEAD_WITHIN, looked).await {
            Ok(Ok(found)) => found.map_err(|error| words(&error.into())),
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }

    /// A whole body, and its place among those that are held. What comes is spent as it comes.
    async fn gather(&self, mut body: Incoming) -> Result<(Bytes, Option<OwnedSemaphorePermit>), (StatusCode, String)> {
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, "the body is broken or larger than 5 MiB".to_owned());
        let most = body
            .size_hint()
            .upper()
            .map_or(limits::NET_BODY_BYTES_MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if most > limits::NET_BODY_BYTES_MAX {
            return Err(too_large());
        }
        let kib = u32::try_from(most.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let held = Arc::clone(&self.bodies).acquire_many_owned(kib).await.ok();
        // In one piece: a piece of one byte would take as much as many.
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| too_large())?.into_data() else { continue };
            if whole.len() + piece.len() > most {
                return Err(too_large());
            }
            if !self.spend(piece.len()) {
                return Err((StatusCode::INSUFFICIENT_STORAGE, spent()));
            }
            whole.extend_from_slice(&piece);
        }
        Ok((whole.freeze(), held))
    }

    /// What must not come back from now on.
    fn mask(&self, secrets: &[Secret]) -> Mask {
        let mut covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
        covered.add(secrets);
        covered.clone()
    }

    /// Hands an answer on as it comes, for as long as bytes are left and the rules allow it.
    fn bring(self: Arc<Self>, response: reqwest::Response, mask: Mask, gone: Gone) -> Answer {
        if !mask.is_empty() && is_packed(response.headers()) {
            return said(StatusCode::BAD_GATEWAY, PACKED);
        }
        let mut answer = Response::builder().status(response.status());
        if let Some(headers) = answer.headers_mut() {
            *headers = passed_on(response.headers());
            mask.headers(headers);
            if let Some(length) = response.headers().get(CONTENT_LENGTH) {
                headers.insert(CONTENT_LENGTH, length.clone());
            }
        }
        let masking = (!mask.is_empty()).then(|| Masking::new(mask));
        let pieces = futures_util::stream::unfold(Some((response, masking, self, gone)), |state| async move {
            let (mut response, mut masking, proxy, mut gone) = state?;
            let chunk = tokio::select! {
                biased;
                () = &mut gone => return Some((Err(io::Error::other(WITHDRAWN)), None)),
                chunk = response.chunk() => chunk,
            };
            match chunk {
                Ok(Some(chunk)) if proxy.spend(chunk.len()) => {
                    let chunk = masking.as_mut().map(|masking| masking.take(&chunk).into()).unwrap_or(chunk);
                    Some((Ok(Frame::data(chunk)), Some((response, masking, proxy, gone))))
                }
                Ok(Some(_)) => Some((Err(io::Error::other(spent())), None)),
                Ok(None) => masking.map(|mut masking| (Ok(Frame::data(masking.end().into())), None)),
                Err(error) => Some((Err(io::Error::other(error.to_string())), None)),
            }
        });
        answer
            .body(BodyExt::boxed_unsync(StreamBody::new(pieces)))
            .unwrap_or_else(|_| said(StatusCode::BAD_GATEWAY, "the answer cannot be passed on"))
    }

    /// Waits until the rules have changed so that what was allowed is no more.
    pub(super) async fn withdrawn(&self, allows: impl Fn(&G) -> bool) {
        let mut changes = self.gate.changes();
        // Asked once more after the subscription, so that no change falls between.
        while allows(&self.gate) {
            if changes.changed().await.is_err() {
                // Nobody is left to change them.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes bytes from what the command may still send and get.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// Headers without those that frame a message or belong to one connection.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(hyper::header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    let passes = |name: &HeaderName| !is_framing(name.as_str()) && !named.contains(name);
    let mut passed = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| passes(name)) {
        passed.append(name.clone(), value.clone());
    }
    passed
}

fn spent() -> String {
    format!("a command sends and gets at most {} MiB", limits::EGRESS_BYTES_MAX >> 20)
}

pub(super) fn words(error: &CallError) -> String {
    match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}

/// An answer of the proxy's own.
pub(super) fn said(status: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("aos: {text}\n"))).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(BodyExt::boxed_unsync(body));
    *answer.status_mut() = status;
    // What came after a request that was not passed on is not looked at.
    answer.headers_mut().insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    answer.headers_mut().insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
