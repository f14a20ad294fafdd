//! The body of an answer: bounded, and unpacked where it is packed.

use std::io::Write;

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// What came of a body.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// More would have come.
    pub(super) truncated: bool,
    /// It was packed on the wire.
    pub(super) decoded: bool,
}

/// Why a packed answer is not handed on where something in it would have to be covered.
pub(super) const PACKED: &str =
    "its answer is packed in a way that was not asked for, and cannot be searched for secrets";

/// Whether a body is packed, in whatever way.
pub(super) fn is_packed(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Reads at most `most` bytes of a body, counted on the wire and again as unpacked.
///
/// # Errors
/// What went wrong, in words.
pub(super) async fn read(mut response: Response, most: usize) -> Result<Body, String> {
    let packed = response.headers().get(CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
    let mut sink = match packed.as_deref() {
        Some(b"gzip" | b"x-gzip") => Sink::Packed(Box::new(MultiGzDecoder::new(Bounded::new(most)))),
        // Whatever else it is, it was not asked for; it is handed on as it came.
        _ => Sink::Plain(Bounded::new(most)),
    };
    let mut wire = 0_usize;
    while let Some(chunk) = response.chunk().await.map_err(|error| words(&error))? {
        wire = wire.saturating_add(chunk.len());
        if !sink.take(&chunk)? || wire > most {
            return Ok(sink.cut());
        }
    }
    sink.end()
}

/// An error with its causes, outermost first, each once.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // The library's own words around the cause name the whole URL, query and all.
        let text = error.to_string();
        if !text.contains("for url (") && words.last() != Some(&text) {
            words.push(text);
        }
        next = error.source();
    }
    words.join(": ")
}

enum Sink {
    Plain(Bounded),
    Packed(Box<MultiGzDecoder<Bounded>>),
}

impl Sink {
    /// Takes in a piece; false where the bound is reached and more would not fit.
    fn take(&mut self, chunk: &[u8]) -> Result<bool, String> {
        match self {
            Sink::Plain(bounded) => Ok(bounded.write_all(chunk).is_ok()),
            Sink::Packed(decoder) => match decoder.write_all(chunk) {
                Ok(()) => Ok(!decoder.get_ref().full),
                Err(_) if decoder.get_ref().full => Ok(false),
                Err(error) => Err(format!("its gzip data is broken: {error}")),
            },
        }
    }

    fn cut(self) -> Body {
        match self {
            Sink::Plain(bounded) => Body { bytes: bounded.bytes, truncated: true, decoded: false },
            Sink::Packed(mut decoder) => {
                let bytes = std::mem::take(&mut decoder.get_mut().bytes);
                Body { bytes, truncated: true, decoded: true }
            }
        }
    }

    fn end(self) -> Result<Body, String> {
        match self {
            Sink::Plain(bounded) => Ok(Body { bytes: bounded.bytes, truncated: false, decoded: false }),
            Sink::Packed(mut decoder) => match decoder.try_finish() {
                Ok(()) => Ok(Body { truncated: false, ..Sink::Packed(decoder).cut() }),
                Err(_) if decoder.get_ref().full => Ok(Sink::Packed(decoder).cut()),
                Err(error) => Err(format!("its gzip data is broken: {error}")),
            },
        }
    }
}

/// Takes bytes up to a bound and fails beyond.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    full: bool,
}

impl Bounded {
    fn new(most: usize) -> Bounded {
        Bounded { bytes: Vec::new(), most, full: false }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let fits = bytes.len().min(self.most - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() {
            self.full = true;
        }
        if fits == 0 && !bytes.is_empty() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(fits)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
