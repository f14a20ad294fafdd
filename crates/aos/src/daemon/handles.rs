//! Handles: results too large for a window, read piece by piece.
//!
//! `result:41` and `text:41` name the entry 41: a result, or an input that was shown cut. What always holds: a process reads results of its own past alone.

use aos_abi::entry::Outcome;
use aos_abi::{Body, CallError, Code, Lsn, Pid, limits};
use serde_json::{Value, json};

use super::history::History;

/// The entry that a path names, if it is a handle.
pub(crate) fn parse(path: &str) -> Option<Lsn> {
    let digits = path.strip_prefix("result:").or_else(|| path.strip_prefix("text:"))?;
    // As the policy reads it, which knows no sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(Lsn))?
}

/// A piece of the entry behind a handle, as `FS_READ` gives it.
pub(crate) fn read(
    history: &History,
    pid: Pid,
    lsn: Lsn,
    offset: Option<u64>,
    limit: Option<u64>,
) -> Result<Value, CallError> {
    let unknown = || CallError::new(Code::NoEnt, format!("entry {lsn} is no result or input of yours"));
    let entries = history.get(pid, &[lsn]).map_err(|error| CallError::new(Code::Io, error.to_string()))?;
    let entry = entries.first().filter(|entry| entry.pid == pid).ok_or_else(unknown)?;
    let text = match &entry.body {
        Body::Result { outcome: Outcome::Success { result }, .. } => {
            result.as_str().map_or_else(|| result.to_string(), str::to_owned)
        }
        Body::Result { outcome: Outcome::Error { error }, .. } => serde_json::to_string(error).unwrap_or_default(),
        Body::Input { text, .. } => text.clone(),
        Body::Message { content, .. } => content.clone(),
        Body::Webhook(request) => request.body.clone(),
        Body::Spawned(spec) => spec.task.clone().unwrap_or_default(),
        _ => return Err(unknown()),
    };
    Ok(piece(&text, offset.unwrap_or(0), limit.unwrap_or(limits::FS_READ_BYTES_MAX as u64)))
}

/// Bytes `offset` to `offset + limit` of a text, cut where characters begin.
fn piece(text: &str, offset: u64, limit: u64) -> Value {
    let limit = limit.min(limits::FS_READ_BYTES_MAX as u64);
    let start = text.floor_char_boundary(usize::try_from(offset).unwrap_or(usize::MAX).min(text.len()));
    let end = usize::try_from(offset.saturating_add(limit)).unwrap_or(usize::MAX).min(text.len());
    let end = text.floor_char_boundary(end).max(start);
    json!({ "content": &text[start..end], "size": text.len(), "truncated": end < text.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_digits_as_the_policy_reads_it() {
        assert_eq!((parse("result:41"), parse("text:41")), (Some(Lsn(41)), Some(Lsn(41))));
        for path in ["result:+41", "result:", "result:4 1", "result:-1", "results:41"] {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    #[test]
    fn pieces_join_to_the_whole_and_cut_no_character() {
        let text = "añ😀b".repeat(10);
        let (mut offset, mut whole) = (0u64, String::new());
        loop {
            let piece = piece(&text, offset, 5);
            let content = piece["content"].as_str().unwrap();
            whole.push_str(content);
            offset += content.len() as u64;
            if piece["truncated"] == false {
                break;
            }
            assert!(!content.is_empty(), "stuck at {offset}");
        }
        assert_eq!(whole, text);
        assert_eq!(piece(&text, 10_000, 5)["content"], "");
    }
}
