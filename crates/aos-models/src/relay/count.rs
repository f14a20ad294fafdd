//! How many values a request holds: in memory each of them takes many times the bytes that it has in the request.
//!
//! Start at [`few_values`].

use super::peek::Misfit;

/// Most values of a request of which more is read than its head. The largest ones there are hold some tens of thousands; in
/// memory a list of one number (`[0],`: two by this count) takes some 370 bytes, so all of them take 90 MiB at most.
const VALUES_MAX: usize = 500_000;

/// Whether a request may be read.
///
/// # Errors
/// Where it holds more values than any conversation.
pub(super) fn few_values(body: &[u8]) -> Result<(), Misfit> {
    if values(body) <= VALUES_MAX {
        return Ok(());
    }
    Err(Misfit::new(format!("the request holds more than {VALUES_MAX} values"))
        .hint("send what is long as text, which may be as long as the request"))
}

/// Lists, objects and the commas in them, wherever they stand but in texts.
fn values(body: &[u8]) -> usize {
    let (mut count, mut text, mut escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'[' | b'{' | b',' if !text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_texts_is_no_value() {
        assert_eq!(values(br#"{"a,[{":"\",[{\\","b":[0,[1],{}]}"#), 7);
        assert_eq!(values(b""), 0);
    }

    #[test]
    fn a_request_of_lists_is_refused_and_one_of_text_is_not() {
        let lists = format!(r#"{{"model":"x","thinking":[{}[0]]}}"#, "[0],".repeat(260_000));
        assert!(few_values(lists.as_bytes()).is_err());
        let text = format!(r#"{{"model":"x","messages":[{{"content":"{}"}}]}}"#, "[0],".repeat(1 << 20));
        assert!(few_values(text.as_bytes()).is_ok());
    }
}
