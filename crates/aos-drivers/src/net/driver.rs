//! The driver: from an allowed call to requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_abi::syscall::{NetFetch, NetSend};
use aos_abi::{CallError, Code, Syscall, limits};
use aos_policy::Permit;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::body::{self, PACKED, is_packed, words};
use super::destination::{Destination, HostPort, is_numeric, reach};
use super::error::Error;
use super::headers;
use super::own::Own;
use super::resolver::{Resolve, SystemResolver};
use super::secret::{Mask, Secret, put_in};
use super::tls::Tls;
use crate::content::as_text;

/// What every answer carries: whoever runs the server wrote it.
const LABEL: &str = "untrusted.web";

/// The bounds of requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// For everything of one call together, redirects and body included.
    pub timeout: Duration,
    /// Largest body, in bytes, unpacked.
    pub body_bytes_max: usize,
    /// Most redirects.
    pub redirects_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(limits::NET_TIMEOUT_S),
            body_bytes_max: limits::NET_BODY_BYTES_MAX,
            redirects_max: limits::NET_REDIRECTS_MAX,
        }
    }
}

/// What one call may do beside what its permit says.
#[derive(Clone, Copy)]
pub struct Trip<'t> {
    /// Asked before each redirect with its URL; an error ends the call.
    pub decide: &'t (dyn Fn(&str) -> Result<(), CallError> + Send + Sync),
    /// Told of a URL that leads to an address which is refused whatever was decided: by what the floor says, and why.
    pub refused: &'t (dyn Fn(&str, &'static str, &str) + Send + Sync),
    /// Hosts that may be reached at private addresses. Metadata services are never reached.
    pub private: &'t [HostPort],
    /// What is put into requests to the places they are for, and covered in every answer.
    pub secrets: &'t [Secret],
}

/// Carries out network calls. Holds no connection between calls; share one for the whole daemon.
pub struct Driver {
    options: Options,
    resolver: Arc<dyn Resolve>,
    tls: Tls,
    own: Option<Own>,
}

impl Driver {
    /// A driver that asks the operating system for the addresses of names.
    #[must_use]
    pub fn new(options: Options) -> Driver {
        Driver::with_resolver(options, Arc::new(SystemResolver::default()))
    }

    /// The same with another source of addresses.
    #[must_use]
    pub fn with_resolver(options: Options, resolver: Arc<dyn Resolve>) -> Driver {
        Driver { options, resolver, tls: Tls::default(), own: None }
    }

    /// The same that never reaches the daemon itself.
    #[must_use]
    pub fn away_from(self, own: Own) -> Driver {
        Driver { own: Some(own), ..self }
    }

    /// The same that trusts this authority alone.
    #[cfg(test)]
    pub(super) fn trusting(self, authority: rustls::pki_types::CertificateDer<'static>) -> Driver {
        Driver { tls: Tls::of_authority(authority), ..self }
    }

    /// Carries out an allowed call.
    ///
    /// # Errors
    /// `EINVAL` for an address, method or header that cannot be; `EPERM` for a private address or the daemon's own, and what `decide` says of
    /// a redirect; `ETIMEDOUT`; `EIO`; `ENOSYS` for a call that is no network call.
    ///
    /// # Cancel safety
    /// Dropping it closes the connection. A request that had left may have been carried out.
    pub async fn call(&self, permit: Permit, trip: Trip<'_>) -> Result<Value, CallError> {
        self.perform(permit.into_call(), trip).await
    }

    /// Carries out a call whatever the policy says of it.
    pub(super) async fn perform(&self, call: Syscall, trip: Trip<'_>) -> Result<Value, CallError> {
        let (url, done) = match &call {
            Syscall::NetFetch(args) => (&args.url, Done::default()),
            Syscall::NetSend(args) => (&args.url, Done { changes: true, ..Done::default() }),
            other => return Err(CallError::new(Code::NoSys, format!("{} is no network call", other.name()))),
        };
        let work = async {
            match &call {
                Syscall::NetSend(args) => self.send(args, trip, &done).await,
                Syscall::NetFetch(args) => self.fetch(args, trip, &done).await,
                other => unreachable!("{} was sent away above", other.name()),
            }
        };
        let came = match tokio::time::timeout(self.options.timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = self.options.timeout.as_secs_f64();
                Err(Error::TimedOut { host: Error::shown(url), seconds, sent: done.sent() })
            }
        };
        let mask = Mask::of(trip.secrets);
        match came {
            Ok(mut result) => {
                mask.value(&mut result);
                Ok(result)
            }
            Err(error) => {
                let told = mask.error(error.into());
                Err(if done.heard.load(Ordering::Relaxed) { told } else { told.unheard() })
            }
        }
    }

    async fn fetch(&self, args: &NetFetch, trip: Trip<'_>, done: &Done) -> Result<Value, Error> {
        let mut headers = headers::parse(args.headers.as_ref())?;
        let mut url = args.url.clone();
        let mut hops = 0;
        loop {
            let to = self.reach_on(&url, trip).await?;
            let response = self.request(&to, Method::GET, headers.clone(), None, trip.secrets, done).await?;
            let Some(next) = redirect(&response, &to) else {
                let mut result = self.answer(response, &to, trip.secrets, done).await?;
                if hops > 0 {
                    result["url"] = url.into();
                }
                return Ok(result);
            };
            let next = next?;
            if hops == self.options.redirects_max {
                return Err(Error::Redirects { most: hops, url: Error::shown(next.as_str()) });
            }
            if to.url.scheme() == "https" && next.scheme() == "http" {
                return Err(Error::Downgrade { url: Error::shown(next.as_str()) });
            }
            (trip.decide)(next.as_str()).map_err(|because| Error::Redirected {
                url: Error::shown(next.as_str()),
                because: Box::new(because),
            })?;
            if next.origin() != to.url.origin() {
                headers = headers::portable(&headers);
            }
            url = next.into();
            hops += 1;
        }
    }

    async fn send(&self, args: &NetSend, trip: Trip<'_>, done: &Done) -> Result<Value, Error> {
        let method = match args.method.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            "DELETE" => Method::DELETE,
            other => return Err(Error::Method { method: Error::shown(other) }),
        };
        let headers = headers::parse(args.headers.as_ref())?;
        let to = self.reach_on(&args.url, trip).await?;
        let response = self.request(&to, method, headers, args.body.clone(), trip.secrets, done).await?;
        self.answer(response, &to, trip.secrets, done).await
    }

    /// One request on a connection of its own, to the checked addresses and no others.
    async fn request(
        &self,
        to: &Destination,
        method: Method,
        mut headers: HeaderMap,
        body: Option<String>,
        secrets: &[Secret],
        done: &Done,
    ) -> Result<Response, Error> {
        put_in(secrets, to, &mut headers)?;
        let mut request = self.client(to)?.request(method, to.url.clone());
        // First ours, then the caller's, which may name another program but not another encoding.
        request = request.header(USER_AGENT, concat!("aos/", env!("CARGO_PKG_VERSION")));
        request = request.headers(headers).header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(body) = body {
            request = request.body(body);
        }
        done.left.store(true, Ordering::Relaxed);
        let sent = request.send().await;
        if !sent.as_ref().is_err_and(is_of_system) {
            done.heard.store(true, Ordering::Relaxed);
        }
        sent.map_err(|error| Error::Failed {
            host: to.host.clone(),
            why: words(&error),
            sent: done.changes && !error.is_connect(),
        })
    }

    /// A client that reaches the checked addresses and no others, and keeps nothing.
    fn client(&self, to: &Destination) -> Result<reqwest::Client, Error> {
        let tls = self.tls.of(to.url.scheme()).map_err(Error::Tls)?;
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(to.pinned.clone())
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| Error::Tls(words(&error)))
    }

    /// Makes a command's request anew; its answer as it comes.
    pub(super) async fn pass_on(
        &self,
        to: &Destination,
        method: Method,
        mut headers: HeaderMap,
        body: bytes::Bytes,
        secrets: &[Secret],
    ) -> Result<Response, Error> {
        put_in(secrets, to, &mut headers)?;
        let request = self.client(to)?.request(method, to.url.clone()).headers(headers).body(body);
        let failed = |error: reqwest::Error| Error::Failed { host: to.host.clone(), why: words(&error), sent: false };
        request.send().await.map_err(failed)
    }

    /// The checked way to a URL.
    pub(super) async fn reach(&self, url: &str, excepted: &[HostPort]) -> Result<Destination, Error> {
        reach(url, excepted, &*self.resolver, self.own).await
    }

    /// Why a request to an address in numbers would be refused whatever was decided; of a name that is known when it is
    /// looked up, which is done for a request alone.
    pub async fn refuses(&self, url: &str, private: &[HostPort]) -> Option<CallError> {
        is_numeric(url).then_some(())?;
        self.reach(url, private).await.err().map(CallError::from)
    }

    /// The same on a trip, which is told where an address is refused.
    async fn reach_on(&self, url: &str, trip: Trip<'_>) -> Result<Destination, Error> {
        let reached = self.reach(url, trip.private).await;
        if let Err(error) = &reached
            && let Some(floor) = error.floor()
        {
            (trip.refused)(url, floor, &error.to_string());
        }
        reached
    }

    async fn answer(
        &self,
        response: Response,
        to: &Destination,
        secrets: &[Secret],
        done: &Done,
    ) -> Result<Value, Error> {
        let mask = Mask::of(secrets);
        let status = response.status().as_u16();
        let mut wire = response.headers().clone();
        let failed = |why| Error::Failed { host: to.host.clone(), why, sent: done.sent() };
        let mut body = body::read(response, self.options.body_bytes_max).await.map_err(failed)?;
        if !mask.is_empty() && !body.decoded && is_packed(&wire) {
            return Err(failed(PACKED.to_owned()));
        }
        mask.headers(&mut wire);
        mask.bytes(&mut body.bytes);
        let (text, _, encoding) = as_text(body.bytes, body.truncated);
        let mut result = json!({
            "status": status,
            "headers": headers::shown(&wire, body.decoded),
            "body": text,
            "truncated": body.truncated,
            "label": LABEL,
        });
        if let Some(encoding) = encoding {
            result["encoding"] = encoding.into();
        }
        Ok(result)
    }
}

/// How far a call has come, for what is said when it fails.
#[derive(Debug, Default)]
struct Done {
    /// It would change something at the other side.
    changes: bool,
    /// A request is on its way.
    left: AtomicBool,
    /// Something came from the other side, or the words of an error may be its.
    heard: AtomicBool,
}

impl Done {
    fn sent(&self) -> bool {
        self.changes && self.left.load(Ordering::Relaxed)
    }
}

/// Whether the operating system says why it failed, in words of its own. An error of TLS may show what stands in a
/// certificate.
fn is_of_system(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.raw_os_error().is_some()) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Where an answer sends its reader, if it does: statuses 301, 302, 303, 307 and 308 with a `Location` (RFC 9110, 15.4).
fn redirect(response: &Response, from: &Destination) -> Option<Result<reqwest::Url, Error>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let refused = |why: &str| Error::Address {
        url: Error::shown(&String::from_utf8_lossy(location.as_bytes())),
        why: why.into(),
    };
    let next = location.to_str().map_err(|_| refused("the redirect is no plain text"));
    Some(next.and_then(|next| from.url.join(next).map_err(|error| refused(&error.to_string()))).map(|mut next| {
        next.set_fragment(None);
        next
    }))
}
