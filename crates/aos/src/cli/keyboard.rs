//! Lines that a person (or a pipe) types, beside everything else that happens.
//!
//! Start at [`Keyboard::line`]. Reading standard input cannot be interrupted, so a thread of its own does it from the
//! first question on; it is bounded to a few lines ahead and ends with the program.

use std::io::BufRead as _;
use std::time::Instant;

use tokio::sync::mpsc;

/// Lines read ahead of what was asked.
const AHEAD: usize = 16;

/// A line that was typed.
#[derive(Debug)]
pub(super) struct Typed {
    /// Without its end.
    pub(super) text: String,
    /// When it was read: with its end typed, as far as a terminal goes.
    pub(super) at: Instant,
}

/// Standard input, line by line.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    lines: Option<mpsc::Receiver<Typed>>,
    ended: bool,
}

impl Keyboard {
    /// One whose input is used up already.
    pub(super) fn ended() -> Keyboard {
        Keyboard { lines: None, ended: true }
    }

    /// Whether there will be no more lines.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next line, without its end; `None` at the end of the input.
    ///
    /// # Cancel safety
    /// No line is lost where the future is dropped.
    pub(super) async fn line(&mut self) -> Option<Typed> {
        if self.ended {
            return None;
        }
        let line = self.lines.get_or_insert_with(listen).recv().await;
        self.ended = line.is_none();
        line
    }

    /// Drops what a terminal holds of a line that is being typed, and of lines that nobody has read.
    pub(super) fn drop_begun(&self) {
        // Where it is no terminal, nothing is held.
        let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
    }
}

fn listen() -> mpsc::Receiver<Typed> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            match input.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            if sender.blocking_send(Typed { text, at: Instant::now() }).is_err() {
                return;
            }
        }
    });
    receiver
}
