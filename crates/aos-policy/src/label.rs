//! Labels: what is known about the origin and content of what is in a process's window.
//!
//! Start at [`Labels`]. A label is only ever added, by [`Labels::and`]; nothing here takes one away. Deliberately absent:
//! how content gets its labels (the kernel sees where it came from) and how personal data is found (detectors).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of labels. Bits are append-only, since snapshots hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Labels(u16);

/// The names of the single labels, by bit.
const NAMES: [(&str, Labels); 9] = [
    ("untrusted.web", Labels::WEB),
    ("untrusted.webhook", Labels::WEBHOOK),
    ("untrusted.channel", Labels::CHANNEL),
    ("untrusted.file", Labels::FILE),
    ("untrusted.message", Labels::MESSAGE),
    ("untrusted.tool", Labels::TOOL),
    ("untrusted.child", Labels::CHILD),
    ("personal", Labels::PERSONAL),
    ("secret", Labels::SECRET),
];

impl Labels {
    /// No label.
    pub const NONE: Labels = Labels(0);
    /// It came from an address on the network.
    pub const WEB: Labels = Labels(1);
    /// It came with a webhook request.
    pub const WEBHOOK: Labels = Labels(1 << 1);
    /// It came through a channel.
    pub const CHANNEL: Labels = Labels(1 << 2);
    /// It came from a file that a rule marks so.
    pub const FILE: Labels = Labels(1 << 3);
    /// It came in a message from a process that was itself untrusted.
    pub const MESSAGE: Labels = Labels(1 << 4);
    /// A tool answered it.
    pub const TOOL: Labels = Labels(1 << 5);
    /// A quarantined child returned it as free text.
    pub const CHILD: Labels = Labels(1 << 6);
    /// It holds personal data.
    pub const PERSONAL: Labels = Labels(1 << 7);
    /// It holds a secret.
    pub const SECRET: Labels = Labels(1 << 8);
    /// Every origin that nobody vouches for; `untrusted` in a rule means any of them.
    pub const UNTRUSTED: Labels = Labels(0x7f);

    /// The labels of both: what a window carries that holds both contents.
    #[must_use]
    pub fn and(self, other: Labels) -> Labels {
        Labels(self.0 | other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a rule about `when` concerns this set: whether they share a label.
    #[must_use]
    pub fn any_of(self, when: Labels) -> bool {
        self.0 & when.0 != 0
    }

    /// Whether every label of this set is in the other one.
    #[must_use]
    pub fn within(self, other: Labels) -> bool {
        self.0 & !other.0 == 0
    }

    /// This set without those labels: for content that was looked at anew and is none of them.
    #[must_use]
    pub fn without(self, other: Labels) -> Labels {
        Labels(self.0 & !other.0)
    }

    /// What this set has of the other one.
    #[must_use]
    pub fn only(self, other: Labels) -> Labels {
        Labels(self.0 & other.0)
    }

    /// The names that a policy may use.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once("untrusted").chain(NAMES.iter().map(|(name, _)| *name))
    }

    /// The names of the labels in this set.
    pub fn held(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(_, label)| self.any_of(*label)).map(|(name, _)| *name)
    }

    /// The label of this name; `untrusted` is all of its kind.
    #[must_use]
    pub fn named(name: &str) -> Option<Labels> {
        if name == "untrusted" {
            return Some(Labels::UNTRUSTED);
        }
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, label)| *label)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.held().collect();
        f.write_str(&names.join(", "))
    }
}
