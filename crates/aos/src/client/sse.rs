//! Server-sent events, read from bytes as they come. WHATWG HTML, section 9.2.6.
//!
//! Start at [`Parser::feed`]. What always holds: where the bytes are cut makes no difference; an event that is not
//! finished by an empty line is not an event. One event may be [`EVENT_BYTES_MAX`] long; of one that is longer all but its
//! data comes, so that a reader knows what it did not see and goes on behind it.

/// Longest event: the largest result that is journaled, with room for the rest of its entry.
pub(crate) const EVENT_BYTES_MAX: usize = 2 * aos_abi::limits::RESULT_BYTES_MAX + aos_abi::limits::ARGS_BYTES_MAX;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sse {
    /// The field `id`.
    pub(crate) id: Option<String>,
    /// The field `event`; empty where there is none.
    pub(crate) event: String,
    /// The field `data`, its lines joined; empty where that is too long.
    pub(crate) data: String,
    /// The event is longer than [`EVENT_BYTES_MAX`].
    pub(crate) too_long: bool,
}

/// What has been read of a stream.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Of the line under way nothing is kept.
    skips: bool,
    after_cr: bool,
    draft: Sse,
    has_data: bool,
}

impl Parser {
    /// Reads more bytes; the events they complete, in order.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Sse> {
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
                    if !std::mem::take(&mut self.skips) {
                        events.extend(self.line(&String::from_utf8_lossy(&line)));
                    }
                }
                byte if !self.skips => self.line.push(*byte),
                _ => {}
            }
            if self.line.len() + self.draft.data.len() > EVENT_BYTES_MAX {
                (self.skips, self.has_data, self.draft.too_long) = (!self.line.is_empty(), true, true);
                (self.line, self.draft.data) = Default::default();
            }
        }
        events
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
            "data" if self.draft.too_long => {}
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
        let whole = Parser::default().feed(text.as_bytes());
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0].id.as_deref(), Some("41"));
        assert_eq!((whole[0].event.as_str(), whole[0].data.as_str()), ("spawned", "{\"a\":\"ä\",\n \"b\":1}"));
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                events.extend(parser.feed(piece));
            }
            assert_eq!(events, whole, "in pieces of {size}");
        }
    }

    /// One entry that was too long hid all that came after it.
    #[test]
    fn what_comes_behind_an_event_that_is_too_long_comes() {
        for line in
            ["x".repeat(EVENT_BYTES_MAX), vec!["x".repeat(1 << 20); 1 + (EVENT_BYTES_MAX >> 20)].join("\ndata: ")]
        {
            let mut parser = Parser::default();
            let long = format!("id: 41\ndata: {line}\ndata: end\n\nid: 42\ndata: next\n\n");
            let mut events = Vec::new();
            for piece in long.as_bytes().chunks(1 << 20) {
                events.extend(parser.feed(piece));
                assert!(parser.line.len() + parser.draft.data.len() <= EVENT_BYTES_MAX);
            }
            let told: Vec<_> = events.iter().map(|one| (one.id.as_deref(), &*one.data, one.too_long)).collect();
            assert_eq!(told, [(Some("41"), "", true), (Some("42"), "next", false)]);
        }
    }
}
