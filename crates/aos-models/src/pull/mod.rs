//! Fetching a model's file: over connections that break, from servers that mislead, onto disks that are full.
//!
//! Start at [`pull`]; `part` is what is here of a file, `known` the models that go by name. What always holds: under its
//! own name a file is whole and has the checksum that was given, or the one that its server gave; what broke off goes
//! on where it ended, if the server can; nothing is fetched that does not fit onto the disk; every wait has a deadline.
//! Requests go through the proxy that the environment names, as those to model servers do.

mod fault;
mod known;
mod part;

use std::path::Path;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE};
use reqwest::{Response, StatusCode, Url};
use tokio::time::{sleep, timeout};

pub use fault::Fault;
pub use known::{File, KNOWN, Known, Makes};

use crate::client::{Clients, loopback};
use part::{Note, Part};

/// How often an address may lead on.
const HOPS_MAX: usize = 5;
/// Bytes that stay free on the disk.
const SPARE: u64 = 64 << 20;
/// After so many bytes the disk is looked at again: others write to it too.
const LOOK_AGAIN: u64 = 64 << 20;
/// Bytes that stay free where the server has not said how many come: such an answer may have no end.
const SPARE_UNTOLD: u64 = 1 << 30;

/// What is to be fetched.
#[derive(Clone, Copy, Debug)]
pub struct Order<'o> {
    /// From where.
    pub url: &'o str,
    /// The file that it becomes; its folder exists.
    pub to: &'o Path,
    /// What its SHA-256 must be, in hex; without it the server's word is taken, where it gives one.
    pub sha256: Option<&'o str>,
}

/// How long is waited, and how often tried.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until an answer begins, and between two pieces of it.
    pub stall: Duration,
    /// Tries in a row that brought nothing new; also how often what is here may be thrown away and all be fetched again.
    pub tries: u32,
    /// Before the second of them; twice as long before each further one.
    pub wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            tries: 5,
            wait: Duration::from_secs(1),
        }
    }
}

/// Who says what the checksum must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouched {
    /// Whoever asked for the file.
    Order,
    /// The server it came from.
    Server,
    /// Nobody: what came is only known to be as long as announced.
    Nobody,
    /// The record of an earlier time: it was here already, and nothing was fetched.
    Record,
}

/// A file that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hex, also in `NAME.sha256` beside it.
    pub sha256: String,
    /// Who says that this is right.
    pub vouched: Vouched,
    /// Bytes that an earlier attempt had left.
    pub kept: u64,
}

/// Why a try ended.
enum Ended {
    /// Another one may help.
    Broke(String),
    Fault(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        Ended::Fault(fault)
    }
}

/// Fetches a file. `told` hears how many bytes are here, and of how many.
///
/// # Errors
/// Why it is not here. What came of it stays for the next time, unless it is of no use.
///
/// # Cancel safety
/// What has come stays for the next time.
pub async fn pull(
    order: Order<'_>,
    patience: Patience,
    told: &mut (dyn FnMut(u64, Option<u64>) + Send),
) -> Result<Pulled, Fault> {
    let url = parsed(&order)?;
    if order.to.exists() {
        return there(&order);
    }
    let clients = Clients::new(concat!("aos/", env!("CARGO_PKG_VERSION")), patience.connect);
    let mut part = Part::open(order.to, order.url).await?;
    let mut failed = 0;
    loop {
        let before = part.have;
        match attempt(&order, &url, &clients, patience, &mut part, told).await {
            Ok(()) => {}
            Err(Ended::Fault(fault)) => {
                match fault {
                    Fault::Other { .. } => part.discard(),
                    _ => part.flush().await?,
                }
                return Err(fault);
            }
            Err(Ended::Broke(why)) => {
                part.flush().await?;
                failed = if part.have > before { 0 } else { failed + 1 };
                if failed >= patience.tries || part.restarts >= patience.tries {
                    return Err(Fault::Broken { host: host(&url), have: part.have, why });
                }
                tracing::debug!(url = order.url, have = part.have, why, "the download goes on");
                sleep(patience.wait * 2u32.saturating_pow(failed.min(6))).await;
                continue;
            }
        }
        let got = part.sha256();
        let (vouched, expected) = match (order.sha256, &part.note.sha256) {
            (Some(given), _) => (Vouched::Order, given.to_ascii_lowercase()),
            (None, Some(given)) => (Vouched::Server, given.clone()),
            (None, None) => (Vouched::Nobody, got.clone()),
        };
        if expected == got {
            let (bytes, kept) = (part.have, part.kept);
            part.finish(order.to, &got).await?;
            return Ok(Pulled { bytes, sha256: got, vouched, kept });
        }
        // What an earlier attempt left may be of another file.
        if part.kept == 0 {
            part.discard();
            return Err(Fault::Checksum { expected, got });
        }
        part.restart().await?;
    }
}

/// A file that is there: it is what was asked for, or a person's own, which stays as it is.
fn there(order: &Order<'_>) -> Result<Pulled, Fault> {
    let bytes = std::fs::metadata(order.to).map_err(Fault::io(order.to))?.len();
    match part::recorded(order.to) {
        Some(sha256) if order.sha256.is_none_or(|given| given.eq_ignore_ascii_case(&sha256)) => {
            Ok(Pulled { bytes, sha256, vouched: Vouched::Record, kept: bytes })
        }
        _ => Err(Fault::Taken(order.to.to_owned())),
    }
}

fn parsed(order: &Order<'_>) -> Result<Url, Fault> {
    let wrong = || Fault::Address(order.url.to_owned());
    let url: Url = order.url.parse().map_err(|_| wrong())?;
    let named = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !named || !url.username().is_empty() || url.password().is_some() {
        return Err(wrong());
    }
    if url.scheme() == "http" && !loopback(&url) && order.sha256.is_none() {
        return Err(Fault::Plain(host(&url)));
    }
    Ok(url)
}

/// One connection, from where the file ends to its end.
async fn attempt(
    order: &Order<'_>,
    url: &Url,
    clients: &Clients,
    patience: Patience,
    part: &mut Part,
    told: &mut (dyn FnMut(u64, Option<u64>) + Send),
) -> Result<(), Ended> {
    let given = order.sha256.is_some();
    let (response, sha256) = answer(url, clients, patience, part, given).await?;
    let host = host(response.url());
    let etag = strong(response.headers());
    let note = Note { url: order.url.to_owned(), etag, sha256 };
    let total = match response.status() {
        StatusCode::OK => {
            part.restart().await?;
            response.content_length()
        }
        StatusCode::PARTIAL_CONTENT => match range(response.headers()) {
            Some((from, total)) if from == part.have && same(&part.note, &note, given) => total,
            _ => {
                part.restart().await?;
                return Err(Ended::Broke("the file on the server is not what it was".to_owned()));
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let all = range_of_none(response.headers());
            if all.is_some_and(|all| all == part.have) && same(&part.note, &note, given) {
                return Ok(());
            }
            part.restart().await?;
            return Err(Ended::Broke("the file on the server is not what it was".to_owned()));
        }
        status => return Err(refused(status, host)),
    };
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/html") {
        return Err(Fault::Other { host, why: "it is a web page" }.into());
    }
    space(order.to, needed(total, part.have))?;
    part.take_down(note)?;
    take(response, total, order, patience, part, told).await
}

/// Bytes that the disk must have room for.
fn needed(total: Option<u64>, have: u64) -> u64 {
    total.map_or(SPARE_UNTOLD, |total| total.saturating_sub(have))
}

/// The body of an answer, to its end.
async fn take(
    mut response: Response,
    total: Option<u64>,
    order: &Order<'_>,
    patience: Patience,
    part: &mut Part,
    told: &mut (dyn FnMut(u64, Option<u64>) + Send),
) -> Result<(), Ended> {
    let host = host(response.url());
    let mut looked = part.have;
    let (from, mark) = mark(order.to);
    loop {
        let more = match timeout(patience.stall, response.chunk()).await {
            Err(_) => return Err(Ended::Broke("nothing came any more".to_owned())),
            Ok(Err(error)) => return Err(Ended::Broke(error.without_url().to_string())),
            Ok(Ok(None)) => break,
            Ok(Ok(Some(more))) => more,
        };
        let is_it = |(at, is): (u64, &u8)| {
            let at = at.checked_sub(part.have).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| more.get(at)).is_none_or(|got| got == is)
        };
        if !(from..).zip(mark).all(is_it) {
            return Err(Fault::Other { host, why: "it does not begin as one" }.into());
        }
        // Of a part of a file the length that HTTP holds a server to need not be the one that it says of the file.
        if total.is_some_and(|total| part.have + more.len() as u64 > total) {
            return Err(Fault::Other { host, why: "it is longer than was said" }.into());
        }
        part.write(&more).await?;
        told(part.have, total);
        if part.have - looked > LOOK_AGAIN {
            looked = part.have;
            space(order.to, needed(total, part.have))?;
        }
    }
    match total {
        Some(total) if part.have < total => Err(Ended::Broke(format!("it ended after {} bytes of {total}", part.have))),
        _ if part.have < from + mark.len() as u64 => Err(Fault::Other { host, why: "it is empty" }.into()),
        _ => Ok(()),
    }
}

/// The answer of whoever has the file, and the SHA-256 that was told on the way to it.
async fn answer(
    url: &Url,
    clients: &Clients,
    patience: Patience,
    part: &Part,
    given: bool,
) -> Result<(Response, Option<String>), Ended> {
    let (mut at, mut sha256) = (url.clone(), None);
    for _ in 0..=HOPS_MAX {
        let client = clients.to(&at, false).map_err(|failure| Fault::Client(failure.message))?;
        // Packed bytes could not be gone on with.
        let mut request = client.get(at.clone()).header(ACCEPT_ENCODING, "identity");
        let known = given || part.note.sha256.is_some();
        if part.have > 0 && (known || part.note.etag.is_some()) {
            request = request.header(RANGE, format!("bytes={}-", part.have));
            if let (false, Some(etag)) = (known, &part.note.etag) {
                request = request.header(IF_RANGE, etag);
            }
        }
        let response = match timeout(patience.stall, request.send()).await {
            Err(_) => return Err(Ended::Broke(format!("{} does not answer", host(&at)))),
            Ok(Err(error)) => {
                return Err(Ended::Broke(crate::client::failed(error, &host(&at), loopback(&at)).message));
            }
            Ok(Ok(response)) => response,
        };
        sha256 = sha256.or_else(|| linked(response.headers()));
        if !response.status().is_redirection() {
            return Ok((response, sha256));
        }
        let next = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).and_then(|to| at.join(to).ok());
        let astray = |why: &str| Fault::Astray { host: host(&at), why: why.to_owned() };
        let next = next.ok_or_else(|| astray("to nowhere"))?;
        if at.scheme() == "https" && next.scheme() != "https" || !matches!(next.scheme(), "http" | "https") {
            return Err(astray("to an address that is not protected").into());
        }
        at = next;
    }
    Err(Fault::Astray { host: host(url), why: format!("more than {HOPS_MAX} times") }.into())
}

/// What stands at which byte of a file of this name.
fn mark(to: &Path) -> (u64, &'static [u8]) {
    match to.extension().and_then(|extension| extension.to_str()) {
        // Behind the length of its header, which is JSON.
        Some("safetensors") => (8, b"{"),
        Some("json") => (0, b"{"),
        _ => (0, b"GGUF"),
    }
}

fn refused(status: StatusCode, host: String) -> Ended {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Fault::Absent(host).into(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Fault::Closed(host).into(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Ended::Broke(format!("{host} says {status}")),
        status if status.is_server_error() => Ended::Broke(format!("{host} says {status}")),
        status => Fault::Refused { host, status: status.as_u16() }.into(),
    }
}

/// Whether what is here may be gone on with: where the checksum is known it tells at the end, else the server's name for
/// the bytes must be the same.
fn same(here: &Note, comes: &Note, given: bool) -> bool {
    let known = given || here.sha256.is_some();
    here.sha256 == comes.sha256 && (known || here.etag.is_some() && here.etag == comes.etag)
}

/// A name that the server gives these very bytes.
fn strong(headers: &HeaderMap) -> Option<String> {
    headers.get(ETAG)?.to_str().ok().filter(|etag| etag.starts_with('"')).map(str::to_owned)
}

/// The SHA-256 of a large file, as Hugging Face tells it.
fn linked(headers: &HeaderMap) -> Option<String> {
    let told = headers.get("x-linked-etag")?.to_str().ok()?.trim_matches('"');
    is_sha256(told).then(|| told.to_ascii_lowercase())
}

/// The first byte and the size of all, of `bytes 5-9/10`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (part, all) = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    Some((part.split_once('-')?.0.parse().ok()?, all.parse().ok()))
}

/// The size of all, of `bytes */10`.
fn range_of_none(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes */")?.parse().ok()
}

fn space(to: &Path, more: u64) -> Result<(), Fault> {
    let folder = to.parent().unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(folder).map_err(|error| Fault::io(folder)(error.into()))?;
    let (free, needed) = (disk.f_bavail.saturating_mul(disk.f_frsize), more.saturating_add(SPARE));
    if free < needed { Err(Fault::Space { folder: folder.to_owned(), free, needed }) } else { Ok(()) }
}

fn host(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or("?"))
}

/// Whether a text is a SHA-256 in hex.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
