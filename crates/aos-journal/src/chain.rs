//! The hash chain: what makes a changed, missing or moved entry visible.
//!
//! Start at [`link`]. Two steps for each entry, so that a pruned entry can leave its digest behind and the chain
//! stays provable over it:
//!
//! ```text
//! digest = SHA-256( at: i64 BE ‖ cause: u64 BE, 0 for none ‖ length of kind: u8 ‖ kind ‖ body )
//! hash   = SHA-256( hash of the entry before, 32 zeros for the first ‖ lsn: u64 BE ‖ pid: u64 BE ‖ digest )
//! ```
//!
//! `body` is the JSON of the entry's body as stored, byte for byte. The chain shows accidents and edits; whoever can
//! rewrite the whole file can also rewrite the whole chain, so compare the last hash with one kept elsewhere.

use aos_abi::{Lsn, Pid, Timestamp};
use sha2::{Digest, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// Stands before the first entry.
pub const GENESIS: Hash = [0; 32];

/// What an entry says, apart from its place.
#[must_use]
pub fn digest(at: Timestamp, cause: Option<Lsn>, kind: &str, body: &[u8]) -> Hash {
    let kind_len = u8::try_from(kind.len()).unwrap_or(u8::MAX);
    Sha256::new()
        .chain_update(at.0.to_be_bytes())
        .chain_update(cause.unwrap_or(Lsn::ZERO).0.to_be_bytes())
        .chain_update([kind_len])
        .chain_update(kind)
        .chain_update(body)
        .finalize()
        .into()
}

/// The hash of an entry: its digest at its place after `before`.
#[must_use]
pub fn link(before: &Hash, lsn: Lsn, pid: Pid, digest: &Hash) -> Hash {
    Sha256::new()
        .chain_update(before)
        .chain_update(lsn.0.to_be_bytes())
        .chain_update(pid.0.to_be_bytes())
        .chain_update(digest)
        .finalize()
        .into()
}

/// Guards the saved state of a process, or of the kernel with [`Pid::SYSTEM`]: SQLite itself has no checksums.
pub(crate) fn state_digest(lsn: Lsn, pid: Pid, state: &[u8]) -> Hash {
    Sha256::new()
        .chain_update(lsn.0.to_be_bytes())
        .chain_update(pid.0.to_be_bytes())
        .chain_update(state)
        .finalize()
        .into()
}

/// In lower-case hexadecimal.
#[must_use]
pub fn hex(hash: &Hash) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("a nibble is a digit");
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// From hexadecimal; `None` where it is not 64 such digits.
#[must_use]
pub fn unhex(text: &str) -> Option<Hash> {
    let mut hash = GENESIS;
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format on disk: a change here needs a new format number and a migration. The value was computed apart from
    /// this code, with Python's hashlib over the bytes that the module's text describes.
    #[test]
    fn the_bytes_are_those_of_the_text() {
        let digest = digest(Timestamp(1_795_305_600_000), Some(Lsn(40)), "tick", br#"{"type":"tick"}"#);
        let hash = link(&GENESIS, Lsn(41), Pid(7), &digest);
        assert_eq!(hex(&digest), "3e1397370b484666e03d0ff0e07ea1e41798fffde1e2121ef262bb8a45d8e66c");
        assert_eq!(hex(&hash), "50af2623c2c710c20ffae1190ba98327379ce472def7247a7a3fae3cdb37b5ed");
        assert_eq!(unhex(&hex(&hash)), Some(hash));
    }
}
