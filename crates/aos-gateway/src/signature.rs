//! Signed webhooks: who may wake an agent from outside, and how often with the same request.
//!
//! Start at [`verify`], then [`Seen`]. A signature is HMAC-SHA256 (RFC 2104) in hex, either ours, over
//! `{timestamp}.{body}` in `X-Aos-Signature` with `X-Aos-Timestamp` (seconds since 1970), or GitHub's, over the body in
//! `X-Hub-Signature-256: sha256=…`, which has no time of its own. What always holds: signatures are compared in
//! constant time; one that was taken is not taken again while it would still be valid; no signature of the one form is one
//! of the other. GitHub's is valid for ever and is remembered as long as ours: whoever was shown one can send it again.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use aos_abi::Timestamp;

use crate::error::ApiError;
use crate::system::TakenWebhook;

/// How far a request's time may be from ours, in seconds, both ways.
pub const WINDOW_S: u64 = 300;
/// Most signatures that are remembered; beyond, signed requests wait. Only right ones are, so strangers cannot fill it.
pub const SEEN_MAX: usize = 65_536;

/// A right signature: what is remembered of it, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// SHA-256 of the path and the signature.
    key: [u8; 32],
    /// It is not valid any more after that.
    until: Timestamp,
}

/// Refuses a request that says nothing of a signature, before any of its body is read.
pub(crate) fn claimed(headers: &HeaderMap) -> Result<(), ApiError> {
    let claims = ["x-aos-signature", "x-hub-signature-256"].iter().any(|name| headers.contains_key(*name));
    claims.then_some(()).ok_or_else(|| refused("this webhook takes signed requests only"))
}

/// Checks that whoever holds `secret` signed this request.
pub(crate) fn verify(
    secret: &str,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<Proof, ApiError> {
    let text = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() { Some("") } else { first.map(|value| value.to_str().unwrap_or("")) }
    };
    let mac = || Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("an HMAC key may have any length");
    let window_ms = WINDOW_S * 1000;
    let (mac, given, until) = match (text("x-aos-signature"), text("x-hub-signature-256")) {
        (Some(given), _) => {
            let stamp = text("x-aos-timestamp").ok_or_else(|| refused("the header X-Aos-Timestamp is missing"))?;
            let at =
                parse_seconds(stamp).ok_or_else(|| refused("X-Aos-Timestamp is no number of seconds since 1970"))?;
            if now.millis_since(at).max(at.millis_since(now)) > window_ms {
                return Err(refused("the request's time is more than 300 s from ours"));
            }
            let mac = mac().chain_update(stamp.as_bytes()).chain_update(b".").chain_update(body);
            (mac, given.strip_prefix("sha256=").unwrap_or(given), at.plus_millis(window_ms))
        }
        (None, Some(given)) => {
            let given =
                given.strip_prefix("sha256=").ok_or_else(|| refused("X-Hub-Signature-256 must begin with sha256="))?;
            // Else a request of ours would be one of these once its time is over, with the time as the beginning of its body.
            if stamped(body) {
                return Err(refused("a body that begins with a time and a dot is signed with X-Aos-Signature"));
            }
            (mac().chain_update(body), given, now.plus_millis(window_ms))
        }
        (None, None) => return Err(refused("this webhook takes signed requests only")),
    };
    let given = hex(given).ok_or_else(|| refused("the signature is not 64 hexadecimal digits"))?;
    mac.verify_slice(&given).map_err(|_| refused("the signature is not the right one"))?;
    Ok(Proof { key: key(path, given), until })
}

fn key(path: &str, given: [u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(path.as_bytes()).chain_update([0]).chain_update(given).finalize().into()
}

/// What is to be remembered of a request that was taken before this daemon started.
pub(crate) fn taken(request: &TakenWebhook) -> Option<Proof> {
    let text = |name: &str| request.headers.get(name).map(String::as_str);
    let (given, from) = match text("x-aos-signature") {
        Some(given) => (given, parse_seconds(text("x-aos-timestamp")?)?),
        None => (text("x-hub-signature-256")?, request.at),
    };
    let given = hex(given.strip_prefix("sha256=").unwrap_or(given))?;
    let path = request.path.split('?').next().unwrap_or_default();
    Some(Proof { key: key(path, given), until: from.plus_millis(WINDOW_S * 1000) })
}

fn refused(message: &str) -> ApiError {
    ApiError::unauthorized(message)
        .hint("send X-Aos-Timestamp in seconds and X-Aos-Signature, the HMAC-SHA256 of `{timestamp}.{body}` in hex")
}

fn parse_seconds(text: &str) -> Option<Timestamp> {
    if text.is_empty() || text.len() > 12 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse::<i64>().ok().map(|seconds| Timestamp(seconds * 1000))
}

/// Whether a body begins as what our signatures are over does.
fn stamped(body: &[u8]) -> bool {
    let stamp = body.split(|byte| *byte == b'.').next().filter(|stamp| stamp.len() < body.len());
    stamp.and_then(|stamp| std::str::from_utf8(stamp).ok()).and_then(parse_seconds).is_some()
}

fn hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

/// The signatures that were taken and would still be valid.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    keys: BTreeMap<[u8; 32], Timestamp>,
    by_end: BTreeSet<(Timestamp, [u8; 32])>,
}

impl Seen {
    /// Takes a signature, once.
    pub(crate) fn take(&mut self, proof: Proof, now: Timestamp) -> Result<(), ApiError> {
        while let Some(&(until, key)) = self.by_end.first()
            && until < now
        {
            self.by_end.pop_first();
            self.keys.remove(&key);
        }
        if self.keys.contains_key(&proof.key) {
            return Err(ApiError::new(409, "replayed", "this very request was taken before")
                .hint("sign each request anew, with its own X-Aos-Timestamp"));
        }
        if self.keys.len() >= SEEN_MAX {
            return Err(ApiError::unavailable("too many signed requests in a short time"));
        }
        self.keys.insert(proof.key, proof.until);
        self.by_end.insert((proof.until, proof.key));
        Ok(())
    }

    /// Forgets a signature whose request was not taken after all, so that its sender may try again.
    pub(crate) fn give_back(&mut self, proof: Proof) {
        self.keys.remove(&proof.key);
        self.by_end.remove(&(proof.until, proof.key));
    }
}

/// The header `X-Aos-Signature` for a request; for whoever calls a webhook, and for tests.
#[must_use]
pub fn sign(secret: &str, timestamp_s: u64, body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("an HMAC key may have any length");
    let tag = mac.chain_update(timestamp_s.to_string()).chain_update(b".").chain_update(body).finalize().into_bytes();
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    const NOW: Timestamp = Timestamp(1_795_305_600_000);
    const NOW_S: u64 = 1_795_305_600;

    fn asked(headers: &[(&'static str, &str)], body: &str, now: Timestamp) -> Result<Proof, String> {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect();
        verify("key", "orders", &map, body.as_bytes(), now).map_err(|error| {
            assert_eq!(error.status, 401);
            error.message
        })
    }

    /// RFC 4231 has no vector of this form, so the expected value is from `printf '%s' 1.hi | openssl dgst -sha256 -hmac key`.
    #[test]
    fn the_signature_is_the_one_openssl_makes() {
        assert_eq!(sign("key", 1, b"hi"), "7630b1ac232f1f705ce0be565bdc2947f0eefa51b3549b6a01226c6afc8b62c8");
    }

    #[test]
    fn only_the_right_signature_at_the_right_time_passes() {
        let stamp = NOW_S.to_string();
        let right = sign("key", NOW_S, b"hi");
        let ours = |signature: &str, stamp: &str, body: &str, now: Timestamp| {
            asked(&[("x-aos-signature", signature), ("x-aos-timestamp", stamp)], body, now).map(|_| ())
        };
        assert_eq!(ours(&right, &stamp, "hi", NOW), Ok(()));
        assert_eq!(ours(&right.to_uppercase(), &stamp, "hi", NOW), Ok(()));
        assert_eq!(ours(&right, &stamp, "hi", NOW.plus_millis(300_000)), Ok(()));
        assert!(ours(&right, &stamp, "hi", NOW.plus_millis(300_001)).unwrap_err().contains("300 s"));
        assert!(ours(&right, &stamp, "hi", Timestamp(NOW.0 - 300_001)).unwrap_err().contains("300 s"));
        assert!(ours(&right, &stamp, "ho", NOW).unwrap_err().contains("not the right one"));
        assert!(ours(&right, &(NOW_S + 1).to_string(), "hi", NOW).unwrap_err().contains("not the right one"));
        assert!(ours(&sign("other", NOW_S, b"hi"), &stamp, "hi", NOW).unwrap_err().contains("not the right one"));
        assert!(ours(&right[1..], &stamp, "hi", NOW).unwrap_err().contains("64 hexadecimal"));
        assert!(ours(&right, "-1", "hi", NOW).unwrap_err().contains("no number"));
        assert!(asked(&[("x-aos-signature", &right)], "hi", NOW).unwrap_err().contains("X-Aos-Timestamp is missing"));
        assert!(asked(&[], "hi", NOW).unwrap_err().contains("signed requests only"));
    }

    /// The example of GitHub's documentation, "Validating webhook deliveries".
    #[test]
    fn the_form_of_github_passes() {
        let map: HeaderMap = [(
            HeaderName::from_static("x-hub-signature-256"),
            HeaderValue::from_static("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
        )]
        .into_iter()
        .collect();
        assert!(verify("It's a Secret to Everybody", "a", &map, b"Hello, World!", NOW).is_ok());
        assert!(verify("It's a Secret to Everybody", "a", &map, b"Hello, World?", NOW).is_err());
    }

    #[test]
    fn a_request_of_ours_is_none_of_githubs_when_its_time_is_over() {
        let later = NOW.plus_millis(400_000);
        let github = |mac: &str, body: &str| asked(&[("x-hub-signature-256", &format!("sha256={mac}"))], body, later);
        let signed = sign("key", NOW_S, b"order tea");
        let refused = github(&signed, &format!("{NOW_S}.order tea")).unwrap_err();
        assert!(refused.contains("begins with a time"), "{refused}");
        assert!(
            !stamped(b"{\"at\":1.5}")
                && !stamped(b"payload=1.5")
                && !stamped(b"1234")
                && !stamped(b".")
                && !stamped(b"")
        );
        // No time of ours has as many digits.
        assert!(!stamped(b"1234567890123.x") && stamped(b"1."));
    }

    #[test]
    fn a_signature_is_taken_once_while_it_is_valid() {
        let stamp = NOW_S.to_string();
        let right = sign("key", NOW_S, b"hi");
        let headers = [("x-aos-signature", right.as_str()), ("x-aos-timestamp", stamp.as_str())];
        let proof = asked(&headers, "hi", NOW).unwrap();
        let mut seen = Seen::default();
        assert!(seen.take(proof, NOW).is_ok());
        assert_eq!(seen.take(proof, NOW.plus_millis(300_000)).unwrap_err().status, 409);
        seen.give_back(proof);
        assert!(seen.take(proof, NOW).is_ok(), "its sender may try again");
        let later = Proof { key: [1; 32], until: NOW.plus_millis(900_000) };
        assert!(seen.take(later, NOW.plus_millis(300_001)).is_ok());
        assert_eq!((seen.keys.len(), seen.by_end.len()), (1, 1), "what is over is forgotten");
    }

    #[test]
    fn a_full_memory_takes_no_more() {
        let mut seen = Seen::default();
        let proof = |nth: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&nth.to_le_bytes());
            Proof { key, until: NOW }
        };
        (0..SEEN_MAX).for_each(|nth| seen.take(proof(nth), NOW).unwrap());
        assert_eq!(seen.take(proof(SEEN_MAX), NOW).unwrap_err().status, 503);
        assert!(seen.take(proof(SEEN_MAX), NOW.plus_millis(1)).is_ok());
    }
}
