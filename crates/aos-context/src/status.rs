//! The status line: what is true only now, after everything that stays.

use std::fmt::Write as _;

use aos_abi::entry::NearlySpent;
use aos_abi::{Timestamp, Usd};

/// What a process is told about its moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The kernel's time.
    pub now: Timestamp,
    /// US dollars left; `None`: no limit of its own.
    pub usd_left: Option<Usd>,
    /// Tokens left.
    pub tokens_left: Option<u64>,
    /// System calls left.
    pub calls_left: Option<u64>,
    /// When it is ended.
    pub ends_at: Option<Timestamp>,
    /// How full the window is, 0 to 100.
    pub window_percent: u32,
    /// Messages that wait to be read.
    pub unread_messages: usize,
    /// Chunks of standard input that wait to be read.
    pub unread_input: usize,
    /// The reply before held neither a call nor text.
    pub last_was_empty: bool,
    /// The reply before reached its length limit.
    pub last_was_cut_off: bool,
    /// This is the last turn before the process is killed.
    pub terminating: bool,
    /// A budget of which little is left.
    pub nearly_spent: Option<NearlySpent>,
    /// What became of the model that it runs on.
    pub model_note: Option<String>,
}

/// The status as one line, at most some 600 bytes.
#[must_use]
pub fn status(status: &Status) -> String {
    let mut line = format!("[status] now {}", status.now);
    let mut say = |text: std::fmt::Arguments<'_>| {
        let _ = write!(line, "; {text}");
    };
    if let Some(usd) = status.usd_left {
        say(format_args!("{usd} left"));
    }
    if let Some(tokens) = status.tokens_left {
        say(format_args!("{tokens} tokens left"));
    }
    if let Some(calls) = status.calls_left {
        say(format_args!("{calls} calls left"));
    }
    if let Some(at) = status.ends_at {
        say(format_args!("you are ended at {at}"));
    }
    if let Some(budget) = &status.nearly_spent {
        say(format_args!("nearly spent: {budget}; finish what you can, and hand it over"));
    }
    say(format_args!("window {}% full", status.window_percent));
    if status.unread_messages > 0 {
        say(format_args!("{} messages unread", status.unread_messages));
    }
    if status.unread_input > 0 {
        say(format_args!("{} pieces of standard input unread", status.unread_input));
    }
    if status.last_was_empty {
        say(format_args!("your last reply was empty: answer, or make a call"));
    }
    if status.last_was_cut_off {
        say(format_args!(
            "your last reply was cut off: go on exactly where an answer ended, both are joined; make a call smaller"
        ));
    }
    if let Some(note) = &status.model_note {
        say(format_args!("{note}"));
    }
    if status.terminating {
        say(format_args!("TERM was received: this is your last turn, hand over your result now"));
    }
    line
}

#[cfg(test)]
mod tests {
    use aos_abi::entry::{Amount, BudgetOf};

    use super::*;

    #[test]
    fn it_is_one_line_that_says_what_is_so_and_nothing_else() {
        assert_eq!(status(&Status::default()), "[status] now 1970-01-01T00:00:00.000Z; window 0% full");
        let full = Status {
            now: Timestamp(1_795_305_600_000),
            usd_left: Some(Usd(499_600_000)),
            tokens_left: Some(9000),
            calls_left: Some(3),
            ends_at: Some(Timestamp(1_795_305_660_000)),
            window_percent: 71,
            unread_messages: 2,
            unread_input: 1,
            last_was_empty: true,
            last_was_cut_off: true,
            terminating: true,
            nearly_spent: Some(NearlySpent {
                budget: BudgetOf::Day,
                limit: Amount::Usd(Usd(5_000_000_000)),
                left: Amount::Usd(Usd(499_600_000)),
                needed: None,
                until: Some(Timestamp(1_795_305_660_000)),
            }),
            model_note: Some("the quota of `m` is used up".into()),
        };
        let line = status(&full);
        insta::assert_snapshot!(line, @"[status] now 2026-11-22T00:00:00.000Z; $0.4996 left; 9000 tokens left; 3 calls left; you are ended at 2026-11-22T00:01:00.000Z; nearly spent: $0.4996 left of the day's $5, until 2026-11-22T00:01:00.000Z; finish what you can, and hand it over; window 71% full; 2 messages unread; 1 pieces of standard input unread; your last reply was empty: answer, or make a call; your last reply was cut off: go on exactly where an answer ended, both are joined; make a call smaller; the quota of `m` is used up; TERM was received: this is your last turn, hand over your result now");
        assert!(line.len() < 600);
    }
}
