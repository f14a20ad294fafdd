//! Headers: which an agent may set, which go along to another origin, and how an answer's are shown.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::error::Error;

/// Most headers, and most bytes of them together.
const HEADERS_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Headers that frame the message or belong to one connection (RFC 9110, 7.6.1; RFC 9112, 6): whoever sets them can make
/// two readers see two messages. `accept-encoding` is set to what the driver can undo.
const FRAMING: [&str; 13] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
    "proxy-authorization",
    "proxy-connection",
    "accept-encoding",
];
/// Headers by which a server may do another request than the rules were asked about: another method, path or host.
const REWRITING: [&str; 6] =
    ["forwarded", "x-host", "x-http-host-override", "x-http-method", "x-http-method-override", "x-method-override"];
/// And how the names of such begin.
const REWRITING_BEGIN: [&str; 3] = ["x-forwarded-", "x-original-", "x-rewrite-"];
/// What is said of them.
pub(super) const REWRITES: &str = "can make another request of it than the rules were asked about";
/// What goes along when a redirect leads to another origin; anything else may be a credential.
const PORTABLE: [&str; 3] = ["accept", "accept-language", "user-agent"];

/// Whether a header frames the message or belongs to one connection.
pub(super) fn is_framing(name: &str) -> bool {
    FRAMING.contains(&name) || name.starts_with("proxy-")
}

/// Whether a header may make another request of the one that was decided.
pub(super) fn is_rewriting(name: &str) -> bool {
    // A server that hands headers on as variables makes one sign of all of these (RFC 3875, 4.1.18).
    let name = name.replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
    REWRITING.contains(&name.as_str()) || REWRITING_BEGIN.iter().any(|begin| name.starts_with(begin))
}

/// Reads the headers of a call.
pub(super) fn parse(headers: Option<&BTreeMap<String, String>>) -> Result<HeaderMap, Error> {
    let mut parsed = HeaderMap::new();
    let Some(headers) = headers else { return Ok(parsed) };
    let bad = |name: &str, why| Error::Header { name: Error::shown(name), why };
    if headers.len() > HEADERS_MAX || headers.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>() > HEADERS_BYTES_MAX
    {
        return Err(bad("…", "is one of more than 64, or of more than 16384 bytes together"));
    }
    for (name, value) in headers {
        let known =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name, "has a name that no header can have"))?;
        if is_framing(known.as_str()) {
            return Err(bad(name, "is not for callers to set"));
        }
        if is_rewriting(known.as_str()) {
            return Err(bad(name, REWRITES));
        }
        let value =
            HeaderValue::from_str(value).map_err(|_| bad(name, "has a line break or another control character"))?;
        if parsed.insert(known, value).is_some() {
            return Err(bad(name, "is given twice, in different spellings"));
        }
    }
    Ok(parsed)
}

/// What of the caller's headers another origin may see.
pub(super) fn portable(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| PORTABLE.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// An answer's headers as JSON: several of one name joined by a comma, bytes that are no UTF-8 replaced. With `decoded`,
/// without those that describe the body as it was on the wire.
pub(super) fn shown(headers: &HeaderMap, decoded: bool) -> Value {
    let mut shown = Map::new();
    for (name, value) in headers {
        if decoded && matches!(name.as_str(), "content-encoding" | "content-length") {
            continue;
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        match shown.get_mut(name.as_str()) {
            Some(Value::String(before)) => {
                before.push_str(", ");
                before.push_str(&text);
            }
            _ => drop(shown.insert(name.as_str().to_owned(), text.into())),
        }
    }
    shown.into()
}
