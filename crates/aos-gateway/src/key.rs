//! The keys of programs: what one looks like, where a request shows it, and the hash under which the system knows it.
//!
//! Start at [`Key::shown`]. What always holds: the system is asked about hashes only, so neither the journal nor a look-up
//! ever holds a key; what does not have the form of a key is refused without asking.

use std::fmt;

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Where Anthropic's clients put it.
pub(crate) const X_API_KEY: &str = "x-api-key";
const HINT: &str =
    "make a key with `aos models key NAME` and send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";

/// A text in the form of a key. Whose it is, if anybody's, the system says.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// How every key begins, so that it is recognised where it should not be, in a log or a repository.
    pub const PREFIX: &str = "aos_sk_";
    /// Characters of base64url after that: 32 random bytes, not padded.
    pub const SECRET_CHARS: usize = 43;

    /// A text as a key, where it has the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Key> {
        let secret = text.strip_prefix(Key::PREFIX)?;
        let base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (secret.len() == Key::SECRET_CHARS && secret.bytes().all(base64url)).then(|| Key(text.to_owned()))
    }

    /// Its SHA-256 in lower-case hex. A key is random, so neither salt nor a slow hash would add anything.
    #[must_use]
    pub fn sha256(&self) -> String {
        Sha256::digest(&self.0).iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = fmt::Write::write_fmt(&mut hex, format_args!("{byte:02x}"));
            hex
        })
    }

    /// The key that a request shows.
    ///
    /// # Errors
    /// 401 where it shows none, several, or something else.
    pub(crate) fn shown(headers: &HeaderMap) -> Result<Key, ApiError> {
        let refused = |message: &str| ApiError::unauthorized(message).hint(HINT);
        let bearers = headers.get_all(header::AUTHORIZATION).iter().map(|value| bearer(value.as_bytes()));
        let bare = headers.get_all(X_API_KEY).iter().map(|value| Some(value.as_bytes().trim_ascii()));
        let mut shown = None;
        for text in bearers.chain(bare) {
            let text = text.ok_or_else(|| refused("the header Authorization holds no bearer key"))?;
            if shown.is_some_and(|before| before != text) {
                return Err(refused("the request shows two different keys"));
            }
            shown = Some(text);
        }
        let text = shown.ok_or_else(|| refused("this route needs a program's key"))?;
        let key = std::str::from_utf8(text).ok().and_then(Key::parse);
        key.ok_or_else(|| refused("this is no key of a program"))
    }

    /// Whether a request shows what begins like a key, right or wrong.
    pub(crate) fn is_shown(headers: &HeaderMap) -> bool {
        headers.contains_key(X_API_KEY)
            || headers
                .get_all(header::AUTHORIZATION)
                .iter()
                .any(|value| bearer(value.as_bytes()).is_some_and(|text| text.starts_with(Key::PREFIX.as_bytes())))
    }

    /// 401: nobody's.
    pub(crate) fn unknown() -> ApiError {
        ApiError::unauthorized("this key was never given out, or was taken back").hint(HINT)
    }

    /// 401: the daemon's token, which opens everything, where a key with a budget belongs.
    pub(crate) fn not_the_token() -> ApiError {
        ApiError::unauthorized("the daemon's token is not for programs, since it has no budget").hint(HINT)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The text after `Bearer`, whose scheme has no case (RFC 9110, 11.1).
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(|byte| *byte == b' ')?;
    value[..at].eq_ignore_ascii_case(b"bearer").then(|| value[at..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    const KEY: &str = "aos_sk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-";

    fn shown(headers: &[(&str, &str)]) -> Result<String, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        let shown = Key::shown(&map);
        assert!(shown.is_err() || Key::is_shown(&map));
        shown.map(|key| key.0).map_err(|error| {
            assert_eq!(error.status, 401);
            assert!(error.hint.unwrap().contains("aos models key NAME"));
            error.message
        })
    }

    #[test]
    fn a_key_has_one_form() {
        assert!(Key::parse(KEY).is_some());
        for other in
            ["", "aos_sk_", &KEY[1..], &KEY[..49], &format!("{KEY}A"), &KEY.replace('-', "+"), &KEY.replace("sk", "SK")]
        {
            assert!(Key::parse(other).is_none(), "{other}");
        }
        assert_eq!(format!("{:?}", Key::parse(KEY)), "Some(Key(…))");
    }

    #[test]
    fn its_hash_is_that_of_sha256sum() {
        let hash = Key::parse(KEY).unwrap().sha256();
        assert_eq!(hash, "69d8a6483e26c09ced29f2f3918da0998aab7b4470167347f3ee7376bb50e008");
    }

    #[test]
    fn it_is_shown_in_one_way_or_twice_the_same() {
        let bearer = format!("bearer  {KEY}");
        for headers in [
            &[("authorization", bearer.as_str())][..],
            &[("x-api-key", KEY)],
            &[("x-api-key", KEY), ("authorization", &bearer)],
        ] {
            assert_eq!(shown(headers).as_deref(), Ok(KEY));
        }
        let other = KEY.replace('-', "_");
        for (headers, message) in [
            (&[][..], "this route needs a program's key"),
            (&[("authorization", KEY)], "the header Authorization holds no bearer key"),
            (&[("authorization", "Basic QTpC")], "the header Authorization holds no bearer key"),
            (&[("authorization", "Bearer ")], "this is no key of a program"),
            (&[("x-api-key", &KEY[..40])], "this is no key of a program"),
            (&[("x-api-key", &other), ("authorization", &bearer)], "the request shows two different keys"),
            (&[("x-api-key", &other), ("x-api-key", KEY)], "the request shows two different keys"),
        ] {
            assert_eq!(shown(headers), Err(message.to_owned()), "{headers:?}");
        }
    }
}
