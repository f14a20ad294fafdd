//! Bytes as JSON can carry them: text where they are text, base64 where they are not.

use base64::Engine as _;

/// The bytes as text, how many of them it stands for, and `base64` where they are no text. With `more` to follow, a
/// character that the end cuts in two is left for the next piece.
pub(crate) fn as_text(bytes: Vec<u8>, more: bool) -> (String, usize, Option<&'static str>) {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => {
            let taken = text.len();
            return (text, taken, None);
        }
        Err(error) => {
            let whole = error.utf8_error().valid_up_to();
            let cut_at_end = error.utf8_error().error_len().is_none();
            let mut bytes = error.into_bytes();
            // With not one whole character the next piece would begin where this one did, so base64 moves it on.
            if more && cut_at_end && whole > 0 {
                bytes.truncate(whole);
                let text = String::from_utf8(bytes).expect("checked up to there");
                return (text, whole, None);
            }
            bytes
        }
    };
    (base64::engine::general_purpose::STANDARD.encode(&bytes), bytes.len(), Some("base64"))
}
