//! Server-sent events (WHATWG HTML, section 9.2), as far as model servers use them: `data` and `event` fields.
//!
//! Start at [`Reader::push`]. What always holds: bytes may be cut anywhere, inside a character or a line end; no event
//! and no unfinished line grows past the bound; a line that is not UTF-8 is read with replacement characters.
//! Deliberately absent: ids and reconnection, which no model server offers.

use std::borrow::Cow;

/// The stream holds a line or an event beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the answer is longer than {0} bytes")]
pub(crate) struct Oversized(pub(crate) usize);

/// Reads events from pieces of bytes.
#[derive(Debug)]
pub(crate) struct Reader {
    /// What has come and is not yet a whole line.
    bytes: Vec<u8>,
    /// How much of that was looked through and has no line end: what comes in small pieces is not looked through again.
    looked: usize,
    /// The `data` of the event that is being read, and whether there was any.
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended in a carriage return, so a line feed that comes next belongs to it.
    after_cr: bool,
    started: bool,
    bytes_max: usize,
}

impl Reader {
    pub(crate) fn new(bytes_max: usize) -> Reader {
        let (bytes, data) = (Vec::new(), Vec::new());
        Reader { bytes, looked: 0, data, has_data: false, after_cr: false, started: false, bytes_max }
    }

    /// Takes the next piece and hands every event it completes to `event`, oldest first.
    ///
    /// # Errors
    /// [`Oversized`]; the reader is of no more use then.
    pub(crate) fn push(&mut self, piece: &[u8], event: &mut dyn FnMut(&str)) -> Result<(), Oversized> {
        if self.bytes.is_empty() {
            // The usual case: lines are read straight out of the piece and only its tail is copied.
            let used = self.lines(piece, event)?;
            self.bytes.extend_from_slice(&piece[used..]);
        } else {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.extend_from_slice(piece);
            let used = self.lines(&bytes, event)?;
            bytes.drain(..used);
            self.bytes = bytes;
        }
        self.looked = self.bytes.len();
        if self.bytes.len() > self.bytes_max { Err(Oversized(self.bytes_max)) } else { Ok(()) }
    }

    /// The stream has ended: an event whose closing blank line is missing still counts, since servers that are cut
    /// off or end carelessly leave the last one so.
    pub(crate) fn finish(&mut self, event: &mut dyn FnMut(&str)) -> Result<(), Oversized> {
        let tail = std::mem::take(&mut self.bytes);
        if !tail.is_empty() {
            self.line(&tail, event)?;
        }
        self.dispatch(event);
        Ok(())
    }

    /// Reads the whole lines of `bytes`; returns how many bytes they took.
    fn lines(&mut self, bytes: &[u8], event: &mut dyn FnMut(&str)) -> Result<usize, Oversized> {
        let mut start = 0;
        let looked = std::mem::take(&mut self.looked);
        if !self.started && !bytes.is_empty() {
            const BOM: &[u8] = b"\xef\xbb\xbf";
            if bytes.len() < BOM.len() && BOM.starts_with(bytes) {
                return Ok(0);
            }
            self.started = true;
            start = if bytes.starts_with(BOM) { BOM.len() } else { 0 };
        }
        while start < bytes.len() {
            if std::mem::take(&mut self.after_cr) && bytes[start] == b'\n' {
                start += 1;
                continue;
            }
            let from = start.max(looked);
            let Some(length) = bytes[from..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) else { break };
            let end = from + length;
            self.after_cr = bytes[end] == b'\r';
            self.line(&bytes[start..end], event)?;
            start = end + 1;
        }
        Ok(start)
    }

    fn line(&mut self, line: &[u8], event: &mut dyn FnMut(&str)) -> Result<(), Oversized> {
        if line.is_empty() {
            self.dispatch(event);
            return Ok(());
        }
        let Some(value) = line.strip_prefix(b"data") else { return Ok(()) };
        let value = match value {
            [] => value,
            [b':', b' ', rest @ ..] | [b':', rest @ ..] => rest,
            // A field whose name merely starts so.
            _ => return Ok(()),
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        if self.data.len() > self.bytes_max { Err(Oversized(self.bytes_max)) } else { Ok(()) }
    }

    fn dispatch(&mut self, event: &mut dyn FnMut(&str)) {
        if std::mem::take(&mut self.has_data) {
            let data: Cow<'_, str> = String::from_utf8_lossy(&self.data);
            event(&data);
            self.data.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = Reader::new(1 << 16);
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut |event| events.push(event.to_owned())).unwrap();
        }
        reader.finish(&mut |event| events.push(event.to_owned())).unwrap();
        events
    }

    const STREAM: &str = "\u{feff}: hello\r\nevent: a\r\ndata: {\"t\":\"grüße 😀 日本\"}\r\n\r\ndata:two\ndata: lines\n\n\
                          data\n\ndatabase: x\n\nid: 4\rdata: last\r\rdata: cut";

    #[test]
    fn fields_line_ends_and_comments() {
        assert_eq!(read(&[STREAM.as_bytes()]), ["{\"t\":\"grüße 😀 日本\"}", "two\nlines", "", "last", "cut"]);
    }

    #[test]
    fn multi_byte_characters_cut_at_a_read_boundary_survive() {
        let whole = read(&[STREAM.as_bytes()]);
        for at in 0..=STREAM.len() {
            let (a, b) = STREAM.as_bytes().split_at(at);
            assert_eq!(read(&[a, b]), whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), whole, "byte by byte");
    }

    #[test]
    fn a_line_or_event_without_end_is_refused() {
        let mut reader = Reader::new(100);
        assert_eq!(reader.push(&[b'x'; 101], &mut |_| ()), Err(Oversized(100)));
        let mut reader = Reader::new(100);
        let lines = b"data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n".repeat(3);
        assert_eq!(reader.push(&lines, &mut |_| ()), Err(Oversized(100)));
    }

    /// Looked through from its beginning with each piece, this would take hours.
    #[test]
    fn a_long_line_in_small_pieces_takes_the_time_of_its_length() {
        let mut reader = Reader::new(16 << 20);
        let mut events = Vec::new();
        reader.push(b"data: ", &mut |_| ()).unwrap();
        for _ in 0..1 << 20 {
            reader.push(b"aaaaaaaa", &mut |_| ()).unwrap();
        }
        reader.push(b"\n\n", &mut |event| events.push(event.len())).unwrap();
        assert_eq!(events, [8 << 20]);
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(read(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
    }

    proptest::proptest! {
        #[test]
        fn cuts_never_matter(text in "[dat: \\r\\né😀]{0,80}", cuts in proptest::collection::vec(0usize..200, 0..6)) {
            let bytes = text.as_bytes();
            let mut places: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            proptest::prop_assert_eq!(read(&pieces), read(&[bytes]));
        }
    }
}
