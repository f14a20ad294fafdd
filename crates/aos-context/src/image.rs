//! An image that a call read: named in the words of its result, and shown beside them to a model that sees.
//!
//! Start at [`Image::of`]. What always holds: the bytes of an image are never shown as text, whole or cut.

use aos_abi::entry::Outcome;
use aos_abi::inference::Part;
use serde_json::{Value, json};

use crate::estimate::{BYTES_PER_TOKEN, FRAME_BYTES, IMAGE_TOKENS};
use crate::shown;

/// What an image and the line above it take in a window, in bytes of text.
pub(crate) const IMAGE_BYTES: usize = IMAGE_TOKENS as usize * BYTES_PER_TOKEN as usize + 2 * FRAME_BYTES + 96;
/// What stands in the result in the place of the bytes.
const SHOWN: &str = "[the image follows]";
const UNSEEN: &str = "[an image: your model is shown none]";
const NO_ROOM: &str = "[an image: no room to show it]";

/// An image in a result.
pub(crate) struct Image<'a> {
    media_type: &'a str,
    base64: &'a str,
    result: &'a Value,
}

impl<'a> Image<'a> {
    /// The image that a result holds whole.
    pub(crate) fn of(outcome: &'a Outcome) -> Option<Image<'a>> {
        let Outcome::Success { result } = outcome else { return None };
        let media_type = result.get("media_type")?.as_str().filter(|kind| kind.starts_with("image/"))?;
        result.get("encoding").filter(|encoding| *encoding == "base64")?;
        let base64 = result.get("content")?.as_str()?;
        Some(Image { media_type, base64, result })
    }

    /// Most bytes that it takes, shown.
    pub(crate) fn bytes(&self) -> usize {
        self.words(NO_ROOM).len() + IMAGE_BYTES
    }

    /// The words of the result, and the image itself where the model `sees` and both take at most `cap` bytes.
    pub(crate) fn show(&self, sees: bool, cap: usize) -> (String, Option<Part>) {
        if !sees {
            return (self.words(UNSEEN), None);
        }
        if cap < self.bytes() {
            return (self.words(NO_ROOM), None);
        }
        let part = Part::Image { media_type: self.media_type.to_owned(), base64: self.base64.to_owned() };
        (self.words(SHOWN), Some(part))
    }

    fn words(&self, content: &str) -> String {
        let result = json!({"content": content, "media_type": self.media_type, "size": self.result["size"]});
        shown::json_text(&Outcome::Success { result })
    }
}
