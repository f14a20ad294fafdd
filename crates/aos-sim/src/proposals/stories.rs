//! Stories: which calls an agent makes, and how often who does what.
//!
//! Start at [`STORIES`]. The search goes through every order in which that can happen.

use aos_abi::entry::ProposalState as Said;

/// A question that nobody answers is over after so long, in milliseconds.
pub(super) const TTL_MS: u64 = 3_600_000;
/// A held call waits so long.
pub(super) const HOLD_MS: u64 = 300_000;
/// Between `TERM` and the end.
pub(super) const GRACE_MS: u64 = 5000;
/// How long the daemon is off when it was killed.
pub(super) const OFF_MS: u64 = 2000;

/// Asks, holds, denies for want of a rule, and allows, by folder.
pub(super) const POLICY: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [PROPOSE]
    fs:
      - {path: "free/**", ops: [write]}
      - {path: "asks/**", ops: [write], verdict: ask}
      - {path: "holds/**", ops: [write], verdict: hold, window: 5m}
    exec: {shell: true, programs: [sh], net: none}
proposals: {ttl: 1h, max_asks: 60/h}
"#;

/// What an agent wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// Something that a person is asked about.
    Asked,
    /// The same on the same file, with other words.
    AskedOther,
    /// Something that is held for a window.
    Held,
    /// Something that it puts before a person itself, and that must not be done twice.
    Proposed,
    /// Something that no rule allows.
    Denied,
    /// The same on the same file, with other words.
    DeniedOther,
    /// Something that is allowed.
    Free,
}

/// What the policy makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ask,
    Hold,
    Denied,
    Free,
}

impl Call {
    pub(super) const ALL: [Call; 7] =
        [Call::Asked, Call::AskedOther, Call::Held, Call::Proposed, Call::Denied, Call::DeniedOther, Call::Free];

    /// Its name and arguments, as it is made in the end.
    pub(super) fn wire(self) -> (&'static str, &'static str) {
        match self {
            Call::Asked => ("FS_WRITE", r#"{"path":"asks/f","content":"1"}"#),
            Call::AskedOther => ("FS_WRITE", r#"{"path":"asks/f","content":"2"}"#),
            Call::Held => ("FS_WRITE", r#"{"path":"holds/f","content":"1"}"#),
            Call::Proposed => ("EXEC_CMD", r#"{"cmd":"sh f"}"#),
            Call::Denied => ("FS_WRITE", r#"{"path":"other/f","content":"1"}"#),
            Call::DeniedOther => ("FS_WRITE", r#"{"path":"other/f","content":"2"}"#),
            Call::Free => ("FS_WRITE", r#"{"path":"free/f","content":"1"}"#),
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Call::Asked | Call::AskedOther | Call::Proposed => Kind::Ask,
            Call::Held => Kind::Hold,
            Call::Denied | Call::DeniedOther => Kind::Denied,
            Call::Free => Kind::Free,
        }
    }

    /// Whether a yes that stands, given to this one, is one to the other: it writes to the same file.
    pub(super) fn covers(self, other: Call) -> bool {
        let place = |call: Call| match call {
            Call::AskedOther => Call::Asked,
            Call::DeniedOther => Call::Denied,
            call => call,
        };
        place(self) == place(other)
    }

    /// What a process proposes of itself is asked about each time.
    pub(super) fn may_stand(self) -> bool {
        self != Call::Proposed
    }

    /// Whether doing it twice is doing it once.
    pub(super) fn may_repeat(self) -> bool {
        self != Call::Proposed
    }
}

/// How often each kind of act happens at most in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Often {
    /// Calls that the agent makes.
    pub(super) replies: u8,
    /// Answers of people.
    pub(super) words: u8,
    /// Somebody writes to the file.
    pub(super) edits: u8,
    /// The policy is saved again.
    pub(super) policies: u8,
    /// `STOP`, each with its `CONT`.
    pub(super) stops: u8,
    /// The process is killed, killed by its parent, or gets `TERM`.
    pub(super) ends: u8,
    /// What is due next is, and somebody looks at the clock, or nobody does.
    pub(super) times: u8,
    /// A change is taken back, or made again.
    pub(super) turns: u8,
    /// The daemon is killed.
    pub(super) crashes: u8,
}

/// What can happen in a run.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) calls: &'static [Call],
    /// What people say.
    pub(super) says: &'static [Said],
    pub(super) often: Often,
    /// Nothing comes between a question and the look at its files.
    pub(super) looks_at_once: bool,
    /// Acts of a run.
    pub(super) depth: usize,
}

const NEVER: Often =
    Often { replies: 0, words: 0, edits: 0, policies: 0, stops: 0, ends: 0, times: 0, turns: 0, crashes: 0 };
/// Something of everything.
const OFTEN: Often =
    Often { replies: 2, words: 2, edits: 1, policies: 1, stops: 1, ends: 1, times: 1, turns: 0, crashes: 2 };
/// People and crashes, for longer.
const TALK: Often = Often { replies: 3, words: 3, times: 1, crashes: 2, ..NEVER };
/// What stands, and what ends it.
const STANDS: Often = Often { replies: 3, words: 2, edits: 1, policies: 1, stops: 1, crashes: 2, ..NEVER };
/// Windows, for longer.
const WINDOWS: Often = Often { replies: 2, words: 1, stops: 1, times: 2, crashes: 2, ..NEVER };
/// Changes that are taken back.
const TURNS: Often = Often { replies: 2, ends: 1, turns: 3, crashes: 2, ..NEVER };

const ONCE: &[Said] = &[Said::Approved, Said::Rejected, Said::Vetoed];
const ANY: &[Said] = &[Said::Approved, Said::Standing, Said::Rejected];

/// All of them.
pub(super) const STORIES: &[Story] = &[
    story("asked", &[Call::Asked], ONCE, OFTEN, 6),
    story("asked for long", &[Call::Asked], ONCE, TALK, 8),
    story("asked, and it stands", &[Call::Asked, Call::AskedOther], ANY, STANDS, 6),
    story("held", &[Call::Held], ONCE, OFTEN, 5),
    story("held for long", &[Call::Held], ONCE, WINDOWS, 8),
    story("proposed", &[Call::Proposed], ONCE, OFTEN, 5),
    story("denied", &[Call::Denied], ONCE, OFTEN, 6),
    story("denied for long", &[Call::Denied], ONCE, TALK, 8),
    story("denied, and it stands", &[Call::Denied, Call::DeniedOther], ANY, STANDS, 6),
    story("undone", &[Call::Free], &[], TURNS, 9),
    Story { looks_at_once: false, ..story("asked, looked at late", &[Call::Asked], ONCE, OFTEN, 5) },
    Story { looks_at_once: false, ..story("held, looked at late", &[Call::Held], ONCE, OFTEN, 5) },
    Story { looks_at_once: false, ..story("denied, looked at late", &[Call::Denied], ONCE, OFTEN, 5) },
];

const fn story(name: &'static str, calls: &'static [Call], says: &'static [Said], often: Often, depth: usize) -> Story {
    Story { name, calls, says, often, looks_at_once: true, depth }
}
