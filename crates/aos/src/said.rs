//! What a reply says and whether it makes calls, however its model writes them; for showing only.

use aos_abi::Lsn;
use aos_abi::decode::{call_ids, decode};
use aos_abi::inference::{Encoding, Reply, Stop};

/// A reply as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its words.
    pub(crate) text: String,
    /// Whether it makes calls.
    pub(crate) calls: bool,
}

/// Reads a reply. Of the three forms in which calls are written, the constrained one reads the others too.
pub(crate) fn said(reply: &Reply) -> Said {
    let cut_off = reply.stop == Stop::Length;
    // The ids are thrown away.
    let decoded = decode(&reply.text, &reply.calls, Encoding::Constrained, cut_off, &mut call_ids(Lsn::ZERO));
    Said { text: decoded.say, calls: !decoded.calls.is_empty() }
}

#[cfg(test)]
mod tests {
    use aos_abi::inference::Usage;

    use super::*;

    #[test]
    fn each_form_is_read() {
        let read = |text: &str| {
            let reply =
                Reply { text: text.into(), calls: vec![], stop: Stop::End, usage: Usage::default(), model: "m".into() };
            let Said { text, calls } = said(&reply);
            (text, calls)
        };
        assert_eq!(read(r#"{"say":"It is \"blue\"."}"#), ("It is \"blue\".".to_owned(), false));
        assert_eq!(read(r#"{"calls":[{"name":"FS_LIST","args":{}}],"say":"I look."}"#), ("I look.".to_owned(), true));
        assert_eq!(read("I look.\n[SYS_CALL::FS_LIST] {}"), ("I look.".to_owned(), true));
        assert_eq!(read("{\"answer\": 42}"), ("{\"answer\": 42}".to_owned(), false));
    }
}
