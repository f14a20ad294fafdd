//! What whoever serves the interface decides: the token, the limits, the clock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use aos_abi::{Timestamp, limits};

/// Tells the time; tests set it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The limits and habits of the interface.
#[derive(Clone)]
pub struct Options {
    /// What TCP clients must send as `Authorization: Bearer …`.
    pub token: Token,
    /// Further names by which a loopback listener may be addressed, without a port; for proxies on the same machine.
    pub hosts: Vec<String>,
    /// The user whose programs may use the socket, beside root.
    pub socket_uid: u32,
    /// Most connections of one listener at once; those beyond are answered 503.
    pub connections_max: usize,
    /// Most requests to one webhook that are read or wait for its agent at once; those beyond are answered 503.
    pub webhooks_max: usize,
    /// Most requests a minute to one webhook that anybody may call; those beyond are answered 429.
    pub webhook_unsigned_per_minute: u32,
    /// Largest body of most routes, in bytes.
    pub body_bytes_max: usize,
    /// Largest body of a spawn, whose files are in it, in bytes.
    pub files_bytes_max: usize,
    /// Largest request of a program to a model, in bytes.
    pub program_bytes_max: usize,
    /// Most bytes of such requests that are held at once, from the first byte to the end of the answer, a quarter of it by
    /// one key; those that find no room are answered 503.
    pub programs_bytes_max: usize,
    /// A client must have sent its headers by then, counted from the connection or the answer before.
    pub header_within: Duration,
    /// A client must have sent its body by then.
    pub body_within: Duration,
    /// A client that takes nothing of its answer for so long is cut off.
    pub stall_within: Duration,
    /// How often a silent event stream sends a comment, so that proxies keep it open.
    pub keep_alive_every: Duration,
    /// How long requests under way may go on after the shutdown began.
    pub drain_within: Duration,
    /// Entries that a stream reads from the journal at once.
    pub page_entries: usize,
    /// The clock.
    pub clock: Clock,
}

impl Options {
    /// The defaults, with a token.
    #[must_use]
    pub fn new(token: Token) -> Options {
        Options {
            token,
            hosts: Vec::new(),
            socket_uid: rustix::process::geteuid().as_raw(),
            connections_max: 1024,
            webhooks_max: 256,
            webhook_unsigned_per_minute: limits::WEBHOOK_UNSIGNED_PER_MINUTE,
            body_bytes_max: 2 << 20,
            files_bytes_max: 64 << 20,
            program_bytes_max: 32 << 20,
            programs_bytes_max: 512 << 20,
            header_within: Duration::from_secs(10),
            body_within: Duration::from_secs(60),
            stall_within: Duration::from_secs(60),
            keep_alive_every: Duration::from_secs(15),
            drain_within: Duration::from_secs(5),
            page_entries: 128,
            clock: Arc::new(now),
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("hosts", &self.hosts)
            .field("socket_uid", &self.socket_uid)
            .finish_non_exhaustive()
    }
}

/// The bearer token. It is compared in constant time and never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// A token so short that it could be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token of {0} bytes could be guessed, the least is {least}", least = Token::BYTES_MIN)]
pub struct ShortToken(pub usize);

impl Token {
    /// Fewest bytes of a token.
    pub const BYTES_MIN: usize = 16;

    /// A token as it stands in its file; white space around it does not belong to it.
    ///
    /// # Errors
    /// Where it is shorter than [`Token::BYTES_MIN`], the empty one above all.
    pub fn new(text: &str) -> Result<Token, ShortToken> {
        let bytes = text.trim().as_bytes();
        if bytes.len() < Token::BYTES_MIN { Err(ShortToken(bytes.len())) } else { Ok(Token(bytes.to_vec())) }
    }

    /// Whether `given` is the token. Both are hashed first, so the time tells neither where they differ nor how long
    /// the token is.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        let mac = |of: &[u8]| {
            let keyed = Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC key may have any length");
            keyed.chain_update(of)
        };
        mac(given).verify_slice(&mac(&self.0).finalize().into_bytes()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_only() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["", "0", "0123456789abcdee", "0123456789abcdef0", "0123456789ABCDEF"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert_eq!(Token::new("  ").unwrap_err(), ShortToken(0));
    }
}
