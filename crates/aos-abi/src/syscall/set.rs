//! A set of system calls, as one word.

use super::Name;

/// Which calls a process may make: one bit per [`Name`], in table order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallSet(u64);

const _: () = assert!(Name::ALL.len() <= 64);

impl CallSet {
    /// No call at all.
    pub const EMPTY: CallSet = CallSet(0);

    /// Every call of the table.
    #[must_use]
    pub fn all() -> CallSet {
        Name::ALL.iter().copied().collect()
    }

    /// Adds a call.
    pub fn insert(&mut self, name: Name) {
        self.0 |= 1 << name as u32;
    }

    /// Whether the call is in the set.
    #[must_use]
    pub fn contains(self, name: Name) -> bool {
        self.0 & (1 << name as u32) != 0
    }

    /// The calls in both sets.
    #[must_use]
    pub fn and(self, other: CallSet) -> CallSet {
        CallSet(self.0 & other.0)
    }

    /// The calls, in table order.
    pub fn iter(self) -> impl Iterator<Item = Name> {
        Name::ALL.iter().copied().filter(move |name| self.contains(*name))
    }
}

impl FromIterator<Name> for CallSet {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        let mut set = CallSet::EMPTY;
        names.into_iter().for_each(|name| set.insert(name));
        set
    }
}
