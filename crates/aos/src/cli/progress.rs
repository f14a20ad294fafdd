//! How far long work is, for whoever waits for it.
//!
//! Start at [`Progress::tell`]. At a terminal it is one line that is drawn anew; elsewhere a line every ten seconds, so
//! that a log stays short and still shows that something goes on.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::Context;

/// How often the line is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(120);
/// How often a line is written where there is no terminal.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// The progress of one piece of work. The line is gone with this value.
#[derive(Debug)]
pub(super) struct Progress<'c> {
    cx: &'c Context,
    live: bool,
    drawn: bool,
    last: Instant,
}

impl<'c> Progress<'c> {
    /// Nothing is shown yet.
    pub(super) fn new(cx: &'c Context) -> Progress<'c> {
        let live = cx.err_terminal && cx.env.text("TERM") != Some("dumb");
        Progress { cx, live, drawn: false, last: Instant::now() }
    }

    /// What is done now, and bytes of it so far.
    pub(super) fn tell(&mut self, what: &str, bytes: u64) {
        let every = if self.live { DRAW_EVERY } else { WRITE_EVERY };
        if self.cx.quiet || self.cx.json || self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        let text = if bytes == 0 { what.to_owned() } else { format!("{what}: {} MiB", bytes >> 20) };
        if self.live {
            self.drawn = true;
            // Nobody may read standard error; that is no reason to fail.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}").and_then(|()| std::io::stderr().flush());
        } else {
            self.cx.note(&text);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K").and_then(|()| std::io::stderr().flush());
        }
    }
}
