//! Secrets: put into a request at the edge, and covered in whatever comes back.
//!
//! Start at [`put_in`] and [`Mask`]. What always holds: a secret goes to the one host and port that it was made for, over
//! TLS or to this machine itself, and to no other place that a redirect names; what a caller set in its header is
//! replaced; what comes back has stars in its place, as many as it has bytes, so that lengths stay true.
//!
//! Deliberately absent: finding a secret that the other side has rewritten (reversed, encoded). It was given to that
//! host; a host that hands it out in disguise is not one to give it to.

use std::fmt;

use aos_abi::{CallError, Code};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE};
use serde_json::Value;

use super::destination::Destination;
use super::error::Error;
use super::headers::is_framing;

/// Fewest characters of a secret: a shorter one stands in ordinary text too, and covering it would spoil that.
const CHARS_MIN: usize = 8;
/// Most bytes of a secret.
const BYTES_MAX: usize = 8 << 10;
/// So much of a secret's beginning is covered where the text ends with it.
const BEGINNING_MIN: usize = 4;

/// A secret for one place.
#[derive(Clone)]
pub struct Secret {
    name: String,
    /// `HOST:PORT`.
    to: String,
    header: HeaderName,
    value: Result<Held, CallError>,
}

#[derive(Clone)]
struct Held {
    /// As it is sent.
    sent: HeaderValue,
    /// What must not come back: without the scheme of an `authorization`.
    covered: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} to {})", self.name, self.to)
    }
}

impl Secret {
    /// A secret that goes to `host`, as the policy writes it, and `port` in `header`. Where its value could not be read,
    /// the error is what a call to that place gets. In `authorization` a value of one word is sent as `Bearer VALUE`.
    #[must_use]
    pub fn new(name: &str, host: &str, port: u16, header: &str, value: Result<String, CallError>) -> Secret {
        let unusable = |why: &str| {
            CallError::new(Code::Io, format!("the secret {name} cannot be used: {why}"))
                .hint("this is for a person to mend: aos doctor")
        };
        let known = HeaderName::from_bytes(header.as_bytes()).ok().filter(|name| !is_framing(name.as_str()));
        let header = known.clone().unwrap_or(AUTHORIZATION);
        let value = match known {
            None => Err(unusable("no caller can set its header")),
            Some(_) => value.and_then(|value| held(&header, value.trim()).map_err(unusable)),
        };
        Secret { name: name.to_owned(), to: format!("{host}:{port}"), header, value }
    }
}

impl Secret {
    /// Whether it is for this host, without brackets, and port.
    #[must_use]
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() };
        self.to == format!("{}:{port}", host.trim_end_matches('.'))
    }
}

fn held(header: &HeaderName, value: &str) -> Result<Held, &'static str> {
    let (scheme, bare) = match value.split_once(' ') {
        Some((scheme, bare)) if *header == AUTHORIZATION => (scheme, bare.trim_start()),
        None if *header == AUTHORIZATION => ("Bearer", value),
        _ => ("", value),
    };
    if bare.chars().count() < CHARS_MIN {
        return Err("it has fewer than 8 characters");
    }
    if bare.len() > BYTES_MAX {
        return Err("it has more than 8192 bytes");
    }
    let text = if scheme.is_empty() { bare.to_owned() } else { format!("{scheme} {bare}") };
    let mut sent = HeaderValue::from_str(&text).map_err(|_| "it has a line break or another control character")?;
    sent.set_sensitive(true);
    Ok(Held { sent, covered: bare.as_bytes().to_vec() })
}

/// Puts the secrets for this place into a request's headers.
///
/// # Errors
/// Where one is for this place and has no value, or would go over a wire that others can read.
pub(super) fn put_in(secrets: &[Secret], to: &Destination, headers: &mut HeaderMap) -> Result<(), Error> {
    for secret in secrets.iter().filter(|secret| secret.to == to.host) {
        let held = secret.value.as_ref().map_err(|error| Error::Secret(Box::new(error.clone())))?;
        let on_this_machine = to.addresses().iter().all(|address| address.ip().is_loopback());
        if to.url.scheme() != "https" && !on_this_machine {
            let why = format!("the secret {} goes to {} over TLS alone", secret.name, secret.to);
            return Err(Error::Secret(Box::new(CallError::new(Code::Perm, why).hint("write https"))));
        }
        headers.insert(secret.header.clone(), held.sent.clone());
        // An answer in parts would bring back a secret in parts.
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
    Ok(())
}

/// What must not come back, whoever sends it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    covered: Vec<Vec<u8>>,
}

/// A text without what these would put into a request: what a server does with it is its own.
#[must_use]
pub fn covered(secrets: &[Secret], text: &str) -> String {
    let mut text = text.to_owned();
    Mask::of(secrets).text(&mut text);
    text
}

impl Mask {
    pub(super) fn of(secrets: &[Secret]) -> Mask {
        let mut mask = Mask::default();
        mask.add(secrets);
        mask
    }

    /// These neither.
    pub(super) fn add(&mut self, secrets: &[Secret]) {
        for held in secrets.iter().filter_map(|secret| secret.value.as_ref().ok()) {
            if !self.covered.contains(&held.covered) {
                self.covered.push(held.covered.clone());
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.covered.is_empty()
    }

    /// Covers what is there whole.
    fn cover(&self, bytes: &mut [u8]) {
        for covered in &self.covered {
            let mut at = 0;
            while let Some(found) = bytes[at..].windows(covered.len()).position(|window| window == covered) {
                bytes[at + found..at + found + covered.len()].fill(b'*');
                at += found + covered.len();
            }
        }
    }

    /// How many bytes at the end may be the beginning of something that must not come back.
    fn begun(&self, bytes: &[u8]) -> usize {
        let of = |covered: &Vec<u8>| {
            let most = bytes.len().min(covered.len() - 1);
            (1..=most).rev().find(|length| bytes.ends_with(&covered[..*length])).unwrap_or(0)
        };
        self.covered.iter().map(of).max().unwrap_or(0)
    }

    /// Covers a whole text, and at its end a beginning.
    pub(super) fn bytes(&self, bytes: &mut [u8]) {
        self.cover(bytes);
        let begun = self.begun(bytes);
        if begun >= BEGINNING_MIN {
            let from = bytes.len() - begun;
            bytes[from..].fill(b'*');
        }
    }

    fn text(&self, text: &mut String) {
        // Stars stand for whole characters: what is covered was text itself.
        let mut bytes = std::mem::take(text).into_bytes();
        self.cover(&mut bytes);
        *text = String::from_utf8_lossy(&bytes).into_owned();
    }

    /// Covers it in every text of a value.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Covers it in what is said of a failure.
    pub(super) fn error(&self, mut error: CallError) -> CallError {
        self.text(&mut error.message);
        error.hint.iter_mut().for_each(|hint| self.text(hint));
        error
    }

    /// Covers it in an answer's headers; a header that is named like it is taken out.
    pub(super) fn headers(&self, headers: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        let names_it = |name: &HeaderName| {
            let held = |covered: &Vec<u8>| name.as_str().contains(&*String::from_utf8_lossy(covered).to_lowercase());
            self.covered.iter().any(held)
        };
        let kept = std::mem::take(headers);
        let mut name = None;
        for (next, value) in kept {
            name = next.or(name);
            let Some(name) = name.as_ref().filter(|name| !names_it(name)) else { continue };
            let mut bytes = value.as_bytes().to_vec();
            self.cover(&mut bytes);
            headers.append(name, HeaderValue::from_bytes(&bytes).unwrap_or(value));
        }
    }
}

/// Covers a text that comes in pieces.
#[derive(Debug)]
pub(super) struct Masking {
    mask: Mask,
    /// The end of what has come, as long as it may be the beginning of something.
    kept: Vec<u8>,
}

impl Masking {
    pub(super) fn new(mask: Mask) -> Masking {
        Masking { mask, kept: Vec::new() }
    }

    /// The next piece, less what cannot be told yet.
    pub(super) fn take(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend_from_slice(piece);
        self.mask.cover(&mut bytes);
        self.kept = bytes.split_off(bytes.len() - self.mask.begun(&bytes));
        bytes
    }

    /// What is left at the end.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.kept);
        self.mask.bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(header: &str, value: &str) -> Secret {
        Secret::new("TOKEN", "a.dev", 443, header, Ok(value.to_owned()))
    }

    #[test]
    fn a_value_is_a_bearer_unless_it_says_otherwise() {
        let sent = |header: &str, value: &str| {
            let held = secret(header, value).value.unwrap();
            (held.sent.to_str().unwrap().to_owned(), String::from_utf8(held.covered).unwrap())
        };
        let is = |sent: &str, covered: &str| (sent.to_owned(), covered.to_owned());
        assert_eq!(sent("authorization", "abcdefgh\n"), is("Bearer abcdefgh", "abcdefgh"));
        assert_eq!(sent("authorization", "Basic abcdefgh"), is("Basic abcdefgh", "abcdefgh"));
        assert_eq!(sent("x-key", "ab cdefgh"), is("ab cdefgh", "ab cdefgh"));
        for (header, value) in [("authorization", "short"), ("x-key", "abcdefgh\nx: y"), ("host", "abcdefgh")] {
            let error = secret(header, value).value.err().unwrap();
            assert!(!error.message.contains(value), "{error:?}");
        }
        assert!(!format!("{:?}", secret("x-key", "abcdefgh")).contains("abcdefgh"));
    }

    #[test]
    fn whatever_the_pieces_it_is_covered_and_nothing_else_is() {
        let secrets = [secret("x-a", "abcabcabd"), secret("x-b", "ghp_12345678")];
        let mask = Mask::of(&secrets);
        let text = b"abcabcabcabd, ghp_1234, ghp_12345678ghp_12345678 and abc".to_vec();
        let mut whole = text.clone();
        mask.bytes(&mut whole);
        assert_eq!(String::from_utf8_lossy(&whole), "abc*********, ghp_1234, ************************ and abc");
        for size in 1..text.len() {
            let mut masking = Masking::new(mask.clone());
            let mut got: Vec<u8> = text.chunks(size).flat_map(|piece| masking.take(piece)).collect();
            got.extend(masking.end());
            assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&whole), "in pieces of {size}");
        }
        let mut cut = b"and ghp_123".to_vec();
        mask.bytes(&mut cut);
        assert_eq!(cut, b"and *******", "a body that is cut in its middle");
    }
}
