//! Signals: what stops, continues and ends a process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A signal, by its POSIX name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// End in good order: one last turn and five seconds, then [`Signal::Kill`].
    Term,
    /// End now.
    Kill,
    /// Start nothing new until [`Signal::Cont`]; what runs is finished and its result kept.
    Stop,
    /// Go on after [`Signal::Stop`].
    Cont,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Signal; 4] = [Signal::Term, Signal::Kill, Signal::Stop, Signal::Cont];

    /// `TERM`, `KILL`, `STOP` or `CONT`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Term => "TERM",
            Signal::Kill => "KILL",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        }
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Signal {
    type Err = String;
    /// Reads `TERM`, `term` and `SIGTERM` alike.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        Self::ALL
            .into_iter()
            .find(|signal| signal.as_str() == bare)
            .ok_or_else(|| format!("no signal `{text}`; there are TERM, KILL, STOP and CONT"))
    }
}
