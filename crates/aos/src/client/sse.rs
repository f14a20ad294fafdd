//! Server-sent events, read from bytes as they come. WHATWG HTML, section 9.2.6.
//!
//! Start at [`Parser::feed`]. What always holds: where the bytes are cut makes no difference; an event that is not
//! finished by an empty line is not an event. One event may be [`EVENT_BYTES_MAX`] long.

/// Longest event: the largest result that is journaled, with room for the rest of its entry.
pub(crate) const EVENT_BYTES_MAX: usize = 2 * aos_abi::limits::RESULT_BYTES_MAX + aos_abi::limits::ARGS_BYTES_MAX;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sse {
    /// The field `id`.
    pub(crate) id: Option<String>,
    /// The field `event`; empty where there is none.
    pub(crate) event: String,
    /// The field `data`, its lines joined.
    pub(crate) data: String,
}

/// The event is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// What has been read of a stream.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    after_cr: bool,
    draft: Sse,
    has_data: bool,
}

impl Parser {
    /// Reads more bytes; the events they complete, in order.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Sse>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            let ends_crlf = std::mem::take(&mut self.after_cr) && *byte == b'\n';
            if ends_crlf {
                continue;
            }
            match byte {
                b'\r' | b'\n' => {
                    self.after_cr = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.line(&String::from_utf8_lossy(&line)));
                }
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.draft.data.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(events)
    }

    fn line(&mut self, line: &str) -> Option<Sse> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.draft);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.draft.id = Some(value.to_owned()),
            "event" => self.draft.event = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.draft.data.push('\n');
                }
                self.has_data = true;
                self.draft.data.push_str(value);
            }
            // Comments (an empty field), `retry` and fields to come.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_bytes_are_cut_makes_no_difference() {
        let text = ": hello\n\nid: 41\nevent: spawned\ndata: {\"a\":\"ä\",\r\ndata:  \"b\":1}\r\n\r\ndata\n\nid: 42\ndata: x\n\ndata: torn";
        let whole = Parser::default().feed(text.as_bytes()).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0].id.as_deref(), Some("41"));
        assert_eq!((whole[0].event.as_str(), whole[0].data.as_str()), ("spawned", "{\"a\":\"ä\",\n \"b\":1}"));
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                events.extend(parser.feed(piece).unwrap());
            }
            assert_eq!(events, whole, "in pieces of {size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..EVENT_BYTES_MAX >> 20).any(|_| parser.feed(&piece).is_err()) || parser.feed(&piece).is_err();
        assert!(refused);
    }
}
