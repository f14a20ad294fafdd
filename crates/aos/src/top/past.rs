//! What the selected process did before this view was opened.
//!
//! Start at [`Past::next`]. What always holds: however much that was, only the last [`EVENTS_MAX`] lines of it are kept.

use std::collections::VecDeque;

use aos_abi::{Lsn, Pid};

use super::state::EVENTS_MAX;
use super::update::Input;
use crate::cli::{Narrator, Style, clock};
use crate::client::{Address, Client, Event, Events};

/// The past of one process while it is read.
pub(super) struct Past {
    pid: Pid,
    upto: Lsn,
    events: Events,
    narrator: Narrator,
    lines: VecDeque<String>,
}

impl Past {
    /// Of a process, up to the position from which on events are heard anyway.
    pub(super) fn of(client: &Client, pid: Pid, upto: Lsn) -> Past {
        let address = Address::of("/v1/processes").then(pid).then("events");
        let events = client.without_start().events(address, Lsn::ZERO, false);
        let narrator = Narrator::new(Style::plain(), 200, Some(clock));
        Past { pid, upto, events, narrator, lines: VecDeque::new() }
    }

    /// Whose it is.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// All of it, once it is read. What cannot be read is left out: the stream of events says what is wrong.
    ///
    /// # Cancel safety
    /// What was read is kept here, and the next one goes on where this one was.
    pub(super) async fn next(&mut self) -> Input {
        while let Ok(Some(event)) = self.events.next().await {
            let Event::Entry(line) = event else { continue };
            if line.lsn > self.upto {
                break;
            }
            self.lines.extend(line.entry.iter().flat_map(|entry| self.narrator.tell(entry)));
            let too_many = self.lines.len().saturating_sub(EVENTS_MAX);
            self.lines.drain(..too_many);
        }
        Input::Past(self.pid, std::mem::take(&mut self.lines).into())
    }
}
