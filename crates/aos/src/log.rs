//! The daemon's log: lines on standard error, with personal data covered by the name of its kind.
//!
//! Start at [`Covered`], which the subscriber writes to. What always holds: what `personal_data` of the policy names is
//! found in no line that is written once that policy holds; a line that cannot be looked at is not written.

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Arc, PoisonError, RwLock};

use aos_personal::Detector;

/// What is looked for; nothing before there is a policy, when nothing of a process is known yet.
static DETECTOR: RwLock<Option<Arc<Detector>>> = RwLock::new(None);

/// Looks for this from the next line on.
pub(crate) fn look_for(detector: &Arc<Detector>) {
    *DETECTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(detector));
}

/// Standard error, covered. Whoever writes to it writes whole lines.
pub(crate) struct Covered;

impl Write for Covered {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let detector = DETECTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
        match detector {
            Some(detector) => std::io::stderr().write_all(covered(&detector, line).as_bytes())?,
            None => std::io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

fn covered<'l>(detector: &Detector, line: &'l [u8]) -> Cow<'l, str> {
    let text = String::from_utf8_lossy(line);
    let Ok(found) = detector.find(&text) else {
        return "(a line that could not be looked at for personal data)\n".into();
    };
    if found.is_empty() {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for piece in found {
        shown.push_str(&text[done..piece.start]);
        shown.push_str(&format!("[{}]", piece.class));
        done = piece.end;
    }
    shown.push_str(&text[done..]);
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_without_what_the_policy_names() {
        let detector = Detector::of(["email", "card"]);
        let shown = |line: &str| covered(&detector, line.as_bytes()).into_owned();
        let line = "2026-11-22T09:57:15.401573Z  WARN aos: refused: card 4111 1111 1111 1111 of jane@example.com\n";
        assert_eq!(shown(line), "2026-11-22T09:57:15.401573Z  WARN aos: refused: card [card] of [email]\n");
        let plain = "2026-11-22T09:57:15.401573Z  INFO aos::daemon: ready listen=127.0.0.1:42475 home=/tmp/h pid=7\n";
        assert_eq!(covered(&Detector::all(), plain.as_bytes()), plain);
        let mut failing = Detector::of(["email"]);
        failing.add("mark", "Q").unwrap();
        let line = format!("refused: {} jane@example.com\n", "Q".repeat(5000));
        assert_eq!(covered(&failing, line.as_bytes()), "(a line that could not be looked at for personal data)\n");
    }
}
