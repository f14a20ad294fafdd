//! What a command finds of the files that rules label.
//!
//! Start at [`Found::look`]. What always holds: it is looked before a command runs and after; what was not looked at counts
//! as found; nothing is said where all of it was found, since that holds where nothing is said.

use aos_abi::CallError;
use aos_drivers::fs::{Place, labelled};
use aos_kernel::effect::Authority;
use aos_policy::{Labels, Policy};
use serde_json::{Value, json};

/// The labels of a role's rules for files, and which of them were found.
pub(crate) struct Found {
    policy: Policy,
    role: String,
    all: Labels,
    found: Labels,
}

impl Found {
    /// Nothing yet, for a command of this process.
    pub(crate) fn of(authority: &Authority) -> Found {
        let (policy, role) = (authority.policy.clone(), authority.role.clone());
        let all = policy.labels_of_files(&role, ".");
        Found { policy, role, all, found: Labels::NONE }
    }

    /// With what is there now. Blocking.
    pub(crate) fn look(self, place: &Place) -> Found {
        if self.all.within(self.found) {
            return self;
        }
        let of = |path: &str, is_folder| self.policy.labels_of_entry(&self.role, path, is_folder);
        let found = self.found.and(labelled(place, self.all, of));
        Found { found, ..self }
    }

    /// Who decides on what the command sends, without what is on no file.
    pub(crate) fn narrow(&self, authority: Authority) -> Authority {
        Authority { ruled: authority.ruled.only(self.found), ..authority }
    }

    /// Tells the kernel, where not all of it was found.
    pub(crate) fn tell(&self, answer: &mut Result<Value, CallError>) {
        if self.all.within(self.found) {
            return;
        }
        let result = match answer {
            Ok(result) => result,
            Err(error) => error.partial.get_or_insert_with(|| json!({})),
        };
        result[aos_kernel::FOUND] = self.found.to_string().into();
    }
}
